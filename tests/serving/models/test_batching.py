from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from moonfed.errors import InvalidInput, MoonfedError, Overloaded, Unavailable
from moonfed.serving.models.batching import BatchPolicy
from moonfed.serving.models.inference_request import Array, InferRequest, InferResponse, RequestedOutput
from moonfed.serving.models.manager import ModelManager
from moonfed.serving.models.version import ModelVersion
from tests.support.gates import FOR_EVER, SessionGate, pool, result, until
from tests.support.model_repositories import (
    BATCHED,
    NOT_BATCHING,
    ONE_INSTANCE,
    ask,
    batch_of,
    directly,
    linear,
    serve,
    summing,
    write_model,
)

HOUR_US = 3_600_000_000
Answers = list[Future[InferResponse]]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with pool(16) as executor:
        yield executor


def batching(repository: Path, written: str = "") -> tuple[ModelManager, ModelVersion]:
    """Serve the linear model with one instance and a dynamic batcher."""
    write_model(repository, "linear", 1, linear(), NOT_BATCHING + f"dynamic_batching {{ {written} }}")
    models = serve(repository)
    return models, models._loader.ready["linear", ""]


def waiting(models: ModelManager, model: str = "linear") -> int:
    return models.statistics(model)[0].pending


def queue_up(threads: ThreadPoolExecutor, models: ModelManager, inputs: list[Array]) -> Answers:
    """Submit requests so that they are queued in this order."""
    answers = []
    for number, each in enumerate(inputs, start=waiting(models) + 1):
        answers.append(threads.submit(models.infer, ask("linear", each)))
        until(lambda number=number: waiting(models) == number)  # type: ignore[misc]
    return answers


def test_queued_requests_run_together_and_get_their_own_rows(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    models, version = batching(tmp_path)
    gate = SessionGate(version._sessions)
    first = threads.submit(models.infer, ask("linear", batch_of(1)))
    until(lambda: gate.batches == [1])
    inputs = [batch_of(size, seed=size) for size in (1, 3, 2)]
    answers = queue_up(threads, models, inputs)
    gate.open()
    result(first)
    (together,) = directly(linear(), {"inputs": np.concatenate(inputs)})
    assert b"".join(result(each).outputs["probabilities"].tobytes() for each in answers) == together.tobytes()
    assert gate.batches == [1, 6]
    counted = models.statistics("linear")[0]
    assert (counted.success.count, counted.execution_count, counted.inference_count) == (4, 2, 7)
    assert [each.batch_size for each in counted.batches] == [1, 6]


def test_a_batch_has_at_most_max_batch_size_samples(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    models, version = batching(tmp_path)
    gate = SessionGate(version._sessions)
    first = threads.submit(models.infer, ask("linear", batch_of(1)))
    until(lambda: gate.batches == [1])
    answers = queue_up(threads, models, [batch_of(size) for size in (3, 4, 2, 8, 1)])
    gate.open()
    for each in (first, *answers):
        result(each)
    assert gate.batches == [1, 7, 2, 8, 1]


def test_a_batch_of_preferred_size_runs_at_once(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    models, version = batching(tmp_path, f"preferred_batch_size: [4] max_queue_delay_microseconds: {HOUR_US}")
    gate = SessionGate(version._sessions)
    gate.open()
    answers = [threads.submit(models.infer, ask("linear", batch_of(1, seed=seed))) for seed in range(4)]
    for seed, each in enumerate(answers):
        expected = directly(linear(), {"inputs": batch_of(1, seed=seed)})[0]
        np.testing.assert_allclose(result(each).outputs["probabilities"], expected, rtol=1e-6)
    assert gate.batches == [4]


def test_an_incomplete_batch_runs_after_the_delay(tmp_path: Path) -> None:
    models, _ = batching(tmp_path, "preferred_batch_size: [8] max_queue_delay_microseconds: 1000")
    models.infer(ask("linear", batch_of(3)))
    assert [each.batch_size for each in models.statistics("linear")[0].batches] == [3]


def test_instances_run_concurrently(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    two = NOT_BATCHING.replace("count: 1", "count: 2")
    for name, config in (("batched", two + "dynamic_batching { }"), ("alone", two)):
        write_model(tmp_path, name, 1, linear(), config)
    models = serve(tmp_path)
    for name in ("batched", "alone"):
        gate = SessionGate(models._loader.ready[name, ""]._sessions)
        answers = [threads.submit(models.infer, ask(name, batch_of(1))) for _ in range(3)]
        until(lambda gate=gate, name=name: gate.batches == [1, 1] and waiting(models, name) == 1)  # type: ignore[misc]
        gate.open()
        for each in answers:
            result(each)
        assert gate.batches == [1, 1, 1]


def test_requests_of_different_shapes_never_share_a_batch(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    write_model(tmp_path, "sum", 1, summing(), BATCHED + ONE_INSTANCE + "dynamic_batching { }")
    models = serve(tmp_path)
    gate = SessionGate(models._loader.ready["sum", ""]._sessions)
    requests = [_sum_of(length, start) for start, length in enumerate([2, 1, 1, 2, 2])]
    answers = []
    for number, each in enumerate(requests):
        answers.append(threads.submit(models.infer, each))
        until(lambda number=number: gate.batches == [1] and waiting(models, "sum") == number)  # type: ignore[misc]
    gate.open()
    for request, answer in zip(requests, answers, strict=True):
        assert np.array_equal(result(answer).outputs["total"], request.inputs["a"] + request.inputs["b"])
    assert gate.batches == [1, 2, 2]


def _sum_of(length: int, start: int) -> InferRequest:
    b = np.full((1, 2), 10, np.float32)
    a = np.arange(start, start + length, dtype=np.float32)[np.newaxis]
    inputs = {"a": a, "b": b} if start % 2 else {"b": b, "a": a}  # in whatever order a client sends them
    return InferRequest(model="sum", inputs=inputs)


def test_an_error_in_a_batch_reaches_every_request(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    config = BATCHED + ONE_INSTANCE + "dynamic_batching { }"
    write_model(tmp_path, "sum", 1, summing(), config)
    models = serve(tmp_path)
    gate = SessionGate(models._loader.ready["sum", ""]._sessions)
    first = threads.submit(models.infer, _sum_of(2, 0))
    until(lambda: gate.batches == [1])
    answers = []
    for number in (1, 2):
        answers.append(threads.submit(models.infer, _sum_of(3, number)))  # [1, 3] + [1, 2] does not broadcast
        until(lambda number=number: waiting(models, "sum") == number)  # type: ignore[misc]
    gate.open()
    result(first)
    for each in answers:
        with pytest.raises(MoonfedError, match=r"onnx runtime error: .*broadcast"):
            result(each)
    assert gate.batches == [1, 2]
    assert models.statistics("sum")[0].failures == {"BACKEND": 2}
    assert np.array_equal(models.infer(_sum_of(2, 0)).outputs["total"], result(first).outputs["total"])


def test_an_unexpected_error_fails_every_request_without_details(
    tmp_path: Path, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, _ = batching(tmp_path, f"preferred_batch_size: [2] max_queue_delay_microseconds: {HOUR_US}")

    def broken(*asked: object) -> list[Array]:
        raise KeyError("a secret")

    monkeypatch.setattr("moonfed.serving.models.version.run_session", broken)
    answers = [threads.submit(models.infer, ask("linear", batch_of(1))) for _ in range(2)]
    errors = sorted((each.exception(FOR_EVER) for each in answers), key=lambda error: type(error).__name__)
    assert [type(error) for error in errors] == [KeyError, MoonfedError]  # of who ran the batch, and of the other
    assert "secret" not in str(errors[1])
    monkeypatch.undo()
    again = [threads.submit(models.infer, ask("linear", batch_of(1))) for _ in range(2)]
    assert [result(each).outputs["probabilities"].shape for each in again] == [(1, 3), (1, 3)]


def test_each_request_of_a_batch_gets_its_requested_outputs(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    write_model(tmp_path, "sum", 1, summing(), BATCHED + ONE_INSTANCE + "dynamic_batching { }")
    models = serve(tmp_path)
    gate = SessionGate(models._loader.ready["sum", ""]._sessions)
    first = threads.submit(models.infer, _sum_of(2, 0))
    until(lambda: gate.batches == [1])
    answers = []
    for number, name in enumerate(("difference", "total"), start=1):
        request = InferRequest(model="sum", inputs=_sum_of(2, 0).inputs, outputs=(RequestedOutput(name=name),))
        answers.append(threads.submit(models.infer, request))
        until(lambda number=number: waiting(models, "sum") == number)  # type: ignore[misc]
    gate.open()
    result(first)
    found = [{name: array.tolist() for name, array in result(each).outputs.items()} for each in answers]
    assert found == [{"difference": [[-10.0, -9.0]]}, {"total": [[10.0, 11.0]]}]
    assert gate.batches == [1, 2]


def test_a_full_queue_rejects_requests(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    models, version = batching(tmp_path, "default_queue_policy { max_queue_size: 2 }")
    gate = SessionGate(version._sessions)
    first = threads.submit(models.infer, ask("linear", batch_of(1)))
    until(lambda: gate.batches == [1])
    answers = queue_up(threads, models, [batch_of(1), batch_of(1)])
    with pytest.raises(Overloaded, match=r"^\[request id: seven\] Exceeds maximum queue size$"):
        models.infer(ask("linear", batch_of(1), id="seven"))
    gate.open()
    for each in (first, *answers):
        result(each)
    assert models.statistics("linear")[0].failures == {"REJECTED": 1}
    assert models.statistics("linear")[0].fail.count == 1


def test_a_request_queued_beyond_its_timeout_is_rejected(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    models, version = batching(tmp_path, "default_queue_policy { default_timeout_microseconds: 1000 }")
    gate = SessionGate(version._sessions)
    first = threads.submit(_until_it_runs, models, gate)
    until(lambda: gate.batches == [1])
    with pytest.raises(Unavailable, match=r"^Request timeout expired$"):
        models.infer(ask("linear", batch_of(1)))
    gate.open()
    result(first)
    assert gate.batches == [1]
    assert waiting(models) == 0


@pytest.mark.parametrize(
    ("default", "allowed", "asked", "expected"),
    [
        (500, True, 0, 500),
        (500, True, 200, 200),
        (500, True, 900, 500),  # to less than the default alone, as Triton
        (500, False, 200, 500),
        (0, True, 200, 0),
    ],
)
def test_effective_queue_timeout(default: int, allowed: bool, asked: int, expected: int) -> None:
    policy = BatchPolicy(max_batch_size=8, default_timeout_ns=default, allow_timeout_override=allowed)
    assert policy.timeout_ns(asked) == expected


def _until_it_runs(models: ModelManager, gate: SessionGate) -> None:
    """Tolerate a timeout of the first request, which may happen on a very slow machine."""
    while not gate.batches:
        with suppress(Unavailable):
            models.infer(ask("linear", batch_of(1)))


@pytest.mark.parametrize(("allowed", "timed_out"), [("true", True), ("false", False)])
def test_a_request_may_shorten_its_timeout_if_the_policy_allows_it(
    tmp_path: Path, threads: ThreadPoolExecutor, allowed: str, timed_out: bool
) -> None:
    policy = f"default_timeout_microseconds: {HOUR_US} allow_timeout_override: {allowed}"
    models, version = batching(tmp_path, f"default_queue_policy {{ {policy} }}")
    gate = SessionGate(version._sessions)
    first = threads.submit(models.infer, ask("linear", batch_of(1)))
    until(lambda: gate.batches == [1])
    hurried = threads.submit(models.infer, ask("linear", batch_of(1), timeout_us=1000))
    if timed_out:
        with pytest.raises(Unavailable, match="Request timeout expired"):
            result(hurried)
    else:
        until(lambda: waiting(models) == 1)
    gate.open()
    result(first)
    if not timed_out:
        result(hurried)


def test_a_leader_waiting_for_others_times_out(tmp_path: Path) -> None:
    delay = f"max_queue_delay_microseconds: {HOUR_US} preferred_batch_size: [8]"
    models, _ = batching(tmp_path, f"{delay} default_queue_policy {{ default_timeout_microseconds: 1000 }}")
    with pytest.raises(Unavailable, match="Request timeout expired"):
        models.infer(ask("linear", batch_of(1)))
    counted = models.statistics("linear")[0]
    assert (counted.pending, counted.execution_count, counted.failures) == (0, 0, {"REJECTED": 1})


def test_flushing_runs_requests_that_wait_for_others(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    models, version = batching(tmp_path, f"preferred_batch_size: [8] max_queue_delay_microseconds: {HOUR_US}")
    gate = SessionGate(version._sessions)
    gate.open()
    endings: list[Callable[[], None]] = [lambda: _replace(tmp_path, models), models.close]
    for replace_or_close in endings:
        answers = queue_up(threads, models, [batch_of(2), batch_of(1)])
        replace_or_close()
        for each in answers:
            result(each)
    assert gate.batches == [3]


def _replace(repository: Path, models: ModelManager) -> None:
    config = (repository / "linear" / "config.pbtxt").read_text()
    write_model(repository, "linear", 2, linear(seed=2), config)
    models.poll()


def test_without_a_batch_dimension_each_request_runs_alone(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    config = 'input { name: "inputs" data_type: TYPE_FP32 dims: [-1, 4] } '
    config += 'output { name: "probabilities" data_type: TYPE_FP32 dims: [-1, 3] } ' + ONE_INSTANCE
    write_model(tmp_path, "linear", 1, linear(), config + "dynamic_batching { }")
    models = serve(tmp_path)
    gate = SessionGate(models._loader.ready["linear", ""]._sessions)
    first = threads.submit(models.infer, ask("linear", batch_of(20)))
    until(lambda: gate.batches == [20])
    answers = queue_up(threads, models, [batch_of(2), batch_of(2)])
    gate.open()
    for each in (first, *answers):
        result(each)
    assert gate.batches == [20, 2, 2]


def test_many_threads_get_their_own_results(tmp_path: Path) -> None:
    models, _ = batching(tmp_path, "max_queue_delay_microseconds: 100")

    def ask_often(thread: int) -> None:
        for number in range(50):
            inputs = batch_of(1 + (thread + number) % 8, seed=1000 * thread + number)
            found = models.infer(ask("linear", inputs, id=f"{thread}-{number}"))
            assert found.id == f"{thread}-{number}"
            np.testing.assert_allclose(
                found.outputs["probabilities"], directly(linear(), {"inputs": inputs})[0], rtol=1e-5
            )

    with pool(8) as threads:
        for each in [threads.submit(ask_often, thread) for thread in range(8)]:
            result(each)
    counted = models.statistics("linear")[0]
    assert (counted.success.count, counted.pending, counted.fail.count) == (400, 0, 0)
    assert sum(each.batch_size * each.compute_infer.count for each in counted.batches) == counted.inference_count


@pytest.mark.parametrize(
    ("sizes", "closed", "overdue", "expected"),
    [
        ([1], False, False, 0),  # waits
        ([1], False, True, 1),  # has waited
        ([1], True, False, 1),  # nobody can join
        ([1, 1, 1, 1], False, False, 4),  # a preferred size
        ([1, 1, 1, 1, 1], False, False, 4),  # the fifth waits for the next batch
        ([1] * 6, False, False, 6),  # the largest preferred size
        ([1] * 7, False, False, 6),
        ([1, 1, 1, 1, 1], False, True, 5),  # overdue: all of them, as Triton
        ([5, 2], False, False, 1),  # beyond the largest preferred size
        ([8], False, False, 1),
    ],
)
def test_number_of_runnable_requests(sizes: list[int], closed: bool, overdue: bool, expected: int) -> None:
    policy = BatchPolicy(max_batch_size=8, preferred=frozenset({4, 6}), max_delay_ns=1)
    assert policy.runnable(sizes, closed=closed, overdue=overdue) == expected


def test_without_a_delay_requests_do_not_wait() -> None:
    assert BatchPolicy(max_batch_size=8).runnable([1, 2], closed=False, overdue=True) == 2


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("dynamic_batching { preferred_batch_size: 9 }", "preferred size must be <= max batch size for linear"),
        ("dynamic_batching { preferred_batch_size: 0 }", "preferred size must be positive for linear"),
        ("dynamic_batching { priority_levels: 2 }", "sets priority_levels, which this server lacks"),
        ("dynamic_batching { default_queue_policy { timeout_action: DELAY } }", "it must be REJECT"),
    ],
)
def test_an_invalid_batch_policy_is_rejected(tmp_path: Path, config: str, says: str) -> None:
    write_model(tmp_path, "linear", 1, linear(), NOT_BATCHING + config)
    models = serve(tmp_path, explicit=True)
    with pytest.raises(InvalidInput, match=says):
        models.load("linear")
