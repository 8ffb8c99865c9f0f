"""Actions, row by row of protocol 12.3."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from peeklock.entity.rules.action import REMOVED, RESET, Changes, SqlAction
from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.operators import TEXT_LENGTH_MAX
from peeklock.entity.rules.values import DurationValue, InstantValue, PropertyBag
from tests.entity.rules.drawing import STRANGE, Narrow
from tests.entity.rules.reading import makes


def test_set_creates_and_replaces_user_properties() -> None:
    assert makes("SET a = 1; SET user.b = 'x'", {"b": 2}) == Changes({"a": 1, "b": "x"}, {})


def test_statements_run_in_order_and_see_what_came_before() -> None:
    changes = makes("SET a = a + 1 SET A = a * 10; REMOVE b SET c = b; SET d = a", {"a": 1, "b": 2})
    assert changes == Changes({"a": 20, "b": REMOVED, "c": None, "d": 20}, {})


def test_what_was_removed_can_be_set_again() -> None:
    assert makes("REMOVE a; SET a = 1", {"a": 2}).user == {"a": 1}
    assert makes("SET a = 1; REMOVE A").user == {"a": REMOVED}


def test_a_system_property_is_seen_as_it_was_changed() -> None:
    text = "SET sys.Label = 'x' + sys.Label; SET a = sys.Label; REMOVE sys.To; SET b = sys.To"
    changes = makes(text, Label="y", To="z")
    assert changes == Changes({"a": "xy", "b": None}, {"Label": "xy", "To": RESET})


@pytest.mark.parametrize("value", [7, Narrow(7), 2.5, True, "t", b"b", STRANGE, InstantValue(7)])
def test_a_copied_value_keeps_its_type(value: Any) -> None:
    copied = makes("SET a = b", {"b": value}).user["a"]
    assert copied == value
    assert type(copied) is type(value)


def test_an_expression_has_the_type_of_its_result() -> None:
    user = {"n": Narrow(7), "m": Decimal("0.5")}
    changes = makes("SET a = n + 1; SET b = n * 0.5; SET c = m + 1; SET d = -m SET e = +n", user)
    assert changes.user == {"a": 8, "b": 3.5, "c": Decimal("1.5"), "d": Decimal("-0.5"), "e": 7}
    assert [type(changes.user[name]) for name in "abc"] == [int, float, Decimal]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("7 % 2", 1),
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("7 / 2.0", 3.5),
        ("-7.5 % 2", -1.5),
        ("-9223372036854775808 % -1", 0),
        ("-(2.5)", -2.5),
        ("'a' + 'b'", "ab"),
        ("'a' + 1", "a1"),
        ("1 + 'a' + 2.5", "1a2.5"),
        ("'a' + 2.0", "a2"),
        ("'a' + TRUE", "aTrue"),
        ("'a' + FALSE", "aFalse"),
        ("'a' + 1e300", "a1E+300"),
    ],
)
def test_arithmetic_is_that_of_c_sharp(text: str, result: Any) -> None:
    value = makes(f"SET a = {text}").user["a"]
    assert value == result
    assert type(value) is type(result)


@pytest.mark.parametrize(
    ("sign", "result"), [("+", "5.5"), ("-", "4.5"), ("*", "2.5"), ("/", "10"), ("%", "0.0")]
)
def test_decimals_stay_decimals(sign: str, result: str) -> None:
    user = {"a": 5, "b": Decimal("0.5")}
    assert makes(f"SET c = a {sign} b", user).user == {"c": Decimal(result)}


def test_infinity_goes_through_arithmetic() -> None:
    infinite = {"i": float("inf")}
    assert makes("SET a = i + 1", infinite).user == {"a": float("inf")}
    assert repr(makes("SET a = i % 2", infinite).user) == "{'a': nan}"
    assert repr(makes("SET a = n + 1.5", {"n": Decimal("NaN")}).user) == "{'a': nan}"


def test_newid_makes_another_id_each_time() -> None:
    draws = iter(range(1, 100))
    reader = PropertyBag({}, {}, random_source=lambda: next(draws))
    changes = SqlAction("SET a = newid(); SET b = newid()").apply(reader)
    assert changes.user == {
        "a": UUID("00000000-0000-4001-8000-000000000002"),
        "b": UUID("00000000-0000-4003-8000-000000000004"),
    }


@pytest.mark.parametrize("text", ["SET a = NULL", "SET a = nope", "SET a = nope + 1"])
def test_null_and_unknown_are_written_as_null(text: str) -> None:
    assert makes(text).user == {"a": None}


def test_removing_what_is_not_there_is_no_error() -> None:
    assert makes("REMOVE a; REMOVE sys.Label") == Changes({"a": REMOVED}, {"Label": RESET})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("t", "t"),
        (7, "7"),
        (Narrow(7), "7"),
        (2.5, "2.5"),
        (3.0, "3"),
        (1e-7, "1E-07"),
        (True, "True"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (InstantValue(0), "1970-01-01T00:00:00Z"),
        (InstantValue(-621_355_968_000_000_000), "0001-01-01T00:00:00Z"),
        (InstantValue(15_000_001), "1970-01-01T00:00:01.5000001Z"),
        (DurationValue(36_610_000_000), "01:01:01"),
        (DurationValue(-1_728_000_000_005), "-2.00:00:00.0000005"),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "MessageId",
        "CorrelationId",
        "SessionId",
        "To",
        "ReplyTo",
        "ReplyToSessionId",
        "Label",
        "ContentType",
        "PartitionKey",
    ],
)
def test_what_is_set_on_a_text_becomes_one(name: str, value: Any, text: str) -> None:
    assert makes(f"SET sys.{name} = v", {"v": value}).system == {name: text}


@pytest.mark.parametrize(
    ("value", "ticks"),
    [
        (DurationValue(7), 7),
        ("PT1M30.5S", 905_000_000),
        ("P1DT2H", 936_000_000_000),
        ("-PT1S", -10_000_000),
        ("PT0.00000019S", 1),
        ("1.02:03:04.5", 937_845_000_000),
        ("00:01", 600_000_000),
        ("-00:00:01", -10_000_000),
    ],
)
def test_time_to_live_is_a_duration(value: Any, ticks: int) -> None:
    changes = makes("SET sys.TimeToLive = v", {"v": value})
    assert changes.system == {"TimeToLive": DurationValue(ticks)}


@pytest.mark.parametrize(
    ("value", "ticks"),
    [
        (InstantValue(7), 7),
        ("1970-01-01T00:00:01Z", 10_000_000),
        ("1970-01-01T01:00:01.000001+01:00", 10_000_010),
        ("1970-01-02", 864_000_000_000),
    ],
)
def test_the_scheduled_time_is_an_instant(value: Any, ticks: int) -> None:
    changes = makes("SET sys.ScheduledEnqueueTimeUtc = v", {"v": value})
    assert changes.system == {"ScheduledEnqueueTimeUtc": InstantValue(ticks)}


@pytest.mark.parametrize(("value", "truth"), [(True, True), ("FALSE", False), ("true", True)])
def test_force_persistence_is_a_boolean(value: Any, truth: bool) -> None:
    assert makes("SET sys.ForcePersistence = v", {"v": value}).system == {"ForcePersistence": truth}


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("SET sys.Label = v", b"b", "this value has no form as text"),
        ("SET sys.Label = v", STRANGE, "this value has no form as text"),
        ("SET sys.Label = v", InstantValue(10**19), "in no year between 1 and 9999"),
        ("SET sys.TimeToLive = v", "soon", "'soon' is not a duration such as"),
        ("SET sys.TimeToLive = v", "P", "'P' is not a duration such as"),
        ("SET sys.TimeToLive = v", "PT", "'PT' is not a duration such as"),
        ("SET sys.TimeToLive = v", "P" + "9" * 5_000 + "D", " is not a duration such as"),
        ("SET sys.TimeToLive = v", "9" * 5_000 + ".00:00:01", " is not a duration such as"),
        ("SET sys.TimeToLive = v", 5, "'5' is not a duration such as"),
        ("SET sys.ScheduledEnqueueTimeUtc = v", "soon", "'soon' is not an instant such as"),
        ("SET sys.ScheduledEnqueueTimeUtc = v", b"b", "binary data is not an instant such as"),
        ("SET sys.ForcePersistence = v", 1, "'1' is not a boolean"),
        ("SET sys.ForcePersistence = v", "yes", "'yes' is not a boolean"),
        ("SET sys.MessageId = v", "x" * 129, "MessageId would have more than 128 characters"),
        ("SET sys.Size = v", 1, "the system property Size cannot be changed"),
        ("REMOVE sys.SequenceNumber", 1, "the system property SequenceNumber cannot be changed"),
        ("SET sys.Nope = v", 1, "there is no system property Nope"),
        ("REMOVE sys.Nope", 1, "there is no system property Nope"),
        ("SET a = sys.Nope", 1, "there is no system property Nope"),
        ("SET a = v / 0", 1, "a number is divided by zero"),
    ],
)
def test_what_cannot_be_done_is_an_error(text: str, value: Any, words: str) -> None:
    with pytest.raises(FilterError, match=words):
        makes(text, {"v": value})


def test_null_resets_a_system_property() -> None:
    assert makes("SET sys.Label = NULL; SET sys.To = nope").system == {"Label": RESET, "To": RESET}


def test_a_text_does_not_grow_without_end() -> None:
    text = "SET a = 'xxxxxxxx' " + "SET a = a + a " * 12
    assert len(str(makes(text).user["a"])) == TEXT_LENGTH_MAX
    with pytest.raises(FilterError, match="a text grows beyond 32,768 characters"):
        makes(text + "SET a = a + 'x'")


def test_changes_find_the_property_that_differs_by_case() -> None:
    changes = makes("SET COLOR = 'red'; SET new = 1; REMOVE gone; REMOVE never")
    before: dict[str, Any] = {"Color": "blue", "Gone": 1, "kept": 2}
    assert list(changes.applied_to(before).items()) == [("Color", "red"), ("kept", 2), ("new", 1)]
    assert before == {"Color": "blue", "Gone": 1, "kept": 2}
    both: dict[str, Any] = {"Color": 1, "COLOR": 2}
    assert changes.applied_to(both) == {"Color": 1, "COLOR": "red", "new": 1}


def test_actions_are_equal_by_text_and_parameters() -> None:
    assert SqlAction("SET a = @p", {"p": 1}) == SqlAction("SET a = @p", {"p": 1})
    assert SqlAction("SET a = @p", {"p": 1}) != SqlAction("SET a = @p", {"p": 1.0})
    assert SqlAction("SET a = 1") != SqlAction("SET a=1")
    assert len({SqlAction("SET a = 1"), SqlAction("SET a = 1")}) == 1
    assert repr(SqlAction("SET a = 1 ;\n")) == "SqlAction('SET a = 1 ;\\n', {})"
    assert repr([REMOVED, RESET]) == "[REMOVED, RESET]"
