"""Requests, histories and reports on a GPU, or an emulated one: the CPU's tokens and log-probabilities, bit for bit."""
import collections
import contextlib
import gc
import math
import threading

import numpy as np
import pytest
import raffle
from far_arrays import EMULATED, TORCH, WHY, capture, current, exchanged, far, near, used, write

if WHY:
    pytest.skip(WHY, allow_module_level=True)

VOCAB = 700
MORE = [
    dict(logit_bias={3: 4.0, 10: -math.inf, 699: 2.5}),
    dict(banned_token_ids=list(range(0, 700, 3)), temperature=0.5),
    dict(allowed_token_ids=[5, 6, 7, 400], top_p=0.9),
    dict(repetition_penalty=1.4),
    dict(frequency_penalty=0.7, presence_penalty=0.4, temperature=0),
    dict(repetition_penalty=1.2, frequency_penalty=0.3, repeat_last_n=5, flags=raffle.COUNT_PROMPT),
    dict(no_repeat_ngram_size=2),
    dict(bad_words_token_ids=[[4, 9], [8]], stop_token_ids=[1, 2], min_tokens=30),
    dict(dry_multiplier=0.8, dry_allowed_length=1, dry_sequence_breaker_ids=[6]),
    dict(top_n_sigma=1.5),
    dict(epsilon_cutoff=0.002, eta_cutoff=0.01),
    dict(typical_p=0.8, min_tokens_to_keep=3),
    dict(xtc_probability=0.8, xtc_threshold=0.02),
    dict(temperature=0.8, top_k=40, min_p=0.01),
    dict(),
]


def rows(count, seed=3, vocab=VOCAB):
    return np.random.default_rng(seed).normal(0, 3, (count, vocab)).astype(np.float32)


def said(count, seed, vocab=VOCAB):
    """A history in which tokens, and sequences of them, come again."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 12 if row % 2 else vocab, rng.integers(0, 60)).tolist() for row in range(count)]


def same(found, wanted):
    """Equal, to the bit."""
    found, wanted = near(found), np.asarray(wanted)
    if TORCH and wanted.dtype == np.uint32:  # torch has few functions for it: flags are int32 there
        wanted = wanted.view(np.int32)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    bits = found.view(np.int32) == wanted.view(np.int32)
    assert bits.all(), (np.argwhere(~bits)[:5], found[~bits][:5], wanted[~bits][:5])


def same_report(found, wanted):
    for name, one, other in zip(raffle.Report._fields, found, wanted):
        assert (one is None) == (other is None), name
        if one is not None and name != "kept_list":
            same(one, other)
    if found.kept_list is not None:  # beyond what is kept undefined
        room = wanted.kept_list.shape[-1]
        lists = zip(near(found.kept_list).reshape(-1, room), wanted.kept_list.reshape(-1, room), wanted.kept_count.reshape(-1))
        assert all(one[:count].tolist() == other[:count].tolist() for one, other, count in lists)


def refused(call, *words):
    """Why this build's GPU backend lacks something that a test is about, or None."""
    try:
        call()
    except ValueError as error:
        if any(word in str(error) for word in words):
            return str(error)
        raise
    return None


WITHOUT = refused(lambda: raffle.sample(far(rows(1)), banned_token_ids=[1]), "does not have it")
if WITHOUT:
    pytest.skip(WITHOUT, allow_module_level=True)

# ---- plain calls ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", MORE, ids=str)
def test_what_requests_ask_for(more):
    logits = rows(9)
    words = dict(seed=5, position=2, **more, prompt_token_ids=said(9, 1), output_token_ids=said(9, 2))
    found, wanted = raffle.sample(far(logits), return_flags=True, **words), raffle.sample(logits, return_flags=True, **words)
    same(found[0], wanted[0])
    assert near(found[1]).tolist() == wanted[1].tolist()
    half = logits.astype(np.float16)
    same(raffle.sample(far(half), **words), raffle.sample(half, **words))
    same(raffle.sample(far(logits), draft_step=2, **words), raffle.sample(logits, draft_step=2, **words))


def test_rows_of_their_own():
    """Lists and numbers for each row, rows by index, a mask, one row."""
    logits = rows(40, vocab=3000)
    words = dict(logit_bias=[{i: 5.0, 2 * i + 1: 4.5} for i in range(40)], presence_penalty=[i / 20 for i in range(40)],
                 banned_token_ids=[list(range(i)) or None for i in range(40)], output_token_ids=said(40, 7, 3000), seed=1)
    same(raffle.sample(far(logits), **words), raffle.sample(logits, **words))
    allow = raffle.pack_mask(rows(40, 4, 3000) > 0)
    same(raffle.sample(far(logits), allow=far(allow), **words), raffle.sample(logits, allow=allow, **words))
    words = dict(banned_token_ids=[1, 2, 3], repetition_penalty=1.5, output_token_ids=[5, 6, 7], seed=2)
    assert int(near(raffle.sample(far(logits[3:4]), **{**words, "output_token_ids": [[5, 6, 7]]}))[0]) == int(raffle.sample(logits[3], **words))
    assert near(raffle.sample(far(logits[:0]), banned_token_ids=[1])).shape == (0,)
    long = dict(allowed_token_ids=list(range(0, 3000, 2)), output_token_ids=[[7] * 3000] * 40, repetition_penalty=1.1, seed=3)
    same(raffle.sample(far(logits), **long), raffle.sample(logits, **long))  # more than what kernels carry


@pytest.mark.parametrize("count", [1, 7, 99, 100, 101, 133, 134, 399, 401, 900])
def test_lists_of_parameters(count):
    """What goes with one launch (800 words: six lists of 100 rows), and what does not."""
    logits, steps = rows(count), range(count)
    words = dict(temperature=[0.5 + i % 7 / 5 for i in steps], top_k=[i % 40 for i in steps], top_p=[0.99 - i % 9 / 20 for i in steps],
                 min_p=[i % 3 / 100 for i in steps], seed=[2**63 + i for i in steps], position=[i * i for i in steps])
    same(raffle.sample(far(logits), **words), raffle.sample(logits, **words))
    for name in ("temperature", "seed", "position"):  # beside numbers
        one = {**words, "temperature": 0.9, "seed": 3, "position": 4, name: words[name]}
        same(raffle.sample(far(logits), **one), raffle.sample(logits, **one))


def test_no_rows():
    """Arrays of no rows, which have no memory; and an index that would read beyond them."""
    empty, none = far(rows(0)), far(np.zeros(0, np.int64 if TORCH else np.uint64))
    words = dict(temperature=far(np.zeros(0, np.float32)), seed=none, position=none)
    assert near(raffle.sample(empty, **words)).shape == near(raffle.prepare(empty, **words)()).shape == (0,)
    told = raffle.sample(empty, seed=1, logprobs=2, logprob_token_ids=[1])[1]
    assert near(told.top_tokens).shape == (0, 2) and near(told.given_ranks).shape == (0, 1)
    assert near(raffle.softmax(empty)).shape == (0, VOCAB) and near(raffle.sample(far(rows(2)), seed=1, index=[])).shape == (0,)
    for index in ([0], far(np.zeros(1, np.int32))):
        with pytest.raises(ValueError, match="index has entries, and the logits have no rows"):
            raffle.sample(empty, seed=1, index=index)
    with pytest.raises(ValueError, match="stream is 18446744073709551616"):
        raffle.sample(far(rows(2)), seed=1, stream=2**64)


@pytest.mark.parametrize("mode", ["raw_logprobs", "tempered_logprobs", "processed_logprobs"])
def test_reports(mode):
    logits = rows(7)
    logits[2, 5], logits[3] = np.nan, -np.inf
    why = refused(lambda: raffle.sample(far(logits), logprobs=0), "report", "REPORT")
    if why:
        pytest.skip(why)
    for words in (dict(), dict(top_k=5), dict(temperature=0), dict(top_p=0.8, temperature=0.7), dict(banned_token_ids=[1, 2]),
                  dict(repetition_penalty=1.3, output_token_ids=said(7, 3))):
        for asked in (dict(logprobs=0), dict(logprobs=6), dict(logprobs=-1), dict(logprob_token_ids=[3, 0, -5, VOCAB]),
                      dict(logprobs=2, logprob_token_ids=np.arange(14).reshape(7, 2)), dict(kept=-1), dict(kept=4, logprobs=1),
                      dict(kept=VOCAB)):
            words = dict(seed=3, logprobs_mode=mode, **{k: v for k, v in words.items() if k not in ("seed", "logprobs_mode")})
            found, told = raffle.sample(far(logits), **words, **asked)
            wanted, wanted_told = raffle.sample(logits, **words, **asked)
            same(found, wanted)
            same_report(told, wanted_told)


def test_prepared_calls():
    logits = rows(6)
    gpu, words = far(logits), dict(top_k=50, seed=4, repetition_penalty=1.3, logit_bias={1: 3.0}, output_token_ids=said(6, 5))
    call = raffle.prepare(gpu, advance=True, **words)
    steps = [raffle.sample(logits, position=step, **words) for step in range(9)]
    for step in range(3):
        same(call(), steps[step])
    drawn, replay = capture(lambda: call(current()))
    for step in range(3, 9):
        replay()
        same(drawn, steps[step])
    if refused(lambda: raffle.prepare(gpu, seed=1, logprobs=2), "report", "REPORT"):
        return
    call = raffle.prepare(gpu, advance=True, logprobs=2, logprob_token_ids=[3], kept=60, **words)
    for step in range(3):
        token, told = call()
        wanted, wanted_told = raffle.sample(logits, position=step, logprobs=2, logprob_token_ids=[3], kept=60, **words)
        same(token, wanted)
        same_report(told, wanted_told)


def test_numbers_of_one_call_and_the_next():
    """A workspace keeps the numbers of a call, and only those that change are written: every call sees its own all the same."""
    logits = rows(40)
    gpu, rng = far(logits), np.random.default_rng(1)

    def words(step):
        made = dict(temperature=[0.7, 1.3, 0.0][step % 3], seed=int(rng.integers(2**63)) * 2 + 1 if step % 4 else 5, position=step * 2**60 % 2**64)
        if step % 5 == 1:
            made.update(top_k=step, top_p=0.9)
        if step % 7 == 2:
            made["min_p"] = 0.05
        return made

    for step in range(60):
        count = [40, 1, 17, 16][step % 4]  # two plans, and batches of several sizes of each
        made = words(step)
        if step % 6 == 3:  # an array where a number was, and will be
            made.update(temperature=[0.5 + i / 50 for i in range(count)], seed=list(range(count)))
        if step % 6 == 5:
            made.update(position=far(np.arange(count).astype(np.int64 if TORCH else np.uint64)))
        here = {**made, "position": np.arange(count)} if step % 6 == 5 else made
        same(raffle.sample(gpu[:count], **made), raffle.sample(logits[:count], **here))
    slot = np.arange(31, -1, -1, dtype=np.int32)  # a number stands for all slots
    told = dict(seed=7, position=3, temperature=np.linspace(0.5, 2, 32).astype(np.float32))
    same(raffle.sample(gpu[:32], slot=slot, **{**told, "temperature": far(told["temperature"])}, top_k=5),
         raffle.sample(logits[:32], slot=slot, **told, top_k=5))
    assert len({tuple(near(raffle.sample(far(np.zeros((8, VOCAB), np.float32)))).tolist()) for _ in range(20)}) == 20  # no seed: never twice


def test_numbers_of_a_graph(monkeypatch):
    """A captured call has its numbers in it, whatever calls before, between and behind it have; and a workspace of its own."""
    logits = rows(5)
    gpu, first, second = far(logits), dict(temperature=0.6, top_k=9, seed=3), dict(temperature=1.4, top_p=0.8, seed=8, position=2)
    raffle.sample(gpu, **first)
    kind, made = raffle._arrays.kind_of(gpu), []
    make = kind.workspace
    monkeypatch.setattr(kind, "workspace", lambda *a: (made.append(a), make(*a))[1])
    (_, drawn), replay = capture(lambda: [raffle.sample(gpu, **words, stream=current()) for words in (first, second)])
    assert len(made) == 2
    for step in range(4):
        same(raffle.sample(gpu, position=step, **first), raffle.sample(logits, position=step, **first))
        replay()
        same(drawn, raffle.sample(logits, **second))


Outputs = collections.namedtuple("Outputs", "tokens, row_flags")


def test_the_quick_way(monkeypatch):
    """Usual calls with tensors that the extension can ask everything: the same tokens, arrays and errors as by the long way."""
    logits, seen = rows(9), []
    gpu, out, quick = exchanged(logits), exchanged(np.zeros(9, np.int32)), raffle._core.quick
    monkeypatch.setattr(raffle._core, "quick", lambda *a: (seen.append(quick(*a)), seen[-1])[1])
    told = [raffle.sample(gpu, 0.8, 20, 0.9, 0.01, 3, 4), raffle.sample(gpu, [0.5] * 9, seed=list(range(9))), raffle.sample(gpu, 0.0),
            raffle.sample(gpu, seed=5, out=out)]
    assert len(seen) == 4 and all(one is other for one, other in zip(seen, told)) and told[3] is out
    for one, wanted in zip(told, (raffle.sample(logits, 0.8, 20, 0.9, 0.01, 3, 4), raffle.sample(logits, [0.5] * 9, seed=list(range(9))),
                                  raffle.sample(logits, 0.0), raffle.sample(logits, seed=5))):
        assert type(one) is type(gpu)
        same(one, wanted)
    here, there = raffle.Sampler(9), raffle.Sampler(9, like=gpu)
    for i in range(9):
        here.add(seed=i, temperature=0.7), there.add(seed=i, temperature=0.7)
    for step in range(3):
        same(there.sample(gpu), here.sample(logits))
        same(there.sample(gpu, out=out), here.sample(logits))
    assert len(seen) == 10 and NotImplemented not in seen
    array = far(np.full(9, 0.5, np.float32)) if TORCH else exchanged(np.full(9, 0.5, np.float32))
    same(raffle.sample(gpu, array, seed=1), raffle.sample(logits, 0.5, seed=1))
    assert seen.pop() is NotImplemented
    for words, error in ((dict(temperature=-1.0), "temperature of row 0 is -1"), (dict(seed=[1]), "seed has 1 entries"),
                         (dict(out=exchanged(np.zeros(8, np.int32))), "out must have 9 rows"),
                         (dict(out=exchanged(np.zeros(9, np.float32))), "out has dtype float32")):
        with pytest.raises((ValueError, TypeError), match=error):
            raffle.sample(gpu, **{"seed": 1, **words})
    negated = exchanged(logits)
    if TORCH:
        import torch

        negated = torch._neg_view(negated)
    else:
        negated.negated = True
    with pytest.raises(ValueError, match="logits is a view that negates"):
        raffle.sample(negated, seed=1)
    assert len(seen) == 10
    for pair in ((out, None), Outputs(out, None)):
        assert raffle.sample(gpu, seed=5, out=pair) is out and seen.pop() is NotImplemented
        assert there.sample(gpu, out=pair) is out and seen.pop() is NotImplemented
    monkeypatch.undo()  # and nothing keeps the tokens
    kept = [(step, count, raffle.sample(exchanged(logits[:count]), seed=step)) for step, count in enumerate((9, 4, 4, 4, 9, 9, 9, 1))]
    for step, count, one in kept:  # each has memory of its own
        same(one, raffle.sample(logits[:count], seed=step))
    del kept, one
    for step in range(3):
        raffle.sample(gpu, seed=step)
    gc.collect()
    before = used()
    for step in range(300):
        raffle.sample(gpu, seed=step)
    gc.collect()
    assert used() <= before


def own_types(monkeypatch):
    """(a class of tensors whose tokens are of that class, one whose tokens are plain, as torch.nn.Parameter's)"""
    if TORCH:
        import torch

        return type("Own", (torch.Tensor,), {}), torch.nn.Parameter
    plain = type(exchanged(rows(1)))
    made = type("Own", (plain,), {}), type("Parameter", (plain,), dict(new_empty=lambda self, rows, dtype: plain((rows,), dtype)))
    for one in made:
        for kept in (raffle._arrays._kinds, raffle._arrays.quick_spaces):
            monkeypatch.setitem(kept, one, kept[plain])
    return made


def test_tokens_are_of_the_type_of_their_logits(monkeypatch):
    """Whatever the logits of the calls before were: a model of the tokens is for logits of one type."""
    logits = rows(5)
    plain = exchanged(logits)
    own, parameter = own_types(monkeypatch)
    if TORCH:
        arrays = plain, plain.as_subclass(own), parameter(plain, requires_grad=False)
    else:
        arrays = plain, *(one(plain.shape, plain.dtype, plain.memory) for one in (own, parameter))
    wanted = type(plain), own, type(plain)
    for order in ((0,) * 4, (1,) * 4, (0,) * 4, (2,) * 4, (1, 2, 0) * 3, (1, 1, 2, 2, 0, 0) * 2):
        for step, which in enumerate(order):
            drawn = raffle.sample(arrays[which], seed=step)
            assert type(drawn) is wanted[which]
            same(drawn.as_subclass(type(plain)) if TORCH else drawn, raffle.sample(logits, seed=step))
    if TORCH:
        return
    asked = []
    monkeypatch.setattr(parameter, "new_empty", lambda self, rows, dtype: (asked.append(rows), type(plain)((rows,), dtype))[1])
    for step in range(9):
        raffle.sample(arrays[2], seed=step)
    assert len(asked) == 3  # one, then one and a model: the rest is made by it


def test_many_numbers_take_no_memory():
    gpu, words = far(rows(3)), dict(top_k=4)
    for step in range(3):  # what is kept is made here: a workspace, a model of the tokens
        raffle.sample(gpu, 0.5, seed=step, **words)
    gc.collect()
    before = used()
    for step in range(200):
        raffle.sample(gpu, 0.5 + step / 100, seed=step, position=step * 3, **words)
    gc.collect()
    assert used() <= before


def test_operators_keep_no_memory_of_a_compiler(monkeypatch):
    """In an operator a workspace is new each time, so that it ends with the call; elsewhere it is kept."""
    logits = rows(3, vocab=901)
    gpu, made = far(logits), []
    kind = raffle._arrays.kind_of(gpu)
    make = kind.workspace
    monkeypatch.setattr(kind, "workspace", lambda *a: (made.append(a), make(*a))[1])
    for turn, wanted in enumerate((1, 1, 2, 3, 3)):
        with kind.operator() if turn in (2, 3) else contextlib.nullcontext():
            same(raffle.sample(gpu, 0.8, seed=turn), raffle.sample(logits, 0.8, seed=turn))
        assert len(made) == wanted


def test_a_flag_that_raises():
    class Never:
        def __bool__(self):
            raise KeyError("no")

    with pytest.raises(KeyError):
        raffle._core.inside(Never())


def test_positions_that_a_draw_advanced_are_not_held():
    """Of a kept workspace: the number that was written there is no longer the one that is there."""
    logits = rows(4)
    gpu, numbers = exchanged(logits), (0.9, 0, 1.0, 0.0, 3, 5)
    spaces = raffle._arrays.kind_of(gpu).workspaces
    for after in (0, 1, 1, 0):
        same(raffle._core.quick(spaces, gpu, numbers, None, None, 0, after), raffle.sample(logits, *numbers))


def test_prepared_calls_read_arrays_anew():
    logits = rows(6)
    gpu, temperature = far(logits), far(np.full(6, 0.8, np.float32))
    call = raffle.prepare(gpu, temperature, 20, seed=2**64 - 2, position=2**64 - 2, advance=True)
    for step in range(6):
        at = dict(seed=2**64 - 2, position=(2**64 - 2 + step) % 2**64)
        same(call(), raffle.sample(logits, float(np.float32(0.8 + step)), 20, **at))
        write(temperature, np.full(6, 0.8 + step + 1, np.float32))
        logits = rows(6, seed=step)
        write(gpu, logits)
        if step > 3:
            same(call(), raffle.sample(logits, float(np.float32(0.8 + step + 1)), 20, **{**at, "position": (at["position"] + 1) % 2**64}))
            break
    calls = [raffle.prepare(gpu, seed=i, advance=True) for i in range(5)]
    for step in range(3):
        for i, call in enumerate(calls):
            same(call(), raffle.sample(logits, seed=i, position=step))


def test_a_call_that_is_prepared_while_a_graph_is_captured():
    logits = rows(4)
    gpu, out = far(logits), far(np.zeros(4, np.int32))

    def work():
        call = raffle.prepare(gpu, 0.7, seed=3, out=out, advance=True, stream=current())
        call(), call()
        return call

    call, replay = capture(work)
    for _ in range(2):
        replay()  # positions begin at 0 each time, since the graph has that in it too
        same(out, raffle.sample(logits, 0.7, seed=3, position=1))
    write(out, np.full(4, -7, np.int32))
    with pytest.raises(RuntimeError, match="prepared while a graph was captured, and runs in that graph alone"):
        call()  # its numbers are written by replays, and are those of the last one
    assert near(out).tolist() == [-7] * 4


@pytest.mark.skipif(TORCH, reason="the other stream is used while one is captured, which torch does not allow")
def test_the_stream_of_one_run_is_not_that_of_the_next():
    logits = rows(4)
    call = raffle.prepare(far(logits), seed=3, advance=True, stream=0)

    def work():
        call(current())  # is in the graph
        return call()  # runs now, in the stream that prepare() was told

    drawn, replay = capture(work)
    same(drawn, raffle.sample(logits, seed=3))
    replay()
    same(drawn, raffle.sample(logits, seed=3, position=1))
    same(call(), raffle.sample(logits, seed=3, position=2))


# ---- Sampler -------------------------------------------------------------------------------------------------------------


class Both:
    """A sampler here and one there, to which the same happens."""

    def __init__(self, slots, **words):
        self.here, self.there = raffle.Sampler(slots, **words), raffle.Sampler(slots, like=far(rows(1)), **words)

    def __getattr__(self, name):
        def call(*arguments, **words):
            one, other = getattr(self.here, name)(*arguments, **words), getattr(self.there, name)(*arguments, **words)
            assert one == other
            return one

        return call

    def sample(self, logits, slots=None, **words):
        wanted = self.here.sample(logits, slots, **words)
        same(self.there.sample(far(logits), slots, **words), wanted)
        return wanted


def filled(both, count):
    slots = [both.add(seed=100 + i, position=i, **MORE[i % len(MORE)]) for i in range(count)]
    for i in slots:
        both.set_prompt(i, said(count, 9)[i])
    return slots


def test_fifty_steps_of_mixed_requests():
    both = Both(40, vocab=VOCAB, history_max=200)
    slots = filled(both, 30)
    rng = np.random.default_rng(0)
    for step in range(50):
        chosen = rng.permutation(slots)[: rng.integers(1, len(slots) + 1)].tolist()
        both.sample(rows(len(chosen), 50 + step), chosen, accept=step % 10 != 9)
        if step % 5 == 0:
            gone = slots.pop(int(rng.integers(len(slots))))
            both.remove(gone)
            slots.append(both.add(seed=step, **MORE[step % len(MORE)]))
            both.set(slots[0], temperature=0.5 + step / 50, banned_token_ids=list(range(step)), presence_penalty=None)
            both.set(slots[1], logit_bias={step: 3.0})
        if step % 7 == 0:
            both.accept(slots[2], [step, 3, 3, -1, 5])
            both.truncate(slots[2], 1)
            both.reset(slots[3])
            if len(slots) < 38:
                slots.append(both.fork(slots[4], seed=step))
    for slot in slots:
        both.history(slot)
        both.get(slot)
    assert sum(len(both.history(slot)[1]) for slot in slots) > 500


def test_reports_of_a_sampler():
    both = Both(8, vocab=VOCAB, history_max=64)
    filled(both, 5)
    logits = rows(5)
    why = refused(lambda: both.there.sample(far(logits), logprobs=3, accept=False), "report", "REPORT")
    if why:
        pytest.skip(why)
    both.here.sample(logits, logprobs=3, accept=False)  # which moved the positions
    for mode in ("raw_logprobs", "processed_logprobs"):
        found, told = both.there.sample(far(logits), logprobs=3, logprobs_mode=mode)
        wanted, wanted_told = both.here.sample(logits, logprobs=3, logprobs_mode=mode)
        same(found, wanted)
        same_report(told, wanted_told)


def test_a_graph_goes_on_by_itself():
    """Positions and histories advance in the graph; what add() and set() change is seen by the next replay."""
    both = Both(16, vocab=VOCAB, history_max=100)
    slots = filled(both, 10)
    logits = rows(10)
    gpu, order = far(logits), far(np.array(slots[::-1], np.int32))
    both.sample(logits, slots[::-1])  # warm
    drawn, replay = capture(lambda: both.there.sample(gpu, order))
    for step in range(20):
        if step == 8:
            both.remove(slots[5])
            assert both.add(seed=77, banned_token_ids=list(range(0, VOCAB, 2)), presence_penalty=1.0) == slots[5]
        if step == 14:
            both.set(slots[0], logit_bias={i: i / 100 for i in range(300)}, repetition_penalty=1.5)
            both.set_prompt(slots[1], [4, 9, 4])
        replay()
        same(drawn, both.here.sample(logits, slots[::-1]))
    for slot in slots:
        both.history(slot)


def test_a_prepared_call_of_a_sampler():
    both = Both(16, vocab=VOCAB, history_max=100)
    slots = filled(both, 6)
    logits = rows(6)
    call = both.there.prepare(far(logits), slots)
    for step in range(3):
        same(call(), both.here.sample(logits, slots))
    drawn, replay = capture(lambda: call(current()))
    for step in range(5):
        replay()
        same(drawn, both.here.sample(logits, slots))
    both.there.remove(slots[2])
    with pytest.raises(ValueError, match=f"slot {slots[2]} has no request"):
        call()


def test_slots_of_a_prepared_call_stay():
    both = Both(8)
    slots = [both.add(seed=50 + i, temperature=0.9) for i in range(8)]
    logits = rows(3)
    call = both.there.prepare(far(logits), slots[:3])
    both.sample(logits, slots[5:])  # which has a list of slots, too
    same(call(), both.here.sample(logits, slots[:3]))
    both.sample(logits, slots[4:7])
    same(call(), both.here.sample(logits, slots[:3]))


def test_rows_that_share_a_slot():
    """Both draw at its position, which then advances by two."""
    both = Both(4)
    slots = [both.add(seed=i, position=10 * i) for i in range(4)]
    logits = rows(4)
    for _ in range(3):
        both.sample(logits, [slots[1], slots[1], slots[3], slots[1]])
        both.sample(logits)
    assert [both.get(slot)["position"] for slot in slots] == [3, 10 + 12, 23, 36]


def test_what_a_graph_would_ignore_is_refused():
    both = Both(4)
    slots = [both.add(seed=i, top_k=9) for i in range(4)]
    logits = rows(4)
    gpu = far(logits)
    both.sample(logits)
    drawn, replay = capture(lambda: both.there.sample(gpu))
    replay()
    same(drawn, both.here.sample(logits))
    both.set(slots[1], temperature=0.3)
    replay()
    same(drawn, both.here.sample(logits))
    with pytest.raises(RuntimeError, match="a graph was captured when no request asked for more"):
        both.there.set(slots[0], presence_penalty=1.0)
    assert "presence_penalty" not in both.there.get(slots[0])
    later = raffle.Sampler(4, like=gpu)  # without histories, and before any capture, everything else can be asked for
    later.add(seed=1, banned_token_ids=[2])
    assert near(later.sample(far(logits[:1])))[0] == raffle.sample(logits[:1], seed=[1], banned_token_ids=[2])[0]


def test_changing_requests_while_a_graph_is_captured_is_refused():
    sampler = raffle.Sampler(4, like=far(rows(1)), vocab=VOCAB, history_max=10)
    slot, errors = sampler.add(seed=1), []

    def work():
        for call in (lambda: sampler.set(slot, top_k=3), lambda: sampler.set_prompt(slot, [1]), lambda: sampler.history(slot),
                     lambda: sampler.get(slot), lambda: sampler.add()):
            with pytest.raises(RuntimeError, match="while a graph is captured") as raised:
                call()
            errors.append(raised)
        return sampler.sample(gpu, [slot])

    gpu = far(rows(1))
    sampler.sample(gpu, [slot])
    _, replay = capture(work)
    replay()
    assert len(errors) == 5 and sampler.get(slot)["top_k"] == 0 and len(sampler.history(slot)[1]) == 2


def test_a_history_without_room():
    sampler = raffle.Sampler(3, like=far(rows(1)), vocab=VOCAB, history_max=5)
    full, other = sampler.add(seed=1, presence_penalty=1.0), sampler.add(seed=2, presence_penalty=1.0)
    sampler.set_prompt(full, [1, 2, 3, 4])
    gpu = far(rows(2))
    flags = [near(sampler.sample(gpu, [full, other], return_flags=True)[1]).tolist() for _ in range(3)]
    assert flags == [[0, 0], [0, 0], [raffle.ROW_STATE, 0]]
    assert len(sampler.history(full)[1]) == 1 and len(sampler.history(other)[1]) == 3
    sampler.set_prompt(full, [7])
    assert near(sampler.sample(gpu, [full, other], return_flags=True)[1]).tolist() == [0, 0]


def test_errors():
    logits = rows(2)
    sampler = raffle.Sampler(3, like=far(logits), vocab=VOCAB, history_max=8)
    slot = sampler.add(seed=1)
    before = sampler.get(slot)
    for call, sentence in (
        (lambda: sampler.set_prompt(slot, [1, VOCAB]), f"token 1 of slot 0 is {VOCAB}: must be 0 to {VOCAB - 1}"),
        (lambda: sampler.set_prompt(slot, [-1]), "token 0 of slot 0 is -1"),
        (lambda: sampler.set_prompt(slot, [1] * 9), "slot 0 has 9 tokens: its history has room for 8"),
        (lambda: sampler.accept(slot, [VOCAB]), f"token 0 of slot 0 is {VOCAB}"),
        (lambda: sampler.truncate(slot, -1), "count is -1"),
        (lambda: sampler.set(slot, banned_token_ids=[VOCAB]), "banned"),
        (lambda: sampler.set(slot, temperature=-1), "temperature"),
        (lambda: sampler.sample(far(logits), [slot, 1]), "slot 1 has no request"),
        (lambda: sampler.sample(far(logits), [slot, 3]), "slot 3 has no request"),
        (lambda: sampler.sample(far(rows(4))), "slot 1 has no request"),
        (lambda: sampler.sample(far(rows(1, vocab=5)), [slot]), "vocab is 700: that of the logits is 5"),
        (lambda: sampler.sample(logits, [slot, slot]), "make it with like=logits"),
        (lambda: raffle.Sampler(2, vocab=VOCAB).sample(far(logits)), "make it with like=logits"),
        (lambda: raffle.Sampler(2, like=far(logits), history_max=3), "histories need both"),
        (lambda: raffle.Sampler(2, like=far(logits), vocab=9, history_max=2**21), "history_max"),
        (lambda: raffle.sample(far(logits), output_token_ids=[[1], [VOCAB]], presence_penalty=1.0), f"is {VOCAB}"),
        (lambda: raffle.sample(far(logits), logit_bias={VOCAB: 1.0}), "bias"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    assert sampler.get(slot) == before and sampler.history(slot) == ([], [])
    assert set(near(sampler.sample(far(logits), far(np.array([slot, 9], np.int32)), return_flags=True)[1]).tolist()) == {0, raffle.ROW_ARGUMENT}
    with pytest.raises(ValueError, match="twice"):
        sampler.sample(far(rows(4)), [slot] * 4)


def test_the_pool_itself_cannot_be_misused():
    from raffle._core import Requests

    pool = Requests(2, VOCAB, 4, True)
    memory = far(np.zeros(pool.device_bytes(-1), np.uint8))
    for call in (lambda: pool.place(memory[: pool.device_bytes(-1) - 1], 0), lambda: pool.place(np.zeros(10**6, np.uint8), 0),
                 lambda: pool.put(0, None, True, 0), lambda: pool.position(0, 0), lambda: pool.idle(0),
                 lambda: pool.change("reset", [0], None, None, 0, memory, 0)):
        with pytest.raises(ValueError):
            call()
    pool.place(memory, 0)
    pool.set(0, {"banned_token_ids": [1, 2]}, -1, True)
    for call in (lambda: pool.put(0, None, True, 0), lambda: pool.put(0, far(np.zeros(4, np.uint8)), True, 0), lambda: pool.put(2, None, True, 0),
                 lambda: pool.change("reset", [0], None, None, 0), lambda: pool.change("reset", [5], None, None, 0, memory, 0),
                 lambda: pool.change("accept", [0], [1, 2, 3], None, 3, far(np.zeros(3, np.int32)), 0)):
        with pytest.raises((ValueError, TypeError)):
            call()


@pytest.mark.skipif(not TORCH, reason="the emulated GPU has one stream")
def test_samplers_of_many_threads():
    import torch

    logits = rows(6)
    wrong = []

    def work(number):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                both = Both(8, vocab=VOCAB, history_max=64)
                slots = [both.add(seed=number * 10 + i, **MORE[(number + i) % len(MORE)]) for i in range(6)]
                for _ in range(30):
                    both.sample(logits, slots)
                    words = dict(seed=number, banned_token_ids=[number], output_token_ids=said(6, number), presence_penalty=0.5)
                    same(raffle.sample(far(logits), **words), raffle.sample(logits, **words))
        except BaseException as error:  # noqa: BLE001 - told by the assertion below
            wrong.append(error)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_does_not_grow():
    logits = rows(4)
    gpu = far(logits)
    target, drafts = far(np.stack([logits, logits], 1)), far(logits.argmax(-1).astype(np.int32)[:, None])
    sampler = raffle.Sampler(4, like=gpu, vocab=VOCAB, history_max=50)

    def round_of_requests(number):
        slots = [sampler.add(seed=i, banned_token_ids=list(range(number % 50 + 1)), presence_penalty=1.0) for i in range(4)]
        sampler.set_prompt(slots[0], [1, 2, 3])
        sampler.sample(gpu, slots)
        sampler.verify(target, drafts, slots, draft_logits=gpu, logprobs=1)
        sampler.set(slots[1], logit_bias={i: 1.0 for i in range(number % 20)})
        raffle.sample(gpu, logit_bias={1: 2.0}, output_token_ids=[[1]] * 4, presence_penalty=1.0, seed=1)
        raffle.prepare(gpu, seed=1, banned_token_ids=[1])()
        for slot in slots:
            sampler.remove(slot)

    for number in range(100):
        round_of_requests(number)
    gc.collect()
    before = used()
    for number in range(50 if EMULATED else 500):
        round_of_requests(number + 50)
    round_of_requests(99)
    gc.collect()
    assert used() <= before


# ---- drafts --------------------------------------------------------------------------------------------------------------


def gone(words):
    return {name: far(value) if isinstance(value, np.ndarray) else value for name, value in words.items()}


def test_drafts():
    target, draft = rows(6 * 5, 8).reshape(6, 5, VOCAB), rows(6 * 4, 9).reshape(6, 4, VOCAB)
    target[:, :4] = target[:, :4] * np.float32(0.3) + draft
    drafts = np.stack([raffle.sample(draft[i], seed=i, temperature=0.8, top_k=50) for i in range(6)]).astype(np.int32)
    probs = raffle.softmax(draft.reshape(-1, VOCAB), 0.8, 50).reshape(draft.shape)
    of_drafts = dict(draft_logits=draft, draft_params=dict(temperature=0.8, top_k=50))
    for words in (dict(draft_probs=probs), dict(draft_probs=probs, method="block"), of_drafts,
                  dict(of_drafts, draft_params=dict(temperature=[0.8] * 6, top_k=[50] * 6)), dict(), dict(method="match")):
        wanted = raffle.verify(target, drafts, 0.9, top_p=0.95, seed=1, **words)
        for given in (far(drafts), far(drafts.astype(np.int64)) if TORCH else drafts, drafts):
            found = raffle.verify(far(target), given, 0.9, top_p=0.95, seed=1, **gone(words))
            for one, other in zip(found[:3], wanted[:3]):
                same(one, other)
    first = np.array([0, 4, 4, 7, 12, 20, 24], np.int32)
    wanted = raffle.verify(target.reshape(-1, VOCAB), drafts.reshape(-1), 0.9, seed=2, first=first, draft_probs=probs.reshape(-1, VOCAB))
    for given in (first, first.tolist(), far(first)):
        found = raffle.verify(far(target.reshape(-1, VOCAB)), far(drafts.reshape(-1)), 0.9, seed=2, first=given,
                              draft_probs=far(probs.reshape(-1, VOCAB)))
        same(found.tokens, wanted.tokens)
    asked = dict(seed=3, temperature=0.7, repetition_penalty=1.2, frequency_penalty=0.3, banned_token_ids=[1, 5], logit_bias={3: 2.0},
                 output_token_ids=said(6, 5), min_tokens=4, stop_token_ids=[2], logprobs=2, kept=-1)
    for words in (dict(of_drafts), dict(), dict(method="match"), dict(draft_probs=probs, logprobs_mode="processed_logprobs")):
        wanted, found = raffle.verify(target, drafts, **asked, **words), raffle.verify(far(target), far(drafts), **asked, **gone(words))
        for one, other in zip(found[:4], wanted[:4]):
            same(one, other)
        same_report(found.report, wanted.report)
    with pytest.raises(ValueError, match="draft temperature of row 0 is -1"):
        raffle.verify(far(target), far(drafts), draft_logits=far(draft), draft_params=dict(temperature=-1))


class Gone:
    """An array whose memory was freed."""

    def __init__(self, shape, typestr):
        self.shape = shape
        self.__cuda_array_interface__ = dict(shape=shape, typestr=typestr, data=(0, False), version=3)


def test_wrong_arrays():
    """What the host can see is an error, what only the GPU sees a flag; and nothing comes back that nobody wrote."""
    logits, target, drafts = far(rows(4)), far(rows(4).reshape(2, 2, VOCAB)), np.array([[3], [4]], np.int32)
    for call, sentence in (
        (lambda: raffle.sample(logits, Gone((4,), "<f4"), seed=1), "temperature has no memory: it was freed"),
        (lambda: raffle.sample(logits, seed=1, slot=Gone((4,), "<i4"), temperature=[1.0] * 4), "slot has no memory"),
        (lambda: raffle.sample(logits, seed=1, allow=Gone((4, 22), "<i4")), "allow has no memory"),
        (lambda: raffle.sample(logits, seed=1, out=Gone((4,), "<i4")), "out has no memory"),
        (lambda: raffle.sample(logits, seed=1, slot=[0, 1, 2, -1], temperature=[1.0] * 4), "slot of row 3 is -1: must be 0 to 3"),
        (lambda: raffle.sample(logits, seed=1, index=[0, 4]), "index of row 1 is 4: must be 0 to 3"),
        (lambda: raffle.verify(target, drafts - 5, seed=1), "draft 0 of request 0 is -2: must be -1 to 699"),
        (lambda: raffle.verify(target, drafts + VOCAB - 4, seed=1), "draft 0 of request 1 is 700: must be -1 to 699"),
        (lambda: raffle.verify(logits, np.zeros(2, np.int32), seed=1, first=[0, 3, 2]), r"first\[1\] is 3: must be 0 to 2"),
        (lambda: raffle.verify(logits, np.zeros(2, np.int32), seed=1, first=[1, 1, 2]), r"first\[0\] is 1: must be 0 to 0"),
        (lambda: raffle.verify(logits, np.zeros(2, np.int32), seed=1, first=[0, 1, 1]), r"first\[2\] is 1: must be 2 to 2"),
        (lambda: raffle.verify(logits.reshape(1, 4, VOCAB), np.zeros((1, 3), np.int32), seed=1, parent=[-1, 1, 0]),
         "parent of draft 1 of request 0 is 1: must be -1 to 0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    for place in ([0, -1, 4, 2**31 - 1], [0, -(2**31), 5, 7]):
        for words in (dict(index=far(np.array(place, np.int32))), dict(slot=far(np.array(place, np.int32)), temperature=[1.0] * 4)):
            token, flags = raffle.sample(logits, seed=1, return_flags=True, **words)
            assert near(token)[1:].tolist() == [-1] * 3 and near(flags)[1:].tolist() == [raffle.ROW_ARGUMENT] * 3
    for first in ([0, 50, 2], [0, -(2**31), 2], [2, 1, 0]):
        done = raffle.verify(logits, far(np.zeros(2, np.int32)), seed=1, first=far(np.array(first, np.int32)), logprobs=2, kept=-1)
        told = near(done.report.top_tokens)
        assert (near(done.report.kept_count)[near(done.tokens) < 0] == 0).all()
        assert ((-1 <= near(done.tokens)) & (near(done.tokens) < VOCAB)).all() and ((-1 <= told) & (told < VOCAB)).all()
        assert raffle.ROW_ARGUMENT in near(done.row_flags).tolist()


def test_requests_without_drafts():
    """As many as a plan has rows: `first` has one entry more."""
    for count in (15, 16, 17, 32):
        words = dict(seed=1, first=[0] * (count + 1))
        same(raffle.verify(far(rows(count)), far(np.zeros(0, np.int32)), **words).tokens,
             raffle.verify(rows(count), np.zeros(0, np.int32), **words).tokens)


def drafted(slots, each, rng):
    """(target rows [requests, each + 1, VOCAB], drafts [requests, each], draft rows) of which many stand; some requests have fewer."""
    rows_of = rows(len(slots) * (each + 1), int(rng.integers(1 << 30))).reshape(len(slots), each + 1, VOCAB)
    draft = rows_of[:, :each] * np.float32(0.9)
    drafts = draft.argmax(-1).astype(np.int32)
    drafts[rng.random(drafts.shape) < 0.2] = 3
    drafts[rng.random(drafts.shape) < 0.1] = -1
    return rows_of, drafts, draft


def same_verified(found, wanted):
    for one, other in zip(found[:4], wanted[:4]):
        same(one, other)
    assert (found.report is None) == (wanted.report is None)
    if found.report is not None:
        same_report(found.report, wanted.report)


@pytest.mark.parametrize("history", [True, False])
def test_drafts_of_a_sampler(history):
    """Positions go on by as many tokens as each request emits, histories by the tokens."""
    both = Both(40, **(dict(vocab=VOCAB, history_max=300) if history else {}))
    if history:
        slots = filled(both, 20)
    else:
        slots = [both.add(seed=i, top_k=30 + i, position=2**64 - 3) for i in range(20)]
    rng = np.random.default_rng(4)
    methods = (dict(), dict(method="match"), dict(method="block", draft_logits=1), dict(draft_probs=1, logprobs=2),
               dict(draft_logits=1, draft_params=1), dict(accept=False))
    for step in range(18):
        chosen = rng.permutation(slots)[: rng.integers(1, len(slots) + 1)].tolist()
        target, drafts, draft = drafted(chosen, step % 4, rng)
        words = dict(methods[step % len(methods)])
        for name, value in (("draft_logits", draft), ("draft_probs", raffle.softmax(draft.reshape(-1, VOCAB), 0.7)),
                            ("draft_params", dict(temperature=[0.5 + i / 20 for i in range(len(chosen))], top_k=40))):
            if name in words:
                words[name] = value
        if step in (5, 6):
            target[0, 0] = -np.inf  # nothing to draw
        order = far(np.array(chosen, np.int64 if TORCH else np.int32)) if step % 2 else chosen
        wanted = both.here.verify(target, drafts, chosen, **words)
        same_verified(both.there.verify(far(target), far(drafts) if step % 3 else drafts, order, **gone(words)), wanted)
        both.sample(rows(len(chosen), 500 + step), chosen)
    for slot in slots:
        both.get(slot)
        if history:
            both.history(slot)
    if history:
        assert sum(len(both.history(slot)[1]) for slot in slots) > 400


def test_drafts_of_a_sampler_in_a_graph():
    """Nothing waits, and a replay goes on where the last one ended."""
    both = Both(8, vocab=VOCAB, history_max=200)
    slots = filled(both, 6)[::-1]
    target, drafts, draft = drafted(slots, 3, np.random.default_rng(1))
    gpu = [far(array) for array in (target, drafts, draft, np.array(slots, np.int32))]

    def verify():
        return both.there.verify(gpu[0], gpu[1], gpu[3], draft_logits=gpu[2], logprobs=1)

    same_verified(verify(), both.here.verify(target, drafts, slots, draft_logits=draft, logprobs=1))
    made, replay = capture(verify)
    for step in range(6):
        replay()
        same_verified(made, both.here.verify(target, drafts, slots, draft_logits=draft, logprobs=1))
    for slot in slots:
        both.get(slot)
        both.history(slot)


def test_wrong_drafts_of_a_sampler():
    sampler = raffle.Sampler(3, like=far(rows(1)), vocab=VOCAB, history_max=5)
    full, other = sampler.add(seed=1, presence_penalty=1.0, top_k=1), sampler.add(seed=2, presence_penalty=1.0)
    sampler.set_prompt(full, [1, 2, 3])
    target = rows(6).reshape(2, 3, VOCAB)
    drafts = target[:, :2].argmax(-1).astype(np.int32)
    before = sampler.get(full), sampler.get(other)
    for call, sentence in (
        (lambda: sampler.verify(far(target), drafts, [full, 2]), "slot 2 has no request"),
        (lambda: sampler.verify(far(target), drafts, 1), "slot must have an entry per row"),
        (lambda: sampler.verify(far(target), drafts, [other, other]), "slot 1 of row 1 is out of range, or in this call twice"),
        (lambda: sampler.verify(far(target), drafts[:, 0], [full, other]), r"drafts must be \[requests, each\]"),
        (lambda: sampler.verify(far(target), drafts[:1], [full]), r"logits have shape \(2, 3, 700\): must be \(1, 3, 700\)"),
        (lambda: sampler.verify(target, drafts, [full, other]), "make it with like=logits"),
        (lambda: raffle.Sampler(2).verify(far(target), drafts, [full, other]), "make it with like=logits"),
        (lambda: sampler.verify(far(rows(8)), np.zeros((4, 1), np.int32), far(np.zeros(4, np.int32))), "no slot may be there twice"),
        (lambda: sampler.verify(far(target), drafts, [full, other], draft_logits=far(target[:, :2]),
                                draft_params=dict(temperature=[1.0] * 3)), "draft temperature has 3 entries"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    assert (sampler.get(full), sampler.get(other)) == before and sampler.history(full) == ([1, 2, 3], [])
    done = sampler.verify(far(target), far(drafts), [full, other])  # three tokens, where there is room for two
    assert near(done.accepted)[0] == 2 and not near(done.row_flags)[0].any()
    assert sampler.history(full) == ([1, 2, 3], []) and len(sampler.history(other)[1]) == near(done.accepted)[1] + 1
    flags = near(sampler.sample(far(rows(2)), [full, other], return_flags=True)[1]).tolist()
    assert flags == [raffle.ROW_STATE, 0]
