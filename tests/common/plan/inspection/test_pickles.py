from __future__ import annotations

import io
import struct
import zipfile

import pytest

from moonfed.errors import UnsafePlan
from moonfed.plan.inspection import pickles
from moonfed.plan.inspection.archive import inspect_archive
from moonfed.plan.inspection.operators import load_module
from tests.support.attack_plans import Harmless, archive_of, rewritten
from tests.support.refusals import refused

CODE = """class M(Module):
  training : bool
  inner : __torch__.Big
  def forward(self: __torch__.M) -> int:
    inner = self.inner
    return inner.last
class Big(Module):
  first : int
  last : int
"""
START, NO_CONSTANTS = b"\x80\x02", b"\x80\x02)."
BIG = (("first", b"K\x01"), ("last", b"K\x02"))


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def state(*items: tuple[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in items) + b"u"


def class_(name: str, module: str = "__torch__") -> bytes:
    return f"c{module}\n{name}\n".encode()


def an_object(name: str, attributes: bytes) -> bytes:
    return class_(name) + b")\x81" + attributes + b"b"


def plan(inner: bytes, other: str = "Other", constants: bytes = NO_CONSTANTS, training: bytes = b"\x89") -> bytes:
    """Return an archive whose module has the object `inner`; a class `other` is smaller than the declared one."""
    records = {
        "code/__torch__.py": f"{CODE}class {other}(Module):\n  first : int\n".encode(),
        "data.pkl": START + an_object("M", state(("training", training), ("inner", inner))) + b".",
        "constants.pkl": constants,
        "version": b"3\n",
        "data/0": bytes(64),
        "constants/0": bytes(64),
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, record in records.items():
            archive.writestr(f"archive/{name}", record)
    return content.getvalue()


def test_an_honest_object_is_loaded() -> None:
    assert load_module(inspect_archive(plan(an_object("Big", state(*BIG)))), "cpu")() == 2


@pytest.mark.parametrize(
    "name",
    ["FloatStorage", "BoolStorage", "restore_type_tag", "_rebuild_tensor_v2", "OrderedDict", "build_intlist", "Other"],
)
def test_a_class_is_no_object_whatever_its_name(name: str) -> None:
    """Torch makes an object of a class, or of its number, when its attributes are set."""
    built = class_(name) + state(("first", b"K\x01")) + b"b"
    with pytest.raises(UnsafePlan, match=r"sets the attributes of no new object"):
        inspect_archive(plan(built, other=name))


def test_a_data_type_is_not_the_number_of_a_class() -> None:
    """Torch has a number for each: `CharStorage` is 1, as is the class that was named second."""
    built = class_("CharStorage", "torch") + state(("first", b"K\x01")) + b"b"
    with pytest.raises(UnsafePlan, match=r"sets the attributes of no new object"):
        inspect_archive(plan(built, training=class_("Other")))


@pytest.mark.parametrize("value", [class_("Other"), class_("LongStorage", "torch"), class_("Other") + b")\x81"])
def test_a_class_is_no_value(value: bytes) -> None:
    with refused(UnsafePlan, "attribute", "inner"):
        inspect_archive(plan(value))


def tensor(type_: bytes, *, device: str = "cpu", key: bytes | None = None, gradient: bytes = b"\x89") -> bytes:
    storage = b"(" + text("storage") + type_ + (key or text("0")) + text(device) + b"K\x40tQ"
    hooks = class_("OrderedDict", "collections") + b")R"
    numbers = b"K\x00" + b"K\x40\x85" + b"K\x01\x85"
    return class_("_rebuild_tensor_v2", "torch._utils") + b"(" + storage + numbers + gradient + hooks + b"tR"


def with_constant(value: bytes) -> bytes:
    return plan(an_object("Big", state(*BIG)), other="ByteStorage", constants=START + value + b"\x85.")


def test_an_honest_constant_is_accepted() -> None:
    load_module(inspect_archive(with_constant(tensor(class_("ByteStorage", "torch")))), "cpu")


@pytest.mark.parametrize(
    "value",
    [
        tensor(class_("ByteStorage")),  # a class, whose number torch takes for another data type
        tensor(class_("ByteStorage", "torch"), device="meta"),
        tensor(class_("ByteStorage", "torch"), key=b"K\x00"),
        tensor(class_("ByteStorage", "torch"), gradient=b"K\x00"),
        b"K\x01",
        b"]",
        class_("Other"),
    ],
)
def test_constants_are_tensors_as_torch_writes_them(value: bytes) -> None:
    with pytest.raises(UnsafePlan, match=r"constants\.pkl"):
        inspect_archive(with_constant(value))


DEEP = pickles.MAXIMUM_NESTING + 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b")" + b"\x85" * DEEP, "values within each other"),
        (b"](" * DEEP + b"]" + b"e" * DEEP, "values within each other"),
        ((b"}(" + text("a")) * DEEP + b"}" + b"u" * DEEP, "values within each other"),
        (b"]q\x01]q\x02\x86(h\x01(h\x02ete", "that it has filled or used"),  # could become deep later
        (b"]q\x01(K\x01e(K\x02e", "that it has filled or used"),
        (b"]q\x01(h\x01e", "within each other|filled or used|another value"),
        (b"}(K\x01K\x02K\x01K\x03u", "a key twice"),
        (b"}()K\x02u", "malformed dictionary"),  # tuples could be chosen to collide
        (b"\x8a\x0c" + b"\xff" * 11 + b"\x01", "an integer of over 64 bits"),
        (b"K\x01(0", "the instruction POP"),  # where Python's removes a mark, torch's removes a value
        (b"K\x01(\x85", "has too few values"),
        (b"\x80\x02)", "does not begin with protocol 2"),
        (
            class_("restore_type_tag", "torch.jit._pickle") + b"]" + text("List[" * 99 + "int" + "]" * 99) + b"\x86R",
            "open brackets",
        ),
        (class_("restore_type_tag", "torch.jit._pickle") + b"]K\x01\x86R", "is damaged"),
        (class_("build_intlist", "torch.jit._pickle") + b"K\x01\x85R", "that TorchScript does not"),
        (class_("OrderedDict", "collections") + b"K\x01\x85R", "that TorchScript does not"),
        (class_("Other") + b")R", "that TorchScript does not"),
        (class_("Other") + b"K\x01\x85\x81", "makes an object of no class"),
    ],
)
def test_what_torchs_unpickler_would_read_otherwise_is_rejected(value: bytes, message: str) -> None:
    with pytest.raises(UnsafePlan, match=message):
        inspect_archive(with_constant(value))


def test_a_pickle_that_makes_unpicklers_reserve_gigabytes_is_rejected() -> None:
    content = rewritten(
        archive_of(Harmless()),
        lambda found: {
            name: record[:2] + b"}r\xff\xff\xff\x7f" + record[2:] if name.endswith("/data.pkl") else record
            for name, record in found.items()
        },
    )
    with refused(UnsafePlan, "object number", 2147483647):
        inspect_archive(content)


def test_a_pickle_of_too_many_instructions_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAXIMUM_OPCODES", 5)
    with pytest.raises(UnsafePlan, match=r"data\.pkl has over 5 instructions"):
        inspect_archive(archive_of(Harmless()))
