"""The authorization matrix of `$management`: every operation with every credential."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from uuid import UUID

from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import encode_modified
from peeklock.amqp.values.constructors import LONG, UUID_CODE
from peeklock.amqp.values.types import Array, Int, Symbol, Timestamp
from peeklock.entity.rules.filter import FalseFilter
from peeklock.entity.rules.rule import Rule
from peeklock.gateway.amqp.management.calls import OWN_PREFIX, PREFIX
from peeklock.gateway.amqp.management.operations import OPERATIONS
from tests.gateway.amqp.amqp_harness import Client, annotation, plain
from tests.gateway.amqp.nodes.transacting import scheduled
from tests.gateway.matrix.amqp_client import AmqpClient
from tests.gateway.matrix.credentials import CREDENTIALS, Credential
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

# Protocol 2.3, by hand. Whether rules are changed over AMQP with the right to listen or to manage
# the protocol leaves open; older clients listen and change them, so that Listen is enough here.
NEEDED = {
    "peek-message": "Listen",
    "renew-lock": "Listen",
    "update-disposition": "Listen",
    "receive-by-sequence-number": "Listen",
    "batch-delete-messages": "Listen",
    "schedule-message": "Send",
    "cancel-scheduled-message": "Send",
    "renew-session-lock": "Listen",
    "set-session-state": "Listen",
    "get-session-state": "Listen",
    "get-message-sessions": "Listen",
    "add-rule": "Listen",
    "remove-rule": "Listen",
    "enumerate-rules": "Listen",
    # Our own.
    "claim-messages": "Listen",
    "list-claims": "Listen",
    "fetch-claims": "Listen",
    "settle-claims": "Listen",
    "publish-stages": "Send",
    "drop-stages": "Send",
}
OWN = (
    *("claim-messages", "list-claims", "fetch-claims", "settle-claims"),
    *("publish-stages", "drop-stages"),
)
ON_SUBSCRIPTIONS = ("add-rule", "remove-rule", "enumerate-rules")
ON_SESSIONS = (
    "renew-session-lock",
    "set-session-state",
    "get-session-state",
    "get-message-sessions",
)
STAGE = Symbol("com.peeklock:stage")
DEFERRED = encode_modified(delivery_failed=True, undeliverable_here=True)


class Stage:
    """Each operation has an entity of its own, where all is there that it needs to succeed."""

    def __init__(self, broker: WatchedBroker, root: Client) -> None:
        self.broker = broker
        self.root = root
        self._links: dict[str, Link] = {}
        self._request_links: dict[str, tuple[Link, Link]] = {}
        self._rules = 0
        self._batches = 0

    @classmethod
    async def of(cls, broker: WatchedBroker) -> Stage:
        for operation in NEEDED:
            if operation in ON_SUBSCRIPTIONS:
                await broker.topic(operation)
            else:
                sessions = operation in ON_SESSIONS
                await broker.queue(operation, requires_session=sessions)
        return cls(broker, await broker.bus.authorized(""))

    def path(self, operation: str) -> str:
        return f"{operation}/Subscriptions/s" if operation in ON_SUBSCRIPTIONS else operation

    async def arguments(self, operation: str) -> dict[str, Any]:
        """Make ready what the operation needs."""
        return await ARRANGED[operation](self, operation)

    async def send(self, path: str, **properties: Any) -> None:
        if f"to {path}" not in self._links:
            self._links[f"to {path}"] = await self.root.sender(path)
        await self.root.send(self._links[f"to {path}"], plain("x", **properties))

    async def locked(self, path: str) -> IncomingDelivery:
        await self.send(path)
        if f"from {path}" not in self._links:
            self._links[f"from {path}"] = await self.root.receiver(path)
        link = self._links[f"from {path}"]
        link.grant(1)
        await self.root.talk()
        (delivery,) = self.root.arrived(link)
        return delivery

    async def tokens(self, path: str) -> dict[str, Any]:
        delivery = await self.locked(path)
        return {"lock-tokens": Array(UUID_CODE, [UUID(bytes_le=delivery.tag)])}

    async def settled_as(self, path: str) -> dict[str, Any]:
        return {"disposition-status": "completed", **await self.tokens(path)}

    async def peeked(self, path: str) -> dict[str, Any]:
        await self.send(path)
        return {"from-sequence-number": 0, "message-count": Int(1)}

    async def deferred(self, path: str) -> dict[str, Any]:
        delivery = await self.locked(path)
        await self.root.settle(self._links[f"from {path}"], [delivery.id], DEFERRED)
        number = annotation(delivery.payload, "x-opt-sequence-number")
        mode = Int(0)
        return {"sequence-numbers": Array(LONG, [number]), "receiver-settle-mode": mode}

    async def deleted(self, path: str) -> dict[str, Any]:
        await self.send(path)
        before = Timestamp(self.broker.clock.now() + 1)
        return {"message-count": Int(1), "enqueued-time-utc": before}

    async def scheduled(self, path: str) -> dict[str, Any]:
        return {"messages": [scheduled("x", self.broker.clock.now() + 60_000)]}

    async def cancelled(self, path: str) -> dict[str, Any]:
        if path not in self._request_links:
            self._request_links[path] = await self.root.request_links(f"{path}/$management")
        body = await self.scheduled(path)
        status, found = await self.root.manage(self._request_links[path], "schedule-message", body)
        assert status == 200
        return {"sequence-numbers": found["sequence-numbers"]}

    async def held(self, path: str) -> dict[str, Any]:
        if path not in self._links:
            await self.send(path, group_id="a")
            self._links[path] = await self.root.session_receiver("a", path)
        return {"session-id": "a", "session-state": b"x"}

    async def sessions(self, path: str) -> dict[str, Any]:
        await self.send(path, group_id="a")
        since = Timestamp(253_402_300_800_000)
        return {"last-updated-time": since, "skip": Int(0), "top": Int(10)}

    async def added(self, topic: str) -> dict[str, Any]:
        self._rules += 1
        described = {"sql-filter": {"expression": "1=0"}}
        return {"rule-name": f"r{self._rules}", "rule-description": described}

    async def removed(self, topic: str) -> dict[str, Any]:
        self._rules += 1
        rule = Rule(f"r{self._rules}", FalseFilter())
        await self.broker.broker.put_rule(f"{topic}/Subscriptions/s", rule)
        return {"rule-name": rule.name}

    async def listed(self, topic: str) -> dict[str, Any]:
        return {"skip": Int(0), "top": Int(10)}

    async def claimed(self, path: str) -> dict[str, Any]:
        await self.send(path)
        return {"owner": "o", "epoch": 1, "message-count": Int(1)}

    async def claims(self, path: str) -> dict[str, Any]:
        return {"owner": "o", "from-sequence-number": 0, "message-count": Int(1)}

    async def settling(self, path: str) -> dict[str, Any]:
        numbers = Array(LONG, [1])
        return {"owner": "o", "sequence-numbers": numbers, "disposition-status": "completed"}

    async def staged(self, path: str) -> dict[str, Any]:
        stages = {STAGE: "s"}
        if path not in self._links:
            self._links[path] = await self.root.sender(path, properties=stages)
        await self.root.send(self._links[path], plain("x"))
        return {"stages": ["s"]}

    async def published(self, path: str) -> dict[str, Any]:
        self._batches += 1
        return {"writer": "w", "batch": self._batches, **await self.staged(path)}


Arranging: TypeAlias = Callable[[Stage, str], Awaitable[dict[str, Any]]]
ARRANGED: dict[str, Arranging] = {
    "peek-message": Stage.peeked,
    "renew-lock": Stage.tokens,
    "update-disposition": Stage.settled_as,
    "receive-by-sequence-number": Stage.deferred,
    "batch-delete-messages": Stage.deleted,
    "schedule-message": Stage.scheduled,
    "cancel-scheduled-message": Stage.cancelled,
    "renew-session-lock": Stage.held,
    "set-session-state": Stage.held,
    "get-session-state": Stage.held,
    "get-message-sessions": Stage.sessions,
    "add-rule": Stage.added,
    "remove-rule": Stage.removed,
    "enumerate-rules": Stage.listed,
    "claim-messages": Stage.claimed,
    "list-claims": Stage.claims,
    "fetch-claims": Stage.settling,
    "settle-claims": Stage.settling,
    "publish-stages": Stage.published,
    "drop-stages": Stage.staged,
}


def full(operation: str) -> str:
    """The name of an operation as it is asked for."""
    return f"{OWN_PREFIX if operation in OWN else PREFIX}{operation}"


def test_every_operation_has_an_expectation() -> None:
    """Whoever adds an operation says here who may use it."""
    assert {full(operation) for operation in NEEDED} == set(OPERATIONS)
    assert set(ARRANGED) == set(NEEDED)


def test_every_operation_takes_its_right() -> None:
    """R-T2: what is allowed is done, what is not is refused and changes nothing."""

    async def visit(broker: WatchedBroker) -> None:
        stage = await Stage.of(broker)
        ready = {operation: await stage.arguments(operation) for operation in NEEDED}
        for credential in CREDENTIALS:
            allowed = [name for name in NEEDED if NEEDED[name] in credential.gives()]
            refused = [name for name in NEEDED if name not in allowed]
            before = await broker.state()
            peer = await AmqpClient.of(broker)
            for operation in refused:
                await _refused(peer, credential, operation, stage, ready[operation])
            assert await broker.state() == before, credential
            for operation in allowed:
                path = stage.path(operation)
                assert await peer.show(credential, operation, f"{path}/$management")
                status = await peer.manage(path, full(operation), ready[operation])
                assert status == 200, (str(credential), operation)
                ready[operation] = await stage.arguments(operation)
            peer.leave()

    inhabit(visit)


async def _refused(
    peer: AmqpClient, credential: Credential, operation: str, stage: Stage, body: dict[str, Any]
) -> None:
    path = stage.path(operation)
    said = (str(credential), operation)
    here = f"{path}/$management"
    assert await peer.show(credential, operation, here) == credential.is_good(), said
    if credential.gives():
        # Some right is enough to come in, and then each operation is checked by itself.
        assert await peer.manage(path, full(operation), body) == 401, said
    else:
        assert await peer.is_turned_away(here), said


def test_an_operation_that_nobody_knows_is_told_so_only_inside() -> None:
    """Whoever has some right learns that there is no such operation, nobody else does."""

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        for credential in CREDENTIALS:
            peer = await AmqpClient.of(broker)
            await peer.show(credential, "q", "q/$management")
            if credential.gives():
                assert await peer.manage("q", "make-coffee", {}) == 501
            else:
                assert await peer.is_turned_away("q/$management")
            peer.leave()

    inhabit(visit)
