"""A run's settings, each declared once: for the options of `run start`, recipes, messages, the database and reports."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from moonfed.control.declarations import declared, setting
from moonfed.control.kinds import (
    Amount,
    Amounts,
    Budget,
    Choice,
    Flag,
    Labels,
    Number,
    Numbers,
    Pairs,
    Share,
    Whole,
    Words,
)
from moonfed.encodings import FLOAT32, Encodings
from moonfed.errors import Corrupt, InvalidInput
from moonfed.registry import Value
from moonfed.version import GRAPH_PLAN_INTERFACE, RELEASE

MAX_SEED = 2**64 - 1
MAX_BUFFER = 100_000
MAX_STALENESS = 64  # rounds; receipts are kept for longer than that
MAX_OVER_SELECTION = 10.0
MEAN = "mean"  # the reducer that is none
DEFENCE = ("weight_cap", "clip_norm", "clip_factor", "reducer", "reducer_settings")  # what `trusting` excludes
# What a run with privacy cannot have, and why.
NOT_PRIVATE = {
    "asynchronous": "an asynchronous round counts whoever is fast, not devices drawn at random",
    "sampling": "each device must be drawn with the same probability",
    "over_selection": "a round waits for every device that it draws",
    "weight_cap": "all devices weigh the same",
    "clip_factor": "a bound by the median of a round would reveal other devices",
    "reducer": "its noise covers the mean alone",
    "exclude_after": "which devices are clipped is not recorded",
    "trusting": "it bounds each device by clip_norm",
}

AMOUNT, FLAG, WORD = Amounts(), Flag(), Words()
SECONDS = Number("a positive, finite number of seconds", lambda value: value > 0, " s")
BOUND = Number("a positive number, or 0 for none", lambda value: value >= 0)
CAP = Number("a multiple of an equal share, from 1, or 0 for none", lambda value: value == 0 or value >= 1, "/N")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run's settings. Until a run has started, those without `trusting` or a defence have the bundle's defaults.

    With `asynchronous` rounds (FedBuff, Nguyen et al., AISTATS 2022) `cohort` is the number of devices that train
    concurrently, and `quorum` is of the buffer.
    """

    rounds: int = setting(10, Whole(1), "Rounds to commit.")
    stop_after: int = setting(
        0,
        Whole(0),
        "Finish the run early once K evaluated models in a row are no better than the best before; 0: never.",
        metavar="K",
    )
    target_metrics: Mapping[str, Value] = setting(
        {},
        Numbers(),
        "Finish the run early once a global model reaches this value of a metric, such as accuracy=0.95; repeatable, "
        "and then all at once. The task says whether its metric is better if lower; so are others whose name ends with "
        "loss, error, rmse, mae or perplexity.",
        option="--target",
        metavar="METRIC=VALUE",
    )
    cohort: Amount = setting(
        "all",
        AMOUNT,
        "Devices per round (with --asynchronous, devices that train at the same time): a number, a share such as 20% "
        "of the eligible devices online, or all.",
    )
    minimum_devices: int = setting(
        1,
        Whole(1),
        "Eligible devices that must be online before a round opens, or more if --quorum needs more; with "
        "--asynchronous K, before the first round only, and at least K.",
    )
    quorum: Amount = setting(
        "50%",
        AMOUNT,
        "Updates required per round: a number, a share of the cohort (with --asynchronous K, of K), or all.",
    )
    deadline: float = setting(
        3600.0,
        SECONDS,
        "Maximum duration of an attempt at a round in seconds; with --asynchronous, the time after which --quorum is "
        "enough.",
    )
    max_attempts: int = setting(10, Whole(1), "Failed attempts at one round, in a row, after which the run fails.")
    heartbeat_timeout: float = setting(120.0, SECONDS, "Seconds without a heartbeat after which a device is lost.")
    over_selection: float = setting(
        "0%",
        Share("the cohort", MAX_OVER_SELECTION),
        "Additional devices to select, as a share of the cohort; stragglers are dropped.",
    )
    asynchronous: int = setting(
        0,
        Whole(0, MAX_BUFFER),
        "Use asynchronous rounds (FedBuff): every K updates make a model. 0: synchronous rounds.",
        metavar="K",
    )
    max_staleness: int = setting(
        20,
        Whole(0, MAX_STALENESS),
        "With --asynchronous: maximum age, in models, of the model that an update was trained from.",
    )
    labels: Mapping[str, str] = setting(
        {},
        Labels(),
        "Select only devices with this label; repeatable.",
        option="--label",
        metavar="NAME=VALUE",
    )
    trusted_labels: bool = setting(False, FLAG, "Consider only labels that operators have set with `device label`.")
    private_classes: bool = setting(
        False,
        FLAG,
        "Do not ask devices of which classes they have samples, yes or no; a class that no device has is then not "
        "reported.",
    )
    sampling: str = setting(
        "uniform",
        Choice("uniform", "samples"),
        "Selection: uniform, or samples (in proportion to the devices' samples).",
    )
    uplink_encoding: str = setting(
        FLOAT32,
        WORD,
        "Encoding of updates: float32, bfloat16, int8, rotated4 (4 bits) or rotated1 (1 bit), optionally with +zstd.",
    )
    downlink_encoding: str = setting(
        FLOAT32, WORD, "Encoding of global models for devices; values as for --uplink-encoding, except rotated ones."
    )
    weight_cap: float = setting(
        0.0,
        CAP,
        "Maximum weight of one device, as a multiple of 1/N, N being the size of the cohort. Default, unless a clip, a "
        "reducer or --trusting is given: 1.25, with a clip factor of 1.25; SCAFFOLD has no default clip, and FedNova "
        "no default bound.",
    )
    clip_norm: float = setting(0.0, BOUND, "Maximum L2 norm of a device's change to the parameters; 0: not set.")
    clip_factor: float = setting(
        0.0, BOUND, "The same limit as a multiple of the round's median norm. Default: see --weight-cap."
    )
    exclude_after: int = setting(
        0,
        Whole(0),
        "Leave out a device once its update was reported as clipped in K rounds in a row; 0: never.",
        metavar="K",
    )
    trusting: bool = setting(False, FLAG, "Average without bounds on a device's influence.")
    reducer: str = setting(MEAN, WORD, "Aggregation of the updates.")
    reducer_settings: Mapping[str, Value] = setting(
        {}, Pairs(), "A setting of the reducer, such as byzantine=2.", option="--reducer-set", metavar="KEY=VALUE"
    )
    require_plan: str = setting(
        "",
        Choice("", "graph"),
        "Permit only this form of the plan, graph (operators as data): no device loads TorchScript. Default: each "
        "device chooses.",
        metavar="graph",
    )
    privacy: Mapping[str, Value] = setting(
        {},
        Budget("delta", "epsilon", "noise_multiplier", "sigma_b"),
        "Train with differential privacy for each device, within this budget, such as epsilon=2,delta=1e-5; with "
        "noise_multiplier=Z for noise of Z times the clip, and sigma_b=B for an adaptive clip (B: the noise on the "
        "number of clipped devices). Needs --population, --clip-norm and a number for --cohort.",
        metavar="epsilon=E,delta=D",
    )
    population: int = setting(
        0,
        Whole(0),
        "With --privacy: the devices that the fleet has. Each round draws each device with the probability "
        "cohort/population.",
        metavar="N",
    )
    seed: int = setting(0, Whole(0, MAX_SEED), "Seed of the order of samples and of augmentation.")
    keep_last: int = setting(20, Whole(1), "Number of newest global models to keep.")
    keep_every: int = setting(100, Whole(0), "Also keep every N-th round's model; 0: none.", metavar="N")

    def __post_init__(self) -> None:
        for name, item in RUN_SETTINGS.items():
            item.kind.check(name, getattr(self, name))
        if self.private or self.population:
            self._check_private()
        if self.trusted_labels and not self.labels:
            raise InvalidInput("trusted_labels is given without a label; name the labels that devices must have")
        if self.trusting and self.is_robust:
            raise InvalidInput("trusting is given together with bounds or a reducer; it must be given alone")
        if self.exclude_after and not self.clips and (self.trusting or self.is_robust):
            raise InvalidInput(f"exclude_after is {self.exclude_after}, and nothing is clipped; give clip_factor")
        if self.asynchronous:
            self._check_asynchronous()
        else:
            self._check_synchronous()

    def _check_synchronous(self) -> None:
        if self.max_staleness != RUN_SETTINGS["max_staleness"].default:
            raise InvalidInput(f"max_staleness is {self.max_staleness}; it applies to asynchronous rounds only")
        if self.cohort.count and self.quorum.count and self.quorum.count > self.cohort.count:
            raise InvalidInput(f"quorum is {self.quorum}; it must be at most the cohort, {self.cohort}")

    def _check_asynchronous(self) -> None:
        if self.quorum.count and self.quorum.count > self.asynchronous:
            raise InvalidInput(f"quorum is {self.quorum}; it must be at most the buffer, {self.asynchronous}")
        if self.over_selection:
            raise InvalidInput(f"over_selection is {self.over_selection}; with asynchronous rounds it must be 0")
        if self.sampling != "uniform":
            raise InvalidInput(
                f"sampling is {self.sampling!r}; with asynchronous rounds it must be 'uniform', since a device's pace "
                "decides how often it counts"
            )

    def _check_private(self) -> None:
        for key in ("epsilon", "delta"):
            if key not in self.privacy:
                raise InvalidInput(f"privacy has no {key}; it must have epsilon and delta", field=f"privacy.{key}")
        if self.cohort.count is None or not self.cohort.count <= self.population:
            rest = f" and population {self.population}; with privacy, both must be numbers, the cohort the smaller one"
            raise InvalidInput(field="cohort", value=str(self.cohort), rest=rest)
        delta, most = self.privacy["delta"], 1 / self.population
        if not float(delta) < most:
            raise InvalidInput(field="privacy.delta", value=delta, allowed=f"below 1/population, {most:g}")
        if not self.clip_norm:
            raise InvalidInput(field="clip_norm", value=0, allowed="above 0, since the noise is a multiple of it")
        for name in NOT_PRIVATE:
            if name in self.changed():
                value = RUN_SETTINGS[name].kind.write(getattr(self, name))
                rest = f", which privacy excludes, since {NOT_PRIVATE[name]}; leave one of them out"
                raise InvalidInput(field=name, value=value, rest=rest)

    @property
    def private(self) -> bool:
        """True if the run has differential privacy for each device."""
        return bool(self.privacy)

    @property
    def sampling_rate(self) -> float:
        """The probability with which each round of a run with privacy draws each device."""
        assert self.cohort.count  # noqa: S101 - checked when the settings were made
        return self.cohort.count / self.population

    @property
    def asks_classes(self) -> bool:
        """True if devices are asked of which classes they have samples."""
        return not (self.private_classes or self.private)

    @property
    def is_robust(self) -> bool:
        """True if anything bounds the harm that a device can do, beyond the checks of every update."""
        return any(name in DEFENCE for name in self.changed())

    @property
    def may_end_early(self) -> bool:
        """True if metrics may finish the run before its last round."""
        return bool(self.stop_after or self.target_metrics)

    @property
    def clips(self) -> bool:
        """True if changes longer than a bound are scaled down."""
        return bool(self.clip_norm or self.clip_factor)

    @property
    def required_plan(self) -> str:
        """The only plan interface that devices may use; empty: any."""
        return GRAPH_PLAN_INTERFACE if self.require_plan else ""

    @property
    def encodings(self) -> Encodings:
        """The encodings of models on the wire."""
        return Encodings.from_document({"down": self.downlink_encoding, "up": self.uplink_encoding})

    def changed(self, defaults: RunSettings | None = None) -> tuple[str, ...]:
        """Return the names of the settings that differ from the defaults."""
        return tuple(name for name in RUN_SETTINGS if getattr(self, name) != getattr(defaults or DEFAULTS, name))

    def phrases(self) -> list[str]:
        """Return the settings that differ from the defaults as people read them, such as `deadline 60 s`."""
        chosen = [(RUN_SETTINGS[name], getattr(self, name)) for name in self.changed()]
        return [f"{item.words} {item.kind.text(value)}".rstrip() for item, value in chosen]

    def to_document(self) -> dict[str, Any]:
        """Return all settings as JSON values: the document that recipes, messages, the database and reports contain."""
        return {name: item.kind.write(getattr(self, name)) for name, item in RUN_SETTINGS.items()}

    def to_json(self, only: Collection[str] | None = None) -> str:
        """Return the document as text, for a message; `only` some settings, so that the reader chooses the others."""
        document = self.to_document()
        return json.dumps(document if only is None else {name: document[name] for name in only})

    @classmethod
    def read(cls, document: Mapping[str, object]) -> RunSettings:
        """Read a document; missing keys have their defaults. InvalidInput names a wrong key or value."""
        for key, value in document.items():
            if key not in RUN_SETTINGS:
                keys = ", ".join(sorted(RUN_SETTINGS))
                raise InvalidInput(
                    f"{key} (= {value!r}) is not a key of a run's recipe in moonfed {RELEASE}; the keys are {keys}"
                )
        return cls(**{key: RUN_SETTINGS[key].kind.read(key, value) for key, value in document.items()})

    @classmethod
    def from_json(cls, text: str) -> RunSettings:
        """Read a request's document, whose author must know every key."""
        return cls.read(_object(text))

    @classmethod
    def received(cls, text: str) -> RunSettings:
        """Read a reply's document, in which a later release may have keys that this one does not know."""
        try:
            return cls.read({key: value for key, value in _object(text).items() if key in RUN_SETTINGS})
        except InvalidInput as error:
            raise Corrupt(f"the coordinator's reply is malformed: {error}") from error


RUN_SETTINGS = declared(RunSettings)  # by name
DEFAULTS = RunSettings()


def require_setting(name: str, value: object) -> None:
    """Raise InvalidInput for a value that this setting cannot have."""
    RUN_SETTINGS[name].kind.check(name, value)


def _object(text: str) -> dict[str, object]:
    """Return a document's keys and values; all settings of an empty one have their defaults."""
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"settings is {text[:40]!r}; it must be JSON") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"settings is {text[:40]!r}; it must be a JSON object")
    return document
