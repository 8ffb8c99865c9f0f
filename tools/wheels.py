"""Builds what can be installed elsewhere, in dist/: the source, the plain wheel, the compiled one.

Both wheels are made of the unpacked source, so that nothing is missing in it.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from setup import ROOT, compiler_problem

DIST = ROOT / "dist"
UNPACKED = ROOT / "build" / "unpacked"
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def main() -> None:
    """Build all three, or say why there is no compiled wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(UNPACKED, ignore_errors=True)
    problem = compiler_problem()
    if problem is None:
        subprocess.run(["make", "--silent", "compile"], cwd=ROOT, check=True)
    quietly([sys.executable, "-c", SDIST, str(DIST)], ROOT)
    source = unpack()
    build_wheel(source, {"PEEKLOCK_PURE": "1"})
    if problem is None:
        lend_objects(source)
        build_wheel(source, {"PEEKLOCK_PURE": "0"})
    for path in sorted(DIST.iterdir()):
        print(path.relative_to(ROOT))
    if problem is not None:
        print(f"There is no compiled wheel: {problem}.")
    elif len(list(DIST.glob("*.whl"))) != 2:
        sys.exit("the compiled wheel is missing: it could not be compiled from dist/*.tar.gz")


def unpack() -> Path:
    """Unpack the source, and return where it is."""
    (archive,) = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(UNPACKED, filter="data")
    (source,) = UNPACKED.iterdir()
    return source


def lend_objects(source: Path) -> None:
    """Lend the C files and objects of `make compile`: of them, only what differs is built again."""
    places = [*ROOT.glob("build/*.[ch]"), *ROOT.glob("build/temp.*")]
    for place in places:
        copy = source / "build" / place.name
        if place.is_dir():
            shutil.copytree(place, copy)
        else:
            shutil.copy2(place, copy)


def build_wheel(source: Path, environment: dict[str, str]) -> None:
    """Build a wheel with the packages of our environment, which are pinned."""
    (source / "build").mkdir(exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-index"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(DIST), str(source)]
    quietly([*pip, *options], source, environment)


def quietly(command: list[str], place: Path, environment: dict[str, str] | None = None) -> None:
    """Run a command, and show what it said where it failed."""
    done = subprocess.run(
        command,
        cwd=place,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        sys.stdout.buffer.write(done.stdout)
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
