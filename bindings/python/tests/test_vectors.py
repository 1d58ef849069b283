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
