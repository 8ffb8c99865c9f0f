"""Lists in records: what a record says of its length is believed only as far as it can be true."""

import struct

import pytest

from peeklock.store.codec.packing import LANES_MAX, LISTED_MAX, unpack_lanes, unpack_sequences


@pytest.mark.parametrize("count", [LISTED_MAX + 1, 0xFFFFFFFF])
@pytest.mark.parametrize("runs", [0, 1, 2])
def test_no_record_lists_more_messages_than_there_can_be(count: int, runs: int) -> None:
    record = struct.pack("<IIQQII", count, runs, 1, 2, count // 2, count - count // 2)
    with pytest.raises(ValueError, match="so many messages"):
        unpack_sequences(memoryview(record), 0)


def test_runs_are_added_up_before_they_are_written_out() -> None:
    record = struct.pack("<IIQQII", 5, 2, 1, 2, 0xFFFFFFFF, 0xFFFFFFFF)
    with pytest.raises(ValueError, match="do not add up"):
        unpack_sequences(memoryview(record), 0)


def test_no_message_has_more_lanes_than_there_can_be() -> None:
    record = struct.pack("<IBIIiI", LANES_MAX + 1, 0, 1, 4, 2, LANES_MAX + 1)
    with pytest.raises(ValueError, match="so many lanes"):
        unpack_lanes(memoryview(record), 0)
