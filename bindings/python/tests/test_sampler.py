"""Sampler: slots from a request's first token to its last."""
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
    with pytest.raises(ValueError, match="logits have 5 rows"):
        sampler.sample(np.zeros((5, 8), np.float32))


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
    (dict(temperature=-1), ValueError, "temperature is -1.0: must be 0 or more"),
    (dict(temperature=float("nan")), ValueError, "temperature is nan"),
    (dict(top_p="x"), TypeError, "top_p is 'x'"),
    (dict(top_k=1.5), TypeError, "top_k is 1.5"),
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
