"""Instance groups, completed as Triton does, and the sessions that they open."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from moonfed.errors import InvalidInput
from moonfed.models.onnx_runtime import SessionSettings
from moonfed.serving.models import instance_groups
from moonfed.serving.models.config import Config
from moonfed.serving.models.instance_groups import DEFAULT_CPU_COUNT, complete_groups, open_sessions
from moonfed.serving.models.onnx_session import OnnxSession
from tests.support.model_repositories import linear

CPU, CUDA = SessionSettings(), SessionSettings(provider="cuda", device=3)


def config(text: str) -> Config:
    return text_format.Parse(f'name: "m" {text}', model_config_pb2.ModelConfig())


def completed(text: str, settings: SessionSettings) -> list[tuple[str, str, int, list[int]]]:
    found = config(text)
    complete_groups(found, settings)
    kinds = model_config_pb2.ModelInstanceGroup.Kind
    return [(each.name, kinds.Name(each.kind), each.count, list(each.gpus)) for each in found.instance_group]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[SessionSettings]:
    """The settings of each session that is opened; no GPU is needed."""
    found: list[SessionSettings] = []

    class Recorded:
        def __init__(self, graph: bytes, settings: SessionSettings) -> None:
            found.append(settings)

    monkeypatch.setattr(instance_groups, "OnnxSession", Recorded)
    return found


def sessions(text: str, settings: SessionSettings) -> list[OnnxSession]:
    found = config(text)
    complete_groups(found, settings)
    return open_sessions(b"", found, settings)


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("", CPU, [("m_0", "KIND_CPU", DEFAULT_CPU_COUNT, [])]),
        ("", CUDA, [("m_0", "KIND_GPU", 1, [3])]),
        ("instance_group { count: 4 }", CPU, [("m_0", "KIND_CPU", 4, [])]),
        ("instance_group { kind: KIND_AUTO gpus: 1 }", CPU, [("m_0", "KIND_GPU", 1, [1])]),
        (
            'instance_group { name: "big" kind: KIND_GPU gpus: [0, 1] count: 2 } instance_group { kind: KIND_CPU }',
            CUDA,
            [("big", "KIND_GPU", 2, [0, 1]), ("m_1", "KIND_CPU", DEFAULT_CPU_COUNT, [])],
        ),
    ],
)
def test_groups_are_completed(
    text: str, settings: SessionSettings, expected: list[tuple[str, str, int, list[int]]]
) -> None:
    assert completed(text, settings) == expected


def test_a_backend_cannot_choose_the_kind() -> None:
    with pytest.raises(InvalidInput, match="instance group kind is KIND_MODEL for m; it must be KIND_CPU or KIND_GPU"):
        completed("instance_group { kind: KIND_MODEL }", CPU)


def test_instances_on_the_cpu_share_one_session() -> None:
    found = config("instance_group { count: 3 } instance_group { count: 2 }")
    complete_groups(found, CPU)
    made = open_sessions(linear(), found, CPU)
    assert len(made) == 5
    assert len(set(map(id, made))) == 1


def test_each_instance_on_a_gpu_has_its_own_session(opened: list[SessionSettings]) -> None:
    made = sessions("instance_group { kind: KIND_GPU gpus: [0, 1] count: 2 }", CUDA)
    assert len(set(map(id, made))) == 4
    assert [(each.provider, each.device) for each in opened] == [("cuda", 0), ("cuda", 1)] * 2


ACCELERATED = "optimization {{ execution_accelerators {{ gpu_execution_accelerator {{ name: '{name}' }} }} }} "


@pytest.mark.parametrize("settings", [CPU, SessionSettings(provider="tensorrt"), CUDA])
def test_a_config_may_request_tensorrt_for_gpus_only(settings: SessionSettings, opened: list[SessionSettings]) -> None:
    groups = "instance_group { kind: KIND_GPU gpus: 0 } instance_group { kind: KIND_CPU count: 1 }"
    sessions(ACCELERATED.format(name="tensorrt") + groups, settings)
    assert [each.provider for each in opened] == ["tensorrt", "cpu"]


def test_an_unknown_accelerator_is_rejected(opened: list[SessionSettings]) -> None:
    with pytest.raises(InvalidInput, match="unknown Execution Accelerator 'npu' is requested for m"):
        sessions(ACCELERATED.format(name="npu") + "instance_group { kind: KIND_GPU gpus: 0 }", CPU)
    assert not opened


THREADS = "parameters {{ key: 'intra_op_thread_count' value {{ string_value: '{value}' }} }}"


def test_a_config_sets_the_threads_of_its_sessions(opened: list[SessionSettings]) -> None:
    sessions(THREADS.format(value=5), CPU)
    sessions("", SessionSettings(intra_op_threads=2))
    assert [each.intra_op_threads for each in opened] == [5, 2]
    for value in ("-1", "many", "", "²"):
        with pytest.raises(InvalidInput, match=r"parameter intra_op_thread_count is .* it must be a number, 0 or more"):
            sessions(THREADS.format(value=value), CPU)
