"""Results of a simulation: a line of JSON for each round or party, a summary, and the same as values."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from moonfed.bundle.manifest import ACCURACY, Metric
from moonfed.control.privacy import PrivacySpent
from moonfed.errors import Corrupt
from moonfed.experiments.fleet.data import Counts, read_counts, read_split
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.simulation import Simulation
from moonfed.files import write_durably
from moonfed.format_version import known_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRound:
    """One round's global model on the whole test set, scored by `metric`; `seconds`: the round's wall time.

    `other_scores`: the task's other metrics, by name.
    `party_seconds`: the total time of its parties' training. `sent_bytes` to and `received_bytes` from all
    its parties together, as encoded on the wire. `metrics`: means of the cohort's metrics of training, such as
    `train_loss` or FedProx's `inexactness`. `environment`: the hardware and software that it was trained with.
    """

    round: int
    score: float
    loss: float
    seconds: float
    metrics: Mapping[str, float]
    party_seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric = ACCURACY
    other_scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def traffic(self) -> int:
        """Bytes in both directions."""
        return self.sent_bytes + self.received_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyResult:
    """One party's own model, trained alone, on the whole test set; `seconds` of its training."""

    party: str
    score: float
    loss: float
    seconds: float
    environment: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric = ACCURACY
    other_scores: Mapping[str, float] = field(default_factory=dict)


Row = TypeVar("Row", SimulatedRound, PartyResult)


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
        """Read the number of samples by party and class, or another group."""
        return read_counts(self.layout.data)

    @property
    def metric(self) -> Metric:
        """The metric that models are scored by."""
        return self.rounds[0].metric if self.rounds else self.parties[0].metric

    @property
    def score(self) -> float:
        """The last global model's, or the mean of the parties'."""
        if self.rounds:
            return self.rounds[-1].score
        return statistics.fmean(party.score for party in self.parties)

    @property
    def spread(self) -> float:
        """Standard deviation of the parties' scores; 0 if there is one model for all."""
        return statistics.pstdev(party.score for party in self.parties) if self.parties else 0.0

    @property
    def seconds(self) -> float:
        """All rounds' wall time, or all parties' working time."""
        return sum(entry.seconds for entry in self.rounds) + sum(entry.seconds for entry in self.parties)


def write_rows(simulation: Simulation, layout: Layout, results: Sequence[SimulatedRound | PartyResult]) -> None:
    """Replace results.jsonl: after a crash it holds the old lines or the new ones."""
    common = _description(simulation) | {"split_sha256": read_split(layout.split).sha256}
    lines = [json.dumps(common | _row(result)) + "\n" for result in results]
    write_durably(layout.results, "".join(lines).encode())


def _row(result: SimulatedRound | PartyResult) -> dict[str, Any]:
    """Return a result as JSON values, its score by the metric's name."""
    row = {result.metric.name if key == "score" else key: value for key, value in asdict(result).items()}
    if not result.other_scores:
        del row["other_scores"]
    return row


def read_metric(document: Mapping[str, Any]) -> Metric:
    """Return the metric of a line or a summary; raise KeyError or TypeError."""
    return Metric(**known_fields(Metric, document["metric"]))


def _description(simulation: Simulation) -> dict[str, Any]:
    """Return the whole recipe, and the keys that tables are grouped by."""
    return {
        "name": simulation.name,
        "dataset": simulation.dataset,
        "method": simulation.method,
        "seed": simulation.run.seed,
        "recipe": simulation.to_document(),
    }


def read_rows(layout: Layout) -> tuple[tuple[SimulatedRound, ...], tuple[PartyResult, ...]]:
    """Read results.jsonl; nothing if there is none."""
    if not layout.results.is_file():
        return (), ()
    try:
        rows = [json.loads(line) for line in layout.results.read_text().splitlines()]
        parties = tuple(_read(PartyResult, row) for row in rows if "party" in row)
        return tuple(_read(SimulatedRound, row) for row in rows if "round" in row), parties
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{layout.results} cannot be read; name a new output directory") from error


def _read(kind: type[Row], row: Mapping[str, Any]) -> Row:
    metric = read_metric(row)
    known = {**row, "score": row[metric.name], "metric": metric, "other_scores": row.get("other_scores", {})}
    values = {item.name: known[item.name] for item in fields(kind)}
    for name in ("score", "loss", "seconds"):
        values[name] = float(values[name])
    return kind(**values)


def finish(result: SimulationResult, privacy: PrivacySpent | None = None) -> SimulationResult:
    """Write the summary, which marks the simulation as finished. `privacy`: what the run has spent, if it has any."""
    simulation = result.simulation
    metric = result.metric
    summary = _description(simulation) | {metric.name: result.score, "seconds": round(result.seconds, 3)}
    if result.parties:
        summary |= {"parties": len(result.parties), f"{metric.name}_sd": result.spread}
    else:
        summary |= {
            "rounds": len(result.rounds),
            **result.rounds[-1].other_scores,
            f"best_{metric.name}": (max if metric.maximise else min)(entry.score for entry in result.rounds),
            "sent_bytes": sum(entry.sent_bytes for entry in result.rounds),
            "received_bytes": sum(entry.received_bytes for entry in result.rounds),
        }
    summary["metric"] = asdict(metric)
    summary["split"] = asdict(read_split(result.layout.split))
    summary["environments"] = _distinct([entry.environment for entry in result.rounds or result.parties])
    if privacy:
        summary["privacy"] = asdict(privacy)
    write_durably(result.layout.summary, json.dumps(summary, indent=1).encode() + b"\n")
    return result


def _distinct(environments: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the environments in order of their first appearance."""
    return [found for number, found in enumerate(environments) if found not in environments[:number]]


def finished(simulation: Simulation, layout: Layout) -> SimulationResult | None:
    """Return the result of a simulation that has finished here; the directory must be its own."""
    if not layout.summary.is_file():
        return None
    rounds, parties = read_rows(layout)
    result = SimulationResult(simulation=simulation, output=layout.root, rounds=rounds, parties=parties)
    write_rows(simulation, layout, (*rounds, *parties))  # perhaps under another name
    return result
