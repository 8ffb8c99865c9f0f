"""One step ahead, and no step more."""

from collections.abc import Iterator

import pytest

from peeklock.spark.ahead import ahead


def test_everything_comes_in_order() -> None:
    assert list(ahead(iter(range(1, 100)))) == list(range(1, 100))
    assert list(ahead(iter(()))) == []


def test_what_goes_wrong_is_raised_after_what_came_before() -> None:
    def pages() -> Iterator[int]:
        yield 1
        raise OSError("the broker is gone")

    walking = ahead(pages())
    assert next(walking) == 1
    with pytest.raises(OSError, match="gone"):
        next(walking)


def test_who_stops_early_leaves_nothing_running() -> None:
    asked: list[int] = []

    def pages() -> Iterator[int]:
        for number in range(100):
            asked.append(number)
            yield number + 1

    walking = ahead(pages())
    assert next(walking) == 1
    walking.close()  # type: ignore[attr-defined] # a generator, as all who write `yield` give
    assert len(asked) <= 2
