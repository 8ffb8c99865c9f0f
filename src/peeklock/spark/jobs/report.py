"""`report`: one page of the tables that the other jobs wrote (R-D4)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from peeklock.spark.jobs import frame
from peeklock.spark.jobs.pages import sections
from peeklock.spark.jobs.pages.page import PageSection, check_place, write_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SKEW: Final = ("partitions", "partitions_gini", "keys", "keys_gini", "hot_minutes", "what_if")
# A page is read by people: so many rows of a table at the most reach it.
_ROWS_MAX: Final = 50_000

app = frame.job("report")


@app.command()
def report(
    *,
    rollup: Annotated[str, typer.Option(help="Where `rollup` wrote its tables.")] = "",
    triage: Annotated[str, typer.Option(help="Where `triage` wrote its tables.")] = "",
    skew: Annotated[str, typer.Option(help="Where `skew` wrote its tables.")] = "",
    tune: Annotated[str, typer.Option(help="Where `tune` wrote its tables.")] = "",
    audit: Annotated[str, typer.Option(help="Where `audit` wrote its tables.")] = "",
    title: Annotated[str, typer.Option(help="What the page is called.")] = "Service Bus report",
    out: Annotated[
        str, typer.Option(envvar="PEEKLOCK_OUT", help="The page to write, a local file.")
    ] = "report.html",
    table_format: frame.Form = "parquet",
    master: frame.Master = "",
) -> None:
    """Write one HTML page, with plots and tables, of what other jobs have found."""
    places = {"rollup": rollup, "triage": triage, "skew": skew, "tune": tune, "audit": audit}
    if not any(places.values()):
        raise frame.Impossible("nothing to report: give the output of a job, such as --rollup DIR")
    check_place(out, "--out")
    work = frame.JobRun("report", master)
    made = [
        make_section(work.spark, name, frame.TableFolder(location, table_format))
        for name, location in places.items()
        if location
    ]
    now = datetime.now(UTC)
    write_page(out, title, f"Written {now:%Y-%m-%d %H:%M} UTC.", made)
    work.tell(f"the page is {out}")


def make_section(spark: "SparkSession", name: str, place: frame.TableFolder) -> PageSection:
    """Return the section of one job's tables."""

    def rows(table: str, *order: str) -> list[dict[str, Any]]:
        found = place.read(spark, table)
        return frame.shown(found.orderBy(*order) if order else found, _ROWS_MAX)

    if name == "rollup":
        return sections.rollup_section(rows("minutes", "period"), rows("minutes_labels"))
    if name == "triage":
        return sections.triage_section(rows("groups"), rows("trend", "period"))
    if name == "skew":
        return sections.skew_section({table: rows(table) for table in _SKEW})
    if name == "tune":
        return sections.tune_section(rows("advice"))
    return sections.audit_section(rows("verdicts"), rows("offending", "verdict", "message_id"))


def main(arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run the job."""
    frame.run(app, arguments, program)


if __name__ == "__main__":
    main()
