"""What one node tells or does on behalf of all: figures for `/metrics`, and a reload."""

from collections.abc import Iterable
from typing import Any, final

from peeklock.cluster.node import ClusterNode
from peeklock.gateway.http.figures import Figure, Spans
from peeklock.gateway.http.metrics import Gather
from peeklock.gateway.http.reload import NotReloaded, Reloaded, Reloading

_PREFIX = "peeklock_"


@final
class AllFigures:
    """Figures of every node that can be asked, each with the number of its node."""

    def __init__(self, node: ClusterNode, gather: Gather) -> None:
        self._node = node
        self._gather = gather
        node.answers["figures"] = self._written

    async def __call__(self) -> Iterable[Figure]:
        """Gather here, and ask the others."""
        found = await self._node.ask_all("figures")
        found[self._node.index] = await self._written()
        merged: dict[str, Figure] = {}
        for index, figures in sorted(found.items()):
            for name, kind, text, labels, values in figures:
                figure = merged.get(name)
                if figure is None:
                    figure = Figure(name, kind, text, ("node", *labels), ())
                    merged[name] = figure
                for label_values, value in values:
                    figure.values.append(((str(index), *label_values), _read_value(value)))
        return merged.values()

    async def _written(self) -> list[Any]:
        return [
            [
                figure.name.removeprefix(_PREFIX),
                figure.kind,
                figure.text,
                figure.labels,
                [[labels, _write_value(value)] for labels, value in figure.values],
            ]
            for figure in await self._gather()
        ]


def _write_value(value: float | Spans) -> Any:
    return [value.buckets, value.sum] if isinstance(value, Spans) else value


def _read_value(value: Any) -> float | Spans:
    if not isinstance(value, list):
        return float(value)
    return Spans([(bound, count) for bound, count in value[0]], value[1])


@final
class AllReload:
    """Reloads this node, then the others: the file is the same for all."""

    def __init__(self, node: ClusterNode, reload: Reloading) -> None:
        self._node = node
        self._reload = reload
        node.answers["reload"] = self._reload_here

    async def __call__(self) -> Reloaded:
        """Reload everywhere; NotReloaded says what is wrong, and where."""
        reloaded = await self._reload()
        for index, problem in sorted((await self._node.ask_all("reload")).items()):
            if problem:
                raise NotReloaded(f"node {index}: {problem}")
        return reloaded

    async def _reload_here(self) -> str:
        try:
            await self._reload()
        except NotReloaded as problem:
            return str(problem)
        return ""
