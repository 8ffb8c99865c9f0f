"""Backups that cannot be made: who asks is told why, by the kind of the store."""

import pytest

from peeklock.clock import ManualClock
from peeklock.gateway.http.operator.backups import Backups
from peeklock.settings import MEMORY, POSTGRES, Settings
from peeklock.store.memory import MemoryCatalog, MemoryStores
from peeklock.store.retention import Retention
from peeklock.store.store import StoreError
from peeklock.store.stores import Stores


@pytest.mark.parametrize(
    ("store", "text"), [(MEMORY, "in memory has no"), (POSTGRES, "the backups of its database")]
)
def test_who_asks_for_what_cannot_be_is_told_why(store: str, text: str) -> None:
    stores = Stores.of(MemoryStores(Retention()), ["store"])
    backups = Backups(stores, MemoryCatalog(), ManualClock(), Settings(store=store))
    with pytest.raises(StoreError, match=text):
        backups.begin("nightly")
    assert backups.told() == {"state": "none"}
