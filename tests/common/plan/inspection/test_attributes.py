import pytest
import torch

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection.archive import inspect_archive
from moonfed.plan.inspection.attributes import DeclaredAttributes, ScriptObject, Tensor
from moonfed.plan.inspection.operators import load_module
from moonfed.plan.inspection.source import read_code
from tests.support.attack_plans import archive_of, rewritten, with_code
from tests.support.refusals import refused


class Large(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = torch.zeros(1), torch.ones(1), torch.ones(1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.third


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.zeros(1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.first


class Both(torch.nn.Module):
    pair: tuple[int, list[torch.Tensor]]
    named: dict[str, float | None]

    def __init__(self) -> None:
        super().__init__()
        self.large, self.small = Large(), Small()
        self.pair = (1, [torch.zeros(1)])
        self.named = {"rate": 0.5, "other": None}

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        number, tensors = self.pair
        return self.large.forward(inputs) + self.small.forward(inputs) + tensors[0] * number + len(self.named)


def test_objects_as_their_classes_declare_them_are_accepted() -> None:
    load_module(inspect_archive(archive_of(Both())), "cpu")


def test_an_object_in_the_place_of_another_class_is_rejected() -> None:
    """Torch would read an attribute at its position in the declared class, beyond the end of a smaller object."""

    def swap(records: dict[str, bytes]) -> dict[str, bytes]:
        name = next(name for name in records if name.endswith("data.pkl"))
        return records | {name: records[name].replace(b"\nSmall\n", b"\nLarge\n", 1)}

    with refused(UnsafePlan, "attribute", "small"):
        inspect_archive(rewritten(archive_of(Both()), swap))


def test_an_object_that_code_passes_off_as_another_class_is_rejected() -> None:
    def cast(code: str) -> str:
        large = next(line.split()[-1] for line in code.splitlines() if line.startswith("  large : "))
        return code.replace("large = self.large", f"other = self.small\n    large = unchecked_cast({large}, other)")

    plan = inspect_archive(with_code(archive_of(Both()), cast))
    with refused(UnsafePlan, "operator", "prim::unchecked_cast to an unrelated type"):
        load_module(plan, "cpu")


class Pair(torch.nn.Module):
    pair: tuple[int, int]
    triple: tuple[int, int, int]

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.triple = (1, 2), (1, 2, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.triple[2]


def test_a_tuple_that_code_passes_off_as_a_longer_one_is_rejected() -> None:
    def cast(code: str) -> str:
        return code.replace("triple = self.triple", "triple = unchecked_cast(Tuple[int, int, int], self.pair)")

    plan = inspect_archive(with_code(archive_of(Pair()), cast))
    with refused(UnsafePlan, "operator", "prim::unchecked_cast to an unrelated type"):
        load_module(plan, "cpu")


@pytest.mark.parametrize(
    ("text", "value", "fits"),
    [
        ("Optional[__torch__.A]", None, True),
        ("Tuple[int, List[int]]", (1, [2]), True),
        ("Tuple[int, List[int]]", (1,), False),
        ("Tuple[int, List[int]]", (1, {"a": 2}), False),
        ("List[Tuple[int, int]]", [(1, 2), (3,)], False),
        ("Dict[str, Tuple[int, int]]", {"a": (1, 2)}, True),
        ("Dict[str, Tuple[int, int]]", {"a": (1,)}, False),
        ("Tensor", (1, 2), False),
        ("Optional[Tuple[int, int]]", (1,), False),
        ("List[int]", (1,), False),
        ("Tuple[int]", [1], False),
        ("Tuple[str, int]", {"a": 1}, False),
        ("Tensor", Tensor(), True),
        ("Any", ScriptObject("__torch__.A"), False),
        ("int", object(), False),
    ],
)
def test_tuples_and_objects_are_found_at_any_depth(text: str, value: object, fits: bool) -> None:
    attributes = DeclaredAttributes(declared(f"class A(Module):\n  value : {text}\n"))
    if fits:
        attributes.require("__torch__.A", {"value": value})
        return
    with refused(UnsafePlan, "attribute", "value"):
        attributes.require("__torch__.A", {"value": value})


def test_a_value_that_attributes_share_has_the_type_of_each() -> None:
    code = "class A(Module):\n  one : Tuple[int, int]\n  other : Tuple[int, int, int]\n"
    shared = (1, 2)
    with refused(UnsafePlan, "attribute", "other"):
        DeclaredAttributes(declared(code)).require("__torch__.A", {"one": shared, "other": shared})


@pytest.mark.parametrize(("script_type", "state"), [("__torch__.B", {}), ("__torch__.A", [])])
def test_an_object_without_a_class_or_attributes_is_rejected(script_type: str, state: object) -> None:
    attributes = DeclaredAttributes(declared("class A(Module):\n  value : int\n"))
    with refused(UnsafePlan, "object"):
        attributes.require(script_type, state)


def test_lists_that_share_lists_take_no_longer() -> None:
    text, value = "int", 1
    shared: object = value
    for _ in range(50):
        text, shared = f"List[{text}]", [shared, shared]
    DeclaredAttributes(declared(f"class A(Module):\n  value : {text}\n")).require("__torch__.A", {"value": shared})


@pytest.mark.parametrize(
    "code",
    [
        "class A(Module):\n  big : int\n  def f(self: __torch__.A,\n    other: __torch__.C) -> int:\n    return 1\n",
        "class A(Module):\n  big : int\ndef f(big: __torch__.C) -> int:\n  other : __torch__.C = big\n  return 1\n",
        "class A(Module):\n  big : Final[int] = 1\n",
        'class A(Module):\n  __annotations__["(big"] = __torch__.C\n',
        "class A(NamedTuple):\n  big : __torch__.C\n",
        "class A(Module):\n  x : int\n",
    ],
)
def test_code_that_only_looks_like_a_declaration_declares_nothing(code: str) -> None:
    """A parameter, a variable of a function, a constant, a part of a name, a named tuple."""
    with pytest.raises(UnsafePlan):
        DeclaredAttributes(declared(code)).require("__torch__.A", {"big": ScriptObject("__torch__.C")})


def declared(code: str, name: str = "code/__torch__.py") -> dict[str, dict[str, str]]:
    return read_code({name: code}, lambda: None).classes
