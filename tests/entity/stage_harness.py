"""A writer at hand: short words for what can be asked about stages."""

from typing import Any

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.message import Message
from peeklock.entity.replies import Reply
from tests.entity.partition_harness import QueueHarness, message


class StageHarness:
    """One writer of a queue or topic at hand. It asks on like the partition's owner does: what a
    decision leaves over is asked again, and bodies are brought before a topic needs them."""

    def __init__(self, queue: QueueHarness, name: str = "writer") -> None:
        self.queue = queue
        self.name = name

    def replied(self, reply: Reply) -> None:
        raise AssertionError(f"a partition calls nobody, but here is {reply!r}")

    def flush(self) -> None:
        raise AssertionError("a partition calls nobody")

    def stage(self, stage: str, *contents: str, **facts: Any) -> None:
        """Stage messages; all are taken."""
        messages = [message(content, **facts) for content in contents]
        self.stage_messages(stage, messages)

    def stage_messages(self, stage: str, messages: list[Message]) -> None:
        tags = [self.queue.tag() for _ in messages]
        replies = self.queue.ask(ask.Stage(self, tags, messages, stage))
        assert replies == [told.SendsAccepted(self, tags)]

    def why_not_staged(self, stage: str, *messages: Message, is_whole: bool = False) -> list[str]:
        """Try to stage messages; answers for each whether it was taken or why not."""
        tags = [self.queue.tag() for _ in messages]
        if is_whole:
            tags = tags[:1]
        fates: dict[int, str] = {}
        for reply in self.queue.ask(ask.Stage(self, tags, list(messages), stage, is_whole)):
            if isinstance(reply, told.Refused):
                fates |= dict.fromkeys(reply.tags, reply.refusal.kind)
            elif isinstance(reply, told.SendsAccepted):
                fates |= dict.fromkeys(reply.tags, "taken")
        return [fates[tag] for tag in tags]

    def publish(self, batch: int, *stages: str) -> int:
        """Publish a batch; answers how many messages were published now."""
        (reply,) = [each for each in self.ask_on(self.publishing(batch, *stages)) if mine(each)]
        assert isinstance(reply, told.BatchPublished), reply
        return reply.count

    def publishing(self, batch: int, *stages: str) -> ask.PublishStages:
        return ask.PublishStages(self, 7, self.name, batch, list(stages))

    def ask_on(self, command: ask.Command) -> list[Reply]:
        """Ask, and go on with what is left until nothing is; answers all replies."""
        replies = self.begin(command)
        while True:
            leftovers = self.queue.partition.take_leftovers()
            if not leftovers:
                return replies
            for leftover in leftovers:
                replies += self.begin(leftover)

    def begin(self, command: ask.Command) -> list[Reply]:
        """Ask once."""
        if isinstance(command, ask.PublishStages):
            partition = self.queue.partition
            entries = partition.bodies_to_publish(command)
            bodies = [self.queue.journal.body(entry.position) for entry in entries]
            partition.bring_bodies(entries, bodies)
        return self.queue.ask(command)

    def drop(self, *stages: str, prefix: str | None = None, keep: list[str] | None = None) -> int:
        """Drop stages; answers how many messages went with them."""
        command = ask.DropStages(self, 7, list(stages), prefix, keep or [])
        (reply,) = self.ask_on(command)
        assert isinstance(reply, told.Numbered)
        return reply.numbers[0]

    def staged(self) -> dict[str, int]:
        """How many messages rest in which stage."""
        lines = self.queue.partition._state.stages.lines
        return {name: len(line.entries) for name, line in lines.items()}

    def take_steps_of(self, count: int) -> None:
        """Let a step be this small."""
        self.queue.partition._staging.count_max = count

    def __repr__(self) -> str:
        return f"<writer {self.name}>"


def mine(reply: Reply) -> bool:
    """Whether a reply is for a writer at hand."""
    return isinstance(reply.origin, StageHarness)
