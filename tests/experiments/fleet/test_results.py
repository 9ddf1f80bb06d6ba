"""Results of simulations: lines of JSON, a summary, and the same as values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moonfed.errors import Corrupt
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.results import (
    PartyResult,
    SimulatedRound,
    SimulationResult,
    finish,
    finished,
    read_rows,
    write_rows,
)
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow

SIMULATION = make_simulation(name="mine", dataset="digits", method="moon", seed=3)
ROUNDS = tuple(
    SimulatedRound(
        round=round_,
        score=accuracy,
        loss=1.0,
        seconds=2.5,
        metrics={"train_loss": 0.5},
        party_seconds=4.0,
        sent_bytes=30,
        received_bytes=10,
        environment={"processor": "old" if round_ < 3 else "new"},
    )
    for round_, accuracy in ((1, 0.75), (2, 0.875), (3, 0.5))
)
PARTIES = tuple(
    PartyResult(party=f"party-{number}", score=accuracy, loss=0.5, seconds=10.0)
    for number, accuracy in ((1, 0.25), (2, 0.75))
)


@pytest.fixture(autouse=True)
def split(tmp_path: Path) -> None:
    Layout(tmp_path).split.write_text('{"sha256": "5f", "sizes": [60, 40]}')


def result(tmp_path: Path, *, parties: bool = False) -> SimulationResult:
    found = {"parties": PARTIES} if parties else {"rounds": ROUNDS}
    return SimulationResult(simulation=SIMULATION, output=tmp_path, **found)


@pytest.mark.parametrize("rows", [ROUNDS, PARTIES])
def test_rows_are_read_as_they_were_written(
    tmp_path: Path, rows: tuple[SimulatedRound, ...] | tuple[PartyResult, ...]
) -> None:
    layout = Layout(tmp_path)
    assert read_rows(layout) == ((), ())
    write_rows(SIMULATION, layout, rows)
    assert read_rows(layout) == ((rows, ()) if rows is ROUNDS else ((), rows))
    line = json.loads(layout.results.read_text().splitlines()[0])
    assert {name: line[name] for name in ("name", "dataset", "method", "seed", "split_sha256", "recipe")} == {
        "name": "mine",
        "dataset": "digits",
        "method": "moon",
        "seed": 3,
        "split_sha256": "5f",
        "recipe": SIMULATION.to_document(),
    }


@pytest.mark.parametrize("text", ["{", "3\n", '{"round": 1}\n', '{"party": "party-1", "accuracy": "high"}\n'])
def test_damaged_rows_are_named(tmp_path: Path, text: str) -> None:
    Layout(tmp_path).results.write_text(text)
    with pytest.raises(Corrupt, match=r"results.jsonl cannot be read; name a new output directory"):
        read_rows(Layout(tmp_path))


def test_a_run_is_summarised_by_its_last_and_its_best_model(tmp_path: Path) -> None:
    found = finish(result(tmp_path))
    assert (found.score, found.spread, found.seconds) == (0.5, 0.0, 7.5)
    assert found.model == tmp_path / "model.safetensors"
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["rounds"], summary["accuracy"], summary["best_accuracy"]) == (3, 0.5, 0.875)
    assert (summary["sent_bytes"], summary["received_bytes"]) == (90, 30)
    assert summary["recipe"] == SIMULATION.to_document()
    assert summary["split"] == {"sha256": "5f", "sizes": [60, 40]}
    assert summary["environments"] == [{"processor": "old"}, {"processor": "new"}]


def test_parties_alone_are_summarised_by_mean_and_deviation(tmp_path: Path) -> None:
    found = finish(result(tmp_path, parties=True))
    assert (found.score, found.spread, found.seconds, found.model) == (0.5, 0.25, 20.0, None)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["parties"], summary["accuracy"], summary["accuracy_sd"]) == (2, 0.5, 0.25)


def test_a_finished_simulation_is_found_and_takes_the_recipes_present_name(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    write_rows(SIMULATION, layout, ROUNDS)
    assert finished(SIMULATION, layout) is None, "without a summary it has not finished"
    finish(result(tmp_path))
    renamed = make_simulation(name="other", dataset="digits", method="moon", seed=3)
    found = finished(renamed, layout)
    assert found is not None
    assert found.rounds == ROUNDS
    assert {json.loads(line)["name"] for line in layout.results.read_text().splitlines()} == {"other"}
