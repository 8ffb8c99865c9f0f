"""Operations of the management node that this client has no public call for, sent by the client."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from tests.wire.clients import Bus, bodies, peek_all, receive_one

pytestmark = pytest.mark.side_by_side


def ask(receiver: ServiceBusReceiver, operation: str, request: dict[str, Any]) -> Any:
    """Send a request over the receiver's own management link and give status and body."""

    def read(status: int, answer: Any, description: Any, **_: object) -> tuple[int, Any]:
        return status, answer.value

    send: Any = receiver._mgmt_request_response_with_retry
    return send(f"com.microsoft:{operation}".encode(), request, read)


def test_messages_are_deleted_in_batches(bus: Bus, queue: str) -> None:
    """R-S1: the oldest ones, as many as asked for; what is locked is left alone."""
    bus.send(queue, [ServiceBusMessage(f"{index}") for index in range(10)])
    later = datetime.now(UTC) + timedelta(seconds=5)
    earlier = later - timedelta(hours=1)

    with bus.receiver(queue) as receiver:
        locked = receive_one(receiver)
        status, _ = ask(
            receiver,
            "batch-delete-messages",
            {"message-count": 4, "enqueued-time-utc": earlier},
        )
        assert status == 204
        status, answer = ask(
            receiver, "batch-delete-messages", {"message-count": 4, "enqueued-time-utc": later}
        )
        assert (status, answer) == (200, {b"message-count": 4})
        assert bodies(peek_all(receiver)) == [b"0", b"5", b"6", b"7", b"8", b"9"]
        status, answer = ask(
            receiver, "batch-delete-messages", {"message-count": 100, "enqueued-time-utc": later}
        )
        assert (status, answer) == (200, {b"message-count": 5})
        receiver.complete_message(locked)
        status, _ = ask(
            receiver, "batch-delete-messages", {"message-count": 1, "enqueued-time-utc": later}
        )
        assert status == 204


def test_an_unknown_operation_is_not_implemented(bus: Bus, queue: str) -> None:
    """R-T2: 501, and the link lives on."""
    with bus.receiver(queue) as receiver:
        status, _ = ask(receiver, "make-coffee", {})
        assert status == 501
        assert receiver.peek_messages(max_message_count=1) == []


@pytest.mark.parametrize(
    ("operation", "request_body"),
    [
        ("peek-message", {}),
        ("peek-message", {"from-sequence-number": "one", "message-count": 1}),
        ("renew-lock", {"lock-tokens": 5}),
        ("update-disposition", {"disposition-status": "eaten", "lock-tokens": []}),
        ("receive-by-sequence-number", {"sequence-numbers": "all"}),
    ],
    ids=["nothing", "a word for a number", "no list", "no such status", "no numbers"],
)
def test_a_request_that_makes_no_sense_is_refused(
    bus: Bus, queue: str, operation: str, request_body: dict[str, Any]
) -> None:
    """R-T2: as the asker's mistake, not the broker's; and the link lives on."""
    with bus.receiver(queue) as receiver:
        status, _ = ask(receiver, operation, request_body)
        assert status == 400
        assert receiver.peek_messages(max_message_count=1) == []


def test_what_the_client_makes_of_a_refusal(bus: Bus, queue: str) -> None:
    """R-T2: the condition reaches the caller as an exception with its text."""
    with (
        bus.receiver(queue, client=bus.client(retry_total=0)) as receiver,
        pytest.raises(ServiceBusError, match=r"(?i)message.*not.*found|could not be found"),
    ):
        receiver.receive_deferred_messages(99)
