"""The runtime REST API, with the official client at the other end: one bus, two protocols."""

import json
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageLockLostError

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, assert_nothing_comes, body, peek_all, receive, receive_one
from tests.wire.entities import QUEUE_RULES, Queues
from tests.wire.rest import RestClient

BATCH = "application/vnd.microsoft.servicebus.json"


@pytest.fixture
def rest(broker: BrokerProcess) -> Iterator[RestClient]:
    client = RestClient(broker.http_port)
    yield client
    client.close()


@pytest.mark.smoke
def test_what_rest_sends_the_client_receives(bus: Bus, rest: RestClient, queue: str) -> None:
    """R-F1"""
    said = {
        "MessageId": "m-1",
        "CorrelationId": "c",
        "Label": "größe",
        "To": "to",
        "ReplyTo": "r",
        "ReplyToSessionId": "rs",
        "PartitionKey": "k",
        "TimeToLive": 3600,
    }
    rest.send(
        queue,
        b"\x00body\xff",
        **{
            "BrokerProperties": json.dumps(said),
            "Content-Type": "application/x-thing",
            "Priority": '"High"',
            "Count": "12",
            "Share": "0.25",
            "IsGood": "true",
            "When": '"Fri, 01 Jan 2027 00:00:00 GMT"',
        },
    )
    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
    assert body(message) == b"\x00body\xff"
    assert (message.message_id, message.correlation_id) == ("m-1", "c")
    assert (message.subject, message.to, message.reply_to) == ("größe", "to", "r")
    assert message.reply_to_session_id == "rs"
    assert message.partition_key == "k"
    assert message.content_type == "application/x-thing"
    assert message.time_to_live == timedelta(hours=1)
    assert message.application_properties == {
        b"Priority": b"High",
        b"Count": 12,
        b"Share": 0.25,
        b"IsGood": True,
        b"When": 1_798_761_600_000,
    }


@pytest.mark.smoke
def test_what_the_client_sends_rest_receives(bus: Bus, rest: RestClient, queue: str) -> None:
    """R-F1"""
    bus.send(
        queue,
        ServiceBusMessage(
            b"\x00body",
            message_id="m-1",
            subject="größe",
            content_type="text/x",
            correlation_id="c",
            partition_key="k",
            time_to_live=timedelta(minutes=5),
            application_properties={
                "text": "a\r\nb",
                "number": 7,
                "flag": True,
                "id": UUID(int=7),
                "with space": "x",
            },
        ),
    )
    locked = rest.lock(queue)
    assert locked.body == b"\x00body"
    assert locked.headers["Content-Type"] == "text/x"
    said = locked.properties
    assert (said["MessageId"], said["Label"], said["CorrelationId"]) == ("m-1", "größe", "c")
    assert (said["PartitionKey"], said["TimeToLive"]) == ("k", 300)
    assert (said["DeliveryCount"], said["State"]) == (1, "Active")
    assert locked.headers["text"] == '"a\\r\\nb"'
    assert locked.headers["number"] == "7"
    assert locked.headers["flag"] == "true"
    assert locked.headers["id"] == '"00000000-0000-0000-0000-000000000007"'
    assert json.loads(locked.headers["UserProperties"]) == {"with space": "x"}
    assert rest.ask("DELETE", locked.place).status == 200
    assert rest.is_empty(queue)


def test_every_body_comes_out(bus: Bus, rest: RestClient, queue: str) -> None:
    cases: list[tuple[dict[str, Any], bytes, str]] = [
        ({"data_body": [b"a", b"b"]}, b"ab", "application/octet-stream"),
        ({"value_body": "größe"}, "größe".encode(), "text/plain; charset=utf-8"),
        ({"value_body": b"\x00"}, b"\x00", "application/octet-stream"),
        ({"value_body": {"a": 1}}, b'{"a": 1}', "application/json"),
        ({"sequence_body": [["a", None]]}, b'["a", null]', "application/json"),
    ]
    for made, expected, kind in cases:
        bus.send(queue, AmqpAnnotatedMessage(**made))
        taken = rest.take(queue)
        assert (taken.body, taken.headers["Content-Type"]) == (expected, kind)


def test_locks_are_the_same_over_amqp_and_http(bus: Bus, rest: RestClient, queues: Queues) -> None:
    """R-L1: whoever holds a token can use it, and whoever does not cannot."""
    queue = queues.take("short-lock")
    rest.send(queue, b"x")
    locked = rest.lock(queue)
    for _ in range(3):
        time.sleep(2)
        renewed = rest.ask("POST", locked.place)
        assert renewed.status == 200
        assert "LockedUntilUtc" in renewed.properties
    with bus.receiver(queue) as receiver:
        assert_nothing_comes(receiver)
        assert rest.ask("PUT", locked.place).status == 200
        message = receive_one(receiver)
        assert message.delivery_count == 1
        assert rest.ask("DELETE", locked.place).status == 410
        path = f"/{queue}/messages/{message.sequence_number}/{message.lock_token}"
        assert rest.ask("DELETE", path).status == 200
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        assert peek_all(receiver) == []
    assert rest.ask("DELETE", path).status == 404


def test_dead_letters_and_subscriptions(bus: Bus, rest: RestClient, queues: Queues) -> None:
    """R-D1"""
    topic = queues.take("topic")
    rest.send(topic, b"news", Colour='"red"')
    assert rest.take(f"{topic}/subscriptions/a").headers["Colour"] == '"red"'
    with bus.subscriber(topic, "b") as receiver:
        message = receive_one(receiver)
        receiver.dead_letter_message(message, reason="spoilt", error_description="größe")
    dead = f"{topic}/Subscriptions/b/$DeadLetterQueue"
    locked = rest.lock(dead)
    assert locked.body == b"news"
    assert locked.headers["DeadLetterReason"] == '"spoilt"'
    assert json.loads(locked.headers["DeadLetterErrorDescription"]) == "größe"
    assert rest.ask("DELETE", locked.place).status == 200
    assert rest.is_empty(dead)
    refused = rest.ask("POST", f"/{topic}/messages/head?timeout=0")
    assert refused.status == 400
    assert b"<Error><Code>400</Code><Detail>" in refused.body


def test_sessions_are_sent_to_and_not_received(bus: Bus, rest: RestClient, queues: Queues) -> None:
    queue = queues.take("session")
    rest.send(queue, b"x", BrokerProperties='{"SessionId": "s", "PartitionKey": "s"}')
    wrong = {"BrokerProperties": '{"SessionId": "s", "PartitionKey": "p"}'}
    assert rest.ask("POST", f"/{queue}/messages", b"x", wrong).status == 400
    assert rest.ask("POST", f"/{queue}/messages", b"x").status == 400
    refused = rest.ask("DELETE", f"/{queue}/messages/head")
    assert refused.status == 400
    assert b"sessions cannot be received by HTTP" in refused.body
    with bus.receiver(queue, session_id="s") as receiver:
        assert body(receive_one(receiver)) == b"x"


def test_a_batch_and_a_scheduled_message(bus: Bus, rest: RestClient, queue: str) -> None:
    """R-T5"""
    due = datetime.now(UTC) + timedelta(seconds=3)
    batch = [
        {"Body": f"b{at}", "BrokerProperties": {"PartitionKey": "k"}, "UserProperties": {"at": at}}
        for at in range(20)
    ]
    batch[0]["BrokerProperties"] = {
        "PartitionKey": "k",
        "ScheduledEnqueueTimeUtc": format_datetime(due, usegmt=True),
    }
    sent = rest.ask("POST", f"/{queue}/messages", json.dumps(batch), {"Content-Type": BATCH})
    assert sent.status == 201
    with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        states = {body(each): each.state for each in peek_all(receiver)}
        assert states[b"b0"] == ServiceBusMessageState.SCHEDULED
        now = receive(receiver, 19)
        assert [body(each) for each in now] == [b"b%d" % at for at in range(1, 20)]
        assert [each.application_properties for each in now] == [{b"at": at} for at in range(1, 20)]
        assert body(receive_one(receiver)) == b"b0"
        assert datetime.now(UTC) > due - timedelta(seconds=1)


def test_rights_are_the_rules_of_the_queue(
    broker: BrokerProcess, rest: RestClient, queues: Queues
) -> None:
    queue = queues.take("own-rules")
    sender = RestClient(broker.http_port, rule="send-only", key=QUEUE_RULES[0]["PrimaryKey"])
    # A rule of a queue signs for the queue, not for the namespace.
    assert sender.ask("POST", f"/{queue}/messages", b"x").status == 401
    for client, rule in ((sender, QUEUE_RULES[0]), (rest, QUEUE_RULES[1])):
        listens = rule["Rights"] == ["Listen"]
        headers = {"Authorization": signed(broker, queue, rule)}
        sent = client.ask("POST", f"/{queue}/messages", b"x", headers)
        assert sent.status == (403 if listens else 201)
        got = client.ask("DELETE", f"/{queue}/messages/head?timeout=5", b"", headers)
        assert got.status == (200 if listens else 403)
    sender.close()


def signed(broker: BrokerProcess, queue: str, rule: dict[str, Any]) -> str:
    resource = f"http://localhost:{broker.http_port}/{queue}"
    return sas.token(resource, rule=rule["Name"], key=rule["PrimaryKey"])


@pytest.mark.smoke
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_waiting_receiver_is_woken_or_gone(
    broker: BrokerProcess, bus: Bus, rest: RestClient, queue: str, method: str
) -> None:
    """R-S1: nothing is lost with a client that hangs up."""
    gone = RestClient(broker.http_port)
    gone.begin(method, f"/{queue}/messages/head?timeout=60")
    time.sleep(0.3)
    gone.close()
    time.sleep(0.3)
    waiting = RestClient(broker.http_port)
    waiting.begin(method, f"/{queue}/messages/head?timeout=60")
    time.sleep(0.3)
    bus.send(queue, ServiceBusMessage("late"))
    response = waiting._connection.getresponse()
    assert response.status == (201 if method == "POST" else 200)
    assert json.loads(response.headers["BrokerProperties"])["DeliveryCount"] == 1
    assert response.read() == b"late"
    waiting.close()


def test_curl_sends_and_receives(
    broker: BrokerProcess, bus: Bus, rest: RestClient, queue: str, tmp_path: Any
) -> None:
    base = f"http://localhost:{broker.http_port}/{queue}/messages"
    authorization = f"Authorization: {rest.authorization()}"
    large = tmp_path / "large"
    # Beyond 64 KB, in chunks, and with the question whether to go on.
    large.write_bytes(b"x" * 200_000)
    common = ["curl", "-sS", "-H", authorization, "-w", "%{http_code}"]
    sent = subprocess.run(
        [*common, "-H", "Expect: 100-continue", "-H", 'Kind: "big"', "-T", "-", "-X", "POST", base],
        stdin=large.open("rb"),
        capture_output=True,
        check=True,
    )
    assert sent.stdout == b"201"
    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        assert len(body(message)) == 200_000
        assert message.application_properties == {b"Kind": b"big"}
        receiver.abandon_message(message)
    got = subprocess.run(
        [*common, "-X", "DELETE", f"{base}/head?timeout=5"], capture_output=True, check=True
    )
    assert got.stdout == b"x" * 200_000 + b"200"
    too_large = tmp_path / "too-large"
    too_large.write_bytes(bytes(5_000_000))
    refused = subprocess.run(
        [*common, "--data-binary", f"@{too_large}", base], capture_output=True, check=True
    )
    assert refused.stdout.endswith(b"</Error>403")


def test_what_rest_was_told_survives_a_kill(own_broker: BrokerProcess) -> None:
    """R-T1"""
    queue = "plain-001"
    rest = RestClient(own_broker.http_port)
    for number in range(20):
        rest.send(queue, b"%d" % number, Number=str(number))
    assert rest.take(queue).status == 200
    locked = rest.lock(queue)
    assert rest.ask("DELETE", locked.place).status == 200
    rest.close()
    own_broker.kill()
    own_broker.start()
    again = [rest.take(queue) for _ in range(18)]
    got = {int(each.body) for each in again}
    assert len(got) == 18
    assert all(each.headers["Number"] == each.body.decode() for each in again)
    assert rest.is_empty(queue)
    # And waiting receivers do not keep the broker from ending.
    waiting = [RestClient(own_broker.http_port) for _ in range(5)]
    for client in waiting:
        client.begin("POST", f"/{queue}/messages/head?timeout=60")
    time.sleep(0.3)
    assert own_broker.stop() == 0
    for client in (*waiting, rest):
        client.close()


def test_a_store_out_of_reach_is_told_and_nothing_waits_for_it(own_broker: BrokerProcess) -> None:
    """R-P4: a failure that may pass is 503, so that clients try again."""
    queue = "plain-002"
    rest = RestClient(own_broker.http_port)
    rest.send(queue, b"kept", BrokerProperties='{"MessageId": "m"}')
    locked = rest.lock(queue)
    by_id = f"/{queue}/messages/m/{locked.properties['LockToken']}"
    waiting = RestClient(own_broker.http_port)
    waiting.begin("DELETE", f"/{queue}/messages/head?timeout=60")
    time.sleep(0.3)
    stores = json.loads(rest.ask("GET", "/$stores").body)["stores"]
    for store in stores:
        assert rest.ask("POST", f"/$stores/{store['name']}/offline").status == 200
    assert waiting._connection.getresponse().status == 503
    for method, path in (
        ("POST", f"/{queue}/messages"),
        ("POST", f"/{queue}/messages/head?timeout=60"),
        ("DELETE", f"/{queue}/messages/head?timeout=0"),
        ("DELETE", locked.place),
        ("DELETE", by_id),
    ):
        assert (path, rest.ask(method, path, b"x").status) == (path, 503)
    for store in stores:
        assert rest.ask("POST", f"/$stores/{store['name']}/online").status == 200
    assert rest.take(queue).body == b"kept"
    for client in (rest, waiting):
        client.close()
