/* errors.c - the library's errors as Python exceptions. */
#include "core.h"

static PyObject *exception_of(raffle_status status) {
    switch (status) {
    case RAFFLE_E_MEMORY: return PyExc_MemoryError;
    case RAFFLE_E_DEVICE: return PyExc_RuntimeError; /* what the GPU reports, as in other packages */
    default: return PyExc_ValueError;
    }
}

PyObject *core_raise(raffle_status status, const raffle_error *error) {
    PyObject *type = exception_of(status);
    PyObject *made = PyObject_CallFunction(type, "s", error->text[0] ? error->text : raffle_status_name(status));
    PyObject *row = error->row < 0 ? Py_BuildValue("") : PyLong_FromLongLong(error->row);
    if (made && row && PyObject_SetAttrString(made, "row", row) == 0) PyErr_SetObject(type, made);
    Py_XDECREF(row);
    Py_XDECREF(made);
    return NULL;
}
