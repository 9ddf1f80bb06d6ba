"""Tables, wrapped sentences and shortened names."""

from __future__ import annotations

from moonfed.coordinator.cli.layout import listed, shorten, table, wrap


def test_text_is_cut_with_an_ellipsis() -> None:
    assert shorten("12345678", 8) == "12345678"
    assert shorten("123456789", 8) == "1234567…"
    assert shorten("123456 89", 8) == "123456…"


def test_sentences_are_wrapped_and_cut_after_some_lines() -> None:
    text = "one two three four five six seven"
    assert wrap(text, 12) == ["one two", "  three four", "  five six", "  seven"]
    assert wrap(text, 12, 2) == ["one two", "  three …"]


def test_only_the_first_names_are_listed() -> None:
    assert listed(["a", "b"], 2) == "a, b"
    assert listed([str(number) for number in range(1500)], 2) == "0, 1 and 1,498 more"


def test_the_last_column_of_a_table_is_cut() -> None:
    rows = [["a", "a long sentence"], ["bb", "short"]]
    assert table(["x", "y"], rows, 12) == ["x   y", "a   a long…", "bb  short"]
    assert table(["x", "y"], rows)[1] == "a   a long sentence"
