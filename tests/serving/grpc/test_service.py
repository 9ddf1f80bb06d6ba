"""The gRPC methods called directly, over a real repository; test_server.py calls them through the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import pytest
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2

from moonfed.serving.grpc import service as grpc_service
from moonfed.serving.grpc.service import InferenceService
from moonfed.serving.models.manager import ModelManager
from moonfed.serving.requests.features import EXTENSIONS
from moonfed.serving.requests.thread_pool import ElasticThreadPool
from moonfed.version import RELEASE
from tests.support.model_repositories import batch_of, directly, linear


class Aborted(Exception):
    """Raised by a context whose call is aborted."""


class Context:
    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Aborted(code.name, details)


Call = Callable[..., Any]


@pytest.fixture
def call(loaded: ModelManager, one_call: ElasticThreadPool) -> Call:
    service = InferenceService(loaded, one_call)
    return lambda method, request: getattr(service, method)(request, Context())


def infer_request(model: str = "linear", id_: str = "7") -> Any:
    request = service_pb2.ModelInferRequest(model_name=model, id=id_)
    request.inputs.add(name="inputs", datatype="FP32", shape=[2, 4])
    request.raw_input_contents.append(batch_of(2).tobytes())
    return request


def rejection(call: Call, method: str, request: Message) -> tuple[str, str]:
    with pytest.raises(Aborted) as error:
        call(method, request)
    return error.value.args[0], error.value.args[1]


def test_an_inference_is_answered_with_onnx_runtimes_bits(call: Call) -> None:
    response = call("ModelInfer", infer_request())
    assert (response.model_name, response.model_version, response.id) == ("linear", "1", "7")
    assert response.raw_output_contents[0] == directly(linear(), {"inputs": batch_of(2)})[0].tobytes()


def test_a_stream_continues_after_a_request_that_fails(call: Call, one_call: ElasticThreadPool) -> None:
    requests = [infer_request(id_="1"), infer_request("unknown", "2"), infer_request(id_="3")]
    answers = list(call("ModelStreamInfer", iter(requests)))
    assert [bool(answer.error_message) for answer in answers] == [False, True, False]
    assert "Request for unknown model: 'unknown' is not found" in answers[1].error_message
    assert [answer.infer_response.id for answer in answers] == ["1", "2", "3"]
    assert one_call.in_flight == 0
    with one_call.count_call():
        (busy,) = call("ModelStreamInfer", iter([infer_request()]))
    assert busy.error_message.startswith("Server is busy with 1 inference requests")


def test_errors_end_the_call_with_a_status(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rejection(call, "ModelInfer", infer_request("unknown"))[0] == "NOT_FOUND"
    code, details = rejection(call, "ModelMetadata", service_pb2.ModelMetadataRequest(name="x" * 9000))
    assert (code, len(details)) == ("NOT_FOUND", grpc_service._MAX_DETAILS)
    monkeypatch.setattr(ModelManager, "live", lambda _: 1 / 0)
    assert rejection(call, "ServerLive", service_pb2.ServerLiveRequest()) == (
        "INTERNAL",
        "internal error; the server's log has the details",
    )


def test_the_server_and_its_models_report_their_readiness(
    call: Call, loaded: ModelManager, one_call: ElasticThreadPool
) -> None:
    ready, of = service_pb2.ServerReadyRequest(), service_pb2.ModelReadyRequest
    assert call("ServerLive", service_pb2.ServerLiveRequest()).live
    assert call("ServerReady", ready).ready
    found = {
        (name, version): call("ModelReady", of(name=name, version=version)).ready
        for name, version in (("linear", ""), ("linear", "1"), ("linear", "2"), ("unknown", ""))
    }
    assert [key for key, is_ready in found.items() if is_ready] == [("linear", ""), ("linear", "1")]
    one_call.stop_accepting()
    assert not call("ServerReady", ready).ready
    assert not call("ModelReady", of(name="linear")).ready
    assert call("ServerLive", service_pb2.ServerLiveRequest()).live


def test_metadata_configurations_and_statistics_are_the_models(call: Call) -> None:
    server = call("ServerMetadata", service_pb2.ServerMetadataRequest())
    assert (server.name, server.version, tuple(server.extensions)) == ("moonfed", RELEASE, EXTENSIONS)
    metadata = call("ModelMetadata", service_pb2.ModelMetadataRequest(name="linear"))
    assert [(each.name, each.datatype, list(each.shape)) for each in metadata.inputs] == [("inputs", "FP32", [-1, 4])]
    assert call("ModelConfig", service_pb2.ModelConfigRequest(name="linear")).config.max_batch_size == 8
    call("ModelInfer", infer_request())
    (counts,) = call("ModelStatistics", service_pb2.ModelStatisticsRequest()).model_stats
    assert (counts.name, counts.inference_count, counts.inference_stats.success.count) == ("linear", 2, 1)


def test_models_are_unloaded_and_loaded(call: Call) -> None:
    index = service_pb2.RepositoryIndexRequest
    call("RepositoryModelUnload", service_pb2.RepositoryModelUnloadRequest(model_name="linear"))
    assert [each.state for each in call("RepositoryIndex", index()).models] == ["UNAVAILABLE"]
    assert not call("RepositoryIndex", index(ready=True)).models
    call("RepositoryModelLoad", service_pb2.RepositoryModelLoadRequest(model_name="linear"))
    assert [each.state for each in call("RepositoryIndex", index(ready=True)).models] == ["READY"]
    unknown = service_pb2.RepositoryModelLoadRequest(model_name="unknown")
    assert rejection(call, "RepositoryModelLoad", unknown)[0] == "INTERNAL"


UNSUPPORTED = {
    "SystemSharedMemoryStatus": service_pb2.SystemSharedMemoryStatusRequest(),
    "SystemSharedMemoryRegister": service_pb2.SystemSharedMemoryRegisterRequest(),
    "SystemSharedMemoryUnregister": service_pb2.SystemSharedMemoryUnregisterRequest(),
    "CudaSharedMemoryStatus": service_pb2.CudaSharedMemoryStatusRequest(),
    "CudaSharedMemoryRegister": service_pb2.CudaSharedMemoryRegisterRequest(),
    "CudaSharedMemoryUnregister": service_pb2.CudaSharedMemoryUnregisterRequest(),
    "TraceSetting": service_pb2.TraceSettingRequest(),
    "LogSettings": service_pb2.LogSettingsRequest(),
    "RepositoryIndex": service_pb2.RepositoryIndexRequest(repository_name="x"),
    "RepositoryModelUnload": service_pb2.RepositoryModelUnloadRequest(repository_name="x", model_name="linear"),
    "RepositoryModelLoad": service_pb2.RepositoryModelLoadRequest(repository_name="x", model_name="linear"),
}


@pytest.mark.parametrize("method", UNSUPPORTED)
def test_an_unsupported_call_says_so(method: str, call: Call) -> None:
    code, details = rejection(call, method, UNSUPPORTED[method])
    assert code == "UNIMPLEMENTED"
    assert "not supported" in details


def test_parameters_of_a_load_are_rejected(call: Call) -> None:
    request = service_pb2.RepositoryModelLoadRequest(model_name="linear")
    request.parameters["config"].string_param = "{}"
    assert rejection(call, "RepositoryModelLoad", request) == (
        "UNIMPLEMENTED",
        "load parameters are not supported: a model is loaded as it is in the repository",
    )


def test_every_method_of_the_protocol_is_implemented() -> None:
    methods = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    assert set(methods) <= set(vars(InferenceService))
