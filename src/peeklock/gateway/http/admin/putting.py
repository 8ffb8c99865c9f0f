"""Creating and updating: what a PUT does."""

from typing import Final, final

from peeklock.broker.broker import Broker
from peeklock.broker.changes import KNOWN, NEW, check_expected
from peeklock.broker.counting import Tally, count
from peeklock.broker.entities import Queue, Subscription, Topic
from peeklock.broker.forwarding.destinations import Forwarding
from peeklock.gateway.http.admin.admission import Admission
from peeklock.gateway.http.admin.atom import Asked, AtomEntry, entry_answer
from peeklock.gateway.http.admin.authorization import read_keys
from peeklock.gateway.http.admin.place import ENTITY, SUBSCRIPTION, AdminPath
from peeklock.gateway.http.admin.queues import queue_entry, read_queue
from peeklock.gateway.http.admin.reading import Content, MalformedEntry, read_content
from peeklock.gateway.http.admin.rules import read_rule, rule_entry
from peeklock.gateway.http.admin.subscriptions import (
    read_first_rules,
    read_subscription,
    subscription_entry,
)
from peeklock.gateway.http.admin.topics import read_topic, topic_entry
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.identifiers import RandomSource

_FORWARD_HEADER: Final = "servicebussupplementaryauthorization"
_DEAD_LETTER_HEADER: Final = "servicebusdlqsupplementaryauthorization"


@final
class Putting:
    """Carries out a PUT; If-Match makes it an update, and nothing else does."""

    def __init__(
        self, broker: Broker, admission: Admission, random_source: RandomSource, namespace: str
    ) -> None:
        self._broker = broker
        self._admission = admission
        self._random_source = random_source
        self._namespace = namespace

    async def answer(self, request: HttpRequest, place: AdminPath, asked: Asked) -> Answer:
        """Put what the body describes at a place."""
        content = read_content(request.body)
        expect = KNOWN if "if-match" in request.headers else NEW
        if expect == KNOWN and self._broker.find(self._namespace, place.entity) is None:
            # Before what is wrong with the change of what is not there.
            check_expected(KNOWN, place.entity, is_known=False)
        if place.kind == ENTITY:
            entry = await self._put_entity(request, content, place.path, asked, expect)
        elif place.kind == SUBSCRIPTION:
            _check_name(content, "SubscriptionDescription")
            entry = await self._put_subscription(request, content, place, asked, expect)
        else:
            _check_name(content, "RuleDescription")
            entry = await self._put_rule(content, place, expect)
        return entry_answer(201 if expect == NEW else 200, entry, asked, self._namespace)

    async def _put_entity(
        self, request: HttpRequest, content: Content, path: str, asked: Asked, expect: str
    ) -> AtomEntry:
        # Queues and topics share their names; what the body describes decides.
        if content.name == "QueueDescription":
            return await self._put_queue(request, content, path, asked, expect)
        _check_name(content, "TopicDescription")
        known = self._broker.find(self._namespace, path)
        before = known if isinstance(known, Topic) and expect == KNOWN else None
        definition = read_topic(content, path, None if before is None else before.definition, asked)
        keys = read_keys(content, () if before is None else before.keys, self._random_source)
        topic = await self._broker.put_topic(definition, keys, self._namespace, expect)
        tally = Tally() if expect == NEW else await count(topic)
        return topic_entry(topic, tally, asked, shows_counts=False)

    async def _put_queue(
        self, request: HttpRequest, content: Content, path: str, asked: Asked, expect: str
    ) -> AtomEntry:
        known = self._broker.find(self._namespace, path)
        before = known if isinstance(known, Queue) and expect == KNOWN else None
        definition = read_queue(content, path, None if before is None else before.definition, asked)
        keys = read_keys(content, () if before is None else before.keys, self._random_source)
        self._check_destinations(request, definition, None if before is None else before.definition)
        queue = await self._broker.put_queue(definition, keys, self._namespace, expect)
        tally = Tally() if expect == NEW else await count(queue)
        return queue_entry(queue, tally, asked, shows_counts=False)

    async def _put_subscription(
        self, request: HttpRequest, content: Content, place: AdminPath, asked: Asked, expect: str
    ) -> AtomEntry:
        known = self._broker.find(self._namespace, place.entity)
        before = known.definition if isinstance(known, Subscription) and expect == KNOWN else None
        topic = self._broker.find(self._namespace, place.path)
        # The spelling of the topic's owner stands in the paths of its subscriptions.
        topic_path = place.path if topic is None else topic.path
        definition = read_subscription(content, topic_path, place.subscription, before)
        rules = read_first_rules(content) if expect == NEW else None
        self._check_destinations(request, definition, before)
        subscription = await self._broker.put_subscription(
            definition, rules, self._namespace, expect
        )
        tally = Tally() if expect == NEW else await count(subscription)
        return subscription_entry(subscription, tally, asked, shows_counts=False)

    async def _put_rule(self, content: Content, place: AdminPath, expect: str) -> AtomEntry:
        rule = await self._broker.put_rule(
            place.entity, read_rule(content, place.rule), self._namespace, expect
        )
        subscription = self._broker.find(self._namespace, place.entity)
        assert isinstance(subscription, Subscription), "its rule was put a moment ago"
        return rule_entry(subscription, rule)

    def _check_destinations(
        self, request: HttpRequest, definition: Forwarding, before: Forwarding | None
    ) -> None:
        """Who manages an entity may not thereby send to others; what stays was allowed before."""
        path = definition.forward_to
        if path and (before is None or before.forward_to.lower() != path.lower()):
            self._admission.check_destination(request, _FORWARD_HEADER, path)
        path = definition.forward_dead_letters_to
        if path and (before is None or before.forward_dead_letters_to.lower() != path.lower()):
            self._admission.check_destination(request, _DEAD_LETTER_HEADER, path)


def _check_name(content: Content, name: str) -> None:
    if content.name != name:
        raise MalformedEntry(
            f"The entry describes a '{content.name}', where a '{name}' is expected."
        )
