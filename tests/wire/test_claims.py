"""Claims over the wire: what a data pipeline asks of a queue, beside clients that know nothing of
it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.exceptions import SessionCannotBeLockedError

from peeklock.amqp.messages.message import decode_message
from peeklock.amqp.values.constructors import LONG
from peeklock.amqp.values.types import Array, Int, Uint
from peeklock.client.blocking import ServiceBusClient
from peeklock.client.exceptions import ClaimFenced
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, assert_nothing_comes, bodies, receive
from tests.wire.entities import PARTITIONED, Queues

COUNT = 20


class Owner:
    """An owner of claims of one entity."""

    def __init__(self, broker: BrokerProcess, entity: str, epoch: int = 1) -> None:
        self.client = ServiceBusClient.from_connection_string(broker.connection_string)
        self.entity = entity
        self.epoch = epoch

    def ask(self, operation: str, **arguments: Any) -> dict[Any, Any]:
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        name = f"com.peeklock:{operation}"
        return self.client.manage(self.entity, name, {"owner": "pipeline", **given})

    def claim(self, count: int = 10_000, **more: Any) -> list[int]:
        answer = self.ask("claim-messages", epoch=self.epoch, message_count=Int(count), **more)
        return answer["sequence-numbers"].items if answer else []

    def listed(self, epoch: int | None = None) -> dict[Any, Any]:
        more = {} if epoch is None else {"epoch": epoch}
        return self.ask("list-claims", from_sequence_number=0, message_count=Int(10_000), **more)

    def fetch(self, numbers: list[int]) -> list[bytes]:
        """All of these, in as many calls as it takes."""
        found: list[bytes] = []
        while numbers:
            answer = self.ask("fetch-claims", sequence_numbers=Array(LONG, numbers))
            for entry in answer["messages"]:
                found.append(
                    b"".join(bytes(part) for part in decode_message(entry["message"]).body)
                )
            numbers = numbers[answer["looked-at"] :]
        return found

    def settle(self, status: str, numbers: list[int], **more: Any) -> int:
        answer = self.ask(
            "settle-claims",
            epoch=self.epoch,
            sequence_numbers=Array(LONG, numbers),
            disposition_status=status,
            **more,
        )
        return int(answer["message-count"])


@pytest.fixture
def owner(broker: BrokerProcess, queue: str) -> Iterator[Owner]:
    made = Owner(broker, queue)
    yield made
    made.client.close()


@pytest.fixture
def sync(buses: dict[Any, Bus]) -> Bus:
    """What other clients see does not depend on the flavour of one of them."""
    return next(iter(buses.values()))


def send_some(bus: Bus, queue: str, count: int = COUNT) -> set[bytes]:
    texts = [f"message {number}" for number in range(count)]
    bus.send(queue, *[ServiceBusMessage(text) for text in texts])
    return {text.encode() for text in texts}


def test_claimed_messages_are_the_owners_alone(sync: Bus, queue: str, owner: Owner) -> None:
    """R-D1: fetched as they were sent, seen by a peek, and by no receiver."""
    sent = send_some(sync, queue)
    numbers = owner.claim()
    assert len(numbers) == COUNT
    assert set(owner.fetch(numbers)) == sent
    with sync.receiver(queue) as receiver:
        assert_nothing_comes(receiver)
        peeked = receiver.peek_messages(max_message_count=COUNT)
        assert len(peeked) == COUNT
        assert {each.state for each in peeked} == {ServiceBusMessageState.ACTIVE}
        notes = [each.raw_amqp_message.annotations or {} for each in peeked]
        assert {each[b"com.peeklock:claimed"] for each in notes} == {True}
    assert owner.settle("completed", numbers) == COUNT
    assert owner.settle("completed", numbers) == 0
    with sync.receiver(queue) as receiver:
        assert receiver.peek_messages() == []


def test_released_messages_reach_a_receiver_that_waits(sync: Bus, queue: str, owner: Owner) -> None:
    """R-D1."""
    sent = send_some(sync, queue)
    numbers = owner.claim()
    with sync.receiver(queue) as receiver:
        assert_nothing_comes(receiver)
        assert owner.settle("released", numbers) == COUNT
        got = receive(receiver, COUNT)
        assert set(bodies(got)) == sent
        assert {each.delivery_count for each in got} == {0}


def test_the_later_of_two_owners_goes_on(broker: BrokerProcess, sync: Bus, queue: str) -> None:
    """R-D1: the way of a reader to its epoch."""
    send_some(sync, queue)
    first, second = Owner(broker, queue), Owner(broker, queue)
    numbers = first.claim()
    second.epoch = first.listed()["epoch"] + 1
    assert sorted(numbers) == second.listed(second.epoch)["sequence-numbers"].items
    with pytest.raises(ClaimFenced, match="pipeline"):
        first.settle("completed", numbers)
    assert second.settle("completed", numbers) == COUNT
    first.client.close()
    second.client.close()


def test_dead_letters_are_claimed_in_their_turn(
    broker: BrokerProcess, sync: Bus, queue: str, owner: Owner
) -> None:
    """R-D1."""
    send_some(sync, queue, 3)
    numbers = owner.claim()
    owner.settle("suspended", numbers, deadletter_reason="SparkTaskFailed")
    with sync.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        peeked = receiver.peek_messages(max_message_count=9)
        assert {each.dead_letter_reason for each in peeked} == {"SparkTaskFailed"}
    dead = Owner(broker, f"{queue}/$DeadLetterQueue")
    assert sorted(dead.claim()) == sorted(numbers)
    assert dead.settle("completed", numbers) == 3
    dead.client.close()


def test_a_session_with_claims_is_given_to_nobody(
    broker: BrokerProcess, sync: Bus, queues: Queues
) -> None:
    """R-D1."""
    queue = queues.take("session")
    sync.send(queue, *[ServiceBusMessage(str(number), session_id="s") for number in range(3)])
    owner = Owner(broker, queue)
    answer = owner.ask("claim-messages", epoch=1, message_count=Int(2))
    assert answer["session-ids"] == ["s", "s"]
    assert owner.fetch(answer["sequence-numbers"].items) == [b"0", b"1"]
    with (
        pytest.raises(SessionCannotBeLockedError),
        sync.receiver(queue, session_id="s") as refused,
    ):
        refused.receive_messages(max_wait_time=1)
    owner.settle("completed", answer["sequence-numbers"].items)
    with sync.receiver(queue, session_id="s") as receiver:
        assert bodies(receive(receiver, 1)) == [b"2"]
    owner.client.close()


def test_claims_outlive_the_broker(own_broker: BrokerProcess, own_bus: Bus) -> None:
    """R-D1: also when it is killed."""
    queue = "plain-001"
    sent = send_some(own_bus, queue)
    before = Owner(own_broker, queue)
    numbers = before.claim(COUNT // 2)
    assert len(numbers) == COUNT // 2
    before.client.close()
    own_broker.kill()
    own_broker.start()
    owner = Owner(own_broker, queue, epoch=2)
    listed = owner.listed(2)
    assert listed["sequence-numbers"].items == sorted(numbers)
    assert listed["active-count"] == COUNT - len(numbers)
    half = set(owner.fetch(numbers))
    assert len(half) == COUNT // 2
    with own_bus.receiver(queue) as receiver:
        assert set(bodies(receive(receiver, COUNT - len(numbers)))) == sent - half
    owner.client.close()


def test_a_silent_owner_loses_its_claims(sync: Bus, queue: str, owner: Owner) -> None:
    """R-D1."""
    sent = send_some(sync, queue, 4)
    assert len(owner.claim(claim_timeout=Uint(1_000))) == 4
    begun = time.monotonic()
    with sync.receiver(queue) as receiver:
        assert set(bodies(receive(receiver, 4))) == sent
    assert time.monotonic() - begun > 0.5
    assert owner.listed()["sequence-numbers"].items == []


def test_ten_thousand_claims_are_listed_and_settled_at_once(
    sync: Bus, queue: str, owner: Owner
) -> None:
    """R-D1: 4,000 messages, and as many numbers as a call may have."""
    count = 4_000
    for first in range(0, count, 2_000):
        sync.send(queue, [ServiceBusMessage(str(first + number)) for number in range(2_000)])
    numbers = owner.claim()
    assert len(numbers) == count
    assert owner.listed()["sequence-numbers"].items == sorted(numbers)
    strange = list(range(1 << 40, (1 << 40) + 10_000 - count))
    assert owner.settle("completed", numbers + strange) == count
    assert len(owner.listed()["last-sequence-numbers"].items) == (4 if PARTITIONED else 1)
