"""The journal over HTTP: what has happened to the messages of an entity, as raw chunks.

    GET /ENTITY/$journal                               what there is: partitions, positions, lanes
    GET /ENTITY/$journal/PARTITION?after=N&limit=BYTES chunks from position N on

A page is chunks one after the other, each behind its length (u32, little-endian), as they rest;
`store/codec/records.py` reads them. Who may receive from the entity may read its journal. A reader
asks again from the position that the last page named; nothing is remembered about it here.
"""

import asyncio
import struct
from typing import Final, Protocol, final
from urllib.parse import parse_qs, unquote

from peeklock.auth.rights import LISTEN
from peeklock.broker.entity_journal import EntityJournal
from peeklock.gateway.http.answer import Answer, bad_request, not_allowed, not_found, refused
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.store.store import StoreError

SEGMENT: Final = "$journal"
FORMAT: Final = 1

LIMIT_BYTES: Final = 1 << 20
LIMIT_BYTES_MAX: Final = 8 << 20
POSITION_MAX: Final = (1 << 62) - 1
_DIGITS_MAX: Final = 19

# Pages that are read at the same time, and requests that wait for their turn; what comes beyond
# that is to come again later.
READING_MAX: Final = 4
WAITING_MAX: Final = 64

_RETRY: Final = (("retry-after", "1"),)
_CONTENT: Final = "application/octet-stream"
_length: Final = struct.Struct("<I")


class Journals(Protocol):
    """Finds the journals of entities."""

    def journal(self, namespace: str, path: str) -> EntityJournal | None:
        """Give the journal of a queue or topic, or None where there is no such one."""
        ...


@final
class JournalNode:
    """Answers everything below the journals of one namespace."""

    def __init__(self, journals: Journals, guard: TokenGuard, namespace: str) -> None:
        self._journals = journals
        self._guard = guard
        self._namespace = namespace
        self._turns = asyncio.Semaphore(READING_MAX)
        self._waiting = 0

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        # Before anything else: who may not read learns nothing. A token for the entity or for
        # everything is as good as one for the path itself.
        refusal = self._guard.check(request, request.path, LISTEN)
        if refusal is not None:
            return refusal
        place = journal_place(request.path)
        if place is None:
            return not_found(request.path)
        if request.method not in ("GET", "HEAD"):
            return not_allowed(request.method, ["GET", "HEAD"])
        path, partition = place
        journal = self._journals.journal(self._namespace, path)
        if journal is None:
            return refused(
                404,
                f"There is no queue or topic '{path}'; subscriptions and dead letters are in the "
                "journals of their topics and queues.",
            )
        if self._waiting >= WAITING_MAX:
            return _later("Too many read journals just now.")
        self._waiting += 1
        try:
            async with self._turns:
                if partition is None:
                    return await _described(journal)
                return await _page(request, journal, partition)
        finally:
            self._waiting -= 1


def journal_place(path: str) -> tuple[str, str | None] | None:
    """Take a path apart: the entity and, where one is named, the partition; None where it is not
    about a journal."""
    # The cheap answer first: most requests are about something else.
    if "$journal" not in path.lower() and "%24journal" not in path.lower():
        return None
    parts = [unquote(part) for part in path.rstrip("/").split("/")[1:]]
    if len(parts) > 1 and parts[-1].lower() == SEGMENT:
        return "/".join(parts[:-1]), None
    if len(parts) > 2 and parts[-2].lower() == SEGMENT:
        return "/".join(parts[:-2]), parts[-1]
    return None


async def _described(journal: EntityJournal) -> Answer:
    partitions = [
        {
            "index": span.index,
            "first": span.first,
            "next": span.next,
            "available": span.is_available,
        }
        for span in await journal.spans()
    ]
    return Answer(
        200,
        {
            "entity": journal.path,
            "kind": journal.kind,
            "incarnation": journal.incarnation,
            "partitions": partitions,
            "lanes": {str(lane): name for lane, name in journal.lanes().items()},
            "format": FORMAT,
        },
    )


async def _page(request: HttpRequest, journal: EntityJournal, partition: str) -> Answer:
    query = parse_qs(request.target.partition("?")[2])
    index = _number(partition)
    if index is None or index >= journal.count:
        text = f"'{journal.path}' has no partition '{partition}'; it has {journal.count} of them."
        return refused(404, text)
    after = _number(query.get("after", ["0"])[-1])
    if after is None or after > POSITION_MAX:
        return bad_request("'after' must be a position: a number that is not negative.")
    limit = _number(query.get("limit", [str(LIMIT_BYTES)])[-1])
    if not limit:
        return bad_request("'limit' must be a number of bytes, at least 1.")
    try:
        page = await journal.page(index, after, min(limit, LIMIT_BYTES_MAX))
    except StoreError:
        return _later(f"The store of partition {index} of '{journal.path}' is out of reach.")
    parts: list[bytes] = []
    for chunk in page.chunks:
        parts.append(_length.pack(len(chunk)))
        parts.append(chunk)
    headers = (
        ("peeklock-first", str(page.first)),
        ("peeklock-next", str(page.next)),
        ("peeklock-incarnation", journal.incarnation),
    )
    return Answer(200, {}, headers, content=b"".join(parts), content_type=_CONTENT)


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else None


def _later(text: str) -> Answer:
    return Answer(503, {"error": f"{text} Try again later."}, _RETRY)
