"""The file of metrics that a device writes for node_exporter's textfile collector: its name, and its text.

The text is Prometheus' exposition format, written here because a device has no package for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from moonfed.edge_client.resources.board_sensors import Reading
from moonfed.errors import InvalidInput, NotFound

SUFFIX = ".prom"  # of the files that node_exporter reads
RoundOutcome = Literal["counted", "late", "rejected", "declined", "dropped"]
OUTCOMES: tuple[RoundOutcome, ...] = ("counted", "late", "rejected", "declined", "dropped")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRound:
    """The latest round that counted this device's update."""

    round: int
    seconds: float  # from the assignment to the receipt
    loss: float | None  # of the training
    ended: float  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """Content of the file."""

    connected: bool
    written: float  # seconds since the epoch
    rounds: Mapping[RoundOutcome, int]
    last: LastRound | None = None
    temperatures: Sequence[Reading] = ()
    powers: Sequence[Reading] = ()


def require_metrics_file(path: str) -> None:
    """Raise InvalidInput or NotFound unless node_exporter could read a file of that name."""
    if not path.endswith(SUFFIX):
        raise InvalidInput(field="metrics-file", value=path, rest=f"; it must end in {SUFFIX}, such as moonfed{SUFFIX}")
    if not Path(path).parent.is_dir():
        raise NotFound(field="metrics-file", value=path, rest="; its directory does not exist")
    if not os.access(Path(path).parent, os.W_OK):
        raise InvalidInput(field="metrics-file", value=path, allowed="in a directory that this user may write to")


def exposition(state: DeviceState) -> str:
    """Return the metrics as text."""
    rounds = [(f'{{outcome="{outcome}"}}', state.rounds.get(outcome, 0)) for outcome in OUTCOMES]
    lines = [
        *_gauge("connected", "1 while this device is connected to its coordinator", int(state.connected)),
        *_metric("rounds_total", "counter", "Rounds since the start, by what became of this device's update", rounds),
    ]
    if last := state.last:
        lines += _gauge("last_round", "Number of the latest round that counted this device", last.round)
        lines += _gauge(
            "last_round_seconds", "Seconds from the assignment of the latest counted round to its receipt", last.seconds
        )
        lines += _gauge("last_round_timestamp_seconds", "Time of the latest counted round's receipt", last.ended)
        if last.loss is not None:
            lines += _gauge("last_round_loss", "Training loss of the latest counted round", last.loss)
    lines += _sensors("temperature_celsius", "Temperature of a thermal zone", state.temperatures)
    lines += _sensors("power_watts", "Power of a supply rail", state.powers)
    lines += _gauge("metrics_timestamp_seconds", "Time at which this file was written", state.written)
    return "\n".join(lines) + "\n"


def _sensors(name: str, text: str, readings: Sequence[Reading]) -> list[str]:
    samples = [(f'{{name="{_escaped(one.name)}",sensor="{_escaped(one.sensor)}"}}', one.value) for one in readings]
    return _metric(name, "gauge", text, samples) if samples else []


def _gauge(name: str, text: str, value: float) -> list[str]:
    return _metric(name, "gauge", text, [("", value)])


def _metric(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    full = f"moonfed_device_{name}"
    values = (f"{full}{labels} {value:.15g}" for labels, value in samples)
    return [f"# HELP {full} {text}", f"# TYPE {full} {kind}", *values]


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
