"""Builds the compiled copy of the package, build/compiled, from the source of the plain one."""

import ast
import compileall
import fcntl
import hashlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from setup import ROOT, compiler_problem, hot_modules

SOURCE = ROOT / "src"
COPY = ROOT / "build" / "compiled"
# The digest of what was compiled last.
COMPILED = COPY / ".digest"
# Held while a build is under way.
LOCK = COPY.parent / ".lock"


def main() -> None:
    """Build the copy, or say why that is not possible here."""
    problem = compiler_problem()
    if problem is not None:
        sys.exit(f"cannot compile: {problem}")
    COPY.mkdir(parents=True, exist_ok=True)
    # Two builds at once would write the same files; the second one waits and finds little to do.
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build()


def build() -> None:
    """Bring the copy up to date and leave with the build's exit code."""
    remove_leftovers()
    digest = digest_of(compiled_sources())
    has_c = is_current(digest)
    COMPILED.unlink(missing_ok=True)
    command = [sys.executable, "setup.py", "--quiet"]
    if has_c:
        # Only modules that stay Python have changed: they are copied.
        command += ["build_py"]
    else:
        count = len(hot_modules())
        print(f"Compiling {count} modules to C; the first time takes about a minute.", flush=True)
        command += ["build"]
    # Objects stay where setuptools puts them: `pip install .` finds what has not changed.
    done = subprocess.run([*command, "--build-lib", str(COPY)], cwd=ROOT, check=False)
    if done.returncode == 0:
        COMPILED.write_text(digest)
        # What stays Python is read quickly even where the environment forbids writing bytecode.
        compileall.compile_dir(COPY, quiet=1)
    sys.exit(done.returncode)


def is_current(digest: str | None = None) -> bool:
    """Tell whether all C is there, and of today's sources; Python may have to be copied."""
    if not COMPILED.exists() or missing():
        return False
    return COMPILED.read_text() == (digest or digest_of(compiled_sources()))


def compiled_sources() -> list[Path]:
    """List the files that decide what the C files say: the hot modules, and all that they import,
    because mypyc reads its types."""
    found: set[Path] = set()
    left = list(hot_modules())
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += imported_by(path)
    return sorted([*found, ROOT / "setup.py", ROOT / "pyproject.toml"])


def imported_by(path: Path) -> list[Path]:
    """List the files of the package that a file imports, by whatever form of import."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    places = [SOURCE.joinpath(*name.split(".")) for name in names]
    files = [*(place.with_suffix(".py") for place in places), *(p / "__init__.py" for p in places)]
    return [file for file in files if file.exists()]


def digest_of(paths: list[Path]) -> str:
    """Return what changes when one of the files, Python or mypy does."""
    digest = hashlib.sha256(f"{sys.version} mypy {version('mypy')}".encode())
    for path in paths:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def missing() -> list[Path]:
    """List the hot modules that have no compiled form in the copy."""
    folders = {path: (COPY / path.relative_to(SOURCE)).parent for path in hot_modules()}
    return [path for path, place in folders.items() if not any(place.glob(f"{path.stem}.*.so"))]


def remove_leftovers() -> None:
    """Remove what an earlier build made of modules that are gone, or hot no longer."""
    hot = {path.relative_to(SOURCE).with_suffix("") for path in hot_modules()}
    for built in [*COPY.glob("peeklock/**/*.py"), *COPY.glob("peeklock/**/*.so")]:
        module = built.relative_to(COPY).with_name(built.name.split(".")[0])
        has_source = (SOURCE / module).with_suffix(".py").exists()
        if not has_source or (built.suffix == ".so" and module not in hot):
            built.unlink()


if __name__ == "__main__":
    main()
