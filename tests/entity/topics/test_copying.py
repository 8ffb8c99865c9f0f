"""A publish is one record; its copies come into their lanes in stints, in order, and what needs
all of them waits."""

from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.blueprint import Copy
from peeklock.entity.commands import MAIN
from peeklock.entity.message import Message
from peeklock.entity.replies import Reply
from peeklock.entity.rules.filter import FalseFilter
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.entity.stint import Stint
from peeklock.entity.topics.copying import COPIES_MAX
from peeklock.entity.topics.records import LaneDropped, Published
from tests.entity.origins import by
from tests.entity.partition_harness import TopicHarness, message, routed, sequences
from tests.entity.stage_harness import StageHarness

NAMES = ("one", "two", "three", "four")


def topic_of(steps_max: int, *, has_rules: bool = False) -> TopicHarness:
    topic = TopicHarness(*NAMES, is_retold=True, stint=Stint(steps_max))
    if not has_rules:
        topic.rules.remove(0)
    return topic


def batch(*contents: str, tag: int = 1) -> ask.SendBatch:
    return ask.SendBatch(by("sender"), tag, [message(content) for content in contents])


def decide(topic: TopicHarness, *commands: ask.Command) -> list[Reply]:
    """One decision, and no more."""
    return topic.keep(topic.partition.decide(commands, topic.now))


def made(topic: TopicHarness) -> list[int]:
    """How many copies are in each lane."""
    lanes = topic.partition._state.lanes
    return [lanes[lane].ready_count if lane in lanes else 0 for lane in topic.lanes.values()]


def test_a_batch_is_accepted_and_rests_before_all_its_copies_are_there() -> None:
    topic = topic_of(6)
    replies = decide(topic, batch("a", "b", "c"))
    assert replies == [told.SendsAccepted(by("sender"), [1])]
    assert [type(record) for record in topic.records] == [Published] * 3
    assert made(topic) == [2, 2, 1, 1]
    assert topic.partition.live_count == 12, "what it takes is counted at once"
    topic.retell()
    decide(topic)
    assert made(topic) == [3, 3, 3, 3]
    assert not topic.partition.is_unfinished
    assert topic.seen_by("four") == ["a", "b", "c"]


def test_receivers_get_copies_as_they_come_and_in_order() -> None:
    topic = topic_of(3)
    topic.open("reader", lane=topic.lanes["four"], credit=9)
    got: list[int] = []
    for contents in (("a", "b"), ("c",)):
        decide(topic, batch(*contents))
        while topic.partition.is_unfinished or topic.replies:
            for reply in topic.replies:
                if isinstance(reply, told.Delivered):
                    got += sequences(reply.deliveries)
            decide(topic)
    assert got == [4, 8, 12]


def test_an_opening_makes_all_copies_that_were_left() -> None:
    topic = topic_of(2)
    decide(topic, batch("a", "b"))
    topic.restart()
    assert made(topic) == [2, 2, 2, 2]
    assert not topic.partition.is_unfinished


def test_a_change_of_the_lanes_waits_for_the_copies_and_later_messages_wait_for_it() -> None:
    topic = topic_of(3)
    decide(topic, batch("a", "b"))
    topic.is_retold = False  # what is described is ahead of the partition for a while
    del topic.subscriptions["four"]
    change = ask.Configure(topic.described())
    later = batch("c", tag=2)
    assert decide(topic, change, later) == []
    assert LaneDropped not in [type(record) for record in topic.records]
    assert topic.partition.take_leftovers() == [change, later]
    topic.router = routed(Copy(4))
    topic.ask(change, later)
    assert topic.seen_by("one") == ["a", "b", "c"]
    assert topic.seen_by("two") == ["a", "b"]
    assert topic.lanes["four"] not in topic.partition._state.lanes


def test_other_commands_do_not_wait() -> None:
    topic = topic_of(3)
    decide(topic, batch("a", "b"))
    (reply,) = decide(topic, ask.Count(by("looker"), 1, topic.lanes["one"]))
    assert isinstance(reply, told.Counted)
    assert reply.active == 2
    assert topic.partition.take_leftovers() == []


def test_messages_wait_while_very_many_copies_are_to_be_made() -> None:
    topic = TopicHarness(*NAMES, is_retold=False, stint=Stint(1))
    count = COPIES_MAX // 4 + 1
    topic.rules.remove(0)
    many = ask.SendMany(by("sender"), list(range(count)), [message("m")] * count)
    decide(topic, many)
    assert topic.partition._copying.is_full
    later = batch("later")
    assert decide(topic, later) == []
    assert topic.partition.take_leftovers() == [later]


def test_a_checkpoint_begins_when_all_copies_are_there() -> None:
    topic = topic_of(4)
    decide(topic, batch("a", "b"))
    assert topic.partition.checkpoint_step(topic.now).records == []
    topic.ask()
    topic.checkpoint()
    topic.retell()
    decide(topic, batch("c", "d"))
    topic.keep(topic.partition.checkpoint_step(topic.now))  # it waits for them
    assert not topic.partition._checkpoints.is_under_way
    topic.ask(batch("e"))
    topic.keep(topic.partition.checkpoint_step(topic.now))
    decide(topic, batch("f", "g"))
    assert topic.partition.is_unfinished
    topic.checkpoint()  # it has begun before them, and goes on
    topic.retell()
    topic.ask()
    topic.retell()


def test_rules_are_asked_in_stints_before_anything_changes() -> None:
    topic = topic_of(2, has_rules=True)
    asked: list[bytes] = []

    def route(message: Message, now: int) -> list[Copy]:
        asked.append(message.content)
        return [Copy(4)]

    topic.router = route
    command = batch("a", "b", "c", "d", "e")
    assert decide(topic, command) == []
    assert topic.records == []
    assert asked == [b"a", b"b"]
    assert topic.partition.take_leftovers() == [command]
    decide(topic, command)
    assert asked == [b"a", b"b", b"c", b"d"]
    # The rules change: what they said so far is void.
    topic.rules.put(0, RuleSet([Rule("other", FalseFilter())]))
    topic.partition.take_leftovers()
    topic.ask(command)
    assert asked[4:] == [b"a", b"b", b"c", b"d", b"e"]
    assert topic.seen_by("one") == ["a", "b", "c", "d", "e"]


def test_a_command_that_is_given_up_leaves_nothing_behind() -> None:
    topic = topic_of(2, has_rules=True)
    decide(topic, batch("a", "b", "c"))
    topic.partition.take_leftovers()  # and nobody asks again
    topic.ask(batch("x"))
    assert topic.seen_by("one") == ["x"]


def rounds(topic: TopicHarness, *commands: ask.Command) -> list[Reply]:
    """Go on as a worker does, but not for ever."""
    replies: list[Reply] = []
    for _ in range(40):
        replies += decide(topic, *commands)
        commands = tuple(topic.partition.take_leftovers())
        if not commands and not topic.partition.is_unfinished:
            return replies
    raise AssertionError("it comes to no end")


def test_a_send_waits_while_the_rules_are_asked_about_a_batch_that_is_published() -> None:
    topic = topic_of(2, has_rules=True)
    writer = StageHarness(topic)
    writer.stage("s", *"abcde")
    replies = rounds(topic, writer.publishing(0, "s"), batch(*"xyz"))
    assert [type(reply) for reply in replies] == [told.BatchPublished, told.SendsAccepted]
    assert topic.seen_by("one") == list("abcdexyz")


def test_writers_who_publish_at_the_same_time_come_to_an_end() -> None:
    topic = topic_of(2, has_rules=True)
    first, second = StageHarness(topic, "first"), StageHarness(topic, "second")
    first.stage("s", *"abcde")
    second.stage("t", *"vwxyz")
    topic.partition._staging.count_max = 3
    replies = rounds(topic, first.publishing(0, "s"), second.publishing(0, "t"))
    assert replies == [
        told.BatchPublished(first, 7, 5, ["s"]),
        told.BatchPublished(second, 7, 5, ["t"]),
    ]
    assert topic.seen_by("one") == list("abcvwxdeyz"), "they take turns"


def test_a_send_comes_between_the_steps_of_a_batch() -> None:
    topic = topic_of(2, has_rules=True)
    writer = StageHarness(topic)
    writer.stage("s", *"abcdef")
    topic.partition._staging.count_max = 3
    rounds(topic, writer.publishing(0, "s"), batch(*"xyz"))
    assert topic.seen_by("one") == list("abcxyzdef")


def test_sent_messages_and_those_that_fall_due_take_turns() -> None:
    topic = TopicHarness(*NAMES, is_retold=False, stint=Stint(4_096))
    topic.rules.remove(0)
    decide(topic, ask.Schedule(by("sender"), 1, [message("due", due=topic.now + 1)]))
    topic.now += 1
    tags = list(range(COPIES_MAX // 4 + 2_048))
    sends = [ask.SendMany(by("sender"), tags, [message("sent")] * len(tags)) for _ in range(3)]
    commands: list[ask.Command] = [*sends, ask.Tick()]
    scheduled = topic.partition._state.lane(MAIN).scheduled
    while scheduled:
        topic.bring_bodies()
        decide(topic, *commands)
        commands = topic.partition.take_leftovers()
    assert sends[1] in commands, "it has waited for what was there before it, and for no more"


def test_a_transaction_is_prepared_as_a_whole() -> None:
    topic = topic_of(2, has_rules=True)
    works: list[ask.TransactionWork] = [
        ask.SendMany(by("s"), [each], [message(str(each))]) for each in range(5)
    ]
    commit = ask.Commit(by("t"), 1, works)
    assert decide(topic, commit) == []
    assert topic.records == []
    assert topic.partition.take_leftovers() == [commit]
    assert told.Numbered(by("t"), 1, []) in topic.ask(commit)
    assert topic.seen_by("three") == ["0", "1", "2", "3", "4"]


def test_messages_of_a_run_share_their_address() -> None:
    topic = topic_of(100)
    decide(topic, batch("a", "b"))
    first, second = topic.records
    assert isinstance(first, Published)
    assert isinstance(second, Published)
    assert first.lanes is second.lanes, "a big topic's lanes are packed once for a batch"
    assert first.expirations is second.expirations
