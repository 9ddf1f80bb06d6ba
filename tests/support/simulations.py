"""Simulations from the keys of a recipe."""

from __future__ import annotations

from moonfed.experiments.simulation import Simulation, from_document


def make_simulation(**keys: object) -> Simulation:
    return from_document(keys)
