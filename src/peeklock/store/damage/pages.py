"""The engine's file, read without the engine: what of it is whole, and what is in it.

The engine trusts its file: where a page is missing or damaged, it ends the process. So whoever
looks at a file that may be damaged reads it here, where everything is checked before it is followed
(64-bit LMDB 0.9, little-endian):

    page     number u64, pad u16, flags u16, lower u16, upper u16 (or pages u32), then pointers u16
    meta     in pages 0 and 1: magic u32, version u32, address u64, map size u64, two trees, last
             page u64, transaction u64; the higher transaction is in force
    tree     pad u32, flags u16, depth u16, pages of three kinds u64, entries u64, root u64
    node     low u16, high u16, flags u16, bytes of the key u16, key, value
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from peeklock.store.store import Corrupt

DATA: Final = "data.mdb"

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_page: Final = struct.Struct("<QHHHH")
_meta: Final = struct.Struct("<IIQQ48s48sQQ")
_tree: Final = struct.Struct("<IHHQQQQQ")
_node: Final = struct.Struct("<HHHH")
_pointer: Final = struct.Struct("<H")
_number: Final = struct.Struct("<Q")
_count: Final = struct.Struct("<I")

_BRANCH: Final = 1
_LEAF: Final = 2
_OVERFLOW: Final = 4
_BIG: Final = 1  # of a node: its value lies in pages of its own
_SUBTREE: Final = 2
_FREE: Final = "free"  # the only tree whose keys are numbers, in the order of numbers
_NO_PAGE: Final = (1 << 64) - 1
_SIZES: Final = (4096, 8192, 16384, 32768, 65536, 512, 1024, 2048)
_DEPTH_MAX: Final = 32


@final
class Pages:
    """One data file. `problems` are told while it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        # Trees of which nobody can tell how much was in them, and why.
        self.lost: dict[str, str] = {}
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise Corrupt(f"{path} is empty")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._bytes = memoryview(self._map)
        self._size, meta = self._newest_meta()
        _, _, _, _, free, main, self._last, _ = meta
        self._free: bytes = free
        self._main: bytes = main
        self._seen: set[int] = set()

    @property
    def missing_bytes(self) -> int:
        """How many bytes the file is shorter than its last transaction says."""
        return max(0, (self._last + 1) * self._size - len(self._bytes))

    def entries(self, name: bytes) -> Iterator[tuple[bytes, memoryview]]:
        """Return what is in a tree, in the order of its keys; what cannot be read is left out and
        told as a problem."""
        root, expected = self._root(name)
        if root is None:
            return
        problems = len(self.problems)
        count = 0
        for each in self._walk(root, name.decode(), 0):
            count += 1
            yield each
        if count < expected and len(self.problems) == problems:
            # Every page looks whole: it is another root, or a page that says less than it has.
            text = f"the tree of '{name.decode()}' has {expected} entries, {count} can be reached"
            self._lose(name.decode(), text)

    def look_at_the_rest(self) -> None:
        """Look at the tree of pages that are free: nobody needs it but the engine."""
        root: int = _tree.unpack(self._free)[7]
        if root != _NO_PAGE:
            for _ in self._walk(root, _FREE, 0):
                pass

    def _newest_meta(self) -> tuple[int, tuple[int, int, int, int, bytes, bytes, int, int]]:
        found: list[tuple[int, int, tuple[int, int, int, int, bytes, bytes, int, int]]] = []
        for size in _SIZES:
            for at in (0, size):
                if at + _page.size + _meta.size > len(self._bytes):
                    continue
                meta = _meta.unpack_from(self._bytes, at + _page.size)
                is_meta = meta[0] == _MAGIC and meta[1] & 0xFFFF == _VERSION
                if is_meta and _tree.unpack(meta[4])[0] == size:
                    found.append((meta[7], size, meta))
            if found:
                break
        if not found:
            raise Corrupt(f"{self.path} holds no store that can be read: its first pages are lost")
        _, size, meta = max(found, key=lambda each: each[0])
        return size, meta

    def _root(self, name: bytes) -> tuple[int | None, int]:
        """Find a tree among those that the main one names: its root, if any, and its entries."""
        root: int = _tree.unpack(self._main)[7]
        if root == _NO_PAGE:
            return None, 0
        for key, value in self._walk(root, "main", 0, subtrees=True):
            if key == name and len(value) == _tree.size:
                entries, found = _tree.unpack(value)[6:]
                return None if found == _NO_PAGE else found, entries
        self._lose(name.decode(), f"the tree of '{name.decode()}' cannot be found")
        return None, 0

    def _walk(
        self, number: int, tree: str, depth: int, *, subtrees: bool = False
    ) -> Iterator[tuple[bytes, memoryview]]:
        page = self._page(number, tree, depth)
        if page is None:
            if depth == 0:
                self.lost[tree] = self.problems[-1]
            return
        flags, lower = _page.unpack_from(page)[2:4]
        last = b""
        for index in range((lower - _page.size) // 2):
            at: int = _pointer.unpack_from(page, _page.size + 2 * index)[0]
            if at + _node.size > len(page):
                self._problem(tree, number, "points outside itself")
                continue
            low, high, node_flags, key_bytes = _node.unpack_from(page, at)
            start = at + _node.size
            key = bytes(page[start : start + key_bytes])
            if flags & _BRANCH:
                child = low | high << 16 | node_flags << 32
                yield from self._walk(child, tree, depth + 1, subtrees=subtrees)
                continue
            if len(key) != key_bytes or (last and key <= last and tree != _FREE):
                self._problem(tree, number, "has keys out of order")
                continue
            last = key
            if bool(node_flags & _SUBTREE) != subtrees:
                self._problem(tree, number, "has an entry of another kind")
                continue
            value = self._value(page, start + key_bytes, low | high << 16, node_flags, tree)
            if value is not None:
                yield key, value

    def _page(self, number: int, tree: str, depth: int) -> memoryview | None:
        """Return a page of a tree, or tell why it cannot be used."""
        if number in self._seen and tree != "main":
            self._problem(tree, number, "is there twice")
            return None
        self._seen.add(number)
        page = self._bytes[number * self._size : (number + 1) * self._size]
        if len(page) < self._size or depth > _DEPTH_MAX:
            self._problem(tree, number, "lies beyond the end of the file")
            return None
        own, _, flags, lower, upper = _page.unpack_from(page)
        if own != number or flags & ~0x10 not in (_BRANCH, _LEAF):
            self._problem(tree, number, "is damaged")
            return None
        if not _page.size <= lower <= upper <= self._size:
            self._problem(tree, number, "is damaged")
            return None
        return page

    def _value(
        self, page: memoryview, at: int, size: int, flags: int, tree: str
    ) -> memoryview | None:
        if not flags & _BIG:
            value = page[at : at + size]
            if len(value) < size:
                self.problems.append(f"a value of the tree '{tree}' is cut off")
                return None
            return value
        if at + _number.size > len(page):
            self.problems.append(f"a value of the tree '{tree}' is cut off")
            return None
        number: int = _number.unpack_from(page, at)[0]
        start = number * self._size
        if start + _page.size + size > len(self._bytes):
            self._problem(tree, number, "lies beyond the end of the file")
            return None
        own, _, page_flags, _, _ = _page.unpack_from(self._bytes, start)
        pages: int = _count.unpack_from(self._bytes, start + 12)[0]
        if own != number or not page_flags & _OVERFLOW or pages * self._size < _page.size + size:
            # Not more than a doubt: the value itself has a checksum.
            self._problem(tree, number, "is damaged")
        return self._bytes[start + _page.size : start + _page.size + size]

    def _lose(self, tree: str, text: str) -> None:
        self.problems.append(text)
        self.lost[tree] = text

    def _problem(self, tree: str, number: int, text: str) -> None:
        self.problems.append(f"page {number} of the tree '{tree}' {text}")


def refuse_lost(pages: Pages, tree: str) -> None:
    """Raise Corrupt where what cannot be read of a tree cannot even be named."""
    if tree in pages.lost:
        raise Corrupt(f"{pages.lost[tree]}: nobody can tell what was in it")


def why_too_short(data: Path) -> str | None:
    """Return why a file must not be given to the engine, which would end the process; None where it
    may.

    Pages at the end that nobody needs were perhaps never written; those do not count.
    """
    try:
        pages = Pages(data)
    except (Corrupt, OSError):
        return None  # the engine has its own words for that
    missing = pages.missing_bytes
    if not missing:
        return None
    pages.look_at_the_rest()
    for name in (b"meta", b"values"):
        for _ in pages.entries(name):
            pass
    if not pages.problems:
        return None
    return (
        f"{data} is at least {missing} bytes shorter than it was: {pages.problems[0]}. "
        "Restore it, or ask `peeklock store check` what is lost"
    )
