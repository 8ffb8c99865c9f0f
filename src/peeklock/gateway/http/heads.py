"""What a request's head must keep to before it is read: a size, and lines that end in one way.

Whoever stands between a client and us may read these differently than we do, and then one request
hides in another (request smuggling). What can be read in two ways is not read at all.
"""

from typing import Final

import h11

from peeklock.gateway.http.answer import Answer, bad_request, refused

# The service takes 64 KB of properties in the head of a message; the rest is for everything else.
HEAD_BYTES_MAX: Final = 68 * 1024

_END: Final = b"\r\n\r\n"


def problem_of_bytes(data: bytes) -> Answer | None:
    """Look at what came of a head, and perhaps of what follows it."""
    end = data.find(_END)
    size = len(data) if end < 0 else end + len(_END)
    if size > HEAD_BYTES_MAX:
        return refused(431, f"The head of the request is larger than {HEAD_BYTES_MAX} bytes.")
    ended = data.count(b"\r\n", 0, size)
    # The first half of an end may be the last byte that came.
    is_cut = end < 0 and data.endswith(b"\r")
    if data.count(b"\n", 0, size) != ended or data.count(b"\r", 0, size) != ended + is_cut:
        return bad_request("The request cannot be read: its lines must end with CR LF.")
    return None


def problem_of_framing(head: h11.Request) -> Answer | None:
    """Look whether the end of the body can be found in more than one way."""
    names = {name for name, _ in head.headers}
    if b"transfer-encoding" not in names:
        return None
    if b"content-length" in names:
        return bad_request(
            "The request cannot be read: it has both a Content-Length and a Transfer-Encoding."
        )
    if head.http_version < b"1.1":
        return bad_request("The request cannot be read: HTTP/1.0 has no Transfer-Encoding.")
    return None
