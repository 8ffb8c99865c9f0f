"""Entities at which faults strike: they stand between the gateway and the real ones.

What somebody asks for passes here on its way to the entity. Nothing of this is there in a broker
that is not under test, so that nobody pays for it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, final

from peeklock.broker.entities import AttachedLink
from peeklock.broker.worker.refusing import refusal_reply
from peeklock.entity import commands
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    RELEASE,
    Command,
    Grant,
    RenewLocks,
    RenewSession,
    SendMany,
    SettleAll,
    SettleMany,
)
from peeklock.entity.deliveries import LockToken
from peeklock.entity.refusals import (
    BUSY,
    LOCK_LOST,
    LOCK_LOST_TEXT,
    SESSION_LOCK_LOST,
    SESSION_LOCK_LOST_TEXT,
    Refusal,
)
from peeklock.entity.replies import Nobody, Numbered, Origin, Reply, Settled
from peeklock.entity.settlement import Settlement
from peeklock.entity.topics.commands import RuleCommand
from peeklock.gateway.amqp.namespace_context import Entities, Entity
from peeklock.testbed.faults import COMPLETE as COMPLETED
from peeklock.testbed.faults import (
    CUT_CONNECTION,
    DELAY_ANSWER,
    DETACH,
    DROP_ANSWER,
    DUPLICATE_DELIVERY,
    LOSE_LOCK,
    RECEIVE,
    RENEW,
    REQUEST,
    SEND,
    SERVER_BUSY,
    SETTLE,
    Fault,
    Faults,
)

_TEXT: Final = "A test asked for this fault."

# The operation of each command. One that is not here has none, so that nothing strikes it: what the
# broker does by itself, claims, and changes of rules.
_OPERATIONS: Final[dict[type[Any], str]] = {
    SendMany: SEND,
    commands.SendBatch: SEND,
    commands.Schedule: SEND,
    commands.Stage: SEND,
    commands.Commit: SEND,
    SettleMany: SETTLE,
    SettleAll: SETTLE,
    RenewLocks: RENEW,
    RenewSession: RENEW,
    Grant: RECEIVE,
    commands.AcceptSession: RECEIVE,
    commands.CancelScheduled: REQUEST,
    commands.Peek: REQUEST,
    commands.ReceiveDeferred: REQUEST,
    commands.DeleteMany: REQUEST,
    commands.GetSessionState: REQUEST,
    commands.SetSessionState: REQUEST,
    commands.ListSessions: REQUEST,
}


@final
class FaultyEntities:
    """Finds entities as the broker does, each with its faults."""

    def __init__(self, entities: Entities, faults: Faults) -> None:
        self._entities: Final = entities
        self._faults: Final = faults
        # The same each time, because whoever compares entities compares what was found here.
        self._found: Final[dict[tuple[str, str], FaultyEntity]] = {}

    def find(self, namespace: str, path: str) -> "FaultyEntity | None":
        """Give the entity of that path, or None."""
        place = (namespace, path.lower())
        entity = self._entities.find(namespace, path)
        if entity is None:
            self._found.pop(place, None)
            return None
        found = self._found.get(place)
        if found is None or found.entity is not entity:
            found = self._found[place] = FaultyEntity(entity, namespace, self._faults)
        return found

    def of(self, namespace: str) -> "list[FaultyEntity]":
        """Those of a namespace that somebody has looked for."""
        return [found for (owner, _), found in self._found.items() if owner == namespace]

    def forget(self, namespace: str) -> None:
        """A namespace is gone."""
        for place in [place for place in self._found if place[0] == namespace]:
            del self._found[place]


@final
class FaultyEntity:
    """An entity, but for what goes wrong."""

    def __init__(self, entity: Entity, namespace: str, faults: Faults) -> None:
        self.entity: Final = entity
        self._namespace: Final = namespace
        self._faults: Final = faults
        self._loop: Final = asyncio.get_running_loop()
        # By the link of AMQP, which the origins of commands know too.
        self._links: Final[dict[Any, Any]] = {}
        # What receivers have asked for since one of their wishes was delayed.
        self._held: Final[dict[Any, list[Any]]] = {}

    # --- as it is

    @property
    def kind(self) -> str:
        """QUEUE, TOPIC or SUBSCRIPTION."""
        return self.entity.kind

    @property
    def path(self) -> str:
        """The name as its owner wrote it."""
        return self.entity.path

    @property
    def owner_path(self) -> str:
        """The path of the queue or topic that owns the partitions."""
        return self.entity.owner_path

    @property
    def lane(self) -> int:
        """Where its messages rest."""
        return self.entity.lane

    @property
    def status(self) -> str:
        """Whether it can be sent to and received from."""
        return self.entity.status

    @property
    def message_size_max(self) -> int:
        """The largest message it takes."""
        return self.entity.message_size_max

    @property
    def requires_session(self) -> bool:
        """Whether it can only be received from session by session."""
        return self.entity.requires_session

    @property
    def forward_to(self) -> str:
        """Where its messages go by themselves."""
        return self.entity.forward_to

    @property
    def wants_keys(self) -> bool:
        """Whether messages must come with their keys read out."""
        return self.entity.wants_keys

    def why_not_together(self, work: list[Any]) -> Refusal | None:
        """Why these operations cannot be one transaction here."""
        return self.entity.why_not_together(work)

    def link_attached(self, entity_link: AttachedLink) -> None:
        """A link is attached."""
        self._links[getattr(entity_link, "link", entity_link)] = entity_link
        self.entity.link_attached(entity_link)

    def link_detached(self, entity_link: AttachedLink) -> None:
        """A link is gone by itself."""
        self._links.pop(getattr(entity_link, "link", entity_link), None)
        self.entity.link_detached(entity_link)

    # --- what goes wrong

    def submit(self, command: Command | RuleCommand) -> None:
        """Ask the entity, unless something goes wrong on the way."""
        # Not all have an origin, and those of rules cannot be delayed.
        held = self._held.get(getattr(command, "origin", None))
        if held is not None:
            held.append(command)
        elif self._faults.is_empty:
            self.entity.submit(command)
        else:
            for each in _one_by_one(command):
                self._submit_one(each)

    def _submit_one(self, command: Any) -> None:
        fault = self._faults.next(self._namespace, self.path, *_operations(command))
        if fault is None:
            self.entity.submit(command)
        else:
            self._strike(fault, command)

    def _strike(self, fault: Fault, command: Any) -> None:
        kind = fault.kind
        if kind == SERVER_BUSY:
            self._refuse(command, Refusal(BUSY, _TEXT))
        elif kind == LOSE_LOCK:
            self._lose_lock(command)
        elif kind == DUPLICATE_DELIVERY:
            self._deliver_again(command)
        elif kind == DELAY_ANSWER:
            self._delay(command, fault.delay_ms / 1000)
        elif kind == DROP_ANSWER:
            self.entity.submit(replace(command, origin=_Answered(_nothing)))
        else:
            assert kind in (DETACH, CUT_CONNECTION), f"{kind} has no operation"
            links = self._links_of(command)
            end = _end_of(fault)
            if fault.is_stored:
                answered = _Answered(lambda _reply: [end(link) for link in links])
                self.entity.submit(replace(command, origin=answered))
            else:
                # Not within the call of the node behind the link.
                self._loop.call_soon(lambda: [end(link) for link in links])

    def end_links(self, fault: Fault) -> int:
        """Detach all links, or cut their connections, at once; answers how many there were."""
        links = list(self._links.values())
        end = _end_of(fault)
        for link in links:
            end(link)
        return len(links)

    def lose_lock(self, token: LockToken) -> None:
        """End one lock: the message is there for others, and its holder finds out."""
        self.entity.submit(SettleMany(Nobody(), [0], Settlement(ABANDON), [token]))

    def _refuse(self, command: Any, refusal: Refusal) -> None:
        reply = refusal_reply(command, refusal)
        if reply is None:
            links = self._links_of(command)
            self._loop.call_soon(lambda: [link.dismiss(refusal) for link in links])
        else:
            self._loop.call_soon(_answer, command.origin, reply)

    def _lose_lock(self, command: Any) -> None:
        """The holder is told what it would be told if the time of the lock were over."""
        if self.requires_session:
            refusal = Refusal(SESSION_LOCK_LOST, SESSION_LOCK_LOST_TEXT)
            links = self._links_of(command)
            if isinstance(command, (RenewSession, RenewLocks)):
                self._refuse(command, refusal)
                links = list(self._links.values())
            self._loop.call_soon(lambda: [link.dismiss(refusal) for link in links])
            return
        for token in command.tokens:
            self.lose_lock(token)
        self._refuse(command, Refusal(LOCK_LOST, LOCK_LOST_TEXT))

    def _deliver_again(self, command: Any) -> None:
        """Let somebody believe that a message is settled, and deliver it again."""
        for token in command.tokens:
            self.lose_lock(token)
        done: Settled | Numbered
        if isinstance(command, SettleMany):
            done = Settled(command.origin, command.tags, command.settlement.outcome)
        else:
            done = Numbered(command.origin, command.tag, [])
        self._loop.call_soon(_answer, command.origin, done)

    def _delay(self, command: Any, delay_s: float) -> None:
        if _OPERATIONS[type(command)] != RECEIVE:
            origin = command.origin

            def later(reply: Any) -> None:
                self._loop.call_later(delay_s, _answer, origin, reply)

            self.entity.submit(replace(command, origin=_Answered(later)))
            return
        # Nobody is answered, so that the wish itself waits, and what follows it.
        self._held.setdefault(command.origin, []).append(command)
        self._loop.call_later(delay_s, self._let_go, command.origin)

    def _let_go(self, origin: Origin) -> None:
        for command in self._held.pop(origin, ()):
            self.entity.submit(command)

    def _links_of(self, command: Any) -> list[Any]:
        """The link by which somebody asked; all of them where that is not known."""
        link = self._links.get(getattr(command.origin, "link", None))
        return list(self._links.values()) if link is None else [link]


@final
class _Answered:
    """Takes the reply in place of who asked."""

    def __init__(self, take: Callable[[Any], object]) -> None:
        self._take: Final = take

    def replied(self, reply: Any) -> None:
        """Take the reply; not within the call, because links may end by it."""
        asyncio.get_running_loop().call_soon(self._take, reply)

    def flush(self) -> None:
        """There is nothing to let go."""


def _answer(origin: Origin, reply: Reply) -> None:
    origin.replied(reply)
    origin.flush()


def _nothing(_reply: Any) -> None:
    """The answer is lost."""


def _end_of(fault: Fault) -> Callable[[Any], object]:
    if fault.kind == DETACH:
        refusal = Refusal(fault.refusal_kind, _TEXT)
        return lambda link: link.dismiss(refusal)
    return lambda link: link.cut(_TEXT)


def _operations(command: Any) -> Sequence[str]:
    """What somebody asks for, by all its names."""
    operation = _OPERATIONS.get(type(command))
    outcome = command.settlement.outcome if operation == SETTLE else RELEASE
    if operation == SETTLE and outcome == RELEASE:
        return ()  # nobody asked for it: what was not sent goes back
    if operation == SETTLE and outcome == COMPLETE:
        return (operation, COMPLETED)
    return () if operation is None else (operation,)


def _one_by_one(command: Any) -> list[Any]:
    """Take a run apart: a fault strikes one message, and the others do not notice."""
    if isinstance(command, SendMany) and len(command.tags) > 1:
        return [
            SendMany(command.origin, [tag], [message])
            for tag, message in zip(command.tags, command.messages, strict=True)
        ]
    if isinstance(command, SettleMany) and len(command.tags) > 1:
        return [
            replace(command, tags=[tag], tokens=[token])
            for tag, token in zip(command.tags, command.tokens, strict=True)
        ]
    return [command]
