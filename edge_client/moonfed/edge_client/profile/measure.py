"""`moonfed-client profile BUNDLE`: measures a bundle's time and memory on this device, and checks that it fits.

The samples are random: neither time nor memory depends on their content. A bundle that does not fit is not measured.
Legend: N samples, B a batch's samples, E epochs, k previous models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from moonfed.available_memory import Available, available_memory
from moonfed.bundle.files import Bundle, read_bundle
from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_NAMES, WEIGHTS_FILE, Manifest, parts_of
from moonfed.edge_client.agent.compatibility import describe_platform, plan_interfaces, require_runnable
from moonfed.edge_client.data.class_counts import count_samples
from moonfed.edge_client.profile.task import MeasureSettings, Times
from moonfed.edge_client.resources import trainer_runtime
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.edge_client.resources.memory_estimate import Need, require_fits, round_bytes, samples_room, stay_on_disk
from moonfed.edge_client.settings import require_choices
from moonfed.edge_client.state.trust import bundle_check
from moonfed.edge_client.training.rng import steps_per_epoch
from moonfed.errors import InvalidInput, MoonfedError, TrainingFailed
from moonfed.plan.interface import default_memory_format
from moonfed.plan.selection import AUTO, parse_format
from moonfed.sandbox.child_process import SILENCE_SECONDS
from moonfed.sandbox.messages import encode
from moonfed.sandbox.policy import Level, require_level
from moonfed.sandbox.sandboxed_process import NAME, JobDirectory, Sandbox, sandboxed_process
from moonfed.validate import require_whole

TASK = "moonfed.edge_client.profile.task"
SAMPLES = 5000
BATCHES = 4  # of samples that the measured steps cycle through


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """Options of `moonfed-client profile`; InvalidInput names a wrong one."""

    bundle: Path
    accelerator: str = "cpu"
    threads: int | None = None  # torch's threads; None: torch chooses
    precision: str = "float32"
    memory_format: str | None = None
    plan_format: str = AUTO
    samples: int | None = None  # of the round that is estimated; None: those of `data`, or SAMPLES
    data: str = ""  # see moonfed.data.formats; samples are read only to count them
    target: str = ""  # column of a table with the labels; empty: the bundle's
    ignored_folders: Sequence[str] = ()  # of a folder of images
    batch_size: int | None = None  # None: the bundle's, as for the epochs
    epochs: int | None = None
    max_memory: int | None = None  # bytes
    sandbox: Level = "strict"  # isolation of the process that loads the plan
    trust: Path | None = None  # the engineer's trust file; None: the device's, or this user's
    state: Path = Path("moonfed-device")  # the state directory, if this machine is a device

    def __post_init__(self) -> None:
        require_choices(self.accelerator, self.precision, self.memory_format)
        require_level(self.sandbox)
        parse_format(self.plan_format)
        for option in ("threads", "samples", "batch_size", "epochs"):
            value = getattr(self, option)
            if value is not None:
                require_whole(option.replace("_", "-"), value, 1)
        if self.data and self.samples is not None:
            raise InvalidInput(
                field="samples",
                value=self.samples,
                rest="; with --data, whose samples are counted, it must not be given",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The peak memory of the process while measuring, in bytes, and the estimate for the same number of samples."""

    host: int
    estimated_host: int
    accelerator: int | None  # None on the CPU
    estimated_accelerator: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Options, findings and measurements of a profile."""

    manifest: Manifest
    platform: dict[str, str]
    samples: int
    batch_size: int
    epochs: int
    precision: str
    memory_format: str
    need: Need | None = None  # of the requested round; None if unknown
    available: Available | None = None
    limit: int | None = None
    times: Times | None = None  # None: the device cannot participate, so nothing was measured
    peak: Peak | None = None
    rejection: MoonfedError | None = None  # why the device cannot participate

    @property
    def steps(self) -> int:
        """Steps in the requested round."""
        return self.epochs * steps_per_epoch(self.samples, self.batch_size)

    @property
    def round_seconds(self) -> float | None:
        """Seconds of a round with all previous models available: steps, references, one evaluation of all samples."""
        if self.times is None:
            return None
        batches = -(-self.samples // self.batch_size)
        evaluation = batches * self.times.evaluation
        if self.times.references is None or self.times.step_with_references is None:
            return self.steps * self.times.step + evaluation
        copies = self.manifest.training.views if self.manifest.augmentation != "none" else 1
        if not 0 < copies < self.epochs:  # no epoch reuses another's augmented copy
            return self.steps * self.times.step_with_references + evaluation
        return self.steps * self.times.step + copies * batches * self.times.references + evaluation


def profile(
    settings: ProfileSettings,
    report: Callable[[str], None] = lambda _: None,
    silence_seconds: float = SILENCE_SECONDS,
) -> Profile:
    """Measure the bundle, or return the reason why the device cannot participate.

    `report` is called with each measurement as it starts; `silence_seconds`: for each of them. Raises NotFound,
    InvalidInput or Corrupt for a bad bundle, UntrustedBundle for one that is not signed by a trusted key.
    """
    bundle = read_bundle(settings.bundle, bundle_check(settings.trust, settings.state))
    found = _requested(settings, bundle.manifest)
    try:
        interface = require_runnable(bundle.manifest, plan_interfaces(settings.plan_format))
        require_accelerator(settings.accelerator)
        if settings.data:
            counts = count_samples(
                settings.data, bundle.manifest, target=settings.target, ignored_folders=settings.ignored_folders
            )
            found = replace(found, samples=counts.total)
        require_enough_samples(bundle.manifest, found.samples)
        runtime, available = trainer_runtime.trainer_memory(), available_memory(settings.accelerator)
        room = samples_room(_need(found, settings, found.batch_size, runtime), available.host, settings.max_memory)
        need = _need(found, settings, found.samples, runtime, room)
        found = replace(found, need=need.placed(available), available=available)
        require_fits(need, available, settings.max_memory)
        measured = min(found.samples, BATCHES * found.batch_size)
        plan = PLAN_NAMES[interface]
        times, peaks = _measured(bundle, plan, settings, measured, found.batch_size, report, silence_seconds)
    except MoonfedError as rejection:
        return replace(found, rejection=rejection)
    return replace(found, times=times, peak=_peak(peaks, _need(found, settings, measured, peaks["own"])))


def _measured(
    bundle: Bundle,
    plan: str,
    settings: ProfileSettings,
    samples: int,
    batch_size: int,
    report: Callable[[str], None],
    silence_seconds: float,
) -> tuple[Times, dict[str, Any]]:
    """Measure the plan in the file of that name, in the sandbox; return the times, and the process's memory."""

    def on_progress(fields: dict[str, Any] | None) -> bool:
        if fields is not None:
            report(str(fields.get("text")))
        return True

    with TemporaryDirectory(prefix="moonfed-") as root:
        directory = JobDirectory(Path(root), settings.state)
        directory.clear()
        for name in (MANIFEST_FILE, plan, WEIGHTS_FILE, *parts_of(bundle.manifest)):
            (directory.input / name).write_bytes(bundle.contents[name])
        wanted = MeasureSettings(
            directory=str(directory.input),
            plan=plan,
            accelerator=settings.accelerator,
            threads=settings.threads,
            precision=settings.precision,
            memory_format=settings.memory_format,
            samples=samples,
            batch_size=batch_size,
        )
        sandbox = Sandbox(level=settings.sandbox, accelerator=settings.accelerator, max_memory=settings.max_memory)
        child = sandboxed_process(TASK, asdict(wanted), sandbox, directory, silence_seconds=silence_seconds)
        try:
            fields = child.answer(encode("profile"), "profiled", on_progress)
        finally:
            child.end()
    try:
        assert fields is not None  # noqa: S101 - nobody stops it
        return Times(**fields.pop("times")), fields
    except (LookupError, TypeError) as error:
        raise TrainingFailed(f"{NAME} sent invalid results") from error


def _requested(settings: ProfileSettings, manifest: Manifest) -> Profile:
    shapes = [spec.shape for spec in manifest.parameters]
    fastest = default_memory_format(settings.accelerator, settings.precision, shapes)
    return Profile(
        manifest=manifest,
        platform=describe_platform(settings.accelerator, settings.threads or torch.get_num_threads()),
        samples=SAMPLES if settings.samples is None else settings.samples,
        batch_size=settings.batch_size or manifest.training.batch_size,
        epochs=settings.epochs or manifest.training.epochs,
        precision=settings.precision,
        memory_format=settings.memory_format or fastest,
        limit=settings.max_memory,
    )


def _need(found: Profile, settings: ProfileSettings, samples: int, runtime: int, room: int | None = None) -> Need:
    return round_bytes(
        found.manifest,
        samples=samples,
        batch_size=found.batch_size,
        epochs=found.epochs,
        views=found.manifest.training.views,
        precision=settings.precision,
        accelerator=settings.accelerator,
        runtime=runtime,
        mapped=stay_on_disk(found.manifest, samples, room),
    )


def require_enough_samples(manifest: Manifest, samples: int) -> None:
    """Raise InvalidInput if the plan needs more samples."""
    least = max(1, manifest.plan.minimum_samples)
    if samples < least:
        raise InvalidInput(field="samples", value=samples, rest=f"; the plan needs at least {least}")


def _peak(peaks: dict[str, Any], need: Need) -> Peak:
    return Peak(
        host=peaks["host"],
        estimated_host=need.host_bytes,
        accelerator=peaks["accelerator"],
        estimated_accelerator=None if peaks["accelerator"] is None else need.accelerator_bytes,
    )
