"""Tables that fit, JSON in lines, questions."""

from __future__ import annotations

import io

import pytest

from peeklock.cli.output import confirm, make_table, print_json, print_table, progress, text_of

ID = "0123456789abcdef" * 3
ROWS = [[ID, "0", "a body that goes on and on, " * 10], ["x", "12", ""]]
COLUMNS = ["message id", "dead letters", "body"]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    print_table("Title [x]", COLUMNS, ROWS)
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_ids_stay_whole_and_texts_are_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    said = printed(capsys)
    assert said.splitlines()[0].rstrip() == "Title [x]"
    assert ID in said
    assert "".join(ROWS[0][2].split()) == "".join(
        line[said.splitlines()[2].index("body") :] for line in said.splitlines()[4:]
    ).replace(" ", "")


def test_nothing_is_folded_where_a_program_reads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert ROWS[0][2].strip() in printed(capsys)


def test_colours_only_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "\x1b" not in printed(capsys)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in printed(capsys)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in printed(capsys)


def test_lines_are_the_entries_of_the_only_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"messages": [{"a": 1}, {"b": "\u00fc"}]}, "jsonl")
    print_json({"sent": 3}, "jsonl")
    print_json({"one": [1], "two": [2]}, "jsonl")
    expected = ['{"a": 1}', '{"b": "\u00fc"}', '{"sent": 3}', '{"one": [1], "two": [2]}']
    assert capsys.readouterr().out.splitlines() == expected


def test_properties_are_written_for_people() -> None:
    values = [True, False, None, 5, "P10675199DT2H48M5.4775807S", "PT1M", "Pears", "P1X"]
    assert [text_of(value) for value in values] == [
        *("yes", "no", "", "5", "never", "PT1M", "Pears", "P1X")
    ]


def test_nobody_is_asked_where_nobody_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm("Sure?", yes=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(SystemExit):
        confirm("Sure?", yes=False)
    assert "--yes does it" in capsys.readouterr().err


def test_a_quick_command_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("doing", 3) as advance:
        advance(2)
        advance()
    assert advance.done == 3
    assert capsys.readouterr() == ("", "")


def test_a_table_knows_its_least_width() -> None:
    _, width = make_table("t", COLUMNS, ROWS)
    assert len(ID) + len("dead letters") + 16 <= width < len(ID) + len("dead letters") + 40
