"""The build backend: scikit-build-core, and around it what a package in a subfolder of its project needs.

pip builds from this folder alone, or from a source archive of it. The C library lies two folders higher; a source
archive gets a copy of it in library/. The licence and the header, where the version is, are put beside pyproject.toml.
"""
import contextlib
import pathlib
import shutil

from scikit_build_core import build as _build

HERE = pathlib.Path(__file__).resolve().parents[1]
PROJECT = HERE.parents[1]
BESIDE = ("LICENSE", "include/raffle/raffle.h")
LIBRARY = ("CMakeLists.txt", "cmake", "include", "src", "LICENSE", "README.md")


@contextlib.contextmanager
def _staged(library):
    """Licence and header, and for a source archive the library, in this folder while it is built."""
    made = []
    try:
        for name in BESIDE:
            if not (HERE / pathlib.Path(name).name).exists():
                made.append(HERE / pathlib.Path(name).name)
                shutil.copy(PROJECT / name, made[-1])
        if library and (PROJECT / "include/raffle/raffle.h").exists():
            made.append(HERE / "library")
            shutil.rmtree(HERE / "library", ignore_errors=True)
            for name in LIBRARY:
                source, target = PROJECT / name, HERE / "library" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        yield
    finally:
        for path in made:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _wrap(name, library=False):
    hook = getattr(_build, name)

    def wrapped(*arguments, **words):
        with _staged(library):
            return hook(*arguments, **words)

    wrapped.__name__ = name
    return wrapped


get_requires_for_build_wheel = _build.get_requires_for_build_wheel
get_requires_for_build_sdist = _build.get_requires_for_build_sdist
get_requires_for_build_editable = _build.get_requires_for_build_editable
prepare_metadata_for_build_wheel = _wrap("prepare_metadata_for_build_wheel")
prepare_metadata_for_build_editable = _wrap("prepare_metadata_for_build_editable")
build_wheel = _wrap("build_wheel")
build_editable = _wrap("build_editable")
build_sdist = _wrap("build_sdist", library=True)
