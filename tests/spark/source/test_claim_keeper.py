"""What the keeper of claims makes of the broker's answers."""

from typing import Any

import pytest

from peeklock.client.exceptions import (
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from peeklock.spark.options import source_options
from peeklock.spark.source.claim_keeper import BrokerClaimKeeper
from peeklock.spark.source.deferral import DeferralClaimKeeper


class Answers:
    """A broker with one answer after the other; the last one stays."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.left = list(answers)
        self.asked = 0

    def manage(self, *_asked: Any, **_how: Any) -> dict[Any, Any]:
        self.asked += 1
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


KEY = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b"


def keeper(answers: Answers, **options: str) -> BrokerClaimKeeper:
    given = {"connectionstring": KEY, "queue": "q", **options}
    return BrokerClaimKeeper(answers, source_options(given, streaming=True))


HERE = {"epoch": 1, "sequence-numbers": [7], "sizes": [1], "attempts": [0]}
PART = {**HERE, "sequence-numbers": [], "sizes": [], "attempts": [], "missing-partitions": [3]}


def test_claims_are_listed_when_all_partitions_are_there() -> None:
    """R-D1: what a partition holds that is away for a moment is not taken for gone."""
    answers = Answers(PART, HERE)
    assert [one.number for one in keeper(answers).listed()] == [7]
    assert answers.asked == 2


def test_a_partition_that_stays_away_is_named() -> None:
    with pytest.raises(ServiceBusServerBusyError, match="partitions 3 of 'q'"):
        keeper(Answers(PART), retrydeadline="1ms").listed()


class Narrow:
    """A broker whose answers have room for so many messages only."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[int] = []

    def manage(self, _operation: str, asked: dict[str, Any]) -> dict[Any, Any]:
        numbers = asked["sequence-numbers"].items
        if len(numbers) > self.room:
            raise ServiceBusQuotaExceededError("too much for one answer")
        self.taken += numbers
        return {"messages": [{"message": b""} for _ in numbers]}


def deferrals(broker: Any) -> DeferralClaimKeeper:
    given = {"connectionstring": KEY, "queue": "q"}
    return DeferralClaimKeeper(broker, source_options(given, streaming=True))


def test_deferred_messages_that_are_too_much_for_one_answer_are_settled_in_parts() -> None:
    broker = Narrow(2)
    assert deferrals(broker).settle([1, 2, 3, 4, 5], "completed") == 5
    assert broker.taken == [1, 2, 3, 4, 5]


def test_one_deferred_message_that_is_refused_is_told() -> None:
    with pytest.raises(ServiceBusQuotaExceededError):
        deferrals(Narrow(0)).settle([1, 2], "completed")
