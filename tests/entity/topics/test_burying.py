"""Copies that nobody can have are dead letters from the beginning: one record for each message."""

import pytest

from peeklock.entity.blueprint import Copy
from peeklock.entity.commands import Command, SendBatch, SendMany
from peeklock.entity.message import Message
from peeklock.entity.records import DeadLettered, Record
from peeklock.entity.rules.filter import SqlFilter
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.entity.stint import STINT_STEPS, Stint
from peeklock.entity.topics.copying import FILTER_FAILED, SESSION_MISSING
from peeklock.entity.topics.records import CopiesBuried, Published
from peeklock.store.codec.records import encode_chunk
from tests.entity.origins import by
from tests.entity.partition_harness import TopicHarness, message, routed

COUNT = 40


def topic_of(count: int, steps: int = 512, **properties: bool) -> TopicHarness:
    topic = TopicHarness("first", is_retold=False, stint=Stint(steps))
    for number in range(count):
        topic.add(f"s{number}", **properties)
    topic.configure()
    return topic


def reasons(topic: TopicHarness, name: str) -> list[tuple[str | None, str | None]]:
    dead = topic.peek(topic.lanes[name] | 1)
    return [(each.details.reason, each.details.description) for each in dead if each.details]


@pytest.mark.parametrize("steps", [1, 7, 512])
def test_a_batch_that_many_cannot_have_is_a_record_for_each_message(steps: int) -> None:
    """It was a record for each copy: two million of them in one decision."""
    topic = topic_of(COUNT, steps, requires_session=True)
    topic.send("a", "b", "c")
    topic.restart()
    for name in topic.lanes:
        expected = [] if name == "first" else [SESSION_MISSING] * 3
        assert [reason for reason, _ in reasons(topic, name)] == expected
    kinds = [type(each) for _, records in topic.journal.replay(0) for each in records]
    assert kinds.count(CopiesBuried) == kinds.count(Published) == 3
    assert DeadLettered not in kinds


def test_messages_that_go_the_same_way_share_what_is_written() -> None:
    sizes = []
    for count in (COUNT, 20 * COUNT):
        topic = topic_of(count, 1 << 20, requires_session=True)
        decision = topic.partition.decide([send(topic, *"abcd")], topic.now)
        buried = [each for each in decision.records if isinstance(each, CopiesBuried)]
        assert len(buried) == 4
        assert len({id(each.buried) for each in buried}) == 1
        sizes.append(len(encode_chunk(0, buried)))
    assert sizes[0] == sizes[1], "where they go to all, that is said in a few bytes"


def test_each_has_its_own_reason() -> None:
    topic = topic_of(3)
    lanes = topic.lanes
    topic.router = routed(
        Copy(lanes["first"]),
        Copy(lanes["s0"], None, "r: one"),
        Copy(lanes["s1"], None, "r: two"),
        Copy(lanes["s2"], None, "r: one"),
    )
    topic.send("a")
    for _ in range(2):
        assert topic.seen_by("first") == ["a"]
        assert reasons(topic, "s0") == reasons(topic, "s2") == [(FILTER_FAILED, "r: one")]
        assert reasons(topic, "s1") == [(FILTER_FAILED, "r: two")]
        assert topic.seen_by("s0") == []
        topic.retell()
        topic.restart()


def test_a_crash_before_all_copies_are_made_changes_nothing() -> None:
    topic = topic_of(COUNT, 3, requires_session=True)
    topic.keep(topic.partition.decide([send(topic, "a")], topic.now))
    assert topic.partition.is_unfinished
    topic.retell()
    topic.restart()
    assert sum(len(reasons(topic, name)) for name in topic.lanes) == COUNT


@pytest.mark.parametrize("count", [64, 600])
def test_a_filter_that_fails_for_many_is_asked_about_a_bounded_number_at_once(count: int) -> None:
    """It counted as one filter however many had it: a batch of 200 was one decision of 0.4 s."""
    topic = topic_of(count)
    for lane in topic.lanes.values():
        topic.rules.put(lane, RuleSet([Rule("r", SqlFilter("num / zero > 1"))]))
    failing = [Copy(lane, None, "r: by zero") for lane in topic.lanes.values()]
    asked: list[Message] = []

    def route(message: Message, now: int) -> list[Copy]:
        asked.append(message)
        return list(failing)

    topic.router = route
    commands: list[Command] = [SendBatch(by("sender"), 1, [message("m") for _ in range(40)])]
    records: list[Record] = []
    while commands or topic.partition.is_unfinished:
        before = len(asked)
        decision = topic.partition.decide(commands, topic.now)
        topic.partition.rests(topic.journal.add(decision))
        records += decision.records
        commands = topic.partition.take_leftovers()
        copies = (len(asked) - before) * count
        assert copies <= max(2 * count, 2 * STINT_STEPS), "one message more than the measure"
    assert len(asked) == 40, "none is asked about twice"
    assert len(reasons(topic, "s7")) == 40
    buried = [each.buried for each in records if isinstance(each, CopiesBuried)]
    assert len({id(each) for each in buried}) == 1


def send(topic: TopicHarness, *contents: str) -> SendMany:
    return SendMany(by("sender"), list(range(len(contents))), [message(each) for each in contents])
