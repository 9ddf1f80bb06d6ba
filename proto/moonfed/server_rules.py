"""The server rules' settings: how the coordinator turns a round's updates into the next global state.

They are part of the contract because `export` writes them into a bundle's manifest and the coordinator acts on them.
The arithmetic is the coordinator's. Rules move parameters; statistics (BatchNorm's running ones) are always the
weighted mean, because momentum could drive a variance below zero.
Notation: w the round's global model, w_i a device's, n_i its samples, p_i = n_i/n (or 1/|S|, uniform),
Δ = Σ p_i·w_i − w.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from moonfed.errors import InvalidInput

Weighting = Literal["samples", "uniform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRule:
    """What all rules have: whether updates weigh by their samples or all the same."""

    name: ClassVar[str]
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        if self.weighting not in get_args(Weighting):
            raise InvalidInput(f"weighting is {self.weighting!r}; it must be 'samples' or 'uniform'")

    def to_document(self) -> dict[str, Any]:
        """The rule as JSON values; `read_server_rule` reads them."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(ServerRule):
    """w ← Σ p_i·w_i. McMahan et al., AISTATS 2017, algorithm 1."""

    name: ClassVar[str] = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvgM(ServerRule):
    """v ← β·v + Δ, or β·v + (1 − β)·Δ if damped (as MOON's authors' code does); w ← w + v.

    Hsu, Qi, Brown 2019, section 3.
    """

    name: ClassVar[str] = "fedavgm"
    server_momentum: float = 0.9
    damped: bool = False

    def __post_init__(self) -> None:
        ServerRule.__post_init__(self)
        _require("server_momentum", self.server_momentum, 0.0, below=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedNova(ServerRule):
    """w ← w − (Σ p_i·a_i) · Σ p_i·(w − w_i)/a_i, a_i the effective steps of a device's steps under local momentum.

    Wang et al., NeurIPS 2020, section 4.
    """

    name: ClassVar[str] = "fednova"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRule(ServerRule):
    """m ← β1·m + (1 − β1)·Δ; v by the rule; w ← w + η·m/(√v + τ). Reddi et al., ICLR 2021, algorithm 2."""

    server_learning_rate: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    adaptivity: float = 1e-3  # τ; v starts at τ²

    def __post_init__(self) -> None:
        ServerRule.__post_init__(self)
        _require("server_learning_rate", self.server_learning_rate, 0.0, above=True)
        _require("beta1", self.beta1, 0.0, below=1.0)
        _require("beta2", self.beta2, 0.0, below=1.0)
        _require("adaptivity", self.adaptivity, 0.0, above=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAdam(AdaptiveRule):
    """v ← β2·v + (1 − β2)·Δ²."""

    name: ClassVar[str] = "fedadam"


@dataclass(frozen=True, slots=True, kw_only=True)
class FedYogi(AdaptiveRule):
    """v ← v − (1 − β2)·Δ²·sign(v − Δ²)."""

    name: ClassVar[str] = "fedyogi"


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAdagrad(AdaptiveRule):
    """v ← v + Δ²; β2 has no part in it."""

    name: ClassVar[str] = "fedadagrad"
    beta1: float = 0.0


SERVER_RULES: Mapping[str, type[ServerRule]] = {
    rule.name: rule for rule in (Mean, FedAvgM, FedNova, FedAdam, FedYogi, FedAdagrad)
}


def read_server_rule(document: Mapping[str, Any]) -> ServerRule:
    """A rule from its name and settings; numbers may be text, as a command line has them.

    Raises InvalidInput naming an unknown rule, an unknown setting, or a value that is not allowed.
    """
    settings = dict(document)
    name = settings.pop("name", Mean.name)
    if name not in SERVER_RULES:
        raise InvalidInput(f"server_rule is {name!r}; it must be one of {', '.join(SERVER_RULES)}")
    rule = SERVER_RULES[name]
    known = {item.name: str(item.type) for item in fields(rule)}
    for key, value in settings.items():
        if key not in known:
            raise InvalidInput(
                f"server setting {key!r} (= {value!r}) is unknown; {name} has {', '.join(sorted(known))}"
            )
        settings[key] = _read_value(key, value, known[key])
    return rule(**settings)


def _read_value(key: str, value: object, kind: str) -> object:
    if kind == "float" and not isinstance(value, bool):
        try:
            return float(value)  # type: ignore[arg-type] # what does not convert is refused below
        except (TypeError, ValueError):
            pass
    elif kind == "bool":
        truths = {"true": True, "false": False}
        if str(value).lower() in truths:
            return truths[str(value).lower()]
    elif kind == "Weighting":
        return str(value)
    raise InvalidInput(f"{key} is {value!r}; it must be {'true or false' if kind == 'bool' else 'a number'}")


def _require(name: str, value: float, least: float, *, below: float = math.inf, above: bool = False) -> None:
    if not (math.isfinite(value) and least <= value < below) or (above and value == least):
        allowed = f"a number {'above' if above else 'from'} {least:g}" + (
            "" if math.isinf(below) else f", below {below:g}"
        )
        raise InvalidInput(f"{name} is {value!r}; it must be {allowed}")
