"""Contents of plots, and that their lines are distinguishable without colours."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from moonfed.experiments.plots import (
    Line,
    Pair,
    draw_bars,
    draw_comparison,
    draw_heat_map,
    draw_lines,
    draw_points,
    picture,
    share_legend,
)


@pytest.fixture
def axes() -> Iterator[Axes]:
    plt.switch_backend("Agg")
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def test_seven_series_differ_in_marker_and_in_line_style(axes: Axes) -> None:
    lines = [Line(label=f"method {number}", x=range(1, 101), y=[number] * 100) for number in range(7)]
    draw_lines(axes, lines, x="round", y="accuracy, %")
    drawn = axes.get_lines()
    assert [line.get_label() for line in drawn] == [line.label for line in lines]
    assert len({line.get_marker() for line in drawn}) == 7
    assert len({(str(line.get_linestyle()), str(getattr(line, "_unscaled_dash_pattern", ""))) for line in drawn}) == 7
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "accuracy, %")
    assert axes.get_legend() is not None


def test_a_line_over_named_places_shows_its_names_and_its_spread(axes: Axes) -> None:
    line = Line(label="MOON", x=[0, 2], y=[50.0, 70.0], deviation=[1.0, 2.0])
    draw_lines(axes, [line], x="local epochs", y="accuracy, %", ticks=["1", "10", "40"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "10", "40"]
    (band,) = axes.collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert (heights.min(), heights.max()) == (49.0, 72.0)


def test_our_number_is_next_to_the_papers(axes: Axes) -> None:
    pairs = [
        Pair(label="MOON", ours=68.0, paper=69.1, paper_deviation=0.4),
        Pair(label="FedAvg", ours=66.0, ours_deviation=1.0, paper=None),
    ]
    draw_comparison(axes, pairs, x="accuracy, %")
    ours, paper = (container.lines[0] for container in axes.containers)  # type: ignore[attr-defined] # of error bars
    assert list(ours.get_xdata()) == [68.0, 66.0]
    assert list(paper.get_xdata()) == [69.1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["MOON", "FedAvg"]
    assert axes.yaxis_inverted()  # the first row on top, as in the table


def test_a_bar_without_a_number_is_labelled(axes: Axes) -> None:
    draw_bars(axes, [Pair(label="SCAFFOLD", ours=12.0, paper=None), Pair(label="MOON", ours=None, paper=27.0)], x="")
    assert [text.get_text() for text in axes.texts] == ["12", "none", "none", "27"]
    assert all(bar.get_hatch() for bar in axes.patches[2:])
    assert not any(bar.get_hatch() for bar in axes.patches[:2])


def test_bars_without_any_number_of_the_paper_leave_it_out(axes: Axes) -> None:
    draw_bars(axes, [Pair(label="MOON", ours=5.0, paper=None)], x="seconds per round")
    assert [text.get_text() for text in axes.texts] == ["5"]


def test_a_heat_map_has_classes_by_devices(axes: Axes) -> None:
    counts = np.asarray([[1, 2, 3], [4, 5, 600]])  # two devices, three classes
    draw_heat_map(axes, counts, ["cat", "dog", "owl"], device="party")
    shown = {(text.get_position(), text.get_text()) for text in axes.texts}
    assert shown == {((device, label), str(counts[device, label])) for device in range(2) for label in range(3)}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog", "owl"]


def test_a_heat_map_of_many_classes_has_a_scale_instead_of_numbers(axes: Axes) -> None:
    draw_heat_map(axes, np.ones((10, 100), dtype=np.int64), [str(label) for label in range(100)])
    assert not axes.texts
    assert len(axes.get_yticks()) <= 12
    assert len(axes.figure.axes) == 2


def test_points_of_ten_classes_differ_in_marker_or_colour(axes: Axes) -> None:
    labels = np.repeat(np.arange(10), 3)
    draw_points(axes, np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32), labels, 10)
    looks = {
        (np.asarray(points.get_facecolor()).tobytes(), np.asarray(points.get_paths()[0].vertices).tobytes())
        for points in axes.collections
    }
    assert len(looks) == 10


def test_a_picture_is_written_and_closed(tmp_path: Path) -> None:
    open_before = len(plt.get_fignums())
    with picture(tmp_path / "a.png", 2, 3, width=2, height=2, title="") as grid:
        assert len(grid) == 6
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert len(plt.get_fignums()) == open_before


@pytest.mark.parametrize(
    "labels",
    [("a", "b"), ("MOON", "FedAvg", "FedProx", "FedProx, mu 1", "SCAFFOLD"), tuple("x" * 40 + end for end in "abcd")],
)
def test_a_shared_legend_fits_the_picture(tmp_path: Path, labels: tuple[str, ...]) -> None:
    with picture(tmp_path / "a.png", 1, 1, width=4.6, height=3.4, title="a") as axes:
        draw_lines(axes[0], [Line(label=label, x=[1, 2], y=[1, 2]) for label in labels], x="x", y="y")
        share_legend(axes)
        figure = axes[0].figure
        figure.canvas.draw()
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == list(labels)
        extent = legend.get_window_extent()
        assert 0 <= extent.x0 < extent.x1 <= figure.bbox.width
