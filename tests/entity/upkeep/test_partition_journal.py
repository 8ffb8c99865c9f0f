"""What a partition writes down: replays, checkpoints, bodies relocated, memory bounded."""

from peeklock.entity import commands as ask
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    MAIN,
    RECEIVE_AND_DELETE,
)
from peeklock.entity.decision import NO_REPLAY
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.deliveries import LockToken
from peeklock.entity.message import Message, Traits
from peeklock.entity.records import Record
from peeklock.entity.settlement import Settlement
from peeklock.entity.upkeep.journal_facts import HandedTo
from peeklock.entity.upkeep.live_bodies import BLOCK
from peeklock.store import store
from tests.entity.journal_facts import notes
from tests.entity.model_pair import Pair
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, message, sequences


def kinds(found: list[Record]) -> list[str]:
    return [type(record).__name__ for record in found]


def send(*contents: str) -> ask.SendMany:
    return ask.SendMany(
        by("sender"), list(range(len(contents))), [message(each) for each in contents]
    )


def test_the_blocks_of_the_partition_and_of_the_store_are_the_same() -> None:
    assert BLOCK == store.BLOCK


def test_what_was_asked_and_refused_writes_nothing() -> None:
    queue = QueueHarness(message_size_max=3)
    queue.ask(send("long"))
    queue.ask(ask.Peek(by("me"), 1, MAIN, 0, 1, 1), ask.Count(by("me"), 2), ask.Tick())
    queue.ask(ask.RenewLocks(by("me"), 3, [LockToken(1, 1)]))
    assert queue.journal.chunks == []


def test_a_lock_writes_nothing_by_itself_and_is_noted_with_the_next_record() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    queue.receive(2)
    assert queue.records == []
    queue.send("c")
    told = [each for each in notes(queue.records) if isinstance(each, HandedTo)]
    assert [(each.lane, each.sequences) for each in told] == [(MAIN, [1, 2])]


def test_a_restart_keeps_states_counts_reasons_changes_and_instants() -> None:
    """R-L4."""
    pair = Pair(QueueDefinition("orders", dead_letter_on_expiration=True))
    later = pair.now + 100_000
    pair.ask(send(*"abcdef"))
    pair.ask(
        ask.Schedule(
            by("s"), 7, [Message(b"", b"later", Traits(time_to_live_ms=9, scheduled_at=later))]
        )
    )
    pair.ask(ask.SendBatch(by("s"), 8, [Message(b"", b"brief", Traits(time_to_live_ms=1_000))]))
    pair.ask(ask.OpenReceiver(by("r"), MAIN, 0), ask.Grant(by("r"), 5, False))
    one, two, three, four, _ = pair.tokens
    pair.ask(ask.SettleMany(by("r"), [1], ask.Settlement(ABANDON, {"x": b"1"}), [one]))
    pair.ask(ask.SettleMany(by("r"), [2], ask.Settlement(DEFER, {"y": b"2"}), [two]))
    pair.ask(ask.SettleMany(by("r"), [3], Settlement(DEAD_LETTER, {"z": b"3"}, "r", "d"), [three]))
    pair.ask(ask.SettleMany(by("r"), [4], ask.Settlement(COMPLETE), [four]))
    pair.advance(1_000)
    pair.crash()
    pair.advance(100_000)
    pair.crash()


def test_numbers_go_on_after_a_restart_even_when_nothing_is_alive() -> None:
    """Sequence numbers are never reused."""
    queue = QueueHarness()
    queue.send("a", "b")
    queue.receive(2, mode=RECEIVE_AND_DELETE)
    queue.restart()
    assert queue.send("c") == [3]
    queue.settle(COMPLETE, queue.receive_one())
    while queue.keep(decision := queue.partition.checkpoint_step(queue.now)) == []:
        if decision.replay_from != NO_REPLAY:
            break
    queue.journal.trim(queue.partition.live_blocks())
    queue.restart()
    assert queue.send("d") == [4]


def test_opening_starts_at_the_last_checkpoint() -> None:
    queue = QueueHarness()
    queue.send(*"abc")
    queue.settle(COMPLETE, queue.receive_one())
    begun = queue.partition.next_position
    steps = [queue.partition.checkpoint_step(queue.now) for _ in range(3)]
    for decision in steps:
        queue.keep(decision)
    assert [kinds(decision.records)[-1:] for decision in steps] == [
        ["CheckpointBegun"],
        ["CheckpointSlice"],
        ["CheckpointEnded"],
    ]
    assert [decision.replay_from for decision in steps] == [NO_REPLAY, NO_REPLAY, begun]
    queue.restart()
    assert queue.partition.replay_from() == begun
    assert queue.contents(queue.receive(5)) == ["b", "c"]


def test_a_checkpoint_in_slices_keeps_up_with_what_happens_between_them() -> None:
    """Every kind of change, on messages that the walk has passed and that it has not."""
    pair = Pair(QueueDefinition("orders", delivery_count_max=2), memory=10_000)
    count = 1_300
    pair.ask(send(*(f"m{number}" for number in range(count))))
    pair.ask(ask.OpenReceiver(by("r"), MAIN, 0), ask.Grant(by("r"), count, False))
    settled = 0
    tags = iter(range(100_000))
    while pair.journal.replay_from < pair.partition.next_position:
        before = pair.journal.replay_from
        pair.checkpoint_step()
        if pair.journal.replay_from != before:
            break
        # Settle some at the front, where the walk has been, and some at the back, where not.
        for outcome in (COMPLETE, ABANDON, DEFER, DEAD_LETTER):
            few = (
                pair.tokens[settled : settled + 5]
                + pair.tokens[count - settled - 5 : count - settled]
            )
            settled += 5
            changes = {"at": b"%d" % settled}
            pair.ask(
                ask.SettleMany(
                    by("r"), [next(tags) for _ in few], ask.Settlement(outcome, changes), few
                )
            )
        pair.ask(send("between"))
        pair.compare_replay()
    pair.crash()
    assert pair.partition.replay_from() == pair.journal.replay_from > count


def test_a_checkpoint_tells_what_was_returned_and_where_locks_were_taken_from() -> None:
    pair = Pair(QueueDefinition("orders"))
    pair.ask(send(*"abc"))
    pair.ask(ask.OpenReceiver(by("r"), MAIN, 0), ask.Grant(by("r"), 3, False))
    returned, deferred, _ = pair.tokens
    pair.ask(ask.SettleMany(by("r"), [1], ask.Settlement(ABANDON), [returned]))
    pair.ask(ask.SettleMany(by("r"), [2], ask.Settlement(DEFER), [deferred]))
    pair.ask(ask.ReceiveDeferred(by("m"), 3, MAIN, [deferred.sequence], 0))
    for _ in range(3):
        pair.checkpoint_step()
    assert pair.journal.replay_from > 3
    pair.crash()


def test_a_checkpoint_ignores_what_happens_to_those_that_it_has_yet_to_tell_of() -> None:
    """Carried, activated, dead-lettered, changed and removed before the slice."""
    pair = Pair(QueueDefinition("orders", lock_duration_ms=5_000), first=BLOCK - 8)
    later = [Message(b"", b"later", Traits(scheduled_at=pair.now + 1_000))]
    pair.ask(send(*"abcde"), ask.Schedule(by("s"), 9, later))
    pair.ask(ask.OpenReceiver(by("r"), MAIN, 0), ask.Grant(by("r"), 4, False))
    pair.checkpoint_step()
    assert pair.relocate(10) == 6
    pair.advance(1_000)
    one, two, three, four = pair.tokens
    pair.ask(ask.SettleMany(by("r"), [1], ask.Settlement(ABANDON, {"x": b"1"}), [one]))
    pair.ask(ask.SettleMany(by("r"), [2], ask.Settlement(DEAD_LETTER), [two]))
    pair.ask(ask.SettleMany(by("r"), [3], ask.Settlement(COMPLETE), [three]))
    pair.ask(ask.SettleMany(by("r"), [4], ask.Settlement(DEFER), [four]))
    steps = 0
    while pair.partition.checkpoint_due:
        pair.checkpoint_step()
        steps += 1
    assert steps > 1
    assert pair.journal.replay_from > BLOCK - 8
    pair.crash()


def test_a_checkpoint_that_a_crash_cut_off_does_no_harm() -> None:
    pair = Pair(QueueDefinition("orders"))
    pair.ask(send(*"abc"))
    pair.checkpoint_step()
    pair.checkpoint_step()
    pair.crash()
    pair.ask(send("d"))
    for _ in range(4):
        pair.checkpoint_step()
    pair.crash()
    assert pair.journal.replay_from > 3


def test_old_messages_are_relocated_so_that_their_blocks_can_go() -> None:
    # Two positions are taken by the empty checkpoint at the beginning.
    pair = Pair(QueueDefinition("orders"), first=BLOCK - 12)
    pair.ask(send("old", *(["x"] * 9)))
    pair.ask(ask.OpenReceiver(by("r"), MAIN, 0), ask.Grant(by("r"), 10, False))
    old, *others = pair.tokens
    pair.ask(ask.SettleMany(by("r"), [1], ask.Settlement(DEFER), [old]))
    pair.ask(ask.SettleMany(by("r"), list(range(2, 11)), ask.Settlement(COMPLETE), others))
    assert pair.partition.live_blocks() == [0]
    assert pair.relocate(10) == 1
    assert pair.partition.live_blocks() == [1]
    assert pair.relocate(10) == 0
    pair.crash()
    # Nothing that an opening needs lies in the old block once there is a checkpoint behind it.
    for _ in range(3):
        pair.checkpoint_step()
    pair.journal.trim(pair.partition.live_blocks())
    pair.crash()
    pair.ask(ask.ReceiveDeferred(by("m"), 9, MAIN, [1], 0))


def test_what_was_settled_between_choosing_and_relocating_is_left_out() -> None:
    queue = QueueHarness()
    queue.send("a", "b", *(["x"] * (BLOCK - 2)))
    held = queue.receive(BLOCK)
    queue.settle(COMPLETE, *held[2:])
    chosen = queue.partition.next_to_relocate(queue.partition.next_position, 10)
    assert [entry.sequence for entry in chosen] == [1, 2]
    assert not queue.partition.is_relocating
    bodies = [queue.journal.body(entry.position) for entry in chosen]
    queue.settle(COMPLETE, held[0])
    queue.settle(DEAD_LETTER, held[1])
    queue.keep(queue.partition.relocate(chosen, bodies, queue.now))
    assert "Relocated" not in kinds(queue.records)
    assert queue.contents(queue.dead()) == ["b"]


def test_relocating_goes_on_step_by_step() -> None:
    pair = Pair(QueueDefinition("orders"), first=BLOCK - 6)
    pair.ask(send(*"abcd"))
    relocated = [pair.relocate(1)]
    while pair.partition.is_relocating:
        relocated.append(pair.relocate(1))
    assert relocated == [1, 1, 1, 1]
    assert pair.partition.live_blocks() == [1]
    pair.crash()


def test_bodies_stay_in_memory_only_while_the_budget_allows() -> None:
    queue = QueueHarness(memory=10)
    queue.send("12345678", "too many", "12")
    assert queue.budget.left == 0
    held = queue.receive(3)
    assert [each.message is not None for each in held] == [True, False, True]
    assert queue.contents(held) == ["12345678", "too many", "12"]
    assert queue.budget.left == 10


def test_a_restarted_queue_fetches_its_bodies_from_the_journal() -> None:
    queue = QueueHarness()
    queue.send("a", "b")
    queue.restart()
    held = queue.receive(2)
    assert [each.message for each in held] == [None, None]
    assert queue.contents(held) == ["a", "b"]
    assert sequences(held) == [1, 2]


def test_a_discarded_partition_frees_the_memory_of_its_bodies() -> None:
    """After a failed append the partition is opened anew, with the same budget."""
    queue = QueueHarness(memory=100)
    queue.send("ready", "locked", "deferred", "dead")
    queue.settle(DEFER, queue.receive(3)[2])
    assert queue.budget.left < 100
    queue.partition.discard()
    assert queue.budget.left == 100
