"""Pages: everything in one file, readable without a network, a mouse or bright light."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import pytest

from peeklock.spark.jobs.frame import Impossible
from peeklock.spark.jobs.pages import sections
from peeklock.spark.jobs.pages.page import PageSection, check_place, shown, write_page

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def page_of(tmp_path: Path, *parts: PageSection) -> str:
    path = tmp_path / "deep" / "page.html"
    write_page(str(path), "A <title>", "Some text.", parts)
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    return path.read_text()


def test_a_page_needs_nothing_else_and_says_what_its_plots_show(tmp_path: Path) -> None:
    section = PageSection("Traffic")
    section.figure("lost", 3, is_bad=True)
    section.lines("Rates over time.", [NOON, NOON.replace(minute=1)], {"a": [1, 2], "b": [2, None]})
    section.bars("Reasons.", {"<script>": 5, "x" * 80: 2})
    section.table("Rows", [{"name_of_it": "<b>", "amount": 1234567, "when": NOON}])
    page = page_of(tmp_path, section)
    assert "A &lt;title&gt;" in page
    assert "<script" not in page
    assert "<b>" not in page
    # Nothing is loaded; the only addresses are the names of XML namespaces.
    assert re.findall(r'(?:src|href)="(?!#)|url\((?!#)|@import', page) == []
    assert re.findall(r'role="img" aria-label="([^"]+)"', page) == ["Rates over time.", "Reasons."]
    for drawn in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(drawn.replace("xlink:", ""))
        assert not re.search(r"#(?!p?[0-9a-f]{6,}\b\)?\")[0-9a-f]{6}\b", drawn), "a fixed colour"
        assert "var(--series-0)" in drawn
    assert "prefers-color-scheme: dark" in page
    assert '<th scope="col" class="number">amount</th>' in page
    assert "1,234,567" in page


def test_a_page_is_a_local_file() -> None:
    for place in ("page.html", "/deep/page.html", "C:/deep/page.html", "12:/page.html"):
        check_place(place, "--page")
    for place in ("s3a://bucket/page.html", "hdfs:/page.html", "file:///page.html"):
        with pytest.raises(Impossible, match="name one with --page"):
            check_place(place, "--page")


def test_values_are_written_for_people() -> None:
    assert [shown(v) for v in (None, True, 1234, 0.123456, 12345.6, NOON, ["a", 2])] == [
        "",
        "yes",
        "1,234",
        "0.1235",
        "12,346",
        "2026-03-01 12:00:00",
        "a\n2",
    ]


def test_empty_tables_make_a_page_too(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        sections.rollup_section([], []),
        sections.triage_section([], []),
        sections.skew_section({}),
        sections.tune_section([]),
        sections.audit_section([], []),
    )
    assert page.count("None.") == 4


def test_a_trouble_of_several_entities_is_one_bar_with_their_sum() -> None:
    group = {"reason": "Failed", "description": "no price", "messages": 10}
    groups = [group | {"entity": name} for name in ("orders", "stock", "audit")]
    section = sections.triage_section([*groups, group | {"entity": "x", "reason": "Odd"}], [])
    [(_, drawn)] = section.plots
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert [text for text in texts if text] == ["Failed: no price", "Odd: no price", "30", "10"]
