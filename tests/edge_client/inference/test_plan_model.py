"""A released plan in its sandboxed process, behind a `Predictor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from moonfed.bundle.manifest import MANIFEST_FILE, PLAN_FILE
from moonfed.edge_client.agent import model_process
from moonfed.edge_client.inference.plan_model import SandboxedModel
from moonfed.edge_client.predictor import Predictor
from moonfed.edge_client.state import model_files
from moonfed.edge_client.state.model_files import files_of
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.errors import VersionMismatch
from moonfed.models.release_manifest import PLAN_FILES, WEIGHTS_FILE
from moonfed.plan.selection import FORMATS
from tests.edge_client.conftest import SANDBOX, Bundle
from tests.support.device_releases import make_release
from tests.support.ended_processes import still_running
from tests.support.graph_bundles import LEAVES, read_graph_bundle
from tests.support.refusals import refused

INPUTS = np.random.default_rng(3).normal(size=(5, 6)).astype(np.float32)


def test_a_plan_in_its_process_answers_and_gives_way_to_the_next(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, forked_programs: None
) -> None:
    monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    plan = {
        "manifest.json": bundle.manifest.to_bytes(),
        "plan.pt": bundle.plan,
        "weights.safetensors": bundle.weights,
    }
    for version in (1, 2):
        release = make_release(version, plan=plan).files(tmp_path / "blobs", plan=True)
        ReleaseStore(tmp_path).install(release)
        if version == 1:
            predictor = Predictor(tmp_path, "digits", threads=1, sandbox=SANDBOX)
            first = predictor.predict(INPUTS)
            before = _process(predictor)
    assert first.shape == (5, 3)
    assert np.allclose(first.sum(axis=1), 1.0, atol=1e-5)
    predictor.wait()
    after = _process(predictor)
    assert (predictor.version, before == after) == (2, False)
    assert np.array_equal(predictor.predict(INPUTS), first)
    many = np.tile(INPUTS, (30, 1))
    assert np.allclose(predictor.predict(many), np.tile(first, (30, 1)), atol=1e-6)
    predictor.close()
    predictor.close()
    assert not still_running([before, after], 60.0)


def test_the_graphs_predict_as_torchscript_does_and_a_release_without_them_is_refused(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, forked_programs: None
) -> None:
    monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    leaves = read_graph_bundle(LEAVES)
    plan = {MANIFEST_FILE: leaves.contents[MANIFEST_FILE], WEIGHTS_FILE: leaves.contents["initial.safetensors"]}
    ReleaseStore(tmp_path).install(make_release(1, plan={**plan, **leaves.plans}).files(tmp_path / "blobs", plan=True))
    found = []
    for plan_format in ("torchscript", "graph"):
        with Predictor(tmp_path, "digits", threads=1, sandbox=SANDBOX, plan_format=plan_format) as predictor:
            found.append(predictor.predict(INPUTS))
    assert np.allclose(found[0], found[1], atol=1e-6)
    other = {MANIFEST_FILE: bundle.manifest.to_bytes(), PLAN_FILE: bundle.plan, WEIGHTS_FILE: bundle.weights}
    store = ReleaseStore(tmp_path / "other")
    store.install(make_release(1, plan=other).files(tmp_path / "blobs", plan=True))
    with refused(VersionMismatch, "plan"):
        files_of(store.open("digits", 1), FORMATS["graph"])


def test_the_state_is_hidden_from_the_model(tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    plan = {**dict.fromkeys(PLAN_FILES, b""), MANIFEST_FILE: bundle.manifest.to_bytes()}
    ReleaseStore(tmp_path / "state").install(make_release(1, plan=plan).files(tmp_path / "blobs", plan=True))
    private: list[Path] = []

    def sandboxed(*given: Any) -> None:
        private.extend(given[3].private)
        raise InterruptedError

    monkeypatch.setattr(model_process, "sandboxed_process", sandboxed)
    with pytest.raises(InterruptedError):
        Predictor(tmp_path / "state", "digits", sandbox=SANDBOX)
    assert tmp_path / "state" in private


def _process(predictor: Predictor) -> psutil.Process:
    model = predictor._loaded.model
    assert isinstance(model, SandboxedModel)
    return psutil.Process(model._child.pid)
