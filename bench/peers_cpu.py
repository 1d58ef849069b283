"""llama.cpp's sampler chains beside raffle, in one process and in turns, on one core: microseconds per row, the
best of all turns and calls.

    python3 bench/peers_cpu.py [--library build/src/libraffle.so] [--vocab 32000,128256,...] [--csv FILE]

Needs numpy and llama-cpp-python (`pip install llama-cpp-python` builds llama.cpp from source); without them it says so
and measures nothing. The rows are those of `raffle bench`: normal with standard deviation 2.5, and 20 tokens 8 to 12
higher; temperature 0.8. Each of four rows is sampled several times in a row, so it is in cache for both.

llama.cpp's time has two parts, told apart: filling its array of candidates (here by one copy of a finished array, which
is faster than its own loop), and llama_sampler_apply on the chain. raffle's is one raffle_sample of one row. Both are
called through ctypes; what an empty call costs is told, and not subtracted.
"""
import argparse
import csv
import ctypes
import pathlib
import sys
import time

try:
    import numpy
    import llama_cpp
except ImportError as missing:
    sys.exit(f"skipped: {missing.name} cannot be imported")

ROWS = 4
TEMPERATURE = 0.8
SHARE = {"top-k 50 + top-p 0.9": 20, "temperature alone": 30, "top-p 0.9": 100}  # times llama.cpp's speed: the goals, at least


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def struct(name, *fields):
    """A struct of raffle.h: begins with its size."""
    kind = type(name, (ctypes.Structure,), {"_fields_": [("size", ctypes.c_uint32), *fields]})
    return kind(ctypes.sizeof(kind))


i32, u32, i64, size, address = ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_size_t, ctypes.c_void_p


class Raffle:
    """One route of raffle, ready to be called."""

    def __init__(self, library, vocab, top_k=0, top_p=1.0, min_p=0.0, temperature=TEMPERATURE):
        self.library = library
        self.error = struct("error", ("status", i32), ("row", i64), ("text", ctypes.c_char * 112))
        desc = struct("desc", ("backend", i32), ("dtype", i32), ("isa", i32), ("vocab", i64), ("rows_max", i64),
                      ("device", i32), ("flags", i32))
        desc.vocab = vocab
        self.plan = address()
        self.check(library.raffle_plan_create(ctypes.byref(desc), ctypes.byref(self.plan), ctypes.byref(self.error)))
        library.raffle_plan_workspace.restype = size
        space = library.raffle_plan_workspace(self.plan)
        self.memory = numpy.zeros(space + 64, numpy.uint8)
        self.launch = struct("launch", ("reserved", u32), ("workspace", address), ("bytes", size), ("stream", address),
                             ("part", i32), ("parts", i32))
        self.launch.workspace = (self.memory.ctypes.data + 63) // 64 * 64
        self.launch.bytes = space
        self.arrays = [numpy.array([v], t) for v, t in [(temperature, "f4"), (top_p, "f4"), (min_p, "f4"), (top_k, "i4"),
                                                        (7, "u8"), (0, "u8")]]
        self.params = struct("params", ("flags", u32), ("slots", i64), ("slot", address), ("temperature", address),
                             ("top_p", address), ("min_p", address), ("top_k", address), ("seed", address),
                             ("position", address), ("allow", address), ("allow_stride", i64))
        for name, array in zip(["temperature", "top_p", "min_p", "top_k", "seed", "position"], self.arrays):
            setattr(self.params, name, pointer(array))
        self.logits = struct("logits", ("reserved", u32), ("data", address), ("rows", i64), ("row_stride", i64))
        self.logits.rows = 1
        self.token = numpy.zeros(1, numpy.int32)
        self.result = struct("result", ("reserved", u32), ("token", address), ("row_flags", address))
        self.result.token = pointer(self.token)
        self.sample = library.raffle_sample
        self.call = [self.plan] + [ctypes.byref(s) for s in (self.logits, self.params, self.result, self.launch, self.error)]

    def check(self, status):
        if status:
            sys.exit(f"raffle: {self.error.text.decode()}")

    def time(self, rows, calls):
        """Microseconds per row."""
        total = 0.0
        for row in rows:
            self.logits.data = row.ctypes.data
            best = 1e9
            for _ in range(calls):
                start = time.perf_counter()
                status = self.sample(*self.call)
                best = min(best, time.perf_counter() - start)
                self.check(status)
            total += best
        return [total / ROWS * 1e6]


class Llama:
    """A chain of llama.cpp's samplers, ready to be applied."""

    def __init__(self, vocab, *samplers):
        self.chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        for sampler in samplers:
            llama_cpp.llama_sampler_chain_add(self.chain, sampler)
        kind = numpy.dtype([("id", "i4"), ("logit", "f4"), ("p", "f4")])
        self.fresh = numpy.zeros((ROWS, vocab), kind)
        self.fresh["id"] = numpy.arange(vocab)
        self.used = numpy.zeros(vocab, kind)
        self.array = llama_cpp.llama_token_data_array()

    def time(self, rows, calls):
        """Microseconds per row, and how many of them are for filling."""
        self.fresh["logit"] = rows
        data = self.used.ctypes.data_as(llama_cpp.llama_token_data_p)
        array, filled, total = self.array, 0.0, 0.0
        for row in self.fresh:
            best = (1e9, 1e9)
            for _ in range(calls):
                start = time.perf_counter()
                ctypes.memmove(data, row.ctypes.data, self.used.nbytes)
                array.data, array.size, array.selected, array.sorted = data, len(self.used), -1, False
                middle = time.perf_counter()
                llama_cpp.llama_sampler_apply(self.chain, ctypes.byref(array))
                best = min(best, (time.perf_counter() - start, middle - start))
            total += best[0]
            filled += best[1]
        if not 0 <= array.selected < array.size:
            sys.exit("llama.cpp selected no token")
        return [total / ROWS * 1e6, filled / ROWS * 1e6]


def contests(library, vocab):
    """Route -> (raffle, llama.cpp), the same law as far as both have it."""
    s = llama_cpp
    temperature, draw = (lambda: s.llama_sampler_init_temp(TEMPERATURE)), (lambda: s.llama_sampler_init_dist(7))
    return {
        "greedy": (Raffle(library, vocab, temperature=0.0), Llama(vocab, s.llama_sampler_init_greedy())),
        "top-k 50 + top-p 0.9": (Raffle(library, vocab, top_k=50, top_p=0.9),
                                 Llama(vocab, s.llama_sampler_init_top_k(50), s.llama_sampler_init_top_p(0.9, 1),
                                       temperature(), draw())),
        "min-p 0.05": (Raffle(library, vocab, min_p=0.05),
                       Llama(vocab, s.llama_sampler_init_min_p(0.05, 1), temperature(), draw())),
        "temperature alone": (Raffle(library, vocab), Llama(vocab, temperature(), draw())),
        "top-p 0.9": (Raffle(library, vocab, top_p=0.9), Llama(vocab, s.llama_sampler_init_top_p(0.9, 1), temperature(), draw())),
    }


def rows_like_bench(vocab):
    random = numpy.random.default_rng(1)
    memory = numpy.zeros(ROWS * vocab + 16, numpy.float32)
    first = -memory.ctypes.data % 64 // 4  # aligned to a cache line, as engines allocate it
    rows = memory[first:first + ROWS * vocab].reshape(ROWS, vocab)
    rows[:] = random.standard_normal((ROWS, vocab)) * 2.5
    for row in rows:
        row[random.integers(0, vocab, 20)] += (8 + 4 * random.random(20)).astype(numpy.float32)
    return rows


def empty_call(library):
    library.raffle_version.restype = u32
    version, best = library.raffle_version, 1e9
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(1000):
            version()
        best = min(best, (time.perf_counter() - start) * 1e3)
    return best


def measure(library, vocab, repeats):
    rows = rows_like_bench(vocab)
    pairs = contests(library, vocab)
    times = {name: ([], []) for name in pairs}
    for _ in range(repeats):  # in turns, so that noise hits all of them
        for name, pair in pairs.items():
            for side, contestant in enumerate(pair):
                contestant.time(rows, 1)
                times[name][side].append(contestant.time(rows, 10 if side == 0 else 3))
    for name, (ours, theirs) in times.items():
        yield (name, vocab, min(t[0] for t in ours), *min(theirs))


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=root / "build/src/libraffle.so")
    parser.add_argument("--vocab", default="32000,128256,151936,262144")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--csv")
    options = parser.parse_args()
    library = ctypes.CDLL(str(options.library))
    print(f"llama-cpp-python {llama_cpp.__version__}; an empty call through ctypes: {empty_call(library):.2f} us")
    print(f"{'route':22} {'vocab':>7} {'raffle us':>10} {'llama.cpp us':>13} {'of it fill':>11} {'x':>7}  goal")
    lines = []
    for vocab in (int(v) for v in options.vocab.split(",")):
        for name, vocab, ours, theirs, fill in measure(library, vocab, options.repeats):
            goal = SHARE.get(name)
            print(f"{name:22} {vocab:7} {ours:10.2f} {theirs:13.1f} {fill:11.1f} {theirs / ours:7.1f}  "
                  f"{'' if goal is None else f'>= {goal}' + ('' if theirs / ours >= goal else ' !')}", flush=True)
            lines.append([name, vocab, f"{ours:.3f}", f"{theirs:.3f}", f"{fill:.3f}", f"{theirs / ours:.2f}", goal or ""])
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["route", "vocab", "raffle_us", "llama_us", "llama_fill_us", "ratio", "goal"])
            out.writerows(lines)


if __name__ == "__main__":
    main()
