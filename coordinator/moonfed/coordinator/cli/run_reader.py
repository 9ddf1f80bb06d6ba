"""Reading of a run for export: parameters, series, pictures and files, through the Control service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.bundle.manifest import GRAPH_FILE, MANIFEST_BYTES, MANIFEST_FILE, Manifest
from moonfed.client import Coordinator, DeviceEvaluation, Evaluation, Release, Round, Run
from moonfed.control.confusion_picture import draw_confusion
from moonfed.control.held_out_score import HeldOutScore
from moonfed.coordinator.trackers.curve_picture import draw_curves
from moonfed.coordinator.trackers.snapshot import DevicePoint, Point, RunSnapshot
from moonfed.errors import Corrupt, InvalidInput, NotFound, UntrustedRelease, VersionMismatch
from moonfed.files import link_or_copy
from moonfed.models.release_manifest import (
    CARD_FILE,
    EVALUATION_FILE,
    FLOAT32,
    MODEL_FILE,
    ReleaseManifest,
    verify_manifest,
)
from moonfed.models.release_manifest import MAX_BYTES as RELEASE_BYTES
from moonfed.registry import Value
from moonfed.signing.bundle_signature import MAX_BYTES, require_name, signed_by
from moonfed.signing.trust import Trust

NEWEST = 20  # attempts that a short reading asks for
IDENTITY = 16  # characters
EVALUATED = 5  # newest rounds; an evaluator may be some rounds late


class RunReader:
    """Reader of one run."""

    def __init__(
        self, client: Coordinator, run: str, scratch: Path, *, devices: bool, trust: Trust | None = None
    ) -> None:
        """`scratch`: a directory for pictures and files, of this reader alone.

        `trust`: the keys that must have signed the files; None: files are left out.
        """
        self._client = client
        self._name = run
        self._scratch = scratch
        self._devices = devices
        self._trust = trust
        self._blobs = BlobDirectory(scratch / "blobs")
        self._rounds: dict[tuple[int, int], Round] = {}
        self._manifest: Manifest | None = None
        self._run = self._get_run()
        self._evaluations: list[Evaluation] = []
        self.identity = _identity(self._run)

    def read(self, *, whole: bool = True) -> RunSnapshot:
        """Read the run; unless `whole`, only its newest rounds are read again, and no evaluations."""
        self._run = self._get_run()
        for found in self._client.rounds(self._name, last=0 if whole or not self._rounds else NEWEST):
            self._rounds[found.round, found.attempt] = found
        if whole:
            self._evaluations = self._client.evaluations(self._name)
        return RunSnapshot(
            run=self._name,
            identity=self.identity,
            status=self._run.status,
            created=self._run.created.timestamp(),
            parameters=self._parameters(),
            points=tuple(self._points()),
            metric=self._run.metric.name,
            device_points=tuple(self._device_points()) if self._devices else (),
        )

    def with_files(self, snapshot: RunSnapshot) -> RunSnapshot:
        """Add files, which are fetched and verified now, and pictures unless matplotlib is missing."""
        files = self.files()
        pictures = self._pictures(snapshot) if find_spec("matplotlib") else {}
        return replace(snapshot, pictures=pictures, files=files)

    def lacks_metrics(self) -> bool:
        """Return True while the newest model lacks metrics that an evaluator has recorded for the ones before it."""
        committed = [found for _, found in sorted(self._rounds.items()) if found.status == "committed"]
        recent = {name for found in committed[-EVALUATED:] for name in found.metrics}
        return bool(committed) and not recent <= set(committed[-1].metrics)

    def _get_run(self) -> Run:
        return self._client.run(self._name)

    # Parameters

    def _parameters(self) -> dict[str, Value]:
        settings = self._run.settings.to_document()
        manifest = self._bundle()
        bundle = _bundle_parameters(manifest) if manifest else {}
        own: dict[str, Any] = {"run": self._name, "method": self._run.method, "bundle": self._run.manifest.sha256}
        return dict(_flat({**own, **bundle, "settings": settings}))

    def _bundle(self) -> Manifest | None:
        """Return the manifest; None if the coordinator cannot read it any more."""
        if self._manifest is None:
            try:
                content = self._client.connection.fetch(self._run.manifest, MANIFEST_BYTES)
                self._manifest = Manifest.from_bytes(content)
            except (Corrupt, InvalidInput, NotFound, VersionMismatch):
                return None
        return self._manifest

    # Series

    def _points(self) -> Iterator[Point]:
        created = self._run.created.timestamp()
        for name, value in self._run.initial_metrics.items():
            yield Point(0, name, value, created)
        for found, seconds in self._timed():
            if found.status == "committed":
                for name, value in (dict(found.metrics) | _round_values(found)).items():
                    yield Point(found.round, name, value, seconds)
        times = self._times()
        for evaluation in self._summaries():
            seconds = times.get(evaluation.round, created)
            for name in ("median", "worst_decile"):
                yield Point(
                    evaluation.round, f"device_{evaluation.metric.name}_{name}", getattr(evaluation, name), seconds
                )

    def _device_points(self) -> Iterator[DevicePoint]:
        for found, seconds in self._timed():
            if found.status == "committed":
                counted, incidents = set(found.counted), {incident.device for incident in found.incidents}
                for device in sorted({*found.counted, *found.missing}):
                    yield DevicePoint(found.round, device, "counted", float(device in counted), seconds)
                    if device in incidents:
                        yield DevicePoint(found.round, device, "incident", 1.0, seconds)
        times = self._times()
        for evaluation in self._summaries():
            seconds = times.get(evaluation.round, self._run.created.timestamp())
            for score in filter(lambda found: found.samples, evaluation.scores):
                values = {"": score.score, "local_": score.local_score}
                for prefix, value in values.items():
                    if value is not None:
                        name = f"{prefix}{evaluation.metric.name}"
                        yield DevicePoint(evaluation.round, score.device, name, value, seconds)

    def _timed(self) -> Iterator[tuple[Round, float]]:
        """Yield attempts with their end: the run's start plus the seconds of all attempts until then."""
        seconds = self._run.created.timestamp()
        for _, found in sorted(self._rounds.items()):
            seconds += found.seconds
            yield found, seconds

    def _times(self) -> dict[int, float]:
        return {found.round: seconds for found, seconds in self._timed()}

    def _summaries(self) -> list[DeviceEvaluation]:
        found = [evaluation.on_devices for evaluation in self._evaluations if evaluation.on_devices]
        return [evaluation for evaluation in found if evaluation.scores and evaluation.closed]

    # Pictures and files

    def _pictures(self, snapshot: RunSnapshot) -> dict[str, Path]:
        directory = self._scratch / "pictures"
        directory.mkdir(exist_ok=True)
        pictures = {}
        if draw_curves(directory / "curves.png", snapshot):
            pictures["curves"] = directory / "curves.png"
        for round_, score in self._scores().values():
            name = f"confusion-{score.test_set}"
            pictures[name] = directory / f"{name}.png"
            draw_confusion(pictures[name], score, f"run {self._name}, model {round_}, test set {score.test_set}")
        return pictures

    def _scores(self) -> dict[str, tuple[int, HeldOutScore]]:
        """Return the newest model's results on each test set that have a confusion matrix."""
        newest = {found.score.test_set: (found.round, found.score) for found in self._evaluations if found.score}
        return {name: found for name, found in newest.items() if found[1].confusion}

    def files(self) -> dict[str, Path]:
        """Fetch the newest release of the run, or else its bundle's manifest and graph.

        Raises UntrustedRelease or UntrustedBundle, before a model is fetched, unless trusted keys have signed them.
        """
        if self._trust is None:
            return {}
        releases = self._client.releases()
        own = [release for release in releases if release.run == self._name and release.created >= self._run.created]
        if own:
            manifest = self._verified_release(max(own, key=lambda release: release.created))
            wanted = (MODEL_FILE, CARD_FILE, EVALUATION_FILE)
            refs = {name: ref for name, ref in manifest.files(FLOAT32).items() if name in wanted}
            refs |= manifest.pictures.get(FLOAT32, {})
            return self._named(f"release/{manifest.name}-{manifest.version}", refs)
        bundle = self._bundle()
        if bundle is None:
            return {}
        self._verify_bundle(bundle)
        refs = {MANIFEST_FILE: self._run.manifest, GRAPH_FILE: bundle.files[GRAPH_FILE]}
        return self._named("bundle", refs)

    def _verified_release(self, release: Release) -> ReleaseManifest:
        """Return a release's manifest; UntrustedRelease unless trusted keys signed it as this release of this run."""
        content = self._client.connection.fetch(release.manifest, RELEASE_BYTES)
        manifest, _ = verify_manifest(content, self._signature(release), now=time.time(), trust=self._trust)
        if (manifest.name, manifest.version, manifest.run) != (release.name, release.version, self._name):
            raise UntrustedRelease(
                f"the coordinator sent version {manifest.version} of {manifest.name!r}, made from run "
                f"{manifest.run!r}, as version {release.version} of {release.name!r}, made from run {self._name!r}"
            )
        return manifest

    def _verify_bundle(self, bundle: Manifest) -> None:
        """Raise UntrustedBundle unless trusted keys signed the run's bundle."""
        statement = signed_by(self._trust)(self._signature(self._run), self._run.manifest.sha256)
        require_name(statement, bundle.name)

    def _signature(self, signed: Release | Run) -> bytes:
        """Return a signature file; empty if there is none."""
        return self._client.connection.fetch(signed.signature, MAX_BYTES) if signed.signature else b""

    def _named(self, folder: str, refs: Mapping[str, BlobRef]) -> dict[str, Path]:
        found = {}
        for name, ref in refs.items():
            target = self._scratch / "files" / folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            link_or_copy(self._fetch(ref), target)
            found[f"{folder}/{name}"] = target
        return found

    def _fetch(self, ref: BlobRef) -> Path:
        return self._client.connection.fetch_file(ref, self._blobs)


def _identity(run: Run) -> str:
    """Return what tells this run from every other one of its name."""
    facts = f"{run.run} {run.created.timestamp()!r} {run.manifest.sha256}"
    return ref_of_bytes(facts.encode()).sha256[:IDENTITY]


def _bundle_parameters(manifest: Manifest) -> dict[str, Any]:
    document = {
        "model": manifest.model,
        "augmentation": manifest.augmentation,
        "training": manifest.training.to_document(),
        "server_rule": manifest.server_rule.to_document(),
    }
    return document | ({"schedules": json.dumps(dict(manifest.schedules))} if manifest.schedules else {})


def _round_values(found: Round) -> dict[str, float]:
    """Return the values of a committed round that every run has; phases and bytes, where they were measured."""
    phases = {f"{phase}_seconds": seconds for phase, seconds in found.phases.items()}
    sizes = {"received_bytes": found.received_bytes, "sent_bytes": found.sent_bytes}
    return {
        **phases,
        **{name: size for name, size in sizes.items() if size},
        "round_seconds": found.seconds,
        "updates": found.updates,
        "missing": len(found.missing),
        "incidents": len(found.incidents),
        "attempt": found.attempt,
    }


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Value]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, bool | int | float | str) else str(value)
