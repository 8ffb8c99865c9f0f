"""The checksum of all that rests: CRC-32 as zlib has it, by whoever is fastest at it here.

zlib-ng uses the processor's own instructions and takes a fifth of zlib's time; the numbers are the
same, so that a store written with one is read with the other.
"""

from __future__ import annotations

from typing import Final

try:
    from zlib_ng.zlib_ng import crc32 as _crc32
except ImportError:  # no build of it for this platform
    from zlib import crc32 as _crc32

crc32: Final = _crc32
