/* sample.c - raffle_sample: once, or prepared and run again and again. */
#include "core.h"

#include <string.h>

/* A batch and what is to be told about it. The batch comes first: batch_run hands it back. */
typedef struct sample_call {
    batch batch;
    report_arrays told;
    batch_after after;
} sample_call;

enum { MORE = 3 }; /* arguments behind those of a batch: report, after; then draft_step, or what a prepared call returns */

static raffle_status sample(const batch *b, const raffle_launch *launch, raffle_error *error) {
    return raffle_sample(b->plan->plan, &b->logits, &b->params, &b->result, launch, error);
}

/* 1: positions can be advanced in place. */
static int advance_check(const batch *b) {
    const param *position = &b->param[PARAM_POSITION];
    if (position->view.read_only) PyErr_SetString(PyExc_ValueError, "position is read-only: it cannot be advanced");
    else if (position->made && position->view.ndim) /* an array that was converted: only the copy would advance */
        PyErr_SetString(PyExc_TypeError, "position: to be advanced, the array must be contiguous and uint64");
    return !PyErr_Occurred();
}

/* Takes the arguments from number `more` on, behind the batch's, which has been parsed. 0, or -1 with an exception. */
static int call_build(sample_call *c, batch_arguments *a, PyObject *arguments, Py_ssize_t more) {
    PyObject *report = PyTuple_GetItem(arguments, more);
    memset(&c->told, 0, sizeof c->told);
    memset(&c->after, 0, sizeof c->after);
    a->reports = report != Py_None;
    if (batch_build(&c->batch, a)) return -1;
    c->after.what = (int)PyLong_AsLong(PyTuple_GetItem(arguments, more + 1));
    int wrong = PyErr_Occurred() || report_take(&c->told, &c->batch, report) ||
                (c->after.what & AFTER_ADVANCE && !advance_check(&c->batch));
    if (a->reports) c->batch.result.report = &c->told.report;
    return wrong ? -1 : 0;
}

static void call_release(sample_call *c) {
    report_release(&c->told);
    batch_release(&c->batch);
}

/* Which draft behind the position is drawn; 0: none, the token there. 0, or -1 with an exception. */
static int draft_step_take(sample_call *c, PyObject *step) {
    const unsigned long given = PyLong_AsUnsignedLong(step);
    const int wrong = PyErr_Occurred() != NULL;
    if (wrong && !PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
    c->batch.params.draft_step = (uint32_t)given;
    if (!wrong && given <= UINT32_MAX) return 0;
    PyErr_Clear();
    PyErr_SetString(PyExc_ValueError, "draft_step must be 0 to 4294967295");
    return -1;
}

/* Draws, then moves the requests on: all of it, or nothing. */
static int call_draw(sample_call *c) {
    batch *b = &c->batch;
    batch_after after = c->after;
    /* Where every row has a slot of its own, the GPU's draw advances it: one launch for both. */
    if (after.what & AFTER_ADVANCE && b->plan->desc.backend == RAFFLE_CUDA && !b->params.slot) {
        b->result.advance = (uint64_t *)b->params.position;
        after.what &= ~AFTER_ADVANCE;
    }
    const int wrong = after_check(b, &after) || batch_run(b, sample) || after_run(b, &after);
    /* What advances may be the copy in a kept workspace, which then has another number than the one written there. */
    if (c->after.what & AFTER_ADVANCE && b->space) b->space->held[PARAM_POSITION].count = 0;
    return wrong ? -1 : 0;
}

/* sample(..., report, after, draft_step) */
PyObject *core_sample(PyObject *module, PyObject *arguments) {
    (void)module;
    batch_arguments a;
    sample_call c;
    if (batch_parse(arguments, MORE, &a)) return NULL;
    const Py_ssize_t size = PyTuple_Size(arguments);
    int status = call_build(&c, &a, arguments, size - MORE) || draft_step_take(&c, PyTuple_GetItem(arguments, size - 1)) || call_draw(&c);
    call_release(&c);
    if (status) return NULL;
    Py_RETURN_NONE;
}

/* ---- the usual call, without Python in between ---------------------------------------------------------------------- */

/* quick(workspaces, logits, params, requests, out, flags, after): sample() of tensors [rows, vocab] on a GPU, with parameters
 * that are None, numbers or lists, or those of the requests. Returns out; NotImplemented: the call is another one, as where out is
 * a tuple. */
PyObject *core_quick(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *workspaces, *token, *flags;
    batch_arguments a = {.entries = -1, .dtype = -1, .threads = 1};
    sample_call c;
    array_view seen;
    memset(&c, 0, sizeof c);
    if (!PyArg_ParseTuple(arguments, "O!OOOOOi", workspaces_type, &workspaces, &a.logits, &a.params, &a.requests, &token, &flags,
                          &c.after.what))
        return NULL;
    a.flags = batch_number(flags, "flags");
    if (PyErr_Occurred()) return NULL;
    if (!PyTuple_Check(((workspaces_object *)workspaces)->quick) || PyTuple_Check(token) || !array_peek(a.logits, &seen) ||
        seen.ndim != 2 || !array_on_gpu(&seen) || (a.params != Py_None && !params_plain(a.params))) {
        Py_INCREF(Py_NotImplemented);
        return Py_NotImplemented;
    }
    token = token == Py_None ? workspaces_tokens(workspaces, a.logits, &seen) : (Py_INCREF(token), token);
    if (!token) return NULL;
    a.index = a.slot = a.allow = a.row_flags = a.stream = Py_None;
    a.token = token;
    a.workspace = workspaces;
    const int status = batch_build(&c.batch, &a) || call_draw(&c);
    batch_release(&c.batch);
    if (!status) return token;
    Py_DECREF(token);
    return NULL;
}

/* ---- prepared calls ---------------------------------------------------------------------------------------------- */

typedef struct call_object {
    PyObject_HEAD
    sample_call call;
    PyObject *arguments; /* the caller's objects, so that they live as long as the call */
    void *graph;         /* CUDA: all that a run launches; NULL: it is launched one by one */
    void *stream;        /* CUDA: what prepare() was told, for runs that are told nothing */
    int in_graph;        /* 1: prepared while a graph was captured, whose replays write its parameters */
    int running;         /* guarded by the GIL: a prepared call has one set of outputs */
} call_object;

PyTypeObject *call_type;

/* A prepared call reads arrays anew at every run, so what would have to be converted is refused. */
static int call_check(const batch *b, PyObject *call_arguments) {
    PyObject *params = PyTuple_GetItem(call_arguments, 1);
    for (int i = 0; i < PARAM_COUNT && params != Py_None; ++i)
        if (b->param[i].made && !b->param[i].scalar && array_check(PyTuple_GetItem(params, i))) {
            PyErr_Format(PyExc_TypeError, "%s: a prepared call reads arrays in place, so this one must be contiguous and %s",
                         b->param[i].name, b->param[i].type == PARAM_F32 ? "float32" : b->param[i].type == PARAM_U64 ? "uint64"
                                                                                                                  : "int32");
            return -1;
        }
    const struct {
        const param *made;
        int argument;
    } whole[] = {{&b->index, 3}, {&b->slot, 4}};
    for (int i = 0; i < 2; ++i)
        if (whole[i].made->made && array_check(PyTuple_GetItem(call_arguments, whole[i].argument))) {
            PyErr_Format(PyExc_TypeError, "%s: a prepared call reads it in place, so it must be contiguous and int32", whole[i].made->name);
            return -1;
        }
    if (b->packed) {
        PyErr_SetString(PyExc_TypeError, "allow: a prepared call reads it in place, so give bits, as raffle.pack_mask makes them, "
                                         "row behind row");
        return -1;
    }
    return 0;
}

/* Puts what a run launches into a graph. Where that fails, runs launch it, and say what is wrong. */
static void call_record(call_object *call) {
    batch *b = &call->call.batch;
    void *const current = b->launch.stream;
    void *stream = NULL;
    const int device = b->plan->desc.device;
    if (b->capturing || device_record_begin(device, &stream)) return;
    b->launch.stream = stream;
    const int status = call_draw(&call->call);
    b->launch.stream = current;
    if (device_record_end(device, stream, &call->graph) == NULL && !status) return;
    PyErr_Clear();
    device_forget(device, call->graph);
    call->graph = NULL;
}

/* prepare(..., report, after, answer) */
PyObject *core_prepare(PyObject *module, PyObject *arguments) {
    (void)module;
    batch_arguments a;
    if (batch_parse(arguments, MORE, &a)) return NULL;
    call_object *call = (call_object *)((allocfunc)PyType_GetSlot(call_type, Py_tp_alloc))(call_type, 0);
    if (!call) return NULL;
    batch *b = &call->call.batch;
    Py_INCREF(arguments);
    call->arguments = arguments;
    if (call_build(&call->call, &a, arguments, PyTuple_Size(arguments) - MORE) || call_check(b, arguments)) {
        Py_DECREF((PyObject *)call);
        return NULL;
    }
    if (b->plan->desc.backend == RAFFLE_CUDA) {
        raffle_error error = raffle_error_init();
        raffle_status status = batch_upload(b, &error);
        b->uploaded = 1;
        call->stream = b->launch.stream;
        call->in_graph = b->capturing;
        if (status) {
            core_raise(status, &error);
            Py_DECREF((PyObject *)call);
            return NULL;
        }
        call_record(call);
    }
    return (PyObject *)call;
}

/* Whether every array that the call reads or writes in place is still there. 0, or -1 with an exception. */
static int call_arrays_stay(const call_object *call) {
    const batch *b = &call->call.batch;
    PyObject *arguments = call->arguments, *params = PyTuple_GetItem(arguments, 1);
    PyObject *report = PyTuple_GetItem(arguments, PyTuple_Size(arguments) - MORE);
    const struct {
        const array_view *view;
        const char *name;
        int argument;
    } arrays[] = {{&b->logits_view, "logits", 0}, {&b->index.view, "index", 3},     {&b->slot.view, "slot", 4},
                  {&b->allow_view, "allow", 5},   {&b->token_view, "out", 6},       {&b->row_flags_view, "row_flags", 7}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
        PyObject *object = PyTuple_GetItem(arguments, arrays[i].argument);
        if (arrays[i].view->data && array_stays(object, arrays[i].name, arrays[i].view)) return -1;
    }
    for (int i = 0; i < PARAM_COUNT && params != Py_None; ++i) {
        const param *p = &b->param[i];
        if (p->view.data && !p->scalar && array_stays(PyTuple_GetItem(params, i), p->name, &p->view)) return -1;
    }
    for (int i = 0; i < REPORT_ARRAYS && report != Py_None; ++i) {
        const array_view *view = &call->call.told.view[i];
        if (view->data && array_stays(PyTuple_GetItem(report, 1 + i), "report", view)) return -1;
    }
    return 0;
}

static int call_replay(const call_object *call) {
    const batch *b = &call->call.batch;
    if (after_check(b, &call->call.after)) return -1;
    const char *wrong = device_replay(b->plan->desc.device, call->graph, b->launch.stream);
    if (wrong) PyErr_SetString(PyExc_RuntimeError, wrong);
    return wrong ? -1 : 0;
}

static PyObject *call_run(PyObject *self, PyObject *arguments, PyObject *words) {
    call_object *call = (call_object *)self;
    batch *b = &call->call.batch;
    if (words && PyDict_Size(words)) {
        PyErr_SetString(PyExc_TypeError, "a prepared call takes no keywords");
        return NULL;
    }
    if (PyTuple_Size(arguments) > 1) {
        PyErr_Format(PyExc_TypeError, "a prepared call takes a stream, or nothing: %zd arguments were given", PyTuple_Size(arguments));
        return NULL;
    }
    PyObject *stream = PyTuple_Size(arguments) ? PyTuple_GetItem(arguments, 0) : NULL;
    if (call->running) {
        PyErr_SetString(PyExc_RuntimeError, "this prepared call is running in another thread: prepare one for each");
        return NULL;
    }
    const int far = b->plan->desc.backend == RAFFLE_CUDA;
    if (!far && stream && stream != Py_None) {
        PyErr_SetString(PyExc_ValueError, "stream is for a GPU: the logits are on the CPU");
        return NULL;
    }
    if (far) {
        if (stream && stream != Py_None) {
            if (stream_address(stream, (void **)&b->launch.stream)) return NULL;
        } else {
            b->launch.stream = call->stream;
            if (!b->stream_given) array_current_stream(b->logits_object, b->logits_view.device, (void **)&b->launch.stream);
        }
        b->capturing = device_is_capturing(b->plan->desc.device, b->launch.stream);
        if (call->in_graph && !b->capturing) {
            PyErr_SetString(PyExc_RuntimeError, "this call was prepared while a graph was captured, and runs in that graph alone");
            return NULL;
        }
    }
    if (b->requests && b->requests->has_extra && !b->params.extra) {
        PyErr_SetString(PyExc_RuntimeError, "a request has come that asks for more than those at the time of prepare(): prepare again");
        return NULL;
    }
    if (call_arrays_stay(call)) return NULL;
    int pooled = PyTuple_GetItem(call->arguments, 1) == Py_None; /* requests may have gone since prepare() */
    if (pooled && batch_slots_check(b)) return NULL;
    call->running = 1;
    int status = call->graph && !b->capturing ? call_replay(call) : call_draw(&call->call);
    call->running = 0;
    if (status) return NULL;
    PyObject *answer = PyTuple_GetItem(call->arguments, PyTuple_Size(call->arguments) - 1);
    Py_INCREF(answer);
    return answer;
}

static void call_dealloc(PyObject *self) {
    call_object *call = (call_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (call->graph) device_forget(call->call.batch.plan->desc.device, call->graph);
    call_release(&call->call);
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
    {Py_tp_doc, "A call whose arguments are checked already: call it, and it draws. Returns `out`, and the report if there is one. "
                "On a GPU it takes a stream's address; without one the stream is that of prepare(), or the current one."},
    {0, NULL},
};
PyType_Spec call_spec = {"raffle._core.Call", sizeof(call_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, call_slots};
