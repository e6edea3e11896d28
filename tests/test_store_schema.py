"""Rows become the declared tables or are refused with the table, column and row."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pyarrow as pa
import pytest
from store_run import STUDENT, generation_tables, member_row

from populora_core.store.schema import check, to_table
from populora_core.store.tables import TABLES
from populora_core.support.errors import SchemaError

MATCH = {
    "generation": 1,
    "match_id": "match-g0001-00",
    "teacher_id": "teacher-00-g0000",
    "student_id": "student-00-g0000",
    "p_student_win": 0.5,
    "weight": 0.25,
}


def test_rows_become_a_table_with_the_declared_schema():
    table = to_table("matches", [MATCH])
    assert table.schema.equals(TABLES["matches"].arrow)
    assert table.to_pylist() == [MATCH]


@pytest.mark.parametrize("name", TABLES)
def test_no_rows_keep_every_declared_type(name):
    table = to_table(name, [])
    assert table.num_rows == 0
    assert table.schema.equals(TABLES[name].arrow)


def test_a_column_of_nulls_keeps_its_type():
    table = to_table("proposal_grades", [{"proposal_id": "p", "reward": None}])
    assert table.schema.field("reward").type == pa.float64()


def test_rows_may_come_from_a_generator():
    assert to_table("matches", (MATCH for _ in range(3))).num_rows == 3


def test_a_missing_and_an_unknown_column_are_both_named():
    row = {name: value for name, value in MATCH.items() if name != "weight"} | {"wieght": 1.0}
    with pytest.raises(SchemaError, match=r"(?s)row 1 of table matches.*no weight; unknown wieght"):
        to_table("matches", [MATCH, row])


@pytest.mark.parametrize(
    ("column", "value", "came"),
    [
        ("generation", "1", "str '1'"),
        ("generation", True, "bool True"),
        ("generation", 1.5, "float 1.5"),
        ("generation", 2**40, "int 1099511627776"),
        ("match_id", 3, "int 3"),
        ("match_id", None, "null"),
        ("weight", "heavy", "str 'heavy'"),
        ("weight", True, "bool True"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row_and_column(column, value, came):
    with pytest.raises(SchemaError) as caught:
        to_table("matches", [MATCH, MATCH | {column: value}])
    assert f"row 1 of table matches does not fit column {column}" in str(caught.value)
    assert caught.value.got == came


def test_numpy_scalars_and_arrays_are_accepted():
    row = MATCH | {"generation": np.int64(2), "weight": np.float32(0.5)}
    assert to_table("matches", [row])["weight"].to_pylist() == [0.5]
    proposal = generation_tables(1)["propose"]["proposals"][0]
    table = to_table("proposals", [proposal | {"prompt_ids": np.array([3, 4])}])
    assert table["prompt_ids"].to_pylist() == [[3, 4]]


def test_members_of_an_enum_of_text_are_text():
    class Colour(StrEnum):
        RED = "red"

    assert to_table("matches", [MATCH | {"match_id": Colour.RED}])["match_id"].to_pylist() == ["red"]


def test_a_list_with_a_misfit_inside_is_named():
    with pytest.raises(SchemaError, match="row 0 of table population does not fit column parent_ids"):
        to_table("population", [member_row(0, STUDENT) | {"parent_ids": ["student", None]}])


def test_text_is_not_taken_for_a_list_of_its_characters():
    with pytest.raises(SchemaError, match="parent_ids"):
        to_table("population", [member_row(0, STUDENT) | {"parent_ids": "student"}])


def test_an_unknown_table_is_refused_with_the_known_ones():
    with pytest.raises(SchemaError, match=r"(?s)no table 'match'.*matches"):
        to_table("match", [])


def test_a_table_built_elsewhere_is_checked_for_types():
    table = pa.table({name: [value] for name, value in MATCH.items()})
    with pytest.raises(SchemaError, match="generation int64"):
        check("matches", table)


def test_a_table_built_elsewhere_is_checked_for_nulls():
    columns = [[None if name == "match_id" else value] for name, value in MATCH.items()]
    table = pa.Table.from_arrays(
        [pa.array(c, t.type) for c, t in zip(columns, TABLES["matches"], strict=True)],
        schema=TABLES["matches"].arrow,
    )
    with pytest.raises(SchemaError, match="row 0 of table matches does not fit column match_id"):
        check("matches", table)
