"""A device's description of itself, and the bundles that it can run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from moonfed.edge_client.agent import compatibility
from moonfed.edge_client.agent.compatibility import describe_platform, require_runnable, torch_version
from moonfed.errors import VersionMismatch
from moonfed.plan.selection import AUTO, FORMATS
from moonfed.version import GRAPH_PLAN_INTERFACE, PLAN_INTERFACE
from tests.edge_client.conftest import Bundle
from tests.support.graph_manifest import with_graphs
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


def test_the_installed_torchs_cuda_version_matches_torchs_report() -> None:
    import torch

    assert describe_platform("cpu").get("cuda", "") == (torch.version.cuda or "")


def test_this_device_describes_itself_without_torch() -> None:
    program = (
        "import sys; from moonfed.edge_client.agent.compatibility import describe_platform as d; p = d('cpu', 3); "
        "print(p['threads'], p['accelerator'], p['torch'], 'torch' in sys.modules, 'subprocess' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["3", "cpu"]
    assert done.stdout.split()[2:] == [torch_version(), "False", "False"]


@pytest.mark.parametrize("environment", [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "1,2"}])
def test_the_threads_are_torchs_default(environment: dict[str, str]) -> None:
    program = (
        "from moonfed.edge_client.agent.compatibility import describe_platform; "
        "told = describe_platform('cpu')['threads']; "
        "import torch; print(told, torch.get_num_threads())"
    )
    others = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=others | environment)
    message, taken = done.stdout.split()
    assert message == taken


@pytest.mark.parametrize(
    ("omp", "mkl", "threads"), [("3", "", "3"), ("3", "2", "2"), ("9", "", "4"), ("many", "", "4"), ("0", "", "4")]
)
def test_the_environment_sets_the_number_of_threads(
    omp: str, mkl: str, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "_cores", lambda: {0, 1, 2, 3})
    monkeypatch.setenv("OMP_NUM_THREADS", omp)
    monkeypatch.setenv("MKL_NUM_THREADS", mkl)
    assert describe_platform("cpu")["threads"] == threads
    assert describe_platform("cpu", 7)["threads"] == "7"


def test_a_plan_that_needs_newer_things_is_not_run(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert require_runnable(bundle.manifest, FORMATS[AUTO]) == PLAN_INTERFACE
    monkeypatch.setattr(compatibility, "torch_version", lambda: "2.3.0a0+ebedce2.nv24.02")
    with refused(VersionMismatch, "torch"):
        require_runnable(bundle.manifest, FORMATS[AUTO])
    monkeypatch.setattr(compatibility, "torch_version", lambda: "2.8.0")
    both = with_graphs(bundle.manifest, minimum_torch="2.12")
    assert require_runnable(both, FORMATS[AUTO]) == PLAN_INTERFACE
    with refused(VersionMismatch, "torch", "2.8.0"):
        require_runnable(both, FORMATS[AUTO], GRAPH_PLAN_INTERFACE)
    other = replace(bundle.manifest, plan=replace(bundle.manifest.plan, interface="torchscript/9"))
    with refused(VersionMismatch, "interface", "torchscript/9"):
        require_runnable(other, FORMATS[AUTO])
