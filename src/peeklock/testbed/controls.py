"""The controls of a broker under test: all that a test may do to it, in process or over HTTP."""

import asyncio
from typing import Final, final

from peeklock.broker.broker import Broker
from peeklock.broker.timers import LoopTimers
from peeklock.budgets import Budgets
from peeklock.clock import Instant, MovedClock, SystemClock
from peeklock.gateway.http.figures import Overview
from peeklock.gateway.listening.connections import AmqpConnections
from peeklock.gateway.quotas.connection_quota import budget_name
from peeklock.settings import Settings
from peeklock.testbed.made_namespaces import MadeNamespaces

# A long way is gone in so many steps at most: each of them lets all partitions decide.
_STEPS_MAX: Final = 500
# So many turns of the loop are enough for a decision in memory, its replies and what these lead to.
_TURNS: Final = 10


@final
class Controls:
    """Made before the parts of the broker, which take the clock from here; they join later."""

    def __init__(self, settings: Settings) -> None:
        self.clock: Final = MovedClock(SystemClock())
        self.timers: Final = LoopTimers(self.clock, asyncio.get_running_loop(), is_moved=True)
        self._settings: Final = settings
        self._amqp: AmqpConnections | None = None
        self._namespaces: MadeNamespaces | None = None
        # Where clients find it, once it listens.
        self.place = ""

    def join(
        self, broker: Broker, amqp: AmqpConnections, budgets: Budgets, overview: Overview
    ) -> None:
        """Take the parts that are to be controlled."""

        def forget(namespace: str) -> None:
            budgets.forget(budget_name(namespace))
            for place in [each for each in overview.refusals if each[0] == namespace]:
                del overview.refusals[place]

        self._amqp = amqp
        self._namespaces = MadeNamespaces(self._settings, broker, amqp, forget)

    @property
    def namespaces(self) -> MadeNamespaces:
        """Those that are made and dropped while it serves."""
        assert self._namespaces is not None, "the parts have joined"
        return self._namespaces

    async def advance(self, duration_ms: int, *, tokens: bool = False) -> Instant:
        """Let time pass at once, from deadline to deadline, so that what follows from one is there
        when the next one comes; answers the instant that it is then.

        Tokens end by the clock on the wall, which goes along only when that is asked for.
        """
        if duration_ms < 0:
            raise ValueError("A clock does not run backwards.")
        left_ms = duration_ms
        step_ms = max(1, duration_ms // _STEPS_MAX)
        while left_ms > 0:
            next_at = self.timers.next_at
            until_next_ms = left_ms if next_at is None else next_at - self.clock.now()
            moved_ms = min(left_ms, max(step_ms, until_next_ms))
            self.clock.advance(moved_ms)
            if tokens:
                self.clock.advance_wall(moved_ms)
            left_ms -= moved_ms
            self.timers.look()
            await _settled()
        assert self._amqp is not None, "the parts have joined"
        self._amqp.look()
        await _settled()
        return self.clock.now()


async def _settled() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
