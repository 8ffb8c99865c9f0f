"""The tables tell what was forgotten: whoever adds a record or a command adds its row."""

import ast
import dataclasses
from collections import Counter
from typing import Any, get_args

import pytest

from peeklock.entity import records
from peeklock.entity.commands import COMMAND_ROWS, Command
from peeklock.entity.records import RECORD_ROWS, RETIRED_KINDS, Record, Removed, Returned
from peeklock.entity.tables.command_rows import ALL, INSIDE
from peeklock.entity.tables.record_rows import SEEN, UNSEEN, RecordRow
from peeklock.store.codec import kinds
from peeklock.store.codec.facts import encode_fact
from peeklock.store.codec.layouts import decode_by_layout, encode_by_layout
from tests.architecture.tree import ROOT, parse

WITH_LAYOUT = [row for row in RECORD_ROWS if row.layout]


def named(row: RecordRow) -> str:
    return row.record.__name__


def fields_of(record: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(record)}


# Commands.


def test_every_command_has_one_row() -> None:
    rows = Counter(row.command for row in COMMAND_ROWS)
    assert rows == Counter(get_args(Command)), "a row in the family's COMMANDS is missing"


def test_the_way_of_every_command_is_written_where_its_row_does_not_say_all() -> None:
    tree = parse(ROOT / "src" / "peeklock" / "broker" / "partitioned" / "partitioned_entity.py")
    asked = {
        node.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "isinstance"
        for node in ast.walk(call)
        if isinstance(node, ast.Name)
    }
    for row in COMMAND_ROWS:
        is_told = row.command.__name__ in asked
        assert is_told == (row.way not in (ALL, INSIDE)), (
            f"{row.command.__name__} goes by {row.way}"
        )


# Records.


def test_every_record_has_one_row_and_a_number_of_its_own() -> None:
    rows = Counter(row.record for row in RECORD_ROWS)
    assert rows == Counter(get_args(Record)), "a row in the family's RECORDS is missing or too many"
    assert max(Counter(row.kind for row in RECORD_ROWS).values()) == 1
    assert RETIRED_KINDS.isdisjoint(row.kind for row in RECORD_ROWS)


@pytest.mark.parametrize("row", WITH_LAYOUT, ids=named)
def test_a_layout_says_where_each_field_rests(row: RecordRow) -> None:
    said = [name for name, _ in row.layout if name != "0"]
    assert sorted(said) == sorted(fields_of(row.record))


@pytest.mark.parametrize("row", RECORD_ROWS, ids=named)
def test_what_the_journal_shows_is_in_the_record(row: RecordRow) -> None:
    shown = row.journal
    if shown is SEEN or shown is UNSEEN:
        return
    names = [shown.sequences, shown.counts, shown.consumer, shown.description, shown.session]
    names += [shown.by] if shown.ops else []
    assert {name for name in names if name} <= fields_of(row.record)
    assert bool(shown.op) != bool(shown.ops)


def test_kinds_that_are_written_by_hand_are_those_of_the_rows() -> None:
    by_kind = {row.kind: named(row) for row in RECORD_ROWS}
    for name, kind in vars(kinds).items():
        if name.isupper() and kind not in RETIRED_KINDS:
            assert by_kind[kind].lower() == name.replace("_", "").lower()


@pytest.mark.parametrize("many", [[], [7], [7, 8, 9, 40]])
def test_what_is_written_by_hand_has_the_form_of_its_row(many: list[int]) -> None:
    for record in (Removed(5, 2, records.EXPIRED, many), Returned(5, 2, 1, many, [3] * len(many))):
        written = encode_fact(record)
        assert written == encode_by_layout(record)
        assert decode_by_layout(memoryview(written), written[0]) == record


def test_what_has_no_layout_is_written_by_hand() -> None:
    """Each of them is named where records are encoded, and where they are decoded."""
    codec = ROOT / "src" / "peeklock" / "store" / "codec"
    trees = [parse(codec / "records.py"), parse(codec / "facts.py")]
    names = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert {named(row) for row in RECORD_ROWS if not row.layout} <= names
