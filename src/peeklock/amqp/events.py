"""What a connection tells its owner after each pass: value types, most frequent first.

One pass is one `Connection.receive`. Within it everything that concerns one link is gathered:
however many transfers arrive, there is one `TransfersReceived` per link, so that the owner pays per
batch and not per frame.
"""

from dataclasses import dataclass
from typing import Final, final

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.frames.performatives import Open
from peeklock.amqp.sessions.delivery import IncomingDelivery, OutgoingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.session import Session


@final
@dataclass(slots=True, init=False)
class TransfersReceived:
    """Messages arrived on a link where we receive."""

    link: Final[Link]
    deliveries: Final[list[IncomingDelivery]]

    def __init__(self, link: Link, deliveries: list[IncomingDelivery]) -> None:
        self.link = link
        self.deliveries = deliveries


@final
@dataclass(slots=True, init=False)
class RunReceived:
    """Messages arrived on a link that `takes_runs`, and nothing is to be said of them but their
    ids: each came whole, in the usual format, without a state."""

    link: Final[Link]
    settled: Final[bool]
    ids: Final[list[int]]
    payloads: Final[list[bytes]]

    def __init__(self, link: Link, settled: bool, ids: list[int], payloads: list[bytes]) -> None:
        self.link = link
        self.settled = settled
        self.ids = ids
        self.payloads = payloads


@final
@dataclass(slots=True, init=False)
class SettlementsReceived:
    """The peer told the outcome of messages that we sent.

    `outcome` is the encoded delivery state (empty when the peer gave none). With `settled` the peer
    has forgotten the deliveries and so have we; without it, it waits for our `Link.settle`.
    """

    link: Final[Link]
    outcome: Final[bytes]
    settled: Final[bool]
    deliveries: Final[list[OutgoingDelivery]]

    def __init__(
        self, link: Link, outcome: bytes, settled: bool, deliveries: list[OutgoingDelivery]
    ) -> None:
        self.link = link
        self.outcome = outcome
        self.settled = settled
        self.deliveries = deliveries


@final
@dataclass(slots=True, init=False)
class FlowReceived:
    """Credit or drain changed on a link where we send; read them from the link."""

    link: Final[Link]

    def __init__(self, link: Link) -> None:
        self.link = link


@final
@dataclass(slots=True, init=False)
class AnswersReceived:
    """The sender settled messages whose outcome we told it with `settled=False`."""

    link: Final[Link]
    state: Final[bytes]
    ids: Final[list[int]]

    def __init__(self, link: Link, state: bytes, ids: list[int]) -> None:
        self.link = link
        self.state = state
        self.ids = ids


@final
@dataclass(slots=True, init=False)
class AttachRequested:
    """The peer asks for a link; answer with `Link.accept` or `Link.refuse`, now or later."""

    link: Final[Link]

    def __init__(self, link: Link) -> None:
        self.link = link


@final
@dataclass(slots=True, init=False)
class AttachAnswered:
    """The peer accepted a link that we asked for; a refusal comes as `LinkDetached` instead."""

    link: Final[Link]

    def __init__(self, link: Link) -> None:
        self.link = link


@final
@dataclass(slots=True, init=False)
class LinkDetached:
    """A link is gone, by the peer's wish or because the peer broke a rule (then `error` is ours).

    `unsettled` are messages that we sent and whose outcome stays unknown; `unsent` are those that
    never left, be they settled or not. A link that the owner detached itself is not reported.
    """

    link: Final[Link]
    closed: Final[bool]
    error: Final[AmqpError | None]
    unsettled: Final[list[OutgoingDelivery]]
    unsent: Final[list[OutgoingDelivery]]

    def __init__(
        self,
        link: Link,
        closed: bool,
        error: AmqpError | None,
        unsettled: list[OutgoingDelivery],
        unsent: list[OutgoingDelivery],
    ) -> None:
        self.link = link
        self.closed = closed
        self.error = error
        self.unsettled = unsettled
        self.unsent = unsent


@final
@dataclass(slots=True, init=False)
class SessionEnded:
    """A session is gone with all its links, by the peer's wish or because it broke a rule."""

    session: Final[Session]
    links: Final[list[Link]]
    error: Final[AmqpError | None]

    def __init__(self, session: Session, links: list[Link], error: AmqpError | None) -> None:
        self.session = session
        self.links = links
        self.error = error


@final
@dataclass(slots=True, init=False)
class StrayReceived:
    """The peer told an outcome for deliveries that are not known, or not any more.

    It is told of states other than the plain outcomes, because who speaks of a transaction relies
    on everything in it; and where somebody waits for an answer (`is_awaited`), which is due for
    all of the range.
    """

    session: Final[Session]
    outcome: Final[bytes]
    first: Final[int]
    count: Final[int]
    is_awaited: Final[bool]

    def __init__(
        self, session: Session, outcome: bytes, first: int, count: int, is_awaited: bool
    ) -> None:
        self.session = session
        self.outcome = outcome
        self.first = first
        self.count = count
        self.is_awaited = is_awaited


@final
@dataclass(slots=True, init=False)
class SaslInitReceived:
    """The peer chose a mechanism; answer with `accept_sasl` or `refuse_sasl`."""

    mechanism: Final[str]
    initial_response: Final[bytes]
    hostname: Final[str | None]

    def __init__(self, mechanism: str, initial_response: bytes, hostname: str | None) -> None:
        self.mechanism = mechanism
        self.initial_response = initial_response
        self.hostname = hostname


@final
@dataclass(slots=True, init=False)
class Opened:
    """The peer opened the connection; `authenticated` says whether SASL came before."""

    open: Final[Open]
    authenticated: Final[bool]

    def __init__(self, open: Open, authenticated: bool) -> None:
        self.open = open
        self.authenticated = authenticated


@final
@dataclass(slots=True, init=False)
class Closed:
    """The connection is over; `by_peer` says who ended it, `links` which links went with it."""

    error: Final[AmqpError | None]
    by_peer: Final[bool]
    links: Final[list[Link]]

    def __init__(self, error: AmqpError | None, by_peer: bool, links: list[Link]) -> None:
        self.error = error
        self.by_peer = by_peer
        self.links = links


Event = (
    TransfersReceived
    | RunReceived
    | SettlementsReceived
    | FlowReceived
    | AnswersReceived
    | AttachRequested
    | AttachAnswered
    | LinkDetached
    | SessionEnded
    | StrayReceived
    | SaslInitReceived
    | Opened
    | Closed
)
