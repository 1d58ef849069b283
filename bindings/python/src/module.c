/* module.c - the extension module raffle._core: the functions that the Python files call. */
#include "core.h"

static PyObject *core_version(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    uint32_t version = raffle_version();
    return PyUnicode_FromFormat("%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
}

static PyObject *core_cuda(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    char why[256] = "";
    int available = raffle_cuda_available(why, sizeof why);
    return Py_BuildValue("(Os)", available ? Py_True : Py_False, why);
}

static PyObject *core_isa(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    PyObject *names = PyList_New(0);
    for (int isa = RAFFLE_ISA_SCALAR; names && isa <= RAFFLE_ISA_NEON; ++isa) {
        if (!raffle_isa_available((raffle_isa)isa)) continue;
        PyObject *name = PyUnicode_FromString(raffle_isa_name((raffle_isa)isa));
        if (!name || PyList_Append(names, name)) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyMethodDef methods[] = {
    {"sample", core_sample, METH_VARARGS, "raffle_sample on arrays"},
    {"quick", core_quick, METH_VARARGS, "the same for the usual call on a GPU, or NotImplemented"},
    {"prepare", core_prepare, METH_VARARGS, "the same, to be run again and again"},
    {"rows", core_rows, METH_VARARGS, "raffle_softmax and raffle_mask on arrays"},
    {"verify", core_verify, METH_VARARGS, "raffle_verify on arrays"},
    {"explain", core_explain, METH_VARARGS, "raffle_explain on arrays"},
    {"inspect", core_inspect, METH_O, "(shape, DLPack device type, device id) of an array"},
    {"reseed", core_reseed, METH_O, "8 bytes that seeds of calls without one begin with"},
    {"plain", core_plain, METH_VARARGS, "whether parameters are numbers or None"},
    {"inside", core_inside, METH_O, "whether this thread is in an operator, which keeps nothing"},
    {"version", core_version, METH_NOARGS, "of the C library"},
    {"cuda", core_cuda, METH_NOARGS, "(whether a GPU can be used, why not)"},
    {"isa", core_isa, METH_NOARGS, "instruction sets of this machine"},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type, const char *name) {
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    if (!*type) return -1;
    Py_INCREF(*type); /* one for the module, one for us */
    return PyModule_AddObject(module, name, (PyObject *)*type);
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "raffle._core", "The C library, on arrays of any kind.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (add_type(module, &plan_spec, &plan_type, "Plan") || add_type(module, &call_spec, &call_type, "Call") ||
        add_type(module, &requests_spec, &requests_type, "Requests") ||
        add_type(module, &workspaces_spec, &workspaces_type, "Workspaces")) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
