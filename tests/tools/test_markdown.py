"""Documents are wrapped, and say the same afterwards."""

from tools.markdown import COLUMNS, documents, long_lines, reflowed

LONG = "word " * 40


def test_paragraphs_and_items_are_wrapped() -> None:
    text = f"# {LONG}\n\n{LONG}\nand more\n\n- {LONG}\n  {LONG}\n- short\n\n1. {LONG}\n"
    made = reflowed(text)
    assert made.split() == text.split()
    assert long_lines(made) == []
    lines = made.split("\n")
    assert lines[0] == text.split("\n")[0]
    assert all(len(line) <= COLUMNS for line in lines[1:])
    items = [line for line in lines if line.startswith(("- ", "1. "))]
    assert len(items) == 3
    assert reflowed(made) == made


def test_tables_code_and_short_paragraphs_stay() -> None:
    text = f"| {LONG} |\n\n```\n{LONG}\n```\n\nshort\nlines\nstay\n"
    assert reflowed(text) == text
    assert long_lines(text) == []


def test_code_is_not_broken_and_no_list_begins_by_chance() -> None:
    text = "x " * 55 + "`a b c d e f g` - dash 1. one " + "x " * 40
    made = reflowed(text)
    assert "`a b c d e f g`" in made
    assert not any(line.startswith(("- ", "1. ")) for line in made.split("\n"))


def test_a_link_that_cannot_be_broken_is_not_complained_of() -> None:
    assert long_lines("https://" + "x" * 200) == []


def test_there_are_documents() -> None:
    assert len(documents()) > 50
