"""Our own client and message sessions: accepted, held, kept, lost."""

import pytest

from peeklock.client import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
)
from peeklock.client.exceptions import (
    OperationTimeoutError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import LOCK_SHORT_S, Queues
from tests.wire.own_client import bodies, run_with, send, take, take_one
from tests.wire.tcp_proxy import TcpProxy


def test_a_session_by_name_and_the_next_one(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("session")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a1", "a2", session_id="a")
        await send(client, queue, "b1", session_id="b")
        async with client.get_queue_receiver(queue, session_id="a") as receiver:
            assert receiver.session.session_id == "a"
            messages = await take(receiver, 2)
            assert bodies(messages) == ["a1", "a2"]
            assert messages[0].locked_until_utc is None
            with pytest.raises(TypeError, match="renew that of the session"):
                await receiver.renew_message_lock(messages[0])
            other = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
            assert bodies(await other.peek_messages(5)) == ["b1"]
            assert bodies(await take(other, 1)) == ["b1"]
            assert other.session.session_id == "b"
            assert sorted([each async for each in client.list_queue_sessions(queue)]) == ["a", "b"]
            await receiver.complete_messages(messages)
        with pytest.raises(ValueError, match="sub queues have no sessions"):
            client.get_queue_receiver(queue, session_id="a", sub_queue="deadletter")
        with pytest.raises(ValueError, match="not open yet"):
            _ = client.get_queue_receiver(queue, session_id="a").session
        assert client.get_queue_receiver(queue).session is None

    run_with(broker.connection_string, test)


def test_no_session_and_a_session_that_is_held(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("session")

    async def test(client: ServiceBusClient) -> None:
        waiting = client.get_queue_receiver(
            queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.5
        )
        with pytest.raises(OperationTimeoutError):
            await waiting.receive_messages()
        async with client.get_queue_receiver(queue, session_id="held"):
            with pytest.raises(SessionCannotBeLockedError):
                await client.get_queue_receiver(queue, session_id="held").open()

    run_with(broker.connection_string, test, retry_total=0)


def test_a_session_has_a_state(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("session")

    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_receiver(queue, session_id="s") as receiver:
            session = receiver.session
            assert await session.get_state() is None
            await session.set_state("half way")
        async with client.get_queue_receiver(queue, session_id="s") as receiver:
            assert await receiver.session.get_state() == b"half way"
            await receiver.session.set_state(None)
            assert await receiver.session.get_state() is None

    run_with(broker.connection_string, test)


def test_the_lock_of_a_session_is_renewed_beyond_its_duration(
    broker: BrokerProcess, queues: Queues
) -> None:
    """R-L2."""
    queue = queues.take("short-lock-session")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "x", session_id="s")
        async with AutoLockRenewer(60) as renewer:
            receiver = client.get_queue_receiver(queue, session_id="s", auto_lock_renewer=renewer)
            message = await take_one(receiver)
            # Nothing else comes for longer than the lock lasts.
            assert await receiver.receive_messages(1, LOCK_SHORT_S + 2) == []
            await receiver.complete_message(message)
            before = receiver.session.locked_until_utc
            assert await receiver.session.renew_lock() >= before

    run_with(broker.connection_string, test)


def test_deferred_messages_of_a_session(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("session")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "later", session_id="s")
        async with client.get_queue_receiver(queue, session_id="s") as receiver:
            message = await take_one(receiver)
            await receiver.defer_message(message)
            assert bodies(await receiver.peek_messages(5, sequence_number=1)) == ["later"]
            assert message.sequence_number is not None
            [deferred] = await receiver.receive_deferred_messages(message.sequence_number)
            await receiver.complete_message(deferred)
            assert await receiver.peek_messages(5, sequence_number=1) == []

    run_with(broker.connection_string, test)


def test_a_session_ends_with_its_connection(broker: BrokerProcess, queues: Queues) -> None:
    """R-S8: unlike the lock of a message, that of a session is its link's."""
    queue = queues.take("session")

    with TcpProxy(broker.amqp_port) as proxy:

        async def test(client: ServiceBusClient) -> None:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(ServiceBusMessage("x", session_id="s"))
            receiver = client.get_queue_receiver(queue, session_id="s")
            message = await take_one(receiver)
            assert proxy.cut()
            with pytest.raises(SessionLockLostError):
                await receiver.complete_message(message)
            with pytest.raises(SessionLockLostError):
                await receiver.receive_messages(1, 5)
            again = await take_one(client.get_queue_receiver(queue, session_id="s"))
            assert again.delivery_count == 0

        text = broker.connection_string.replace(f":{broker.amqp_port};", f":{proxy.port};")
        run_with(text, test)
