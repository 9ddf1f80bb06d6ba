"""Figures of runs, legible in print and without colour vision: every series has its own marker and line style.

The colours are those of Okabe and Ito, Color Universal Design (2008), without the yellow, which prints poorly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^vPX<>*"
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
GREYS = ("black", "0.45", "0.65")
TRAFFIC = "MB received and sent by all parties"
NUMBERED = 12  # a heat map with more classes has no room for numbers in its fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series: y at each x, with its deviation, if known."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    deviation: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Our number and the paper's, either of which may be missing."""

    label: str
    ours: float | None
    paper: float | None
    ours_deviation: float | None = None
    paper_deviation: float | None = None


@contextmanager
def picture(path: Path, rows: int, columns: int, *, width: float, height: float, title: str) -> Iterator[list[Axes]]:
    """Yield the axes of a grid, row by row, each `width` by `height` inches, and write the PNG at the end."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, grid = plt.subplots(
        rows, columns, figsize=(columns * width, rows * height + 0.4), layout="constrained", squeeze=False
    )
    try:
        yield list(grid.flat)
        figure.suptitle(title, fontsize=11)
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)


def draw_demo(
    path: Path,
    *,
    accuracy: Sequence[float],
    solo: Mapping[str, float],
    counts: npt.NDArray[np.int64],
    classes: Sequence[str],
    title: str,
) -> None:
    """Draw accuracy by round next to SOLO's, and samples by device and class, as one PNG."""
    with picture(path, 1, 2, width=5.5, height=3.8, title=title) as (left, right):
        draw_accuracy(left, accuracy, solo)
        draw_heat_map(right, counts, classes)
        right.set_title("Samples by device and class")


def draw_accuracy(axes: Axes, accuracy: Sequence[float], solo: Mapping[str, float]) -> None:
    """Draw the global model's accuracy by round, with each device's accuracy alone as a dashed line."""
    axes.plot(range(1, len(accuracy) + 1), accuracy, color=GREYS[0], marker=MARKERS[0], label="federated (MOON)")
    for number, value in enumerate(solo.values()):
        axes.axhline(value, color=GREYS[1], linestyle="--", linewidth=1, label=None if number else "each device alone")
    mean = sum(solo.values()) / len(solo)
    axes.axhline(mean, color=GREYS[1], linewidth=2, label=f"alone, mean ({mean:.3f})")
    axes.set(xlabel="round", ylabel="accuracy on the whole test set", ylim=(0, 1.02), title="Accuracy by round")
    _whole_numbers(axes)
    axes.grid(visible=True, color="0.9")
    axes.legend(loc="lower right")


def draw_lines(axes: Axes, lines: Sequence[Line], *, x: str, y: str, ticks: Sequence[str] = ()) -> None:
    """Draw several series. `ticks` names the positions 0, 1, … on the x axis, if the lines use such positions."""
    for number, line in enumerate(lines):
        style = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": STYLES[number % len(STYLES)],
            "marker": MARKERS[number % len(MARKERS)],
        }
        every = max(1, len(line.x) // 10)  # a marker on each of a hundred rounds would hide the line
        axes.plot(line.x, line.y, **style, markersize=5, linewidth=1.4, markevery=(number % every, every),
                  label=line.label)  # fmt: skip
        if line.deviation:
            low, high = (np.asarray(line.y) + sign * np.asarray(line.deviation) for sign in (-1, 1))
            axes.fill_between(line.x, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.set(xlabel=x, ylabel=y)
    if ticks:
        axes.set_xticks(range(len(ticks)), list(ticks))
        axes.set_xlim(-0.3, len(ticks) - 0.7)
    else:
        _whole_numbers(axes)
    axes.grid(visible=True, color="0.9")
    if len(lines) > 1:
        axes.legend(fontsize=8)


def draw_second_scale(axes: Axes, x: Sequence[float], values: Sequence[float], *, label: str) -> None:
    """Draw a scale on top with what the positions x amount to; both must rise. Zero is at the origin."""
    places, amounts = [0.0, *x], [0.0, *values]
    axes.secondary_xaxis(
        "top", functions=(lambda at: _interpolate(at, places, amounts), lambda at: _interpolate(at, amounts, places))
    ).set_xlabel(label)


def _interpolate(at: npt.ArrayLike, x: Sequence[float], y: Sequence[float]) -> npt.NDArray[np.float64]:
    """Interpolate, and extrapolate with the last slope: a scale is a little longer than its data."""
    at, low, high = (np.asarray(values, np.float64) for values in (at, x, y))
    beyond = (at - low[-1]) * (high[-1] - high[0]) / (low[-1] - low[0])
    below = (at - low[0]) * (high[1] - high[0]) / (low[1] - low[0])
    found = np.where(at > low[-1], high[-1] + beyond, np.where(at < low[0], high[0] + below, np.interp(at, low, high)))
    return found.astype(np.float64)


def draw_comparison(axes: Axes, pairs: Sequence[Pair], *, x: str) -> None:
    """Draw our numbers, filled, above the paper's, hollow, each with its deviation; the first pair is at the top."""
    _marks(axes, [(pair.ours, pair.ours_deviation) for pair in pairs], -0.13,
           color=COLOURS[0], marker="o", label="moonfed")  # fmt: skip
    _marks(axes, [(pair.paper, pair.paper_deviation) for pair in pairs], 0.13,
           color=COLOURS[1], marker="D", markerfacecolor="white", label="paper")  # fmt: skip
    _by_label(axes, pairs, x)


def draw_bars(axes: Axes, pairs: Sequence[Pair], *, x: str) -> None:
    """Draw our numbers as filled bars above the paper's hatched ones; "none" where there is no number."""
    theirs: dict[str, Any] = {"color": "white", "edgecolor": COLOURS[1], "hatch": "///"}
    kinds: list[tuple[str, list[float | None], dict[str, Any]]] = [
        ("moonfed", [pair.ours for pair in pairs], {"color": COLOURS[2]}),
        ("paper", [pair.paper for pair in pairs], theirs),
    ]
    shown = [kind for kind in kinds if any(value is not None for value in kind[1])]
    for number, (label, values, style) in enumerate(shown):
        places = np.arange(len(pairs)) + 0.4 * (number - (len(shown) - 1) / 2)  # one kind alone is on its label
        bars = axes.barh(places, [value or 0.0 for value in values], height=0.36, label=label, **style)
        axes.bar_label(bars, ["none" if value is None else _short(value) for value in values], padding=3, fontsize=8)
    _by_label(axes, pairs, x)
    axes.margins(x=0.15)


def draw_heat_map(axes: Axes, counts: npt.NDArray[np.int64], classes: Sequence[str], *, device: str = "device") -> None:
    """Draw samples by device (columns) and class (rows), with numbers where they fit."""
    table = counts.T
    numbered = len(classes) <= NUMBERED
    most = max(1, table.max())
    image = axes.imshow(table, cmap="Greys", aspect="auto", vmin=0, vmax=1.3 * most if numbered else most)
    names = [str(number) for number in range(1, table.shape[1] + 1)]
    axes.set_xticks(range(table.shape[1]), names)
    step = 1 if numbered else len(classes) // 10
    axes.set_yticks(range(0, len(classes), step), list(classes)[::step])
    axes.set(xlabel=device, ylabel="class")
    if not numbered:
        axes.figure.colorbar(image, ax=axes, label="samples")
        return
    for (row, column), count in np.ndenumerate(table):
        dark = count > 0.65 * most
        axes.text(column, row, str(count), ha="center", va="center", color="white" if dark else "black", fontsize=7)


def draw_points(axes: Axes, points: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], classes: int) -> None:
    """Draw points [N, 2], coloured and marked by class; positions have no meaning, so the axes have no numbers."""
    for label in range(classes):
        member = labels == label
        axes.scatter(points[member, 0], points[member, 1], s=14, linewidths=0.4, alpha=0.85, edgecolors="white",
                     color=COLOURS[label % len(COLOURS)], marker=MARKERS[label % len(MARKERS)],
                     label=str(label))  # fmt: skip
    axes.set(xticks=[], yticks=[])


def share_legend(grid: Sequence[Axes], *, title: str = "") -> None:
    """Draw one legend below all parts if their legends are equal; otherwise each part keeps its own.

    The number of its rows follows from the picture's width.
    """
    found = [axes.get_legend_handles_labels() for axes in grid]
    wanted = [(handles, labels) for handles, labels in found if len(labels) > 1]
    looks = {(*labels, *(type(handle).__name__ for handle in handles)) for handles, labels in wanted}
    if len(looks) != 1:
        return
    for axes in grid:
        if legend := axes.get_legend():
            legend.remove()
    handles, labels = wanted[0]
    figure = grid[0].figure
    for rows in range(1, len(labels) + 1):
        columns = ceil(len(labels) / rows)
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, title=title)
        if rows == len(labels) or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def _marks(axes: Axes, values: Sequence[tuple[float | None, float | None]], offset: float, **style: Any) -> None:  # noqa: ANN401 - matplotlib's
    known = [
        (place + offset, value, spread or 0.0) for place, (value, spread) in enumerate(values) if value is not None
    ]
    if known:
        places, middles, spreads = zip(*known, strict=True)
        axes.errorbar(middles, places, xerr=spreads, linestyle="none", capsize=3, markersize=6, **style)


def _by_label(axes: Axes, pairs: Sequence[Pair], x: str) -> None:
    axes.set_yticks(range(len(pairs)), [pair.label for pair in pairs])
    axes.set_ylim(len(pairs) - 0.5, -0.5)  # the first on top, as in a table
    axes.set(xlabel=x)
    axes.locator_params(axis="x", nbins=6)
    axes.grid(visible=True, axis="x", color="0.9")
    axes.set_axisbelow(True)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(fontsize=8)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
