/* kernel.cuh - the kernel of raffle_sample. */
#ifndef RAFFLE_CUDA_KERNEL_CUH
#define RAFFLE_CUDA_KERNEL_CUH

#include "report.cuh"
#include "slot.cuh"
#if CUT_MORE
#include "edit.cuh"
#include "more.cuh"
#endif

/* What a kernel keeps of its row in shared memory. */
#if CUT_MORE
template <class type> using kernel_work = more_work<type>;
#else
template <class type> using kernel_work = work<type>;
#endif

/* 64 registers a thread: while one block finishes a row, which is a chain of waits, three others read. */
enum { BLOCKS_PER_SM = 4 };

/* What the blocks of a row tell each other beside records. */
struct row_state {
    uint64_t best;       /* greedy rows: token_key of the best token; others: groups in parts that are flat and have sums */
    uint32_t done;       /* groups read so far, and NAN_SEEN for each block that has seen a NaN */
};
enum : uint32_t { NAN_SEEN = 1u << 16 }; /* a row has fewer groups */
static_assert(RAFFLE_VOCAB_MAX / GROUP < NAN_SEEN && RAFFLE_VOCAB_MAX / GROUP <= UINT32_MAX / NAN_SEEN, "both fit");

/* Everything a launch needs, passed by value. Pointers are device memory; layouts as in raffle.h. */
struct sample_args {
    const char *logits;
    int64_t rows, row_stride, vocab, slots;
    int32_t groups;
    int32_t part; /* groups a block reads */
    const int32_t *slot;
    const float *temperature, *top_p, *min_p;
    const int32_t *top_k;
    const uint64_t *seed, *position;
    uint64_t seed_offset, position_offset;
    const uint32_t *allow;
    int64_t allow_stride;
    uint32_t flags, draft_step;
    int32_t empty_token;
    int32_t *token;
    uint32_t *row_flags;
    uint64_t *advance;
    /* workspace */
    float *peak;        /* [rows, groups * PIECES] */
    uint64_t *mass;     /* [rows, groups] */
    row_state *state;   /* [rows] 0 between calls */
    uint64_t *sums;     /* [rows, sections, SUM_BINS] of calls of a kernel whose type has SUMS: see sums.cuh */
    int32_t *heads;     /* [rows, sections] */
    int32_t sections;   /* of a row, 0 if they have no sums */
    bool about;         /* rows without filters are estimated first, if their type is ABOUT */
    /* kernels of requested<type> only */
    const raffle_extra *extra; /* [slots] or NULL */
    slot_pool pool;            /* memory NULL: none */
    uint32_t *mask, *patch;    /* [rows, groups * GROUP_WORDS], [rows, groups * PATCH_WORDS] of plans with RAFFLE_PLAN_EXTRA: see edit.cuh */
    float *overlay;            /* [rows, groups * GROUP] */
    raffle_report report;      /* if has_report */
    bool has_report;
    /* workspace of plans with a report */
    uint64_t *shown_mass; /* [rows, groups] */
    float *shown_peak;    /* [rows, groups * PIECES] */
    /* kernels of requested<type> and indexed<type> only */
    const int32_t *row_index; /* [rows] or NULL: rows of the logits, of which there are data_rows */
    int64_t data_rows;
    struct verdict *verdicts; /* [rows] of decide_kernel, in place of tokens */
};
typedef void (*sample_function)(sample_args);
extern const sample_function sample_requested[3]; /* by dtype, extra.cu */
extern const sample_function decide_kernels[3], decide_probs[3]; /* by dtype, write_decided.cu and write_probs.cu */
extern const sample_function sample_indexed[2][3]; /* of logits and of probabilities, by dtype: indexed.cu */
extern const sample_function sample_teamed[2][3];  /* the same: teams.cu */
#define SAMPLE_KERNELS(kind)                                                                                           \
    {{sample_kernel<kind<type_f32>>, sample_kernel<kind<type_f16>>, sample_kernel<kind<type_bf16>>},                   \
     {sample_kernel<kind<type_probs<type_f32>>>, sample_kernel<kind<type_probs<type_f16>>>, sample_kernel<kind<type_probs<type_bf16>>>}}

/* Which row of the logits a result is of; -1: there is no such row. */
__device__ __forceinline__ int64_t row_source(const sample_args &a, int64_t row) {
    if (!a.row_index) return row;
    const int64_t from = a.row_index[row];
    return from >= 0 && from < a.data_rows ? from : -1;
}

template <class type> __device__ __forceinline__ device_row row_make(const sample_args &a, int64_t row) {
    device_row r;
    const int64_t from = CUT_MORE || type::INDEXED ? max(row_source(a, row), (int64_t)0) : row; /* loads may be asked for too early */
    r.logits = a.logits + from * a.row_stride * type::BYTES;
    r.allow = a.allow ? a.allow + row * a.allow_stride : nullptr;
    r.vocab = a.vocab;
    r.aligned = (uintptr_t)r.logits % 16 == 0;
#if CUT_MORE
    r.patch = nullptr;
#endif
    return r;
}

/* What the first reading of a row has to leave behind; where, is up to the caller. */
template <class type> __device__ __forceinline__ records records_make(const row_params &p) {
    const rules r = rules_make(&p);
    const bool filters = r.top_k || r.top_p || r.min_p_first || r.min_p_last || r.shape || r.typical || r.late;
    records to = {};
    to.greedy = r.greedy;
    to.weights = !r.greedy && (!filters || r.row_mass);
    if (to.weights) to.by = scale_make(filters ? r.filter_temperature : p.temperature);
    to.weights = to.weights && (type::LINEAR || !to.by.flat);
    to.pieces = filters || !to.weights;
    return to;
}

#if CUT_MORE
/* Shows a row the edits that its record asks for, which are, or will be, in the workspace. */
template <class args> __device__ __forceinline__ void row_edits(const args &a, int64_t row, const raffle_extra &e, device_row *logits) {
    if (e.allowed_count) logits->allow = a.mask + row * a.groups * GROUP_WORDS;
    if (extra_touches(e)) logits->patch = a.patch + row * a.groups * PATCH_WORDS;
    logits->overlay = a.overlay + row * a.groups * GROUP;
}

/* Looks up what the row's request asks for; `slot` below 0: nothing. Done by one warp. part_edit (edit.cuh) checks it. */
template <class args>
__device__ __forceinline__ void request_read(const args &a, const raffle_extra *extra, const slot_pool &pool, int64_t row, int64_t slot,
                                             device_row *logits, row_request *q) {
    const int lane = threadIdx.x % WARP;
    const uint32_t *from = extra && slot >= 0 ? (const uint32_t *)(extra + slot) : nullptr;
    slot_said said = {};
    if (pool.memory && slot >= 0) said = slot_read(&pool, slot); /* now, not after another wait */
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < (int)(sizeof q->extra / 4); i += WARP) {
        const uint32_t word = from && i + lane < (int)(sizeof q->extra / 4) ? from[i + lane] : 0;
        if (i + lane < (int)(sizeof q->extra / 4)) ((uint32_t *)&q->extra)[i + lane] = word;
        any |= word;
    }
    const bool asks = __any_sync(ALL_LANES, any != 0);
    if (lane == 0) {
        q->prepares = asks;
        q->said.row_flags = 0;
    }
    __syncwarp();
    if (!asks) return; /* as most do: the row is one like others */
    const raffle_extra &e = q->extra;
    const bool looks_back = extra_history_user(&e) != nullptr;
    if (!looks_back) said.row_flags = 0;
    if (lane == 0) {
        q->said = said;
        q->lost = looks_back && !pool.memory;
        q->allow = logits->allow;
        q->mask = a.mask + row * a.groups * GROUP_WORDS;
        q->patch = a.patch + row * a.groups * PATCH_WORDS;
        q->overlay = a.overlay + row * a.groups * GROUP;
        q->near = false;
    }
    row_edits(a, row, e, logits);
}
#endif

/* Looks up a slot's parameters; false: one of them is out of range. */
template <class type> __device__ __forceinline__ bool params_read(const sample_args &a, int64_t slot, row_params *p) {
    p->temperature = type::LINEAR ? LINEAR_TEMPERATURE : a.temperature ? a.temperature[slot] : 1.0f;
    p->top_p = a.top_p ? a.top_p[slot] : 1.0f;
    p->min_p = a.min_p ? a.min_p[slot] : 0.0f;
    p->top_k = a.top_k ? a.top_k[slot] : 0;
    const bool known = !(CUT_MORE || type::INDEXED); /* that there are any: kernels that write rows need no chance */
    p->seed = a.seed_offset + (known || a.seed ? a.seed[slot] : 0);
    p->position = a.position_offset + (known || a.position ? a.position[slot] : 0);
    p->draft_step = a.draft_step;
    p->flags = a.flags;
    p->vocab = a.vocab;
    return (type::LINEAR || p->temperature >= 0.0f) && p->top_p == p->top_p && p->min_p == p->min_p;
}

/* Looks up a row's parameters and decides what its first reading has to leave behind. Done by one warp. */
template <class type> __device__ __forceinline__ void job_read(const sample_args &a, int64_t row, device_row logits, work<type> *k) {
    const int64_t slot = a.slot ? a.slot[row] : row;
    row_params p = {};
    const bool known = slot >= 0 && slot < a.slots;
    bool valid = known;
    if (known) valid = params_read<type>(a, slot, &p);
    if (CUT_MORE || type::INDEXED) valid = valid && row_source(a, row) >= 0;
#if CUT_MORE
    request_read(a, a.extra, a.pool, row, known ? slot : -1, &logits, &k->request);
    const row_filters more = ROW_FILTERS(&k->request.extra);
    p.more = more;
    p.flags |= k->request.extra.flags;
#endif
    records to = records_make<type>(p);
#if CUT_MORE
    if (!to.pieces) p.more.keep_least = 0; /* no filter to keep tokens from, and no maxima of pieces */
#endif
    to.peak = a.peak + row * a.groups * PIECES;
    to.mass = a.mass + row * a.groups;
    if constexpr (type::ABOUT) to.about = a.about && to.weights && !to.pieces && row_plain(logits);
    if constexpr (type::REQUESTED) {
        if (threadIdx.x == 0) {
            k->also = k->apart = false;
            k->top_first = 0;
        }
        if (a.has_report)
            report_expect(a.report, p, logits, &to, a.shown_mass + row * a.groups, a.shown_peak + row * a.groups * PIECES, k);
    }
    if constexpr (type::SUMS) {
        bool wanted = to.weights && to.pieces;
        if (wanted) {
            const bool usual = a.groups <= QUICK_GROUPS && !(p.flags & RULE_FILTERS_FIRST);
            wanted = a.sections && p.top_k <= 0 && !(p.min_p > 0.0f) && usual && valid && row_plain(logits);
            if (threadIdx.x == 0) k->spread = 0;
        }
        if (threadIdx.x == 0) k->may_sum = wanted;
    }
    if (threadIdx.x == 0) {
        k->valid = valid;
        k->row = logits;
        k->params = p;
        k->groups = a.groups;
        k->to = to;
    }
}

/* ---- finishing a row ------------------------------------------------------------------------------- */

/* The rows that fast.cuh and wide.cuh do not finish: any row with any parameters. */
template <class type> static __device__ __noinline__ int32_t row_finish(work<type> *k) {
    __builtin_assume(__isShared(k));
    const answer told = row_answer(static_cast<kernel_work<type> *>(k), &k->params, k->row_best);
    if constexpr (type::TOLD)
        if (threadIdx.x == 0) k->told = told;
    return told.token;
}

/* Draws from a row that is not greedy and whose groups have all been read. Gives its largest logit, too. By all threads. */
template <class type> __device__ __forceinline__ int32_t row_draw(work<type> &k, float *most) {
    int32_t token;
    bool done = false;
    if (fast_suits(k)) {
        done = fast_finish(k, most, &token);
        if (!done && !top_k_exact(k)) {
            __syncthreads();
            done = wide_finish(&k, *most);
            token = k.q.token;
        }
    }
    if (!done) {
        __syncthreads();
        k.begin();
        token = row_finish(&k);
        *most = k.row_best;
    }
    return token;
}

/* The best token that the warps of a block have found, of a greedy row. */
__device__ __forceinline__ uint64_t block_best(const row_job &k) {
    uint64_t best = 0;
    for (int i = 0; i < BLOCK_WARPS; ++i) best = max(best, k.best_of_warp[i]);
    return best;
}

/* Tells that `count` groups of a row are read, and what the block has found, by one thread. Returns whether they were the last. */
__device__ __forceinline__ bool row_arrive(row_state *state, row_job *k, int count, bool nan) {
    if (k->to.greedy) atomicMax((unsigned long long *)&state->best, (unsigned long long)block_best(*k));
    const uint32_t more = (uint32_t)count + (nan ? NAN_SEEN : 0), all = count_arrived(&state->done, more) + more;
    k->nan = all >= NAN_SEEN;
    return all % NAN_SEEN == (uint32_t)k->groups;
}

/* The flags of a row that is finished, by one thread (a best of NaN: the parameters are wrong). */
__device__ __forceinline__ uint32_t row_flags_of(const row_job &k, float best) {
    uint32_t flags = flags_of(best, k.nan);
#if CUT_MORE
    flags |= k.request.said.row_flags;
#endif
    return best != best ? RAFFLE_ROW_ARGUMENT : flags;
}

/* Makes a row's state ready for the next call. */
__device__ __forceinline__ void row_close(const sample_args &a, int64_t row) { a.state[row] = {0, 0}; }

/* Writes a row's answer, by one thread. */
__device__ __forceinline__ void row_report(const sample_args &a, const row_job &k, int64_t row, int32_t token, float best) {
    const uint32_t flags = row_flags_of(k, best);
    int32_t empty_token = a.empty_token;
#if CUT_MORE
    if (k.params.flags & RAFFLE_EMPTY_IS_ZERO) empty_token = 0;
#endif
    a.token[row] = best == MINUS_INF ? empty_token : token;
    if (a.row_flags) a.row_flags[row] = flags;
    if (a.advance) { /* every block that reads of this row has read its position, and no other row does */
        const int64_t slot = a.slot ? a.slot[row] : row;
        if (slot >= 0 && slot < a.slots) a.advance[slot]++;
    }
    row_close(a, row);
}

/* ---- results that share a row ------------------------------------------------------------------------ */

/* Whether a result is drawn from the row of the result before it, with the same parameters: whoever draws that draws this, too. */
template <class type> __device__ __forceinline__ bool draw_follows(const sample_args &a, int64_t row) {
    if (!a.row_index || a.allow || row == 0 || row >= a.rows || a.row_index[row] != a.row_index[row - 1]) return false;
    const int64_t slot = a.slot ? a.slot[row] : row, before = a.slot ? a.slot[row - 1] : row - 1;
    row_params p, q;
    if (row_source(a, row) < 0 || slot < 0 || slot >= a.slots || before < 0 || before >= a.slots) return false;
    if (!params_read<type>(a, slot, &p) || !params_read<type>(a, before, &q)) return false;
    return p.temperature == q.temperature && p.top_p == q.top_p && p.min_p == q.min_p && p.top_k == q.top_k;
}

/* The token that is drawn from a row, by one warp: what chance says of it is in `bits`. mass_of(g): what group g holds; ref_of(g): how
 * its tokens are weighed; weigh(x, f): one of them. */
template <class type, class masses, class references, class function>
__device__ __forceinline__ int32_t warp_draw(const work<type> &k, cut c, const philox_pair &bits, masses mass_of, references ref_of,
                                             function weigh) {
    const bool whole = k.told.whole; /* groups are cut into tickets as a whole, not token by token */
    const uint64_t ticket = mul_high(bits.low, k.told.draw_tickets);
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
    if (whole) left = weight_of(left, r.below);
#pragma unroll 1
    for (int j = 0; j < LANE_TOKENS; ++j) {
        const uint32_t weight = weigh(x[0], r.ref);
        const bool keeps = cut_keeps(c, x[0], g * (int64_t)GROUP + j * WARP + lane);
        const uint64_t held = whole ? weight : keeps ? group_tickets(&r, weight) : 0, through = warp_through(held);
        before = through - held;
        const uint32_t winner = __ballot_sync(ALL_LANES, left >= before && left - before < held);
        if (winner) return g * GROUP + j * WARP + __ffs(winner) - 1;
        left -= __shfl_sync(ALL_LANES, through, WARP - 1);
#pragma unroll
        for (int i = 1; i < LANE_TOKENS; ++i) x[i - 1] = x[i]; /* an index that changes would put them onto the stack */
    }
    return RULE_NO_TOKEN;
}

/* Leaves in q.mass what each group keeps of a row that fast.cuh or wide.cuh has finished, whose maxima q.peak has. By all threads. */
template <class type> __device__ __forceinline__ void masses_find(work<type> &k, const fast_scale<type::LINEAR> &s, cut c) {
    quick &q = k.q;
    if (k.told.whole) {
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

/* Draws the results that follow `row`, which is drawn and was not greedy; each by a warp. By all threads. */
template <class type> static __device__ __noinline__ void rows_follow(const sample_args &a, work<type> *shared_k, int64_t row, float most) {
    __builtin_assume(__isShared(shared_k));
    work<type> &k = *shared_k;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    __syncthreads();
    const bool near = k.state == MASS_NONE || k.state == MASS_QUICK, whole = k.told.whole, some = most > MINUS_INF;
    const weighing draw = weighing_make(k.params.temperature, most);
    const cut c = cut_of(&k.told);
    fast_scale<type::LINEAR> s;
    fast_scale_make(k.by, most, &s);
    if (near) masses_find(k, s, c);
    else if (some) whole ? k.weigh(&draw) : k.weigh_kept(&draw, c);
    __syncthreads();
#pragma unroll 1
    for (int64_t next = row + 1;; next += BLOCK_WARPS) { /* as many at once as there are warps */
        const bool follows = lane < BLOCK_WARPS && draw_follows<type>(a, next + lane);
        const int following = __ffs(~__ballot_sync(ALL_LANES, follows)) - 1;
        if (warp >= following) return;
        const int64_t own = next + warp;
        row_params p;
        params_read<type>(a, a.slot ? a.slot[own] : own, &p);
        const philox_pair bits = draw_bits(&p);
        int32_t token = RULE_NO_TOKEN;
        if (near)
            token = warp_draw<type>(k, c, bits, [&](int g) { return k.q.mass[g]; },
                                    [&](int g) { return group_ref_near(s, k.q.peak[g]); },
                                    [](float x, const ref &f) { return weigh_usual<type::LINEAR>(x, f); });
        else if (some)
            token = warp_draw<type>(k, c, bits, [&](int g) { return k.mass_of(g); },
                                    [&](int g) { return group_ref_any(&draw, k.peak_of(g)); },
                                    [](float x, const ref &f) { return weigh_one(x, f); });
        __syncwarp();
        if (lane == 0) row_report(a, k, own, token, most);
        if (following < BLOCK_WARPS) return;
    }
}

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
        }
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

/* ---- the grid, on the host --------------------------------------------------------------------------- */

/* Blocks per row: so many that no multiprocessor has more to do than another, two or three on each where there is enough for
 * them. One alone does not hide its waits, many get into each other's way at the end, and each costs as much as reading a few
 * groups (dev/cuda has the figures that this follows). */
enum { BLOCK_COST = 18 }; /* groups */
enum { PARTS_TRIED = 4 * BLOCKS_PER_SM }; /* blocks on a multiprocessor; for more rows than so many on each, a row has one */
static inline uint32_t parts_choose(int64_t rows, int64_t groups, int processors) {
    const int64_t most = (groups + BLOCK_WARPS - 1) / BLOCK_WARPS;
    int64_t best = 1;
    double least = 1e30;
    for (int64_t tried = 1; tried <= PARTS_TRIED; ++tried) {
        int64_t parts = tried * processors / rows;
        if (parts < 1) continue;
        if (parts > most) parts = most;
        const int64_t blocks = (parts * rows + processors - 1) / processors, part = (groups + parts - 1) / parts;
        const double alone = blocks == 1 ? 1.2 : blocks < BLOCKS_PER_SM ? 1.0 + 0.02 * (double)(blocks - 2) : (blocks == BLOCKS_PER_SM ? 1.05 : 1.1 + 0.005 * (double)(blocks - 4));
        const double cost = (double)(blocks * (part + BLOCK_COST)) * alone;
        if (cost < least) best = parts, least = cost;
    }
    return (uint32_t)best;
}

/* How the blocks of rows that have teams (team.cuh) are laid out. */
struct team_shape {
    int team;      /* blocks of a cluster; 1: there are no teams */
    int32_t parts; /* of a row at most; clusters are whole, so the last blocks may have nothing to read */
    int each;      /* blocks that a multiprocessor takes at once; 0: as many as it has to */
};
static const team_shape NO_TEAMS = {1, 0, 0};
enum { TEAM_LEAST = 6, TEAM_EACH = 2 };
/* Clusters of `team` blocks that a GPU holds at once where a multiprocessor takes TEAM_EACH blocks. */
struct team_room {
    int clusters[TEAM + 1];
};

/* The shape for rows that are neither short nor very long, by what was measured (dev/cuda): clusters find places worse than blocks do,
 * and rows of which few tokens stay wait for that. So as long as each block of a cluster can have a multiprocessor of its own, and a
 * quarter of these stay free, all rows have teams; more rows if the call has a top-p alone, which is what leaves many tokens, and if
 * clusters fill the GPU once: the largest that nearly do, or else those that do most. */
static inline team_shape team_choose(int64_t rows, int32_t groups, bool top_p_alone, int processors, const team_room &room) {
    enum { FEW_PARTS = 16, GROUPS = 256, PART = 2 * BLOCK_WARPS };
    team_shape best = NO_TEAMS;
    if (groups < GROUPS || groups > QUICK_GROUPS) return best;
    const int32_t few = (int32_t)(processors * 3 / 4 / rows) / TEAM * TEAM;
    if (few >= FEW_PARTS) {
        const int32_t parts = (int32_t)parts_choose(rows, groups, processors);
        return {TEAM, parts < few ? parts : few, 0};
    }
    for (int team = TEAM; top_p_alone && team >= TEAM_LEAST; --team) {
        int32_t clusters = (int32_t)(room.clusters[team] / rows);
        if (clusters * team > groups / PART) clusters = groups / PART / team;
        if (clusters * team > best.parts) best = {team, clusters * team, TEAM_EACH};
        if (10 * rows * clusters * team >= 7 * TEAM_EACH * processors) break;
    }
    return best;
}

/* The grid of a batch for part_make, of which `read` rows are read, and the groups that a block reads: `most` at most, and whole
 * sections (sums.cuh). */
static inline dim3 parts_grid(int64_t rows, int64_t read, int32_t groups, int32_t most, int processors, const team_shape &shape,
                              int32_t *part) {
    enum { HIGH = 65535 }; /* most rows along the second side of a grid */
    static_assert(EDIT_GROUPS % SECTION == 0, "parts of edited rows stay within their limit");
    int32_t parts = shape.team > 1 ? shape.parts : (int32_t)parts_choose(read, groups, processors);
    const unsigned deep = (unsigned)((rows + HIGH - 1) / HIGH);
    *part = (groups + parts - 1) / parts;
    if (*part > most) *part = most;
    *part = (*part + SECTION - 1) / SECTION * section_of(*part);
    parts = (groups + *part - 1) / *part;
    parts = (parts + shape.team - 1) / shape.team * shape.team;
    return dim3((unsigned)parts, (unsigned)((rows + deep - 1) / deep), deep);
}
#endif
