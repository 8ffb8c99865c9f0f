"""Every kind of entity side by side: what goes in where, and what has to come out."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from peeklock.amqp.messages.message import AmqpMessage
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.messages.sections import DATA
from peeklock.amqp.values.types import Symbol
from tests.crash.promises import Deals, Ledger, Place, everything
from tests.crash.session_traffic import SessionReceiver, drain_sessions
from tests.crash.traffic import Dress, End, Line, Receiver, Sender, drain, undressed
from tests.crash.transaction_traffic import Dealer

DELIVERIES_MAX: Final = 2_000
PARTITIONED: Final[dict[str, Any]] = {"EnablePartitioning": True, "PartitionCount": 8}
SESSIONS: Final = 7
# What is forwarded is on its way for a while: a place is empty when nothing came for so long.
CARRIED_WITHIN_S: Final = 20.0
QUIET_S: Final = 0.4


def keyed(id: int, body: bytes) -> AmqpMessage:
    """Two of three messages may go to any partition."""
    if id % 3:
        return undressed(id, body)
    key = {Symbol("x-opt-partition-key"): str(id % 11)}
    return AmqpMessage(message_annotations=key, body_kind=DATA, body=[body])


def in_session(id: int, body: bytes) -> AmqpMessage:
    properties = Properties(group_id=str(id % SESSIONS))
    return AmqpMessage(properties=properties, body_kind=DATA, body=[body])


def named(id: int, body: bytes) -> AmqpMessage:
    return AmqpMessage(properties=Properties(message_id=f"id-{id}"), body_kind=DATA, body=[body])


def described(id: int, body: bytes) -> AmqpMessage:
    """What the filters look at."""
    return AmqpMessage(
        properties=Properties(subject=f"label-{id % 3}"),
        application_properties={"number": id},
        body_kind=DATA,
        body=[body],
    )


def sql(text: str, action: str = "") -> dict[str, Any]:
    filter: dict[str, Any] = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": text}}
    return filter | ({"Action": {"SqlExpression": action}} if action else {})


def label(text: str) -> dict[str, Any]:
    return {"FilterType": "Correlation", "CorrelationFilter": {"Label": text}}


def nothing(_id: int) -> bool:
    return False


# Subscriptions by name: their rules, and the ids that these take.
NEWS: Final[dict[str, tuple[list[dict[str, Any]], Callable[[int], bool]]]] = {
    "all": ([], everything),
    "even": ([sql("number % 2 = 0", "SET seen = 1")], lambda id: id % 2 == 0),
    "labelled": ([label("label-1")], lambda id: id % 3 == 1),
    # One copy, although both rules take some messages.
    "either": ([label("label-2"), sql("number % 5 = 0")], lambda id: id % 3 == 2 or id % 5 == 0),
    "none": ([{"FilterType": "False"}], nothing),
}
LAST: Final = {name: NEWS[name] for name in ("all", "even")}


class CrashEntities:
    """The books of everything, the configuration, and the clients."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.queue = Ledger("crash", Place("crash"))
        self.spread = Ledger("spread", Place("spread"))
        self.sessions = Ledger("sessions", Place("sessions", sessions=SESSIONS))
        self.spread_sessions = Ledger("apart", Place("apart", sessions=SESSIONS))
        self.news = Ledger("news", *subscribed("news", NEWS))
        self.spread_news = Ledger("bulletin", *subscribed("bulletin", NEWS))
        self.chain = Ledger("first", *subscribed("last", LAST))
        self.once = Ledger("once", Place("once"))
        self.spread_once = Ledger("unique", Place("unique"))
        self.orders = Ledger("orders", Place("orders"))
        self.bills = Ledger("bills", Place("bills"))
        self.receipts = Ledger("receipts", Place("receipts"))
        sinks = [self.bills.places[0], self.receipts.places[0]]
        self.deals = Deals(self.orders.places[0], sinks)

    @property
    def ledgers(self) -> list[Ledger]:
        return [ledger for ledger in vars(self).values() if isinstance(ledger, Ledger)]

    @property
    def places(self) -> list[Place]:
        return [place for ledger in self.ledgers for place in ledger.places]

    def write_config(self, path: Path) -> Path:
        once: dict[str, Any] = {
            "RequiresDuplicateDetection": True,
            # Longer than any run.
            "DuplicateDetectionHistoryTimeWindow": "P1D",
        }
        queues: dict[str, dict[str, Any]] = {
            "crash": {},
            "spread": PARTITIONED,
            "sessions": {"RequiresSession": True},
            "apart": PARTITIONED | {"RequiresSession": True},
            "first": {"ForwardTo": "second"},
            "second": PARTITIONED | {"ForwardTo": "last"},
            "once": once,
            "unique": PARTITIONED | once,
            "orders": {},
            "bills": {},
            "receipts": PARTITIONED,
        }
        namespace = {
            "Name": "sbemulatorns",
            "Queues": [
                {"Name": name, "Properties": {"MaxDeliveryCount": DELIVERIES_MAX} | properties}
                for name, properties in queues.items()
            ],
            "Topics": [
                topic("news", NEWS, {}),
                topic("bulletin", NEWS, PARTITIONED),
                topic("last", LAST, {}),
            ],
        }
        path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
        return path

    def jobs(self, port: int, *, may_fail: bool = False) -> list[Callable[[], End]]:
        """All clients, each with a line of its own."""

        def line() -> Line:
            return Line(port, may_fail=may_fail)

        def sender(ledger: Ledger, dress: Dress = undressed, **options: Any) -> Callable[[], End]:
            options = {"per_second": self.rate} | options
            return lambda: Sender(line(), ledger, dress=dress, **options)

        def receiver(place: Place) -> Callable[[], End]:
            if place.sessions is not None:
                return lambda: SessionReceiver(line(), place)
            return lambda: Receiver(line(), place)

        batches: dict[str, Any] = {"in_batches": True, "per_second": self.rate // 10}
        jobs = [
            sender(self.queue),
            sender(self.queue, **batches),
            sender(self.spread, keyed),
            sender(self.spread, **batches),
            sender(self.sessions, in_session),
            sender(self.spread_sessions, in_session),
            sender(self.news, described),
            sender(self.news, described, **batches),
            sender(self.spread_news, described),
            sender(self.chain, described),
            sender(self.once, named, repeats=True),
            sender(self.spread_once, named, repeats=True),
            sender(self.orders),
            lambda: Dealer(line(), self.deals),
        ]
        for place in self.places:
            if place is not self.deals.source:
                jobs.append(receiver(place))
            if place.sessions is not None:
                jobs += [receiver(place)] * 2
        return jobs

    def empty(self, port: int) -> dict[Place, set[int]]:
        """Everything that is still there, and that is still on its way."""
        found: dict[Place, set[int]] = {place: set() for place in self.places}
        until = time.monotonic() + CARRIED_WITHIN_S
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_S and time.monotonic() < until:
            for place in self.places:
                came = self.drained(port, place)
                found[place] |= came
                if came or not self.is_settled(place, found[place]):
                    quiet_since = time.monotonic()
        return found

    def drained(self, port: int, place: Place) -> set[int]:
        dead = drain(Receiver(Line(port), place, dead_letters=True, to_the_end=True))
        if place.sessions is not None:
            names = place.sessions.names()
            return dead | drain_sessions(SessionReceiver(Line(port), place, names))
        return dead | drain(Receiver(Line(port), place, to_the_end=True))

    def is_settled(self, place: Place, found: set[int]) -> bool:
        """Whether everything has come that was acknowledged, as far as is known before the end."""
        missing = place.ledger.accepted - place.completing - found
        if place is self.deals.source:
            missing -= self.deals.attempted
        return not any(place.takes(id) for id in missing)

    def close(self, found: dict[Place, set[int]]) -> None:
        self.deals.close()
        for ledger in self.ledgers:
            ledger.close(found)

    def problems(self) -> list[str]:
        return [problem for ledger in self.ledgers for problem in ledger.problems]

    def undisturbed(self) -> set[str]:
        """Addresses whose clients do not depend on any single partition."""
        ledgers = (self.spread, self.spread_news, self.spread_once, self.receipts)
        return {place.address for ledger in ledgers for place in ledger.places} | {
            ledger.name for ledger in ledgers
        }

    def idle_places(self, least: int) -> list[str]:
        """Places where too little was done to show anything."""
        return [
            place.address
            for place in self.places
            if len(place.completed) < least and place.takes is not nothing
        ]

    def summary(self) -> str:
        lines = [f"{ledger.name}: {ledger.summary()}" for ledger in self.ledgers]
        return "\n".join([*lines, self.deals.summary()])


def subscribed(topic: str, subscriptions: dict[str, Any]) -> list[Place]:
    return [
        Place(f"{topic}/Subscriptions/{name}", takes) for name, (_, takes) in subscriptions.items()
    ]


def topic(name: str, subscriptions: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "Name": name,
        "Properties": properties,
        "Subscriptions": [
            {
                "Name": each,
                "Properties": {"MaxDeliveryCount": DELIVERIES_MAX},
                "Rules": [
                    {"Name": f"rule-{number}", "Properties": rule}
                    for number, rule in enumerate(rules)
                ],
            }
            for each, (rules, _) in subscriptions.items()
        ],
    }
