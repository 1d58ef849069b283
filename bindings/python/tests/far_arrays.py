"""Arrays of a GPU for tests: torch's, or those of an emulated GPU (tests/emulate), whichever this build and machine have.

`far(array)` puts a numpy array there, `near(array)` gets one back, `write(far, array)` changes its contents, `capture(function)` runs it while its stream is captured and
returns (what it returned, a function that replays the graph). WHY is None, or why there is neither."""
import contextlib
import ctypes

import numpy as np
import raffle
from raffle import _arrays, _core

EMULATED = hasattr(ctypes.CDLL(_core.__file__), "cudaMalloc")
try:
    import torch
except ImportError:
    torch = None
TORCH = torch is not None and not EMULATED and torch.cuda.is_available() and raffle.cuda_available()[0]
WHY = None if EMULATED or TORCH else raffle.cuda_available()[1] or "torch sees no GPU"


class Runtime:
    """The emulated runtime's functions, which raise."""

    def __init__(self):
        self._library = ctypes.CDLL(_core.__file__)

    def __getattr__(self, name):
        def call(*arguments):
            code = getattr(self._library, name)(*arguments)
            if code:
                raise RuntimeError(f"{name}: error {code}")

        return call


class Memory:
    """Device memory, freed when nothing refers to it."""

    live = 0

    def __init__(self, count):
        self.count, pointer = count, ctypes.c_void_p()
        runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(count or 1))
        self.pointer = pointer.value
        Memory.live += count

    def __del__(self):
        Memory.live -= self.count
        runtime.cudaFree(ctypes.c_void_p(self.pointer))


class Far:
    """An array of the emulated GPU."""

    def __init__(self, shape, dtype, memory=None, offset=0):
        self.shape, self.dtype = tuple(int(n) for n in shape), np.dtype(dtype)
        self.memory = memory or kind.allocate(self.nbytes)
        self.offset = offset

    @property
    def nbytes(self):
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def pointer(self):
        return self.memory.pointer + self.offset if self.nbytes else 0  # as torch's arrays of nothing

    @property
    def __cuda_array_interface__(self):
        return dict(shape=self.shape, typestr=self.dtype.str, data=(self.pointer, False), version=3)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, part):
        start, stop, step = part.indices(self.shape[0])
        row = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        assert step == 1
        return Far((max(stop - start, 0), *self.shape[1:]), self.dtype, self.memory, self.offset + start * row)

    def reshape(self, *shape):
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return Far(np.empty(self.shape, np.bool_).reshape(shape).shape, self.dtype, self.memory, self.offset)

    def tolist(self):
        return near(self).tolist()


class FarKind(_arrays.Shaped):
    """What raffle._arrays has for torch, for these arrays. While a stream is captured nothing can be allocated, so there
    is a reserve."""

    def __init__(self):
        self.current, self.reserve = 0, None

    def allocate(self, count):
        if self.reserve is None:
            return Memory(count)
        memory, used = self.reserve
        self.reserve = memory, used + count // 512 * 512 + 512
        assert self.reserve[1] <= memory.count
        return type("Part", (), dict(pointer=memory.pointer + used, whole=memory))

    def gpu(self, logits):
        return isinstance(logits, Far)

    def empty(self, logits, shape, dtype):
        return Far(shape, dtype)

    def zeros(self, logits, count, dtype):
        made = Far((count,), dtype)
        runtime.cudaMemsetAsync(ctypes.c_void_p(made.pointer), 0, ctypes.c_size_t(made.nbytes), ctypes.c_void_p(self.current))
        return made

    def integers(self, logits, values, shape):
        return far(super().integers(logits, near(values) if isinstance(values, Far) else values, shape))

    def stream(self, logits):
        return self.current


# ---- the same with a table of C functions, as torch's tensors have it ---------------------------------------------------


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", Deleter),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


class Table(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("previous", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
                ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))),
                ("to_object", ctypes.c_void_p),
                ("unowned", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))),
                ("stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)))]


class Exchanged(Far):
    """An array of the emulated GPU whose type has __dlpack_c_exchange_api__."""

    negated, loans = False, {}

    def is_neg(self):
        return self.negated

    def new_empty(self, rows, dtype):
        return type(self)((rows,), dtype)

    def tensor(self):
        self.axes = (ctypes.c_int64 * len(self.shape))(*self.shape)  # as long as the array
        code = {"i": 0, "u": 1, "f": 2}[self.dtype.kind]
        return Tensor(self.pointer, (2, 0), len(self.shape), code, self.dtype.itemsize * 8, 1, self.axes, None, 0)


@Deleter
def _give_back(address):
    del Exchanged.loans[address]


def _from_object(object, out):
    made = Managed((1, 0), None, _give_back, 0, object.tensor())
    Exchanged.loans[ctypes.addressof(made)] = made, object
    out[0] = ctypes.addressof(made)
    return 0


def _unowned(object, out):
    out[0] = object.tensor()
    return 0


def _stream(device_type, device, out):
    out[0] = kind.current
    return 0


def _table():
    types = dict(Table._fields_)
    made = Table((1, 3), None, None, types["from_object"](_from_object), None, types["unowned"](_unowned), types["stream"](_stream))
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return made, capsule(ctypes.addressof(made), b"dlpack_exchange_api", None)


class ExchangedKind(FarKind):
    asks, quick = True, (lambda like: type(like)(like.shape, like.dtype), {"dtype": "int32"})

    def empty(self, logits, shape, dtype):
        return Exchanged(shape, dtype)


def exchanged(array):
    """far(array), as an array that raffle._core.quick takes."""
    made = far(array)
    return made if TORCH else Exchanged(made.shape, made.dtype, made.memory)


def far(array):
    array = np.ascontiguousarray(array)
    if TORCH:
        return torch.from_numpy(array).cuda()
    made = Far(array.shape, array.dtype)
    runtime.cudaMemcpy(ctypes.c_void_p(made.pointer), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), 1)
    return made


def near(array):
    if TORCH:
        return array.cpu().numpy()
    made = np.empty(array.shape, array.dtype)
    runtime.cudaMemcpy(ctypes.c_void_p(made.ctypes.data), ctypes.c_void_p(array.pointer), ctypes.c_size_t(made.nbytes), 2)
    return made


def write(to, array):
    """Puts other contents into an array of far()."""
    if TORCH:
        return to.copy_(torch.from_numpy(array))
    runtime.cudaMemcpy(ctypes.c_void_p(to.pointer), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), 1)


@contextlib.contextmanager
def _capturing(graph, kept):
    stream = ctypes.c_void_p()
    runtime.cudaStreamCreate(ctypes.byref(stream))
    runtime.cudaStreamBeginCapture(stream, 0)
    kind.current, kind.reserve = stream.value, (kept, 0)
    try:
        yield
    finally:
        kind.current, kind.reserve = 0, None
        runtime.cudaStreamEndCapture(stream, ctypes.byref(graph))


def capture(function):
    if TORCH:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = function()
        return made, graph.replay
    graph, ready, kept = ctypes.c_void_p(), ctypes.c_void_p(), Memory(1 << 26)
    with _capturing(graph, kept):
        made = function()
    runtime.cudaGraphInstantiate(ctypes.byref(ready), graph, ctypes.c_ulonglong(0))

    def replay(memory=kept):  # which lives as long
        runtime.cudaGraphLaunch(ready, ctypes.c_void_p(0))

    return made, replay


def current():
    """The current stream, for calls that cannot ask for it."""
    return None if TORCH else kind.current


def used():
    """Bytes of device memory that are in use."""
    return torch.cuda.memory_allocated() if TORCH else Memory.live


if EMULATED:
    runtime, kind = Runtime(), FarKind()
    table = _table()
    Exchanged.__dlpack_c_exchange_api__ = table[1]
    _arrays._kinds[Far], _arrays._kinds[Exchanged] = kind, ExchangedKind()
    _arrays.quick_spaces[Exchanged] = _arrays._kinds[Exchanged].workspaces
