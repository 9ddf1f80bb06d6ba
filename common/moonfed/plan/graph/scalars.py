"""Arithmetic on the numbers of a graph: results stay in 64 bits, so that no chain of them exhausts the memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from moonfed.plan.graph.arguments import Kind
from moonfed.plan.graph.container import INT64

Number = int | float
_MOST_EXPONENT = 64


@dataclass(frozen=True, slots=True)
class Scalar:
    """One operation on numbers; `kind` returns the result's kind for those of the arguments."""

    arguments: int
    function: Callable[..., Number]
    kind: Callable[[Sequence[Kind]], Kind]


def _bounded(function: Callable[..., Any]) -> Callable[..., Number]:
    def bounded(*numbers: Number) -> Number:
        result = function(*numbers)
        if type(result) is int and result not in INT64:
            raise OverflowError("an integer of a plan exceeds 64 bits")
        return result  # type: ignore[no-any-return]

    return bounded


def _power(base: Number, exponent: Number) -> Number:
    if type(base) is int and type(exponent) is int and abs(exponent) <= _MOST_EXPONENT:
        return base**exponent  # type: ignore[no-any-return]
    return math.pow(base, exponent)


def _joint(kinds: Sequence[Kind]) -> Kind:
    if Kind.FLOAT in kinds:
        return Kind.FLOAT
    return Kind.NUMBER if Kind.NUMBER in kinds else Kind.INT


def _either(kinds: Sequence[Kind]) -> Kind:
    return kinds[0] if len(set(kinds)) == 1 else Kind.NUMBER


def _power_kind(kinds: Sequence[Kind]) -> Kind:
    return Kind.FLOAT if Kind.FLOAT in kinds else Kind.NUMBER


def _always(kind: Kind) -> Callable[[Sequence[Kind]], Kind]:
    return lambda kinds: kind


set_grad_mode: Callable[[bool], None] = torch._C._set_grad_enabled
SCALARS: Mapping[str, Scalar] = {
    "scalar::add": Scalar(2, _bounded(operator.add), _joint),
    "scalar::sub": Scalar(2, _bounded(operator.sub), _joint),
    "scalar::mul": Scalar(2, _bounded(operator.mul), _joint),
    "scalar::truediv": Scalar(2, _bounded(operator.truediv), _always(Kind.FLOAT)),
    "scalar::floordiv": Scalar(2, _bounded(operator.floordiv), _joint),
    "scalar::neg": Scalar(1, _bounded(operator.neg), _joint),
    "scalar::int": Scalar(1, _bounded(int), _always(Kind.INT)),
    "scalar::float": Scalar(1, float, _always(Kind.FLOAT)),
    "scalar::max": Scalar(2, max, _either),
    "scalar::min": Scalar(2, min, _either),
    "scalar::pow": Scalar(2, _bounded(_power), _power_kind),
    "scalar::sqrt": Scalar(1, math.sqrt, _always(Kind.FLOAT)),
}
