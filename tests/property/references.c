/* references.c - each edit and filter of a raffle_extra alone, against a plain reference written from its paper or from
 * the engine that made it known, in long double and without a thought of tickets. A row that comes nearer than 1e-6 to
 * the border of a decision is made anew: nothing is tolerated. */
#include <math.h>

#include "../common/batch.h"

enum { VOCAB_MAX = 400, HISTORY = 60, HISTORY_ROOM = 260 };
#define MARGIN 1e-6L

/* One row and its request. */
typedef struct row {
    int64_t vocab;
    float x[VOCAB_MAX], temperature, top_p, min_p;
    int32_t top_k;
    raffle_extra extra;
    int32_t said[HISTORY_ROOM], length, prompt;
    uint64_t position;
} row;

/* What the reference says of it. */
typedef struct right {
    long double x[VOCAB_MAX]; /* edited logits, -inf where a token is out */
    long double p[VOCAB_MAX]; /* softmax of the row at its temperature */
    int kept[VOCAB_MAX];
    long double margin; /* of the closest decision */
} right;

static void row_make(row *r, test_random *random) {
    int64_t steps = random_below(random, 3); /* a third of the rows has ties */
    memset(r, 0, sizeof *r);
    r->vocab = 20 + random_below(random, VOCAB_MAX - 20);
    r->temperature = (float)(0.5 + 1.5 * random_unit(random));
    r->top_p = 1.0f;
    r->position = random_bits(random);
    vector_row_make("normal", random_bits(random) >> 40, r->vocab, RAFFLE_F32, r->x);
    for (int64_t i = 0; i < r->vocab && !steps; ++i) r->x[i] = rintf(r->x[i] * 4) / 4;
    int64_t few = 2 + random_below(random, 12); /* histories of few tokens repeat themselves */
    r->length = (int32_t)random_below(random, HISTORY + 1);
    r->prompt = (int32_t)random_below(random, r->length + 1);
    for (int i = 0; i < r->length; ++i) r->said[i] = (int32_t)random_below(random, few);
}

/* The row as it is, nothing cut. */
static void right_start(const row *r, right *a) {
    long double best = -INFINITY, sum = 0;
    a->margin = INFINITY;
    for (int64_t i = 0; i < r->vocab; ++i) a->x[i] = (long double)r->x[i];
    for (int64_t i = 0; i < r->vocab; ++i) best = a->x[i] > best ? a->x[i] : best;
    for (int64_t i = 0; i < r->vocab; ++i) sum += a->p[i] = expl((a->x[i] - best) / (long double)r->temperature);
    for (int64_t i = 0; i < r->vocab; ++i) a->p[i] /= sum, a->kept[i] = 1;
}

static void decide(right *a, long double distance) {
    if (fabsl(distance) < a->margin) a->margin = fabsl(distance);
}

/* Ids by descending probability, ties by id. */
static void ranked(const row *r, const right *a, int32_t *order) {
    for (int32_t n = 0; n < r->vocab; ++n) {
        int32_t at = n;
        for (; at > 0 && a->p[order[at - 1]] < a->p[n]; --at) order[at] = order[at - 1];
        order[at] = n;
    }
}

static long double entropy_of(const row *r, const right *a) {
    long double sum = 0;
    for (int64_t i = 0; i < r->vocab; ++i) sum -= a->p[i] > 0 ? a->p[i] * logl(a->p[i]) : 0;
    return sum;
}

/* ---- the library's answer ----------------------------------------------------------------------------- */

typedef struct library {
    float x[VOCAB_MAX], p[VOCAB_MAX];
    int kept[VOCAB_MAX];
} library;

static void library_ask(const row *r, raffle_isa isa, library *told) {
    runner run = runner_make_for(RAFFLE_F32, r->vocab, isa, RAFFLE_PLAN_EXTRA, HISTORY_ROOM);
    raffle_state state = raffle_state_init();
    raffle_tokens tokens = raffle_tokens_init();
    const uint64_t seed = 11;
    raffle_params params = raffle_params_init();
    raffle_logits logits = raffle_logits_init();
    raffle_output output = raffle_output_init();
    raffle_explanation explained = raffle_explanation_init();
    raffle_candidate top[VOCAB_MAX];
    uint32_t bits[(VOCAB_MAX + 31) / 32];
    state.slots = 1, state.history_max = HISTORY_ROOM, state.vocab = r->vocab;
    state.memory = test_alloc(raffle_state_bytes(&state));
    CHECK_STATUS(raffle_state_clear(&state, NULL, NULL), RAFFLE_OK);
    const int32_t count[2] = {r->prompt, r->length - r->prompt};
    tokens.rows = 1, tokens.stride = HISTORY_ROOM;
    tokens.token = r->said, tokens.count = &count[0];
    CHECK_STATUS(raffle_state_prompt(&state, &tokens, NULL), RAFFLE_OK);
    tokens.token = r->said + r->prompt, tokens.count = &count[1];
    CHECK_STATUS(raffle_state_accept(&state, &tokens, NULL), RAFFLE_OK);
    params.temperature = &r->temperature, params.top_p = &r->top_p, params.seed = &seed, params.position = &r->position;
    params.min_p = &r->min_p, params.top_k = &r->top_k;
    params.extra = &r->extra, params.extra_bytes = sizeof r->extra, params.state = &state;
    logits.data = r->x, logits.rows = 1;
    output.data = told->p, output.kept = bits;
    explained.top = top, explained.top_count = r->vocab;
    CHECK_STATUS(raffle_softmax(run.plan, &logits, &params, &output, &run.launch, NULL), RAFFLE_OK);
    CHECK_STATUS(raffle_explain(run.plan, &logits, &params, 0, &explained, &run.launch, NULL), RAFFLE_OK);
    for (int64_t i = 0; i < r->vocab; ++i) told->kept[i] = bits[i / 32] >> i % 32 & 1;
    for (int64_t i = 0; i < explained.top_count; ++i) told->x[top[i].token] = top[i].logit;
    for (int64_t i = 0; i < explained.top_count; ++i)
        CHECK(told->kept[top[i].token] == (top[i].fate == RAFFLE_KEPT), "explain: token %d", top[i].token);
    free(state.memory);
    runner_free(run);
}

/* The same set, and its probabilities within 2e-7 (1 + |log2 p|), on every instruction set. */
static void check_kept(const char *name, const row *r, const right *a) {
    library told;
    for (int isa = 0; isa < ISA_COUNT; ++isa) {
        if (!raffle_isa_available(every_isa[isa])) continue;
        library_ask(r, every_isa[isa], &told);
        long double sum = 0;
        int different = 0, off = 0;
        for (int64_t i = 0; i < r->vocab; ++i) sum += a->kept[i] ? a->p[i] : 0;
        for (int64_t i = 0; i < r->vocab; ++i) {
            const long double p = a->kept[i] ? a->p[i] / sum : 0;
            different += told.kept[i] != a->kept[i];
            off += fabsl((long double)told.p[i] - p) > 2e-7L * p * (1 + fabsl(log2l(p > 0 ? p : 1)));
        }
        CHECK(!different && !off, "%s, %s: %d of %lld tokens have another fate, %d another probability", name,
              raffle_isa_name(every_isa[isa]), different, (long long)r->vocab, off);
    }
}

/* Rows until `count` of them are clear, through a filter's reference. Some must be cut, and not to one token. */
static void filter_rows(const char *name, uint64_t seed, int64_t count, void (*ask)(row *, test_random *, right *)) {
    test_random random = {seed};
    row r;
    right a;
    int64_t several = 0;
    for (int64_t n = 0; n < count;) {
        row_make(&r, &random);
        right_start(&r, &a);
        ask(&r, &random, &a);
        if (a.margin < MARGIN) continue;
        int64_t kept = 0;
        for (int64_t i = 0; i < r.vocab; ++i) kept += a.kept[i];
        several += kept > 1 && kept < r.vocab;
        check_kept(name, &r, &a);
        ++n;
    }
    CHECK(several > count / 3, "%s: only %lld rows of %lld are cut to several tokens", name, (long long)several,
          (long long)count);
}

/* ---- filters --------------------------------------------------------------------------------------------- */

/* Hugging Face: what is less likely than `bound` goes, but for the likeliest `least` and their ties. */
static void cut_below(const row *r, right *a, long double bound, int32_t least) {
    int32_t order[VOCAB_MAX];
    ranked(r, a, order);
    for (int64_t i = 0; i < r->vocab; ++i) {
        const int floor = a->p[i] >= a->p[order[least - 1]];
        if (!floor && a->p[i] > 0) decide(a, a->p[i] / bound - 1);
        a->kept[i] = a->p[i] > 0 && (floor || a->p[i] >= bound);
    }
}

/* Hewitt et al. 2022. */
static void epsilon(row *r, test_random *random, right *a) {
    r->extra.epsilon = (float)exp(-2 - 6 * random_unit(random));
    cut_below(r, a, (long double)r->extra.epsilon, 1);
}

static void eta(row *r, test_random *random, right *a) {
    r->extra.eta = (float)exp(-1 - 6 * random_unit(random));
    const long double e = (long double)r->extra.eta, other = sqrtl(e) * expl(-entropy_of(r, a));
    cut_below(r, a, e < other ? e : other, 1);
}

/* Tang et al. 2024, and llama.cpp: the deviation is that of all logits. */
static void sigma(row *r, test_random *random, right *a) {
    long double mean = 0, square = 0, best = -INFINITY;
    r->extra.top_n_sigma = (float)(0.3 + 3 * random_unit(random));
    for (int64_t i = 0; i < r->vocab; ++i) mean += a->x[i] / (long double)r->vocab;
    for (int64_t i = 0; i < r->vocab; ++i) square += (a->x[i] - mean) * (a->x[i] - mean) / (long double)r->vocab;
    for (int64_t i = 0; i < r->vocab; ++i) best = a->x[i] > best ? a->x[i] : best;
    const long double least = best - (long double)r->extra.top_n_sigma * sqrtl(square);
    for (int64_t i = 0; i < r->vocab; ++i) {
        decide(a, a->x[i] - least);
        a->kept[i] = a->x[i] >= least;
    }
}

/* Meister et al. 2022: by |-log p - entropy|, until the mass is reached; ties with the last stay. */
static void cut_typical(const row *r, right *a, long double mass, int32_t least) {
    const long double entropy = entropy_of(r, a);
    int32_t order[VOCAB_MAX];
    long double far[VOCAB_MAX], sum = 0, last = -1;
    int32_t left = 0;
    for (int32_t i = 0; i < r->vocab; ++i) {
        if (!(a->p[i] > 0)) continue;
        int32_t at = left++;
        far[i] = fabsl(-logl(a->p[i]) - entropy);
        for (; at > 0 && far[order[at - 1]] > far[i]; --at) order[at] = order[at - 1];
        order[at] = i;
    }
    for (int32_t n = 0; n < left; ++n) {
        const int32_t id = order[n];
        const int tie = n && a->x[id] == a->x[order[n - 1]];
        a->kept[id] = tie ? a->kept[order[n - 1]] : sum < mass || n < least;
        if (!tie && n >= least) decide(a, sum - mass);
        if (a->kept[id])
            last = far[id];
        else if (!tie)
            decide(a, far[id] - last);
        sum += a->p[id];
    }
}

static void typical(row *r, test_random *random, right *a) {
    r->extra.typical_p = (float)(0.05 + 0.9 * random_unit(random));
    cut_typical(r, a, (long double)r->extra.typical_p, 1);
}

/* llama.cpp: of the tokens at or above the threshold, only the least likely stays; with it, its ties. */
static void xtc(row *r, test_random *random, right *a) {
    long double last = 2;
    int likely = 0;
    r->extra.xtc_probability = 1.0f;
    r->extra.xtc_threshold = (float)(0.005 + 0.2 * random_unit(random));
    for (int64_t i = 0; i < r->vocab; ++i) {
        decide(a, a->p[i] / (long double)r->extra.xtc_threshold - 1);
        if (a->p[i] >= (long double)r->extra.xtc_threshold && ++likely) last = a->p[i] < last ? a->p[i] : last;
    }
    for (int64_t i = 0; i < r->vocab && likely > 1; ++i) a->kept[i] = a->p[i] <= last;
}

/* min_tokens_to_keep, as Hugging Face's epsilon, typical-p and top-p understand it. */
static void keep_least(row *r, test_random *random, right *a) {
    const int32_t least = r->extra.keep_least = 2 + (int32_t)random_below(random, 6);
    const int64_t what = random_below(random, 3);
    if (what == 0) {
        r->extra.epsilon = (float)exp(-1 - 4 * random_unit(random));
        cut_below(r, a, (long double)r->extra.epsilon, least);
    } else if (what == 1) {
        r->extra.typical_p = (float)(0.02 + 0.5 * random_unit(random));
        cut_typical(r, a, (long double)r->extra.typical_p, least);
    } else {
        int32_t order[VOCAB_MAX];
        long double above = 0;
        ranked(r, a, order);
        r->top_p = (float)(0.02 + 0.9 * random_unit(random));
        for (int32_t n = 0; n < r->vocab; ++n) {
            const int tie = n && a->x[order[n]] == a->x[order[n - 1]];
            a->kept[order[n]] = tie ? a->kept[order[n - 1]] : above < (long double)r->top_p || n < least;
            if (!tie && n >= least) decide(a, above - (long double)r->top_p);
            above += a->p[order[n]];
        }
    }
}

/* What is left, by itself: tokens that are out have no probability, the others share 1. */
static void renormalise(const row *r, right *a) {
    long double sum = 0;
    for (int64_t i = 0; i < r->vocab; ++i) sum += a->p[i] = a->kept[i] ? a->p[i] : 0;
    for (int64_t i = 0; i < r->vocab; ++i) a->p[i] /= sum;
}

/* top-k with its ties, then top-p, then min-p, of what is left each. */
static void cut_common(row *r, test_random *random, right *a) {
    int32_t order[VOCAB_MAX];
    ranked(r, a, order);
    if (random_below(random, 2)) {
        r->top_k = 2 + (int32_t)random_below(random, r->vocab - 2);
        for (int64_t i = 0; i < r->vocab; ++i) a->kept[i] = a->p[i] >= a->p[order[r->top_k - 1]];
        renormalise(r, a);
    }
    if (random_below(random, 2)) {
        long double above = 0;
        r->top_p = (float)(0.3 + 0.69 * random_unit(random));
        for (int32_t n = 0; n < r->vocab && a->p[order[n]] > 0; ++n) {
            const int tie = n && a->x[order[n]] == a->x[order[n - 1]];
            a->kept[order[n]] = tie ? a->kept[order[n - 1]] : above < (long double)r->top_p;
            if (!tie) decide(a, above - (long double)r->top_p);
            above += a->p[order[n]];
        }
        renormalise(r, a);
    }
    if (random_below(random, 2)) {
        r->min_p = (float)exp(-1 - 6 * random_unit(random));
        for (int64_t i = 0; i < r->vocab; ++i) {
            decide(a, a->p[i] / a->p[order[0]] - (long double)r->min_p);
            a->kept[i] = a->p[i] >= (long double)r->min_p * a->p[order[0]];
        }
        renormalise(r, a);
    }
}

/* Hugging Face's chain (generation/utils.py, _get_logits_processor): temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff,
 * eta_cutoff; each sees -inf where one before it has cut, and takes the softmax anew. */
static void hugging_face(row *r, test_random *random, right *a) {
    const int32_t least = r->extra.keep_least = random_below(random, 3) ? 1 : 2 + (int32_t)random_below(random, 5);
    r->extra.flags = RAFFLE_MIN_P_LAST | RAFFLE_SHAPE_LAST;
    if (least == 1) cut_common(r, random, a);
    if (random_below(random, 3)) {
        r->extra.typical_p = (float)(0.1 + 0.85 * random_unit(random));
        cut_typical(r, a, (long double)r->extra.typical_p, least);
        renormalise(r, a);
    }
    if (random_below(random, 2)) {
        r->extra.epsilon = (float)exp(-1.5 - 5 * random_unit(random));
        cut_below(r, a, (long double)r->extra.epsilon, least);
        renormalise(r, a);
    }
    if (random_below(random, 2)) {
        r->extra.eta = (float)exp(-0.5 - 5 * random_unit(random));
        const long double e = (long double)r->extra.eta, other = sqrtl(e) * expl(-entropy_of(r, a));
        cut_below(r, a, e < other ? e : other, least);
        renormalise(r, a);
    }
}

TEST(epsilon) { filter_rows("epsilon", 1, test_amount(200), epsilon); }
TEST(eta) { filter_rows("eta", 2, test_amount(200), eta); }
TEST(top_n_sigma) { filter_rows("top-n-sigma", 3, test_amount(200), sigma); }
TEST(typical_p) { filter_rows("typical-p", 4, test_amount(200), typical); }
TEST(xtc) { filter_rows("XTC", 5, test_amount(200), xtc); }
TEST(min_tokens_to_keep) { filter_rows("min_tokens_to_keep", 6, test_amount(200), keep_least); }
TEST(hugging_face) { filter_rows("Hugging Face's chain", 8, test_amount(1000), hugging_face); }

/* Its chance, over positions. */
TEST(xtc_chance) {
    test_random random = {7};
    row r;
    right a;
    library told;
    do {
        row_make(&r, &random);
        right_start(&r, &a);
        xtc(&r, &random, &a);
    } while (a.margin < MARGIN || a.kept[0]); /* token 0 is cut, if any is */
    for (float chance = 0.25f; chance < 1; chance += 0.25f) {
        const int64_t draws = test_amount(2000);
        int64_t cut = 0;
        r.extra.xtc_probability = chance;
        for (r.position = 0; r.position < (uint64_t)draws; ++r.position) {
            library_ask(&r, RAFFLE_ISA_BEST, &told);
            cut += !told.kept[0];
        }
        const double z = ((double)cut - (double)draws * (double)chance) /
                         sqrt((double)draws * (double)chance * (1 - (double)chance));
        CHECK(fabs(z) < 4, "XTC at %g cut %lld times of %lld", (double)chance, (long long)cut, (long long)draws);
    }
}

/* ---- edits -------------------------------------------------------------------------------------------- */

static int32_t list[8];
static float values[8];

static int32_t some_ids(test_random *random, const float *value) {
    for (int i = 0; i < 8; ++i) {
        list[i] = (int32_t)random_below(random, 14);
        values[i] = value ? (float)(random_unit(random) * 6 - 3) : 0;
    }
    return (int32_t)raffle_ids_sort(list, values, 8);
}

static int listed(int32_t count, int32_t id) {
    for (int32_t i = 0; i < count; ++i)
        if (list[i] == id) return 1;
    return 0;
}

/* Times that a token is in said[from .. to-1]. */
static int count_of(const row *r, int32_t id, int32_t from, int32_t to) {
    int count = 0;
    for (int32_t i = from; i < to; ++i) count += r->said[i] == id;
    return count;
}

/* OpenAI. */
static void bias(row *r, test_random *random, right *a) {
    r->extra.bias_count = some_ids(random, values);
    r->extra.bias_id = list, r->extra.bias = values;
    for (int32_t i = 0; i < r->extra.bias_count; ++i) a->x[list[i]] += (long double)values[i];
}

static void banned(row *r, test_random *random, right *a) {
    r->extra.banned_count = some_ids(random, NULL);
    r->extra.banned = list;
    for (int32_t i = 0; i < r->extra.banned_count; ++i) a->x[list[i]] = -INFINITY;
}

static void allowed(row *r, test_random *random, right *a) {
    r->extra.allowed_count = some_ids(random, NULL);
    r->extra.allowed = list;
    for (int32_t i = 0; i < r->vocab; ++i)
        if (!listed(r->extra.allowed_count, i)) a->x[i] = -INFINITY;
}

/* vLLM. */
static void min_tokens(row *r, test_random *random, right *a) {
    const int32_t generated = r->length - r->prompt;
    r->extra.stop_count = some_ids(random, NULL);
    r->extra.stop = list;
    r->extra.min_tokens = (int32_t)random_below(random, 2 * generated + 2);
    for (int32_t i = 0; i < r->extra.stop_count && generated < r->extra.min_tokens; ++i) a->x[list[i]] = -INFINITY;
}

/* Keskar et al. 2019, of prompt and output; SGLang: of the output; llama.cpp: of the last n tokens. */
static void repetition(row *r, test_random *random, right *a) {
    const int output = random_below(random, 3) == 0;
    const int32_t window = r->extra.penalty_window =
        random_below(random, 3) ? 0 : 1 + (int32_t)random_below(random, 20);
    const long double by = (long double)(r->extra.repetition = (float)(0.5 + 2 * random_unit(random)));
    int32_t from = window && r->length > window ? r->length - window : 0;
    if (output) r->extra.flags = RAFFLE_REPETITION_OUTPUT;
    if (output && from < r->prompt) from = r->prompt;
    for (int32_t i = 0; i < r->vocab; ++i)
        if (count_of(r, i, from, r->length)) a->x[i] = a->x[i] > 0 ? a->x[i] / by : a->x[i] * by;
}

/* OpenAI, vLLM; llama.cpp counts the prompt too. */
static void counted(row *r, test_random *random, right *a, int frequency, int presence) {
    const int all = random_below(random, 3) == 0;
    if (frequency) r->extra.frequency = (float)(random_unit(random) * 4 - 2);
    if (presence) r->extra.presence = (float)(random_unit(random) * 4 - 2);
    if (all) r->extra.flags = RAFFLE_COUNT_PROMPT;
    for (int32_t i = 0; i < r->vocab; ++i) {
        const int count = count_of(r, i, all ? 0 : r->prompt, r->length);
        a->x[i] -= count * (long double)r->extra.frequency;
        if (count) a->x[i] -= (long double)r->extra.presence;
    }
}
static void frequency(row *r, test_random *random, right *a) { counted(r, random, a, 1, 0); }
static void presence(row *r, test_random *random, right *a) { counted(r, random, a, 0, 1); }
static void both_counted(row *r, test_random *random, right *a) { counted(r, random, a, 1, 1); }

/* Hugging Face: every n-gram of the history, and what its first n - 1 tokens were followed by. */
static void no_repeat_ngram(row *r, test_random *random, right *a) {
    const int32_t n = r->extra.no_repeat_ngram = 1 + (int32_t)random_below(random, 4);
    for (int32_t first = 0; first + n <= r->length; ++first) {
        int same = 1;
        for (int32_t i = 0; i < n - 1; ++i) same &= r->said[first + i] == r->said[r->length - (n - 1) + i];
        if (same) a->x[r->said[first + n - 1]] = -INFINITY;
    }
}

/* Hugging Face: a single token is always banned, the last of a sequence after the others. vLLM (v1/sample/ops/bad_words.py) compares with
 * the output alone, and has no use for a sequence that is longer. */
static void cut_words(row *r, test_random *random, right *a, int32_t from) {
    static int32_t words[64];
    int32_t used = 0;
    for (int64_t word = 1 + random_below(random, 5); word > 0; --word) {
        const int32_t length = 1 + (int32_t)random_below(random, 4), at = used;
        int same = length - 1 <= r->length - from;
        for (int32_t i = 0; i < length; ++i) {
            const int copied = r->length >= length && random_below(random, 6); /* mostly what the history ends with */
            words[used++] = copied ? r->said[r->length - length + 1 + (i < length - 1 ? i : -1)]
                                   : (int32_t)random_below(random, 12);
        }
        for (int32_t i = 0; same && i < length - 1; ++i) same = words[at + i] == r->said[r->length - (length - 1) + i];
        if (same) a->x[words[used - 1]] = -INFINITY;
        words[used++] = -1;
    }
    r->extra.bad_words = words;
    r->extra.bad_words_count = used;
}
static void bad_words(row *r, test_random *random, right *a) { cut_words(r, random, a, 0); }

/* Often the output is shorter than a word. */
static void bad_words_output(row *r, test_random *random, right *a) {
    if (random_below(random, 2) && r->length > 3) r->prompt = r->length - (int32_t)random_below(random, 4);
    r->extra.flags = RAFFLE_BAD_WORDS_OUTPUT;
    cut_words(r, random, a, r->prompt);
}

/* The penalty as its author wrote it (text-generation-webui, pull request 5677), but for lengths above 64, which count as 64. */
static void dry_right(const row *r, right *a) {
    int longest[VOCAB_MAX] = {0};
    const int32_t range = r->extra.dry_range, first = range && r->length > range ? r->length - range : 0, n = r->length - first;
    const int32_t *const ids = r->said + first;
    if (!n || listed(r->extra.breaker_count, ids[n - 1])) return;
    for (int32_t i = 0; i < n - 1; ++i) {
        int match = 1;
        if (ids[i] != ids[n - 1] || listed(r->extra.breaker_count, ids[i + 1])) continue;
        while (i - match >= 0 && ids[i - match] == ids[n - 1 - match] &&
               !listed(r->extra.breaker_count, ids[i - match]))
            ++match;
        if (match > 64) match = 64;
        if (match > longest[ids[i + 1]]) longest[ids[i + 1]] = match;
    }
    for (int64_t id = 0; id < r->vocab; ++id)
        if (longest[id] >= r->extra.dry_allowed)
            a->x[id] -= (long double)r->extra.dry_multiplier *
                        powl((long double)r->extra.dry_base, longest[id] - r->extra.dry_allowed);
}

static void dry(row *r, test_random *random, right *a) {
    r->extra.dry_range = random_below(random, 2) ? 0 : 1 + (int32_t)random_below(random, 30);
    r->extra.dry_multiplier = (float)(0.1 + 2 * random_unit(random));
    r->extra.dry_base = (float)(1 + random_unit(random));
    r->extra.dry_allowed = 1 + (int32_t)random_below(random, 3);
    r->extra.breaker_count = random_below(random, 2) ? some_ids(random, NULL) % 3 : 0;
    r->extra.breaker = list;
    dry_right(r, a);
}

/* Repetitions of about 64 tokens and of many more, with bases that still tell one length from the next. */
static void dry_long(row *r, test_random *random, right *a) {
    const int32_t before = (int32_t)random_below(random, 20), period = 1 + (int32_t)random_below(random, 60);
    const int32_t repeated = random_below(random, 2) ? 58 + (int32_t)random_below(random, 12) : (int32_t)random_below(random, 180);
    r->length = before + period + repeated;
    r->prompt = (int32_t)random_below(random, r->length + 1);
    for (int32_t i = 0; i < r->length; ++i)
        r->said[i] = i < before + period ? (int32_t)random_below(random, 14) : r->said[i - period];
    r->extra.dry_range = random_below(random, 2) ? 0 : 50 + (int32_t)random_below(random, 200);
    r->extra.dry_multiplier = (float)(0.1 + 2 * random_unit(random));
    r->extra.dry_base = (float)(1.01 + 0.04 * random_unit(random));
    r->extra.dry_allowed = 1 + (int32_t)random_below(random, 80);
    r->extra.breaker_count = random_below(random, 4) ? 0 : some_ids(random, NULL) % 2;
    r->extra.breaker = list;
    dry_right(r, a);
}

/* The edited logits within their roundings to f32, and -inf exactly where a token is out. */
static void edit_rows(const char *name, uint64_t seed, void (*ask)(row *, test_random *, right *)) {
    test_random random = {seed};
    row r;
    right a;
    library told;
    int64_t edited = 0, rows = test_amount(200);
    for (int64_t n = 0; n < rows; ++n) {
        int wrong = 0, changed = 0;
        row_make(&r, &random);
        right_start(&r, &a);
        ask(&r, &random, &a);
        library_ask(&r, RAFFLE_ISA_BEST, &told);
        for (int64_t i = 0; i < r.vocab; ++i) {
            const long double most = 0x1p-22L * (fabsl(a.x[i]) + fabsl((long double)r.x[i]) + 4);
            changed += a.x[i] != (long double)r.x[i];
            wrong += a.x[i] == -INFINITY ? told.x[i] != -INFINITY || told.kept[i]
                                         : fabsl((long double)told.x[i] - a.x[i]) > most;
        }
        edited += changed > 0;
        CHECK(!wrong, "%s: %d of %d edited tokens are wrong in a row of %lld", name, wrong, changed,
              (long long)r.vocab);
    }
    CHECK(edited > rows / 4, "%s: only %lld rows of %lld are edited", name, (long long)edited, (long long)rows);
}

TEST(logit_bias) { edit_rows("bias", 21, bias); }
TEST(banned_ids) { edit_rows("banned", 22, banned); }
TEST(allowed_ids) { edit_rows("allowed", 23, allowed); }
TEST(min_tokens) { edit_rows("min-tokens", 24, min_tokens); }
TEST(repetition_penalty) { edit_rows("repetition", 25, repetition); }
TEST(frequency_penalty) { edit_rows("frequency", 26, frequency); }
TEST(presence_penalty) { edit_rows("presence", 27, presence); }
TEST(frequency_and_presence) { edit_rows("frequency and presence", 28, both_counted); }
TEST(no_repeat_ngram) { edit_rows("no-repeat-ngram", 29, no_repeat_ngram); }
TEST(bad_words) { edit_rows("bad words", 30, bad_words); }
TEST(bad_words_of_the_output) { edit_rows("bad words of the output", 33, bad_words_output); }
TEST(dry) { edit_rows("DRY", 31, dry); }
TEST(dry_of_long_repetitions) { edit_rows("DRY, long", 32, dry_long); }

int main(void) {
    RUN(epsilon);
    RUN(eta);
    RUN(top_n_sigma);
    RUN(typical_p);
    RUN(xtc);
    RUN(xtc_chance);
    RUN(min_tokens_to_keep);
    RUN(hugging_face);
    RUN(logit_bias);
    RUN(banned_ids);
    RUN(allowed_ids);
    RUN(min_tokens);
    RUN(repetition_penalty);
    RUN(frequency_penalty);
    RUN(presence_penalty);
    RUN(frequency_and_presence);
    RUN(no_repeat_ngram);
    RUN(bad_words);
    RUN(bad_words_of_the_output);
    RUN(dry);
    RUN(dry_of_long_repetitions);
    return test_report("references");
}
