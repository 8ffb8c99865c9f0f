"""Every input that was kept, once more: no surprise, bounded cost, the same in both forms."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peeklock.version import is_compiled
from tests.fuzz import cost
from tests.fuzz.targets import CORPUS, TARGETS, inputs, outcomes

ROOT = Path(__file__).parents[2]
# Prints what each input of each target leads to.
PROGRAM = """
import json, sys
from tests.fuzz.targets import TARGETS, outcomes
json.dump({name: outcomes(name) for name in TARGETS}, sys.stdout)
"""
# It is read by every test run, and by everybody who looks for something in the tree.
CORPUS_BYTES_MAX = 600_000


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_surprises_or_costs_more_than_a_multiple_of_its_length(name: str) -> None:
    target = TARGETS[name]
    kept = inputs(name)
    assert kept
    for path in kept:
        try:
            cost.check(name, target, path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.relative_to(ROOT)}: {error!r}") from error


@pytest.mark.skipif(not is_compiled(), reason="the compiled form is compared with the plain one")
def test_both_forms_make_the_same_of_each_input() -> None:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    plain = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    theirs = json.loads(plain.stdout)
    for name in TARGETS:
        assert outcomes_apart(theirs[name], name) == []


def outcomes_apart(theirs: dict[str, str], name: str) -> list[tuple[str, str, str]]:
    ours = outcomes(name)
    assert list(ours) == list(theirs)
    return [(path, ours[path], theirs[path]) for path in ours if ours[path] != theirs[path]]


def test_the_corpus_stays_small() -> None:
    sizes = [path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(sizes) <= CORPUS_BYTES_MAX
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
