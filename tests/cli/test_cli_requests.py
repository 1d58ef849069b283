#!/usr/bin/env python3
"""test_cli_requests.py RAFFLE - what requests ask for, as a user of the command does."""
import math
import os
import stat
import threading

from command import SMOLLM, WORDS, Run, check, file, folder, good, normals, refused, tally
from npy_file import f16, npy, read_npy

OUT, KEPT = folder / "out.npy", folder / "kept.npy"


def law(logits, temperature=1.0):
    """softmax in double precision"""
    best = max(logits)
    weights = [math.exp((x - best) / temperature) for x in logits]
    return [w / sum(weights) for w in weights]


def near(got, wanted, off=2e-7):
    return len(got) == len(wanted) and all(abs(a - b) <= off * max(1, abs(b)) for a, b in zip(got, wanted))


def softmax(path, *arguments):
    """What `raffle softmax` writes."""
    OUT.unlink(missing_ok=True)
    run = Run("softmax", path, "--out", OUT, *arguments)
    good(f"softmax {' '.join(map(str, arguments))}", run, OUT.exists(), not list(folder.glob("*.part*")))
    return read_npy(OUT)[1] if OUT.exists() else []


def kept_by(path, *arguments):
    """The tokens of a single row that `raffle softmax` keeps."""
    return {i for i, p in enumerate(softmax(path, *arguments)) if p > 0}


def test_softmax():
    values = normals(600, 5)
    rows = file("rows.npy", npy((3, 200), values))
    first = values[:200]
    run = Run("softmax", rows, "--out", OUT, "--temperature", 0.7)
    shape, written = read_npy(OUT)
    wanted = [p for r in range(3) for p in law(values[200 * r:200 * r + 200], 0.7)]
    good("softmax writes each row's law", run, shape == (3, 200), near(written, wanted))
    check(run.lines == ["0 200", "1 200", "2 200"], "and tells how many tokens are kept", run.out)
    check(near(softmax(rows, "--rows", "1:2"), law(values[200:400])), "softmax --rows")
    check(read_npy(OUT)[0] == (1, 200), "of a range of rows: as many rows")
    logs = [math.log(p) for p in law(first)]
    check(near(softmax(rows, "--rows", 0, "--log"), logs, 1e-6), "softmax --log")
    flat = file("flat.npy", npy((200,), first))
    check(near(softmax(flat), law(first)) and read_npy(OUT)[0] == (200,), "a 1-D file gives a 1-D file")
    order = sorted(range(200), key=lambda i: -first[i])
    kept = set(order[:5])
    share = sum(law(first)[i] for i in kept)
    wanted = [p / share if i in kept else 0 for i, p in enumerate(law(first))]
    check(near(softmax(flat, "--top-k", 5), wanted), "renormalised after top-k")
    got = softmax(flat, "--top-k", 5, "--log")
    check(all((x == -math.inf) != (i in kept) for i, x in enumerate(got)), "logarithms of what was cut are -inf")
    stored = read_npy(flat)[1]
    check(softmax(flat, "--mask", "--top-k", 5) == [x if i in kept else -math.inf for i, x in enumerate(stored)],
          "softmax --mask: the logits as they came, -inf where they were cut")
    run = Run("softmax", flat, "--kept", KEPT, "--top-k", 5)
    good("softmax --kept alone", run, read_npy(KEPT) == ((200,), [i in kept for i in range(200)]), run.out == "0 5\n")
    check(softmax(flat, "--temperature", 0) == [float(i == order[0]) for i in range(200)], "greedy: one and zeros")
    check(near(softmax(flat, "--out-dtype", "f16"), [f16(p) for p in law(first)], 1e-3), "softmax --out-dtype f16")
    check(read_npy(OUT)[1] == [f16(x) for x in softmax(flat)], "which is one rounding of f32")
    check(Run("softmax", SMOLLM, "--kept", KEPT, "--top-p", 0.9).lines[12] == "12 422", "real rows, top-p 0.9")
    check(sum(read_npy(KEPT)[1][12 * 49152:13 * 49152]) == 422, "and their kept sets")
    for isa in Run("info", "--json").json()["isas"]:
        check(softmax(rows, "--isa", isa) == softmax(rows, "--isa", "scalar"), f"{isa} writes what scalar code does")
    for more in [[], ["--top-p", 0.9, "--banned", 7], ["--mask", "--presence-penalty", 1, "--generated", "3,4"]]:
        check(softmax(rows, *more, "--threads", 2) == softmax(rows, *more) == softmax(rows, *more, "--threads", 9),
              f"softmax {more} does not depend on --threads")
    refused("softmax --threads 0", Run("softmax", rows, "--out", folder / "no.npy", "--threads", 0), "--threads")


def test_softmax_files():
    values = normals(50, 6)
    own = file("own.npy", npy((50,), values))
    good("a file may be its own output", Run("softmax", own, "--out", own), near(read_npy(own)[1], law(values)))
    none = file("none.npy", npy((0, 7)))
    run = Run("softmax", none, "--out", OUT)
    good("no rows", run, run.out == "", read_npy(OUT) == ((0, 7), []))
    odd = file("odd.npy", npy((3, 2), [float("nan"), 1, math.inf, 0, -math.inf, -math.inf]))
    run = Run("softmax", odd, "--out", OUT)
    check(run.code == 0 and read_npy(OUT)[1] == [0, 1, 1, 0, 0, 0], "rows that are not ordinary", run.told)
    check(run.err.count("note: row") == 3 and run.lines == ["0 1", "1 2", "2 0"], "and a word about each", run.told)
    OUT.unlink()
    refused("nowhere to write", Run("softmax", own), "--out")
    refused("softmax into no folder", Run("softmax", own, "--out", folder / "no/out.npy"), "out.npy", code=3)
    refused("softmax with a bad temperature", Run("softmax", own, "--out", OUT, "--temperature", -1), "temperature")
    refused("softmax --log --mask", Run("softmax", own, "--out", OUT, "--log", "--mask"), "--log")
    refused("softmax --out-dtype bf16", Run("softmax", own, "--out", OUT, "--out-dtype", "bf16"), "--out-dtype")
    refused("softmax of rows beyond", Run("softmax", own, "--out", OUT, "--rows", "0:2"), "1 row")
    refused("softmax --draws", Run("softmax", own, "--out", OUT, "--draws", 2), "--draws")
    check(not OUT.exists() and not list(folder.glob("*.part*")), "and what was refused leaves no file")


def test_softmax_places():
    """What stands at the place to write to stays what it is."""
    values = normals(50, 6)
    rows = file("places.npy", npy((50,), values))
    fifo, got = folder / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    run = Run("softmax", rows, "--out", fifo)
    reader.join(10)
    check(run.code == 0 and stat.S_ISFIFO(os.lstat(fifo).st_mode), "a FIFO stays one", run.told)
    check(got and near(read_npy(file("read.npy", got[0]))[1], law(values)), "and gets the rows", str(got))
    (folder / "deep").mkdir()
    target, link = folder / "deep/target.npy", folder / "link.npy"
    link.symlink_to("deep/target.npy")
    refused("a link to nothing", Run("softmax", rows, "--out", link), "leads nowhere", code=3)
    check(not target.exists(), "and nothing is made of it")
    target.write_bytes(b"")
    good("a link to a file is followed", Run("softmax", rows, "--out", link), link.is_symlink(), not target.is_symlink(),
         near(read_npy(target)[1], law(values)))
    target.chmod(0o640)
    good("a file keeps its mode", Run("softmax", rows, "--out", link), target.stat().st_mode & 0o7777 == 0o640)
    new = folder / "new.npy"
    hidden = os.umask(0o027)
    good("a new file has the usual mode", Run("softmax", rows, "--out", new), new.stat().st_mode & 0o7777 == 0o640)
    os.umask(hidden)
    refused("a folder", Run("softmax", rows, "--out", folder / "deep"), "deep", code=3)
    one = folder / "one.npy"
    for kept in [one, folder / "deep/../one.npy"]:
        refused("--out and --kept are one new file", Run("softmax", rows, "--out", one, "--kept", kept), "--out", "--kept")
    refused("--out and --kept are one file, by a link", Run("softmax", rows, "--out", link, "--kept", target), "--out", "--kept")
    check(not one.exists() and near(read_npy(target)[1], law(values)), "and nothing is written")
    good("--kept is another", Run("softmax", rows, "--out", one, "--kept", folder / "deep/one.npy"))
    check(not list(folder.glob("**/*.part*")), "no part is left", str(list(folder.glob("**/*"))))


def test_probs():
    weights = [0.0, 4.0, 2.0, 2.0, 0.0, 1.0, 1.0, 0.0]
    path = file("weights.npy", npy((8,), weights))
    check(near(softmax(path, "--probs"), [w / 10 for w in weights]), "probabilities are renormalised")
    check(near(softmax(path, "--probs", "--top-k", 3), [0, .5, .25, .25, 0, 0, 0, 0]), "after top-k too")
    check(softmax(path, "--probs", "--mask", "--top-p", 0.5) == [0, 4, 2, 2, 0, 0, 0, 0], "--mask: 0 where a token was cut")
    logs = [math.log(w / 10) if w else -math.inf for w in weights]
    check(all(a == b or abs(a - b) < 1e-6 for a, b in zip(softmax(path, "--probs", "--log"), logs)), "their logarithms")
    run = Run("sample", path, "--probs", "--draws", 4000, "--counts")
    counts = {int(t): int(n) for _, t, n in map(str.split, run.lines)}
    fair = all(abs(counts.get(i, 0) - 400 * w) <= 5 * math.sqrt(400 * w) for i, w in enumerate(weights))
    good("sample --probs", run, fair, set(counts) == {1, 2, 3, 5, 6})
    made = Run("explain", path, "--probs", "--json").json()
    top = made["top"]
    check(made["stages"][0] == {"name": "mask", "removed": 3} and abs(top[0]["probability"] - 0.4) < 1e-12,
          "explain --probs", str(made))
    check(abs(top[0]["tickets"] / made["row_tickets"] - 0.4) < 1e-9, "and its tickets", str(made))
    good("explain --probs, in words", Run("explain", path, "--probs"), "weight" in Run("explain", path, "--probs").out)
    refused("--probs and --temperature", Run("sample", path, "--probs", "--temperature", 1), "--temperature", "--probs")
    for option in [["--banned", 1], ["--bias", "1:2"], ["--typical-p", 0.5], ["--generated", "1"], ["--min-tokens-to-keep", 2],
                   ["--flags", "count-prompt"]]:
        for command in [["sample"], ["explain"], ["softmax", "--out", OUT]]:
            refused(f"{command[0]} --probs and {option[0]}", Run(*command, path, "--probs", *option), option[0], "--probs")
    refused("--probs and --logprobs", Run("sample", path, "--probs", "--logprobs", 1), "--logprobs is for logits", "--probs")
    run = Run("sample", file("odd.npy", npy((2, 2), [-1.0, 1.0, 0.0, 0.0])), "--probs")
    check(run.lines == ["1", "-1"] and "negative" in run.err and "no token" in run.err, "odd weights are noted", run.told)


def test_logprobs():
    base = ["sample", SMOLLM, "--rows", "0:4", "--temperature", 0.8, "--top-k", 40]
    plain = Run(*base).lines
    for point, arguments in [("raw", []), ("tempered", ["--temperature", 0.8]),
                             ("filtered", ["--temperature", 0.8, "--top-k", 40])]:
        run = Run(*base, "--logprobs", 3, "--point", point, "--json")
        rows = run.json()["rows"] if run.json() else []
        good(f"sample --logprobs, {point}", run, [str(r["tokens"][0]["token"]) for r in rows] == plain)
        for number, row in enumerate(rows):
            logs = softmax(SMOLLM, "--log", "--rows", number, *arguments)
            told = row["tokens"][0]
            rank = 1 + sum(x > logs[told["token"]] for x in logs)
            best = sorted(range(len(logs)), key=lambda i: (-logs[i], i))[:3]
            entropy = -sum(math.exp(x) * x for x in logs if x > -math.inf)
            check(told["logprob"] == logs[told["token"]] and told["rank"] == rank, f"row {number}: log-probability and rank")
            check([(t["token"], t["logprob"]) for t in told["top"]] == [(i, logs[i]) for i in best], f"row {number}: the best")
            check(abs(told["entropy"] - entropy) < 1e-5, f"row {number}: entropy")
    run = Run("sample", SMOLLM, "--rows", 0, "--draws", 3, "--logprobs", 1, "--vocab", WORDS)
    good("a line for each draw", run, len(run.lines) == 3, all('7042 " Paris" -0.264478' in line for line in run.lines))
    many = ["sample", SMOLLM, "--rows", 0, "--draws", 50, "--logprobs", 2]
    check(Run(*many, "--threads", 3).out == Run(*many).out, "threads tell the same")
    made = Run("explain", SMOLLM, "--logprobs", 2, "--json").json()
    check(len(made["logprobs"]) == 2 and abs(made["logprob"] - math.log(made["top"][0]["probability"])) < 1e-6,
          "explain --logprobs --json")
    run = Run("explain", SMOLLM, "--logprobs", 0)
    good("explain --logprobs", run, "Log-probabilities, as they came: -0.264478 of the token, rank 1" in run.out)
    empty = file("empty.npy", npy((2,), [-math.inf] * 2))
    told = Run("sample", empty, "--logprobs", 1, "--json").json()["rows"][0]["tokens"][0]
    check(told == {"token": -1, "logprob": None, "rank": 0, "entropy": None, "top": []}, "of an empty row", str(told))
    refused("--logprobs 1025", Run(*base, "--logprobs", 1025), "--logprobs", "1024")
    refused("--logprobs -1", Run(*base, "--logprobs", -1), "--logprobs", "1024")
    refused("--logprobs some", Run(*base, "--logprobs", "some"), "--logprobs")
    refused("--logprobs and --counts", Run(*base, "--logprobs", 1, "--counts"), "--counts")
    refused("--point alone", Run(*base, "--point", "raw"), "--logprobs")
    refused("--point last", Run(*base, "--logprobs", 1, "--point", "last"), "--point")


ROW = [2.0, 1.0, 0.5, 0.25, 0.0, -0.5, -1.0, -2.0]


def edited(path, wanted, *arguments):
    """`raffle softmax` writes the law of the logits `wanted`."""
    got = softmax(path, *arguments)
    check(near(got, law(wanted)), f"the law of {arguments}", f"{got}\n{law(wanted)}")


def test_edits():
    path = file("row.npy", npy((8,), ROW))
    out = -math.inf

    def but(**changes):
        return [changes.get(f"t{i}", x) for i, x in enumerate(ROW)]
    edited(path, but(t0=0.5, t4=3.0), "--bias", "4:3,0:-1.5")
    edited(path, but(t1=out), "--bias", "1:-inf")
    edited(path, but(t1=out, t3=out), "--banned", "3,1,3")
    edited(path, [x if i in (1, 2) else out for i, x in enumerate(ROW)], "--allowed", "2,1")
    edited(path, but(t3=out), "--bad-words", "1+2+3,5+4,1+3+6", "--prompt", "7,1,2")
    edited(path, but(t7=out), "--stop", 7, "--min-tokens", 3, "--prompt", "1,1,1", "--generated", "1,2")
    edited(path, ROW, "--stop", 7, "--min-tokens", 2, "--generated", "1,2")
    edited(path, but(t0=1.0, t5=-1.0), "--repetition-penalty", 2, "--prompt", 0, "--generated", 5)
    edited(path, but(t5=-1.0), "--repetition-penalty", 2, "--prompt", 0, "--generated", 5, "--flags", "repetition-output")
    edited(path, but(t5=-1.5), "--frequency-penalty", 0.5, "--prompt", 0, "--generated", "5,5")
    edited(path, but(t0=1.5, t5=-1.5), "--frequency-penalty", 0.5, "--prompt", 0, "--generated", "5,5", "--flags", "count-prompt")
    edited(path, but(t1=0.25, t5=-1.25), "--presence-penalty", 0.75, "--generated", "5,1,5")
    edited(path, but(t5=-1.25), "--presence-penalty", 0.75, "--generated", "1,5", "--penalty-window", 1)
    edited(path, but(t3=out), "--bad-words", "2+1+3", "--prompt", 2, "--generated", 1)
    edited(path, ROW, "--bad-words", "2+1+3", "--prompt", 2, "--generated", 1, "--flags", "bad-words-output")
    edited(path, but(t3=out), "--bad-words", "2+1+3", "--prompt", 0, "--generated", "2,1", "--flags", "bad-words-output")
    edited(path, but(t3=out), "--no-repeat-ngram-size", 2, "--generated", "2,3,1,2")
    edited(path, but(t4=-1.0), "--dry-multiplier", 0.5, "--dry-base", 2, "--generated", "1,2,3,4,1,2,3")
    edited(path, but(t4=-0.5), "--dry-multiplier", 0.5, "--dry-base", 2, "--dry-allowed-length", 3, "--generated", "1,2,3,4,1,2,3")
    edited(path, ROW, "--dry-multiplier", 0.5, "--generated", "1,2,3,4,1,2,3", "--dry-breakers", "3")
    edited(path, ROW, "--dry-multiplier", 0.5, "--generated", "1,2,3,4,1,2,3", "--dry-penalty-last-n", 3)
    history = file("history.txt", b"1 2\n3,4\n1, 2,3\n")
    edited(path, but(t4=-1.0), "--dry-multiplier", 0.5, "--dry-base", 2, "--generated", f"@{history}")
    edited(path, ROW, "--repetition-penalty", 2, "--generated", "")


def test_filters():
    path = file("row.npy", npy((8,), [math.log(p) for p in (0.4, 0.2, 0.15, 0.1, 0.06, 0.05, 0.03, 0.01)]))
    check(kept_by(path, "--epsilon-cutoff", 0.055) == {0, 1, 2, 3, 4}, "--epsilon-cutoff")
    check(kept_by(path, "--epsilon-cutoff", 0.9) == {0}, "no filter cuts the best")
    check(kept_by(path, "--epsilon-cutoff", 0.9, "--min-tokens-to-keep", 3) == {0, 1, 2}, "--min-tokens-to-keep")
    entropy = -sum(p * math.log(p) for p in (0.4, 0.2, 0.15, 0.1, 0.06, 0.05, 0.03, 0.01))
    bound = math.sqrt(0.1) * math.exp(-entropy)
    check(0.05 < bound < 0.06 and kept_by(path, "--eta-cutoff", 0.1) == {0, 1, 2, 3, 4}, f"--eta-cutoff: {bound}")
    check(kept_by(path, "--typical-p", 0.3) == {1, 2}, "--typical-p")
    check(kept_by(path, "--top-n-sigma", 1) == {0, 1, 2}, "--top-n-sigma")
    both = ["--top-p", 0.8, "--epsilon-cutoff", 0.105]
    check(kept_by(path, *both) == {0, 1, 2}, "epsilon looks at the row")
    check(kept_by(path, *both, "--flags", "shape-last") == {0, 1, 2, 3}, "or at what top-p left")
    made = Run("explain", path, *both, "--min-p", 0.01, "--flags", "min-p-last,shape-last", "--json").json()
    names = [(s["name"], s["removed"]) for s in made["stages"]]
    check(names == [("mask", 0), ("top-k", 0), ("top-p", 4), ("min-p", 0), ("shape", 0), ("xtc", 0), ("greedy", 0)],
          "the stages in Hugging Face's order", str(names))
    xtc = ["--xtc-probability", 1, "--xtc-threshold", 0.12]
    check(kept_by(path, *xtc) == {2, 3, 4, 5, 6, 7}, "XTC leaves the last of the likely")
    check(kept_by(path, "--xtc-probability", 1) == kept_by(path, "--xtc-probability", 1, "--xtc-threshold", 0.1),
          "a threshold that is not given is 0.1")
    check(kept_by(path, "--xtc-probability", 1, "--xtc-threshold", 0) == {7}, "a threshold of 0 is 0: every token has it")
    seen = {frozenset(kept_by(path, "--xtc-probability", 0.5, "--xtc-threshold", 0.12, "--seed", seed)) for seed in range(12)}
    check(seen == {frozenset(range(8)), frozenset({2, 3, 4, 5, 6, 7})}, "by chance of the seed")
    drawn = set(Run("sample", path, *xtc, "--draws", 400).out.split())
    check(drawn <= set("234567") and len(drawn) > 3, "sample draws from what is left", str(drawn))
    made = Run("explain", path, *xtc, "--typical-p", 0.97, "--json").json()
    fates = {t["token"]: t["fate"] for t in made["top"]}
    check([fates[i] for i in range(8)] == ["xtc", "xtc"] + ["kept"] * 5 + ["shape"], "explain tells what cut a token", str(fates))
    kept = [t for t in made["top"] if t["fate"] == "kept"]
    check(abs(sum(t["probability_after"] for t in kept) - 1) < 1e-12, "what is kept sums to 1")
    names = [s["name"] for s in made["stages"]]
    check(names == ["mask", "min-p", "top-k", "shape", "top-p", "xtc", "greedy"], "the stages in their order", str(names))
    run = Run("explain", path, *xtc, "--banned", 7)
    good("explain in words", run, "xtc-probability 1, xtc-threshold 0.12, banned 7" in run.out, "cut by xtc" in run.out,
         "weighed anew" in run.out, "banned  or NaN" in run.out)


def test_wrong_requests():
    path = file("row.npy", npy((8,), ROW))
    for option, value, part in [
            ("--bias", "1", "--bias"), ("--bias", "1:x", "--bias"), ("--bias", "1:nan", "--bias"), ("--bias", "1:inf", "--bias"),
            ("--bias", "8:1", "--bias has token 8"), ("--bias", "1:2x", "--bias"), ("--bias", "1:1e99", "--bias"),
            ("--banned", "", "--banned"), ("--banned", "1,-1", "--banned"), ("--banned", "8", "--banned has token 8"),
            ("--banned", "1;2", "--banned"), ("--banned", "99999999999", "--banned"), ("--allowed", " ", "--allowed"),
            ("--bad-words", "1+", "--bad-words"), ("--bad-words", "+1", "--bad-words"), ("--bad-words", "1+ 2", "--bad-words"),
            ("--stop", "one", "--stop"), ("--prompt", "8", "--prompt has token 8"), ("--prompt", "@" + str(folder / "no"), "No such file"),
            ("--repetition-penalty", 0, "--repetition-penalty is"), ("--repetition-penalty", "x", "--repetition-penalty"),
            ("--repetition-penalty", 1.2, "--repetition-penalty looks at the history: --prompt"),
            ("--presence-penalty", 3, "--presence-penalty is"),
            ("--frequency-penalty", "nan", "--frequency-penalty is"), ("--min-tokens", 1.5, "--min-tokens is"),
            ("--min-tokens", 1, "--stop"), ("--bad-words", "1+2", "--prompt"), ("--typical-p", 1.5, "--typical-p is"),
            ("--epsilon-cutoff", -1, "--epsilon-cutoff is"),
            ("--dry-base", 0.5, "--dry-base is"), ("--xtc-probability", 2, "--xtc-probability is"),
            ("--penalty-window", -1, "--penalty-window"),
            ("--penalty-window", 1.5, "--penalty-window"), ("--min-tokens-to-keep", -1, "--min-tokens-to-keep is")]:
        for command in [["sample"], ["explain"], ["softmax", "--out", OUT]]:
            refused(f"{command[0]} {option} {value!r}", Run(*command, path, option, value), part)
    refused("a list with a zero byte", Run("sample", path, "--banned", f"@{file('zero.txt', b'1,2' + bytes(1) + b',x')}"), "zero byte")
    long = file("long.txt", b"0 " * (2**20 + 1))
    refused("a history that is too long", Run("sample", path, "--generated", f"@{long}"), "1048577 tokens")
    many = [argument for n in range(65) for argument in ("--seed", n)]
    refused("more options than there is room for", Run("sample", path, *many), "options")
    good("the last of an option counts", Run("sample", path, "--banned", "0", "--banned", "1", "--temperature", 0),
         Run("sample", path, "--banned", "0", "--banned", "1", "--temperature", 0).out == "0\n")


for test in [test_softmax, test_softmax_files, test_softmax_places, test_probs, test_logprobs, test_edits, test_filters,
             test_wrong_requests]:
    test()
tally.finish()
