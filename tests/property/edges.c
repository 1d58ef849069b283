/* edges.c - the edge of every parameter, and rows that are not ordinary numbers. Each question goes to every
 * instruction set and to the oracle (ask); here stands what the answer must be. */
#include <float.h>
#include <stdlib.h>

#include "../common/ask.h"

/* Logits whose probabilities are 50, 25, 15 and 10 %. */
static const float shares[4] = {-0.69314718f, -1.38629436f, -1.89711998f, -2.30258509f};
static const float tied[6] = {1.0f, 3.0f, 2.0f, 3.0f, 2.0f, 2.0f};

/* ---- temperature ---- */

TEST(temperature_below_1e5_is_greedy) {
    static const float greedy[] = {0.0f, 0x1p-149f, 1e-30f, 1e-6f};
    oracle_case c = ask_row(tied, RAFFLE_F32, 6);
    for (int i = 0; i < 5; ++i)
        for (c.position = 0; c.position < 20; ++c.position) {
            c.temperature = i < 4 ? greedy[i] : nextafterf(1e-5f, 0.0f);
            oracle_answer a = ask(&c, NULL);
            CHECK_EQ(a.token, 1); /* the lowest id of the two */
            CHECK_EQ(a.greedy, 1);
        }
    int seen = 0;
    c.temperature = 1e-5f; /* from here on it is a draw among the ties */
    for (c.position = 0; c.position < 20; ++c.position) seen |= 1 << ask(&c, NULL).token;
    CHECK_EQ(seen, 1 << 1 | 1 << 3);
}

TEST(temperature_infinite_is_uniform) {
    const float row[5] = {100.0f, -FLT_MAX, -INFINITY, 0.0f, FLT_MAX};
    static const float flat[] = {INFINITY, 0x1p100f, FLT_MAX};
    oracle_case c = ask_row(row, RAFFLE_F32, 5);
    for (int i = 0; i < 3; ++i) {
        c.temperature = flat[i];
        uint64_t tickets[5];
        oracle_sample(&c, NULL, tickets);
        CHECK(tickets[0] == tickets[1] && tickets[0] == tickets[3] && tickets[0] == tickets[4] && !tickets[2],
              "not uniform");
        int64_t count[5];
        ask_count(&c, 4000, count);
        for (int t = 0; t < 5; ++t)
            CHECK(t == 2 ? !count[t] : llabs(count[t] - 1000) < 120, "token %d: %lld", t, (long long)count[t]);
        CHECK_EQ(ask_kept(&c), 4);
    }
}

TEST(temperature_nan_or_negative_is_an_error) {
    static const float bad[] = {-1.0f, -0x1p-149f, NAN, -INFINITY};
    runner r = runner_make(RAFFLE_F32, 6, RAFFLE_ISA_BEST);
    for (int i = 0; i < 4; ++i) {
        oracle_case c = ask_row(tied, RAFFLE_F32, 6);
        c.temperature = bad[i];
        raffle_params params = ask_params(&c);
        raffle_logits logits = ask_logits(&c);
        outputs o;
        outputs_poison(&o);
        raffle_error error = raffle_error_init();
        CHECK_STATUS(raffle_sample(r.plan, &logits, &params, &o.result, &r.launch, &error), RAFFLE_E_ARGUMENT);
        CHECK_EQ(error.row, 0);
        int32_t guard;
        memset(&guard, GUARD, sizeof guard);
        CHECK_EQ(o.token[0], guard); /* nothing was written */
    }
    runner_free(r);
}

TEST(temperature_tiny_does_not_overflow) {
    const float row[4] = {-3e38f, 3.0e38f, 1e4f, 3.1e38f};
    oracle_case c = ask_row(row, RAFFLE_F32, 4);
    static const float small[] = {1e-5f, 1e-4f, 1e-3f, 1.0f};
    for (int i = 0; i < 4; ++i) {
        c.temperature = small[i];
        for (c.position = 0; c.position < 10; ++c.position) CHECK_EQ(ask(&c, NULL).token, 3);
    }
    c.temperature = 1e38f; /* at most 6.1 nats apart: all four are drawn */
    int seen = 0;
    for (c.position = 0; c.position < 60; ++c.position) seen |= 1 << ask(&c, NULL).token;
    CHECK_EQ(seen, 15);
}

/* ---- top-k ---- */

TEST(top_k_off) {
    static const int32_t off[] = {0, -1, INT32_MIN, 6, 7, INT32_MAX};
    oracle_case c = ask_row(tied, RAFFLE_F32, 6);
    for (int i = 0; i < 6; ++i) {
        c.top_k = off[i];
        CHECK_EQ(ask_kept(&c), 6);
    }
}

TEST(top_k_ties_live_together) {
    static const int64_t wanted[] = {0, 1, 2, 5, 5, 5};
    oracle_case c = ask_row(tied, RAFFLE_F32, 6);
    for (c.top_k = 1; c.top_k < 6; ++c.top_k) CHECK_EQ(ask_kept(&c), wanted[c.top_k]);
}

TEST(top_k_exact_takes_lowest_ids) {
    uint8_t kept[6];
    oracle_case c = ask_row(tied, RAFFLE_F32, 6);
    c.flags = RAFFLE_TOP_K_EXACT;
    for (c.top_k = 1; c.top_k < 6; ++c.top_k) CHECK_EQ(ask_kept(&c), c.top_k);
    c.top_k = 4;
    ask(&c, kept);
    CHECK(!memcmp(kept, "\0\1\1\1\1\0", 6), "kept %d %d %d %d %d %d", kept[0], kept[1], kept[2], kept[3], kept[4],
          kept[5]);
    for (c.position = 0; c.position < 200; ++c.position)
        CHECK(kept[ask(&c, NULL).token], "a token that was cut was drawn");
}

TEST(top_k_larger_than_what_is_allowed) {
    const float row[6] = {-INFINITY, 1.0f, NAN, 2.0f, -INFINITY, 0.0f};
    oracle_case c = ask_row(row, RAFFLE_F32, 6);
    for (c.top_k = 3; c.top_k < 6; ++c.top_k) CHECK_EQ(ask_kept(&c), 3);
}

/* ---- top-p ---- */

TEST(top_p_borders) {
    static const struct {
        float p;
        int64_t kept;
    } wanted[] = {{-1.0f, 1}, {0.0f, 1},  {0x1p-149f, 1}, {0.01f, 1}, {0.49f, 1}, {0.51f, 2},
                  {0.74f, 2}, {0.76f, 3}, {0.89f, 3},     {0.91f, 4}, {1.0f, 4},  {7.0f, 4}};
    oracle_case c = ask_row(shares, RAFFLE_F32, 4);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i) {
        c.top_p = wanted[i].p;
        CHECK_EQ(ask_kept(&c), wanted[i].kept);
    }
}

/* Four equal tokens hold exactly p = 1/2, 1/4 ...: equal logits are strictly larger than none. */
TEST(top_p_exact_border) {
    const float row[8] = {1, 1, 0, 0, 0, 0, 0, 0};
    oracle_case c = ask_row(row, RAFFLE_F32, 8);
    c.temperature = INFINITY; /* every token holds exactly 1/8 */
    c.top_p = 0.25f;
    CHECK_EQ(ask_kept(&c), 2); /* mass above the zeros is exactly p, and that is not below p */
    c.top_p = nextafterf(0.25f, 1.0f);
    CHECK_EQ(ask_kept(&c), 8);
}

/* "The single best token" of ties is the lowest id; a share above zero keeps the tie whole. */
TEST(top_p_zero_is_greedy) {
    static const float none[] = {0.0f, -0.0f, -1.0f, -INFINITY};
    oracle_case c = ask_row(tied, RAFFLE_F32, 6);
    for (int i = 0; i < 4; ++i)
        for (c.position = 0; c.position < 20; ++c.position) {
            c.top_p = none[i];
            oracle_answer a = ask(&c, NULL);
            CHECK(a.token == 1 && a.greedy && a.kept_count == 1, "top_p %g: token %d of %lld", (double)c.top_p, a.token,
                  (long long)a.kept_count);
        }
    int seen = 0;
    c.top_p = 0x1p-149f;
    CHECK_EQ(ask_kept(&c), 2);
    for (c.position = 0; c.position < 20; ++c.position) seen |= 1 << ask(&c, NULL).token;
    CHECK_EQ(seen, 1 << 1 | 1 << 3);
}

/* The first token holds 3034034944 * 1024 tickets, the second 9223 * 1024. p is 1 - 51 / 2^24, so p of the mass is 0.65
 * tickets more than what the first holds: its share is rounded up, and the second stays. */
TEST(top_p_share_is_rounded_up) {
    const float row[2] = {0.0f, -12.7037f};
    uint64_t tickets[2];
    oracle_case c = ask_row(row, RAFFLE_F32, 2);
    oracle_sample(&c, NULL, tickets);
    CHECK_EQ(tickets[0], 3106851782656);
    CHECK_EQ(tickets[1], 9444352);
    c.top_p = 0x1.ffff9ap-1f;
    CHECK_EQ(ask_kept(&c), 2);
    c.top_p = nextafterf(c.top_p, 0.0f);
    CHECK_EQ(ask_kept(&c), 1);
}

/* Tokens that alone hold less than a ticket, whose groups hold some. At this position the first proposal falls on them, and is none. */
TEST(top_p_proposes_what_holds_tickets) {
    enum { VOCAB = (1 << 18) + 1 };
    static float row[VOCAB];
    for (int i = 0; i < VOCAB; ++i) row[i] = i ? -28.8f : 0.0f;
    oracle_case c = ask_row(row, RAFFLE_F32, VOCAB);
    c.position = 6318945;
    CHECK(ask(&c, NULL).token > 2048, "without top-p the first token is drawn");
    for (int n = 0; n < 2; ++n) { /* all stay, without a threshold; the first alone */
        c.top_p = n ? 0.5f : nextafterf(1.0f, 0.0f);
        const oracle_answer a = ask(&c, NULL);
        CHECK_EQ(a.kept_count, n ? 1 : VOCAB);
        CHECK_EQ(a.draw_mass, 3106851782656); /* the first token's tickets */
        CHECK(a.token == 0 && a.proposals == 2, "token %d by proposal %d", a.token, a.proposals);
    }
}

/* From p = 1/2 on a token is proposed first that is drawn without top-p, too. */
TEST(top_p_from_one_half_on) {
    float row[999];
    vector_row_make("flat", 3, 999, RAFFLE_F32, row);
    oracle_case c = ask_row(row, RAFFLE_F32, 999);
    int same[2] = {0, 0};
    for (c.position = 0; c.position < 100; ++c.position) {
        c.top_p = 1.0f;
        const int32_t whole = ask(&c, NULL).token;
        for (int n = 0; n < 2; ++n) {
            c.top_p = n ? 0.5f : nextafterf(0.5f, 0.0f);
            const oracle_answer a = ask(&c, NULL);
            CHECK((a.proposals > 0) == n, "p %a: %d proposals", (double)c.top_p, a.proposals);
            same[n] += a.token == whole;
        }
    }
    CHECK(same[0] < 20 && same[1] > 35 && same[1] < 65, "%d and %d of 100 tokens are those without top-p", same[0], same[1]);
}

/* ---- min-p ---- */

TEST(min_p_borders) {
    static const struct {
        float p;
        int64_t kept;
    } wanted[] = {{-1.0f, 4}, {0.0f, 4},  {0x1p-149f, 4}, {0.19f, 4}, {0.21f, 3}, {0.29f, 3},
                  {0.31f, 2}, {0.49f, 2}, {0.51f, 1},     {1.0f, 1},  {5.0f, 1},  {INFINITY, 1}};
    oracle_case c = ask_row(shares, RAFFLE_F32, 4);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i) {
        c.min_p = wanted[i].p;
        CHECK_EQ(ask_kept(&c), wanted[i].kept);
    }
}

TEST(min_p_one_keeps_ties) {
    oracle_case c = ask_row(tied, RAFFLE_F32, 6);
    c.min_p = 1.0f;
    CHECK_EQ(ask_kept(&c), 2);
    c.min_p = 3.0f;
    CHECK_EQ(ask_kept(&c), 2);
}

TEST(min_p_zero_is_off_exactly) {
    const float row[3] = {0.0f, -1000.0f, -FLT_MAX};
    oracle_case c = ask_row(row, RAFFLE_F32, 3);
    CHECK_EQ(ask_kept(&c), 3);
    c.min_p = 0x1p-149f; /* e^-103: now it does cut */
    CHECK_EQ(ask_kept(&c), 1);
}

/* ---- flags: the same row, another meaning ---- */

TEST(flag_top_p_joint) {
    oracle_case c = ask_row(shares, RAFFLE_F32, 4);
    c.top_k = 2;
    c.top_p = 0.6f; /* 50 of 75 is above 60 %, 50 of 100 is not */
    CHECK_EQ(ask_kept(&c), 1);
    c.flags = RAFFLE_TOP_P_JOINT;
    CHECK_EQ(ask_kept(&c), 2);
    c.top_p = 0.9f; /* the survivors hold less than this: all stay */
    CHECK_EQ(ask_kept(&c), 2);
}

TEST(flag_filters_first) {
    oracle_case c = ask_row(shares, RAFFLE_F32, 4);
    c.temperature = 10.0f;
    c.top_p = 0.6f;
    CHECK_EQ(ask_kept(&c), 3);
    c.flags = RAFFLE_FILTERS_FIRST;
    CHECK_EQ(ask_kept(&c), 2);
    c.top_p = 1.0f;
    c.min_p = 0.4f;
    CHECK_EQ(ask_kept(&c), 2);
    c.flags = 0;
    CHECK_EQ(ask_kept(&c), 4);
}

TEST(flag_min_p_last) {
    oracle_case c = ask_row(shares, RAFFLE_F32, 4);
    c.min_p = 0.25f;
    c.top_p = 0.8f; /* 75 of 90 is above 80 %, 75 of 100 is not */
    CHECK_EQ(ask_kept(&c), 2);
    c.flags = RAFFLE_MIN_P_LAST;
    CHECK_EQ(ask_kept(&c), 3);
    c.min_p = 0.4f; /* of the three that top-p leaves, the 15 are below 0.4 of 50 */
    CHECK_EQ(ask_kept(&c), 2);
    c.min_p = 0.0f;
    CHECK_EQ(ask_kept(&c), 3);
}

/* ---- rows that are not ordinary ---- */

TEST(nan_counts_as_minus_inf) {
    float row[300];
    for (int i = 0; i < 300; ++i) row[i] = i % 2 ? NAN : -NAN;
    row[299] = -50.0f;
    oracle_case c = ask_row(row, RAFFLE_F32, 300);
    for (c.position = 0; c.position < 10; ++c.position) {
        oracle_answer a = ask(&c, NULL);
        CHECK_EQ(a.token, 299);
        CHECK_EQ(a.row_flags, RAFFLE_ROW_NAN);
    }
    uint32_t allow[10] = {0};
    allow[9] = 1u << (299 - 288);
    c.allow = allow;
    CHECK_EQ(ask(&c, NULL).row_flags, 0); /* a masked NaN is nobody's problem */
}

TEST(plus_inf_shares_the_draw) {
    float row[600];
    for (int i = 0; i < 600; ++i) row[i] = i == 5 ? FLT_MAX : 0.0f;
    row[7] = row[300] = row[599] = INFINITY;
    oracle_case c = ask_row(row, RAFFLE_F32, 600);
    static const float temperatures[] = {1.0f, 1e-5f, 100.0f, INFINITY};
    for (int i = 0; i < 4; ++i) {
        int64_t count[600];
        c.temperature = temperatures[i];
        ask_count(&c, 3000, count);
        CHECK(count[7] + count[300] + count[599] == 3000 && count[7] > 850 && count[300] > 850 && count[599] > 850,
              "T %g: %lld %lld %lld", (double)c.temperature, (long long)count[7], (long long)count[300],
              (long long)count[599]);
        CHECK_EQ(ask(&c, NULL).row_flags, RAFFLE_ROW_INF);
    }
    c.temperature = 0.0f;
    CHECK_EQ(ask(&c, NULL).token, 7);
    c.temperature = 1.0f;
    c.min_p = 0.5f;
    CHECK_EQ(ask_kept(&c), 3);
}

static void check_empty(const oracle_case *given, uint32_t flags) {
    oracle_case c = *given;
    static const struct {
        float T;
        int32_t k;
        float p, min_p;
    } ways[] = {{1, 0, 1, 0}, {0, 0, 1, 0}, {1, 1, 1, 0}, {1, 5, 0.5f, 0}, {1, 0, 1, 0.1f}, {INFINITY, 0, 0.5f, 0.5f}};
    for (int i = 0; i < 12; ++i) {
        c.temperature = ways[i % 6].T;
        c.top_k = ways[i % 6].k;
        c.top_p = ways[i % 6].p;
        c.min_p = ways[i % 6].min_p;
        c.flags = i < 6 ? 0 : RAFFLE_EMPTY_IS_ZERO;
        oracle_answer a = ask(&c, NULL);
        CHECK_EQ(a.token, i < 6 ? RAFFLE_NO_TOKEN : 0);
        CHECK_EQ(a.row_flags, flags);
    }
}

TEST(empty_rows) {
    float row[513];
    uint32_t allow[17] = {0};
    for (int i = 0; i < 513; ++i) row[i] = -INFINITY;
    oracle_case c = ask_row(row, RAFFLE_F32, 513);
    check_empty(&c, RAFFLE_ROW_EMPTY);
    row[512] = NAN;
    check_empty(&c, RAFFLE_ROW_EMPTY | RAFFLE_ROW_NAN);
    for (int i = 0; i < 513; ++i) row[i] = 1.0f;
    allow[16] = ~1u; /* bits past the vocabulary count for nothing */
    c.allow = allow;
    check_empty(&c, RAFFLE_ROW_EMPTY);
    allow[16] = 1u;
    CHECK_EQ(ask(&c, NULL).token, 512);
}

TEST(minus_zero_is_zero) {
    const float row[6] = {-1.0f, -0.0f, 0.0f, -0.0f, -1.0f, -2.0f};
    oracle_case c = ask_row(row, RAFFLE_F32, 6);
    c.top_k = 2;
    CHECK_EQ(ask_kept(&c), 3);
    c.flags = RAFFLE_TOP_K_EXACT;
    CHECK_EQ(ask_kept(&c), 2);
    c.flags = 0;
    c.top_k = 1;
    CHECK_EQ(ask(&c, NULL).token, 1);
    c.top_k = 0;
    c.top_p = 0.1f;
    CHECK_EQ(ask_kept(&c), 3);
    c.top_p = 1.0f;
    c.min_p = 1.0f;
    CHECK_EQ(ask_kept(&c), 3);
}

/* A threshold of zero among positive and negative logits, by every filter. */
TEST(threshold_of_zero) {
    const float row[8] = {2, 0, 1, -0.0f, 0, -1, -1, -2};
    oracle_case c = ask_row(row, RAFFLE_F32, 8);
    for (c.top_k = 2; c.top_k < 8; ++c.top_k)
        for (c.top_p = 0.05f; c.top_p < 1.1f; c.top_p += 0.05f) ask(&c, NULL);
    c.top_k = 3;
    c.top_p = 0.8f;
    CHECK_EQ(ask_kept(&c), 5);
}

TEST(subnormals_are_numbers) {
    const float row[4] = {0x1p-149f, 0x1p-140f, -0x1p-149f, 0x1.8p-141f};
    oracle_case c = ask_row(row, RAFFLE_F32, 4);
    c.top_k = 1;
    CHECK_EQ(ask(&c, NULL).token, 1);
    c.top_k = 2;
    CHECK_EQ(ask_kept(&c), 2);
    const uint16_t halves[4] = {0x0001, 0x8001, 0x0003, 0x0000}, brains[4] = {0x8003, 0x0002, 0x0000, 0x0001};
    c = ask_row(halves, RAFFLE_F16, 4);
    c.top_k = 1;
    CHECK_EQ(ask(&c, NULL).token, 2);
    c = ask_row(brains, RAFFLE_BF16, 4);
    c.top_k = 1;
    CHECK_EQ(ask(&c, NULL).token, 1);
}

TEST(one_token) {
    const float row[1] = {-123.0f};
    oracle_case c = ask_row(row, RAFFLE_F32, 1);
    for (int i = 0; i < 64; ++i) {
        c.temperature = i & 1 ? 0.0f : i & 2 ? INFINITY : 1.0f;
        c.top_k = i & 4 ? 1 : 0;
        c.top_p = i & 8 ? 0.5f : 1.0f;
        c.min_p = i & 16 ? 0.5f : 0.0f;
        c.flags = i & 32 ? 31 : 0;
        CHECK_EQ(ask(&c, NULL).token, 0);
    }
}

/* ---- explain ---- */

TEST(explain_lists_the_likeliest) {
    enum { VOCAB = 1000, MORE = 1200 };
    static float row[VOCAB];
    static raffle_candidate top[MORE];
    const int64_t rooms[] = {0, 1, 2, 3, 50, 999, 1000, MORE};
    runner r = runner_make(RAFFLE_F32, VOCAB, RAFFLE_ISA_BEST);
    for (int i = 0; i < VOCAB; ++i) row[i] = i % 40 == 7 ? -INFINITY : (float)(i * 7919 % 101); /* many are equal */
    oracle_case c = ask_row(row, RAFFLE_F32, VOCAB);
    raffle_params params = ask_params(&c);
    raffle_logits logits = ask_logits(&c);
    for (int n = 0; n < 8; ++n) {
        raffle_explanation e = raffle_explanation_init();
        e.top = top;
        e.top_count = rooms[n];
        CHECK_STATUS(raffle_explain(r.plan, &logits, &params, 0, &e, &r.launch, NULL), RAFFLE_OK);
        CHECK_EQ(e.top_count, rooms[n] < VOCAB ? rooms[n] : VOCAB);
        for (int64_t i = 0; i < e.top_count; ++i) { /* as many come before a token as its place says */
            int64_t before = 0, id = top[i].token;
            for (int64_t j = 0; j < VOCAB; ++j) before += row[j] > row[id] || (row[j] == row[id] && j < id);
            CHECK_EQ(before, i);
        }
    }
    runner_free(r);
}

int main(void) {
    RUN(temperature_below_1e5_is_greedy);
    RUN(temperature_infinite_is_uniform);
    RUN(temperature_nan_or_negative_is_an_error);
    RUN(temperature_tiny_does_not_overflow);
    RUN(top_k_off);
    RUN(top_k_ties_live_together);
    RUN(top_k_exact_takes_lowest_ids);
    RUN(top_k_larger_than_what_is_allowed);
    RUN(top_p_borders);
    RUN(top_p_exact_border);
    RUN(top_p_zero_is_greedy);
    RUN(top_p_share_is_rounded_up);
    RUN(top_p_proposes_what_holds_tickets);
    RUN(top_p_from_one_half_on);
    RUN(min_p_borders);
    RUN(min_p_one_keeps_ties);
    RUN(min_p_zero_is_off_exactly);
    RUN(flag_top_p_joint);
    RUN(flag_filters_first);
    RUN(flag_min_p_last);
    RUN(nan_counts_as_minus_inf);
    RUN(plus_inf_shares_the_draw);
    RUN(empty_rows);
    RUN(minus_zero_is_zero);
    RUN(threshold_of_zero);
    RUN(subnormals_are_numbers);
    RUN(one_token);
    RUN(explain_lists_the_likeliest);
    return test_report("edges");
}
