"""Write docs/layers.md: which layers of torch and which of torchvision's classifiers plans support, by trying each.

    python -m tools.layers                          # all layers: minutes
    python -m tools.layers resnet18 vit_b_16        # some classifiers: a minute each, some take five
    python -m tools.layers --plans all              # all classifiers, without building their bundles

Each classifier is tried in a process of its own, after which the page is written. What is not tried stays as it was.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from moonfed.export.torchvision_import import import_torchvision
from tools.layers.cases import CASES, LOSSES
from tools.layers.page import PAGE, classifier_row, page, read_classifiers, read_verdicts
from tools.layers.trials import quiet, try_classifier, try_layers, try_loss


def main() -> None:
    """Try layers, or the named classifiers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classifiers", nargs="*", help="names of torchvision's classifiers, or all; none: layers")
    parser.add_argument("--plans", action="store_true", help="compile and inspect plans, and build no bundles")
    options = parser.parse_args()
    quiet()
    if not options.classifiers:
        print("trying layers", flush=True)
        verdicts = {name: verdict for cases in CASES.values() for name, verdict in try_layers(cases).items()}
        verdicts |= {name: try_loss(name, case) for name, case in LOSSES.items()}
        PAGE.write_text(page(verdicts, read_classifiers(PAGE.read_text()) if PAGE.exists() else {}))
        return
    models = import_torchvision().models
    names = models.list_models(module=models) if options.classifiers == ["all"] else options.classifiers
    for name in names:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), quiet) as process:
            side, millions, verdict = process.submit(try_classifier, name, bundle=not options.plans).result()
        row = classifier_row(name, side, millions, verdict, bundle=not options.plans)
        text = PAGE.read_text()
        PAGE.write_text(page(read_verdicts(text), read_classifiers(text) | {name: row}))
        print(f"{name}: {row.result}", flush=True)


if __name__ == "__main__":
    main()
