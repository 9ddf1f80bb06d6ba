"""Loading, replacing and unloading of versions, and the entries of the index meanwhile."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from moonfed.models.onnx_runtime import SessionSettings
from moonfed.serving.models import loader as module
from moonfed.serving.models.inference_request import IndexEntry
from moonfed.serving.models.loader import Loader
from moonfed.serving.models.repository import scan_model
from moonfed.serving.models.version import ModelVersion
from tests.support.gates import SessionGate, pool, result, until
from tests.support.model_repositories import NOT_BATCHING, ask, batch_of, linear, put, write_model

ALL = NOT_BATCHING + "version_policy { all { } }"


@pytest.fixture
def loader() -> Loader:
    return Loader(SessionSettings())


@pytest.fixture
def refresh(loader: Loader, tmp_path: Path) -> Callable[..., list[str]]:
    return lambda **options: loader.refresh("linear", scan_model(tmp_path, "linear"), **options)


def states(loader: Loader) -> dict[str, tuple[str, str]]:
    return {entry.version: (entry.state, entry.reason) for entry in loader.index()}


def write(tmp_path: Path, *versions: int, config: str = NOT_BATCHING) -> None:
    for version in versions:
        write_model(tmp_path, "linear", version, linear(seed=version), config)


def test_the_newest_version_is_also_the_default(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 9, 10, config=ALL)
    assert refresh() == []
    assert loader.ready["linear", ""] is loader.ready["linear", "10"]
    assert {version for _, version in loader.ready} == {"", "9", "10"}
    assert states(loader) == {"9": ("READY", ""), "10": ("READY", "")}
    assert [entry.version for entry in loader.index()] == ["9", "10"], "sorted as numbers"


def test_only_changed_versions_are_loaded_again(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 1, 2, config=ALL)
    refresh()
    before = dict(loader.ready)
    refresh()
    assert loader.ready == before
    put(tmp_path / "linear" / "2" / "model.onnx", linear(seed=7))
    refresh()
    assert loader.ready["linear", "1"] is before["linear", "1"]
    assert loader.ready["linear", "2"] is not before["linear", "2"]


def test_a_version_that_fails_replaces_nothing_and_gives_its_reason(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 1)
    refresh()
    before = loader.ready["linear", "1"]
    put(tmp_path / "linear" / "1" / "model.onnx", b"not an ONNX file")
    (reason,) = refresh()
    assert reason == "version 1 is at UNAVAILABLE state: the graph is not an ONNX model, or is damaged"
    assert loader.ready["linear", "1"] is before
    assert states(loader)["1"] == ("READY", reason.partition("state: ")[2])


def test_a_newer_version_that_fails_keeps_the_older_in_service(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 1)
    refresh()
    write_model(tmp_path, "linear", 2, b"not an ONNX file")
    assert refresh()
    assert loader.ready["linear", ""].version == "1"
    put(tmp_path / "linear" / "2" / "model.onnx", linear(seed=2))
    assert refresh() == []
    assert states(loader) == {"1": ("UNAVAILABLE", "unloaded"), "2": ("READY", "")}


def test_a_failure_is_retried_only_on_request_or_after_a_change(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)
    calls: list[int] = []

    def fail(*_: object) -> ModelVersion:
        calls.append(1)
        raise RuntimeError("out of memory")

    expected = ["version 1 is at UNAVAILABLE state: RuntimeError: out of memory"]
    with monkeypatch.context() as failing:
        failing.setattr(module, "load_version", fail)
        assert refresh() == refresh() == expected
        assert len(calls) == 1
        assert refresh(retry=True) == expected
        assert len(calls) == 2
    assert refresh(retry=True) == []
    assert refresh(retry=True) == []


def test_a_configuration_that_cannot_be_read_leaves_the_loaded_versions(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1)
    refresh()
    put(tmp_path / "linear" / "config.pbtxt", b"max_batch_size: many")
    with caplog.at_level(logging.WARNING):
        (reason,) = refresh()
        assert refresh() == [reason]
    assert "linear" in reason
    assert len(caplog.records) == 1, "a reason is logged once"
    assert loader.ready["linear", "1"]
    assert loader.index()[0] == IndexEntry(name="linear", version="", state="UNAVAILABLE", reason=reason)
    put(tmp_path / "linear" / "config.pbtxt", NOT_BATCHING.encode())
    refresh()
    assert [entry.version for entry in loader.index()] == ["1"]


def test_a_missing_version_is_a_reason_only_if_no_other_is_present(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 1, config=NOT_BATCHING + "version_policy { specific { versions: [1, 4] } }")
    assert refresh() == []
    missing = "version 4 is specified for model 'linear', but the version directory is not present"
    assert states(loader) == {"1": ("READY", ""), "4": ("UNAVAILABLE", missing)}
    put(tmp_path / "linear" / "config.pbtxt", (NOT_BATCHING + "version_policy { specific { versions: 4 } }").encode())
    assert refresh() == [
        missing,
        "at least one version must be available under the version policy of model 'linear'",
    ]
    assert states(loader)["1"][0] == "READY", "which stays in service"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], ""),
        (["01"], "; a version's directory is named by a whole number without leading zeros, not '01'"),
        (["v1", "1.0"], "; a version's directory is named by a whole number without leading zeros, not '1.0', 'v1'"),
        (["warmup", ".1"], ""),
    ],
    ids=["none", "leading-zero", "words", "others"],
)
def test_directories_that_are_no_versions_are_named_if_there_is_no_version(
    names: list[str], said: str, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 1)
    shutil.rmtree(tmp_path / "linear" / "1")
    for name in names:
        (tmp_path / "linear" / name).mkdir()
    assert refresh() == [f"at least one version must be available under the version policy of model 'linear'{said}"]


def test_an_unloaded_version_finishes_its_requests(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 1)
    refresh()
    version = loader.ready["linear", "1"]
    gate = SessionGate(version._sessions)
    with pool(2) as threads:
        answer = threads.submit(version.infer, ask("linear", batch_of(1)))
        until(lambda: gate.batches == [1])
        loader.unload_all()
        assert not loader.ready
        assert states(loader) == {"1": ("UNLOADING", "unloaded")}
        loader.remove("linear")
        assert loader.names() == {"linear"}, "it stays in the index while it has requests in flight"
        waited = threads.submit(loader.wait_until_idle)
        gate.open()
        result(answer)
        result(waited)
    loader.remove("linear")
    assert loader.index() == []


def test_the_end_waits_for_replaced_versions_too(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 1)
    refresh()
    replaced = loader.ready["linear", "1"]
    gate = SessionGate(replaced._sessions)
    with pool(2) as threads:
        answer = threads.submit(replaced.infer, ask("linear", batch_of(1)))
        until(lambda: gate.batches == [1])
        put(tmp_path / "linear" / "1" / "model.onnx", linear(seed=3))
        refresh()
        loader.unload("linear")
        waited = threads.submit(loader.wait_until_idle)
        assert not waited.done()
        gate.open()
        result(answer)
        result(waited)


def test_an_unloaded_model_is_loaded_again_although_its_files_are_the_same(
    loader: Loader, refresh: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, 1)
    refresh()
    loader.unload("linear")
    assert refresh() == []
    assert states(loader) == {"1": ("READY", "")}
