"""Programs in processes of their own: in environments without Java, or made of our wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# For a Java that ends before it is worth being optimized.
BRIEF = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def run_without_java(python: str, program: str, directory: Path, *arguments: str) -> str:
    """Run a program, and give the last line that it printed."""
    tools = directory / "tools"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    done = subprocess.run(
        [python, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tools), "HOME": str(directory)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def fresh_environment(directory: Path, *requirements: str, extra: str = "") -> str:
    """Build our wheel, install it into an empty environment, and give that one's Python.

    It has the versions that the tests run with, but for what is required otherwise.
    """
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    quiet = ["-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory)]
    subprocess.run(
        [sys.executable, *quiet, *build, str(source)],
        check=True,
        env=os.environ | {"PEEKLOCK_PURE": "1"},
    )
    (wheel,) = directory.glob("peeklock-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(directory / "fresh")], check=True)
    python = str(directory / "fresh" / "bin" / "python")
    others = tuple(one.partition("==")[0] for one in requirements)
    pinned = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.partition("==")[0] not in others
    ]
    (directory / "constraints.txt").write_text("\n".join(pinned))
    install = [
        "install",
        "-c",
        str(directory / "constraints.txt"),
        *requirements,
        f"{wheel}{extra}",
    ]
    subprocess.run([python, *quiet, *install], check=True)
    return python
