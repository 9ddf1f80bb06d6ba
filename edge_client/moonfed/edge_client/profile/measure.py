"""`moonfed-client profile BUNDLE`: measures a bundle's time and memory on this device, and checks that it fits.

The samples are random: neither time nor memory depends on their content. A bundle that does not fit is not measured.
Legend: N samples, B a batch's samples, E epochs, k previous models.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from moonfed import tensors
from moonfed.bundle import Bundle, read_bundle
from moonfed.edge_client.agent.compatibility import describe_platform, require_runnable
from moonfed.edge_client.resources.available_memory import Available, available_memory, peak_memory, resident_memory
from moonfed.edge_client.resources.memory_estimate import Need, require_fits, round_bytes
from moonfed.edge_client.settings import require_choices
from moonfed.edge_client.training.cuda_graph import CUDA_GRAPHS, launcher, own_stream
from moonfed.edge_client.training.data_placement import Samples
from moonfed.edge_client.training.rng import steps_per_epoch
from moonfed.edge_client.worker.trainer import require_accelerator
from moonfed.errors import InvalidInput, MoonfedError
from moonfed.manifest import PLAN_FILE, WEIGHTS_FILE, Manifest
from moonfed.plan import Plan, default_memory_format, load_plan
from moonfed.validate import require_whole

WARM_UP = 5  # uncounted calls: libraries select kernels, and CUDA graphs are captured
MIN_CALLS, MAX_CALLS, MAX_SECONDS = 5, 100, 3.0  # counted calls of each kind, and their time limit
BATCHES = 4  # of samples that the measured steps cycle through
WORKER_SCRIPT = """\
import moonfed.edge_client.worker.main, moonfed.edge_client.worker.trainer
from moonfed.edge_client.resources.available_memory import resident_memory
print(resident_memory())
"""  # the training worker up to where it measures itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """Options of `moonfed-client profile`; InvalidInput names a wrong one."""

    bundle: Path
    accelerator: str = "cpu"
    threads: int | None = None  # torch's; None: its own choice
    precision: str = "float32"
    memory_format: str | None = None
    samples: int = 5000  # of the round that is estimated
    batch_size: int | None = None  # None: the bundle's, as for the epochs
    epochs: int | None = None
    max_memory: int | None = None  # bytes

    def __post_init__(self) -> None:
        require_choices(self.accelerator, self.precision, self.memory_format)
        for option in ("threads", "samples", "batch_size", "epochs"):
            value = getattr(self, option)
            if value is not None:
                require_whole(option.replace("_", "-"), value, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Median seconds per batch; None where the plan does no such work."""

    step: float  # with references at hand, where the method has any
    step_with_references: float | None  # that the step computes itself
    references: float | None
    evaluation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The peak memory of the process while measuring, in bytes, and the estimate for as many samples."""

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


def profile(settings: ProfileSettings, report: Callable[[str], None] = lambda _: None) -> Profile:
    """Measure the bundle, or return the reason why the device cannot participate.

    `report` is called with each measurement as it starts. Raises NotFound, InvalidInput or Corrupt for a bad bundle.
    """
    own = resident_memory()  # with torch
    bundle = read_bundle(settings.bundle)
    found = _requested(settings, bundle.manifest)
    try:
        require_runnable(bundle.manifest)
        require_accelerator(settings.accelerator)
        require_enough_samples(bundle.manifest, settings.samples)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        need, available = _need(found, settings, found.samples, worker_memory()), available_memory(settings.accelerator)
        found = replace(found, need=need.placed(available), available=available)
        require_fits(need, available, settings.max_memory)
        measured = min(found.samples, BATCHES * found.batch_size)
        times = _measure(bundle, settings, measured, found.batch_size, report)
    except MoonfedError as rejection:
        return replace(found, rejection=rejection)
    return replace(found, times=times, peak=_peak(settings.accelerator, _need(found, settings, measured, own)))


def worker_memory() -> int:
    """Return the bytes that a fresh training worker of `moonfed-client run` holds; this process holds more."""
    return int(subprocess.run([sys.executable, "-c", WORKER_SCRIPT], stdout=subprocess.PIPE, check=True).stdout)


def _requested(settings: ProfileSettings, manifest: Manifest) -> Profile:
    return Profile(
        manifest=manifest,
        platform=describe_platform(settings.accelerator, settings.threads or torch.get_num_threads()),
        samples=settings.samples,
        batch_size=settings.batch_size or manifest.training.batch_size,
        epochs=settings.epochs or manifest.training.epochs,
        precision=settings.precision,
        memory_format=settings.memory_format or default_memory_format(settings.accelerator, settings.precision),
        limit=settings.max_memory,
    )


def _need(found: Profile, settings: ProfileSettings, samples: int, runtime: int) -> Need:
    return round_bytes(
        found.manifest,
        samples=samples,
        batch_size=found.batch_size,
        epochs=found.epochs,
        views=found.manifest.training.views,
        precision=settings.precision,
        accelerator=settings.accelerator,
        runtime=runtime,
    )


def require_enough_samples(manifest: Manifest, samples: int) -> None:
    """Raise InvalidInput if the plan needs more samples."""
    least = max(1, manifest.plan.minimum_samples)
    if samples < least:
        raise InvalidInput(f"samples is {samples}; the plan needs at least {least}")


def _measure(
    bundle: Bundle, settings: ProfileSettings, samples: int, batch_size: int, report: Callable[[str], None]
) -> Times:
    device = torch.device(settings.accelerator)
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory, own_stream(device):
        plan = _begun_plan(bundle, settings, Path(directory))
        data = _random_samples(bundle.manifest, samples).to(device)
        draws = torch.rand(samples, plan.draws_per_sample(), device=device)
        batch = slice(0, min(batch_size, samples))
        inputs, labels, some_draws = data.inputs[batch], data.labels[batch], draws[batch]
        references = nothing = torch.empty(len(labels), 0, device=device)

        def launched(given: torch.Tensor) -> Callable[[], object]:
            return launcher(lambda: plan.step(inputs, labels, given, some_draws), MAX_CALLS, device, CUDA_GRAPHS, False)

        def median(quantity: str, run: Callable[[], object]) -> float:
            report(f"measuring {quantity}")
            return _median_seconds(run, device)

        def survey(trained: bool) -> None:
            if plan.wants_survey(trained):
                plan.survey(inputs, labels, int(trained))

        survey(trained=False)
        reference_seconds = step_with_references = None
        if plan.reference_count() > 0:
            reference_seconds = median("references", lambda: plan.references(inputs, some_draws))
            references = plan.references(inputs, some_draws)
            step_with_references = median("steps that compute their references", launched(nothing))
        step = median("steps", launched(references))
        evaluation = median("evaluation", lambda: plan.evaluate(inputs, labels))
        survey(trained=True)
        plan.end_round(1)  # its results are part of the round's memory
    return Times(
        step=step, step_with_references=step_with_references, references=reference_seconds, evaluation=evaluation
    )


def _begun_plan(bundle: Bundle, settings: ProfileSettings, directory: Path) -> Plan:
    """Return the bundle's plan in a round with all previous models, which are the initial one."""
    for name in (PLAN_FILE, WEIGHTS_FILE):
        (directory / name).write_bytes(bundle.contents[name])
    specs = bundle.manifest.tensors
    vector = np.array(tensors.open_model(directory / WEIGHTS_FILE, specs))
    model = [torch.from_numpy(values) for values in tensors.split(vector, specs).values()]
    plan = load_plan(
        directory / PLAN_FILE, settings.accelerator, precision=settings.precision, memory_format=settings.memory_format
    )
    plan.begin_round(
        model, [model] * bundle.manifest.previous_models, {}, bundle.manifest.training_at(1).hyperparameters
    )
    return plan


def _random_samples(manifest: Manifest, samples: int) -> Samples:
    generator, shape = torch.Generator().manual_seed(0), (samples, *manifest.input.shape)
    if manifest.input.kind == "image":
        inputs = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    else:
        inputs = torch.randn(shape, generator=generator)
    return Samples(inputs=inputs, labels=torch.randint(0, len(manifest.classes), (samples,), generator=generator))


def _median_seconds(run: Callable[[], object], device: torch.device) -> float:
    for _ in range(WARM_UP):
        run()
    seconds: list[float] = []
    while len(seconds) < MIN_CALLS or (len(seconds) < MAX_CALLS and sum(seconds) < MAX_SECONDS):
        _wait(device)
        began = time.perf_counter()
        run()
        _wait(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak(accelerator: str, need: Need) -> Peak:
    on_cuda = accelerator == "cuda"
    return Peak(
        host=peak_memory(),
        estimated_host=need.host_bytes,
        accelerator=torch.cuda.max_memory_reserved() if on_cuda else None,
        estimated_accelerator=need.accelerator_bytes if on_cuda else None,
    )
