#!/usr/bin/env python3
"""install.py BUILD - installs into empty folders and uses what is there: by pkg-config and by find_package,
shared and static, with our own program and with every example; and after the folder has been moved."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tally import Tally

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests/abi/installed.c"
COMPILERS = {".c": ["cc", "-std=c11"], ".cpp": ["c++", "-std=c++11"]}
PROJECT = """cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES C)
find_package(raffle {version} REQUIRED)
foreach(kind raffle raffle_shared raffle_static)
  add_executable(with_${{kind}} {program})
  target_link_libraries(with_${{kind}} PRIVATE raffle::${{kind}})
endforeach()
"""


def pkg_config(prefix, *arguments):
    pc = next(prefix.rglob("raffle.pc"), None)
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent) if pc else "")
    done = subprocess.run(["pkg-config", *arguments, "raffle"], env=env, stdout=subprocess.PIPE, text=True)
    return done.stdout.split() if done.returncode == 0 else None


def check_files(tally, build, stage):
    tally.run("installs under DESTDIR", ["cmake", "--install", build, "--prefix", "/opt/raffle"],
              env=dict(os.environ, DESTDIR=str(stage)))
    root = stage / "opt/raffle"
    for wanted in ["include/raffle/raffle.h", "**/libraffle.a", "**/libraffle.so", "**/pkgconfig/raffle.pc",
                   "**/cmake/raffle/raffleConfig.cmake", "**/cmake/raffle/raffleConfigVersion.cmake", "bin/raffle"]:
        if wanted == "bin/raffle" and not (build / "cli").is_dir():
            continue
        tally.check(any(root.glob(wanted)), f"{wanted} is installed")
    traces = [str(f.relative_to(stage)) for f in root.rglob("*") if f.is_file() and not f.is_symlink()
              and f.suffix in (".pc", ".cmake", ".h") and str(ROOT) in f.read_text()]
    tally.check(not traces, "no installed text names the build machine's folders", str(traces))


def check_pkg_config(tally, prefix, work, version):
    libdir = next(prefix.rglob("libraffle.a")).parent
    tally.check(pkg_config(prefix, "--modversion") == [version], f"pkg-config says version {version}")
    flags = pkg_config(prefix, "--cflags", "--libs") or []
    static = [str(libdir / "libraffle.a") if f == "-lraffle" else f
              for f in pkg_config(prefix, "--cflags", "--libs", "--static") or []]
    for name, linking in [("shared", flags), ("static", static)]:
        binary = work / f"pc_{name}"
        if tally.run(f"a program builds with pkg-config, {name}", ["cc", "-std=c11", PROGRAM, "-o", binary, *linking]) is None:
            continue
        said = tally.run(f"and runs, {name}", [binary], env=dict(os.environ, LD_LIBRARY_PATH=str(libdir)))
        tally.check(said == f"{version} token 3\n", f"and draws the right token, {name}", repr(said))
    for example in sorted(f for f in (ROOT / "examples").glob("*.c*") if f.suffix in COMPILERS):
        binary = work / example.stem
        built = tally.run(f"examples/{example.name} builds against the package",
                          [*COMPILERS[example.suffix], "-Wall", "-Wextra", "-Werror", example, "-o", binary, *flags,
                           "-lm", "-pthread"])
        if built is not None:
            tally.run(f"examples/{example.name} runs", [binary], cwd=ROOT, env=dict(os.environ, LD_LIBRARY_PATH=str(libdir)))


def check_cmake(tally, prefix, work, version):
    user = work / "user"
    user.mkdir()
    (user / "CMakeLists.txt").write_text(PROJECT.format(version=version, program=PROGRAM))
    configure = ["cmake", "-S", user, "-B", user / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    if tally.run("find_package(raffle) finds it", configure) is None:
        return
    if tally.run("a CMake project builds with it", ["cmake", "--build", user / "build"]) is None:
        return
    for kind in ["raffle", "raffle_shared", "raffle_static"]:
        said = tally.run(f"and raffle::{kind} runs", [user / "build" / f"with_{kind}"])
        tally.check(said == f"{version} token 3\n", f"and raffle::{kind} draws the right token", repr(said))
    (user / "CMakeLists.txt").write_text(PROJECT.format(version="99.0", program=PROGRAM))
    refused = subprocess.run([*configure, "-B", user / "never"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tally.check(refused.returncode != 0, "find_package refuses version 99.0")


def main():
    tally = Tally("install")
    build = pathlib.Path(sys.argv[1]).resolve()
    header = (ROOT / "include/raffle/raffle.h").read_text()
    version = ".".join(re.findall(r"#define RAFFLE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        check_files(tally, build, work / "stage")
        (work / "stage/opt/raffle").rename(work / "moved")  # a package may be unpacked anywhere
        check_pkg_config(tally, work / "moved", work, version)
        check_cmake(tally, work / "moved", work, version)
    tally.finish()


main()
