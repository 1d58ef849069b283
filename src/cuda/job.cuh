/* job.cuh - what a launch of raffle_sample is given, what is looked up of a row before it is read, and how its answer is written. */
#ifndef RAFFLE_CUDA_JOB_CUH
#define RAFFLE_CUDA_JOB_CUH

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
    bool about;         /* rows that are drawn from as a whole are estimated first, if their type is ABOUT */
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
    /* Most rows that propose (r.proposes knows all; here it would put registers onto the stack, as comparing floats does): where nobody asks what
     * stays, groups are looked at as a whole. */
    static_assert(PROPOSE_FROM == 0.5f, "the exponent says that top_p is from there to 1");
    const bool half = bits_of(p.top_p) >> 23 == 126, alone = p.top_k <= 0 && !(p.min_p > 0.0f) && !(p.flags & RULE_FILTERS_FIRST);
    records to = {};
    to.greedy = r.greedy;
    to.weights = !r.greedy && (!filters || r.row_mass);
    if (to.weights) to.by = scale_make(filters ? r.filter_temperature : p.temperature);
    to.weights = to.weights && (type::LINEAR || !to.by.flat);
    to.pieces = (filters && (type::TOLD || !(alone && half))) || !to.weights;
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
    const answer told = row_answer(static_cast<kernel_work<type> *>(k), &k->params, k->row_best, asks_of(*k));
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

#endif
