"""Asking patiently: what passes is waited for, what stays is told at once."""

import ssl

import pytest

from peeklock.client.exceptions import ServiceBusCommunicationError
from peeklock.spark.entity_client import patiently
from peeklock.spark.options import Access


def test_a_certificate_that_is_not_trusted_is_told_at_once() -> None:
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        raise ServiceBusCommunicationError("no") from ssl.SSLCertVerificationError("self-signed")

    with pytest.raises(ServiceBusCommunicationError):
        patiently(ask, Access("Endpoint=sb://a.example", retry_deadline_ms=1_000))
    assert asked == [1]
