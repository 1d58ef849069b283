/* fuzz_api.c - libFuzzer target: bytes become a plan, structs and a batch, mostly sensible, sometimes not.
 *
 * What must hold for every input: no crash and no access outside what the caller owns (every array is a heap
 * block of exactly its size); on an error a status, a sentence and untouched outputs; on success ids in range,
 * or RAFFLE_NO_TOKEN and its flag; the same from every instruction set, from the oracle and from explain. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "oracle/oracle.h"
#include "raffle/raffle.h"

enum { VOCAB_MAX = 700, ROWS_MAX = 5, TOP_MAX = 8, WIDE = 4200 };
static const int32_t TOKEN_BEFORE = 0x5a5a5a5a;
static const uint32_t FLAGS_BEFORE = 0xa5a5a5a5u;

/* A copy of a struct that a caller of another version might hand in; NULL once in a while. */
static void *as_struct(input *in, const void *made, size_t known) {
    uint32_t size = (uint32_t)known;
    int strange = rarely(in), set = 0;
    if (strange && often(in)) return NULL;
    if (strange) size = (uint32_t)below(in, WIDE), set = often(in);
    char *copy = block(size > sizeof size ? size : sizeof size);
    memcpy(copy, made, size < known ? size : known);
    memcpy(copy, &size, sizeof size);
    if (set && size > known) copy[known + (size_t)below(in, (int64_t)(size - known))] = (char)take(in, 1);
    return copy;
}

/* ---- a call --------------------------------------------------------------------------------------- */

typedef struct batch {
    raffle_plan_desc desc;
    int64_t rows, slots;
    uint64_t form;     /* what is written of it */
    const char *first; /* row 0 */
    raffle_logits logits;
    raffle_params params;
    raffle_launch launch;
} batch;

static void make_logits(input *in, batch *b) {
    int bytes = b->desc.dtype == RAFFLE_F32 ? 4 : 2;
    int64_t vocab = b->desc.vocab, stride = vocab, rows = b->rows > 0 ? b->rows : 0;
    int shift = often(in) ? (int)below(in, 8) : 0; /* any alignment */
    b->logits = raffle_logits_init();
    b->logits.rows = b->rows;
    if (often(in)) {
        stride = below(in, 2 * vocab + 8);
        stride = often(in) ? stride : -stride; /* rows may overlap */
        if (stride == 0) stride = vocab;
        b->logits.row_stride = stride;
    }
    int64_t span = rows ? (rows - 1) * llabs(stride) + vocab : 0;
    char *data = block((size_t)(span * bytes + shift));
    fill_logits(in, data + shift, span, bytes);
    b->first = data + shift + (stride < 0 && rows ? (rows - 1) * -stride * bytes : 0);
    b->logits.data = rarely(in) ? NULL : b->first;
    if (rarely(in)) b->logits.reserved = (uint32_t)take(in, 4);
}

static void make_params(input *in, batch *b) {
    int64_t vocab = b->desc.vocab, rows = b->rows > 0 ? b->rows : 0, words = (vocab + 31) / 32;
    raffle_params *p = &b->params;
    *p = raffle_params_init();
    p->flags = (uint32_t)take(in, 1) & 63;
    if (rarely(in)) p->flags = (uint32_t)take(in, 4);
    b->slots = rows;
    if (often(in)) {
        int32_t *slot = block((size_t)rows * sizeof *slot);
        b->slots = 1 + below(in, 7);
        for (int64_t i = 0; i < rows; ++i) {
            int64_t choice = (int64_t)take(in, 1); /* one in 16 may miss the range by one */
            slot[i] = (int32_t)(choice >= 0xf0 ? choice % (b->slots + 2) - 1 : choice % b->slots);
        }
        p->slot = slot;
        p->slots = b->slots;
    }
    if (rarely(in)) p->slots = often(in) ? b->slots / 2 : -1 - below(in, 9); /* fewer than the arrays hold, or nonsense */
    size_t count = (size_t)(b->slots > rows ? b->slots : rows); /* slots 0 means as many as rows */
    float *temperature = block(count * 4), *top_p = block(count * 4), *min_p = block(count * 4);
    int32_t *top_k = block(count * 4);
    uint64_t *seed = block(count * 8), *position = block(count * 8);
    for (size_t i = 0; i < count; ++i) {
        temperature[i] = a_temperature(in);
        top_p[i] = a_share(in);
        min_p[i] = a_share(in);
        top_k[i] = a_count(in, vocab);
        seed[i] = take(in, 2) << 40 | i;
        position[i] = take(in, 2);
    }
    uint64_t given = take(in, 1);
    p->temperature = given & 1 && !(b->desc.input == RAFFLE_PROBS && given & 128) ? temperature : NULL;
    p->top_p = given & 2 ? top_p : NULL;
    p->min_p = given & 4 ? min_p : NULL;
    p->top_k = given & 8 ? top_k : NULL;
    p->seed = rarely(in) ? NULL : seed;
    p->position = rarely(in) ? NULL : position;
    if (given & 16) {
        int64_t stride = words;
        if (given & 32) p->allow_stride = stride = words + below(in, 3);
        uint32_t *allow = block(rows ? (size_t)((rows - 1) * stride + words) * 4 : 0), dense = given & 64 ? UINT32_MAX : 0;
        for (int64_t i = 0; rows && i < (rows - 1) * stride + words; ++i) allow[i] = (uint32_t)take(in, 2) * 0x10001u ^ dense;
        p->allow = allow;
    }
    if (take(in, 1) % 16 == 1) p->allow_stride = words - 1 - below(in, 2); /* too small, or negative; 0 is the default */
}

static void make_launch(input *in, batch *b, size_t needed) {
    raffle_launch *l = &b->launch;
    *l = raffle_launch_init();
    l->workspace_bytes = needed;
    l->workspace = block_aligned(needed);
    memset(l->workspace, 0xcc, needed);
    if (rarely(in)) l->workspace = (char *)l->workspace + 1 + below(in, 63);
    if (rarely(in)) l->workspace = NULL;
    if (rarely(in)) l->workspace_bytes = (size_t)below(in, (int64_t)needed < 65535 ? (int64_t)needed : 65535);
    if (rarely(in)) l->stream = (struct CUstream_st *)l->workspace;
    if (rarely(in)) l->reserved = 1;
    if (often(in)) l->parts = (int32_t)below(in, 7), l->part = l->parts ? (int32_t)below(in, l->parts) : 0;
    if (rarely(in)) l->parts = (int32_t)take(in, 4), l->part = (int32_t)take(in, 4);
}

/* ---- what a good answer is ------------------------------------------------------------------------ */

static int row_must_fail(const raffle_params *p, int64_t rows, int64_t row) {
    int64_t slot = p->slot ? p->slot[row] : row;
    return slot < 0 || slot >= (p->slots ? p->slots : rows) || (p->temperature && !(p->temperature[slot] >= 0.0f)) ||
           (p->top_p && isnan(p->top_p[slot])) || (p->min_p && isnan(p->min_p[slot]));
}

/* Mistakes that the library must see. */
static int must_fail(const batch *b, size_t needed) {
    const raffle_params *p = &b->params;
    const raffle_launch *l = &b->launch;
    for (int64_t row = 0; row < b->rows; ++row)
        if (row_must_fail(p, b->rows, row)) return 1;
    int64_t words = (b->desc.vocab + 31) / 32, parts = l->parts ? l->parts : 1;
    if (b->desc.input == RAFFLE_PROBS && p->temperature) return 1;
    return b->rows < 0 || (b->desc.rows_max && b->rows > b->desc.rows_max) || b->logits.reserved || p->flags > 63 ||
           p->slots < 0 || (!p->slot && p->slots && p->slots < b->rows) || p->allow_stride < 0 ||
           (p->allow_stride && p->allow_stride < words) ||
           (b->rows && (!b->logits.data || !p->seed || !p->position || !l->workspace || l->workspace_bytes < needed ||
                        (uintptr_t)l->workspace % RAFFLE_WORKSPACE_ALIGN)) ||
           l->stream || l->reserved || parts < 0 || l->part < 0 || l->part >= parts;
}

static oracle_case case_of(const batch *b, int64_t row) {
    const raffle_params *p = &b->params;
    int64_t bytes = b->desc.dtype == RAFFLE_F32 ? 4 : 2, vocab = b->desc.vocab, slot = p->slot ? p->slot[row] : row;
    int64_t stride = b->logits.row_stride ? b->logits.row_stride : vocab;
    int64_t words = p->allow_stride ? p->allow_stride : (vocab + 31) / 32;
    oracle_case given = {
        .row = b->first + row * stride * bytes, .dtype = b->desc.dtype, .vocab = vocab,
        .allow = p->allow ? p->allow + row * words : NULL,
        .temperature = p->temperature ? p->temperature[slot] : 1.0f, .top_p = p->top_p ? p->top_p[slot] : 1.0f,
        .min_p = p->min_p ? p->min_p[slot] : 0.0f, .top_k = p->top_k ? p->top_k[slot] : 0,
        .flags = p->flags, .seed = p->seed[slot], .position = p->position[slot], .input = b->desc.input,
    };
    return given;
}

static void check_row(const oracle_case *given, int32_t token, uint32_t row_flags, const raffle_explanation *told) {
    MUST(!(row_flags & ~(uint32_t)(RAFFLE_ROW_NAN | RAFFLE_ROW_INF | RAFFLE_ROW_EMPTY)));
    if (row_flags & RAFFLE_ROW_EMPTY) {
        MUST(token == (given->flags & RAFFLE_EMPTY_IS_ZERO ? 0 : RAFFLE_NO_TOKEN));
    } else {
        MUST(token >= 0 && token < given->vocab);
        float x = oracle_load(given->row, given->dtype, token);
        MUST(x > -INFINITY); /* not NaN either */
        MUST(!given->allow || (given->allow[token / 32] >> (token % 32) & 1));
        MUST(!(row_flags & RAFFLE_ROW_INF) || x == INFINITY);
    }
    oracle_answer right = oracle_sample(given, NULL, NULL);
    MUST(right.token == token && right.row_flags == row_flags);

    MUST(told->token == token && told->row_flags == row_flags);
    int64_t tokens = 0;
    for (int i = 0; i < 8; ++i) tokens += told->fates[i];
    MUST(tokens == given->vocab);
    if (!(row_flags & RAFFLE_ROW_EMPTY)) {
        MUST(told->greedy == right.greedy);
        MUST(told->fates[RAFFLE_KEPT] == right.kept_count);
        if (!told->greedy) MUST(told->draw_tickets == right.draw_mass && told->drawn == right.drawn);
    }
    const raffle_candidate *top = told->top;
    MUST(told->top_count <= TOP_MAX && told->top_count <= given->vocab);
    for (int64_t i = 0; i < told->top_count; ++i) {
        MUST(top[i].token >= 0 && top[i].token < given->vocab);
        MUST(!i || top[i].logit < top[i - 1].logit || (top[i].logit == top[i - 1].logit && top[i].token > top[i - 1].token));
    }
}

/* What one instruction set said. */
typedef struct answers {
    int status;
    int32_t token[ROWS_MAX + 1]; /* one more, to see that it is left alone */
    uint32_t row_flags[ROWS_MAX + 1];
    raffle_explanation told[ROWS_MAX];
    raffle_candidate top[ROWS_MAX][TOP_MAX];
    uint64_t written; /* what raffle_softmax or raffle_mask wrote, as a hash */
} answers;

static uint64_t hash(uint64_t seed, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) seed = (seed ^ ((const uint8_t *)bytes)[i]) * 1099511628211ull;
    return seed;
}

/* Writes the batch, which raffle_sample has taken, in one of its forms; rows outside [first, end) must stay as they are. */
static void write_batch(raffle_plan *plan, const batch *b, const void *structs[3], int64_t first, int64_t end, answers *a) {
    int64_t vocab = b->desc.vocab, rows = b->rows, words = (vocab + 31) / 32, room = 1 + b->form / 16;
    int form = (int)(b->form % 3), dtype = (int)(b->form / 3 % 3), bytes = dtype == RAFFLE_F32 ? 4 : 2;
    size_t sizes[5] = {(size_t)(rows * vocab * bytes), (size_t)(rows * words) * 4, (size_t)(rows * room) * 4, (size_t)rows * 4, (size_t)rows * 4};
    uint8_t *out[5];
    for (int i = 0; i < 5; ++i) memset(out[i] = malloc(sizes[i]), 0x5a, sizes[i]); /* exactly as large as they must be */
    raffle_output o = raffle_output_init();
    o.flags = form == 1 ? RAFFLE_LOG : 0;
    o.dtype = dtype;
    o.data = out[0];
    if (b->form & 64) { /* only data: other loops */
        o.kept = (uint32_t *)(void *)out[1];
        o.kept_list = (int32_t *)(void *)out[2];
        o.kept_list_stride = room;
        o.kept_count = (int32_t *)(void *)out[3];
    }
    o.row_flags = (uint32_t *)(void *)out[4];
    MUST((form == 2 ? raffle_mask : raffle_softmax)(plan, structs[0], structs[1], &o, structs[2], NULL) == RAFFLE_OK);
    for (int64_t row = 0; row < rows; ++row) {
        const uint8_t *data = out[0] + row * vocab * bytes;
        if (row < first || row >= end) {
            for (int64_t i = 0; i < vocab * bytes; ++i) MUST(data[i] == 0x5a);
            continue;
        }
        oracle_case given = case_of(b, row);
        uint8_t kept[VOCAB_MAX];
        float value[VOCAB_MAX];
        oracle_answer right = oracle_sample(&given, kept, NULL);
        MUST(!memcmp(out[4] + row * 4, &right.row_flags, 4));
        if (o.kept_count) MUST(o.kept_count[row] == right.kept_count);
        if (form == 2 || dtype != RAFFLE_F32) continue;
        oracle_probabilities(&given, form == 1, value);
        MUST(!memcmp(data, value, (size_t)vocab * 4));
    }
    a->written = 14695981039346656037ull;
    for (int i = 0; i < 5; ++i) {
        a->written = hash(a->written, out[i], sizes[i]);
        free(out[i]);
    }
}

static void run(const batch *b, int isa, const void *structs[3], uint64_t choice, answers *a) {
    raffle_plan_desc desc = b->desc;
    raffle_plan *plan = NULL;
    raffle_error error = raffle_error_init();
    raffle_result result = raffle_result_init();
    int64_t rows = b->rows > 0 ? b->rows : 0, first = 0, end = 0;
    memset(a, 0, sizeof *a);
    for (int64_t i = 0; i <= rows; ++i) a->token[i] = TOKEN_BEFORE, a->row_flags[i] = FLAGS_BEFORE;
    desc.isa = isa;
    MUST(raffle_plan_create(&desc, &plan, NULL) == RAFFLE_OK);
    result.token = choice == 1 ? NULL : a->token;
    result.row_flags = choice == 2 ? NULL : a->row_flags;
    result.reserved = choice == 3;
    a->status = raffle_sample(plan, structs[0], structs[1], choice == 4 ? NULL : &result, structs[2], &error);
    if (a->status) {
        error_is_told(&error, a->status, rows);
    } else {
        int64_t parts = b->launch.parts ? b->launch.parts : 1;
        first = rows * b->launch.part / parts;
        end = rows * (b->launch.part + 1) / parts;
        MUST(error.status == 0 && !must_fail(b, raffle_plan_workspace(plan)));
    }
    for (int64_t i = 0; i <= rows; ++i) {
        int inside = i >= first && i < end;
        MUST(inside || a->token[i] == TOKEN_BEFORE);
        MUST((inside && choice != 2) || a->row_flags[i] == FLAGS_BEFORE);
        if (!inside) continue;
        a->told[i] = raffle_explanation_init();
        a->told[i].top = a->top[i];
        a->told[i].top_count = TOP_MAX;
        MUST(raffle_explain(plan, structs[0], structs[1], i, &a->told[i], structs[2], NULL) == RAFFLE_OK);
        if (isa == RAFFLE_ISA_SCALAR) {
            oracle_case given = case_of(b, i);
            check_row(&given, a->token[i], choice == 2 ? a->told[i].row_flags : a->row_flags[i], &a->told[i]);
        }
        a->told[i].top = NULL; /* so that answers compare as bytes */
    }
    if (!a->status && rows) write_batch(plan, b, structs, first, end, a);
    raffle_plan_destroy(plan);
}

static void fuzz_desc(input *in) { /* a plan description of any bytes */
    raffle_plan_desc desc;
    raffle_plan *plan = (raffle_plan *)&desc;
    raffle_error error = raffle_error_init();
    for (size_t i = 0; i < sizeof desc; ++i) ((uint8_t *)&desc)[i] = (uint8_t)take(in, 1);
    if (often(in)) desc.size = sizeof desc;
    int status = raffle_plan_create(as_struct(in, &desc, sizeof desc), &plan, &error);
    MUST(status ? plan == NULL : plan != NULL);
    if (status) error_is_told(&error, status, 0);
    else MUST(raffle_plan_workspace(plan) > 0);
    raffle_plan_destroy(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    input data = {bytes, bytes + size}, *in = &data;
    if (rarely(in)) {
        fuzz_desc(in);
        blocks_free();
        return 0;
    }
    batch b = {.desc = raffle_plan_desc_init()};
    b.desc.vocab = 1 + below(in, often(in) ? VOCAB_MAX : 9);
    b.desc.dtype = (int32_t)(take(in, 1) % 3);
    b.desc.input = take(in, 1) % 4 == 1 ? RAFFLE_PROBS : RAFFLE_LOGITS;
    b.desc.rows_max = rarely(in) ? below(in, 4) : 0;
    b.rows = rarely(in) ? -below(in, 5) : below(in, ROWS_MAX + 1);
    raffle_plan *plan = NULL;
    MUST(raffle_plan_create(&b.desc, &plan, NULL) == RAFFLE_OK);
    size_t needed = raffle_plan_workspace(plan);
    raffle_plan_destroy(plan);
    make_params(in, &b);
    make_launch(in, &b, needed);
    uint64_t choice = rarely(in) ? take(in, 1) % 5 : 0;
    const raffle_params *params = as_struct(in, &b.params, sizeof b.params);
    const raffle_launch *launch = as_struct(in, &b.launch, sizeof b.launch);
    b.form = take(in, 1);
    make_logits(in, &b); /* last, since it takes what is left */
    const void *structs[3] = {as_struct(in, &b.logits, sizeof b.logits), params, launch};

    static answers scalar, other;
    run(&b, RAFFLE_ISA_SCALAR, structs, choice, &scalar);
    for (int isa = RAFFLE_ISA_AVX2; isa <= RAFFLE_ISA_NEON; ++isa) {
        if (!raffle_isa_available((raffle_isa)isa)) continue;
        run(&b, isa, structs, choice, &other);
        MUST(!memcmp(&scalar, &other, sizeof scalar));
    }
    blocks_free();
    return 0;
}
