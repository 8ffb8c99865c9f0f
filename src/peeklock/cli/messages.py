"""`peeklock send`, `receive`, `peek` and `purge`: messages of a running broker, over AMQP."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from peeklock.cli import values
from peeklock.cli.broker_access import BrokerAccess, advised, asks_broker
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.output import (
    TABLE,
    DryRun,
    Output,
    Yes,
    confirm,
    print_json,
    print_table,
    progress,
    say,
)

if TYPE_CHECKING:
    from peeklock.client.blocking import ServiceBusClient
    from peeklock.client.received import ServiceBusReceivedMessage

Entity: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY",
        help="A queue, a topic, or TOPIC/Subscriptions/NAME; behind it may stand "
        "/$DeadLetterQueue.",
    ),
]
Source: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY",
        help="A queue or TOPIC/Subscriptions/NAME; behind it may stand /$DeadLetterQueue.",
    ),
]
DeadLetter: TypeAlias = Annotated[
    bool, typer.Option("--dead-letter", help="Its dead-letter queue (/$DeadLetterQueue).")
]

# Titles of columns; those that no message has are left out.
_COLUMNS: Final = {
    "number": "SequenceNumber",
    "message id": "MessageId",
    "session": "SessionId",
    "subject": "Subject",
    "enqueued": "EnqueuedTime",
    "state": "State",
    "deliveries": "DeliveryCount",
}
_REASONS: Final = {"DeadLetterReason": "reason", "DeadLetterErrorDescription": "description"}
_DEAD_LETTERS: Final = "/$DeadLetterQueue"
_PEEKED_AT_ONCE: Final = 250
_DRAIN_MAX: Final = 1_000
_DRAIN_WAIT_S: Final = 1.0
# What is there is there at once; a wait of nothing at all is not asked for.
_WAIT_MIN_S: Final = 0.001
_TIMEOUT: Final = "com.microsoft:timeout"
_NOT_THIS_WAY: Final = ("amqp:not-allowed", "amqp:not-implemented")


def send(
    broker: BrokerAccess,
    entity: Entity,
    *,
    body: Annotated[
        str | None, typer.Option(help="The content.", show_default="standard input")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A file with the content.")
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="KEY=VALUE",
            help="An application property; numbers, true and false have their types, in double "
            "quotes they are texts.",
        ),
    ] = None,
    message_id: Annotated[
        str | None, typer.Option(help="With --count above 1 it gets a number.")
    ] = None,
    session_id: Annotated[str | None, typer.Option(help="The session of the message.")] = None,
    subject: Annotated[str | None, typer.Option(help="The subject, or label.")] = None,
    content_type: Annotated[str | None, typer.Option(help="What the content is.")] = None,
    correlation_id: Annotated[str | None, typer.Option(help="What the message is about.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it lives: 30s, PT1M.")] = None,
    at: Annotated[
        str | None, typer.Option(help="When it is to be handed out: 2030-01-31T12:00:00Z.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many of them.")] = 1,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of standard input is a message.")
    ] = False,
    output: Output = "table",
) -> None:
    """Send a message, or many alike, and return when the broker has accepted them."""
    from peeklock.client.blocking import ServiceBusMessage
    from peeklock.client.exceptions import ServiceBusError

    if lines and (body is not None or file is not None or message_id is not None or count > 1):
        raise values.wrong("--lines", "goes with none of --body, --file, --message-id and --count")
    contents = _lines() if lines else [_content(body, file)]
    count = len(contents) if lines else count
    options: dict[str, Any] = {
        "session_id": session_id,
        "subject": subject,
        "content_type": content_type,
        "correlation_id": correlation_id,
        "time_to_live": None if ttl is None else _duration(values.duration_ms(ttl, "--ttl")),
        "scheduled_enqueue_time_utc": None if at is None else _moment(at, "--at"),
        "application_properties": values.pairs(property_ or [], "--property"),
    }
    ids = (
        [message_id] if lines or count == 1 or message_id is None else _numbered(message_id, count)
    )
    try:
        letters = [
            ServiceBusMessage(content, message_id=id, **options)
            for content in contents
            for id in ids
        ]
    except ValueError as error:
        raise ConnectionProblem(str(error)) from error
    failures: list[Exception] = []
    with client_of(broker) as client, progress(f"sending to '{entity}'", count) as advance:
        sender = client.get_queue_sender(entity, on_error=lambda _, error: failures.append(error))
        given = 0
        try:
            for letter in letters if len(letters) == count else letters * count:
                sender.send_soon(letter)
                given += 1
                advance()
            sender.flush()
            if failures:
                raise failures[0]
        except ServiceBusError as error:
            if count == 1:
                raise
            # What is in doubt because the connection broke counts as not sent.
            sent = given - len(failures)
            if output != TABLE:
                print_json({"sent": sent, "failed": count - sent}, output)
            text = f"{str(error) or error.condition}; sent {sent:,} of {_messages(count)}"
            raise ConnectionProblem(text) from error
    say(output, {"sent": count}, f"sent {_messages(count)}")


def receive(
    broker: BrokerAccess,
    entity: Source,
    *,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 1,
    wait: Annotated[
        float, typer.Option(min=0, help="How many seconds to wait for the first.")
    ] = 5.0,
    delete: Annotated[
        bool, typer.Option("--delete", help="Let the broker delete them as it hands them out.")
    ] = False,
    complete: Annotated[
        bool,
        typer.Option(
            "--complete", help="Complete them when they are printed; this is the default."
        ),
    ] = False,
    peek_lock: Annotated[
        bool, typer.Option("--peek-lock", help="Lock them, print them, and give them back.")
    ] = False,
    session: Annotated[str | None, typer.Option(help="From this session.")] = None,
    next_session: Annotated[
        bool, typer.Option("--next-session", help="From the next session that is free.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, a message in each line.")
    ] = False,
    dead_letter: DeadLetter = False,
    output: Output = "table",
) -> None:
    """Receive messages and print them."""
    from peeklock.cli.message_output import describe_message
    from peeklock.client.blocking import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode
    from peeklock.client.exceptions import OperationTimeoutError

    if delete + complete + peek_lock > 1:
        raise values.wrong("--delete", "only one of --delete, --complete and --peek-lock goes")
    if follow and (peek_lock or next_session):
        raise values.wrong("--follow", "goes with neither --peek-lock nor --next-session")
    if session is not None and (next_session or not session):
        raise values.wrong("--session", "needs the id of a session, and no --next-session")
    entity = _address(entity, dead_letter)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE if delete else ServiceBusReceiveMode.PEEK_LOCK
    with client_of(broker) as client:
        receiver = client.get_queue_receiver(
            entity,
            receive_mode=mode,
            session_id=NEXT_AVAILABLE_SESSION if next_session else session,
            max_wait_time=max(wait, _WAIT_MIN_S),
        )
        settle = receiver.release_messages if peek_lock else receiver.complete_messages
        while True:
            try:
                messages = receiver.receive_messages(count)
            except OperationTimeoutError as error:
                if not next_session or error.condition != _TIMEOUT:
                    raise
                messages = []  # No session came free.
            # Printed before they are completed: what fails in between is received again.
            told = [describe_message(message.payload) for message in messages]
            if follow:
                print_lines(told, output)
            else:
                print_messages(entity, told, output)
            if messages and not delete:
                settle(messages)
            if not follow:
                break


def peek(
    broker: BrokerAccess,
    entity: Source,
    *,
    first: Annotated[
        int, typer.Option("--from", min=0, help="The sequence number to begin with.")
    ] = 0,
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 10,
    session: Annotated[str | None, typer.Option(help="Of this session only.")] = None,
    dead_letter: DeadLetter = False,
    output: Output = "table",
) -> None:
    """Print messages as they lie there: nothing is locked, counted or taken."""
    from peeklock.cli.message_output import describe_message

    entity = _address(entity, dead_letter)
    with client_of(broker) as client:
        receiver = client.get_queue_receiver(entity, session_id=session)
        messages = receiver.peek_messages(count, sequence_number=first)
        print_messages(entity, [describe_message(message.payload) for message in messages], output)


def purge(
    broker: BrokerAccess,
    entity: Source,
    *,
    before: Annotated[
        str | None,
        typer.Option(help="Only those enqueued before: 2030-01-31T12:00:00Z.", show_default="now"),
    ] = None,
    session: Annotated[str | None, typer.Option(help="Of this session only.")] = None,
    dead_letter: DeadLetter = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Delete the messages of an entity that nobody has locked, and tell how many."""
    from peeklock.client.exceptions import ServiceBusError

    entity = _address(entity, dead_letter)
    until = None if before is None else _moment(before, "--before")
    if dry_run:
        with client_of(broker) as client:
            count = _count(client, entity, session, until)
        text = f"would delete {_messages(count)} of '{entity}', but for those that are locked"
        say(output, {"would_delete": count}, text)
        return
    confirm(f"Delete the messages of '{entity}' for good?", yes=yes)
    with client_of(broker) as client, progress(f"purging '{entity}'"):
        try:
            receiver = client.get_queue_receiver(entity, session_id=session)
            deleted = receiver.purge_messages(before_enqueue_time_utc=until)
        except ServiceBusError as refusal:
            # Some entities delete nothing in bulk; what is asked for there is received instead.
            if before is not None or refusal.condition not in _NOT_THIS_WAY:
                raise
            deleted = _drain(client, entity, session)
    say(output, {"deleted": deleted}, f"deleted {_messages(deleted)} of '{entity}'")


def _count(
    client: "ServiceBusClient", entity: str, session: str | None, until: datetime | None
) -> int:
    receiver = client.get_queue_receiver(entity, session_id=session)
    found = first = 0
    with progress(f"looking through '{entity}'") as advance:
        while page := receiver.peek_messages(_PEEKED_AT_ONCE, sequence_number=first):
            advance(len(page))
            found += sum(_is_purged(message, until) for message in page)
            first = (page[-1].sequence_number or 0) + 1
    return found


def _is_purged(message: "ServiceBusReceivedMessage", until: datetime | None) -> bool:
    """Tell whether a purge takes a message that is not locked."""
    from peeklock.client.constants import ServiceBusMessageState

    enqueued_at = message.enqueued_time_utc
    is_early = until is None or (enqueued_at is not None and enqueued_at < until)
    return is_early and message.state == ServiceBusMessageState.ACTIVE


def _drain(client: "ServiceBusClient", entity: str, session: str | None) -> int:
    from peeklock.client.blocking import ServiceBusReceiveMode

    receiver = client.get_queue_receiver(
        entity,
        receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
        session_id=session,
        max_wait_time=_DRAIN_WAIT_S,
    )
    deleted = 0
    while count := len(receiver.receive_messages(_DRAIN_MAX)):
        deleted += count
    return deleted


@contextmanager
def client_of(
    broker: BrokerAccess, *, is_one_session: bool = False
) -> Iterator["ServiceBusClient"]:
    """Return a client that tries once: whoever sits before a terminal can try again."""
    from peeklock.amqp.errors import DecodeError
    from peeklock.client.blocking import ServiceBusClient
    from peeklock.client.exceptions import ServiceBusError

    try:
        with ServiceBusClient.of(broker.client_config(is_one_session=is_one_session)) as client:
            yield client
    except DecodeError as error:
        raise ConnectionProblem(f"what the broker said cannot be read: {error.text}") from error
    except ServiceBusError as error:
        raise ConnectionProblem(advised(error)) from error


def _content(body: str | None, file: Path | None) -> bytes:
    if body is not None and file is not None:
        raise values.wrong("--body", "only one of --body and --file goes")
    if file is not None:
        return file.read_bytes()
    return sys.stdin.buffer.read() if body is None else body.encode()


def _lines() -> list[bytes]:
    return [line.rstrip(b"\r\n") for line in sys.stdin.buffer]


def _numbered(message_id: str, count: int) -> list[str | None]:
    return [f"{message_id}-{number}" for number in range(1, count + 1)]


def _address(entity: str, dead_letter: bool) -> str:
    return entity + _DEAD_LETTERS if dead_letter else entity


def print_messages(entity: str, messages: list[dict[str, Any]], output: str) -> None:
    """Print what messages say; those that are dead letters, or were, with the reason."""
    from peeklock.cli.message_output import preview

    if output != TABLE:
        print_json({"messages": messages}, output)
        return
    if not messages:
        typer.echo(f"no messages in '{entity}'")
        return
    columns = {title: key for title, key in _COLUMNS.items() if any(key in m for m in messages)}
    rows = [
        [
            *(str(message.get(key, "")) for key in columns.values()),
            *(str(message["ApplicationProperties"].get(name, "")) for name in reasons(messages)),
            preview(message),
        ]
        for message in messages
    ]
    titles = [*columns, *(_REASONS[name] for name in reasons(messages)), "body"]
    print_table(f"Messages of '{entity}'", titles, rows)


def print_lines(messages: list[dict[str, Any]], output: str) -> None:
    """Print messages as they come: there is no table whose last row is known."""
    from peeklock.cli.message_output import preview

    for message in messages:
        if output != TABLE:
            print_json(message, "jsonl")
            continue
        known = [message.get(key) for key in ("EnqueuedTime", "SequenceNumber", "MessageId")]
        typer.echo(
            "  ".join([*(str(each) for each in known if each is not None), preview(message)])
        )
    sys.stdout.flush()


def reasons(messages: list[dict[str, Any]]) -> list[str]:
    """Name the properties of dead letters that any of the messages has."""
    return [name for name in _REASONS if any(name in m["ApplicationProperties"] for m in messages)]


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _moment(text: str, option: str) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + _duration(values.instant_ms(text, option))


def add_to(app: typer.Typer) -> None:
    """Give the main command these commands."""
    for command in (send, receive, peek, purge):
        app.command()(asks_broker(command))
