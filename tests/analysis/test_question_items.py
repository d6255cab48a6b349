"""Question items and mined attributes of reports."""

import pytest
from exam_judge import ExamJudge
from writing_judge import WritingJudge

from rrg_rewards.analysis import (
    MiningSettings,
    QuestionSettings,
    ReportTexts,
    build_question_items,
    mine_attributes,
    read_report_texts,
)
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.engine import build_items
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError

TEXTS = ["Nodule of 5 mm in the left lung.", "Edema.", "Normal.", "Small left pleural effusion."]
NAMES = [finding.name for finding in get_question_schema("ct_rate").findings]


def test_items_are_the_engines():
    items = build_question_items(ReportTexts.of(TEXTS))
    assert [row.items for row in items.rows] == [build_items(text) for text in TEXTS]
    assert [(row.report_id, row.report) for row in items.rows] == [(str(n), text) for n, text in enumerate(TEXTS, 1)]
    assert items.num_items == sum(len(build_items(text)) for text in TEXTS)
    assert items.num_empty == sum(not build_items(text) for text in TEXTS)
    assert items.positive_labels is None


def test_items_of_positive_labels_only():
    reports = ReportTexts({"a": "Nodule of 5 mm. Small effusion."}, {"a": frozenset({"Lung nodule", "Emphysema"})})
    items = build_question_items(reports)
    assert {item.finding for item in items.rows[0].items} == {"Lung nodule"}
    assert (items.num_findings, items.positive_labels) == (1, 2)


def test_a_judge_builds_items_in_batches_and_its_failures_are_left_out():
    judge = ExamJudge(fail_on={"Edema": "malformed"})
    with pytest.warns(RunWarning, match=r"the judge failed on 1 of 4 reports \(malformed 1\): they are left out"):
        items = build_question_items(ReportTexts.of(TEXTS), QuestionSettings(judge=judge, batch_size=3))
    assert [row.report_id for row in items.rows] == ["1", "3", "4"]
    assert [row.items for row in items.rows] == [build_items(TEXTS[row]) for row in (0, 2, 3)]
    assert [len(asked) for _, asked in judge.asked] == [3, 1]


@pytest.mark.parametrize("analyse", [build_question_items, mine_attributes])
def test_a_judge_that_fails_on_every_report(analyse):
    settings = MiningSettings(judge=ExamJudge(fail_on={"": "deadline"}))
    reports = ReportTexts({"1": "Edema."}, source="reports.csv")
    with pytest.raises(ValueError, match=r"reports.csv: the judge failed on every report \(deadline 1\)"):
        analyse(reports, settings)


@pytest.mark.parametrize("judge", ["rules", "ruls"])
def test_a_judge_that_makes_no_questions_is_refused(judge):
    with pytest.raises(SettingError, match=r"judge: "):
        build_question_items(ReportTexts.of(TEXTS), QuestionSettings(judge=judge))


def test_reports_of_a_table_with_ids_and_labels():
    labels = {name: [int(name == "Lung nodule"), 0, None] for name in NAMES}
    table = Table({"id": ["a", "b", "c"], "report": TEXTS[:3], **labels})
    with pytest.warns(RunWarning, match="1 of 3 reports have no labels"):
        reports = read_report_texts(table, QuestionSettings(id_column="id", labels=True))
    assert reports.texts == {"a": TEXTS[0], "b": TEXTS[1]}
    assert reports.positive == {"a": frozenset({"Lung nodule"}), "b": frozenset()}
    assert read_report_texts(table).positive is None
    with pytest.raises(TableError, match="GT_"):
        read_report_texts(table, QuestionSettings(label_prefix="GT_"))
    with pytest.warns(RunWarning, match="1 of 2 reports are missing or blank"):
        assert read_report_texts(Table({"report": [" ", "Edema."]})).texts == {"2": "Edema."}
    with pytest.raises(SettingError, match="id_column: 'a' occurs more than once in 'id'"):
        read_report_texts(Table({"id": ["a", "a"], "report": TEXTS[:2]}), QuestionSettings(id_column="id"))


def test_mined_attributes_are_ordered_by_pair_and_count():
    texts = ["Nodule of 5 mm in the left lung.", "Nodule of 5 mm in the right lung.", "Left effusion.", "No nodule."]
    mined = mine_attributes(ReportTexts.of(texts), MiningSettings(min_count=2))
    assert list(mined.counts.items()) == [
        (("lung_nodule", "existence", "present"), 2),
        (("lung_nodule", "laterality", "left"), 1),
        (("lung_nodule", "laterality", "right"), 1),
        (("lung_nodule", "size", "5 mm"), 2),
    ]
    assert (mined.num_kept, len(mined.pairs)) == (3, 5)
    assert list(mined.to_table().columns["pair_count"]) == [2, 2, 2, 2]


def test_a_judge_is_asked_about_positive_findings_only():
    reports = ReportTexts(
        {"a": "Nodule of 5 mm in the left lung. Small left pleural effusion.", "b": "Small left pleural effusion."},
        {"a": frozenset({"Lung nodule"}), "b": frozenset()},
    )
    mined = mine_attributes(reports, MiningSettings(min_count=1, judge=WritingJudge(), labels=True))
    assert {finding for finding, _, _ in mined.counts} == {"Lung nodule"}
    nothing = ReportTexts({"b": "Small left pleural effusion."}, {"b": frozenset()})
    assert mine_attributes(nothing, MiningSettings(judge=WritingJudge())).counts == {}
