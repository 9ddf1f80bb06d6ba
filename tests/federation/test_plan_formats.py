"""Devices that run a bundle's plan in different forms, in TorchScript and as graphs: real programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import GRAPH_PLAN_FILE, PLAN_FILE
from moonfed.experiments.child_processes import run
from tests.support.forked_process import PATCHES
from tests.support.graph_bundles import LEAVES, graph_bundle

from .conftest import Federation

pytestmark = pytest.mark.slow


def write_samples(path: Path) -> str:
    random = np.random.default_rng(5)
    labels = np.arange(120) % 3
    np.savez(path, inputs=(random.normal(size=(120, 6)) + labels[:, None]).astype(np.float32), labels=labels)
    return str(path)


def fetched(federation: Federation, device: str, bundle: Path) -> set[str]:
    """Return which of the plan's files a device has."""
    files = read_bundle(bundle).manifest.files
    blobs = {path.name for path in (federation.directory / device / "blobs").glob("*/*")}
    return {name for name in (PLAN_FILE, GRAPH_PLAN_FILE) if files[name].sha256 in blobs}


def test_a_device_without_torchscript_takes_part_and_a_run_may_permit_graphs_only(federation: Federation) -> None:
    bundle, data = graph_bundle(LEAVES), write_samples(federation.directory / "leaves.npz")
    federation.serve()
    federation.enrol("cam-1", "cam-2", "cam-3")
    with mock.patch.dict(os.environ, {PATCHES: "tests.support.without_torchscript"}):
        federation.start_device("cam-1", "--holdout", "0.3", data=data)
    federation.start_device("cam-2", data=data)
    federation.start_device("cam-3", "--plan-format", "torchscript", data=data)
    federation.until_online(3)
    shown = json.loads(run("moonfed-coordinator", "device", "list", *federation.operator, "--json"))
    assert {device["device"]: device["platform"]["plans"] for device in shown} == {
        "cam-1": "graph/1",
        "cam-2": "torchscript/4, graph/1",
        "cam-3": "torchscript/4",
    }

    def start(name: str, devices: int, *options: str) -> list[str]:
        """Start a run that goes on for as long as the test; return the devices of its first round."""
        needed = str(devices)
        federation.start_run(
            bundle, name, "--rounds", "10000", "--minimum-devices", needed, "--quorum", needed, *options
        )
        federation.until(name, lambda seen: seen.round >= 1)
        return list(federation.rounds(name)[0].counted)

    assert start("graphs", 2, "--require-plan", "graph") == ["cam-1", "cam-2"]
    assert fetched(federation, "cam-1", bundle) == fetched(federation, "cam-2", bundle) == {GRAPH_PLAN_FILE}
    run("moonfed-coordinator", "run", "stop", "graphs", "--yes", *federation.operator)

    assert start("any", 3) == ["cam-1", "cam-2", "cam-3"]
    assert fetched(federation, "cam-1", bundle) == {GRAPH_PLAN_FILE}
    assert all(PLAN_FILE in fetched(federation, device, bundle) for device in ("cam-2", "cam-3"))
    found = json.loads(run("moonfed-coordinator", "run", "evaluate", "any", *federation.operator, "--json"))
    assert [score["device"] for score in found["on_devices"]["scores"]] == ["cam-1"]
