"""Real images, built by buildah: the coordinator, a device and the inference server run in theirs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import yaml

from moonfed.bundle.files import write_bundle
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.serving.requests.api_keys import create_key
from moonfed.signing.key_files import write_trust
from tests.coordinator.conftest import new_bucket
from tests.deploy.containers import Container, create
from tests.deploy.image_builder import BASE, ROOT, Builder, missing, store
from tests.support import server_process
from tests.support.compiled import cached_bundle
from tests.support.model_repositories import batch_of, directly, linear, write_model
from tests.support.postgresql import Server
from tests.support.server_process import get
from tests.support.signatures import CHAIN, signed

REASON = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("MOONFED_IMAGES" not in os.environ, reason="`make images` runs this test: it takes minutes"),
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.timeout(900),
]

# Containers have this machine's network: only this machine reaches what they serve.
LOCAL = ["--host", "127.0.0.1", "--json"]
FREE_PORTS = [*LOCAL, "--fleet-port", "0", "--enrolment-port", "0"]
SERVER_PORTS = [*LOCAL, *server_process.FREE_PORTS]


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    with store() as opened:
        yield opened


@pytest.fixture(scope="module")
def coordinator(builder: Builder) -> Container:
    return create(builder, builder.build("coordinator"))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    recipe = BundleRecipe(
        model="mlp",
        input=InputSpec(kind="features", shape=(4,)),
        target=class_target(("a", "b")),
        method="fedavg",
        name="tested",
    )
    write_bundle(tmp_path / "bundle", signed(cached_bundle(recipe)))
    return tmp_path / "bundle"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory of a device's samples and its engineer's trust file."""
    (tmp_path / "data").mkdir()  # unlike its parent, open to the image's user
    write_trust(tmp_path / "data" / "trust.json", CHAIN)
    inputs = np.eye(4, dtype=np.float32).repeat(8, axis=0)
    np.savez(tmp_path / "data" / "samples.npz", inputs=inputs, labels=np.arange(32) % 2)
    return tmp_path / "data"


def test_a_device_in_an_image_trains_a_round_for_a_coordinator_in_an_image(
    builder: Builder, coordinator: Container, bundle: Path, data: Path
) -> None:
    device = create(builder, builder.build("cpu", TORCH=builder.torch(version("torch")))).given({data: "/data"})
    coordinator = coordinator.given({bundle: "/bundle"})
    operator = ["--identity", "/var/lib/moonfed/state/operator"]
    with coordinator.running(*coordinator.arguments, *FREE_PORTS) as serving:
        assert ports(serving)["fleet_port"]
        (data / "token").write_text(coordinator.finish("token", "create", *operator))
        coordinator.finish("run", "start", "/bundle", "--name", "r", "--rounds", "1", *operator)
        enrol = ["enrol", "/data/token", "--trust", "/data/trust.json", "--name", "cam-1"]
        device.finish(*enrol, "--state", "/var/lib/moonfed")
        with device.running(*device.arguments, "--data", "/data/samples.npz", "--threads", "1"):
            coordinator.finish("run", "watch", "r", *operator)
        assert json.loads(coordinator.finish("run", "show", "r", "--json", *operator))["status"] == "finished"


def test_a_coordinator_in_its_image_stores_runs_where_the_compose_file_says(
    coordinator: Container,
    bundle: Path,
    postgresql_server: Server,
    s3_server: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The test uses its own PostgreSQL and object store: the compose file's are images of other projects."""
    from botocore.session import get_session

    service = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["coordinator"]
    arguments = [word.replace("${NAME:?set it in .env}", "localhost") for word in service["command"]]
    postgresql_server.directory.chmod(0o755)  # open to the image's user, as its socket is
    database = postgresql_server.new_database().replace(str(postgresql_server.directory), "/database")
    blobs = new_bucket(s3_server, monkeypatch.setenv)  # and in AWS_…: how to reach it
    ours = {**service["environment"], "MOONFED_DATABASE": database, "MOONFED_BLOBS": blobs}
    given = {name: os.environ.get(name, value) for name, value in ours.items()}
    (tmp_path / "database-password").write_text("any\n")
    (tmp_path / "objects-credentials").write_text(
        f"[default]\naws_access_key_id = {os.environ['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {os.environ['AWS_SECRET_ACCESS_KEY']}\n"
    )
    secrets = {tmp_path / name: f"/run/secrets/{name}" for name in service["secrets"]}
    coordinator = coordinator.given({bundle: "/bundle", postgresql_server.directory: "/database", **secrets}, given)
    with coordinator.running(*arguments, *FREE_PORTS, "--state", "/var/lib/moonfed/one") as serving:
        assert ports(serving)["fleet_port"]
        operator = ["--identity", "/var/lib/moonfed/one/operator"]
        coordinator.finish("run", "start", "/bundle", "--name", "r", "--rounds", "1", *operator)
    objects = get_session().create_client("s3").list_objects_v2(Bucket=blobs.split("/")[2])
    assert objects["KeyCount"] > 0
    rejected = coordinator.finish(*arguments, *FREE_PORTS, "--state", "/var/lib/moonfed/two", code=4)
    assert "this state directory's authority" in rejected


def test_the_inference_server_in_its_image_answers_only_holders_of_a_key(builder: Builder, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "linear", 1, linear())
    (tmp_path / "keys").mkdir()
    key = create_key(tmp_path / "keys" / "api-keys", "alice", admin=False)
    (tmp_path / "keys" / "api-keys").chmod(0o644)  # as the Dockerfile says
    server = create(builder, builder.build("server"))
    server = server.given({tmp_path / "models": "/models", tmp_path / "keys": "/keys"})
    rejected = server.finish("/models", "--host", "0.0.0.0", code=2)
    assert "it must be combined with --api-key-file" in rejected
    inputs = batch_of(2)
    tensor = {"name": "inputs", "shape": [2, 4], "datatype": "FP32", "data": inputs.ravel().tolist()}
    body, path = json.dumps({"inputs": [tensor]}).encode(), "/v2/models/linear/infer"
    with server.running(*server.arguments, *SERVER_PORTS) as serving:
        address = f"127.0.0.1:{ports(serving)['http_port']}"
        assert get(address, path, body)[0] == 401
        status, answer = get(address, path, body, Authorization=f"Bearer {key}")
        assert status == 200
    (expected,) = directly(linear(), {"inputs": inputs})
    np.testing.assert_allclose(json.loads(answer)["outputs"][0]["data"], np.ravel(expected), rtol=1e-5)


def test_an_image_is_not_built_if_a_dependency_was_replaced(builder: Builder) -> None:
    """The dependency's name and version are the right ones, and pip finds no other."""
    offline = "localhost/moonfed-offline"
    finding = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(builder.wheels)}
    builder.commit(builder.buildah("from", BASE), offline, finding)
    pinned = re.search(r"^setuptools==(\S+)", (ROOT / "requirements" / "build.txt").read_text(), re.MULTILINE)
    assert pinned
    (builder.wheels / f"setuptools-{pinned[1]}-py3-none-any.whl").write_bytes(b"replaced")
    with pytest.raises(AssertionError, match="DO NOT MATCH THE HASHES"):
        builder.build("coordinator", BASE=offline)


def ports(serving: subprocess.Popen[str]) -> dict[str, int]:
    """Return the ports that a server prints once it accepts calls."""
    assert serving.stdout
    return dict(json.loads(serving.stdout.readline()))
