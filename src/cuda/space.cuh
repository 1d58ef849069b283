/* space.cuh - what a block keeps in shared memory of the row it finishes, or edits. */
#ifndef RAFFLE_CUDA_SPACE_CUH
#define RAFFLE_CUDA_SPACE_CUH

#include "read.cuh"

enum { SUM_BINS = 512 }; /* values of sums.cuh, in shared memory and in the workspace */

/* What fast.cuh and wide.cuh keep in shared memory: of as many groups as 48 KiB have room for, 270,336 tokens. Some vocabularies are a
 * little more than 2^18. */
enum {
    QUICK_GROUPS = 1056, OWN_GROUPS = (QUICK_GROUPS + BLOCK_THREADS - 1) / BLOCK_THREADS, BINS = 256, CANDIDATES = 512,
    EDITED = 5 * CANDIDATES,
    QUICK_PIECES = 512, GUESS_BINS = 1024, LISTED = 3072, MARKED = 512, SELECTIONS = 3, SELECT_PARTS = 3, SELECT_BINS = 4 * WARP
};
typedef uint32_t select_sums[SELECT_PARTS][SELECT_BINS]; /* candidates by bins of keys: how many, and their tickets in two parts */
struct select_list { /* what is in one of them */
    uint32_t key[CANDIDATES];
    uint64_t tickets[CANDIDATES];
};
struct alignas(16) quick { /* read 16 bytes at a time */
    union {
        float4 pieces4[QUICK_GROUPS]; /* maxima of pieces */
        struct { /* fast_select */
            select_sums select_again;
            select_list select_more[SELECTIONS - 1];
        };
        struct {                      /* wide.cuh, which does not need them */
            union {
                uint32_t valued[2][SUM_BINS]; /* sums.cuh */
                uint32_t guess[GUESS_BINS];
                float listed_x[LISTED]; /* their logits */
                uint64_t inside[QUICK_GROUPS];
            };
            union {
                uint32_t parts[3][BINS];
                struct { /* tokens of one bin */
                    uint64_t few_tickets[BINS];
                    uint32_t few_order[BINS];
                };
            };
        };
        uint8_t marked[MARKED][WARP]; /* tokens to list: of each lane eight bits a group */
    };
    float peak[QUICK_GROUPS];       /* and of groups */
    uint64_t mass[QUICK_GROUPS];    /* tickets of groups, if top-p asks for them */
    uint32_t bins[BINS];
    uint32_t list[QUICK_PIECES];    /* pieces to read */
    union {
        struct {
            uint32_t order[CANDIDATES]; /* candidates: their logits as integers, and ids */
            int32_t id[CANDIDATES];
            union {
                struct {
                    uint32_t sorted[CANDIDATES];
                    int32_t sorted_id[CANDIDATES];
                    uint64_t tickets[CANDIDATES];
                };
                struct { /* fast_select */
                    select_sums select_by[2];
                    select_list select_first;
                };
                int32_t edited[EDITED]; /* ids of edited tokens that may be candidates */
            };
        };
        uint32_t listed[LISTED]; /* wide.cuh: ids */
    };
    uint64_t space[8][BLOCK_WARPS];
    uint64_t rest;
    uint64_t all;   /* tickets of the row, if top-p asks for them */
    uint32_t least; /* order_of the smallest maximum of a group that is not empty */
    uint32_t select_length[SELECTIONS];
    uint32_t list_length, count, low, kept, edits; /* edits: in `edited` */
    uint32_t within; /* candidates that stay in the stretch that is drawn */
    uint32_t tally; /* of all blocks of a team: see team_read */
    int32_t group, token;
    int32_t tie_last; /* fast_few: the last id of equals that stay */
    float bound; /* of the candidates: every token that reaches it is one */
    float logit; /* propose.cuh: that of `token` */
    bool told;   /* what a row that proposes keeps is known, and told */
};

/* What edit.cuh keeps in shared memory of the tokens that a row's request edits, in the part that the block reads; a part has at
 * most EDIT_GROUPS groups then. */
enum { EDIT_GROUPS = 256, EDIT_WORDS = EDIT_GROUPS * GROUP / 32, EDIT_TOKENS = 2800 };
#if CUT_MORE
struct alignas(16) edit_space { /* written 16 bytes at a time */
    uint32_t bits[EDIT_WORDS];   /* a bit for every token of the part: it is edited; then: it is read as it is */
    uint32_t cell[EDIT_TOKENS];  /* of each that is, in order: what is known of it, then its logit */
    float bias[EDIT_TOKENS];
    uint32_t most[EDIT_GROUPS * PIECES]; /* order_of the largest edited logit of each piece; then see peaks_mend */
    uint16_t at[EDIT_TOKENS];    /* which token of the part it is */
    uint16_t before[EDIT_WORDS]; /* edited tokens before those of a word */
    uint32_t total;              /* edited tokens */
    int left[BLOCK_WARPS];       /* the first group of each warp that its loop has not recorded */
#if SAID_TAIL
    int32_t path[TAIL_MAX]; /* drafts that a history goes on with, if they do not lie in order anywhere else */
#endif
};
#endif

#endif
