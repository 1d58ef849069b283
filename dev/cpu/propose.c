/* propose.c - top-p as a draw from the whole row, kept if its token is in the nucleus, beside top-p as it is: is the answer to that ever
 * wrong, how much of the row does it take, and how long? README.md, fifteenth round, says what for. From the repository root, after make:
 *
 *   gcc -std=gnu11 -O3 -ffp-contract=off -Wall -Iinclude -Isrc/core -Isrc/math -Isrc/cpu -include src/math/vec_avx512.h \
 *       -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c dev/cpu/propose.c build/src/libraffle.a -lm -o build/propose
 *   build/propose data/smollm2.npy
 *
 * For AVX2, vec_avx2.h and -mavx2 in place of vec_avx512.h and -mavx512*. Exit status 1: an answer was wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rows.c"
#include "run.h"

enum { TRIES = 128, STREAM_AGAIN = 5, ROWS = 24, DRAWS = 64, REPEATS = 5 };

/* ---- what would go into the library ---------------------------------------------------------------- */

/* The sum of the estimates of a whole group's tokens up to `at`. */
RAFFLE_FN double group_under(const cpu_row *row, int64_t g, const estimator *e, float at, int kind) {
    vf sum[FEW_CHAINS];
    for (int n = 0; n < FEW_CHAINS; ++n) sum[n] = v_set(0.0f);
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += FEW_CHAINS * V_LANES) {
        vf x[FEW_CHAINS];
        vm under[FEW_CHAINS];
        for (int n = 0; n < FEW_CHAINS; n += 2) read_pair(row, i + n * V_LANES, &x[n], &x[n + 1], kind);
        for (int n = 0; n < FEW_CHAINS; ++n) under[n] = v_ge(v_set(at), x[n]);
        v_estimates(x, FEW_CHAINS, e);
        for (int n = 0; n < FEW_CHAINS; ++n) sum[n] = v_add_where(under[n], sum[n], x[n]);
    }
    for (int n = 1; n < FEW_CHAINS; ++n) sum[0] = v_add(sum[0], sum[n]);
    return (double)v_total(sum[0]);
}

/* Whether top-p keeps tokens with logit `at` of a row whose groups have been estimated: 1, 0, or -1 where the estimates do not say. What is
 * not above `at` must hold more than 1 - p of the row. Groups whose largest logit is not above it do as a whole; of the others
 * as many are read again as it takes to know. *again: how many. */
RAFFLE_FN int row_keeps(const work *k, const weighing *w, float at, double p, int64_t *again, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    const estimator e = k->state->estimator;
    estimate_error off = estimate_off_tokens(ESTIMATE_DEPTH, &e, &w->row, w->best, row.params.vocab);
    off.all += 2 * ESTIMATE_DEPTH * 0x1p-24; /* differences of two sums, each off by its own additions */
    const double sum = k->state->sum;
    const int64_t whole = row.params.vocab / GROUP;
    double under = 0.0, above = 0.0;
    for (int64_t g = 0; g < s.groups; ++g) under += s.peak[g] <= at ? (double)s.size[g] : 0.0;
    int kept = share_settles(p, sum - under, sum, off), cut = -1;
    v_flush(1);
    for (int64_t g = 0; g < whole && kept != 1 && cut != 0; ++g) {
        if (s.peak[g] <= at) continue;
        const double low = group_under(&row, g, &e, at, kind);
        under += low;
        above += (double)s.size[g] - low;
        kept = share_settles(p, sum - under, sum, off);
        cut = share_settles(p, above, sum, off);
        ++*again;
    }
    v_flush(0);
    return kept == 1 ? 1 : cut == 0 ? 0 : -1;
}

typedef struct counts { long rows, proposals, unsettled, open, wrong; int64_t again; } counts;

/* The token of top-p alone, p at least 1/2, or RULE_NO_TOKEN. `keeps`, the true nucleus, is only looked at to compare. */
RAFFLE_FN int32_t row_propose(const loops *set, const cpu_row *given, const cpu_scratch *s, const uint32_t *keeps, counts *c, int kind) {
    cpu_row row = *given;
    uint64_t bits[2];
    row_state state;
    work k = {set, &row, s, &state, MINUS_INF, kind};
    int nan = 0;
    row.params.top_p = 1.0f;
    row.params.bits = bits;
    state_clear(&state);
    state.peaked = state.alone = state.fine = 0;
    k.best = set->scan_estimate(&k, scale_make(row.params.temperature), &nan);
    ++c->rows;
    if (!state.estimated) return ++c->unsettled, RULE_NO_TOKEN;
    const weighing w = weighing_make(row.params.temperature, k.best);
    for (uint32_t j = 0; j < TRIES; ++j) {
        const philox_pair chance = philox_step(row.params.seed, row.params.position, j ? STREAM_AGAIN + (j << 8) : STREAM_TARGET, 0);
        bits[0] = chance.low, bits[1] = chance.high;
        const int32_t token = row_draw_estimated(&k, &w);
        ++c->proposals;
        if (token == RULE_NO_TOKEN) return ++c->unsettled, token;
        const int kept = row_keeps(&k, &w, read_one(&row, token, kind), (double)given->params.top_p, &c->again, kind);
        if (keeps && kept >= 0 && kept != (int)(keeps[token / 32] >> token % 32 & 1)) ++c->wrong;
        if (kept < 0) return ++c->open, RULE_NO_TOKEN;
        if (kept) return token;
    }
    return RULE_NO_TOKEN;
}
static int32_t propose_f32(const cpu_row *r, const cpu_scratch *s, const uint32_t *keeps, counts *c) {
    return row_propose(&plain_f32, r, s, keeps, c, READ_F32);
}
static int32_t propose_bf16(const cpu_row *r, const cpu_scratch *s, const uint32_t *keeps, counts *c) {
    return row_propose(&plain_bf16, r, s, keeps, c, READ_BF16);
}
static int32_t propose_f16(const cpu_row *r, const cpu_scratch *s, const uint32_t *keeps, counts *c) {
    return row_propose(&plain_f16, r, s, keeps, c, READ_F16);
}

/* ---- rows ------------------------------------------------------------------------------------------ */

typedef struct rows { const char *name; int64_t count, vocab; raffle_dtype dtype; float temperature, p; void *data; } rows;

static uint64_t chance_state = 88172645463325252u;
static double uniform(void) {
    chance_state ^= chance_state << 13, chance_state ^= chance_state >> 7, chance_state ^= chance_state << 17;
    return ((double)(chance_state >> 12) + 0.5) * 0x1p-52; /* neither 0 nor 1 */
}
static double normal(void) { return sqrt(-2.0 * log(uniform())) * cos(6.283185307179586 * uniform()); }

/* Normal rows, with 20 tokens 8 to 12 higher where `peaks`; bf16 is the upper half of f32, cut off. */
static rows rows_made(const char *name, int64_t vocab, raffle_dtype dtype, double deviation, int peaks, float temperature, float p) {
    rows r = {name, ROWS, vocab, dtype, temperature, p, aligned_alloc(64, (size_t)(ROWS * vocab * 4 + 64) / 64 * 64)};
    float *const x = r.data;
    for (int64_t i = 0; i < ROWS * vocab; ++i) x[i] = (float)(normal() * deviation);
    for (int64_t i = 0; i < ROWS; ++i)
        for (int n = 0; n < (peaks ? 20 : 0); ++n) x[i * vocab + (int64_t)(uniform() * (double)vocab)] += (float)(8.0 + 4.0 * uniform());
    for (int64_t i = 0; dtype == RAFFLE_BF16 && i < ROWS * vocab; ++i) ((uint16_t *)r.data)[i] = (uint16_t)(bits_of(x[i]) >> 16);
    return r;
}

/* data/smollm2.npy: 16 rows of 49152 f16 behind a header of 128 bytes. */
static rows rows_read(const char *path) {
    rows r = {"real (smollm2)", 16, 49152, RAFFLE_F16, 1.0f, 0.95f, aligned_alloc(64, 16 * 49152 * 2)};
    FILE *const file = fopen(path, "rb");
    if (!file || fseek(file, -16 * 49152 * 2, SEEK_END) || fread(r.data, 49152 * 2, 16, file) != 16) r.count = 0;
    if (file) fclose(file);
    return r;
}

/* ---- check, then time ------------------------------------------------------------------------------ */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static float largest(const float *x, int64_t count) {
    vf a[4] = {v_set(MINUS_INF), v_set(MINUS_INF), v_set(MINUS_INF), v_set(MINUS_INF)};
    for (int64_t i = 0; i + 4 * V_LANES <= count; i += 4 * V_LANES)
        for (int n = 0; n < 4; ++n) a[n] = v_max(v_load_f32(x + i + n * V_LANES), a[n]);
    return v_peak(v_max(v_max(a[0], a[1]), v_max(a[2], a[3])));
}

static int compare(const rows *r) {
    int32_t (*const propose)(const cpu_row *, const cpu_scratch *, const uint32_t *, counts *) =
        r->dtype == RAFFLE_F32 ? propose_f32 : r->dtype == RAFFLE_BF16 ? propose_bf16 : propose_f16;
    const int64_t bytes = r->dtype == RAFFLE_F32 ? 4 : 2, words = (r->vocab + 31) / 32;
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    raffle_error error = raffle_error_init();
    desc.vocab = r->vocab;
    desc.dtype = (int32_t)r->dtype;
    desc.isa = V_LANES == 16 ? RAFFLE_ISA_AVX512 : RAFFLE_ISA_AVX2;
    if (raffle_plan_create(&desc, &plan, &error)) return puts(error.text), 1;
    raffle_launch launch = raffle_launch_init();
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = aligned_alloc(64, (launch.workspace_bytes + 63) / 64 * 64);
    cpu_scratch scratch;
    scratch_carve(&scratch, r->vocab, launch.workspace);
    uint32_t *const kept = calloc((size_t)words, sizeof *kept);
    float *const floor = aligned_alloc(64, (size_t)(r->vocab * 4 + 63) / 64 * 64);
    for (int64_t i = 0; i < r->vocab; ++i) floor[i] = (float)i;

    counts checked = {0}, timed = {0};
    double us[2] = {0, 0}, max_us = 1e18;
    volatile float sink;
    for (int n = 0; n < 50; ++n) {
        const double start = now_us();
        for (int i = 0; i < 20; ++i) sink = largest(floor, r->vocab);
        const double took = (now_us() - start) / 20;
        if (took < max_us) max_us = took;
    }
    (void)sink;
    for (int64_t i = 0; i < r->count; ++i) {
        const uint64_t seed = (uint64_t)i;
        uint64_t position = 0;
        int32_t token, kept_count;
        raffle_logits logits = raffle_logits_init();
        raffle_params params = raffle_params_init();
        raffle_result result = raffle_result_init();
        raffle_output output = raffle_output_init();
        logits.data = (const char *)r->data + i * r->vocab * bytes;
        logits.rows = 1;
        params.temperature = &r->temperature, params.top_p = &r->p, params.seed = &seed, params.position = &position;
        result.token = &token;
        output.kept = kept;
        output.kept_count = &kept_count;
        cpu_row row = {.logits = logits.data, .only_token = 1};
        row.params.vocab = r->vocab, row.params.temperature = r->temperature, row.params.top_p = r->p, row.params.seed = seed;
        if (raffle_mask(plan, &logits, &params, &output, &launch, &error)) return puts(error.text), 1;
        for (position = 0; position < 20 * DRAWS; ++position) {
            row.params.position = position;
            propose(&row, &scratch, kept, &checked);
        }
        double best[2] = {1e18, 1e18};
        for (int n = 0; n < REPEATS; ++n) { /* by turns; all draws, not the quickest: some take a second reading */
            double start = now_us();
            for (position = 0; position < DRAWS; ++position)
                if (raffle_sample(plan, &logits, &params, &result, &launch, &error)) return puts(error.text), 1;
            best[0] = fmin(best[0], (now_us() - start) / DRAWS);
            start = now_us();
            for (position = 0; position < DRAWS; ++position) {
                row.params.position = position;
                propose(&row, &scratch, NULL, &timed);
            }
            best[1] = fmin(best[1], (now_us() - start) / DRAWS);
        }
        us[0] += best[0] / (double)r->count, us[1] += best[1] / (double)r->count;
    }
    static const char *const type[] = {"f32", "f16", "bf16"};
    printf("%-22s %7lld %-4s  %7.1f %5.1f  %7.1f %5.1f  %10.3f %9.1f %%  %6.2f %%  %5ld of %ld\n", r->name, (long long)r->vocab,
           type[r->dtype], us[0], us[0] / max_us, us[1], us[1] / max_us, (double)checked.proposals / (double)checked.rows,
           100.0 * (double)checked.again / ((double)checked.rows * (double)scratch.groups),
           100.0 * (double)(checked.unsettled + checked.open) / (double)checked.rows, checked.wrong, checked.proposals);
    free(floor), free(kept), free(launch.workspace), free(r->data);
    raffle_plan_destroy(plan);
    return checked.wrong != 0;
}

int main(int count, char **argument) {
    int bad = 0;
    printf("%-22s %7s %-4s  %7s %5s  %7s %5s  %10s %11s  %8s  %s\n", "rows", "tokens", "type", "now us", "x", "new us", "x", "proposals",
           "read again", "open", "wrong");
    for (int n = 0; n < 3; ++n) {
        static const int64_t vocab[] = {32000, 128256, 262144};
        for (int type = 0; type < 2; ++type) {
            const raffle_dtype dtype = type ? RAFFLE_BF16 : RAFFLE_F32;
            const rows kinds[] = {rows_made("peaked, 0.9, T 0.8", vocab[n], dtype, 2.5, 1, 0.8f, 0.9f),
                                  rows_made("broad, 0.95, T 1", vocab[n], dtype, 2.5, 1, 1.0f, 0.95f),
                                  rows_made("flat, 0.9, T 0.8", vocab[n], dtype, 1.0, 0, 0.8f, 0.9f),
                                  rows_made("flat, 0.5, T 1", vocab[n], dtype, 1.0, 0, 1.0f, 0.5f)};
            for (int i = 0; i < 4; ++i) bad |= compare(&kinds[i]);
        }
    }
    if (count > 1) {
        const rows real = rows_read(argument[1]);
        if (!real.count) return puts("data/smollm2.npy cannot be read"), 2;
        bad |= compare(&real);
    }
    return bad;
}
