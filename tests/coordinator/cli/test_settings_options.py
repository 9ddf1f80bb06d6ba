"""Every setting is the same on the command line, in a document, on the wire and in the database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings, strategies

from moonfed.control.declarations import Declaration
from moonfed.control.kinds import Amounts, Budget, Choice, Flag, Labels, Number, Numbers, Pairs, Share, Whole, Words
from moonfed.control.recipe import override, read_recipe_file, to_toml
from moonfed.control.run_settings import DEFAULTS, RUN_SETTINGS, RunSettings
from moonfed.coordinator.cli.run_start import start
from moonfed.coordinator.cli.settings_options import given_settings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.coordinator.storage.store import Store
from moonfed.v1 import control_pb2
from tests.support.store_records import RUN

COMPANIONS = {  # settings that have no meaning alone
    "trusted_labels": ["--label", "site=ulm"],
    "max_staleness": ["--asynchronous", "3"],
    "exclude_after": ["--clip-norm", "2"],
    "privacy": ["--population", "3", "--cohort", "1", "--clip-norm", "1"],
    "population": ["--privacy", "epsilon=2,delta=1e-9", "--cohort", "1", "--clip-norm", "1"],
}
WORDS = strategies.text(strategies.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=20)
PAIRS = strategies.dictionaries(WORDS, WORDS, min_size=1, max_size=3)


def app() -> typer.Typer:
    program = typer.Typer()
    program.command()(start)
    return program


COMMAND: Any = typer.main.get_command(app())
NUMBERS = count()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(tmp_path_factory.mktemp("state") / "coordinator.db")
    yield opened
    opened.close()


def texts(item: Declaration) -> strategies.SearchStrategy[list[str]]:
    """Return what an operator may write after a setting's option, once or several times; nothing after a flag."""
    match item.kind:
        case Flag():
            return strategies.just([])
        case Whole(least=least, most=most):
            return strategies.integers(max(least, item.name == "population"), most).map(lambda number: [str(number)])
        case Number(valid=valid):
            numbers = strategies.floats(0, 1e9).filter(valid)
            return numbers.map(lambda number: [repr(number)])
        case Share(most=most):
            return strategies.floats(0, 100 * most).map(lambda percent: [f"{percent!r}%"])
        case Amounts():
            shares = strategies.floats(0.001, 100).map(lambda percent: f"{percent!r}%")
            return strategies.one_of(strategies.integers(1, 9).map(str), shares, strategies.just("all")).map(
                lambda x: [x]
            )
        case Choice(choices=choices):
            return strategies.sampled_from(choices).map(lambda word: [word])
        case Budget():
            epsilon, delta = strategies.floats(1e-3, 1e3), strategies.floats(1e-9, 0.3)
            return strategies.builds(lambda e, d: [f"epsilon={e!r},delta={d!r}"], epsilon, delta)
        case Numbers():
            values = strategies.dictionaries(WORDS, strategies.floats(-1e9, 1e9), min_size=1, max_size=3)
            return values.map(lambda pairs: [f"{name}={value!r}" for name, value in pairs.items()])
        case Labels() | Pairs():
            return PAIRS.map(lambda pairs: [f"{name}={value}" for name, value in pairs.items()])
        case Words():
            return WORDS.map(lambda word: [word])
    raise AssertionError(f"no examples of {item.kind}")


def parsed(words: list[str]) -> RunSettings:
    """Return the settings that `run start` reads from its command line."""
    with COMMAND.make_context("start", ["bundle", *words], resilient_parsing=False) as context:
        chosen = {name: context.params[name] for name in RUN_SETTINGS}
        return RunSettings.read(override({}, given_settings(context, chosen)))


def stored(store: Store, chosen: RunSettings) -> RunSettings:
    name = f"run-{next(NUMBERS)}"
    store.add_run(replace(RUN, run=name, settings=chosen), draw=Draw(bytes(32)))
    return store.run(name).settings


def on_the_wire(chosen: RunSettings) -> tuple[RunSettings, RunSettings]:
    """Return what the coordinator receives, and what a client receives from it."""
    request = control_pb2.StartRunRequest.FromString(
        control_pb2.StartRunRequest(settings=chosen.to_json()).SerializeToString()
    )
    at_coordinator = RunSettings.from_json(request.settings)
    reply = control_pb2.Run.FromString(control_pb2.Run(settings=at_coordinator.to_json()).SerializeToString())
    return at_coordinator, RunSettings.received(reply.settings)


@pytest.mark.parametrize("name", RUN_SETTINGS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=strategies.data())
def test_a_setting_is_the_same_everywhere(name: str, data: strategies.DataObject, store: Store, tmp_path: Path) -> None:
    item = RUN_SETTINGS[name]
    values = data.draw(texts(item))
    words = [word for value in values for word in (item.option, value)] or [item.option]
    chosen = parsed([*COMPANIONS.get(name, []), *words])
    written: object = values if isinstance(item.kind, Labels | Pairs) else values[0] if values else True
    read = item.kind.read(name, written)
    assert getattr(chosen, name) == read, "the option sets its setting"
    document = json.loads(json.dumps(chosen.to_document()))
    assert RunSettings.read(document) == chosen
    assert on_the_wire(chosen) == (chosen, chosen)
    again = stored(store, chosen)
    assert (again, again.to_document()) == (chosen, document)
    for text in (json.dumps(document), to_toml(document)):
        (tmp_path / "recipe").write_text(text)
        assert RunSettings.read(override(read_recipe_file(tmp_path / "recipe"), {})) == chosen, "the same run again"


def test_without_options_a_run_has_the_defaults() -> None:
    assert parsed([]) == DEFAULTS
    assert parsed(["--cohort", "all", "--quorum", "50%", "--rounds", "10"]) == DEFAULTS
