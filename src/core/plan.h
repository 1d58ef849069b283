/* plan.h - what a plan is, and what a backend must offer. */
#ifndef RAFFLE_CORE_PLAN_H
#define RAFFLE_CORE_PLAN_H

#include "raffle/raffle.h"

/* Where the parts of a slot are, in bytes from its start, and how long they are. raffle.h draws them. */
typedef struct slot_layout {
    int64_t slot_bytes, token_at, entry_at, index_at, entry_max, index_count;
} slot_layout;

/* What becomes of the tokens that a row keeps. */
typedef enum output_form { FORM_PROBABILITY, FORM_LOG, FORM_LOGIT } output_form;

/* A call after its structs were checked and completed: every field is set, strides are in elements. */
typedef struct call {
    raffle_logits logits;
    raffle_params params;
    raffle_result result;
    raffle_output output;       /* of raffle_softmax and raffle_mask */
    output_form form;
    raffle_drafted drafted;     /* of raffle_draft; each 0: nothing is kept */
    raffle_launch launch;
    int64_t vocab;
    raffle_report report;       /* zero where the call has none */
    raffle_state state;         /* the same */
    slot_layout layout;         /* of the state */
    int64_t row_first, row_end; /* this call's part of the batch */
} call;

enum { TAIL_MAX = 256 }; /* drafts that may count as said after a history: a workspace has room for so many */

/* A call of raffle_verify. The first target row of request r is drafts.first[r] + r, or r * (drafts.each + 1). */
typedef struct verify_call {
    call target;                 /* row_first, row_end: its part of the requests */
    raffle_drafts drafts;
    raffle_verified verified;
    int64_t draft_rows;
    int has_logits, has_probabilities; /* what is known of the drafts' distribution, in: */
    raffle_logits draft_logits;
    raffle_params draft_params;
    raffle_state draft_state;    /* of the draft_params, zero where they have none, */
    slot_layout draft_layout;    /* and its layout */
    raffle_probabilities draft_probabilities;
} verify_call;

/* What a call does to the slots of a state. */
typedef enum state_action { STATE_CLEAR, STATE_PROMPT, STATE_ACCEPT, STATE_TRUNCATE, STATE_RESET, STATE_FORK } state_action;
typedef struct state_call {
    state_action action;
    raffle_state state;
    slot_layout layout;
    raffle_tokens tokens; /* complete: stride is set */
} state_call;

typedef struct backend {
    /* Completes the plan: state, workspace_bytes. */
    raffle_status (*create)(raffle_plan *plan, raffle_error *error);
    void (*destroy)(raffle_plan *plan);
    size_t (*describe)(const raffle_plan *plan, char *text, size_t bytes);
    raffle_status (*sample)(const raffle_plan *plan, const call *call, raffle_error *error);
    raffle_status (*write)(const raffle_plan *plan, const call *call, raffle_error *error); /* call->output */
    raffle_status (*explain)(const raffle_plan *plan, const call *call, int64_t row, raffle_explanation *out,
                             raffle_error *error);
    raffle_status (*verify)(const raffle_plan *plan, const verify_call *call, raffle_error *error);
    raffle_status (*change)(const state_call *call, raffle_error *error); /* of a raffle_state */
} backend;

extern const backend raffle_backend_cpu, raffle_backend_cuda;

struct raffle_plan {
    raffle_plan_desc desc;
    const struct backend *backend;
    size_t workspace_bytes;
    const void *state; /* the backend's own: a table of kernels */
};

#endif
