"""Tokens in real time: they end, and a client that renews them does not notice."""

import time

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.wire import sas
from tests.wire.clients import Bus, body, receive_one
from tests.wire.entities import Queues

pytestmark = [
    pytest.mark.side_by_side(at_once=24),
    pytest.mark.plain_only(reason="tokens know nothing of partitions, and take their time"),
]


class ShortTokens:
    """A credential whose tokens last for some seconds; it counts how often it was asked."""

    def __init__(self, host: str, lifetime_s: float) -> None:
        self._host = host
        self._lifetime_s = lifetime_s
        self.asked = 0

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        self.asked += 1
        text = sas.token(f"sb://{self._host}", lifetime_s=self._lifetime_s)
        return AccessToken(text, int(time.time() + self._lifetime_s))


class ShortTokensForAsync:
    """The same for the asynchronous client, which awaits its tokens."""

    def __init__(self, tokens: ShortTokens) -> None:
        self._tokens = tokens

    async def get_token(self, *scopes: str, **_: object) -> AccessToken:
        return self._tokens.get_token(*scopes)


def test_a_token_is_renewed_on_a_living_link(bus: Bus, queues: Queues) -> None:
    """A receiver that waits longer than its token lasts renews it, and its link lives on."""
    queue = queues.take("plain")
    tokens = ShortTokens(bus.host, lifetime_s=10)
    credential = tokens if bus.flavour == "sync" else ShortTokensForAsync(tokens)
    client = bus.client_with(bus.host, credential, retry_total=0)

    with bus.receiver(queue, client=client) as receiver:
        assert receiver.receive_messages(max_message_count=1, max_wait_time=12) == []
        bus.send(queue, ServiceBusMessage("after the first token"))
        message = receive_one(receiver)
        receiver.complete_message(message)

    assert body(message) == b"after the first token"
    assert tokens.asked >= 2


def test_a_link_does_not_outlive_its_token(bus: Bus, queues: Queues) -> None:
    """R-T2: who does not renew is put out when the token ends."""
    queue = queues.take("plain")
    token = sas.token(f"sb://{bus.host}", lifetime_s=3)
    client = bus.client(sas.connection_string(bus.port, signature=token), retry_total=0)

    with bus.sender(queue, client=client) as sender:
        sender.send_messages(ServiceBusMessage("in time"))
        time.sleep(4)
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("too late"))
    with bus.receiver(queue) as receiver:
        assert [m.sequence_number for m in receiver.peek_messages(max_message_count=5)] == [1]


def test_what_was_received_under_an_old_token_is_settled_under_a_new_one(
    bus: Bus, queues: Queues
) -> None:
    """R-S8: the lock belongs to the token of the lock, not to the token of the link."""
    queue = queues.take("plain")
    bus.send(queue, ServiceBusMessage("x"))
    short = sas.token(f"sb://{bus.host}", lifetime_s=3)
    client = bus.client(sas.connection_string(bus.port, signature=short), retry_total=0)

    with bus.receiver(queue, client=client) as receiver, bus.receiver(queue) as other:
        message = receive_one(receiver)
        time.sleep(4)
        assert len(other.peek_messages(max_message_count=1)) == 1
        other.complete_message(message)
        assert other.peek_messages(max_message_count=1, sequence_number=1) == []
