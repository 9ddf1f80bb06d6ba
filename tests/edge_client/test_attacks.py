"""Plans that attack a device, in `run`, `profile` and `predict`, against real processes.

Each attack is repeated without the inspection, so that the sandbox alone must stop it, and without the sandbox, so that
the inspection alone must. The device must survive and train the next round, its key must stay unread, and no file may
appear.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle import files as bundle_module
from moonfed.bundle.manifest import FILES, GRAPH_FILE, MANIFEST_FILE, PLAN_FILE, WEIGHTS_FILE
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.sandbox.policy import available_level
from tests.edge_client.conftest import PROGRAM, SANDBOX, Bundle, Device, write_samples
from tests.support.attack_bundles import ATTACKS, STOPPED, Attack
from tests.support.device_coordinator import PATIENCE, Coordinator
from tests.support.device_releases import make_release
from tests.support.forked_process import PATCHES, PATIENCE_FILE
from tests.support.signatures import signature

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]

IMPATIENT = "tests.support.impatient,tests.support.shared_trainer,tests.support.without_onnxruntime"
UNINSPECTED = "tests.support.without_inspection"
OPTIONS = ("--max-seconds", "1", "--max-memory", "1GB")
MODES: Mapping[str, tuple[str, str]] = {  # patches, level
    "both": (IMPATIENT, SANDBOX),
    "sandbox alone": (f"{IMPATIENT},{UNINSPECTED}", "strict"),
    "inspection alone": (IMPATIENT, "off"),
}


@dataclass(frozen=True)
class Mode:
    """The layers that are active."""

    inspected: bool
    level: str
    patience: Path  # the file of tests.support.impatient

    def expected(self, attack: Attack) -> str:
        """A pattern of the device's message; empty if there is none, since the plan does no harm."""
        return attack.rejection if self.inspected else attack.sandbox

    def expect(self, pattern: str) -> None:
        """Kill the next plan soon if nothing else ends it."""
        self.patience.write_text("1" if pattern == STOPPED else str(PATIENCE))


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mode:
    patches, level = MODES[request.param]
    if level == "strict" and available_level() != "strict":
        pytest.skip("needs Landlock and seccomp")
    monkeypatch.setenv(PATCHES, patches)
    found = Mode(inspected=UNINSPECTED not in patches, level=level, patience=tmp_path / "patience")
    found.expect("")
    monkeypatch.setenv(PATIENCE_FILE, str(found.patience))
    return found


def attacking(bundle: Bundle, attack: Attack, path: Path) -> Bundle:
    """Return the bundle with a plan that attacks the file at `path`."""
    plan = attack.plan(path)
    files = {name: ref_of_bytes(plan if name == PLAN_FILE else b"") for name in FILES}
    files[WEIGHTS_FILE] = ref_of_bytes(bundle.weights)
    manifest = replace(bundle.manifest, previous_models=0, files=files)
    return Bundle(manifest, plan, bundle.weights, signature(manifest.to_bytes()).to_bytes())


def contains(model: bytes, secret: bytes) -> bool:
    """Return whether an update holds a secret, as text or as numbers."""
    whole = model[: len(model) // 4 * 4]
    numbers = [np.frombuffer(model[shift : len(whole) - 4 + shift], np.float32) for shift in range(4)]
    with np.errstate(invalid="ignore"):
        return secret in model or any(secret in found.clip(0, 255).astype(np.uint8).tobytes() for found in numbers)


def test_a_device_survives_every_attack_and_trains_the_next_round(
    mode: Mode, coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    device.start(samples, *OPTIONS, "--sandbox", mode.level)
    key = device.state / "identity" / "key.pem"
    for number, (name, attack) in enumerate(ATTACKS.items(), start=1):
        planted = tmp_path / "device" / "queue.py"
        plan = attacking(bundle, attack, key if attack.reads else planted)
        plan.put_into(coordinator.blobs)
        declined, updates = len(coordinator.declined), len(coordinator.updates)
        expected = mode.expected(attack)
        mode.expect(expected)
        coordinator.assign(plan.assignment(round=number, run="attack"))
        coordinator.wait_for(lambda: len(coordinator.declined) + len(coordinator.updates) > declined + updates, name)
        if expected:
            assert len(coordinator.declined) > declined, name
            assert re.search(expected, coordinator.declined[-1].reason), (name, coordinator.declined[-1].reason)
            assert len(coordinator.declined) == declined + 1, "one refusal, no repetition"
        else:
            assert len(coordinator.updates) > updates, name
        assert not planted.exists(), name
        count = len(coordinator.updates) + 1
        mode.expect("")
        coordinator.assign(bundle.assignment(round=number, run="honest"))
        header, _ = coordinator.wait_for_update(count)
        assert header.run == "honest", name
    assert not any(contains(model, key.read_bytes()[:64]) for _, model in coordinator.updates)
    assert not any(path.name == "queue.py" for path in tmp_path.rglob("*"))
    code, log = device.stop()
    assert code == 0
    assert not re.search("^2026-01-01", log, re.MULTILINE), "no forged line"


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.reads or attack.writes])
def test_without_both_layers_attacks_on_files_succeed(
    name: str,
    coordinator: Coordinator,
    device: Device,
    bundle: Bundle,
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the tests above would prove nothing."""
    monkeypatch.setenv(PATCHES, UNINSPECTED)
    device.start(samples, "--sandbox", "off")
    attack, planted = ATTACKS[name], tmp_path / "device" / "queue.py"
    key = device.state / "identity" / "key.pem"
    plan = attacking(bundle, attack, key if attack.reads else planted)
    plan.put_into(coordinator.blobs)
    coordinator.assign(plan.assignment())
    _, model = coordinator.wait_for_update()
    assert contains(model, key.read_bytes()[:64]) == attack.reads
    assert planted.exists() == attack.writes


@pytest.mark.parametrize("name", ATTACKS)
def test_profile_and_predict_reject_every_attack(name: str, mode: Mode, bundle: Bundle, tmp_path: Path) -> None:
    attack, planted = ATTACKS[name], tmp_path / "queue.py"
    key = tmp_path / "state" / "identity" / "key.pem"
    key.parent.mkdir(parents=True)
    key.write_bytes(b"-----BEGIN PRIVATE KEY-----" * 4)
    plan = attacking(bundle, attack, key if attack.reads else planted)
    expected = mode.expected(attack)
    mode.expect(expected)
    commands = (profiled(plan, tmp_path), predicted(plan, tmp_path))
    for code, output, errors in run_together(commands, mode, tmp_path):
        if expected:
            assert code in (6, 9, 11), (output, errors)  # 6: an operator that this torch lacks
            assert re.search(expected, errors.splitlines()[-1]), errors
            assert "Traceback" not in errors.replace("the plan's process: Traceback", "")
        else:
            assert code == 0, errors
    assert not planted.exists()


def run_together(commands: Iterable[list[str]], mode: Mode, directory: Path) -> list[tuple[int, str, str]]:
    """Run commands concurrently; return the exit code and both outputs of each."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda command: run(command, mode, directory), commands))


def run(command: list[str], mode: Mode, directory: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(PROGRAM), *command, "--threads", "1", "--sandbox", mode.level],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=directory,
    )
    return done.returncode, done.stdout, done.stderr


def profiled(plan: Bundle, directory: Path) -> list[str]:
    contents = {
        MANIFEST_FILE: plan.manifest.to_bytes(), PLAN_FILE: plan.plan, WEIGHTS_FILE: plan.weights, GRAPH_FILE: b""
    }  # fmt: skip
    bundle_module.write_bundle(directory / "bundle", bundle_module.Bundle(plan.manifest, contents, plan.signature))
    return ["profile", str(directory / "bundle"), "--samples", "20", "--max-memory", "1GB"]


def predicted(plan: Bundle, directory: Path) -> list[str]:
    files = {MANIFEST_FILE: plan.manifest.to_bytes(), PLAN_FILE: plan.plan, "weights.safetensors": plan.weights}
    release = make_release(1, plan=files)
    ReleaseStore(directory / "state").install(release.files(directory / "blobs", plan=True))
    samples = write_samples(directory / "samples.npz", count=4)
    return ["predict", str(samples), "--state", str(directory / "state")]
