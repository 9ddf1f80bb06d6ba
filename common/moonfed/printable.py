"""Untrusted text as one printable line, which can neither forge log lines nor move a terminal's cursor."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace each unprintable character, such as a line break, with a space."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def one_line(text: str, length: int) -> str:
    """Return printable text without repeated spaces, cut to `length` characters."""
    return " ".join(printable(text).split())[:length].rstrip()
