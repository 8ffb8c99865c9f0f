"""Authorization: the token decides who may do what, and a refusal says what is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)

from tests.wire import sas
from tests.wire.clients import Bus, body, receive_one
from tests.wire.entities import QUEUE_RULES, ROOT_KEY, ROOT_RULE, Queues

pytestmark = pytest.mark.side_by_side

SEND_KEY: str = QUEUE_RULES[0]["PrimaryKey"]
SECOND_SEND_KEY: str = QUEUE_RULES[0]["SecondaryKey"]
LISTEN_KEY: str = QUEUE_RULES[1]["PrimaryKey"]


def send_with(bus: Bus, client: ServiceBusClient, queue: str) -> None:
    with bus.sender(queue, client=client) as sender:
        sender.send_messages(ServiceBusMessage("x"))


def peek_with(bus: Bus, client: ServiceBusClient, queue: str) -> None:
    with bus.receiver(queue, client=client) as receiver:
        receiver.peek_messages(max_message_count=1)


def with_key(bus: Bus, rule: str, key: str) -> ServiceBusClient:
    """A client with a rule's name and key; it gives up at once, so that refusals are quick."""
    return bus.client(sas.connection_string(bus.port, rule=rule, key=key), retry_total=0)


def with_token(bus: Bus, token: str) -> ServiceBusClient:
    """A client with nothing but a ready signature."""
    return bus.client(sas.connection_string(bus.port, signature=token), retry_total=0)


@contextmanager
def refused_token(text: str) -> Iterator[None]:
    """The token is refused with this text, which the client keeps in the cause of its error."""
    with pytest.raises(ServiceBusAuthenticationError) as caught:
        yield
    assert text in str(caught.value.inner_exception)


@pytest.mark.smoke
def test_a_wrong_key_is_refused(bus: Bus, queue: str) -> None:
    """R-T2: an authentication error, for senders and for receivers."""
    client = with_key(bus, ROOT_RULE, "not the key")
    with refused_token("401"):
        send_with(bus, client, queue)
    with refused_token("401"):
        peek_with(bus, client, queue)


def test_an_unknown_rule_is_refused(bus: Bus, queue: str) -> None:
    with refused_token("401"):
        send_with(bus, with_key(bus, "NoSuchRule", ROOT_KEY), queue)


@pytest.mark.smoke
def test_a_queue_that_does_not_exist(bus: Bus) -> None:
    """R-T2: the token is refused with 404, which this client calls an authentication error."""
    client = bus.client(retry_total=0)
    with refused_token("could not be found"):
        send_with(bus, client, "no-such-queue")
    with refused_token("could not be found"):
        peek_with(bus, client, "no-such-queue")


@pytest.mark.smoke
def test_a_listen_only_key_receives_and_does_not_send(bus: Bus, queues: Queues) -> None:
    """R-T2: the token is fine, the link is refused with the right that is missing."""
    queue = queues.take("own-rules")
    bus.send(queue, ServiceBusMessage("x"))
    client = with_key(bus, "listen-only", LISTEN_KEY)

    with bus.receiver(queue, client=client) as receiver:
        receiver.complete_message(receive_one(receiver))
    with pytest.raises(ServiceBusAuthorizationError, match="'Send' claim"):
        send_with(bus, client, queue)


@pytest.mark.smoke
def test_a_send_only_key_sends_and_does_not_receive(bus: Bus, queues: Queues) -> None:
    """R-T2: neither from the queue nor from its dead-letter queue, nor by peeking."""
    queue = queues.take("own-rules")
    client = with_key(bus, "send-only", SEND_KEY)

    send_with(bus, client, queue)
    for path in (queue, f"{queue}/$DeadLetterQueue"):
        with pytest.raises(ServiceBusAuthorizationError, match="'Listen' claim"):
            peek_with(bus, client, path)
    with bus.receiver(queue) as receiver:
        assert body(receive_one(receiver)) == b"x"


def test_the_second_key_of_a_rule_is_as_good(bus: Bus, queues: Queues) -> None:
    """Two keys let one of them be changed while the other is in use."""
    send_with(bus, with_key(bus, "send-only", SECOND_SEND_KEY), queues.take("own-rules"))


def test_a_listen_only_key_does_not_schedule(bus: Bus, queues: Queues) -> None:
    """Scheduling and cancelling need the right to send."""
    client = with_key(bus, "listen-only", LISTEN_KEY)
    with (
        bus.sender(queues.take("own-rules"), client=client) as sender,
        pytest.raises(ServiceBusAuthorizationError),
    ):
        sender.cancel_scheduled_messages(1)


def test_the_keys_of_one_queue_do_not_open_another(bus: Bus, queue: str) -> None:
    with refused_token("401"):
        send_with(bus, with_key(bus, "send-only", SEND_KEY), queue)


@pytest.mark.smoke
def test_a_ready_signature_opens_what_it_was_made_for(bus: Bus, queues: Queues) -> None:
    """For one queue, or for the namespace and everything under it; not for the neighbour."""
    one, other = queues.take_many("plain", 2)
    host = f"sb://localhost:{bus.port}"

    send_with(bus, with_token(bus, sas.token(f"{host}/{one}")), one)
    send_with(bus, with_token(bus, sas.token(host)), other)
    send_with(bus, with_token(bus, sas.token(f"{host}/")), other)
    # Scheme, host and port are whatever the signer's way to the broker was; the path counts.
    send_with(bus, with_token(bus, sas.token(f"https://elsewhere.example/{one.upper()}/")), one)
    with refused_token("401"):
        send_with(bus, with_token(bus, sas.token(f"{host}/{one}")), other)


@pytest.mark.smoke
def test_an_expired_token_is_refused(bus: Bus, queue: str) -> None:
    """R-T2: with the words by which people find the cause."""
    resource = f"sb://localhost:{bus.port}/{queue}"
    with refused_token("ExpiredToken"):
        send_with(bus, with_token(bus, sas.token(resource, lifetime_s=-60)), queue)


def test_a_token_that_is_none(bus: Bus, queue: str) -> None:
    """R-T2: what cannot be read is refused like what cannot be verified."""
    for text in ("rubbish", "SharedAccessSignature sr=&sig=&se=x&skn="):
        with pytest.raises(ServiceBusAuthenticationError):
            send_with(bus, with_token(bus, text), queue)


def test_the_entity_may_stand_in_the_connection_string(bus: Bus, queues: Queues) -> None:
    queue = queues.take("own-rules")
    text = sas.connection_string(bus.port, rule="send-only", key=SEND_KEY, entity=queue)
    send_with(bus, bus.client(text, retry_total=0), queue)


def test_credentials_may_change_on_a_living_client(bus: Bus, queue: str) -> None:
    """A wrong token is refused, a right one is accepted again; named keys work as well."""
    host = f"localhost:{bus.port}"
    good = sas.token(f"sb://{host}")
    credential = AzureSasCredential(good)
    client = bus.client_with(host, credential, retry_total=0)

    send_with(bus, client, queue)
    credential.update(sas.token(f"sb://{host}", key="not the key"))
    with pytest.raises(ServiceBusAuthenticationError):
        send_with(bus, client, queue)
    credential.update(good)
    send_with(bus, client, queue)
    send_with(bus, bus.client_with(host, AzureNamedKeyCredential(ROOT_RULE, ROOT_KEY)), queue)
