"""The picture of a confusion matrix: the shares of each class as shades of blue, with counts where they fit.

Lightness alone carries the shares, so the picture is as legible without colours.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from moonfed.control.held_out_score import MAX_CONFUSION, HeldOutScore
from moonfed.errors import InvalidInput
from moonfed.validate import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = 24  # classes with a label and counts of their own
LABEL_LENGTH = 20  # characters
UPRIGHT = 4  # characters that fit below a cell
DARK = 0.71  # of the scale, from which on white counts have more contrast than black ones
_CELL, _MATRIX = 0.45, 3.0  # inches: a cell with a count, and the smallest matrix
_CHARACTER, _MARGIN, _SCALE = 0.09, 0.9, 0.9  # inches, of a label; around the matrix; of the colour scale


def require_matplotlib() -> None:
    """Raise ModuleNotFoundError, which `run_program` explains, unless pictures can be drawn."""
    import matplotlib as mpl

    mpl.use("Agg")


def require_picture(path: Path) -> None:
    """Raise InvalidInput unless the name is a PNG's, and ModuleNotFoundError unless pictures can be drawn."""
    require(path.suffix.lower() == ".png", "picture", str(path), "the name of a file that ends in .png")
    require_matplotlib()


def draw_confusion(path: Path, score: HeldOutScore, title: str) -> None:
    """Draw the matrix of a score as a PNG; InvalidInput if it has too many classes."""
    require_matplotlib()
    from matplotlib import pyplot as plt

    if not score.classes:
        raise InvalidInput(
            "a confusion matrix is of classes, which the models of this run do not tell apart",
            field="picture",
            value=path,
        )
    if not score.confusion:
        raise InvalidInput(
            f"the model has {len(score.classes)} classes; a picture has at most {MAX_CONFUSION}",
            field="classes",
            value=len(score.classes),
        )
    names = [_shortened(name) for name in score.classes]
    matrix = max(_MATRIX, _CELL * min(len(names), LABELS))
    side = matrix + _CHARACTER * max(map(len, names)) + _MARGIN
    figure, axes = plt.subplots(figsize=(side + _SCALE, side), layout="constrained")
    try:
        _draw(axes, score, names, matrix / len(names))
        facts = f"{score.samples:,} samples, {score.metric.name} {score.score:.4f}"
        figure.suptitle(f"{title}\n{facts}", fontsize=10, wrap=True)
        figure.savefig(path, dpi=120, bbox_inches="tight")
    finally:
        plt.close(figure)


def _shortened(name: str) -> str:
    return name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 1]}…"


def _draw(axes: Axes, score: HeldOutScore, names: list[str], cell: float) -> None:
    """Draw the matrix, its labels and its scale; `cell`: inches."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import PercentFormatter

    counts = np.array(score.rows())
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    scale = PowerNorm(0.5, vmin=0, vmax=1)  # makes small shares, the mistakes, visible
    image = axes.imshow(shares, cmap="Blues", norm=scale)
    step = -(-len(names) // LABELS)
    places = range(0, len(names), step)
    axes.set_xticks(places, names[::step], rotation=0 if max(map(len, names)) <= UPRIGHT else 90, parse_math=False)
    axes.set_yticks(places, names[::step], parse_math=False)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.figure.colorbar(image, ax=axes, label="share of the true class", format=PercentFormatter(1), fraction=0.05)
    if len(names) <= LABELS:
        _write_counts(axes, counts, np.asarray(scale(shares)) > DARK, cell)


def _write_counts(axes: Axes, counts: npt.NDArray[np.int64], dark: npt.NDArray[np.bool_], cell: float) -> None:
    longest = len(f"{counts.max():,}")
    size = min(10.0, 72 * cell / (0.7 * longest))  # points; a digit is 0.64 as wide as high
    for (row, column), count in np.ndenumerate(counts):
        colour = "white" if dark[row, column] else "black" if count else "darkgrey"
        axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=size)
