"""Counts of the errors of existing reports."""

import pytest
from answering_judge import AnsweringJudge
from counting_answers import counts_of

from rrg_rewards.analysis import CountingRun, CountingSettings, count_errors, read_pairs
from rrg_rewards.data import read_error_records
from rrg_rewards.data.tables.table import Table
from rrg_rewards.judges import ReportPair
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError

PAIRS = [ReportPair("Small left effusion.", "Cardiomegaly."), ReportPair("Normal chest.", "Right lung nodule.")]


def judge():
    return AnsweringJudge(lambda pair: counts_of(f"{pair.reference} | {pair.candidate}"))


def test_a_counting_run_as_plain_data(tmp_path):
    run = count_errors(PAIRS[:1], judge(), tmp_path / "counts.jsonl")
    assert run.to_dict() == {
        "prompt_hash": run.task.prompt_hash,
        "judge": "answering",
        "pairs": 1,
        "held": 0,
        "written": 1,
        "categories": run.categories,
        "failures": {},
        "reasons": {},
        "usage": None,
    }
    again = CountingRun(PAIRS, tmp_path / "counts.jsonl")
    assert again.plan() == {"prompt_hash": run.task.prompt_hash, "pairs": 2, "to_ask": 1}


def test_pairs_of_a_table_are_distinct_and_not_blank():
    table = Table({"gt": ["Edema.", "Edema.", "Edema.", " "], "out": ["Clear.", None, "Clear.", "Clear."]})
    settings = CountingSettings(reference_column="gt", prediction_column="out")
    with pytest.warns(RunWarning, match="2 of 4 pairs"):
        assert read_pairs(table, settings) == [ReportPair("Edema.", "Clear.")]
    table = Table({"reference": ["a", "b", "c"], "prediction": ["x", "x", "x"]})
    assert len(read_pairs(table, CountingSettings(max_pairs=2))) == 2


def test_a_prompt_of_the_user_has_answers_in_the_printed_format(tmp_path):
    lines = "\n".join(f"({letter}) Type: {int(letter == 'b')}. Edema" for letter in "abcdef")
    parts = (f"[Clinically {kind} Errors]:\n{lines}\n" for kind in ("Significant", "Insignificant"))
    answer = f"{''.join(parts)}[Matched Findings]:\n0."
    prompt, output = tmp_path / "prompt.txt", tmp_path / "counts.jsonl"
    prompt.write_text("Count {reference_report} {candidate_report}")
    run = count_errors(PAIRS, AnsweringJudge(lambda pair: answer), output, CountingSettings(prompt=prompt))
    assert "Count Small left effusion. Cardiomegaly." in run.preview()
    assert [record.counts for record in read_error_records(output)] == [(0, 2, 0, 0, 0, 0)] * 2
    assert run.categories["omitted_finding"] == {"errors": 4, "significant": 2}
    prompt.write_text("Count <candidate report>")
    with pytest.raises(SettingError, match=r"prompt: .*lacks <reference report>"):
        CountingRun(PAIRS, output, settings=CountingSettings(prompt=prompt))
