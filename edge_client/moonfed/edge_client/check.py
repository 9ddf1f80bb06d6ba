"""`moonfed-client check BUNDLE --data …`: the check of a run that a device makes, by hand and without a coordinator."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moonfed.available_memory import Available, host_available, memory_capacity
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import Manifest
from moonfed.command_line.programs import print_json
from moonfed.edge_client.agent.compatibility import plan_interfaces, require_runnable
from moonfed.edge_client.data.class_counts import ClassCounts, count_samples
from moonfed.edge_client.requirements import require_samples
from moonfed.edge_client.resources import trainer_runtime
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.edge_client.resources.memory_estimate import Need, require_fits, round_bytes, samples_room, stay_on_disk
from moonfed.edge_client.settings import require_choices, require_holdout
from moonfed.edge_client.state.trust import bundle_check
from moonfed.errors import MoonfedError
from moonfed.plan.selection import AUTO, parse_format
from moonfed.sizes import human
from moonfed.version import PLAN_INTERFACE

CLASSES_SHOWN = 20  # --json has all


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Options of `moonfed-client check`; InvalidInput names a wrong one."""

    bundle: Path
    data: str
    target: str = ""  # column of a table with the labels; empty: the bundle's
    ignored_folders: Sequence[str] = ()  # of a folder of images
    holdout: float = 0.0
    accelerator: str = "cpu"
    precision: str = "float32"
    plan_format: str = AUTO
    max_memory: int | None = None  # bytes
    trust: Path | None = None  # the engineer's trust file; None: the device's, or this user's
    state: Path = Path("moonfed-device")  # the state directory, if this machine is a device

    def __post_init__(self) -> None:
        require_choices(self.accelerator, self.precision, None)
        parse_format(self.plan_format)
        require_holdout(self.holdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Findings up to the first reason why the device is ineligible, if there is one."""

    manifest: Manifest
    data: str
    samples: ClassCounts | None = None
    need: Need | None = None
    capacity: Available | None = None
    limit: int | None = None
    rejection: MoonfedError | None = None


def check_bundle(settings: CheckSettings) -> CheckResult:
    """Check whether this device is eligible for a bundle's runs.

    Raises NotFound, InvalidInput or Corrupt for a bad bundle, UntrustedBundle for one that is not signed by a trusted
    key.
    """
    manifest = read_bundle(settings.bundle, bundle_check(settings.trust, settings.state)).manifest
    found = CheckResult(manifest=manifest, data=settings.data, limit=settings.max_memory)
    try:
        interface = require_runnable(manifest, plan_interfaces(settings.plan_format))
        if interface == PLAN_INTERFACE:
            _require_operators(manifest)
        found = replace(found, samples=_counted(settings, manifest))
        return _with_memory(found, settings)
    except MoonfedError as rejection:
        return replace(found, rejection=rejection)


def _require_operators(manifest: Manifest) -> None:
    from moonfed.plan.inspection.torch_registry import require_operators  # torch, after its version was checked

    require_operators(manifest.plan.operators)


def _counted(settings: CheckSettings, manifest: Manifest) -> ClassCounts:
    return count_samples(
        settings.data, manifest, settings.holdout, settings.target, ignored_folders=settings.ignored_folders
    )


def _with_memory(found: CheckResult, settings: CheckSettings) -> CheckResult:
    manifest, samples = found.manifest, found.samples
    assert samples is not None  # noqa: S101 - just counted
    require_accelerator(settings.accelerator)
    capacity = memory_capacity(settings.accelerator)
    runtime, training = trainer_runtime.trainer_memory(), manifest.training

    def need_of(trained: int, held_out: int, room: int | None) -> Need:
        return round_bytes(
            manifest,
            samples=trained,
            held_out=held_out,
            batch_size=training.batch_size,
            epochs=training.epochs,
            views=training.views,
            precision=settings.precision,
            accelerator=settings.accelerator,
            runtime=runtime,
            mapped=stay_on_disk(manifest, trained + held_out, room),
        )

    room = samples_room(need_of(training.batch_size, 0, None), host_available(), settings.max_memory)
    need = need_of(samples.trained, samples.held_out, room)
    found = replace(found, need=need.placed(capacity), capacity=capacity)
    try:
        require_samples(manifest, samples.trained)
        require_fits(need, capacity, settings.max_memory)
    except MoonfedError as rejection:
        return replace(found, rejection=rejection)
    return found


def print_check(found: CheckResult, *, as_json: bool) -> None:
    """Print the result; raise the reason if the device is ineligible."""
    if as_json:
        print_json(check_document(found))
    else:
        print("\n".join(f"{name:<9} {value}" for name, value in _lines(found)))
    if found.rejection is not None:
        sys.stdout.flush()
        raise found.rejection


def check_document(found: CheckResult) -> dict[str, Any]:
    """Return JSON values, in bytes; null for what was not found out."""
    samples = found.samples
    need = found.need
    capacity = found.capacity
    return {
        "eligible": found.rejection is None,
        "reason": str(found.rejection) if found.rejection else "",
        "bundle": {"name": found.manifest.name, "model": found.manifest.model, "method": found.manifest.method},
        "task": found.manifest.task.name,
        "samples": samples.total if samples else None,
        "held_out": samples.held_out if samples else None,
        "classes": dict(zip(samples.names, samples.counts, strict=True)) if samples else None,
        "memory": {
            "needed": need.total if need else None,
            "host": capacity.host if capacity else None,
            "accelerator": capacity.accelerator if capacity else None,
            "limit": found.limit,
        },
    }


def _lines(found: CheckResult) -> Iterator[tuple[str, str]]:
    manifest = found.manifest
    yield "bundle", f"{manifest.name}: {manifest.model}, {manifest.method}"
    yield "task", manifest.task.name
    if samples := found.samples:
        held_out = f", {samples.held_out} held out" if samples.held_out else ""
        if between := samples.total - samples.trained - samples.held_out:
            held_out += f", {between} left out that {'are anomalous' if manifest.target.is_input else 'overlap those'}"
        yield "data", f"{found.data}: {samples.total} samples{held_out}"
        shown = [f"{name}: {count}" for name, count in zip(samples.names, samples.counts, strict=True)]
        more = f" and {len(shown) - CLASSES_SHOWN} more" if len(shown) > CLASSES_SHOWN else ""
        counted = ", ".join(shown[:CLASSES_SHOWN]) + more
        if manifest.target.kind == "mask":
            yield "masks", f"{samples.total}; images with each class: {counted}"
        elif shown:
            yield ("labels" if manifest.target.kind == "labels" else "classes"), counted
        else:
            yield "target", ", ".join(manifest.target.names[:CLASSES_SHOWN]) or manifest.target.describe()
    if found.need and found.capacity:
        sizes = [human(size) for size in (found.capacity.host, found.capacity.accelerator) if size is not None]
        limit = f"; --max-memory {human(found.limit)}" if found.limit is not None else ""
        yield "memory", f"about {human(found.need.total)} needed; this device has {' and '.join(sizes)}{limit}"
    yield "eligible", "no" if found.rejection else "yes"
