"""moonfed on Python 3.14, where torch has no TorchScript: coordinator and devices in a root of Debian's.

The root is made below build/ by debootstrap, and stays there; the programs run in it by chroot, so only as root. This
Python builds the bundle, since TorchScript comes with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.experiments.child_processes import ChildProcesses, run
from moonfed.plan.selection import PYTHON_WITHOUT
from moonfed.signing.key_files import KEYS_VARIABLE
from moonfed.version import GRAPH_PLAN_INTERFACE
from tests.deploy.environments import programs_in
from tests.deploy.image_builder import CERTIFICATES, finished
from tests.support.forked_process import PATCHES
from tests.support.gates import until
from tools.build_release import build_wheel
from tools.lock_requirements import DIRECTORY, ROOT

PYTHON = ".".join(map(str, PYTHON_WITHOUT))
SUITE, SCRIPT = "forky", "sid"  # debootstrap's script, which older releases have by this name only
SYSTEM = ROOT / "build" / "python314"
ENVIRONMENTS = {"coordinator": ("coordinator",), "device": ("device", "tables")}  # the files that each installs
MISSING = [program for program in ("debootstrap", "chroot") if shutil.which(program) is None]
pytestmark = [
    pytest.mark.skipif("MOONFED_PYTHON314" not in os.environ, reason="`make python314` runs this test: gigabytes"),
    pytest.mark.skipif(bool(MISSING) or os.geteuid() != 0, reason="only root can make a root, with debootstrap"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A root with this release's wheel in one environment for a coordinator and one for a device without torch."""
    if not SYSTEM.exists():
        partial = SYSTEM.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        packages = f"python{PYTHON},python3-venv,python3-pip"
        made = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(partial), "", SCRIPT]
        if subprocess.run(made, capture_output=True).returncode:
            pytest.skip(f"debootstrap cannot make a root of {SUITE} with Python {PYTHON}, which changes by the day")
        partial.rename(SYSTEM)
    with mounted(SYSTEM):
        shutil.rmtree(SYSTEM / "requirements", ignore_errors=True)
        shutil.copytree(DIRECTORY, SYSTEM / "requirements")
        wheel = shutil.copy(build_wheel(tmp_path_factory.mktemp("wheel")), SYSTEM)
        for name, files in ENVIRONMENTS.items():
            inside(f"python{PYTHON}", "-m", "venv", f"/{name}")
            install(name, *files)
            inside(f"/{name}/bin/pip", "install", "--quiet", "--no-deps", "--force-reinstall", f"/{Path(wheel).name}")
        yield SYSTEM


@contextmanager
def mounted(system: Path) -> Iterator[None]:
    """Mount in a root what programs need of this machine."""
    certificates = system / CERTIFICATES.relative_to("/")
    certificates.mkdir(parents=True, exist_ok=True)
    finished(["mount", "-t", "proc", "proc", str(system / "proc")])
    finished(["mount", "--bind", "-o", "ro", str(CERTIFICATES), str(certificates)])
    try:
        yield
    finally:
        finished(["umount", "--lazy", str(certificates), str(system / "proc")])


def inside(*command: str) -> str:
    """Run a command in the root and return its output."""
    return finished(["env", "-u", "PIP_FIND_LINKS", "TMPDIR=/tmp", "chroot", str(SYSTEM), *command])


def install(environment: str, *files: str) -> None:
    """Install the locked requirements, from wheels alone."""
    given = [word for file in files for word in ("--requirement", f"/requirements/{file}.txt")]
    options = ("--quiet", "--no-compile", "--no-cache-dir", "--only-binary=:all:", "--require-hashes")
    inside(f"/{environment}/bin/pip", "install", *options, *given)


@pytest.fixture
def programs(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildProcesses]:
    """A coordinator in the root, and what starts further programs there; all share a directory."""
    shared = Path("/work") / tmp_path.name
    directory = system / shared.relative_to("/")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    wrapped = {f"moonfed-{name}": name for name in ("coordinator", "client")}
    for program, environment in zip(wrapped, ENVIRONMENTS, strict=True):
        path = tmp_path / "bin" / program
        path.parent.mkdir(exist_ok=True)
        script = f'cd {shared} && exec "$0" "$@"'
        path.write_text(f"#!/bin/sh\nexec chroot {system} sh -c '{script}' /{environment}/bin/{program} \"$@\"\n")
        path.chmod(0o755)
    monkeypatch.setenv(KEYS_VARIABLE, "keys")
    monkeypatch.setenv("TMPDIR", "/tmp")
    with programs_in(dict.fromkeys(wrapped, tmp_path), directory, monkeypatch) as started:
        started.start(
            *("coordinator", "moonfed-coordinator", "serve", "--state", "moonfed-coordinator"),
            *("--fleet-port", "0", "--enrolment-port", "0"),
        )
        started.first_line("coordinator")
        yield started


def bundle(monkeypatch: pytest.MonkeyPatch) -> str:
    """Build a bundle with both forms of its plan."""
    monkeypatch.setenv(PATCHES, "tests.support.with_graph_plans")
    options = ("--model", "cnn", "--input", "8x8x1", "--classes", "3", "--method", "moon", "--set", "epochs=1")
    run("moonfed-export", "bundle", *options, "--output", "shapes")
    monkeypatch.delenv(PATCHES)
    return "shapes"


def start_device(programs: ChildProcesses, name: str, *options: str) -> None:
    """Enrol a device with samples of its own, and start it."""
    labels = np.arange(60) % 3
    inputs = np.random.default_rng(labels.size).integers(0, 256, (60, 8, 8, 1), np.uint8)
    np.savez(f"{name}.npz", inputs=inputs, labels=labels)
    run("moonfed-coordinator", "token", "create", "--output", f"{name}.token")
    run("moonfed-client", "enrol", f"{name}.token", "--name", name, "--state", name)
    programs.start(name, "moonfed-client", "run", "--data", f"{name}.npz", "--state", name, "--threads", "1", *options)


def shown(name: str) -> dict[str, Any]:
    """Return what `run show` says of a run."""
    found: dict[str, Any] = json.loads(run("moonfed-coordinator", "run", "show", name, "--json"))
    return found


def devices() -> set[tuple[str, str]]:
    """Return the releases of Python, and the forms of plans, that devices report."""
    found = json.loads(run("moonfed-coordinator", "device", "list", "--json"))
    return {(one["platform"]["python"].rpartition(".")[0], one["platform"]["plans"]) for one in found}


def test_without_torch_a_coordinator_starts_runs_and_commands_answer(
    programs: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("moonfed-coordinator", "moonfed-client"):
        assert run(program, "--version").split() == run("moonfed-export", "--version").split()
        assert program in run(program, "--help")
    run("moonfed-coordinator", "run", "start", bundle(monkeypatch), "--name", "r")
    start_device(programs, "without-torch")
    until(lambda: bool(shown("r")["ineligible"]))
    assert "torch" in shown("r")["ineligible"][0]["reason"]
    assert devices() == {(PYTHON, GRAPH_PLAN_INTERFACE)}


def test_with_torch_a_device_trains_by_graphs(programs: ChildProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    install("device", "torch")
    for number in (1, 2):
        start_device(programs, f"cam-{number}")
    limits = ("--rounds", "2", "--minimum-devices", "2", "--deadline", "600")
    run("moonfed-coordinator", "run", "start", bundle(monkeypatch), "--name", "r", *limits)
    run("moonfed-coordinator", "run", "watch", "r")
    assert (shown("r")["status"], shown("r")["round"]) == ("finished", 2)
    assert devices() == {(PYTHON, GRAPH_PLAN_INTERFACE)}
