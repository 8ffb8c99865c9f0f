"""SASL: offers, verdicts, and credentials."""

import pytest

from peeklock.amqp.connection import CLIENT, SERVER, Connection
from peeklock.amqp.events import Closed, SaslInitReceived
from peeklock.amqp.frames.headers import AMQP_HEADER, SASL_HEADER
from peeklock.amqp.frames.performatives import Open
from peeklock.amqp.frames.sasl_frames import SaslInit, SaslMechanisms, SaslOutcome
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sasl import anonymous, external, plain, read_plain
from tests.amqp.engine_pair import client, frame, kinds, sasl_prelude, server, values


def test_a_server_offers_its_mechanisms_in_order() -> None:
    machine = server()
    machine.receive(SASL_HEADER, 0)
    header, offer = values(machine.take_output())
    assert header == SASL_HEADER
    assert offer.sasl_server_mechanisms == ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]


def test_the_owner_sees_what_the_peer_presents() -> None:
    machine = server()
    init = SaslInit(mechanism="ANONYMOUS", initial_response=b"\x00RootKey", hostname="h/x")
    events = machine.receive(SASL_HEADER + frame(init, kind=1), 0)
    assert events == [SaslInitReceived("ANONYMOUS", b"\x00RootKey", "h/x")]
    machine = server()
    events = machine.receive(SASL_HEADER + frame(SaslInit(mechanism="MSSBCBS"), kind=1), 0)
    assert events == [SaslInitReceived("MSSBCBS", b"", None)]


def test_a_refused_peer_hears_code_1_and_nothing_more() -> None:
    machine = server()
    machine.receive(sasl_prelude(), 0)
    machine.take_output()
    machine.refuse_sasl()
    (outcome,) = values(machine.take_output())
    assert outcome.code == 1
    assert machine.closed
    machine.refuse_sasl()
    assert machine.accept_sasl() == []
    assert machine.take_output() == b""


def test_a_verdict_without_a_question_does_nothing() -> None:
    machine = server()
    machine.refuse_sasl()
    assert machine.accept_sasl() == []
    assert not machine.closed
    assert not machine.has_output


def test_a_server_without_mechanisms_speaks_no_sasl() -> None:
    machine = Connection(role=SERVER, container_id="s", limits=ConnectionLimits(), now=0)
    machine.receive(SASL_HEADER, 0)
    assert machine.closed
    assert machine.take_output() == AMQP_HEADER


def test_a_second_init_closes() -> None:
    machine = server()
    machine.receive(sasl_prelude(), 0)
    machine.accept_sasl()
    init = frame(SaslInit(mechanism="ANONYMOUS"), kind=1)
    assert [type(event) for event in machine.receive(init, 0)] == [Closed]


def test_a_client_presents_its_credential() -> None:
    machine = Connection(
        role=CLIENT,
        container_id="c",
        limits=ConnectionLimits(),
        now=0,
        hostname="ns",
        credential=plain("rule", "key"),
    )
    machine.start()
    offer = SaslMechanisms(sasl_server_mechanisms=["PLAIN", "ANONYMOUS"])
    machine.take_output()
    machine.receive(SASL_HEADER + frame(offer, kind=1), 0)
    (init,) = values(machine.take_output())
    assert init == SaslInit(mechanism="PLAIN", initial_response=b"\x00rule\x00key", hostname="ns")
    machine.receive(frame(SaslOutcome(code=0), kind=1), 0)
    assert kinds(machine.take_output()) == ["header", "open"]
    machine.receive(AMQP_HEADER + frame(Open(container_id="s")), 0)
    assert machine.authenticated


@pytest.mark.parametrize(
    "answer",
    [
        SASL_HEADER + frame(SaslMechanisms(sasl_server_mechanisms=["PLAIN"]), kind=1),
        SASL_HEADER
        + frame(SaslMechanisms(sasl_server_mechanisms=["ANONYMOUS"]), kind=1)
        + frame(SaslOutcome(code=1), kind=1),
    ],
    ids=["not offered", "refused"],
)
def test_a_client_that_is_not_let_in_closes(answer: bytes) -> None:
    machine = client()
    machine.start()
    machine.take_output()
    (closed,) = machine.receive(answer, 0)
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:unauthorized-access"
    assert "open" not in kinds(machine.take_output())


def test_credentials() -> None:
    assert (anonymous().mechanism, anonymous().initial_response) == ("ANONYMOUS", b"")
    assert external().mechanism == "EXTERNAL"
    assert read_plain(plain("ü", "k:=").initial_response) == ("ü", "k:=")
    assert read_plain(b"id\x00user\x00pass") == ("user", "pass")
    assert read_plain(b"user") is None
    assert read_plain(b"\x00\xff\x00x") is None
