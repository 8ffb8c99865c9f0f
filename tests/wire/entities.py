"""The entities that the wire tests use: written into a Config.json, handed out one per test.

Single queues are described here; topics, and queues that belong together, in `layouts`.
"""

import json
import os
import threading
from pathlib import Path
from typing import Any, Final

from tests.store.postgres.server import shared_server
from tests.wire.layouts import LAYOUTS, queues_of, topics_of

ROOT_RULE: Final = "RootManageSharedAccessKey"
ROOT_KEY: Final = "SAS_KEY_VALUE"
# The same tests, on entities that are partitioned: `make wire-partitioned`.
PARTITIONED: Final = os.environ.get("PEEKLOCK_WIRE_PARTITIONED", "") == "1"
# The same tests, on brokers whose stores are databases: `make wire-postgres`.
POSTGRES: Final = os.environ.get("PEEKLOCK_WIRE_POSTGRES", "") == "1"
# Fewer than the default, because there are hundreds of queues; a few have as many as usual.
PARTITIONS: Final = 4
PARTITIONS_DEFAULT: Final = 16
STORES: Final = 4 if PARTITIONED else 1
LOCK_SHORT_S: Final = 5
TTL_S: Final = 2

# Rules on a queue, next to the namespace's own. A key is any text; its bytes sign.
QUEUE_RULES: Final[list[dict[str, Any]]] = [
    {
        "Name": "send-only",
        "PrimaryKey": "key-that-sends",
        "SecondaryKey": "second-key-that-sends",
        "Rights": ["Send"],
    },
    {"Name": "listen-only", "PrimaryKey": "key-that-listens", "Rights": ["Listen"]},
]

# kind -> (how many, the emulator's properties). Each flavour of each test takes its own.
KINDS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    # Nothing is said about these, so they prove the defaults: 60 s locks, 10 deliveries, no expiry.
    "plain": (480, {}),
    "short-lock": (90, {"LockDuration": f"PT{LOCK_SHORT_S}S"}),
    "three-deliveries": (8, {"MaxDeliveryCount": 3}),
    "short-lock-two-deliveries": (
        12,
        {"LockDuration": f"PT{LOCK_SHORT_S}S", "MaxDeliveryCount": 2},
    ),
    "ttl": (8, {"DefaultMessageTimeToLive": f"PT{TTL_S}S"}),
    "ttl-dead-letter": (
        8,
        {
            "DefaultMessageTimeToLive": f"PT{TTL_S}S",
            "DeadLetteringOnMessageExpiration": True,
        },
    ),
    "dead-letter-on-expiry": (20, {"DeadLetteringOnMessageExpiration": True}),
    "never-held": (8, {"EnableBatchedOperations": False}),
    "one-megabyte": (8, {"MaxMessageSizeInKilobytes": 1024}),
    "unlock-on-disconnect": (4, {"UnlockOnDisconnect": True}),
    "send-disabled": (4, {"Status": "SendDisabled"}),
    "receive-disabled": (4, {"Status": "ReceiveDisabled"}),
    "own-rules": (40, {}),
    "session": (100, {"RequiresSession": True}),
    "partitioned": (110, {"EnablePartitioning": True}),
    "partitioned-short-lock": (
        4,
        {"EnablePartitioning": True, "LockDuration": f"PT{LOCK_SHORT_S}S"},
    ),
    "partitioned-duplicates": (
        4,
        {"EnablePartitioning": True, "RequiresDuplicateDetection": True},
    ),
    "partitioned-session": (16, {"RequiresSession": True, "EnablePartitioning": True}),
    "short-lock-session": (
        30,
        {"RequiresSession": True, "LockDuration": f"PT{LOCK_SHORT_S}S"},
    ),
}

ALL: Final[dict[str, int]] = {
    **{kind: count for kind, (count, _) in KINDS.items()},
    **{kind: layout.count for kind, layout in LAYOUTS.items()},
}

# Names with every character that a path may have; asked for by name, not from a pool.
ODD_NAMES: Final = ("orders/eu.north-1_sync", "orders/eu.north-1_async", "CamelSync", "CamelAsync")


class Queues:
    """The pools of one broker; every queue is given to one test only."""

    def __init__(self) -> None:
        self._left = {kind: _names(kind, count) for kind, count in ALL.items()}
        self._owned: dict[str, str] = {}
        self._guard = threading.Lock()

    def take(self, kind: str = "plain") -> str:
        with self._guard:
            return self._left[kind].pop(0)

    def of(self, owner: str) -> str:
        """The queue of a test, the same one however often it is asked for."""
        with self._guard:
            if owner not in self._owned:
                self._owned[owner] = self._left["plain"].pop(0)
            return self._owned[owner]

    def take_many(self, kind: str, count: int) -> list[str]:
        return [self.take(kind) for _ in range(count)]


def as_asked(entity: dict[str, Any]) -> dict[str, Any]:
    """A queue or topic as it is, or partitioned if that was asked for and it does not say."""
    properties = entity.get("Properties", {})
    if not PARTITIONED or "EnablePartitioning" in properties:
        return entity
    partitions = PARTITIONS_DEFAULT if entity["Name"] in ODD_NAMES else PARTITIONS
    more = {"EnablePartitioning": True, "PartitionCount": partitions}
    return entity | {"Properties": properties | more}


def broker_options(stores: int) -> tuple[str, ...]:
    """What a broker with these queues is started with, besides its places and ports."""
    places: tuple[str, ...] = ("--stores", str(stores))
    if POSTGRES:
        databases = [shared_server().new_database() for _ in range(stores)]
        places = tuple(word for each in databases for word in ("--store", each))
    # The tests have more than the hundred partitioned entities that a namespace may have.
    return (*places, "--partitioned-entities-max", "10000")


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number:03}" for number in range(1, count + 1)]


def write_config(path: Path, *, counts: dict[str, int] | None = None) -> Path:
    """Write a Config.json in the emulator's form, with the comments that the original has too."""
    wanted = counts if counts is not None else ALL
    queues: list[dict[str, Any]] = [
        {"Name": name, "Properties": KINDS[kind][1]}
        | ({"AuthorizationRules": QUEUE_RULES} if kind == "own-rules" else {})
        for kind, count in wanted.items()
        if kind in KINDS
        for name in _names(kind, count)
    ]
    groups = [
        (kind, name)
        for kind, count in wanted.items()
        if kind in LAYOUTS
        for name in _names(kind, count)
    ]
    queues += [queue for kind, name in groups for queue in queues_of(kind, name)]
    topics = [topic for kind, name in groups for topic in topics_of(kind, name)]
    queues += [{"Name": name} for name in ODD_NAMES]
    namespace = {
        "Name": "sbemulatorns",
        "Queues": [as_asked(queue) for queue in queues],
        "Topics": [as_asked(topic) for topic in topics],
    }
    document = {
        "UserConfig": {
            "Namespaces": [namespace],
            "Logging": {"Type": "Console"},
        }
    }
    text = json.dumps(document, indent=2)
    path.write_text(
        f"// The queues of the wire tests.\n/* Both kinds of comment are allowed. */\n{text}\n"
    )
    return path
