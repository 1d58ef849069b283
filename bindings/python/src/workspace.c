/* workspace.c - memory on a GPU that calls work in, kept from one to the next. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *workspaces_type;

static _Thread_local int inside; /* 1: nothing that is made now may be kept */

PyObject *core_inside(PyObject *module, PyObject *flag) {
    (void)module;
    const int told = PyObject_IsTrue(flag);
    if (told < 0) return NULL;
    inside = told;
    Py_RETURN_NONE;
}

/* plan.device_bytes of zeros, by a method of the kind of these logits. NULL with an exception. */
static workspace *workspace_make(const workspaces_object *w, const batch *b) {
    workspace *made = calloc(1, sizeof *made);
    if (!made) return PyErr_NoMemory(), NULL;
    made->users = 1;
    PyObject *stream = b->stream_given ? PyLong_FromVoidPtr(b->launch.stream) : (Py_INCREF(Py_None), Py_None);
    made->array = stream ? PyObject_CallMethod(w->kind, "workspace", "OOO", b->logits_object, (PyObject *)b->plan, stream) : NULL;
    Py_XDECREF(stream);
    if (made->array && array_take(made->array, "workspace", -1, &made->view) == 0) return made;
    workspace_release(made);
    return NULL;
}

workspace *workspace_get(PyObject *workspaces, const batch *b) {
    workspaces_object *w = (workspaces_object *)workspaces;
    void *stream = b->launch.stream;
    const int kept = !inside && !b->capturing; /* what is allocated while a graph is captured is the graph's */
    for (int i = 0; i < w->count && (kept || !w->by_stream); ++i)
        if (w->entry[i].plan == b->plan && (w->entry[i].stream == stream || !w->by_stream)) {
            w->entry[i].space->users++;
            return w->entry[i].space;
        }
    workspace *made = workspace_make(w, b);
    if (!made || !kept) return made;
    const int place = w->count < WORKSPACES_MAX ? w->count++ : w->next;
    if (w->count == WORKSPACES_MAX) w->next = (place + 1) % WORKSPACES_MAX;
    const workspaces_entry before = w->entry[place], now = {b->plan, stream, made};
    w->entry[place] = now;
    made->by_stream = w->by_stream;
    made->users++;
    Py_INCREF((PyObject *)b->plan);
    workspace_release(before.space);
    Py_XDECREF((PyObject *)before.plan);
    return made;
}

void workspace_release(workspace *w) {
    if (!w || --w->users) return;
    array_release(&w->view);
    PyObject *type, *value, *trace; /* its end may run Python code, which must not see our exception */
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(w->array);
    PyErr_Restore(type, value, trace);
    free(w);
}

/* logits.new_empty(rows, **words) */
static PyObject *tokens_make(PyObject *logits, int64_t rows, PyObject *words) {
    static PyObject *name;
    if (!name && !(name = PyUnicode_InternFromString("new_empty"))) return NULL;
    PyObject *method = PyObject_GetAttr(logits, name), *count = method ? Py_BuildValue("(L)", (long long)rows) : NULL;
    PyObject *copy = count ? PyDict_Copy(words) : NULL; /* a class of tensors may be handed the dict itself, and change it */
    PyObject *made = copy ? PyObject_Call(method, count, copy) : NULL;
    Py_XDECREF(copy);
    Py_XDECREF(count);
    Py_XDECREF(method);
    return made;
}

PyObject *workspaces_tokens(PyObject *workspaces, PyObject *logits, const array_view *seen) {
    workspaces_object *w = (workspaces_object *)workspaces;
    const int64_t rows = seen->shape[0];
    PyObject *empty_like = PyTuple_GetItem(w->quick, 0), *words = PyTuple_GetItem(w->quick, 1), *like = w->like;
    PyObject *const type = (PyObject *)Py_TYPE(logits);
    void *stream;
    if (!words) return NULL;
    /* Of logits of the same type: a class of its own may have tokens of its own, which other logits' must not become. */
    const int again = w->like_rows == rows && w->like_device == seen->device.id && w->like_type == type;
    if (again && like) { /* by a model: torch takes less time where it has less to read */
        Py_INCREF(like);
        PyObject *made = PyObject_CallFunctionObjArgs(empty_like, like, NULL);
        Py_DECREF(like);
        return made;
    }
    like = NULL;
    if (again && !inside && array_current_stream(logits, seen->device, &stream) == 0 && !device_is_capturing(seen->device.id, stream) &&
        !(like = tokens_make(logits, rows, words)))
        return NULL;
    PyObject *const before = w->like, *const type_before = w->like_type;
    Py_INCREF(type);
    w->like = like;
    w->like_type = type;
    w->like_rows = rows;
    w->like_device = seen->device.id;
    Py_XDECREF(before);
    Py_XDECREF(type_before);
    return tokens_make(logits, rows, words);
}

/* Workspaces(kind, by_stream) */
static PyObject *workspaces_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
    PyObject *kind;
    int by_stream;
    (void)words;
    if (!PyArg_ParseTuple(arguments, "Op", &kind, &by_stream)) return NULL;
    workspaces_object *w = (workspaces_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!w) return NULL;
    Py_INCREF(kind);
    w->kind = kind;
    w->by_stream = by_stream;
    w->quick = PyObject_GetAttrString(kind, "quick");
    if (w->quick) return (PyObject *)w;
    Py_DECREF((PyObject *)w);
    return NULL;
}

static void workspaces_dealloc(PyObject *self) {
    workspaces_object *w = (workspaces_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    while (w->count) {
        const workspaces_entry e = w->entry[--w->count];
        workspace_release(e.space);
        Py_DECREF((PyObject *)e.plan);
    }
    Py_XDECREF(w->kind);
    Py_XDECREF(w->quick);
    Py_XDECREF(w->like);
    Py_XDECREF(w->like_type);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot workspaces_slots[] = {
    {Py_tp_new, workspaces_new},
    {Py_tp_dealloc, workspaces_dealloc},
    {Py_tp_doc, "Workspaces of plans on a GPU, made by `kind.workspace(logits, plan, stream)` when they are first needed. by_stream: one\n"
                "for each stream, and never in a graph; else one for all, of which one may run at a time."},
    {0, NULL},
};
PyType_Spec workspaces_spec = {"raffle._core.Workspaces", sizeof(workspaces_object), 0, Py_TPFLAGS_DEFAULT, workspaces_slots};
