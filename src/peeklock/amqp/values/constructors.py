"""The constructor codes, the byte in front of every value, and how much follows each [1.6]."""

from typing import Final

DESCRIBED: Final = 0x00
NULL: Final = 0x40
TRUE: Final = 0x41
FALSE: Final = 0x42
UINT0: Final = 0x43
ULONG0: Final = 0x44
LIST0: Final = 0x45
UBYTE: Final = 0x50
BYTE: Final = 0x51
SMALL_UINT: Final = 0x52
SMALL_ULONG: Final = 0x53
SMALL_INT: Final = 0x54
SMALL_LONG: Final = 0x55
BOOLEAN: Final = 0x56
USHORT: Final = 0x60
SHORT: Final = 0x61
UINT: Final = 0x70
INT: Final = 0x71
FLOAT: Final = 0x72
CHAR: Final = 0x73
DECIMAL32: Final = 0x74
ULONG: Final = 0x80
LONG: Final = 0x81
DOUBLE: Final = 0x82
TIMESTAMP: Final = 0x83
DECIMAL64: Final = 0x84
DECIMAL128: Final = 0x94
UUID_CODE: Final = 0x98
BINARY8: Final = 0xA0
STRING8: Final = 0xA1
SYMBOL8: Final = 0xA3
BINARY32: Final = 0xB0
STRING32: Final = 0xB1
SYMBOL32: Final = 0xB3
LIST8: Final = 0xC0
MAP8: Final = 0xC1
LIST32: Final = 0xD0
MAP32: Final = 0xD1
ARRAY8: Final = 0xE0
ARRAY32: Final = 0xF0

# How many bytes follow a constructor: up to 16 is that many, SIZED8 and SIZED32 stand for a size
# that comes first, UNKNOWN for codes that mean nothing (and for 0x00, which is looked at before).
SIZED8: Final = 32
SIZED32: Final = 33
UNKNOWN: Final = 255
_WIDTH_OF_CODE: Final = {
    **dict.fromkeys((NULL, TRUE, FALSE, UINT0, ULONG0, LIST0), 0),
    **dict.fromkeys((UBYTE, BYTE, SMALL_UINT, SMALL_ULONG, SMALL_INT, SMALL_LONG, BOOLEAN), 1),
    **dict.fromkeys((USHORT, SHORT), 2),
    **dict.fromkeys((UINT, INT, FLOAT, CHAR, DECIMAL32), 4),
    **dict.fromkeys((ULONG, LONG, DOUBLE, TIMESTAMP, DECIMAL64), 8),
    **dict.fromkeys((DECIMAL128, UUID_CODE), 16),
    **dict.fromkeys((BINARY8, STRING8, SYMBOL8, LIST8, MAP8, ARRAY8), SIZED8),
    **dict.fromkeys((BINARY32, STRING32, SYMBOL32, LIST32, MAP32, ARRAY32), SIZED32),
}
WIDTHS: Final = bytes(_WIDTH_OF_CODE.get(code, UNKNOWN) for code in range(256))

# How `struct` knows the whole numbers that arrays are mostly made of.
ARRAY_NUMBERS: Final[dict[int, str]] = {INT: "i", LONG: "q"}
