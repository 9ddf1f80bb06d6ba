"""`moonfed-client profile`: measurements, estimates and rejections."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from moonfed.bundle.files import Bundle, write_bundle
from moonfed.bundle.manifest import InputSpec, Manifest
from moonfed.bundle.target import class_target
from moonfed.edge_client.profile import measure
from moonfed.edge_client.profile.measure import Profile, ProfileSettings, profile
from moonfed.edge_client.profile.task import Times
from moonfed.edge_client.resources import trainer_runtime
from moonfed.edge_client.state.trust import accept, pin
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.errors import Corrupt, InvalidInput, MoonfedError, UntrustedBundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.plan.training_spec import TrainingSpec
from moonfed.sandbox import policy
from moonfed.signing.key_files import write_trust
from moonfed.signing.trust import TrustChain
from tests.edge_client.conftest import PROGRAM, SANDBOX
from tests.edge_client.conftest import Bundle as SmallBundle
from tests.support.compiled import device_bundle
from tests.support.forked_process import PATCHES
from tests.support.forked_programs import REAL_POPEN
from tests.support.refusals import refused
from tests.support.signatures import CHAIN, TRUST, issued, signed, trust
from tests.support.trainer_memory import shared_trainer_memory

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_programs", "shared_trainer")]

TIMES = Times(step=0.010, step_with_references=0.016, references=0.005, evaluation=0.002)


@pytest.fixture
def shared_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let neither forked programs nor this process start a trainer to measure its memory."""
    monkeypatch.setenv(PATCHES, "tests.support.shared_trainer")
    monkeypatch.setattr(trainer_runtime, "trainer_memory", shared_trainer_memory)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle]:
    """MOON on a perceptron, as a .zip."""
    recipe = BundleRecipe(
        name="measured",
        model="mlp",
        input=InputSpec(kind="features", shape=(12,)),
        target=class_target(("one", "two", "three")),
        method="moon",
        settings={"batch_size": "32", "epochs": "4"},
    )
    built, path = device_bundle(recipe), tmp_path_factory.mktemp("bundle") / "bundle.zip"
    write_bundle(path, signed(built))
    return path, built


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), "profile", *map(str, arguments), "--sandbox", SANDBOX]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def fresh(made: tuple[Path, Bundle]) -> tuple[dict[str, Any], str]:
    """Return the report and the progress of a program started as by a user, with two threads."""
    command = [str(PROGRAM), "profile", str(made[0]), "--samples", "1000", "--max-memory", "8GB", "--json"]
    program = REAL_POPEN(
        [*command, "--sandbox", SANDBOX],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )
    output, progress = program.communicate()
    assert program.returncode == 0, progress
    return json.loads(output), progress


@pytest.mark.parametrize("method", ["scaffold", "fedssc"])
def test_methods_that_exchange_more_than_the_model_can_be_profiled(method: str, tmp_path: Path) -> None:
    recipe = BundleRecipe(
        name="measured",
        model="mlp",
        input=InputSpec(kind="features", shape=(4,)),
        target=class_target(("one", "two")),
        method=method,
        settings={"batch_size": "8", "epochs": "2"},
    )
    write_bundle(tmp_path / "bundle", signed(device_bundle(recipe)))
    found = profile(ProfileSettings(bundle=tmp_path / "bundle", samples=16, sandbox=SANDBOX))
    assert found.rejection is None
    assert found.times
    assert found.times.step > 0


def test_a_profile_estimates_the_time_of_a_round(fresh: tuple[dict[str, Any], str]) -> None:
    found, progress = fresh
    assert (found["can_participate"], found["reason"]) == (True, "")
    assert (found["batch_size"], found["epochs"], found["steps"]) == (32, 4, 4 * (1000 // 32))
    seconds = found["seconds"]
    assert all(0 < seconds[name] < 10 for name in ("step", "step_with_references", "references", "evaluation"))
    batches = 32  # of 1000 samples, the last one partial
    expected = 124 * seconds["step"] + batches * (seconds["references"] + seconds["evaluation"])
    assert seconds["round"] == pytest.approx(expected)
    measured = found["memory"]["measured"]
    assert measured["peak"] <= measured["estimated"] <= 2 * measured["peak"]
    assert "measuring steps …" in progress


def test_the_table_shows_the_same(made: tuple[Path, Bundle]) -> None:
    done = run(made[0], "--threads", 1, "--samples", 200, "--batch-size", 50, "--epochs", 3)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    lines = {name.strip(): value.strip() for name, value in lines.items()}
    assert lines["round"] == "200 samples in batches of 50, 3 epochs: 12 steps"
    assert lines["a step"].endswith(" ms")
    assert "threads 1" in lines["device"].split(", ")
    assert lines["can participate"] == "yes"


def test_a_device_without_enough_memory_gets_the_estimate(made: tuple[Path, Bundle]) -> None:
    done = run(made[0], "--max-memory", "50MB", "--json")
    assert done.returncode == 8
    assert done.stderr.startswith("moonfed-client: the round needs about ")
    assert done.stderr.endswith(" 50 MB (--max-memory) (docs: errors/resource-exhausted)\n")
    assert done.stderr.count("\n") == 1  # nothing was measured
    found = json.loads(done.stdout)
    assert (found["can_participate"], found["seconds"]) == (False, None)
    assert done.stderr == f"moonfed-client: {found['reason']} (docs: errors/resource-exhausted)\n"
    assert found["memory"]["need"]["total"] > 50_000_000


def test_the_memory_needed_is_printed_once(made: tuple[Path, Bundle]) -> None:
    """The references of that many samples are not kept, whatever memory this device has."""
    done = run(made[0], "--samples", 10**12)
    assert done.returncode == 8
    needed = done.stderr.partition("needs ")[2].partition("; ")[0]
    assert needed.startswith("about ")
    assert "references" not in needed
    assert needed in done.stdout


@pytest.mark.usefixtures("fresh_programs")
def test_torch_needs_as_much_memory_as_in_the_trainer(
    made: tuple[Path, Bundle], fresh: tuple[dict[str, Any], str], tmp_path: Path
) -> None:
    """Compare with the bytes that a trainer measures before its first round."""
    (tmp_path / "samples.npz").touch()
    settings = WorkerSettings(
        state=str(tmp_path),
        device="cam",
        data=str(tmp_path / "samples.npz"),
        accelerator="cpu",
        holdout=0.0,
        threads=1,
    )
    program = (
        "import sys, json; from pathlib import Path; import moonfed.sandbox.sandboxed; "
        "from moonfed.edge_client.worker.messages import WorkerSettings; "
        "from moonfed.edge_client.worker.trainer import Trainer; "
        "print(Trainer(WorkerSettings(**json.loads(sys.argv[1])), 0, Path()).runtime)"
    )
    command = [sys.executable, "-c", program, json.dumps(asdict(settings))]
    worker = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert shared_trainer_memory() == pytest.approx(worker, abs=4_000_000)
    parts = fresh[0]["memory"]["need"]["parts"]
    model = 4 * sum(math.prod(spec.shape) for spec in made[1].manifest.tensors)
    assert parts["torch and plan"] == pytest.approx(worker + 48_000_000 + 6 * model, abs=4_000_000)


def test_the_environments_threads_are_reported(fresh: tuple[dict[str, Any], str]) -> None:
    assert fresh[0]["platform"]["threads"] == "2"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_without_cuda_cannot_participate(made: tuple[Path, Bundle]) -> None:
    done = run(made[0], "--device", "cuda")
    assert done.returncode == 2
    assert "no CUDA device here" in done.stderr
    assert done.stdout.splitlines()[-1].split() == ["can", "participate", "no"]


def test_a_bundle_for_a_newer_torch_cannot_be_run_here(made: tuple[Path, Bundle], tmp_path: Path) -> None:
    manifest = made[1].manifest
    newer = replace(manifest, plan=replace(manifest.plan, minimum_torch="9.1"))
    contents = {**made[1].contents, "manifest.json": newer.to_bytes()}
    write_bundle(tmp_path / "newer", signed(Bundle(newer, contents)))
    done = run(tmp_path / "newer")
    assert done.returncode == 6
    assert "needs torch 9.1" in done.stderr


def test_an_invalid_bundle_is_named(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{tmp_path} has no manifest.json" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("samples", 0, "samples is 0"),
        ("batch_size", 0, "batch-size is 0"),
        ("epochs", -1, "epochs is -1"),
        ("threads", 0, "threads is 0"),
        ("accelerator", "tpu", "device is 'tpu'"),
        ("precision", "int8", "precision is 'int8'"),
        ("memory_format", "nhwc", "memory-format is 'nhwc'"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, option: str, value: object, sentence: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        ProfileSettings(bundle=tmp_path, sandbox=SANDBOX, **{option: value})  # type: ignore[arg-type]
    assert str(raised.value).startswith(f"{sentence}; ")


def test_a_wrong_option_is_a_sentence_and_an_exit_code(tmp_path: Path) -> None:
    done = run(tmp_path, "--epochs", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("moonfed-client: epochs is 0; ")


def test_in_process_the_progress_is_reported_and_the_bundle_unchanged(made: tuple[Path, Bundle]) -> None:
    sentences: list[str] = []
    before, threads = made[0].read_bytes(), torch.get_num_threads()
    found = profile(ProfileSettings(bundle=made[0], samples=40, sandbox=SANDBOX), sentences.append)
    assert found.rejection is None
    assert [sentences[0], *sentences[2:]] == ["measuring references", "measuring steps", "measuring evaluation"]
    assert "compute" in sentences[1]
    assert made[0].read_bytes() == before
    assert torch.get_num_threads() == threads


def estimated(manifest: Manifest, *, times: Times = TIMES, samples: int = 100, epochs: int = 10) -> float:
    found = Profile(
        manifest=manifest,
        platform={},
        samples=samples,
        batch_size=32,
        epochs=epochs,
        precision="float32",
        memory_format="channels-last",
        times=times,
    )
    assert found.round_seconds is not None
    return found.round_seconds


def test_a_round_is_estimated_from_its_steps_and_its_references(bundle: SmallBundle) -> None:
    """100 samples in batches of 32: three steps in an epoch, four batches of references and of evaluation."""
    plain = bundle.manifest
    assert estimated(plain) == pytest.approx(30 * 0.010 + 4 * 0.005 + 4 * 0.002)
    fresh = replace(plain, augmentation="crop-flip")
    assert estimated(fresh) == pytest.approx(30 * 0.016 + 4 * 0.002)
    views = replace(fresh, training=TrainingSpec(epochs=10, batch_size=32, views=3))
    assert estimated(views) == pytest.approx(30 * 0.010 + 3 * 4 * 0.005 + 4 * 0.002)
    assert estimated(views, epochs=3) == pytest.approx(9 * 0.016 + 4 * 0.002)  # each view once: left to the step
    assert estimated(plain, epochs=1) == pytest.approx(3 * 0.016 + 4 * 0.002)
    without = Times(step=0.010, step_with_references=None, references=None, evaluation=0.002)
    assert estimated(plain, times=without) == pytest.approx(30 * 0.010 + 4 * 0.002)
    assert estimated(plain, samples=7) == pytest.approx(10 * 0.010 + 1 * 0.005 + 1 * 0.002)  # fewer than a batch


def altered(bundle: Bundle, name: str) -> Bundle:
    content = bundle.contents[name] or b"."  # a device's bundle has an empty graph here
    return replace(bundle, contents={**bundle.contents, name: content[:-1] + bytes([content[-1] ^ 1])})


ATTACKS: dict[str, tuple[Callable[[Bundle], Bundle], type[MoonfedError], str]] = {
    "unsigned": (lambda b: b, UntrustedBundle, "is not signed"),
    "stranger": (lambda b: signed(b, keys=[9]), UntrustedBundle, "which is not trusted"),
    "stranger's trust file": (
        lambda b: signed(b, keys=[9], chain=TrustChain((issued(trust(9), 9),))),
        UntrustedBundle,
        "trusted here",
    ),
    "rotation by nobody": (
        lambda b: signed(b, keys=[9], chain=TrustChain((*CHAIN.envelopes, issued(trust(9, version=2), 9)))),
        UntrustedBundle,
        "not signed by 1 of its predecessor's keys",
    ),
    "too few": (
        lambda b: signed(b, chain=TrustChain((*CHAIN.envelopes, issued(trust(1, 2, version=2, threshold=2), 1, 2)))),
        UntrustedBundle,
        "it needs 2",
    ),
    "expired": (lambda b: signed(b, expires=1), UntrustedBundle, "signature expired on 1970"),
    "older version": (lambda b: signed(b, version=1), UntrustedBundle, "version 1 of .* is older than version 2"),
    "altered manifest": (lambda b: altered(signed(b, version=2), "manifest.json"), UntrustedBundle, "another manifest"),
    "altered plan": (lambda b: altered(signed(b, version=2), "plan.pt"), Corrupt, "plan.pt .* is damaged"),
    "altered graph": (lambda b: altered(signed(b, version=2), "model.onnx"), Corrupt, "model.onnx .* is damaged"),
    "altered signature": (
        lambda b: replace(b, signature=signed(b, version=2).signature.replace(b'"sig":"', b'"sig":"A', 1)),
        UntrustedBundle,
        "signature is invalid",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_bundle_that_the_device_does_not_trust_is_not_profiled(
    attack: str, made: tuple[Path, Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(tmp_path / "device", TRUST)
    newer = signed(made[1], version=2)
    accept(tmp_path / "device", newer.signature, newer.ref.sha256, 0.0)
    change, kind, reason = ATTACKS[attack]
    write_bundle(tmp_path / "bundle.zip", change(made[1]))

    def measured(*_: object, **__: object) -> Times:
        raise AssertionError("the plan was loaded")

    monkeypatch.setattr(measure, "_measured", measured)
    with pytest.raises(kind, match=reason):
        profile(ProfileSettings(bundle=tmp_path / "bundle.zip", samples=8, state=tmp_path / "device"))


def test_a_foreign_bundle_is_profiled_with_its_engineers_trust_file(made: tuple[Path, Bundle], tmp_path: Path) -> None:
    chain = TrustChain((issued(trust(9), 9),))
    write_bundle(tmp_path / "bundle", signed(made[1], keys=[9], chain=chain))
    done = run(tmp_path / "bundle", "--samples", "16")
    assert (done.returncode, "trusted here" in done.stderr) == (12, True)
    write_trust(tmp_path / "theirs.json", chain)
    done = run(tmp_path / "bundle", "--samples", "16", "--trust", tmp_path / "theirs.json")
    assert done.returncode == 0, done.stderr


def test_the_state_is_hidden_from_the_plan(
    made: tuple[Path, Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private: list[Path] = []

    def sandboxed(*given: Any, **_: object) -> None:
        private.extend(given[3].private)
        raise InterruptedError

    monkeypatch.setattr(measure, "sandboxed_process", sandboxed)
    pin(tmp_path / "device", TRUST)
    with pytest.raises(InterruptedError):
        profile(ProfileSettings(bundle=made[0], samples=40, sandbox=SANDBOX, state=tmp_path / "device"))
    assert tmp_path / "device" in private


def test_a_machine_that_cannot_isolate_plans_profiles_none_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "landlock_version", lambda: 0)
    monkeypatch.setattr(policy, "seccomp_available", lambda: True)
    with refused(InvalidInput, "sandbox", "strict"):
        ProfileSettings(bundle=Path("bundle"))
    assert ProfileSettings(bundle=Path("bundle"), sandbox="weak").sandbox == "weak"


def test_data_are_checked_and_counted(made: tuple[Path, Bundle], tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", inputs=np.zeros((70, 12), np.float32), labels=np.arange(70) % 3)
    np.savez(tmp_path / "bad.npz", inputs=np.zeros((70, 12), np.float32), labels=np.arange(70) % 4)
    done = run(made[0], "--data", tmp_path / "good.npz")
    assert (done.returncode, "70 samples in batches" in done.stdout) == (0, True)
    done = run(made[0], "--data", tmp_path / "bad.npz")
    assert (done.returncode, "range from 0 to" in done.stderr) == (2, True)
    with refused(InvalidInput, "samples", 5):
        ProfileSettings(bundle=made[0], samples=5, data="good.npz")
