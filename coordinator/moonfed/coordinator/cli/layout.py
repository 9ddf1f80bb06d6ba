"""Layout of text for a terminal: widths, tables, wrapped sentences and shortened lists of names."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Sequence

COLUMNS = 80  # where the terminal's width is unknown, as in a pipe
LINES = 40  # that a command prints at most, unless all are asked for
CUT = "…"


def terminal_width() -> int:
    """Return the terminal's columns."""
    return shutil.get_terminal_size((COLUMNS, LINES)).columns


def shorten(text: str, width: int) -> str:
    """Return the text, cut to that many columns."""
    return text if len(text) <= width else text[: max(0, width - len(CUT))].rstrip() + CUT


def wrap(text: str, width: int, most: int | None = None) -> list[str]:
    """Return the text in lines of that many columns, the later ones indented; cut after `most` lines."""
    return textwrap.wrap(
        text, width, subsequent_indent="  ", max_lines=most, placeholder=f" {CUT}", break_on_hyphens=False
    )


def listed(names: Collection[str], most: int) -> str:
    """Return the first names with commas, and the number of the others."""
    rest = len(names) - most
    return ", ".join(list(names)[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Format rows with columns as wide as their content; the last column is cut so that lines fit into `width`."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    padded = ([cell.ljust(size) for cell, size in zip(row, widths, strict=True)] for row in (heads, *rows))
    lines = ["  ".join(row).rstrip() for row in padded]
    return lines if width is None else [shorten(line, width) for line in lines]
