"""The demo: its files when it is done, and when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

import numpy as np
import onnxruntime
import psutil
import pytest

from moonfed.errors import InvalidInput, MoonfedError
from moonfed.experiments.child_processes import ChildProcesses, our_program, run
from moonfed.experiments.demo import DemoSettings, empty_directory, export_onnx, run_demo, start_devices
from moonfed.version import GRAPH_PLAN_INTERFACE
from tests.support.forked_process import PATCHES

pytestmark = pytest.mark.slow


def ours(output: Path) -> list[psutil.Process]:
    """Return the other processes that have a file of the demo's directory open, such as their log."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            files = [] if process.pid == os.getpid() else process.open_files()
            if any(Path(file.path).is_relative_to(output) for file in files):
                found.append(process)
    return found


@pytest.mark.usefixtures("forked_programs")
def test_a_small_demo_leaves_a_correct_summary_and_no_process(tmp_path: Path) -> None:
    output = tmp_path / "demo"
    run_demo(DemoSettings(output=output, devices=2, rounds=3, epochs=3))
    assert ours(output) == []
    summary = json.loads((output / "summary.json").read_text())
    assert summary["dataset"] == "digits"
    assert (summary["devices"], summary["rounds"], len(summary["accuracy"])) == (2, 3, 3)
    assert summary["final_accuracy"] == summary["accuracy"][-1]
    assert 0 < summary["solo_accuracy_mean"] < 1
    assert 0 < summary["onnx_max_abs_diff"] <= 1e-5
    assert summary["seconds"] > 1
    assert (output / "demo.png").read_bytes().startswith(b"\x89PNG")
    session = onnxruntime.InferenceSession(str(output / "model.onnx"), providers=["CPUExecutionProvider"])
    with np.load(output / "data" / "test.npz") as test:
        predicted = session.run(["probabilities"], {"inputs": test["inputs"]})[0].argmax(axis=1)
        assert np.mean(predicted == test["labels"]) == pytest.approx(summary["final_accuracy"])


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(("moment", "number"), [("reported:", signal.SIGINT), ("alone", signal.SIGTERM)])
def test_an_interrupted_demo_leaves_no_process(
    tmp_path: Path, make_bundle: Callable[..., Path], moment: str, number: signal.Signals
) -> None:
    """The bundle exists already, and the model is not exported."""
    output, bundle = tmp_path / "demo", make_bundle("moon", mu=5, epochs=3)
    settings = {"rounds": 1, "devices": 2, "epochs": 50} if moment == "alone" else {"rounds": 99, "devices": 2}
    demo = subprocess.Popen(
        [our_program("python"), "-m", "tests.support.short_demo", str(output), str(bundle), json.dumps(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert demo.stdout
    seen = b""
    while moment.encode() not in seen:
        piece = os.read(demo.stdout.fileno(), 4096)
        assert piece, seen.decode()
        seen += piece
    assert moment == "alone" or len(ours(output)) > 2, "the coordinator and the devices"
    demo.send_signal(number)
    rest = demo.stdout.read().decode()
    demo.stdout.close()
    assert demo.wait() != 0
    assert "Traceback" not in rest
    _, alive = psutil.wait_procs(ours(output), timeout=10)  # a forked program ends a moment after its starter
    assert alive == []
    assert [child for child in psutil.process_iter() if _session(child) == demo.pid] == []


def _session(process: psutil.Process) -> int:
    """The session that a living process belongs to."""
    try:
        return 0 if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (ProcessLookupError, psutil.Error):
        return 0


@pytest.mark.usefixtures("forked_programs")
def test_a_demo_reports_the_death_of_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_and_spoil(fleet: ChildProcesses, settings: DemoSettings) -> None:
        start_devices(fleet, settings)
        fleet.programs["device-1"].kill()

    monkeypatch.setattr("moonfed.experiments.demo.start_devices", start_and_spoil)
    with pytest.raises(MoonfedError, match="device-1 ended"):
        run_demo(DemoSettings(output=tmp_path / "demo", devices=2, rounds=3, epochs=8))
    assert ours(tmp_path / "demo") == []


@pytest.mark.usefixtures("forked_programs")
def test_devices_without_torchscript_complete_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_without(fleet: ChildProcesses, settings: DemoSettings) -> None:
        with mock.patch.dict(os.environ, {PATCHES: "tests.support.without_torchscript"}):
            start_devices(fleet, settings)

    def export_and_ask(settings: DemoSettings) -> float:
        listed = run("moonfed-coordinator", "device", "list", "--identity", str(settings.operator), "--json")
        reported.extend(device["platform"]["plans"] for device in json.loads(listed))
        return export_onnx(settings)

    reported: list[str] = []
    monkeypatch.setenv(PATCHES, "tests.support.with_graph_plans")
    monkeypatch.setattr("moonfed.experiments.demo.start_devices", start_without)
    monkeypatch.setattr("moonfed.experiments.demo.export_onnx", export_and_ask)
    output = tmp_path / "demo"
    run_demo(DemoSettings(output=output, devices=2, rounds=2, epochs=1))
    assert reported == [GRAPH_PLAN_INTERFACE, GRAPH_PLAN_INTERFACE]
    assert len(json.loads((output / "summary.json").read_text())["accuracy"]) == 2


def test_the_demo_empties_no_directory_but_its_own(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInput, match="holds something other than a demo"):
        empty_directory(tmp_path)
    assert (tmp_path / "thesis.txt").exists()
    empty_directory(tmp_path / "demo")
    (tmp_path / "demo" / "summary.json").touch()
    empty_directory(tmp_path / "demo")
    assert not (tmp_path / "demo" / "summary.json").exists()
