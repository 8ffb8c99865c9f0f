"""How figures are shown: rows in columns, medians with their spread, targets beside them."""

import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench import proc


def median(values: Sequence[float]) -> float:
    """Give the middle of some figures."""
    return statistics.median(values)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Give the smallest and the largest, for the reader to judge the noise."""
    return f"{min(values):,.{digits}f} - {max(values):,.{digits}f}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column is text and whose others are figures."""
    widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
    print(f"\n{title}")
    for row in (columns, ["-" * width for width in widths], *rows):
        first = row[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([first, *rest]).rstrip())


def verdict(what: str, value: float, unit: str, *, least: float = 0, most: float = 0) -> str:
    """Say whether a figure reaches its target, which is a least or a most."""
    reached = value >= least if least else value < most
    target = f"at least {least:g}" if least else f"under {most:g}"
    return f"{'reached' if reached else 'MISSED '}  {what}: {value:.3g} {unit} (target {target})"


def machine(directory: Path) -> str:
    """Say where this was measured."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    count = Path("/proc/cpuinfo").read_text().count("processor\t")
    load = Path("/proc/loadavg").read_text().split()[0]
    return (
        f"{count} cores {model}, Linux {platform.release()}, CPython {platform.python_version()}, "
        f"data on {proc.filesystem(directory)}, load before: {load}"
    )
