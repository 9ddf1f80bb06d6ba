"""Charts as SVG, from plain text: a few kilobytes, the same bytes everywhere, legible on light and dark pages.

Marks have two colours that remain distinct without colour vision, and shades of the first, which a legend explains.
Lengths are pixels; text is assumed to have `CHARACTER` each, since fonts differ.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from moonfed.printable import printable

CHARACTER, LINE = 7, 16  # the width of a letter, the distance of lines
SHADES = 8  # of heat maps
LONGEST = 24  # letters of a name
_MIDDLE = 4  # from a letter's middle to the line that it stands on
_COLOURS = {  # on light and on dark pages
    "page": ("#fff", "#0d1117"),
    "ink": ("#1f2328", "#f0f6fc"),
    "rule": ("#d0d7de", "#3d444d"),
    "quiet": ("#59636e", "#9198a1"),
    "first": ("#0969da", "#4493f8"),
    "second": ("#bc4c00", "#f0883e"),
}


class Drawing:
    """A picture, to which marks are added; `width` and `height` grow to what has been drawn."""

    def __init__(self, title: str) -> None:
        self.title, self._parts = title, list[str]()
        self.width = self.height = 0.0
        self.text(12, 12 + LINE / 2, title, kind="b")

    def text(
        self, x: float, y: float, text: str, *, kind: str = "", anchor: str = "start", upright: bool = False
    ) -> None:
        """Write text whose middle line is at y; upright text ends there and reads upwards."""
        turn = f' transform="rotate(-90 {_n(x)} {_n(y)})"' if upright else ""
        names = f' class="{kind}"' if kind else ""
        placed = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y + _MIDDLE)}"{placed}{names}{turn}>{escape(printable(text))}</text>'
        )
        share = {"start": 1.0, "middle": 0.5, "end": 0.0}[anchor]
        self._reach(*((x + LINE, y) if upright else (x + share * width_of(text) + 12, y + LINE)))

    def path(self, data: str, kind: str, *, shade: int = 0) -> None:
        """Draw a path that lies within what has been reached; `shade`: of a heat map, from 1."""
        opacity = f' fill-opacity="{_n(shade / SHADES)}"' if shade else ""
        self._parts.append(f'<path class="{kind}" d="{data}"{opacity}/>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, *, shade: int = 0) -> None:
        """Draw a rectangle."""
        self.path(f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z", kind, shade=shade)
        self._reach(x + width + 12, y + height + 12)

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Draw a line through points."""
        self.path("M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points), kind)

    def cells(self, x: float, y: float, side: float, shades: Mapping[tuple[int, int], int]) -> None:
        """Draw a heat map's squares: the shade, 1 to `SHADES`, by row and column."""
        for shade in range(1, SHADES + 1):
            runs = _runs(sorted(place for place, found in shades.items() if found == shade))
            if runs:
                squares = (f"M{_n(x + side * column)} {_n(y + side * row)}h{_n(side * length)}v{_n(side)}"
                           f"h{_n(-side * length)}z" for row, column, length in runs)  # fmt: skip
                self.path("".join(squares), "first", shade=shade)

    def to_bytes(self) -> bytes:
        """Return the file."""
        size = f"{math.ceil(self.width)} {math.ceil(self.height)}"
        wide, high = size.split()
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{wide}" height="{high}" '
            f'role="img" aria-label={quoteattr(printable(self.title))}>',
            f"<style>{_style(0)}@media(prefers-color-scheme:dark){{{_style(1)}}}</style>",
            f'<path class="page" d="M0 0h{wide}v{high}h-{wide}z"/>',
            *self._parts,
            "</svg>",
        ]
        return ("\n".join(lines) + "\n").encode()

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """A panel with two axes: numbers from `low` to `high` at `left` … `left + width` and `top + height` … `top`."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is drawn: on the edge if it is beyond."""
        across, up = _share(x, self.x), _share(y, self.y)
        return self.left + across * self.width, self.top + (1 - up) * self.height

    def draw(self, drawing: Drawing, title: str, x_label: str = "", y_label: str = "") -> None:
        """Draw frame, ticks and labels; `x_label` may be empty where another panel follows below."""
        bottom = self.top + self.height
        for value, text in ticks(*self.y):
            _, y = self.place(self.x[0], value)
            drawing.line([(self.left, y), (self.left + self.width, y)], "rule")
            drawing.text(self.left - 6, y, text, kind="quiet", anchor="end")
        for value, text in ticks(*self.x, most=int(self.width / 60)):
            x, _ = self.place(value, self.y[0])
            drawing.line([(x, bottom), (x, bottom + 4)], "rule")
            drawing.text(x, bottom + LINE - 2, text, kind="quiet", anchor="middle")
        drawing.box(self.left, self.top, self.width, self.height, "rule")
        drawing.text(self.left, self.top - LINE + 4, title)
        drawing.text(self.left + self.width / 2, bottom + 2 * LINE, x_label, kind="quiet", anchor="middle")
        drawing.text(self.left - 76, self.top + self.height / 2, y_label, kind="quiet", anchor="middle", upright=True)


def ticks(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    """Return at most `most` + 1 round numbers from low to high, with their text."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [number * step for number in range(first, last + 1)]
    largest = max(abs(low), abs(high))
    if largest >= 1e6 or step < 1e-4:
        digits = max(0, math.floor(math.log10(largest)) - math.floor(math.log10(step) + 1e-9))
        return [(value, f"{value:.{digits}e}" if value else "0") for value in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [(value, f"{value:,.{decimals}f}") for value in values]


def widened(low: float, high: float) -> tuple[float, float]:
    """Return a range with some length, which numbers can tell apart."""
    size = max(abs(low), abs(high))
    room = 0.1 * size or 1.0
    return (low, high) if high - low > 1e-6 * size else (low - room, high + room)


def shortened(name: str, most: int = LONGEST) -> str:
    """Return a name of at most so many letters, of which a wide one counts twice."""
    if width_of(name) <= most * CHARACTER:
        return name
    kept = ""
    for letter in name:
        if width_of(kept + letter) > (most - 1) * CHARACTER:
            break
        kept += letter
    return f"{kept}…"


def width_of(text: str) -> int:
    """Return about how wide a text is."""
    return CHARACTER * sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _share(value: float, ends: tuple[float, float]) -> float:
    return min(1.0, max(0.0, (value - ends[0]) / (ends[1] - ends[0])))


def _runs(places: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Join sorted places (row, column) that follow each other: row, first column and length of each run."""
    runs = list[tuple[int, int, int]]()
    for row, column in places:
        if runs and runs[-1][0] == row and sum(runs[-1][1:]) == column:
            runs[-1] = (row, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((row, column, 1))
    return runs


def _style(dark: int) -> str:
    page, ink, rule, quiet, first, second = (pair[dark] for pair in _COLOURS.values())
    return (
        f"text{{font:12px system-ui,sans-serif;fill:{ink}}}.b{{font-weight:600}}.quiet{{fill:{quiet}}}"
        f".page,.on{{fill:{page}}}.rule{{fill:none;stroke:{rule}}}.first{{fill:{first}}}.second{{fill:{second}}}"
        f".line{{fill:none;stroke:{first};stroke-width:2}}"
        f".mark{{fill:none;stroke:{second};stroke-width:1.5;stroke-dasharray:5 3}}"
    )


def _n(value: float) -> str:
    """Return a number with at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
