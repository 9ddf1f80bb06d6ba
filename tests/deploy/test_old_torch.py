"""Devices with an older torch train plans that this one has compiled.

Each release is installed into build/old-torch, CUDA's libraries with it, and stays there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.export.methods import LOCAL_ONLY, METHODS
from moonfed.sandbox.policy import available_level
from tests.deploy.environments import install_torch, new_environment, pinned_except, programs_in
from tests.support.forked_process import PATCHES
from tools.build_release import build_wheel
from tools.lock_requirements import ROOT, name_of, requirements_of

RELEASES = ("2.4.1", "2.8.0", "2.12.0")
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
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildProcesses]:
    """A coordinator with this torch, and two devices for each kind of data with an older one."""
    device = ROOT / "build" / "old-torch" / request.param
    (tmp_path / "constraints.txt").write_text("\n".join(pinned_except("torch", "torchvision")))
    constraints = ("--constraint", tmp_path / "constraints.txt")
    asked = [text for text in requirements_of("images", "tables") if name_of(text) != "torch"]
    new_environment(device, *constraints, *asked)
    install_torch(device, *constraints, f"torch=={request.param}")
    new_environment(device, "--no-deps", "--reinstall", build_wheel(tmp_path))
    with programs_in({"moonfed-client": device}, tmp_path, monkeypatch) as programs:
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
