"""Reading of a graph container, graph/1: bytes become records whose every field has its type and range.

What the fields mean together, such as whether an operator exists and fits its arguments, `inspection` checks. The size,
the nesting and the number of values are limited before the JSON is parsed. Torch is not imported.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from moonfed.errors import InvalidInput, ResourceExhausted, UnsafePlan, shown
from moonfed.files import read_regular
from moonfed.format_version import require_readable
from moonfed.version import GRAPH_PLAN_INTERFACE

MAXIMUM_BYTES = 64 << 20
MAXIMUM_DEPTH = 12  # of lists and objects within each other; a list of a node's list of values has 8
MAXIMUM_OPENED = 1_000_000  # lists and objects
MAXIMUM_COMMAS = 2_000_000
MAXIMUM_GRAPHS = 1_000
MAXIMUM_ROUNDS = 256
MAXIMUM_CONDITIONS = 8  # of a round
MAXIMUM_NODES = 100_000  # of all graphs
MAXIMUM_TENSORS = 20_000  # also: inputs, outputs or results of one graph or node, and values of a list
MAXIMUM_DIMENSIONS = 8
MAXIMUM_ALLOCATED = 1 << 40  # bytes of all persistent tensors
INT64 = range(-(1 << 63), 1 << 63)
SIZES: Mapping[str, int] = {  # of elements, in bytes, by data type
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})
SHARED, FROZEN, PERSONAL, ZEROS, VALUES = "shared", "frozen", "personal", "zeros", "values"
ENTRIES = (
    "begin", "references", "step", "step_kept", "survey_first", "survey_last", "end", "metrics", "evaluate", "predict",
    "metric",
)  # fmt: skip
REQUIRED = frozenset(ENTRIES) - {"references", "step_kept", "survey_first", "survey_last"}
NAMED: Mapping[str, frozenset[str] | None] = {  # arguments by name, and their names
    "dtype": frozenset(SIZES),
    "layout": frozenset({"strided"}),
    "memory_format": frozenset({"contiguous", "channels_last", "preserve"}),
    "device": frozenset({"plan"}),
    "string": None,  # see `inspection`
}
_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_.:\[\]-]{1,200}", re.ASCII)
_OPERATOR = re.compile(r"[a-z]{1,20}::[A-Za-z_]\w{0,100}(\.\w{1,100})?|grad|grad_mode", re.ASCII)
_NUMBER = "(0|[1-9][0-9]{0,8})"
_SOURCE = re.compile(rf"({SHARED}|{FROZEN}|{PERSONAL}):{_NUMBER}|({ZEROS}|{VALUES})", re.ASCII)
_INPUT = re.compile(
    r"(inputs|targets|references|draws|sums|steps|samples)"
    rf"|(tensor|model):{_NUMBER}"
    rf"|(previous):{_NUMBER}:{_NUMBER}"
    rf"|(received):([a-z][a-z0-9_]{{0,30}}):{_NUMBER}"
    r"|(kept|hyperparameter):(.{1,200})",
    re.ASCII,
)
_ROLE = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)
T = TypeVar("T")
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that lasts as long as the plan."""

    shape: Shape
    dtype: str
    source: str  # SHARED, FROZEN or PERSONAL, whose `index` is the place in the manifest; ZEROS; VALUES
    index: int
    trained: bool
    values: bytes  # of VALUES: the elements, little-endian and contiguous

    @property
    def size(self) -> int:
        """The number of bytes."""
        return math.prod(self.shape) * SIZES[self.dtype]

    @property
    def extent(self) -> int:
        """The number of bytes if empty dimensions had one element, of which torch computes strides."""
        return math.prod(max(each, 1) for each in self.shape) * SIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class Value:
    """An argument that is the value with an id."""

    id: int


@dataclass(frozen=True, slots=True)
class Named:
    """An argument that is known by name, such as a data type; `kind` is one of NAMED."""

    kind: str
    name: str


Literal = int | float | bool | None
Argument = Value | Named | Literal | tuple["Argument", ...]


@dataclass(frozen=True, slots=True)
class Input:
    """A value that a graph is given; `name` is a role, of kept values or hyperparameters the name."""

    kind: str
    name: str = ""
    index: int = 0  # of a tensor
    model: int = 0  # of previous models, newest first

    def __str__(self) -> str:
        """Return it as the container spells it."""
        parts = {
            "tensor": (self.index,),
            "model": (self.index,),
            "previous": (self.model, self.index),
            "received": (self.name, self.index),
            "kept": (self.name,),
            "hyperparameter": (self.name,),
        }
        return ":".join(map(str, (self.kind, *parts.get(self.kind, ()))))


@dataclass(frozen=True, slots=True)
class Node:
    """One operator's call; its results take the next ids."""

    operator: str
    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument]
    results: int


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order in which they run."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    lowered: int  # the first ones run in lower precision, if the plan has one
    outputs: Mapping[str, tuple[int, ...]]
    kept: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a hyperparameter with a number."""

    name: str
    comparison: str
    value: float


@dataclass(frozen=True, slots=True)
class Round:
    """The graphs for rounds that begin in one way."""

    memory_format: str
    scaled: bool
    previous: int
    roles: tuple[str, ...]
    where: tuple[Condition, ...]
    reference_count: int
    graphs: Mapping[str, int]  # positions by entry point


@dataclass(frozen=True, slots=True)
class Container:
    """The contents of a file."""

    tensors: tuple[StoredTensor, ...]
    roles: Mapping[str, tuple[Shape, ...]]
    hyperparameters: tuple[str, ...]
    draws: int
    graphs: tuple[Graph, ...]
    rounds: tuple[Round, ...]

    def places(self, source: str) -> dict[int, int]:
        """Return the positions of the tensors from a source, by their place in the manifest."""
        return {tensor.index: at for at, tensor in enumerate(self.tensors) if tensor.source == source}


def read_file(path: Path) -> Container:
    """Read a container's file; raises UnsafePlan naming the problem, OSError if there is no such file."""
    try:
        return read_container(read_regular(path, MAXIMUM_BYTES))
    except (InvalidInput, ResourceExhausted) as error:
        raise UnsafePlan(str(error)) from error


def read_container(content: bytes) -> Container:
    """Return what a file holds.

    Raises UnsafePlan naming the field that is not as in docs/graph-container.md, VersionMismatch for another version.
    """
    parsed = _parsed(content)
    if isinstance(parsed, dict):
        _require_format(parsed.get("format", GRAPH_PLAN_INTERFACE))
    found = _fields(parsed, "container", ("format", "tensors", "roles", "hyperparameters", "draws", "graphs", "rounds"))
    tensors = _list(found["tensors"], "tensors", MAXIMUM_TENSORS, _tensor)
    if (allocated := sum(tensor.extent for tensor in tensors)) > MAXIMUM_ALLOCATED:
        fail("bytes of tensors", allocated, f"at most {MAXIMUM_ALLOCATED}")
    sources = [(tensor.source, tensor.index) for tensor in tensors if tensor.source not in (ZEROS, VALUES)]
    for source in (SHARED, FROZEN, PERSONAL):
        places = sorted(index for each, index in sources if each == source)
        if places != list(range(len(places))):
            fail("source of tensors", source, "each place from 0 once")
    roles = _object(found["roles"], "roles", _ROLE)
    nodes = 0
    graphs = []
    for position, graph in enumerate(_items(found["graphs"], "graphs", MAXIMUM_GRAPHS)):
        graphs.append(_graph(graph, f"graphs[{position}]", MAXIMUM_NODES - nodes))
        nodes += len(graphs[-1].nodes)
    return Container(
        tensors=tensors,
        roles={role: _list(shapes, f"roles.{role}", MAXIMUM_TENSORS, _shape) for role, shapes in roles.items()},
        hyperparameters=_distinct(_list(found["hyperparameters"], "hyperparameters", 1000, _name), "hyperparameters"),
        draws=_whole(found["draws"], "draws", 1 << 31),
        graphs=tuple(graphs),
        rounds=_list(found["rounds"], "rounds", MAXIMUM_ROUNDS, _round),
    )


def _require_format(found: object) -> None:
    try:
        require_readable("the graph plan", found, (GRAPH_PLAN_INTERFACE,))
    except InvalidInput:
        fail("format", found, repr(GRAPH_PLAN_INTERFACE))


def fail(field: str, value: object, allowed: str) -> NoReturn:
    """Raise UnsafePlan, "the plan's FIELD is VALUE; it must be ALLOWED"."""
    short: object = value
    if isinstance(value, list | dict | tuple):
        short = f"a {type(value).__name__}"
    elif isinstance(value, str):
        short = ascii(value[:100])[1:-1]
    raise UnsafePlan(f"the plan's {field} is {shown(short)}; it must be {allowed}", field=field, value=short)


def _parsed(content: bytes) -> object:
    if len(content) > MAXIMUM_BYTES:
        fail("bytes", len(content), f"at most {MAXIMUM_BYTES}")
    opened = content.count(b"[") + content.count(b"{")
    if opened > MAXIMUM_OPENED or content.count(b",") > MAXIMUM_COMMAS:
        fail("number of values", max(opened, content.count(b",")), f"at most {MAXIMUM_OPENED}")
    depth = 0
    for token in _TOKEN.finditer(content):
        first = content[token.start()]
        depth += (first in b"[{") - (first in b"]}")
        if depth > MAXIMUM_DEPTH:
            fail("nesting", depth, f"at most {MAXIMUM_DEPTH}")
    try:
        return json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer
        )
    except (ValueError, RecursionError) as error:
        raise UnsafePlan(f"the plan is not JSON: {ascii(str(error))[1:-1][:200]}", field="JSON") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        fail("key", _repeated(name for name, _ in pairs), "in its object once")
    return found


def _no_constant(name: str) -> NoReturn:
    fail("number", name, "a finite number")


def _integer(text: str) -> int:
    if len(text) > 20 or int(text) not in INT64:
        fail("number", "a larger number", "an integer of at most 64 bits")
    return int(text)


def _fields(value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    if type(value) is not dict:
        fail(where, value, "an object")
    missing = [name for name in required if name not in value]
    unknown = [name for name in value if name not in required and name not in optional]
    if missing or unknown:
        fail(f"{where}'s field", (missing or unknown)[0], "there" if missing else f"one of {', '.join(required)}")
    return value


def _object(value: object, where: str, pattern: re.Pattern[str]) -> dict[str, Any]:
    if type(value) is not dict or len(value) > MAXIMUM_TENSORS:
        fail(where, value, "an object")
    for name in value:
        if not pattern.fullmatch(name):
            fail(f"name in {where}", name, "letters, digits, '_' and '.'")
    return value


def _items(value: object, where: str, most: int) -> list[Any]:
    if type(value) is not list:
        fail(where, value, "a list")
    if len(value) > most:
        fail(f"number of {where}", len(value), f"at most {most}")
    return value


def _list(value: object, where: str, most: int, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    return tuple(read(each, f"{where}[{position}]") for position, each in enumerate(_items(value, where, most)))


def _distinct(values: tuple[T, ...], where: str) -> tuple[T, ...]:
    if len(set(values)) < len(values):
        fail(where, str(_repeated(values)), "there once")
    return values


def _repeated(values: Iterable[T]) -> T:
    return Counter(values).most_common(1)[0][0]


def _whole(value: object, where: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        fail(where, value, f"a whole number from 0 to {most}")
    return value


def _flag(value: object, where: str) -> bool:
    if type(value) is not bool:
        fail(where, value, "true or false")
    return value


def _one_of(value: object, where: str, allowed: tuple[str, ...]) -> str:
    if type(value) is not str or value not in allowed:
        fail(where, value, f"one of {', '.join(allowed)}")
    return value


def _matching(value: object, where: str, pattern: re.Pattern[str]) -> re.Match[str]:
    found = pattern.fullmatch(value) if type(value) is str else None
    if not found:
        fail(where, value, "a name that this format has")
    return found


def _name(value: object, where: str) -> str:
    return _matching(value, where, _NAME)[0]


def _shape(value: object, where: str) -> Shape:
    return _list(value, where, MAXIMUM_DIMENSIONS, lambda each, place: _whole(each, place, MAXIMUM_ALLOCATED))


def _tensor(value: object, where: str) -> StoredTensor:
    found = _fields(value, where, ("shape", "dtype", "source", "trained"), ("values",))
    dtype = _one_of(found["dtype"], f"{where}.dtype", tuple(SIZES))
    source = _matching(found["source"], f"{where}.source", _SOURCE)
    shape = _shape(found["shape"], f"{where}.shape")
    trained = _flag(found["trained"], f"{where}.trained")
    kind = source[1] or source[3]
    if trained and (dtype not in FLOATING or kind not in (SHARED, PERSONAL)):
        fail(f"{where}.trained", trained, "false unless it is shared or personal, and of floating-point numbers")
    tensor = StoredTensor(shape, dtype, kind, int(source[2] or 0), trained, b"")
    if (kind == VALUES) != ("values" in found):
        fail(f"{where}.values", found.get("values"), "there if, and only if, the source is 'values'")
    if kind != VALUES:
        return tensor
    values = _decoded(found["values"], f"{where}.values")
    if len(values) != tensor.size:
        fail(f"{where}.values", f"{len(values)} bytes", f"{tensor.size} bytes")
    if dtype == "bool" and set(values) - {0, 1}:
        fail(f"{where}.values", "another byte", "0 or 1")
    return StoredTensor(shape, dtype, kind, 0, trained, values)


def _decoded(value: object, where: str) -> bytes:
    try:
        if type(value) is str:
            return base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        pass
    fail(where, value, "base64")


def _graph(value: object, where: str, nodes: int) -> Graph:
    found = _fields(value, where, ("inputs", "nodes", "lowered", "outputs", "kept"))
    read = _list(found["nodes"], f"{where}.nodes", nodes, _node)
    outputs = _object(found["outputs"], f"{where}.outputs", _NAME)
    kept = _object(found["kept"], f"{where}.kept", _NAME)
    return Graph(
        inputs=_distinct(_list(found["inputs"], f"{where}.inputs", MAXIMUM_TENSORS, _input), f"{where}.inputs"),
        nodes=read,
        lowered=_whole(found["lowered"], f"{where}.lowered", len(read)),
        outputs={name: _list(ids, f"{where}.outputs.{name}", MAXIMUM_TENSORS, _id) for name, ids in outputs.items()},
        kept={name: _id(each, f"{where}.kept.{name}") for name, each in kept.items()},
    )


def _id(value: object, where: str) -> int:
    return _whole(value, where, MAXIMUM_COMMAS)


def _input(value: object, where: str) -> Input:
    found = _matching(value, where, _INPUT)
    given, placed, place, previous, model, of_model, received, role, of_role, named, name = found.groups()
    if given:
        return Input(given)
    if placed:
        return Input(placed, index=int(place))
    if previous:
        return Input(previous, model=int(model), index=int(of_model))
    if received:
        return Input(received, role, int(of_role))
    return Input(named, _name(name, where))


def _node(value: object, where: str) -> Node:
    found = _fields(value, where, ("op", "args", "kwargs", "results"))
    operator = found["op"]
    if type(operator) is not str or not _OPERATOR.fullmatch(operator):
        fail(f"{where}.op", operator, "the name of an operator")
    kwargs = _object(found["kwargs"], f"{where}.kwargs", _NAME)
    return Node(
        operator,
        _list(found["args"], f"{where}.args", 1000, _argument),
        {name: _argument(each, f"{where}.kwargs.{name}") for name, each in kwargs.items()},
        _whole(found["results"], f"{where}.results", MAXIMUM_TENSORS),
    )


def _argument(value: object, where: str, depth: int = 2) -> Argument:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return _finite(value, where)
    if type(value) is list and depth > 0:
        return _list(value, where, MAXIMUM_TENSORS, lambda each, place: _argument(each, place, depth - 1))
    if type(value) is not dict or len(value) != 1:
        fail(where, value, "a value, a literal or a list of them")
    ((kind, inner),) = value.items()
    if kind == "v":
        return Value(_id(inner, where))
    if kind == "float" and type(inner) is str and inner in _FLOATS:
        return _FLOATS[inner]
    allowed = NAMED.get(kind, frozenset())
    if type(inner) is not str or (allowed is not None and inner not in allowed):
        fail(f"{kind[:20]} in {where}" if kind in NAMED else where, inner, "a name that this format has")
    return Named(kind, inner)


def _finite(value: object, where: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        fail(where, value, "a finite number")
    return float(value)  # type: ignore[arg-type]


def _round(value: object, where: str) -> Round:
    found = _fields(
        value, where, ("memory_format", "scaled", "previous", "roles", "where", "reference_count", "graphs")
    )
    graphs = _fields(
        found["graphs"], f"{where}.graphs", tuple(sorted(REQUIRED)), tuple(sorted(set(ENTRIES) - REQUIRED))
    )
    return Round(
        memory_format=_one_of(found["memory_format"], f"{where}.memory_format", ("contiguous", "channels-last")),
        scaled=_flag(found["scaled"], f"{where}.scaled"),
        previous=_whole(found["previous"], f"{where}.previous", 1000),
        roles=tuple(sorted(_distinct(_list(found["roles"], f"{where}.roles", 100, _name), f"{where}.roles"))),
        where=_list(found["where"], f"{where}.where", MAXIMUM_CONDITIONS, _condition),
        reference_count=_whole(found["reference_count"], f"{where}.reference_count", 1000),
        graphs={name: _whole(at, f"{where}.graphs.{name}", MAXIMUM_GRAPHS - 1) for name, at in graphs.items()},
    )


def _condition(value: object, where: str) -> Condition:
    name, comparison, number = _triple(value, where)
    return Condition(_name(name, where), _one_of(comparison, where, _COMPARISONS), _finite(number, where))


def _triple(value: object, where: str) -> tuple[object, object, object]:
    if type(value) is not list or len(value) != 3:
        fail(where, value, "a name, a comparison and a number")
    return value[0], value[1], value[2]
