"""Comparison with a real Triton: the same requests to both servers over the same repository get the same answers.

Intended differences are tested here, too, and listed in docs/serving.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from moonfed.serving.models.inference_request import Array
from tests.support.gates import until
from tests.support.model_repositories import (
    INPUT,
    ONE_INSTANCE,
    OUTPUT,
    batch_of,
    directly,
    identity,
    linear,
    summing,
    write_model,
)
from tests.support.server_process import HOURS, Server, answer_of, get, served, waits_for
from tests.support.triton import triton

pytestmark = pytest.mark.slow

CLIENTS: dict[str, Any] = {"grpc": triton_grpc, "http": triton_http, "json": triton_http}
BACKEND = 'backend: "onnxruntime" '
LABELLED = OUTPUT.replace("dims: 3", 'dims: 3 label_filename: "labels.txt"')
WARM_UP = """
model_warmup {{
  name: "{kind}" batch_size: {size} count: {count}
  inputs {{ key: "inputs" value {{ data_type: TYPE_FP32 dims: 4 {kind}: true }} }}
}}
"""
SIXTEEN = BACKEND + INPUT + LABELLED + ONE_INSTANCE + "max_batch_size: 16 version_policy { all {} } "
WHOLE = BACKEND + INPUT.replace("dims: 4", "dims: [-1, 4]") + OUTPUT.replace("dims: 3", "dims: [-1, 3]") + ONE_INSTANCE
WAITING = f"max_batch_size: 64 dynamic_batching {{ preferred_batch_size: 64 max_queue_delay_microseconds: {HOURS} "
STRINGS = BACKEND + ONE_INSTANCE + "max_batch_size: 8 " + "".join(
    f'{kind} {{ name: "{name}" data_type: TYPE_STRING dims: 2 }} ' for kind, name in (("input", "x"), ("output", "y"))
)  # fmt: skip
SUMS = BACKEND + ONE_INSTANCE + "max_batch_size: 8 " + "".join(
    f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: {dims} }} '
    for kind, name, dims in (("input", "a", -1), ("input", "b", 2), ("output", "total", 2), ("output", "difference", 2))
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Triton and our server."""

    triton: Server
    ours: Server

    def both(self, ask: Callable[[Server], Any]) -> tuple[Any, Any]:
        """Return both servers' responses."""
        return ask(self.triton), ask(self.ours)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    warmed = SIXTEEN + WARM_UP.format(kind="random_data", size=3, count=2) + WARM_UP.format(
        kind="zero_data", size=16, count=1
    )  # fmt: skip
    write_model(root, "linear", 1, linear(seed=1), warmed)
    write_model(root, "linear", 2, linear(seed=2), warmed)
    (root / "linear" / "labels.txt").write_text("cat\ndog\nowl\n")
    write_model(root, "whole", 1, linear(seed=1), WHOLE)
    write_model(root, "sum", 1, summing(), SUMS)
    write_model(root, "strings", 1, identity(), STRINGS)
    write_model(root, "broken", 1, b"not an ONNX file", BACKEND + INPUT + OUTPUT + ONE_INSTANCE)
    for name, policy in (
        ("full", "max_queue_size: 1"),
        ("late", "default_timeout_microseconds: 1000"),
        ("patient", f"default_timeout_microseconds: {HOURS} allow_timeout_override: true"),
    ):
        waiting = f"{WAITING} default_queue_policy {{ {policy} }} }}"
        write_model(root, name, 1, linear(), BACKEND + INPUT + OUTPUT + ONE_INSTANCE + waiting)
    write_model(root, "pair", 1, linear(), BACKEND + INPUT + OUTPUT + waits_for(2))
    lacking = "max_batch_size: 8 version_policy { specific { versions: [1, 9] } } "
    write_model(root, "lacking", 1, linear(), BACKEND + INPUT + OUTPUT + ONE_INSTANCE + lacking)
    return root


@pytest.fixture(scope="module")
def pair(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    work = tmp_path_factory.mktemp("servers")
    options = ["--exit-on-error=false", "--strict-readiness=false"]
    with (
        served(repository, work / "ours.log") as ours,
        triton(repository, work, *options) as theirs,
    ):
        yield Pair(triton=theirs, ours=ours)


@pytest.fixture(params=["grpc", "http", "json"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input as a client may send it, possibly inconsistent."""

    array: Array
    name: str = "inputs"
    said: tuple[int, ...] | None = None  # the shape that it says; None: the array's
    empty: bool = False  # without data

    def written(self, protocol: str) -> Any:
        datatypes = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "object": "BYTES"}
        made = CLIENTS[protocol].InferInput(self.name, list(self.array.shape), datatypes[self.array.dtype.name])
        if not self.empty:
            made.set_data_from_numpy(self.array, **({} if protocol == "grpc" else {"binary_data": protocol == "http"}))
        return made.set_shape(self.array.shape if self.said is None else self.said)


ONE = Tensor(array=batch_of(1))
A, B = (Tensor(array=np.ones((1, 2), np.float32), name=name) for name in ("a", "b"))
XY = np.array([[b"a", b"bb"]], dtype=np.object_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request that both servers reject."""

    about: str
    model: str = "linear"
    tensors: Sequence[Tensor] = (ONE,)
    output: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    protocols: Sequence[str] = ("grpc", "http", "json")
    words: str = ""  # that both say; "": all they say is the same


BYTES_ONLY = ("grpc", "http")
CASES = [
    Case(about="an unknown model", model="unheard-of", options={"request_id": "7"}),
    Case(about="an unknown version", options={"model_version": "9"}),
    Case(about="version 0", options={"model_version": "0"}),
    Case(about="a version in words", options={"model_version": "new"}, protocols=["http", "json"], words="Not Found"),
    Case(
        about="a version in words",
        options={"model_version": "new"},
        protocols=["grpc"],
        words="failed to get model version from specified version string 'new'",
    ),
    Case(about="a model without a version that loads", model="broken"),
    Case(about="a version that did not load", model="broken", options={"model_version": "1"}),
    Case(about="another dtype", tensors=[Tensor(array=np.ones((1, 4)))], options={"request_id": "7"}),
    Case(about="another kind of numbers", tensors=[Tensor(array=np.ones((1, 4), np.int64))]),
    Case(about="another shape", tensors=[Tensor(array=np.ones((1, 5), np.float32))], options={"request_id": "7"}),
    Case(about="another rank", tensors=[Tensor(array=np.ones((1, 4, 1), np.float32))]),
    Case(about="no batch dimension", tensors=[Tensor(array=np.ones(4, np.float32))]),
    Case(about="no dimension", tensors=[Tensor(array=np.ones((), np.float32))], protocols=BYTES_ONLY),
    Case(about="another shape, unbatched", model="whole", tensors=[Tensor(array=np.ones((1, 5), np.float32))]),
    Case(about="another rank, unbatched", model="whole", tensors=[Tensor(array=np.ones(4, np.float32))]),
    Case(about="a batch too large", tensors=[Tensor(array=batch_of(17))]),
    Case(about="an empty batch", tensors=[Tensor(array=batch_of(0))]),
    Case(about="no input", tensors=[]),
    Case(about="an unknown input", tensors=[Tensor(array=batch_of(1), name="y")]),
    Case(
        about="an input too many",
        tensors=[ONE, Tensor(array=batch_of(1), name="y")],
        words="[request id: <id_unknown>] expected 1 inputs but got 2 inputs for model 'linear'. Got input(s) [",
    ),
    Case(about="an input twice", tensors=[ONE, ONE], options={"request_id": "7"}),
    Case(about="an input too few", model="sum", tensors=[A]),
    Case(about="one unknown, one missing", model="sum", tensors=[A, Tensor(array=batch_of(1), name="c")]),
    Case(
        about="two sizes of a batch",
        model="sum",
        tensors=[A, Tensor(array=np.ones((2, 2), np.float32), name="b")],
        words="batch size does not match other inputs for 'sum'",  # which input is named depends on a hash table
    ),
    Case(about="an unknown output", output="y"),
    Case(about="too few bytes", tensors=[Tensor(array=batch_of(1), said=(2, 4))], protocols=BYTES_ONLY),
    Case(about="too many bytes", tensors=[Tensor(array=batch_of(2), said=(1, 4))], protocols=BYTES_ONLY),
    Case(about="no data", tensors=[Tensor(array=batch_of(1), empty=True)]),
    Case(about="no data of one", model="sum", tensors=[A, Tensor(array=B.array, name="b", empty=True)]),
    Case(
        about="too few strings",
        model="strings",
        tensors=[Tensor(array=XY[:, :1], name="x", said=(1, 2))],
        protocols=BYTES_ONLY,
    ),
    Case(
        about="too many strings",
        model="strings",
        tensors=[Tensor(array=np.tile(XY, 2), name="x", said=(1, 2))],
        protocols=BYTES_ONLY,
    ),
    Case(about="no strings", model="strings", tensors=[Tensor(array=XY[:0], name="x")], protocols=BYTES_ONLY),
    Case(about="too long in the queue", model="late", options={"request_id": "7"}),
    Case(about="longer in the queue than it would", model="patient", options={"timeout": 1000}),
]


def told(server: Server, protocol: str, case: Case) -> tuple[str, str]:
    """Return the status and the message that a client gets."""
    library = CLIENTS[protocol]
    wanted = [library.InferRequestedOutput(case.output)] if case.output else None
    with library.InferenceServerClient(server.grpc if protocol == "grpc" else server.http) as client:
        tensors = [tensor.written(protocol) for tensor in case.tensors]
        with pytest.raises(InferenceServerException) as caught:
            client.infer(case.model, tensors, outputs=wanted, **case.options)
    return caught.value.status(), caught.value.message()


def without_note(message: str) -> str:
    """Cut off the explanation of max_batch_size, which each server words differently."""
    return message.partition(" NOTE: ")[0]


@pytest.mark.parametrize(
    ("case", "protocol"),
    [pytest.param(case, each, id=f"{case.about}-{each}") for case in CASES for each in case.protocols],
    indirect=["protocol"],
)
def test_both_reject_a_request_with_the_same_status_and_message(pair: Pair, protocol: str, case: Case) -> None:
    theirs, ours = pair.both(lambda server: told(server, protocol, case))
    assert ours[0] == theirs[0]
    if case.words:
        assert case.words in theirs[1]
        assert case.words in ours[1]
    else:
        assert without_note(ours[1]) == without_note(theirs[1])


@pytest.fixture(scope="module")
def full(pair: Pair) -> Iterator[Pair]:
    """Send two requests to a queue for one: one waits until it is cancelled, the other is rejected."""
    with ExitStack() as clients:

        def fill(server: Server) -> None:
            client = clients.enter_context(triton_grpc.InferenceServerClient(server.grpc))
            rejected: list[Any] = []
            for _ in range(2):
                client.async_infer("full", [ONE.written("grpc")], lambda result, error: rejected.append(error))
            until(lambda: bool(rejected))

        pair.both(fill)
        yield pair


def test_both_reject_the_same_way_when_the_queue_is_full(full: Pair, protocol: str) -> None:
    case = Case(about="a full queue", model="full", options={"request_id": "7"})
    theirs, ours = full.both(lambda server: told(server, protocol, case))
    assert ours == theirs
    assert ours == ("StatusCode.UNAVAILABLE" if protocol == "grpc" else "503", ours[1])
    assert ours[1] == "[request id: 7] Exceeds maximum queue size"


@pytest.mark.parametrize("count", [1, 2, 16])
@pytest.mark.parametrize("version", ["", "1"])
def test_both_match_onnx_runtime_bit_for_bit(pair: Pair, protocol: str, count: int, version: str) -> None:
    inputs = batch_of(count, seed=count)

    def answer(server: Server) -> tuple[bytes, str]:
        library = CLIENTS[protocol]
        with library.InferenceServerClient(server.grpc if protocol == "grpc" else server.http) as client:
            tensor = Tensor(array=inputs).written(protocol)
            result = client.infer("linear", [tensor], model_version=version, request_id="seven")
        found = result.get_response(as_json=True) if protocol == "grpc" else result.get_response()
        named = f"{found['model_name']}:{found['model_version']}:{found['id']}"
        return result.as_numpy("probabilities").tobytes(), named

    expected = directly(linear(seed=int(version or 2)), {"inputs": inputs})[0].tobytes()
    assert pair.both(answer) == ((expected, f"linear:{version or 2}:seven"),) * 2


@pytest.mark.parametrize("model", ["linear", "whole"])
@pytest.mark.parametrize("count", [1, 2, 3, 99])
def test_both_return_the_same_class_strings(pair: Pair, protocol: str, model: str, count: int) -> None:
    def classes(server: Server) -> Any:
        library = CLIENTS[protocol]
        with library.InferenceServerClient(server.grpc if protocol == "grpc" else server.http) as client:
            wanted = [library.InferRequestedOutput("probabilities", class_count=count)]
            tensor = Tensor(array=batch_of(2, seed=4)).written(protocol)
            return client.infer(model, [tensor], outputs=wanted).as_numpy("probabilities").tolist()

    theirs, ours = pair.both(classes)
    assert ours == theirs


def test_both_warm_up_before_they_are_ready(pair: Pair) -> None:
    runs = re.findall(r"ran linear:1 ([0-9]+)", pair.triton.log.partition("Started HTTPService")[0])
    assert runs == ["3", "3", "16"]
    assert "model linear version 1 is loaded" in pair.ours.log


def test_streams_continue_after_the_same_errors(pair: Pair) -> None:
    def tensor(array: Array) -> Any:
        return service_pb2.ModelInferRequest.InferInputTensor(name="inputs", datatype="FP32", shape=array.shape)

    def asked(id_: str, model: str, array: Array, version: str = "") -> Any:
        message = service_pb2.ModelInferRequest(model_name=model, model_version=version, id=id_)
        message.inputs.append(tensor(array))
        message.raw_input_contents.append(array.tobytes())
        return message

    def told_in_stream(server: Server) -> list[tuple[str, str, int]]:
        requests = [
            asked("1", "linear", batch_of(1)),
            asked("2", "unheard-of", batch_of(1)),
            asked("3", "linear", np.ones((1, 5), np.float32)),
            asked("4", "linear", batch_of(1), "9"),
            asked("5", "late", batch_of(1)),
            asked("6", "linear", batch_of(2)),
        ]
        with grpc.insecure_channel(server.grpc) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            answers = sorted(stub.ModelStreamInfer(iter(requests)), key=lambda found: str(found.infer_response.id))
            return [
                (found.infer_response.id, without_note(found.error_message), len(found.infer_response.outputs))
                for found in answers
            ]

    theirs, ours = pair.both(told_in_stream)
    assert ours == theirs
    assert [(id_, bool(error)) for id_, error, _ in ours] == [(str(n), n not in (1, 6)) for n in range(1, 7)]


def body_of(*, tail: bytes = b"", outputs: Sequence[Any] = (), **changes: Any) -> bytes:
    tensor = {"name": "inputs", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4], **changes}
    document: dict[str, Any] = {"inputs": [{key: value for key, value in tensor.items() if value is not None}]}
    return json.dumps(document | ({"outputs": list(outputs)} if outputs else {})).encode() + tail


def binary(size: int, *, tail: int) -> bytes:
    return body_of(data=None, parameters={"binary_data_size": size}, tail=bytes(tail))


HEADER = "Inference-Header-Content-Length"
JSON_BYTES = str(len(binary(16, tail=0)))
INFER = "/v2/models/linear/infer"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(binary(16, tail=16), {HEADER: "100000"}, id="a header beyond the body"),
        pytest.param(binary(16, tail=16), {HEADER: "-5"}, id="a header below 0"),
        pytest.param(binary(12, tail=12), {HEADER: JSON_BYTES}, id="too few bytes"),
        pytest.param(binary(20, tail=20), {HEADER: JSON_BYTES}, id="too many bytes"),
        pytest.param(binary(16, tail=12), {HEADER: JSON_BYTES}, id="a body that ends early"),
        pytest.param(binary(16, tail=20), {HEADER: JSON_BYTES}, id="a body that goes on"),
        pytest.param(binary(16, tail=0), {}, id="no bytes at all"),
        pytest.param(body_of(parameters={"binary_data_size": 16}), {}, id="two sources of data"),
        pytest.param(body_of(data=None), {}, id="no source of data"),
        pytest.param(body_of(datatype="FP8"), {}, id="an unknown datatype"),
        pytest.param(body_of(outputs=[{"name": "y"}]), {}, id="an unknown output"),
        pytest.param(
            body_of(outputs=[{"name": "probabilities", "parameters": {"classification": 0}}]), {}, id="no classes"
        ),
        pytest.param(body_of(), {"Content-Encoding": "br"}, id="an unknown encoding"),
    ],
)
def test_both_give_the_same_error_for_a_body(pair: Pair, body: bytes, headers: dict[str, str]) -> None:
    (theirs, said), (status, ours) = pair.both(lambda server: get(server.http, INFER, body, **headers))
    assert status == theirs
    if status == 200:
        assert json.loads(ours)["outputs"][0]["data"] == pytest.approx(json.loads(said)["outputs"][0]["data"], rel=1e-6)
    else:
        words = json.loads(said)["error"]
        assert json.loads(ours)["error"].startswith(words.removesuffix("."))


@pytest.mark.parametrize(
    ("body", "theirs", "ours"),
    [
        (b"{", "failed to parse the request JSON buffer", "failed to parse the request JSON buffer"),
        (b"{}", "Unable to parse 'inputs'", "Unable to parse 'inputs'"),
        (body_of(name=None), "Unable to parse 'name'", "Unable to parse 'name'"),
        (body_of(shape="1,4"), "Unable to parse 'shape'", "Unable to parse 'shape'"),
        (body_of(data=["a"] * 4), "Unable to parse 'data'", "Unable to parse 'data'"),
        (body_of(data=[1, 2, 3]), "Shape does not match true shape of 'data'", "Shape does not match true shape of"),
    ],
)
def test_an_invalid_body_is_a_client_error_here_and_a_server_error_in_triton(
    pair: Pair, body: bytes, theirs: str, ours: str
) -> None:
    (their_status, they_say), (status, we_say) = pair.both(lambda server: get(server.http, INFER, body))
    assert (their_status, status) == (500, 400)
    assert theirs in json.loads(they_say)["error"]
    assert ours in json.loads(we_say)["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/v2/health/live",
        "/v2/health/ready",
        *(
            f"/v2/models/{model}{what}"
            for model in ("linear", "linear/versions/1", "linear/versions/9", "broken", "broken/versions/1", "x")
            for what in ("", "/ready", "/config", "/stats")
        ),
        *("/v2/models/linear/", "/v2/models/linear/nothing", "/v2/models/linear/infer", "/v2/nothing", "/", "/metrics"),
    ],
)
def test_both_answer_a_get_with_the_same_status_and_body(pair: Pair, path: str) -> None:
    (theirs, said), (status, ours) = pair.both(lambda server: get(server.http, path))
    assert status == theirs
    if status != 200 and not path.endswith("/ready"):
        assert json.loads(ours)["error"].startswith(json.loads(said)["error"])


@pytest.mark.parametrize("path", ["/v2/models/linear", "/v2/models/linear/versions/1", "/v2/models/sum"])
def test_both_describe_a_model_identically(pair: Pair, path: str) -> None:
    theirs, ours = pair.both(lambda server: json.loads(get(server.http, path)[1]))
    assert ours == theirs


# What Triton says of its own backend, and of memory for GPUs.
TRITONS_OWN = {"runtime", "optimization"}


@pytest.mark.parametrize("model", ["linear", "whole", "sum", "full", "late"])
def test_both_complete_a_config_identically(pair: Pair, model: str) -> None:
    def config(server: Server) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(get(server.http, f"/v2/models/{model}/config")[1])
        return {key: value for key, value in found.items() if key not in TRITONS_OWN}

    theirs, ours = pair.both(config)
    assert ours == theirs


def test_both_list_the_same_models(pair: Pair) -> None:
    def index(server: Server) -> Any:
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            found = client.get_model_repository_index().models
            return sorted((each.name, each.version, each.state, bool(each.reason)) for each in found)

    theirs, ours = pair.both(index)
    assert ("broken", "1", "UNAVAILABLE", True) in ours
    assert set(ours) - set(theirs) == {("lacking", "9", "UNAVAILABLE", True)}  # Triton says it in its log
    assert set(theirs) <= set(ours)
    assert "version 9 is specified for model 'lacking', but the version directory is not present" in pair.triton.log


def test_both_report_the_same_statistics(pair: Pair) -> None:
    def counted(server: Server) -> Any:
        before = statistics(server, "whole")
        answer_of(server.http, "/v2/models/whole/infer", json.loads(body_of()))
        answer_of(server.http, "/v2/models/whole/infer", json.loads(body_of(shape=[2, 4], data=[1] * 8)))
        until(lambda: executions(statistics(server, "whole")) == executions(before) + 2)  # Triton answers first
        return before, statistics(server, "whole")

    (before, after), (our_before, our_after) = pair.both(counted)
    assert fields(our_after) == fields(after)
    for key in ("inference_count", "execution_count"):
        assert after[key] - before[key] == our_after[key] - our_before[key]
    ours, theirs = our_after["inference_stats"], after["inference_stats"]
    for key in ("success", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"):
        counts = [stats["inference_stats"][key]["count"] for stats in (before, after, our_before, our_after)]
        assert counts[1] - counts[0] == counts[3] - counts[2], key
        assert ours.keys() == theirs.keys()


def statistics(server: Server, model: str) -> dict[str, Any]:
    (found,) = json.loads(get(server.http, f"/v2/models/{model}/stats")[1])["model_stats"]
    return dict(found)


def executions(document: dict[str, Any]) -> int:
    return int(document["execution_count"])


def fields(document: Any) -> Any:
    """Return the names in a document without its values."""
    if isinstance(document, dict):
        return {key: fields(value) for key, value in document.items()}
    return [fields(document[0])] if isinstance(document, list) and document else type(document)


def test_both_have_the_same_metrics_with_the_same_labels(pair: Pair) -> None:
    def names(server: Server) -> set[str]:
        lines = server.metrics().splitlines()
        return {line.split(" ")[0] for line in lines if re.match(r'nv_inference_.*model="(linear|sum|late)"', line)}

    def kinds(server: Server) -> set[str]:
        return {line for line in server.metrics().splitlines() if line.startswith("# TYPE nv_inference_")}

    theirs, ours = pair.both(names)
    assert {ordered(each) for each in ours} == {ordered(each) for each in theirs}
    theirs, ours = pair.both(kinds)
    assert ours == theirs


def ordered(metric: str) -> str:
    name, _, labels = metric.rstrip("}").partition("{")
    return f"{name} {sorted(labels.split(','))}"


@pytest.mark.parametrize("action", ["load", "unload"])
def test_both_reject_load_and_unload_in_poll_mode(pair: Pair, action: str) -> None:
    def rejected(server: Server) -> Any:
        with triton_grpc.InferenceServerClient(server.grpc) as client:
            with pytest.raises(InferenceServerException) as caught:
                getattr(client, f"{action}_model")("linear")
            path = f"/v2/repository/models/linear/{action}"
            return caught.value.status(), caught.value.message(), answer_of(server.http, path, {})

    theirs, ours = pair.both(rejected)
    assert ours == theirs


def test_both_load_and_unload_on_request(repository: Path, tmp_path: Path) -> None:
    options = ["--exit-on-error=false", "--model-control-mode=explicit"]
    with (
        served(repository, tmp_path / "ours.log", "--model-control", "explicit") as ours,
        triton(repository, tmp_path, *options) as theirs,
    ):
        assert (found := controlled(ours)) == controlled(theirs)
    assert [status for _, status, _ in found if status] == [
        "StatusCode.NOT_FOUND",
        "StatusCode.INTERNAL",
        "StatusCode.INVALID_ARGUMENT",
        "StatusCode.INVALID_ARGUMENT",
        "StatusCode.NOT_FOUND",
        "StatusCode.UNAVAILABLE",
    ]


def controlled(server: Server) -> list[tuple[str, str, str]]:
    """Return the response to each step."""
    found = []
    with triton_grpc.InferenceServerClient(server.grpc) as client:

        def step(name: str, ask: Callable[[], Any]) -> None:
            try:
                found.append((name, "", str(ask())))
            except InferenceServerException as error:
                found.append((name, error.status(), error.message().partition(" state: ")[0]))

        def states() -> list[str]:
            entries = client.get_model_repository_index().models
            return [f"{each.name}:{each.version} {each.state}" for each in entries if each.name in ("linear", "sum")]

        def ask(version: str = "") -> str:
            result = client.infer("linear", [ONE.written("grpc")], model_version=version)
            return str(result.as_numpy("probabilities").tolist())

        step("index", states)
        step("ask", ask)
        step("load what is not there", lambda: client.load_model("unheard-of"))
        step("unload what is not there", lambda: client.unload_model("unheard-of"))
        step("statistics", lambda: client.get_inference_statistics("linear"))
        step("load what is corrupt", lambda: client.load_model("broken"))
        step("load a version that is not there", lambda: client.load_model("lacking"))
        step("load", lambda: client.load_model("linear"))
        step("load again", lambda: client.load_model("linear"))
        step("index", states)
        step("ask", ask)
        step("unload", lambda: client.unload_model("linear"))
        until(lambda: all(state.endswith("UNAVAILABLE") for state in states()[:2]))
        step("index", states)
        step("ask", ask)
        step("ask for a version", lambda: ask("2"))
    return found


def test_both_batch_two_concurrent_requests(pair: Pair) -> None:
    batches = [batch_of(1, seed=1), batch_of(1, seed=2)]
    expected = [directly(linear(), {"inputs": each})[0] for each in batches]

    def answers(server: Server) -> dict[str, Any]:
        def ask(inputs: Array) -> Any:
            with triton_grpc.InferenceServerClient(server.grpc) as client:
                return client.infer("pair", [Tensor(array=inputs).written("grpc")]).as_numpy("probabilities")

        with ThreadPoolExecutor(2) as threads:
            for found, wanted in zip(threads.map(ask, batches), expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-6)
        until(lambda: executions(statistics(server, "pair")) == 1)  # Triton answers first
        return statistics(server, "pair")

    for found in pair.both(answers):
        assert (found["inference_count"], found["inference_stats"]["success"]["count"]) == (2, 2)
        assert [(each["batch_size"], each["compute_infer"]["count"]) for each in found["batch_stats"]] == [(2, 1)]
