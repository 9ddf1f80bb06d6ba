"""The picture of a run's curves: its metric and losses by round."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moonfed.coordinator.trackers.snapshot import RunSnapshot

SIZE = (9.0, 3.6)  # inches
CURVES = 8  # in one diagram, so that they can be told apart


def curves(snapshot: RunSnapshot, measure: str) -> dict[str, tuple[list[int], list[float]]]:
    """Return the series of a measure, such as `loss`, `train_loss` and `loss@night`, as rounds and values."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for point in sorted(snapshot.points, key=lambda point: point.round):
        if f"_{measure}_" in f"_{point.name.partition('@')[0]}_":
            rounds, values = found.setdefault(point.name, ([], []))
            rounds.append(point.round)
            values.append(point.value)
    return dict(sorted(found.items())[:CURVES])


def draw_curves(path: Path, snapshot: RunSnapshot) -> bool:
    """Draw metric and losses side by side as a PNG; return False if the run has neither yet."""
    panels = {title: found for title in (snapshot.metric, "loss") if (found := curves(snapshot, title))}
    if panels:
        _draw(path, panels, f"run {snapshot.run}")
    return bool(panels)


def _draw(path: Path, panels: Mapping[str, Mapping[str, tuple[list[int], list[float]]]], title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (name, series) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for label, (rounds, values) in series.items():
            marker = "o" if len(rounds) == 1 else ""
            axes.plot(rounds, values, label=label.replace("_", " "), marker=marker)
        axes.set(xlabel="round", ylabel=name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(title, fontsize=10, parse_math=False)
    figure.savefig(path, dpi=120)
