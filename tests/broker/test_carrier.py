"""The carrier: messages go on to other entities, in order, in runs, and end where they must."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peeklock.broker.haul import HOPS_EXCEEDED, HOPS_EXCEEDED_TEXT
from peeklock.entity.commands import DEAD, MAIN, TRANSFER, TRANSFER_DEAD
from peeklock.entity.copying import SESSION_MISSING, SESSION_MISSING_TEXT
from peeklock.entity.definition import (
    DISABLED,
    RECEIVE_DISABLED,
    SEND_DISABLED,
    QueueDefinition,
    SubscriptionDefinition,
)
from peeklock.entity.refusals import BUSY, Refusal
from peeklock.entity.replies import Refused
from tests.broker.bench import contents, settle_down
from tests.broker.town import Town


def run(test: Callable[[], Awaitable[Town]]) -> None:
    async def whole() -> None:
        town = await test()
        for house in town.houses.values():
            partition = house.worker._partition
            if partition is not None:
                partition.check()
        await town.close()

    asyncio.run(whole())


def forwarding(path: str, destination: str, **properties: Any) -> QueueDefinition:
    return QueueDefinition(path, forward_to=destination, **properties)


def texts(count: int, name: str = "m") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


# Going on.


def test_messages_go_on_in_order_and_in_runs() -> None:
    """R-S9: what was there before and what comes later, a run at a time."""

    async def walk() -> Town:
        town = Town(QueueDefinition("a"), QueueDefinition("b"))
        await town.send("a", *texts(1000))
        town.configure(forwarding("a", "B"))
        await settle_down()
        await town.send("a", "later")
        assert await town.texts("b") == [*texts(1000), "later"]
        assert await town.texts("a") == []
        assert len(town["b"].taken_over) < 20
        return town

    run(walk)


def test_a_chain_is_walked_to_its_end() -> None:
    async def walk() -> Town:
        town = Town(
            forwarding("a", "b"),
            forwarding("b", "c"),
            forwarding("c", "d"),
            forwarding("d", "e"),
            QueueDefinition("e"),
        )
        town.open()
        await town.send("a", "x", "y")
        await settle_down()
        found = await town.peek("e")
        assert contents(found) == ["x", "y"]
        assert [each.details.hops for each in found if each.details is not None] == [4, 4]
        return town

    run(walk)


def test_a_circle_ends_in_the_dead_letters() -> None:
    """Protocol 11.4: four hops, then the reason says so."""

    async def walk() -> Town:
        town = Town(forwarding("a", "a"))
        await town.send("a", "x", "y")
        await town.rest()
        assert await town.texts("a") == []
        assert await town.texts("a", DEAD) == ["x", "y"]
        assert await town.reasons("a", DEAD) == [(HOPS_EXCEEDED, HOPS_EXCEEDED_TEXT)] * 2
        return town

    run(walk)


def test_dead_letters_go_on_and_tell_where_they_come_from() -> None:
    async def walk() -> Town:
        town = Town(
            QueueDefinition("a", requires_session=False, forward_dead_letters_to="graveyard"),
            QueueDefinition("graveyard"),
        )
        await town.send("a", "x", "y", "z")
        await town.dead_letter("a", 2, "broken")
        await settle_down()
        found = await town.peek("graveyard")
        assert contents(found) == ["x", "y"]
        assert [each.details.source for each in found if each.details is not None] == ["a", "a"]
        assert await town.texts("a") == ["z"]
        assert await town.texts("a", DEAD) == []
        return town

    run(walk)


def test_dead_letters_that_travelled_enough_still_reach_the_graveyard() -> None:
    async def walk() -> Town:
        town = Town(
            forwarding("a", "a", forward_dead_letters_to="graveyard"), QueueDefinition("graveyard")
        )
        await town.send("a", "x")
        await town.rest()
        assert await town.texts("graveyard") == ["x"]
        return town

    run(walk)


def test_entities_that_send_each_other_their_dead_letters_come_to_rest() -> None:
    async def walk() -> Town:
        town = Town(
            forwarding("a", "b", forward_dead_letters_to="b"),
            forwarding("b", "a", forward_dead_letters_to="a"),
        )
        await town.send("a", "x")
        await town.rest()
        await town.rest()
        assert await town.texts("a", DEAD) + await town.texts("b", DEAD) == ["x"]
        assert await town.texts("a") + await town.texts("b") == []
        return town

    run(walk)


def test_transfers_reach_their_destinations() -> None:
    """R-P7: what a transaction sends elsewhere arrives once it is committed."""

    async def walk() -> Town:
        town = Town(*map(QueueDefinition, "abc"))
        await town.transfer("a", "b", *texts(3))
        await town.transfer("a", "c", "other")
        await settle_down()
        assert await town.texts("b") == texts(3)
        assert await town.texts("c") == ["other"]
        assert await town.texts("a", TRANSFER) == []
        return town

    run(walk)


def test_a_scheduled_transfer_waits_at_its_destination() -> None:
    async def walk() -> Town:
        town = Town(*map(QueueDefinition, "ab"))
        due = town.clock.now() + 10_000
        await town.transfer("a", "b", "later", scheduled_at=due)
        await settle_down()
        assert await town.receive("b", 1) == []
        await town.advance(10_000)
        assert contents(await town.receive("b", 1)) == ["later"]
        return town

    run(walk)


def test_subscriptions_forward_and_topics_publish_what_they_get() -> None:
    async def walk() -> Town:
        town = Town(QueueDefinition("a"), QueueDefinition("end"))
        first = SubscriptionDefinition("t", "first", forward_to="u")
        second = SubscriptionDefinition("t", "second", forward_dead_letters_to="end")
        town.build_topic("t", first, second)
        town.build_topic(
            "u", SubscriptionDefinition("u", "one"), SubscriptionDefinition("u", "two")
        )
        await town.transfer("a", "t", "x", "y")
        await settle_down()
        assert await town.texts("t", 4) == []
        assert await town.texts("t", 6) == ["x", "y"]
        assert await town.texts("u", 4) == ["x", "y"]
        assert await town.texts("u", 6) == ["x", "y"]
        await town.dead_letter("t", 1, "broken", 6)
        await settle_down()
        [dead] = await town.peek("end")
        assert dead.details is not None
        assert dead.details.source == second.path
        return town

    run(walk)


def test_the_dead_letters_of_sessions_go_on() -> None:
    async def walk() -> Town:
        town = Town(QueueDefinition("end"))
        topic = town.build_topic(
            "t",
            SubscriptionDefinition("t", "s", requires_session=True, forward_dead_letters_to="end"),
        )
        await town.send("t", "without")
        await settle_down()
        assert await town.texts("end") == ["without"]
        assert topic.worker.is_open
        return town

    run(walk)


def test_what_expired_is_not_forwarded() -> None:
    async def walk() -> Town:
        town = Town(QueueDefinition("a"), QueueDefinition("b"))
        await town.send("a", "short", time_to_live_ms=10)
        await town.send("a", "long")
        town.clock.advance(10)
        town.configure(forwarding("a", "b"))
        await settle_down()
        assert await town.texts("b") == ["long"]
        assert await town.texts("a") == []
        return town

    run(walk)


def test_many_large_messages_are_not_taken_into_memory_at_once() -> None:
    async def walk() -> Town:
        size = 200_000
        town = Town(QueueDefinition("a"), QueueDefinition("b", status=SEND_DISABLED))
        await town.send("a", *["x" * size for _ in range(200)])
        town.configure(forwarding("a", "b"))
        await town.rest()
        town.configure(QueueDefinition("a"))
        await town.rest()
        dead, kept = len(await town.texts("a", DEAD)), len(await town.texts("a"))
        assert dead + kept == 200
        assert max(map(len, town["b"].taken_over)) <= 5
        return town

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

    async def walk() -> Town:
        town = Town(*([] if destination is None else [destination]))
        if is_transfer:
            town.build(QueueDefinition("a"))
            await town.transfer("a", "b", "long", "too long")
        else:
            town.build(forwarding("a", "b"))
            await town.send("a", "long", "too long")
        await town.rest()
        dead = TRANSFER_DEAD if is_transfer else DEAD
        assert await town.texts("a", dead) == ["long", "too long"]
        found = await town.reasons("a", dead)
        assert [each[0] for each in found] == [reason, reason]
        assert all(each[1] for each in found)
        if reason == SESSION_MISSING:
            assert found[0][1] == SESSION_MISSING_TEXT
        assert await town.texts("a", TRANSFER if is_transfer else MAIN) == []
        return town

    run(walk)


def test_one_that_cannot_arrive_does_not_take_the_others_with_it() -> None:
    async def walk() -> Town:
        town = Town(forwarding("a", "b"), QueueDefinition("b", message_size_max=4))
        await town.send("a", "m0", "far too long", "m1", "unreadable", "m2")
        await town.rest()
        assert await town.texts("b") == ["m0", "m1", "m2"]
        assert await town.texts("a", DEAD) == ["far too long", "unreadable"]
        reasons = [each[0] for each in await town.reasons("a", DEAD)]
        assert reasons == ["MessageSizeExceeded", "TransferFailed"]
        return town

    run(walk)


def test_a_dead_letter_that_cannot_arrive_stays_and_is_tried_again() -> None:
    """It cannot be dead-lettered twice; those behind it go on meanwhile."""

    async def walk() -> Town:
        town = Town(
            QueueDefinition("a", forward_dead_letters_to="b"),
            QueueDefinition("b", message_size_max=4),
        )
        town.open()
        await town.send("a", "m0", *["far too long"] * 200, "m1")
        await town.dead_letter("a", 202, "broken")
        await town.rest()
        assert await town.texts("b") == ["m0", "m1"]
        assert await town.texts("a", DEAD) == ["far too long"] * 200
        town.configure(QueueDefinition("b"))
        await town.advance(6_000)
        assert sorted(await town.texts("b")) == ["far too long"] * 200 + ["m0", "m1"]
        assert await town.texts("a", DEAD) == []
        return town

    run(walk)


def test_a_dead_letter_waits_for_its_graveyard_to_be_made() -> None:
    async def walk() -> Town:
        town = Town(QueueDefinition("a", forward_dead_letters_to="b"))
        await town.send("a", "x")
        await town.dead_letter("a", 1, "broken")
        await town.rest()
        town.build(QueueDefinition("b"))
        await town.advance(6_000)
        assert await town.texts("b") == ["x"]
        return town

    run(walk)


def test_a_full_store_is_waited_for_in_order() -> None:
    """R-T2: busy passes; nothing becomes a dead letter meanwhile."""

    async def walk() -> Town:
        town = Town(forwarding("a", "b"), QueueDefinition("b"))
        town.open()
        await settle_down()
        house = town["b"]
        worker = house.worker
        refused = Busy()
        town.houses["b"] = refused  # type: ignore[assignment]  # it is a destination all the same
        await town.send("a", *texts(10))
        await town.advance(50)
        await town.send("a", *texts(10, "n"))
        await town.rest()
        assert 5 < refused.count < 20
        town.houses["b"] = house
        assert worker.is_open
        await town.advance(5_000)
        assert await town.texts("b") == [*texts(10), *texts(10, "n")]
        return town

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
    async def walk() -> Town:
        town = Town(QueueDefinition("a"), QueueDefinition("c"))
        town.houses["b"] = Busy()  # type: ignore[assignment]  # it is a destination all the same
        await town.transfer("a", "b", *texts(600))
        await town.transfer("a", "c", "fine")
        await town.rest()
        assert await town.texts("c") == ["fine"]
        assert await town.texts("a", TRANSFER) == texts(600)
        del town.houses["b"]
        return town

    run(walk)


# Changes.


def test_forwarding_can_be_switched_off_and_led_elsewhere() -> None:
    async def walk() -> Town:
        town = Town(forwarding("a", "b"), QueueDefinition("b"), QueueDefinition("c"))
        await town.send("a", "x")
        await settle_down()
        town.configure(forwarding("a", "c"))
        await town.send("a", "y")
        await settle_down()
        town.configure(QueueDefinition("a"))
        await town.send("a", "z")
        await settle_down()
        assert await town.texts("b") == ["x"]
        assert await town.texts("c") == ["y"]
        assert contents(await town.receive("a", 9)) == ["z"]
        return town

    run(walk)


def test_what_waits_goes_back_when_forwarding_is_switched_off() -> None:
    """At once what has surely not arrived; the others when it is known that they have not."""

    async def walk() -> Town:
        town = Town(forwarding("a", "b"))
        town.houses["b"] = Busy()  # type: ignore[assignment]  # it is a destination all the same
        await town.send("a", "alone")
        await settle_down()
        await town.send("a", *texts(300))
        await settle_down()
        town.configure(QueueDefinition("a"))
        await settle_down()
        assert contents(await town.receive("a", 400)) == ["alone", *texts(300)]
        del town.houses["b"]
        return town

    async def in_doubt() -> Town:
        town = Town(forwarding("a", "b"))
        town.houses["b"] = Busy()  # type: ignore[assignment]  # it is a destination all the same
        await town.send("a", *texts(3))
        await town.rest()
        town.configure(QueueDefinition("a"))
        await town.rest()
        assert await town.receive("a", 9) == []
        del town.houses["b"]
        await town.rest()
        assert contents(await town.receive("a", 9)) == texts(3)
        return town

    run(walk)
    run(in_doubt)


def test_stuck_dead_letters_go_back_when_forwarding_is_switched_off() -> None:
    async def walk() -> Town:
        town = Town(QueueDefinition("a", forward_dead_letters_to="nowhere"))
        await town.send("a", *texts(5))
        await town.dead_letter("a", 5, "broken")
        await town.rest()
        assert await town.receive("a", 9, DEAD) == []
        town.configure(QueueDefinition("a"))
        await settle_down()
        assert contents(await town.receive("a", 9, DEAD)) == texts(5)
        return town

    run(walk)


def test_a_new_lock_duration_takes_the_locks_away_but_no_message() -> None:
    """R-L4."""

    async def walk() -> Town:
        town = Town(forwarding("a", "b"))
        town.houses["b"] = Busy()  # type: ignore[assignment]  # it is a destination all the same
        await town.send("a", *texts(10))
        await town.rest()
        town.configure(forwarding("a", "b", lock_duration_ms=30_000))
        await settle_down()
        town.build(QueueDefinition("b"))
        await town.rest()
        assert await town.texts("b") == texts(10)
        assert await town.texts("a") == []
        return town

    run(walk)


def test_a_source_that_is_disabled_goes_on_when_it_is_enabled() -> None:
    async def walk() -> Town:
        town = Town(forwarding("a", "b", status=RECEIVE_DISABLED), QueueDefinition("b"))
        await town.send("a", *texts(3))
        await town.rest()
        assert await town.texts("b") == []
        town.configure(forwarding("a", "b"))
        await settle_down()
        assert await town.texts("b") == texts(3)
        return town

    run(walk)


def test_a_completion_that_a_disabled_source_declines_is_made_up_for() -> None:
    async def walk() -> Town:
        town = Town(forwarding("a", "b"), QueueDefinition("b"))
        town.open()
        await settle_down()
        house = town["a"]
        accepted = house.carrier._hauls[MAIN]
        await town.send("b", "wake")
        town.configure(forwarding("a", "b"))
        # The source is disabled between the arrival and the completion.
        arrived = accepted.arrived

        def disable(held: Any) -> None:
            town.configure(forwarding("a", "b", status=DISABLED))
            arrived(held)

        route = accepted._route("b")
        route._sender = Between(accepted, disable)
        await town.send("a", *texts(3))
        await town.rest()
        assert await town.texts("b") == ["wake", *texts(3)]
        route._sender = accepted
        town.configure(forwarding("a", "b"))
        await town.rest()
        assert await town.texts("a") == []
        assert await town.texts("b") == ["wake", *texts(3)]
        await town.rest()
        assert town["b"].remembered == {}
        return town

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


def test_a_dropped_subscription_ends_its_carrying() -> None:
    async def walk() -> Town:
        town = Town(QueueDefinition("a"))
        topic = town.build_topic("t", SubscriptionDefinition("t", "s", forward_to="a"))
        town.open()
        await settle_down()
        blueprint = town.build_topic("t").worker._blueprint
        town.houses["t"] = topic
        topic.worker.configure(blueprint)
        topic.carrier.configure(blueprint)
        await town.send("t", "nobody")
        assert list(topic.carrier._hauls) == [TRANSFER]
        assert await town.texts("a") == []
        return town

    run(walk)


# Forgetting.


def test_destinations_forget_what_will_not_come_again() -> None:
    async def walk() -> Town:
        town = Town(forwarding("a", "b"), QueueDefinition("b"))
        town.open()
        for _ in range(30):
            await town.send("a", *texts(100))
            await settle_down()
            assert sum(map(len, town["b"].remembered.values())) < 800
        assert len(await town.texts("b")) == 3000
        await town.advance(1_000)
        assert town["b"].remembered == {}
        return town

    run(walk)


def test_a_removed_source_leaves_no_memory_behind() -> None:
    async def walk() -> Town:
        town = Town(forwarding("a", "b"), QueueDefinition("b"))
        town.open()
        await settle_down()
        await town.send("a", "x")
        assert town["b"].remembered != {}
        town["a"].carrier.close(is_removed=True)
        await settle_down()
        assert town["b"].remembered == {}
        return town

    run(walk)
