"""Real images, built by buildah: a coordinator and a device run in two of them, and complete a round."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from moonfed.bundle import write_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.manifest import InputSpec
from moonfed.signing.key_files import write_trust
from tests.deploy.image_builder import Builder, missing
from tests.support.compiled import cached_bundle
from tests.support.signatures import CHAIN, signed

pytestmark = [
    pytest.mark.skipif("MOONFED_IMAGES" not in os.environ, reason="`make images` runs this test: it takes minutes"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(900),
]

# Not the images' own volume, over which buildah mounts one of its own, sometimes last.
STATE = "/state/moonfed"
WAIT = 120.0  # seconds after which a program is stuck


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    built = Builder(tmp_path_factory.mktemp("images"))
    built.wheels.mkdir()
    built.make_base()
    yield built
    shutil.rmtree(built.directory, ignore_errors=True)


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A program in a container; stopped as a container runtime stops it."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(WAIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def finished(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def volume_of(builder: Builder, container: str, directory: Path) -> str:
    """Return a volume for the state of the image's user, who is not root."""
    user = int(finished(builder.run(container, "id", "-u")).split()[-1])
    assert user != 0
    directory.mkdir()
    os.chown(directory, user, user)
    return f"{directory}:/state"


def test_a_device_in_an_image_trains_a_round_for_a_coordinator_in_an_image(builder: Builder, tmp_path: Path) -> None:
    recipe = BundleRecipe(
        model="mlp", input=InputSpec(kind="features", shape=(4,)), classes=("a", "b"), method="fedavg", name="tested"
    )
    write_bundle(tmp_path / "bundle", signed(cached_bundle(recipe)))
    data = tmp_path / "data"  # unlike its parent, open to the image's user
    data.mkdir()
    write_trust(data / "trust.json", CHAIN)
    np.savez(data / "samples.npz", inputs=np.eye(4, dtype=np.float32).repeat(8, axis=0), labels=np.arange(32) % 2)
    serving = builder.container(builder.build("coordinator"))
    volume = [volume_of(builder, serving, tmp_path / "coordinator"), f"{tmp_path}/bundle:/bundle:ro"]
    listening = ["--host", "127.0.0.1", "--fleet-port", "0", "--enrolment-port", "0", "--json"]
    serve = builder.run(serving, "moonfed-coordinator", "serve", "--state", STATE, *listening, volumes=volume)
    with running(serve) as coordinator:
        assert coordinator.stdout
        assert json.loads(coordinator.stdout.readline())["fleet_port"]

        def operate(*words: str) -> str:
            options = ["--identity", f"{STATE}/operator"]
            return finished(builder.run(serving, "moonfed-coordinator", *words, *options, volumes=volume))

        told = operate("token", "create").splitlines()
        (data / "token").write_text(next(line for line in told if line.startswith("moonfed-join-")))
        operate("run", "start", "/bundle", "--name", "r", "--rounds", "1")
        training = builder.container(builder.build("cpu", TORCH=builder.torch(version("torch"))))
        mounts = [volume_of(builder, training, tmp_path / "device"), f"{data}:/data:ro"]
        enrol = ["moonfed-client", "enrol", "/data/token", "--trust", "/data/trust.json"]
        enrol += ["--name", "cam-1", "--state", STATE]
        finished(builder.run(training, *enrol, volumes=mounts))
        run = ["moonfed-client", "run", "--state", STATE, "--data", "/data/samples.npz", "--threads", "1"]
        with running(builder.run(training, *run, volumes=mounts)):
            operate("run", "watch", "r")
        assert json.loads(operate("run", "show", "r", "--json"))["status"] == "finished"
