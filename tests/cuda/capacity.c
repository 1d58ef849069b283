/* capacity.c - rows built around the limits of the kernels' lists, and rows that defeat the bound by which groups are
 * left out. Each has an exact number of large logits over a far lower rest. */
#include "match.h"

extern const int capacity_list, capacity_ranked, capacity_pieces, capacity_keys, capacity_piece_lanes;

/* Where the large logits lie. */
enum { SPREAD, SCATTERED, PACKED, ONE_PER_PIECE, PLACES };
/* What they are: all different, all equal, two values, one best and equals. */
enum { LADDER, EQUAL, TWO, LONE, VALUES };

static const char *const shape_names[PLACES][VALUES] = {
    {"spread ladder", "spread equal", "spread two", "spread lone"},
    {"scattered ladder", "scattered equal", "scattered two", "scattered lone"},
    {"packed ladder", "packed equal", "packed two", "packed lone"},
    {"one-per-piece ladder", "one-per-piece equal", "one-per-piece two", "one-per-piece lone"},
};

/* A token of the i-th piece: group.cuh says which tokens form a piece. */
static int64_t piece_token(const match *m, int64_t row, int64_t i) {
    const int64_t lanes = capacity_piece_lanes, per_group = 32 / lanes, g = i / per_group, q = i % per_group;
    const int aligned = (m->first + row * m->stride) * element_bytes(m->dtype) % 16 == 0;
    const int wide = aligned && (g + 1) * 256 <= m->vocab;
    const int64_t per_lane = !wide ? 1 : m->dtype == RAFFLE_F32 ? 4 : 8;
    return g * 256 + q * lanes * per_lane + i % (lanes * per_lane < 32 ? lanes : 32);
}

static int64_t place_token(const match *m, int64_t row, int place, int64_t count, int64_t i) {
    const int64_t pieces = m->vocab / 256 * (32 / capacity_piece_lanes);
    if (place == SPREAD) return i * m->vocab / count;
    if (place == SCATTERED || (place == ONE_PER_PIECE && count > pieces)) return (i * 7919 + 12345) % m->vocab;
    if (place == PACKED) return (m->vocab - count) / 2 / 256 * 256 + i; /* fills whole groups from a group's start on */
    return piece_token(m, row, (i * 37) % pieces); /* 37 shares no factor with the vocabularies here */
}

static float large_value(int values, int64_t count, int64_t i) {
    if (values == EQUAL) return 1.0f;
    if (values == TWO) return i % 2 ? 1.0f : 0.5f;
    if (values == LONE) return i == count / 3 ? 1.0f : 0.5f;
    return 1.0f - (float)((i * 1009 + 5) % count) * 0x1p-13f;
}

typedef struct capacity_rows {
    match *m;
    int64_t count[ROWS_MAX];
    int place[ROWS_MAX], values[ROWS_MAX];
} capacity_rows;

static void capacity_fill(void *given, int member, int members) {
    capacity_rows *c = (capacity_rows *)given;
    match *m = c->m;
    for (int64_t row = member; row < m->rows; row += members) {
        char *at = match_row(m, row);
        for (int64_t i = 0; i < m->vocab; ++i)
            vector_store(at, m->dtype, i, float_bits(-20.0f - (float)(i * 31 % 64) * 0.25f));
        for (int64_t i = 0; i < c->count[row]; ++i)
            vector_store(at, m->dtype, place_token(m, row, c->place[row], c->count[row], i),
                         float_bits(large_value(c->values[row], c->count[row], i)));
    }
}

/* k: as it is, or counted from the row's number of large logits. */
typedef struct capacity_params {
    float temperature;
    int from_count;
    int32_t k;
    float top_p, min_p;
    uint32_t flags;
} capacity_params;

static const capacity_params every_params[] = {
    {1.0f, 0, 0, 1.0f, 0.02f, 0}, /* min-p lists exactly the large ones */
    {0.7f, 0, 0, 1.0f, 0.05f, RAFFLE_FILTERS_FIRST},
    {1.0f, 0, 0, 0.7f, 0.02f, 0},
    {1.0f, 0, 0, 0.7f, 0.02f, RAFFLE_MIN_P_LAST | RAFFLE_TOP_P_JOINT},
    {1.0f, 1, -1, 1.0f, 0.02f, 0},
    {1.0f, 1, 0, 1.0f, 0.02f, RAFFLE_TOP_K_EXACT},
    {1.0f, 1, 1, 0.9f, 0.02f, 0},
    {1.0f, 1, -1, 1.0f, 0.0f, 0}, /* the k-th is one of them, the last of them, one of the rest */
    {1.0f, 1, 0, 1.0f, 0.0f, 0},
    {1.0f, 1, 1, 1.0f, 0.0f, 0},
    {1.0f, 1, -1, 1.0f, 0.0f, RAFFLE_TOP_K_EXACT},
    {1.3f, 1, 0, 0.95f, 0.0f, RAFFLE_TOP_K_EXACT},
    {0.8f, 1, 1, 0.99f, 0.0f, RAFFLE_TOP_K_EXACT | RAFFLE_FILTERS_FIRST},
    {1.0f, 1, -100, 1.0f, 0.0f, RAFFLE_TOP_K_EXACT},
    {50.0f, 1, 300, 0.9f, 0.0f, RAFFLE_TOP_K_EXACT},
    {1.0f, 0, 2, 1.0f, 0.0f, RAFFLE_TOP_K_EXACT},
    {1.0f, 0, 200, 1.0f, 0.0f, RAFFLE_TOP_K_EXACT}, /* more than a group bound can tell when they are packed */
    {1.0f, 0, 600, 0.5f, 0.0f, 0},
    {1.0f, 0, 0, 0.5f, 0.0f, 0}, /* proposed, from here on */
    {1.0f, 0, 0, 0.4999f, 0.0f, 0},
    {5.0f, 0, 0, 0.4f, 0.0f, 0},
    {1.0f, 0, 0, 0.9999f, 0.0f, 0},
    {1.0f, 0, 0, 0x1.fffffep-1f, 0.0f, 0},
    {5.0f, 0, 0, 0.9f, 0.0f, 0},
    {INFINITY, 0, 0, 0.3f, 0.0f, 0},
    {INFINITY, 1, 0, 0.5f, 0.0f, RAFFLE_TOP_K_EXACT},
    {1.0f, 0, 0, 1.0f, 0.0f, 0},
    {0.0f, 0, 0, 1.0f, 0.0f, 0},
};
enum { PARAMS = sizeof every_params / sizeof *every_params };

static void capacity_round(capacity_rows *c, const capacity_params *p, uint64_t position) {
    match *m = c->m;
    m->flags = p->flags;
    for (int64_t i = 0; i < m->rows; ++i) {
        m->control->temperature[i] = p->temperature;
        m->control->top_k[i] = p->from_count ? (int32_t)(c->count[i] + p->k > 2 ? c->count[i] + p->k : 2) : p->k;
        m->control->top_p[i] = p->top_p;
        m->control->min_p[i] = p->min_p;
        m->control->seed[i] = 1000 + (uint64_t)i;
        m->control->position[i] = position;
    }
    match_compare(m, "capacity");
}

/* Every count, place and value, with every parameter set. */
static void capacity_vocab(int dtype, int64_t vocab, int odd) {
    const int64_t list = capacity_list, ranked = capacity_ranked, pieces = capacity_pieces;
    const int64_t counts[] = {1, 2, 63, 64, 65, ranked - 1, ranked, ranked + 1, pieces - 1, pieces, pieces + 1, 1000,
                              list - 1, list, list + 1, 2 * list};
    test_random r = {(uint64_t)vocab};
    capacity_rows *c = (capacity_rows *)calloc(1, sizeof *c);
    c->m = match_make(dtype, vocab, 16 * PLACES * VALUES);
    int64_t rows = 0;
    for (size_t n = 0; n < sizeof counts / sizeof *counts; ++n)
        for (int place = 0; place < PLACES; ++place)
            for (int values = 0; values < VALUES; ++values) {
                if (counts[n] * 4 > vocab || (gpu_quick() && (n + (size_t)place + (size_t)values) % 5)) continue;
                c->count[rows] = counts[n];
                c->place[rows] = place;
                c->values[rows] = values;
                c->m->kind[rows] = shape_names[place][values];
                c->m->row_seed[rows++] = (uint64_t)counts[n];
            }
    match_layout(c->m, rows, odd ? vocab | 1 : (vocab + 7) / 8 * 8, odd, 0);
    crew_run(capacity_fill, c);
    match_send_rows(c->m);
    for (int i = 0; i < PARAMS && !match_hopeless(); i += gpu_quick() ? 5 : 1) {
        capacity_round(c, &every_params[i], (uint64_t)i);
        if (i % 8 == 0) match_check_oracle(c->m, vocab < 40000 ? 8 : 2, &r);
    }
    match_check_space(c->m, "capacity");
    match_free(c->m);
    free(c);
}

/* A vocabulary whose pieces are fewer than most counts, then common ones. */
TEST(lists_9001) {
    NEED_GPU();
    capacity_vocab(RAFFLE_BF16, 9001, 0);
    capacity_vocab(RAFFLE_F32, 9001, 1);
}
TEST(lists_32000) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    capacity_vocab(RAFFLE_F32, 32000, 0);
    capacity_vocab(RAFFLE_F16, 32000, 0);
    capacity_vocab(RAFFLE_BF16, 32000, 1);
}
TEST(lists_151936) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    capacity_vocab(RAFFLE_BF16, 151936, 0);
    capacity_vocab(RAFFLE_F32, 151936, 1);
}

/* The counts above are what they claim to be: the oracle keeps exactly as many under min-p. */
TEST(rows_are_as_built) {
    NEED_GPU();
    static const int64_t counts[] = {65, 513, 2049};
    capacity_rows *c = (capacity_rows *)calloc(1, sizeof *c);
    c->m = match_make(RAFFLE_F32, 151936, 3 * PLACES);
    for (int i = 0; i < 3 * PLACES; ++i) {
        c->count[i] = counts[i / PLACES];
        c->place[i] = i % PLACES;
        c->m->kind[i] = shape_names[i % PLACES][LADDER];
    }
    match_layout(c->m, 3 * PLACES, 151936, 0, 0);
    crew_run(capacity_fill, c);
    for (int64_t i = 0; i < c->m->rows; ++i) {
        c->m->control->temperature[i] = 1.0f;
        c->m->control->top_p[i] = 1.0f;
        c->m->control->min_p[i] = 0.02f;
        oracle_case asked = match_case(c->m, i);
        CHECK_EQ(oracle_sample(&asked, NULL, NULL).kept_count, c->count[i]);
    }
    match_free(c->m);
    free(c);
}

/* ---- top-k of exactly k ---- */

/* A few hundred large logits, of which up to 40 are equal: the k-th has equals, and a share of the mass ends among them or near. */
static int64_t stairs_fill(match *m, int64_t row, test_random *r) {
    char *at = match_row(m, row);
    int64_t count = 0;
    const int64_t wanted = 20 + random_below(r, 440);
    for (int64_t i = 0; i < m->vocab; ++i) vector_store(at, m->dtype, i, float_bits(-20.0f - (float)(i % 64) * 0.25f));
    for (float value = 1.0f; count < wanted; value -= 0.03125f)
        for (int64_t equals = 1 + random_below(r, 40); equals > 0; --equals, ++count)
            vector_store(at, m->dtype, (count * 7919 + 12345) % m->vocab, float_bits(value));
    return count;
}

TEST(exactly_k) {
    NEED_GPU();
    enum { ROWS = 48 };
    static const uint32_t flags[] = {0, RAFFLE_TOP_P_JOINT, RAFFLE_FILTERS_FIRST, RAFFLE_MIN_P_LAST,
                                     RAFFLE_FILTERS_FIRST | RAFFLE_MIN_P_LAST};
    test_random r = {42};
    for (int dtype = RAFFLE_F32; dtype <= RAFFLE_BF16; ++dtype) {
        match *m = match_make(dtype, 9001, ROWS);
        int64_t count[ROWS];
        match_layout(m, ROWS, 9008, 0, 0);
        for (int64_t i = 0; i < ROWS; ++i) {
            count[i] = stairs_fill(m, i, &r);
            m->kind[i] = "stairs";
        }
        match_send_rows(m);
        for (int64_t round = 0; round < test_amount(100) && !match_hopeless(); ++round) {
            m->flags = RAFFLE_TOP_K_EXACT | flags[round % 5];
            for (int64_t i = 0; i < ROWS; ++i) {
                m->control->temperature[i] = round % 3 ? 0.7f : 2.0f;
                m->control->top_k[i] = (int32_t)(2 + random_below(&r, count[i] - 2));
                m->control->top_p[i] = round % 4 ? (float)(1 + random_below(&r, 999)) / 1000.0f : 1.0f;
                m->control->min_p[i] = random_below(&r, 3) ? 0.0f : (float)(1 + random_below(&r, 500)) / 1000.0f;
                m->control->seed[i] = (uint64_t)i;
                m->control->position[i] = (uint64_t)round;
            }
            match_compare(m, "exactly k");
            if (round < 2) match_check_oracle(m, 8, &r);
        }
        match_free(m);
    }
}

/* ---- vocabularies beyond what the bound by maxima can look at ---- */

static void large_vocab(int dtype, int64_t vocab) {
    static const char *const kinds[] = {"normal", "flat", "ties", "ascending", "descending", "spiky", "two", "nan"};
    static const capacity_params params[] = {
        {1.0f, 0, 2, 1.0f, 0.0f, 0},
        {0.8f, 0, 50, 0.9f, 0.0f, 0},
        {1.0f, 0, 1000, 1.0f, 0.0f, RAFFLE_TOP_K_EXACT},
        {1.0f, 0, 5000, 0.95f, 0.0f, RAFFLE_TOP_P_JOINT},
        {1.0f, 0, 100000, 1.0f, 0.0f, RAFFLE_TOP_K_EXACT},
        {1.0f, 0, 0, 0.9f, 0.0f, 0},
        {2.0f, 0, 0, 0.5f, 0.1f, RAFFLE_FILTERS_FIRST},
        {1.0f, 0, 0, 1.0f, 0.05f, 0},
        {1.0f, 0, 0, 1.0f, 0.0f, 0},
        {0.0f, 0, 0, 1.0f, 0.0f, 0},
        {INFINITY, 0, 64, 0.5f, 0.0f, RAFFLE_TOP_K_EXACT | RAFFLE_MIN_P_LAST},
    };
    enum { KINDS = sizeof kinds / sizeof *kinds };
    capacity_rows *c = (capacity_rows *)calloc(1, sizeof *c);
    test_random r = {(uint64_t)vocab};
    c->m = match_make(dtype, vocab, KINDS);
    match_layout(c->m, KINDS, vocab, 0, 0);
    for (int i = 0; i < KINDS; ++i) {
        c->m->kind[i] = kinds[i];
        c->m->row_seed[i] = (uint64_t)i;
    }
    match_fill(c->m);
    match_send_rows(c->m);
    for (size_t i = 0; i < sizeof params / sizeof *params && !match_hopeless(); ++i) {
        capacity_round(c, &params[i], i);
        if (i == 3) match_check_oracle(c->m, 2, &r);
    }
    match_check_space(c->m, "large vocabularies");
    match_free(c->m);
    free(c);
}

TEST(large_vocabularies) {
    NEED_GPU();
    if (gpu_quick()) SKIP("RAFFLE_TEST_QUICK: small vocabularies only");
    const int64_t edge = (int64_t)capacity_keys / (32 / capacity_piece_lanes) * 256; /* 524288 */
    large_vocab(RAFFLE_BF16, edge);
    large_vocab(RAFFLE_F32, edge + 1);
    large_vocab(RAFFLE_F16, 1000000);
    large_vocab(RAFFLE_F32, RAFFLE_VOCAB_MAX);
    large_vocab(RAFFLE_BF16, RAFFLE_VOCAB_MAX);
}

int main(void) {
    gpu_start("cuda_capacity", 150);
    RUN(rows_are_as_built);
    RUN(exactly_k);
    RUN(lists_9001);
    RUN(lists_32000);
    RUN(lists_151936);
    RUN(large_vocabularies);
    return test_report("cuda_capacity");
}
