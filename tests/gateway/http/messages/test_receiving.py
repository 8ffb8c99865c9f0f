"""Receiving and settling by REST: whatever was sent comes out, locked or deleted."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.messages.message import (
    DATA_BODY,
    NO_BODY,
    SEQUENCE_BODY,
    VALUE_BODY,
    AmqpMessage,
    encode_message,
)
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.types import Decimal128, Described, Float, Symbol, Timestamp, Ubyte, Ulong
from tests.gateway.http.messages.rest_harness import Answered, RestHarness, queue, serve

NEW_YEAR = "Fri, 01 Jan 2027 00:00:00 GMT"
NEW_YEAR_MS = 1_798_761_600_000
ONE = Decimal128(((6176 << 113) + 1).to_bytes(16, "big"))


# Properties of an AMQP sender, and what they are as headers and in the one for odd names.
PROPERTIES: dict[Any, Any] = {
    "text": 'a "b"\r\nX-Evil: 1 größe',
    "unseen": " \x00\x7f ",
    "number": -7,
    "ubyte": Ubyte(3),
    "big": Ulong((1 << 64) - 1),
    "real": 0.25,
    "float": Float(0.5),
    "endless": float("inf"),
    "decimal": ONE,
    "flag": False,
    "nothing": None,
    "binary": b"\x00\x01",
    "uuid": UUID(int=5),
    "instant": Timestamp(NEW_YEAR_MS),
    "far": Timestamp(1 << 60),
    "span": Described(Symbol("com.microsoft:timespan"), -937_230_000_000),
    "uri": Described(Symbol("com.microsoft:uri"), "http://x/"),
    "symbol": Symbol("s"),
    "Case": 1,
    "case": 2,
    "with space": 3,
    "größe": 4,
    "Transfer-Encoding": "chunked",
    "Content-Length": "0",
    "Set-Cookie": "a=b",
    "Location": "http://evil/",
    "BrokerProperties": "{}",
    "": 5,
}
AS_HEADERS = {
    "text": '"a \\"b\\"\\r\\nX-Evil: 1 gr\\u00f6\\u00dfe"',
    "unseen": '" \\u0000\\u007f "',
    "number": "-7",
    "ubyte": "3",
    "big": "18446744073709551615",
    "real": "0.25",
    "float": "0.5",
    "endless": '"inf"',
    "decimal": "1",
    "flag": "false",
    "nothing": "null",
    "binary": '"AAE="',
    "uuid": '"00000000-0000-0000-0000-000000000005"',
    "instant": f'"{NEW_YEAR}"',
    "far": str(1 << 60),
    "span": '"-1.02:02:03"',
    "uri": '"http://x/"',
    "symbol": '"s"',
    "Case": "1",
}
AS_OTHERS = {
    "case": 2,
    "with space": 3,
    "größe": 4,
    "Transfer-Encoding": "chunked",
    "Content-Length": "0",
    "Set-Cookie": "a=b",
    "Location": "http://evil/",
    "BrokerProperties": "{}",
    "": 5,
}


async def amqp_sends(rest: RestHarness, message: AmqpMessage, address: str = "q") -> None:
    client = await rest.bus.authorized(address)
    link = await client.sender(address)
    await client.send(link, encode_message(message))


def place(locked: Answered) -> str:
    """The path that a locked message is settled at."""
    scheme, _, host, path = locked.headers["location"].split("/", 3)
    assert (scheme, host) == ("http:", "broker.example")
    return "/" + path


# --- what comes


def test_a_locked_message_says_all_that_is_known_of_it() -> None:
    async def scenario(rest: RestHarness) -> None:
        rest.clock.advance(NEW_YEAR_MS - rest.clock.now())
        said = {
            "MessageId": "m/1 ä",
            "CorrelationId": "c",
            "Label": "größe",
            "To": "to",
            "ReplyTo": "r",
            "ReplyToSessionId": "rs",
            "SessionId": "s",
            "PartitionKey": "s",
            "TimeToLive": 90,
        }
        sent = {
            "BrokerProperties": json.dumps(said),
            "Content-Type": "text/x",
            "Content-Encoding": "gzip",
            "Priority": '"High"',
            "Count": "12",
            "Share": "0.25",
            "IsGood": "true",
            "When": f'"{NEW_YEAR}"',
            "Quoted": '"a \\"b\\" \\u00e4"',
        }
        await rest.send(b"\x00body", **sent)
        locked = await rest.lock()
        assert locked.body == b"\x00body"
        token = locked.properties["LockToken"]
        assert locked.properties == said | {
            "DeliveryCount": 1,
            "EnqueuedSequenceNumber": 1,
            "EnqueuedTimeUtc": NEW_YEAR,
            "LockToken": token,
            "LockedUntilUtc": "Fri, 01 Jan 2027 00:01:00 GMT",
            "SequenceNumber": 1,
            "State": "Active",
        }
        assert place(locked) == f"/q/messages/1/{token}"
        for name in set(sent) - {"BrokerProperties"}:
            assert locked.headers[name.lower()] == sent[name]
        # Their case is the sender's own.
        assert "IsGood" in [name for name, _ in locked.named]

    serve(scenario)


def test_a_deleted_message_has_no_lock() -> None:
    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"body")
        taken = await rest.take()
        assert taken.body == b"body"
        assert taken.headers["content-type"] == "application/octet-stream"
        assert "location" not in taken.headers
        assert not {"LockToken", "LockedUntilUtc", "TimeToLive"} & set(taken.properties)
        assert (await rest.counted()).active == 0

    serve(scenario)


@pytest.mark.parametrize(
    ("kind", "body", "expected", "content_type"),
    [
        (DATA_BODY, [b"a", b"", b"b" * 300], b"a" + b"b" * 300, "application/octet-stream"),
        (VALUE_BODY, "größe", "größe".encode(), "text/plain; charset=utf-8"),
        (VALUE_BODY, Symbol("x"), b"x", "text/plain; charset=utf-8"),
        (VALUE_BODY, b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (VALUE_BODY, None, b"", None),
        (NO_BODY, None, b"", None),
        (VALUE_BODY, 7, b"7", "application/json"),
        (VALUE_BODY, True, b"true", "application/json"),
        (VALUE_BODY, float("nan"), b'"nan"', "application/json"),
        (VALUE_BODY, ONE, b'"1"', "application/json"),
        (
            VALUE_BODY,
            {"a": [1, b"\x00"], 2: Timestamp(NEW_YEAR_MS), "u": UUID(int=5)},
            json.dumps(
                {
                    "a": [1, "AA=="],
                    "2": NEW_YEAR,
                    "u": "00000000-0000-0000-0000-000000000005",
                }
            ).encode(),
            "application/json",
        ),
        (SEQUENCE_BODY, [[1, "a"], [None]], b'[1, "a", null]', "application/json"),
    ],
    ids=str,
)
def test_every_body_of_amqp_comes_out(
    kind: int, body: Any, expected: bytes, content_type: str | None
) -> None:
    """R-F1"""

    async def scenario(rest: RestHarness) -> None:
        await amqp_sends(rest, AmqpMessage(body_kind=kind, body=body))
        taken = await rest.take()
        assert taken.body == expected
        assert taken.headers.get("content-type") == content_type

    serve(scenario)


@pytest.mark.parametrize(
    ("kind", "body", "given", "header", "beside"),
    [
        (DATA_BODY, [b"x"], "text/x", "text/x", None),
        (VALUE_BODY, "x", "text/x", "text/x", None),
        (VALUE_BODY, [1], "text/x", "application/json", "text/x"),
        (DATA_BODY, [b"x"], "a\r\nb: c", "application/octet-stream", "a\r\nb: c"),
        (DATA_BODY, [b"x"], " x", "application/octet-stream", " x"),
    ],
)
def test_a_content_type_is_the_senders_where_it_can_be(
    kind: int, body: Any, given: str, header: str, beside: str | None
) -> None:
    async def scenario(rest: RestHarness) -> None:
        properties = Properties(content_type=Symbol(given))
        await amqp_sends(rest, AmqpMessage(properties=properties, body_kind=kind, body=body))
        taken = await rest.take()
        assert taken.headers["content-type"] == header
        assert taken.properties.get("ContentType") == beside

    serve(scenario)


def test_every_property_of_amqp_comes_out() -> None:
    """R-F1: and none of them pretends to be something else."""

    async def scenario(rest: RestHarness) -> None:
        await amqp_sends(
            rest,
            AmqpMessage(application_properties=PROPERTIES, body_kind=DATA_BODY, body=[b"x"]),
        )
        locked = await rest.lock()
        assert locked.body == b"x"
        standard = {"content-type", "content-length", "brokerproperties", "location"}
        found = {name: value for name, value in locked.named if name.lower() not in standard}
        others = json.loads(found.pop("UserProperties"))
        assert found == AS_HEADERS
        assert others == AS_OTHERS
        # And what came out goes in again.
        headers = {name: value for name, value in locked.named if name.lower() not in standard}
        await rest.ask("DELETE", place(locked))
        await rest.send(b"x", **headers)
        again = await rest.lock()
        assert dict(again.named) | {"UserProperties": ""} == dict(again.named) | headers | {
            "UserProperties": ""
        }
        assert json.loads(again.headers["userproperties"]) == others

    serve(scenario)


def test_what_nobody_has_looked_at_keeps_no_message_from_its_receiver() -> None:
    async def scenario(rest: RestHarness) -> None:
        client = await rest.bus.authorized("q")
        link = await client.sender("q")
        # A subject that is a number, and application properties that have a number for a name.
        payload = b"".join(
            (
                b"\x00\x53\x73\xc0\x06\x04\x40\x40\x40\x54\x07",
                b"\x00\x53\x74\xc1\x05\x02\x54\x01\x54\x02",
                b"\x00\x53\x75\xa0\x01x",
            )
        )
        await client.send(link, payload)
        taken = await rest.take()
        assert taken.body == b"x"
        assert "Label" not in taken.properties

    serve(scenario)


def test_a_host_that_cannot_be_written_is_not() -> None:
    async def scenario(rest: RestHarness) -> None:
        await rest.send()
        for host, expected in (("b\xe4r", "localhost"), ("x:5300", "x:5300")):
            caller = await rest.connect()
            head = (
                f"POST /q/messages/head HTTP/1.1\r\nHost: {host}\r\n"
                f"Authorization: {rest.token()}\r\n\r\n"
            )
            caller.writer.write(head.encode("latin-1"))
            locked = await caller.answer()
            assert locked.headers["location"].startswith(f"http://{expected}/q/messages/1/")
            path = "/" + locked.headers["location"].split("/", 3)[3]
            assert (await caller.ask("PUT", path)).status == 200
            await caller.close()

    serve(scenario)


# --- settling


@pytest.mark.parametrize("by_id", [True, False])
def test_a_lock_is_renewed_and_its_message_completed(by_id: bool) -> None:
    """R-S3"""

    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"x", BrokerProperties='{"MessageId": "a/b 7"}')
        locked = await rest.lock()
        path = place(locked)
        if by_id:
            path = f"/Q/Messages/a%2Fb%207/{locked.properties['LockToken'].upper()}"
        await rest.bench.advance(40_000)
        renewed = await rest.ask("POST", path)
        assert (renewed.status, renewed.body) == (200, b"")
        assert renewed.properties["LockedUntilUtc"] > locked.properties["LockedUntilUtc"]
        await rest.bench.advance(40_000)
        completed = await rest.ask("DELETE", path)
        assert (completed.status, completed.body) == (200, b"")
        counted = await rest.counted()
        assert (counted.active, counted.locked) == (0, 0)
        again = await rest.ask("DELETE", path)
        assert again.status == 404
        assert "There is no message" in again.detail

    serve(scenario)


def test_an_unlocked_message_returns_and_is_counted() -> None:
    """R-S4"""

    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"x")
        path = place(await rest.lock())
        assert (await rest.ask("PUT", path)).status == 200
        for method in ("PUT", "POST", "DELETE"):
            lost = await rest.ask(method, path)
            assert lost.status == 410
            assert "lock supplied is invalid" in lost.detail
        locked = await rest.lock()
        assert locked.properties["DeliveryCount"] == 2

    serve(scenario)


def test_a_lock_expires() -> None:
    """R-L3"""

    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"x")
        path = place(await rest.lock())
        assert await rest.is_empty()
        await rest.bench.advance(60_001)
        assert (await rest.ask("DELETE", path)).status == 410
        assert (await rest.lock()).body == b"x"

    serve(scenario)


def test_a_wrong_path_settles_nothing() -> None:
    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"x", BrokerProperties='{"MessageId": "7"}')
        locked = await rest.lock()
        token = locked.properties["LockToken"]
        other = token[:-1] + ("0" if token[-1] != "0" else "1")
        for path, status in (
            (f"/q/messages/2/{token}", 404),
            (f"/q/messages/id/{token}", 404),
            (f"/q/messages//{token}", 404),
            (f"/q/messages/1/{other}", 410),
            (f"/q/messages/7/{other}", 410),
            ("/q/messages/1/nonsense", 400),
            (f"/q/messages/1/{{{token}}}", 400),
            ("/q/messages/1/ffffffff-ffff-ffff-ffff-ffffffffffff", 404),
            ("/q/messages/9/00000000-0000-0009-0000-000000000001", 404),
            (f"/q/$DeadLetterQueue/messages/1/{token}", 404),
            (f"/t/subscriptions/s/messages/1/{token}", 404),
            (f"/missing/messages/1/{token}", 404),
        ):
            for method in ("DELETE", "PUT", "POST"):
                answered = await rest.ask(method, path)
                assert (path, answered.status) == (path, status)
                assert answered.detail
        assert (await rest.counted()).locked == 1
        # By its id, which looks like a number of another.
        assert (await rest.ask("DELETE", f"/q/messages/7/{token}")).status == 200

    serve(scenario)


def test_a_message_locked_by_amqp_is_completed_by_rest() -> None:
    """R-F1: a token is one, over AMQP or HTTP."""

    async def scenario(rest: RestHarness) -> None:
        await rest.send(b"x")
        client = await rest.bus.authorized()
        link = await client.receiver(credit=1)
        (delivery,) = client.arrived(link)
        token = UUID(bytes_le=delivery.tag)
        assert (await rest.ask("DELETE", f"/q/messages/1/{token}")).status == 200
        assert (await rest.counted()).active == 0

    serve(scenario)


# --- where


def test_dead_letters_are_received_with_their_reason() -> None:
    """R-D1"""

    async def scenario(rest: RestHarness) -> None:
        for path in ("q", "t/subscriptions/s"):
            await rest.send(b"x", path.partition("/")[0], BrokerProperties='{"TimeToLive": 1}')
        for _ in range(3):
            assert (await rest.ask("PUT", place(await rest.lock()))).status == 200
        locked = await rest.lock("q/$DeadLetterQueue")
        assert locked.body == b"x"
        assert locked.headers["deadletterreason"] == '"MaxDeliveryCountExceeded"'
        assert "DeadLetterErrorDescription" in [name for name, _ in locked.named]
        path = place(locked)
        assert path.startswith("/q/$DeadLetterQueue/messages/")
        assert (await rest.ask("POST", path)).status == 200
        assert (await rest.ask("DELETE", path)).status == 200
        assert await rest.is_empty("q/$deadletterqueue")
        for _ in range(10):
            locked = await rest.lock("t/Subscriptions/s")
            assert (await rest.ask("PUT", place(locked))).status == 200
        taken = await rest.take("t/Subscriptions/s/$DeadLetterQueue")
        assert taken.headers["deadletterreason"] == '"MaxDeliveryCountExceeded"'
        assert await rest.is_empty("t/Subscriptions/s/$DeadLetterQueue")

    serve(scenario, queue(delivery_count_max=3))


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("missing", 404, "could not be found"),
        ("t", 400, "cannot be received from a topic"),
        ("t/subscriptions/missing", 404, "could not be found"),
        ("t/subscriptions/with-sessions", 400, "sessions cannot be received by HTTP"),
        ("sessions", 400, "sessions cannot be received by HTTP"),
        ("forwarding", 400, "auto-forwarding"),
        ("closed", 400, "currently disabled"),
    ],
)
def test_not_everything_can_be_received_from(path: str, status: int, said: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        for method in ("POST", "DELETE"):
            answered = await rest.ask(method, f"/{path}/messages/head?timeout=60")
            assert answered.status == status
            assert said in answered.detail
        if path == "sessions":
            # Their dead letters have no sessions.
            assert await rest.is_empty("sessions/$DeadLetterQueue")

    serve(
        scenario,
        queue(),
        queue("sessions", requires_session=True),
        queue("forwarding", forward_to="q"),
        queue("closed", status="ReceiveDisabled"),
    )


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/q/messages/head", "POST, DELETE"),
        ("PUT", "/q/messages/head", "POST, DELETE"),
        ("GET", "/q/messages/1/x", "PUT, POST, DELETE"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str) -> None:
    async def scenario(rest: RestHarness) -> None:
        answered = await rest.ask(method, path)
        assert answered.status == 405
        assert answered.headers["allow"] == allowed
        assert "is not allowed here" in answered.detail

    serve(scenario)
