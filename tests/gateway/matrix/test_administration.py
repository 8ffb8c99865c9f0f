"""The authorization matrix of administration over HTTP: every verb on every route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import fromstring

import pytest

from peeklock.auth.sas import generate_sas
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.rules.filter import FalseFilter
from peeklock.entity.rules.rule import Rule
from peeklock.gateway.http.admin import place as places
from peeklock.gateway.http.answer import Answer
from tests.gateway.http.admin.admin_harness import entry, queue, rule, sql, subscription, topic
from tests.gateway.matrix.credentials import (
    CREDENTIALS,
    ENTITY,
    HOST,
    HOUR_MS,
    Credential,
    key_of,
    rule_name,
    rules_at,
)
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

UPDATE: Final = {"if-match": "*"}
FORWARD: Final = "servicebussupplementaryauthorization"
FORWARD_DEAD_LETTERS: Final = "servicebusdlqsupplementaryauthorization"


@dataclass(frozen=True)
class Route:
    """A path; `home` is the entity whose rules count, which may not be there, or none."""

    kind: str
    path: str
    home: str = ""
    description: str = ""
    is_new: bool = False
    # What is answered to each verb if all is well. Whatever is not here is not allowed.
    get: int = 200
    put: int = 0
    update: int = 0
    delete: int = 0


# Protocol 9.1, by hand; all of it takes Manage (protocol 2.3).
ROUTES = [
    Route(places.NAMESPACE, "$namespaceinfo"),
    Route(places.QUEUES, "$Resources/queues"),
    Route(places.TOPICS, "$Resources/topics"),
    Route(places.SUBSCRIPTIONS, "t/Subscriptions", "t"),
    Route(places.RULES, "t/Subscriptions/s/Rules", "t"),
    Route(places.ENTITY, "q", "q", queue(), put=409, update=200, delete=200),
    Route(places.ENTITY, "new-q", "", queue(), True, put=201, update=404, delete=404),
    Route(places.ENTITY, "t", "t", topic(), put=409, update=200, delete=200),
    Route(places.ENTITY, "new-t", "", topic(), True, put=201, update=404, delete=404),
    Route(
        places.SUBSCRIPTION,
        "t/Subscriptions/s",
        "t",
        subscription(),
        put=409,
        update=200,
        delete=200,
    ),
    Route(
        places.SUBSCRIPTION,
        "t/Subscriptions/new",
        "t",
        subscription(),
        True,
        get=404,
        put=201,
        update=404,
        delete=404,
    ),
    Route(
        places.RULE,
        "t/Subscriptions/s/Rules/r",
        "t",
        rule(sql("a = 1")),
        put=409,
        update=200,
        delete=200,
    ),
    Route(
        places.RULE,
        "t/Subscriptions/s/Rules/new",
        "t",
        rule(sql("a = 1")),
        True,
        get=404,
        put=201,
        update=404,
        delete=404,
    ),
]
VERBS: Final = ("GET", "PUT", "UPDATE", "DELETE", "POST", "HEAD", "PATCH", "OPTIONS")


def expected(route: Route, verb: str) -> int:
    """What somebody is answered who may manage."""
    answers = {"GET": route.get, "PUT": route.put, "UPDATE": route.update, "DELETE": route.delete}
    return answers.get(verb, 0) or 405


def gives(credential: Credential, route: Route) -> frozenset[str]:
    return credential.gives() if route.home else credential.gives_on_all()


def looks_missing(credential: Credential, route: Route, verb: str) -> bool:
    """Whether somebody who may not manage sees that a queue or topic is not there: who has a good
    token for it."""
    is_new_home = route.kind == places.ENTITY and route.is_new
    return is_new_home and credential.is_good_for_all() and verb in ("GET", "DELETE")


async def restored(broker: WatchedBroker) -> None:
    """Everything is there that should be, and nothing else."""
    await broker.queue("q")
    await broker.topic("t")
    await broker.broker.put_rule("t/Subscriptions/s", Rule("r", FalseFilter(), None, 1))
    for path in ("new-q", "new-t", "t/Subscriptions/new"):
        await broker.broker.remove(path)
    found = broker.broker.find("ns", "t/Subscriptions/s")
    if "new" in [each.name for each in getattr(found, "rules", ())]:
        await broker.broker.remove_rule("t/Subscriptions/s", "new")


async def ask(broker: WatchedBroker, route: Route, verb: str, credential: Credential) -> Answer:
    # What belongs to no entity is not opened by the rules of one.
    token = credential.token(route.home or "q", route.path, broker.clock.now())
    method = "PUT" if verb == "UPDATE" else verb
    body = entry(route.description).encode() if method == "PUT" else b""
    headers = {"content-type": "application/atom+xml", **(UPDATE if verb == "UPDATE" else {})}
    return await broker.ask(method, f"/{route.path}?api-version=2021-05", token, body, headers)


def check_refusal(answer: Answer) -> str:
    error = fromstring(answer.body())
    assert error.findtext("Code") == str(answer.status) == "401"
    assert ("www-authenticate", "SharedAccessSignature") in answer.headers
    detail = error.findtext("Detail") or ""
    assert "TrackingId:" in detail
    return detail


def test_every_route_has_an_expectation() -> None:
    """Whoever adds a route says here what it answers."""
    kinds = {
        value
        for name, value in vars(places).items()
        if name.isupper() and not name.startswith("_") and name != "DEFAULT_RULE_NAME"
    }
    assert {route.kind for route in ROUTES} == kinds


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.kind} {route.path}")
def test_all_of_administration_takes_the_right_to_manage(route: Route) -> None:
    """What is allowed is done, what is not is refused and changes nothing."""

    async def visit(broker: WatchedBroker) -> None:
        await restored(broker)
        for credential in CREDENTIALS:
            for verb in VERBS:
                said = (str(credential), verb)
                if "Manage" in gives(credential, route):
                    answer = await ask(broker, route, verb, credential)
                    assert answer.status == expected(route, verb), said
                    await restored(broker)
            before = await broker.state()
            for verb in VERBS:
                if "Manage" not in gives(credential, route):
                    answer = await ask(broker, route, verb, credential)
                    if looks_missing(credential, route, verb):
                        assert answer.status == expected(route, verb), (str(credential), verb)
                        continue
                    detail = check_refusal(answer)
                    # What is there is told to nobody who may not manage it.
                    if route.kind == places.ENTITY:
                        assert f"SystemTracker:ns:Queue:{route.path}," in detail
            assert await broker.state() == before, credential

    inhabit(visit)


@pytest.mark.parametrize("verb", ["PUT", "UPDATE"])
@pytest.mark.parametrize(
    ("element", "header"),
    [("ForwardTo", FORWARD), ("ForwardDeadLetteredMessagesTo", FORWARD_DEAD_LETTERS)],
)
@pytest.mark.parametrize("is_queue", [True, False], ids=["queue", "subscription"])
def test_forwarding_takes_the_right_to_send_there(
    verb: str, element: str, header: str, is_queue: bool
) -> None:
    """Who manages an entity may not thereby send to another: a token of its own says that."""

    async def visit(broker: WatchedBroker) -> None:
        await restored(broker)
        await broker.queue("beyond")
        inner = f"<{element}>sb://localhost/beyond</{element}>"
        place = "q" if is_queue else "t/Subscriptions/s"
        description = queue(inner) if is_queue else subscription(inner)
        path = place if verb == "UPDATE" else ("new-q" if is_queue else "t/Subscriptions/new")
        headers = dict(UPDATE) if verb == "UPDATE" else {}
        # One that manages the queue or topic and nothing else, or who may at least make one.
        manager = Credential(ENTITY, frozenset({"Manage"}), ENTITY)
        main = manager.token("q" if is_queue else "t", path, broker.clock.now())
        if path == "new-q":
            manages = rules_at("maker", "new-q")
            broker.bus.namespace_context.keys.set_entity_rules("new-q", manages)
            main = _maker(broker)
        for credential in CREDENTIALS:
            before = await broker.state()
            token = credential.token("beyond", "beyond", broker.clock.now())
            # An empty header is like none: then the token of the request must do, which does not.
            given = headers if not token else {**headers, header: token}
            body = entry(description).encode()
            answer = await broker.ask("PUT", f"/{path}", main, body, given)
            if "Send" in credential.gives():
                assert answer.status in (200, 201), (str(credential), answer.body())
                await _unforwarded(broker, path, is_new=verb == "PUT")
                if path == "new-q":
                    broker.bus.namespace_context.keys.set_entity_rules(
                        "new-q", rules_at("maker", "new-q")
                    )
            else:
                check_refusal(answer)
                assert await broker.state() == before, credential

    inhabit(visit)


def _maker(broker: WatchedBroker) -> str:
    name = rule_name("maker", frozenset({"Manage"}))
    until = broker.clock.now() + HOUR_MS
    return generate_sas(f"sb://{HOST}/new-q", name, key_of("new-q", name), until)


async def _unforwarded(broker: WatchedBroker, path: str, *, is_new: bool) -> None:
    """As it was before, so that the next one asks for the same change."""
    if is_new:
        await broker.broker.remove(path)
    else:
        await restored(broker)


def test_what_is_forwarded_already_needs_no_token_again() -> None:
    """Who changes something else says nothing new about the destination."""

    async def visit(broker: WatchedBroker) -> None:
        await restored(broker)
        await broker.queue("beyond")
        definition = QueueDefinition("q", forward_to="beyond", batched_store_access=False)
        await broker.broker.put_queue(definition, rules_at(ENTITY, "q"))
        manager = Credential(ENTITY, frozenset({"Manage"}), ENTITY)
        token = manager.token("q", "q", broker.clock.now())
        inner = "<MaxDeliveryCount>3</MaxDeliveryCount><ForwardTo>sb://h/beyond</ForwardTo>"
        answer = await broker.ask("PUT", "/q", token, entry(queue(inner)).encode(), dict(UPDATE))
        assert answer.status == 200

    inhabit(visit)
