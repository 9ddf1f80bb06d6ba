"""Talks to the coordinator's Control service about one run: its rounds, its files, and the metrics of its models."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from moonfed import transport
from moonfed.blobs import BlobDirectory, BlobRef
from moonfed.errors import MoonfedError, NotFound, Unavailable
from moonfed.manifest import WEIGHTS_FILE, Manifest
from moonfed.operator import open_connection
from moonfed.v1 import control_pb2, control_pb2_grpc

MODELS_NAMED = 10  # in an error
ATTEMPTS = 3  # of an idempotent call before the coordinator counts as away


@dataclass(frozen=True, slots=True)
class GlobalModel:
    """One global model of a run."""

    round: int  # 0: the weights that the run started from
    ref: BlobRef
    metrics: Mapping[str, float]


class CoordinatorClient:
    """What `export` asks of a coordinator; fetched files lie in `blobs`."""

    def __init__(
        self, control: control_pb2_grpc.ControlStub, blobs: BlobDirectory, explain: Callable[[], MoonfedError]
    ) -> None:
        self._control, self._blobs, self._explain = control, blobs, explain

    def get(self, run: str) -> control_pb2.Run:
        """A run as it is now; raises NotFound."""
        return transport.call(
            self._control.GetRun, control_pb2.GetRunRequest(run=run), attempts=ATTEMPTS, explain=self._explain
        )

    def rounds(self, run: str) -> list[control_pb2.Round]:
        """The run's committed and abandoned rounds, oldest first."""
        return transport.call(
            lambda request, timeout: list(self._control.ListRounds(request, timeout=timeout)),
            control_pb2.ListRoundsRequest(run=run),
            attempts=ATTEMPTS,
            explain=self._explain,
        )

    def manifest(self, run: control_pb2.Run) -> Manifest:
        """The manifest of the run's bundle."""
        return Manifest.from_bytes(self.fetch(transport.from_message(run.manifest)).read_bytes())

    def fetch(self, ref: BlobRef) -> Path:
        """A file of the run, fetched unless it is here, and checked."""
        try:
            return transport.fetch_blob(self._control.Fetch, ref, self._blobs)
        except Unavailable as error:
            raise self._explain() from error

    def forget(self, ref: BlobRef) -> None:
        """Removes a fetched file."""
        self._blobs.path(ref.sha256).unlink(missing_ok=True)

    def watch(self, run: str) -> Iterator[control_pb2.RunEvent]:
        """A run's events as long as the connection lasts; raises Unavailable when it breaks or we fell behind."""
        try:
            yield from self._control.WatchRun(control_pb2.WatchRunRequest(run=run))
        except grpc.RpcError as error:
            raise transport.explained(error, self._explain) from error

    def record(self, run: str, round_number: int, metrics: Mapping[str, float]) -> None:
        """Keeps metrics of a global model with the run."""
        request = control_pb2.RecordMetricsRequest(run=run, round=round_number, metrics=metrics)
        transport.call(self._control.RecordMetrics, request, attempts=ATTEMPTS, explain=self._explain)


def global_models(run: control_pb2.Run, rounds: Sequence[control_pb2.Round], manifest: Manifest) -> list[GlobalModel]:
    """The run's global models so far, oldest first."""
    models = [GlobalModel(0, _initial_model(run, manifest), dict(run.initial_metrics))]
    committed = (entry for entry in rounds if entry.HasField("model"))  # others' models were deleted, or never made
    models += [
        GlobalModel(entry.round, transport.from_message(entry.model), dict(entry.metrics)) for entry in committed
    ]
    return models


def global_model(
    run: control_pb2.Run, rounds: Sequence[control_pb2.Round], manifest: Manifest, round_number: int | None
) -> GlobalModel:
    """The global model after that round, or the newest; raises NotFound."""
    models = global_models(run, rounds, manifest)
    if round_number is None:
        return models[-1]
    for model in models:
        if model.round == round_number:
            return model
    if 0 <= round_number <= run.round:
        kept = ", ".join(str(model.round) for model in models[-MODELS_NAMED:])
        raise NotFound(
            f"the global model of round {round_number} of run {run.run!r} was deleted; the newest are {kept}"
        )
    raise NotFound(f"run {run.run!r} has no global model of round {round_number}; it has 0 to {models[-1].round}")


@contextmanager
def connect(identity: Path, *, insecure: bool, address: str | None) -> Iterator[CoordinatorClient]:
    """A connection with an operator's identity, or in plaintext on this machine; fetched files last as long as it."""
    with (
        tempfile.TemporaryDirectory(prefix="moonfed-") as directory,
        open_connection(identity, insecure=insecure, address=address) as connection,
    ):
        stub = control_pb2_grpc.ControlStub(connection.channel)
        yield CoordinatorClient(stub, BlobDirectory(Path(directory)), connection.explain)


def _initial_model(run: control_pb2.Run, manifest: Manifest) -> BlobRef:
    if run.HasField("initial_model"):
        return transport.from_message(run.initial_model)
    return transport.from_message(run.model) if run.round == 0 else manifest.files[WEIGHTS_FILE]
