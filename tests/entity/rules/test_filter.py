"""Evaluation, row by row of protocol 12.2."""

import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.values import UNKNOWN, DurationValue, InstantValue, Truth
from tests.entity.rules.drawing import STRANGE, Narrow
from tests.entity.rules.reading import message, says

TRUTHS = {"T": "TRUE", "F": "FALSE", "U": "NULL"}
MEANING: dict[str, Truth] = {"T": True, "F": False, "U": UNKNOWN}


def test_a_missing_user_property_is_unknown() -> None:
    assert says("a") is UNKNOWN
    assert says("p('a')") is UNKNOWN
    assert says("p(a)") is UNKNOWN


@pytest.mark.parametrize("text", ["NULL = sys.Nope", "NULL < sys.Nope", "NULL IN (sys.Nope)"])
def test_what_is_behind_null_is_not_read(text: str) -> None:
    assert says(text) is UNKNOWN


@pytest.mark.parametrize("text", ["sys.Nope = 1", "sys.Nope IS NULL", "EXISTS(sys.Nope)"])
def test_a_system_property_that_does_not_exist_is_an_error(text: str) -> None:
    with pytest.raises(FilterError, match="there is no system property Nope"):
        says(text)


def test_a_system_property_that_is_not_set_is_unknown() -> None:
    assert says("sys.Label = 'x'") is UNKNOWN
    assert says("sys.Label IS NULL AND NOT EXISTS(sys.Label)") is True


@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
def test_a_comparison_with_an_unknown_operand_is_unknown(sign: str) -> None:
    for text in (f"a {sign} 1", f"1 {sign} a", f"a {sign} b", f"b {sign} NULL", f"NULL {sign} b"):
        assert says(text, {"b": 1}) is UNKNOWN
    assert says(f"a {sign} 1", {"a": None}) is UNKNOWN


@pytest.mark.parametrize("sign", "+-*/%")
def test_arithmetic_with_unknown_is_unknown(sign: str) -> None:
    for text in (f"a {sign} 1 = 1", f"1 {sign} a = 1", f"- (1 {sign} a) = 1", "+a = 1"):
        assert says(text) is UNKNOWN


@pytest.mark.parametrize("row", ["TTT", "TFF", "TUU", "FTF", "FFF", "FUF", "UTU", "UFF", "UUU"])
def test_and(row: str) -> None:
    left, right, result = list(row)
    assert says(f"{TRUTHS[left]} AND {TRUTHS[right]}") is MEANING[result]


@pytest.mark.parametrize("row", ["TTT", "TFT", "TUT", "FTT", "FFF", "FUU", "UTT", "UFU", "UUU"])
def test_or(row: str) -> None:
    left, right, result = list(row)
    assert says(f"{TRUTHS[left]} OR {TRUTHS[right]}") is MEANING[result]


def test_the_opposite_of_unknown_is_unknown() -> None:
    assert [says(f"NOT {word}") for word in TRUTHS.values()] == [False, True, UNKNOWN]


def test_is_null_is_true_of_null_and_of_missing_and_never_unknown() -> None:
    assert says("a IS NULL") is True
    assert says("a IS NOT NULL") is False
    assert says("a IS NULL", {"a": None}) is True
    assert says("a IS NULL", {"a": ""}) is False
    assert says("a IS NOT NULL", {"a": STRANGE}) is True


def test_exists_asks_whether_a_property_is_there_and_a_null_is() -> None:
    assert says("EXISTS(a)") is False
    assert says("EXISTS(a)", {"A": None}) is True
    assert says("EXISTS(a)", {"a": STRANGE}) is True
    assert says("EXISTS(p('a'))", {"a": 0}) is True


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("nope IN (1, 2)", UNKNOWN),
        ("nope NOT IN (1, 2)", UNKNOWN),
        ("n IN (1, 5)", True),
        ("n IN (1, 5.0)", True),
        ("n IN (1, 2)", False),
        ("n IN ('5', TRUE)", False),
        ("n IN (nope, 5)", True),
        ("n IN (5, nope)", True),
        ("n IN (1, nope)", UNKNOWN),
        ("n IN (1, NULL)", UNKNOWN),
        ("n NOT IN (1, nope)", UNKNOWN),
        ("n NOT IN (1, 2)", True),
        ("n NOT IN (5, nope)", False),
        ("t IN ('a', 'b')", True),
        ("t IN ('A')", False),
        ("n IN ('a', '5')", False),
        ("nope IN ('a')", UNKNOWN),
        ("n + 1 IN (n * 1 + 1, 0)", True),
    ],
)
def test_in(text: str, truth: Truth) -> None:
    assert says(text, {"n": 5, "t": "a"}) is truth


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("t LIKE 'Hello'", True),
        ("t LIKE 'hello'", False),
        ("t LIKE 'H%'", True),
        ("t LIKE '%o'", True),
        ("t LIKE '%ll%'", True),
        ("t LIKE 'H_llo'", True),
        ("t LIKE 'H_lo'", False),
        ("t NOT LIKE 'x%'", True),
        ("percent LIKE '100!%' ESCAPE '!'", True),
        ("t LIKE '100!%' ESCAPE '!'", False),
        ("t LIKE pattern", True),
        ("t LIKE pattern ESCAPE mark", True),
        ("nope LIKE '%'", UNKNOWN),
        ("nope NOT LIKE '%'", UNKNOWN),
        ("t LIKE nope", UNKNOWN),
        ("t LIKE NULL", UNKNOWN),
        ("t LIKE '%' ESCAPE nope", UNKNOWN),
        ("t LIKE pattern ESCAPE nope", UNKNOWN),
    ],
)
def test_like(text: str, truth: Truth) -> None:
    user = {"t": "Hello", "percent": "100%", "pattern": "H%", "mark": "!"}
    assert says(text, user) is truth


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n LIKE '5'", "LIKE compares texts, not a number"),
        ("t LIKE n", "the pattern of LIKE must be a text, not a number"),
        ("t LIKE 'x' ESCAPE n", "the ESCAPE of LIKE must be a text of one character"),
        ("t LIKE t ESCAPE 'xy'", "the ESCAPE of LIKE must be a text of one character"),
        ("t LIKE 'x' + t ESCAPE t", "the pattern of LIKE ends with its escape character"),
        ("t LIKE long", "the pattern of LIKE has more than 1,024 characters"),
    ],
)
def test_like_is_for_texts(text: str, words: str) -> None:
    with pytest.raises(FilterError, match=words):
        says(text, {"n": 5, "t": "t", "long": "%" * 1_025})


def test_only_true_matches_in_the_end() -> None:
    """What a rule makes of False and unknown is the same: nothing; see test_rule."""
    assert TrueFilter().evaluate(message()) is True
    assert FalseFilter().evaluate(message()) is False
    assert says("a = 1") is UNKNOWN


@pytest.mark.parametrize("n", [4, 5, 6])
def test_a_constant_may_stand_on_either_side(n: int) -> None:
    truths = [n > 5, n >= 5, n < 5, n <= 5, n == 5, n != 5]
    signs = ["<", "<=", ">", ">=", "=", "<>"]
    assert [says(f"5 {sign} n", {"n": n}) for sign in signs] == truths
    assert [says(f"5 {sign} p('n')", {"n": n}) for sign in signs] == truths


def test_names_fold_case_and_the_exact_name_wins() -> None:
    assert says("COLOR = 'red'", {"Color": "red"}) is True
    assert says("Color = 'red' AND color = 'blue'", {"color": "blue", "Color": "red"}) is True
    assert says("cOLOR = 'blue'", {"color": "blue", "Color": "red"}) is True


def test_texts_are_compared_by_their_characters() -> None:
    assert says("t = 'Red'", {"t": "red"}) is False
    assert says("t <> 'Red' AND t > 'Red' AND t < 'redder' AND t >= 'red'", {"t": "red"}) is True


@pytest.mark.parametrize("five", [5, 5.0, Decimal(5), Narrow(5)])
def test_numbers_of_all_types_compare_by_value(five: Any) -> None:
    text = "n = 5 AND n = 5.0 AND n < 5.5 AND n > 4 AND n <> 6 AND n <= 5 AND n >= 5"
    assert says(text, {"n": five}) is True


def test_numbers_meet_as_doubles_when_one_is_a_double() -> None:
    beyond = 2**53 + 1
    assert says("n = 9007199254740993", {"n": beyond}) is True
    assert says("n = 9007199254740992", {"n": beyond}) is False
    assert says("n = 9007199254740992.0", {"n": beyond}) is True
    assert says("n = 0.1", {"n": Decimal("0.1")}) is True
    assert says("n > 9223372036854775807", {"n": 2**64 - 1}) is True


@pytest.mark.parametrize("odd", [math.nan, Decimal("NaN"), Decimal("sNaN")])
def test_what_is_no_number_equals_none(odd: Any) -> None:
    assert says("n = n OR n < 1 OR n >= 1 OR n = 1.5", {"n": odd}) is False
    assert says("n <> n", {"n": odd}) is True


MIXED = [
    ("a text", "t", "n", "a number"),
    ("a number", "n", "t", "a text"),
    ("a boolean", "f", "n", "a number"),
    ("a number", "n", "f", "a boolean"),
    ("a boolean", "f", "f", "a boolean"),
    ("an instant", "i", "d", "a duration"),
    ("a duration", "d", "n", "a number"),
    ("a uuid", "u", "t", "a text"),
    ("binary data", "b", "b", "binary data"),
    ("a value of another type", "s", "s", "a value of another type"),
    ("an instant", "i", "t", "a text"),
]
ALL_TYPES: dict[str, Any] = {
    "t": "5",
    "n": 5,
    "f": True,
    "i": InstantValue(5),
    "d": DurationValue(5),
    "u": UUID(int=5),
    "b": b"5",
    "s": STRANGE,
}


@pytest.mark.parametrize(("kind", "left", "right", "other"), MIXED)
def test_mixed_types_have_no_order(kind: str, left: str, right: str, other: str) -> None:
    with pytest.raises(FilterError, match=f"{kind} and {other} have no order"):
        says(f"{left} < {right}", ALL_TYPES)


def test_mixed_types_are_never_equal_and_each_type_equals_itself() -> None:
    for left in ALL_TYPES:
        for right in ALL_TYPES:
            equal = left == right and left != "s"
            assert says(f"{left} = {right}", ALL_TYPES) is equal, (left, right)
            assert says(f"{left} <> {right}", ALL_TYPES) is not equal, (left, right)


@pytest.mark.parametrize(
    "text", ["n / 0 = 1", "n % 0 = 1", "n / 0.0 = 1", "n % 0.0 = 1", "m / 0 = 1"]
)
def test_division_by_zero_is_an_error(text: str) -> None:
    with pytest.raises(FilterError, match="a number is divided by zero"):
        says(text, {"n": 5, "m": Decimal(5)})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9223372036854775807 + n = 1", "64 bits"),
        ("-9223372036854775808 - n = 1", "64 bits"),
        ("9223372036854775807 * 2 * n = 1", "64 bits"),
        ("-9223372036854775808 / -n = 1", "64 bits"),
        ("-(-9223372036854775807 - n) = 1", "64 bits"),
        ("1e308 * 10 = n", "a double"),
        ("-1e308 - 1e308 = n", "a double"),
        ("m * m = n", "a decimal"),
    ],
)
def test_overflow_is_an_error(text: str, words: str) -> None:
    with pytest.raises(FilterError, match=f"the result is beyond {words}"):
        says(text, {"n": 1, "m": Decimal("1E+999999")})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f + 1 = 1", r"a boolean \+ a number has no result"),
        ("t - 1 = 1", "a text - a number has no result"),
        ("n * i = 1", r"a number \* an instant has no result"),
        ("-t = 1", "a text has no sign"),
        ("+f = 1", "a boolean has no sign"),
        ("t + b = 'x'", "this value has no form as text"),
        ("p(n) = 1", r"property\(\) needs a text as name, not a number"),
        ("n", "a number is neither true nor false"),
        ("NOT t", "a text is neither true nor false"),
    ],
)
def test_what_a_type_cannot_do_is_an_error(text: str, words: str) -> None:
    with pytest.raises(FilterError, match=words):
        says(text, ALL_TYPES)


def test_booleans_are_equal_or_not_and_no_numbers() -> None:
    assert says("f = TRUE AND f <> FALSE AND f", {"f": True}) is True
    assert says("f = 1", {"f": True}) is False
    assert says("n = TRUE", {"n": 1}) is False


def test_instants_durations_and_uuids_compare_with_their_like() -> None:
    user = {"i": InstantValue(5), "d": DurationValue(5), "u": UUID(int=5)}
    at = {"@i": InstantValue(6), "@d": DurationValue(6), "@u": UUID(int=6)}
    assert says("i < @i AND d < @d AND u < @u AND u <> @u", user, at=at) is True
    assert says("u = '00000000-0000-0000-0000-000000000005'", user) is False
    assert says("sys.TimeToLive = @d", at=at, TimeToLive=DurationValue(6)) is True


def test_the_parts_after_the_deciding_one_are_not_evaluated() -> None:
    assert says("FALSE AND 1 / 0 = 1") is False
    assert says("TRUE OR 1 / 0 = 1") is True
    assert says("1 IN (1, 1 / 0)") is True
    assert says("nope = 1 / 0") is UNKNOWN
    with pytest.raises(FilterError):
        says("nope AND 1 / 0 = 1")


def test_a_condition_that_asks_no_message_is_known_at_once() -> None:
    assert SqlFilter("1=1").constant is True
    assert SqlFilter("1=0").constant is False
    assert SqlFilter("NULL").constant is False
    assert SqlFilter("@p > 1", {"p": 2}).constant is True
    assert SqlFilter("a = a").constant is None
    assert SqlFilter("newid() = newid()").constant is None
    failing = SqlFilter("1 / 0 = 1")
    assert failing.constant is None
    with pytest.raises(FilterError):
        failing.evaluate(message())


def test_filters_are_equal_by_text_and_parameters_to_the_type() -> None:
    assert SqlFilter("a = @p", {"p": 1}) == SqlFilter("a = @p", {"p": 1})
    assert SqlFilter("a = @p", {"p": 1}) != SqlFilter("a = @p", {"p": True})
    assert SqlFilter("a = @p", {"p": 1}) != SqlFilter("a = @p", {"p": 1, "q": 2})
    assert SqlFilter("a = 1") != SqlFilter("a  = 1")
    assert SqlFilter("a = 1") != "a = 1"
    assert len({SqlFilter("a = 1"), SqlFilter("a = 1"), TrueFilter(), TrueFilter()}) == 2
    assert len({FalseFilter(), FalseFilter(), TrueFilter()}) == 2
    assert repr(SqlFilter("a = @p", {"p": 1})) == "SqlFilter('a = @p', {'p': 1})"
    assert [repr(TrueFilter()), repr(FalseFilter())] == ["TrueFilter()", "FalseFilter()"]


def test_parameters_are_taken_over_and_not_shared() -> None:
    given: dict[str, Any] = {"@p": 1}
    filter = SqlFilter("a = @p", given)
    given["@p"] = 2
    assert filter.parameters == {"@p": 1}
    assert filter.evaluate(message({"a": 1})) is True
