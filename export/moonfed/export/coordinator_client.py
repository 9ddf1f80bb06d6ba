"""A client of the coordinator's Control service: a run's rounds, files, events and metrics."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.bundle.manifest import Manifest
from moonfed.client import Coordinator, Release, Round, Run
from moonfed.control.codec import to_message
from moonfed.control.held_out_score import HeldOutScore
from moonfed.errors import NotFound, UntrustedBundle
from moonfed.signing.bundle_signature import MAX_BYTES, Check, require_name, signed_by
from moonfed.signing.key_files import user_trust
from moonfed.transport.operator_connection import Endpoint
from moonfed.v1 import control_pb2

MODELS_NAMED = 10  # in an error message


@dataclass(frozen=True, slots=True)
class GlobalModel:
    """A global model of a run."""

    round: int  # 0: the run's initial weights
    ref: BlobRef
    metrics: Mapping[str, float]


class CoordinatorClient(Coordinator):
    """A client for reading and scoring runs; fetched files are stored in `blobs`."""

    def __init__(self, endpoint: Endpoint, blobs: BlobDirectory, check: Check) -> None:
        """`check`: verifies a bundle's signature before anything else of the bundle is fetched."""
        super().__init__(endpoint)
        self._blobs = blobs
        self._check = check

    def manifest(self, run: Run) -> Manifest:
        """Fetch the manifest of the run's bundle; UntrustedBundle if the bundle's signature is rejected."""
        statement = self._check(self._signature(run), run.manifest.sha256)
        manifest = Manifest.from_bytes(self.fetch(run.manifest).read_bytes())
        require_name(statement, manifest.name)
        return manifest

    def _signature(self, run: Run) -> bytes:
        if run.signature is None:
            return b""
        if run.signature.size > MAX_BYTES:
            size = run.signature.size
            raise UntrustedBundle(f"the bundle's signature has {size} bytes; it must be at most {MAX_BYTES}")
        return self.fetch(run.signature).read_bytes()

    def fetch(self, ref: BlobRef) -> Path:
        """Return a verified file of the run, fetching it unless it is present."""
        return self.connection.fetch_file(ref, self._blobs)

    def remove(self, ref: BlobRef) -> None:
        """Remove a fetched file."""
        self._blobs.path(ref.sha256).unlink(missing_ok=True)

    def scores(self, run: str, test_set: str) -> dict[int, HeldOutScore]:
        """Return the scores of the run's global models on a test set, by round."""
        return {one.round: one.score for one in self.evaluations(run) if one.score and one.test_set == test_set}

    def record_score(self, run: str, round_number: int, score: HeldOutScore) -> None:
        """Record the score of a global model with the run."""
        message = to_message(control_pb2.HeldOutScore, score)
        request = control_pb2.RecordScoreRequest(run=run, round=round_number, score=message)
        self.connection.ask(control_pb2.RecordScoreReply, "RecordScore", request)

    def create_release(self, manifest: BlobRef, signature: BlobRef) -> Release:
        """Create the release of an uploaded manifest; a repeated call changes nothing."""
        request = control_pb2.CreateReleaseRequest(manifest=manifest.sha256, signature=signature.sha256)
        return self.connection.ask(Release, "CreateRelease", request)


def global_models(run: Run, rounds: Sequence[Round]) -> list[GlobalModel]:
    """List the run's global models so far, oldest first; those of other rounds were deleted or never existed."""
    return [
        GlobalModel(0, run.initial_model, run.initial_metrics),
        *(GlobalModel(entry.round, entry.model, entry.metrics) for entry in rounds if entry.model),
    ]


def global_model(run: Run, rounds: Sequence[Round], round_number: int | None) -> GlobalModel:
    """Return the global model after that round, by default the newest; raise NotFound."""
    models = global_models(run, rounds)
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
def connect(endpoint: Endpoint, trust: Path | None = None) -> Iterator[CoordinatorClient]:
    """Connect to a coordinator; fetched files are deleted at the end.

    `trust`: the trust file that bundles are verified with; by default, this user's.
    """
    check = signed_by(user_trust(trust))
    with (
        tempfile.TemporaryDirectory(prefix="moonfed-") as directory,
        CoordinatorClient(endpoint, BlobDirectory(Path(directory)), check) as client,
    ):
        yield client
