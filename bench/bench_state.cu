/* bench_state.cu - raffle_state on a GPU: histories of up to 131072 tokens out of a vocabulary of 128256.
 *
 *   bench_state
 *
 * Medians over graph replays. The slots that a call touches are in the L2, as the call before has left them. */
#include "timing.cuh"

enum { SLOTS = 512, HISTORY = 131072, VOCAB = 128256, CALLS = 20 };

typedef raffle_status (*changing)(const raffle_state *, const raffle_tokens *, raffle_error *);

/* Tokens as a text has them, few of them often; or hardly one twice. */
static std::vector<int32_t> tokens_make(int64_t count, bool text) {
    std::vector<int32_t> made(count);
    uint64_t x = 1;
    for (int64_t i = 0; i < count; ++i) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        const double u = (double)(x >> 11) * 0x1p-53;
        made[i] = text ? (int32_t)(u * u * u * u * VOCAB) : (int32_t)(i * 7919 % VOCAB);
    }
    return made;
}

static void measure(const raffle_state &state, const char *name, changing call, int64_t rows, std::vector<int32_t> token, cudaStream_t stream) {
    raffle_error error = raffle_error_init();
    raffle_tokens t = raffle_tokens_init();
    const int64_t each = (int64_t)token.size() / rows;
    int32_t *tokens = to_device(token), *count = to_device(std::vector<int32_t>(rows, (int32_t)each));
    std::vector<uint32_t> flags(rows, 0);
    std::vector<int32_t> slot(rows);
    for (int64_t i = 0; i < rows; ++i) slot[i] = (int32_t)i;
    int32_t *slots = to_device(slot); /* an engine's rows have any slots, and whether one is there twice is looked at */
    t.rows = rows;
    t.slot = slots;
    t.token = tokens;
    t.count = count;
    t.stride = each;
    t.stream = stream;
    t.row_flags = to_device(flags);
    const double us = time_captured(stream, CALLS, [&](int) { must(call(&state, &t, &error), error); });
    CHECK(cudaMemcpy(flags.data(), t.row_flags, rows * 4, cudaMemcpyDeviceToHost));
    const bool refused = std::count(flags.begin(), flags.end(), 0u) != rows;
    printf("%-34s%6lld rows%10.1f us%s\n", name, (long long)rows, us, refused ? "   REFUSED" : "");
    for (void *q : {(void *)slots, (void *)tokens, (void *)count, (void *)t.row_flags}) CHECK(cudaFree(q));
}

int main(void) {
    char why[112];
    if (!raffle_cuda_available(why, sizeof why)) return printf("skipped: %s\n", why), 0;
    cudaDeviceProp device;
    cudaStream_t stream;
    CHECK(cudaGetDeviceProperties(&device, 0));
    CHECK(cudaStreamCreate(&stream));
    raffle_error error = raffle_error_init();
    raffle_state state = raffle_state_init();
    state.backend = RAFFLE_CUDA;
    state.slots = SLOTS;
    state.history_max = HISTORY;
    state.vocab = VOCAB;
    const size_t bytes = raffle_state_bytes(&state);
    CHECK(cudaMalloc(&state.memory, bytes));
    printf("%s; %d slots of %zu bytes; us per call\n", device.name, SLOTS, bytes / SLOTS);
    must(raffle_state_clear(&state, stream, &error), error);
    for (int64_t rows : {1, 128, 512}) {
        measure(state, "prompt of 200 tokens", raffle_state_prompt, rows, tokens_make(rows * 200, true), stream);
        measure(state, "accept 1 token", raffle_state_accept, rows, tokens_make(rows, true), stream);
        measure(state, "accept 4 tokens", raffle_state_accept, rows, tokens_make(rows * 4, true), stream);
        measure(state, "truncate 2 tokens", raffle_state_truncate, rows, tokens_make(rows * 2, true), stream);
        measure(state, "reset", raffle_state_reset, rows, tokens_make(rows, true), stream);
    }
    measure(state, "prompt of 2,000 tokens", raffle_state_prompt, 1, tokens_make(2000, true), stream);
    measure(state, "prompt of 131,072, hardly one twice", raffle_state_prompt, 1, tokens_make(HISTORY, false), stream);
    measure(state, "prompt of 131,072, a text", raffle_state_prompt, 1, tokens_make(HISTORY, true), stream);
    measure(state, "fork of it", raffle_state_fork, 1, std::vector<int32_t>(1, 1), stream);
    CHECK(cudaFree(state.memory));
    return 0;
}
