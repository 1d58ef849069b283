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
    with pytest.raises((RuntimeError, ValueError, TypeError)):  # JAX's own, whichever
        raffle.sample(logits, seed=1)
