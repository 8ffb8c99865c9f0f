"""Runs the questions that are named, or all of them: `python -m bench throughput --quick`."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import (
    administration,
    burst,
    clients,
    company,
    compare,
    connections,
    databases,
    deferred,
    doors,
    duplicates,
    engines,
    fairness,
    latency,
    nodes,
    partitions,
    pipeline,
    rest,
    sessions,
    spark,
    startup,
    throughput,
    topics,
)
from bench.plan import Plan

QUESTIONS: Final[dict[str, Callable[[Plan], None]]] = {
    "throughput": throughput.answer,
    "latency": latency.answer,
    "engines": engines.answer,
    "databases": databases.answer,
    "startup": startup.answer,
    "deferred": deferred.answer,
    "company": company.answer,
    "fairness": fairness.answer,
    "topics": topics.answer,
    "partitions": partitions.answer,
    "nodes": nodes.answer,
    "sessions": sessions.answer,
    "duplicates": duplicates.answer,
    "doors": doors.answer,
    "connections": connections.answer,
    "rest": rest.answer,
    "administration": administration.answer,
    "burst": burst.answer,
    "clients": clients.answer,
    "spark": spark.answer,
    "pipeline": pipeline.answer,
}
# Asked only by name: they need something that not everybody has.
ON_REQUEST: Final[dict[str, Callable[[Plan], None]]] = {"compare": compare.answer}


def main() -> None:
    """Read the command line, ask the questions, and leave nothing behind."""
    known = QUESTIONS | ON_REQUEST
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=", ".join(known))
    parser.add_argument("--before", type=Path, help="for compare: a compiled checkout")
    parser.add_argument("--quick", action="store_true", help="a few seconds each; only a trial")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, 5 unless told")
    parser.add_argument("--without-rabbitmq", action="store_true", help="measure Peeklock alone")
    parser.add_argument("--directory", type=Path, help="where data rests meanwhile; a real disk")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.questions if name not in known]
    if unknown:
        parser.error(f"there is no question {unknown[0]!r}; there are {', '.join(known)}")
    # Ended from outside, the servers must end too: an exception lets every `with` do its work.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    for name in chosen.questions or QUESTIONS:
        with tempfile.TemporaryDirectory(prefix="peeklock-bench-", dir=chosen.directory) as place:
            print(f"\n== {name}", flush=True)
            plan = Plan(
                directory=Path(place),
                quick=chosen.quick,
                rounds=1 if chosen.quick else chosen.rounds,
                with_rabbitmq=not chosen.without_rabbitmq,
                before=chosen.before,
            )
            known[name](plan)


if __name__ == "__main__":
    main()
