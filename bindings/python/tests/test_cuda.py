"""A GPU through torch, CuPy and JAX: the CPU's tokens, streams, graphs, nothing that waits."""
import gc
import threading
import time

import numpy as np
import pytest
import raffle

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
if not raffle.cuda_available()[0]:
    pytest.skip(f"this build cannot use the GPU: {raffle.cuda_available()[1]}", allow_module_level=True)
import raffle.torch  # noqa: E402

ROWS, VOCAB = 37, 5000
SLEEP = 400_000_000  # cycles: about a fifth of a second


def rows(count=ROWS, vocab=VOCAB, seed=3):
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (count, vocab)).astype(np.float32))


def unsupported(call):
    """The library's sentence, where this build's GPU backend lacks a function."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


@pytest.fixture
def logits():
    return rows()


PARAMS = [
    dict(),
    dict(temperature=0.0),
    dict(temperature=0.7, top_k=50),
    dict(temperature=1.3, top_p=0.9, position=5),
    dict(min_p=0.05, top_k=100, top_p=0.8, position=2**40),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_the_cpus_tokens(logits, dtype, params):
    given = logits.to(dtype)
    wanted = raffle.sample(given, seed=11, **params)
    drawn = raffle.sample(given.cuda(), seed=11, **params)
    assert drawn.is_cuda and drawn.dtype == torch.int32
    assert drawn.tolist() == wanted.tolist()


def test_every_way_to_write_parameters(logits):
    rng = np.random.default_rng(0)
    given = dict(temperature=rng.uniform(0, 2, ROWS).tolist(), top_k=rng.integers(-1, 200, ROWS).tolist(),
                 top_p=rng.uniform(0.1, 1.2, ROWS).tolist(), min_p=rng.uniform(0, 0.1, ROWS).tolist(),
                 seed=rng.integers(0, 2**63, ROWS).tolist(), position=rng.integers(0, 2**40, ROWS).tolist())
    wanted = raffle.sample(logits, **given).tolist()
    gpu = logits.cuda()
    exact = dict(temperature=torch.float32, top_k=torch.int32, top_p=torch.float32, min_p=torch.float32, seed=torch.int64,
                 position=torch.int64)
    loose = {**exact, "temperature": torch.float64, "top_k": torch.int64, "top_p": torch.float64}
    ways = [
        given,
        {n: torch.tensor(v, dtype=exact[n], device="cuda") for n, v in given.items()},
        {n: torch.tensor(v, dtype=exact[n]) for n, v in given.items()},
        {n: np.array(v) for n, v in given.items()},
        {n: torch.tensor(v, dtype=loose[n], device="cuda") for n, v in given.items()},
        {n: torch.tensor(v, dtype=exact[n], device="cuda").repeat_interleave(2)[::2] for n, v in given.items()},
        {n: torch.tensor(v, dtype=exact[n], device="cuda") if i % 2 else v for i, (n, v) in enumerate(given.items())},
    ]
    for i, way in enumerate(ways):
        assert raffle.sample(gpu, **way).tolist() == wanted, i
    many = rows(1500, 64)  # lists that take more than one launch to write
    seeds, temperature = list(range(1500)), [0.5 + i / 1500 for i in range(1500)]
    assert raffle.sample(many.cuda(), temperature, seed=seeds).tolist() == raffle.sample(many, temperature, seed=seeds).tolist()


def test_slots_masks_strides_outputs(logits):
    pool = dict(temperature=[0.5, 0, 1.5], seed=[1, 2, 3], position=[4, 5, 6])
    slot = [i * 7 % 3 for i in range(ROWS)]
    wanted = raffle.sample(logits, slot=slot, **pool).tolist()
    gpu = logits.cuda()
    assert raffle.sample(gpu, slot=slot, **pool).tolist() == wanted
    assert raffle.sample(gpu, slot=torch.tensor(slot, device="cuda"), **pool).tolist() == wanted
    mask = torch.rand(ROWS, VOCAB) < 0.02
    drawn = raffle.sample(gpu, seed=1, allow=raffle.pack_mask(mask.cuda())).tolist()
    assert drawn == raffle.sample(logits, seed=1, allow=raffle.pack_mask(mask)).tolist()
    wide = torch.full((ROWS, VOCAB + 13), float("nan"), device="cuda")
    wide[:, 5 : 5 + VOCAB] = gpu
    plain = raffle.sample(logits, seed=1).tolist()
    assert raffle.sample(wide[:, 5 : 5 + VOCAB], seed=1).tolist() == plain
    out = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
    assert raffle.sample(gpu, seed=1, out=out) is out and out.tolist() == plain
    gpu[3, 4] = float("nan")
    gpu[5] = float("-inf")
    token, flags = raffle.sample(gpu, seed=1, return_flags=True)
    assert flags.is_cuda and flags[3] == raffle.ROW_NAN and flags[5] == raffle.ROW_EMPTY and token[5] == -1
    assert raffle.sample(gpu[0], seed=1).shape == ()
    assert raffle.sample(gpu[:0], seed=1).shape == (0,)


def test_errors(logits):
    gpu = logits.cuda()
    for words, error, sentence in (
        (dict(out=torch.zeros(ROWS, dtype=torch.int32)), ValueError, "out is on another device"),
        (dict(allow=torch.ones(ROWS, VOCAB, dtype=torch.bool, device="cuda")), TypeError, "allow is bool"),
        (dict(threads=2), ValueError, "threads is for the CPU"),
        (dict(temperature=-1), ValueError, "temperature of row 0 is -1"),
        (dict(temperature=[1.0] * (ROWS - 1) + [float("nan")]), ValueError, "temperature of row 36"),
        (dict(temperature=torch.ones(3, device="cuda")), ValueError, "temperature has 3 entries"),
        (dict(top_k=torch.ones(ROWS, device="cuda")), TypeError, "dtype"),
    ):
        with pytest.raises(error, match=sentence):
            raffle.sample(gpu, **words)
    with pytest.raises(ValueError, match="temperature is on GPU 0, the logits are on the CPU"):
        raffle.sample(logits, torch.ones(ROWS, device="cuda"))
    with pytest.raises(ValueError, match="explain needs logits on the CPU"):
        raffle.explain(gpu)
    token, flags = raffle.sample(gpu, torch.full((ROWS,), -1.0, device="cuda"), seed=1, return_flags=True)
    assert set(flags.tolist()) == {raffle.ROW_ARGUMENT} and set(token.tolist()) == {-1}


def test_nothing_waits(logits):
    """Calls return while the stream is busy, whatever the parameters are."""
    gpu = logits.cuda()
    seeds = torch.arange(ROWS, device="cuda")
    why = unsupported(lambda: raffle.sample(gpu, banned_token_ids=[1], logprobs=1))
    if why:
        pytest.skip(why)
    sampler = raffle.Sampler(ROWS, like=gpu, vocab=VOCAB, history_max=100)
    for seed in range(ROWS):
        sampler.add(seed=seed)
    target, host = torch.stack([gpu, gpu], 1), logits.argmax(-1).int()[:, None].numpy()
    drafts, order = torch.from_numpy(host).cuda(), torch.arange(ROWS, device="cuda").flip(0)
    calls = [lambda: raffle.sample(gpu, 0.8, 50, 0.9, seed=1), lambda: raffle.sample(gpu, [0.5] * ROWS, seed=list(range(ROWS))),
             lambda: raffle.sample(gpu, np.full(ROWS, 0.7), seed=seeds), lambda: raffle.sample(gpu, torch.ones(ROWS), seed=seeds),
             lambda: raffle.torch.sample(gpu, 0.8, 50, 0.9), lambda: raffle.sample(gpu),
             lambda: raffle.sample(gpu, logit_bias={1: 2.0}, presence_penalty=1.0, output_token_ids=[[1, 2]] * ROWS, seed=1),
             lambda: raffle.sample(gpu, seed=1, logprobs=3, logprob_token_ids=[1, 2]), lambda: raffle.torch.sample(gpu, logprobs=3),
             lambda: sampler.sample(gpu), lambda: sampler.set(3, temperature=0.7, banned_token_ids=[1, 2, 3]),
             lambda: sampler.set_prompt(3, [1, 2, 3]), lambda: sampler.accept(3, [4]), lambda: sampler.truncate(3, 1),
             lambda: (sampler.remove(5), sampler.add(presence_penalty=1.0)), lambda: raffle.verify(target, drafts, 0.8, seed=1),
             lambda: raffle.verify(target, host, presence_penalty=1.0, output_token_ids=[[1, 2]] * ROWS, seed=1),
             lambda: sampler.verify(target, drafts), lambda: sampler.verify(target, drafts, order, draft_logits=gpu, logprobs=1)]
    for call in calls:
        call()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for i, call in enumerate(calls):
            torch.cuda._sleep(SLEEP)
            started = time.perf_counter()
            call()
            took = time.perf_counter() - started
            busy = not torch.cuda.current_stream().query()
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            assert busy and took < 0.05, (i, took)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_current_stream(logits):
    """Work of a side stream is seen in order: a late write to the logits, then the draw, then a late read."""
    wanted = raffle.sample(logits, 0.9, seed=4).tolist()
    gpu, source = torch.zeros(ROWS, VOCAB, device="cuda"), logits.cuda()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLEEP // 4)
        gpu.copy_(source)
        drawn = raffle.sample(gpu, 0.9, seed=4)
        gpu.zero_()
    side.synchronize()
    assert drawn.tolist() == wanted
    given = raffle.sample(source, 0.9, seed=4, stream=side.cuda_stream)
    side.synchronize()
    assert given.tolist() == wanted


def test_many_streams_and_threads(logits):
    gpu = logits.cuda()
    wanted = [raffle.sample(logits, 0.9, top_p=0.9, seed=4, position=p).tolist() for p in range(50)]
    wrong, errors = [], []

    def work():
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                drawn = [raffle.sample(gpu, 0.9, top_p=0.9, seed=4, position=p) for p in range(50)]
                torch.cuda.current_stream().synchronize()
                wrong.extend(p for p in range(50) if drawn[p].tolist() != wanted[p])
        except BaseException as error:  # noqa: BLE001 - told by the assertion below
            errors.append(error)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and not wrong


def test_streams_have_numbers_of_their_own(logits):
    """Each stream has a workspace with the numbers of its last call; a busy one keeps them while others go on."""
    gpu, streams = logits.cuda(), [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    drawn = []
    for step in range(12):
        with torch.cuda.stream(streams[step % 3]):
            torch.cuda._sleep(SLEEP // 100)
            words = dict(temperature=0.5 + step / 4 % 1, top_k=7 * (step % 2), seed=step // 5, position=step)
            drawn.append((raffle.sample(gpu, **words), words))
    torch.cuda.synchronize()
    for found, words in drawn:
        assert found.tolist() == raffle.sample(logits, **words).tolist()


def test_a_captured_graph(logits):
    gpu = logits.cuda()
    temperature, position = torch.full((ROWS,), 0.8, device="cuda"), torch.zeros(ROWS, dtype=torch.int64, device="cuda")
    raffle.sample(gpu, temperature, 50, seed=9, position=position)  # warm
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = raffle.sample(gpu, temperature, 50, [0.9] * ROWS, seed=9, position=position)
    for step in range(20):
        position.fill_(step)
        temperature.fill_(0.5 + step / 10)
        gpu.copy_(rows(seed=step))
        # Eager calls between replays must not share the graph's workspace.
        other = raffle.sample(gpu, seed=1, position=step)
        graph.replay()
        assert drawn.tolist() == raffle.sample(rows(seed=step), float(np.float32(0.5 + step / 10)), 50, 0.9, seed=9,
                                               position=step).tolist()
        assert other.tolist() == raffle.sample(rows(seed=step), seed=1, position=step).tolist()


def test_capturing_without_a_seed_is_refused(logits):
    gpu = logits.cuda()
    raffle.sample(gpu)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(ValueError, match="seed is None"):
        with torch.cuda.graph(graph):
            raffle.sample(gpu)
    torch.cuda.synchronize()


def test_a_graph_with_torchs_chance():
    flat = torch.zeros(16, 10000, device="cuda")
    raffle.torch.sample(flat)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = raffle.torch.sample(flat)
    seen = set()
    for _ in range(5):
        graph.replay()
        seen.add(tuple(drawn.tolist()))
    assert len(seen) == 5


def test_prepared_calls(logits):
    gpu = logits.cuda()
    call = raffle.prepare(gpu, 0.9, top_p=0.95, seed=2, advance=True)
    for step in range(5):
        assert call().tolist() == raffle.sample(logits, 0.9, top_p=0.95, seed=2, position=step).tolist()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    for step in range(5, 15):  # the graph advances the positions itself
        graph.replay()
        assert out.tolist() == raffle.sample(logits, 0.9, top_p=0.95, seed=2, position=step).tolist()


def test_sampler(logits):
    gpu = logits.cuda()
    here, there = raffle.Sampler(64), raffle.Sampler(64, like=gpu)
    asked = [dict(temperature=0.3 + i / 20, top_k=i, top_p=1 - i / 80, seed=2**64 - 1 - i, position=i) for i in range(ROWS)]
    for a in asked:
        assert here.add(**a) == there.add(**a)
    slots = list(range(ROWS))[::-1]
    for _ in range(5):
        assert there.sample(gpu, slots).tolist() == here.sample(logits, slots).tolist()
    assert there.get(7) == pytest.approx(here.get(7)) and there.get(7)["seed"] == 2**64 - 8
    call = there.prepare(gpu, torch.tensor(slots, dtype=torch.int32, device="cuda"))
    call()
    here.sample(logits, slots)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = call()
    for _ in range(5):
        graph.replay()
        assert drawn.tolist() == here.sample(logits, slots).tolist()
    with pytest.raises(ValueError, match="make it with like=logits"):
        here.sample(gpu, slots)


def test_a_sampler_captured_before_its_first_call(logits):
    """A workspace that is made while a graph is captured is the graph's, and not kept for calls outside."""
    gpu = logits.cuda()
    here, there = raffle.Sampler(ROWS), raffle.Sampler(ROWS, like=gpu)
    for seed in range(ROWS):
        here.add(seed=seed), there.add(seed=seed)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = there.sample(gpu)
    for _ in range(5):
        assert there.sample(gpu).tolist() == here.sample(logits).tolist()
        graph.replay()
        assert drawn.tolist() == here.sample(logits).tolist()


def test_compile(logits):
    gpu = logits.cuda()

    def step(x, position):
        return raffle.torch.sample(x * 2, temperature=0.8, top_k=50, seed=3, position=position) + 1

    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(step, mode=mode, fullgraph=True)
        for number in range(5):
            position = torch.full((ROWS,), number, device="cuda")
            wanted = raffle.sample(logits * 2, 0.8, 50, seed=3, position=number) + 1
            assert compiled(gpu, position).tolist() == wanted.tolist(), (mode, number)
            assert (raffle.sample(gpu, seed=3).cpu() == raffle.sample(logits, seed=3)).all()  # plain calls in between


def test_operators_with_logprobs(logits):
    gpu = logits.cuda()
    for words in (dict(logprobs=0), dict(logprobs=4, top_k=9, logprobs_mode="processed_logprobs")):
        wanted, wanted_told = raffle.sample(logits, seed=3, **words)
        step = torch.compile(lambda x, words=words: raffle.torch.sample(x, seed=3, **words), fullgraph=True)
        for run in (lambda x, words=words: raffle.torch.sample(x, seed=3, **words), step):
            token, told = run(gpu)
            assert token.tolist() == wanted.tolist()
            for one, other in zip(told, wanted_told):
                assert one is other is None or torch.equal(one.cpu(), other)


def test_operators_of_rows(logits):
    """softmax and mask, compiled and in a graph."""
    gpu = logits.cuda()
    wanted = raffle.softmax(logits, 0.7, top_k=9), raffle.mask(logits, top_p=0.8)

    def step(x):
        return raffle.torch.softmax(x, 0.7, top_k=9), raffle.torch.mask(x, top_p=0.8)

    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(step, mode=mode, fullgraph=True)
        for _ in range(4):
            assert all(torch.equal(one.cpu(), other) for one, other in zip(compiled(gpu), wanted)), mode
    step(gpu)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step(gpu)
    for seed in range(3):
        gpu.copy_(rows(seed=seed))
        graph.replay()
        assert torch.equal(found[0].cpu(), raffle.softmax(rows(seed=seed), 0.7, top_k=9))
        assert torch.equal(found[1].cpu(), raffle.mask(rows(seed=seed), top_p=0.8))


def test_flashinfer_in_a_graph(logits):
    """Seeds and offsets of each row are read at every replay; without them each replay draws anew."""
    from raffle import flashinfer

    gpu, seeds = logits.cuda(), torch.arange(ROWS, device="cuda")
    offsets, flat = torch.zeros(ROWS, dtype=torch.int64, device="cuda"), torch.ones(16, 10000, device="cuda")

    def step():
        return (flashinfer.top_k_top_p_sampling_from_logits(gpu, 40, 0.9, seed=seeds, offset=offsets), flashinfer.sampling_from_logits(flat))

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn, anew = step()
    seen = set()
    for number in range(5):
        offsets.fill_(number)
        graph.replay()
        assert drawn.tolist() == flashinfer.top_k_top_p_sampling_from_logits(
            logits, 40, 0.9, seed=torch.arange(ROWS), offset=torch.full((ROWS,), number)).tolist()
        seen.add(tuple(anew.tolist()))
    assert len(seen) == 5


def test_chains_in_a_graph():
    """With the generator's seeds and a number for the position, which must not be copied from the host."""
    from raffle import flashinfer

    generator = torch.Generator().manual_seed(5)
    draft, target = torch.rand(8, 3, 50, generator=generator), torch.rand(8, 4, 50, generator=generator)
    ids = torch.randint(0, 50, (8, 3), generator=generator)
    far, seen = [array.cuda() for array in (draft, ids, target)], set()
    wanted = flashinfer.chain_speculative_sampling(draft, ids, target, seed=2**64 - 1, offset=2**64 - 1)

    def step():
        return flashinfer.chain_speculative_sampling(*far), flashinfer.chain_speculative_sampling(*far, seed=2**64 - 1, offset=2**64 - 1)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        anew, again = step()
    for _ in range(5):
        graph.replay()
        seen.add(str(anew[0].tolist()))
        assert [part.tolist() for part in again] == [part.tolist() for part in wanted]
    assert len(seen) == 5


def test_memory_that_goes_after_prepare(logits):
    gpu = logits.cuda()
    call = raffle.prepare(gpu, seed=1)
    assert call().tolist() == raffle.sample(logits, seed=1).tolist()
    gpu.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="logits: the array is not what it was at prepare"):
        call()


def test_memory_that_is_gone(logits):
    """torch keeps the shape where the memory is gone: no kernel may go there."""
    gpu, target, drafts = logits.cuda(), rows(4).reshape(2, 2, VOCAB).cuda(), torch.zeros(2, 1, dtype=torch.int32, device="cuda")
    for made, call in (
        (gpu, lambda t: raffle.sample(t, seed=1)), (torch.ones(ROWS), lambda t: raffle.sample(gpu, t, seed=1)),
        (torch.ones(ROWS, dtype=torch.int64), lambda t: raffle.sample(gpu, top_k=t, seed=1)),
        (torch.ones(ROWS, dtype=torch.int32), lambda t: raffle.sample(gpu, seed=1, out=t)),
        (torch.ones(ROWS, 157, dtype=torch.int32), lambda t: raffle.sample(gpu, seed=1, allow=t)),
        (torch.ones(ROWS, 2, dtype=torch.int64), lambda t: raffle.sample(gpu, seed=1, logprob_token_ids=t)),
        (drafts, lambda t: raffle.verify(target, t, seed=1)),
        (target[:, 0], lambda t: raffle.verify(target, drafts, seed=1, draft_logits=t)),
    ):
        gone = made.clone().cuda()
        gone.untyped_storage().resize_(0)
        with pytest.raises(ValueError, match="has no memory: it was freed"):
            call(gone)
    assert raffle.sample(gpu, seed=1).tolist() == raffle.sample(logits, seed=1).tolist()


def test_no_rows():
    empty = torch.zeros(0, VOCAB, device="cuda")
    assert raffle.torch.sample(empty).shape == raffle.sample(empty, seed=torch.zeros(0, dtype=torch.int64, device="cuda")).shape == (0,)
    assert raffle.torch.softmax(empty).shape == (0, VOCAB)


def test_memory_of_another_stream(logits):
    """Requests and workspace of a call on a stream that is not the current one belong to that stream."""
    gpu = logits.cuda()
    why = unsupported(lambda: raffle.sample(gpu, banned_token_ids=[1]))
    if why:
        pytest.skip(why)
    side = torch.cuda.Stream()
    words = dict(presence_penalty=1.0, output_token_ids=[list(range(40))] * ROWS, seed=1)
    wanted = raffle.sample(logits, **words).tolist()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLEEP // 4)
    drawn = [raffle.sample(gpu, stream=side.cuda_stream, **words) for _ in range(3)]
    junk = [torch.full((200_000,), 255, dtype=torch.uint8, device="cuda") for _ in range(50)]  # what was freed is used again
    side.synchronize()
    assert [one.tolist() for one in drawn] == [wanted] * 3 and len(junk) == 50


def test_memory_does_not_grow(logits):
    gpu = logits.cuda()
    out = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
    for _ in range(100):
        raffle.sample(gpu, 0.8, [3] * ROWS, seed=1, out=out)
    gc.collect()  # what other tests left: its end must not hide growth, nor count as a change
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    for _ in range(20000):
        raffle.sample(gpu, 0.8, [3] * ROWS, seed=1, out=out)
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before[0] and before[1] - torch.cuda.mem_get_info()[0] < 2**21


def test_more_than_2_31_logits():
    if torch.cuda.mem_get_info()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of GPU memory")
    count, vocab = 17000, 131072
    big = torch.zeros(count, vocab, dtype=torch.bfloat16, device="cuda")
    big[-1, 77] = 50
    drawn = raffle.sample(big, seed=1)
    assert drawn[-1] == 77 and 0 <= drawn.min() and drawn.max() < vocab
    few = raffle.sample(torch.zeros(3, vocab, dtype=torch.bfloat16), seed=[1, 100, 16000])
    assert [drawn[0].item(), drawn[99].item(), drawn[15999].item()] == few.tolist()


class OnlyInterface:
    """An array that has __cuda_array_interface__ and nothing else."""

    def __init__(self, inner):
        self.inner, self.__cuda_array_interface__ = inner, inner.__cuda_array_interface__


def test_cuda_array_interface(logits):
    gpu = logits.cuda()
    out = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
    raffle.sample(gpu, seed=1, out=OnlyInterface(out))
    torch.cuda.synchronize()
    assert out.tolist() == raffle.sample(logits, seed=1).tolist()


def test_cupy(logits):
    cupy = pytest.importorskip("cupy")
    gpu = cupy.asarray(logits.numpy())
    wanted = raffle.sample(logits, 0.8, 50, 0.9, seed=5, position=1).tolist()
    drawn = raffle.sample(gpu, 0.8, 50, 0.9, seed=5, position=1)
    assert isinstance(drawn, cupy.ndarray) and drawn.tolist() == wanted
    params = dict(temperature=cupy.full(ROWS, 0.8), top_k=cupy.full(ROWS, 50), seed=cupy.arange(5, 5 + ROWS), position=1)
    assert raffle.sample(gpu, top_p=0.9, **params).tolist() == wanted
    with cupy.cuda.Stream(non_blocking=True) as side:
        late = cupy.zeros_like(gpu)
        late[...] = gpu
        drawn = raffle.sample(late, 0.8, 50, 0.9, seed=5, position=1)
        side.synchronize()
    assert drawn.tolist() == wanted
    sampler = raffle.Sampler(ROWS, like=gpu)
    for seed in range(ROWS):
        sampler.add(seed=seed)
    assert [sampler.sample(gpu).tolist() for _ in range(2)] == [
        raffle.sample(logits, seed=list(range(ROWS)), position=p).tolist() for p in range(2)]
    words = dict(presence_penalty=1.0, output_token_ids=[[5, 6]] * ROWS, seed=1, logprobs=2, logprob_token_ids=[3])
    (token, told), (wanted, wanted_told) = raffle.sample(gpu, **words), raffle.sample(logits, **words)
    assert token.tolist() == wanted.tolist() and told.given_logprobs.tolist() == wanted_told.given_logprobs.tolist()


def test_jax(logits):
    jax = pytest.importorskip("jax")
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX sees no GPU: {error}")
    gpu = jax.device_put(logits.numpy(), device)
    drawn = raffle.sample(gpu, 0.8, 50, 0.9, seed=5)
    assert isinstance(drawn, jax.Array) and drawn.devices() == gpu.devices()
    assert drawn.tolist() == raffle.sample(logits, 0.8, 50, 0.9, seed=5).tolist()
    mask = raffle.pack_mask(np.arange(VOCAB)[None] % 3 == np.arange(ROWS)[:, None] % 3)
    drawn = raffle.sample(gpu, seed=5, allow=jax.device_put(mask, device))
    assert drawn.tolist() == raffle.sample(logits, seed=5, allow=mask).tolist()
    words = dict(presence_penalty=1.0, output_token_ids=[[5, 6]] * ROWS, seed=1, logprobs=2, logprob_token_ids=[3])
    (token, told), (wanted, wanted_told) = raffle.sample(gpu, **words), raffle.sample(logits, **words)
    assert token.tolist() == wanted.tolist() and told.given_logprobs.tolist() == wanted_told.given_logprobs.tolist()
    sampler = raffle.Sampler(ROWS, like=gpu, vocab=VOCAB, history_max=8)
    for seed in range(ROWS):
        sampler.add(seed=seed, presence_penalty=0.5)
    assert isinstance(sampler.sample(gpu), jax.Array) and sampler.history(0)[1] == [raffle.sample(logits[:1], seed=0).item()]


def test_rows_of_probabilities(logits):
    gpu = logits.cuda()
    why = unsupported(lambda: raffle.softmax(gpu))
    if why:
        pytest.skip(why)
    for words in (dict(), dict(temperature=0.7), dict(top_k=9), dict(top_p=0.8), dict(min_p=0.1, temperature=0.0),
                  dict(banned_token_ids=[1], typical_p=0.9), dict(presence_penalty=1.0, output_token_ids=[[5, 6]] * ROWS, top_k=20),
                  dict(xtc_probability=1.0, xtc_threshold=0.01, seed=3)):
        assert torch.equal(raffle.softmax(gpu, **words).cpu(), raffle.softmax(logits, **words))
        assert torch.equal(raffle.mask(gpu, **words).cpu(), raffle.mask(logits, **words))
        assert torch.equal(raffle.kept(gpu, **words).cpu(), raffle.kept(logits, **words))
    assert torch.equal(raffle.softmax(gpu.bfloat16(), out_dtype=torch.float32).cpu(), raffle.softmax(logits.bfloat16(), out_dtype=torch.float32))
    assert torch.equal(raffle.softmax(gpu, out=gpu).cpu(), raffle.softmax(logits))


def test_probabilities_and_shared_rows(logits):
    probs = raffle.softmax(logits)
    gpu = probs.cuda()
    why = unsupported(lambda: raffle.sample(gpu, probs=True)) or unsupported(lambda: raffle.sample(gpu, index=[0, 0]))
    if why:
        pytest.skip(why)
    for words in (dict(), dict(top_k=9), dict(top_p=0.8, top_k=50), dict(min_p=0.1)):
        assert raffle.sample(gpu, probs=True, seed=3, **words).tolist() == raffle.sample(probs, probs=True, seed=3, **words).tolist()
    index = [5, 5, 5, 0, 36, 36]
    wanted = raffle.sample(logits, 0.8, index=index, seed=3).tolist()
    assert raffle.sample(logits.cuda(), 0.8, index=index, seed=3).tolist() == wanted
    assert raffle.sample(logits.cuda(), 0.8, index=torch.tensor(index, device="cuda"), seed=3).tolist() == wanted


def test_verify(logits):
    target = rows(4 * 9, seed=8).reshape(4, 9, VOCAB)
    drafts = target[:, :8].argmax(-1).int()
    why = unsupported(lambda: raffle.verify(target.cuda(), drafts.cuda(), seed=1))
    if why:
        pytest.skip(why)
    found, wanted = raffle.verify(target.cuda(), drafts.cuda(), 0.3, seed=1), raffle.verify(target, drafts, 0.3, seed=1)
    assert found.tokens.is_cuda and found.tokens.tolist() == wanted.tokens.tolist()
    assert found.accepted.tolist() == wanted.accepted.tolist() and found.last.tolist() == wanted.last.tolist()


def test_flashinfer(logits):
    from raffle import flashinfer

    gpu = logits.cuda()
    seeds, offsets = torch.arange(ROWS), torch.arange(ROWS) * 3
    wanted = flashinfer.top_k_top_p_sampling_from_logits(logits, 40, 0.9, seed=seeds, offset=offsets).tolist()
    assert flashinfer.top_k_top_p_sampling_from_logits(gpu, 40, 0.9, seed=seeds.cuda(), offset=offsets.cuda()).tolist() == wanted
    assert flashinfer.sampling_from_logits(gpu, seed=3, offset=4).tolist() == flashinfer.sampling_from_logits(
        logits, seed=3, offset=4).tolist()
    draws = [flashinfer.sampling_from_logits(gpu, generator=torch.Generator("cuda").manual_seed(5)).tolist() for _ in range(2)]
    assert draws[0] == draws[1]
    with pytest.raises(ValueError):
        flashinfer.sampling_from_logits(gpu, seed=seeds, offset=offsets)  # on another device
    why = unsupported(lambda: flashinfer.sampling_from_probs(gpu.softmax(-1)))
    if why:
        pytest.skip(why)
    probs = raffle.softmax(logits)
    for name, words in (("sampling_from_probs", {}), ("top_k_sampling_from_probs", dict(top_k=8)),
                        ("top_p_sampling_from_probs", dict(top_p=0.7)), ("min_p_sampling_from_probs", dict(min_p=0.1))):
        function = getattr(flashinfer, name)
        assert function(probs.cuda(), seed=3, offset=4, **words).tolist() == function(probs, seed=3, offset=4, **words).tolist()
    draft, ids = raffle.softmax(rows(12, seed=5)).reshape(3, 4, VOCAB), raffle.sample(rows(12, seed=5), seed=1).reshape(3, 4)
    target = raffle.softmax(rows(15, seed=6) * 0.2 + rows(15, seed=5)).reshape(3, 5, VOCAB)
    wanted = flashinfer.chain_speculative_sampling(draft, ids, target, seed=3, offset=4)
    for one, other in zip(flashinfer.chain_speculative_sampling(draft.cuda(), ids.cuda(), target.cuda(), seed=3, offset=4), wanted):
        assert one.is_cuda and one.tolist() == other.tolist()
