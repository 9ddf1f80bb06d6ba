"""The virtual fleet: the same models as from device processes over gRPC, also after kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from moonfed.blobs.tensors import open_model
from moonfed.bundle.files import read_bundle
from moonfed.experiments.child_processes import our_program
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.run import run_simulation
from moonfed.experiments.simulation import Simulation
from tests.support.ended_processes import still_running
from tests.support.forked_process import PATCHES
from tests.support.forked_programs import ROOT
from tests.support.simulations import make_simulation

from .conftest import PATIENCE, Federation

pytestmark = pytest.mark.slow

ROUNDS = 3
SHARING_BUNDLES = "import tests.support.shared_bundles; from moonfed.experiments.cli import main; main()"
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "moon": {"settings": {"mu": 5}},
    "scaffold": {},
    "fedssc": {
        "server_rule": "fedavgm",
        "server": {"server_momentum": 0.5},
        "settings": {"prototype_devices": 0},  # else a simulation and a run draw by other secrets
    },
    "fedprox": {"settings": {"mu": 0.1}},
}


def recipe(method: str) -> Simulation:
    """Return a recipe for the same digits, split over three devices in the same way, as the fixture `parts`."""
    keys = dict(METHODS[method])
    settings = {"epochs": 1, "batch_size": 32, "learning_rate": 0.05, **keys.pop("settings", {})}
    return make_simulation(
        dataset="digits", method=method, projection=256, parties=3, rounds=ROUNDS, seed=1, settings=settings, **keys
    )


def test_the_virtual_fleet_trains_the_model_that_device_processes_train(federation: Federation) -> None:
    results = {
        method: run_simulation(
            recipe(method), federation.directory / f"virtual-{method}", engine=EngineSettings(workers=2)
        )
        for method in METHODS
    }
    federation.serve()
    names = ("party-1", "party-2", "party-3")
    federation.enrol(*names)
    for name in names:
        federation.start_device(name)
    federation.until_online(3)
    models = []
    for method, result in results.items():
        cohort = recipe(method).run.cohort
        settings = f"--rounds {ROUNDS} --minimum-devices 3 --cohort {cohort} --quorum all --seed 1 --trusting"
        federation.start_run(result.bundle, method, *settings.split())
        federation.until_finished(method)
        assert result.model is not None
        virtual = np.array(open_model(result.model, read_bundle(result.bundle).manifest.tensors))
        real = federation.global_model(method, ROUNDS, result.bundle)
        assert np.abs(virtual - real).max() <= 1e-6, method
        assert np.abs(virtual - federation.global_model(method, 0, result.bundle)).max() > 1e-2, method
        models.append(virtual)
    for number, model in enumerate(models):  # the tolerance tells the methods apart
        assert all(np.abs(model - other).max() > 1e-4 for other in models[number + 1 :])


def in_first_round(output: Path) -> bool:
    return any(output.glob("parties/*/runs/simulation/1-1"))


def in_second_round(output: Path) -> bool:
    return (output / "results.jsonl").is_file() and '"round": 1,' in (output / "results.jsonl").read_text()


def with_an_update_of_the_third_round(output: Path) -> bool:
    return any(output.glob("coordinator/spool/simulation/3-1/updates/*/*"))


MOMENTS: tuple[Callable[[Path], bool], ...] = (in_first_round, in_second_round, with_an_update_of_the_third_round)


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(("method", "moments"), [("scaffold", MOMENTS), ("moon", MOMENTS[-1:])])
def test_a_simulation_that_is_killed_ends_with_the_very_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, moments: Sequence[Callable[[Path], bool]]
) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.shared_bundles")
    file = tmp_path / "recipe.toml"
    file.write_text(
        f'dataset = "digits"\nmethod = "{method}"\nserver_rule = "fedavgm"\nrounds = 4\nparties = 4\ncohort = "3"\n'
        "[settings]\nepochs = 3\nbatch_size = 32\n"
    )

    def start(output: Path) -> subprocess.Popen[bytes]:
        command = ("simulate", str(file), "--workers", "2", "--output", str(output), "--json")
        return subprocess.Popen([our_program("moonfed-experiments"), *command], stdout=subprocess.PIPE)

    def finish(output: Path) -> dict[str, Any]:
        printed, _ = start(output).communicate(timeout=PATIENCE)
        outcome: dict[str, Any] = json.loads(printed)
        return outcome

    killed = tmp_path / "killed"
    for moment in moments:
        program = start(killed)
        kill_at(program, lambda moment=moment: moment(killed))  # type: ignore[misc] # a lambda's default
    outcome = finish(killed)

    undisturbed = finish(tmp_path / "undisturbed")
    models = [(directory / "model.safetensors").read_bytes() for directory in (killed, tmp_path / "undisturbed")]
    assert models[0] == models[1]
    assert outcome["accuracy"] == undisturbed["accuracy"]
    tables = []
    for directory in (killed, tmp_path / "undisturbed"):
        found = [json.loads(line) for line in (directory / "results.jsonl").read_text().splitlines()]
        assert all(0 < row["seconds"] < PATIENCE for row in found)
        tables.append([(row["round"], row["accuracy"], row["loss"]) for row in found])
    assert tables[0] == tables[1]
    assert [row[0] for row in tables[0]] == [1, 2, 3, 4]


def kill_at(program: subprocess.Popen[bytes], moment: Callable[[], bool]) -> None:
    """Kill only the program at that moment, with SIGKILL; its workers must not survive it."""
    deadline = time.monotonic() + PATIENCE
    while not moment():
        assert program.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = psutil.Process(program.pid).children(recursive=True)
    os.kill(program.pid, signal.SIGKILL)
    program.communicate()
    assert still_running(workers, 20) == []


def test_an_interrupted_simulation_leaves_no_process_and_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('dataset = "digits"\nparties = 3\n[settings]\nepochs = 8\nbatch_size = 32\n')
    program = subprocess.Popen(
        [sys.executable, "-c", SHARING_BUNDLES, "simulate", str(file), "--output", str(tmp_path / "a")],
        stderr=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in the background
    )
    deadline = time.monotonic() + PATIENCE
    while not in_first_round(tmp_path / "a"):
        assert program.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = psutil.Process(program.pid).children(recursive=True)
    assert len(workers) >= 1
    program.send_signal(signal.SIGINT)
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)  # impatient, while it closes
    _, said = program.communicate(timeout=PATIENCE)
    assert program.returncode in (130, -signal.SIGINT)  # the latter if the interpreter itself was already ending
    assert b"Traceback" not in said
    assert still_running(workers, 20) == []
