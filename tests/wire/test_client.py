"""Our own client: sending, receiving and settling, each operation against the real broker."""

import asyncio
import pickle
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from peeklock.client import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from peeklock.client.credentials import AnyCredential, SasKey
from peeklock.client.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
)
from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import LOCK_SHORT_S, ROOT_KEY, ROOT_RULE, Queues
from tests.wire.own_client import bodies, run_with, send, take, take_one


def test_messages_are_sent_one_by_one_in_lists_and_in_batches(
    broker: BrokerProcess, queue: str
) -> None:
    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("one", partition_key="k"))
            await sender.send_messages(
                [ServiceBusMessage(text, partition_key="k") for text in ("two", "three")]
            )
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage("four", partition_key="k"))
            batch.add_message({"body": "five", "partition_key": "k"})
            await sender.send_messages(batch)
            await sender.send_messages([])
        async with client.get_queue_receiver(queue) as receiver:
            messages = await take(receiver, 5)
            assert bodies(messages) == ["one", "two", "three", "four", "five"]
            await receiver.complete_messages(messages)
            assert await receiver.peek_messages(10, sequence_number=1) == []

    run_with(broker.connection_string, test)


def test_a_batch_is_as_large_as_the_entity_takes(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            batch = await sender.create_message_batch()
            assert batch.max_size_in_bytes == 262_144
            message = ServiceBusMessage(b"x" * 10_000)
            while batch.size_in_bytes < 250_000:
                batch.add_message(message)
            message = ServiceBusMessage(b"x" * 20_000)
            with pytest.raises(MessageSizeExceededError):
                batch.add_message(message)
            await sender.send_messages(batch)
            with pytest.raises(ValueError, match="262144 bytes at most"):
                await sender.create_message_batch(262_145)
            with pytest.raises(MessageSizeExceededError):
                await sender.send_messages(ServiceBusMessage(b"x" * 262_144))
        async with client.get_queue_receiver(queue) as receiver:
            await receiver.complete_messages(await take(receiver, len(batch)))

    run_with(broker.connection_string, test)


def test_the_four_answers(broker: BrokerProcess, queue: str) -> None:
    """R-S3 to R-S6, each with the properties that it changes."""

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", "b", "c", "d")
        async with client.get_queue_receiver(queue) as receiver:
            done, again, later, dead = await take(receiver, 4)
            await receiver.complete_message(done)
            await receiver.abandon_message(again, {"tried": 1})
            await receiver.defer_message(later, {"later": True})
            await receiver.dead_letter_message(dead, "Reason", "description", {"extra": "x"})

            again = await take_one(receiver)
            assert (str(again), again.delivery_count) == ("b", 1)
            assert again.application_properties == {"tried": 1}
            await receiver.complete_message(again)

            assert later.sequence_number is not None
            [deferred] = await receiver.receive_deferred_messages([later.sequence_number])
            assert deferred.state is ServiceBusMessageState.DEFERRED
            assert deferred.application_properties == {"later": True}
            await receiver.complete_message(deferred)
            with pytest.raises(MessageNotFoundError):
                await receiver.receive_deferred_messages(later.sequence_number)

        async with client.get_queue_receiver(
            queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER
        ) as receiver:
            dead = await take_one(receiver)
            assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (
                "Reason",
                "description",
            )
            assert dead.application_properties["extra"] == "x"
            await receiver.complete_message(dead)

    run_with(broker.connection_string, test)


def test_a_message_is_settled_once(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", "b")
        receiver = client.get_queue_receiver(queue)
        first, second = await take(receiver, 2)
        await receiver.complete_message(first)
        assert first.is_settled
        with pytest.raises(MessageAlreadySettled):
            await receiver.abandon_message(first)
        [peeked] = await receiver.peek_messages(sequence_number=1)
        with pytest.raises(ValueError, match="peeked"):
            await receiver.complete_message(peeked)
        await receiver.close()
        with pytest.raises(ValueError, match="closed"):
            await receiver.complete_message(second)
        # Another receiver may, and even a copy of the message: the token is all that counts.
        async with client.get_queue_receiver(queue) as other:
            await other.complete_message(pickle.loads(pickle.dumps(second)))
            assert await other.peek_messages(sequence_number=1) == []

    run_with(broker.connection_string, test)


def test_receive_and_delete_leaves_nothing_to_settle(broker: BrokerProcess, queue: str) -> None:
    """R-S1."""

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", "b", "c")
        async with client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            messages = await take(receiver, 3)
            assert messages[0].lock_token is None
            with pytest.raises(ValueError, match="received and deleted"):
                await receiver.complete_message(messages[0])
            assert await receiver.peek_messages(sequence_number=1) == []

    run_with(broker.connection_string, test)


def test_peek_goes_on_behind_what_was_seen(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        texts = [str(number) for number in range(300)]
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(
                [ServiceBusMessage(text, partition_key="k") for text in texts]
            )
        async with client.get_queue_receiver(queue) as receiver:
            assert bodies(await receiver.peek_messages(3)) == texts[:3]
            assert bodies(await receiver.peek_messages(2)) == texts[3:5]
            # More than one call of the broker gives.
            assert bodies(await receiver.peek_messages(1000, sequence_number=1)) == texts
            assert await receiver.peek_messages() == []

    run_with(broker.connection_string, test)


def test_a_receiver_is_iterated_until_nothing_comes(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", "b", "c")
        found = []
        async with client.get_queue_receiver(queue, max_wait_time=0.5) as receiver:
            async for message in receiver:
                found.append(str(message))
                await receiver.complete_message(message)
        assert found == ["a", "b", "c"]

    run_with(broker.connection_string, test)


def test_what_is_scheduled_comes_in_time_unless_it_is_cancelled(
    broker: BrokerProcess, queue: str
) -> None:
    async def test(client: ServiceBusClient) -> None:
        soon = datetime.now(UTC) + timedelta(seconds=2)
        async with client.get_queue_sender(queue) as sender:
            late = datetime.now(UTC) + timedelta(hours=1)
            numbers = await sender.schedule_messages(
                [ServiceBusMessage(text, partition_key="k") for text in ("a", "b")], late
            )
            assert len(numbers) == 2
            async with client.get_queue_receiver(queue) as receiver:
                states = {each.state for each in await receiver.peek_messages(5)}
                assert states == {ServiceBusMessageState.SCHEDULED}
            await sender.cancel_scheduled_messages(numbers)
            await sender.cancel_scheduled_messages([])
            with pytest.raises(MessageNotFoundError):
                await sender.cancel_scheduled_messages(numbers[0])
            await sender.schedule_messages(ServiceBusMessage("c"), soon)
            await sender.send_messages(ServiceBusMessage("d", scheduled_enqueue_time_utc=soon))
        async with client.get_queue_receiver(queue) as receiver:
            messages = await take(receiver, 2)
            assert sorted(bodies(messages)) == ["c", "d"]
            for message in messages:
                assert message.enqueued_time_utc is not None
                assert message.enqueued_time_utc >= soon - timedelta(milliseconds=1)
            await receiver.complete_messages(messages)

    run_with(broker.connection_string, test)


def test_a_lock_that_ends_is_lost_and_one_that_is_renewed_is_not(
    broker: BrokerProcess, queues: Queues
) -> None:
    """R-L2, R-L3."""
    queue = queues.take("short-lock")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "kept", "lost")
        failures: list[object] = []
        async with (
            AutoLockRenewer(60, lambda message, _: failures.append(message)) as renewer,
            client.get_queue_receiver(queue) as receiver,
            client.get_queue_receiver(queue) as second,
        ):
            kept, lost = await take(receiver, 2)
            first_end = kept.locked_until_utc
            renewer.register(receiver, kept)
            # Beyond two lock durations: only the second message comes, twice.
            assert str(await take_one(second)) == "lost"
            came = await take_one(second)
            assert str(came) == "lost"
            assert first_end is not None
            assert kept.locked_until_utc is not None
            assert kept.locked_until_utc > first_end + timedelta(seconds=LOCK_SHORT_S)
            await receiver.complete_message(kept)
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(lost)
            with pytest.raises(MessageLockLostError):
                await receiver.renew_message_lock(lost)
            assert not lost.is_settled
            await second.complete_message(came)
        assert failures == []

    run_with(broker.connection_string, test)


def test_renewing_ends_with_its_time_and_says_so(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("short-lock")

    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a")
        failures: list[object] = []
        renewer = AutoLockRenewer(0.5, lambda message, _: failures.append(message))
        async with client.get_queue_receiver(queue, auto_lock_renewer=renewer) as receiver:
            message = await take_one(receiver)
            # It comes again when the first lock has ended.
            async with client.get_queue_receiver(queue) as second:
                await second.complete_message(await take_one(second))
            assert failures == [message]
            assert message.auto_renew_error is not None
        await renewer.close()

    run_with(broker.connection_string, test)


def test_messages_are_deleted_in_bulk(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "held", "a", "b", "c")
        async with client.get_queue_receiver(queue) as receiver:
            held = await take_one(receiver)
            assert await receiver.delete_messages(1) == 1
            assert await receiver.purge_messages() == 2
            assert await receiver.purge_messages() == 0
            assert bodies(await receiver.peek_messages(5, sequence_number=1)) == ["held"]
            await receiver.complete_message(held)

    run_with(broker.connection_string, test)


def test_messages_are_given_back_as_if_they_had_not_come(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a")
        async with client.get_queue_receiver(queue) as receiver:
            receiver.release_messages([await take_one(receiver)])
            again = await take_one(receiver)
            assert again.delivery_count == 0
            await receiver.complete_message(again)

    run_with(broker.connection_string, test)


def test_a_received_message_can_be_sent_again(broker: BrokerProcess, queue: str) -> None:
    async def test(client: ServiceBusClient) -> None:
        await send(client, queue, "a", message_id="m", application_properties={"n": 1})
        async with client.get_queue_receiver(queue) as receiver:
            first = await take_one(receiver)
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages(first)
            await receiver.complete_message(first)
            second = await take_one(receiver)
            assert (str(second), second.message_id) == ("a", "m")
            assert second.application_properties == {"n": 1}
            assert second.sequence_number != first.sequence_number
            await receiver.complete_message(second)

    run_with(broker.connection_string, test)


def test_what_is_not_there_and_who_is_not_known(broker: BrokerProcess, queue: str) -> None:
    async def missing(client: ServiceBusClient) -> None:
        with pytest.raises(MessagingEntityNotFoundError):
            await client.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))
        with pytest.raises(MessagingEntityNotFoundError):
            await client.get_queue_receiver("no-such-queue").receive_messages(1, 1)

    run_with(broker.connection_string, missing)

    async def unauthorized(client: ServiceBusClient) -> None:
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender(queue).send_messages(ServiceBusMessage("x"))

    run_with(broker.connection_string.replace("SAS_KEY_VALUE", "wrong"), unauthorized)


def test_topics_and_subscriptions(broker: BrokerProcess, queues: Queues) -> None:
    topic = queues.take("topic")

    async def test(client: ServiceBusClient) -> None:
        async with client.get_topic_sender(topic) as sender:
            await sender.send_messages(ServiceBusMessage("news"))
        for name in ("a", "b", "c"):
            async with client.get_subscription_receiver(topic, name) as receiver:
                message = await take_one(receiver)
                assert str(message) == "news"
                await receiver.dead_letter_message(message, "Old")
            async with client.get_subscription_receiver(
                topic, name, sub_queue="deadletter"
            ) as receiver:
                message = await take_one(receiver)
                assert message.dead_letter_reason == "Old"
                await receiver.complete_message(message)

    run_with(broker.connection_string, test)


def test_an_entity_of_the_connection_string_is_the_only_one(broker: BrokerProcess) -> None:
    text = f"{broker.connection_string}EntityPath=orders"

    async def test(client: ServiceBusClient) -> None:
        client.get_queue_receiver("orders/Subscriptions/s")
        with pytest.raises(ValueError, match="is for 'orders'"):
            client.get_queue_sender("others")

    run_with(text, test)


@pytest.mark.parametrize(
    "credential",
    [
        SasKey(ROOT_RULE, ROOT_KEY),
        AzureNamedKeyCredential(ROOT_RULE, ROOT_KEY),
        AzureSasCredential(sas.token("sb://localhost/")),
    ],
    ids=lambda credential: type(credential).__name__,
)
def test_a_client_of_a_namespace_and_a_credential(
    broker: BrokerProcess, queue: str, credential: AnyCredential
) -> None:
    async def test() -> None:
        place = f"localhost:{broker.amqp_port}"
        async with ServiceBusClient(place, credential, use_tls=False) as client:
            assert client.fully_qualified_namespace == "localhost"
            await send(client, queue, "a")
            receiver = client.get_queue_receiver(queue)
            await receiver.complete_message(await take_one(receiver))

    asyncio.run(test())
