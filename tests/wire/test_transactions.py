"""Transactions with clients that have them: Qpid Proton, and the official Java client."""

from __future__ import annotations

import subprocess

import pytest

from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, Flavour, bodies, peek_all, receive_one
from tests.wire.entities import PARTITIONED, ROOT_KEY, Queues
from tests.wire.generic import COMMITTED, ROLLED_BACK, Generic, message, proton
from tests.wire.java import java_client

ACCEPTED = proton.Delivery.ACCEPTED
REJECTED = proton.Delivery.REJECTED
WITHIN_TRANSACTION = 0x34
# One start of a virtual machine for all scenarios; they take ten seconds together.
JAVA_WITHIN_S = 100


# What makes sense on both is seen on both; where all are partitioned, once is enough.
KINDS = ("partitioned",) if PARTITIONED else ("plain", "partitioned")


@pytest.fixture(params=KINDS)
def queue(request: pytest.FixtureRequest, queues: Queues) -> str:
    """A queue of either kind that no other test has touched."""
    return queues.take(request.param)


@pytest.fixture
def peek(buses: dict[Flavour, Bus]) -> Peek:
    return Peek(buses["sync"])


class Peek:
    """What the official client sees in a queue."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def __call__(self, queue: str) -> list[str]:
        with self._bus.receiver(queue) as receiver:
            return [text.decode() for text in bodies(peek_all(receiver))]

    def arrived(self, queue: str) -> str:
        """The next message, which may still be on its way from another entity."""
        with self._bus.receiver(queue) as receiver:
            message = receive_one(receiver)
            receiver.complete_message(message)
            return bodies([message])[0].decode()


# --- Qpid Proton


def test_a_generic_client_shows_its_key_with_plain(broker: BrokerProcess, queue: str) -> None:
    """No token is needed then: send, receive, complete."""
    with Generic(broker.amqp_port) as client:
        client.send(queue, "a", "b")
        receiver = client.receiver(queue)
        for expected in ("a", "b"):
            text, delivery = receiver.receive()
            assert text == expected
            assert receiver.settle(delivery, ACCEPTED) == ACCEPTED


def test_a_wrong_key_is_refused_with_plain(broker: BrokerProcess) -> None:
    with pytest.raises(proton.ConnectionException, match=r"(?i)auth"):
        Generic(broker.amqp_port, key=ROOT_KEY + "?")


def test_sends_are_committed_or_rolled_back(broker: BrokerProcess, queue: str, peek: Peek) -> None:
    with Generic(broker.amqp_port) as client:
        sender = client.sender(queue)
        transaction = client.declare()
        assert transaction.send(sender, "a") == WITHIN_TRANSACTION
        sender.send(message("outside"))
        assert peek(queue) == ["outside"]
        assert transaction.commit() == COMMITTED
        assert peek(queue) == ["outside", "a"]
        transaction = client.declare()
        assert transaction.send(sender, "never") == WITHIN_TRANSACTION
        assert transaction.roll_back() == ROLLED_BACK
        assert peek(queue) == ["outside", "a"]
        # It has ended: nothing can be added to it.
        assert transaction.send(sender, "late") == REJECTED


def test_a_message_is_completed_with_the_commit(
    broker: BrokerProcess, queue: str, peek: Peek
) -> None:
    with Generic(broker.amqp_port) as client:
        client.send(queue, "in")
        sender = client.sender(queue)
        _, delivery = client.receiver(queue).receive()
        transaction = client.declare()
        assert transaction.accept(delivery) == WITHIN_TRANSACTION
        assert transaction.send(sender, "out") == WITHIN_TRANSACTION
        assert peek(queue) == ["in"]
        assert transaction.commit() == COMMITTED
        assert peek(queue) == ["out"]


def test_a_rolled_back_completion_leaves_the_message(
    broker: BrokerProcess, queue: str, peek: Peek
) -> None:
    """It stays locked, so that nobody else gets it before its lock ends."""
    with Generic(broker.amqp_port) as client:
        client.send(queue, "in")
        receiver = client.receiver(queue)
        _, delivery = receiver.receive()
        transaction = client.declare()
        transaction.accept(delivery)
        assert transaction.roll_back() == ROLLED_BACK
        assert peek(queue) == ["in"]
        with pytest.raises(proton.Timeout):
            receiver.receive(timeout_s=0.5)


def test_a_lost_connection_discards_its_transactions(
    broker: BrokerProcess, queue: str, peek: Peek
) -> None:
    client = Generic(broker.amqp_port)
    client.send(queue, "in")
    sender = client.sender(queue)
    _, delivery = client.receiver(queue).receive()
    transaction = client.declare()
    transaction.accept(delivery)
    transaction.send(sender, "never")
    client.drop()
    assert peek(queue) == ["in"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sender_can_name_another_destination(
    kind: str, broker: BrokerProcess, queues: Queues, peek: Peek
) -> None:
    """The entity of the link takes the message and forwards it, also outside a transaction."""
    via, there = queues.take_many(kind, 2)
    with Generic(broker.amqp_port) as client:
        sender = client.sender(via, destination=there)
        sender.send(message("plainly"))
        assert peek.arrived(there) == "plainly"
        transaction = client.declare()
        assert transaction.send(sender, "within") == WITHIN_TRANSACTION
        assert peek(there) == []
        assert transaction.commit() == COMMITTED
        assert peek.arrived(there) == "within"
    assert peek(via) == []


@pytest.mark.parametrize("kind", KINDS)
def test_links_of_one_session_are_a_transaction_group(
    kind: str, broker: BrokerProcess, queues: Queues, peek: Peek
) -> None:
    here, there = queues.take_many(kind, 2)
    with Generic(broker.amqp_port) as client:
        client.send(here, "in")
        _, delivery = client.receiver(here).receive()
        sender = client.sender(there)
        transaction = client.declare()
        transaction.accept(delivery)
        assert transaction.send(sender, "out") == WITHIN_TRANSACTION
        assert peek(there) == []
        assert transaction.commit() == COMMITTED
    assert peek(here) == []
    assert peek.arrived(there) == "out"


def test_a_transaction_has_a_hundred_messages_at_most(
    broker: BrokerProcess, queue: str, peek: Peek
) -> None:
    with Generic(broker.amqp_port) as client:
        sender = client.sender(queue)
        transaction = client.declare()
        for number in range(100):
            assert transaction.send(sender, str(number)) == WITHIN_TRANSACTION
        assert transaction.send(sender, "one more") == REJECTED
        assert transaction.commit() == "amqp:transaction:rollback"
        assert peek(queue) == []


def test_a_wrong_key_is_refused_with_its_message(
    broker: BrokerProcess, queues: Queues, peek: Peek
) -> None:
    """Not at the end, and nothing of the transaction is carried out."""
    for wrong in (message("x", key=None), message("x", key="other"), message("x", session="s")):
        queue = queues.take("partitioned")
        with Generic(broker.amqp_port) as client:
            sender = client.sender(queue)
            transaction = client.declare()
            assert transaction.send(sender, "right") == WITHIN_TRANSACTION
            assert transaction.send(sender, wrong) == REJECTED
            assert transaction.commit() == "amqp:transaction:rollback"
        assert peek(queue) == []


# --- Java

SCENARIOS = {
    "sends": [
        "sends before [outside]",
        "sends committed [outside, a, b, c]",
        "sends rolled back [outside, a, b, c]",
    ],
    "settlements": [
        "settlements before [complete, abandon, defer, dead-letter]",
        "settlements committed [abandon, defer]",
        "settlements deferred [abandon]",
    ],
    "again": [
        "again rolled back [a]",
        "again delivered 1 times before, after its lock",
        "again committed []",
    ],
    "scheduling": [
        "scheduling rolled back []",
        "scheduling committed [a]",
        "scheduling cancelled []",
    ],
    "apart": ["apart refused []"],
    "keys": ["keys none refused []", "keys other refused []", "keys session refused []"],
    "group": [
        "group rolled back [kept, in]",
        "group committed [kept]",
        "group arrived [out]",
    ],
    "session": ["session committed [next]", "session arrived [out]"],
}


# Where the first queue of a scenario is not of the kind that everything is seen on.
JAVA_QUEUES = {
    "plain": {"again": "short-lock", "session": "session", "keys": "partitioned"},
    "partitioned": {"again": "partitioned-short-lock", "session": "partitioned-session"},
}


@pytest.fixture(scope="module", params=KINDS)
def java_says(request: pytest.FixtureRequest, broker: BrokerProcess, queues: Queues) -> list[str]:
    """What the Java client saw, over all scenarios."""
    command = java_client("Transactions.java")
    names: list[str] = []
    for scenario in SCENARIOS:
        first, second = JAVA_QUEUES[request.param].get(scenario, request.param), request.param
        names += [queues.take(first), queues.take(second)]
    done = subprocess.run(
        [*command, broker.connection_string, ",".join(SCENARIOS), *names],
        capture_output=True,
        text=True,
        timeout=JAVA_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# The first run fetches the client.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_client(scenario: str, java_says: list[str]) -> None:
    said = [line for line in java_says if line.startswith(f"{scenario} ")]
    assert said == SCENARIOS[scenario]
