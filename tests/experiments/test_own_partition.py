"""A user's own samples, split over devices in their own format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from moonfed.data.bad_cells import UnusableTable
from moonfed.data.table_reader import read_batches
from moonfed.errors import InvalidInput
from moonfed.experiments.cli import app
from moonfed.experiments.group import read_names
from moonfed.experiments.own_data import OwnData, usual_task
from moonfed.experiments.own_partition import partition_own_data
from moonfed.experiments.partition import PartitionSettings
from moonfed.export.table_description import read_description
from tests.support.device_samples import draw
from tests.support.refusals import refused
from tests.support.tables import write_csv, write_parquet

SETTINGS = PartitionSettings(devices=2, beta=5)


def test_rows_of_a_csv_file_keep_all_columns_and_their_text(tmp_path: Path) -> None:
    rows = [[f"{i:03d}", "a, b" if i % 2 else 'c "d"', f"{i}.50", "yes" if i % 3 else "no"] for i in range(50)]
    with (tmp_path / "customers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "plan", "age", "churn"])
        for row in rows:
            writer.writerow(row)
            file.write("\n")  # a blank line
    written = partition_own_data(
        OwnData(text=str(tmp_path / "customers.csv"), target="churn"), SETTINGS, tmp_path / "parts"
    )
    found = []
    for path in (*written.devices, written.test):
        with path.open(newline="") as file:
            header, *part = csv.reader(file)
        assert header == ["number", "plan", "age", "churn"]
        found.append(part)
    assert sorted(row for part in found for row in part) == rows
    assert [len(part) for part in found] == [*written.counts.sum(axis=1), written.tested]
    for part, count in zip(found, written.counts, strict=False):
        labels = [row[3] for row in part]
        assert [labels.count("no"), labels.count("yes")] == count.tolist()
    description = read_description(tmp_path / "parts" / "columns.json")
    assert description.table.names == ("number", "plan", "age")
    assert OwnData(text=str(written.test), columns=str(tmp_path / "parts" / "columns.json")).read().labels.any()
    assert json.loads((tmp_path / "parts" / "partition.json").read_text())["classes"] == ["no", "yes"]


def test_rows_of_a_parquet_file_keep_their_types(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    columns = {"age": list(range(50)), "note": [[i] for i in range(50)], "churn": [bool(i % 2) for i in range(50)]}
    source = write_parquet(tmp_path / "customers.parquet", columns | {"plan": ["a", "b"] * 25})
    write_csv(tmp_path / "columns.json", json.dumps(
        {"format": "moonfed-columns/2",
         "target": {"columns": ["churn"], "kind": "class", "names": ["false", "true"], "shape": []},
         "columns": [{"name": "age", "mean": 0, "deviation": 1}, {"name": "plan", "categories": ["a", "b"]}]}
    ))  # fmt: skip
    data = OwnData(text=str(source), columns=str(tmp_path / "columns.json"))
    written = partition_own_data(data, SETTINGS, tmp_path / "parts")
    tables = [pq.read_table(path) for path in (*written.devices, written.test)]
    assert {table.schema for table in tables} == {pq.read_schema(source)}
    assert sorted(age for table in tables for age in table["age"].to_pylist()) == list(range(50))
    for table in tables:
        assert table["note"].to_pylist() == [[age] for age in table["age"].to_pylist()]


def test_windows_of_rows_stay_with_their_device_and_none_is_also_in_the_test(tmp_path: Path) -> None:
    rows = [f"{site},{step}" for step in range(60) for site in ("a", "b")]
    source = write_csv(tmp_path / "load.csv", "site,load\n" + "\n".join(rows) + "\n")

    def described(group: str) -> OwnData:
        fields = {
            "window": 4,
            "columns": [{"name": "load", "mean": 0, "deviation": 1}],
            **({"group": group} if group else {}),
        }
        target = {"columns": ["load"], "kind": "values", "names": ["load"], "shape": [2, 1]}
        columns = tmp_path / f"columns{group}.json"
        columns.write_text(json.dumps({"format": "moonfed-columns/2", "target": target, "group": group, **fields}))
        return OwnData(text=str(source), columns=str(columns), task=usual_task(str(columns)))

    with refused(InvalidInput, "by"):
        partition_own_data(described("site"), SETTINGS, tmp_path / "torn")
    with refused(InvalidInput, "group"):
        partition_own_data(described(""), SETTINGS, tmp_path / "torn", "site")
    written = partition_own_data(described("site"), SETTINGS, tmp_path / "parts", "site")
    a, b, test = (path.read_text().split() for path in (*written.devices, written.test))
    assert a[1:] == [f"a,{step}" for step in range(44)]
    assert b[1:] == [f"b,{step}" for step in range(44)]
    assert test[1:] == [f"{site},{step}" for step in range(44, 60) for site in ("a", "b")]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_each_value_of_a_column_is_a_device(tmp_path: Path, suffix: str) -> None:
    sites = ["Ulm", "Berlin", "Ulm", "Köln"] * 20
    churn = ["yes" if i % 3 else "no" for i in range(80)]
    source = tmp_path / f"customers.{suffix}"
    if suffix == "csv":
        lines = "".join(f"{age},{site},{churn[age]}\n" for age, site in enumerate(sites))
        write_csv(source, f"age,site,churn\n{lines}")
    else:
        write_parquet(source, {"age": list(range(80)), "site": sites, "churn": churn})
    parts = tmp_path / "parts"
    words = ["partition", str(source), "--target", "churn", "--by", "site", "--output", str(parts), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    devices = [OwnData(text=str(parts / f"device-{number}.{suffix}"), target="churn") for number in (1, 2, 3)]
    assert [set(read_names(Path(device.text), "site")) for device in devices] == [{"Berlin"}, {"Köln"}, {"Ulm"}]
    ages = [rows_of(Path(device.text)) for device in devices]
    tested = rows_of(parts / f"test.{suffix}")
    for age, site in enumerate(sites):
        assert (age in tested) != (age in ages[["Berlin", "Köln", "Ulm"].index(site)])
    assert json.loads(result.stdout)["counts"] == [
        [sum(churn[age] == label for age in held) for label in ("no", "yes")] for held in ages
    ]
    described = json.loads((parts / "partition.json").read_text())
    assert described["settings"] == {"by": "site", "values": ["Berlin", "Köln", "Ulm"]}


def rows_of(file: Path) -> list[int]:
    """The ages, which number the rows."""
    return [int(value) for batch in read_batches(file, ("age",), []) for value in batch.columns["age"].to_pylist()]


def test_a_column_divides_its_own_table_alone(tmp_path: Path) -> None:
    output = ("--output", tmp_path / "parts")
    np.savez(tmp_path / "samples.npz", inputs=np.zeros((50, 2), np.float32), labels=np.arange(50) % 2)
    source = write_csv(tmp_path / "a.csv", "age,site,churn\n" + "".join(f"{i},a,{i % 2}\n" for i in range(50)))
    table = ("partition", source, "--target", "churn", *output)
    cases: list[tuple[tuple[object, ...], str]] = [
        ((*table, "--by", "town"), "lacks the column 'town'"),
        ((*table, "--by", "site", "--devices", "3"), "devices is '3'"),
        ((*table, "--by", "site", "--partition", "iid"), "partition is 'iid'"),
        (("partition", tmp_path / "samples.npz", "--by", "site", *output), "samples.npz has no field"),
        (("partition", "digits", "--by", "site", *output), "by is 'site'"),
    ]
    for words, message in cases:
        with pytest.raises(InvalidInput, match=message):
            CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False, standalone_mode=False)
    assert not (tmp_path / "parts").exists()


def test_images_are_copied_and_other_files_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for index in range(30):
        draw(tmp_path / "pictures" / ("cat" if index % 2 else "dog") / "more" / f"{index}.png", (index, 0, 0))
    (tmp_path / "pictures" / "cat" / "Thumbs.db").write_bytes(b"previews")
    written = partition_own_data(OwnData(text=str(tmp_path / "pictures")), SETTINGS, tmp_path / "parts")
    assert "1 of 31 files in" in caplog.text
    assert "cat/Thumbs.db" in caplog.text
    assert not list(tmp_path.glob("parts/**/Thumbs.db"))
    assert written.counts.sum() + written.tested == 30
    files = [file.relative_to(part) for part in (*written.devices, written.test) for file in part.rglob("*.png")]
    assert sorted(files) == sorted(
        file.relative_to(tmp_path / "pictures") for file in tmp_path.glob("pictures/**/*.png")
    )
    assert written.tested == len(list(written.test.rglob("*.png"))) == 6
    with refused(InvalidInput, "output"):
        partition_own_data(OwnData(text=str(tmp_path / "pictures")), SETTINGS, tmp_path / "parts")


def test_a_partition_leaves_out_what_devices_leave_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pictures = tmp_path / "pictures"
    for index in range(20):
        draw(pictures / ("cat" if index % 2 else "dog") / f"{index}.png", (index, 0, 0))
        draw(pictures / "cat" / "@eaDir" / f"{index}.png" / "THUMB.jpg", (index, 0, 0))
        draw(tmp_path / "elsewhere" / f"{index}.png", (index, 0, 0))
    draw(pictures / "lost+found" / "x.png", (1, 2, 3))
    draw(pictures / "unsorted" / "x.png", (1, 2, 3))
    draw(pictures / "loose.png", (1, 2, 3))
    Image.fromarray(np.ones((4, 4), np.float32)).save(pictures / "dog" / "float.tif")
    (pictures / "cat" / "2024").symlink_to(tmp_path / "elsewhere")
    data = OwnData(text=str(pictures), ignored_folders=("unsorted",))
    written = partition_own_data(data, SETTINGS, tmp_path / "parts")
    assert written.classes == ("cat", "dog")
    assert written.counts.sum() + written.tested == 40
    assert len(list(tmp_path.glob("parts/*/cat/2024/*.png"))) == 20
    assert len(caplog.messages) == 2
    assert caplog.messages[0].endswith(f"such as {pictures}/loose.png")
    assert "1 of 41 files" in caplog.messages[1]
    read = OwnData(text=str(written.test), input="4x6x3").read()
    assert len(read) == written.tested


def test_arrays_become_npz_files(tmp_path: Path) -> None:
    inputs = np.arange(100, dtype=np.float32).reshape(50, 2)
    np.savez(tmp_path / "samples.npz", inputs=inputs, labels=np.arange(50) % 2)
    written = partition_own_data(OwnData(text=str(tmp_path / "samples.npz")), SETTINGS, tmp_path / "parts")
    parts = [np.load(path) for path in (*written.devices, written.test)]
    assert np.array_equal(np.sort(np.concatenate([part["inputs"] for part in parts]), axis=0), inputs)
    assert all((part["labels"] == part["inputs"][:, 0] // 2 % 2).all() for part in parts)


def test_nothing_is_written_for_a_bad_cell(tmp_path: Path) -> None:
    rows = "".join(f"{'x' if i == 15 else i},{i % 2}\n" for i in range(50))
    source = write_csv(tmp_path / "customers.csv", "age,churn\n" + rows)
    with pytest.raises(UnusableTable, match=r"customers\.csv, row 17, column age: 'x' is not a number"):
        partition_own_data(OwnData(text=str(source), target="churn"), SETTINGS, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
