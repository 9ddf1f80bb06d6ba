from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.errors import InvalidInput, MoonfedError, NotFound, Unavailable
from moonfed.serving.models.inference_request import IndexEntry, InferRequest, RequestedOutput
from moonfed.serving.models.manager import ModelManager, ServingSettings
from moonfed.serving.models.repository import ScannedModel, scan_model
from moonfed.serving.models.version import ModelVersion, load_version
from tests.support.gates import FOR_EVER, SessionGate, pool, result, until
from tests.support.model_repositories import (
    NOT_BATCHING,
    ask,
    batch_of,
    directly,
    linear,
    put,
    serve,
    starts,
    summing,
    write_model,
)

Answer = Callable[[ModelManager], np.ndarray[Any, Any]]
X = batch_of(2)
HUGE = f"""model_warmup {{ batch_size: 1 inputs {{ key: "inputs" value {{
    data_type: TYPE_FP32 dims: {2**63 - 1} zero_data: true }} }} }}"""
OF = {seed: directly(linear(seed=seed), {"inputs": X})[0] for seed in range(6)}


def answer(models: ModelManager, name: str = "linear", version: str = "") -> np.ndarray[Any, Any]:
    return models.infer(ask(name, X, version=version)).outputs["probabilities"]


def states(models: ModelManager, name: str = "linear") -> dict[str, str]:
    return {entry.version: entry.state for entry in models.index() if entry.name == name}


def reason(models: ModelManager, name: str, version: str = "1") -> str:
    (found,) = [entry.reason for entry in models.index() if (entry.name, entry.version) == (name, version)]
    return found


@pytest.mark.parametrize("batch", [1, 5, 8])
def test_responses_match_a_direct_onnx_runtime_call_bit_for_bit(tmp_path: Path, batch: int) -> None:
    write_model(tmp_path, "linear", 1, linear())
    response = serve(tmp_path).infer(ask("linear", batch_of(batch), id="7"))
    (expected,) = directly(linear(), {"inputs": batch_of(batch)})
    assert response.outputs["probabilities"].tobytes() == expected.tobytes()
    assert (response.model, response.version, response.id) == ("linear", "1", "7")


def test_outputs_are_in_the_requested_order(tmp_path: Path) -> None:
    write_model(tmp_path, "sum", 1, summing(), "max_batch_size: 8")
    feeds = {"a": np.ones((1, 2), np.float32), "b": np.full((1, 2), 5, np.float32)}
    wanted = (RequestedOutput(name="difference"), RequestedOutput(name="total"))
    response = serve(tmp_path).infer(InferRequest(model="sum", inputs=feeds, outputs=wanted))
    assert [(name, array.tolist()) for name, array in response.outputs.items()] == [
        ("difference", [[-4.0, -4.0]]),
        ("total", [[6.0, 6.0]]),
    ]
    only = serve(tmp_path).infer(InferRequest(model="sum", inputs=feeds, outputs=wanted[:1]))
    assert list(only.outputs) == ["difference"]


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", ["3"]),
        ("version_policy { latest { num_versions: 2 } }", ["2", "3"]),
        ("version_policy { all { } }", ["1", "2", "3"]),
        ("version_policy { specific { versions: [1, 3] } }", ["1", "3"]),
    ],
)
def test_the_version_policy_selects_the_served_versions(tmp_path: Path, policy: str, served: list[str]) -> None:
    for version in (1, 2, 3):
        write_model(tmp_path, "linear", version, linear(seed=version), NOT_BATCHING + policy)
    models = serve(tmp_path)
    assert states(models) == dict.fromkeys(served, "READY")
    assert list(models.metadata("linear").versions) == served
    for each in served:
        assert np.array_equal(answer(models, version=each), OF[int(each)])
        assert [found.version for found in models.statistics("linear", each)] == [each]
    assert np.array_equal(answer(models), OF[3])
    assert [each.version for each in models.statistics("linear")] == served


def test_several_models_are_served_side_by_side(tmp_path: Path) -> None:
    for seed, name in enumerate(("first", "second")):
        write_model(tmp_path, name, 1, linear(seed=seed))
    models = serve(tmp_path)
    assert np.array_equal(answer(models, "first"), OF[0])
    assert np.array_equal(answer(models, "second"), OF[1])
    assert [each.name for each in models.statistics()] == ["first", "second"]


def test_a_model_without_config_is_completed_from_its_graph(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear())
    (tmp_path / "linear" / "config.pbtxt").unlink()
    models = serve(tmp_path)
    config = models.config("linear")
    assert (config.name, config.backend, config.max_batch_size) == ("linear", "onnxruntime", 4)
    assert config.HasField("dynamic_batching")
    assert np.array_equal(answer(models), OF[0])


def test_unknown_models_and_versions_give_tritons_messages(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear())
    write_model(tmp_path, "broken", 1, b"no graph")
    models = serve(tmp_path)
    with pytest.raises(NotFound, match=r"^Request for unknown model: 'other' is not found$"):
        answer(models, "other")
    with pytest.raises(NotFound, match=r"^Request for unknown model: 'linear' version 9 is not found$"):
        answer(models, version="9")
    with pytest.raises(NotFound, match=r"^Request for unknown model: 'broken' has no available versions$"):
        answer(models, "broken")
    with pytest.raises(Unavailable, match=r"^Request for unknown model: 'broken' version 1 is not at ready state$"):
        models.metadata("broken", "1")
    assert (models.is_ready("linear"), models.is_ready("linear", "1")) == (True, True)
    assert not any(models.is_ready(*asked) for asked in [("linear", "9"), ("broken",), ("other",)])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda model: put(model / "1" / "model.onnx", b"\x08corrupt"), "is not an ONNX model, or is damaged"),
        (lambda model: put(model / "1" / "model.onnx", linear()[:-20]), "is not an ONNX model, or is damaged"),
        (lambda model: (model / "1" / "model.onnx").unlink(), "has no file model.onnx"),
        (lambda model: [file.unlink() for file in model.rglob("*.*")], "has no file model.onnx"),  # a mere 1/
        (lambda model: put(model / "config.pbtxt", b'backend: "tensorflow"'), "backend is 'tensorflow'"),
        (lambda model: put(model / "config.pbtxt", b"max_batch_size: many"), "config.pbtxt of model 'broken' cannot"),
        (lambda model: put(model / "config.pbtxt", b'name: "\xff"'), "config.pbtxt of model 'broken' cannot be read"),
        (
            lambda model: put(model / "config.pbtxt", b'input { name: "other" data_type: TYPE_FP32 }'),
            "'other', allowed inputs",
        ),
        (
            lambda model: put(model / "config.pbtxt", b"version_policy { specific { versions: 4 } }"),
            "version 4 is specified for model 'broken', but the version directory is not present",
        ),
        (lambda model: (model / "1").rename(model / "one"), "at least one version must be available"),
        (lambda model: put(model / "config.pbtxt", HUGE.encode()), "ValueError: "),  # numpy's, not ours
    ],
)
def test_a_model_that_fails_to_load_gives_its_reason_and_the_others_are_served(
    tmp_path: Path, damage: Callable[[Path], object], says: str
) -> None:
    write_model(tmp_path, "linear", 1, linear())
    damage(write_model(tmp_path, "broken", 1, linear()))
    models = serve(tmp_path)
    assert np.array_equal(answer(models), OF[0])
    assert set(states(models, "broken").values()) == {"UNAVAILABLE"}
    assert any(says in entry.reason for entry in models.index() if entry.name == "broken")
    assert [entry.name for entry in models.index(ready_only=True)] == ["linear"]


def test_polling_loads_new_versions_and_drops_old_ones(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path)
    write_model(tmp_path, "linear", 2, linear(seed=2))
    write_model(tmp_path, "another", 1, linear(seed=3))
    models.poll()
    assert np.array_equal(answer(models), OF[2])
    assert np.array_equal(answer(models, "another"), OF[3])
    assert not models.is_ready("linear", "1")
    (tmp_path / "another" / "1" / "model.onnx").unlink()
    (tmp_path / "another" / "1").rmdir()
    (tmp_path / "another" / "config.pbtxt").unlink()
    (tmp_path / "another").rmdir()
    models.poll()
    with pytest.raises(NotFound, match=r"'another' is not found"):
        answer(models, "another")


def test_polling_loads_new_weights_and_a_new_config(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path)
    write_model(tmp_path, "linear", 1, linear(seed=2))
    models.poll()
    assert np.array_equal(answer(models), OF[2])
    write_model(tmp_path, "linear", 1, linear(seed=2), NOT_BATCHING.replace("max_batch_size: 8", "max_batch_size: 1"))
    models.poll()
    with pytest.raises(InvalidInput, match="batch-size must be <= 1 for 'linear'"):
        answer(models)


def test_a_poll_loads_only_what_has_changed(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1), NOT_BATCHING + "version_policy { all { } }")
    models = serve(tmp_path)
    answer(models)
    write_model(tmp_path, "linear", 2, linear(seed=2), NOT_BATCHING + "version_policy { all { } }")
    models.poll()
    answer(models)
    assert [(each.version, each.success.count) for each in models.statistics("linear")] == [("1", 1), ("2", 1)]


def test_a_poll_ignores_files_being_written(tmp_path: Path) -> None:
    model = write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path)
    answer(models)
    (model / ".2.part").mkdir()
    put(model / ".2.part" / "model.onnx", linear(seed=2)[:50])
    put(model / ".config.pbtxt.new", b"max_batch")
    (tmp_path / ".other").mkdir()
    models.poll()
    assert models.statistics("linear")[0].success.count == 1  # the same version as before
    assert [entry.name for entry in models.index()] == ["linear"]
    (model / ".2.part" / "model.onnx").write_bytes(linear(seed=2))
    (model / ".2.part").rename(model / "2")
    models.poll()
    assert np.array_equal(answer(models), OF[2])


def test_a_version_that_fails_to_load_replaces_nothing_until_it_loads(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path)
    write_model(tmp_path, "linear", 2, b"not yet whole")
    models.poll()
    assert states(models) == {"1": "READY", "2": "UNAVAILABLE"}
    assert np.array_equal(answer(models), OF[1])
    write_model(tmp_path, "linear", 1, b"overwritten")
    write_model(tmp_path, "linear", 2, linear(seed=2), "no config")
    models.poll()
    assert np.array_equal(answer(models), OF[1])
    write_model(tmp_path, "linear", 2, linear(seed=2))
    models.poll()
    assert np.array_equal(answer(models), OF[2])
    models.poll()
    assert states(models) == {"2": "READY"}


def test_a_temporarily_missing_repository_stops_nothing(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    write_model(repository, "linear", 1, linear(seed=1))
    models = serve(repository, poll_seconds=0.01)
    repository.rename(tmp_path / "away")
    assert states(models) == {"1": "READY"}
    assert np.array_equal(answer(models), OF[1])
    (tmp_path / "away").rename(repository)
    write_model(repository, "linear", 2, linear(seed=2))
    until(lambda: models.is_ready("linear", "2"))
    models.close()


def test_the_repository_is_polled_periodically(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path, poll_seconds=0.01)
    write_model(tmp_path, "linear", 2, linear(seed=2))
    until(lambda: models.is_ready("linear", "2") and not models.is_ready("linear", "1"))
    assert np.array_equal(answer(models), OF[2])
    models.close()


def test_an_unreadable_model_directory_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        write_model(tmp_path, name, 1, linear(seed=1))
    later, asked = serve(tmp_path), serve(tmp_path, explicit=True)

    def rejected(repository: Path, name: str) -> ScannedModel:
        if name == "b":
            raise PermissionError(13, "Permission denied")
        return scan_model(repository, name)

    monkeypatch.setattr("moonfed.serving.models.manager.scan_model", rejected)
    write_model(tmp_path, "c", 1, linear(seed=2))
    later.poll()
    assert np.array_equal(answer(later, "c"), OF[2])
    assert np.array_equal(answer(later, "b"), OF[1])  # which was loaded before
    for models in (later, serve(tmp_path)):
        assert "the directory of model 'b' cannot be read: " in reason(models, "b", "")
        assert np.array_equal(answer(models, "a"), OF[1])
    with pytest.raises(MoonfedError, match=r"^failed to load 'b', failed to poll from model repository$"):
        asked.load("b")
    monkeypatch.undo()
    later.poll()
    assert states(later, "b") == {"1": "READY"}


def test_explicit_control_serves_only_loaded_models(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    write_model(tmp_path, "broken", 1, b"no graph")
    models = serve(tmp_path, explicit=True)
    assert models.index() == [IndexEntry(name=name, version="", state="", reason="") for name in ("broken", "linear")]
    models.load("linear")
    assert np.array_equal(answer(models), OF[1])
    write_model(tmp_path, "linear", 2, linear(seed=2))
    models.load("linear")
    assert np.array_equal(answer(models), OF[2])
    models.unload("linear")
    assert states(models) == {"1": "UNAVAILABLE", "2": "UNAVAILABLE"}
    assert reason(models, "linear", "2") == "unloaded"
    with pytest.raises(NotFound, match="has no available versions"):
        answer(models)
    with pytest.raises(
        InvalidInput, match=r"^load failed for model 'broken': version 1 is at UNAVAILABLE state: the graph is not an"
    ):
        models.load("broken")
    put(tmp_path / "broken" / "1" / "model.onnx", linear(seed=3))
    models.load("broken")
    assert np.array_equal(answer(models, "broken"), OF[3])
    with pytest.raises(MoonfedError, match=r"^failed to load 'none', failed to poll from model repository$"):
        models.load("none")
    for outside in ("../linear", "", "."):
        with pytest.raises(MoonfedError, match="failed to poll from model repository"):
            models.load(outside)


def test_a_load_retries_failures_and_a_poll_only_changed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may fail to load for reasons outside its files, such as a busy GPU."""
    write_model(tmp_path, "linear", 1, linear(seed=1))
    tried: list[int] = []

    def without_a_gpu(*asked: Any) -> ModelVersion:
        tried.append(1)
        raise Unavailable("the GPU is away")

    monkeypatch.setattr("moonfed.serving.models.loader.load_version", without_a_gpu)
    polled, loaded = serve(tmp_path), serve(tmp_path, explicit=True)
    with pytest.raises(
        InvalidInput, match=r"^load failed for model 'linear': version 1 is at UNAVAILABLE state: the GPU is away$"
    ):
        loaded.load("linear")
    assert len(tried) == 2
    monkeypatch.undo()
    polled.poll()
    assert reason(polled, "linear") == "the GPU is away"
    loaded.load("linear")
    assert np.array_equal(answer(loaded), OF[1])


def test_only_numbers_without_leading_zeros_are_versions(tmp_path: Path) -> None:
    for name in ("09", "1.5", "v2", "\N{ARABIC-INDIC DIGIT THREE}"):
        (write_model(tmp_path, "linear", 7, linear(seed=1)) / "7").rename(tmp_path / "linear" / name)
    write_model(tmp_path, "linear", 1, linear(seed=2), NOT_BATCHING + "version_policy { all { } }")
    assert states(serve(tmp_path)) == {"1": "READY"}


@pytest.mark.parametrize("file", ["labels.txt", "warmup/sample"])
def test_a_poll_reloads_when_labels_or_warm_up_data_change(tmp_path: Path, file: str) -> None:
    model = write_model(tmp_path, "linear", 1, linear(seed=1))
    (model / file).parent.mkdir(exist_ok=True)
    put(model / file, b"before")
    models = serve(tmp_path)
    answer(models)
    put(model / file, b"after!")
    models.poll()
    assert models.statistics("linear")[0].success.count == 0  # another one


def test_load_and_unload_are_rejected_in_poll_mode(tmp_path: Path) -> None:
    models = serve(tmp_path)
    for control in (models.load, models.unload):
        with pytest.raises(Unavailable, match="explicit model load / unload is not allowed if polling is enabled"):
            control("linear")


def test_requests_in_flight_finish_on_the_replaced_version(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path)
    gate = SessionGate(models._loader.ready["linear", ""]._sessions)
    with pool(1) as threads:
        begun = threads.submit(answer, models)
        until(lambda: bool(gate.batches))
        write_model(tmp_path, "linear", 1, linear(seed=2))
        models.poll()
        assert np.array_equal(answer(models), OF[2])
        gate.open()
        assert np.array_equal(result(begun), OF[1])


def test_loading_does_not_block_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("linear", "other"):
        write_model(tmp_path, name, 1, linear(seed=1))
    models = serve(tmp_path)
    reached, opened = threading.Event(), threading.Event()

    def held(*asked: Any) -> ModelVersion:
        reached.set()
        assert opened.wait(FOR_EVER)
        return load_version(*asked)

    monkeypatch.setattr("moonfed.serving.models.loader.load_version", held)
    write_model(tmp_path, "linear", 2, linear(seed=2))
    with pool(1) as threads:
        polling = threads.submit(models.poll)
        assert reached.wait(FOR_EVER)
        assert states(models) == {"1": "READY", "2": "LOADING"}
        assert np.array_equal(answer(models), OF[1])
        assert np.array_equal(answer(models, "other"), OF[1])
        with pytest.raises(Unavailable, match="version 2 is not at ready state"):
            answer(models, version="2")
        opened.set()
        result(polling)
    assert np.array_equal(answer(models), OF[2])


def test_an_unloaded_version_is_unloading_while_requests_are_in_flight(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path, explicit=True)
    models.load("linear")
    gate = SessionGate(models._loader.ready["linear", ""]._sessions)
    with pool(1) as threads:
        begun = threads.submit(answer, models)
        until(lambda: bool(gate.batches))
        models.unload("linear")
        assert states(models) == {"1": "UNLOADING"}
        gate.open()
        assert np.array_equal(result(begun), OF[1])
    assert states(models) == {"1": "UNAVAILABLE"}


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[ModelVersion]:
    """The versions whose requests are being waited for."""
    found: list[ModelVersion] = []
    wait = ModelVersion.wait_until_idle

    def recorded(version: ModelVersion) -> None:
        if version.busy():
            found.append(version)
        wait(version)

    monkeypatch.setattr(ModelVersion, "wait_until_idle", recorded)
    return found


def test_closing_rejects_new_requests_and_waits_for_those_in_flight(tmp_path: Path, waited: list[ModelVersion]) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path)
    gate = SessionGate(models._loader.ready["linear", ""]._sessions)
    with pool(2) as threads:
        begun = threads.submit(answer, models)
        until(lambda: bool(gate.batches))
        closing = threads.submit(models.close)
        until(lambda: bool(waited) or closing.done())
        assert not closing.done()
        assert not models.ready()
        with pytest.raises(Unavailable, match="shutting down"):
            answer(models)
        models.poll()
        assert not models.is_ready("linear")
        gate.open()
        assert np.array_equal(result(begun), OF[1])
        result(closing)


def _replace(models: ModelManager, repository: Path) -> None:
    write_model(repository, "linear", 1, linear(seed=2))
    models.load("linear")


def _reload(models: ModelManager, repository: Path) -> None:
    models.unload("linear")
    models.load("linear")
    with pool(1) as threads:  # so that two that were unloaded have requests under way
        gate = SessionGate(models._loader.ready["linear", ""]._sessions)
        begun = threads.submit(answer, models)
        until(lambda: bool(gate.batches))
        models.unload("linear")
        gate.open()
        result(begun)


@pytest.mark.parametrize("meanwhile", [_replace, _reload])
def test_closing_waits_for_replaced_versions(
    tmp_path: Path, waited: list[ModelVersion], meanwhile: Callable[[ModelManager, Path], None]
) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=1))
    models = serve(tmp_path, explicit=True)
    models.load("linear")
    first = models._loader.ready["linear", ""]
    gate = SessionGate(first._sessions)
    with pool(2) as threads:
        begun = threads.submit(answer, models)
        until(lambda: bool(gate.batches))
        meanwhile(models, tmp_path)
        closing = threads.submit(models.close)
        until(lambda: bool(waited) or closing.done())
        assert waited == [first]
        gate.open()
        assert np.array_equal(result(begun), OF[1])
        result(closing)


def test_requests_never_fail_while_versions_are_replaced(tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear(seed=0), NOT_BATCHING + "dynamic_batching { }")
    models = serve(tmp_path)
    done = False

    def keep_asking() -> set[int]:
        seen = set()
        while not done:
            found = answer(models)
            seen |= {seed for seed, expected in OF.items() if np.allclose(found, expected, rtol=0, atol=1e-6)}
        return seen

    with pool(4) as threads:
        asking = [threads.submit(keep_asking) for _ in range(4)]
        until(lambda: models.statistics("linear")[0].success.count > 0)
        for seed in range(1, 6):
            write_model(tmp_path, "linear", seed + 1, linear(seed=seed), NOT_BATCHING + "dynamic_batching { }")
            models.poll()
            asked = models.statistics("linear")[0]
            until(lambda: models.statistics("linear")[0].success.count > 0)
            assert asked.version == str(seed + 1)
        done = True
        assert set.union(*(result(each) for each in asking)) == set(range(6))


@pytest.mark.parametrize(("provider", "name"), [("cuda", "CUDA"), ("tensorrt", "Tensorrt")])
def test_a_missing_provider_is_an_error_without_fallback(tmp_path: Path, provider: str, name: str) -> None:
    on_gpu = NOT_BATCHING.replace("KIND_CPU", "KIND_GPU")
    accelerated = f'optimization {{ execution_accelerators {{ gpu_execution_accelerator {{ name: "{provider}" }} }} }}'
    write_model(tmp_path, "auto", 1, linear(), NOT_BATCHING.replace("kind: KIND_CPU", ""))
    write_model(tmp_path, "on-gpu", 1, linear(), on_gpu)
    write_model(tmp_path, "accelerated", 1, linear(), on_gpu + accelerated)
    write_model(tmp_path, "on-cpu", 1, linear())
    if starts(f"{name}ExecutionProvider"):
        pytest.skip(f"{provider} works here")
    models = serve(tmp_path, provider=provider)
    for each in ("auto", "on-gpu", "accelerated"):
        assert states(models, each) == {"1": "UNAVAILABLE"}
        assert re.search(f"provider is {provider}(; this|, which)", reason(models, each))
    assert np.array_equal(answer(models, "on-cpu"), OF[0])
    assert re.search(f"provider is {provider}(; this|, which)", reason(serve(tmp_path), "accelerated"))


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="provider is 'tpu'; it must be one of cpu, cuda, tensorrt"):
        ServingSettings(provider="tpu")
    with pytest.raises(InvalidInput, match="intra_op_threads is -1; it must be 0 or more"):
        ServingSettings(intra_op_threads=-1)
    with pytest.raises(InvalidInput, match=r"poll_seconds is -1.0; it must be 0 or more"):
        ServingSettings(poll_seconds=-1.0)
    with pytest.raises(InvalidInput, match=r"poll_seconds is 5.0; with explicit control it must be 0"):
        ServingSettings(poll_seconds=5.0, explicit=True)


def test_serving_imports_no_torch_no_onnx_and_no_other_part() -> None:
    program = """
import pkgutil, sys, moonfed.serving
for module in pkgutil.walk_packages(moonfed.serving.__path__, "moonfed.serving."):
    __import__(module.name)
others = {f"moonfed.{part}" for part in ("cli", "export", "release", "coordinator", "edge_client", "experiments")}
print(sorted(({"torch", "torchvision", "onnx"} | others) & set(sys.modules)))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=FOR_EVER, check=True
    )
    assert found.stdout.split("\n")[0] == "[]"
