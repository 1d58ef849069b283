/* batch.c - the arguments of a call on rows, checked and turned into the library's structs; and the threads. */
#include "core.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int batch_number(PyObject *number, const char *name) {
    int overflow = 0;
    long value = PyIndex_Check(number) ? PyLong_AsLongAndOverflow(number, &overflow) : 0;
    if (!PyIndex_Check(number)) PyErr_Format(PyExc_TypeError, "%s is %R: must be an integer", name, number);
    else if (overflow || value > INT_MAX || value < INT_MIN)
        PyErr_Format(PyExc_ValueError, "%s is %R: must be -2147483648 to 2147483647", name, number);
    return PyErr_Occurred() ? 0 : (int)value;
}

int batch_parse(PyObject *arguments, Py_ssize_t more, batch_arguments *a) {
    PyObject **const objects[] = {&a->logits, &a->params, &a->requests, &a->index,    &a->slot,
                                  &a->allow,  &a->token,  &a->row_flags, &a->workspace};
    int *const numbers[] = {&a->flags, &a->dtype, &a->input, &a->threads};
    static const char *const names[] = {"flags", "dtype", "probs", "threads"};
    enum { OBJECTS = sizeof objects / sizeof *objects, NUMBERS = sizeof numbers / sizeof *numbers };
    if (PyTuple_Size(arguments) != OBJECTS + NUMBERS + 1 + more) {
        PyErr_Format(PyExc_TypeError, "takes %zd arguments", (Py_ssize_t)(OBJECTS + NUMBERS + 1) + more);
        return -1;
    }
    for (int i = 0; i < OBJECTS; ++i) *objects[i] = PyTuple_GetItem(arguments, i);
    for (int i = 0; i < NUMBERS; ++i) {
        *numbers[i] = batch_number(PyTuple_GetItem(arguments, OBJECTS + i), names[i]);
        if (PyErr_Occurred()) return -1;
    }
    a->stream = PyTuple_GetItem(arguments, OBJECTS + NUMBERS);
    a->entries = -1;
    a->draft_rows = 0;
    a->reports = 0;
    return 0;
}

/* ---- logits --------------------------------------------------------------------------------------------------- */

int batch_dtype(const array_view *v, const char *name, int wanted) {
    char text[32];
    if (array_is(v, DL_FLOAT, 32) && wanted < 0) return RAFFLE_F32;
    if (array_is(v, DL_FLOAT, 16) && wanted < 0) return RAFFLE_F16;
    if (array_is(v, DL_BFLOAT, 16) && wanted < 0) return RAFFLE_BF16;
    if (wanted == RAFFLE_F16 || wanted == RAFFLE_BF16)
        if (v->dtype.bits == 16 && v->dtype.code <= DL_UINT) return wanted; /* bits without a type of their own */
    PyErr_Format(PyExc_TypeError, "%s: dtype is %s, must be %s", name, array_dtype_name(v->dtype, text, sizeof text),
                 wanted < 0 ? "float32, float16 or bfloat16" : "16-bit integers where dtype= is given");
    return -1;
}

/* The logits, and all of their plan's description but rows_max. */
static int logits_take(PyObject *object, int dtype, int input, void *stream, array_view *v, raffle_plan_desc *desc) {
    if (array_take(object, "logits", stream ? (int64_t)(intptr_t)stream : 1, v)) return -1;
    int found = batch_dtype(v, "logits", dtype);
    if (found < 0) return -1;
    if (v->ndim != 1 && v->ndim != 2) {
        PyErr_Format(PyExc_ValueError, "logits have %d axes: must be [rows, vocab] or [vocab]", (int)v->ndim);
        return -1;
    }
    int64_t vocab = v->shape[v->ndim - 1], rows = v->ndim == 2 ? v->shape[0] : 1;
    if (vocab > 1 && rows && v->stride[v->ndim - 1] != 1) {
        PyErr_SetString(PyExc_ValueError, "logits have a stride along the vocabulary: the tokens of a row must be contiguous");
        return -1;
    }
    *desc = raffle_plan_desc_init();
    desc->dtype = found;
    desc->vocab = vocab;
    desc->input = input;
    if (array_on_gpu(v)) {
        desc->backend = RAFFLE_CUDA;
        desc->device = v->device.id;
    }
    return 0;
}

/* Few plans for many batch sizes. */
static void desc_rows(raffle_plan_desc *desc, int64_t rows) {
    if (desc->backend != RAFFLE_CUDA) return;
    desc->rows_max = 16;
    while (desc->rows_max < rows) desc->rows_max *= 2;
}

/* What the plan must be able to do for these requests, if any, and for a report. 0, or -1 with an exception. */
static int desc_requests(raffle_plan_desc *desc, PyObject *object, int reports) {
    if (reports) desc->flags |= RAFFLE_PLAN_REPORT;
    if (reports && desc->input == RAFFLE_PROBS) {
        PyErr_SetString(PyExc_ValueError, "logprobs, logprob_token_ids and kept are for logits, and probs is True");
        return -1;
    }
    if (object == Py_None) return 0;
    if (Py_TYPE(object) != requests_type) {
        PyErr_Format(PyExc_TypeError, "requests must be a Requests object, not %R", (PyObject *)Py_TYPE(object));
        return -1;
    }
    const requests_object *q = (const requests_object *)object;
    if (!q->has_extra) return 0;
    if (desc->input == RAFFLE_PROBS) {
        PyErr_SetString(PyExc_ValueError, "penalties, biases, bans and what else raffle.More lists are for logits, and probs is True");
        return -1;
    }
    desc->flags |= RAFFLE_PLAN_EXTRA;
    desc->history_max = q->state.history_max;
    return 0;
}

/* Which row each result is of: as the caller says, or all of one row that is repeated with stride 0. */
static int index_take(batch *b, PyObject *object) {
    const array_view *v = &b->logits_view;
    b->one_row = v->ndim == 1;
    b->rows = b->one_row ? 1 : v->shape[0];
    b->logits.data = v->data;
    b->logits.row_stride = b->rows > 1 ? v->stride[0] : 0;
    if (object != Py_None) {
        if (b->one_row) {
            PyErr_SetString(PyExc_ValueError, "index is for logits [rows, vocab]");
            return -1;
        }
        if (param_take(&b->index, object, "index", PARAM_I32, -1, &v->device)) return -1;
        if (b->index.scalar) {
            PyErr_SetString(PyExc_ValueError, "index must have an entry per result");
            return -1;
        }
        if (b->rows == 0 && b->index.count) { /* the library takes 0 data_rows for "as many as results" */
            PyErr_SetString(PyExc_ValueError, "index has entries, and the logits have no rows");
            return -1;
        }
        b->logits.data_rows = b->rows;
        b->rows = b->index.count;
    } else if (b->rows > 1 && v->stride[0] == 0 && v->shape[1] > 0) {
        if (array_on_gpu(v)) {
            PyErr_SetString(PyExc_ValueError, "logits are one row that is repeated (stride 0): give the row, and index");
            return -1;
        }
        b->index.name = "index";
        b->index.made = calloc((size_t)b->rows, sizeof(int32_t));
        b->index.data = b->index.made;
        b->index.count = b->rows;
        b->logits.data_rows = 1;
        if (!b->index.made) return PyErr_NoMemory(), -1;
    }
    if (b->logits.data_rows && b->logits.data_rows < 2) b->logits.row_stride = 0;
    b->logits.rows = b->rows;
    return 0;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    param_type type;
    int required;
    double value; /* the default, at which a scalar means "off" */
    size_t field; /* of raffle_params */
} known[PARAM_COUNT] = {
    [PARAM_TEMPERATURE] = {"temperature", PARAM_F32, 0, 1.0, offsetof(raffle_params, temperature)},
    [PARAM_TOP_K] = {"top_k", PARAM_CLAMPED, 0, 0.0, offsetof(raffle_params, top_k)},
    [PARAM_TOP_P] = {"top_p", PARAM_F32, 0, 1.0, offsetof(raffle_params, top_p)},
    [PARAM_MIN_P] = {"min_p", PARAM_F32, 0, 0.0, offsetof(raffle_params, min_p)},
    [PARAM_SEED] = {"seed", PARAM_U64, 1, 0.0, offsetof(raffle_params, seed)},
    [PARAM_POSITION] = {"position", PARAM_U64, 1, 0.0, offsetof(raffle_params, position)},
};

static void params_point(batch *b, int which, const void *data) {
    memcpy((char *)&b->params + known[which].field, &data, sizeof data);
}

/* The arrays' common length: rows, or what the arrays say where `slot` maps rows to them. */
static int slots_agree(batch *b) {
    b->slots = b->slot.data ? -1 : b->entries;
    for (int i = 0; i < PARAM_COUNT; ++i) {
        const param *p = &b->param[i];
        if (!p->data || p->scalar) continue;
        if (b->slots < 0) b->slots = p->count;
        if (p->count == b->slots) continue;
        PyErr_Format(PyExc_ValueError, "%s has %lld entries where another parameter has %lld", p->name, (long long)p->count,
                     (long long)b->slots);
        return -1;
    }
    if (b->slots < 0) {
        PyErr_SetString(PyExc_ValueError, "slot is given, but no parameter is an array of slots");
        return -1;
    }
    return 0;
}

/* The arrays of the requests themselves. */
static int params_of_requests(batch *b) {
    const requests_object *q = b->requests;
    if (!q) {
        PyErr_SetString(PyExc_TypeError, "params and requests are both None");
        return -1;
    }
    b->slots = q->slots;
    for (int i = 0; i < PARAM_COUNT; ++i) params_point(b, i, array_on_gpu(&b->logits_view) ? q->there.array[i] : q->array[i]);
    return batch_slots_check(b);
}

int batch_slots_check(const batch *b) { return b->slot.on_gpu ? 0 : requests_check(b->requests, b->slot.data, b->entries); }

static int params_take(batch *b, const batch_arguments *a) {
    const dl_device *device = &b->logits_view.device;
    if (param_take(&b->slot, a->slot, "slot", PARAM_I32, b->entries, device)) return -1;
    if (b->slot.data && b->slot.scalar) {
        PyErr_SetString(PyExc_ValueError, "slot must have an entry per row");
        return -1;
    }
    if (a->params == Py_None) return params_of_requests(b);
    if (!PyTuple_Check(a->params) || PyTuple_Size(a->params) != PARAM_COUNT) {
        PyErr_Format(PyExc_TypeError, "params must be a tuple of %d", PARAM_COUNT);
        return -1;
    }
    for (int i = 0; i < PARAM_COUNT; ++i) {
        param *p = &b->param[i];
        PyObject *object = PyTuple_GetItem(a->params, i);
        if (param_take(p, object, known[i].name, known[i].type, b->slot.data ? -1 : b->entries, device)) return -1;
        if (!known[i].required) param_drop_default(p, known[i].value);
    }
    param *seed = &b->param[PARAM_SEED], *position = &b->param[PARAM_POSITION];
    if (!position->data) {
        PyErr_SetString(PyExc_TypeError, "position must be an integer, a list of integers or an array, not None");
        return -1;
    }
    if (!seed->data) {
        seed->value = fresh_seed();
        seed->data = &seed->value;
        seed->scalar = 1;
        seed->count = 1;
    }
    /* On a GPU numbers that differ from call to call go with the call, and nothing has to be written there. */
    if (array_on_gpu(&b->logits_view) && a->entries < 0) {
        if (seed->scalar) b->params.seed_offset = seed->value, seed->value = 0;
        if (position->scalar) b->params.position_offset = position->value, position->value = 0;
    }
    return slots_agree(b);
}

static int params_on_cpu(batch *b, int owned) {
    for (int i = 0; i < PARAM_COUNT && !owned; ++i) {
        param *p = &b->param[i];
        if (p->data && p->scalar && b->slots > 1 && param_spread(p, i == PARAM_SEED, b->slots)) return -1;
        params_point(b, i, p->data);
    }
    b->params.slot = b->slot.data;
    b->params.slots = b->slots;
    b->logits.row_index = b->index.data;
    return 0;
}

/* ---- parameters on a GPU ------------------------------------------------------------------------------------------ */

enum { UPLOADS = PARAM_COUNT + 2 + BATCH_MORE }; /* the parameters, slot, index, further ones */

size_t batch_upload_bytes(int64_t rows_max) { return (size_t)rows_max * 8 * UPLOADS; }

/* Where parameters that the host gave will be: behind the plan's workspace. */
static void *upload_place(const batch *b, int which) {
    return (char *)b->launch.workspace + b->plan->workspace_bytes + (size_t)b->plan->desc.rows_max * 8 * (size_t)which;
}

/* Values that the host has are checked here: the library cannot look at device memory, and would flag their rows. */
static int host_values_check(const batch *b, const param *p, int64_t entries, int is_temperature) {
    if (!p->data || p->on_gpu) return 0;
    if ((p->scalar ? entries : p->count) * (int64_t)param_size(p->type) > b->plan->desc.rows_max * 8) {
        PyErr_Format(PyExc_ValueError, "%s: with more slots than rows, parameters must be arrays on the GPU", p->name);
        return -1;
    }
    for (int64_t row = 0; row < p->count && p->type == PARAM_F32; ++row) {
        float value = ((const float *)p->data)[row];
        if (value == value && (value >= 0 || !is_temperature)) continue;
        raffle_error error = raffle_error_init();
        error.row = row;
        snprintf(error.text, sizeof error.text, "%s of row %lld is %g: must be %s", p->name, (long long)row, (double)value,
                 is_temperature ? "0 or more" : "a number");
        return core_raise(RAFFLE_E_ARGUMENT, &error), -1;
    }
    return 0;
}

/* The same of places: 0 to below `count`. */
static int host_places_check(const param *p, const char *name, int64_t count) {
    const int32_t *place = p->data;
    for (int64_t row = 0; place && !p->on_gpu && row < p->count; ++row) {
        if (place[row] >= 0 && place[row] < count) continue;
        raffle_error error = raffle_error_init();
        error.row = row;
        snprintf(error.text, sizeof error.text, "%s of row %lld is %d: must be 0 to %lld", name, (long long)row, (int)place[row],
                 (long long)count - 1);
        return core_raise(RAFFLE_E_ARGUMENT, &error), -1;
    }
    return 0;
}

/* `owned`: the requests' own, which are there already. */
static int params_on_gpu(batch *b, int owned) {
    for (int i = 0; i < PARAM_COUNT && !owned; ++i) {
        const param *p = &b->param[i];
        if (host_values_check(b, p, b->slots, i == PARAM_TEMPERATURE)) return -1;
        params_point(b, i, !p->data || p->on_gpu ? p->data : upload_place(b, i));
    }
    if (host_places_check(&b->slot, "slot", b->slots) || host_places_check(&b->index, "index", b->logits.data_rows)) return -1;
    b->params.slot = !b->slot.data || b->slot.on_gpu ? b->slot.data : upload_place(b, PARAM_COUNT);
    b->logits.row_index = !b->index.data || b->index.on_gpu ? b->index.data : upload_place(b, PARAM_COUNT + 1);
    b->params.slots = b->slots;
    return 0;
}

int batch_more(batch *b, const param *p, int64_t entries, int which, int is_temperature, const void **data) {
    *data = p->data;
    if (b->plan->desc.backend != RAFFLE_CUDA || !p->data || p->on_gpu) return 0;
    if (host_values_check(b, p, entries, is_temperature)) return -1;
    b->more[which] = p;
    b->more_entries[which] = entries;
    *data = upload_place(b, PARAM_COUNT + 2 + which);
    return 0;
}

/* Whether a kept workspace has this number already, where the batch reads it; if not, it will. */
static int upload_held(const batch *b, int which) {
    if (!b->space || which >= PARAM_COUNT) return 0;
    const param *p = &b->param[which];
    const int64_t rows = b->plan->desc.rows_max, wanted = b->slots > rows ? b->slots : rows; /* for batches of any size */
    const int64_t count = p->scalar && b->space->by_stream ? wanted : 0; /* by_stream: no graph ever writes to it */
    if (count && b->space->held[which].count >= b->slots && b->space->held[which].value == p->value) return 1;
    b->space->held[which].count = count;
    b->space->held[which].value = p->value;
    return 0;
}

raffle_status batch_upload(batch *b, raffle_error *error) {
    device_fill fills[DEVICE_FILLS_MAX];
    int count = 0, device = b->plan->desc.device;
    void *stream = b->launch.stream;
    for (int i = 0; i < UPLOADS; ++i) {
        const param *p = i < PARAM_COUNT ? &b->param[i] : i < PARAM_COUNT + 2 ? (i == PARAM_COUNT ? &b->slot : &b->index)
                                                                              : b->more[i - PARAM_COUNT - 2];
        if (!p || !p->data || p->on_gpu || upload_held(b, i)) continue;
        const int64_t held = b->space && i < PARAM_COUNT ? b->space->held[i].count : 0;
        const int64_t slots = held ? held : i < PARAM_COUNT + 2 ? b->slots : b->more_entries[i - PARAM_COUNT - 2];
        const device_fill fill = {upload_place(b, i), p->value, i == PARAM_SEED, p->scalar ? slots : p->count,
                                  (int32_t)param_size(p->type), p->scalar ? NULL : p->data};
        fills[count++] = fill;
    }
    const char *wrong = count ? device_fill_arrays(device, fills, count, stream) : NULL;
    if (!wrong && b->params.extra && !b->requests->there.resident) wrong = requests_upload(b->requests, stream);
    if (!wrong) return RAFFLE_OK;
    if (b->space) memset(b->space->held, 0, sizeof b->space->held);
    error->row = -1;
    strncpy(error->text, wrong, sizeof error->text - 1);
    return RAFFLE_E_DEVICE;
}

/* ---- masks and outputs -------------------------------------------------------------------------------------------- */

/* An array beside the logits: same device, `rows` lines (or none for one row), contiguous along the last axis. */
static int beside_check(const batch *b, const array_view *v, const char *name, int per_line) {
    const array_view *logits = &b->logits_view;
    if (array_on_gpu(v) != array_on_gpu(logits) || v->device.id != logits->device.id) {
        PyErr_Format(PyExc_ValueError, "%s is on another device than the logits", name);
        return -1;
    }
    int axes = !b->one_row + per_line, short_axes = b->one_row && v->ndim == axes + 1 && v->shape[0] == 1 ? axes + 1 : axes;
    if (v->ndim != short_axes || (v->ndim > per_line && v->shape[0] != b->rows)) {
        PyErr_Format(PyExc_ValueError, "%s must have %s%lld rows, as the logits", name, per_line ? "two axes and " : "",
                     (long long)b->rows);
        return -1;
    }
    if (v->ndim && array_count(v) && v->shape[v->ndim - 1] > 1 && v->stride[v->ndim - 1] != 1) {
        PyErr_Format(PyExc_ValueError, "%s must be contiguous", name);
        return -1;
    }
    return 0;
}

int batch_take_beside(const batch *b, PyObject *object, const char *name, int per_line, int written, array_view *v) {
    if (array_take(object, name, -1, v)) return -1;
    if (written && v->read_only) {
        PyErr_Format(PyExc_ValueError, "%s is read-only", name);
        return -1;
    }
    return beside_check(b, v, name, per_line);
}

static int output_take(batch *b, PyObject *object, const char *name, array_view *v, int is_signed) {
    char text[32];
    if (object == Py_None) return 0;
    if (batch_take_beside(b, object, name, 0, 1, v)) return -1;
    if (array_is(v, DL_INT, 32) || (!is_signed && array_is(v, DL_UINT, 32))) return 0;
    PyErr_Format(PyExc_TypeError, "%s has dtype %s: must be int32%s", name, array_dtype_name(v->dtype, text, sizeof text),
                 is_signed ? "" : " or uint32");
    return -1;
}

/* Whether tokens would be written over the slots, which are read once more when positions advance, or over the row flags. These
 * have one axis and no strides. 0, or -1 with an exception. */
static int tokens_apart(const batch *b, const array_view *other, const char *name) {
    const array_view *v = &b->token_view;
    const char *end = v->data + array_count(v) * (v->dtype.bits / 8);
    const char *other_end = other->data + array_count(other) * (other->dtype.bits / 8);
    if (!v->data || !other->data || end <= other->data || other_end <= v->data) return 0;
    PyErr_Format(PyExc_ValueError, "out and %s share memory", name);
    return -1;
}

/* bool [rows, vocab] to bits, on the host */
static int allow_pack(batch *b, const array_view *v) {
    int64_t vocab = b->plan->desc.vocab, words = (vocab + 31) / 32;
    int64_t stride = v->ndim == 2 ? v->stride[0] : 0;
    uint32_t *bits = calloc((size_t)(b->rows * words) + 1, sizeof *bits);
    if (!bits) return PyErr_NoMemory(), -1;
    for (int64_t row = 0; row < b->rows; ++row)
        for (int64_t i = 0; i < vocab; ++i)
            if (v->data[row * stride + i]) bits[row * words + i / 32] |= 1u << i % 32;
    b->packed = bits;
    b->params.allow = bits;
    b->params.allow_stride = words;
    return 0;
}

/* Bits whose rows do not follow each other, as those of one mask for all rows: the library wants them one behind the other. */
static int allow_copy(batch *b, const array_view *v, int64_t words) {
    uint32_t *bits = malloc((size_t)(b->rows * words) * sizeof *bits);
    if (!bits) return PyErr_NoMemory(), -1;
    for (int64_t row = 0; row < b->rows; ++row)
        memcpy(bits + row * words, v->data + row * v->stride[0] * (int64_t)sizeof *bits, (size_t)words * sizeof *bits);
    b->packed = bits;
    b->params.allow = bits;
    b->params.allow_stride = words;
    return 0;
}

static int allow_take(batch *b, PyObject *object) {
    array_view *v = &b->allow_view;
    char text[32];
    int64_t vocab = b->plan->desc.vocab, words = (vocab + 31) / 32;
    if (object == Py_None) return 0;
    if (batch_take_beside(b, object, "allow", 1, 0, v)) return -1;
    int64_t wide = v->shape[v->ndim - 1];
    if (v->dtype.code == DL_BOOL && v->dtype.bits == 8) {
        if (array_on_gpu(v)) {
            PyErr_SetString(PyExc_TypeError, "allow is bool: on a GPU give bits, as raffle.pack_mask makes them");
            return -1;
        }
        if (wide == vocab) return allow_pack(b, v);
        PyErr_Format(PyExc_ValueError, "allow has %lld entries per row: the vocabulary has %lld", (long long)wide, (long long)vocab);
        return -1;
    }
    if (!array_is(v, DL_INT, 32) && !array_is(v, DL_UINT, 32)) {
        PyErr_Format(PyExc_TypeError, "allow has dtype %s: must be bool [rows, vocab], or 32-bit integers with a bit per token",
                     array_dtype_name(v->dtype, text, sizeof text));
        return -1;
    }
    if (wide < words) {
        PyErr_Format(PyExc_ValueError, "allow has %lld words per row: %lld tokens need %lld", (long long)wide,
                     (long long)vocab, (long long)words);
        return -1;
    }
    if (v->ndim == 2 && b->rows > 1 && v->stride[0] < words) {
        if (!array_on_gpu(v)) return allow_copy(b, v, words);
        PyErr_Format(PyExc_ValueError, "allow has a stride of %lld words from row to row: on a GPU it must be %lld or more",
                     (long long)v->stride[0], (long long)words);
        return -1;
    }
    b->params.allow = (const uint32_t *)(const void *)v->data;
    b->params.allow_stride = v->ndim == 2 && b->rows > 1 ? v->stride[0] : words;
    return 0;
}

/* ---- the GPU's workspace and stream ----------------------------------------------------------------------------------- */

int stream_address(PyObject *number, void **stream) {
    *stream = PyLong_Check(number) ? PyLong_AsVoidPtr(number) : NULL;
    if (PyLong_Check(number) && !PyErr_Occurred()) return 0;
    PyErr_Clear();
    PyErr_Format(PyLong_Check(number) ? PyExc_ValueError : PyExc_TypeError, "stream is %R: must be a CUDA stream's address", number);
    return -1;
}

static int stream_take(batch *b, PyObject *stream, dl_device device) {
    b->stream_given = stream != Py_None;
    if (b->stream_given) return stream_address(stream, (void **)&b->launch.stream);
    if (array_current_stream(b->logits_object, device, (void **)&b->launch.stream)) {
        PyErr_SetString(PyExc_ValueError, "stream must be given: the logits' package does not tell its current stream");
        return -1;
    }
    return 0;
}

static int workspace_take(batch *b, PyObject *object) {
    if (Py_TYPE(object) != workspaces_type) {
        PyErr_SetString(PyExc_TypeError, "a call on a GPU needs Workspaces");
        return -1;
    }
    b->space = workspace_get(object, b);
    if (!b->space) return -1;
    const array_view *v = &b->space->view;
    int64_t bytes = array_count(v) * (v->dtype.bits / 8);
    if (!array_on_gpu(v) || v->device.id != b->plan->desc.device || !array_is_contiguous(v) || v->read_only ||
        bytes < (int64_t)(b->plan->workspace_bytes + batch_upload_bytes(b->plan->desc.rows_max))) {
        PyErr_SetString(PyExc_ValueError, "workspace must be plan.device_bytes of contiguous memory on the logits' GPU");
        return -1;
    }
    b->launch.workspace = v->data;
    b->launch.workspace_bytes = b->plan->workspace_bytes;
    return 0;
}

/* What requests ask for beyond the arrays, if any does, and what they have said: here, or in the memory of the logits' GPU. */
static int requests_take(batch *b, const batch_arguments *a, const raffle_plan_desc *desc) {
    if (a->requests == Py_None) return 0;
    requests_object *q = b->requests = (requests_object *)a->requests; /* lives as long as the caller's arguments */
    const int far = desc->backend == RAFFLE_CUDA, used = q->has_extra || a->params == Py_None;
    if (used && (far ? !q->there.memory.data || q->there.memory.device.id != desc->device : q->there.resident)) {
        PyErr_SetString(PyExc_ValueError, "the requests are on another device than the logits");
        return -1;
    }
    if (!q->has_extra) return 0;
    const raffle_state *state = far ? &q->there.state : &q->state;
    b->params.extra = far ? q->there.extra : q->extra;
    b->params.extra_bytes = sizeof *q->extra;
    b->params.state = state->memory ? state : NULL;
    return 0;
}

/* ---- all together --------------------------------------------------------------------------------------------------- */

static int build(batch *b, const batch_arguments *a) {
    raffle_plan_desc desc;
    array_view *v = &b->logits_view;
    void *stream = NULL;
    if (a->stream != Py_None && stream_address(a->stream, &stream)) return -1;
    b->logits_object = a->logits;
    if (logits_take(a->logits, a->dtype, a->input, stream, v, &desc) || index_take(b, a->index)) return -1;
    if (!array_on_gpu(v) && a->stream != Py_None) {
        PyErr_SetString(PyExc_ValueError, "stream is for a GPU: the logits are on the CPU");
        return -1;
    }
    b->entries = a->entries >= 0 ? a->entries : b->rows;
    desc_rows(&desc, b->rows + (a->draft_rows ? b->rows - b->entries : 0));
    if (desc_requests(&desc, a->requests, a->reports) || requests_take(b, a, &desc)) return -1;
    b->plan = plan_get(&desc); /* where a backend lacks something, it says so here */
    if (!b->plan || (array_on_gpu(v) && stream_take(b, a->stream, v->device))) return -1;
    b->params.flags = (uint32_t)a->flags;
    b->threads = a->threads;
    if (a->threads < 1 || a->threads > BATCH_THREADS_MAX) {
        PyErr_Format(PyExc_ValueError, "threads is %d: must be 1 to %d", a->threads, BATCH_THREADS_MAX);
        return -1;
    }
    if (array_on_gpu(v) && a->threads != 1) {
        PyErr_SetString(PyExc_ValueError, "threads is for the CPU: a GPU does all rows at once");
        return -1;
    }
    if (params_take(b, a) || allow_take(b, a->allow)) return -1;
    if (output_take(b, a->token, "out", &b->token_view, 1) ||
        output_take(b, a->row_flags, "row_flags", &b->row_flags_view, 0) || tokens_apart(b, &b->slot.view, "slot") ||
        tokens_apart(b, &b->index.view, "index") || tokens_apart(b, &b->row_flags_view, "row_flags"))
        return -1;
    b->result.token = (int32_t *)(void *)b->token_view.data;
    b->result.row_flags = (uint32_t *)(void *)b->row_flags_view.data;
    if (!array_on_gpu(v)) return params_on_cpu(b, a->params == Py_None);
    b->capturing = device_is_capturing(desc.device, b->launch.stream);
    if (workspace_take(b, a->workspace) || params_on_gpu(b, a->params == Py_None)) return -1;
    if (a->params != Py_None && PyTuple_GetItem(a->params, PARAM_SEED) == Py_None && b->capturing) {
        PyErr_SetString(PyExc_ValueError, "seed is None: a captured graph would draw the same at every replay. "
                                          "Give seed, and position as an array on the GPU");
        return -1;
    }
    return 0;
}

int batch_build(batch *b, const batch_arguments *a) {
    memset(b, 0, sizeof *b);
    b->logits = raffle_logits_init();
    b->params = raffle_params_init();
    b->result = raffle_result_init();
    b->launch = raffle_launch_init();
    if (build(b, a) == 0) return 0;
    batch_release(b);
    return -1;
}

void batch_release(batch *b) {
    array_release(&b->logits_view);
    array_release(&b->allow_view);
    array_release(&b->token_view);
    array_release(&b->row_flags_view);
    for (int i = 0; i < PARAM_COUNT; ++i) param_release(&b->param[i]);
    param_release(&b->slot);
    param_release(&b->index);
    workspace_release(b->space);
    b->space = NULL;
    free(b->packed);
    b->packed = NULL;
    Py_XDECREF((PyObject *)b->plan);
    b->plan = NULL;
}

/* ---- running -------------------------------------------------------------------------------------------------------- */

typedef struct part {
    const batch *b;
    batch_call call;
    raffle_launch launch;
    raffle_status status;
    raffle_error error;
    pthread_t thread;
} part;

static void *part_run(void *argument) {
    part *p = argument;
    p->error = raffle_error_init();
    p->status = p->call(p->b, &p->launch, &p->error);
    return NULL;
}

/* Parts 1 .. count-1 on threads of their own, part 0 on this one. A thread that cannot be had is done here. */
static void parts_run(part *parts, int count) {
    int started = 1;
    while (started < count && pthread_create(&parts[started].thread, NULL, part_run, &parts[started]) == 0) started++;
    for (int i = started; i < count; ++i) part_run(&parts[i]);
    part_run(&parts[0]);
    for (int i = 1; i < started; ++i) pthread_join(parts[i].thread, NULL);
}

int batch_begin(const batch *b) {
    if (!b->params.extra) return 0;
    if (!requests_idle(b->requests)) return -1;
    b->requests->running = 1;
    return 0;
}

void batch_end(const batch *b) {
    if (b->params.extra) b->requests->running = 0;
}

static int run_on_cpu(batch *b, batch_call call) {
    int count = b->rows < b->threads ? (b->rows ? (int)b->rows : 1) : b->threads, taken = 0;
    part one, *parts = count == 1 ? &one : calloc((size_t)count, sizeof *parts);
    if (!parts) return PyErr_NoMemory(), -1;
    for (; taken < count; ++taken) {
        part *p = &parts[taken];
        p->b = b;
        p->call = call;
        p->launch = b->launch;
        p->launch.workspace = plan_workspace_take(b->plan);
        p->launch.workspace_bytes = b->plan->workspace_bytes;
        p->launch.part = taken;
        p->launch.parts = count;
        if (!p->launch.workspace) break;
    }
    const part *failed = NULL;
    if (taken == count && batch_begin(b) == 0) {
        Py_BEGIN_ALLOW_THREADS
        parts_run(parts, count);
        Py_END_ALLOW_THREADS
        batch_end(b);
    }
    while (taken--) {
        plan_workspace_give(b->plan, parts[taken].launch.workspace);
        if (!PyErr_Occurred() && parts[taken].status) failed = &parts[taken];
    }
    if (failed) core_raise(failed->status, &failed->error);
    if (parts != &one) free(parts);
    return PyErr_Occurred() ? -1 : 0;
}

/* With the GIL: parameters and draw are launches one behind the other, and another thread that uses the same stream, and
 * so the same workspace, must not get between them. Launching takes microseconds; the work itself waits for no one. */
static int run_on_gpu(batch *b, batch_call call) {
    raffle_error error = raffle_error_init();
    raffle_status status = b->uploaded ? RAFFLE_OK : batch_upload(b, &error);
    if (b->requests && !b->params.extra && b->capturing) b->requests->there.captured = 1;
    if (!status) status = call(b, &b->launch, &error);
    return status ? (core_raise(status, &error), -1) : 0;
}

int batch_run(batch *b, batch_call call) {
    return b->plan->desc.backend == RAFFLE_CUDA ? run_on_gpu(b, call) : run_on_cpu(b, call);
}
