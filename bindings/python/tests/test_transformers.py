"""raffle.transformers, with a small model of random weights."""
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
