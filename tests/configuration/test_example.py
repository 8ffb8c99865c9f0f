"""The example in the documents is a file that can be served."""

from pathlib import Path

from peeklock.configuration.file import load_configuration
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.rules.correlation import CorrelationFilter

EXAMPLE = Path(__file__).parents[2] / "docs" / "reference" / "Config.example.json"


def test_the_example_says_what_its_comments_say() -> None:
    (namespace,) = load_configuration(EXAMPLE).namespaces
    queues = {queue.definition.path: queue.definition for queue in namespace.queues}
    assert queues["mail"] == QueueDefinition("mail")
    assert queues["orders"].requires_session
    assert (queues["clicks"].partitions, queues["clicks"].duplicate_window_ms) == (8, 300_000)
    (events,) = namespace.topics
    rules = {s.definition.name: s.rules for s in events.subscriptions}
    assert {name: rule.name for name, (rule,) in rules.items()} == {
        "audit": "$Default",
        "invoices": "paid-orders",
        "large": "large-orders",
        "alarms": "alarm",
        "quiet": "$Default",
    }
    assert rules["invoices"][0].filter == CorrelationFilter(
        label="order-paid", properties={"country": "CH", "version": 2}
    )
    assert rules["large"][0].action is not None


def test_what_the_example_forwards_to_is_in_it() -> None:
    (namespace,) = load_configuration(EXAMPLE).namespaces
    queues = [queue.definition for queue in namespace.queues]
    subscriptions = [s.definition for topic in namespace.topics for s in topic.subscriptions]
    targets = {q.forward_to for q in queues} | {q.forward_dead_letters_to for q in queues}
    targets |= {s.forward_to for s in subscriptions}
    targets |= {s.forward_dead_letters_to for s in subscriptions}
    targets.discard("")
    assert targets == {"problems", "urgent"}
    assert targets <= {queue.path for queue in queues}
