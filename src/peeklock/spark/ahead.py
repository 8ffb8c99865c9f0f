"""Asking for the next page while rows are made of this one."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(pages: Iterator[T]) -> Iterator[T]:
    """Walk one step ahead in another thread; what goes wrong there is raised here, in its place."""
    with ThreadPoolExecutor(1, thread_name_prefix="peeklock-ahead") as pool:
        coming = pool.submit(next, pages, None)
        while (page := coming.result()) is not None:
            coming = pool.submit(next, pages, None)
            yield page
