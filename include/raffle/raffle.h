/* raffle.h - exact, reproducible token sampling for LLM inference engines.
 *
 * Logits and sampling parameters in, token ids out. For a given row of logits, its parameters, seed
 * and position, the token is the same on every CPU, every GPU, in every batch, on every thread.
 *
 *   1. describe the shape and backend          raffle_plan_create
 *   2. give it scratch memory you own          raffle_plan_workspace
 *   3. draw tokens, as often as you like       raffle_sample
 *      or write the probabilities themselves    raffle_softmax, raffle_mask
 *      or draw a draft model's guesses          raffle_draft
 *      and check them                           raffle_verify
 *
 *     raffle_error error = raffle_error_init();
 *     raffle_plan_desc desc = raffle_plan_desc_init();
 *     desc.vocab = 128256;
 *     raffle_plan *plan;
 *     if (raffle_plan_create(&desc, &plan, &error)) { puts(error.text); ... }
 *     raffle_launch launch = raffle_launch_init();
 *     launch.workspace_bytes = raffle_plan_workspace(plan);
 *     launch.workspace = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, launch.workspace_bytes);
 *     ...
 *     raffle_sample(plan, &logits, &params, &result, &launch, &error);
 *
 * That is the first third of this page: the sections "plan" and "sample". The others are for those who need them.
 *
 * Rules that hold everywhere:
 *   - Make structs with their raffle_*_init(); a zero field means its default, a NULL array means off. These functions
 *     are inline, and no library exports them: a caller in another language zeroes the struct and sets `size`, its first
 *     field, to its sizeof, which is all that they do. (raffle_extra has no size: zero bytes.)
 *   - You own memory, threads and streams. Only raffle_plan_create allocates; nothing locks, waits or prints.
 *   - A plan is immutable: any number of threads may use it at once, each with its own workspace.
 *   - What can be checked before the work starts is an error with a sentence and a row, and then no
 *     output was written. What only the data shows (NaN, nothing allowed) is a row flag.
 *   - A token outside 0 .. vocab-1 is never returned, except RAFFLE_NO_TOKEN with its flag.
 *
 * docs/sampling.md says what each parameter means, docs/determinism.md how the numbers are made,
 * docs/api.md how to call this from an engine. Needs only stddef.h and stdint.h; C99 to C++20.
 */
#ifndef RAFFLE_H
#define RAFFLE_H

#include <stddef.h>
#include <stdint.h>

/* The version lives here and nowhere else; the build reads these three lines. */
#define RAFFLE_VERSION_MAJOR 0
#define RAFFLE_VERSION_MINOR 1
#define RAFFLE_VERSION_PATCH 0

#if defined(_WIN32) && defined(RAFFLE_SHARED)
#ifdef RAFFLE_BUILDING
#define RAFFLE_API __declspec(dllexport)
#else
#define RAFFLE_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define RAFFLE_API __attribute__((visibility("default")))
#else
#define RAFFLE_API
#endif

#ifdef __cplusplus
extern "C" {
#define RAFFLE_ZERO {}
#else
#define RAFFLE_ZERO {0}
#endif

/* Values of every enum are part of the ABI and never change. */

typedef enum raffle_status {
    RAFFLE_OK = 0,
    RAFFLE_E_ARGUMENT = 1,    /* a value is out of its range; error.text names the field, error.row the row */
    RAFFLE_E_STRUCT = 2,      /* a struct's size is wrong, or it has fields set that this version lacks */
    RAFFLE_E_UNSUPPORTED = 3, /* a valid wish that this build, machine or backend cannot fulfil */
    RAFFLE_E_WORKSPACE = 4,   /* the workspace is missing, too small or misaligned */
    RAFFLE_E_MEMORY = 5,      /* raffle_plan_create could not allocate */
    RAFFLE_E_DEVICE = 6       /* the GPU or its driver is missing, too old, or reported an error */
} raffle_status;

typedef enum raffle_backend { RAFFLE_CPU = 0, RAFFLE_CUDA = 1 } raffle_backend;

/* What the rows of a plan are. Probabilities may be unnormalised: any weights >= 0. */
typedef enum raffle_input { RAFFLE_LOGITS = 0, RAFFLE_PROBS = 1 } raffle_input;

typedef enum raffle_dtype { RAFFLE_F32 = 0, RAFFLE_F16 = 1, RAFFLE_BF16 = 2 } raffle_dtype;

/* CPU instruction sets. All give the same tokens; forcing one is for tests and comparisons. */
typedef enum raffle_isa {
    RAFFLE_ISA_BEST = 0,
    RAFFLE_ISA_SCALAR = 1,
    RAFFLE_ISA_AVX2 = 2,
    RAFFLE_ISA_AVX512 = 3,
    RAFFLE_ISA_NEON = 4
} raffle_isa;

#define RAFFLE_VOCAB_MAX 2097152 /* 2^21 tokens */
#define RAFFLE_NO_TOKEN (-1)     /* the token of a row that has none; its row flags say why */
#define RAFFLE_WORKSPACE_ALIGN 64
#define RAFFLE_HISTORY_MAX 1048576 /* tokens that a request's history may have, 2^20 */
#define RAFFLE_TOP_MAX 1024        /* likeliest tokens that a raffle_report tells of a row */

/* An optional out-parameter of every call that can fail, written only when it does. NULL: only the status matters.
 * Set `size`, or make it with raffle_error_init(): one of zero bytes stays empty, whatever goes wrong, and nothing says so. */
typedef struct raffle_error {
    uint32_t size;  /* smaller than this struct: not written to. Larger, from a later header: these fields are written */
    int32_t status; /* raffle_status */
    int64_t row;    /* the row that was wrong, or -1 */
    char text[112]; /* one English sentence that names the field */
} raffle_error;

/* ---- plan ------------------------------------------------------------------------------------ */

typedef struct raffle_plan raffle_plan;

typedef struct raffle_plan_desc {
    uint32_t size;
    int32_t backend;  /* raffle_backend */
    int32_t dtype;    /* raffle_dtype of the logits */
    int32_t isa;      /* raffle_isa; CPU only */
    int64_t vocab;    /* tokens per row, 1 .. RAFFLE_VOCAB_MAX */
    int64_t rows_max; /* most rows of a call. CUDA: at least 1. CPU: 0 means any number */
    int32_t device;   /* CUDA device ordinal */
    int32_t flags;    /* RAFFLE_PLAN_EXTRA, RAFFLE_PLAN_REPORT */
    int32_t input;    /* raffle_input: what the rows are. RAFFLE_PROBS: params.temperature must be NULL */
    uint32_t reserved;
    int64_t history_max; /* the largest history_max of a raffle_state that calls will use; 0: none */
} raffle_plan_desc;

/* Both are for plans of logits. */
#define RAFFLE_PLAN_EXTRA 1  /* calls may use raffle_params.extra; the workspace grows by about 8.3 bytes a token, on CUDA by about 4.4
                                for each of rows_max rows */
#define RAFFLE_PLAN_REPORT 2 /* calls may use raffle_result.report; CUDA: the workspace grows by 24 bytes a row and group of 256 tokens */

RAFFLE_API raffle_status raffle_plan_create(const raffle_plan_desc *desc, raffle_plan **plan, raffle_error *error);
RAFFLE_API void raffle_plan_destroy(raffle_plan *plan); /* NULL is fine */

/* Bytes of scratch memory one call needs, a multiple of RAFFLE_WORKSPACE_ALIGN: host memory for CPU plans,
 * device memory for CUDA plans, aligned to RAFFLE_WORKSPACE_ALIGN. Calls that run at the same time need a
 * workspace each. A CUDA workspace must be all zero bytes before its first use with a plan; calls leave it
 * ready for the plan's next, but for one that returned RAFFLE_E_DEVICE: then it must be zeroed again. */
RAFFLE_API size_t raffle_plan_workspace(const raffle_plan *plan);

/* A line for people: backend, instruction set or GPU, dtype, vocab. Writes at most `bytes` bytes with
 * the closing zero and returns the length it wanted, like snprintf. */
RAFFLE_API size_t raffle_plan_describe(const raffle_plan *plan, char *text, size_t bytes);

/* ---- sample ---------------------------------------------------------------------------------- */

/* Arrays live where the backend computes: host memory for CPU plans, device memory for CUDA plans. */

typedef struct raffle_logits {
    uint32_t size;
    uint32_t reserved;
    const void *data;   /* [rows, vocab] of the plan's dtype; never written. CUDA: aligned to its elements */
    int64_t rows;       /* 0 is fine: nothing happens */
    int64_t row_stride; /* elements from a row to the next; 0: vocab. Any other value, also negative */
    const int32_t *row_index; /* [rows] or NULL: result i is of row row_index[i] of `data`. Results beside each other that
                                 share a row and, but for seed and position, their parameters and mask are weighed
                                 once, unless they are edited, have XTC or a report (CUDA: or a mask, or extra). Not where
                                 results are written */
    int64_t data_rows;        /* rows of `data`, for row_index; 0: as many as `rows` */
} raffle_logits;

/* What a batch does where engines differ. Without flags: masks, temperature, min-p, top-k, top-p in
 * this order, each over the survivors of the last, and equal logits live or die together. */
#define RAFFLE_TOP_P_JOINT 1u   /* top-p counts the mass of the whole row, not of min-p's and top-k's survivors */
#define RAFFLE_FILTERS_FIRST 2u /* filters look at the row at temperature 1; temperature only shapes the draw */
#define RAFFLE_MIN_P_LAST 4u    /* min-p after top-p: top-p's mass then includes what min-p removes */
#define RAFFLE_TOP_K_EXACT 8u   /* top-k keeps exactly k: of equal logits at the border, the lowest ids */
#define RAFFLE_EMPTY_IS_ZERO 16u /* a row without any token returns token 0 (and its flag), not RAFFLE_NO_TOKEN */
#define RAFFLE_SHAPE_LAST 32u   /* typical-p, epsilon, eta of a raffle_extra in this order after top-p (and min-p last), before XTC, each
                                   over what is left: with RAFFLE_MIN_P_LAST, Hugging Face's order */

/* One entry per slot. `slot` maps rows to slots, so engines keep parameters in a pool and never move
 * them; NULL: row r uses entry r. A NULL array is its default for every row. */
typedef struct raffle_params {
    uint32_t size;
    uint32_t flags;           /* RAFFLE_TOP_P_JOINT ... */
    int64_t slots;            /* entries of the arrays below, up to 2147483647; 0: as many as rows */
    const int32_t *slot;      /* [rows] */
    const float *temperature; /* [slots] below 1e-5: greedy, lowest id of ties; 2^100 and more: uniform; NULL: 1 */
    const float *top_p;       /* [slots] keep while the mass of larger logits is < p; >= 1: off; <= 0: greedy */
    const float *min_p;       /* [slots] keep what is at least min_p times as likely as the best; <= 0: off */
    const int32_t *top_k;     /* [slots] keep logits >= the k-th largest; <= 0 or >= vocab: off; 1: greedy */
    const uint64_t *seed;     /* [slots] required */
    const uint64_t *position; /* [slots] required: the draw is a pure function of seed and position,
                                 so advance it by one for every token of a request */
    const uint32_t *allow;    /* [rows, allow_stride] bit i%32 of word i/32 set: token i is allowed */
    int64_t allow_stride;     /* 32-bit words from a row to the next; 0: (vocab + 31) / 32 */
    uint32_t draft_step;      /* 0: draws a token. n >= 1: draws the n-th draft behind position, from random bits of its
                                 own; position stays what raffle_verify will be given. docs/speculative.md */
    uint32_t reserved;
    const struct raffle_extra *extra; /* [slots] all else that requests ask for; the plan needs RAFFLE_PLAN_EXTRA */
    int64_t extra_bytes;              /* sizeof(raffle_extra), where extra is set */
    const struct raffle_state *state; /* what the requests have said so far, by the same slots; NULL: none */
    uint64_t seed_offset, position_offset; /* added to every row's seed and position: on a GPU, calls whose rows go on together
                                              count here, and write to no array. raffle_verify: 0 */
} raffle_params;

/* Row flags. */
#define RAFFLE_ROW_NAN 1u       /* had NaN logits, which count as -inf; or NaN or negative probabilities, which count as 0 */
#define RAFFLE_ROW_INF 2u       /* had +inf logits; only they share the draw */
#define RAFFLE_ROW_EMPTY 4u     /* nothing to draw: every token is masked, -inf or NaN, or has no probability */
#define RAFFLE_ROW_ARGUMENT 8u  /* CUDA: a parameter, slot, or number or list of the raffle_extra of this row is wrong: RAFFLE_NO_TOKEN */
#define RAFFLE_ROW_DRAFT 256u   /* raffle_verify: a draft's own row is empty, or has a negative or NaN probability: it was not used.
                                   CUDA: or what its own parameters say is wrong */
#define RAFFLE_ROW_STATE 16u    /* CUDA: the history of this row's slot is not what its calls asked for: see raffle_tokens */

typedef struct raffle_result {
    uint32_t size;
    uint32_t reserved;
    int32_t *token;      /* [rows] */
    uint32_t *row_flags; /* [rows] or NULL */
    const struct raffle_report *report; /* log-probabilities and the like, or NULL */
    uint64_t *advance;   /* [slots] or NULL: the entry of each row's slot grows by 1, also where the row has no token to draw.
                            params.position itself: the next call draws the next tokens. No two rows may have the same slot: that is
                            not checked, and what such rows draw depends on their order */
} raffle_result;

/* How to run: scratch memory, and for CUDA the stream. CPU callers with several threads give each its
 * own workspace and a part of the batch: thread i of n sets part = i, parts = n. */
typedef struct raffle_launch {
    uint32_t size;
    uint32_t reserved;
    void *workspace;
    size_t workspace_bytes;
    struct CUstream_st *stream; /* a cudaStream_t; NULL: the default stream. CPU: must be NULL */
    int32_t part, parts;        /* rows [rows * part / parts, rows * (part + 1) / parts); parts 0: all. CUDA: must be 0 */
} raffle_launch;

/* Draws one token per row. CPU: done on return. CUDA: enqueued on the stream in one kernel launch, whatever is asked for; safe to
 * capture in a graph, which then serves every later content of logits and parameters. */
RAFFLE_API raffle_status raffle_sample(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                       const raffle_result *result, const raffle_launch *launch, raffle_error *error);

/* ---- probabilities --------------------------------------------------------------------------- */

/* Where rows of probabilities or logits go. Every part is optional, but one must be asked for. */
typedef struct raffle_output {
    uint32_t size;
    uint32_t flags;           /* RAFFLE_LOG */
    int32_t dtype;            /* raffle_dtype of data: that of the logits, a wider or a narrower one */
    uint32_t reserved;
    void *data;               /* [rows, vocab] or NULL. May be the logits themselves if type and stride are the same;
                                 else it must not overlap them. CUDA: aligned to its elements */
    int64_t row_stride;       /* elements from a row to the next; 0: vocab. May be negative, not shorter than a row */
    uint32_t *row_flags;      /* [rows] or NULL */
    uint32_t *kept;           /* [rows, kept_stride] or NULL: bit i%32 of word i/32 set: token i was kept */
    int64_t kept_stride;      /* 32-bit words from a row to the next; 0: (vocab + 31) / 32 */
    int32_t *kept_list;       /* [rows, kept_list_stride] or NULL: ids of the kept tokens, ascending; as many as fit. Behind the
                                 last nothing is written */
    int64_t kept_list_stride; /* room for a row's ids, and from a row to the next; at least 1 */
    int32_t *kept_count;      /* [rows] or NULL: how many tokens were kept, whether or not they fit the list */
} raffle_output;

#define RAFFLE_LOG 1u /* raffle_softmax: natural logarithms of the probabilities; -inf where a token is not kept */

/* Writes each row's probabilities: the law that raffle_sample draws from, out of the same tickets. Without filters
 * that is softmax(logits / temperature) over the allowed tokens; with top-k, top-p or min-p the survivors share 1 and
 * all others are 0; greedy rows (temperature 0) are 1 at the token and 0 elsewhere. Probabilities below 2^-126
 * are 0. A row without any token is 0 everywhere, and RAFFLE_ROW_EMPTY. params.seed and position are not needed, except by XTC.
 * With params.extra: of the edited logits, and after its filters. From a RAFFLE_PROBS plan: the same probabilities, renormalised. */
RAFFLE_API raffle_status raffle_softmax(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                        const raffle_output *output, const raffle_launch *launch, raffle_error *error);

/* Writes each row as it came, or as params.extra edits it, but -inf (RAFFLE_PROBS: 0) outside the kept set: masked, NaN, or cut by
 * a filter; greedy rows keep one token. */
RAFFLE_API raffle_status raffle_mask(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                     const raffle_output *output, const raffle_launch *launch, raffle_error *error);

/* ---- verify: speculative decoding -------------------------------------------------------------- */

/* A request with n drafts has n + 1 rows of target logits: the row of the next token, and behind each draft the row
 * of the token after it. raffle_verify accepts some of the drafts and adds one token of its own: the recovered one
 * where a draft was rejected, the bonus token where none was. Every token it emits follows the law that raffle_sample
 * would draw from with the same parameters, whatever the drafts were (but see the thresholds and RAFFLE_SYNTHETIC).
 * Greedy requests accept the drafts that greedy sampling would return, by every method but RAFFLE_SYNTHETIC. */
typedef enum raffle_method {
    RAFFLE_REJECTION = 0, /* accepts a draft with probability min(1, p / q); on rejection draws from max(p - q, 0) */
    RAFFLE_BLOCK = 1,     /* the same law, judging the drafts together (arXiv 2403.10444): accepts as many or more */
    RAFFLE_MATCH = 2,     /* samples the target with seed and position and accepts equal drafts: the same text as without */
    RAFFLE_SYNTHETIC = 3  /* for benchmarks of engines: accepts each draft with probability `rate`, whatever it is */
} raffle_method;

/* Probabilities of drafts, where their logits are not at hand. They need not sum to 1: whatever their sum is counts as 1. */
typedef struct raffle_probabilities {
    uint32_t size;
    uint32_t reserved;
    const float *data;  /* [rows, vocab], 0 and more */
    int64_t rows;
    int64_t row_stride; /* elements from a row to the next; 0: vocab. Any other value, also negative */
} raffle_probabilities;

/* The drafts of a batch, and what is known of how they were chosen: either the draft model's logits and the parameters
 * they were sampled with, or its final probabilities, or neither (n-grams, a greedy draft, a tree). RAFFLE_MATCH and
 * RAFFLE_SYNTHETIC use neither: RAFFLE_E_UNSUPPORTED where one is set. */
typedef struct raffle_drafts {
    uint32_t size;
    int32_t method;            /* raffle_method */
    int64_t requests;
    int64_t each;              /* drafts of every request, if first is NULL */
    const int32_t *first;      /* [requests + 1] request r has the drafts first[r] .. first[r + 1] - 1 and the target rows
                                  first[r] + r .. first[r + 1] + r; first[0] is 0. None is fine: a row to sample */
    const int32_t *token;      /* [drafts] -1: no draft here, and none behind it counts */
    const int32_t *parent;     /* [drafts] a tree: which draft of its request, counted from 0, the draft follows; -1: none.
                                  Parents come before their children. NULL: each follows the one before */
    const raffle_logits *logits;   /* [drafts, vocab] row i is what draft i was sampled from */
    const raffle_params *params;   /* with logits: what they were sampled with. seed and position are not used;
                                      allow is [drafts, allow_stride]; slot is [requests] */
    const raffle_probabilities *probabilities; /* [drafts, vocab] row i is what draft i was sampled from */
    float threshold_single;    /* 0: off. Else RAFFLE_REJECTION without logits or probabilities also accepts a draft whose */
    float threshold_sum;       /*   p is at least threshold_single, and divides p by threshold_sum. Changes the law */
    float rate;                /* RAFFLE_SYNTHETIC: 0 .. 1 */
    uint32_t reserved;
    const uint64_t *accept_bits;  /* [target rows] for tests: the random bits of acceptance at each row. NULL: from the seed. Not for
                                     RAFFLE_MATCH */
    const uint64_t *recover_bits; /* [requests, 2] for tests: those of the recovered token, low word first, which is then drawn from what is
                                     left over without proposals. NULL: from the seed. Not for RAFFLE_MATCH and RAFFLE_SYNTHETIC */
    const uint64_t *draw_bits;    /* [target rows, 2] for tests: those of a token that is drawn from its row as raffle_sample would: of
                                     RAFFLE_MATCH every one, else the bonus token and what ends drafts early; and none of them is proposed
                                     (docs/determinism.md, 7). NULL: from the seed */
} raffle_drafts;

/* Request r's tokens begin at its first target row, first[r] + r. It emits accepted[r] + 1 of them; what is behind is
 * RAFFLE_NO_TOKEN. */
typedef struct raffle_verified {
    uint32_t size;
    uint32_t reserved;
    int32_t *token;      /* [target rows] */
    int32_t *accepted;   /* [requests] */
    int32_t *last;       /* [requests] or NULL: the recovered or bonus token, which is also in `token` */
    int32_t *path;       /* [target rows] or NULL: which draft of its request each token is; -1: the last and what is behind */
    uint32_t *row_flags; /* [target rows] or NULL: of the row that each token came from; 0 behind */
    const struct raffle_report *report; /* or NULL: entry i tells of token i and the row it came from; rows are target rows.
                                           Behind a request's last token as where no token was drawn */
} raffle_verified;

/* Verifies the drafts of a batch. `logits` has one row per draft and one more per request; params.slot is [requests] or
 * NULL (request r uses entry r), position is that of the request's first row, and allow is [target rows]. A row that is
 * empty ends its request there, with RAFFLE_NO_TOKEN as the last token, or 0 with RAFFLE_EMPTY_IS_ZERO. launch.part divides
 * requests. In errors, row is the request.
 * params.extra and state apply at every position as they would without drafts: histories go on with the drafts before
 * the row, along its path in a tree; so they do for drafts.params, with a state of its own or the same one. With a state a
 * request has at most 256 drafts; drafts.params has no XTC.
 * CUDA: one or two kernel launches, with a report one more, safe to capture; rows_max counts target rows and rows of draft logits or
 * probabilities; an id outside the vocabulary ends the drafts there and sets RAFFLE_ROW_ARGUMENT; a record of drafts.params that is
 * wrong, has XTC or looks at a history that is not what its calls asked for makes its drafts unused: RAFFLE_ROW_DRAFT. */
RAFFLE_API raffle_status raffle_verify(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                       const raffle_drafts *drafts, const raffle_verified *verified,
                                       const raffle_launch *launch, raffle_error *error);

/* Where raffle_draft keeps what raffle_verify will ask for: draft n of request r is entry r * each + n - 1. */
typedef struct raffle_drafted {
    uint32_t size;
    uint32_t reserved;
    int64_t each;       /* drafts of every request, 1 and more: what drafts.each will be */
    int32_t *token;     /* [rows, each] what drafts.token will be. Must not overlap result.token, but may be it if each is 1 */
    void *logits;       /* [rows * each, vocab] of the plan's dtype: the data of drafts.logits. NULL: tokens alone are kept. Must not
                           overlap logits.data anywhere from its first to its last row. CUDA: aligned to its elements */
    int64_t row_stride; /* of logits, in elements; 0: vocab. May be negative, not shorter than a row */
} raffle_drafted;

/* Draws the next draft of every request, and keeps it. `logits` has one row per request; params.draft_step is n, 1 .. each, for the n-th
 * draft. It is raffle_sample, and then token and row of each request are copied to their entries: the draft model may write
 * its next rows over these. A row that draws no token keeps RAFFLE_NO_TOKEN, which ends the request's drafts there (with
 * RAFFLE_EMPTY_IS_ZERO it keeps 0). result.advance must be NULL: position stays what raffle_verify will be given.
 * When all drafts are drawn, pass them on with draft_step 0 again:
 *
 *     for (params.draft_step = 1; params.draft_step <= each; ++params.draft_step) {
 *         ... the draft model writes `logits`, one row for each request, behind the tokens of `result` ...
 *         raffle_draft(plan, &logits, &params, &result, &drafted, &launch, &error);
 *     }
 *
 * CPU: launch.part divides rows, each of which is copied by the part that draws it. CUDA: one kernel launch more than raffle_sample, safe
 * to capture. Masks are not kept: drafts.params.allow is [drafts, allow_stride], in the order of the entries. Not for plans of
 * RAFFLE_PROBS. */
RAFFLE_API raffle_status raffle_draft(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                      const raffle_result *result, const raffle_drafted *drafted, const raffle_launch *launch,
                                      raffle_error *error);

/* ---- extra: editing logits, more filters ------------------------------------------------------- */

/* What one request asks for beyond the arrays of raffle_params. A zero field is off or its default, so a record of
 * zero bytes asks for nothing, and its row costs what it costs without. Edits see each logit in this order: masks
 * (allow, allowed, banned, bad words, min-tokens, no-repeat-ngram), bias, repetition, frequency, presence, DRY. A
 * token that is masked, -inf or NaN stays out whatever comes after. docs/sampling.md has each formula.
 * Lists of ids are ascending and have no id twice: raffle_ids_sort makes them so. */
typedef struct raffle_extra {
    uint32_t flags; /* RAFFLE_REPETITION_OUTPUT ..., and those of raffle_params.flags for this row alone */

    /* penalties: of tokens in the history, which is the slot's prompt and output in raffle_params.state */
    float repetition;        /* r > 0, <= 1e9: x > 0 ? x / r : x * r for each token of prompt or output; 0 and 1: off */
    float frequency;         /* x - count * f, tokens of the output; |f| <= 1e9 */
    float presence;          /* x - p if count > 0, tokens of the output; |p| <= 1e9 */
    int32_t penalty_window;  /* the three look at the last n tokens of the history; 0: at all */
    int32_t no_repeat_ngram; /* bans tokens that would repeat n tokens of the history; 0: off */
    float dry_multiplier;    /* x - multiplier * base^(length - allowed) for what would lengthen a repetition; 0: off. 0 .. 1e9 */
    float dry_base;          /* 1 .. 1e9; 0: 1.75 */
    int32_t dry_allowed;     /* repetitions shorter than this are free; 0: 2 */
    int32_t dry_range;       /* DRY looks at the last n tokens; 0: at all */
    int32_t min_tokens;      /* while the output is shorter, the stop ids are banned */

    /* filters, in this order among the others: top-n-sigma, epsilon, eta, min-p, top-k, typical-p, top-p, XTC; under RAFFLE_SHAPE_LAST:
     * top-n-sigma, min-p, top-k, top-p, typical-p, epsilon, eta, XTC */
    float top_n_sigma;     /* keeps logits within n standard deviations of the largest; <= 0: off */
    float epsilon;         /* keeps probabilities >= epsilon; <= 0: off */
    float eta;             /* keeps probabilities >= min(eta, sqrt(eta) * exp(-entropy)); <= 0: off */
    float typical_p;       /* keeps the most typical tokens up to this mass; <= 0 or >= 1: off */
    float xtc_probability; /* with this chance, of the tokens with xtc_threshold or more, only the least likely stays */
    float xtc_threshold;   /* above 0.5: off; 0: 0.1; below 0: every token has it */
    int32_t keep_least;    /* no filter leaves fewer tokens than this (min_tokens_to_keep); 0: 1. top_k 1 and top_p <= 0: greedy anyway */

    /* lists, in the memory where the backend computes */
    int32_t bias_count, banned_count, allowed_count, stop_count, breaker_count;
    int32_t bad_words_count;  /* ids and ends */
    const int32_t *bias_id;   /* [bias_count] */
    const float *bias;        /* [bias_count] is added to the logit; -inf bans; not +inf, not NaN */
    const int32_t *banned;    /* [banned_count] */
    const int32_t *allowed;   /* [allowed_count] only these; none: all */
    const int32_t *stop;      /* [stop_count] of min_tokens */
    const int32_t *breaker;   /* [breaker_count] tokens that no repetition reaches across (DRY) */
    const int32_t *bad_words; /* [bad_words_count] sequences, each ended by -1: the last token of one is banned when
                                 the history ends with the others */
} raffle_extra;

#define RAFFLE_REPETITION_OUTPUT 256u /* repetition counts tokens of the output only (SGLang) */
#define RAFFLE_COUNT_PROMPT 512u      /* frequency and presence count the prompt too (llama.cpp) */
#define RAFFLE_BAD_WORDS_OUTPUT 1024u /* bad words look at the output only: none reaches back into the prompt (vLLM) */

/* Sorts ids, and their values (or NULL) along, for a raffle_extra; of an id that is there twice the last stays.
 * Returns how many are left; 0 if ids is NULL. */
RAFFLE_API int64_t raffle_ids_sort(int32_t *ids, float *values, int64_t count);

/* ---- state: what requests have said so far ----------------------------------------------------- */

/* A pool of slots in memory that you own: host memory, or device memory (RAFFLE_CUDA). Each slot holds a history of prompt
 * and output tokens and how often each is in it:
 *
 *     memory   | slot 0 | slot 1 | ...                                             raffle_state_bytes / slots each
 *     slot     | length | prompt | entries | flags | unused (48) | token[history_max] | entry[entry_max] | index[..] |
 *                i32      i32      i32       u32                   i32, oldest first    u64, any order     i32
 *     entry    token | times in the output << 21 | times in the prompt << 42
 *
 * each part padded to 64 bytes; entry_max is the smaller of vocab and history_max * 9 / 8 + 16, and index, which finds
 * entries, the next power of two from 1.5 * entry_max on (at least 16). About 20 to 27 bytes for each token of history_max:
 * 86,208 a slot for 4,096 tokens, 2.6 MB for 131,072 of a vocabulary of 128,256.
 * The bytes of a slot mean the same in both kinds of memory. To look at a slot of a GPU, or to move a request, copy them into
 * a host state of as long histories and the same vocab; raffle_state_history then reads them. */
typedef struct raffle_state {
    uint32_t size;
    int32_t backend;     /* raffle_backend: where the memory is */
    int32_t device;      /* CUDA device ordinal */
    int32_t reserved;
    int64_t slots;       /* 1 .. 2147483647 */
    int64_t history_max; /* tokens of a request, prompt and output: 1 .. RAFFLE_HISTORY_MAX */
    int64_t vocab;       /* ids are below */
    void *memory;        /* raffle_state_bytes, aligned to RAFFLE_WORKSPACE_ALIGN */
} raffle_state;

/* What a call does to slots. No slot may be changed twice by one call, nor by two calls at the same time.
 * CPU: done on return, checked as a whole before anything is written.
 * CUDA: enqueued on the stream in one kernel launch, safe to capture; the arrays are in device memory. Rows that are wrong
 * are left out, and the others done. Such a row gets RAFFLE_ROW_ARGUMENT (a slot, id or count out of range; a slot twice in the
 * call) or RAFFLE_ROW_STATE (a history without room, an output shorter than what is taken back, a slot that was never
 * cleared). The slot it would have changed keeps its history, and bit 0 of its flags is set until it gets a prompt, is
 * reset or becomes a copy of another: so long, rows whose request looks at it have RAFFLE_ROW_STATE. */
typedef struct raffle_tokens {
    uint32_t size;
    uint32_t reserved;
    int64_t rows;
    const int32_t *slot;  /* [rows]; NULL: row r is slot r */
    const int32_t *token; /* [rows, stride], or as `first` says */
    const int32_t *count; /* [rows] tokens of each row; NULL: as many as there is room for, which is stride, or what `first` says */
    int64_t stride;       /* 0: 1 */
    struct CUstream_st *stream; /* CUDA: a cudaStream_t; NULL: the default stream. CPU: must be NULL */
    uint32_t *row_flags;  /* [rows] or NULL. 0: done as asked, which on the CPU all are */
    const int32_t *first; /* [rows + 1] or NULL: row r has token[first[r]] .. token[first[r + 1] - 1], and stride is 0. For prompts one
                             behind the other, and for what raffle_verify has emitted: then these are the first target rows of requests.
                             raffle_state_prompt and raffle_state_accept only */
} raffle_tokens;

RAFFLE_API size_t raffle_state_bytes(const raffle_state *state); /* of all slots; 0 if a field is out of range */
/* Every slot becomes empty: once before the first use. */
RAFFLE_API raffle_status raffle_state_clear(const raffle_state *state, struct CUstream_st *stream, raffle_error *error);
/* A new request: the slot's history is these tokens, as its prompt. */
RAFFLE_API raffle_status raffle_state_prompt(const raffle_state *state, const raffle_tokens *prompt, raffle_error *error);
/* Tokens of the output; RAFFLE_NO_TOKEN ends a row's. raffle_result.token can be given as it is, and so can raffle_verified.token, with
 * stride drafts.each + 1, or with `first`. */
RAFFLE_API raffle_status raffle_state_accept(const raffle_state *state, const raffle_tokens *tokens, raffle_error *error);
/* Takes the last `count` tokens of the output back (drafts that were rejected); `token` and `stride` are not used. */
RAFFLE_API raffle_status raffle_state_truncate(const raffle_state *state, const raffle_tokens *tokens, raffle_error *error);
/* Empties slots; `token`, `count` and `stride` are not used. */
RAFFLE_API raffle_status raffle_state_reset(const raffle_state *state, const raffle_tokens *slots, raffle_error *error);
/* Makes slot `token[row * stride]` a copy of slot `slot[row]`, which others may be too; the two sets have no
 * slot in common. */
RAFFLE_API raffle_status raffle_state_fork(const raffle_state *state, const raffle_tokens *pairs, raffle_error *error);
/* The history of a slot in host memory: *length tokens, of which the first *prompt were the prompt. NULL: no such slot. */
RAFFLE_API const int32_t *raffle_state_history(const raffle_state *state, int64_t slot, int64_t *prompt, int64_t *length);

/* ---- report: log-probabilities and more about each row ------------------------------------------ */

typedef enum raffle_point {
    RAFFLE_RAW = 0,      /* the logits as they came in, temperature 1, no masks */
    RAFFLE_TEMPERED = 1, /* after edits and temperature (greedy rows: 1), before filters */
    RAFFLE_FILTERED = 2  /* what was drawn from; tokens that were cut: -inf */
} raffle_point;

/* Natural logarithms: those that raffle_softmax writes with RAFFLE_LOG. The plan needs RAFFLE_PLAN_REPORT. Arrays are
 * [rows] or as said, where the backend computes, and may be NULL. What is not there (no token was drawn, an id is outside
 * the vocabulary, fewer tokens are left, CUDA: RAFFLE_ROW_ARGUMENT) is NaN, rank 0, RAFFLE_NO_TOKEN. CUDA: part of the same
 * launch, with the CPU's bits; raffle_verify has a launch for it. docs/api.md: what costs what. */
typedef struct raffle_report {
    uint32_t size;
    int32_t point;       /* raffle_point of all numbers below, but the kept set */
    float *chosen;       /* log-probability of the token */
    int32_t *rank;       /* of the token: 1 + the number of strictly larger logits */
    float *entropy;      /* in nats */
    int32_t top_count;   /* 0 .. RAFFLE_TOP_MAX */
    int32_t given_count;
    int32_t *top_token;  /* [rows, top_count] the likeliest, ties by id; behind the last RAFFLE_NO_TOKEN */
    float *top;          /* [rows, top_count] */
    const int32_t *given; /* [rows, given_count] ids to look up; one outside the vocabulary gives NaN and rank 0 */
    float *given_logprob; /* [rows, given_count] */
    int32_t *given_rank;  /* [rows, given_count] */
    float *all;           /* [rows, all_stride] of every token */
    int64_t all_stride;   /* 0: vocab */
    /* The tokens that masks and filters left to the draw, whatever the point: as in raffle_output. A row without a token keeps none. */
    uint32_t *kept;           /* [rows, kept_stride] bit i%32 of word i/32 set: token i was kept */
    int64_t kept_stride;      /* 32-bit words from a row to the next; 0: (vocab + 31) / 32 */
    int32_t *kept_list;       /* [rows, kept_list_stride] their ids, ascending; as many as fit. What is behind the last is undefined */
    int64_t kept_list_stride; /* room for a row's ids, and from a row to the next; at least 1 */
    int32_t *kept_count;      /* how many they are, whether or not they fit the list */
} raffle_report;

/* ---- request: parameters as people write them --------------------------------------------------- */

/* Whose names and defaults a request uses. Values that differ in meaning are told apart by flags of the slot. */
typedef enum raffle_dialect { RAFFLE_DIALECT_VLLM = 0, RAFFLE_DIALECT_OPENAI = 1, RAFFLE_DIALECT_LLAMA_CPP = 2 } raffle_dialect;

/* One request's values, ready to be copied to its slot: the arrays of raffle_params, and its raffle_extra. Lists
 * (extra.bias, banned, stop ...) are set by you. Make it with raffle_request_init(), then raffle_request_start. */
typedef struct raffle_request {
    uint32_t size;
    int32_t dialect; /* raffle_dialect */
    float temperature, top_p, min_p;
    int32_t top_k;
    uint64_t seed;
    int32_t logprobs; /* likeliest tokens to report; -1: nothing, not even the token's own */
    uint32_t reserved;
    raffle_extra extra;
} raffle_request;

/* The defaults of a dialect: everything off, or for llama.cpp its default chain; flags where the engine differs from raffle (vLLM's bad
 * words). Whatever the request had is gone, but for its size. What a later header has behind these fields must be 0, as in every
 * struct. */
RAFFLE_API raffle_status raffle_request_start(raffle_request *request, raffle_dialect dialect, raffle_error *error);
/* Sets a value by the name that the dialect has for it: "repetition_penalty", "repeat_penalty", "top_n_sigma" ... An
 * unknown name or a value out of range is RAFFLE_E_ARGUMENT; one that asks for what raffle does not do (beam search,
 * Mirostat) or a request cannot say (vLLM's logprobs -1, all tokens) is RAFFLE_E_UNSUPPORTED. The request then stays what
 * it was. Values mean what the dialect means by them, which need not be what the field means: llama.cpp's repeat_last_n 0 (or
 * penalty_last_n) takes the three penalties out, dry_penalty_last_n 0 DRY, whether these are set before or after. */
RAFFLE_API raffle_status raffle_request_set(raffle_request *request, const char *name, double value, raffle_error *error);
/* Whether the values go together and fit the vocabulary, lists included, with a sentence on what does not. */
RAFFLE_API raffle_status raffle_request_check(const raffle_request *request, int64_t vocab, raffle_error *error);

/* ---- explain --------------------------------------------------------------------------------- */

/* Which stage took a token out. */
typedef enum raffle_fate {
    RAFFLE_KEPT = 0,
    RAFFLE_CUT_MASK = 1, /* not allowed, -inf or NaN */
    RAFFLE_CUT_MIN_P = 2,
    RAFFLE_CUT_TOP_K = 3,
    RAFFLE_CUT_TOP_P = 4,
    RAFFLE_CUT_GREEDY = 5,
    RAFFLE_CUT_SHAPE = 6, /* top-n-sigma, epsilon, eta or typical-p */
    RAFFLE_CUT_XTC = 7
} raffle_fate;

typedef struct raffle_candidate {
    int32_t token;
    int32_t fate;     /* raffle_fate */
    float logit;
    uint32_t reserved;
    uint64_t tickets; /* its tickets before filters, out of row_tickets; of a greedy row: at temperature 1 */
} raffle_candidate;

/* What happened to one row, for people and debuggers. */
typedef struct raffle_explanation {
    uint32_t size;
    uint32_t row_flags;
    int32_t token;         /* the token raffle_sample returns for this row */
    int32_t greedy;        /* 1: no randomness was involved */
    int64_t fates[8];      /* how many tokens met each raffle_fate */
    float threshold;       /* logits below were cut; -FLT_MAX if none were */
    uint32_t reserved;
    uint64_t row_tickets;  /* tickets of all allowed tokens */
    uint64_t draw_tickets; /* tickets of the kept tokens */
    uint64_t drawn;        /* the winning ticket, 0 .. draw_tickets-1, counted over the kept tokens by id */
    int64_t top_count;     /* in: room in `top`; out: entries written, likeliest first, ties by id */
    raffle_candidate *top;
} raffle_explanation;

/* Explains row `row` of a batch with the plan's numbers. CPU plans; slow: for tools and tests. */
RAFFLE_API raffle_status raffle_explain(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                        int64_t row, raffle_explanation *explanation, const raffle_launch *launch,
                                        raffle_error *error);

/* ---- about this build ------------------------------------------------------------------------ */

RAFFLE_API uint32_t raffle_version(void);                     /* major * 10000 + minor * 100 + patch */
RAFFLE_API const char *raffle_status_name(raffle_status status); /* "RAFFLE_E_ARGUMENT"; never NULL */
RAFFLE_API const char *raffle_isa_name(raffle_isa isa);          /* "avx512"; never NULL */
RAFFLE_API int raffle_isa_available(raffle_isa isa);             /* 1: this machine can run it */
RAFFLE_API int raffle_cuda_available(char *why, size_t bytes);   /* 1, or 0 and a sentence in `why` (may be NULL) */

/* ---- initialisers: size set, everything else zero ---------------------------------------------- */

#define RAFFLE_DEFINE_INIT(type)                                                                                       \
    static inline type type##_init(void) {                                                                             \
        type made = RAFFLE_ZERO;                                                                                       \
        made.size = sizeof(type); /* a constant that fits: no conversion that compilers warn of, and no cast */        \
        return made;                                                                                                   \
    }
RAFFLE_DEFINE_INIT(raffle_error)
RAFFLE_DEFINE_INIT(raffle_plan_desc)
RAFFLE_DEFINE_INIT(raffle_logits)
RAFFLE_DEFINE_INIT(raffle_params)
RAFFLE_DEFINE_INIT(raffle_result)
RAFFLE_DEFINE_INIT(raffle_output)
RAFFLE_DEFINE_INIT(raffle_launch)
RAFFLE_DEFINE_INIT(raffle_explanation)
RAFFLE_DEFINE_INIT(raffle_probabilities)
RAFFLE_DEFINE_INIT(raffle_drafted)
RAFFLE_DEFINE_INIT(raffle_drafts)
RAFFLE_DEFINE_INIT(raffle_verified)
RAFFLE_DEFINE_INIT(raffle_state)
RAFFLE_DEFINE_INIT(raffle_tokens)
RAFFLE_DEFINE_INIT(raffle_report)
RAFFLE_DEFINE_INIT(raffle_request)
#undef RAFFLE_DEFINE_INIT

#ifdef __cplusplus
}
#endif
#endif /* RAFFLE_H */
