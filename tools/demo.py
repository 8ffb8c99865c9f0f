"""The demonstration: a broker, a shop whose workers fail, the pipeline beside it, and one page.

Takes PEEKLOCK_DEMO_SECONDS (120) and writes the page to PEEKLOCK_DEMO_PAGE (build/demo/demo.html).
"""

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from peeklock.spark.jobs import (
    audit,
    capture,
    frame,
    replay,
    report,
    rollup,
    skew,
    triage,
    tune,
)
from peeklock.spark.jobs.pages.page import PageSection, write_page
from tools.shop import ARCHIVE, CONFIGURATION, NO_ADDRESS, ORDERS, Shop

ROOT: Final = Path(__file__).parent.parent
READY_WITHIN_S: Final = 60.0
ORDERS_PER_S: Final = 60.0
# What a round of the pipeline takes at least; it may take longer.
ROUND_S: Final = 8.0
# The share of the time after which somebody repairs the addresses.
REPAIRED_AT: Final = 0.5
QUICK: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


@final
class Broker:
    """`peeklock serve` in a process of its own, on free ports, with a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.amqp_port, self.http_port = _free_ports()
        config = directory / "Config.json"
        config.write_text(json.dumps(CONFIGURATION))
        self._log = directory / "broker.log"
        self._command = [
            *(sys.executable, "-m", "peeklock", "serve"),
            *("--data", str(directory / "data"), "--config", str(config)),
            *("--amqp-port", str(self.amqp_port), "--http-port", str(self.http_port)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connection_string(self) -> str:
        """How everybody reaches it."""
        return (
            f"Endpoint=sb://localhost:{self.amqp_port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )

    def __enter__(self) -> "Broker":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + READY_WITHIN_S
        while "Peeklock is ready" not in self._log.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the broker did not start:\n{self._log.read_text()}")
            time.sleep(0.05)
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)


def _free_ports() -> tuple[int, int]:
    # Both at once, so that they are not the same.
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@final
class Board:
    """What is seen while it runs: the steps, and the shop's counts."""

    def __init__(self, shop: Shop, seconds: float) -> None:
        self._shop = shop
        self._seconds = seconds
        self._began = time.monotonic()
        self._steps: list[tuple[str, float | None]] = []
        self._console: Console | None = None

    @contextlib.contextmanager
    def shown_on(self, console: Console) -> Iterator[None]:
        """Show it: it changes on a terminal, and is a line for each step elsewhere."""
        self._console = console
        if not console.is_terminal:
            yield
            return
        # What is said meanwhile has a place of its own.
        with Live(self, console=console, redirect_stdout=False, redirect_stderr=False):
            yield

    @property
    def elapsed_s(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._began

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show that something is being done, and afterwards how long it took."""
        began = time.monotonic()
        if self._console is not None and not self._console.is_terminal:
            self._console.print(f"{self.elapsed_s:4.0f} s  {text}", soft_wrap=True)
        self._steps.append((text, None))
        at = len(self._steps) - 1
        yield
        self._steps[at] = (text, time.monotonic() - began)

    def __rich__(self) -> Group:
        steps = Table(box=None, show_header=False)
        for text, took_s in self._steps[-12:]:
            mark, style = ("…", "bold") if took_s is None else ("✓", "green")
            steps.add_row(
                Text(mark, style=style), text, "" if took_s is None else f"{took_s:.1f} s"
            )
        counts = ", ".join(f"{count:,} {name}" for name, count in self._shop.counts.items())
        head = f"{self.elapsed_s:4.0f} s of about {self._seconds:.0f} s   the shop: {counts}"
        return Group(Text(head), steps)


@final
class Demo:
    """The pipeline beside the shop."""

    def __init__(self, directory: Path, broker: Broker, shop: Shop, board: Board) -> None:
        self._directory = directory
        self._shop = shop
        self._board = board
        self._bus: dict[str, Any] = {
            "connection_string": broker.connection_string,
            "http_port": broker.http_port,
        }

    def _out(self, name: str) -> str:
        return str(self._directory / name)

    def _job(self, text: str, job: Callable[..., None], *arguments: Any, **options: Any) -> None:
        """Run a job as its command does; its tables are for the page."""
        with self._board.step(text), contextlib.redirect_stdout(io.StringIO()):
            job(*arguments, **self._bus, **options)

    def run(self, seconds: float) -> None:
        """Run the pipeline round by round; in the middle the dead letters are dealt with."""
        number = 0
        is_repaired = False
        while self._board.elapsed_s < seconds or not is_repaired:
            began = time.monotonic()
            number += 1
            self._round(number)
            if not is_repaired and self._board.elapsed_s >= REPAIRED_AT * seconds:
                self._repair()
                is_repaired = True
            # Not longer than it lasts, and not at all when it has been long enough.
            pause_s = min(ROUND_S - (time.monotonic() - began), seconds - self._board.elapsed_s)
            time.sleep(max(pause_s, 0))

    def _round(self, number: int) -> None:
        self._job(
            f"capture {number}: new events go to a Delta table",
            capture.capture,
            ARCHIVE,
            out=self._out("lake"),
        )
        self._job(
            f"rollup {number}: the journal goes on where it was",
            rollup.rollup,
            out=self._out("rollup"),
            stream=True,
        )

    def _repair(self) -> None:
        self._job(
            "triage: what are the dead letters about?", triage.triage, out=self._out("triage")
        )
        with self._board.step("somebody repairs the addresses"):
            self._shop.is_repaired = True
        self._job(
            f"replay: dead letters with reason {NO_ADDRESS}, at most 200/s",
            replay.replay,
            ORDERS,
            replay_id="demo",
            where=f"dead_letter_reason = '{NO_ADDRESS}'",
            rate=200,
            out=self._out("replay"),
        )

    def finish(self) -> int:
        """Let the shop finish, look at all of it once more, and give the status of the audit."""
        with self._board.step("the shop closes, its workers finish"):
            self._shop.close(within_s=40)
        self._round(0)
        self._job("skew: who is loaded how much?", skew.skew, out=self._out("skew"))
        self._job("tune: what should be set?", tune.tune, out=self._out("tune"))
        log = self._directory / "sent.json"
        log.write_text("".join(json.dumps(row) + "\n" for row in self._shop.sent))
        status = 0
        try:
            self._job(
                "audit: is every order where it belongs?",
                audit.audit,
                entity=[ORDERS],
                sent=str(log),
                out=self._out("audit"),
            )
        except Exception as ended:
            status = getattr(ended, "exit_code", None) or frame.IMPOSSIBLE
            if status != frame.FOUND:
                raise
        return status

    def write(self, page: Path) -> None:
        """Write the page."""
        with self._board.step(f"the page is written to {page}"):
            spark = frame.JobRun("demo").spark
            lake = frame.read_table(spark, self._out("lake"))
            undo = frame.read_table(spark, self._out("replay/undo"))
            story = PageSection("The demonstration", _STORY)
            for name, count in self._shop.counts.items():
                story.figure(name, count)
            story.figure("events in the lake", lake.count())
            story.figure("dead letters replayed", undo.count())
            made = [
                report.make_section(spark, name, frame.TableFolder(self._out(name)))
                for name in ("audit", "rollup", "triage", "skew", "tune")
            ]
            sample = lake.orderBy("sequence_number").select(
                "sequence_number", "enqueued_time", "message_id", "subject", "entity"
            )
            rows = frame.shown(sample, 10)
            section = PageSection("Lake", "The first events.")
            section.table("Captured events", rows)
            made.append(section)
            write_page(str(page), "A shop on Peeklock", "One run of `make demo`.", [story, *made])


_STORY: Final = (
    "Orders come in and become parcels and events. Some have no address and are dead-lettered, "
    "some meet a service that is down, some take longer than their lock. Beside the shop the "
    "pipeline captures the events into a Delta table and rolls up the journal; in the middle the "
    "dead letters are looked through, the cause of most is repaired, and those are replayed. At "
    "the end every order that was sent is looked for."
)


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[Console]:
    """Send what jobs and Java say to a file, and keep the terminal for the board."""
    terminal = os.dup(2)
    with log.open("w") as said, os.fdopen(terminal, "w") as shown:
        os.dup2(said.fileno(), 2)
        try:
            yield Console(file=shown)
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)


def main() -> None:
    """Run it, and show the page where there is a browser."""
    seconds = float(os.environ.get("PEEKLOCK_DEMO_SECONDS", "120"))
    page = Path(os.environ.get("PEEKLOCK_DEMO_PAGE", ROOT / "build" / "demo" / "demo.html"))
    directory = page.parent / "run"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    # What jobs tell is in the steps; the rest goes to a file beside the page.
    with Broker(directory) as broker:
        shop = Shop(broker.connection_string, ORDERS_PER_S)
        board = Board(shop, seconds)
        with _quiet(directory / "jobs.log") as console, board.shown_on(console):
            shop.open()
            with board.step("Spark starts"):
                frame.JobRun("demo", "local[2]", **QUICK).spark.range(1).count()
            demo = Demo(directory, broker, shop, board)
            demo.run(seconds)
            status = demo.finish()
            demo.write(page)
    print(f"The page is {page}")
    if sys.stdout.isatty():
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(page.resolve().as_uri())
    sys.exit(status)


if __name__ == "__main__":
    main()
