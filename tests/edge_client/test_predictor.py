"""`Predictor`: loads once, exchanges versions under load, and falls back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.edge_client.inference.onnx_model import OnnxModel
from moonfed.edge_client.predictor import Predictor
from moonfed.edge_client.state import model_files
from moonfed.edge_client.state.releases import ReleaseStore
from moonfed.errors import InvalidInput, MoonfedError, NotFound, WrongState
from moonfed.models import onnx_runtime
from tests.support.device_releases import CLASSES, FEATURES, classifier, make_release, with_wrong_operator
from tests.support.gates import until
from tests.support.model_repositories import directly
from tests.support.refusals import refused

INPUTS = np.random.default_rng(3).normal(size=(5, 6)).astype(np.float32)


def install(state: Path, version: int, model: bytes | None = None, name: str = "digits") -> None:
    content = classifier(seed=version) if model is None else model
    ReleaseStore(state).install(make_release(version, name=name, model=content).files(state / "blobs"))


def expected(version: int, inputs: npt.NDArray[np.float32] = INPUTS) -> npt.NDArray[np.float32]:
    (found,) = directly(classifier(seed=version), {"inputs": inputs})
    return np.asarray(found, np.float32)


def test_a_release_answers_with_its_classes_and_its_version(tmp_path: Path) -> None:
    install(tmp_path, 4)
    with Predictor(tmp_path) as predictor:
        assert (predictor.name, predictor.version, predictor.classes) == ("digits", 4, CLASSES)
        assert predictor.input == FEATURES
        assert np.allclose(predictor.predict(INPUTS), expected(4), atol=1e-6)
        assert np.allclose(predictor(INPUTS.astype(np.float64)), expected(4), atol=1e-6)
        many = np.random.default_rng(1).normal(size=(200, 6)).astype(np.float32)
        version, probabilities = predictor.answer(many)
        assert version == 4
        assert np.allclose(probabilities, expected(4, many), atol=1e-6)
        assert predictor.predict(INPUTS[:0]).shape == (0, 3)
    with pytest.raises(WrongState, match="the predictor was closed"):
        predictor.predict(INPUTS)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    (tmp_path / "identity").mkdir()
    with pytest.raises(NotFound, match="has no release yet"):
        Predictor(tmp_path)
    install(tmp_path, 1)
    install(tmp_path, 1, name="other")
    with pytest.raises(InvalidInput, match="model is missing"):
        Predictor(tmp_path)
    with refused(NotFound, "model", "cats"):
        Predictor(tmp_path, "cats")
    with refused(InvalidInput, "threads", 0):
        Predictor(tmp_path, "digits", threads=0)
    predictor = Predictor(tmp_path, "digits")
    with refused(InvalidInput, "shape of inputs", [5, 5]):
        predictor.predict(INPUTS[:, :5])


def test_a_model_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, 1)
    loaded, load = [], onnx_runtime._load

    def count(graph: bytes, settings: onnx_runtime.SessionSettings, own: Mapping[str, Any]) -> object:
        loaded.append(len(graph))
        return load(graph, settings, own)

    monkeypatch.setattr(onnx_runtime, "_load", count)
    predictor = Predictor(tmp_path, "digits")
    for _ in range(20):
        predictor.predict(INPUTS)
    config = predictor._store.config_file("digits")
    os.utime(config)  # as a later deployment of the same version does
    predictor.wait()
    assert (predictor.version, len(loaded)) == (1, 1)


def test_a_new_version_takes_over_without_a_failed_or_mixed_answer(tmp_path: Path) -> None:
    install(tmp_path, 1)
    answers = {version: expected(version) for version in range(1, 9)}
    stop, seen, wrong = threading.Event(), set[int](), list[object]()

    def ask(predictor: Predictor) -> None:
        try:
            while not stop.is_set():
                version, probabilities = predictor.answer(INPUTS)
                seen.add(version)
                if not np.allclose(probabilities, answers[version], atol=1e-6):
                    wrong.append(version)
        except Exception as error:
            wrong.append(error)

    with Predictor(tmp_path, "digits", threads=1) as predictor:
        threads = [threading.Thread(target=ask, args=(predictor,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for version in range(2, 9):
            install(tmp_path, version)
            until(lambda expected_=version: predictor.version == expected_)  # type: ignore[misc]
        ReleaseStore(tmp_path).switch("digits", 7, 1)
        until(lambda: predictor.version == 7)
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(seen) > 1


def test_a_version_that_fails_to_load_replaces_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(tmp_path, 1)
    with Predictor(tmp_path, "digits") as predictor:
        install(tmp_path, 2, with_wrong_operator(classifier()))
        predictor.wait()
        assert predictor.version == 1
        assert np.allclose(predictor.predict(INPUTS), expected(1), atol=1e-6)
        assert "version 1 stays in" in caplog.text
        install(tmp_path, 3)
        predictor.wait()
        assert predictor.version == 3


def test_a_model_is_closed_only_once_another_one_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[OnnxModel] = []
    monkeypatch.setattr(OnnxModel, "close", lambda self: closed.append(self))
    install(tmp_path, 1)
    with Predictor(tmp_path, "digits") as predictor:
        first = predictor._loaded.model
        install(tmp_path, 2, with_wrong_operator(classifier()))
        predictor.wait()
        assert first not in closed
        install(tmp_path, 3)
        predictor.wait()
        assert closed[-1] is first


@pytest.mark.parametrize(
    "change",
    [
        lambda model: with_wrong_operator(model),
        lambda model: model[: len(model) // 2],
        lambda _: classifier(classes=2),
    ],
    ids=["wrong operator", "truncated", "other classes"],
)
def test_the_previous_version_answers_where_the_current_one_cannot_be_loaded(
    change: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, 1)
    install(tmp_path, 2, change(classifier(seed=2)))
    with Predictor(tmp_path, "digits") as predictor:
        assert predictor.version == 1
        assert np.allclose(predictor.predict(INPUTS), expected(1), atol=1e-6)
    assert "using version 1, because" in caplog.text


def test_without_a_version_that_loads_there_is_an_error(tmp_path: Path) -> None:
    install(tmp_path, 1, with_wrong_operator(classifier()))
    with pytest.raises(MoonfedError, match="Hardmin"):
        Predictor(tmp_path, "digits")


def test_a_removed_model_goes_on_to_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(tmp_path, 1)
    with Predictor(tmp_path, "digits") as predictor:
        ReleaseStore(tmp_path).remove("digits")
        predictor.wait()
        assert np.allclose(predictor.predict(INPUTS), expected(1), atol=1e-6)
    assert "keeps using version 1" in caplog.text


def test_a_release_without_its_plan_needs_onnx_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, 1)
    monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    with refused(NotFound, "version", 1):
        Predictor(tmp_path, "digits")
