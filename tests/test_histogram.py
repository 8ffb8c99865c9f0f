from peeklock.histogram import Histogram


def test_values_are_counted_by_the_bound_that_holds_them() -> None:
    found = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 2.0, 11.0):
        found.note(value)
    assert found.counts == [2, 1, 1]
    assert (found.count, found.sum, found.largest) == (4, 14.5, 11.0)
