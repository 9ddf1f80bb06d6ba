"""Rows of tables as samples: encoding, bad cells, and every way in which a file can be wrong."""

from __future__ import annotations

import csv
import io
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.bad_cells import UnusableTable
from moonfed.data.open_source import open_source
from moonfed.data.source import IF_PRESENT, IGNORED
from moonfed.data.spelling import NUMBER
from moonfed.data.table import TableSource
from moonfed.data.table_spec import Column, TableSpec
from moonfed.errors import InvalidInput
from tests.support.refusals import refused
from tests.support.tables import CLASSES, GOOD, INPUT, read, write_csv, write_parquet

SAME_FILE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


def test_rows_become_features_and_labels(tmp_path: Path) -> None:
    samples = read(write_csv(tmp_path / "customers.csv", GOOD))
    assert samples.inputs.tolist() == [[31.5, 0, 1], [-40, 1, 0], [0.5, 0, 1]]
    assert samples.inputs.dtype == np.float32
    assert samples.inputs.flags.writeable
    assert samples.inputs.flags.c_contiguous
    assert samples.labels.tolist() == [0, 1, 0]
    assert samples.classes == CLASSES
    assert samples.table == INPUT.table
    assert samples.names() == ["customers.csv, row 2", "customers.csv, row 3", "customers.csv, row 4"]


def test_blank_lines_and_white_space_do_not_count(tmp_path: Path) -> None:
    text = "\ufeff id, plan ,age,churn\r\n\r\n1, plus ,\t31.5,no \r\n\r\n2,basic,-4e1,yes\r\n,,,\r\n\r\n"
    samples = read(write_csv(tmp_path / "customers.csv", text))
    assert samples.inputs.tolist() == [[31.5, 0, 1], [-40, 1, 0]]
    assert samples.names() == ["customers.csv, row 3", "customers.csv, row 5"]


@pytest.mark.parametrize("cells", [",,", " ,,\t", '"","",""', ",,?"], ids=["empty", "spaces", "quoted", "marked"])
def test_a_row_with_any_cell_counts_although_the_models_columns_are_empty(tmp_path: Path, cells: str) -> None:
    path = write_csv(tmp_path / "c.csv", f"id,plan,age,churn\n1,plus,1,no\n2,{cells}\n,{cells.replace('?', '')}\n")
    with pytest.raises(UnusableTable, match="has 3 cells"):
        read(path)


def test_a_quote_that_swallows_lines_is_reported_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = TableSource(write_csv(tmp_path / "c.csv", 'plan,age,churn,note\nplus,1,no,"5 inch\nplus,2,no,5 inch"\n'))
    notes = [source.read(INPUT, class_target(CLASSES)).notes for _ in range(2)]
    assert notes[0] == notes[1]
    assert [record.message for record in caplog.records] == list(notes[0])


def test_the_largest_number_of_32_bits_is_allowed(tmp_path: Path) -> None:
    largest = np.finfo(np.float32).max
    text = f"plan,age,churn\nplus,{largest},no\nplus,{float(largest)!r},no\n"
    assert read(write_csv(tmp_path / "c.csv", text)).inputs[:, 0].tolist() == [largest, largest]


def test_quoted_cells_may_hold_commas_and_line_breaks(tmp_path: Path) -> None:
    text = 'note,plan,age,churn\n"a, b\nc ""d""",plus,1,no\n"e",basic,x,yes\n'
    with pytest.raises(InvalidInput, match=r"customers\.csv, row 3, column age: 'x' is not a number$"):
        read(write_csv(tmp_path / "customers.csv", text))


def test_one_bad_cell_is_reported_by_row_and_column(tmp_path: Path) -> None:
    rows = "".join(f"{i},plus,{'abc' if i == 16 else i},no\n" for i in range(1, 40))
    path = write_csv(tmp_path / "customers.csv", "id,plan,age,churn\n" + rows)
    with pytest.raises(UnusableTable) as error:
        read(path)
    assert str(error.value) == f"{path}, row 17, column age: 'abc' is not a number"
    assert error.value.public == f"{path}, row 17, column age: a value is not a number"


def test_several_bad_cells_are_counted_and_the_first_shown(tmp_path: Path) -> None:
    text = "plan,age,churn\ngold,,maybe\nplus,1e99,no\n,nan,\nbasic,3,yes\n"
    path = write_csv(tmp_path / "customers.csv", text)
    with pytest.raises(UnusableTable) as error:
        read(path)
    assert str(error.value).startswith(f"{path} has 7 cells ")
    assert str(error.value).endswith("column churn: 'maybe' is not one of no, yes; and 4 more")
    assert "gold" not in error.value.public
    assert "maybe" not in error.value.public


def test_bad_cells_of_all_batches_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonfed.data.table_reader.BLOCK_BYTES", 4000)
    rows = "".join(f"plus,{'x' if i % 1000 == 998 else i},no\n" for i in range(5000))
    with pytest.raises(UnusableTable, match=r"has 5 cells .* row 1000, .* row 2000, .* row 3000, .*; and 2 more"):
        read(write_csv(tmp_path / "customers.csv", "plan,age,churn\n" + rows))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no header; its first row must name the columns"),
        ("\n1,2\n", "has no header"),
        ("plan,age,churn", "has no rows; at least one is needed"),
        ("plan,age,churn\n", "has no rows"),
        ("plan,age,churn\n\n\n", "has no rows"),
        ("plan;age;churn\nplus;1;no\n", "columns that are separated by semicolons; they must be separated by commas"),
        ("plan\tage\tchurn\nplus\t1\tno\n", "columns that are separated by tabs"),
        ("plan,age,age,churn\n", "has 2 columns with the name 'age'; names must differ"),
        ("plan,churn\n", "lacks the column 'age', which the model takes; its columns are plan, churn"),
        ("id,churn\n", "lacks the columns 'age', 'plan', which the model takes"),
        ("plan,age\nplus,1\n", "lacks the column 'churn', which the model takes"),
        ("plan,age,churn\nplus,1\n", r"row 2 has 2 cells where the header has 3; a cell with a comma"),
        ("plan,age,churn\nplus,1,no\nplus,1,no,x\nplus\n", "row 3 has 4 cells where the header has 3; a cell"),
        ("plan,age,churn\nplus,1,no\n" + "x" * (2 << 20), "has a row of more than .*; is a quote missing"),
        ('plan,age,churn\nplus,1,"no\n' + "x" * (2 << 20), "row 2 has a quote"),
        (b"plan,age,churn\nplus,1,no\npl\xfcs,1,no\n", "is not UTF-8 in line 3; save it as UTF-8"),
        ("plan,age,churn\n".encode("utf-16"), "header that (is not UTF-8|cannot be read)"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_reason(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write_csv(tmp_path / "customers.csv", content)
    with pytest.raises(InvalidInput, match=message) as error:
        read(path)
    assert str(error.value).startswith(str(path))


def test_a_missing_header_is_not_repeated_in_public(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "customers.csv", "Jane Roe,31,no\n")
    with pytest.raises(UnusableTable) as error:
        read(path)
    assert "Jane Roe" not in error.value.public


def test_labels_are_read_if_they_are_wanted(tmp_path: Path) -> None:
    unlabelled = write_csv(tmp_path / "unlabelled.csv", "plan,age\nplus,1\n")
    assert read(unlabelled, IF_PRESENT).targets is None
    with refused(InvalidInput, "labels"):
        _ = read(unlabelled, IF_PRESENT).labels
    wrong = write_csv(tmp_path / "wrong.csv", "plan,age,churn\nplus,1,maybe\n")
    assert read(wrong, IGNORED).targets is None
    with pytest.raises(UnusableTable, match="'maybe' is not one of no, yes"):
        read(wrong, IF_PRESENT)


def test_another_target_may_be_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "customers.csv", "plan,age,churn,left\nplus,1,?,yes\n")
    assert read(path, target="left").labels.tolist() == [1]
    with pytest.raises(InvalidInput, match="lacks the column 'gone'"):
        read(path, IF_PRESENT, target="gone")
    with refused(InvalidInput, "target", "age"):
        read(path, target="age")


@pytest.mark.parametrize(
    ("known", "cells", "labels"),
    [
        (("0", "1"), ("1.0", "0.0", "1"), [1, 0, 1]),
        (("0.0", "1.0"), ("1", "0", "1e0"), [1, 0, 1]),
        (("false", "true"), ("True", "FALSE", "true"), [1, 0, 1]),
        (("caf\u00e9", "no"), ("cafe\u0301", "no", "caf\u00e9"), [0, 1, 0]),
        (("cafe\u0301", "no"), ("caf\u00e9", "no", "cafe\u0301"), [0, 1, 0]),
    ],
    ids=["whole", "points", "booleans", "composed", "decomposed"],
)
def test_classes_and_categories_may_be_spelt_otherwise(
    tmp_path: Path, known: tuple[str, str], cells: tuple[str, ...], labels: list[int]
) -> None:
    path = write_csv(tmp_path / "c.csv", "kind,left\n" + "".join(f"{cell},{cell}\n" for cell in cells))
    spec = TableSpec(columns=(Column(name="kind", categories=known),), targets=("left",))
    samples = TableSource(path).read(InputSpec(kind="features", shape=(2,), table=spec), class_target(known))
    assert samples.labels.tolist() == labels
    assert samples.inputs.argmax(axis=1).tolist() == labels


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("given", ["caf\u00e9", "cafe\u0301"], ids=["composed", "decomposed"])
@pytest.mark.parametrize("held", ["caf\u00e9", "cafe\u0301"], ids=["holds-composed", "holds-decomposed"])
def test_names_of_columns_may_be_composed_or_not(tmp_path: Path, suffix: str, given: str, held: str) -> None:
    path, columns = tmp_path / f"c{suffix}", {held: ["1"], f"{held}s": ["no"]}
    if suffix == ".csv":
        write_csv(path, "\n".join(",".join(cells) for cells in (columns, ("1", "no"))))
    else:
        write_parquet(path, columns)
    spec = InputSpec(
        kind="features", shape=(1,), table=TableSpec(columns=(Column(name=given),), targets=(f"{given}s",))
    )
    for target in ("", f"{given}s"):
        samples = TableSource(path, target).read(spec, class_target(CLASSES))
        assert (samples.inputs.tolist(), samples.labels.tolist()) == ([[1]], [0])


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (InputSpec(kind="image", shape=(4, 4, 1)), ("table", ANY)),
        (InputSpec(kind="features", shape=(3,)), ("table", ANY)),
    ],
)
def test_a_bundle_without_columns_takes_no_table(tmp_path: Path, spec: InputSpec, named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        TableSource(write_csv(tmp_path / "customers.csv", GOOD)).read(spec, class_target(CLASSES))


def test_parquet_files_are_read_alike(tmp_path: Path) -> None:
    ages, plans, churns = [31.5, -40, 0.5], ["plus", "basic", "plus"], ["no", "yes", "no"]
    expected = read(write_csv(tmp_path / "customers.csv", GOOD))
    for age in (ages, pa.array(ages, pa.float32()), [str(age) for age in ages]):
        for plan in (plans, pa.array(plans).dictionary_encode(), pa.array(plans, pa.large_string())):
            path = write_parquet(tmp_path / "customers.parquet", {"churn": churns, "age": age, "plan": plan})
            samples = read(path)
            assert np.array_equal(samples.inputs, expected.inputs)
            assert np.array_equal(samples.labels, expected.labels)
    assert samples.names()[0] == "customers.parquet, row 1"


@pytest.mark.parametrize(
    ("name", "below"),
    [("customers.parquet", ""), ("customers", ""), ("customers.parquet", "churn=no")],
    ids=["spark", "unnamed", "hive"],
)
def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path, name: str, below: str) -> None:
    folder, wanted = tmp_path / name, {} if below else {"churn": ["no", "no"]}
    (folder / below).mkdir(parents=True)
    for part in (1, 0):
        columns = {"age": [part, 5], "plan": ["plus", "basic"], **wanted}
        write_parquet(folder / below / f"part-0000{part}.parquet", columns)
    (folder / "_SUCCESS").touch()
    (folder / ".part.crc").write_text("x")
    source = open_source(str(folder))
    source.check()
    samples = source.read(INPUT, class_target(CLASSES))
    assert samples.inputs[:, 0].tolist() == [0, 5, 1, 5]
    assert samples.labels.tolist() == [0] * 4
    assert samples.names()[3] == f"{name}, row 4"
    before = source.fingerprint()
    write_parquet(folder / below / "part-00001.parquet", {"age": [1, 6], "plan": ["plus", "plus"], **wanted})
    assert source.fingerprint() != before
    (folder / below / "part-00002.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInput, match="is not a Parquet file, or is damaged"):
        source.read(INPUT, class_target(CLASSES))


@pytest.mark.parametrize(
    ("values", "known", "labels"),
    [([0, 1, 1], ("0", "1"), [0, 1, 1]), ([True, False], ("false", "true"), [1, 0]), ([1.0, 2.0], ("1", "2"), [0, 1])],
)
def test_classes_of_parquet_files_may_be_numbers(
    tmp_path: Path, values: list[Any], known: tuple[str, ...], labels: list[int]
) -> None:
    columns = {"age": [1] * len(values), "plan": ["plus"] * len(values), "churn": values}
    assert read(write_parquet(tmp_path / "c.parquet", columns), classes=known).labels.tolist() == labels


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": [1.0, None]}, "row 2, column age"),
        ({"age": [float("nan"), 1]}, "row 1, column age"),
        ({"age": [1.0, float("inf")]}, "row 2, column age: 'inf' is too large"),
        ({"age": [1e300, 1]}, r"row 1, column age: '1e\+300' is too large"),
        ({"plan": ["plus", None]}, "row 2, column plan"),
        ({"age": [[1], [2]]}, "column age has type list<.*>; it must be numbers or text"),
        ({"plan": [[1], [2]]}, "column plan has type list<.*>; it must be text, numbers or booleans"),
        ({"age": pa.array([1, 2], pa.timestamp("s"))}, "column age has type timestamp"),
    ],
)
def test_wrong_cells_of_parquet_files_are_reported(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    good = {"age": [1, 2], "plan": ["plus", "plus"], "churn": ["no", "no"]}
    with pytest.raises(InvalidInput, match=message):
        read(write_parquet(tmp_path / "c.parquet", good | columns))


def test_a_damaged_parquet_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "c.parquet").write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(InvalidInput, match=r"c\.parquet is not a"):
        read(tmp_path / "c.parquet")
    columns = {"age": list(range(9000)), "plan": ["plus"] * 9000, "churn": ["no"] * 9000}
    path = write_parquet(tmp_path / "d.parquet", columns)
    content = bytearray(path.read_bytes())
    content[20:200] = bytes(180)
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"d\.parquet is not a"):
        read(path)


def test_without_pyarrow_the_error_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with refused(InvalidInput, "pyarrow"):
        TableSource(write_csv(tmp_path / "customers.csv", GOOD)).check()


def test_pyarrow_is_imported_only_for_tables() -> None:
    import subprocess

    script = "import sys, moonfed.data.open_source, moonfed.edge_client.worker.reader; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_large_table_grows_in_place(tmp_path: Path) -> None:
    rows = 60_000
    path = write_csv(tmp_path / "customers.csv", "plan,age,churn\n" + "plus,1.25,no\nbasic,2.5,yes\n" * (rows // 2))
    samples = read(path)
    assert samples.inputs.shape == (rows, 3)
    assert samples.inputs[-1].tolist() == [2.5, 1, 0]
    assert samples.labels.sum() == rows // 2


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
names = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")), min_size=1, max_size=8)


@SAME_FILE
@given(st.lists(st.tuples(numbers, st.integers(0, 4), st.integers(0, 2)), min_size=1), st.data())
def test_every_table_survives_a_round_trip_through_csv(
    tmp_path: Path, rows: list[tuple[float, int, int]], data: st.DataObject
) -> None:
    distinct = st.lists(names, min_size=5, max_size=5, unique=True)
    categories, classes = tuple(data.draw(distinct)), tuple(data.draw(distinct)[:3])
    column_names = data.draw(st.lists(names, min_size=3, max_size=3, unique=True))
    age, plan, churn = column_names
    spec = TableSpec(columns=(Column(name=age), Column(name=plan, categories=categories)), targets=(churn,))
    order = data.draw(st.permutations(range(3)))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column_names[i] for i in order])
    for number, category, label in rows:
        cells = [repr(number), categories[category], classes[label]]
        writer.writerow([cells[i] for i in order])
    path = write_csv(tmp_path / "any.csv", text.getvalue())
    samples = TableSource(path).read(InputSpec(kind="features", shape=(6,), table=spec), class_target(classes))
    assert samples.inputs[:, 0].tolist() == [np.float32(number) for number, _, _ in rows]
    assert samples.inputs[:, 1:].argmax(axis=1).tolist() == [category for _, category, _ in rows]
    assert (samples.inputs[:, 1:].sum(axis=1) == 1).all()
    assert samples.labels.tolist() == [label for _, _, label in rows]


@SAME_FILE
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"\r\n\0'), max_size=60))
def test_any_cell_is_a_number_or_reported_without_it_in_public(tmp_path: Path, cell: str) -> None:
    path = write_csv(tmp_path / "any.csv", f'plan,age,churn\nplus,"{cell}",no\nplus,1,no\n')
    found = NUMBER.fullmatch(cell.strip())
    if found and abs(float(found[0])) < 3.4028235677973366e38:
        assert read(path).inputs[0, 0] == np.float32(float(found[0]))
        return
    with pytest.raises(UnusableTable) as error:
        read(path)
    assert f"{path}, row 2, column age: " in str(error.value)
    assert error.value.public in (
        f"{path}, row 2, column age: a value is not a number",
        f"{path}, row 2, column age: a value is too large",
        f"{path}, row 2, column age: the value is missing",
    )


@SAME_FILE
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_rejected(tmp_path: Path, content: bytes, headed: bool) -> None:
    with suppress(InvalidInput):
        samples = read(write_csv(tmp_path / "any.csv", (b"plan,age,churn\n" if headed else b"") + content))
        assert len(samples) > 0
