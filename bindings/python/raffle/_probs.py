"""softmax, mask, kept: probabilities and kept sets out of the tickets that sample() draws from."""
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from . import _core
from ._api import _on_gpu, _requests, _result_shape, _vocab
from ._arrays import _CODES, dtype_code, dtype_name, kind_of
from ._more import Array, Floats, Integers, More

if TYPE_CHECKING:
    from ._more import Unpack


class Rows(More, total=False):
    """What softmax(), mask(), kept() and kept_list() take as sample() does. Only XTC looks at seed and position.

    >>> import numpy, raffle
    >>> raffle.softmax(numpy.zeros((1, 4), numpy.float32), banned_token_ids=[1], index=[0, 0])
    array([[0.3333..., 0. , 0.3333..., 0.3333...],
           [0.3333..., 0. , 0.3333..., 0.3333...]], dtype=float32)
    """

    seed: Integers
    position: Integers
    index: Optional[Integers]
    slot: Optional[Integers]
    allow: Optional[Array]
    flags: int
    threads: int
    dtype: Any
    probs: bool
    stream: Optional[int]


def _rows(logits: Array, filters: Tuple[Any, ...], words: Rows, *, out: Any = None, out_dtype: Any = None, wants_out: bool = False,
          kept: Any = None, kept_list: Any = None, kept_count: Any = None, return_flags: bool = False, is_mask: bool = False,
          log: bool = False) -> Any:
    """Calls raffle_softmax or raffle_mask; makes the outputs that are wanted and not given."""
    more: Dict[str, Any] = dict(words)
    params = (*filters, more.pop("seed", 0), more.pop("position", 0))
    index, slot, allow, stream = (more.pop(name, None) for name in ("index", "slot", "allow", "stream"))
    flags, threads, probs = more.pop("flags", 0), more.pop("threads", 1), more.pop("probs", False)
    kind = kind_of(logits)
    given = logits
    logits, code = kind.logits(logits, dtype_code(more.pop("dtype", None)))
    workspace = None
    requests, flags = _requests(kind, logits, index, slot, flags, more)
    if kind.gpu(logits):
        params, index, slot, stream, workspace = _on_gpu(kind, logits, params, index, slot, stream, requests)
        allow = kind.beside(allow)
    if out is not None and out_dtype is not None:
        raise ValueError("out_dtype is for outputs that raffle makes: out has a dtype already")
    made, data, data_code = out, out, -1
    if out is None and wants_out:
        if out_dtype is not None:
            name = _dtype_name(out_dtype)
        else:  # the logits' own, or bits as they are
            name = kind.dtype(given) if code < 0 or given is not logits else "uint16"
        made = kind.empty(logits, (*_result_shape(kind, logits, index), kind.shape(logits)[-1]), name)
    if made is not None:
        data, data_code = kind_of(made).logits(made, code if out is None and out_dtype is None else -1)
    row_flags = kind.empty(logits, _result_shape(kind, logits, index), "uint32") if return_flags else None
    _core.rows(logits, params, requests, index, slot, allow, None, row_flags, workspace, flags, code, probs, threads, stream, data,
               kept, kept_list, kept_count, data_code, is_mask, log)
    if out is None and made is not None:
        made = kind.finish(given, made)
    return (made, row_flags) if return_flags else made


def _dtype_name(dtype: Any) -> str:
    name = dtype_name(dtype)
    name = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}.get(name, name)
    if name != "float32" and name not in _CODES:
        raise ValueError(f"out_dtype is {dtype!r}: must be 'float32', 'float16' or 'bfloat16'")
    return name


def softmax(logits: Array, temperature: Floats = 1.0, top_k: Integers = 0, top_p: Floats = 1.0, min_p: Floats = 0.0, *,
            log: bool = False, out: Optional[Array] = None, out_dtype: Any = None, return_flags: bool = False,
            **words: "Unpack[Rows]") -> Any:
    """The probabilities that sample() draws from. Of probabilities (probs=True): renormalised after the filters.

    Without filters that is softmax(logits / temperature); with top_k, top_p, min_p or a mask the survivors share 1 and
    the others are 0. Temperature 0 gives 1 at the best token. A row without any token is 0 everywhere.

    log:       natural logarithms instead; -inf where the probability is 0.
    out:       [rows, vocab] to write to; may be the logits themselves.
    out_dtype: 'float32', 'float16' or 'bfloat16' of a new output; by default that of the logits.
    words:     as in sample(): index, slot, allow, flags, threads, dtype, probs, stream, seed, position, and raffle.More.

    >>> import numpy, raffle
    >>> logits = numpy.log(numpy.array([[0.5, 0.25, 0.125, 0.125]], numpy.float32))
    >>> raffle.softmax(logits, top_k=2).round(4)
    array([[0.6667, 0.3333, 0.    , 0.    ]], dtype=float32)
    """
    return _rows(logits, (temperature, top_k, top_p, min_p), words, out=out, out_dtype=out_dtype, wants_out=True,
                 return_flags=return_flags, log=log)


def mask(logits: Array, temperature: Floats = 1.0, top_k: Integers = 0, top_p: Floats = 1.0, min_p: Floats = 0.0, *,
         out: Optional[Array] = None, return_flags: bool = False, **words: "Unpack[Rows]") -> Any:
    """The logits, with -inf (probabilities: 0) outside the kept set, which kept() tells. `words` are as in softmax().

    >>> import numpy, raffle
    >>> raffle.mask(numpy.array([[2.0, 1.0, 3.0, 0.0]], numpy.float32), top_k=2)
    array([[  2., -inf,   3., -inf]], dtype=float32)
    """
    return _rows(logits, (temperature, top_k, top_p, min_p), words, out=out, wants_out=True, return_flags=return_flags, is_mask=True)


def kept(logits: Array, temperature: Floats = 1.0, top_k: Integers = 0, top_p: Floats = 1.0, min_p: Floats = 0.0,
         **words: "Unpack[Rows]") -> Any:
    """The tokens that masks and filters leave, as int32 words with a bit per token: what `allow` takes. `words` are as in softmax().

    Kept is every token that is allowed, has a logit above -inf (probs=True: a probability above 0) and was cut by no filter; of a
    greedy row the one token. sample() draws from these, but some of them may have no chance: finite logits beside +inf, and
    tokens so unlikely that they hold no ticket, as one 30 below the best at temperature 1. Filters cut these as any others.

    >>> import numpy, raffle
    >>> raffle.kept(numpy.array([[2.0, 1.0, 3.0, 0.0]], numpy.float32), top_k=2)
    array([[5]], dtype=int32)
    >>> row = numpy.array([[2.0, 1.0, numpy.inf, -numpy.inf]], numpy.float32)
    >>> raffle.kept(row), raffle.kept(row, top_p=0.99), raffle.softmax(row)
    (array([[7]], dtype=int32), array([[4]], dtype=int32), array([[0., 0., 1., 0.]], dtype=float32))
    """
    kind = kind_of(logits)
    shape = _result_shape(kind, logits, words.get("index"))
    bits = kind.empty(kind.logits(logits, -1)[0], (*shape, (_vocab(kind, logits) + 31) // 32), "int32")
    _rows(logits, (temperature, top_k, top_p, min_p), words, kept=bits, is_mask=True)
    return kind.finish(logits, bits)


def kept_list(logits: Array, room: int, temperature: Floats = 1.0, top_k: Integers = 0, top_p: Floats = 1.0,
              min_p: Floats = 0.0, **words: "Unpack[Rows]") -> Tuple[Any, Any]:
    """(ids, count): the first `room` ids of the kept tokens, ascending, and how many are kept. kept() says which these are.

    Entries of `ids` beyond a row's count are undefined. `words` are as in softmax().

    >>> import numpy, raffle
    >>> ids, count = raffle.kept_list(numpy.array([[2.0, 1.0, 3.0, 0.0]], numpy.float32), room=3, top_k=2)
    >>> ids[0, :2], count
    (array([0, 2], dtype=int32), array([2], dtype=int32))
    """
    if isinstance(room, bool) or not hasattr(room, "__index__"):
        raise TypeError(f"room is {room!r}: must be a number of ids")
    if room < 1:
        raise ValueError(f"room is {room}: must be at least 1")
    kind = kind_of(logits)
    inner = kind.logits(logits, -1)[0]
    shape = _result_shape(kind, logits, words.get("index"))
    ids, count = kind.empty(inner, (*shape, room), "int32"), kind.empty(inner, shape, "int32")
    _rows(logits, (temperature, top_k, top_p, min_p), words, kept_list=ids, kept_count=count, is_mask=True)
    return kind.finish(logits, ids), kind.finish(logits, count)
