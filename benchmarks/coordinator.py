"""The coordinator alone: rounds in which nobody trains, with real connections, certificates, hashes and fsync."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.devices import Plan
from benchmarks.load.served import Model, Served, attending, bare, bare_seconds, served
from benchmarks.report import Figure, say
from benchmarks.restart import measure_restart
from moonfed.bundle import Bundle, write_bundle
from moonfed.manifest import MANIFEST_FILE, WEIGHTS_FILE

DIFFERENT = 10  # updates; the devices send them in turn
FEW_ATTENDING = 10  # what a connection weighs is seen best between few and many of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How large the benchmark is."""

    model: Model = Model(megabytes=44.8)  # noqa: RUF009 - frozen
    small: Model = Model(megabytes=0.37)  # noqa: RUF009
    devices: int = 10
    many: int = 100
    fleet: int = 1000
    turns: int = 9  # a disk is restless
    runs: int = 100
    rounds: int = 10_000


def measure_coordinator(extent: Extent = Extent()) -> list[Figure]:
    figures, few = _round(extent)
    return [*figures, *_many(extent, few), *_fleet(extent), measure_restart(extent.runs, extent.rounds)]


def _round(extent: Extent) -> tuple[list[Figure], float]:
    """Rounds at the coordinator and at the bare server in turn; the coordinator's peak as well."""
    model, devices = extent.model, extent.devices
    say(f"coordinator: {devices} devices, {model.megabytes:g} MB, {extent.turns} rounds beside a bare script's")
    with _coordinator(model, devices) as (directory, coordinator, bundle, plan):
        weights, spool = directory / "bundle" / WEIGHTS_FILE, directory / "bare"
        with (
            attending(plan, coordinator.address),
            bare(directory / "state" / "authority", weights, spool, devices) as (server, address),
            attending(plan, address),
        ):
            times = [
                (coordinator.round_seconds(bundle, f"run-{turn}", devices), bare_seconds(server))
                for turn in range(extent.turns)
            ]
        peak = coordinator.megabytes("VmHWM")
    ours, least = (statistics.median(side) for side in zip(*times, strict=True))
    what = f"{devices} devices, {model.megabytes:g} MB down and up"
    return [
        Figure(name=f"a round without training, {what}", value=ours, unit="s", at_most=4.5),
        Figure(name="a bare script with the same TLS, hashing and fsync", value=least, unit="s"),
        Figure(name="round / bare script", value=ours / least, unit="times", at_most=1.5),
        _peak(extent, devices, peak),
    ], peak


def _many(extent: Extent, few: float) -> list[Figure]:
    """The same round with more devices."""
    say(f"coordinator: {extent.many} devices, {extent.model.megabytes:g} MB, a round")
    with (
        _coordinator(extent.model, extent.many) as (_, coordinator, bundle, plan),
        attending(plan, coordinator.address),
    ):
        coordinator.round_seconds(bundle, "run", extent.many)
        peak = coordinator.megabytes("VmHWM")
    more = f"{extent.many} / {extent.devices} devices"
    return [_peak(extent, extent.many, peak), Figure(name=f"peak memory, {more}", value=peak / few, unit="times")]


def _peak(extent: Extent, devices: int, megabytes: float) -> Figure:
    limit = 150 + 3 * extent.model.megabytes
    return Figure(name=f"the coordinator's peak memory, {devices} devices", value=megabytes, unit="MB", at_most=limit)


def _fleet(extent: Extent) -> list[Figure]:
    """A round in which a whole fleet is at once, and what one that waits costs."""
    devices, model = extent.fleet, extent.small
    say(f"coordinator: {devices} devices attend, {model.megabytes:g} MB, {extent.turns} rounds")
    with _coordinator(model, devices) as (directory, coordinator, bundle, plan):
        with attending(plan.of(FEW_ATTENDING, directory / "few"), coordinator.address):
            before = coordinator.megabytes("VmRSS")
        with attending(plan, coordinator.address):
            idle = (coordinator.megabytes("VmRSS") - before) * 1000 / (devices - FEW_ATTENDING)
            seconds = [coordinator.round_seconds(bundle, f"run-{turn}", devices) for turn in range(extent.turns)]
    what = f"{devices} devices, {model.megabytes:g} MB down and up"
    return [
        Figure(name=f"a round without training, {what}", value=statistics.median(seconds), unit="s", at_most=10),
        Figure(name="memory for each idle device", value=idle, unit="kB", at_most=150),
    ]


@contextmanager
def _coordinator(model: Model, devices: int) -> Iterator[tuple[Path, Served, Bundle, Plan]]:
    """A coordinator that has a bundle of the model, and the devices' plan."""
    directory = Path(tempfile.mkdtemp(prefix="moonfed-bench-"))
    try:
        updates = model.updates(directory / "updates", min(devices, DIFFERENT))
        names = tuple(f"device-{number:04}" for number in range(devices))
        with served(directory / "state", directory / "logs") as coordinator:
            bundle = upload(coordinator, model, directory)
            token = coordinator.token(2 * devices)
            plan = Plan(names=names, directory=str(directory / "devices"), updates=updates, token=token)
            yield directory, coordinator, bundle, plan
    finally:
        shutil.rmtree(directory)


def upload(coordinator: Served, model: Model, directory: Path) -> Bundle:
    """A bundle of that model, which the coordinator then holds."""
    bundle = model.bundle(directory)
    write_bundle(directory / "bundle", bundle)
    files = {ref: directory / "bundle" / name for name, ref in bundle.manifest.files.items()}
    coordinator.console.upload({**files, bundle.ref: directory / "bundle" / MANIFEST_FILE})
    return bundle
