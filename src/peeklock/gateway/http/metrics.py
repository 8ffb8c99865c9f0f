"""The page `/metrics`: figures that are kept anyway, in the form that Prometheus reads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias, final

from peeklock.auth.rights import MANAGE
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.figures import COUNTER, GAUGE, Figure, Spans
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.token_guard import TokenGuard

if TYPE_CHECKING:
    from prometheus_client import Metric

METRICS: Final = "/metrics"

Gather: TypeAlias = Callable[[], Awaitable[Iterable[Figure]]]


@final
class MetricsNode:
    """Answers `GET /metrics`. Looking opens no partition and waits for no store."""

    def __init__(self, gather: Gather, guard: TokenGuard | None) -> None:
        """Without a guard everybody may look: the listener is this machine's own."""
        self._gather = gather
        self._guard = guard

    async def answer(self, request: HttpRequest) -> Answer:
        """Gather on the loop, which takes little; write it down on a thread, which takes longer."""
        if self._guard is not None:
            refusal = self._guard.check(request, "", MANAGE)
            if refusal is not None:
                return refusal
        figures = await self._gather()
        accept = request.headers.get("accept", "")
        content, content_type = await asyncio.to_thread(written, figures, accept)
        return Answer(200, {}, content=content, content_type=content_type)


def written(figures: Iterable[Figure], accept: str) -> tuple[bytes, str]:
    """Write figures, and those of the process, in the form that was asked for."""
    # Imported with the first look: most brokers start without one, and it takes a while.
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Collector(figures))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collector:
    """Hands figures to the library, once."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self._figures = figures

    def describe(self) -> Iterable["Metric"]:
        """Nothing to compare with: names are ours, and used once."""
        return ()

    def collect(self) -> Iterable["Metric"]:
        """Give each figure in the library's words."""
        return [_metric(figure) for figure in self._figures]


def _metric(figure: Figure) -> "Metric":
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    if figure.kind in (COUNTER, GAUGE):
        family = CounterMetricFamily if figure.kind == COUNTER else GaugeMetricFamily
        plain = family(figure.name, figure.text, labels=figure.labels)
        for labels, value in figure.values:
            assert not isinstance(value, Spans)
            plain.add_metric(labels, value)
        return plain
    spread = HistogramMetricFamily(figure.name, figure.text, labels=figure.labels)
    for labels, value in figure.values:
        assert isinstance(value, Spans)
        spread.add_metric(labels, value.buckets, value.sum)
    return spread
