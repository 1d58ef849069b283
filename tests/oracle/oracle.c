/* oracle.c - docs/determinism.md, section by section. Read the two side by side. */
#include "oracle.h"
#include "inside.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

enum { GROUP = 256, STRETCH = 8 * GROUP };
static const float MAGIC = 12582912.0f;

/* ---- the constants that src/math/weigh.h owns; after a refit change them here and run make_vectors ---------- */
static const float K0 = 0x1.ff8p-1f, K1 = 0x1.628bfcp-1f, K2 = 0x1.eb6136p-3f;
static const float K3 = 0x1.c8a060p-5f, K4 = 0x1.275f9cp-7f, K5 = 0x1.e858d2p-10f;
static const float HALF_STEP_INVERSE = 0x1.6a647ep-1f;
/* --------------------------------------------------------------------------------------------------------------- */

/* ---- 1. the processed row ---- */

float oracle_load(const void *row, int32_t dtype, int64_t token) {
    const unsigned char *at = (const unsigned char *)row + token * (dtype == RAFFLE_F32 ? 4 : 2);
    if (dtype == RAFFLE_F32) {
        float x;
        memcpy(&x, at, sizeof x);
        return x;
    }
    uint16_t h;
    memcpy(&h, at, sizeof h);
    int f16 = dtype == RAFFLE_F16, fraction_bits = f16 ? 10 : 7, exponent_max = f16 ? 31 : 255, bias = f16 ? 15 : 127;
    int exponent = h >> fraction_bits & exponent_max, fraction = h & ((1 << fraction_bits) - 1);
    double size;
    if (exponent == exponent_max)
        size = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent)
        size = ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
    else
        size = ldexp(fraction, 1 - bias - fraction_bits);
    return (float)(h >> 15 ? -size : size);
}

static float *processed_row(const oracle_case *g, uint32_t *row_flags) {
    float *x = malloc((size_t)g->vocab * sizeof *x);
    uint8_t *banned = calloc((size_t)g->vocab, 1);
    if (g->extra) oracle_ban(g, banned);
    for (int64_t i = 0; i < g->vocab; ++i) {
        int allowed = !banned[i] && (!g->allow || (g->allow[i / 32] >> i % 32 & 1));
        x[i] = allowed ? oracle_load(g->row, g->dtype, i) : -INFINITY;
        int wrong = g->input == RAFFLE_PROBS && allowed ? x[i] < 0 || isnan(x[i]) : isnan(x[i]);
        if (wrong) *row_flags |= RAFFLE_ROW_NAN;
        if (wrong || (g->input == RAFFLE_PROBS && x[i] == 0)) x[i] = -INFINITY;
    }
    free(banned);
    if (g->extra) oracle_edit(g, x);
    return x;
}

float oracle_largest(const float *x, int64_t first, int64_t end) {
    float m = -INFINITY;
    for (int64_t i = first; i < end; ++i)
        if (x[i] > m) m = x[i];
    return m;
}

/* ---- 2. temperature to scale ---- */

oracle_scale oracle_scale_of(float temperature) {
    oracle_scale s = {1, 0, 0, 0, 0};
    if (!(temperature < 0x1p100f)) return s;
    double q = 1.4426950408889634 / (double)temperature;
    s.flat = 0;
    s.c = (float)q;
    s.c_low = (float)(q - (double)s.c);
    s.drop = temperature * 41.5f;
    return s;
}

/* Of a row: section 9 has no temperature. */
static oracle_scale scale_of_row(const oracle_case *g, float temperature) {
    const oracle_scale linear = {0, 0, 0, 0, 1};
    return g->input == RAFFLE_PROBS ? linear : oracle_scale_of(temperature);
}

/* ---- 3. maximum to reference ---- */

static float polynomial(float r) { return fmaf(fmaf(fmaf(fmaf(fmaf(K5, r, K4), r, K3), r, K2), r, K1), r, K0); }

oracle_ref oracle_ref_of(oracle_scale s, float m) {
    oracle_ref ref = {ORACLE_PLAIN, 0, 0, 0, 0, 1};
    if (s.linear && m < INFINITY) {
        ref.kind = ORACLE_LINEAR;
        ref.exponent = ilogbf(m);
        return ref;
    }
    float p = m * s.c;
    int unbounded = s.flat && m < INFINITY;
    if (s.flat || m == INFINITY || !(fabsf(p) < 0x1p30f)) {
        ref.kind = ORACLE_STEP;
        ref.exponent = unbounded ? 0 : (m > 0 ? 1 : -1) * ((1LL << 30) + (1LL << 10));
        ref.base = unbounded ? -FLT_MAX : m;
    } else if (fabsf(p) < 0x1p12f) {
        ref.exponent = (int64_t)(fmaf(m, s.c, MAGIC) - MAGIC);
        ref.magic = MAGIC + (float)(31 - ref.exponent);
        ref.low = m - s.drop;
    } else {
        double z = (double)m * (double)s.c + (double)m * (double)s.c_low;
        ref.kind = ORACLE_TALL;
        ref.exponent = (int64_t)rint(z);
        ref.magic = MAGIC + 31.0f;
        ref.base = m;
        ref.low = -s.drop;
        ref.gain = polynomial((float)(z - (double)ref.exponent) + 0.5f) * HALF_STEP_INVERSE;
    }
    return ref;
}

/* ---- 4. logit to weight ---- */

double oracle_weight_exact(oracle_scale s, oracle_ref ref, float x) {
    if (ref.kind == ORACLE_STEP) return x >= ref.base ? 0x1p31 : 0;
    if (ref.kind == ORACLE_LINEAR) return x > 0 ? ldexp((double)x, (int)(31 - ref.exponent)) : 0;
    if (ref.kind == ORACLE_TALL) x = x - ref.base;
    if (!(x > ref.low)) x = ref.low;
    float t = fmaf(x, s.c, ref.magic), n = t - ref.magic;
    float r = fmaf(x, s.c, -n) + fmaf(x, s.c_low, 0.5f);
    float v = polynomial(r);
    if (ref.kind == ORACLE_TALL) v = v * ref.gain;
    return ldexp((double)v, (int)(t - MAGIC)); /* a double holds v * 2^n exactly */
}

uint64_t oracle_weight(oracle_scale s, oracle_ref ref, float x) { return (uint64_t)rint(oracle_weight_exact(s, ref, x)); }

/* ---- 5. weight to tickets ---- */

static uint64_t shifted(uint64_t weight, int64_t d) { return d >= 64 ? 0 : (weight << 10) >> d; }

weighed oracle_weigh(const float *x, int64_t vocab, oracle_scale scale) {
    int64_t groups = (vocab + GROUP - 1) / GROUP;
    weighed made = {calloc((size_t)vocab, 8), calloc((size_t)vocab, 8), calloc((size_t)groups, 8),
                    calloc((size_t)groups, 8), 0};
    float M = oracle_largest(x, 0, vocab);
    oracle_ref row = oracle_ref_of(scale, M);
    for (int64_t g = 0; g < groups; ++g) {
        int64_t first = g * GROUP, end = first + GROUP < vocab ? first + GROUP : vocab;
        float m = oracle_largest(x, first, end);
        made.shift[g] = 64;
        if (m == -INFINITY || (row.kind == ORACLE_STEP && row.base == M && m < M)) continue;
        oracle_ref ref = oracle_ref_of(scale, m);
        if (row.exponent - ref.exponent < 64) made.shift[g] = row.exponent - ref.exponent;
        uint64_t sum = 0;
        for (int64_t i = first; i < end; ++i) {
            made.weight[i] = oracle_weight(scale, ref, x[i]);
            made.tickets[i] = shifted(made.weight[i], made.shift[g]);
            sum += made.weight[i];
        }
        made.group_mass[g] = shifted(sum, made.shift[g]);
        made.mass += made.group_mass[g];
    }
    return made;
}

void oracle_weighed_free(weighed w) {
    free(w.weight);
    free(w.tickets);
    free(w.group_mass);
    free(w.shift);
}

/* ---- 6. filters ---- */

double oracle_log(double x) {
    int k;
    if (x == INFINITY) return x; /* no filter asks for more than "no token is so likely" */
    double m = frexp(x, &k); /* [1/2, 1) */
    if (m < 0x1.6a09e667f3bcdp-1) m = 2.0 * m, k = k - 1;
    double s = (m - 1.0) / (m + 1.0), z = s * s, sum = 1.0 / 23.0;
    for (int odd = 21; odd >= 3; odd -= 2) {
        double product = sum * z;
        sum = product + 1.0 / odd;
    }
    double tail = 2.0 * s * z * sum;
    return (double)k * 0.6931471805599453 + (2.0 * s + tail);
}

uint64_t oracle_share(float p, uint64_t mass) {
    int exponent;
    double digits = ldexp(frexp((double)p, &exponent), 24); /* p = digits * 2^(exponent - 24) */
    wide product = (wide)(uint64_t)digits * mass;           /* below 2^88 */
    int shift = 24 - exponent;
    if (shift > 120) return product != 0;
    wide whole = product >> shift;
    return (uint64_t)(whole + (whole << shift != product));
}

int oracle_passes(cut c, float x, int64_t id) {
    if (x == -INFINITY || (c.capped && x > c.most)) return 0;
    if (!c.on) return 1;
    return x > c.least || (x == c.least && id <= c.tie_last);
}

cut oracle_tighter(cut a, cut b) {
    if (!a.on || !b.on) return a.on ? a : b;
    if (a.least != b.least) return a.least > b.least ? a : b;
    return a.tie_last < b.tie_last ? a : b;
}

float oracle_at_least(double bound) {
    float least = -FLT_MAX;
    if (bound > -(double)FLT_MAX) {
        least = (float)bound;
        if ((double)least < bound) least = nextafterf(least, INFINITY);
    }
    return least;
}

static cut cut_min_p(const oracle_case *g, float M) {
    if (!(g->min_p > 0)) return no_cut;
    cut made = {1, M, INT32_MAX, 0, 0};
    if (g->min_p >= 1) return made;
    double T = g->flags & RAFFLE_FILTERS_FIRST ? 1.0 : (double)g->temperature;
    double product = T * oracle_log((double)g->min_p), bound = (double)M + product;
    if (g->input == RAFFLE_PROBS) bound = (double)g->min_p * (double)M;
    made.least = oracle_at_least(bound);
    return made;
}

static int descending(const void *left, const void *right) {
    const entry *a = left, *b = right;
    if (a->x != b->x) return a->x > b->x ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

entry *oracle_sorted(const float *x, int64_t vocab, int64_t *count) {
    entry *list = malloc((size_t)vocab * sizeof *list);
    *count = 0;
    for (int64_t i = 0; i < vocab; ++i)
        if (x[i] > -INFINITY) list[(*count)++] = (entry){x[i], (int32_t)i};
    qsort(list, (size_t)*count, sizeof *list, descending);
    return list;
}

static cut cut_top_k(const oracle_case *g, const entry *list, int64_t count) {
    if (g->top_k <= 1 || g->top_k >= g->vocab || count < g->top_k) return no_cut;
    cut made = {1, list[g->top_k - 1].x, INT32_MAX, 0, 0};
    if (g->flags & RAFFLE_TOP_K_EXACT) made.tie_last = list[g->top_k - 1].id;
    return made;
}

/* Whether a filter of raffle_extra comes before top-p. */
static int shaped(const oracle_case *g) {
    const raffle_extra *e = g->extra;
    if (!e || e->top_n_sigma > 0 || g->flags & RAFFLE_SHAPE_LAST) return e && e->top_n_sigma > 0;
    return e->epsilon > 0 || e->eta > 0 || (e->typical_p > 0 && e->typical_p < 1);
}

static cut cut_top_p(const oracle_case *g, const entry *list, int64_t count, const weighed *w, cut before) {
    if (!(g->top_p < 1)) return no_cut;
    int min_p_seen = g->min_p > 0 && !(g->flags & RAFFLE_MIN_P_LAST);
    int top_k_on = g->top_k > 1 && g->top_k < g->vocab;
    int of_row = (g->flags & RAFFLE_TOP_P_JOINT) || !(min_p_seen || top_k_on || shaped(g));
    uint64_t survivors = 0, larger = 0;
    for (int64_t i = 0; i < count; ++i)
        if (oracle_passes(before, list[i].x, list[i].id)) survivors += w->tickets[list[i].id];
    uint64_t bound = oracle_share(g->top_p, of_row ? w->mass : survivors);
    if (survivors < bound) return no_cut;
    cut made = {1, INFINITY, INT32_MAX, 0, 0};
    for (int64_t i = 0; i < count && larger < bound;) { /* one run of equal logits at a time */
        float x = list[i].x;
        uint64_t run = 0;
        int64_t stayed = 0;
        for (; i < count && list[i].x == x; ++i) {
            if (!oracle_passes(before, x, list[i].id)) continue;
            run += w->tickets[list[i].id];
            ++stayed;
        }
        if (stayed) made.least = x;
        larger += run;
    }
    return made;
}

/* With filters of raffle_extra. */
static cut cut_more(const oracle_case *g, const float *x, float M) {
    int64_t count;
    entry *list = oracle_sorted(x, g->vocab, &count);
    weighed w = oracle_weigh(x, g->vocab, scale_of_row(g, g->flags & RAFFLE_FILTERS_FIRST ? 1.0f : g->temperature));
    int last = (g->flags & RAFFLE_MIN_P_LAST) != 0;
    cut min_p = cut_min_p(g, M), c = oracle_cut_shape(g, x, M, &w);
    if (!last) c = oracle_tighter(c, min_p);
    c = oracle_tighter(c, cut_top_k(g, list, count));
    c = oracle_cut_floor(g, list, count, c, no_cut);
    if (!(g->flags & RAFFLE_SHAPE_LAST)) c = oracle_cut_typical(g, list, count, M, &w, c);
    cut top_p = cut_top_p(g, list, count, &w, c), typical = c;
    c = oracle_tighter(c, top_p);
    if (last) c = oracle_tighter(c, cut_min_p(g, typical.capped ? typical.most : M));
    c.capped = typical.capped;
    c.most = typical.most;
    c = oracle_cut_floor(g, list, count, c, typical);
    c = oracle_cut_shape_last(g, list, count, M, &w, c);
    c = oracle_cut_xtc(g, list, count, M, &w, c);
    oracle_weighed_free(w);
    free(list);
    return c;
}

static cut cut_row(const oracle_case *g, const float *x, float M) {
    if (oracle_has_more(g)) return cut_more(g, x, M);
    int counting = (g->top_k > 1 && g->top_k < g->vocab) || g->top_p < 1;
    cut min_p = cut_min_p(g, M);
    if (!counting) return min_p;
    int64_t count;
    entry *list = oracle_sorted(x, g->vocab, &count);
    cut top_k = cut_top_k(g, list, count), top_p = no_cut;
    if (g->top_p < 1) {
        weighed w = oracle_weigh(x, g->vocab, scale_of_row(g, g->flags & RAFFLE_FILTERS_FIRST ? 1.0f : g->temperature));
        top_p = cut_top_p(g, list, count, &w, g->flags & RAFFLE_MIN_P_LAST ? top_k : oracle_tighter(min_p, top_k));
        oracle_weighed_free(w);
    }
    free(list);
    return oracle_tighter(oracle_tighter(min_p, top_k), top_p);
}

/* ---- 7. the draw ---- */

void oracle_random(uint64_t seed, uint64_t position, uint32_t stream, uint32_t step, uint64_t bits[2]) {
    uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), stream, step};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
        uint64_t left = c[0] * 0xD2511F53ull, right = c[2] * 0xCD9E8D57ull;
        uint32_t next[4] = {(uint32_t)(right >> 32) ^ c[1] ^ k[0], (uint32_t)right,
                            (uint32_t)(left >> 32) ^ c[3] ^ k[1], (uint32_t)left};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    bits[0] = (uint64_t)c[1] << 32 | c[0];
    bits[1] = (uint64_t)c[3] << 32 | c[2];
}

/* U and V of the row's draw, or of its proposal j. */
static void draw_bits(const oracle_case *g, uint32_t j, uint64_t bits[2]) {
    if (g->bits) memcpy(bits, g->bits, 2 * sizeof *bits);
    else oracle_random(g->seed, g->position, j ? 5 + 256 * j : g->draft_step > 0, g->draft_step, bits);
}

/* Walks consecutive ranges of the given sizes; returns the index whose range holds `number`, which then
 * becomes the distance from that range's start. `end` if it lies behind all. */
static int64_t range_of(const uint64_t *sizes, int64_t first, int64_t end, uint64_t *number) {
    int64_t i = first;
    for (; i < end && *number >= sizes[i]; ++i) *number -= sizes[i];
    return i;
}

/* The same where the page promises that there is always a holder. */
static int64_t holder(const uint64_t *sizes, int64_t first, int64_t end, uint64_t *number) {
    int64_t at = range_of(sizes, first, end, number);
    if (at == end) abort();
    return at;
}

static uint64_t share(uint64_t bits, uint64_t mass) { return (uint64_t)((wide)bits * mass >> 64); }
static int64_t parts(int64_t vocab, int64_t each) { return (vocab + each - 1) / each; }
static int64_t end_of(int64_t first, int64_t each, int64_t vocab) { return first + each < vocab ? first + each : vocab; }

/* The stretch that U draws, and which of its tickets V does: *inside. *before: the tickets of the stretches before it. */
static int64_t draw_stretch(const uint64_t *stretch, int64_t count, const uint64_t bits[2], uint64_t *before, uint64_t *inside) {
    uint64_t mass = 0;
    for (int64_t s = 0; s < count; ++s) mass += stretch[s];
    uint64_t r = share(bits[0], mass), number = r;
    int64_t drawn = holder(stretch, 0, count, &number);
    *before = r - number;
    *inside = share(bits[1], stretch[drawn]);
    return drawn;
}

/* From the whole row: the group, and which of its tickets. *drawn: which of the row's. */
static int64_t draw_group(const weighed *w, int64_t vocab, const uint64_t bits[2], uint64_t *drawn, uint64_t *inside) {
    int64_t groups = parts(vocab, GROUP), stretches = parts(vocab, STRETCH);
    uint64_t *stretch = calloc((size_t)stretches, sizeof *stretch);
    for (int64_t g = 0; g < groups; ++g) stretch[g * GROUP / STRETCH] += w->group_mass[g];
    int64_t s = draw_stretch(stretch, stretches, bits, drawn, inside);
    *drawn += *inside;
    free(stretch);
    return holder(w->group_mass, s * STRETCH / GROUP, groups, inside);
}

/* In its group, by weights. */
static int32_t draw_whole(const weighed *w, int64_t vocab, const uint64_t bits[2], uint64_t *drawn) {
    uint64_t inside;
    int64_t g = draw_group(w, vocab, bits, drawn, &inside), first = g * GROUP;
    inside = (inside << w->shift[g]) >> 10;
    return (int32_t)holder(w->weight, first, end_of(first, GROUP, vocab), &inside);
}

/* From what is kept, by the tickets of each token. */
static int32_t draw_kept(const weighed *w, const uint8_t *kept, int64_t vocab, const uint64_t bits[2], uint64_t *drawn) {
    int64_t stretches = parts(vocab, STRETCH);
    uint64_t *token = calloc((size_t)vocab, sizeof *token), *stretch = calloc((size_t)stretches, sizeof *stretch), inside;
    for (int64_t i = 0; i < vocab; ++i) {
        token[i] = kept[i] ? w->tickets[i] : 0;
        stretch[i / STRETCH] += token[i];
    }
    int64_t first = STRETCH * draw_stretch(stretch, stretches, bits, drawn, &inside);
    *drawn += inside;
    int64_t found = holder(token, first, end_of(first, STRETCH, vocab), &inside);
    free(token);
    free(stretch);
    return (int32_t)found;
}

/* Whether tokens are proposed until top-p keeps one: it is the only filter, keeps half or more, and sees the tickets of the draw. The
 * parameters alone decide: XTC is on whatever its coin will say, typical-p also where it has no say because the reference is STEP. */
static int proposes(const oracle_case *g) {
    const raffle_extra *e = g->extra;
    int other = g->min_p > 0 || (g->top_k > 1 && g->top_k < g->vocab);
    if (e) {
        int shape = e->top_n_sigma > 0 || e->epsilon > 0 || e->eta > 0, typical = e->typical_p > 0 && e->typical_p < 1;
        int xtc = e->xtc_probability > 0 && e->xtc_threshold <= 0.5f;
        other |= shape || typical || xtc || e->keep_least > 1;
    }
    int same_tickets = g->input == RAFFLE_PROBS || g->temperature == 1 || !(g->flags & RAFFLE_FILTERS_FIRST);
    return !g->bits && !other && same_tickets && g->top_p >= 0.5f && g->top_p < 1;
}

/* One proposal: in its group by the tickets of each token, of which *own is drawn. No token if `>>` left none of them this ticket. */
static int32_t propose(const weighed *w, int64_t vocab, const uint64_t bits[2], uint64_t *own) {
    uint64_t of_row; /* which nobody asks for */
    int64_t g = draw_group(w, vocab, bits, &of_row, own), end = end_of(g * GROUP, GROUP, vocab);
    int64_t found = range_of(w->tickets, g * GROUP, end, own);
    return found < end ? (int32_t)found : RAFFLE_NO_TOKEN;
}

/* The first proposal that is kept. *drawn: which of the tickets of all that are kept. *count: the proposals up to it. */
static int32_t draw_proposed(const oracle_case *g, const weighed *w, const uint8_t *kept, uint64_t *drawn, int32_t *count) {
    for (uint32_t j = 0; j < 128; ++j) {
        uint64_t bits[2];
        draw_bits(g, j, bits);
        int32_t token = propose(w, g->vocab, bits, drawn);
        *count = (int32_t)j + 1;
        if (token == RAFFLE_NO_TOKEN || !kept[token]) continue;
        for (int32_t i = 0; i < token; ++i) *drawn += kept[i] ? w->tickets[i] : 0;
        return token;
    }
    return RAFFLE_NO_TOKEN;
}

static void draw(const oracle_case *g, const float *x, float M, uint8_t *kept, uint64_t *tickets, oracle_answer *a) {
    cut c = cut_row(g, x, M);
    float *left = calloc((size_t)g->vocab, sizeof *left); /* without what is above the cut's upper end */
    for (int64_t i = 0; i < g->vocab; ++i) left[i] = c.capped && x[i] > c.most ? -INFINITY : x[i];
    weighed w = oracle_weigh(left, g->vocab, scale_of_row(g, g->temperature));
    a->best = oracle_largest(left, 0, g->vocab);
    int cut_a_tie = 0;
    uint64_t kept_mass = 0;
    for (int64_t i = 0; i < g->vocab; ++i) {
        kept[i] = (uint8_t)oracle_passes(c, x[i], i);
        a->kept_count += kept[i];
        if (kept[i]) kept_mass += w.tickets[i];
        if (c.on && x[i] == c.least && !kept[i]) cut_a_tie = 1;
    }
    a->bounded = c.on;
    a->threshold = c.on ? c.least : -INFINITY;
    a->tie_last = (int32_t)c.tie_last;
    int by_proposals = proposes(g);
    a->whole_row = !by_proposals && !c.capped && (!c.on || (c.least == -FLT_MAX && !cut_a_tie));
    a->draw_mass = a->whole_row ? w.mass : kept_mass;
    uint64_t bits[2];
    draw_bits(g, 0, bits);
    if (by_proposals) a->token = draw_proposed(g, &w, kept, &a->drawn, &a->proposals);
    else if (a->whole_row) a->token = draw_whole(&w, g->vocab, bits, &a->drawn);
    else a->token = draw_kept(&w, kept, g->vocab, bits, &a->drawn);
    oracle_weighed_free(w);
    w = oracle_weigh(x, g->vocab, scale_of_row(g, g->temperature));
    a->row_mass = w.mass;
    if (tickets) memcpy(tickets, w.tickets, (size_t)g->vocab * sizeof *tickets);
    oracle_weighed_free(w);
    free(left);
}

oracle_answer oracle_sample(const oracle_case *given, uint8_t *kept_out, uint64_t *tickets) {
    oracle_case own = *given, *g = &own;
    if (g->extra) own.flags |= g->extra->flags;
    oracle_answer a = {.token = RAFFLE_NO_TOKEN, .threshold = -INFINITY, .tie_last = INT32_MAX};
    float *x = processed_row(g, &a.row_flags), M = oracle_largest(x, 0, g->vocab);
    uint8_t *kept = kept_out ? kept_out : malloc((size_t)g->vocab);
    memset(kept, 0, (size_t)g->vocab);
    if (tickets) memset(tickets, 0, (size_t)g->vocab * sizeof *tickets);
    a.best = M;
    if (M == INFINITY) a.row_flags |= RAFFLE_ROW_INF;
    if (M == -INFINITY) {
        a.row_flags |= RAFFLE_ROW_EMPTY;
        if (g->flags & RAFFLE_EMPTY_IS_ZERO) a.token = 0;
    } else if ((g->temperature < 1e-5f && g->input != RAFFLE_PROBS) || g->top_k == 1 || g->top_p <= 0) {
        a.greedy = 1;
        a.token = 0;
        while (x[a.token] != M) ++a.token;
        kept[a.token] = 1;
        a.kept_count = 1;
        a.threshold = M;
        a.tie_last = a.token;
    } else {
        draw(g, x, M, kept, tickets, &a);
    }
    if (!kept_out) free(kept);
    free(x);
    return a;
}

/* ---- the law of the draw ---- */

/* The first number r of a group whose weight index ((r << d) >> 10) is at least `weight`. */
static uint64_t first_number(uint64_t weight, int64_t d) {
    if (d <= 10) return weight << (10 - d);
    uint64_t step = 1ULL << (d - 10);
    return weight / step + (weight % step != 0);
}

uint64_t oracle_held(const oracle_case *g, uint64_t *held) {
    uint8_t *kept = malloc((size_t)g->vocab);
    oracle_answer a = oracle_sample(g, kept, held);
    if (a.greedy || a.row_flags & RAFFLE_ROW_EMPTY) {
        memset(held, 0, (size_t)g->vocab * sizeof *held);
    } else if (!a.whole_row) { /* what is above the cut's upper end is not weighed */
        uint32_t ignored = 0;
        float *x = processed_row(g, &ignored);
        for (int64_t i = 0; i < g->vocab; ++i) x[i] = x[i] > a.best ? -INFINITY : x[i];
        weighed w = oracle_weigh(x, g->vocab, scale_of_row(g, g->temperature));
        for (int64_t i = 0; i < g->vocab; ++i) held[i] = kept[i] ? w.tickets[i] : 0;
        oracle_weighed_free(w);
        free(x);
    } else {
        uint32_t ignored = 0;
        float *x = processed_row(g, &ignored);
        weighed w = oracle_weigh(x, g->vocab, scale_of_row(g, g->temperature));
        uint64_t before = 0, sum = 0;
        for (int64_t i = 0; i < g->vocab; ++i) { /* the group's range, cut at each running sum of weights */
            int64_t group = i / GROUP, d = w.shift[group];
            if (i % GROUP == 0) before = sum = 0;
            sum += w.weight[i];
            uint64_t end = d >= 64 ? 0 : first_number(sum, d);
            if (end > w.group_mass[group]) end = w.group_mass[group];
            held[i] = end - before;
            before = end;
        }
        oracle_weighed_free(w);
        free(x);
    }
    free(kept);
    return a.draw_mass;
}

void oracle_logits(const oracle_case *g, float *x) {
    uint32_t ignored = 0;
    float *made = processed_row(g, &ignored);
    memcpy(x, made, (size_t)g->vocab * sizeof *x);
    free(made);
}

/* ---- 8. probabilities ---- */

static float probability_of(oracle_scale scale, oracle_ref row, float M, float m, float x, uint64_t mass) {
    oracle_ref ref = oracle_ref_of(scale, m);
    int64_t d = row.exponent - ref.exponent;
    if (d > 126 || (row.kind == ORACLE_STEP && row.base == M && m < M)) return 0;
    float drop = scale.drop * 2.1875f;
    ref.low = ref.kind == ORACLE_PLAIN ? m - drop : -drop;
    float v = (float)oracle_weight_exact(scale, ref, x); /* exact: it is one f32 times a power of two */
    float least = (float)ldexp((double)(float)((double)mass * 0x1.fffep-137), (int)d);
    if (v < least) return 0;
    double q = ldexp(1, 41) / (double)mass;
    float factor = (float)q, factor_low = (float)(q - (double)factor);
    float product = v * factor_low, share = fmaf(v, factor, product);
    double p = ldexp((double)share, (int)(-31 - d));
    return (float)(p < 0x1p-126 ? 0x1p-126 : p);
}

double oracle_log_mass(float temperature, float M, uint64_t mass) {
    oracle_scale scale = oracle_scale_of(temperature);
    return oracle_log((double)mass / ldexp(oracle_weight_exact(scale, oracle_ref_of(scale, M), M), 10));
}

float oracle_log_of(float temperature, float M, float x, uint64_t mass) {
    oracle_ref row = oracle_ref_of(oracle_scale_of(temperature), M);
    int step = row.kind == ORACLE_STEP;
    if (step && x < row.base) return -INFINITY;
    double level = oracle_log_mass(temperature, M, mass);
    double slope = step ? 0 : 1 / (double)temperature;
    float a = (float)slope, a_low = (float)(slope - (double)a), b = (float)level, b_low = (float)(level - (double)b);
    float down = step ? 0 : x - M < -FLT_MAX ? -FLT_MAX : x - M;
    float result = -(fmaf(-down, a, b) + fmaf(-down, a_low, b_low));
    return result < 0 ? result : 0;
}

/* Section 9. */
static float log_of_weight(oracle_ref row, float x, uint64_t mass) {
    float log = (float)oracle_log(ldexp((double)x, 41 - (int)row.exponent) / (double)mass);
    return log < 0 ? log : 0;
}

void oracle_probabilities(const oracle_case *g, int logarithms, float *value) {
    uint8_t *kept = malloc((size_t)g->vocab);
    oracle_answer a = oracle_sample(g, kept, NULL);
    uint32_t ignored = 0;
    float *x = processed_row(g, &ignored), M = a.best;
    for (int64_t i = 0; i < g->vocab; ++i)
        if (x[i] > M) x[i] = -INFINITY; /* above a cut's upper end */
    oracle_scale scale = scale_of_row(g, g->temperature);
    oracle_ref row = oracle_ref_of(scale, M);
    for (int64_t i = 0; i < g->vocab; ++i) {
        int64_t first = i / GROUP * GROUP, end = first + GROUP < g->vocab ? first + GROUP : g->vocab;
        if (!kept[i]) value[i] = logarithms ? -INFINITY : 0;
        else if (a.greedy) value[i] = logarithms ? 0 : 1;
        else if (logarithms && row.kind == ORACLE_LINEAR) value[i] = log_of_weight(row, x[i], a.draw_mass);
        else if (logarithms) value[i] = oracle_log_of(g->temperature, M, x[i], a.draw_mass);
        else value[i] = probability_of(scale, row, M, oracle_largest(x, first, end), x[i], a.draw_mass);
    }
    free(kept);
    free(x);
}
