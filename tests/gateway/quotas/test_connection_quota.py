"""How many connections a namespace takes."""

from peeklock.budgets import Budget
from peeklock.gateway.quotas.connection_quota import ConnectionQuota


def test_there_is_room_up_to_the_limit_and_again_when_somebody_leaves() -> None:
    """R-F7."""
    connection_quota = ConnectionQuota(Budget("places", 2))
    assert [connection_quota.join() for _ in range(3)] == [True, True, False]
    assert connection_quota.count == 2
    connection_quota.leave()
    assert connection_quota.join()


def test_the_limit_is_the_services() -> None:
    """R-F7."""
    assert ConnectionQuota().connections_max == 5_000
