"""Refusals in the service's form: a small XML document with the code and the whole text."""

import re
from typing import Final
from xml.sax.saxutils import escape

from peeklock.gateway.http.answer import Answer

_ERROR_TYPE: Final = "application/xml; charset=utf-8"
# What XML 1.0 cannot hold, not even escaped. A path may have brought it into a text.
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def error(status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Say why something is not done."""
    detail = escape(_UNWRITABLE.sub("\ufffd", text))
    document = f"<Error><Code>{status}</Code><Detail>{detail}</Detail></Error>"
    return Answer(status, {}, headers, content=document.encode(), content_type=_ERROR_TYPE)


def in_this_form(answer: Answer) -> Answer:
    """Give the refusal of somebody who speaks JSON in this form."""
    text = answer.document.get("error")
    return answer if text is None else error(answer.status, str(text), answer.headers)
