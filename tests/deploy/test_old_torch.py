"""Devices with another torch train plans that this one has compiled.

Each older release is installed into build/old-torch, CUDA's libraries with it, a newer one into build/newer-torch, and
stays there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import GRAPH_PLAN_FILE, PLAN_FILE
from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.export.methods import LOCAL_ONLY, METHODS
from moonfed.sandbox.policy import available_level
from tests.deploy import graph_round
from tests.deploy.environments import install_torch, new_environment, pinned_except, programs_in
from tests.support.forked_process import PATCHES
from tools.build_release import build_wheel
from tools.lock_requirements import ROOT, name_of, requirements_of

RELEASES = ("2.4.1", "2.8.0", "2.12.0")
NEWER = ("2.15.0",)
TRAINED = sorted(set(METHODS) - LOCAL_ONLY)
PATIENCE = "600"  # seconds for a round
PARTITIONED = {"image": ("digits",), "table": ("wine.csv", "--columns", "columns.json")}
NETWORKS = {
    "image": ("--model", "cnn", "--input", "8x8x1", "--classes", "10", "--augmentation", "crop-flip-rotate"),
    "table": ("--model", "mlp", "--columns", "columns.json"),
}
pytestmark = [
    pytest.mark.skipif("MOONFED_OLD_TORCH" not in os.environ, reason="`make old-torch` runs this test: gigabytes"),
    pytest.mark.timeout(3600),
]


@pytest.fixture(params=RELEASES)
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An environment with moonfed and another torch."""
    newer = request.param in NEWER
    path: Path = ROOT / "build" / ("newer-torch" if newer else "old-torch") / request.param
    (tmp_path / "constraints.txt").write_text("\n".join(pinned_except("torch", "torchvision")))
    constraints = ("--constraint", tmp_path / "constraints.txt")
    asked = [text for text in requirements_of("images", "tables") if name_of(text) != "torch"]
    new_environment(path, *constraints, *asked)
    if newer:  # pip's configuration may refuse it
        new_environment(path, *constraints, "--no-cache", f"torch=={request.param}")
    else:
        install_torch(path, *constraints, f"torch=={request.param}")
    new_environment(path, "--no-deps", "--reinstall", build_wheel(tmp_path))
    return path


@pytest.fixture
def fleet(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildProcesses]:
    """A coordinator with this torch, and two devices for each kind of data with another one."""
    with programs_in({"moonfed-client": environment}, tmp_path, monkeypatch) as programs:
        split_data()
        programs.start(
            *("coordinator", "moonfed-coordinator", "serve", "--state", "moonfed-coordinator"),
            *("--fleet-port", "0", "--enrolment-port", "0"),
        )
        programs.first_line("coordinator")
        for kind in PARTITIONED:
            for number in (1, 2):
                start_device(programs, f"{kind}-{number}", next(Path(kind).glob(f"device-{number}.*")))
        yield programs


def split_data() -> None:
    """Write the samples of two devices of each kind."""
    from sklearn.datasets import load_wine

    table = load_wine(as_frame=True)
    table.frame.to_csv("wine.csv", index=False)
    run("moonfed-export", "columns", "wine.csv", "--target", "target", "--output", "columns.json")
    for kind, source in PARTITIONED.items():
        run("moonfed-experiments", "partition", *source, "--devices", "2", "--beta", "5", "--output", kind)


def start_device(programs: ChildProcesses, name: str, samples: Path) -> None:
    """Enrol a device and start it."""
    run("moonfed-coordinator", "token", "create", "--output", f"{name}.token")
    run("moonfed-client", "enrol", f"{name}.token", "--name", name, "--state", name)
    programs.start(
        *(name, "moonfed-client", "run", "--data", str(samples), "--state", name),
        *("--threads", "1", "--sandbox", available_level()),
    )


@pytest.mark.usefixtures("fleet")
def test_every_method_is_trained_on_images_and_on_tables() -> None:
    """Two rounds, since methods keep models and prototypes from one to the next."""
    names = [f"{kind}-{method}" for kind in NETWORKS for method in TRAINED]
    for name in names:
        kind, method = name.split("-", 1)
        options = ("--method", method, "--projection", "16", "--set", "epochs=1", "--set", "batch_size=32")
        run("moonfed-export", "bundle", *NETWORKS[kind], *options, "--output", name)
        limits = ("--rounds", "2", "--minimum-devices", "2", "--deadline", PATIENCE)
        run("moonfed-coordinator", "run", "start", name, *limits)
        run("moonfed-coordinator", "run", "watch", name)
    ended = {name: json.loads(run("moonfed-coordinator", "run", "show", name, "--json")) for name in names}
    assert {name: (shown["status"], shown["round"]) for name, shown in ended.items()} == dict.fromkeys(
        names, ("finished", 2)
    )


@pytest.mark.parametrize("environment", [*RELEASES, *NEWER], indirect=True)
@pytest.mark.usefixtures("fleet")
def test_graph_plans_are_trained_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATCHES, "tests.support.with_graph_plans")
    for kind, method in (("image", "moon"), ("table", "fedavg")):
        name = f"graph-{kind}"
        options = ("--method", method, "--set", "epochs=1", "--set", "batch_size=32")
        run("moonfed-export", "bundle", *NETWORKS[kind], *options, "--output", name)
        limits = ("--rounds", "2", "--minimum-devices", "2", "--deadline", PATIENCE, "--require-plan", "graph")
        run("moonfed-coordinator", "run", "start", name, *limits)
        run("moonfed-coordinator", "run", "watch", name)
        shown = json.loads(run("moonfed-coordinator", "run", "show", name, "--json"))
        assert (shown["status"], shown["round"]) == ("finished", 2)


# Bundles by name, and the shape of their samples.
COMPARED = {
    "cnn-moon": (("--model", "cnn", "--method", "moon", "--augmentation", "crop-flip-rotate"), (16, 16, 3)),
    "resnet18-fedavg": (("--model", "resnet18", "--method", "fedavg"), (32, 32, 3)),
    "mlp-fedprox": (("--model", "mlp", "--method", "fedprox"), (12,)),
    "gru-fedavg": (("--model", "gru", "--method", "fedavg"), (16, 4)),
}
SAMPLES, CLASSES = 128, 4


def built(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a bundle of COMPARED with graphs, and its samples."""
    options, shape = COMPARED[name]
    sides = "x".join(map(str, shape))
    kind = {1: f"features:{sides}", 2: f"series:{sides}", 3: sides}[len(shape)]
    monkeypatch.setenv(PATCHES, "tests.support.with_graph_plans")
    steps = ("--set", "epochs=1", "--set", "batch_size=16")
    run(
        *("moonfed-export", "bundle", "--input", kind, "--classes", str(CLASSES), *options, *steps),
        *("--output", str(directory / name)),
    )
    draw = np.random.default_rng(3)
    pixels, values = draw.integers(0, 256, (SAMPLES, *shape), np.uint8), draw.normal(size=(SAMPLES, *shape))
    inputs = pixels if len(shape) == 3 else values.astype(np.float32)
    np.savez(directory / f"{name}.npz", inputs=inputs, labels=np.arange(SAMPLES) % CLASSES)
    return directory / name, directory / f"{name}.npz"


def trained(python: str | Path, bundle: Path, samples: Path, plan: str) -> list[np.ndarray]:
    """Return the tensors of the model after `graph_round` in an environment."""
    output = samples.with_name("trained.safetensors")
    subprocess.run([python, graph_round.__file__, bundle, plan, samples, output], check=True)
    specs = read_bundle(bundle).manifest.tensors
    return [np.array(values) for values in split(open_model(output, specs), specs).values()]


@pytest.mark.parametrize("environment", [*RELEASES, *NEWER], indirect=True)
def test_graphs_train_to_the_model_of_this_torch(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels may add up in another order, but operators mean the same; docs/graph-container.md has the figures."""
    for name in COMPARED:
        bundle, samples = built(name, tmp_path, monkeypatch)
        here = trained(sys.executable, bundle, samples, GRAPH_PLAN_FILE)
        there = trained(environment / "bin" / "python", bundle, samples, GRAPH_PLAN_FILE)
        scripted = trained(environment / "bin" / "python", bundle, samples, PLAN_FILE)
        equal = all(map(np.array_equal, here, there))
        difference = max(np.abs(a - b).max() / np.abs(a).max() for a, b in zip(here, there, strict=True) if np.any(a))
        with capsys.disabled():
            print(
                f"\n{environment.name}, {name}: {'equal bits' if equal else f'differs by {difference:.1e}'};",
                "equal bits as TorchScript" if all(map(np.array_equal, there, scripted)) else "not as TorchScript",
            )
        assert difference < 1e-2
