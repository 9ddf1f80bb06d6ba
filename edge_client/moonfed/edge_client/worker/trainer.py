"""The trainer: keeps one plan and the samples in memory from round to round, inside the sandbox."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from moonfed.available_memory import Available, available_memory, memory_capacity, resident_memory
from moonfed.bundle.manifest import Manifest
from moonfed.edge_client.job import Job, ScoreJob
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.edge_client.resources.memory_estimate import require_fits, round_bytes
from moonfed.edge_client.state.round_results import RoundResults
from moonfed.edge_client.training.cuda_graph import own_stream
from moonfed.edge_client.training.data_placement import DataPlacement
from moonfed.edge_client.training.local_training import Progress, Samples
from moonfed.edge_client.training.round_files import frozen_tensors, score_files, train_files
from moonfed.edge_client.worker.heartbeat import Heartbeats
from moonfed.edge_client.worker.messages import SampleCounts, WorkerSettings
from moonfed.edge_client.worker.shared_samples import MappedSamples, map_samples
from moonfed.plan.inspection.torch_registry import require_operators
from moonfed.plan.interface import Plan, load_plan
from moonfed.plan.training_spec import TrainingSpec
from moonfed.sandbox.ipc import ParentPipe


class Trainer:
    """One plan and the device's samples in memory."""

    def __init__(self, settings: WorkerSettings, file: int, output: Path) -> None:
        """`file`: the descriptor of the samples; `output`: the directory for results."""
        self.runtime = resident_memory()  # with torch, and nothing of a round yet
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self._settings = settings
        self._file = file
        self._output = output
        self._plan: Plan | None = None
        self._accelerator = torch.device(settings.accelerator)
        self._placement = DataPlacement(self._accelerator)
        self._samples: tuple[Samples, Samples] | None = None  # to train on, held out; in host memory
        self._counts: SampleCounts | None = None

    def train(self, job: Job, counts: SampleCounts, progress: Callable[[Progress], None]) -> RoundResults:
        """Train one round; raise MoonfedError, or whatever the plan or `progress` raises."""
        # starting this process, importing torch and reading the data count towards the budget
        started = time.monotonic() if job.began is None else job.began
        manifest = Manifest.from_bytes(Path(job.manifest_file).read_bytes())
        data, holdout = self._mapped(manifest, counts)
        self._require_memory(manifest, job.training, data, holdout)
        return train_files(
            self._loaded_plan(job, manifest),
            self._placement.place(data),
            holdout,
            job,
            manifest,
            self._settings.device,
            self._output,
            progress,
            accelerator=self._accelerator,
            started=started,
        )

    def score(self, job: ScoreJob, counts: SampleCounts, heartbeat: Callable[[], None]) -> list[float]:
        """Return the metric of each of the job's models on the holdout; see `score_files`."""
        manifest = Manifest.from_bytes(Path(job.manifest_file).read_bytes())
        data, holdout = self._mapped(manifest, counts)
        self._require_memory(manifest, manifest.training, data, holdout)
        with own_stream(self._accelerator):
            return score_files(self._loaded_plan(job, manifest), holdout, job, manifest, heartbeat)

    def _mapped(self, manifest: Manifest, counts: SampleCounts) -> tuple[Samples, Samples]:
        if self._samples is None or self._counts != counts:
            self._samples, self._placement = None, DataPlacement(self._accelerator)  # never both the old and the new
            trained, held_out = map_samples(
                self._file, manifest.input, manifest.target, counts.samples, counts.held_out, counts.files
            )
            self._samples, self._counts = (in_torch(trained), in_torch(held_out)), counts
        return self._samples

    def _require_memory(self, manifest: Manifest, training: TrainingSpec, data: Samples, holdout: Samples) -> None:
        """Raise ResourceExhausted if the round needs more memory than is available or allowed."""
        settings = self._settings
        need = round_bytes(
            manifest,
            samples=len(data),
            held_out=len(holdout),
            batch_size=training.batch_size,
            epochs=training.epochs,
            views=training.views,
            precision=settings.precision,
            accelerator=settings.accelerator,
            runtime=self.runtime,
            mapped=data.rows is not None,
        )
        shared = sum(part.bytes_on(torch.device("cpu")) for part in (data, holdout))
        require_fits(need, _with(available_memory(settings.accelerator), shared), settings.max_memory)

    def _loaded_plan(self, job: Job | ScoreJob, manifest: Manifest) -> Plan:
        if self._plan is None:
            self._plan = load_plan(
                Path(job.plan_file),
                self._settings.accelerator,
                precision=self._settings.precision,
                memory_format=self._settings.memory_format,
                frozen=frozen_tensors(job.parts, manifest),
            )
        return self._plan


def open_task(settings: dict[str, Any], output: Path, parent: ParentPipe) -> Callable[..., dict[str, Any]]:
    """Return the function that executes the agent's commands, `check`, `train` and `score`."""
    file, settings_read = settings.pop("file"), WorkerSettings(**settings["worker"])
    require_accelerator(settings_read.accelerator)
    trainer = Trainer(settings_read, file, output)

    def execute(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        if kind == "check":
            require_operators(fields.get("operators", ()))
            capacity = memory_capacity(settings_read.accelerator)
            return {"kind": "ready", "runtime": trainer.runtime, "capacity": asdict(capacity)}
        heartbeats = Heartbeats(parent, fields["other_work"])
        if kind == "score":
            scores = trainer.score(ScoreJob(**fields["job"]), SampleCounts(**fields["samples"]), heartbeats.work)
            return {"kind": "scored", "scores": scores}
        results = trainer.train(
            Job.from_document(fields["job"]),
            SampleCounts(**fields["samples"]),
            lambda progress: heartbeats.report(progress.fraction, progress.epoch, progress.loss),
        )
        found = asdict(results)
        return {"kind": "trained", **{name: found[name] for name in ("samples", "steps", "metrics")}}

    return execute


def _with(available: Available, shared: int) -> Available:
    """Add the bytes of the samples, which the round needs, but which are not in this process's own memory."""
    return available if available.host is None else replace(available, host=available.host + shared)


def in_torch(mapped: MappedSamples) -> Samples:
    """Return the samples as tensors. Those of mapped files cannot be written to."""
    with warnings.catch_warnings(action="ignore"):  # about that
        inputs, targets = torch.from_numpy(mapped.inputs), torch.from_numpy(mapped.targets)
    if mapped.rows is None:
        return Samples(inputs=inputs, targets=targets)

    def expect(rows: torch.Tensor) -> None:
        mapped.expect(rows.tolist())

    return Samples(inputs=inputs, targets=targets, rows=torch.from_numpy(mapped.rows), expect=expect)
