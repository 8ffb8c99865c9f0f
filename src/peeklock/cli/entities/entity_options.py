"""The properties of entities as options: one table, from which all commands get them."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Final, Literal, final

import typer

from peeklock.cli import values
from peeklock.client.administration import atom

_DURATION: Final = "duration"
_WHOLE: Final = "whole"
_FLAG: Final = "flag"
_TEXT: Final = "text"
_STATUS: Final = "status"


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """One property: its name in the service's words, its option, and of which entities it is."""

    name: str
    option: str
    form: str
    help: str
    kinds: tuple[str, ...]
    is_fixed: bool = False

    def parameter(self) -> inspect.Parameter:
        """Return it as a parameter of a command; one that is not given is None."""
        names = [self.option]
        if self.form == _FLAG:
            names = [f"{self.option}/--no-{self.option.removeprefix('--')}"]
        kind: Any = {
            _WHOLE: int | None,
            _FLAG: bool | None,
            _STATUS: Literal["Active", "Disabled", "SendDisabled", "ReceiveDisabled"] | None,
        }.get(self.form, str | None)
        option = typer.Option(
            *names, help=self.help, show_default=False, rich_help_panel="Properties"
        )
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind, option],
        )

    def read(self, given: Any) -> Any:
        """Turn what was given into a value of the description."""
        return values.duration(given, self.option) if self.form == _DURATION else given


_ALL: Final = (atom.QUEUE, atom.TOPIC, atom.SUBSCRIPTION)
_HOMES: Final = (atom.QUEUE, atom.TOPIC)
_SOURCES: Final = (atom.QUEUE, atom.SUBSCRIPTION)

CHOICES: Final = (
    Choice("LockDuration", "--lock-duration", _DURATION, "How long a message is locked.", _SOURCES),
    Choice(
        "MaxDeliveryCount",
        "--max-delivery-count",
        _WHOLE,
        "After how many deliveries a message is dead-lettered.",
        _SOURCES,
    ),
    Choice(
        "DefaultMessageTimeToLive",
        "--time-to-live",
        _DURATION,
        "How long messages live that do not say it themselves.",
        _ALL,
    ),
    Choice(
        "DeadLetteringOnMessageExpiration",
        "--dead-letter-expired",
        _FLAG,
        "Dead-letter messages that expire.",
        _SOURCES,
    ),
    Choice(
        "DeadLetteringOnFilterEvaluationExceptions",
        "--dead-letter-failed-filters",
        _FLAG,
        "Dead-letter messages for which a rule fails.",
        (atom.SUBSCRIPTION,),
    ),
    Choice(
        "RequiresSession", "--sessions", _FLAG, "Messages are in sessions.", _SOURCES, is_fixed=True
    ),
    Choice(
        "RequiresDuplicateDetection",
        "--duplicate-detection",
        _FLAG,
        "Drop messages whose id was seen within the window.",
        _HOMES,
        is_fixed=True,
    ),
    Choice(
        "DuplicateDetectionHistoryTimeWindow",
        "--duplicate-window",
        _DURATION,
        "How long message ids are remembered.",
        _HOMES,
    ),
    Choice("ForwardTo", "--forward-to", _TEXT, "Queue or topic that gets all messages.", _SOURCES),
    Choice(
        "ForwardDeadLetteredMessagesTo",
        "--forward-dead-letters-to",
        _TEXT,
        "Queue or topic that gets the dead letters.",
        _SOURCES,
    ),
    Choice(
        "EnablePartitioning",
        "--partitioned",
        _FLAG,
        "Spread the entity over several partitions.",
        _HOMES,
        is_fixed=True,
    ),
    Choice(
        "MaxSizeInMegabytes",
        "--max-size-mb",
        _WHOLE,
        "Quota of each partition in megabytes, a multiple of 1024.",
        _HOMES,
    ),
    Choice(
        "MaxMessageSizeInKilobytes",
        "--max-message-size-kb",
        _WHOLE,
        "The largest message, in kilobytes.",
        _HOMES,
    ),
    Choice(
        "AutoDeleteOnIdle",
        "--auto-delete-on-idle",
        _DURATION,
        "After which idleness the entity goes.",
        _ALL,
    ),
    Choice(
        "EnableBatchedOperations",
        "--batched-operations",
        _FLAG,
        "Let writes wait briefly for company.",
        _ALL,
    ),
    Choice(
        "FilteringMessagesBeforePublishing",
        "--filter-before-publishing",
        _FLAG,
        "Refuse messages that no subscription would take.",
        (atom.TOPIC,),
    ),
    Choice(
        "UnlockOnDisconnect",
        "--unlock-on-disconnect",
        _FLAG,
        "A broken connection gives its messages back at once.",
        _SOURCES,
    ),
    Choice("Status", "--status", _STATUS, "What may be done with the entity.", _ALL),
    Choice("UserMetadata", "--metadata", _TEXT, "A text of your own.", _ALL),
)


def choosing(
    kind: str, *, for_update: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the chosen properties of a kind of entity as `chosen`, a dictionary."""
    choices = {
        choice.name: choice
        for choice in CHOICES
        if kind in choice.kinds and not (for_update and choice.is_fixed)
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def wrapped(*arguments: Any, **options: Any) -> None:
            given = {name: options.pop(name) for name in choices}
            chosen = {
                name: choices[name].read(value)
                for name, value in given.items()
                if value is not None
            }
            command(*arguments, chosen=chosen, **options)

        parameters = inspect.signature(command, eval_str=True).parameters.values()
        own = [parameter for parameter in parameters if parameter.name != "chosen"]
        wrapped.__signature__ = _signature(own, choices.values())  # type: ignore[attr-defined]  # what Typer reads
        return wrapped

    return decorate


def _signature(own: list[inspect.Parameter], choices: Iterable[Choice]) -> inspect.Signature:
    return inspect.Signature([*own, *(choice.parameter() for choice in choices)])
