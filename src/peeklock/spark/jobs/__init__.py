"""Jobs over the bus: each a plain DataFrame program, run alike here and on a cluster."""

from typing import Final

JOBS: Final = {
    "capture": "archive a queue, subscription or journal into Parquet or Delta",
    "triage": "group the dead letters of all entities by what went wrong",
    "replay": "send dead letters or archived messages again",
    "rollup": "rates, latencies, lock losses and backlog by minute and hour",
    "skew": "how evenly partitions and sessions are loaded, and what if",
    "tune": "advice for clients and entities, with the arithmetic",
    "audit": "sent against received against settled: lost, doubled, out of order",
    "report": "one page of the tables that the other jobs wrote",
}
