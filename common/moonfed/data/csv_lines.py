"""The lines of a CSV file: how many rows they are, and quotes that make one row of several lines.

pyarrow accepts a quote that is never closed, and all that follows it is then lost in one cell. So the lines are looked
at before: they count the rows that pyarrow must find, and name the row of such a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from moonfed.errors import InvalidInput
from moonfed.formatting import count

_BYTE_ORDER_MARK = "\xef\xbb\xbf"  # as Latin-1
_QUOTED = re.compile(r'[^"]*(?:""[^"]*)*')  # up to the quote that closes a cell
_WHOLE_ROW = re.compile(r'(?:(?:"[^"]*"[^",]*|[^",][^,]*)?(?:,|$))*')  # without quotes in quoted cells
_ADVICE = "write quotes in a cell twice, and close those around it"


def count_rows(path: Path, longest: int, notes: list[str]) -> int:
    """Return the number of rows, with the header and blank lines; add sentences about odd rows to `notes`.

    `longest`: the characters that a row may have. Raises InvalidInput, naming the row, for a quote that is not closed.
    """
    rows = 0
    separators = 0
    odd = list[int]()
    with path.open(encoding="latin-1", newline="") as file:  # a byte is a character, so all bytes can be read
        lines = _lines(file, longest)
        for line in lines:
            rows += 1
            row = (
                _row(line, lines, f"{path}, row {rows}", longest)
                if '"' in line and not _WHOLE_ROW.fullmatch(line)
                else [line]
            )
            if rows == 1:
                separators = sum(line.count(",") for line in row)
            elif len(row) > 1 and _hides_rows(row, separators):
                odd.append(rows)
    if odd:
        more = f" and {count(len(odd) - 1, 'other row')}" if odd[1:] else ""
        notes.append(
            f"{path}, row {odd[0]}{more}: lines in a quoted cell look like rows; "
            "if they are rows, a quote is missing or stray"
        )
    return rows


def _lines(file: TextIO, longest: int) -> Iterator[str]:
    first = file.readline(longest).removeprefix(_BYTE_ORDER_MARK)
    if first:
        yield first
    yield from iter(lambda: file.readline(longest), "")


def _row(line: str, lines: Iterator[str], place: str, longest: int) -> list[str]:
    """Return the lines of the row that begins with `line`."""
    row, start = [line], 0  # the cell begins there
    while True:
        broken = False
        if line.startswith('"', start):
            start += 1
            while (closed := _closing_quote(line, start)) == len(line):
                line = next(lines, "")
                start = 0
                broken = True
                row.append(line)
                if not line or sum(map(len, row)) > longest:
                    raise InvalidInput(f"{place} has a quote that is not closed; {_ADVICE}", field="quote", value=place)
            start = closed + 1
        end = line.find(",", start)
        if broken and line[start : None if end < 0 else end].strip():
            raise InvalidInput(f"{place} has a cell in quotes with line breaks, and text after it; {_ADVICE}")
        if end < 0:
            return row
        start = end + 1


def _closing_quote(line: str, start: int) -> int:
    """Return the position of the quote that closes a cell; the line's length if there is none."""
    found = _QUOTED.match(line, start)
    return found.end() if found else start


def _hides_rows(row: list[str], separators: int) -> bool:
    """Return whether lines of one row have as many separators as a row."""
    alike = [line.count(",") == separators > 0 for line in row]
    return any(alike[1:-1]) or (alike[0] and alike[-1])
