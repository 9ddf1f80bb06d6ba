"""One round from files to files: reads what a job names, trains, and stores the update.

Stateless: a caller may train many devices in turn with one plan.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from moonfed import tensors
from moonfed.edge_client.state.round_store import MODEL_ERROR, RunState, StoredRound, Write
from moonfed.edge_client.training.local_training import Model, Progress, RoundSettings, Samples, Trained, train_round
from moonfed.edge_client.worker.codec import decoded_model, encoded_update
from moonfed.edge_client.worker.messages import Job
from moonfed.encodings import ENCODED_MODEL
from moonfed.errors import InvalidInput, TrainingFailed
from moonfed.manifest import MODEL, Manifest
from moonfed.plan import Plan
from moonfed.tensors import TensorSpec, Vector

LOSS, HOLDOUT = "loss", "holdout_"  # the device's own metrics: `loss`, `holdout_accuracy`, `_loss` and `_samples`

log = logging.getLogger(__name__)


def train_job(
    plan: Plan,
    data: Samples,
    holdout: Samples | None,
    state: RunState,
    job: Job,
    manifest: Manifest,
    device: str,
    progress: Callable[[Progress], None] = lambda _: None,
    accelerator: torch.device | None = None,
    started: float | None = None,
) -> StoredRound:
    """Train one round for the device of that name and store its update in the device's state of the run.

    `plan` and `manifest` are those of the job. `accelerator`: the plan's; by default the data's. `started`: when the
    job's seconds began to run, by time.monotonic; by default now. Raises InvalidInput if there are too few samples or a
    file does not fit, TrainingFailed if the plan fails or its results are not usable, and whatever `progress` raises;
    nothing is stored then.
    """
    least = max(1, manifest.plan.minimum_samples)
    if len(data) < least:
        raise InvalidInput(f"this device has {len(data)} samples to train on; the plan needs at least {least}")
    with state.scratch() if job.encodings.needed else nullcontext() as scratch:
        initial_model = decoded_model(job, manifest, scratch) if scratch else Path(job.files[MODEL])
        trained = train_round(
            plan,
            data,
            model=_load(initial_model, manifest.tensors),
            previous_models=_previous_models(state, job, manifest),
            received={**_global_state(job, manifest), **_device_state(state, job, manifest)},
            settings=_settings(job, device),
            holdout=holdout,
            progress=progress,
            accelerator=accelerator,
            started=started,
        )
        _require_results(trained.results, manifest)
        files = {role: _writer(specs, trained.results[role]) for role, specs in _outgoing(manifest).items()}
        if scratch and job.encodings.updates_encoded:
            files |= encoded_update(files[MODEL], initial_model, state, job, manifest, scratch)
        return _save(state, job, manifest, trained, files)


def _settings(job: Job, device: str) -> RoundSettings:
    return RoundSettings(
        training=job.training,
        seed=job.seed,
        round=job.id.round,
        device=device,
        max_steps=job.max_steps,
        max_seconds=job.max_seconds,
    )


def _load(file: Path, specs: Sequence[TensorSpec]) -> Model:
    """Return a role's tensors in the manifest's order; SchemaMismatch if the file holds others."""
    vector: Vector = np.array(tensors.open_model(file, specs))  # writable, as torch requires
    return [torch.from_numpy(values) for values in tensors.split(vector, specs).values()]


def _previous_models(state: RunState, job: Job, manifest: Manifest) -> list[Model]:
    stored = state.previous(job.id.round, job.id.attempt, manifest.previous_models)
    return [_load(entry.model_file, manifest.tensors) for entry in stored]


def _global_state(job: Job, manifest: Manifest) -> dict[str, Model]:
    return {role: _load(Path(job.files[role]), specs) for role, specs in manifest.downlink.items() if role in job.files}


def _device_state(state: RunState, job: Job, manifest: Manifest) -> dict[str, Model]:
    files = state.device_state(*job.counted_key, list(manifest.device_state))
    return {role: _load(file, manifest.device_state[role]) for role, file in files.items()}


def _outgoing(manifest: Manifest) -> dict[str, tuple[TensorSpec, ...]]:
    """Return the tensors of each result of a round, by role."""
    return {MODEL: manifest.tensors, **manifest.uplink, **manifest.device_state}


def _require_results(results: Mapping[str, Sequence[torch.Tensor]], manifest: Manifest) -> None:
    """Raise TrainingFailed unless the plan's results match its manifest and are finite."""
    promised = _outgoing(manifest)
    if sorted(results) != sorted(promised):
        raise TrainingFailed(f"the plan's round left {sorted(results)}; its manifest promises {sorted(promised)}")
    for role, specs in promised.items():
        shapes = [tuple(tensor.shape) for tensor in results[role]]
        if shapes != [spec.shape for spec in specs]:
            raise TrainingFailed(f"the plan's {role!r} has tensors whose shapes differ from the manifest's")
        for tensor, spec in zip(results[role], specs, strict=True):
            if not bool(torch.isfinite(tensor).all()):
                raise TrainingFailed(
                    f"local training diverged: tensor {spec.name!r} of {role!r} holds NaN or infinite values; "
                    "a lower learning rate may help"
                )


def _save(state: RunState, job: Job, manifest: Manifest, trained: Trained, files: Mapping[str, Write]) -> StoredRound:
    return state.save(
        job.id.round,
        job.id.attempt,
        files=files,
        kept=[*manifest.device_state, MODEL_ERROR, *([MODEL] if ENCODED_MODEL in files else [])],
        assignment=job.digest,
        samples=trained.samples,
        steps=trained.steps,
        metrics=_metrics(trained),
        keep=manifest.previous_models + 1,
        counted=job.counted_key,
    )


def _metrics(trained: Trained) -> dict[str, float]:
    """Return the device's and the method's metrics, without those that are not finite."""
    metrics = {LOSS: trained.loss}
    if trained.holdout:
        metrics[f"{HOLDOUT}accuracy"] = trained.holdout.accuracy
        metrics[f"{HOLDOUT}loss"] = trained.holdout.loss
        metrics[f"{HOLDOUT}samples"] = float(trained.holdout.samples)
    for name, value in trained.metrics.items():
        if name == LOSS or name.startswith(HOLDOUT):
            raise TrainingFailed(f"the plan has a metric {name!r}; that name is reserved for the device")
        if math.isfinite(value):
            metrics[name] = value
        else:
            log.warning("the plan's metric %r is %r and is ignored", name, value)
    return metrics


def _writer(specs: Sequence[TensorSpec], results: Sequence[torch.Tensor]) -> Write:
    def write(file: Path) -> None:
        tensors.write_model(file, specs, _slices(results))

    return write


def _slices(results: Sequence[torch.Tensor]) -> Iterator[Vector]:
    for tensor in results:
        yield tensor.detach().cpu().numpy().ravel()
