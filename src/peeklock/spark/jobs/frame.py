"""What all jobs share: their options, the session, tables in and out, and how they end.

A job ends with 0 when all is well, with 1 when it found what it looks for (an audit that found a
loss), with 2 when it could not be done.
"""

import re
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, TypeAlias, final

import typer

from peeklock.client.connections.connection_string import DEVELOPMENT, parse_connection_string
from peeklock.client.connections.endpoints import amqp_port
from peeklock.client.exceptions import ServiceBusError
from peeklock.spark.jobs.progress import Batches, Progress
from peeklock.spark.jvm import NoJava

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FOUND: Final = 1
IMPOSSIBLE: Final = 2

PARQUET: Final = "parquet"
DELTA: Final = "delta"
JSON: Final = "json"

# --- options that several jobs have

ConnectionString: TypeAlias = Annotated[
    str,
    typer.Option(
        "--connection-string",
        envvar=["PEEKLOCK_CONNECTION_STRING", "SERVICEBUS_CONNECTION_STRING"],
        help="How to reach the broker and with which key.",
        show_default="the development key on localhost",
    ),
]
HttpPort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        envvar="PEEKLOCK_HTTP_PORT",
        min=1,
        max=65535,
        help="The broker's port for HTTP.",
        show_default="that of the connection string",
    ),
]
Entities: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--entity",
        envvar="PEEKLOCK_ENTITY",
        help="A queue, topic or TOPIC/Subscriptions/NAME to look at; may be given several times.",
        show_default="all of the namespace",
    ),
]
Facts: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="PEEKLOCK_FACTS",
        help="A table of facts (a captured journal) to read instead of the broker's journal.",
    ),
]
Out: TypeAlias = Annotated[
    str, typer.Option(envvar="PEEKLOCK_OUT", help="The directory that the tables are written to.")
]
Form: TypeAlias = Annotated[
    Literal["parquet", "delta", "json"],
    typer.Option("--format", envvar="PEEKLOCK_FORMAT", help="How tables are written."),
]
Checkpoint: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="PEEKLOCK_CHECKPOINT",
        help="Where a stream keeps how far it is; storage that all runs of it see.",
        show_default="_checkpoint below the output",
    ),
]
Interval: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="PEEKLOCK_INTERVAL",
        help="Go on for ever, with a batch every so often (30s, 5m); else end when all that is "
        "there now was read.",
    ),
]
Master: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="PEEKLOCK_MASTER",
        help="The Spark to run on, such as local[2] or spark://host:7077.",
        show_default="what spark-submit was told, else local[*]",
    ),
]

_CONNECTED_WITHIN_S: Final = 5.0
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_LOCAL_PARTITIONS: Final = 8
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


# --- how a job starts and ends


class Impossible(Exception):
    """The job cannot be done; the text is for the user."""


def job(name: str) -> typer.Typer:
    """Make the program of a job; it gets one command."""
    return typer.Typer(
        name=name, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )


def run(app: typer.Typer, arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run a job by its arguments (those of this process by default) and leave with its status."""
    from pyspark.errors import PySparkException

    try:
        app(
            args=None if arguments is None else list(arguments),
            prog_name=program or f"{app.info.name}",
        )
    except (Impossible, NoJava, ServiceBusError, ValueError, OSError) as problem:
        _fail(str(problem))
    except PySparkException as problem:
        _fail(_told(problem))
    except Exception:  # noqa: BLE001 - Python would end with 1, as a job does that found something
        traceback.print_exc()
        sys.exit(IMPOSSIBLE)
    sys.exit(0)


def _fail(text: str) -> NoReturn:
    typer.secho(text, err=True, fg="red")
    sys.exit(IMPOSSIBLE)


def _told(problem: BaseException) -> str:
    """Return what a failure of Spark's means for people: the reason of it, without Java's stack."""
    lines = [line.strip() for line in str(problem).splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", "JVM stacktrace"))]
    # A Python source's own error is the last line of its traceback.
    causes = [line for line in told if re.match(r"[\w.]+(Error|Problem|Exception|Fenced): ", line)]
    first = told[0] if told else type(problem).__name__
    return first if not causes or causes[-1] == first else f"{first}\n{causes[-1]}"


@final
class JobRun:
    """A run of a job: its session, and what it tells while it goes on."""

    def __init__(self, name: str, master: str = "", **settings: str) -> None:
        self._name = name
        self._master = master
        self._settings = settings
        self._spark: SparkSession | None = None
        self.progress: Final = Progress(name)

    @property
    def spark(self) -> "SparkSession":
        """The session; one that is there (in spark-submit, in a notebook) is used."""
        if self._spark is None:
            from peeklock.spark.jvm import session

            with self.progress.step("starting Spark"):
                self._spark = session(
                    f"peeklock {self._name}", self._master or None, is_quiet=True, **self._settings
                )
            _fit(self._spark)
        return self._spark

    def tell(self, text: str) -> None:
        """Say what the job has done; on standard error, because output is for tables."""
        self.progress.say(text)

    def await_query(self, query: "StreamingQuery") -> int:
        """Wait until a stream ends, tell how far it is meanwhile, and count its rows."""
        batches = Batches()
        try:
            while not query.awaitTermination(1):
                self._take(query, batches)
                self.progress.show(batches.line())
        except KeyboardInterrupt:
            query.stop()
        self._take(query, batches)
        self.progress.say(batches.line())
        return batches.rows

    def _take(self, query: "StreamingQuery", batches: Batches) -> None:
        for event in query.recentProgress:
            batches.take(event)


def _fit(spark: "SparkSession") -> None:
    """Divide less on one machine: two hundred parts are for a cluster. Who chose a number keeps
    it."""
    is_chosen = spark.conf.get(_SHUFFLE_PARTITIONS) != "200"
    if not is_chosen and (spark.conf.get("spark.master", "") or "").startswith("local"):
        spark.conf.set(_SHUFFLE_PARTITIONS, _LOCAL_PARTITIONS)


def triggered(writer: "DataStreamWriter", interval: str) -> "DataStreamWriter":
    """Return a stream that ends when it has read all, or one with a batch every so often."""
    if not interval:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=spark_interval(interval))


def spark_interval(text: str) -> str:
    """Read 30s, 5m or `5 minutes`, and give it as Spark writes it."""
    match = re.fullmatch(r"(\d+)\s*([a-z]+)", text.strip().lower())
    if match is None:
        raise Impossible(f"'{text}' is not a length of time such as 30s or 5m")
    number, unit = match.groups()
    whole = _UNITS.get(unit) or next(
        (name for name in _UNITS.values() if unit in (name, name[:-1])), None
    )
    if whole is None:
        raise Impossible(f"'{text}' is not a length of time such as 30s or 5m")
    return f"{number} {whole}"


# --- tables


@final
class TableFolder:
    """A directory of tables in one form."""

    def __init__(self, location: str, form: str = PARQUET) -> None:
        self.location = location.rstrip("/")
        self._form = form

    def path(self, table: str) -> str:
        """Return where a table is."""
        return f"{self.location}/{table}"

    def write(self, rows: "DataFrame", table: str) -> None:
        """Write a table anew. Those of jobs are small, so that each is one file."""
        write_table(rows, self.path(table), self._form)

    def read(self, spark: "SparkSession", table: str) -> "DataFrame":
        """Read a table that was written."""
        return read_table(spark, self.path(table), self._form)


def write_table(rows: "DataFrame", path: str, form: str) -> None:
    """Write a table that a driver can hold, replacing what was there."""
    if form == DELTA:
        from deltalake import write_deltalake

        write_deltalake(path, rows.toArrow(), mode="overwrite", schema_mode="overwrite")
        return
    rows.coalesce(1).write.mode("overwrite").format(form).save(path)


def read_table(spark: "SparkSession", path: str, form: str = "") -> "DataFrame":
    """Read a table by what it is: JSON by its name, Delta by its log, Parquet otherwise."""
    from peeklock.spark.jobs import delta

    if not form:
        # By its name first: a file is asked in vain whether it is a table.
        is_json = path.rstrip("/").endswith((".json", ".jsonl"))
        form = JSON if is_json else DELTA if delta.is_table(path) else PARQUET
    if form == DELTA:
        return delta.read(spark, path)
    rows = spark.read.format(form).load(path)
    if form == PARQUET and dict(rows.dtypes).get("entity", "string") != "string":
        # Entities may be called 007: Spark takes directories with such names for numbers.
        kinds = (f"`{name}` {'string' if name == 'entity' else kind}" for name, kind in rows.dtypes)
        rows = spark.read.schema(", ".join(kinds)).format(form).load(path)
    return rows


def shown(rows: "DataFrame", limit: int = 50) -> list[dict[str, Any]]:
    """Return the first rows, for people."""
    return [row.asDict(recursive=True) for row in rows.limit(limit).collect()]


def print_rows(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table on standard output."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else f"{value}") for value in row.values()))
    Console(highlight=False).print(table if rows else f"{title}: none")


# --- the bus


@final
class Bus:
    """The broker that a job speaks with."""

    def __init__(self, connection_string: str, http_port: int | None) -> None:
        self.connection_string = connection_string or DEVELOPMENT
        self.http_port = http_port

    def check(self) -> None:
        """Raise `Impossible` at once where nobody listens, instead of after minutes of retries."""
        given = parse_connection_string(self.connection_string)
        port = given.port or amqp_port(is_local=given.is_plain)
        try:
            socket.create_connection((given.address, port), _CONNECTED_WITHIN_S).close()
        except OSError as error:
            raise Impossible(
                f"no broker answers at {given.address}:{port} ({error.strerror or error}): is it "
                "running, and is the connection string right?"
            ) from error

    @property
    def options(self) -> dict[str, str]:
        """What `format("servicebus")` needs to reach it."""
        options = {"connectionString": self.connection_string}
        return options if self.http_port is None else options | {"httpPort": str(self.http_port)}
