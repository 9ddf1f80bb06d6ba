"""The pods of Kubernetes' manifests, whose containers run here: their users, volumes, probes and ends."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from moonfed.client import Coordinator
from moonfed.coordinator.console.passwords import set_password
from moonfed.serving.requests.api_keys import create_key
from moonfed.transport.join_token import parse_token
from tests.coordinator.conftest import new_bucket
from tests.deploy.pods import WAIT, Pod, Running, anyone, isolates, missing, named, namespace, rendered
from tests.support import postgresql
from tests.support.model_repositories import linear, write_model
from tests.support.server_certificates import write_certificate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
LOCAL = ("--host=127.0.0.1", "--json")
COORDINATOR = (*LOCAL, "--fleet-port=0", "--enrolment-port=0", "--metrics-host=127.0.0.1", "--metrics-port=0")
ENTRYPOINT = ("moonfed-coordinator",)
PASSWORD = "correct horse battery"
Storage = dict[str, str]


def pod(overlay: str, kind: str, name: str, ordinal: str, root: Path) -> Pod:
    documents = rendered(f"overlays/{overlay}")
    root.chmod(0o755)
    return Pod(documents, named(documents, kind, name), f"{name}-{ordinal}", root)


@dataclass
class Replica:
    """A coordinator's pod that serves."""

    pod: Pod
    running: Running
    ports: dict[str, int]

    @property
    def state(self) -> Path:
        return self.pod.path("/var/lib/moonfed/state")

    def reads(self, file: str) -> bytes:
        return (self.state / file).read_bytes()


@pytest.fixture
def storage(postgresql_server: postgresql.Server, s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The variables that name a database and an object store."""
    postgresql_server.directory.chmod(0o711)  # its socket is open to all of this machine's users
    bucket = new_bucket(s3_server, monkeypatch.setenv)
    database = postgresql_server.new_database()
    return {"MOONFED_DATABASE": database, "MOONFED_BLOBS": bucket, "AWS_ENDPOINT_URL": s3_server}


@contextmanager
def replica(ordinal: int, storage: Storage, root: Path, authority: dict[str, bytes] | None = None) -> Iterator[Replica]:
    root.mkdir(exist_ok=True)
    made = pod("production", "StatefulSet", "moonfed-coordinator", str(ordinal), root)
    made.give("database", {"password": b"not asked for here"})
    made.give("objects", {"credentials": b"[default]\naws_access_key_id = key\naws_secret_access_key = secret\n"})
    if authority:
        made.give("authority", authority)
    for _ in range(2):  # as of a pod that starts again
        assert made.initialise().returncode == 0
    with made.running(ENTRYPOINT, COORDINATOR, storage) as running:
        ready = running.printed()
        ports = {"fleet": ready["fleet_port"], "enrolment": ready["enrolment_port"], "metrics": ready["metrics_port"]}
        yield Replica(made, running, ports)


def grace(made: Pod) -> float:
    """Return the seconds between SIGTERM and SIGKILL."""
    (container,) = made.spec["containers"]
    total, slept = made.spec["terminationGracePeriodSeconds"], container["lifecycle"]["preStop"]["sleep"]["seconds"]
    return float(total - slept)


def test_containers_have_their_own_user_and_a_read_only_root_here(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    assert isolates()
    for path, code in (("/mnt/inside", 0), (f"/var/outside-{os.getpid()}", 1)):
        written = subprocess.run([*namespace(tmp_path), "touch", path], capture_output=True, check=False)
        assert written.returncode == code, path
    assert (tmp_path / "inside").exists()


def test_two_replicas_start_answer_their_probes_and_end_in_time(storage: Storage, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(replica(0, storage, tmp_path / "first"))
        authority = {name: first.reads(f"authority/{name}") for name in ("ca.pem", "ca-key.pem")}
        second = stack.enter_context(replica(1, storage, tmp_path / "second", authority))
        assert second.reads("authority/ca.pem") == authority["ca.pem"]
        for each in (first, second):
            assert [each.running.probe(kind, each.ports) for kind in ("startupProbe", "livenessProbe")] == ["200"] * 2
            assert each.running.probe("readinessProbe", each.ports) == "open"
            assert stat.S_IMODE((each.state / "authority" / "ca-key.pem").stat().st_mode) == 0o600
            assert stat.S_IMODE(each.state.stat().st_mode) & 0o777 == 0o700
            # A service's name is in the certificate, as the load balancer's is.
            verifying = ssl.create_default_context(cafile=each.state / "authority" / "ca.pem")
            verifying.set_alpn_protocols(["h2"])
            for name in ("moonfed-coordinator", "fleet.example.org"):
                with (
                    socket.create_connection(("127.0.0.1", each.ports["enrolment"]), WAIT) as plain,
                    verifying.wrap_socket(plain, server_hostname=name) as secure,
                ):
                    assert secure.selected_alpn_protocol() == "h2"
        for each in (first, second):
            if isolates():
                assert Path(f"/proc/{each.running.process.pid}").stat().st_uid == 10001
            assert each.running.stop() < grace(each.pod)
            assert each.running.probe("readinessProbe", each.ports) == "ConnectionRefusedError"


def test_a_second_replica_waits_for_the_authority_and_a_first_one_keeps_its_own(tmp_path: Path) -> None:
    for ordinal, code in (("0", 0), ("1", 1)):
        root = tmp_path / ordinal
        root.mkdir()
        made = pod("production", "StatefulSet", "moonfed-coordinator", ordinal, root)
        assert made.initialise().returncode == code
        kept = made.path("/var/lib/moonfed/state/authority")
        kept.mkdir(parents=True, exist_ok=True)
        kept.joinpath("ca.pem").write_bytes(b"its own")
        if isolates():
            shutil.chown(kept.parent, 10001, 10001)
            shutil.chown(kept, 10001, 10001)
        assert made.initialise().returncode == 0
        assert kept.joinpath("ca.pem").read_bytes() == b"its own"


def test_liveness_notices_a_coordinator_that_hangs_though_its_port_is_open(storage: Storage, tmp_path: Path) -> None:
    with replica(0, storage, tmp_path / "first") as one:
        one.running.process.send_signal(signal.SIGSTOP)
        assert one.running.probe("livenessProbe", one.ports) == "TimeoutError"
        assert one.running.probe("readinessProbe", one.ports) == "open"
        one.running.process.send_signal(signal.SIGCONT)
        assert one.running.probe("livenessProbe", one.ports) == "200"


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, bytes]:
    """A Secret of type kubernetes.io/tls."""
    write_certificate(tmp_path / "tls.key", tmp_path / "tls.crt")
    return {name: (tmp_path / name).read_bytes() for name in ("tls.crt", "tls.key")}


def test_the_console_lets_an_operator_in_and_answers_its_probes(
    storage: Storage, tmp_path: Path, certificate: dict[str, bytes]
) -> None:
    with replica(0, storage, tmp_path / "first") as one:
        root = tmp_path / "console"
        root.mkdir()
        made = pod("production", "Deployment", "moonfed-console", "x", root)
        identity = ("ca.pem", "certificate.pem", "key.pem", "coordinator.json")
        made.give("operator", {name: one.reads(f"operator/{name}") for name in identity})
        set_password(tmp_path / "passwords", "operator", PASSWORD)
        made.give("passwords", {"passwords": (tmp_path / "passwords").read_bytes()})
        made.give("tls", certificate)
        changed = (*LOCAL, "--port=0", f"--coordinator=127.0.0.1:{one.ports['fleet']}")
        with made.running(ENTRYPOINT, changed) as running:
            address = running.printed()["address"]
            ports = {"https": int(address.rpartition(":")[2])}
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert running.probe(kind, ports) == "200"
            name = "https://console.example.org"
            headers = {"Host": "console.example.org", "Origin": name}
            with httpx.Client(
                base_url=f"https://127.0.0.1:{ports['https']}", verify=anyone(), trust_env=False, headers=headers
            ) as browser:
                given = {"operator": "operator", "password": PASSWORD}
                assert browser.post("/api/login", json=given).status_code == 200
            assert running.stop() < grace(made)


def test_the_inference_server_answers_its_probes_and_drains_in_time(
    tmp_path: Path, certificate: dict[str, bytes]
) -> None:
    root = tmp_path / "server"
    root.mkdir()
    made = pod("production", "Deployment", "moonfed-server", "x", root)
    write_model(made.path("/models"), "linear", 1, linear())
    key = create_key(tmp_path / "api-keys", "alice", admin=False)
    made.give("keys", {"api-keys": (tmp_path / "api-keys").read_bytes()})
    made.give("tls", certificate)
    free = (*LOCAL, "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    with made.running(("moonfed-export", "serve"), free) as running:
        ready = running.printed()
        ports = {"https": ready["http_port"], "grpc": ready["grpc_port"], "metrics": ready["metrics_port"]}
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert running.probe(kind, ports) == "200"
        url = f"https://127.0.0.1:{ports['https']}/v2/models/linear"
        for headers, status in ({"Authorization": f"Bearer {key}"}, 200), ({}, 401):
            assert httpx.get(url, headers=headers, verify=anyone(), trust_env=False).status_code == status
        assert running.stop() < grace(made)


def test_a_device_enrols_once_and_connects(storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "device"
    root.mkdir()
    made = pod("test", "StatefulSet", "device", "1", root)
    with replica(0, storage, tmp_path / "first") as one, Coordinator(one.state / "operator") as operator:
        token = dataclasses.replace(
            parse_token(operator.create_token().token), address=f"127.0.0.1:{one.ports['enrolment']}"
        )
        made.give("token", {"join-token": str(token).encode()})
        with (tmp_path / "samples.npz").open("wb") as file:
            np.savez(file, inputs=np.zeros((8, 4), np.float32), labels=np.arange(8) % 3)
        made.give("data", {"device-1.npz": (tmp_path / "samples.npz").read_bytes()})
        for _ in range(2):  # a pod that starts again has a certificate, and the token is used up
            done = made.initialise()
            assert done.returncode == 0, done.stderr
        with made.running(("moonfed-client",), (f"--coordinator=127.0.0.1:{one.ports['fleet']}",)) as running:
            deadline = time.monotonic() + WAIT
            while not [device for device in operator.devices() if device.online]:
                assert time.monotonic() < deadline, running.log.read_text()
                assert running.process.poll() is None, running.log.read_text()
                time.sleep(0.1)
            (found,) = operator.devices()
            assert (found.device, found.inference_only) == ("device-1", False)
            assert running.stop() < made.spec["terminationGracePeriodSeconds"]
