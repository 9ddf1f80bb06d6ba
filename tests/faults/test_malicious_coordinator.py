"""Operators' programs against a coordinator in an attacker's hands: their terminals, files and trust."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message

from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.bundle.target import class_target
from moonfed.client import Coordinator
from moonfed.control.run_settings import RunSettings
from moonfed.errors import MoonfedError
from moonfed.signing.statement import RELEASE
from moonfed.transport.client import to_message
from moonfed.v1 import control_pb2
from tests.proto.control.test_held_out_score import SCORE
from tests.support.coordinator import make_bundle
from tests.support.coordinator_programs import ENVIRONMENT, PROGRAM, _environment
from tests.support.malicious_coordinator import (
    BAD_NAMES,
    SEQUENCES,
    SERVICE,
    Malicious,
    filled,
    malicious_coordinator,
)
from tests.support.operator_records import score_message
from tests.support.release_fleet import Signed, signed_release
from tests.support.signatures import signature, write_keys

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs")]
BUNDLE = make_bundle(target=class_target(SCORE.classes))
COMMANDS = {
    "runs": ["run", "list"],
    "run": ["run", "show", "r"],
    "events": ["run", "watch", "r"],
    "devices": ["device", "list"],
    "device": ["device", "show", "d"],
    "history": ["device", "history", "d"],
    "releases": ["release", "list"],
    "release": ["release", "show", "n"],
    "deployment": ["release", "status", "n"],
    "tokens": ["token", "list"],
    "operators": ["operator", "list"],
    "audit trail": ["audit"],
}


@pytest.fixture
def malicious() -> Iterator[Malicious]:
    with malicious_coordinator() as found:
        yield found


def command(malicious: Malicious, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    identity = str(malicious.write_identity(directory / "operator"))
    return subprocess.run(
        [*PROGRAM, *words, "--identity", identity],
        capture_output=True,
        text=True,
        env=_environment(),
        cwd=directory,
        timeout=60,
    )


def all_replies(text: str) -> dict[str, Any]:
    """Return a reply to every call with the text wherever text may be; of events, the run's end."""
    replies: dict[str, Any] = {}
    for method in SERVICE.methods:
        kind = message_factory.GetMessageClass(method.output_type)
        replies[method.name] = [filled(kind, text)] if method.server_streaming else filled(kind, text)
    settings = RunSettings(rounds=1).to_json()
    replies["GetRun"].settings = settings
    replies["ListRuns"].runs[0].settings = settings
    named = control_pb2.TargetSpec(kind="values", names=[text], shape=[1], units=[text])
    for release in (replies["GetRelease"], replies["ListReleases"].releases[0]):
        release.target.CopyFrom(named)
    ended: Any = filled(control_pb2.RunEvent, text)
    ended.run.settings = settings
    ended.kind = "ended"
    ended.run.status = "finished"
    return replies | {"WatchRun": [ended]}


def require_harmless(sentence: str) -> None:
    """Fail unless a terminal shows each line as it is, and no line is the attacker's."""
    lines = sentence.split("\n")
    assert all(line.isprintable() for line in lines), sentence
    assert not any(line.startswith("moonfed-coordinator: all is well") for line in lines), sentence


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_that_a_coordinator_sends_reaches_a_terminal_as_a_control(
    name: str, malicious: Malicious, tmp_path: Path
) -> None:
    for sequence in SEQUENCES.values():
        malicious.replies = all_replies(f"{sequence}no end")
        done = command(malicious, tmp_path, *COMMANDS[name])
        assert done.returncode == 0, done.stderr
        assert "no end" in done.stdout or name in ("releases", "operators", "history")  # which have no room for it
        require_harmless(done.stdout + done.stderr)
        malicious.replies = dict.fromkeys(malicious.replies, f"no {sequence} no")
        done = command(malicious, tmp_path, *COMMANDS[name])
        assert done.returncode != 0
        assert "no" in done.stderr
        require_harmless(done.stdout + done.stderr)


HOSTILE_SETTINGS = ('{"reducer": %s}', '{"labels": {%s: "x"}}', '{"reducer_settings": {"a": %s}}', "%s")


@pytest.mark.parametrize("settings", HOSTILE_SETTINGS, ids=["reducer", "label", "reducer's own", "no document"])
def test_hostile_settings_are_refused(settings: str, malicious: Malicious, tmp_path: Path) -> None:
    for sequence in SEQUENCES.values():
        run = finished_run(settings=settings.replace("%s", json.dumps(f"a{sequence}b")))
        malicious.replies = {"ListRuns": control_pb2.ListRunsReply(runs=[run])}
        done = command(malicious, tmp_path, "run", "list")
        assert done.returncode == 7, done.stderr
        require_harmless(done.stdout + done.stderr)


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=list(SEQUENCES))
def test_the_python_client_raises_and_returns_printable_text(
    sequence: str, malicious: Malicious, tmp_path: Path
) -> None:
    malicious.replies = all_replies(sequence)
    with Coordinator(malicious.write_identity(tmp_path / "operator")) as coordinator:
        (run,) = coordinator.runs()
        assert str(run.method).isprintable()
        malicious.replies["ListRuns"] = f"no {sequence}"
        with pytest.raises(MoonfedError) as caught:
            coordinator.runs()
    assert str(caught.value).isprintable()


# Exports

ACCURACY = control_pb2.Metric(name="accuracy", maximise=True, share=True)


def finished_run(**fields: Any) -> control_pb2.Run:
    """Return a run of the bundle."""
    settings = RunSettings(rounds=1).to_json()
    initial = to_message(BUNDLE.manifest.files[WEIGHTS_FILE])
    usual: dict[str, Any] = {"run": "digits", "status": "finished", "method": "fedavg", "settings": settings}
    usual |= {"model": initial, "initial_model": initial}
    usual["metric"] = ACCURACY
    return control_pb2.Run(**(usual | fields))


def listed(release: Signed, **fields: Any) -> control_pb2.Release:
    usual: dict[str, Any] = {
        "name": release.manifest.name,
        "version": release.manifest.version,
        "created": 1.0,
        "run": "digits",
        "manifest": to_message(release.ref),
        "signature": to_message(release.signature),
        "metric": ACCURACY,
        "target": control_pb2.TargetSpec(kind="class", names=["cat", "dog"]),
    }
    return control_pb2.Release(**(usual | fields))


def serve_run(malicious: Malicious) -> Signed:
    """Serve a run of a signed bundle, with one round, an evaluation and a signed release; return the release."""
    release = signed_release("digits", BUNDLE)
    for content in (*BUNDLE.files.values(), *release.contents.values(), BUNDLE.signature):
        malicious.put(content)
    run = finished_run(
        manifest=to_message(BUNDLE.ref), signature=malicious.put(BUNDLE.signature), model=to_message(BUNDLE.ref)
    )
    status = "committed"
    malicious.replies = {
        "GetRun": run,
        "ListRounds": [
            control_pb2.Round(run="digits", round=1, attempt=1, status=status, counted=["cam-1"], metrics={"loss": 0.5})
        ],
        "ListEvaluations": [control_pb2.Evaluation(run="digits", round=1, score=score_message(SCORE))],
        "ListReleases": control_pb2.ListReleasesReply(releases=[listed(release)]),
    }
    return release


def files_below(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() and "operator" not in path.parts}


def test_a_run_whose_files_are_signed_is_exported(malicious: Malicious, tmp_path: Path) -> None:
    serve_run(malicious)
    done = command(malicious, tmp_path, "run", "export", "digits", "out", "--to", "csv")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "release" / "digits-1" / "model.onnx").is_file()


def misnamed(malicious: Malicious, release: Signed, name: str) -> dict[str, Message | list[Message]]:
    """Return replies of `run export` that hold a name that is none, each in another type."""
    score = score_message(SCORE)
    score.test_set = name
    status = "committed"
    run = malicious.replies["GetRun"]
    assert isinstance(run, control_pb2.Run)
    device = control_pb2.DeviceEvaluation(scores=[control_pb2.DeviceScore(device=name, samples=1)], metric=score.metric)
    return {
        "ListReleases": control_pb2.ListReleasesReply(releases=[listed(release, name=name)]),
        "ListEvaluations": [
            control_pb2.Evaluation(run="digits", round=1, score=score),
            control_pb2.Evaluation(run="digits", on_devices=device),
        ],
        "ListRounds": [control_pb2.Round(run="digits", round=1, attempt=1, status=status, counted=[name])],
        "GetRun": finished_run(run=name, manifest=run.manifest, signature=run.signature),
    }


@pytest.mark.parametrize("reply", ["ListReleases", "ListEvaluations", "ListRounds", "GetRun"])
@pytest.mark.parametrize("name", [*BAD_NAMES[:7], ""])
def test_a_name_never_leads_an_export_out_of_its_directory(
    name: str, reply: str, malicious: Malicious, tmp_path: Path
) -> None:
    release = serve_run(malicious)
    malicious.replies[reply] = misnamed(malicious, release, name)[reply]
    done = command(malicious, tmp_path, "run", "export", "digits", "out", "--to", "csv", "--devices")
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
    require_harmless(done.stderr)
    assert files_below(tmp_path) == set()


def resigned(malicious: Malicious, release: Signed, **fields: Any) -> control_pb2.Release:
    """Return the release with another signature of the same manifest."""
    usual = {"name": "digits", "version": 1, "kind": RELEASE}
    content = signature(release.manifest.to_bytes(), **(usual | fields)).to_bytes()  # type: ignore[arg-type]
    return listed(release, signature=malicious.put(content))


def attacked(attack: str, malicious: Malicious, release: Signed) -> control_pb2.Release:
    """Return the release as an attacker presents it."""
    if attack == "unsigned":
        return listed(release, signature=None)
    if attack == "stranger's key":
        return resigned(malicious, release, keys=[9])
    if attack == "expired":
        return resigned(malicious, release, expires=1)
    if attack == "another release":
        return listed(release, version=2)
    if attack == "another run's":
        other = signed_release("faces", BUNDLE)
        for content in other.contents.values():
            malicious.put(content)
        return listed(other)
    if attack == "huge signature":
        return listed(release, signature=malicious.put(b"{" * (1 << 17)))
    model = release.manifest.files("float32")["model.onnx"]
    malicious.blobs[model.sha256] = b"another model of the same length"[: model.size].ljust(model.size)
    return listed(release)


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        ("unsigned", 7),
        ("stranger's key", 12),
        ("expired", 12),
        ("another release", 12),
        ("another run's", 12),
        ("huge signature", 8),
        ("altered model", 7),
    ],
)
def test_a_release_that_is_not_verified_is_not_exported(
    attack: str, code: int, malicious: Malicious, tmp_path: Path
) -> None:
    release = serve_run(malicious)
    malicious.replies["ListReleases"] = control_pb2.ListReleasesReply(releases=[attacked(attack, malicious, release)])
    done = command(malicious, tmp_path, "run", "export", "digits", "out", "--to", "csv", "--follow")
    assert done.returncode == code, done.stderr
    assert files_below(tmp_path) == set()


@pytest.mark.parametrize("attack", ["unsigned", "stranger's key", "another name"])
def test_a_bundle_that_is_not_verified_is_not_exported(attack: str, malicious: Malicious, tmp_path: Path) -> None:
    serve_run(malicious)
    malicious.replies["ListReleases"] = control_pb2.ListReleasesReply()
    run, manifest = malicious.replies["GetRun"], BUNDLE.manifest.to_bytes()
    assert isinstance(run, control_pb2.Run)
    if attack == "unsigned":
        run.ClearField("signature")
    elif attack == "stranger's key":
        run.signature.CopyFrom(malicious.put(signature(manifest, name="digits", keys=[9]).to_bytes()))
    else:
        run.signature.CopyFrom(malicious.put(signature(manifest, name="faces").to_bytes()))
    done = command(malicious, tmp_path, "run", "export", "digits", "out", "--to", "csv")
    assert done.returncode == 12, done.stderr
    assert files_below(tmp_path) == set()


def test_without_a_trust_file_there_are_metrics_and_no_files(
    malicious: Malicious, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_run(malicious)
    monkeypatch.setitem(ENVIRONMENT, "MOONFED_KEYS", str(tmp_path / "nobody"))
    done = command(malicious, tmp_path, "run", "export", "digits", "out", "--to", "csv")
    assert done.returncode == 0, done.stderr
    assert "there is no trust file" in done.stderr
    assert {path.name for path in files_below(tmp_path)} >= {"metrics.csv", "parameters.csv"}
    assert not list(tmp_path.rglob("model.onnx"))
    write_keys(tmp_path / "engineer", 9)
    done = command(
        malicious, tmp_path, "run", "export", "digits", "out", "--to", "csv", "--trust", "engineer/trust.json"
    )
    assert done.returncode == 0, done.stderr
