"""Recipes: their meaning; a wrong one is rejected before any work, naming the key."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from moonfed.control.recipe import FLEET_KEYS
from moonfed.coordinator.aggregation.robust.config import build_reducer
from moonfed.coordinator.aggregation.robust.reducers.multi_krum import MultiKrum
from moonfed.errors import InvalidInput
from moonfed.experiments.simulation import TABLES, Simulation, from_document, read_simulation
from moonfed.export.methods import METHODS
from moonfed.registry import selection_of
from tests.support.simulations import make_simulation

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_recipe_is_read_with_its_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'dataset = "digits"\nmethod = "moon"\nserver_rule = "fedavgm"\n'
        "[settings]\nmu = 5\n[server]\nserver_momentum = 0.9\n"
    )
    changes = ["rounds=3", "mu=1", "settings.tau=0.1", "server.server_momentum=0.7", "beta=2", "augmentation=false"]
    simulation = read_simulation(file, changes)
    assert simulation.name == "mine"
    assert (simulation.run.rounds, simulation.beta, simulation.augmentation) == (3, 2.0, False)
    assert simulation.method_settings.hyperparameters["mu"] == 1.0
    assert simulation.method_settings.hyperparameters["tau"] == 0.1
    assert selection_of(simulation.rule).settings["server_momentum"] == 0.7


def test_a_recipe_has_robust_settings_and_its_reducers_own() -> None:
    document = {"dataset": "digits", "clip_factor": 2, "reducer": "multi_krum"}
    found = from_document(document, ["reducer_settings.byzantine=1"]).run
    assert (found.clip_factor, found.weight_cap, found.trusting) == (2.0, 0.0, False)
    assert build_reducer(found) == MultiKrum(byzantine=1)


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.toml")), ids=lambda file: file.stem)
def test_every_example_is_a_valid_recipe(file: Path) -> None:
    assert read_simulation(file).run.rounds >= 1


def test_every_key_of_a_recipe_is_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", (EXAMPLES.parent / "docs" / "simulation.md").read_text()))
    assert {item.name for item in fields(Simulation)} - documented == {*TABLES, "bundle", "run"}
    assert not {*FLEET_KEYS} - documented


def test_there_are_examples() -> None:
    assert len(list(EXAMPLES.glob("*.toml"))) >= 3


def test_the_defaults_are_the_papers() -> None:
    simulation = make_simulation(dataset="cifar10", method="moon")
    settings = simulation.method_settings
    assert (simulation.run.rounds, simulation.parties, simulation.beta, simulation.head) == (100, 10, 0.5, 256)
    assert (settings.training.epochs, settings.training.batch_size) == (10, 64)
    assert settings.hyperparameters["learning_rate"] == 0.01
    assert simulation.augmentation_name == "crop-flip"
    assert make_simulation(dataset="cifar10", method="solo").method_settings.training.epochs == 300


@pytest.mark.parametrize(
    ("document", "head"),
    [
        ({"method": "fedavg"}, 0),
        ({"method": "pooled"}, 0),
        ({"method": "fedproc"}, 256),
        ({"method": "scaffold", "projection": 64}, 64),
        ({"method": "moon", "projection": 0}, 0),
    ],
    ids=lambda value: None if isinstance(value, int) else "-".join(map(str, value.values())),
)
def test_a_recipe_records_the_head_that_its_method_needs_or_that_it_states(document: dict[str, Any], head: int) -> None:
    simulation = from_document({"dataset": "digits", **document})
    assert simulation.to_document()["projection"] == head
    assert simulation.digest == from_document({"dataset": "digits", **document, "projection": head}).digest


@pytest.mark.parametrize("method", METHODS)
def test_the_comparison_on_cifar_trains_one_network_with_every_method(method: str) -> None:
    changes = ["rounds=", f"method={method}"] if method == "solo" else [f"method={method}"]
    assert read_simulation(EXAMPLES / "cifar10.toml", changes).head == 256


def test_the_same_recipe_has_the_same_digest_however_it_is_written() -> None:
    plain = make_simulation(dataset="digits", method="moon", settings={"mu": 5, "epochs": 2})
    assert plain.digest == make_simulation(dataset="digits", method="moon", settings={"epochs": "2", "mu": 5.0}).digest
    assert (
        plain.digest
        == make_simulation(name="x", dataset="digits", method="moon", settings={"mu": 5, "epochs": 2}).digest
    )
    assert plain.digest != make_simulation(dataset="digits", method="moon", settings={"mu": 4, "epochs": 2}).digest
    assert (
        plain.digest != make_simulation(dataset="digits", method="moon", settings={"mu": 5, "epochs": 2}, seed=1).digest
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"dataset": "digits", "target": "churn"}, "target is 'churn', which does not apply to data set 'digits'"),
        ({"dataset": "imagenet"}, "dataset is 'imagenet'; it must be one of digits"),
        ({"epocs": 3}, "epocs (= 3) is not a key of a recipe; the keys are asynchronous, augmentation, beta"),
        ({"method": "moo"}, "method is 'moo'; it must be one of"),
        ({"settings": {"mu": -1}, "method": "moon"}, "mu is -1"),
        ({"settings": {"nu": 1}}, "setting 'nu'"),
        ({"settings": {"epochs": "many"}}, "epochs is 'many'"),
        ({"settings": 3}, "settings is 3; it must be a table"),
        ({"settings": {"mu": [1]}}, "settings.mu is [1]; it must be a number or text"),
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": 1.5}, "rounds is 1.5"),
        ({"rounds": "all"}, "rounds is 'all'"),
        ({"rounds": True}, "rounds is True"),
        ({"parties": 0}, "parties is 0"),
        ({"projection": -2}, "projection is -2"),
        ({"partition": "sorted"}, "partition is 'sorted'"),
        ({"beta": 0}, "beta is 0"),
        ({"cohort": "11", "parties": 10}, "cohort is 11; it must be at most the number of parties, 10"),
        ({"cohort": "some"}, "cohort is 'some'; it must be like 10, 20% or all"),
        ({"sampling": "size"}, "sampling is 'size'; it must be 'uniform' or 'samples'"),
        ({"sampling": "samples"}, "counts a party's size twice"),
        ({"uplink_encoding": "int4"}, "uplink_encoding is 'int4'; it must be one of float32, float32+zstd"),
        ({"downlink_encoding": "rotated1"}, "downlink_encoding is 'rotated1'"),
        ({"server_rule": "median"}, "server_rule is 'median'"),
        ({"reducer": "krum"}, "reducer is 'krum'; it must be one of mean, median"),
        ({"reducer": "multi_krum"}, "byzantine is 0"),
        (
            {"reducer": "median", "reducer_settings": {"shares": 1}},
            "reducer setting 'shares' (= 1) is unknown; median has byzantine",
        ),
        ({"clip_norm": "far"}, "clip_norm is 'far'; it must be a number"),
        ({"method": "solo", "clip_norm": 1}, "clip_norm is 1.0; with method 'solo'"),
        ({"server_rule": "fedavgm", "server": {"server_momentum": 1.5}}, "server_momentum is 1.5"),
        ({"server": {"server_momentum": 0.5}}, "server_rule setting 'server_momentum'"),
        ({"stragglers": 1.1}, "stragglers is 1.1; it must be a share from 0 to 1"),
        ({"train_samples": -1}, "train_samples is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"augmentation": "yes"}, "augmentation is 'yes'; it must be true or false"),
        ({"model": True}, "model is True; it must be text"),
        ({"settings": {"views": 3}}, "views is 3; it must be 0, since nothing is augmented: data set 'digits' has no"),
        (
            {"dataset": "cifar10", "augmentation": False, "settings": {"views": 2}},
            "views is 2; it must be 0, since nothing is augmented: augmentation is false",
        ),
        ({"method": "solo", "server_rule": "fedavgm"}, "server_rule is 'fedavgm'; with method 'solo'"),
        ({"method": "pooled", "stragglers": 0.5}, "stragglers is 0.5; with method 'pooled'"),
        ({"method": "solo", "cohort": "20%"}, "cohort is '20%'; with method 'solo'"),
        ({"name": ""}, "name is ''"),
    ],
)
def test_a_wrong_recipe_is_rejected_by_the_name_of_its_key(document: dict[str, Any], message: str) -> None:
    complete = document if document in ({}, {"dataset": "imagenet"}) else {"dataset": "digits", **document}
    with pytest.raises(InvalidInput, match=re.escape(message)):
        from_document(complete)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("rounds", "set is 'rounds'; it must be KEY=VALUE"),
        ("=3", "set is '=3'; it must be KEY=VALUE"),
        ("tau=", "set is 'tau=', which removes a key, but the recipe does not have 'tau'"),
        ("serve.mu=3", "set names 'serve.mu'; before the dot it must be settings, server"),
        ("round=3", "setting 'round' (= '3') is unknown"),
    ],
)
def test_a_wrong_change_is_rejected(change: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        from_document({"dataset": "digits"}, [change])


def test_a_change_without_a_value_takes_the_key_out() -> None:
    document = {"dataset": "digits", "method": "moon", "rounds": 3, "settings": {"mu": 7, "epochs": 2}}
    simulation = from_document(document, ["method=scaffold", "mu=", "rounds="])
    assert (simulation.method, simulation.run.rounds, simulation.settings) == ("scaffold", 100, {"epochs": 2})
    assert document["settings"] == {"mu": 7, "epochs": 2}


def test_a_file_that_is_not_toml_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("dataset: digits")
    with pytest.raises(InvalidInput, match="is not TOML"):
        read_simulation(tmp_path / "x.toml")
