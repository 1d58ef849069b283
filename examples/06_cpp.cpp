// 06_cpp.cpp - raffle from C++11: memory that frees itself, errors as exceptions.
#include <raffle/raffle.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

class Sampler {
  public:
    explicit Sampler(int64_t vocab, raffle_dtype dtype = RAFFLE_F32) : plan_(nullptr, raffle_plan_destroy) {
        raffle_plan_desc desc = raffle_plan_desc_init();
        desc.vocab = vocab;
        desc.dtype = dtype;
        raffle_plan *plan = nullptr;
        check(raffle_plan_create(&desc, &plan, &error_));
        plan_.reset(plan);
        workspace_.resize(raffle_plan_workspace(plan) + RAFFLE_WORKSPACE_ALIGN);
    }

    // Draws one token for each row of `data`; params.seed and params.position are the caller's.
    std::vector<int32_t> sample(const void *data, int64_t rows, const raffle_params &params) {
        std::vector<int32_t> token(static_cast<size_t>(rows));
        raffle_logits logits = raffle_logits_init();
        logits.data = data;
        logits.rows = rows;
        raffle_result result = raffle_result_init();
        result.token = token.data();
        raffle_launch launch = raffle_launch_init();
        void *aligned = workspace_.data();
        size_t room = workspace_.size();
        launch.workspace = std::align(RAFFLE_WORKSPACE_ALIGN, raffle_plan_workspace(plan_.get()), aligned, room);
        launch.workspace_bytes = room;
        check(raffle_sample(plan_.get(), &logits, &params, &result, &launch, &error_));
        return token;
    }

  private:
    void check(raffle_status status) {
        if (status != RAFFLE_OK) throw std::runtime_error(error_.text);
    }

    raffle_error error_ = raffle_error_init();
    std::unique_ptr<raffle_plan, void (*)(raffle_plan *)> plan_;
    std::vector<char> workspace_;
};

} // namespace

int main() {
    const std::vector<float> logits = {0.0f, 1.0f, 5.0f, 0.0f, /* row 1 */ 3.0f, 3.0f, 3.0f, -1.0f};
    const std::vector<uint64_t> seed = {1, 2};
    std::vector<uint64_t> position = {0, 0};
    const std::vector<int32_t> top_k = {1, 3};
    raffle_params params = raffle_params_init();
    params.seed = seed.data();
    params.position = position.data();
    params.top_k = top_k.data();

    Sampler sampler(4);
    int drawn[4] = {0, 0, 0, 0};
    for (; position[0] < 300; ++position[0], ++position[1]) {
        const std::vector<int32_t> token = sampler.sample(logits.data(), 2, params);
        if (token[0] != 2) return 1; // top-k 1 is greedy
        ++drawn[token[1]];
    }
    std::printf("three equal logits: %d %d %d, the fourth %d\n", drawn[0], drawn[1], drawn[2], drawn[3]);
    if (drawn[0] < 60 || drawn[1] < 60 || drawn[2] < 60 || drawn[3] != 0) return 1;

    try {
        Sampler impossible(0);
        return 1;
    } catch (const std::runtime_error &error) {
        std::printf("refused: %s\n", error.what());
    }
    return 0;
}
