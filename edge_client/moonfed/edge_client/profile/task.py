"""The measurements of `moonfed-client profile`, in the sandboxed process that loads the plan.

Legend: B a batch's samples, k previous models.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from moonfed.available_memory import peak_memory, resident_memory
from moonfed.bundle.manifest import (
    FROZEN_FILE,
    MANIFEST_FILE,
    PERSONAL,
    PERSONAL_FILE,
    WEIGHTS_FILE,
    Manifest,
)
from moonfed.bundle.target import TargetSpec
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.edge_client.training.cuda_graph import CUDA_GRAPHS, launcher, own_stream
from moonfed.edge_client.training.data_placement import Samples
from moonfed.plan.interface import Plan, load_plan
from moonfed.plan.tensors import read_tensors
from moonfed.sandbox.ipc import ParentPipe

WARM_UP = 5  # warm-up calls: libraries select kernels, and CUDA graphs are captured
MIN_CALLS, MAX_CALLS, MAX_SECONDS = 5, 100, 3.0  # counted calls of each kind, and their time limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Median seconds per batch; None for work that the plan does not do."""

    step: float  # with cached references, if the method has any
    step_with_references: float | None  # computed in each step
    references: float | None
    evaluation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """Settings of the measurement."""

    directory: str  # of the bundle's files
    plan: str  # the name of the plan's file
    accelerator: str
    threads: int | None
    precision: str
    memory_format: str | None
    samples: int
    batch_size: int


def open_task(settings: dict[str, Any], output: Path, parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the command `profile`."""
    own = resident_memory()  # with torch

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        wanted = MeasureSettings(**settings)
        require_accelerator(wanted.accelerator)
        if wanted.threads is not None:
            torch.set_num_threads(wanted.threads)
        times = measure(wanted, lambda text: parent.send("progress", text=text))
        peak = {"own": own, "host": peak_memory(), "accelerator": _accelerator_peak(wanted.accelerator)}
        return {"kind": "profiled", "times": asdict(times), **peak}

    return execute


def _accelerator_peak(accelerator: str) -> int | None:
    return torch.cuda.max_memory_reserved() if accelerator == "cuda" else None


def measure(settings: MeasureSettings, report: Callable[[str], None]) -> Times:
    """Measure the bundle's plan; `report` is called with each measurement as it starts."""
    directory, samples = Path(settings.directory), settings.samples
    manifest = Manifest.from_bytes((directory / MANIFEST_FILE).read_bytes())
    device = torch.device(settings.accelerator)
    with own_stream(device):
        plan = _begun_plan(manifest, settings, directory)
        data = _random_samples(manifest, samples).to(device)
        draws = torch.rand(samples, plan.draws_per_sample(), device=device)
        batch = slice(0, min(settings.batch_size, samples))
        inputs = data.inputs[batch]
        targets = data.targets[batch]
        some_draws = draws[batch]
        references = nothing = torch.empty(len(targets), 0, device=device)

        def launched(given: torch.Tensor) -> Callable[[], object]:
            return launcher(
                lambda: plan.step(inputs, targets, given, some_draws), MAX_CALLS, device, CUDA_GRAPHS, False
            )

        def median(quantity: str, run: Callable[[], object]) -> float:
            report(f"measuring {quantity}")
            return _median_seconds(run, device)

        def survey(trained: bool) -> None:
            if plan.wants_survey(trained):
                plan.survey(inputs, targets, int(trained))

        survey(trained=False)
        reference_seconds = step_with_references = None
        if plan.reference_count() > 0:
            reference_seconds = median("references", lambda: plan.references(inputs, some_draws))
            references = plan.references(inputs, some_draws)
            step_with_references = median("steps that compute their references", launched(nothing))
        step = median("steps", launched(references))
        evaluation = median("evaluation", lambda: plan.evaluate(inputs, targets))
        survey(trained=True)
        plan.end_round(1)  # its results count towards the round's memory
    return Times(
        step=step, step_with_references=step_with_references, references=reference_seconds, evaluation=evaluation
    )


def _begun_plan(manifest: Manifest, settings: MeasureSettings, directory: Path) -> Plan:
    """Return the bundle's plan in a round whose previous models are all copies of the initial one."""
    model = read_tensors(directory / WEIGHTS_FILE, manifest.tensors)
    plan = load_plan(
        directory / settings.plan,
        settings.accelerator,
        precision=settings.precision,
        memory_format=settings.memory_format,
        frozen=read_tensors(directory / FROZEN_FILE, manifest.frozen) if manifest.frozen else None,
    )
    own = {PERSONAL: read_tensors(directory / PERSONAL_FILE, manifest.personal)} if manifest.personal else {}
    plan.begin_round(model, [model] * manifest.previous_models, own, manifest.training_at(1).hyperparameters)
    return plan


def _random_samples(manifest: Manifest, samples: int) -> Samples:
    generator, shape = torch.Generator().manual_seed(0), (samples, *manifest.input.shape)
    if manifest.input.kind == "image":
        inputs = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    elif manifest.input.kind == "tokens":
        inputs = torch.randint(0, len(manifest.input.vocabulary), shape, generator=generator)
    else:
        inputs = torch.randn(shape, generator=generator)
    return Samples(inputs=inputs, targets=_random_targets(manifest.target, samples, generator))


def _random_targets(target: TargetSpec, samples: int, generator: torch.Generator) -> torch.Tensor:
    shape = (samples, *target.shape)
    if target.kind == "values":
        return torch.randn(shape, generator=generator)
    most = 2 if target.kind == "labels" else max(1, len(target.names))
    return torch.randint(0, most, shape, generator=generator, dtype=getattr(torch, target.dtype))


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
