"""moonfed-export: builds bundles, scores a run's models, and writes them as checked ONNX files.

The commands are in `export.commands`; everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

from export.commands.bundles import bundle, inspect, methods
from export.commands.evaluation import evaluate
from export.commands.model_files import onnx
from export.commands.options import PROGRAM
from export.commands.serving import serve
from moonfed.cli import new_app, run_program

HELP = """Compile models for a fleet of devices, score what a run has learned, and write it as ONNX.

\b
Example:
  moonfed-export bundle --model cnn --input 8x8x1 --classes 10 --method moon --output digits-bundle
  moonfed-export evaluate digits --data test.npz --follow
  moonfed-export onnx digits --data test.npz --output digits.onnx
  moonfed-export serve models
"""

app = new_app(HELP)
for command in (bundle, methods, inspect, evaluate, onnx, serve):
    app.command()(command)


def main() -> None:
    """The program's entry point."""
    run_program(app, PROGRAM, extra="export")
