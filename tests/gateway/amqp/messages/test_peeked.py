"""What a peek tells of a message beside itself."""

from peeklock.amqp.messages.message import decode_message
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_CLAIMED, STATE_DEFERRED, Delivery
from peeklock.gateway.amqp.messages.translate import peeked
from tests.gateway.amqp.messages.test_translate import NOW, read


def test_a_look_shows_the_state_and_both_numbers() -> None:
    message = read(body="x")
    # A claimed message is active as a locked one is: other clients know no other state.
    claimed = {"x-opt-message-state": STATE_ACTIVE, "com.peeklock:claimed": True}
    for state, shown in [
        *((state, {"x-opt-message-state": state}) for state in (STATE_ACTIVE, STATE_DEFERRED, 2)),
        (STATE_CLAIMED, claimed),
    ]:
        seen = peeked(Delivery(5, 0, 0, 2, NOW, 0, 1, message, None, state), False)
        told = decode_message(b"".join(seen.parts))
        assert told.delivery_annotations == {}
        assert told.message_annotations == {
            "x-opt-enqueued-time": NOW,
            "x-opt-sequence-number": 5,
            "x-opt-enqueue-sequence-number": 5,
            **shown,
        }
