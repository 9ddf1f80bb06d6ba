"""Printable text."""

from __future__ import annotations

import pytest

from moonfed.printable import one_line, printable


@pytest.mark.parametrize("letter", ["\n", "\r", "\t", "\0", "\x1b", "\x85", "\u2028", "\u202e", "\ud800"])
def test_unprintable_characters_become_spaces(letter: str) -> None:
    assert printable(f"a{letter}b") == "a b"
    assert one_line(f"{letter}a{letter}{letter}b{letter}", 10) == "a b"


def test_printable_text_stays_as_it_is() -> None:
    assert printable("Küche  7") == "Küche  7"


def test_a_line_is_cut_without_a_space_at_its_end() -> None:
    assert one_line("ab  cd", 3) == "ab"
    assert one_line("a" * 9, 3) == "aaa"
