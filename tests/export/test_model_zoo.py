from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.errors import InvalidInput, NotFound
from moonfed.export.model_zoo import build_network
from moonfed.export.models import MODELS
from moonfed.export.self_checks import network_shape, random_samples
from moonfed.export.torchvision_import import import_timm
from tests.export.conftest import IMAGE
from tests.support.refusals import refused


def test_the_papers_cnn_has_92626_parameters() -> None:
    network = build_network("cnn", IMAGE, class_target(10))
    assert sum(parameter.numel() for parameter in network.parameters()) == 92_626
    assert network.represent(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape == (2, 256)


@pytest.mark.parametrize(
    ("projection", "parameters"),
    [
        (64, 61_156 + 84 * 84 + 84 + 84 * 64 + 64 + 64 * 10 + 10),
        (128, 61_156 + 84 * 84 + 84 + 84 * 128 + 128 + 128 * 10 + 10),
        (None, 61_156 + 84 * 10 + 10),
    ],
)
def test_the_head_can_have_another_width_or_be_absent(projection: int | None, parameters: int) -> None:
    # LeNet-5 for three channels has 62,006 parameters, of which 850 are the output layer's
    network = build_network("cnn", IMAGE, class_target(10), projection=projection)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert network.represent(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape == (2, projection or 84)


def test_lazy_layers_follow_from_the_seed_too() -> None:
    model, before = "tests.support.faulty_networks:lazy", torch.random.get_rng_state()
    one, same, other = (build_network(model, IMAGE, class_target(10), seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["encoder.3.weight"], other["encoder.3.weight"])
    assert torch.equal(before, torch.random.get_rng_state())


def test_invalid_heads_are_rejected() -> None:
    with refused(InvalidInput, "projection", 0):
        build_network("cnn", IMAGE, class_target(10), projection=0)
    with refused(InvalidInput, "projection", None):
        build_network("m:f", IMAGE, class_target(10), projection=None)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (16, 40, 3), (33, 17, 4), (8, 64, 3)])
def test_the_cnn_accepts_any_size_and_number_of_channels(shape: tuple[int, int, int]) -> None:
    network = build_network("cnn", InputSpec(kind="image", shape=shape), class_target(7))
    assert network(torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, 7)


@pytest.mark.parametrize(("model", "head"), [("resnet18", 512), ("resnet50", 2048)])
def test_the_resnets_do_not_shrink_small_images_at_first(model: str, head: int) -> None:
    encoder = build_network(model, InputSpec(kind="image", shape=(32, 32, 2)), class_target(10))
    sizes = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
    assert sizes["encoder.conv1.weight"] == (64, 2, 3, 3)
    assert sizes["projection_head.0.weight"] == (head, head)
    assert sizes["projection_head.2.weight"] == (256, head)
    assert sizes["output_layer.weight"] == (10, 256)
    seen: list[torch.Size] = []
    first_block = encoder.get_submodule("encoder.layer1")
    first_block.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape))
    encoder.eval()(torch.zeros(1, 32, 32, 2, dtype=torch.uint8))
    assert seen == [torch.Size((1, 64, 32, 32))]


@pytest.mark.slow
def test_torchvision_imports_in_a_new_process_without_a_warning() -> None:
    code = "from moonfed.export.torchvision_import import import_torchvision as i; i().models.resnet18(weights=None)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_exception_in_a_custom_model_is_reported_with_its_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_broken_model.py").write_text("def boom(shape, classes):\n    return {}['layers']\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match=r"KeyError in .*my_broken_model\.py, line 2"):
        build_network("my_broken_model:boom", IMAGE, class_target(10))


SERIES = InputSpec(kind="series", shape=(21, 3))
TOKENS = InputSpec(kind="tokens", shape=(8,), vocabulary=("", "a", "b", "c", "d"))
FEATURES = InputSpec(kind="features", shape=(9,))
NEXT, NOTHING = TargetSpec(kind="next", shape=(0,)), TargetSpec(kind="none", shape=(0,))
SAMPLES = {
    "image": InputSpec(kind="image", shape=(17, 20, 2)),
    "small-image": InputSpec(kind="image", shape=(8, 9, 1)),
    "features": FEATURES,
    "series": SERIES,
    "long-series": InputSpec(kind="series", shape=(700, 1)),
    "tokens": TOKENS,
}


def targets_of(sample: InputSpec) -> list[TargetSpec]:
    return [
        class_target(4),
        TargetSpec(kind="labels", names=("x", "y"), shape=(2,)),
        TargetSpec(kind="values", names=("u", "v"), shape=(3, 2)),
        TargetSpec(kind="mask", names=("a", "b", "c"), shape=sample.shape[:2] if sample.kind == "image" else (1, 1)),
        NOTHING,
        NEXT,
    ]


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("model", [name for name in MODELS if "resnet" not in name])
def test_a_network_takes_every_sample_and_target_that_it_is_for(model: str, sample: InputSpec) -> None:
    dense = {"mask", "next"}
    inputs = torch.from_numpy(random_samples(sample, 2))
    for target in targets_of(sample):
        if not MODELS[model].fits(sample, target):
            with pytest.raises(InvalidInput, match=f"model is '{model}'") as error:
                build_network(model, sample, target, dense=target.kind in dense)
            assert "\n" not in str(error.value)
            continue
        network = build_network(model, sample, target, dense=target.kind in dense, projection=None).eval()
        assert tuple(network(inputs).shape[1:]) in network_shape(sample, target)
        assert network.represent(inputs).shape[0] == 2
        assert network.represent(inputs).dim() == 2


def test_a_model_for_another_task_is_refused_with_those_that_fit() -> None:
    mask = TargetSpec(kind="mask", names=("a", "b"), shape=(32, 32))
    with pytest.raises(InvalidInput) as error:
        build_network("cnn", IMAGE, mask, dense=True)
    assert str(error.value) == (
        "model is 'cnn', input.kind 'image' and the task 'segmentation'; models for them are lraspp, unet, "
        "MODULE:CALLABLE"
    )
    for model, sample, target, fitting in (
        ("unet", IMAGE, class_target(2), "torchvision:NAME, timm:NAME"),
        ("timm:resnet18", FEATURES, class_target(2), "mlp, MODULE:CALLABLE"),
        ("torchvision:resnet18", SERIES, class_target(2), "cnn1d, gru, lstm, MODULE:CALLABLE"),
        ("gru", FEATURES, class_target(2), "mlp, MODULE:CALLABLE"),
        ("transformer", TOKENS, NOTHING, "MODULE:CALLABLE"),
    ):
        with pytest.raises(InvalidInput, match=fitting) as error:
            build_network(model, sample, target)
        assert (error.value.field, error.value.value) == ("model", model)


@pytest.mark.parametrize("model", ["autoencoder", "unet", "gru"])
def test_a_network_with_its_own_head_takes_no_projection(model: str) -> None:
    sample, target = {
        "autoencoder": (FEATURES, NOTHING),
        "unet": (IMAGE, TargetSpec(kind="mask", names=("a", "b"), shape=(32, 32))),
        "gru": (TOKENS, NEXT),
    }[model]
    with refused(InvalidInput, "projection", 8):
        build_network(model, sample, target, dense=model != "autoencoder", projection=8)


@pytest.mark.parametrize("model", ["gru", "lstm", "transformer"])
def test_padding_changes_no_representation(model: str) -> None:
    network = build_network(model, TOKENS, class_target(3), projection=None).eval()
    padded = torch.tensor([[1, 2, 3, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]])
    assert network.represent(padded).isfinite().all()
    states = network.encoder.get_submodule("states")
    reduce = network.encoder.get_submodule("reduce")
    known = [part[:1, :3] for part in states(padded)]
    assert torch.allclose(reduce(known), network.represent(padded)[:1], atol=1e-6)
    if model != "transformer":  # whose number of tokens is fixed
        assert torch.allclose(network.encoder(padded[:1, :3]), network.represent(padded)[:1], atol=1e-6)


@pytest.mark.parametrize("model", ["gru", "lstm", "transformer"])
def test_a_prediction_of_the_next_token_depends_on_none_after_it(model: str) -> None:
    network = build_network(model, TOKENS, NEXT, dense=True, projection=None).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 1, 2, 3, 4]])
    other = tokens.clone()
    other[0, 5:] = torch.tensor([4, 4, 0])
    assert torch.allclose(network(tokens)[:, :5], network(other)[:, :5], atol=1e-6)
    assert not torch.allclose(network(tokens)[:, 5], network(other)[:, 5], atol=1e-3)


@pytest.mark.parametrize("model", ["resnet18-gn", "resnet50-gn"])
def test_groups_are_normalised_instead_of_batches(model: str) -> None:
    network = build_network(model, SAMPLES["small-image"], class_target(3))
    kinds = {type(module) for module in network.modules()}
    assert torch.nn.GroupNorm in kinds
    assert torch.nn.BatchNorm2d not in kinds
    plain = build_network(model.removesuffix("-gn"), SAMPLES["small-image"], class_target(3))
    count = sum(parameter.numel() for parameter in network.parameters())
    assert count == sum(parameter.numel() for parameter in plain.parameters())


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
def test_timm_is_asked_for() -> None:
    with pytest.raises(NotFound, match="pip install timm"):
        build_network("timm:resnet18", IMAGE, class_target(2))


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
def test_timms_networks_take_the_images_size_and_channels() -> None:
    grey = InputSpec(kind="image", shape=(32, 32, 1))
    found = build_network("timm:vit_tiny_patch16_224", grey, class_target(2), projection=None)
    plain = import_timm().create_model("vit_tiny_patch16_224", num_classes=0, in_chans=1, img_size=32)
    plain.load_state_dict(found.encoder.state_dict())
    images = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(found.encoder.eval()(images), plain.eval()(images), rtol=1e-5, atol=1e-5)
    assert found(torch.zeros(2, 32, 32, 1, dtype=torch.uint8)).shape == (2, 2)
    with refused(InvalidInput, "model", "timm:resnet1"):
        build_network("timm:resnet1", IMAGE, class_target(2))
