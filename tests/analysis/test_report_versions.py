"""Paraphrased reports and reports with wrong details."""

import pytest
from answering_judge import AnsweringJudge

from rrg_rewards.analysis import ReportTexts, VersionSettings, make_versions
from rrg_rewards.data import phantom_studies
from rrg_rewards.metrics import make_metric
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError

REPORTS = ReportTexts.of([study.report for study in phantom_studies(4, seed=2)])


def test_metrics_of_words_and_of_content_differ():
    made = make_versions(REPORTS)
    scores = {
        (name, version): make_metric(name).score(made.texts(version), made.texts("report")).value.mean()
        for name in ("rouge", "ct_finebench")
        for version in ("paraphrased", "adversarial")
    }
    assert scores["rouge", "paraphrased"] < scores["rouge", "adversarial"]
    assert scores["ct_finebench", "paraphrased"] > scores["ct_finebench", "adversarial"]
    assert made.texts("report") == list(REPORTS.texts.values())


def test_versions_depend_on_seed_and_limit():
    first, again = make_versions(REPORTS), make_versions(REPORTS, VersionSettings(seed=1, limit=2))
    assert list(again.column("report_id")) == ["1", "2"]
    assert again.texts("adversarial") != first.texts("adversarial")[:2]
    with pytest.raises(ValueError, match=r"r\.csv: contains no report"):
        make_versions(ReportTexts({}, source="r.csv"))


def test_a_judge_rewrites_with_a_prompt_of_the_user(tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Rewrite.")
    judge = AnsweringJudge(lambda report: "" if report == REPORTS.texts["2"] else f"New: {report}")
    settings = VersionSettings(judge=judge, adversarial_prompt=prompt, limit=3)
    with pytest.warns(RunWarning, match=r"the judge failed on 1 of 3 reports \(malformed 1\)"):
        made = make_versions(REPORTS, settings)
    first, _, third = made.texts("report")
    assert made.texts("adversarial") == [f"New: {first}", None, f"New: {third}"]
    assert made.texts("paraphrased") == make_versions(REPORTS, VersionSettings(limit=3)).texts("paraphrased")
    for wrong in ({"judge": judge}, {"paraphrase_prompt": prompt}):
        with pytest.raises(SettingError, match="judge: needs a prompt, and a prompt needs it"):
            VersionSettings(**wrong)
