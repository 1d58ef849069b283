#include "args.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

raffle_status raffle_fail(raffle_error *error, raffle_status status, int64_t row, const char *format, ...) {
    /* A shorter struct has no room for what we write; a longer one has it at the same place. */
    if (!error || error->size < sizeof *error) return status;
    error->status = (int32_t)status;
    error->row = row;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return status;
}

/* Copies a caller's struct: fields it does not know stay zero, fields we do not know must be zero.
 * `least` is the size the struct had in the first release. */
raffle_status raffle_take(void *to, size_t known, size_t least, const void *from, const char *name, raffle_error *error) {
    uint32_t size = 0;
    if (!from) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is NULL", name);
    memcpy(&size, from, sizeof size);
    if (size == known) { /* as nearly always */
        memcpy(to, from, known);
        return RAFFLE_OK;
    }
    if (size < least || size > 4096)
        return raffle_fail(error, RAFFLE_E_STRUCT, -1, "%s.size is %u: make the struct with %s_init()", name, size, name);
    for (size_t i = known; i < size; ++i)
        if (((const unsigned char *)from)[i])
            return raffle_fail(error, RAFFLE_E_STRUCT, -1, "%s has a field set that this version of raffle lacks", name);
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    return RAFFLE_OK;
}
raffle_status raffle_check_desc(const raffle_plan_desc *given, raffle_plan_desc *desc, raffle_error *error) {
    raffle_status status = TAKE_SINCE(40, desc, given, raffle_plan_desc);
    if (status) return status;
    if (desc->backend != RAFFLE_CPU && desc->backend != RAFFLE_CUDA)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "backend is %d: not a raffle_backend", desc->backend);
    if (desc->dtype < RAFFLE_F32 || desc->dtype > RAFFLE_BF16)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "dtype is %d: not a raffle_dtype", desc->dtype);
    if (desc->isa < RAFFLE_ISA_BEST || desc->isa > RAFFLE_ISA_NEON)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "isa is %d: not a raffle_isa", desc->isa);
    if (desc->isa && desc->backend != RAFFLE_CPU)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "isa is set, but the backend is not the CPU");
    if (desc->vocab < 1 || desc->vocab > RAFFLE_VOCAB_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "vocab is %lld: must be 1 to %d", (long long)desc->vocab,
                           RAFFLE_VOCAB_MAX);
    if (desc->rows_max < (desc->backend == RAFFLE_CUDA) || desc->rows_max > INT32_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "rows_max is %lld: must be %d to 2147483647",
                           (long long)desc->rows_max, desc->backend == RAFFLE_CUDA);
    if (desc->device < 0 || (desc->device && desc->backend == RAFFLE_CPU))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "device is %d: must be %s", desc->device,
                           desc->backend == RAFFLE_CPU ? "0 for the CPU" : "a device ordinal");
    if (desc->input != RAFFLE_LOGITS && desc->input != RAFFLE_PROBS)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "input is %d: not a raffle_input", desc->input);
    if (desc->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_plan_desc.reserved is not 0");
    if (desc->flags & ~(RAFFLE_PLAN_EXTRA | RAFFLE_PLAN_REPORT))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "flags has unknown bits: 0x%x", (unsigned)desc->flags);
    if (desc->flags && desc->input != RAFFLE_LOGITS)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "flags has %s, which is for logits: input is RAFFLE_PROBS",
                           desc->flags & RAFFLE_PLAN_EXTRA ? "RAFFLE_PLAN_EXTRA" : "RAFFLE_PLAN_REPORT");
    if (desc->history_max < 0 || desc->history_max > RAFFLE_HISTORY_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "history_max is %lld: must be 0 to %d",
                           (long long)desc->history_max, RAFFLE_HISTORY_MAX);
    return RAFFLE_OK;
}

raffle_status raffle_check_launch(const raffle_plan *plan, call *call, int64_t rows, raffle_error *error) {
    raffle_launch *launch = &call->launch;
    int cuda = plan->desc.backend == RAFFLE_CUDA;
    int needed = rows > 0; /* without rows nothing is done, and no workspace used */
    if (launch->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_launch.reserved is not 0");
    if (needed && !launch->workspace) return raffle_fail(error, RAFFLE_E_WORKSPACE, -1, "workspace is NULL");
    if (needed && (uintptr_t)launch->workspace % RAFFLE_WORKSPACE_ALIGN)
        return raffle_fail(error, RAFFLE_E_WORKSPACE, -1, "workspace is not aligned to %d bytes", RAFFLE_WORKSPACE_ALIGN);
    if (needed && launch->workspace_bytes < plan->workspace_bytes)
        return raffle_fail(error, RAFFLE_E_WORKSPACE, -1, "workspace_bytes is %zu: this plan needs %zu",
                           launch->workspace_bytes, plan->workspace_bytes);
    if (launch->stream && !cuda) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "stream is set, but the backend is the CPU");
    if (launch->parts && cuda) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "parts is set: a CUDA call does all rows");
    if (launch->parts < 0 || launch->part < 0 || launch->part >= (launch->parts ? launch->parts : 1))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "part is %d and parts %d: must be 0 <= part < parts", launch->part, launch->parts);
    const int64_t parts = launch->parts;
    call->row_first = 0;
    call->row_end = rows;
    if (parts > 1) { /* four divisions, which the usual call need not wait for */
        call->row_first = rows / parts * launch->part + rows % parts * launch->part / parts;
        call->row_end = rows / parts * (launch->part + 1) + rows % parts * (launch->part + 1) / parts;
    }
    return RAFFLE_OK;
}

/* Whether addresses of such rows can be told, of elements of up to 4 bytes. */
static int stride_fits(int64_t rows, int64_t stride) {
    int64_t extent = 0;
    return !__builtin_mul_overflow(rows, stride, &extent) && !__builtin_mul_overflow(extent, 4, &extent);
}

raffle_status raffle_check_stride(int64_t rows, int64_t stride, const char *field, raffle_error *error) {
    if (stride_fits(rows, stride)) return RAFFLE_OK;
    return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is %lld: too large for %lld rows", field, (long long)stride, (long long)rows);
}

raffle_status raffle_check_logits(const raffle_plan *plan, raffle_logits *l, const char *name, raffle_error *error) {
    if (l->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_logits.reserved is not 0");
    if (l->rows < 0)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.rows is %lld: must be 0 or more", name, (long long)l->rows);
    if (plan->desc.rows_max && l->rows > plan->desc.rows_max)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.rows is %lld: this plan has rows_max %lld", name,
                           (long long)l->rows, (long long)plan->desc.rows_max);
    if (!l->row_stride) l->row_stride = plan->desc.vocab;
    if (l->data_rows < 0 || l->data_rows > INT32_MAX || (l->data_rows && !l->row_index))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.data_rows is %lld: must be 0 to 2147483647, and 0 without row_index",
                           name, (long long)l->data_rows);
    if (!l->data_rows) l->data_rows = l->rows;
    if (!stride_fits(l->data_rows, l->row_stride))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.row_stride is %lld: too large for %lld rows", name, (long long)l->row_stride,
                           (long long)l->data_rows);
    if (l->rows && !l->data) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.data is NULL", name);
    if (plan->desc.backend == RAFFLE_CUDA && (uintptr_t)l->data % (plan->desc.dtype == RAFFLE_F32 ? 4 : 2))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.data is not aligned to its elements, as CUDA needs it", name);
    return RAFFLE_OK;
}

raffle_status raffle_check_params(const raffle_plan *plan, raffle_params *p, int64_t entries, int64_t rows,
                                  const char *name, raffle_error *error) {
    const int64_t words = (plan->desc.vocab + 31) / 32;
    const uint32_t known = RAFFLE_TOP_P_JOINT | RAFFLE_FILTERS_FIRST | RAFFLE_MIN_P_LAST | RAFFLE_TOP_K_EXACT |
                           RAFFLE_EMPTY_IS_ZERO | RAFFLE_SHAPE_LAST;
    if (p->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_params.reserved is not 0");
    if (p->flags & ~known) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.flags has unknown bits: 0x%x", name, p->flags);
    if (p->slots < 0 || p->slots > INT32_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.slots is %lld: must be 0 to 2147483647", name, (long long)p->slots);
    if (!p->slots) p->slots = entries;
    if (!p->slot && p->slots < entries)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.slots is %lld for %lld rows, and slot is NULL", name,
                           (long long)p->slots, (long long)entries);
    if (p->allow_stride < 0 || (p->allow_stride && p->allow_stride < words))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s.allow_stride is %lld: a row has %lld words", name,
                           (long long)p->allow_stride, (long long)words);
    if (!p->allow_stride) p->allow_stride = words;
    if (p->temperature && plan->desc.input == RAFFLE_PROBS)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "temperature is set, but this plan's input is probabilities");
    return raffle_check_stride(rows, p->allow_stride, "allow_stride", error);
}

raffle_status raffle_check_call(const raffle_plan *plan, const raffle_logits *logits, const raffle_params *params,
                                const raffle_result *result, const raffle_launch *launch, int needs,
                                call *made, raffle_error *error) {
    if (!plan) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "plan is NULL");
    /* What is copied below need not be zero before. In parts, which are stored one by one: as a whole, gcc makes it a
     * string instruction that takes as long as a maximum over 4,000 logits. */
    memset(&made->result, 0, sizeof made->result);
    memset(&made->output, 0, sizeof made->output);
    memset(&made->drafted, 0, sizeof made->drafted);
    memset(&made->report, 0, sizeof made->report);
    memset(&made->state, 0, sizeof made->state);
    memset(&made->layout, 0, sizeof made->layout);
    made->form = FORM_PROBABILITY;
    raffle_status status = TAKE_LOGITS(&made->logits, logits);
    if (!status) status = TAKE_PARAMS(&made->params, params);
    if (!status && result) status = TAKE_SINCE(offsetof(raffle_result, report), &made->result, result, raffle_result);
    if (!status) status = TAKE(&made->launch, launch, raffle_launch);
    if (!status) status = raffle_check_logits(plan, &made->logits, "logits", error);
    const int64_t rows = made->logits.rows;
    if (!status) status = raffle_check_params(plan, &made->params, rows, rows, "params", error);
    if (status) return status;
    if (made->result.reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_result.reserved is not 0");
    if (rows && needs & NEEDS_SEED && !made->params.seed) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "params.seed is NULL");
    if (rows && needs & NEEDS_SEED && !made->params.position) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "params.position is NULL");
    if (rows && result && !made->result.token) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "result.token is NULL");
    status = raffle_check_additions(plan, made, error);
    return status ? status : raffle_check_launch(plan, made, rows, error);
}

/* Completes a stride: 0 is its `least`, anything else must reach it and leave offsets inside 64 bits. */
static raffle_status check_stride(int64_t *stride, int64_t least, int64_t rows, const char *name, raffle_error *error) {
    if (!*stride) *stride = least;
    if (*stride < least && *stride > -least)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is %lld: a row has %lld", name, (long long)*stride, (long long)least);
    return raffle_check_stride(rows, *stride, name, error);
}

raffle_status raffle_check_kept(int64_t *stride, const char *name, int64_t rows, int64_t vocab, raffle_error *error) {
    if (*stride < 0) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is %lld: must be 0 or more", name, (long long)*stride);
    return check_stride(stride, (vocab + 31) / 32, rows, name, error);
}

raffle_status raffle_check_kept_list(const int32_t *list, int64_t *stride, const char *name, int64_t rows, raffle_error *error) {
    if (!list) return RAFFLE_OK;
    if (*stride < 1) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "%s is %lld: must be 1 or more", name, (long long)*stride);
    return check_stride(stride, 1, rows, name, error);
}

raffle_status raffle_check_output(const raffle_plan *plan, const raffle_output *given, output_form form, call *made,
                                  raffle_error *error) {
    raffle_output *o = &made->output;
    const raffle_logits *l = &made->logits;
    const int64_t vocab = plan->desc.vocab, rows = l->rows;
    raffle_status status = TAKE(o, given, raffle_output);
    if (status) return status;
    const uint32_t known = form == FORM_PROBABILITY ? RAFFLE_LOG : 0;
    if (o->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_output.reserved is not 0");
    if (o->flags & ~known) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "output.flags has unknown bits: 0x%x", o->flags);
    if (o->dtype < RAFFLE_F32 || o->dtype > RAFFLE_BF16)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "output.dtype is %d: not a raffle_dtype", o->dtype);
    status = check_stride(&o->row_stride, vocab, rows, "output.row_stride", error);
    if (!status) status = raffle_check_kept_list(o->kept_list, &o->kept_list_stride, "output.kept_list_stride", rows, error);
    if (!status) status = raffle_check_kept(&o->kept_stride, "output.kept_stride", rows, vocab, error);
    if (status) return status;
    if (rows && !o->data && !o->row_flags && !o->kept && !o->kept_list && !o->kept_count)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "output.data is NULL, and nothing else is asked for");
    const int64_t bytes = plan->desc.dtype == RAFFLE_F32 ? 4 : 2, output_bytes = o->dtype == RAFFLE_F32 ? 4 : 2;
    if (o->data && o->data == l->data && (bytes != output_bytes || o->row_stride != l->row_stride || l->row_index))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "output.data is logits.data, but %s",
                           l->row_index             ? "row_index is set"
                           : bytes != output_bytes ? "their types differ"
                                                   : "their strides differ");
    if (plan->desc.backend == RAFFLE_CUDA && (uintptr_t)o->data % (uintptr_t)output_bytes)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "output.data is not aligned to its elements, as CUDA needs it");
    made->form = o->flags & RAFFLE_LOG ? FORM_LOG : form;
    return RAFFLE_OK;
}

/* Memory from one address on up to another. */
typedef struct span { uintptr_t first, end; } span;

/* All that rows of `bytes` bytes lie in, `stride` bytes apart. */
static span span_of(const void *data, int64_t rows, int64_t stride, int64_t bytes) {
    const uintptr_t first = (uintptr_t)data, last = first + (uintptr_t)((rows - 1) * stride);
    const span s = {stride < 0 ? last : first, (stride < 0 ? first : last) + (uintptr_t)bytes};
    return s;
}
static int spans_meet(span a, span b) { return a.first < b.end && b.first < a.end; }

raffle_status raffle_check_drafted(const raffle_plan *plan, const raffle_drafted *given, call *made, raffle_error *error) {
    raffle_drafted *d = &made->drafted;
    const raffle_logits *l = &made->logits;
    const int64_t vocab = plan->desc.vocab, rows = l->rows, bytes = plan->desc.dtype == RAFFLE_F32 ? 4 : 2;
    const uint32_t step = made->params.draft_step;
    int64_t all = 0;
    raffle_status status = TAKE(d, given, raffle_drafted);
    if (status) return status;
    if (d->reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_drafted.reserved is not 0");
    if (plan->desc.input != RAFFLE_LOGITS)
        return raffle_fail(error, RAFFLE_E_UNSUPPORTED, -1, "input of the plan is probabilities: raffle_draft needs logits");
    if (d->each < 1)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafted.each is %lld: must be 1 or more", (long long)d->each);
    if (__builtin_mul_overflow(rows, d->each, &all) || all > INT32_MAX)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafted.each is %lld: too large for %lld rows", (long long)d->each,
                           (long long)rows);
    if (step < 1 || step > d->each)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "params.draft_step is %u: must be 1 to %lld, which is drafted.each", step,
                           (long long)d->each);
    if (made->result.advance)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "result.advance is set: drafts leave positions where they are");
    status = check_stride(&d->row_stride, vocab, all, "drafted.row_stride", error);
    if (status || !rows) return status;
    if (!d->token) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafted.token is NULL");
    if (plan->desc.backend == RAFFLE_CUDA && (uintptr_t)d->logits % (uintptr_t)bytes)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafted.logits is not aligned to its elements, as CUDA needs it");
    if (d->logits && spans_meet(span_of(l->data, l->data_rows, l->row_stride * bytes, vocab * bytes),
                                span_of(d->logits, all, d->row_stride * bytes, vocab * bytes)))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafted.logits overlaps logits.data: rows are kept elsewhere");
    const int same = d->each == 1 && d->token == made->result.token;
    if (!same && spans_meet(span_of(made->result.token, rows, 4, 4), span_of(d->token, all, 4, 4)))
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "drafted.token overlaps result.token: tokens are kept elsewhere");
    return RAFFLE_OK;
}

raffle_status raffle_check_rows(const raffle_params *p, int64_t rows, const char *what, raffle_error *error) {
    for (int64_t row = 0; row < rows; ++row) {
        int64_t slot = slot_of(p, row);
        if (slot < 0 || slot >= p->slots)
            return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "slot of %s %lld is %lld: must be 0 to %lld", what,
                               (long long)row, (long long)slot, (long long)p->slots - 1);
        if (p->temperature && !(p->temperature[slot] >= 0.0f))
            return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "temperature of %s %lld is %g: must be 0 or more", what,
                               (long long)row, (double)p->temperature[slot]);
        if (p->top_p && p->top_p[slot] != p->top_p[slot])
            return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "top_p of %s %lld is NaN", what, (long long)row);
        if (p->min_p && p->min_p[slot] != p->min_p[slot])
            return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "min_p of %s %lld is NaN", what, (long long)row);
    }
    return RAFFLE_OK;
}

raffle_status raffle_check_call_rows(const call *call, raffle_error *error) {
    const raffle_logits *l = &call->logits;
    for (int64_t row = 0; l->row_index && row < l->rows; ++row)
        if (l->row_index[row] < 0 || l->row_index[row] >= l->data_rows)
            return raffle_fail(error, RAFFLE_E_ARGUMENT, row, "row_index of row %lld is %d: must be 0 to %lld", (long long)row,
                               l->row_index[row], (long long)l->data_rows - 1);
    raffle_status status = raffle_check_rows(&call->params, l->rows, "row", error);
    for (int64_t row = 0; !status && call->params.extra && row < l->rows; ++row)
        status = raffle_check_extra(call, row, slot_of(&call->params, row), "row", error);
    return status;
}

raffle_status raffle_check_explanation(const raffle_explanation *given, raffle_error *error) {
    raffle_explanation copy;
    raffle_status status = TAKE(&copy, given, raffle_explanation);
    if (status) return status;
    if (copy.reserved) return raffle_fail(error, RAFFLE_E_STRUCT, -1, "raffle_explanation.reserved is not 0");
    if (copy.top_count < 0)
        return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "top_count is %lld: must be 0 or more", (long long)copy.top_count);
    if (copy.top_count && !copy.top) return raffle_fail(error, RAFFLE_E_ARGUMENT, -1, "explanation.top is NULL");
    return RAFFLE_OK;
}
