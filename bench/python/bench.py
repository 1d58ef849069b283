#!/usr/bin/env python3
"""bench.py - raffle from Python beside torch, and flashinfer, vllm and llama-cpp-python where they can be imported.

    PYTHONPATH=build-python/python python3 bench/python/bench.py [--quick] [--csv FILE] [--plot FILE] [--overhead-only] [--only cuda]
    python3 bench/python/bench.py --draw FILE.csv --plot FILE.png

Two parts in one run. Overhead: processor time of a call that has next to nothing to draw from, against its limits (10 us
for a plain call, 3 us for a prepared one); the run fails where they are not met. Routes: microseconds per call for each
sampler that is here, on the CPU (one thread each) and, where torch sees one, on a GPU (CUDA events, inputs in turn): called
from Python, and captured in a graph. Numbers are medians, and minima beside them; each repetition goes through all samplers,
so that a busy neighbour hits all of them. --draw makes the picture of a CSV that was written where there is no matplotlib.
"""
import argparse
import csv
import importlib
import itertools
import platform
import statistics
import sys
import time

try:
    import numpy as np
    import raffle
except ImportError:
    if "--draw" not in sys.argv:  # which needs neither
        raise

PLAIN_LIMIT, PREPARED_LIMIT = 10.0, 3.0  # microseconds
ROUTES = {
    "greedy": dict(temperature=0.0),
    "no filter": dict(temperature=0.8),
    "top-k 50 + top-p 0.9": dict(temperature=0.8, top_k=50, top_p=0.9),
    "top-p 0.9": dict(temperature=0.8, top_p=0.9),
    "min-p 0.05": dict(temperature=0.8, min_p=0.05),
}


def optional(name):
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - an import can fail in many ways, and then the peer is left out
        print(f"   {name} is left out: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return None


# ---- overhead ------------------------------------------------------------------------------------

def series(functions, rounds, calls, settle):
    """Name -> (median, least) of microseconds of this thread's processor time per call: short series of each in turn, so
    that a processor that slows down does so for all. `settle` waits for a GPU: a stream takes about a thousand launches, and
    then the next one waits."""
    times = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            started = time.thread_time_ns()
            for _ in range(calls):
                function()
            times[name].append((time.thread_time_ns() - started) / calls / 1000)
            settle()
    return {name: (statistics.median(found), min(found)) for name, found in times.items()}


def overhead_calls(row):
    """Name -> (function, limit) for one kind of row. Calls are written as people write them: a ** in a call is a dict more."""
    sample, out, step = raffle.sample, raffle.sample(row, seed=1), itertools.count()
    words = dict(temperature=0.8, top_k=4, seed=1)
    sampler = raffle.Sampler(1, like=row)
    sampler.add(**words)
    calls = {"sample": (lambda: sample(row, temperature=0.8, top_k=4, seed=1), PLAIN_LIMIT),
             "sample, out=": (lambda: sample(row, temperature=0.8, top_k=4, seed=1, out=out), PLAIN_LIMIT),
             "sample, position of each": (lambda: sample(row, temperature=0.8, top_k=4, seed=1, position=next(step)), PLAIN_LIMIT),
             "sample, no seed": (lambda: sample(row, 0.8, 4), PLAIN_LIMIT),
             "sample, lists": (lambda: sample(row, [0.8], [4], [0.9], seed=[1], position=[0]), None),
             "Sampler.sample": (lambda: sampler.sample(row), PLAIN_LIMIT),
             "Sampler.sample, out=": (lambda: sampler.sample(row, out=out), None),
             "prepared": (raffle.prepare(row, **words), PREPARED_LIMIT),
             "prepared, advance": (raffle.prepare(row, advance=True, **words), PREPARED_LIMIT)}
    asking = raffle.Sampler(1, like=row, vocab=8, history_max=64)
    asking.add(presence_penalty=0.1, logit_bias={1: 0.5}, **words)
    calls["Sampler.sample, penalties and bias"] = (lambda: asking.sample(row, accept=False), None)
    calls["sample, logprobs=0"] = (lambda: raffle.sample(row, logprobs=0, **words), None)
    return calls


def graph_calls(torch, row):
    """What a launch and an array for the result take by themselves: no call takes less. Replays of one call each, and of torch's own
    quickest one beside them."""
    position = torch.zeros(1, dtype=torch.int64, device="cuda")
    call = raffle.prepare(row, temperature=0.8, top_k=4, seed=1, advance=True)
    captured = {"graph of sample": lambda: raffle.sample(row, 0.8, 4, seed=1, position=position), "graph of prepared, advance": call,
                "graph of torch.argmax": lambda: row.argmax(-1)}
    replays = {what: (graph_of(torch, draw).replay, None) for what, draw in captured.items()}
    bare = {"a launch alone (torch.cuda._sleep(0))": (lambda: torch.cuda._sleep(0), None),
            "an array alone (torch.empty)": (lambda: torch.empty(1, dtype=torch.int32, device="cuda"), None)}
    return {**bare, "torch.argmax": (lambda: row.argmax(-1), None), **replays}


def graph_of(torch, function):
    function()  # what is made once is made here
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    graph.keeps = function  # and with it the memory that replays read and write
    return graph


def overhead(torch, rounds):
    """Lines (kind, what, median, least, limit)."""
    kinds = {"numpy": np.zeros((1, 8), np.float32)}
    if torch:
        kinds["torch cpu"] = torch.zeros(1, 8)
        if torch.cuda.is_available() and raffle.cuda_available()[0]:
            kinds["torch cuda"] = torch.zeros(1, 8, device="cuda")
    calls = {(kind, what): found for kind, row in kinds.items() for what, found in overhead_calls(row).items()}
    far = kinds.get("torch cuda")
    if far is not None:
        calls.update({("torch cuda", what): found for what, found in graph_calls(torch, far).items()})
    times = series({key: function for key, (function, _) in calls.items()}, rounds, 300, torch.cuda.synchronize if far is not None else int)
    return [(kind, what, *times[kind, what], limit) for (kind, what), (_, limit) in calls.items()]


# ---- samplers --------------------------------------------------------------------------------------

def prepared_sampler(position):
    """A call for each input, made when a route is first asked for."""
    calls = {}

    def draw(logits, **words):
        route = (logits.data_ptr(), *words.items())
        if route not in calls:
            if calls and next(iter(calls))[1:] != route[1:]:
                calls.clear()  # of another route
            calls[route] = raffle.prepare(logits, seed=1, position=position, **words)
        return calls[route]()

    return draw


def torch_sampler(torch):
    """What people write: sort where there is a filter, then softmax and multinomial."""

    def draw(logits, temperature, top_k=0, top_p=1.0, min_p=0.0):
        if temperature == 0:
            return logits.argmax(-1)
        scaled = logits.float() / temperature
        if top_k:
            scaled = scaled.masked_fill(scaled < scaled.topk(top_k).values[..., -1:], -torch.inf)
        if top_p < 1:
            ordered, order = scaled.sort(dim=-1, descending=True)
            probability = ordered.softmax(-1)
            ordered = ordered.masked_fill(probability.cumsum(-1) - probability >= top_p, -torch.inf)
            scaled = torch.full_like(scaled, -torch.inf).scatter(-1, order, ordered)
        probability = scaled.softmax(-1)
        if min_p:
            probability = probability * (probability >= min_p * probability.amax(-1, keepdim=True))
        return torch.multinomial(probability, 1)

    return draw


def flashinfer_sampler(flashinfer):
    sampling = flashinfer.sampling

    def draw(logits, temperature, top_k=0, top_p=1.0, min_p=0.0):
        if temperature == 0:
            return None
        logits = logits.float()
        if top_k:
            return sampling.top_k_top_p_sampling_from_logits(logits / temperature, top_k, top_p)
        probability = sampling.softmax(logits, temperature)
        if top_p < 1:
            return sampling.top_p_sampling_from_probs(probability, top_p)
        if min_p:
            return sampling.min_p_sampling_from_probs(probability, min_p)
        return sampling.sampling_from_probs(probability)

    return draw


def vllm_sampler(torch, vllm):
    apply = importlib.import_module("vllm.v1.sample.ops.topk_topp_sampler")

    def draw(logits, temperature, top_k=0, top_p=1.0, min_p=0.0):
        if temperature == 0:
            return logits.argmax(-1)
        if min_p:
            return None
        scaled = logits.float() / temperature
        rows = logits.shape[0]
        k = torch.full((rows,), top_k, device=logits.device) if top_k else None
        p = torch.full((rows,), top_p, device=logits.device) if top_p < 1 else None
        scaled = apply.apply_top_k_top_p(scaled, k, p)
        return apply.random_sample(scaled.softmax(-1, dtype=torch.float32), {})

    return draw


def llama_sampler(llama, vocab):
    """One row at a time, through the C functions of llama-cpp-python; its candidates are filled each time."""
    array = (llama.llama_token_data * vocab)()
    view = np.ctypeslib.as_array(array)

    def draw(logits, temperature, top_k=0, top_p=1.0, min_p=0.0):
        chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        if temperature == 0:
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_greedy())
        else:
            if top_k:
                llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_top_k(top_k))
            if top_p < 1:
                llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_top_p(top_p, 1))
            if min_p:
                llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_min_p(min_p, 1))
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_temp(temperature))
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_dist(1))
        for row in logits:
            view["id"], view["logit"], view["p"] = np.arange(vocab), row, 0
            candidates = llama.llama_token_data_array(array, vocab, -1, False)
            llama.llama_sampler_apply(chain, candidates)
        llama.llama_sampler_free(chain)
        return candidates.selected

    return draw


# ---- routes ----------------------------------------------------------------------------------------

def make_rows(rows, vocab):
    """Like a language model's: normal, and 20 tokens 8 to 12 higher."""
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2.5, (rows, vocab)).astype(np.float32)
    for row in logits:
        row[rng.integers(0, vocab, 20)] = rng.uniform(8, 12, 20)
    return logits


def timed_cpu(function):
    """This thread's processor time: what others take from the machine is not in it. All samplers have one thread."""
    started = time.thread_time_ns()
    function()
    return (time.thread_time_ns() - started) / 1000


def timed_gpu(torch, function, calls=10, ahead=0):
    """Between two events. `ahead`: cycles for which the GPU sleeps first, so that what comes is in its queue by then."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if ahead:
        torch.cuda._sleep(ahead)
    begin.record()
    for _ in range(calls):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / calls


def compare(samplers, inputs, repetitions, clock):
    """Lines (route, sampler, median, least). `inputs`: sampler name -> rows in its own kind, in turn."""
    lines = []
    for route, words in ROUTES.items():
        times = {name: [] for name in samplers}
        turn = {name: itertools.cycle(inputs[name]) for name in samplers}
        for name, draw in samplers.items():  # what is made once for an input is made here
            if any(draw(next(turn[name]), **words) is None for _ in inputs[name]):
                times[name] = None  # this sampler has no such route
        for _ in range(repetitions):
            for name, draw in samplers.items():
                if times[name] is not None:
                    draw(next(turn[name]), **words)  # warms what the last sampler took from the cache
                    times[name].append(clock(lambda: draw(next(turn[name]), **words)))
        lines += [(route, name, statistics.median(t), min(t)) for name, t in times.items() if t]
    return lines


def cpu_lines(torch, llama, shapes, repetitions):
    for rows, vocab in shapes:
        given = [make_rows(rows, vocab)]
        position = itertools.count()
        samplers = {"raffle": lambda x, **w: raffle.sample(x, seed=1, position=next(position), **w)}
        inputs = {name: given for name in samplers}
        if torch:
            samplers["torch"] = torch_sampler(torch)
            inputs["torch"] = [torch.from_numpy(x) for x in given]
        if llama:
            samplers["llama-cpp-python"] = llama_sampler(llama, vocab)
            inputs["llama-cpp-python"] = given
        for line in compare(samplers, inputs, repetitions, timed_cpu):
            yield ("cpu f32", rows, vocab, *line)


def gpu_lines(torch, flashinfer, vllm, shapes, repetitions):
    for rows, vocab in shapes:
        turns = min(200_000_000 // (rows * vocab * 2), 256)  # past the L2 cache
        some = torch.from_numpy(make_rows(min(rows, 64), vocab)).bfloat16().cuda()
        given = list(some.repeat(-(-turns * rows // len(some)), 1)[: turns * rows].unflatten(0, (turns, rows)))
        position = torch.zeros(rows, dtype=torch.int64, device="cuda")
        samplers = {"raffle": lambda x, **w: raffle.sample(x, seed=1, position=position, **w),
                    "raffle, prepared": prepared_sampler(position), "torch": torch_sampler(torch)}
        if flashinfer:
            samplers["flashinfer"] = flashinfer_sampler(flashinfer)
        if vllm:
            samplers["vllm"] = vllm_sampler(torch, vllm)
        inputs = {name: given for name in samplers}
        for line in compare(samplers, inputs, repetitions, lambda f: timed_gpu(torch, f)):
            yield ("cuda bf16", rows, vocab, *line)
        graphs = {name: replayed(torch, name, draw, given) for name, draw in samplers.items()}
        for line in compare(graphs, {name: [None] for name in graphs}, repetitions, lambda f: timed_gpu(torch, f, 1, 500_000) / turns):
            yield ("cuda bf16, graph", rows, vocab, *line)


def replayed(torch, name, draw, given):
    """A sampler that replays a graph of one draw from each of the inputs, captured when a route is first asked for."""
    graphs = {}

    def replay(_, **words):
        route = tuple(words.items())
        if route not in graphs:
            graphs.clear()  # and the memory of the last one
            here = torch.cuda.current_stream()
            try:
                drawn = draw(given[0], **words)
                graphs[route] = None if drawn is None else graph_of(torch, lambda: [draw(rows, **words) for rows in given])
            except RuntimeError as error:
                print(f"   {name} cannot be captured, {words}: {str(error).splitlines()[0]}")
                torch.cuda.set_stream(here)  # where a capture that fails leaves another
                graphs[route] = None
        if graphs[route] is None:
            return None
        graphs[route].replay()
        return graphs

    return replay


def plot(lines, path):
    try:
        import matplotlib
    except ImportError:
        return print("   matplotlib is not here: no picture (bench.py --draw makes it from the CSV)")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = sorted({line[:3] for line in lines if line[2] == 128256})
    wide = min(len(panels), 4)
    figure, axes = plt.subplots(-(-len(panels) // wide), wide, figsize=(6 * wide, 4.2 * -(-len(panels) // wide)), layout="constrained",
                                squeeze=False, sharey=True)
    for axis in axes.flat[len(panels):]:
        axis.set_axis_off()
    names = list(dict.fromkeys(line[4] for line in lines))
    for axis, panel in zip(axes.flat, panels):
        for i, name in enumerate(names):
            times = {line[3]: line[5] for line in lines if line[4] == name and line[:3] == panel}
            places = [list(ROUTES).index(route) + (i - (len(names) - 1) / 2) * 0.8 / len(names) for route in times]
            axis.bar(places, times.values(), 0.8 / len(names), label=name)
        axis.set_xticks(range(len(ROUTES)), [route.replace(" + ", "\n+ ") for route in ROUTES], fontsize=8)
        axis.set_yscale("log")
        axis.set_title("{}, {} rows of {}".format(*panel).replace(", 1 rows", ", 1 row"))
    for line in axes:
        line[0].set_ylabel("microseconds per call")
    axes[0][0].legend()
    figure.savefig(path, dpi=80, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and shapes")
    parser.add_argument("--overhead-only", action="store_true")
    parser.add_argument("--only", choices=["cpu", "cuda"], help="routes on this device alone")
    parser.add_argument("--csv")
    parser.add_argument("--plot")
    parser.add_argument("--draw", metavar="CSV", help="only draw the picture of this file")
    options = parser.parse_args()
    if options.draw:
        with open(options.draw, newline="") as file:
            found = [(device, int(rows), int(vocab), route, name, float(us))
                     for device, rows, vocab, route, name, us, *_ in list(csv.reader(file))[1:]]
        return plot([line for line in found if line[0] != "overhead"], options.plot or parser.error("--draw needs --plot"))
    print(f"raffle {raffle.__version__}, Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    torch = optional("torch")
    if torch:
        print(f"torch {torch.__version__}, " + (torch.cuda.get_device_name() if torch.cuda.is_available() else "which sees no GPU"))
    if torch:
        torch.set_num_threads(1)
    lines = []
    print(f"\n{'overhead, us per call':46} {'median':>8} {'least':>8} {'limit':>6}")
    missed = []
    for kind, what, us, least, limit in overhead(torch, 50 if options.quick else 400):
        over = limit is not None and us > limit
        missed += [f"{kind}, {what}"] * over
        print(f"{kind + ', ' + what:46} {us:8.2f} {least:8.2f} {limit or '':>6} {'!' if over else ''}")
        lines.append(("overhead", 1, 8, what, kind, f"{us:.3f}", f"{least:.3f}", ""))
    if not options.overhead_only:
        flashinfer, vllm, llama = optional("flashinfer"), optional("vllm"), optional("llama_cpp")
        shapes = [(1, 128256)] if options.quick else [(1, 32000), (1, 128256), (16, 128256)]
        found = [] if options.only == "cuda" else list(cpu_lines(torch, llama, shapes, 5 if options.quick else 21))
        if torch and torch.cuda.is_available() and raffle.cuda_available()[0] and options.only != "cpu":
            shapes = [(64, 128256)] if options.quick else [(1, 128256), (8, 128256), (64, 128256), (256, 128256)]
            try:
                found.extend(gpu_lines(torch, flashinfer, vllm, shapes, 5 if options.quick else 21))
            except RuntimeError as error:  # of a peer: what was measured until then is kept
                missed.append(f"the GPU's routes ended early: {str(error).splitlines()[0]}")
        print(f"\n{'device':16} {'rows':>5} {'vocab':>7}  {'route':22} {'sampler':18} {'us':>10} {'least':>10} {'x raffle':>9}")
        base = {line[:4]: line[5] for line in found if line[4] == "raffle"}
        for *where, name, us, least in found:
            device, rows, vocab, route = where
            ratio = us / base[tuple(where)]
            print(f"{device:16} {rows:5} {vocab:7}  {route:22} {name:18} {us:10.1f} {least:10.1f} {ratio:9.1f}")
            lines.append((*where, name, f"{us:.2f}", f"{least:.2f}", f"{ratio:.2f}"))
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            csv.writer(file).writerows([("device", "rows", "vocab", "route", "sampler", "us", "least_us", "x_raffle"), *lines])
    if options.plot and not options.overhead_only:
        plot(found, options.plot)
    if missed:
        sys.exit(f"missed: {'; '.join(missed)}")


main()
