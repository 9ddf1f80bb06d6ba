"""The page of layers says what plans support, and every operator on the reviewed list is in a plan."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from moonfed.errors import MoonfedError
from moonfed.export.alternatives import ALTERNATIVES
from moonfed.export.torchvision_import import import_torchvision
from moonfed.plan.inspection.operator_list import GENERATED, REVIEWED, listed
from moonfed.plan.inspection.operators import compile_archive, operators
from tests.support.reviewed_calls import Calling
from tools.layers.cases import BASES, CASES, LOSSES, WIDTH, layers
from tools.layers.page import PAGE, classifier_row, page, read_classifiers, read_verdicts
from tools.layers.trials import (
    Branches,
    Losses,
    Verdict,
    compiled,
    network_of,
    trained,
    try_classifier,
    try_loss,
    verdict_of,
    with_objective,
)

EVERY = {**{name: case for cases in CASES.values() for name, case in cases.items()}, **LOSSES}
VERDICTS = read_verdicts(PAGE.read_text())
OUTSIDE = "cannot be exported to ONNX"  # although plans support it
COMPILED = [name for name in EVERY if VERDICTS[name].supported or VERDICTS[name].reason == OUTSIDE]

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of layers that are lazy, old, new or slow


@pytest.fixture(scope="module")
def used() -> set[str]:
    """The operators of a plan with every layer and loss that plans support, and of one with calls of others."""
    found: set[str] = set()
    branches = Branches({name: EVERY[name] for name in COMPILED if name not in LOSSES})
    losses = Losses({name: EVERY[name] for name in COMPILED if name in LOSSES})
    for encoder, objective in ((branches, losses), (nn.Linear(WIDTH, WIDTH), Calling())):
        network = network_of(encoder)
        content = compiled(network, with_objective(objective), "tried")
        trained(content, network)
        found |= operators(compile_archive(content)[0])
    return found


def test_every_layer_of_torch_is_on_the_page() -> None:
    assert set(EVERY) | BASES == layers(), "add new layers to tools/layers/cases.py, and run `make layers`"
    assert set(VERDICTS) == set(EVERY), "run `make layers`"


def test_supported_layers_are_trained_in_a_plan(used: set[str]) -> None:
    assert len(COMPILED) > 120
    assert {"aten::gru.input", "aten::conv_transpose3d.input", "aten::mish", "aten::poisson_nll_loss"} <= used


@pytest.mark.parametrize("name", [name for name in EVERY if name not in COMPILED])
def test_refused_layers_are_refused_for_the_operators_on_the_page(name: str) -> None:
    if name in LOSSES:
        verdict = try_loss(name, EVERY[name])
    else:
        try:
            compiled(network_of(Branches({name: EVERY[name]})), with_objective(Losses({})), name)
            verdict = Verdict()
        except (MoonfedError, RuntimeError) as error:
            verdict = verdict_of(error)
    assert verdict == VERDICTS[name]
    assert name in ALTERNATIVES


def test_every_operator_on_the_reviewed_list_is_in_a_plan(used: set[str]) -> None:
    found = used | set(listed(GENERATED))
    names = {name.partition(".")[0] for name in found}
    unused = [each for each in listed(REVIEWED) if each not in found and each.removesuffix(".*") not in names]
    assert unused == [], "remove them from the list, or call them in tests/support/reviewed_calls.py"


def test_alternatives_are_supported_and_belong_to_refused_layers() -> None:
    refused = {name for name in EVERY if not VERDICTS[name].supported}
    assert {name for name in ALTERNATIVES if not name.startswith("_")} == refused
    for text in ALTERNATIVES.values():
        for word in text.replace(",", " ").split():
            assert not word.startswith("nn.") or VERDICTS[word.removeprefix("nn.")].supported, word


@pytest.mark.parametrize("name", ["googlenet", "squeezenet1_1"])
def test_classifiers_are_compiled_as_the_page_says(name: str) -> None:
    side, millions, verdict = try_classifier(name, bundle=False)
    row, written = classifier_row(name, side, millions, verdict, bundle=False), read_classifiers(PAGE.read_text())[name]
    assert (row.millions, row.images, row.supported) == (written.millions, written.images, written.supported)


def test_every_classifier_is_on_the_page() -> None:
    models = import_torchvision().models
    assert sorted(read_classifiers(PAGE.read_text())) == sorted(models.list_models(module=models))


def test_a_page_says_what_was_read_from_it() -> None:
    text = PAGE.read_text()
    version = f"torch {torch.__version__.partition('+')[0]}"
    assert version in text, "run `make layers`"
    assert page(VERDICTS, read_classifiers(text)) == text
