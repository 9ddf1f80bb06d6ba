"""The coordinator alone: rounds without training, with real connections, certificates, hashes and fsync."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.coordinator_process import (
    CoordinatorProcess,
    SyntheticModel,
    baseline,
    baseline_seconds,
    connected,
    served,
)
from benchmarks.load.synthetic_devices import FleetSpec
from benchmarks.report import Figure, Tables, progress
from benchmarks.restart import measure_restart
from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.files import Bundle, write_bundle
from moonfed.bundle.manifest import WEIGHTS_FILE

DISTINCT_UPDATES = 10  # the devices send them in turn
FEW_CONNECTED = 10  # the memory per connection is the difference between few and many of them


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorScale:
    """Size of the benchmark."""

    model: SyntheticModel = SyntheticModel(megabytes=44.8)  # noqa: RUF009 - frozen
    small: SyntheticModel = SyntheticModel(megabytes=0.37)  # noqa: RUF009
    devices: int = 10
    many: int = 100
    fleet: int = 1000
    turns: int = 9  # disk latency varies
    runs: int = 100
    rounds: int = 10_000


def measure_coordinator(scale: CoordinatorScale = CoordinatorScale()) -> Tables:
    figures, peak = _round(scale)
    yield figures
    yield _many(scale, peak)
    yield _fleet(scale)
    yield [measure_restart(scale.runs, scale.rounds)]


def _round(scale: CoordinatorScale) -> tuple[list[Figure], float]:
    """Alternate rounds of the coordinator with rounds of the baseline script; also return the coordinator's peak MB."""
    model, devices = scale.model, scale.devices
    runs = f"{scale.turns} runs of two rounds"
    progress(f"coordinator: {devices} devices, {model.megabytes:g} MB, {runs}, alternating with a bare script")
    with _coordinator(model, devices) as (directory, coordinator, bundle, spec):
        weights, spool = directory / "bundle" / WEIGHTS_FILE, directory / "bare"
        with (
            connected(spec, coordinator.address),
            baseline(directory / "state" / "authority", weights, spool, devices) as (server, address),
            connected(spec, address),
        ):
            times = [
                (*coordinator.round_seconds(bundle, f"run-{turn}", devices, rounds=2), baseline_seconds(server))
                for turn in range(scale.turns)
            ]
        peak = coordinator.megabytes("VmHWM")
    first, ours, least = (statistics.median(side) for side in zip(*times, strict=True))
    what = f"{devices} devices, {model.megabytes:g} MB down and up"
    return [
        Figure(name=f"a round without training, {what}", value=ours, unit="s", at_most=4.5),
        Figure(name=f"the first round of a run, {what}", value=first, unit="s"),
        Figure(name="a bare script with the same TLS, hashing and fsync", value=least, unit="s"),
        Figure(name="round / bare script", value=ours / least, unit="times", at_most=1.5),
        _peak(scale, devices, peak),
    ], peak


def _many(scale: CoordinatorScale, few: float) -> list[Figure]:
    """Measure the same round with more devices; `few` is the peak in MB with the usual number."""
    progress(f"coordinator: {scale.many} devices, {scale.model.megabytes:g} MB, a round")
    with (
        _coordinator(scale.model, scale.many) as (_, coordinator, bundle, spec),
        connected(spec, coordinator.address),
    ):
        coordinator.round_seconds(bundle, "run", scale.many)
        peak = coordinator.megabytes("VmHWM")
    more = f"{scale.many} / {scale.devices} devices"
    return [_peak(scale, scale.many, peak), Figure(name=f"peak memory, {more}", value=peak / few, unit="times")]


def _peak(scale: CoordinatorScale, devices: int, megabytes: float) -> Figure:
    limit = 150 + 3 * scale.model.megabytes
    return Figure(name=f"the coordinator's peak memory, {devices} devices", value=megabytes, unit="MB", at_most=limit)


def _fleet(scale: CoordinatorScale) -> list[Figure]:
    """Measure a round of a whole fleet, and the memory of an idle device."""
    devices, model = scale.fleet, scale.small
    progress(f"coordinator: {devices} devices online, {model.megabytes:g} MB, {scale.turns} rounds")
    with _coordinator(model, devices) as (directory, coordinator, bundle, spec):
        with connected(spec.of(FEW_CONNECTED, directory / "few"), coordinator.address):
            before = coordinator.megabytes("VmRSS")
        with connected(spec, coordinator.address):
            idle = (coordinator.megabytes("VmRSS") - before) * 1000 / (devices - FEW_CONNECTED)
            runs = [coordinator.round_seconds(bundle, f"run-{turn}", devices) for turn in range(scale.turns)]
    what = f"{devices} devices, {model.megabytes:g} MB down and up"
    return [
        Figure(
            name=f"the first round of a run, {what}",
            value=statistics.median(seconds for (seconds,) in runs),
            unit="s",
            at_most=10,
        ),
        Figure(name="memory for each idle device", value=idle, unit="kB", at_most=150),
    ]


@contextmanager
def _coordinator(model: SyntheticModel, devices: int) -> Iterator[tuple[Path, CoordinatorProcess, Bundle, FleetSpec]]:
    """Start a coordinator that holds a bundle of the model; yield it with the fleet's specification."""
    directory = Path(tempfile.mkdtemp(prefix="moonfed-bench-"))
    try:
        updates = model.updates(directory / "updates", min(devices, DISTINCT_UPDATES))
        names = tuple(f"device-{number:04}" for number in range(devices))
        with served(directory / "state", directory / "logs") as coordinator:
            bundle = upload(coordinator, model, directory)
            token = coordinator.token(2 * devices)
            spec = FleetSpec(names=names, directory=str(directory / "devices"), updates=updates, token=token)
            yield directory, coordinator, bundle, spec
    finally:
        shutil.rmtree(directory)


def upload(coordinator: CoordinatorProcess, model: SyntheticModel, directory: Path) -> Bundle:
    """Upload a bundle of that model to the coordinator; return the bundle."""
    bundle = model.bundle(directory)
    write_bundle(directory / "bundle", bundle)
    files = {ref_of_bytes(content): directory / "bundle" / name for name, content in bundle.files.items()}
    coordinator.client.connection.upload(files)
    return bundle
