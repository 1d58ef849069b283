/* verify.cuh - raffle_verify on the GPU, by one or two kernels. The first (verify_rows.cuh) samples every row and leaves its law and
 * the tickets of the drafts that follow it; whoever completes the last row of a request walks it (verify_walk.cuh), by these
 * numbers alone. The second (verify_left.cuh) has to do only where a token is recovered that these, and lists of rows with few tokens
 * (verify_kept.cuh), do not tell: all its blocks share the rows that must be read again for that. Here is what both know: arguments,
 * requests, tickets. */
#ifndef RAFFLE_CUDA_VERIFY_CUH
#define RAFFLE_CUDA_VERIFY_CUH

#include "kernel.cuh"

#include "accept.h"

/* What the first kernel leaves of a row: what a walk looks at, */
struct law_head {
    uint64_t mass;
    int32_t token; /* as raffle_sample returns it */
    uint32_t flags;
    bool valid, greedy, empty, whole, pieces;
    bool about; /* the mass is an estimate, as are those of groups */
    bool owed;  /* the token was not drawn: mostly a draft takes its place */
    uint8_t listed; /* entries of the row's kept_list; 0: it has none */
};
/* and how tickets of its tokens are counted, of rows that are drawn from. */
struct row_law : law_head {
    weighing by;
    cut kept;
};

/* The tokens of a row with few candidates (fast_few), by id: what they hold of it. Those that the filters have cut hold nothing. */
struct alignas(16) kept_list {
    uint64_t tickets[FEW];
    int32_t id[FEW];
};
static_assert(FEW <= UINT8_MAX, "law_head::listed");

/* A position at which a token may be recovered: what the second kernel has to read. Those of a request are side by side. */
struct left_item {
    int64_t request, slot, first; /* of its drafts */
    uint64_t seed, position;
    int32_t drafts;
    int32_t node;        /* the draft before the position */
    int32_t depth;       /* drafts on the way to it */
    int32_t before, all; /* items of the request before this one, and in all */
    uint32_t flags;
    uint64_t weight;           /* block verification: of the drafts so far; else 0 */
    uint64_t total_t, total_s; /* block verification: what is left over, summed up */
    uint64_t done;             /* groups that are summed up, of all items of the request: in the first of them; of proposals, blocks */
    uint32_t found;            /* of proposals: the first that says something, as found_key has it */
    bool plain;                /* the row's own token is drawn, which is owed */
    bool kept;                 /* nothing is proposed: the target's row has a kept_list, the draft's has none */
};

enum : uint32_t { FOUND_NOTHING = ~0u };

/* The counter of a request: groups of its rows that are done with, and whether its target rows are greedy. */
enum : uint64_t { REQUEST_GREEDY = 1ull << 62, REQUEST_WALKED = ~0ull };

/* What blocks tell whoever walks a request of greedy target rows: row_state::done of these, whose groups the request counts. */
enum : uint32_t { GREEDY_NAN = 1, GREEDY_WRONG = 2 };

/* How many items there are, and how many are done with: rows to be read again, from the first on, and those from the last on of which
 * tokens are proposed, or that have a kept_list. 0 between calls. */
struct left_queue {
    uint32_t listed, finished, proposing, proposed;
};

/* Which row of its request an emitted token came from, for a report; -1: there is none. */
struct told_entry {
    int32_t row, token;
};

/* The parameters of target or draft rows: raffle_params on the device. */
struct param_arrays {
    int64_t slots;
    const int32_t *slot;
    const float *temperature, *top_p, *min_p;
    const int32_t *top_k;
    const uint32_t *allow;
    int64_t allow_stride;
    uint32_t flags;
    /* kernels of requested calls only */
    const raffle_extra *extra; /* [slots] or NULL */
    slot_pool pool;            /* memory NULL: none */
};

/* So many rows, cut into so many parts of so many groups each (the last of a row may have fewer). */
struct row_parts {
    int64_t rows;
    int32_t parts, part;
};

/* Everything a launch needs, passed by value. Pointers are device memory; layouts as in raffle.h. */
struct verify_args {
    const char *logits, *draft_data; /* draft_data: logits, or probabilities (f32), or NULL: tokens alone */
    bool draft_probs;
    int64_t rows, row_stride, draft_rows, draft_stride, vocab, requests, each;
    int32_t groups, method;
    int32_t part; /* kernels of requested calls: groups of a row that a block of the first kernel reads; */
    row_parts large, small; /* others: of the first rows, and of all behind them; */
    uint32_t ahead;         /* blocks of the small ones that come before the large */
    param_arrays target, draft;
    const uint64_t *seed, *position;
    const int32_t *first, *token, *parent;
    float threshold_single, threshold_sum, rate;
    const uint64_t *accept_bits, *recover_bits, *draw_bits;
    int32_t empty_token;
    bool about; /* rows without filters are estimated first, if their type is ABOUT */
    int32_t *out, *accepted, *last, *path;
    uint32_t *row_flags;
    /* workspace; draft rows are behind target rows */
    float *peak;         /* [rows, groups * PIECES] */
    uint64_t *mass;      /* [rows, groups] the second kernel: what is left over */
    row_state *state;    /* [rows] 0 between calls */
    uint64_t *arrived;   /* [requests] groups of rows that have left their law, then REQUEST_WALKED if there are offsets; 0 between calls */
    law_head *head;      /* [rows] */
    row_law *law;        /* [rows] but greedy ones of the target */
    kept_list *kept;     /* [rows] of those that are listed */
    left_queue *queue;
    left_item *left;     /* [draft rows] */
    uint64_t *tickets_t; /* [draft rows] of each draft in its target row, */
    uint64_t *tickets_s; /* and in its own */
    /* kernels of requested calls only: see sample_args */
    uint32_t *mask, *patch;
    float *overlay;
    raffle_report report;
    bool has_report;
    uint64_t *shown_mass;
    float *shown_peak;
    told_entry *told; /* [rows] */
};

/* Copies by half of the block's threads. */
template <class item> __device__ __forceinline__ void block_copy(item *to, const item *from) {
    static_assert(sizeof(item) % 4 == 0 && sizeof(item) / 4 <= BLOCK_THREADS / 2, "a word a thread");
    const int i = threadIdx.x % (BLOCK_THREADS / 2);
    if (i < (int)(sizeof(item) / 4)) ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

/* ---- a block's part ------------------------------------------------------------------------------------- */

__device__ __forceinline__ int64_t rows_of(const verify_args &a) { return a.rows + (a.draft_data ? a.draft_rows : 0); }

/* a / b, both not negative: in 32 bits if they have no more, which is four times as fast. */
__device__ __forceinline__ int64_t divided(int64_t a, int64_t b) {
    return (a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

#if !CUT_MORE
/* The part of a row that the block reads. In shared memory, and volatile: a compiler that knew it would keep it in registers. */
__device__ __forceinline__ volatile block_part &part_now() {
    __shared__ block_part now;
    return now;
}
__device__ __forceinline__ block_part part_make(const verify_args &) {
    const volatile block_part &now = part_now();
    block_part p;
    p.row = now.row;
    p.first = now.first;
    p.end = now.end;
    return p;
}

/* Finds it. Returns whether there is one. By all threads. */
__device__ __forceinline__ bool part_find(const verify_args &a) {
    volatile block_part &p = part_now();
    if (threadIdx.x == 0) {
        const uint32_t large = (uint32_t)(a.large.rows * a.large.parts);
        const uint32_t block = blockIdx.x - a.ahead; /* of the large, if it is one */
        const bool is_large = block < large;
        const row_parts by = is_large ? a.large : a.small;
        const uint32_t at = is_large ? block : blockIdx.x < a.ahead ? blockIdx.x : blockIdx.x - large, row = at / (uint32_t)by.parts;
        p.row = (is_large ? 0 : a.large.rows) + row;
        const int first = (int)(at - row * (uint32_t)by.parts) * by.part;
        p.first = first;
        p.end = min(first + by.part, a.groups);
    }
    __syncthreads();
    return p.first < p.end;
}
#endif

/* ---- where a row belongs ------------------------------------------------------------------------------ */

__device__ __forceinline__ int64_t first_of(const verify_args &a, int64_t r) { return a.first ? a.first[r] : r * a.each; }

/* The request of target row (more = 1) or draft (more = 0) number `index`: the last that begins at or before it. */
__device__ __forceinline__ int64_t request_of(const verify_args &a, int64_t index, int more) {
    if (!a.first) return divided(index, a.each + more);
    int64_t low = 0, high = a.requests; /* begins at or before, and does not */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (a.first[middle] + more * middle <= index) low = middle;
        else high = middle;
    }
    return low;
}

/* A request's drafts; false if the offsets are not those of this batch. */
__device__ __forceinline__ bool request_range(const verify_args &a, int64_t r, int64_t *first, int64_t *count) {
    *first = first_of(a, r);
    *count = first_of(a, r + 1) - *first;
    return *first >= 0 && *count >= 0 && *first + *count <= a.draft_rows;
}

/* Tokens on the way to draft `node`, itself included; -1 if the parents are no tree. */
__device__ __forceinline__ int depth_of(const int32_t *parent, int node) {
    if (!parent) return node + 1;
    int depth = 0;
    for (; node >= 0; ++depth) {
        const int before = parent[node];
        if (before >= node || before < -1) return -1;
        node = before;
    }
    return depth;
}

/* Whether draft i follows `node`. Parents come first: one that does not is none. */
__device__ __forceinline__ bool follows(const int32_t *parent, int i, int node) {
    return parent ? parent[i] == node && i > node : i == node + 1;
}

/* A request's parameters; false if there are none. `past`: past the first cache. */
__device__ __forceinline__ bool params_of(const param_arrays &a, int64_t request, int64_t vocab, row_params *p, bool past = false) {
    const auto read = [past](const auto *from, int64_t i) { return past ? __ldcg(from + i) : from[i]; };
    const int64_t slot = a.slot ? read(a.slot, request) : request;
    if (slot < 0 || slot >= a.slots) return false;
    p->temperature = a.temperature ? read(a.temperature, slot) : 1.0f;
    p->top_p = a.top_p ? read(a.top_p, slot) : 1.0f;
    p->min_p = a.min_p ? read(a.min_p, slot) : 0.0f;
    p->top_k = a.top_k ? read(a.top_k, slot) : 0;
    p->flags = a.flags;
    p->vocab = vocab;
    p->seed = p->position = 0;
    p->draft_step = 0;
    return p->temperature >= 0.0f && p->top_p == p->top_p && p->min_p == p->min_p;
}

/* Row `index`, draft rows being behind target rows. */
template <class type> __device__ __forceinline__ device_row row_make(const verify_args &a, int64_t index) {
    const bool draft = index >= a.rows;
    const int64_t row = draft ? index - a.rows : index;
    const param_arrays &p = draft ? a.draft : a.target;
    device_row r;
    r.logits = draft ? a.draft_data + row * a.draft_stride * type::BYTES : a.logits + row * a.row_stride * type::BYTES;
    r.allow = p.allow ? p.allow + row * p.allow_stride : nullptr;
    r.vocab = a.vocab;
    r.aligned = (uintptr_t)r.logits % 16 == 0;
#if CUT_MORE
    r.patch = nullptr;
#endif
    return r;
}

/* The same as the first kernel has judged it: with its edits. */
template <class type> __device__ __forceinline__ device_row row_judged(const verify_args &a, int64_t request, int64_t index) {
    device_row r = row_make<type>(a, index);
#if CUT_MORE
    const param_arrays &p = index >= a.rows ? a.draft : a.target;
    if (p.extra) row_edits(a, index, p.extra[p.slot ? p.slot[request] : request], &r);
#endif
    return r;
}

/* ---- a request on its way --------------------------------------------------------------------------------- */

/* The same in all threads that have to do with it. */
struct request_walk {
    int64_t request, slot, first, row_first;
    uint64_t seed, position; /* if the slot is one */
    int count;
    const int32_t *token, *parent;
    const law_head *law, *draft_law; /* [count + 1] of the rows, law[node + 1] being that behind draft `node`; [count] of drafts */
    const uint64_t *tickets_t, *tickets_s; /* [count] of drafts, in their target rows and in their own */
};

/* What other blocks of this kernel have written, past the first cache. */
__device__ __forceinline__ law_head head_fetch(const law_head *from) {
    static_assert(sizeof(law_head) == 24, "three words");
    law_head h;
    const uint64_t word[3] = {__ldcg((const uint64_t *)from), __ldcg((const uint64_t *)from + 1), __ldcg((const uint64_t *)from + 2)};
    memcpy(&h, word, sizeof h);
    return h;
}

/* The random bits by which a token is recovered behind `depth` drafts. */
__device__ __forceinline__ philox_pair recover_bits(const verify_args &a, const request_walk &w, int depth) {
    if (a.recover_bits) return {a.recover_bits[2 * w.request], a.recover_bits[2 * w.request + 1]};
    return philox_step(w.seed, w.position, STREAM_RECOVER, (uint32_t)depth);
}

/* ---- tickets ---------------------------------------------------------------------------------------------- */

/* The maximum of a group, out of its row's records. */
__device__ __forceinline__ float peak_at(const float *peak, const law_head &law, int g) {
    if (!law.pieces) return __ldcg(peak + g);
    const float4 p = __ldcg((const float4 *)peak + g);
    return fmaxf(fmaxf(p.x, p.y), fmaxf(p.z, p.w));
}
__device__ __forceinline__ float peak_of_group(const verify_args &a, int64_t index, const law_head &law, int g) {
    return peak_at(a.peak + index * a.groups * PIECES, law, g);
}

/* Whether a group with this maximum may have tickets. */
__device__ __forceinline__ bool may_hold(const row_law &law, float peak) { return peak >= law.kept.low && peak > MINUS_INF; }

/* Thread i: the tickets of the i-th token of group g. By all threads of the block. */
template <class type>
static __device__ __noinline__ uint64_t block_tickets(const device_row &row, const row_law &law, float peak, int g, block_space *space) {
    if (!may_hold(law, peak)) return 0;
    const group_ref r = group_ref_any(&law.by, peak);
    const int64_t id = g * (int64_t)GROUP + threadIdx.x;
    const float x = threadIdx.x < GROUP ? token_read<type>(row, id) : MINUS_INF;
    const uint32_t weight = x > MINUS_INF ? weigh_one(x, r.ref) : 0;
    if (law.whole && r.right) {
        const uint64_t before = block_before(weight, space), all = block_add(weight, space) >> r.right;
        return tickets_share(before, weight, r.right, all);
    }
    return law.whole || cut_keeps(law.kept, x, id) ? group_tickets(&r, weight) : 0;
}

/* How many tokens in a row a lane holds of a group: see group.cuh. */
template <class type> __device__ __forceinline__ int lane_run(const device_row &row, int g) {
    return !row.aligned || !group_whole(row, g) ? 1 : type::BYTES == 2 ? LANE_TOKENS : LANE_TOKENS / 2;
}

/* The tickets of a lane's tokens of group g, as lane_read has them; false if there are none. By all lanes of a warp. */
template <class type>
__device__ __forceinline__ bool warp_tickets(const device_row &row, const row_law &law, float peak, int g, uint64_t t[LANE_TOKENS]) {
    enum { NOTHING = 40 }; /* bits that the weights of a group have at most */
    if (!may_hold(law, peak)) return false;
    const int lane = threadIdx.x % WARP;
    const group_ref r = group_ref_any(&law.by, peak);
    if (r.right >= NOTHING) return false;
    float x[LANE_TOKENS];
    uint32_t weight[LANE_TOKENS];
    uint64_t sum = 0;
    lane_read<type>(row, g, lane, x);
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        weight[j] = x[j] > MINUS_INF ? weigh_one(x[j], r.ref) : 0;
        t[j] = law.whole || cut_keeps(law.kept, x[j], lane_id<type>(row, g, lane, j)) ? group_tickets(&r, weight[j]) : 0;
        sum += weight[j];
    }
    if (!law.whole || !r.right) return true;
    /* Several weights make a ticket: whose it is depends on the weights of all ids before. */
    const uint64_t all = group_sum(sum) >> r.right;
    const int run = lane_run<type>(row, g);
    uint64_t through = 0, before = 0;
#pragma unroll
    for (int j = 0; j < LANE_TOKENS; ++j) {
        if (j % run == 0) { /* a new run, behind those of all lanes so far */
            uint64_t own = 0;
            for (int i = j; i < LANE_TOKENS; ++i) own += i < j + run ? weight[i] : 0;
            through = warp_through(own);
            const uint64_t of_all = __shfl_sync(ALL_LANES, through, WARP - 1);
            through += before - own;
            before += of_all;
        }
        t[j] = tickets_share(through, weight[j], r.right, all);
        through += weight[j];
    }
    return true;
}

#endif
