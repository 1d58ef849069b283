"""Sampler: the parameters and positions of many requests, for a decode loop."""
import array
import secrets
from typing import Any, Dict, List, Optional, Tuple

from . import _core
from ._api import Array, Integers, _outputs
from ._arrays import kind_of

_NAMES = ("temperature", "top_k", "top_p", "min_p", "seed", "position")
_DTYPES = {"temperature": "float32", "top_k": "int32", "top_p": "float32", "min_p": "float32", "seed": "uint64",
           "position": "uint64"}
_DEFAULTS: Dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "position": 0}
_TYPECODES = {"float32": "f", "int32": "i", "uint64": "Q"}


class Sampler:
    """What requests ask for, kept in slots from their first token to their last.

    A request gets a slot with add() and keeps it until remove(). Each sample() draws a token for some of the slots and
    advances their positions by one: on a GPU in the same stream, so that a captured graph goes on by itself.

    slots:   how many requests can be there at once.
    like:    an array of the device that logits will be on; None: the CPU. (On GPUs torch or CuPy.)
    flags:   as in sample(), for all slots.
    threads: CPU: how many threads share the rows of a call.

    >>> import numpy, raffle
    >>> sampler = raffle.Sampler(slots=8)
    >>> tea, coffee = sampler.add(temperature=0.7, top_p=0.9, seed=1), sampler.add(temperature=0)
    >>> logits = numpy.zeros((2, 1000), numpy.float32)
    >>> tokens = [sampler.sample(logits, [tea, coffee]).tolist() for step in range(3)]
    >>> [t[1] for t in tokens], sampler.get(tea)["position"]
    ([0, 0, 0], 3)
    >>> sampler.remove(coffee)
    """

    def __init__(self, slots: int, *, like: Optional[Array] = None, flags: int = 0, threads: int = 1) -> None:
        if slots < 1:
            raise ValueError(f"slots is {slots}: must be at least 1")
        self.slots, self.flags, self.threads = slots, flags, threads
        self._kind = None if like is None else kind_of(like)
        self._on_gpu = self._kind is not None and self._kind.gpu(like)
        self._free: List[int] = list(range(slots - 1, -1, -1))
        self._used = bytearray(slots)
        self._like = like[:0] if like is not None and self._on_gpu else None  # its device, not its memory
        self._arrays = {name: self._array(dtype) for name, dtype in _DTYPES.items()}
        self._params = tuple(self._arrays[name] for name in _NAMES)
        self._workspaces: Dict[Any, Any] = {}

    def _array(self, dtype: str) -> Any:
        if not self._on_gpu:
            return array.array(_TYPECODES[dtype], bytes(self.slots * (8 if dtype == "uint64" else 4)))
        assert self._kind is not None
        return self._kind.zeros(self._like, self.slots, dtype)

    def add(self, **params: Any) -> int:
        """A slot for a new request: temperature, top_k, top_p, min_p, seed, position, as in sample(). Without a seed
        it gets a random one."""
        if not self._free:
            raise ValueError(f"all {self.slots} slots are taken: remove() a request first")
        slot = self._free[-1]
        self.set(slot, **{**_DEFAULTS, "seed": secrets.randbits(64), **params}, _new=True)
        self._free.pop()
        self._used[slot] = 1
        return slot

    def set(self, slot: int, *, _new: bool = False, **params: Any) -> None:
        """Changes parameters of a request that is there."""
        if not _new:
            self._check(slot)
        for name, value in params.items():
            if name not in _DTYPES:
                raise TypeError(f"no such parameter: {name}")
            params[name] = self._value(name, value)
        for name, value in params.items():
            self._arrays[name][slot] = value

    def _value(self, name: str, value: Any) -> Any:
        """One checked value, as the arrays take it."""
        if isinstance(value, bool) or not hasattr(value, "__index__" if _DTYPES[name] != "float32" else "__float__"):
            raise TypeError(f"{name} is {value!r}: must be a number")
        if _DTYPES[name] == "float32":
            value = float(value)
            if value != value or (name == "temperature" and value < 0):
                raise ValueError(f"{name} is {value}: must be {'0 or more' if name == 'temperature' else 'a number'}")
            return value
        value = value.__index__()
        if _DTYPES[name] == "int32":
            return max(-(2**31), min(2**31 - 1, value))
        if not -(2**63) <= value < 2**64:
            raise ValueError(f"{name} is {value}: must be within 64 bits")
        value %= 2**64
        if self._on_gpu and getattr(self._arrays[name], "is_cuda", False) and value >= 2**63:
            value -= 2**64  # torch holds the bits in int64
        return value

    def remove(self, slot: int) -> None:
        """The request is done: its slot is free for another."""
        self._check(slot)
        self._used[slot] = 0
        self._free.append(slot)

    def get(self, slot: int) -> Dict[str, Any]:
        """A request's parameters and position: what add() takes to go on elsewhere. (On a GPU this waits.)"""
        self._check(slot)
        found = {name: self._arrays[name][slot] for name in _NAMES}
        found = {name: value.item() if hasattr(value, "item") else value for name, value in found.items()}
        return {name: value % 2**64 if _DTYPES[name] == "uint64" else value for name, value in found.items()}

    def _check(self, slot: int) -> None:
        if not 0 <= slot < self.slots or not self._used[slot]:
            raise ValueError(f"slot {slot} has no request")

    def _call(self, logits: Array, slot: Any, out: Any, return_flags: bool, stream: Any) -> Tuple[Any, ...]:
        kind = kind_of(logits)
        logits, code = kind.logits(logits, -1)
        on_gpu, workspace = kind.gpu(logits), None
        if on_gpu != self._on_gpu:
            raise ValueError(f"logits are on {'a GPU' if on_gpu else 'the CPU'}, the sampler is not: make it with like=logits")
        if on_gpu:
            slot = kind.cast(slot, "int32")
            stream = kind.stream(logits) if stream is None else stream
            plan = _core.plan(logits, code, -1, 0)
            workspace = self._workspaces.get(plan)
            if workspace is None:
                workspace = self._workspaces[plan] = kind.zeros(logits, plan.device_bytes, "uint8")
        elif isinstance(slot, (list, tuple)):
            slot = self._slots(slot)
        token, row_flags = _outputs(kind, logits, None, out, return_flags)
        return kind, logits, code, slot, token, row_flags, workspace, stream

    def _slots(self, slot: Any) -> Any:
        for s in slot:
            self._check(s)
        return slot

    def sample(self, logits: Array, slot: Optional[Integers] = None, *, allow: Optional[Array] = None,
               out: Optional[Array] = None, return_flags: bool = False, stream: Optional[int] = None) -> Any:
        """Draws a token for each row; row r belongs to slot[r] (None: to slot r). Then positions advance by one."""
        kind, inner, code, slot, token, row_flags, workspace, stream = self._call(logits, slot, out, return_flags, stream)
        if slot is None:
            slot = self._first(kind.shape(inner))
        _core.sample(inner, self._params, None, slot, allow, token, row_flags, workspace, self.flags, code, 0, self.threads, stream,
                     True)
        if out is None:
            token = kind.finish(logits, token)
        return (token, row_flags) if return_flags else token

    def prepare(self, logits: Array, slot: Optional[Integers] = None, *, allow: Optional[Array] = None,
                out: Optional[Array] = None, stream: Optional[int] = None) -> _core.Call:
        """A call to run at every step, for logits that are always in the same memory; see prepare()."""
        kind, inner, code, slot, token, row_flags, workspace, stream = self._call(logits, slot, out, False, stream)
        if slot is None:
            slot = self._first(kind.shape(inner))
        return _core.prepare(inner, self._params, None, slot, allow, token, row_flags, workspace, self.flags, code, 0,
                             self.threads, stream, True)

    def _first(self, shape: Any) -> Any:
        """Slots 0 .. rows - 1."""
        rows = shape[0] if len(shape) == 2 else 1
        if rows > self.slots:
            raise ValueError(f"logits have {rows} rows: the sampler has {self.slots} slots")
        return None if rows == self.slots else list(range(rows))
