"""Links against the engine itself: credit, outcomes in any order, drains, cancellations, ends."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.values.composites import ACCEPTED, RELEASED, encode_modified, encode_rejected
from peeklock.amqp.values.types import Symbol
from peeklock.client.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    SessionLockLostError,
)
from peeklock.client.receiving import receiver_link
from peeklock.client.receiving.prefetch import Prefetch
from tests.client.engine_broker import Bench, turns, until

ABANDONED = encode_modified(delivery_failed=True, undeliverable_here=False)
LOCK_LOST = encode_rejected(AmqpError("com.microsoft:message-lock-lost", "too late"))


def run(body: Callable[[Bench], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def inside() -> None:
        async with Bench(**options) as bench:
            await body(bench)

    asyncio.run(inside())


# --- sending


def test_a_send_is_done_when_the_broker_says_so() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        bench.broker.accepts = False
        sends = [link.submit(b"%d" % number) for number in range(3)]
        await until(lambda: len(bench.broker.arrived) == 3)
        assert [delivery.payload for delivery in bench.broker.arrived] == [b"0", b"1", b"2"]
        assert not any(send.done() for send in sends)
        assert link.pending_count == 3
        # In any order.
        ids = [delivery.id for delivery in bench.broker.arrived]
        bench.broker.links["to q"].settle(ids[2:], ACCEPTED)
        bench.broker.flush()
        await sends[2]
        assert not sends[0].done()
        bench.broker.links["to q"].settle(ids[:2], ACCEPTED)
        bench.broker.flush()
        await asyncio.gather(*sends)
        assert link.pending_count == 0

    run(body)


def test_many_sends_of_one_turn_leave_in_order_and_together() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        for start in range(0, 3000, 1500):
            await asyncio.gather(*[link.submit(b"%d" % n) for n in range(start, start + 1500)])
        assert [int(delivery.payload) for delivery in bench.broker.arrived] == list(range(3000))
        assert len({delivery.tag for delivery in bench.broker.arrived}) == 3000

    run(body)


def test_sends_wait_for_credit() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        bench.broker.accepts = bench.broker.tops_up = False
        sends = [link.submit(b"x") for _ in range(25)]
        await until(lambda: len(bench.broker.arrived) == 10)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(bench.broker.arrived) == 10
        bench.broker.accepts = True
        broker_link = bench.broker.links["to q"]
        broker_link.settle([delivery.id for delivery in bench.broker.arrived], ACCEPTED)
        broker_link.grant(100)
        bench.broker.flush()
        await asyncio.gather(*sends)

    run(body, credit=10)


def test_credit_that_the_broker_wants_back_is_given_back() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        bench.broker.tops_up = False
        send = link.submit(b"x")
        broker_link = bench.broker.links["to q"]
        broker_link.drain_credit()
        bench.broker.flush()
        await send
        await until(lambda: broker_link.credit == 0)
        assert not broker_link.drain

    run(body, credit=10)


def test_a_batch_has_its_own_format_and_a_large_message_many_frames() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        large = bytes(range(256)) * 800
        await asyncio.gather(
            link.submit(b"single"), link.submit(b"batch", is_batch=True), link.submit(large)
        )
        formats = [delivery.message_format for delivery in bench.broker.arrived]
        assert formats == [0, 0x80013700, 0]
        assert bench.broker.arrived[2].payload == large
        assert link.max_message_size == 262_144

    run(body)


def test_a_message_that_is_too_large_is_not_sent() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        with pytest.raises(MessageSizeExceededError, match="262145 bytes"):
            await link.submit(bytes(262_145))
        await link.submit(bytes(262_144))
        assert link.is_open

    run(body)


def test_a_refused_send_fails_with_the_reason_and_the_others_do_not() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        bench.broker.accepts = False
        sends = [link.submit(b"x") for _ in range(4)]
        await until(lambda: len(bench.broker.arrived) == 4)
        ids = [delivery.id for delivery in bench.broker.arrived]
        broker_link = bench.broker.links["to q"]
        full = AmqpError("amqp:resource-limit-exceeded", "it is full")
        broker_link.settle([ids[0]], ACCEPTED)
        broker_link.settle([ids[1]], encode_rejected(full))
        broker_link.settle([ids[2]], RELEASED)
        broker_link.settle([ids[3]], encode_rejected(None))
        bench.broker.flush()
        await sends[0]
        with pytest.raises(ServiceBusQuotaExceededError, match="it is full"):
            await sends[1]
        with pytest.raises(ServiceBusError, match="not taken") as caught:
            await sends[2]
        assert caught.value.is_retryable
        with pytest.raises(ServiceBusError, match="rejected") as caught:
            await sends[3]
        assert not caught.value.is_retryable

    run(body)


def test_a_send_that_is_cancelled_in_the_queue_never_leaves() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        sends = [link.submit(b"%d" % number) for number in range(3)]
        sends[1].cancel()
        await asyncio.gather(sends[0], sends[2])
        assert [delivery.payload for delivery in bench.broker.arrived] == [b"0", b"2"]

    run(body)


def test_a_detach_fails_what_is_pending_with_its_reason() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        other = await bench.connection.open_sender("other")
        told: list[ServiceBusError] = []
        link.when_gone = told.append
        bench.broker.accepts = bench.broker.tops_up = False
        sends = [link.submit(b"x") for _ in range(10)]
        await until(lambda: len(bench.broker.arrived) == 5)
        disabled = AmqpError("com.microsoft:entity-disabled", "nothing is taken now")
        bench.broker.links["to q"].detach(disabled)
        bench.broker.flush()
        for send in sends:
            with pytest.raises(MessagingEntityDisabledError, match="nothing is taken"):
                await send
        assert [type(error) for error in told] == [MessagingEntityDisabledError]
        assert not link.is_open
        with pytest.raises(MessagingEntityDisabledError):
            await link.submit(b"too late")
        await link.close()
        # The connection and its other links live on.
        bench.broker.accepts = True
        await other.submit(b"y")
        assert len(bench.brokers) == 1

    run(body, credit=5)


def test_closing_a_sender_fails_what_has_no_outcome() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        bench.broker.accepts = False
        send = link.submit(b"x")
        await until(lambda: bool(bench.broker.arrived))
        await link.close()
        with pytest.raises(ServiceBusConnectionError):
            await send
        assert not bench.broker.links["to q"].attached
        await link.close()

    run(body)


def test_an_attach_that_is_refused_raises_the_reason() -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.open_sender("q")
        bench.broker.refusals["nowhere"] = AmqpError("amqp:not-found", "there is none")
        with pytest.raises(MessagingEntityNotFoundError, match="there is none"):
            await bench.connection.open_sender("nowhere")
        with pytest.raises(MessagingEntityNotFoundError, match="there is none"):
            await bench.connection.open_receiver("nowhere", deletes=False)

    run(body)


# --- receiving


def test_receive_gives_what_is_there_and_takes_the_credit_back() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        bench.broker.stock = [b"%d" % number for number in range(7)]
        first = await link.receive(5, None)
        assert [delivery.payload for delivery in first] == [b"0", b"1", b"2", b"3", b"4"]
        second = await link.receive(5, None)
        assert [delivery.payload for delivery in second] == [b"5", b"6"]
        assert await link.receive(5, 0) == []
        assert link.credit == 0
        assert bench.broker.links["from q"].credit == 0

    run(body)


def test_receive_waits_for_the_first_and_takes_what_comes_with_it() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        waiting = asyncio.create_task(link.receive(10, None))
        await until(lambda: bench.broker.links["from q"].credit == 10)
        for payload in (b"a", b"b"):
            bench.broker.deliver(bench.broker.links["from q"], payload)
        bench.broker.flush()
        assert [delivery.payload for delivery in await waiting] == [b"a", b"b"]
        assert bench.broker.links["from q"].credit == 0

    run(body)


def test_receive_ends_when_its_time_is_up() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        assert await link.receive(3, 0.01) == []
        assert bench.broker.links["from q"].credit == 0
        with pytest.raises(ValueError, match="at least one"):
            await link.receive(0, 1)

    run(body)


@pytest.mark.parametrize("deletes", [False, True])
def test_a_cancelled_receive_loses_nothing(deletes: bool) -> None:
    """R-F4: what comes after the call was cancelled is the next one's."""

    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=deletes)
        broker_link = bench.broker.links["from q"]
        waiting = asyncio.create_task(link.receive(10, None))
        await until(lambda: broker_link.credit == 10)
        waiting.cancel()
        # It is on its way before the broker learns of it.
        bench.broker.deliver(broker_link, b"late")
        bench.broker.flush()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        bench.broker.stock = [b"next"]
        got = [delivery.payload for delivery in await link.receive(10, None)]
        if len(got) == 1:
            got += [delivery.payload for delivery in await link.receive(10, None)]
        assert got == [b"late", b"next"]

    run(body)


def test_a_drain_that_is_not_answered_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_link, "_DRAINED_WITHIN_S", 0.01)

    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        bench.broker.answers_drains = False
        with pytest.raises(ServiceBusConnectionError, match="drain of credit"):
            await link.receive(5, 1.0)
        assert not link.is_open
        # What has come stays usable, and another link is another chance.
        bench.broker.answers_drains = True
        again = await bench.connection.open_receiver("q", deletes=False)
        assert await again.receive(5, 0.01) == []

    run(body)


def test_answers_that_are_all_different_are_not_remembered() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        bench.broker.stock = [b"m"] * 100
        deliveries = await link.receive(100, 1.0)
        for at, delivery in enumerate(deliveries):
            changed = encode_modified(
                delivery_failed=True,
                undeliverable_here=False,
                message_annotations={Symbol("at"): at},
            )
            bench.broker.answers_settlements = changed
            await link.settle([delivery], changed)
        assert len(link._good) <= receiver_link._GOOD_MAX

    run(body)


def test_calls_of_receive_take_turns() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        bench.broker.stock = [b"%d" % number for number in range(4)]
        pairs = await asyncio.gather(link.receive(2, None), link.receive(2, None))
        assert [[int(d.payload) for d in pair] for pair in pairs] == [[0, 1], [2, 3]]

    run(body)


def test_prefetch_begins_with_the_first_receive() -> None:
    """R-F4: the first message tells how large they are, and lets the others come."""

    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        bench.broker.stock = [b"%d" % number for number in range(9)]
        await turns()
        assert (link.buffered, link.credit) == (0, 0)
        prefetch = Prefetch(4)
        got = await link.receive(1, None, prefetch)
        assert [int(delivery.payload) for delivery in got] == [0]
        # With what was taken that is as many as the cache holds.
        await until(lambda: link.buffered == 3)
        # Nobody asks for more: nothing is locked beyond it.
        await turns()
        assert (link.buffered, link.credit, len(bench.broker.stock)) == (3, 0, 5)
        assert len(await link.receive(3, None, prefetch)) == 3
        # It fills again while nobody calls.
        await until(lambda: link.buffered == 4)
        assert len(await link.receive(4, None, prefetch)) == 4
        assert len(await link.receive(4, None, prefetch)) == 1
        assert await link.receive(4, 0, prefetch) == []

    run(body)


def test_prefetch_begins_with_a_first_receive_that_finds_nothing() -> None:
    """R-F4."""

    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        prefetch = Prefetch(4)
        assert await link.receive(100, 0.01, prefetch) == []
        await until(lambda: bench.broker.links["from q"].credit == 1)
        bench.broker.stock = [b"%d" % number for number in range(9)]
        bench.broker.serve("from q")
        await until(lambda: link.buffered == 4)

    run(body)


def test_a_receive_that_is_cancelled_leaves_the_credit_of_the_cache() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        prefetch = Prefetch(4)
        prefetch.saw([IncomingDelivery(1, b"", 0, False, b"x", None)])
        waiting = asyncio.create_task(link.receive(100, None, prefetch))
        await until(lambda: link.credit == 100)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert link.credit == 4

    run(body)


def test_close_gives_back_what_was_not_taken() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        bench.broker.stock = [b"%d" % number for number in range(3)]
        link.grant(100)
        await until(lambda: link.buffered == 3)
        await link.close()
        released = [event for event in bench.broker.settled if event.outcome == RELEASED]
        assert sum(len(event.deliveries) for event in released) == 3
        assert bench.broker.links["from q"].credit == 0
        with pytest.raises(ServiceBusConnectionError):
            await link.receive(1, None)

    run(body)


def test_settlements_are_answered_together_and_fail_apart() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        bench.broker.stock = [b"%d" % number for number in range(6)]
        got = await link.receive(6, None)
        await link.settle(got[:2], ACCEPTED)
        await link.settle([], ACCEPTED)
        # A yes may have another form than what was asked for.
        await link.settle(got[2:3], ABANDONED)
        bench.broker.answers_settlements = LOCK_LOST
        with pytest.raises(MessageLockLostError, match="too late") as caught:
            await link.settle(got[3:5], ACCEPTED)
        assert not caught.value.is_retryable
        bench.broker.answers_settlements = encode_rejected(None)
        await link.settle(got[5:], encode_rejected(AmqpError("com.microsoft:dead-letter")))
        bench.broker.answers_settlements = None
        link.release(got[:1])
        pending = link.settle(got[:1], ACCEPTED)
        await until(lambda: len(bench.broker.settled) > 5 or link.is_open)
        bench.broker.links["from q"].detach(AmqpError("amqp:link:detach-forced", "idle"))
        bench.broker.flush()
        with pytest.raises(ServiceBusConnectionError, match="idle") as lost:
            await pending
        assert lost.value.is_retryable
        with pytest.raises(ServiceBusConnectionError):
            await link.settle(got[:1], ACCEPTED)

    run(body)


def test_what_is_deleted_when_received_cannot_be_settled() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=True)
        bench.broker.stock = [b"x"]
        got = await link.receive(1, None)
        assert got[0].settled
        with pytest.raises(ValueError, match="cannot be settled"):
            link.settle(got, ACCEPTED)

    run(body)


def test_a_session_that_is_lost_takes_its_messages_with_it() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False, session_id="s")
        assert link.session_id == "s"
        bench.broker.stock = [b"x"]
        link.grant(1)
        await until(lambda: link.buffered == 1)
        lost = AmqpError("com.microsoft:session-lock-lost", "it is over")
        bench.broker.links["from q"].detach(lost)
        bench.broker.flush()
        await until(lambda: not link.is_open)
        with pytest.raises(SessionLockLostError):
            await link.receive(1, None)

    run(body)


def test_what_a_session_deleted_when_it_handed_it_out_is_not_lost_with_its_link() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=True, session_id="s")
        bench.broker.stock = [b"x", b"y"]
        link.grant(2)
        await until(lambda: link.buffered == 2)
        bench.broker.cut()
        await until(lambda: not link.is_open)
        assert [each.payload for each in await link.receive(2, None)] == [b"x", b"y"]

    run(body)


def test_without_a_session_what_was_received_stays_when_the_link_goes() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_receiver("q", deletes=False)
        bench.broker.stock = [b"x"]
        link.grant(1)
        await until(lambda: link.buffered == 1)
        bench.broker.cut()
        await until(lambda: not link.is_open)
        assert len(await link.receive(1, None)) == 1
        with pytest.raises(ServiceBusConnectionError):
            await link.receive(1, None)

    run(body)


def test_a_session_that_nobody_gives_is_not_waited_for_for_ever() -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.open_sender("q")
        timeout = AmqpError("com.microsoft:timeout", "none is free")
        bench.broker.refusals["q"] = timeout
        with pytest.raises(OperationTimeoutError, match="none is free"):
            await bench.connection.open_receiver("q", deletes=False, any_session=True, wait_s=0.1)

    run(body)
