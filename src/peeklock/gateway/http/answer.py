"""What the HTTP door answers: a status and a JSON document."""

import json
from dataclasses import dataclass
from typing import Any, Final, final


@final
@dataclass(slots=True, init=False)
class Answer:
    """One answer."""

    status: Final[int]
    document: Final[dict[str, Any]]

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self.status = status
        self.document = document

    def body(self) -> bytes:
        """Write the document."""
        return json.dumps(self.document).encode()


def not_found(path: str) -> Answer:
    """Say that there is nothing at this path."""
    return Answer(404, {"status": 404, "message": f"There is nothing at '{path}'."})


def not_allowed(method: str) -> Answer:
    """Say that the method does not fit the path."""
    return Answer(405, {"status": 405, "message": f"The method {method} is not allowed here."})


def bad_request(problem: str) -> Answer:
    """Say what is wrong with a request."""
    return Answer(400, {"status": 400, "message": problem})
