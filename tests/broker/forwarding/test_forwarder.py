"""The forwarder: messages go on to other entities, in order, in runs, and end where they must."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peeklock.broker.forwarding.dead_letters import HOPS_EXCEEDED, HOPS_EXCEEDED_TEXT
from peeklock.entity.commands import DEAD, MAIN, TRANSFER, TRANSFER_DEAD
from peeklock.entity.definition import (
    DISABLED,
    RECEIVE_DISABLED,
    SEND_DISABLED,
    QueueDefinition,
    SubscriptionDefinition,
)
from peeklock.entity.refusals import BUSY, Refusal
from peeklock.entity.replies import Refused
from peeklock.entity.topics.copying import SESSION_MISSING, SESSION_MISSING_TEXT
from tests.broker.broker_harness import contents, settle_down
from tests.broker.forwarding.harness import Network


def run(test: Callable[[], Awaitable[Network]]) -> None:
    async def whole() -> None:
        network = await test()
        for entity in network.entities.values():
            partition = entity.worker._partition
            if partition is not None:
                partition.check()
        await network.close()

    asyncio.run(whole())


def forwarding(path: str, destination: str, **properties: Any) -> QueueDefinition:
    return QueueDefinition(path, forward_to=destination, **properties)


def texts(count: int, name: str = "m") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


# Going on.


def test_messages_go_on_in_order_and_in_runs() -> None:
    """R-S9: what was there before and what comes later, a run at a time."""

    async def walk() -> Network:
        network = Network(QueueDefinition("a"), QueueDefinition("b"))
        await network.send("a", *texts(1000))
        network.configure(forwarding("a", "B"))
        await settle_down()
        await network.send("a", "later")
        assert await network.texts("b") == [*texts(1000), "later"]
        assert await network.texts("a") == []
        assert len(network["b"].taken_over) < 20
        return network

    run(walk)


def test_a_chain_is_walked_to_its_end() -> None:
    async def walk() -> Network:
        network = Network(
            forwarding("a", "b"),
            forwarding("b", "c"),
            forwarding("c", "d"),
            forwarding("d", "e"),
            QueueDefinition("e"),
        )
        network.open()
        await network.send("a", "x", "y")
        await settle_down()
        found = await network.peek("e")
        assert contents(found) == ["x", "y"]
        assert [each.details.hops for each in found if each.details is not None] == [4, 4]
        return network

    run(walk)


def test_a_circle_ends_in_the_dead_letters() -> None:
    """Protocol 11.4: four hops, then the reason says so."""

    async def walk() -> Network:
        network = Network(forwarding("a", "a"))
        await network.send("a", "x", "y")
        await network.rest()
        assert await network.texts("a") == []
        assert await network.texts("a", DEAD) == ["x", "y"]
        assert await network.reasons("a", DEAD) == [(HOPS_EXCEEDED, HOPS_EXCEEDED_TEXT)] * 2
        return network

    run(walk)


def test_dead_letters_go_on_and_tell_where_they_come_from() -> None:
    async def walk() -> Network:
        network = Network(
            QueueDefinition("a", requires_session=False, forward_dead_letters_to="graveyard"),
            QueueDefinition("graveyard"),
        )
        await network.send("a", "x", "y", "z")
        await network.dead_letter("a", 2, "broken")
        await settle_down()
        found = await network.peek("graveyard")
        assert contents(found) == ["x", "y"]
        assert [each.details.source for each in found if each.details is not None] == ["a", "a"]
        assert await network.texts("a") == ["z"]
        assert await network.texts("a", DEAD) == []
        return network

    run(walk)


def test_dead_letters_that_travelled_enough_still_reach_the_graveyard() -> None:
    async def walk() -> Network:
        network = Network(
            forwarding("a", "a", forward_dead_letters_to="graveyard"), QueueDefinition("graveyard")
        )
        await network.send("a", "x")
        await network.rest()
        assert await network.texts("graveyard") == ["x"]
        return network

    run(walk)


def test_entities_that_send_each_other_their_dead_letters_come_to_rest() -> None:
    async def walk() -> Network:
        network = Network(
            forwarding("a", "b", forward_dead_letters_to="b"),
            forwarding("b", "a", forward_dead_letters_to="a"),
        )
        await network.send("a", "x")
        await network.rest()
        await network.rest()
        assert await network.texts("a", DEAD) + await network.texts("b", DEAD) == ["x"]
        assert await network.texts("a") + await network.texts("b") == []
        return network

    run(walk)


def test_transfers_reach_their_destinations() -> None:
    """R-P7: what a transaction sends elsewhere arrives once it is committed."""

    async def walk() -> Network:
        network = Network(*map(QueueDefinition, "abc"))
        await network.transfer("a", "b", *texts(3))
        await network.transfer("a", "c", "other")
        await settle_down()
        assert await network.texts("b") == texts(3)
        assert await network.texts("c") == ["other"]
        assert await network.texts("a", TRANSFER) == []
        return network

    run(walk)


def test_a_scheduled_transfer_waits_at_its_destination() -> None:
    async def walk() -> Network:
        network = Network(*map(QueueDefinition, "ab"))
        due = network.clock.now() + 10_000
        await network.transfer("a", "b", "later", scheduled_at=due)
        await settle_down()
        assert await network.receive("b", 1) == []
        await network.advance(10_000)
        assert contents(await network.receive("b", 1)) == ["later"]
        return network

    run(walk)


def test_subscriptions_forward_and_topics_publish_what_they_get() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("a"), QueueDefinition("end"))
        first = SubscriptionDefinition("t", "first", forward_to="u")
        second = SubscriptionDefinition("t", "second", forward_dead_letters_to="end")
        network.build_topic("t", first, second)
        network.build_topic(
            "u", SubscriptionDefinition("u", "one"), SubscriptionDefinition("u", "two")
        )
        await network.transfer("a", "t", "x", "y")
        await settle_down()
        assert await network.texts("t", 4) == []
        assert await network.texts("t", 6) == ["x", "y"]
        assert await network.texts("u", 4) == ["x", "y"]
        assert await network.texts("u", 6) == ["x", "y"]
        await network.dead_letter("t", 1, "broken", 6)
        await settle_down()
        [dead] = await network.peek("end")
        assert dead.details is not None
        assert dead.details.source == second.path
        return network

    run(walk)


def test_the_dead_letters_of_sessions_go_on() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("end"))
        topic = network.build_topic(
            "t",
            SubscriptionDefinition("t", "s", requires_session=True, forward_dead_letters_to="end"),
        )
        await network.send("t", "without")
        await settle_down()
        assert await network.texts("end") == ["without"]
        assert topic.worker.is_open
        return network

    run(walk)


def test_what_expired_is_not_forwarded() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("a"), QueueDefinition("b"))
        await network.send("a", "short", time_to_live_ms=10)
        await network.send("a", "long")
        network.clock.advance(10)
        network.configure(forwarding("a", "b"))
        await settle_down()
        assert await network.texts("b") == ["long"]
        assert await network.texts("a") == []
        return network

    run(walk)


def test_many_large_messages_are_not_taken_into_memory_at_once() -> None:
    async def walk() -> Network:
        size = 200_000
        network = Network(QueueDefinition("a"), QueueDefinition("b", status=SEND_DISABLED))
        await network.send("a", *["x" * size for _ in range(200)])
        network.configure(forwarding("a", "b"))
        await network.rest()
        network.configure(QueueDefinition("a"))
        await network.rest()
        dead, kept = len(await network.texts("a", DEAD)), len(await network.texts("a"))
        assert dead + kept == 200
        assert max(map(len, network["b"].taken_over)) <= 5
        return network

    run(walk)


# What cannot arrive.


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        (None, "MessagingEntityNotFound"),
        (QueueDefinition("b", status=SEND_DISABLED), "MessagingEntityDisabled"),
        (QueueDefinition("b", status=DISABLED), "MessagingEntityDisabled"),
        (QueueDefinition("b", message_size_max=3), "MessageSizeExceeded"),
        (QueueDefinition("b", size_max=3), "QuotaExceeded"),
        (QueueDefinition("b", requires_session=True), SESSION_MISSING),
    ],
)
@pytest.mark.parametrize("is_transfer", [False, True])
def test_what_cannot_arrive_becomes_a_dead_letter_of_its_source(
    destination: QueueDefinition | None, reason: str, is_transfer: bool
) -> None:
    """Protocol 11.7: the reason tells why, and the transfers have dead letters of their own."""

    async def walk() -> Network:
        network = Network(*([] if destination is None else [destination]))
        if is_transfer:
            network.build(QueueDefinition("a"))
            await network.transfer("a", "b", "long", "too long")
        else:
            network.build(forwarding("a", "b"))
            await network.send("a", "long", "too long")
        await network.rest()
        dead = TRANSFER_DEAD if is_transfer else DEAD
        assert await network.texts("a", dead) == ["long", "too long"]
        found = await network.reasons("a", dead)
        assert [each[0] for each in found] == [reason, reason]
        assert all(each[1] for each in found)
        if reason == SESSION_MISSING:
            assert found[0][1] == SESSION_MISSING_TEXT
        assert await network.texts("a", TRANSFER if is_transfer else MAIN) == []
        return network

    run(walk)


def test_one_that_cannot_arrive_does_not_take_the_others_with_it() -> None:
    async def walk() -> Network:
        network = Network(forwarding("a", "b"), QueueDefinition("b", message_size_max=4))
        await network.send("a", "m0", "far too long", "m1", "unreadable", "m2")
        await network.rest()
        assert await network.texts("b") == ["m0", "m1", "m2"]
        assert await network.texts("a", DEAD) == ["far too long", "unreadable"]
        reasons = [each[0] for each in await network.reasons("a", DEAD)]
        assert reasons == ["MessageSizeExceeded", "TransferFailed"]
        return network

    run(walk)


def test_a_dead_letter_that_cannot_arrive_stays_and_is_tried_again() -> None:
    """It cannot be dead-lettered twice; those behind it go on meanwhile."""

    async def walk() -> Network:
        network = Network(
            QueueDefinition("a", forward_dead_letters_to="b"),
            QueueDefinition("b", message_size_max=4),
        )
        network.open()
        await network.send("a", "m0", *["far too long"] * 200, "m1")
        await network.dead_letter("a", 202, "broken")
        await network.rest()
        assert await network.texts("b") == ["m0", "m1"]
        assert await network.texts("a", DEAD) == ["far too long"] * 200
        network.configure(QueueDefinition("b"))
        await network.advance(6_000)
        assert sorted(await network.texts("b")) == ["far too long"] * 200 + ["m0", "m1"]
        assert await network.texts("a", DEAD) == []
        return network

    run(walk)


def test_a_dead_letter_waits_for_its_graveyard_to_be_made() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("a", forward_dead_letters_to="b"))
        await network.send("a", "x")
        await network.dead_letter("a", 1, "broken")
        await network.rest()
        network.build(QueueDefinition("b"))
        await network.advance(6_000)
        assert await network.texts("b") == ["x"]
        return network

    run(walk)


def test_a_full_store_is_waited_for_in_order() -> None:
    """R-T2: busy passes; nothing becomes a dead letter meanwhile."""

    async def walk() -> Network:
        network = Network(forwarding("a", "b"), QueueDefinition("b"))
        network.open()
        await settle_down()
        entity = network["b"]
        worker = entity.worker
        refused = Busy()
        network.entities["b"] = refused  # type: ignore[assignment]  # it is a destination all the same
        await network.send("a", *texts(10))
        await network.advance(50)
        await network.send("a", *texts(10, "n"))
        await network.rest()
        assert 5 < refused.count < 20
        network.entities["b"] = entity
        assert worker.is_open
        await network.advance(5_000)
        assert await network.texts("b") == [*texts(10), *texts(10, "n")]
        return network

    run(walk)


class Busy:
    """A destination that says that it is busy."""

    path = "b"

    def __init__(self) -> None:
        self.count = 0

    def submit(self, command: Any) -> None:
        self.count += 1
        command.origin.replied(Refused(command.origin, [command.tag], Refusal(BUSY, "busy")))
        command.origin.flush()


def test_a_destination_out_of_reach_does_not_hold_up_transfers_to_others() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("a"), QueueDefinition("c"))
        network.entities["b"] = Busy()  # type: ignore[assignment]  # it is a destination all the same
        await network.transfer("a", "b", *texts(600))
        await network.transfer("a", "c", "fine")
        await network.rest()
        assert await network.texts("c") == ["fine"]
        assert await network.texts("a", TRANSFER) == texts(600)
        del network.entities["b"]
        return network

    run(walk)


# Changes.


def test_forwarding_can_be_switched_off_and_led_elsewhere() -> None:
    async def walk() -> Network:
        network = Network(forwarding("a", "b"), QueueDefinition("b"), QueueDefinition("c"))
        await network.send("a", "x")
        await settle_down()
        network.configure(forwarding("a", "c"))
        await network.send("a", "y")
        await settle_down()
        network.configure(QueueDefinition("a"))
        await network.send("a", "z")
        await settle_down()
        assert await network.texts("b") == ["x"]
        assert await network.texts("c") == ["y"]
        assert contents(await network.receive("a", 9)) == ["z"]
        return network

    run(walk)


def test_what_waits_goes_back_when_forwarding_is_switched_off() -> None:
    """At once what has surely not arrived; the others when it is known that they have not."""

    async def walk() -> Network:
        network = Network(forwarding("a", "b"))
        network.entities["b"] = Busy()  # type: ignore[assignment]  # it is a destination all the same
        await network.send("a", "alone")
        await settle_down()
        await network.send("a", *texts(300))
        await settle_down()
        network.configure(QueueDefinition("a"))
        await settle_down()
        assert contents(await network.receive("a", 400)) == ["alone", *texts(300)]
        del network.entities["b"]
        return network

    async def in_doubt() -> Network:
        network = Network(forwarding("a", "b"))
        network.entities["b"] = Busy()  # type: ignore[assignment]  # it is a destination all the same
        await network.send("a", *texts(3))
        await network.rest()
        network.configure(QueueDefinition("a"))
        await network.rest()
        assert await network.receive("a", 9) == []
        del network.entities["b"]
        await network.rest()
        assert contents(await network.receive("a", 9)) == texts(3)
        return network

    run(walk)
    run(in_doubt)


def test_stuck_dead_letters_go_back_when_forwarding_is_switched_off() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("a", forward_dead_letters_to="nowhere"))
        await network.send("a", *texts(5))
        await network.dead_letter("a", 5, "broken")
        await network.rest()
        assert await network.receive("a", 9, DEAD) == []
        network.configure(QueueDefinition("a"))
        await settle_down()
        assert contents(await network.receive("a", 9, DEAD)) == texts(5)
        return network

    run(walk)


def test_a_new_lock_duration_takes_the_locks_away_but_no_message() -> None:
    """R-L4."""

    async def walk() -> Network:
        network = Network(forwarding("a", "b"))
        network.entities["b"] = Busy()  # type: ignore[assignment]  # it is a destination all the same
        await network.send("a", *texts(10))
        await network.rest()
        network.configure(forwarding("a", "b", lock_duration_ms=30_000))
        await settle_down()
        network.build(QueueDefinition("b"))
        await network.rest()
        assert await network.texts("b") == texts(10)
        assert await network.texts("a") == []
        return network

    run(walk)


def test_a_source_that_is_disabled_goes_on_when_it_is_enabled() -> None:
    async def walk() -> Network:
        network = Network(forwarding("a", "b", status=RECEIVE_DISABLED), QueueDefinition("b"))
        await network.send("a", *texts(3))
        await network.rest()
        assert await network.texts("b") == []
        network.configure(forwarding("a", "b"))
        await settle_down()
        assert await network.texts("b") == texts(3)
        return network

    run(walk)


def test_a_completion_that_a_disabled_source_declines_is_made_up_for() -> None:
    async def walk() -> Network:
        network = Network(forwarding("a", "b"), QueueDefinition("b"))
        network.open()
        await settle_down()
        entity = network["a"]
        accepted = entity.forwarder._lane_forwarders[MAIN]
        await network.send("b", "wake")
        network.configure(forwarding("a", "b"))
        # The source is disabled between the arrival and the completion.
        arrived = accepted.arrived

        def disable(held: Any) -> None:
            network.configure(forwarding("a", "b", status=DISABLED))
            arrived(held)

        route = accepted._route("b")
        route._sender = Between(accepted, disable)
        await network.send("a", *texts(3))
        await network.rest()
        assert await network.texts("b") == ["wake", *texts(3)]
        route._sender = accepted
        network.configure(forwarding("a", "b"))
        await network.rest()
        assert await network.texts("a") == []
        assert await network.texts("b") == ["wake", *texts(3)]
        await network.rest()
        assert network["b"].remembered == {}
        return network

    run(walk)


class Between:
    """Stands between a route and its sender."""

    def __init__(self, sender: Any, arrived: Callable[[Any], None]) -> None:
        self.sender = sender
        self.arrived = arrived

    def cannot_arrive(self, held: Any, refusal: Any) -> None:
        self.sender.cannot_arrive(held, refusal)

    def go_on(self) -> None:
        self.sender.go_on()


def test_a_dropped_subscription_ends_its_forwarding() -> None:
    async def walk() -> Network:
        network = Network(QueueDefinition("a"))
        topic = network.build_topic("t", SubscriptionDefinition("t", "s", forward_to="a"))
        network.open()
        await settle_down()
        blueprint = network.build_topic("t").worker._blueprint
        network.entities["t"] = topic
        topic.worker.configure(blueprint)
        topic.forwarder.configure(blueprint)
        await network.send("t", "nobody")
        assert list(topic.forwarder._lane_forwarders) == [TRANSFER]
        assert await network.texts("a") == []
        return network

    run(walk)


# Forgetting.


def test_destinations_forget_what_will_not_come_again() -> None:
    async def walk() -> Network:
        network = Network(forwarding("a", "b"), QueueDefinition("b"))
        network.open()
        for _ in range(30):
            await network.send("a", *texts(100))
            await settle_down()
            assert sum(map(len, network["b"].remembered.values())) < 800
        assert len(await network.texts("b")) == 3000
        await network.advance(1_000)
        assert network["b"].remembered == {}
        return network

    run(walk)


def test_a_removed_source_leaves_no_memory_behind() -> None:
    async def walk() -> Network:
        network = Network(forwarding("a", "b"), QueueDefinition("b"))
        network.open()
        await settle_down()
        await network.send("a", "x")
        assert network["b"].remembered != {}
        network["a"].forwarder.close(is_removed=True)
        await settle_down()
        assert network["b"].remembered == {}
        return network

    run(walk)
