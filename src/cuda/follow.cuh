/* follow.cuh - results that share a row: whoever draws the first draws all of them. */
#ifndef RAFFLE_CUDA_FOLLOW_CUH
#define RAFFLE_CUDA_FOLLOW_CUH

#include "job.cuh"

/* Whether a result is drawn from the row of the result before it, with the same parameters: whoever draws that draws this, too. */
template <class type> __device__ __forceinline__ bool draw_follows(const sample_args &a, int64_t row) {
    if (!a.row_index || a.allow || row == 0 || row >= a.rows || a.row_index[row] != a.row_index[row - 1]) return false;
    const int64_t slot = a.slot ? a.slot[row] : row, before = a.slot ? a.slot[row - 1] : row - 1;
    row_params p, q;
    if (row_source(a, row) < 0 || slot < 0 || slot >= a.slots || before < 0 || before >= a.slots) return false;
    if (!params_read<type>(a, slot, &p) || !params_read<type>(a, before, &q)) return false;
    return p.temperature == q.temperature && p.top_p == q.top_p && p.min_p == q.min_p && p.top_k == q.top_k;
}

/* What several results are drawn from: tokens that a cut keeps, by what groups hold of them. `whole`: groups are cut into tickets as a
 * whole, not token by token. */
struct follow_draw {
    cut kept;
    bool whole;
    uint64_t mass;
};

/* The token that is drawn from a row, by one warp: what chance says of it is in `bits`. mass_of(g): what group g holds; ref_of(g): how
 * its tokens are weighed; weigh(x, f): one of them. *logit is the token's; RULE_NO_TOKEN if none holds what is drawn. */
template <class type, class masses, class references, class function>
__device__ __forceinline__ int32_t warp_draw(const work<type> &k, const follow_draw &of, const philox_pair &bits, float *logit,
                                             masses mass_of, references ref_of, function weigh) {
    const uint64_t ticket = mul_high(bits.low, of.mass);
    const int lane = threadIdx.x % WARP, first = k.groups * lane / WARP, end = k.groups * (lane + 1) / WARP;
    uint64_t own = 0;
    for (int g = first; g < end; ++g) own += mass_of(g);
    uint64_t before = warp_through(own) - own, left = ticket - before;
    const bool mine = ticket >= before && left < own;
    const uint32_t holds = __ballot_sync(ALL_LANES, mine);
    int g = first;
    if (mine)
        for (uint64_t held; left >= (held = mass_of(g)); ++g) left -= held;
    const int from = holds ? __ffs(holds) - 1 : 0; /* logits that change under the kernel may leave a ticket without a holder */
    const int next = __shfl_sync(ALL_LANES, g, from) / STRETCH * STRETCH + lane; /* the stretch's groups, one a lane */
    own = lane < STRETCH && next < k.groups ? mass_of(next) : 0;
    before = warp_through(own);
    left = mul_high(bits.high, __shfl_sync(ALL_LANES, before, WARP - 1));
    const uint32_t through = __ballot_sync(ALL_LANES, left < before); /* the first of them holds it */
    const int holder = through ? __ffs(through) - 1 : 0;
    g = __shfl_sync(ALL_LANES, next, holder);
    left -= __shfl_sync(ALL_LANES, before - own, holder);
    float x[LANE_TOKENS];
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) x[j] = token_read_inline<type>(k.row, g * (int64_t)GROUP + j * WARP + lane);
    const group_ref r = ref_of(g);
    if (of.whole) left = weight_of(left, r.below);
#pragma unroll 1
    for (int j = 0; j < LANE_TOKENS; ++j) {
        const uint32_t weight = weigh(x[0], r.ref);
        const bool keeps = cut_keeps(of.kept, x[0], g * (int64_t)GROUP + j * WARP + lane);
        const uint64_t held = of.whole ? weight : keeps ? group_tickets(&r, weight) : 0, through = warp_through(held);
        before = through - held;
        const uint32_t holds = __ballot_sync(ALL_LANES, left >= before && left - before < held);
        if (holds) {
            const int winner = __ffs(holds) - 1;
            *logit = __shfl_sync(ALL_LANES, x[0], winner);
            return g * GROUP + j * WARP + winner;
        }
        left -= __shfl_sync(ALL_LANES, through, WARP - 1);
#pragma unroll
        for (int i = 1; i < LANE_TOKENS; ++i) x[i - 1] = x[i]; /* an index that changes would put them onto the stack */
    }
    return RULE_NO_TOKEN;
}

/* Leaves in q.mass what each group keeps of a row that fast.cuh or wide.cuh has finished, whose maxima q.peak has. By all threads. */
template <class type> __device__ __forceinline__ void masses_find(work<type> &k, const fast_scale<type::LINEAR> &s, cut c) {
    quick &q = k.q;
    if (k.rules.proposes) { /* row_proposed has left what they hold */
    } else if (k.told.whole) {
        uint32_t unused;
        fast_fetch(k, false, true, &unused);
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = fast_tickets(s, q.peak[g], q.mass[g]);
    } else if (k.state == MASS_NONE) { /* all that stay are among the candidates */
        for (int g = threadIdx.x; g < k.groups; g += BLOCK_THREADS) q.mass[g] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < q.count; i += BLOCK_THREADS) {
            const float x = float_of_order(q.order[i]);
            if (cut_keeps(c, x, q.id[i])) mass_add(q.mass + q.id[i] / GROUP, candidate_tickets(q, s, x, q.id[i]));
        }
    }
    __syncthreads();
}

/* Draws the results that follow `row`, which is drawn and was not greedy; each by a warp. Those of a row that proposes do so, too, each for
 * itself: what stays is known. By all threads. */
template <class type> static __device__ __noinline__ void rows_follow(const sample_args &a, work<type> *shared_k, int64_t row, float most) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    __syncthreads();
    const bool near = k.state == MASS_NONE || k.state == MASS_QUICK, some = most > MINUS_INF, proposes = k.rules.proposes;
    const weighing draw = weighing_make(k.params.temperature, most);
    const cut c = cut_of(&k.told);
    follow_draw from = {proposes ? cut_from(-FLT_MAX) : c, (bool)k.told.whole, k.told.draw_tickets};
    fast_scale<type::LINEAR> s;
    fast_scale_make(k.by, most, &s);
    if (near) masses_find(k, s, c);
    else if (some) from.whole || proposes ? k.weigh(&draw) : k.weigh_kept(&draw, c);
    __syncthreads();
    if (proposes) from.mass = near ? k.q.all : k.total;
#pragma unroll 1
    for (int64_t next = row + 1;; next += BLOCK_WARPS) { /* as many at once as there are warps */
        const bool follows = lane < BLOCK_WARPS && draw_follows<type>(a, next + lane);
        const int following = __ffs(~__ballot_sync(ALL_LANES, follows)) - 1;
        if (warp >= following) return;
        const int64_t own = next + warp;
        row_params p;
        params_read<type>(a, a.slot ? a.slot[own] : own, &p);
        int32_t token = RULE_NO_TOKEN;
#pragma unroll 1
        for (uint32_t j = 0; j < (proposes ? PROPOSALS : 1) && token < 0; ++j) {
            const philox_pair bits = proposal_bits(&p, j);
            float x;
            if (near)
                token = warp_draw<type>(k, from, bits, &x, [&](int g) { return k.q.mass[g]; },
                                        [&](int g) { return group_ref_near(s, k.q.peak[g]); },
                                        [](float x, const ref &f) { return weigh_usual<type::LINEAR>(x, f); });
            else if (some)
                token = warp_draw<type>(k, from, bits, &x, [&](int g) { return k.mass_of(g); },
                                        [&](int g) { return group_ref_any(&draw, k.peak_of(g)); },
                                        [](float x, const ref &f) { return weigh_one(x, f); });
            if (proposes && token >= 0 && !cut_keeps(c, x, token)) token = RULE_NO_TOKEN;
        }
        __syncwarp();
        if (lane == 0) row_report(a, k, own, token, most);
        if (following < BLOCK_WARPS) return;
    }
}

#endif
