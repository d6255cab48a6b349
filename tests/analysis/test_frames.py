"""Scores of data frames equal those of tables."""

import math

import pytest

from rrg_rewards.analysis import PairColumns, ScoreSettings, score_frame, score_table
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

pandas = pytest.importorskip("pandas")

COLUMNS = {
    "text": ["Enlarged heart.", None, "Nodule of 4 mm.", "Edema.", "Normal."],
    "reference": ["Cardiomegaly.", "Edema.", "Nodule of 9 mm.", "No edema.", " "],
    "age": [40, 81, 60, 70, 55],
}
SETTINGS = ScoreSettings(bootstrap=20, batch_size=2, constant_text="none", prefix="our ")


class Log(RunLog):
    def warn(self, text):
        pass


def test_score_frame_gives_the_scores_and_the_summary_of_a_table(tmp_path):
    frame = pandas.DataFrame({**COLUMNS, 7: 0}, index=list("edcba"))
    frame.attrs["site"] = "A"
    before = frame.copy()
    write_table(Table(COLUMNS), tmp_path / "in.jsonl")
    options = {"settings": SETTINGS, "log": Log()}
    names = ["crg", "crimson", "rouge"]
    scored = score_frame(frame, names, prediction_column="text", context={"age": "age"}, **options)
    columns = PairColumns(prediction_column="text", context={"age": "age"})
    summary = score_table(tmp_path / "in.jsonl", names, columns=columns, output=tmp_path / "out.jsonl", **options)
    table = read_table(tmp_path / "out.jsonl").columns
    assert list(scored.columns) == ["text", "reference", "age", 7, *[*table][3:]]
    for name in [*table][3:]:
        missing_as_none = [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in scored[name]]
        assert missing_as_none == table[name], name
    assert scored["our crg"].dtype == scored["our rouge"].dtype == float
    assert list(scored.index) == list("edcba")
    assert scored.attrs["site"] == "A"
    assert scored.attrs["summary"]["metrics"] == summary["metrics"]
    pandas.testing.assert_frame_equal(frame, before)


def test_score_frame_takes_missing_cells_of_pandas():
    missing = pandas.Series(["Edema.", pandas.NA], dtype="string")
    frame = pandas.DataFrame({"prediction": missing, "reference": ["Edema.", "Edema."]})
    scored = score_frame(frame, ["rouge"], settings=SETTINGS, log=Log())
    assert scored["our rouge"].isna().tolist() == [False, True]
    assert score_frame(frame[:0], ["rouge"], settings=SETTINGS, log=Log()).shape[0] == 0


def test_score_frame_says_what_is_wrong():
    frame = pandas.DataFrame({"prediction": ["a", 3], "reference": ["b", "c"]})
    with pytest.raises(TableError, match="frame: data row 2, column 'prediction'"):
        score_frame(frame, ["rouge"])
    frame["prediction"] = ["a", "d"]
    with pytest.raises(TableError, match="'refrence'; did you mean 'reference'"):
        score_frame(frame, ["rouge"], reference_column="refrence")
    with pytest.raises(SettingError) as caught:
        score_frame([], ["rouge"])
    assert caught.value.setting == "frame"
    twice = pandas.concat([frame, frame], axis=1)
    with pytest.raises(TableError, match="'prediction', 'reference' more than once"):
        score_frame(twice, ["rouge"])
