"""softmax, mask and kept sets, against numpy in double precision and against sample()."""
import numpy as np
import pytest
import raffle

ROWS, VOCAB = 6, 3000


@pytest.fixture
def logits():
    return np.random.default_rng(11).normal(0, 4, (ROWS, VOCAB)).astype(np.float32)


def exact(logits, temperature=1.0):
    scaled = logits.astype(np.float64) / np.asarray(temperature, np.float64).reshape(-1, 1)
    weights = np.exp(scaled - scaled.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def unpack(words, vocab=VOCAB):
    return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")[..., :vocab].astype(bool)


def test_softmax_is_softmax(logits):
    temperature = [0.3, 1, 2, 0.7, 10, 1.3]
    found, wanted = raffle.softmax(logits, temperature), exact(logits, np.float32(temperature))
    assert found.dtype == np.float32 and found.shape == logits.shape
    normal = wanted > 2.0**-126
    assert (np.abs(found[normal] - wanted[normal]) <= 2e-7 * (1 - np.log2(wanted[normal])) * wanted[normal]).all()
    assert np.abs(found.sum(1, dtype=np.float64) - 1).max() < 1e-6


def test_log_softmax(logits):
    found = raffle.softmax(logits, log=True)
    assert np.abs(found - np.log(exact(logits))).max() < 1e-5


def test_temperature_zero_is_one_hot(logits):
    found = raffle.softmax(logits, temperature=0)
    assert (found.argmax(1) == logits.argmax(1)).all() and (found.sum(1) == 1).all() and (found.max(1) == 1).all()


def test_filters_agree_with_the_kept_set(logits):
    for words in (dict(top_k=7), dict(top_p=0.6), dict(min_p=0.2), dict(top_k=30, top_p=0.8, temperature=1.4)):
        kept = unpack(raffle.kept(logits, **words))
        assert ((raffle.softmax(logits, **words) > 0) == kept).all()
        assert np.array_equal(raffle.mask(logits, **words), np.where(kept, logits, -np.inf))
        ids, count = raffle.kept_list(logits, 400, **words)
        assert (count == kept.sum(1)).all()
        for row in range(ROWS):
            assert ids[row, : min(count[row], 400)].tolist() == np.flatnonzero(kept[row])[:400].tolist()
        for seed in range(20):
            assert kept[np.arange(ROWS), raffle.sample(logits, seed=seed, **words)].all()
    assert (unpack(raffle.kept(logits, top_k=7)).sum(1) == 7).all()


@pytest.mark.parametrize("row, words, kept, likely", [
    ([0, 1, np.inf, 2, np.inf, -np.inf, np.nan], {}, [0, 1, 2, 3, 4], [2, 4]),
    ([0, 1, np.inf, 2, np.inf, -np.inf, np.nan], dict(top_k=4), [1, 2, 3, 4], [2, 4]),
    ([0, 1, np.inf, 2, np.inf, -np.inf, np.nan], dict(top_p=0.999), [2, 4], [2, 4]),
    ([0, 1, np.inf, 2, np.inf, -np.inf, np.nan], dict(min_p=0.001), [2, 4], [2, 4]),
    ([0, 1, np.inf, 2, np.inf, -np.inf, np.nan], dict(temperature=0), [2], [2]),
    ([0, -100, -3e38, -np.inf], {}, [0, 1, 2], [0]),
    ([0, -100, -3e38, -np.inf], dict(top_k=2), [0, 1], [0]),
    ([0.5, 0, 1e-38, -1, np.nan, 0.5], dict(probs=True), [0, 2, 5], [0, 5]),
])
def test_kept_counts_tokens_without_a_chance(row, words, kept, likely):
    """What masks and filters leave, as the docstring says, and not only what has a probability."""
    row = np.array([row], np.float32)
    ids, count = raffle.kept_list(row, 8, **words)
    assert ids[0, : count[0]].tolist() == kept
    assert np.flatnonzero(unpack(raffle.kept(row, **words), row.shape[1])[0]).tolist() == kept
    assert np.flatnonzero(raffle.softmax(row, **words)[0]).tolist() == likely
    assert set(raffle.sample(row, seed=1, index=[0] * 1000, **words).tolist()) <= set(likely)


def test_kept_is_what_allow_takes(logits):
    kept = raffle.kept(logits, top_k=9)
    assert (raffle.sample(logits, seed=1, allow=kept) == raffle.sample(logits, seed=1, top_k=9)).all()


def test_in_place_and_into(logits):
    wanted = raffle.softmax(logits, 0.8)
    wide = np.full((ROWS, VOCAB + 5), 7, np.float32)
    assert raffle.softmax(logits, 0.8, out=wide[:, :VOCAB]).base is wide
    assert (wide[:, :VOCAB] == wanted).all() and (wide[:, VOCAB:] == 7).all()
    assert raffle.softmax(logits, 0.8, out=logits) is logits and (logits == wanted).all()


def test_output_dtypes(logits):
    wide = raffle.softmax(logits)
    narrow = raffle.softmax(logits, out_dtype="float16")
    assert narrow.dtype == np.float16 and (narrow == wide.astype(np.float16)).all()
    bits = (logits.view(np.uint32) >> 16).astype(np.uint16)
    out = raffle.softmax(bits, dtype="bfloat16", out_dtype=np.float32)
    assert (out == raffle.softmax((bits.astype(np.uint32) << 16).view(np.float32))).all()
    assert raffle.softmax(bits, dtype="bfloat16").dtype == np.uint16


def test_ml_dtypes(logits):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given = logits.astype(ml_dtypes.bfloat16)
    out = raffle.softmax(given)
    assert out.dtype == ml_dtypes.bfloat16
    assert (out == raffle.softmax(given, out_dtype="float32").astype(ml_dtypes.bfloat16)).all()
    assert raffle.softmax(logits, out_dtype="bfloat16").dtype == ml_dtypes.bfloat16
    assert raffle.mask(given, top_k=3).dtype == ml_dtypes.bfloat16


def test_shapes_and_rows(logits):
    assert raffle.softmax(logits[0]).shape == (VOCAB,)
    assert (raffle.softmax(logits[2]) == raffle.softmax(logits)[2]).all()
    assert raffle.softmax(logits[:0]).shape == (0, VOCAB)
    assert (raffle.softmax(logits, threads=3) == raffle.softmax(logits)).all()
    rows = np.zeros((2, 8), np.float32)
    rows[1] = -np.inf
    out, flags = raffle.softmax(rows, return_flags=True)
    assert flags.tolist() == [0, raffle.ROW_EMPTY] and (out[1] == 0).all() and (out[0] == 0.125).all()


@pytest.mark.parametrize("words, error, sentence", [
    (dict(out=np.zeros((ROWS, VOCAB))), TypeError, "out: dtype is float64"),
    (dict(out=np.zeros((ROWS, VOCAB - 1), np.float32)), ValueError, "out has 2999 entries per row"),
    (dict(out=np.zeros((ROWS - 1, VOCAB), np.float32)), ValueError, "out must have two axes and 6 rows"),
    (dict(out=np.zeros((ROWS, 2 * VOCAB), np.float32)[:, ::2]), ValueError, "out must be contiguous"),
    (dict(out=np.zeros((ROWS, VOCAB), np.float32), out_dtype="float32"), ValueError, "out_dtype is for"),
    (dict(out_dtype="int8"), ValueError, "out_dtype is 'int8'"),
    (dict(temperature=-1), ValueError, "temperature of row 0"),
])
def test_errors(logits, words, error, sentence):
    with pytest.raises(error, match=sentence):
        raffle.softmax(logits, **words)


def test_errors_of_lists(logits):
    with pytest.raises(ValueError, match="room is 0"):
        raffle.kept_list(logits, 0)


def test_rows_that_overlap_are_refused(logits):
    both = np.zeros((ROWS + 1, VOCAB), np.float32)
    for out in (both[1:], both[:-1][::-1], both.view(np.float16)[:-1, :VOCAB]):
        with pytest.raises(ValueError, match="overlap"):
            raffle.softmax(both[:-1], out=out)
    wide = np.zeros((ROWS, 2 * VOCAB), np.float32)
    wide[:, :VOCAB] = logits
    raffle.softmax(wide[:, :VOCAB], out=wide[:, VOCAB:])
    assert (wide[:, VOCAB:] == raffle.softmax(logits)).all() and (wide[:, :VOCAB] == logits).all()
    with pytest.raises(ValueError, match="overlap"):
        raffle.softmax(wide[:, :VOCAB], out=wide[:, VOCAB - 1 : -1])
