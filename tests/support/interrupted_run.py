"""A run whose coordinator was killed in the middle of a round, and the result when another one resumes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord
from moonfed.coordinator.storage.opening import Storage
from moonfed.v1 import control_pb2
from tests.support import coordinator
from tests.support.coordinator import OperatorCalls, model_bytes, model_values

FIRST = AttemptId(run="r", round=1, attempt=1)


@dataclass
class Left:
    """The state of a killed coordinator: an open round with two acknowledged updates, of 1.0 and 4.0."""

    storage: Storage
    quorum: str = "50%"
    record: RunRecord = field(init=False)

    def __post_init__(self) -> None:
        bundle = coordinator.make_bundle()
        for content in bundle.contents.values():
            self.storage.blobs.put_bytes(content)
        self.record = RunRecord(
            run="r",
            created=1.0,
            status="running",
            settings=coordinator.settings(1, minimum_devices=2, quorum=self.quorum),
            manifest=bundle.ref,
            signature=ref_of_bytes(b"signature"),
            method="fedavg",
            initial=bundle.manifest.files[WEIGHTS_FILE],
        )
        self.storage.store.add_run(self.record)
        self.storage.store.open_round(FIRST, ["cam-1", "cam-2"])
        self.acknowledge("cam-1", model_bytes(1.0), 20)
        self.acknowledge("cam-2", model_bytes(4.0), 10)

    def acknowledge(self, device: str, content: bytes, samples: int) -> None:
        checked = self.storage.directory.root / "checked"
        checked.write_bytes(content)
        self.storage.spool.put(FIRST, device, {"model": checked})
        blobs = {"model": ref_of_bytes(content)}
        report = DeviceReport(id=FIRST, device=device, outcome="accepted", samples=samples, steps=1, blobs=blobs)
        self.storage.store.reports.replace(report)


def finished(state: Path) -> tuple[control_pb2.Run, list[control_pb2.Round], bytes]:
    """Start a coordinator on the remaining state and wait for the run's end."""
    with coordinator.coordinator_in_process(state) as ports:
        calls: OperatorCalls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            run = list(calls.watch("r"))[-1].run
            return run, calls.rounds("r"), calls.model(run.model)


def expect_round_1(state: Path) -> None:
    run, rounds, content = finished(state)
    assert run.status == "finished"
    assert [list(entry.counted) for entry in rounds] == [["cam-1", "cam-2"]]
    np.testing.assert_array_equal(model_values(content), np.float32(2.0))
    assert not list((state / "spool").glob("*/*"))
