"""Generation with a Hugging Face model, in which raffle does the whole selection: no LogitsProcessor, no multinomial.

    from raffle.transformers import generate

    tokens = generate(model, input_ids, max_new_tokens=50, temperature=0.8, top_p=0.9, seed=[1, 2, 3])

Any callable works that takes input_ids, attention_mask, past_key_values and use_cache, and returns an object with
`logits` [batch, length, vocab] and `past_key_values`; where it has a parameter position_ids, it is told those of padded rows.
transformers itself is not imported.

>>> import torch, types
>>> from raffle.transformers import generate
>>> def model(input_ids, **words):  # prefers the token after the last one
...     logits = torch.nn.functional.one_hot((input_ids + 1) % 10, 10) * 9.0
...     return types.SimpleNamespace(logits=logits, past_key_values=None)
>>> generate(model, torch.tensor([[3], [7]]), max_new_tokens=4, temperature=0.0)
tensor([[3, 4, 5, 6, 7],
        [7, 8, 9, 0, 1]])
"""
import inspect
from typing import Any, Dict, Optional, Sequence, Union

import torch

from . import _api

Numbers = Union[float, int, Sequence[float], torch.Tensor]


def generate_step(logits: torch.Tensor, step: int, seed: Numbers, temperature: Numbers = 1.0, top_k: Numbers = 0,
                  top_p: Numbers = 1.0, min_p: Numbers = 0.0, allow: Optional[torch.Tensor] = None) -> torch.Tensor:
    """The next token of each request: int64 [batch], as input_ids are. `step` is the number of the token in its request:
    the same step, seed and logits give the same token whatever else is in the batch."""
    token: torch.Tensor = _api.sample(logits, temperature, top_k, top_p, min_p, seed, step, allow=allow)
    return token.to(torch.int64)


def _positions(model: Any, attention_mask: torch.Tensor) -> Dict[str, torch.Tensor]:
    """Where each token of a padded row is in its text: models count from the first column, if not told."""
    if "position_ids" not in inspect.signature(getattr(model, "forward", model)).parameters:
        return {}
    return {"position_ids": (attention_mask.long().cumsum(-1) - 1).clamp(min=0)}


@torch.no_grad()
def generate(model: Any, input_ids: torch.Tensor, max_new_tokens: int, *, temperature: Numbers = 1.0, top_k: Numbers = 0,
             top_p: Numbers = 1.0, min_p: Numbers = 0.0, seed: Optional[Numbers] = None,
             attention_mask: Optional[torch.Tensor] = None, eos_token_id: Optional[int] = None, pad_token_id: int = 0,
             first_position: int = 0) -> torch.Tensor:
    """input_ids [batch, length] (padded on the left, which attention_mask then tells) with up to max_new_tokens more; a request that is
    done is padded.

    seed: one number for the batch or one for each request; None: new ones. first_position: where a text that is
    continued had ended, so that it goes on as it would have.
    """
    batch = input_ids.shape[0]
    if seed is None:
        seed = torch.randint(0, 2**63 - 1, (batch,), dtype=torch.int64)
    padded = attention_mask is not None
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    done = torch.zeros(batch, dtype=torch.bool, device=input_ids.device)
    text, fresh, past = input_ids, input_ids, None
    for step in range(first_position, first_position + max_new_tokens):
        words = {name: ids[:, -fresh.shape[1] :] for name, ids in (_positions(model, attention_mask) if padded else {}).items()}
        answer = model(input_ids=fresh, attention_mask=attention_mask, past_key_values=past, use_cache=True, **words)
        past = answer.past_key_values
        token = generate_step(answer.logits[:, -1], step, seed, temperature, top_k, top_p, min_p)
        token = torch.where(done, pad_token_id, token)
        text = torch.cat([text, token[:, None]], dim=1)
        fresh = token[:, None] if past is not None else text
        attention_mask = torch.cat([attention_mask, torch.ones_like(token[:, None])], dim=1)
        if eos_token_id is not None:
            done |= token == eos_token_id
            if bool(done.all()):  # the one place that waits for a GPU
                break
    return text
