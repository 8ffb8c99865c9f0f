"""What stands in for the parts that PySpark 4.0 and 4.1 do not have."""

import importlib.util
import sys
from types import ModuleType

import pytest

from peeklock.spark import versions


def before_4_2(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where the streaming limits cannot be imported."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    spec = importlib.util.spec_from_file_location("old_versions", versions.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "old_versions", module)
    spec.loader.exec_module(module)
    return module


def test_limits_are_the_same_before_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-D1."""
    old = before_4_2(monkeypatch)
    assert old.ReadMaxRows is not versions.ReadMaxRows
    for module in (old, versions):
        limits = module.limits_of
        assert limits(None, 10, 20) == (10, 20, False)
        assert limits(module.ReadMaxRows(5), 10, 20) == (5, 20, False)
        assert limits(module.ReadMaxBytes(5), 10, 20) == (10, 5, False)
        assert limits(module.ReadAllAvailable(), 10, 20) == (10, 20, True)

    class Reader(old.SupportsTriggerAvailableNow):  # type: ignore[misc, name-defined] # made above
        pass

    assert isinstance(Reader(), old.SupportsTriggerAvailableNow)


def test_the_entry_point_imports_little() -> None:
    """A module `pyspark_*` that cannot be imported hides the sources of all others."""
    import subprocess

    code = (
        "import sys, pyspark_servicebus as found\n"
        "assert found.DefaultSource.name() == 'servicebus'\n"
        "heavy = {'peeklock.client', 'peeklock.amqp', 'lmdb', 'typer'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
