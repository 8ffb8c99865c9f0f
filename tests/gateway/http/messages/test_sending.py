"""Sending by REST: one message or several, stored as an AMQP sender's would be, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, decode_message
from peeklock.amqp.values.types import Int, Symbol, Timestamp
from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule
from peeklock.gateway.amqp.nodes.batches import BATCH_COUNT_MAX
from peeklock.gateway.http.messages.entries import VALUES_MAX
from tests.gateway.http.messages.rest_harness import (
    BATCH,
    RestHarness,
    nothing_stored,
    queue,
    serve,
)

NEW_YEAR = "Fri, 01 Jan 2027 00:00:00 GMT"
NEW_YEAR_MS = 1_798_761_600_000


FULL_PROPERTIES: dict[str, Any] = {
    "MessageId": "m-1",
    "CorrelationId": "c",
    "SessionId": "s",
    "PartitionKey": "s",
    "ViaPartitionKey": "v",
    "Label": "größe",
    "To": "to",
    "ReplyTo": "reply",
    "ReplyToSessionId": "rs",
    "TimeToLive": 90.5,
    "ForcePersistence": True,
    "SequenceNumber": 7,
    "Whatever": [],
}
FULL_HEADERS = {
    "BrokerProperties": json.dumps(FULL_PROPERTIES, ensure_ascii=False),
    "Content-Type": "application/x-thing; v=1",
    "Content-Encoding": "gzip",
    "Priority": '"High"',
    "Count": "12",
    "Far": "-5000000000",
    "Much": "123456789012345678901234567890",
    "Share": "0.25",
    "IsGood": "true",
    "Plain": "no quotes",
    "When": f'"{NEW_YEAR}"',
    "Path": '"C:\\temp"',
    "Line": '"a\\nb"',
    "UserProperties": '{"with space": 1}',
    "User-Agent": "x",
}


async def amqp_receives(rest: RestHarness, address: str = "q", count: int = 1) -> list[AmqpMessage]:
    """What an AMQP client receives and deletes."""
    client = await rest.bus.authorized(address)
    link = await client.receiver(address, credit=count, snd_settle_mode=1)
    await client.talk()
    return [decode_message(delivery.payload) for delivery in client.arrived(link)]


def test_a_message_is_what_an_amqp_sender_would_have_sent() -> None:
    """R-F1"""

    async def scenario(rest: RestHarness) -> None:
        body = bytes(range(256))
        await rest.send(body, **FULL_HEADERS)
        (message,) = await amqp_receives(rest)
        assert (message.body_kind, message.body) == (DATA_BODY, [body])
        assert message.application_properties == {
            "Priority": "High",
            "Count": 12,
            "Far": -5_000_000_000,
            "Much": "123456789012345678901234567890",
            "Share": 0.25,
            "IsGood": True,
            "Plain": "no quotes",
            "When": NEW_YEAR_MS,
            "Path": "C:\temp",
            "Line": "a\nb",
            "with space": 1,
        }
        assert type(message.application_properties["Count"]) is Int
        assert type(message.application_properties["When"]) is Timestamp
        found = message.properties
        assert found is not None
        assert (found.message_id, found.correlation_id, found.group_id) == ("m-1", "c", "s")
        assert (found.subject, found.to, found.reply_to) == ("größe", "to", "reply")
        assert found.reply_to_group_id == "rs"
        assert found.content_type == Symbol("application/x-thing; v=1")
        assert found.content_encoding == Symbol("gzip")
        assert message.header is not None
        assert message.header.ttl == 90_500
        assert message.message_annotations is not None
        assert message.message_annotations["x-opt-partition-key"] == "s"
        assert message.message_annotations["x-opt-via-partition-key"] == "v"

    serve(scenario)


def test_a_message_needs_nothing_but_its_body_and_not_even_that() -> None:
    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"")
        await rest.send(b"x")
        first, second = await amqp_receives(rest, count=2)
        assert (first.body, second.body) == ([b""], [b"x"])
        assert first.application_properties is None
        assert first.properties is not None
        assert second.properties is not None
        ids = {first.properties.message_id, second.properties.message_id}
        assert len(ids) == 2
        assert all(len(each) == 32 for each in ids)

    serve(scenario)


def test_a_long_life_is_told_as_amqp_clients_tell_it() -> None:
    async def scenario(rest: RestHarness) -> None:
        now = rest.clock.now()
        await rest.send(BrokerProperties='{"TimeToLive": 8640000}')
        (message,) = await amqp_receives(rest)
        assert message.properties is not None
        assert message.properties.creation_time == now
        assert message.properties.absolute_expiry_time == now + 8_640_000_000

    serve(scenario)


def test_a_message_expires_when_its_sender_says() -> None:
    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"short", BrokerProperties='{"TimeToLive": 0.5}')
        await rest.send(b"long", BrokerProperties='{"TimeToLiveTimeSpan": "1.00:00:30.25"}')
        await rest.bench.advance(600)
        answered = await rest.take()
        assert answered.body == b"long"
        assert answered.properties["TimeToLive"] == 86_430.25

    serve(scenario)


@pytest.mark.parametrize("form", [NEW_YEAR, "2027-01-01T00:00:00", "2027-01-01T01:00:00+01:00"])
def test_a_message_waits_until_it_is_due(form: str) -> None:
    """R-F5"""

    async def scenario(rest: RestHarness) -> None:
        rest.clock.advance(NEW_YEAR_MS - 1000 - rest.clock.now())
        said = json.dumps({"ScheduledEnqueueTimeUtc": form})
        await rest.send(b"later", BrokerProperties=said)
        assert (await rest.counted()).scheduled == 1
        assert await rest.is_empty()
        await rest.bench.advance(1001)
        answered = await rest.take()
        assert answered.body == b"later"
        assert answered.properties["ScheduledEnqueueTimeUtc"] == NEW_YEAR

    serve(scenario)


def test_a_batch_is_stored_whole() -> None:
    """R-T5"""

    async def scenario(rest: RestHarness) -> None:
        custom = {"a": "x", "b": 3, "c": 0.5, "d": True, "e": None, "f f": 1}
        batch = [
            {"Body": "größe"},
            {
                "Body": "second",
                "BrokerProperties": {
                    "Label": "l",
                    "ContentType": "text/plain",
                    "TimeToLiveTimeSpan": "00:00:30",
                },
                "UserProperties": custom,
            },
        ]
        headers = {"Content-Type": f"{BATCH}; charset=utf-8"}
        body = b"\xef\xbb\xbf" + json.dumps(batch).encode()
        answered = await rest.ask("POST", "/q/messages", body, headers)
        assert answered.status == 201
        first, second = await amqp_receives(rest, count=2)
        assert first.body == ["größe".encode()]
        assert second.body == [b"second"]
        assert second.application_properties == custom
        assert second.properties is not None
        assert (second.properties.subject, second.properties.content_type) == ("l", "text/plain")
        assert second.header is not None
        assert second.header.ttl == 30_000

    serve(scenario)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "must be a JSON array"),
        ("{", "must be a JSON array"),
        ('[{"Body": "a"},]', "place 1 of the batch: It must be a JSON object"),
        ('[{"Body": "a"}}]', "cannot be read as JSON"),
        ('[{"Body": "a"]]', "cannot be read as JSON"),
        ('[{"Body": "a"}] 1', "something stands behind the array"),
        ('["', "it ends within the array"),
        ('["\\', "it ends within the array"),
        ('[{"Body": "a", "X": [' + "1," * VALUES_MAX + "1]}]", "more than 1024 values"),
        ('[{"Body": "a"}', "cannot be read as JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"Body": NaN}]', "not a number of JSON"),
        ('[{"Body": "a", "Body": "b"}]', "given twice"),
        ("{}", "must be a JSON array"),
        ("[]", "must be a JSON array"),
        ('["a"]', "place 0 of the batch: It must be a JSON object"),
        ('[{"Body": "a"}, {}]', "place 1 of the batch: Body must be a string"),
        ('[{"Body": "a"}, {"Body": 1}]', "place 1 of the batch: Body must be a string"),
        ('[{"Body": "a", "UserProperties": 1}]', "UserProperties must be a JSON object"),
        ('[{"Body": "a", "UserProperties": {"x": []}}]', "The property 'x' must be a string"),
        (
            '[{"Body": "a", "UserProperties": {"x": 18446744073709551616}}]',
            "'x' is a number of more than 64 bits",
        ),
        ('[{"Body": "a", "BrokerProperties": "x"}]', "BrokerProperties must be a JSON object"),
        ('[{"Body": "\\ud800"}]', "half a surrogate pair"),
        ('[{"Body": "a", "UserProperties": {"\\ud800": 1}}]', "half a surrogate pair"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_batch_that_cannot_be_read_stores_nothing(document: str, said: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        headers = {"Content-Type": BATCH}
        answered = await rest.ask("POST", "/q/messages", document.encode(), headers)
        assert answered.status == 400
        assert said in answered.detail
        assert "TrackingId:" in answered.detail
        await nothing_stored(rest)

    serve(scenario)


def test_a_long_batch_is_read_in_parts_and_keeps_its_order() -> None:
    async def scenario(rest: RestHarness) -> None:
        headers = {"Content-Type": BATCH}
        entries: list[Any] = [{"Body": f"{number}"} for number in range(900)]
        body = json.dumps(entries).encode()
        assert (await rest.ask("POST", "/q/messages", body, headers)).status == 201
        found = await amqp_receives(rest, count=900)
        assert [each.body for each in found] == [[f"{number}".encode()] for number in range(900)]
        entries[777] = {"Body": 7}
        answered = await rest.ask("POST", "/q/messages", json.dumps(entries).encode(), headers)
        assert answered.status == 400
        assert "place 777" in answered.detail
        many = json.dumps([{"Body": ""}] * (BATCH_COUNT_MAX + 1)).encode()
        answered = await rest.ask("POST", "/q/messages", many, headers)
        assert answered.status == 400
        assert str(BATCH_COUNT_MAX) in answered.detail
        await nothing_stored(rest)

    serve(scenario)


def test_a_batch_in_another_encoding_is_refused() -> None:
    async def scenario(rest: RestHarness) -> None:
        body = '[{"Body": "ä"}]'.encode("latin-1")
        answered = await rest.ask("POST", "/q/messages", body, {"Content-Type": BATCH})
        assert answered.status == 400
        assert "cannot be read as JSON" in answered.detail

    serve(scenario)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "cannot be read as JSON"),
        ("nonsense", "cannot be read as JSON"),
        ("[1]", "must be a JSON object"),
        ('{"MessageId": 7}', "MessageId in BrokerProperties must be a string"),
        ('{"Label": {}}', "Label in BrokerProperties must be a string"),
        (json.dumps({"MessageId": "x" * 129}), "MessageId in BrokerProperties has more than 128"),
        (json.dumps({"SessionId": "x" * 129}), "SessionId in BrokerProperties has more than 128"),
        ('{"SessionId": "a", "PartitionKey": "b"}', "both set and differ"),
        ('{"TimeToLive": "10"}', "must be a number of seconds"),
        ('{"TimeToLive": true}', "must be a number of seconds"),
        ('{"TimeToLive": 0}', "must be more than nothing"),
        ('{"TimeToLive": -1}', "must be more than nothing"),
        ('{"TimeToLive": 1e999}', "must be more than nothing"),
        ('{"TimeToLive": -1' + "0" * 400 + "}", "must be more than nothing"),
        ('{"TimeToLiveTimeSpan": 5}', "must be a duration"),
        ('{"TimeToLiveTimeSpan": "soon"}', "must be a duration"),
        ('{"TimeToLiveTimeSpan": "00:00:00"}', "must be a duration"),
        ('{"TimeToLiveTimeSpan": "25:00:00"}', "must be a duration"),
        ('{"ScheduledEnqueueTimeUtc": "tomorrow"}', "must be an instant"),
        ('{"ScheduledEnqueueTimeUtc": 5}', "must be an instant"),
        ('{"ScheduledEnqueueTimeUtc": "Fri, 41 Jan 2027 00:00:00 GMT"}', "must be an instant"),
        ('{"ForcePersistence": "yes"}', "must be true or false"),
        ('{"Label": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_wrong_broker_properties_store_nothing(value: str, said: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        answered = await rest.ask("POST", "/q/messages", b"x", {"BrokerProperties": value})
        assert answered.status == 400
        assert said in answered.detail
        await nothing_stored(rest)

    serve(scenario)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"X": "y" * 32_769}, "The header 'X' has more than 32768 bytes"),
        ({"X": "1", "UserProperties": '{"X": 2}'}, "The property 'X' is given twice"),
        ({"UserProperties": "no"}, "The header UserProperties cannot be read as JSON"),
        ({"BrokerProperties": "{}", "brokerproperties": "{}"}, "is given twice"),
    ],
    ids=["long", "twice", "no JSON", "two heads"],
)
def test_wrong_headers_store_nothing(headers: dict[str, str], said: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        answered = await rest.ask("POST", "/q/messages", b"x", headers)
        assert answered.status == 400
        assert said in answered.detail
        await nothing_stored(rest)

    serve(scenario)


def test_properties_are_bounded_together() -> None:
    async def scenario(rest: RestHarness) -> None:
        headers = dict.fromkeys(("A", "B"), "y" * 30_000)
        await rest.send(b"", **headers)
        answered = await rest.ask("POST", "/q/messages", b"", headers | {"C": "y" * 6_000})
        assert answered.status == 400
        assert "more than 65536 bytes of properties" in answered.detail

    serve(scenario)


def test_a_head_that_does_not_end_is_refused() -> None:
    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        caller.writer.write(b"POST /q/messages HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 80_000)
        assert (await caller.answer()).status == 431
        assert await caller.reader.read() == b""
        await caller.close()

    serve(scenario)


# --- who and where


@pytest.mark.parametrize("path", ["q", "Q", "%71", "q/messages", "Q/Messages", ""])
def test_a_token_for_the_path_or_above_it_is_enough(path: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        answered = await rest.ask("POST", "/q/messages", token=rest.token(path))
        assert answered.status == 201

    serve(scenario)


RULES = [
    AuthorizationRule("sender", "secret", rights=SEND),
    AuthorizationRule("listener", "secret", rights=LISTEN),
]


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"token": ""}, 401, "no Authorization header"),
        ({"rule": "nobody"}, 401, "InvalidSignature"),
        ({"key": "wrong"}, 401, "InvalidSignature"),
        ({"life_ms": -1000}, 401, "ExpiredToken"),
        ({"path": "other"}, 401, "InvalidAudience"),
        ({"path": "q", "rule": "listener", "key": "secret"}, 403, "the right 'Send'"),
        ({"token": "Bearer a.b.c"}, 401, "JWT"),
        ({"token": "nonsense"}, 401, "MalformedToken"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_who_may_not_send_learns_nothing(options: dict[str, Any], status: int, said: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        given = dict(options)
        token = given.pop("token") if "token" in given else rest.token(**given)
        for path in ("/q/messages", "/missing/messages"):
            answered = await rest.ask("POST", path, b"x", token=token)
            assert answered.status in (status, 401)
            assert answered.status == 401 or "the right" in answered.detail
            assert ("www-authenticate" in answered.headers) == (answered.status == 401)
            assert "TrackingId:" in answered.detail
        assert said in (await rest.ask("POST", "/q/messages", b"x", token=token)).detail
        await nothing_stored(rest)

    serve(scenario, rules=RULES)


def test_the_right_to_send_is_enough() -> None:
    async def scenario(rest: RestHarness) -> None:
        token = rest.token("q", "sender", "secret")
        assert (await rest.ask("POST", "/q/messages", token=token)).status == 201
        for method, path in (
            ("POST", "/q/messages/head"),
            ("DELETE", "/q/messages/head"),
            ("PUT", "/q/messages/1/x"),
        ):
            answered = await rest.ask(method, path, token=token)
            assert answered.status == 403
            assert "the right 'Listen'" in answered.detail

    serve(scenario, rules=RULES)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/missing/messages", 404, "could not be found"),
        ("/%00%ff/messages", 404, "could not be found"),
        ("/$cbs/messages", 404, "could not be found"),
        ("/q/$management/messages", 404, "could not be found"),
        ("/t/subscriptions/s/messages", 400, "cannot be sent to a subscription"),
        ("/q/$DeadLetterQueue/messages", 400, "cannot be sent to a dead-letter queue"),
        ("/closed/messages", 400, "currently disabled"),
    ],
)
def test_not_everything_can_be_sent_to(path: str, status: int, said: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        answered = await rest.ask("POST", path, b"x")
        assert answered.status == status
        assert said in answered.detail

    serve(scenario, queue(), queue("closed", status="SendDisabled"))


def test_a_path_of_several_parts_is_found() -> None:
    async def scenario(rest: RestHarness) -> None:
        for path in ("a/messages/b", "a%2Fmessages%2Fb", "A/Messages/B"):
            await rest.send(path.encode(), path)
            assert (await rest.take("a/messages/b")).body == path.encode()

    serve(scenario, queue("a/messages/b"))


def test_sessions_can_be_sent_to_and_must_be_named() -> None:
    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"in a session", BrokerProperties='{"SessionId": "s1"}')
        answered = await rest.ask("POST", "/q/messages", b"in none")
        assert answered.status == 400
        client = await rest.bus.authorized()
        link = await client.session_receiver("s1", credit=10)
        (delivery,) = client.arrived(link)
        assert decode_message(delivery.payload).body == [b"in a session"]

    serve(scenario, queue(requires_session=True))


def test_duplicates_are_taken_and_dropped() -> None:
    async def scenario(rest: RestHarness) -> None:
        for body in (b"first", b"second"):
            await rest.send(body, BrokerProperties='{"MessageId": "same"}')
        assert (await rest.take()).body == b"first"
        assert await rest.is_empty()

    serve(scenario, queue(duplicate_window_ms=60_000))


def test_a_topic_publishes() -> None:
    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"news", "t", Colour='"red"')
        answered = await rest.take("t/Subscriptions/s")
        assert answered.body == b"news"
        assert answered.headers["colour"] == '"red"'

    serve(scenario)


def test_requests_on_one_connection_are_answered_in_order() -> None:
    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        for number in range(5):
            caller.write("POST", "/q/messages", b"%d" % number)
            caller.write("DELETE", "/q/messages/head?timeout=0")
        for number in range(5):
            assert (await caller.answer()).status == 201
            answered = await caller.answer()
            assert (answered.status, answered.body) == (200, b"%d" % number)
        await caller.close()

    serve(scenario)


def test_partitions_are_not_noticed() -> None:
    async def scenario(rest: RestHarness) -> None:
        for number in range(8):
            await rest.send(b"%d" % number)
        same_key = json.dumps(
            [{"Body": "k", "BrokerProperties": {"PartitionKey": "k"}} for _ in range(2)]
        )
        headers = {"Content-Type": BATCH}
        sent = await rest.ask("POST", "/q/messages", same_key.encode(), headers)
        assert sent.status == 201
        mixed = json.dumps(
            [{"Body": "k", "BrokerProperties": {"PartitionKey": key}} for key in "ab"]
        )
        refused = await rest.ask("POST", "/q/messages", mixed.encode(), headers)
        assert refused.status == 400
        assert "different keys" in refused.detail
        got = [(await rest.take()).body for _ in range(4)]
        for _ in range(6):
            locked = await rest.lock()
            got.append(locked.body)
            path = "/" + locked.headers["location"].split("/", 3)[3]
            assert (await rest.ask("POST", path)).status == 200
            assert (await rest.ask("DELETE", path)).status == 200
        assert sorted(got) == sorted([b"%d" % number for number in range(8)] + [b"k"] * 2)
        assert await rest.is_empty()

    serve(scenario, queue(partitions=4))
