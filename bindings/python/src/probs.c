/* probs.c - raffle_softmax and raffle_mask: rows of probabilities or logits, and kept sets. */
#include "core.h"

#include <string.h>

/* A batch and where its rows go. The batch comes first: batch_run hands it back. */
typedef struct rows_call {
    batch batch;
    raffle_output output;
    array_view data, kept, kept_list, kept_count;
    int is_mask;
} rows_call;

static raffle_status rows_run(const batch *b, const raffle_launch *launch, raffle_error *error) {
    const rows_call *c = (const rows_call *)(const void *)b;
    return (c->is_mask ? raffle_mask : raffle_softmax)(b->plan->plan, &b->logits, &b->params, &c->output, launch, error);
}

/* Whether the output shares memory with the logits, other than by being them: results would depend on the order of
 * work. Rows of one wide array that lie side by side do not. */
static int rows_overlap(const batch *b, const array_view *out) {
    const array_view *in = &b->logits_view;
    int64_t in_bytes = in->dtype.bits / 8, out_bytes = out->dtype.bits / 8, vocab = b->plan->desc.vocab;
    int64_t in_rows = in->ndim == 2 ? in->shape[0] : 1, in_last = in_rows - 1, last = b->rows - 1;
    int64_t in_step = in_rows > 1 ? in->stride[0] * in_bytes : 0, out_step = b->rows > 1 ? out->stride[0] * out_bytes : 0;
    int64_t in_row = vocab * in_bytes, out_row = vocab * out_bytes;
    if (b->rows == 0 || in_rows == 0) return 0;
    if (in->data == out->data && in_step == out_step && in_bytes == out_bytes && !b->logits.row_index) return 0;
    const char *in_low = in->data + (in_step < 0 ? in_step * in_last : 0), *out_low = out->data + (out_step < 0 ? out_step * last : 0);
    const char *in_end = in->data + (in_step > 0 ? in_step * in_last : 0) + in_row;
    const char *out_end = out->data + (out_step > 0 ? out_step * last : 0) + out_row;
    if (in_end <= out_low || out_end <= in_low) return 0;
    if (in_step != out_step || in_step == 0) return 1;
    int64_t step = in_step < 0 ? -in_step : in_step, apart = (out_low - in_low) % step;
    apart = apart < 0 ? apart + step : apart;
    return !(apart >= in_row && step - apart >= out_row);
}

static int data_take(rows_call *c, PyObject *object, int dtype) {
    array_view *v = &c->data;
    batch *b = &c->batch;
    if (object == Py_None) return 0;
    if (batch_take_beside(b, object, "out", 1, 1, v)) return -1;
    int found = batch_dtype(v, "out", dtype);
    if (found < 0) return -1;
    if (v->shape[v->ndim - 1] != b->plan->desc.vocab) {
        PyErr_Format(PyExc_ValueError, "out has %lld entries per row: the vocabulary has %lld",
                     (long long)v->shape[v->ndim - 1], (long long)b->plan->desc.vocab);
        return -1;
    }
    c->output.dtype = found;
    c->output.data = v->data;
    c->output.row_stride = b->rows > 1 ? v->stride[0] : 0;
    if (b->rows > 1 && v->stride[0] == 0) {
        PyErr_SetString(PyExc_ValueError, "out is one row that is repeated (stride 0)");
        return -1;
    }
    if (rows_overlap(b, v)) {
        PyErr_SetString(PyExc_ValueError, "out and the logits overlap: out must be the logits themselves, or apart from them");
        return -1;
    }
    return 0;
}

/* 32-bit integers beside the logits: bits [rows, words], ids [rows, room] or counts [rows]. */
static int words_take(rows_call *c, PyObject *object, const char *name, int axes, array_view *v) {
    char text[32];
    if (object == Py_None) return 0;
    if (batch_take_beside(&c->batch, object, name, axes, 1, v)) return -1;
    if (array_is(v, DL_INT, 32) || array_is(v, DL_UINT, 32)) return 0;
    PyErr_Format(PyExc_TypeError, "%s has dtype %s: must be 32-bit integers", name, array_dtype_name(v->dtype, text, sizeof text));
    return -1;
}

static int kept_take(rows_call *c, PyObject *kept, PyObject *list, PyObject *count) {
    raffle_output *o = &c->output;
    int64_t rows = c->batch.rows, words = (c->batch.plan->desc.vocab + 31) / 32;
    if (words_take(c, kept, "kept", 1, &c->kept) || words_take(c, list, "kept_list", 1, &c->kept_list) ||
        words_take(c, count, "kept_count", 0, &c->kept_count))
        return -1;
    if (kept != Py_None && c->kept.shape[c->kept.ndim - 1] < words) {
        PyErr_Format(PyExc_ValueError, "kept has %lld words per row: the vocabulary needs %lld",
                     (long long)c->kept.shape[c->kept.ndim - 1], (long long)words);
        return -1;
    }
    o->kept = (uint32_t *)(void *)c->kept.data;
    o->kept_stride = rows > 1 && o->kept ? c->kept.stride[0] : 0;
    o->kept_list = (int32_t *)(void *)c->kept_list.data;
    /* One row: its room is what the array has; more: from row to row, so rows must lie close. */
    if (o->kept_list) {
        int64_t room = c->kept_list.shape[c->kept_list.ndim - 1];
        o->kept_list_stride = room;
        if (rows > 1 && c->kept_list.stride[0] != room) {
            PyErr_SetString(PyExc_ValueError, "kept_list must be contiguous");
            return -1;
        }
    }
    o->kept_count = (int32_t *)(void *)c->kept_count.data;
    return 0;
}

/* rows(..., out, kept, kept_list, kept_count, out_dtype, is_mask, log): the arguments of sample, then these */
PyObject *core_rows(PyObject *module, PyObject *arguments) {
    (void)module;
    enum { MORE = 7 };
    batch_arguments a;
    rows_call c;
    PyObject *out, *kept, *list, *count;
    int dtype, log;
    memset(&c, 0, sizeof c);
    c.output = raffle_output_init();
    if (batch_parse(arguments, MORE, &a)) return NULL;
    Py_ssize_t size = PyTuple_Size(arguments);
    PyObject *more = PyTuple_GetSlice(arguments, size - MORE, size);
    int good = more && PyArg_ParseTuple(more, "OOOOipp", &out, &kept, &list, &count, &dtype, &c.is_mask, &log);
    Py_XDECREF(more);
    if (!good || batch_build(&c.batch, &a)) return NULL;
    c.output.flags = log ? RAFFLE_LOG : 0;
    c.output.row_flags = c.batch.result.row_flags;
    int status = data_take(&c, out, dtype) || kept_take(&c, kept, list, count) || batch_run(&c.batch, rows_run);
    array_release(&c.data);
    array_release(&c.kept);
    array_release(&c.kept_list);
    array_release(&c.kept_count);
    batch_release(&c.batch);
    if (status) return NULL;
    Py_RETURN_NONE;
}
