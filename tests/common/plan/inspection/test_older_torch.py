"""The oldest torch that a plan runs in, from the declarations of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from moonfed.plan.inspection import older_torch
from moonfed.plan.inspection.older_torch import (
    FILE,
    OLDEST_TORCH,
    Call,
    minimum_torch,
    older_operators,
    oldest_release,
)
from tests.support.attack_plans import archive_of
from tools.lock_requirements import CONSTRAINTS, read_pinned
from tools.older_operators import differing

ATTENTION = (
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False)"
    " -> Tensor"
)
NEWEST = ".".join(torch.__version__.split(".")[:2])


class Attention(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(inputs, inputs, inputs)


class ScaledAttention(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(inputs, inputs, inputs, None, 0.0, False, scale=0.5)


class GroupedAttention(torch.nn.Module):
    """`enable_gqa` is new in torch 2.5."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(inputs, inputs, inputs, enable_gqa=True)


class Product(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.mm(inputs, inputs)


class WideProduct(torch.nn.Module):
    """The overload with a type is new in torch 2.8."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.mm(inputs, inputs, out_dtype=torch.float32)


class Triangle(torch.nn.Module):
    """Its diagonal is a SymInt in torch 2.13, and an int in 2.4 and in plans."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.tril(inputs, -1)


@pytest.mark.parametrize(
    ("module", "release"),
    [
        (torch.nn.Linear(2, 2), OLDEST_TORCH),
        (Triangle(), OLDEST_TORCH),
        (Attention(), OLDEST_TORCH),
        (ScaledAttention(), OLDEST_TORCH),
        (GroupedAttention(), "2.8"),
        (Product(), OLDEST_TORCH),
        (WideProduct(), "2.8"),
        (torch.nn.Upsample(scale_factor=2.0), "2.12"),
        (torch.nn.UpsamplingBilinear2d(scale_factor=2.0), "2.12"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_network_needs_the_torch_that_declares_its_calls(module: torch.nn.Module, release: str) -> None:
    assert minimum_torch(archive_of(module)) == release


@pytest.fixture
def declared(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., None]]:
    """Declare operators in older releases, in place of those in the file."""

    def declare(*lines: str) -> None:
        path = tmp_path_factory.mktemp("declared") / FILE.name
        path.write_text("".join(f"{line}\n" for line in lines))
        monkeypatch.setattr(older_torch, "FILE", path)
        older_operators.cache_clear()

    yield declare
    older_operators.cache_clear()


@pytest.mark.parametrize(
    ("old", "new", "release"),
    [
        ("", "", OLDEST_TORCH),
        ("is_causal=False", "is_causal=False, *, int more=0", OLDEST_TORCH),
        ("dropout_p=0.", "dropout_p=0.5", "2.8"),
        ("Tensor query", "Tensor q", "2.8"),
        ("Tensor query", "Tensor? query", "2.8"),
        ("-> Tensor", "-> (Tensor, Tensor)", "2.8"),
        ("is_causal=False", "is_causal=False, *, int more", "2.8"),
        (ATTENTION, "-", "2.8"),
    ],
    ids=["same", "further-default", "other-default", "name", "type", "results", "further-argument", "absent"],
)
def test_a_declaration_must_mean_the_same(declared: Callable[..., None], old: str, new: str, release: str) -> None:
    written = ATTENTION.replace(old, new) if old else ATTENTION
    declared(f"2.4 aten::scaled_dot_product_attention {written}", "2.8 aten::unrelated -", "2.12 aten::unrelated -")
    assert minimum_torch(archive_of(Attention())) == release


@pytest.mark.parametrize(
    ("operator", "positional", "keywords", "release"),
    [
        ("aten::mm", 2, (), OLDEST_TORCH),
        ("aten::mm.dtype", 3, (), "2.8"),
        ("aten::scaled_dot_product_attention", 6, ("scale",), OLDEST_TORCH),
        ("aten::scaled_dot_product_attention", 3, ("enable_gqa",), "2.8"),
        ("aten::_assert_tensor_metadata", 4, (), OLDEST_TORCH),
        ("aten::_assert_tensor_metadata", 1, ("dtype", "size"), OLDEST_TORCH),
        ("aten::_assert_tensor_metadata", 1, ("dtype", "device"), "2.8"),
        ("scalar::add", 2, (), OLDEST_TORCH),
    ],
)
def test_a_call_needs_the_torch_that_declares_its_overload_and_arguments(
    operator: str, positional: int, keywords: tuple[str, ...], release: str
) -> None:
    assert oldest_release([Call(operator, positional, keywords)]) == release


@pytest.mark.parametrize(
    ("old", "new", "release"),
    [
        ("", "", OLDEST_TORCH),
        ("bool is_causal", "int is_causal", "2.8"),
        ("bool is_causal", "*, bool is_causal", "2.8"),
        ("attn_mask=None", "attn_mask", "2.8"),
    ],
    ids=["same", "type", "by-name-only", "required"],
)
def test_a_keyword_must_mean_the_same(declared: Callable[..., None], old: str, new: str, release: str) -> None:
    written = ATTENTION.replace(old, new) if old else ATTENTION
    declared(f"2.4 aten::scaled_dot_product_attention {written}", "2.8 aten::unrelated -", "2.12 aten::unrelated -")
    call = Call("aten::scaled_dot_product_attention", 3, ("is_causal",))
    assert oldest_release([call]) == release


def test_a_plan_that_no_older_release_runs_needs_this_one(declared: Callable[..., None]) -> None:
    declared("2.4 aten::unrelated -", "2.8 aten::unrelated -", "2.12 aten::mm -")
    assert minimum_torch(archive_of(Product())) == NEWEST


def test_the_file_was_made_for_the_pinned_torch() -> None:
    (pinned,) = [each.version for each in read_pinned(CONSTRAINTS.read_text()) if each.name == "torch"]
    assert f"than torch {pinned}:" in FILE.read_text(), "run `make old-torch`"
    assert list(older_operators()) == ["2.4", "2.8", "2.12"], "oldest first, not as text"


def test_a_line_is_written_for_each_operator_that_differs() -> None:
    newest = {"aten::a": "(Tensor self) -> Tensor", "aten::b": "(int x=1) -> int", "aten::c": "() -> ()"}
    older = {"aten::a": "(Tensor self) -> Tensor", "aten::b": "(int x=2) -> int", "aten::gone": "() -> ()"}
    written = list(differing([("2.12.0", newest), ("2.4.1", older)], newest))
    assert written == ["2.4 aten::b (int x=2) -> int", "2.4 aten::c -"]
