"""Devices as processes against a scripted coordinator over mutual TLS.

Where training begins and ends with signals and kills, programs are started as an operator does; elsewhere they are
forked.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy

from moonfed.blobs.store import ref_of_bytes
from moonfed.edge_client.agent.enrolment import read_identity
from moonfed.edge_client.agent.first_contact import ATTEMPTS
from moonfed.errors import (
    Denied,
    InvalidInput,
    MoonfedError,
    Unavailable,
    Untrusted,
    VersionMismatch,
    WrongState,
    explained,
)
from moonfed.transport.client import to_message
from moonfed.transport.identity import subject_of
from moonfed.v1 import fleet_pb2
from moonfed.version import CONTRACT_VERSION, RELEASE
from tests.edge_client.conftest import PROGRAM, Bundle, Device, wait_until_gone, write_samples
from tests.faults.fleet import until
from tests.support.authority import DAY, Authority
from tests.support.device_coordinator import PATIENCE, Coordinator
from tests.support.forked_process import PATCHES
from tests.support.signatures import signature

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hasty_programs")]

LONG = 10_000_000  # epochs that no test waits for


def digest(content: bytes) -> str:
    return ref_of_bytes(content).sha256


def vector(content: bytes) -> npt.NDArray[np.float64]:
    tensors = sorted(safetensors.numpy.load(content).items())
    return np.concatenate([tensor.ravel().astype(np.float64) for _, tensor in tensors])


@pytest.mark.usefixtures("fresh_programs")
def test_a_round_from_assignment_to_receipt(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    metrics = tmp_path / "moonfed.prom"
    coordinator.assign(bundle.assignment())
    device.start(samples, "--holdout", "0.1", "--metrics-file", str(metrics))
    header, model = coordinator.wait_for_update()
    assert (header.device, header.run, header.round, header.attempt) == ("cam-1", "tested", 1, 1)
    assert (header.samples, header.steps) == (36, 8)
    assert header.metrics["holdout_samples"] == 4
    assert len(model) == len(bundle.weights)
    assert model != bundle.weights
    until(lambda: 'rounds_total{outcome="counted"} 1' in metrics.read_text())
    assert "moonfed_device_connected 1\n" in metrics.read_text()
    code, log = device.stop()
    assert code == 0
    assert metrics.stat().st_mode & 0o777 == 0o644  # though the device's other files are private
    for line in ("moonfed_device_connected 0\n", "moonfed_device_last_round 1\n", "moonfed_device_last_round_loss "):
        assert line in metrics.read_text()
    for text in ("connected to the coordinator", "run tested, round 1: assigned", "trained on 36 samples"):
        assert text in log


def test_a_private_round_sends_a_clipped_change_and_no_metrics(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(bundle.assignment(clip_norm=0.01))
    device.start(samples, "--holdout", "0.1")
    header, model = coordinator.wait_for_update()
    code, log = device.stop()
    assert code == 0
    assert dict(header.metrics) == {}
    assert "loss" in log, "the device itself sees its loss"

    start = vector(bundle.weights)
    assert np.linalg.norm(vector(model) - start) == pytest.approx(0.01, rel=1e-3)
    kept = (device.state / "runs" / "tested" / "1-1" / "model.safetensors").read_bytes()
    assert np.linalg.norm(vector(kept) - start) > 0.02, "it keeps what it trained"


def test_a_device_describes_itself(coordinator: Coordinator, device: Device, samples: Path) -> None:
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    (request,) = coordinator.connect_requests
    assert (request.device, request.contract_version, list(request.plan_interfaces)) == (
        "cam-1",
        CONTRACT_VERSION,
        ["torchscript/4", "graph/1"],
    )
    assert set(request.platform) >= {"architecture", "memory", "python", "torch", "accelerator", "threads"}
    assert request.platform["torch"].startswith("2.")
    assert request.platform["accelerator"] == "cpu"


def test_one_worker_trains_successive_rounds_and_the_plan_is_fetched_once(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.start(samples)
    models = []
    for number in (1, 2, 3):
        coordinator.assign(bundle.assignment(round=number))
        models.append(coordinator.wait_for_update(number)[1])
        assert len(device.processes()) == 3
    fetched = [name for name, _ in coordinator.fetched]
    assert fetched.count(digest(bundle.plan)) == 1
    assert fetched.count(digest(bundle.manifest.to_bytes())) == 1
    assert len({digest(model) for model in models}) == 3
    assert [header.round for header, _ in coordinator.updates] == [1, 2, 3]


def test_two_blobs_that_break_off_are_resumed(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.break_fetch_after = 1
    coordinator.break_upload_after = 1
    coordinator.assign(bundle.assignment())
    device.start(samples)
    _, model = coordinator.wait_for_update()
    offsets = [offset for _, offset in coordinator.fetched]
    assert any(offsets)
    assert coordinator.resumed == [0, len(model) // 2]


def test_a_coordinator_that_restarts_in_mid_round_receives_the_update(
    coordinator: Coordinator, device: Device, bundle: Bundle, user_module: Callable[[str], str], tmp_path: Path
) -> None:
    data = user_module(
        "while not os.path.exists('away'): time.sleep(0.01)\n"
        "return np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3"
    )
    coordinator.assign(bundle.assignment())
    device.start(data)
    coordinator.wait_for(lambda: coordinator.reports, "training")
    coordinator.stop()
    (tmp_path / "away").touch()
    coordinator.serve()
    coordinator.wait_for_update()
    device.wait_for_log("reconnected")
    device.wait_for_log("submitted")
    code, log = device.stop()
    assert code == 0
    assert log.count("trained on") == 1
    assert log.count("the coordinator is unavailable") == 1
    assert log.count("reconnected") == 1
    assert len(coordinator.updates) == 1


def test_a_signal_ends_a_device_whose_upload_is_stuck(
    coordinator: Coordinator, device: Device, bundle: Bundle, user_module: Callable[[str], str], tmp_path: Path
) -> None:
    data = user_module(
        "while not os.path.exists('stuck'): time.sleep(0.01)\n"
        "return np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3"
    )
    coordinator.assign(bundle.assignment())
    device.start(data)
    coordinator.wait_for(lambda: coordinator.reports, "training")
    coordinator.stuck = True
    (tmp_path / "stuck").touch()
    coordinator.wait_for(lambda: coordinator.asked_in_vain, "the upload")
    assert device.stop()[0] == 0


def test_an_update_that_was_not_acknowledged_is_submitted_after_a_restart_without_training(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.submit_error = WrongState("not now")
    coordinator.assign(bundle.assignment())
    device.start(samples)
    trained = device.state / "runs" / "tested" / "1-1" / "model.safetensors"
    device.wait_for_log("the update: not now")
    before = trained.read_bytes()
    device.stop()
    coordinator.submit_error = None
    device.start(write_samples(samples, seed=9))  # training again would give another model
    _, model = coordinator.wait_for_update()
    assert model == before
    assert "it is already trained" in device.stop()[1]


def test_a_coordinators_words_forge_no_line_of_the_log(coordinator: Coordinator, device: Device, samples: Path) -> None:
    coordinator.connect_error = Unavailable("busy\n2026-01-01 00:00:00,000 INFO run forged: submitted\x1b[2J")
    device.start(samples)
    device.wait_for_log("run forged")
    log = device.stop()[1]
    assert "busy 2026-01-01" in log
    assert not re.search("^2026-01-01", log, re.MULTILINE)
    assert "\x1b" not in log


def test_other_work_is_trained_even_if_the_round_has_the_same_name(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(bundle.assignment())
    device.start(samples)
    _, model = coordinator.wait_for_update()
    other = bundle.assignment()
    other.blobs["model"].CopyFrom(to_message(coordinator.blobs.put_bytes(model)))
    models = [model]
    for count, again in enumerate(
        (bundle.assignment(seed=8), bundle.trained(coordinator.blobs, epochs=1).assignment(), other), start=2
    ):
        coordinator.updates.clear()  # a coordinator that has forgotten everything begins a new run with the old name
        coordinator.assign(again)
        models.append(coordinator.wait_for_update()[1])
        assert len({digest(model) for model in models}) == count
    assert "already trained" not in device.stop()[1]


def test_reports_grow_until_a_newer_assignment_ends_training_for_the_old_one(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(bundle.trained(coordinator.blobs, epochs=LONG).assignment())
    device.start(samples)
    coordinator.wait_for(lambda: len({report.fraction for report in coordinator.reports}) >= 2, "two reports")
    device.wait_for_log(": epoch ")
    fractions = [report.fraction for report in coordinator.reports]
    assert fractions == sorted(fractions)
    assert all(0 <= fraction <= 1 for fraction in fractions)
    assert {(report.device, report.run, report.round) for report in coordinator.reports} == {("cam-1", "tested", 1)}
    coordinator.assign(bundle.assignment(attempt=2))
    header, _ = coordinator.wait_for_update()
    assert header.attempt == 2
    assert not coordinator.declined


def test_a_device_stops_when_the_coordinator_tells_it_to(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.stop_reason = "the round has closed"
    coordinator.assign(bundle.trained(coordinator.blobs, epochs=LONG).assignment())
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.reports, "a report")
    coordinator.stop_reason = ""
    coordinator.assign(bundle.assignment(run="other"))
    header, _ = coordinator.wait_for_update()
    assert header.run == "other"
    assert "the coordinator cancelled it: the round has closed" in device.stop()[1]


def test_a_device_that_cannot_train_declines_and_keeps_running(
    coordinator: Coordinator, device: Device, bundle: Bundle, user_module: Callable[[str], str], tmp_path: Path
) -> None:
    troubles = [
        ("os._exit(3)", "with code 3"),
        ("return np.zeros((4, 6), int), [0, 1, 2, 0]", "have dtype int64; the model takes float32"),
        (
            "return np.zeros((1, 6), np.float32), [0]",
            "has 1 samples",
        ),
    ]
    branches = [f"if os.path.exists('{number}'): {body}" for number, (body, _) in enumerate(troubles, start=1)]
    good = "return np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3"
    device.start(user_module("\n".join([*branches, good])))
    for number, (_, reason) in enumerate(troubles, start=1):
        (tmp_path / str(number)).touch()
        coordinator.assign(bundle.assignment(round=number))
        coordinator.wait_for(lambda count=number: len(coordinator.declined) == count, "a declining device")  # type: ignore[misc]
        assert reason in coordinator.declined[-1].reason
        (tmp_path / str(number)).unlink()
    coordinator.assign(bundle.assignment(round=9))
    coordinator.wait_for_update()


def test_a_reason_to_decline_reveals_no_path_on_the_device(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    device.start(samples)
    device.wait_for_log("connected to the coordinator")
    samples.unlink()
    coordinator.assign(bundle.assignment())
    assert coordinator.wait_for_decline().reason == "data is 'PATH'; there is no such file"
    device.wait_for_log(f"declined: data is '{samples}'; there is no such file")


def test_a_methods_other_state_is_exchanged_by_role(
    coordinator: Coordinator, device: Device, scaffold: Bundle, samples: Path
) -> None:
    scaffold.put_into(coordinator.blobs)
    coordinator.break_upload_after = 1  # the second blob's offsets must survive this, too
    device.start(samples, "--max-steps", "7")
    coordinator.assign(scaffold.assignment())
    header, _ = coordinator.wait_for_update()
    assert sorted(header.blobs) == ["model", "variate_change"]  # and not the device's own variate
    assert header.steps == 7
    assert coordinator.resumed[0] == 0 < coordinator.resumed[1]
    first = coordinator.received[0]
    assert len(first["variate_change"]) == len(first["model"]) == len(scaffold.weights)

    def second_round(attempt: int, counted: int = 0) -> fleet_pb2.Assignment:
        assignment = scaffold.assignment(round=2, attempt=attempt, counted_round=counted, counted_attempt=counted)
        assignment.blobs["variate"].CopyFrom(to_message(coordinator.blobs.put_bytes(first["variate_change"])))
        return assignment

    coordinator.assign(second_round(1, counted=1))
    coordinator.assign(second_round(2))
    coordinator.wait_for_update(2)
    coordinator.wait_for(lambda: coordinator.updates[-1][0].attempt == 2, "the second attempt")
    assert coordinator.received[-1]["variate_change"] != first["variate_change"]
    device.stop()
    assert not [path for path in (device.state / "models").glob("*/*") if path.is_file()]
    assert (device.state / "runs" / "tested" / "2-2" / "device_variate.safetensors").is_file()
    coordinator.connect_requests.clear()
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    assert coordinator.connect_requests[0].samples == 40


def test_global_state_that_the_bundle_does_not_know_is_declined(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    assignment = bundle.assignment()
    assignment.blobs["variate"].CopyFrom(assignment.blobs["model"])
    coordinator.assign(assignment)
    device.start(samples)
    reason = coordinator.wait_for_decline().reason
    assert reason == "the assignment has a blob 'variate'; the manifest's downlink has model"


def test_plans_that_this_device_cannot_run_are_declined_before_they_are_fetched(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.start(samples)
    for number, change in enumerate(({"interface": "torchscript/9"}, {"minimum_torch": "99.0"}), start=1):
        manifest = replace(bundle.manifest, plan=replace(bundle.manifest.plan, **change))  # type: ignore[arg-type]
        assignment = bundle.assignment(round=number)
        assignment.manifest.CopyFrom(to_message(coordinator.blobs.put_bytes(manifest.to_bytes())))
        signed = coordinator.blobs.put_bytes(signature(manifest.to_bytes()).to_bytes())
        assignment.signature.CopyFrom(to_message(signed))
        coordinator.assign(assignment)
        coordinator.wait_for(lambda count=number: len(coordinator.declined) == count, "a declining device")  # type: ignore[misc]
    first, second = (declined.reason for declined in coordinator.declined)
    assert first == "the plan's interface is torchscript/9; this device runs torchscript/4 and graph/1"
    assert second.startswith("the plan needs torch 99.0; this device has 2.")
    assert digest(bundle.plan) not in [name for name, _ in coordinator.fetched]


@pytest.mark.parametrize(("options", "required"), [(("--plan-format", "graph"), ""), ((), "graph/1")])
def test_torchscript_that_the_device_or_the_run_refuses_is_never_fetched(
    options: tuple[str, ...], required: str, coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(bundle.assignment(required_plan=required))
    device.start(samples, *options)
    assert coordinator.wait_for_decline().permanent
    assert list(coordinator.connect_requests[0].plan_interfaces) == [*([] if options else ["torchscript/4"]), "graph/1"]
    assert digest(bundle.plan) not in [name for name, _ in coordinator.fetched]


@pytest.mark.parametrize("run", ["../../escape", "/tmp/escape", "two\nlines", "\x1b[2Jescape", ""])
def test_a_malformed_name_ends_the_session_and_the_device_connects_again(
    run: str, coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    device.start(samples)
    coordinator.assign(bundle.assignment())
    coordinator.wait_for_update()
    coordinator.assign(bundle.assignment(run="zero", epochs=0))
    coordinator.assign(bundle.assignment(run=run))
    coordinator.wait_for(lambda: len(coordinator.connect_requests) > 1, "the device")
    coordinator.assign(bundle.assignment(run="next"))
    coordinator.wait_for_update(2)
    assert not list(tmp_path.parent.glob("**/escape"))
    log = device.stop()[1]
    assert f"the coordinator's reply is malformed: Assignment.run is {run!r}" in log
    assert "ignored: epochs is 0" in log
    assert all(line.isprintable() for line in log.split("\n"))


def test_a_message_that_only_a_later_release_knows_is_ignored(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.start(samples)
    coordinator.assign(bundle.assignment())
    coordinator.wait_for_update()
    coordinator.assign(fleet_pb2.ConnectReply.FromString(b"\x9a\x06\x02\x08\x01"))  # field 99 holds a message
    coordinator.assign(bundle.assignment(run="next"))
    coordinator.wait_for_update(2)
    assert len(coordinator.connect_requests) == 1
    (line,) = [line for line in device.stop()[1].splitlines() if "ignored" in line]
    assert RELEASE in line


def test_a_damaged_stored_plan_is_fetched_again(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    name = digest(bundle.plan)
    stored = device.state / "blobs" / name[:2] / name
    stored.parent.mkdir(parents=True)
    stored.write_bytes(bytes(len(bundle.plan)))
    coordinator.assign(bundle.assignment())
    device.start(samples)
    coordinator.wait_for_update()
    assert stored.read_bytes() == bundle.plan


def test_global_models_do_not_accumulate(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.start(samples)
    for number in (1, 2, 3, 4):
        assignment = bundle.assignment(round=number)
        if number > 1:
            ref = coordinator.blobs.put_bytes(coordinator.updates[-1][1])
            assignment.blobs["model"].CopyFrom(to_message(ref))
        coordinator.assign(assignment)
        coordinator.wait_for_update(number)
    device.stop()
    assert not [path for path in (device.state / "models").glob("*/*") if path.is_file()]
    assert sorted(path.name for path in (device.state / "runs" / "tested").iterdir()) == ["3-1", "4-1"]


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize(
    ("number", "code", "moment"), [(signal.SIGTERM, 0, ": epoch "), (signal.SIGINT, 130, "samples to train on")]
)
def test_a_signal_in_mid_training_ends_everything(
    number: int, code: int, moment: str, coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(bundle.trained(coordinator.blobs, epochs=LONG).assignment())
    device.start(samples)
    device.wait_for_log(moment)
    processes = device.processes()
    assert len(processes) == 3
    ended, log = device.stop(number)
    assert ended == code
    wait_until_gone(processes)
    assert "Traceback" not in log
    assert not coordinator.declined  # the device may be back within the round
    assert coordinator.left == ["cam-1"]


def test_a_signal_ends_a_device_that_cannot_reach_anybody(
    coordinator: Coordinator, device: Device, samples: Path
) -> None:
    coordinator.stop()
    device.start(samples)
    device.wait_for_log("the coordinator is unavailable")
    assert device.stop()[0] == 0


@pytest.mark.usefixtures("fresh_programs")
def test_a_killed_device_leaves_no_worker_and_restarts(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    coordinator.assign(bundle.trained(coordinator.blobs, epochs=LONG).assignment())
    device.start(samples)
    device.wait_for_log("samples to train on")
    processes = device.processes()
    device.stop(signal.SIGKILL)
    wait_until_gone(processes)
    coordinator.assign(bundle.assignment())
    device.start(samples)
    coordinator.wait_for_update()


def test_a_coordinator_of_another_authority_is_final(coordinator: Coordinator, device: Device, samples: Path) -> None:
    device.enrol(authority=Authority())
    device.start(samples)
    code, log = device.finish()
    assert code == 5
    assert "that this identity" in log.splitlines()[-1]
    assert not coordinator.connect_requests


@contextmanager
def captive_portal(port: int) -> Iterator[None]:
    """A server that answers every request with a page of its own."""
    with socket.create_server(("127.0.0.1", port)) as portal:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with portal.accept()[0] as caller:
                        caller.recv(1024)
                        caller.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://portal/\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            portal.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("portal", [False, True])
def test_a_device_that_has_reached_the_coordinator_retries_while_another_server_answers(
    coordinator: Coordinator, device: Device, samples: Path, *, portal: bool, restarted: bool
) -> None:
    device.start(samples)
    device.wait_for_log("connected to the coordinator")
    coordinator.stop()
    if restarted:
        device.stop()
    right = coordinator.authority
    with ExitStack() as stack:
        if portal:
            stack.enter_context(captive_portal(coordinator.port))
        else:
            coordinator.authority = Authority()
            coordinator.serve()
        if restarted:
            device.start(samples)
        device.wait_for_log("is unavailable; retrying: the server at" if restarted else "is unavailable; retrying")
        device.wait_for_log(f"{ATTEMPTS + 2} answers of another server")  # more than end a first contact
        coordinator.stop()
    coordinator.authority = right
    coordinator.serve()
    device.wait_for_log("connected to the coordinator" if restarted else "reconnected to the coordinator")
    code, log = device.stop()
    assert code == 0
    assert log.count("is unavailable") == 1


def test_a_certificate_of_another_authority_is_final(coordinator: Coordinator, device: Device, samples: Path) -> None:
    right, coordinator.authority = coordinator.authority, Authority()
    device.enrol(authority=right)
    device.start(samples)
    code, log = device.finish()
    assert code == 5
    assert "rejected this certificate" in log.splitlines()[-1]


def test_a_certificate_has_expired_once_the_coordinator_has_rejected_it(
    coordinator: Coordinator, device: Device, samples: Path
) -> None:
    device.enrol(left=-timedelta(minutes=1))
    coordinator.stop()
    device.start(samples)
    device.wait_for_log("the coordinator is unavailable; retrying")
    coordinator.serve()
    code, log = device.finish()
    assert code == 5
    assert "rejected this certificate: it expired on" in log.splitlines()[-1]
    assert "if that is right, enrol again with a new join token" in log.splitlines()[-1]
    assert not coordinator.connect_requests


@pytest.mark.parametrize("left", [pytest.param(DAY, id="fresh"), pytest.param(DAY / 24, id="due")])
def test_a_clock_that_is_ahead_ends_no_device(
    left: timedelta, coordinator: Coordinator, device: Device, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATCHES, f"{os.environ[PATCHES]},tests.support.clock_ahead")
    device.enrol(left=left)
    device.start(samples)
    device.wait_for_log("but the coordinator accepts the certificate")
    for _ in range(2):
        coordinator.stop()
        coordinator.serve()
        device.wait_for_log("reconnected to the coordinator")
    (renewed,) = coordinator.renewed
    assert read_identity(device.state).certificate == renewed, "once, though it seems due for ever"
    code, log = device.stop()
    assert code == 0
    assert "set the clock" in log


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Denied("device 'cam-1' is revoked"), 5),
        (VersionMismatch("the coordinator speaks 2.0, the device 1.0"), 6),
        (InvalidInput("device is 'cam 1'"), 2),
    ],
)
def test_an_error_that_a_retry_cannot_fix_is_final(
    error: MoonfedError, code: int, coordinator: Coordinator, device: Device, samples: Path
) -> None:
    coordinator.connect_error = error
    device.start(samples)
    ended, log = device.finish()
    assert ended == code
    assert log.splitlines()[-1] == f"moonfed-client: {explained(error)}"
    assert len(coordinator.connect_requests) == 1


def test_other_failures_of_the_coordinator_are_waited_out(
    coordinator: Coordinator, device: Device, samples: Path
) -> None:
    coordinator.connect_error = MoonfedError("a bug")
    device.start(samples)
    coordinator.wait_for(lambda: len(coordinator.connect_requests) >= 2, "two tries")
    coordinator.connect_error = None
    device.wait_for_log("reconnected")
    code, log = device.stop()
    assert code == 0
    assert log.count("retrying: internal error") == 1


def test_a_certificate_is_renewed_before_it_expires(coordinator: Coordinator, device: Device, samples: Path) -> None:
    device.enrol(age=9 * DAY, left=DAY)
    before = read_identity(device.state)
    assert before.is_due_for_renewal()
    device.start(samples)
    device.wait_for_log("connected to the coordinator")  # with the new one
    (renewed,) = coordinator.renewed
    after = read_identity(device.state)
    assert after.certificate == renewed != before.certificate
    assert after.key != before.key
    assert subject_of(after.certificate) == ("device", "cam-1")
    assert (device.state / "identity" / "key.pem").stat().st_mode & 0o077 == 0
    assert len(list(device.state.glob("identity-*"))) == 1
    assert "renewed the certificate" in device.stop()[1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MoonfedError("a bug"), "internal error; the coordinator's log has the details"),
        (WrongState("not now"), "not now"),
    ],
)
def test_a_failed_renewal_leaves_the_device_online(
    error: MoonfedError, reason: str, coordinator: Coordinator, device: Device, samples: Path
) -> None:
    device.enrol(age=9 * DAY, left=DAY)
    coordinator.renew_error = error
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    code, log = device.stop()
    assert code == 0
    assert "the certificate, which is" in log
    assert reason in log
    before = read_identity(device.state)
    coordinator.renew_error = None
    device.start(samples)
    device.wait_for_log("renewed the certificate")
    assert read_identity(device.state).certificate == coordinator.renewed[0] != before.certificate


def test_a_rejected_renewal_is_final(coordinator: Coordinator, device: Device, samples: Path) -> None:
    device.enrol(age=9 * DAY, left=DAY)
    coordinator.renew_error = Denied("device 'cam-1' is revoked")
    device.start(samples)
    assert device.finish() == (5, "moonfed-client: device 'cam-1' is revoked (docs: errors/permission-denied)\n")


def test_a_renamed_device_continues_under_its_new_name(
    coordinator: Coordinator, device: Device, samples: Path, bundle: Bundle
) -> None:
    device.start(samples)
    coordinator.assign(bundle.assignment())
    coordinator.wait_for_update(1)
    before = read_identity(device.state)
    coordinator.renamed["cam-1"] = "gate"
    coordinator.stop()  # as the real one cuts the device off
    coordinator.serve()
    coordinator.wait_for(lambda: coordinator.connect_requests[-1].device == "gate", "the device's new name")
    coordinator.assign(bundle.assignment(round=2))
    header, _ = coordinator.wait_for_update(2)
    assert header.device == "gate"
    after = read_identity(device.state)
    assert (after.name, after.key != before.key) == ("gate", True)
    code, log = device.stop()
    assert code == 0
    assert "from cam-1 to gate" in log
    assert log.count("connected to the coordinator") == 2


def test_a_renamed_device_submits_the_update_it_could_not_submit_before(
    coordinator: Coordinator, device: Device, samples: Path, bundle: Bundle
) -> None:
    coordinator.submit_error = Unavailable("the disk is full")
    device.start(samples)
    coordinator.assign(bundle.assignment())
    coordinator.wait_for(lambda: coordinator.rejected, "an upload")
    coordinator.renamed["cam-1"] = "gate"
    coordinator.stop()
    coordinator.submit_error = None
    coordinator.serve()
    header, _ = coordinator.wait_for_update(1)
    assert (header.device, header.round) == ("gate", 1)
    code, log = device.stop()
    assert code == 0
    assert "it is already trained" in log
    assert len(coordinator.updates) == 1


def test_a_renamed_device_whose_certificate_is_due_continues_under_its_new_name(
    coordinator: Coordinator, device: Device, samples: Path
) -> None:
    device.enrol(age=9 * DAY, left=DAY)
    coordinator.renamed["cam-1"] = "gate"
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    assert coordinator.connect_requests[-1].device == "gate"
    assert len(coordinator.renewed) == 1
    assert device.stop()[0] == 0


def test_a_renamed_device_waits_until_it_can_renew(coordinator: Coordinator, device: Device, samples: Path) -> None:
    coordinator.renamed["cam-1"] = "gate"
    coordinator.renew_error = WrongState("not now")
    device.start(samples)
    device.wait_for_log("to renew the certificate")
    coordinator.renew_error = None
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    assert coordinator.connect_requests[-1].device == "gate"
    assert device.stop()[0] == 0


def test_a_revoked_device_stops_with_the_coordinators_sentence(
    coordinator: Coordinator, device: Device, samples: Path
) -> None:
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    coordinator.connect_error = Untrusted("the certificate 1f of device 'cam-1' was revoked by an operator")
    coordinator.stop()
    coordinator.serve()
    code, log = device.finish()
    assert code == 5
    assert log.splitlines()[-1] == f"moonfed-client: {coordinator.connect_error} (docs: errors/untrusted)"


def test_one_state_directory_serves_one_process(coordinator: Coordinator, device: Device, samples: Path) -> None:
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")
    command = [str(PROGRAM), "run", "--data", str(samples), "--state", str(device.state)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert second.returncode == 4
    assert re.search(r"another moonfed-client \(process \d+\)", second.stderr)


def test_a_device_waits_for_data_that_are_not_mounted_yet(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    later = tmp_path / "later.npz"
    device.start(later)
    device.wait_for_log(f"data is '{later}'; there is no such file; waiting for it")
    coordinator.assign(bundle.assignment(round=1))
    assert "there is no such file" in coordinator.wait_for_decline().reason
    later.write_bytes(samples.read_bytes())
    coordinator.assign(bundle.assignment(round=2))
    coordinator.wait_for_update()


@pytest.mark.parametrize(("option", "value"), [("max-steps", "0"), ("threads", "-1")])
def test_a_budget_of_nothing_is_rejected(option: str, value: str, samples: Path, tmp_path: Path) -> None:
    command = [str(PROGRAM), "run", "--data", str(samples), "--state", str(tmp_path / "device"), f"--{option}", value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith(f"moonfed-client: {option} is {value}; ")


def test_missing_cuda_is_reported_before_connecting(
    coordinator: Coordinator, device: Device, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    device.start(samples, "--device", "cuda")
    code, log = device.finish()
    assert code == 2
    assert log.splitlines() == [
        "moonfed-client: device is 'cuda', but torch finds no CUDA device here; use --device cpu"
        " (docs: errors/invalid-input)"
    ]
    assert not coordinator.connect_requests
