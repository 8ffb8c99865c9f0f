"""The language's grammar (protocol 12.1) and what is refused when a rule is made (12.5)."""

import subprocess
import sys

import pytest

from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.filter import SqlFilter
from peeklock.entity.rules.values import DurationValue, InstantValue
from tests.entity.rules.reading import makes, says


@pytest.mark.parametrize(
    "text",
    [
        "color = 'red'",
        "COLOR = 'red'",
        "user.color = 'red'",
        "USER.[color] = 'red'",
        "\"color\" = 'red'",
        "[two words] = 1",
        '"two words" = 1',
        "[a]]b] = 1",
        '"a""b" = 1',
        "größe = 1",
        "color2_x = 1",
        "p = 1 AND property = 1 AND newid = 1 AND sys = 1 AND user = 1",
        "set = 1 AND remove = 1",
        "property('two' + ' words') = 1",
        "P('two words') = 1",
        "sys.Label = 'l' AND SYS.label = 'l' AND sys.[Label] = 'l' AND sys.Subject = 'l'",
        "it = 'it''s'",
        "empty = ''",
        "n = 5 AND n = +5 AND n = 5.0 AND n = 5. AND n = .5e1 AND n = 50E-1 AND n = 5e0",
        "n = - - 5",
        "least = -9223372036854775808",
        "flag",
        "flag = TRUE AND NOT flag = false",
        "(flag)",
        "((n)) = ((5))",
        "TRUE",
        "\n\tn\r\n=\n5 ",
        "n IN (1, 5)",
        "n NOT IN (1, 2)",
        "color LIKE 'r%'",
        "color NOT LIKE 'b%'",
        "color LIKE 're!d' ESCAPE '!'",
        "nothing IS NULL",
        "n IS NOT NULL",
        "p('nothing') IS NULL",
        "EXISTS(n)",
        "exists ( sys.Label )",
        "NOT NOT flag",
        "n <> 6 AND n != 6 AND n > 4 AND n >= 5 AND n < 6 AND n <= 5",
        "newid() <> newid() OR newid() = newid()",
    ],
)
def test_it_is_understood_and_true(text: str) -> None:
    user = {
        "color": "red",
        "two words": 1,
        "a]b": 1,
        'a"b': 1,
        "größe": 1,
        "color2_x": 1,
        "p": 1,
        "property": 1,
        "newid": 1,
        "sys": 1,
        "user": 1,
        "set": 1,
        "remove": 1,
        "it": "it's",
        "empty": "",
        "n": 5,
        "least": -(2**63),
        "flag": True,
    }
    assert says(text, user, Label="l") is True


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("100 / 10 / 5", 2),
        ("7 % 4 * 2", 6),
        ("- 2 * 3", -6),
        ("2 * - 3", -6),
        ("-(1 + 2)", -3),
        ("1 - -1", 2),
    ],
)
def test_signs_bind_before_products_and_products_before_sums(text: str, value: int) -> None:
    assert makes(f"SET x = {text}").user == {"x": value}


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("TRUE OR FALSE AND FALSE", True),
        ("(TRUE OR FALSE) AND FALSE", False),
        ("NOT FALSE AND FALSE", False),
        ("NOT (FALSE AND FALSE)", True),
        ("NOT 1 = 2", True),
        ("NOT FALSE OR TRUE", True),
        ("1 + 1 = 2 AND 2 * 2 > 3", True),
    ],
)
def test_comparisons_bind_before_not_and_or(text: str, truth: bool) -> None:
    assert says(text) is truth


def test_parameters_of_all_types() -> None:
    at = {
        "@text": "red",
        "@INT": 5,
        "@real": 2.5,
        "@flag": True,
        "@when": InstantValue(7),
        "@long": DurationValue(7),
        "bare": 1,
        "@none": None,
    }
    user = {"text": "red", "int": 5, "real": 2.5, "when": InstantValue(7), "long": DurationValue(7)}
    text = (
        "text=@text AND int=@int AND real=@real AND @flag AND when=@when AND long=@LONG AND 1=@bare"
    )
    assert says(text, user, at=at) is True
    assert says("1 = @none", at=at) is None
    assert SqlAction("SET a = @p", {"@p": 7}).parameters == {"@p": 7}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "it ends where a condition is expected"),
        ("  ", 1, 1, "it ends where a condition is expected"),
        ("a =", 1, 4, "it ends where a value is expected"),
        ("a = 1 AND\n", 1, 10, "it ends where a condition is expected"),
        ("a\n= 1\nb", 3, 1, "expected AND, OR or the end, found 'b'"),
        ("a b", 1, 3, "expected a comparison, AND, OR or the end, found 'b'"),
        ("a = = 1", 1, 5, "expected a value, found '='"),
        ("a = 1 = 1", 1, 7, "expected AND, OR or the end, found '='"),
        ("(a = 1", 1, 7, "it ends where ')' is expected"),
        ("a = 1)", 1, 6, "expected the end, found ')'"),
        ("a IN ()", 1, 7, "expected a value, found ')'"),
        ("a IN 5", 1, 6, "expected '(', found '5'"),
        ("a NOT 5", 1, 7, "expected IN or LIKE, found '5'"),
        ("a IS 5", 1, 6, "expected NULL, found '5'"),
        ("EXISTS a", 1, 8, "expected '(', found 'a'"),
        ("sys. = 1", 1, 6, "expected a property, found '='"),
        ("AND = 1", 1, 1, "expected a condition, found 'AND'"),
        ("a = 'x", 1, 5, "the text that begins here has no closing '"),
        ('"" = 1', 1, 1, 'the name that begins here is empty or has no closing "'),
        ("[a = 1", 1, 1, "the name that begins here is empty or has no closing ]"),
        ("a = @ 1", 1, 5, "a parameter has a name, such as @limit"),
        ("a = #1", 1, 5, "'#' has no meaning here"),
        ("_a = 1", 1, 1, "'_' has no meaning here"),
        ("a = @p", 1, 5, "the parameter @p has no value"),
        ("a = 9223372036854775808", 1, 5, "9223372036854775808 is beyond 64 bits"),
        ("a = -9223372036854775809", 1, 6, "9223372036854775809 is beyond 64 bits"),
        ("a = 1e999", 1, 5, "1e999 is beyond a double"),
        ("my.a = 1", 1, 1, "my.a: the scope is sys or user, not my"),
        ("f(1) = 1", 1, 1, "f with 1 arguments is none of newid(), property(name), p(name)"),
        (
            "newid(1) = 1",
            1,
            1,
            "newid with 1 arguments is none of newid(), property(name), p(name)",
        ),
        ("p() = 1", 1, 1, "p with 0 arguments is none of newid(), property(name), p(name)"),
        ("(a = 1) = b", 1, 2, "expected a value, found a condition"),
        ("a + NOT b = 1", 1, 5, "expected a value, found 'NOT'"),
        ("a + (NOT b) = 1", 1, 6, "expected a value, found a condition"),
        ("1", 1, 1, "expected a condition, found a value that is neither true nor false"),
        ("a + 1", 1, 1, "expected a condition, found a value that is neither true nor false"),
        ("NOT 'a'", 1, 5, "expected a condition, found a value that is neither true nor false"),
        ("newid()", 1, 1, "expected a condition, found a value that is neither true nor false"),
        ("1 IS NULL", 1, 1, "IS NULL asks for a property"),
        ("EXISTS(1)", 1, 1, "EXISTS asks for a property"),
        ("a LIKE 1", 1, 8, "the pattern of LIKE must be a text, not a number"),
        ("a LIKE 'x' ESCAPE ''", 1, 8, "the ESCAPE of LIKE must be a text of one character"),
        ("a LIKE 'x' ESCAPE 'yz'", 1, 8, "the ESCAPE of LIKE must be a text of one character"),
        ("a LIKE 'x!' ESCAPE '!'", 1, 8, "the pattern of LIKE ends with its escape character"),
        ("-" * 70 + "a = 1", 1, 65, "nested more than 64 deep"),
        ("NOT " * 70 + "a = 1", 1, 261, "nested more than 64 deep"),
    ],
)
def test_a_parse_error_says_where_and_what(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        SqlFilter(text)
    assert (caught.value.line, caught.value.column, caught.value.text) == (line, column, words)
    assert str(caught.value) == f"{words} (line {line}, column {column})"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it ends where SET or REMOVE is expected (line 1, column 1)"),
        ("SET", "it ends where a property is expected (line 1, column 4)"),
        ("SET a", "it ends where '=' is expected (line 1, column 6)"),
        ("SET a > 1", "expected '=', found '>' (line 1, column 7)"),
        ("SET a = 1,", "expected SET, REMOVE or the end, found ',' (line 1, column 10)"),
        ("SET a = 1;;", "expected SET, REMOVE or the end, found ';' (line 1, column 11)"),
        ("SET a = b = 1", "expected SET, REMOVE or the end, found '=' (line 1, column 11)"),
        ("SET a = (b = 1)", "expected a value, found a condition (line 1, column 10)"),
        ("SET p('a') = 1", "expected '=', found '(' (line 1, column 6)"),
        ("REMOVE 1", "expected a property, found '1' (line 1, column 8)"),
        ("a = 1", "expected SET or REMOVE, found 'a' (line 1, column 1)"),
    ],
)
def test_a_wrong_action_is_refused_as_clearly(text: str, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        SqlAction(text)
    assert str(caught.value) == words


def test_a_text_has_at_most_1024_characters() -> None:
    text = "a = '" + "x" * 1_018 + "'"
    assert len(SqlFilter(text).text) == 1_024
    with pytest.raises(RuleError, match=r"1,025 characters are more than 1,024"):
        SqlFilter(text + " ")
    with pytest.raises(RuleError, match="more than 1,024"):
        SqlAction("SET " + text + " " * 20)


def test_an_action_has_at_most_32_statements() -> None:
    SqlAction("SET a = 1 " * 32)
    with pytest.raises(RuleError, match="33 statements are more than 32"):
        SqlAction("SET a = 1;" * 33)


def test_long_chains_are_no_nesting() -> None:
    assert says("a=1 OR " * 140 + "TRUE", {"a": 2}) is True
    assert says("(" * 300 + "TRUE" + ")" * 300) is True
    with pytest.raises(RuleError, match="nested more than 64 deep"):
        SqlFilter("a" + "+a" * 80 + "=1")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2**64, "the value of the parameter @p is beyond 64 bits"),
        (["list"], "the value of the parameter @p has a type that rules do not know"),
    ],
)
def test_a_parameter_is_something_that_a_message_could_carry(value: object, words: str) -> None:
    with pytest.raises(RuleError, match=words):
        says("a = @p", at={"@p": value})


def test_the_parser_is_loaded_only_where_a_text_is_read() -> None:
    script = (
        "import sys\n"
        "from peeklock.entity.rules import topic\n"
        "assert 'lark' not in sys.modules\n"
        "topic.SqlFilter('a = 1')\n"
        "assert 'lark' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
