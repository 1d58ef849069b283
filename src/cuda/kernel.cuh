/* kernel.cuh - the kernel of raffle_sample. */
#ifndef RAFFLE_CUDA_KERNEL_CUH
#define RAFFLE_CUDA_KERNEL_CUH

#include "follow.cuh"

/* What finishing a row will need, by one thread, while another waits for memory. */
__device__ __forceinline__ void job_prepare(row_job *k) {
    k->rules = rules_make(&k->params);
    k->by = k->filter_by = scale_make(k->params.temperature);
    k->two_scales = k->rules.top_p && k->rules.filter_temperature != k->params.temperature;
    if (k->two_scales) k->filter_by = scale_make(k->rules.filter_temperature);
    k->bits = draw_bits(&k->params);
    if (k->params.min_p > 0.0f) k->min_p_reach = min_p_reach(&k->params, &k->rules);
}

/* A block's part of the work: groups [first, end) of a row. Looked up anew where it is needed: kept in registers through
 * the reading, it would push them onto the stack. */
struct block_part {
    int64_t row;
    int first, end;
};
template <class args> __device__ __forceinline__ block_part part_make(const args &a) {
    block_part p;
    const uint4 at = block_place();
    p.row = at.z * (int64_t)at.w + at.y;
    p.first = (int)at.x * a.part;
    p.end = min(p.first + a.part, a.groups);
    return p;
}

/* Reads the block's part, of a batch that row_make and job_read know. Returns whether there was a NaN. */
template <class type, class args> __device__ __forceinline__ bool part_read(const args &a, work<type> *k) {
    const int warp = threadIdx.x / WARP;
    flight<type> f;
    bool plain, nan = false;
    {
        const block_part p = part_make(a);
        const device_row logits = row_make<type>(a, p.row);
        plain = type::REQUESTED ? logits.aligned : row_plain(logits);
        if (plain) f.start(logits.logits, a.vocab, p.first + warp, min(p.end, groups_loadable<type>(a.vocab)));
        if (warp == 0) job_read(a, p.row, logits, k);
    }
    if (threadIdx.x % WARP == 0) k->best_of_warp[warp] = 0; /* of a warp without groups */
#if CUT_MORE
    if (warp) edit_clear(k->edit); /* while one warp waits for what the row asks for */
#endif
    __syncthreads();
    bool as_it_came = k->valid;
#if CUT_MORE
    if constexpr (type::REQUESTED) as_it_came = k->valid && !k->request.prepares && !k->row.allow;
#endif
    /* Before any call: behind one, compilers no longer know that lanes are together, and loads wait in the loop. */
    if (as_it_came) {
        nan = groups_read<type>(k, f, plain, [&] {
            const block_part p = part_make(a);
            return make_int2(p.first + (int)threadIdx.x / WARP, p.end);
        });
    }
#if CUT_MORE
    if constexpr (type::REQUESTED) {
        if (!as_it_came && k->valid) {
            const block_part p = part_make(a);
            nan = part_read_prepared(k, p.first, p.end);
        }
    }
#endif
    return __syncthreads_or(nan);
}

/* Leaves the sums of a part that looks flat. */
template <class type> __device__ __forceinline__ void part_look(const sample_args &a, work<type> &k) {
    if (k.spread <= 0) return;
    const block_part p = part_make(a);
    if (threadIdx.x == 0) {
        k.section = section_of(a.part);
        k.flat = &a.state[p.row].best;
        k.sums = a.sums + p.row * a.sections * SUM_BINS;
        k.heads = a.heads + p.row * a.sections;
    }
    __syncthreads();
    part_sums(&k, p.first, p.end);
}

/* A block reads one part of one row. Whoever completes a row finishes it; nobody waits, but those of its team. */
template <class type> __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS_PER_SM) sample_kernel(const __grid_constant__ sample_args a) {
#if __CUDA_ARCH__ < 900
    if (type::TEAMED) return; /* never launched */
#endif
    __shared__ kernel_work<type> k;
    __shared__ bool last;
    if (part_make(a).row >= a.rows) return;
    team_begin<type>(k);
    previous_wait();
    if constexpr (type::INDEXED)
        if (draw_follows<type>(a, part_make(a).row)) return;
    const bool nan = part_read<type>(a, &k);
    next_start();
    if constexpr (type::SUMS) {
        if (k.may_sum && !nan) part_look(a, k);
    }
    if (threadIdx.x == 0) {
        const block_part p = part_make(a);
        row_state *state = a.state + p.row;
        if (type::TEAMED && p.first >= p.end) last = false; /* the last blocks of a team may have nothing to read */
        else last = row_arrive(state, &k, p.end - p.first, nan);
        if (last && (k.to.greedy || !k.valid)) { /* one thread is enough to finish */
            const uint64_t most = __ldcg(&state->best);
            if (k.valid) row_report(a, k, p.row, key_token(most), key_logit(most));
            else row_report(a, k, p.row, RULE_NO_TOKEN, __int_as_float(0x7fffffff));
            if constexpr (type::INDEXED)
                for (int64_t next = p.row + 1; k.valid && draw_follows<type>(a, next); ++next)
                    row_report(a, k, next, key_token(most), key_logit(most));
            if constexpr (type::REQUESTED) k.told.token = k.valid && key_logit(most) > MINUS_INF ? key_token(most) : RULE_NO_TOKEN;
        }
    }
    if (k.to.greedy || !k.valid) {
        if constexpr (type::REQUESTED) {
            __syncthreads();
            if (last && a.has_report) report_only(k.report, part_make(a).row, a.vocab, k.told.token, k.told.token);
        }
        return;
    }
    if (threadIdx.x == WARP) job_prepare(&k);
    if constexpr (type::INDEXED)
        if (threadIdx.x == 2 * WARP) {
            k.state = MASS_NONE;
            k.followed = draw_follows<type>(a, part_make(a).row + 1);
            k.asks = k.followed ? ASKS_TOKEN | ASKS_KEPT : ASKS_TOKEN;
        }
    if constexpr (type::REQUESTED)
        if (threadIdx.x == 2 * WARP) k.asks = ASKS_TOKEN | ASKS_KEPT;
    __syncthreads();
    team_ready<type>(k);
    if (!last) {
        if (type::TEAMED) team_serve<type>(&k);
        return;
    }
    float most;
    const int32_t token = row_draw(k, &most);
    if (threadIdx.x == 0) row_report(a, k, part_make(a).row, token, most);
    team_dismiss<type>(k);
    if constexpr (type::INDEXED)
        if (k.followed) rows_follow(a, &k, part_make(a).row, most);
    if constexpr (type::REQUESTED) {
        if (!a.has_report) return;
        __shared__ view v;
        if (threadIdx.x == 0) {
            k.told.token = most > MINUS_INF ? token : RULE_NO_TOKEN;
            k.told.row_flags = most > MINUS_INF ? 0 : RULE_ROW_EMPTY;
            k.best = most;
        }
        __syncthreads();
        report_tell(&k, &v, part_make(a).row);
    }
}

#endif
