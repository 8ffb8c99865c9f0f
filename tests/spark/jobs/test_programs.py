"""The jobs as programs: documented, found by the command line, and run three ways."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from peeklock.cli.pipeline import JOBS
from peeklock.client.exceptions import ServiceBusError
from peeklock.spark.jobs import frame
from peeklock.spark.jvm import NoJava, java_home
from tests.spark.environments import BRIEF
from tests.spark.jobs.commands import run_command
from tests.spark.jobs.made_facts import MadeFacts

# Each of them starts several jobs, and some a Spark of their own.
pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[3]
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
    # Some jobs import Spark as they begin, others when they need it.
    each = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from peeklock.cli.main import app\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        app(['pipeline', name, '--help'])\n"
        "    except SystemExit as ended:\n"
        "        print(name, ended.code)\n"
    )
    missing = subprocess.run(
        [sys.executable, "-c", each, *JOBS], capture_output=True, text=True, check=True
    )
    assert missing.stdout.splitlines() == [f"{name} 2" for name in JOBS]
    assert missing.stderr.count("pip install '.[pipeline]'") == len(JOBS)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (NoJava("Spark needs Java"), "Spark needs Java\n"),
        (ServiceBusError("the lock is gone"), "the lock is gone\n"),
        (RuntimeError("nobody thought of this"), "RuntimeError: nobody thought of this\n"),
    ],
)
def test_what_could_not_be_done_is_nothing_that_was_found(
    problem: Exception, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-D5: an audit ends with 1 only when it found a loss."""
    app = frame.job("failing")

    @app.command()
    def failing() -> None:
        raise problem

    with pytest.raises(SystemExit) as ended:
        frame.run(app, [])
    assert ended.value.code == frame.IMPOSSIBLE
    error = capsys.readouterr().err
    assert error.endswith(told)
    assert ("Traceback" in error) is isinstance(problem, RuntimeError)


@pytest.mark.parametrize(
    ("name", "given", "option"), [("triage", [], "--page"), ("report", ["--tune", "x"], "--out")]
)
def test_a_page_that_cannot_be_written_is_told_before_the_work(
    name: str, given: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"peeklock.spark.jobs.{name}")
    with pytest.raises(SystemExit) as ended:
        module.main([*given, "--out", "s3a://bucket/found"])
    assert ended.value.code == frame.IMPOSSIBLE
    told = capsys.readouterr().err
    assert "a page is a local file, and 's3a://bucket/found" in told
    assert f"name one with {option}" in told


def test_a_length_of_time_is_read() -> None:
    assert [
        frame.spark_interval(text) for text in ("30s", "5m", "2 minutes", "1 hour", "250ms")
    ] == [
        "30 seconds",
        "5 minutes",
        "2 minutes",
        "1 hours",
        "250 milliseconds",
    ]
    for text in ("soon", "5", "5 fortnights"):
        with pytest.raises(frame.Impossible, match="not a length of time"):
            frame.spark_interval(text)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `audit` has written: the smallest job reports of it."""
    path = tmp_path_factory.mktemp("found")
    tables = {
        "verdicts": {"verdict": ["fine"], "messages": [3]},
        "offending": {"message_id": ["m-7"], "verdict": ["lost"]},
    }
    for name, columns in tables.items():
        (path / name).mkdir()
        pq.write_table(pa.table(columns), path / name / "part-0.parquet")
    return path


def test_a_job_is_submitted(found: Path, tmp_path: Path) -> None:
    """R-D6: the same file as the command's, started by spark-submit."""
    program = str(ROOT / "src" / "peeklock" / "spark" / "jobs" / "report.py")
    submit = str(Path(sys.executable).parent / "spark-submit")
    # What starts Java before any Python has to be told where both are.
    told = {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [
            *(submit, "--master", "local[1]", program),
            *("--audit", str(found), "--out", str(tmp_path / "page.html")),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | BRIEF | told,
    )
    assert done.returncode == 0, done.stderr
    assert "m-7" in (tmp_path / "page.html").read_text()


def test_a_job_is_a_calm_command_that_ends_with_its_table(tmp_path: Path) -> None:
    """R-D6: by no activated environment; nothing of Spark's or Java's own is told."""
    history = MadeFacts()
    for turn in range(12):
        history.handled(turn * 1_000, wait_ms=1, work_ms=7)
    history.send(20_000)
    facts = tmp_path / "facts"
    facts.mkdir()
    pq.write_table(history.arrow(), facts / "part-0.parquet")
    out = tmp_path / "rolled"
    told = run_command(
        *("rollup", "--master", "local[1]"),
        *("--facts", str(facts), "--out", str(out), "--format", "parquet"),
    )
    assert told.code == 0, told.lines
    assert [line for line in told.lines if not line.startswith("rollup: ")] == []
    assert told.lines[-1] == f"rollup: 1 minutes are in {out}"
    heads, values = (
        [cell.strip() for cell in re.split("[┃│]", line)[1:-1]]
        for line in told.output.splitlines()
        if "sends" in line or "orders" in line
    )
    row = dict(zip(heads, values, strict=True))
    known = {"entity": "orders", "sends": "13", "deliveries": "12", "completes": "12"}
    assert row | known | {"backlog": "1"} == row
