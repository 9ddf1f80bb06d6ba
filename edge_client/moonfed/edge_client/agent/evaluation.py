"""Evaluations of global models on this device's holdout, of which only its size and two scores leave the device."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from moonfed.blobs.schema import ITEM_SIZE, model_size
from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.bundle.manifest import PERSONAL, PLAN_NAMES, Manifest, parts_of
from moonfed.edge_client.agent.compatibility import require_runnable, require_signature
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.redact import without_paths
from moonfed.edge_client.agent.transfers import REJECTIONS, BlobTransfers, Superseded, WindowClosed, fetch_parts
from moonfed.edge_client.agent.worker_process import FILE_HEADER, WorkerProcess
from moonfed.edge_client.job import ScoreJob
from moonfed.edge_client.resources.free_disk import require_free
from moonfed.edge_client.state.gc import keep_only, store_blob
from moonfed.edge_client.state.local_models import find_local_model
from moonfed.edge_client.state.trust import accept
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import InvalidInput, MoonfedError, UntrustedBundle
from moonfed.fleet.evaluation import EvaluationTask, HoldoutScores
from moonfed.signing.bundle_signature import require_name

_log = logging.getLogger(__name__)


class Evaluations:
    """This device's answers to evaluations. All calls must come from the executor's thread."""

    def __init__(
        self,
        settings: WorkerSettings,
        connection: FleetConnection,
        worker: WorkerProcess,
        transfers: BlobTransfers,
        inbox: Inbox,
    ) -> None:
        state = Path(settings.state)
        self._settings = settings
        self._connection = connection
        self._worker = worker
        self._transfers, self._inbox = transfers, inbox
        self._blobs, self._models = BlobDirectory(state / "blobs"), BlobDirectory(state / "models")

    def answer(self, task: EvaluationTask) -> None:
        """Score a global model and this device's own, and report the scores, or why there are none.

        Makes way for other work, to go on afterwards. Outside the training window it answers nothing: the coordinator
        asks again when the device connects.
        """
        try:
            found, metric = self._score(task)
        except WindowClosed as reason:
            _log.info("%s: not now: %s", task, reason)
            return
        except Superseded as reason:
            if self._inbox.has_more_urgent():
                self._inbox.put_back(task)
            _log.info("%s: interrupted: %s", task, reason)
            return
        except MoonfedError as error:
            self._decline(task, str(error), logging.WARNING if isinstance(error, UntrustedBundle) else logging.INFO)
        except Exception as error:
            if not self._transfers.ending.is_set():
                _log.exception("%s: unexpected error on this device", task)
            self._decline(task, f"unexpected error on the device: {type(error).__name__}")
        else:
            _log.info("%s: %s", task, _described(found, metric))
            self._report(task, found)

    def _decline(self, task: EvaluationTask, reason: str, level: int = logging.INFO) -> None:
        if not self._transfers.ending.is_set():
            _log.log(level, "%s: declined: %s", task, reason)
            self._report(task, without_paths(reason, [self._settings.data, self._settings.state]))

    def _report(self, task: EvaluationTask, answer: HoldoutScores | str) -> None:
        try:
            self._transfers.call(lambda: self._connection.report_evaluation(task, answer))
        except Superseded as reason:  # the coordinator asks again
            _log.info("%s: not reported: %s", task, reason)
        except REJECTIONS as error:
            _log.info("%s: the coordinator did not accept the answer: %s", task, error)

    def _score(self, task: EvaluationTask) -> tuple[HoldoutScores, str]:
        """Return the scores and their metric's name; raises MoonfedError, Superseded or WindowClosed."""
        self._settings.require_data()
        self._transfers.seconds_open()
        state, signature = Path(self._settings.state), require_signature(task.signature, task.manifest)
        content = self._transfers.fetch_untrusted(signature, self._blobs, should_continue=self._may_fetch)
        statement = accept(state, content, task.manifest.sha256, time.time())
        store_blob(self._blobs, content)
        manifest_file = self._fetch(task.manifest, self._blobs)
        manifest = Manifest.from_bytes(manifest_file.read_bytes())
        require_name(statement, manifest.name)
        interface = require_runnable(manifest, self._settings.plan_interfaces, task.required_plan)
        plan = manifest.files[PLAN_NAMES[interface]]
        _require_size(task.model, manifest)
        self._require_disk([plan, *parts_of(manifest).values()], task.model)
        local = find_local_model(state, task.run, manifest=task.manifest.sha256, seed=task.seed)
        own = find_local_model(state, task.run, PERSONAL, manifest=task.manifest.sha256, seed=task.seed)
        keep_only(self._models.root, {task.model.sha256})  # not the parts of models of other evaluations
        plan_file, model_file = self._fetch(plan, self._blobs), self._fetch(task.model, self._models)
        parts = fetch_parts(self._transfers, manifest, self._blobs, self._may_fetch)
        try:
            found = self._worker.score(
                ScoreJob(
                    manifest_file=str(manifest_file),
                    plan_file=str(plan_file),
                    plan_interface=interface,
                    model=str(model_file),
                    parts=parts,
                    personal=str(own) if own else None,
                    local_model=str(local) if local else None,
                ),
                self._may_continue,
            )
        finally:
            model_file.unlink(missing_ok=True)
        if found is None:
            self._transfers.seconds_open()
            raise Superseded("other work has precedence")
        return found, manifest.metric.name

    def _may_continue(self) -> bool:
        return self._transfers.may_continue() and not self._inbox.has_more_urgent()

    def _may_fetch(self) -> bool:
        return not self._inbox.has_more_urgent()

    def _fetch(self, ref: BlobRef, blobs: BlobDirectory) -> Path:
        file = self._transfers.fetch(ref, blobs, should_continue=self._may_fetch)
        os.utime(file)  # for collect_garbage
        return file

    def _require_disk(self, kept: list[BlobRef], model: BlobRef) -> None:
        pairs = [*((ref, self._blobs) for ref in kept), (model, self._models)]
        require_free(sum(ref.size for ref, blobs in pairs if not blobs.has(ref)), self._models, "the evaluation")


def _require_size(model: BlobRef, manifest: Manifest) -> None:
    """Raise InvalidInput for a file that is larger than its tensors can be; it could fill this device's disk."""
    limit = FILE_HEADER + ITEM_SIZE * model_size(manifest.tensors)
    if model.size > limit:
        raise InvalidInput(f"the model of the evaluation has {model.size} bytes; it must be at most {limit}")


def _described(found: HoldoutScores, metric: str) -> str:
    own = "" if found.local_score is None else f", {found.local_score:.4g} with this device's own model"
    return f"{metric} {found.score:.4g} on {found.samples} held-out samples{own}"
