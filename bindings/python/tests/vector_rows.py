"""The rows and masks that tests/vectors/vectors.txt names, made again in numpy from the words of vector_rows.h."""
import pathlib

import numpy as np

PROJECT = pathlib.Path(__file__).resolve().parents[3]
FILE = PROJECT / "tests/vectors/vectors.txt"
COLUMNS = "kind row_seed vocab dtype temperature top_k top_p min_p flags allow seed position token row_flags".split()


def case_of(columns):
    """A line's first columns as a dictionary."""
    case = dict(zip(COLUMNS, columns))
    for name in ("temperature", "top_p", "min_p"):
        case[name] = float.fromhex(case[name])
    for name in ("row_seed", "vocab", "top_k", "flags", "allow", "seed", "position", "token", "row_flags"):
        case[name] = int(case[name])
    return case


def cases():
    """Every line of the file."""
    return (case_of(line.split()) for line in FILE.read_text().splitlines() if not line.startswith("#"))


def hashed(seed, index):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + (np.asarray(index, np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def part(h, shift, mask):
    return ((h >> np.uint64(shift)) & np.uint64(mask)).astype(np.int64)


def scaled(count, exponent):
    return np.ldexp(np.asarray(count, np.float32), exponent).astype(np.float32)


def bits_to_float(bits):
    return np.asarray(bits).astype(np.uint32).view(np.float32)


def nan_of(h):
    return bits_to_float(part(h, 0, 1) << 31 | 0x7FC00000 | part(h, 8, 0x3FFFFF))


def tiny(h, dtype):
    sign, fraction = part(h, 0, 1) << 31, part(h, 8, 0x7FFFFF) >> ((h >> np.uint64(32)) % np.uint64(24)).astype(np.int64)
    fraction = np.where(part(h, 40, 1) == 1, 0, fraction)
    if dtype == "f16":
        return bits_to_float(sign | scaled(fraction >> 13, -24).view(np.uint32).astype(np.int64))
    return bits_to_float(sign | (fraction if dtype == "f32" else fraction & 0x7F0000))


def huge(h, dtype):
    exponent = 127 + ((h >> np.uint64(32)) % np.uint64(16 if dtype == "f16" else 100)).astype(np.int64)
    return bits_to_float(part(h, 0, 1) << 31 | exponent << 23 | part(h, 8, 0xFFFFFF) & (0x7FE000 if dtype == "f16" else 0x7FFFFF))


def tokens(kind, seed, vocab, dtype):
    i = np.arange(vocab, dtype=np.int64)
    h, row = hashed(seed, i), int(hashed(seed, 0xFEED))
    bell = scaled((part(h, 0, 0xFFFF) + part(h, 16, 0xFFFF) + part(h, 32, 0xFFFF) + part(h, 48, 0xFFFF) - 131070) * 17, -18)
    infinity = np.float32(np.inf)
    if kind == "flat":
        return scaled(part(h, 0, 0xFFF), -16)
    if kind == "constant":
        return np.full(vocab, scaled(row % 401 - 200, -2))
    if kind == "two":
        return np.where(part(h, 0, 7) != 0, scaled(-(row % 64), -2), np.float32(1))
    if kind == "ascending":
        return scaled(i - vocab // 2, -11)
    if kind == "descending":
        return scaled(vocab // 2 - i, -11)
    if kind == "spiky":
        spike = i % 256 == (hashed(seed, i // 256 + 77) % np.uint64(256)).astype(np.int64)
        return np.where(spike, scaled(part(h, 0, 0xFFF), -10), scaled(-part(h, 0, 0x3FF) - 18 * 1024, -10))
    if kind == "ties":
        return scaled((h % np.uint64(5)).astype(np.int64) - 2, row % 4 - 2)
    if kind == "tiny":
        return tiny(h, dtype)
    if kind == "huge":
        return huge(h, dtype)
    if kind == "narrow":
        return bits_to_float(0x3F800000 + part(h, 0, 7))
    rare = h % np.uint64(61) == 0
    if kind == "nan":
        return np.where(rare, nan_of(h >> np.uint64(8)), bell)
    if kind == "inf":
        return np.where(rare, np.where((part(h, 8, 1) == 1) | (row & 1 == 1), -infinity, infinity), bell)
    if kind == "masked":
        lowest = bits_to_float({"f32": 0xFF7FFFFF, "f16": 0xC77FE000, "bf16": 0xFF7F0000}[dtype])
        return np.where(h % np.uint64(101) != 0, np.where(part(h, 8, 1) == 1, -infinity, lowest), bell)
    if kind == "empty":
        return np.where((h % np.uint64(3) != 0) | (row & 1 == 1), -infinity, nan_of(h >> np.uint64(8)))
    return bell


def store(row, dtype):
    """f32 values as an array that sample() takes: bf16 as 16-bit integers."""
    if dtype == "f32":
        return row
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "f16":
            return row.astype(np.float16)
    bits = row.view(np.uint32).astype(np.uint64)
    half = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(row), bits >> 16 | 0x40, half).astype(np.uint16)


def row_make(kind, seed, vocab, dtype):
    row = np.array(tokens(kind, seed, vocab, dtype), np.float32)
    if kind == "peaked":
        h = int(hashed(seed, 0xABCD))
        row[h % vocab] = scaled(25 * 16 + (h >> 56), -4)
    if kind in ("normal", "nan", "inf"):
        for i in range(2 if vocab < 256 else 20):
            h = int(hashed(seed, i + 0xABCD00))
            if kind != "inf" or i % 2 == 0:
                row[(h >> 24) % vocab] = scaled(8 * 4096 + (h & 0x3FFF), -12)
    return store(row, dtype)


def allow_make(seed, vocab):
    i = np.arange((vocab + 31) // 32)
    a, b = hashed(seed, i * 2), hashed(seed, i * 2 + 1)
    low, high = part(a, 0, 0xFFFFFFFF), part(a, 32, 0xFFFFFFFF)
    words = (low, low & high, low | high, low & high & part(b, 0, 0xFFFFFFFF) & part(b, 32, 0xFFFFFFFF))[seed % 4]
    return words.astype(np.uint32)
