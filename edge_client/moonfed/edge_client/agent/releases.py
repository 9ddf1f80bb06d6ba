"""Target releases: verified, compared with this device's data and its current version, and installed, or declined."""

from __future__ import annotations

import logging
import shutil
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.bundle.manifest import MANIFEST_FILE, PERSONAL, Manifest
from moonfed.edge_client.agent.compatibility import require_runnable
from moonfed.edge_client.agent.connection import FleetConnection
from moonfed.edge_client.agent.fingerprint import DeviceFingerprint
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.redact import without_paths
from moonfed.edge_client.agent.release_gate import SIGNIFICANCE, Comparison, compare, is_worse
from moonfed.edge_client.agent.transfers import FETCH_ERRORS, REJECTIONS, BlobTransfers, Superseded, WindowClosed
from moonfed.edge_client.agent.worker_process import WorkerProcess
from moonfed.edge_client.resources.free_disk import require_space
from moonfed.edge_client.state.local_models import find_local_model
from moonfed.edge_client.state.model_files import ModelFiles, chosen_plan, files_of, onnx_runtime_is_installed
from moonfed.edge_client.state.release_files import NewRelease, StoredRelease
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.edge_client.state.trust import accept_release
from moonfed.edge_client.worker.messages import SampleCounts, WorkerSettings
from moonfed.errors import (
    InvalidInput,
    MoonfedError,
    TrainingFailed,
    UnsafePlan,
    UntrustedBundle,
    UntrustedRelease,
    VersionMismatch,
)
from moonfed.fleet.target_release import Outcome, ReleaseReport, TargetRelease
from moonfed.models.release_manifest import ReleaseManifest
from moonfed.models.repository import MODEL_FILE
from moonfed.tasks.figure import SHARES

UNUSED_SECONDS = 24 * 3600.0  # after which a file of an abandoned target is deleted
REASON_LENGTH = 1000  # characters
UNDELIVERABLE: tuple[type[Exception], ...] = (Superseded, *REJECTIONS)  # reports are not retried after these
DECLINED = (InvalidInput, UnsafePlan, UntrustedBundle, UntrustedRelease, VersionMismatch)
Fetched = TypeVar("Fetched")

_log = logging.getLogger(__name__)


class _FetchFailed(MoonfedError):
    """The coordinator does not have, or does not give, a file of the release."""


class ReleaseInstaller:
    """Follows target releases. All calls but `repair` must come from the executor's thread."""

    def __init__(
        self,
        settings: WorkerSettings,
        connection: FleetConnection,
        worker: WorkerProcess,
        inbox: Inbox,
        transfers: BlobTransfers,
        fingerprint: DeviceFingerprint,
    ) -> None:
        state = Path(settings.state)
        self._settings = settings
        self._connection = connection
        self._worker = worker
        self._inbox = inbox
        self._transfers = transfers
        self._fingerprint = fingerprint
        self._store = ReleaseStore(state)
        self._blobs = BlobDirectory(state / "release-blobs")  # until they are installed
        self._unreported: list[ReleaseReport] = []

    def repair(self) -> None:
        """Go back to the previous version of each model whose current one is damaged."""
        try:
            self._store.remove_leftovers()
            for name in self._store.names():
                self._repair(name)
        except OSError as error:
            _log.warning("cannot check the installed releases: %s", error)

    def _repair(self, name: str) -> None:
        deployment, version = self._store.deployment(name), self._store.installed(name).version
        if damage := self._store.repair(name):
            found = self._store.installed(name)
            now = f"version {found.version} is in use again" if found.version else "no version is left"
            _log.error("model %s: version %d is damaged (%s); %s", name, version, damage, now)
            self._unreported.append(self._report(name, deployment, version, "fell-back", reason=damage))

    def report_repairs(self) -> None:
        """Report what `repair` did."""
        while self._unreported:
            self._send(replace(self._unreported.pop(0), fingerprint=self._fingerprint.announced))

    def refused(self) -> list[str]:
        """Return the models of which this device has refused a newer deployment than that of its current version."""
        return [name for name in self._store.names() if self._store.refused(name)]

    def process(self, target: TargetRelease) -> Outcome | None:
        """Install a target and predict with it from now on, or decline it; report and return the outcome.

        None: this device will be sent the target again.
        """
        scores: Comparison | None = None
        outcome: Outcome = "installed"
        reason = ""
        try:
            scores = self._follow(target)
            reason = _drop(scores)
            if target.version and not self._settings.data:
                reason = "not compared, because this device has no data"
        except Superseded as superseded:
            self._give_way(target, superseded)
            return None
        except WindowClosed as closed:
            _log.info("%s: fetching it later: %s", target, closed)
            return None
        except _Worse as worse:
            outcome = "declined"
            reason = str(worse)
            scores = worse.scores
        except DECLINED as error:
            outcome, reason = "declined", str(error)
        except (MoonfedError, OSError) as error:
            outcome, reason = "failed", str(error)
        except Exception as error:
            if not self._transfers.ending.is_set():
                _log.exception("%s: unexpected error on this device", target)
            outcome, reason = "failed", f"unexpected error on the device: {type(error).__name__}"
        if not self._transfers.ending.is_set():
            self._conclude(target, outcome, reason, scores)
        return outcome

    def _give_way(self, target: TargetRelease, reason: Superseded) -> None:
        """Let more urgent work go first, or drop the target for a newer one."""
        if self._inbox.superseded() or self._transfers.ending.is_set():
            _log.info("%s: dropped: %s", target, reason)
        else:
            _log.info("%s: postponed; more urgent work goes first", target)
            self._inbox.put_back(target)

    def _conclude(self, target: TargetRelease, outcome: Outcome, reason: str, scores: Comparison | None) -> None:
        level = logging.INFO if outcome == "installed" else logging.WARNING
        done = "done" if outcome == "installed" and not target.version else outcome
        _log.log(level, "%s: %s%s", target, done, f": {reason}" if reason else "")
        report = self._report(target.name, target.deployment, target.version, outcome, reason=reason, scores=scores)
        if self._send(report):
            self._store.note_reported(target.name, target.deployment)
        self._delete_blobs(target)

    def _follow(self, target: TargetRelease) -> Comparison | None:
        """Install a target, unless it is installed; raise the reason against it."""
        if target.version == 0:
            self._store.remove(target.name)
            return None
        installed = self._store.find(target.name, self._store.installed(target.name).version)
        if installed and installed.manifest.version == target.version:
            _require_same_variant(installed, target)
            self._store.switch(target.name, target.version, target.deployment)
            return None
        manifest_file, manifest = self._verified(target)
        retained = self._store.find(target.name, target.version)
        if target.roll_back and retained and (retained.ref, retained.variant) == (target.manifest, target.variant):
            self._store.switch(target.name, target.version, target.deployment)
            return None
        return self._install(target, manifest_file, manifest, installed)

    def _verified(self, target: TargetRelease) -> tuple[Path, ReleaseManifest]:
        """Return the target's manifest; raise UntrustedRelease if this device does not accept it."""
        assert target.manifest and target.signature  # noqa: S101, PT018 - checked by TargetRelease
        signature, content = (self._untrusted(ref) for ref in (target.signature, target.manifest))
        manifest = accept_release(Path(self._settings.state), content, signature, time.time())
        if (manifest.name, manifest.version) != (target.name, target.version):
            raise UntrustedRelease(
                f"the coordinator sent version {manifest.version} of {manifest.name!r} as version {target.version} of "
                f"{target.name!r}"
            )
        return self._blobs.path(self._blobs.put_bytes(content).sha256), manifest

    def _install(
        self, target: TargetRelease, manifest_file: Path, manifest: ReleaseManifest, current: StoredRelease | None
    ) -> Comparison | None:
        _require_same_form(manifest, current)
        wanted = manifest.files(target.variant)
        plan = {} if onnx_runtime_is_installed() else dict(manifest.plan)
        counts = self._worker.read_samples(manifest.input, manifest.target)
        if plan:
            bundle = Manifest.from_bytes(self._fetch(plan[MANIFEST_FILE]).read_bytes())
            require_runnable(bundle, self._settings.plan_interfaces)
        require_space("the release", {*wanted.values(), *plan.values()}, self._blobs)
        files, plan_files = self._fetch_all(wanted), self._fetch_all(plan)
        own = self._own(manifest)
        model = ModelFiles(
            input=manifest.input,
            target=manifest.target,
            onnx=files[MODEL_FILE],
            plan=chosen_plan(plan_files, self._settings.plan_interfaces) if plan_files else None,
            personal=manifest.personal,
            own=own,
        )
        scores = self._reported(manifest, lambda: self._compare(target, model, current, counts))
        accepted = self._report(target.name, target.deployment, target.version, "accepted", scores=scores)
        self._send(accepted)
        self._store.install(
            NewRelease(
                manifest=manifest,
                manifest_file=manifest_file,
                variant=target.variant,
                deployment=target.deployment,
                files=files,
                plan_files=plan_files,
                own=own,
            )
        )
        return scores

    def _own(self, manifest: ReleaseManifest) -> Path | None:
        """Return this device's own tensors of the model's run; None if it has none, or the model needs none."""
        if not manifest.personal:
            return None
        bundle = manifest.plan[MANIFEST_FILE].sha256
        own = find_local_model(Path(self._settings.state), manifest.run, PERSONAL, manifest=bundle, seed=None)
        if own is None:
            _log.info("this device has not trained run %s; its model begins with the initial personal tensors",
                      manifest.run)  # fmt: skip
        return own

    def _compare(
        self, target: TargetRelease, model: ModelFiles, current: StoredRelease | None, counts: SampleCounts
    ) -> Comparison | None:
        """Try the model, and compare it with the current version on the holdout; raise _Worse if it is worse."""
        errors = self._try(model, counts)
        if not counts.held_out or target.roll_back:
            return None
        found = compare(model.target.kind, errors, self._score_current(current, counts))
        if is_worse(found, target.max_drop):
            raise _Worse(target, found)
        return found

    def _reported(self, manifest: ReleaseManifest, comparison: Callable[[], Comparison | None]) -> Comparison | None:
        """Compare, and return what may be reported: nothing of a version whose run has differential privacy."""
        if not manifest.private:
            return comparison()
        try:
            found = comparison()
        except _Worse as worse:
            _log.warning("version %d of %s: not reported: %s", manifest.version, manifest.name, worse)
            raise InvalidInput("the version is too much worse than the current one on the samples held out") from None
        if found:
            _log.info("version %d of %s: not reported: %s", manifest.version, manifest.name, found)
        return None

    def _try(self, model: ModelFiles, counts: SampleCounts) -> array[float]:
        try:
            return self._worker.score_release(model, counts)
        except UnsafePlan:
            raise
        except MoonfedError as error:
            raise TrainingFailed(f"the model does not work on this device: {error}") from error

    def _score_current(self, current: StoredRelease | None, counts: SampleCounts) -> array[float] | None:
        if current is None:
            return None
        try:
            return self._worker.score_release(files_of(current, self._settings.plan_interfaces), counts)
        except (MoonfedError, OSError) as error:
            if not self._transfers.ending.is_set():
                _log.warning("version %d of %s cannot be compared: %s", current.manifest.version,
                            current.manifest.name, error)  # fmt: skip
            return None

    def _fetch_all(self, refs: Mapping[str, BlobRef]) -> dict[str, Path]:
        return {name: self._fetch(ref) for name, ref in refs.items()}

    def _fetch(self, ref: BlobRef) -> Path:
        return self._fetched(lambda: self._transfers.fetch(ref, self._blobs, should_continue=self._may_fetch))

    def _untrusted(self, ref: BlobRef) -> bytes:
        return self._fetched(lambda: self._transfers.fetch_untrusted(ref, self._blobs, should_continue=self._may_fetch))

    def _may_fetch(self) -> bool:
        return not self._inbox.has_more_urgent()

    def _fetched(self, fetch: Callable[[], Fetched]) -> Fetched:
        try:
            return fetch()
        except WindowClosed:
            raise
        except FETCH_ERRORS as error:
            raise _FetchFailed(str(error)) from error

    def _report(
        self,
        name: str,
        deployment: int,
        version: int,
        outcome: Outcome,
        *,
        reason: str = "",
        scores: Comparison | None = None,
    ) -> ReleaseReport:
        public = without_paths(reason, [self._settings.data, self._settings.state])
        return ReleaseReport(
            device=self._connection.device,
            name=name,
            deployment=deployment,
            version=version,
            outcome=outcome,
            reason=public[:REASON_LENGTH],
            score=scores.score if scores else None,
            current_score=scores.current_score if scores else None,
            samples=scores.samples if scores else 0,
            installed=self._store.installed(name),
            fingerprint=self._fingerprint.announced,
        )

    def _send(self, report: ReleaseReport) -> bool:
        """Report to the coordinator; return False if it does not take the report, so that it will ask again."""
        try:
            self._transfers.call(lambda: self._connection.report_release(report))
        except UNDELIVERABLE as error:
            if not self._transfers.ending.is_set():
                _log.info("release %s: cannot report to the coordinator: %s", report.name, error)
            return False
        return True

    def _delete_blobs(self, target: TargetRelease) -> None:
        """Delete the files that were fetched for a target, and old ones of targets that were given up."""
        try:
            for directory in self._blobs.root.iterdir():
                if directory.name != "incoming":
                    shutil.rmtree(directory, ignore_errors=True)
            for ref in self._blobs.unused_since(UNUSED_SECONDS):
                self._blobs.delete(ref.sha256)
        except OSError as error:
            _log.warning("%s: cannot remove its temporary files: %s", target, error)


class _Worse(InvalidInput):
    """The target is worse on the holdout than the current version."""

    def __init__(self, target: TargetRelease, scores: Comparison) -> None:
        unit = "points" if scores.kind in SHARES else "percent"
        super().__init__(
            f"{scores} (below {SIGNIFICANCE:g}), and {scores.drop:.1f} {unit} are more than max-drop, "
            f"{target.max_drop:g}"
        )
        self.scores = scores


def _drop(scores: Comparison | None) -> str:
    """Describe a drop that the gate permits; empty if there is none."""
    return str(scores) if scores and scores.lost > scores.gained else ""


def _require_same_variant(installed: StoredRelease, target: TargetRelease) -> None:
    """Raise InvalidInput if the target's version is installed as another variant: its directory never changes."""
    if (installed.variant, installed.ref) != (target.variant, target.manifest):
        raise InvalidInput(
            f"version {target.version} is installed here as variant {installed.variant}, and installed versions never "
            "change; deploy another version",
            field="version",
            value=target.version,
        )


def _require_same_form(manifest: ReleaseManifest, current: StoredRelease | None) -> None:
    """Raise InvalidInput unless all versions of a name take the same input and predict the same targets."""
    if current is None:
        return
    for field, new, old in (
        ("input", manifest.input, current.manifest.input),
        (manifest.target.noun, manifest.target, current.manifest.target),
    ):
        if new != old:
            raise InvalidInput(
                f"{field} of version {manifest.version} differs from that of version {current.manifest.version}"
            )
