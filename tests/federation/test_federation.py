"""Whole federations of real processes: faults, restarts, and correct training."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed.blobs.tensors import Vector, open_model, split
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import PLAN_FILE
from moonfed.edge_client.training.local_training import RoundSettings, Samples, train_round
from moonfed.experiments.child_processes import run
from moonfed.plan.interface import load_plan

from .conftest import Federation

pytestmark = pytest.mark.slow

EPOCHS = 3
ALL = ("--cohort", "all", "--quorum", "100%")


def trained_model(federation: Federation, device: str, name: str, round_number: int, bundle: Path) -> Vector:
    """Return the model that a device keeps from a round during its run."""
    directory = federation.directory / device / "runs" / name / f"{round_number}-1"
    return np.array(open_model(directory / "model.safetensors", read_bundle(bundle).manifest.tensors))


def retrain(
    federation: Federation, device: str, round_number: int, bundle: Path, start: Vector, previous: list[Vector]
) -> Vector:
    """Repeat a local round in this process, from given models."""
    torch.set_num_threads(1)
    manifest = read_bundle(bundle).manifest

    def tensors(vector: Vector) -> list[torch.Tensor]:
        named = split(vector, manifest.tensors)
        return [torch.from_numpy(named[spec.name].copy()) for spec in manifest.tensors]

    with np.load(federation.parts / f"device-{device.split('-')[1]}.npz") as arrays:
        samples = Samples(inputs=torch.from_numpy(arrays["inputs"]), targets=torch.from_numpy(arrays["labels"]))
    trained = train_round(
        load_plan(bundle / PLAN_FILE, "cpu"),
        samples,
        model=tensors(start),
        previous_models=[tensors(vector) for vector in previous],
        received={},
        settings=RoundSettings(
            training=manifest.training,
            seed=0,
            round=round_number,
            device=device,
        ),
    )
    return np.concatenate([tensor.numpy().ravel() for tensor in trained.results["model"]])


def test_the_contrastive_term_is_there_from_the_second_round_on(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    moon = make_bundle("moon", mu=5, epochs=EPOCHS)
    federation.serve()
    federation.enrol("cam-1", "cam-2", "cam-3")
    federation.start_device_for(1, "cam-1")
    for name in ("cam-2", "cam-3"):
        federation.start_device(name)
    federation.start_run(moon, "r", "--rounds", "5", "--minimum-devices", "3", *ALL)
    federation.until("r", lambda seen: seen.round == 1)
    first = trained_model(federation, "cam-1", "r", 1, moon)
    federation.allow(2, "cam-1")
    federation.until("r", lambda seen: seen.round == 2)
    second = trained_model(federation, "cam-1", "r", 2, moon)

    fedavg = make_bundle("fedavg", epochs=EPOCHS)
    models = [federation.global_model("r", number, moon) for number in (0, 1)]
    assert np.array_equal(models[0], federation.global_model("r", 0, fedavg))
    assert np.allclose(first, retrain(federation, "cam-1", 1, fedavg, models[0], []), atol=1e-6)
    assert np.allclose(second, retrain(federation, "cam-1", 2, moon, models[1], [first]), atol=1e-6)
    # Not FedAvg, not with the references swapped or stale: the tolerance above tells them apart.
    for wrong in (
        retrain(federation, "cam-1", 2, fedavg, models[1], []),
        retrain(federation, "cam-1", 2, moon, models[1], [models[1]]),
        retrain(federation, "cam-1", 2, moon, models[1], [models[0]]),
    ):
        assert np.abs(second - wrong).max() > 1e-3


def test_a_round_closes_without_a_killed_device_which_returns_with_its_previous_model(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    bundle = make_bundle("moon", mu=5, epochs=EPOCHS)
    federation.serve()
    federation.enrol("cam-1", "cam-2", "cam-3")
    for name in ("cam-1", "cam-2"):
        federation.start_device(name)
    federation.start_device_for(1, "cam-3")
    federation.until_online(3)
    # More rounds than are played: a device drops its models when the run ends.
    rounds = ("--rounds", "10000", "--keep-last", "10000")
    settings = ("--minimum-devices", "2", "--quorum", "2", "--cohort", "all", "--heartbeat-timeout", "10")
    federation.start_run(bundle, "r", *rounds, *settings)
    federation.until("r", lambda seen: seen.open_round.round == 2)
    federation.kill("cam-3")
    federation.until("r", lambda seen: seen.round >= 2)
    first, second = federation.rounds("r")[:2]
    assert list(second.counted) == ["cam-1", "cam-2"]
    assert list(second.missing) == ["cam-3"]
    assert len(first.counted) == 3

    assert not (federation.directory / "cam-3" / "runs" / "r" / "2-1").exists(), "it was killed too late"
    previous = trained_model(federation, "cam-3", "r", 1, bundle)

    federation.start_device_for((federation.directory / "cam-3.reads").stat().st_size + 1, "cam-3")
    federation.until("r", lambda _: any("cam-3" in entry.counted for entry in federation.rounds("r")[1:]))
    back = next(entry.round for entry in federation.rounds("r")[1:] if "cam-3" in entry.counted)
    found = trained_model(federation, "cam-3", "r", back, bundle)
    start = federation.global_model("r", back - 1, bundle)
    assert np.allclose(found, retrain(federation, "cam-3", back, bundle, start, [previous]), atol=1e-6)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_restarted_coordinator_resumes_its_run(
    federation: Federation, make_bundle: Callable[..., Path], number: signal.Signals
) -> None:
    bundle = make_bundle("moon", mu=5, epochs=EPOCHS)
    federation.serve()
    federation.enrol("cam-1", "cam-2")
    federation.start_device("cam-1")
    federation.start_device("cam-2")
    federation.start_run(bundle, "r", "--rounds", "6", "--minimum-devices", "2", *ALL)
    federation.until("r", lambda seen: seen.round >= 2)
    before = federation.rounds("r")
    program = federation.fleet.programs["coordinator"]
    program.send_signal(number)
    program.wait(timeout=30)
    if number == signal.SIGTERM:
        assert program.returncode == 0
    federation.serve("coordinator-again")
    federation.until_finished("r")
    done = federation.rounds("r")
    assert [entry.round for entry in done] == [1, 2, 3, 4, 5, 6]
    assert all(list(entry.counted) == ["cam-1", "cam-2"] for entry in done)
    assert [entry.model for entry in done[:2]] == [entry.model for entry in before[:2]]


def test_the_same_seed_gives_the_same_models_in_any_order_of_arrival(
    federation: Federation, make_bundle: Callable[..., Path]
) -> None:
    bundle = make_bundle("moon", mu=5, epochs=EPOCHS)
    federation.serve()
    federation.enrol("cam-1", "cam-2", "cam-3")
    for name in ("cam-3", "cam-1", "cam-2"):
        federation.start_device(name)
    federation.start_run(bundle, "a", "--rounds", "2", "--minimum-devices", "3", *ALL)
    federation.until_finished("a")
    federation.start_run(bundle, "b", "--rounds", "2", "--minimum-devices", "3", *ALL)
    federation.until_finished("b")
    first, second = federation.rounds("a"), federation.rounds("b")
    assert [entry.model for entry in first] == [entry.model for entry in second]


def test_a_run_goes_from_devices_to_a_checked_onnx_file(
    federation: Federation, make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    bundle = make_bundle("fedavg", epochs=10, learning_rate=0.05)
    federation.serve()
    federation.enrol("cam-1", "cam-2")
    federation.start_device("cam-1", "--holdout", "0.2")
    federation.start_device("cam-2")
    federation.start_run(bundle, "r", "--rounds", "2", "--minimum-devices", "2", *ALL)
    test = ("--data", str(federation.parts / "test.npz"))
    run("moonfed-export", "evaluate", "r", *test, "--follow", *federation.operator)
    done = federation.show("r")
    assert done.status == "finished"
    accuracy = [entry.metrics["accuracy"] for entry in federation.rounds("r")]
    assert 0.3 < accuracy[1] <= 1
    assert 0 <= done.initial_metrics["accuracy"] < 0.3
    assert any("holdout_accuracy" in entry.metrics for entry in federation.rounds("r"))

    path = tmp_path / "digits.onnx"
    exported = run("moonfed-export", "onnx", "r", *test, "--output", str(path), *federation.operator, "--json")
    assert json.loads(exported)["max_abs_diff"] <= 1e-5
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with np.load(federation.parts / "test.npz") as arrays:
        probabilities = session.run(["probabilities"], {"inputs": arrays["inputs"]})[0]
        assert np.mean(probabilities.argmax(axis=1) == arrays["labels"]) == pytest.approx(accuracy[1], abs=1e-9)


def test_a_run_starts_from_given_weights(
    federation: Federation, make_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    import safetensors.numpy

    bundle = make_bundle("fedavg", epochs=EPOCHS)
    weights = safetensors.numpy.load_file(bundle / "initial.safetensors")
    given = tmp_path / "given.safetensors"
    safetensors.numpy.save_file({name: value + 1 for name, value in weights.items()}, given)
    federation.serve()
    federation.start_run(bundle, "r", "--rounds", "1", "--from", str(given))
    started = federation.show("r").model.sha256
    import hashlib

    assert started == hashlib.sha256(given.read_bytes()).hexdigest()
    safetensors.numpy.save_file({name: value for name, value in weights.items() if "bias" not in name}, given)
    with pytest.raises(Exception, match="is missing"):
        federation.start_run(bundle, "s", "--rounds", "1", "--from", str(given))


def test_the_programs_start_without_torch() -> None:
    """Help and operator commands must not import unused dependencies."""
    for program in (
        "moonfed.cli.program",
        "moonfed.edge_client.cli",
        "moonfed.coordinator.cli.program",
        "moonfed.experiments.cli",
    ):
        code = f"import sys, {program}; sys.exit('torch' in sys.modules or 'onnxruntime' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, program
