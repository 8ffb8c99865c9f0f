"""How many connections a namespace takes."""

from peeklock.budgets import Budget
from peeklock.gateway.attendance import Attendance


def test_there_is_room_up_to_the_limit_and_again_when_somebody_leaves() -> None:
    """R-F7."""
    attendance = Attendance(Budget("places", 2))
    assert [attendance.join() for _ in range(3)] == [True, True, False]
    assert attendance.count == 2
    attendance.leave()
    assert attendance.join()


def test_the_limit_is_the_services() -> None:
    """R-F7."""
    assert Attendance().connections_max == 5_000
