"""moonfed-export: builds bundles, scores a run's models, writes them as checked ONNX files, and serves them.

Heavy dependencies are imported by the command that needs them.
"""

from __future__ import annotations

import sys

from moonfed.command_line.programs import new_app, run_program
from moonfed.export.cli.api_key import api_key
from moonfed.export.cli.bundle import bundle, inspect, methods
from moonfed.export.cli.classify import classify
from moonfed.export.cli.columns import columns
from moonfed.export.cli.evaluate import evaluate
from moonfed.export.cli.keys import keys_app, sign
from moonfed.export.cli.onnx import onnx
from moonfed.export.cli.options import PROGRAM
from moonfed.export.cli.release import follow, repository, roll_back, sign_release
from moonfed.export.cli.release_create import release_app
from moonfed.export.cli.serve import serve

HELP = """Compile models for a fleet of devices, score a run's models, write them as ONNX, release and serve them.

\b
Example:
  moonfed-export bundle --model cnn --input 8x8x1 --classes 10 --method moon --output digits-bundle
  moonfed-export evaluate digits --data test.npz --follow
  moonfed-export onnx digits --data test.npz --output digits.onnx
  moonfed-export repository digits --data test.npz --name digits --output models
  moonfed-export serve models
"""

app = new_app(HELP)
for command in (
    columns,
    bundle,
    methods,
    inspect,
    sign,
    evaluate,
    onnx,
    repository,
    follow,
    roll_back,
    sign_release,
    serve,
    api_key,
    classify,
):
    app.command()(command)
app.add_typer(keys_app, name="keys")
app.add_typer(release_app, name="release")


def main() -> None:
    """Run the program."""
    run_program(app, PROGRAM, extra="serve" if sys.argv[1:2] in (["serve"], ["api-key"]) else "export")
