"""flashinfer's functions: signatures, laws, seeds, errors."""
import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import raffle  # noqa: E402
from raffle import flashinfer  # noqa: E402

PROBS = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.05, 0.05, 0.1, 0.8]])
MANY = 20000

# Names and defaults as in flashinfer's documentation, read in October 2026.
RANDOM = "indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None"
ORDERED = RANDOM.replace("indices=None,", "indices=None, filter_apply_order='top_k_first',")
SIGNATURES = {
    "softmax": "logits, temperature=None, enable_pdl=None",
    "sampling_from_logits": f"logits, {RANDOM}",
    "sampling_from_probs": f"probs, {RANDOM}, return_valid=False",
    "top_p_sampling_from_probs": f"probs, top_p, {RANDOM}, return_valid=False",
    "top_k_sampling_from_probs": f"probs, top_k, {RANDOM}, return_valid=False",
    "min_p_sampling_from_probs": f"probs, min_p, {RANDOM}, return_valid=False",
    "top_k_top_p_sampling_from_logits": f"logits, top_k, top_p, {ORDERED}",
    "top_k_top_p_sampling_from_probs": f"probs, top_k, top_p, {ORDERED}, return_valid=False",
    "top_p_renorm_probs": "probs, top_p, is_deterministic=False",
    "top_k_renorm_probs": "probs, top_k, is_deterministic=False",
    "top_k_mask_logits": "logits, top_k",
    "chain_speculative_sampling": "draft_probs, draft_token_ids, target_probs, maybe_output_accepted_token_num=None, "
                                  "maybe_output_emitted_draft_token_num=None, deterministic=True, generator=None, seed=None, "
                                  "offset=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    found = inspect.signature(getattr(flashinfer, name)).parameters.values()
    assert ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in found) == SIGNATURES[name]


def law(draw):
    """Shares of the tokens in MANY draws of each row."""
    indices = torch.arange(2, dtype=torch.int32).repeat_interleave(MANY)
    tokens = draw(indices=indices, generator=torch.Generator().manual_seed(7))
    assert tokens.dtype == torch.int32 and tokens.shape == (2 * MANY,)
    return [np.bincount(half.numpy(), minlength=4) / MANY for half in tokens.split(MANY)]


@pytest.mark.parametrize("draw, wanted", [
    (lambda **w: flashinfer.sampling_from_probs(PROBS, **w), [[0.4, 0.3, 0.2, 0.1], [0.05, 0.05, 0.1, 0.8]]),
    (lambda **w: flashinfer.sampling_from_logits(PROBS.log(), **w), [[0.4, 0.3, 0.2, 0.1], [0.05, 0.05, 0.1, 0.8]]),
    (lambda **w: flashinfer.top_k_sampling_from_probs(PROBS, 2, **w), [[4 / 7, 3 / 7, 0, 0], [0, 0, 1 / 9, 8 / 9]]),
    (lambda **w: flashinfer.top_p_sampling_from_probs(PROBS, 0.6, **w), [[4 / 7, 3 / 7, 0, 0], [0, 0, 0, 1]]),
    (lambda **w: flashinfer.min_p_sampling_from_probs(PROBS, 0.45, **w), [[4 / 9, 3 / 9, 2 / 9, 0], [0, 0, 0, 1]]),
    (lambda **w: flashinfer.top_k_top_p_sampling_from_probs(PROBS, 3, 0.75, **w), [[4 / 7, 3 / 7, 0, 0], [0, 0, 0, 1]]),
    (lambda **w: flashinfer.top_k_top_p_sampling_from_probs(PROBS, 3, 0.75, filter_apply_order="joint", **w),
     [[4 / 9, 3 / 9, 2 / 9, 0], [0, 0, 0, 1]]),
    (lambda **w: flashinfer.top_k_top_p_sampling_from_logits(PROBS.log(), 3, 0.75, **w), [[4 / 7, 3 / 7, 0, 0], [0, 0, 0, 1]]),
    (lambda **w: flashinfer.top_k_top_p_sampling_from_logits(PROBS.log(), 3, 0.75, filter_apply_order="joint", **w),
     [[4 / 9, 3 / 9, 2 / 9, 0], [0, 0, 0, 1]]),
], ids=str)
def test_laws(draw, wanted):
    for found, exact in zip(law(draw), np.array(wanted)):
        assert (found[exact == 0] == 0).all()
        assert np.abs(found - exact).max() < 4.5 * np.sqrt(0.25 / MANY)


def test_tensors_of_parameters():
    assert flashinfer.top_k_sampling_from_probs(PROBS, torch.tensor([1, 1])).tolist() == [0, 3]
    assert flashinfer.top_p_sampling_from_probs(PROBS, torch.tensor([0.1, 0.1])).tolist() == [0, 3]
    assert flashinfer.min_p_sampling_from_probs(PROBS, torch.tensor([1.0, 1.0])).tolist() == [0, 3]
    assert flashinfer.top_k_top_p_sampling_from_probs(PROBS, torch.tensor([1, 4]), torch.tensor([1.0, 0.1])).tolist() == [0, 3]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_indices(dtype):
    indices = torch.tensor([1, 0, 1], dtype=dtype)
    drawn = flashinfer.top_k_sampling_from_probs(PROBS, 1, indices)
    assert drawn.dtype == dtype and drawn.tolist() == [3, 0, 3]


def test_a_filter_belongs_to_a_row_of_the_input():
    """With indices too, as in flashinfer's kernels: results that share a row share its filter."""
    indices, ones = torch.tensor([1, 0, 0, 1, 0]), torch.tensor([1, 4])
    for position in range(20):
        chance = dict(seed=torch.arange(5), offset=torch.full((5,), position))
        for drawn, free in (
                (flashinfer.top_k_sampling_from_probs(PROBS, ones, indices, **chance), flashinfer.sampling_from_probs(PROBS, indices, **chance)),
                (flashinfer.top_p_sampling_from_probs(PROBS, torch.tensor([0.1, 1.0]).double(), indices, **chance),
                 flashinfer.sampling_from_probs(PROBS, indices, **chance)),
                (flashinfer.top_k_top_p_sampling_from_logits(PROBS.log(), ones, 1.0, indices, **chance),
                 flashinfer.sampling_from_logits(PROBS.log(), indices, **chance))):
            assert drawn[[1, 2, 4]].tolist() == [0, 0, 0] and drawn[[0, 3]].tolist() == free[[0, 3]].tolist()


def test_types_of_renormalised_rows():
    half = PROBS.bfloat16()
    assert flashinfer.top_p_renorm_probs(half, 0.6).dtype == torch.float32
    assert flashinfer.top_k_renorm_probs(half, 2).dtype == flashinfer.top_k_mask_logits(half, 2).dtype == torch.bfloat16
    assert flashinfer.top_k_renorm_probs(PROBS.double(), 2).dtype == torch.float32
    kept = flashinfer.top_k_mask_logits(PROBS, torch.tensor([1, 2])) > -torch.inf
    assert kept.sum(1).tolist() == [1, 2]


def test_seeds():
    flat = torch.ones(6, 5000)
    first = flashinfer.sampling_from_probs(flat, seed=5, offset=3)
    assert torch.equal(first, flashinfer.sampling_from_probs(flat, seed=5, offset=3)) and len(set(first.tolist())) > 3
    assert not torch.equal(first, flashinfer.sampling_from_probs(flat, seed=5, offset=4))
    assert torch.equal(first, flashinfer.sampling_from_probs(flat, seed=torch.tensor([5]), offset=torch.tensor([3])))
    seeds, offsets = torch.tensor([9, 9, 1, 2, 3, 9]), torch.tensor([0, 0, 0, 0, 0, 1])
    drawn = flashinfer.sampling_from_probs(flat, seed=seeds, offset=offsets).tolist()
    assert drawn[0] == drawn[1] != drawn[5] and len({drawn[0], *drawn[2:5]}) == 4  # every row's own seed counts
    alone = [flashinfer.sampling_from_probs(flat[:1], seed=seeds[i : i + 1], offset=offsets[i : i + 1]).item() for i in range(6)]
    assert alone == drawn


def test_generators():
    flat = torch.ones(6, 5000)
    draws = [flashinfer.sampling_from_logits(flat, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*draws)
    torch.manual_seed(3)
    first = flashinfer.sampling_from_logits(flat)
    second = flashinfer.sampling_from_logits(flat)
    torch.manual_seed(3)
    assert torch.equal(first, flashinfer.sampling_from_logits(flat)) and not torch.equal(first, second)


def test_valid():
    rows = torch.tensor([[0.5, 0.5], [0.0, 0.0], [float("nan"), 1.0]])
    token, valid = flashinfer.sampling_from_probs(rows, return_valid=True)
    assert valid.dtype == torch.bool and valid.tolist() == [True, False, False]
    assert token[1] == 0 and token[2] == 1
    with pytest.raises(ValueError, match="Input probs contains NaN"):
        flashinfer.sampling_from_probs(rows, check_nan=True)
    with pytest.raises(ValueError, match="Input logits contains NaN"):
        flashinfer.sampling_from_logits(rows, check_nan=True)


def test_rows_of_values():
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(1)) * 3
    exact = (logits.double() / 0.7).softmax(-1)
    assert (flashinfer.softmax(logits, 0.7) - exact).abs().max() < 1e-6
    assert flashinfer.softmax(logits.bfloat16()).dtype == torch.float32
    assert torch.equal(flashinfer.softmax(logits, torch.full((4,), 0.7)), flashinfer.softmax(logits, 0.7))
    masked = flashinfer.top_k_mask_logits(logits, 5)
    assert ((masked == -torch.inf).sum(1) == 295).all() and torch.equal(masked.max(1).values, logits.max(1).values)
    assert torch.allclose(flashinfer.top_k_renorm_probs(PROBS, 2), torch.tensor([[4 / 7, 3 / 7, 0, 0], [0, 0, 1 / 9, 8 / 9]]))
    assert torch.allclose(flashinfer.top_p_renorm_probs(PROBS, torch.tensor([0.6, 0.85])),
                          torch.tensor([[4 / 7, 3 / 7, 0, 0], [0, 0, 1 / 9, 8 / 9]]))
    assert flashinfer.top_k_renorm_prob is flashinfer.top_k_renorm_probs


@pytest.mark.parametrize("call, error", [
    (lambda: flashinfer.sampling_from_probs(PROBS, seed=1, offset=torch.tensor([1])), ValueError),
    (lambda: flashinfer.sampling_from_probs(PROBS, seed=torch.tensor([1, 2, 3]), offset=torch.tensor([1])), ValueError),
    (lambda: flashinfer.sampling_from_probs(PROBS, seed=torch.tensor([1.0]), offset=torch.tensor([1])), ValueError),
    (lambda: flashinfer.sampling_from_probs(PROBS, seed=torch.tensor(1), offset=torch.tensor([1])), ValueError),
    (lambda: flashinfer.top_k_top_p_sampling_from_probs(PROBS, 1, 1.0, filter_apply_order="other"), ValueError),
    (lambda: flashinfer.top_k_sampling_from_probs(PROBS, torch.tensor(1)), ValueError),
    (lambda: flashinfer.top_p_sampling_from_probs(PROBS, torch.ones(2, 1)), ValueError),
    (lambda: flashinfer.top_p_sampling_from_probs(PROBS, torch.ones(3), torch.tensor([0, 1, 0])), ValueError),
    (lambda: flashinfer.top_p_renorm_probs(PROBS, torch.ones(3)), ValueError),
    (lambda: flashinfer.top_k_mask_logits(PROBS, torch.ones(1)), ValueError),
    (lambda: flashinfer.sampling_from_probs(PROBS, torch.tensor([0, 1], dtype=torch.int16)), TypeError),  # of a large vocabulary
    (lambda: flashinfer.sampling_from_probs(PROBS, torch.tensor([0.0, 1.0])), TypeError),
    (lambda: flashinfer.softmax(PROBS, "hot"), TypeError),
    (lambda: flashinfer.softmax(PROBS, True), TypeError),
    (lambda: flashinfer.softmax(PROBS, torch.ones(3)), ValueError),
    (lambda: flashinfer.softmax(PROBS, torch.ones(2, dtype=torch.int64)), ValueError),
    (lambda: flashinfer.top_k_sampling_from_probs(PROBS, torch.tensor([1, 1]), torch.tensor([0, 2])), ValueError),
])
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_the_functions_are_raffles():
    """A drop-in, not another sampler."""
    drawn = flashinfer.top_p_sampling_from_probs(PROBS, 0.9, seed=8, offset=1)
    assert torch.equal(drawn, raffle.sample(PROBS, top_p=0.9, probs=True, seed=8, position=1))


def test_chains_of_drafts():
    draft = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.1]]])
    target = torch.tensor([[[0.0, 0.1, 0.6, 0.3], [1.0, 0.0, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1]]])
    tokens, accepted, emitted = flashinfer.chain_speculative_sampling(draft, torch.tensor([[2, 1]], dtype=torch.int32), target)
    assert tokens.tolist() == [[2, 0, -1]] and accepted.tolist() == [1] and emitted.tolist() == [1]
    before = torch.tensor([10], dtype=torch.int32)
    _, accepted, emitted = flashinfer.chain_speculative_sampling(draft, torch.tensor([[2, 1]]), target, before)
    assert accepted is before and before.tolist() == [11] and emitted.tolist() == [1]
    for wrong, error in ((torch.zeros(2, dtype=torch.int32), ValueError), ([0], TypeError)):
        with pytest.raises(error, match="maybe_output_emitted_draft_token_num"):
            flashinfer.chain_speculative_sampling(draft, torch.tensor([[2, 1]]), target, before, wrong)
    assert before.tolist() == [11]


def test_seeds_of_chains():
    """Numbers and tensors of 64 bits, signed or not, mean the same."""
    generator = torch.Generator().manual_seed(5)
    draft, target = torch.rand(8, 3, 50, generator=generator), torch.rand(8, 4, 50, generator=generator)
    ids = torch.randint(0, 50, (8, 3), generator=generator)

    def chain(seed, offset):
        return [part.tolist() for part in flashinfer.chain_speculative_sampling(draft, ids, target, seed=seed, offset=offset)]

    for first, at in ((7, 3), (2**64 - 3, 2**64 - 2)):  # the sums go round
        seeds, offsets = [(first + i) % 2**64 for i in range(8)], [at] * 8
        wanted = chain(first, at)
        for dtype in (np.uint64, np.int64):
            made = [torch.from_numpy(np.array(values, np.uint64).view(dtype)) for values in (seeds, offsets)]
            assert chain(*made) == wanted
            assert chain(made[0][:1], made[1][:1]) == wanted


def test_the_law_of_chains():
    generator = torch.Generator().manual_seed(1)
    probs = torch.rand(5, 6, generator=generator) ** 2
    probs /= probs.sum(1, keepdim=True)
    drafts = torch.stack([flashinfer.sampling_from_probs(probs[i].expand(MANY, -1), generator=generator) for i in range(2)], 1)
    tokens, accepted, emitted = flashinfer.chain_speculative_sampling(
        probs[:2].expand(MANY, -1, -1), drafts, probs[2:].expand(MANY, -1, -1), seed=77, offset=5)
    share = np.bincount(tokens[:, 0].numpy(), minlength=6) / MANY
    assert np.abs(share - probs[2].numpy()).max() < 4.5 * np.sqrt(0.25 / MANY)
    overlap = torch.minimum(probs[:2], probs[2:4]).sum(1)
    assert abs((emitted > 0).float().mean() - overlap[0]) < 4.5 * np.sqrt(0.25 / MANY)
    assert abs(accepted.float().mean() - overlap.sum()) < 4.5 * np.sqrt(0.5 / MANY)
    assert (accepted >= emitted).all() and ((tokens >= 0).sum(1) == emitted + 1).all()
    bonus = tokens[emitted == 2, 2].numpy()
    assert np.abs(np.bincount(bonus, minlength=6) / len(bonus) - probs[4].numpy()).max() < 4.5 * np.sqrt(0.25 / len(bonus))


def test_nothing_to_do():
    """No rows, no drafts."""
    empty = torch.zeros(0, 4)
    assert flashinfer.sampling_from_logits(empty).shape == flashinfer.top_k_sampling_from_probs(empty, torch.zeros(0).int()).shape == (0,)
    assert flashinfer.softmax(empty).shape == flashinfer.top_k_mask_logits(empty, 2).shape == (0, 4)
    for batch, count in ((2, 0), (0, 2), (0, 0)):
        tokens, accepted, emitted = flashinfer.chain_speculative_sampling(
            torch.rand(batch, count, 4), torch.zeros(batch, count, dtype=torch.int32), torch.rand(batch, count + 1, 4), seed=1, offset=0)
        assert tokens.shape == (batch, count + 1) and accepted.tolist() == emitted.tolist() == [0] * batch
        assert ((tokens >= 0) & (tokens < 4)).all() or count


def test_shapes():
    for call in (lambda x: flashinfer.sampling_from_logits(x), lambda x: flashinfer.sampling_from_probs(x), lambda x: flashinfer.softmax(x),
                 lambda x: flashinfer.top_p_renorm_probs(x, 0.5), lambda x: flashinfer.top_k_mask_logits(x, 1)):
        for wrong in (torch.ones(4), torch.tensor(1.0), torch.ones(1, 2, 3)):
            with pytest.raises(ValueError, match="must be .rows, vocab."):
                call(wrong)
    with pytest.raises(TypeError, match="target_probs must be a tensor"):
        flashinfer.chain_speculative_sampling(torch.rand(1, 1, 4), torch.zeros(1, 1).int(), None)
    with pytest.raises(ValueError, match="draft_probs has shape .2, 4.: must have 3 axes"):
        flashinfer.chain_speculative_sampling(PROBS, torch.zeros(1, 2).int(), torch.rand(1, 3, 4))
    with pytest.raises(TypeError, match="indices must be a tensor"):
        flashinfer.sampling_from_probs(PROBS, [0, 1])
    for rows, indices in ((PROBS, torch.tensor(1)), (PROBS[:0], torch.tensor([0]))):
        with pytest.raises(ValueError, match="indices has shape"):
            flashinfer.top_k_sampling_from_probs(rows, 1, indices)
