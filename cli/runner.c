#define _POSIX_C_SOURCE 200809L
#include "runner.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

raffle_plan_desc runner_desc(const options *o, raffle_dtype dtype, int64_t vocab, int64_t rows) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.backend = (int32_t)o->backend;
    desc.dtype = (int32_t)dtype;
    desc.isa = (int32_t)options_isa(o);
    desc.vocab = vocab;
    desc.rows_max = o->backend == RAFFLE_CUDA ? rows : 0;
    return desc;
}

static int on_device(const runner *r) { return r->desc.backend == RAFFLE_CUDA; }

static void *workspace_new(const runner *r, raffle_error *error) {
    void *made;
    if (on_device(r)) return device_new(&made, r->workspace_bytes, error) ? NULL : made;
    return posix_memalign(&made, RAFFLE_WORKSPACE_ALIGN, r->workspace_bytes) ? NULL : made;
}

exit_code runner_open(runner *r, const raffle_plan_desc *desc, int workers) {
    raffle_error error = raffle_error_init();
    memset(r, 0, sizeof *r);
    if (raffle_plan_create(desc, &r->plan, &error)) return complain_of(&error);
    r->desc = *desc;
    r->workers = on_device(r) ? 1 : workers;
    r->workspace_bytes = raffle_plan_workspace(r->plan);
    r->workspace = calloc((size_t)r->workers, sizeof *r->workspace);
    for (int i = 0; r->workspace && i < r->workers; ++i)
        if (!(r->workspace[i] = workspace_new(r, &error))) break;
    if (!r->workspace || !r->workspace[r->workers - 1]) {
        runner_close(r);
        if (error.status) return complain_of(&error);
        return complain("out of memory for %d workspaces", workers), EXIT_MACHINE;
    }
    return EXIT_FINE;
}

void runner_close(runner *r) {
    for (int i = 0; r->workspace && i < r->workers; ++i)
        on_device(r) ? device_free(r->workspace[i]) : free(r->workspace[i]);
    free(r->workspace);
    raffle_plan_destroy(r->plan);
    memset(r, 0, sizeof *r);
}

raffle_launch runner_launch(const runner *r, int worker) {
    raffle_launch launch = raffle_launch_init();
    launch.workspace = r->workspace[worker];
    launch.workspace_bytes = r->workspace_bytes;
    return launch;
}

raffle_status runner_sample(const runner *r, int worker, const raffle_logits *logits, const raffle_params *params,
                            const raffle_result *result, int part, int parts, raffle_error *error) {
    if (on_device(r)) return runner_sample_device(r, logits, params, 1, result, error);
    raffle_launch launch = runner_launch(r, worker);
    launch.part = part;
    launch.parts = parts > 1 ? parts : 0;
    return raffle_sample(r->plan, logits, params, result, &launch, error);
}

raffle_status runner_enqueue(const runner *r, const raffle_logits *logits, const raffle_params *params,
                             const raffle_result *result, raffle_error *error) {
    const raffle_launch launch = runner_launch(r, 0);
    return raffle_sample(r->plan, logits, params, result, &launch, error);
}

settings settings_of(const options *o) {
    const settings made = {o->temperature, o->top_p, o->min_p, o->top_k, o->flags, o->seed};
    return made;
}

raffle_params settings_params(const settings *s, const uint64_t *position, const int32_t *slot) {
    raffle_params params = raffle_params_init();
    params.slots = 1;
    params.slot = slot;
    params.flags = s->flags;
    params.temperature = &s->temperature;
    params.top_p = &s->top_p;
    params.min_p = &s->min_p;
    params.top_k = &s->top_k;
    params.seed = &s->seed;
    params.position = position;
    return params;
}

/* Part number `index` of `count` of a job, by worker number `index`. */
typedef raffle_status (*part_function)(const runner *r, const void *job, int index, int count, raffle_error *error);

typedef struct share {
    const runner *runner;
    part_function run;
    const void *job;
    int index, count; /* this thread of so many */
    raffle_error error;
    raffle_status status;
} share;

static void *share_run(void *given) {
    share *const s = given;
    s->status = s->run(s->runner, s->job, s->index, s->count, &s->error);
    return NULL;
}

/* A job that can be cut into at most `most` parts, on as many workers. */
static exit_code share_out(const runner *r, part_function run, const void *job, int64_t most) {
    const int count = most < r->workers ? (int)most : r->workers;
    pthread_t *const threads = malloc((size_t)count * sizeof *threads);
    share *const shares = malloc((size_t)count * sizeof *shares);
    exit_code code = EXIT_FINE;
    if (!threads || !shares) {
        complain("out of memory for %d threads", count);
        code = EXIT_MACHINE;
    }
    int started = 0;
    for (; !code && started < count; ++started) {
        const share made = {r, run, job, started, count, raffle_error_init(), RAFFLE_OK};
        shares[started] = made;
        /* The last share is this thread's own, so that one worker needs no thread at all. */
        if (started == count - 1) {
            share_run(&shares[started]);
        } else if (pthread_create(&threads[started], NULL, share_run, &shares[started])) {
            complain("cannot start %d threads", count);
            code = EXIT_MACHINE;
            break;
        }
    }
    for (int i = 0; i < started; ++i) {
        if (i < count - 1) pthread_join(threads[i], NULL);
        if (shares[i].status && !code) code = complain_of(&shares[i].error);
    }
    free(shares);
    free(threads);
    return code;
}

/* A draw_job, and zeros for all of its rows. */
typedef struct slotted_job {
    const draw_job *job;
    const int32_t *slot;
} slotted_job;

/* A range of draws if the job is one row, else a range of rows. */
static raffle_status draw_part(const runner *r, const void *given, int index, int count, raffle_error *error) {
    const slotted_job *const s = given;
    const draw_job *const job = s->job;
    raffle_logits logits = raffle_logits_init();
    raffle_result result = raffle_result_init();
    raffle_report report;
    raffle_status status = RAFFLE_OK;
    logits.data = job->logits;
    logits.rows = job->rows;
    const int by_draws = job->rows == 1;
    const int64_t first = by_draws ? job->draws * index / count : 0;
    const int64_t end = by_draws ? job->draws * (index + 1) / count : 1;
    for (int64_t draw = first; draw < end && !status; ++draw) {
        const uint64_t position = job->position + (uint64_t)draw;
        raffle_params params = settings_params(&job->settings, &position, s->slot);
        uint32_t same; /* every draw of a row finds the same flags: one thread keeps them */
        result.token = job->token + draw;
        result.row_flags = draw == 0 ? job->row_flags : &same;
        if (job->request) request_add(job->request, &params);
        if (job->request && job->request->report.size) {
            report = report_from(&job->request->report, draw);
            result.report = &report;
        }
        status = runner_sample(r, index, &logits, &params, &result, by_draws ? 0 : index, by_draws ? 1 : count, error);
    }
    return status;
}

/* The whole job on the GPU. */
static exit_code draw_on_device(const runner *r, const draw_job *job) {
    raffle_error error = raffle_error_init();
    raffle_logits logits = raffle_logits_init();
    raffle_result result = raffle_result_init();
    uint64_t *const position = malloc((size_t)job->draws * sizeof *position);
    int32_t *const slot = calloc((size_t)job->rows, sizeof *slot);
    exit_code code = EXIT_FINE;
    if (position && slot) {
        for (int64_t draw = 0; draw < job->draws; ++draw) position[draw] = job->position + (uint64_t)draw;
        raffle_params params = settings_params(&job->settings, position, slot);
        if (job->request) request_add(job->request, &params);
        logits.data = job->logits;
        logits.rows = job->rows;
        result.token = job->token;
        result.row_flags = job->row_flags;
        if (job->request && job->request->report.size) result.report = &job->request->report;
        if (runner_sample_device(r, &logits, &params, job->draws, &result, &error)) code = complain_of(&error);
    } else {
        complain("out of memory");
        code = EXIT_MACHINE;
    }
    free(slot);
    free(position);
    return code;
}

exit_code runner_draw(const runner *r, const draw_job *job) {
    if (on_device(r)) return draw_on_device(r, job);
    int32_t *const slot = calloc((size_t)job->rows, sizeof *slot);
    const slotted_job slotted = {job, slot};
    if (!slot) return complain("out of memory"), EXIT_MACHINE;
    const exit_code code = share_out(r, draw_part, &slotted, job->rows == 1 ? job->draws : job->rows);
    free(slot);
    return code;
}

static raffle_status write_part(const runner *r, const void *given, int index, int count, raffle_error *error) {
    const write_job *const job = given;
    raffle_launch launch = runner_launch(r, index);
    launch.part = index;
    launch.parts = count > 1 ? count : 0;
    return (job->mask ? raffle_mask : raffle_softmax)(r->plan, &job->logits, &job->params, &job->output, &launch, error);
}

exit_code runner_write(const runner *r, const write_job *job) {
    raffle_error error = raffle_error_init();
    if (!on_device(r)) return share_out(r, write_part, job, job->logits.rows ? job->logits.rows : 1);
    return runner_write_device(r, job, &error) ? complain_of(&error) : EXIT_FINE;
}
