"""Builds Peeklock; pyproject.toml says all but which modules are compiled, and when."""

import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "peeklock"

# The hot path, compiled as one group so that its modules call each other in C.
HOT = (
    "budgets.py",
    "step.py",
    "amqp/*.py",
    "entity/*.py",
    "entity/rules/*.py",
    "store/records.py",
    "store/facts.py",
    "store/note_facts.py",
    "store/claim_facts.py",
    "store/stage_facts.py",
    "store/kinds.py",
    "store/packing.py",
    "store/traits.py",
    "broker/answering.py",
    "broker/asking.py",
    "broker/attached.py",
    "broker/bodies.py",
    "broker/carrier.py",
    "broker/chance.py",
    "broker/chores.py",
    "broker/claims.py",
    "broker/committing.py",
    "broker/company.py",
    "broker/declining.py",
    "broker/forgetting.py",
    "broker/gathering.py",
    "broker/haul.py",
    "broker/ledger.py",
    "broker/mailbox.py",
    "broker/reach.py",
    "broker/rerouting.py",
    "broker/route.py",
    "broker/seeking.py",
    "broker/spread.py",
    "broker/stages.py",
    "broker/taking.py",
    "broker/walking.py",
    "broker/worker.py",
    "gateway/identifiers.py",
    "gateway/amqp/*.py",
)
# The asyncio protocol class stays interpreted: it is thin, and asyncio calls it by name.
INTERPRETED = ("gateway/amqp/protocol.py",)

BUILDING = {"build", "build_ext", "bdist_wheel", "install"}


def extensions() -> list[Any]:
    """Return the hot modules as one compiled group, or nothing where the build stays plain."""
    if BUILDING.isdisjoint(sys.argv) or compiler_problem() is not None:
        return []
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
        # A header describes the classes of all modules, so that a changed one concerns every file.
        header_time = max(map(_modified, ROOT.glob("build/*.h")), default=0.0)

        def compile_one(target: str) -> None:
            source, suffix = build[target]
            if _modified(Path(target)) < max(_modified(Path(source)), header_time):
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
    if os.environ.get("PEEKLOCK_PURE", "0") not in ("", "0"):
        return "PEEKLOCK_PURE asks for plain Python"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python's C headers are missing (Python.h)"
    return None


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildInParallel})
