"""sample, prepare, explain: the plain functions."""
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import _core
from ._arrays import dtype_code, kind_of, quick_spaces
from ._more import Array, Floats, Integers, More, flags_check, report_finish, report_make, requests_of

if TYPE_CHECKING:
    from ._more import Unpack

_PARAM_DTYPES = ("float32", "int32", "float32", "float32", "uint64", "uint64")


def _on_gpu(kind: Any, logits: Array, params: Any, index: Any, slot: Any, stream: Any, requests: Any = None) -> Any:
    """What a call on a GPU needs beyond a call on the CPU: (params, index, slot, stream, workspaces)."""
    if not _core.plain(*params, index, slot):
        params = tuple(kind.cast(p, d) for p, d in zip(params, _PARAM_DTYPES))
        index, slot = kind.cast(index, "int32"), kind.cast(slot, "int32")
    size = 0 if requests is None else requests.device_bytes(-1)
    if size:  # the call copies them there
        with kind.on(logits, stream):
            requests.place(kind.empty(logits, (size,), "uint8"))
    if stream is None and not kind.asks:
        stream = kind.stream(logits)
    return params, index, slot, stream, kind.workspaces


def _vocab(kind: Any, logits: Array) -> int:
    """How many tokens a row has."""
    shape = kind.shape(logits)
    if not len(shape):
        raise ValueError("logits have 0 axes: must be [rows, vocab] or [vocab]")
    return int(shape[-1])


def _result_shape(kind: Any, logits: Array, index: Any) -> Any:
    """The logits' shape without the vocabulary; with an index, as many rows as that has."""
    return kind.shape(logits)[:-1] if index is None else (_length(index),)


def _requests(kind: Any, logits: Array, index: Any, slot: Any, flags: int, more: Mapping[str, Any]) -> Tuple[Any, int]:
    """What the rows ask for beyond parameters, and the batch's flags."""
    if slot is not None and more:
        raise ValueError(f"{next(iter(more))} has an entry per row, and slot is given: a Sampler keeps it in slots")
    shape = _result_shape(kind, logits, index)
    return requests_of(more, shape[0] if shape else 1, not shape, _vocab(kind, logits), flags)


def _length(index: Any) -> int:
    try:
        return len(index)
    except TypeError:
        raise ValueError("index must have an entry per result") from None


def _outputs(kind: Any, logits: Array, index: Any, out: Any, return_flags: bool) -> Any:
    """(tokens, row flags or None): the caller's, or new ones. The usual cases first: this is in every call."""
    if not return_flags and not isinstance(out, tuple):
        if out is not None:
            return out, None
        if index is None:
            return kind.tokens(logits), None
    if isinstance(out, tuple) and len(out) != 2:
        raise ValueError(f"out has {len(out)} entries: must be an array, or (tokens, row_flags)")
    token, row_flags = out if isinstance(out, tuple) else (out, None)
    shape = _result_shape(kind, logits, index)
    if token is None:
        token = kind.empty(logits, shape, "int32")
    if return_flags and row_flags is None:
        row_flags = kind.empty(logits, shape, "uint32")
    return token, row_flags


def sample(logits: Array, temperature: Floats = 1.0, top_k: Integers = 0, top_p: Floats = 1.0, min_p: Floats = 0.0,
           seed: Optional[Integers] = None, position: Integers = 0, *, index: Optional[Integers] = None,
           slot: Optional[Integers] = None, allow: Optional[Array] = None, flags: int = 0, out: Optional[Array] = None,
           return_flags: bool = False, logprobs: Optional[int] = None, logprob_token_ids: Optional[Array] = None,
           logprobs_mode: str = "raw_logprobs", kept: Optional[int] = None, threads: int = 1, dtype: Any = None, probs: bool = False,
           stream: Optional[int] = None, draft_step: int = 0, **more: "Unpack[More]") -> Any:
    """Draw one token per row of logits.

    Every parameter is a number for all rows, or a list or array with an entry per row.

    logits:      [rows, vocab] or [vocab], float32, float16 or bfloat16; numpy, torch, CuPy, JAX, any DLPack array or
                 buffer. Rows may have any stride. Never written.
    temperature: divides the logits; 0 takes the best token, the lowest id of ties.
    top_k:       keep the k best (ties included); 0 or less: all.
    top_p:       keep the best tokens until their probability reaches p; 1 or more: all.
    min_p:       keep tokens at least min_p times as likely as the best; 0: all.
    seed:        64 bits. The token is a function of logits, parameters, seed and position, and of nothing else. One
                 number s is a seed for the batch: row r uses s + r, so rows draw independently. None: a seed that was
                 never used before.
    position:    the number of the token in its request: advance it by one for every token.
    index:       [results]: result i is drawn from row index[i]; parameters then have an entry per result. Several draws
                 of a row cost one weighing.
    slot:        [rows]: parameters are arrays of slots, and row r uses entry slot[r].
    allow:       which tokens may be drawn: bool [rows, vocab], or 32-bit integers with a bit per token (pack_mask).
    flags:       raffle.TOP_P_JOINT | raffle.FILTERS_FIRST | raffle.MIN_P_LAST | raffle.TOP_K_EXACT | raffle.EMPTY_IS_ZERO |
                 raffle.SHAPE_LAST
    out:         int32 [rows] to write to, or (tokens, row_flags).
    return_flags: also return the row flags: raffle.ROW_NAN | ROW_INF | ROW_EMPTY | ROW_ARGUMENT | ROW_STATE.
    logprobs:    also return a raffle.Report: log-probabilities of the token and of this many of the likeliest (-1: of all
                 tokens), ranks, entropy.
    logprob_token_ids: ids to look up for that report, [m] or [rows, m].
    logprobs_mode: 'raw_logprobs': of the logits as they came; 'tempered_logprobs': after edits and temperature, before
                 filters; 'processed_logprobs': of what was drawn from.
    kept:        also return, in a raffle.Report, which tokens masks and filters left: this many of their ids, ascending, and how
                 many they are; -1: as bits, like kept(). What a trainer needs to replay the sampler.
    threads:     CPU: how many threads share the rows. The tokens do not depend on it.
    dtype:       'float16' or 'bfloat16' for logits handed over as 16-bit integers.
    probs:       True: the rows are probabilities, or weights of any sum, not logits. Temperature must be 1.
    stream:      a CUDA stream's address; None: the current one of the logits' package.
    draft_step:  n, 1 and more: draws the n-th draft behind `position`, for verify(), from random bits of its own. Keep a copy of the
                 logits, if they are to be draft_logits. 0: draws the token at `position`.

    more:        penalties, biases, bans, further filters: raffle.More lists them.

    Returns int32 tokens of the logits' kind and device, of their shape without the last axis. A row that has nothing
    to draw gives -1. With return_flags or a report: a tuple of tokens, flags, report, as far as asked for.

    >>> import numpy, raffle
    >>> logits = numpy.array([[2.0, 1.5, 1.5, 0.5], [0.1, 0.3, 2.5, 2.4]], dtype=numpy.float32)
    >>> raffle.sample(logits, temperature=0)
    array([0, 2], dtype=int32)
    >>> raffle.sample(logits, temperature=[0.8, 1.2], top_p=0.9, seed=[42, 43], position=7)
    array([0, 3], dtype=int32)
    >>> tokens, told = raffle.sample(logits, temperature=0, top_k=3, logprobs=2)
    >>> told.top_tokens, told.logprob.round(4)
    (array([[0, 1],
           [2, 3]], dtype=int32), array([-0.8904, -0.745 ], dtype=float32))
    >>> raffle.sample(logits, top_k=2, seed=1, kept=3)[1].kept_count
    array([3, 2], dtype=int32)
    """
    if type(flags) is not int:
        flags_check(flags)
    params = (temperature, top_k, top_p, min_p, seed, position)
    spaces = quick_spaces.get(type(logits))
    if (spaces is not None and not (more or return_flags or probs or flags or draft_step) and threads == 1
            and index is slot is allow is logprobs is logprob_token_ids is kept is dtype is stream is None):
        token = _core.quick(spaces, logits, params, None, out, 0, 0)
        if token is not NotImplemented:
            return token
    kind = kind_of(logits)
    given = logits
    logits, code = kind.logits(logits, -1 if dtype is None else dtype_code(dtype))
    requests = report = told = workspace = None
    if more or flags > 255:
        requests, flags = _requests(kind, logits, index, slot, flags, more)
    reports = logprobs is not None or logprob_token_ids is not None or kept is not None
    if kind.gpu(logits):
        params, index, slot, stream, workspace = _on_gpu(kind, logits, params, index, slot, stream, requests)
        if allow is not None:
            allow = kind.beside(allow)
    token, row_flags = _outputs(kind, logits, index, out, return_flags)
    if reports:
        shape = _result_shape(kind, logits, index)
        report, told = report_make(kind, logits, shape, logprobs, logprob_token_ids, logprobs_mode, kept)
    _core.sample(logits, params, requests, index, slot, allow, token, row_flags, workspace, flags, code, probs, threads, stream,
                 report, 0, draft_step)
    if out is None:
        token = kind.finish(given, token)
    if told is not None:
        told = report_finish(kind, given, told)
        return (token, row_flags, told) if return_flags else (token, told)
    return (token, row_flags) if return_flags else token


def prepare(logits: Array, temperature: Floats = 1.0, top_k: Integers = 0, top_p: Floats = 1.0, min_p: Floats = 0.0,
            seed: Optional[Integers] = None, position: Integers = 0, *, index: Optional[Integers] = None,
            slot: Optional[Integers] = None, allow: Optional[Array] = None, flags: int = 0, out: Optional[Array] = None,
            advance: bool = False, logprobs: Optional[int] = None, logprob_token_ids: Optional[Array] = None,
            logprobs_mode: str = "raw_logprobs", kept: Optional[int] = None, threads: int = 1, dtype: Any = None, probs: bool = False,
            stream: Optional[int] = None, **more: "Unpack[More]") -> _core.Call:
    """Check everything once, and draw as often as you like: ``call = prepare(...)``, then ``call()`` for each step.

    Arguments are those of sample(). Arrays (logits, parameters, masks, out) are read and written in place at every
    call, so change their contents between calls; numbers, lists and what raffle.More has are fixed. For logits on a GPU
    that is so of arrays there: parameters, index and slot in host memory are copied by prepare(), and fixed as
    numbers are. What is prepared while a graph is captured runs in that graph alone. ``advance=True`` adds
    one to every row's position after each call. The call returns `out`, or with logprobs or kept (out, a raffle.Report whose
    arrays each call writes anew). It belongs to one thread at a time, and on a GPU to one stream at a time; there it
    can be captured in a graph, and takes a stream's address: ``call(stream)``. It takes no other argument.

    >>> import numpy, raffle
    >>> logits = numpy.zeros((2, 1000), numpy.float32)
    >>> call = raffle.prepare(logits, top_k=50, seed=7, advance=True)
    >>> first, second = call().copy(), call().copy()
    >>> bool((second == raffle.sample(logits, top_k=50, seed=7, position=1)).all())
    True
    """
    if seed is None and not advance:
        raise ValueError("seed is None and advance is False: every call would draw the same")
    kind = kind_of(logits)
    logits, code = kind.logits(logits, -1 if dtype is None else dtype_code(dtype))
    params = (temperature, top_k, top_p, min_p, seed, position)
    workspace = None
    requests, flags = _requests(kind, logits, index, slot, flags, more)
    if kind.gpu(logits):
        params, index, slot, stream, _ = _on_gpu(kind, logits, params, index, slot, stream, requests)
        workspace = _core.Workspaces(kind, False)  # which no other call has
        allow = kind.beside(allow)
    token, row_flags = _outputs(kind, logits, index, out, False)
    report, told = report_make(kind, logits, _result_shape(kind, logits, index), logprobs, logprob_token_ids, logprobs_mode, kept)
    return _core.prepare(logits, params, requests, index, slot, allow, token, row_flags, workspace, flags, code, probs, threads,
                         stream, report, int(advance), token if told is None else (token, told))


class Candidate(NamedTuple):
    """A token of a row: its logit, what became of it ('kept', 'top_p', ...), and its tickets before the filters."""

    token: int
    logit: float
    fate: str
    tickets: int


class Explanation(NamedTuple):
    """What happened to a row."""

    token: int  #: what sample() returns
    greedy: bool  #: whether chance was left out
    row_flags: int
    fates: Dict[str, int]  #: how many tokens met each fate
    threshold: float  #: logits below it were cut
    row_tickets: int  #: tickets of all allowed tokens
    draw_tickets: int  #: tickets of the kept ones
    drawn: int  #: the number that won
    top: List[Candidate]  #: the likeliest tokens


_FATES = ("kept", "mask", "min_p", "top_k", "top_p", "greedy", "shape", "xtc")


def _fate(number: int) -> str:
    return _FATES[number] if number < len(_FATES) else f"fate {number}"


def explain(logits: Array, temperature: Floats = 1.0, top_k: Integers = 0, top_p: Floats = 1.0, min_p: Floats = 0.0,
            seed: Integers = 0, position: Integers = 0, *, row: int = 0, top: int = 10, slot: Optional[Integers] = None,
            allow: Optional[Array] = None, flags: int = 0, dtype: Any = None, probs: bool = False,
            **more: "Unpack[More]") -> Explanation:
    """What each filter did to one row of a batch, and which ticket won. CPU arrays; slow: for tools and tests.

    >>> import numpy, raffle
    >>> told = raffle.explain(numpy.array([2.0, 1.5, 1.5, 0.5], numpy.float32), top_k=3, seed=1)
    >>> told.fates["kept"], told.fates["top_k"], told.top[0].token
    (3, 1, 0)
    """
    kind = kind_of(logits)
    logits, code = kind.logits(logits, -1 if dtype is None else dtype_code(dtype))
    if kind.gpu(logits):
        raise ValueError("explain needs logits on the CPU: the tokens are the same")
    requests, flags = _requests(kind, logits, None, slot, flags, more)
    told = _core.explain(logits, (temperature, top_k, top_p, min_p, seed, position), requests, None, slot, allow, None, None, None,
                         flags, code, probs, 1, None, row, top)
    told["fates"] = {_fate(i): n for i, n in enumerate(told["fates"]) if n or i < len(_FATES)}
    told["top"] = [Candidate(token, logit, _fate(fate), tickets) for token, logit, fate, tickets in told["top"]]
    return Explanation(**told)


def pack_mask(mask: Array) -> Any:
    """A bool mask [rows, vocab] as int32 words with a bit per token: what ``allow`` takes on GPUs.

    >>> import numpy, raffle
    >>> raffle.pack_mask(numpy.array([[True, False, True]]))
    array([[5]], dtype=int32)
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if getattr(mask, "shape", None) == ():
        raise ValueError("mask has 0 axes: must be [rows, vocab] or [vocab]")
    if torch is not None and isinstance(mask, torch.Tensor):
        if mask.dtype != torch.bool:
            raise TypeError(f"mask has dtype {mask.dtype}: must be bool")
        padded = torch.nn.functional.pad(mask, (0, -mask.shape[-1] % 32)).unflatten(-1, (-1, 32))
        shifted = padded.to(torch.int32) << torch.arange(32, dtype=torch.int32, device=mask.device)
        return shifted.sum(-1, dtype=torch.int32)
    if numpy is None or not isinstance(mask, numpy.ndarray):
        raise TypeError(f"mask must be a numpy or torch array, not {type(mask)}")
    if mask.dtype != bool:
        raise TypeError(f"mask has dtype {mask.dtype}: must be bool")
    packed = numpy.packbits(mask, axis=-1, bitorder="little")
    padded = numpy.zeros((*mask.shape[:-1], -(-mask.shape[-1] // 32) * 4), "uint8")
    padded[..., : packed.shape[-1]] = packed
    return padded.view("<i4")
