"""verify: drafts that stand, and the law of what is emitted. tests/stats has the fine-grained statistics."""
import numpy as np
import pytest
import raffle

VOCAB = 40


def rows(*shape, seed=0, scale=2.0):
    return np.random.default_rng(seed).normal(0, scale, (*shape, VOCAB)).astype(np.float32)


def test_greedy():
    target = rows(5, 4)
    drafts = target[:, :3].argmax(-1).astype(np.int32)
    drafts[1, 2] = (drafts[1, 2] + 1) % VOCAB
    drafts[2, 0] = (drafts[2, 0] + 1) % VOCAB
    drafts[3, 1] = -1
    done = raffle.verify(target, drafts, temperature=0)
    assert done.accepted.tolist() == [3, 2, 0, 1, 3]
    best = target.argmax(-1)
    for r, n in enumerate(done.accepted):
        assert done.tokens[r, : n + 1].tolist() == best[r, : n + 1].tolist()
        assert (done.tokens[r, n + 1 :] == -1).all() and done.last[r] == best[r, n]


def test_match_is_the_text_without_drafts():
    target = rows(6, 5)
    words = dict(temperature=0.9, top_p=0.95, seed=list(range(6)))
    wanted = np.stack([raffle.sample(target[:, i], position=10 + i, **words) for i in range(5)], axis=1)
    drafts = wanted[:, :4].copy()
    drafts[2, 1] = (drafts[2, 1] + 1) % VOCAB
    done = raffle.verify(target, drafts, position=10, method="match", **words)
    assert done.accepted.tolist() == [4, 4, 1, 4, 4, 4]
    for r, n in enumerate(done.accepted):
        assert done.tokens[r, : n + 1].tolist() == wanted[r, : n + 1].tolist()


@pytest.mark.parametrize("method", ["rejection", "block"])
def test_drafts_of_the_same_seed(method):
    """draft_step draws drafts of a request from its own seed; rows that are equal on both sides accept them all."""
    requests, each = 50, 3
    words = dict(temperature=0.9, top_k=20, seed=list(range(requests)), position=7)
    step = rows(each, requests, seed=3)  # what the draft model writes, step by step
    drafts, kept = np.empty((requests, each), np.int32), np.empty((requests, each, VOCAB), np.float32)
    for n in range(each):
        kept[:, n] = step[n]
        drafts[:, n] = raffle.sample(step[n], draft_step=n + 1, **words)
        assert (drafts[:, n] == raffle.sample(step[n], draft_step=n + 1, threads=3, **words)).all()
        assert (drafts[:, n] != raffle.sample(step[n], **words)).any()  # other bits than the token's
    assert (raffle.sample(step[0], draft_step=1, **words) != raffle.sample(step[0], draft_step=2, **words)).any()
    target = np.concatenate([kept, rows(requests, 1, seed=4)], axis=1)
    done = raffle.verify(target, drafts, method=method, draft_logits=kept, draft_params=dict(temperature=0.9, top_k=20), **words)
    assert (done.accepted == each).all() and (done.tokens[:, :each] == drafts).all()
    assert (done.last == raffle.sample(target[:, each], **{**words, "position": 7 + each})).all()
    for wrong in (-1, 2**32):
        with pytest.raises(ValueError, match="draft_step"):
            raffle.sample(step[0], draft_step=wrong, **words)
    with pytest.raises(TypeError):
        raffle.sample(step[0], draft_step=1.5, **words)


@pytest.mark.parametrize("method", ["rejection", "block"])
@pytest.mark.parametrize("known", ["logits", "probs", "nothing"])
def test_the_law(method, known):
    """The first token's law is the target's, whatever the draft was drawn from. Fixed seeds."""
    if method == "block" and known == "nothing":
        known = "probs"
    many, target, draft = 20000, rows(1, 2, seed=1)[0], rows(1, seed=2)[0]
    exact = raffle.softmax(target[0], 0.8, top_k=12).astype(np.float64)
    drawn = raffle.sample(np.broadcast_to(draft, (many, VOCAB)), 1.2, top_k=20, seed=10**6)
    words = {}
    if known == "logits":
        words = dict(draft_logits=np.repeat(draft[None], many, 0), draft_params=dict(temperature=1.2, top_k=20))
    elif known == "probs":
        words = dict(draft_probs=np.repeat(raffle.softmax(draft, 1.2, top_k=20)[None], many, 0))
    done = raffle.verify(np.repeat(target[None], many, 0), drawn[:, None], 0.8, top_k=12, seed=5, method=method, **words)
    count = np.bincount(done.tokens[:, 0], minlength=VOCAB)
    assert (count[exact == 0] == 0).all()
    kept = exact > 0
    assert ((count[kept] - many * exact[kept]) ** 2 / (many * exact[kept])).sum() < 35  # 11 degrees, p = 0.0003
    assert 0 < done.accepted.mean() < 1


def test_ragged_batches():
    first = [0, 2, 2, 5]
    target = rows(8)
    drafts = target.argmax(-1)[[0, 1, 4, 5, 6]].astype(np.int32)
    done = raffle.verify(target, drafts, temperature=0, first=first)
    assert done.accepted.tolist() == [2, 0, 3] and done.tokens.tolist() == target.argmax(-1).tolist()
    assert done.tokens.shape == (8,) and done.row_flags.tolist() == [0] * 8
    assert raffle.verify(target, drafts, temperature=0, first=np.array(first), threads=2).tokens.tolist() == done.tokens.tolist()


def test_synthetic_and_thresholds():
    target, drafts = rows(500, 2), np.zeros((500, 1), np.int32)
    for rate in (0.0, 1.0):
        assert raffle.verify(target, drafts, method="synthetic", rate=rate, seed=1).accepted.mean() == rate
    loose = raffle.verify(target, drafts, threshold_single=1e-6, threshold_sum=1.0, seed=1)
    assert loose.accepted.mean() > raffle.verify(target, drafts, seed=1).accepted.mean()


def test_trees():
    target = rows(1, 4)
    best = target.argmax(-1)[0]
    drafts = np.array([[(best[0] + 1) % VOCAB, best[0], best[2]]], np.int32)  # two siblings, and a child of the second
    done = raffle.verify(target, drafts, temperature=0, parent=np.array([-1, -1, 1]))
    assert done.accepted.tolist() == [2]


@pytest.mark.parametrize("words, error, sentence", [
    (dict(method="hope"), ValueError, "method is 'hope'"),
    (dict(drafts=np.zeros(4, np.int32)), ValueError, "drafts must be"),
    (dict(drafts=[[1]]), TypeError, "drafts must be an array"),
    (dict(drafts=np.zeros((2, 2), np.float32)), TypeError, "drafts has dtype float32"),
    (dict(drafts=np.full((2, 2), 40)), ValueError, "40"),
    (dict(drafts=np.zeros((2, 3), np.int32)), ValueError, "logits have shape"),
    (dict(temperature=[1, 2, 3]), ValueError, "temperature has 3 entries: must be 2"),
    (dict(draft_logits=rows(3)), ValueError, "draft_logits must be"),
    (dict(draft_logits=rows(4).astype(np.float16)), TypeError, "draft_logits must have the dtype"),
    (dict(draft_probs=rows(4).astype(np.float64)), TypeError, "draft_probs has dtype float64"),
    (dict(draft_params=dict(temperature=1)), ValueError, "give both"),
    (dict(draft_logits=rows(4), draft_params=dict(warmth=1)), TypeError, "no such draft parameter: warmth"),
    (dict(first=[0, 1, 4]), ValueError, r"logits have shape \(2, 3, \d+\): must be"),
    (dict(first=[0, 1, 9], logits=rows(6), drafts=np.zeros(4, np.int32)), ValueError, r"first\[2\] is 9"),
    (dict(first=[0, 3, 2], logits=rows(6), drafts=np.zeros(4, np.int32)), ValueError, r"first\[2\] is 2"),
    (dict(rate=2.0, method="synthetic"), ValueError, "rate"),
    (dict(seed=[1]), ValueError, "seed has 1 entries"),
])
def test_errors(words, error, sentence):
    words = dict(words)
    logits, drafts = words.pop("logits", rows(2, 3)), words.pop("drafts", np.zeros((2, 2), np.int32))
    with pytest.raises(error, match=sentence):
        raffle.verify(logits, drafts, **words)


def test_a_draft_whose_own_row_is_empty():
    """It is not used, and the flag of the token says so."""
    probs = np.full((2, 2, VOCAB), 1 / VOCAB, np.float32)
    probs[1, 0] = np.nan
    drafts = rows(2, 3).argmax(2)[:, :2]
    done = raffle.verify(rows(2, 3), drafts, temperature=0.01, seed=1, draft_probs=probs)
    assert done.row_flags.tolist() == [[0, 0, 0], [raffle.ROW_DRAFT, 0, 0]] and done.accepted.tolist() == [2, 0]


def test_kept_sets_go_on_with_the_drafts():
    """Of each token the tokens that mask() leaves of its row, with the drafts before it in the history; behind the last none."""
    target = np.random.default_rng(8).normal(0, 2, (1, 4, 40)).astype(np.float32)
    drafts = target.argmax(-1)[:, :3].astype(np.int32)
    words = dict(seed=3, top_k=5, frequency_penalty=2.0)
    done = raffle.verify(target, drafts, output_token_ids=[[1, 2]], kept=-1, **words)
    emitted = int(done.accepted[0]) + 1
    for n in range(emitted):
        before = [1, 2, *drafts[0, :n].tolist()]
        assert done.report.kept[0, n].tolist() == raffle.kept(target[0, n], output_token_ids=[before], **words).tolist()
    assert done.report.kept[0, emitted:].tolist() == [[0, 0]] * (4 - emitted) and done.report.logprob is None
    assert done.report.kept_count.tolist() == [[5] * emitted + [0] * (4 - emitted)]


def test_penalties_go_on_with_the_drafts():
    """method='match' with histories: the text and the log-probabilities of plain calls that are told the whole text."""
    target, ask = rows(3, 5, seed=4, scale=1.0), dict(repetition_penalty=1.8, presence_penalty=1.5, no_repeat_ngram_size=2, logit_bias={3: 2.0},
                                                      banned_token_ids=[[1], [2], [3, 4]])
    prompts, said = [[1, 2, 3], [], [5]], [[7, 7], [3], []]
    words = dict(temperature=0.9, top_p=0.95, seed=[11, 12, 13])
    wanted, logprobs = [list(text) for text in said], [[], [], []]
    for step in range(5):
        drawn, told = raffle.sample(target[:, step], position=20 + step, prompt_token_ids=prompts, output_token_ids=wanted, logprobs=2,
                                    logprobs_mode="processed_logprobs", **words, **ask)
        for text, logprob, token, value in zip(wanted, logprobs, drawn, told.logprob):
            text.append(int(token))
            logprob.append(float(value))
    fresh = np.array([text[len(before):] for text, before in zip(wanted, said)], np.int32)
    drafts = fresh[:, :4].copy()
    drafts[1, 2] = (drafts[1, 2] + 1) % VOCAB
    done = raffle.verify(target, drafts, position=20, method="match", prompt_token_ids=prompts, output_token_ids=said, logprobs=2,
                         logprobs_mode="processed_logprobs", **words, **ask)
    assert done.accepted.tolist() == [4, 2, 4] and done.report.top_tokens.shape == (3, 5, 2)
    for r, n in enumerate(done.accepted):
        assert done.tokens[r, : n + 1].tolist() == fresh[r, : n + 1].tolist()
        assert done.report.logprob[r, : n + 1].tolist() == logprobs[r][: n + 1]
        assert np.isnan(done.report.logprob[r, n + 1 :]).all() and (done.report.rank[r, n + 1 :] == 0).all()
    plain = raffle.verify(target, drafts, position=20, method="match", **words)
    assert plain.report is None and plain.tokens.tolist() != done.tokens.tolist()


@pytest.mark.parametrize("words, error, sentence", [
    (dict(repetition_penalty=[1.1]), ValueError, "repetition_penalty has 1 entries: must be 2"),
    (dict(repetition_penalty=1.1), ValueError, "needs a history"),
    (dict(banned_token_ids=[VOCAB]), ValueError, "banned"),
    (dict(logprobs=5000), ValueError, "logprobs is 5000"),
    (dict(output_token_ids=[[1]], presence_penalty=1), ValueError, "must be a list of ids for each of 2 rows"),
    (dict(slot=[0, 1], banned_token_ids=[1]), ValueError, "a Sampler keeps it in slots"),
    (dict(no_such=1), TypeError, "no such parameter: no_such"),
])
def test_wrong_requests(words, error, sentence):
    with pytest.raises(error, match=sentence):
        raffle.verify(rows(2, 3), np.zeros((2, 2), np.int32), seed=1, **words)
