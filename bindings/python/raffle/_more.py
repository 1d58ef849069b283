"""What requests can ask for beyond temperature, top_k, top_p and min_p, and what can be told about a row."""
import sys
from itertools import zip_longest
from operator import index
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypedDict, Union

from . import _core

Array = Any  # numpy, torch, CuPy, JAX, DLPack, buffers
Floats = Union[float, Sequence[float], Array]
Integers = Union[int, Sequence[int], Array]
Ids = Union[Sequence[int], Array]
Bias = Dict[int, float]
if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack


class More(TypedDict, total=False):
    """Keywords of sample(), prepare(), verify(), softmax(), mask(), kept(), kept_list(), explain() and Sampler.add().

    A number is for all rows, a list or array of numbers has an entry per row; so has a list of lists of ids. (A Sampler's
    request has one value of each.) docs/sampling.md has each formula.

    >>> import numpy, raffle
    >>> logits = numpy.array([[2.0, 1.5, 1.5, 0.5], [0.1, 0.3, 2.5, 2.4]], dtype=numpy.float32)
    >>> raffle.sample(logits, temperature=0, logit_bias={3: 9.0})
    array([3, 3], dtype=int32)
    >>> raffle.sample(logits, temperature=0, banned_token_ids=[[0], [2, 3]])
    array([1, 1], dtype=int32)
    >>> raffle.sample(logits, temperature=0, repetition_penalty=4.0, output_token_ids=[[0, 0], []])
    array([1, 2], dtype=int32)
    """

    logit_bias: Union[Bias, Sequence[Optional[Bias]]]  #: {id: what is added}; -inf bans
    allowed_token_ids: Union[Ids, Sequence[Optional[Ids]]]  #: only these
    banned_token_ids: Union[Ids, Sequence[Optional[Ids]]]  #: not these
    bad_words_token_ids: Union[Sequence[Ids], Sequence[Optional[Sequence[Ids]]]]  #: sequences that must not come about
    stop_token_ids: Union[Ids, Sequence[Optional[Ids]]]  #: not while the output is shorter than min_tokens
    min_tokens: Integers
    repetition_penalty: Floats  #: of tokens in prompt and output; above 1 discourages
    frequency_penalty: Floats  #: times the count in the output
    presence_penalty: Floats  #: of tokens in the output
    repeat_last_n: Integers  #: these three look at the last n tokens; 0: at all
    no_repeat_ngram_size: Integers  #: no n tokens in a row twice
    dry_multiplier: Floats
    dry_base: Floats
    dry_allowed_length: Integers
    dry_penalty_last_n: Integers
    dry_sequence_breaker_ids: Union[Ids, Sequence[Optional[Ids]]]
    top_n_sigma: Floats  #: logits within n standard deviations of the best
    epsilon_cutoff: Floats  #: probabilities of at least this
    eta_cutoff: Floats
    typical_p: Floats
    xtc_probability: Floats
    xtc_threshold: Floats
    min_tokens_to_keep: Integers  #: no filter leaves fewer
    prompt_token_ids: Union[Ids, Sequence[Ids]]  #: what penalties look at, a list for each row. (Sampler: set_prompt)
    output_token_ids: Union[Ids, Sequence[Ids]]  #: (Sampler: kept by sample and accept)


HISTORY = ("prompt_token_ids", "output_token_ids")
_DEPTHS = {"logit_bias": 1, "allowed_token_ids": 1, "banned_token_ids": 1, "stop_token_ids": 1, "dry_sequence_breaker_ids": 1,
           "bad_words_token_ids": 2, "prompt_token_ids": 1, "output_token_ids": 1}  # of a value for one row; numbers: 0
_HISTORY_MAX = 1 << 20  # RAFFLE_HISTORY_MAX
REQUEST_FLAGS = 256 | 512 | 1024  # those that only a request can have
DIALECTS = {"vllm": 0, "openai": 1, "llama.cpp": 2}


def flags_check(flags: Any) -> None:
    """Raises where these cannot be flags of a batch. Which there are, the library knows."""
    try:
        whole = not isinstance(flags, bool) and index(flags) is not None
    except TypeError:
        whole = False
    if not whole:
        raise TypeError(f"flags is {flags!r}: must be an integer, as raffle.TOP_P_JOINT | raffle.TOP_K_EXACT")


def plain(value: Any) -> Any:
    """Arrays as lists."""
    return value.tolist() if hasattr(value, "tolist") else value


def _depth(value: Any) -> int:
    """How deep the lists of a value go: a number 0, a list of numbers 1. None has any depth."""
    if isinstance(value, (list, tuple, range)):
        first = next((v for v in value if v is not None), 0)
        return 1 if isinstance(first, (int, float)) else 1 + max(_depth(v) for v in value if v is not None)
    return len(value.shape) if hasattr(value, "shape") else int(isinstance(value, dict))


def _id(token: Any) -> int:
    """A key of logit_bias: a number, or one written out, as JSON has it."""
    try:
        return int(token) if isinstance(token, str) else index(token)
    except (TypeError, ValueError):
        raise TypeError(f"logit_bias has the key {token!r}: must be a token's id") from None


def ids(tokens: Any) -> List[int]:
    """Tokens of a history: one, or any sequence of them."""
    tokens = plain(tokens)
    if isinstance(tokens, int):
        return [tokens]
    if not hasattr(tokens, "__iter__"):
        raise TypeError(f"tokens must be ids, not {type(tokens)}")
    return list(tokens)


def word(name: str, value: Any) -> Any:
    """One request's value as the extension takes it."""
    value = plain(value)
    if name == "logit_bias":
        if not isinstance(value, dict):
            raise TypeError(f"logit_bias is {value!r}: must be a dictionary of ids and what is added to their logits")
        pairs = sorted((_id(token), added) for token, added in value.items())
        return [token for token, _ in pairs], [added for _, added in pairs]
    if name == "bad_words_token_ids":
        if _depth(value) != 2 and value:
            raise TypeError(f"bad_words_token_ids is {value!r}: must be a list of lists of ids")
        return [token for sequence in value for token in (*plain(sequence), -1)]
    return value


def words(more: Mapping[str, Any]) -> Dict[str, Any]:
    """One request's values as the extension takes them, without those that are None."""
    return {name: word(name, value) for name, value in more.items() if value is not None}


def _per_row(name: str, value: Any, rows: int) -> Any:
    """The rows' values, or None where one value is for all."""
    if _depth(value) <= _DEPTHS.get(name, 0):
        return None
    if isinstance(value, dict):
        raise TypeError(f"{name} is {value!r}: must be a number, or a list with a number for each row")
    if len(value) != rows:
        raise ValueError(f"{name} has {len(value)} entries: must be {rows}, one for each row")
    return value


def _texts(name: str, value: Any, rows: int, one_row: bool) -> List[List[int]]:
    """The rows' token ids; those of logits [vocab] are a list of their own."""
    texts = [value] if one_row and _depth(value) < 2 else value
    if _depth(texts) != 2 or len(texts) != rows:
        raise ValueError(f"{name} must be a list of ids for each of {rows} rows")
    return [plain(text) or [] for text in texts]


def requests_of(more: Mapping[str, Any], rows: int, one_row: bool, vocab: int, flags: int, what: str = "row") -> Tuple[Any, int]:
    """(what rows ask for, as the extension takes it, or None; flags of the batch)."""
    flags_check(flags)
    for name in more:
        if name not in More.__annotations__:
            raise TypeError(f"no such parameter: {name}")
    given: Dict[str, Any] = {name: plain(value) for name, value in more.items() if value is not None}
    if flags & REQUEST_FLAGS:
        given["flags"] = flags
        flags &= ~REQUEST_FLAGS
    if not given or not rows:
        return None, flags
    prompt, output = (_texts(name, given.pop(name), rows, one_row) if name in given else [] for name in HISTORY)
    longest = max((len(asked) + len(said) for asked, said in zip_longest(prompt, output, fillvalue=())), default=0)
    history_max = 1 << max(6, longest.bit_length()) if prompt or output else 0  # few plans for many lengths
    history_max = min(history_max, max(longest, _HISTORY_MAX))
    made = _core.Requests(rows, vocab, history_max)
    split = {name: _per_row(name, value, rows) for name, value in given.items()}
    common = words({name: given[name] for name, value in split.items() if value is None})
    split = {name: value for name, value in split.items() if value is not None}
    if not split:
        made.set(-1, common, -1, True)
    row = 0
    try:
        for row in range(rows if split else 0):
            made.set(row, {**common, **words({name: value[row] for name, value in split.items()})}, -1, True)
        for action, texts in (("prompt", prompt), ("accept", output)):
            for row, text in enumerate(texts):
                change(made, action, row, text)
    except ValueError as error:
        raise error_of(error, f"{what} {row}", row) from None
    return made, flags


def error_of(error: ValueError, name: str, row: Optional[int] = None) -> ValueError:
    """An error of a request that the extension was told of alone, and calls row 0, by the name that the caller has for it."""
    made = ValueError(str(error).replace("row 0" if name else " of row 0", name, 1))
    made.row = row  # type: ignore[attr-defined]
    return made


def change(requests: Any, action: str, slot: int, tokens: Any) -> int:
    """Tokens become the slot's prompt, or are accepted as its output. How many they are."""
    tokens = ids(tokens)
    requests.change(action, [slot], tokens or [0], [len(tokens)], max(len(tokens), 1))
    return len(tokens)


class Report(NamedTuple):
    """Natural logarithms of probabilities, and more about each row. What is not there is NaN, rank 0, token -1; what was not asked
    for is None."""

    logprob: Any = None  #: [rows] of the token
    rank: Any = None  #: [rows] of the token: 1 + the number of strictly larger logits
    entropy: Any = None  #: [rows] in nats
    top_tokens: Any = None  #: [rows, n] the likeliest, ties by id
    top_logprobs: Any = None  #: [rows, n]
    given_logprobs: Any = None  #: [rows, m] of logprob_token_ids
    given_ranks: Any = None  #: [rows, m]
    all_logprobs: Any = None  #: [rows, vocab]
    kept: Any = None  #: [rows, words] the tokens that masks and filters left: int32 words with a bit per token, as kept() gives them
    kept_list: Any = None  #: [rows, n] the first n ids of these, ascending; beyond a row's kept_count undefined
    kept_count: Any = None  #: [rows] how many they are


_MODES = {"raw_logprobs": 0, "tempered_logprobs": 1, "processed_logprobs": 2}


def _rectangular(name: str, values: Any) -> None:
    """Whether the rows of a list are of one length: packages of arrays say of others what only their authors understand."""
    if not isinstance(values, (list, tuple)):
        return
    lengths = [len(row) if isinstance(row, (list, tuple)) or bool(getattr(row, "shape", None)) else None for row in values]
    for length in lengths:
        if length != lengths[0]:
            one, other = ("no" if n is None else n for n in (lengths[0], length))
            raise ValueError(f"{name} has rows of {one} and of {other} ids: must be [m] or [rows, m]")


def report_make(kind: Any, logits: Any, shape: Tuple[int, ...], logprobs: Optional[int], ids: Any, mode: str, kept: Optional[int]) -> Any:
    """(the extension's argument, the Report of the same arrays), or (None, None) where nothing is asked for."""
    if logprobs is None and ids is None and kept is None:
        return None, None
    if mode not in _MODES:
        raise ValueError(f"logprobs_mode is {mode!r}: must be one of {', '.join(_MODES)}")
    if isinstance(logprobs, bool) or not (logprobs is None or hasattr(logprobs, "__index__")):
        raise TypeError(f"logprobs is {logprobs!r}: must be a number of tokens, or -1 for all")
    if not len(kind.shape(logits)):
        raise ValueError("logits have 0 axes: must be [rows, vocab] or [vocab]")
    count, vocab = index(logprobs or 0), kind.shape(logits)[-1]
    if not -1 <= count <= 1024:
        raise ValueError(f"logprobs is {count}: must be -1 to 1024")
    if isinstance(kept, bool) or not (kept is None or hasattr(kept, "__index__")):
        raise TypeError(f"kept is {kept!r}: must be a number of ids, or -1 for bits")
    room = None if kept is None else index(kept)
    if room is not None and not -1 <= room < 2**31:
        raise ValueError(f"kept is {room}: must be -1 for bits, or a number of ids")

    def empty(dtype: str, *last: int) -> Any:
        return kind.empty(logits, (*shape, *last), dtype)

    top = (empty("int32", count), empty("float32", count)) if count > 0 else (None, None)
    given: Any = None
    looked_up: Tuple[Any, Any] = (None, None)
    if ids is not None:
        _rectangular("logprob_token_ids", ids)
        given = kind.integers(logits, ids, shape)
        looked_up = (empty("float32", kind.shape(given)[-1]), empty("int32", kind.shape(given)[-1]))
    every = empty("float32", vocab) if count < 0 else None
    numbers = logprobs is not None or ids is not None
    of_token: Tuple[Any, Any, Any] = (empty("float32"), empty("int32"), empty("float32")) if numbers else (None, None, None)
    bits = empty("int32", (vocab + 31) // 32) if room == -1 else None
    listed = empty("int32", room) if room is not None and room > 0 else None
    told = Report(*of_token, top[0], top[1], looked_up[0], looked_up[1], every, bits, listed, None if room is None else empty("int32"))
    return (_MODES[mode], *told[:5], given, *told[5:]), told


def report_finish(kind: Any, logits: Any, told: Report) -> Report:
    """The report as arrays of the caller's kind."""
    return Report(*(None if array is None else kind.finish(logits, array) for array in told))
