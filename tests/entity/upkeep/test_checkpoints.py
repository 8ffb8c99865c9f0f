"""What checkpoints cost: when one is due, how large its steps are, how much they write in all."""

import pytest

from peeklock.entity import commands as ask
from peeklock.entity.commands import COMPLETE, MAIN, RECEIVE_AND_DELETE
from peeklock.entity.message import Message
from peeklock.entity.upkeep.checkpoint import TAIL_BYTES_MIN
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, message

CHUNK_MAX = 4 << 20
WINDOW_MS = 600_000


def send_many(queue: QueueHarness, messages: list[Message]) -> None:
    queue.ask(ask.SendMany(by("sender"), list(range(len(messages))), messages))


def journal_and_checkpoints(queue: QueueHarness, rounds: int) -> tuple[int, int, int]:
    """Send and remove; steps ride with decisions, as in life. Answers bytes of the journal, of
    checkpoints, and of the largest chunk that a step was alone in."""
    journal = own = largest = 0
    for number in range(rounds):
        send_many(queue, [message("x" * 100, id=f"{number:08}-{each:028}") for each in range(500)])
        journal += len(queue.journal.chunks[-1])
        queue.receive(500, mode=RECEIVE_AND_DELETE)
        journal += len(queue.journal.chunks[-1])
        if queue.partition.checkpoint_due:
            queue.keep(queue.partition.checkpoint_step(queue.now))
            own += len(queue.journal.chunks[-1])
            largest = max(largest, len(queue.journal.chunks[-1]))
        queue.journal.trim(queue.partition.live_blocks())
        queue.journal.trimmed = []
    return journal, own, largest


def test_a_checkpoint_is_due_when_as_much_was_written_as_it_will_write() -> None:
    queue = QueueHarness()
    written = 0
    while not queue.partition.checkpoint_due:
        queue.send(*(["x" * 1_000] * 100))
        written += len(queue.journal.chunks[-1])
        queue.settle(COMPLETE, *queue.receive(100))
        written += len(queue.journal.chunks[-1])
    assert TAIL_BYTES_MIN <= written < TAIL_BYTES_MIN + 500_000
    queue.checkpoint()
    assert not queue.partition.checkpoint_due


def test_a_long_tail_of_small_messages_waits_for_two_to_each_that_lives() -> None:
    """To tell of a message costs more than its bytes say."""
    queue = QueueHarness(memory=0)
    send_many(queue, [message("x" * 300) for _ in range(20_000)])
    assert not queue.partition.checkpoint_due
    queue.receive(9_000, mode=RECEIVE_AND_DELETE)
    send_many(queue, [message("x" * 300) for _ in range(5_000)])
    assert queue.partition.checkpoint_due == (2 * queue.partition.live_count <= 25_000)


def test_large_messages_do_not_wait_for_two_to_each_that_lives() -> None:
    """What is written is bounded by what is alive in bytes as well."""
    queue = QueueHarness(memory=0)
    send_many(queue, [message("x") for _ in range(10_000)])
    for _ in range(100):
        queue.send("x" * 200_000)
        queue.receive(1, mode=RECEIVE_AND_DELETE)
    assert queue.partition.checkpoint_due


def test_what_was_replayed_counts_after_opening() -> None:
    queue = QueueHarness()
    for _ in range(4):
        queue.send(*(["x" * 250_000] * 20))
        queue.receive(20, mode=RECEIVE_AND_DELETE)
    assert queue.partition.checkpoint_due
    queue.restart()
    queue.partition.rests(sum(len(chunk) for chunk in queue.journal.chunks))
    assert queue.partition.checkpoint_due


def test_remembered_ids_are_told_in_slices_and_not_more_often_than_they_are_worth() -> None:
    """100,000 ids: checkpoints write no more than the journal, in steps of bounded bytes."""
    queue = QueueHarness(duplicate_window_ms=WINDOW_MS, memory=0)
    journal, own, largest = journal_and_checkpoints(queue, 200)
    assert own > 4 << 20
    assert own <= journal
    assert largest < 512 << 10
    queue.restart()
    assert len(queue.partition._state.seen) == 100_000


def test_session_states_are_told_in_slices() -> None:
    """300 states of 100 KB: no step above 4 MB, and each state is there afterwards."""
    queue = QueueHarness(requires_session=True)
    names = [f"s{number}" for number in range(300)]
    for name in names:
        queue.accept(name, name)
        queue.set_state(name, name.encode() * 25_000, holder=name)
    largest = steps = 0
    before = queue.journal.replay_from
    while queue.journal.replay_from == before:
        queue.keep(queue.partition.checkpoint_step(queue.now))
        largest = max(largest, len(queue.journal.chunks[-1]))
        steps += 1
        if steps == 10:
            # One that was told of and one that was not change meanwhile.
            queue.set_state("s1", b"new", holder=names[1])
            queue.set_state("s299", None, holder=names[299])
    assert steps > 80
    assert largest < 512 << 10
    queue.restart()
    for name in names[2:-1]:
        assert queue.accept(name, name) == name
        assert queue.state(name, holder=name) == name.encode() * 25_000
    assert queue.accept("s1", names[1]) == "s1"
    assert queue.state("s1", holder=names[1]) == b"new"
    assert queue.sessions(top=1_000) == sorted(names[:-1])


def test_states_are_not_told_more_often_than_they_are_worth() -> None:
    """Checkpoints write no more than the journal does, while states are set anew."""
    queue = QueueHarness(requires_session=True)
    names = [f"s{number}" for number in range(50)]
    for name in names:
        queue.accept(name, name)
    journal = own = 0
    for number in range(600):
        name = names[number % 50]
        queue.set_state(name, b"x" * 100_000, holder=name)
        journal += len(queue.journal.chunks[-1])
        if queue.partition.checkpoint_due:
            queue.keep(queue.partition.checkpoint_step(queue.now))
            own += len(queue.journal.chunks[-1])
        queue.journal.trim(queue.partition.live_blocks())
        queue.journal.trimmed = []
    assert 10_000_000 < own <= journal


def test_changes_of_messages_are_told_in_slices() -> None:
    """Properties of 20 KB on each of 400 messages that are given back."""
    queue = QueueHarness()
    queue.send(*(["x"] * 400))
    tokens = queue.receive(400)
    for at, token in enumerate(tokens):
        changes = {"p": b"x" * 20_000}
        queue.ask(
            ask.SettleMany(by("receiver"), [at], ask.Settlement(ask.ABANDON, changes), [token])
        )
    largest = 0
    before = queue.journal.replay_from
    while queue.journal.replay_from == before:
        queue.keep(queue.partition.checkpoint_step(queue.now))
        largest = max(largest, len(queue.journal.chunks[-1]))
    assert largest < 512 << 10
    queue.restart()
    assert queue.partition.live_count == 400


def test_bodies_are_relocated_in_steps_of_bounded_bytes() -> None:
    queue = QueueHarness(memory=0)
    queue.send(*(["x" * 250_000] * 8))
    send_many(queue, [message("x") for _ in range(5_000)])
    queue.ask(ask.OpenReceiver(by("r"), MAIN, RECEIVE_AND_DELETE))
    tokens = queue.receive(8)
    queue.settle(ask.DEFER, *tokens)
    queue.receive(5_000, mode=RECEIVE_AND_DELETE)
    queue.checkpoint()
    counts: list[int] = []
    while entries := queue.partition.next_to_relocate(4096, 64):
        bodies = [queue.journal.body(entry.position) for entry in entries]
        queue.keep(queue.partition.relocate(entries, bodies, queue.now))
        counts.append(len(entries))
    assert counts == [5, 3]


@pytest.mark.parametrize("seed_size", [0, 3])
def test_a_checkpoint_of_nothing_is_short(seed_size: int) -> None:
    queue = QueueHarness(duplicate_window_ms=WINDOW_MS * (seed_size > 0))
    for number in range(seed_size):
        queue.send("x", id=f"{number}")
    queue.checkpoint()
    queue.restart()
    assert queue.partition.live_count == seed_size
