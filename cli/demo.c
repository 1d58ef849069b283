/* demo.c - raffle demo: draws from real logits, in words, beside the exact probabilities. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exact.h"
#include "input.h"
#include "picture.h"
#include "runner.h"
#include "text.h"

enum { DRAWS = 10000, SHOWN = 5, BAR_COLUMNS = 20, TEXT_COLUMNS = 14, HASH_DRAWS = 25 };

typedef struct demo {
    rows_file rows;
    lines_file vocab, prompts;
    picture picture;
    runner runner;
    ranked *list;   /* [vocab] */
    int64_t *count; /* [vocab] */
    int32_t *token; /* [DRAWS] */
} demo;

typedef struct choice {
    const char *name;
    settings settings;
} choice;

static const choice choices[] = {
    {"no filter", {1.0f, 1.0f, 0.0f, 0, 0, 2024}},
    {"top-k 50 + top-p 0.9", {1.0f, 0.9f, 0.0f, 50, 0, 2024}},
    {"min-p 0.05", {1.0f, 1.0f, 0.05f, 0, 0, 2024}},
};
enum { CHOICES = sizeof choices / sizeof choices[0] };
static const settings greedy = {0.0f, 1.0f, 0.0f, 0, 0, 0};

static void heading(const demo *d, const char *text) {
    putchar('\n');
    ink_start(&d->picture, INK_BOLD);
    fputs(text, stdout);
    ink_end(&d->picture, INK_BOLD);
    putchar('\n');
}

static void print_token(const demo *d, int32_t token, int columns) {
    size_t length;
    const char *const text = line_of(&d->vocab, token, &length);
    text_quoted(stdout, text ? text : "", length, columns, d->picture.utf8);
}

/* The last part of a prompt's line, which is "kind, tab, prompt". */
static void print_prompt(const demo *d, int64_t row, int columns) {
    size_t length;
    const char *line = line_of(&d->prompts, row, &length);
    const char *const tab = line ? memchr(line, '\t', length) : NULL;
    if (!tab) return;
    length -= (size_t)(tab + 1 - line);
    line = tab + 1;
    size_t from = length > (size_t)columns ? length - (size_t)columns : 0, word = from;
    while (word && word < length && line[word - 1] != ' ') ++word;
    if (word < length) from = word;
    while (from < length && (line[from] & 0xc0) == 0x80) ++from; /* not in the middle of a character */
    ink_start(&d->picture, INK_BEFORE);
    fputs(from ? (d->picture.utf8 ? "… " : "... ") : "", stdout);
    for (; from < length; ++from) {
        const int lead = (line[from] & 0xc0) == 0xc0, tail = (line[from] & 0xc0) == 0x80;
        if (d->picture.utf8 || !(lead || tail)) putchar(line[from]);
        if (!d->picture.utf8 && lead) putchar('?');
    }
    ink_end(&d->picture, INK_BEFORE);
}

static exit_code draw(const demo *d, const runner *with, int64_t row, const settings *how, int64_t draws) {
    uint32_t row_flags;
    const raffle_dtype dtype = (raffle_dtype)d->rows.view.type;
    const draw_job job = {rows_load(&d->rows, row, 1, dtype, NULL), 1, draws, *how, NULL, 0, d->token, &row_flags};
    return runner_draw(with, &job);
}

/* How many tokens the filters keep. */
static exit_code kept_by(const demo *d, int64_t row, const settings *how, int64_t *kept) {
    const uint64_t position = 0;
    const raffle_params params = settings_params(how, &position, NULL);
    const raffle_launch launch = runner_launch(&d->runner, 0);
    raffle_explanation told = raffle_explanation_init();
    raffle_error error = raffle_error_init();
    raffle_logits logits = raffle_logits_init();
    logits.data = rows_load(&d->rows, row, 1, (raffle_dtype)d->rows.view.type, NULL);
    logits.rows = 1;
    if (raffle_explain(d->runner.plan, &logits, &params, 0, &told, &launch, &error)) return complain_of(&error);
    *kept = told.fates[RAFFLE_KEPT];
    return EXIT_FINE;
}

/* One line of a table: exact probability and share of the draws. Bars are drawn
 * to the scale of `widest`, or not at all if that is 0. Returns the distance in standard deviations. */
static double print_share(const demo *d, double exact, int64_t count, double widest) {
    const double share = (double)count / DRAWS, deviation = sqrt(exact * (1 - exact) / DRAWS);
    printf(" %7.3f %% ", 100 * exact);
    picture_bar(&d->picture, widest > 0 ? exact / widest : 0, BAR_COLUMNS, INK_BEFORE);
    printf(" %7.3f %% ", 100 * share);
    picture_bar(&d->picture, widest > 0 ? share / widest : 0, BAR_COLUMNS, INK_AFTER);
    putchar('\n');
    return deviation > 0 ? fabs(share - exact) / deviation : 0;
}

/* 10,000 draws from one row with one choice of filters, against the exact law. */
static exit_code show_choice(demo *d, int64_t row, const choice *made, double *farthest) {
    int64_t kept = 0;
    exit_code code = kept_by(d, row, &made->settings, &kept);
    if (!code) code = draw(d, &d->runner, row, &made->settings, DRAWS);
    if (code) return code;
    memset(d->count, 0, (size_t)d->rows.view.cols * sizeof *d->count);
    for (int i = 0; i < DRAWS; ++i) d->count[d->token[i]]++;
    const double mass = exact_mass(d->list, kept), widest = d->list[0].probability / mass;
    const int64_t shown = kept < SHOWN ? kept : SHOWN;
    double exact = 0;
    int64_t counted = 0;
    printf("  %s keeps %s token%s\n", made->name, grouped((uint64_t)kept), kept == 1 ? "" : "s");
    for (int64_t i = 0; i < shown; ++i) {
        const ranked *const r = &d->list[i];
        printf("    ");
        print_token(d, r->token, TEXT_COLUMNS);
        const double away = print_share(d, r->probability / mass, d->count[r->token], widest);
        if (away > *farthest) *farthest = away;
        exact += r->probability / mass;
        counted += d->count[r->token];
    }
    if (kept > shown) {
        char others[32];
        snprintf(others, sizeof others, "%s more", grouped((uint64_t)(kept - shown)));
        printf("    %-*s", TEXT_COLUMNS, others);
        const double away = print_share(d, 1 - exact, DRAWS - counted, 0);
        if (away > *farthest) *farthest = away;
    }
    return EXIT_FINE;
}

static exit_code show_row(demo *d, int64_t row, double *farthest) {
    const void *const logits = rows_load(&d->rows, row, 1, (raffle_dtype)d->rows.view.type, NULL);
    exact_rank(logits, (raffle_dtype)d->rows.view.type, d->rows.view.cols, 1.0f, d->list);
    printf("\n  ");
    print_prompt(d, row, 70);
    printf("\n  %-*s   %9s %-*s %10s\n", TEXT_COLUMNS, "", "exact", BAR_COLUMNS, "", "drawn");
    exit_code code = EXIT_FINE;
    for (int i = 0; i < CHOICES && !code; ++i) code = show_choice(d, row, &choices[i], farthest);
    return code;
}

static exit_code show_greedy(demo *d) {
    heading(d, "Greedy: the likeliest next token after each prompt");
    putchar('\n');
    for (int64_t row = 0; row < d->rows.view.rows; ++row) {
        const exit_code code = draw(d, &d->runner, row, &greedy, 1);
        if (code) return code;
        printf("  ");
        print_prompt(d, row, 60);
        printf("  ");
        ink_start(&d->picture, INK_DRAWN);
        print_token(d, d->token[0], 0);
        ink_end(&d->picture, INK_DRAWN);
        putchar('\n');
    }
    return EXIT_FINE;
}

/* All draws of an instruction set as one number. */
static exit_code hash_isa(demo *d, raffle_isa isa, uint64_t *hash, int64_t *tokens) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    runner own;
    desc.dtype = (int32_t)d->rows.view.type;
    desc.isa = (int32_t)isa;
    desc.vocab = d->rows.view.cols;
    exit_code code = runner_open(&own, &desc, 1);
    if (code) return code;
    *hash = 14695981039346656037u; /* FNV-1a over the tokens */
    *tokens = 0;
    for (int64_t row = 0; row < d->rows.view.rows && !code; ++row) {
        for (int i = 0; i < CHOICES && !code; ++i) {
            code = draw(d, &own, row, &choices[i].settings, HASH_DRAWS);
            for (int n = 0; n < HASH_DRAWS; ++n) *hash = (*hash ^ (uint32_t)d->token[n]) * 1099511628211u;
            *tokens += HASH_DRAWS;
        }
        progress(raffle_isa_name(isa), (double)row / (double)d->rows.view.rows);
    }
    progress_end();
    runner_close(&own);
    return code;
}

static exit_code show_isas(demo *d) {
    raffle_isa isas[8];
    const int count = isas_of(0, isas);
    uint64_t first = 0;
    int same = 1;
    heading(d, "Every instruction set of this machine draws the same tokens");
    putchar('\n');
    for (int i = 0; i < count; ++i) {
        uint64_t hash;
        int64_t tokens;
        const exit_code code = hash_isa(d, isas[i], &hash, &tokens);
        if (code) return code;
        if (i == 0) first = hash;
        same &= hash == first;
        printf("  %-8s %s tokens, hash %016llx\n", raffle_isa_name(isas[i]), grouped((uint64_t)tokens),
               (unsigned long long)hash);
    }
    ink_start(&d->picture, same ? INK_AFTER : INK_DRAWN);
    printf(same ? "  All the same.\n" : "  They differ: this is a bug, please report it.\n");
    ink_end(&d->picture, same ? INK_AFTER : INK_DRAWN);
    return same ? EXIT_FINE : EXIT_WRONG;
}

static exit_code show(demo *d) {
    static const int64_t rows[] = {0, 1, 12}; /* a sure one, one with a tie, an open one */
    double farthest = 0;
    const unsigned version = raffle_version();
    printf("raffle %u.%u.%u on logits of SmolLM2-135M-Instruct: %lld prompts, %s tokens\n", version / 10000,
           version / 100 % 100, version % 100, (long long)d->rows.view.rows, grouped((uint64_t)d->rows.view.cols));
    exit_code code = show_greedy(d);
    if (!code) heading(d, "Sampling: 10,000 draws per line-up, beside the exact softmax in double precision");
    for (int i = 0; i < 3 && !code; ++i)
        if (rows[i] < d->rows.view.rows) code = show_row(d, rows[i], &farthest);
    if (code) return code;
    printf("\n  The farthest of these numbers is %.1f standard deviations from its exact value: %s.\n", farthest,
           farthest < 4.5 ? "chance" : "too far for chance");
    code = show_isas(d);
    return code ? code : farthest < 4.5 ? EXIT_FINE : EXIT_WRONG;
}

static exit_code open_all(demo *d, const char *folder) {
    char path[3][4096];
    static const char *const names[3] = {"smollm2.npy", "smollm2.vocab.txt", "smollm2.prompts.txt"};
    for (int i = 0; i < 3; ++i)
        if (snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]) >= (int)sizeof path[i])
            return complain("%s: the name is too long", folder), EXIT_USAGE;
    exit_code code = rows_open(&d->rows, path[0]);
    if (!code) code = vocab_open(&d->vocab, path[1], d->rows.view.cols);
    if (!code) code = lines_open(&d->prompts, path[2]);
    if (code) return code;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.dtype = (int32_t)d->rows.view.type;
    desc.vocab = d->rows.view.cols;
    code = runner_open(&d->runner, &desc, 1);
    if (code) return code;
    d->list = malloc((size_t)desc.vocab * sizeof *d->list);
    d->count = malloc((size_t)desc.vocab * sizeof *d->count);
    d->token = malloc(DRAWS * sizeof *d->token);
    return d->list && d->count && d->token ? EXIT_FINE : (complain("out of memory"), EXIT_MACHINE);
}

exit_code command_demo(const options *o) {
    demo d;
    memset(&d, 0, sizeof d);
    d.picture = picture_of_stdout(o->ascii);
    exit_code code = open_all(&d, o->file ? o->file : "data");
    if (!code) code = show(&d);
    free(d.token);
    free(d.count);
    free(d.list);
    runner_close(&d.runner);
    lines_close(&d.prompts);
    lines_close(&d.vocab);
    rows_close(&d.rows);
    return code;
}
