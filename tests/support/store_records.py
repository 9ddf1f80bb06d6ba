"""Records of a run, its first round, and devices' reports, as tests of the store use them."""

from __future__ import annotations

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord
from moonfed.coordinator.rounds.retention import KEEP_ALL, Retention
from moonfed.coordinator.storage.store import Store

RUN = RunRecord(
    run="digits",
    created=1.5,
    status="running",
    settings=RunSettings(rounds=3, cohort=Amount(count=2), quorum=Amount(count=1), seed=2**64 - 1),
    manifest=ref_of_bytes(b"manifest"),
    signature=ref_of_bytes(b"signature"),
    method="fedavg",
    initial=ref_of_bytes(b"initial"),
)
FIRST = AttemptId(run="digits", round=1, attempt=1)
MODEL = ref_of_bytes(b"model 1")


def update(device: str, content: bytes = b"update", attempt: AttemptId = FIRST) -> DeviceReport:
    return DeviceReport(
        id=attempt,
        device=device,
        outcome="accepted",
        samples=10,
        steps=2,
        metrics={"loss": 0.5},
        blobs={"model": ref_of_bytes(content)},
    )


def report(device: str, content: bytes = b"update", **fields: object) -> DeviceReport:
    given = {"outcome": "accepted", "samples": 10, "steps": 4, "blobs": {"model": ref_of_bytes(content)}}
    return DeviceReport(id=FIRST, device=device, **{**given, **fields})  # type: ignore[arg-type]


def committed(store: Store, round_: int, retention: Retention = KEEP_ALL, run: str = "digits") -> list[BlobRef]:
    """Commit a round with a model and a server rule's memory; return the released blobs."""
    attempt = AttemptId(run=run, round=round_, attempt=1)
    store.open_round(attempt, ["a"])
    blobs = {"model": ref_of_bytes(b"model %d" % round_), "momentum": ref_of_bytes(b"momentum %d" % round_)}
    return store.commit_round(attempt, ["a"], blobs, metrics={}, metrics_before={}, retention=retention)


def kept_models(store: Store, run: str = "digits") -> list[int]:
    return [found.id.round for found in store.past_rounds(run, None, 1000) if found.model]
