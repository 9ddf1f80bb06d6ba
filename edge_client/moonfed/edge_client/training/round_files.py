"""One round from files to files: reads a job's files, trains, and writes the results.

Stateless: a caller may train many devices in turn with one plan.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from moonfed.blobs import tensors
from moonfed.blobs.encoded_models import decode_model, encode_model
from moonfed.blobs.tensors import TensorSpec, Vector
from moonfed.bundle.manifest import FROZEN_FILE, MODEL, PERSONAL, PERSONAL_FILE, Manifest
from moonfed.edge_client.job import Job, ScoreJob
from moonfed.edge_client.requirements import require_samples
from moonfed.edge_client.state.round_results import (
    INITIAL_MODEL,
    RoundResults,
    result_file,
    save_results,
    with_kept_files,
)
from moonfed.edge_client.state.round_store import MODEL_ERROR, RunState, StoredRound
from moonfed.edge_client.training.local_training import (
    Model,
    Progress,
    RoundSettings,
    Samples,
    Trained,
    evaluate,
    train_round,
)
from moonfed.encodings import ENCODED_MODEL, PLAIN
from moonfed.errors import TrainingFailed
from moonfed.plan.interface import Plan
from moonfed.plan.tensors import read_tensors

LOSS, HOLDOUT = "loss", "holdout_"  # the device's own metrics; of the holdout: metric, loss and samples

_log = logging.getLogger(__name__)


def train_job(
    plan: Plan,
    data: Samples,
    holdout: Samples | None,
    state: RunState,
    job: Job,
    manifest: Manifest,
    device: str,
    progress: Callable[[Progress], None] = lambda _: None,
) -> StoredRound:
    """Train one round for the device of that name and store its update in the device's state of the run.

    See `train_files`; nothing is stored if it raises.
    """
    with state.scratch() as scratch:
        complete = with_kept_files(job, state, manifest)
        results = train_files(plan, data, holdout, complete, manifest, device, scratch, progress)
        return save_results(state, complete, manifest, results)


def train_files(
    plan: Plan,
    data: Samples,
    holdout: Samples | None,
    job: Job,
    manifest: Manifest,
    device: str,
    output: Path,
    progress: Callable[[Progress], None] = lambda _: None,
    accelerator: torch.device | None = None,
    started: float | None = None,
) -> RoundResults:
    """Train one round from the job's files, and write its results to the directory `output`, created if needed.

    `plan` and `manifest` are those of the job. `accelerator`: the plan's; by default the data's. `started`: the time at
    which the job's seconds began, by time.monotonic; by default now. Raises InvalidInput if there are too few samples
    or a file does not fit, TrainingFailed if the plan fails or its results are not usable, and whatever `progress`
    raises.
    """
    require_samples(manifest, len(data))
    initial_model = decoded_model(job, manifest, output)
    trained = train_round(
        plan,
        data,
        model=read_tensors(initial_model, manifest.tensors),
        previous_models=[read_tensors(Path(file), manifest.tensors) for file in job.previous_models],
        received={**_global_state(job, manifest), **_device_state(job.parts, job.kept, manifest)},
        settings=_settings(job, device),
        holdout=holdout,
        progress=progress,
        accelerator=accelerator,
        started=started,
    )
    _require_results(trained.results, manifest)
    metrics = _metrics(trained, manifest.metric.name)
    output.mkdir(parents=True, exist_ok=True)
    for role, specs in _outgoing(manifest).items():
        tensors.write_model(result_file(output, role), specs, _slices(trained.results[role]))
    if job.sends_copy:
        encode_update(initial_model, job, manifest, output)
    return RoundResults(directory=output, samples=trained.samples, steps=trained.steps, metrics=metrics)


def score_files(
    plan: Plan, holdout: Samples, job: ScoreJob, manifest: Manifest, heartbeat: Callable[[], None] = lambda: None
) -> list[float]:
    """Return the manifest's metric of each of the job's models on the holdout.

    Raises InvalidInput if a file does not fit, TrainingFailed if the plan fails, and whatever `heartbeat` raises.
    """
    training, found = manifest.training, list[float]()
    own = _device_state(job.parts, {PERSONAL: job.personal} if job.personal else {}, manifest)
    for file in job.models:
        plan.begin_round(read_tensors(Path(file), manifest.tensors), [], own, training.hyperparameters)
        found.append(evaluate(plan, holdout, training.batch_size, heartbeat).score)
    return found


def _settings(job: Job, device: str) -> RoundSettings:
    return RoundSettings(
        training=job.training,
        seed=job.seed,
        round=job.id.round,
        device=device,
        max_steps=job.max_steps,
        max_seconds=job.max_seconds,
    )


def frozen_tensors(parts: Mapping[str, str], manifest: Manifest) -> Model:
    """Return the frozen tensors of the bundle's file among `parts`; none if the bundle has none."""
    return read_tensors(Path(parts[FROZEN_FILE]), manifest.frozen) if manifest.frozen else []


def _global_state(job: Job, manifest: Manifest) -> dict[str, Model]:
    return {
        role: read_tensors(Path(job.files[role]), specs)
        for role, specs in manifest.downlink.items()
        if role in job.files
    }


def _device_state(parts: Mapping[str, str], kept: Mapping[str, str], manifest: Manifest) -> dict[str, Model]:
    """Return what the device has kept, by role; without personal tensors of its own, those that the bundle has."""
    files = {**({PERSONAL: parts[PERSONAL_FILE]} if PERSONAL_FILE in parts else {}), **kept}
    return {
        role: read_tensors(Path(files[role]), specs) for role, specs in manifest.device_state.items() if role in files
    }


def _outgoing(manifest: Manifest) -> dict[str, tuple[TensorSpec, ...]]:
    """Return the tensors of each result of a round, by role."""
    return {MODEL: manifest.tensors, **manifest.uplink, **manifest.device_state}


def _require_results(results: Mapping[str, Sequence[torch.Tensor]], manifest: Manifest) -> None:
    """Raise TrainingFailed unless the plan's results match its manifest and are finite."""
    promised = _outgoing(manifest)
    if sorted(results) != sorted(promised):
        raise TrainingFailed(
            f"the plan's round left {sorted(results)}; its manifest promises {sorted(promised)}",
            field="results",
            value=sorted(results),
        )
    for role, specs in promised.items():
        shapes = [tuple(tensor.shape) for tensor in results[role]]
        if shapes != [spec.shape for spec in specs]:
            raise TrainingFailed(
                f"the plan's {role!r} has tensors whose shapes differ from the manifest's", field="shapes", value=role
            )
        for tensor, spec in zip(results[role], specs, strict=True):
            if not bool(torch.isfinite(tensor).all()):
                raise TrainingFailed(
                    f"local training diverged: tensor {spec.name!r} of {role!r} holds NaN or infinite values; "
                    "a lower learning rate may help",
                    field="tensor",
                    value=spec.name,
                )


def _metrics(trained: Trained, metric: str) -> dict[str, float]:
    """Return the device's and the method's metrics, without those that are not finite."""
    metrics = {LOSS: trained.loss}
    if trained.holdout:
        metrics[f"{HOLDOUT}{metric}"] = trained.holdout.score
        metrics[f"{HOLDOUT}loss"] = trained.holdout.loss
        metrics[f"{HOLDOUT}samples"] = float(trained.holdout.samples)
    for name, value in trained.metrics.items():
        if name == LOSS or name.startswith(HOLDOUT):
            raise TrainingFailed(
                f"the plan has a metric {name!r}; that name is reserved for the device", field="metric", value=name
            )
        if math.isfinite(value):
            metrics[name] = value
        else:
            _log.warning("the plan's metric %r is %r and is ignored", name, value)
    return metrics


def _slices(results: Sequence[torch.Tensor]) -> Iterator[Vector]:
    for tensor in results:
        yield tensor.detach().cpu().numpy().ravel()


def decoded_model(job: Job, manifest: Manifest, output: Path) -> Path:
    """Return the float32 file of the received global model; raise SchemaMismatch if it does not fit."""
    received, encoding = Path(job.files[MODEL]), job.encodings.down
    if encoding == PLAIN:
        return received
    output.mkdir(parents=True, exist_ok=True)
    decode_model(received, output / INITIAL_MODEL, manifest.tensors, encoding)
    return output / INITIAL_MODEL


def encode_update(initial_model: Path, job: Job, manifest: Manifest, output: Path) -> None:
    """Write what is sent of the trained model in `output`, clipped and encoded, and the error of a lossy encoding.

    Error feedback: the encoding error of the last counted update is added to the change before it is encoded. The error
    of an update that did not count is discarded with that update.
    """
    encodings, error = job.encodings, job.kept.get(MODEL_ERROR)
    encode_model(
        result_file(output, MODEL),
        result_file(output, ENCODED_MODEL),
        manifest.tensors,
        encodings.up,
        initial_model=initial_model,
        changes=encodings.changes,
        clip_norm=job.clip_norm,
        error=Path(error) if error and encodings.up.lossy else None,
        new_error=result_file(output, MODEL_ERROR) if encodings.up.lossy else None,
    )
