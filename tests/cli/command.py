"""command.py - runs the command that argv[1] names, and checks what it did. For the scripts test_*.py."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
from tally import Tally  # noqa: E402

RAFFLE = str(pathlib.Path(sys.argv[1]).resolve())
DATA = ROOT / "data"
SMOLLM, WORDS = str(DATA / "smollm2.npy"), str(DATA / "smollm2.vocab.txt")
QUICK = bool(os.environ.get("RAFFLE_TEST_QUICK"))
tally = Tally(pathlib.Path(sys.argv[0]).stem.replace("test_", ""))
check = tally.check
scratch = tempfile.TemporaryDirectory()
folder = pathlib.Path(scratch.name)


class Run:
    """One run of the command."""

    def __init__(self, *arguments, env=None, stdout=subprocess.PIPE):
        environment = dict(os.environ, **(env or {}))
        done = subprocess.run([RAFFLE, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE, env=environment,
                              timeout=600)
        self.code, self.err = done.returncode, done.stderr.decode()
        self.out = (done.stdout or b"").decode(errors="surrogateescape")
        self.lines = self.out.splitlines()
        self.told = f"{' '.join(map(str, arguments))} -> {self.code}\n{self.out[-2000:]}{self.err[-2000:]}"

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError:
            return None


def file(name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def good(text, run, *more):
    """The run is fine, quiet on stderr, and `more` holds."""
    return check(run.code == 0 and not run.err and all(more), text, run.told)


def refused(text, run, *parts, code=2):
    """The run ends with `code`, prints nothing but one line on stderr, and that has `parts` in it."""
    fine = run.code == code and not run.out and run.err.startswith("raffle: ") and run.err.count("\n") == 1
    return check(fine and all(p in run.err for p in parts), text, run.told)


def normals(count, seed, spread=2.5):
    source = random.Random(seed)
    return [source.gauss(0, spread) for _ in range(count)]


