/* report.c - the arrays of a raffle_report: log-probabilities, ranks, entropy and the kept set of each row. */
#include "core.h"

#include <string.h>

/* In the order of the tuple. `count`: the field that has the length of the last axis, or 0 where there is none. `tokens`: how many a
 * number of that axis stands for if it is as long as the vocabulary, or 0. */
static const struct {
    const char *name;
    size_t field, count;
    int code, per_line, written, tokens;
} arrays[REPORT_ARRAYS] = {
    {"logprob", offsetof(raffle_report, chosen), 0, DL_FLOAT, 0, 1, 0},
    {"rank", offsetof(raffle_report, rank), 0, DL_INT, 0, 1, 0},
    {"entropy", offsetof(raffle_report, entropy), 0, DL_FLOAT, 0, 1, 0},
    {"top_tokens", offsetof(raffle_report, top_token), offsetof(raffle_report, top_count), DL_INT, 1, 1, 0},
    {"top_logprobs", offsetof(raffle_report, top), offsetof(raffle_report, top_count), DL_FLOAT, 1, 1, 0},
    {"logprob_token_ids", offsetof(raffle_report, given), offsetof(raffle_report, given_count), DL_INT, 1, 0, 0},
    {"given_logprobs", offsetof(raffle_report, given_logprob), offsetof(raffle_report, given_count), DL_FLOAT, 1, 1, 0},
    {"given_ranks", offsetof(raffle_report, given_rank), offsetof(raffle_report, given_count), DL_INT, 1, 1, 0},
    {"all_logprobs", offsetof(raffle_report, all), 0, DL_FLOAT, 1, 1, 1},
    {"kept", offsetof(raffle_report, kept), 0, DL_INT, 1, 1, 32},
    {"kept_list", offsetof(raffle_report, kept_list), 0, DL_INT, 1, 1, 0},
    {"kept_count", offsetof(raffle_report, kept_count), 0, DL_INT, 0, 1, 0},
};

static int array_of(report_arrays *r, const batch *b, PyObject *object, int which) {
    char text[32];
    array_view *v = &r->view[which];
    const char *name = arrays[which].name;
    char *report = (char *)&r->report;
    if (object == Py_None) return 0;
    if (batch_take_beside(b, object, name, arrays[which].per_line, arrays[which].written, v)) return -1;
    if (!array_is(v, arrays[which].code, 32)) {
        PyErr_Format(PyExc_TypeError, "%s has dtype %s: must be %s", name, array_dtype_name(v->dtype, text, sizeof text),
                     arrays[which].code == DL_INT ? "int32" : "float32");
        return -1;
    }
    int64_t wide = arrays[which].per_line ? v->shape[v->ndim - 1] : 0;
    const int tokens = arrays[which].tokens;
    const int whole = !tokens || wide == (b->plan->desc.vocab + tokens - 1) / tokens;
    int32_t before = -1, count = (int32_t)wide;
    if (arrays[which].count) memcpy(&before, report + arrays[which].count, sizeof before);
    if (!array_is_contiguous(v) || wide > INT32_MAX || (before >= 0 && before != wide) || !whole) {
        PyErr_Format(PyExc_ValueError, "%s must be contiguous, and as long as its neighbours", name);
        return -1;
    }
    if (arrays[which].count) memcpy(report + arrays[which].count, &count, sizeof count);
    if (arrays[which].field == offsetof(raffle_report, kept_list)) r->report.kept_list_stride = wide;
    static char nothing[8]; /* where arrays of no rows are, which have no memory */
    const char *data = v->data || b->rows ? v->data : nothing;
    memcpy(report + arrays[which].field, &data, sizeof data);
    return 0;
}

int report_take(report_arrays *r, const batch *b, PyObject *object) {
    memset(r, 0, sizeof *r);
    r->report = raffle_report_init();
    if (object == Py_None) return 0;
    if (!PyTuple_Check(object) || PyTuple_Size(object) != 1 + REPORT_ARRAYS) {
        PyErr_Format(PyExc_TypeError, "report must be a tuple of %d", 1 + REPORT_ARRAYS);
        return -1;
    }
    r->report.point = (int32_t)PyLong_AsLong(PyTuple_GetItem(object, 0));
    r->report.top_count = r->report.given_count = -1; /* not seen yet; 0 is a length */
    for (int i = 0; i < REPORT_ARRAYS && !PyErr_Occurred(); ++i) array_of(r, b, PyTuple_GetItem(object, 1 + i), i);
    if (r->report.top_count < 0) r->report.top_count = 0;
    if (r->report.given_count < 0) r->report.given_count = 0;
    return PyErr_Occurred() ? -1 : 0;
}

int report_blank(const report_arrays *r, device_fill *fills) {
    int count = 0;
    for (int i = 0; i < REPORT_ARRAYS; ++i) {
        const array_view *v = &r->view[i];
        const int is_token = arrays[i].field == offsetof(raffle_report, top_token);
        const uint32_t none = arrays[i].code == DL_FLOAT ? 0x7fc00000u : 0; /* NaN; rank 0, nothing kept */
        const uint64_t nothing = is_token ? (uint32_t)RAFFLE_NO_TOKEN : none;
        const device_fill fill = {v->data, nothing, 0, array_count(v), 4, 0};
        if (v->data && arrays[i].written) fills[count++] = fill;
    }
    return count;
}

void report_release(report_arrays *r) {
    for (int i = 0; i < REPORT_ARRAYS; ++i) array_release(&r->view[i]);
}
