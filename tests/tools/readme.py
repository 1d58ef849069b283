#!/usr/bin/env python3
"""readme.py BUILD - what the pages show is what is printed.

In a folder that looks like this one (include, data, build): the C program of README.md is saved under the name that the page gives it; the
`sh` blocks of docs/sampling.md, which make its files, are run; then every command of a `console` block, line `$ COMMAND`, up to the next
or the block's end its output. A command of which no output is shown has to end well. But for spaces at the end of a line, and for the
instruction set of this machine, nothing may differ. Tables whose first column is options say what `raffle explain` tells of drinks.npy, in
percent."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tally import Tally

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/sampling.md", "cli/README.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(--[^`]*)` \|((?: (?:[\d.]+|-) \|)+)$", re.MULTILINE)
ISA = re.compile(r"\bcpu (scalar|avx2|avx512|neon)\b")


def commands(block):
    """(command, output) of each."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def lines(text):
    return [ISA.sub("cpu ...", line.rstrip()) for line in text.rstrip().split("\n")]


def difference(wanted, got):
    for number in range(max(len(wanted), len(got))):
        page, printed = (part[number] if number < len(part) else "(nothing)" for part in (wanted, got))
        if page != printed:
            return f"line {number + 1}\n     page:    {page}\n     printed: {printed}"
    return ""


def check_page(tally, page, work, env):
    text = (ROOT / page).read_text()
    blocks = BLOCK.findall(text)
    if page == "README.md":
        program = next(code for language, code in blocks if language == "c")
        (work / re.search(r"Save it as `([\w.]+)`", text).group(1)).write_text(program)
    seen = 0
    for language, block in blocks:
        if language == "sh":
            tally.run(f"{page}: {block.splitlines()[0]} ...", ["sh", "-e", "-c", block], cwd=work, env=env)
        for command, output in commands(block) if language == "console" else []:
            seen += 1
            if command == "make":  # it has been built
                continue
            done = subprocess.run(["sh", "-c", command], cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            wrong = difference(lines(output), lines(done.stdout)) if output.strip() else ""
            if done.returncode:
                wrong = f"ended with {done.returncode}: {done.stdout}"
            tally.check(not wrong, f"{page}: {command}", wrong)
    tally.check(seen > 0, f"{page} shows commands")


def check_tables(tally, page, work, env):
    rows = ROW.findall((ROOT / page).read_text())
    for options, cells in rows:
        done = subprocess.run(["raffle", "explain", "drinks.npy", *options.split(), "--json"], cwd=work, env=env, stdout=subprocess.PIPE)
        share = {t["token"]: t["probability_after"] for t in json.loads(done.stdout)["top"]} if not done.returncode else {}
        wanted = [cell.strip() for cell in cells.strip("|").split("|")]
        got = [f"{100 * share[i]:.2f}" if share.get(i) else "-" for i in range(len(wanted))]
        tally.check(got == wanted, f"{page}: {options}: {' '.join(wanted)}", " ".join(got))
    tally.check(len(rows) > 0, f"{page} has tables of options")


def main():
    tally = Tally("readme")
    build = pathlib.Path(sys.argv[1]).resolve()
    env = dict(os.environ, PATH=f"{build / 'cli'}{os.pathsep}{os.environ['PATH']}", LC_ALL="C")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for name, target in [("include", ROOT / "include"), ("data", ROOT / "data"), ("build", build)]:
            (work / name).symlink_to(target)
        for page in PAGES:
            check_page(tally, page, work, env)
        check_tables(tally, "docs/sampling.md", work, env)
    tally.finish()


main()
