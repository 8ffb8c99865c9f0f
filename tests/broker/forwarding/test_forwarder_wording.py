"""The forwarder with messages as they are on the wire: what they bring along is written by the
gateway's wording."""

from __future__ import annotations

import asyncio

from peeklock.entity.commands import SendMany
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.message import Message
from peeklock.gateway.amqp.messages.wording import AmqpWording
from tests.broker.broker_harness import Recorder, settle_down
from tests.broker.forwarding.harness import Network
from tests.broker.seeded_random import SeededRandom


def test_a_dead_letter_of_a_forwarded_message_knows_its_way() -> None:
    """R-S9: hops are counted, the dead letter's source is told, its number is the first one."""

    async def whole() -> None:
        network = Network(
            QueueDefinition("a", forward_to="b"),
            QueueDefinition("b", forward_dead_letters_to="c"),
            QueueDefinition("c"),
            wording=AmqpWording(SeededRandom(3).number),
        )
        network.open()
        body = b"\x00\x53\x75\xa0\x05hello"  # one section of data
        await network.ask("a", SendMany(Recorder(), [0], [Message(b"", body)]))
        await settle_down()
        await network.dead_letter("b", 1, "broken")
        await settle_down()
        [found] = await network.peek("c")
        assert found.message is not None
        assert found.details is not None
        assert found.message.content.endswith(body)
        assert b"broken" in found.message.content
        assert found.details.hops == 2
        assert found.details.source == "b"
        await network.close()

    asyncio.run(whole())
