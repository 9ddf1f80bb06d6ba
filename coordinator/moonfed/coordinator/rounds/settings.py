"""Settings of a run: how many rounds, how many devices, and how long to wait for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from moonfed.coordinator.aggregation.robust.config import RobustSettings
from moonfed.coordinator.rounds.fedbuff_settings import FedBuffSettings
from moonfed.coordinator.rounds.retention import Retention
from moonfed.encodings import Encodings
from moonfed.errors import InvalidInput
from moonfed.formatting import percent_text, read_percent
from moonfed.labels import check_labels
from moonfed.validate import require_whole

Sampling = Literal["uniform", "samples"]
MAX_SEED = 2**64 - 1
MAX_NUMBER = 1_000_000  # of rounds or devices
MAX_OVER_SELECTION = 10.0
MAX_ATTEMPTS = 10  # at one round, unless an operator chooses another number


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A share of a set of devices: a fixed number, or a fraction of the set rounded up."""

    count: int | None = None
    fraction: float | None = None

    def of(self, total: int) -> int:
        """Return the number of devices for a set of `total`; a count may exceed it."""
        if self.fraction is None:
            return self.count or 0
        return max(1, math.ceil(round(self.fraction * total, 9)))  # 0.1 of 30 is 3, despite binary rounding

    def check(self, name: str) -> None:
        """Raise InvalidInput unless exactly one of count and fraction is given and valid."""
        if (self.count is None) == (self.fraction is None):
            raise InvalidInput(f"{name} is {self}; it must be either a count or a fraction")
        if self.count is not None:
            require_whole(name, self.count, 1, MAX_NUMBER)
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise InvalidInput(f"{name} is {self.fraction}; a fraction must be above 0 and at most 1")

    def __str__(self) -> str:
        return str(self.count) if self.fraction is None else percent_text(self.fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run's settings.

    `cohort` is a share of the eligible devices online, `quorum` of the cohort. Times are in seconds. A device of the
    cohort that sends no heartbeat for `heartbeat_timeout_seconds` is lost. `over_selection`: devices drawn beyond the
    cohort, as a fraction of it; the round closes with as many updates as the cohort has devices. With `asynchronous`
    rounds `cohort` is the number of devices that train concurrently, and `quorum` is of the buffer.
    """

    rounds: int
    cohort: Amount = Amount(fraction=1.0)
    minimum_devices: int = 1
    quorum: Amount = Amount(fraction=0.5)
    deadline_seconds: float = 3600.0
    heartbeat_timeout_seconds: float = 120.0
    seed: int = 0
    sampling: Sampling = "uniform"  # of a cohort; "samples": with probability by the devices' samples
    encodings: Encodings = field(default_factory=Encodings)  # of models on the wire
    retention: Retention = field(default_factory=Retention)
    over_selection: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)  # that a device needs to be selected
    trusted_labels: bool = False  # the labels must have been set by operators
    robust: RobustSettings = field(default_factory=RobustSettings)
    asynchronous: FedBuffSettings | None = None  # None: rounds are synchronous
    max_attempts: int = MAX_ATTEMPTS  # abandoned attempts at one round that fail the run
    exclude_after: int = 0  # clipped updates in a row after which a device is left out; 0: never

    def __post_init__(self) -> None:
        require_whole("rounds", self.rounds, 1, MAX_NUMBER)
        require_whole("minimum_devices", self.minimum_devices, 1, MAX_NUMBER)
        require_whole("max_attempts", self.max_attempts, 1, MAX_NUMBER)
        self.cohort.check("cohort")
        self.quorum.check("quorum")
        _seconds("deadline_seconds", self.deadline_seconds)
        _seconds("heartbeat_timeout_seconds", self.heartbeat_timeout_seconds)
        require_whole("seed", self.seed, 0, MAX_SEED)
        parse_sampling(self.sampling)
        if not 0 <= self.over_selection <= MAX_OVER_SELECTION:
            raise InvalidInput(
                f"over_selection is {self.over_selection}; it must be from 0 to {MAX_OVER_SELECTION:g} times the cohort"
            )
        check_labels(self.labels)
        if self.trusted_labels and not self.labels:
            raise InvalidInput("trusted_labels is given without a label; name the labels that devices must have")
        if self.exclude_after:
            require_whole("exclude_after", self.exclude_after, 1, MAX_NUMBER)
            if not self.robust.clips:
                raise InvalidInput(f"exclude_after is {self.exclude_after}, and nothing is clipped; give clip_factor")
        if self.asynchronous:
            self._check_asynchronous(self.asynchronous)
        elif self.cohort.count and self.quorum.count and self.quorum.count > self.cohort.count:
            raise InvalidInput(f"quorum is {self.quorum}; it must be at most the cohort, {self.cohort}")

    def _check_asynchronous(self, asynchronous: FedBuffSettings) -> None:
        if self.quorum.count and self.quorum.count > asynchronous.buffer:
            raise InvalidInput(f"quorum is {self.quorum}; it must be at most the buffer, {asynchronous.buffer}")
        if self.over_selection:
            raise InvalidInput(f"over_selection is {self.over_selection}; with asynchronous rounds it must be 0")
        if self.sampling != "uniform":
            raise InvalidInput(
                f"sampling is {self.sampling!r}; with asynchronous rounds it must be 'uniform', since a device's pace "
                "decides how often it counts"
            )

    @property
    def fewest_updates(self) -> int:
        """The smallest number of updates that a round may close with."""
        if self.asynchronous:
            return self.quorum.of(self.asynchronous.buffer)
        return self.quorum.of(self.cohort_size(self.devices_needed))

    @property
    def devices_needed(self) -> int:
        """Number of eligible devices online that a round needs to open, so that its cohort can reach the quorum."""
        needed = self.minimum_devices
        if self.asynchronous:
            return max(needed, self.asynchronous.buffer)  # each has one update for each model
        if self.quorum.count is not None:
            needed = max(needed, math.floor((self.quorum.count - 1) / (self.cohort.fraction or 1.0)))
            while self.cohort_size(needed) < self.quorum.count:
                needed += 1
        return needed

    @property
    def models_needed(self) -> int:
        """Number of newest global models that the open round's devices may request."""
        return 1 + self.asynchronous.max_staleness if self.asynchronous else 1

    @property
    def states_needed(self) -> int:
        """Number of newest global states that must stay intact; if the newest is damaged, that before it is used."""
        return max(2, self.models_needed)

    def cohort_size(self, online: int) -> int:
        """Return the updates of a round with that many online devices; a fixed number is capped by them."""
        return min(self.cohort.of(online), online)

    def drawn(self, online: int) -> int:
        """Return the number of devices drawn from that many online ones, over-selection included."""
        return min(math.ceil(round(self.cohort_size(online) * (1 + self.over_selection), 9)), online)

    def updates_wanted(self, drawn: int) -> int:
        """Return the number of updates that closes a round for which `drawn` devices were drawn.

        This is the cohort's size at the draw, which follows from `drawn` alone.
        """
        return max(math.floor(round(drawn / (1 + self.over_selection), 9)), self.cohort_size(drawn))

    def updates_closing(self, drawn: int) -> int:
        """Return the number of updates that closes a round; in asynchronous rounds, whatever was drawn."""
        return self.asynchronous.buffer if self.asynchronous else self.updates_wanted(drawn)

    def to_document(self) -> dict[str, Any]:
        """Return the settings as JSON values, for the store."""
        return asdict(self) | {"encodings": self.encodings.to_document(), "robust": self.robust.to_document()}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> RunSettings:
        """Read what `to_document` wrote."""
        amounts = {name: Amount(**document[name]) for name in ("cohort", "quorum")}
        asynchronous = FedBuffSettings(**document["asynchronous"]) if document["asynchronous"] else None
        built = {
            "encodings": Encodings.from_document(document["encodings"]),
            "retention": Retention(**document["retention"]),
            "robust": RobustSettings.from_document(document["robust"]),
            "asynchronous": asynchronous,
        }
        return cls(**{**document, **amounts, **built})


def parse_amount(field: str, text: str) -> Amount:
    """Parse an amount as an operator writes it: `10`, `20%` or `all`."""
    number = "100%" if text == "all" else text.strip()
    try:
        amount = Amount(fraction=read_percent(number)) if number.endswith("%") else Amount(count=int(number))
    except ValueError as error:
        raise InvalidInput(f"{field} is {text!r}; it must be like 10, 20% or all") from error
    amount.check(field)
    return amount


def parse_sampling(text: str) -> Sampling:
    """Parse a sampling method."""
    for known in get_args(Sampling):
        if text == known:
            sampling: Sampling = known
            return sampling
    raise InvalidInput(f"sampling is {text!r}; it must be 'uniform' or 'samples'")


def parse_fraction(field: str, text: str) -> float:
    """Parse a fraction as an operator writes it: `30%` or `0.3`; above 1 only with the percent sign."""
    number, percent = text.strip(), text.strip().endswith("%")
    try:
        fraction = read_percent(number) if percent else float(number)
    except ValueError as error:
        raise InvalidInput(f"{field} is {text!r}; it must be like 30% or 0.3") from error
    if not percent and fraction > 1:
        raise InvalidInput(f"{field} is {text!r}, a share without a percent sign; it must be like 30% or 0.3")
    return fraction


def _seconds(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} is {value}; it must be a positive, finite number of seconds")
