#!/usr/bin/env python3
"""symbols.py BUILD - what the built library shows and hides.

The shared library exports exactly src/raffle.map, which lists exactly the functions of the header; its SONAME
follows the version; it needs only a few functions of the C library; and no object but those of the wide
instruction sets holds an instruction that an older machine does not know."""
import pathlib
import platform
import re
import sys

from tally import Tally, output

ROOT = pathlib.Path(__file__).resolve().parents[2]
# All that the CPU library may need: it does not print, lock, wait or call libm.
NEEDS = {"malloc", "free", "strcmp", "snprintf", "vsnprintf", "memcpy", "memset", "memmove", "memcmp", "__stack_chk_fail",
         "__snprintf_chk", "__vsnprintf_chk", "__memcpy_chk", "__memset_chk", "__cxa_finalize", "__gmon_start__",
         "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
VEX = re.compile(r"^v(?!err\b|erw\b)[a-z0-9]+")  # AVX mnemonics begin with v


def names(command):
    """nm's third column."""
    return {line.split()[-1].split("@")[0] for line in output(command).splitlines() if line.strip()}


def instructions(file):
    """(mnemonic, operands) of an object's code."""
    for line in output(["objdump", "-d", "--no-show-raw-insn", file]).splitlines():
        parts = line.split("\t")
        if len(parts) >= 2 and parts[0].rstrip().endswith(":"):
            yield (parts[1].split() or [""])[0], parts[1]


def check_exports(tally, build):
    library = build / "src/libraffle.so"
    listed = set(re.findall(r"^\s*(raffle_\w+);", (ROOT / "src/raffle.map").read_text(), re.MULTILINE))
    header = (ROOT / "include/raffle/raffle.h").read_text()
    declared = set(re.findall(r"^RAFFLE_API\s[^;(]*?(raffle_\w+)\(", header, re.MULTILINE))
    exported = names(["nm", "-D", "--defined-only", library])
    tally.check(len(listed) > 0 and exported == listed, "libraffle.so exports exactly src/raffle.map",
                f"more: {sorted(exported - listed)}, less: {sorted(listed - exported)}")
    tally.check(declared == listed, "src/raffle.map lists exactly the header's functions",
                f"more: {sorted(listed - declared)}, less: {sorted(declared - listed)}")
    extra = names(["nm", "-D", "--undefined-only", library]) - NEEDS
    tally.check(not extra, "libraffle.so needs nothing unexpected", str(sorted(extra)))

    version = [re.search(rf"#define RAFFLE_VERSION_{part} (\d+)", header).group(1) for part in ["MAJOR", "MINOR", "PATCH"]]
    soname = "libraffle.so." + (version[0] if version[0] != "0" else f"0.{version[1]}")
    found = re.search(r"SONAME.*\[(.*)\]", output(["readelf", "-d", library]))
    tally.check(found is not None and found.group(1) == soname, f"SONAME is {soname}", str(found and found.group(1)))
    tally.check(library.resolve().name == "libraffle.so." + ".".join(version), "the file carries the whole version")


def check_objects(tally, build):
    folders = {f.name[:-len(".dir")]: f for f in (build / "src/CMakeFiles").glob("raffle_*.dir")}
    objects = {name: sorted(folder.rglob("*.o")) for name, folder in folders.items()}
    rows = {name[len("raffle_rows_"):]: files for name, files in objects.items() if name.startswith("raffle_rows_")}
    expected = {"x86_64": {"one", "avx2", "avx512"}, "aarch64": {"one", "neon"}}.get(platform.machine(), {"one"})
    tally.check(set(rows) == expected, f"rows.c is compiled for {', '.join(sorted(expected))}", str(sorted(rows)))
    for isa, files in sorted(rows.items()):
        defined = names(["nm", "-g", "--defined-only", *files])
        tally.check(len(files) == 1 and defined == {f"raffle_table_{isa}"}, f"rows for {isa}: its only symbol is its table",
                    str(sorted(defined)))
    if platform.machine() != "x86_64":
        return
    for name in ["raffle_base", "raffle_rows_one"]:
        wide = [f"{file.name}: {text}" for file in objects[name] for mnemonic, text in instructions(file)
                if VEX.match(mnemonic) or re.search(r"%[yz]mm", text)]
        tally.check(objects[name] and not wide, f"{name} is baseline code", "\n     ".join(wide[:5]))
    if {"avx2", "avx512"} <= set(rows):
        text = "\n".join(t for f in rows["avx2"] for _, t in instructions(f))
        tally.check("%ymm" in text and "%zmm" not in text and "%k1" not in text, "rows for avx2 use ymm, never zmm")
        tally.check(any("%zmm" in t for f in rows["avx512"] for _, t in instructions(f)), "rows for avx512 use zmm")


def main():
    tally = Tally("symbols")
    build = pathlib.Path(sys.argv[1])
    check_exports(tally, build)
    check_objects(tally, build)
    tally.finish()


main()
