"""Builds the compiled copy of the package, build/compiled, from the source of the plain one."""

import compileall
import fcntl
import subprocess
import sys

from setup import ROOT, compiler_problem, hot_modules

SOURCE = ROOT / "src"
COPY = ROOT / "build" / "compiled"


def main() -> None:
    """Build the copy, or say why that is not possible here."""
    problem = compiler_problem()
    if problem is not None:
        sys.exit(f"cannot compile: {problem}")
    COPY.mkdir(parents=True, exist_ok=True)
    # Two builds at once would write the same files; the second one waits and finds little to do.
    with (COPY.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build()


def build() -> None:
    """Bring the copy up to date and leave with the build's exit code."""
    remove_leftovers()
    print(
        f"Compiling {len(hot_modules())} modules to C; the first time this takes about a minute.",
        flush=True,
    )
    command = [sys.executable, "setup.py", "--quiet", "build"]
    # Objects stay where setuptools puts them: `pip install .` finds what has not changed.
    done = subprocess.run([*command, "--build-lib", str(COPY)], cwd=ROOT, check=False)
    if done.returncode == 0:
        # What stays Python is read quickly even where the environment forbids writing bytecode.
        compileall.compile_dir(COPY, quiet=1)
    sys.exit(done.returncode)


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
