#!/usr/bin/env python3
"""test_cli.py RAFFLE - the command as a user runs it. Last line: "cli: N passed, N failed"."""
import json
import math
import os
import pathlib
import pty
import subprocess

from bad_files import BAD
from command import DATA, QUICK, RAFFLE, ROOT, SMOLLM, WORDS, Run, check, file, folder, good, normals, refused, tally
from npy_file import bf16, f16, npy


def test_help():
    tool = Run("--help")
    good("raffle --help", tool, "usage:" in tool.out, "Exit codes" in tool.out)
    for command in ["sample", "softmax", "explain", "bench", "selftest", "demo", "info"]:
        run = Run(command, "--help")
        good(f"raffle {command} --help", run, f"usage: raffle {command}" in run.out, "Exit codes" in run.out)
        check(command in tool.out, f"the tool's help names {command}", tool.out)
        check(Run(command, "-h").out == run.out, f"raffle {command} -h is the same")
        check(Run("help", command).out == run.out, f"raffle help {command} is the same")
        check(max(len(line) for line in run.lines) <= 110, f"help of {command} is at most 110 wide")
    bare = Run()
    check(bare.code == 2 and "usage:" in bare.out, "no command: help, exit code 2", bare.told)
    run = Run("--version")
    good("raffle --version", run, run.out.startswith("raffle 0.") or run.out.startswith("raffle 1."))
    refused("unknown command", Run("draw"), "command draw")
    refused("unknown option of the tool", Run("--verbose"), "--verbose")
    refused("help for an unknown command", Run("help", "draw"), "command draw")
    refused("help for two commands", Run("help", "info", "bench"), "bench")


def test_wrong_options():
    one = file("one.npy", npy((8,), normals(8, 1)))
    refused("no file", Run("sample"), "LOGITS.npy")
    refused("two files", Run("sample", one, one), "unexpected argument")
    refused("a file where none belongs", Run("info", one), "unexpected argument")
    refused("missing file", Run("sample", folder / "none.npy"), "none.npy", "No such file")
    refused("a folder", Run("sample", folder), "not a regular file")
    for option in ["--temprature", "--top_k", "-t", "--", "--counts-all", "--top"]:
        if option != "--":
            refused(f"sample {option}", Run("sample", one, option, "1"), option)
    for command, option in [("explain", "--draws"), ("info", "--seed"), ("bench", "--json"), ("selftest", "--threads")]:
        refused(f"{command} {option}", Run(command, option, "1"), option)
    bad = {"--temperature": ["", "x", "1,5", "1.0x", " 1", "1e99", "--seed"], "--top-p": ["", "0..5"],
           "--min-p": ["half"], "--top-k": ["1.5", "k", "2147483648", "-2147483649", "99999999999999999999", "", "0x"],
           "--seed": ["-1", "18446744073709551616", "1e3"], "--position": ["-1", "+1", " 1"],
           "--draws": ["0", "-5", "many", "1.0"], "--rows": ["", "a:b", "3:2", "-1:2", "1:2:3"],
           "--dtype": ["f64", "F32", ""], "--isa": ["sse9", "", "avx2,"], "--backend": ["gpu", ""],
           "--threads": ["0", "-1", "1025", "two"], "--flags": ["", "joint,", "all", "joint;min-p-last"]}
    for option, values in bad.items():
        for value in values:
            refused(f"{option} {value!r}", Run("sample", one, option, value), option)
        refused(f"{option} without a value", Run("sample", one, option), option, "needs a value")
    refused("--json with a value", Run("sample", one, "--json=yes"), "--json takes no value")
    refused("several names for one draw", Run("sample", one, "--isa", "scalar,avx2"), "--isa")
    refused("--top 0", Run("explain", one, "--top", "0"), "--top")
    refused("--top 10001", Run("explain", one, "--top", "10001"), "--top")
    refused("NaN temperature", Run("sample", one, "--temperature", "nan"), "--temperature is ", "nan")
    refused("negative temperature", Run("sample", one, "--temperature", "-0.5"), "--temperature is ", "-0.5")
    nan = ["sample", one, "--temperature", "nan"]
    refused("the same with --json prints no half JSON", Run(*nan, "--json"), "temperature")
    refused("the same with --counts", Run(*nan, "--counts", "--json"), "temperature")
    refused("NaN top-p", Run("sample", one, "--top-p", "nan"), "--top-p is NaN")
    refused("NaN min-p", Run("explain", one, "--min-p", "nan"), "--min-p is NaN")
    refused("position beyond 2^64", Run("sample", one, "--position", 2**64 - 1, "--draws", 2), "--position")
    refused("rows beyond the file", Run("sample", one, "--rows", "0:2"), "--rows", "1 row")
    refused("row beyond the file", Run("explain", one, "--row", "1"), "--row", "1 row")
    good("the last position", Run("sample", one, "--position", 2**64 - 1, "--seed", "0xffffffffffffffff"))
    good("--option=value", Run("sample", one, "--temperature=0.5", "--draws=3"))
    good("a file after --", Run("sample", "--seed", "1", "--", one))


def test_machine():
    one = file("one.npy", npy((8,), normals(8, 1)))
    info = Run("info", "--json").json()
    for isa in ["scalar", "avx2", "avx512", "neon"]:
        run = Run("sample", one, "--isa", isa)
        if isa in info["isas"]:
            good(f"--isa {isa}", run)
        else:
            refused(f"--isa {isa} is not here", run, isa, code=3)
            refused(f"selftest --isa {isa} is not here", Run("selftest", "--isa", isa), isa, code=3)
            refused(f"bench --isa {isa} is not here", Run("bench", "--isa", isa), isa, code=3)
    if pathlib.Path("/dev/full").exists():
        with open("/dev/full", "wb") as full:
            run = Run("sample", SMOLLM, "--draws", 2000, "--top-k", 9, stdout=full)
        check(run.code == 3 and "standard output" in run.err, "a full disk is exit code 3", run.told)


def test_bad_files():
    for name, content, part in BAD:
        path = file("bad.npy", content)
        refused(f"sample: {name}", Run("sample", path), "bad.npy" if "vocab is" not in part else "", part)
    refused("explain: a truncated file", Run("explain", file("bad.npy", npy((3, 4), [0.0] * 11))), "truncated")
    for lines, part in [(9, "9 lines for 8 tokens")]:
        words = file("words.txt", b"x\n" * lines)
        refused("too many words", Run("sample", file("one.npy", npy((8,), [0.0] * 8)), "--vocab", words), part)
    refused("no words", Run("sample", folder / "one.npy", "--vocab", file("words.txt", b"")), "empty")
    refused("missing words", Run("sample", folder / "one.npy", "--vocab", folder / "none.txt"), "none.txt")


def test_files():
    values = normals(600, 3)
    wanted = [max(range(200), key=lambda i: values[200 * r + i]) for r in range(3)]
    data = npy((3, 200), values)[128:]
    other = '{"shape":(3,200),"fortran_order":False,"descr":"<f4"}'
    python2 = "{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 200L), }"
    for name, content in [("1.0", npy((3, 200), values)), ("2.0", npy((3, 200), values, version=(2, 0))),
                          ("3.0", npy((3, 200), values, version=(3, 0))),
                          ("float16", npy((3, 200), values, descr="<f2")),
                          ("keys in another order", npy((), data, header=other)),
                          ("sizes of Python 2", npy((), data, header=python2))]:
        run = Run("sample", file("some.npy", content), "--temperature", 0)
        good(f"greedy is the maximum, {name}", run, run.lines == [str(w) for w in wanted])
    run = Run("sample", file("some.npy", npy((200,), values[:200])), "--temperature", 0)
    good("1-D", run, run.lines == [str(wanted[0])])
    run = Run("sample", file("some.npy", npy((0, 200))))
    good("no rows", run, run.out == "")
    run = Run("sample", folder / "some.npy", "--json")
    good("no rows, JSON", run, run.json() == {"vocab": 200, "draws": 1, "rows": []})
    run = Run("sample", file("some.npy", npy((3, 1), values[:3])))
    good("a vocabulary of one", run, run.lines == ["0"] * 3)
    odd = [0.0, float("nan"), 3.0, -math.inf]
    rows = odd + [math.inf, 0, 0, math.inf] + [-math.inf] * 3 + [float("nan")]
    run = Run("sample", file("some.npy", npy((3, 4), rows)), "--draws", 50)
    tokens = [set(line.split()) for line in run.lines]
    check(run.code == 0 and tokens == [{"0", "2"}, {"0", "3"}, {"-1"}], "NaN, inf and an empty row", run.told)
    check(run.err.count("note: row") == 3, "each with a note on stderr", run.err)
    run = Run("sample", folder / "some.npy", "--json")
    check([r["flags"] for r in run.json()["rows"]] == [["nan"], ["inf"], ["nan", "empty"]] or
          [r["flags"] for r in run.json()["rows"]] == [["nan"], ["inf"], ["empty"]], "and with flags in JSON", run.told)
    run = Run("sample", folder / "some.npy", "--rows", "2", "--draws", 5, "--counts")
    check(run.lines == ["2 -1 5"], "an empty row in counts", run.told)
    run = Run("sample", folder / "some.npy", "--flags", "empty-is-zero", "--rows", "2")
    check(run.lines == ["0"], "empty-is-zero", run.told)


def test_sample():
    base = ["sample", SMOLLM, "--top-p", "0.95", "--seed", 5]
    all_rows = Run(*base)
    good("16 rows, 16 lines", all_rows, len(all_rows.lines) == 16, all(line.isdigit() for line in all_rows.lines))
    check(Run(*base).out == all_rows.out, "the same again")
    check(Run(*base, "--seed", 6).out != all_rows.out, "another seed, other tokens")
    for rows, wanted in [("3:7", all_rows.lines[3:7]), (":2", all_rows.lines[:2]), ("14:", all_rows.lines[14:]),
                         ("5", [all_rows.lines[5]]), ("4:4", []), (":", all_rows.lines)]:
        run = Run(*base, "--rows", rows)
        good(f"--rows {rows}", run, run.lines == wanted)
    draws = Run(*base, "--draws", 6, "--position", 10)
    good("--draws 6", draws, all(len(line.split()) == 6 for line in draws.lines))
    for d in [0, 1, 5]:
        column = [line.split()[d] for line in draws.lines]
        check(Run(*base, "--position", 10 + d).lines == column, f"draw {d} is the one at position {10 + d}")
    for threads in [2, 3, 16]:
        check(Run(*base, "--threads", threads).out == all_rows.out, f"{threads} threads, rows")
        run = Run(*base, "--draws", 6, "--position", 10, "--threads", threads)
        check(run.out == draws.out, f"{threads} threads, draws")
    for isa in Run("info", "--json").json()["isas"]:
        check(Run(*base, "--draws", 6, "--position", 10, "--isa", isa).out == draws.out, f"the same on {isa}")
    check(Run(*base, "--backend", "cpu", "--isa", "best").out == all_rows.out, "--backend cpu --isa best")
    run = Run(*base, "--vocab", WORDS, "--temperature", 0, "--rows", "0")
    good("--vocab", run, run.out == '7042 " Paris"\n')
    run = Run(*base, "--vocab", WORDS, "--temperature", 0, "--rows", "0", "--draws", 2)
    good("--vocab and --draws", run, run.out == '7042 " Paris"  7042 " Paris"\n')


def test_counts():
    run = Run("sample", SMOLLM, "--rows", "0:2", "--draws", 3000, "--counts", "--threads", 2)
    table = [tuple(map(int, line.split())) for line in run.lines]
    for row in [0, 1]:
        counts = [(count, token) for r, token, count in table if r == row]
        good(f"counts of row {row} sum to the draws", run, sum(count for count, _ in counts) == 3000)
        check(counts == sorted(counts, key=lambda c: (-c[0], c[1])), f"row {row}: count descending, then id")
    paris = next(count for row, token, count in table if row == 0 and token == 7042)
    chance = 5 * math.sqrt(3000 * 0.77 * 0.23)
    check(abs(paris - 0.76761 * 3000) < chance, f"Paris is drawn as often as it should: {paris}")
    many = ["sample", SMOLLM, "--rows", "0", "--draws", 20000, "--top-k", 2]
    run = Run(*many, "--counts", "--vocab", WORDS)
    good("more draws than one chunk, with words", run, run.lines[0].startswith("0 7042 "),
         run.lines[0].endswith('" Paris"'), sum(int(line.split()[2]) for line in run.lines) == 20000)
    run = Run(*many)
    good("the same as a line", run, len(run.lines) == 1, len(run.lines[0].split()) == 20000)


def test_parameters():
    flat = file("flat.npy", npy((64,), [0.0] * 64))
    steps = file("steps.npy", npy((10,), [-0.1 * i for i in range(10)]))

    def seen(path, *arguments):
        run = Run("sample", path, "--draws", 400, "--counts", *arguments)
        return {int(line.split()[1]) for line in run.lines}

    check(len(seen(flat)) > 50, "equal logits share the draw")
    check(len(seen(flat, "--top-k", 3)) > 50, "and survive top-k together")
    check(seen(flat, "--top-k", 3, "--flags", "top-k-exact") == {0, 1, 2}, "top-k-exact keeps the lowest ids")
    check(seen(steps, "--top-k", 4) == {0, 1, 2, 3}, "--top-k 4")
    check(seen(steps, "--top-k", 1) == {0}, "--top-k 1 is greedy")
    check(seen(steps, "--top-k", -2147483648) == seen(steps), "the smallest --top-k is off")
    check(len(seen(steps, "--top-k", -1)) == 10, "--top-k -1 is off")
    check(seen(steps, "--top-p", 0.28) == {0, 1}, "--top-p 0.28")
    check(seen(steps, "--top-p", 0) == {0}, "--top-p 0 is greedy")
    check(seen(steps, "--min-p", 0.8) == {0, 1, 2}, "--min-p 0.8")
    check(seen(steps, "--temperature", 0.001) == {0}, "--temperature 0.001")
    check(len(seen(steps, "--temperature", "inf")) == 10, "--temperature inf")
    check(seen(steps, "--temperature", 10, "--min-p", 0.8, "--flags", "filters-first") == {0, 1, 2}, "filters-first")
    check(len(seen(steps, "--temperature", 10, "--min-p", 0.8)) == 10, "and without")
    check(seen(steps, "--top-k", 4, "--top-p", 0.28) == {0}, "top-p of what top-k left")
    check(seen(steps, "--top-k", 4, "--top-p", 0.28, "--flags", "joint") == {0, 1}, "joint: of the whole row")
    check(seen(steps, "--min-p", 0.85, "--top-p", 0.28) == {0}, "top-p of what min-p left")
    check(seen(steps, "--min-p", 0.85, "--top-p", 0.28, "--flags", "min-p-last") == {0, 1}, "min-p-last: of all")


def test_dtypes():
    values = normals(4000, 9) + [70000.0, -1e-6, 6.1e-5, 1e-9, 0.1, -0.0]
    count = len(values)
    raw = file("f32.npy", npy((count,), values))
    for name, convert in [("bf16", bf16), ("f16", lambda x: f16(x) if abs(x) < 65520 else math.copysign(math.inf, x))]:
        rounded = file("rounded.npy", npy((count,), [convert(x) for x in values]))
        for settings in [["--temperature", 0.7], ["--temperature", 30]]:
            one = Run("sample", raw, "--dtype", name, "--draws", 300, *settings)
            two = Run("sample", rounded, "--dtype", "f32", "--draws", 300, *settings)
            check(one.code == 0 and one.out == two.out, f"--dtype {name} rounds to nearest even, {settings}", one.told)
    half = file("f16.npy", npy((4000,), values[:4000], descr="<f2"))
    wide = Run("sample", half, "--dtype", "f32", "--draws", 300)
    good("--dtype f32 of a float16 file changes nothing", wide, wide.out == Run("sample", half, "--draws", 300).out)
    shifted = npy((4000,), values[:4000], header=None)
    header = shifted[10:128].rstrip() + b" " * 3 + b"\n"
    odd = file("odd.npy", npy((), shifted[128:], header=header))
    run = Run("sample", odd, "--draws", 100)
    good("data at an odd address", run, run.out == Run("sample", file("even.npy", shifted), "--draws", 100).out)


def test_json():
    run = Run("sample", SMOLLM, "--json", "--draws", 4, "--rows", "2:5")
    made, plain = run.json(), Run("sample", SMOLLM, "--draws", 4, "--rows", "2:5").lines
    good("sample --json", run, made and [r["row"] for r in made["rows"]] == [2, 3, 4])
    ids = [[int(t) for t in line.split()] for line in plain]
    check([r["tokens"] for r in made["rows"]] == ids, "has the same tokens")
    made = Run("sample", SMOLLM, "--json", "--counts", "--draws", 100, "--rows", "0", "--vocab", WORDS).json()
    counts = made["rows"][0]["counts"]
    check(sum(c["count"] for c in counts) == 100, "sample --json --counts", str(made))
    check(counts[0]["text"] == " Paris", "sample --json --counts --vocab", str(made))
    words = file("words.txt", b'q"\\\x1b\n\xff\xc3\n\xc3\xa9\n\t\n')
    four = file("four.npy", npy((5,), [0.0] * 5))
    run = Run("sample", four, "--draws", 50, "--json", "--vocab", words)
    texts = {t["token"]: t["text"] for t in run.json()["rows"][0]["tokens"]}
    check(texts == {0: 'q"\\\x1b', 1: "\\xff\\xc3", 2: "é", 3: "\t", 4: None}, "odd words in JSON", str(texts))
    check("note" in run.err, "a vocabulary with fewer lines is noted", run.err)
    run = Run("sample", four, "--draws", 50, "--vocab", words)
    harmless = "\x1b" not in run.out and "\\x1b" in run.out
    check(harmless, "escape sequences of a vocabulary are not sent to a terminal", run.told)
    for arguments in [[], ["--top-k", 5], ["--temperature", 0], ["--temperature", "inf"], ["--vocab", WORDS]]:
        made = Run("explain", SMOLLM, "--json", *arguments).json()
        check(made is not None and made["vocab"] == 49152, f"explain --json {arguments}")
    odd = file("some.npy", npy((4,), [math.inf, float("nan"), 1, -math.inf]))
    check(Run("explain", odd, "--json").json() is not None, "explain --json with infinities")
    info = Run("info", "--json").json()
    check(info and info["licence"] == "Apache-2.0" and "scalar" in info["isas"], "info --json", str(info))


def test_explain():
    arguments = ["--top-k", 50, "--top-p", 0.9, "--seed", 3, "--position", 8]
    for row in [0, 1, 12]:
        made = Run("explain", SMOLLM, "--row", row, *arguments, "--json", "--top", 60).json()
        drawn = Run("sample", SMOLLM, "--rows", row, *arguments).lines[0]
        check(str(made["token"]) == drawn, f"row {row}: explain tells the token that sample draws")
        top = made["top"]
        kept = [c for c in top if c["fate"] == "kept"]
        check(len(kept) == made["kept"] and len(top) == 60, f"row {row}: as many kept as it says")
        check(abs(sum(c["probability_after"] for c in kept) - 1) < 1e-12, f"row {row}: what is kept sums to 1")
        check(sum(c["tickets"] for c in kept) == made["draw_tickets"], f"row {row}: tickets of the kept sum up")
        off = max(abs(c["tickets"] / made["row_tickets"] - c["probability"]) for c in top)
        check(off < 1e-7, f"row {row}: tickets are the exact probabilities, within {off:.1e}")
        check(0 <= made["drawn"] < made["draw_tickets"], f"row {row}: the winning ticket exists")
        removed = sum(s["removed"] for s in made["stages"])
        check(removed + made["kept"] == 49152, f"row {row}: every token is accounted for")
    run = Run("explain", SMOLLM, "--row", 0, *arguments, "--vocab", WORDS, env={"LC_ALL": "C.UTF-8"})
    good("explain in words", run, '" Paris"' in run.out, "top-k" in run.out, "█" in run.out, "drawn" in run.out)
    check("\033" not in run.out, "no colour in a pipe")
    for name, more, env in [("--ascii", ["--ascii"], {"LC_ALL": "C.UTF-8"}),
                            ("a locale without UTF-8", [], {"LC_ALL": "C"})]:
        run = Run("explain", SMOLLM, "--row", 9, "--vocab", WORDS, *more, env=env)
        good(f"plain ASCII with {name}", run, run.out.isascii(), "###" in run.out)
    large = file("large.npy", npy((4,), [123456.789, -3.0e38, 1.5e-7, 2.5]))
    run = Run("explain", large)
    good("explain shows large and small logits", run, "123456.789" in run.out, "e+38" in run.out, "1.50000005e-07" in run.out)
    lines = [line for line in run.out.split("\n") if "%" in line and "cut" not in line][-4:]
    check(len({line.index("%") for line in lines}) == 1, "and keeps its columns", run.out)
    for arguments in [["--temperature", 0], ["--min-p", 0.1, "--flags", "min-p-last"], ["--dtype", "bf16"],
                      ["--isa", "scalar"]]:
        good(f"explain {arguments}", Run("explain", SMOLLM, *arguments))
    odd = file("some.npy", npy((2, 4), [math.inf, float("nan"), 1, -math.inf] + [-math.inf] * 4))
    run = Run("explain", odd)
    good("explain tells of NaN and +inf", run, "NaN" in run.out, "+inf" in run.out)
    run = Run("explain", odd, "--row", 1)
    good("explain an empty row", run, "Nothing to draw" in run.out)


def on_terminal(*arguments, env=None):
    """What the command writes to a terminal."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen([RAFFLE, *arguments], stdout=theirs, stderr=theirs,
                               env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})})
    os.close(theirs)
    text = b""
    try:
        while block := os.read(mine, 65536):
            text += block
    except OSError:  # the other end is closed
        pass
    os.close(mine)
    process.wait()
    return text.decode(errors="replace")


def test_terminal():
    arguments = ["explain", SMOLLM, "--top-k", "5"]
    check("\033[" in on_terminal(*arguments, env={"NO_COLOR": ""}), "colour on a terminal")
    check("\033[" not in on_terminal(*arguments, env={"NO_COLOR": "1"}), "no colour with NO_COLOR")
    check("\033[" not in on_terminal(*arguments, env={"TERM": "dumb"}), "no colour on a dumb terminal")
    values = [0.0, float("nan"), 3.0, -math.inf, math.inf, 0, 0, math.inf] + [-math.inf] * 4
    odd = str(file("some.npy", npy((3, 4), values)))
    for more in [], ["--draws", "3"], ["--draws", "3", "--counts"]:
        for form in [], ["--json"]:
            lines = on_terminal("sample", odd, *more, *form).splitlines()
            rest = [line for line in lines if not line.startswith("raffle: note: row ")]
            fine = len(lines) - len(rest) == 3 and "note" not in "".join(rest) and (not form or json.loads("".join(rest)))
            check(fine, f"notes between lines on a terminal: {' '.join(['sample', *more, *form])}", "\n".join(lines))
    if QUICK:
        return
    long = ["sample", SMOLLM, "--rows", "1", "--counts", "--isa", "scalar", "--top-k", "50", "--draws"]
    for draws in (9000 * 4 ** n for n in range(5)):  # until it is long on this machine, too
        if shown := "%" in on_terminal(*long, str(draws)):
            break
    check(shown, "progress on a terminal")
    good("no progress in a pipe", Run(*long, str(draws)))


def test_selftest():
    run = Run("selftest")
    info = Run("info", "--json").json()
    good("selftest", run, all(f"{isa} " in run.out for isa in info["isas"]),
         run.out.count(" 0 failed") == len(info["isas"]))
    vectors = (ROOT / "tests/vectors/vectors.txt").read_text()
    same = file("vectors.txt", vectors.encode())
    again = Run("selftest", "--vectors", same)
    count = sum(line[0] != "#" for line in vectors.splitlines())
    good("selftest --vectors: these alone", again, again.out.count(f" {count} passed, 0 failed") == len(info["isas"]))
    good("selftest --isa scalar", Run("selftest", "--isa", "scalar"))
    lines = vectors.splitlines()
    last = lines[-1].split()
    last[-2] = str(int(last[-2]) + 1)
    wrong = Run("selftest", "--vectors", file("wrong.txt", "\n".join(lines[:-1] + [" ".join(last)]).encode()))
    check(wrong.code == 1 and "1 failed" in wrong.out, "a wrong token is exit code 1", wrong.told)
    for name, content, part in [("a line that is no vector", b"# ok\nnormal 1 2 3\n", "line 2"),
                                ("a vector with more columns", (lines[-1] + " 7\n").encode(), "line 1"),
                                ("a line of 10,000 characters", b"x" * 10000, "line 1")]:
        refused(name, Run("selftest", "--vectors", file("bad.txt", content)), part)
    refused("a missing file", Run("selftest", "--vectors", folder / "none.txt"), "none.txt")
    run = Run("selftest", "--vectors", file("none.txt", b"# nothing\n"))
    check(run.code == 2, "a file without vectors is an error", run.told)


def test_bench():
    refused("bench --csv into nowhere", Run("bench", "--csv", folder / "no/bench.csv"), "bench.csv", code=3)
    for sizes in ["0", "2097153", "1,,2", "x", "1,2,3,4,5,6,7,8,9"]:
        refused(f"bench --vocab {sizes}", Run("bench", "--vocab", sizes), "--vocab")
    if QUICK:
        return
    csv = folder / "bench.csv"
    run = Run("bench", "--quick", "--vocab", "1000,257", "--isa", "scalar", "--threads", 2, "--csv", csv)
    table = csv.read_text().splitlines() if csv.exists() else []
    good("bench", run, "greedy" in run.out, "log-softmax" in run.out, len(table) == 1 + (7 + 4) * 2 * 2)
    columns = {len(line.split(",")) - (line.count(", ")) for line in table}
    check(len(columns) == 1, "its CSV has as many columns in each line", str(columns))


def test_demo():
    refused("demo without data", Run("demo", folder), "smollm2.npy")
    if QUICK:
        return
    run = Run("demo", DATA)
    good("demo", run, '" Paris"' in run.out, "All the same" in run.out, "chance" in run.out)
    script = subprocess.run([ROOT / "cli/demo.sh", RAFFLE, "--ascii"], stdout=subprocess.PIPE, cwd="/")
    check(script.returncode == 0 and script.stdout.decode().isascii(), "cli/demo.sh from elsewhere, in ASCII")


for test in [test_help, test_wrong_options, test_machine, test_bad_files, test_files, test_sample, test_counts,
             test_parameters, test_dtypes, test_json, test_explain, test_terminal, test_selftest, test_bench,
             test_demo]:
    test()
tally.finish()
