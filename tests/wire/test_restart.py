"""Restarts: the broker goes and comes back under clients that live on."""

import os
import subprocess

import pytest
from azure.servicebus.exceptions import MessageLockLostError

from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, bodies, number, place, receive, receive_one, together
from tests.wire.javascript import JAVASCRIPT, node


def test_a_client_outlives_the_broker(own_bus: Bus, own_broker: BrokerProcess) -> None:
    """R-T1, R-L4: after a polite restart everything is there, but locks are gone and said to be."""
    queue = "plain-001"
    client = own_bus.client(retry_backoff_factor=0.2, retry_total=10)
    with (
        own_bus.sender(queue, client=client) as sender,
        own_bus.receiver(queue, client=client) as receiver,
    ):
        sender.send_messages(together("held", "waiting"))
        held = receive_one(receiver)
        assert own_broker.stop() == 0
        own_broker.start()
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(held)
        sender.send_messages(together("after"))
        messages = receive(receiver, 3)
        for message in messages:
            receiver.complete_message(message)

    assert bodies(messages) == [b"held", b"waiting", b"after"]
    assert [place(message) for message in messages] == [1, 2, 3]


def test_what_was_accepted_survives_a_kill(own_bus: Bus, own_broker: BrokerProcess) -> None:
    """R-T1, R-L4: sent, completed, abandoned, deferred and dead-lettered, without a flush."""
    queue = "plain-001"
    client = own_bus.client(retry_backoff_factor=0.2, retry_total=10)
    with (
        own_bus.sender(queue, client=client) as sender,
        own_bus.receiver(queue, client=client) as receiver,
    ):
        sender.send_messages(together(*[f"{index}" for index in range(6)]))
        completed, abandoned, deferred, dead, locked = receive(receiver, 5)
        receiver.complete_message(completed)
        receiver.abandon_message(abandoned)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(dead, reason="Bad")
        own_broker.kill()
        own_broker.start()
        messages = receive(receiver, 3)
        fetched = receiver.receive_deferred_messages(number(deferred))
        with own_bus.dead_letters(queue, client=client) as dead_letters:
            assert receive_one(dead_letters).dead_letter_reason == "Bad"
        sender.send_messages(together("new"))
        new = receive_one(receiver)

    assert bodies(messages) == [b"1", b"4", b"5"]
    assert messages[0].delivery_count == 1
    assert bodies(fetched) == [b"2"]
    assert place(locked) == 5
    assert place(new) == 7


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_javascript_client_outlives_the_broker(own_broker: BrokerProcess, how: str) -> None:
    """R-T1, R-S8: its sender and its subscription go on by themselves on a new connection."""
    with subprocess.Popen(
        [node(), "outlive.mjs"],
        cwd=JAVASCRIPT,
        env=os.environ | {"PEEKLOCK_CONNECTION": own_broker.connection_string},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            live_through_a_restart(program, own_broker, how)
        finally:
            program.kill()


def live_through_a_restart(program: subprocess.Popen[str], broker: BrokerProcess, how: str) -> None:
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "got before\n"
    if how == "stop":
        assert broker.stop() == 0
    else:
        broker.kill()
    broker.start()
    program.stdin.write("go on\n")
    program.stdin.flush()
    assert program.stdout.readline() == "got after\n"
    _, complaints = program.communicate("the end\n", timeout=30)
    assert program.returncode == 0, complaints
