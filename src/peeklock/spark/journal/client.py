"""Reads the journal of an entity over the broker's HTTP, and waits for one that is away.

It blocks, because a task of Spark has nothing else to do, and needs nothing but Python's own
library. One connection is kept as long as it works.
"""

import json
import random
import ssl
import struct
import time
from dataclasses import dataclass
from typing import Any, Final, Self, final
from urllib.parse import quote

from peeklock.client.administration.errors import ServiceRequestError
from peeklock.client.administration.http_client import (
    HttpAnswer,
    HttpClient,
    HttpEndpoint,
    http_endpoint,
)

FORMAT: Final = 1
LIMIT_BYTES: Final = 4 << 20

_TIMEOUT_S: Final = 60.0
_DEADLINE_S: Final = 120.0
_PAUSE_S_MIN: Final = 0.1
_PAUSE_S_MAX: Final = 5.0
# Answers that are worth another try: the store is away, the broker is starting or busy.
_AGAIN: Final = frozenset({500, 502, 503, 504})
_length: Final = struct.Struct("<I")


class JournalError(Exception):
    """The journal cannot be read, and trying again would not help."""


class JournalGone(JournalError):
    """What was asked for is not there: the entity, or the one that had its name before."""


class JournalUnavailable(JournalError):
    """The broker or a store stayed away until the deadline."""


@final
@dataclass(frozen=True, slots=True)
class JournalPartition:
    """How far the journal of a partition reaches."""

    index: int
    first: int  # the oldest position that is still there
    next: int  # the position behind the last one
    is_available: bool


@final
@dataclass(frozen=True, slots=True)
class JournalDescription:
    """What there is to be read of an entity."""

    entity: str
    incarnation: str
    partitions: tuple[JournalPartition, ...]
    lanes: dict[int, str]


@final
@dataclass(frozen=True, slots=True)
class FetchedPage:
    """Some chunks of a partition; `first` says where its journal begins now."""

    first: int
    next: int
    incarnation: str
    chunks: list[bytes]


@final
class JournalClient:
    """Reads the journals of a namespace; it blocks, and waits for a broker that is away.

    from peeklock.spark.facts import FactDecoder
    from peeklock.spark.journal_client import JournalClient

    with JournalClient(BUS) as client:
        journal = client.describe("orders")
        for partition in journal.partitions:
            page = client.page("orders", partition.index, partition.first)
            decoder = FactDecoder("orders", partition.index, journal.lanes)
            for chunk in page.chunks:
                decoder.add(chunk)
            print(decoder.take().to_pandas())
    """

    def __init__(
        self,
        connection_string: str,
        *,
        http_port: int = 0,
        ca_file: str = "",
        timeout_s: float = _TIMEOUT_S,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        """Find the broker; nothing is sent yet. A ValueError says what is wrong.

        Parameters:
            connection_string: as for all clients; its key needs the right Listen.
            http_port: the broker's port for HTTP, where the string does not say it.
            ca_file: the authority that is trusted; it also turns encryption on.
            timeout_s: how long one answer is waited for.
            deadline_s: how long is asked again while the broker or a store is away.
        """
        endpoint = http_endpoint(connection_string, http_port, ca_file)
        self._http = HttpClient(endpoint, timeout_s=timeout_s)
        self._deadline_s = deadline_s

    @classmethod
    def of(cls, endpoint: HttpEndpoint) -> Self:
        """Make a client of what was read already; it asks once, for somebody who waits."""
        client = cls.__new__(cls)
        client._http = HttpClient(endpoint, timeout_s=_TIMEOUT_S)
        client._deadline_s = 0.0
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection that is kept."""
        self._http.close()

    def describe(self, entity: str) -> JournalDescription:
        """Return which partitions the journal of a queue or topic has, and how far they reach.

        Raises JournalGone where there is no such entity, JournalUnavailable where the broker stays
        away until the deadline, JournalError for every other refusal.
        """
        answer = self._get(f"/{_quoted(entity)}/$journal")
        try:
            return _description(json.loads(answer.content))
        except (ValueError, KeyError, TypeError) as error:
            raise self._has_no_journal() from error

    def page(
        self, entity: str, partition: int, after: int, limit_bytes: int = LIMIT_BYTES
    ) -> FetchedPage:
        """Return the chunks of a partition from a position on, as many as `limit_bytes` allow.

        The first chunk may begin before the position, and `next` of the page is where to go on.
        Raises what `describe` raises.
        """
        path = f"/{_quoted(entity)}/$journal/{partition}?after={after}&limit={limit_bytes}"
        answer = self._get(path)
        headers = answer.headers
        try:
            first, next = int(headers["peeklock-first"]), int(headers["peeklock-next"])
            chunks = _cut(answer.content)
        except (KeyError, ValueError, struct.error) as error:
            raise self._has_no_journal() from error
        return FetchedPage(first, next, headers.get("peeklock-incarnation", ""), chunks)

    # Asking.

    def _has_no_journal(self) -> JournalError:
        port = self._http.endpoint.port
        return JournalError(f"what answers on port {port} has no journal")

    def _get(self, target: str) -> HttpAnswer:
        """Ask until there is an answer or the time is over."""
        give_up_at = time.monotonic() + self._deadline_s
        pause_s = _PAUSE_S_MIN
        while True:
            wait_s = 0.0
            try:
                answer = self._http.request("GET", target)
                if answer.status == 200:
                    return answer
                problem = _problem(answer.status, answer.content)
                if answer.status not in _AGAIN:
                    raise JournalGone(problem) if answer.status == 404 else JournalError(problem)
                told = answer.headers.get("retry-after", "")
                wait_s = float(told) if told.isdigit() else 0.0
            except ServiceRequestError as error:
                problem = f"no answer from port {self._http.endpoint.port}: {error.__cause__}"
                if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                    # It stays so, and waiting would only hide it.
                    advice = "caFile, or ca_file, names the authority that is trusted"
                    raise JournalError(f"{problem} ({advice})") from error
            # Tasks that failed together do not come back together.
            wait_s = max(wait_s, pause_s) * random.uniform(0.5, 1.0)
            if time.monotonic() + wait_s > give_up_at:
                raise JournalUnavailable(problem)
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def _quoted(entity: str) -> str:
    return quote(entity.strip("/"), safe="/")


def _description(document: dict[str, Any]) -> JournalDescription:
    if document["format"] != FORMAT:
        raise JournalError(
            f"the broker writes its journal in format {document['format']}, which is not known here"
        )
    partitions = tuple(
        JournalPartition(each["index"], each["first"], each["next"], each["available"])
        for each in document["partitions"]
    )
    lanes = {int(lane): name for lane, name in document["lanes"].items()}
    return JournalDescription(document["entity"], document["incarnation"], partitions, lanes)


def _cut(content: bytes) -> list[bytes]:
    """Take a page apart into its chunks."""
    chunks: list[bytes] = []
    at = 0
    while at < len(content):
        size: int = _length.unpack_from(content, at)[0]
        at += _length.size
        if at + size > len(content):
            raise ValueError("the page is cut off")
        chunks.append(content[at : at + size])
        at += size
    return chunks


def _problem(status: int, content: bytes) -> str:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    text = document.get("error") if isinstance(document, dict) else None
    return str(text) if text else f"the broker answered with status {status}"
