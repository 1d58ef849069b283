/* state.c - raffle_state on the GPU: any calls leave the histories and counts that the CPU's have, rows that are wrong change
 * nothing and are told, and nothing is written outside. */
#include "slots.h"

/* ---- calls of every kind ---- */

/* `count` different slots, in any order. */
static void slots_shuffle(int32_t *slot, int64_t slots, int64_t count, test_random *r) {
    int32_t *all = (int32_t *)host_alloc((size_t)slots * sizeof *all);
    for (int64_t i = 0; i < slots; ++i) all[i] = (int32_t)i;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t j = i + random_below(r, slots - i);
        slot[i] = all[j];
        all[j] = all[i];
    }
    free(all);
}

/* Ids as texts have them: some often, most seldom. */
static int32_t id_pick(const pool *p, test_random *r) {
    return (int32_t)random_below(r, random_below(r, 2) || p->cpu.vocab < 8 ? p->cpu.vocab : 8);
}

static int32_t number_pick(const int32_t *numbers, int64_t count, test_random *r) { return numbers[random_below(r, count)]; }

/* Rows of tokens of any length, one behind the other, in as many as there are. */
static void first_pick(pool *p, turn *t, test_random *r) {
    t->has_first = 1;
    p->host.first[0] = (int32_t)random_below(r, 3);
    for (int64_t row = 0; row < t->rows; ++row) {
        const int64_t from = p->host.first[row], left = t->rows * t->stride - from, most = left < 2 * t->stride ? left : 2 * t->stride;
        p->host.first[row + 1] = (int32_t)(from + random_below(r, (most > 0 ? most : 0) + 1));
        p->host.count[row] = (int32_t)random_below(r, turn_room(p, t, row) + 1);
    }
}

/* Makes something wrong with a row or two. */
static void turn_spoil(pool *p, const turn *t, test_random *r) {
    const int32_t slots = (int32_t)p->cpu.slots, vocab = (int32_t)p->cpu.vocab, stride = (int32_t)t->stride;
    const int32_t bad_slot[] = {-1, slots, INT32_MIN, INT32_MAX}, bad_id[] = {-2, vocab, INT32_MIN, INT32_MAX, -1};
    const int32_t bad_count[] = {-1, stride + 1, INT32_MIN, INT32_MAX};
    for (int64_t n = 1 + random_below(r, 2); n; --n) {
        const int64_t row = random_below(r, t->rows), other = random_below(r, t->rows);
        int32_t *const token = p->host.token + row * t->stride + (t->action == FORK ? 0 : random_below(r, t->stride));
        const int64_t what = random_below(r, 5);
        if (what == 4) p->host.first[row + random_below(r, 2)] = random_below(r, 2) ? -1 : p->host.first[row] - 1;
        if (what == 0) p->host.slot[row] = number_pick(bad_slot, 4, r);
        if (what == 1) p->host.slot[row] = p->host.slot[other];
        if (what == 2 && t->action == FORK) *token = random_below(r, 2) ? number_pick(bad_slot, 4, r) : (int32_t)random_below(r, slots);
        else if (what == 2) *token = number_pick(bad_id, 5, r);
        if (what == 3) p->host.count[row] = number_pick(bad_count, 4, r);
    }
}

static turn turn_pick(pool *p, test_random *r) {
    static const int often[] = {PROMPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, TRUNCATE, TRUNCATE, TRUNCATE, RESET, FORK};
    const int64_t slots = p->cpu.slots, history_max = p->cpu.history_max;
    turn t = {often[random_below(r, sizeof often / sizeof *often)], 1 + random_below(r, slots), 1, 1, 1, 1, 0};
    if (t.action == FORK && slots > 1) t.rows = 1 + random_below(r, slots / 2);
    if (t.action == PROMPT) t.stride = 1 + random_below(r, history_max + 2);
    else t.stride = 1 + random_below(r, 12);
    if (t.rows * t.stride > p->tokens_max) t.rows = p->tokens_max / t.stride;
    t.has_slot = random_below(r, 4) != 0;
    t.has_count = t.action == TRUNCATE || random_below(r, 2);
    t.has_flags = random_below(r, 8) != 0;
    slots_shuffle(p->host.slot, slots, t.action == FORK && slots > 1 ? 2 * t.rows : t.rows, r);
    for (int64_t i = 0; i < t.rows * t.stride; ++i) p->host.token[i] = id_pick(p, r);
    for (int64_t row = 0; row < t.rows; ++row) {
        int64_t prompt, length;
        raffle_state_history(&p->cpu, turn_slot(p, &t, row), &prompt, &length);
        p->host.count[row] = (int32_t)random_below(r, t.action == TRUNCATE ? length - prompt + 1 : t.stride + 1);
        if (t.action == ACCEPT && !random_below(r, 5)) p->host.token[row * t.stride + random_below(r, t.stride)] = RAFFLE_NO_TOKEN;
    }
    if (t.action == FORK && slots > 1) { /* the others; some are copied twice */
        t.has_slot = 1;
        for (int64_t row = 0; row < t.rows; ++row) p->host.token[row * t.stride] = p->host.slot[t.rows + row];
        if (t.rows > 1 && random_below(r, 2)) p->host.slot[0] = p->host.slot[1];
    }
    if ((t.action == PROMPT || t.action == ACCEPT) && t.rows * t.stride > 3 && random_below(r, 2)) first_pick(p, &t, r);
    if (!random_below(r, 3)) turn_spoil(p, &t, r);
    return t;
}

static void walk(uint64_t seed, int64_t vocab, int64_t history_max, int64_t slots, int64_t turns) {
    test_random r = {seed};
    pool *p = pool_make(slots, history_max, vocab, slots * (history_max + 2 > 12 ? history_max + 2 : 12));
    pool_check(p, "cleared");
    for (int64_t i = 0; i < turns && test_state.failures < TEST_PRINT_MAX; ++i) {
        const turn t = turn_pick(p, &r);
        turn_take(p, &t, "a walk");
    }
    pool_free(p);
}

TEST(one_slot_one_token) {
    NEED_GPU();
    walk(1, 1, 17, 1, test_amount(200));
}
TEST(few_tokens) {
    NEED_GPU();
    walk(2, 3, 40, 24, test_amount(600));
}
TEST(many_tokens) {
    NEED_GPU();
    walk(3, 200, 40, 24, test_amount(1500));
    walk(4, 50000, 40, 24, test_amount(1500));
}
TEST(longer_histories) {
    NEED_GPU();
    walk(5, 50000, 1500, 9, test_amount(300));
    walk(6, RAFFLE_VOCAB_MAX, 300, 9, test_amount(300));
}

/* ---- by hand ---- */

static turn turn_make(pool *p, int action, int64_t rows, int64_t stride) {
    const turn t = {action, rows, stride, 1, 1, 1, 0};
    for (int64_t row = 0; row < rows; ++row) {
        p->host.slot[row] = (int32_t)row;
        p->host.count[row] = (int32_t)stride;
        for (int64_t i = 0; i < stride; ++i) p->host.token[row * stride + i] = (int32_t)((row * 31 + i * i) % p->cpu.vocab);
    }
    return t;
}

static void flags_are(const pool *p, const turn *t, uint32_t wanted) {
    for (int64_t row = 0; row < t->rows; ++row) CHECK(p->host.flags[row] == wanted, "row %lld: %u", (long long)row, p->host.flags[row]);
}

/* Drafts that are taken back leave entries of nothing, until there is no room for one more and all is counted anew. */
TEST(more_tokens_than_entries) {
    NEED_GPU();
    test_random r = {7};
    pool *p = pool_make(9, 40, 50000, 9 * 12);
    int32_t next = 100, anew = 0, before[9] = {0};
    turn t = turn_make(p, PROMPT, 9, 12);
    turn_take(p, &t, "prompts");
    const int rounds = test_amount(600) > 30 ? (int)test_amount(600) : 30; /* fewer and there is always room */
    for (int i = 0; i < rounds && test_state.failures < TEST_PRINT_MAX; ++i) {
        t = turn_make(p, ACCEPT, 9, 9);
        for (int j = 0; j < 9 * 9; ++j) p->host.token[j] = ++next % 50000; /* never seen, or long ago */
        for (int row = 0; row < 9; ++row) p->host.count[row] = 1 + (int32_t)random_below(&r, 9);
        int32_t back[9];
        for (int row = 0; row < 9; ++row) back[row] = p->host.count[row] - (i % 8 == 7);
        turn_take(p, &t, "drafts");
        for (int64_t s = 0; s < 9; ++s) {
            const int32_t entries = view_of(p, p->fetched + POOL_GUARD, s).head[2];
            anew += entries < before[s];
            before[s] = entries;
        }
        t = turn_make(p, TRUNCATE, 9, 1);
        for (int row = 0; row < 9; ++row) p->host.count[row] = p->host.flags[row] ? 0 : back[row];
        turn_take(p, &t, "taken back");
    }
    CHECK(anew > 9, "only %d slots were counted anew", anew);
    pool_free(p);
}

/* A history that is full stays as it is and keeps the note, until it begins anew. */
TEST(full) {
    NEED_GPU();
    pool *p = pool_make(4, 20, 1000, 4 * 30);
    turn t = turn_make(p, PROMPT, 4, 12);
    turn_take(p, &t, "a prompt");
    t = turn_make(p, ACCEPT, 4, 8);
    turn_take(p, &t, "to the last place");
    flags_are(p, &t, 0);
    p->host.token[0] = RAFFLE_NO_TOKEN;
    t = turn_make(p, ACCEPT, 4, 1);
    p->host.token[3] = RAFFLE_NO_TOKEN;
    turn_take(p, &t, "one more");
    CHECK(p->host.flags[0] == RAFFLE_ROW_STATE && p->host.flags[3] == 0, "%u and %u", p->host.flags[0], p->host.flags[3]);
    t = turn_make(p, TRUNCATE, 4, 3);
    turn_take(p, &t, "taken back");
    flags_are(p, &t, 0);
    t = turn_make(p, TRUNCATE, 4, 6);
    turn_take(p, &t, "more than the output has");
    flags_are(p, &t, RAFFLE_ROW_STATE);
    t = turn_make(p, PROMPT, 2, 21);
    turn_take(p, &t, "too long a prompt");
    flags_are(p, &t, RAFFLE_ROW_STATE);
    t = turn_make(p, PROMPT, 2, 20);
    turn_take(p, &t, "a prompt that just fits");
    t = turn_make(p, RESET, 4, 1);
    p->host.slot[0] = 3;
    p->host.slot[1] = 2;
    t.rows = 2;
    turn_take(p, &t, "reset");
    for (int i = 0; i < 4; ++i) CHECK(!p->lost[i], "slot %d is still noted", i);
    pool_free(p);
}

TEST(forks) {
    NEED_GPU();
    static const int32_t slot[][3] = {{0, 0, 0}, {0, 1, 2}, {0, 1, 2}, {0, 2, 4}, {0, 1, 7}, {0, 1, 2}};
    static const int32_t token[][3] = {{3, 4, 5}, {0, 4, 5}, {1, 4, 5}, {3, 3, 5}, {3, -1, 5}, {1, 2, 0}};
    static const uint32_t bad[][3] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {1, 1, 0}, {0, 1, 1}, {1, 1, 1}};
    pool *p = pool_make(7, 60, 500, 7 * 40);
    turn t = turn_make(p, PROMPT, 7, 40);
    turn_take(p, &t, "prompts");
    for (size_t i = 0; i < sizeof slot / sizeof *slot; ++i) {
        t = turn_make(p, FORK, 3, 2);
        for (int row = 0; row < 3; ++row) p->host.slot[row] = slot[i][row], p->host.token[row * 2] = token[i][row];
        turn_take(p, &t, "forks");
        for (int row = 0; row < 3; ++row)
            CHECK((p->host.flags[row] == RAFFLE_ROW_ARGUMENT) == bad[i][row], "case %zu row %d: %u", i, row, p->host.flags[row]);
        t = turn_make(p, ACCEPT, 7, 2);
        turn_take(p, &t, "each goes its way");
    }
    pool_free(p);
}

/* Long prompts of three kinds: a text, one token again and again, hardly a token twice. */
static void long_tokens(pool *p, int64_t length, test_random *r) {
    for (int64_t i = 0; i < length; ++i) {
        const double u = random_unit(r);
        p->host.token[i] = (int32_t)(u * u * u * u * (double)p->cpu.vocab);
        p->host.token[length + i] = 7;
        p->host.token[2 * length + i] = (int32_t)(i * 7919 % p->cpu.vocab);
    }
}

TEST(long_histories) {
    NEED_GPU();
    enum { LENGTH = 131072 };
    test_random r = {8};
    pool *p = pool_make(4, LENGTH, 128256, 3 * LENGTH);
    turn t = turn_make(p, PROMPT, 3, LENGTH);
    long_tokens(p, LENGTH, &r);
    turn_take(p, &t, "long prompts");
    flags_are(p, &t, 0);
    t = turn_make(p, ACCEPT, 3, 1);
    turn_take(p, &t, "no room");
    flags_are(p, &t, RAFFLE_ROW_STATE);
    t = turn_make(p, PROMPT, 3, LENGTH);
    long_tokens(p, LENGTH, &r);
    p->host.count[0] = 2000, p->host.count[1] = 100000, p->host.count[2] = 99999;
    turn_take(p, &t, "shorter ones");
    t = turn_make(p, ACCEPT, 3, 31000);
    long_tokens(p, 31000, &r);
    turn_take(p, &t, "long outputs");
    flags_are(p, &t, 0);
    t = turn_make(p, FORK, 1, 1);
    p->host.slot[0] = 2, p->host.token[0] = 3;
    turn_take(p, &t, "a copy");
    t = turn_make(p, TRUNCATE, 4, 1);
    p->host.count[0] = 31000, p->host.count[1] = 1, p->host.count[2] = 1000, p->host.count[3] = 30999;
    turn_take(p, &t, "taken back");
    flags_are(p, &t, 0);
    pool_free(p);
}

TEST(thousands_of_slots) {
    NEED_GPU();
    const int64_t slots = test_amount(5000);
    test_random r = {9};
    pool *p = pool_make(slots, 24, 32000, slots * 4);
    for (int i = 0; i < 4; ++i) {
        turn t = turn_make(p, i ? ACCEPT : PROMPT, slots, 4);
        slots_shuffle(p->host.slot, slots, slots, &r);
        for (int64_t j = 0; j < slots * 4; ++j) p->host.token[j] = (int32_t)random_below(&r, 32000);
        if (i == 3) p->host.slot[slots - 1] = p->host.slot[0]; /* the two ends */
        turn_take(p, &t, "all slots");
    }
    CHECK(p->host.flags[0] == RAFFLE_ROW_ARGUMENT && p->host.flags[slots - 1] == RAFFLE_ROW_ARGUMENT, "a slot twice is not told");
    pool_free(p);
}

/* ---- memory that nobody cleared ---- */

/* What is there instead of slots: zeros, ones, anything; anything behind heads that look sound, of no token or of 40; an empty
 * index behind a head that has every entry. */
enum { ZEROS, ONES, ANYTHING, EMPTY_HEADS, HEADS, ALL_ENTRIES, KINDS };

static void pool_spoil(pool *p, int kind, test_random *r) {
    pool_wipe(p, kind == ONES || kind == ALL_ENTRIES ? 0xff : 0);
    MUST(raffle_state_clear(&p->cpu, NULL, &must_error));
    if (kind < ANYTHING) return;
    CUDA(cudaMemcpy(p->fetched, p->gpu.memory, p->bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < p->bytes; ++i) {
        if (kind >= EMPTY_HEADS && i % p->slot_bytes < 64) p->fetched[i] = 0;
        else if (kind != ALL_ENTRIES) p->fetched[i] = (char)random_bits(r);
    }
    for (size_t at = 0; at < p->bytes; at += p->slot_bytes) {
        if (kind == HEADS) p->fetched[at] = 40, p->fetched[at + 8] = 60; /* length and entries */
        if (kind == ALL_ENTRIES) p->fetched[at + 8] = (char)entry_max_of(&p->cpu);
    }
    CUDA(cudaMemcpy(p->gpu.memory, p->fetched, p->bytes, cudaMemcpyHostToDevice));
}

TEST(never_cleared) {
    NEED_GPU();
    test_random r = {10};
    for (int kind = 0; kind < KINDS; ++kind) {
        pool *p = pool_make(6, 50, kind == ALL_ENTRIES ? 24 : 300, 6 * 50);
        for (int action = PROMPT; action < ACTIONS; ++action) {
            pool_spoil(p, kind, &r);
            turn t = turn_make(p, action, action == FORK ? 3 : 6, 9);
            for (int row = 0; action == FORK && row < 3; ++row) p->host.token[row * 9] = 3 + row;
            turn_send(p, &t);
            turn_run_gpu(p, &t);
            pool_fetch(p);
            pool_check_guards(p, "never cleared");
            CUDA(cudaMemcpy(p->host.flags, p->there.flags, 24, cudaMemcpyDeviceToHost));
            const int told = (action == ACCEPT && kind != ANYTHING && kind != EMPTY_HEADS && kind != HEADS) ||
                             (kind == ONES && (action == TRUNCATE || action == FORK));
            if (told) flags_are(p, &t, RAFFLE_ROW_STATE);
            memset(p->lost, 1, 6);
            t = turn_make(p, PROMPT, 6, 30); /* makes slots whole, whatever was there */
            turn_take(p, &t, "a prompt");
        }
        pool_clear(p);
        pool_check(p, "cleared");
        pool_free(p);
    }
}

/* ---- between the two ---- */

/* The bytes of a slot mean the same on both sides: histories go on where they are copied to. */
TEST(requests_move) {
    NEED_GPU();
    test_random r = {11};
    pool *p = pool_make(8, 64, 400, 8 * 66);
    for (int i = 0; i < (int)test_amount(100); ++i) {
        turn t = turn_pick(p, &r);
        turn_take(p, &t, "before it moves");
        if (i % 2) { /* what the GPU made, to the CPU */
            memcpy(p->cpu.memory, p->fetched + POOL_GUARD, p->bytes);
        } else {
            CUDA(cudaMemcpy(p->gpu.memory, p->cpu.memory, p->bytes, cudaMemcpyHostToDevice));
            memset(p->lost, 0, 8);
            for (int64_t s = 0; s < 8; ++s) p->lost[s] = (unsigned char)(view_of(p, p->cpu.memory, s).head[3] & 1);
        }
    }
    int64_t prompt = 3, length = 3;
    CHECK(!raffle_state_history(&p->gpu, 0, &prompt, &length) && !prompt && !length, "device memory was read by the host");
    pool_free(p);
}

/* ---- streams and graphs ---- */

static cudaGraphExec_t turn_capture(pool *p, const turn *t) {
    cudaGraphExec_t exec;
    CUDA(cudaStreamSynchronize(p->stream));
    CUDA(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeGlobal));
    turn_run_gpu(p, t);
    const size_t launches = gpu_capture_end(p->stream, &exec);
    CHECK(launches == 1, "action %d is %zu launches, not one", t->action, launches);
    return exec;
}

/* One captured call of each kind serves whatever is in the arrays later. */
TEST(replays_follow_memory) {
    NEED_GPU();
    enum { SLOTS = 12, STRIDE = 6, ROWS = 5 };
    test_random r = {12};
    cudaGraphExec_t exec[ACTIONS];
    pool *p = pool_make(SLOTS, 100, 900, SLOTS * STRIDE);
    for (int action = 0; action < ACTIONS; ++action) {
        const turn t = turn_make(p, action, ROWS, STRIDE);
        turn_send(p, &t);
        exec[action] = turn_capture(p, &t);
    }
    pool_check(p, "captured, not done");
    for (int i = 0; i < (int)test_amount(300); ++i) {
        turn t = turn_make(p, i % 4 < 2 ? ACCEPT : (int)random_below(&r, ACTIONS), ROWS, STRIDE);
        slots_shuffle(p->host.slot, SLOTS, ROWS, &r);
        for (int j = 0; j < ROWS * STRIDE; ++j) p->host.token[j] = (int32_t)random_below(&r, t.action == FORK ? SLOTS : 900);
        for (int j = 0; j < ROWS; ++j) p->host.count[j] = (int32_t)random_below(&r, STRIDE + 1);
        if (i % 3 == 2) turn_spoil(p, &t, &r);
        turn_send(p, &t);
        CUDA(cudaGraphLaunch(exec[t.action], p->stream));
        turn_run_cpu(p, &t);
        turn_check_flags(p, &t, "a replay");
        pool_check(p, "a replay");
    }
    for (int action = 0; action < ACTIONS; ++action) CUDA(cudaGraphExecDestroy(exec[action]));
    pool_free(p);
}

/* Two streams change slots of one pool: each its own, neighbours of the other's. */
TEST(two_streams) {
    NEED_GPU();
    enum { SLOTS = 64, HALF = SLOTS / 2, CALLS = 100 };
    test_random r = {13};
    cudaStream_t stream[2];
    pool *p = pool_make(SLOTS, CALLS, 5000, CALLS * SLOTS);
    for (int i = 0; i < CALLS * SLOTS; ++i) p->host.token[i] = id_pick(p, &r);
    for (int i = 0; i < SLOTS; ++i) p->host.slot[i] = i % HALF * 2 + i / HALF;
    CUDA(cudaMemcpy(p->there.token, p->host.token, CALLS * SLOTS * 4, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(p->there.slot, p->host.slot, SLOTS * 4, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    for (int side = 0; side < 2; ++side) CUDA(cudaStreamCreateWithFlags(&stream[side], cudaStreamNonBlocking));
    for (int i = 0; i < CALLS; ++i) {
        for (int side = 0; side < 2; ++side) {
            raffle_tokens t = raffle_tokens_init();
            t.rows = HALF;
            t.slot = p->there.slot + side * HALF;
            t.token = p->there.token + i * SLOTS + side * HALF;
            t.stream = stream[side];
            MUST(raffle_state_accept(&p->gpu, &t, &must_error));
        }
        raffle_tokens t = raffle_tokens_init();
        t.rows = SLOTS;
        t.slot = p->host.slot;
        t.token = p->host.token + i * SLOTS;
        MUST(raffle_state_accept(&p->cpu, &t, &must_error));
    }
    for (int side = 0; side < 2; ++side) {
        CUDA(cudaStreamSynchronize(stream[side]));
        CUDA(cudaStreamDestroy(stream[side]));
    }
    pool_check(p, "two streams");
    pool_free(p);
}

/* ---- what the host refuses ---- */

static void refused(const pool *p, int action, const raffle_state *s, raffle_tokens t, raffle_status status, const char *field) {
    raffle_error error = raffle_error_init();
    t.stream = p->stream;
    CHECK_STATUS(slots_call(action, s, &t, &error), status);
    CHECK(error.row == -1 && strstr(error.text, field), "action %d, row %lld: \"%s\" should name %s", action, (long long)error.row,
          error.text, field);
}

TEST(the_host_refuses) {
    NEED_GPU();
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    pool *p = pool_make(5, 30, 100, 5 * 30);
    turn t = turn_make(p, PROMPT, 5, 10);
    turn_take(p, &t, "prompts");
    for (int action = PROMPT; action < ACTIONS; ++action) {
        const int lists = action == PROMPT || action == ACCEPT || action == FORK;
        const raffle_tokens good = turn_tokens(&t, &p->there);
        raffle_tokens bad = good;
        raffle_state s = p->gpu;
        bad.rows = 6, refused(p, action, &p->gpu, bad, RAFFLE_E_ARGUMENT, "rows"), bad = good;
        bad.rows = -1, refused(p, action, &p->gpu, bad, RAFFLE_E_ARGUMENT, "rows"), bad = good;
        bad.stride = -1, refused(p, action, &p->gpu, bad, RAFFLE_E_ARGUMENT, "stride"), bad = good;
        bad.reserved = 1, refused(p, action, &p->gpu, bad, RAFFLE_E_STRUCT, "reserved"), bad = good;
        bad.size = 20, refused(p, action, &p->gpu, bad, RAFFLE_E_STRUCT, "raffle_tokens"), bad = good;
        bad.token = NULL;
        if (lists) refused(p, action, &p->gpu, bad, RAFFLE_E_ARGUMENT, "token");
        bad = good, bad.count = NULL;
        if (action == TRUNCATE) refused(p, action, &p->gpu, bad, RAFFLE_E_ARGUMENT, "count");
        s.device = devices, refused(p, action, &s, good, RAFFLE_E_ARGUMENT, "state.device"), s = p->gpu;
        s.device = -1, refused(p, action, &s, good, RAFFLE_E_ARGUMENT, "state.device"), s = p->gpu;
        s.memory = NULL, refused(p, action, &s, good, RAFFLE_E_ARGUMENT, "memory"), s = p->gpu;
        s.memory = (char *)s.memory + 32, refused(p, action, &s, good, RAFFLE_E_ARGUMENT, "memory");
        bad = good, bad.rows = 0, bad.stream = p->stream;
        CHECK_STATUS(slots_call(action, &p->gpu, &bad, NULL), RAFFLE_OK);
    }
    raffle_state s = p->gpu;
    raffle_error error = raffle_error_init();
    s.device = devices;
    CHECK_STATUS(raffle_state_clear(&s, p->stream, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, "state.device"), "\"%s\"", error.text);
    CHECK(cudaGetLastError() == cudaSuccess, "the error is still there for the next call");
    pool_check(p, "refused");
    pool_free(p);
}

/* A plan takes no slots of another GPU. */
TEST(slots_of_another_gpu) {
    NEED_GPU();
    pool *p = pool_make(2, 10, 100, 20);
    raffle_plan *plan;
    raffle_plan_desc desc = raffle_plan_desc_init();
    desc.backend = RAFFLE_CUDA;
    desc.vocab = 100;
    desc.rows_max = 1;
    MUST(raffle_plan_create(&desc, &plan, &must_error));
    raffle_state other = p->gpu;
    other.device = 1;
    raffle_logits logits = raffle_logits_init();
    raffle_params params = raffle_params_init();
    raffle_result result = raffle_result_init();
    raffle_launch launch = raffle_launch_init();
    raffle_error error = raffle_error_init();
    logits.data = result.token = p->there.token; /* no call gets so far as to use them */
    logits.rows = 1;
    params.seed = params.position = (const uint64_t *)p->gpu.memory;
    params.state = &other;
    launch.workspace_bytes = raffle_plan_workspace(plan);
    launch.workspace = gpu_alloc(launch.workspace_bytes);
    CHECK_STATUS(raffle_sample(plan, &logits, &params, &result, &launch, &error), RAFFLE_E_ARGUMENT);
    CHECK(strstr(error.text, "state.device"), "\"%s\"", error.text);
    CUDA(cudaFree(launch.workspace));
    raffle_plan_destroy(plan);
    pool_free(p);
}

/* ---- more than 4 GB ---- */

TEST(slots_beyond_4_gb) {
    NEED_GPU();
    if (gpu_quick()) SKIP("too much memory for a sanitizer or an emulator");
    enum { SLOTS = 2000 };
    pool *p = pool_make(1, 131072, 128256, 3000);
    raffle_state s = p->gpu;
    s.slots = SLOTS;
    s.memory = NULL;
    if (cudaMalloc(&s.memory, raffle_state_bytes(&s)) != cudaSuccess) {
        cudaGetLastError();
        pool_free(p);
        SKIP("not enough memory on this GPU");
    }
    const turn t = turn_make(p, PROMPT, 1, 3000);
    turn_run_cpu(p, &t);
    p->host.slot[0] = SLOTS - 1;
    turn_send(p, &t);
    raffle_tokens tokens = turn_tokens(&t, &p->there);
    tokens.stream = p->stream;
    MUST(raffle_state_clear(&s, p->stream, &must_error));
    MUST(raffle_state_prompt(&s, &tokens, &must_error));
    CUDA(cudaStreamSynchronize(p->stream));
    CUDA(cudaMemcpy(p->fetched, (char *)s.memory + (SLOTS - 1) * p->slot_bytes, p->slot_bytes, cudaMemcpyDeviceToHost));
    pool_check_slot(p, p->fetched, 0, "the last slot");
    CUDA(cudaFree(s.memory));
    pool_free(p);
}

int main(void) {
    gpu_start("cuda_state", 300);
    RUN(one_slot_one_token);
    RUN(few_tokens);
    RUN(many_tokens);
    RUN(longer_histories);
    RUN(more_tokens_than_entries);
    RUN(full);
    RUN(forks);
    RUN(long_histories);
    RUN(thousands_of_slots);
    RUN(never_cleared);
    RUN(requests_move);
    RUN(replays_follow_memory);
    RUN(two_streams);
    RUN(the_host_refuses);
    RUN(slots_of_another_gpu);
    RUN(slots_beyond_4_gb);
    return test_report("cuda_state");
}
