"""The rows of a CSV file, found from its quotes and line breaks alone.

pyarrow, which reads the cells, accepts a quote that is never closed: the rest of the file becomes one cell, and its
rows vanish. So the quotes are checked first, as RFC 4180 has them, and the rows that were read are counted.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from moonfed.data.bad_cells import UnusableTable

BYTE_ORDER_MARK = "\xef\xbb\xbf"  # as Latin-1, in which every byte is a character
_EMPTY = r'[ \t]*(?:"[ \t]*")?'
_BLANK = re.compile(f"{_EMPTY}(?:,{_EMPTY})*\n?")
_QUOTED = re.compile(r'[^"]*(?:""[^"]*)*"(?!")')  # the rest of a quoted cell in one line, with the closing quote
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRows:
    """The rows below a header, by number; the header is row 1."""

    count: int
    blank: npt.NDArray[np.int64]  # those whose cells are all empty


def find_rows(path: Path, columns: int) -> CsvRows:
    """Find the rows of a file with a header of so many columns.

    A quoted cell with a line that looks like a row is reported as a warning. Raises UnusableTable, naming the row, for
    a quote that is not closed, and for one that is closed before the cell ends.
    """
    row, blank = 0, []
    opened, like_rows = 0, 0  # the row of the quoted cell that has begun, and the lines in it that look like rows
    with path.open(encoding="latin-1", newline=None) as file:  # any line break becomes \n
        for number, text in enumerate(file):
            line = text.removeprefix(BYTE_ORDER_MARK) if number == 0 else text
            before = opened
            if not opened:
                row += 1
            if '"' in line:
                opened = row if _ends_quoted(line, path, row, quoted=bool(opened)) else 0
            elif opened:
                like_rows += line.count(",") == columns - 1 > 0
            if not before and not opened and _BLANK.fullmatch(line):
                blank.append(row)
            if before and not opened and like_rows:
                log.warning(
                    "%s, row %d: a quoted cell goes on for more lines, of which %d look like rows; is a quote missing?",
                    path,
                    row,
                    like_rows,
                )
            like_rows = like_rows if opened else 0
    if opened:
        sentence = f"{path}, row {opened} has a quote that is not closed; a quote in a cell must be doubled"
        raise UnusableTable(sentence, sentence)
    return CsvRows(count=row - 1, blank=np.array(blank, np.int64))


def _ends_quoted(line: str, path: Path, row: int, *, quoted: bool) -> bool:
    """Return whether a line ends within a quoted cell; `quoted`: whether it begins within one."""
    at = 0
    while True:
        if not quoted and line.startswith('"', at):
            quoted, at = True, at + 1
        if quoted:
            found = _QUOTED.match(line, at)
            if not found:
                return True
            quoted, at = False, found.end()
            if line[at : at + 1] not in (",", "\n", ""):
                sentence = f"{path}, row {row} has a quote with text after it; a quote in a cell must be doubled"
                raise UnusableTable(sentence, sentence)
        at = line.find(",", at) + 1
        if not at:
            return False
