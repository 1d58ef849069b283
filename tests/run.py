#!/usr/bin/env python3
"""run.py - all that `make test` does: builds, runs, adds up. Ends with "N passed, N failed".

Each step is a function below; each program and script that a step runs ends with a line
"NAME: N passed, N failed[, N skipped]", and those lines are what is counted. A step that counts nothing, and a
program that dies before its last line, is a failure. Full output goes to build/logs/STEP.log.

    run.py [--jobs N] [--long] [--only STEP,...] [--fuzz-seconds N]
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOGS = ROOT / "build/logs"
COUNTS = re.compile(r"^(\S+): (\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
SECONDS_MAX = 900  # for one command

total = {"passed": 0, "failed": 0, "skipped": 0}
options = None
log = None  # the step's open log file


class StepFailed(Exception):
    pass


# ---- counting -----------------------------------------------------------------------------------

def count(name, passed, failed, skipped=0, seconds=None):
    total["passed"] += passed
    total["failed"] += failed
    total["skipped"] += skipped
    took = f"  ({seconds:.1f} s)" if seconds is not None else ""
    more = f", {skipped} skipped" if skipped else ""
    print(f"   {'FAIL' if failed else 'ok  '} {name}: {passed} passed, {failed} failed{more}{took}", flush=True)


def skip(name, why):
    count(name, 0, 0, 1)
    print(f"        skipped: {why}", flush=True)


def count_output(name, text, good, seconds):
    """Counts one program by its last line; `good`: it ended with status 0."""
    found = [match for match in map(COUNTS.match, text.splitlines()) if match]
    if found:
        passed, failed, skipped = (int(n or 0) for n in found[-1].groups()[1:])
    else:
        passed, failed, skipped = 0, 0, 0
    if not good and not failed:  # died, or failed without saying what
        failed += 1
    if not passed + failed + skipped:  # ran nothing
        failed = 1
    count(name, passed, failed, skipped, seconds)
    reasons = {}
    for case, why in re.findall(r"^skip (\S.*?): (.*)$", text, re.MULTILINE):
        reasons.setdefault(why, []).append(case)
    for why, cases in reasons.items():
        more = f" and {len(cases) - 3} more" if len(cases) > 3 else ""
        print(f"        skipped: {', '.join(cases[:3])}{more}: {why}")
    if failed:
        shown = [l for l in text.splitlines() if not l.startswith("ok ")]
        print("\n".join("        " + l for l in shown[-40:]), flush=True)


# ---- commands -----------------------------------------------------------------------------------

def execute(command, env=None, cwd=ROOT):
    """Status and output of a command, also into the step's log."""
    command = [str(c) for c in command]
    log.write("$ " + " ".join(command) + "\n")
    try:
        done = subprocess.run(command, cwd=cwd, env=dict(os.environ, **(env or {})), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS_MAX)
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, text = 124, (late.stdout or b"").decode(errors="replace") + f"\nended after {SECONDS_MAX} s"
    log.write(text)
    log.flush()
    return status, text


def must(what, command, **where):
    """A command that has to work for the step to go on."""
    status, text = execute(command, **where)
    if status:
        print("\n".join("        " + line for line in text.splitlines()[-40:]))
        raise StepFailed(what)
    return text


def script(name, *arguments):
    started = time.time()
    status, text = execute([sys.executable, ROOT / "tests/tools" / f"{name}.py", *arguments])
    count_output(name, text, status == 0, time.time() - started)


def build(folder, *settings, targets=()):
    started = time.time()
    generator = ["-G", "Ninja"] if shutil.which("ninja") and not (ROOT / folder / "CMakeCache.txt").exists() else []
    must("configure", ["cmake", "-S", ROOT, "-B", ROOT / folder, *generator, "-DRAFFLE_TESTS=ON", "-DRAFFLE_WERROR=ON",
                       *settings])
    target = ["--target", *targets] if targets else []
    must("build", ["cmake", "--build", ROOT / folder, "--parallel", options.jobs, *target])
    print(f"   built {folder} ({time.time() - started:.0f} s)", flush=True)


def ctest(folder, *selection, env=None, prefix=""):
    """Runs ctest and counts every program's last line. (Its own log has all output, uncut and unmixed.)"""
    listed = re.search(r"Total Tests: (\d+)", must("list tests", ["ctest", "-N", *selection], cwd=ROOT / folder))
    if not listed or listed.group(1) == "0":
        raise StepFailed("there are no tests to run")
    _, said = execute(["ctest", "--parallel", options.jobs, "--timeout", SECONDS_MAX, *selection], cwd=ROOT / folder, env=env)
    endings = dict(re.findall(r"^\s*\d+ - (\S+) \((.+?)\)", said, re.MULTILINE))  # of those that failed
    text = (ROOT / folder / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    log.write(text)
    seen = 0
    for block in re.split(r"^\d+/\d+ Testing: ", text, flags=re.MULTILINE)[1:]:
        name, body = block.split("\n", 1)
        end = re.search(r"^<end of output>\nTest time = +([\d.]+) sec\n-+\n(.*)$", body, re.MULTILINE)
        lines = body.split("-" * 58 + "\n", 1)[-1].split("<end of output>")[0]
        good = end is not None and end.group(2).startswith("Test Passed") and name not in endings
        if not good:
            lines += f"ended with: {endings.get(name, 'no result')}\n"
        count_output(prefix + name, lines, good, float(end.group(1)) if end else None)
        seen += 1
    if seen != int(listed.group(1)):
        raise StepFailed(f"{listed.group(1)} tests are listed, {seen} ran")


# ---- steps --------------------------------------------------------------------------------------

def step_source():
    """Include arrows, READMEs, and the header in every language version."""
    script("arrows")
    script("headers")


def step_release():
    """gcc, -O3, warnings are errors: every test."""
    build("build", "-DRAFFLE_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Release")
    ctest("build", "-LE", "^cuda$" if options.long else "^(cuda|long)$",
          env={"RAFFLE_TEST_LONG": "1"} if options.long else None)


def step_package():
    """What the library exports, the installed package in use, and what the pages show."""
    if "release" not in options.steps:
        build("build", "-DRAFFLE_CUDA=OFF")
    script("symbols", ROOT / "build")
    script("install", ROOT / "build")
    script("readme", ROOT / "build")


def step_asan():
    """clang, AddressSanitizer and UBSan: the tests at reduced size."""
    build_asan()
    ctest("build-asan", "-L", "^asan$", prefix="asan.",
          env={"RAFFLE_TEST_QUICK": "1", "UBSAN_OPTIONS": "print_stacktrace=1",
               "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1"})


def build_asan():
    build("build-asan", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DRAFFLE_FUZZ=ON",
          "-DRAFFLE_SANITIZE=address,undefined", "-DRAFFLE_CUDA=OFF", targets=["tests_asan", "tests_fuzz"])


def step_fuzz():
    """libFuzzer: the committed corpus, then new inputs for a while."""
    if "asan" not in options.steps:
        build_asan()
    found = ROOT / "build-asan/found"
    found.mkdir(exist_ok=True)
    running = []
    for target in sorted((ROOT / "build-asan/tests/fuzz").glob("fuzz_*")):
        if not (target.is_file() and os.access(target, os.X_OK)):
            continue
        corpus = ROOT / "tests/fuzz/corpus" / target.name
        inputs = sorted(f for f in corpus.glob("*") if f.is_file())
        started = time.time()
        status, text = execute([target, "-timeout=20", f"-artifact_prefix={found}/", *inputs])
        ran = len(re.findall(r"^Executed .* in \d+ ms$", text, re.MULTILINE))
        good = status == 0 and ran == len(inputs) > 0
        count(f"{target.name}, corpus", ran if good else 0, 0 if good else 1, 0, time.time() - started)
        if not good:
            print("\n".join("        " + line for line in text.splitlines()[-30:]))
        fresh = ROOT / "build-asan/corpus" / target.name  # what this machine has found so far
        fresh.mkdir(parents=True, exist_ok=True)
        command = [target, f"-max_total_time={options.fuzz_seconds}", "-timeout=20", "-max_len=512", "-len_control=0",
                   "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={found}/", fresh, corpus]
        live = open(LOGS / f"{target.name}.log", "w+")
        running.append((target.name, live, subprocess.Popen([str(c) for c in command], cwd=ROOT, stdout=live, stderr=live)))
        if len(running) % max(1, options.jobs) == 0:
            running[-1][2].wait()
    if not running:
        raise StepFailed("there are no fuzz targets")
    for name, live, process in running:
        status = process.wait()
        live.seek(0)
        text = live.read()
        runs = re.search(r"number_of_executed_units: (\d+)", text)
        good = status == 0 and runs is not None and int(runs.group(1)) > 0
        count(f"{name}, {runs.group(1) if runs else 'no'} inputs", int(good), int(not good), 0, options.fuzz_seconds)
        if not good:
            print("\n".join("        " + line for line in text.splitlines()[-30:]))
            print(f"        inputs that fail are in {found.relative_to(ROOT)}")


def step_tsan():
    """clang, ThreadSanitizer: threads that share a plan."""
    build("build-tsan", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DRAFFLE_SANITIZE=thread",
          "-DRAFFLE_CUDA=OFF", targets=["tests_tsan"])
    ctest("build-tsan", "-L", "^tsan$", prefix="tsan.", env={"RAFFLE_TEST_QUICK": "1", "TSAN_OPTIONS": "halt_on_error=1"})


def step_arm():
    """64-bit ARM, cross-compiled, under qemu: the NEON and scalar kernels against the same vectors."""
    build("build-arm", f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake", "-DRAFFLE_CUDA=OFF", targets=["tests_arm"])
    ctest("build-arm", "-L", "^arm$", prefix="arm.", env={"RAFFLE_TEST_QUICK": "30"})


def nvcc():
    return os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin:/opt/cuda/bin")


def gpu():
    """The GPU's architecture as CMake writes it, or None."""
    if not shutil.which("nvidia-smi"):
        return None
    status, text = execute(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"])
    found = re.match(r"(\d+)\.(\d+)", text)
    return f"{found.group(1)}{found.group(2)}-real" if status == 0 and found else None


def build_cuda(arch, *settings, targets):
    build("build-cuda-test", "-DRAFFLE_CUDA=ON", f"-DRAFFLE_CUDA_ARCHS={arch}", "-DCMAKE_BUILD_TYPE=Release",
          f"-DCMAKE_CUDA_COMPILER={nvcc()}", *settings, targets=targets)


def step_cuda():
    """The CUDA backend: compiled where there is nvcc, run where there is a GPU (its tests say what they skip)."""
    if not nvcc():
        return skip("cuda", "no nvcc on this machine: the CUDA sources were not compiled")
    arch = gpu()
    if arch:
        build_cuda(arch, targets=["product", "tests_cuda"])
    else:  # as far as PTX, and not optimised: a third of the time
        build_cuda("90-virtual", "-DCMAKE_CUDA_FLAGS=-Xcicc -O0", targets=["product", "tests_cuda"])
    count("cuda sources compile", 1, 0)
    cuda_oldest()
    ctest("build-cuda-test", "-L", "^cuda$", prefix="cuda.")
    python_on_gpu(arch)


def cuda_oldest():
    """The CUDA sources for the oldest GPUs that a build is for, as far as the front end: it knows what these lack."""
    oldest = re.search(r'RAFFLE_CUDA_ARCHS "(\d+)', (ROOT / "CMakeLists.txt").read_text()).group(1)
    command = [nvcc(), f"-arch=compute_{oldest}", "-std=c++17", "-ptx", "-Xcicc", "-O0", "-o", "/dev/null",
               *(f"-I{ROOT / folder}" for folder in ("include", "src/core", "src/math", "src/cuda"))]
    started, files = time.time(), ["extra.cu", "state.cu", "verify_extra.cu", "write.cu", "write_decided.cu"]  # these have every header
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda file: execute([*command, ROOT / "src/cuda" / file])[0], files))
    count(f"cuda sources for compute {oldest}", found.count(0), len(found) - found.count(0), seconds=time.time() - started)


def step_sanitize():
    """The GPU tests, made smaller, under compute-sanitizer: memory, races, memory never written, barriers. Takes a while."""
    arch = gpu() if nvcc() else None
    sanitizer = shutil.which("compute-sanitizer") or nvcc() and shutil.which("compute-sanitizer", path=str(pathlib.Path(nvcc()).parent))
    if not arch or not sanitizer:
        return skip("sanitize-cuda", "no GPU on this machine" if not arch else "no compute-sanitizer on this machine")
    build_cuda(arch, targets=["tests_cuda"])
    programs = [program for program in sorted((ROOT / "build-cuda-test/tests/cuda").glob("cuda_*"))
                if not program.is_dir() and program.name != "cuda_without_gpu"]

    smaller = {"memcheck": 20, "synccheck": 20, "racecheck": 150, "initcheck": 20}

    def parts(program):
        """So many processes share a program's cases: in one, racecheck does not come to its end."""
        return min(10, max(1, (ROOT / f"tests/cuda/{program.name.removeprefix('cuda_')}.c").read_text().count("RUN(")))

    def run(job):
        started = time.time()
        tool, program, part = job
        status, text = execute([sanitizer, "--tool", tool, "--error-exitcode", 9, program],
                               env={"RAFFLE_TEST_QUICK": str(smaller[tool]), "RAFFLE_TEST_PART": f"{part}/{parts(program)}"})
        return f"{tool}.{program.name}.{part}", text, status == 0, time.time() - started

    jobs = [(tool, program, part) for tool in smaller for program in programs for part in range(1, parts(program) + 1)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in pool.map(run, jobs):
            count_output(*done)


def step_emulate():
    """The CUDA kernels compiled for the CPU: the tests of step cuda at reduced size, blocks and threads in a shuffled order."""
    build("build-emulate", "-DRAFFLE_CUDA=EMULATE", "-DCMAKE_BUILD_TYPE=Release", "-DRAFFLE_PYTHON=ON",
          targets=["tests_cuda", "python_package"])
    for seed in range(5) if options.long else [1]:
        ctest("build-emulate", "-L", "^cuda$", "-E", "^cli_cuda$", prefix=f"emulate.{seed}.",  # the command line draws too much
              env={"RAFFLE_TEST_QUICK": "20", "RAFFLE_EMULATE_SEED": str(seed)})
    started = time.time()
    status, text = execute([python_environment(), "-m", "pytest", "-q", ROOT / "bindings/python/tests/test_far.py"],
                           env={"PYTHONPATH": str(ROOT / "build-emulate/python"), "PYTHONDONTWRITEBYTECODE": "1",
                                "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4194304"})  # shared memory of the kernels
    count_output("emulate.python", text, status == 0, time.time() - started)


def python_on_gpu(arch):
    """The tests of the Python package that need a GPU, with the torch that is here: nothing is installed."""
    if not arch:
        python_without_gpu()
        return skip("cuda.python", "no GPU on this machine")
    status, said = execute([sys.executable, "-c", "import pytest, torch; assert torch.cuda.is_available(), 'torch sees no GPU'"])
    if status:
        return skip("cuda.python", said.strip().splitlines()[-1])
    build("build-cuda-test", "-DRAFFLE_PYTHON=ON", targets=["python_package"])
    started = time.time()
    tests = [ROOT / "bindings/python/tests" / name for name in ("test_cuda.py", "test_far.py", "test_torch.py", "test_flashinfer.py")]
    status, text = execute([sys.executable, "-m", "pytest", "-q", *tests],
                           env={"PYTHONPATH": str(ROOT / "build-cuda-test/python"), "PYTHONDONTWRITEBYTECODE": "1"})
    count_output("cuda.python", text, status == 0, time.time() - started)


def python_without_gpu():
    """The Python package with its CUDA parts: it compiles, and is imported where there is no driver."""
    build("build-cuda-test", "-DRAFFLE_PYTHON=ON", targets=["python_package"])
    started = time.time()
    status, text = execute([python_environment(), "-m", "pytest", "-q", ROOT / "bindings/python/tests/test_package.py", "-k", "import"],
                           env={"PYTHONPATH": str(ROOT / "build-cuda-test/python"), "PYTHONDONTWRITEBYTECODE": "1"})
    count_output("cuda.python, import", text, status == 0, time.time() - started)


def python_environment():
    """A virtual environment with what the tests of the Python package need; made once, kept in build/."""
    folder = ROOT / "build/venv"
    python = folder / "bin/python"
    wanted = (ROOT / "bindings/python/tests/requirements.txt").read_text()
    mark = folder / "installed.txt"
    if not (python.exists() and mark.exists() and mark.read_text() == wanted):
        must("make a virtual environment", [sys.executable, "-m", "venv", "--clear", folder])
        must("install test packages", [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                                       ROOT / "bindings/python/tests/requirements.txt"])
        mark.write_text(wanted)
    return python


def step_python():
    """The Python package: built as a wheel, installed into a virtual environment, tested there."""
    python = python_environment()
    wheels = ROOT / "build/wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    started = time.time()
    must("build the wheel", [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels,
                             "--config-settings=cmake.define.RAFFLE_CUDA=OFF", "--config-settings=cmake.define.RAFFLE_WERROR=ON",
                             f"--config-settings=build-dir={ROOT}/build/wheel", ROOT / "bindings/python"])
    wheel = next(wheels.glob("*.whl"))
    print(f"   built {wheel.name} ({time.time() - started:.0f} s)", flush=True)
    must("install the wheel", [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", wheel])
    leaks = [ROOT / "bindings/python/tests/test_resources.py", "-k", "of_the_other_functions or of_requests"]  # half of the time
    others = [ROOT / "bindings/python/tests", "-k", "not of_the_other_functions and not of_requests"]

    def test(selection):
        started = time.time()
        return (*execute([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *selection],
                         env={"RAFFLE_WHEEL": str(wheel), "PYTHONDONTWRITEBYTECODE": "1"}), time.time() - started)

    with concurrent.futures.ThreadPoolExecutor() as together:
        for name, (status, text, seconds) in zip(("python", "python.leaks"), together.map(test, (others, leaks))):
            count_output(name, text, status == 0, seconds)
    python_with_torch(wheel)


def python_with_torch(wheel):
    """What needs torch, with the one that is here: nothing is installed, and the environment above has none."""
    status, said = execute([sys.executable, "-c", "import numpy, pytest, torch"])
    if status:
        return skip("python.torch", said.strip().splitlines()[-1])
    folder = ROOT / "build/wheel-torch"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.unpack_archive(wheel, folder, "zip")
    started = time.time()
    names = ("test_torch.py", "test_flashinfer.py", "test_transformers.py", "test_jax.py", "test_vectors.py", "test_package.py")
    status, text = execute([sys.executable, "-m", "pytest", "-q", *(ROOT / "bindings/python/tests" / name for name in names)],
                           env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"})
    count_output("python.torch", text, status == 0, time.time() - started)


STEPS = {"source": step_source, "release": step_release, "package": step_package, "asan": step_asan, "fuzz": step_fuzz,
         "tsan": step_tsan, "arm": step_arm, "python": step_python, "emulate": step_emulate, "cuda": step_cuda}
APART = {"sanitize-cuda": step_sanitize}  # not part of `make test`


def bench_cuda():
    """Not a test: the GPU benchmark, and in the same run what torch and FlashInfer take, where they can be imported."""
    if not nvcc():
        sys.exit("make bench-cuda: no nvcc on this machine")
    if not gpu():
        sys.exit("make bench-cuda: no GPU on this machine")
    build_cuda(gpu(), targets=["bench_cuda", "bench_softmax", "bench_verify", "bench_state"])
    folder = ROOT / "build-cuda-test"
    failed = 0
    for program in (["bench_cuda", "--csv", folder / "cuda.csv"], ["bench_softmax"], ["bench_verify"], ["bench_state"]):
        failed |= subprocess.run([folder / "bench" / program[0], *program[1:]], cwd=ROOT).returncode
    print(flush=True)
    subprocess.run([sys.executable, ROOT / "bench/peers_cuda.py", "--csv", folder / "cuda_peers.csv"], cwd=ROOT)
    sys.exit(failed)


def bench_python():
    """Not a test: what calls from Python cost, and raffle beside torch and others; on this machine's GPU too, if it has one."""
    folder = "build-cuda-test" if nvcc() and gpu() else "build-python"
    cuda = [f"-DRAFFLE_CUDA_ARCHS={gpu()}", f"-DCMAKE_CUDA_COMPILER={nvcc()}"] if folder == "build-cuda-test" else []
    build(folder, f"-DRAFFLE_CUDA={'ON' if cuda else 'OFF'}", *cuda, "-DCMAKE_BUILD_TYPE=Release", "-DRAFFLE_PYTHON=ON",
          targets=["python_package"])
    found = subprocess.run([sys.executable, ROOT / "bench/python/bench.py", "--csv", ROOT / folder / "python.csv", "--plot",
                            ROOT / folder / "python.png"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / folder / "python")})
    print(f"The same as CSV: {folder}/python.csv")
    sys.exit(found.returncode)


BENCHES = {"bench-cuda": bench_cuda, "bench-python": bench_python}


def bench(name):
    global log
    LOGS.mkdir(parents=True, exist_ok=True)
    log = open(LOGS / f"{name}.log", "w")
    try:
        BENCHES[name]()
    except StepFailed as failure:
        sys.exit(f"make {name}: {failure} failed")


def main():
    global options, log
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--long", action="store_true", help="with the tests labelled long, and longer fuzzing")
    parser.add_argument("--only", default=",".join(STEPS), help="of " + ",".join([*STEPS, *APART]))
    parser.add_argument("--fuzz-seconds", type=int)
    options = parser.parse_args()
    options.fuzz_seconds = options.fuzz_seconds or (300 if options.long else 20)
    options.steps = options.only.split(",")
    if shutil.which("ccache"):  # the release, wheel and CUDA builds compile the same sources with the same flags
        os.environ.update(CMAKE_C_COMPILER_LAUNCHER="ccache", CCACHE_DIR=str(ROOT / "build/ccache"), CCACHE_NOHASHDIR="1")
        os.environ.setdefault("CC", "cc")  # what builds that choose for themselves (the wheel's) would call by another name
    if options.only in BENCHES:
        bench(options.only)
    steps = {**STEPS, **APART}
    unknown = set(options.steps) - set(steps)
    if unknown:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    LOGS.mkdir(parents=True, exist_ok=True)
    for name in options.steps:
        print(f"== {name}: {steps[name].__doc__}", flush=True)
        before = sum(total.values())
        with open(LOGS / f"{name}.log", "w") as log:
            try:
                steps[name]()
                if sum(total.values()) == before:
                    raise StepFailed("nothing was counted")
            except StepFailed as failure:
                count(f"{name}: {failure}", 0, 1)
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    print(f"{total['passed']} passed, {total['failed']} failed{skipped}")
    sys.exit(1 if total["failed"] or not total["passed"] else 0)


main()
