"""Sensitivity of metrics to paraphrases, wrong details and known errors."""

from itertools import combinations
from pathlib import Path

import pytest
from answering_judge import AnsweringJudge

from rrg_rewards.analysis import (
    PairColumns,
    RunLog,
    RunWarning,
    SensitivitySettings,
    SettingError,
    make_versions,
    measure_sensitivity,
)
from rrg_rewards.data import Table, TableError, phantom_studies, read_table
from rrg_rewards.findings import inject_errors
from rrg_rewards.metrics import CallableMetric, make_metric

REPORTS = [study.report for study in phantom_studies(12, seed=2)]
ONCE = {"bootstrap": 0, "permutations": 0}
CT_RATE = Path(__file__).parents[2].parent / "shared" / "data" / "reg2rg_ct_rate" / "pairs.csv"


def test_metrics_of_words_and_of_content_differ():
    settings = SensitivitySettings(changes=["paraphrased", "adversarial"], **ONCE)
    found = measure_sensitivity(Table({"reference": REPORTS[:4]}), ["rouge", "ct_finebench"], settings=settings)
    (group,) = found.comparison.groups
    values = {(one.metric, own.system): own.value for one in group.metrics for own in one.systems}
    assert values["rouge", "clean"] == values["ct_finebench", "clean"] == 1
    assert values["rouge", "paraphrased"] < values["rouge", "adversarial"]
    assert values["ct_finebench", "paraphrased"] > values["ct_finebench", "adversarial"]
    scores = make_metric("rouge").score(found.table.texts("adversarial"), REPORTS[:4]).value.tolist()
    assert found.table.numbers("rouge of adversarial") == scores


def test_versions_have_the_errors_that_they_name():
    made = make_versions([*REPORTS, None, " "], SensitivitySettings(changes=["omitted_finding", "wrong_severity"]))
    assert list(made) == [f"{change} {errors}" for change in ("omitted_finding", "wrong_severity") for errors in (1, 2)]
    for name, texts in made.items():
        change, errors = name.split()
        for report, text in zip(REPORTS, texts, strict=False):
            injected = inject_errors(report, {change: int(errors)}, seed=0, harmless=0)
            is_complete = injected is not None and sum(injected.counts) == int(errors)
            assert text == (injected.candidate if is_complete else None)
        assert texts[-2:] == [None, None]


def test_versions_depend_on_seed():
    first, again = (make_versions(REPORTS[:2], SensitivitySettings(seed=seed, max_errors=1)) for seed in (0, 1))
    assert all(first[name] != again[name] for name in ("adversarial", "paraphrased", "false_finding 1"))


def test_a_judge_rewrites_with_a_prompt_of_the_user(tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Rewrite.")
    reports = [REPORTS[0], None, *REPORTS[1:3]]
    judge = AnsweringJudge(lambda report: "" if report == REPORTS[1] else f"New: {report}")
    settings = SensitivitySettings(changes=["paraphrased", "adversarial"], rewriter=judge, adversarial_prompt=prompt)
    with pytest.warns(RunWarning, match=r"the judge failed on 1 of 3 reports \(malformed 1\)"):
        made = make_versions(reports, settings)
    assert made["adversarial"] == [f"New: {REPORTS[0]}", None, None, f"New: {REPORTS[2]}"]
    assert made["paraphrased"] == make_versions(reports, SensitivitySettings(changes=["paraphrased"]))["paraphrased"]
    for wrong in ({"rewriter": judge}, {"paraphrase_prompt": prompt}):
        with pytest.raises(SettingError, match="rewriter: needs a prompt, and a prompt needs it"):
            SensitivitySettings(**wrong)


def test_order_is_that_of_all_pairs_of_versions_and_a_lower_score_is_worse_only_if_higher_is_better():
    def length(preds, target):
        return [float(len(text) % 7) for text in preds]

    metrics = {}
    for name, higher in (("up", True), ("down", False), ("unknown", None)):
        metrics[name] = CallableMetric(length, higher_is_better=higher, name=name)
    metrics["unscorable"] = CallableMetric(lambda preds, target: [None] * len(preds), name="unscorable")
    settings = SensitivitySettings(changes=["false_finding"], max_errors=3, **ONCE)
    with pytest.warns(RunWarning, match="unscorable has no value: all 48 report pairs"):
        found = measure_sensitivity(Table({"reference": REPORTS}), metrics, settings=settings)
    (group,) = found.comparison.groups
    names = ["up of clean, false_finding", *(f"up of false_finding {errors}" for errors in (1, 2, 3))]
    rows = [row for row in zip(*map(found.table.values, names), strict=True) if None not in row]
    pairs = [(a > b) - (a < b) for row in rows for a, b in combinations(row, 2)]
    assert len(rows) == len(group.metrics[0].rows) > 3
    assert found.order["false_finding"]["up"] == pytest.approx(sum(pairs) / len(pairs)) != 0
    assert found.order["false_finding"]["down"] == -found.order["false_finding"]["up"]
    lower = sum(row[1] < row[0] for row in rows)
    assert found.to_dict()["order"]["false_finding"]["unscorable"] is None
    up, down, unknown, _ = (one.differences[0] for one in group.metrics)
    assert (up.losses, down.wins, unknown.losses) == (lower, lower, None)


def test_a_metric_of_the_corpus_has_the_references_of_all_versions():
    reports = [*REPORTS[:3], "The lungs are clear.", "No nodule is seen."]
    settings = SensitivitySettings(changes=["omitted_finding"], max_errors=1, **ONCE)
    found = measure_sensitivity(Table({"reference": reports}), ["cider"], settings=settings)
    (one,) = found.comparison.all_reports.metrics
    assert (one.left_out, found.comparison.all_reports.rows) == (0, 3)
    fixed = make_metric("cider", documents=reports)
    expected = fixed.score(found.table.texts("omitted_finding 1"), reports).value[one.rows].tolist()
    assert one.report_values["omitted_finding 1"].tolist() == pytest.approx(expected)


def test_changes_that_no_report_allows_are_told_and_blank_reports_are_left_out(tmp_path):
    reports = Table({"text": ["Nodule of 8 mm in the left lung.", None, ""]}, source="r.csv")
    notes = []

    class Log(RunLog):
        def note(self, text):
            notes.append(text)

    settings = SensitivitySettings(changes=["wrong_severity"], **ONCE)
    columns = PairColumns(reference_column="text")
    found = measure_sensitivity(reports, ["crimson"], columns=columns, settings=settings, log=Log())
    left_out = "wrong_severity: 2 of 3 reports have no wrong_severity 1, and are left out"
    assert notes == ["no report allows wrong_severity 2", left_out]
    (one,) = found.comparison.all_reports.metrics
    assert (one.rows.tolist(), one.left_out, one.differences[0].losses) == ([0], 0, 1)
    assert found.comparison.all_reports.rows == 1
    with pytest.raises(TableError, match=r"r\.csv: no report allows a change"):
        measure_sensitivity(
            reports, ["rouge"], columns=columns, settings=SensitivitySettings(changes=["omitted_comparison"])
        )
    with pytest.raises(SettingError, match="wrong_severity"):
        make_versions(REPORTS, SensitivitySettings(changes=["wrong_severty"]))
    with pytest.raises(TableError, match="`reference_column` names the column"):
        measure_sensitivity(reports, ["rouge"], settings=settings)
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Rewrite.")
    for rewriter, error in (
        (AnsweringJudge(lambda report: ""), r"r\.csv: the judge"),
        ("rules", "rewriter: (?!.*`judge`)"),
    ):
        rewritten = SensitivitySettings(changes=["paraphrased"], rewriter=rewriter, paraphrase_prompt=prompt)
        with pytest.raises(ValueError, match=error):
            measure_sensitivity(reports, ["rouge"], columns=columns, settings=rewritten)


@pytest.mark.skipif(not CT_RATE.is_file(), reason="needs the pairs of CT-RATE")
def test_crg_is_blind_to_what_crimson_sees_on_reports_of_ct_rate():
    table = next(read_table(CT_RATE).batches(30))
    settings = SensitivitySettings(changes=["wrong_location", "omitted_finding"], max_errors=1, **ONCE)
    found = measure_sensitivity(table, ["crg", "crimson"], settings=settings)
    assert found.order["wrong_location"]["crg"] == 0
    assert found.order["wrong_location"]["crimson"] > 0.8
    assert found.order["omitted_finding"]["crg"] < found.order["omitted_finding"]["crimson"]
