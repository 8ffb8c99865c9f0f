"""The page of metrics and the one for readiness: read by Prometheus' own parser."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from peeklock.auth.keyring import KeyRing
from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.budgets import Budgets
from peeklock.clock import ManualClock
from peeklock.entity.blueprint import FIRST_SUBSCRIPTION_LANE
from peeklock.entity.commands import SendMany
from peeklock.entity.definition import TopicDefinition
from peeklock.entity.refusals import BUSY, Refusal
from peeklock.gateway.http.answer import Answer, not_found
from peeklock.gateway.http.figures import Overview
from peeklock.gateway.http.health import READY, Health, ReadyNode
from peeklock.gateway.http.metrics import METRICS, MetricsNode
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.router import ENTITIES, Router
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.gateway.refusals import RefusalWriter
from peeklock.store.figures import StoreFigures
from peeklock.store.stores import StoreState
from peeklock.watchdog import Watchdog
from tests.broker.broker_harness import BrokerHarness, Recorder, message, settle_down

NOW = 1_700_000_000_000
ROOT = "http://localhost/"


class Sight:
    """Everything that can be looked at, with a writer of refusals and a budget that ends."""

    def __init__(self, *, is_guarded: bool = False) -> None:
        clock = ManualClock(NOW)
        count = itertools.count(1)
        self.budgets = Budgets()
        self.overview = Overview(Watchdog(), self.budgets, {"store": StoreFigures()})
        self.overview.store_states = lambda: [StoreState("store", True, "")]
        self.overview.connections["amqp"] = lambda: 3
        self.refusal_writer = RefusalWriter(
            clock=clock,
            random_source=lambda: next(count),
            namespace="ns",
            counts=self.overview.refusals,
        )
        keys = KeyRing(
            [
                AuthorizationRule("root", "secret"),
                AuthorizationRule("worker", "secret", rights=SEND | LISTEN),
            ]
        )
        guard = TokenGuard(keys, clock, self.refusal_writer) if is_guarded else None
        self.node = MetricsNode(self.overview.gather, guard)

    def look(self, **headers: str) -> Answer:
        return asyncio.run(self.node.answer(HttpRequest("GET", METRICS, headers)))

    def values(self) -> dict[str, float]:
        """Every sample by its name and labels."""
        text = self.look().body().decode()
        return {
            sample.name
            + "".join(f" {key}={label}" for key, label in sorted(sample.labels.items())): (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def test_every_budget_is_shown_with_its_limit_and_its_use() -> None:
    sight = Sight()
    budget = sight.budgets.register("http_bytes", 10)
    assert budget.take(7)
    budget.give_back(2)
    assert not budget.take(6)

    found = sight.values()

    assert found["peeklock_budget_limit budget=http_bytes"] == 10
    assert found["peeklock_budget_used budget=http_bytes"] == 5
    assert found["peeklock_budget_peak budget=http_bytes"] == 7
    assert found["peeklock_budget_refused_total budget=http_bytes"] == 1


def test_refusals_are_counted_by_their_kind() -> None:
    sight = Sight()
    for _ in range(2):
        sight.refusal_writer.decline(
            Refusal(BUSY, "no"), entity="q", operation="send", peer="p", count=3
        )
    assert sight.values()[f"peeklock_refusals_total kind={BUSY} namespace=ns"] == 6


def test_the_loop_the_stores_and_the_connections_are_shown() -> None:
    sight = Sight()
    sight.overview.watchdog.steps.note(0.012)
    sight.overview.watchdog.longest_s = 0.012
    sight.overview.watchdog.longest_cause = 'task "a\\b"\nx'
    store = sight.overview.stores["store"]
    store.commits.note(0.002)
    store.commit_bytes.note(5_000)
    store.reserve_bytes = 64

    found = sight.values()

    assert found["peeklock_loop_step_seconds_bucket le=0.01"] == 0
    assert found["peeklock_loop_step_seconds_bucket le=0.025"] == 1
    assert found["peeklock_loop_step_seconds_bucket le=+Inf"] == 1
    assert found["peeklock_loop_step_seconds_count"] == 1
    assert found['peeklock_loop_longest_step_seconds cause=task "a\\b"\nx'] == 0.012
    assert found["peeklock_store_commit_seconds_count store=store"] == 1
    assert found["peeklock_store_commit_bytes_sum store=store"] == 5_000
    assert found["peeklock_store_reserve_bytes store=store"] == 64
    assert found["peeklock_store_online store=store"] == 1
    assert "peeklock_store_free_bytes store=store" not in found
    assert found["peeklock_connections protocol=amqp"] == 3
    assert found["process_resident_memory_bytes"] > 0


def test_who_asks_for_openmetrics_gets_them() -> None:
    answer = Sight().look(accept="application/openmetrics-text; version=1.0.0")
    assert answer.content_type.startswith("application/openmetrics-text")
    parser: Any = openmetrics_parser
    families = parser.text_string_to_metric_families(answer.body().decode())
    assert "peeklock_ready" in {family.name for family in families}


@pytest.mark.parametrize(
    ("rule", "status"),
    [(None, 401), ("worker", 403), ("root", 200)],
    ids=["none", "worker", "root"],
)
def test_where_others_can_reach_it_a_right_to_manage_is_needed(
    rule: str | None, status: int
) -> None:
    headers: dict[str, str] = {}
    if rule is not None:
        headers["authorization"] = generate_sas(ROOT, rule, "secret", NOW + 60_000)
    assert Sight(is_guarded=True).look(**headers).status == status


# --- where it is found


class Entities:
    """Stands where the administration of entities answers."""

    async def answer(self, request: HttpRequest) -> Answer:
        return not_found(request.path)


def ask(router: Router, method: str, target: str) -> Answer:
    answer = router.route(HttpRequest(method, target))
    assert isinstance(answer, Coroutine)
    found: Answer = asyncio.run(answer)
    return found


def test_an_entity_may_have_the_name_of_a_page() -> None:
    sight = Sight()
    router = Router(Health(), {ENTITIES: Entities()}, {METRICS: sight.node})
    assert ask(router, "GET", "/metrics").status == 200
    assert ask(router, "HEAD", "/metrics").status == 200
    assert ask(router, "GET", "/metrics?api-version=2021-05").status == 404
    assert ask(router, "PUT", "/metrics").status == 404
    assert ask(router, "GET", "/metrics/subscriptions").status == 404


@pytest.mark.parametrize(
    ("is_serving", "online", "status"),
    [(True, [True, False], 200), (False, [True, True], 503), (True, [False, False], 503)],
    ids=["one of two", "not serving", "none of two"],
)
def test_ready_means_that_it_makes_sense_to_come(
    is_serving: bool, online: list[bool], status: int
) -> None:
    health = Health()
    health.is_serving = is_serving
    states = [StoreState(f"store-{number}", each, "") for number, each in enumerate(online)]
    router = Router(health, pages={READY: ReadyNode(health, lambda: states)})

    answer = ask(router, "GET", READY)

    assert answer.status == status
    told: dict[str, Any] = json.loads(answer.body())
    assert told["status"] == ("ready" if status == 200 else "not ready")
    assert (told["stores"], told["stores_online"]) == (2, sum(online))


def test_others_have_turns_while_the_lanes_of_one_topic_are_counted() -> None:
    async def whole() -> None:
        bench = BrokerHarness()
        await bench.broker.start()
        topic = await bench.broker.put_topic(TopicDefinition("t"))
        origin = Recorder()
        topic.submit(SendMany(origin, [1], [message("x")]))
        await settle_down()
        worker = topic.partitions.workers[0]
        assert isinstance(worker, PartitionWorker)
        partition = worker._partition
        assert partition is not None
        for number in range(2_000):
            partition._state.lane(FIRST_SUBSCRIPTION_LANE + 2 * number)
        sight = Sight()
        sight.overview.entities = lambda: [topic]
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        figures = await sight.overview.gather()
        counting.cancel()
        assert turns >= 2
        [messages] = [each for each in figures if each.name == "peeklock_messages"]
        assert dict(messages.values)["ns", "ready"] == 0
        await bench.broker.close()

    asyncio.run(whole())
