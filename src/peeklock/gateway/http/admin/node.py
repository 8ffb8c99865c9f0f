"""Administration over HTTP: says what is asked for, by whom, and who carries it out."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

from peeklock.auth.keyring import KeyRing
from peeklock.broker.broker import Broker
from peeklock.broker.changes import EntityError
from peeklock.broker.counting import count, count_all
from peeklock.broker.entities import Entity, Queue, Subscription, Topic
from peeklock.broker.rules import in_order
from peeklock.clock import Clock
from peeklock.entity.definition import QUEUE
from peeklock.entity.refusals import NOT_ALLOWED, UNAUTHORIZED, Refusal
from peeklock.entity.rules.rule import Rule
from peeklock.gateway.http.admin import place as places
from peeklock.gateway.http.admin.admission import Admission
from peeklock.gateway.http.admin.atom import (
    Asked,
    AtomEntry,
    AtomPage,
    empty_answer,
    entry_answer,
    feed_answer,
    nothing_answer,
)
from peeklock.gateway.http.admin.namespace import namespace_entry
from peeklock.gateway.http.admin.place import AdminPath, place_of
from peeklock.gateway.http.admin.putting import Putting
from peeklock.gateway.http.admin.queues import queue_entry
from peeklock.gateway.http.admin.reading import MalformedEntry
from peeklock.gateway.http.admin.refusals import (
    AdminRefusals,
    NotDone,
    nobody_there,
    not_managing,
    out_of_reach,
    wrong,
)
from peeklock.gateway.http.admin.rules import rule_entry
from peeklock.gateway.http.admin.subscriptions import subscription_entry
from peeklock.gateway.http.admin.topics import topic_entry
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.identifiers import RandomSource
from peeklock.gateway.refusals import RefusalWriter
from peeklock.store.store import StoreError

_LISTS: Final = (places.QUEUES, places.TOPICS, places.SUBSCRIPTIONS, places.RULES)
_INT64_DIGITS_MAX: Final = 18

_T = TypeVar("_T")


@final
class AdminNode:
    """Answers GET, PUT and DELETE of entities and rules, and GET of lists and the namespace."""

    def __init__(
        self,
        broker: Broker,
        keys: KeyRing,
        refusal_writer: RefusalWriter,
        clock: Clock,
        random_source: RandomSource,
        namespace: str,
    ) -> None:
        self._broker = broker
        self._namespace = namespace
        self._clock = clock
        self._started_at = clock.now()
        self._admission = Admission(keys, clock)
        self._refusals = AdminRefusals(refusal_writer, self._namespace)
        self._putting = Putting(broker, self._admission, random_source, self._namespace)

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        place = place_of(request)
        if request.path == "/" and request.method == "GET":
            # Everybody may see it, as in the service: there is nothing in it.
            return nothing_answer(Asked(request, self._namespace), self._clock.now())
        try:
            # Before anything else: who may not manage learns little, and who has no token nothing.
            if not self._admission.may_manage(request):
                return self._kept_out(request, place)
            if place is None:
                raise nobody_there()
            return await self._carried_out(request, place)
        except NotDone as error:
            # Not even the tracker says what is there to somebody who may not manage it.
            is_authorized = error.refusal.kind != UNAUTHORIZED
            kind = self._kind(place) if is_authorized else QUEUE
            return self._refusals.answer(error, request, place, kind)

    def _kept_out(self, request: HttpRequest, place: AdminPath | None) -> Answer:
        """Answer who has a good token without the right to manage; a queue or topic that is not
        there looks as it looks to everybody."""
        is_missing = (
            place is not None
            and place.kind == places.ENTITY
            and self._broker.find(self._namespace, place.path) is None
        )
        if is_missing:
            if request.method == "GET":
                return nothing_answer(Asked(request, self._namespace), self._clock.now())
            if request.method == "DELETE":
                raise nobody_there()
        raise not_managing(request, place)

    async def _carried_out(self, request: HttpRequest, place: AdminPath) -> Answer:
        problem = place.problem()
        if problem:
            raise wrong(problem)
        allowed = (
            ("GET",) if place.kind in (*_LISTS, places.NAMESPACE) else ("GET", "PUT", "DELETE")
        )
        if request.method not in allowed:
            text = f"The method {request.method} is not allowed here; {', '.join(allowed)} go."
            raise NotDone(Refusal(NOT_ALLOWED, text), 405, (("allow", ", ".join(allowed)),))
        asked = Asked(request, self._namespace)
        try:
            if request.method == "PUT":
                return await self._putting.answer(request, place, asked)
            if request.method == "DELETE":
                return await self._delete(place)
        except MalformedEntry as error:
            raise wrong(str(error)) from error
        except EntityError as error:
            raise self._refusals.of(error, place) from error
        except StoreError as error:
            raise out_of_reach() from error
        if place.kind in _LISTS:
            return await self._list(place, asked)
        return await self._get(place, asked)

    # One thing.

    async def _get(self, place: AdminPath, asked: Asked) -> Answer:
        entry = await self._entry(place, asked)
        if entry is None and place.kind == places.ENTITY:
            return nothing_answer(asked, self._clock.now())
        if entry is None:
            raise self._refusals.missing(place)
        return entry_answer(200, entry, asked, self._namespace)

    async def _entry(self, place: AdminPath, asked: Asked) -> AtomEntry | None:
        if place.kind == places.NAMESPACE:
            return namespace_entry(self._namespace, self._started_at)
        entity = self._broker.find(self._namespace, place.entity)
        if place.kind == places.RULE:
            rule = _rule(entity, place.rule)
            if rule is None or not isinstance(entity, Subscription):
                return None
            return rule_entry(entity, rule)
        if entity is None:
            return None
        tally = await count(entity)
        if isinstance(entity, Queue):
            return queue_entry(entity, tally, asked)
        if isinstance(entity, Topic):
            return topic_entry(entity, tally, asked)
        return subscription_entry(entity, tally, asked)

    async def _delete(self, place: AdminPath) -> Answer:
        if place.kind == places.RULE:
            entity = self._broker.find(self._namespace, place.entity)
            if _rule(entity, place.rule) is None:
                raise nobody_there()
            await self._broker.remove_rule(place.entity, place.rule, self._namespace)
        elif not await self._broker.remove(place.entity, self._namespace):
            raise nobody_there()
        return empty_answer()

    # Many things.

    async def _list(self, place: AdminPath, asked: Asked) -> Answer:
        if place.kind == places.QUEUES:
            queues = [each for each in self._entities() if isinstance(each, Queue)]
            return await self._feed("Queues", "$Resources/queues", queues, asked, queue_entry)
        if place.kind == places.TOPICS:
            topics = [each for each in self._entities() if isinstance(each, Topic)]
            return await self._feed("Topics", "$Resources/topics", topics, asked, topic_entry)
        entity = self._broker.find(self._namespace, place.entity)
        if place.kind == places.RULES:
            if not isinstance(entity, Subscription):
                raise nobody_there()
            return self._rules_feed(entity, asked)
        if not isinstance(entity, Topic):
            raise nobody_there()
        subscriptions = [each for _, each in sorted(entity.subscriptions.items())]
        path = f"{entity.path}/Subscriptions"
        return await self._feed("Subscriptions", path, subscriptions, asked, subscription_entry)

    async def _feed(
        self,
        title: str,
        path: str,
        entities: Sequence[_T],
        asked: Asked,
        entry_of: Callable[..., AtomEntry],
    ) -> Answer:
        """Answer with a page; only what is on it is counted."""
        page = _page(asked, len(entities))
        shown = entities[page.skip : page.end]
        tallies = await count_all([each for each in shown if isinstance(each, Entity)])
        entries = [
            entry_of(entity, tally, asked) for entity, tally in zip(shown, tallies, strict=True)
        ]
        return feed_answer(title, path, page, entries, asked, self._namespace, self._clock.now())

    def _rules_feed(self, subscription: Subscription, asked: Asked) -> Answer:
        # By name, the one that every subscription has at first before all.
        rules = in_order(subscription.rules)
        page = _page(asked, len(rules))
        entries = [rule_entry(subscription, rule) for rule in rules[page.skip : page.end]]
        path = f"{subscription.path}/Rules"
        return feed_answer("Rules", path, page, entries, asked, self._namespace, self._clock.now())

    def _entities(self) -> list[Queue | Topic]:
        return self._broker.entities(self._namespace)

    def _kind(self, place: AdminPath | None) -> str:
        entity = None if place is None else self._broker.find(self._namespace, place.path)
        return QUEUE if entity is None else entity.kind


def _rule(entity: Entity | None, name: str) -> Rule | None:
    rules = entity.rules if isinstance(entity, Subscription) else ()
    return next((rule for rule in rules if rule.name.lower() == name.lower()), None)


def _page(asked: Asked, length: int) -> AtomPage:
    return AtomPage(_place_in_list("skip", asked.skip), _place_in_list("top", asked.top), length)


def _place_in_list(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _INT64_DIGITS_MAX):
        raise wrong(f"Parameter '{name}' should be non-negative integer.")
    return int(text)
