"""The operations of `$management` on stages, which are our own: what was staged is published as a
writer's batch, once, or dropped. The link property that makes a sender stage is here too."""

from typing import Any, Final

from peeklock.amqp.sessions.link import Link
from peeklock.auth.rights import SEND
from peeklock.entity.commands import Command, DropStages, PublishStages
from peeklock.entity.definition import SUBSCRIPTION
from peeklock.entity.refusals import INVALID_ARGUMENT, NOT_ALLOWED, Refusal
from peeklock.entity.replies import BatchPublished, Reply
from peeklock.gateway.amqp.address import OWN
from peeklock.gateway.amqp.management.calls import OWN_PREFIX, Call, Operation, numbers

STAGE: Final = OWN_PREFIX + "stage"
"""The property of a sender's link that names its stage."""

STAGE_LENGTH_MAX: Final = 256
WRITER_LENGTH_MAX: Final = 256
# How many stages one call may name: those of one batch.
STAGES_MAX: Final = 10_000

_NOT_HERE: Final = "Stages belong to queues and topics, not to subscriptions or dead-letter queues."


def stage_of(link: Link) -> str | Refusal:
    """The stage that a sender names; nothing where its messages are to be seen at once."""
    named = (link.properties or {}).get(STAGE)
    if named is None:
        return ""
    if not isinstance(named, str) or not 1 <= len(named) <= STAGE_LENGTH_MAX:
        text = f"The link property {STAGE} must be a string of 1 to {STAGE_LENGTH_MAX} characters."
        return Refusal(INVALID_ARGUMENT, text)
    return str(named)


def _read_publish(call: Call) -> Command | Refusal:
    if not _has_stages(call):
        return Refusal(NOT_ALLOWED, _NOT_HERE)
    arguments = call.arguments
    writer = arguments.text("writer")
    if not 1 <= len(writer) <= WRITER_LENGTH_MAX:
        arguments.wrong("writer", f"must have 1 to {WRITER_LENGTH_MAX} characters")
    batch = arguments.number("batch")
    return PublishStages(call.origin, call.tag, writer, batch, _stages(call))


def _write_publish(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    assert isinstance(reply, BatchPublished), f"a batch was expected, not {reply!r}"
    return {"message-count": reply.count}


def _read_drop(call: Call) -> Command | Refusal:
    if not _has_stages(call):
        return Refusal(NOT_ALLOWED, _NOT_HERE)
    arguments = call.arguments
    prefix = arguments.optional_text("prefix")
    if prefix is None:
        return DropStages(call.origin, call.tag, _stages(call), None, [])
    if arguments.has("stages"):
        arguments.wrong("prefix", "cannot be given together with 'stages'")
    elif not 1 <= len(prefix) <= STAGE_LENGTH_MAX:
        arguments.wrong("prefix", f"must have 1 to {STAGE_LENGTH_MAX} characters")
    return DropStages(call.origin, call.tag, [], prefix, [])


def _write_drop(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    return {"message-count": numbers(reply)[0]}


def _has_stages(call: Call) -> bool:
    return call.sub_queue == OWN and call.entity.kind != SUBSCRIPTION


def _stages(call: Call) -> list[str]:
    stages: list[str] = []
    for item in call.arguments.items("stages", most=STAGES_MAX):
        if not isinstance(item, str) or not 1 <= len(item) <= STAGE_LENGTH_MAX:
            text = f"must hold strings of 1 to {STAGE_LENGTH_MAX} characters only"
            call.arguments.wrong("stages", text)
            break
        stages.append(str(item))
    return stages


STAGE_OPERATIONS: Final[dict[str, Operation]] = {
    OWN_PREFIX + "publish-stages": Operation(SEND, _read_publish, _write_publish),
    OWN_PREFIX + "drop-stages": Operation(SEND, _read_drop, _write_drop),
}
