"""A worker of the virtual fleet: trains any party with the device's own code, and scores models.

Processes of this machine run one with `run_worker`; Ray's actors hold a `Worker`. Between two jobs it keeps the plan
and the mapped samples, and nothing of any party.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import Manifest
from moonfed.edge_client.job import Job
from moonfed.edge_client.resources.accelerator import require_accelerator
from moonfed.edge_client.state.round_store import RunState
from moonfed.edge_client.training.local_training import Samples, evaluate
from moonfed.edge_client.training.round_files import frozen_tensors, train_job
from moonfed.errors import InvalidInput, MoonfedError
from moonfed.experiments.fleet.data import Parts, PartySamples
from moonfed.experiments.fleet.layout import Layout
from moonfed.plan.interface import load_plan
from moonfed.plan.tensors import read_tensors
from moonfed.sandbox.ipc import LogForwarder, ParentPipe, die_with
from moonfed.tasks import TASKS

EVALUATION_BATCH = 256


class Worker:
    """Plan, manifest and samples of one simulation."""

    def __init__(self, output: Path, accelerator: str) -> None:
        require_accelerator(accelerator)
        torch.set_num_threads(1)  # a worker is one core; and sums in one order, whatever the machine
        self._layout, self._accelerator = Layout(output), accelerator
        content = self._layout.manifest.read_bytes()
        self._manifest, self._sha256 = Manifest.from_bytes(content), ref_of_bytes(content).sha256
        frozen = frozen_tensors(self._layout.parts, self._manifest)
        self._plan = load_plan(self._layout.plan(self._manifest), accelerator, frozen=frozen)
        self._parts = Parts(self._layout.data)

    def do(self, kind: str, fields: Mapping[str, Any]) -> dict[str, float]:
        """Run an engine's job: `load` (done by creating the worker), `train` or `evaluate`."""
        if kind == "load":
            return {}
        if kind == "evaluate":
            return self.evaluate(Path(fields["model_file"]))
        started = time.monotonic()
        self.train(fields["party"], Job.from_document(fields["job"]))
        return {"seconds": time.monotonic() - started}

    def train(self, party: int, job: Job) -> None:
        """Train a party, counted from 1, and store its update in the party's state."""
        name = f"party-{party}"
        state = RunState(self._layout.runs(name), job.id.run, manifest=self._sha256, seed=job.seed)
        train_job(self._plan, self._samples(self._parts.of(party)), None, state, job, self._manifest, name)

    def evaluate(self, model_file: Path) -> dict[str, float]:
        """Return the task's metrics of a model on the whole test set, the primary one and the loss among them."""
        model = read_tensors(model_file, self._manifest.tensors)
        self._plan.begin_round(model, [], {}, self._manifest.training.hyperparameters)
        test = self._parts.test
        if self._manifest.target.kind == "class":
            score = evaluate(self._plan, self._samples(test), EVALUATION_BATCH)
            return {self._manifest.metric.name: score.score, "loss": score.loss}
        scorer = TASKS.build(self._manifest.task).scorer(self._manifest.target)
        for start in range(0, len(test.inputs), EVALUATION_BATCH):
            inputs, targets = (part[start : start + EVALUATION_BATCH] for part in (test.inputs, test.targets))
            outputs = self._plan.predict(torch.from_numpy(inputs).to(self._accelerator))
            scorer.add(outputs.cpu().numpy(), targets, inputs)
        return require_metrics(scorer.metrics())

    def _samples(self, part: PartySamples) -> Samples:
        inputs, targets = torch.from_numpy(part.inputs), torch.from_numpy(part.targets)
        return Samples(inputs=inputs, targets=targets).to(self._accelerator)


def require_metrics(found: dict[str, float]) -> dict[str, float]:
    """Return the metrics of a test set; InvalidInput if there are none, since no target is known."""
    if not found:
        raise InvalidInput("the test samples have no known target; at least one is needed", field="targets")
    return found


def run_worker(output: Path, accelerator: str, *, parent: int) -> None:
    """Answer commands on the standard streams, one at a time, until they close or the parent process exits."""
    die_with(parent)
    pipe = ParentPipe()
    logging.basicConfig(handlers=[LogForwarder(pipe)], level=logging.WARNING, format="%(message)s")
    worker: Worker | None = None
    while True:
        kind, fields = pipe.next_command()
        try:
            worker = worker or Worker(output, accelerator)
            pipe.send("done", **worker.do(kind, fields))
        except MoonfedError as error:
            pipe.send("failed", error=type(error).__name__, reason=str(error))
        except Exception as error:
            traceback.print_exc()
            pipe.send("failed", error="TrainingFailed", reason=f"{type(error).__name__}: {error}")
