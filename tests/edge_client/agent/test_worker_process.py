"""The training child: what it survives, and what survives it."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from moonfed import tensors
from moonfed.edge_client.agent import worker_process as child_module
from moonfed.edge_client.agent.worker_process import Heartbeat, WorkerProcess
from moonfed.edge_client.state.round_store import RunState
from moonfed.edge_client.worker.messages import Job, WorkerSettings
from moonfed.errors import InvalidInput, MoonfedError, NotFound, TrainingFailed
from tests.edge_client.conftest import TASK, Bundle, wait_until_gone

GOOD = "x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32); return x, np.arange(40) % 3"
HANG = "import ctypes; ctypes.PyDLL(None).sleep(1000)"  # holds the interpreter's lock, so that no thread of it runs
UserModule = Callable[[str], str]
NewChild = Callable[..., WorkerProcess]


@pytest.fixture
def new_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewChild]:
    """Makes children that find the test's modules and are gone when it ends."""
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
        )
        made.append(WorkerProcess(settings, silence_seconds=silence))
        return made[-1]

    yield make
    for child in made:
        child.end()


def run_state(tmp_path: Path, bundle: Bundle, run: str = "tested") -> RunState:
    return RunState(tmp_path / "state" / "runs", run, manifest=bundle.digest, seed=1)


def always(_: Heartbeat | None) -> bool:
    return True


def process_of(child: WorkerProcess) -> psutil.Process:
    assert child._process
    return psutil.Process(child._process.pid)


def test_a_round_is_trained_and_stored(
    new_child: NewChild, new_job: Callable[..., Job], bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    child = new_child(samples, holdout=0.1)
    assert child.train(new_job(), always)
    stored = run_state(tmp_path, bundle).find(1, 1, TASK)
    assert stored is not None
    assert (stored.update.samples, stored.update.steps) == (36, 8)
    assert set(stored.update.metrics) == {"loss", "holdout_accuracy", "holdout_loss", "holdout_samples"}
    vector = tensors.open_model(stored.model_file, bundle.manifest.tensors)
    tensors.require_finite(vector, bundle.manifest.tensors)


def test_the_second_round_begins_with_the_first_ones_model_even_in_a_new_child(
    new_child: NewChild, new_job: Callable[..., Job], bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    def train(run: str, child: WorkerProcess, *rounds: int) -> bytes:
        for number in rounds:
            assert child.train(new_job(run=run, round=number), always)
        stored = run_state(tmp_path, bundle, run).find(rounds[-1], 1, TASK)
        assert stored is not None
        return stored.model_file.read_bytes()

    child = new_child(samples)
    with_previous = train("one", child, 1, 2)
    pid = process_of(child).pid
    without = train("two", child, 2)
    assert process_of(child).pid == pid
    assert with_previous != without  # MOON's second term
    train("three", child, 1)
    child.end()
    assert train("three", child, 2) == with_previous
    assert process_of(child).pid != pid


def test_a_child_that_dies_costs_only_itself(
    new_child: NewChild, new_job: Callable[..., Job], user_module: UserModule, tmp_path: Path
) -> None:
    deaths = [
        ("os._exit(3)", "ended by itself with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL; the device may be out of memory"),
        ("raise ValueError('the camera is unplugged')", "ValueError.*: the camera is unplugged"),
        ("sys.exit(4)", "ended by itself with exit code 4"),
    ]
    child = new_child(user_module("exec(open('trouble').read())\n" + GOOD))
    for body, message in deaths:
        (tmp_path / "trouble").write_text(body)
        with pytest.raises((TrainingFailed, InvalidInput), match=message):
            child.train(new_job(), always)
        assert not child.running
    (tmp_path / "trouble").write_text("")
    assert child.train(new_job(), always)


def test_a_child_that_hangs_is_ended(new_child: NewChild, new_job: Callable[..., Job], user_module: UserModule) -> None:
    child = new_child(user_module(HANG), silence=2.0)
    seen: list[psutil.Process] = []

    def watch(_: Heartbeat | None) -> bool:
        seen.append(process_of(child))
        return True

    with pytest.raises(TrainingFailed, match="no heartbeat for 2 seconds"):
        child.train(new_job(), watch)
    wait_until_gone(seen[:1])


def test_what_user_code_prints_disturbs_nobody(
    new_child: NewChild, new_job: Callable[..., Job], user_module: UserModule, capfd: pytest.CaptureFixture[str]
) -> None:
    prints = (
        "print('{\"kind\": \"trained\"}', flush=True); os.write(1, b'raw\\n'); os.system('echo shell')\n"
        "print(repr(sys.stdin.read()), flush=True)\n"
    )
    child = new_child(user_module(prints + GOOD))
    assert child.train(new_job(), always)
    printed = capfd.readouterr().err
    assert all(text in printed for text in ('{"kind": "trained"}', "raw", "shell", "''"))


def test_what_user_code_logs_reaches_the_operator(
    new_child: NewChild, new_job: Callable[..., Job], user_module: UserModule, caplog: pytest.LogCaptureFixture
) -> None:
    child = new_child(user_module("import logging; logging.warning('dusty lens')\n" + GOOD))
    with caplog.at_level(logging.INFO):
        assert child.train(new_job(), always)
    assert "dusty lens" in caplog.messages


def test_training_that_nobody_wants_stops_and_the_child_goes_on(
    new_child: NewChild, new_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    child = new_child(samples)

    def until_it_trains(sign: Heartbeat | None) -> bool:
        return sign is None or sign.epoch == 0

    assert not child.train(new_job(epochs=1_000_000), until_it_trains)
    pid = process_of(child).pid
    assert not (tmp_path / "state" / "runs").exists()
    assert child.train(new_job(round=2), always)
    assert process_of(child).pid == pid


def test_a_child_whose_answer_nobody_waited_for_gives_it_to_nobody(
    new_child: NewChild, new_job: Callable[..., Job], bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    child = new_child(samples)

    def stumble(sign: Heartbeat | None) -> bool:
        if sign:
            raise ValueError("trouble in the parent")
        return True

    with pytest.raises(ValueError, match="trouble in the parent"):
        child.train(new_job(epochs=1_000_000), stumble)
    assert not child.running
    assert child.train(new_job(round=2), always)
    assert run_state(tmp_path, bundle).find(2, 1, TASK) is not None


def test_a_child_that_does_not_hear_stop_is_ended(
    new_child: NewChild, new_job: Callable[..., Job], user_module: UserModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "STOP_SECONDS", 1.0)
    child = new_child(user_module("open('reached', 'w').close()\nwhile True: time.sleep(1)"))
    assert not child.train(new_job(), lambda _: not Path("reached").exists())
    assert not child.running


def test_a_plan_that_cannot_be_loaded_is_a_failure(
    new_child: NewChild, new_job: Callable[..., Job], samples: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.pt").write_bytes(b"PK no plan")
    with pytest.raises(TrainingFailed, match="cannot be loaded"):
        new_child(samples).train(new_job(plan_file=str(tmp_path / "broken.pt")), always)


@pytest.mark.parametrize(
    ("data", "accelerator", "error", "message"),
    [
        ("nowhere.npz", "cpu", NotFound, "there is no such file"),
        ("nowhere", "cpu", InvalidInput, "must be a folder of images"),
        ("no_module:load", "cpu", InvalidInput, "cannot be imported"),
    ],
)
def test_what_would_fail_in_every_round_is_found_at_once(
    data: str, accelerator: str, error: type[MoonfedError], message: str, new_child: NewChild
) -> None:
    child = new_child(data, accelerator=accelerator)
    with pytest.raises(error, match=message):
        child.check()
    assert not child.running


def test_a_child_ends_when_its_parent_is_killed(
    new_job: Callable[..., Job], user_module: UserModule, tmp_path: Path
) -> None:
    settings = {
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
        "from moonfed.edge_client.worker.messages import Job, WorkerSettings\n"
        "child = WorkerProcess(WorkerSettings(**json.loads(sys.argv[1])))\n"
        "child.train(Job.from_document(json.loads(sys.argv[2])), lambda _: print('sign', flush=True) or True)\n"
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
        assert len(children) == 1
        parent.send_signal(signal.SIGKILL)
        wait_until_gone(children)
    finally:
        parent.kill()
        parent.communicate()
        for process in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
