/* requests_device.c - the slots of requests in a GPU's memory: copied for a call, or resident, as a Sampler's.
 *
 *     copied     | raffle_extra[slots] | lists of all slots | raffle_state |
 *     resident   | raffle_extra[slots] | parameters         | raffle_state |     lists: an array for each slot
 *
 * each part padded to RAFFLE_WORKSPACE_ALIGN. The memory is of the logits' package, whose allocator knows its stream. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static size_t padded(size_t bytes) { return (bytes + RAFFLE_WORKSPACE_ALIGN - 1) / RAFFLE_WORKSPACE_ALIGN * RAFFLE_WORKSPACE_ALIGN; }

static size_t records_bytes(const requests_object *q) { return padded((size_t)q->slots * sizeof(raffle_extra)); }
static size_t param_bytes(const requests_object *q) { return padded((size_t)q->slots * sizeof(uint64_t)); }
static size_t middle_bytes(const requests_object *q) {
    return q->there.resident ? PARAM_COUNT * param_bytes(q) : padded(requests_image(q, 0, q->slots, NULL, NULL, NULL));
}
static size_t state_bytes(const requests_object *q) { return q->state.history_max ? raffle_state_bytes(&q->state) : 0; }

/* device_bytes(slot): what put() needs for the lists of a slot; -1: what place() needs, 0 where there is nothing to copy */
PyObject *requests_device_bytes(PyObject *self, PyObject *arguments) {
    const requests_object *q = (const requests_object *)self;
    long long slot;
    if (!PyArg_ParseTuple(arguments, "L", &slot) || (slot != -1 && !requests_slot(q, slot))) return NULL;
    if (slot >= 0) return PyLong_FromSize_t(requests_image(q, slot, 1, NULL, NULL, NULL));
    if (!q->there.resident && !q->has_extra) return PyLong_FromLong(0);
    return PyLong_FromSize_t(records_bytes(q) + middle_bytes(q) + state_bytes(q));
}

/* The address of a stream: as given, or the current one of the package that the memory is of. 0, or -1 with an exception. */
static int stream_of(const requests_object *q, PyObject *given, void **stream) {
    *stream = NULL;
    if (given != Py_None) {
        return stream_address(given, stream);
    } else if (!q->there.object || array_current_stream(q->there.object, q->there.memory.device, stream)) {
        PyErr_SetString(PyExc_ValueError, "stream must be given: the memory's package does not tell its current stream");
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Memory of `bytes` on a GPU that we may write. 0, or -1 with an exception. */
static int memory_take(PyObject *object, size_t bytes, array_view *v) {
    if (array_take(object, "memory", -1, v)) return -1;
    if (array_on_gpu(v) && array_is_contiguous(v) && !v->read_only && (uintptr_t)v->data % 4 == 0 &&
        (size_t)array_count(v) * (v->dtype.bits / 8u) >= bytes)
        return 0;
    PyErr_Format(PyExc_ValueError, "memory must be %zu contiguous bytes on a GPU", bytes);
    array_release(v);
    return -1;
}

void requests_there_release(requests_object *q) {
    requests_there *t = &q->there;
    for (int64_t i = 0; t->keep && i < q->slots; ++i) Py_XDECREF(t->keep[i]);
    free(t->keep);
    array_release(&t->memory);
    Py_XDECREF(t->object);
    const int resident = t->resident;
    memset(t, 0, sizeof *t);
    t->resident = resident;
}

/* Every slot of a resident pool asks for nothing and has said nothing: the memory is zero bytes but for the histories. */
static int resident_start(requests_object *q, PyObject *given) {
    requests_there *t = &q->there;
    void *stream;
    raffle_error error = raffle_error_init();
    t->keep = calloc((size_t)q->slots, sizeof *t->keep);
    if (!t->keep) return PyErr_NoMemory(), -1;
    if (!t->state.memory) return 0;
    if (stream_of(q, given, &stream)) return -1;
    q->has_extra = 1; /* whoever wants histories wants penalties, which a graph captured now must not ignore */
    raffle_status status = raffle_state_clear(&t->state, stream, &error);
    return status ? (core_raise(status, &error), -1) : 0;
}

/* place(memory, stream): where the slots will be. Copied: a call that uses them writes them there. Resident: zero bytes. */
PyObject *requests_place(PyObject *self, PyObject *arguments) {
    requests_object *q = (requests_object *)self;
    requests_there *t = &q->there;
    PyObject *object, *stream = Py_None;
    array_view v;
    if (!PyArg_ParseTuple(arguments, "O|O", &object, &stream)) return NULL;
    if (memory_take(object, records_bytes(q) + middle_bytes(q) + state_bytes(q), &v)) return NULL;
    requests_there_release(q);
    t->memory = v;
    Py_INCREF(object);
    t->object = object;
    char *middle = v.data + records_bytes(q);
    t->extra = (raffle_extra *)(void *)v.data;
    t->lists = middle;
    for (int i = 0; i < PARAM_COUNT; ++i) t->array[i] = middle + (size_t)i * param_bytes(q);
    t->state = q->state;
    t->state.backend = RAFFLE_CUDA;
    t->state.device = v.device.id;
    t->state.memory = state_bytes(q) ? middle + middle_bytes(q) : NULL;
    if (t->resident && resident_start(q, stream)) {
        requests_there_release(q);
        return NULL;
    }
    Py_RETURN_NONE;
}

const char *requests_upload(const requests_object *q, void *stream) {
    const requests_there *t = &q->there;
    const size_t records = records_bytes(q), bytes = records + middle_bytes(q);
    char *image = calloc(1, bytes);
    if (!image) return "out of memory";
    requests_image(q, 0, q->slots, (raffle_extra *)(void *)image, image + records, t->lists);
    const char *wrong = device_write(t->memory.device.id, t->memory.data, image, bytes, stream);
    if (!wrong && t->state.memory) wrong = device_write(t->memory.device.id, t->state.memory, q->state.memory, state_bytes(q), stream);
    free(image);
    return wrong;
}

/* ---- resident slots ---------------------------------------------------------------------------------------------- */

static int resident_check(const requests_object *q, long long slot, PyObject *given, void **stream) {
    if (!requests_slot(q, slot)) return -1;
    if (!q->there.resident || !q->there.memory.data) {
        PyErr_SetString(PyExc_ValueError, "these requests are not resident on a GPU");
        return -1;
    }
    return stream_of(q, given, stream);
}

/* The same, for what a replay must not do again, and what waits. */
static int resident_change_check(const requests_object *q, long long slot, PyObject *given, void **stream) {
    if (resident_check(q, slot, given, stream)) return -1;
    if (!device_is_capturing(q->there.memory.device.id, *stream)) return 0;
    PyErr_SetString(PyExc_RuntimeError, "requests cannot be changed or looked at while a graph is captured");
    return -1;
}

/* idle(stream): whether slots can be changed now */
PyObject *requests_idle_there(PyObject *self, PyObject *given) {
    void *stream;
    if (resident_change_check((const requests_object *)self, 0, given, &stream)) return NULL;
    Py_RETURN_NONE;
}

static int told(const char *wrong) {
    if (wrong) PyErr_SetString(PyExc_RuntimeError, wrong);
    return wrong ? -1 : 0;
}

static const char *params_put(const requests_object *q, int64_t slot, int with_position, void *stream) {
    device_fill fills[PARAM_COUNT];
    int count = 0;
    for (int i = 0; i < PARAM_COUNT; ++i) {
        const size_t bytes = i == PARAM_SEED || i == PARAM_POSITION ? sizeof(uint64_t) : sizeof(uint32_t);
        uint64_t value = 0;
        if (i == PARAM_POSITION && !with_position) continue;
        memcpy(&value, (const char *)q->array[i] + (size_t)slot * bytes, bytes);
        const device_fill fill = {(char *)q->there.array[i] + (size_t)slot * bytes, value, 0, 1, (int32_t)bytes, 0};
        fills[count++] = fill;
    }
    return device_fill_arrays(q->there.memory.device.id, fills, count, stream);
}

/* The record of a slot, with its lists in `memory`. */
static const char *record_put(requests_object *q, int64_t slot, char *memory, size_t bytes, void *stream) {
    const int device = q->there.memory.device.id;
    raffle_extra record;
    char *image = malloc(bytes + 1);
    if (!image) return "out of memory";
    requests_image(q, slot, 1, &record, image, memory);
    const char *wrong = bytes ? device_write(device, memory, image, bytes, stream) : NULL;
    free(image);
    return wrong ? wrong : device_write(device, &q->there.extra[slot], &record, sizeof record, stream);
}

/* put(slot, lists, with_position, stream): what set() and copy() made of a slot. lists: device_bytes(slot) of memory, or None */
PyObject *requests_put(PyObject *self, PyObject *arguments) {
    requests_object *q = (requests_object *)self;
    long long slot;
    int with_position;
    PyObject *lists, *given;
    void *stream;
    array_view v;
    if (!PyArg_ParseTuple(arguments, "LOpO", &slot, &lists, &with_position, &given)) return NULL;
    if (resident_change_check(q, slot, given, &stream)) return NULL;
    const size_t bytes = requests_image(q, slot, 1, NULL, NULL, NULL);
    memset(&v, 0, sizeof v);
    if (bytes && memory_take(lists, bytes, &v)) return NULL;
    const int wrong = told(params_put(q, slot, with_position, stream)) || told(record_put(q, slot, v.data, bytes, stream));
    array_release(&v);
    if (wrong) return NULL;
    PyObject *before = q->there.keep[slot]; /* its reader comes before in the stream */
    Py_INCREF(lists);
    q->there.keep[slot] = lists;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

PyObject *requests_position(PyObject *self, PyObject *arguments) {
    const requests_object *q = (const requests_object *)self;
    long long slot;
    PyObject *given;
    void *stream;
    uint64_t position = 0;
    if (!PyArg_ParseTuple(arguments, "LO", &slot, &given) || resident_change_check(q, slot, given, &stream)) return NULL;
    const uint64_t *from = (const uint64_t *)q->there.array[PARAM_POSITION] + slot;
    if (told(device_read(q->there.memory.device.id, &position, from, sizeof position, stream))) return NULL;
    return PyLong_FromUnsignedLongLong(position);
}

/* move(slot, count, stream) */
PyObject *requests_move(PyObject *self, PyObject *arguments) {
    const requests_object *q = (const requests_object *)self;
    long long slot, count;
    PyObject *given;
    void *stream;
    if (!PyArg_ParseTuple(arguments, "LLO", &slot, &count, &given) || resident_change_check(q, slot, given, &stream)) return NULL;
    uint64_t *to = (uint64_t *)q->there.array[PARAM_POSITION] + slot;
    if (told(device_add(q->there.memory.device.id, to, (uint64_t)count, stream))) return NULL;
    Py_RETURN_NONE;
}

/* ---- resident histories ------------------------------------------------------------------------------------------- */

/* What the host can know of a change; the library would only flag its rows. Whether there is room behind what was said so far,
 * and whether so much can be taken back, only the GPU knows. */
static int tokens_check(const requests_object *q, const raffle_tokens *t, int reads, int accepts) {
    const raffle_state *s = &q->there.state;
    for (int64_t row = 0; row < t->rows; ++row) {
        int64_t count = t->count ? t->count[row] : t->stride, n = 0;
        if (count < 0 || (reads && count > t->stride)) {
            PyErr_Format(PyExc_ValueError, "count of row %lld is %lld", (long long)row, (long long)count);
            return -1;
        }
        for (; reads && n < count; ++n) {
            int32_t id = t->token[row * t->stride + n];
            if (accepts && id == RAFFLE_NO_TOKEN) break;
            if (id >= 0 && id < s->vocab) continue;
            PyErr_Format(PyExc_ValueError, "token %lld of row %lld is %d: must be 0 to %lld", (long long)n, (long long)row, (int)id,
                         (long long)s->vocab - 1);
            return -1;
        }
        if (n > s->history_max || count > s->history_max) {
            PyErr_Format(PyExc_ValueError, "row %lld has %lld tokens: its history has room for %lld", (long long)row, (long long)count,
                         (long long)s->history_max);
            return -1;
        }
    }
    return 0;
}

int requests_change_there(requests_object *q, state_change change, raffle_tokens *t, PyObject *scratch, PyObject *given) {
    const int reads = change == raffle_state_prompt || change == raffle_state_accept;
    const int32_t **const arrays[] = {&t->slot, &t->token, &t->count};
    const int64_t tokens = t->token ? t->rows * (t->stride ? t->stride : 1) : 0;
    const size_t bytes[] = {4 * (size_t)t->rows, 4 * (size_t)tokens, t->count ? 4 * (size_t)t->rows : 0};
    raffle_error error = raffle_error_init();
    array_view v;
    void *stream;
    int wrong = 0;
    for (int64_t row = 0; row < t->rows && !wrong; ++row) wrong = !requests_slot(q, t->slot[row]);
    if (wrong || tokens_check(q, t, reads, change == raffle_state_accept)) return -1;
    if (!t->rows) return 0;
    if (resident_change_check(q, 0, given, &stream) || memory_take(scratch, bytes[0] + bytes[1] + bytes[2], &v)) return -1;
    char *to = v.data;
    for (int i = 0; i < 3 && !wrong; to += bytes[i++]) {
        if (!bytes[i]) continue;
        wrong = told(device_write(v.device.id, to, *arrays[i], bytes[i], stream));
        *arrays[i] = (const int32_t *)(void *)to;
    }
    t->stream = stream;
    raffle_status status = wrong ? RAFFLE_OK : change(&q->there.state, t, &error);
    if (status) core_raise(status, &error);
    array_release(&v);
    return PyErr_Occurred() ? -1 : 0;
}

int requests_history_there(const requests_object *q, int64_t slot, PyObject *given, raffle_state *one) {
    const requests_there *t = &q->there;
    void *stream;
    if (resident_change_check(q, slot, given, &stream)) return -1;
    *one = t->state;
    one->backend = RAFFLE_CPU;
    one->device = 0;
    one->slots = 1;
    const size_t bytes = raffle_state_bytes(one);
    one->memory = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, bytes);
    if (!one->memory) return PyErr_NoMemory(), -1;
    if (!told(device_read(t->memory.device.id, one->memory, (const char *)t->state.memory + (size_t)slot * bytes, bytes, stream))) return 0;
    free(one->memory);
    return -1;
}
