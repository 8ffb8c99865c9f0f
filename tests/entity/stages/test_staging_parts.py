"""Very many stages, and very many writers: no decision looks at all of them."""

from itertools import pairwise

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.stages.partition_stages import STAGE_TIMEOUT_MS
from peeklock.entity.stages.staging import NAMES
from peeklock.entity.stint import Stint
from tests.entity.partition_harness import QueueHarness
from tests.entity.stage_harness import StageHarness


def test_very_many_stages_that_nobody_comes_back_to_are_dropped_in_parts() -> None:
    """They were one decision, and one step of the loop."""
    queue = QueueHarness()
    writer = StageHarness(queue)
    queue.partition._state.stint = Stint(4)
    queue.tick()
    for number in range(21):
        writer.stage(f"s/{number}", "x")
    queue.now += STAGE_TIMEOUT_MS
    left: list[int] = []
    commands: list[ask.Command] = [ask.Tick()]
    while commands:
        queue.keep(queue.partition.decide(commands, queue.now))
        left.append(len(writer.staged()))
        commands = queue.partition.take_leftovers()
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise([21, *left])) <= 4
    assert queue.partition.next_deadline() == 0


def test_what_writers_have_published_is_found_in_parts() -> None:
    """All names of all writers were looked at in one decision."""
    queue = QueueHarness(partitions=2)
    writer = StageHarness(queue)
    names = [f"{number % 2}/{number}" for number in range(6 * NAMES)]
    for number, name in enumerate(names):
        writer.stage(name, "x")
        writer.ask_on(ask.PublishStages(writer, 7, f"writer {number}", 1, [name], 0, False))
    queue.partition._state.stint = Stint(2)
    for stages, prefix in (([], "1/"), ([*names[1::2], "other"], None)):
        command = ask.FindPublished(writer, 9, stages, prefix)
        replies = writer.begin(command)
        parts = 1
        while not replies:
            (leftover,) = queue.partition.take_leftovers()
            assert leftover is command
            replies = writer.begin(leftover)
            parts += 1
        assert parts >= 6
        assert replies == [told.Named(writer, 9, sorted(names[1::2]))]
        assert queue.partition.take_leftovers() == []
