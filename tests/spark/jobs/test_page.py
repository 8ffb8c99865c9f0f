"""Pages: everything in one file, readable without a network, a mouse or bright light."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the plots of sections are given, in their order."""
    given: list[dict[str, Any]] = []
    lines, bars = PageSection.lines, PageSection.bars

    def note_lines(section: PageSection, says: str, across: Any, series: Any) -> None:
        lines(section, says, across, series)
        given.append({name: dict(zip(across, row, strict=True)) for name, row in series.items()})

    def note_bars(section: PageSection, says: str, values: Any) -> None:
        bars(section, says, values)
        given.append(dict(values))

    monkeypatch.setattr(PageSection, "lines", note_lines)
    monkeypatch.setattr(PageSection, "bars", note_bars)
    return given


COUNTS = ("sends", "deliveries", "completes", "abandons", "lock_losses", "dead_letters")
TIMES = [NOON.replace(minute=minute) for minute in range(3)]


def minute(at: int, entity: str, partition: int, **more: Any) -> dict[str, Any]:
    row = {"period": TIMES[at], "entity": entity, "sub_entity": "", "partition_id": partition}
    percentiles = {
        f"{m}_{p}": None for m in ("wait_ms", "work_ms", "total_ms") for p in PERCENTILES
    }
    return row | dict.fromkeys(COUNTS, 0) | percentiles | more


PERCENTILES = ("p50", "p99")


def test_the_plots_of_traffic_have_what_the_minutes_have(drawn: list[dict[str, Any]]) -> None:
    """One partition is silent in the second minute, and keeps its backlog."""
    minutes = [
        minute(0, "a", 0, sends=10, completes=4, backlog=6, total_ms_p50=5.0, total_ms_p99=9.0),
        minute(0, "a", 1, sends=20, dead_letters=2, backlog=18, total_ms_p50=7.0, total_ms_p99=8.0),
        minute(0, "b", 0, sends=1, backlog=1),
        minute(1, "a", 1, sends=3, backlog=21),
        minute(2, "a", 0, completes=6, backlog=0, total_ms_p50=2.0, total_ms_p99=3.0),
        minute(2, "b", 0, completes=1, backlog=0),
    ]
    labels = [
        {"measure": "reason", "label": label, "amount": amount}
        for label, amount in (("Late", 2), ("Late", 3), (None, 1))
    ]
    section = sections.rollup_section(minutes, labels)
    per_minute, backlog, slowest, reasons = drawn
    assert per_minute == {
        "sends": dict(zip(TIMES, (31, 3, 0), strict=True)),
        "completes": dict(zip(TIMES, (4, 0, 7), strict=True)),
        "dead_letters": dict(zip(TIMES, (2, 0, 0), strict=True)),
    }
    assert backlog == {
        "a": dict(zip(TIMES, (24, 27, 21), strict=True)),
        "b": dict(zip(TIMES, (1, 1, 0), strict=True)),
    }
    assert slowest == {
        "p50": dict(zip(TIMES, (7.0, None, 2.0), strict=True)),
        "p99": dict(zip(TIMES, (9.0, None, 3.0), strict=True)),
    }
    assert reasons == {"Late": 5, "(none)": 1}
    lanes = section.tables[0]
    names = [head for head, _ in lanes["heads"]]
    rows = [dict(zip(names, [cell for cell, _ in row], strict=True)) for row in lanes["rows"]]
    for name in ("sends", "completes", "dead letters"):
        plotted = sum(per_minute[name.replace(" ", "_")].values())
        assert plotted == sum(int(row[name]) for row in rows)


def test_the_other_plots_have_what_their_tables_have(drawn: list[dict[str, Any]]) -> None:
    groups = [
        {"entity": entity, "reason": reason, "description": "x", "messages": 30}
        for entity in ("a", "b")
        for reason in ("Failed", "Odd")
    ]
    trend = [
        {"period": TIMES[at], "entity": entity, "reason": reason, "messages": 10 + at}
        for at in (0, 1)
        for entity in ("a", "b")
        for reason in ("Failed", "Odd")
    ]
    partitions = [
        {"entity": entity, "sub_entity": sub, "partition_id": number, "share": share}
        for entity, sub in (("a", ""), ("t", "Subscriptions/s"), ("t", "Subscriptions/u"))
        for number, share in ((0, 0.25), (1, 0.75))
    ]
    sections.triage_section(groups, trend)
    sections.skew_section({"partitions": partitions})
    bars, over_time, shares = drawn
    assert bars == {"Failed: x": 60, "Odd: x": 60}
    assert over_time == {reason: {TIMES[0]: 20, TIMES[1]: 22} for reason in ("Failed", "Odd")}
    assert shares == {
        f"{lane} [{number}]": share
        for lane in ("a", "t/Subscriptions/s", "t/Subscriptions/u")
        for number, share in ((0, 0.25), (1, 0.75))
    }


def test_a_trouble_of_several_entities_is_one_bar_with_their_sum() -> None:
    group = {"reason": "Failed", "description": "no price", "messages": 10}
    groups = [group | {"entity": name} for name in ("orders", "stock", "audit")]
    section = sections.triage_section([*groups, group | {"entity": "x", "reason": "Odd"}], [])
    [(_, drawn)] = section.plots
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert [text for text in texts if text] == ["Failed: no price", "Odd: no price", "30", "10"]
