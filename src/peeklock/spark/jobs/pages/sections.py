"""What the tables of jobs look like on a page; a section for each job."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from peeklock.spark.jobs.pages.page import PageSection, Rows

_LINES_MAX: Final = 6
_ROWS_MAX: Final = 60
_BAD: Final = ("lost", "duplicated", "unexpected", "out_of_order")


def line_name(row: Mapping[str, Any]) -> str:
    """Return a queue, subscription or dead-letter queue by its path."""
    return "/".join(filter(None, (row["entity"], row["sub_entity"])))


def rollup_section(minutes: Rows, labels: Rows) -> PageSection:
    """Rates, latencies and backlog over time."""
    section = PageSection("Traffic", "What the journal says of every minute.")
    whole = {
        name: sum(row[name] or 0 for row in minutes)
        for name in ("sends", "deliveries", "completes", "abandons", "lock_losses", "dead_letters")
    }
    for name, value in whole.items():
        is_bad = name in ("lock_losses", "dead_letters") and value > 0
        section.figure(name.replace("_", " "), value, is_bad=is_bad)
    times = sorted({row["period"] for row in minutes})
    if times:
        section.lines(
            "Messages per minute: sent, completed, dead-lettered.",
            times,
            {
                name: _summed(minutes, times, name)
                for name in ("sends", "completes", "dead_letters")
            },
        )
        section.lines("Backlog at the end of each minute.", times, _backlogs(minutes, times))
        section.lines(
            "From sending to completing, in milliseconds (the worst lane of each minute).",
            times,
            {name: _worst(minutes, times, f"total_ms_{name}") for name in ("p50", "p99")},
        )
    section.table("Lanes", _lanes(minutes), text="Percentiles are those of the worst minute.")
    reasons = _counted(labels, "reason")
    if reasons:
        section.bars("Dead letters by reason.", reasons)
    counts = _counted(labels, "delivery_count")
    if counts:
        ordered = sorted(counts.items(), key=lambda item: int(item[0]))
        rows = [{"deliveries": int(label), "messages": amount} for label, amount in ordered]
        section.table("How often messages were delivered before they left", rows)
    return section


def _lanes(minutes: Rows) -> list[dict[str, Any]]:
    lanes: dict[str, dict[str, Any]] = {}
    for row in sorted(minutes, key=lambda row: row["period"]):
        lane = lanes.setdefault(line_name(row), {"lane": line_name(row)})
        for name in ("sends", "deliveries", "completes", "abandons", "lock_losses", "dead_letters"):
            lane[name] = lane.get(name, 0) + row[name]
        for measure in ("wait_ms", "work_ms", "total_ms"):
            for percentile in ("p50", "p99"):
                name = f"{measure}_{percentile}"
                known = [value for value in (lane.get(name), row[name]) if value is not None]
                lane[name] = max(known, default=None)
    return list(lanes.values())


def _summed(rows: Rows, times: Sequence[Any], name: str) -> list[float | None]:
    sums = dict.fromkeys(times, 0.0)
    for row in rows:
        sums[row["period"]] += row[name] or 0
    return [sums[time] for time in times]


def _worst(rows: Rows, times: Sequence[Any], name: str) -> list[float | None]:
    worst: dict[Any, float | None] = dict.fromkeys(times)
    for row in rows:
        values = [value for value in (worst[row["period"]], row[name]) if value is not None]
        worst[row["period"]] = max(values, default=None)
    return [worst[time] for time in times]


def _backlogs(minutes: Rows, times: Sequence[Any]) -> dict[str, list[float | None]]:
    """Return the backlog of the fullest lanes; a minute in which nothing happened changes
    nothing."""
    lanes: dict[str, dict[int, dict[Any, float]]] = {}
    for row in minutes:
        partitions = lanes.setdefault(line_name(row), {})
        partitions.setdefault(row["partition_id"], {})[row["period"]] = row["backlog"]
    # Partitions are added up when each has its own past: in most minutes some are silent.
    summed = {
        name: _together([_carried(values, times) for values in partitions.values()])
        for name, partitions in lanes.items()
    }
    fullest = sorted(summed, key=lambda name: -max(value or 0 for value in summed[name]))
    return {name: summed[name] for name in fullest[:_LINES_MAX]}


def _together(lines: Sequence[Sequence[float | None]]) -> list[float | None]:
    columns = [
        [value for value in column if value is not None] for column in zip(*lines, strict=True)
    ]
    return [sum(column) if column else None for column in columns]


def _carried(values: Mapping[Any, float], times: Sequence[Any]) -> list[float | None]:
    carried: list[float | None] = []
    for time in times:
        carried.append(values.get(time, carried[-1] if carried else None))
    return carried


def _counted(labels: Rows, measure: str) -> dict[str, float]:
    counted: dict[str, float] = {}
    for row in labels:
        if row["measure"] == measure:
            label = row["label"] or "(none)"
            counted[label] = counted.get(label, 0) + row["amount"]
    return counted


def triage_section(groups: Rows, trend: Rows) -> PageSection:
    """Dead letters by what went wrong."""
    section = PageSection("Dead letters", "Grouped by reason and by what the description says.")
    section.figure("dead letters", sum(row["messages"] for row in groups), is_bad=bool(groups))
    section.figure("groups", len(groups))
    section.figure("entities", len({row["entity"] for row in groups}))
    if groups:
        # The same trouble may be in several entities: it is one bar.
        named: dict[str, float] = {}
        for row in groups:
            name = f"{row['reason']}: {row['description']}"
            named[name] = named.get(name, 0) + row["messages"]
        section.bars("Dead letters by what went wrong.", named)
    times = sorted({row["period"] for row in trend})
    if len(times) > 1:
        totals: dict[str, int] = {}
        for row in trend:
            totals[row["reason"]] = totals.get(row["reason"], 0) + row["messages"]
        largest = sorted(totals, key=lambda reason: -totals[reason])[:_LINES_MAX]
        section.lines(
            "Dead letters over time, by reason.",
            times,
            {
                reason: _summed(
                    [
                        {"period": row["period"], "messages": row["messages"]}
                        for row in trend
                        if row["reason"] == reason
                    ],
                    times,
                    "messages",
                )
                for reason in largest
            },
        )
    section.table("Groups", groups[:_ROWS_MAX])
    return section


def skew_section(tables: Mapping[str, Rows]) -> PageSection:
    """Return how evenly things are loaded."""
    section = PageSection("Skew", "0 is even; near 1 is all on one partition or key.")
    for row in tables.get("partitions_gini", ()):
        section.figure(f"Gini, {line_name(row)}", row["gini"], is_bad=row["gini"] > 0.5)
    partitions = tables.get("partitions", ())
    if len(partitions) > 1:
        section.bars(
            "Share of messages by partition.",
            {f"{line_name(row)} [{row['partition_id']}]": row["share"] for row in partitions},
        )
    titles = {
        "keys": "Keys with the most messages",
        "hot_minutes": "Minutes in which one partition got too much",
        "what_if": "What if there were N partitions",
    }
    for name, title in titles.items():
        if name in tables:
            section.table(title, tables[name][:_ROWS_MAX])
    return section


def tune_section(advice: Rows) -> PageSection:
    """Advice and its arithmetic."""
    section = PageSection(
        "Advice", "By the rules of the performance article, from what was measured."
    )
    section.table("Settings", advice[:_ROWS_MAX])
    return section


def audit_section(verdicts: Rows, offending: Rows) -> PageSection:
    """Return what became of all messages."""
    section = PageSection("Audit", "What was sent against what was received and settled.")
    for row in verdicts:
        is_bad = row["verdict"] in _BAD and row["messages"] > 0
        if row["messages"] or row["verdict"] in _BAD:
            section.figure(row["verdict"].replace("_", " "), row["messages"], is_bad=is_bad)
    section.table("Offending ids", offending[:_ROWS_MAX])
    return section
