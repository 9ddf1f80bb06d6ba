"""The operators that a plan calls, compared with those of the installed torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from moonfed.errors import VersionMismatch
from moonfed.plan.inspection import source
from moonfed.plan.inspection.operator_list import allowed_names
from moonfed.plan.inspection.torch_registry import require_operators
from moonfed.plan.interface import load_plan
from tests.support.future_operator import OPERATOR, archive_from_the_future

LACKS = f"which torch {torch.__version__} of this device lacks"


@pytest.mark.parametrize(
    ("called", "named"),
    [
        pytest.param((OPERATOR,), OPERATOR, id="one"),
        pytest.param(("aten::relu", "aten::_upsample_lanczos4d_aa"), "aten::_upsample_lanczos4d_aa", id="of torch's"),
        pytest.param(("b::b", "a::a", "moonfed::sgd_"), "a::a and 1 other", id="several"),
    ],
)
def test_an_operator_that_torch_lacks_is_named_with_its_version(called: tuple[str, ...], named: str) -> None:
    with pytest.raises(VersionMismatch) as rejected:
        require_operators(called)
    assert str(rejected.value) == f"this plan calls {named}, {LACKS}"


def test_what_torch_has_is_accepted() -> None:
    require_operators(("aten::relu", "aten::_fused_sgd_", "moonfed::sgd_"))


def test_a_plan_that_calls_one_tells_it_when_it_is_made_and_when_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, operators = archive_from_the_future()
    assert operators == ("aten::relu", OPERATOR)
    (tmp_path / "plan.pt").write_bytes(archive)
    monkeypatch.setattr(source, "allowed_names", lambda: allowed_names() | {OPERATOR})  # as in a newer moonfed
    with pytest.raises(VersionMismatch, match=f"this plan calls {OPERATOR}, {LACKS.replace('+', '.')}"):
        load_plan(tmp_path / "plan.pt", "cpu")
