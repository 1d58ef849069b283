"""The package itself: what it imports, exports, documents; its wheel."""
import doctest
import importlib
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
import raffle

PROJECT = pathlib.Path(__file__).resolve().parents[3]
WHEEL = os.environ.get("RAFFLE_WHEEL")
needs_wheel = pytest.mark.skipif(not WHEEL, reason="RAFFLE_WHEEL does not name a wheel")


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})


def test_import_needs_nothing():
    """No other package is imported, and none is needed to draw."""
    done = python("""
import sys
import array, raffle
assert not {"numpy", "torch", "cupy", "jax"} & set(sys.modules), sys.modules.keys()
for name in ("numpy", "torch", "cupy", "jax"):
    sys.modules[name] = None  # importing it is now an error
print(list(raffle.sample(array.array("f", [0, 9, 0]), temperature=0)))
""")
    assert done.stdout == "[1]\n", done.stderr


def test_import_without_a_driver():
    """Nothing of CUDA is linked to, so that a build with its backend (make test builds one where there is nvcc) is imported anywhere,
    and says what it misses; the CPU draws."""
    from raffle import _core

    done = python("import array, raffle\nprint(raffle.cuda_available())\nprint(list(raffle.sample(array.array('f', [0, 9, 0]), temperature=0)))",
                  CUDA_VISIBLE_DEVICES="")
    assert done.stdout.startswith("(False, '") and done.stdout.endswith("[1]\n"), done.stdout + done.stderr
    assert len(done.stdout) > 20
    linked = subprocess.run(["ldd", _core.__file__], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in linked and not re.search("cuda|nvidia|libpython", linked), linked


def test_flags_are_those_of_the_header():
    """Every row flag, and every flag of a batch or request, under its name without RAFFLE_."""
    header = (PROJECT / "include/raffle/raffle.h").read_text()
    flags = {name: int(value) for name, value in re.findall(r"#define RAFFLE_(\w+) (\d+)u\b", header) if name != "LOG"}
    assert {"ROW_NAN", "ROW_DRAFT", "TOP_P_JOINT", "COUNT_PROMPT"} <= flags.keys()
    assert {name: getattr(raffle, name, None) for name in flags} == flags
    assert flags.keys() <= set(raffle.__all__)


def modules():
    return ["raffle"] + [f"raffle.{m.name}" for m in pkgutil.iter_modules(raffle.__path__) if m.name != "_core"]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    if name in ("raffle.torch", "raffle.flashinfer", "raffle.transformers"):
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert failed == 0
    assert tried or name in ("raffle._arrays",), "no examples"


def test_public_names():
    for name in raffle.__all__:
        assert getattr(raffle, name) is not None
        if callable(getattr(raffle, name)):
            assert getattr(raffle, name).__doc__, name


def test_version():
    header = PROJECT / "include/raffle/raffle.h"
    if not header.exists():
        pytest.skip("not the project's tree")
    assert re.findall(r"^#define RAFFLE_VERSION_\w+ (\d+)$", header.read_text(), re.MULTILINE) == raffle.__version__.split(".")


def test_flags_are_the_headers():
    header = PROJECT / "include/raffle/raffle.h"
    if not header.exists():
        pytest.skip("not the project's tree")
    found = dict(re.findall(r"^#define RAFFLE_(\w+) \(?(-?\d+)u?\b", header.read_text(), re.MULTILINE))
    ours = {name: value for name, value in vars(raffle).items() if name.isupper()}
    assert len(ours) >= 10
    for name, value in ours.items():
        assert int(found[name]) == value, name


@needs_wheel
def test_wheel_holds_the_package():
    assert re.search(r"-cp39-abi3-\w+\.whl$", WHEEL), WHEEL
    names = zipfile.ZipFile(WHEEL).namelist()
    for wanted in ("raffle/__init__.py", "raffle/_core.abi3.so", "raffle/py.typed", "raffle/_core.pyi"):
        assert wanted in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any("test" in name or name.endswith((".c", ".h")) for name in names)


@needs_wheel
def test_wheel_passes_twine():
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", WHEEL], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_wheel
def test_the_extension_uses_only_the_stable_abi():
    from raffle import _core

    done = subprocess.run([sys.executable, "-m", "abi3audit", "--strict", "--verbose", WHEEL], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    defined = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], capture_output=True, text=True, check=True).stdout
    assert re.findall(r" T (\w+)", defined) == ["PyInit__core"]


@needs_wheel
def test_types(tmp_path):
    """The stubs say what the package does, and a user's program type-checks against them."""
    done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "raffle._core"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--allow-untyped-decorators",
                           "--allow-subclassing-any", "-p", "raffle"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    program = tmp_path / "program.py"
    program.write_text("import numpy\nimport raffle\n\n\ndef draw(logits: numpy.ndarray) -> int:\n"
                       "    tokens = raffle.sample(logits, 0.8, top_k=[1, 2], seed=3)\n"
                       "    more = raffle.sample(logits, repetition_penalty=[1.1, 1.2], output_token_ids=[[1], [2]], logprobs=2)\n"
                       "    raffle.softmax(logits, seed=1, banned_token_ids=[1], logit_bias={3: 0.5})\n"
                       "    told = raffle.explain(logits, typical_p=0.5)\n    return told.token + len(told.top)\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    program.write_text('import raffle\nraffle.sample(b"", no_such=1)\nraffle.kept(b"", no_such=1)\n')
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", program], capture_output=True, text=True, cwd=tmp_path)
    assert "program.py:2: error" in done.stdout and "program.py:3: error" in done.stdout, done.stdout + done.stderr


@needs_wheel
@pytest.mark.skipif(not (PROJECT / "bindings/python/pyproject.toml").exists(), reason="not the project's tree")
def test_source_archive(tmp_path):
    """The archive has all that a build far from the project needs, and is ready to build there. (The wheel under test
    was compiled from the same files.)"""
    source = PROJECT / "bindings/python"
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    done = subprocess.run([*words, "--sdist", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    archive = next(tmp_path.glob("*.tar.gz"))
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(archive)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
        opened.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    tracked = subprocess.run(["git", "ls-files", "src", "include", "cmake"], capture_output=True, text=True, cwd=PROJECT)
    assert {f"library/{name}" for name in tracked.stdout.split()} <= names
    tracked = subprocess.run(["git", "ls-files", "."], capture_output=True, text=True, cwd=source)
    assert set(tracked.stdout.split()) <= names | {".gitignore"}
    unpacked = archive.name[: -len(".tar.gz")]
    done = subprocess.run(["cmake", "-S", unpacked, "-B", "build", "-DRAFFLE_CUDA=OFF", f"-DPython_EXECUTABLE={sys.executable}"],
                          capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    left = subprocess.run(["git", "status", "--porcelain", "--ignored", str(source)], capture_output=True, text=True, cwd=PROJECT)
    assert not re.search(r"library/|LICENSE|raffle\.h", left.stdout)


@pytest.mark.skipif(not (PROJECT / "examples/python").exists(), reason="not the project's tree")
def test_examples_run():
    done = subprocess.run([sys.executable, str(PROJECT / "examples/python/serving_loop.py")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 6, done.stdout + done.stderr


@pytest.mark.skipif(not (PROJECT / "docs/python.md").exists(), reason="not the project's tree")
def test_tutorial(monkeypatch):
    monkeypatch.chdir(PROJECT)
    failed, tried = doctest.testfile(str(PROJECT / "docs/python.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0 and tried > 20
