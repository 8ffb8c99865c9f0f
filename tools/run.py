"""Serves: compiled where that is built, else plain while the compiled copy is built beside it.

`make run` listens within seconds of the installation; the next start is compiled. Without a C
compiler, and with PEEKLOCK_PURE=1, it stays plain.
"""

import compileall
import fcntl
import os
import subprocess
import sys

from setup import ROOT, compiler_problem
from tools import compile

LOG = ROOT / "build" / "compile.log"
BESIDE = "--beside"


def main(arguments: list[str]) -> None:
    """Become the broker; with --beside, build what the next start is to serve."""
    if arguments == [BESIDE]:
        build_beside()
    else:
        serve(arguments)


def serve(arguments: list[str]) -> None:
    """Choose the form, say which and why, and become the broker."""
    environment = dict(os.environ)
    if is_compiled():
        environment["PYTHONPATH"] = str(compile.COPY)
    else:
        # Read quickly by all that comes after, even where writing bytecode is forbidden.
        compileall.compile_dir(ROOT / "src", quiet=1)
    command = [sys.executable, "-m", "peeklock", "serve", *arguments]
    os.execve(sys.executable, command, environment)


def is_compiled() -> bool:
    """Bring the compiled copy up to date where that takes no C; else say what is going on."""
    problem = compiler_problem()
    if problem is not None:
        say(f"Running as plain Python: {problem}.")
        return False
    if compile.is_current():
        # Only modules that stay Python may have changed, and are copied.
        if subprocess.run(["make", "--silent", "compile"], cwd=ROOT, check=False).returncode == 0:
            return True
        say("Running as plain Python: the compiled copy could not be made, see above.")
        return False
    log = LOG.relative_to(ROOT)
    say(
        "Serving as plain Python now. The compiled copy, which is several times as fast, is built "
        f"beside it ({log}); that takes a minute or two, and the next start serves it."
    )
    if not is_being_built():
        start_beside()
    return False


def is_being_built() -> bool:
    """Tell whether an earlier start still builds."""
    LOG.parent.mkdir(exist_ok=True)
    with compile.LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def start_beside() -> None:
    """Build in a session of its own, which goes on when Ctrl-C ends the broker."""
    command = [sys.executable, "-m", "tools.run", BESIDE]
    subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)


def build_beside() -> None:
    """Build the compiled copy with what the broker leaves of the machine, and tell how it went."""
    os.nice(10)
    with LOG.open("wb") as log:
        done = subprocess.run(
            ["make", "--silent", "compile"],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode == 0:
        say("The compiled copy is built: Ctrl-C and `make run` serve it.")
    else:
        say(
            f"Compiling failed ({LOG.relative_to(ROOT)} says why); serving goes on as plain Python."
        )


def say(text: str) -> None:
    """Print a line; the terminal may be gone when a build is over, which is no harm."""
    try:
        print(text, flush=True)
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
