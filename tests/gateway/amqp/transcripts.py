"""What leaves the broker, kind by kind: sections, keys, types and order, as tables of a document.

`python -m tests.gateway.amqp.transcripts` writes them into docs/reference/protocol.md; a test says
when page and broker differ.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, encode_message
from peeklock.amqp.messages.message_forms import Header, Properties
from peeklock.amqp.messages.sections import section_at
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.composites import encode_modified, encode_rejected
from peeklock.amqp.values.constructors import LONG
from peeklock.amqp.values.types import Array, Int, Symbol, Timestamp, Ubyte, Uint
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "protocol.md"
BEGIN = "<!-- the broker's own words: `python -m tests.gateway.amqp.transcripts` writes them -->\n"
END = "<!-- end of the broker's own words -->\n"

_DEFER = encode_modified(delivery_failed=True, undeliverable_here=True)
_ABANDON = encode_modified(delivery_failed=True, undeliverable_here=False)
_DEAD_LETTER = encode_rejected(
    AmqpError(
        "com.microsoft:dead-letter",
        "",
        {Symbol("DeadLetterReason"): "why", Symbol("DeadLetterErrorDescription"): "because"},
    )
)
_SETTLED: dict[str, Any] = {"snd_settle_mode": 1, "rcv_settle_mode": 0}
_LOCKED: dict[str, Any] = {"snd_settle_mode": 0, "rcv_settle_mode": 1}
_LATER_MS = 5_000
_SECTIONS = {
    0x70: "header",
    0x71: "delivery-annotations",
    0x72: "message-annotations",
    0x73: "properties",
    0x74: "application-properties",
    0x75: "data",
    0x76: "sequence",
    0x77: "value",
    0x78: "footer",
}
_HEADER_FIELDS = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
_TYPES = {
    bool: "boolean",
    int: "long",
    str: "string",
    bytes: "binary",
    UUID: "uuid",
    Int: "int",
    Uint: "uint",
    Ubyte: "ubyte",
    Symbol: "symbol",
    Timestamp: "timestamp",
}
PEEK_LOCK = "peek-lock"
DELETE = "receive-and-delete"

Row = tuple[str, str, str, str, str, str]


class Stage:
    """A broker with an entity of each kind, a client, and the rows that were seen so far."""

    def __init__(self, bus: AmqpHarness, client: Client) -> None:
        self.bus = bus
        self.client = client
        self.rows: list[Row] = []
        self._senders: dict[str, Link] = {}
        self._request_links: dict[str, tuple[Link, Link]] = {}

    @staticmethod
    async def build(bus: AmqpHarness, partitions: int) -> Stage:
        broker = bus.bench.broker
        described: dict[str, dict[str, Any]] = {
            "q": {},
            "sessions": {"requires_session": True},
            "target": {},
            "forwards": {"forward_to": "target"},
            "buries": {"forward_dead_letters_to": "target"},
        }
        for path, options in described.items():
            given: dict[str, Any] = {"batched_store_access": False, "partitions": partitions}
            await broker.put_queue(QueueDefinition(path, **given, **options), [])
        await broker.put_topic(
            TopicDefinition("t", batched_store_access=False, partitions=partitions)
        )
        await broker.put_subscription(SubscriptionDefinition("t", "s", batched_store_access=False))
        return Stage(bus, await bus.authorized(""))

    async def send(self, address: str = "q", *, after_ms: int = 0, **sections: Any) -> None:
        """Send a message of one data section; some are scheduled, and fall due."""
        if address not in self._senders:
            self._senders[address] = await self.client.sender(address)
        await self.client.send(self._senders[address], self.message(after_ms, **sections))
        if after_ms:
            await self.bus.advance(self.client, after_ms)
        await self.client.talk()

    def message(self, after_ms: int = 0, **sections: Any) -> bytes:
        if after_ms:
            due = Timestamp(self.bus.clock.now() + after_ms)
            sections["message_annotations"] = {Symbol("x-opt-scheduled-enqueue-time"): due}
        sections.setdefault("properties", Properties(message_id="m"))
        return encode_message(AmqpMessage(body_kind=DATA_BODY, body=[b"body"], **sections))

    async def ask(self, address: str, operation: str, link: Link | None = None, **more: Any) -> Any:
        if address not in self._request_links:
            self._request_links[address] = await self.client.request_links(f"{address}/$management")
        body = {name.replace("_", "-"): value for name, value in more.items()}
        name = None if link is None else link.name
        _, answer = await self.client.manage(
            self._request_links[address], operation, body, on_behalf_of=name
        )
        return answer

    async def see(self, kind: str, address: str = "q", session: str | None = None) -> None:
        """Receive the message in both modes: it is given back between them."""
        for mode, options in ((PEEK_LOCK, _LOCKED), (DELETE, _SETTLED)):
            if session is None:
                link = await self.client.receiver(address, credit=1, **options)
            else:
                link = await self.client.session_receiver(session, address, credit=1, **options)
            (delivery,) = self.client.arrived(link)
            assert delivery.settled == (mode == DELETE)
            assert delivery.message_format == 0
            assert len(delivery.tag) == 16
            self.note(kind, mode, delivery.payload)
            if mode == PEEK_LOCK:
                assert UUID(bytes_le=delivery.tag) in _values(delivery.payload)
                link.settle([delivery.id], b"\x00\x53\x26\x45", settled=True)
            link.detach()
            await self.client.talk()

    async def settle(self, address: str, state: bytes, session: str | None = None) -> int:
        """Receive a message and settle it; gives its number."""
        if session is None:
            link = await self.client.receiver(address, credit=1, **_LOCKED)
        else:
            link = await self.client.session_receiver(session, address, credit=1, **_LOCKED)
        (delivery,) = self.client.arrived(link)
        await self.client.settle(link, [delivery.id], state)
        link.detach()
        await self.client.talk()
        return _number(delivery.payload)

    async def fetch(self, kind: str, number: int, mode: str, address: str, **more: Any) -> Any:
        """Receive a deferred message by its number."""
        answer = await self.ask(
            address,
            "receive-by-sequence-number",
            sequence_numbers=Array(LONG, [number]),
            receiver_settle_mode=Uint(mode == PEEK_LOCK),
            **more,
        )
        (entry,) = answer["messages"]
        self.note(kind, mode, entry["message"])
        return entry["lock-token"]

    async def peek(self, kind: str, address: str = "q", **more: Any) -> None:
        """Look at the only message."""
        answer = await self.ask(
            address, "peek-message", from_sequence_number=0, message_count=Int(9), **more
        )
        (entry,) = answer["messages"]
        self.note(kind, "peek", entry["message"])

    async def empty(self, address: str = "q") -> None:
        """Take out what is there."""
        link = await self.client.receiver(address, credit=9, **_SETTLED)
        self.client.arrived(link)
        link.detach()
        await self.client.talk()

    def note(self, kind: str, mode: str, payload: bytes) -> None:
        self.rows.append((kind, mode, *_cells(payload)))


async def _walk(stage: Stage) -> None:
    """Each kind of delivery, one after the other."""
    await stage.send()
    await stage.see("plain")
    await stage.send(
        header=Header(durable=True, priority=4, ttl=60_000, first_acquirer=True),
        delivery_annotations={"own": 1},
        message_annotations={"own": "1", Symbol("x-opt-partition-key"): "k"},
        footer={"own": 1},
    )
    await stage.see("with all that a sender can say; its keys were strings")
    await stage.send()
    await stage.settle("q", _ABANDON)
    await stage.see("abandoned before")
    await _scheduled(stage)
    await _deferred(stage)
    await _in_session(stage)
    await stage.send()
    await stage.settle("q", _DEAD_LETTER)
    await stage.see("dead letter", "q/$DeadLetterQueue")
    await stage.send("forwards")
    await stage.see("forwarded", "target")
    await stage.send("forwards", after_ms=_LATER_MS)
    await stage.see("forwarded, scheduled before", "target")
    await stage.send("buries")
    await stage.settle("buries", _DEAD_LETTER)
    await stage.see("dead letter, forwarded", "target")
    await stage.send("t")
    await stage.see("copy of a topic", "t/Subscriptions/s")
    await stage.send("t", after_ms=_LATER_MS)
    await stage.see("copy of a topic, scheduled before", "t/Subscriptions/s")
    await _peeked(stage)


async def _scheduled(stage: Stage) -> None:
    await stage.send(after_ms=_LATER_MS)
    await stage.see("scheduled by annotation")
    message = {"message-id": "m", "message": stage.message(_LATER_MS)}
    await stage.ask("q", "schedule-message", messages=[message])
    await stage.bus.advance(stage.client, _LATER_MS)
    await stage.see("scheduled by `schedule-message`")


async def _deferred(stage: Stage) -> None:
    await stage.send()
    number = await stage.settle("q", _DEFER)
    await stage.peek("deferred")
    token = await stage.fetch("deferred, by number", number, PEEK_LOCK, "q")
    await stage.peek("deferred and locked")
    await stage.ask(
        "q",
        "update-disposition",
        disposition_status="defered",
        lock_tokens=Array(0x98, [token]),
    )
    await stage.fetch("deferred, by number", number, DELETE, "q")


async def _in_session(stage: Stage) -> None:
    properties = Properties(message_id="m", group_id="s")
    await stage.send("sessions", properties=properties)
    await stage.see("of a session", "sessions", "s")
    await stage.send("sessions", properties=properties)
    number = await stage.settle("sessions", _DEFER, "s")
    link = await stage.client.session_receiver("s", "sessions")
    for mode in (PEEK_LOCK, DELETE):
        token = await stage.fetch(
            "of a session, deferred, by number",
            number,
            mode,
            "sessions",
            link=link,
            session_id="s",
        )
        if mode == PEEK_LOCK:
            await stage.ask(
                "sessions",
                "update-disposition",
                link,
                session_id="s",
                disposition_status="defered",
                lock_tokens=Array(0x98, [token]),
            )
    link.detach()
    await stage.client.talk()


async def _peeked(stage: Stage) -> None:
    await stage.send()
    await stage.peek("plain")
    await stage.peek("plain, `omit-message-body`", omit_message_body=True)
    await stage.empty()
    await stage.client.send(stage._senders["q"], stage.message(_LATER_MS))
    await stage.peek("scheduled, not yet due")
    await stage.bus.advance(stage.client, _LATER_MS)
    await stage.peek("scheduled before")
    await stage.empty()
    await stage.send("t")
    await stage.peek("copy of a topic", "t/Subscriptions/s")


def transcript(partitions: int = 1) -> list[Row]:
    """Let each kind of delivery happen, and tell what left the broker."""

    async def whole() -> list[Row]:
        bus = AmqpHarness()
        await bus.bench.broker.start()
        stage = await Stage.build(bus, partitions)
        await _walk(stage)
        await bus.bench.broker.close()
        return stage.rows

    return asyncio.run(whole())


def tables(rows: list[Row]) -> str:
    """Write the rows as the document has them."""
    head = ("kind", "how", "header", "delivery annotations", "message annotations", "then")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """Give what the page says between the marks."""
    return page[page.index(BEGIN) + len(BEGIN) : page.index(END)]


def _cells(payload: bytes) -> tuple[str, str, str, str]:
    """Tell the sections of a message in their order; the first three have a cell each."""
    cells = ["absent", "absent", "absent"]
    others: list[str] = []
    at = 0
    codes: list[int] = []
    while at < len(payload):
        code, value_at, after = section_at(payload, at, len(payload))
        value = decode(payload, value_at, after)[0]
        codes.append(code)
        if code == 0x70:
            named = zip(_HEADER_FIELDS, value, strict=True)
            said = [f"{name} {_typed(each)}" for name, each in named if each is not None]
            cells[0] = ", ".join(said)
        elif code in (0x71, 0x72):
            cells[code - 0x70] = _map(value) or "empty"
        elif code in (0x74, 0x78):
            others.append(f"{_SECTIONS[code]}: {_map(value)}")
        else:
            others.append(_SECTIONS[code])
        at = after
    assert codes == sorted(codes), "sections come in the order of the specification"
    return cells[0], cells[1], cells[2], "; ".join(others)


def _map(value: dict[Any, Any]) -> str:
    for key in value:
        assert type(key) in (Symbol, str)
    return ", ".join(
        f"`{key}` {_typed(each)}" if type(key) is Symbol else f'`"{key}"` {_typed(each)}'
        for key, each in value.items()
    )


def _typed(value: Any) -> str:
    """A value's type, and the value itself where it is small enough to be the same each time."""
    kind = _TYPES[type(value)]
    if isinstance(value, bool):
        return "true" if value else "false"
    small = isinstance(value, (Int, Uint, Ubyte))
    return f"{kind} {value:,}" if small else kind


def _values(payload: bytes) -> list[Any]:
    _, _, first = section_at(payload, 0, len(payload))
    _, value_at, after = section_at(payload, first, len(payload))
    return list(decode(payload, value_at, after)[0].values())


def _number(payload: bytes) -> int:
    at = 0
    while True:
        code, value_at, after = section_at(payload, at, len(payload))
        if code == 0x72:
            return int(decode(payload, value_at, after)[0]["x-opt-sequence-number"])
        at = after


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(text.replace(BEGIN + written(text), BEGIN + tables(transcript())))
