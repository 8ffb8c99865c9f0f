"""The blocking face of our own client: the official synchronous client's words."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from peeklock.client.blocking import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSession,
)
from peeklock.client.exceptions import AutoLockRenewTimeout, MessageAlreadySettled, ServiceBusError
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import LOCK_SHORT_S, Queues

WITHIN_S = 10.0


def test_send_receive_and_settle(broker: BrokerProcess, queue: str) -> None:
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("one", partition_key="k"))
            batch = sender.create_message_batch()
            batch.add_message(ServiceBusMessage("two", partition_key="k"))
            sender.send_messages(batch)
            for text in ("three", "four", "five"):
                sender.send_soon(ServiceBusMessage(text, partition_key="k"))
            sender.flush()
        with client.get_queue_receiver(queue, max_wait_time=1) as receiver:
            assert len(receiver.peek_messages(10)) == 5
            first = next(receiver)
            receiver.complete_message(first)
            with pytest.raises(MessageAlreadySettled):
                receiver.abandon_message(first)
            second, third = receiver.receive_messages(2)
            receiver.abandon_message(second)
            receiver.defer_message(third)
            assert third.sequence_number is not None
            [deferred] = receiver.receive_deferred_messages(third.sequence_number)
            receiver.dead_letter_message(deferred, "Why", "not")
            found = []
            for message in receiver:
                found.append(str(message))
                receiver.renew_message_lock(message)
                receiver.complete_soon(message)
            receiver.flush()
            assert found == ["two", "four", "five"]
        with client.get_queue_receiver(
            queue, sub_queue="deadletter", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            [dead] = receiver.receive_messages(1, WITHIN_S)
            assert dead.dead_letter_reason == "Why"


def test_schedules_and_deletes(broker: BrokerProcess, queue: str) -> None:
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        with client.get_queue_sender(queue) as sender:
            late = datetime.now(UTC) + timedelta(hours=1)
            sender.cancel_scheduled_messages(sender.schedule_messages(ServiceBusMessage("x"), late))
            sender.send_messages([ServiceBusMessage("x", partition_key="k") for _ in range(3)])
        with client.get_queue_receiver(queue) as receiver:
            receiver.release_messages(receiver.receive_messages(1, WITHIN_S))
            assert receiver.delete_messages(1) == 1
            assert receiver.purge_messages() == 2


def test_sessions(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("short-lock-session")
    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        AutoLockRenewer() as renewer,
    ):
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("x", session_id="s"))
        assert client.list_queue_sessions(queue) == ["s"]
        with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
            renewer.register(receiver, receiver.session)
            receiver.session.set_state("half way")
            [message] = receiver.receive_messages(1, WITHIN_S)
            assert receiver.receive_messages(1, LOCK_SHORT_S + 1) == []
            assert receiver.session.get_state() == b"half way"
            receiver.session.set_state(None)
            receiver.complete_message(message)


@pytest.mark.parametrize("is_given", [False, True])
def test_who_is_told_of_a_lock_may_use_the_client(
    broker: BrokerProcess, queues: Queues, is_given: bool
) -> None:
    """It is told in threads of its own, or in those that were given."""
    queue = queues.take("short-lock-session")
    told = threading.Event()
    seen: list[object] = []

    def on_failure(session: ServiceBusSession, cause: Exception | None) -> None:
        seen.extend((session.session_id, session.get_state(), cause))
        thread = threading.current_thread().name
        seen.append(thread.partition("_")[0])
        told.set()

    with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        ThreadPoolExecutor(1, "mine") as mine,
        AutoLockRenewer(0.1, on_failure, mine if is_given else None, max_workers=4) as renewer,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x", session_id="s"))
        with client.get_queue_receiver(queue, session_id="s") as receiver:
            renewer.register(receiver, receiver.session)
            assert told.wait(WITHIN_S)
            assert seen == ["s", None, None, "mine" if is_given else "peeklock-renewal"]
            assert isinstance(receiver.session.auto_renew_error, AutoLockRenewTimeout)
            [message] = receiver.receive_messages(1, WITHIN_S)
            receiver.complete_message(message)
        renewer.close(wait=True)
        # Whose threads they are can go on using them.
        assert mine.submit(lambda: 1).result() == 1


def test_what_failed_and_nobody_saw_is_raised_at_the_end(
    broker: BrokerProcess, queues: Queues
) -> None:
    """R-T7."""
    queue = queues.take("session")
    client = ServiceBusClient.from_connection_string(broker.connection_string)
    client.get_queue_sender(queue)
    sender = client.get_queue_sender(queue)
    sender.send_soon(ServiceBusMessage("no session"))
    with pytest.raises(ServiceBusError, match="SessionId"):
        client.close()


def test_threads_share_a_client(broker: BrokerProcess, queue: str) -> None:
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        sender = client.get_queue_sender(queue)

        def send() -> None:
            for _ in range(20):
                sender.send_messages(ServiceBusMessage("x"))

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        receiver = client.get_queue_receiver(queue)
        found = 0
        while found < 80:
            messages = receiver.receive_messages(80, WITHIN_S)
            receiver.complete_messages(messages)
            found += len(messages)
        assert found == 80


def test_management_nodes_are_asked(broker: BrokerProcess, queue: str) -> None:
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        arguments = {"from-sequence-number": 1, "message-count": 5}
        assert client.manage(queue, "com.microsoft:peek-message", arguments) == {}


def test_a_full_buffer_blocks_its_threads(broker: BrokerProcess, queue: str) -> None:
    """R-F2: what `send_soon` holds is bounded, and nothing is lost."""
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        sender = client.get_queue_sender(queue, max_pending_messages=20, max_pending_bytes=4_000)

        def send(start: int) -> None:
            for at in range(start, start + 200):
                sender.send_soon(ServiceBusMessage(str(at), partition_key="k"))

        threads = [threading.Thread(target=send, args=(start,)) for start in (0, 200, 400)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sender.close()
        receiver = client.get_queue_receiver(queue, receive_mode="receiveanddelete")
        found: list[int] = []
        while len(found) < 600:
            messages = receiver.receive_messages(600, WITHIN_S)
            assert messages
            found += [int(str(message)) for message in messages]
        assert sorted(found) == list(range(600))
        # Each thread's messages keep their order.
        for start in (0, 200, 400):
            own = [at for at in found if start <= at < start + 200]
            assert own == sorted(own)


def test_who_is_told_of_a_failure_may_use_the_client(broker: BrokerProcess, queues: Queues) -> None:
    """R-T7: and `flush` returns when all are told."""
    queue = queues.take("session")
    told: list[str] = []
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:

        def on_error(message: ServiceBusMessage, error: Exception) -> None:
            assert "SessionId" in str(error)
            # Flushing here must not wait for this call.
            sender.flush()
            told.append(f"{b''.join(message.body).decode()} {client.list_queue_sessions(queue)}")

        sender = client.get_queue_sender(queue, on_error=on_error)
        for at in range(3):
            sender.send_soon(ServiceBusMessage(str(at)))
        sender.flush()
        assert sorted(told) == ["0 []", "1 []", "2 []"]
