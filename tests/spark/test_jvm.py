"""A Java is found or brought along, and Spark starts with nothing but packages (R-D1)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from peeklock.spark import jvm
from tests.spark.environments import fresh_environment, run_without_java

# Starts a session, runs a job with Python workers in it, and tells which Java that was.
PROGRAM = """
from pyspark.sql.functions import udf
from peeklock.spark.jvm import session
spark = session("fresh", "local[1]", **{"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
rows = spark.range(4).select(udf(lambda n: n, "long", useArrow=False)("id")).collect()
print("rows", len(rows), "java", spark.sql("select java_method('java.lang.System', "
      "'getProperty', 'java.home')").first()[0])
spark.stop()
"""


def fake_java(directory: Path, version: str) -> Path:
    """A program that says it is a Java."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return directory


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with no Java in it, and a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_java_home_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(bare / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(fake_java(bare / "other", "17.0.2") / "bin"))
    assert jvm.java_home() == home


@pytest.mark.parametrize("version", ["17.0.12", "21", "25-ea"])
def test_then_comes_the_java_on_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    home = fake_java(bare / "home", version)
    links = bare / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))
    assert jvm.java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_an_old_java_on_the_path_is_passed_by(
    bare: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("PATH", str(fake_java(bare / "home", version) / "bin"))
    assert jvm.java_home().is_relative_to(bare / "cache")


def test_what_java_home_names_must_be_a_java_and_new_enough(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "nothing"))
    with pytest.raises(jvm.NoJava, match="JAVA_HOME names no Java"):
        jvm.java_home()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", "11.0.2")))
    with pytest.raises(jvm.NoJava, match="JAVA_HOME names Java 11, and Spark needs 17 or newer"):
        jvm.java_home()


def test_the_java_that_was_brought_along_is_started_through_a_shim(bare: Path) -> None:
    home = jvm.java_home()
    java = str(home / "bin" / "java")
    asked = [java, "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    told = subprocess.run(
        asked, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert 'version "21' in told.stderr
    assert jvm.java_home() == home, "it is written once"


def test_the_shim_finds_a_place_where_the_cache_cannot_be_written(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / "cache").write_text("a file, and no directory")
    home = jvm.java_home()
    try:
        assert (home / "bin" / "java").is_file()
    finally:
        shutil.rmtree(home)


@pytest.mark.torture
def test_a_fresh_environment_has_all_that_is_needed(tmp_path: Path) -> None:
    """R-D1: `pip install 'peeklock[spark]'` of the wheel, in an empty environment."""
    python = fresh_environment(tmp_path, extra="[spark]")
    told = run_without_java(python, PROGRAM, tmp_path)
    assert told.startswith(f"rows 4 java {tmp_path}/fresh/lib/python")
