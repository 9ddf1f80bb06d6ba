from __future__ import annotations

import zlib

import pytest
import torch

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection.operator_list import allowed_names
from moonfed.plan.inspection.source import METHODS_OF_CONSTANTS, Code, longest_chain, read_code
from tests.support.refusals import refused

HONEST = """class Net(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  __annotations__ = []
  __annotations__["0"] = __torch__.torch.nn.Linear
  weight : Tensor
  training : bool
  rate : Final[float] = 0.10000000000000001
  padding : Final[Tuple[int, int]] = (1, -1)
  sizes : Final[List[int]] = annotate(List[int], [])
  mode : Final[str] = "it\\'s \\"zeros\\" # so;"
  def forward(self: __torch__.Net,
    inputs: Tensor,
    scale: float=1.5,
    size: Optional[List[int]]=None) -> Tensor:
    _0 = __torch__.free
    if torch.gt(scale, 1.):
      x = torch.mul(inputs, scale)
    else:
      pass
      x, y = torch.add(inputs, CONSTANTS.c0), None
    for _1 in range(torch.len(size)):
      (self).note(size[_1], )
    while _2:
      a, b, = self.pair
    _3 = __torch__.torch.no_grad.__new__(__torch__.torch.no_grad)
    with _3 as _4:
      self.seen = unchecked_cast(Tensor, _0(x, ))
    z : Optional[int] = None
    w: Optional[int] = ((size, 1))[0]
    _5 = torch.sum(torch.zeros([2, int(w)], dtype=None), [0], True)
    _6 = {"loss": getattr(self, "0").weight, "x": _5}
    ops.prim.RaiseException(torch.format("{}", isinstance(x, (int, float))), "builtins.ValueError")
    return annotate(Tensor, (x).note(x, ))
  def note(self: __torch__.Net,
    inputs: Tensor,
    stride: Tuple[int, int]=(1, 1),
    padding: Tuple[int, int]=(1, 1)) -> NoneType:
    return None
class Small:
  value : int
class Pair(NamedTuple):
  one : int
  two : Tensor
class Kind(Enum):
  first = 1
  second = "two"
class Face(ModuleInterface):
  def forward(self, inputs: Tensor, other: int) -> Tensor:
    pass
def free(x: Tensor) -> Tensor:
  return torch.relu(x)
"""


def read(text: str) -> Code:
    return read_code({"code/net.py": text}, lambda: None)


def changed(old: str, new: str) -> str:
    assert old in HONEST
    return HONEST.replace(old, new)


def test_every_construct_of_torchs_printer_is_accepted() -> None:
    code = read(HONEST)
    assert code.classes == {
        "net.Net": {"0": "__torch__.torch.nn.Linear", "weight": "Tensor", "training": "bool"},
        "net.Small": {"value": "int"},
    }
    assert code.defined == {"forward", "note"}


EVIL = 'torch.from_file("/etc/passwd", False, 9)'


@pytest.mark.parametrize(
    "text",
    [
        # values that torch computes while it loads
        changed("scale: float=1.5", f"scale: Tensor={EVIL}"),
        changed("scale: float=1.5", "scale: float=evil()"),
        changed("scale: float=1.5", "scale: float=torch.relu(1)"),
        changed("= 0.10000000000000001", '= torch.save(1, "queue.py")'),
        changed("= (1, -1)", "= (1, evil(2))"),
        changed("= (1, -1)", "= [1, torch.add(1, 2)]"),
        changed("= annotate(List[int], [])", f"= annotate(Tensor, {EVIL})"),
        changed("weight : Tensor", f"weight : Tensor = {EVIL}"),
        changed('["weight", ]', f"[{EVIL}, ]"),
        changed("first = 1", f"first = {EVIL}"),
        changed("one : int", "one : int = evil()"),
        # in disguise: blanks, indentation, case
        changed("def free(x: Tensor)", f"def\tfree(x: Tensor={EVIL})"),
        changed("def free(x: Tensor)", f"def\ffree(x: Tensor={EVIL})"),
        changed("def free(x: Tensor)", f"def  free(x: Tensor={EVIL})"),
        changed("def free(x: Tensor)", f"def free (x: Tensor={EVIL})"),
        changed("def free(x: Tensor)", f"def free(\n    x: Tensor={EVIL})"),
        changed("  training : bool\n", f"  training : bool\n   rate2 : Final[Tensor] = {EVIL}\n"),
        changed("  training : bool\n", f"  training : bool\n    rate2 : Final[Tensor] = {EVIL}\n"),
        changed("class Small:\n  value : int\n", f"class Small:\n      value : Final[Tensor] = {EVIL}\n"),
        changed("class Small:\n", "class Small:\r\n"),
        changed("  training : bool\n", "  training\xa0: bool\n"),
        changed("  training : bool\n", "\ttraining : bool\n"),
        changed("  training : bool\n", "  training :  bool\n"),
        changed("  training : bool\n", "  training : bool \n"),
        changed("  training : bool\n", "  training : bool\n\n"),
        changed("    return None\n", "   return None\n"),
        changed("weight : Tensor", "weіght : Tensor"),  # noqa: RUF001 - a Cyrillic letter
        # statements in the wrong place
        changed("  training : bool\n", '  training : bool\n  torch.save(1, "x")\n'),
        changed("def free(", 'torch.save(1, "x")\ndef free('),
        changed("class Small:", "x = 1\nclass Small:"),
        changed("    return None\n", "    return None\n    return None\n"),
        changed("    return None\n", "    pass\n"),
        changed("    else:\n", "    elif y:\n"),
        changed("    else:\n      pass\n      x, y = torch.add(inputs, CONSTANTS.c0), None\n", ""),
        changed("    while _2:\n      a, b, = self.pair\n", "    while _2:\n"),
        changed("    while _2:\n", "    else:\n"),
        changed("      a, b, = self.pair\n", "        a, b, = self.pair\n"),
        # names
        changed("def note", "def __setstate__"),
        changed("def note", "def __getstate__"),
        changed("def note", "def __reduce__"),
        changed("def note", "def __reduce_ex__"),
        changed("def note", "def __del__"),
        changed("weight : Tensor", "weight : __torch__.torch.classes.quantized.Conv"),
        changed("class Small:", "class Net:"),
        changed("class Small:", "class Net(Module):"),
        changed("def free(", "def Net("),
        changed("  training : bool\n", "  training : bool\n  training : Tensor\n"),
        changed("  training : bool\n", "  training : bool\n  forward : Tensor\n"),
        changed('"0"]', '"weight"]'),
        changed("    inputs: Tensor,\n    scale", "    inputs: Tensor,\n    inputs: float,\n    scale"),
        changed("def note", "def forward"),
        changed("(x).note(x, )", "(x).save(x, )"),
        # operators
        changed("torch.relu(x)", "torch.from_file(x)"),
        changed("torch.relu(x)", "ops.aten.from_file(x)"),
        changed("torch.relu(x)", "ops.prim.TimePoint()"),
        changed("torch.relu(x)", "relu(x, )"),
        # what the printer does not write
        HONEST + "# " + "x" * 9_000_000,
        changed("return torch.relu(x)\n", "return x # harmless\n"),
        changed("  training : bool\n", "  training : bool # type: (int) -> int\n"),
        HONEST + '  """' + "x" * 100 + '"""\n',
        changed("return torch.relu(x)", "return 'x'"),
        changed("return torch.relu(x)", 'return "x" "y"'),
        changed("return torch.relu(x)", 'return """x"""'),
        changed("return torch.relu(x)", 'return "x'),
        changed("return torch.relu(x)", 'return "\\x41"'),
        changed("return torch.relu(x)", "return x; evil()"),
        changed("return torch.relu(x)", "return (lambda y: y)(x)"),
        changed("return torch.relu(x)", "return x + 1"),
        changed("return torch.relu(x)", "return x if y else z"),
        changed("return torch.relu(x)", "return not x"),
        changed("return torch.relu(x)", "return [x for x in y]"),
        changed("return torch.relu(x)", "return (x)"),
        changed("return torch.relu(x)", "return torch.relu(x,)"),
        changed("return torch.relu(x)", "return torch.relu( x)"),
        changed("return torch.relu(x)", "return torch .relu(x)"),
        changed("return torch.relu(x)", "return torch.relu(x"),
        changed("return torch.relu(x)", "return torch.relu(x\n)"),
        changed("return torch.relu(x)", "return x\\\n"),
        changed("return torch.relu(x)", "return 0x10"),
        changed("return torch.relu(x)", "return 1_000"),
        changed("return torch.relu(x)", f"return {'9' * 60}"),
        changed("return torch.relu(x)", f"return {'x' * 300}"),
        # what would exhaust a parser
        changed("return torch.relu(x)", "return " + "[" * 50_000 + "x" + "]" * 50_000),
        changed("return torch.relu(x)", "return " + "-" * 50_000 + "x"),
        changed("return torch.relu(x)", "return x" + ".y" * 50_000),
        changed("weight : Tensor", "weight : " + "List[" * 50_000 + "int" + "]" * 50_000),
        changed("= 0.10000000000000001", "= " + "[" * 50_000 + "]" * 50_000),
        changed(
            "    return None\n", "".join("  " * n + "    while x:\n" for n in range(99)) + "  " * 99 + "    pass\n"
        ),
        changed("def free(", "def f(" * 300_000),
        changed("= 0.10000000000000001", "= " + "4" * 40 + "x"),
        changed("= 0.10000000000000001", "= " + "1-" * 28 + "x"),
        changed("return torch.relu(x)", "return " + '"' * 100_001),
        HONEST.rstrip("\n"),
    ],
    ids=lambda text: f"{zlib.crc32(text.encode()):08x}",
)
def test_anything_that_the_printer_does_not_write_is_rejected(text: str) -> None:
    with pytest.raises(UnsafePlan):
        read(text)


def test_an_error_names_the_file_the_line_and_the_reason() -> None:
    with pytest.raises(UnsafePlan) as found:
        read(changed("return torch.relu(x)", "return x if y else z"))
    line = HONEST.split("\n").index("  return torch.relu(x)") + 1
    assert str(found.value) == (
        f"the plan's code/net.py has a line that torch's printer does not write in line {line}: 'return x if y else z'"
    )


def test_the_clock_stops_the_inspection_of_a_long_file() -> None:
    class TooLong(Exception):
        pass

    def stop() -> None:
        raise TooLong

    with pytest.raises(TooLong):
        read_code({"code/net.py": "class Last:\n" + "".join(f"  x{n} : int\n" for n in range(5000))}, stop)


@pytest.mark.parametrize(
    "statements",
    [
        ["_1 = print", '_1("x", )'],
        ["_1 = fork", "_1(self, x, )"],
        ["_1 = hex", "x = _1(5, )"],
        ["_1 = x.data_ptr", "x = _1()"],
        ['_1 = ("1").zfill', "x = _1(9, )"],
        ["_1 = __torch__.free", "_1 = print", "x = _1(5, )"],
        ["_1, _2, = self.pair", "x = _1(5, )"],
        ["x = _1(5, )"],
        ["with x as _1:", "  x = _1(5, )"],
        ["for _1 in range(2):", "  x = _1(5, )"],
        ["_ = print", "x = _(5, )"],
    ],
)
def test_only_functions_of_the_plan_are_called_by_another_name(statements: list[str]) -> None:
    """Torch's own functions have names, too, and those of constants are executed when the plan is compiled."""
    text = "def free(x: Tensor) -> Tensor:\n" + "".join(f"  {each}\n" for each in statements) + "  return x\n"
    with pytest.raises(UnsafePlan, match=r"a call of '_1?', which is not always a function of the plan"):
        read(text)


def test_a_function_of_the_plan_has_another_name_in_each_function_that_calls_it() -> None:
    call = (
        "def {0}(x: Tensor) -> Tensor:\n  if x:\n    _0 = __torch__.net.free\n    x = _0(_0(x, ), )\n"
        "  else:\n    pass\n  return x\n"
    )
    read(HONEST + call.format("one") + call.format("two"))


@pytest.mark.parametrize("name", ["zfill", "center", "replace", "hash", "divmod"])
def test_a_method_that_constants_have_is_not_called(name: str) -> None:
    """Torch would execute it when it compiles the plan: `"1".zfill` makes a string of any length."""
    text = changed("  def note(", f"  def {name}(self: __torch__.Net) -> int:\n    return 1\n  def note(")
    read(text)
    with refused(UnsafePlan, "method", name):
        read(text.replace("(x).note(x, )", f'("1").{name}(999999999, )'))


def test_all_methods_of_constants_are_known() -> None:
    """Operators of numbers and strings only, but for those that a plan may use."""
    of_objects = ("Tensor", "List", "Dict", "Generator", "Storage", "Stream", "Future", "RRef", "Quantizer", "[]")
    schemas = torch._C._jit_get_all_schemas()
    found = {
        schema.name.removeprefix("aten::")
        for schema in schemas
        if schema.name.startswith("aten::")
        and schema.arguments
        and schema.returns
        and not any(word in str(each.real_type) for each in [*schema.arguments, *schema.returns] for word in of_objects)
    }
    assert {name for name in found if f"aten::{name}" not in allowed_names()} <= METHODS_OF_CONSTANTS
    assert {"zfill", "center", "hash"} <= found


def chain(number: int, form: str) -> str:
    return "".join(form.format(each, each + 1) for each in range(number))


CLASSES = "class A{0}:\n  x : __torch__.net.A{1}\n"
FUNCTIONS = "def f{0}(x: int) -> int:\n  _0 = __torch__.net.f{1}\n  return _0(x, )\n"
METHODS = "  def f{0}(self: __torch__.net.B) -> int:\n    return (self).f{1}()\n"
LAST = "  def f{0}(self: __torch__.net.B) -> int:\n    return 1\n"


@pytest.mark.parametrize(
    "text",
    [
        chain(700, CLASSES),
        chain(700, FUNCTIONS),
        "class B:\n" + chain(700, METHODS) + LAST.format(700),
        chain(400, CLASSES) + "class A400:\n  x : __torch__.net.f0\n" + chain(400, FUNCTIONS),
        chain(700, CLASSES) + "class A700:\n  x : __torch__.net.A0\n",  # a cycle
        chain(700, "class A{0}:\n  x : __torch__.net.A{1}.y\n"),
    ],
)
def test_definitions_that_torch_would_nest_too_deeply_are_rejected(text: str) -> None:
    with refused(UnsafePlan, "chain"):
        read_code({"code/__torch__/net.py": text}, lambda: None)


def test_many_definitions_are_no_chain() -> None:
    functions = chain(2000, "def f{0}(x: __torch__.net.A{1}) -> int:\n  return 1\n")
    read_code({"code/__torch__/net.py": chain(2000, "class A{0}:\n  x : Tensor\n") + functions}, lambda: None)


def test_the_longest_chain_counts_a_cycle_as_a_whole() -> None:
    needed = {"a": {"b", "d", "x"}, "b": {"c"}, "c": {"b", "e"}, "d": {"e"}, "e": set[str](), "f": {"a"}}
    assert longest_chain(needed, dict.fromkeys(needed, 1)) == 5  # f, a, b and c, e
    assert longest_chain(needed, dict.fromkeys(needed, 1) | {"d": 7}) == 10
    assert longest_chain({}, {}) == 0


@pytest.mark.parametrize("value", ['"' + "a" * 100_000 + '"', "__torch__" + ".a" * 50_000, "x  " * 40_000])
def test_a_long_line_is_rejected(value: str) -> None:
    with pytest.raises(UnsafePlan, match="a line of over 100,000 characters"):
        read(changed("return torch.relu(x)", f"return {value}"))


def test_a_qualified_name_has_few_parts() -> None:
    read(changed("(NamedTuple):\n  one : int", f"(NamedTuple):\n  one : __torch__{'.a' * 30}"))
    with pytest.raises(UnsafePlan, match="does not write"):
        read(changed("(NamedTuple):\n  one : int", f"(NamedTuple):\n  one : __torch__{'.a' * 31}"))
