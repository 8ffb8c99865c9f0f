"""What owners can do with the messages of a queue, and what nobody else can meanwhile."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.claims.claiming import HEARD_EVERY_MS
from peeklock.entity.claims.commands import NO_EPOCH
from peeklock.entity.claims.lane_claims import (
    CLAIM_GRACE_MS,
    CLAIM_TIMEOUT_MS,
    OWNER_KEPT_MS,
    OWNERS_MAX,
)
from peeklock.entity.claims.records import (
    UNCLAIMED_ABANDONED,
    UNCLAIMED_RELEASED,
    UNCLAIMED_TIMED_OUT,
    Claimed,
    OwnerHeard,
    Unclaimed,
)
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD,
    DEAD_LETTER,
    DEFER,
    RECEIVE_AND_DELETE,
    RELEASE,
)
from peeklock.entity.definition import RECEIVE_DISABLED
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_CLAIMED, STATE_DEFERRED
from peeklock.entity.moves.settling import CHANGES_SIZE_MAX
from peeklock.entity.records import EXPIRED, Removed, Returned
from peeklock.entity.upkeep.notebook import NOTES_DELAY_MS
from tests.entity.claim_harness import ClaimHarness
from tests.entity.origins import by
from tests.entity.partition_harness import EVERYTHING, QueueHarness, TopicHarness


@pytest.fixture
def queue() -> QueueHarness:
    return QueueHarness(is_retold=True, delivery_count_max=3)


@pytest.fixture
def owner(queue: QueueHarness) -> ClaimHarness:
    return ClaimHarness(queue)


# Claiming.


def test_the_oldest_messages_are_claimed_in_order(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "bb", "ccc")
    made = owner.claimed(2)
    assert made.sequences == numbers[:2]
    assert made.sizes == [1, 2]
    assert made.session_ids is None
    assert owner.claim() == numbers[2:]
    assert owner.claim() == []


def test_what_is_claimed_is_invisible_to_receivers(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    first, second = queue.send("a", "b")
    owner.claim(1)
    assert [each.sequence for each in queue.receive(5)] == [second]
    fetch = ask.ReceiveDeferred(by("m"), 7, 0, [first], ask.PEEK_LOCK)
    assert queue.fate(fetch) == "message-not-found"
    assert queue.receive(5, mode=RECEIVE_AND_DELETE) == []


def test_a_peek_shows_what_is_claimed_as_such(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "b", "c")
    owner.claim(2)
    states = [STATE_CLAIMED, STATE_CLAIMED, STATE_ACTIVE]
    assert [(each.sequence, each.state) for each in queue.peek()] == list(
        zip(numbers, states, strict=True)
    )
    assert [each.sequence for each in queue.peek(start=numbers[1], count=1)] == numbers[1:2]


def test_what_is_claimed_is_counted_apart(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    queue.send("a", "b", "c")
    owner.claim(2)
    counted = queue.count()
    assert (counted.active, counted.claimed, counted.deferred, counted.bytes) == (1, 2, 0, 3)
    assert queue.partition.live_count == 3


def test_a_claim_ends_where_its_bytes_end_but_has_one_message(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    numbers = queue.send("aaaa", "bb", "cc", "d")
    assert owner.claim(bytes_max=3) == numbers[:1]
    assert owner.claim(bytes_max=4) == numbers[1:3]
    assert owner.claim(bytes_max=1) == numbers[3:]


def test_numbers_beyond_the_bound_are_not_claimed() -> None:
    """R-D1: what came after a look at the queue is not part of it."""
    queue = QueueHarness(is_retold=True, index=2)
    owner = ClaimHarness(queue)
    assert owner.listed().last_sequences == [2 << 48]
    numbers = queue.send("a", "b")
    upto = owner.listed().last_sequences[0]
    assert upto == numbers[-1]
    queue.send("c")
    assert owner.claim(upto={0: EVERYTHING}) == [], "a partition that is not named gives nothing"
    assert owner.claim(upto={2: upto}) == numbers
    assert owner.claim(upto={2: upto}) == []
    assert len(owner.claim()) == 1


def test_what_is_over_is_not_claimed(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1, R-F4."""
    queue.send("a", life_ms=1_000)
    kept = queue.send("b")
    queue.now += 1_000
    assert owner.claim() == kept


def test_locked_deferred_and_scheduled_messages_are_not_claimed(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    queue.send("a", "b")
    queue.settle(DEFER, queue.receive_one())
    queue.receive_one()
    queue.send("c", due=queue.now + 5_000)
    assert owner.claim() == []


def test_a_message_that_failed_is_claimed_in_ever_smaller_company(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1: so that the one that makes a batch fail is found."""
    numbers = queue.send(*"abcdefghijklmnopqrst")
    assert owner.claim(16) == numbers[:16]
    assert owner.settle(ABANDON, *numbers[:16]) == 16
    for at in range(0, 16, 2):
        made = owner.claimed(16)
        assert (made.sequences, made.limit) == (numbers[at : at + 2], 2)
    assert owner.claim(16) == numbers[16:]
    owner.settle(ABANDON, *numbers[:2])
    assert owner.claim(16) == numbers[:1]
    assert owner.claim(16) == numbers[1:2]


def test_a_claim_ends_before_a_message_that_failed(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    numbers = queue.send(*"abcd")
    first, second, bad = queue.receive(3)
    queue.settle(ABANDON, bad)
    queue.settle(RELEASE, first, second)
    made = owner.claimed(8)
    assert (made.sequences, made.limit) == (numbers[:2], 8)
    made = owner.claimed(8)
    assert (made.sequences, made.limit) == (numbers[2:3], 1)
    assert owner.claim(8) == numbers[3:]


def test_dead_letters_are_not_suspect(queue: QueueHarness) -> None:
    """R-D1: their counts tell why they are dead, and do not grow any more."""
    queue.send("a", "b", "c")
    for _ in range(3):
        queue.settle(ABANDON, *queue.receive(3))
    owner = ClaimHarness(queue, lane=DEAD)
    claimed = owner.claim()
    assert len(claimed) == 3
    assert queue.count().dead_letter == 3
    assert owner.settle(ABANDON, *claimed) == 3
    assert [each.delivery_count for each in queue.dead()] == [3, 3, 3]
    assert owner.claim() == claimed
    assert owner.why_not(owner.settling(DEAD_LETTER, *claimed)) == "not-allowed"
    assert owner.settle(COMPLETE, *claimed) == 3
    assert queue.dead() == []


def test_a_disabled_queue_has_nothing_to_claim(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    queue.send("a")
    queue.properties["status"] = RECEIVE_DISABLED
    queue.ask(ask.Configure(queue.described()))
    for command in (
        ask.ClaimMessages(by("o"), 7, 0, "owner", 1, 1),
        ask.ListClaims(by("o"), 7, 0, "owner", 1, 0, 1),
        ask.FetchClaims(by("o"), 7, 0, "owner", [1], 1),
        owner.settling(COMPLETE, 1),
    ):
        assert owner.why_not(command) == "entity-disabled"


# Looking.


def test_the_list_tells_what_an_owner_has(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "bb", "c", "d")
    queue.now += 500
    queue.send("e")
    owner.claim(3)
    ClaimHarness(queue, "other").claim(1)
    owner.fetch(numbers[1])
    owner.fetch(numbers[1], numbers[2])
    listed = owner.listed()
    assert listed.sequences == numbers[:3]
    assert listed.sizes == [1, 2, 1]
    assert listed.attempts == [0, 2, 1]
    assert (listed.epoch, listed.active, listed.oldest_enqueued_at) == (1, 1, queue.now)
    page = owner.listed(start=numbers[1], count=1)
    assert page.sequences == numbers[1:2]


def test_an_owner_nobody_knows_has_nothing(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    queue.send("a")
    listed = owner.listed(epoch=NO_EPOCH)
    assert (listed.epoch, listed.sequences) == (0, [])
    assert queue.records == [], "a look without an epoch is not a word of the owner"
    assert owner.fetched(1, 2) == told.ClaimsFetched(by("o"), 7, [], 2)
    assert owner.settle(COMPLETE, 1, epoch=NO_EPOCH) == 0


def test_fetched_messages_come_in_the_order_asked(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "b", "c", "d")
    owner.claim(3)
    ClaimHarness(queue, "other").claim()
    fetched = owner.fetched(numbers[2], numbers[3], 99, numbers[0])
    assert queue.contents(fetched.deliveries) == ["c", "a"]
    assert fetched.looked_at == 4
    assert [each.state for each in fetched.deliveries] == [STATE_CLAIMED] * 2
    assert [each.number for each in fetched.deliveries] == [0, 0]


def test_a_fetch_ends_where_its_bytes_end(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("aaaa", "bb", "cc")
    owner.claim()
    fetched = owner.fetched(*numbers, size=6)
    assert queue.contents(fetched.deliveries) == ["aaaa", "bb"]
    assert fetched.looked_at == 2
    fetched = owner.fetched(99, *numbers, size=1)
    assert (queue.contents(fetched.deliveries), fetched.looked_at) == (["aaaa"], 2)


# Settling.


def test_completed_claims_are_gone(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "b", "c")
    owner.claim()
    assert owner.settle(COMPLETE, *numbers[:2], 99) == 2
    assert Removed(queue.now, 0, 0, numbers[:2]) in queue.records
    assert owner.settle(COMPLETE, *numbers) == 1, "a repeat settles only what is left"
    assert queue.peek() == []
    assert owner.has() == []


def test_released_claims_return_uncounted(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "b")
    owner.claim()
    assert owner.settle(RELEASE, *numbers) == 2
    assert queue.records[-1] == Unclaimed(queue.now, 0, UNCLAIMED_RELEASED, "owner", numbers)
    assert [(each.sequence, each.delivery_count) for each in queue.receive(2)] == [
        (numbers[0], 0),
        (numbers[1], 0),
    ]


def test_released_claims_reach_those_who_wait(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    (number,) = queue.send("a")
    owner.claim()
    queue.open("receiver", credit=1)
    owner.queue.ask(owner.settling(RELEASE, number))
    assert any(isinstance(reply, told.Delivered) for reply in queue.replies)


def test_abandoned_claims_count_and_end_as_dead_letters(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1, R-S7."""
    (number,) = queue.send("a")
    for attempt in (1, 2):
        owner.claim()
        owner.settle(ABANDON, number, changes={"p": b"1"})
        told_of = Unclaimed(queue.now, 0, UNCLAIMED_ABANDONED, "owner", [number])
        assert told_of in queue.records
        assert Returned(queue.now, 0, 0, [number], [attempt]) in queue.records
    owner.claim()
    owner.settle(ABANDON, number)
    (dead,) = queue.dead()
    assert dead.details is not None
    assert (dead.details.reason, dead.delivery_count) == ("MaxDeliveryCountExceeded", 3)
    assert dead.details.changes == {"p": b"1"}


def test_abandoned_claims_of_dead_letters_are_told_once(queue: QueueHarness) -> None:
    """R-D1: as released ones are, by the name of their owner."""
    (number,) = queue.send("a")
    queue.settle(DEAD_LETTER, queue.receive_one())
    owner = ClaimHarness(queue, lane=DEAD)
    assert owner.claim() == [number]
    queue.tick(NOTES_DELAY_MS)
    owner.settle(ABANDON, number)
    assert queue.records == [Unclaimed(queue.now, DEAD, UNCLAIMED_ABANDONED, "owner", [number])]
    queue.tick(NOTES_DELAY_MS)
    assert queue.records == []


def test_deferred_claims_are_fetched_by_number(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1, R-S6."""
    (number,) = queue.send("a")
    owner.claim()
    assert owner.settle(DEFER, number) == 1
    (found,) = queue.fetch(number)
    assert (found.state, found.delivery_count) == (STATE_DEFERRED, 1)


def test_suspended_claims_are_dead_letters_with_a_reason(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1, R-S5."""
    (number,) = queue.send("a")
    owner.claim()
    owner.settle(DEAD_LETTER, number, reason="SparkTaskFailed", description="again")
    (dead,) = queue.dead()
    assert dead.details is not None
    assert (dead.details.reason, dead.details.description) == ("SparkTaskFailed", "again")
    assert ClaimHarness(queue, lane=DEAD).claim() == [number]


def test_too_many_changes_settle_nothing(queue: QueueHarness, owner: ClaimHarness) -> None:
    (number,) = queue.send("a")
    owner.claim()
    settling = owner.settling(ABANDON, number, changes={"p": b"1" * CHANGES_SIZE_MAX})
    assert owner.why_not(settling) == "message-too-big"
    assert owner.has() == [number]


def test_an_owner_cannot_settle_what_another_has(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    (number,) = queue.send("a")
    owner.claim()
    other = ClaimHarness(queue, "other")
    assert other.settle(COMPLETE, number) == 0
    assert other.fetch(number) == []
    assert owner.has() == [number]


# Epochs.


def test_a_later_epoch_fences_the_earlier(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1: of two readers under one name only the later one goes on."""
    (number,) = queue.send("a")
    owner.claim()
    later = ClaimHarness(queue, epoch=2)
    assert later.listed().sequences == [number]
    assert OwnerHeard(queue.now, 0, "owner", 2, CLAIM_TIMEOUT_MS) in queue.records
    for command in (
        ask.ClaimMessages(by("o"), 7, 0, "owner", 1, 1),
        ask.ListClaims(by("o"), 7, 0, "owner", 1, 0, 1),
        owner.settling(COMPLETE, number),
    ):
        assert owner.why_not(command) == "claim-fenced"
    (refused,) = queue.ask(owner.settling(COMPLETE, number))
    assert isinstance(refused, told.Refused)
    assert "'owner'" in refused.refusal.text
    assert "epoch 2" in refused.refusal.text
    assert "epoch 1" in refused.refusal.text
    assert owner.settle(COMPLETE, number, epoch=NO_EPOCH) == 1, "without an epoch nobody is fenced"


def test_epochs_are_of_one_owner_and_one_lane(queue: QueueHarness) -> None:
    """R-D1."""
    ClaimHarness(queue, epoch=5).listed()
    ClaimHarness(queue, "other", epoch=1).listed()
    ClaimHarness(queue, epoch=1, lane=DEAD).listed()


# Time.


def test_claims_of_a_silent_owner_return(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "b")
    owner.claim(timeout_ms=5_000)
    assert queue.partition.next_deadline() == queue.now + 5_000
    queue.tick(4_999)
    assert owner.has() == numbers
    queue.tick(1)
    assert Unclaimed(queue.now, 0, UNCLAIMED_TIMED_OUT, "owner", numbers) in queue.records
    assert owner.has() == []
    assert [each.delivery_count for each in queue.receive(2)] == [0, 0]


def test_a_word_of_the_owner_makes_its_claims_last(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    (number,) = queue.send("a")
    owner.claim(timeout_ms=5_000)
    queue.tick(4_000)
    owner.listed()
    assert queue.records == [], "it is written down once a minute"
    queue.tick(4_000)
    assert owner.has() == [number]
    owner.listed(epoch=NO_EPOCH)
    queue.tick(1_000)
    assert owner.has() == [], "whoever asks without an epoch is not heard of"


def test_being_heard_of_is_written_down_once_a_minute(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    queue.send("a")
    owner.claim()
    queue.now += HEARD_EVERY_MS
    owner.listed()
    assert queue.records == [OwnerHeard(queue.now, 0, "owner", 1, CLAIM_TIMEOUT_MS)]
    queue.now += HEARD_EVERY_MS - 1
    owner.settle(COMPLETE, 99)
    assert queue.records == []


def test_life_does_not_end_while_claimed(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1: it ends when the message comes back too late."""
    first, second = queue.send("a", "b", life_ms=1_000)
    owner.claim()
    queue.tick(5_000)
    assert owner.has() == [first, second]
    assert len(owner.fetch(first)) == 1
    owner.settle(COMPLETE, first)
    owner.settle(RELEASE, second)
    assert queue.peek() == []


def test_claims_whose_lives_have_ended_are_written_down_together(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1, R-F4."""
    numbers = queue.send("a", "b", "c", life_ms=1_000)
    owner.claim(timeout_ms=5_000)
    queue.tick(5_000)
    assert queue.records == [
        Unclaimed(queue.now, 0, UNCLAIMED_TIMED_OUT, "owner", numbers),
        Removed(queue.now, 0, EXPIRED, numbers),
    ]


def test_an_owner_without_claims_is_forgotten_at_last(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    owner.epoch = 9
    owner.listed()
    queue.tick(CLAIM_TIMEOUT_MS + OWNER_KEPT_MS - 1)
    assert owner.listed(epoch=NO_EPOCH).epoch == 9
    queue.tick(1)
    assert owner.listed(epoch=NO_EPOCH).epoch == 0
    assert queue.partition.next_deadline() == 0


def test_a_lane_remembers_only_so_many_owners(queue: QueueHarness) -> None:
    queue.is_retold = False
    (number,) = queue.send("a")
    first = ClaimHarness(queue, "0")
    first.claim()
    for count in range(1, OWNERS_MAX + 5):
        queue.now += 1
        ClaimHarness(queue, str(count)).listed()
    assert first.has() == [number], "whoever has claims is not forgotten"
    assert ClaimHarness(queue, "1").listed(epoch=NO_EPOCH).epoch == 0
    assert ClaimHarness(queue, "10").listed(epoch=NO_EPOCH).epoch == 1


# Restarts and the journal.


def test_claims_outlive_a_restart(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "b", "c")
    owner.claim(2, timeout_ms=5_000)
    owner.fetch(numbers[0])
    queue.restart()
    assert owner.listed().attempts == [0, 0], "attempts are of this process"
    assert queue.count().claimed == 2
    assert queue.contents(owner.fetch(*numbers)) == ["a", "b"]
    assert owner.why_not(ask.ListClaims(by("o"), 7, 0, "owner", NO_EPOCH, 0, 1)) == "fine"
    assert ClaimHarness(queue, epoch=1).claim() == numbers[2:]
    queue.tick()
    queue.tick(5_000)
    assert owner.has() == []


def test_claims_do_not_end_while_the_broker_is_away(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1: its owner has an hour to be heard of."""
    numbers = queue.send("a")
    owner.claim()
    queue.restart()
    queue.tick(3 * CLAIM_TIMEOUT_MS)
    assert owner.has() == numbers
    queue.tick(CLAIM_GRACE_MS - 1)
    assert owner.has() == numbers
    queue.tick(1)
    assert owner.has() == []


def test_claims_are_kept_in_checkpoints(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send(*"abcdef")
    owner.claim(2)
    ClaimHarness(queue, "other", epoch=7).claim(1)
    queue.checkpoint()
    queue.restart()
    assert owner.has() == numbers[:2]
    assert ClaimHarness(queue, "other").listed(epoch=NO_EPOCH).epoch == 7
    # Some change hands while the next one is under way.
    queue.keep(queue.partition.checkpoint_step(queue.now))
    owner.settle(COMPLETE, numbers[0])
    owner.settle(RELEASE, numbers[1])
    more = owner.claim(2)
    while queue.partition.checkpoint_due:
        queue.keep(queue.partition.checkpoint_step(queue.now))
    queue.restart()
    assert owner.has() == more


def test_the_journal_tells_who_claimed(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "b")
    owner.claim()
    assert Claimed(queue.now, 0, "owner", numbers) in queue.records


def test_bodies_of_claims_are_relocated_out_of_old_chunks(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    (number,) = queue.send("a")
    owner.claim()
    (entry,) = queue.partition._state.lane(0).entries()
    body = queue.journal.body(entry.position)
    queue.keep(queue.partition.relocate([entry], [body], queue.now))
    queue.restart()
    assert queue.contents(owner.fetch(number)) == ["a"]


def test_deleting_many_skips_what_is_claimed(queue: QueueHarness, owner: ClaimHarness) -> None:
    """R-D1."""
    numbers = queue.send("a", "b", "c")
    owner.claim(2)
    (reply,) = queue.ask(ask.DeleteMany(by("m"), 7, 0, 10, queue.now + 1))
    assert reply == told.Numbered(by("m"), 7, [1])
    assert owner.has() == numbers[:2]


def test_another_lock_duration_leaves_claims_alone(
    queue: QueueHarness, owner: ClaimHarness
) -> None:
    """R-D1."""
    numbers = queue.send("a")
    owner.claim()
    queue.properties["lock_duration_ms"] = 7_000
    queue.ask(ask.Configure(queue.described()))
    assert owner.has() == numbers


def test_claims_go_with_their_subscription() -> None:
    """R-D1."""
    topic = TopicHarness("first", "second")
    topic.send("a", "b")
    owner = ClaimHarness(topic, lane=topic.lanes["first"])
    claimed = owner.claim()
    assert len(claimed) == 2
    assert topic.contents(topic.peek(topic.lanes["second"])) == ["a", "b"]
    del topic.subscriptions["first"]
    topic.configure()
    assert topic.partition.live_count == 2
    topic.restart()
    assert topic.partition.live_count == 2
