"""Results of a simulation: a line of JSON for each round or party, a summary, and the same as values."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from moonfed.errors import Corrupt
from moonfed.experiments.fleet.data import Counts, read_counts
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.simulation import Simulation
from moonfed.files import write_durably


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRound:
    """One round's global model on the whole test set; `seconds`: the round's wall time.

    `party_seconds`: the total time of its parties' training; 0 in older results. `metrics`: means of the cohort's
    metrics of training, such as `train_loss` or FedProx's `inexactness`.
    """

    round: int
    accuracy: float
    loss: float
    seconds: float
    metrics: Mapping[str, float]
    party_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyResult:
    """One party's own model, trained alone, on the whole test set; `seconds` of its training."""

    party: str
    accuracy: float
    loss: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """A finished simulation. With SOLO there are parties, else rounds and the last global model."""

    simulation: Simulation
    output: Path
    rounds: tuple[SimulatedRound, ...] = ()
    parties: tuple[PartyResult, ...] = ()

    @property
    def layout(self) -> Layout:
        """Paths of the output directory."""
        return Layout(self.output)

    @property
    def bundle(self) -> Path:
        """The bundle's directory."""
        return self.layout.bundle

    @property
    def model(self) -> Path | None:
        """The last global model's file."""
        return self.layout.model if self.rounds else None

    @property
    def counts(self) -> Counts:
        """Read the number of samples by party and class."""
        return read_counts(self.layout.data)

    @property
    def accuracy(self) -> float:
        """The last global model's, or the mean of the parties'."""
        if self.rounds:
            return self.rounds[-1].accuracy
        return statistics.fmean(party.accuracy for party in self.parties)

    @property
    def spread(self) -> float:
        """Standard deviation of the parties' accuracies; 0 if there is one model for all."""
        return statistics.pstdev(party.accuracy for party in self.parties) if self.parties else 0.0

    @property
    def seconds(self) -> float:
        """All rounds' wall time, or all parties' working time."""
        return sum(entry.seconds for entry in self.rounds) + sum(entry.seconds for entry in self.parties)


def write_rows(simulation: Simulation, layout: Layout, results: Sequence[SimulatedRound | PartyResult]) -> None:
    """Replace results.jsonl: after a crash it holds the old lines or the new ones."""
    common = {
        "recipe": simulation.name,
        "dataset": simulation.dataset,
        "method": simulation.method,
        "seed": simulation.seed,
    }
    lines = [json.dumps(common | asdict(result)) + "\n" for result in results]
    write_durably(layout.results, "".join(lines).encode())


def read_rows(layout: Layout) -> tuple[tuple[SimulatedRound, ...], tuple[PartyResult, ...]]:
    """Read results.jsonl; nothing if there is none."""
    if not layout.results.is_file():
        return (), ()
    try:
        rows = [json.loads(line) for line in layout.results.read_text().splitlines()]
        parties = tuple(PartyResult(party=row["party"], **_measured(row)) for row in rows if "party" in row)
        return tuple(_round(row) for row in rows if "round" in row), parties
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{layout.results} cannot be read; name a new output directory") from error


def _round(row: Mapping[str, Any]) -> SimulatedRound:
    metrics = {str(name): float(value) for name, value in row["metrics"].items()}
    party_seconds = float(row.get("party_seconds", 0.0))
    return SimulatedRound(round=row["round"], metrics=metrics, party_seconds=party_seconds, **_measured(row))


def _measured(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(row[name]) for name in ("accuracy", "loss", "seconds")}


def finish(result: SimulationResult) -> SimulationResult:
    """Write the summary, which marks the simulation as finished."""
    simulation = result.simulation
    summary = {
        "recipe": simulation.name,
        "dataset": simulation.dataset,
        "method": simulation.method,
        "seed": simulation.seed,
        "accuracy": result.accuracy,
        "seconds": round(result.seconds, 3),
    }
    if result.parties:
        summary |= {"parties": len(result.parties), "accuracy_sd": result.spread}
    else:
        summary |= {"rounds": len(result.rounds), "best_accuracy": max(entry.accuracy for entry in result.rounds)}
    write_durably(result.layout.summary, json.dumps(summary, indent=1).encode() + b"\n")
    return result


def finished(simulation: Simulation, layout: Layout) -> SimulationResult | None:
    """Return the result of a simulation that has finished here; the directory must be its own."""
    if not layout.summary.is_file():
        return None
    rounds, parties = read_rows(layout)
    result = SimulationResult(simulation=simulation, output=layout.root, rounds=rounds, parties=parties)
    write_rows(simulation, layout, (*rounds, *parties))  # perhaps under another name
    return result
