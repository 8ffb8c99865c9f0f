"""Names that documents promise: what programs import keeps its place."""

import importlib
import subprocess
import sys

import pytest

PROMISED = (
    "peeklock.spark:session",
    "peeklock.spark.jvm:session",
    "peeklock.spark.facts:FactDecoder",
    "peeklock.spark.journal_client:JournalClient",
    "peeklock.spark.lake:write_stream",
    "peeklock.spark.lake:remove_orphans",
    "peeklock.spark.source:ServiceBusSource",
    "pyspark_servicebus:DefaultSource",
    "pyspark_servicebus_lake:DefaultSource",
)


@pytest.mark.parametrize("promised", PROMISED)
def test_a_promised_name_is_there(promised: str) -> None:
    module, _, name = promised.partition(":")
    assert hasattr(importlib.import_module(module), name)


def test_finding_the_sources_needs_nothing_but_pyspark() -> None:
    # Spark imports every module `pyspark_*` in every worker: what they import costs all of them.
    program = (
        "import sys, pyspark_servicebus, pyspark_servicebus_lake\n"
        "costly = {'pyarrow', 'deltalake', 'peeklock.client', 'peeklock.store'}\n"
        "sys.exit(', '.join(costly & sys.modules.keys()) or None)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
