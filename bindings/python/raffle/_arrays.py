"""The packages that arrays come from: how each makes outputs of its own kind, and for GPUs workspace and stream.

Nothing is imported here that the caller has not imported: an array of a package means that the package is there.
"""
import array
import contextlib
import functools
import importlib
import sys
from typing import Any, Dict, Iterator

from . import _core

_CODES = {"float16": 1, "f16": 1, "bfloat16": 2, "bf16": 2}
CPU = 1  # DLPack's number of the CPU
_TYPECODES = {"int32": "i", "uint32": "I", "float32": "f"}


def dtype_name(dtype: Any) -> str:
    """'float32' of a name, a numpy dtype or type, a torch dtype."""
    return dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(
        dtype).rsplit(".", 1)[-1]


def dtype_code(dtype: Any) -> int:
    """What 16-bit integers are to be read as: the C library's number, or -1 for logits that have a type."""
    if dtype is None:
        return -1
    code = _CODES.get(dtype_name(dtype))
    if code is None:
        raise ValueError(f"dtype is {dtype!r}: must be 'float16' or 'bfloat16', for logits handed over as 16-bit integers")
    return code


def _numpy_dtype(name: str) -> Any:
    """numpy knows no bfloat16; where logits have it, ml_dtypes gave it to them."""
    if name != "bfloat16":
        return name
    if "ml_dtypes" not in sys.modules:
        raise TypeError("numpy has no bfloat16: import ml_dtypes, or choose another out_dtype")
    return sys.modules["ml_dtypes"].bfloat16


def _last(shape: Any, rows: Any) -> int:
    """m of logprob_token_ids [m] or [rows, m], where results have the shape `rows`."""
    if not 1 <= len(shape) <= 2:
        raise ValueError(f"logprob_token_ids has {len(shape)} axes: must be [m] or [rows, m]")
    if len(shape) == 2 and (not rows or shape[0] not in (1, rows[0])):
        raise ValueError(f"logprob_token_ids has {shape[0]} rows: the logits have {rows[0] if rows else 'no such axis'}")
    return int(shape[-1])


class Kind:
    """Arrays of no package that we know: outputs are array.array on the CPU, and cannot be made on a GPU."""

    asks = False  #: whether the extension finds the current stream itself
    quick: Any = None  #: where _core.quick can do the usual call on a GPU: (empty_like, the words for new_empty() of tokens)

    @functools.cached_property
    def workspaces(self) -> Any:
        """Those of calls on a GPU."""
        return _core.Workspaces(self, True)

    def logits(self, logits: Any, code: Any) -> Any:
        return logits, code

    def gpu(self, logits: Any) -> Any:
        """Whether these logits are on a GPU."""
        return _core.inspect(logits)[1] != CPU

    def shape(self, logits: Any) -> Any:
        return _core.inspect(logits)[0]

    def dtype(self, logits: Any) -> Any:
        """The name of the logits' dtype."""
        raise TypeError("logits are of a package that raffle does not know: give out=")

    def empty(self, logits: Any, shape: Any, dtype: Any) -> Any:
        if self.gpu(logits):
            raise self._unknown("give out=")
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(logits, "__dlpack__"):
            return numpy.empty(shape, dtype)
        if len(shape) > 1 or dtype not in _TYPECODES:
            raise TypeError("without numpy only outputs with one axis can be made for these logits: give out=")
        return array.array(_TYPECODES[dtype], bytes(4 * (shape[0] if shape else 1)))

    @staticmethod
    def _unknown(advice: str) -> Exception:
        """Why nothing can be made beside logits on a GPU. First of all there may be none."""
        there, why = _core.cuda()
        return TypeError(f"logits are on a GPU and of a package that raffle does not know: {advice}") if there else RuntimeError(why)

    def integers(self, logits: Any, values: Any, shape: Any) -> Any:
        """int32 [..., m] of the logits' kind out of [m] or [..., m], for every row of `shape`."""
        numpy = sys.modules.get("numpy")
        if numpy is None:
            raise TypeError("logprob_token_ids of these logits need numpy")
        found = numpy.asarray(values)
        if found.dtype.kind not in "iu" and found.size:
            raise TypeError(f"logprob_token_ids has dtype {found.dtype}: must be integers")
        found = found.clip(-1, 2**31 - 1).astype("int32")  # what no vocabulary has stays out of it
        return numpy.ascontiguousarray(numpy.broadcast_to(found, (*shape, _last(found.shape, shape))))

    def tokens(self, logits: Any) -> Any:
        """A new output of sample(): the usual case of empty(), which calls are quicker for."""
        return self.empty(logits, self.shape(logits)[:-1], "int32")

    def finish(self, logits: Any, out: Any) -> Any:
        """The output as the caller's kind."""
        return out

    def cast(self, value: Any, dtype: Any) -> Any:
        """A parameter on a GPU as the dtype that the library reads."""
        return value

    def beside(self, value: Any) -> Any:
        """An array that lies beside logits on a GPU, as the extension can look at it."""
        return value

    def zeros(self, logits: Any, count: Any, dtype: Any) -> Any:
        raise self._unknown("use torch or CuPy arrays")

    def stream(self, logits: Any) -> Any:
        """The stream to work on, or None to ask by DLPack."""
        return None

    def on(self, logits: Any, stream: Any) -> Any:
        """A context in which allocations belong to work on `stream` of the logits' GPU; None: the current one."""
        return contextlib.nullcontext()

    def workspace(self, logits: Any, plan: Any, stream: Any) -> Any:
        """A new one of a plan, for work on `stream`; None: the current one. The extension keeps it for later calls, but not one
        that is made in operator() or while a graph is captured."""
        with self.on(logits, stream):
            return self.zeros(logits, plan.device_bytes, "uint8")

    @contextlib.contextmanager
    def operator(self) -> Iterator[None]:
        """While a registered operator runs. What it allocates may come from a pool of the compiler's, which wants everything
        back when the operator returns (inductor's CUDA graphs, in their warm-up): so nothing is kept then."""
        _core.inside(True)
        try:
            yield
        finally:
            _core.inside(False)


class Shaped(Kind):
    """Arrays that tell shape and dtype themselves."""

    def shape(self, logits: Any) -> Any:
        return logits.shape

    def dtype(self, logits: Any) -> Any:
        return dtype_name(logits.dtype)


class Numpy(Shaped):
    def __init__(self) -> None:
        self._empty = sys.modules["numpy"].empty
        self._int32 = sys.modules["numpy"].dtype("int32")  # reading the name takes longer than making the array

    def logits(self, logits: Any, code: Any) -> Any:
        if logits.dtype.num > 23 and logits.dtype.name == "bfloat16":  # of ml_dtypes: numpy does not export it
            return logits.view("uint16"), 2
        return logits, code

    def gpu(self, logits: Any) -> Any:
        return False

    def tokens(self, logits: Any) -> Any:
        return self._empty(logits.shape[:-1], self._int32)

    def empty(self, logits: Any, shape: Any, dtype: Any) -> Any:
        return self._empty(shape, _numpy_dtype(dtype))


class Torch(Shaped):
    def __init__(self) -> None:
        torch = self._torch = sys.modules["torch"]
        self._dtypes = {"int32": torch.int32, "uint32": torch.int32, "float32": torch.float32, "uint64": torch.int64,
                        "uint8": torch.uint8, "float16": torch.float16, "bfloat16": torch.bfloat16, "uint16": torch.int16}
        self._empty = torch.empty
        self._int32 = torch.int32
        self.asks = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        self.quick = (torch.empty_like, {"dtype": torch.int32}) if self.asks else None
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # an address, without the objects around it

    def gpu(self, logits: Any) -> Any:
        if logits.is_cuda:
            return True
        if not logits.is_cpu:
            raise ValueError(f"logits are on {logits.device}: must be on the CPU or a CUDA GPU")
        return False

    def tokens(self, logits: Any) -> Any:
        shape = logits.shape  # asked once: each question to a tensor takes a tenth of a microsecond, len() five
        if len(shape) != 2:
            return self.empty(logits, shape[:-1], "int32")
        return logits.new_empty(shape[0], dtype=self._int32)

    def empty(self, logits: Any, shape: Any, dtype: Any) -> Any:
        if dtype not in self._dtypes:  # that of the logits, which the extension would refuse too
            raise TypeError(f"logits: dtype is {dtype}, must be float32, float16 or bfloat16")
        return self._empty(shape, dtype=self._dtypes[dtype], device=logits.device)

    def integers(self, logits: Any, values: Any, shape: Any) -> Any:
        try:
            found = self._torch.as_tensor(values)
        except RuntimeError as error:  # what torch says of lists of no numbers, or numbers of no dtype
            raise TypeError(f"logprob_token_ids must be integers: {str(error).splitlines()[0]}") from None
        if (found.is_floating_point() or found.is_complex()) and found.numel():
            raise TypeError(f"logprob_token_ids has dtype {found.dtype}: must be integers")
        found = self._whole(found, "logprob_token_ids").clamp(-1, 2**31 - 1).to(self._int32).to(logits.device, non_blocking=True)
        return found.expand(*shape, _last(found.shape, shape)).contiguous()

    def _whole(self, value: Any, name: str) -> Any:
        """A tensor that torch may work on: it does not look itself whether the storage is still there."""
        if value.numel() and not value.data_ptr():
            raise ValueError(f"{name} has no memory: it was freed, or never there")
        return value

    def cast(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, self._torch.Tensor) and value.is_cuda:
            wanted = self._dtypes[dtype]
            if value.dtype == wanted or (dtype == "uint64" and str(value.dtype) == "torch.uint64"):
                return value if value.ndim == 1 and value.is_contiguous() else value.reshape(-1).contiguous()
            if value.is_floating_point() and dtype != "float32":
                raise TypeError(f"a parameter has dtype {value.dtype}: must be {dtype}")
            value = self._whole(value, "a parameter")
            if dtype == "int32":  # beyond 32 bits means what the largest means
                value = value.clamp(-(2**31), 2**31 - 1)
            return value.to(wanted).reshape(-1)
        return value

    def zeros(self, logits: Any, count: Any, dtype: Any) -> Any:
        return self._torch.zeros(count, dtype=self._dtypes[dtype], device=logits.device)

    def stream(self, logits: Any) -> Any:
        return None if self.asks else self._current(logits)

    def _current(self, logits: Any) -> Any:
        if self._raw_stream is not None:
            return self._raw_stream(logits.get_device())
        return self._torch.cuda.current_stream(logits.device).cuda_stream

    def on(self, logits: Any, stream: Any) -> Any:
        if stream is None or stream == self._current(logits):
            return contextlib.nullcontext()
        return self._torch.cuda.stream(self._torch.cuda.ExternalStream(stream, device=logits.device))


class Cupy(Shaped):
    def __init__(self) -> None:
        self._cupy = sys.modules["cupy"]

    def gpu(self, logits: Any) -> Any:
        return True

    def empty(self, logits: Any, shape: Any, dtype: Any) -> Any:
        with logits.device:
            return self._cupy.empty(shape, dtype)

    def cast(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, self._cupy.ndarray):
            if value.dtype.kind == "f" and dtype != "float32":
                raise TypeError(f"a parameter has dtype {value.dtype}: must be {dtype}")
            if dtype == "int32":
                value = value.clip(-(2**31), 2**31 - 1)
            return self._cupy.ascontiguousarray(value.astype(dtype, copy=False)).reshape(-1)
        return value

    def integers(self, logits: Any, values: Any, shape: Any) -> Any:
        with logits.device:
            found = self._cupy.asarray(values)
            if found.dtype.kind not in "iu" and found.size:
                raise TypeError(f"logprob_token_ids has dtype {found.dtype}: must be integers")
            found = found.clip(-1, 2**31 - 1).astype("int32")
            return self._cupy.ascontiguousarray(self._cupy.broadcast_to(found, (*shape, _last(found.shape, shape))))

    def zeros(self, logits: Any, count: Any, dtype: Any) -> Any:
        with logits.device:
            return self._cupy.zeros(count, dtype)

    def on(self, logits: Any, stream: Any) -> Any:
        return contextlib.nullcontext() if stream is None else self._cupy.cuda.ExternalStream(stream, logits.device.id)

    def stream(self, logits: Any) -> Any:
        return self._cupy.cuda.get_current_stream().ptr


class Jax(Shaped):
    """jax.Array. Its arrays do not change, so outputs are made elsewhere and handed over: on the CPU by numpy, on a GPU
    by torch or CuPy, whichever is there; DLPack orders the streams.

    JAX takes the stream of __dlpack__ for a CUDA handle, whatever it is: 1 and 2, the default streams, are handles; -1, "do
    not order", is not, and ends with CUDA_ERROR_INVALID_HANDLE. So the extension, which says -1 to look at an array, gets
    no array of JAX on a GPU."""

    def __init__(self) -> None:
        self._jax = sys.modules["jax"]
        self._there: Any = None

    def _gpu_kind(self) -> Kind:
        if self._there is None:
            for name, kind in (("torch", Torch), ("cupy", Cupy)):
                try:
                    importlib.import_module(name)
                except ImportError:
                    continue
                self._there = _the(kind)
                return self._there  # type: ignore[no-any-return]
            raise TypeError("JAX arrays on a GPU need torch or CuPy beside them, to make the outputs")
        return self._there  # type: ignore[no-any-return]

    def _is_ours(self, value: Any) -> bool:
        return isinstance(value, self._jax.Array)

    def _far(self, value: Any) -> bool:
        if not self._is_ours(value):
            return False
        if isinstance(value, self._jax.core.Tracer):
            raise TypeError("an array of JAX is being traced, and has no values: call raffle outside of jit, vmap and grad, or by "
                            "jax.pure_callback")
        if value.is_deleted():
            raise ValueError("an array of JAX has no memory: it was deleted")
        return bool(value.__dlpack_device__()[0] != CPU)

    def _bridge(self, value: Any) -> Any:
        module = sys.modules["torch" if isinstance(self._gpu_kind(), Torch) else "cupy"]
        return module.from_dlpack(value)

    def beside(self, value: Any) -> Any:
        return self._bridge(value) if self._far(value) else value

    def logits(self, logits: Any, code: Any) -> Any:
        return self.beside(logits), code

    def gpu(self, logits: Any) -> Any:
        return not self._is_ours(logits)  # those on the CPU stay what they are

    def empty(self, logits: Any, shape: Any, dtype: Any) -> Any:
        if self.gpu(logits):
            return self._gpu_kind().empty(logits, shape, dtype)
        return sys.modules["numpy"].empty(shape, _numpy_dtype(dtype))  # JAX needs numpy, so it is there

    def integers(self, logits: Any, values: Any, shape: Any) -> Any:
        values = self.beside(values)
        return self._gpu_kind().integers(logits, values, shape) if self.gpu(logits) else super().integers(logits, values, shape)

    def cast(self, value: Any, dtype: Any) -> Any:
        if self._is_ours(value) and value.ndim:
            value = self._bridge(value) if self._far(value) else sys.modules["numpy"].asarray(value)
        return self._gpu_kind().cast(value, dtype)

    def zeros(self, logits: Any, count: Any, dtype: Any) -> Any:
        return self._gpu_kind().zeros(logits, count, dtype)

    def stream(self, logits: Any) -> Any:
        return self._gpu_kind().stream(logits)

    def on(self, logits: Any, stream: Any) -> Any:
        return self._gpu_kind().on(logits, stream)

    @property
    def workspaces(self) -> Any:
        return self._gpu_kind().workspaces

    def finish(self, logits: Any, out: Any) -> Any:
        if isinstance(out, sys.modules["numpy"].ndarray):
            return self._jax.numpy.asarray(out)
        return self._jax.dlpack.from_dlpack(out)


_kinds: Dict[type, Kind] = {}  # of the types of arrays that were seen
quick_spaces: Dict[type, Any] = {}  # of those whose kind is quick: its workspaces
_made: Dict[type, Kind] = {}
_OTHER = Kind()


def _the(kind: Any) -> Kind:
    """The one of its class, also when threads ask for it at once: it has what is kept for later calls."""
    return _made.get(kind) or _made.setdefault(kind, kind())


def kind_of(logits: Any) -> Kind:
    """The kind of an array, found once for each type."""
    kind = _kinds.get(type(logits))
    return _kind_find(logits) if kind is None else kind


def _kind_find(logits: Any) -> Kind:
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(logits, masked.MaskedArray):
        raise TypeError("logits are a masked array, whose mask raffle would not see: give logits.filled(-inf), or allow=")
    for module, name, kind in (("torch", "Tensor", Torch), ("numpy", "ndarray", Numpy), ("cupy", "ndarray", Cupy),
                               ("jax", "Array", Jax)):
        there = getattr(sys.modules.get(module), name, None)
        if there is not None and isinstance(logits, there):
            if len(_kinds) >= 64:  # of a program that makes types as it goes
                _kinds.clear()
                quick_spaces.clear()
            _kinds[type(logits)] = made = _the(kind)
            if made.quick is not None:
                quick_spaces[type(logits)] = made.workspaces
            return made
    return _OTHER
