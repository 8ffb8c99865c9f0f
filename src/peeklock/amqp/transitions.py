"""What may be said in which state, as closed tables: what is not in them ends the conversation.

A connection walks down this list of phases; a server and a client differ only in the SASL part. A
peer that skips SASL goes from the first header straight to `WAIT_OPEN`.
"""

from typing import Final

from peeklock.amqp.frames.headers import (
    AMQP_FRAME,
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    EMPTY,
    END,
    FLOW,
    OPEN,
    SASL_FRAME,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    TRANSFER,
)

# Phases of a connection.
WAIT_HEADER: Final = 0  # server: the first header decides between SASL and AMQP
WAIT_SASL_HEADER: Final = 1  # client
SASL_WAIT_INIT: Final = 2  # server
SASL_DECIDING: Final = 3  # server: the owner checks what the peer presented; input is held
SASL_WAIT_MECHANISMS: Final = 4  # client
SASL_WAIT_OUTCOME: Final = 5  # client
WAIT_AMQP_HEADER: Final = 6
WAIT_OPEN: Final = 7
OPENED: Final = 8
CLOSING: Final = 9  # our close is out; all but the peer's close is dropped
CLOSED: Final = 10

HEADER_MOVES: Final[dict[tuple[int, bytes], int]] = {
    (WAIT_HEADER, SASL_HEADER): SASL_WAIT_INIT,
    (WAIT_HEADER, AMQP_HEADER): WAIT_OPEN,
    (WAIT_SASL_HEADER, SASL_HEADER): SASL_WAIT_MECHANISMS,
    (WAIT_AMQP_HEADER, AMQP_HEADER): WAIT_OPEN,
}
HEADER_PHASES: Final = frozenset(phase for phase, _ in HEADER_MOVES)

FRAME_MOVES: Final[dict[tuple[int, int, int], int]] = {
    (SASL_WAIT_INIT, SASL_FRAME, SASL_INIT): SASL_DECIDING,
    (SASL_WAIT_MECHANISMS, SASL_FRAME, SASL_MECHANISMS): SASL_WAIT_OUTCOME,
    (SASL_WAIT_OUTCOME, SASL_FRAME, SASL_OUTCOME): WAIT_AMQP_HEADER,
    (WAIT_OPEN, AMQP_FRAME, EMPTY): WAIT_OPEN,
    (WAIT_OPEN, AMQP_FRAME, OPEN): OPENED,
    (OPENED, AMQP_FRAME, EMPTY): OPENED,
    (OPENED, AMQP_FRAME, BEGIN): OPENED,
    (OPENED, AMQP_FRAME, ATTACH): OPENED,
    (OPENED, AMQP_FRAME, FLOW): OPENED,
    (OPENED, AMQP_FRAME, TRANSFER): OPENED,
    (OPENED, AMQP_FRAME, DISPOSITION): OPENED,
    (OPENED, AMQP_FRAME, DETACH): OPENED,
    (OPENED, AMQP_FRAME, END): OPENED,
    (OPENED, AMQP_FRAME, CLOSE): CLOSED,
    (CLOSING, AMQP_FRAME, EMPTY): CLOSING,
    (CLOSING, AMQP_FRAME, OPEN): CLOSING,
    (CLOSING, AMQP_FRAME, BEGIN): CLOSING,
    (CLOSING, AMQP_FRAME, ATTACH): CLOSING,
    (CLOSING, AMQP_FRAME, FLOW): CLOSING,
    (CLOSING, AMQP_FRAME, TRANSFER): CLOSING,
    (CLOSING, AMQP_FRAME, DISPOSITION): CLOSING,
    (CLOSING, AMQP_FRAME, DETACH): CLOSING,
    (CLOSING, AMQP_FRAME, END): CLOSING,
    (CLOSING, AMQP_FRAME, CLOSE): CLOSED,
}

# What a session or a link does with a frame: it takes it, or lets it pass because its own goodbye
# crossed it on the wire [2.5.5, 2.6.5].
TAKE: Final = 1
DROP: Final = 2

# States of a session.
BEGIN_SENT: Final = 0  # client: waits for the peer's begin
MAPPED: Final = 1
ENDING: Final = 2  # our end is out
ENDED: Final = 3

SESSION_MOVES: Final[dict[tuple[int, int], int]] = {
    (BEGIN_SENT, BEGIN): TAKE,
    (MAPPED, ATTACH): TAKE,
    (MAPPED, FLOW): TAKE,
    (MAPPED, TRANSFER): TAKE,
    (MAPPED, DISPOSITION): TAKE,
    (MAPPED, DETACH): TAKE,
    (MAPPED, END): TAKE,
    (ENDING, BEGIN): TAKE,  # client: it ended the session before the answer to its begin came
    (ENDING, ATTACH): DROP,
    (ENDING, FLOW): DROP,
    (ENDING, TRANSFER): DROP,
    (ENDING, DISPOSITION): DROP,
    (ENDING, DETACH): DROP,
    (ENDING, END): TAKE,
    # Python's client ends its session first and then detaches the links it had there.
    (ENDED, DETACH): DROP,
}

# States of a link.
REQUESTED: Final = 0  # the peer attached, the owner has not answered yet
ATTACH_SENT: Final = 1  # we asked, the peer has not answered yet
ATTACHED: Final = 2
DETACHING: Final = 3  # our detach is out
DETACHED: Final = 4

LINK_MOVES: Final[dict[tuple[int, int], int]] = {
    (REQUESTED, FLOW): TAKE,
    (REQUESTED, DETACH): TAKE,
    (ATTACH_SENT, ATTACH): TAKE,
    (ATTACHED, FLOW): TAKE,
    (ATTACHED, TRANSFER): TAKE,
    (ATTACHED, DETACH): TAKE,
    (DETACHING, ATTACH): TAKE,  # client: it detached before the answer to its attach came
    (DETACHING, FLOW): DROP,
    (DETACHING, TRANSFER): DROP,
    (DETACHING, DETACH): TAKE,
}
