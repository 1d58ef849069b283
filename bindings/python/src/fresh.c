/* fresh.c - seeds for callers who gave none: never the same twice in a process, never the same in two processes. */
#include "core.h"

#include <string.h>

static uint64_t key, count;

uint64_t fresh_seed(void) {
    uint64_t z = key + ++count * 0x9e3779b97f4a7c15u; /* SplitMix64: a bijection of the count */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

PyObject *core_reseed(PyObject *module, PyObject *bytes) {
    (void)module;
    char *data;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(bytes, &data, &length)) return NULL;
    if (length != sizeof key) {
        PyErr_SetString(PyExc_ValueError, "reseed wants 8 bytes");
        return NULL;
    }
    memcpy(&key, data, sizeof key);
    count = 0;
    Py_RETURN_NONE;
}
