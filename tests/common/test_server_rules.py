"""Server rules are read from names and settings, and reject invalid ones in one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonfed.errors import InvalidInput
from moonfed.registry import selection_of
from moonfed.server_rules import SERVER_RULES, read_server_rule
from moonfed.server_rules.fedadagrad import FedAdagrad
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.mean import MeanRule


def test_a_rule_without_a_name_is_the_mean_by_samples() -> None:
    assert read_server_rule({}) == MeanRule(weighting="samples")


@pytest.mark.parametrize("name", sorted(SERVER_RULES))
def test_every_rule_survives_json(name: str) -> None:
    rule = SERVER_RULES[name](weighting="uniform")
    assert read_server_rule(json.loads(json.dumps(selection_of(rule).to_document()))) == rule


def test_text_is_read_as_a_command_line_gives_it() -> None:
    rule = read_server_rule({"name": "fedavgm", "server_momentum": "0.7", "damped": "true"})
    assert rule == FedAvgM(server_momentum=0.7, damped=True)


def test_adagrad_has_no_first_moment_by_default() -> None:
    assert FedAdagrad().beta1 == 0.0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "median"}, f"server_rule is 'median'; it must be one of {', '.join(SERVER_RULES)}$"),
        ({"name": "mean", "beta1": 1}, r"server_rule setting 'beta1' \(= 1\) is unknown; mean has weighting"),
        ({"weighting": "loss"}, "weighting is 'loss'"),
        ({"name": "fedavgm", "server_momentum": 1.0}, "server_momentum is 1.0"),
        ({"name": "fedavgm", "server_momentum": "much"}, "server_momentum is 'much'"),
        ({"name": "fedavgm", "server_momentum": True}, "server_momentum is True"),
        ({"name": "fedavgm", "damped": 2}, "damped is 2"),
        ({"name": "fedadam", "server_learning_rate": 0}, "server_learning_rate is 0.0"),
        ({"name": "fedyogi", "adaptivity": float("nan")}, "adaptivity is nan"),
        ({"name": "fedadam", "beta2": -0.1}, "beta2 is -0.1"),
    ],
)
def test_an_invalid_rule_is_rejected(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_server_rule(document)
