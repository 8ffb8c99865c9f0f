"""Which node has which store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def plan(stores: Sequence[str], nodes: int) -> Mapping[str, int]:
    """Tell which node has which store: by turns, so that all have about as many."""
    return {name: number % nodes for number, name in enumerate(stores)}
