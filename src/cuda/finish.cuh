/* finish.cuh - the loops that cut.h asks for, done by one block for one row whose groups have all been read.
 * Every function is called by all threads of the block, with the same arguments, and returns the same to all.
 * The large ones are not inlined: each runs a few times a row, and a small kernel starts faster. */
#ifndef RAFFLE_CUDA_FINISH_CUH
#define RAFFLE_CUDA_FINISH_CUH

#include "space.cuh"

enum {
    LIST_MAX = 2048,   /* tokens in a list */
    LIST_RANKED = 256, /* lists up to here are compared all against all, longer ones by bisection */
    PIECES_MAX = 512,  /* more pieces than this are read as whole groups */
    KEYS_MAX = 4096,   /* maxima of pieces kept in shared memory */
    PEAKS_MAX = 1024   /* groups whose maxima and masses are kept there */
};

/* Methods that are not inlined learn here that their object is in shared memory. */
#define SHARED_THIS __builtin_assume(__isShared(this))

/* What the group masses in memory are: sums of weights from the first reading, or tickets made since. Of rows that were finished by
 * fast.cuh (NONE: there are none) and wide.cuh (QUICK: q.mass is what each group keeps) this is only known where rows are INDEXED. */
enum { MASS_OTHER, MASS_WEIGHTS, MASS_TICKETS, MASS_NONE, MASS_QUICK };

/* What a reading of all groups adds up. */
enum { READ_LIST, READ_KEPT, READ_WEIGHTS, READ_EQUALS };

/* Whether the weights of the first reading are right for all groups that can hold tickets: those of a PLAIN reference,
 * which groups less than `drop` below the best then have too, or of a LINEAR one. */
template <int linear> __device__ __forceinline__ bool weights_hold(scale s, float best) {
    if (linear) return best > 0.0f && best < PLUS_INF;
    return !s.flat && fabsf(best * s.c) < 0x1p12f - 64.0f;
}

/* What is asked of a row (cut.h). */
template <class type> __device__ __forceinline__ int asks_of(const work<type> &k) {
    if constexpr (type::TOLD) return k.asks;
    return ASKS_TOKEN;
}

/* Whether its token is proposed (propose.cuh), not drawn from what is kept. */
template <class type> __device__ __forceinline__ bool row_proposes(const work<type> &k) { return k.rules.proposes && asks_of(k) & ASKS_TOKEN; }

/* The flags of a row whose largest logit is `best`. */
__device__ __forceinline__ uint32_t flags_of(float best, bool nan) {
    return (best == PLUS_INF ? RULE_ROW_INF : best == MINUS_INF ? RULE_ROW_EMPTY : 0) | (nan ? RULE_ROW_NAN : 0);
}

/* The maximum of a group whose pieces have these. */
__device__ __forceinline__ float pieces_most(float4 piece) { return fmaxf(fmaxf(piece.x, piece.y), fmaxf(piece.z, piece.w)); }

/* A row and the block's shared memory for it; lives there itself. */
template <class type>
struct work : row_job, row_wish<type::REQUESTED>, row_told<type::TOLD>, row_asked<type::ASKED>, row_shared<type::INDEXED>,
              row_sums<type::SUMS>, row_team<type::TEAMED> {
    float row_best;   /* the largest logit */
    int state;        /* of the masses */
    scale mass_scale; /* what they were weighed with */
    uint64_t total;   /* if MASS_TICKETS */

    block_space block;
    uint32_t count, pieces;
    int32_t token, group;
    float token_logit; /* by propose */
    uint64_t rest;
    int32_t best_group; /* the first that has row_best */
    bool keys_here;
    union {
#if CUT_MORE
        edit_space edit;
#endif
        quick q;
        struct {
            float peak_near[PEAKS_MAX];
            uint64_t mass_near[PEAKS_MAX];
            uint32_t piece[PIECES_MAX];
            float list_x[LIST_MAX];
            int32_t list_id[LIST_MAX];
            union {
                uint64_t list_t[LIST_MAX];
                uint32_t key[KEYS_MAX]; /* order_of the pieces' maxima; overwritten by a list */
            };
        };
    };

    /* What was drawn from; by one thread. */
    __device__ __forceinline__ void tell(float threshold, uint64_t tickets, int whole, int32_t tie_last = INT32_MAX) {
        if constexpr (type::TOLD) {
            const answer drawn = {RULE_NO_TOKEN, 0, 0, threshold, tie_last, tickets, 0, 0, 0.0f, whole};
            this->told = drawn;
        }
    }

    /* ---- records ---- */

    __device__ __forceinline__ float peak_far(int g) const {
        return to.pieces ? pieces_most(__ldcg((const float4 *)to.peak + g)) : __ldcg(to.peak + g);
    }
    __device__ __forceinline__ float peak_of(int g) const { return g < PEAKS_MAX ? peak_near[g] : peak_far(g); }
    __device__ __forceinline__ uint64_t mass_of(int g) const { return g < PEAKS_MAX ? mass_near[g] : __ldcg(to.mass + g); }
    __device__ __forceinline__ void mass_set(int g, uint64_t amounts) {
        if (g < PEAKS_MAX) mass_near[g] = amounts;
        else __stcg(to.mass + g, amounts);
    }

    /* Fetches the records; finds the row's maximum and the first group that has it. */
    __device__ __noinline__ void begin() {
        SHARED_THIS;
        uint64_t most = 0;
        for (int g = threadIdx.x; g < groups; g += BLOCK_THREADS) {
            const float m = peak_far(g);
            if (g < PEAKS_MAX) {
                peak_near[g] = m;
                if (to.weights) mass_near[g] = __ldcg(to.mass + g);
            }
            most = max(most, token_key(m, g));
        }
        most = warp_max_wide(most);
        if (threadIdx.x % WARP == 0) block.of_warp[threadIdx.x / WARP] = most;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 0; i < BLOCK_WARPS; ++i) most = max(most, block.of_warp[i]);
            row_best = float_of_order((uint32_t)(most >> 32));
            best_group = (int)~(uint32_t)most;
            token = RULE_NO_TOKEN; /* logits that change under the kernel may leave a ticket without a holder */
            group = 0;
            rest = 0;
            keys_here = false;
            state = to.weights && weights_hold<type::LINEAR>(to.by, row_best) ? MASS_WEIGHTS : MASS_OTHER;
            mass_scale = to.by;
        }
        __syncthreads();
    }

    /* ---- the masses of groups: thread i owns a run of them ---- */

    __device__ __forceinline__ int run_first(int thread) const {
        return (int)((uint32_t)groups * (uint32_t)thread / BLOCK_THREADS);
    }

    /* Finds the group that holds unit number `unit` of the masses: `group`, and the number in it: `rest`. */
    __device__ __noinline__ void locate(uint64_t unit) {
        SHARED_THIS;
        uint64_t own = 0;
        for (int g = run_first(threadIdx.x); g < run_first(threadIdx.x + 1); ++g) own += mass_of(g);
        uint64_t before = block_before(own, &block);
        if (unit >= before && unit - before < own) {
            uint64_t left = unit - before;
            int g = run_first(threadIdx.x);
            for (uint64_t held; left >= (held = mass_of(g)); ++g) left -= held;
            group = g;
            rest = left;
        }
        __syncthreads();
    }

    /* The token of group g that holds unit number `unit` of the amounts that thread i has of the i-th token; RULE_NO_TOKEN if none does. */
    __device__ __forceinline__ int32_t holder(int g, uint64_t unit, uint64_t own) {
        if (threadIdx.x == 0) token = RULE_NO_TOKEN;
        const uint64_t before = block_before(own, &block);
        if (unit >= before && unit - before < own) token = g * GROUP + (int)threadIdx.x; /* threads past it own nothing */
        __syncthreads();
        return token;
    }

    /* ---- a reading of all groups ---- */

    /* Lists the tokens of the lanes that say so; called by whole warps, which count their own first. */
    __device__ __forceinline__ void list_append(bool listed, float x, int64_t id, uint64_t tickets) {
        const uint32_t lanes = __ballot_sync(ALL_LANES, listed), lane = threadIdx.x % WARP;
        if (!lanes) return;
        uint32_t slot = 0;
        if (lane == 0) slot = atomicAdd(&count, (uint32_t)__popc(lanes));
        slot = __shfl_sync(ALL_LANES, slot, 0) + __popc(lanes & ((1u << lane) - 1));
        if (!listed || slot >= LIST_MAX) return;
        list_x[slot] = x;
        list_id[slot] = (int32_t)id;
        list_t[slot] = tickets;
    }

    /* READ_LIST fills *l. The others leave each group's amount in mass[] and return the sum: of READ_WEIGHTS the
     * groups' tickets, of READ_KEPT the tickets of tokens that the cut keeps, of READ_EQUALS the number of tokens
     * equal to c.low. */
    __device__ __noinline__ uint64_t read_all(int what, const weighing *w, cut c, listing *l) {
        SHARED_THIS;
        const int lane = threadIdx.x % WARP;
        const float low = what == READ_LIST ? l->low : c.low, high = what == READ_LIST ? l->high : PLUS_INF;
        uint64_t sum = 0, above_tickets = 0;
        uint32_t above_count = 0, least = 0xffffffffu, most = 0;
        for (int g = threadIdx.x / WARP; g < groups; g += BLOCK_WARPS) {
            if (g + PREFETCH * BLOCK_WARPS < groups) group_prefetch<type>(row, g + PREFETCH * BLOCK_WARPS, lane);
            const float m = peak_of(g);
            const bool skip = m == MINUS_INF || (what == READ_LIST ? !(m > low) : what != READ_WEIGHTS && m < low);
            uint64_t amounts = 0;
            group_ref r;
            if (!skip) {
                float x[LANE_TOKENS];
                lane_read<type>(row, g, lane, x);
                if (what != READ_EQUALS) r = group_ref_any(w, m);
#pragma unroll
                for (int j = 0; j < LANE_TOKENS; ++j) {
                    if (what == READ_EQUALS) {
                        amounts += x[j] == low;
                        continue;
                    }
                    const uint32_t weight = weigh_one(x[j], r.ref);
                    const uint64_t held = what == READ_WEIGHTS ? weight : group_tickets(&r, weight);
                    const int64_t id = lane_id<type>(row, g, lane, j);
                    if (what == READ_LIST) {
                        const bool above = x[j] > high, inside = x[j] > low && !above;
                        above_tickets += above ? held : 0;
                        above_count += above;
                        amounts += inside ? held : 0;
                        least = min(least, inside ? order_of(x[j]) : 0xffffffffu);
                        most = max(most, inside ? order_of(x[j]) : 0);
                        list_append(inside, x[j], id, held);
                    } else if (what == READ_WEIGHTS || cut_keeps(c, x[j], id)) {
                        amounts += held;
                    }
                }
            }
            if (what != READ_LIST) {
                amounts = warp_add_wide(amounts);
                if (what == READ_WEIGHTS && !skip) amounts = tickets_of(amounts, r.below);
                if (lane == 0) mass_set(g, amounts);
                if (lane) amounts = 0;
            }
            sum += amounts;
        }
        sum = block_add(sum, &block);
        if (what == READ_LIST) {
            l->tickets = sum;
            l->above_tickets = block_add(above_tickets, &block);
            l->above_count = block_add(above_count, &block);
            l->least = float_of_order(block_min(least, &block));
            l->most = float_of_order(block_max(most, &block));
            l->count = count;
            l->complete = l->count <= LIST_MAX;
        }
        return sum;
    }

    __device__ __forceinline__ bool mass_is(int as, const weighing *w) const {
        return state == as && mass_scale.c == w->scale.c && mass_scale.c_low == w->scale.c_low;
    }

    __device__ __noinline__ uint64_t weigh(const weighing *w) {
        SHARED_THIS;
        if (mass_is(MASS_TICKETS, w)) return total;
        uint64_t sum = 0;
        if (mass_is(MASS_WEIGHTS, w)) { /* the first reading has done the work */
            for (int g = run_first(threadIdx.x); g < run_first(threadIdx.x + 1); ++g) {
                const float m = peak_of(g);
                uint64_t tickets = m == MINUS_INF ? 0 : tickets_of(mass_of(g), group_ref_any(w, m).below);
                mass_set(g, tickets);
                sum += tickets;
            }
            sum = block_add(sum, &block);
        } else {
            sum = read_all(READ_WEIGHTS, w, cut_from(-FLT_MAX), nullptr);
        }
        if (threadIdx.x == 0) {
            total = sum;
            state = MASS_TICKETS;
            mass_scale = w->scale;
        }
        __syncthreads();
        return sum;
    }

    __device__ __noinline__ uint64_t weigh_kept(const weighing *w, cut c) {
        SHARED_THIS;
        __syncthreads();
        if (threadIdx.x == 0) state = MASS_OTHER;
        return read_all(READ_KEPT, w, c, nullptr);
    }

    /* The group that holds what is drawn: ticket number `ticket` says in which stretch, `within` where in that. `rest` becomes the number
     * in the group. */
    __device__ __noinline__ int draw_stretch(uint64_t within, uint64_t ticket) {
        SHARED_THIS;
        locate(ticket);
        const int first = group / STRETCH * STRETCH, end = min(first + STRETCH, groups);
        uint64_t start = ticket - rest, held = 0; /* of the stretch */
        for (int i = first; i < end; ++i) {
            held += mass_of(i);
            if (i < group) start -= mass_of(i);
        }
        __syncthreads();
        locate(start + mul_high(within, held));
        return group;
    }

    __device__ __noinline__ int32_t draw_group(const weighing *w, cut c, int whole, uint64_t within, const uint64_t *ticket) {
        SHARED_THIS;
        const int g = draw_stretch(within, *ticket);
        const int64_t id = g * (int64_t)GROUP + threadIdx.x;
        const float x = threadIdx.x < GROUP ? token_read<type>(row, id) : MINUS_INF;
        const group_ref r = group_ref_any(w, peak_of(g));
        const uint32_t weight = weigh_one(x, r.ref);
        if (whole) return holder(g, weight_of(rest, r.below), weight);
        return holder(g, rest, cut_keeps(c, x, id) ? group_tickets(&r, weight) : 0);
    }

    __device__ __noinline__ int32_t propose(const weighing *w, uint64_t within, const uint64_t *ticket, float *logit) {
        SHARED_THIS;
        const int g = draw_stretch(within, *ticket);
        const int64_t id = g * (int64_t)GROUP;
        const group_ref r = group_ref_any(w, peak_of(g));
        const float x = threadIdx.x < GROUP ? token_read<type>(row, id + threadIdx.x) : MINUS_INF;
        const int32_t drawn = holder(g, rest, group_tickets(&r, weigh_one(x, r.ref)));
        if (drawn == id + threadIdx.x) token_logit = x; /* not read again: all must see the same, even of logits that change under the kernel */
        __syncthreads();
        *logit = drawn < 0 ? MINUS_INF : token_logit;
        return drawn;
    }

    /* ---- thresholds ---- */

    /* Fetches the maxima of pieces, unless they are still here. */
    __device__ __forceinline__ void keys_fetch() {
        if (keys_here) return;
        const int n = groups * PIECES;
        __syncthreads();
#pragma unroll 4
        for (int i = threadIdx.x; i < n; i += BLOCK_THREADS) key[i] = order_of(__ldcg(to.peak + i));
        if (threadIdx.x == 0) keys_here = true;
        __syncthreads();
    }

    __device__ __noinline__ float peak_bound(int64_t wanted, float best) {
        SHARED_THIS;
        const int n = groups * PIECES;
        if (wanted > n || n > KEYS_MAX) return -FLT_MAX;
        keys_fetch();
        /* The upper half of a key stands for the smallest float that shares it: a bound all the same. */
        uint32_t smallest = 0xffffffffu;
        for (int i = threadIdx.x; i < n; i += BLOCK_THREADS) smallest = min(smallest, key[i]);
        uint32_t low = block_min(smallest, &block) >> 16, high = (order_of(best) >> 16) + 1;
        while (high - low > 1) { /* at least `wanted` keys are >= low, fewer are >= high; each warp tries a value between */
            const uint32_t span = high - low, warp = threadIdx.x / WARP;
            const uint32_t tried = low + max(1u, span * (warp + 1) / (BLOCK_WARPS + 1)), edge = tried << 16;
            uint32_t found = 0;
#pragma unroll 8
            for (int i = threadIdx.x % WARP; i < n; i += WARP) found += key[i] >= edge;
            found = warp_add(found);
            if (threadIdx.x % WARP == 0) block.of_warp[warp] = (uint64_t)tried << 32 | found;
            __syncthreads();
            for (int i = 0; i < BLOCK_WARPS; ++i) {
                const uint32_t value = (uint32_t)(block.of_warp[i] >> 32);
                if ((uint32_t)block.of_warp[i] >= (uint32_t)wanted) low = max(low, value);
                else high = min(high, value);
            }
            __syncthreads();
        }
        float bound = float_of_order(low << 16);
        return bound > -FLT_MAX ? bound : -FLT_MAX; /* -inf has a key too */
    }

    __device__ __forceinline__ uint64_t token_tickets(const weighing *w, int64_t id, float x) const {
        if (!(x > MINUS_INF)) return 0;
        const group_ref r = group_ref_any(w, peak_of((int)(id / GROUP)));
        return group_tickets(&r, weigh_one(x, r.ref));
    }

    /* The list by reading only pieces whose maximum is above l->low; false if there are too many of anything. */
    __device__ __noinline__ bool list_pieces(listing *l, const weighing *w) {
        SHARED_THIS;
        const uint32_t edge = order_of(l->low);
        if (groups * PIECES > KEYS_MAX) return false;
        keys_fetch();
#pragma unroll 4
        for (int i = threadIdx.x; i < groups * PIECES; i += BLOCK_THREADS) {
            if (key[i] <= edge) continue;
            uint32_t slot = atomicAdd(&pieces, 1u);
            if (slot < PIECES_MAX) piece[slot] = (uint32_t)i;
        }
        __syncthreads();
        if (pieces > PIECES_MAX) return false;
        enum { TOKENS = GROUP / PIECES };
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < pieces * TOKENS; i += BLOCK_THREADS) {
            const int g = (int)(piece[i / TOKENS] / PIECES), lane = piece[i / TOKENS] % PIECES * PIECE_LANES + i % PIECE_LANES;
            const int64_t id = lane_id<type>(row, g, lane, i % TOKENS / PIECE_LANES);
            const float x = token_read_inline<type>(row, id);
            if (!(x > l->low)) continue;
            const uint32_t slot = atomicAdd(&count, 1u);
            if (slot >= LIST_MAX) continue;
            list_x[slot] = x;
            list_id[slot] = (int32_t)id;
        }
        __syncthreads();
        if (count > LIST_MAX) return false;
        if (threadIdx.x == 0) keys_here = false;
        uint64_t sum = 0;
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < count; i += BLOCK_THREADS) sum += list_t[i] = token_tickets(w, list_id[i], list_x[i]);
        l->tickets = block_add(sum, &block);
        l->count = count;
        l->complete = 1;
        l->most = w->best;
        return true;
    }

    __device__ __forceinline__ void list_clear() {
        __syncthreads();
        if (threadIdx.x == 0) count = pieces = 0;
        __syncthreads();
    }

    __device__ __noinline__ listing list(const weighing *w, float low, float high) {
        SHARED_THIS;
        listing l = {low, high, PLUS_INF, MINUS_INF, 0, LIST_MAX, 0, 0, 0, 0};
        list_clear();
        if (high == PLUS_INF && list_pieces(&l, w)) return l;
        list_clear();
        if (threadIdx.x == 0) keys_here = false;
        read_all(READ_LIST, w, cut_from(low), &l);
        return l;
    }

    __device__ int guessed(const weighing *, quest, uint64_t, float *, float *) { return 0; }

    __device__ __noinline__ listing sketch(const weighing *w) {
        SHARED_THIS;
        listing l = {MINUS_INF, PLUS_INF, MINUS_INF, w->best, 1, LIST_MAX, 0, 0, 0, 0};
        uint64_t sum = 0;
        l.count = row.vocab < GUESS_TOKENS ? row.vocab : GUESS_TOKENS;
        __syncthreads();
        if (threadIdx.x == 0) keys_here = false;
        for (uint32_t i = threadIdx.x; i < l.count; i += BLOCK_THREADS) {
            int64_t id = row.vocab * i / (int64_t)l.count;
            float x = token_read_inline<type>(row, id);
            if (x != x) x = MINUS_INF;
            list_x[i] = x;
            sum += list_t[i] = token_tickets(w, id, x);
        }
        l.tickets = block_add(sum, &block);
        return l;
    }

    __device__ __noinline__ float list_threshold(const listing *l, quest q) {
        SHARED_THIS;
        const uint32_t n = (uint32_t)l->count;
        const uint64_t above = listing_above(l, q);
        if (n <= LIST_RANKED) { /* the smallest listed logit that stays */
            uint32_t smallest = order_of(l->most);
            if (threadIdx.x < n) {
                const float x = list_x[threadIdx.x];
                uint64_t larger = above;
                if (q.in_tickets) {
#pragma unroll 4
                    for (uint32_t i = 0; i < n; ++i) larger += list_x[i] > x ? list_t[i] : 0;
                } else {
                    uint32_t found = 0;
#pragma unroll 4
                    for (uint32_t i = 0; i < n; ++i) found += list_x[i] > x;
                    larger += found;
                }
                if (larger < q.target && x > l->low) smallest = min(smallest, order_of(x));
            }
            return float_of_order(block_min(smallest, &block));
        }
        uint32_t low = order_of(l->low), high = order_of(l->most);
        while (high - low > 1) {
            const uint32_t middle = low + (high - low) / 2;
            const float value = float_of_order(middle);
            uint64_t larger = 0;
            for (uint32_t i = threadIdx.x; i < n; i += BLOCK_THREADS)
                if (list_x[i] > value) larger += q.in_tickets ? list_t[i] : 1;
            if (above + block_add(larger, &block) < q.target) high = middle;
            else low = middle;
        }
        return float_of_order(high);
    }

    /* Tickets of the listed tokens up to an id that the cut keeps. */
    __device__ __noinline__ uint64_t list_tickets_to(const listing *l, cut c, int32_t last) {
        SHARED_THIS;
        uint64_t sum = 0;
        for (uint32_t i = threadIdx.x; i < l->count; i += BLOCK_THREADS)
            if (list_id[i] <= last && cut_keeps(c, list_x[i], list_id[i])) sum += list_t[i];
        return block_add(sum, &block);
    }
    __device__ __forceinline__ uint64_t list_tickets(const listing *l, cut c) { return list_tickets_to(l, c, INT32_MAX); }

    __device__ __noinline__ uint64_t list_larger(const listing *l, float x) {
        SHARED_THIS;
        uint32_t larger = 0;
        for (uint32_t i = threadIdx.x; i < l->count; i += BLOCK_THREADS) larger += list_x[i] > x;
        return block_count(larger, &block);
    }

    /* Lists are in no order here, so ranges are found by id. The id in (low, high] up to which the listed tokens that a cut keeps hold more than `ticket` tickets. */
    __device__ __forceinline__ int32_t list_holder(const listing *l, cut c, int32_t low, int32_t high, uint64_t ticket) {
        while (high - low > 1) {
            const int32_t middle = low + (high - low) / 2;
            if (list_tickets_to(l, c, middle) > ticket) high = middle;
            else low = middle;
        }
        return high;
    }

    __device__ __noinline__ int32_t draw_list(const listing *l, cut c, uint64_t within, const uint64_t *ticket) {
        SHARED_THIS;
        if (l->count > LIST_RANKED) {
            const int32_t before = list_holder(l, c, -1, (int32_t)row.vocab - 1, *ticket) / STRETCH_TOKENS * STRETCH_TOKENS - 1;
            const int32_t last = before + STRETCH_TOKENS;
            const uint64_t start = before < 0 ? 0 : list_tickets_to(l, c, before), held = list_tickets_to(l, c, last) - start;
            return list_holder(l, c, before, last, start + mul_high(within, held));
        }
        const uint32_t n = (uint32_t)l->count, own = threadIdx.x;
        __syncthreads();
        if (own < n && !cut_keeps(c, list_x[own], list_id[own])) list_t[own] = 0; /* nobody asks for it any more */
        if (own == 0) group = -1;
        __syncthreads();
        const bool mine = own < n && list_t[own];
        const int32_t id = mine ? list_id[own] : -1, h = id / STRETCH_TOKENS;
        uint64_t before = 0, start = 0, held = 0; /* start: before the token's stretch; held: by it */
        if (mine) {
#pragma unroll 4
            for (uint32_t i = 0; i < n; ++i) {
                before += list_id[i] < id ? list_t[i] : 0;
                start += list_id[i] < h * STRETCH_TOKENS ? list_t[i] : 0;
                held += list_id[i] / STRETCH_TOKENS == h ? list_t[i] : 0;
            }
            if (*ticket >= before && *ticket - before < list_t[own]) group = h;
        }
        __syncthreads();
        const uint64_t unit = start + mul_high(within, held);
        if (mine && h == group && unit >= before && unit - before < list_t[own]) token = id;
        __syncthreads();
        return token;
    }

    /* ---- ties ---- */

    __device__ __noinline__ int32_t tie(float value, uint64_t nth) {
        SHARED_THIS;
        int g = best_group; /* the first of the best is there */
        if (nth > 1 || value < row_best) { /* count the equals of every group, then find the right one */
            __syncthreads();
            if (threadIdx.x == 0) state = MASS_OTHER;
            if (read_all(READ_EQUALS, nullptr, cut_from(value), nullptr) < nth) return INT32_MAX;
            locate(nth - 1);
            g = group;
            nth = rest + 1;
        }
        return holder(g, nth - 1, threadIdx.x < GROUP && token_read<type>(row, g * (int64_t)GROUP + threadIdx.x) == value);
    }
};

#endif
