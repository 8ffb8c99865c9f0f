"""The client in a process of its own, always compiled, so that every server meets the same one.

`run` is the bench's side; `python -m bench.client ENDPOINT LOAD` is the other process.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from bench.endpoint import Endpoint
from bench.loads import Flood, Result, Trickle, flood, trickle
from peeklock.amqp.values import codec

ROOT: Final = Path(__file__).resolve().parent.parent
COMPILED: Final = ROOT / "build" / "compiled"
PLAIN: Final = ROOT / "src"


class ClientError(Exception):
    """The client's process failed; its last words are the text."""


def run(endpoint: Endpoint, load: Flood | Trickle, form: Path = COMPILED) -> Result:
    """Put the load on the queue from another process, and give what it measured."""
    kind = "flood" if isinstance(load, Flood) else "trickle"
    command = [sys.executable, "-m", "bench.client", endpoint.to_json(), kind]
    done = subprocess.run(
        [*command, json.dumps(asdict(load))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(form)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClientError(done.stderr.strip())
    return Result(**json.loads(done.stdout))


def is_compiled() -> bool:
    """Tell whether the engine in this process is the compiled one."""
    return not codec.__file__.endswith(".py")


def main(endpoint: Endpoint, kind: str, load: str) -> None:
    """Carry out one load and print its result as JSON."""
    if os.environ.get("PYTHONPATH") == str(COMPILED) and not is_compiled():
        sys.exit("the client is not compiled: run `make compile` first")
    if kind == "flood":
        result = flood(endpoint, Flood(**json.loads(load)))
    else:
        result = trickle(endpoint, Trickle(**json.loads(load)))
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main(Endpoint.from_json(sys.argv[1]), sys.argv[2], sys.argv[3])
