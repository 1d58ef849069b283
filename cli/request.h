/* request.h - what a run asks for beyond temperature, top-k, top-p and min-p, as the library takes it. */
#ifndef REQUEST_H
#define REQUEST_H

#include "options.h"

typedef struct request {
    int extra_given, probs;
    raffle_extra extra;
    raffle_state state; /* one slot; memory NULL: no history was given */
    raffle_report report;
    int32_t *ids; /* memory of the report */
    float *values;
} request;

/* Reads the options for rows of `vocab` tokens; complains when they do not fit. */
exit_code request_open(request *request, const options *options, int64_t vocab);
void request_close(request *request);

/* What the plan must be able to do. */
void request_desc(const request *request, raffle_plan_desc *desc);
/* Adds it to the parameters of a batch of one slot. */
void request_add(const request *request, raffle_params *params);

/* --logprobs: makes room for a report of `tokens` tokens. */
exit_code request_report(request *request, const options *options, int64_t tokens);
/* The part of a report from token number `first` on. */
raffle_report report_from(const raffle_report *report, int64_t first);

#endif
