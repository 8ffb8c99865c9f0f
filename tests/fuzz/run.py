"""Looks for inputs that surprise, guided by what of the code they reach (atheris, libFuzzer).

    python -m tests.fuzz.run TARGET SECONDS     looks; finds go to build/fuzz/TARGET
    python -m tests.fuzz.keep                   keeps in the corpus what reaches something new

An input that surprises is written to build/fuzz/TARGET-crash-... and ends the run: mend the fault,
and put the input into the corpus under a name that says what it was.
"""

import resource
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["peeklock"]):
    from tests.fuzz.targets import CORPUS, TARGETS, inputs

from tests.fuzz.cost import check_calls

FOUND = Path(__file__).parents[2] / "build" / "fuzz"
INPUT_BYTES_MAX = 4096
# With the calls that tell what is reached there are some times as many.
CALLS_WATCHED = 4
# Above what an honest input needs, and far below what this machine has: a list that is as long as
# a peer says it is ends here.
MEMORY_BYTES_MAX = 3 << 30


def main(name: str, seconds: str) -> None:
    """Run one target."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    kept = CORPUS / name
    kept.mkdir(parents=True, exist_ok=True)
    options = [f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={found}-", "-timeout=20"]
    options += [f"-max_total_time={seconds}", "-print_final_stats=1", str(found), str(kept)]
    target = TARGETS[name]
    # What is made once for all is not the first input's fault.
    for path in inputs(name):
        target(path.read_bytes())

    def try_out(data: bytes) -> None:
        check_calls(name, target, data, watched=CALLS_WATCHED)

    atheris.Setup([sys.argv[0], *options], try_out)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
