"""Penalties, biases, bans, further filters: against the formulas of docs/determinism.md, written with numpy."""
import math

import numpy as np
import pytest
import raffle

ROWS, VOCAB = 6, 300
F32 = np.float32


@pytest.fixture
def logits():
    return np.random.default_rng(8).normal(0, 3, (ROWS, VOCAB)).astype(F32)


@pytest.fixture
def texts():
    """Prompts and outputs of few different tokens, so that there are counts and repetitions."""
    rng = np.random.default_rng(9)
    return ([rng.integers(0, 12, n).tolist() for n in (0, 5, 9, 40, 3, 17)], [rng.integers(0, 9, n).tolist() for n in (4, 0, 8, 50, 1, 6)])


def banned(x, prompt, output, w, flags):
    history, out = prompt + output, set(w.get("banned_token_ids", ()))
    looked_at = output if flags & raffle.BAD_WORDS_OUTPUT else history
    if w.get("allowed_token_ids"):
        out |= set(range(len(x))) - set(w["allowed_token_ids"])
    if len(output) < w.get("min_tokens", 0):
        out |= set(w["stop_token_ids"])
    for word in w.get("bad_words_token_ids", ()):
        if len(word) == 1 or looked_at[-(len(word) - 1):] == word[:-1]:
            out.add(word[-1])
    n = w.get("no_repeat_ngram_size", 0)
    for i in range(len(history) - n + 1 if n else 0):
        if history[i:i + n - 1] == history[len(history) - n + 1:]:
            out.add(history[i + n - 1])
    return out


def dry(history, w):
    """Token -> what is taken from its logit."""
    multiplier, base, allowed = w.get("dry_multiplier", 0), float(F32(w.get("dry_base", 1.75))), w.get("dry_allowed_length", 2)
    h, breakers, longest = history[-w.get("dry_penalty_last_n", 0):], set(w.get("dry_sequence_breaker_ids", ())), {}
    for i in range(len(h) - 1):
        m = 0
        while m < 64 and m <= i and h[i - m] == h[-1 - m] and h[i - m] not in breakers:
            m += 1
        if h[i + 1] not in breakers:
            longest[h[i + 1]] = max(longest.get(h[i + 1], 0), m)
    return {t: F32(float(F32(multiplier)) * base ** (m - allowed)) for t, m in longest.items() if multiplier and m >= allowed}


def edited(row, prompt, output, w, flags=0):
    """The row after its edits, a token at a time."""
    x = row.astype(F32).copy()
    out = banned(x, prompt, output, w, flags)
    window = w.get("repeat_last_n", 0)
    first = len(prompt) + len(output) - window if window else 0
    inside, said = prompt[max(first, 0):], output[max(first - len(prompt), 0):]
    taken = dry(prompt + output, w)
    for t in range(len(x)):
        v = x[t]
        if t in w.get("logit_bias", {}):
            v = v + F32(w["logit_bias"][t])
        of_prompt, of_output = inside.count(t), said.count(t)
        r = F32(w.get("repetition_penalty", 1))
        if of_output or (of_prompt and not flags & raffle.REPETITION_OUTPUT):
            v = v / r if v > 0 else v * r
        count = of_output + (of_prompt if flags & raffle.COUNT_PROMPT else 0)
        if count:
            v = v - F32(count) * F32(w.get("frequency_penalty", 0))
            v = v - F32(w.get("presence_penalty", 0))
        if t in taken:
            v = v - taken[t]
        x[t] = -np.inf if t in out or np.isneginf(x[t]) else v
    return x


EDITS = [
    dict(logit_bias={3: 2.5, 7: -4.0, 299: -math.inf}),
    dict(allowed_token_ids=[5, 250, 3, 3, 8]),
    dict(banned_token_ids=np.array([1, 2, 299])),
    dict(stop_token_ids=[0, 4, 290], min_tokens=5),
    dict(bad_words_token_ids=[[7], [1, 2], [3, 4, 5]] + [[a, b] for a in range(9) for b in range(20, 30)]),
    dict(no_repeat_ngram_size=1), dict(no_repeat_ngram_size=3),
    dict(repetition_penalty=1.3), dict(frequency_penalty=0.7), dict(presence_penalty=1.1),
    dict(repetition_penalty=0.8, frequency_penalty=-0.3, presence_penalty=-1.5, repeat_last_n=6),
    dict(dry_multiplier=0.8), dict(dry_multiplier=1.7, dry_base=2.0, dry_allowed_length=1, dry_sequence_breaker_ids=[2, 6]),
    dict(dry_multiplier=1.7, dry_allowed_length=1, dry_penalty_last_n=10),
    dict(logit_bias={1: 3.0, 2: 3.0}, repetition_penalty=1.9, frequency_penalty=0.4, presence_penalty=0.2, dry_multiplier=0.5,
         no_repeat_ngram_size=4, banned_token_ids=[8], stop_token_ids=[5], min_tokens=7, allowed_token_ids=list(range(0, 300, 2)) + [1, 3]),
]


@pytest.mark.parametrize("flags", [0, raffle.REPETITION_OUTPUT | raffle.COUNT_PROMPT | raffle.BAD_WORDS_OUTPUT | raffle.TOP_P_JOINT])
@pytest.mark.parametrize("w", EDITS, ids=lambda w: "+".join(w))
def test_edits_are_those_of_the_page(logits, texts, w, flags):
    """Bits of the law and the tokens: those of rows that were edited by hand."""
    said = dict(prompt_token_ids=texts[0], output_token_ids=texts[1])
    by_hand = np.stack([edited(row, p, o, w, flags) for row, p, o in zip(logits, *texts)])
    assert (by_hand != logits).any()
    words = dict(temperature=0.7, top_p=0.95)
    plain = flags & raffle.TOP_P_JOINT
    wanted = raffle.softmax(by_hand, flags=plain, **words)
    assert raffle.softmax(logits, flags=flags, **words, **w, **said).tobytes() == wanted.tobytes()
    for position in range(5):
        drawn = raffle.sample(logits, flags=flags, seed=3, position=position, **words, **w, **said)
        assert drawn.tolist() == raffle.sample(by_hand, flags=plain, seed=3, position=position, **words).tolist()
    one = raffle.sample(logits[3], seed=6, prompt_token_ids=texts[0][3], output_token_ids=texts[1][3], flags=flags, **words, **w)
    assert int(one) == int(raffle.sample(by_hand[3], seed=6, flags=plain, **words))


def test_a_value_for_each_row(logits, texts):
    """Each row with its own values draws what it draws alone."""
    several = dict(logit_bias=[{1: 5.0}, None, {}, {2: -1}, {3: 1, 4: 2}, None],
                   allowed_token_ids=[None, list(range(50)), None, np.arange(9, 80), None, [7, 6]],
                   bad_words_token_ids=[None, [[3]], None, [[1, 2]], None, None],
                   repetition_penalty=np.linspace(0.8, 1.9, ROWS), frequency_penalty=[0, 0.5, None, 1, 2, -2], typical_p=[0.9] * ROWS,
                   no_repeat_ngram_size=[0, 1, 2, 3, 4, 5], prompt_token_ids=texts[0], output_token_ids=texts[1])
    whole, told = raffle.sample(logits, seed=list(range(ROWS)), logprobs=3, logprobs_mode="processed_logprobs", **several)
    for row in range(ROWS):
        alone, of_one = raffle.sample(logits[row], seed=row, logprobs=3, logprobs_mode="processed_logprobs",
                                      **{name: value[row] for name, value in several.items()})
        assert int(alone) == whole[row]
        for name in ("logprob", "rank", "entropy", "top_tokens", "top_logprobs"):
            assert np.asarray(getattr(of_one, name)).tobytes() == getattr(told, name)[row].tobytes(), name


def kept_by(logits, **w):
    """The kept ids of each row."""
    return [set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))) for row in raffle.kept(logits, **w)]


def probabilities(logits, temperature=1.0):
    x = logits.astype(float) / temperature
    p = np.exp(x - x.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_filters_are_those_of_the_page(logits, temperature):
    """Kept sets against float64; no probability of these rows lies on a border."""
    p = probabilities(logits, temperature)
    entropy = -(p * np.log(p)).sum(1)
    x = logits.astype(float)
    by_hand = {
        "top_n_sigma": (1.1, x >= x.max(1, keepdims=True) - 1.1 * x.std(1, keepdims=True)),
        "epsilon_cutoff": (0.004, p >= 0.004),
        "eta_cutoff": (0.02, p >= np.minimum(0.02, math.sqrt(0.02) * np.exp(-entropy))[:, None]),
    }
    for name, (value, wanted) in by_hand.items():
        assert kept_by(logits, temperature=temperature, **{name: value}) == [set(np.flatnonzero(row)) for row in wanted], name
    typical = []
    for row, h in zip(p, entropy):
        order = np.argsort(np.abs(-np.log(row) - h), kind="stable")
        typical.append(set(order[: int(np.searchsorted(np.cumsum(row[order]), 0.6)) + 1]))
    assert kept_by(logits, temperature=temperature, typical_p=0.6) == typical
    least = kept_by(logits, temperature=temperature, min_p=1.0, min_tokens_to_keep=7)
    assert least == [set(np.argsort(-row)[:7]) for row in x]


def test_xtc_keeps_the_least_of_the_likely(logits):
    p = probabilities(logits)
    wanted = []
    for row in p:
        likely = [t for t in range(VOCAB) if row[t] >= 0.05]
        least = min(likely, key=lambda t: row[t]) if likely else None
        wanted.append(set(range(VOCAB)) - {t for t in likely if t != least})
    assert any(len(w) < VOCAB - 1 for w in wanted)
    assert kept_by(logits, xtc_probability=1.0, xtc_threshold=0.05) == wanted
    assert kept_by(logits, xtc_probability=0.0, xtc_threshold=0.05) == [set(range(VOCAB))] * ROWS
    sometimes = [len(kept_by(logits[:1], xtc_probability=0.5, xtc_threshold=0.05, seed=1, position=n)[0]) < VOCAB for n in range(400)]
    assert 150 < sum(sometimes) < 250
    for n in range(20):  # sample draws from what kept says, position by position
        words = dict(xtc_probability=0.5, xtc_threshold=0.05, seed=1, position=n)
        assert int(raffle.sample(logits[:1], **words)[0]) in kept_by(logits[:1], **words)[0]


# ---- reports -------------------------------------------------------------------------------------------------

def test_report_is_what_softmax_writes(logits, texts):
    w = dict(logit_bias={5: 1.0}, repetition_penalty=1.4, prompt_token_ids=texts[0], output_token_ids=texts[1])
    ids = [0, 5, 299, -1, 300, 2**40]
    by_hand = np.stack([edited(row, p, o, w) for row, p, o in zip(logits, *texts)])
    laws = {"raw_logprobs": raffle.softmax(logits, log=True), "tempered_logprobs": raffle.softmax(by_hand, 0.7, log=True),
            "processed_logprobs": raffle.softmax(by_hand, 0.7, top_k=9, log=True)}
    for mode, law in laws.items():
        tokens, told = raffle.sample(logits, 0.7, top_k=9, seed=4, logprobs=12, logprob_token_ids=ids, logprobs_mode=mode, **w)
        x = logits if mode == "raw_logprobs" else by_hand
        for row, token in enumerate(tokens):
            assert told.logprob[row] == law[row, token]
            assert told.rank[row] == 1 + (x[row] > x[row, token]).sum()
            order = np.lexsort((np.arange(VOCAB), -law[row]))[:12]
            there = law[row, order] > -np.inf
            assert told.top_tokens[row].tolist() == np.where(there, order, -1).tolist()
            assert told.top_logprobs[row, there].tobytes() == law[row, order][there].tobytes()
            assert np.isnan(told.top_logprobs[row, ~there]).all() and there.sum() == (9 if mode == "processed_logprobs" else 12)
            assert told.given_logprobs[row, :3].tobytes() == law[row, [0, 5, 299]].tobytes()
            assert np.isnan(told.given_logprobs[row, 3:]).all() and told.given_ranks[row, 3:].tolist() == [0, 0, 0]
            p = np.exp(law[row].astype(float))
            assert abs(told.entropy[row] + (p[p > 0] * law[row][p > 0]).sum()) < 1e-5
        assert (tokens == raffle.sample(by_hand, 0.7, top_k=9, seed=4)).all()
    told = raffle.sample(logits, seed=1, logprobs=-1)[1]
    assert told.all_logprobs.tobytes() == laws["raw_logprobs"].tobytes() and told.top_tokens is None


def test_shapes_of_a_report(logits):
    tokens, flags, told = raffle.sample(logits, seed=1, logprobs=0, return_flags=True)
    assert flags.tolist() == [0] * ROWS and told.logprob.shape == told.rank.shape == (ROWS,) and told.top_tokens is None
    token, told = raffle.sample(logits[0], seed=1, logprobs=2, logprob_token_ids=[1, 2, 3])
    assert np.shape(token) == np.shape(told.logprob) == () and told.top_tokens.shape == (2,) and told.given_ranks.shape == (3,)
    several = np.arange(2 * ROWS).reshape(ROWS, 2)
    told = raffle.sample(logits, seed=1, logprob_token_ids=several)[1]
    law = raffle.softmax(logits, log=True)
    assert told.given_logprobs.tobytes() == np.take_along_axis(law, several, 1).tobytes()
    told = raffle.sample(logits, seed=1, index=[2, 2], logprobs=1)[1]
    assert told.top_tokens.tolist() == [[int(logits[2].argmax())]] * 2
    empty = raffle.sample(np.full((1, 8), -np.inf, F32), logprobs=1)[1]
    assert np.isnan(empty.logprob[0]) and empty.rank[0] == 0 and empty.top_tokens.tolist() == [[-1]]
    none = raffle.sample(np.zeros((0, 8), F32), logprobs=1, banned_token_ids=[1])[1]
    assert none.logprob.shape == (0,) and none.top_tokens.shape == (0, 1)


@pytest.mark.parametrize("mode", ["raw_logprobs", "tempered_logprobs", "processed_logprobs"])
def test_kept_sets_of_a_report(logits, mode):
    """What mask() leaves of the same rows, at every point; and numbers of tokens only if they are asked for."""
    for words in (dict(), dict(top_k=7), dict(temperature=0), dict(top_p=0.6, banned_token_ids=[3, 4]),
                  dict(xtc_probability=1.0, xtc_threshold=0.01, seed=5), dict(top_k=2, min_tokens_to_keep=6)):
        w = dict(seed=1, position=3)
        w.update(words)
        left = [np.flatnonzero(row > -np.inf) for row in raffle.mask(logits, **w)]
        told = raffle.sample(logits, kept=-1, logprobs_mode=mode, **w)[1]
        assert told.kept.tolist() == raffle.kept(logits, **w).tolist() and told.kept_list is told.logprob is told.entropy is None
        assert told.kept_count.tolist() == [len(ids) for ids in left]
        told = raffle.sample(logits, kept=5, logprobs=1, logprobs_mode=mode, threads=2, **w)[1]
        assert told.kept is None and told.kept_list.shape == (ROWS, 5) and told.top_tokens.shape == (ROWS, 1)
        assert told.kept_count.tolist() == [len(ids) for ids in left]
        assert all(row[: len(ids)].tolist() == ids[:5].tolist() for row, ids in zip(told.kept_list, left))
    assert raffle.sample(logits, seed=1, kept=0)[1].kept_count.tolist() == [VOCAB] * ROWS
    empty = raffle.sample(np.full((1, 40), -np.inf, F32), seed=1, kept=-1)[1]
    assert empty.kept.tolist() == [[0, 0]] and empty.kept_count.tolist() == [0]
    call = raffle.prepare(logits, top_k=4, seed=1, kept=9, advance=True)
    assert call()[1].kept_count.tolist() == [4] * ROWS


def test_half_precision_and_threads(logits):
    half = logits.astype(np.float16)
    w = dict(logit_bias={3: 0.1}, top_n_sigma=2.0, logprobs=4)
    wide, narrow = raffle.sample(half.astype(F32), seed=2, **w), raffle.sample(half, seed=2, threads=3, **w)
    assert (wide[0] == narrow[0]).all() and wide[1].top_logprobs.tobytes() == narrow[1].top_logprobs.tobytes()


def test_explain_knows_the_fates(logits):
    told = raffle.explain(logits, row=1, banned_token_ids=[1, 2], top_n_sigma=1.0, xtc_probability=1.0, xtc_threshold=0.01)
    assert told.fates["mask"] == 2 and told.fates["shape"] > 0 and told.fates["xtc"] > 0
    assert sum(told.fates.values()) == VOCAB


def test_prepared_calls_have_them_too(logits, texts):
    w = dict(repetition_penalty=1.5, output_token_ids=texts[1], banned_token_ids=[int(logits[0].argmax())])
    call = raffle.prepare(logits, seed=9, advance=True, **w)
    for position in range(3):
        assert call().tolist() == raffle.sample(logits, seed=9, position=position, **w).tolist()


def test_histories_up_to_the_limit(logits):
    """It is each row's own text that must fit, and all of the limit is there."""
    limit, words = 2**20, dict(temperature=0, presence_penalty=1)
    prompts, outputs = [[1] * (limit - 1), [1]], [[2], [2] * (limit - 1)]
    long = raffle.sample(logits[:2], prompt_token_ids=prompts, output_token_ids=outputs, **words)
    assert long.tolist() == raffle.sample(logits[:2], output_token_ids=[[2], [2]], **words).tolist()
    with pytest.raises(ValueError, match="history_max is 1048577: must be 1 to 1048576"):
        raffle.sample(logits[0], prompt_token_ids=prompts[0], output_token_ids=[2, 2], **words)


# ---- what is wrong --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("words, error, sentence", [
    (dict(repetition_penalty=0), ValueError, "repetition_penalty is 0: must be 1e-09 to 1e.09"),
    (dict(repetition_penalty=[1, 1, -1, 1, 1, 1]), ValueError, "repetition_penalty is -1"),
    (dict(repetition_penalty=[1, 2]), ValueError, "repetition_penalty has 2 entries: must be 6, one for each row"),
    (dict(repetition_penalty="much"), TypeError, "repetition_penalty is 'much': must be a number"),
    (dict(repetition_penalty=True), TypeError, "repetition_penalty is True: must be a number"),
    (dict(repetition_penalty=1.1), ValueError, "repetition_penalty of row 0 needs a history"),
    (dict(frequency_penalty=2.5), ValueError, "frequency_penalty is 2.5: must be -2 to 2"),
    (dict(min_tokens=1.5, stop_token_ids=[1]), ValueError, "min_tokens is 1.5: must be a whole number"),
    (dict(min_tokens=3), ValueError, "min_tokens is 3, but there are no stop ids"),
    (dict(typical_p=math.nan), ValueError, "typical_p is nan"),
    (dict(allowed_token_ids=[1, VOCAB]), ValueError, r"allowed_token_ids\[1\] of row 0 is 300: must be 0 to 299"),
    (dict(allowed_token_ids=[[1]] * 5 + [[-1]]), ValueError, r"allowed_token_ids\[0\] of row 5 is -1"),
    (dict(banned_token_ids=[2**40]), ValueError, "banned_token_ids is 1099511627776"),
    (dict(banned_token_ids=[[1], [2]]), ValueError, "banned_token_ids has 2 entries"),
    (dict(banned_token_ids=5), TypeError, "banned_token_ids must be a list"),
    (dict(banned_token_ids=[1.5]), TypeError, "banned_token_ids must be an integer"),
    (dict(logit_bias=[1, 2]), TypeError, "logit_bias has 2|logit_bias is"),
    (dict(logit_bias={1: math.inf}), ValueError, r"logit_bias\[0\] is inf|bias\[0\] of row 0 is inf"),
    (dict(logit_bias={1: "x"}), TypeError, "logit_bias must be a number"),
    (dict(bad_words_token_ids=[1, 2]), TypeError, "must be a list of lists of ids"),
    (dict(bad_words_token_ids=[[]]), ValueError, r"bad_words_token_ids\[0\] of row 0 ends an empty word"),
    (dict(output_token_ids=[1, 2, 3, 4, 5, 6]), ValueError, "output_token_ids must be a list of ids for each of 6 rows"),
    (dict(output_token_ids=[[1], [2]]), ValueError, "output_token_ids must be a list of ids for each of 6 rows"),
    (dict(output_token_ids=[[VOCAB]] * 6), ValueError, "300"),
    (dict(logprobs=1025), ValueError, "logprobs is 1025: must be -1 to 1024"),
    (dict(logprobs=True), TypeError, "logprobs is True"),
    (dict(kept=True), TypeError, "kept is True"),
    (dict(kept=-2), ValueError, "kept is -2: must be -1 for bits"),
    (dict(logprobs=1, logprobs_mode="raw"), ValueError, "logprobs_mode is 'raw': must be one of raw_logprobs"),
    (dict(logprob_token_ids=[[[1]]]), ValueError, "logprob_token_ids has 3 axes"),
    (dict(logprob_token_ids=[0.5]), TypeError, "logprob_token_ids has dtype float64"),
    (dict(logprob_token_ids=[[1], [2]]), ValueError, "logprob_token_ids has 2 rows: the logits have 6"),
    (dict(slot=[0] * 6, temperature=[1.0], banned_token_ids=[1]), ValueError, "a Sampler keeps it in slots"),
    (dict(repeat_penalty=1.1), TypeError, "no such parameter: repeat_penalty"),
])
def test_errors(logits, words, error, sentence):
    out = np.full(ROWS, 77, np.int32)
    with pytest.raises(error, match=sentence):
        raffle.sample(logits, out=out, **{"seed": 1, **words})
    assert (out == 77).all()


def test_logits_of_a_gpu():
    """The library refuses what a build, a machine or the CUDA backend lacks, with its sentence, before it reads anything."""

    class Far:
        __cuda_array_interface__ = dict(shape=(1, 8), typestr="<f4", data=(64, False), version=3)

    for words in (dict(), dict(banned_token_ids=[1]), dict(logprobs=1), dict(repetition_penalty=1.1, output_token_ids=[[1]])):
        with pytest.raises((ValueError, RuntimeError), match="CUDA|GPU|driver"):
            raffle.sample(Far(), seed=1, out=np.zeros(1, np.int32), **words)


def test_arrays_of_a_report_have_room():
    """raffle._core.sample is not for users, and yet: it does not write where an array has no room."""
    from raffle import _core

    def sample(rows, *arrays):
        numbers = np.zeros(rows, F32), np.zeros(rows, np.int32), np.zeros(rows, F32)
        _core.sample(np.zeros((rows, VOCAB), F32), (None, None, None, None, 1, 0), None, None, None, None, np.zeros(rows, np.int32), None,
                     None, 0, -1, 0, 1, None, (0, *numbers, *arrays, *[None] * (9 - len(arrays))), 0, 0)

    memory = np.full(2 * VOCAB, 7, F32)
    none, five = memory[:0].reshape(2, 0), np.zeros((2, 5), np.int32)
    for arrays in ((None, None, None, None, None, none), (none.view(np.int32), five.view(F32), None, None, None, None),
                   (five, none, None, None, None, None), (None, None, five, none, None, None),
                   (None, None, none.view(np.int32), none, five, None), (*[None] * 6, none.view(np.int32)), (*[None] * 6, five)):
        with pytest.raises(ValueError, match="must be contiguous, and as long as its neighbours"):
            sample(2, *arrays)
    assert (memory == 7).all()
    with pytest.raises(ValueError, match="as long as its neighbours"):
        sample(0, np.zeros((0, 2**32), np.int32), None, None, None, None, None)
    sample(2, None, None, none.view(np.int32), none, none.view(np.int32), None)
