/* requests.c - a pool of slots: what requests ask for (parameters and raffle_extra) and have said (raffle_state). */
#include "core.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *requests_type;

/* Lists of a raffle_extra: bytes objects that slots share, and the fields that point into them. */
typedef struct list_place {
    const char *name;
    size_t ids, count;
    int sorted;
} list_place;

#define PLACE(field) offsetof(raffle_extra, field), offsetof(raffle_extra, field##_count)
static const list_place lists[] = {
    {"allowed_token_ids", PLACE(allowed), 1},
    {"banned_token_ids", PLACE(banned), 1},
    {"stop_token_ids", PLACE(stop), 1},
    {"dry_sequence_breaker_ids", PLACE(breaker), 1},
    {"bad_words_token_ids", PLACE(bad_words), 0}, /* words, each ended by -1 */
    {"logit_bias", offsetof(raffle_extra, bias_id), offsetof(raffle_extra, bias_count), 0}, /* (ids ascending, values) */
};
enum { LISTS = sizeof lists / sizeof *lists, BIAS = LISTS - 1, KEEPS = LISTS + 1 }; /* the last is bias's values */

/* What set() works on, so that a request that is wrong leaves the slot as it was. */
typedef struct draft {
    raffle_request request;
    uint64_t position;
    PyObject *keep[KEEPS];
} draft;

/* ---- one value ------------------------------------------------------------------------------------------------- */

/* The entries of a list or array, of the type, as a bytes object. */
static PyObject *entries_take(PyObject *object, const char *name, param_type type, int64_t *count) {
    const dl_device host = {DL_CPU, 0};
    param p;
    PyObject *made = NULL;
    if (param_take(&p, object, name, type, -1, &host) == 0) {
        if (p.scalar) PyErr_Format(PyExc_TypeError, "%s must be a list, not %R", name, (PyObject *)Py_TYPE(object));
        else made = PyBytes_FromStringAndSize(p.data, (Py_ssize_t)((size_t)p.count * param_size(type)));
        *count = p.count;
    }
    param_release(&p);
    return made;
}

static int id_compare(const void *a, const void *b) {
    int32_t left, right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

static void keep_set(draft *d, int which, PyObject *bytes) {
    Py_XDECREF(d->keep[which]);
    d->keep[which] = bytes;
}

/* `bytes` become the list, and the draft's. */
static void list_point(draft *d, int which, PyObject *bytes, int64_t count) {
    char *extra = (char *)&d->request.extra;
    int32_t *ids = (int32_t *)(void *)PyBytes_AsString(bytes), entries = (int32_t)count;
    if (lists[which].sorted) { /* quick for long lists; raffle_ids_sort then only drops what is there twice */
        qsort(ids, (size_t)count, sizeof *ids, id_compare);
        entries = (int32_t)raffle_ids_sort(ids, NULL, count);
    }
    memcpy(extra + lists[which].ids, &ids, sizeof ids);
    memcpy(extra + lists[which].count, &entries, sizeof entries);
    keep_set(d, which, bytes);
}

static int list_set(draft *d, int which, PyObject *value) {
    const char *name = lists[which].name;
    int64_t count = 0, values_count = 0;
    PyObject *ids = value, *values = NULL;
    if (which == BIAS) {
        if (!PyTuple_Check(value) || PyTuple_Size(value) != 2) {
            PyErr_Format(PyExc_TypeError, "%s must be (ids, values)", name);
            return -1;
        }
        ids = PyTuple_GetItem(value, 0);
        values = PyTuple_GetItem(value, 1);
        values = entries_take(values, name, PARAM_F32, &values_count);
        if (!values) return -1;
    }
    PyObject *bytes = entries_take(ids, name, PARAM_I32, &count);
    if (bytes && values && count != values_count) {
        PyErr_Format(PyExc_ValueError, "%s has %lld ids and %lld values", name, (long long)count, (long long)values_count);
        Py_CLEAR(bytes);
    }
    if (!bytes) {
        Py_XDECREF(values);
        return -1;
    }
    list_point(d, which, bytes, count);
    if (values) {
        d->request.extra.bias = (const float *)(const void *)PyBytes_AsString(values);
        keep_set(d, KEEPS - 1, values);
    }
    return 0;
}

/* One value by its name. Some do not go through raffle_request_set: seed and position have more bits than its double, and
 * without a dialect (-1) temperature, top_k, top_p and min_p are what raffle.sample takes. */
static int value_set(draft *d, const char *name, PyObject *value, int dialect) {
    enum { OURS = 1, OPENAI = 2 << RAFFLE_DIALECT_OPENAI, ALL = 15 }; /* dialect n is bit n + 1 */
    raffle_request *r = &d->request;
    const struct {
        const char *name;
        param_type type;
        void *to;
        int dialects;
    } own[] = {
        {"seed", PARAM_U64, &r->seed, ALL},           {"position", PARAM_U64, &d->position, ALL},
        {"flags", PARAM_I32, &r->extra.flags, ALL},   {"temperature", PARAM_F32, &r->temperature, OURS},
        {"top_k", PARAM_CLAMPED, &r->top_k, OURS | OPENAI}, {"top_p", PARAM_F32, &r->top_p, OURS},
        {"min_p", PARAM_F32, &r->min_p, OURS | OPENAI},
    };
    for (int i = 0; i < LISTS; ++i)
        if (!strcmp(lists[i].name, name)) return list_set(d, i, value);
    for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
        if (!strcmp(own[i].name, name) && own[i].dialects >> (dialect + 1) & 1) return param_number(value, name, own[i].type, own[i].to);
    double number = PyBool_Check(value) ? -1.0 : PyFloat_AsDouble(value);
    if (PyBool_Check(value) || PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%s is %R: must be a number", name, value);
        return -1;
    }
    raffle_error error = raffle_error_init();
    raffle_status status = raffle_request_set(r, name, number, &error);
    return status ? (core_raise(status, &error), -1) : 0;
}

static int words_set(draft *d, PyObject *words, int dialect) {
    PyObject *key, *value;
    int status = 0;
    for (Py_ssize_t at = 0; !status && PyDict_Next(words, &at, &key, &value);) {
        PyObject *name = PyUnicode_AsUTF8String(key);
        status = name ? value_set(d, PyBytes_AsString(name), value, dialect) : -1;
        Py_XDECREF(name);
    }
    return status;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

int requests_idle(const requests_object *q) {
    if (!q->running) return 1;
    PyErr_SetString(PyExc_RuntimeError, "these requests are being drawn for in another thread");
    return 0;
}

int requests_slot(const requests_object *q, long long slot) {
    if (slot >= 0 && slot < q->slots) return 1;
    PyErr_Format(PyExc_ValueError, "slot %lld: there are %lld", slot, (long long)q->slots);
    return 0;
}

static void draft_of(const requests_object *q, int64_t slot, draft *d) {
    raffle_request *r = &d->request;
    r->temperature = ((const float *)q->array[PARAM_TEMPERATURE])[slot];
    r->top_p = ((const float *)q->array[PARAM_TOP_P])[slot];
    r->min_p = ((const float *)q->array[PARAM_MIN_P])[slot];
    r->top_k = ((const int32_t *)q->array[PARAM_TOP_K])[slot];
    r->seed = ((const uint64_t *)q->array[PARAM_SEED])[slot];
    d->position = ((const uint64_t *)q->array[PARAM_POSITION])[slot];
    r->extra = q->extra[slot];
    for (int i = 0; i < KEEPS; ++i) Py_XINCREF(d->keep[i] = q->keep[slot * KEEPS + i]);
}

/* Whether a record asks for anything. vLLM's dialect has a flag for its bad words, also where there are none. */
static int extra_asks(const raffle_extra *extra) {
    static const raffle_extra nothing;
    raffle_extra own = *extra;
    if (!own.bad_words_count) own.flags &= ~RAFFLE_BAD_WORDS_OUTPUT;
    return memcmp(&own, &nothing, sizeof nothing) != 0;
}

static void draft_commit(requests_object *q, int64_t slot, const draft *d) {
    const raffle_request *r = &d->request;
    ((float *)q->array[PARAM_TEMPERATURE])[slot] = r->temperature;
    ((float *)q->array[PARAM_TOP_P])[slot] = r->top_p;
    ((float *)q->array[PARAM_MIN_P])[slot] = r->min_p;
    ((int32_t *)q->array[PARAM_TOP_K])[slot] = r->top_k;
    ((uint64_t *)q->array[PARAM_SEED])[slot] = r->seed;
    ((uint64_t *)q->array[PARAM_POSITION])[slot] = d->position;
    q->extra[slot] = r->extra;
    if (extra_asks(&r->extra)) q->has_extra = 1;
    for (int i = 0; i < KEEPS; ++i) {
        PyObject *before = q->keep[slot * KEEPS + i];
        Py_XINCREF(q->keep[slot * KEEPS + i] = d->keep[i]);
        Py_XDECREF(before);
    }
}

size_t requests_image(const requests_object *q, int64_t first, int64_t count, raffle_extra *records, char *lists_to, char *there) {
    size_t bytes = 0;
    for (int64_t slot = first; slot < first + count; ++slot) {
        const raffle_extra *from = &q->extra[slot];
        raffle_extra *to = records ? &records[slot - first] : NULL;
        if (to) *to = *from;
        for (int i = 0; i < KEEPS; ++i) { /* the last: bias's values */
            const size_t at = i < LISTS ? lists[i].ids : offsetof(raffle_extra, bias);
            const char *list;
            int32_t entries;
            memcpy(&list, (const char *)from + at, sizeof list);
            memcpy(&entries, (const char *)from + lists[i < LISTS ? i : BIAS].count, sizeof entries);
            const size_t size = (size_t)entries * sizeof entries;
            const int shared = slot > first && q->keep[slot * KEEPS + i] == q->keep[(slot - 1) * KEEPS + i];
            char *place = size ? there + bytes : NULL;
            if (to && size && shared) memcpy(&place, (const char *)(to - 1) + at, sizeof place);
            if (to) memcpy((char *)to + at, &place, sizeof place);
            if (to && size && !shared) memcpy(lists_to + bytes, list, size);
            bytes += shared ? 0 : size;
        }
    }
    return bytes;
}

/* set(slot, words, dialect, fresh): slot -1: all. dialect -1: vLLM's names, and raffle's own ranges. fresh: what `words` do
 * not have gets its default. All of it, or nothing and an exception. */
static PyObject *requests_set(PyObject *self, PyObject *arguments) {
    requests_object *q = (requests_object *)self;
    long long slot;
    int dialect, fresh;
    PyObject *words;
    draft d;
    raffle_error error = raffle_error_init();
    if (!PyArg_ParseTuple(arguments, "LO!ip", &slot, &PyDict_Type, &words, &dialect, &fresh)) return NULL;
    if (slot != -1 && !requests_slot(q, slot)) return NULL;
    memset(&d, 0, sizeof d);
    d.request = raffle_request_init();
    raffle_status wrong = raffle_request_start(&d.request, (raffle_dialect)(dialect == -1 ? RAFFLE_DIALECT_VLLM : dialect), &error);
    if (wrong) return core_raise(wrong, &error);
    if (dialect == -1) d.request.extra.flags = 0;
    if (!fresh) draft_of(q, slot < 0 ? 0 : slot, &d);
    int status = words_set(&d, words, dialect);
    if (!status && (wrong = raffle_request_check(&d.request, q->state.vocab ? q->state.vocab : RAFFLE_VOCAB_MAX, &error))) {
        core_raise(wrong, &error);
        status = -1;
    }
    if (!status && q->there.captured && extra_asks(&d.request.extra)) {
        PyErr_SetString(PyExc_RuntimeError, "a graph was captured when no request asked for more than parameters, and would ignore "
                                            "this one: make the sampler with history_max, or capture later");
        status = -1;
    }
    if (!status && !requests_idle(q)) status = -1; /* only now: a number may be an object whose code lets another thread draw */
    for (int64_t i = slot < 0 ? 0 : slot; !status && i < (slot < 0 ? q->slots : slot + 1); ++i) draft_commit(q, i, &d);
    for (int i = 0; i < KEEPS; ++i) Py_XDECREF(d.keep[i]);
    if (status) return NULL;
    Py_RETURN_NONE;
}

/* get(slot) -> (temperature, top_k, top_p, min_p, seed, position) */
static PyObject *requests_get(PyObject *self, PyObject *number) {
    const requests_object *q = (const requests_object *)self;
    draft d;
    long long slot = PyLong_AsLongLong(number);
    if (PyErr_Occurred() || !requests_slot(q, slot)) return NULL;
    memset(&d, 0, sizeof d);
    draft_of(q, slot, &d);
    for (int i = 0; i < KEEPS; ++i) Py_XDECREF(d.keep[i]);
    return Py_BuildValue("(diddKK)", (double)d.request.temperature, (int)d.request.top_k, (double)d.request.top_p,
                         (double)d.request.min_p, (unsigned long long)d.request.seed, (unsigned long long)d.position);
}

/* copy(from, to): what a request asks for; its history is forked by change() */
static PyObject *requests_copy(PyObject *self, PyObject *arguments) {
    requests_object *q = (requests_object *)self;
    long long from, to;
    draft d;
    if (!PyArg_ParseTuple(arguments, "LL", &from, &to)) return NULL;
    if (!requests_idle(q) || !requests_slot(q, from) || !requests_slot(q, to)) return NULL;
    memset(&d, 0, sizeof d);
    draft_of(q, from, &d);
    draft_commit(q, to, &d);
    for (int i = 0; i < KEEPS; ++i) Py_XDECREF(d.keep[i]);
    Py_RETURN_NONE;
}

/* use(slot, used): whether a slot has a request; drawing for one that has none is an error */
static PyObject *requests_use(PyObject *self, PyObject *arguments) {
    requests_object *q = (requests_object *)self;
    long long slot;
    int used;
    if (!PyArg_ParseTuple(arguments, "Lp", &slot, &used) || !requests_slot(q, slot)) return NULL;
    q->used[slot] = (char)used;
    Py_RETURN_NONE;
}

int requests_check(const requests_object *q, const int32_t *slot, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
        int64_t at = slot ? slot[row] : row;
        if (at >= 0 && at < q->slots && q->used[at]) continue;
        PyErr_Format(PyExc_ValueError, "slot %lld has no request", (long long)at);
        return -1;
    }
    return 0;
}

/* ---- histories ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    state_change change;
} changes[] = {
    {"prompt", raffle_state_prompt}, {"accept", raffle_state_accept}, {"truncate", raffle_state_truncate},
    {"reset", raffle_state_reset},   {"fork", raffle_state_fork},
};

static int has_history(const requests_object *q) {
    if (q->state.memory || q->there.state.memory) return 1;
    PyErr_SetString(PyExc_ValueError, "there is no history: history_max is 0");
    return 0;
}

/* change(action, slots, tokens, counts, stride[, scratch, stream]): a raffle_state_... function on these arrays; None: NULL.
 * Resident histories need scratch: int32 on their GPU, as many as the arrays have entries. */
static PyObject *requests_change(PyObject *self, PyObject *arguments) {
    requests_object *q = (requests_object *)self;
    const dl_device host = {DL_CPU, 0};
    const char *action;
    PyObject *objects[3], *scratch = Py_None, *stream = Py_None;
    param p[3];
    int status = 0;
    long long stride;
    raffle_tokens t = raffle_tokens_init();
    raffle_error error = raffle_error_init();
    if (!PyArg_ParseTuple(arguments, "sOOOL|OO", &action, &objects[0], &objects[1], &objects[2], &stride, &scratch, &stream))
        return NULL;
    if (!has_history(q)) return NULL;
    static const char *const names[] = {"slot", "tokens", "count"};
    memset(p, 0, sizeof p);
    for (int i = 0; i < 3 && !status; ++i) status = param_take(&p[i], objects[i], names[i], PARAM_I32, -1, &host);
    t.rows = p[0].count;
    t.slot = p[0].data;
    t.token = p[1].data;
    t.count = p[2].data;
    t.stride = stride;
    if (!status && ((t.count && p[2].count != t.rows) || (t.token && t.rows && p[1].count / t.rows < (stride ? stride : 1)))) {
        PyErr_Format(PyExc_ValueError, "%lld slots have %lld tokens and %lld counts", (long long)t.rows, (long long)p[1].count,
                     (long long)p[2].count);
    }
    size_t which = 0;
    while (which < sizeof changes / sizeof *changes && strcmp(changes[which].name, action)) ++which;
    if (which == sizeof changes / sizeof *changes) PyErr_Format(PyExc_ValueError, "there is no change '%s'", action);
    if (!PyErr_Occurred()) requests_idle(q); /* as in set(): only now */
    if (!PyErr_Occurred() && q->there.resident) {
        requests_change_there(q, changes[which].change, &t, scratch, stream);
    } else if (!PyErr_Occurred()) {
        raffle_status wrong = changes[which].change(&q->state, &t, &error);
        if (wrong) core_raise(wrong, &error);
    }
    for (int i = 0; i < 3; ++i) param_release(&p[i]);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* The history of a slot in host memory. */
static PyObject *history_list(const raffle_state *state, int64_t slot) {
    int64_t prompt, length;
    const int32_t *token = raffle_state_history(state, slot, &prompt, &length);
    PyObject *list = PyList_New((Py_ssize_t)length);
    for (int64_t i = 0; list && i < length; ++i) PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromLong(token[i]));
    return list ? Py_BuildValue("(NL)", list, (long long)prompt) : NULL;
}

/* history(slot[, stream]) -> (tokens, how many of them are the prompt). Resident: waits for the stream */
static PyObject *requests_history(PyObject *self, PyObject *arguments) {
    const requests_object *q = (const requests_object *)self;
    long long slot;
    PyObject *stream = Py_None;
    raffle_state one;
    if (!PyArg_ParseTuple(arguments, "L|O", &slot, &stream) || !requests_slot(q, slot) || !has_history(q)) return NULL;
    if (!q->there.resident) return history_list(&q->state, slot);
    if (requests_history_there(q, slot, stream, &one)) return NULL;
    PyObject *made = history_list(&one, 0);
    free(one.memory);
    return made;
}

int requests_accept_check(requests_object *q, const int32_t *slot, int64_t rows, const int32_t *draft, int64_t each) {
    int64_t row = 0;
    for (; row < rows && !PyErr_Occurred(); ++row) {
        const int64_t at = slot ? slot[row] : row;
        int64_t length = 0, count = 0;
        if (at < 0 || at >= q->slots || q->seen[at]) {
            PyErr_Format(PyExc_ValueError, "slot %lld of row %lld is out of range, or in this call twice", (long long)at, (long long)row);
            break;
        }
        q->seen[at] = 1;
        if (q->there.resident) continue; /* how long its histories are, only the GPU knows */
        while (count < each && draft[row * each + count] != -1) ++count;
        raffle_state_history(&q->state, at, NULL, &length);
        if (length + count < q->state.history_max) continue;
        PyErr_Format(PyExc_ValueError, "slot %lld of row %lld has a history of %lld tokens: %lld more do not fit in %lld", (long long)at,
                     (long long)row, (long long)length, (long long)count + 1, (long long)q->state.history_max);
    }
    while (row--) q->seen[slot ? slot[row] : row] = 0;
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- the type -------------------------------------------------------------------------------------------------------- */

static int memory_make(requests_object *q) {
    size_t slots = (size_t)q->slots;
    for (int i = 0; i < PARAM_COUNT; ++i)
        if (!(q->array[i] = calloc(slots, sizeof(uint64_t)))) return -1;
    q->extra = calloc(slots, sizeof *q->extra);
    q->keep = calloc(slots, sizeof *q->keep * KEEPS);
    q->used = calloc(slots, 1);
    q->seen = calloc(slots, 1);
    return q->extra && q->keep && q->used && q->seen ? 0 : -1;
}

/* Resident histories get their memory by place(); here is then only their shape. */
static int state_make(requests_object *q, long long vocab, long long history_max) {
    raffle_error error = raffle_error_init();
    q->state = raffle_state_init();
    q->state.slots = q->slots;
    q->state.vocab = vocab;
    q->state.history_max = history_max;
    if (!history_max || (q->there.resident && raffle_state_bytes(&q->state))) return 0;
    size_t bytes = raffle_state_bytes(&q->state);
    if (bytes) q->state.memory = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, bytes);
    if (bytes && !q->state.memory) return PyErr_NoMemory(), -1;
    raffle_status status = raffle_state_clear(&q->state, NULL, &error); /* its sentence on fields out of range */
    return status ? (core_raise(status, &error), -1) : 0;
}

/* Requests(slots, vocab, history_max[, resident]): vocab 0: unknown, history_max 0: no history; resident: on a GPU, see place() */
static PyObject *requests_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
    (void)words;
    long long slots, vocab, history_max;
    int resident = 0;
    if (!PyArg_ParseTuple(arguments, "LLL|p", &slots, &vocab, &history_max, &resident)) return NULL;
    if (slots < 1 || slots > INT32_MAX) return PyErr_Format(PyExc_ValueError, "slots is %lld: must be 1 to 2147483647", slots);
    requests_object *q = (requests_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!q) return NULL;
    q->slots = slots;
    q->there.resident = resident;
    if (memory_make(q)) PyErr_NoMemory();
    if (PyErr_Occurred() || state_make(q, vocab, history_max)) {
        Py_DECREF((PyObject *)q);
        return NULL;
    }
    return (PyObject *)q;
}

static void requests_dealloc(PyObject *self) {
    requests_object *q = (requests_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (int64_t i = 0; q->keep && i < q->slots * KEEPS; ++i) Py_XDECREF(q->keep[i]);
    for (int i = 0; i < PARAM_COUNT; ++i) free(q->array[i]);
    free(q->extra);
    free(q->keep);
    free(q->used);
    free(q->seen);
    free(q->state.memory);
    requests_there_release(q);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef requests_methods[] = {
    {"set", requests_set, METH_VARARGS, "values of a slot by name"},
    {"get", requests_get, METH_O, "(temperature, top_k, top_p, min_p, seed, position) of a slot"},
    {"copy", requests_copy, METH_VARARGS, "what a slot asks for, to another"},
    {"use", requests_use, METH_VARARGS, "whether a slot has a request"},
    {"change", requests_change, METH_VARARGS, "prompt, accept, truncate, reset, fork: histories of slots"},
    {"history", requests_history, METH_VARARGS, "(tokens, how many are the prompt) of a slot"},
    {"device_bytes", requests_device_bytes, METH_VARARGS, "memory that place() or put() need on a GPU"},
    {"place", requests_place, METH_VARARGS, "memory for the slots on a GPU"},
    {"idle", requests_idle_there, METH_O, "raises where resident slots cannot be changed: a graph is being captured"},
    {"put", requests_put, METH_VARARGS, "a resident slot's values to the GPU"},
    {"position", requests_position, METH_VARARGS, "the position of a resident slot; waits"},
    {"move", requests_move, METH_VARARGS, "adds to the position of a resident slot"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot requests_slots[] = {
    {Py_tp_new, requests_new},
    {Py_tp_dealloc, requests_dealloc},
    {Py_tp_methods, requests_methods},
    {Py_tp_doc, "Requests(slots, vocab, history_max): what requests ask for and have said."},
    {0, NULL},
};
PyType_Spec requests_spec = {"raffle._core.Requests", sizeof(requests_object), 0, Py_TPFLAGS_DEFAULT, requests_slots};
