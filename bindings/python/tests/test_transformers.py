"""raffle.transformers, with a small model of random weights."""
import copy
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import raffle  # noqa: E402
from raffle.transformers import generate, generate_step  # noqa: E402


@pytest.fixture(scope="module")
def model():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=211, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config).eval()


PROMPT = torch.tensor([[5, 9, 2], [7, 7, 1]])


def test_a_step_is_a_sample():
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    drawn = generate_step(logits, 4, [1, 2, 3], top_k=9)
    assert drawn.dtype == torch.int64 and drawn.tolist() == raffle.sample(logits, top_k=9, seed=[1, 2, 3], position=4).tolist()


def test_greedy_is_transformers_greedy(model):
    wanted = model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=12, do_sample=False, pad_token_id=0,
                            eos_token_id=None)
    assert torch.equal(generate(model, PROMPT, 12, temperature=0.0), wanted)


def test_a_request_does_not_see_its_batch(model):
    both = generate(model, PROMPT, 20, temperature=1.0, top_p=0.95, seed=[11, 12])
    alone = generate(model, PROMPT[1:], 20, temperature=1.0, top_p=0.95, seed=[12])
    assert torch.equal(both[1:], alone)


def test_a_text_goes_on(model):
    whole = generate(model, PROMPT, 15, seed=[1, 2])
    half = generate(model, PROMPT, 7, seed=[1, 2])
    assert torch.equal(generate(model, half, 8, seed=[1, 2], first_position=7), whole)


def test_it_ends(model):
    text = generate(model, PROMPT, 60, seed=[1, 2])
    end = int(text[0, 10])
    ended = generate(model, PROMPT, 60, seed=[1, 2], eos_token_id=end, pad_token_id=210)
    first = (ended[0, 3:] == end).nonzero()[0].item() + 3
    assert (ended[0, first + 1 :] == 210).all() and torch.equal(ended[0, : first + 1], text[0, : first + 1])


def test_padding_on_the_left(model):
    """A padded row's text is the one that it has alone: tokens, and where they are in their text."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for weights in model.parameters():  # or the small model says the same wherever it is
            weights.mul_(6)
    prompt, mask = torch.tensor([[5, 9, 2, 8], [0, 0, 7, 1]]), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    both = generate(model, prompt, 12, seed=[1, 2], attention_mask=mask)
    assert torch.equal(both[1, 2:], generate(model, prompt[1:, 2:], 12, seed=[2])[0])
    assert torch.equal(both[:1], generate(model, prompt[:1], 12, seed=[1]))
    wanted = model.generate(prompt, attention_mask=mask, max_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=None)
    assert torch.equal(generate(model, prompt, 12, temperature=0.0, attention_mask=mask), wanted)


EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples/python/huggingface.py"


@pytest.mark.skipif(not EXAMPLE.exists(), reason="not the project's tree")
def test_the_example(tmp_path):
    """examples/python/huggingface.py, with a model and a tokenizer in a folder: each seed its text, and the same ones again."""
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    words = {f"w{i}": i for i in range(98)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({**words, "[UNK]": 98, "[END]": 99}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", eos_token="[END]").save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=99, eos_token_id=99)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    command = [sys.executable, str(EXAMPLE), str(tmp_path), "w1 w2 w3", "--tokens", "8", "--seed", "5"]
    texts = [subprocess.run(command, capture_output=True, text=True) for _ in range(2)]
    assert texts[0].returncode == 0, texts[0].stderr
    said = texts[0].stdout.splitlines()
    assert said[::2] == ["--- seed 5", "--- seed 6", "--- seed 7"] and len(set(said[1::2])) == 3
    assert all(line.startswith("w1 w2 w3 w") for line in said[1::2]) and texts[0].stdout == texts[1].stdout
