"""Settings of a run, with the names of `run start`'s options and of a recipe's keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class RunSettings(TypedDict, total=False):
    """Settings of a run; those left out keep the defaults of `moonfed-coordinator run start`.

    docs/runs.md explains each. Shares are text such as "20%"; numbers of devices may be numbers or text.
    """

    rounds: int  # to commit
    cohort: int | str  # devices per round: a number, a share of the eligible devices online, or "all"
    minimum_devices: int  # eligible devices that must be online before a round opens
    quorum: int | str  # updates required per round: a number, a share of the cohort, or "all"
    deadline: float  # maximum seconds of a round
    max_attempts: int  # abandoned attempts at one round after which the run fails
    heartbeat_timeout: float  # seconds without a heartbeat after which a device is lost
    over_selection: str  # additional devices, as a share of the cohort; stragglers are dropped
    asynchronous: int  # asynchronous rounds (FedBuff): every K updates make a model
    max_staleness: int  # with `asynchronous`: maximum age, in models, of an update's initial model
    trusted_labels: bool  # consider only labels that operators have set
    sampling: str  # "uniform", or "samples": in proportion to the devices' samples
    uplink_encoding: str  # of updates: "float32", "bfloat16" or "int8", optionally with "+zstd"
    downlink_encoding: str  # of global models for devices
    trusting: bool  # average without bounds on a device's influence
    exclude_after: int  # clipped updates in a row after which a device is left out; 0: never
    seed: int  # of the order of samples and of augmentation
    keep_last: int  # newest global models to keep
    keep_every: int  # also keep the model of every N-th round; 0: no others
    labels: Mapping[str, str]  # that devices need to be selected
    robust: Mapping[str, float | str]  # bounds, and "reducer" with its settings: see docs/robust-aggregation.md
