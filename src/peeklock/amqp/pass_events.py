"""The events of one pass, gathered per link so that a thousand frames make a handful of events."""

from typing import final

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import (
    AnswersReceived,
    AttachAnswered,
    AttachRequested,
    Event,
    FlowReceived,
    LinkDetached,
    RunReceived,
    SessionEnded,
    SettlementsReceived,
    StrayReceived,
    TransfersReceived,
)
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.outgoing import LinkRemains
from peeklock.amqp.sessions.session import Session


@final
class PassEvents:
    """What the owner will be told; an event stands where its first cause came."""

    __slots__ = ("events", "touched")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.touched: list[Link] = []

    def add(self, event: Event) -> None:
        """Add an event that stands for itself."""
        self.events.append(event)

    def transfers(self, link: Link) -> list[IncomingDelivery]:
        """Open the list of what arrives on a link in this pass."""
        arrived: list[IncomingDelivery] = []
        link.arrived = arrived
        link.run = None  # what comes in a run from here on came later
        self._touch(link)
        self.events.append(TransfersReceived(link, arrived))
        return arrived

    def run(self, link: Link, settled: bool) -> RunReceived:
        """Open the run of what arrives on a link in this pass and has nothing special."""
        run = RunReceived(link, settled, [], [])
        link.run = run
        link.arrived = None
        self._touch(link)
        self.events.append(run)
        return run

    def settlements(self, link: Link, outcome: bytes, settled: bool) -> SettlementsReceived:
        """Open the list of deliveries with one outcome on a link."""
        event = SettlementsReceived(link, outcome, settled, [])
        link.settling = event
        self._touch(link)
        self.events.append(event)
        return event

    def stray(
        self, session: Session, outcome: bytes, first: int, count: int, is_awaited: bool
    ) -> None:
        """Tell of an outcome that came for nothing."""
        self.events.append(StrayReceived(session, outcome, first, count, is_awaited))

    def answers(self, link: Link, state: bytes) -> AnswersReceived:
        """Open the list of deliveries that the sender has settled on a link."""
        event = AnswersReceived(link, state, [])
        link.answered = event
        self._touch(link)
        self.events.append(event)
        return event

    def flow(self, link: Link) -> None:
        """Tell once per pass that a link's credit or drain changed."""
        if not link.flowed:
            link.flowed = True
            self._touch(link)
            self.events.append(FlowReceived(link))

    def requested(self, link: Link) -> None:
        """Tell that the peer asks for a link."""
        self.events.append(AttachRequested(link))

    def answered(self, link: Link) -> None:
        """Tell that the peer accepted a link of ours."""
        self.events.append(AttachAnswered(link))

    def ended(self, session: Session, links: list[Link], error: AmqpError | None) -> None:
        """Tell that a session is gone."""
        self.events.append(SessionEnded(session, links, error))

    def detached(
        self, link: Link, closed: bool, error: AmqpError | None, lost: LinkRemains
    ) -> None:
        """Tell that a link is gone, and what it leaves behind."""
        self.events.append(LinkDetached(link, closed, error, lost.unsettled, lost.unsent))

    def take(self) -> list[Event]:
        """End the pass and hand its events over."""
        for link in self.touched:
            link.touched = False
            link.arrived = None
            link.run = None
            link.settling = None
            link.answered = None
            link.flowed = False
        self.touched.clear()
        events = self.events
        self.events = []
        return events

    def _touch(self, link: Link) -> None:
        if not link.touched:
            link.touched = True
            self.touched.append(link)
