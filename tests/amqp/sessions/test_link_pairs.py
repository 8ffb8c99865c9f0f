"""Links of both roles, one machine against the other."""

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import (
    AnswersReceived,
    AttachAnswered,
    AttachRequested,
    FlowReceived,
    LinkDetached,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.frames.states import TransactionalState
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sessions.link import RECEIVER, SENDER
from peeklock.amqp.values.composites import ACCEPTED, RELEASED, encode_composite
from tests.amqp.engine_pair import Pair, events_of

STATE = encode_composite(TransactionalState(txn_id=b"txn"))


def test_a_client_learns_that_its_link_is_refused() -> None:
    pair = Pair(accept=False)
    session = pair.client.begin_session()
    link = session.attach_receiver("r", Source(address="nowhere"))
    pair.exchange()
    (asked,) = events_of(pair.server_events, AttachRequested)
    error = AmqpError("amqp:not-found", "nowhere", None)
    asked.link.refuse(error)
    pair.exchange()
    assert events_of(pair.client_events, AttachAnswered) == []
    (gone,) = events_of(pair.client_events, LinkDetached)
    assert (gone.link, gone.error) == (link, error)
    assert events_of(pair.server_events, LinkDetached) == []
    assert pair.server.link_names.count == pair.client.link_names.count == 0


def test_a_client_may_detach_before_the_answer_comes() -> None:
    pair = Pair()
    session = pair.client.begin_session()
    pair.exchange()
    link = session.attach_sender("s", Target(address="q"))
    link.detach()
    pair.exchange()
    assert events_of(pair.client_events, AttachAnswered) == []
    assert pair.server.link_names.count == pair.client.link_names.count == 0


def test_a_client_receives_settles_and_hears_the_answer() -> None:
    """protocol.md 5.2: rcv-settle-mode second."""
    pair = Pair()
    receiver, sender = pair.receiving(pair.client.begin_session())
    assert (receiver.role, sender.role) == (RECEIVER, SENDER)
    receiver.grant(10)
    pair.exchange()
    for number in range(3):
        sender.send(b"t%d" % number, b"h", b"b", False, number)
    pair.exchange()
    (arrived,) = events_of(pair.client_events, TransfersReceived)
    ids = [d.id for d in arrived.deliveries]
    receiver.settle(ids[:2], ACCEPTED, settled=False)
    receiver.settle(ids[2:], RELEASED, settled=False)
    pair.exchange()
    for event in events_of(pair.server_events, SettlementsReceived):
        event.link.settle([d.id for d in event.deliveries], event.outcome)
    pair.exchange()
    answers = events_of(pair.client_events, AnswersReceived)
    assert [(a.state, a.ids) for a in answers] == [(ACCEPTED, ids[:2]), (RELEASED, ids[2:])]
    assert receiver.session.settling.awaited == {}


def test_answers_to_a_link_that_went_away_are_not_told() -> None:
    pair = Pair()
    session = pair.client.begin_session()
    receiver, sender = pair.receiving(session)
    other, _ = pair.receiving(session, "other")
    receiver.grant(1)
    pair.exchange()
    sender.send(b"t", b"", b"x", False, None)
    pair.exchange()
    receiver.settle([100_000], ACCEPTED, settled=False)
    other.detach()
    assert session.settling.awaited == {100_000: receiver}
    receiver.detach()
    assert session.settling.awaited == {}
    pair.exchange()
    assert events_of(pair.client_events, AnswersReceived) == []


def test_a_client_drains() -> None:
    pair = Pair()
    receiver, sender = pair.receiving(pair.client.begin_session())
    receiver.grant(10)
    pair.exchange()
    sender.send(b"t", b"", b"x", True, None)
    receiver.drain_credit()
    pair.clear()
    pair.exchange()
    assert events_of(pair.client_events, FlowReceived) == []
    sender.drained()
    pair.exchange()
    assert events_of(pair.client_events, FlowReceived) == [FlowReceived(receiver)]
    assert (receiver.credit, receiver.delivery_count) == (0, 10)


def test_a_client_grants_before_the_answer_comes() -> None:
    pair = Pair()
    receiver = pair.client.begin_session().attach_receiver("r", Source(address="q"))
    receiver.grant(7)
    pair.exchange()
    (sender,) = pair.server.links()
    assert sender.credit == 7
    receiver.detach()
    pair.exchange()
    receiver.grant(7)
    receiver.drain_credit()
    assert not pair.client.has_output


def test_a_large_message_in_small_frames_both_ways() -> None:
    """A message of 200 KB in frames of 512 bytes."""
    small = ConnectionLimits(max_frame_size=512, max_message_size=1 << 20)
    pair = Pair(client_limits=small, server_limits=small)
    session = pair.client.begin_session()
    to_server, server_receiver = pair.sending(session)
    from_server, down = pair.receiving(session)
    body = bytes(range(256)) * 800
    server_receiver.grant(2)
    from_server.grant(2)
    pair.exchange()
    to_server.send(b"up", b"head", body, False, None)
    down.send(b"down", b"head", body, False, None)
    pair.exchange()
    for events in (pair.client_events, pair.server_events):
        (arrived,) = events_of(events, TransfersReceived)
        assert [d.payload for d in arrived.deliveries] == [b"head" + body]


def test_a_client_sends_within_a_transaction() -> None:
    """[4.4.1] The state goes with the first frame of a message, now or later."""
    small = ConnectionLimits(max_frame_size=512, incoming_window=2)
    pair = Pair(client_limits=small, server_limits=small)
    to_server, server_receiver = pair.sending(pair.client.begin_session())
    server_receiver.grant(1_000)
    pair.exchange()
    sent = [(b"x" * size, state) for size in (1, 400, 1_200) for state in (STATE, None)] * 60
    for at, (body, state) in enumerate(sent):
        # Tags and ids are those of the short way, in the end: it must not be taken with a state.
        assert to_server.send(at.to_bytes(16, "big"), b"", body, False, None, 0, state) >= 0
    pair.exchange()
    arrived = events_of(pair.server_events, TransfersReceived)
    found = [(d.payload, d.state) for event in arrived for d in event.deliveries]
    assert found == sent
