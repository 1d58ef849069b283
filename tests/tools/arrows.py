#!/usr/bin/env python3
"""arrows.py - who may include whom, READMEs and what they name, and file names.

    include            -> nothing but stddef.h and stdint.h
    math               -> math, C's own headers and intrinsics; no libm, no stdio, no allocation
    core               -> include, core
    cpu, cuda          -> include, core, math, themselves
    cli, bindings, examples -> include (and their own files; cli also tests/vectors/request_run.h)
"""
import collections
import pathlib
import re

from tally import Tally

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARROWS = {  # folder -> folders it may include from, besides itself
    "include": [],
    "src/math": [],
    "src/core": ["include"],
    "src/cpu": ["include", "src/core", "src/math"],
    "src/cuda": ["include", "src/core", "src/math"],
    "cli": ["include"],
    "bindings": ["include"],
    "examples": ["include"],
}
EXCEPTIONS = {"cli": ["tests/vectors/request_run.h"]}
SYSTEM = {  # folders that may not include every system header -> those they may
    "include": {"stddef.h", "stdint.h"},
    "src/math": {"float.h", "stdint.h", "string.h", "immintrin.h", "arm_neon.h"},
}
NO_CUDA = ["include", "src/core", "src/cpu", "src/math"]
CODE = {".c", ".h", ".cu", ".cuh", ".cc", ".cpp", ".hpp", ".inc"}
SCRIPTS = {".py", ".sh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def code_files(folder):
    return sorted(f for f in (ROOT / folder).rglob("*") if f.suffix in CODE)


def find(name, from_file):
    """The file of this tree that `#include "name"` means, or None."""
    places = [from_file.parent, ROOT / "include", ROOT / "tests", ROOT]
    places += [ROOT / folder for folder in ARROWS] + [ROOT / "tests/vectors"]
    for place in places:
        if (place / name).is_file():
            return (place / name).resolve().relative_to(ROOT).as_posix()
    return None


def problem(folder, file, quote, name):
    """Why this include is wrong, or None."""
    target = find(name, file)
    if target is None:
        if quote == '"':
            return f'"{name}" is not a file of this tree'
        if folder in SYSTEM and name not in SYSTEM[folder]:
            return f"<{name}> is not one of its system headers"
        if folder in NO_CUDA and re.search(r"cuda|cub/|cooperative_groups", name):
            return f"<{name}> belongs to src/cuda"
        return None
    allowed = [folder] + ARROWS[folder]
    if any(target.startswith(f + "/") for f in allowed) or target in EXCEPTIONS.get(folder, []):
        return None
    return f"{target} is outside {', '.join(allowed)}"


def folders(parent):
    return sorted(p for p in (ROOT / parent).iterdir() if p.is_dir() and p.name != "__pycache__" and any(f.is_file() for f in p.rglob("*")))


def unnamed(folder):
    """Source files in the folder, not in folders of it, that its README (or else that of the folder above) does not name in `...`
    or as a link: with their ending or without it, programs of tests/cuda as cuda_NAME."""
    readme = next(f / "README.md" for f in (folder, folder.parent) if (f / "README.md").is_file())
    spans = re.findall(r"`[^`]+`|\]\([^)]+\)", readme.read_text().replace("```", "`"))
    words = set(re.findall(r"[\w.-]+", " ".join(spans)))
    files = sorted(f for f in folder.iterdir() if f.suffix in CODE | SCRIPTS)
    return [f.name for f in files if not words & {f.name, f.stem, f"{folder.name}_{f.stem}"}]


def main():
    tally = Tally("arrows")
    for folder in ARROWS:
        files = code_files(folder)
        if not files:
            continue
        wrong = []
        for file in files:
            for quote, name in INCLUDE.findall(file.read_text()):
                why = problem(folder, file, quote, name)
                if why:
                    wrong.append(f"{file.relative_to(ROOT)}: {why}")
        tally.check(not wrong, f"includes of {folder}", "\n     ".join(wrong))

    for parent in ["src", "tests", "dev"]:
        for folder in folders(parent):
            name = folder.relative_to(ROOT)
            if parent == "dev" or tally.check((folder / "README.md").is_file(), f"{name} has a README"):
                missing = unnamed(folder)
                tally.check(not missing, f"the README of {name} names its files", ", ".join(missing))
    for parent in ["tests", "dev"]:
        text = (ROOT / parent / "README.md").read_text()
        missing = [f.name for f in folders(parent) if not re.search(rf"`{f.name}/?`", text)]
        tally.check(not missing, f"{parent}/README.md names the folders of {parent}", ", ".join(missing))

    names = collections.defaultdict(list)
    for file in (ROOT / "src").rglob("*"):
        if file.is_file() and file.name not in ("README.md", "CMakeLists.txt"):
            names[file.name].append(str(file.relative_to(ROOT)))
    twice = [" and ".join(files) for files in names.values() if len(files) > 1]
    tally.check(not twice, "file names of src are unique", "\n     ".join(twice))
    tally.finish()


main()
