"""What leaves the broker is what the reference says, section by section."""

import pytest

from tests.gateway.amqp.transcripts import PAGE, tables, transcript, written

COMMAND = "`python -m tests.gateway.amqp.transcripts` writes the page anew"


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_reference_tells_what_leaves_the_broker(partitions: int) -> None:
    assert tables(transcript(partitions)) == written(PAGE.read_text()), COMMAND
