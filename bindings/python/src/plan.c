/* plan.c - plans as Python objects, the cache of the plain functions, and host workspaces. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *plan_type;

static plan_object *plan_make(const raffle_plan_desc *desc) {
    raffle_error error = raffle_error_init();
    raffle_plan *made;
    raffle_status status = raffle_plan_create(desc, &made, &error);
    if (status) return core_raise(status, &error), NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(plan_type, Py_tp_alloc);
    plan_object *plan = (plan_object *)allocate(plan_type, 0);
    if (!plan) {
        raffle_plan_destroy(made);
        return NULL;
    }
    plan->plan = made;
    plan->desc = *desc;
    plan->workspace_bytes = raffle_plan_workspace(made);
    return plan;
}

static void plan_dealloc(PyObject *self) {
    plan_object *plan = (plan_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    while (plan->free_count) free(plan->free_list[--plan->free_count]);
    raffle_plan_destroy(plan->plan);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

void *plan_workspace_take(plan_object *plan) {
    if (plan->free_count) return plan->free_list[--plan->free_count];
    void *made = aligned_alloc(RAFFLE_WORKSPACE_ALIGN, plan->workspace_bytes);
    if (!made) PyErr_NoMemory();
    return made;
}

void plan_workspace_give(plan_object *plan, void *workspace) {
    if (plan->free_count < PLAN_WORKSPACES_MAX) plan->free_list[plan->free_count++] = workspace;
    else free(workspace);
}

/* ---- cache --------------------------------------------------------------------------------------------------- */

enum { CACHE_MAX = 64 };
static plan_object *cache[CACHE_MAX];
static int cache_next;

plan_object *plan_get(const raffle_plan_desc *desc) {
    for (int i = 0; i < CACHE_MAX; ++i) {
        if (cache[i] && memcmp(&cache[i]->desc, desc, sizeof *desc) == 0) {
            plan_object *found = cache[i];
            if (i) { /* often used plans gather in front */
                cache[i] = cache[i / 2];
                cache[i / 2] = found;
            }
            Py_INCREF((PyObject *)found);
            return found;
        }
    }
    plan_object *made = plan_make(desc);
    if (!made) return NULL;
    /* The back half takes newcomers in turn. */
    int place = CACHE_MAX / 2 + cache_next;
    for (int i = 0; i < CACHE_MAX / 2; ++i)
        if (!cache[i]) {
            place = i;
            break;
        }
    if (place >= CACHE_MAX / 2) cache_next = (cache_next + 1) % (CACHE_MAX / 2);
    plan_object *before = cache[place];
    cache[place] = made;
    Py_INCREF((PyObject *)made);
    Py_XDECREF((PyObject *)before);
    return made;
}

/* ---- as Python sees it ------------------------------------------------------------------------------------------ */

static PyObject *plan_device_bytes(PyObject *self, void *none) {
    const plan_object *plan = (const plan_object *)self;
    (void)none;
    return PyLong_FromSize_t(plan->workspace_bytes + batch_upload_bytes(plan->desc.rows_max));
}

static PyGetSetDef plan_getset[] = {
    {"device_bytes", plan_device_bytes, NULL, "scratch memory that one call needs on a GPU, and room for its parameters", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyObject *plan_new(PyTypeObject *type, PyObject *arguments, PyObject *words) {
    (void)type, (void)arguments, (void)words;
    PyErr_SetString(PyExc_TypeError, "a Plan is made by the calls that need it");
    return NULL;
}

static PyType_Slot plan_slots[] = {
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_getset, plan_getset},
    {Py_tp_doc, "Shape, dtype and kernels, chosen once."},
    {0, NULL},
};
PyType_Spec plan_spec = {"raffle._core.Plan", sizeof(plan_object), 0, Py_TPFLAGS_DEFAULT, plan_slots};
