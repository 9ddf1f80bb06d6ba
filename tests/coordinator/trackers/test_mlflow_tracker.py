"""MLflow: a real tracking server, read back with MLflow's client."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from moonfed.coordinator.cli.run_export import follow_run
from moonfed.coordinator.cli.run_reader import RunReader
from moonfed.coordinator.trackers.tracker import TrackerOptions, open_tracker
from moonfed.errors import InvalidInput, Unavailable
from tests.coordinator.conftest import Fleet
from tests.coordinator.conftest import client as coordinator_client
from tests.coordinator.trackers.conftest import BUNDLE, EXPECTED, Export, connected, record, train
from tests.support.refusals import refused
from tests.support.signatures import TRUST

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a tracking server with SQLite and local artifacts."""
    directory = tmp_path_factory.mktemp("mlflow")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    words = ["server", "--backend-store-uri", f"sqlite:///{directory}/mlflow.db", "--workers", "1"]
    words += ["--artifacts-destination", str(directory / "artifacts"), "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words],
            stdout=log, stderr=log, env=environment, cwd=directory, start_new_session=True,
        )  # fmt: skip
    try:
        while not answers(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None, (directory / "log").read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - loopback
            return bool(reply.status == 200)
    except OSError:
        return False


def test_a_server_gets_a_run_once(export: Export, server: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    first = export("digits", "--to", "mlflow", server, "--experiment", "fleet")
    again = export("digits", "--to", "mlflow", server, "--experiment", "fleet", "--devices")  # adds the devices
    assert first["place"] == again["place"]
    client = MlflowClient(tracking_uri=server)
    experiment = client.get_experiment_by_name("fleet")
    assert experiment
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status, run.data.tags["moonfed.run"]) == ("digits", "FINISHED", "digits")
    assert run.data.params["training.hyperparameters.learning_rate"] == "0.1"
    for name in sorted({name for values in EXPECTED.values() for name in values}):
        message = client.get_metric_history(run.info.run_id, name.replace("@", "/"))
        wanted = {round_: values[name] for round_, values in EXPECTED.items() if name in values}
        assert len(message) == len(wanted)
        assert {metric.step: metric.value for metric in message} == pytest.approx(wanted)
    assert len(client.get_metric_history(run.info.run_id, "device/cam-2/counted")) == 3
    names = {file.path for file in client.list_artifacts(run.info.run_id, "pictures")}
    assert names == {"pictures/curves.png", "pictures/confusion-night.png"}
    file = client.download_artifacts(run.info.run_id, "release/digits-1/model.onnx", str(tmp_path))
    assert Path(file).read_bytes() == b"float32 1 model.onnx"


class Interrupted(Exception):
    """The end of the first export."""


def test_a_followed_run_is_complete_at_its_end(
    server: str, trained: Fleet, tmp_path: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    """The first export is interrupted in the middle of the run; the second one continues it."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server)
    sessions = connected(trained, "cam-3", site="b")
    trained.start("followed", rounds=2, bundle=BUNDLE, labels={"site": "b"})
    train(sessions, 1)
    until(lambda: trained.operator.run("followed").round == 1)
    steps: list[Callable[[], None]] = []

    def sleep(_: float) -> None:
        if not steps:
            raise Interrupted
        steps.pop(0)()

    def follow(scratch: Path) -> None:
        scratch.mkdir()
        reader = RunReader(coordinator_client(trained), "followed", scratch, devices=False, trust=TRUST)
        options = TrackerOptions(target=server, name="followed", identity=reader.identity)
        with open_tracker("mlflow", options) as tracker:
            follow_run(reader, tracker, sleep)
            tracker.write(reader.with_files(reader.read()))

    with pytest.raises(Interrupted):
        follow(tmp_path / "first")
    experiment = client.get_experiment_by_name("moonfed")
    assert experiment
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.data.metrics["train_loss"]) == ("RUNNING", 1.0)

    def finish() -> None:
        record(trained, "followed", 1)
        train(sessions, 2)
        until(lambda: trained.operator.run("followed").status == "finished")

    steps += [finish, lambda: record(trained, "followed", 2)]  # the last model's metrics come after the end
    follow(tmp_path / "second")
    assert steps == []
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    accuracy = client.get_metric_history(run.info.run_id, "accuracy")
    assert {metric.step: metric.value for metric in accuracy} == {1: 0.1, 2: 0.2}
    assert len(client.get_metric_history(run.info.run_id, "train_loss")) == 2
    names = {file.path for file in client.list_artifacts(run.info.run_id, "bundle")}
    assert names == {"bundle/manifest.json", "bundle/model.onnx"}


def test_no_server_is_one_sentence(export: Export) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with refused(Unavailable, "MLflow", f"http://127.0.0.1:{port}"):
        export("digits", "--to", "mlflow", f"http://127.0.0.1:{port}")
    with pytest.raises(InvalidInput, match="rejects the run"):
        export("digits", "--to", "mlflow", "gopher://nowhere")
