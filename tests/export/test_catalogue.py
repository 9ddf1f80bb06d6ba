"""The catalogue of methods and server rules."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from moonfed.cli.program import app
from moonfed.export.bundle_recipe import read_settings
from moonfed.export.methods import METHODS
from moonfed.server_rules import SERVER_RULES, read_server_rule

pytestmark = pytest.mark.slow


def test_methods_lists_every_method_and_rule_with_all_settings() -> None:
    runner = CliRunner()
    document = json.loads(runner.invoke(app, ["methods", "--json"], catch_exceptions=False).output)
    assert list(document["methods"]) == list(METHODS)
    assert list(document["server_rules"]) == list(SERVER_RULES)
    for name, entry in document["methods"].items():
        chosen = read_settings(name, entry["settings"])  # every setting is known, and its default is what is listed
        assert chosen == read_settings(name, {})
    assert document["methods"]["moon"]["settings"] == {
        "mu": 5.0,
        "tau": 0.5,
        "previous_models": 1,
        "learning_rate": 0.01,
        "momentum": 0.9,
        "weight_decay": 1e-5,
        "gradient_clip_value": 0.0,
        "gradient_clip_norm": 0.0,
        "step_schedule": "constant",
        "personal_epochs": 0,
        "epochs": 10,
        "batch_size": 64,
        "views": 0,
    }
    assert [name for name, entry in document["methods"].items() if not entry["federated"]] == ["solo"]
    for name, entry in document["optimisers"].items():
        assert read_settings("moon", entry["settings"], name) == read_settings("moon", {}, name)
    for name, entry in document["server_rules"].items():
        assert read_server_rule({"name": name, **entry["settings"]}) == SERVER_RULES[name]()
    shown = runner.invoke(app, ["methods"], catch_exceptions=False).output
    assert all(f"  {name}: " in shown for name in (*METHODS, *SERVER_RULES))
    assert "    mu=5  tau=0.5  previous_models=1\n" in shown
