"""What the fixture `servicebus` costs a test: set-up, a queue, tear-down."""

import time
from collections.abc import Callable
from typing import Final

from peeklock.testing import InProcessBroker

_TESTS: Final = 1_000


def main() -> None:
    """Measure, and print a line for each kind of test."""
    with InProcessBroker() as broker:

        def plain() -> None:
            with broker.namespace() as bus:
                bus.create_queue("orders")

        def moved() -> None:
            with broker.namespace() as bus:
                bus.clock.advance(60)

        print(f"the first of a process: {_taken_ms(plain):.2f} ms")
        _tell("set-up and tear-down", [_taken_ms(plain) for _ in range(_TESTS)])
        after: list[float] = []
        for _ in range(_TESTS // 10):
            moved()
            after.append(_taken_ms(plain))
        _tell("the same after a test that has moved the clock", after)


def _taken_ms(test: Callable[[], None]) -> float:
    begun = time.perf_counter()
    test()
    return (time.perf_counter() - begun) * 1000


def _tell(what: str, taken: list[float]) -> None:
    taken.sort()
    print(
        f"{what}: median {taken[len(taken) // 2]:.2f} ms, 99 of 100 within "
        f"{taken[len(taken) * 99 // 100]:.2f} ms, longest {taken[-1]:.2f} ms"
    )


if __name__ == "__main__":
    main()
