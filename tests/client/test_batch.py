"""Batches: filled by bytes, and exactly as large as they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.messages.message import decode_message
from peeklock.client.batch import ServiceBusMessageBatch
from peeklock.client.exceptions import MessageSizeExceededError
from peeklock.client.message import ServiceBusMessage
from tests.amqp.batches import batch_messages


@given(st.lists(st.integers(0, 600), min_size=1, max_size=30), st.booleans())
def test_its_size_is_what_it_says_and_its_messages_are_what_was_given(
    sizes: list[int], has_session: bool
) -> None:
    batch = ServiceBusMessageBatch()
    session_id = "s" if has_session else None
    messages = [ServiceBusMessage(b"x" * size, session_id=session_id) for size in sizes]
    for message in messages:
        batch.add_message(message)
    assert len(batch) == len(messages)
    assert batch.size_in_bytes == len(batch.encoded())
    assert batch_messages(batch.encoded()) == [message.encoded() for message in messages]


def test_a_message_without_room_is_refused_and_the_rest_stays() -> None:
    batch = ServiceBusMessageBatch(100)
    batch.add_message(ServiceBusMessage(b"x" * 60))
    with pytest.raises(MessageSizeExceededError, match="limit of 100 bytes"):
        batch.add_message(ServiceBusMessage(b"x" * 60))
    assert len(batch) == 1
    assert batch.size_in_bytes <= batch.max_size_in_bytes == 100


def test_the_envelope_has_the_keys_of_the_first() -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(ServiceBusMessage("a", message_id="m", partition_key="k"))
    batch.add_message(ServiceBusMessage("b", message_id="n"))
    envelope = decode_message(batch.encoded())
    assert envelope.message_annotations == {"x-opt-partition-key": "k"}
    assert envelope.properties is not None
    assert envelope.properties.message_id == "m"

    sessions = ServiceBusMessageBatch()
    sessions.add_message(ServiceBusMessage("a", session_id="s"))
    properties = decode_message(sessions.encoded()).properties
    assert properties is not None
    assert (properties.group_id, properties.message_id) == ("s", None)
