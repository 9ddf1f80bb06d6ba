from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.files import Bundle
from moonfed.client import Coordinator
from moonfed.coordinator.server import Ports
from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.coordinator.storage.store import Store
from moonfed.transport import client as transport
from moonfed.v1 import control_pb2
from tests.support import coordinator, postgresql
from tests.support.coordinator import Device, DeviceSession, ask
from tests.support.coordinator_programs import Programs
from tests.support.store_records import FIRST, RUN

FULL = OSError(errno.ENOSPC, "no space left on device")


@dataclass
class Fleet:
    """A coordinator with TLS in this process, its operator, and devices that were enrolled with a token."""

    state: Path
    ports: Ports
    operator: coordinator.OperatorCalls
    stack: ExitStack
    tmp: Path

    def device(self, name: str, token: str = "") -> coordinator.Device:
        identity = coordinator.enrol(self.tmp / name, token or self.operator.token(), name)
        return coordinator.Device(name, self.stack.enter_context(transport.open_channel(identity.address, identity)))

    def start(
        self,
        name: str = "run",
        rounds: int = 1,
        bundle: Bundle | None = None,
        **fields: Any,
    ) -> control_pb2.Run:
        chosen, made = coordinator.settings(rounds, **fields), bundle or coordinator.make_bundle()
        return coordinator.start_run(self.operator.control, name, made, chosen, allow_empty=True)


@contextmanager
def fleet_in(directory: Path, **fields: Any) -> Iterator[Fleet]:
    """Start a coordinator that resumes the previous one in that directory."""
    with ExitStack() as stack:
        state = directory / "state"
        ports = stack.enter_context(coordinator.coordinator_in_process(state, **fields))
        calls = coordinator.operator(state, ports.fleet)
        stack.enter_context(calls.channel)
        yield Fleet(state, ports, calls, stack, directory)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as opened:
        yield opened


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition holds; the test's own time limit ends a wait that lasts too long."""

    def wait(condition: Callable[[], bool]) -> None:
        while not condition():
            time.sleep(0.02)

    return wait


@pytest.fixture
def programs(tmp_path: Path, forked_programs: None) -> Iterator[Programs]:
    with ExitStack() as stack:
        yield Programs(tmp_path, stack)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[postgresql.Server]:
    if reason := postgresql.missing():
        pytest.skip(reason)
    with postgresql.server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The endpoint of an S3 server."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install '.[s3]'")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def new_bucket(endpoint: str, setenv: Callable[[str, str], None]) -> str:
    """The URL of an empty place in an object store, with credentials for it in the environment."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in variables.items():
        setenv(name, value)
    from botocore.session import get_session

    name = f"b{uuid.uuid4().hex}"
    get_session().create_client("s3").create_bucket(Bucket=name)
    return f"s3://{name}/fleet"


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return new_bucket(s3_server, monkeypatch.setenv)


def two_devices(fleet: Fleet, **fields: Any) -> tuple[list[Device], list[DeviceSession]]:
    devices = [fleet.device(name) for name in ("cam-1", "cam-2")]
    fleet.start(minimum_devices=2, **fields)
    return devices, [device.connect() for device in devices]


def start(fleet: Fleet, **fields: Any) -> control_pb2.Run:
    request = control_pb2.StartRunRequest(**{"settings": coordinator.settings().to_json(), **fields})
    reply = ask(fleet.operator.control.StartRun, request)
    assert isinstance(reply, control_pb2.Run)
    return reply


def client(fleet: Fleet) -> Coordinator:
    """Return an operator's client, which the end of the tests closes."""
    found = Coordinator(fleet.state / "operator")
    fleet.stack.callback(found.close)
    return found


def upload(fleet: Fleet, content: bytes) -> str:
    path = fleet.tmp / "blob"
    path.write_bytes(content)
    coordinator.upload(fleet.operator.control, {ref_of_bytes(content): path})
    return ref_of_bytes(content).sha256


@pytest.fixture
def replica(postgresql_server: postgresql.Server) -> Iterator[Callable[[], Store]]:
    """Open the same database repeatedly, each time as another replica."""
    url, opened = postgresql_server.new_database(), list[Store]()

    def open_() -> Store:
        opened.append(open_store(url, used_before=False))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def two(replica: Callable[[], Store]) -> tuple[Store, Store]:
    """The holder of a run whose first round is open, and a follower."""
    holder, follower = replica(), replica()
    holder.add_run(RUN)
    holder.open_round(FIRST, ["a", "b"])
    return holder, follower


@pytest.fixture
def url(postgresql_server: postgresql.Server) -> str:
    return postgresql_server.new_database()
