"""Builds Peeklock; pyproject.toml says all but which modules are compiled, and when."""

import os
import shutil
import sys
import sysconfig
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "peeklock"

# The hot path, compiled as one group so that its modules call each other in C.
HOT = (
    "budgets.py",
    "clock.py",
    "histogram.py",
    "large_dict.py",
    "step.py",
    "turns.py",
    "watchdog.py",
    "amqp/**/*.py",
    "entity/**/*.py",
    "store/appending.py",
    "store/codec/*.py",
    "store/segments/frames.py",
    "store/segments/log.py",
    "store/segments/tail.py",
    "broker/random_source.py",
    "broker/forwarding/*.py",
    "broker/partitioned/*.py",
    "broker/worker/*.py",
    "cluster/asking_origins.py",
    "cluster/partition_host.py",
    "cluster/remote_partition.py",
    "cluster/values.py",
    "gateway/identifiers.py",
    "gateway/amqp/**/*.py",
)
# The asyncio protocol class stays interpreted: it is thin, and asyncio calls it by name. So
# does what lets other threads run in between.
INTERPRETED = ("gateway/amqp/protocol.py", "store/codec/large.py")

# What `peeklock --version` reads in an installation that could not be compiled.
REASON = Path("peeklock") / "plain.txt"


def main() -> None:
    """Build what is asked for; `make compile` wants C or nothing."""
    if "bdist_wheel" in sys.argv:
        build_wheel()
    else:
        set_up(extensions() if "build" in sys.argv else [])


def build_wheel() -> None:
    """Build a compiled wheel, or a plain one with a warning that says why."""
    # What an earlier build left there would be packed as well, modules that are gone among it.
    for leftover in ROOT.glob("build/lib*"):
        shutil.rmtree(leftover, ignore_errors=True)
    problem = compiler_problem()
    if problem is None:
        try:
            set_up(extensions())
        # mypyc and setuptools both exit; whatever it is, the plain form works everywhere.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - told below, and in the wheel
            code = error.code if isinstance(error, SystemExit) else None
            said = f"exit code {code}" if isinstance(code, int) else str(code or error)
            # A compiler's command line is longer than what there is to say.
            said = textwrap.shorten(said.removeprefix("error: "), 120, placeholder=" ...")
            problem = f"compiling failed ({said})"
        else:
            return
    if is_pure_asked_for():
        problem = None
    set_up([], plain_because=problem)
    if problem is not None:
        sys.stderr.write(
            f"warning: Peeklock is built as plain Python, which is slower, because {problem}; "
            "PEEKLOCK_PURE=1 asks for that without this warning\n"
        )


def set_up(modules: list[Any], plain_because: str | None = None) -> None:
    """Run setuptools; the reason for being plain becomes a file of the package."""

    class BuildWithReason(build_py):
        def run(self) -> None:
            super().run()
            if plain_because is not None:
                (Path(self.build_lib) / REASON).write_text(plain_because + "\n")

    setup(ext_modules=modules, cmdclass={"build_ext": BuildInParallel, "build_py": BuildWithReason})


def extensions() -> list[Any]:
    """Return the hot modules as one compiled group."""
    # Imported late: a plain build needs no mypy.
    from mypyc.build import mypycify

    paths = [str(path.relative_to(ROOT)) for path in hot_modules()]
    config = "--config-file=pyproject.toml"
    # One C file per module runs as fast as one for all, and is compiled on all cores.
    return mypycify(
        [config, *paths], group_name="peeklock", multi_file=True, opt_level="3", debug_level="0"
    )


class BuildInParallel(build_ext):
    """Compiles the C files of the group side by side, and only those that are out of date."""

    def build_extensions(self) -> None:
        """Build as always, with a compiler that does several files at once."""
        self.compiler.compile = self._compile_files
        super().build_extensions()

    def _compile_files(
        self,
        sources: list[str],
        output_dir: str | None = None,
        macros: Any = None,
        include_dirs: Any = None,
        debug: bool = False,
        extra_preargs: Any = None,
        extra_postargs: Any = None,
        depends: Any = None,
    ) -> list[str]:
        compiler = self.compiler
        _, objects, postargs, preprocessor, build = compiler._setup_compile(
            output_dir, macros, include_dirs, sources, depends, extra_postargs
        )
        arguments = compiler._get_cc_args(preprocessor, debug, extra_preargs)
        # A header describes the classes of all modules, so that a changed one concerns each of
        # them; but not the file that only tells Python where the module is.
        header_time = max(map(_modified, ROOT.glob("build/*.h")), default=0.0)

        def compile_one(target: str) -> None:
            source, suffix = build[target]
            is_module = Path(source).parent.name == "build"
            changed = max(_modified(Path(source)), header_time if is_module else 0.0)
            if _modified(Path(target)) < changed:
                compiler._compile(target, source, suffix, arguments, postargs, preprocessor)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, objects))
        return list(objects)


def _modified(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def hot_modules() -> list[Path]:
    """List the modules that are compiled, in a stable order."""
    interpreted = {PACKAGE / name for name in INTERPRETED}
    found = {path for pattern in HOT for path in PACKAGE.glob(pattern)}
    return sorted(p for p in found - interpreted if p.name != "__init__.py")


def compiler_problem() -> str | None:
    """Say why nothing can be compiled here, or None when it can."""
    if is_pure_asked_for():
        return "PEEKLOCK_PURE asks for plain Python"
    command: str = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    compiler = command.split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python's C headers are missing (Python.h)"
    return None


def is_pure_asked_for() -> bool:
    """Tell whether whoever builds has chosen the plain form."""
    return os.environ.get("PEEKLOCK_PURE", "0") not in ("", "0")


if __name__ == "__main__":
    main()
