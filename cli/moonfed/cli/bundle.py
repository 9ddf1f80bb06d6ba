"""Commands for bundles: build one, inspect one, list the methods and their settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli.options import BundleVersionOption, ExpiresOption, SignersOption, print_step
from moonfed.command_line.programs import print_json
from moonfed.data.formats import HELP, METAVAR
from moonfed.errors import InvalidInput
from moonfed.export.methods import LOCAL_ONLY, METHODS
from moonfed.registry import read_pairs
from moonfed.server_rules import SERVER_RULES, read_server_rule
from moonfed.tasks import TASKS
from moonfed.transport.operator_options import FindEndpoint, JsonOption, TrustOption, operator_options

if TYPE_CHECKING:
    from moonfed.export.bundle_recipe import BundleRecipe
    from moonfed.export.bundle_signing import SigningOptions
    from moonfed.export.weights.pretrained import PretrainedWeights


@operator_options
def bundle(
    endpoint: FindEndpoint,
    output: Annotated[Path, typer.Option(metavar="DIR|FILE.zip", help="The bundle to write.")],
    input_text: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="HxWxC|features:N|series:LxC|tokens:T",
            help="One raw sample: 32x32x3 pixels, N features, L steps of C channels, or T tokens.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help=f"What the model does: {', '.join(TASKS)}. Default: the columns', or classification."),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="For classification, multilabel and segmentation: names with commas between them, those with a comma "
            'in "", or their number.'
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(metavar="NAME[:UNIT],…", help="For regression: the values with their units: price:EUR,area."),
    ] = None,
    horizon: Annotated[
        str | None, typer.Option(metavar="STEPS", help="For regression: forecast this many steps of the values.")
    ] = None,
    target_mean: Annotated[
        str | None, typer.Option(help="For regression: the mean of each value. Default: that of --data, or 0.")
    ] = None,
    target_std: Annotated[
        str | None, typer.Option(help="For regression: their standard deviations. Default: those of --data, or 1.")
    ] = None,
    vocabulary: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="For tokens: one on each line, a JSON list, or tokenizer.json; the first is padding. Default: the one "
            "of --weights hf:DIRECTORY.",
        ),
    ] = None,
    columns: Annotated[
        Path | None,
        typer.Option(
            metavar="COLUMNS.json",
            help="For tables, instead of --input, targets, --mean and --std: a file that `columns` has written.",
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="A network of docs/tasks.md, such as cnn, mlp, gru or unet; torchvision:NAME; timm:NAME; or your "
            "MODULE:CALLABLE."
        ),
    ] = "cnn",
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Weights to start from: a .safetensors, .pth or .onnx file, torchvision:default, timm:default, "
            "hf:DIRECTORY or run:NAME[@ROUND]. Default: random ones.",
        ),
    ] = None,
    weights_rename: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX=PREFIX", help="Rename tensors of --weights: features.=encoder.; repeatable."),
    ] = None,
    weights_licence: Annotated[
        str | None, typer.Option(metavar="NAME", help="The licence of --weights, if they do not state it: MIT.")
    ] = None,
    keep_head: Annotated[
        bool, typer.Option("--keep-head", help="Load the last layers of --weights, too; by default, they are new.")
    ] = False,
    freeze: Annotated[
        str,
        typer.Option(
            metavar="TENSORS",
            help="Tensors that are not trained, and that devices fetch once: encoder, all-but-head, batchnorm, or "
            "names of modules with * and [1-3]; commas between several.",
        ),
    ] = "",
    personal: Annotated[
        str,
        typer.Option(
            metavar="TENSORS",
            help="Tensors that each device trains and keeps to itself: head, batchnorm, or names, as for --freeze.",
        ),
    ] = "",
    lora: Annotated[
        str,
        typer.Option(
            metavar="rank=R,…",
            help="Train changes of that rank of the encoder's layers instead of the layers: "
            "rank=8,alpha=16,targets=attention; targets may be linear, convolution, all or layers' names with *.",
        ),
    ] = "",
    projection: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTH|none",
            help="The projection head's output; none: no head. Default: 256 if the method compares representations, "
            "as MOON does, or else none.",
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help=f"The local objective: {', '.join(name for name in METHODS if name not in LOCAL_ONLY)}.")
    ] = "fedavg",
    optimiser: Annotated[str, typer.Option(help="The local optimiser: sgd, adam or adamw.")] = "sgd",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the task, method, optimiser or local training; see `methods`.",
        ),
    ] = None,
    schedules: Annotated[
        list[str] | None,
        typer.Option(
            "--schedule",
            metavar="KEY=SHAPE",
            help="Change a hyperparameter over rounds, such as learning_rate=warmup:5,cosine:100 or "
            "learning_rate=step:30:0.1; repeatable.",
        ),
    ] = None,
    server_rule: Annotated[str, typer.Option(help=f"Combination of updates: {', '.join(SERVER_RULES)}.")] = "mean",
    server_settings: Annotated[
        list[str] | None,
        typer.Option("--server-set", metavar="KEY=VALUE", help="A setting of the server rule; see `methods`."),
    ] = None,
    augmentation: Annotated[
        str, typer.Option(help="Image augmentation during training: none, crop-flip or crop-flip-rotate.")
    ] = "none",
    mean: Annotated[
        str | None, typer.Option(help="Mean of each channel, pixels scaled to 0 to 1, or of each feature: 0.5,0.5,0.4.")
    ] = None,
    std: Annotated[str | None, typer.Option(help="Standard deviation of each channel or feature.")] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar=METAVAR, help=f"Samples for the checks, {HELP}. Default: random ones."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights.", min=0)] = 0,
    name: Annotated[str | None, typer.Option(help="The bundle's name. Default: the output's.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a bundle that exists at --output.")] = False,
    signers: SignersOption = None,
    expires_days: ExpiresOption = 365.0,
    version: BundleVersionOption = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build and sign a bundle: a training plan, an ONNX graph, initial weights and a manifest.

    A MODULE:CALLABLE is called with a raw sample's shape, such as (32, 32, 3), and the number of classes; it returns
    three torch modules: encoder, projection head, output layer. Images reach the encoder as float [B, C, H, W], with
    sides under 16 pixels resized to 32.

    With --task regression, --data with values gives their mean and deviation, unless options do.

    With --weights, tensors are matched by name. Options for the coordinator belong to run:NAME.

    Example: moonfed-export bundle --model cnn --input 32x32x3 --classes 10 --method moon --set mu=5 --output my-bundle
    """
    from moonfed.bundle.files import require_output
    from moonfed.export import bundle_recipe as recipes
    from moonfed.export.bundle_signing import SigningOptions
    from moonfed.export.inspection import scale_text

    require_output(output, replace=force)  # before a minute of compiling
    options = SigningOptions(version=version, expires_days=expires_days)
    if vocabulary is None and (input_text or "").startswith("tokens:"):
        vocabulary = _own_vocabulary(weights)
    given = {
        "input": input_text,
        "vocabulary": vocabulary,
        "classes": classes,
        "values": values,
        "horizon": horizon,
        "target-mean": target_mean,
        "target-std": target_std,
        "mean": mean,
        "std": std,
    }
    samples, examples = recipes.read_samples(columns, given, task), None
    if data is not None:
        examples, scaled = recipes.read_examples(data, samples)
        if scaled != samples:
            print_step(f"of {data}: {scale_text(scaled.target)}")
        samples = scaled
    recipe = recipes.BundleRecipe(
        name=name or output.stem,
        model=model,
        input=samples.input,
        task=samples.task,
        target=samples.target,
        projection=recipes.read_projection(projection),
        method=recipes.read_federated(method),
        settings=read_pairs("--set", settings or []),
        optimiser=optimiser,
        schedules=read_pairs("--schedule", schedules or []),
        server_rule=read_server_rule({**read_pairs("--server-set", server_settings or []), "name": server_rule}),
        augmentation=augmentation,
        freeze=freeze,
        personal=personal,
        lora=lora,
        mean=samples.mean,
        deviation=samples.deviation,
        seed=seed,
        examples=examples,
    ).starting_from(
        _read_weights(weights, model, endpoint, trust, weights_rename, weights_licence, keep_head=keep_head)
    )
    _write_bundle(recipe, output, signers or [], options, as_json=as_json)


def _own_vocabulary(source: str | None) -> str | None:
    """Return the file of the vocabulary that comes with a source of weights; None if there is none."""
    from moonfed.export.weights.source import tokenizer_file

    found = tokenizer_file(source or "")
    if found:
        print_step(f"using the vocabulary of {found}")
    return str(found) if found else None


def _read_weights(
    source: str | None,
    model: str,
    endpoint: FindEndpoint,
    trust: Path | None,
    renames: list[str] | None,
    licence: str | None,
    *,
    keep_head: bool,
) -> PretrainedWeights | None:
    if source is None:
        given = [("weights-rename", renames), ("weights-licence", licence), ("keep-head", keep_head)]
        for name, value in given:
            if value:
                raise InvalidInput(f"{name} is given without weights; it belongs to --weights", field=name, value=value)
        return None
    from moonfed.export.coordinator_client import connect
    from moonfed.export.weights.source import WeightsOptions, of_run, read_weights

    def fetch_run(run: str, round_number: int | None) -> PretrainedWeights:
        with connect(endpoint(), trust=trust) as runs:
            return of_run(runs, run, round_number)

    print_step(f"reading weights {source}")
    options = WeightsOptions(
        source=source,
        renames=read_pairs("--weights-rename", renames or []),
        licence=licence or "",
        keep_head=keep_head,
    )
    return read_weights(options, model, fetch_run)


def methods(as_json: JsonOption = False) -> None:
    """List the tasks, methods and server rules with their settings and defaults.

    Example: moonfed-export methods --json
    """
    from moonfed.export.catalogue import catalogue, table

    if as_json:
        print_json(catalogue())
    else:
        print(table())


def inspect(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle: a directory or a .zip.")],
    as_json: JsonOption = False,
) -> None:
    """Verify a bundle and describe its contents; a plan that devices would reject is an error.

    Example: moonfed-export inspect my-bundle
    """
    from moonfed.bundle.files import read_bundle
    from moonfed.export.inspection import describe, table
    from moonfed.sandbox.plan_process import require_safe_plan

    contents = read_bundle(path)
    require_safe_plan(contents.plans)
    if as_json:
        print_json(describe(contents))
    else:
        print(table(contents))


def _write_bundle(
    recipe: BundleRecipe, output: Path, signers: list[Path], options: SigningOptions, *, as_json: bool
) -> None:
    from moonfed.bundle.files import write_bundle
    from moonfed.export.bundle_builder import build_bundle
    from moonfed.export.bundle_signing import sign_new
    from moonfed.signing.key_files import open_signer

    signer = open_signer(signers, print_step)  # before a minute of compiling
    built = build_bundle(recipe, on_step=print_step)
    signed = sign_new(built, signer, options)
    write_bundle(output, signed.bundle)
    if as_json:
        document = {"output": str(output), "sha256": built.ref.sha256, "name": recipe.name, "version": signed.version}
        print_json(document)
    else:
        print(f"{output} holds bundle {recipe.name!r}, sha256 {built.ref.sha256[:12]}, "
              f"signed as version {signed.version}{signed.missing}; `inspect` describes it")  # fmt: skip
