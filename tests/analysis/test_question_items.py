"""Question items and mined attributes of reports."""

import json

import pytest
from answering_judge import AnsweringJudge
from exam_judge import ExamJudge
from writing_judge import WritingJudge

from rrg_rewards.analysis import (
    MiningSettings,
    QuestionSettings,
    ReleasedSchemaSettings,
    ReportTexts,
    build_question_items,
    convert_schema,
    mine_attributes,
    read_report_texts,
)
from rrg_rewards.analysis.question_items import MinedAttributes
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.judges.tasks.finebench import ReportFindings
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.engine import build_items
from rrg_rewards.utilities.run_log import RunLog, RunWarning
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
    with pytest.raises(TableError, match="unknown column"):
        read_report_texts(Table({"report": TEXTS[:3]}), QuestionSettings(labels=True))
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


VOLUMES = ["valid_1_a_2.nii.gz", "valid_1_a_1.nii.gz", "valid_2_a_1.nii.gz", "valid_3_a_1.nii.gz"]
CT_RATE_REPORTS = Table(
    {
        "VolumeName": VOLUMES,
        "Findings_EN": ["Nodule of 5 mm.", "Nodule of 5 mm.", " ", "Small left effusion."],
        "Impressions_EN": ["Nodule. ", "Nodule. ", None, "Effusion."],
    },
    "reports.csv",
)


def test_read_report_texts_joins_columns() -> None:
    settings = QuestionSettings(text_column="{Findings_EN} {Impressions_EN}", key="VolumeName")
    with pytest.warns(RunWarning, match="1 of 4 reports are missing or blank"):
        reports = read_report_texts(CT_RATE_REPORTS, settings)
    assert reports.texts["valid_3_a_1.nii.gz"] == "Small left effusion. Effusion."
    assert list(reports.texts) == [VOLUMES[0], VOLUMES[1], VOLUMES[3]]
    with pytest.raises(TableError, match="unknown column 'Impression_EN'; did you mean 'Impressions_EN'"):
        read_report_texts(CT_RATE_REPORTS, QuestionSettings(text_column="{Findings_EN} {Impression_EN}"))


@pytest.fixture
def run_notes():
    class Notes(RunLog):
        text = ""

        def note(self, text):
            self.text += text + "\n"

        def warn(self, text):
            self.text += text + "\n"

    return Notes()


def label_table(tmp_path, rows, names=NAMES):
    path = tmp_path / "labels.csv"
    lines = [",".join(["VolumeName", *names]), *(",".join([volume, *map(str, labels)]) for volume, labels in rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def row_of(*positive, negative=0):
    return [1 if name in positive else negative for name in NAMES]


def test_read_report_texts_with_labels_of_another_table(tmp_path, run_notes) -> None:
    # Other order, names without the ending, snake case, and -1 for what is not mentioned.
    names = [name.lower().replace(" ", "_") for name in NAMES]
    rows = [
        ("valid_3_a_1", row_of("Pleural effusion")),
        ("valid_1_a_1", row_of("Lung nodule", negative=-1)),
        ("valid_9_a_1", row_of()),
    ]
    labels = label_table(tmp_path, rows, names)
    settings = QuestionSettings(text_column="Impressions_EN", key="VolumeName", labels=labels)
    reports = read_report_texts(CT_RATE_REPORTS, settings, run_notes)
    assert reports.positive == {VOLUMES[1]: {"Lung nodule"}, VOLUMES[3]: {"Pleural effusion"}}
    assert list(reports.texts) == [VOLUMES[1], VOLUMES[3]]
    for told in ("17 labels of", "are -1, not mentioned", "1 of 3 studies of", "1 of 3 reports have no labels"):
        assert told in run_notes.text
    items = build_question_items(reports, settings, run_notes)
    assert [{item.finding for item in row.items} for row in items.rows] == [{"Lung nodule"}, {"Pleural effusion"}]


def test_read_report_texts_with_labels_that_do_not_fit(tmp_path) -> None:
    def read(rows, names=NAMES):
        labels = label_table(tmp_path, rows, names)
        settings = QuestionSettings(text_column="Impressions_EN", key="VolumeName", labels=labels)
        return read_report_texts(CT_RATE_REPORTS, settings)

    with pytest.raises(TableError, match="'Medical material': must be a label of 0 or 1, got '2'"):
        read([("valid_1_a_1", [2, *[0] * 17])])
    with pytest.raises(TableError, match="unknown column 'Medical material'"):
        read([("valid_1_a_1", row_of())], ["material", *NAMES[1:]])
    with pytest.raises(TableError, match=r"'valid_1_a_1' is also in .*; each study must have one row"):
        read([("valid_1_a_1", row_of()), ("valid_1_a_1.nii.gz", row_of())])
    with pytest.raises(SettingError, match=r"^labels: "):
        QuestionSettings(labels="labels.csv")


def test_attributes_in_other_words_have_no_item_and_are_counted(run_notes) -> None:
    def answer(report):
        stated = [{"attribute": "size", "answer": "5 mm"}, {"attribute": "location", "answer": "LUL"}]
        found = {"finding": "Lung nodule", "quote": "Nodule of 5 mm", "attributes": stated}
        return json.dumps({"findings": [found] if "Nodule" in report else []})

    settings = QuestionSettings(judge=AnsweringJudge(answer))
    items = build_question_items(ReportTexts.of(TEXTS), settings, run_notes)
    assert [[item.attribute for item in row.items] for row in items.rows] == [["existence", "size"], [], [], []]
    told = "1 attributes that the judge stated have no question: their answer is not in the words of the report 1"
    assert told in run_notes.text


def test_prompts_of_the_user_build_and_mine(tmp_path):
    def answer(item):
        if isinstance(item, ReportFindings):
            return '<step3>[["nodule", "lung nodule", "Size", "5 mm"]]</step3>'
        answers = {"size": "5 mm", "location": "left lung"} if "Nodule" in item.report else {}
        if item.report == "Edema." and item.spec.name == "size":
            return "none"
        name = item.spec.name
        return f"<step3>{json.dumps([f'{name}?', answers[name]] if name in answers else [])}</step3>"

    judge, prompt = AnsweringJudge(answer), tmp_path / "prompt.txt"
    prompt.write_text("Ask about <attribute> of <disease> in <report>.")
    reports = ReportTexts(
        dict(zip("abcd", TEXTS, strict=True)),
        {"a": {"Lung nodule"}, "b": {"Lung nodule"}, "c": set(), "d": {"Pleural effusion"}},
    )
    with pytest.warns(RunWarning, match=r"the judge failed on 1 of \d+ requests \(malformed 1\)"):
        items = build_question_items(reports, QuestionSettings(judge=judge, prompt=prompt))
    questions = {row.report_id: [(item.question, item.answer) for item in row.items] for row in items.rows}
    nodule, effusion = ("Lung nodule", "Pleural effusion")
    schema = get_question_schema("ct_rate")
    assert questions == {
        "a": [(schema.finding(nodule).attributes[0].question, "yes"), ("location?", "left lung"), ("size?", "5 mm")],
        "c": [],
        "d": [(schema.finding(effusion).attributes[0].question, "yes")],
    }
    prompt.write_text("List the attributes.")
    mined = mine_attributes(reports, MiningSettings(judge=judge, prompt=prompt, min_count=1))
    # The nodule of the last report is none of the findings that were asked for.
    assert {triple: count for triple, count in mined.counts.items() if triple[1] == "size"} == {
        ("Lung nodule", "size", "5 mm"): 2,
        ("lung nodule", "size", "5 mm"): 1,
    }
    with pytest.raises(SettingError, match=r"prompt: .*unknown placeholder"):
        build_question_items(reports, QuestionSettings(judge=judge, prompt=_written(prompt, "<reports>")))
    with pytest.raises(SettingError, match="prompt: needs `judge`"):
        QuestionSettings(prompt=prompt)


def _written(path, text):
    path.write_text(text)
    return path


def test_a_draft_of_mined_attributes_is_read_as_a_schema():
    places = [f"{side} lung" for side in ("left", "right", "upper")]
    counts = {
        ("Lung nodule", name, place): 4 - i for name in ("location", "position") for i, place in enumerate(places)
    }
    counts |= {("Lung nodule", "existence", "present"): 9, ("Lung nodule", "margin", "sharp, round"): 2}
    pairs = {("Lung nodule", name): 9 for name in ("location", "position", "margin", "existence")}
    draft = MinedAttributes(counts, pairs).draft()
    assert draft.columns["Merge"] == ["position", "location", ""]
    schema = convert_schema(draft, ReleasedSchemaSettings(), RunLog())
    attributes = {spec.name: spec for spec in schema.finding("Lung nodule").attributes}
    assert list(attributes) == ["existence", "location", "position", "margin"]
    assert (attributes["location"].answer_type, attributes["margin"].examples) == ("location", ("sharp, round",))
