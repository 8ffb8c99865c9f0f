"""What does an administration call cost with 10,000 entities, and how soon does the broker start?

Two servers side by side: one with a page of queues, so that lists answer as much, and one with
10,000, both given by administration over HTTP. Both get the same calls over one connection,
interleaved by kind.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, final

from bench import proc
from bench.figures import machine, median, spread, table
from bench.http_line import HttpLine, request
from bench.peeklock_server import Peeklock
from bench.plan import Plan

ENTITIES: Final = 10_000
CALLS: Final = 100
PAGE: Final = 100
SETTINGS: Final = {"entities_max": "20000"}
VERSION: Final = "api-version=2021-05"
TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"
KINDS: Final = ("create", "get", "update", "list, first page", "list, last page", "delete")


def answer(plan: Plan) -> None:
    """Fill one server, call both, and start them again."""
    print(machine(plan.directory))
    entities = ENTITIES // (20 if plan.quick else 1)
    calls = CALLS // (5 if plan.quick else 1)
    with ExitStack() as stack:
        offices = {
            count: _Office(stack.enter_context(_server(plan, f"{count}")), count)
            for count in (PAGE, entities)
        }
        offices[PAGE].fill()
        creating_s = offices[entities].fill()
        for _ in range(plan.rounds):
            for kind in KINDS:
                for office in offices.values():
                    office.call(kind, calls)
        _show_filling(creating_s)
        _show_calls(offices[PAGE], offices[entities])
        starts = {
            f"{count:,} queues in the store": _starts(office, plan)
            for count, office in offices.items()
        }
    starts |= _configured_starts(plan, entities)
    rows = [[title, f"{median(found):.3f}", spread(found, 3)] for title, found in starts.items()]
    table("Start to ready", ["", "s", "spread"], rows)


@dataclass
class _Calls:
    """How long calls of one kind took, and what the server used for them."""

    taken_ms: list[float] = field(default_factory=list)
    cpu_us: float = 0.0

    def p(self, share: float) -> float:
        """Give the time that such a share of them did not exceed."""
        return sorted(self.taken_ms)[int(len(self.taken_ms) * share)]

    @property
    def cost_us(self) -> float:
        """Server CPU for each."""
        return self.cpu_us / len(self.taken_ms)


@final
class _Office:
    """An administrator of one server."""

    def __init__(self, server: Peeklock, entities: int) -> None:
        self.server = server
        self.entities = entities
        self.calls = {kind: _Calls() for kind in KINDS}
        self._line = HttpLine(server.endpoint)

    def fill(self) -> list[float]:
        """Create all queues, one after the other; gives the seconds that each took."""
        taken = []
        for number in range(self.entities):
            begun = time.perf_counter()
            self._line.ask(self._put(f"filled-{number:05d}"), 201)
            taken.append(time.perf_counter() - begun)
        return taken

    def call(self, kind: str, count: int) -> None:
        """Make so many calls of a kind, each of another queue."""
        found = self.calls[kind]
        asked = [self._request(kind, f"called-{number:05d}") for number in range(count)]
        status = 201 if kind == "create" else 200
        cpu_us = proc.cpu_us(self.server.pid)
        for written in asked:
            begun = time.perf_counter()
            self._line.ask(written, status)
            found.taken_ms.append((time.perf_counter() - begun) * 1000)
        found.cpu_us += proc.cpu_us(self.server.pid) - cpu_us

    def _request(self, kind: str, name: str) -> bytes:
        endpoint = self.server.endpoint
        if kind == "create":
            return self._put(name)
        if kind == "update":
            return self._put(name, lock="PT30S", If_Match="*")
        if kind == "get":
            return request(endpoint, "GET", f"/{name}?{VERSION}")
        if kind == "delete":
            return request(endpoint, "DELETE", f"/{name}?{VERSION}")
        skip = max(0, self.entities - PAGE) if kind == "list, last page" else 0
        target = f"/$Resources/queues?{VERSION}&$skip={skip}&$top={PAGE}"
        return request(endpoint, "GET", target)

    def _put(self, name: str, lock: str = "PT1M", **headers: str) -> bytes:
        body = _description(f"<LockDuration>{lock}</LockDuration>")
        target = f"/{name}?{VERSION}"
        return request(self.server.endpoint, "PUT", target, body, Content_Type=TYPE, **headers)


def _description(properties: str) -> bytes:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/'
        f'connect">{properties}</QueueDescription></content></entry>'
    ).encode()


def _show_filling(creating_s: list[float]) -> None:
    tenth = len(creating_s) // 10
    first, last = sum(creating_s[:tenth]), sum(creating_s[-tenth:])
    print(
        f"\n{len(creating_s):,} queues were created in {sum(creating_s):.1f} s, one after the "
        f"other: {first / tenth * 1000:.2f} ms each in the first tenth, "
        f"{last / tenth * 1000:.2f} ms in the last"
    )


def _show_calls(small: _Office, full: _Office) -> None:
    rows = []
    for kind in KINDS:
        few, many = small.calls[kind], full.calls[kind]
        rows.append(
            [
                kind,
                *(f"{few.p(0.5):.2f}", f"{few.p(0.99):.2f}", f"{few.cost_us / 1000:.2f}"),
                *(f"{many.p(0.5):.2f}", f"{many.p(0.99):.2f}", f"{many.cost_us / 1000:.2f}"),
                f"{many.p(0.5) / few.p(0.5):.2f}",
            ]
        )
    columns = [
        f"{small.entities:,} queues, then {full.entities:,}",
        *("p50 ms", "p99 ms", "CPU ms", "p50 ms", "p99 ms", "CPU ms", "p50 beside few"),
    ]
    count = len(small.calls[KINDS[0]].taken_ms)
    table(f"Administration calls, {count} of each, pages of {PAGE}", columns, rows)


def _starts(office: _Office, plan: Plan) -> list[float]:
    taken = []
    for _ in range(plan.rounds):
        office.server.stop()
        taken.append(office.server.start())
    return taken


def _configured_starts(plan: Plan, entities: int) -> dict[str, list[float]]:
    """Start with a file that names all of them, on new data and then on what that made."""
    names = [f"configured-{number:05d}" for number in range(entities)]
    title = f"{entities:,} queues in the configuration"
    taken: dict[str, list[float]] = {f"{title}, new": [], f"{title}, known": []}
    for number in range(plan.rounds):
        server = _server(plan, f"configured-{number}", names)
        for times in taken.values():
            times.append(server.start())
            server.stop()
    return taken


def _server(plan: Plan, name: str, queues: list[str] | None = None) -> Peeklock:
    return Peeklock(plan.directory / name, "compiled", settings=SETTINGS, queues=queues)
