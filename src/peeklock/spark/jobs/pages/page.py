"""One page for people: figures, tables and plots in a single file that needs nothing else.

Plots are drawn by matplotlib as SVG and take their colours from the page, so that they follow its
light and dark forms. Every plot has a sentence that says what it shows, and its numbers stand in a
table of the page.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any, Final, final

from jinja2 import Environment

from peeklock.spark.jobs.frame import Impossible
from peeklock.spark.jobs.pages.template import PAGE

Rows = Sequence[Mapping[str, Any]]

# Stand-ins that matplotlib draws with, and what the page puts in their place.
_INK: Final = "#010203"
_FAINT: Final = "#040506"
_SERIES: Final = tuple(f"#0a0b{number:02x}" for number in range(7))
_DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_BARS_MAX: Final = 20
_CELL_CHARACTERS_MAX: Final = 400
# A single letter is a drive.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@final
@dataclass(slots=True)
class PageSection:
    """A heading with figures, plots and tables below it."""

    title: str
    text: str = ""
    figures: list[tuple[str, str, bool]] = field(default_factory=list)
    plots: list[tuple[str, str]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)

    def figure(self, name: str, value: Any, *, is_bad: bool = False) -> None:
        """Add a number that is seen at once."""
        self.figures.append((name, shown(value), is_bad))

    def table(self, title: str, rows: Rows, *, text: str = "") -> None:
        """Add a table; rows all have the columns of the first one."""
        columns = list(rows[0]) if rows else []
        numeric = {name for name in columns if any(_is_number(row[name]) for row in rows)}
        cells = [[(shown(row[name]), name in numeric) for name in columns] for row in rows]
        heads = [(name.replace("_", " "), name in numeric) for name in columns]
        self.tables.append({"title": title, "text": text, "heads": heads, "rows": cells})

    def lines(
        self, says: str, across: Sequence[Any], series: Mapping[str, Sequence[float | None]]
    ) -> None:
        """Add a plot of values over time; `says` tells what it shows."""
        self.plots.append((says, _lines(says, across, series)))

    def bars(self, says: str, values: Mapping[str, float]) -> None:
        """Add a plot of named amounts, the largest first."""
        self.plots.append((says, _bars(says, values)))


def check_place(path: str, option: str) -> None:
    """Refuse a place that a page cannot be written to: tables are written by Spark, pages here."""
    if _SCHEME.match(path):
        raise Impossible(f"a page is a local file, and '{path}' is none: name one with {option}")


def write_page(path: str, title: str, text: str, sections: Sequence[PageSection]) -> None:
    """Write a page; one that is there is replaced at once."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made = environment.from_string(PAGE).render(title=title, text=text, sections=sections)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_text(made, encoding="utf-8")
    unfinished.replace(target)


def shown(value: Any) -> str:
    """Return a value as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list | tuple):
        return "\n".join(shown(one) for one in value)
    text = str(value)
    return text if len(text) <= _CELL_CHARACTERS_MAX else text[: _CELL_CHARACTERS_MAX - 1] + "…"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- plots


def _lines(says: str, across: Sequence[Any], series: Mapping[str, Sequence[float | None]]) -> str:
    from matplotlib.dates import ConciseDateFormatter

    figure, axes = _canvas(3.0)
    for number, (name, values) in enumerate(series.items()):
        axes.plot(
            list(across),
            [float("nan") if value is None else value for value in values],
            label=name,
            color=_SERIES[number % len(_SERIES)],
            linestyle=_DASHES[number % len(_DASHES)],
            marker="o" if len(across) < 40 else "",
            markersize=3,
        )
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=_FAINT, linewidth=0.6)
    if len(series) > 1:
        axes.legend(
            frameon=False,
            fontsize=9,
            ncols=min(len(series), 4),
            loc="upper left",
            bbox_to_anchor=(0, 1.18),
        )
    if across and isinstance(across[0], datetime):
        places = axes.xaxis.get_major_locator()
        form: Any = ConciseDateFormatter
        axes.xaxis.set_major_formatter(form(places))
    return _svg(figure, says)


def _bars(says: str, values: Mapping[str, float]) -> str:
    largest = sorted(values.items(), key=lambda item: -item[1])[:_BARS_MAX]
    figure, axes = _canvas(0.7 + 0.32 * max(len(largest), 1))
    names = [name if len(name) <= 60 else name[:59] + "…" for name, _ in largest]
    # By place and not by name, because two long names may be cut to the same text.
    bars = axes.barh(range(len(largest)), [value for _, value in largest], color=_SERIES[0])
    axes.set_yticks(range(len(largest)), names)
    axes.bar_label(bars, [shown(value) for _, value in largest], padding=3, color=_INK, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.spines["bottom"].set_visible(False)
    return _svg(figure, says)


def _canvas(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.tick_params(colors=_INK, labelsize=9)
    return figure, axes


def _svg(figure: Any, says: str) -> str:
    import matplotlib as mpl

    out = StringIO()
    # Text stays text: it is read aloud, found by searching, and takes the page's font.
    style: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": says, "text.color": _INK}
    with mpl.rc_context(style):
        for text in figure.findobj(mpl.text.Text):
            if text.get_color() == "black":
                text.set_color(_INK)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    drawn = out.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    opening = r'<svg [^>]*?(viewBox="[^"]*")[^>]*>'
    drawn = re.sub(opening, r'<svg \1 aria-hidden="true">', drawn, count=1)
    drawn = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", drawn)
    colours = {_INK: "currentColor", _FAINT: "var(--faint)"}
    colours |= {stand_in: f"var(--series-{n})" for n, stand_in in enumerate(_SERIES)}
    for stand_in, colour in colours.items():
        drawn = drawn.replace(stand_in, colour)
    return drawn
