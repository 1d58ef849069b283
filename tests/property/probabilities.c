/* probabilities.c - raffle_softmax and raffle_mask on every instruction set: bit for bit what docs/determinism.md says,
 * and close to softmax in long double. */
#include <math.h>

#include "common/batch.h"
#include "common/pick.h"

enum { LARGE = 5000, TAIL = 64 };

/* ---- one call ------------------------------------------------------------------------------------- */

typedef struct written {
    char *memory, *data; /* [rows, stride] of dtype, guarded */
    int64_t stride, bytes;
    int dtype;
    uint32_t row_flags[BATCH_ROWS_MAX];
    int32_t count[BATCH_ROWS_MAX];
    uint32_t *kept; /* [rows, words] */
    int32_t *list;  /* [rows, room] */
    int64_t words, room;
} written;

static written written_make(const batch *b, int dtype, int64_t padding, int64_t offset, int64_t room) {
    written w = {.dtype = dtype, .stride = b->vocab + padding, .words = b->words + 1, .room = room};
    w.bytes = (b->rows * w.stride + TAIL) * element_bytes(dtype) + offset;
    w.memory = test_alloc((size_t)w.bytes);
    memset(w.memory, GUARD, (size_t)w.bytes);
    w.data = w.memory + offset;
    w.kept = test_alloc((size_t)(b->rows * w.words) * 4);
    w.list = test_alloc((size_t)(b->rows * room) * 4);
    memset(w.kept, GUARD, (size_t)(b->rows * w.words) * 4);
    memset(w.list, GUARD, (size_t)(b->rows * room) * 4);
    return w;
}

static void written_free(written *w) {
    free(w->memory);
    free(w->kept);
    free(w->list);
}

typedef raffle_status (*write_function)(const raffle_plan *, const raffle_logits *, const raffle_params *,
                                        const raffle_output *, const raffle_launch *, raffle_error *);

static raffle_output output_of(written *w, uint32_t flags) {
    raffle_output o = raffle_output_init();
    o.flags = flags;
    o.dtype = w->dtype;
    o.data = w->data;
    o.row_stride = w->stride;
    o.row_flags = w->row_flags;
    o.kept = w->kept;
    o.kept_stride = w->words;
    o.kept_list = w->list;
    o.kept_list_stride = w->room;
    o.kept_count = w->count;
    return o;
}

static void run(write_function write, const batch *b, raffle_isa isa, const raffle_output *output) {
    raffle_error error = raffle_error_init();
    runner r = runner_make(b->dtype, b->vocab, isa);
    raffle_params params = batch_params(b);
    raffle_logits logits = batch_logits(b);
    params.seed = params.position = NULL; /* nothing is drawn */
    CHECK(write(r.plan, &logits, &params, output, &r.launch, &error) == RAFFLE_OK, "%s", error.text);
    runner_free(r);
}

/* ---- what must hold ------------------------------------------------------------------------------- */

/* exp((x - M) / T) over its sum, in long double, over the tokens that the oracle keeps. */
static void exact_law(const oracle_case *c, const uint8_t *kept, long double *p) {
    long double sum = 0;
    float most = -INFINITY;
    for (int64_t i = 0; i < c->vocab; ++i)
        if (kept[i] && oracle_load(c->row, c->dtype, i) > most) most = oracle_load(c->row, c->dtype, i);
    for (int64_t i = 0; i < c->vocab; ++i) {
        float x = oracle_load(c->row, c->dtype, i);
        p[i] = !kept[i] ? 0 : x == most ? 1 : isinf(most) ? 0 : expl(((long double)x - most) / c->temperature);
        if (kept[i] && isinf(c->temperature)) p[i] = isinf(most) ? x == most : 1;
        sum += p[i];
    }
    for (int64_t i = 0; i < c->vocab; ++i) p[i] /= sum > 0 ? sum : 1;
}

static void check_law(const batch *b, int64_t row, const uint8_t *kept, const float *value, const float *logs) {
    oracle_case c = batch_case(b, row);
    long double *p = test_alloc((size_t)b->vocab * sizeof *p);
    double sum = 0, worst = 0, worst_log = 0;
    int64_t any = 0;
    exact_law(&c, kept, p);
    for (int64_t i = 0; i < b->vocab; ++i) {
        sum += (double)value[i];
        any += kept[i];
        if (p[i] >= 0x1p-126L) {
            double error = (double)fabsl(value[i] - p[i]) / (double)p[i], bound = 2e-7 * (1 + fabs(log2((double)p[i])));
            if (error / bound > worst) worst = error / bound;
            error = fabs((double)logs[i] - (double)logl(p[i]));
            bound = 2e-7 * (1 + fabs((double)logl(p[i])));
            if (error / bound > worst_log) worst_log = error / bound;
        } else {
            CHECK(value[i] >= 0 && value[i] <= 0x1p-126f, "token %lld is %g, exactly %Lg", (long long)i, (double)value[i], p[i]);
        }
    }
    int good = worst <= 1 && worst_log <= 1 && fabs(sum - (any ? 1 : 0)) <= 1e-6;
    if (test_note(good)) {
        printf("%s: error %.3g and of logarithms %.3g of what is allowed, sum %.9g\n", test_state.name, worst, worst_log, sum);
        batch_print(b, row);
    }
    free(p);
}

/* Everything that a call wrote of a batch: values as the oracle's, rounded once; the kept set in its three forms. */
static void check_written(const batch *b, const written *w, int logarithms, const char *how) {
    uint8_t *kept = test_alloc((size_t)b->vocab);
    float *value = test_alloc((size_t)b->vocab * sizeof *value);
    for (int64_t row = 0; row < b->rows; ++row) {
        oracle_case c = batch_case(b, row);
        oracle_answer a = oracle_sample(&c, kept, NULL);
        oracle_probabilities(&c, logarithms, value);
        int64_t wrong = 0, listed = 0, in_list = 0, in_mask = 0;
        for (int64_t i = 0; i < b->vocab; ++i) {
            uint32_t rounded[1];
            vector_store(rounded, w->dtype, 0, float_bits(value[i]));
            wrong += memcmp(rounded, w->data + (row * w->stride + i) * element_bytes(w->dtype), (size_t)element_bytes(w->dtype)) != 0;
            in_mask += (w->kept[row * w->words + i / 32] >> (i % 32) & 1) != kept[i];
            if (kept[i] && listed < w->room) in_list += w->list[row * w->room + listed++] != (int32_t)i;
        }
        for (int64_t i = b->vocab; i < b->words * 32; ++i) in_mask += w->kept[row * w->words + i / 32] >> (i % 32) & 1;
        for (; listed < w->room; ++listed) in_list += w->list[row * w->room + listed] != 0x5a5a5a5a;
        in_mask += w->kept[row * w->words + b->words] != 0x5a5a5a5a;
        for (int64_t i = b->vocab; i < w->stride; ++i)
            for (int byte = 0; byte < element_bytes(w->dtype); ++byte)
                wrong += w->data[(row * w->stride + i) * element_bytes(w->dtype) + byte] != GUARD;
        if (test_note(!wrong && !in_list && !in_mask && w->count[row] == a.kept_count && w->row_flags[row] == a.row_flags)) {
            printf("%s: %s: %lld values, %lld of the list, %lld bits wrong, count %d for %lld, flags %u for %u\n",
                   test_state.name, how, (long long)wrong, (long long)in_list, (long long)in_mask, w->count[row],
                   (long long)a.kept_count, w->row_flags[row], a.row_flags);
            batch_print(b, row);
        }
    }
    free(kept);
    free(value);
}

/* ---- random batches ------------------------------------------------------------------------------- */

/* One infinity, which the CPU's first look at a row may miss where a -inf stands before it. */
static void lone_infinity(batch *b, int64_t row, test_random *r) {
    char *const at = b->data + row * b->stride * element_bytes(b->dtype);
    vector_row_make("normal", (uint64_t)row, b->vocab, b->dtype, at);
    vector_store(at, b->dtype, random_below(r, b->vocab), 0xff800000u);
    vector_store(at, b->dtype, random_below(r, b->vocab), 0x7f800000u);
}

static void batch_random(batch *b, test_random *r, int64_t vocab, int filters) {
    batch_alloc(b, 1 + random_below(r, 8), vocab, (int)random_below(r, 3), random_below(r, 5), random_below(r, 8));
    b->flags = filters ? pick_flags(r) : 0;
    for (int64_t i = 0; i < b->rows; ++i) {
        b->kind[i] = row_kinds[random_below(r, ROW_KINDS)];
        b->row_seed[i] = random_bits(r) >> 40;
        vector_row_make(b->kind[i], b->row_seed[i], vocab, b->dtype, b->data + i * b->stride * element_bytes(b->dtype));
        if (random_below(r, 4) == 0) lone_infinity(b, i, r);
        b->temperature[i] = pick_temperature(r);
        b->top_k[i] = filters ? pick_top_k(r, vocab) : 0;
        b->top_p[i] = filters ? pick_top_p(r) : 1.0f;
        b->min_p[i] = filters ? pick_min_p(r) : 0.0f;
        b->seed[i] = b->position[i] = 0;
    }
    if (random_below(r, 3) == 0) {
        b->allow = test_alloc((size_t)(b->rows * b->words) * 4);
        for (int64_t i = 0; i < b->rows; ++i) vector_allow_make(b->row_seed[i], vocab, b->allow + i * b->words);
    }
}

static int64_t a_vocab(test_random *r) {
    static const int64_t some[] = {1, 2, 3, 15, 16, 17, 31, 33, 255, 256, 257, 511, 512, 1023, 4096, 4097};
    return random_below(r, 2) ? some[random_below(r, 16)] : 1 + random_below(r, LARGE);
}

static void every_isa_writes(int filters, uint64_t seed, int64_t rounds) {
    test_random r = {seed};
    for (int64_t n = 0; n < test_amount(rounds); ++n) {
        batch b;
        batch_random(&b, &r, a_vocab(&r), filters);
        int dtype = (int)random_below(&r, 3), logarithms = random_below(&r, 3) == 0;
        int64_t padding = random_below(&r, 4), offset = random_below(&r, 8), room = 1 + random_below(&r, b.vocab + 3);
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (!raffle_isa_available(every_isa[i])) continue;
            written w = written_make(&b, dtype, padding, offset, room);
            raffle_output o = output_of(&w, logarithms ? RAFFLE_LOG : 0);
            run(raffle_softmax, &b, every_isa[i], &o);
            check_written(&b, &w, logarithms, raffle_isa_name(every_isa[i]));
            written_free(&w);
        }
        batch_free(&b);
    }
}

TEST(softmax_bits) { every_isa_writes(0, 11, 400); }
TEST(renormalised_bits) { every_isa_writes(1, 12, 600); }

/* Without the sets other loops run; they must say the same. */
TEST(data_alone) {
    test_random r = {13};
    for (int64_t n = 0; n < test_amount(300); ++n) {
        batch b;
        batch_random(&b, &r, a_vocab(&r), n % 2 == 0);
        int dtype = (int)random_below(&r, 3);
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (!raffle_isa_available(every_isa[i])) continue;
            written w = written_make(&b, dtype, n % 3, n % 7, 1 + n % 9), all = written_make(&b, dtype, n % 3, n % 7, 1 + n % 9);
            raffle_output o = raffle_output_init(), full = output_of(&all, 0);
            o.dtype = dtype;
            o.data = w.data;
            o.row_stride = w.stride;
            run(raffle_softmax, &b, every_isa[i], &o);
            run(raffle_softmax, &b, every_isa[i], &full);
            CHECK(!memcmp(w.memory, all.memory, (size_t)w.bytes), "data alone differs on %s", raffle_isa_name(every_isa[i]));
            o.data = NULL; /* and the sets without data */
            o.kept = w.kept;
            o.kept_stride = w.words;
            o.kept_list = w.list;
            o.kept_list_stride = w.room;
            o.kept_count = w.count;
            run(raffle_softmax, &b, every_isa[i], &o);
            CHECK(!memcmp(w.kept, all.kept, (size_t)(b.rows * w.words) * 4), "kept alone differs");
            CHECK(!memcmp(w.list, all.list, (size_t)(b.rows * w.room) * 4), "kept_list alone differs");
            CHECK(!memcmp(w.count, all.count, (size_t)b.rows * 4), "kept_count alone differs");
            written_free(&w);
            written_free(&all);
        }
        batch_free(&b);
    }
}

/* The distance to the exact law, of every row and temperature. */
TEST(softmax_is_exact) {
    test_random r = {14};
    for (int64_t n = 0; n < test_amount(500); ++n) {
        batch b;
        batch_random(&b, &r, a_vocab(&r), n % 2);
        written w = written_make(&b, RAFFLE_F32, 0, 0, 1), logs = written_make(&b, RAFFLE_F32, 0, 0, 1);
        raffle_output o = output_of(&w, 0), o_logs = output_of(&logs, RAFFLE_LOG);
        run(raffle_softmax, &b, RAFFLE_ISA_BEST, &o);
        run(raffle_softmax, &b, RAFFLE_ISA_BEST, &o_logs);
        uint8_t *kept = test_alloc((size_t)b.vocab);
        for (int64_t row = 0; row < b.rows; ++row) {
            oracle_case c = batch_case(&b, row);
            oracle_sample(&c, kept, NULL);
            if (c.temperature >= 0x1p100f) c.temperature = INFINITY, b.temperature[row] = INFINITY;
            check_law(&b, row, kept, (float *)(void *)w.data + row * w.stride, (float *)(void *)logs.data + row * logs.stride);
        }
        free(kept);
        written_free(&w);
        written_free(&logs);
        batch_free(&b);
    }
}

/* ---- in place, masked logits ---------------------------------------------------------------------- */

TEST(in_place) {
    test_random r = {15};
    for (int64_t n = 0; n < test_amount(300); ++n) {
        batch b;
        batch_random(&b, &r, a_vocab(&r), n % 2);
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (!raffle_isa_available(every_isa[i])) continue;
            for (int form = 0; form < 4; ++form) { /* the last: probabilities and nothing else, which has a loop of its own */
                write_function write = form == 2 ? raffle_mask : raffle_softmax;
                written w = written_make(&b, b.dtype, b.stride - b.vocab, 0, 1);
                size_t bytes = (size_t)((b.rows * b.stride + 64) * element_bytes(b.dtype)) + (size_t)(b.data - b.memory);
                char *before = test_alloc(bytes);
                memcpy(before, b.memory, bytes);
                raffle_output o = output_of(&w, form == 1 ? RAFFLE_LOG : 0);
                run(write, &b, every_isa[i], &o);
                if (form == 3) o.kept = NULL, o.kept_list = NULL, o.kept_count = NULL;
                o.data = b.data;
                o.row_stride = b.stride;
                run(write, &b, every_isa[i], &o);
                for (int64_t row = 0; row < b.rows; ++row) {
                    const size_t at = (size_t)(row * b.stride * element_bytes(b.dtype)), length = (size_t)(b.vocab * element_bytes(b.dtype));
                    CHECK(!memcmp(b.data + at, w.data + at, length), "in place differs");
                    memcpy(b.data + at, before + (b.data - b.memory) + at, length);
                }
                CHECK(!memcmp(before, b.memory, bytes), "wrote between the rows");
                free(before);
                written_free(&w);
            }
        }
        batch_free(&b);
    }
}

TEST(masked_logits) {
    test_random r = {16};
    for (int64_t n = 0; n < test_amount(300); ++n) {
        batch b;
        batch_random(&b, &r, a_vocab(&r), 1);
        uint8_t *kept = test_alloc((size_t)b.vocab);
        int dtype = (int)random_below(&r, 3);
        for (int i = 0; i < ISA_COUNT; ++i) {
            if (!raffle_isa_available(every_isa[i])) continue;
            written w = written_make(&b, dtype, 1, 0, 1);
            raffle_output o = output_of(&w, 0);
            run(raffle_mask, &b, every_isa[i], &o);
            for (int64_t row = 0; row < b.rows; ++row) {
                oracle_case c = batch_case(&b, row);
                oracle_answer a = oracle_sample(&c, kept, NULL);
                int64_t wrong = 0;
                for (int64_t t = 0; t < b.vocab; ++t) {
                    uint32_t wanted;
                    vector_store(&wanted, dtype, 0, float_bits(kept[t] ? oracle_load(c.row, c.dtype, t) : -INFINITY));
                    wrong += memcmp(&wanted, w.data + (row * w.stride + t) * element_bytes(dtype), (size_t)element_bytes(dtype)) != 0;
                }
                CHECK(!wrong && w.count[row] == a.kept_count, "%s: %lld logits wrong", raffle_isa_name(every_isa[i]), (long long)wrong);
                if (wrong) batch_print(&b, row);
            }
            written_free(&w);
        }
        free(kept);
        batch_free(&b);
    }
}

/* ---- the tests of the kernel that was reverted elsewhere, with this library's bounds ----------------- */

static void softmax_of(const float *x, int64_t rows, int64_t vocab, const float *temperature, float *p) {
    runner r = runner_make(RAFFLE_F32, vocab, RAFFLE_ISA_BEST);
    raffle_logits logits = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_output o = raffle_output_init();
    raffle_error error = raffle_error_init();
    logits.data = x;
    logits.rows = rows;
    params.temperature = temperature;
    o.data = p;
    CHECK(raffle_softmax(r.plan, &logits, &params, &o, &r.launch, &error) == RAFFLE_OK, "%s", error.text);
    runner_free(r);
}

TEST(known_values) {
    const float x[4] = {1, 2, 3, 4}, one = 1.0f, two = 2.0f;
    const double wanted[4] = {0.032058603280084995, 0.087144318742032553, 0.236882818089910112, 0.643914259887972223};
    const double cooler[4] = {0.10153632318, 0.16740510860, 0.27600434470, 0.45505422352};
    float p[4];
    softmax_of(x, 1, 4, &one, p);
    for (int i = 0; i < 4; ++i) CHECK(fabs((double)p[i] - wanted[i]) < 1e-7, "%.9g for %.9g", (double)p[i], wanted[i]);
    softmax_of(x, 1, 4, &two, p);
    for (int i = 0; i < 4; ++i) CHECK(fabs((double)p[i] - cooler[i]) < 1e-7, "%.9g for %.9g", (double)p[i], cooler[i]);
    for (int64_t vocab = 1; vocab <= 3000; vocab += vocab < 40 ? 1 : 977) { /* alone is certain; equals share alike */
        float *row = test_alloc((size_t)vocab * 4), *out = test_alloc((size_t)vocab * 4);
        for (int64_t i = 0; i < vocab; ++i) row[i] = -3.25f;
        softmax_of(row, 1, vocab, &one, out);
        for (int64_t i = 0; i < vocab; ++i) CHECK(out[i] == (float)(1.0 / (double)vocab), "1 / %lld is %.9g", (long long)vocab, (double)out[i]);
        free(row);
        free(out);
    }
}

TEST(temperatures_of_all_sizes) {
    enum { V = 40000, ROWS = 10 };
    static const float temperature[ROWS] = {1e-5f, 1e-4f, 1e-3f, 0.01f, 0.1f, 1.0f, 2.0f, 100.0f, 1e6f, 0.0f};
    float *x = test_alloc(sizeof(float) * ROWS * V), *p = test_alloc(sizeof(float) * ROWS * V);
    static const float sizes[] = {1.0f, 30.0f, 1e3f, 1e4f, 1e30f};
    for (int s = 0; s < 5; ++s) {
        for (int64_t i = 0; i < ROWS * V; ++i)
            x[i] = sizes[s] * vector_bell(vector_hash((uint64_t)s, (uint64_t)(i % V)));
        softmax_of(x, ROWS, V, temperature, p);
        for (int row = 0; row < ROWS; ++row) {
            double sum = 0;
            int64_t best = 0, likeliest = 0;
            for (int64_t i = 0; i < V; ++i) {
                float value = p[row * V + i];
                CHECK(value >= 0 && value <= 1, "%g at T %g", (double)value, (double)temperature[row]);
                sum += (double)value;
                if (x[row * V + i] > x[row * V + best]) best = i;
                if (value > p[row * V + likeliest]) likeliest = i;
            }
            CHECK(fabs(sum - 1) < 1e-6, "logits of %g at T %g add up to %.9g", (double)sizes[s], (double)temperature[row], sum);
            /* large temperatures make neighbours equal: then the first of equals is as good */
            CHECK(p[row * V + best] == p[row * V + likeliest], "the argmax moved");
        }
    }
    free(x);
    free(p);
}

TEST(the_largest_vocabulary) {
    const int64_t vocab = RAFFLE_VOCAB_MAX;
    float *x = test_alloc((size_t)vocab * 4), one = 1.0f;
    for (int64_t i = 0; i < vocab; ++i) x[i] = i % 3 ? -18.0f : 0.25f;
    softmax_of(x, 1, vocab, &one, x); /* in place */
    double sum = 0, high = 1.0 / ((double)((vocab + 2) / 3) + (double)(vocab - (vocab + 2) / 3) * exp(-18.25));
    for (int64_t i = 0; i < vocab; ++i) sum += (double)x[i];
    CHECK(fabs(sum - 1) < 1e-6, "adds up to %.9g", sum);
    CHECK(fabs((double)x[0] / high - 1) < 2e-6 && fabs((double)x[1] / (high * exp(-18.25)) - 1) < 4e-6, "%.9g and %.9g", (double)x[0], (double)x[1]);
    free(x);
}

int main(void) {
    RUN(softmax_bits);
    RUN(renormalised_bits);
    RUN(data_alone);
    RUN(softmax_is_exact);
    RUN(in_place);
    RUN(masked_logits);
    RUN(known_values);
    RUN(temperatures_of_all_sizes);
    RUN(the_largest_vocabulary);
    return test_report("probabilities");
}
