/* row_kernels.h - the loops that read logits, each compiled for every dtype with and without a mask.
 * Included by rows.c only. `kind` is a compile-time constant everywhere. */

#include "row_read.h"

#include "row_weigh.h"

/* ---- cut: lists of tokens ------------------------------------------------------------------------ */

/* Listing is done in steps without branches that no one can guess: which groups can hold any, which pieces of these do,
 * which vectors, and then the tokens. Each step writes where the next has to look. Where vectors are long, they are
 * pieces themselves. */
enum { PIECE = V_LANES < 16 ? 4 * V_LANES : V_LANES, LIST_GROUPS = 16 };
enum { LIST_PIECES = LIST_GROUPS * GROUP / PIECE, LIST_VECTORS = LIST_GROUPS * GROUP / V_LANES };

/* The largest logits of a piece of a whole group, lane by lane; NaN counts as -inf. */
RAFFLE_FN vf piece_top(const cpu_row *row, int64_t i, int kind) {
    if (PIECE == V_LANES) return read_full(row, i, kind);
    vf a = v_set(MINUS_INF), b = a;
    for (int j = 0; j < PIECE; j += 2 * V_LANES) {
        vf x, y;
        read_pair(row, i + j, &x, &y, kind);
        a = v_max(x, a);
        b = v_max(y, b);
    }
    return v_max(a, b);
}

/* Those pieces of a group that have any token above `low`, by their first; of a group that is not whole, all. */
RAFFLE_FN int32_t *group_pieces(const cpu_row *row, int64_t g, float low, int32_t *at, int kind) {
    if (group_whole(row, g)) {
        for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += PIECE) {
            *at = (int32_t)i;
            at += v_bits(v_gt(piece_top(row, i, kind), v_set(low))) != 0;
        }
    } else {
        for (int64_t i = g * GROUP; i < row->params.vocab; i += PIECE) *at++ = (int32_t)i;
    }
    return at;
}

/* Those vectors of a piece that have any token above `low`, by their first. */
RAFFLE_FN int32_t *piece_vectors(const cpu_row *row, int64_t first, float low, int32_t *at, int kind) {
    if (PIECE == V_LANES) {
        *at++ = (int32_t)first;
    } else if (first + PIECE <= row->params.vocab) {
        for (int64_t i = first; i < first + PIECE; i += V_LANES) {
            *at = (int32_t)i;
            at += v_bits(v_gt(read_full(row, i, kind), v_set(low))) != 0;
        }
    } else {
        for (int64_t i = first; i < row->params.vocab; i += V_LANES) *at++ = (int32_t)i;
    }
    return at;
}

/* Appends the tokens of up to LIST_GROUPS groups to the list; one that is full is overwritten at its end again and
 * again. */
RAFFLE_FN void groups_list(const cpu_row *row, const cpu_scratch *s, const int32_t *group, int64_t count, listing *l,
                           int kind) {
    int32_t pieces[LIST_PIECES + 1], vectors[LIST_VECTORS + 1], *piece = pieces, *vector = vectors;
    for (int64_t n = 0; n < count; ++n) piece = group_pieces(row, group[n], l->low, piece, kind);
    for (const int32_t *p = pieces; p < piece; ++p) vector = piece_vectors(row, *p, l->low, vector, kind);
    uint64_t listed = l->count, above_count = l->above_count;
    for (const int32_t *v = vectors; v < vector; ++v) {
        vf x = read_group(row, *v, 0, kind);
        vm above = v_gt(x, v_set(l->high)), in = v_without(v_gt(x, v_set(l->low)), above);
        int64_t at = (int64_t)listed < l->room ? (int64_t)listed : l->room;
        above_count += (uint64_t)__builtin_popcount(v_bits(above));
        listed += (uint64_t)v_pack(s->list_x + at, s->list_id + at, x, *v, in);
    }
    l->count = listed;
    l->above_count = above_count;
}

/* Appends the tokens of all groups that have any with logit >= least. */
RAFFLE_FN void row_list_all(const cpu_row *row, const cpu_scratch *s, float least, listing *l, int kind) {
    enum { PACKED = 512 };
    float peak[PACKED + V_LANES];
    int32_t group[PACKED + V_LANES];
    for (int64_t first = 0; first < s->groups; first += PACKED) {
        int64_t found = 0, end = first + PACKED < s->groups ? first + PACKED : s->groups;
        for (int64_t g = first; g < end; g += V_LANES) {
            vf x = v_load_f32(s->peak + g);
            found += v_pack(peak + found, group + found, x, (int32_t)g, v_ge(x, v_set(least)));
        }
        for (int64_t n = 0; n < found; n += LIST_GROUPS)
            groups_list(row, s, group + n, found - n < LIST_GROUPS ? found - n : LIST_GROUPS, l, kind);
    }
}

/* Which tokens of a part are above `low`, as bits. */
RAFFLE_FN uint64_t part_above(const cpu_row *row, int64_t first, float low, int kind) {
    uint64_t above = 0;
    if (first + PART <= row->params.vocab) {
        for (int j = 0; j < PART; j += V_LANES) above |= (uint64_t)v_bits(v_gt(read_full(row, first + j, kind), v_set(low))) << j;
    } else {
        for (int j = 0; first + j < row->params.vocab; j += V_LANES)
            above |= (uint64_t)v_bits(v_gt(read_group(row, first + j, 0, kind), v_set(low))) << j;
    }
    return above;
}

/* Appends tokens `first` and up, those that have a bit in `in`; returns how many. Mostly it is one or two, which are taken one by one. */
RAFFLE_FN int tokens_append(const cpu_row *row, const cpu_scratch *s, int64_t at, int32_t first, uint64_t in, int kind) {
    enum { MANY = 8 };
    const int count = __builtin_popcountll(in);
    if (count > MANY) {
        for (int j = 0; in; j += V_LANES, in = in >> (V_LANES - 1) >> 1) {
            vf x = read_group(row, first + j, 0, kind);
            at += v_pack(s->list_x + at, s->list_id + at, x, first + j, v_mask((uint32_t)in));
        }
    }
    for (; in; in &= in - 1, ++at) {
        const int32_t id = first + __builtin_ctzll(in);
        s->list_x[at] = read_one(row, id, kind);
        s->list_id[at] = id;
    }
    return count;
}

/* Lists the tokens above the lower end where the maxima of parts are known: which parts have any, which of their tokens these are,
 * then the tokens. */
RAFFLE_FN void row_list_fine(const cpu_row *row, const cpu_scratch *s, listing *l, int kind) {
    enum { PARTS = 1024 }; /* at a time */
    float top[PARTS + V_LANES];
    int32_t part[PARTS + V_LANES];
    uint64_t above[PARTS];
    const int64_t parts = s->groups * CPU_PARTS; /* behind them follows -inf */
    int64_t listed = 0;
    for (int64_t from = 0; from < parts; from += PARTS) {
        int64_t found = 0;
        for (int64_t i = from; i < from + PARTS && i < parts; i += V_LANES) {
            vf x = v_load_f32(s->part + i);
            found += v_pack(top + found, part + found, x, (int32_t)i, v_gt(x, v_set(l->low)));
        }
        for (int64_t n = 0; n < found; ++n) above[n] = part_above(row, (int64_t)part[n] * PART, l->low, kind);
        for (int64_t n = 0; n < found; ++n)
            listed += tokens_append(row, s, listed < l->room ? listed : l->room, part[n] * PART, above[n], kind);
    }
    l->count = (uint64_t)listed;
}

/* The smallest and the largest logit with low < logit <= high. */
RAFFLE_FN void row_extent(const cpu_row *row, const cpu_scratch *s, listing *l, int kind) {
    vf lows = v_set(l->low), highs = v_set(l->high), negated = v_set(MINUS_INF), most = negated;
    for (int64_t g = 0; g < s->groups; ++g) {
        if (!(s->peak[g] > l->low)) continue;
        for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
            vf x = read_group(row, i, 0, kind);
            vm in = v_without(v_gt(x, lows), v_gt(x, highs));
            most = v_max(v_select(in, x, most), most);
            negated = v_max(v_sub(v_set(0.0f), v_select(in, x, v_set(PLUS_INF))), negated);
        }
    }
    l->least = -v_peak(negated);
    l->most = v_peak(most);
}

/* Appends the tokens of a whole group between the list's ends, and counts those above. */
RAFFLE_FN void group_between(const cpu_row *row, const cpu_scratch *s, int64_t g, listing *l, int kind) {
    int64_t at = (int64_t)l->count < l->room ? (int64_t)l->count : l->room, listed = 0, larger = 0;
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += V_LANES) {
        vf x = read_full(row, i, kind);
        vm above = v_gt(x, v_set(l->high)), in = v_without(v_gt(x, v_set(l->low)), above);
        larger += __builtin_popcount(v_bits(above));
        listed += v_pack(s->list_x + at + listed, s->list_id + at + listed, x, (int32_t)i, in);
    }
    l->count += (uint64_t)listed;
    l->above_count += (uint64_t)larger;
}

/* A piece of a band: which of its tokens are in it is one word. */
enum { BAND = 32 };

/* Those pieces of a whole group that have a token at most `reach` from `at`, by their first. */
RAFFLE_FN int32_t *band_pieces(const cpu_row *row, int64_t g, float at, float reach, int32_t *piece, int kind) {
    for (int64_t i = g * GROUP, end = i + GROUP; i < end; i += BAND) {
        vf nearest = v_set(PLUS_INF);
        for (int j = 0; j < BAND; j += 2 * V_LANES) {
            vf x, y;
            read_pair(row, i + j, &x, &y, kind);
            nearest = v_nearer(v_nearer(nearest, x, v_set(at)), y, v_set(at));
        }
        *piece = (int32_t)i;
        piece += v_bits(v_ge(v_set(reach), nearest)) != 0;
    }
    return piece;
}

/* Which tokens of a piece are between the list's ends, as bits. */
RAFFLE_FN uint32_t band_bits(const cpu_row *row, int64_t first, const listing *l, int kind) {
    const vf low = v_set(l->low), high = v_set(l->high);
    uint32_t in = 0;
    if (first + BAND <= row->params.vocab) {
        for (int j = 0; j < BAND; j += V_LANES) in |= v_bits(v_within(read_full(row, first + j, kind), low, high)) << j;
    } else {
        for (int j = 0; first + j < row->params.vocab; j += V_LANES)
            in |= v_bits(v_within(read_group(row, first + j, 0, kind), low, high)) << j;
    }
    return in;
}

/* Lists the tokens between two ends that are near each other, and finite. Pieces are told by the distance from the middle, one
 * comparison for all of their vectors: roundings keep the order, so no token is lost, and the bits are exact. */
RAFFLE_FN void row_band(const cpu_row *row, const cpu_scratch *scratch, listing *l, int kind) {
    const cpu_scratch s = *scratch;
    const float at = 0.5f * l->low + 0.5f * l->high, over = l->high - at, under = at - l->low, reach = over > under ? over : under;
    uint64_t listed = 0;
    for (int64_t first = 0; first < s.groups; first += LIST_GROUPS) {
        int32_t pieces[LIST_GROUPS * GROUP / BAND + 1], *end = pieces;
        for (int64_t g = first; g < first + LIST_GROUPS && g < s.groups; ++g) {
            if (group_whole(row, g)) end = band_pieces(row, g, at, reach, end, kind);
            else for (int64_t i = g * GROUP; i < row->params.vocab; i += BAND) *end++ = (int32_t)i;
        }
        for (const int32_t *p = pieces; p < end; ++p) {
            const uint32_t in = band_bits(row, *p, l, kind);
            const int64_t next = (int64_t)listed < l->room ? (int64_t)listed : l->room;
            listed += (uint64_t)tokens_append(row, &s, next, *p, in, kind);
        }
    }
    l->count = listed;
}

/* Lists the tokens between the ends and leaves the tickets of what is above in mass[], group by group: memory is read once
 * for both. */
RAFFLE_FN void row_split(const work *k, const weighing *w, listing *l, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    const float least = cut_above(l->low).low;
    memset(s.mass, 0, (size_t)s.groups * sizeof *s.mass);
    for (int64_t g = next_group(&s, 0, least); g < s.groups; g = next_group(&s, g + 1, least)) {
        const int32_t group = (int32_t)g;
        if (group_whole(&row, g)) group_between(&row, &s, g, l, kind);
        else groups_list(&row, &s, &group, 1, l, kind);
        if (s.peak[g] > l->high) s.mass[g] = group_kept(&row, &s, w, g, cut_above(l->high), kind);
        l->above_tickets += s.mass[g];
    }
}

/* Lists the tokens with low < logit <= high. If there is a high, mass[] holds the tickets above it. */
RAFFLE_FN listing row_list(const work *k, const weighing *w, float low, float high, int kind) {
    const cpu_row row = *k->row;
    const cpu_scratch s = *k->scratch;
    listing l = {low, high, PLUS_INF, MINUS_INF, 0, list_room(&s), 0, 0, 0, 0};
    const int told = !(kind & READ_PROBS) && k->state->told, within = told && low == k->state->at;
    if (k->state->settled && low == k->state->list.low && high == k->state->list.high) return k->state->list;
    state_clear(k->state);
    if (told) row_band(&row, &s, &l, kind);
    else if (high < PLUS_INF) row_split(k, w, &l, kind);
    else if (k->state->fine) row_list_fine(&row, &s, &l, kind);
    else row_list_all(&row, &s, cut_above(low).low, &l, kind);
    l.complete = l.count <= (uint64_t)l.room;
    l.tickets = list_weigh(&s, l.complete ? (int64_t)l.count : l.room, w);
    if (told) l.above_tickets = k->state->tickets - (within ? l.tickets : 0);
    if (l.complete) {
        last_keep(k->state, &l, w, within);
    } else {
        if (within) l.above_tickets = k->loops->weigh_kept(k, w, cut_above(high));
        l.tickets = k->loops->weigh_kept(k, w, cut_above(low)) - l.above_tickets;
        row_extent(&row, &s, &l, kind);
    }
    return l;
}

/* Copies every `of`-th vector of the row to x, whatever its logits; returns how many tokens these are. */
RAFFLE_FN int64_t vectors_copy(const cpu_row *given, int64_t of, float *x, int kind) {
    const cpu_row row = *given;
    int64_t count = 0;
    for (int64_t i = 0; i < row.params.vocab; i += of * V_LANES, count += V_LANES)
        v_store(x + count, v_max(read_group(&row, i, 0, kind), v_set(MINUS_INF)));
    return count;
}

/* The same to list_x, where there is room for 1 in 8. */
RAFFLE_FN int64_t sketch_read(const work *k, int64_t of, int kind) {
    state_clear(k->state);
    return vectors_copy(k->row, of, k->scratch->list_x, kind);
}

/* Lists about GUESS_TOKENS tokens spread over the row. */
RAFFLE_FN listing row_sketch(const work *k, const weighing *w, int kind) {
    const cpu_scratch *s = k->scratch;
    listing l = {MINUS_INF, PLUS_INF, MINUS_INF, w->best, 1, list_room(s), 0, 0, 0, 0};
    const int64_t of = k->row->params.vocab / GUESS_TOKENS + 1, count = sketch_read(k, of, kind);
    for (int64_t i = 0; i < count; ++i) s->list_id[i] = (int32_t)(i / V_LANES * of * V_LANES + i % V_LANES);
    l.count = (uint64_t)count;
    l.tickets = list_weigh(s, count, w);
    return l;
}

/* The id of the count-th token that equals `value`, from the lowest id; INT32_MAX if there are fewer. */
static int32_t row_tie(const work *k, float value, uint64_t count) {
    const cpu_row *row = k->row;
    const cpu_scratch *s = k->scratch;
    for (int64_t g = next_group(s, 0, value); g < s->groups; g = next_group(s, g + 1, value)) {
        for (int64_t i = g * GROUP, end = group_end(row, g); i < end; i += V_LANES) {
            uint32_t equal = v_bits(v_eq(read_group(row, i, 0, k->kind), v_set(value)));
            for (; equal; equal &= equal - 1)
                if (--count == 0) return (int32_t)(i + __builtin_ctz(equal));
        }
    }
    return INT32_MAX;
}

/* ---- draw ---------------------------------------------------------------------------------------- */

/* A token that was drawn, its logit, and how many of what it holds lie before what was drawn. */
typedef struct drawn { int32_t token; float x; uint64_t left; } drawn;
static const drawn drawn_nothing = {RULE_NO_TOKEN, MINUS_INF, 0};

/* The token of group g that holds number `ticket` of the tickets of its tokens, or where they are the `whole` group's, of its weights:
 * RULE_NO_TOKEN if a number of the group's is given for one of its tokens', which may be fewer. */
static drawn group_draw(const work *k, const weighing *w, int64_t g, cut c, int whole, uint64_t ticket) {
    const group_ref r = group_ref_make(w, k->scratch->peak[g]);
    const int32_t first = (int32_t)(g * GROUP);
    float x[GROUP];
    uint32_t weight[GROUP];
    drawn d = {RULE_NO_TOKEN, MINUS_INF, whole ? weight_of(ticket, r.below) : ticket};
    group_expand(k->row, g, &r.ref, x, weight, k->kind);
    for (int32_t j = 0; j < GROUP; ++j) {
        const uint64_t held = whole ? weight[j] : group_tickets(&r, weight[j]);
        if (!cut_keeps(c, x[j], first + j)) continue;
        if (d.left < held) return d.token = first + j, d.x = x[j], d;
        d.left -= held;
    }
    return d;
}

/* The group that `bits` draw of those from *g on which hold `held` tickets: *g becomes that; returns the number counted from where it begins. */
static uint64_t stretch_draw(const cpu_scratch *s, uint64_t held, uint64_t bits, int64_t *g) {
    uint64_t left = mul_high(bits, held);
    for (; left >= s->mass[*g]; ++*g) left -= s->mass[*g];
    return left;
}

/* The group of mass[] that is drawn: its stretch by ticket number *ticket, itself by `bits`. *ticket becomes the number that it holds, *left the
 * same counted from where the group begins. */
static int64_t mass_draw(const cpu_scratch *s, uint64_t bits, uint64_t *ticket, uint64_t *left) {
    uint64_t start = 0, held;
    int64_t g = 0;
    for (;; g += STRETCH, start += held) {
        held = tickets_sum(s->mass + g, g + STRETCH < s->groups ? STRETCH : s->groups - g);
        if (*ticket - start < held) break;
    }
    *ticket = start + mul_high(bits, held);
    *left = stretch_draw(s, held, bits, &g);
    return g;
}

/* The token that is drawn by ticket number *ticket of mass[], which row_weigh (`whole`) or row_weigh_kept made. */
static int32_t row_draw_group(const work *k, const weighing *w, cut c, int whole, uint64_t bits, uint64_t *ticket) {
    uint64_t left;
    const int64_t g = mass_draw(k->scratch, bits, ticket, &left);
    return group_draw(k, w, g, c, whole, left).token;
}

/* The same of row_weigh's, but in the group by its tokens' tickets. */
static int32_t row_propose_one(const work *k, const weighing *w, uint64_t bits, uint64_t *ticket, float *x) {
    uint64_t left;
    const int64_t g = mass_draw(k->scratch, bits, ticket, &left);
    const drawn d = group_draw(k, w, g, cut_from(-FLT_MAX), 0, left);
    *x = d.x;
    *ticket = d.left;
    return d.token;
}

#include "row_flat.h"

#include "row_estimate.h"

#include "row_more.h"

/* ---- one set of loops per kind ------------------------------------------------------------------- */

#define DEFINE_LOOPS(name, four, kind)                                                                                 \
    static float name##_scan(const work *k, int *nan) { return row_scan(k, nan, kind); }                                   \
    static float name##_scan_weigh(const work *k, scale s, int *nan) {                                                 \
        return row_scan_weigh(k, s, nan, leave_nothing, four##_fours, kind);                                           \
    }                                                                                                                  \
    static float name##_scan_estimate(const work *k, scale s, int *nan) { return row_scan_estimate(k, s, nan, kind); }  \
    static drawn name##_propose_estimated(const work *k, const weighing *w) { return row_propose_estimated(k, w, kind); }             \
    static int name##_guessed(const work *k, const weighing *w, quest q, uint64_t mass, float *low, float *high) {     \
        return row_guessed(k, w, q, mass, low, high, kind);                                                            \
    }                                                                                                                  \
    static listing name##_list(const work *k, const weighing *w, float low, float high) {                              \
        return row_list(k, w, low, high, kind);                                                                        \
    }                                                                                                                  \
    static listing name##_sketch(const work *k, const weighing *w) { return row_sketch(k, w, kind); }                  \
    static uint64_t name##_weigh(const work *k, const weighing *w) { return row_weigh(k, w, kind); }                   \
    static uint64_t name##_share_mass(const work *k, const weighing *w) { return row_share_mass(k, w, kind); }         \
    static uint64_t name##_weigh_kept(const work *k, const weighing *w, cut c) {                                       \
        return row_weigh_kept(k, w, c, kind);                                                                          \
    }                                                                                                                  \
    static void name##_weigh_some(const work *k, const weighing *w, int64_t first, int64_t end) {                      \
        groups_tickets(k, w, first, end, kind);                                                                        \
    }                                                                                                                  \
    static const loops name = {kind, name##_scan, name##_scan_weigh, name##_scan_estimate, name##_propose_estimated, name##_list, name##_sketch, \
                               name##_guessed, name##_weigh, name##_share_mass, name##_weigh_kept, name##_weigh_some,  \
                               peak_bound, row_tie, list_threshold, list_tickets, list_larger, draw_list, row_draw_group, row_propose_one, \
                               row_least, row_most, row_count, row_moments, row_surprise, row_radius, row_cap};
DEFINE_FOURS(plain_f32, LEAVE_NOTHING, READ_F32)
DEFINE_FOURS(plain_f16, LEAVE_NOTHING, READ_F16)
DEFINE_FOURS(plain_bf16, LEAVE_NOTHING, READ_BF16)
DEFINE_FOURS(allow_f32, LEAVE_NOTHING, READ_F32 | READ_ALLOW)
DEFINE_FOURS(allow_f16, LEAVE_NOTHING, READ_F16 | READ_ALLOW)
DEFINE_FOURS(allow_bf16, LEAVE_NOTHING, READ_BF16 | READ_ALLOW)
DEFINE_LOOPS(plain_f32, plain_f32, READ_F32)
DEFINE_LOOPS(plain_f16, plain_f16, READ_F16)
DEFINE_LOOPS(plain_bf16, plain_bf16, READ_BF16)
DEFINE_LOOPS(allow_f32, allow_f32, READ_F32 | READ_ALLOW)
DEFINE_LOOPS(allow_f16, allow_f16, READ_F16 | READ_ALLOW)
DEFINE_LOOPS(allow_bf16, allow_bf16, READ_BF16 | READ_ALLOW)
DEFINE_LOOPS(probs_f32, plain_f32, READ_PROBS | READ_F32)
DEFINE_LOOPS(probs_f16, plain_f16, READ_PROBS | READ_F16)
DEFINE_LOOPS(probs_bf16, plain_bf16, READ_PROBS | READ_BF16)
DEFINE_LOOPS(probs_allow_f32, allow_f32, READ_PROBS | READ_F32 | READ_ALLOW)
DEFINE_LOOPS(probs_allow_f16, allow_f16, READ_PROBS | READ_F16 | READ_ALLOW)
DEFINE_LOOPS(probs_allow_bf16, allow_bf16, READ_PROBS | READ_BF16 | READ_ALLOW)

/* The same for a row with a patch: first make what they are going to read. */
#define DEFINE_PATCHED(type, name, least, parameters, ...)                                                             \
    static type patched_##name parameters {                                                                            \
        row_make_from(k->row, k->scratch, least);                                                                      \
        return plain_f32.name(__VA_ARGS__);                                                                            \
    }
static int patched_guessed(const work *k, const weighing *w, quest q, uint64_t mass, float *low, float *high) {
    (void)w, (void)q, (void)mass;
    *low = MINUS_INF;
    *high = PLUS_INF;
    return k->row->patch->from.allow && row_sparse(k->scratch, &k->row->patch->from);
}
static float patched_peak_bound(const work *k, int64_t count, float best) {
    const cpu_scratch *s = k->scratch;
    for (int64_t wanted = count;; wanted += wanted / 8 + 1) { /* some groups turn out to have less than was thought */
        const float bound = peak_bound(k, wanted, best);
        row_make_from(k->row, s, bound);
        if (!(bound > -FLT_MAX) || maxima_reaching(s->peak, s->groups, bound) >= count) return bound;
    }
}
DEFINE_PATCHED(listing, list, cut_above(low).low, (const work *k, const weighing *w, float low, float high), k, w, low, high)
DEFINE_PATCHED(listing, sketch, MINUS_INF, (const work *k, const weighing *w), k, w)
DEFINE_PATCHED(uint64_t, weigh, MINUS_INF, (const work *k, const weighing *w), k, w)
DEFINE_PATCHED(uint64_t, weigh_kept, c.low, (const work *k, const weighing *w, cut c), k, w, c)
DEFINE_PATCHED(int32_t, tie, value, (const work *k, float value, uint64_t count), k, value, count)
DEFINE_PATCHED(int32_t, draw_group, whole ? MINUS_INF : c.low,
               (const work *k, const weighing *w, cut c, int whole, uint64_t bits, uint64_t *ticket), k, w, c, whole, bits, ticket)
DEFINE_PATCHED(int32_t, propose, MINUS_INF, (const work *k, const weighing *w, uint64_t bits, uint64_t *ticket, float *x), k, w, bits, ticket, x)
DEFINE_PATCHED(float, least, low, (const work *k, float low), k, low)
DEFINE_PATCHED(float, most, MINUS_INF, (const work *k, float high), k, high)
DEFINE_PATCHED(uint64_t, count, c.low, (const work *k, cut c), k, c)
DEFINE_PATCHED(moments, moments_of, MINUS_INF, (const work *k, float best, double scale), k, best, scale)
DEFINE_PATCHED(uint64_t, surprise, c.low, (const work *k, const weighing *w, float temperature, cut c, uint64_t *mass), k, w,
               temperature, c, mass)
DEFINE_PATCHED(float, radius, c.low, (const work *k, const weighing *w, cut c, float center, quest q), k, w, c, center, q)
DEFINE_PATCHED(float, cap, MINUS_INF, (const work *k, float high), k, high)
static const loops patched = {READ_F32, NULL, NULL, NULL, NULL, patched_list, patched_sketch, patched_guessed, patched_weigh, patched_weigh,
                              patched_weigh_kept, NULL, patched_peak_bound, patched_tie, list_threshold, list_tickets, list_larger,
                              draw_list, patched_draw_group, patched_propose,
                              patched_least, patched_most, patched_count, patched_moments_of, patched_surprise, patched_radius,
                              patched_cap};
