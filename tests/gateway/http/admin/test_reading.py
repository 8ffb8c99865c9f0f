"""Untrusted documents: whatever is wrong with them is said, and costs nothing."""

from __future__ import annotations

import pytest

from peeklock.entity.definition import FOREVER_MS
from peeklock.gateway.http.admin.reading import DOCUMENT_BYTES_MAX, MalformedEntry, read_content
from tests.gateway.http.admin.admin_harness import entry, queue

LAUGHS = (
    '<!DOCTYPE e [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
    "<entry><content><QueueDescription>&b;</QueueDescription></content></entry>"
)
FILE = (
    '<!DOCTYPE e [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    "<entry><content><QueueDescription>&a;</QueueDescription></content></entry>"
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"{}",
        b"<entry>",
        b"<entry/>",
        b"<feed/>",
        b"<entry><content/></entry>",
        b"<entry><content><A/><B/></content></entry>",
        b"<entry><content><A></B></content></entry>",
        b"\xff\xfe\x00\x00\xd8",
        b'<?xml version="1.0" encoding="unheard-of"?><entry/>',
        b"<entry><content><p:A/></content></entry>",
        LAUGHS.encode(),
        FILE.encode(),
        b"<e>" * 200_000,
        b"<entry>" + b"<a>" * 40 + b"</a>" * 40 + b"</entry>",
        b"<entry>" + b" " * DOCUMENT_BYTES_MAX + b"</entry>",
    ],
    ids=range(17),
)
def test_a_document_that_is_none_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedEntry):
        read_content(body)


def test_prefixes_and_order_are_the_client_s() -> None:
    body = (
        '<ns0:entry xmlns:ns0="http://www.w3.org/2005/Atom"><ns0:author/>'
        '<ns0:content type="application/xml"><x:QueueDescription xmlns:x="urn:bus">'
        "<x:Unheard><x:Of/></x:Unheard><x:MaxDeliveryCount> 7 </x:MaxDeliveryCount>"
        "</x:QueueDescription></ns0:content></ns0:entry>"
    )
    content = read_content(body.encode())
    assert content.name == "QueueDescription"
    assert content.whole("MaxDeliveryCount") == 7
    assert content.whole("Missing") is None


def test_types_and_nil_are_told_by_their_local_names() -> None:
    body = entry(queue('<A i:type="p:SqlFilter"/><B i:nil="true">x</B><C>  y </C>'))
    content = read_content(body.encode())
    first = content.child("A")
    assert first is not None
    assert first.type == "SqlFilter"
    assert content.text("B") is None
    assert content.text("C") == "  y "


@pytest.mark.parametrize("given", ["true", "True", "1"])
def test_booleans_have_several_forms(given: str) -> None:
    content = read_content(entry(queue(f"<A>{given}</A><B>False</B>")).encode())
    assert content.flag("A") is True
    assert content.flag("B") is False
    assert content.flag("C") is None


def test_the_longest_durations_are_forever() -> None:
    inner = "<A>P10675199DT2H48M5.4775807S</A><B>P10675199DT2H48M5.477539S</B><C>PT1M</C>"
    content = read_content(entry(queue(inner)).encode())
    assert [content.duration_ms(name) for name in "ABC"] == [FOREVER_MS, FOREVER_MS, 60_000]


@pytest.mark.parametrize(
    ("reader", "given"),
    [
        ("flag", "yes"),
        ("whole", "1.5"),
        ("whole", "٣"),
        ("whole", "9" * 5_000),
        ("duration_ms", "1 minute"),
        ("duration_ms", "-PT5S"),
        ("duration_ms", "P" + "9" * 5_000 + "D"),
    ],
)
def test_a_wrong_value_is_malformed(reader: str, given: str) -> None:
    content = read_content(entry(queue(f"<A>{given}</A>")).encode())
    with pytest.raises(MalformedEntry, match="A"):
        getattr(content, reader)("A")


def test_of_several_with_a_name_the_first_counts() -> None:
    content = read_content(entry(queue("<Status>a</Status><x/><Status>b</Status>")).encode())
    assert content.text("Status") == "a"
    nil = '<Status i:nil="true"/><Status>b</Status>'
    assert read_content(entry(queue(nil)).encode()).text("Status") is None
