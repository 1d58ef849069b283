"""What other samplers take on this GPU, for the shapes of bench_cuda: graph replay, inputs rotated past the L2, medians.

    python3 bench/peers_cuda.py [--rows 1,8,32,128,512] [--vocab 128256] [--csv FILE]

Needs torch; flashinfer is measured too where it can be imported. Without torch it says so and measures nothing.
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
    import flashinfer.sampling as flashinfer
except ImportError:
    flashinfer = None

TEMPERATURE = 0.8


def logits_like_bench(inputs: int, rows: int, vocab: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal, standard deviation 2.5, and 20 tokens a row 8 to 12 higher."""
    x = torch.randn(inputs * rows, vocab, device="cuda") * 2.5
    peaks = torch.randint(vocab, (inputs * rows, 20), device="cuda")
    x.scatter_add_(1, peaks, 8 + 4 * torch.rand(inputs * rows, 20, device="cuda"))
    return x.to(dtype).view(inputs, rows, vocab)


def sorted_top_k_top_p(x: torch.Tensor, k: int = 50, p: float = 0.9) -> torch.Tensor:
    values, ids = torch.sort(x.float() / TEMPERATURE, descending=True)
    values[:, k:] = -torch.inf
    share = torch.softmax(values, -1)
    share[torch.cumsum(share, -1) - share >= p] = 0
    return ids.gather(1, torch.multinomial(share, 1))


def routes() -> dict:
    found = {
        "argmax: torch": lambda x: torch.argmax(x, -1),
        "no filter: torch softmax + multinomial": lambda x: torch.multinomial(torch.softmax(x.float() / TEMPERATURE, -1), 1),
        "top-k 50 + top-p 0.9: torch sort": sorted_top_k_top_p,
    }
    if flashinfer:
        def softmax(x):
            return flashinfer.softmax(x.float(), temperature=TEMPERATURE)
        found["no filter: flashinfer"] = lambda x: flashinfer.sampling_from_probs(softmax(x))
        found["top-k 50 + top-p 0.9: flashinfer"] = lambda x: flashinfer.top_k_top_p_sampling_from_probs(softmax(x), 50, 0.9)
        found["top-p 0.9: flashinfer"] = lambda x: flashinfer.top_p_sampling_from_probs(softmax(x), 0.9)
        found["min-p 0.05: flashinfer"] = lambda x: flashinfer.min_p_sampling_from_probs(softmax(x), 0.05)
    return found


def microseconds(route, inputs: torch.Tensor) -> float:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        route(inputs[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for x in inputs:
            route(x)
    times = []
    for _ in range(9):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / len(inputs))
    return statistics.median(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1,8,32,128,512")
    parser.add_argument("--vocab", type=int, default=128256)
    parser.add_argument("--csv")
    options = parser.parse_args()
    table = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, vocab {options.vocab}, us")
    for name, route in routes().items():
        line = [name]
        for rows in map(int, options.rows.split(",")):
            count = max(2, min(64, (256 << 20) // (rows * options.vocab * 2)))
            try:
                us = microseconds(route, logits_like_bench(count, rows, options.vocab, torch.bfloat16))
                line.append(f"{us:.1f}")
            except RuntimeError as error:
                line.append("-")
                print(f"  {name} at {rows} rows: {str(error).splitlines()[0]}", file=sys.stderr)
            table.append([name, rows, options.vocab, line[-1]])
        print(f"{line[0]:42}" + "".join(f"{x:>10}" for x in line[1:]), flush=True)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            csv.writer(file).writerows([["route", "rows", "vocab", "us"], *table])


main()
