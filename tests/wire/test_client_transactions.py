"""Transactions of our own client, for asyncio and blocking."""

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from peeklock.client import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    TransactionState,
    blocking,
)
from peeklock.client.exceptions import (
    ServiceBusConnectionError,
    ServiceBusError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import LOCK_SHORT_S, PARTITIONED, Queues
from tests.wire.own_client import bodies, run_with, send, take, take_one
from tests.wire.tcp_proxy import TcpProxy

KINDS = ("partitioned",) if PARTITIONED else ("plain", "partitioned")
LATER = timedelta(hours=1)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """What makes sense on both is seen on both; where all are partitioned, once is enough."""
    found: str = request.param
    return found


@pytest.fixture
def queue(kind: str, queues: Queues) -> str:
    """A queue of either kind that no other test has touched."""
    return queues.take(kind)


def message(body: str) -> ServiceBusMessage:
    return ServiceBusMessage(body, partition_key="home")


async def seen(client: ServiceBusClient, queue: str) -> list[str]:
    return bodies(await client.get_queue_receiver(queue).peek_messages(1_000))


async def arrived(client: ServiceBusClient, queue: str) -> str:
    """The next message, which may still be on its way from another entity."""
    async with client.get_queue_receiver(queue) as receiver:
        found = await take_one(receiver)
        await receiver.complete_message(found)
        return str(found)


def run(
    broker: BrokerProcess, test: Callable[[ServiceBusClient], Awaitable[None]], **options: bool
) -> None:
    run_with(broker.connection_string, test, **options)


# --- what is part of one


def test_sends_are_committed_or_rolled_back(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            async with client.transaction() as transaction:
                await sender.send_messages(message("a"), transaction=transaction)
                await sender.send_messages([message("b"), message("c")], transaction=transaction)
                await sender.send_messages(message("outside"))
                assert await seen(client, queue) == ["outside"]
            assert transaction.state is TransactionState.COMMITTED
            assert await seen(client, queue) == ["outside", "a", "b", "c"]
            transaction = client.transaction()

            async def change_mind() -> None:
                async with transaction:
                    await sender.send_messages(message("never"), transaction=transaction)
                    raise RuntimeError("changed my mind")

            with pytest.raises(RuntimeError, match="changed my mind"):
                await change_mind()
            assert transaction.state is TransactionState.ROLLED_BACK
            with pytest.raises(ValueError, match="it is rolled back"):
                await sender.send_messages(message("late"), transaction=transaction)
        assert await seen(client, queue) == ["outside", "a", "b", "c"]

    run(broker, test)


def test_the_four_settlements(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "complete", "abandon", "defer", "dead")
        receiver = client.get_queue_receiver(queue)
        complete, abandon, defer, dead = await take(receiver, 4)
        async with client.transaction() as transaction:
            await receiver.complete_message(complete, transaction=transaction)
            await receiver.abandon_message(abandon, {"why": "x"}, transaction=transaction)
            await receiver.defer_message(defer, transaction=transaction)
            await receiver.dead_letter_message(dead, "Why", "not", transaction=transaction)
            with pytest.raises(ValueError, match="transaction that has not ended"):
                await receiver.complete_message(complete)
            assert len(await seen(client, queue)) == 4
            # Not settled yet, so that its lock can be renewed.
            await receiver.renew_message_lock(complete)
        assert all(each.is_settled for each in (complete, abandon, defer, dead))
        assert await seen(client, queue) == ["abandon", "defer"]
        again = await take_one(receiver)
        assert (str(again), again.delivery_count) == ("abandon", 1)
        assert again.application_properties == {"why": "x"}
        assert defer.sequence_number is not None
        [deferred] = await receiver.receive_deferred_messages(defer.sequence_number)
        # What came by its number is settled by its token.
        async with client.transaction() as transaction:
            await receiver.complete_messages([again, deferred], transaction=transaction)
        assert await seen(client, queue) == []
        dead_letters = client.get_queue_receiver(queue, sub_queue="deadletter")
        found = await take_one(dead_letters)
        assert found.dead_letter_reason == "Why"
        async with client.transaction() as transaction:
            await dead_letters.complete_message(found, transaction=transaction)
        assert await client.get_queue_receiver(queue, sub_queue="deadletter").peek_messages() == []

    run(broker, test)


def test_what_was_rolled_back_is_settled_again(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", "b")
        receiver = client.get_queue_receiver(queue)
        first, second = await take(receiver, 2)
        transaction = client.transaction()
        await receiver.complete_messages([first, second], transaction=transaction)
        await transaction.rollback()
        await transaction.rollback()
        with pytest.raises(ValueError, match="it was rolled back"):
            await transaction.commit()
        assert not first.is_settled
        assert await seen(client, queue) == ["a", "b"]
        await receiver.complete_message(first)
        async with client.transaction() as transaction:
            await receiver.complete_message(second, transaction=transaction)
            await transaction.commit()
            # It has ended: the block adds nothing to that.
            with pytest.raises(ValueError, match="cannot be rolled back: it is committed"):
                await transaction.rollback()
        assert await seen(client, queue) == []

    run(broker, test)


def test_a_commit_waits_for_what_is_settled_by_its_token(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a")
        receiver = client.get_queue_receiver(queue)
        raw = await take_one(receiver)
        await receiver.defer_message(raw)
        assert raw.sequence_number is not None
        [deferred] = await receiver.receive_deferred_messages(raw.sequence_number)
        transaction = client.transaction()
        settling = asyncio.ensure_future(
            receiver.complete_message(deferred, transaction=transaction)
        )
        await asyncio.sleep(0)  # It is under way, and nothing of it is on the wire.
        await transaction.commit()
        await settling
        assert deferred.is_settled
        assert await seen(client, queue) == []

    run(broker, test)


def test_scheduling_and_cancelling(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue)
        later = datetime.now(UTC) + LATER
        async with client.transaction() as transaction:
            [number] = await sender.schedule_messages(message("a"), later, transaction=transaction)
            assert await seen(client, queue) == []
        assert await seen(client, queue) == ["a"]
        transaction = client.transaction()
        await sender.cancel_scheduled_messages(number, transaction=transaction)
        await transaction.rollback()
        assert await seen(client, queue) == ["a"]
        async with client.transaction() as transaction:
            await sender.cancel_scheduled_messages([number], transaction=transaction)
        assert await seen(client, queue) == []

    run(broker, test)


def test_one_that_does_nothing(broker: BrokerProcess) -> None:
    async def test(client: ServiceBusClient) -> None:
        async with client.transaction() as transaction:
            pass
        assert transaction.state is TransactionState.COMMITTED
        transaction = client.transaction()
        await transaction.rollback()
        assert repr(transaction) == "ServiceBusTransaction(rolled back)"

    run(broker, test)


# --- over several entities


def test_messages_for_another_entity(broker: BrokerProcess, kind: str, queues: Queues) -> None:
    """Receive here, send there: on one AMQP session, in either order, many at a time."""
    here, there = queues.take_many(kind, 2)

    async def test(client: ServiceBusClient) -> None:
        await send(client, here, *(str(n) for n in range(6)))
        receiver = client.get_queue_receiver(here)
        sender = client.get_queue_sender(there)
        raw = await take(receiver, 6)

        async def cook(each: ServiceBusReceivedMessage) -> None:
            async with client.transaction() as transaction:
                is_settled_first = int(str(each)) % 2 == 0
                if is_settled_first:
                    await receiver.complete_message(each, transaction=transaction)
                await sender.send_messages(message(str(each)), transaction=transaction)
                if not is_settled_first:
                    await receiver.complete_message(each, transaction=transaction)

        await asyncio.gather(*(cook(each) for each in raw))
        assert await seen(client, here) == []
        found = [await arrived(client, there) for _ in range(6)]
        assert sorted(found) == [str(n) for n in range(6)]

    run(broker, test, enable_cross_entity_transactions=True)


def test_without_one_session_another_entity_is_refused(
    broker: BrokerProcess, kind: str, queues: Queues
) -> None:
    here, there = queues.take_many(kind, 2)

    async def test(client: ServiceBusClient) -> None:
        await send(client, here, "in")
        receiver, sender = client.get_queue_receiver(here), client.get_queue_sender(there)
        raw = await take_one(receiver)
        transaction = client.transaction()
        await receiver.complete_message(raw, transaction=transaction)
        with pytest.raises(ServiceBusError, match="same AMQP session") as refused:
            await sender.send_messages(message("out"), transaction=transaction)
        assert "enable_cross_entity_transactions" in "".join(refused.value.__notes__)
        with pytest.raises(TransactionRolledBackError, match="an operation failed") as told:
            await transaction.commit()
        assert told.value.__cause__ is refused.value
        assert await seen(client, here) == ["in"]
        await receiver.complete_message(raw)

    run(broker, test)


def test_send_via(broker: BrokerProcess, kind: str, queues: Queues) -> None:
    """A sender attached to the via needs no common session; it sends outside of one as well."""
    here, there = queues.take_many(kind, 2)

    async def test(client: ServiceBusClient) -> None:
        await send(client, here, "in")
        receiver, sender = client.get_queue_receiver(here), client.get_queue_sender(there, via=here)
        assert sender.entity_name == there
        await sender.send_messages(message("plainly"))
        assert await arrived(client, there) == "plainly"
        raw = await take_one(receiver)
        async with client.transaction() as transaction:
            await sender.send_messages(message("within"), transaction=transaction)
            await receiver.complete_message(raw, transaction=transaction)
            assert await seen(client, there) == []
        assert await seen(client, here) == []
        assert await arrived(client, there) == "within"

    run(broker, test)


def test_a_session(broker: BrokerProcess, kind: str, queues: Queues) -> None:
    here = queues.take("partitioned-session" if kind == "partitioned" else "session")
    there = queues.take(kind)

    async def test(client: ServiceBusClient) -> None:
        await send(client, here, "a", "b", session_id="home")
        async with client.get_queue_receiver(here, session_id="home") as receiver:
            first, second = await take(receiver, 2)
            sender = client.get_queue_sender(there)
            async with client.transaction() as transaction:
                await receiver.complete_message(first, transaction=transaction)
                await sender.send_messages(message("out"), transaction=transaction)
            await receiver.complete_message(second)
        assert await seen(client, here) == []
        assert await arrived(client, there) == "out"

    run(broker, test, enable_cross_entity_transactions=True)


# --- what goes wrong


def test_a_refused_operation_dooms_it(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue)
        transaction = client.transaction()

        async def send_too_many() -> None:
            async with transaction:
                for number in range(100):
                    await sender.send_messages(message(str(number)), transaction=transaction)
                with pytest.raises(ServiceBusError, match="100 messages"):
                    await sender.send_messages(message("beyond"), transaction=transaction)
                with pytest.raises(TransactionRolledBackError, match="can only be rolled back"):
                    await sender.send_messages(message("further"), transaction=transaction)

        with pytest.raises(TransactionRolledBackError, match="100 messages") as told:
            await send_too_many()
        assert "100 messages" in str(told.value.__cause__)
        assert transaction.state is TransactionState.ROLLED_BACK
        assert await seen(client, queue) == []

    run(broker, test)


def test_a_lock_that_was_lost(broker: BrokerProcess, kind: str, queues: Queues) -> None:
    queue = queues.take("partitioned-short-lock" if kind == "partitioned" else "short-lock")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", "b")
        receiver, sender = client.get_queue_receiver(queue), client.get_queue_sender(queue)
        late, kept = await take(receiver, 2)
        async with AutoLockRenewer() as renewer:
            renewer.register(receiver, kept)
            async with client.transaction() as transaction:
                await receiver.complete_message(kept, transaction=transaction)
                # A lock is kept alive until the transaction ends.
                await asyncio.sleep(LOCK_SHORT_S + 1)
        assert kept.is_settled
        transaction = client.transaction()
        await sender.send_messages(message("never"), transaction=transaction)
        await receiver.complete_message(late, transaction=transaction)
        with pytest.raises(TransactionRolledBackError, match="rolled back"):
            await transaction.commit()
        assert await seen(client, queue) == ["a"]
        assert not late.is_settled

    run(broker, test)


def test_another_clients_transaction(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        async with ServiceBusClient.from_connection_string(broker.connection_string) as other:
            transaction = other.transaction()
            with pytest.raises(ValueError, match="another client"):
                await client.get_queue_sender(queue).send_messages(
                    message("x"), transaction=transaction
                )
            assert transaction.state is TransactionState.ACTIVE

    run(broker, test)


def test_a_cancelled_operation_dooms_it(broker: BrokerProcess, queue: str) -> None:
    """Nobody knows whether it is part of the transaction."""

    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue)
        transaction = client.transaction()
        await sender.send_messages(message("a"), transaction=transaction)
        sending = asyncio.ensure_future(sender.send_messages(message("b"), transaction=transaction))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(TransactionRolledBackError, match="CancelledError"):
            await transaction.commit()
        assert await seen(client, queue) == []

    run(broker, test)


def test_a_commit_waits_for_what_is_under_way(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue)
        transaction = client.transaction()
        sends = [
            # A list needs the link before it is a batch.
            asyncio.ensure_future(
                sender.send_messages(
                    [message(str(n))] if n % 2 else message(str(n)), transaction=transaction
                )
            )
            for n in range(20)
        ]
        await asyncio.sleep(0)
        # Whoever is cancelled has asked for the commit all the same, and may ask how it went.
        cancelled = asyncio.ensure_future(transaction.commit())
        await asyncio.sleep(0)
        cancelled.cancel()
        await transaction.commit()
        await asyncio.gather(*sends)
        assert cancelled.cancelled()
        assert sorted(await seen(client, queue), key=int) == [str(n) for n in range(20)]

    run(broker, test)


@pytest.mark.parametrize("when", ["before the commit", "during the commit"])
def test_a_connection_that_is_lost(broker: BrokerProcess, queue: str, when: str) -> None:
    """What was not asked for is rolled back; what was asked for and not answered is in doubt."""

    async def test(direct: ServiceBusClient) -> None:
        await send(direct, queue, "in")
        with TcpProxy(broker.amqp_port) as proxy:
            text = broker.connection_string.replace(f":{broker.amqp_port}", f":{proxy.port}")
            assert text != broker.connection_string
            async with ServiceBusClient.from_connection_string(text) as client:
                await lose(direct, client, proxy)

    async def lose(direct: ServiceBusClient, client: ServiceBusClient, proxy: TcpProxy) -> None:
        receiver, sender = client.get_queue_receiver(queue), client.get_queue_sender(queue)
        raw = await take_one(receiver)
        transaction = client.transaction()
        await sender.send_messages(message("out"), transaction=transaction)
        await receiver.complete_message(raw, transaction=transaction)
        if when == "before the commit":
            proxy.cut()
            await _until_lost(receiver)
            with pytest.raises(TransactionRolledBackError, match="lost"):
                await sender.send_messages(message("more"), transaction=transaction)
            with pytest.raises(TransactionRolledBackError):
                await transaction.commit()
            assert transaction.state is TransactionState.ROLLED_BACK
            assert await seen(direct, queue) == ["in"]
            assert not raw.is_settled
        else:
            proxy.is_mute = True
            committing = asyncio.ensure_future(transaction.commit())
            await _until(lambda: seen(direct, queue), ["out"])
            proxy.cut()
            proxy.is_mute = False
            with pytest.raises(TransactionInDoubtError, match="nobody can tell"):
                await committing
            assert transaction.state is TransactionState.IN_DOUBT
            # The client goes on, with another connection.
        async with client.transaction() as again:
            await sender.send_messages(message("again"), transaction=again)
        assert "again" in await seen(direct, queue)

    run(broker, test)


async def _until_lost(receiver: ServiceBusReceiver) -> None:
    link = receiver._link
    assert link is not None
    while link.is_open:  # noqa: ASYNC110  it is the network that is waited for
        await asyncio.sleep(0.01)


async def _until(look: Callable[[], Awaitable[list[str]]], expected: list[str]) -> None:
    while await look() != expected:  # noqa: ASYNC110  it is the broker that is waited for
        await asyncio.sleep(0.01)


def test_a_broker_that_is_gone(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        sender = client.get_queue_sender(queue)
        transaction = client.transaction()
        await sender.send_messages(message("never"), transaction=transaction)
        await client.close()
        with pytest.raises(TransactionRolledBackError, match="lost before the commit"):
            await transaction.commit()

    run(broker, test)


def test_nothing_is_half_done(broker: BrokerProcess, queue: str) -> None:
    """Connections are cut and callers cancelled at any moment: each transaction is whole or none.

    One that says that it was committed is there, one that was rolled back is not, and what is in
    doubt is not there by half.
    """
    random_source = random.Random(7)
    ended: dict[str, TransactionState] = {}

    async def work(client: ServiceBusClient, name: str) -> None:
        sender = client.get_queue_sender(queue)
        transaction = client.transaction()
        try:
            async with transaction:
                for part in range(3):
                    await sender.send_messages(message(f"{name} {part}"), transaction=transaction)
        except (asyncio.CancelledError, ServiceBusError):
            # How it ended is told by the transaction, whoever has stopped waiting for it.
            with contextlib.suppress(ServiceBusError, ValueError):
                await transaction.commit()
        ended[name] = transaction.state

    async def test(direct: ServiceBusClient) -> None:
        with TcpProxy(broker.amqp_port) as proxy:
            text = broker.connection_string.replace(f":{broker.amqp_port}", f":{proxy.port}")
            async with ServiceBusClient.from_connection_string(
                text, retry_backoff_factor=0.01
            ) as client:
                for round in range(12):
                    works = [
                        asyncio.ensure_future(work(client, f"{round}-{each}")) for each in range(8)
                    ]
                    await asyncio.sleep(random_source.random() * 0.1)
                    for each in random_source.sample(works, 2):
                        each.cancel()
                    await asyncio.sleep(random_source.random() * 0.05)
                    if round % 3:
                        proxy.cut()
                    await asyncio.gather(*works, return_exceptions=True)
        counts = Counter(text.split()[0] for text in await seen(direct, queue))
        for name, state in ended.items():
            allowed = {
                TransactionState.COMMITTED: (3,),
                TransactionState.ROLLED_BACK: (0,),
                TransactionState.IN_DOUBT: (0, 3),
            }[state]
            assert counts.pop(name, 0) in allowed, (name, state)
        assert not counts
        assert len(set(ended.values())) >= 2

    run(broker, test)


# --- blocking


def test_threads_share_a_transaction(broker: BrokerProcess, kind: str, queues: Queues) -> None:
    here, there = queues.take_many(kind, 2)
    with blocking.ServiceBusClient.from_connection_string(
        broker.connection_string, enable_cross_entity_transactions=True
    ) as client:
        sender, receiver = client.get_queue_sender(there), client.get_queue_receiver(here)
        client.get_queue_sender(here).send_messages(message("in"))
        [raw] = receiver.receive_messages(1, 10)
        with client.transaction() as transaction:
            receiver.complete_message(raw, transaction=transaction)
            threads = [
                threading.Thread(
                    target=sender.send_messages,
                    args=(message(str(n)),),
                    kwargs={"transaction": transaction},
                )
                for n in range(5)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert transaction.state is TransactionState.COMMITTED
        found: list[str] = []
        results = client.get_queue_receiver(there)
        while len(found) < 5:
            messages = results.receive_messages(5, 10)
            results.complete_messages(messages)
            found += [str(each) for each in messages]
        assert sorted(found) == [str(n) for n in range(5)]

        def fail() -> None:
            with client.transaction() as transaction:
                sender.send_messages(message("never"), transaction=transaction)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        transaction = client.transaction()
        sender.schedule_messages(message("x"), datetime.now(UTC) + LATER, transaction=transaction)
        transaction.rollback()
        with pytest.raises(ValueError, match="rolled back"):
            transaction.commit()
        assert results.peek_messages() == []


def test_the_errors_are_known(broker: BrokerProcess) -> None:
    """Whoever catches what the client raises catches these too, and nothing tries them again."""
    for kind in (TransactionRolledBackError, TransactionInDoubtError):
        assert issubclass(kind, ServiceBusError)
        assert not kind("x").is_retryable
    assert not issubclass(TransactionInDoubtError, ServiceBusConnectionError)
