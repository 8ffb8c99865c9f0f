"""Environments with nothing but what pip brings, from a directory that has all it needs."""

import fcntl
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
WHEELHOUSE = ROOT / "build" / "wheelhouse"
PROJECT = ROOT / "pyproject.toml"
CONSTRAINTS = ROOT / "constraints.txt"
RUNTIME_EXTRAS = ("compile", "postgres")


class Fresh:
    """A virtual environment without packages, not even pip."""

    def __init__(self, place: Path) -> None:
        self.bin = place / "bin"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)

    def install(self, *arguments: str, **environment: str) -> str:
        """Install as a user does, and return what pip and the build said."""
        python = ("--python", str(self.bin / "python"))
        # Bytecode is made when it is needed.
        return pip(*python, "install", "--verbose", "--no-compile", *arguments, **environment)

    def run(self, *command: str) -> str:
        """Run a program of the environment, and return what it printed."""
        return _run([str(self.bin / command[0]), *command[1:]], shell_environment())


def source_archive() -> Path:
    """The source as `make wheels` has packed it."""
    (archive,) = DIST.glob("peeklock-*.tar.gz")
    return archive


def wheel(*, is_compiled: bool) -> Path | None:
    """One of the wheels of `make wheels`; there may be no compiled one."""
    found = [
        path
        for path in DIST.glob("peeklock-*.whl")
        if path.name.endswith("-py3-none-any.whl") != is_compiled
    ]
    assert len(found) <= 1, found
    return found[0] if found else None


def fill_wheelhouse() -> None:
    """Fetch what Peeklock needs, and what builds it, once: everything after that is done alone."""
    WHEELHOUSE.mkdir(parents=True, exist_ok=True)
    wanted = PROJECT.read_text() + CONSTRAINTS.read_text() + " ".join(RUNTIME_EXTRAS)
    with (WHEELHOUSE / ".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = WHEELHOUSE / ".stamp"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        project = tomllib.loads(PROJECT.read_text())
        needed = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
        # What `make run` installs beside them.
        for extra in RUNTIME_EXTRAS:
            needed += project["project"]["optional-dependencies"][extra]
        for old in WHEELHOUSE.glob("*.whl"):
            old.unlink()
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
        options = ["--wheel-dir", str(WHEELHOUSE), "-c", str(CONSTRAINTS)]
        _run([*command, *options, *needed], dict(os.environ))
        stamp.write_text(wanted)


def pip(*arguments: str, **environment: str) -> str:
    """Run pip without the network, with the versions that the tests run with."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return _run(command, shell_environment() | environment)


def shell_environment() -> dict[str, str]:
    """The variables of a shell that has no package index but the wheelhouse."""
    # A compiler by the name of another one is a choice that tests make themselves.
    ours = {"PYTHONPATH", "PEEKLOCK_PURE", "CC"}
    return {name: value for name, value in os.environ.items() if name not in ours} | {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(WHEELHOUSE),
        # Holds in the environments that builds have for themselves, too.
        "PIP_CONSTRAINT": str(CONSTRAINTS),
        "PIP_NO_CACHE_DIR": "1",
    }


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout
