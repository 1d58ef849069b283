"""What sample() takes and returns."""
import array
import ctypes

import numpy as np
import pytest
import raffle

ROWS, VOCAB = 5, 1000


@pytest.fixture
def logits():
    return np.random.default_rng(7).normal(0, 3, (ROWS, VOCAB)).astype(np.float32)


class OnlyDLPack:
    """An array of a package that raffle has never heard of."""

    def __init__(self, inner, versioned=True):
        self.inner, self.versioned = inner, versioned

    def __dlpack_device__(self):
        return self.inner.__dlpack_device__()

    def __dlpack__(self, **words):
        if not self.versioned and "max_version" in words:
            raise TypeError("no such keyword: max_version")
        return self.inner.__dlpack__(**words)


def test_greedy_is_argmax(logits):
    assert (raffle.sample(logits, temperature=0) == logits.argmax(1)).all()
    assert (raffle.sample(logits, top_k=1) == logits.argmax(1)).all()
    assert (raffle.sample(logits, top_p=0) == logits.argmax(1)).all()


def test_a_row_alone_and_in_a_batch(logits):
    seeds = [11, 12, 13, 14, 15]
    batch = raffle.sample(logits, temperature=0.7, top_p=0.9, seed=seeds, position=3)
    for row in range(ROWS):
        assert raffle.sample(logits[row], temperature=0.7, top_p=0.9, seed=seeds[row], position=3) == batch[row]


def test_one_seed_is_a_seed_for_every_row(logits):
    same = np.repeat(logits[:1], 200, axis=0)
    drawn = raffle.sample(same, seed=9, position=4)
    assert len(set(drawn.tolist())) > 20
    assert (drawn == raffle.sample(same, seed=list(range(9, 209)), position=4)).all()
    top = 2**64 - 1
    assert (raffle.sample(same[:3], seed=top) == raffle.sample(same[:3], seed=[top, 0, 1])).all()


def test_no_seed_is_a_new_seed(logits):
    flat = np.zeros((8, 50000), np.float32)
    draws = {tuple(raffle.sample(flat).tolist()) for _ in range(50)}
    assert len(draws) == 50


def test_every_way_to_write_parameters(logits):
    given = dict(temperature=[0.5, 1.5, 0, 1, 0.9], top_k=[5, 0, -1, 50, 2**40], top_p=[0.9, 1, 0.5, 2, 0.1],
                 min_p=[0, 0.1, 0, 0.5, 0], seed=[1, 2, 3, 4, 2**63 + 5], position=[0, 1, 2, 3, 4])
    wanted = raffle.sample(logits, **given)
    narrow = [min(k, 2**31 - 1) for k in given["top_k"]]
    for name, ways in dict(
        temperature=[np.float32, np.float64],
        top_k=[lambda v: np.array(narrow, np.int32), np.int64, lambda v: np.array([max(k, 0) for k in v], np.uint64),
               lambda v: np.repeat(narrow, 2)[::2], lambda v: narrow],
        top_p=[np.float32, np.float64, lambda v: np.repeat(np.float32(v), 3)[::3], lambda v: array.array("d", v)],
        min_p=[np.float32, np.float64, lambda v: array.array("f", v)],
        seed=[np.uint64, lambda v: np.array(v, np.uint64).view(np.int64), lambda v: array.array("Q", v)],
        position=[np.uint64, np.int64, np.int32, np.uint8, np.int8, lambda v: array.array("h", v)],
    ).items():
        for way in [tuple, list, OnlyDLPack, *ways]:
            value = way(np.array(given[name], np.uint64 if name == "seed" else None)) if way is OnlyDLPack else way(given[name])
            assert (raffle.sample(logits, **{**given, name: value}) == wanted).all(), (name, value)
    for kind in (np.int8, np.int16, np.int64):  # negative: off
        assert (raffle.sample(logits, 100, top_k=np.full(ROWS, -1, kind), seed=90) == raffle.sample(logits, 100, seed=90)).all()
    halves = np.float16([0.5, 1.5, 0, 1, 6e-8])  # 6e-8 is subnormal in float16
    assert (raffle.sample(logits, halves, seed=1) == raffle.sample(logits, halves.astype(np.float32), seed=1)).all()
    for number in (0.5, np.float32(0.5), np.float64(0.5), np.array(0.5), np.float16(0.5)):
        assert (raffle.sample(logits, number, seed=1) == raffle.sample(logits, [0.5] * ROWS, seed=[1, 2, 3, 4, 5])).all()
    for number in (3, np.int32(3), np.uint8(3), np.array(3)):
        assert (raffle.sample(logits, 1, number, seed=1) == raffle.sample(logits, 1.0, [3] * ROWS, seed=1)).all()


def test_slots(logits):
    pool = dict(temperature=[0.5, 0, 1.5, 1], top_k=[0, 3, 9, 0], seed=[5, 6, 7, 8], position=[1, 2, 3, 4])
    slot = [3, 0, 2, 0, 1]
    wanted = raffle.sample(logits, **{n: [v[i] for i in slot] for n, v in pool.items()})
    assert (raffle.sample(logits, slot=slot, **pool) == wanted).all()
    assert (raffle.sample(logits, slot=np.array(slot, np.int64), **pool) == wanted).all()
    assert (raffle.sample(logits, slot=slot, top_p=0.9, **pool) == raffle.sample(logits, slot=slot, top_p=[0.9] * 4, **pool)).all()
    with pytest.raises(ValueError, match="slot of row 2 is 4") as caught:
        raffle.sample(logits, slot=[0, 1, 4, 0, 0], **pool)
    assert caught.value.row == 2


def test_masks(logits):
    mask = np.random.default_rng(1).random((ROWS, VOCAB)) < 0.01
    drawn = raffle.sample(logits, seed=1, allow=mask)
    assert mask[np.arange(ROWS), drawn].all()
    words = raffle.pack_mask(mask)
    assert words.shape == (ROWS, 32) and words.dtype == np.int32
    for allow in (words, words.view(np.uint32), np.pad(words, ((0, 0), (0, 9))), np.pad(words, ((0, 0), (0, 9)))[:, :32]):
        assert (raffle.sample(logits, seed=1, allow=allow) == drawn).all()
    assert raffle.sample(logits[2], seed=3, allow=mask[2]) == drawn[2] == raffle.sample(logits[2], seed=3, allow=words[2])
    assert (raffle.sample(logits, temperature=0, allow=mask) == np.where(mask, logits, -np.inf).argmax(1)).all()


def test_strides_and_alignments(logits):
    wanted = raffle.sample(logits, temperature=0.9, top_p=0.8, seed=4)
    wide = np.full((ROWS, VOCAB + 37), np.nan, np.float32)
    wide[:, 5 : 5 + VOCAB] = logits
    assert (raffle.sample(wide[:, 5 : 5 + VOCAB], temperature=0.9, top_p=0.8, seed=4) == wanted).all()
    turned = logits[::-1].copy()[::-1]
    assert turned.strides[0] < 0
    assert (raffle.sample(turned, temperature=0.9, top_p=0.8, seed=4) == wanted).all()
    loose = np.frombuffer(b"x" + logits.tobytes(), np.uint8)[1:].view(np.float32).reshape(ROWS, VOCAB)
    assert loose.ctypes.data % 4
    assert (raffle.sample(loose, temperature=0.9, top_p=0.8, seed=4) == wanted).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes_mean_their_values(logits, dtype):
    if dtype == "bfloat16":
        bits = (logits.view(np.uint32) >> 16).astype(np.uint16)
        exact = (bits.astype(np.uint32) << 16).view(np.float32)
        given = dict(logits=bits, dtype=dtype)
        assert (raffle.sample(bits.view(np.int16), dtype="bf16", seed=2) == raffle.sample(exact, seed=2)).all()
    else:
        given = dict(logits=logits.astype(dtype))
        exact = logits.astype(dtype).astype(np.float32)
    assert (raffle.sample(**given, seed=2) == raffle.sample(exact, seed=2)).all()


def test_ml_dtypes_bfloat16(logits):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given = logits.astype(ml_dtypes.bfloat16)
    assert (raffle.sample(given, seed=2) == raffle.sample(given.astype(np.float32), seed=2)).all()


def test_buffers(logits):
    row = array.array("f", logits[0].tolist())
    wanted = int(raffle.sample(logits[0], seed=5))
    for buffer in (row, memoryview(row), bytes(row), bytearray(row)):
        if not isinstance(buffer, (array.array, memoryview)):
            buffer = memoryview(buffer).cast("f")
        drawn = raffle.sample(buffer, seed=5)
        assert isinstance(drawn, array.array) and list(drawn) == [wanted]
    square = memoryview(bytes(logits)).cast("B").cast("f", (ROWS, VOCAB))
    assert list(raffle.sample(square, seed=5)) == raffle.sample(logits, seed=5).tolist()
    assert raffle.sample((ctypes.c_float * VOCAB)(*logits[0]), seed=5)[0] == wanted


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_of_strangers(logits, versioned):
    drawn = raffle.sample(OnlyDLPack(logits, versioned), seed=OnlyDLPack(np.array([5, 6, 7, 8, 9], np.uint64), versioned))
    assert (np.asarray(drawn) == raffle.sample(logits, seed=5)).all()


def test_read_only_logits(logits):
    wanted = raffle.sample(logits, seed=5)
    logits.flags.writeable = False
    assert (raffle.sample(logits, seed=5) == wanted).all()


def test_out(logits):
    wanted = raffle.sample(logits, seed=5)
    out, flags = np.zeros(ROWS, np.int32), np.zeros(ROWS, np.uint32)
    assert raffle.sample(logits, seed=5, out=out) is out and (out == wanted).all()
    logits[3, 7] = np.nan
    assert raffle.sample(logits, seed=5, out=(out, flags)) is out
    assert flags.tolist() == [0, 0, 0, raffle.ROW_NAN, 0]
    held = array.array("i", [0] * ROWS)
    raffle.sample(logits, seed=5, out=held)
    assert list(held) == out.tolist()


def test_shapes(logits):
    assert raffle.sample(logits, seed=1).shape == (ROWS,)
    assert raffle.sample(logits[0], seed=1).shape == ()
    assert raffle.sample(logits[:0], seed=1).shape == (0,)
    assert raffle.sample(np.zeros((3, 1), np.float32)).tolist() == [0, 0, 0]


def test_row_flags():
    rows = np.zeros((4, 8), np.float32)
    rows[1, 3] = np.nan
    rows[2] = -np.inf
    rows[3, 6] = np.inf
    token, flags = raffle.sample(rows, seed=1, return_flags=True)
    assert flags.tolist() == [0, raffle.ROW_NAN, raffle.ROW_EMPTY, raffle.ROW_INF]
    assert token[2] == raffle.NO_TOKEN and token[3] == 6 and token[1] != 3
    assert raffle.sample(rows, seed=1, flags=raffle.EMPTY_IS_ZERO)[2] == 0


def test_flags_change_what_is_kept():
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    kept = [raffle.explain(row, top_k=3, top_p=0.72, flags=f).fates["kept"] for f in (0, raffle.TOP_P_JOINT)]
    assert kept == [2, 3]  # 0.4/0.9 + 0.3/0.9 >= 0.72, but 0.4 + 0.3 < 0.72
    ties = np.zeros(10, np.float32)
    assert raffle.explain(ties, top_k=3).fates["kept"] == 10
    assert raffle.explain(ties, top_k=3, flags=raffle.TOP_K_EXACT).fates["kept"] == 3


def test_threads(logits):
    rows = np.tile(logits, (13, 1))
    wanted = raffle.sample(rows, top_p=0.9, seed=3)
    for threads in (2, 3, 64, 200):
        assert (raffle.sample(rows, top_p=0.9, seed=3, threads=threads) == wanted).all()
    with pytest.raises(ValueError, match="temperature of row 40 is -1"):
        raffle.sample(rows, [1.0] * 40 + [-1.0] + [1.0] * 24, threads=4)


def test_explain(logits):
    for row in range(ROWS):
        told = raffle.explain(logits, 0.8, 40, 0.9, seed=[1, 2, 3, 4, 5], row=row, top=3)
        assert told.token == raffle.sample(logits, 0.8, 40, 0.9, seed=1)[row]
        assert sum(told.fates.values()) == VOCAB and len(told.top) == 3
        assert told.top[0].token == logits[row].argmax() and told.top[0].logit == logits[row].max()
        assert 0 <= told.drawn < told.draw_tickets <= told.row_tickets
    with pytest.raises(ValueError, match="row is 5: the batch has 5"):
        raffle.explain(logits, row=5)
    assert len(raffle.explain(logits, top=10**9).top) == VOCAB


def test_the_law():
    """A coarse look at the distribution; tests/stats has the fine one. Fixed seeds."""
    probability = np.array([0.5, 0.25, 0.125, 0.125])
    rows = np.tile(np.log(probability).astype(np.float32), (40000, 1))
    count = np.bincount(raffle.sample(rows, seed=2026), minlength=4)
    assert ((count - 40000 * probability) ** 2 / (40000 * probability)).sum() < 16.3  # chi-square, 3 degrees, p = 0.001


def test_rows_shared_by_results(logits):
    index = [2, 2, 2, 0, 4, 4, 1]
    seeds = list(range(50, 57))
    wanted = raffle.sample(logits[index], 0.8, top_p=0.9, seed=seeds)
    assert (raffle.sample(logits, 0.8, top_p=0.9, seed=seeds, index=index) == wanted).all()
    assert (raffle.sample(logits, 0.8, top_p=0.9, seed=seeds, index=np.array(index)) == wanted).all()
    assert (raffle.sample(logits, 0.8, top_p=0.9, seed=50, index=index, threads=2) == wanted).all()
    assert (raffle.sample(np.broadcast_to(logits[0], (50, VOCAB)), seed=3) == raffle.sample(logits, index=[0] * 50, seed=3)).all()
    assert (raffle.softmax(logits, index=index, top_k=5) == raffle.softmax(logits, top_k=5)[index]).all()
    assert raffle.sample(logits, index=[], seed=1).shape == (0,)
    with pytest.raises(ValueError, match="index is for logits"):
        raffle.sample(logits[0], index=[0])
    with pytest.raises(ValueError, match="overlap"):
        raffle.softmax(logits, index=[0, 1, 2, 3, 4], out=logits)
    call = raffle.prepare(logits, index=index, seed=50, advance=True)
    assert (call() == raffle.sample(logits, index=index, seed=50)).all()


def test_probabilities(logits):
    probability = raffle.softmax(logits)
    draws = np.array([raffle.sample(probability, top_k=8, top_p=0.9, min_p=0.01, probs=True, seed=s) for s in range(40)])
    kept = np.unpackbits(raffle.kept(logits, top_k=8, top_p=0.9, min_p=0.01).view(np.uint8), axis=-1, bitorder="little")
    assert kept[np.arange(ROWS)[None], draws].all() and len(set(draws[:, 0].tolist())) > 1
    weights = probability * np.float32(1024)
    assert (raffle.sample(weights, probs=True, seed=3) == raffle.sample(probability, probs=True, seed=3)).all()
    again = raffle.softmax(probability, top_k=5, probs=True)
    assert np.abs(again.sum(1) - 1).max() < 1e-6 and ((again > 0).sum(1) == 5).all()
    masked = raffle.mask(probability, top_k=5, probs=True)
    assert np.array_equal(masked, np.where(again > 0, probability, 0))
    rows = np.array([[0.5, -1, 0.5], [0, 0, 0]], np.float32)
    token, flags = raffle.sample(rows, probs=True, seed=1, return_flags=True)
    assert flags.tolist() == [raffle.ROW_NAN, raffle.ROW_EMPTY] and token[0] in (0, 2) and token[1] == -1
