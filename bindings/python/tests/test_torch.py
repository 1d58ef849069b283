"""torch on the CPU: tensors in and out, operators, torch.compile."""
import numpy as np
import pytest
import raffle

torch = pytest.importorskip("torch")
import raffle.torch  # noqa: E402

ROWS, VOCAB = 5, 700


@pytest.fixture
def logits():
    return torch.from_numpy(np.random.default_rng(2).normal(0, 3, (ROWS, VOCAB)).astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_in_and_out(logits, dtype):
    given = logits.to(dtype)
    drawn = raffle.sample(given, 0.8, 40, 0.9, seed=torch.arange(ROWS), position=torch.full((ROWS,), 3))
    assert isinstance(drawn, torch.Tensor) and drawn.dtype == torch.int32 and drawn.shape == (ROWS,)
    assert drawn.tolist() == raffle.sample(given.float().numpy(), 0.8, 40, 0.9, seed=list(range(ROWS)), position=3).tolist()
    assert raffle.sample(given[0], seed=1).shape == ()
    assert raffle.softmax(given).dtype == dtype and raffle.softmax(given, out_dtype=torch.float32).dtype == torch.float32


def test_strides_views_and_grad(logits):
    wanted = raffle.sample(logits, seed=1).tolist()
    wide = torch.full((ROWS, VOCAB + 30), float("nan"))
    wide[:, 7 : 7 + VOCAB] = logits
    assert raffle.sample(wide[:, 7 : 7 + VOCAB], seed=1).tolist() == wanted
    assert raffle.sample(logits.clone().requires_grad_(), seed=1).tolist() == wanted
    assert raffle.sample(torch.nn.Parameter(logits), seed=1).tolist() == wanted
    with pytest.raises(ValueError, match="stride along the vocabulary"):
        raffle.sample(logits.t().contiguous().t(), seed=1)
    assert raffle.sample(logits[:1].expand(300, -1), seed=1).tolist() == raffle.sample(logits[:1].repeat(300, 1), seed=1).tolist()


def test_parameters_as_tensors(logits):
    wanted = raffle.sample(logits, 0.7, 9, 0.8, 0.01, seed=[5, 6, 7, 8, 9], position=2).tolist()
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        temperature = torch.full((ROWS,), 0.75, dtype=kind)
        assert raffle.sample(logits, temperature, seed=1).tolist() == raffle.sample(logits, 0.75, seed=1).tolist()
    for kind in (torch.int64, torch.int32, torch.uint8):
        top_k = torch.full((ROWS,), 9, dtype=kind)
        assert raffle.sample(logits, torch.tensor(0.7), top_k, 0.8, 0.01, torch.tensor([5, 6, 7, 8, 9]), 2).tolist() == wanted


def test_out(logits):
    out = torch.zeros(ROWS, dtype=torch.int32)
    assert raffle.sample(logits, seed=1, out=out) is out and out.tolist() == raffle.sample(logits, seed=1).tolist()
    with pytest.raises(TypeError, match="out has dtype int64"):
        raffle.sample(logits, out=torch.zeros(ROWS, dtype=torch.int64))


def test_memory_that_is_gone(logits):
    """Of whatever argument. torch keeps shapes where the memory is gone, and most of its functions do not look."""
    drafts, target = torch.zeros(2, 1, dtype=torch.int32), logits[:4].reshape(2, 2, -1)
    for made, call in (
        (logits, lambda t: raffle.sample(t, seed=1)), (torch.ones(ROWS), lambda t: raffle.sample(logits, t, seed=1)),
        (torch.ones(ROWS, dtype=torch.int64), lambda t: raffle.sample(logits, seed=t)),
        (torch.ones(ROWS, dtype=torch.int16), lambda t: raffle.sample(logits, top_k=t, seed=1)),
        (torch.ones(ROWS, dtype=torch.int32), lambda t: raffle.sample(logits, seed=1, out=t)),
        (torch.ones(ROWS, dtype=torch.int32), lambda t: raffle.sample(logits, seed=1, index=t)),
        (torch.ones_like(logits, dtype=torch.bool), lambda t: raffle.sample(logits, seed=1, allow=t)),
        (torch.ones(ROWS, 2, dtype=torch.int32), lambda t: raffle.sample(logits, seed=1, logprob_token_ids=t)),
        (logits, lambda t: raffle.softmax(logits, out=t)), (drafts, lambda t: raffle.verify(target, t, seed=1)),
        (target, lambda t: raffle.verify(t, drafts, seed=1)),
        (logits[:2], lambda t: raffle.verify(target, drafts, seed=1, draft_logits=t)),
    ):
        gone = made.clone()
        gone.untyped_storage().resize_(0)
        with pytest.raises(ValueError, match="has no memory: it was freed"):
            call(gone)


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch says it in other words")
def test_tensors_that_are_no_arrays(logits):
    for wrong in (logits.to_sparse(), torch.quantize_per_tensor(logits, 0.1, 0, torch.qint8)):
        with pytest.raises(TypeError, match="logits is no array: [^\\n]*$"):
            raffle.sample(wrong, seed=1)
    with pytest.raises(TypeError, match="temperature is no array: [^\\n]*$"):
        raffle.sample(logits, torch.ones(ROWS, device="meta"), seed=1)


@pytest.mark.parametrize("change", [lambda t: t.untyped_storage().resize_(0), lambda t: t.resize_(64, 500000),
                                    lambda t: t.set_(torch.zeros(64, 50000)), lambda t: setattr(t, "data", torch.zeros(64, 50000)),
                                    lambda t: t.resize_(1, 1)], ids=["freed", "grown", "set_", "data", "shrunk"])
def test_memory_that_goes_after_prepare(change):
    """DLPack keeps a tensor, not its memory: a prepared call looks whether it is still there."""
    logits = torch.zeros(64, 50000)
    call = raffle.prepare(logits, seed=1)
    call()
    change(logits)
    with pytest.raises(ValueError, match="logits: the array is not what it was at prepare"):
        call()


def test_outputs_that_go_after_prepare(logits):
    out = torch.zeros(ROWS, dtype=torch.int32)
    call = raffle.prepare(logits, seed=1, out=out)
    call()
    out.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="out: the array is not what it was"):
        call()


def test_memory_that_goes_of_a_torch_without_exchange_tables(logits):
    """Older versions hand tensors over by __dlpack__, and tell where they are by data_ptr."""
    class Old:
        def __init__(self, inner):
            self.inner = inner

        def __dlpack_device__(self):
            return self.inner.__dlpack_device__()

        def __dlpack__(self, **words):
            return self.inner.__dlpack__()

        def data_ptr(self):
            return self.inner.data_ptr()

    given = logits.clone()
    call = raffle.prepare(Old(given), seed=1)
    assert list(call()) == raffle.sample(logits, seed=1).tolist()
    given.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="logits: the array is not what it was"):
        call()


def test_a_view_that_negates(logits):
    view = torch._neg_view(logits)
    with pytest.raises(ValueError, match="logits is a view that negates .* resolve_neg"):
        raffle.sample(view, seed=1)
    with pytest.raises(ValueError, match="top_p is a view that negates"):
        raffle.sample(logits, top_p=torch._neg_view(torch.full((ROWS,), -0.9)), seed=1)
    with pytest.raises(ValueError, match="out is a view that negates"):
        raffle.softmax(logits, out=torch._neg_view(torch.zeros(logits.shape)))
    with pytest.raises(ValueError, match="draft_probs is a view that negates"):
        raffle.verify(logits[None, :2], torch.tensor([[1]]), draft_probs=torch._neg_view(-logits[:1].softmax(1)), seed=1)
    assert raffle.sample(view.resolve_neg(), temperature=0).tolist() == (-logits).argmax(1).tolist()


def test_no_rows():
    """Tensors of no rows have no memory either."""
    empty, none, zero = torch.zeros(0, 8), torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    token, flags, told = raffle.sample(empty, zero, seed=none, position=none, return_flags=True, logprobs=2, logprob_token_ids=[1])
    assert token.shape == flags.shape == told.rank.shape == (0,)
    assert told.top_tokens.shape == (0, 2) and told.given_ranks.shape == (0, 1)
    assert raffle.sample(empty, seed=1, logprobs=-1)[1].all_logprobs.shape == (0, 8)
    assert raffle.torch.sample(empty).shape == (0,) and raffle.torch.sample(empty, logprobs=2)[1].top_tokens.shape == (0, 2)
    assert raffle.torch.softmax(empty).shape == (0, 8)


def test_errors_of_the_operators(logits):
    """Those of raffle.sample, not torch's: nothing is rounded, nothing overflows."""
    for words, error, sentence in ((dict(top_k=1.5), TypeError, "top_k must be an integer"),
                                   (dict(top_k=torch.full((ROWS,), 1.5)), TypeError, "top_k has dtype torch.float32: must be int32"),
                                   (dict(seed=1.5), TypeError, "seed must be an integer"), (dict(position=0.5), TypeError, "position must be an integer"),
                                   (dict(position=np.zeros(ROWS, bool)), TypeError, "position must be an integer or a tensor"),
                                   (dict(position=2**64), ValueError, "position is 18446744073709551616"),
                                   (dict(temperature="hot"), TypeError, "temperature must be a number"),
                                   (dict(allow=np.ones((ROWS, VOCAB), bool)), TypeError, "allow must be a tensor"),
                                   (dict(flags=0.5), TypeError, "flags is 0.5"), (dict(seed="5"), TypeError, "seed must be an integer"),
                                   (dict(seed=[1] * ROWS), TypeError, "seed must be an integer"),
                                   (dict(seed=True), TypeError, "seed must be an integer"), (dict(top_k=True), TypeError, "top_k must be"),
                                   (dict(logprobs=1.5), TypeError, "logprobs is 1.5"), (dict(logprobs=True), TypeError, "logprobs is True")):
        with pytest.raises(error, match=sentence):
            raffle.torch.sample(logits, **words)
    for call in (raffle.torch.sample, raffle.torch.softmax, raffle.torch.mask):
        for wrong in (logits.numpy(), logits.tolist()):
            with pytest.raises(TypeError, match="logits must be a tensor"):
                call(wrong)
    with pytest.raises(TypeError, match="out_dtype is 'float16'"):
        raffle.torch.softmax(logits, out_dtype="float16")
    assert raffle.torch.sample(logits, top_k=2**40, seed=1, position=2**64 - 1).tolist() == raffle.sample(
        logits, top_k=2**40, seed=1, position=2**64 - 1).tolist()


def test_other_dtypes(logits):
    for call in (raffle.softmax, raffle.mask, raffle.torch.softmax, raffle.torch.mask, raffle.torch.sample, raffle.sample):
        with pytest.raises(TypeError, match="logits: dtype is float64, must be float32, float16 or bfloat16"):
            call(logits.double())
    half = logits.bfloat16()
    bits = raffle.softmax(half.view(torch.int16), dtype="bfloat16")
    assert torch.equal(bits.view(torch.bfloat16), raffle.softmax(half))


def test_drafts_of_another_kind(logits):
    target, drafts = logits[:3].reshape(1, 3, VOCAB), np.array([[5, 6]])
    wanted = raffle.verify(target, drafts, seed=1, draft_logits=logits[3:])
    assert raffle.verify(target, drafts, seed=1, draft_logits=logits[3:].numpy()).tokens.tolist() == wanted.tokens.tolist()
    assert raffle.verify(target.numpy(), drafts, seed=1, draft_logits=logits[3:]).tokens.tolist() == wanted.tokens.tolist()


def test_other_devices():
    with pytest.raises((ValueError, NotImplementedError, RuntimeError)):
        raffle.sample(torch.zeros(2, 8, device="meta"))
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        raffle.sample(torch.zeros(2, 8).to_sparse())


def test_prepared(logits):
    position = torch.zeros(ROWS, dtype=torch.int64)
    call = raffle.prepare(logits, 0.9, seed=3, position=position, advance=True)
    for step in range(4):
        assert call().tolist() == raffle.sample(logits, 0.9, seed=3, position=step).tolist()
    assert position.tolist() == [4] * ROWS


def test_pack_mask():
    mask = torch.rand(3, 77) < 0.5
    assert raffle.pack_mask(mask).tolist() == raffle.pack_mask(mask.numpy()).tolist()
    with pytest.raises(TypeError):
        raffle.pack_mask(mask.int())


def test_operators_are_the_functions(logits):
    assert raffle.torch.sample(logits, 0.8, 40, 0.9, 0.01, seed=7, position=2).tolist() == raffle.sample(
        logits, 0.8, 40, 0.9, 0.01, seed=7, position=2).tolist()
    top = 2**64 - 1
    assert raffle.torch.sample(logits, seed=top).tolist() == raffle.sample(logits, seed=top).tolist()
    seeds = torch.arange(ROWS) * 11
    assert raffle.torch.sample(logits, seed=seeds).tolist() == raffle.sample(logits, seed=seeds).tolist()
    assert torch.equal(raffle.torch.softmax(logits, 0.7, top_k=8), raffle.softmax(logits, 0.7, top_k=8))
    assert torch.equal(raffle.torch.softmax(logits, log=True), raffle.softmax(logits, log=True))
    assert torch.equal(raffle.torch.mask(logits, top_p=0.7), raffle.mask(logits, top_p=0.7))
    token, flags = raffle.torch.sample(torch.full((2, 4), float("nan")), return_flags=True)
    assert token.tolist() == [-1, -1] and flags.tolist() == [5, 5]


def test_chance_from_torch(logits):
    flat = torch.zeros(64, 10000)
    torch.manual_seed(1)
    first = raffle.torch.sample(flat)
    assert len(set(first.tolist())) > 50 and not torch.equal(first, raffle.torch.sample(flat))
    torch.manual_seed(1)
    assert torch.equal(first, raffle.torch.sample(flat))
    draws = [raffle.torch.sample(flat, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*draws)


def test_opcheck(logits):
    """torch's own checks of the registration."""
    seeds, positions = torch.arange(ROWS), torch.zeros(ROWS, dtype=torch.int64)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.raffle.sample.default, (logits, None, None, None, None, seeds, positions, None, 0), test_utils=tests)
    torch.library.opcheck(torch.ops.raffle.softmax.default, (logits, None, None, None, None, None, 0, False, torch.float32), test_utils=tests)
    torch.library.opcheck(torch.ops.raffle.mask.default, (logits, None, None, None, None, None, 0), test_utils=tests)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compile(logits, backend):
    def step(logits, position):
        tokens = raffle.torch.sample(logits * 2, temperature=0.8, top_k=50, seed=3, position=position)
        return tokens + 1, raffle.torch.softmax(logits, top_p=0.9) * 2, raffle.torch.mask(logits, min_p=0.1)

    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for position in range(3):
        position = torch.full((ROWS,), position)
        for found, wanted in zip(compiled(logits, position), step(logits, position)):
            assert torch.equal(found, wanted)


def test_numbers_do_not_compile_anew(logits):
    """A step's number, a seed, a top_k: once the compiler has seen that they change, it knows the graph for all of them."""
    compiled = []

    def backend(graph, examples):
        compiled.append(graph)
        return graph.forward

    step = torch.compile(lambda x, k, seed, position: raffle.torch.sample(x, 0.8, k, seed=seed, position=position), backend=backend,
                         fullgraph=True)
    for i in range(2, 12):
        assert step(logits, i, i * 7, i * 3).tolist() == raffle.sample(logits, 0.8, i, seed=i * 7, position=i * 3).tolist()
    assert len(compiled) <= 2


def test_compile_draws_anew():
    compiled = torch.compile(lambda x: raffle.torch.sample(x), backend="aot_eager", fullgraph=True)
    flat = torch.zeros(16, 10000)
    assert len({tuple(compiled(flat).tolist()) for _ in range(5)}) == 5


def test_requests_and_reports():
    """Penalties, bans and reports of tensors are those of numpy, and come back as tensors."""
    logits = torch.randn(3, 200, generator=torch.Generator().manual_seed(1))
    words = dict(seed=1, logprobs=2, kept=9, output_token_ids=torch.tensor([[1, 2], [3, 3], [4, 5]]),
                 repetition_penalty=torch.tensor([1.1, 1.5, 1.9]), banned_token_ids=[7], logprobs_mode="processed_logprobs")
    token, told = raffle.sample(logits, logprob_token_ids=torch.tensor([3, 2**40]), **words)
    same, wanted = raffle.sample(logits.numpy(), logprob_token_ids=[3, 2**40], **words)
    assert token.tolist() == same.tolist()
    for name in set(told._fields) - {"all_logprobs", "kept"}:
        array = getattr(told, name)
        assert isinstance(array, torch.Tensor) and array.numpy().tobytes() == getattr(wanted, name).tobytes(), name
    with pytest.raises(TypeError, match="logprob_token_ids has dtype torch.float32"):
        raffle.sample(logits, seed=1, logprob_token_ids=torch.tensor([1.5]))
    sampler = raffle.Sampler(1, like=logits, vocab=200, history_max=8)
    slot = sampler.add(seed=1, presence_penalty=1.0)
    assert isinstance(sampler.sample(logits[:1], [slot], logprobs=0)[1].logprob, torch.Tensor)


def test_logprobs_of_the_operator(logits):
    for words in (dict(logprobs=0), dict(logprobs=4, top_k=9, logprobs_mode="processed_logprobs")):
        wanted, flags, wanted_told = raffle.sample(logits, 0.7, seed=3, return_flags=True, **words)
        step = torch.compile(lambda x, words=words: raffle.torch.sample(x, 0.7, seed=3, return_flags=True, **words), fullgraph=True,
                             backend="aot_eager")
        for run in (lambda x, words=words: raffle.torch.sample(x, 0.7, seed=3, return_flags=True, **words), step):
            token, row_flags, told = run(logits)
            assert token.tolist() == wanted.tolist() and row_flags.tolist() == flags.tolist()
            for one, other in zip(told, wanted_told):
                assert one is other is None or torch.equal(one, other)
    assert raffle.torch.sample(logits[0], seed=1, logprobs=2)[1].top_tokens.shape == (2,)
    seeds = torch.arange(ROWS)
    for count in (0, 3):
        torch.library.opcheck(torch.ops.raffle.sample_logprobs, (logits, None, None, None, None, seeds, seeds, None, 0, count, "raw_logprobs"))
    with pytest.raises(ValueError, match="softmax with log=True"):
        raffle.torch.sample(logits, logprobs=-1)
    with pytest.raises(ValueError, match="logprobs_mode is 'x'"):
        raffle.torch.sample(logits, logprobs=1, logprobs_mode="x")
