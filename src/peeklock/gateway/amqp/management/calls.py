"""One request to `$management` under way, and the form that all of its operations have.

Each operation has two halves: the request's arguments become a command, and the reply becomes the
answer's body. Whatever a client got wrong is a refusal that names the argument.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

from peeklock.auth.rights import Rights
from peeklock.entity.commands import Command
from peeklock.entity.refusals import Refusal
from peeklock.entity.replies import Numbered, Origin, Reply
from peeklock.entity.topics.commands import RuleCommand
from peeklock.gateway.amqp.address import OWN
from peeklock.gateway.amqp.management.arguments import Arguments
from peeklock.gateway.amqp.namespace_context import Entity
from peeklock.gateway.identifiers import MessageIds

PREFIX: Final = "com.microsoft:"
OWN_PREFIX: Final = "com.peeklock:"  # what the service does not have


@final
class Call:
    """What is asked, where, when, and by whose node and tag the reply comes back.

    `holder` is the receiver of a session on whose behalf it is asked: the origin that accepted the
    session, or None where the client did not say, then any holder of the session will do.
    `held` is the session that it has.
    """

    __slots__ = (
        "arguments",
        "consumer",
        "entity",
        "held",
        "holder",
        "ids",
        "lane",
        "now",
        "origin",
        "sub_queue",
        "tag",
    )

    def __init__(
        self,
        arguments: Arguments,
        *,
        origin: Origin,
        tag: int,
        entity: Entity,
        sub_queue: int,
        lane: int,
        holder: Origin | None,
        held: str | None = None,
        now: int,
        ids: MessageIds,
        consumer: str = "",
    ) -> None:
        self.arguments: Final = arguments
        self.origin: Final = origin
        self.tag: Final = tag
        self.entity: Final = entity
        self.sub_queue: Final = sub_queue
        self.lane: Final = lane
        self.holder: Final = holder
        self.held: Final = held
        self.now: Final = now
        self.ids: Final = ids
        self.consumer: Final = consumer  # what the journal calls who asks

    @property
    def has_sessions(self) -> bool:
        """Whether the messages that the call is about stand in sessions; dead letters never do."""
        return self.sub_queue == OWN and self.entity.requires_session


# Reads a request; the arguments hold the refusal where something is wrong with them.
Reader: TypeAlias = Callable[[Call], Command | RuleCommand | Refusal]
# Words a reply: the body of the answer, or None where there is nothing to tell (204).
Writer: TypeAlias = Callable[[Call, Reply], dict[Any, Any] | None]


@final
class Operation:
    """One row of the table: the right that it takes and its two halves. `nothing` is the condition
    that the service names where there is nothing to tell, which is no error."""

    __slots__ = ("nothing", "read", "right", "write")

    def __init__(self, right: Rights, read: Reader, write: Writer, nothing: str = "") -> None:
        self.nothing: Final = nothing
        self.right: Final = right
        self.read: Final[Reader] = read
        self.write: Final[Writer] = write


def write_done(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    """Say that it is done, and nothing more."""
    numbers(reply)
    return {}


def numbers(reply: Reply) -> list[int]:
    """The numbers of a reply that has nothing else."""
    assert isinstance(reply, Numbered), f"numbers were expected, not {reply!r}"
    return reply.numbers
