/* sample.c - raffle_sample: once, or prepared and run again and again. */
#include "core.h"

#include <string.h>

static raffle_status sample(const batch *b, const raffle_launch *launch, raffle_error *error) {
    return raffle_sample(b->plan->plan, &b->logits, &b->params, &b->result, launch, error);
}

/* Adds 1 to the position of every row, on its device. NULL, or what went wrong. */
static const char *advance_positions(const batch *b) {
    uint64_t *position = (uint64_t *)b->params.position;
    if (b->plan->desc.backend == RAFFLE_CUDA)
        return device_advance(b->plan->desc.device, position, b->slots, b->params.slot, b->rows, b->launch.stream);
    for (int64_t row = 0; row < b->rows; ++row) position[b->params.slot ? b->params.slot[row] : row]++;
    return NULL;
}

/* 1: positions can be advanced in place. */
static int advance_check(const batch *b) {
    const param *position = &b->param[PARAM_POSITION];
    if (position->view.read_only) PyErr_SetString(PyExc_ValueError, "position is read-only: it cannot be advanced");
    else if (position->made && position->view.ndim) /* an array that was converted: only the copy would advance */
        PyErr_SetString(PyExc_TypeError, "position: to be advanced, the array must be contiguous and uint64");
    return !PyErr_Occurred();
}

static int sample_advance(batch *b, int advance) {
    if (batch_run(b, sample)) return -1;
    const char *wrong = advance ? advance_positions(b) : NULL;
    if (wrong) PyErr_SetString(PyExc_RuntimeError, wrong);
    return wrong ? -1 : 0;
}

static int last_is_true(PyObject *arguments) { return PyObject_IsTrue(PyTuple_GetItem(arguments, PyTuple_Size(arguments) - 1)); }

/* sample(..., advance) */
PyObject *core_sample(PyObject *module, PyObject *arguments) {
    (void)module;
    batch_arguments a;
    batch b;
    if (batch_parse(arguments, 1, &a) || batch_build(&b, &a)) return NULL;
    int advance = last_is_true(arguments);
    int status = advance && !advance_check(&b) ? -1 : sample_advance(&b, advance);
    batch_release(&b);
    if (status) return NULL;
    Py_RETURN_NONE;
}

/* ---- prepared calls ---------------------------------------------------------------------------------------------- */

typedef struct call_object {
    PyObject_HEAD
    batch batch;
    PyObject *arguments; /* the caller's objects, so that they live as long as the call */
    int advance;         /* add 1 to every row's position after each call */
    int running;         /* guarded by the GIL: a prepared call has one set of outputs */
} call_object;

PyTypeObject *call_type;

/* A prepared call reads arrays anew at every run, so what would have to be converted is refused. */
static int call_check(const batch *b, PyObject *call_arguments) {
    PyObject *params = PyTuple_GetItem(call_arguments, 1);
    for (int i = 0; i < PARAM_COUNT; ++i)
        if (b->param[i].made && !b->param[i].scalar && array_check(PyTuple_GetItem(params, i))) {
            PyErr_Format(PyExc_TypeError, "%s: a prepared call reads arrays in place, so this one must be contiguous and %s",
                         b->param[i].name, b->param[i].type == PARAM_F32 ? "float32" : b->param[i].type == PARAM_I32 ? "int32"
                                                                                                                  : "uint64");
            return -1;
        }
    if (b->index.made && array_check(PyTuple_GetItem(call_arguments, 2))) {
        PyErr_SetString(PyExc_TypeError, "index: a prepared call reads it in place, so it must be contiguous and int32");
        return -1;
    }
    if (b->packed) {
        PyErr_SetString(PyExc_TypeError, "allow: a prepared call reads it in place, so give bits, as raffle.pack_mask makes them");
        return -1;
    }
    return 0;
}

PyObject *core_prepare(PyObject *module, PyObject *arguments) {
    (void)module;
    batch_arguments a;
    if (batch_parse(arguments, 1, &a)) return NULL;
    call_object *call = (call_object *)((allocfunc)PyType_GetSlot(call_type, Py_tp_alloc))(call_type, 0);
    if (!call) return NULL;
    batch *b = &call->batch;
    Py_INCREF(arguments);
    call->arguments = arguments;
    call->advance = last_is_true(arguments);
    if (batch_build(b, &a) || call_check(b, arguments) || (call->advance && !advance_check(b))) {
        Py_DECREF((PyObject *)call);
        return NULL;
    }
    if (b->plan->desc.backend == RAFFLE_CUDA) {
        raffle_error error = raffle_error_init();
        raffle_status status = batch_upload(b, &error);
        b->uploaded = 1;
        if (status) {
            core_raise(status, &error);
            Py_DECREF((PyObject *)call);
            return NULL;
        }
    }
    return (PyObject *)call;
}

static PyObject *call_run(PyObject *self, PyObject *arguments, PyObject *words) {
    call_object *call = (call_object *)self;
    batch *b = &call->batch;
    if (words && PyDict_Size(words)) {
        PyErr_SetString(PyExc_TypeError, "a prepared call takes no keywords");
        return NULL;
    }
    PyObject *stream = PyTuple_Size(arguments) ? PyTuple_GetItem(arguments, 0) : NULL;
    if (call->running) {
        PyErr_SetString(PyExc_RuntimeError, "this prepared call is running in another thread: prepare one for each");
        return NULL;
    }
    if (b->plan->desc.backend == RAFFLE_CUDA) {
        if (stream && stream != Py_None) b->launch.stream = PyLong_AsVoidPtr(stream);
        else if (!b->stream_given) array_current_stream(b->logits_object, b->logits_view.device, (void **)&b->launch.stream);
        if (PyErr_Occurred()) return NULL;
    }
    call->running = 1;
    int status = sample_advance(b, call->advance);
    call->running = 0;
    if (status) return NULL;
    PyObject *token = PyTuple_GetItem(call->arguments, 5);
    Py_INCREF(token);
    return token;
}

static void call_dealloc(PyObject *self) {
    call_object *call = (call_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    batch_release(&call->batch);
    Py_CLEAR(call->arguments);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static int call_traverse(PyObject *self, visitproc visit, void *arg) {
    call_object *call = (call_object *)self;
    Py_VISIT(call->arguments);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static PyObject *call_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
    (void)type, (void)arguments, (void)words;
    PyErr_SetString(PyExc_TypeError, "a prepared call is made by prepare()");
    return NULL;
}

static PyType_Slot call_slots[] = {
    {Py_tp_new, call_new},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_traverse, call_traverse},
    {Py_tp_call, call_run},
    {Py_tp_doc, "A call whose arguments are checked already: call it, and it draws. Returns `out`."},
    {0, NULL},
};
PyType_Spec call_spec = {"raffle._core.Call", sizeof(call_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, call_slots};
