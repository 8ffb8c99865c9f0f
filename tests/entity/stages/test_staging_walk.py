"""Whatever writers, crashes and checkpoints do, in whatever order: each batch is seen once, whole,
and in its order (R-D1)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from peeklock.entity import commands as ask
from peeklock.entity.stages.partition_stages import STAGE_GRACE_MS, STAGE_TIMEOUT_MS
from tests.entity.partition_harness import QueueHarness, TopicHarness
from tests.entity.stage_harness import StageHarness

NAMES = ("a", "b", "c")
WRITERS = ("one", "two")
STEP = 2


class Stages(RuleBasedStateMachine):
    """A queue, or a topic with one subscription, beside what it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = self.made()
        self.seen: list[str] = []
        self.staged: dict[str, list[str]] = {}
        self.published = dict.fromkeys(WRITERS, -1)
        self.count = 0
        self.take_small_steps()

    def made(self) -> QueueHarness:
        return QueueHarness(memory=3)

    def visible(self) -> list[str]:
        return self.queue.contents(self.queue.peek())

    def take_small_steps(self) -> None:
        self.queue.partition._staging.count_max = STEP

    def writer(self, name: str = "one") -> StageHarness:
        return StageHarness(self.queue, name)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def stage(self, name: str, count: int) -> None:
        contents = [f"{self.count + step}" for step in range(count)]
        self.count += count
        self.writer().stage(name, *contents)
        self.staged.setdefault(name, []).extend(contents)

    @rule(
        name=st.sampled_from(WRITERS),
        stages=st.lists(st.sampled_from(NAMES), max_size=3),
        is_next=st.booleans(),
        crash_after=st.none() | st.integers(0, 3),
        is_other=st.booleans(),
    )
    def publish(
        self, name: str, stages: list[str], is_next: bool, crash_after: int | None, is_other: bool
    ) -> None:
        writer = self.writer(name)
        batch = self.published[name] + (1 if is_next else 0)
        if batch < 0:
            return
        named = list(dict.fromkeys(stages))
        contents = [each for stage in named for each in self.staged.pop(stage, [])]
        if not is_next:
            assert writer.publish(batch, *stages) == 0
            return
        done = 0
        if crash_after is not None:
            done = self.publish_in_part(writer, batch, stages, crash_after)
        again = stages
        if is_other and crash_after and done and done < len(contents):
            again = ["done again"]
            writer.stage("done again", *contents)
        assert writer.publish(batch, *again) == len(contents) - done
        self.seen += contents
        self.published[name] = batch

    def publish_in_part(
        self, writer: StageHarness, batch: int, stages: list[str], steps: int
    ) -> int:
        """Some steps of a publish, and then a crash; answers what was published."""
        before = len(self.visible())
        command: ask.Command = writer.publishing(batch, *stages)
        for _ in range(steps):
            writer.begin(command)
            leftovers = self.queue.partition.take_leftovers()
            if not leftovers:
                break
            (command,) = leftovers
        self.restart()
        return len(self.visible()) - before

    @rule(names=st.lists(st.sampled_from(NAMES), max_size=2))
    def drop(self, names: list[str]) -> None:
        gone = [each for name in set(names) for each in self.staged.pop(name, [])]
        assert self.writer().drop(*names) == len(gone)

    @rule()
    def restart(self) -> None:
        self.queue.restart()
        self.take_small_steps()

    @rule(steps=st.integers(1, 3))
    def checkpoint_step(self, steps: int) -> None:
        for _ in range(steps):
            self.queue.keep(self.queue.partition.checkpoint_step(self.queue.now))

    @rule()
    def checkpoint(self) -> None:
        self.queue.checkpoint()

    @precondition(lambda self: self.staged)
    @rule()
    def get_old(self) -> None:
        self.queue.tick()
        self.queue.tick(STAGE_TIMEOUT_MS + STAGE_GRACE_MS)
        self.staged = {}

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        assert self.visible() == self.seen
        expected = {name: len(contents) for name, contents in self.staged.items()}
        assert self.writer().staged() == expected
        self.queue.partition.check()

    def teardown(self) -> None:
        self.queue.retell()


class StagesOfATopic(Stages):
    """The same, where bodies must be brought and are written again."""

    def made(self) -> QueueHarness:
        return TopicHarness("only", memory=3, is_retold=False)

    def visible(self) -> list[str]:
        assert isinstance(self.queue, TopicHarness)
        return self.queue.seen_by("only")


TestStages = Stages.TestCase
TestStages.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestStagesOfATopic = StagesOfATopic.TestCase
TestStagesOfATopic.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
