"""The page on the sink and the lake names every option, column and action there is."""

from pathlib import Path

import pytest

from peeklock.spark.lake.lake_writers import LAKE_OPTIONS
from peeklock.spark.option_table import Option
from peeklock.spark.sink.settlement import ACTIONS
from peeklock.spark.sink.sink_options import SEND_COLUMNS, SETTLE_COLUMNS, SINK_OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark-sink.md"


@pytest.mark.parametrize("option", [*SINK_OPTIONS, *LAKE_OPTIONS], ids=lambda one: one.name)
def test_every_option_is_on_the_page(option: Option) -> None:
    (line,) = [one for one in PAGE.read_text().splitlines() if one.startswith(f"| `{option.name}`")]
    for choice in option.choices:
        assert f"`{choice}`" in line or choice == "auto"


def test_every_column_and_action_is_on_the_page() -> None:
    text = PAGE.read_text()
    words = [*SEND_COLUMNS, *SETTLE_COLUMNS, *ACTIONS]
    assert [word for word in words if f"`{word}`" not in text] == []
