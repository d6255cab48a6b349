"""The page of scores: a sample of many pairs, and what stays in memory of the others."""

import gc

import pytest
import torch
from scripted_judge import ScriptedJudge

from rrg_rewards.functional.crimson import CrimsonEvaluation
from rrg_rewards.judges import CascadeJudge
from rrg_rewards.metrics import BLEU, CRIMSON, ROUGE, CTFineBench, ReportCRG
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.pages import page as page_module
from rrg_rewards.pages.page import MOST_ROWS, render_page
from rrg_rewards.pages.score_page import ScoreRows, score_page

_TEXTS = ["Small effusion.", "Normal.", "Cardiomegaly.", "Emphysema.", "Hiatal hernia."]


def _summary(rows: int) -> dict:
    entry = {"value": 0.5, "interval": [0.4, 0.6], "higher_is_better": True, "scored": rows, "unscorable": 0}
    metrics = {"bleu": {**entry, "means": {}, "signature": "bleu"}}
    return {
        "table": "pairs.csv",
        "prediction_column": "prediction",
        "rows": rows,
        "bootstrap": {"num_resamples": 9, "seed": 0},
        "metrics": metrics,
    }


def _evaluations() -> int:
    """Return how many evaluations are in memory."""
    gc.collect()
    return sum(type(one) is CrimsonEvaluation for one in gc.get_objects())


def _page(pairs: int):
    rows = ScoreRows(with_text=True, pairs=pairs)
    for start in range(0, pairs, 250):
        values = torch.arange(start, start + 250) / pairs
        texts = [f"Nodule of {start + row} mm." for row in range(250)]
        rows.add({"bleu": Scores(values.double())}, texts, texts)
    return score_page(_summary(pairs), rows), rows


def test_score_page_of_many_pairs_has_a_bounded_size_and_says_so():
    page, rows = _page(50_000)
    whole, _ = _page(MOST_ROWS)
    assert page.rows.names == [str(number) for number in range(1, 50_001, 5)]
    assert page.rows.panes[1].texts[2] == "Nodule of 10 mm."
    assert len(render_page(page)) < 1.2 * len(render_page(whole))
    assert f"The table shows {MOST_ROWS} of them, one in 5" in page.lead
    assert "The table shows" not in whole.lead
    assert rows.values("bleu") == pytest.approx([row / 50_000 for row in range(50_000)])


def test_score_page_explains_contributions_beside_the_corpus_value():
    metric, rows = ReportCRG(), ScoreRows(with_text=False)
    scores = metric.score(_TEXTS, [_TEXTS[0], *_TEXTS[2:], _TEXTS[1]])
    metric.add_scores(scores)
    value, mean = float(metric.compute()), float(scores.value.mean())
    assert value != pytest.approx(mean)
    rows.add({"crg": scores, "bleu": BLEU().score(_TEXTS, _TEXTS)}, _TEXTS, _TEXTS)
    summary = _summary(5)
    summary["metrics"]["crg"] = {**summary["metrics"]["bleu"], "value": value}
    page = score_page(summary, rows)
    text = "".join(page.sections["Summary"])
    assert "A report has no CRG of its own, but a contribution" in text
    assert f"1 / (2 - {mean:.4f}) = {value:.4f}" in text
    assert [column.name for column in page.rows.columns if column.in_table] == ["crg contribution", "bleu"]
    assert "crg: reports by contribution" in "".join(page.sections["Distribution by report"])
    assert text.count('class="note"') == 1
    # With a prior that is not the prevalence, the equation does not hold and is not claimed.
    fixed = ScoreRows(with_text=False)
    fixed.add({"crg": scores.with_prior(0.5), "bleu": BLEU().score(_TEXTS, _TEXTS)}, _TEXTS, _TEXTS)
    assert "1 / (2 - 0." not in "".join(score_page(summary, fixed).sections["Summary"])


def test_score_rows_mark_the_findings_of_each_metric():
    target, preds = ["Cardiomegaly. 5 mm nodule."], ["The heart is enlarged. Hiatal hernia."]
    metrics = {"rouge": ROUGE(), "crg": ReportCRG(), "crimson": CRIMSON(), "ct_finebench": CTFineBench(mode="f1")}
    rows = {with_text: ScoreRows(with_text) for with_text in (True, False)}
    for one in rows.values():
        for start in range(2):
            scores = {name: metric.score(preds, target) for name, metric in metrics.items()}
            one.add(scores, preds, target, [str(start)])
    found = rows[True].rows().findings
    assert list(found) == ["crg", "crimson", "ct_finebench"]
    for name, of_rows in found.items():
        assert of_rows[0] == of_rows[1]
        marked = {(pane, status): [(preds, target)[pane == 0][0][a:b] for a, b in places]
                  for pane, _, status, *_, places in of_rows[0]}  # fmt: skip
        # A label is marked where rules read it: "Cardiomegaly" is in other words in the candidate.
        assert marked[0, "matched"] == ["Cardiomegaly"]
        assert marked[1, "invented"] == (["Hiatal hernia."[:-1]])
        assert (0, "missed") in marked
        if name != "ct_finebench":
            assert marked[1, "matched"] == ["heart is enlarged"] or marked[1, "matched"] == ["enlarged"]
    without = rows[False].rows().findings
    assert [[one[2] for one in without[name][0]] for name in found] == [
        [one[2] for one in found[name][0]] for name in found
    ]
    assert not any(one[7] for of_rows in without.values() for one in of_rows[0])


def test_score_rows_are_the_same_rows_for_batches_of_any_size(monkeypatch):
    monkeypatch.setattr(page_module.row_step, "__defaults__", (7,))
    found = []
    for size in (1, 4, 9, 40):
        rows = ScoreRows(with_text=False, pairs=40)
        for start in range(0, 40, size):
            batch = range(start, min(start + size, 40))
            rows.add({"bleu": Scores(torch.tensor(batch).double())}, [""] * len(batch), [""] * len(batch))
        found.append((rows.rows().names, rows.rows().columns[0].cells))
    assert found[0] == (["1", "7", "13", "19", "25", "31", "37"], [0.0, 6.0, 12.0, 18.0, 24.0, 30.0, 36.0])
    assert all(one == found[0] for one in found)


def test_score_rows_keep_evaluations_of_the_rows_of_the_page_only(monkeypatch):
    monkeypatch.setattr(page_module.row_step, "__defaults__", (4,))
    metric, before = CRIMSON(), _evaluations()
    rows = ScoreRows(with_text=True, pairs=20)
    for batch in range(4):
        texts = [f"{text} Nodule of {batch + 3} mm." for text in _TEXTS]
        scores = metric.score(texts, texts[1:] + texts[:1])
        rows.add({"crimson": scores}, texts, texts)
        del scores
    assert _evaluations() - before == len(rows.rows().names) == 4
    assert len(rows.values("crimson")) == 20


def test_score_rows_of_a_sample_rescale_all_pairs(monkeypatch):
    monkeypatch.setattr(page_module.row_step, "__defaults__", (2,))
    metric, sampled, whole = ReportCRG(), ScoreRows(False, pairs=5), ScoreRows(False)
    scores = metric.score(_TEXTS, _TEXTS[1:] + _TEXTS[:1])
    rescale = metric.rescaling(metric.score(_TEXTS[:2], _TEXTS[1:3]).sufficient_statistics)
    for rows in (sampled, whole):
        rows.add({"crg": scores, "bleu": BLEU().score(_TEXTS, _TEXTS)}, _TEXTS, _TEXTS)
        rows.rescale("crg", rescale)
    assert sampled.values("crg") == whole.values("crg")
    assert sampled.rows().columns[0].cells == whole.rows().columns[0].cells[::3]


@pytest.mark.filterwarnings("ignore::rrg_rewards.judges.base.JudgeWarning")
def test_score_rows_mark_unread_words_of_pairs_without_a_score():
    target, preds = ["Quorblid of the aorta.", "Effusion.", "Normal."], ["Normal aorta.", "Effusion.", "Normal."]
    scores = CRIMSON(CascadeJudge(ScriptedJudge(fail_on={"Normal aorta": "deadline"}))).score(preds, target)
    found = {}
    for with_text in (True, False):
        rows = ScoreRows(with_text)
        rows.add({"crimson": scores}, preds, target)
        found[with_text] = rows.rows().findings["crimson"]
        judges = next(column for column in rows.rows().columns if column.name == "judge")
        assert judges.cells == ["scripted", "rules", "rules"]
    assert found[True][0] == [[0, "U1", "unread", "", "", "Quorblid", "", [[0, 8]]]]
    # Without text, there is no place to mark; judged pairs may have no finding.
    assert found[False][0] is None
    assert [len(one[1]) for one in found.values()] == [2, 2]
    assert [one[2] for one in found.values()] == [[], []]
