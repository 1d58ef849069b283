"""The functions of flashinfer.sampling, on CUDA and CPU tensors: change an import and try.

    from raffle import flashinfer as sampling   # instead of: from flashinfer import sampling

Names, signatures, return values and types of errors are flashinfer's. What differs is what raffle promises: draws are
exact, a row's token depends on its own seed and offset and not on the batch, every row's seed counts (also in a tensor
of seeds), and bfloat16 and float16 rows are read as they are. `deterministic` changes nothing: results always are.

>>> import torch
>>> from raffle import flashinfer
>>> probs = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
>>> flashinfer.top_k_sampling_from_probs(probs, top_k=1)
tensor([2, 0], dtype=torch.int32)
"""
from numbers import Real
from typing import Any, Dict, Optional, Tuple, Union

import torch

from . import EMPTY_IS_ZERO, ROW_EMPTY, ROW_NAN, TOP_P_JOINT, _api, _probs, _verify
from .torch import _wrap

Seed = Optional[Union[int, torch.Tensor]]


def _check_pair(seed: Any, offset: Any, device: torch.device, rows: int) -> None:
    """flashinfer's rules for seed and offset: both numbers, or both tensors [1] or [rows] of 64-bit integers."""
    if isinstance(seed, torch.Tensor) != isinstance(offset, torch.Tensor):
        raise ValueError("seed and offset must be given alike: both as tensors or both as numbers")
    if not isinstance(seed, torch.Tensor):
        return
    for name, value in (("seed", seed), ("offset", offset)):
        if value.device != device:
            raise ValueError(f"{name} is on {value.device}: must be on {device}")
        if value.dtype not in (torch.int64, torch.uint64):
            raise ValueError(f"{name} has dtype {value.dtype}: must be int64 or uint64")
        if value.ndim != 1 or value.shape[0] not in (1, rows):
            raise ValueError(f"{name} has shape {tuple(value.shape)}: must be [1] or [{rows}]")


def _chance(rows: int, device: torch.device, generator: Optional[torch.Generator], seed: Seed, offset: Seed) -> Tuple[Any, Any]:
    """Seeds and positions. Without both, each row gets a seed from the generator: no copy to the host, graphs go on."""
    if seed is None or offset is None:
        seeds = torch.randint(-(2**63), 2**63 - 1, (rows,), dtype=torch.int64, device=device, generator=generator)
        return seeds, 0
    _check_pair(seed, offset, device, rows)
    if not isinstance(seed, torch.Tensor) or not isinstance(offset, torch.Tensor):
        return seed, offset
    seeds, positions = seed.view(torch.int64), offset.view(torch.int64)  # the same bits: torch does not add uint64
    if seeds.shape[0] == 1 and rows != 1:  # one for the batch: each row its own, as for a number
        seeds = seeds + torch.arange(rows, dtype=torch.int64, device=device)
    return seeds, positions.expand(rows).contiguous() if positions.shape[0] != rows else positions


def _check_rows(values: torch.Tensor, name: str) -> None:
    if values.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(values.shape)}: must be [rows, vocab]")


def _filters(values: torch.Tensor, indices: Optional[torch.Tensor], filters: Dict[str, Any]) -> Dict[str, Any]:
    """Filters as numbers, or with an entry per result. flashinfer's tensors have one per row of `values`, and results that
    share a row share its filter."""
    made = dict(filters)
    for name, value in filters.items():
        if not isinstance(value, torch.Tensor):
            continue
        if value.ndim != 1 or value.shape[0] != values.shape[0]:
            raise ValueError(f"{name} has shape {tuple(value.shape)}: must be a number or [{values.shape[0]}], an entry per row")
        value = value.long() if name == "top_k" else value.float()
        # An index out of range is for raffle to tell: here it only must not reach beyond the filter.
        made[name] = value if indices is None else value[indices.long().clamp(0, max(values.shape[0] - 1, 0))]
    return made


def _draw(values: torch.Tensor, probs: bool, indices: Optional[torch.Tensor], generator: Optional[torch.Generator], check_nan: bool,
          seed: Seed, offset: Seed, return_valid: bool, flags: int = 0, **filters: Any) -> Any:
    _check_rows(values, "probs" if probs else "logits")
    if indices is not None:
        if not isinstance(indices, torch.Tensor):
            raise TypeError(f"indices must be a tensor, not {type(indices)}")
        if indices.dtype not in (torch.int32, torch.int64):  # which tokens come back as: others may not hold them
            raise TypeError(f"indices has dtype {indices.dtype}: must be int32 or int64")
        if indices.ndim != 1 or (indices.shape[0] and not values.shape[0]):
            raise ValueError(f"indices has shape {tuple(indices.shape)}: must be [results], each of a row of {tuple(values.shape)}")
    if check_nan and torch.isnan(values).any():
        raise ValueError(f"Input {'probs' if probs else 'logits'} contains NaN.")
    if values.dtype == torch.float64:
        values = values.float()
    rows = values.shape[0] if indices is None else indices.shape[0]
    seeds, positions = _chance(rows, values.device, generator, seed, offset)
    token, row_flags = _api.sample(values, seed=seeds, position=positions, index=indices, probs=probs, flags=flags | EMPTY_IS_ZERO,
                                   return_flags=True, **_filters(values, indices, filters))
    if indices is not None:
        token = token.to(indices.dtype)
    return (token, (row_flags & (ROW_EMPTY | ROW_NAN)) == 0) if return_valid else token


def _order(filter_apply_order: str) -> int:
    if filter_apply_order not in ("top_k_first", "joint"):
        raise ValueError(f"Invalid filter_apply_order: {filter_apply_order}")
    return TOP_P_JOINT if filter_apply_order == "joint" else 0


def softmax(logits: torch.Tensor, temperature: Optional[Union[torch.Tensor, float]] = None,
            enable_pdl: Optional[bool] = None) -> torch.Tensor:
    """float32 probabilities of logits / temperature. (Temperature 0 is one-hot here, not uniform.)"""
    _check_rows(logits, "logits")
    if temperature is None:
        temperature = 1.0
    elif isinstance(temperature, torch.Tensor):
        if temperature.ndim != 1 or temperature.shape[0] != logits.shape[0]:
            raise ValueError(f"temperature has shape {tuple(temperature.shape)}: must be [{logits.shape[0]}]")
        if temperature.device != logits.device:
            raise ValueError(f"temperature is on {temperature.device}: must be on {logits.device}")
        if not temperature.is_floating_point():
            raise ValueError(f"temperature has dtype {temperature.dtype}: must be of floating point")
    elif isinstance(temperature, bool) or not isinstance(temperature, Real):
        raise TypeError("temperature must be None, a number or a tensor with one number per row")
    if logits.dtype == torch.float64:
        logits = logits.float()
    out: torch.Tensor = _probs.softmax(logits, temperature, out_dtype=torch.float32)
    return out


def sampling_from_logits(logits: torch.Tensor, indices: Optional[torch.Tensor] = None, deterministic: bool = True,
                         generator: Optional[torch.Generator] = None, check_nan: bool = False, seed: Seed = None,
                         offset: Seed = None) -> torch.Tensor:
    """A draw from softmax(logits)."""
    token: torch.Tensor = _draw(logits, False, indices, generator, check_nan, seed, offset, False)
    return token


def sampling_from_probs(probs: torch.Tensor, indices: Optional[torch.Tensor] = None, deterministic: bool = True,
                        generator: Optional[torch.Generator] = None, check_nan: bool = False, seed: Seed = None,
                        offset: Seed = None, return_valid: bool = False) -> Any:
    """A draw from probabilities."""
    return _draw(probs, True, indices, generator, check_nan, seed, offset, return_valid)


def top_p_sampling_from_probs(probs: torch.Tensor, top_p: Union[torch.Tensor, float], indices: Optional[torch.Tensor] = None,
                              deterministic: bool = True, generator: Optional[torch.Generator] = None, check_nan: bool = False,
                              seed: Seed = None, offset: Seed = None, return_valid: bool = False) -> Any:
    """A draw from the best tokens, up to top_p of the probability."""
    return _draw(probs, True, indices, generator, check_nan, seed, offset, return_valid, top_p=top_p)


def top_k_sampling_from_probs(probs: torch.Tensor, top_k: Union[torch.Tensor, int], indices: Optional[torch.Tensor] = None,
                              deterministic: bool = True, generator: Optional[torch.Generator] = None, check_nan: bool = False,
                              seed: Seed = None, offset: Seed = None, return_valid: bool = False) -> Any:
    """A draw from the top_k best tokens."""
    return _draw(probs, True, indices, generator, check_nan, seed, offset, return_valid, top_k=top_k)


def min_p_sampling_from_probs(probs: torch.Tensor, min_p: Union[torch.Tensor, float], indices: Optional[torch.Tensor] = None,
                              deterministic: bool = True, generator: Optional[torch.Generator] = None, check_nan: bool = False,
                              seed: Seed = None, offset: Seed = None, return_valid: bool = False) -> Any:
    """A draw from the tokens at least min_p times as likely as the best."""
    return _draw(probs, True, indices, generator, check_nan, seed, offset, return_valid, min_p=min_p)


def top_k_top_p_sampling_from_logits(logits: torch.Tensor, top_k: Union[torch.Tensor, int], top_p: Union[torch.Tensor, float],
                                     indices: Optional[torch.Tensor] = None, filter_apply_order: str = "top_k_first",
                                     deterministic: bool = True, generator: Optional[torch.Generator] = None,
                                     check_nan: bool = False, seed: Seed = None, offset: Seed = None) -> torch.Tensor:
    """top-k and top-p, one after the other or ("joint") each on the whole row."""
    token: torch.Tensor = _draw(logits, False, indices, generator, check_nan, seed, offset, False, _order(filter_apply_order),
                                top_k=top_k, top_p=top_p)
    return token


def top_k_top_p_sampling_from_probs(probs: torch.Tensor, top_k: Union[torch.Tensor, int], top_p: Union[torch.Tensor, float],
                                    indices: Optional[torch.Tensor] = None, filter_apply_order: str = "top_k_first",
                                    deterministic: bool = True, generator: Optional[torch.Generator] = None,
                                    check_nan: bool = False, seed: Seed = None, offset: Seed = None,
                                    return_valid: bool = False) -> Any:
    """The same from probabilities."""
    return _draw(probs, True, indices, generator, check_nan, seed, offset, return_valid, _order(filter_apply_order), top_k=top_k,
                 top_p=top_p)


def _renorm(probs: torch.Tensor, dtype: torch.dtype, **filters: Any) -> torch.Tensor:
    _check_rows(probs, "probs")
    if probs.dtype == torch.float64:
        probs = probs.float()
    out: torch.Tensor = _probs.softmax(probs, probs=True, out_dtype=dtype, **_filters(probs, None, filters))
    return out


def top_p_renorm_probs(probs: torch.Tensor, top_p: Union[torch.Tensor, float], is_deterministic: bool = False) -> torch.Tensor:
    """Probabilities outside of the top_p best become 0, the others sum to 1. float32, whatever `probs` are."""
    return _renorm(probs, torch.float32, top_p=top_p)


def top_k_renorm_probs(probs: torch.Tensor, top_k: Union[torch.Tensor, int], is_deterministic: bool = False) -> torch.Tensor:
    """Probabilities outside of the top_k best become 0, the others sum to 1. Of the dtype of `probs`."""
    return _renorm(probs, torch.float32 if probs.dtype == torch.float64 else probs.dtype, top_k=top_k)


top_p_renorm_prob = top_p_renorm_probs
top_k_renorm_prob = top_k_renorm_probs


def top_k_mask_logits(logits: torch.Tensor, top_k: Union[torch.Tensor, int]) -> torch.Tensor:
    """Logits outside of the top_k best become -inf."""
    _check_rows(logits, "logits")
    out: torch.Tensor = _probs.mask(logits, **_filters(logits, None, {"top_k": top_k}))
    return out


def chain_speculative_sampling(draft_probs: torch.Tensor, draft_token_ids: torch.Tensor, target_probs: torch.Tensor,
                               maybe_output_accepted_token_num: Optional[torch.Tensor] = None,
                               maybe_output_emitted_draft_token_num: Optional[torch.Tensor] = None, deterministic: bool = True,
                               generator: Optional[torch.Generator] = None, seed: Seed = None,
                               offset: Seed = None) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Speculative decoding from probabilities: (tokens [batch, drafts + 1] with -1 behind the last, how many drafts would
    be accepted each on its own, how many were emitted); counts are added to the given tensors.

    raffle verifies logits: the target's probabilities go in as their logarithms, rounded to float32 (a relative error
    of 1e-7), and torch's logarithm decides the last bit. With logits at hand, raffle.verify is exact and quicker.
    """
    for name, value, axes in (("draft_probs", draft_probs, 3), ("draft_token_ids", draft_token_ids, 2), ("target_probs", target_probs, 3)):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(value)}")
        if value.ndim != axes:
            raise ValueError(f"{name} has shape {tuple(value.shape)}: must have {axes} axes")
    batch, count = draft_token_ids.shape
    outputs = {"maybe_output_accepted_token_num": maybe_output_accepted_token_num,
               "maybe_output_emitted_draft_token_num": maybe_output_emitted_draft_token_num}
    for name, given in outputs.items():
        if not isinstance(given, (torch.Tensor, type(None))):
            raise TypeError(f"{name} must be a tensor, not {type(given)}")
        if given is not None and given.shape != (batch,):
            raise ValueError(f"{name} has shape {tuple(given.shape)}: must be [{batch}]")
    seeds, positions = _chance(batch, target_probs.device, generator, seed, offset)
    target, drafts = target_probs.float().log(), draft_probs.float().contiguous()
    done = _verify.verify(target, draft_token_ids, draft_probs=drafts, seed=seeds, position=positions)
    # Drafts behind a rejected one are judged as requests of their own: nobody else looked at them.
    each = torch.arange(count, device=target.device)
    first_seeds = seeds if isinstance(seeds, torch.Tensor) else torch.arange(batch, device=target.device) + _wrap(int(seeds))
    all_positions = each + (positions[:, None] if isinstance(positions, torch.Tensor) else _wrap(int(positions), "offset"))
    alone = _verify.verify(torch.stack([target[:, :-1], target[:, 1:]], 2).reshape(batch * count, 2, target.shape[-1]),
                           draft_token_ids.reshape(-1, 1), draft_probs=drafts.reshape(batch * count, 1, target.shape[-1]),
                           seed=first_seeds.repeat_interleave(count), position=all_positions.expand(batch, count).reshape(-1))
    emitted = done.accepted[:, None]
    judged = torch.where(each > emitted, alone.accepted.reshape(batch, count), (each < emitted).to(torch.int32))
    counts = []
    for given, found in zip(outputs.values(), (judged.sum(1), done.accepted)):
        counts.append(found.to(torch.int32) if given is None else given.add_(found.to(given.dtype)))
    return done.tokens, counts[0], counts[1]
