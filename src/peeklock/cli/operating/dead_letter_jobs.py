"""What is done to dead letters: chosen by looking, then taken one batch after the other.

A message and its successor change places in one transaction: a job that ends in the middle has lost
nothing and doubled nothing, and the same command goes on. What was sent bears the job's mark, by
which it can be taken back as long as nobody has received it.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import typer

from peeklock.amqp.messages.message import AmqpMessage
from peeklock.amqp.messages.message_forms import Header, Properties
from peeklock.cli.connection import ConnectionProblem

if TYPE_CHECKING:
    from peeklock.client.blocking import ServiceBusClient
    from peeklock.client.blocking.receiver import ServiceBusReceiver
    from peeklock.client.received import ServiceBusReceivedMessage
    from peeklock.entity.rules.filter import SqlFilter

MARK: Final = "x-peeklock-job"
REPLAYED_FROM: Final = "x-replayed-from"
REASONS: Final = ("DeadLetterReason", "DeadLetterErrorDescription")
SUFFIX: Final = "/$DeadLetterQueue"

_AT_ONCE: Final = 100
_WAIT_S: Final = 2.0
# What is in the way is locked meanwhile and given back at the end; beyond that its lock runs out.
_HELD_MAX: Final = 20_000
# The upper bits of a sequence number name the partition; a transaction has one.
_PARTITION_BITS: Final = 48
_KEY: Final = "x-opt-partition-key"


@final
@dataclass(frozen=True, slots=True)
class MessageChoice:
    """Which messages are meant: a condition in the language of rules, or all."""

    condition: "SqlFilter | None" = None

    @classmethod
    def of(cls, where: str | None) -> "MessageChoice":
        """Read a condition."""
        from peeklock.entity.rules.errors import RuleError
        from peeklock.entity.rules.filter import SqlFilter

        if where is None:
            return cls()
        try:
            return cls(SqlFilter(where))
        except RuleError as error:
            raise ConnectionProblem(f"--where cannot be read: {error}") from error

    def takes(self, message: "ServiceBusReceivedMessage") -> bool:
        """Tell whether a message is meant; one for which the condition fails is not."""
        from peeklock.entity.rules.errors import FilterError

        if self.condition is None:
            return True
        try:
            return self.condition.evaluate(_bag(message)) is True
        except FilterError:
            return False


def _bag(message: "ServiceBusReceivedMessage") -> Any:
    from peeklock.broker.random_source import SystemRandom
    from peeklock.entity.rules import values

    system: dict[str, Any] = {
        values.MESSAGE_ID: message.message_id,
        values.CORRELATION_ID: message.correlation_id,
        values.SESSION_ID: message.session_id,
        values.LABEL: message.subject,
        values.TO: message.to,
        values.REPLY_TO: message.reply_to,
        values.CONTENT_TYPE: message.content_type,
        values.DELIVERY_COUNT: message.delivery_count,
        values.ENQUEUED_SEQUENCE_NUMBER: message.enqueued_sequence_number,
    }
    user = {_text(key): _value(value) for key, value in properties_of(message).items()}
    known = {name: value for name, value in system.items() if value is not None}
    return values.PropertyBag(user, known, SystemRandom().number)


def properties_of(message: "ServiceBusReceivedMessage") -> dict[str, Any]:
    """Give the application properties, with names that are texts."""
    return {_text(key): value for key, value in (message.application_properties or {}).items()}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _value(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | bytes) else _text(value)


def revived(message: "ServiceBusReceivedMessage", job: str, *, new_id: bool) -> AmqpMessage:
    """Make what is sent for a dead letter: all that the sender said, without the marks of death."""
    raw = message.raw_amqp_message
    said = raw.properties
    user = {
        key: value
        for key, value in (raw.application_properties or {}).items()
        if _text(key) not in (*REASONS, MARK)
    }
    user[MARK] = f"{job}/{message.sequence_number}"
    if new_id:
        user[REPLAYED_FROM] = message.message_id or str(message.sequence_number)
    annotations = raw.message_annotations or {}
    key = {name: value for name, value in annotations.items() if str(name) == _KEY}
    ttl = None if raw.header is None else raw.header.ttl
    return AmqpMessage(
        header=Header(durable=True, ttl=ttl),
        message_annotations=key or None,
        properties=None if said is None else _said(said, user[MARK] if new_id else None),
        application_properties=user,
        body_kind=raw.body_kind,
        body=raw.body,
        footer=raw.footer,
    )


def _said(said: Properties, message_id: str | None) -> Properties:
    """Copy the properties; when it ends is counted anew from now on."""
    return Properties(
        message_id=message_id or said.message_id,
        user_id=said.user_id,
        to=said.to,
        subject=said.subject,
        reply_to=said.reply_to,
        correlation_id=said.correlation_id,
        content_type=said.content_type,
        content_encoding=said.content_encoding,
        group_id=said.group_id,
        group_sequence=said.group_sequence,
        reply_to_group_id=said.reply_to_group_id,
    )


@final
class SendRate:
    """Lets so many through in a second; without a rate all of them."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._begun = time.monotonic()
        self._done = 0

    @property
    def batch(self) -> int:
        """How many go at once: about a second's worth, so that a rate is one."""
        return _AT_ONCE if self._rate is None else max(1, min(_AT_ONCE, int(self._rate)))

    def wait(self, count: int) -> None:
        """Wait until so many more may go."""
        self._done += count
        if self._rate is not None:
            ahead_s = self._begun + self._done / self._rate - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)


def take_all(
    receiver: "ServiceBusReceiver",
    numbers: set[int],
    pace: SendRate,
    do: Callable[[list["ServiceBusReceivedMessage"]], None],
) -> int:
    """Receive until all of these are done or nothing comes any more; answers how many were.

    What else comes is in the way: it is kept locked meanwhile, and given back as it was.
    """
    held: list[ServiceBusReceivedMessage] = []
    seen: set[int] = set()
    done = 0
    try:
        while numbers:
            batch = receiver.receive_messages(pace.batch, max_wait_time=_WAIT_S)
            # Locks of those in the way have run out: nothing new is to come.
            if not batch or all(message.sequence_number in seen for message in batch):
                held += batch
                break
            chosen = [message for message in batch if message.sequence_number in numbers]
            others = [message for message in batch if message.sequence_number not in numbers]
            seen |= {message.sequence_number or 0 for message in others}
            held += others[: max(0, _HELD_MAX - len(held))]
            for part in by_partition(chosen):
                do(part)
                done += len(part)
                numbers -= {message.sequence_number or 0 for message in part}
                pace.wait(len(part))
    finally:
        if held:
            receiver.release_messages(held)
    return done


def by_partition(
    messages: Iterable["ServiceBusReceivedMessage"],
) -> list[list["ServiceBusReceivedMessage"]]:
    """Put together what one transaction may settle."""
    parts: dict[int, list[ServiceBusReceivedMessage]] = defaultdict(list)
    for message in messages:
        parts[(message.sequence_number or 0) >> _PARTITION_BITS].append(message)
    return list(parts.values())


@final
class JobLog:
    """What a job has sent, on this machine: undo finds in it why each message had died."""

    def __init__(self, job: str, verb: str = "") -> None:
        self._path = jobs_directory() / f"{job}.jsonl"
        self._verb = verb

    def note(self, source: str, target: str, messages: list["ServiceBusReceivedMessage"]) -> None:
        """Note messages before they are sent."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            for message in messages:
                line = {
                    "verb": self._verb,
                    "source": source,
                    "target": target,
                    "number": message.sequence_number,
                    "reason": message.dead_letter_reason,
                    "description": message.dead_letter_error_description,
                }
                file.write(json.dumps(line) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """Give what was sent; a message may be there twice, if a batch had to be done again."""
        try:
            with self._path.open(encoding="utf-8") as file:
                return [json.loads(line) for line in file]
        except FileNotFoundError:
            there = ", ".join(sorted(path.stem for path in jobs_directory().glob("*.jsonl")))
            text = f"there is no job '{self._path.stem}' on this machine ({there or 'none'})"
            raise ConnectionProblem(text) from None


def jobs_directory() -> Path:
    """Return where jobs are noted."""
    return Path(typer.get_app_dir("peeklock")) / "jobs"


@final
@dataclass(frozen=True, slots=True)
class Resubmission:
    """Moves batches of dead letters: sent there and gone here, or neither."""

    client: "ServiceBusClient"
    receiver: "ServiceBusReceiver"
    target: str
    job: str
    log: JobLog
    new_ids: bool
    is_partitioned: bool

    def move(self, messages: list["ServiceBusReceivedMessage"]) -> None:
        """Move messages that one transaction may settle."""
        self.log.note(self.receiver.entity_path, self.target, messages)
        sender = self.client.get_queue_sender(self.target)
        with sender:
            for part, has_key in self._parts(messages):
                copies = [revived(message, self.job, new_id=self.new_ids) for message in part]
                if not has_key:
                    # A partitioned entity has transactions for messages with a key alone. In this
                    # order nothing is lost; an end in between leaves one of them twice.
                    sender.send_messages(copies[0])
                    self.receiver.complete_messages(part)
                    continue
                with self.client.transaction() as transaction:
                    # Completed first: the entity that is used first is the one that commits.
                    self.receiver.complete_messages(part, transaction=transaction)
                    for copy in copies:
                        sender.send_messages(copy, transaction=transaction)

    def _parts(
        self, messages: list["ServiceBusReceivedMessage"]
    ) -> list[tuple[list["ServiceBusReceivedMessage"], bool]]:
        if not self.is_partitioned:
            return [(messages, True)]
        keys = [message.session_id or message.partition_key for message in messages]
        return [([each], key is not None) for each, key in zip(messages, keys, strict=True)]
