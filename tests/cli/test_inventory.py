"""What a broker tells about its entities, read as the configuration file is."""

from __future__ import annotations

import pytest

from peeklock.cli import atom
from peeklock.cli.atom import Description
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.inventory import queue_of
from peeklock.entity.definition import MEGABYTE


@pytest.mark.parametrize(
    ("shown", "is_partitioned", "quota"),
    [
        (1024, False, 0),
        (2048, False, 2048),
        (5, False, 5),
        (16_384, True, 0),
        (32_768, True, 2048),
        # Of an entity with four partitions; how many it has is not told.
        (4_096, True, 0),
    ],
)
def test_a_quota_is_read_out_of_what_is_shown(shown: int, is_partitioned: bool, quota: int) -> None:
    values = {"MaxSizeInMegabytes": shown, "EnablePartitioning": is_partitioned}
    assert queue_of(Description(atom.QUEUE, "q", values)).size_max == quota * MEGABYTE


def test_what_the_file_could_not_say_is_named() -> None:
    with pytest.raises(ConnectionProblem, match=r"the queue 'q'.Properties.LockDuration: must be"):
        queue_of(Description(atom.QUEUE, "q", {"LockDuration": "PT1H"}))
