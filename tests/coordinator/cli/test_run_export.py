"""The command `run export` as a process, and following across outages of both sides."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from moonfed.coordinator.cli.run_export import EVALUATOR_SECONDS, follow_run
from moonfed.coordinator.cli.run_reader import RunReader
from moonfed.coordinator.trackers.snapshot import RunSnapshot
from moonfed.errors import Unavailable
from tests.coordinator.conftest import Fleet
from tests.coordinator.trackers.conftest import trained
from tests.support.coordinator_programs import Programs

pytestmark = pytest.mark.slow

__all__ = ["trained"]


def test_the_command_exports_without_importing_a_tracker(trained: Fleet, tmp_path: Path, forked_programs: None) -> None:
    identity = ("--coordinator", f"127.0.0.1:{trained.ports.fleet}")
    programs = Programs(trained.tmp, trained.stack)
    target = tmp_path / "digits.csv"
    told = programs.command("run", "export", "digits", "--to", "csv", str(target), "--follow", *identity)
    assert re.fullmatch(rf"exported run digits, finished, 3 rounds, \d+ values, to {target}\n", told)
    with target.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["accuracy"] for row in rows] == ["0.0", "0.1", "0.2", "0.3"]
    assert all(float(row["training_seconds"]) <= float(row["round_seconds"]) for row in rows[1:])
    assert all(float(row["received_bytes"]) > 0 for row in rows[1:])
    told = programs.command("run", "export", "digits", "--to", "excel", "x", *identity, code=2)
    assert "to is 'excel'" in told


class Scripted:
    """A run, or a tracker, that does what a test says."""

    def __init__(self, *steps: object) -> None:
        self.steps, self.readings = list(steps), list[bool]()

    def read(self, *, whole: bool = True) -> object:
        self.readings.append(whole)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def write(self, snapshot: RunSnapshot) -> None:
        self.read()

    def lacks_metrics(self) -> bool:
        return False


def snapshot(status: str) -> RunSnapshot:
    return RunSnapshot(run="digits", identity="a", status=status, created=1.0, parameters={}, points=())


def test_following_survives_outages_of_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    running = snapshot("running")
    reader = Scripted(running, Unavailable("the coordinator is away"), running, running, snapshot("finished"))
    tracker, pauses = Scripted(None, Unavailable("MLflow is away"), None, None), list[float]()
    follow_run(cast(RunReader, reader), cast(Any, tracker), pauses.append)
    assert (reader.steps, tracker.steps, len(pauses)) == ([], [], 4)
    assert reader.readings == [True, False, False, False, False]
    told = capsys.readouterr().err
    assert told == "the coordinator is away; retrying\nMLflow is away; retrying\n"


def test_an_evaluator_that_has_gone_is_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("moonfed.coordinator.cli.run_export.monotonic", lambda: clock[0])
    reader, tracker = Scripted(*[snapshot("stopped")] * 3), Scripted(*[None] * 3)
    reader.lacks_metrics = lambda: True  # type: ignore[method-assign]

    def pause(_: float) -> None:
        clock[0] += EVALUATOR_SECONDS / 2.5

    follow_run(cast(RunReader, reader), cast(Any, tracker), cast(Callable[[float], None], pause))
    assert reader.steps == []
