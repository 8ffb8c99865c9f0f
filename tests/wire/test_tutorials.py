"""The tutorial: every page is followed word by word, and prints what it says it prints."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.wire.broker_process import BrokerProcess

PAGES = Path(__file__).parents[2] / "docs" / "tutorial"
NAMES = (
    "queue",
    "topic",
    "sessions",
    "dead-letters",
    "schedule",
    "defer",
    "transactions",
    "capture",
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Printed between the blocks of a page, and by no block.
BETWEEN = "--- the next block ---"
# Spark takes its time to start, three times on its page.
FOLLOWED_WITHIN_S = 240


@dataclass
class Page:
    """What a reader takes from a page: the configuration, the code, and what it prints."""

    configuration: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)


def read(name: str) -> Page:
    """The blocks of a page; one of text is what the code above it prints."""
    page = Page()
    above = ""
    for kind, text in BLOCK.findall((PAGES / f"{name}.md").read_text()):
        if kind == "json":
            page.configuration.append(text)
        elif kind == "python":
            page.code.append(text)
            page.printed.append("")
        elif kind == "text":
            assert above == "python", "an output without code"
            page.printed[-1] = text
        else:
            assert kind == "sh", f"a block of {kind} is not followed here"
        above = kind
    return page


def at_ports(code: str, broker: BrokerProcess) -> str:
    """The code of a page, led to the broker of a test instead of the usual ports."""
    here = {
        "sb://localhost;": f"sb://localhost:{broker.amqp_port};",
        "sb://localhost:5300;": f"sb://localhost:{broker.http_port};",
        "amqp://localhost:5672": f"amqp://localhost:{broker.amqp_port}",
    }
    written = [usual for usual in here if usual in code]
    assert len(written) == 1, "a page connects once"
    return code.replace(written[0], here[written[0]])


def test_the_index_leads_to_all_pages() -> None:
    index = (PAGES / "README.md").read_text()
    assert re.findall(r"^\d\. \[[^]]+\]\((.+?)\.md\)", index, re.MULTILINE) == list(NAMES)
    assert {page.stem for page in PAGES.glob("*.md")} == {"README", *NAMES}


def entities(text: str) -> set[tuple[str, str]]:
    """The names in the configurations of a document, with their kinds."""
    found: set[tuple[str, str]] = set()
    for kind, block in BLOCK.findall(text):
        if kind == "json" and "UserConfig" in block:
            for namespace in json.loads(block)["UserConfig"]["Namespaces"]:
                found |= {("queue", each["Name"]) for each in namespace.get("Queues", [])}
                found |= {("topic", each["Name"]) for each in namespace.get("Topics", [])}
    return found


def test_all_documents_fit_one_data_directory() -> None:
    """Who reads on after the README finds no other kind of entity under the same name."""
    documents = [PAGES.parents[1] / "README.md", *sorted(PAGES.parent.rglob("*.md"))]
    found: set[tuple[str, str]] = set()
    for document in documents:
        found |= entities(document.read_text())
    names = [name for _, name in found]
    assert len(found) > len(NAMES)
    assert {name for name in names if names.count(name) > 1} == set()
    # Of the tutorial and the README each name is one document's alone, properties included.
    alone = [entities(page.read_text()) for page in [documents[0], *sorted(PAGES.glob("*.md"))]]
    assert sum(map(len, alone)) == len(set().union(*alone))


def started(page: Page, directory: Path) -> BrokerProcess:
    """A broker with the configuration of a page."""
    config = directory / "Config.json"
    [text] = page.configuration
    config.write_text(text)
    # The data is where `make run` has it, beside the configuration.
    broker = BrokerProcess(data=directory / "data", config=config, log=directory / "broker.log")
    broker.start()
    return broker


def follow(page: Page, broker: BrokerProcess) -> list[str]:
    """Do what a page says beside its broker, and give what each block printed."""
    directory = broker.config.parent
    program = directory / "page.py"
    try:
        program.write_text(at_ports(f"print({BETWEEN!r})\n".join(page.code), broker))
        done = subprocess.run(
            [sys.executable, program.name],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=FOLLOWED_WITHIN_S,
            check=False,
        )
    finally:
        code = broker.stop()
    assert done.returncode == 0, done.stdout + done.stderr + broker.log_since(0)
    assert code == 0, broker.log_since(0)
    return done.stdout.split(f"{BETWEEN}\n")


@pytest.fixture(scope="module")
def followed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[list[str]]]]:
    """The chosen pages, on their way side by side: they spend their time waiting."""
    names = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and "followed" in item.fixturenames
    ]
    # One after the other, and before any client: none of them takes a port that another one chose.
    brokers = {name: started(read(name), tmp_path_factory.mktemp(name)) for name in names}
    with ThreadPoolExecutor(len(names)) as pool:
        yield {name: pool.submit(follow, read(name), broker) for name, broker in brokers.items()}


# A page says itself which entities it has, so that there is no partitioned form of it.
@pytest.mark.plain_only("pages bring their own entities")
@pytest.mark.timeout(FOLLOWED_WITHIN_S + 60)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_prints_what_it_says(name: str, followed: dict[str, Future[list[str]]]) -> None:
    """R-F1: what a newcomer does first works as it is told, with a real broker and client."""
    needed = {"transactions": "proton", "capture": "pyspark"}
    if name in needed:
        pytest.importorskip(needed[name], reason="what the page needs is not installed")
    assert followed[name].result() == read(name).printed
