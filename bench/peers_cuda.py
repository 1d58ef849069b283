"""What other samplers take on this GPU, for the shapes of bench_cuda: graph replay, inputs rotated past the L2, medians.

    python3 bench/peers_cuda.py [--rows 1,8,32,128,512] [--vocab 32000,128256] [--only flashinfer] [--fused] [--csv FILE]

Needs torch; FlashInfer is measured too where it can be imported. Without torch it says so and measures nothing.

torch reads bf16 logits, as bench_cuda does, FlashInfer f32 ones: its cast of others is not counted. Temperature 0.8, except
where FlashInfer starts from logits: those calls have none. "by row": k and p are tensors, as requests that differ need them;
one k for all rows is a faster way of its own. "verify" is bench_verify's "rejection, draft logits", its rows the target's.
"""
import argparse
import csv
import statistics
import sys

try:
    import torch
except ImportError:
    sys.exit("skipped: torch cannot be imported")
try:
    import flashinfer
    from flashinfer import sampling
except ImportError as error:
    print(f"without flashinfer: {error}", file=sys.stderr)
    flashinfer = None

TEMPERATURE = 0.8
REQUESTS, DRAFTS, VERIFIED_VOCAB = 64, 4, 128256


def logits_like_bench(rows: int, vocab: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal, standard deviation 2.5, and 20 tokens a row 8 to 12 higher; inputs of these rows for 256 MB, at most 1024."""
    inputs = max(2, min(1024, (256 << 20) // (rows * vocab * dtype.itemsize) + 1))
    torch.manual_seed(1)
    x = torch.randn(inputs * rows, vocab, device="cuda") * 2.5
    peaks = torch.randint(vocab, (inputs * rows, 20), device="cuda")
    x.scatter_add_(1, peaks, 8 + 4 * torch.rand(inputs * rows, 20, device="cuda"))
    return x.to(dtype).view(inputs, rows, vocab)


def drafts_like_bench() -> list:
    """Of each input: target rows, draft rows (those and noise, uniform, 0 to 1), and tokens drawn from the draft rows."""
    target = logits_like_bench(REQUESTS * (DRAFTS + 1), VERIFIED_VOCAB, torch.float32)
    draft = target.view(-1, REQUESTS, DRAFTS + 1, VERIFIED_VOCAB)[:, :, :DRAFTS].reshape(-1, VERIFIED_VOCAB)
    draft += torch.rand_like(draft)
    token = torch.multinomial(torch.softmax(draft / TEMPERATURE, -1), 1).int()
    return list(zip(target, draft.view(len(target), -1, VERIFIED_VOCAB), token.view(-1, REQUESTS, DRAFTS)))


def sorted_top_k_top_p(x: torch.Tensor, k: int = 50, p: float = 0.9) -> torch.Tensor:
    values, ids = torch.sort(x.float() / TEMPERATURE, descending=True)
    values[:, k:] = -torch.inf
    share = torch.softmax(values, -1)
    share[torch.cumsum(share, -1) - share >= p] = 0
    return ids.gather(1, torch.multinomial(share, 1))


def torch_routes() -> dict:
    return {
        "argmax: torch": lambda x: torch.argmax(x, -1),
        "softmax: torch": lambda x: torch.softmax(x.float() / TEMPERATURE, -1),
        "no filter: torch softmax + multinomial": lambda x: torch.multinomial(torch.softmax(x.float() / TEMPERATURE, -1), 1),
        "top-k 50 + top-p 0.9: torch sort": sorted_top_k_top_p,
    }


def softmax(x: torch.Tensor) -> torch.Tensor:
    return sampling.softmax(x, temperature=TEMPERATURE)


def seeds() -> dict:
    """Without them FlashInfer reads torch's generator, on the host, where a graph cannot."""
    return {name: torch.ones(1, dtype=torch.int64, device="cuda") for name in ("seed", "offset")}


def flashinfer_routes(rows: int, fused: bool) -> dict:
    drawn, top_k_top_p = seeds(), sampling.top_k_top_p_sampling_from_probs
    k, p = torch.full((rows,), 50, dtype=torch.int32, device="cuda"), torch.full((rows,), 0.9, device="cuda")
    found = {
        "softmax: flashinfer": softmax,
        "no filter: flashinfer": lambda x: sampling.sampling_from_probs(softmax(x), **drawn),
        "no filter: flashinfer from logits": lambda x: sampling.sampling_from_logits(x, **drawn),
        "top-k 50 + top-p 0.9: flashinfer": lambda x: top_k_top_p(softmax(x), 50, 0.9, **drawn),
        "top-k 50 + top-p 0.9: flashinfer by row": lambda x: top_k_top_p(softmax(x), k, p, **drawn),
        "top-k 50 + top-p 0.9: flashinfer from logits": lambda x: sampling.top_k_top_p_sampling_from_logits(x, 50, 0.9, **drawn),
        "top-p 0.9: flashinfer": lambda x: sampling.top_p_sampling_from_probs(softmax(x), 0.9, **drawn),
        "min-p 0.05: flashinfer": lambda x: sampling.min_p_sampling_from_probs(softmax(x), 0.05, **drawn),
    }
    if fused:
        from flashinfer.cake_sampling import top_k_top_p_sampling_from_probs as at_once
        fixed = {"philox_seed": 1, "philox_offset": 1}
        found["top-k 50 + top-p 0.9: flashinfer fused"] = lambda x: at_once(softmax(x), 50, 0.9, **fixed)
    return found


def flashinfer_verify():
    drawn, counts = seeds(), torch.zeros(2, REQUESTS, dtype=torch.int32, device="cuda")

    def verify(x: tuple) -> tuple:
        target, draft, token = x
        target, draft = softmax(target).view(REQUESTS, DRAFTS + 1, -1), softmax(draft).view(REQUESTS, DRAFTS, -1)
        return sampling.chain_speculative_sampling(draft, token, target, *counts, **drawn)

    return verify


def microseconds(route, inputs) -> tuple:
    """Of one call, and "", or why there is no graph of the calls: they are launched between the events then."""
    count, times = max(20, len(inputs)), []
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def calls() -> list:
        """Every call has an output of its own, which is as cold as its input."""
        return [route(inputs[i % len(inputs)]) for i in range(count)]

    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        route(inputs[0])
    torch.cuda.synchronize()
    run, why = graph.replay, ""
    try:
        with torch.cuda.graph(graph, stream=stream):
            calls()
    except RuntimeError as error:
        torch.cuda.set_stream(torch.cuda.default_stream())
        run, why = calls, str(error).splitlines()[0]
    for _ in range(9):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / count)
    return statistics.median(times[2:]), why


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1,8,32,128,512")
    parser.add_argument("--vocab", default="32000,128256")
    parser.add_argument("--only", default="", help="routes with this in their name")
    parser.add_argument("--fused", action="store_true", help="flashinfer.cake_sampling, too, which can take very long to build")
    parser.add_argument("--csv")
    options = parser.parse_args()
    table = []

    def figure(name: str, rows: int, vocab: int, route, inputs_of) -> str:
        """As printed: "-" for what fails, and an "e" behind the time of calls that are no graph's."""
        try:
            us, why = microseconds(route, inputs_of())
        except Exception as error:
            print(f"  {name} at {rows} rows: {(str(error) or repr(error)).splitlines()[0]}", file=sys.stderr)
            table.append([name, rows, vocab, "-"])
            return "-"
        if why:
            print(f"  {name} at {rows} rows is no graph: {why}", file=sys.stderr)
        table.append([f"{name} (no graph)" if why else name, rows, vocab, f"{us:.1f}"])
        return f"{us:.1f}e" if why else f"{us:.1f}"

    def routes(rows: int) -> dict:
        return torch_routes() | (flashinfer_routes(rows, options.fused) if flashinfer else {})

    versions = f"torch {torch.__version__}" + (f", flashinfer {flashinfer.__version__}" if flashinfer else "")
    print(f"{torch.cuda.get_device_name()}, {versions}, rows {options.rows}, us")
    for vocab in map(int, options.vocab.split(",")):
        print(f"vocab {vocab}")
        for name in filter(lambda name: options.only in name, routes(1)):
            dtype = torch.float32 if "flashinfer" in name else torch.bfloat16
            print(f"{name:46}", end="")
            for rows in map(int, options.rows.split(",")):
                us = figure(name, rows, vocab, routes(rows)[name], lambda: logits_like_bench(rows, vocab, dtype))
                print(f"{us:>10}", end="", flush=True)
            print()
    name = f"verify {REQUESTS} x {DRAFTS} drafts: flashinfer"
    if flashinfer and options.only in name:
        us = figure(name, REQUESTS * (DRAFTS + 1), VERIFIED_VOCAB, flashinfer_verify(), drafts_like_bench)
        print(f"{name:46}{us:>10}")
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            csv.writer(file).writerows([["route", "rows", "vocab", "us"], *table])


main()
