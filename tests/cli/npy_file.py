"""npy_file.py - .npy files out of plain Python, also broken ones."""
import ast
import struct

LETTERS = {"<f4": "f", "<f2": "e", "<f8": "d", "<i4": "i"}


def npy(shape, values=b"", descr="<f4", fortran=False, version=(1, 0), header=None, header_length=None):
    """The bytes of a file. `values`: bytes, or a list of numbers. `header`, `header_length`: instead of the right."""
    if isinstance(values, (list, tuple)):
        values = struct.pack(f"<{len(values)}{LETTERS[descr]}", *values)
    if header is None:
        sizes = "(" + "".join(f"{n}, " for n in shape).strip() + ")"
        header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {sizes}, }}"
        header += " " * (-(len(header) + (11 if version[0] == 1 else 13)) % 64) + "\n"
    text = header if isinstance(header, bytes) else header.encode()
    length = len(text) if header_length is None else header_length
    prefix = b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version[0] == 1 else "<I", length)
    return prefix + text + values


def read_npy(path):
    """The shape of a file, and its values."""
    content = path.read_bytes()
    end = 10 + struct.unpack("<H", content[8:10])[0]
    header = ast.literal_eval(content[10:end].decode())
    assert content[:8] == b"\x93NUMPY\1\0" and end % 64 == 0 and content[end - 1:end] == b"\n"
    letter = {**LETTERS, "|b1": "?"}[header["descr"]]
    count = (len(content) - end) // struct.calcsize(letter)
    return header["shape"], list(struct.unpack(f"<{count}{letter}", content[end:]))


def f16(x):
    """x rounded to float16, to nearest even."""
    return struct.unpack("<e", struct.pack("<e", x))[0]


def bf16(x):
    """x rounded to bfloat16, to nearest even."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]
