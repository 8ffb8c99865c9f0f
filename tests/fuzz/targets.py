"""All targets by name: each takes any bytes, and returns what they led to."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.fuzz import documents, engine, http_requests, stored

CORPUS: Final = Path(__file__).parent / "corpus"

Target = Callable[[bytes], str]

TARGETS: Final[dict[str, Target]] = {
    "engine_server": engine.server,
    "engine_client": engine.client,
    "sections": stored.sections,
    "records": stored.records,
    "sas": documents.sas,
    "rules": documents.rules,
    "atom": documents.atom,
    "configuration": documents.configuration,
    "rest": http_requests.rest,
}


def inputs(name: str) -> list[Path]:
    """What is kept for a target."""
    return sorted((CORPUS / name).iterdir())


def outcomes(name: str) -> dict[str, str]:
    """What each of them leads to."""
    return {path.name: TARGETS[name](path.read_bytes()) for path in inputs(name)}
