"""JAX arrays on the CPU, in and out."""
import numpy as np
import pytest
import raffle

jax = pytest.importorskip("jax")


def test_in_and_out():
    logits = jax.numpy.asarray(np.random.default_rng(1).normal(0, 2, (4, 300)), jax.numpy.float32, device=jax.devices("cpu")[0])
    drawn = raffle.sample(logits, 0.8, top_p=0.9, seed=jax.numpy.arange(4))
    assert isinstance(drawn, jax.Array) and drawn.dtype == jax.numpy.int32
    assert drawn.tolist() == raffle.sample(np.asarray(logits), 0.8, top_p=0.9, seed=[0, 1, 2, 3]).tolist()
    half = logits.astype(jax.numpy.bfloat16)
    assert raffle.sample(half, seed=1).tolist() == raffle.sample(np.asarray(half.astype(jax.numpy.float32)), seed=1).tolist()
    out = raffle.softmax(half)
    assert isinstance(out, jax.Array) and out.dtype == jax.numpy.bfloat16


def test_deleted_arrays():
    logits = jax.numpy.zeros((2, 8))
    logits.delete()
    with pytest.raises(ValueError, match="it was deleted"):
        raffle.sample(logits, seed=1)


def test_traced_arrays():
    for wrap in (jax.jit, jax.vmap):
        with pytest.raises(TypeError, match="is being traced"):
            wrap(lambda row: raffle.sample(row, seed=1))(jax.numpy.zeros((2, 8)))


def test_arrays_are_not_written_to():
    """They never change, which JAX relies on; its DLPack does not say so."""
    logits, out = jax.numpy.zeros((2, 8)), jax.numpy.full(2, -7, jax.numpy.int32)
    for call in (lambda: raffle.sample(logits, seed=1, out=out), lambda: raffle.prepare(logits, seed=1, out=out),
                 lambda: raffle.softmax(np.zeros((2, 8), np.float32), out=logits)):
        with pytest.raises(ValueError, match="out is read-only"):
            call()
    assert out.tolist() == [-7, -7] and not logits.any()
