"""The jobs as programs: documented, found by the command line, and run three ways."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from peeklock.cli.pipeline import JOBS
from tests.spark.planted import Planted

# Each of them starts several jobs, and some a Spark of their own.
pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference" / "pipeline.md").read_text()


def parameters(name: str) -> list[Any]:
    module = importlib.import_module(f"peeklock.spark.jobs.{name}")
    command: Any = typer.main.get_command(module.app)
    return [one for one in command.params if one.name != "help"]


@pytest.mark.parametrize("name", JOBS)
def test_every_option_is_in_the_reference(name: str) -> None:
    [section] = re.findall(rf"^## {name}\n(.*?)(?=^## )", REFERENCE, re.DOTALL | re.MULTILINE)
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    written = {re.findall(r"`([^`]+)`", row)[0]: row for row in rows}
    options = {
        one.opts[0] if one.param_type_name == "option" else one.name.upper(): one
        for one in parameters(name)
    }
    assert list(written) == list(options)
    for option, one in options.items():
        row = written[option].replace("`", "")
        variables = [one.envvar] if isinstance(one.envvar, str) else list(one.envvar or ())
        assert one.help.replace("`", "") in row
        assert [variable for variable in variables if variable not in row] == []
        default = one.show_default if isinstance(one.show_default, str) else one.default
        if default not in (None, "", False):
            assert f"{default}" in row


def test_every_program_is_a_command() -> None:
    folder = ROOT / "src" / "peeklock" / "spark" / "jobs"
    programs = {
        path.stem for path in folder.glob("*.py") if '__name__ == "__main__"' in path.read_text()
    }
    assert programs == set(JOBS)


def test_no_job_leaves_the_dataframes() -> None:
    """R-D6: what only the driver's JVM has is not there on Spark Connect."""
    folder = ROOT / "src" / "peeklock" / "spark" / "jobs"
    inner = re.compile(r"sparkContext|_jvm|_jdf|_jsparkSession|\.rdd\b|toPandas")
    assert [path.name for path in folder.glob("*.py") if inner.search(path.read_text())] == []


def test_help_does_not_wait_for_spark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from peeklock.cli.main import app\n"
        "app(sys.argv[1:])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, "pipeline", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "rollup" in told.stdout
    missing = subprocess.run(
        [sys.executable, "-c", code, "pipeline", "rollup"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert missing.returncode == 1
    assert "pip install 'peeklock[pipeline]'" in missing.stderr.replace("\n", "")


def test_a_length_of_time_is_read() -> None:
    from peeklock.spark.jobs.frame import Impossible, spark_interval

    assert [spark_interval(text) for text in ("30s", "5m", "2 minutes", "1 hour", "250ms")] == [
        "30 seconds",
        "5 minutes",
        "2 minutes",
        "1 hours",
        "250 milliseconds",
    ]
    for text in ("soon", "5", "5 fortnights"):
        with pytest.raises(Impossible, match="not a length of time"):
            spark_interval(text)


@pytest.fixture(scope="module")
def facts(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("facts") / "table"
    planted = Planted()
    planted.handled(0, 10, 10)
    planted.table(spark).write.parquet(str(path))
    return path


@pytest.mark.parametrize("way", ["command", "spark-submit"])
def test_a_job_runs_as_a_command_and_is_submitted(way: str, facts: Path, tmp_path: Path) -> None:
    """R-D6: the same file, started by us or by spark-submit."""
    program = str(ROOT / "src" / "peeklock" / "spark" / "jobs" / "audit.py")
    submit = str(Path(sys.executable).parent / "spark-submit")
    command = {
        "command": [sys.executable, "-m", "peeklock", "pipeline", "audit", "--master", "local[1]"],
        "spark-submit": [submit, "--master", "local[1]", program],
    }[way]
    done = subprocess.run(
        [*command, "--facts", str(facts), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "fine" in done.stdout
