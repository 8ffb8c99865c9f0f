"""Makes the virtual environment; needs Python 3.11, and apt where the venv module is missing."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
# Debian ships Python without ensurepip; these are the packages that bring it.
VENV_PACKAGES = (f"python3.{sys.version_info.minor}-venv", "python3-venv")


def main(extra: str, stamp: str) -> None:
    """Install Peeklock with one of its extras, then leave a stamp that tells make when."""
    if sys.version_info < (3, 11):  # noqa: UP036 - make may have found an older python3
        sys.exit(f"Peeklock needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    if not (VENV / "bin" / "pip").exists():
        make_venv()
    requirement = f"{ROOT}[{extra}]" if extra else str(ROOT)
    print(f"Installing into {VENV.name} (once; pip fetches what is missing).", flush=True)
    install("setuptools")
    # The environment has setuptools, so the build needs no isolated one; editable means plain.
    install("--no-build-isolation", "--editable", requirement)
    write_launcher()
    if extra == "dev":
        install_more()
    Path(stamp).touch()


def write_launcher() -> None:
    """Let .venv/bin/peeklock be compiled as soon as `make run` or `make compile` has built that."""
    program = VENV / "bin" / "peeklock"
    launcher = ROOT / "tools" / "launcher.py"
    # By way of sh, because a first line may be neither long nor have spaces.
    text = f"""#!/bin/sh
'''exec' "{VENV / "bin" / "python"}" "$0" "$@"
' '''
import runpy

runpy.run_path({str(launcher)!r}, run_name="__main__")
"""
    program.write_text(text)
    program.chmod(0o755)


def install_more() -> None:
    """Install what only some tests need and what cannot be had everywhere: clients of wire tests,
    and the fuzzer; their tests are skipped where that fails."""
    # Built from source, in isolation because it needs more than we do.
    install_if_possible(
        "python-qpid-proton", otherwise="it needs a C compiler and Python's headers"
    )
    # The C library below the older transport of the official Python client, which is no more built
    # for new versions of Python.
    install_if_possible(
        "uamqp", "--only-binary=:all:", otherwise="there is no wheel of it for this Python"
    )
    # Looks for inputs that surprise, in `make torture`; it brings a libFuzzer of its own.
    install_if_possible(
        "atheris", "--only-binary=:all:", otherwise="there is no wheel of it for this Python"
    )


def install_if_possible(package: str, *options: str, otherwise: str) -> None:
    """Install a package, or say why that failed and what its absence means."""
    try:
        install(*options, package)
    except subprocess.CalledProcessError:
        print(f"{package} could not be installed ({otherwise}); the tests that need it are skipped")


def make_venv() -> None:
    """Make the empty environment, bringing the venv module by apt where the system left it out."""
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    if subprocess.run(command, check=False).returncode == 0:
        return
    if shutil.which("apt-get") is None:
        sys.exit("this Python has no working venv module and there is no apt-get to bring it")
    for package in VENV_PACKAGES:
        if apt_install(package):
            break
    subprocess.run(command, check=True)


def apt_install(*packages: str) -> bool:
    """Install system packages and say whether that worked; the package lists are fetched first."""
    prefix = [] if is_root() else ["sudo"]
    subprocess.run([*prefix, "apt-get", "update", "-qq"], check=False)
    done = subprocess.run([*prefix, "apt-get", "install", "-y", "-qq", *packages], check=False)
    return done.returncode == 0


def is_root() -> bool:
    """Tell whether this process may install system packages by itself."""
    return subprocess.run(["id", "-u"], capture_output=True, check=True).stdout.strip() == b"0"


def install(*arguments: str) -> None:
    """Run pip with the versions that the tests run with."""
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--quiet", "-c", str(ROOT / "constraints.txt"), *arguments], check=True)


if __name__ == "__main__":
    main(extra=sys.argv[1], stamp=sys.argv[2])
