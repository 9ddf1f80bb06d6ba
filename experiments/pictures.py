"""Pictures of a run, legible in print and without colour vision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^v<>"
GREYS = ("black", "0.45", "0.65")


def draw_demo(
    path: Path,
    *,
    accuracy: Sequence[float],
    solo: Mapping[str, float],
    counts: npt.NDArray[np.int64],
    classes: Sequence[str],
    title: str,
) -> None:
    """Accuracy by round beside SOLO's, and samples by device and class, as one PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    draw_accuracy(left, accuracy, solo)
    draw_heat_map(right, counts, classes)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_accuracy(axes: Axes, accuracy: Sequence[float], solo: Mapping[str, float]) -> None:
    """The global model's accuracy by round, with each device's accuracy alone as a dashed line."""
    from matplotlib.ticker import MaxNLocator

    axes.plot(range(1, len(accuracy) + 1), accuracy, color=GREYS[0], marker=MARKERS[0], label="federated (MOON)")
    for number, value in enumerate(solo.values()):
        axes.axhline(value, color=GREYS[1], linestyle="--", linewidth=1, label=None if number else "each device alone")
    mean = sum(solo.values()) / len(solo)
    axes.axhline(mean, color=GREYS[1], linewidth=2, label=f"alone, mean ({mean:.3f})")
    axes.set(xlabel="round", ylabel="accuracy on the whole test set", ylim=(0, 1.02), title="Accuracy by round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, color="0.9")
    axes.legend(loc="lower right")


def draw_heat_map(axes: Axes, counts: npt.NDArray[np.int64], classes: Sequence[str]) -> None:
    """Samples by device (columns) and class (rows), with the numbers written in."""
    table = counts.T
    axes.imshow(table, cmap="Greys", aspect="auto", vmin=0, vmax=1.3 * max(1, table.max()))
    axes.set_xticks(range(table.shape[1]), [f"device-{number}" for number in range(1, table.shape[1] + 1)])
    axes.set_yticks(range(len(classes)), list(classes))
    axes.set(xlabel="", ylabel="class", title="Samples by device and class")
    for (row, column), count in np.ndenumerate(table):
        dark = count > 0.65 * table.max()
        axes.text(column, row, str(count), ha="center", va="center", color="white" if dark else "black", fontsize=8)
