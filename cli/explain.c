/* explain.c - raffle explain: what the filters did to one row, and which ticket won. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exact.h"
#include "input.h"
#include "picture.h"
#include "runner.h"
#include "text.h"

enum { STAGES = 3, BAR_COLUMNS = 16, TEXT_COLUMNS = 16 };

typedef struct explaining {
    const options *options;
    rows_file rows;
    lines_file vocab;
    runner runner; /* on the CPU */
    runner device; /* on the GPU, with --backend cuda */
    raffle_dtype dtype;
    void *buffer; /* [vocab] of dtype */
    raffle_explanation told;
    int32_t device_token; /* what the GPU drew */
    uint32_t device_flags;
    ranked *list; /* [vocab] */
    double kept_mass;
    picture picture;
    int tickets_columns, logit_columns;
} explaining;

/* The filters in the order they were used, with what each left. */
typedef struct stage {
    const char *name;
    char setting[32]; /* "50", or "off" */
    raffle_fate fate;
    int64_t removed, left;
} stage;

static void stages_of(const explaining *e, stage stages[STAGES]) {
    const options *const o = e->options;
    const int last = (o->flags & RAFFLE_MIN_P_LAST) != 0;
    stage min_p = {"min-p", "off", RAFFLE_CUT_MIN_P, 0, 0}, top_k = {"top-k", "off", RAFFLE_CUT_TOP_K, 0, 0},
          top_p = {"top-p", "off", RAFFLE_CUT_TOP_P, 0, 0};
    if (o->min_p > 0) snprintf(min_p.setting, sizeof min_p.setting, "%g", (double)o->min_p);
    if (o->top_k > 0 && o->top_k < e->rows.view.cols) snprintf(top_k.setting, sizeof top_k.setting, "%d", o->top_k);
    if (o->top_p < 1) snprintf(top_p.setting, sizeof top_p.setting, "%g", (double)o->top_p);
    stages[last ? 2 : 0] = min_p;
    stages[last ? 0 : 1] = top_k;
    stages[last ? 1 : 2] = top_p;
    int64_t left = e->rows.view.cols - e->told.fates[RAFFLE_CUT_MASK];
    for (int i = 0; i < STAGES; ++i) {
        stages[i].removed = e->told.fates[stages[i].fate];
        stages[i].left = left -= stages[i].removed;
    }
}

/* The probability of the i-th likeliest token in the draw. */
static double drawn_with(const explaining *e, int64_t i) {
    if (i >= e->told.fates[RAFFLE_KEPT]) return 0;
    return e->told.greedy ? 1 : e->list[i].probability / e->kept_mass;
}

static const char *fate_name(int32_t fate) {
    static const char *const names[] = {"kept", "mask", "min-p", "top-k", "top-p", "greedy"};
    return fate >= 0 && fate < 6 ? names[fate] : "unknown";
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
    static const char *const names[] = {"joint", "filters-first", "min-p-last", "top-k-exact", "empty-is-zero"};
    const options *const o = e->options;
    ink_start(&e->picture, INK_BOLD);
    printf("%s, row %lld", o->file, (long long)o->row);
    ink_end(&e->picture, INK_BOLD);
    printf(": %s tokens, %s", grouped((uint64_t)e->rows.view.cols), dtype_names[e->dtype]);
    print_about(&e->runner);
    if (on_device(e)) print_about(&e->device);
    printf("\ntemperature %g, seed %llu, position %llu", (double)o->temperature, (unsigned long long)o->seed,
           (unsigned long long)o->position);
    for (int i = 0; i < 5; ++i)
        if (o->flags >> i & 1) printf(", %s", names[i]);
    printf("\n\n");
}

static void print_stage(const explaining *e, const char *name, const char *setting, int64_t removed, int64_t left) {
    const double mass = exact_mass(e->list, left);
    printf("  %-7s %-8s %12s %12s   %9.5f %%  ", name, setting, removed < 0 ? "" : grouped((uint64_t)removed),
           grouped((uint64_t)left), 100 * mass);
    picture_bar(&e->picture, mass, 2 * BAR_COLUMNS, INK_AFTER);
    putchar('\n');
}

static void print_stages(const explaining *e) {
    stage stages[STAGES];
    const int64_t vocab = e->rows.view.cols, masked = e->told.fates[RAFFLE_CUT_MASK];
    stages_of(e, stages);
    ink_start(&e->picture, INK_BOLD);
    printf("  %-16s %12s %12s   %11s\n", "stage", "removed", "kept", "probability");
    ink_end(&e->picture, INK_BOLD);
    print_stage(e, "row", "", -1, vocab);
    if (masked) print_stage(e, "-inf", "or NaN", masked, vocab - masked);
    if (e->told.greedy) {
        print_stage(e, "greedy", "", e->told.fates[RAFFLE_CUT_GREEDY], e->told.fates[RAFFLE_KEPT]);
    } else {
        for (int i = 0; i < STAGES; ++i)
            if (strcmp(stages[i].setting, "off") != 0)
                print_stage(e, stages[i].name, stages[i].setting, stages[i].removed, stages[i].left);
            else
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

static void print_draw(const explaining *e) {
    const raffle_explanation *const x = &e->told;
    if (x->row_flags & RAFFLE_ROW_NAN) printf("  The row has NaN logits: they count as -inf.\n");
    if (x->row_flags & RAFFLE_ROW_INF) printf("  The row has +inf logits: only they share the draw.\n");
    if (x->row_flags & RAFFLE_ROW_EMPTY) {
        printf("  Nothing to draw: every logit is -inf or NaN. Token %d.\n", (int)x->token);
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
    const double widest = drawn_with(e, 0) > e->list[0].probability ? drawn_with(e, 0) : e->list[0].probability;
    const double before = e->list[i].probability, after = drawn_with(e, i);
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
    const int64_t shown = e->told.top_count, more = e->rows.view.cols - shown;
    if (!shown) return;
    ink_start(&e->picture, INK_BOLD);
    printf("  %7s%s%*s %*s %*s %11s %-*s %11s\n", "token", e->options->vocab ? " text" : "",
           e->options->vocab ? TEXT_COLUMNS - 4 : 0, "", e->logit_columns, "logit", e->tickets_columns, "tickets",
           "before", BAR_COLUMNS, "the filters", "after");
    ink_end(&e->picture, INK_BOLD);
    for (int64_t i = 0; i < shown; ++i) print_candidate(e, i);
    if (more) {
        const int64_t kept = e->told.fates[RAFFLE_KEPT] > shown ? e->told.fates[RAFFLE_KEPT] - shown : 0;
        double after = 0;
        for (int64_t i = shown; i < shown + kept; ++i) after += drawn_with(e, i);
        const int pad = (e->options->vocab ? TEXT_COLUMNS + 1 : 0) + 12 + e->logit_columns + e->tickets_columns;
        char others[48];
        snprintf(others, sizeof others, "%s others, %s of them kept", grouped((uint64_t)more), grouped((uint64_t)kept));
        printf("  %-*s", pad - 2, others);
        printf("%9.5f %% %*s %9.5f %%\n", 100 * (exact_mass(e->list, shown + more) - exact_mass(e->list, shown)),
               BAR_COLUMNS, "", 100 * after);
    }
    if (e->told.greedy) return; /* nobody counted tickets */
    printf("\n  The row holds %s tickets; %s of them are kept.\n", grouped(e->told.row_tickets),
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
    for (int64_t i = 0; i < x->top_count; ++i) print_candidate_json(e, i);
    printf("\n  ]}\n");
}

/* Asks the library, and computes the exact law beside it. */
static exit_code look(explaining *e) {
    const options *const o = e->options;
    const settings all = settings_of(o);
    const raffle_params params = settings_params(&all, &o->position, NULL);
    const raffle_launch launch = runner_launch(&e->runner, 0);
    raffle_error error = raffle_error_init();
    raffle_logits logits = raffle_logits_init();
    logits.data = rows_load(&e->rows, o->row, 1, e->dtype, e->buffer);
    logits.rows = 1;
    if (raffle_explain(e->runner.plan, &logits, &params, 0, &e->told, &launch, &error)) return complain_of(&error);
    if (on_device(e)) {
        raffle_result result = raffle_result_init();
        result.token = &e->device_token;
        result.row_flags = &e->device_flags;
        if (runner_sample(&e->device, 0, &logits, &params, &result, 0, 1, &error)) return complain_of(&error);
    }
    exact_rank(logits.data, e->dtype, e->rows.view.cols, o->temperature, e->list);
    e->tickets_columns = e->told.top_count ? (int)strlen(grouped(e->told.top[0].tickets)) : 0;
    if (e->tickets_columns < 12) e->tickets_columns = 12;
    e->logit_columns = 9;
    for (int64_t i = 0; i < e->told.top_count; ++i) {
        const int columns = (int)strlen(logit_text(e->told.top[i].logit));
        if (columns > e->logit_columns) e->logit_columns = columns;
    }
    e->kept_mass = exact_mass(e->list, e->told.fates[RAFFLE_KEPT]);
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
    exit_code code = on_device(e) ? runner_open(&e->device, &desc, 1) : EXIT_FINE;
    desc.backend = RAFFLE_CPU; /* its numbers are the GPU's, and it can explain them */
    if (!code) code = runner_open(&e->runner, &desc, 1);
    if (!code) code = vocab_open(&e->vocab, o->vocab, vocab);
    if (code) return code;
    e->told = raffle_explanation_init();
    e->told.top_count = o->top < vocab ? o->top : vocab;
    e->told.top = malloc((size_t)e->told.top_count * sizeof *e->told.top);
    e->list = malloc((size_t)vocab * sizeof *e->list);
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
    runner_close(&e.runner);
    runner_close(&e.device);
    rows_close(&e.rows);
    return code;
}
