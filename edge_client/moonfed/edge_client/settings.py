"""Settings of `moonfed-client run`, from its command line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from moonfed.data.formats import HELP
from moonfed.data.image_folder import check_ignored
from moonfed.edge_client.metrics_file import require_metrics_file
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.errors import InvalidInput
from moonfed.labels import SANDBOX_LABEL, check_labels
from moonfed.observability.logs import require_log_options
from moonfed.observability.tracing import require_endpoint
from moonfed.plan.selection import AUTO, parse_format
from moonfed.sandbox.policy import Level, require_level
from moonfed.transport.identity import default_name
from moonfed.transport.proxy import parse_proxy
from moonfed.validate import require_positive, require_whole

PRECISIONS = ("float32", "bfloat16", "float16")  # as in moonfed.plan.interface, which imports torch
MEMORY_FORMATS = ("contiguous", "channels-last")
SETTINGS_VARIABLE = "MOONFED_CLIENT_SETTINGS"
# For glibc: the long-lived agent returns memory after each round, and keeps none in reserve. The worker keeps the
# defaults: training threads would contend for one arena.
FRUGAL = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "0"}
MIN_BANDWIDTH = 1000  # bytes per second; a coordinator drops an upload that stalls for two minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """Validated settings of `moonfed-client run`; InvalidInput names the option."""

    state: str
    data: str | None  # see moonfed.data.formats; None: inference only
    accelerator: str  # cpu or cuda
    threads: int | None  # for torch; None: its default
    holdout: float  # fraction of the samples that only evaluate
    insecure: bool
    coordinator: str  # host:port; empty: the identity's
    name: str  # empty: the identity's, or without TLS the host's
    target: str = ""  # column of a table with the labels; empty: the bundle's
    ignored_folders: Sequence[str] = ()  # of a folder of images
    precision: str = "float32"  # of PRECISIONS
    memory_format: str | None = None  # of MEMORY_FORMATS; None: the fastest
    plan_format: str = AUTO  # of moonfed.plan.selection.FORMATS
    max_steps: int | None = None  # optimiser steps in one round; None: no limit
    max_seconds: float | None = None  # of local training in one round
    max_memory: int | None = None  # bytes of memory for local training
    sandbox: Level = "strict"  # of the process that runs plans
    between: str = ""  # HH:MM-HH:MM in local time; empty: always
    max_bandwidth: int | None = None  # bytes per second, in each direction
    proxy: str = ""  # http://[USER:PASSWORD@]HOST:PORT; empty: the environment's, if any
    labels: Mapping[str, str] = field(default_factory=dict)  # by which runs select devices
    log_format: str = "text"
    log_level: str = "info"
    otlp_endpoint: str = ""  # of the collector of traces; empty: none
    metrics_file: str = ""  # for node_exporter; empty: none

    def __post_init__(self) -> None:
        require_choices(self.accelerator, self.precision, self.memory_format)
        parse_format(self.plan_format)
        for option, value in (("threads", self.threads), ("max-steps", self.max_steps)):
            if value is not None:
                require_whole(option, value, 1)
        if self.max_seconds is not None:
            require_positive("max-seconds", self.max_seconds)
        if self.max_memory is not None and self.max_memory < 1:
            raise InvalidInput(field="max-memory", value=self.max_memory, allowed="at least one byte")
        if self.max_bandwidth is not None and self.max_bandwidth < MIN_BANDWIDTH:
            raise InvalidInput(
                f"max-bandwidth is {self.max_bandwidth} bytes per second; it must be at least {MIN_BANDWIDTH}"
            )
        if self.between:
            TrainingWindow.parse(self.between)
        if self.proxy:
            parse_proxy(self.proxy)
        if self.metrics_file:
            require_metrics_file(self.metrics_file)
        require_level(self.sandbox)
        check_ignored(self.ignored_folders)
        check_labels(self.labels)
        if SANDBOX_LABEL in self.labels:
            raise InvalidInput(
                f"label is {SANDBOX_LABEL}={self.labels[SANDBOX_LABEL]!r}; it must have another name, "
                "because this one reports the level of --sandbox"
            )
        require_holdout(self.holdout)
        self._require_data()
        require_log_options(self.log_format, self.log_level)
        require_endpoint(self.otlp_endpoint)
        if self.insecure and not self.coordinator:
            raise InvalidInput("coordinator is missing; --insecure needs --coordinator HOST:PORT")
        if self.name and not self.insecure:
            raise InvalidInput(
                field="name",
                value=self.name,
                rest="; it is only for --insecure, since an enrolled device already has a name",
            )

    def _require_data(self) -> None:
        """Raise InvalidInput if data are empty, or missing for an option that is about them."""
        if self.data == "":
            raise InvalidInput(f"data is ''; it must be {HELP}, or left out for inference only")
        about_data = {"holdout": self.holdout, "target": self.target, "ignore-folder": self.ignored_folders}
        given = [option for option, value in about_data.items() if value]
        if self.data is None and given:
            raise InvalidInput(f"{given[0]} is given without --data; it is about this device's samples")

    @property
    def plain_name(self) -> str:
        """The device's name where no certificate names it."""
        return self.name or default_name()

    def to_environment(self) -> dict[str, str]:
        """Return variables for the process that `run` becomes; arguments are public, and a proxy has a password."""
        return {**FRUGAL, SETTINGS_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> DeviceSettings:
        """Read and remove what `to_environment` set, so that the training worker does not inherit it."""
        for variable in FRUGAL:
            os.environ.pop(variable, None)
        fields = json.loads(os.environ.pop(SETTINGS_VARIABLE))
        return cls(**fields | {"ignored_folders": tuple(fields["ignored_folders"])})


def require_holdout(holdout: float) -> None:
    """Raise InvalidInput unless the fraction leaves samples to train on."""
    if not 0 <= holdout < 1:
        raise InvalidInput(field="holdout", value=holdout, allowed="at least 0 and less than 1")


def require_choices(accelerator: str, precision: str, memory_format: str | None) -> None:
    """Raise InvalidInput for an unknown accelerator, precision or memory format."""
    for option, choice, choices in (
        ("device", accelerator, ("cpu", "cuda")),
        ("precision", precision, PRECISIONS),
        ("memory-format", memory_format or MEMORY_FORMATS[0], MEMORY_FORMATS),
    ):
        if choice not in choices:
            raise InvalidInput(field=option, value=choice, allowed=_either(choices))


def _either(choices: tuple[str, ...]) -> str:
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}"
