"""Recovery time of a killed coordinator that has many runs and rounds on record."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.load.coordinator_process import SyntheticModel, served
from benchmarks.report import Figure, progress
from moonfed.blobs.store import BlobRef
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord
from moonfed.coordinator.runs.create import NewRun, add_run
from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.db.sqlite import DATABASE_FILE
from moonfed.coordinator.storage.opening import Storage, open_storage

MODEL = SyntheticModel(megabytes=0.37)
COHORT = tuple(f"device-{number}" for number in range(10))


def measure_restart(runs: int, rounds: int) -> Figure:
    """Time a restart after SIGKILL; every run must resume in the middle of its round."""
    progress(f"coordinator: a restart with {runs} runs and {rounds} rounds on record")
    with tempfile.TemporaryDirectory(prefix="moonfed-bench-") as name:
        directory = Path(name)
        state = directory / "state"
        _fill(state, directory, runs, rounds // runs)
        with served(state, directory / "logs") as coordinator:
            coordinator.process.kill()
            coordinator.process.wait()
            began = time.perf_counter()
            with served(state, directory / "logs-2") as again:
                seconds = time.perf_counter() - began
                found = again.client.runs()
    if [run.round for run in found if run.open_round] != [rounds // runs] * runs:
        raise RuntimeError(f"not every run resumed: {found}")
    return Figure(name=f"restart after kill -9, {runs} runs, {rounds} rounds", value=seconds, unit="s", at_most=3)


def _fill(state: Path, directory: Path, runs: int, rounds: int) -> None:
    bundle = MODEL.bundle(directory)
    with open_storage(state) as opened:
        for content in bundle.files.values():
            opened.blobs.put_bytes(content)
        new = NewRun(
            name="run-0",
            manifest=bundle.ref.sha256,
            signature=bundle.signature_sha256,
            settings=RunSettings(rounds=rounds + 1),
        )
        record = add_run(opened, new)
        for round_ in range(1, rounds + 1):
            _record_round(opened, record, round_)
        opened.store.open_round(AttemptId(run="run-0", round=rounds + 1, attempt=1), COHORT)
    _multiply(state / DATABASE_FILE, runs)


def _record_round(opened: Storage, record: RunRecord, round_: int) -> None:
    attempt = AttemptId(run=record.run, round=round_, attempt=1)
    opened.store.open_round(attempt, COHORT)
    for device in COHORT:
        blobs = {"model": BlobRef(f"{round_:064x}", record.initial.size)}
        opened.store.reports.replace(
            DeviceReport(id=attempt, device=device, outcome="accepted", samples=100, steps=10, blobs=blobs)
        )
    opened.store.commit_round(attempt, COHORT, {"model": record.initial}, metrics={"loss": 1.0}, metrics_before={})


def _multiply(database: Path, runs: int) -> None:
    """Copy the records of the one run under other names; recording them through the coordinator would take an hour."""
    with closing(sqlite3.connect(database)) as connection:
        for number in range(1, runs):
            for table in tables.metadata.sorted_tables:
                others = [column.name for column in table.columns if column.name != "run"]
                if len(others) < len(table.columns):
                    into, copied = ", ".join(["run", *others]), ", ".join(["?", *others])
                    connection.execute(
                        f"INSERT INTO {table.name} ({into}) SELECT {copied} "  # noqa: S608 - table names of our own schema
                        f"FROM {table.name} WHERE run = 'run-0'",
                        (f"run-{number}",),
                    )
        connection.commit()
