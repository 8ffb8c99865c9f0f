"""Settings: the defaults, and who can reach a host."""

import pytest

from peeklock.settings import Settings


def test_the_defaults_are_the_emulators_ports_on_loopback() -> None:
    settings = Settings()
    assert (settings.host, settings.amqp_port, settings.http_port) == ("127.0.0.1", 5672, 5300)
    assert settings.is_loopback()


def test_the_defaults_are_one_store_and_the_services_limits() -> None:
    """R-P10: 100 partitioned entities, counted in the 10,000 entities."""
    settings = Settings()
    limits = (settings.stores, settings.entities_max, settings.partitioned_entities_max)
    assert limits == (1, 10_000, 100)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LocalHost"])
def test_loopback_is_reached_from_this_machine_only(host: str) -> None:
    assert Settings(host=host).is_loopback()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "broker.example", ""])
def test_everything_else_may_be_reached_from_outside(host: str) -> None:
    assert not Settings(host=host).is_loopback()
