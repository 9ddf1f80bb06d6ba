"""A simulation's recipe: the data, their split, the method, the rounds; all of it checked before any work."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import CLASSIFICATION, Manifest
from moonfed.control.kinds import MAX_NUMBER, read_table
from moonfed.control.recipe import FLEET_KEYS, read_recipe_file
from moonfed.control.run_settings import DEFAULTS, DEFENCE, MAX_SEED, RUN_SETTINGS, RunSettings
from moonfed.coordinator.aggregation.compatibility import with_default_bounds
from moonfed.coordinator.aggregation.robust.config import build_reducer
from moonfed.coordinator.draw import Draw
from moonfed.encodings import require_usable
from moonfed.errors import InvalidInput
from moonfed.experiments.attendance import Behaviour
from moonfed.experiments.datasets import LOADERS, TASKS_OF, augmentation
from moonfed.experiments.own_data import require_none
from moonfed.experiments.partition import Kind, PartitionSettings
from moonfed.export.bundle_recipe import MethodSettings, default_projection, read_settings
from moonfed.export.methods import METHODS
from moonfed.registry import Value, read_value
from moonfed.server_rules import read_server_rule
from moonfed.server_rules.server_rule import ServerRule
from moonfed.validate import require_one_of, require_whole

SOLO = "solo"  # every party trains alone
POOLED = "pooled"  # all samples in one place, to compare with; no device's method
ALONE = (SOLO, POOLED)  # the methods that exchange nothing
OWN_SEED = -1  # partition_seed: the simulation's
OF_METHOD = -1  # projection: a head if the method compares representations
TABLES = ("settings", "server")
RUN_TABLES = tuple(key for key, value in DEFAULTS.to_document().items() if isinstance(value, dict))
PARTIES = 10
OWN_DATA = ("target", "columns", "input", "classes", "values", "horizon", "vocabulary")  # see own_data.py
OF_BUNDLE = (  # a bundle has them
    "task", "model", "projection", "method", "settings", "optimiser", "augmentation", "server_rule", "server",
)  # fmt: skip
ALWAYS = ("rounds", "cohort", "sampling", "seed")  # settings of the run that a recipe is known by
LEFT_OUT: Mapping[str, Any] = {"task": "", "dropouts": 0.0, "by": "", "bundle": ""}  # of a recipe, with these values
OF_PAPERS: Mapping[str, Any] = {"rounds": 100, "quorum": "all"}  # defaults without a bundle
FOREVER = 10 * 365 * 86400.0  # seconds: a party is never too late


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One federated training over virtual parties. Defaults are MOON's on CIFAR-10 (Li et al. 2021, section 4.1).

    `task`: empty for the data set's own, or classification. `settings`: the task's, the method's, the optimiser's,
    epochs, batch_size and views; `server`: the server rule's. `run`: the settings of the run, of which some, such as
    `deadline`, have no effect on virtual parties; without a bundle, its defaults are the papers': 100 rounds of all
    updates, without bounds. Its `seed` decides subset, partition, initial weights, cohorts and training;
    `partition_seed`, if given, the partition. `stragglers`: the share of each round's cohort that does only a random
    part of its steps (FedProx). `train_samples` and `test_samples`: size of a stratified subset, 0 for all. `dropouts`:
    the probability that a party that is asked to train drops out. With a `bundle`, named by its manifest's sha256,
    `method` is the bundle's, and the other keys in OF_BUNDLE have no meaning.
    """

    name: str = "simulation"
    dataset: str = ""  # empty: own samples, which are named elsewhere and described by OWN_DATA
    target: str = ""
    columns: str = ""
    input: str = ""
    classes: str = ""
    values: str = ""
    horizon: str = ""
    vocabulary: str = ""
    task: str = ""
    model: str = "cnn"
    projection: int = OF_METHOD  # width of the projection head's output; 0: no head
    method: str = "fedavg"
    settings: Mapping[str, Value] = field(default_factory=dict)
    optimiser: str = "sgd"
    augmentation: bool = True  # the data set's own, where MOON's authors have one
    run: RunSettings
    parties: int = PARTIES
    partition: Kind = "dirichlet"
    beta: float = 0.5
    partition_seed: int = OWN_SEED
    server_rule: str = "mean"
    server: Mapping[str, Value] = field(default_factory=dict)
    stragglers: float = 0.0
    dropouts: float = 0.0
    by: str = ""  # column of a table: each of its values is a party
    bundle: str = ""
    train_samples: int = 0
    test_samples: int = 0

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise InvalidInput(f"name is {self.name!r}; it must be printable text")
        if self.dataset:
            require_one_of("dataset", self.dataset, tuple(LOADERS))
            require_none({key: getattr(self, key) for key in OWN_DATA}, f"data set {self.dataset!r}")
        require_whole("parties", self.parties, 1, MAX_NUMBER)
        require_whole("train_samples", self.train_samples, 0)
        require_whole("test_samples", self.test_samples, 0)
        if self.partition_seed != OWN_SEED:
            require_whole("partition_seed", self.partition_seed, 0, MAX_SEED)
        if not 0 <= self.stragglers <= 1:
            raise InvalidInput(f"stragglers is {self.stragglers!r}; it must be a share from 0 to 1")
        if not 0 <= self.dropouts < 1:
            raise InvalidInput(f"dropouts is {self.dropouts!r}; it must be a probability from 0, below 1")
        if self.by and self.dataset:
            raise InvalidInput(f"by is {self.by!r}, which does not apply to data set {self.dataset!r}; leave it out")
        require_usable(self.run.downlink_encoding, self.run.uplink_encoding)
        _ = self.partition_settings, build_reducer(self.run)  # each checks its part
        self._check_run()
        if not self.bundle:
            self._check_training()

    def _check_training(self) -> None:
        """Check what a bundle would contain."""
        require_one_of("method", self.method, (*METHODS, POOLED))
        if self.task_name != (own := TASKS_OF.get(self.dataset, CLASSIFICATION.name)) and self.dataset:
            raise InvalidInput(
                f"task is {self.task!r}; with data set {self.dataset!r} it must be {own!r}", field="task"
            )
        if self.projection != OF_METHOD:
            require_whole("projection", self.projection, 0)
        if self.method_settings.training.views and self.augmentation_name == "none":
            raise InvalidInput(
                f"views is {self.method_settings.training.views}; it must be 0, since nothing is augmented: "
                f"{self._why_plain()}"
            )
        self._check_server(self.rule)

    def _why_plain(self) -> str:
        if not self.augmentation:
            return "augmentation is false"
        return f"data set {self.dataset!r} has no augmentation of its own"

    def _check_run(self) -> None:
        if self.run.cohort.count is not None and self.run.cohort.count > self.parties and not self.by:
            raise InvalidInput(f"cohort is {self.run.cohort}; it must be at most the number of parties, {self.parties}")
        if self.run.asynchronous:
            raise InvalidInput(
                f"asynchronous is {self.run.asynchronous}; virtual parties have no pace, so rounds must be "
                "synchronous: leave it out"
            )

    def _check_server(self, rule: ServerRule) -> None:
        if self.run.sampling == "samples" and rule.weighting == "samples":
            raise InvalidInput(
                "sampling is 'samples' and weighting is 'samples', which counts a party's size twice; "
                "one of them must be 'uniform' (server.weighting for the latter)"
            )
        if self.method not in ALONE:
            return
        exchanged = set(self.run.changed(self._run_defaults)) - {"rounds", "seed"}
        document = {**self.to_document(), **self.run.to_document()}
        own = (("server_rule", "mean"), ("stragglers", 0.0), ("dropouts", 0.0))
        for key in [key for key, allowed in own if getattr(self, key) != allowed] + sorted(exchanged):
            raise InvalidInput(
                f"{key} is {document[key]!r}; with method {self.method!r}, which exchanges nothing, leave it out"
            )

    @property
    def method_settings(self) -> MethodSettings:
        """The method with everything that `settings` can change."""
        return read_settings(self.device_method, self.settings, self.optimiser, self.task_name)

    @property
    def task_name(self) -> str:
        """The task, by its name in `moonfed.tasks`; of a simulation without a bundle."""
        return self.task or TASKS_OF.get(self.dataset, CLASSIFICATION.name)

    @property
    def device_method(self) -> str:
        """The method that devices train with; FedAvg for pooled samples, which are one device's."""
        return "fedavg" if self.method == POOLED else self.method

    @property
    def trained_parties(self) -> int:
        """The number of parties that train: one, if all samples are pooled."""
        return 1 if self.method == POOLED else self.parties

    @property
    def partition_settings(self) -> PartitionSettings:
        """The split of the training samples; pooled samples are one part."""
        if self.method == POOLED:
            return PartitionSettings(kind="iid", devices=1)
        seed = self.run.seed if self.partition_seed == OWN_SEED else self.partition_seed
        return PartitionSettings(kind=self.partition, devices=self.parties, beta=self.beta, seed=seed)

    @property
    def rule(self) -> ServerRule:
        """The server rule with its settings."""
        return read_server_rule({"name": self.server_rule, **self.server})

    @property
    def _run_defaults(self) -> RunSettings:
        """The settings of a run that names none."""
        return RunSettings.read(
            run_defaults(
                bundle=bool(self.bundle),
                parties=self.trained_parties,
                defended=self.run.is_robust,
                private=self.run.private,
            )
        )

    def with_parties(self, parties: int) -> Simulation:
        """Return the same simulation of another number of parties, which a round waits for as it did."""
        run = self.run
        if run.minimum_devices == self.trained_parties:
            run = replace(run, minimum_devices=1 if self.method == POOLED else parties)
        return replace(self, parties=parties, run=run)

    def run_settings(self, manifest: Manifest) -> RunSettings:
        """Return the settings of the simulated run, whose parties are all online, never late, and honest."""
        return replace(
            with_default_bounds(self.run, manifest),
            minimum_devices=self.trained_parties,
            deadline=FOREVER,
            heartbeat_timeout=FOREVER,
            labels={},
            trusted_labels=False,
            exclude_after=0,
            keep_last=MAX_NUMBER,  # scoring may be far behind
            keep_every=1,
        )

    @property
    def behaviour(self) -> Behaviour:
        """The parties' deviations from what they are asked."""
        return Behaviour(stragglers=self.stragglers, dropouts=self.dropouts, seed=self.run.seed)

    @property
    def draw(self) -> Draw:
        """The draw of the simulated run; its secret follows from the seed, so that a simulation repeats."""
        return Draw(hashlib.sha256(f"moonfed simulation/{self.run.seed}".encode()).digest())

    def recipe(self, manifest: Manifest) -> dict[str, Any]:
        """Return the recipe of a run on devices, with what a simulation of its bundle needs besides."""
        fleet = {key: value for key, value in self.to_document().items() if key in FLEET_KEYS}
        return {**fleet, **with_default_bounds(self.run, manifest).to_document()}

    @property
    def head(self) -> int:
        """The width of the projection head's output; 0: no head."""
        if self.projection != OF_METHOD:
            return self.projection
        return default_projection(self.model, self.device_method) or 0

    @property
    def augmentation_name(self) -> str:
        """The plan's augmentation, by `moonfed.export.augmentation`'s names."""
        return augmentation(self.dataset) if self.augmentation else "none"

    @property
    def names(self) -> list[str]:
        """The parties' names, in order of their parts of the data."""
        return [f"party-{number}" for number in range(1, self.trained_parties + 1)]

    def to_document(self) -> dict[str, Any]:
        """Return the recipe as JSON values, with numeric text converted to numbers."""
        own = {key: getattr(self, key) for key in _FIELDS}
        run = self.run.to_document()
        chosen = {key: run[key] for key in RUN_SETTINGS if key in (*ALWAYS, *self.run.changed(self._run_defaults))}
        document = {**own, **chosen} | ({} if self.bundle else {"projection": self.head})
        if self.partition_seed == OWN_SEED:
            del document["partition_seed"]
        document |= {table: {key: _plain(value) for key, value in document[table].items()} for table in TABLES}
        for key in ("dataset", *OWN_DATA):
            if not document[key]:
                del document[key]
        for key, default in LEFT_OUT.items():
            if document[key] == default:
                del document[key]
        if self.bundle:
            document = {key: value for key, value in document.items() if key == "method" or key not in OF_BUNDLE}
        return document | {"beta": float(self.beta), "stragglers": float(self.stragglers)}

    @property
    def digest(self) -> str:
        """The simulation's digest: recipes with the same one differ at most in the name."""
        document = self.to_document()
        del document["name"]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


_FIELDS = {item.name: str(item.type) for item in fields(Simulation) if item.name != "run"}
_KEYS = {key: kind for key, kind in _FIELDS.items() if key != "bundle"}
_NUMBERS = {"bool": bool, "int": int, "float": float}


def run_defaults(*, bundle: bool, parties: int, defended: bool, private: bool) -> dict[str, Any]:
    """Return the settings that a simulated run has unless its recipe names others, as far as they are its own.

    A round opens once all parties are online. Runs of bundles have the bounds of `run start`, others the papers': none.
    With privacy, the number of parties that a round draws varies, and the quorum with it.
    """
    of_papers = {} if bundle else {**OF_PAPERS, "trusting": not defended}
    if private:
        of_papers.pop("quorum", None)
    return {"minimum_devices": parties, **of_papers}


def read_simulation(path: Path, changes: Sequence[str] = (), bundle: Bundle | None = None) -> Simulation:
    """Read a recipe from TOML and apply `KEY=VALUE` changes; InvalidInput names a wrong key."""
    return from_document({"name": path.stem} | read_recipe_file(path), changes, bundle)


def from_document(document: Mapping[str, Any], changes: Sequence[str] = (), bundle: Bundle | None = None) -> Simulation:
    """Make a simulation from a recipe's keys and tables; `changes` are `KEY=VALUE`, at any level.

    A key that is not a recipe's belongs to the method's settings; `server.KEY` belongs to the server rule's. Without a
    VALUE the key is removed, so that its default holds. With a `bundle`, defaults are those of `run start`.
    """
    values = dict(document)
    for table in (*TABLES, *RUN_TABLES):
        values[table] = read_table(table, values.get(table, {}))
    for change in changes:
        _apply(change, values)
    if bundle:
        _require_no_training(values)
        values |= {"method": bundle.manifest.method}
    chosen = {key: values.pop(key) for key in RUN_SETTINGS if key in values}
    for key, value in values.items():
        if key not in _KEYS:
            known = ", ".join(sorted((*_KEYS, *RUN_SETTINGS)))
            raise InvalidInput(f"{key} (= {value!r}) is not a key of a recipe; the keys are {known}")
        if key not in TABLES:
            values[key] = _typed(key, value, _KEYS[key])
    parties = 1 if values.get("method") == POOLED else max(1, values.get("parties", PARTIES))
    defended = any(chosen.get(key) for key in DEFENCE)
    private = bool(chosen.get("privacy"))
    defaults = run_defaults(bundle=bool(bundle), parties=parties, defended=defended, private=private)
    run = RunSettings.read({**defaults, **chosen})
    return Simulation(**values, bundle=bundle.ref.sha256 if bundle else "", run=run)


def _apply(change: str, values: dict[str, Any]) -> None:
    key, separator, text = change.partition("=")
    if not separator or not key.strip():
        raise InvalidInput(f"set is {change!r}; it must be KEY=VALUE, such as rounds=3, or KEY= to remove a key")
    table, key = _place(key.strip())
    target = values[table] if table else values
    if text.strip():
        target[key] = text.strip()
    elif key in target:
        del target[key]
    else:
        raise InvalidInput(f"set is {change!r}, which removes a key, but the recipe does not have {key!r}")


def _require_no_training(values: Mapping[str, Any]) -> None:
    for key in ("dataset", *(key for key in OWN_DATA if key != "target"), *OF_BUNDLE):
        if values.get(key):
            raise InvalidInput(f"{key} is {values[key]!r}, which the bundle determines; leave it out")


def _place(key: str) -> tuple[str, str]:
    """Return the table that a changed key belongs to, none for the recipe's own, and its name there."""
    table, separator, name = key.partition(".")
    if separator:
        tables = (*TABLES, *RUN_TABLES)
        if table not in tables:
            raise InvalidInput(f"set names {key!r}; before the dot it must be {', '.join(tables[:-1])} or {tables[-1]}")
        return table, name
    return ("", key) if (key in _KEYS or key in RUN_SETTINGS) and key not in TABLES else ("settings", key)


def _typed(key: str, value: object, kind: str) -> object:
    """Convert a top-level value to its field's type; text on a command line becomes a number."""
    if kind in _NUMBERS:
        return read_value(key, value, _NUMBERS[kind])
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidInput(f"{key} is {value!r}; it must be text")
    return str(value)


def _plain(value: Value) -> Value:
    """Convert numeric text to a number, so that 5, 5.0 and "5" are the same setting."""
    try:
        return value if isinstance(value, bool) else float(value)
    except ValueError:
        return value
