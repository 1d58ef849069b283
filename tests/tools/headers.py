#!/usr/bin/env python3
"""headers.py - the public header alone, in every language version it promises, without a warning."""
import shutil
import pathlib
import tempfile

from tally import Tally

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted(h.relative_to(ROOT / "include").as_posix() for h in (ROOT / "include/raffle").glob("*.h"))
WARNINGS = {"c": ["-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Wshadow", "-Werror"]}
WARNINGS["c++"] = [*WARNINGS["c"], "-Wold-style-cast"]
C, CXX = ["c99", "c11", "c17"], ["c++11", "c++14", "c++17", "c++20"]
COMPILERS = [("gcc", "c", C), ("clang", "c", C), ("g++", "c++", CXX), ("clang++", "c++", CXX)]


def main():
    tally = Tally("headers")
    with tempfile.TemporaryDirectory() as folder:
        for header in HEADERS:
            for compiler, language, versions in COMPILERS:
                if not shutil.which(compiler):
                    tally.skip(f"{header} with {compiler}", "not installed")
                    continue
                source = pathlib.Path(folder, "only.c")
                # Twice, and used: every initialiser is called, so that the inlines are compiled too.
                source.write_text(f"#include <{header}>\n#include <{header}>\n"
                                  "raffle_plan_desc use(void);\n"
                                  "raffle_plan_desc use(void) { return raffle_plan_desc_init(); }\n")
                for version in versions:
                    tally.run(f"{header}: {compiler} -std={version}",
                              [compiler, "-x", language, f"-std={version}", *WARNINGS[language], "-I", ROOT / "include",
                               "-c", source, "-o", pathlib.Path(folder, "only.o")])
    tally.finish()


main()
