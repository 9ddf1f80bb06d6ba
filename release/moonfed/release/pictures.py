"""Pictures of results on a test set that suit a task, as files next to the model card.

They hold no sample: counts and means only, and values and scores no finer than `BINS` across.
Legend: N samples, H steps of a forecast, T values or tokens, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.bundle.target import TargetSpec
from moonfed.release.svg import LINE, SHADES, Axes, Drawing, shortened, widened, width_of
from moonfed.tasks.figure import MOST_NATS

BINS = 40  # of values and scores
PANELS = 6  # values that are drawn
BARS = 30  # classes or labels with a bar
_SIDE, _SMALL = 600, 3  # of a confusion matrix, and its smallest cell: pixels
_COUNTED = 22  # the smallest cell with a count
_BAR = (240, 14)  # width and height
_SQUARE, _WIDE, _HIGH = 240, 400, 160  # of panels
_LEFT, _GAP = 92, 88  # of panels: room for the labels of their axes
_PLACES = 100  # of a curve
_SPREAD = 0.5  # of the range of values that predictions may exceed
_HIGHEST = 3.0  # times the threshold, where a histogram ends at the latest

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A file, with the sentence that stands for it where it is not shown."""

    name: str
    caption: str
    content: bytes


def confusion(names: Sequence[str], counts: Array, counts_of: str) -> Picture:
    """Draw a confusion matrix [C, C], by class and by prediction: each class's shares as shades."""
    drawing, number = Drawing(f"Confusion matrix, {counts_of}"), len(names)
    labels = [shortened(name) for name in names]
    side = max(_SMALL, min(56, _SIDE // number))
    left, top = 40 + max(map(width_of, labels)), 44
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    levels = np.ceil(SHADES * np.sqrt(shares) - 0.25).astype(int)  # small shares, the mistakes, are visible
    places = {(int(row), int(column)): int(levels[row, column]) for row, column in np.argwhere(levels > 0)}
    drawing.cells(left, top, side, places)
    drawing.box(left, top, side * number, side * number, "rule")
    bottom = top + side * number
    for place in range(0, number, -(-LINE // side)):
        middle = side * (place + 0.5)
        drawing.text(left - 6, top + middle, labels[place], anchor="end")
        drawing.text(left + middle, bottom + 6, labels[place], anchor="end", upright=True)
    _write_counts(drawing, counts, levels, left, top, side)
    drawing.text(16, top + side * number / 2, "true class", kind="quiet", anchor="middle", upright=True)
    below = bottom + 20 + max(map(width_of, labels))
    drawing.text(left, below, "predicted class", kind="quiet")
    _legend(drawing, left, below + LINE + 4)
    return Picture(
        name="confusion.svg",
        caption=f"Confusion matrix: the {counts_of} of each class (rows) by predicted class (columns)",
        content=drawing.to_bytes(),
    )


def _write_counts(drawing: Drawing, counts: Array, levels: Array, left: float, top: float, side: float) -> None:
    if side < _COUNTED or width_of(_short(int(counts.max()))) > side + 4:
        return
    for (row, column), count in np.ndenumerate(counts):
        if count:
            kind = "on" if levels[row, column] > SHADES / 2 else ""
            x, y = left + side * (column + 0.5), top + side * (row + 0.5)
            drawing.text(x, y, _short(int(count)), kind=kind, anchor="middle")


def _short(count: int) -> str:
    """Return a count in at most four letters, such as 12k."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if count >= size:
            return f"{count // (1000 if letter == 'k' else size)}{letter}"
    return str(count)


def _legend(drawing: Drawing, x: float, y: float) -> None:
    """Say which shares the shades are."""
    for place in range(SHADES):
        drawing.box(x + 12 * place, y - 6, 12, 12, "first", shade=place + 1)
    drawing.text(x + 12 * SHADES + 8, y, "0 to 100 % of the class", kind="quiet")


def bars(metric: str, noun: str, names: Sequence[str], values: Sequence[float | None]) -> Picture:
    """Draw a metric from 0 to 1 of classes or labels, of many only the worst; None: it is not defined."""
    known = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    shown = known if len(known) <= BARS else sorted(known, key=lambda pair: pair[1])[:BARS]
    title = f"{metric} by {noun}" + (f", the {BARS} lowest of {len(known)}" if len(known) > BARS else "")
    drawing = Drawing(title)
    labels = [shortened(name) for name, _ in shown]
    left, (width, height) = 16 + max(map(width_of, labels), default=0), _BAR
    for place, (label, (_, value)) in enumerate(zip(labels, shown, strict=True)):
        y = 44 + (height + 6) * place
        drawing.text(left - 6, y + height / 2, label, anchor="end")
        drawing.box(left, y, width, height, "rule")
        drawing.box(left, y, width * value, height, "first")
        drawing.text(left + width + 6, y + height / 2, f"{value:.3f}")
    return Picture(name=f"{metric.lower()}.svg", caption=title, content=drawing.to_bytes())


def against_true(found: Array, true: Array, target: TargetSpec) -> Picture:
    """Draw predicted against true values [N, …, T], counted by squares; at least one must be finite."""
    drawing = Drawing("Predicted against true values")
    for place, (name, own_found, own_true) in enumerate(_by_value(found, true, target)):
        finite = np.isfinite(own_found) & np.isfinite(own_true)
        if finite.any():
            _cloud(drawing, place, name, own_found[finite], own_true[finite])
    return Picture(
        name="predicted.svg",
        caption=f"Predicted against true values{_first(target)}: the stronger a square, the more of them; those beyond "
        "the axes are at their edge, and on the dashed line both are the same",
        content=drawing.to_bytes(),
    )


def _cloud(drawing: Drawing, place: int, name: str, found: Array, true: Array) -> None:
    low, high = widened(*np.quantile(true, (0.01, 0.99)))
    room = _SPREAD * (high - low)
    least, most = (float(each) for each in (min(found.min(), true.min()), max(found.max(), true.max())))
    ends = (max(low - room, min(low, least)), min(high + room, max(high, most)))
    left, top = _LEFT + (_SQUARE + _LEFT) * (place % 2), 64 + (_SQUARE + _GAP) * (place // 2)
    axes = Axes(left=left, top=top, width=_SQUARE, height=_SQUARE, x=ends, y=ends)
    edges = np.linspace(*ends, BINS + 1)
    counts, *_ = np.histogram2d(np.clip(found, *ends), np.clip(true, *ends), bins=[edges, edges])
    levels = np.ceil(SHADES * np.sqrt(counts / counts.max())).astype(int)
    levels[levels == 1] = 2  # a single value is visible, too
    shades = {(BINS - 1 - int(row), int(column)): int(levels[row, column]) for row, column in np.argwhere(levels)}
    axes.draw(drawing, name, x_label="true", y_label="predicted")
    drawing.cells(left, top, _SQUARE / BINS, shades)
    drawing.line([axes.place(ends[0], ends[0]), axes.place(ends[1], ends[1])], "mark")


def by_step(found: Array, true: Array, target: TargetSpec) -> Picture:
    """Draw the mean absolute error of each step of forecasts [N, H, T]."""
    drawing = Drawing("Mean absolute error by step of the forecast")
    for place, (name, own_found, own_true) in enumerate(_by_value(found, true, target)):
        errors = np.abs(own_found - own_true).mean(axis=0)
        _curve(drawing, place, name, errors, x_label="step", y_label="MAE")
    return Picture(
        name="steps.svg",
        caption=f"Mean absolute error of each step of the forecast{_first(target)}",
        content=drawing.to_bytes(),
    )


def by_position(losses: Array, tokens: Array) -> Picture:
    """Draw the perplexity of each place in a text, from sums of losses [T], in nats, over so many tokens [T]."""
    size = -(-len(losses) // _PLACES)  # of groups of places, so that the curve of a long text is not noise
    starts = np.arange(0, len(losses), size)
    summed, counted = np.add.reduceat(losses, starts), np.add.reduceat(tokens, starts)
    values = np.exp(np.minimum(summed / np.maximum(1, counted), MOST_NATS))
    drawing = Drawing("Perplexity by place in the text")
    known = counted > 0
    _curve(drawing, 0, "", values[known], x_label="tokens before", y_label="perplexity", x=starts[known] + 1)
    return Picture(
        name="perplexity.svg",
        caption="Perplexity of a token, by the number of tokens before it",
        content=drawing.to_bytes(),
    )


def _curve(
    drawing: Drawing, place: int, name: str, values: Array, *, x_label: str, y_label: str, x: Array | None = None
) -> None:
    """Draw values over 1, 2, … or over x."""
    across = np.arange(1, len(values) + 1) if x is None else x
    finite = np.isfinite(values)
    if not finite.any():
        return
    ends = widened(0.0, 1.05 * float(values[finite].max()))
    axes = Axes(
        left=_LEFT, top=64 + (_HIGH + _GAP) * place, width=_WIDE, height=_HIGH,
        x=widened(float(across[0]), float(across[-1])), y=ends,
    )  # fmt: skip
    axes.draw(drawing, name, x_label=x_label, y_label=y_label)
    points = [axes.place(float(at), float(value)) for at, value in zip(across[finite], values[finite], strict=True)]
    drawing.line(points if len(points) > 1 else [(axes.left, points[0][1]), (axes.left + _WIDE, points[0][1])], "line")


def histogram(groups: Mapping[str, Array], limit: float | None) -> Picture:
    """Draw how many samples of each group have which scores [N]; `limit`: the threshold, drawn as a line."""
    scores = np.concatenate(list(groups.values()))
    low, most = float(scores.min()), float(np.quantile(scores, 0.99) if limit is None else limit)
    ends = widened(low, min(float(scores.max()), max(_HIGHEST * most, low)))
    drawing = Drawing("Scores" if limit is None else f"Scores, and the threshold {limit:g}")
    for place, (name, own) in enumerate(groups.items()):
        counts, _ = np.histogram(np.clip(own, *ends), BINS, ends)
        axes = Axes(
            left=_LEFT, top=64 + (_HIGH + _GAP) * place, width=_WIDE, height=_HIGH,
            x=ends, y=(0.0, 1.05 * max(1.0, float(counts.max()))),
        )  # fmt: skip
        axes.draw(drawing, f"{name}: {len(own):,}", x_label="score", y_label="samples")
        for bar, count in enumerate(counts):
            x, y = axes.place(ends[0] + (ends[1] - ends[0]) * bar / BINS, float(count))
            drawing.box(x, y, _WIDE / BINS - 1, axes.top + _HIGH - y, "second" if name == "anomalous" else "first")
        if limit is not None and limit <= ends[1]:
            drawing.line([axes.place(limit, 0.0), axes.place(limit, axes.y[1])], "mark")
    return Picture(
        name="scores.svg",
        caption="Samples by score, the highest in the last bar"
        + ("" if limit is None else f"; dashed: the threshold, {limit:g}"),
        content=drawing.to_bytes(),
    )


def _by_value(found: Array, true: Array, target: TargetSpec) -> Iterator[tuple[str, Array, Array]]:
    """Yield the first values, each with its unit."""
    for place, name in enumerate(target.names_with_units[:PANELS]):
        yield shortened(name, 34), found[..., place], true[..., place]


def _first(target: TargetSpec) -> str:
    return f", the first {PANELS} of {len(target.names)}" if len(target.names) > PANELS else ""
