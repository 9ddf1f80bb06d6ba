"""A client of the coordinator's Control service: a run's rounds, files, events and metrics."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.bundle.manifest import WEIGHTS_FILE, Manifest
from moonfed.control.held_out_score import HeldOutScore
from moonfed.errors import MoonfedError, NotFound, Unavailable, UntrustedBundle
from moonfed.signing.bundle_signature import MAX_BYTES, Check, require_name, signed_by
from moonfed.signing.key_files import user_trust
from moonfed.transport import client as transport
from moonfed.transport.operator_options import open_connection
from moonfed.transport.upload import upload
from moonfed.v1 import control_pb2, control_pb2_grpc

MODELS_NAMED = 10  # in an error message
ATTEMPTS = 3  # of an idempotent call before the coordinator counts as unavailable


@dataclass(frozen=True, slots=True)
class GlobalModel:
    """A global model of a run."""

    round: int  # 0: the run's initial weights
    ref: BlobRef
    metrics: Mapping[str, float]


class CoordinatorClient:
    """A client for reading runs; fetched files are stored in `blobs`."""

    def __init__(
        self,
        control: control_pb2_grpc.ControlStub,
        blobs: BlobDirectory,
        explain: Callable[[], MoonfedError],
        check: Check,
    ) -> None:
        """`check`: verifies a bundle's signature before anything else of the bundle is fetched."""
        self._control = control
        self._blobs = blobs
        self._explain = explain
        self._check = check

    def get(self, run: str) -> control_pb2.Run:
        """Return a run's current state; raise NotFound."""
        return transport.call(
            self._control.GetRun, control_pb2.GetRunRequest(run=run), attempts=ATTEMPTS, explain=self._explain
        )

    def rounds(self, run: str) -> list[control_pb2.Round]:
        """List the run's committed and abandoned rounds, oldest first."""
        return transport.call(
            lambda request, timeout: list(self._control.ListRounds(request, timeout=timeout)),
            control_pb2.ListRoundsRequest(run=run),
            attempts=ATTEMPTS,
            explain=self._explain,
        )

    def manifest(self, run: control_pb2.Run) -> Manifest:
        """Fetch the manifest of the run's bundle; UntrustedBundle if the bundle's signature is rejected."""
        statement = self._check(self._signature(run), run.manifest.sha256)
        manifest = Manifest.from_bytes(self.fetch(transport.from_message(run.manifest)).read_bytes())
        require_name(statement, manifest.name)
        return manifest

    def _signature(self, run: control_pb2.Run) -> bytes:
        if not run.HasField("signature"):
            return b""
        ref = transport.from_message(run.signature)
        if ref.size > MAX_BYTES:
            raise UntrustedBundle(f"the bundle's signature has {ref.size} bytes; it must be at most {MAX_BYTES}")
        return self.fetch(ref).read_bytes()

    def fetch(self, ref: BlobRef) -> Path:
        """Return a verified file of the run, fetching it unless it is present."""
        try:
            return transport.fetch_blob(self._control.Fetch, ref, self._blobs)
        except Unavailable as error:
            raise self._explain() from error

    def remove(self, ref: BlobRef) -> None:
        """Remove a fetched file."""
        self._blobs.path(ref.sha256).unlink(missing_ok=True)

    def watch(self, run: str) -> Iterator[control_pb2.RunEvent]:
        """Yield a run's events; raise Unavailable when the connection breaks or this client is too slow."""
        try:
            yield from self._control.WatchRun(control_pb2.WatchRunRequest(run=run))
        except grpc.RpcError as error:
            raise transport.explained(error, self._explain) from error

    def evaluations(self, run: str) -> list[control_pb2.Evaluation]:
        """List the evaluations of the run's global models, by round."""
        return transport.call(
            lambda request, timeout: list(self._control.ListEvaluations(request, timeout=timeout)),
            control_pb2.ListEvaluationsRequest(run=run),
            attempts=ATTEMPTS,
            explain=self._explain,
        )

    def scores(self, run: str, test_set: str) -> dict[int, HeldOutScore]:
        """Return the scores of the run's global models on a test set, by round."""
        return {
            found.round: HeldOutScore.from_message(found.test_set)
            for found in self.evaluations(run)
            if found.HasField("test_set") and found.test_set.test_set == test_set
        }

    def record_score(self, run: str, round_number: int, score: HeldOutScore) -> None:
        """Record the score of a global model with the run."""
        request = control_pb2.RecordScoreRequest(run=run, round=round_number, score=score.to_message())
        transport.call(self._control.RecordScore, request, attempts=ATTEMPTS, explain=self._explain)

    # Releases

    def releases(self, name: str) -> list[control_pb2.Release]:
        """Return all versions of a released model, oldest first; none for an unknown name."""
        request = control_pb2.ListReleasesRequest(name=name)
        try:
            reply = transport.call(self._control.ListReleases, request, attempts=ATTEMPTS, explain=self._explain)
        except NotFound:
            return []
        return list(reply.releases)

    def upload(self, files: Mapping[BlobRef, Path]) -> None:
        """Upload the files that the coordinator lacks."""
        upload(self._control, files, self._explain)

    def create_release(self, manifest: BlobRef, signature: BlobRef) -> control_pb2.Release:
        """Create the release of an uploaded manifest; a repeated call changes nothing."""
        request = control_pb2.CreateReleaseRequest(manifest=manifest.sha256, signature=signature.sha256)
        return transport.call(self._control.CreateRelease, request, attempts=ATTEMPTS, explain=self._explain)


def has_ended(run: control_pb2.Run) -> bool:
    """Return True unless the run is running or paused."""
    return run.status not in (control_pb2.RUN_STATUS_RUNNING, control_pb2.RUN_STATUS_PAUSED)


def global_models(run: control_pb2.Run, rounds: Sequence[control_pb2.Round], manifest: Manifest) -> list[GlobalModel]:
    """List the run's global models so far, oldest first."""
    models = [GlobalModel(0, _initial_model(run, manifest), dict(run.initial_metrics))]
    # Other rounds' models were deleted or never existed.
    committed = (entry for entry in rounds if entry.HasField("model"))
    models += [
        GlobalModel(entry.round, transport.from_message(entry.model), dict(entry.metrics)) for entry in committed
    ]
    return models


def global_model(
    run: control_pb2.Run, rounds: Sequence[control_pb2.Round], manifest: Manifest, round_number: int | None
) -> GlobalModel:
    """Return the global model after that round, by default the newest; raise NotFound."""
    models = global_models(run, rounds, manifest)
    if round_number is None:
        return models[-1]
    for model in models:
        if model.round == round_number:
            return model
    if 0 <= round_number <= run.round:
        kept = ", ".join(str(model.round) for model in models[-MODELS_NAMED:])
        raise NotFound(
            f"the global model of round {round_number} of run {run.run!r} was deleted; the newest are {kept}",
            field="round",
            value=round_number,
        )
    raise NotFound(
        f"run {run.run!r} has no global model of round {round_number}; its newest is {models[-1].round}",
        field="run",
        value=run.run,
    )


@contextmanager
def connect(
    identity: Path, *, insecure: bool, address: str | None, trust: Path | None = None
) -> Iterator[CoordinatorClient]:
    """Connect with an operator's identity, or in plaintext on this machine; fetched files are deleted at the end.

    `trust`: the trust file that bundles are verified with; by default, this user's.
    """
    check = signed_by(user_trust(trust))
    with (
        tempfile.TemporaryDirectory(prefix="moonfed-") as directory,
        open_connection(identity, insecure=insecure, address=address) as connection,
    ):
        stub = control_pb2_grpc.ControlStub(connection.channel)
        yield CoordinatorClient(stub, BlobDirectory(Path(directory)), connection.explain, check)


def _initial_model(run: control_pb2.Run, manifest: Manifest) -> BlobRef:
    if run.HasField("initial_model"):
        return transport.from_message(run.initial_model)
    return transport.from_message(run.model) if run.round == 0 else manifest.files[WEIGHTS_FILE]
