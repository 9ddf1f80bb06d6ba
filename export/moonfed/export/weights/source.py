"""Reading of pretrained weights by the text that names them, and of what their source states about them."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from safetensors import SafetensorError
from safetensors.torch import load

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.manifest import GRAPH_FILE
from moonfed.errors import InvalidInput, TrainingFailed, Unavailable
from moonfed.export.binding import bind, read_metadata
from moonfed.export.coordinator_client import CoordinatorClient, global_model
from moonfed.export.torchvision_import import import_timm, import_torchvision
from moonfed.export.weights.pretrained import Normalisation, PretrainedWeights, Resizing, float_tensors
from moonfed.export.weights.state_dict_task import FILE
from moonfed.export.weights.tokenizer import TOKENIZER_FILE
from moonfed.files import require_file
from moonfed.sandbox.messages import encode
from moonfed.sandbox.plan_process import SECONDS, plan_process
from moonfed.sandbox.sandboxed_process import shared_file

CONVERT = "moonfed.export.weights.state_dict_task"
PICKLED = (".pth", ".pt", ".bin")
ALLOWED = "a .safetensors, .pth or .onnx file, torchvision:default, timm:default, hf:DIRECTORY or run:NAME[@ROUND]"
TORCHVISION_LICENCE = "BSD-3-Clause"  # where weights state no other
HUB_FILE = "model.safetensors"
RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
LICENCE_LINES = 100  # of a README.md, within which its licence is looked for
FetchRun = Callable[[str, int | None], PretrainedWeights]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsOptions:
    """The source of weights, and what of them is taken."""

    source: str
    renames: Mapping[str, str]
    keep_head: bool = False
    licence: str = ""  # in place of the source's


def _no_run(name: str, round_number: int | None) -> PretrainedWeights:
    raise InvalidInput(field="weights", value=f"run:{name}", rest="; runs are for `moonfed-export bundle --weights`")


def read_weights(options: WeightsOptions, model: str, fetch_run: FetchRun = _no_run) -> PretrainedWeights:
    """Read what `options.source` names; raise InvalidInput for what it does not hold.

    `model`: the network's name, whose weights `torchvision:` and `timm:` select. `fetch_run`: fetches a run's global
    model.
    """
    kind, separator, rest = options.source.partition(":")
    if kind == "run" and separator:
        found = fetch_run(*_run(options.source, rest))
    elif kind == "torchvision" and separator:
        found = _torchvision(rest, model)
    elif kind == "timm" and separator:
        found = _timm(rest, model)
    elif kind == "hf" and separator:
        found = _hugging_face(Path(rest))
    else:
        found = read_file(Path(options.source))
    licence = options.licence or found.licence
    return replace(found, renames=options.renames, keep_head=options.keep_head, licence=licence)


def read_file(path: Path) -> PretrainedWeights:
    """Read a .safetensors, .pth or .onnx file."""
    suffix = path.suffix.lower()
    if suffix not in (".safetensors", ".onnx", *PICKLED):
        raise InvalidInput(field="weights", value=str(path), allowed=ALLOWED)
    require_file("weights", path)
    content = path.read_bytes()
    if suffix == ".onnx":
        return _of_graph(content, path.name)
    return PretrainedWeights(source=path.name, sha256=_sha256(content), tensors=_tensors(content, path))


def _tensors(content: bytes, path: Path) -> dict[str, torch.Tensor]:
    read = _safetensors if path.suffix.lower() == ".safetensors" else _state_dict
    return read(content, path.name)


def _sha256(content: bytes) -> str:
    return ref_of_bytes(content).sha256


def _of_graph(content: bytes, name: str) -> PretrainedWeights:
    """Read moonfed's own ONNX graph, whose initialisers have the names of the network's tensors."""
    entries = read_metadata(content, name)
    if "model" not in entries:
        raise InvalidInput(field="weights", value=name, rest=", which `moonfed-export onnx` did not write")
    tensors = {
        each.name: torch.from_numpy(onnx.numpy_helper.to_array(each).copy())
        for each in onnx.ModelProto.FromString(content).graph.initializer
        if "." in each.name and not each.name.startswith("preprocessing.")
    }
    return PretrainedWeights(
        source=name,
        sha256=_sha256(content),
        tensors=float_tensors(tensors, name),
        normalisation=_of_preprocessing(entries),
        whole=True,  # layers may be folded into others, whose own values then make no sense
    )


def of_run(runs: CoordinatorClient, run: str, round_number: int | None) -> PretrainedWeights:
    """Fetch a run's global model, by default the newest; its bundle's graph tells the normalisation."""
    found = runs.run(run)
    manifest, chosen = runs.manifest(found), global_model(found, runs.rounds(run), round_number)
    vector = np.array(open_model(runs.fetch(chosen.ref), manifest.tensors))
    graph = bind(runs.fetch(manifest.files[GRAPH_FILE]).read_bytes(), vector, manifest)
    tensors = {name: torch.from_numpy(values) for name, values in split(vector, manifest.tensors).items()}
    return PretrainedWeights(
        source=f"run {run}, round {chosen.round}",
        sha256=chosen.ref.sha256,
        tensors=float_tensors(tensors, f"run {run}"),
        normalisation=_of_preprocessing(read_metadata(graph)),
    )


def _of_preprocessing(entries: Mapping[str, str]) -> Normalisation | None:
    """Return the normalisation that a graph applies, see `binding`; None if it changes nothing."""
    steps = json.loads(entries.get("preprocessing", "{}"))
    if "factor" in steps:
        deviation = [1 / (255 * value) for value in steps["factor"]]
        mean = [-shift * each for shift, each in zip(steps["shift"], deviation, strict=True)]
    else:
        mean, deviation = steps.get("mean", []), steps.get("deviation", [])
    found = Normalisation(mean=_rounded(mean), deviation=_rounded(deviation))
    return found if any(found.mean) or set(found.deviation) - {1.0} else None


def _rounded(values: list[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)


def _run(source: str, text: str) -> tuple[str, int | None]:
    name, _, round_ = text.partition("@")
    if not name or (round_ and not round_.isdecimal()) or ("@" in text and not round_):
        raise InvalidInput(field="weights", value=source, allowed="run:NAME or run:NAME@ROUND")
    return name, int(round_) if round_ else None


def _safetensors(content: bytes, name: str) -> dict[str, torch.Tensor]:
    try:
        return float_tensors(load(content), name)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InvalidInput(field="weights", value=name, rest=f", which is no safetensors file: {error}") from error


def _state_dict(content: bytes, name: str) -> dict[str, torch.Tensor]:
    results, converted = shared_file()
    try:
        settings = {"name": name, "results": results}
        with plan_process(CONVERT, {FILE: content}, settings, (results,), 4 * len(content) + (1 << 20)) as child:
            child.answer(encode("convert"), "converted", seconds=SECONDS)
        size = os.fstat(converted).st_size
        return _safetensors(os.pread(converted, size, 0), name)
    except TrainingFailed as error:
        raise InvalidInput(field="weights", value=name, rest=f", which cannot be read: {error}") from error
    finally:
        os.close(results)
        os.close(converted)


def _torchvision(name: str, model: str) -> PretrainedWeights:
    network = _network("torchvision", name, model)
    models = import_torchvision().models
    known = models.get_model_weights(network)
    wanted = "DEFAULT" if name == "default" else name
    if wanted not in known.__members__:
        names = [each.name for each in known]
        raise _unknown_weights("torchvision", name, network, names)
    weights = known[wanted]
    content = _downloaded(weights.url).read_bytes()
    transforms = weights.transforms()
    title = f"torchvision {network} {weights.name}"
    return PretrainedWeights(
        source=title,
        sha256=_sha256(content),
        tensors=_state_dict(content, title),
        licence=weights.meta.get("license", TORCHVISION_LICENCE),
        url=weights.url,
        normalisation=Normalisation(mean=tuple(transforms.mean), deviation=tuple(transforms.std)),
        resizing=Resizing(
            interpolation=transforms.interpolation.value,
            sides=(transforms.crop_size[0], transforms.crop_size[0]),
            cropped=True,
        ),
    )


def _timm(name: str, model: str) -> PretrainedWeights:
    """Read the weights of a network of timm: from the hub that timm names, or from its URL where there is none."""
    network = _network("timm", name, model)
    timm = import_timm()
    base = network.partition(".")[0]
    wanted = network if name == "default" else f"{base}.{name}"
    known = [each.partition(".")[2] for each in timm.list_pretrained(f"{base}.*")]
    try:
        stated = timm.get_pretrained_cfg(wanted)
    except RuntimeError as error:
        raise _unknown_weights("timm", name, network, known) from error
    if not stated.hf_hub_id and not stated.url:
        raise _unknown_weights("timm", name, network, known)
    title = f"timm {base}.{stated.tag}" if stated.tag else f"timm {base}"
    if stated.hf_hub_id:
        path, url = _from_hub(stated.hf_hub_id)
    else:
        path, url = _downloaded(stated.url), stated.url
    content = path.read_bytes()
    return PretrainedWeights(
        source=title,
        sha256=_sha256(content),
        tensors=_safetensors(content, title) if path.suffix == ".safetensors" else _state_dict(content, title),
        licence=stated.license or "",
        url=url,
        normalisation=Normalisation(mean=tuple(stated.mean), deviation=tuple(stated.std)),
        resizing=Resizing(
            interpolation=stated.interpolation,
            sides=(stated.input_size[1], stated.input_size[2]),
            cropped=stated.crop_mode != "squash",
        ),
    )


def _from_hub(repository: str) -> tuple[Path, str]:
    """Return the file of a repository's weights, downloaded unless it is in the hub's cache, and its URL."""
    hub = importlib.import_module("huggingface_hub")  # which timm asks for
    url = hub.hf_hub_url(repository, HUB_FILE)
    try:
        return Path(hub.hf_hub_download(repository, HUB_FILE)), url
    except Exception as error:  # the hub's client raises its own, httpx's and requests' errors
        reason = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
        raise Unavailable(f"{url} could not be downloaded: {reason}; fetch it, and name the file") from error


def _network(library: str, name: str, model: str) -> str:
    """Return the name within the library of the model that its weights are for."""
    kind, _, network = model.partition(":")
    if kind != library or not network:
        raise InvalidInput(
            f"weights is '{library}:{name}' and model {model!r}; with it the model must be {library}:NAME",
            field="weights",
            value=f"{library}:{name}",
        )
    return network


def _unknown_weights(library: str, name: str, network: str, known: list[str]) -> InvalidInput:
    allowed = f"{library}: and one of default, {', '.join(known)}" if known else "a file, as there are none"
    return InvalidInput(
        f"weights is '{library}:{name}'; for {network} it must be {allowed}",
        field="weights",
        value=f"{library}:{name}",
    )


def _downloaded(url: str) -> Path:
    """Return the file that torch keeps of a URL, downloading it unless it is there."""
    name = url.rpartition("/")[2]
    path = Path(torch.hub.get_dir(), "checkpoints", name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        prefix = name.rpartition("-")[2].partition(".")[0]
        try:
            torch.hub.download_url_to_file(url, str(path), hash_prefix=prefix)
        except (OSError, RuntimeError) as error:
            raise Unavailable(f"{url} could not be downloaded: {error}; fetch it, and name the file") from error
    return path


def _hugging_face(directory: Path) -> PretrainedWeights:
    """Read a directory in the layout of Hugging Face: weights, and what it states of preprocessing and licence."""
    files = sorted(directory.glob("*.safetensors")) or sorted(directory.glob("pytorch_model*.bin"))
    if not files:
        raise InvalidInput(
            field="weights",
            value=f"hf:{directory}",
            rest="; the directory must hold *.safetensors or pytorch_model.bin",
        )
    preprocessor = _read_object(directory / "preprocessor_config.json")
    digest, tensors = hashlib.sha256(), dict[str, torch.Tensor]()
    for path in files:
        content = path.read_bytes()
        digest.update(content)
        tensors |= _tensors(content, path)
    return PretrainedWeights(
        source=directory.resolve().name,
        sha256=digest.hexdigest(),
        tensors=tensors,
        licence=_stated_licence(directory / "README.md"),
        normalisation=_stated_normalisation(preprocessor),
        resizing=_stated_resizing(preprocessor),
        tokenizer=tokenizer_file(f"hf:{directory}"),
    )


def tokenizer_file(source: str) -> Path | None:
    """Return the tokenizer.json of a directory of Hugging Face; None of other sources, or if it has none."""
    kind, _, directory = source.partition(":")
    path = Path(directory, TOKENIZER_FILE)
    return path if kind == "hf" and path.is_file() else None


def _stated_licence(readme: Path) -> str:
    """Return the licence in the first lines of a README.md, between two lines of dashes; empty if there is none."""
    if not readme.is_file():
        return ""
    first, *lines = readme.read_text("utf-8", errors="replace").splitlines()[:LICENCE_LINES] or [""]
    for line in lines if first.strip() == "---" else []:
        if line.strip() == "---":
            break
        key, _, value = line.partition(":")
        if key == "license":
            return value.strip().strip("\"'")
    return ""


def _read_object(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; an empty one if there is none, or it cannot be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _stated_normalisation(preprocessor: Mapping[str, Any]) -> Normalisation | None:
    try:
        if not preprocessor.get("do_normalize", True):
            return None
        mean, deviation = (tuple(map(float, preprocessor[key])) for key in ("image_mean", "image_std"))
    except (ValueError, KeyError, TypeError):
        return None  # of samples that are no images, or in a layout of somebody else's
    return Normalisation(mean=mean, deviation=deviation)


def _stated_resizing(preprocessor: Mapping[str, Any]) -> Resizing:
    cropped = bool(preprocessor.get("do_center_crop") and preprocessor.get("crop_size"))
    size = preprocessor.get("crop_size" if cropped else "size")
    size = {"height": size, "width": size} if isinstance(size, int) else size
    try:
        sides = int(size["height"]), int(size["width"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        sides = None  # only the shorter side's, or none
    number = preprocessor.get("resample")
    interpolation = RESAMPLING[number] if isinstance(number, int) and 0 <= number < len(RESAMPLING) else ""
    return Resizing(interpolation=interpolation, sides=sides, cropped=cropped)
