"""The reading of containers: whatever the bytes are, they become checked records, or UnsafePlan names the field."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from moonfed.errors import UnsafePlan, VersionMismatch
from moonfed.plan.graph import container
from moonfed.plan.graph.container import Input, Named, Value, read_container, read_file
from tests.support import graph_containers
from tests.support.graph_containers import Change, node, removing, setting
from tests.support.refusals import refused

BYTES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "JSON"),
    "no text": (b"\xff\xfe", "JSON"),
    "half a document": (b'{"format": "graph/1"', "JSON"),
    "two documents": (b"{}{}", "JSON"),
    "a list": (b"[]", "container"),
    "another format": (b'{"format": "maze/1"}', "format"),
    "a key twice": (b'{"format": "graph/1", "format": "graph/1"}', "key"),
    "a key twice, escaped": (b'{"draws": 0, "dr\\u0061ws": 0}', "key"),
    "not a number": (b'{"draws": NaN}', "number"),
    "infinity": (b'{"draws": -Infinity}', "number"),
    "an integer beyond 64 bits": (b'{"draws": 9223372036854775808}', "number"),
    "an integer of a million digits": (b'{"draws": %s}' % (b"9" * 1_000_000), "number"),
    "deep nesting": (b"[" * 10_000, "nesting"),
    "deep nesting that closes": (b'{"a":' * 100 + b"1" + b"}" * 100, "nesting"),
    "nesting as deep as allowed": (b"[" * container.MAXIMUM_DEPTH + b"]" * container.MAXIMUM_DEPTH, "container"),
    "many values": (b"[" + b"0," * (container.MAXIMUM_COMMAS + 1) + b"0]", "number of values"),
    "many lists": (b"[" + b"[]" * (container.MAXIMUM_OPENED + 1), "number of values"),
    "a byte too many": (bytes(container.MAXIMUM_BYTES + 1), "bytes"),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_no_exporter_writes_are_refused_before_they_become_values(name: str) -> None:
    content, field = BYTES[name]
    with refused(UnsafePlan, field):
        read_container(content)


@pytest.mark.parametrize("content", [b'{"format": "graph/2"}', b'{"format": "graph/2", "nodes": [1]}'])
def test_another_version_is_named_before_its_other_fields_are_read(content: bytes) -> None:
    with refused(VersionMismatch, "format", "graph/2"):
        read_container(content)


def test_brackets_in_strings_are_no_nesting() -> None:
    text = json.dumps(graph_containers.linear() | {"draws": '[[[[\\"{{{{{{{{{{{{{{{{{' * 3}).encode()
    with refused(UnsafePlan, "draws"):
        read_container(text)


TENSOR = ("tensors", 0)
HOSTILE: dict[str, tuple[Change, str]] = {
    "another format": (setting("format", to=1), "format"),
    "a missing field": (removing("draws"), "container's field"),
    "an unknown field": (setting("code", to=""), "container's field"),
    "draws below 0": (setting("draws", to=-1), "draws"),
    "draws that are a float": (setting("draws", to=1.0), "draws"),
    "draws that are a truth value": (setting("draws", to=True), "draws"),
    "tensors that are no list": (setting("tensors", to={}), "tensors"),
    "a negative size": (setting(*TENSOR, "shape", to=[-1]), "tensors[0].shape[0]"),
    "a size that is a float": (setting(*TENSOR, "shape", to=[3.0, 4]), "tensors[0].shape[0]"),
    "nine dimensions": (setting(*TENSOR, "shape", to=[1] * 9), "number of tensors[0].shape"),
    "a tensor beyond the limit": (setting(*TENSOR, "shape", to=[1 << 40]), "bytes of tensors"),
    "an empty tensor whose strides overflow": (setting(*TENSOR, "shape", to=[1 << 40, 1 << 40, 0]), "bytes of tensors"),
    "tensors that are beyond the limit together": (
        lambda plan: plan["tensors"].extend([plan["tensors"][3] | {"shape": [1 << 36]}] * 3),
        "bytes of tensors",
    ),
    "an unknown data type": (setting(*TENSOR, "dtype", to="complex64"), "tensors[0].dtype"),
    "a data type that is an integer": (setting(*TENSOR, "dtype", to=6), "tensors[0].dtype"),
    "an unknown source": (setting(*TENSOR, "source", to="file:0"), "tensors[0].source"),
    "a source without a place": (setting(*TENSOR, "source", to="shared:"), "tensors[0].source"),
    "a place with a sign": (setting(*TENSOR, "source", to="shared:+0"), "tensors[0].source"),
    "a place with a line feed": (setting(*TENSOR, "source", to="shared:0\n"), "tensors[0].source"),
    "a place twice": (setting("tensors", 1, "source", to="shared:0"), "source of tensors"),
    "a gap between places": (setting("tensors", 1, "source", to="shared:2"), "source of tensors"),
    "a flag that is an integer": (setting(*TENSOR, "trained", to=1), "tensors[0].trained"),
    "trained integers": (setting(*TENSOR, "dtype", to="int64"), "tensors[0].trained"),
    "trained zeros": (setting("tensors", 2, "trained", to=True), "tensors[2].trained"),
    "values without their bytes": (removing("tensors", 2, "values"), "tensors[2].values"),
    "bytes without their source": (setting(*TENSOR, "values", to=""), "tensors[0].values"),
    "too few bytes": (setting("tensors", 2, "values", to="AAAA"), "tensors[2].values"),
    "no base64": (setting("tensors", 2, "values", to="****"), "tensors[2].values"),
    "base64 beyond ASCII": (setting("tensors", 2, "values", to="\u00e9"), "tensors[2].values"),
    "values that are no text": (setting("tensors", 2, "values", to=[0]), "tensors[2].values"),
    "truth values of 2": (
        lambda plan: plan["tensors"][2].update(dtype="bool", shape=[1], values=base64.b64encode(b"\x02").decode()),
        "tensors[2].values",
    ),
    "roles that are a list": (setting("roles", to=[]), "roles"),
    "a role's odd name": (setting("roles", to={"../x": []}), "name in roles"),
    "a role's odd shape": (setting("roles", to={"variate": [3]}), "roles.variate[0]"),
    "an odd hyperparameter": (setting("hyperparameters", to=["mu\n"]), "hyperparameters[0]"),
    "a hyperparameter twice": (setting("hyperparameters", to=["mu", "mu"]), "hyperparameters"),
    "a node that is a list": (setting("graphs", 1, "nodes", 0, to=[]), "graphs[1].nodes[0]"),
    "a node of more": (setting("graphs", 1, "nodes", 0, "code", to=""), "graphs[1].nodes[0]'s field"),
    "arguments that are an object": (setting("graphs", 1, "nodes", 0, "args", to={}), "graphs[1].nodes[0].args"),
    "keyword arguments that are a list": (
        setting("graphs", 1, "nodes", 0, "kwargs", to=[]),
        "graphs[1].nodes[0].kwargs",
    ),
    "three lists within each other": (
        setting("graphs", 1, "nodes", 0, to=node("aten::relu", [[[1]]])),
        "graphs[1].nodes[0].args[0][0][0]",
    ),
    "a float beyond the largest": (setting("graphs", 1, "nodes", 0, "args", 1, to=float("inf")), "number"),
    "more lowered nodes than nodes": (setting("graphs", 1, "lowered", to=7), "graphs[1].lowered"),
    "an output that is no list": (setting("graphs", 1, "outputs", "loss", to=10), "graphs[1].outputs.loss"),
    "an output that is a float": (setting("graphs", 1, "outputs", "loss", to=[10.0]), "graphs[1].outputs.loss[0]"),
    "a kept value that is a list": (setting("graphs", 0, "kept", "seen", to=[0]), "graphs[0].kept.seen"),
    "many kept values": (setting("graphs", 0, "kept", to={str(at): 0 for at in range(20_001)}), "graphs[0].kept"),
    "an odd name of a kept value": (setting("graphs", 0, "kept", "a b", to=0), "name in graphs[0].kept"),
    "an odd input": (setting("graphs", 1, "inputs", 0, to="kept:a b"), "graphs[1].inputs[0]"),
    "an input that is a number": (setting("graphs", 1, "inputs", 0, to=0), "graphs[1].inputs[0]"),
    "an unknown memory format": (setting("rounds", 0, "memory_format", to="channels_last"), "rounds[0].memory_format"),
    "a scale that is a number": (setting("rounds", 0, "scaled", to=0), "rounds[0].scaled"),
    "negative previous models": (setting("rounds", 0, "previous", to=-1), "rounds[0].previous"),
    "a role twice": (setting("rounds", 1, "roles", to=["variate", "variate"]), "rounds[1].roles"),
    "a negative number of references": (setting("rounds", 0, "reference_count", to=-1), "rounds[0].reference_count"),
    "a graph that is no position": (setting("rounds", 0, "graphs", "end", to="3"), "rounds[0].graphs.end"),
    "a condition that is an object of three": (
        setting("rounds", 1, "where", to=[{"mu": 0, ">": 0, "0.0": 0}]),
        "rounds[1].where[0]",
    ),
    "many conditions": (setting("rounds", 0, "where", to=[["mu", ">", 0.0]] * 9), "number of rounds[0].where"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_field_of_another_type_or_range_is_refused(name: str) -> None:
    change, field = HOSTILE[name]
    plan = graph_containers.linear()
    change(plan)
    with refused(UnsafePlan, field):
        read_container(json.dumps(plan).encode())


@pytest.mark.parametrize(
    "change",
    [
        setting("graphs", 1, "nodes", 0, "args", 1, to=-(1 << 63)),
        setting("graphs", 0, "kept", to={str(at): 0 for at in range(container.MAXIMUM_TENSORS)}),
        setting("rounds", 0, "where", to=[["mu", ">", 0.0]] * container.MAXIMUM_CONDITIONS),
    ],
    ids=["integer", "names", "conditions"],
)
def test_the_most_that_is_allowed_is_read(change: Change) -> None:
    plan = graph_containers.linear()
    change(plan)
    read_container(json.dumps(plan).encode())


def test_a_number_beyond_the_largest_is_refused() -> None:
    plan = json.dumps(graph_containers.linear()).replace('"tensor:0"', "1e999", 1)
    with refused(UnsafePlan, "graphs[0].inputs[0]"):
        read_container(plan.encode())
    plan = json.dumps(graph_containers.linear()).replace('"momentum": 0.9', '"momentum": 1e999', 1)
    with refused(UnsafePlan, "graphs[1].nodes[5].kwargs.momentum"):
        read_container(plan.encode())


def test_a_million_nodes_are_refused() -> None:
    plan = graph_containers.linear()
    nodes = json.dumps([node("aten::relu", 1.0)] * 100_001)
    text = json.dumps(plan).replace(json.dumps(plan["graphs"][6]["nodes"]), nodes)
    with refused(UnsafePlan, "number of graphs[6].nodes"):
        read_container(text.encode())


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafePlan, match="not a regular file"):
        read_file(Path("/dev/zero"))
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "plan.json")


def test_what_was_written_is_read() -> None:
    plan = graph_containers.linear()
    names = ["received:variate:2", "previous:1:0", "model:3", "tensor:3", "kept:a.b:c[0]", "hyperparameter:mu", "sums"]
    plan["graphs"][2]["inputs"] = names
    flags = base64.b64encode(b"\1\0").decode()
    plan["tensors"].append({"shape": [2], "dtype": "bool", "source": "values", "trained": False, "values": flags})
    found = read_container(json.dumps(plan).encode())
    assert found.graphs[2].inputs[:3] == (
        Input("received", "variate", 2),
        Input("previous", "", 0, 1),
        Input("model", index=3),
    )
    assert list(map(str, found.graphs[2].inputs)) == names
    assert found.tensors[2].values == b"\0\0\0\x3f" * 4
    assert found.tensors[4].values == b"\1\0"
    assert found.places("shared") == {0: 0, 1: 1}
    full = found.graphs[5].nodes[5]
    assert full.args == ((1,), Value(8))
    assert full.kwargs == {"dtype": Named("dtype", "float32"), "layout": Named("layout", "strided")}
    assert found.graphs[4].nodes[2].args == (float("inf"), float("inf"))
    assert found.rounds[1].where[0].value == 0.0
