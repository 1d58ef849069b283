"""raffle as torch operators: for torch.compile, CUDA graphs and whoever wants parameters as tensors.

raffle.sample() takes torch tensors too and is quicker to call. The functions here are registered with torch, so that
the compiler sees through them, and take chance from torch's generator where no seed is given: torch.manual_seed makes
that repeatable, and a captured graph draws anew at every replay.

>>> import torch, raffle.torch
>>> step = torch.compile(lambda logits: raffle.torch.sample(logits, top_k=5, seed=1), backend="eager")
>>> step(torch.zeros(2, 100)).dtype
torch.int32
"""
from typing import Any, Optional, Tuple, Union

import torch

from . import _api, _probs
from ._arrays import kind_of
from ._more import Report

Number = Union[float, int, torch.Tensor]


@torch.library.custom_op("raffle::sample", mutates_args=())
def _sample(logits: torch.Tensor, temperature: Optional[torch.Tensor], top_k: Optional[torch.Tensor],
            top_p: Optional[torch.Tensor], min_p: Optional[torch.Tensor], seed: torch.Tensor, position: torch.Tensor,
            allow: Optional[torch.Tensor], flags: int) -> Tuple[torch.Tensor, torch.Tensor]:
    with kind_of(logits).operator():
        token, row_flags = _api.sample(logits, temperature, top_k, top_p, min_p, seed, position, allow=allow, flags=flags,
                                       return_flags=True)
    return token, row_flags


@_sample.register_fake
def _sample_fake(logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any, seed: Any, position: Any, allow: Any,
                 flags: Any) -> Any:
    return logits.new_empty(logits.shape[:-1], dtype=torch.int32), logits.new_empty(logits.shape[:-1], dtype=torch.int32)


@torch.library.custom_op("raffle::sample_logprobs", mutates_args=())
def _sample_logprobs(logits: torch.Tensor, temperature: Optional[torch.Tensor], top_k: Optional[torch.Tensor],
                     top_p: Optional[torch.Tensor], min_p: Optional[torch.Tensor], seed: torch.Tensor, position: torch.Tensor,
                     allow: Optional[torch.Tensor], flags: int, logprobs: int, mode: str) -> Tuple[
                         torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    with kind_of(logits).operator():
        token, row_flags, told = _api.sample(logits, temperature, top_k, top_p, min_p, seed, position, allow=allow, flags=flags,
                                             return_flags=True, logprobs=logprobs, logprobs_mode=mode)
    top_tokens, top_logprobs = told.top_tokens, told.top_logprobs
    if not logprobs:
        top_tokens, top_logprobs = token.new_empty((*token.shape, 0)), told.logprob.new_empty((*token.shape, 0))
    return token, row_flags, told.logprob, told.rank, told.entropy, top_tokens, top_logprobs


@_sample_logprobs.register_fake
def _sample_logprobs_fake(logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any, seed: Any, position: Any, allow: Any,
                          flags: Any, logprobs: Any, mode: Any) -> Any:
    def empty(dtype: torch.dtype, *last: int) -> Any:
        return logits.new_empty((*logits.shape[:-1], *last), dtype=dtype)

    return (empty(torch.int32), empty(torch.int32), empty(torch.float32), empty(torch.int32), empty(torch.float32),
            empty(torch.int32, logprobs), empty(torch.float32, logprobs))


@torch.library.custom_op("raffle::softmax", mutates_args=())
def _softmax(logits: torch.Tensor, temperature: Optional[torch.Tensor], top_k: Optional[torch.Tensor],
             top_p: Optional[torch.Tensor], min_p: Optional[torch.Tensor], allow: Optional[torch.Tensor], flags: int, log: bool,
             out_dtype: Optional[torch.dtype]) -> torch.Tensor:
    with kind_of(logits).operator():
        out: torch.Tensor = _probs.softmax(logits, temperature, top_k, top_p, min_p, allow=allow, flags=flags, log=log,
                                           out_dtype=out_dtype)
    return out


@_softmax.register_fake
def _softmax_fake(logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any, allow: Any, flags: Any, log: Any,
                  out_dtype: Any) -> Any:
    return logits.new_empty(logits.shape, dtype=out_dtype or logits.dtype)


@torch.library.custom_op("raffle::mask", mutates_args=())
def _mask(logits: torch.Tensor, temperature: Optional[torch.Tensor], top_k: Optional[torch.Tensor],
          top_p: Optional[torch.Tensor], min_p: Optional[torch.Tensor], allow: Optional[torch.Tensor], flags: int) -> torch.Tensor:
    with kind_of(logits).operator():
        out: torch.Tensor = _probs.mask(logits, temperature, top_k, top_p, min_p, allow=allow, flags=flags)
    return out


@_mask.register_fake
def _mask_fake(logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any, allow: Any, flags: Any) -> Any:
    return logits.new_empty(logits.shape)


def _check_number(name: str, value: Any, dtype: torch.dtype) -> None:
    real = dtype.is_floating_point
    is_one = isinstance(value, (int, float) if real else int) or (  # a compiler's own numbers are of these types
        hasattr(value, "__float__" if real else "__index__") and getattr(value, "shape", ()) == ())
    if isinstance(value, bool) or not is_one:
        raise TypeError(f"{name} must be {'a number' if real else 'an integer'} or a tensor, not {type(value)}")


def _tensor(logits: torch.Tensor, name: str, value: Optional[Number], dtype: torch.dtype) -> Optional[torch.Tensor]:
    """A parameter as a tensor on the logits' device; numbers become a fill, which neither copies nor waits."""
    rows = logits.shape[0] if logits.ndim == 2 else 1
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        if value.is_complex() or (value.is_floating_point() and not dtype.is_floating_point):
            raise TypeError(f"{name} has dtype {value.dtype}: must be {str(dtype)[6:]}")
        given: torch.Tensor = value if value.ndim else value.expand(rows)
        if given.dtype != dtype and dtype == torch.int32:
            given = given.clamp(-(2**31), 2**31 - 1)
        return given.to(logits.device, dtype, non_blocking=True).contiguous()
    _check_number(name, value, dtype)
    if dtype == torch.int32:  # beyond 32 bits means what the largest means
        value = min(max(value, -(2**31)), 2**31 - 1)
    elif not dtype.is_floating_point and not -(2**63) <= value < 2**63:  # otherwise left alone: a compiler may not know it yet
        value = _wrap(int(value), name)
    elif isinstance(value, int):
        value = float(value) if dtype.is_floating_point else value
    return torch.full((rows,), value, dtype=dtype, device=logits.device)


def _wrap(value: int, name: str = "seed") -> int:
    """A number of 64 bits as torch's int64 holds it."""
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"{name} is {value}: must be within 64 bits")
    return value - 2**64 if value >= 2**63 else value


def _check(logits: torch.Tensor, allow: Optional[torch.Tensor], flags: int) -> None:
    """What torch would call a RuntimeError."""
    if not isinstance(logits, torch.Tensor):
        raise TypeError(f"logits must be a tensor, not {type(logits)}")
    if allow is not None and not isinstance(allow, torch.Tensor):
        raise TypeError(f"allow must be a tensor, not {type(allow)}")
    if not isinstance(flags, int):
        raise TypeError(f"flags is {flags!r}: must be an integer")


def _params(logits: torch.Tensor, temperature: Number, top_k: Number, top_p: Number, min_p: Number) -> Tuple[Any, ...]:
    def unless(name: str, value: Number, default: float, dtype: torch.dtype) -> Any:
        off = not isinstance(value, torch.Tensor) and value == default
        return None if off else _tensor(logits, name, value, dtype)

    return (unless("temperature", temperature, 1.0, torch.float32), unless("top_k", top_k, 0, torch.int32),
            unless("top_p", top_p, 1.0, torch.float32), unless("min_p", min_p, 0.0, torch.float32))


def sample(logits: torch.Tensor, temperature: Number = 1.0, top_k: Number = 0, top_p: Number = 1.0, min_p: Number = 0.0,
           seed: Optional[Number] = None, position: Number = 0, *, allow: Optional[torch.Tensor] = None, flags: int = 0,
           return_flags: bool = False, logprobs: Optional[int] = None, logprobs_mode: str = "raw_logprobs",
           generator: Optional[torch.Generator] = None) -> Any:
    """raffle.sample() as a torch operator. Without a seed, torch's generator (or `generator`) gives one for each row. With
    logprobs (0 or more; softmax with log=True has those of all tokens) it also returns a raffle.Report.

    >>> import torch, raffle.torch
    >>> raffle.torch.sample(torch.tensor([[0.0, 9.0, 1.0]]), temperature=0.0)
    tensor([1], dtype=torch.int32)
    >>> raffle.torch.sample(torch.zeros(1, 4), temperature=0.0, logprobs=2)[1].top_tokens
    tensor([[0, 1]], dtype=torch.int32)
    """
    _check(logits, allow, flags)
    if isinstance(logprobs, bool) or not isinstance(logprobs, (int, type(None))):
        raise TypeError(f"logprobs is {logprobs!r}: must be a number of tokens")
    if logprobs is not None and logprobs < 0:
        raise ValueError(f"logprobs is {logprobs}: must be 0 or more; softmax with log=True has those of all tokens")
    rows = logits.shape[0] if logits.ndim == 2 else 1
    if seed is None:
        seeds = torch.randint(-(2**63), 2**63 - 1, (rows,), dtype=torch.int64, device=logits.device, generator=generator)
    elif isinstance(seed, torch.Tensor) and seed.ndim:
        seeds = seed.to(logits.device)
    else:  # one for the batch: each row its own, as in raffle.sample
        if isinstance(seed, torch.Tensor):
            first: Any = seed.to(logits.device)
        else:
            _check_number("seed", seed, torch.int64)
            first = _wrap(int(seed))
        seeds = torch.arange(rows, dtype=torch.int64, device=logits.device) + first
    positions = _tensor(logits, "position", position, torch.int64)
    params = _params(logits, temperature, top_k, top_p, min_p)
    if logprobs is None:
        token, row_flags = _sample(logits, *params, seeds, positions, allow, flags)
        return (token, row_flags) if return_flags else token
    token, row_flags, *told = _sample_logprobs(logits, *params, seeds, positions, allow, flags, logprobs, logprobs_mode)
    report = Report(*told) if logprobs else Report(*told[:3])
    return (token, row_flags, report) if return_flags else (token, report)


def softmax(logits: torch.Tensor, temperature: Number = 1.0, top_k: Number = 0, top_p: Number = 1.0, min_p: Number = 0.0, *,
            allow: Optional[torch.Tensor] = None, flags: int = 0, log: bool = False,
            out_dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    """raffle.softmax() as a torch operator.

    >>> import torch, raffle.torch
    >>> raffle.torch.softmax(torch.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    _check(logits, allow, flags)
    if not isinstance(out_dtype, (torch.dtype, type(None))):
        raise TypeError(f"out_dtype is {out_dtype!r}: must be a torch.dtype")
    params = _params(logits, temperature, top_k, top_p, min_p)
    out: torch.Tensor = _softmax(logits, *params, allow, flags, log, out_dtype)
    return out


def mask(logits: torch.Tensor, temperature: Number = 1.0, top_k: Number = 0, top_p: Number = 1.0, min_p: Number = 0.0, *,
         allow: Optional[torch.Tensor] = None, flags: int = 0) -> torch.Tensor:
    """raffle.mask() as a torch operator.

    >>> import torch, raffle.torch
    >>> raffle.torch.mask(torch.tensor([[1.0, 3.0, 2.0]]), top_k=2)
    tensor([[-inf, 3., 2.]])
    """
    _check(logits, allow, flags)
    out: torch.Tensor = _mask(logits, *_params(logits, temperature, top_k, top_p, min_p), allow, flags)
    return out
