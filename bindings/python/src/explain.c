/* explain.c - raffle_explain as a dictionary. */
#include "core.h"

#include <stdlib.h>

static PyObject *candidates(const raffle_explanation *e) {
    PyObject *list = PyList_New(e->top_count);
    for (int64_t i = 0; list && i < e->top_count; ++i) {
        const raffle_candidate *c = &e->top[i];
        PyObject *entry = Py_BuildValue("(idiK)", (int)c->token, (double)c->logit, (int)c->fate, (unsigned long long)c->tickets);
        if (!entry || PyList_SetItem(list, i, entry)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *explanation_object(const raffle_explanation *e) {
    PyObject *fates = PyTuple_New(8), *top = candidates(e);
    for (int i = 0; fates && i < 8; ++i) PyTuple_SetItem(fates, i, PyLong_FromLongLong(e->fates[i]));
    if (!fates || !top) {
        Py_XDECREF(fates);
        Py_XDECREF(top);
        return NULL;
    }
    return Py_BuildValue("{sisOsIsNsdsKsKsKsN}", "token", (int)e->token, "greedy", e->greedy ? Py_True : Py_False, "row_flags",
                         (unsigned)e->row_flags, "fates", fates, "threshold", (double)e->threshold, "row_tickets",
                         (unsigned long long)e->row_tickets, "draw_tickets", (unsigned long long)e->draw_tickets, "drawn",
                         (unsigned long long)e->drawn, "top", top);
}

static PyObject *explain_row(batch *b, int64_t row, int64_t top) {
    raffle_explanation e = raffle_explanation_init();
    raffle_error error = raffle_error_init();
    PyObject *made = NULL;
    int64_t vocab = b->plan->desc.vocab;
    e.top_count = top > vocab ? vocab : top;
    e.top = malloc(sizeof *e.top * (size_t)(e.top_count > 0 ? e.top_count : 1));
    raffle_launch launch = b->launch;
    launch.workspace = e.top ? plan_workspace_take(b->plan) : NULL;
    launch.workspace_bytes = b->plan->workspace_bytes;
    if (launch.workspace && batch_begin(b) == 0) {
        raffle_status status;
        Py_BEGIN_ALLOW_THREADS
        status = raffle_explain(b->plan->plan, &b->logits, &b->params, row, &e, &launch, &error);
        Py_END_ALLOW_THREADS
        batch_end(b);
        made = status ? core_raise(status, &error) : explanation_object(&e);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    if (launch.workspace) plan_workspace_give(b->plan, launch.workspace);
    free(e.top);
    return made;
}

/* explain(..., row, top): the arguments of sample, then which row, then how many of its likeliest tokens */
PyObject *core_explain(PyObject *module, PyObject *arguments) {
    (void)module;
    batch_arguments a;
    batch b;
    if (batch_parse(arguments, 2, &a)) return NULL;
    Py_ssize_t count = PyTuple_Size(arguments);
    long long wanted[2];
    for (int i = 0; i < 2; ++i) {
        int overflow;
        PyObject *number = PyTuple_GetItem(arguments, count - 2 + i);
        wanted[i] = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow) PyErr_Format(PyExc_ValueError, "%s is %R: must be within 64 bits", i ? "top" : "row", number);
    }
    const long long row = wanted[0], top = wanted[1];
    if (PyErr_Occurred() || batch_build(&b, &a)) return NULL;
    PyObject *made = NULL;
    if (b.plan->desc.backend == RAFFLE_CPU) made = explain_row(&b, row, top);
    else PyErr_SetString(PyExc_ValueError, "explain needs logits on the CPU: the tokens are the same");
    batch_release(&b);
    return made;
}
