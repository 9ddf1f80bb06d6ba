"""The settings of a run as options of a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import typer

from moonfed.control.declarations import Declaration
from moonfed.control.run_settings import DEFAULTS, RUN_SETTINGS


def with_settings(command: Callable[..., None], about: Mapping[str, str]) -> Callable[..., None]:
    """Give a command that takes `**settings` an option for each, before its keyword-only parameters.

    `about`: what is said about some settings in place of their declaration.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    first = [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    options = [_option(item, about.get(item.name, item.about)) for item in RUN_SETTINGS.values()]
    signature = inspect.Signature([*first, *options, *parameters[len(first) :]])
    setattr(command, "__signature__", signature)  # noqa: B010 - which functions are not declared to have
    return command


def given_settings(context: typer.Context, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the operator gave on the command line."""
    sources = {name: context.get_parameter_source(name) for name in settings}
    return {name: settings[name] for name, source in sources.items() if source and source.name != "DEFAULT"}


def _option(item: Declaration, about: str) -> inspect.Parameter:
    default = item.default or None if item.kind.option == list[str] else item.default
    shown = bool(getattr(DEFAULTS, item.name))  # what 0 means, the text says
    option = typer.Option(default, item.option, help=about, metavar=item.metavar, show_default=shown)
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=item.kind.option)
