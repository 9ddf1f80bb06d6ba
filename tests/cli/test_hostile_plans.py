"""Plans of others that attack the engineer who inspects, signs, exports or releases them, in real processes.

Each attack is repeated without the inspection, so that the sandbox alone must stop it: had a command loaded the plan in
its own process, the plan would write its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from moonfed.bundle.files import Bundle, write_bundle
from moonfed.sandbox.policy import available_level
from moonfed.v1 import control_pb2, control_pb2_grpc
from tests.cli.conftest import program
from tests.support.coordinator import ask, coordinator_in_process, settings, start_run
from tests.support.engineers_attacks import WRITERS, EngineersAttack, hostile
from tests.support.forked_process import PATCHES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]

UNINSPECTED, UNCONFINED = "tests.support.without_inspection", "tests.support.without_sandbox"
MODES = {"both": "", "sandbox alone": UNINSPECTED, "inspection alone": UNCONFINED}
UNSAFE = 11  # the exit code
LOCAL = ("inspect", "sign")
REMOTE = ("onnx", "release create")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sandbox alone" and available_level() != "strict":
        pytest.skip("needs Landlock and seccomp")
    monkeypatch.setenv(PATCHES, MODES[request.param])
    return str(request.param)


@contextmanager
def attacking(command: str, bundle: Bundle, attack: EngineersAttack, planted: Path) -> Iterator[list[str]]:
    """Yield the words of a command on a bundle that attacks the path `planted`."""
    directory, evil = planted.parent, hostile(bundle, attack, planted)
    if command in LOCAL:
        write_bundle(directory / "bundle", evil)
        yield [command, str(directory / "bundle")]
        return
    with coordinator_in_process(directory / "state", insecure=True) as ports:
        address = f"127.0.0.1:{ports.fleet}"
        with grpc.insecure_channel(address) as channel:
            control = control_pb2_grpc.ControlStub(channel)
            start_run(control, "r", evil, settings(minimum_devices=9))
            ask(control.StopRun, control_pb2.StopRunRequest(run="r"))
        given = ["--data", str(directory / "test.npz"), "--insecure", "--coordinator", address]
        own = ["--output", str(directory / "model.onnx")] if command == "onnx" else ["--name", "digits"]
        yield [*command.split(), "r", *given, *own]


@pytest.mark.usefixtures("data_file")
@pytest.mark.parametrize("command", [*LOCAL, *REMOTE])
@pytest.mark.parametrize("name", WRITERS)
def test_a_plan_that_writes_a_file_is_rejected_and_writes_none(
    command: str, name: str, mode: str, bundle: Bundle, tmp_path: Path
) -> None:
    attack, planted = WRITERS[name], tmp_path / "planted.py"
    with attacking(command, bundle, attack, planted) as words:
        before = {path: path.read_bytes() for path in (tmp_path / "bundle").glob("*")}
        done = program(*words, cwd=Path.cwd())
    if mode != "sandbox alone":
        assert done.returncode == UNSAFE, done.stderr
        assert re.search(attack.rejection, done.stderr), done.stderr
        assert {path: path.read_bytes() for path in before} == before, "it was not signed"
        assert not (tmp_path / "model.onnx").exists()
    elif attack.on_load:
        assert done.returncode == 9, done.stderr  # the plan's process failed
        assert "Traceback" not in done.stderr.replace("the plan's process: Traceback", "")
    assert not planted.exists()
    assert not list(tmp_path.rglob("planted*"))


@pytest.mark.usefixtures("data_file")
@pytest.mark.parametrize("command", ["sign", "onnx"])
@pytest.mark.parametrize("name", [name for name, attack in WRITERS.items() if attack.on_load])
def test_without_both_layers_the_file_is_written(
    command: str, name: str, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would prove nothing."""
    monkeypatch.setenv(PATCHES, f"{UNINSPECTED},{UNCONFINED}")
    planted = tmp_path / "planted.py"
    with attacking(command, bundle, WRITERS[name], planted) as words:
        program(*words)
    assert planted.exists()
