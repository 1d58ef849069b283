/* array.c - any array, borrowed: __array_struct__ (numpy), DLPack, buffer protocol, __cuda_array_interface__, in this order. */
#include "core.h"

#include <stdio.h>
#include <string.h>

/* The limited API has Py_buffer only from Python 3.11 on, and the extension runs from 3.9 on. A memoryview is in the
 * limited API, tells shape and format, and keeps the exporter from moving its memory; what it does not tell is the
 * address. These two do, and belong to the stable ABI since 3.2 (newer headers no longer declare them). They want
 * C-contiguous memory; arrays with strides come by DLPack. */
PyAPI_FUNC(int) PyObject_AsReadBuffer(PyObject *, const void **, Py_ssize_t *);
PyAPI_FUNC(int) PyObject_AsWriteBuffer(PyObject *, void **, Py_ssize_t *);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* ---- what a type can do, asked once ----------------------------------------------------------------- */

typedef struct type_facts {
    PyTypeObject *type;
    const dl_exchange *exchange;
    int has_struct; /* __array_struct__: host memory, for the price of an attribute */
    int has_dlpack;
    int no_version; /* its __dlpack__ does not know max_version */
    int has_pointer; /* data_ptr(): torch's, before it had an exchange table */
    int can_negate; /* is_neg(): torch's */
    int frozen; /* JAX's: never written to, though their DLPack does not say so */
} type_facts;

enum { TYPES_MAX = 32 };
static type_facts known_types[TYPES_MAX];
static int known_count, known_next;

static const dl_exchange *exchange_of(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const dl_exchange *table = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule); /* the table is as static as its type */
    while (table && table->version.major != 1) table = table->previous;
    return table && table->from_object ? table : NULL;
}

static int is_of_jax(PyTypeObject *type) {
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__"), *start = PyUnicode_FromString("jax");
    const int found = module && start && PyUnicode_Check(module) && PyUnicode_Tailmatch(module, start, 0, PY_SSIZE_T_MAX, -1) > 0;
    PyErr_Clear();
    Py_XDECREF(module);
    Py_XDECREF(start);
    return found;
}

static type_facts *facts_of(PyTypeObject *type) {
    for (int i = 0; i < known_count; ++i)
        if (known_types[i].type == type) return &known_types[i];
    type_facts made = {type, exchange_of(type), PyObject_HasAttrString((PyObject *)type, "__array_struct__"),
                       PyObject_HasAttrString((PyObject *)type, "__dlpack__"), 0,
                       PyObject_HasAttrString((PyObject *)type, "data_ptr"), PyObject_HasAttrString((PyObject *)type, "is_neg"),
                       is_of_jax(type)};
    type_facts *place = &known_types[known_next];
    known_next = (known_next + 1) % TYPES_MAX;
    if (known_count < TYPES_MAX) known_count++;
    PyTypeObject *before = place->type;
    Py_INCREF(type); /* or another type could get its address */
    *place = made;
    Py_XDECREF((PyObject *)before);
    return place;
}

/* ---- dtypes written as text ---------------------------------------------------------------------------- */

/* a letter of numpy's, and bytes */
static int dtype_from_kind(Py_UCS4 kind, int bytes, dl_dtype *dtype) {
    const char *const kinds = "iufb";
    const uint8_t codes[] = {DL_INT, DL_UINT, DL_FLOAT, DL_BOOL};
    const char *found = kind && kind < 128 ? strchr(kinds, (int)kind) : NULL;
    if (!found || bytes < 1 || bytes > 8) return 0;
    dtype->code = codes[found - kinds];
    dtype->bits = (uint8_t)(bytes * 8);
    dtype->lanes = 1;
    return 1;
}

/* "f4", "<f4", "|b1" of array interfaces */
static int dtype_from_typestr(PyObject *text, dl_dtype *dtype) {
    Py_ssize_t length = PyUnicode_Check(text) ? PyUnicode_GetLength(text) : 0;
    if (length != 3) return 0;
    Py_UCS4 order = PyUnicode_ReadChar(text, 0), kind = PyUnicode_ReadChar(text, 1), size = PyUnicode_ReadChar(text, 2);
    if (order == '>' || size < '1' || size > '8') return 0;
    return dtype_from_kind(kind, (int)(size - '0'), dtype);
}

/* one letter of the struct module */
static int dtype_from_format(PyObject *text, int64_t item_bytes, dl_dtype *dtype) {
    Py_ssize_t length = PyUnicode_GetLength(text), at = 0;
    Py_UCS4 letter = length ? PyUnicode_ReadChar(text, 0) : 'B';
    if (length == 2 && (letter == '@' || letter == '=' || letter == '<')) letter = PyUnicode_ReadChar(text, ++at);
    if (length != at + 1) return 0;
    if (letter > 127 || !strchr("bhilqnBHILQNefd?", (int)letter)) return 0;
    dtype->code = strchr("efd", (int)letter) ? DL_FLOAT : letter == '?' ? DL_BOOL : letter < 'a' ? DL_UINT : DL_INT;
    dtype->bits = (uint8_t)(item_bytes * 8);
    dtype->lanes = 1;
    return 1;
}

const char *array_dtype_name(dl_dtype dtype, char *text, size_t bytes) {
    const char *const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    const char *name = dtype.code < 7 ? names[dtype.code] : "dtype";
    if (dtype.code == DL_BOOL) snprintf(text, bytes, "bool");
    else snprintf(text, bytes, "%s%d", name, dtype.bits);
    return text;
}

/* Another way may be open after an Exception; KeyboardInterrupt and its like are not ours to take. 0, or -1 with it. */
static int error_clear(void) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
}

/* ---- __array_struct__ ------------------------------------------------------------------------------------- */

/* What numpy's PyArrayInterface is, by its documentation. */
typedef struct array_struct {
    int two; /* 2 */
    int ndim;
    char kind;
    int item_bytes;
    int flags;
    Py_ssize_t *shape, *strides; /* strides in bytes */
    void *data;
} array_struct;
enum { STRUCT_NATIVE = 0x200, STRUCT_WRITEABLE = 0x400 };

/* 1: `view` is it. 0: it is of another kind, to be read in another way. -1 with an exception. */
static int take_struct(PyObject *object, const char *name, array_view *view) {
    static PyObject *attribute;
    if (!attribute && !(attribute = PyUnicode_InternFromString("__array_struct__"))) return -1;
    PyObject *capsule = PyObject_GetAttr(object, attribute);
    const array_struct *s = capsule && PyCapsule_IsValid(capsule, NULL) ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (!s || s->two != 2 || !(s->flags & STRUCT_NATIVE) || s->ndim > ARRAY_NDIM_MAX ||
        !dtype_from_kind((Py_UCS4)s->kind, s->item_bytes, &view->dtype)) {
        Py_XDECREF(capsule);
        return error_clear();
    }
    view->keep = capsule;
    view->data = s->data;
    view->device.type = DL_CPU;
    view->ndim = s->ndim;
    view->read_only = !(s->flags & STRUCT_WRITEABLE);
    for (int i = 0; i < s->ndim; ++i) {
        view->shape[i] = s->shape[i];
        view->stride[i] = s->strides[i] / s->item_bytes;
        if (s->strides[i] % s->item_bytes == 0 || s->shape[i] <= 1) continue;
        PyErr_Format(PyExc_ValueError, "%s has strides that are no multiple of its elements", name);
        return -1;
    }
    return 1;
}

/* ---- DLPack ------------------------------------------------------------------------------------------ */

static int view_from_tensor(const dl_tensor *tensor, const char *name, array_view *view) {
    if (tensor->ndim < 0 || tensor->ndim > ARRAY_NDIM_MAX) {
        PyErr_Format(PyExc_ValueError, "%s has %d axes: too many", name, (int)tensor->ndim);
        return -1;
    }
    if (tensor->dtype.lanes != 1) {
        PyErr_Format(PyExc_TypeError, "%s has a vector dtype", name);
        return -1;
    }
    view->data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    view->device = tensor->device;
    view->ndim = tensor->ndim;
    view->dtype = tensor->dtype;
    int64_t step = 1;
    for (int i = tensor->ndim - 1; i >= 0; --i) {
        view->shape[i] = tensor->shape[i];
        view->stride[i] = tensor->strides ? tensor->strides[i] : step;
        step *= tensor->shape[i];
    }
    return 0;
}

/* torch raises a RuntimeError, with a trace of its C++ in it, for tensors that are no arrays (sparse, quantised, of no device). */
static void exchange_tell(const char *name) {
    PyObject *type, *value, *trace, *text = NULL, *lines = NULL;
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_BufferError, "%s could not be exported by DLPack", name);
        return;
    }
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return;
    PyErr_Fetch(&type, &value, &trace);
    text = value ? PyObject_Str(value) : NULL;
    lines = text ? PyUnicode_Splitlines(text, 0) : NULL;
    PyErr_Clear();
    if (lines && PyList_Size(lines) > 0) PyErr_Format(PyExc_TypeError, "%s is no array: %U", name, PyList_GetItem(lines, 0));
    else PyErr_Format(PyExc_TypeError, "%s could not be exported by DLPack", name);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(text);
    Py_XDECREF(lines);
}

static int take_exchange(PyObject *object, const dl_exchange *table, const char *name, array_view *view) {
    dl_tensor tensor;
    if (table->from_object_unowned) { /* as good as a loan while the object lives, and in half the time */
        if (table->from_object_unowned(object, &tensor)) {
            exchange_tell(name);
            return -1;
        }
        Py_INCREF(object);
        view->keep = object;
        return view_from_tensor(&tensor, name, view);
    }
    if (table->from_object(object, &view->managed)) {
        view->managed = NULL;
        exchange_tell(name);
        return -1;
    }
    view->read_only = (view->managed->flags & DL_FLAG_READ_ONLY) != 0;
    return view_from_tensor(&view->managed->tensor, name, view);
}

/* object.__dlpack__(...): the capsule. An older producer knows no max_version, and is asked again without. */
static PyObject *dlpack_capsule(PyObject *object, type_facts *facts, int64_t stream) {
    static PyObject *method_name, *cpu_words, *nothing;
    if (!nothing) {
        method_name = PyUnicode_InternFromString("__dlpack__");
        cpu_words = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
        nothing = PyTuple_New(0);
        if (!method_name || !cpu_words || !nothing) return NULL;
    }
    PyObject *method = PyObject_GetAttr(object, method_name), *capsule = NULL;
    if (!method) return NULL;
    PyObject *words = NULL;
    if (stream) words = facts->no_version ? Py_BuildValue("{sL}", "stream", (long long)stream)
                                          : Py_BuildValue("{s(ii)sL}", "max_version", 1, 0, "stream", (long long)stream);
    else if (!facts->no_version) Py_XINCREF(words = cpu_words);
    if (!PyErr_Occurred()) capsule = PyObject_Call(method, nothing, words);
    Py_XDECREF(words);
    Py_DECREF(method);
    if (!capsule && !facts->no_version && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        facts->no_version = 1;
        return dlpack_capsule(object, facts, stream);
    }
    return capsule;
}

/* Whether the array is a GPU's: then __dlpack__ has to be told a stream. */
static int dlpack_on_gpu(PyObject *object, int *gpu) {
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    if (!device) return -1;
    PyObject *type = PySequence_GetItem(device, 0);
    long code = type ? PyLong_AsLong(type) : -1;
    Py_XDECREF(type);
    Py_DECREF(device);
    *gpu = code == DL_CUDA || code == DL_CUDA_MANAGED;
    return PyErr_Occurred() ? -1 : 0;
}

static int take_dlpack(PyObject *object, type_facts *facts, const char *name, int64_t stream, array_view *view) {
    int gpu = 0;
    if (stream && dlpack_on_gpu(object, &gpu)) return -1;
    PyObject *capsule = dlpack_capsule(object, facts, gpu ? stream : 0);
    if (!capsule) return -1;
    view->keep = capsule; /* left unconsumed: its destructor gives the memory back */
    const dl_tensor *tensor = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->version.major == 1) {
            tensor = &managed->tensor;
            view->read_only = (managed->flags & DL_FLAG_READ_ONLY) != 0;
        }
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        tensor = &((const dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
    }
    if (!tensor) {
        PyErr_Format(PyExc_BufferError, "%s: its __dlpack__ gave no DLPack 1 tensor", name);
        return -1;
    }
    return view_from_tensor(tensor, name, view);
}

/* ---- __cuda_array_interface__ ---------------------------------------------------------------------------- */

static int shape_take(PyObject *tuple, int32_t *ndim, int64_t *shape, const char *name) {
    Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    if (count < 0 || count > ARRAY_NDIM_MAX) {
        PyErr_Format(PyExc_ValueError, "%s has a shape or strides that raffle cannot read", name);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; ++i) shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    *ndim = (int32_t)count;
    return PyErr_Occurred() ? -1 : 0;
}

static void strides_fill(array_view *view) {
    int64_t step = 1;
    for (int i = view->ndim - 1; i >= 0; --i) {
        view->stride[i] = step;
        step *= view->shape[i];
    }
}

static int take_cuda_interface(PyObject *interface, const char *name, array_view *view) {
    PyObject *shape = PyDict_GetItemString(interface, "shape"), *type = PyDict_GetItemString(interface, "typestr");
    PyObject *data = PyDict_GetItemString(interface, "data"), *strides = PyDict_GetItemString(interface, "strides");
    if (!shape || !type || !data || !PyTuple_Check(data) || PyTuple_Size(data) != 2 || !dtype_from_typestr(type, &view->dtype)) {
        PyErr_Format(PyExc_TypeError, "%s: its __cuda_array_interface__ is not one that raffle can read", name);
        return -1;
    }
    if (shape_take(shape, &view->ndim, view->shape, name)) return -1;
    view->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    view->read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1));
    view->device.type = DL_CUDA;
    strides_fill(view);
    int32_t ndim = view->ndim, bytes = view->dtype.bits / 8;
    if (strides && strides != Py_None) {
        if (shape_take(strides, &ndim, view->stride, name)) return -1;
        for (int i = 0; i < ndim; ++i) {
            if (ndim != view->ndim || view->stride[i] % bytes) {
                PyErr_Format(PyExc_ValueError, "%s has strides that are no multiple of its elements", name);
                return -1;
            }
            view->stride[i] /= bytes;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- buffer protocol ---------------------------------------------------------------------------------------- */

static int64_t number_attribute(PyObject *object, const char *name) {
    PyObject *value = PyObject_GetAttrString(object, name);
    int64_t number = value ? PyLong_AsLongLong(value) : -1;
    Py_XDECREF(value);
    return number;
}

/* -1 with view->keep NULL: not a buffer at all. */
static int take_buffer(PyObject *object, const char *name, array_view *view) {
    PyObject *memory = view->keep = PyMemoryView_FromObject(object);
    if (!memory) return -1;
    PyObject *format = PyObject_GetAttrString(memory, "format"), *shape = PyObject_GetAttrString(memory, "shape");
    int64_t item = number_attribute(memory, "itemsize");
    int64_t read_only = number_attribute(memory, "readonly"), in_order = number_attribute(memory, "c_contiguous");
    int status = -1;
    if (format && shape && !PyErr_Occurred()) {
        Py_ssize_t bytes;
        if (!dtype_from_format(format, item, &view->dtype))
            PyErr_Format(PyExc_TypeError, "%s has elements of format '%U', which raffle cannot read", name, format);
        else if (!in_order)
            PyErr_Format(PyExc_ValueError, "%s is a buffer with strides: it must be C-contiguous, or offer DLPack", name);
        else if (shape_take(shape, &view->ndim, view->shape, name) == 0)
            status = read_only ? PyObject_AsReadBuffer(memory, (const void **)(void *)&view->data, &bytes)
                               : PyObject_AsWriteBuffer(memory, (void **)(void *)&view->data, &bytes);
    }
    Py_XDECREF(format);
    Py_XDECREF(shape);
    view->read_only = read_only != 0;
    view->device.type = DL_CPU;
    strides_fill(view);
    return status;
}

/* ---- all together ------------------------------------------------------------------------------------------- */

static int take(PyObject *object, const char *name, int64_t stream, array_view *view) {
    type_facts *facts = facts_of(Py_TYPE(object));
    if (facts->exchange) return take_exchange(object, facts->exchange, name, view);
    if (facts->has_struct) {
        int taken = take_struct(object, name, view);
        if (taken) return taken > 0 ? 0 : -1;
    }
    if (facts->has_dlpack) {
        if (take_dlpack(object, facts, name, stream, view) == 0) return 0;
        /* Older numpy does not export read-only arrays, no numpy exports types that are not its own. */
        if (!PyErr_ExceptionMatches(PyExc_BufferError)) return -1;
        PyErr_Clear();
        array_release(view);
        memset(view, 0, sizeof *view);
    }
    int status = take_buffer(object, name, view);
    /* It is a buffer: readable, of a kind we cannot read, or released (a ValueError). */
    if (status == 0 || view->keep || !PyErr_ExceptionMatches(PyExc_TypeError)) return status;
    PyErr_Clear();
    PyObject *interface = PyObject_GetAttrString(object, "__cuda_array_interface__");
    if (interface && PyDict_Check(interface)) {
        status = take_cuda_interface(interface, name, view);
        Py_DECREF(interface);
        Py_INCREF(object);
        view->keep = object;
        return status;
    }
    Py_XDECREF(interface);
    if (error_clear()) return -1;
    PyErr_Format(PyExc_TypeError, "%s must be an array (DLPack, __array_struct__, __cuda_array_interface__ or a buffer), not %R",
                 name, (PyObject *)Py_TYPE(object));
    return -1;
}

/* Torch's views of real numbers that negate their memory when it is read, which DLPack does not tell. 0, or -1 with an exception. */
static int negated_refuse(PyObject *object, const char *name, const array_view *view) {
    static PyObject *method;
    if (!facts_of(Py_TYPE(object))->can_negate || (view->dtype.code != DL_FLOAT && view->dtype.code != DL_BFLOAT)) return 0;
    if (!method && !(method = PyUnicode_InternFromString("is_neg"))) return -1;
    PyObject *told = PyObject_CallMethodObjArgs(object, method, NULL);
    const int negated = told ? PyObject_IsTrue(told) : -1;
    Py_XDECREF(told);
    if (negated > 0) PyErr_Format(PyExc_ValueError, "%s is a view that negates its memory: give what its resolve_neg() returns", name);
    return negated ? -1 : 0;
}

int array_take(PyObject *object, const char *name, int64_t stream, array_view *view) {
    memset(view, 0, sizeof *view);
    if (take(object, name, stream, view) || negated_refuse(object, name, view)) {
        array_release(view);
        return -1;
    }
    if (facts_of(Py_TYPE(object))->frozen) view->read_only = 1;
    if (view->device.type == DL_CUDA_HOST) view->device.type = DL_CPU; /* pinned: ordinary memory to the CPU */
    if (view->device.type == DL_CPU) view->device.id = 0;
    if (view->device.type != DL_CPU && view->device.type != DL_CUDA && view->device.type != DL_CUDA_MANAGED) {
        PyErr_Format(PyExc_ValueError, "%s is on a device (DLPack type %d) that is neither the CPU nor a CUDA GPU", name,
                     (int)view->device.type);
        array_release(view);
        return -1;
    }
    if (!view->data && array_count(view)) { /* a tensor whose storage was resized to nothing, say */
        PyErr_Format(PyExc_ValueError, "%s has no memory: it was freed, or never there", name);
        array_release(view);
        return -1;
    }
    return 0;
}

void array_release(array_view *view) {
    dl_managed_versioned *const managed = view->managed;
    PyObject *type, *value, *trace, *const keep = view->keep;
    view->managed = NULL;
    view->keep = NULL;
    if (!managed && !keep) return;
    PyErr_Fetch(&type, &value, &trace); /* destructors may run Python code, which must not see our exception */
    if (managed && managed->deleter) managed->deleter(managed);
    Py_XDECREF(keep);
    PyErr_Restore(type, value, trace);
}

/* Address, shape and strides alone: enough to tell whether an array is still what it was. 1, 0 where its kind cannot be asked
 * for little (a buffer cannot move while it is on loan), or -1 with an exception. */
static int look_again(PyObject *object, const char *name, array_view *view) {
    const type_facts *facts = facts_of(Py_TYPE(object));
    if (facts->exchange && facts->exchange->from_object_unowned) {
        dl_tensor tensor;
        if (facts->exchange->from_object_unowned(object, &tensor) == 0) return view_from_tensor(&tensor, name, view) ? -1 : 1;
        exchange_tell(name);
        return -1;
    }
    return !facts->exchange && facts->has_struct ? take_struct(object, name, view) : 0;
}

static int pointer_is(PyObject *object, const array_view *view) {
    PyObject *pointer = PyObject_CallMethod(object, "data_ptr", NULL);
    const char *data = pointer ? PyLong_AsVoidPtr(pointer) : NULL;
    Py_XDECREF(pointer);
    return PyErr_Occurred() ? -1 : data == view->data;
}

int array_stays(PyObject *object, const char *name, const array_view *view) {
    array_view now;
    memset(&now, 0, sizeof now);
    int found = look_again(object, name, &now), same = found >= 0;
    if (found > 0) {
        same = now.data == view->data && now.ndim == view->ndim;
        for (int i = 0; i < view->ndim && same; ++i) same = now.shape[i] == view->shape[i] && now.stride[i] == view->stride[i];
    } else if (found == 0 && facts_of(Py_TYPE(object))->has_pointer) {
        int there = pointer_is(object, view);
        found = there < 0 ? -1 : found;
        same = there > 0;
    }
    array_release(&now);
    if (same) return 0;
    if (found >= 0)
        PyErr_Format(PyExc_ValueError, "%s: the array is not what it was at prepare(): its memory was freed, or it has another shape",
                     name);
    return -1;
}

int array_current_stream(PyObject *object, dl_device device, void **stream) {
    const dl_exchange *table = facts_of(Py_TYPE(object))->exchange;
    if (!table || !table->current_stream || table->current_stream(DL_CUDA, device.id, stream)) {
        PyErr_Clear();
        return -1;
    }
    return 0;
}

int array_peek(PyObject *object, array_view *view) {
    const type_facts *facts = facts_of(Py_TYPE(object));
    if (!facts->exchange || !facts->exchange->from_object_unowned) return 0;
    memset(view, 0, sizeof *view);
    if (look_again(object, "", view) > 0) return 1;
    PyErr_Clear();
    return 0;
}

int array_check(PyObject *object) {
    type_facts *facts = facts_of(Py_TYPE(object));
    if (facts->exchange || facts->has_struct || facts->has_dlpack) return 1;
    PyObject *memory = PyMemoryView_FromObject(object);
    PyErr_Clear();
    Py_XDECREF(memory);
    return memory || PyObject_HasAttrString(object, "__cuda_array_interface__");
}

int array_is(const array_view *view, int code, int bits) { return view->dtype.code == code && view->dtype.bits == bits; }

int array_on_gpu(const array_view *view) { return view->device.type != DL_CPU; }

int64_t array_count(const array_view *view) {
    int64_t count = 1;
    for (int i = 0; i < view->ndim; ++i) count *= view->shape[i];
    return count;
}

int array_is_contiguous(const array_view *view) {
    int64_t step = 1;
    if (array_count(view) == 0) return 1; /* whatever its strides are */
    for (int i = view->ndim - 1; i >= 0; --i) {
        if (view->shape[i] != 1 && view->stride[i] != step) return 0;
        step *= view->shape[i];
    }
    return 1;
}

PyObject *core_inspect(PyObject *module, PyObject *object) {
    (void)module;
    array_view view;
    if (array_take(object, "logits", -1, &view)) return NULL;
    PyObject *shape = PyTuple_New(view.ndim);
    for (int i = 0; shape && i < view.ndim; ++i) PyTuple_SetItem(shape, i, PyLong_FromLongLong(view.shape[i]));
    PyObject *made = shape ? Py_BuildValue("(Nii)", shape, (int)view.device.type, (int)view.device.id) : NULL;
    array_release(&view);
    return made;
}
