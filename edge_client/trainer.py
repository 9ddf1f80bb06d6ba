"""The child's work for one round: plan, data and previous models in; a stored update out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from edge_client.data.samples import split
from edge_client.data.source import Reader, open_source
from edge_client.messages import Job, WorkerSettings
from edge_client.state import RunState, StoredRound
from edge_client.training import Model, Progress, RoundSettings, Samples, Trained, train_round
from moonfed import tensors
from moonfed.errors import InvalidInput, SchemaMismatch, TrainingFailed
from moonfed.manifest import Manifest
from moonfed.plan import Plan, load_plan
from moonfed.samples import RawSamples
from moonfed.tensors import TensorSpec, Vector

log = logging.getLogger(__name__)


def require_accelerator(name: str) -> None:
    """Raises InvalidInput if torch cannot use it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("device is 'cuda', but torch finds no CUDA device here; use --device cpu")


class Trainer:
    """Keeps plan and samples in memory from round to round."""

    def __init__(
        self, settings: WorkerSettings, reading: Callable[[], None], training: Callable[[Progress], None]
    ) -> None:
        """`reading` and `training` are called for every bit of work done; what they raise ends the round."""
        require_accelerator(settings.accelerator)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self._settings, self._reading, self._training = settings, reading, training
        self._reader = Reader(open_source(settings.data), Path(settings.state, "cache"))
        self._plan: Plan | None = None
        self._plan_file = ""
        self._data: Samples | None = None
        self._holdout: Samples | None = None

    def train(self, job: Job) -> None:
        """Trains and stores one round's update; raises MoonfedError, or whatever the plan or user code raises."""
        manifest = Manifest.from_bytes(Path(job.manifest_file).read_bytes())
        data = self._samples(manifest)
        plan = self._loaded_plan(job.plan_file)
        state = RunState(Path(self._settings.state, "runs"), job.run)
        trained = train_round(
            plan,
            data,
            model=_load_model(Path(job.model_file), manifest.tensors),
            previous_models=_previous_models(state, job, manifest),
            settings=RoundSettings(
                epochs=job.epochs,
                batch_size=job.batch_size,
                hyperparameters=job.hyperparameters,
                seed=job.seed,
                round=job.round,
                device=self._settings.device,
            ),
            holdout=self._holdout,
            progress=self._training,
        )
        _require_finite(trained.model, manifest.tensors)
        _save(state, job, manifest, trained)

    def _samples(self, manifest: Manifest) -> Samples:
        raw = self._reader.read_if_changed(manifest.input, manifest.classes, self._reading)
        if raw is not None:
            self._data = self._holdout = None  # not the old and the new in memory at once
            self._data, self._holdout = (self._on_device(part) for part in split(raw, self._settings.holdout))
            log.info("%d samples to train on, %d held out", len(self._data), len(self._holdout))
        if self._data is None or len(self._data) < max(1, manifest.plan.minimum_samples):
            raise InvalidInput(
                f"this device has {len(self._data or ())} samples to train on; "
                f"the plan needs at least {max(1, manifest.plan.minimum_samples)}"
            )
        return self._data

    def _on_device(self, raw: RawSamples) -> Samples:
        samples = Samples(inputs=torch.from_numpy(raw.inputs), labels=torch.from_numpy(raw.labels))
        return samples.to(self._settings.accelerator)

    def _loaded_plan(self, file: str) -> Plan:
        if self._plan is None or file != self._plan_file:
            self._plan = None
            self._plan = load_plan(Path(file), self._settings.accelerator)
            self._plan_file = file
        return self._plan


def _load_model(file: Path, specs: Sequence[TensorSpec]) -> Model:
    """A model's tensors in the manifest's order; SchemaMismatch if the file holds others."""
    vector: Vector = np.array(tensors.open_model(file, specs))  # writable, as torch wants it
    return [torch.from_numpy(values) for values in tensors.split(vector, specs).values()]


def _previous_models(state: RunState, job: Job, manifest: Manifest) -> list[Model]:
    stored = state.previous(job.round, job.attempt, manifest.previous_models)
    models = (_load_if_fitting(entry, manifest.tensors) for entry in stored)
    return [model for model in models if model is not None]


def _load_if_fitting(stored: StoredRound, specs: Sequence[TensorSpec]) -> Model | None:
    try:
        return _load_model(stored.model_file, specs)
    except SchemaMismatch as error:
        log.warning("skipping the previous model of round %d: %s", stored.round, error)
        return None


def _require_finite(model: Model, specs: Sequence[TensorSpec]) -> None:
    for tensor, spec in zip(model, specs, strict=True):
        if not bool(torch.isfinite(tensor).all()):
            raise TrainingFailed(
                f"local training diverged: tensor {spec.name!r} holds NaN or infinite values; "
                "a lower learning rate may help"
            )


def _save(state: RunState, job: Job, manifest: Manifest, trained: Trained) -> None:
    def write(file: Path) -> None:
        tensors.write_model(file, manifest.tensors, _slices(trained.model))

    metrics = {"loss": trained.loss}
    if trained.holdout:
        metrics["holdout_accuracy"] = trained.holdout.accuracy
        metrics["holdout_loss"] = trained.holdout.loss
        metrics["holdout_samples"] = float(trained.holdout.samples)
    state.save(
        job.round,
        job.attempt,
        write=write,
        assignment=job.digest,
        samples=trained.samples,
        steps=trained.steps,
        metrics=metrics,
        keep=manifest.previous_models + 1,
    )


def _slices(model: Model) -> Iterator[Vector]:
    for tensor in model:
        yield tensor.detach().cpu().numpy().ravel()
