"""The documents of the administration API: what is written is read again, by us and the broker."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.auth.rights import SEND, AuthorizationRule
from peeklock.client.administration import atom
from peeklock.client.administration.atom import (
    Description,
    Feed,
    Unreadable,
    read_answer,
    write_entry,
)
from peeklock.gateway.http.admin.reading import read_content
from peeklock.gateway.http.admin.rules import read_rule

QUEUE = {
    "LockDuration": "PT30S",
    "MaxSizeInMegabytes": 2048,
    "RequiresSession": True,
    "DeadLetteringOnMessageExpiration": False,
    "MaxDeliveryCount": 5,
    "Status": "Active",
    "ForwardTo": "other",
    "UserMetadata": 'a <b> & "c"\r\n',
}
RULES: list[dict[str, Any]] = [
    {"FilterType": "True"},
    {"FilterType": "False"},
    {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a < 5 AND b = '&'"}},
    {
        "FilterType": "Sql",
        "SqlFilter": {"SqlExpression": "a = @p", "Parameters": {"@p": 5}},
        "Action": {"SqlExpression": "SET a = @q", "Parameters": {"@q": "x"}},
    },
    {
        "FilterType": "Correlation",
        "CorrelationFilter": {
            "Label": "x",
            "Properties": {
                "text": "5",
                "whole": 1 << 40,
                "real": 0.5,
                "yes": True,
                "when": {"type": "dateTime", "text": "2030-01-01T00:00:00Z"},
            },
        },
    },
]


def again(description: Description) -> Description:
    """Read what was written, as an answer has it: with a title."""
    entry = write_entry(description)
    found = read_answer(
        entry.replace(b"<content", f"<title>{description.name}</title><content".encode())
    )
    assert isinstance(found, Description)
    return found


def test_entities_are_read_as_they_are_written() -> None:
    keys = (AuthorizationRule("shop", "key", "second", SEND), AuthorizationRule("all", "k"))
    found = again(Description(atom.QUEUE, "orders/eu", QUEUE, keys=keys))
    assert (found.kind, found.name, found.values) == (atom.QUEUE, "orders/eu", QUEUE)
    assert found.keys == keys


@pytest.mark.parametrize("values", RULES)
def test_rules_are_read_as_they_are_written(values: dict[str, Any]) -> None:
    found = again(Description(atom.RULE, "r", values))
    assert (found.kind, found.name, found.values) == (atom.RULE, "r", values)


@pytest.mark.parametrize("values", RULES)
def test_the_door_reads_what_is_written(values: dict[str, Any]) -> None:
    content = read_content(write_entry(Description(atom.RULE, "r", values)))
    rule = read_rule(content, "r")
    assert rule.name == "r"
    assert (rule.action is not None) == ("Action" in values)


def test_a_new_subscription_brings_its_first_rule() -> None:
    first = Description(atom.RULE, "big", RULES[2])
    content = read_content(write_entry(Description(atom.SUBSCRIPTION, "s", {}), first))
    inner = content.child("DefaultRuleDescription")
    assert inner is not None
    assert inner.text("Name") == "big"


def test_counts_and_pages_are_read() -> None:
    entry = (
        "<entry><title>q</title><content><QueueDescription>"
        "<MessageCount>7</MessageCount><CountDetails><d:ActiveMessageCount "
        'xmlns:d="x">5</d:ActiveMessageCount></CountDetails>'
        "<EntityAvailabilityStatus>Limited</EntityAvailabilityStatus>"
        "</QueueDescription></content></entry>"
    )
    links = '<link rel="self" href="a"/><link rel="next" href="b"/>'
    page = read_answer(f"<feed>{links}{entry}</feed>".encode())
    assert isinstance(page, Feed)
    assert page.has_more
    assert page.entries[0].runtime == {
        "EntityAvailabilityStatus": "Limited",
        "MessageCount": 7,
        "ActiveMessageCount": 5,
    }
    last = read_answer(b"<feed/>")
    assert isinstance(last, Feed)
    assert (last.entries, last.has_more) == ([], False)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no xml",
        b"<other/>",
        b"<entry/>",
        b"<entry><content><Stranger/></content></entry>",
        b"<entry><content><RuleDescription/></content></entry>",
        b'<entry xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><content><RuleDescription>'
        b'<Filter i:type="OddFilter"/></RuleDescription></content></entry>',
        b"<entry><content><QueueDescription><MaxDeliveryCount>many</MaxDeliveryCount>"
        b"</QueueDescription></content></entry>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><entry>&a;</entry>',
    ],
)
def test_what_no_broker_says_is_not_read(content: bytes) -> None:
    with pytest.raises(Unreadable):
        read_answer(content)


def test_refusals_and_namespaces_are_read() -> None:
    assert atom.read_error(b"<Error><Code>409</Code><Detail>it exists</Detail></Error>") == (
        "it exists"
    )
    assert atom.read_error(b"{}") == ""
    told = atom.read_namespace(b"<e><c><NamespaceInfo><Name>ns</Name></NamespaceInfo></c></e>")
    assert told == {"Name": "ns"}
    with pytest.raises(Unreadable):
        atom.read_namespace(b"<e/>")
