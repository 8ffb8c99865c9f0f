"""`make check` tells all that failed, and the file of continuous integration runs our targets."""

import re
import sys

from tests.architecture.tree import ROOT
from tools.check import CHECKS, failures


def test_every_failure_is_told() -> None:
    wrong = (sys.executable, "-c", "raise SystemExit(1)")
    right = (sys.executable, "-c", "")
    assert failures({"a": wrong, "b": right, "c": wrong}) == ["a", "c"]
    assert set(CHECKS) == {"lint", "format", "types", "import rules", "tidiness"}


def test_continuous_integration_runs_what_make_test_runs() -> None:
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    (listed,) = re.findall(r"target: \[(.*)\]", workflow)
    (needed,) = re.findall(r"^test: (.*?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(listed.replace(",", "").split()) == sorted(needed.split())
