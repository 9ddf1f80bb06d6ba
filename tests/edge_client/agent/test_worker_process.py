"""The training worker: crashes, kills and restarts."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from moonfed.blobs import tensors
from moonfed.blobs.encoded_models import encode_model
from moonfed.edge_client.agent import worker_process as worker_module
from moonfed.edge_client.agent.worker_process import (
    GRACE_SECONDS,
    Heartbeat,
    WorkerProcess,
    _chunk,
    _errors,
    _heartbeat,
)
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import RunState
from moonfed.edge_client.worker.messages import SampleCounts, WorkerSettings
from moonfed.encodings import known_encodings, parse_encodings
from moonfed.errors import InvalidInput, MoonfedError, NotFound, TrainingFailed, UnsafePlan
from moonfed.sandbox import child_process as child_module
from moonfed.sandbox.child_process import ChildProcess
from moonfed.sandbox.sandboxed_process import Sandbox
from tests.edge_client.conftest import SANDBOX, TASK, Bundle, wait_until_gone

pytestmark = pytest.mark.slow

GOOD = "x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32); return x, np.arange(40) % 3"
HANG = "import ctypes; ctypes.PyDLL(None).sleep(1000)"  # holds the interpreter's lock, so that no thread of it runs
UserModule = Callable[[str], str]
NewWorker = Callable[..., WorkerProcess]


@pytest.fixture
def new_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_programs: None) -> Iterator[NewWorker]:
    """Create workers that find the test's modules and end with the test."""
    monkeypatch.chdir(tmp_path)
    made: list[WorkerProcess] = []

    def make(data: object, *, silence: float = 60.0, accelerator: str = "cpu", holdout: float = 0.0) -> WorkerProcess:
        settings = WorkerSettings(
            state=str(tmp_path / "state"),
            device="cam-1",
            data=str(data),
            accelerator=accelerator,
            holdout=holdout,
            threads=1,
            sandbox=SANDBOX,
        )
        made.append(WorkerProcess(settings, silence_seconds=silence))
        return made[-1]

    yield make
    for worker in made:
        worker.end()


def run_state(tmp_path: Path, bundle: Bundle, run: str = "tested") -> RunState:
    return RunState(tmp_path / "state" / "runs", run, manifest=bundle.digest, seed=1)


def always(_: Heartbeat | None) -> bool:
    return True


def trainer_of(worker: WorkerProcess) -> psutil.Process:
    assert worker._trainer
    return psutil.Process(worker._trainer.pid)


def reader_of(worker: WorkerProcess) -> psutil.Process:
    return psutil.Process(worker._reader.pid)


@pytest.mark.usefixtures("fresh_programs")
def test_a_round_is_trained_and_stored(
    new_worker: NewWorker, new_job: Callable[..., Job], bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    worker = new_worker(samples, holdout=0.1)
    assert worker.train(new_job(), always)
    stored = run_state(tmp_path, bundle).find(1, 1, TASK)
    assert stored is not None
    assert (stored.update.samples, stored.update.steps) == (36, 8)
    assert set(stored.update.metrics) == {"loss", "holdout_accuracy", "holdout_loss", "holdout_samples"}
    vector = tensors.open_model(stored.model_file, bundle.manifest.tensors)
    tensors.require_finite(vector, bundle.manifest.tensors)


def test_samples_without_room_in_memory_train_the_same_model(
    new_worker: NewWorker,
    new_job: Callable[..., Job],
    bundle: Bundle,
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = []
    for run, room in (("memory", 10**9), ("mapped", 0)):
        monkeypatch.setattr(WorkerProcess, "_room", lambda *_, room=room: room)
        worker = new_worker(samples, holdout=0.1)
        for number in (1, 2):  # the samples are read once
            assert worker.train(new_job(run=run, round=number), always)
        assert bool(worker._files) == (room == 0)
        stored = run_state(tmp_path, bundle, run).find(2, 1, TASK)
        assert stored is not None
        models.append(stored.model_file.read_bytes())
    assert models[0] == models[1]


@pytest.mark.parametrize("name", sorted(known_encodings()))
def test_a_process_that_cannot_create_files_trains_in_every_encoding(
    new_worker: NewWorker, new_job: Callable[..., Job], bundle: Bundle, samples: Path, tmp_path: Path, name: str
) -> None:
    encodings, received = parse_encodings(name, name), tmp_path / "received"
    (tmp_path / "initial").write_bytes(bundle.weights)
    encode_model(tmp_path / "initial", received, bundle.manifest.tensors, encodings.down)
    worker = new_worker(samples)
    for number in (1, 2):  # the second one adds the first one's encoding error
        job = new_job({"model": str(received)}, round=number, encodings=encodings, counted_round=number - 1)
        assert worker.train(job, always)
    stored = run_state(tmp_path, bundle).find(2, 1, TASK)
    assert stored
    assert stored.outgoing["model"][1].stat().st_size > 0
    output = worker._directory.output
    assert not [file for file in output.glob("*.plain") if file.stat().st_size], "what is temporary takes no space"


def test_the_second_round_starts_from_the_first_ones_model_even_in_a_new_worker(
    new_worker: NewWorker, new_job: Callable[..., Job], bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    def train(run: str, worker: WorkerProcess, *rounds: int) -> bytes:
        for number in rounds:
            assert worker.train(new_job(run=run, round=number), always)
        stored = run_state(tmp_path, bundle, run).find(rounds[-1], 1, TASK)
        assert stored is not None
        return stored.model_file.read_bytes()

    worker = new_worker(samples)
    with_previous = train("one", worker, 1, 2)
    pid = trainer_of(worker).pid
    without = train("two", worker, 2)
    assert trainer_of(worker).pid == pid
    assert with_previous != without  # MOON's second term
    train("three", worker, 1)
    worker.end()
    assert train("three", worker, 2) == with_previous
    assert trainer_of(worker).pid != pid


def test_the_device_survives_a_worker_that_dies(
    new_worker: NewWorker, new_job: Callable[..., Job], user_module: UserModule, tmp_path: Path
) -> None:
    deaths = [
        ("os._exit(3)", "exited unexpectedly with code 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL; the"),
        ("raise ValueError('the camera is unplugged')", "ValueError.*: the camera is unplugged"),
        ("sys.exit(4)", "exited unexpectedly with code 4"),
    ]
    worker = new_worker(user_module("exec(open('trouble').read())\n" + GOOD))
    for body, message in deaths:
        (tmp_path / "trouble").write_text(body)
        with pytest.raises((TrainingFailed, InvalidInput), match=message):
            worker.train(new_job(), always)
        assert not worker.running
    (tmp_path / "trouble").write_text("")
    assert worker.train(new_job(), always)


def test_a_worker_that_hangs_is_killed(
    new_worker: NewWorker, new_job: Callable[..., Job], user_module: UserModule
) -> None:
    worker = new_worker(user_module(HANG), silence=1.0)
    seen: list[psutil.Process] = []

    def watch(_: Heartbeat | None) -> bool:
        seen.append(reader_of(worker))
        return True

    with pytest.raises(TrainingFailed, match="no heartbeat for 1 seconds"):
        worker.train(new_job(), watch)
    wait_until_gone(seen[:1])


def test_prints_of_user_code_do_not_corrupt_the_protocol(
    new_worker: NewWorker, new_job: Callable[..., Job], user_module: UserModule, capfd: pytest.CaptureFixture[str]
) -> None:
    prints = (
        "print('{\"kind\": \"trained\"}', flush=True); os.write(1, b'raw\\n'); os.system('echo shell')\n"
        "print(repr(sys.stdin.read()), flush=True)\n"
    )
    worker = new_worker(user_module(prints + GOOD))
    assert worker.train(new_job(), always)
    printed = capfd.readouterr().err
    assert all(text in printed for text in ('{"kind": "trained"}', "raw", "shell", "''"))


def test_logs_of_user_code_reach_the_devices_log(
    new_worker: NewWorker, new_job: Callable[..., Job], user_module: UserModule, caplog: pytest.LogCaptureFixture
) -> None:
    worker = new_worker(user_module("import logging; logging.warning('dusty lens')\n" + GOOD))
    with caplog.at_level(logging.INFO):
        assert worker.train(new_job(), always)
    assert "dusty lens" in caplog.messages


def test_unneeded_training_stops_and_the_worker_continues(
    new_worker: NewWorker, new_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    worker = new_worker(samples)

    def until_it_trains(sign: Heartbeat | None) -> bool:
        return sign is None or sign.epoch == 0

    assert not worker.train(new_job(epochs=1_000_000), until_it_trains)
    pid = trainer_of(worker).pid
    assert not (tmp_path / "state" / "runs").exists()
    assert worker.train(new_job(round=2), always)
    assert trainer_of(worker).pid == pid


def test_an_unread_reply_is_not_mistaken_for_the_next_commands(
    new_worker: NewWorker, new_job: Callable[..., Job], bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    worker = new_worker(samples)

    def stumble(sign: Heartbeat | None) -> bool:
        if sign:
            raise ValueError("trouble in the parent")
        return True

    with pytest.raises(ValueError, match="trouble in the parent"):
        worker.train(new_job(epochs=1_000_000), stumble)
    assert not worker.running
    assert worker.train(new_job(round=2), always)
    assert run_state(tmp_path, bundle).find(2, 1, TASK) is not None


def test_a_worker_that_ignores_stop_is_killed(
    new_worker: NewWorker, new_job: Callable[..., Job], user_module: UserModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "STOP_SECONDS", 0.2)
    worker = new_worker(user_module("open('reached', 'w').close()\nwhile True: time.sleep(1)"))
    assert not worker.train(new_job(), lambda _: not Path("reached").exists())
    assert not worker._reader.running


def test_a_plan_that_cannot_be_loaded_is_a_failure(
    new_worker: NewWorker, new_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.pt").write_bytes(b"PK no plan")
    with pytest.raises(UnsafePlan, match="not a readable archive"):
        new_worker(samples).train(new_job(plan_file=str(tmp_path / "broken.pt")), always)


@pytest.mark.parametrize(
    ("data", "accelerator", "error", "message"),
    [
        ("nowhere.npz", "cpu", NotFound, "there is no such file"),
        ("nowhere", "cpu", NotFound, "there is no such file or folder"),
        ("no_module:load", "cpu", InvalidInput, "cannot be imported"),
    ],
)
def test_errors_that_would_fail_every_round_are_found_at_start(
    data: str, accelerator: str, error: type[MoonfedError], message: str, new_worker: NewWorker
) -> None:
    worker = new_worker(data, accelerator=accelerator)
    with pytest.raises(error, match=message):
        worker.check()
    assert not worker.running


def test_a_worker_exits_when_its_parent_is_killed(
    new_job: Callable[..., Job], user_module: UserModule, tmp_path: Path
) -> None:
    settings = {
        "sandbox": SANDBOX,
        "state": str(tmp_path / "state"),
        "device": "cam-1",
        "data": user_module(f"open('reached', 'w').close()\n{HANG}"),
        "accelerator": "cpu",
        "holdout": 0.0,
        "threads": 1,
    }
    job = new_job().to_document()
    script = (
        "import json, sys; from moonfed.edge_client.agent.worker_process import WorkerProcess\n"
        "from moonfed.edge_client.job import Job\n"
        "from moonfed.edge_client.worker.messages import WorkerSettings\n"
        "worker = WorkerProcess(WorkerSettings(**json.loads(sys.argv[1])))\n"
        "worker.train(Job.from_document(json.loads(sys.argv[2])), lambda _: print('sign', flush=True) or True)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(settings), json.dumps(job)], cwd=tmp_path, stdout=subprocess.PIPE
    )
    children: list[psutil.Process] = []
    try:
        assert parent.stdout
        while not (tmp_path / "reached").exists():
            assert parent.stdout.readline()
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) == 2
        parent.send_signal(signal.SIGKILL)
        wait_until_gone(children)
    finally:
        parent.kill()
        parent.communicate()
        for process in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.parametrize(("budget", "left"), [(100.0, 70.0), (20.0, 0.0), (None, None)])
def test_the_trainer_is_killed_a_while_after_its_budget(
    budget: float | None,
    left: float | None,
    new_worker: NewWorker,
    new_job: Callable[..., Job],
    samples: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This holds however often a plan reports progress."""
    limits: dict[str, float | None] = {}

    def answer(_: ChildProcess, __: bytes, expected: str, *given: Any) -> dict[str, Any] | None:
        limits[expected] = given[1] if len(given) > 1 else None
        return (
            {"samples": 9, "held_out": 0, "classes": [0], "changed": 0, "other_work": None}
            if expected == "read"
            else None
        )

    monkeypatch.setattr(ChildProcess, "start", lambda _: None)
    monkeypatch.setattr(ChildProcess, "answer", answer)
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=lambda: 1030.0))
    job = replace(new_job(), max_seconds=budget, began=1000.0)
    assert not new_worker(samples).train(job, always)
    assert limits == {"read": None, "trained": None if left is None else left + GRACE_SECONDS}


def test_the_trainer_is_not_told_the_devices_state_data_or_labels(tmp_path: Path) -> None:
    worker = WorkerProcess(
        WorkerSettings(
            state=str(tmp_path / "state"),
            device="cam-1",
            data="patients.npz",
            labels={"site": "berlin"},
            accelerator="cpu",
            holdout=0.2,
            sandbox=SANDBOX,
        )
    )
    spec = json.loads(worker._new_trainer(1000, 0)._program.command[-1])
    told = spec["settings"]["worker"]
    assert (told["state"], told["data"], told["labels"]) == ("", "", {})
    assert told["holdout"] == 0.2


def test_a_trainer_may_create_few_files_besides_its_results(
    bundle: Bundle, scaffold: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxes: list[Sandbox] = []

    def sandboxed(_: str, __: object, sandbox: Sandbox, *___: object) -> SimpleNamespace:
        sandboxes.append(sandbox)
        return SimpleNamespace(running=False, end=lambda: None)

    monkeypatch.setattr(worker_module, "sandboxed_process", sandboxed)
    worker = WorkerProcess(
        WorkerSettings(
            state=str(tmp_path), device="cam-1", data="", accelerator="cpu", holdout=0.0, threads=1, sandbox=SANDBOX
        )
    )
    for number, manifest in enumerate((bundle.manifest, scaffold.manifest)):
        worker._trainer_of(str(number), manifest)
    plain, more = (sandbox.files for sandbox in sandboxes)
    assert 3 <= plain <= 20
    assert more == plain + len(scaffold.manifest.uplink) + len(scaffold.manifest.device_state) > plain


PROGRESS = {"fraction": 0.5, "epoch": 1, "loss": None}


@pytest.mark.parametrize(
    "changed",
    [
        *({"fraction": value} for value in (1.5, -0.1, float("nan"), "half", 10**400)),
        *({"epoch": value} for value in (None, float("inf"))),
        {"loss": []},
    ],
)
def test_a_heartbeat_is_numbers_in_their_range(changed: dict[str, Any]) -> None:
    assert _heartbeat(PROGRESS) == Heartbeat(0.5, 1, None)
    with pytest.raises(TrainingFailed, match=r"^the plan's process sent an invalid heartbeat$"):
        _heartbeat(PROGRESS | changed)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"steps": "7"}, "invalid results"),
        ({"steps": None}, "invalid results"),
        ({"metrics": []}, "invalid results"),
        ({"metrics": {"loss": "low"}}, "metrics that are not numbers"),
        ({"metrics": {"loss": None}}, "metrics that are not numbers"),
    ],
)
def test_results_have_the_right_types(changed: dict[str, Any], problem: str, new_worker: NewWorker) -> None:
    """The samples are the reader's count, whatever the trainer says."""
    worker, counts = new_worker("data.npz"), SampleCounts(samples=10, held_out=0, version=1)
    trained = {"steps": 7, "metrics": {"loss": 0.5}, "samples": 10**7}
    assert worker._results(trained, counts).samples == 10
    with pytest.raises(TrainingFailed, match=f"^the plan's process sent {problem}$"):
        worker._results(trained | changed, counts)


def test_errors_of_a_model_are_a_number_for_each_sample() -> None:
    assert _errors(struct.pack("<2f", 0.5, 3), 2).tolist() == [0.5, 3.0]
    assert _errors(_chunk({"errors": "0000803f"}), 1).tolist() == [1.0]
    assert _errors(b"", 0).tolist() == []


@pytest.mark.parametrize("fields", [{}, {"errors": 7}, {"errors": "xy"}, {"errors": None}])
def test_a_chunk_that_holds_no_numbers_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(TrainingFailed, match="sent an invalid answer"):
        _chunk(fields)


@pytest.mark.parametrize(
    ("packed", "samples"),
    [(b"", 1), (bytes(4), 2), (bytes(5), 1), (struct.pack("<f", math.nan), 1), (struct.pack("<f", -1), 1)],
)
def test_errors_of_another_number_of_samples_and_impossible_ones_are_rejected(packed: bytes, samples: int) -> None:
    with pytest.raises(TrainingFailed, match="sent an invalid answer"):
        _errors(packed, samples)
