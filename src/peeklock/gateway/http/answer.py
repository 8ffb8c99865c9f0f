"""What is answered over HTTP: a status, and a JSON document or other content."""

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, final


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; headers are those beside the ones that every answer has.

    Content, where it is given, stands instead of the document; its type may be none.
    """

    status: int
    document: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()
    _: KW_ONLY
    content: bytes | None = None
    content_type: str = "application/json"

    def body(self) -> bytes:
        """Write what is said."""
        return json.dumps(self.document).encode() if self.content is None else self.content


def refused(status: int, text: str) -> Answer:
    """Say why something is not done."""
    return Answer(status, {"error": text})


def not_found(path: str) -> Answer:
    """Say that there is nothing at this path."""
    return refused(404, f"There is nothing at '{path}'.")


def not_allowed(method: str, allowed: Sequence[str]) -> Answer:
    """Say that the method does not fit the path, and which do."""
    text = f"The method {method} is not allowed here; {' and '.join(allowed)} are."
    if len(allowed) == 1:
        text = f"The method {method} is not allowed here; {allowed[0]} is."
    return Answer(405, {"error": text}, (("allow", ", ".join(allowed)),))


def bad_request(problem: str) -> Answer:
    """Say what is wrong with a request."""
    return refused(400, problem)
