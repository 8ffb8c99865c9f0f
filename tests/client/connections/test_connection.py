"""The connection: opened once for many, opened anew after a loss, closed without a trace."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.values.types import Int, Symbol
from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.connection import ClientConnection
from peeklock.client.connections.transport import Transport
from peeklock.client.credentials import JWT_TYPE, SAS_TYPE, SasKey, Token
from peeklock.client.exceptions import (
    ClaimFenced,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from peeklock.client.receiving.receiver_link import ReceiverLink
from peeklock.client.sending.sender_link import SenderLink
from tests.client.engine_broker import Bench, config, until
from tests.client.moving_loop import MovingLoop, move

# Shorter than the silence after which a peer is given up.
LIFE_S = 10


async def turns() -> None:
    """Let what is under way come to its end."""
    for _ in range(50):
        await asyncio.sleep(0)


def run(body: Callable[[Bench], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def inside() -> None:
        async with Bench(**options) as bench:
            await body(bench)

    with asyncio.Runner(loop_factory=MovingLoop) as runner:
        runner.run(inside())


def test_many_who_open_at_once_share_one_connection_and_one_token() -> None:
    async def body(bench: Bench) -> None:
        senders = [bench.connection.open_sender("q") for _ in range(20)]
        receivers = [bench.connection.open_receiver("q", deletes=True) for _ in range(20)]
        links: list[SenderLink | ReceiverLink] = []
        links += await asyncio.gather(*senders)
        links += await asyncio.gather(*receivers)
        assert all(link.is_open for link in links)
        assert len(bench.brokers) == 1
        assert len(bench.broker.tokens) == 1
        assert len({link.name for link in links}) == 40

    run(body)


def test_each_entity_has_a_token_of_its_own() -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.open_sender("orders")
        await bench.connection.open_receiver("orders/$DeadLetterQueue", deletes=False)
        await bench.connection.manage("orders", "com.microsoft:any", {})
        await bench.connection.open_receiver("news/Subscriptions/all", deletes=False)
        names = [(token.application_properties or {})["name"] for token in bench.broker.tokens]
        assert names == ["sb://engine/orders", "sb://engine/news/Subscriptions/all"]
        assert (bench.broker.tokens[0].application_properties or {})["type"] == SAS_TYPE
        assert str(bench.broker.tokens[0].body).startswith("SharedAccessSignature ")

    run(body)


@pytest.mark.parametrize(
    ("status", "kind", "is_retryable"),
    [
        (401, ServiceBusAuthenticationError, False),
        (404, MessagingEntityNotFoundError, False),
        (400, ServiceBusAuthenticationError, False),
        (503, ServiceBusServerBusyError, True),
    ],
)
def test_a_token_that_is_refused_fails_the_opening_and_is_shown_again(
    status: int, kind: type[ServiceBusError], is_retryable: bool
) -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.open_sender("other")
        bench.broker.token_status = status
        with pytest.raises(kind, match="so it is") as caught:
            await bench.connection.open_sender("q")
        assert caught.value.is_retryable == is_retryable
        bench.broker.token_status = 202
        await bench.connection.open_sender("q")
        assert len(bench.broker.tokens) == 3

    run(body)


def test_a_token_is_renewed_before_it_expires() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        for shown in (1, 2):
            move(LIFE_S * 0.5)
            await turns()
            assert len(bench.broker.tokens) == shown
            move(LIFE_S * 0.6)
            await until(lambda count=shown + 1: len(bench.broker.tokens) == count)
            await turns()  # the answer, and what follows from it
        assert link.is_open

    run(body, credential=SasKey("rule", "key", token_ms=LIFE_S * 1000))


def test_a_renewal_that_fails_is_tried_again() -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.open_sender("q")
        bench.broker.token_status = 500
        for count in (2, 3):
            move(LIFE_S)
            await until(lambda count=count: len(bench.broker.tokens) == count)
            await turns()  # the answer, and what follows from it

    run(body, credential=SasKey("rule", "key", token_ms=LIFE_S * 1000))


def test_a_credential_that_raises_what_it_likes_is_asked_again() -> None:
    class Moody:
        def __init__(self) -> None:
            self.asked = 0
            self._key = SasKey("rule", "key", token_ms=LIFE_S * 1000)

        async def token(self, audience: str, now: int) -> Token:
            self.asked += 1
            if self.asked == 2:
                raise LookupError("the identity service is asleep")
            return await self._key.token(audience, now)

    credential = Moody()

    async def body(bench: Bench) -> None:
        await bench.connection.open_sender("q")
        move(LIFE_S)
        await until(lambda: credential.asked == 2)
        await turns()
        assert len(bench.broker.tokens) == 1
        move(LIFE_S)
        await until(lambda: len(bench.broker.tokens) == 2)
        assert credential.asked == 3

    run(body, credential=credential)


def test_tokens_of_an_identity_service_are_web_tokens() -> None:
    class Found:
        token = "a.b.c"
        expires_on = 4_000_000_000

    class Identity:
        async def get_token(self, *scopes: str, **options: Any) -> Found:
            assert scopes == ("https://servicebus.azure.net//.default",)
            return Found()

    credential = ClientConfig.for_namespace("engine", Identity()).credential

    async def body(bench: Bench) -> None:
        await bench.connection.open_sender("q")
        token = bench.broker.tokens[0]
        assert ((token.application_properties or {})["type"], token.body) == (JWT_TYPE, "a.b.c")

    run(body, credential=credential)


# --- requests


def test_requests_are_answered_in_any_order() -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.manage("q", "com.microsoft:first", {})
        bench.broker.answer_with = None
        asked = [
            asyncio.create_task(bench.connection.manage("q", f"com.microsoft:{n}", {"n": n}))
            for n in range(300)
        ]
        await until(lambda: len(bench.broker.requests) == 301)
        requests = bench.broker.requests[1:]
        for request in reversed(requests):
            status = {"statusCode": Int(200), "statusDescription": "OK"}
            bench.broker.answer("q/$management", request, status, {"n": request.body["n"] * 2})
        bench.broker.flush()
        answers = await asyncio.gather(*asked)
        assert [answer["n"] for answer in answers] == [2 * n for n in range(300)]

    run(body)


def test_a_request_says_for_which_link_and_for_how_long() -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.manage(
            "q", "com.microsoft:renew-lock", {"a": 1}, link_name="link", within_s=7
        )
        request = bench.broker.requests[0]
        assert request.application_properties == {
            "operation": "com.microsoft:renew-lock",
            "associated-link-name": "link",
            "com.microsoft:server-timeout": 6000,
        }
        assert request.body == {"a": 1}

    run(body)


@pytest.mark.parametrize(
    ("status", "condition", "kind"),
    [
        (409, "com.peeklock:claim-fenced", ClaimFenced),
        (404, "amqp:not-found", MessagingEntityNotFoundError),
        (503, "", ServiceBusServerBusyError),
        (500, "amqp:internal-error", ServiceBusError),
    ],
)
def test_a_declined_request_raises_its_condition(
    status: int, condition: str, kind: type[ServiceBusError]
) -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.manage("q", "com.microsoft:first", {})
        bench.broker.answer_with = None
        asked = asyncio.create_task(bench.connection.manage("q", "com.microsoft:any", {}))
        await until(lambda: len(bench.broker.requests) == 2)
        properties: dict[str, Any] = {
            "statusCode": Int(status),
            "statusDescription": "it says why",
        }
        if condition:
            properties["errorCondition"] = Symbol(condition)
        bench.broker.answer("q/$management", bench.broker.requests[1], properties)
        bench.broker.flush()
        with pytest.raises(kind, match="it says why") as caught:
            await asked
        assert (type(caught.value), caught.value.condition) == (kind, condition)
        assert caught.value.is_retryable == (status >= 500)

    run(body)


def test_an_answer_of_many_elements_and_frames_is_read() -> None:
    async def body(bench: Bench) -> None:
        answer = {"numbers": list(range(200_000)), "bytes": bytes(300_000)}
        await bench.connection.open_sender("q")
        bench.broker.answer_with = answer
        assert await bench.connection.manage("q", "com.microsoft:any", {}) == answer

    run(body, limits=ConnectionLimits(max_message_size=0))


def test_a_request_that_is_not_answered_gives_up_in_time() -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.manage("q", "com.microsoft:first", {})
        bench.broker.answer_with = None
        with pytest.raises(OperationTimeoutError, match="did not answer"):
            await bench.connection.manage("q", "com.microsoft:any", {}, within_s=0.01)
        # An answer that comes too late disturbs nobody.
        status = {"statusCode": Int(200), "statusDescription": "OK"}
        bench.broker.answer("q/$management", bench.broker.requests[1], status, {})
        bench.broker.answer_with = {"late": False}
        assert await bench.connection.manage("q", "com.microsoft:any", {}) == {"late": False}

    run(body)


@pytest.mark.parametrize("side", ["to", "from"])
def test_a_request_channel_that_is_detached_is_opened_anew(side: str) -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.manage("q", "com.microsoft:first", {})
        bench.broker.answer_with = None
        asked = asyncio.create_task(bench.connection.manage("q", "com.microsoft:any", {}))
        await until(lambda: len(bench.broker.requests) == 2)
        bench.broker.links[f"{side} q/$management"].detach(
            AmqpError("amqp:link:detach-forced", "idle")
        )
        bench.broker.flush()
        with pytest.raises(ServiceBusConnectionError, match="idle"):
            await asked
        bench.broker.answer_with = {"again": True}
        assert await bench.connection.manage("q", "com.microsoft:any", {}) == {"again": True}
        assert len(bench.brokers) == 1

    run(body)


def test_links_that_are_gone_leave_no_session_behind() -> None:
    async def lose(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        other = await bench.connection.open_receiver("q", deletes=False)
        await bench.connection.manage("q", "com.microsoft:any", {})
        for name in ("to q", "from q", "to q/$management"):
            bench.broker.links[name].detach(AmqpError("amqp:link:detach-forced", "idle"))
        bench.broker.flush()
        await until(lambda: not link.is_open and not other.is_open)

    async def body(bench: Bench) -> None:
        for _ in range(5):
            await lose(bench)
            closed = await bench.connection.open_sender("q")
            await closed.close()
        # What is left are the links of the tokens and the last one of the management node, if that.
        await until(lambda: len(bench.broker.connection.local) <= 2)

    run(body)


def test_more_links_than_the_broker_takes_are_refused() -> None:
    async def body(bench: Bench) -> None:
        for number in range(3):
            await bench.connection.open_sender(f"q{number}")
        with pytest.raises(ServiceBusQuotaExceededError, match="too many links"):
            await bench.connection.open_sender("q")

    run(body, limits=ConnectionLimits(channel_max=3))


# --- losses


def test_a_loss_is_told_to_every_link_and_the_next_opening_connects_anew() -> None:
    async def body(bench: Bench) -> None:
        sender = await bench.connection.open_sender("q")
        receiver = await bench.connection.open_receiver("q", deletes=False)
        await bench.connection.manage("q", "com.microsoft:first", {})
        bench.broker.accepts = False
        bench.broker.answer_with = None
        pending: list[asyncio.Future[Any]] = [
            sender.submit(b"x"),
            asyncio.ensure_future(receiver.receive(1, None)),
            asyncio.ensure_future(bench.connection.manage("q", "com.microsoft:any", {})),
        ]
        await until(lambda: bool(bench.broker.arrived) and len(bench.broker.requests) == 2)
        bench.broker.cut()
        for result in await asyncio.gather(*pending, return_exceptions=True):
            assert isinstance(result, ServiceBusConnectionError)
            assert result.is_retryable
        assert not sender.is_open
        again = await bench.connection.open_sender("q")
        await again.submit(b"y")
        assert len(bench.brokers) == 2
        assert len(bench.broker.tokens) == 1

    run(body)


def test_a_polite_close_of_the_broker_is_no_failure_while_nothing_is_under_way() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        bench.broker.connection.close(AmqpError("amqp:connection:forced", "idle for too long"))
        bench.broker.flush()
        await until(lambda: not link.is_open)
        with pytest.raises(ServiceBusConnectionError, match="idle for too long"):
            await link.submit(b"x")
        await (await bench.connection.open_sender("q")).submit(b"x")

    run(body)


def test_a_broker_that_falls_silent_is_given_up() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        # The engine's broker sends no heartbeats, because nobody ticks it.
        await until(lambda: not link.is_open)
        with pytest.raises(ServiceBusConnectionError, match="silent") as caught:
            await link.submit(b"x")
        assert caught.value.is_retryable

    run(body, idle_timeout_s=0.5)


def test_a_broker_that_lets_nobody_in_is_told_as_such() -> None:
    async def body(bench: Bench) -> None:
        with pytest.raises(ServiceBusAuthenticationError, match="not ANONYMOUS"):
            await bench.connection.open_sender("q")

    run(body, mechanisms=["PLAIN"])


def test_heartbeats_keep_a_demanding_broker_content() -> None:
    async def body(bench: Bench) -> None:
        await bench.connection.open_sender("q")
        heard: list[int] = []
        received = bench.broker.data_received

        def counting(data: bytes) -> None:
            heard.append(len(data))
            received(data)

        bench.broker.data_received = counting  # type: ignore[method-assign]  # only a counter
        await until(lambda: heard.count(8) >= 3)

    run(body, limits=ConnectionLimits(idle_timeout_ms=200))


def test_nobody_at_the_address_is_told_as_such() -> None:
    async def refuse(config: ClientConfig) -> Transport:
        raise ConnectionRefusedError("nobody listens")

    async def body() -> None:
        connection = ClientConnection(config(), connector=refuse)
        with pytest.raises(ServiceBusCommunicationError, match="engine:5672: nobody listens") as e:
            await connection.open_sender("q")
        assert e.value.is_retryable
        await connection.close()

    asyncio.run(body())


def test_a_closed_connection_opens_nothing() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        await bench.connection.close()
        assert bench.connection.is_closed
        with pytest.raises(ValueError, match="closed"):
            await bench.connection.open_sender("q")
        with pytest.raises(ServiceBusConnectionError):
            await link.submit(b"x")
        await bench.connection.close()

    run(body)


@pytest.mark.parametrize("turns", range(1, 30, 2))
def test_closing_while_others_open_leaves_nothing_behind(turns: int) -> None:
    async def body(bench: Bench) -> None:
        calls: list[Coroutine[Any, Any, Any]] = [
            bench.connection.open_sender(f"q{number}") for number in range(5)
        ]
        calls += [bench.connection.manage("q", "com.microsoft:any", {}) for _ in range(3)]
        opening = [asyncio.ensure_future(call) for call in calls]
        for _ in range(turns):
            await asyncio.sleep(0)
        await bench.connection.close()
        results = await asyncio.gather(*opening, return_exceptions=True)
        # Nobody has cancelled them, and it must not look as if.
        failures = [result for result in results if isinstance(result, BaseException)]
        assert all(isinstance(each, (ServiceBusError, ValueError)) for each in failures), failures
        assert failures or turns > 20

    run(body)


def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    async def body(bench: Bench) -> None:
        opening = [asyncio.ensure_future(bench.connection.open_sender("q")) for _ in range(2)]
        await asyncio.sleep(0)
        opening[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening[0]
        assert (await opening[1]).is_open

    run(body)


def test_sends_wait_while_the_broker_does_not_read() -> None:
    async def body(bench: Bench) -> None:
        link = await bench.connection.open_sender("q")
        transport = bench.broker.transport
        assert transport is not None
        transport.pause_reading()
        sends = [link.submit(bytes(100_000)) for _ in range(100)]
        for _ in range(50):
            await asyncio.sleep(0)
        # Most of the ten megabytes still wait where they were put.
        assert not any(send.done() for send in sends)
        transport.resume_reading()
        await asyncio.gather(*sends)

    run(body, credit=10)


def test_a_certificate_that_is_not_trusted_names_the_option_of_its_user() -> None:
    async def distrust(_: ClientConfig) -> Transport:
        raise ssl.SSLCertVerificationError("self-signed certificate")

    async def texts() -> None:
        for name in ("connection_verify", "caFile"):
            text = "Endpoint=sb://a.example;SharedAccessKeyName=n;SharedAccessKey=k"
            found = ClientConfig.from_connection_string(text)
            if name == "caFile":
                found = ClientConfig.from_connection_string(text, ca_option=name)
            connection = ClientConnection(found, connector=distrust)
            with pytest.raises(ServiceBusCommunicationError, match=rf"\({name} names"):
                await connection.open_sender("q")
            await connection.close()

    asyncio.run(texts())
