/* make_vectors.c - writes vectors.txt to stdout from the oracle. See README.md. */
#include <stdlib.h>

#include "../common/batch.h"
#include "../common/borders.h"
#include "../common/pick.h"

static const char head[] =
    "# Tokens that every backend, build and language of raffle must return, made by make_vectors from the oracle.\n"
    "# Rows are made by vector_row_make(kind, row_seed, vocab, dtype), masks by vector_allow_make(allow, vocab); both "
    "are\n"
    "# in vector_rows.h, vector_file.h reads this file. Floats are C hex floats; flags and row_flags are decimal sums "
    "of\n"
    "# RAFFLE_TOP_P_JOINT ... and RAFFLE_ROW_...; allow 0 means no mask.\n"
    "# kind row_seed vocab dtype temperature top_k top_p min_p flags allow seed position token row_flags\n";

/* How a case is chosen: at random; with a draw at a border; the same where references are TALL. */
enum { PLAIN, SHARP, TALL };

static void write_line(const oracle_case *c, const char *kind, uint64_t row_seed, uint64_t allow_seed) {
    oracle_answer a = oracle_sample(c, NULL, NULL);
    printf("%s %llu %lld %s %a %d %a %a %u %llu %llu %llu %d %u\n", kind, (unsigned long long)row_seed,
           (long long)c->vocab, dtype_names[c->dtype], (double)c->temperature, c->top_k, (double)c->top_p,
           (double)c->min_p, c->flags, (unsigned long long)allow_seed, (unsigned long long)c->seed,
           (unsigned long long)c->position, a.token, a.row_flags);
}

/* The position of a million whose draw falls closest to a border: where one ticket more or less, and so the last bit of a weight,
 * changes the token. */
static uint64_t sharpest(const oracle_case *given) {
    const borders b = borders_make(given);
    uint64_t best = 0, least = UINT64_MAX;
    for (uint64_t position = 0; b.mass && position < 1 << 20; ++position) {
        int64_t token;
        uint64_t within, distance = borders_distance(&b, 0, given->seed, position, &within, &token);
        if (within < distance) distance = within;
        if (distance < least) least = distance, best = position;
    }
    borders_free(b);
    return best;
}

static void write_case(const char *kind, uint64_t row_seed, int64_t vocab, int dtype, int sharp, test_random *r) {
    void *row = malloc((size_t)vocab * 4);
    uint32_t *allow = malloc((size_t)(vocab + 31) / 32 * 4);
    uint64_t allow_seed = random_below(r, 4) ? 0 : 1 + (uint64_t)random_below(r, 1000);
    vector_row_make(kind, row_seed, vocab, dtype, row);
    if (allow_seed) vector_allow_make(allow_seed, vocab, allow);
    oracle_case c = {.row = row, .dtype = dtype, .vocab = vocab, .allow = allow_seed ? allow : NULL};
    do {
        c.temperature = pick_temperature(r);
        c.top_k = pick_top_k(r, vocab);
        c.top_p = pick_top_p(r);
        c.min_p = pick_min_p(r);
    } while (sharp &&
             (c.temperature < 0.01f || c.temperature > 1e3f || c.top_k == 1 || c.top_p < 0.3f || c.min_p >= 0.5f));
    if (sharp == TALL)
        c.temperature = 0.0015f + 0.001f * (float)random_unit(r), c.top_k = 0, c.top_p = 1.0f, c.min_p = 0.0f;
    c.flags = pick_flags(r);
    c.seed = random_bits(r) >> random_below(r, 64);
    c.position = random_bits(r) >> random_below(r, 64);
    if (sharp) c.position = sharpest(&c);
    write_line(&c, kind, row_seed, allow_seed);
    free(allow);
    free(row);
}

/* What a row is asked for whose token is proposed, or is not for one thing alone. */
typedef struct proposed {
    const char *kind;
    int64_t vocab;
    int dtype;
    float temperature, top_p;
    int32_t top_k;
    float min_p;
    uint32_t flags;
    int masked, proposals; /* proposals: until one is kept; 0: the row is not proposed */
} proposed;

#define HALF   0x1p-1f
#define BELOW  0x1.fffffep-2f /* the f32 before it */
#define ALL    0x1.fffffep-1f /* keeps all of a flat row */
#define ORDERS (RAFFLE_MIN_P_LAST | RAFFLE_TOP_K_EXACT | RAFFLE_SHAPE_LAST)
static const proposed proposed_rows[] = {
    {"normal", 4097, RAFFLE_F32, 3.0f, 0.9f, 0, 0, 0, 0, 1},
    {"normal", 4097, RAFFLE_F32, 3.0f, 0.9f, 0, 0, 0, 0, 2},
    {"normal", 4097, RAFFLE_F16, 3.0f, 0.9f, 0, 0, 0, 1, 3},
    {"flat", 4097, RAFFLE_BF16, 1.0f, HALF, 0, 0, 0, 0, 1},
    {"flat", 4097, RAFFLE_F32, 1.0f, HALF, 0, 0, 0, 0, 2},
    {"flat", 4097, RAFFLE_F32, 1.0f, BELOW, 0, 0, 0, 0, 0},
    {"flat", 4097, RAFFLE_F32, 1.0f, HALF, 0, 0, 0, 0, 3},
    {"flat", 4097, RAFFLE_F16, 0.7f, HALF, 0, 0, 0, 1, 7},
    {"normal", 999, RAFFLE_F32, 10.0f, 0.6f, 0, 0, RAFFLE_TOP_P_JOINT, 0, 2},
    {"normal", 999, RAFFLE_F32, 10.0f, 0.6f, 0, 0, ORDERS, 0, 2},
    {"normal", 999, RAFFLE_F32, 1.0f, 0.6f, 0, 0, RAFFLE_FILTERS_FIRST, 0, 2},
    {"normal", 999, RAFFLE_F32, 0x1.000002p+0f, 0.6f, 0, 0, RAFFLE_FILTERS_FIRST, 0, 0},
    {"normal", 999, RAFFLE_F32, 4.0f, 0.6f, 0, 0, RAFFLE_FILTERS_FIRST, 0, 0},
    {"normal", 999, RAFFLE_F32, 4.0f, 0.6f, 999, -1.0f, 0, 0, 2},
    {"normal", 999, RAFFLE_F32, 4.0f, 0.6f, 998, 0, 0, 0, 0},
    {"normal", 999, RAFFLE_F32, 4.0f, 0.6f, 0, 0x1p-149f, 0, 0, 0},
    {"normal", 999, RAFFLE_F32, 4.0f, 0.6f, 0, 0x1p-149f, RAFFLE_MIN_P_LAST, 0, 0},
    {"ties", 4097, RAFFLE_BF16, 1.0f, 0.55f, 0, 0, 0, 0, 2},
    {"constant", 4097, RAFFLE_F32, 1.0f, 0.7f, 0, 0, 0, 0, 1},
    {"inf", 4097, RAFFLE_F16, 1.0f, 0.7f, 0, 0, 0, 0, 1},
    {"masked", 4097, RAFFLE_BF16, INFINITY, 0.7f, 0, 0, 0, 0, 1},
    {"flat", 999, RAFFLE_F32, 1.0f, ALL, 0, 0, 0, 0, 1},
    {"spiky", 49152, RAFFLE_F32, 2.0f, HALF, 0, 0, 0, 0, 2},
    {"ascending", 49152, RAFFLE_F32, 1.0f, 0.75f, 0, 0, 0, 0, 2},
    {"ascending", 49152, RAFFLE_F16, 1.0f, ALL, 0, 0, 0, 0, 1},
    {"descending", 49152, RAFFLE_F32, 0.002f, 0.75f, 0, 0, 0, 0, 3},
    {"normal", 128256, RAFFLE_BF16, 2.0f, 0.95f, 0, 0, 0, 1, 2},
};

/* The first position behind a random one at which that many are proposed; at which, if none are, the row draws another token than it would
 * without top-p. */
static int is_wanted(const proposed *p, const oracle_case *c) {
    oracle_case unfiltered = *c;
    unfiltered.top_p = 1.0f;
    const oracle_answer a = oracle_sample(c, NULL, NULL);
    return a.proposals == p->proposals && (a.proposals || a.token != oracle_sample(&unfiltered, NULL, NULL).token);
}

static void write_proposed(const proposed *p, test_random *r) {
    const uint64_t row_seed = (uint64_t)random_below(r, 1000), allow_seed = p->masked ? 1 + (uint64_t)random_below(r, 1000) : 0;
    void *row = malloc((size_t)p->vocab * 4);
    uint32_t *allow = malloc((size_t)(p->vocab + 31) / 32 * 4);
    vector_row_make(p->kind, row_seed, p->vocab, p->dtype, row);
    vector_allow_make(allow_seed, p->vocab, allow);
    oracle_case c = {.row = row, .dtype = p->dtype, .vocab = p->vocab, .allow = p->masked ? allow : NULL, .temperature = p->temperature,
                     .top_p = p->top_p, .top_k = p->top_k, .min_p = p->min_p, .flags = p->flags};
    c.seed = random_bits(r);
    c.position = random_bits(r);
    while (!is_wanted(p, &c)) ++c.position;
    write_line(&c, p->kind, row_seed, allow_seed);
    free(allow);
    free(row);
}

int main(void) {
    static const struct {
        int64_t vocab;
        int repeats;
    } small[] = {{1, 1}, {2, 1}, {255, 3}, {256, 3}, {257, 3}, {999, 6}, {4097, 6}};
    static const char *const large[] = {"normal", "peaked", "flat", "spiky", "ties", "masked"};
    static const char *const sharp[] = {"normal", "flat", "spiky", "ascending", "normal", "descending", "nan", "ties"};
    test_random r = {20240917};
    int turn = 0;
    fputs(head, stdout);
    for (size_t s = 0; s < sizeof small / sizeof *small; ++s)
        for (int k = 0; k < ROW_KINDS; ++k)
            for (int i = 0; i < small[s].repeats; ++i)
                write_case(row_kinds[k], (uint64_t)random_below(&r, 1000), small[s].vocab, turn++ % 3, PLAIN, &r);
    for (int i = 0; i < 18; ++i)
        write_case(large[i % 6], (uint64_t)random_below(&r, 1000), 49152, (i / 6 + i) % 3, PLAIN, &r);
    for (int i = 0; i < 9; ++i) write_case(large[i % 6], (uint64_t)random_below(&r, 1000), 128256, i % 3, PLAIN, &r);
    printf("# Draws that fall next to a border between two tokens: the last bit of a weight decides.\n");
    for (int i = 0; i < 72; ++i)
        write_case(sharp[i % 8], (uint64_t)random_below(&r, 1000), i < 60 ? 4097 : 49152, i % 3, SHARP, &r);
    for (int i = 0; i < 16; ++i)
        write_case(i % 2 ? "ascending" : "descending", (uint64_t)i, 49152, RAFFLE_F32, TALL, &r);
    printf("# Rows whose token is proposed, and accepted at once or later; and such that are not, for one thing alone.\n");
    for (size_t i = 0; i < sizeof proposed_rows / sizeof *proposed_rows; ++i) write_proposed(&proposed_rows[i], &r);
    return 0;
}
