"""The frozen results, read from Python."""
import numpy as np
import pytest
import raffle
import vector_rows

pytestmark = pytest.mark.skipif(not vector_rows.FILE.exists(), reason="tests/vectors is not here: not the project's tree")


def draw(case, row, **more):
    allow = vector_rows.allow_make(case["allow"], case["vocab"]) if case["allow"] else None
    names = ("temperature", "top_k", "top_p", "min_p", "seed", "position", "flags")
    dtype = "bfloat16" if case["dtype"] == "bf16" and row.dtype == np.uint16 else None
    token, flags = raffle.sample(row, allow=allow, dtype=dtype, return_flags=True, **{n: case[n] for n in names}, **more)
    return int(token), int(flags)


def test_every_line():
    count = 0
    for case in vector_rows.cases():
        row = vector_rows.row_make(case["kind"], case["row_seed"], case["vocab"], case["dtype"])
        assert draw(case, row) == (case["token"], case["row_flags"]), case
        count += 1
    assert count == sum(not line.startswith("#") for line in vector_rows.FILE.read_text().splitlines()) > 400


def test_one_batch_of_all_lines_of_a_shape():
    """The same tokens as rows of one batch with a parameter array each, in one and in three threads."""
    groups = {}
    for case in vector_rows.cases():
        if not case["allow"]:
            groups.setdefault((case["vocab"], case["dtype"], case["flags"]), []).append(case)
    batches = 0
    for (vocab, dtype, flags), cases in groups.items():
        if len(cases) < 2:
            continue
        rows = np.stack([vector_rows.row_make(c["kind"], c["row_seed"], vocab, dtype) for c in cases])
        params = {n: [c[n] for c in cases] for n in ("temperature", "top_k", "top_p", "min_p", "seed", "position")}
        for threads in (1, 3):
            token, row_flags = raffle.sample(rows, flags=flags, threads=threads, return_flags=True,
                                             dtype="bfloat16" if dtype == "bf16" else None, **params)
            assert token.tolist() == [c["token"] for c in cases]
            assert row_flags.tolist() == [c["row_flags"] for c in cases]
        batches += 1
    assert batches > 20


def test_torch_rows():
    torch = pytest.importorskip("torch")
    for case in vector_rows.cases():
        if case["vocab"] > 5000:
            continue
        row = torch.from_numpy(vector_rows.row_make(case["kind"], case["row_seed"], case["vocab"], case["dtype"]))
        if case["dtype"] == "bf16":
            row = row.view(torch.bfloat16)
        assert draw(case, row) == (case["token"], case["row_flags"]), case


# ---- requests.txt ----------------------------------------------------------------------------------------------

NAMES = dict(repetition="repetition_penalty", frequency="frequency_penalty", presence="presence_penalty", penalty_window="repeat_last_n",
             no_repeat_ngram="no_repeat_ngram_size", dry_allowed="dry_allowed_length", dry_range="dry_penalty_last_n",
             epsilon="epsilon_cutoff", eta="eta_cutoff", keep_least="min_tokens_to_keep", bias="logit_bias", banned="banned_token_ids",
             allowed="allowed_token_ids", stop="stop_token_ids", breaker="dry_sequence_breaker_ids", bad_words="bad_words_token_ids",
             prompt="prompt_token_ids", output="output_token_ids")
POINTS = ("raw_logprobs", "tempered_logprobs", "processed_logprobs")


def value_of(name, text):
    """A field of raffle_extra as Python takes it."""
    if name == "bias":
        return {int(token): float.fromhex(added) for token, added in (pair.split(":") for pair in text.split(","))}
    if name == "bad_words":
        return [[int(token) for token in word.strip(",").split(",")] for word in text.split("-1") if word.strip(",")]
    if name in ("banned", "allowed", "stop", "breaker", "prompt", "output"):
        return [int(token) for token in text.split(",")]
    return float.fromhex(text) if "x" in text else float(text)


def bits_hash(values):
    hash = 14695981039346656037
    for byte in np.ascontiguousarray(values, "<f4").tobytes():
        hash = (hash ^ byte) * 1099511628211 % 2**64
    return f"{hash:016x}"


def bits(value):
    return "7fc00000" if np.isnan(value) else f"{int(np.float32(value).view(np.uint32)):08x}"


def request_cases():
    """(case, keywords, softmax's hashes, what is told at each point) of every line."""
    for line in (vector_rows.FILE.parent / "requests.txt").read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        columns = line.split()
        more = dict(entry.split("=") for entry in columns[25:])
        case = vector_rows.case_of(columns)
        flags = case["flags"] | int(more.pop("extra_flags", 0))
        words = {NAMES.get(name, name): value_of(name, text) for name, text in more.items()}
        if {*words} & {"prompt_token_ids", "output_token_ids"} == set() and words:
            words["output_token_ids"] = []  # an empty history is one
        yield case, dict(words, flags=flags), columns[14:16], [tuple(columns[16 + 3 * i : 19 + 3 * i]) for i in range(3)]


def test_every_request():
    """Tokens, the bits of softmax, and all that is reported. Lines with values beyond vLLM's ranges, which the library takes and
    Python refuses, are left out, and counted."""
    done = refused = 0
    for case, words, hashes, told in request_cases():
        row = vector_rows.row_make(case["kind"], case["row_seed"], case["vocab"], case["dtype"])
        base = {n: case[n] for n in ("temperature", "top_k", "top_p", "min_p", "seed", "position")}
        base.update(allow=vector_rows.allow_make(case["allow"], case["vocab"]) if case["allow"] else None,
                    dtype="bfloat16" if case["dtype"] == "bf16" else None)
        try:
            answers = [raffle.sample(row, return_flags=True, logprobs=0, logprobs_mode=point, **base, **words) for point in POINTS]
        except ValueError as error:
            assert "must be" in str(error) or "no stop ids" in str(error), (str(error), case)
            refused += 1
            continue
        for (token, flags, report), wanted in zip(answers, told):
            assert (int(token), int(flags)) == (case["token"], case["row_flags"]), (case, words)
            assert (bits(report.logprob), str(int(report.rank)), bits(report.entropy)) == wanted, (case, words)
        for log, wanted in zip((False, True), hashes):
            assert bits_hash(raffle.softmax(row, log=log, out_dtype="float32", **base, **words)) == wanted, (case, words, log)
        done += 1
    assert done > 260 and refused < 45, (done, refused)
