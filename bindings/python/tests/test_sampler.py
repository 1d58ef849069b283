"""Sampler: slots from a request's first token to its last."""
import threading

import numpy as np
import pytest
import raffle

VOCAB = 800


@pytest.fixture
def logits():
    return np.random.default_rng(5).normal(0, 3, (4, VOCAB)).astype(np.float32)


def test_a_loop_draws_what_sample_draws(logits):
    sampler = raffle.Sampler(10)
    asked = [dict(temperature=0.7, seed=1), dict(top_k=5, seed=2**64 - 1), dict(top_p=0.8, seed=3, position=100), dict(min_p=0.1, seed=-1)]
    slots = [sampler.add(**a) for a in asked]
    for step in range(6):
        drawn = sampler.sample(logits, slots)
        for row, a in enumerate(asked):
            a = {**a, "position": a.get("position", 0) + step}
            assert drawn[row] == raffle.sample(logits[row], **a)
    assert [sampler.get(s)["position"] for s in slots] == [6, 6, 106, 6]


def test_requests_come_and_go(logits):
    sampler = raffle.Sampler(2)
    first, second = sampler.add(seed=1), sampler.add(seed=2)
    with pytest.raises(ValueError, match="all 2 slots are taken"):
        sampler.add()
    sampler.sample(logits[:1], [first])
    sampler.remove(first)
    with pytest.raises(ValueError, match=f"slot {first} has no request"):
        sampler.sample(logits[:1], [first])
    third = sampler.add(temperature=0)
    assert third == first and sampler.get(third) == dict(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, position=0,
                                                         seed=sampler.get(third)["seed"])
    assert sampler.sample(logits[:2], [second, third])[1] == logits[1].argmax()


def test_a_request_moves(logits):
    here, there = raffle.Sampler(3), raffle.Sampler(7)
    slot = here.add(temperature=1.3, top_k=50, seed=99)
    text = [int(here.sample(logits[:1], [slot])[0]) for _ in range(8)]
    here = raffle.Sampler(3)
    slot = here.add(temperature=1.3, top_k=50, seed=99)
    moved = [int(here.sample(logits[:1], [slot])[0]) for _ in range(3)]
    there.add()
    other = there.add(**here.get(slot))
    moved += [int(there.sample(logits[:1], [other])[0]) for _ in range(5)]
    assert moved == text


def test_without_slots_row_r_is_slot_r(logits):
    sampler = raffle.Sampler(4)
    for seed in range(4):
        sampler.add(seed=seed)
    assert (sampler.sample(logits) == raffle.sample(logits, seed=[0, 1, 2, 3])).all()
    assert (sampler.sample(logits[:2]) == raffle.sample(logits[:2], seed=[0, 1], position=1)).all()
    assert [sampler.get(s)["position"] for s in range(4)] == [2, 2, 1, 1]
    with pytest.raises(ValueError, match="slot 4 has no request"):
        sampler.sample(np.zeros((5, 8), np.float32))


def test_tokens_over_the_slots_are_refused(logits):
    """Positions advance by the slots after the draw: the tokens would be taken for them."""
    sampler = raffle.Sampler(VOCAB)
    for seed in range(VOCAB):
        sampler.add(seed=seed)
    slots = np.arange(5, dtype=np.int32)
    for draw in (sampler.sample, sampler.prepare):
        for out in (slots[:4], slots[1:]):
            with pytest.raises(ValueError, match="out and slot share memory"):
                draw(logits, slots[:4], out=out)
    assert slots.tolist() == [0, 1, 2, 3, 4] and not any(sampler.get(slot)["position"] for slot in range(VOCAB))
    both = np.zeros(8, np.int32)
    same = np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="out and index share memory"):
        raffle.sample(np.zeros((2, 9), np.float32), seed=1, index=same, out=same)
    with pytest.raises(ValueError, match="out and row_flags share memory"):
        sampler.sample(logits, slots[:4], out=(both[:4], both[3:7]))
    assert sampler.sample(logits, slots[:4], out=(both[:4], both[4:])) is not None  # side by side


def test_prepared(logits):
    sampler = raffle.Sampler(4)
    slots = [sampler.add(seed=s, top_p=0.9) for s in range(4)]
    call = sampler.prepare(logits, slots[::-1])
    for step in range(5):
        assert (call() == raffle.sample(logits, top_p=0.9, seed=[3, 2, 1, 0], position=step)).all()
    sampler.set(slots[0], temperature=0)
    assert call()[3] == logits[3].argmax()


def test_a_failed_step_advances_nothing(logits):
    sampler = raffle.Sampler(2)
    slot = sampler.add(seed=1)
    with pytest.raises(ValueError):
        sampler.sample(logits[:1], [slot], out=np.zeros(3, np.int32))
    with pytest.raises(ValueError):
        sampler.sample(logits[:1], np.array([7]))
    assert sampler.get(slot)["position"] == 0


@pytest.mark.parametrize("words, error, sentence", [
    (dict(temperature=-1), ValueError, "temperature is -1: must be 0 or more"),
    (dict(temperature=float("nan")), ValueError, "temperature is nan"),
    (dict(top_p="x"), TypeError, "top_p must be a number"),
    (dict(top_k=1.5), TypeError, "top_k must be an integer"),
    (dict(seed=2**64), ValueError, "seed is"),
    (dict(temp=1), TypeError, "no such parameter: temp"),
    (dict(top_k=True), TypeError, "top_k is True"),
])
def test_wrong_requests(words, error, sentence):
    sampler = raffle.Sampler(1)
    with pytest.raises(error, match=sentence):
        sampler.add(**words)
    slot = sampler.add()
    before = sampler.get(slot)
    with pytest.raises(error, match=sentence):
        sampler.set(slot, min_p=0.5, **words)
    assert sampler.get(slot) == before
    with pytest.raises(ValueError):
        raffle.Sampler(0)


# ---- what else requests ask for, and what they have said ----------------------------------------------------------

ASKED = [dict(seed=1, repetition_penalty=1.4, no_repeat_ngram_size=2), dict(seed=2, frequency_penalty=1.5, logit_bias={3: 4.0}),
         dict(seed=3, temperature=0.5, stop_token_ids=[0, 1, 2], min_tokens=4), dict(seed=4, top_k=40)]
PROMPTS = [[5, 6, 7, 5], [], [1], [700, 2, 2]]


def loop(sampler, slots, logits, steps):
    """The tokens of a loop whose logits prefer what was said before."""
    texts = [[] for _ in slots]
    for _ in range(steps):
        rows = logits.copy()
        for row, text in zip(rows, texts):
            row[text[-3:]] += 6
        for text, token in zip(texts, sampler.sample(rows, slots)):
            text.append(int(token))
    return texts


def alone(asked, prompt, row, steps):
    """The same request by plain calls that are told its whole text."""
    text = []
    for position in range(steps):
        logits = row.copy()
        logits[text[-3:]] += 6
        words = dict(prompt_token_ids=prompt, output_token_ids=text) if len(asked) > 2 else {}
        text.append(int(raffle.sample(logits, position=position, **asked, **words)))
    return text


def test_a_loop_with_histories(logits):
    sampler = raffle.Sampler(9, vocab=VOCAB, history_max=64)
    slots = [sampler.add(**a) for a in ASKED]
    for slot, prompt in zip(slots, PROMPTS):
        sampler.set_prompt(slot, np.array(prompt, int))
    texts = loop(sampler, slots, logits, 12)
    assert texts == [alone(a, p, row, 12) for a, p, row in zip(ASKED, PROMPTS, logits)]
    assert [sampler.history(s) for s in slots] == list(zip(PROMPTS, texts))
    assert [sampler.get(s)["position"] for s in slots] == [12] * 4
    assert sampler.get(slots[1])["logit_bias"] == {3: 4.0}


def test_prepared_with_histories(logits):
    sampler, twin = (raffle.Sampler(4, vocab=VOCAB, history_max=64) for _ in range(2))
    slots = [sampler.add(**a) for a in ASKED]
    assert slots == [twin.add(**a) for a in ASKED]
    call = twin.prepare(logits, slots)
    for _ in range(6):
        assert (call() == sampler.sample(logits, slots)).all()
    assert [twin.history(s) for s in slots] == [sampler.history(s) for s in slots]


def test_a_prepared_call_does_not_overlook_a_newcomer(logits):
    sampler = raffle.Sampler(2)
    call = sampler.prepare(logits[:1], [sampler.add(seed=1)])
    call()
    sampler.add(banned_token_ids=[1])
    with pytest.raises(RuntimeError, match="prepare again"):
        call()


def test_a_prepared_call_does_not_draw_for_who_is_gone(logits):
    for words in ({}, dict(vocab=VOCAB, history_max=8)):
        sampler = raffle.Sampler(2, **words)
        slots = [sampler.add(seed=s) for s in range(2)]
        out = np.full(2, 9, np.int32)
        calls = [sampler.prepare(logits[:2], out=out), sampler.prepare(logits[:2], slots[::-1], out=out)]
        sampler.remove(slots[1])
        for call in calls:
            with pytest.raises(ValueError, match="slot 1 has no request"):
                call()
        assert out.tolist() == [9, 9] and sampler.get(slots[0])["position"] == 0
        sampler.add(seed=5)
        assert calls[0]().tolist() == raffle.sample(logits[:2], seed=[0, 5]).tolist()


def test_fork_truncate_accept_reset(logits):
    sampler = raffle.Sampler(4, vocab=VOCAB, history_max=64)
    slot = sampler.add(**ASKED[0])
    sampler.set_prompt(slot, PROMPTS[0])
    text = loop(sampler, [slot], logits[:1], 5)[0]
    twin = sampler.fork(slot)
    assert sampler.get(twin) == sampler.get(slot) and sampler.history(twin) == sampler.history(slot)
    other = sampler.fork(slot, seed=77, repetition_penalty=None)
    assert sampler.get(other)["seed"] == 77 and "repetition_penalty" not in sampler.get(other)
    assert len(set(sampler.sample(logits[[0, 0]], [slot, twin]).tolist())) == 1
    sampler.truncate(slot, 3)  # one of them the draw above
    assert sampler.history(slot) == (PROMPTS[0], text[:3]) and sampler.get(slot)["position"] == 3
    sampler.accept(slot, [9, 8, -1, 4])
    assert sampler.history(slot)[1] == [*text[:3], 9, 8] and sampler.get(slot)["position"] == 5
    for one in (4, np.int64(4), np.array(4)):
        sampler.accept(slot, one)
    assert sampler.history(slot)[1] == [*text[:3], 9, 8, 4, 4, 4] and sampler.get(slot)["position"] == 8
    sampler.reset(slot)
    assert sampler.history(slot) == ([], []) and sampler.get(slot)["position"] == 0
    sampler.set_prompt(slot, PROMPTS[0])
    assert loop(sampler, [slot], logits[:1], 5)[0] == text
    assert sampler.history(twin)[1][:5] == text  # the copy is one
    with pytest.raises(ValueError):
        sampler.fork(slot, frequency_penalty=9)
    sampler.fork(slot)
    with pytest.raises(ValueError, match="all 4 slots are taken"):
        sampler.fork(slot)


def test_a_slot_starts_anew(logits):
    """Nothing of a request is left in its slot when another gets it."""
    sampler = raffle.Sampler(1, vocab=VOCAB, history_max=32)
    sampler.add(**ASKED[1], banned_token_ids=list(range(5, 800)))
    sampler.set_prompt(0, [1, 2])
    sampler.sample(logits[:1])
    sampler.remove(0)
    with pytest.raises(ValueError, match="slot 0 has no request"):
        sampler.history(0)
    assert sampler.add(seed=4, top_k=40) == 0
    assert sampler.history(0) == ([], [])
    assert sampler.get(0) == dict(temperature=1.0, top_k=40, top_p=1.0, min_p=0.0, seed=4, position=0)
    assert sampler.sample(logits[:1])[0] == raffle.sample(logits[0], seed=4, top_k=40)


def test_reports_of_a_sampler(logits):
    sampler = raffle.Sampler(4, vocab=VOCAB, history_max=64)
    slots = [sampler.add(**{**a, "position": 2}) for a in ASKED[1:2]]
    sampler.accept(slots[0], [3, 3])
    tokens, flags, told = sampler.sample(logits[:1], slots, logprobs=4, logprob_token_ids=[3], logprobs_mode="tempered_logprobs",
                                         kept=-1, return_flags=True)
    alone, same = raffle.sample(logits[:1], position=4, logprobs=4, logprob_token_ids=[3], logprobs_mode="tempered_logprobs", kept=-1,
                                output_token_ids=[[3, 3]], **ASKED[1])
    assert tokens.tolist() == alone.tolist() and flags.tolist() == [0]
    for name in set(told._fields) - {"all_logprobs", "kept_list"}:
        assert getattr(told, name).tobytes() == getattr(same, name).tobytes(), name


def test_bad_words_of_the_output():
    """vLLM's do not reach back into the prompt; others do."""
    row, word = np.zeros((1, VOCAB), np.float32), dict(temperature=0, bad_words_token_ids=[[3, 4, 5]])
    row[0, 5] = 1
    sampler = raffle.Sampler(3, vocab=VOCAB, history_max=32)
    for words, token in ((word, 0), (dict(word, flags=raffle.BAD_WORDS_OUTPUT), 5), (dict(word, dialect="vllm"), 5)):
        slot = sampler.add(**words)
        sampler.set_prompt(slot, [3])
        sampler.accept(slot, [4])
        assert sampler.sample(row, [slot]).tolist() == [token]
        sampler.accept(slot, [3, 4])
        assert sampler.sample(row, [slot]).tolist() == [0]


def test_dialects(logits):
    sampler = raffle.Sampler(4, vocab=VOCAB, history_max=32)
    llama = sampler.add(dialect="llama.cpp", seed=5, temp=0.6, repeat_penalty=1.2, repeat_last_n=8)
    ours = dict(seed=5, temperature=0.6, top_k=40, top_p=0.95, min_p=0.05, repetition_penalty=1.2, repeat_last_n=8,
                flags=raffle.FILTERS_FIRST | raffle.MIN_P_LAST | raffle.COUNT_PROMPT)
    same = sampler.add(**ours)
    assert len({tuple(t) for t in loop(sampler, [llama, same], np.stack([logits[0]] * 2), 10)}) == 1
    sampler.remove(same)
    moved = sampler.add(**sampler.get(llama))
    assert sampler.get(moved) == sampler.get(llama)
    openai = sampler.add(dialect="openai", temperature=1.5, presence_penalty=-1, logit_bias={"7": 100}, seed=1, top_logprobs=3)
    sampler.set_prompt(openai, [1])
    assert sampler.add(**sampler.get(openai)) != openai
    for words, sentence in ((dict(dialect="openai", logit_bias={1: 101}), "must be -100 to 100"),
                            (dict(dialect="openai", repetition_penalty=1.1), "repetition_penalty: OpenAI has no such parameter"),
                            (dict(dialect="llama.cpp", mirostat=2), "mirostat is 2: raffle does not do that"),
                            (dict(dialect="gpt"), "dialect is 'gpt': must be one of vllm, openai, llama.cpp")):
        sampler = raffle.Sampler(1, vocab=VOCAB, history_max=8)
        with pytest.raises(ValueError, match=sentence):
            sampler.add(**words)
        assert sampler.add() == 0


def test_changes_of_a_request(logits):
    sampler = raffle.Sampler(1, vocab=VOCAB)
    slot = sampler.add(seed=1, banned_token_ids=[1, 2], top_n_sigma=1.5)
    sampler.set(slot, logit_bias={4: 1.0}, top_k=9)
    words = dict(seed=1, banned_token_ids=[1, 2], top_n_sigma=1.5, logit_bias={4: 1.0}, top_k=9)
    assert sampler.sample(logits[:1])[0] == raffle.sample(logits[0], **words)
    sampler.set(slot, banned_token_ids=None, top_n_sigma=0)
    assert "banned_token_ids" not in sampler.get(slot)
    assert sampler.sample(logits[:1])[0] == raffle.sample(logits[0], seed=1, logit_bias={4: 1.0}, top_k=9, position=1)
    before = sampler.get(slot)
    for words in (dict(banned_token_ids=[VOCAB]), dict(logit_bias={1: float("nan")}), dict(typical_p=2), dict(min_tokens=2)):
        with pytest.raises(ValueError):
            sampler.set(slot, top_k=3, **words)
        assert sampler.get(slot) == before
    assert sampler.sample(logits[:1])[0] == raffle.sample(logits[0], seed=1, logit_bias={4: 1.0}, top_k=9, position=2)


def test_wrong_histories(logits):
    none = raffle.Sampler(2)
    none.add()
    for change in (lambda s: s.set_prompt(0, [1]), lambda s: s.accept(0, [1]), lambda s: s.truncate(0, 1), lambda s: s.reset(0),
                   lambda s: s.history(0)):
        with pytest.raises(ValueError, match="there are no histories"):
            change(none)
    sampler = raffle.Sampler(3, vocab=VOCAB, history_max=4)
    slot, other = sampler.add(seed=1, presence_penalty=1), sampler.add(seed=2)
    for wrong in ([VOCAB], [-2], [1, 2, 3, 4, 5]):
        with pytest.raises(ValueError):
            sampler.set_prompt(slot, wrong)
    with pytest.raises(TypeError):
        sampler.set_prompt(slot, ["x"])
    with pytest.raises(ValueError):
        sampler.truncate(slot, 1)
    assert sampler.history(slot) == ([], []) and sampler.get(slot)["position"] == 0
    with pytest.raises(ValueError, match="slot 0 of row 1 is out of range, or in this call twice"):
        sampler.sample(logits[:2], [slot, slot])
    assert sampler.history(slot) == ([], [])
    sampler.set_prompt(other, [1, 2, 3, 4])
    out = np.full(2, 9, np.int32)
    with pytest.raises(ValueError, match="slot 1 of row 1 has a history of 4 tokens: 1 more do not fit in 4"):
        sampler.sample(logits[:2], [slot, other], out=out)
    assert out.tolist() == [9, 9] and sampler.history(slot) == ([], []) and sampler.get(slot)["position"] == 0
    sampler.sample(logits[:2], [slot, other], accept=False)
    assert sampler.history(other)[0] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="vocab is 800: that of the logits is 5"):
        sampler.sample(np.zeros((1, 5), np.float32), [slot])
    for words in (dict(vocab=-1), dict(history_max=5), dict(vocab=10, history_max=-1), dict(vocab=2**22, history_max=5),
                  dict(vocab=10, history_max=2**21)):
        with pytest.raises(ValueError):
            raffle.Sampler(2, **words)


def test_the_pool_itself_cannot_be_misused():
    """raffle._core.Requests is not for users, and yet: an error, never a crash."""
    from raffle._core import Requests

    for wrong in ((0, 0, 0), (2**31, 0, 0), (1, 0, 5), (1, 10, 2**21), (1,), ("x", 1, 1)):
        with pytest.raises((ValueError, TypeError)):
            Requests(*wrong)
    pool = Requests(2, 10, 4)
    for call in (lambda: pool.change("shout", [0], [1], None, 1), lambda: pool.change("accept", [0, 1], [1], None, 1),
                 lambda: pool.change("accept", [0], [1, 2], [1, 1], 2), lambda: pool.change("truncate", [0], None, None, 0),
                 lambda: pool.change("accept", [0, 1], np.array([1, 2], np.int32)[:1], None, 0),
                 lambda: pool.change("accept", [0, 1], np.array([1, 2], np.int32)[:1], [0, 0], 2**62),
                 lambda: pool.change("accept", [2], [1], None, 1), lambda: pool.change("accept", [0], None, None, 1),
                 lambda: pool.change("accept", 0, [1], None, -1), lambda: pool.set(2, {}, -1, True), lambda: pool.set(0, {}, 7, True),
                 lambda: pool.set(0, {1: 2}, -1, True), lambda: pool.set(0, {"logit_bias": [1]}, -1, True),
                 lambda: pool.set(0, {"logit_bias": ([1, 2], [0.5])}, -1, True), lambda: pool.get(-1), lambda: pool.history(2),
                 lambda: pool.copy(0, 5), lambda: pool.use(9, True), lambda: pool.get("x")):
        with pytest.raises((ValueError, TypeError)):
            call()
    assert pool.history(0) == ([], 0)


def test_a_loop_with_drafts(logits):
    """A speculative loop writes the text of a plain one (method 'match'), whatever the drafts are; slots, histories and
    positions go on by what was emitted."""
    sampler, twin = (raffle.Sampler(6, vocab=VOCAB, history_max=64) for _ in range(2))
    for pool in (sampler, twin):
        slots = [pool.add(**a) for a in ASKED][::-1]
        for slot, prompt in zip(slots, PROMPTS[::-1]):
            pool.set_prompt(slot, prompt)

    def rows_of(text):
        row = logits[len(text) % 4].copy()
        row[text[-3:]] += 5
        return row

    texts = {slot: [] for slot in slots}
    while min(map(len, texts.values())) < 12:
        rows = np.stack([rows_of(texts[s]) for s in slots])
        for slot, token in zip(slots, sampler.sample(rows, slots)):
            texts[slot].append(int(token))
    fast, steps, rng = {slot: [] for slot in slots}, 0, np.random.default_rng(1)
    while min(map(len, fast.values())) < 12:
        drafts = np.array([[texts[s][len(fast[s]) + i] if len(fast[s]) + i < 12 and rng.random() < 0.8 else 5 for i in range(3)] for s in slots])
        rows = np.stack([[rows_of(fast[s] + drafts[r, :i].tolist()) for i in range(4)] for r, s in enumerate(slots)])
        done = twin.verify(rows, drafts, slots, method="match", logprobs=0)
        for r, slot in enumerate(slots):
            emitted = done.tokens[r, : done.accepted[r] + 1].tolist()
            fast[slot] += emitted
            assert (done.report.logprob[r, : len(emitted)] <= 0).all() and twin.get(slot)["position"] == len(fast[slot])
            assert twin.history(slot)[1] == fast[slot]
        steps += 1
    assert steps < 12 and {s: t[:12] for s, t in fast.items()} == texts
    before = [twin.get(s) for s in slots]
    twin.verify(rows, drafts, slots, accept=False)
    with pytest.raises(ValueError, match="slot 5 has no request"):
        twin.verify(rows, drafts, [5, *slots[1:]])
    assert [twin.get(s) for s in slots] == before


def test_verify_refuses_before_it_draws(logits):
    """What cannot be accepted is not drawn: no request loses its tokens because of another."""
    sampler = raffle.Sampler(3, vocab=VOCAB, history_max=6)
    slots = [sampler.add(seed=s, presence_penalty=1) for s in range(3)]
    sampler.accept(slots[1], [5, 5, 5, 5])
    rows, drafts = np.stack([logits[:3]] * 3), np.full((3, 2), 7)
    before = [sampler.get(s) for s in slots]
    with pytest.raises(ValueError, match="slot 1 of row 1 has a history of 4 tokens: 3 more do not fit in 6"):
        sampler.verify(rows, drafts)
    with pytest.raises(ValueError, match="slot 2 of row 2 is out of range, or in this call twice"):
        sampler.verify(rows, drafts, np.array([0, 2, 2]))
    with pytest.raises(ValueError, match="slot must have an entry per row"):
        sampler.verify(rows[:1], drafts[:1], 0)
    assert [sampler.get(s) for s in slots] == before and [sampler.history(s)[1] for s in slots] == [[], [5, 5, 5, 5], []]
    sampler.verify(rows, drafts, accept=False)
    assert [sampler.get(s) for s in slots] == before
    drafts[1, 1] = -1  # no draft: room for two is enough
    done = sampler.verify(rows, drafts, slots)
    assert sampler.history(1)[1] == [5, 5, 5, 5, *done.tokens[1, : done.accepted[1] + 1].tolist()]


def test_a_slot_is_given_once():
    """Two threads that add at the same time: one comes while the other has not finished."""
    sampler, found = raffle.Sampler(3), []
    first, set_slot = sampler.add(), sampler._pool.set

    def slowly(*arguments):
        if len(found) < 1:
            found.append(None)
            other = threading.Thread(target=lambda: found.append(sampler.add()))
            other.start()
            other.join()
        set_slot(*arguments)

    sampler._pool.set = slowly
    assert sorted([first, sampler.add(), found[1]]) == [0, 1, 2]
    for call in (sampler.add, lambda: sampler.fork(0)):
        with pytest.raises(ValueError, match="all 3 slots are taken"):
            call()
    sampler.remove(1)
    for wrong in (lambda: sampler.add(temperature=-1), lambda: sampler.fork(0, temperature=-1)):  # leaves the slot free
        with pytest.raises(ValueError, match="temperature"):
            wrong()
    assert sampler.fork(0) == 1


def test_parameters_of_drafts_have_an_entry_per_request(logits):
    """A pool has no place for them, and its slots come in any order."""
    sampler = raffle.Sampler(9)
    slots = [sampler.add(seed=s, top_k=20) for s in range(9)][6:2:-1]
    target, drafts = logits.repeat(3, 0).reshape(4, 3, VOCAB), logits.argsort(-1)[:, -3:-1]
    words = dict(draft_logits=logits.repeat(2, 0), draft_params=dict(temperature=[0.3, 0.6, 1.5, 2.0], top_k=7))
    wanted = raffle.verify(target, drafts, top_k=20, seed=[6, 5, 4, 3], **words)
    found = sampler.verify(target, drafts, slots, **words)
    assert found.tokens.tolist() == wanted.tokens.tolist() and len(set(wanted.accepted.tolist())) > 1
    with pytest.raises(ValueError, match="draft temperature has 9 entries"):
        sampler.verify(target, drafts, slots, draft_logits=logits.repeat(2, 0), draft_params=dict(temperature=[1.0] * 9))


@pytest.mark.parametrize("vocab", [VOCAB - 1, VOCAB + 1])
def test_logits_of_another_vocabulary(vocab):
    """Told before anything is drawn, whatever the token would have been, and whatever requests ask for: as on a GPU."""
    sampler = raffle.Sampler(1, vocab=VOCAB, history_max=8)
    slot = sampler.add(temperature=0)
    sentence = f"vocab is {VOCAB}: that of the logits is {vocab}"
    for call in (lambda: sampler.sample(np.zeros((1, vocab), np.float32), [slot]),
                 lambda: sampler.verify(np.zeros((1, 2, vocab), np.float32), np.zeros((1, 1), np.int32), [slot])):
        with pytest.raises(ValueError, match=sentence):
            call()
    assert sampler.history(slot) == ([], []) and sampler.get(slot)["position"] == 0
