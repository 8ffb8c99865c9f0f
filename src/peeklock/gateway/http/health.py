"""Whether the broker serves, told in the form of the official emulator."""

from typing import Final, final

from peeklock.gateway.http.answer import Answer

HEALTHY: Final = {"status": "healthy", "message": "Service is healthy."}
UNHEALTHY: Final = {
    "status": "unhealthy",
    "message": "Service not available. Please try after some time.",
}


@final
class Health:
    """Healthy from the moment everything listens until the broker begins to stop."""

    __slots__ = ("is_serving",)

    def __init__(self) -> None:
        self.is_serving = False

    def answer(self) -> Answer:
        """Tell it."""
        return Answer(200, HEALTHY) if self.is_serving else Answer(503, UNHEALTHY)
