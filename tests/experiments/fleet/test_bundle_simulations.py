"""Simulations of a bundle on a user's own samples, with dropouts, stragglers and over-selection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.coordinator.storage.opening import open_storage
from moonfed.errors import InvalidInput, RunFailed
from moonfed.experiments.attendance import attendance
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.results import SimulationResult
from moonfed.experiments.fleet.run import run_simulation
from moonfed.experiments.simulation import from_document
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.bundle_signing import SigningOptions, sign_new
from moonfed.signing.key_files import open_signer
from tests.support.compiled import device_bundle
from tests.support.refusals import refused
from tests.support.simulations import make_simulation
from tests.support.tables import write_csv

pytestmark = pytest.mark.slow

TWO = EngineSettings(workers=2)
PARTIES = 12
KEYS: dict[str, Any] = {"parties": PARTIES, "rounds": 3, "partition": "iid", "cohort": "50%"}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(1)
    labels = generator.integers(2, size=400)
    inputs = (generator.normal(size=(400, 3)) + labels[:, None]).astype(np.float32)
    path = tmp_path_factory.mktemp("samples") / "samples.npz"
    np.savez(path, inputs=inputs, labels=labels)
    return path


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    settings = {"epochs": "2", "batch_size": "8", "learning_rate": "0.05"}
    features = InputSpec(kind="features", shape=(3,))
    recipe = BundleRecipe(
        name="toy", model="mlp", input=features, target=class_target(("a", "b")), method="fedavg", settings=settings
    )
    return signed(recipe)


def signed(recipe: BundleRecipe) -> Bundle:
    return sign_new(device_bundle(recipe), open_signer([], lambda _: None), SigningOptions()).bundle


def simulate(bundle: Bundle, data: Path, output: Path, **keys: Any) -> SimulationResult:
    simulation = from_document({"name": "toy", **KEYS, **keys}, bundle=bundle)
    return run_simulation(simulation, output, data=data, bundle=bundle, engine=TWO)


def counted(result: SimulationResult) -> list[tuple[str, ...]]:
    with open_storage(result.layout.coordinator) as directory:
        records = directory.store.past_rounds("simulation", None, 50)
    return [record.counted for record in sorted(records, key=lambda record: record.id.round) if record.counted]


def model(result: SimulationResult) -> bytes:
    assert result.model
    return result.model.read_bytes()


def test_dropouts_and_stragglers_are_the_same_each_time(bundle: Bundle, samples: Path, tmp_path: Path) -> None:
    keys = {"dropouts": 0.3, "stragglers": 0.5, "over_selection": "50%"}
    first, again = (simulate(bundle, samples, tmp_path / name, **keys) for name in ("first", "again"))
    assert model(first) == model(again)
    simulation = first.simulation
    sizes = {f"party-{number}": int(size) for number, size in enumerate(first.counts.sum(axis=1), start=1)}
    settings = simulation.run_settings(bundle.manifest)
    with open_storage(first.layout.coordinator) as directory:
        records = sorted(directory.store.past_rounds("simulation", None, 50), key=lambda record: record.id.round)
    assert [record.status for record in records] == ["committed"] * 3
    for record in records:
        expected = attendance(settings, simulation.draw, record.id, sizes, (), simulation.behaviour)
        assert set(record.counted) == expected.counted
        assert len(record.counted) == 6
    assert any(record.replacements for record in records)
    assert model(simulate(bundle, samples, tmp_path / "plain")) != model(first)


def test_a_round_without_quorum_counts_its_updates_in_the_next_attempt(
    bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    keys = {"dropouts": 0.5, "cohort": "all", "quorum": "all", "rounds": 1}
    first, again = (simulate(bundle, samples, tmp_path / name, **keys) for name in ("first", "again"))
    assert model(first) == model(again)
    with open_storage(first.layout.coordinator) as directory:
        records = directory.store.past_rounds("simulation", None, 50)
    assert sorted(record.status for record in records)[0] == "abandoned"
    assert counted(first) == [tuple(sorted(f"party-{number}" for number in range(1, PARTIES + 1)))]


def test_a_run_that_cannot_succeed_fails(bundle: Bundle, samples: Path, tmp_path: Path) -> None:
    keys = {"dropouts": 0.9, "cohort": "all", "quorum": "all", "max_attempts": 2}
    with pytest.raises(RunFailed, match="required updates counted"):
        simulate(bundle, samples, tmp_path / "a", **keys)


def test_a_column_decides_who_has_which_rows(tmp_path: Path) -> None:
    from moonfed.experiments.own_data import OwnData

    rows = "".join(f"{i % 7},{'yes' if i % 2 else 'no'},{('Ulm', 'Berlin')[i < 70]}\n" for i in range(100))
    data = write_csv(tmp_path / "a.csv", f"age,left,site\n{rows}")
    described = OwnData(text=str(data), target="left").describe_table()
    settings = {"epochs": "1", "batch_size": "8"}
    table = BundleRecipe(name="t", model="mlp", input=described.input, target=described.target, settings=settings)
    result = simulate(signed(table), data, tmp_path / "out", parties=2, by="site", rounds=1, cohort="all")
    assert result.counts.sum(axis=1).tolist() == [56, 24]  # a fifth of each class is for testing
    with refused(InvalidInput, "parties", 3):
        simulate(signed(table), data, tmp_path / "three", parties=3, by="site", rounds=1, cohort="all")


def test_what_the_bundle_determines_is_not_in_the_recipe(bundle: Bundle, samples: Path, tmp_path: Path) -> None:
    for keys, message in (
        ({"method": "moon"}, "method is 'moon'"),
        ({"dataset": "digits"}, "dataset is 'digits', which the bundle determines"),
        ({"settings": {"epochs": 3}}, "settings is {'epochs': 3}, which the bundle determines"),
        ({"asynchronous": 4}, "asynchronous is 4"),
        ({"dropouts": 1}, "dropouts is 1.0"),
        ({"by": "site"}, "field 'site'"),
    ):
        with pytest.raises(InvalidInput) as caught:
            simulate(bundle, samples, tmp_path / "a", **keys)
        assert message in str(caught.value)
    assert not (tmp_path / "a").exists()


def test_defaults_are_those_of_a_run_if_there_is_a_bundle(bundle: Bundle) -> None:
    chosen = from_document({}, bundle=bundle)
    assert (chosen.run.rounds, str(chosen.run.quorum), chosen.run.trusting) == (10, "50%", False)
    recipe = chosen.recipe(bundle.manifest)
    assert recipe["clip_factor"] == 1.25
    assert (recipe["minimum_devices"], recipe["parties"], recipe["deadline"]) == (10, 10, 3600.0)
    kept = from_document({"deadline": 60, "minimum_devices": 3}, ["keep_last=5"], bundle).recipe(bundle.manifest)
    assert (kept["deadline"], kept["minimum_devices"], kept["keep_last"]) == (60.0, 3, 5)
    paper = make_simulation(dataset="digits", rounds=4)
    assert paper.recipe(bundle.manifest)["trusting"]
    assert not paper.recipe(bundle.manifest)["clip_factor"]
