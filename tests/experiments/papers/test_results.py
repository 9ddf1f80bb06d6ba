"""Numbers of tables from hand-made curves."""

from dataclasses import replace

import pytest

from moonfed.experiments.papers.recipe import Panel, cross
from moonfed.experiments.papers.results import (
    Summary,
    Trial,
    best_trials,
    rounds_to,
    speed_up,
    summarise,
    targets,
)
from tests.support.paper_results import CIFAR10, FEDAVG, MOON, SOLO, curve, panel_result


@pytest.mark.parametrize(
    ("accuracy", "target", "rounds"),
    [
        ((0.1, 0.5, 0.4, 0.6), 0.5, 2),  # reached exactly, and lost again
        ((0.1, 0.5, 0.4, 0.6), 0.55, 4),
        ((0.7,), 0.5, 1),
        ((0.1, 0.5), 0.6, None),
        ((), 0.5, None),
    ],
)
def test_rounds_to_an_accuracy(accuracy: tuple[float, ...], target: float, rounds: int | None) -> None:
    assert rounds_to(accuracy, target) == rounds


def test_accuracy_is_the_mean_over_the_trials_with_their_sample_deviation() -> None:
    panel = Panel(title="", cells=cross([CIFAR10], [(MOON, ""), (SOLO, "")]))
    solo = (Trial(seed=0, parties=(0.25, 0.5)), Trial(seed=1, parties=(0.75,)))
    result = panel_result(panel, [(curve(0.2, 0.5), curve(0.3, 0.7, seed=1)), solo])
    moon, alone = (summarise(result, cell) for cell in result.cells)
    assert moon.value == pytest.approx(60.0)
    assert moon.deviation == pytest.approx(200**0.5)  # of 50 and 70
    assert moon.text == "60.0 ± 14.1"
    assert (alone.text, alone.value) == ("50.0 ± 20.4", 50.0)  # the population's, over three parties
    one = panel_result(panel, [(curve(0.2, 0.5),), solo])
    assert summarise(one, one.cells[0]).text == "50.0"


def test_a_column_may_be_read_half_way() -> None:
    half_way = replace(CIFAR10, label="half-way", at=0.5)
    panel = Panel(title="", cells=cross([half_way, CIFAR10], [(MOON, "")]))
    result = panel_result(panel, [(curve(0.1, 0.2, 0.3, 0.4),), (curve(0.1, 0.2, 0.3, 0.4),)])
    assert [summarise(result, cell).text for cell in result.cells] == ["20.0", "40.0"]


def test_rounds_are_those_to_fedavgs_last_accuracy_seed_by_seed() -> None:
    panel = Panel(title="", measure="rounds", target="FedAvg", cells=cross([CIFAR10], [(FEDAVG, ""), (MOON, "")]))
    fedavg = (curve(0.1, 0.4, 0.5), curve(0.2, 0.6, 0.55, seed=1))
    moon = (curve(0.5, 0.6, 0.7), curve(0.2, 0.3, 0.6, seed=1))
    result = panel_result(panel, [fedavg, moon])
    assert targets(result, result.cells[1]) == [0.5, 0.55]
    assert [summarise(result, cell).text for cell in result.cells] == ["3.0", "2.0 ± 1.4"]
    faster = replace(result, panel=replace(panel, measure="speed-up"))
    assert [summarise(faster, cell).text for cell in faster.cells] == ["1.0x", "2.0x"]  # 3 by 1 and by 3
    never = panel_result(panel, [fedavg, (curve(0.1, 0.1, 0.1), curve(0.1, 0.1, 0.1, seed=1))])
    assert summarise(never, never.cells[1]) == Summary(text="")


def test_a_half_of_a_speed_up_goes_up_as_in_the_papers() -> None:
    assert [speed_up(100 / rounds) for rounds in (80, 16, 22)] == ["1.3x", "6.3x", "4.5x"]


def test_trials_that_never_reach_the_target_are_counted() -> None:
    panel = Panel(title="", measure="rounds", target=0.68, cells=cross([CIFAR10], [(MOON, "")]))
    some = panel_result(panel, [(curve(0.1, 0.7), curve(0.1, 0.6, seed=1))])
    none = panel_result(panel, [(curve(0.1, 0.6),)])
    assert summarise(some, some.cells[0]) == Summary(text="2 (1 of 2 trials)", value=2.0)
    assert summarise(none, none.cells[0]) == Summary(text=">2")


def test_seconds_are_the_median_and_spread_is_over_the_parties() -> None:
    seconds = Panel(title="", measure="seconds", cells=cross([CIFAR10], [(MOON, "")]))
    result = panel_result(seconds, [(replace(curve(0, 0, 0), seconds=(9.0, 1.25, 2.5)),)])
    assert summarise(result, result.cells[0]).text == "2.50"
    ratio = Panel(title="", measure="ratio", target="FedAvg", cells=cross([CIFAR10], [(FEDAVG, ""), (MOON, "")]))
    times = [(replace(curve(0, 0), seconds=(seconds, seconds)),) for seconds in (2.0, 2.5)]
    result = panel_result(ratio, times)
    assert [summarise(result, cell).text for cell in result.cells] == ["1.00", "1.25"]
    split = Panel(title="", measure="spread", cells=cross([CIFAR10], [(MOON, "")]))
    trials = (Trial(seed=0, counts=((6, 2), (3, 1))), Trial(seed=1, counts=((6, 0), (3, 3))))
    result = panel_result(split, [trials])
    summary = summarise(result, result.cells[0])
    assert summary.value == 6.0
    assert summary.deviation == pytest.approx(2 / 2)  # the population's of sizes 8 and 4, then 6 and 6


def test_the_best_tuned_value_has_the_highest_mean() -> None:
    (cell,) = cross([CIFAR10], [(MOON, "")])
    trials = [
        curve(0.6, tuned=1.0),
        curve(0.2, seed=1, tuned=1.0),
        curve(0.5, tuned=5.0),
        curve(0.4, seed=1, tuned=5.0),
    ]
    assert best_trials(cell, trials) == (trials[2], trials[3])
