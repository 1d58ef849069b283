"""Prepared calls: the same tokens, arrays read in place."""
import numpy as np
import pytest
import raffle

ROWS, VOCAB = 4, 500


@pytest.fixture
def logits():
    return np.random.default_rng(3).normal(0, 2, (ROWS, VOCAB)).astype(np.float32)


def test_steps(logits):
    call = raffle.prepare(logits, 0.8, top_p=0.9, seed=[1, 2, 3, 4], advance=True)
    for step in range(10):
        logits += np.float32(0.01) * step
        drawn = call()
        assert (drawn == raffle.sample(logits, 0.8, top_p=0.9, seed=[1, 2, 3, 4], position=step)).all()


def test_arrays_are_read_at_every_call(logits):
    temperature, position = np.ones(ROWS, np.float32), np.zeros(ROWS, np.uint64)
    out = np.zeros(ROWS, np.int32)
    call = raffle.prepare(logits, temperature, seed=5, position=position, out=out)
    assert call() is out
    temperature[:] = 0
    assert (call() == logits.argmax(1)).all()
    temperature[:] = 1.5
    position += np.uint64(9)
    assert (call() == raffle.sample(logits, 1.5, seed=5, position=9)).all()
    temperature[2] = -1
    with pytest.raises(ValueError, match="temperature of row 2"):
        call()


def test_advance_writes_the_callers_positions(logits):
    position = np.array([3, 0, 7, 2**64 - 1], np.uint64)
    call = raffle.prepare(logits, seed=1, position=position, advance=True)
    call()
    call()
    assert position.tolist() == [5, 2, 9, 1]
    slots = np.zeros(9, np.uint64)
    call = raffle.prepare(logits, seed=1, position=slots, slot=[8, 0, 3, 3], advance=True)
    call()
    assert slots.tolist() == [1, 0, 0, 2, 0, 0, 0, 0, 1]


def test_an_error_advances_nothing(logits):
    temperature, position = np.full(ROWS, -1, np.float32), np.zeros(ROWS, np.uint64)
    call = raffle.prepare(logits, temperature, seed=1, position=position, advance=True)
    with pytest.raises(ValueError):
        call()
    assert not position.any()


def test_what_cannot_be_read_in_place_is_refused(logits):
    for words, sentence in ((dict(temperature=np.ones(ROWS)), "temperature: a prepared call reads arrays in place"),
                            (dict(position=np.zeros(ROWS, np.int32)), "position: a prepared call"),
                            (dict(top_k=np.ones(2 * ROWS, np.int32)[::2]), "top_k: a prepared call"),
                            (dict(allow=np.ones((ROWS, VOCAB), bool)), "allow: a prepared call")):
        with pytest.raises(TypeError, match=sentence):
            raffle.prepare(logits, seed=1, **words)
    with pytest.raises(ValueError, match="every call would draw the same"):
        raffle.prepare(logits)
    position = np.zeros(ROWS, np.uint64)
    position.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        raffle.prepare(logits, seed=1, position=position, advance=True)


def test_one_row_and_a_mask(logits):
    mask = raffle.pack_mask(np.arange(VOCAB)[None] % 7 == 3)[0]
    call = raffle.prepare(logits[1], seed=3, allow=mask, advance=True)
    assert all(int(call()) % 7 == 3 for _ in range(20))


def test_reports(logits):
    """The report's arrays are written anew by every call; they are those of sample()."""
    words = dict(top_k=20, seed=1, logprobs=3, logprob_token_ids=[5, 600], logprobs_mode="processed_logprobs", presence_penalty=0.5,
                 output_token_ids=[[7]] * ROWS)
    call = raffle.prepare(logits, advance=True, **words)
    arrays = None
    for step in range(5):
        token, told = call()
        wanted, wanted_told = raffle.sample(logits, position=step, **words)
        assert (token == wanted).all()
        for one, other in zip(told, wanted_told):
            assert one is other is None or np.array_equal(one, other, equal_nan=True)
        assert arrays is None or all(one is other for one, other in zip(told, arrays))
        arrays = told
        logits += np.float32(0.1)
    with pytest.raises(ValueError, match="logprobs is 2000"):
        raffle.prepare(logits, seed=1, logprobs=2000)
    sampler = raffle.Sampler(ROWS)
    for seed in range(ROWS):
        sampler.add(seed=seed)
    token, told = sampler.prepare(logits, logprobs=1)()
    wanted, wanted_told = raffle.sample(logits, seed=list(range(ROWS)), logprobs=1)
    assert (token == wanted).all() and np.array_equal(told.top_logprobs, wanted_told.top_logprobs)


def test_arguments_of_the_call(logits):
    call = raffle.prepare(logits, seed=1)
    with pytest.raises(TypeError, match="a prepared call takes no keywords"):
        call(position=1)
    with pytest.raises(TypeError, match="a prepared call takes a stream, or nothing: 2 arguments were given"):
        call(None, 1)
    for stream in (1, 0, "x"):
        with pytest.raises(ValueError, match="stream is for a GPU: the logits are on the CPU"):
            call(stream)
    assert call(None).tolist() == call().tolist()


def test_memory_that_was_given_back(logits):
    """numpy lets go of an array's memory when told not to look at references: the next call says so, and reads nothing."""
    big = np.zeros((64, 50000), np.float32)  # its pages go back to the system: reading them would end the process
    call = raffle.prepare(big, seed=1)
    call()
    with pytest.raises(ValueError):
        big.resize((1, 1))  # the call has it
    big.resize((1, 1), refcheck=False)
    with pytest.raises(ValueError, match="logits: the array is not what it was at prepare"):
        call()
    for name, array in (("out", np.zeros(ROWS, np.int32)), ("temperature", np.ones(ROWS, np.float32)),
                        ("position", np.zeros(ROWS, np.uint64)), ("slot", np.zeros(ROWS, np.int32)),
                        ("index", np.zeros(ROWS, np.int32)), ("allow", np.full((ROWS, 16), -1, np.int32))):
        words = {"seed": [1] * ROWS, name: array}
        call = raffle.prepare(logits, **words)
        call()
        array.resize((1,) * array.ndim, refcheck=False)
        with pytest.raises(ValueError, match=f"{name}: the array is not what it was"):
            call()
    call = raffle.prepare(logits, seed=1, logprobs=2)
    told = call()[1]
    told.top_tokens.resize((1, 1), refcheck=False)
    with pytest.raises(ValueError, match="report: the array is not what it was"):
        call()
