"""Administration of a broker in memory: asked with documents, read as documents."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any
from xml.etree.ElementTree import Element, fromstring

from peeklock.auth.rights import (
    DEVELOPMENT_KEY,
    ROOT_RULE_NAME,
    AuthorizationRule,
    development_rule,
)
from peeklock.auth.sas import generate_sas
from peeklock.broker.broker import NamespaceLimits
from peeklock.entity.message import Message, Traits
from peeklock.gateway.http.admin.node import AdminNode
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.hosts import make_namespaces
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.refusals import RefusalWriter
from peeklock.store.store import Catalog, Store
from tests.broker.broker_harness import BrokerHarness

ATOM = "{http://www.w3.org/2005/Atom}"
BUS = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
COUNTS = "{http://schemas.microsoft.com/netservices/2011/06/servicebus}"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
HOST = "localhost:5300"
UPDATE = {"if-match": "*"}


class AdminHarness:
    """Asks as a client does whose key is good for everything, unless it is told otherwise."""

    def __init__(
        self,
        *,
        stores: dict[str, Store] | None = None,
        catalog: Catalog | None = None,
        limits: NamespaceLimits | None = None,
    ) -> None:
        namespaces, _ = make_namespaces(
            {"ns": [development_rule()]}, lambda space, path: self.broker.find(space, path)
        )
        self.bench = BrokerHarness(
            catalog=catalog, stores=stores, limits=limits, namespaces=namespaces
        )
        self.broker = self.bench.broker
        self.clock = self.bench.clock
        count = itertools.count(1)

        def random_source() -> int:
            return next(count)

        refusal_writer = RefusalWriter(
            clock=self.clock, random_source=random_source, namespace="ns"
        )
        self.node = AdminNode(
            self.broker,
            self.broker.namespaces.first.keys,
            refusal_writer,
            self.clock,
            random_source,
            "ns",
        )

    def token(
        self,
        resource: str = f"https://{HOST}",
        rule: str = ROOT_RULE_NAME,
        key: str = DEVELOPMENT_KEY,
    ) -> str:
        return generate_sas(resource, rule, key, self.clock.now() + 60_000)

    async def ask(
        self,
        method: str,
        path: str,
        body: str | bytes = b"",
        headers: dict[str, str] | None = None,
        version: str = "2024-05",
    ) -> Answer:
        mark = "&" if "?" in path else "?"
        asked = {"host": HOST, "authorization": self.token(), **(headers or {})}
        raw = body.encode() if isinstance(body, str) else body
        request = HttpRequest(method, f"/{path}{mark}api-version={version}", asked, raw, "peer:1")
        return await self.node.answer(request)

    async def put(
        self, path: str, description: str, headers: dict[str, str] | None = None, **facts: Any
    ) -> Element:
        """Put something and give its description as it is answered."""
        answer = await self.ask("PUT", path, entry(description), headers, **facts)
        is_update = headers is not None and "if-match" in headers
        assert answer.status == (200 if is_update else 201), answer.body()
        return described(answer)

    async def get(self, path: str, **facts: Any) -> Element:
        answer = await self.ask("GET", path, **facts)
        assert answer.status == 200, answer.body()
        return described(answer)

    async def feed(self, path: str) -> Element:
        answer = await self.ask("GET", path)
        assert answer.status == 200, answer.body()
        assert answer.content_type == "application/atom+xml;type=feed;charset=utf-8"
        return fromstring(answer.body())

    async def refusal(
        self, method: str, path: str, body: str | bytes = b"", **facts: Any
    ) -> tuple[int, str]:
        """What is said about something that is not done."""
        return said(await self.ask(method, path, body, **facts))


def said(answer: Answer) -> tuple[int, str]:
    assert answer.content_type == "application/xml; charset=utf-8", answer.body()
    error = fromstring(answer.body())
    assert error.tag == "Error"
    assert error.findtext("Code") == str(answer.status)
    detail = error.findtext("Detail") or ""
    assert "TrackingId:" in detail
    return answer.status, detail.partition(" TrackingId:")[0]


def entry(description: str) -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?><entry xmlns="http://www.w3.org/2005/Atom">'
        f'<content type="application/xml">{description}</content></entry>'
    )


def description(name: str, inner: str = "") -> str:
    return f'<{name} xmlns="{BUS[1:-1]}" xmlns:i="{XSI}">{inner}</{name}>'


def queue(inner: str = "") -> str:
    return description("QueueDescription", inner)


def topic(inner: str = "") -> str:
    return description("TopicDescription", inner)


def subscription(inner: str = "") -> str:
    return description("SubscriptionDescription", inner)


def rule(inner: str = "") -> str:
    return description("RuleDescription", inner)


def sql(text: str) -> str:
    return f'<Filter i:type="SqlFilter"><SqlExpression>{text}</SqlExpression></Filter>'


def described(answer: Answer) -> Element:
    assert answer.content_type == "application/atom+xml;type=entry;charset=utf-8"
    content = fromstring(answer.body()).find(f"{ATOM}content")
    assert content is not None
    assert len(content) == 1
    return content[0]


def text(element: Element, name: str) -> str | None:
    return element.findtext(f"{BUS}{name}")


def texts(element: Element) -> dict[str, str]:
    """All properties that have no children."""
    return {each.tag.removeprefix(BUS): each.text or "" for each in element if len(each) == 0}


def counts(element: Element) -> dict[str, int]:
    details = element.find(f"{BUS}CountDetails")
    assert details is not None
    return {each.tag.removeprefix(COUNTS): int(each.text or "") for each in details}


def titles(feed: Element) -> list[str | None]:
    return [each.findtext(f"{ATOM}title") for each in feed.findall(f"{ATOM}entry")]


def message(content: str, **facts: Any) -> Message:
    return Message(b"", content.encode(), Traits(**facts))


def key(name: str, secret: str, rights: int) -> AuthorizationRule:
    return AuthorizationRule(name, secret, rights=rights)


def run(scenario: Callable[[AdminHarness], Awaitable[None]], **facts: Any) -> None:
    async def limited() -> None:
        admin = AdminHarness(**facts)
        await admin.broker.start()
        try:
            await asyncio.wait_for(scenario(admin), 20)
        finally:
            await admin.broker.close()

    asyncio.run(limited())
