"""verify: how many drafts of a smaller model stand."""
from typing import TYPE_CHECKING, Any, Callable, Dict, NamedTuple, Optional, Tuple

from . import _core
from ._api import _on_gpu, _vocab
from ._arrays import dtype_code, kind_of
from ._more import REQUEST_FLAGS, Array, Floats, Integers, More, Report, flags_check, report_make, requests_of

if TYPE_CHECKING:
    from ._more import Unpack

_METHODS = {"rejection": 0, "block": 1, "match": 2, "synthetic": 3}


class Verified(NamedTuple):
    """What became of the drafts. Of request r, accepted[r] + 1 tokens count; behind them is -1."""

    tokens: Any  #: of the drafts' shape with one more per request: accepted drafts, then the recovered or bonus token
    accepted: Any  #: [requests] how many drafts stand
    last: Any  #: [requests] the recovered or bonus token
    row_flags: Any  #: as tokens: flags of the row that each token came from, and raffle.ROW_DRAFT
    report: Optional[Report] = None  #: with logprobs or kept: of each token, as tokens


def _flat(rows: Any, name: str) -> Any:
    """[requests, each, vocab] as [drafts, vocab]."""
    if rows is not None and not hasattr(rows, "shape"):
        raise TypeError(f"{name} must be an array, not {type(rows)}")
    return rows.reshape(-1, rows.shape[-1]) if rows is not None and len(rows.shape) == 3 else rows


def _draft_params(given: Optional[Dict[str, Any]], flags: int, draft_logits: Any) -> Tuple[Any, int]:
    """((temperature, top_k, top_p, min_p), flags) that drafts were drawn with."""
    if not isinstance(given, (dict, type(None))):
        raise TypeError(f"draft_params must be a dictionary, not {type(given)}")
    said = dict(given or {})
    defaults = (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))
    params = tuple(said.pop(name, default) for name, default in defaults)
    flags_check(flags)
    flags = said.pop("flags", flags & ~REQUEST_FLAGS)
    flags_check(flags)
    if said:
        raise TypeError(f"no such draft parameter: {next(iter(said))}")
    if given is not None and draft_logits is None:
        raise ValueError("draft_params tell how draft_logits were sampled from: give both")
    return params, flags


def run(logits: Array, drafts: Array, ask: Callable[..., Tuple[Any, ...]], *, flags: int, first: Any, draft_logits: Any, draft_probs: Any,
        draft_params: Any, parent: Any, method: str, thresholds: Tuple[float, float, float], slot: Any, allow: Any, logprobs: Any,
        logprob_token_ids: Any, logprobs_mode: str, kept: Any, threads: int, dtype: Any, stream: Any, after: int = 0) -> Verified:
    """verify(), and that of a Sampler. `ask`, told the logits, what the caller gave for slot and stream, and how many requests there
    are, returns parameters (None: those of the pool), the pool or None, the batch's flags, slot, stream and
    workspace."""
    if method not in _METHODS:
        raise ValueError(f"method is {method!r}: must be one of {', '.join(_METHODS)}")
    kind = kind_of(logits)
    given = logits
    logits, code = kind.logits(logits, -1 if dtype is None else dtype_code(dtype))
    vocab = _vocab(kind, logits)
    if len(kind.shape(logits)) not in (2, 3):
        raise ValueError(f"logits have {len(kind.shape(logits))} axes: must be [requests, each + 1, vocab] or [rows, vocab]")
    if not hasattr(drafts, "shape"):
        raise TypeError(f"drafts must be an array, not {type(drafts)}")
    if first is None:
        if len(drafts.shape) != 2:
            raise ValueError("drafts must be [requests, each], or first must say where each request's begin")
        requests, each = (int(n) for n in drafts.shape)
        shape: Any = (requests, each + 1)
    else:
        if not hasattr(first, "__len__") or getattr(first, "shape", None) == () or not len(first):
            raise ValueError("first must have an entry for each request, and one more")
        requests, each = len(first) - 1, -1
        shape = (kind.shape(logits)[0],)
    if len(kind.shape(logits)) == 3:
        if first is not None or tuple(kind.shape(logits)[:2]) != shape:
            raise ValueError(f"logits have shape {tuple(kind.shape(logits))}: must be {(*shape, vocab)}")
        logits = logits.reshape(-1, vocab)
    drafts = drafts.reshape(-1)
    draft_probs = _flat(draft_probs, "draft_probs")
    if draft_logits is not None:
        draft_logits = _flat(draft_logits, "draft_logits")
        draft_logits = kind_of(draft_logits).logits(draft_logits, code)[0]
    of_drafts, draft_flags = _draft_params(draft_params, flags, draft_logits)
    rows = kind.shape(logits)[0]
    params, asked, flags, slot, stream, workspace = ask(kind, logits, slot, stream, requests)
    if kind.gpu(logits):
        drafts, first, parent = (kind.cast(ids, "int32") for ids in (drafts, first, parent))
        of_drafts = tuple(kind.cast(value, "int32" if i == 1 else "float32") for i, value in enumerate(of_drafts))
        allow, draft_probs = kind.beside(allow), kind.beside(draft_probs)
    tokens, row_flags = kind.empty(logits, (rows,), "int32"), kind.empty(logits, (rows,), "uint32")
    accepted, last = kind.empty(logits, (requests,), "int32"), kind.empty(logits, (requests,), "int32")
    report, told = report_make(kind, logits, (rows,), logprobs, logprob_token_ids, logprobs_mode, kept)
    _core.verify(logits, params, asked, None, slot, allow, tokens, row_flags, workspace, flags, code, 0, threads, stream, drafts,
                 requests, each, first, parent, draft_logits, draft_probs, of_drafts, draft_flags, _METHODS[method],
                 *thresholds, accepted, last, None, report, after)
    if told is not None:
        told = Report(*(None if a is None else kind.finish(given, a.reshape((*shape, *a.shape[1:]))) for a in told))
    return Verified(kind.finish(given, tokens.reshape(shape)), kind.finish(given, accepted), kind.finish(given, last),
                    kind.finish(given, row_flags.reshape(shape)), told)


def verify(logits: Array, drafts: Array, temperature: Floats = 1.0, top_k: Integers = 0, top_p: Floats = 1.0,
           min_p: Floats = 0.0, seed: Optional[Integers] = None, position: Integers = 0, *, first: Optional[Array] = None,
           draft_logits: Optional[Array] = None, draft_probs: Optional[Array] = None,
           draft_params: Optional[Dict[str, Any]] = None, parent: Optional[Integers] = None, method: str = "rejection",
           threshold_single: float = 0.0, threshold_sum: float = 0.0, rate: float = 0.0, slot: Optional[Integers] = None,
           allow: Optional[Array] = None, flags: int = 0, logprobs: Optional[int] = None, logprob_token_ids: Optional[Array] = None,
           logprobs_mode: str = "raw_logprobs", kept: Optional[int] = None, threads: int = 1, dtype: Any = None,
           stream: Optional[int] = None, **more: "Unpack[More]") -> Verified:
    """Accepts drafts so that every token has the law that sample() would draw from with these parameters.

    logits:       the target model's, a row for each draft and one more per request: [requests, each + 1, vocab] with
                  drafts [requests, each]; or [rows, vocab] with drafts [count] and `first`.
    drafts:       token ids; -1: no draft here, and none behind it counts.
    first:        [requests + 1]: request r has the drafts first[r] .. first[r + 1] - 1.
    draft_logits: [count, vocab] (or [requests, each, vocab]) what the drafts were sampled from, with draft_params: a
                  dictionary of temperature, top_k, top_p, min_p, flags (drafts drawn with more than that: draft_probs). Or:
    draft_probs:  the same as float32 probabilities. With neither, the drafts may have been chosen in any way.
    parent:       a tree: which draft of its request each draft follows; -1: none.
    method:       'rejection', 'block', 'match' or 'synthetic'; docs/speculative.md.
    Parameters have an entry per request; position is that of its first row. The rest is as in sample(). What raffle.More lists
    applies at every position, and histories go on with the drafts before it.

    >>> import numpy, raffle
    >>> target = numpy.zeros((1, 3, 4), numpy.float32)
    >>> target[0, 0, 2] = target[0, 1, 1] = target[0, 2, 3] = 9
    >>> done = raffle.verify(target, numpy.array([[2, 0]]), temperature=0)
    >>> done.tokens, done.accepted
    (array([[ 2,  1, -1]], dtype=int32), array([1], dtype=int32))
    """
    if slot is not None and more:
        raise ValueError(f"{next(iter(more))} has an entry per request, and slot is given: a Sampler keeps it in slots")

    def ask(kind: Any, logits: Any, slot: Any, stream: Any, requests: int) -> Tuple[Any, ...]:
        asked, rest = requests_of(more, requests, False, _vocab(kind, logits), flags, "request")
        params, workspace = (temperature, top_k, top_p, min_p, seed, position), None
        if kind.gpu(logits):
            params, _, slot, stream, workspace = _on_gpu(kind, logits, params, None, slot, stream, asked)
        return params, asked, rest, slot, stream, workspace

    return run(logits, drafts, ask, flags=flags, first=first, draft_logits=draft_logits, draft_probs=draft_probs,
               draft_params=draft_params, parent=parent, method=method, thresholds=(threshold_single, threshold_sum, rate), slot=slot,
               allow=allow, logprobs=logprobs, logprob_token_ids=logprob_token_ids, logprobs_mode=logprobs_mode, kept=kept,
               threads=threads, dtype=dtype, stream=stream)
