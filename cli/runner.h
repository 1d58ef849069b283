/* runner.h - a plan with its workspaces and threads. The only place that calls raffle_sample.
 *
 * Plans on the GPU take the same calls with the same host memory; runner_device.c moves it there and back. */
#ifndef RUNNER_H
#define RUNNER_H

#include "request.h"

typedef struct runner {
    raffle_plan *plan;
    raffle_plan_desc desc;
    int workers; /* threads that may draw at the same time */
    size_t workspace_bytes;
    void **workspace; /* [workers], where the plan computes */
} runner;

/* Makes the plan; complains and returns an exit code if that fails. A GPU has one worker. */
exit_code runner_open(runner *runner, const raffle_plan_desc *desc, int workers);
void runner_close(runner *runner);

/* The plan that the options ask for, for at most `rows` rows of `vocab` tokens in a call. */
raffle_plan_desc runner_desc(const options *options, raffle_dtype dtype, int64_t vocab, int64_t rows);

/* How worker number `worker` runs a call. */
raffle_launch runner_launch(const runner *runner, int worker);

/* raffle_sample with everything in host memory, by one worker: thread `part` of `parts`. */
raffle_status runner_sample(const runner *runner, int worker, const raffle_logits *logits, const raffle_params *params,
                            const raffle_result *result, int part, int parts, raffle_error *error);

/* raffle_sample with everything in memory of the GPU: enqueued, not waited for. */
raffle_status runner_enqueue(const runner *runner, const raffle_logits *logits, const raffle_params *params,
                             const raffle_result *result, raffle_error *error);

/* What runner_sample does for plans on the GPU, `draws` times over the same logits, which are copied once. Draw d reads
 * its positions from params->position + d and writes its tokens, and what is told of them, from number d * rows on. Rows
 * without gaps; params->extra has one slot. */
raffle_status runner_sample_device(const runner *runner, const raffle_logits *logits, const raffle_params *params,
                                   int64_t draws, const raffle_result *result, raffle_error *error);

/* A call of raffle_softmax, or with `mask` of raffle_mask: rows without gaps, params->extra has one slot. Of the output:
 * data, kept, kept_count and row_flags, as far as they are there. */
typedef struct write_job {
    int mask;
    raffle_logits logits;
    raffle_params params;
    raffle_output output;
} write_job;
/* On all workers. */
exit_code runner_write(const runner *runner, const write_job *job);
/* The same for plans on the GPU. */
raffle_status runner_write_device(const runner *runner, const write_job *job, raffle_error *error);

/* What every row of a job is drawn with. */
typedef struct settings {
    float temperature, top_p, min_p;
    int32_t top_k;
    uint32_t flags;
    uint64_t seed;
} settings;
settings settings_of(const options *options);
/* The same as a batch of one slot. All rows use it; `slot` is an array of zeros, or NULL for one row. */
raffle_params settings_params(const settings *settings, const uint64_t *position, const int32_t *slot);

/* Several draws from one row, or one draw from each of several rows; on all workers. */
typedef struct draw_job {
    const void *logits; /* [rows, vocab] */
    int64_t rows, draws;
    settings settings;
    const request *request; /* or NULL; its report has arrays of [rows, draws] */
    uint64_t position;      /* of draw 0; draw d is at position + d */
    int32_t *token;         /* [rows, draws] */
    uint32_t *row_flags;    /* [rows] */
} draw_job;
exit_code runner_draw(const runner *runner, const draw_job *job);

#endif
