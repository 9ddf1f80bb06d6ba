"""One loaded version: its answers, its statistics and its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from moonfed.errors import InvalidInput, MoonfedError, Overloaded
from moonfed.models.onnx_runtime import SessionSettings
from moonfed.serving.models.batching import BatchPolicy
from moonfed.serving.models.config import read_config
from moonfed.serving.models.inference_request import InferRequest, RequestedOutput
from moonfed.serving.models.version import ModelVersion, batch_policy, load_version
from moonfed.serving.models.version_files import VersionFiles
from tests.support.gates import SessionGate, pool, result, until
from tests.support.model_repositories import (
    BATCHED,
    INPUT,
    NOT_BATCHING,
    ONE_INSTANCE,
    ask,
    batch_of,
    directly,
    linear,
    summing,
    write_model,
)

LABELLED = 'output { name: "probabilities" data_type: TYPE_FP32 dims: 3 label_filename: "labels.txt" } '
QUEUE_OF_ONE = "dynamic_batching { default_queue_policy { max_queue_size: 1 } } "
Load = Callable[..., ModelVersion]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(config: str = NOT_BATCHING, content: bytes | None = None) -> ModelVersion:
        directory = write_model(tmp_path, "linear", 1, linear() if content is None else content, config)
        (directory / "labels.txt").write_text("cat\ndog\nowl")
        return load_version(VersionFiles(directory, 1), read_config(directory), SessionSettings())

    return load


def summed(a: int, *names: str) -> InferRequest:
    feeds = {"a": np.ones((1, a), np.float32), "b": np.ones((1, 2), np.float32)}
    return InferRequest(model="linear", inputs=feeds, outputs=tuple(RequestedOutput(name=name) for name in names))


def test_an_answer_has_the_requests_id_and_onnx_runtimes_bits(load: Load) -> None:
    response = load().infer(ask("linear", batch_of(5), id="7"))
    assert response.outputs["probabilities"].tobytes() == directly(linear(), {"inputs": batch_of(5)})[0].tobytes()
    assert (response.model, response.version, response.id) == ("linear", "1", "7")


def test_classes_have_their_labels(load: Load) -> None:
    wanted = (RequestedOutput(name="probabilities", class_count=2),)
    response = load(BATCHED + INPUT + LABELLED).infer(ask("linear", batch_of(1), outputs=wanted))
    (row,) = directly(linear(), {"inputs": batch_of(1)})[0]
    best = [text.decode().split(":")[1:] for text in response.outputs["probabilities"][0]]
    assert best == [[str(index), ("cat", "dog", "owl")[index]] for index in np.argsort(-row)[:2]]


def test_only_the_requested_outputs_are_computed_in_their_order(load: Load) -> None:
    version = load("max_batch_size: 8", summing())
    assert list(version.infer(summed(1, "difference", "total")).outputs) == ["difference", "total"]
    assert list(version.infer(summed(1, "total")).outputs) == ["total"]
    assert list(version.infer(summed(1)).outputs) == ["total", "difference"]


def test_failures_are_counted_by_triton_s_reasons(load: Load) -> None:
    version = load("max_batch_size: 8 instance_group { count: 1 }", summing())
    with pytest.raises(InvalidInput):
        version.infer(summed(1, "unknown"))
    with pytest.raises(MoonfedError, match="onnx runtime error"):
        version.infer(summed(3))
    version.infer(summed(2))
    found = version.statistics()
    assert found.failures == {"OTHER": 1, "BACKEND": 1}
    assert (found.fail.count, found.success.count, found.inference_count) == (2, 1, 1)
    assert not version.busy()


def test_a_full_queue_names_the_request_that_it_rejects(load: Load) -> None:
    version = load(NOT_BATCHING + QUEUE_OF_ONE)
    gate = SessionGate(version._sessions)
    with pool(2) as threads:
        first = threads.submit(version.infer, ask("linear", batch_of(1)))
        until(lambda: gate.batches == [1])
        second = threads.submit(version.infer, ask("linear", batch_of(1)))
        until(lambda: version.statistics().pending == 1)
        with pytest.raises(Overloaded, match=r"^\[request id: mine\] "):
            version.infer(ask("linear", batch_of(1), id="mine"))
        gate.open()
        for each in (first, second):
            result(each)
    assert version.statistics().failures == {"REJECTED": 1}


def test_requests_wait_for_an_instance_and_the_version_for_them(load: Load) -> None:
    version = load()
    gate = SessionGate(version._sessions)
    idle = threading.Event()

    def wait() -> None:
        version.wait_until_idle()
        idle.set()

    waiter = threading.Thread(target=wait)
    with pool(3) as threads:
        futures = [threads.submit(version.infer, ask("linear", batch_of(1))) for _ in range(3)]
        until(lambda: version.statistics().pending == 2)  # one instance
        assert version.busy()
        waiter.start()
        assert not idle.wait(0.01)
        gate.open()
        for future in futures:
            result(future)
    waiter.join(60)
    assert idle.is_set()
    assert not version.busy()
    version.wait_until_idle()


def test_requests_in_a_batch_get_their_own_rows_and_outputs(load: Load) -> None:
    version = load("max_batch_size: 8 dynamic_batching { } instance_group { count: 1 }", summing())
    gate = SessionGate(version._sessions)
    with pool(3) as threads:
        blocking = threads.submit(version.infer, summed(2))
        until(lambda: gate.batches == [1])
        requests = [
            InferRequest(
                model="linear",
                inputs={"a": np.full((size, 2), size, np.float32), "b": np.ones((size, 2), np.float32)},
                outputs=(RequestedOutput(name=name),),
            )
            for size, name in ((2, "total"), (3, "difference"))
        ]
        found = [threads.submit(version.infer, request) for request in requests]
        until(lambda: version.statistics().pending == 2)
        gate.open()
        result(blocking)
        total, difference = (result(future).outputs for future in found)
    assert gate.batches == [1, 5]
    assert (list(total), total["total"].tolist()) == (["total"], [[3.0, 3.0]] * 2)
    assert (list(difference), difference["difference"].tolist()) == (["difference"], [[2.0, 2.0]] * 3)


def test_a_flush_ends_the_wait_for_a_full_batch(load: Load) -> None:
    an_hour = "dynamic_batching { preferred_batch_size: 8 max_queue_delay_microseconds: 3600000000 }"
    version = load(NOT_BATCHING + an_hour)
    with pool(1) as threads:
        future = threads.submit(version.infer, ask("linear", batch_of(1)))
        until(lambda: version.statistics().pending == 1)
        version.flush()
        assert result(future).outputs["probabilities"].shape == (1, 3)


def test_the_batch_policy_is_in_nanoseconds(load: Load) -> None:
    policy = "default_queue_policy { max_queue_size: 5 default_timeout_microseconds: 3 allow_timeout_override: true } "
    version = load(
        NOT_BATCHING + "dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 2 " + policy + "}"
    )
    assert batch_policy(version.config) == BatchPolicy(
        max_batch_size=8,
        preferred=frozenset({4, 8}),
        max_delay_ns=2000,
        max_queue_size=5,
        default_timeout_ns=3000,
        allow_timeout_override=True,
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('default_model_filename: "other.onnx"', "version 1 of model 'linear' has no file other.onnx"),
        (BATCHED + INPUT + LABELLED.replace("labels.txt", "none.txt"), "label file none.txt cannot be read"),
        (BATCHED + INPUT.replace("dims: 4", "dims: 5"), "unable to load model 'linear', tensor 'inputs'"),
        (BATCHED + ONE_INSTANCE + INPUT.replace("inputs", "x"), "unexpected inference input 'x'"),
    ],
)
def test_a_version_that_does_not_fit_its_configuration_is_not_loaded(load: Load, config: str, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        load(config)
    assert str(error.value).startswith(message)
