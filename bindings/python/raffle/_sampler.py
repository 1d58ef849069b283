"""Sampler: what many requests ask for and have said, for a decode loop."""
import secrets
from operator import index
from typing import Any, Dict, List, Optional, Tuple

from . import _core
from ._api import _outputs, _result_shape
from ._arrays import kind_of, quick_spaces
from ._more import DIALECTS, HISTORY, Array, Integers, More, change, error_of, flags_check, ids, plain, report_finish, report_make, words
from ._verify import Verified
from ._verify import run as run_verify

_DTYPES = {"temperature": "float32", "top_k": "int32", "top_p": "float32", "min_p": "float32", "seed": "uint64",
           "position": "uint64"}
_DEFAULTS: Dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "position": 0}
_KNOWN = {*_DTYPES, *More.__annotations__, "flags", "logprobs"} - {*HISTORY}


class _OnCpu:
    """Slots in the extension's own memory: parameters, whatever else a request asks for, histories."""

    def __init__(self, slots: int, vocab: int, history_max: int) -> None:
        self.requests = _core.Requests(slots, vocab, history_max)

    def set(self, slot: int, given: Dict[str, Any], dialect: int, fresh: bool) -> None:
        self.requests.set(slot, words(given), dialect, fresh)

    def get(self, slot: int) -> Tuple[Any, ...]:
        return self.requests.get(slot)

    def copy(self, slot: int, new: int) -> None:
        self.requests.copy(slot, new)

    def change(self, action: str, slots: Any, tokens: Any, counts: Any, stride: int) -> None:
        self.requests.change(action, slots, tokens, counts, stride)

    def accept(self, slot: int, tokens: List[int]) -> int:
        """How many tokens were accepted."""
        before = len(self.history(slot)[0])
        change(self, "accept", slot, tokens)
        return len(self.history(slot)[0]) - before

    def move(self, slot: int, count: int) -> None:
        self.requests.set(slot, {"position": (self.requests.get(slot)[5] + count) % 2**64}, -1, False)

    def history(self, slot: int) -> Tuple[List[int], int]:
        return self.requests.history(slot)


class _OnGpu:
    """The same in memory of the logits' kind, changed in the current stream. Positions and histories are there alone, since
    draws move them; what requests ask for is here too. Lists have an array for each slot: its allocator knows the stream."""

    def __init__(self, slots: int, kind: Any, like: Any, vocab: int, history_max: int) -> None:
        self._kind, self._like = kind, like[:0]  # its device, not its memory
        self.requests = _core.Requests(slots, vocab, history_max, True)
        self.requests.place(kind.zeros(self._like, self.requests.device_bytes(-1), "uint8"), self._stream())

    def _stream(self) -> Any:
        return self._kind.stream(self._like)

    def _put(self, slot: int, with_position: bool) -> None:
        size = self.requests.device_bytes(slot)
        lists = self._kind.empty(self._like, (size,), "uint8") if size else None
        self.requests.put(slot, lists, with_position, self._stream())

    def set(self, slot: int, given: Dict[str, Any], dialect: int, fresh: bool) -> None:
        self.requests.idle(self._stream())
        self.requests.set(slot, words(given), dialect, fresh)
        self._put(slot, fresh or "position" in given)

    def get(self, slot: int) -> Tuple[Any, ...]:
        return (*self.requests.get(slot)[:5], self.requests.position(slot, self._stream()))

    def copy(self, slot: int, new: int) -> None:
        position = self.requests.position(slot, self._stream())
        self.requests.copy(slot, new)
        self.requests.set(new, {"position": position}, -1, False)
        self._put(new, True)

    def change(self, action: str, slots: Any, tokens: Any, counts: Any, stride: int) -> None:
        size = sum(len(each) for each in (slots, tokens, counts) if each is not None)
        self.requests.change(action, slots, tokens, counts, stride, self._kind.empty(self._like, (size,), "int32"), self._stream())

    def accept(self, slot: int, tokens: List[int]) -> int:
        change(self, "accept", slot, tokens)
        return tokens.index(-1) if -1 in tokens else len(tokens)

    def move(self, slot: int, count: int) -> None:
        self.requests.move(slot, count, self._stream())

    def history(self, slot: int) -> Tuple[List[int], int]:
        return self.requests.history(slot, self._stream())


class Sampler:
    """What requests ask for and have said, kept in slots from their first token to their last.

    A request gets a slot with add() and keeps it until remove(). Each sample() draws a token for some of the slots and
    moves them on by it: positions by one, and histories, which penalties look at, by the token. On a GPU that happens in
    the same stream, so that a captured graph goes on by itself, with whatever add() and set() have changed since.

    slots:   how many requests can be there at once.
    like:    an array of the device that logits will be on; None: the CPU.
    flags:   as in sample(), for all slots.
    threads: CPU: how many threads share the rows of a call.
    vocab:   how many tokens there are: lets add() check ids. With histories, logits must have as many.
    history_max: how many tokens a request may have, prompt and output; 0: no histories. Needs vocab.

    One thread at a time may use a sampler whose requests ask for more than temperature, top_k, top_p and min_p; on a GPU, one
    stream at a time any. There get(), history(), fork() and set() to None wait for the stream, and nothing else does, unless the
    lists of a request or a prompt take more than 256 KiB. A token that a history has no room for is left out, and rows of its slot have
    raffle.ROW_STATE from then on, until set_prompt() or reset(); on the CPU that is an error before anything is drawn.

    >>> import numpy, raffle
    >>> sampler = raffle.Sampler(slots=8, vocab=1000, history_max=100)
    >>> tea = sampler.add(temperature=0.7, top_p=0.9, seed=1, repetition_penalty=1.2)
    >>> coffee = sampler.add(temperature=0, presence_penalty=1.5, banned_token_ids=[0])
    >>> sampler.set_prompt(coffee, [5, 6])
    >>> logits = numpy.zeros((2, 1000), numpy.float32)
    >>> tokens = [sampler.sample(logits, [tea, coffee]).tolist() for step in range(3)]
    >>> [t[1] for t in tokens], sampler.history(coffee), sampler.get(tea)["position"]
    ([1, 2, 3], ([5, 6], [1, 2, 3]), 3)
    >>> sampler.truncate(coffee, 2)
    >>> sampler.history(coffee), sampler.get(coffee)["position"]
    (([5, 6], [1]), 1)
    >>> sampler.remove(coffee)
    """

    def __init__(self, slots: int, *, like: Optional[Array] = None, flags: int = 0, threads: int = 1, vocab: int = 0,
                 history_max: int = 0) -> None:
        for name, value in (("slots", slots), ("vocab", vocab), ("history_max", history_max)):
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"{name} is {value!r}: must be an integer")
            if value > 2**31 - 1:
                raise ValueError(f"{name} is {value}: must be at most 2147483647")
        if slots < 1:
            raise ValueError(f"slots is {slots}: must be at least 1")
        if vocab < 0 or history_max < 0 or (history_max and not vocab):
            raise ValueError(f"vocab is {vocab}, history_max {history_max}: histories need both, and no less than 1")
        flags_check(flags)
        self.slots, self.flags, self.threads = slots, flags, threads
        kind = None if like is None else kind_of(like)
        if kind is not None:
            like = kind.logits(like, -1)[0]
        self._on_gpu = bool(kind is not None and kind.gpu(like))
        self._pool: Any = _OnGpu(slots, kind, like, vocab, history_max) if self._on_gpu else _OnCpu(slots, vocab, history_max)
        self._requests = self._pool.requests
        self._after = 3 if history_max else 1  # positions advance; tokens are accepted
        self._free: List[int] = list(range(slots - 1, -1, -1))
        self._asked: List[Optional[Dict[str, Any]]] = [None] * slots  # what is not in the arrays; None: free
        self._workspaces = _core.Workspaces(kind, False) if self._on_gpu else None

    # ---- requests ----------------------------------------------------------------------------------------

    def add(self, *, dialect: Optional[str] = None, **params: Any) -> int:
        """A slot for a new request: temperature, top_k, top_p, min_p, seed, position, flags, and what raffle.More lists,
        with a value of each for this request. Without a seed it gets a random one.

        dialect: 'vllm', 'openai' or 'llama.cpp': names, ranges and defaults are then that engine's.

        >>> import raffle
        >>> sampler = raffle.Sampler(2, vocab=100, history_max=50)
        >>> slot = sampler.add(dialect="llama.cpp", temp=0.7, repeat_penalty=1.1)
        >>> sampler.get(slot)["top_k"]
        40
        >>> sampler.add(dialect="openai", frequency_penalty=3)
        Traceback (most recent call last):
        ValueError: frequency_penalty is 3: must be -2 to 2
        """
        slot = self._take()
        try:
            self._set(slot, {"seed": secrets.randbits(64), "position": 0, **params}, dialect, True)
        except BaseException as error:
            self._free.append(slot)
            if isinstance(error, ValueError):
                raise error_of(error, "") from None
            raise
        self._asked[slot] = {**({"dialect": dialect} if dialect else {}), **self._beside(params)}
        self._requests.use(slot, True)
        if self._after > 1:
            self._pool.change("reset", [slot], None, None, 0)
        return slot

    def _take(self) -> int:
        """A free slot, for one thread alone."""
        try:
            return self._free.pop()
        except IndexError:
            raise ValueError(f"all {self.slots} slots are taken: remove() a request first") from None

    def set(self, slot: int, **params: Any) -> None:
        """Changes what a request asks for. None turns a parameter off."""
        asked = self._check(slot)
        dialect = asked.get("dialect")
        asked = {**asked, **self._beside(params)}
        given = {name: value for name, value in params.items() if value is not None}
        fresh = len(given) < len(params)  # what was set before has to go: all over again
        if fresh:
            before = {**asked, **dict(zip(_DTYPES, self._pool.get(slot)))}
            before = {name: value for name, value in before.items() if name not in params and name != "dialect"}
            given = {**before, **given}
        try:
            self._set(slot, given, dialect, fresh)
        except ValueError as error:
            raise error_of(error, f"slot {slot}") from None
        self._asked[slot] = {name: value for name, value in asked.items() if value is not None}

    def _set(self, slot: int, given: Dict[str, Any], dialect: Optional[str], fresh: bool) -> None:
        if dialect is None:
            for name in given:
                if name not in _KNOWN:
                    raise TypeError(f"no such parameter: {name}")
        elif dialect not in DIALECTS:
            raise ValueError(f"dialect is {dialect!r}: must be one of {', '.join(DIALECTS)}")
        self._pool.set(slot, given, -1 if dialect is None else DIALECTS[dialect], fresh)

    @staticmethod
    def _beside(params: Dict[str, Any]) -> Dict[str, Any]:
        """Parameters that the arrays do not hold."""
        return {name: plain(value) for name, value in params.items() if name not in _DTYPES}

    def remove(self, slot: int) -> None:
        """The request is done: its slot is free for another."""
        self._check(slot)
        self._asked[slot] = None
        self._free.append(slot)
        self._requests.use(slot, False)

    def fork(self, slot: int, **params: Any) -> int:
        """A slot for a copy of a request: what it asks for, and has said. `params` differ, the seed above all."""
        asked = self._check(slot)
        new = self._take()
        try:
            self._pool.copy(slot, new)
            self._asked[new] = dict(asked)
            self.set(new, **params)
            if self._after > 1:
                self._pool.change("fork", [slot], [new], None, 1)
        except BaseException:
            self._asked[new] = None
            self._free.append(new)
            raise
        self._requests.use(new, True)
        return new

    def get(self, slot: int) -> Dict[str, Any]:
        """What a request asks for, and its position: what add() takes to go on elsewhere. (On a GPU this waits.)"""
        return {**self._check(slot), **dict(zip(_DTYPES, self._pool.get(slot)))}

    def _check(self, slot: int) -> Dict[str, Any]:
        if not hasattr(slot, "__index__"):
            raise TypeError(f"slot is {slot!r}: must be a number that add() gave")
        asked = self._asked[slot] if 0 <= slot < self.slots else None
        if asked is None:
            raise ValueError(f"slot {slot} has no request")
        return asked

    # ---- histories ---------------------------------------------------------------------------------------

    def _histories(self, slot: int) -> Any:
        self._check(slot)
        if self._after == 1:
            raise ValueError("there are no histories: make the sampler with vocab= and history_max=")
        return self._pool

    def set_prompt(self, slot: int, tokens: Any) -> None:
        """A request's prompt. Its history is then these tokens and nothing else."""
        try:
            change(self._histories(slot), "prompt", slot, tokens)
        except ValueError as error:
            raise error_of(error, f"slot {slot}") from None

    def accept(self, slot: int, tokens: Any) -> None:
        """Tokens of the output that were drawn elsewhere, as by verify(); the position advances with them. A -1 ends them."""
        try:
            accepted = self._histories(slot).accept(slot, ids(tokens))
        except ValueError as error:
            raise error_of(error, f"slot {slot}") from None
        self._pool.move(slot, accepted)

    def truncate(self, slot: int, count: int) -> None:
        """Takes back the last tokens of the output; the position goes back with them."""
        if isinstance(count, bool) or not hasattr(count, "__index__"):
            raise TypeError(f"count is {count!r}: must be an integer")
        if count < 0:
            raise ValueError(f"count is {count}: must be 0 or more")
        try:
            self._histories(slot).change("truncate", [slot], None, [count], 0)
        except ValueError as error:
            raise error_of(error, f"slot {slot}") from None
        self._pool.move(slot, -index(count))

    def reset(self, slot: int) -> None:
        """Empties a request's history and begins at position 0; what it asks for stays."""
        self._histories(slot).change("reset", [slot], None, None, 0)
        self._pool.set(slot, {"position": 0}, -1, False)

    def history(self, slot: int) -> Tuple[List[int], List[int]]:
        """(prompt, output): the tokens of a request. (On a GPU this waits.)"""
        tokens, prompt = self._histories(slot).history(slot)
        return tokens[:prompt], tokens[prompt:]

    # ---- drawing -----------------------------------------------------------------------------------------

    def _device(self, kind: Any, logits: Array, slot: Any, stream: Any) -> Tuple[Any, Any, Any]:
        """Slots, stream and workspaces as the logits' device wants them."""
        if kind.gpu(logits) != self._on_gpu:
            raise ValueError(f"logits are on {'the CPU' if self._on_gpu else 'a GPU'}, the sampler is not: make it with like=logits")
        if self._on_gpu:
            if slot is not None:
                slot = kind.cast(slot, "int32")
            if stream is None and not kind.asks:
                stream = kind.stream(logits)
        return slot, stream, self._workspaces

    def sample(self, logits: Array, slot: Optional[Integers] = None, *, allow: Optional[Array] = None,
               out: Optional[Array] = None, return_flags: bool = False, logprobs: Optional[int] = None,
               logprob_token_ids: Optional[Array] = None, logprobs_mode: str = "raw_logprobs", kept: Optional[int] = None,
               accept: bool = True, stream: Optional[int] = None) -> Any:
        """Draws a token for each row; row r belongs to slot[r] (None: to slot r). Then positions advance by one, and the
        tokens go to the histories, unless `accept` is False. Reports are as in raffle.sample()."""
        if (type(logits) in quick_spaces and self._on_gpu and not return_flags
                and slot is allow is logprobs is logprob_token_ids is kept is stream is None):
            token = _core.quick(self._workspaces, logits, None, self._requests, out, self.flags, self._after if accept else 1)
            if token is not NotImplemented:
                return token
        kind = kind_of(logits)
        inner, code = kind.logits(logits, -1)
        reports = logprobs is not None or logprob_token_ids is not None or kept is not None
        slot, stream, workspace = self._device(kind, inner, slot, stream)
        token, row_flags = _outputs(kind, inner, None, out, return_flags)
        report = told = None
        if reports:
            report, told = report_make(kind, inner, _result_shape(kind, inner, None), logprobs, logprob_token_ids, logprobs_mode, kept)
        _core.sample(inner, None, self._requests, None, slot, kind.beside(allow), token, row_flags, workspace, self.flags, code, 0,
                     self.threads, stream, report, self._after if accept else 1, 0)
        if out is None:
            token = kind.finish(logits, token)
        if told is not None:
            told = report_finish(kind, logits, told)
            return (token, row_flags, told) if return_flags else (token, told)
        return (token, row_flags) if return_flags else token

    def verify(self, logits: Array, drafts: Array, slot: Optional[Integers] = None, *, method: str = "rejection",
               draft_logits: Optional[Array] = None, draft_probs: Optional[Array] = None,
               draft_params: Optional[Dict[str, Any]] = None, allow: Optional[Array] = None, logprobs: Optional[int] = None,
               logprob_token_ids: Optional[Array] = None, logprobs_mode: str = "raw_logprobs", kept: Optional[int] = None,
               accept: bool = True, stream: Optional[int] = None) -> Verified:
        """raffle.verify() for drafts [requests, each] of these slots; request r belongs to slot[r] (None: to slot r). Then
        positions advance by as many tokens as each emits, which go to the histories, unless `accept` is False. For that no slot
        may be there twice, and histories need room for all drafts of a request and one token more; on a GPU for what it
        emits. Arrays in draft_params have an entry per request.

        >>> import numpy, raffle
        >>> sampler = raffle.Sampler(slots=2, vocab=4, history_max=100)
        >>> tea = sampler.add(temperature=0)
        >>> target = numpy.zeros((1, 3, 4), numpy.float32)
        >>> target[0, 0, 2] = target[0, 1, 1] = target[0, 2, 3] = 9
        >>> sampler.verify(target, numpy.array([[2, 0]]), [tea]).tokens
        array([[ 2,  1, -1]], dtype=int32)
        >>> sampler.history(tea), sampler.get(tea)["position"]
        (([], [2, 1]), 2)
        """

        def ask(kind: Any, logits: Any, slot: Any, stream: Any, requests: int) -> Tuple[Any, ...]:
            return (None, self._requests, self.flags, *self._device(kind, logits, slot, stream))

        return run_verify(logits, drafts, ask, flags=self.flags, first=None, draft_logits=draft_logits, draft_probs=draft_probs,
                          draft_params=draft_params, parent=None, method=method, thresholds=(0.0, 0.0, 0.0), slot=slot, allow=allow,
                          logprobs=logprobs, logprob_token_ids=logprob_token_ids, logprobs_mode=logprobs_mode, kept=kept,
                          threads=self.threads, dtype=None, stream=stream, after=self._after if accept else 0)

    def prepare(self, logits: Array, slot: Optional[Integers] = None, *, allow: Optional[Array] = None,
                out: Optional[Array] = None, logprobs: Optional[int] = None, logprob_token_ids: Optional[Array] = None,
                logprobs_mode: str = "raw_logprobs", kept: Optional[int] = None, stream: Optional[int] = None) -> _core.Call:
        """A call to run at every step, for logits that are always in the same memory; see raffle.prepare()."""
        kind = kind_of(logits)
        inner, code = kind.logits(logits, -1)
        slot, stream, _ = self._device(kind, inner, slot, stream)
        workspace = _core.Workspaces(kind, False) if self._on_gpu else None  # slots are there, which no other call may write to
        token, row_flags = _outputs(kind, inner, None, out, False)
        report, told = report_make(kind, inner, _result_shape(kind, inner, None), logprobs, logprob_token_ids, logprobs_mode, kept)
        return _core.prepare(inner, None, self._requests, None, slot, kind.beside(allow), token, row_flags, workspace, self.flags,
                             code, 0, self.threads, stream, report, self._after, token if told is None else (token, told))
