"""Who is let in, lists and their pages, the namespace, and what is there for nobody."""

from __future__ import annotations

from functools import partial
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from peeklock.auth.rights import LISTEN, MANAGE, SEND
from peeklock.broker.broker import NamespaceLimits
from peeklock.broker.entities import Queue
from peeklock.entity.commands import SendMany
from peeklock.gateway.http.request import HttpRequest
from peeklock.store.memory import MemoryCatalog, MemoryStores
from peeklock.store.store import Store, Unavailable
from peeklock.store.stores import Stores, store_names
from tests.broker.broker_harness import Recorder, settle_down
from tests.gateway.http.admin.admin_harness import (
    ATOM,
    BUS,
    HOST,
    UPDATE,
    AdminHarness,
    counts,
    entry,
    key,
    message,
    queue,
    rule,
    run,
    sql,
    subscription,
    text,
    texts,
    titles,
    topic,
)


def test_without_a_good_token_nothing_is_told() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("orders", queue())
        admin.broker.namespaces.first.keys.set_entity_rules(
            "orders", [key("worker", "secret", SEND | LISTEN), key("owner", "secret", MANAGE)]
        )
        worker = admin.token("https://x/orders", "worker", "secret")
        other = admin.token("https://x/other", "owner", "secret")
        owner = admin.token("https://x/orders", "owner", "secret")
        stale = admin.token()
        admin.clock.advance(1)
        for given, words in (
            (admin.token(key="wrong"), "InvalidSignature"),
            (admin.token(rule="nobody"), "InvalidSignature"),
            ("Bearer a.b.c", "UnsupportedToken"),
            ("nonsense", "MalformedToken"),
            (worker, "Manage,Entity"),
            (other, "InvalidSignature"),
        ):
            for method in ("GET", "PUT", "DELETE"):
                headers = {"authorization": given}
                status, detail = await admin.refusal(method, "orders", headers=headers)
                assert (status, words in detail) == (401, True), (given, detail)
        for path in ("$Resources/queues", "$namespaceinfo", "other"):
            assert (await admin.refusal("GET", path, headers={"authorization": owner}))[0] == 401
        assert (await admin.ask("GET", "orders", headers={"authorization": owner})).status == 200
        admin.clock.advance(60_000)
        status, detail = await admin.refusal("GET", "orders", headers={"authorization": stale})
        assert (status, detail.startswith("ExpiredToken")) == (401, True)
        assert admin.broker.find("ns", "orders") is not None

    run(scenario)


def test_without_any_token_the_service_s_words_are_said() -> None:
    async def scenario(admin: AdminHarness) -> None:
        answer = await admin.node.answer(HttpRequest("GET", "/orders"))
        assert answer.status == 401
        assert b"MissingToken: The authorization header was not found." in answer.body()
        assert ("www-authenticate", "SharedAccessSignature") in answer.headers

    run(scenario)


def test_a_token_may_be_for_the_very_path_that_is_asked() -> None:
    """As the client for JavaScript signs it: the whole address, in lower case, with its query."""

    async def scenario(admin: AdminHarness) -> None:
        await admin.put("Orders", queue())
        for path in ("Orders", "$Resources/Queues", "$namespaceinfo"):
            resource = f"https://localhost:5300/{path}?api-version=2021-05".lower()
            headers = {"authorization": admin.token(resource)}
            assert (await admin.ask("GET", path, headers=headers)).status == 200

    run(scenario)


@pytest.mark.parametrize("path", ["no", "a/b", ""])
def test_what_is_not_there_is_an_empty_list(path: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        feed = await admin.feed(path)
        assert feed.tag == f"{ATOM}feed"
        assert feed.findtext(f"{ATOM}title") == "Publicly Listed Services"
        assert titles(feed) == []

    run(scenario)


@pytest.mark.parametrize("path", ["no/Subscriptions", "no/Subscriptions/no/Rules", "$Resources/x"])
def test_lists_of_what_is_not_there_are_not_found(path: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        assert (await admin.refusal("GET", path))[0] == 404

    run(scenario)


def test_what_is_not_there_below_a_topic_is_not_found() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("news", topic())
        await admin.put("news/Subscriptions/all", subscription())
        for path, where in (
            ("no/Subscriptions/no", "no|no"),
            ("news/Subscriptions/no", "news|no"),
            ("news/Subscriptions/no/Rules/no", "news|no|no"),
            ("news/Subscriptions/all/Rules/no", "news|all|no"),
        ):
            expected = (404, f"Entity 'ns:Topic:{where}' was not found.")
            assert await admin.refusal("GET", path) == expected

    run(scenario)


def test_the_service_document_is_everybody_s() -> None:
    async def scenario(admin: AdminHarness) -> None:
        for target in ("/", "/?api-version=2021-05"):
            answer = await admin.node.answer(HttpRequest("GET", target, {"host": HOST}))
            assert answer.status == 200
            assert b"Publicly Listed Services" in answer.body()
        assert (await admin.node.answer(HttpRequest("PUT", "/", {"host": HOST}))).status == 401

    run(scenario)


OPERATIONS = [
    ("GET", "orders", "Manage,EntityRead claims required for this operation."),
    ("GET", "$Resources/queues", "Manage,EntityRead claims required for this operation."),
    ("GET", "$namespaceinfo", "Manage,EntityRead claims required for this operation."),
    ("PUT", "orders", "Authorization failed for specified action: Manage,EntityWrite."),
    ("PUT", "no", "Authorization failed for specified action: Manage,EntityWrite."),
    ("DELETE", "orders", "Authorization failed for specified action: Manage,EntityDelete."),
    ("GET", "news/Subscriptions/all", "GetSubscription"),
    ("GET", "news/Subscriptions/no", "GetSubscription"),
    ("GET", "news/Subscriptions", "EnumerateSubscriptions"),
    ("PUT", "news/Subscriptions/all", "CreateOrUpdateSubscription"),
    ("DELETE", "news/Subscriptions/all", "DeleteSubscription"),
    ("GET", "news/Subscriptions/all/Rules/$Default", "GetRule"),
    ("GET", "news/Subscriptions/all/Rules", "EnumerateRules"),
    ("PUT", "news/Subscriptions/all/Rules/r", "CreateOrUpdateRule"),
    ("DELETE", "news/Subscriptions/all/Rules/r", "DeleteRule"),
]


@pytest.mark.parametrize(("method", "path", "words"), OPERATIONS)
def test_without_the_right_to_manage_the_service_s_words_are_said(
    method: str, path: str, words: str
) -> None:
    async def scenario(admin: AdminHarness) -> None:
        headers = await workers(admin)
        if " " not in words:
            words_in_full = (
                f"SubCode=40100: Unauthorized : Unauthorized access for '{words}' operation on "
                f"endpoint 'sb://{HOST}/{path}'."
            )
        else:
            words_in_full = words
        said = await admin.refusal(method, path, entry(queue()), headers=headers)
        assert said == (401, words_in_full)

    run(scenario)


def test_without_the_right_to_manage_what_is_missing_looks_missing() -> None:
    async def scenario(admin: AdminHarness) -> None:
        headers = await workers(admin)
        answer = await admin.ask("GET", "no", headers=headers)
        assert (answer.status, b"Publicly Listed Services" in answer.body()) == (200, True)
        status, detail = await admin.refusal("DELETE", "no", headers=headers)
        assert (status, detail.startswith("No service is hosted")) == (404, True)

    run(scenario)


async def workers(admin: AdminHarness) -> dict[str, str]:
    """Some entities, and the headers of somebody who may use them all, and manage none."""
    await admin.put("orders", queue())
    await admin.put("news", topic())
    await admin.put("news/Subscriptions/all", subscription())
    keys = admin.broker.namespaces.first.keys
    keys.set_namespace_rules([*keys.namespace_rules, key("worker", "secret", SEND | LISTEN)])
    return {"authorization": admin.token(rule="worker", key="secret")}


@pytest.mark.parametrize("path", ["", "orders/$deadletterqueue", "b$d", "b%20d"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_names_that_nothing_has_are_refused(path: str, method: str) -> None:
    if (method, path) == ("GET", ""):
        return  # the service document

    async def scenario(admin: AdminHarness) -> None:
        status, detail = await admin.refusal(method, path, entry(queue()))
        assert status == 400
        assert detail.startswith("SubCode=40000.")

    run(scenario)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "orders"),
        ("PATCH", "orders"),
        ("PUT", "$namespaceinfo"),
        ("DELETE", "t/Subscriptions"),
    ],
)
def test_other_methods_are_not_allowed(method: str, path: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        answer = await admin.ask(method, path)
        assert answer.status == 405
        assert answer.headers[0][0] == "allow"

    run(scenario)


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"<entry/>", entry(rule()).encode(), entry(subscription()).encode()]
)
def test_a_body_that_is_no_queue_and_no_topic_changes_nothing(body: bytes) -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("orders", queue())
        before = texts(await admin.get("orders"))
        for path, headers in (("orders", UPDATE), ("new", {})):
            assert (await admin.refusal("PUT", path, body, headers=headers))[0] == 400
        assert texts(await admin.get("orders")) == before
        assert admin.broker.find("ns", "new") is None

    run(scenario)


def test_the_namespace_tells_its_name() -> None:
    async def scenario(admin: AdminHarness) -> None:
        got = texts(await admin.get("$namespaceinfo"))
        assert got["Name"] == "ns"
        assert got["MessagingSKU"] == "Standard"
        assert got["NamespaceType"] == "Messaging"
        assert got["CreatedTime"]

    run(scenario)


def test_pages_follow_each_other_by_their_second_link() -> None:
    async def scenario(admin: AdminHarness) -> None:
        for number in range(5):
            await admin.put(f"q/{number}", queue())
            await admin.put(f"t{number}", topic())
        seen: list[str | None] = []
        path = "$Resources/queues?$skip=0&$top=2"
        while path:
            feed = await admin.feed(path)
            seen += titles(feed)
            links = feed.findall(f"{ATOM}link")
            assert [link.get("rel") for link in links] == ["self", "next"][: len(links)]
            following = links[1].get("href") if len(links) == 2 else None
            path = "" if following is None else following.removeprefix("https://localhost:5300/")
            assert not path or ("$skip=" in path and "$top=2" in path)
        assert seen == [f"q/{number}" for number in range(5)]
        # Without a size, as JavaScript's client goes on, a page has a hundred.
        assert titles(await admin.feed("$Resources/topics?%24skip=2")) == ["t2", "t3", "t4"]
        assert titles(await admin.feed("$Resources/topics?$skip=5")) == []
        assert titles(await admin.feed("$Resources/topics?$top=0")) == []

    run(scenario)


def test_a_page_has_a_hundred_at_most_and_counts_no_others() -> None:
    async def scenario(admin: AdminHarness) -> None:
        for number in range(120):
            await admin.put(f"q{number:03}", queue())
            known = admin.broker.find("ns", f"q{number:03}")
            assert isinstance(known, Queue)
            known.submit(SendMany(Recorder(), [1], [message("m")]))
        feed = await admin.feed("$Resources/queues?$top=1000")
        assert len(titles(feed)) == 100
        for each in feed.iter():
            if each.tag.endswith("}QueueDescription"):
                assert counts(each)["ActiveMessageCount"] == 1

    run(scenario)


@pytest.mark.parametrize("query", ["$skip=-1", "$top=-1", "$skip=x", "$top=" + "9" * 30, "$skip="])
def test_a_page_that_cannot_be_is_refused(query: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        status, detail = await admin.refusal("GET", f"$Resources/queues?{query}")
        assert status == 400
        assert "should be non-negative integer." in detail

    run(scenario)


def test_names_are_read_from_ids_and_titles() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("a/news", topic())
        await admin.put("a%2Fnews/subscriptions/all", subscription())
        await admin.put("a/news/subscriptions/all/rules/r", rule(sql("x=1")))
        for path, title in (
            ("a/news", "a/news"),
            ("a/news/Subscriptions/all", "all"),
            ("a/news/Subscriptions/all/Rules/r", "r"),
            ("a/news/Subscriptions/all/Rules/$Default", "$Default"),
        ):
            answer = await admin.ask("GET", path.lower().replace("$default", "$Default"))
            found = fromstring(answer.body())
            expected = f"https://localhost:5300/{path}?api-version=2024-05"
            assert found.findtext(f"{ATOM}id") == expected
            assert found.findtext(f"{ATOM}title") == title

    run(scenario)


def test_a_full_namespace_is_a_quota() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("one", queue())
        status, detail = await admin.refusal("PUT", "two", entry(queue()))
        assert (status, detail.startswith("SubCode=40300.")) == (403, True)

    run(scenario, limits=NamespaceLimits(entities_max=1))


def test_a_partition_out_of_reach_makes_an_entity_limited() -> None:
    """R-P9."""
    switched = Stores.of(MemoryStores(), store_names(2))
    stores: dict[str, Store] = {each.name: switched.get(each.name) for each in switched.states()}
    away = list(stores)[1]

    async def scenario(admin: AdminHarness) -> None:
        switched.get(away).on_switched = partial(admin.broker.store_switched, away)
        await admin.put("orders", queue("<EnablePartitioning>true</EnablePartitioning>"))
        known = admin.broker.find("ns", "orders")
        assert isinstance(known, Queue)
        for number in range(32):
            sent = message("m", partition_key=str(number))
            known.submit(SendMany(Recorder(), [number], [sent]))
        await settle_down()
        whole = await admin.get("orders")
        assert text(whole, "EntityAvailabilityStatus") == "Available"
        assert counts(whole)["ActiveMessageCount"] == 32
        await switched.offline(away)
        limited = await admin.get("orders")
        assert text(limited, "EntityAvailabilityStatus") == "Limited"
        assert 0 < counts(limited)["ActiveMessageCount"] < 32
        (shown,) = [
            each
            for each in (await admin.feed("$Resources/queues")).iter()
            if each.tag == f"{BUS}QueueDescription"
        ]
        assert text(shown, "EntityAvailabilityStatus") == "Limited"

    run(scenario, stores=stores)


class FullCatalog:
    """A catalog that can be read and takes nothing more."""

    def __init__(self) -> None:
        catalog = MemoryCatalog()
        self.load = catalog.load
        self.close = catalog.close

    async def save(self, namespace: str, kind: str, path: str, text: str) -> None:
        raise Unavailable("the disk is full")

    async def save_all(self, entries: Any) -> None:
        raise Unavailable("the disk is full")

    async def remove(self, namespace: str, kind: str, path: str) -> None:
        raise Unavailable("the disk is full")

    async def replace(self, removed: Any, entries: Any) -> None:
        raise Unavailable("the disk is full")


def test_a_catalog_out_of_reach_can_be_asked_again() -> None:
    async def scenario(admin: AdminHarness) -> None:
        status, _ = await admin.refusal("PUT", "orders", entry(queue()))
        assert status == 503
        assert admin.broker.find("ns", "orders") is None

    run(scenario, catalog=FullCatalog())
