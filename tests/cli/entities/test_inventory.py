"""What a broker tells about its entities, read as the configuration file is."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.entities.inventory import queue_of
from peeklock.client.administration import atom
from peeklock.client.administration.atom import Description
from peeklock.entity.definition import MEGABYTE


@pytest.mark.parametrize(
    ("shown", "partitions", "quota"),
    [
        (1024, 1, 0),
        (2048, 1, 2048),
        (5, 1, 5),
        (16_384, 16, 0),
        (32_768, 16, 2048),
        (4_096, 4, 0),
        (8_192, 4, 2048),
    ],
)
def test_a_quota_is_read_out_of_what_is_shown(shown: int, partitions: int, quota: int) -> None:
    values: dict[str, Any] = {
        "MaxSizeInMegabytes": shown,
        "EnablePartitioning": partitions > 1,
    }
    if partitions > 1:
        values["PartitionCount"] = partitions
    read = queue_of(Description(atom.QUEUE, "q", values))
    assert (read.partitions, read.size_max) == (partitions, quota * MEGABYTE)


def test_a_broker_that_does_not_tell_its_partitions_has_the_usual_ones() -> None:
    values = {"MaxSizeInMegabytes": 32_768, "EnablePartitioning": True}
    assert queue_of(Description(atom.QUEUE, "q", values)).size_max == 2048 * MEGABYTE


def test_what_the_file_could_not_say_is_named() -> None:
    with pytest.raises(ConnectionProblem, match=r"the queue 'q'.Properties.LockDuration: must be"):
        queue_of(Description(atom.QUEUE, "q", {"LockDuration": "PT1H"}))
