#!/usr/bin/env python3
"""test_cli_cuda.py RAFFLE - the commands with --backend cuda. Last line: "cli_cuda: N passed, N failed".

Without a GPU, and in a build without CUDA: exit code 3 and the library's sentence. With one: what the CPU says."""
import csv
import math

from command import QUICK, SMOLLM, WORDS, Run, check, file, folder, good, normals, refused, tally
from npy_file import npy

CUDA = ["--backend", "cuda"]
OUT, KEPT = folder / "cuda_out.npy", folder / "cuda_kept.npy"
COMMANDS = [["sample", SMOLLM], ["softmax", SMOLLM, "--kept", KEPT], ["explain", SMOLLM], ["selftest"], ["bench", "--quick", "--vocab", 1000]]
PARAMETERS = [[], ["--temperature", 0], ["--top-k", 50, "--top-p", 0.9], ["--min-p", 0.05, "--temperature", 0.7],
              ["--top-p", 0.95, "--flags", "joint"], ["--top-k", 3, "--flags", "top-k-exact,filters-first"],
              ["--min-p", 0.1, "--top-p", 0.8, "--flags", "min-p-last"], ["--temperature", "inf"],
              ["--seed", "0xffffffffffffffff", "--position", 2**64 - 9]]


REQUESTS = [["--bias", "3:2.5,100:-inf,7:9"], ["--banned", "1,2,3,28", "--top-k", 20], ["--allowed", "5,17,300", "--typical-p", 0.9],
            ["--repetition-penalty", 1.3, "--frequency-penalty", 0.4, "--prompt", "1,2,3,4", "--generated", "28,28,5"],
            ["--presence-penalty", 1.5, "--temperature", 0, "--generated", "28,260"],
            ["--stop", "2,28", "--min-tokens", 3, "--generated", 1], ["--bad-words", "5+28,7", "--generated", "1,5"],
            ["--no-repeat-ngram-size", 2, "--generated", "9,28,9"], ["--dry-multiplier", 0.8, "--generated", "1,2,3,1,2,3,1,2"],
            ["--top-n-sigma", 1.5], ["--epsilon-cutoff", 0.001, "--eta-cutoff", 0.01], ["--xtc-probability", 1, "--xtc-threshold", 0.05]]


def test_refusals(missing):
    """What is wrong without any GPU; and if there is none, that."""
    one = file("one.npy", npy((8,), normals(8, 1)))
    for arguments in COMMANDS:
        name = arguments[0]
        refused(f"{name}: --isa is for the CPU", Run(*arguments, *CUDA, "--isa", "scalar"), "--isa", "cuda")
        check(Run(name, *CUDA, "--help").code == 0, f"{name}: help needs no GPU")
        if missing:
            refused(f"{name}: no GPU, in the library's words", Run(*arguments, *CUDA), missing, code=3)
    if missing:
        refused("sample: said before the file is read", Run("sample", folder / "none.npy", *CUDA), missing, code=3)
        refused("sample --json: no half JSON", Run("sample", one, *CUDA, "--json", "--draws", 9), missing, code=3)
        refused("bench: no file is written", Run("bench", *CUDA, "--csv", folder / "no.csv"), missing, code=3)
        check(not (folder / "no.csv").exists(), "and there is none")


def same(text, *arguments):
    """The GPU's output is the CPU's, on both streams."""
    cpu, gpu = Run(*arguments), Run(*arguments, *CUDA)
    equal = (gpu.code, gpu.out, gpu.err) == (cpu.code, cpu.out, cpu.err)
    check(equal, text, f"{gpu.told}\n     but the CPU: {cpu.told}")


def test_sample():
    odd = file("odd.npy", npy((3, 4), [math.inf, float("nan"), 1, -math.inf] + [0.0] * 4 + [-math.inf] * 4))
    many = file("many.npy", npy((5000, 37), normals(5000 * 37, 5)))
    for parameters in PARAMETERS:
        same(f"sample {parameters}", "sample", SMOLLM, *parameters)
        same(f"sample {parameters}, 9 draws", "sample", SMOLLM, "--rows", "2:5", "--draws", 9, *parameters)
    for more in [["--counts"], ["--json"], ["--counts", "--json"]]:
        same(f"sample {more}", "sample", SMOLLM, "--rows", "0:2", "--draws", 50 if QUICK else 5000, "--top-k", 50, *more)
    same("sample in words", "sample", SMOLLM, "--vocab", WORDS, "--json")
    for dtype in ["f32", "f16", "bf16"]:
        same(f"sample --dtype {dtype}", "sample", SMOLLM, "--dtype", dtype, "--min-p", 0.02)
        same(f"sample --dtype {dtype}, more rows than a call takes", "sample", many, "--dtype", dtype)
    same("rows with NaN and infinities", "sample", odd, "--json")
    same("the same, counted", "sample", odd, "--counts", "--draws", 50)
    same("an empty row is zero", "sample", odd, "--flags", "empty-is-zero")
    same("no rows", "sample", odd, "--rows", "1:1", "--json")
    for wrong in [["--temperature", "nan"], ["--temperature", -1], ["--top-p", "nan"], ["--min-p", "nan"],
                  ["--rows", "2:9"]]:
        same(f"sample {wrong} is refused with the CPU's sentence", "sample", odd, *wrong)
    same("--threads changes nothing", "sample", odd, "--threads", 7)


def test_requests():
    """What else requests ask for, and log-probabilities."""
    for request in REQUESTS:
        same(f"sample {request}", "sample", SMOLLM, *request)
        same(f"sample {request}, 5 draws", "sample", SMOLLM, "--rows", "2:4", "--draws", 5, *request, "--logprobs", 2)
    for point in ["raw", "tempered", "filtered"]:
        same(f"sample --logprobs, {point}", "sample", SMOLLM, "--top-k", 9, "--logprobs", 3, "--point", point)
        same(f"sample --logprobs --json, {point}", "sample", SMOLLM, "--logprobs", 0, "--point", point, "--json", *REQUESTS[3])
    same("a wrong request is refused with the CPU's sentence", "sample", SMOLLM, "--banned", 10**6)


def same_files(text, *arguments):
    """What the GPU writes and prints is what the CPU does."""
    told = []
    for backend in [[], CUDA]:
        for path in [OUT, KEPT]:
            path.unlink(missing_ok=True)
        run = Run("softmax", *arguments, "--out", OUT, "--kept", KEPT, *backend)
        told.append((run.code, run.out, run.err, *(path.read_bytes() if path.exists() else None for path in [OUT, KEPT])))
    check(told[0] == told[1], text, f"{told[1][:3]}\n     but the CPU: {told[0][:3]}")


def test_softmax():
    odd = file("odd.npy", npy((3, 4), [math.inf, float("nan"), 1, -math.inf] + [0.0] * 4 + [-math.inf] * 4))
    weights = file("weights.npy", npy((4, 300), [abs(x) for x in normals(1200, 8)]))
    for parameters in PARAMETERS:
        same_files(f"softmax {parameters}", SMOLLM, "--rows", "0:3", *parameters)
    for request in REQUESTS:
        same_files(f"softmax {request}", SMOLLM, "--rows", "2:4", *request)
        same_files(f"softmax --mask {request}", SMOLLM, "--rows", "2:4", "--mask", "--out-dtype", "f16", *request)
    same_files("softmax --log", SMOLLM, "--rows", 1, "--log", "--dtype", "bf16")
    same_files("softmax --probs", weights, "--probs", "--top-p", 0.7)
    same_files("softmax of rows with NaN and infinities", odd)
    same_files("softmax of no rows", odd, "--rows", "1:1")
    same_files("softmax, a bad parameter is refused with the CPU's sentence", odd, "--top-p", "nan")
    same_files("softmax, a wrong request too", odd, "--banned", 9)


def test_explain():
    for row, parameters in enumerate(PARAMETERS):
        arguments = ["explain", SMOLLM, "--row", row, *parameters]
        cpu, gpu = Run(*arguments, "--json").json(), Run(*arguments, "--json", *CUDA).json()
        told = gpu.pop("cuda", None) if gpu else None
        check(cpu is not None and gpu == cpu, f"explain {parameters}: the CPU's numbers", str(gpu))
        check(told == {"token": cpu["token"], "row_flags": cpu["row_flags"], "same": True},
              f"explain {parameters}: the GPU's token", str(told))
    run = Run("explain", SMOLLM, "--vocab", WORDS, *CUDA)
    good("explain in words", run, "The GPU drew token" in run.out, "the same" in run.out, "cuda device" in run.lines[0])
    refused("a bad parameter", Run("explain", SMOLLM, "--min-p", "nan", *CUDA), "--min-p is NaN")


def test_selftest():
    cpu, gpu = Run("selftest", "--isa", "scalar"), Run("selftest", *CUDA)
    good("selftest: as many vectors and requests as the CPU has", gpu, gpu.out.replace("cuda  ", "scalar") == cpu.out)


def test_bench():
    refused("bench --csv into nowhere", Run("bench", *CUDA, "--csv", folder / "no/bench.csv"), "bench.csv", code=3)
    if "emulation" in Run("explain", SMOLLM, *CUDA).out:
        return tally.skip("bench", "an emulated GPU takes many minutes for it, and times nothing")
    table = folder / "bench.csv"
    run = Run("bench", *CUDA, "--quick", "--vocab", "1000,257", "--csv", table)
    lines = list(csv.reader(table.read_text().splitlines())) if table.exists() else []
    good("bench", run, "make bench-cuda" in run.out, "floor" in run.out, len(lines) == 1 + 7 * 2 * 2 * 3)
    check({len(line) for line in lines} == {7}, "its CSV has as many columns in each line", str(lines))
    check(all(float(line[4]) > 0 for line in lines[1:]), "every time is above 0", str(lines))


about = Run("info", "--json").json()
name = about["gpu"] if about["cuda"] else about["cuda_why"]
check(bool(about["gpu"]) == about["cuda"] and f"cuda     {name}\n" in Run("info").out, "info names the GPU, or says why there is none",
      str(about))
test_refusals("" if about["cuda"] else about["cuda_why"])
if about["cuda"]:
    for test in [test_sample, test_requests, test_softmax, test_explain, test_selftest, test_bench]:
        test()
else:
    tally.skip("sample, softmax, explain, selftest and bench on a GPU", about["cuda_why"])
tally.finish()
