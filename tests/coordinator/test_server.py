"""Real coordinator processes: start, kill, stop, and the operator's commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import grpc
import numpy as np
import pytest

from moonfed.errors import InvalidInput
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.v1 import fleet_pb2
from tests.support import coordinator
from tests.support.coordinator import Device, model_bytes, model_values
from tests.support.coordinator_programs import ENVIRONMENT, Programs
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


def test_a_killed_coordinator_resumes_within_and_between_rounds(programs: Programs) -> None:
    programs.serve()
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    devices = [programs.device(name) for name in ("cam-1", "cam-2")]
    programs.command(
        "run", "start", str(bundle), "--name", "r", "--rounds", "2", "--minimum-devices", "2", "--trusting"
    )
    sessions = [device.connect() for device in devices]
    work = [one.assignment() for one in sessions]
    receipt = devices[0].submit(work[0], model_bytes(1.0), samples=30)[-1].receipt
    programs.signal(signal.SIGKILL)

    programs.serve()
    open_round = programs.operator().run("r").open_round
    assert (open_round.round, open_round.attempt) == (1, 1)
    assert list(open_round.reported) == ["cam-1"]
    devices = [programs.device(name) for name in ("cam-1", "cam-2")]
    again = devices[1].connect().assignment()
    assert again == work[1]
    assert devices[0].submit(work[0], model_bytes(1.0), samples=30)[-1].receipt == receipt
    devices[0].connect()
    devices[1].submit(again, model_bytes(5.0), samples=10)
    watching = programs.operator().watch("r")
    while not ((seen := next(watching)).round == 2 or seen.run.open_round.round == 2):
        pass
    before = programs.operator().run("r")
    done = programs.operator().rounds("r")
    assert list(done[0].counted) == ["cam-1", "cam-2"]
    np.testing.assert_array_equal(model_values(programs.operator().model(before.model)), np.float32(2.0))
    programs.signal(signal.SIGKILL)

    programs.serve()
    assert programs.operator().rounds("r") == done
    devices = [programs.device(name) for name in ("cam-1", "cam-2")]
    for device in devices:
        device.submit(device.connect().assignment(), model_bytes(7.0))
    ended = list(programs.operator().watch("r"))[-1].run
    assert ended.status == "finished"
    assert [entry.round for entry in programs.operator().rounds("r")] == [1, 2]
    np.testing.assert_array_equal(model_values(programs.operator().model(ended.model)), np.float32(7.0))


def test_server_state_survives_a_kill(programs: Programs) -> None:
    """Kill runs of FedAvgM and SCAFFOLD between two rounds and in the middle of one."""
    programs.serve()
    coordinator.bundle_directory(programs.tmp / "bundle", **coordinator.SCAFFOLD, server_rule=FedAvgM())
    devices = [programs.device(name) for name in ("cam-1", "cam-2")]
    start = ("run", "start", str(programs.tmp / "bundle"), "--name", "r", "--rounds", "3", "--minimum-devices", "2")
    programs.command(*start)

    def submit(device: Device, work: fleet_pb2.Assignment, value: float) -> None:
        device.submit(work, model_bytes(value), also={"variate_change": model_bytes(value, coordinator.PARAMETERS)})

    sessions = [device.connect() for device in devices]
    for device, one in zip(devices, sessions, strict=True):
        submit(device, one.assignment(), 1.0)
    second = [one.assignment() for one in sessions]
    programs.signal(signal.SIGKILL)
    programs.serve()
    devices = [programs.device(name) for name in ("cam-1", "cam-2")]
    sessions = [device.connect() for device in devices]
    assert [one.assignment() for one in sessions] == second, "the same variate, the same counted round"
    assert [(work.counted_round, work.counted_attempt) for work in second] == [(1, 1)] * 2
    submit(devices[0], second[0], 3.0)
    programs.signal(signal.SIGKILL)
    programs.serve()
    devices = [programs.device(name) for name in ("cam-1", "cam-2")]
    sessions = [device.connect() for device in devices]
    submit(devices[1], sessions[1].assignment(), 3.0)
    third = [one.assignment() for one in sessions]
    variate = programs.operator().model(third[0].blobs["variate"])
    np.testing.assert_allclose(model_values(variate, coordinator.PARAMETERS), 1.0 + 3.0)
    for device, work in zip(devices, third, strict=True):
        submit(device, work, 2.0)
    ended = list(programs.operator().watch("r"))[-1].run
    # v: 1, then 0.9·1 + (3 - 1), then 0.9·2.9 + (2 - 3.9); w: 1, 3.9, 3.9 + 0.71; statistics are the mean
    found = model_values(programs.operator().model(ended.model))
    np.testing.assert_allclose(found, [4.61] * 15 + [2.0] * 8, rtol=1e-6)


def test_an_upload_is_resumed_after_a_kill(programs: Programs) -> None:
    programs.serve()
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    device = programs.device("cam-1")
    programs.command("run", "start", str(bundle), "--name", "r", "--rounds", "1")
    work, content = device.connect().assignment(), model_bytes(1.0)
    with pytest.raises(Exception, match="without a commit"):
        device.submit(work, content, send=50, commit=False)
    programs.signal(signal.SIGKILL)
    programs.serve()
    replies = programs.device("cam-1").submit(work, content)
    assert list(replies[0].resume.offsets.values()) == [50]
    list(programs.operator().watch("r"))
    assert programs.operator().rounds("r")[0].counted == ["cam-1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly_with_devices_online(programs: Programs, number: int) -> None:
    programs.serve()
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    session = programs.device("cam-1").connect()
    programs.command("run", "start", str(bundle), "--name", "r", "--heartbeat-timeout", "600")
    session.assignment()
    assert programs.signal(number) == 0
    assert "Traceback" not in programs.log
    with pytest.raises(Exception, match="stopping"):
        session.next()
    programs.serve()
    assert programs.operator().run("r").open_round.attempt == 1, "stopping loses nobody"


def test_a_second_coordinator_on_one_state_and_on_one_port_is_rejected(programs: Programs) -> None:
    programs.serve()
    assert programs.process
    output = programs.command("serve", "--state", str(programs.state), "--insecure", code=4)
    assert output == (
        f"moonfed-coordinator: another coordinator (process {programs.process.pid}) uses {programs.state}; "
        "stop it, or give another --state (docs: errors/wrong-state)\n"
    )
    port = str(programs.ports[0])
    output = programs.command("serve", "--state", str(programs.tmp / "b"), "--insecure", "--fleet-port", port, code=4)
    assert "the port is taken" in output


def test_a_database_that_is_gone_or_damaged_is_not_replaced(programs: Programs) -> None:
    programs.serve()
    programs.signal(signal.SIGKILL)
    database = programs.state / "coordinator.db"
    # Whoever is killed leaves what it committed last in the write-ahead log: the database is both files.
    content = {path: path.read_bytes() for path in programs.state.glob("coordinator.db*")}
    for path in content:
        path.unlink()
    output = programs.command("serve", "--state", str(programs.state), "--insecure", code=7)
    assert "is gone or empty" in output
    database.write_bytes(content[database][:50] + b"\xff" * (len(content[database]) - 50))
    output = programs.command("serve", "--state", str(programs.state), "--insecure", code=7)
    assert "is damaged" in output
    assert "restore it" in output
    for path, whole in content.items():
        path.write_bytes(whole)
    programs.serve()


def test_plaintext_is_for_this_machine_alone_and_needs_no_enrolment(programs: Programs) -> None:
    output = programs.command("serve", "--state", str(programs.state), "--insecure", "--host", "0.0.0.0", code=2)
    assert "host is '0.0.0.0'" in output
    output = programs.command("serve", "--state", str(programs.state), "--host", "0.0.0.0", code=2)
    assert "name is not given" in output
    ready = programs.serve("--insecure")
    assert ready["enrolment_port"] is None
    there = ("--insecure", "--coordinator", f"127.0.0.1:{ready['fleet_port']}")
    assert "need no join token" in programs.command("token", "create", *there, code=4)
    bundle = coordinator.bundle_directory(programs.tmp / "bundle.zip")
    programs.command("run", "start", str(bundle), "--rounds", "1", *there)
    with grpc.insecure_channel(f"127.0.0.1:{ready['fleet_port']}") as channel:
        device = Device("cam-1", channel)
        with refused(InvalidInput, "device", "../x"):
            device.connect("../x")
        device.submit(device.connect().assignment(), model_bytes(1.0))
    programs.command("run", "watch", "digits", *there)
    assert "cam-1" in programs.command("device", "list", *there)


@pytest.mark.usefixtures("fresh_programs")
def test_a_coordinator_imports_no_torch_no_runtime_and_no_export(programs: Programs) -> None:
    """Serve a whole run under an import hook that forbids them."""
    hook = programs.tmp / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import sys\n"
        "class Forbid:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        forbidden = 'torch onnx onnxruntime matplotlib mlflow wandb tensorboard moonfed.export '\n"
        "        forbidden += 'moonfed.edge_client moonfed.experiments moonfed.coordinator.trackers'\n"
        "        if any(f'{name}.'.startswith(f'{each}.') for each in forbidden.split()):\n"
        "            raise RuntimeError('forbidden import: ' + name)\n"
        "sys.meta_path.insert(0, Forbid())\n"
    )
    before = ENVIRONMENT["PYTHONPATH"]
    ENVIRONMENT["PYTHONPATH"] = os.pathsep.join([str(hook), before])
    try:
        forbidden = subprocess.run(
            [sys.executable, "-c", "import torch"], env=ENVIRONMENT, capture_output=True, check=False
        )
        assert b"forbidden import" in forbidden.stderr, "the hook works"
        programs.serve()
        bundle = coordinator.bundle_directory(programs.tmp / "bundle")
        device = programs.device("cam-1")
        programs.command("run", "start", str(bundle), "--name", "r", "--rounds", "1")
        device.submit(device.connect().assignment(), model_bytes(1.0))
        assert list(programs.operator().watch("r"))[-1].run.status == "finished"
    finally:
        ENVIRONMENT["PYTHONPATH"] = before
    assert "forbidden" not in programs.log


def test_a_state_directory_that_others_can_read_becomes_private(programs: Programs) -> None:
    programs.state.mkdir(mode=0o755)
    programs.state.chmod(0o755)
    programs.serve()
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    programs.command("run", "start", str(bundle), "--name", "r")
    assert f"other users could read {programs.state} (mode 755)" in programs.log
    paths = [programs.state, *programs.state.rglob("*")]
    assert not [path for path in paths if path.stat().st_mode & 0o077]
