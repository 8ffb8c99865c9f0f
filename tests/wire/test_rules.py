"""The rules of subscriptions: what filters see of a message, and what actions make of it.

Each rule of the filter topics has an action that writes its name into a copy of its own, so that
one subscription tells about all of them.
"""

import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.wire.clients import Bus, bodies, body, peek_all, receive
from tests.wire.entities import Queues
from tests.wire.layouts import SYSTEM_FIELDS

pytestmark = pytest.mark.side_by_side(at_once=16)

DEAD: Final = ServiceBusSubQueue.DEAD_LETTER
# What is true of every message here.
ALWAYS: Final = {"enqueued", "fresh"}
# What is true of a message without any of the user properties.
NOTHING: Final = {"is-null", "not-exists"}
RED: Final = {
    *("text", "name-of-any-case", "scope", "order-of-texts", "like-run", "like-one"),
    *("in-texts", "is-not-null", "exists", "c-text"),
}
SEVEN: Final = {
    *("whole", "whole-as-double", "between", "fraction-below", "in-numbers", "arithmetic"),
    *("precedence", "brackets-first", "division", "modulo", "sign", "unknown-or-true", "c-whole"),
}
NOW: Final = datetime.now(UTC)


def verdicts(bus: Bus, topic: str, expected: list[set[str]]) -> list[set[str]]:
    """Which rules took each message; a message tells by its body which one it is."""
    found: dict[int, list[str]] = defaultdict(list)
    with bus.subscriber(topic, "verdicts") as receiver:
        wanted = sum(map(len, expected))
        deadline = time.monotonic() + 10
        while len(seen := peek_all(receiver)) < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
    for each in seen:
        found[int(body(each))].append(str(text_of(each, "verdict")))
    for rules in found.values():
        assert len(set(rules)) == len(rules), f"a rule made two copies: {rules}"
    return [set(found[index]) for index in range(len(expected))]


def text_of(message: ServiceBusReceivedMessage, name: str) -> Any:
    value: Any = (message.application_properties or {}).get(name.encode())
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.smoke
def test_filters_on_system_properties(bus: Bus, queues: Queues) -> None:
    """Each one alone, by SQL and by correlation; then all together."""
    topic = f"{queues.take('filters')}/system"
    names = {
        "MessageId": "message_id",
        "CorrelationId": "correlation_id",
        "SessionId": "session_id",
        "To": "to",
        "ReplyTo": "reply_to",
        "ReplyToSessionId": "reply_to_session_id",
        "Label": "subject",
        "ContentType": "content_type",
    }
    more = {"MessageId": {"any-case"}, "Label": {"subject"}, "To": {"like"}}
    messages: list[dict[str, Any]] = []
    expected: list[set[str]] = []
    for name in SYSTEM_FIELDS:
        messages.append({names[name]: f"its-{name}"})
        expected.append({f"sql-{name}", f"c-{name}"} | more.get(name, set()))
    messages.append({names[name]: f"ITS-{name}" for name in SYSTEM_FIELDS})
    expected.append(set())
    messages.append({names[name]: f"its-{name}" for name in SYSTEM_FIELDS})
    expected.append(set.union(*expected) | {"joined"})
    messages.append({"partition_key": "its-SessionId"})
    expected.append({"partition-key"})
    messages.append({"time_to_live": timedelta(hours=1)})
    expected.append({"lives"})
    messages.append({"scheduled_enqueue_time_utc": NOW + timedelta(seconds=1)})
    expected.append({"scheduled"})
    messages.append({"application_properties": {"padding": "x" * 2000}})
    expected.append({"large"})
    expected = [each | ALWAYS for each in expected]

    bus.publish(
        topic, *(ServiceBusMessage(f"{index}", **each) for index, each in enumerate(messages))
    )
    assert verdicts(bus, topic, expected) == expected


USER_CASES: Final[list[tuple[dict[str | bytes, Any], set[str]]]] = [
    ({}, NOTHING),
    ({"colour": "red"}, RED),
    ({"Colour": "red"}, RED),
    (
        {"colour": "RED"},
        {"value-of-other-case", "not-like", "not-in-texts", "is-not-null", "exists"},
    ),
    (
        {"colour": "it's"},
        {"apostrophe", "not-like", "not-in-texts", "is-not-null", "exists"},
    ),
    (
        {"colour": "50% more"},
        {"like-escape", "not-like", "not-in-texts", "is-not-null", "exists"},
    ),
    ({"the colour": "red"}, NOTHING | {"brackets", "quotes", "function"}),
    ({"colour": None}, {"is-null", "exists"}),
    ({"n": 7}, NOTHING | SEVEN),
    ({"n": 7.0}, NOTHING | SEVEN - {"division"}),
    ({"n": 8}, NOTHING | {"unequal", "fraction-below"}),
    ({"n": "7"}, NOTHING | {"unequal", "not-a-text"}),
    ({"n": True}, NOTHING | {"unequal"}),
    ({"flag": True}, NOTHING | {"flag", "flag-alone", "c-flag"}),
    ({"flag": False}, NOTHING | {"not-flag"}),
    ({"ratio": 0.5}, NOTHING | {"double", "double-below", "c-double"}),
    ({"ratio": 0}, NOTHING | {"double-below"}),
    ({"left": NOW, "right": NOW}, NOTHING | {"same"}),
    (
        {"left": NOW + timedelta(hours=1), "right": NOW + timedelta(hours=2)},
        NOTHING | {"different", "later", "in-the-future"},
    ),
    ({"left": UUID(int=7), "right": UUID(int=7)}, NOTHING | {"same"}),
    ({"left": UUID(int=7), "right": str(UUID(int=7))}, NOTHING | {"different"}),
    ({"left": b"\x00", "right": b"\x00"}, NOTHING | {"same"}),
    ({"left": 3, "right": 3.0}, NOTHING | {"same"}),
    ({"left": "3", "right": 3}, NOTHING | {"different"}),
]


def test_filters_on_user_properties(bus: Bus, queues: Queues) -> None:
    """Texts, numbers, booleans, instants, uuids; unknown is neither true nor false."""
    topic = f"{queues.take('filters')}/user"
    expected = [each for _, each in USER_CASES]

    bus.publish(
        topic,
        [
            ServiceBusMessage(f"{at}", application_properties=properties)
            for at, (properties, _) in enumerate(USER_CASES)
        ],
    )
    assert verdicts(bus, topic, expected) == expected


def test_filters_on_numbers_of_every_width(bus: Bus, queues: Queues) -> None:
    """The wire's types are told apart by nobody: 7 is 7."""
    topic = f"{queues.take('filters')}/user"
    widths = ["UBYTE", "USHORT", "UINT", "ULONG", "BYTE", "SHORT", "INT", "LONG"]
    messages = [
        AmqpAnnotatedMessage(
            data_body=f"{index}".encode(),
            application_properties={"n": {"TYPE": width, "VALUE": 7}},
        )
        for index, width in enumerate(widths)
    ]
    for width in ("FLOAT", "DOUBLE"):
        messages.append(
            AmqpAnnotatedMessage(
                data_body=f"{len(messages)}".encode(),
                application_properties={"ratio": {"TYPE": width, "VALUE": 0.5}},
            )
        )
    for width in ("ULONG", "LONG"):
        messages.append(
            AmqpAnnotatedMessage(
                data_body=f"{len(messages)}".encode(),
                application_properties={"big": {"TYPE": width, "VALUE": 5_000_000_000}},
            )
        )
    expected = [NOTHING | SEVEN] * len(widths)
    expected += [NOTHING | {"double", "double-below", "c-double"}] * 2 + [NOTHING | {"long"}] * 2

    bus.publish(topic, messages)
    assert verdicts(bus, topic, expected) == expected


def test_a_correlation_filter_wants_all_of_it(bus: Bus, queues: Queues) -> None:
    topic = f"{queues.take('filters')}/user"
    properties: dict[str | bytes, Any] = {"colour": "red", "n": 7}
    bus.publish(
        topic,
        ServiceBusMessage("0", subject="its-Label", application_properties=properties),
        ServiceBusMessage("1", subject="another", application_properties=properties),
        ServiceBusMessage("2", application_properties=properties),
    )

    expected = [RED | SEVEN | {"c-all-of"}, RED | SEVEN, RED | SEVEN]
    assert verdicts(bus, topic, expected) == expected


# --- actions


def test_an_action_makes_a_copy_of_its_own(bus: Bus, queues: Queues) -> None:
    """Two rules without action give one copy, each rule with an action gives one more."""
    topic = queues.take("changing-topic")
    sent = ServiceBusMessage(
        "x",
        message_id="m",
        subject="before",
        to="somewhere",
        application_properties={"n": 1, "colour": "red", "other": True},
    )
    bus.publish(topic, sent)

    with bus.subscriber(topic, "changed") as receiver:
        copies = receive(receiver, 3)
        assert len(peek_all(receiver)) == 3
        for each in copies:
            receiver.complete_message(each)
    (plain,) = [each for each in copies if set(properties_of(each)) == {"n", "colour", "other"}]
    (changed,) = [each for each in copies if "region" in properties_of(each)]
    (named,) = [each for each in copies if "id" in properties_of(each)]
    assert properties_of(plain) == {"n": 1, "colour": "red", "other": True}
    assert (plain.subject, plain.to, plain.reply_to) == ("before", "somewhere", None)
    assert properties_of(changed) == {
        "RuleName": "three",
        "n": 2,
        "other": True,
        "region": "north",
        "joined up": "red/north",
    }
    assert (changed.subject, changed.to, changed.reply_to) == ("changed", None, "m")
    assert isinstance(properties_of(named)["id"], UUID)
    assert properties_of(named)["gone"] is None
    assert properties_of(named)["RuleName"] == "four"
    assert bodies(copies) == [b"x"] * 3
    assert {each.message_id for each in copies} == {"m"}


def properties_of(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    return {
        (name.decode() if isinstance(name, bytes) else name): (
            value.decode() if isinstance(value, bytes) else value
        )
        for name, value in (message.application_properties or {}).items()
    }


def test_an_action_changes_only_its_copy(bus: Bus, queues: Queues) -> None:
    """Not the message, not the neighbour's copy; batches and scheduled messages too."""
    topic = queues.take("changing-topic")

    def message() -> ServiceBusMessage:
        return ServiceBusMessage("x", application_properties={"n": -1, "mark": str(uuid4())})

    with bus.publisher(topic) as publisher:
        publisher.send_messages([message(), message()])
        publisher.schedule_messages(message(), datetime.now(UTC) + timedelta(seconds=1))
    with bus.subscriber(topic, "untouched") as receiver:
        untouched = receive(receiver, 3)
    with bus.subscriber(topic, "changed") as receiver:
        copies = receive(receiver, 9)
    assert all(set(properties_of(each)) == {"n", "mark"} for each in untouched)
    for each in untouched:
        mark = properties_of(each)["mark"]
        mine = [properties_of(copy) for copy in copies if properties_of(copy)["mark"] == mark]
        assert sorted(len(copy) for copy in mine) == [2, 4, 5]
        assert [copy["region"] for copy in mine if "region" in copy] == ["south"]


def test_actions_on_a_large_message(bus: Bus, queues: Queues) -> None:
    """Every copy has the whole body."""
    topic = queues.take("changing-topic")
    large = b"x" * 255_000
    bus.publish(topic, ServiceBusMessage(large, application_properties={"n": 1, "colour": "red"}))

    with bus.subscriber(topic, "changed") as receiver:
        assert bodies(receive(receiver, 3)) == [large] * 3


def test_rules_that_fail(bus: Bus, queues: Queues) -> None:
    """To the dead-letter queue or nowhere, as the subscription says; the others are not touched."""
    topic = queues.take("failing-topic")
    good = ServiceBusMessage("good", application_properties={"n": 2, "d": 2})
    bad = ServiceBusMessage("bad", application_properties={"n": 2, "d": 0})
    bus.publish(topic, good, [bad])

    for name, came in (("kept", [b"good"]), ("dropped", [b"good"]), ("action", [b"good"])):
        with bus.subscriber(topic, name) as receiver:
            assert bodies(peek_all(receiver)) == came
    with bus.subscriber(topic, "bystander") as receiver:
        assert bodies(peek_all(receiver)) == [b"good", b"bad"]
    with bus.subscriber(topic, "dropped", sub_queue=DEAD) as dead_letters:
        assert peek_all(dead_letters) == []
    for name in ("kept", "action"):
        with bus.subscriber(topic, name, sub_queue=DEAD) as dead_letters:
            (dead,) = receive(dead_letters, 1)
        assert body(dead) == b"bad"
        assert dead.dead_letter_reason == "FilterException"
        assert "divided by zero" in str(dead.dead_letter_error_description)
        assert "divides" in str(dead.dead_letter_error_description)
