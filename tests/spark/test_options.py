"""Options: any case, aliases, defaults, and errors that say what to do without telling secrets."""

import pickle
from pathlib import Path

import pytest

from peeklock.spark.option_table import OPTIONS
from peeklock.spark.options import OptionProblem, SourceOptions, source_options

SECRET = "s3cr3t-key"
CONNECTION = f"Endpoint=sb://localhost;SharedAccessKeyName=Root;SharedAccessKey={SECRET}"
LEAST = {"connectionString": CONNECTION, "queue": "orders"}


def stream(**options: str) -> SourceOptions:
    return source_options({**LEAST, **options}, streaming=True)


def test_names_have_any_case_and_the_aliases_that_people_guess() -> None:
    options = source_options(
        {"CONNECTIONSTRING": CONNECTION, "queuename": "orders", "maxeventspertrigger": "7"},
        streaming=True,
    )
    assert (options.entity, options.rows_max) == ("orders", 7)


def test_defaults_are_those_of_the_table() -> None:
    options = stream()
    assert (options.mode, options.ledger, options.bad_records) == ("claim", "auto", "emit")
    assert (options.rows_max, options.bytes_max, options.wait_ms) == (100_000, 64 << 20, 1_000)
    assert (options.claim_timeout_ms, options.batch_attempts_max) == (86_400_000, 5)
    assert (options.fails_on_loss, options.include_body, options.is_manual) == (True, True, False)
    assert options.consumer_id == "spark/orders"
    assert source_options(LEAST, streaming=False).mode == "peek"
    assert not stream(mode="JOURNAL").include_body


def test_values_have_units() -> None:
    options = stream(maxBytesPerTrigger="2g", maxWait="250ms", claimTimeout="2h", retryDeadline="9")
    assert (options.bytes_max, options.wait_ms) == (2 << 30, 250)
    assert (options.claim_timeout_ms, options.access.retry_deadline_ms) == (7_200_000, 9)


@pytest.mark.parametrize(
    ("options", "entity"),
    [
        ({"path": "q1"}, "q1"),
        ({"queue": "q1", "path": "q1"}, "q1"),
        ({"topic": "t", "subscription": "s"}, "t/Subscriptions/s"),
        ({"queue": "q1", "subQueue": "deadletter"}, "q1/$DeadLetterQueue"),
        (
            {"topic": "t", "subscription": "s", "subqueue": "transferDeadLetter"},
            "t/Subscriptions/s/$Transfer/$DeadLetterQueue",
        ),
        ({"connectionString": CONNECTION + ";EntityPath=home"}, "home"),
        ({"mode": "journal", "topic": "t"}, "t"),
    ],
)
def test_the_entity_is_found(options: dict[str, str], entity: str) -> None:
    found = source_options({"connectionString": CONNECTION, **options}, streaming=True)
    assert found.entity == entity


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"queue": ""}, "no entity"),
        ({"topic": "t"}, "not both"),
        ({"queue": "", "topic": "t"}, "give option subscription"),
        ({"subscription": "s"}, "needs option topic"),
        ({"path": "other"}, "load.. says 'other'"),
        ({"queueName": "orders"}, "given twice"),
        ({"maxWiat": "1s"}, r"no option 'maxWiat' \(did you mean maxWait"),
        ({"mode": "steal"}, "mode is one of claim, peek, journal, receiveAndDelete"),
        ({"maxMessagesPerTrigger": "0"}, "1 to"),
        ({"maxMessagesPerTrigger": "many"}, "is a number, not 'many'"),
        ({"maxWait": "soon"}, "such as 500ms"),
        ({"includeBody": "perhaps"}, "true or false"),
        ({"startingTime": "yesterday"}, "ISO 8601"),
        ({"endingTime": "2026-01-01"}, "a stream has no end"),
        ({"badRecords": "deadletter", "mode": "peek"}, "needs mode claim"),
        ({"settlement": "manual", "mode": "peek"}, "needs mode claim"),
        ({"mode": "journal", "subQueue": "deadLetter"}, "whole queue or topic"),
        ({"credential": "env:X"}, "either connectionString or credential"),
        ({"connectionString": "Endpoint=sb://localhost"}, "neither SharedAccessKey"),
        ({"connectionString": f"SharedAccessKey={SECRET}"}, "has no Endpoint"),
        ({"consumerId": "x" * 129}, "more than 128"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionProblem, match=problem) as caught:
        stream(**options)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("mode", ["claim", "receiveAndDelete"])
def test_batches_neither_claim_nor_delete(mode: str) -> None:
    with pytest.raises(OptionProblem, match="availableNow"):
        source_options({**LEAST, "mode": mode}, streaming=False)


def test_secrets_are_not_shown_but_travel() -> None:
    options = stream()
    assert SECRET not in repr(options)
    assert SECRET in pickle.loads(pickle.dumps(options)).access.connection_string
    assert options.access.endpoint == "sb://localhost"


def test_the_connection_string_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SERVICEBUS_CONNECTION_STRING", raising=False)
    with pytest.raises(OptionProblem, match="before Spark is started"):
        source_options({"queue": "q"}, streaming=True)
    monkeypatch.setenv("SERVICEBUS_CONNECTION_STRING", CONNECTION)
    assert source_options({"queue": "q"}, streaming=True).access.endpoint == "sb://localhost"
    kept = tmp_path / "key"
    kept.write_text(f"SharedAccessKeyName=Root;SharedAccessKey={SECRET}\n")
    options = {"queue": "q", "credential": f"file:{kept}", "namespace": "bus.example:5671"}
    found = source_options(options, streaming=True).access
    assert found.endpoint == "sb://bus.example:5671"
    with pytest.raises(OptionProblem, match="not set on the driver"):
        source_options({"queue": "q", "credential": "env:NOT_THERE"}, streaming=True)
    with pytest.raises(OptionProblem, match="cannot be read"):
        source_options({"queue": "q", "credential": f"file:{tmp_path / 'no'}"}, streaming=True)


def test_spans_of_batches() -> None:
    options = source_options(
        {**LEAST, "startingTime": "2026-01-01T00:00:00Z", "endingSequenceNumber": "9"},
        streaming=False,
    )
    assert (options.span.from_instant, options.span.last_number) == (1_767_225_600_000, 9)


def test_no_two_options_share_a_name() -> None:
    names = [name.lower() for option in OPTIONS for name in (option.name, *option.aliases)]
    assert len(names) == len(set(names))
