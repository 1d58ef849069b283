/* state.cu - raffle_state in device memory: kernels that change slots, a block for a row, and their launches. A block refuses
 * its row before it writes anything; what it looks at for that, no block of the same call changes. */
#include "device.cuh"

#include "vec_one.h"

#include "slot.cuh"

enum {
    FEW_THREADS = 128,   /* a few tokens a row: more would only wait for each other */
    MANY_THREADS = 1024, /* prompts */
    COPY_THREADS = 256,
    COPY_BYTES = 32768,  /* of a slot that a block fills or copies */
    PARTS_MAX = 64       /* blocks for one slot */
};

struct change_args {
    slot_pool pool;
    int64_t rows, stride;
    const int32_t *slot, *token, *count, *first;
    uint32_t *row_flags;
    bool prompt; /* append_kernel: the tokens are a prompt */
};
typedef void (*change_kernel)(change_args);

/* ---- a row's slot, and its refusal ------------------------------------------------------------------- */

static __device__ __forceinline__ int64_t slot_at(const change_args &a, int64_t row) { return a.slot ? a.slot[row] : row; }
static __device__ __forceinline__ bool slot_exists(const change_args &a, int64_t slot) {
    return slot >= 0 && slot < a.pool.slots;
}

/* The end of a row: its flags, and if there are any, a note in the slot that should have changed. */
static __device__ __forceinline__ void row_tell(const change_args &a, int64_t row, history_head *head, uint32_t flags) {
    if (threadIdx.x) return;
    if (a.row_flags) a.row_flags[row] = flags;
    if (flags && head) atomicOr(&head->flags, (uint32_t)HISTORY_LOST);
}

/* Whether another row has the slot too. For all threads of a block, which meet here. */
static __device__ bool slot_twice(const change_args &a, int64_t row, int64_t slot) {
    bool twice = false;
    if (a.slot)
        for (int64_t i = threadIdx.x; i < a.rows; i += blockDim.x) twice |= i != row && a.slot[i] == slot;
    return __syncthreads_or(twice);
}

/* ---- entries, by all threads of a block -------------------------------------------------------------- */

struct count_space {
    uint32_t odd;  /* the first token that is not an id, * 2, + 1 if it may not be there */
    int32_t used;  /* entries so far */
    int32_t lost;  /* a token found no place: the slot was never cleared */
};

/* While a block counts, a place of the index may be claimed for a token whose entry has no number yet. */
static __device__ __forceinline__ int32_t claim_of(int32_t token) { return (int32_t)(0u - 2u - (uint32_t)token); }

enum place_kind { PLACE_ENTRY, PLACE_MINE, PLACE_CLAIMED, PLACE_NONE };
struct place {
    place_kind kind;
    uint32_t at;    /* in the index */
    int32_t number; /* PLACE_ENTRY: of the token's entry */
};

/* Looks a token up, and claims a free place for it if `claims`. Of many threads with one new token one gets PLACE_MINE, the
 * others PLACE_CLAIMED. The walk ends whatever is in memory: at a number that no entry has, or after one round. */
static __device__ place place_find(const history &h, int32_t token, int32_t used, bool claims) {
    place p = {PLACE_NONE, history_place(&h, token), 0};
    for (uint32_t left = h.index_mask + 1; left; --left) {
        int32_t there = *(volatile int32_t *)&h.index[p.at];
        if (there == INDEX_FREE && claims) {
            there = atomicCAS(&h.index[p.at], INDEX_FREE, claim_of(token));
            if (there == INDEX_FREE) p.kind = PLACE_MINE;
        }
        if (there == INDEX_FREE || there >= used) break;
        if (there == claim_of(token)) p.kind = PLACE_CLAIMED;
        else if (there >= 0 && entry_token(*(volatile uint64_t *)&h.entry[there]) == token) {
            p.kind = PLACE_ENTRY;
            p.number = there;
        }
        if (p.kind != PLACE_NONE) break;
        p.at = (p.at + 1) & h.index_mask;
    }
    return p;
}

static __device__ __forceinline__ void entry_add(const history &h, int32_t number, uint64_t what) {
    atomicAdd((unsigned long long *)&h.entry[number], (unsigned long long)what);
}

/* Counts tokens behind `used` entries, as many at once as the block has threads. A new token's entry is written before its
 * number is in the index, and a barrier lies between: until then only the claim can be seen. */
static __device__ void tokens_count(const history &h, const int32_t *token, int32_t count, int32_t prompt, int32_t used,
                                    count_space *space) {
    for (int32_t first = 0; first < count; first += (int32_t)blockDim.x) {
        const int32_t i = first + (int32_t)threadIdx.x;
        const uint64_t once = i < prompt ? ENTRY_PROMPT : ENTRY_OUTPUT;
        place p = {PLACE_NONE, 0, 0};
        if (i < count) {
            p = place_find(h, token[i], used, true);
            if (p.kind == PLACE_NONE) atomicOr(&space->lost, 1);
        }
        if (p.kind == PLACE_ENTRY) entry_add(h, p.number, once);
        if (p.kind == PLACE_MINE) {
            p.number = atomicAdd(&space->used, 1);
            if (p.number < h.entry_max) h.entry[p.number] = (uint64_t)token[i] + once;
            else p.number = INDEX_FREE, atomicOr(&space->lost, 1);
        }
        __syncthreads(); /* all claims are there, and their entries */
        if (p.kind == PLACE_MINE) h.index[p.at] = p.number;
        used = space->used;
        __syncthreads(); /* all numbers are */
        if (p.kind == PLACE_CLAIMED) {
            p.number = h.index[p.at];
            if (p.number >= 0 && p.number < used) entry_add(h, p.number, once);
        }
    }
}

/* Makes part `part` of `parts` of an index empty; it is a multiple of 16 places and of 64 bytes aligned. */
static __device__ void index_forget(const history &h, uint32_t part, uint32_t parts) {
    const int4 none = make_int4(INDEX_FREE, INDEX_FREE, INDEX_FREE, INDEX_FREE);
    int4 *const index = (int4 *)h.index;
    const uint32_t quads = (h.index_mask + 1) / 4;
    for (uint32_t i = part * blockDim.x + threadIdx.x; i < quads; i += parts * blockDim.x) index[i] = none;
}

/* ---- prompt and accept ------------------------------------------------------------------------------- */

static __device__ __forceinline__ const int32_t *tokens_at(const change_args &a, int64_t row) {
    return a.token + (a.first ? a.first[row] : row * a.stride);
}

/* How many tokens of a row there are, or the flags that refuse it: looks at no more than would fit. */
static __device__ uint32_t tokens_check(const change_args &a, int64_t row, int32_t room, count_space *space, int32_t *length) {
    const int32_t *const token = tokens_at(a, row);
    const int64_t most = a.first ? (int64_t)a.first[row + 1] - a.first[row] : a.stride, count = a.count ? a.count[row] : most;
    if (count < 0 || count > most || (a.first && a.first[row] < 0)) return RAFFLE_ROW_ARGUMENT;
    const int32_t look = count <= room ? (int32_t)count : room + 1;
    for (int32_t i = (int32_t)threadIdx.x; i < look; i += (int32_t)blockDim.x) {
        if (token[i] >= 0 && token[i] < a.pool.vocab) continue;
        atomicMin(&space->odd, (uint32_t)i * 2 + (a.prompt || token[i] != RAFFLE_NO_TOKEN));
        break;
    }
    __syncthreads();
    *length = min(look, (int32_t)(space->odd / 2));
    if (*length < look && space->odd % 2) return RAFFLE_ROW_ARGUMENT;
    return *length > room ? RAFFLE_ROW_STATE : 0;
}

static __global__ void __launch_bounds__(MANY_THREADS, 1) append_kernel(change_args a) {
    __shared__ count_space space;
    const int64_t row = blockIdx.x, slot = slot_at(a, row);
    if (!slot_exists(a, slot)) return row_tell(a, row, NULL, RAFFLE_ROW_ARGUMENT);
    const history h = slot_parts(&a.pool, slot);
    history_head head = {};
    if (!a.prompt) head = *h.head;
    if (!threadIdx.x) space.odd = ~0u;
    int32_t length = 0;
    uint32_t flags = slot_twice(a, row, slot) ? RAFFLE_ROW_ARGUMENT : head_sound(&head, &a.pool) ? 0 : RAFFLE_ROW_STATE;
    if (!flags) flags = tokens_check(a, row, a.pool.history_max - head.length, &space, &length);
    if (flags) return row_tell(a, row, h.head, flags);
    /* There may be no room for so many more entries, because tokens that were taken back have left some: then all is
     * counted anew. Entries for the whole vocabulary are always enough. */
    const bool anew = a.prompt || (h.entry_max < a.pool.vocab && head.entries + length > h.entry_max);
    const int32_t used = anew ? 0 : head.entries;
    const int32_t *const token = tokens_at(a, row);
    for (int32_t i = (int32_t)threadIdx.x; i < length; i += (int32_t)blockDim.x) h.token[head.length + i] = token[i];
    if (anew) index_forget(h, 0, 1);
    if (!threadIdx.x) space.used = used, space.lost = 0;
    __syncthreads();
    if (anew && !a.prompt) tokens_count(h, h.token, head.length + length, head.prompt, used, &space);
    else tokens_count(h, token, length, a.prompt ? length : 0, used, &space);
    if (threadIdx.x) return;
    if (a.prompt) memset(h.head, 0, sizeof *h.head);
    h.head->length = head.length + length;
    h.head->prompt = a.prompt ? length : head.prompt;
    h.head->entries = min(space.used, h.entry_max);
    row_tell(a, row, h.head, space.lost ? RAFFLE_ROW_STATE : 0);
}

/* ---- truncate, reset, fork --------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(MANY_THREADS, 1) truncate_kernel(change_args a) {
    const int64_t row = blockIdx.x, slot = slot_at(a, row);
    if (!slot_exists(a, slot)) return row_tell(a, row, NULL, RAFFLE_ROW_ARGUMENT);
    const history h = slot_parts(&a.pool, slot);
    const history_head head = *h.head;
    const int32_t count = a.count[row];
    uint32_t flags = slot_twice(a, row, slot) || count < 0 ? RAFFLE_ROW_ARGUMENT : 0;
    if (!flags && (!head_sound(&head, &a.pool) || count > head.length - head.prompt)) flags = RAFFLE_ROW_STATE;
    if (flags) return row_tell(a, row, h.head, flags);
    bool lost = false;
    for (int32_t i = (int32_t)threadIdx.x; i < count; i += (int32_t)blockDim.x) {
        const place p = place_find(h, h.token[head.length - 1 - i], head.entries, false);
        lost |= p.kind != PLACE_ENTRY;
        if (p.kind == PLACE_ENTRY) entry_add(h, p.number, 0 - ENTRY_OUTPUT);
    }
    flags = __syncthreads_or(lost) ? RAFFLE_ROW_STATE : 0;
    if (!threadIdx.x) h.head->length = head.length - count;
    row_tell(a, row, h.head, flags);
}

/* Blocks along y share a slot. */
static __global__ void __launch_bounds__(COPY_THREADS, 1) reset_kernel(change_args a) {
    const int64_t row = blockIdx.x, slot = slot_at(a, row);
    const bool exists = slot_exists(a, slot);
    const uint32_t flags = slot_twice(a, row, slot) || !exists ? RAFFLE_ROW_ARGUMENT : 0;
    const history h = slot_parts(&a.pool, exists ? slot : 0);
    if (!flags) index_forget(h, blockIdx.y, gridDim.y);
    if (blockIdx.y) return;
    if (!flags && !threadIdx.x) memset(h.head, 0, sizeof *h.head);
    row_tell(a, row, exists ? h.head : NULL, flags);
}

/* Whether a slot that this row reads or writes is written by another row, or its own is read by any. */
static __device__ bool pair_clashes(const change_args &a, int64_t row, int64_t from, int64_t to) {
    bool clashes = false;
    for (int64_t i = threadIdx.x; i < a.rows; i += blockDim.x) {
        const int64_t other_to = a.token[i * a.stride];
        clashes |= (i != row && other_to == to) || other_to == from || slot_at(a, i) == to;
    }
    return __syncthreads_or(clashes);
}

/* The first `bytes` of a part of a slot, up to its padding. */
static __device__ void part_copy(void *to, const void *from, int64_t bytes) {
    const int64_t first = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, step = (int64_t)gridDim.y * blockDim.x;
    for (int64_t i = first; i < (bytes + 15) / 16; i += step) ((int4 *)to)[i] = ((const int4 *)from)[i];
}

static __global__ void __launch_bounds__(COPY_THREADS, 1) fork_kernel(change_args a) {
    const int64_t row = blockIdx.x, from = slot_at(a, row), to = a.token[row * a.stride];
    const bool exist = slot_exists(a, from) && slot_exists(a, to);
    uint32_t flags = pair_clashes(a, row, from, to) || !exist ? RAFFLE_ROW_ARGUMENT : 0;
    const history source = slot_parts(&a.pool, exist ? from : 0), h = slot_parts(&a.pool, slot_exists(a, to) ? to : 0);
    if (!flags && !head_sound(source.head, &a.pool)) flags = RAFFLE_ROW_STATE;
    if (!flags) {
        part_copy(h.head, source.head, sizeof *h.head);
        part_copy(h.token, source.token, (int64_t)source.head->length * sizeof *h.token);
        part_copy(h.entry, source.entry, (int64_t)source.head->entries * sizeof *h.entry);
        part_copy(h.index, source.index, ((int64_t)h.index_mask + 1) * sizeof *h.index);
    }
    if (!blockIdx.y) row_tell(a, row, slot_exists(a, to) ? h.head : NULL, flags);
}

/* ---- on the host ------------------------------------------------------------------------------------- */

/* Why no kernel could be enqueued. */
static raffle_status change_fail(const char *doing, cudaError_t code, raffle_error *error) {
    char why[112] = "";
    int count = 0;
    cudaGetLastError(); /* the status tells it; the caller's next call should not */
    if (device_count(&count, why, sizeof why) != cudaSuccess) return raffle_fail(error, RAFFLE_E_DEVICE, -1, "%s", why);
    return device_fail(error, doing, code);
}

/* Loads the kernels before a first call that may be captured, and shows whether this build has code for this GPU. */
static cudaError_t kernels_load(void) {
    static const change_kernel kernels[] = {append_kernel, truncate_kernel, reset_kernel, fork_kernel};
    cudaError_t code = cudaSuccess;
    cudaFuncAttributes attributes;
    for (size_t i = 0; code == cudaSuccess && i < sizeof kernels / sizeof *kernels; ++i)
        code = cudaFuncGetAttributes(&attributes, kernels[i]);
    return code;
}

static cudaError_t kernel_launch(const state_call *c, change_args *a) {
    const int64_t parts = c->layout.slot_bytes / COPY_BYTES + 1;
    const dim3 rows((unsigned)a->rows), rows_parts((unsigned)a->rows, (unsigned)(parts < PARTS_MAX ? parts : PARTS_MAX));
    const dim3 threads(a->prompt || a->stride > FEW_THREADS ? MANY_THREADS : FEW_THREADS);
    void *parameters[] = {a};
    switch (c->action) {
    case STATE_CLEAR:
    case STATE_RESET: return cudaLaunchKernel(reset_kernel, rows_parts, dim3(COPY_THREADS), parameters, 0, c->tokens.stream);
    case STATE_FORK: return cudaLaunchKernel(fork_kernel, rows_parts, dim3(COPY_THREADS), parameters, 0, c->tokens.stream);
    case STATE_TRUNCATE: return cudaLaunchKernel(truncate_kernel, rows, dim3(FEW_THREADS), parameters, 0, c->tokens.stream);
    case STATE_PROMPT:
    case STATE_ACCEPT: return cudaLaunchKernel(append_kernel, rows, threads, parameters, 0, c->tokens.stream);
    }
    return cudaErrorInvalidValue;
}

raffle_status slots_change(const state_call *c, raffle_error *error) {
    const raffle_tokens *t = &c->tokens;
    change_args a = {slot_pool_make(&c->state, &c->layout), t->rows, t->stride, t->slot, t->token, t->count, t->first, t->row_flags,
                     c->action == STATE_PROMPT};
    if (c->action == STATE_CLEAR) a.rows = c->state.slots;
    if (!a.rows) return RAFFLE_OK;
    int devices = 0;
    if (c->state.device && cudaGetDeviceCount(&devices) == cudaSuccess && c->state.device >= devices)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "state.device is %d: this machine has %d", c->state.device, devices);
    device_guard guard(c->state.device);
    if (guard.code != cudaSuccess) return change_fail("choosing the GPU", guard.code, error);
    cudaError_t code = c->action == STATE_CLEAR ? kernels_load() : cudaSuccess;
    if (code != cudaSuccess) return change_fail("loading the kernels for this GPU", code, error);
    code = kernel_launch(c, &a);
    return code == cudaSuccess ? RAFFLE_OK : change_fail("launching the kernel", code, error);
}
