"""Reads the documents of administration clients: hardened, bounded, and clear about what is wrong.

Clients choose the prefixes of their namespaces freely and differ in the order of elements, so that
elements are found by their local names. What is not known, or not the client's to say, is ignored.
"""

from typing import Any, Final, final
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from peeklock.durations import LONGEST_DURATION_MS, parse_duration
from peeklock.entity.definition import FOREVER_MS

# Twelve keys, or a rule with the longest texts, are far below this; no larger body is read.
DOCUMENT_BYTES_MAX: Final = 64 * 1024
# The deepest of ours have nine levels.
_DEPTH_MAX: Final = 32
_INT64_DIGITS_MAX: Final = 19


class MalformedEntry(Exception):
    """A document that cannot be what it should be; the text says why."""


def read_content(body: bytes) -> "Content":
    """Read an ATOM entry and give the description in it."""
    if len(body) > DOCUMENT_BYTES_MAX:
        raise MalformedEntry(
            f"The document has {len(body)} bytes, at most {DOCUMENT_BYTES_MAX} go."
        )
    entry = Content(_parse(body))
    if entry.name != "entry":
        raise MalformedEntry(f"The document is a '{entry.name}' and not an ATOM entry.")
    content = entry.child("content")
    described = [] if content is None else content.children()
    if len(described) != 1:
        raise MalformedEntry("The entry must have a content with one description.")
    return described[0]


@final
class Content:
    """An element with children; reading a wrong value is Malformed, a missing one is None."""

    def __init__(self, element: Element) -> None:
        self._element = element
        # The first element of each name, found when one is asked for: who asks, asks for many.
        self._first: dict[str, Element] | None = None

    @property
    def name(self) -> str:
        """The local name."""
        return _local(self._element.tag)

    @property
    def type(self) -> str:
        """What the element says that it is (`i:type`), without its prefix; empty for nothing."""
        return self._attribute("type").rpartition(":")[2]

    @property
    def value(self) -> str:
        """The text within, to the character."""
        return self._element.text or ""

    @property
    def is_nil(self) -> bool:
        """Whether the element says that it has no value."""
        return self._attribute("nil").lower() in ("true", "1")

    def children(self, name: str = "") -> list["Content"]:
        """The elements within, or those of a name."""
        found = [Content(child) for child in self._element]
        return [child for child in found if not name or child.name == name]

    def child(self, name: str) -> "Content | None":
        """The first element of a name; one that says that it is nil is not there."""
        if self._first is None:
            # From the last one on, so that the first of a name stays.
            self._first = {_local(each.tag): each for each in reversed(self._element)}
        element = self._first.get(name)
        found = None if element is None else Content(element)
        return None if found is None or found.is_nil else found

    def text(self, name: str) -> str | None:
        """A text, to the character."""
        found = self.child(name)
        return None if found is None else found.value

    def flag(self, name: str) -> bool | None:
        """A boolean in one of XML's four forms, in any case."""
        given = self._stripped(name)
        if not given:
            return None
        if given.lower() not in ("true", "false", "1", "0"):
            raise MalformedEntry(f"The value '{given[:64]}' of {name} is not a boolean.")
        return given.lower() in ("true", "1")

    def whole(self, name: str) -> int | None:
        """A whole number."""
        given = self._stripped(name)
        if not given:
            return None
        digits = given.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _INT64_DIGITS_MAX
        if not is_number:
            raise MalformedEntry(f"The value '{given[:64]}' of {name} is not a whole number.")
        return int(given)

    def duration_ms(self, name: str) -> int | None:
        """A duration; the longest there is, or nearly, means forever."""
        given = self._stripped(name)
        if not given:
            return None
        try:
            duration_ms = parse_duration(given)
        except ValueError as error:
            text = f"The value '{given[:64]}' of {name} is not an ISO-8601 duration such as PT1M."
            raise MalformedEntry(text) from error
        return FOREVER_MS if duration_ms >= LONGEST_DURATION_MS else duration_ms

    def _stripped(self, name: str) -> str:
        return (self.text(name) or "").strip()

    def _attribute(self, name: str) -> str:
        values = [value for key, value in self._element.items() if _local(key) == name]
        return values[0] if values else ""


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _parse(body: bytes) -> Element:
    # No document type: that is where entities, and files to be read, would be declared.
    parser = DefusedXMLParser(target=_Shallow(), forbid_dtd=True)
    try:
        parser.feed(body)
        root: Element = parser.close()
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise MalformedEntry(
            f"The document is not well-formed XML that is read here: {error}."
        ) from error
    return root


@final
class _Shallow:
    """Builds the tree as long as it is not too deep."""

    def __init__(self) -> None:
        self._builder = TreeBuilder()
        self._depth = 0

    def start(self, tag: str, attributes: dict[Any, Any]) -> Element:
        """An element begins."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise MalformedEntry(f"The document is deeper than {_DEPTH_MAX} elements.")
        return self._builder.start(tag, attributes)

    def end(self, tag: str) -> Element:
        """An element ends."""
        self._depth -= 1
        return self._builder.end(tag)

    def data(self, data: str) -> None:
        """There is text."""
        self._builder.data(data)

    def close(self) -> Element:
        """The document ends."""
        return self._builder.close()
