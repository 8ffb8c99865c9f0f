"""The reference has every option, as the table has it."""

from peeklock.spark.option_table import CHOICE, OPTIONS, Option
from peeklock.spark.schema import JOURNAL_COLUMNS, MESSAGE_COLUMNS
from tests.architecture.tree import ROOT

REFERENCE = (ROOT / "docs" / "reference" / "spark.md").read_text()


def row(option: Option) -> str:
    """How an option stands in the reference."""
    kind = ", ".join(f"`{choice}`" for choice in option.choices) if option.choices else option.kind
    default = f"`{option.default}`" if option.default else ""
    also = ", ".join(f"`{alias}`" for alias in option.aliases)
    meaning = option.meaning + (f" Also {also}." if also else "")
    return f"| `{option.name}` | {kind} | {default} | {meaning} |"


def test_every_option_is_in_the_reference_as_it_is() -> None:
    """R-D1."""
    lines = REFERENCE.partition("## Options")[2].splitlines()
    assert [row(option) for option in OPTIONS if "read" in option.use] == [
        line for line in lines if line.startswith("| `")
    ]
    assert all(option.choices for option in OPTIONS if option.kind == CHOICE)


def test_every_column_is_in_the_reference() -> None:
    words = " ".join(REFERENCE.split())
    for columns in (MESSAGE_COLUMNS, JOURNAL_COLUMNS):
        for name, kind in columns.items():
            assert f"`{name}` {kind.simpleString()}" in words, name
