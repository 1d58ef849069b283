/* core.h - what the files of the extension share. Everything here runs with the GIL held, unless it says otherwise. */
#ifndef RAFFLE_PYTHON_CORE_H
#define RAFFLE_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <raffle/raffle.h>

#include "device.h"
#include "dlpack.h"

/* ---- errors.c ---------------------------------------------------------------------------------- */

/* Raises the exception of a failed call: the library's sentence, and its row as the attribute `row`. Returns NULL. */
PyObject *core_raise(raffle_status status, const raffle_error *error);

/* ---- array.c ------------------------------------------------------------------------------------ */

enum { ARRAY_NDIM_MAX = 4 };

/* An array that is on loan: released, its owner may free it. */
typedef struct array_view {
    char *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t shape[ARRAY_NDIM_MAX], stride[ARRAY_NDIM_MAX]; /* in elements */
    int read_only;
    PyObject *keep;                /* capsule or memoryview that holds the memory, or NULL */
    dl_managed_versioned *managed; /* the same from an exchange table, or NULL */
} array_view;

/* Borrows an array: DLPack, __array_struct__, __cuda_array_interface__ or the buffer protocol. `stream` is what DLPack's
 * stream argument is for arrays of a GPU: the stream that will read (1: the default stream). 0, or -1 with an exception.
 * `name` is for its sentence. */
int array_take(PyObject *object, const char *name, int64_t stream, array_view *view);
void array_release(array_view *view);

/* The stream that the object's package works on now, for arrays whose type has an exchange table. 0, or -1 where it
 * cannot be asked (no exception). */
int array_current_stream(PyObject *object, dl_device device, void **stream);

/* 1: `view` has address, shape and device of an array whose type has an exchange table; nothing is on loan. 0: it cannot be had. */
int array_peek(PyObject *object, array_view *view);

/* 1: the object looks like an array (array_take will not call it a number). */
int array_check(PyObject *object);

/* Whether the array that `view` was taken from is where and what it was then. 0, or -1 with an exception. A loan keeps an
 * array, but torch and numpy can give its memory back all the same (storage.resize_, set_, resize with refcheck=False). */
int array_stays(PyObject *object, const char *name, const array_view *view);

int array_is(const array_view *view, int code, int bits);
int array_on_gpu(const array_view *view);
int64_t array_count(const array_view *view);
/* 1: elements follow each other in C order. */
int array_is_contiguous(const array_view *view);
/* "float32", "bool", ...: for sentences. */
const char *array_dtype_name(dl_dtype dtype, char *text, size_t bytes);

/* inspect(object) -> (shape, DLPack device type, device id) */
PyObject *core_inspect(PyObject *module, PyObject *object);

/* ---- plan.c ------------------------------------------------------------------------------------- */

enum { PLAN_WORKSPACES_MAX = 64 };

/* A plan and the host workspaces that wait for their next call. The GIL guards the list. */
typedef struct plan_object {
    PyObject_HEAD
    raffle_plan *plan;
    raffle_plan_desc desc;
    size_t workspace_bytes;
    int free_count;
    void *free_list[PLAN_WORKSPACES_MAX];
} plan_object;

extern PyType_Spec plan_spec;
extern PyTypeObject *plan_type;

/* A plan from the cache, or a new one; a new reference. */
plan_object *plan_get(const raffle_plan_desc *desc);
void *plan_workspace_take(plan_object *plan); /* or NULL with an exception */
void plan_workspace_give(plan_object *plan, void *workspace);

/* ---- param.c ------------------------------------------------------------------------------------ */

/* PARAM_CLAMPED: int32, and what is beyond 32 bits means what the largest does, as for top_k, where that is "off". Of PARAM_I32 it is an
 * error with the number in it, unless it is on a GPU. */
typedef enum param_type { PARAM_F32, PARAM_I32, PARAM_U64, PARAM_CLAMPED } param_type;

/* One parameter of a batch: nothing, one value for all rows, or an array with an entry per slot. */
typedef struct param {
    const char *name;
    param_type type;
    const void *data; /* the array, or &value; NULL: left at its default */
    int64_t count;    /* entries of `data` */
    int scalar;       /* 1: one value for every row */
    int on_gpu;       /* 1: `data` is device memory already */
    uint64_t value;   /* a scalar, in its own bytes */
    void *made;       /* converted entries that we own */
    array_view view;
} param;

/* Reads what the caller gave for a parameter. `count` entries are expected of an array (-1: any number), on `device`
 * or on the host. Values are converted where that is exact in meaning. 0, or -1 with an exception. */
int param_take(param *p, PyObject *object, const char *name, param_type type, int64_t count, const dl_device *device);
/* Leaves an unset scalar at its default, so that the kernel need not look at it. */
void param_drop_default(param *p, double value);
/* Writes a scalar out: an entry for each of `count` slots. One seed makes a seed for every row: rows that shared one
 * would draw alike. 0, or -1 with an exception. */
int param_spread(param *p, int is_seed, int64_t count);
void param_release(param *p);
/* One number into an entry of its type. 0, or -1 with an exception. */
int param_number(PyObject *number, const char *name, param_type type, void *to);
size_t param_size(param_type type);
/* Whether all of a tuple are None, numbers or lists, which are the same for every kind of arrays; for Python plain(*objects). */
int params_plain(PyObject *params);
PyObject *core_plain(PyObject *module, PyObject *arguments);

/* ---- requests.c --------------------------------------------------------------------------------- */

enum { PARAM_TEMPERATURE, PARAM_TOP_K, PARAM_TOP_P, PARAM_MIN_P, PARAM_SEED, PARAM_POSITION, PARAM_COUNT };

/* Slots in a GPU's memory, which is an array of the logits' package. Either a copy of the host's, made for one call or a
 * prepared one; or resident, as a Sampler's: parameters are there too, a slot is written when it changes, and histories
 * are there alone. */
typedef struct requests_there {
    array_view memory;        /* data NULL: none */
    PyObject *object;         /* the array that it is of */
    int resident;
    int captured;             /* 1: a graph was captured that does not look at `extra` */
    void *array[PARAM_COUNT]; /* [slots] resident */
    raffle_extra *extra;      /* [slots] */
    char *lists;              /* of all slots, where they are a copy */
    PyObject **keep;          /* [slots] resident: the arrays that hold each slot's lists */
    raffle_state state;       /* memory NULL: no history */
} requests_there;

/* What requests ask for and have said, in slots. A call that reads `extra` does so without the GIL: meanwhile nothing may
 * change, and `running` says so. */
typedef struct requests_object {
    PyObject_HEAD
    int64_t slots;
    void *array[PARAM_COUNT]; /* [slots] */
    raffle_extra *extra;      /* [slots] */
    PyObject **keep;          /* the memory of extra's lists */
    char *used, *seen;        /* [slots] has a request; scratch of requests_accept_check */
    raffle_state state;       /* memory NULL: no history, or a resident one */
    int has_extra;            /* 1: some slot asked for more than the arrays hold */
    int running;
    requests_there there;
} requests_object;

extern PyType_Spec requests_spec;
extern PyTypeObject *requests_type;
int requests_idle(const requests_object *q); /* 1, or 0 with an exception */
/* Whether every row's slot has a request. 0, or -1 with an exception. */
int requests_check(const requests_object *q, const int32_t *slot, int64_t rows);
/* Whether every row has a slot of its own, in which a history in host memory has room for a token, and for the row's `each` drafts up
 * to a -1. 0, or -1 with an exception. */
int requests_accept_check(requests_object *q, const int32_t *slot, int64_t rows, const int32_t *draft, int64_t each);
int requests_slot(const requests_object *q, long long slot); /* 1, or 0 with an exception */
/* The records of `count` slots as a GPU reads them, and their lists, of which `lists` is the image and `there` the place.
 * records NULL: only how many bytes the lists take, which is what it returns. Slots beside each other share lists. */
size_t requests_image(const requests_object *q, int64_t first, int64_t count, raffle_extra *records, char *lists, char *there);

/* ---- requests_device.c ---------------------------------------------------------------------------- */

/* Methods of Requests. */
PyObject *requests_device_bytes(PyObject *self, PyObject *arguments);
PyObject *requests_place(PyObject *self, PyObject *arguments);
PyObject *requests_idle_there(PyObject *self, PyObject *stream);
PyObject *requests_put(PyObject *self, PyObject *arguments);
PyObject *requests_position(PyObject *self, PyObject *arguments);
PyObject *requests_move(PyObject *self, PyObject *arguments);

/* The copy for a call: NULL, or CUDA's sentence. */
const char *requests_upload(const requests_object *q, void *stream);
/* A change of resident histories: its arrays go to `scratch` on the GPU. 0, or -1 with an exception. */
typedef raffle_status (*state_change)(const raffle_state *, const raffle_tokens *, raffle_error *);
int requests_change_there(requests_object *q, state_change change, raffle_tokens *tokens, PyObject *scratch, PyObject *stream);
/* A resident slot's history as a state of one slot in host memory, which the caller frees. Waits. 0, or -1 with an exception. */
int requests_history_there(const requests_object *q, int64_t slot, PyObject *stream, raffle_state *one);
void requests_there_release(requests_object *q);

/* ---- workspace.c -------------------------------------------------------------------------------- */

enum { WORKSPACES_MAX = 64 };

/* Memory on a GPU for one call at a time, and which numbers it has, from earlier calls on the same stream, where parameters go. */
typedef struct workspace {
    int users; /* guarded by the GIL, as all of it */
    int by_stream;
    PyObject *array;
    array_view view;
    struct {
        uint64_t value;
        int64_t count; /* 0: nothing is known of it */
    } held[PARAM_COUNT];
} workspace;

typedef struct workspaces_entry {
    plan_object *plan;
    void *stream;
    workspace *space;
} workspaces_entry;

typedef struct workspaces_object {
    PyObject_HEAD
    PyObject *kind; /* makes them */
    int by_stream, count, next;
    workspaces_entry entry[WORKSPACES_MAX];
    PyObject *quick;     /* (empty_like, words for new_empty) of kinds whose usual call core_quick does; or None */
    PyObject *like;      /* tokens of as many rows as the last calls had, on their device; or NULL */
    PyObject *like_type; /* the type of those calls' logits */
    int64_t like_rows;
    int32_t like_device;
} workspaces_object;

extern PyType_Spec workspaces_spec;
extern PyTypeObject *workspaces_type;

struct batch;
/* A workspace for a batch whose plan and stream are known, which the caller releases; NULL with an exception. */
workspace *workspace_get(PyObject *workspaces, const struct batch *b);
void workspace_release(workspace *w);
/* New tokens for logits [rows, vocab] on a GPU, which array_peek has seen; NULL with an exception. */
PyObject *workspaces_tokens(PyObject *workspaces, PyObject *logits, const array_view *seen);
/* inside(flag): whether this thread is in an operator, which may not keep what it allocates */
PyObject *core_inside(PyObject *module, PyObject *flag);

/* ---- batch.c ------------------------------------------------------------------------------------ */

enum { BATCH_THREADS_MAX = 256, BATCH_MORE = 7 };

/* What every call on rows has in common: its arrays, and the library's structs that point to them. */
typedef struct batch {
    plan_object *plan;
    requests_object *requests; /* or NULL */
    raffle_logits logits;
    raffle_params params;
    raffle_result result;
    raffle_launch launch;
    array_view logits_view, allow_view, token_view, row_flags_view;
    param param[PARAM_COUNT], slot, index;
    workspace *space; /* on a GPU: one of Workspaces, which may keep it for later calls; a CPU's are the plan's */
    void *packed; /* a bool mask as bits */
    int uploaded; /* 1: the parameters are on the GPU already */
    int capturing; /* 1: a graph is being captured from the stream */
    PyObject *logits_object; /* borrowed from the arguments, or owned by a prepared call */
    int64_t rows, entries, slots; /* entries: of a parameter that is an array, without slots */
    int one_row; /* logits are [vocab]: outputs have no axis */
    int threads;
    int stream_given; /* 0: ask the logits' package at every call */
    const param *more[BATCH_MORE]; /* further parameters of a call, which batch_upload writes too; or NULL */
    int64_t more_entries[BATCH_MORE];
} batch;

/* The arguments of a call on rows, as Python hands them over: borrowed references, None for nothing. */
typedef struct batch_arguments {
    PyObject *logits, *params; /* params: a tuple in the order of PARAM_...; None: those of the requests */
    PyObject *requests;        /* a Requests object: its arrays where params is None, its extra and state */
    PyObject *index, *slot, *allow, *token, *row_flags;
    PyObject *workspace; /* on a GPU: Workspaces */
    int flags;
    int dtype; /* raffle_dtype that 16-bit integers are to be read as, or -1 */
    int input; /* raffle_input */
    int threads;
    PyObject *stream; /* a CUDA stream's address; None: the current one of the logits' package */
    int64_t entries;  /* requests, where parameters are theirs and not the rows'; batch_parse sets -1 */
    int draft_rows;   /* 1: there is a row for each draft too, which a CUDA plan counts; batch_parse sets 0 */
    int reports;      /* 1: the call has a raffle_report; batch_parse sets 0 */
} batch_arguments;

/* A number of the arguments, within 32 bits. 0 with an exception where it is none. */
int batch_number(PyObject *number, const char *name);
/* `more` arguments at the end belong to the caller. */
int batch_parse(PyObject *arguments, Py_ssize_t more, batch_arguments *a);
int batch_build(batch *b, const batch_arguments *a);
void batch_release(batch *b);
/* A CUDA stream's address out of a number. 0, or -1 with an exception. */
int stream_address(PyObject *number, void **stream);
/* CUDA: writes scalars and host arrays of parameters to the workspace's end, and requests to their memory. */
raffle_status batch_upload(batch *b, raffle_error *error);
/* Where the library finds a further parameter, number `which` of `more`: in the caller's memory, or where batch_upload will
 * write it, a scalar `entries` times. 0, or -1 with an exception. */
int batch_more(batch *b, const param *p, int64_t entries, int which, int is_temperature, const void **data);
/* Bytes that batch_upload needs behind a plan's workspace. */
size_t batch_upload_bytes(int64_t rows_max);

/* A call that may run in several threads, each with its workspace and part of the rows. Without the GIL. */
typedef raffle_status (*batch_call)(const batch *b, const raffle_launch *launch, raffle_error *error);
/* Runs `call`: on the CPU without the GIL, on all threads the batch wants. 0, or -1 with an exception. */
int batch_run(batch *b, batch_call call);

/* Around work without the GIL: requests whose lists are read cannot be changed meanwhile. 0, or -1 with an exception. */
int batch_begin(const batch *b);
void batch_end(const batch *b);

/* The raffle_dtype of an array; `wanted`: what 16-bit integers are to be read as, or -1. -1 with an exception. */
int batch_dtype(const array_view *view, const char *name, int wanted);
/* Borrows an array that lies beside the logits: on their device, with their rows, and `per_line` further axes. */
int batch_take_beside(const batch *b, PyObject *object, const char *name, int per_line, int written, array_view *view);

/* Whether every row's slot has a request, where the host can tell. 0, or -1 with an exception. */
int batch_slots_check(const batch *b);

/* ---- after.c ------------------------------------------------------------------------------------------------------- */

enum { AFTER_ADVANCE = 1, AFTER_ACCEPT = 2 }; /* positions by what each row, or request with drafts, emits; histories by the tokens */

/* What happens to the requests after a draw. */
typedef struct batch_after {
    int what;                /* AFTER_... */
    int64_t each;            /* drafts of every request; then result.token is [entries, 1 + each], and -1 ends a line */
    const int32_t *draft;    /* [entries, each] of a call on the CPU */
    const int32_t *accepted; /* [entries] on the logits' device: how many drafts stand; NULL: every entry emits one token */
} batch_after;

/* Before the draw: whether its requests can go on. Then that they do. 0, or -1 with an exception. */
int after_check(const batch *b, const batch_after *a);
int after_run(const batch *b, const batch_after *a);

/* ---- report.c ------------------------------------------------------------------------------------------------------- */

enum { REPORT_ARRAYS = 12 };

/* The arrays of a raffle_report, on loan. */
typedef struct report_arrays {
    raffle_report report;
    array_view view[REPORT_ARRAYS];
} report_arrays;

/* `object`: None, or (raffle_point, then the arrays of raffle_report in its order, or None each). 0, or -1 with an exception. */
int report_take(report_arrays *r, const batch *b, PyObject *object);
/* How arrays of a GPU say that nothing is there: up to REPORT_ARRAYS fills. Returns how many. */
int report_blank(const report_arrays *r, device_fill *fills);
void report_release(report_arrays *r);

/* ---- sample.c, explain.c, probs.c -------------------------------------------------------------------------- */

extern PyType_Spec call_spec;
extern PyTypeObject *call_type;
PyObject *core_sample(PyObject *module, PyObject *arguments);
PyObject *core_quick(PyObject *module, PyObject *arguments);
PyObject *core_prepare(PyObject *module, PyObject *arguments);
PyObject *core_explain(PyObject *module, PyObject *arguments);
PyObject *core_rows(PyObject *module, PyObject *arguments);
PyObject *core_verify(PyObject *module, PyObject *arguments);

/* ---- fresh.c ---------------------------------------------------------------------------------------- */

/* A seed that no call of this process had before. */
uint64_t fresh_seed(void);
PyObject *core_reseed(PyObject *module, PyObject *bytes);

#endif
