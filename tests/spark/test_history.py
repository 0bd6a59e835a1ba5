"""A history of replays as a DataFrame."""

import pytest

from warrenmq.errors import CallerError
from warrenmq.replay import add_to_history, history, replay


def test_the_dataframe_has_the_rows_of_the_table(spark, small_trace, tmp_path):
    folder = tmp_path / "history [1] #2 %20"
    add_to_history(replay(small_trace, engine="python", picture=False), folder)
    rows = history(folder)
    found = history(folder, spark)
    assert found.columns == list(rows[0]._fields)
    told = {(row.kind, row.name, row.cases, row.value) for row in found.collect()}
    assert told == {(row.kind, row.name, row.cases, row.value) for row in rows}


def test_what_is_no_history_is_a_sentence(spark, tmp_path):
    with pytest.raises(CallerError, match="holds no history yet"):
        history(tmp_path, spark)
