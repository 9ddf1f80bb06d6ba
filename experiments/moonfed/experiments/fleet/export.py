"""Export of a finished simulation to the trackers of `run export`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from moonfed.coordinator.trackers.snapshot import DevicePoint, Point, RunSnapshot
from moonfed.coordinator.trackers.tracker import TRACKERS, TrackerOptions, open_tracker
from moonfed.errors import InvalidInput
from moonfed.experiments.fleet.results import PartyResult, SimulatedRound, SimulationResult
from moonfed.registry import Value

IDENTITY = 16  # characters


def read_exports(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Read `TRACKER=TARGET`; InvalidInput unless there is such a tracker, and a target."""
    found = []
    for text in texts:
        kind, _, target = text.partition("=")
        if kind not in TRACKERS or not target:
            known = ", ".join(f"{name}={entry.target}" for name, entry in TRACKERS.items())
            raise InvalidInput(field="export", value=text, allowed=f"one of {known}")
        found.append((kind, target))
    return found


def export_result(result: SimulationResult, kind: str, target: str, name: str) -> str:
    """Write a simulation to a tracker, and return its place; writing it again changes nothing."""
    snapshot = snapshot_of(result, name)
    options = TrackerOptions(target=target, name=name, identity=snapshot.identity, devices=bool(snapshot.device_points))
    with open_tracker(kind, options) as tracker:
        tracker.write(snapshot)
        return tracker.place


def snapshot_of(result: SimulationResult, name: str) -> RunSnapshot:
    """Return a simulation as trackers receive a run; parties alone are series of devices in round 1."""
    layout, simulation = result.layout, result.simulation
    started = layout.recipe.stat().st_mtime
    files = {"bundle/manifest.json": layout.manifest, "summary.json": layout.summary, "recipe.toml": layout.run_recipe}
    return RunSnapshot(
        run=name,
        identity=simulation.digest[:IDENTITY],
        status="finished",
        created=started,
        parameters=dict(_flat(simulation.to_document())),
        points=tuple(_points(result.rounds, started)),
        metric=result.metric.name,
        device_points=tuple(
            DevicePoint(1, party.party, name, value, started)
            for party in result.parties
            for name, value in _scores(party).items()
        ),
        pictures={layout.picture.stem: layout.picture} if layout.picture.is_file() else {},
        files={name: path for name, path in files.items() if path.is_file()},
    )


def _points(rounds: Sequence[SimulatedRound], started: float) -> Iterator[Point]:
    time = started
    for entry in rounds:
        time += entry.seconds
        measured = {
            "round_seconds": entry.seconds,
            "party_seconds": entry.party_seconds,
            "sent_bytes": entry.sent_bytes,
            "received_bytes": entry.received_bytes,
        }
        for name, value in {**_scores(entry), **entry.metrics, **measured}.items():
            yield Point(entry.round, name, value, time)


def _scores(entry: SimulatedRound | PartyResult) -> dict[str, float]:
    return {entry.metric.name: entry.score, "loss": entry.loss, **entry.other_scores}


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Value]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, bool | int | float | str) else str(value)


def target_of(kind: str, target: str, place: str) -> str:
    """Return where one simulation of a sweep goes: tables of several must not replace one another."""
    return str(Path(target) / place) if TRACKERS[kind].table else target
