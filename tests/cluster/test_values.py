"""Commands and replies survive the way from one node to another (R-P1)."""

from __future__ import annotations

import typing
from dataclasses import fields
from typing import Any

import msgpack
import pytest

from peeklock.cluster.values import read_command, read_reply, tags_of, write_command, write_reply
from peeklock.entity import commands, replies
from peeklock.entity.commands import (
    Command,
    Configure,
    SendMany,
    TransferMessage,
)
from peeklock.entity.deliveries import Delivery, Details, LockToken
from peeklock.entity.message import Message, Traits
from peeklock.entity.refusals import BUSY, Refusal
from peeklock.entity.replies import Nobody, Reply, RulesFound
from peeklock.entity.settlement import DEAD_LETTER, Settlement

ORIGIN = Nobody()


def over_the_wire(value: Any) -> Any:
    packed = msgpack.Packer(unicode_errors="surrogatepass").pack(value)
    return msgpack.unpackb(packed, raw=False, strict_map_key=False, unicode_errors="surrogatepass")


def message() -> Message:
    made = Message(
        b"envelope",
        b"content",
        Traits(
            message_id="id",
            time_to_live_ms=5,
            scheduled_at=6,
            session_id="",
            partition_key="key",
            hops=2,
            enqueue_sequence=9,
            dead_letter_source="orders",
        ),
    )
    made.expire_at(77)
    return made


def delivery() -> Delivery:
    details = Details()
    for number, name in enumerate(("size", "enqueue_sequence", "scheduled_at", "hops")):
        setattr(details, name, number + 1)
    details.time_to_live_ms = 4
    details.reason = "because"
    details.description = "so"
    details.destination = "there"
    details.source = "here"
    details.seen = "id"
    details.changes = {"colour": b"red"}
    return Delivery(1, (1 << 64) - 1, 3, 4, 5, 6, 7, message(), details, 1)


# By the names of the fields: what their values may be.
EXAMPLES: dict[str, Any] = {
    "origin": ORIGIN,
    "holder": ORIGIN,
    "tags": [1, 2],
    "messages": [message(), Message(b"", b"plain")],
    "message": message(),
    "deliveries": [delivery(), Delivery(2, 0, 0, 0, 0, 0, 0, None, None, 0)],
    "tokens": [LockToken(1, 2), LockToken(3, (1 << 64) - 1)],
    "settlement": Settlement(DEAD_LETTER, {"a": b"b"}, "reason", None),
    "refusal": Refusal(BUSY, "later"),
    "work": [SendMany(ORIGIN, [], [message()]), TransferMessage("there", message(), "way")],
    "budget": None,
    "changes": {"a": b"b"},
    "upto": {0: 5, 3: 7},
    "session_ids": ["a", None],
    "batches": [("writer", 4, ["stage"])],
}


# Compiled, fields do not tell their types. All that are not named here are numbers.
TEXTS = ("consumer", "owner", "path", "prefix", "session_id", "source", "stage", "writer")
FLAGS = ("broken", "drain", "has_more", "is_only", "is_own", "is_repeat", "is_whole", "watch")
NUMBERS = ("attempts", "forget", "last_sequences", "missing", "numbers", "reserved", "sequences")
EXAMPLES |= dict.fromkeys(TEXTS, "text") | dict.fromkeys(FLAGS, True)
EXAMPLES |= {name: [7] for name in (*NUMBERS, "sizes")}
EXAMPLES |= {name: ["text"] for name in ("keep", "names", "stages")} | {"state": b"bytes"}


def example(kind: type) -> Any:
    return kind(*[EXAMPLES.get(field.name, 7) for field in fields(kind)])


def plain(thing: Any) -> Any:
    """What a thing is, as values that can be compared."""
    if isinstance(thing, list):
        return [plain(each) for each in thing]
    if isinstance(thing, (Message, Traits, Delivery, Details, LockToken)):
        names = [name for each in type(thing).__mro__ for name in getattr(each, "__slots__", ())]
        names = names or [name for name in dir(thing) if not name.startswith("_")]
        return {
            name: plain(getattr(thing, name))
            for name in names
            if not callable(getattr(thing, name))
        }
    if hasattr(thing, "__dataclass_fields__"):
        return {each.name: plain(getattr(thing, each.name)) for each in fields(thing)}
    return thing


@pytest.mark.parametrize("kind", [k for k in typing.get_args(Command) if k is not Configure])
def test_a_command_arrives_as_it_was_sent(kind: type) -> None:
    sent = example(kind)
    value = over_the_wire(write_command(sent, lambda _: 5))
    found = read_command(value, lambda number: {5: ORIGIN, 0: ORIGIN}[number])
    assert type(found) is kind
    assert plain(found) == plain(sent)


# Rules are asked of the broker, which answers by itself.
@pytest.mark.parametrize("kind", [k for k in typing.get_args(Reply) if k is not RulesFound])
def test_a_reply_arrives_as_it_was_sent(kind: type) -> None:
    sent = example(kind)
    found = read_reply(over_the_wire(write_reply(sent, 5)), ORIGIN)
    assert type(found) is kind
    assert plain(found) == plain(sent)


def test_a_holder_that_nobody_can_tell_stays_unknown() -> None:
    sent = commands.RenewSession(ORIGIN, 1, 0, "session", None)
    found = read_command(over_the_wire(write_command(sent, lambda _: 5)), lambda _: ORIGIN)
    assert isinstance(found, commands.RenewSession)
    assert found.holder is None


def test_texts_that_are_no_text_arrive_too() -> None:
    """Clients may send halves of characters, and get them back."""
    sent = SendMany(ORIGIN, [1], [Message(b"", b"", Traits(message_id="\ud800"))])
    found = read_command(over_the_wire(write_command(sent, lambda _: 5)), lambda _: ORIGIN)
    assert isinstance(found, SendMany)
    assert found.messages[0].message_id == "\ud800"


def test_what_a_reply_answers() -> None:
    assert tags_of(replies.Settled(ORIGIN, [3, 4], 0)) == [3, 4]
    assert tags_of(replies.Numbered(ORIGIN, 8, [])) == [8]
    assert tags_of(replies.Ready(ORIGIN)) == []
