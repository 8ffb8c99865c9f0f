"""Documents that are none, or say what cannot be: a clear error, and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.http.admin.admin_harness import entry, queue, rule, subscription, topic
from tests.gateway.http.messages.rest_harness import BATCH
from tests.gateway.matrix.http_client import ATOM_TYPE, HttpConnection, check_refused, request
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

PLACES = {
    "queue": "/new",
    "topic": "/new",
    "subscription": "/t/Subscriptions/new",
    "rule": "/t/Subscriptions/s/Rules/new",
}
LAUGHS = "".join(
    f'<!ENTITY l{each} "{f"&l{each - 1};" * 10}">' if each else '<!ENTITY l0 "ha">'
    for each in range(10)
)
GOOD = entry(queue()).encode()

NO_DOCUMENTS = {
    "nothing": b"",
    "white space": b"   \n",
    "text": b"make me a queue",
    "JSON": b'{"QueueDescription": {}}',
    "half a tag": b"<",
    "half a document": GOOD[: len(GOOD) // 2],
    "two documents": GOOD + GOOD,
    "rubbish behind it": GOOD + b"x",
    "another root": b"<feed xmlns='http://www.w3.org/2005/Atom'/>",
    "a description alone": queue().encode(),
    "no content": b'<entry xmlns="http://www.w3.org/2005/Atom"/>',
    "empty content": entry("").encode(),
    "text for content": entry("x").encode(),
    "two descriptions": entry(queue() + queue()).encode(),
    "an unknown description": entry("<Nothing/>").encode(),
    "an unknown prefix": entry("<x:QueueDescription/>").encode(),
    "the same attribute twice": b'<entry a="1" a="2"/>',
    "entities": f"<!DOCTYPE e [{LAUGHS}]>{entry(queue('&l9;'))}".encode(),
    "a file": b'<!DOCTYPE e [<!ENTITY f SYSTEM "file:///etc/passwd">]>'
    + entry(queue("<UserMetadata>&f;</UserMetadata>")).partition("?>")[2].encode(),
    "a document type": b"<!DOCTYPE entry>" + GOOD.partition(b"?>")[2],
    "an unknown entity": entry(queue("&nothing;")).encode(),
    "a character that XML has not": entry(queue("<UserMetadata>&#0;</UserMetadata>")).encode(),
    "half a surrogate pair": entry(queue("<UserMetadata>&#xD800;</UserMetadata>")).encode(),
    "zeros": b"\0" * 100,
    "no UTF-8": GOOD.replace(b"QueueDescription ", b"QueueDescription \xff"),
    "an unknown encoding": GOOD.replace(b"utf-8", b"klingon"),
    "another encoding than it says": GOOD.replace(b"utf-8", b"utf-16"),
    "UTF-16 cut": GOOD.decode().replace("utf-8", "utf-16").encode("utf-16")[:101],
    "too deep": entry("<a>" * 5000 + "</a>" * 5000).encode(),
    "too large": entry(queue(f"<UserMetadata>{'x' * 70_000}</UserMetadata>")).encode(),
}

WRONG_VALUES = {
    "queue": [
        "<LockDuration>soon</LockDuration>",
        "<LockDuration>PT0S</LockDuration>",
        "<LockDuration>PT6M</LockDuration>",
        f"<LockDuration>P{'9' * 5000}D</LockDuration>",
        "<LockDuration>-PT1M</LockDuration>",
        "<MaxDeliveryCount>0</MaxDeliveryCount>",
        "<MaxDeliveryCount>-1</MaxDeliveryCount>",
        "<MaxDeliveryCount>1.5</MaxDeliveryCount>",
        "<MaxDeliveryCount>many</MaxDeliveryCount>",
        "<MaxDeliveryCount>\u0661</MaxDeliveryCount>",
        f"<MaxDeliveryCount>{'9' * 30_000}</MaxDeliveryCount>",
        "<MaxDeliveryCount>9999999999999999999</MaxDeliveryCount>",
        "<MaxSizeInMegabytes>16384000</MaxSizeInMegabytes>",
        "<MaxSizeInMegabytes>1000</MaxSizeInMegabytes>",
        "<MaxMessageSizeInKilobytes>-5</MaxMessageSizeInKilobytes>",
        "<MaxMessageSizeInKilobytes>9999999999999999999</MaxMessageSizeInKilobytes>",
        "<RequiresSession>maybe</RequiresSession>",
        "<EnablePartitioning>2</EnablePartitioning>",
        "<Status>Sleeping</Status>",
        "<DefaultMessageTimeToLive>PT0S</DefaultMessageTimeToLive>",
        "<DefaultMessageTimeToLive>forever</DefaultMessageTimeToLive>",
        "<AutoDeleteOnIdle>PT1S</AutoDeleteOnIdle>",
        "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>"
        "<DuplicateDetectionHistoryTimeWindow>P8D</DuplicateDetectionHistoryTimeWindow>",
        "<ForwardTo>nowhere</ForwardTo>",
        "<ForwardTo>sb://</ForwardTo>",
        "<ForwardTo>../q</ForwardTo>",
        f"<ForwardTo>{'q' * 5000}</ForwardTo>",
        "<ForwardDeadLetteredMessagesTo>nowhere</ForwardDeadLetteredMessagesTo>",
        f"<UserMetadata>{'x' * 1025}</UserMetadata>",
        "<AuthorizationRules><AuthorizationRule/></AuthorizationRules>",
        "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Fly</AccessRights></Rights>"
        "<KeyName>k</KeyName><PrimaryKey>x</PrimaryKey></AuthorizationRule></AuthorizationRules>",
    ],
    "topic": [
        "<MaxSizeInMegabytes>x</MaxSizeInMegabytes>",
        "<Status>Sleeping</Status>",
        "<AutoDeleteOnIdle>PT1S</AutoDeleteOnIdle>",
        "<DefaultMessageTimeToLive>1 hour</DefaultMessageTimeToLive>",
    ],
    "subscription": [
        "<LockDuration>PT6M</LockDuration>",
        "<MaxDeliveryCount>0</MaxDeliveryCount>",
        "<Status>Sleeping</Status>",
        "<ForwardTo>nowhere</ForwardTo>",
        '<DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>= =</SqlExpression>'
        "</Filter></DefaultRuleDescription>",
    ],
    "rule": [
        "<Filter/>",
        '<Filter i:type="NoSuchFilter"/>',
        '<Filter i:type="SqlFilter"/>',
        '<Filter i:type="SqlFilter"><SqlExpression/></Filter>',
        '<Filter i:type="SqlFilter"><SqlExpression>a = = 1</SqlExpression></Filter>',
        f"<Filter i:type=\"SqlFilter\"><SqlExpression>a = '{'x' * 2000}'</SqlExpression></Filter>",
        f'<Filter i:type="SqlFilter"><SqlExpression>{"(" * 900}</SqlExpression></Filter>',
        '<Filter i:type="CorrelationFilter"/>',
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType>'
        "<Value>x</Value></KeyValueOfstringanyType></Properties></Filter>",
        '<Filter i:type="TrueFilter"/><Action i:type="NoSuchAction"/>',
        '<Filter i:type="TrueFilter"/><Action i:type="SqlRuleAction">'
        "<SqlExpression>DROP TABLE x</SqlExpression></Action>",
    ],
}
DESCRIBED: dict[str, Callable[[str], str]] = {
    "queue": queue,
    "topic": topic,
    "subscription": subscription,
    "rule": rule,
}
WRONG_TYPED = [
    ("int", "x"),
    ("int", "9" * 5000),
    ("long", ""),
    ("double", "1,5"),
    ("decimal", "much"),
    ("decimal", "NaN"),
    ("decimal", "1E+999999999"),
    ("decimal", "1E-999999999"),
    ("boolean", "2"),
    ("dateTime", "yesterday"),
    ("dateTime", "99999-01-01T00:00:00Z"),
    ("duration", "P" + "9" * 3000 + "D"),
    ("guid", "x"),
    ("base64Binary", "!"),
    ("QName", "x"),
]


def with_topic(scenario: Callable[[WatchedBroker], Awaitable[None]]) -> None:
    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        await broker.topic("t")
        await scenario(broker)

    inhabit(visit)


@pytest.mark.parametrize("place", list(PLACES))
def test_what_is_no_document(place: str) -> None:
    """On each place that takes documents, for what is new and for what is there."""

    async def visit(broker: WatchedBroker) -> None:
        for name, body in NO_DOCUMENTS.items():
            for more in ((), (("If-Match", "*"),)):
                raw = request(
                    broker, "PUT", PLACES[place], body, ("Content-Type", ATOM_TYPE), *more
                )
                reply = await check_refused(broker, raw)
                # One that there is not cannot be changed, which may be told first.
                assert reply.status == 400 or (more and reply.status == 404), name

    with_topic(visit)


@pytest.mark.parametrize("place", list(PLACES))
def test_what_describes_something_else(place: str) -> None:
    async def visit(broker: WatchedBroker) -> None:
        for other, described in DESCRIBED.items():
            if other == place or {place, other} == {"queue", "topic"}:
                continue
            body = entry(described("")).encode()
            raw = request(broker, "PUT", PLACES[place], body, ("Content-Type", ATOM_TYPE))
            assert (await check_refused(broker, raw)).status == 400

    with_topic(visit)


@pytest.mark.parametrize("place", list(WRONG_VALUES))
def test_values_that_cannot_be(place: str) -> None:
    """Each is refused with its name or with the rule that it breaks."""

    async def visit(broker: WatchedBroker) -> None:
        for inner in WRONG_VALUES[place]:
            body = entry(DESCRIBED[place](inner)).encode()
            raw = request(broker, "PUT", PLACES[place], body, ("Content-Type", ATOM_TYPE))
            reply = await check_refused(broker, raw)
            assert reply.status == 400, inner[:200]
            assert "SubCode=40" in reply.error

    with_topic(visit)


@pytest.mark.parametrize(("kind", "text"), WRONG_TYPED, ids=lambda value: str(value)[:20])
def test_values_that_are_not_of_their_type(kind: str, text: str) -> None:
    async def visit(broker: WatchedBroker) -> None:
        inner = (
            '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType>'
            f'<Key>k</Key><Value i:type="d6p1:{kind}" xmlns:d6p1="urn:x">{text}</Value>'
            "</KeyValueOfstringanyType></Properties></Filter>"
        )
        body = entry(rule(inner)).encode()
        raw = request(broker, "PUT", PLACES["rule"], body, ("Content-Type", ATOM_TYPE))
        assert (await check_refused(broker, raw)).status == 400

    with_topic(visit)


NO_BATCHES = [
    b"",
    b"x",
    b"{",
    b"{}",
    b"[]",
    b"null",
    b"[1]",
    b"[null]",
    b"[{}]",
    b"[[]]",
    b'[{"Body": 1}]',
    b'[{"Body": null}]',
    b'[{"Body": "x"},]',
    b'[{"Body": "x"}] x',
    b'[{"Body": "x", "Body": "y"}]',
    b'[{"Body": "x"}, {}]',
    b'[{"Body": "\\ud800"}]',
    b'[{"Body": "\xff"}]',
    b"[" * 60_000,
    b'[{"Body": "x", "UserProperties": ' + b'{"a":' * 10_000 + b"}]",
    b'[{"Body": "x", "UserProperties": []}]',
    b'[{"Body": "x", "UserProperties": {"a": {}}}]',
    b'[{"Body": "x", "UserProperties": {"a": [1]}}]',
    b'[{"Body": "x", "UserProperties": {"a": 1' + b"0" * 400 + b"}}]",
    b'[{"Body": "x", "UserProperties": {"a": 1' + b"0" * 5000 + b"}}]",
    b'[{"Body": "x", "UserProperties": {"a": NaN}}]',
    b'[{"Body": "x", "UserProperties": {"\\ud800": 1}}]',
    b'[{"Body": "x", "UserProperties": {"a": "' + b"x" * 33_000 + b'"}}]',
    b'[{"Body": "x", "BrokerProperties": "x"}]',
    b'[{"Body": "x", "BrokerProperties": {"MessageId": 1}}]',
]
NO_PROPERTIES = [
    "",
    "x",
    "{",
    "[]",
    "1",
    "null",
    '"text"',
    '{"MessageId": 1}',
    '{"MessageId": "' + "x" * 200 + '"}',
    '{"MessageId": "a", "MessageId": "b"}',
    '{"MessageId": "\\ud800"}',
    '{"SessionId": {}}',
    '{"SessionId": "a", "PartitionKey": "b"}',
    '{"Label": []}',
    '{"TimeToLive": "soon"}',
    '{"TimeToLive": -1}',
    '{"TimeToLive": 0}',
    '{"TimeToLive": true}',
    '{"TimeToLive": NaN}',
    '{"TimeToLive": 1e999}',
    '{"TimeToLive": -1' + "0" * 400 + "}",
    '{"TimeToLiveTimeSpan": "1 hour"}',
    '{"TimeToLiveTimeSpan": 5}',
    '{"ScheduledEnqueueTimeUtc": "yesterday"}',
    '{"ScheduledEnqueueTimeUtc": 5}',
    '{"ScheduledEnqueueTimeUtc": "Sun, 99 Foo 1994 08:49:37 GMT"}',
    '{"ForcePersistence": "yes"}',
    '{"a":' * 5000,
    '{"MessageId": "' + "x" * 66_000 + '"}',
]


@pytest.mark.parametrize("entity", ["q", "t"])
def test_what_is_no_batch(entity: str) -> None:
    """One wrong message, and none of the batch is sent."""

    async def visit(broker: WatchedBroker) -> None:
        for body in NO_BATCHES:
            raw = request(broker, "POST", f"/{entity}/messages", body, ("Content-Type", BATCH))
            assert (await check_refused(broker, raw)).status == 400, body[:100]

    with_topic(visit)


@pytest.mark.parametrize("entity", ["q", "t"])
def test_what_broker_properties_cannot_be(entity: str) -> None:
    async def visit(broker: WatchedBroker) -> None:
        for text in NO_PROPERTIES:
            header = ("BrokerProperties", text)
            raw = request(broker, "POST", f"/{entity}/messages", b"x", header)
            assert (await check_refused(broker, raw)).status in (400, 431), text[:100]
            if not text.isascii() or len(text) > 60_000:
                continue
            body = b'[{"Body": "x", "BrokerProperties": %s}]' % (text or "x").encode()
            if text == "null":
                continue
            raw = request(broker, "POST", f"/{entity}/messages", body, ("Content-Type", BATCH))
            assert (await check_refused(broker, raw)).status == 400, text[:100]

    with_topic(visit)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=4)), max_size=4))
def test_a_document_with_wrong_bytes_is_read_or_refused(wrong: list[tuple[int, bytes]]) -> None:
    """Whatever stands where: never a failure of the broker, and no half of a queue."""
    document = bytearray(entry(queue("<MaxDeliveryCount>7</MaxDeliveryCount>")).encode())
    for at, text in wrong:
        document[at : at + len(text)] = text

    async def visit(broker: WatchedBroker) -> None:
        line = await HttpConnection.to(broker)
        raw = request(broker, "PUT", "/new", bytes(document), ("Content-Type", ATOM_TYPE))
        reply = await line.say(raw)
        assert reply.status in (201, 400)
        assert (broker.broker.find("ns", "new") is not None) == (reply.status == 201)
        await line.close()

    inhabit(visit)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Body", "BrokerProperties", "UserProperties", "TimeToLive", "a"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=40)
@given(json_values)
def test_any_json_is_a_batch_or_refused(document: object) -> None:
    """All of a batch or nothing of it."""
    body = json.dumps(document).encode()

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        line = await HttpConnection.to(broker)
        raw = request(broker, "POST", "/q/messages", body, ("Content-Type", BATCH))
        reply = await line.say(raw)
        assert reply.status in (201, 400), body
        state = await broker.state()
        sent = len(document) if isinstance(document, list) and reply.status == 201 else 0
        assert sum(state["q"][:4]) >= sent
        await line.close()

    inhabit(visit)
