"""bad_files.py - files that `raffle sample` and `raffle explain` must refuse: name, bytes, a part of the sentence."""
import struct

from npy_file import npy

DATA = list(range(12))
GOOD = npy((3, 4), DATA)


def dictionary(text):
    return npy((), struct.pack("<12f", *DATA), header=text)


BAD = [
    ("empty", b"", "empty"),
    ("one byte", b"\x93", "not a .npy"),
    ("text", b"0.1 0.2 0.3\n", "not a .npy"),
    ("a zip", b"PK\x03\x04" + bytes(60), "not a .npy"),
    ("magic only", GOOD[:6], "not a .npy"),
    ("no header length", GOOD[:9], "not a .npy"),
    ("version 4.0", npy((3, 4), DATA, version=(4, 0), header_length=118), "version 4.0"),
    ("version 1.1", GOOD[:7] + b"\x01" + GOOD[8:], "version 1.1"),
    ("version 0.0", GOOD[:6] + b"\x00\x00" + GOOD[8:], "version 0.0"),
    ("version 2.0 in 11 bytes", b"\x93NUMPY\x02\x00\x10\x00\x00", "truncated in its header"),
    ("cut in the header", GOOD[:40], "truncated in its header"),
    ("cut after the header", GOOD[:128], "truncated"),
    ("cut in the data", GOOD[:-1], "truncated"),
    ("more data than the shape", GOOD + b"\0", "goes on after the array"),
    ("huge header, 1.0", npy((3, 4), DATA, header_length=65535), "truncated in its header"),
    ("huge header, 2.0", npy((3, 4), DATA, version=(2, 0), header_length=0xFFFFFFFF), "header claims"),
    ("huge header, 3.0", npy((3, 4), DATA, version=(3, 0), header_length=1 << 30), "header claims"),
    ("no header", npy((3, 4), DATA, header=""), "not a dictionary"),
    ("float64", npy((3, 4), DATA, descr="<f8"), "'<f8'"),
    ("int32", npy((3, 4), DATA, descr="<i4"), "'<i4'"),
    ("big-endian", npy((3, 4), bytes(48), descr=">f4"), "big-endian"),
    ("big-endian float16", npy((3, 4), bytes(24), descr=">f2"), "big-endian"),
    ("native order mark", npy((3, 4), bytes(48), descr="=f4"), "'=f4'"),
    ("objects", npy((3, 4), bytes(48), descr="|O"), "'|O'"),
    ("raw pairs", npy((3, 4), bytes(24), descr="|V2"), "'|V2'"),
    ("a descr of control characters", npy((3, 4), bytes(48), descr="<f4\x1b[31m"), "not float32"),
    ("a long descr", npy((3, 4), bytes(48), descr="<f4" + "x" * 500), "dtype"),
    ("structured", dictionary("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3, 4)}"), "structured"),
    ("Fortran order", npy((3, 4), DATA, fortran=True), "Fortran order"),
    ("0-D", npy((), DATA[:1]), "single number"),
    ("3-D", npy((3, 2, 2), DATA), "more than 2 dimensions"),
    ("100-D", npy((1,) * 100, DATA[:1]), "more than 2 dimensions"),
    ("rows without tokens", npy((3, 0)), "rows without tokens"),
    ("no tokens", npy((0,)), "rows without tokens"),
    ("negative size", npy((-3, 4), DATA), "negative size"),
    ("negative sizes", npy((-3, -4), DATA), "negative size"),
    ("2^63 rows", npy((1 << 63, 4), DATA), "too large"),
    ("2^62 x 4 tokens", npy((1 << 62, 4), DATA), "too large"),
    ("2^32 x 2^32", npy((1 << 32, 1 << 32), DATA), "too large"),
    ("2^62 tokens", npy((1 << 62,), DATA), "too large"),
    ("a size of 400 digits", npy((), DATA, header="{'descr':'<f4','fortran_order':False,'shape':(" + "9" * 400 + ",)}"),
     "too large"),
    ("a shape of floats", dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (3.0, 4)}"), "whole numbers"),
    ("a shape without commas", dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}"), "whole numbers"),
    ("a shape in brackets", dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': [3, 4]}"), "whole numbers"),
    ("a shape without an end", dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4"), "whole numbers"),
    ("a string without an end", dictionary("{'descr': '<f4"), "without an end"),
    ("no closing brace", dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), "), "dictionary"),
    ("text after the dictionary", dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)} x"), "after"),
    ("a key too few", dictionary("{'descr': '<f4', 'shape': (3, 4)}"), "lacks"),
    ("a key too many", dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), 'x': 1}"), "other than"),
    ("a key twice", dictionary("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}"), "twice"),
    ("fortran_order: 0", dictionary("{'descr': '<f4', 'fortran_order': 0, 'shape': (3, 4)}"), "neither"),
    ("a header of zeros", npy((), DATA, header=bytes(118)), "not a dictionary"),
    ("2^21 + 1 tokens", npy((2097153,), bytes(4 * 2097153)), "vocab is 2097153"),
]
