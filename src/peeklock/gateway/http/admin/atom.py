"""The envelopes of the answers: entries, feeds and errors (protocol 9.3, 9.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import parse_qs, quote

from peeklock.clock import Instant
from peeklock.gateway.http.admin.writing import escaped, in_attribute, iso_instant
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.request import HttpRequest

PAGE_MAX: Final = 100
_ATOM: Final = "http://www.w3.org/2005/Atom"
_ENTRY_TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"
_FEED_TYPE: Final = "application/atom+xml;type=feed;charset=utf-8"
_ERROR_TYPE: Final = "application/xml; charset=utf-8"
_LATEST: Final = "2024-05"


@final
class Asked:
    """How the client addressed us, which is how it is answered: host and version."""

    def __init__(self, request: HttpRequest, namespace: str) -> None:
        query = parse_qs(request.target.partition("?")[2], keep_blank_values=True)
        self.host = request.headers.get("host") or namespace
        self.version = query.get("api-version", [_LATEST])[-1]
        self.skip = query.get("$skip", ["0"])[-1]
        self.top = query.get("$top", [str(PAGE_MAX)])[-1]

    def url(self, path: str, query: str = "") -> str:
        """Say where something is. Names are read from it, so that it has their spelling."""
        return f"https://{self.host}/{quote(path, safe='/$')}?{query}api-version={self.version}"

    def knows(self, version: str) -> bool:
        """Whether the client's version of the protocol is this one or newer."""
        return self.version >= version


@final
@dataclass(frozen=True, slots=True)
class AtomEntry:
    """One thing in an answer: where it is, its name, its times, and its description in XML."""

    path: str
    title: str
    published: Instant
    updated: Instant
    content: str


def entry_answer(status: int, entry: AtomEntry, asked: Asked, author: str) -> Answer:
    """Answer with one thing."""
    return _answer(status, _entry(entry, asked, author, f' xmlns="{_ATOM}"'), _ENTRY_TYPE)


def feed_answer(
    title: str,
    path: str,
    page: "AtomPage",
    entries: Sequence[AtomEntry],
    asked: Asked,
    author: str,
    now: Instant,
) -> Answer:
    """Answer with a page of a list; the link to the next one is the second, which clients count."""
    links = _link("self", asked.url(path))
    if page.has_more:
        links += _link("next", asked.url(path, f"$skip={page.end}&$top={page.top}&"))
    inner = "".join(_entry(entry, asked, author) for entry in entries)
    return _answer(
        200,
        f'<feed xmlns="{_ATOM}"><title type="text">{escaped(title)}</title>'
        f"<id>{escaped(asked.url(path))}</id><updated>{iso_instant(now)}</updated>"
        f"{links}{inner}</feed>",
        _FEED_TYPE,
    )


def nothing_answer(asked: Asked, now: Instant) -> Answer:
    """Answer as the service does when there is nothing: with the list of what it makes public."""
    return _answer(
        200,
        f'<feed xmlns="{_ATOM}"><title type="text">Publicly Listed Services</title>'
        '<subtitle type="text">This is the list of publicly-listed services currently available.'
        f"</subtitle><id>{escaped(asked.url(''))}</id><updated>{iso_instant(now)}</updated>"
        "<generator>Service Bus 1.1</generator></feed>",
        _FEED_TYPE,
    )


def error_answer(status: int, detail: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Answer why something is not done."""
    xml = f"<Error><Code>{status}</Code><Detail>{escaped(detail)}</Detail></Error>"
    return _answer(status, xml, _ERROR_TYPE, headers)


def empty_answer() -> Answer:
    """Answer that something is done and that nothing is left of it."""
    return Answer(200, {}, content=b"", content_type="")


@final
class AtomPage:
    """A part of a list."""

    def __init__(self, skip: int, top: int, count: int) -> None:
        self.skip = skip
        self.top = min(top, PAGE_MAX)
        self.end = min(skip + self.top, count)
        # Without a size there is no next page, only this one again.
        self.has_more = skip + self.top < count and self.top > 0


def _entry(entry: AtomEntry, asked: Asked, author: str, namespace: str = "") -> str:
    url = asked.url(entry.path)
    return (
        f'<entry{namespace}><id>{escaped(url)}</id><title type="text">{escaped(entry.title)}'
        f"</title><published>{iso_instant(entry.published)}</published>"
        f"<updated>{iso_instant(entry.updated)}</updated>"
        f"<author><name>{escaped(author)}</name></author>{_link('self', url)}"
        f'<content type="application/xml">{entry.content}</content></entry>'
    )


def _link(relation: str, url: str) -> str:
    return f'<link rel="{relation}" href="{in_attribute(url)}"/>'


def _answer(
    status: int, xml: str, content_type: str, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    return Answer(status, {}, headers, content=xml.encode(), content_type=content_type)
