"""What the others rely on: pings notice what they should, and a raw peer can speak."""

import pytest

from peeklock.amqp.frames.performatives import Transfer
from tests.pressure.conftest import StartBroker
from tests.pressure.ping import INTERVAL_S, Sample, latency
from tests.pressure.raw import RECEIVER, SENDER, frame
from tests.wire.own_client import run_with, send

MESSAGES = 20


def test_a_broker_that_is_used_as_usual_keeps_its_promises(start_broker: StartBroker) -> None:
    broker = start_broker(queues={"other": {}})

    with broker.pressed(grows_at_most=32 << 20) as seen:
        run_with(broker.connection_string, lambda client: send(client, "other", *["x"] * MESSAGES))

    assert seen.idle is not None
    assert seen.abused is not None
    assert seen.idle.count > 20
    assert 0 < seen.abused.p50_ms <= seen.abused.p99_ms <= seen.abused.longest_ms
    assert seen.memory_peak > 0


def test_who_is_cut_off_says_so(start_broker: StartBroker) -> None:
    broker = start_broker()

    def restart() -> None:
        with broker.pressed():
            broker.process.kill()
            broker.process.start()

    with pytest.raises(AssertionError, match="others"):
        restart()


def test_a_stall_stands_for_all_pings_that_were_due_meanwhile() -> None:
    """One ping in three hundred that waits a second is no rare event: two hundred were due."""
    quick = [Sample(float(number), INTERVAL_S / 5) for number in range(300)]
    assert latency(quick).p99_ms == pytest.approx(INTERVAL_S * 1000 / 5)
    stalled = latency([*quick, Sample(300.0, 1.0)])
    assert stalled.p99_ms > 900
    assert stalled.p50_ms < 2 * INTERVAL_S * 1000
    assert stalled.count == 301
    assert latency([*quick, Sample(300.0, 1.0, starved_s=0.99)]).longest_ms == pytest.approx(10)


def test_a_raw_peer_can_say_what_it_likes(start_broker: StartBroker) -> None:
    broker = start_broker(queues={"q": {}})
    run_with(broker.connection_string, lambda client: send(client, "q", "x"))
    with broker.raw() as peer:
        peer.open()
        peer.begin()
        peer.attach("q", SENDER, handle=0)
        peer.attach("q", RECEIVER, handle=1)
        peer.grant(1, handle=1)
        assert peer.wait_for(Transfer).handle is not None
        peer.send(frame(b"not AMQP at all"))
        assert peer.is_ended_within(5)
    with broker.raw() as peer:
        peer.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.receive().startswith(b"HTTP/1.1 200")
