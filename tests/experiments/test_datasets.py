"""The loaders, on files made in the formats that the data sets are published in."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from moonfed.errors import InvalidInput, NotFound
from moonfed.experiments.datasets import augmentation, load_dataset, preprocessing
from tests.support.refusals import refused

GENERATOR = np.random.default_rng(0)


def test_digits_are_real_and_split_by_class() -> None:
    data = load_dataset("digits", None)
    assert data.train.inputs.shape == (1437, 8, 8, 1)
    assert data.test.inputs.shape == (360, 8, 8, 1)
    assert data.train.inputs.max() == 255
    assert np.bincount(data.test.labels).min() >= 35
    together = {image.tobytes() for image in data.train.inputs} & {image.tobytes() for image in data.test.inputs}
    assert len(together) < 5  # the split does not repeat samples; a few scans are alike


def test_an_unknown_name_lists_the_known_ones() -> None:
    with refused(InvalidInput, "data set", "imagenet"):
        load_dataset("imagenet", None)


def test_a_data_set_on_disk_needs_its_folder(tmp_path: Path) -> None:
    with refused(InvalidInput, "data"):
        load_dataset("cifar10", None)
    for name in ("cifar10", "cifar100", "mnist", "fashion-mnist"):
        with pytest.raises(NotFound, match=rf"does not hold .* partition {name} --download"):
            load_dataset(name, tmp_path)
    with refused(NotFound, "Tiny-ImageNet"):
        load_dataset("tiny-imagenet", tmp_path)


def write_idx(path: Path, array: np.ndarray) -> None:
    path.write_bytes(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def test_fashion_mnist_files_become_one_channel_images(tmp_path: Path) -> None:
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    images = GENERATOR.integers(0, 256, (7, 28, 28), dtype=np.uint8)
    labels = np.arange(7, dtype=np.uint8)
    for part in ("train", "t10k"):
        write_idx(raw / f"{part}-images-idx3-ubyte", images)
        write_idx(raw / f"{part}-labels-idx1-ubyte", labels)
    data = load_dataset("fashion-mnist", tmp_path)
    assert np.array_equal(data.train.inputs[..., 0], images)
    assert data.test.labels.tolist() == list(range(7))
    assert data.classes[0] == "T-shirt/top"


def test_cifar10_files_become_colour_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from moonfed.export.torchvision_import import import_torchvision

    cifar10 = import_torchvision().datasets.CIFAR10
    monkeypatch.setattr(cifar10, "_check_integrity", lambda _self: True)
    monkeypatch.setitem(cifar10.meta, "md5", None)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    images = GENERATOR.integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        (folder / name).write_bytes(pickle.dumps({"data": images.reshape(2, -1), "labels": [3, 4]}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    data = load_dataset("cifar10", tmp_path)
    assert data.train.inputs.shape == (10, 32, 32, 3)
    assert np.array_equal(data.test.inputs, images.transpose(0, 2, 3, 1))
    assert data.test.labels.tolist() == [3, 4]


def test_tiny_imagenet_is_read_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n01\nn02\n")
    for name, grey in (("n01", 10), ("n02", 200)):
        (folder / "train" / name / "images").mkdir(parents=True)
        Image.new("L", (64, 64), grey).save(folder / "train" / name / "images" / f"{name}_0.png")
    Image.new("RGB", (64, 64), (1, 2, 3)).save(folder / "val" / "images" / "val_0.png")
    (folder / "val" / "val_annotations.txt").write_text("val_0.png\tn02\t0\t0\t62\t62\n")
    data = load_dataset("tiny-imagenet", tmp_path)
    assert data.train.inputs[:, 0, 0, 0].tolist() == [10, 200]
    assert data.test.inputs[0, 0, 0].tolist() == [1, 2, 3]
    assert data.test.labels.tolist() == [1]


@pytest.mark.parametrize(
    ("name", "width", "classes", "samples"),
    [("breast-cancer", 30, 2, 569), ("wine", 13, 3, 178), ("digits-features", 64, 10, 1797)],
)
def test_tables_come_with_scikit_learn(name: str, width: int, classes: int, samples: int) -> None:
    data = load_dataset(name, None)
    assert data.input.kind == "features"
    assert data.input.shape == (width,)
    assert data.train.inputs.dtype == np.float32
    assert len(data.train.labels) + len(data.test.labels) == samples
    assert len(data.classes) == classes
    shares = [np.bincount(part) / len(part) for part in (data.train.labels, data.test.labels)]
    assert np.abs(shares[0] - shares[1]).max() < 0.02
    scaled = (data.train.inputs - preprocessing(data).mean) / preprocessing(data).deviation
    assert np.abs(scaled.mean(axis=0)).max() < 1e-4
    assert set(np.round(scaled.std(axis=0), 3)) <= {0.0, 1.0}  # 0: a feature that never changes


def test_images_have_the_authors_preprocessing_and_augmentation() -> None:
    digits = load_dataset("digits", None)
    pixels = digits.train.inputs / 255
    assert preprocessing(digits).mean == pytest.approx([pixels.mean()], abs=1e-3)
    assert preprocessing(digits).deviation == pytest.approx([pixels.std()], abs=1e-3)
    assert [augmentation(name) for name in ("cifar10", "cifar100", "tiny-imagenet")] == [
        "crop-flip", "crop-flip-rotate", "none",
    ]  # fmt: skip
