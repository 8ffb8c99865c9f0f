"""What a test holds in its hands: one namespace, its connection string, and its controls."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from peeklock.durations import format_duration
from peeklock.testbed.controls import Controls
from peeklock.testbed.made_namespaces import MadeNamespace
from peeklock.testing.broker_faults import BrokerFaults

# Does something on the broker's loop, and waits for it.
Call: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
Rules: TypeAlias = Sequence[Mapping[str, Any]]


@final
class BrokerClock:
    """The clock of the broker: it goes on by itself, and further when a test says so.

    Locks, lives of messages, schedules, sessions, duplicate windows and idle entities follow it.
    """

    def __init__(self, call: Call, controls: Controls) -> None:
        self._call = call
        self._controls = controls

    def now(self) -> datetime:
        """Tell the instant at the broker."""
        return _instant(self._controls.clock.now())

    def advance(
        self, by: timedelta | float, *, tokens: bool = False, connections: bool = False
    ) -> datetime:
        """Let time pass at the broker, in seconds or as a duration; returns when all that fell due
        is done. Tokens and silent connections go on by real time unless that is asked for too."""
        duration_ms = round(_seconds(by) * 1000)
        advance = self._controls.advance(duration_ms, tokens=tokens, connections=connections)
        return _instant(self._call(advance))


@final
class ServiceBus:
    """A namespace of its own: entities, messages and keys are nobody else's."""

    def __init__(
        self, call: Call, controls: Controls, made: MadeNamespace, authority: Path
    ) -> None:
        self._call: Final = call
        self._controls: Final = controls
        self.name: Final = made.name
        self.connection_string: Final = made.connection_string(controls.place)
        # Trusted for TLS; the administration client of Python takes it as `connection_verify`.
        self.authority: Final = str(authority)
        self.clock: Final = BrokerClock(call, controls)
        self.faults: Final = BrokerFaults(call, controls, made.name)

    def configure(self, document: Mapping[str, Any]) -> None:
        """Create or change entities, described as `Config.json` describes those of a namespace:
        `{"Queues": [...], "Topics": [...]}`."""
        self._call(self._controls.namespaces.configure(self.name, document))

    def create_queue(self, name: str, **properties: Any) -> None:
        """Create a queue, or change it; properties have the names that the administration client
        gives them: `create_queue("orders", lock_duration=timedelta(seconds=30))`."""
        self.configure({"Queues": [_described(name, properties)]})

    def create_topic(self, name: str, **properties: Any) -> None:
        """Create a topic, or change it."""
        self.configure({"Topics": [_described(name, properties)]})

    def create_subscription(
        self, topic: str, name: str, rules: Rules | None = None, **properties: Any
    ) -> None:
        """Create a subscription of a topic that is there, with rules as in `Config.json`; without
        any it takes every message."""
        described = _described(name, properties)
        if rules is not None:
            described["Rules"] = list(rules)
        self._call(self._controls.namespaces.subscribe(self.name, topic, described))


def _described(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Write properties as the file has them: their words without lines between, capitalized."""
    return {
        "Name": name,
        "Properties": {
            "".join(part.capitalize() for part in word.split("_")): _value(value)
            for word, value in properties.items()
        },
    }


def _value(value: Any) -> Any:
    if isinstance(value, timedelta):
        return format_duration(round(value.total_seconds() * 1000))
    return value


def _seconds(by: timedelta | float) -> float:
    return by.total_seconds() if isinstance(by, timedelta) else by


def _instant(instant: int) -> datetime:
    return datetime.fromtimestamp(instant / 1000, tz=UTC)
