/* explain.c - raffle explain: what the filters did to one row, and which ticket won. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exact.h"
#include "input.h"
#include "option_list.h"
#include "picture.h"
#include "runner.h"
#include "text.h"

enum { STAGES = 5, BAR_COLUMNS = 16, TEXT_COLUMNS = 16 };

typedef struct explaining {
    const options *options;
    rows_file rows;
    lines_file vocab;
    request request;
    runner runner; /* on the CPU */
    runner device; /* on the GPU, with --backend cuda */
    raffle_dtype dtype;
    void *buffer;            /* [vocab] of dtype */
    raffle_explanation told; /* of all tokens */
    int64_t shown;           /* lines of the picture */
    int32_t device_token;    /* what the GPU drew */
    uint32_t device_flags;
    ranked *list;             /* [vocab] in the order of told.top; what was told about no token (an empty row) is 0 */
    double kept_mass, widest; /* the largest probability, before or after */
    picture picture;
    int tickets_columns, logit_columns;
} explaining;

/* The filters in the order they were used, with what each left. */
typedef struct stage {
    const char *name;
    char setting[32]; /* "50", or "off" */
    raffle_fate fate;
    int64_t removed, left;
    double mass; /* of what is left */
} stage;

/* Sums the probability of the candidates with a fate. */
static double fate_mass(const explaining *e, raffle_fate fate) {
    double sum = 0;
    for (int64_t i = e->told.top_count; i-- > 0;) /* the small ones first */
        if (e->told.top[i].fate == (int32_t)fate) sum += e->list[i].probability;
    return sum;
}

/* top-n-sigma, epsilon, eta and typical-p share a fate, and a line: where the first of them is that is on. */
static void stages_of(const explaining *e, stage stages[STAGES]) {
    const options *const o = e->options;
    const raffle_extra *const x = &e->request.extra;
    const int last = (o->flags & RAFFLE_MIN_P_LAST) != 0, shape_last = (o->flags & RAFFLE_SHAPE_LAST) != 0;
    const int likely = x->epsilon > 0 || x->eta > 0, shapes = x->top_n_sigma > 0 || likely || x->typical_p > 0;
    const int early = x->top_n_sigma > 0 || (likely && !shape_last), late = shape_last && !early;
    stage min_p = {"min-p", "off", RAFFLE_CUT_MIN_P, 0, 0, 0}, top_k = {"top-k", "off", RAFFLE_CUT_TOP_K, 0, 0, 0},
          top_p = {"top-p", "off", RAFFLE_CUT_TOP_P, 0, 0, 0}, shape = {"shape", "off", RAFFLE_CUT_SHAPE, 0, 0, 0},
          xtc = {"xtc", "off", RAFFLE_CUT_XTC, 0, 0, 0};
    int n = 0;
    if (o->min_p > 0) snprintf(min_p.setting, sizeof min_p.setting, "%g", (double)o->min_p);
    if (o->top_k > 0 && o->top_k < e->rows.view.cols) snprintf(top_k.setting, sizeof top_k.setting, "%d", o->top_k);
    if (o->top_p < 1) snprintf(top_p.setting, sizeof top_p.setting, "%g", (double)o->top_p);
    if (shapes) shape.setting[0] = 0; /* the settings are told above */
    if (x->xtc_probability > 0) snprintf(xtc.setting, sizeof xtc.setting, "%g", (double)x->xtc_probability);
    if (early) stages[n++] = shape;
    if (!last) stages[n++] = min_p;
    stages[n++] = top_k;
    if (!early && !late) stages[n++] = shape;
    stages[n++] = top_p;
    if (last) stages[n++] = min_p;
    if (late) stages[n++] = shape;
    stages[n++] = xtc;
    int64_t left = e->rows.view.cols - e->told.fates[RAFFLE_CUT_MASK];
    double mass = 1;
    for (int i = 0; i < STAGES; ++i) {
        stages[i].removed = e->told.fates[stages[i].fate];
        stages[i].left = left -= stages[i].removed;
        stages[i].mass = mass -= fate_mass(e, stages[i].fate);
    }
}

/* The probability of the i-th likeliest token in the draw. */
static double drawn_with(const explaining *e, int64_t i) {
    if (e->told.top[i].fate != RAFFLE_KEPT) return 0;
    return e->told.greedy ? 1 : e->list[i].probability / e->kept_mass;
}

static const char *fate_name(int32_t fate) {
    static const char *const names[] = {"kept", "mask", "min-p", "top-k", "top-p", "greedy", "shape", "xtc"};
    return fate >= 0 && fate < 8 ? names[fate] : "unknown";
}

static void print_text(const explaining *e, int32_t token, int columns) {
    size_t length;
    const char *const text = line_of(&e->vocab, token, &length);
    if (!e->options->vocab) return;
    putchar(' ');
    if (text)
        text_quoted(stdout, text, length, columns, e->picture.utf8);
    else
        printf("%*s", columns, "");
}

static int on_device(const explaining *e) { return e->options->backend == RAFFLE_CUDA; }

/* 0: the GPU drew something else. */
static int device_same(const explaining *e) {
    return !on_device(e) || (e->device_token == e->told.token && e->device_flags == e->told.row_flags);
}

/* A plan's backend, without the rest of its description, which is told elsewhere. */
static void print_about(const runner *r) {
    char about[160];
    raffle_plan_describe(r->plan, about, sizeof about);
    about[strcspn(about, ",")] = 0;
    printf(", %s", about);
}

static void print_settings(const explaining *e) {
    const options *const o = e->options;
    ink_start(&e->picture, INK_BOLD);
    printf("%s, row %lld", o->file, (long long)o->row);
    ink_end(&e->picture, INK_BOLD);
    printf(": %s tokens, %s", grouped((uint64_t)e->rows.view.cols), dtype_names[e->dtype]);
    print_about(&e->runner);
    if (on_device(e)) print_about(&e->device);
    if (o->probs)
        printf("\nprobabilities");
    else
        printf("\ntemperature %g", (double)o->temperature);
    printf(", seed %llu, position %llu", (unsigned long long)o->seed, (unsigned long long)o->position);
    for (int i = 0; i < FLAG_NAMES; ++i)
        if ((o->flags | o->request.extra.flags) & flag_bit(i)) printf(", %s", flag_names[i]);
    for (int i = 0; i < o->given_count; ++i)
        if (o->given[i].request)
            printf("%s%s %.*s", i && o->given[i - 1].request ? ", " : "\n", o->given[i].name, 40, o->given[i].value);
    printf("\n\n");
}

static void print_stage(const explaining *e, const char *name, const char *setting, int64_t removed, int64_t left,
                        double mass) {
    printf("  %-7s %-8s %12s %12s   %9.5f %%  ", name, setting, removed < 0 ? "" : grouped((uint64_t)removed),
           grouped((uint64_t)left), 100 * mass);
    picture_bar(&e->picture, mass, 2 * BAR_COLUMNS, INK_AFTER);
    putchar('\n');
}

static void print_stages(const explaining *e) {
    stage stages[STAGES];
    const int64_t vocab = e->rows.view.cols, masked = e->told.fates[RAFFLE_CUT_MASK];
    const double all = e->told.top_count ? 1 : 0;
    stages_of(e, stages);
    ink_start(&e->picture, INK_BOLD);
    printf("  %-16s %12s %12s   %11s\n", "stage", "removed", "kept", "probability");
    ink_end(&e->picture, INK_BOLD);
    print_stage(e, "row", "", -1, vocab, all);
    if (masked)
        print_stage(e,
                    e->options->asks    ? "banned"
                    : e->options->probs ? "0"
                                        : "-inf",
                    "or NaN", masked, vocab - masked, all);
    if (e->told.greedy) {
        print_stage(e, "greedy", "", e->told.fates[RAFFLE_CUT_GREEDY], e->told.fates[RAFFLE_KEPT], e->kept_mass);
    } else {
        for (int i = 0; i < STAGES; ++i)
            if (strcmp(stages[i].setting, "off") != 0)
                print_stage(e, stages[i].name, stages[i].setting, stages[i].removed, stages[i].left, stages[i].mass);
            else if (stages[i].fate != RAFFLE_CUT_SHAPE && stages[i].fate != RAFFLE_CUT_XTC)
                printf("  %-7s off\n", stages[i].name);
    }
    putchar('\n');
}

static void print_device(const explaining *e) {
    const ink ink = device_same(e) ? INK_AFTER : INK_DRAWN;
    if (!on_device(e)) return;
    printf("  The GPU drew token %d", (int)e->device_token);
    if (e->device_flags != e->told.row_flags) printf(", row flags %u and not %u", e->device_flags, e->told.row_flags);
    printf(": ");
    ink_start(&e->picture, ink);
    printf(device_same(e) ? "the same" : "DIFFERENT");
    ink_end(&e->picture, ink);
    printf(".\n");
}

static const char *point_name(const explaining *e) {
    static const char *const names[] = {"as they came", "before the filters", "after the filters"};
    return names[e->request.report.point];
}

/* --logprobs. */
static void print_report(const explaining *e) {
    const raffle_report *const r = &e->request.report;
    if (!r->size) return;
    printf("  Log-probabilities, %s: %.6f of the token, rank %d; entropy %.6f\n", point_name(e), (double)r->chosen[0],
           (int)r->rank[0], (double)r->entropy[0]);
    for (int32_t i = 0; i < r->top_count && r->top_token[i] != RAFFLE_NO_TOKEN; ++i) {
        printf("  %7d", (int)r->top_token[i]);
        print_text(e, r->top_token[i], TEXT_COLUMNS);
        printf(" %12.6f\n", (double)r->top[i]);
    }
}

static void print_draw(const explaining *e) {
    const raffle_explanation *const x = &e->told;
    const int probs = e->options->probs;
    if (x->row_flags & RAFFLE_ROW_NAN)
        printf("  The row has %s.\n",
               probs ? "NaN or negative values: they count as 0" : "NaN logits: they count as -inf");
    if (x->row_flags & RAFFLE_ROW_INF)
        printf("  The row has +inf %s: only they share the draw.\n", probs ? "values" : "logits");
    if (x->row_flags & RAFFLE_ROW_EMPTY) {
        printf("  Nothing to draw: every %s%s. Token %d.\n",
               probs ? "probability is 0, NaN or negative" : "logit is -inf or NaN",
               e->options->asks ? ", or its token is banned" : "", (int)x->token);
        print_device(e);
        return;
    }
    if (x->greedy)
        printf("  Greedy: the largest logit wins without a draw.");
    else
        printf("  Ticket %s of %s was drawn.", grouped(x->drawn), grouped(x->draw_tickets));
    printf(" Its holder: ");
    ink_start(&e->picture, INK_DRAWN);
    printf("token %d", (int)x->token);
    print_text(e, x->token, 0);
    ink_end(&e->picture, INK_DRAWN);
    printf("\n");
    print_device(e);
    print_report(e);
    if (e->options->temperature < 1e-5f) printf("  Probabilities and tickets below are those of temperature 1.\n");
    printf("\n");
}

/* A logit with four decimals, or where these would not show it, with all digits it has. */
static const char *logit_text(float x) {
    static char text[24];
    const double size = fabs((double)x);
    snprintf(text, sizeof text, size == 0 || (size >= 0.01 && size < 1e4) ? "%.4f" : "%.9g", (double)x);
    return text;
}

static void print_candidate(const explaining *e, int64_t i) {
    const raffle_candidate *const c = &e->told.top[i];
    const double widest = e->widest, before = e->list[i].probability, after = drawn_with(e, i);
    const int won = c->token == e->told.token;
    ink_start(&e->picture, won ? INK_DRAWN : INK_PLAIN);
    printf("  %7d", (int)c->token);
    print_text(e, c->token, TEXT_COLUMNS);
    ink_end(&e->picture, won ? INK_DRAWN : INK_PLAIN);
    printf(" %*s %*s %9.5f %% ", e->logit_columns, logit_text(c->logit), e->tickets_columns, grouped(c->tickets),
           100 * before);
    picture_bar(&e->picture, widest > 0 ? before / widest : 0, BAR_COLUMNS, INK_BEFORE);
    if (c->fate == RAFFLE_KEPT) {
        printf(" %9.5f %% ", 100 * after);
        picture_bar(&e->picture, widest > 0 ? after / widest : 0, BAR_COLUMNS, INK_AFTER);
    } else {
        ink_start(&e->picture, INK_FAINT);
        printf("  cut by %s", fate_name(c->fate));
        ink_end(&e->picture, INK_FAINT);
    }
    if (won) fputs(e->picture.utf8 ? " ◀ drawn" : " <- drawn", stdout);
    putchar('\n');
}

static void print_picture(const explaining *e) {
    const int64_t shown = e->shown, more = e->rows.view.cols - shown;
    if (!shown) return;
    ink_start(&e->picture, INK_BOLD);
    printf("  %7s%s%*s %*s %*s %11s %-*s %11s\n", "token", e->options->vocab ? " text" : "",
           e->options->vocab ? TEXT_COLUMNS - 4 : 0, "", e->logit_columns, e->options->probs ? "weight" : "logit",
           e->tickets_columns, "tickets", "before", BAR_COLUMNS, "the filters", "after");
    ink_end(&e->picture, INK_BOLD);
    for (int64_t i = 0; i < shown; ++i) print_candidate(e, i);
    if (more) {
        int64_t kept = 0;
        double after = 0;
        for (int64_t i = shown + more; i-- > shown;)
            kept += e->told.top[i].fate == RAFFLE_KEPT, after += drawn_with(e, i);
        const int pad = (e->options->vocab ? TEXT_COLUMNS + 1 : 0) + 12 + e->logit_columns + e->tickets_columns;
        char others[48];
        snprintf(others, sizeof others, "%s others, %s of them kept", grouped((uint64_t)more), grouped((uint64_t)kept));
        printf("  %-*s", pad - 2, others);
        printf("%9.5f %% %*s %9.5f %%\n", 100 * (exact_mass(e->list, shown + more) - exact_mass(e->list, shown)),
               BAR_COLUMNS, "", 100 * after);
    }
    if (e->told.greedy) return; /* nobody counted tickets */
    printf("\n  The row holds %s tickets; ", grouped(e->told.row_tickets));
    printf(e->told.top[0].fate == RAFFLE_KEPT ? "%s of them are kept.\n" : "what is kept is weighed anew, as %s.\n",
           grouped(e->told.draw_tickets));
}

static void print_candidate_json(const explaining *e, int64_t i) {
    const raffle_candidate *const c = &e->told.top[i];
    size_t length;
    const char *const text = line_of(&e->vocab, c->token, &length);
    printf("%s\n    {\"token\": %d", i ? "," : "", (int)c->token);
    if (text) {
        printf(", \"text\": ");
        json_string(stdout, text, length);
    }
    printf(", \"fate\": \"%s\", \"logit\": ", fate_name(c->fate));
    json_number(stdout, (double)c->logit);
    printf(", \"tickets\": %llu, \"probability\": ", (unsigned long long)c->tickets);
    json_number(stdout, e->list[i].probability);
    printf(", \"probability_after\": ");
    json_number(stdout, drawn_with(e, i));
    printf("}");
}

static void print_report_json(const explaining *e) {
    const raffle_report *const r = &e->request.report;
    if (!r->size) return;
    printf(",\n  \"logprob\": ");
    json_number(stdout, (double)r->chosen[0]);
    printf(", \"rank\": %d, \"entropy\": ", (int)r->rank[0]);
    json_number(stdout, (double)r->entropy[0]);
    printf(", \"logprobs\": [");
    for (int32_t i = 0; i < r->top_count && r->top_token[i] != RAFFLE_NO_TOKEN; ++i) {
        printf("%s{\"token\": %d, \"logprob\": ", i ? ", " : "", (int)r->top_token[i]);
        json_number(stdout, (double)r->top[i]);
        printf("}");
    }
    printf("]");
}

static void print_json(const explaining *e) {
    const raffle_explanation *const x = &e->told;
    stage stages[STAGES];
    stages_of(e, stages);
    printf("{\"file\": ");
    json_string(stdout, e->options->file, strlen(e->options->file));
    printf(", \"row\": %lld, \"vocab\": %lld, \"dtype\": \"%s\",\n", (long long)e->options->row,
           (long long)e->rows.view.cols, dtype_names[e->dtype]);
    printf("  \"token\": %d, \"greedy\": %s, \"row_flags\": %u, \"kept\": %lld, \"threshold\": ", (int)x->token,
           x->greedy ? "true" : "false", x->row_flags, (long long)x->fates[RAFFLE_KEPT]);
    json_number(stdout, (double)x->threshold);
    if (on_device(e))
        printf(",\n  \"cuda\": {\"token\": %d, \"row_flags\": %u, \"same\": %s}", (int)e->device_token, e->device_flags,
               device_same(e) ? "true" : "false");
    printf(",\n  \"row_tickets\": %llu, \"draw_tickets\": %llu, \"drawn\": %llu,\n  \"stages\": [",
           (unsigned long long)x->row_tickets, (unsigned long long)x->draw_tickets, (unsigned long long)x->drawn);
    printf("{\"name\": \"mask\", \"removed\": %lld}", (long long)x->fates[RAFFLE_CUT_MASK]);
    for (int i = 0; i < STAGES; ++i)
        printf(", {\"name\": \"%s\", \"removed\": %lld}", stages[i].name, (long long)stages[i].removed);
    printf(", {\"name\": \"greedy\", \"removed\": %lld}],\n  \"top\": [", (long long)x->fates[RAFFLE_CUT_GREEDY]);
    for (int64_t i = 0; i < e->shown; ++i) print_candidate_json(e, i);
    printf("\n  ]");
    print_report_json(e);
    printf("}\n");
}

/* Asks the library, and computes the exact law beside it. */
static exit_code look(explaining *e) {
    const options *const o = e->options;
    const settings all = settings_of(o);
    raffle_params params = settings_params(&all, &o->position, NULL);
    const raffle_launch launch = runner_launch(&e->runner, 0);
    raffle_error error = raffle_error_init();
    raffle_logits logits = raffle_logits_init();
    logits.data = rows_load(&e->rows, o->row, 1, e->dtype, e->buffer);
    logits.rows = 1;
    request_add(&e->request, &params);
    if (raffle_explain(e->runner.plan, &logits, &params, 0, &e->told, &launch, &error)) return complain_of(&error);
    raffle_result result = raffle_result_init();
    result.token = &e->device_token;
    result.row_flags = &e->device_flags;
    if (e->request.report.size) result.report = &e->request.report;
    if (on_device(e) || result.report) {
        const runner *const drawing = on_device(e) ? &e->device : &e->runner;
        if (runner_sample(drawing, 0, &logits, &params, &result, 0, 1, &error)) return complain_of(&error);
    }
    for (int64_t i = 0; i < e->told.top_count; ++i) {
        e->list[i].token = e->told.top[i].token;
        e->list[i].logit = e->told.top[i].logit;
    }
    exact_law(e->list, e->told.top_count, o->probs ? EXACT_WEIGHTS : o->temperature);
    e->kept_mass = fate_mass(e, RAFFLE_KEPT);
    e->widest = e->list[0].probability;
    for (int64_t i = 0; i < e->told.top_count; ++i)
        if (drawn_with(e, i) > e->widest) e->widest = drawn_with(e, i);
    if (e->told.top_count < e->shown) e->shown = e->told.top_count;
    e->tickets_columns = e->told.top_count ? (int)strlen(grouped(e->told.top[0].tickets)) : 0;
    if (e->tickets_columns < 12) e->tickets_columns = 12;
    e->logit_columns = 9;
    for (int64_t i = 0; i < e->shown; ++i) {
        const int columns = (int)strlen(logit_text(e->told.top[i].logit));
        if (columns > e->logit_columns) e->logit_columns = columns;
    }
    return EXIT_FINE;
}

static exit_code prepare(explaining *e) {
    const options *const o = e->options;
    const int64_t vocab = e->rows.view.cols;
    if (o->row >= e->rows.view.rows) {
        complain("--row is %lld: the file has %lld row%s", (long long)o->row, (long long)e->rows.view.rows,
                 e->rows.view.rows == 1 ? "" : "s");
        return EXIT_USAGE;
    }
    e->dtype = o->dtype < 0 ? (raffle_dtype)e->rows.view.type : (raffle_dtype)o->dtype;
    raffle_plan_desc desc = runner_desc(o, e->dtype, vocab, 1);
    exit_code code = request_open(&e->request, o, vocab);
    if (!code) code = request_report(&e->request, o, 1);
    request_desc(&e->request, &desc);
    if (!code) code = on_device(e) ? runner_open(&e->device, &desc, 1) : EXIT_FINE;
    desc.backend = RAFFLE_CPU; /* its numbers are the GPU's, and it can explain them */
    if (!code) code = runner_open(&e->runner, &desc, 1);
    if (!code) code = vocab_open(&e->vocab, o->vocab, vocab);
    if (code) return code;
    e->told = raffle_explanation_init();
    e->told.top_count = vocab;
    e->shown = o->top < vocab ? o->top : vocab;
    e->told.top = malloc((size_t)vocab * sizeof *e->told.top);
    e->list = calloc((size_t)vocab, sizeof *e->list);
    e->buffer = malloc((size_t)vocab * dtype_bytes(e->dtype));
    if (e->told.top && e->list && e->buffer) return EXIT_FINE;
    return complain("out of memory"), EXIT_MACHINE;
}

exit_code command_explain(const options *o) {
    explaining e = {.options = o, .picture = picture_of_stdout(o->ascii)};
    exit_code code = rows_open(&e.rows, o->file);
    if (code) return code;
    code = prepare(&e);
    if (!code) code = look(&e);
    if (!code && o->json) {
        print_json(&e);
    } else if (!code) {
        print_settings(&e);
        print_stages(&e);
        print_draw(&e);
        print_picture(&e);
    }
    if (!code && !device_same(&e)) code = EXIT_WRONG;
    free(e.buffer);
    free(e.list);
    free(e.told.top);
    lines_close(&e.vocab);
    request_close(&e.request);
    runner_close(&e.runner);
    runner_close(&e.device);
    rows_close(&e.rows);
    return code;
}
