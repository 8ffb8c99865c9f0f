"""By which names a broker answers, and the pages of which sites."""

import pytest

from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.gateway.http.hosts import Hosts

SPACES = Namespaces([Namespace("sbemulatorns"), Namespace("Depot")])


def status(hosts: Hosts, host: str, origin: str = "") -> int:
    found = hosts.refusal(host, origin)
    return 200 if found is None else found.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:5300",
        "localhost.",
        "anything.localhost:5300",
        "127.0.0.1:5300",
        "10.1.2.3",
        "[::1]:5300",
        "sbemulatorns",
        "sbemulatorns:5672",
        "depot.localhost",
        "depot.servicebus.windows.net",
        "broker.example.com",
        "peeklock:5300",
        "a.wild.example.com",
        "",
    ],
)
def test_on_loopback_a_broker_answers_by_its_own_names(host: str) -> None:
    names = ("broker.example.com", "Peeklock", "*.wild.example.com")
    assert status(Hosts(SPACES, names=names, is_loopback=True), host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:5300",
        "sbemulatorns.evil.example",
        "localhost.evil.example",
        "evillocalhost",
        "127.0.0.1.evil.example",
        "b.a.wild.example.com",
        "wild.example.com",
        "localhost:99999999",
        "[::1",
        "user@evil.example",
    ],
)
def test_on_loopback_it_answers_by_no_other(host: str) -> None:
    """A page whose name was made to mean this machine says that name."""
    hosts = Hosts(SPACES, names=("*.wild.example.com",), is_loopback=True)
    assert status(hosts, host) == 421
    assert "--allowed-host" in str(hosts.refusal(host, ""))  # told how


def test_elsewhere_names_are_free() -> None:
    assert status(Hosts(SPACES), "peeklock.my-project_default:5300") == 200


@pytest.mark.parametrize("is_loopback", [False, True])
@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("localhost:5300", "http://localhost:5300", 200),
        ("localhost:5300", "https://LOCALHOST:5300", 200),
        ("localhost", "http://localhost", 200),
        ("localhost", "https://localhost:443", 200),
        ("localhost:5300", "http://localhost:3000", 403),
        ("localhost:5300", "https://evil.example", 403),
        ("localhost:5300", "null", 403),
        ("localhost:5300", "file://", 403),
        ("localhost:5300", "http://localhost:5300.evil.example", 403),
        ("localhost:5300", "https://app.example", 200),
        ("localhost:5300", "https://app.example:8443", 403),
        ("", "http://localhost", 403),
    ],
)
def test_pages_of_other_sites_are_refused(
    is_loopback: bool, host: str, origin: str, expected: int
) -> None:
    hosts = Hosts(SPACES, origins=("https://App.example/",), is_loopback=is_loopback)
    assert status(hosts, host, origin) == expected


def test_all_pages_and_names_can_be_allowed() -> None:
    hosts = Hosts(SPACES, names=("*",), origins=("*",), is_loopback=True)
    assert status(hosts, "evil.example", "null") == 200


def test_own_names_are_those_that_somebody_gave() -> None:
    """What a token for the host alone means is not for a request to choose."""
    hosts = Hosts(SPACES, names=("peeklock", "*.example.com"), is_loopback=True)
    own = ("localhost", "127.0.0.1", "peeklock", "sbemulatorns", "depot.localhost", "a.example.com")
    assert all(hosts.is_own(name) for name in own)
    others = ("orders", "10.1.2.3", "x.localhost", "depot.example.org", "example.com")
    assert not any(hosts.is_own(name) for name in others)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("localhost", True),
        ("localhost/orders", True),
        ("depot.localhost/orders/a", True),
        ("orders", False),
        ("orders/localhost", False),
        ("peeklock", False),
        ("peeklock/orders", False),
        ("sbemulatorns/eu", False),
        ("sbemulatorns/eu/x", False),
        ("sbemulatorns/us", True),
        ("localhost" + "/x" * 200, False),
    ],
)
def test_a_name_that_is_an_entity_is_no_host(path: str, expected: bool) -> None:
    """Even where all names are allowed: that says nothing about what tokens mean."""
    hosts = Hosts(SPACES, names=("peeklock", "*"), is_loopback=True)
    assert hosts.begins(path, {"orders", "peeklock", "sbemulatorns/eu"}.__contains__) is expected
