"""Options as Spark hands them over, made into values that are right, or into an error that helps.

Spark lower-cases the names and makes every value a text. Nothing of a secret is ever shown.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final, final

from peeklock.client.connections.connection_string import connection_parts
from peeklock.spark.option_table import (
    CHOICE,
    DURATION,
    FLAG,
    INSTANT,
    NUMBER,
    OPTIONS,
    READ,
    SIZE,
    Option,
)

CLAIM: Final = "claim"
PEEK: Final = "peek"
JOURNAL: Final = "journal"
RECEIVE_AND_DELETE: Final = "receiveAndDelete"
JOURNAL_ROWS_MAX: Final = 1_000_000
ENVIRONMENT_VARIABLE: Final = "SERVICEBUS_CONNECTION_STRING"

SUB_QUEUES: Final = {
    "": "",
    "deadLetter": "/$DeadLetterQueue",
    "transferDeadLetter": "/$Transfer/$DeadLetterQueue",
}
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
_UNITS_BYTES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_AMOUNT: Final = re.compile(r"(\d+)\s*([a-z]*)")
# What Spark itself adds to the options of a source or sink.
_SPARKS_OWN: Final = frozenset(
    ("path", "checkpointlocation", "queryname", "querytimeout", "outputmode")
)


class OptionProblem(ValueError):
    """An option that is missing, unknown or wrong; the text is for the user."""


@final
@dataclass(frozen=True, slots=True)
class Access:
    """How to come to the namespace; goes to the executors, and shows nothing of its secret."""

    connection_string: str = field(repr=False)
    transport: str = "amqp"
    ca_file: str = ""
    http_port: int = 0
    timeout_ms: int = 60_000
    retry_deadline_ms: int = 300_000

    @property
    def endpoint(self) -> str:
        """The part of the connection string that everybody may see."""
        return connection_parts(self.connection_string).get("endpoint", "")


@final
@dataclass(frozen=True, slots=True)
class Span:
    """Where reading begins and ends where it changes nothing; -1 where nothing was said."""

    is_latest: bool = False
    first_number: int = -1
    last_number: int = -1
    from_instant: int = -1
    until_instant: int = -1


@final
@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What one reader was told, checked and complete."""

    access: Access
    # The path to ask for messages, with its sub queue; the journal is the whole entity's.
    entity: str
    mode: str
    consumer_id: str
    ledger: str
    is_manual: bool
    include_body: bool
    bad_records: str
    fails_on_loss: bool
    rows_max: int
    bytes_max: int
    sessions_max: int
    partitions_min: int
    partition_bytes: int
    wait_ms: int
    prefetch: int
    claim_timeout_ms: int
    batch_attempts_max: int
    span: Span


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read the options of a reader, or say what is wrong with them."""
    given = Given(options, READ)
    mode = given.text("mode") or (CLAIM if streaming else PEEK)
    if not streaming and mode in (CLAIM, RECEIVE_AND_DELETE):
        raise OptionProblem(
            f"mode {mode} is for streams, because a batch read has no commit: use "
            "readStream with trigger(availableNow=True), or mode peek"
        )
    access = access_of(given)
    entity = _entity(given, access, mode)
    if given.text("badRecords") == "deadletter" and mode != CLAIM:
        raise OptionProblem("badRecords=deadletter needs mode claim: only who claims may settle")
    if given.text("settlement") == "manual" and mode != CLAIM:
        raise OptionProblem("settlement=manual needs mode claim")
    body = given.text("includeBody")
    return SourceOptions(
        access=access,
        entity=entity,
        mode=mode,
        consumer_id=consumer_of(given, entity),
        ledger=given.text("ledger"),
        is_manual=given.text("settlement") == "manual",
        include_body=given.flag("includeBody") if body else mode != JOURNAL,
        bad_records=given.text("badRecords"),
        fails_on_loss=given.flag("failOnDataLoss"),
        rows_max=_rows_max(given, mode),
        bytes_max=given.number("maxBytesPerTrigger"),
        sessions_max=given.number("maxSessionsPerTrigger"),
        partitions_min=given.number("minPartitions"),
        partition_bytes=given.number("bytesPerPartition"),
        wait_ms=given.number("maxWait"),
        prefetch=given.number("prefetch"),
        claim_timeout_ms=given.number("claimTimeout"),
        batch_attempts_max=given.number("maxBatchAttempts"),
        span=_span(given, mode, streaming=streaming),
    )


@final
class Given:
    """The options that were given, by the names of the table; the others have their defaults."""

    def __init__(
        self, options: Mapping[str, str], use: str, table: tuple[Option, ...] = OPTIONS
    ) -> None:
        usable = [option for option in table if use in option.use]
        self._options = {option.name: option for option in usable}
        names = {
            name.lower(): option for option in usable for name in (option.name, *option.aliases)
        }
        self.path = ""
        self._texts: dict[str, str] = {}
        for key, text in options.items():
            lower = key.lower()
            option = names.get(lower)
            if lower == "path":
                self.path = text.strip()
            elif option is not None:
                self._take(option, key, text)
            elif lower not in _SPARKS_OWN and not lower.startswith("spark."):
                raise _unknown(key, usable)

    def _take(self, option: Option, key: str, text: str) -> None:
        if option.name in self._texts:
            raise OptionProblem(f"option '{option.name}' is given twice, once as '{key}'")
        self._texts[option.name] = _checked(option, text.strip())

    def text(self, name: str) -> str:
        """Return what was said, or the default."""
        return self._texts.get(name, self._options[name].default)

    def has(self, name: str) -> bool:
        """Return whether it was said at all."""
        return name in self._texts

    def flag(self, name: str) -> bool:
        """Return a yes or a no."""
        return self.text(name).lower() == "true"

    def number(self, name: str, missing: int = -1) -> int:
        """Return a number, bytes, milliseconds or an instant; `missing` where there is none."""
        text = self.text(name)
        return _amount(self._options[name], text) if text else missing


def access_of(given: Given) -> Access:
    """Find the connection string: said, kept elsewhere, or in the environment."""
    text = given.text("connectionString")
    credential = given.text("credential")
    if text and credential:
        raise OptionProblem("give either connectionString or credential, not both")
    if credential:
        text = _kept(credential)
    text = text or os.environ.get(ENVIRONMENT_VARIABLE, "")
    if not text:
        raise OptionProblem(
            "no connection string: give option connectionString or credential, or set "
            f"{ENVIRONMENT_VARIABLE} before Spark is started (its Python "
            "processes have the environment of that moment)"
        )
    try:
        parts = connection_parts(text)
    except ValueError as error:
        raise OptionProblem(str(error)) from error
    if "endpoint" not in parts:
        namespace = given.text("namespace")
        if not namespace:
            raise OptionProblem(
                "the connection string has no Endpoint, and option namespace is not given"
            )
        text = f"Endpoint=sb://{namespace};{text}"
    if not {"sharedaccesskey", "sharedaccesssignature"} & parts.keys():
        raise OptionProblem(
            "the connection string has neither SharedAccessKey nor SharedAccessSignature"
        )
    return Access(
        connection_string=text,
        transport=given.text("transport"),
        ca_file=given.text("caFile"),
        http_port=given.number("httpPort"),
        timeout_ms=given.number("receiverTimeout"),
        retry_deadline_ms=given.number("retryDeadline"),
    )


def _kept(credential: str) -> str:
    kind, _, place = credential.partition(":")
    if kind == "env" and place:
        text = os.environ.get(place, "")
        if not text:
            raise OptionProblem(
                f"credential: the environment variable {place} is not set on the driver"
            )
        return text
    if kind == "file" and place:
        try:
            return Path(place).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise OptionProblem(
                f"credential: '{place}' cannot be read: {error.strerror}"
            ) from error
    raise OptionProblem("credential is env:NAME or file:PATH")


def _entity(given: Given, access: Access, mode: str) -> str:
    queue, topic, subscription = (given.text(name) for name in ("queue", "topic", "subscription"))
    named = [name for name in (queue or given.path, topic) if name]
    if queue and given.path and queue != given.path:
        raise OptionProblem(f"option queue is '{queue}', and load() says '{given.path}'")
    if len(named) > 1:
        raise OptionProblem("give a queue or a topic, not both")
    if not named:
        named = [connection_parts(access.connection_string).get("entitypath", "")]
    if not named[0]:
        raise OptionProblem(
            'no entity: give option queue, or topic and subscription, or load("queue")'
        )
    if mode == JOURNAL:
        if subscription or given.text("subQueue"):
            raise OptionProblem(
                "a journal is that of a whole queue or topic: name no subscription or subQueue"
            )
        return named[0]
    if topic and not subscription:
        raise OptionProblem("a topic is read by one of its subscriptions: give option subscription")
    if subscription and not topic:
        raise OptionProblem("option subscription needs option topic")
    return place_of(given, named[0])


def place_of(given: Given, entity: str) -> str:
    """Return the path that messages are received from, which a topic has none of."""
    topic, subscription = given.text("topic"), given.text("subscription")
    path = f"{topic}/Subscriptions/{subscription}" if topic else entity
    return path + SUB_QUEUES[given.text("subQueue")]


def consumer_of(given: Given, entity: str) -> str:
    """Name who claims. It must be known before the first offset is written, so it cannot be the
    query's id; and it must be the same after a restart."""
    consumer = given.text("consumerId") or f"spark/{entity}"[:128]
    if len(consumer) > 128:
        raise OptionProblem("consumerId has more than 128 characters")
    return consumer


def _rows_max(given: Given, mode: str) -> int:
    """Facts are small and many: where nobody says, a batch of the journal is bounded by bytes."""
    if mode == JOURNAL and not given.has("maxMessagesPerTrigger"):
        return JOURNAL_ROWS_MAX
    return given.number("maxMessagesPerTrigger")


def _span(given: Given, mode: str, *, streaming: bool) -> Span:
    if streaming and (given.text("endingSequenceNumber") or given.text("endingTime")):
        raise OptionProblem(
            "a stream has no end: endingSequenceNumber and endingTime are for batches"
        )
    if mode == JOURNAL and (
        given.has("startingSequenceNumber") or given.has("endingSequenceNumber")
    ):
        raise OptionProblem("a journal has positions, not sequence numbers: use startingTime")
    return Span(
        is_latest=given.text("startingPosition") == "latest",
        first_number=given.number("startingSequenceNumber"),
        last_number=given.number("endingSequenceNumber"),
        from_instant=given.number("startingTime"),
        until_instant=given.number("endingTime"),
    )


def _checked(option: Option, text: str) -> str:
    """Return the text as the table has it, or raise what says what is allowed."""
    if option.kind == CHOICE:
        for choice in option.choices:
            if choice.lower() == text.lower():
                return choice
        raise OptionProblem(
            f"option {option.name} is one of {', '.join(option.choices)}, not '{text}'"
        )
    if option.kind == FLAG and text.lower() not in ("true", "false"):
        raise OptionProblem(f"option {option.name} is true or false, not '{text}'")
    if option.kind in (NUMBER, SIZE, DURATION, INSTANT):
        amount = _amount(option, text)
        if not option.low <= amount <= option.high:
            raise OptionProblem(
                f"option {option.name} is {option.low} to {option.high}, not {text}"
            )
    return text


def _amount(option: Option, text: str) -> int:
    if option.kind == INSTANT:
        return _instant(option, text)
    match = _AMOUNT.fullmatch(text.lower())
    units = {SIZE: _UNITS_BYTES, DURATION: _UNITS_MS}.get(option.kind, {"": 1})
    if match is None or match[2] not in units:
        raise OptionProblem(
            f"option {option.name} is a {option.kind}{_LIKE[option.kind]}, not '{text}'"
        )
    return int(match[1]) * units[match[2]]


_LIKE: Final = {NUMBER: "", SIZE: " such as 64m", DURATION: " such as 500ms, 30s or 24h"}


def _instant(option: Option, text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionProblem(
            f"option {option.name} is ISO 8601 or milliseconds since 1970, not '{text}'"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _unknown(key: str, usable: list[Option]) -> OptionProblem:
    names = [option.name for option in usable]
    near = get_close_matches(key.lower(), [name.lower() for name in names], 1)
    hints = [f" (did you mean {name}?)" for name in names if near and name.lower() == near[0]]
    return OptionProblem(
        f"there is no option '{key}'{''.join(hints)}; known are {', '.join(sorted(names))}"
    )
