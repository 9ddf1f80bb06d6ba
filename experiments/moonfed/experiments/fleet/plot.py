"""The figure of one simulation: the score by round or by party, next to the split."""

from __future__ import annotations

from itertools import accumulate

from moonfed.bundle.files import read_bundle
from moonfed.experiments.fleet.results import SimulationResult
from moonfed.experiments.plots import (
    TRAFFIC,
    Line,
    Pair,
    draw_bars,
    draw_heat_map,
    draw_lines,
    draw_second_scale,
    picture,
)
from moonfed.experiments.strata import stratum_names, stratum_word

MOST_SHOWN = 50  # more parties do not fit in the figure


def draw_result(result: SimulationResult) -> None:
    """Write the picture into the simulation's directory."""
    simulation, counts = result.simulation, result.counts
    name = result.metric.label
    few = len(counts) <= MOST_SHOWN
    source = f" on {simulation.dataset}" if simulation.dataset else ""
    title = f"{simulation.name}: {simulation.method}{source}, {len(counts)} parties"
    with picture(result.layout.picture, 1, 2 if few else 1, width=5.5, height=3.8, title=title) as axes:
        if result.rounds:
            x, y = [entry.round for entry in result.rounds], [entry.score for entry in result.rounds]
            draw_lines(axes[0], [Line(label=simulation.method, x=x, y=y)], x="round", y=f"{name} on the test set")
            megabytes = [entry.traffic / 1e6 for entry in result.rounds]
            if any(megabytes):  # pooled samples are sent nowhere
                draw_second_scale(axes[0], x, list(accumulate(megabytes)), label=TRAFFIC)
        else:
            shown = result.parties[:MOST_SHOWN]
            pairs = [Pair(label=entry.party, ours=entry.score, paper=None) for entry in shown]
            draw_bars(axes[0], pairs, x=f"{name} on the test set")
        if few:
            target = read_bundle(result.bundle).manifest.target
            draw_heat_map(axes[1], counts, stratum_names(target), device="party")
            if target.kind != "class":
                axes[1].set_ylabel(stratum_word(target))
            axes[1].set_title("training samples", fontsize="medium")
