"""Serves: compiled where a C compiler is there, plain where none is or PEEKLOCK_PURE=1 is set."""

import compileall
import os
import subprocess
import sys

from setup import ROOT, compiler_problem


def main() -> None:
    """Build what is missing, then become the broker."""
    environment = dict(os.environ)
    problem = compiler_problem()
    if problem is None:
        done = subprocess.run(["make", "--silent", "compile"], cwd=ROOT, check=False)
        if done.returncode != 0:
            problem = "compiling failed, see above"
    if problem is None:
        environment["PYTHONPATH"] = str(ROOT / "build" / "compiled")
    else:
        print(f"Running as plain Python: {problem}.", flush=True)
        compileall.compile_dir(ROOT / "src", quiet=1)
    command = [sys.executable, "-m", "peeklock", "serve", *sys.argv[1:]]
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main()
