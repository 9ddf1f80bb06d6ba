"""A plan's pickles, read into values that cannot run anything.

Torch's unpickler trusts what it reads, and has numbers where Python's has functions and classes: any number can be
called, and a class without its instance. So a pickle is read here by a machine that knows only what TorchScript writes:
a function or class is no value, is used in one way, and a list or dictionary is filled once, before anything has it.
Then torch reads the same values as this machine, which checks each tensor against its bytes in the archive, and each
object against its class.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection import grammar
from moonfed.plan.inspection.attributes import DeclaredAttributes, ScriptObject, Tensor

MAXIMUM_OPCODES = 500_000  # of a pickle
MAXIMUM_NESTING = 100  # lists, tuples, dictionaries and objects within each other; torch frees them recursively
OPCODES_PER_CHECK = 10_000  # of the clock

_SCRIPT_TYPE = re.compile(r"__torch__(\.[A-Za-z_][A-Za-z0-9_]*)+")
_STORAGE_BYTES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1,
}  # fmt: skip
_TYPED_LISTS = {f"torch.jit._pickle.build_{kind}list" for kind in ("int", "double", "bool", "tensor")}
_TAG = "torch.jit._pickle.restore_type_tag"
_TENSOR = "torch._utils._rebuild_tensor_v2"
_HOOKS = "collections.OrderedDict"
_GLOBALS = {*_TYPED_LISTS, _TAG, _TENSOR, _HOOKS, *(f"torch.{name}" for name in _STORAGE_BYTES)}
_INTEGERS = {"BININT", "BININT1", "BININT2", "LONG1"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_COUNTED = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
# What TorchScript's own pickler writes; a `REDUCE` of a script type would call it, so types are only instantiated.
_OPCODES = {
    "PROTO", "STOP", "MARK", "GLOBAL", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_TUPLE", "TUPLE",
    "EMPTY_LIST", "APPENDS", "EMPTY_DICT", "SETITEMS", "BUILD", "REDUCE", "NEWOBJ", "BINPERSID",
    "BINUNICODE", "BINFLOAT", *_INTEGERS, *_CONSTANTS, *_COUNTED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Global:
    """A function or class."""

    name: str


@dataclass(frozen=True, slots=True)
class _New:
    """An instance of a class, without its attributes."""

    script_type: str


@dataclass(frozen=True, slots=True)
class _Storage:
    """A storage of `elements`."""

    elements: int


def require_sane_pickle(
    name: str,
    records: Mapping[str, bytes],
    classes: Mapping[str, Mapping[str, str]],
    require_time: Callable[[], None],
) -> None:
    """Raise UnsafePlan unless a pickle, a record of the archive, has only what TorchScript writes.

    `classes`: the types of their attributes, as the code declares them. `require_time` raises if it takes too long.
    """
    machine = _Machine(name, records, DeclaredAttributes(classes))
    try:
        instructions = _instructions(name, records[name], require_time)
        for count, (opcode, argument) in enumerate(instructions):
            if count % OPCODES_PER_CHECK == 0:
                require_time()
            machine.execute(opcode, argument)
        machine.require_end()
    except UnsafePlan:
        raise
    except Exception as error:  # many kinds for damaged bytes
        raise UnsafePlan(f"the plan's {name} is damaged: {error}") from error


def _instructions(name: str, content: bytes, require_time: Callable[[], None]) -> list[tuple[str, Any]]:
    """Return the names and arguments of instructions, each of which TorchScript writes."""
    found = list[tuple[str, Any]]()
    for opcode, argument, _ in pickletools.genops(content):
        if len(found) % OPCODES_PER_CHECK == 0:
            require_time()
        if len(found) >= MAXIMUM_OPCODES:
            raise UnsafePlan(f"the plan's {name} has over {MAXIMUM_OPCODES:,} instructions")
        if opcode.name not in _OPCODES:
            raise UnsafePlan(f"the plan's {name} has the instruction {opcode.name}, which is not allowed in plans")
        if opcode.name == "GLOBAL":
            _require_allowed_global(name, str(argument).replace(" ", ".", 1))
        if opcode.name == "LONG_BINPUT" and (argument or 0) > MAXIMUM_OPCODES:  # unpicklers allocate as many objects
            raise UnsafePlan(
                f"the plan's {name} has the object number {argument}, but fewer instructions than that",
                field="object number",
                value=argument,
            )
        found.append((opcode.name, argument))
    return found


def _require_allowed_global(record: str, qualified: str) -> None:
    script = _SCRIPT_TYPE.fullmatch(qualified) and not qualified.startswith("__torch__.torch.classes")
    if not script and qualified not in _GLOBALS:
        raise UnsafePlan(
            f"the plan's {record} refers to {qualified[:100]!a}, which no plan may use",
            field="name",
            value=qualified[:100],
        )


class _Machine:
    """A stack machine that executes the instructions of a pickle."""

    def __init__(self, record: str, records: Mapping[str, bytes], attributes: DeclaredAttributes) -> None:
        self._record = record
        self._records = records
        self._attributes = attributes
        self._stack = list[Any]()
        self._marks = list[int]()
        self._memo = dict[int, Any]()
        self._depths: dict[int, tuple[int, object]] = {}  # by identity, with the value, so that it keeps that
        self._unfilled = dict[int, object]()  # by identity: lists and dictionaries that may still get their elements
        self._started = False

    def execute(self, opcode: str, argument: Any) -> None:  # noqa: ANN401 - an instruction's
        """Execute one instruction."""
        if (opcode == "PROTO") == self._started or (opcode == "PROTO" and argument != 2):
            self._fail("does not begin with protocol 2")
        self._started = True
        if opcode in _INTEGERS:
            self._push_integer(argument)
        elif opcode in _CONSTANTS:
            self._stack.append(_CONSTANTS[opcode])
        elif opcode in ("BINUNICODE", "BINFLOAT"):
            self._stack.append(argument)
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._top()
        elif opcode in ("BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[argument])
        elif opcode == "GLOBAL":
            self._stack.append(_Global(str(argument).replace(" ", ".", 1)))
        elif opcode == "MARK":
            self._marks.append(len(self._stack))
        elif opcode in _COUNTED:
            self._push_tuple([self._pop() for _ in range(_COUNTED[opcode])][::-1])
        elif opcode not in ("PROTO", "STOP"):
            getattr(self, f"_{opcode.lower()}")()

    def require_end(self) -> None:
        """Raise UnsafePlan unless the only value is the plan's module, or the tuple of its constant tensors."""
        root = self._pop()
        module = isinstance(root, ScriptObject)
        constants = isinstance(root, tuple) and all(isinstance(each, Tensor) for each in root)
        if self._stack or self._marks or not (module if self._record == "data.pkl" else constants):
            self._fail("has another value than a plan's")

    def _fail(self, what: str) -> NoReturn:
        raise UnsafePlan(f"the plan's {self._record} {what}")

    def _top(self) -> Any:  # noqa: ANN401 - from the archive
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            self._fail("is damaged: an instruction has too few values")
        return self._stack[-1]

    def _pop(self) -> Any:  # noqa: ANN401
        value = self._top()
        self._stack.pop()
        return value

    def _pop_marked(self) -> list[Any]:
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _push_integer(self, value: int) -> None:
        if not -(2**63) <= value < 2**63:
            self._fail("has an integer of over 64 bits")
        self._stack.append(value)

    def _empty_tuple(self) -> None:
        self._push_tuple([])

    def _tuple(self) -> None:
        self._push_tuple(self._pop_marked())

    def _push_tuple(self, values: Sequence[Any]) -> None:
        self._stack.append(tuple(values))
        self._contain(self._stack[-1], values)

    def _empty_list(self) -> None:
        self._push_unfilled([])

    def _empty_dict(self) -> None:
        self._push_unfilled({})

    def _push_unfilled(self, container: list[Any] | dict[Any, Any]) -> None:
        self._stack.append(container)
        self._unfilled[id(container)] = container

    def _appends(self) -> None:
        values = self._pop_marked()
        self._fill(list, values)
        self._top().extend(values)

    def _setitems(self) -> None:
        values = self._pop_marked()
        keys = values[::2]
        self._fill(dict, values)
        if len(values) % 2 or not all(type(key) in (str, int, float, bool) for key in keys):
            self._fail("has a malformed dictionary")
        self._top().update(zip(keys, values[1::2], strict=True))
        if len(self._top()) < len(keys):
            self._fail("has a dictionary with a key twice")

    def _fill(self, kind: type, values: Sequence[Any]) -> None:
        """Require the value on top to be a list or dictionary without elements, which is not in another value."""
        target = self._top()
        if type(target) is not kind or self._unfilled.get(id(target)) is not target:
            self._fail("adds to a list or dictionary that it has filled or used")
        del self._unfilled[id(target)]
        self._contain(target, values)

    def _contain(self, container: object, values: Sequence[Any]) -> None:
        """Note that a value has others, which can no longer be filled."""
        depth = 1 + max((self._depths.get(id(each), (0, None))[0] for each in values), default=0)
        if depth > MAXIMUM_NESTING:
            self._fail(f"has over {MAXIMUM_NESTING} values within each other")
        self._depths[id(container)] = depth, container
        for each in values:
            self._unfilled.pop(id(each), None)

    def _newobj(self) -> None:
        arguments, script = self._pop(), self._pop()
        if arguments != () or not isinstance(script, _Global) or not _SCRIPT_TYPE.fullmatch(script.name):
            self._fail("makes an object of no class")
        self._stack.append(_New(script.name))

    def _build(self) -> None:
        state, new = self._pop(), self._pop()
        if not isinstance(new, _New):
            self._fail("sets the attributes of no new object")
        self._attributes.require(new.script_type, state)
        self._stack.append(ScriptObject(new.script_type))
        self._contain(self._stack[-1], [state])

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        name = function.name if isinstance(function, _Global) else ""
        if not isinstance(arguments, tuple):
            self._fail("is damaged: a call without a tuple")
        if name == _HOOKS and arguments == ():
            self._stack.append(None)
        elif name == _TENSOR:
            self._stack.append(self._tensor(*arguments))
        elif name in _TYPED_LISTS and len(arguments) == 1 and isinstance(arguments[0], list):
            self._stack.append(arguments[0])
        elif name == _TAG and len(arguments) == 2 and isinstance(arguments[0], list | dict):
            grammar.require_type(grammar.shapes(grammar.without_strings(arguments[1])))
            self._stack.append(arguments[0])
        else:
            self._fail(f"calls {name[:100]!a} in a way that TorchScript does not")

    def _binpersid(self) -> None:
        """Push a storage, if the archive has as many bytes as it claims."""
        kind, type_, key, device, elements = self._pop()
        size = _STORAGE_BYTES.get(type_.name.removeprefix("torch.")) if isinstance(type_, _Global) else None
        if kind != "storage" or not size or device != "cpu" or type(elements) is not int or elements < 0:
            self._fail("has a malformed storage")
        stored = len(self._records.get(f"{self._record.removesuffix('.pkl')}/{key}", b""))
        if elements * size != stored or not isinstance(key, str):
            self._fail(f"claims {elements * size} bytes for a storage of {stored} bytes")
        self._stack.append(_Storage(elements))

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any, gradient: Any, hooks: Any) -> Tensor:  # noqa: ANN401
        numbers = [offset, *size, *stride]
        if not isinstance(storage, _Storage) or len(size) != len(stride) or len(size) > 16:
            self._fail("has a malformed tensor")
        if type(gradient) is not bool or hooks is not None or any(type(number) is not int for number in numbers):
            self._fail("has a malformed tensor")
        if any(number < 0 for number in numbers):
            self._fail("has a tensor with a size or stride below 0")
        last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
        if all(size) and last >= storage.elements:
            self._fail("has a tensor that reaches beyond its storage")
        return Tensor()
