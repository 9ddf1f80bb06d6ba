"""The demo with an existing bundle and without an export: `OUTPUT BUNDLE SETTINGS`, the last as JSON."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from unittest import mock

import typer

from moonfed.command_line.programs import run_program
from moonfed.experiments import demo
from moonfed.experiments.demo import DemoSettings, run_demo


def main() -> None:
    """Run the demo as its command does."""
    output, bundle, settings = sys.argv[1:]

    def copy_bundle(made: DemoSettings, _: object) -> None:
        shutil.copytree(bundle, made.output / "moon")

    app = typer.Typer()
    app.command()(lambda: run_demo(DemoSettings(output=Path(output), **json.loads(settings))))
    sys.argv[1:] = []
    with mock.patch.multiple(demo, build_bundle=copy_bundle, export_onnx=lambda _: 0.0):
        run_program(app, "demo")
