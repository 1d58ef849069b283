"""tally.py - counts checks and reports them the way the C tests do: last line "NAME: N passed, N failed"."""
import subprocess
import sys


class Tally:
    def __init__(self, name):
        self.name, self.passed, self.failed, self.skipped = name, 0, 0, 0

    def check(self, good, text, detail=""):
        """One case; `detail` is shown if it fails."""
        if good:
            self.passed += 1
            print(f"ok   {text}")
        else:
            self.failed += 1
            print(f"FAIL {text}" + (f"\n     {detail}" if detail else ""))
        return good

    def skip(self, text, why):
        self.skipped += 1
        print(f"skip {text}: {why}")

    def run(self, text, command, **options):
        """One case that is a command; returns its output, or None if it failed."""
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        good = self.check(done.returncode == 0, text, f"{' '.join(map(str, command))}\n{done.stdout}".rstrip())
        return done.stdout if good else None

    def finish(self):
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        print(f"{self.name}: {self.passed} passed, {self.failed} failed{skipped}")
        sys.exit(1 if self.failed or not self.passed + self.skipped else 0)


def output(command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
