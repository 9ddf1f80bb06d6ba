"""The trainer: keeps plan and samples in memory from round to round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import torch

from moonfed.blobs import ref_of_bytes
from moonfed.edge_client.data.samples import split
from moonfed.edge_client.data.source import Reader, open_source
from moonfed.edge_client.resources.available_memory import available_memory, resident_memory
from moonfed.edge_client.resources.memory_estimate import require_fits, round_bytes
from moonfed.edge_client.state.round_store import RunState, StoredRound
from moonfed.edge_client.training.data_placement import DataPlacement
from moonfed.edge_client.training.local_training import Progress, Samples
from moonfed.edge_client.training.round_files import train_job
from moonfed.edge_client.worker.messages import Job, WorkerSettings
from moonfed.errors import InvalidInput
from moonfed.manifest import Manifest
from moonfed.plan import Plan, load_plan
from moonfed.samples import RawSamples

log = logging.getLogger(__name__)


def require_accelerator(name: str) -> None:
    """Raise InvalidInput if torch cannot use the accelerator."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("device is 'cuda', but torch finds no CUDA device here; use --device cpu")


class Trainer:
    """One device's plan and samples in memory."""

    def __init__(
        self, settings: WorkerSettings, reading: Callable[[], None], training: Callable[[Progress], None]
    ) -> None:
        """Call `reading` and `training` after every unit of work; an exception from them ends the round."""
        require_accelerator(settings.accelerator)
        self._runtime = resident_memory()  # with torch, and nothing of a round yet
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self._settings, self._reading, self._training = settings, reading, training
        self._reader = Reader(open_source(settings.data), Path(settings.state, "cache"))
        self._plan: Plan | None = None
        self._plan_file = ""
        self._accelerator = torch.device(settings.accelerator)
        self._placement = DataPlacement(self._accelerator)
        self._samples: tuple[Samples, Samples] | None = None  # to train on, held out; in host memory

    def train(self, job: Job) -> StoredRound:
        """Train and store one round's update; raise MoonfedError, or whatever the plan or user code raises."""
        # starting this process, importing torch and reading the data count towards the budget
        started = time.monotonic() if job.began is None else job.began
        content = Path(job.manifest_file).read_bytes()
        manifest = Manifest.from_bytes(content)
        data, holdout = self._read(manifest)
        self._require_memory(manifest, job, len(data), len(holdout))
        plan = self._loaded_plan(job.plan_file)
        sha256 = ref_of_bytes(content).sha256
        state = RunState(Path(self._settings.state, "runs"), job.id.run, manifest=sha256, seed=job.seed)
        return train_job(
            plan,
            self._placement.place(data),
            holdout,
            state,
            job,
            manifest,
            self._settings.device,
            self._training,
            accelerator=self._accelerator,
            started=started,
        )

    def _read(self, manifest: Manifest) -> tuple[Samples, Samples]:
        raw = self._reader.read_if_changed(manifest.input, manifest.classes, self._reading)
        if raw is not None:
            self._samples, self._placement = (
                None,
                DataPlacement(self._accelerator),
            )  # never both the old and the new at once
            trained, held_out = split(raw, self._settings.holdout)
            self._samples = _in_torch(trained), _in_torch(held_out)
            log.info("%d samples to train on, %d held out", len(trained), len(held_out))
        assert self._samples is not None  # noqa: S101 - the first reading is a change
        return self._samples

    def _require_memory(self, manifest: Manifest, job: Job, samples: int, held_out: int) -> None:
        """Raise ResourceExhausted if the round needs more memory than is available or allowed."""
        settings = self._settings
        need = round_bytes(
            manifest,
            samples=samples,
            held_out=held_out,
            batch_size=job.training.batch_size,
            epochs=job.training.epochs,
            views=job.training.views,
            precision=settings.precision,
            accelerator=settings.accelerator,
            runtime=self._runtime,
        )
        require_fits(need, available_memory(settings.accelerator), settings.max_memory)

    def _loaded_plan(self, file: str) -> Plan:
        if self._plan is None or file != self._plan_file:
            self._plan = None
            self._plan = load_plan(
                Path(file),
                self._settings.accelerator,
                precision=self._settings.precision,
                memory_format=self._settings.memory_format,
            )
            self._plan_file = file
        return self._plan


def _in_torch(raw: RawSamples) -> Samples:
    return Samples(inputs=torch.from_numpy(raw.inputs), labels=torch.from_numpy(raw.labels))
