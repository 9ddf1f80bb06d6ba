"""The choice between a bundle's plans, and whether this machine runs TorchScript."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.bundle.manifest import Manifest
from moonfed.errors import InvalidInput, VersionMismatch
from moonfed.plan import selection
from moonfed.plan.selection import FORMATS, choose_plan, parse_format, runnable_interfaces, torchscript_is_supported
from moonfed.version import GRAPH_PLAN_INTERFACE, PLAN_INTERFACE
from tests.support.coordinator import make_bundle
from tests.support.graph_manifest import with_graphs
from tests.support.refusals import refused

PLAIN = make_bundle().manifest
BOTH = with_graphs(PLAIN)
WITHOUT_TORCHSCRIPT = """import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.jit":
            raise ImportError(name)
sys.meta_path.insert(0, Without())
"""


@pytest.mark.parametrize(
    ("plan_format", "torchscript", "expected"),
    [
        ("auto", True, (PLAN_INTERFACE, GRAPH_PLAN_INTERFACE)),
        ("auto", False, (GRAPH_PLAN_INTERFACE,)),
        ("torchscript", False, (PLAN_INTERFACE,)),
        ("graph", True, (GRAPH_PLAN_INTERFACE,)),
    ],
)
def test_a_machine_runs_what_it_supports_and_permits(
    plan_format: str, torchscript: bool, expected: tuple[str, ...]
) -> None:
    assert runnable_interfaces(plan_format, torchscript=torchscript) == expected


def test_another_word_is_refused() -> None:
    with refused(InvalidInput, "plan-format", "onnx"):
        parse_format("onnx")


@pytest.mark.parametrize(
    ("manifest", "runnable", "required", "expected"),
    [
        (PLAIN, FORMATS["auto"], "", PLAN_INTERFACE),
        (BOTH, FORMATS["auto"], "", PLAN_INTERFACE),
        (BOTH, FORMATS["graph"], "", GRAPH_PLAN_INTERFACE),
        (BOTH, FORMATS["auto"], GRAPH_PLAN_INTERFACE, GRAPH_PLAN_INTERFACE),
    ],
)
def test_the_preferred_form_that_there_is_and_that_is_permitted_is_chosen(
    manifest: Manifest, runnable: tuple[str, ...], required: str, expected: str
) -> None:
    assert choose_plan(manifest, runnable, required) == expected


def test_what_the_bundle_lacks_is_refused_with_its_own_reason() -> None:
    untraceable = replace(PLAIN, plan=replace(PLAIN.plan, untraceable="its network branches on data"))
    for runnable, required in ((FORMATS["graph"], ""), (FORMATS["auto"], GRAPH_PLAN_INTERFACE)):
        with refused(VersionMismatch, "plan", PLAIN.name) as caught:
            choose_plan(untraceable, runnable, required)
        assert untraceable.plan.untraceable in str(caught.value)
    with refused(VersionMismatch, "interface", GRAPH_PLAN_INTERFACE):
        choose_plan(BOTH, FORMATS["torchscript"], GRAPH_PLAN_INTERFACE)
    later = replace(PLAIN, plan=replace(PLAIN.plan, interface="torchscript/9"))
    for manifest, required in ((PLAIN, "torchscript/9"), (later, "")):
        with refused(VersionMismatch, "interface", "torchscript/9"):
            choose_plan(manifest, FORMATS["auto"], required)


def test_known_torchs_are_not_tried_and_neither_is_a_python_without_torchscript(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selection, "_trial_succeeds", None)
    assert torchscript_is_supported("2.13.0+cpu")
    assert torchscript_is_supported("2.3.0a0+ebedce2.nv24.02")
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    assert not torchscript_is_supported("2.13.0+cpu")


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_a_later_torch_is_tried(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("" if there else WITHOUT_TORCHSCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert torchscript_is_supported("99.0") == there
