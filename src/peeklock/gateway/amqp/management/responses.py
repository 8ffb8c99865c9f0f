"""The links on which clients take the answers of request nodes, and the choice among them."""

from collections import deque
from typing import Final, final

from peeklock.amqp.held_bytes import PIECE_BYTES
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.session import Session
from peeklock.broker.entities import AttachedLink
from peeklock.entity.refusals import QUOTA_EXCEEDED, Refusal
from peeklock.gateway.amqp.connection_output import ConnectionOutput


@final
class ResponseNode:
    """Sends answers, settled, as far as the client's credit goes; the rest waits for more."""

    __slots__ = ("_entity_link", "_queued", "_sent", "_waiting", "key", "link", "output")

    def __init__(
        self, output: ConnectionOutput, link: Link, entity_link: AttachedLink, key: str
    ) -> None:
        self.output: Final = output
        self.link: Final = link
        self.key: Final = key
        self._entity_link: Final = entity_link
        # Answers, each in one piece or in several.
        self._waiting: Final[deque[list[bytes]]] = deque()
        # Sizes of those for which there was credit but no window: the session still has them.
        self._queued: Final[deque[int]] = deque()
        self._sent = 0

    def open(self) -> None:
        """Attach."""
        self.link.accept()

    def respond(self, payload: list[bytes]) -> None:
        """Send one answer, whose bytes come in pieces, or keep it until the client grants
        credit."""
        if not self.link.attached:
            return  # who asked is gone
        self._count_queued()
        if self._waiting or self.link.credit <= 0:
            waiting_max = self.output.namespace_context.limits.responses_waiting_max
            if len(self._waiting) < waiting_max and self._hold(payload):
                self._waiting.append(payload)
            else:
                self._give_up("Too many answers wait for link credit.")
            return
        self._send(payload)

    def flowed(self) -> None:
        """Credit came: send what waits."""
        self._count_queued()
        waiting = self._waiting
        while waiting and self.link.credit > 0:
            payload = waiting.popleft()
            self.output.connection.held.give_back(_size(payload))
            self._send(payload)
        if not waiting and self.link.drain:
            self.link.drained()

    def gone(self) -> None:
        """The link is no more, and nobody will take what waits."""
        held = sum(self._queued) + sum(map(_size, self._waiting))
        self.output.connection.held.give_back(held)
        self._queued.clear()
        self._waiting.clear()

    def _send(self, payload: list[bytes]) -> None:
        self._sent += 1
        tag = self._sent.to_bytes(8, "big")
        queued = self.link.queued
        if len(payload) == 1:
            self.link.send(tag, payload[0], b"", True, None)
        else:
            self.link.send_parts(tag, payload)
        if self.link.queued > queued:
            # There is credit and no window: the session keeps it.
            if self._hold(payload):
                self._queued.append(_size(payload))
            else:
                self._give_up("Too many answers wait for the window of the session.")

    def _hold(self, payload: list[bytes]) -> bool:
        return self.output.connection.held.take(_size(payload))

    def _count_queued(self) -> None:
        """Give back what the session has sent meanwhile: it keeps the order."""
        while len(self._queued) > self.link.queued:
            self.output.connection.held.give_back(self._queued.popleft())

    def _give_up(self, text: str) -> None:
        self._entity_link.dismiss(Refusal(QUOTA_EXCEEDED, text))


@final
class ResponseLinks:
    """The response links of one connection, each for a node and a session."""

    __slots__ = ("_named", "_nodes")

    def __init__(self) -> None:
        self._nodes: Final[dict[tuple[Session, str], dict[ResponseNode, None]]] = {}
        # The same by their names and the addresses of their targets.
        self._named: Final[dict[tuple[Session, str, str], dict[ResponseNode, None]]] = {}

    def add(self, node: ResponseNode) -> None:
        """Take a link in."""
        session = node.link.session
        self._nodes.setdefault((session, node.key), {})[node] = None
        for name in _names(node.link):
            self._named.setdefault((session, node.key, name), {})[node] = None

    def remove(self, node: ResponseNode) -> None:
        """Forget a link that is gone."""
        session = node.link.session
        nodes = self._nodes.get((session, node.key))
        if nodes is None or node not in nodes:
            return
        del nodes[node]
        if not nodes:
            del self._nodes[(session, node.key)]
        for name in _names(node.link):
            named = self._named.get((session, node.key, name))
            if named is not None:
                named.pop(node, None)
                if not named:
                    del self._named[(session, node.key, name)]

    def choose(self, session: Session, key: str, reply_to: str | None) -> ResponseNode | None:
        """Find the link for the answer to a request that came over `session` for the node `key`.

        Clients name it by its target address or by its name; those that do not name it have only
        one. Links of other sessions are never chosen: their owner is another.
        """
        if reply_to:
            named = self._named.get((session, key, reply_to))
            if named is not None:
                return next(iter(named))
        nodes = self._nodes.get((session, key))
        return next(iter(nodes)) if nodes is not None and len(nodes) == 1 else None


def _size(payload: list[bytes]) -> int:
    """What an answer is counted for while it waits."""
    return sum(map(len, payload)) + PIECE_BYTES


def _names(link: Link) -> list[str]:
    address = getattr(link.target, "address", None)
    return [link.name, address] if isinstance(address, str) else [link.name]
