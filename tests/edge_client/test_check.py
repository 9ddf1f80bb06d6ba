"""`moonfed-client check`: a bundle, this device's data and its memory, as the device answers a coordinator."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle import files as bundles
from moonfed.bundle.files import write_bundle
from moonfed.bundle.manifest import GRAPH_FILE, MANIFEST_FILE, PLAN_FILE, WEIGHTS_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.edge_client.check import CheckSettings, check_bundle, check_document
from moonfed.edge_client.resources import trainer_runtime
from moonfed.errors import InvalidInput, UntrustedBundle, VersionMismatch
from moonfed.signing.key_files import write_trust
from moonfed.signing.trust import TrustChain
from tests.edge_client.conftest import PROGRAM, Bundle
from tests.support.device_samples import draw
from tests.support.forked_process import PATCHES
from tests.support.signatures import issued, signed, trust
from tests.support.trainer_memory import shared_trainer_memory

pytestmark = pytest.mark.usefixtures("forked_programs")


@pytest.fixture(autouse=True)
def shared_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let neither forked programs nor this process start a trainer to measure its memory."""
    monkeypatch.setenv(PATCHES, "tests.support.shared_trainer")
    monkeypatch.setattr(trainer_runtime, "trainer_memory", shared_trainer_memory)


@pytest.fixture
def written(bundle: Bundle, tmp_path: Path) -> Callable[..., Path]:
    def write(**fields: Any) -> Path:
        contents = {PLAN_FILE: bundle.plan, WEIGHTS_FILE: bundle.weights, GRAPH_FILE: b"a graph"}
        files = {name: ref_of_bytes(content) for name, content in contents.items()}
        manifest = replace(bundle.manifest, files=files, **fields)
        contents[MANIFEST_FILE] = manifest.to_bytes()
        write_bundle(tmp_path / "bundle.zip", signed(bundles.Bundle(manifest, contents)))
        return tmp_path / "bundle.zip"

    return write


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROGRAM), "check", *map(str, arguments)], capture_output=True, text=True, check=False)


def test_an_eligible_device_gets_its_class_counts_and_exit_code_0(written: Callable[..., Path], samples: Path) -> None:
    done = run(written(), "--data", samples, "--holdout", "0.1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    with np.load(samples) as arrays:
        counts = np.bincount(arrays["labels"], minlength=3)
    assert lines["bundle"] == "tested: mlp, moon"
    assert lines["data"] == f"{samples}: 40 samples, 4 held out"
    assert lines["classes"] == f"left: {counts[0]}, middle: {counts[1]}, right: {counts[2]}"
    assert lines["memory"].startswith("about ")
    assert lines["eligible"] == "yes"


@pytest.mark.parametrize(
    ("fields", "options", "code", "reason"),
    [
        ({"target": class_target(("one", "two"))}, (), 2, "range from 0 to 2; the model has 2 classes, 0 to 1"),
        ({}, ("--max-memory", "50MB"), 8, "50 MB (--max-memory)"),
        (
            {"plan": {"minimum_samples": 41}},
            (),
            2,
            "needs at least 41",
        ),
        ({"plan": {"minimum_torch": "99.0"}}, (), 6, "the plan needs torch 99.0; this device has 2."),
        (
            {"plan": {"operators": ("aten::_upsample_lanczos4d_aa",)}},
            (),
            6,
            "this plan calls aten::_upsample_lanczos4d",
        ),
    ],
)
def test_an_ineligible_device_gets_the_reason_and_its_exit_code(
    written: Callable[..., Path],
    bundle: Bundle,
    samples: Path,
    fields: dict[str, Any],
    options: tuple[str, ...],
    code: int,
    reason: str,
) -> None:
    if "plan" in fields:
        fields = {"plan": replace(bundle.manifest.plan, **fields["plan"])}
    done = run(written(**fields), "--data", samples, *options, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == code
    assert (document["eligible"], reason in document["reason"]) == (False, True)
    assert re.fullmatch(rf"moonfed-client: {re.escape(document['reason'])} \(docs: errors/[a-z-]+\)\n", done.stderr)


def test_a_device_that_runs_graphs_only_is_not_eligible_without_them(
    written: Callable[..., Path], samples: Path
) -> None:
    found = check_bundle(CheckSettings(bundle=written(), data=str(samples), plan_format="graph"))
    assert isinstance(found.rejection, VersionMismatch)
    assert found.rejection.field == "plan"


@pytest.mark.parametrize("options", [(), ("--ignore-folder", "other")])
def test_a_folder_that_is_no_class_can_be_left_out(
    written: Callable[..., Path], tmp_path: Path, options: tuple[str, ...]
) -> None:
    for name in ("left", "right", "unsorted", "other"):
        draw(tmp_path / "pictures" / name / "1.png", (1, 2, 3))
    words = (written(input=InputSpec(kind="image", shape=(4, 6, 3))), "--data", tmp_path / "pictures", *options)
    done = run(*words)
    assert (done.returncode, "'unsorted', which" in done.stderr or "'other', 'unsorted'" in done.stderr) == (2, True)
    done = run(*words, "--ignore-folder", "unsorted", "--ignore-folder", "other")
    assert "classes   left: 1, middle: 0, right: 1" in done.stdout
    wrong = run(*words, "--ignore-folder", "pictures/unsorted")
    assert "ignore-folder is 'pictures/unsorted'" in wrong.stderr


def test_everything_that_was_found_is_in_the_document(written: Callable[..., Path], samples: Path) -> None:
    found = check_document(check_bundle(CheckSettings(bundle=written(), data=str(samples), max_memory=8 * 10**9)))
    assert found["eligible"]
    assert list(found["classes"]) == ["left", "middle", "right"]
    assert sum(found["classes"].values()) == found["samples"] == 40
    assert 0 < found["memory"]["needed"] < found["memory"]["limit"] == 8 * 10**9
    assert found["memory"]["host"] > found["memory"]["needed"]


def test_missing_data_and_wrong_options_are_named(written: Callable[..., Path], samples: Path) -> None:
    done = run(written(), "--data", samples.with_name("absent.npz"))
    assert (done.returncode, "no such file" in done.stderr) == (3, True)
    for name, value in (("holdout", 1.0), ("precision", "int4"), ("accelerator", "tpu")):
        with pytest.raises(InvalidInput, match="must be"):
            CheckSettings(**{"bundle": Path(), "data": "", name: value})  # type: ignore[arg-type]


def test_a_bundle_of_an_untrusted_key_is_not_opened(
    written: Callable[..., Path], samples: Path, tmp_path: Path
) -> None:
    write_trust(tmp_path / "theirs.json", TrustChain((issued(trust(9), 9),)))
    with pytest.raises(UntrustedBundle):
        check_bundle(CheckSettings(bundle=written(), data=str(samples), trust=tmp_path / "theirs.json"))


def test_many_classes_are_shown_in_part(written: Callable[..., Path], samples: Path) -> None:
    names = tuple(f"class-{number}" for number in range(25))
    done = run(written(target=class_target(names)), "--data", samples)
    assert "class-19: 0 and 5 more" in done.stdout
