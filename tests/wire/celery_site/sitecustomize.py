"""Stands for what a user does to the machine once: a line in the hosts file, which says that the
namespace is here, and the authority at the end of certifi's bundle, which the client trusts."""

import os
import socket
from typing import Any

import certifi

_HERE = os.environ["CELERY_TEST_HOST"]
_find = socket.getaddrinfo


def _getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
    return _find("127.0.0.1" if host == _HERE else host, *args, **kwargs)


def _where() -> str:
    return os.environ["CELERY_TEST_TRUST"]


socket.getaddrinfo = _getaddrinfo
certifi.where = _where
