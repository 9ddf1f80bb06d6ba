"""Charts of recipes."""

from pathlib import Path

import pytest

from moonfed.experiments.papers import charts
from moonfed.experiments.papers.recipe import Chart, Panel, cross
from moonfed.experiments.papers.results import (
    Trial,
)
from moonfed.experiments.plots import picture
from tests.support.paper_results import CIFAR10, FEDAVG, MOON, curve, panel_result


@pytest.mark.parametrize(("chart", "trial"), [("curves", curve(0.5)), ("lines", curve(0.5, 0.6))])
def test_a_single_point_is_drawn_as_no_line(tmp_path: Path, chart: Chart, trial: Trial) -> None:
    panel = Panel(title="", chart=chart, cells=cross([CIFAR10], [(MOON, ""), (FEDAVG, "")]))
    ((_, draw),) = charts._parts(panel_result(panel, [(trial,), (trial,)]), "", several=False)
    with picture(tmp_path / "x.png", 1, 1, width=2, height=2, title="") as (axes,):
        draw(axes)
        assert [label.get_text() for label in axes.get_yticklabels()] == ["MOON", "FedAvg"]
