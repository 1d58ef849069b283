/* verify.c - raffle_verify on arrays. */
#include "core.h"

#include <string.h>

/* A batch, its drafts and what becomes of them. The batch comes first: batch_run hands it back. */
typedef struct verify_call {
    batch batch;
    raffle_drafts drafts;
    raffle_verified verified;
    raffle_logits draft_logits;
    raffle_params draft_params;
    raffle_probabilities draft_probs;
    param token, first, parent, draft_param[4];
    array_view logits_view, probs_view, accepted, last, path;
    report_arrays told;
    batch_after after;
} verify_call;

static raffle_status verify_run(const batch *b, const raffle_launch *launch, raffle_error *error) {
    const verify_call *c = (const verify_call *)(const void *)b;
    return raffle_verify(b->plan->plan, &b->logits, &b->params, &c->drafts, &c->verified, launch, error);
}

/* Rows that drafts were drawn from: [drafts, vocab]. */
static int rows_take(const verify_call *c, PyObject *object, const char *name, array_view *v) {
    if (array_take(object, name, -1, v)) return -1;
    if (v->ndim != 2 || v->shape[1] != c->batch.plan->desc.vocab || v->shape[0] != c->token.count) {
        PyErr_Format(PyExc_ValueError, "%s must be [%lld, %lld]: a row for every draft", name, (long long)c->token.count,
                     (long long)c->batch.plan->desc.vocab);
        return -1;
    }
    if (array_count(v) && ((v->shape[1] > 1 && v->stride[1] != 1) || (v->shape[0] > 1 && v->stride[0] == 0))) {
        PyErr_Format(PyExc_ValueError, "%s must be contiguous along the vocabulary, and have rows of its own", name);
        return -1;
    }
    if (array_on_gpu(v) != array_on_gpu(&c->batch.logits_view)) {
        PyErr_Format(PyExc_ValueError, "%s is on another device than the logits", name);
        return -1;
    }
    return 0;
}

static int draft_logits_take(verify_call *c, PyObject *object, int dtype) {
    array_view *v = &c->logits_view;
    if (object == Py_None) return 0;
    if (rows_take(c, object, "draft_logits", v)) return -1;
    int found = batch_dtype(v, "draft_logits", dtype);
    if (found < 0) return -1;
    if (found != c->batch.plan->desc.dtype) {
        PyErr_SetString(PyExc_TypeError, "draft_logits must have the dtype of the logits");
        return -1;
    }
    c->draft_logits.data = v->data;
    c->draft_logits.rows = v->shape[0];
    c->draft_logits.row_stride = v->shape[0] > 1 ? v->stride[0] : 0;
    c->drafts.logits = &c->draft_logits;
    c->drafts.params = &c->draft_params;
    return 0;
}

static int draft_probs_take(verify_call *c, PyObject *object) {
    char text[32];
    array_view *v = &c->probs_view;
    if (object == Py_None) return 0;
    if (rows_take(c, object, "draft_probs", v)) return -1;
    if (!array_is(v, DL_FLOAT, 32)) {
        PyErr_Format(PyExc_TypeError, "draft_probs has dtype %s: must be float32", array_dtype_name(v->dtype, text, sizeof text));
        return -1;
    }
    c->draft_probs.data = (const float *)(const void *)v->data;
    c->draft_probs.rows = v->shape[0];
    c->draft_probs.row_stride = v->shape[0] > 1 ? v->stride[0] : 0;
    c->drafts.probabilities = &c->draft_probs;
    return 0;
}

/* What the drafts were sampled with: (temperature, top_k, top_p, min_p), by the batch's slots. Where the target's parameters are those
 * of a pool (`owned`), with an entry per request: the pool has no place for them. */
static int draft_params_take(verify_call *c, PyObject *params, unsigned flags, int owned) {
    static const char *const names[] = {"draft temperature", "draft top_k", "draft top_p", "draft min_p"};
    batch *b = &c->batch;
    const int far = b->plan->desc.backend == RAFFLE_CUDA;
    raffle_params *p = &c->draft_params;
    const void **const fields[] = {(const void **)&p->temperature, (const void **)&p->top_k, (const void **)&p->top_p,
                                   (const void **)&p->min_p};
    p->flags = flags;
    const int64_t entries = owned ? b->entries : b->slots;
    p->slot = owned ? NULL : b->params.slot;
    p->slots = entries;
    for (int i = 0; i < 4; ++i) {
        param *d = &c->draft_param[i];
        if (param_take(d, PyTuple_GetItem(params, i), names[i], i == 1 ? PARAM_CLAMPED : PARAM_F32, entries, &b->logits_view.device))
            return -1;
        param_drop_default(d, i == 0 || i == 2 ? 1.0 : 0.0);
        if (!far && d->data && d->scalar && param_spread(d, 0, entries)) return -1;
        if (batch_more(b, d, entries, 3 + i, i == 0, fields[i])) return -1;
    }
    return 0;
}

static int outputs_take(verify_call *c, PyObject *accepted, PyObject *last, PyObject *path) {
    struct {
        PyObject *object;
        const char *name;
        array_view *view;
        int64_t count;
        int32_t **field;
    } const outputs[] = {{accepted, "accepted", &c->accepted, c->drafts.requests, &c->verified.accepted},
                         {last, "last", &c->last, c->drafts.requests, &c->verified.last},
                         {path, "path", &c->path, c->batch.rows, &c->verified.path}};
    for (int i = 0; i < 3; ++i) {
        array_view *v = outputs[i].view;
        if (outputs[i].object == Py_None) continue;
        if (array_take(outputs[i].object, outputs[i].name, -1, v)) return -1;
        if (!array_is(v, DL_INT, 32) || !array_is_contiguous(v) || v->read_only || array_count(v) != outputs[i].count ||
            array_on_gpu(v) != array_on_gpu(&c->batch.logits_view)) {
            PyErr_Format(PyExc_ValueError, "%s must be %lld contiguous int32 beside the logits", outputs[i].name,
                         (long long)outputs[i].count);
            return -1;
        }
        *outputs[i].field = (int32_t *)(void *)v->data;
    }
    return 0;
}

/* Number `which` of what the batch may have to write to the GPU. */
static int integers_take(verify_call *c, param *p, PyObject *object, const char *name, int64_t count, int which, const int32_t **data) {
    if (param_take(p, object, name, PARAM_I32, count, &c->batch.logits_view.device)) return -1;
    if (!p->data || !p->scalar) return batch_more(&c->batch, p, p->count, which, 0, (const void **)data);
    PyErr_Format(PyExc_ValueError, "%s must be an array", name);
    return -1;
}

/* What the library says of arrays that it can read, where they are the host's and the rows a GPU's. 0, or -1 with an exception. */
static int drafts_check(const verify_call *c) {
    const raffle_drafts *d = &c->drafts;
    const int32_t *first = c->first.on_gpu ? NULL : c->first.data, *token = c->token.data, *parent = c->parent.data;
    int64_t from = 0;
    if (c->batch.plan->desc.backend != RAFFLE_CUDA || c->first.on_gpu) return 0;
    for (int64_t i = 0; first && i <= d->requests; from = first[i++]) {
        const int64_t least = i == d->requests ? c->token.count : from, most = i ? c->token.count : 0;
        if (first[i] >= least && first[i] <= most) continue;
        PyErr_Format(PyExc_ValueError, "first[%lld] is %d: must be %lld to %lld", (long long)i, (int)first[i], (long long)least,
                     (long long)most);
        return -1;
    }
    for (int64_t r = 0, i = 0; r < d->requests; ++r) {
        const int64_t begin = first ? first[r] : r * d->each, end = first ? first[r + 1] : begin + d->each;
        for (; i < end; ++i) {
            const int64_t below = c->batch.plan->desc.vocab;
            const int bad_token = token && !c->token.on_gpu && (token[i] < -1 || token[i] >= below);
            const int bad_parent = parent && !c->parent.on_gpu && (parent[i] < -1 || parent[i] >= i - begin);
            if (!bad_token && !bad_parent) continue;
            PyErr_Format(PyExc_ValueError, "%sdraft %lld of request %lld is %d: must be -1 to %lld", bad_token ? "" : "parent of ",
                         (long long)(i - begin), (long long)r, (int)(bad_token ? token[i] : parent[i]),
                         (long long)(bad_token ? below : i - begin) - 1);
            return -1;
        }
    }
    return 0;
}

/* Rows that a `first` on the GPU leaves to no request, because it is wrong, have no token. NULL, or what went wrong. */
static const char *rows_blank(const verify_call *c) {
    const batch *b = &c->batch;
    device_fill fills[DEVICE_FILLS_MAX] = {{c->verified.token, (uint32_t)RAFFLE_NO_TOKEN, 0, b->rows, 4, 0},
                                           {c->verified.row_flags, RAFFLE_ROW_ARGUMENT, 0, c->verified.row_flags ? b->rows : 0, 4, 0}};
    if (!c->first.on_gpu) return NULL;
    const int count = 2 + report_blank(&c->told, fills + 2);
    return device_fill_arrays(b->plan->desc.device, fills, count, b->launch.stream);
}

static void verify_release(verify_call *c) {
    param_release(&c->token);
    param_release(&c->first);
    param_release(&c->parent);
    for (int i = 0; i < 4; ++i) param_release(&c->draft_param[i]);
    array_release(&c->logits_view);
    array_release(&c->probs_view);
    array_release(&c->accepted);
    array_release(&c->last);
    array_release(&c->path);
    report_release(&c->told);
    batch_release(&c->batch);
}

/* verify(..., drafts, requests, each, first, parent, draft_logits, draft_probs, draft_params, draft_flags, method, threshold_single,
 * threshold_sum, rate, accepted, last, path, report, after): the arguments of sample, then these. `each` is -1 where first is given. On
 * a GPU the plan has as many rows more as draft_logits or draft_probs. */
PyObject *core_verify(PyObject *module, PyObject *arguments) {
    (void)module;
    enum { MORE = 18 };
    batch_arguments a;
    verify_call c;
    PyObject *drafts, *first, *parent, *logits, *probs, *params, *accepted, *last, *path, *report = Py_None;
    long long requests = 0, each;
    int method;
    unsigned flags;
    memset(&c, 0, sizeof c);
    c.drafts = raffle_drafts_init();
    c.verified = raffle_verified_init();
    c.draft_logits = raffle_logits_init();
    c.draft_params = raffle_params_init();
    c.draft_probs = raffle_probabilities_init();
    if (batch_parse(arguments, MORE, &a)) return NULL;
    Py_ssize_t size = PyTuple_Size(arguments);
    PyObject *more = PyTuple_GetSlice(arguments, size - MORE, size);
    int good = more && PyArg_ParseTuple(more, "OLLOOOOO!IifffOOOOi", &drafts, &requests, &each, &first, &parent, &logits, &probs,
                                        &PyTuple_Type, &params, &flags, &method, &c.drafts.threshold_single,
                                        &c.drafts.threshold_sum, &c.drafts.rate, &accepted, &last, &path, &report, &c.after.what);
    Py_XDECREF(more); /* `arguments` has the same objects */
    a.entries = requests;
    a.reports = report != Py_None;
    a.draft_rows = good && (logits != Py_None || probs != Py_None);
    if (!good || batch_build(&c.batch, &a)) return NULL;
    if (c.batch.logits.row_index) {
        PyErr_SetString(PyExc_ValueError, "logits are one row that is repeated (stride 0): drafts need rows of their own");
        batch_release(&c.batch);
        return NULL;
    }
    c.drafts.method = method;
    c.drafts.requests = requests;
    c.drafts.each = each < 0 ? 0 : each;
    int status = integers_take(&c, &c.token, drafts, "drafts", each < 0 ? -1 : requests * each, 0, &c.drafts.token) ||
                 integers_take(&c, &c.first, first, "first", requests + 1, 1, &c.drafts.first) ||
                 integers_take(&c, &c.parent, parent, "parent", c.token.count, 2, &c.drafts.parent);
    if (!status && c.batch.rows != c.token.count + requests) {
        PyErr_Format(PyExc_ValueError, "logits have %lld rows: %lld drafts of %lld requests need %lld", (long long)c.batch.rows,
                     (long long)c.token.count, requests, (long long)c.token.count + requests);
        status = -1;
    }
    status = status || draft_logits_take(&c, logits, a.dtype) || draft_probs_take(&c, probs) ||
             draft_params_take(&c, params, flags, a.params == Py_None) || outputs_take(&c, accepted, last, path) ||
             report_take(&c.told, &c.batch, report) || drafts_check(&c);
    if (!status && c.after.what && (each < 0 || a.params != Py_None)) {
        PyErr_SetString(PyExc_ValueError, "after is for the requests of a pool, with as many drafts each");
        status = -1;
    }
    c.verified.report = a.reports ? &c.told.report : NULL;
    c.verified.token = c.batch.result.token;
    c.verified.row_flags = c.batch.result.row_flags;
    c.after.each = c.drafts.each;
    c.after.draft = c.drafts.token;
    c.after.accepted = c.verified.accepted;
    const char *wrong = status ? NULL : rows_blank(&c);
    if (wrong) PyErr_SetString(PyExc_RuntimeError, wrong);
    status = status || wrong || after_check(&c.batch, &c.after) || batch_run(&c.batch, verify_run) || after_run(&c.batch, &c.after);
    verify_release(&c);
    if (status) return NULL;
    Py_RETURN_NONE;
}
