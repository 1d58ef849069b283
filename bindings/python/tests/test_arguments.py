"""What is wrong is said, and nothing is written."""
import array
import mmap

import numpy as np
import pytest
import raffle

GOOD = np.zeros((3, 8), np.float32)


@pytest.mark.parametrize("words, error, sentence", [
    (dict(temperature=-1), ValueError, "temperature of row 0 is -1: must be 0 or more"),
    (dict(temperature=[1, 1, float("nan")]), ValueError, "temperature of row 2 is"),
    (dict(top_p=float("nan")), ValueError, "top_p of row 0 is NaN"),
    (dict(min_p=float("nan")), ValueError, "min_p of row 0 is NaN"),
    (dict(temperature="hot"), TypeError, "temperature must be a number"),
    (dict(temperature=True), TypeError, "temperature is True"),
    (dict(temperature=[1, 2]), ValueError, "temperature has 2 entries: must be 3"),
    (dict(temperature=np.ones(4)), ValueError, "temperature has 4 entries: must be 3"),
    (dict(temperature=np.ones((3, 1))), ValueError, "temperature has 2 axes"),
    (dict(temperature=np.ones(3, complex)), TypeError, "temperature"),
    (dict(temperature=[1, None, 2]), TypeError, "temperature must be a number"),
    (dict(top_k=1.5), TypeError, "top_k must be an integer"),
    (dict(top_k=np.ones(3)), TypeError, "top_k has dtype float64: must be int32"),
    (dict(seed=1.0), TypeError, "seed must be an integer"),
    (dict(seed=2**64), ValueError, "seed is 18446744073709551616: must be within 64 bits"),
    (dict(seed=-(2**63) - 1), ValueError, "seed is"),
    (dict(seed=[1, 2]), ValueError, "seed has 2 entries"),
    (dict(position=None), TypeError, "position must be an integer"),
    (dict(slot=[0, 0]), ValueError, "slot has 2 entries"),
    (dict(slot=0), ValueError, "slot must have an entry per row"),
    (dict(slot=[0, 0, 0]), ValueError, "no parameter is an array of slots"),
    (dict(slot=[0, 0, 0], seed=[1, 2], position=[1, 2, 3]), ValueError, "position has 3 entries where another parameter has 2"),
    (dict(index=[0, 3]), ValueError, "index of row 1 is 3: must be 0 to 2"),
    (dict(index=[0, -1]), ValueError, "index of row 1 is -1"),
    (dict(index=1), ValueError, "index must have an entry per result"),
    (dict(index=[0.5]), TypeError, "index must be an integer"),
    (dict(index=[0, 1], seed=[1, 2, 3]), ValueError, "seed has 3 entries: must be 2"),
    (dict(probs=True, temperature=0.5), ValueError, "temperature"),
    (dict(flags=64), ValueError, "flags has unknown bits: 0x40"),
    (dict(threads=0), ValueError, "threads is 0: must be 1 to 256"),
    (dict(threads=1000), ValueError, "threads is 1000"),
    (dict(threads=1.5), TypeError, "threads is 1.5: must be an integer"),
    (dict(threads=None), TypeError, "threads is None: must be an integer"),
    (dict(dtype="int8"), ValueError, "dtype is 'int8'"),
    (dict(dtype="bfloat16"), TypeError, "logits: dtype is float32, must be 16-bit integers where dtype= is given$"),
    (dict(allow=np.ones((3, 8))), TypeError, "allow has dtype float64"),
    (dict(allow=np.ones((3, 9), bool)), ValueError, "allow has 9 entries per row: the vocabulary has 8"),
    (dict(allow=np.ones((2, 8), bool)), ValueError, "allow must have"),
    (dict(allow=np.ones(8, bool)), ValueError, "allow must have two axes and 3 rows"),
    (dict(allow=np.ones((3, 0), np.int32)), ValueError, "allow has 0 words per row"),
    (dict(allow=np.ones((3, 4), np.int32)[:, ::2]), ValueError, "allow must be contiguous"),
    (dict(temperature=10**400), ValueError, "temperature is an integer beyond what a float can hold"),
    (dict(temperature=np.ones(3, ">f4")), TypeError, "temperature has elements of format '>f'"),
    (dict(seed=np.ones(3, ">i8")), TypeError, "seed has elements of format '>q'"),
    (dict(out=np.zeros(3, ">i4")), TypeError, "out has elements of format '>i'"),
    (dict(out=np.zeros(3, np.int32)[::-1]), ValueError, "out must be contiguous"),
    (dict(out=(np.zeros(3, np.int32),)), ValueError, "out has 1 entries: must be an array, or"),
    (dict(flags=2**70), ValueError, "flags is 1180591620717411303424: must be -2147483648 to 2147483647"),
    (dict(threads=2**70), ValueError, "threads is 1180591620717411303424: must be -2147483648 to"),
    (dict(stream=2**64), ValueError, "stream is 18446744073709551616: must be a CUDA stream's address"),
    (dict(stream="a"), TypeError, "stream is 'a'"),
    (dict(presence_penalty={1: 2.0}), TypeError, "presence_penalty is {1: 2.0}: must be a number"),
    (dict(logprob_token_ids=[[1]] * 2), ValueError, "logprob_token_ids has 2 rows: the logits have 3"),
    (dict(logprob_token_ids=[[1], [1, 2], [3]]), ValueError, "logprob_token_ids has rows of 1 and of 2 ids: must be [m] or [rows, m]"),
    (dict(logprob_token_ids=[[1, 2], np.array([1])]), ValueError, "logprob_token_ids has rows of 2 and of 1 ids"),
    (dict(logprob_token_ids=[[1], 2, [3]]), ValueError, "logprob_token_ids has rows of 1 and of no ids"),
    (dict(out=np.zeros(3, np.int64)), TypeError, "out has dtype int64: must be int32"),
    (dict(out=np.zeros(4, np.int32)), ValueError, "out must have 3 rows"),
    (dict(out=np.zeros((3, 1), np.int32)), ValueError, "out must have 3 rows"),
    (dict(out=np.zeros(6, np.int32)[::2]), ValueError, "out must be contiguous"),
    (dict(out=bytearray(3)), TypeError, "out has dtype uint8"),
    (dict(out=memoryview(bytes(12)).cast("i")), ValueError, "out is read-only"),
    (dict(out=[0, 0, 0]), TypeError, "out must be an array"),
    (dict(out=(np.zeros(3, np.int32), np.zeros(3, np.float32))), TypeError, "row_flags has dtype float32"),
])
def test_parameters(words, error, sentence):
    rows = len(words["index"]) if isinstance(words.get("index"), list) else 3
    out = words.pop("out", np.full(rows, 77, np.int32))
    with pytest.raises(error, match=sentence.replace("(", r"\(").replace("[", r"\[")):
        raffle.sample(GOOD, out=out, **words)
    if isinstance(out, np.ndarray) and out.dtype == np.int32:
        assert set(out.ravel().tolist()) <= {0, 77}


def test_read_only_output():
    out = np.zeros(3, np.int32)
    out.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match="read-only|readonly"):
        raffle.sample(GOOD, out=out)


@pytest.mark.parametrize("logits, error, sentence", [
    (np.zeros((2, 2, 2), np.float32), ValueError, "logits have 3 axes"),
    (np.float32(1), (ValueError, TypeError), "logits"),
    (np.zeros((3, 8)), TypeError, "logits: dtype is float64, must be float32, float16 or bfloat16"),
    (np.zeros((3, 8), np.uint16), TypeError, "logits: dtype is uint16"),
    (np.zeros((3, 8), ">f4"), (TypeError, BufferError), "logits"),
    (np.zeros((3, 0), np.float32), ValueError, "vocab is 0: must be 1 to 2097152"),
    (np.zeros((1, 2**21 + 1), np.float16), ValueError, "vocab is 2097153"),
    (np.zeros((3, 16), np.float32)[:, ::2], ValueError, "stride along the vocabulary"),
    (np.zeros((3, 8), [("a", "<f4"), ("b", "i1")])["a"], ValueError, "strides that are no multiple of its elements"),
    (np.asfortranarray(np.zeros((3, 8), np.float32)), ValueError, "stride along the vocabulary"),
    ([[1.0, 2.0]], TypeError, "logits must be an array"),
    (None, TypeError, "logits must be an array"),
    ("text", TypeError, "logits must be an array"),
    (b"text", TypeError, "logits: dtype is uint8"),
    (memoryview(array.array("f", range(8)))[::2], ValueError, "C-contiguous"),
])
def test_logits(logits, error, sentence):
    with pytest.raises(error, match=sentence):
        raffle.sample(logits)


def test_released_and_closed():
    view = memoryview(array.array("f", range(8)))
    view.release()
    with pytest.raises(ValueError):
        raffle.sample(view)
    memory = mmap.mmap(-1, 4096)
    view = memoryview(memory).cast("f")
    raffle.sample(view)
    view.release()
    memory.close()
    with pytest.raises(ValueError):
        raffle.sample(memory)


def test_a_buffer_cannot_move_while_a_prepared_call_has_it():
    row = array.array("f", range(8))
    call = raffle.prepare(row, seed=1)
    call()
    with pytest.raises(BufferError):
        row.append(1.0)
    del call
    row.append(1.0)


@pytest.mark.parametrize("capsule", [lambda **words: None, lambda **words: 7, lambda **words: 1 / 0])
def test_a_broken_exporter(capsule):
    class Broken:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **words):
            return capsule(**words)

    with pytest.raises((BufferError, TypeError, ZeroDivisionError)):
        raffle.sample(Broken())


@pytest.mark.parametrize("attribute", ["__array_struct__", "__cuda_array_interface__"])
def test_an_interrupt_is_not_swallowed(attribute):
    def broken(error):
        def get(self):
            raise error

        return type("Broken", (), {attribute: property(get)})()

    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            raffle.sample(broken(error))
    with pytest.raises(TypeError, match="DLPack, __array_struct__, __cuda_array_interface__ or a buffer"):
        raffle.sample(broken(ValueError))


def test_devices_that_are_neither_cpu_nor_cuda():
    class Elsewhere:
        def __init__(self):
            self.inner = GOOD

        def __dlpack_device__(self):
            return (8, 0)  # Metal

        def __dlpack__(self, **words):
            raise BufferError("not on this machine")

    with pytest.raises((BufferError, TypeError)):
        raffle.sample(Elsewhere())


def test_signature():
    for words in (dict(temp=1), dict(topk=1)):
        with pytest.raises(TypeError):
            raffle.sample(GOOD, **words)
    with pytest.raises(TypeError):
        raffle.sample()


def test_types_of_the_extension_cannot_be_made():
    from raffle import _core

    for kind in (_core.Plan, _core.Call):
        with pytest.raises(TypeError):
            kind()
    for function in (_core.sample, _core.prepare, _core.explain, _core.Workspaces):
        with pytest.raises((TypeError, SystemError)):
            function()


def test_jax_is_never_told_stream_minus_one(monkeypatch):
    """JAX takes any stream for a CUDA handle. Arrays of its own on a GPU go to a package that knows which stream to name."""
    from raffle import _arrays

    class Far:
        ndim = 1

        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **words):
            raise AssertionError(f"asked with {words}")

        def is_deleted(self):
            return False

    kind = _arrays.Jax.__new__(_arrays.Jax)
    kind._jax = type("jax", (), {"Array": Far, "core": type("core", (), {"Tracer": ()})})
    kind._there = type("Gpu", (), {"cast": staticmethod(lambda value, dtype: (value, dtype))})
    monkeypatch.setattr(kind, "_bridge", lambda value: "bridged", raising=False)
    assert kind.logits(Far(), -1) == ("bridged", -1)
    assert kind.cast(Far(), "int32") == ("bridged", "int32")
    assert kind.beside(Far()) == "bridged" and kind.beside(None) is None


ZERO_AXES = np.array(1.0, np.float32)


@pytest.mark.parametrize("call, error, sentence", [
    (lambda: raffle.sample(ZERO_AXES, banned_token_ids=[1]), ValueError, "logits have 0 axes"),
    (lambda: raffle.sample(ZERO_AXES, logprobs=1), ValueError, "logits have 0 axes"),
    (lambda: raffle.prepare(ZERO_AXES, seed=1, presence_penalty=1), ValueError, "logits have 0 axes"),
    (lambda: raffle.explain(ZERO_AXES), ValueError, "logits have 0 axes"),
    (lambda: raffle.softmax(ZERO_AXES), ValueError, "logits have 0 axes"),
    (lambda: raffle.mask(ZERO_AXES), ValueError, "logits have 0 axes"),
    (lambda: raffle.kept(ZERO_AXES), ValueError, "logits have 0 axes"),
    (lambda: raffle.kept_list(ZERO_AXES, 1), ValueError, "logits have 0 axes"),
    (lambda: raffle.verify(ZERO_AXES, np.zeros((1, 1), int)), ValueError, "logits have 0 axes"),
    (lambda: raffle.pack_mask(np.array(True)), ValueError, "mask has 0 axes"),
    (lambda: raffle.kept_list(GOOD, "x"), TypeError, "room is 'x'"),
    (lambda: raffle.explain(GOOD, row=2**70), ValueError, "row is 1180591620717411303424: must be within 64 bits"),
    (lambda: raffle.verify(GOOD, np.zeros((1, 2), int), draft_logits=1), TypeError, "draft_logits must be an array"),
    (lambda: raffle.verify(GOOD, np.zeros((1, 2), int), draft_probs="x"), TypeError, "draft_probs must be an array"),
    (lambda: raffle.verify(GOOD, np.zeros(2, int), first=[]), ValueError, "first must have an entry for each request, and one more"),
    (lambda: raffle.verify(GOOD, np.zeros(2, int), first=5), ValueError, "first must have an entry"),
    (lambda: raffle.Sampler(2**70), ValueError, "slots is 1180591620717411303424: must be at most 2147483647"),
    (lambda: raffle.Sampler("x"), TypeError, "slots is 'x': must be an integer"),
    (lambda: raffle.Sampler(1, vocab=8, history_max=None), TypeError, "history_max is None"),
    (lambda: raffle.Sampler(1).get("x"), TypeError, "slot is 'x'"),
    (lambda: raffle.sample(np.ma.masked_array(GOOD, GOOD == 0)), TypeError, "masked array"),
    (lambda: raffle.sample(GOOD, stream=5), ValueError, "stream is for a GPU: the logits are on the CPU"),
    (lambda: raffle.sample(GOOD, logit_bias={1.5: 2.0}), TypeError, "logit_bias has the key 1.5: must be a token's id"),
    (lambda: raffle.sample(GOOD, logit_bias={"a": 2.0}), TypeError, "logit_bias has the key 'a'"),
    (lambda: raffle.sample(GOOD, logprobs=1.0), TypeError, "logprobs is 1.0"),
    (lambda: raffle.verify(GOOD[0], np.zeros((1, 0), int)), ValueError, "logits have 1 axes: must be"),
    (lambda: raffle.verify(GOOD[None, None], np.zeros((1, 2), int)), ValueError, "logits have 4 axes: must be"),
    (lambda: raffle.verify(np.broadcast_to(GOOD[0], (1, 3, 8)), np.zeros((1, 2), int)), ValueError, "drafts need rows of their own"),
    (lambda: raffle.verify(GOOD, np.zeros((1, 2), int), draft_logits=GOOD[:2], draft_params=[1]), TypeError,
     "draft_params must be a dictionary"),
])
def test_of_every_function(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize("flags", ["joint", None, "", ["joint"], 1.0, True, np.ones(3, int)])
@pytest.mark.parametrize("call", [
    lambda flags: raffle.sample(GOOD, seed=1, flags=flags),
    lambda flags: raffle.sample(GOOD, seed=1, flags=flags, banned_token_ids=[1]),
    lambda flags: raffle.prepare(GOOD, seed=1, flags=flags),
    lambda flags: raffle.explain(GOOD, flags=flags),
    lambda flags: raffle.softmax(GOOD, flags=flags),
    lambda flags: raffle.mask(GOOD, flags=flags),
    lambda flags: raffle.kept(GOOD, flags=flags),
    lambda flags: raffle.kept_list(GOOD, 3, flags=flags),
    lambda flags: raffle.verify(GOOD, np.zeros((1, 2), int), seed=1, flags=flags),
    lambda flags: raffle.verify(GOOD, np.zeros((1, 2), int), seed=1, draft_logits=GOOD[:2], draft_params={"flags": flags}),
    lambda flags: raffle.Sampler(3, flags=flags),
])
def test_flags_that_are_none(call, flags):
    with pytest.raises(TypeError, match="flags is .*: must be an integer, as raffle.TOP_P_JOINT"):
        call(flags)


FAR = 2**40


def set_prompt(tokens):
    sampler = raffle.Sampler(1, vocab=8, history_max=8)
    sampler.set_prompt(sampler.add(), tokens)


@pytest.mark.parametrize("call, name", [
    (lambda far: raffle.sample(GOOD, index=far), "index"),
    (lambda far: raffle.sample(GOOD, slot=far, seed=[1, 2, 3]), "slot"),
    (lambda far: raffle.sample(GOOD, banned_token_ids=far), "banned_token_ids"),
    (lambda far: raffle.sample(GOOD, logit_bias={int(i): 1.0 for i in far}), "logit_bias"),
    (lambda far: raffle.sample(GOOD, presence_penalty=1, output_token_ids=[far] * 3), "tokens"),
    (lambda far: raffle.sample(GOOD, presence_penalty=1, prompt_token_ids=[far] * 3), "tokens"),
    (lambda far: raffle.verify(GOOD, np.array([far])[:, :2], seed=1), "drafts"),
    (lambda far: raffle.verify(GOOD, np.zeros(2, int), first=[0, 2, int(far[-1])], seed=1), "first"),
    (lambda far: raffle.verify(GOOD, np.zeros((1, 2), int), parent=far[:2], seed=1), "parent"),
    (set_prompt, "tokens"),
])
@pytest.mark.parametrize("far, number", [([0, FAR, FAR], FAR), (np.array([0, FAR, FAR]), FAR), ([0, 2**31, 2**31], 2**31),
                                         ([0, -(2**70), -(2**70)], -(2**70)), (np.array([0, 2**64 - 1, 2**64 - 1], np.uint64), 2**64 - 1)])
def test_ids_beyond_32_bits(call, name, far, number):
    """The number that was given is in the sentence, and none that it was made."""
    if name == "drafts" and number < -(2**63):
        pytest.skip("no array has it")
    with pytest.raises(ValueError, match=f"{name} is {number}: must be -2147483648 to 2147483647"):
        call(far)


def test_top_k_beyond_32_bits_is_off():
    wanted = raffle.sample(GOOD, seed=1).tolist()
    for top_k in (2**40, -(2**70), [2**70] * 3, np.full(3, 2**40), np.full(3, 2**64 - 1, np.uint64)):
        assert raffle.sample(GOOD, seed=1, top_k=top_k).tolist() == wanted


@pytest.mark.parametrize("call, sentence", [
    (lambda: raffle.sample(GOOD, logit_bias={8: 1.0}), r"^logit_bias\[0\] of row 0 is 8"),
    (lambda: raffle.sample(GOOD, logit_bias={1: float("nan")}), r"^logit_bias\[0\] of row 0 is nan"),
    (lambda: raffle.sample(GOOD, banned_token_ids=[8]), r"^banned_token_ids\[0\] of row 0 is 8"),
    (lambda: raffle.sample(GOOD, allowed_token_ids=[8]), r"^allowed_token_ids\[0\] of row 0 is 8"),
    (lambda: raffle.sample(GOOD, stop_token_ids=[8]), r"^stop_token_ids\[0\] of row 0 is 8"),
    (lambda: raffle.sample(GOOD, dry_sequence_breaker_ids=[8]), r"^dry_sequence_breaker_ids\[0\] of row 0 is 8"),
    (lambda: raffle.sample(GOOD, bad_words_token_ids=[[8]]), r"^bad_words_token_ids\[0\] of row 0 is 8"),
    (lambda: raffle.sample(GOOD, flags=64 | raffle.COUNT_PROMPT), "^flags of row 0 has unknown bits: 0x240"),
    (lambda: raffle.sample(GOOD, repetition_penalty=2.0), "^repetition_penalty of row 0 needs a history: give prompt_token_ids or"),
    (lambda: raffle.sample(GOOD, frequency_penalty=1.0), "^frequency_penalty of row 0 needs a history"),
    (lambda: raffle.sample(GOOD, presence_penalty=1.0), "^presence_penalty of row 0 needs a history"),
    (lambda: raffle.sample(GOOD, no_repeat_ngram_size=2), "^no_repeat_ngram_size of row 0 needs a history"),
    (lambda: raffle.sample(GOOD, bad_words_token_ids=[[1, 2]]), "^bad_words_token_ids of row 0 needs a history"),
    (lambda: raffle.sample(GOOD, probs=True, logprobs=1), "^logprobs, logprob_token_ids and kept are for logits, and probs is True"),
    (lambda: raffle.sample(GOOD, probs=True, banned_token_ids=[1]), "are for logits, and probs is True"),
    (lambda: raffle.softmax(GOOD, probs=True, banned_token_ids=[1]), "are for logits, and probs is True"),
    (lambda: raffle.softmax(GOOD, 0.5, probs=True), "^temperature is set, but probs is True"),
    (lambda: raffle.Sampler(1, vocab=8, history_max=2**30), "^history_max is 1073741824: must be 1 to 1048576"),
    (lambda: raffle.Sampler(1, vocab=2**22, history_max=8), "^vocab is 4194304: must be 1 to 2097152"),
    (lambda: raffle.verify(GOOD[:2], np.zeros(1, int), first=[0, 2], seed=1), r"^first\[1\] is 2"),
    (lambda: raffle.verify(GOOD, np.zeros((1, 2), int), parent=[-1, 0], method="block"), "^parent is set: method 'block' needs chains"),
    (lambda: raffle.verify(GOOD, np.zeros((1, 2), int), rate=0.5), "but for method 'synthetic'$"),
    (lambda: raffle.verify(GOOD, np.zeros((1, 2), int), draft_logits=GOOD[:2], method="match"), "does not use"),
    (lambda: raffle.verify(GOOD, np.zeros((1, 2), int), draft_logits=GOOD[:2], draft_params={"temperature": -1}), "of draft_params of"),
])
def test_names_are_those_of_python(call, sentence):
    with pytest.raises(ValueError, match=sentence) as raised:
        call()
    assert "RAFFLE_" not in str(raised.value) and "NULL" not in str(raised.value)


@pytest.mark.parametrize("words, sentence", [
    (dict(presence_penalty=1, prompt_token_ids=[[1], [2], [8]]), "token 0 of row 2 is 8"),
    (dict(presence_penalty=1, output_token_ids=[[1], [2], [3, 8]]), "token 1 of row 2 is 8"),
    (dict(presence_penalty=1, output_token_ids=[[1], [2], [2**40]]), "tokens is 1099511627776"),
    (dict(banned_token_ids=[[1], [2], [8]]), r"banned_token_ids\[0\] of row 2 is 8"),
    (dict(logit_bias=[None, {1: 1.0}, {1: float("nan")}]), r"logit_bias\[0\] of row 2 is nan"),
    (dict(presence_penalty=[0, 0, 9]), "presence_penalty is 9"),
    (dict(presence_penalty=[0, 0, 1]), "presence_penalty of row 2 needs a history"),
    (dict(temperature=[1, 1, -1]), "temperature of row 2 is -1"),
])
def test_the_row_is_that_of_the_batch(words, sentence):
    for call in (raffle.sample, raffle.softmax):
        with pytest.raises(ValueError, match=sentence) as raised:
            call(GOOD, **words)
        assert raised.value.row == 2


def test_the_request_is_that_of_the_batch():
    words = dict(banned_token_ids=[[1], [8]])
    with pytest.raises(ValueError, match=r"banned_token_ids\[0\] of request 1 is 8") as raised:
        raffle.verify(np.zeros((2, 3, 8), np.float32), np.zeros((2, 2), int), seed=1, **words)
    assert raised.value.row == 1


def test_a_sampler_names_slots():
    sampler = raffle.Sampler(3, vocab=8, history_max=4)
    sampler.add()
    slot = sampler.add()
    for call, sentence in ((lambda: sampler.add(banned_token_ids=[8]), r"^banned_token_ids\[0\] is 8: must be 0 to 7"),
                           (lambda: sampler.set(slot, banned_token_ids=[8]), r"^banned_token_ids\[0\] of slot 1 is 8"),
                           (lambda: sampler.set_prompt(slot, [1, 8]), "^token 1 of slot 1 is 8: must be 0 to 7"),
                           (lambda: sampler.set_prompt(slot, range(5)), "^slot 1 has 5 tokens: its history has room for 4"),
                           (lambda: sampler.accept(slot, 9), "^token 0 of slot 1 is 9"),
                           (lambda: sampler.truncate(slot, 1), "^count of slot 1 is 1: the output has 0 tokens"),
                           (lambda: sampler.truncate(slot, -1), "^count is -1: must be 0 or more")):
        with pytest.raises(ValueError, match=sentence) as raised:
            call()
        assert getattr(raised.value, "row", None) is None  # it has a slot, not a row
    with pytest.raises(TypeError, match="^count is 'x': must be an integer"):
        sampler.truncate(slot, "x")


def test_numbers_of_numpy():
    """A number is one, whoever made it; and what a key of JSON says."""
    assert raffle.sample(GOOD, seed=np.uint64(1), top_k=np.int8(2), logprobs=np.int64(2))[1].top_tokens.shape == (3, 2)
    wanted = raffle.sample(GOOD, temperature=0, logit_bias={3: 9.0})
    assert (raffle.sample(GOOD, temperature=0, logit_bias={np.int64(3): np.float32(9)}) == wanted).all()
    assert (raffle.sample(GOOD, temperature=0, logit_bias={"3": 9.0}) == wanted).all()
    sampler = raffle.Sampler(np.int64(2), vocab=np.int32(8), history_max=np.int64(9))
    slot = np.int64(sampler.add(seed=np.uint64(2**64 - 1)))
    sampler.set_prompt(slot, range(2))
    sampler.accept(slot, np.int64(5))
    sampler.accept(slot, iter([6, 7]))
    sampler.truncate(slot, np.int64(2))
    assert sampler.history(slot) == ([0, 1], [5]) and sampler.get(slot)["position"] == 1
    for tokens in (None, 1.5):
        with pytest.raises(TypeError, match="tokens must be ids"):
            sampler.set_prompt(slot, tokens)


def test_an_index_of_no_rows():
    """Memory that is not there is not read: an array of no rows has none."""
    for call in (raffle.sample, raffle.softmax, raffle.kept):
        with pytest.raises(ValueError, match="index has entries, and the logits have no rows"):
            call(np.zeros((0, 8), np.float32), index=[0])
    assert raffle.sample(np.zeros((0, 8), np.float32), index=[]).shape == (0,)


def test_no_rows():
    empty = np.zeros((0, 8), np.float32)
    token, flags, told = raffle.sample(empty, seed=[], return_flags=True, logprobs=2, logprob_token_ids=[1])
    assert token.shape == flags.shape == told.rank.shape == (0,) and told.top_tokens.shape == (0, 2) and told.given_ranks.shape == (0, 1)
    assert raffle.sample(empty, logprobs=-1)[1].all_logprobs.shape == raffle.softmax(empty).shape == raffle.mask(empty).shape == (0, 8)
    assert raffle.kept(empty).shape == (0, 1) and raffle.kept_list(empty, 3)[0].shape == (0, 3)
    assert raffle.prepare(empty, seed=1, advance=True)().shape == (0,)
    assert raffle.verify(np.zeros((0, 3, 8), np.float32), np.zeros((0, 2), int)).tokens.shape == (0, 3)


def test_strides_and_alignment():
    """Rows in any order, masks too, and memory at odd addresses."""
    rng = np.random.default_rng(1)
    rows, mask = rng.normal(0, 3, (4, 100)).astype(np.float32), raffle.pack_mask(rng.random((4, 100)) < 0.3)
    words = dict(seed=[1, 2, 3, 4])
    wanted = raffle.sample(rows, allow=mask, **words).tolist()

    def odd(array):
        moved = np.frombuffer(bytearray(array.nbytes + 1), array.dtype, offset=1).reshape(array.shape)
        moved[...] = array
        return moved

    out = odd(np.zeros(4, np.int32))
    for given, bits in ((rows, mask), (rows[::-1].copy()[::-1], mask[::-1].copy()[::-1]),
                        (np.repeat(rows, 3, 0)[::3], np.repeat(mask, 2, 0)[::2]), (odd(rows), odd(mask))):
        assert raffle.sample(given, allow=bits, seed=odd(np.array([1, 2, 3, 4])), out=out).tolist() == wanted
    one = np.broadcast_to(mask[0], mask.shape)  # one mask for all rows
    assert raffle.sample(rows, allow=one, **words).tolist() == raffle.sample(rows, allow=np.repeat(mask[:1], 4, 0), **words).tolist()
    with pytest.raises(TypeError, match="allow: a prepared call reads it in place"):
        raffle.prepare(rows, allow=one, **words)
    frozen = rows.copy()
    frozen.flags.writeable = False
    assert raffle.sample(frozen, allow=mask, **words).tolist() == wanted
    with pytest.raises(ValueError, match="out is read-only"):
        raffle.softmax(frozen, out=frozen)
