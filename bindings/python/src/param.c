/* param.c - parameters: None, a number, a list, or any array, with an entry per row or slot. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static const char *const type_name[] = {"float32", "int32", "uint64", "int32"};

size_t param_size(param_type type) { return type == PARAM_U64 ? 8 : 4; }

static int is_sequence(PyObject *object) { return PyList_Check(object) || PyTuple_Check(object); }

/* ---- one value ------------------------------------------------------------------------------------------- */

static void store_f32(void *to, double value) {
    float narrow = (float)value;
    memcpy(to, &narrow, sizeof narrow);
}

static const char beyond_i32[] = "must be -2147483648 to 2147483647";

/* An integer into 32 bits; `sign`: that of one beyond 64, or 0. 1: it does not fit, and must. */
static int store_i32(const param *p, int64_t value, int sign, void *to) {
    if (sign) value = sign > 0 ? INT64_MAX : INT64_MIN;
    int32_t narrow = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
    memcpy(to, &narrow, sizeof narrow);
    return p->type == PARAM_I32 && narrow != value;
}

static int store_integer(const param *p, PyObject *number, void *to) {
    int overflow = 0;
    int64_t value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (value == -1 && PyErr_Occurred()) return -1;
    if (p->type == PARAM_I32 || p->type == PARAM_CLAMPED) {
        if (!store_i32(p, value, overflow, to)) return 0;
        PyErr_Format(PyExc_ValueError, "%s is %R: %s", p->name, number, beyond_i32);
        return -1;
    }
    uint64_t wide = (uint64_t)value;
    if (overflow > 0) wide = PyLong_AsUnsignedLongLong(number);
    if (overflow < 0 || PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s is %R: must be within 64 bits", p->name, number);
        return -1;
    }
    memcpy(to, &wide, sizeof wide);
    return 0;
}

/* A Python number into one entry. */
static int store_number(const param *p, PyObject *number, void *to) {
    if (PyBool_Check(number)) {
        PyErr_Format(PyExc_TypeError, "%s is %R: must be a number", p->name, number);
        return -1;
    }
    if (p->type == PARAM_F32) {
        double value = PyFloat_AsDouble(number);
        if (value == -1.0 && PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_TypeError))
                PyErr_Format(PyExc_TypeError, "%s must be a number, a list of numbers or an array, not %R", p->name,
                             (PyObject *)Py_TYPE(number));
            else if (PyErr_ExceptionMatches(PyExc_OverflowError))
                PyErr_Format(PyExc_ValueError, "%s is an integer beyond what a float can hold", p->name);
            return -1;
        }
        store_f32(to, value);
        return 0;
    }
    PyObject *whole = PyNumber_Index(number);
    if (!whole) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s must be an integer, a list of integers or an array, not %R", p->name,
                         (PyObject *)Py_TYPE(number));
        return -1;
    }
    int status = store_integer(p, whole, to);
    Py_DECREF(whole);
    return status;
}

int param_number(PyObject *number, const char *name, param_type type, void *to) {
    param p = {.name = name, .type = type};
    return store_number(&p, number, to);
}

/* ---- arrays ------------------------------------------------------------------------------------------------ */

static float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, fraction = half & 1023;
    float value;
    if (exponent == 0) { /* zero and subnormal: fraction * 2^-24, exact */
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double read_float(const array_view *view, const char *from) {
    uint16_t half;
    uint32_t bits;
    float narrow;
    double wide;
    if (view->dtype.bits == 64) {
        memcpy(&wide, from, sizeof wide);
        return wide;
    }
    if (view->dtype.bits == 32) {
        memcpy(&narrow, from, sizeof narrow);
        return narrow;
    }
    memcpy(&half, from, sizeof half);
    if (view->dtype.code == DL_FLOAT) return half_to_float(half);
    bits = (uint32_t)half << 16;
    memcpy(&narrow, &bits, sizeof narrow);
    return narrow;
}

static int64_t read_integer(const array_view *view, const char *from) {
    int is_signed = view->dtype.code == DL_INT, bits = view->dtype.bits;
    uint64_t value = 0;
    memcpy(&value, from, (size_t)bits / 8); /* little endian, as all that raffle runs on */
    if (is_signed && bits < 64 && value >> (bits - 1)) value |= ~(uint64_t)0 << bits;
    return (int64_t)value;
}

/* One element of an array of another dtype. 0, or -1 with an exception. */
static int convert(const param *p, const char *from, void *to) {
    const array_view *view = &p->view;
    int real = view->dtype.code == DL_FLOAT || view->dtype.code == DL_BFLOAT;
    int huge = view->dtype.code == DL_UINT && view->dtype.bits == 64;
    if (p->type == PARAM_F32) {
        int64_t whole = real ? 0 : read_integer(view, from);
        store_f32(to, real ? read_float(view, from) : huge ? (double)(uint64_t)whole : (double)whole);
    } else if (p->type == PARAM_U64) {
        int64_t whole = read_integer(view, from); /* int64 is taken bit for bit */
        memcpy(to, &whole, sizeof whole);
    } else {
        int64_t whole = read_integer(view, from);
        if (!store_i32(p, whole, huge && whole < 0, to)) return 0;
        PyErr_Format(PyExc_ValueError, huge ? "%s is %llu: %s" : "%s is %lld: %s", p->name, (long long)whole, beyond_i32);
        return -1;
    }
    return 0;
}

static int dtype_can(const param *p, char *text, size_t bytes) {
    const dl_dtype dtype = p->view.dtype;
    int real = dtype.code == DL_FLOAT ? dtype.bits >= 16 && dtype.bits <= 64 : dtype.code == DL_BFLOAT;
    int whole = (dtype.code == DL_INT || dtype.code == DL_UINT) && dtype.bits <= 64;
    if (whole || (real && p->type == PARAM_F32)) return 1;
    PyErr_Format(PyExc_TypeError, "%s has dtype %s: must be %s", p->name, array_dtype_name(dtype, text, bytes),
                 type_name[p->type]);
    return 0;
}

/* Whether the library can read the array as it is. */
static int dtype_fits(const param *p) {
    const array_view *v = &p->view;
    if (p->type == PARAM_F32) return array_is(v, DL_FLOAT, 32);
    if (p->type == PARAM_U64) return array_is(v, DL_UINT, 64) || array_is(v, DL_INT, 64);
    return array_is(v, DL_INT, 32);
}

static int take_array(param *p, PyObject *object, int64_t count, const dl_device *device) {
    char text[32];
    array_view *v = &p->view;
    if (array_take(object, p->name, device->type == DL_CPU ? 0 : -1, v)) return -1;
    if (v->ndim > 1 || (v->ndim == 1 && count >= 0 && v->shape[0] != count)) {
        if (v->ndim > 1) PyErr_Format(PyExc_ValueError, "%s has %d axes: must be a number or have one", p->name, (int)v->ndim);
        else PyErr_Format(PyExc_ValueError, "%s has %lld entries: must be %lld, or one number", p->name,
                          (long long)v->shape[0], (long long)count);
        return -1;
    }
    if (!dtype_can(p, text, sizeof text)) return -1;
    int64_t length = v->ndim ? v->shape[0] : 1, step = v->ndim ? v->stride[0] : 1;
    int in_order = length <= 1 || step == 1, aligned = (uintptr_t)v->data % param_size(p->type) == 0;
    p->count = length;
    if (array_on_gpu(v)) {
        if (device->type == DL_CPU || device->id != v->device.id) {
            PyErr_Format(PyExc_ValueError, "%s is on GPU %d, the logits are %s", p->name, (int)v->device.id,
                         device->type == DL_CPU ? "on the CPU" : "on another GPU");
            return -1;
        }
        if (!dtype_fits(p) || !in_order || !v->ndim) {
            PyErr_Format(PyExc_ValueError, "%s: on a GPU it must be a contiguous %s array with one axis, not %s", p->name,
                         type_name[p->type], array_dtype_name(v->dtype, text, sizeof text));
            return -1;
        }
        p->on_gpu = 1;
        p->data = v->data ? (const void *)v->data : &p->value; /* no rows need no memory, but it is there */
        return 0;
    }
    if (!v->ndim) {
        if (convert(p, v->data, &p->value)) return -1;
        p->scalar = 1;
        p->data = &p->value;
        return 0;
    }
    if (dtype_fits(p) && in_order && aligned) {
        p->data = v->data ? (const void *)v->data : &p->value;
        return 0;
    }
    size_t size = param_size(p->type), from_size = v->dtype.bits / 8u;
    p->made = malloc((size_t)length * size + 1);
    if (!p->made) return PyErr_NoMemory(), -1;
    for (int64_t i = 0; i < length; ++i)
        if (convert(p, v->data + i * step * (int64_t)from_size, (char *)p->made + (size_t)i * size)) return -1;
    p->data = p->made;
    return 0;
}

static int take_sequence(param *p, PyObject *object, int64_t count) {
    Py_ssize_t length = PySequence_Size(object);
    if (count >= 0 && length != count) {
        PyErr_Format(PyExc_ValueError, "%s has %zd entries: must be %lld, or one number", p->name, length, (long long)count);
        return -1;
    }
    size_t size = param_size(p->type);
    p->made = malloc((size_t)length * size + 1);
    if (!p->made) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < length; ++i) {
        PyObject *item = PySequence_GetItem(object, i);
        int status = item ? store_number(p, item, (char *)p->made + (size_t)i * size) : -1;
        Py_XDECREF(item);
        if (status) return -1;
    }
    p->count = length;
    p->data = p->made;
    return 0;
}

int param_take(param *p, PyObject *object, const char *name, param_type type, int64_t count, const dl_device *device) {
    memset(p, 0, sizeof *p);
    p->name = name;
    p->type = type;
    if (object == Py_None) return 0;
    if (is_sequence(object)) return take_sequence(p, object, count);
    if (!PyFloat_Check(object) && !PyLong_Check(object) && array_check(object)) return take_array(p, object, count, device);
    if (store_number(p, object, &p->value)) return -1;
    p->scalar = 1;
    p->count = 1;
    p->data = &p->value;
    return 0;
}

void param_drop_default(param *p, double value) {
    if (!p->data || !p->scalar) return;
    float real;
    int32_t whole;
    memcpy(&real, &p->value, sizeof real);
    memcpy(&whole, &p->value, sizeof whole);
    if (p->type == PARAM_F32 ? real == (float)value : whole == (int32_t)value) p->data = NULL;
}

int param_spread(param *p, int is_seed, int64_t count) {
    p->made = malloc((size_t)count * param_size(p->type) + 1);
    if (!p->made) return PyErr_NoMemory(), -1;
    if (param_size(p->type) == 4) {
        uint32_t *entry = p->made, value;
        memcpy(&value, &p->value, sizeof value);
        for (int64_t i = 0; i < count; ++i) entry[i] = value;
    } else {
        uint64_t *entry = p->made;
        for (int64_t i = 0; i < count; ++i) entry[i] = p->value + (is_seed ? (uint64_t)i : 0);
    }
    p->data = p->made;
    return 0;
}

void param_release(param *p) {
    free(p->made);
    p->made = NULL;
    array_release(&p->view);
}

int params_plain(PyObject *params) {
    int plain = PyTuple_Check(params);
    for (Py_ssize_t i = 0; plain && i < PyTuple_Size(params); ++i) {
        PyObject *object = PyTuple_GetItem(params, i);
        plain = object == Py_None || PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyList_CheckExact(object);
    }
    return plain;
}

PyObject *core_plain(PyObject *module, PyObject *arguments) {
    (void)module;
    return PyBool_FromLong(params_plain(arguments));
}
