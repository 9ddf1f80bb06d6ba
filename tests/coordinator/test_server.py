"""Real coordinator processes: start, kill, stop, and the operator's commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from moonfed import transport
from moonfed.bundle import write_bundle
from moonfed.identity import load_identity
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.v1 import control_pb2, fleet_pb2
from tests.support import coordinator
from tests.support.coordinator import Device, OperatorCalls, model_bytes, model_values

PROGRAM = [sys.executable, "-c", "from moonfed.coordinator.cli.program import main; main()"]
ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])}
Until = Callable[[Callable[[], bool]], None]


@dataclass
class Programs:
    """Coordinators as processes on one state directory, always on the same ports."""

    tmp: Path
    stack: ExitStack
    ports: tuple[int, int] = (0, 0)
    process: subprocess.Popen[str] | None = None
    devices: dict[str, Device] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.tmp / "state"

    @property
    def log(self) -> str:
        return (self.tmp / "log").read_text()

    def serve(self, *options: str) -> dict[str, Any]:
        command = [*PROGRAM, "serve", "--state", str(self.state), "--json", *options]
        command += ["--fleet-port", str(self.ports[0]), "--enrolment-port", str(self.ports[1])]
        with (self.tmp / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=ENVIRONMENT, start_new_session=True
            )
        self.stack.callback(self.end, self.process)
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.log
        ready = json.loads(line)
        assert isinstance(ready, dict)
        self.ports = (ready["fleet_port"], ready["enrolment_port"] or 0)
        return ready

    def end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()

    def signal(self, number: int) -> int:
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def operator(self) -> OperatorCalls:
        calls = coordinator.operator(self.state, self.ports[0])
        self.stack.enter_context(calls.channel)
        return calls

    def device(self, name: str) -> Device:
        """A device with a fresh connection; enrolled the first time."""
        if name not in self.devices:
            coordinator.enrol(self.tmp / name, self.operator().token(), name)
        identity = load_identity(self.tmp / name)
        self.devices[name] = Device(name, self.stack.enter_context(transport.open_channel(identity.address, identity)))
        return self.devices[name]

    def command(self, *words: str, code: int = 0) -> str:
        """Return the output of an operator's command; its error message if it is to fail."""
        identity = (
            ["--identity", str(self.state / "operator")] if words[0] != "serve" and "--insecure" not in words else []
        )
        done = subprocess.run(
            [*PROGRAM, *words, *identity], capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=60
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr


@pytest.fixture
def programs(tmp_path: Path, forked_programs: None) -> Iterator[Programs]:
    with ExitStack() as stack:
        yield Programs(tmp_path, stack)


def test_a_killed_coordinator_resumes_within_and_between_rounds(programs: Programs) -> None:
    programs.serve()
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    devices = [programs.device(name) for name in ("cam-1", "cam-2")]
    programs.command("run", "start", str(bundle), "--name", "r", "--rounds", "2", "--minimum-devices", "2")
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
    assert ended.status == control_pb2.RUN_STATUS_FINISHED
    assert [entry.round for entry in programs.operator().rounds("r")] == [1, 2]
    np.testing.assert_array_equal(model_values(programs.operator().model(ended.model)), np.float32(7.0))


def test_server_state_survives_a_kill(programs: Programs) -> None:
    """FedAvgM and SCAFFOLD: killed between two rounds and in the middle of one."""
    programs.serve()
    write_bundle(programs.tmp / "bundle", coordinator.make_bundle(**coordinator.SCAFFOLD, server_rule=FedAvgM()))
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
    told = programs.command("serve", "--state", str(programs.state), "--insecure", code=4)
    assert told == (
        f"moonfed-coordinator: another coordinator (process {programs.process.pid}) uses {programs.state}; "
        "stop it, or give another --state\n"
    )
    port = str(programs.ports[0])
    told = programs.command("serve", "--state", str(programs.tmp / "b"), "--insecure", "--fleet-port", port, code=4)
    assert "the port is taken" in told


def test_a_database_that_is_gone_or_damaged_is_not_replaced(programs: Programs) -> None:
    programs.serve()
    programs.signal(signal.SIGKILL)
    database = programs.state / "coordinator.db"
    # Whoever is killed leaves what it committed last in the write-ahead log: the database is both files.
    content = {path: path.read_bytes() for path in programs.state.glob("coordinator.db*")}
    for path in content:
        path.unlink()
    told = programs.command("serve", "--state", str(programs.state), "--insecure", code=7)
    assert "is gone or empty, though" in told
    database.write_bytes(content[database][:50] + b"\xff" * (len(content[database]) - 50))
    told = programs.command("serve", "--state", str(programs.state), "--insecure", code=7)
    assert "is damaged" in told
    assert "restore it" in told
    for path, whole in content.items():
        path.write_bytes(whole)
    programs.serve()


def test_plaintext_is_for_this_machine_alone_and_needs_no_enrolment(programs: Programs) -> None:
    told = programs.command("serve", "--state", str(programs.state), "--insecure", "--host", "0.0.0.0", code=2)  # noqa: S104
    assert "host is '0.0.0.0'" in told
    told = programs.command("serve", "--state", str(programs.state), "--host", "0.0.0.0", code=2)  # noqa: S104
    assert "name is not given" in told
    ready = programs.serve("--insecure")
    assert ready["enrolment_port"] is None
    there = ("--insecure", "--coordinator", f"127.0.0.1:{ready['fleet_port']}")
    assert "devices need no join token" in programs.command("token", "create", *there, code=4)
    bundle = coordinator.bundle_directory(programs.tmp / "bundle.zip")
    programs.command("run", "start", str(bundle), "--rounds", "1", *there)
    with grpc.insecure_channel(f"127.0.0.1:{ready['fleet_port']}") as channel:
        device = Device("cam-1", channel)
        with pytest.raises(Exception, match=r"device is '\.\./x'"):
            device.connect("../x")
        device.submit(device.connect().assignment(), model_bytes(1.0))
    programs.command("run", "watch", "digits", *there)
    assert "cam-1" in programs.command("device", "list", *there)


@pytest.mark.usefixtures("fresh_programs")
def test_a_coordinator_imports_no_torch_no_runtime_and_no_export(programs: Programs) -> None:
    """A whole run is served under an import hook that forbids them."""
    hook = programs.tmp / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import sys\n"
        "class Forbid:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in 'torch onnx onnxruntime export edge_client experiments'.split():\n"
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
        assert list(programs.operator().watch("r"))[-1].run.status == control_pb2.RUN_STATUS_FINISHED
    finally:
        ENVIRONMENT["PYTHONPATH"] = before
    assert "forbidden" not in programs.log


def test_the_operators_commands(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    told = json.loads(programs.command("token", "create", "--uses", "2", "--json"))
    assert told["token"].startswith("moonfed-join-1.")
    device = programs.device("cam-1")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    started = json.loads(programs.command("run", "start", str(bundle), "--rounds", "1", "--cohort", "20%", "--json"))
    assert (started["run"], started["status"], started["settings"]["cohort"]) == ("digits", "running", "20%")
    assert "waiting for 1 more device" in programs.command("run", "show", "digits")
    device.submit(device.connect().assignment(), model_bytes(1.0))
    lines = [json.loads(line) for line in programs.command("run", "watch", "digits", "--json").splitlines()]
    assert (lines[0]["event"], lines[-1]["event"], lines[-1]["run"]["status"]) == ("snapshot", "ended", "finished")
    shown = programs.command("run", "show", "digits")
    assert "train_loss" in shown
    assert "1 of 1" in shown
    assert "server rule mean: weighting samples" in shown
    document = json.loads(programs.command("run", "show", "digits", "--json"))
    assert document["server_rule"] == {"name": "mean", "weighting": "samples"}
    assert document["settings"]["sampling"] == "uniform"
    told_twice = programs.command("run", "start", str(bundle), "--sampling", "samples", code=2)
    assert "would count a device's size twice" in told_twice
    assert "sampling is 'size'" in programs.command("run", "start", str(bundle), "--sampling", "size", code=2)
    assert json.loads(programs.command("run", "show", "digits", "--json"))["rounds"][0]["counted"] == ["cam-1"]
    assert json.loads(programs.command("run", "list", "--json"))[0]["round"] == 1
    assert "finished" in programs.command("run", "list")
    assert json.loads(programs.command("device", "list", "--json"))[0]["device"] == "cam-1"
    assert json.loads(programs.command("run", "show", "digits", "--json"))["settings"]["retention"]["last"] == 20
    assert "keep_last is 0" in programs.command("run", "prune", "digits", "--keep-last", "0", code=2)
    assert "deleted 0 global models" in programs.command("run", "prune", "digits", "--keep-last", "1")
    assert "disk-budget is 'much'" in programs.command("serve", "--disk-budget", "much", code=2)
    assert "no run 'other'" in programs.command("run", "stop", "other", code=3)
    assert "cohort is 'many'" in programs.command("run", "start", str(bundle), "--cohort", "many", code=2)
    assert "with the models of its 1 rounds? [y/N]" in programs.command("run", "delete", "digits", code=1), "it asks"
    programs.command("run", "delete", "digits", "--yes")
    assert json.loads(programs.command("run", "list", "--json")) == []
    assert "no run 'digits'" in programs.command("run", "delete", "digits", "--yes", code=3)
    told = programs.command("run", "delete", "digits", code=3)
    assert "no run 'digits'" in told
    assert "Delete" not in told, "it does not ask first"
    assert "is not a bundle" in programs.command("run", "start", str(programs.tmp / "nothing"), code=3)
    wrong = programs.tmp / "wrong.safetensors"
    wrong.write_bytes(model_bytes(1.0, coordinator.SPECS[:1]))
    told = programs.command("run", "start", str(bundle), "--from", str(wrong), code=2)
    assert f"from is {str(wrong)!r}, which does not match this bundle: tensor" in told
    assert "is missing" in told
    nowhere = programs.command("run", "start", str(bundle), "--from", str(programs.tmp / "no"), code=3)
    assert "no'; there is no such file" in nowhere
    assert "valid_hours is -1.0; it must be above 0 and at most 87600" in programs.command(
        "token", "create", "--valid-hours", "-1", code=2
    )


def test_an_operator_starts_a_run_with_robust_aggregation(programs: Programs) -> None:
    programs.serve("--name", "localhost")
    bundle = str(coordinator.bundle_directory(programs.tmp / "bundle"))
    asked = ("--weight-cap", "20%", "--clip-norm", "2", "--clip-factor", "3", "--reducer", "geometric_median")
    words = ("run", "start", bundle, "--minimum-devices", "5", *asked, "--reducer-set", "byzantine=1")
    started = json.loads(programs.command(*words, "--json"))
    assert started["settings"]["robust"] == {
        "weight_cap": 0.2, "clip_norm": 2.0, "clip_factor": 3.0,
        "reducer": "geometric_median", "reducer_settings": {"byzantine": "1"},
    }  # fmt: skip
    against = "reducer geometric_median, byzantine 1"
    line = f"robust aggregation: weight cap 20%, clip norm 2, clip factor 3, {against}"
    assert line in programs.command("run", "show", "digits").splitlines()
    told = programs.command("run", "start", bundle, "--reducer", "multi_krum", "--reducer-set", "byzantine=1", code=2)
    assert "a round may close with 1 update; reducer 'multi_krum' needs 5 with byzantine=1" in told
    assert "weight_cap is 'much'" in programs.command("run", "start", bundle, "--weight-cap", "much", code=2)
    plain = json.loads(programs.command("run", "start", bundle, "--name", "plain", "--json"))
    assert plain["settings"]["robust"] is None


def test_a_port_that_is_taken_is_one_sentence(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("serve", "--state", str(programs.state), "--insecure", "--fleet-port", str(port))
        told = programs.command(*words, code=4)
    assert told == (
        f"moonfed-coordinator: cannot listen on 127.0.0.1:{port}: "
        "the port is taken, or the address is not one of this machine's\n"
    )


def test_a_wrong_address_is_named_by_its_option(programs: Programs) -> None:
    told = programs.command("device", "list", "--coordinator", "foo", code=2)
    assert told == "moonfed-coordinator: coordinator is 'foo'; it must be host:port, with a port from 1 to 65535\n"


def test_watching_continues_across_a_restart(programs: Programs, until: Until) -> None:
    programs.serve()
    device = programs.device("cam-1")
    bundle = coordinator.bundle_directory(programs.tmp / "bundle")
    programs.command("run", "start", str(bundle), "--name", "r", "--rounds", "1")
    words = [*PROGRAM, "run", "watch", "r", "--identity", str(programs.state / "operator")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as watching:
        try:
            assert watching.stdout
            assert "waiting for 1 more device" in watching.stdout.readline()
            programs.signal(signal.SIGKILL)
            programs.serve()
            device = programs.device("cam-1")
            device.submit(device.connect().assignment(), model_bytes(1.0))
            assert "run r (fedavg): finished, 1 of 1 rounds" in watching.stdout.read()
            assert watching.wait(timeout=60) == 0
        finally:
            watching.kill()


def test_every_command_has_help_with_an_example(programs: Programs) -> None:
    commands = [
        "serve",
        "token create",
        "device list",
        *(f"run {word}" for word in (["start", "list", "show", "watch", "stop", "prune", "delete"])),
    ]
    for command in [*commands, "", "run", "token", "device"]:
        done = subprocess.run(
            [*PROGRAM, *command.split(), "--help"], capture_output=True, text=True, env=ENVIRONMENT, check=True
        )
        assert f"Example: moonfed-coordinator {command}" in " ".join(done.stdout.split()), command
