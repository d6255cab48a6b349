"""CRG of report text: labels, levels, averages, priors and unscorable pairs; also `labelled`, its base."""

import itertools
import math
import pickle
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from label_judge import LabelJudge
from words import WordLabeler, random_cuts, reports

from rrg_rewards.functional import bootstrap_interval, crg_contributions, crg_score
from rrg_rewards.judges.base import JudgeWarning
from rrg_rewards.metrics import CRGScore, MultiLevelCRGScore, ReportCRG
from rrg_rewards.rewards import CRGReward, make_reward
from rrg_rewards.schemas import CHEXBERT

COUNTERS = ("tp", "fn", "fp", "tn")
LABELER = WordLabeler()


def test_report_crg_text_equals_labels() -> None:
    preds, target = reports(40)
    metric = ReportCRG(LABELER)
    for rows in random_cuts(40, seed=3):
        metric.update(preds[rows], target[rows])
    assert torch.equal(metric.compute(), crg_score(LABELER(preds), LABELER(target)))
    table = metric.label_statistics()
    assert table["tp"].tolist() == (LABELER(preds) & LABELER(target)).sum(0).tolist()


def test_report_crg_mean_score_is_the_corpus_value() -> None:
    preds, target = reports(40)
    metric = ReportCRG(LABELER)
    metric.update(preds, target)
    torch.testing.assert_close(1 / (2 - metric.score(preds, target).value.mean()), metric.compute())


def test_report_crg_prior_is_used_by_score_alone() -> None:
    preds, target = reports(20)
    metric = ReportCRG(LABELER, prior=0.2)
    value = metric.score(preds, target).value
    assert torch.equal(value, crg_contributions(LABELER(preds), LABELER(target), prior=0.2))
    metric.update(preds, target)
    assert torch.equal(metric.compute(), crg_score(LABELER(preds), LABELER(target)))


def test_report_crg_score_leaves_the_state_alone() -> None:
    metric = ReportCRG(LABELER)
    metric.update(*reports(6))
    before = {name: getattr(metric, name).clone() for name in (*COUNTERS, "num_unscorable")}
    metric.score([None, *reports(6)[0]], ["Effusion.", *reports(6)[1]])
    assert all(torch.equal(getattr(metric, name), state) for name, state in before.items())
    assert metric.update_count == 1


def test_report_crg_adding_scores_is_updating() -> None:
    metric, other = ReportCRG(LABELER), ReportCRG(LABELER)
    for seed in range(3):
        metric.update([None, *reports(6, seed)[0]], ["", *reports(6, seed)[1]])
        other.compute() if other.update_called else None
        other.add_scores(other.score([None, *reports(6, seed)[0]], ["", *reports(6, seed)[1]]))
    assert torch.equal(metric.compute(), other.compute())
    assert other.update_count == metric.update_count == 3
    assert int(other.num_unscorable) == int(metric.num_unscorable) == 3


def test_report_crg_unscorable_rows_are_nan_counted_and_left_out() -> None:
    preds = ["Effusion.", None, "Nodule.", "Hernia.", ""]
    target = ["Effusion.", "Nodule.", None, " \n", "Hernia."]
    metric = ReportCRG(LABELER)
    scores = metric.score(preds, target)
    assert scores.scored.tolist() == [True, False, False, False, True]
    assert scores.explanations == {"missed": ["", "", "", "", "hernia"], "invented": [""] * 5}
    assert all(detail.isnan().tolist()[1:4] == [True] * 3 for detail in scores.details.values())
    metric.update(preds, target)
    assert int(metric.num_unscorable) == 3
    kept = [0, 4]
    expected = crg_score(LABELER([preds[row] or "" for row in kept]), LABELER([target[row] or "" for row in kept]))
    assert torch.equal(metric.compute(), expected)


def test_report_crg_nothing_scorable() -> None:
    metric = ReportCRG(LABELER)
    metric.update([None, "Effusion."], ["Effusion.", None])
    metric.update([], [])
    assert int(metric.num_unscorable) == 2
    with pytest.warns(UserWarning, match="hold no positive label"):
        assert metric.compute().isnan()


def test_report_crg_details() -> None:
    details = ReportCRG(LABELER).score(["Effusion, nodule.", "Normal."], ["Effusion. Hernia.", "Normal."]).details
    expected = {
        "tp": [1, 0],
        "fn": [1, 0],
        "fp": [1, 0],
        "precision": [0.5, math.nan],
        "recall": [0.5, math.nan],
        "predicted_positives": [2, 0],
    }
    assert details.keys() == expected.keys()
    for name, values in expected.items():
        assert details[name].dtype == torch.float64
        assert details[name].tolist() == pytest.approx(values, nan_ok=True), name


@pytest.mark.parametrize("given", [list, torch.tensor, np.array], ids=["lists", "tensor", "array"])
def test_report_crg_known_labels_replace_the_reference_text(given: Any) -> None:
    known = given([[1, 0, 0], [0, 1, 0]])
    metric = ReportCRG(LABELER)
    scores = metric.score(["Effusion.", "Hernia."], [None, "Effusion."], target_labels=known)
    assert scores.target.tolist() == [[True, False, False], [False, True, False]]
    assert scores.scored.all()
    metric.update(["Effusion.", "Hernia."], [None, "Effusion."], target_labels=known)
    assert torch.equal(metric.compute(), crg_score(LABELER(["Effusion.", "Hernia."]), torch.as_tensor(known)))


def test_report_crg_missing_known_labels_are_unscorable() -> None:
    scores = ReportCRG(LABELER).score(
        ["Effusion.", "Hernia."], ["Effusion.", "Hernia."], target_labels=[None, [0, 0, 1]]
    )
    assert scores.scored.tolist() == [False, True]


@pytest.mark.parametrize(
    ("preds", "target", "context", "error", "message"),
    [
        (["a"], ["a"], {"target_labels": [[1, 0]]}, ValueError, r"target_labels\[0\] must be 3 values of 0 or 1"),
        (["a"], ["a"], {"target_labels": [[1, 0, -1]]}, ValueError, r"one for each of effusion, nodule, hernia; got"),
        (["a"], ["a"], {"target_labels": [[1, 0, math.nan]]}, ValueError, "values of 0 or 1"),
    ],
)
def test_report_crg_wrong_columns_raise(
    preds: Any, target: Any, context: Any, error: type[Exception], message: str
) -> None:
    metric = ReportCRG(LABELER)
    with pytest.raises(error, match=message):
        metric.score(preds, target, **context)
    with pytest.raises(error, match=message):
        metric.update(preds, target, **context)
    assert all(int(getattr(metric, name).sum()) == 0 for name in COUNTERS)


def test_report_crg_prevalence() -> None:
    metric = ReportCRG(LABELER)
    assert metric.prevalence(["Effusion.", "Normal.", None, ""]) == pytest.approx(1 / 6)
    assert metric.prevalence([None, None], [[1, 1, 0], None]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="has no prevalence"):
        metric.prevalence([None, ""])


def test_report_crg_wrong_known_labels_are_named_by_their_row_in_the_batch() -> None:
    known = [None, [1, 0, 0], [1, 2, 0]]
    with pytest.raises(ValueError, match=r"target_labels\[2\] must be 3 values of 0 or 1"):
        ReportCRG(LABELER).score([None, "Effusion.", "Effusion."], [None] * 3, target_labels=known)


def test_report_crg_nothing_is_asked_of_a_labeler_before_it_labels() -> None:
    class Heavy(WordLabeler):
        @property
        def signature(self) -> str:
            raise AssertionError("a model would be loaded")

    metric = ReportCRG(Heavy())
    assert metric.name == "crg"
    with pytest.raises(TypeError, match="labeler must be a name, a mapping or a labeler, got int"):
        ReportCRG(3)  # type: ignore[arg-type]


def test_report_crg_scores_compare_across_batches_with_a_prior_only() -> None:
    for prior in (None, 0.2):
        metric = ReportCRG("rules:ct_rate", prior=prior)
        whole = metric.score(["Hiatal hernia."] * 2, ["Hiatal hernia.", "Normal."]).value
        alone = metric.score(["Hiatal hernia."], ["Hiatal hernia."]).value
        assert metric.compares_across_batches == torch.equal(whole[:1], alone) == (prior is not None)


LEVELS = ("abnormality", "type", "side", "lobe")
# Reports with their labels at each level.
REPORTS: dict[str, tuple[set[str], set[str], set[str], set[str]]] = {
    "Calcified nodule in the right upper lobe.": (
        {"Lung nodule"},
        {"Lung nodule: calcified"},
        {"Lung nodule: right"},
        {"Lung nodule: right upper lobe"},
    ),
    "Ground glass opacities in both lower lobes. No nodule.": (
        {"Lung opacity"},
        {"Lung opacity: ground-glass"},
        {"Lung opacity: right", "Lung opacity: left"},
        {"Lung opacity: right lower lobe", "Lung opacity: left lower lobe"},
    ),
    "Left pleural effusion. Paraseptal emphysema in the left upper lobe.": (
        {"Pleural effusion", "Emphysema"},
        {"Emphysema: paraseptal"},
        {"Pleural effusion: left", "Emphysema: left"},
        {"Emphysema: left upper lobe"},
    ),
    "Bilateral pleural effusion. Cardiomegaly.": (
        {"Pleural effusion", "Cardiomegaly"},
        set(),
        {"Pleural effusion: right", "Pleural effusion: left"},
        set(),
    ),
    "Linear atelectasis in the middle lobe. No effusion on the left.": (
        {"Atelectasis"},
        {"Atelectasis: linear"},
        {"Atelectasis: right"},
        {"Atelectasis: right middle lobe"},
    ),
    "Normal chest CT.": (set(), set(), set(), set()),
}
TEXTS = list(REPORTS)


def pairs(number: int, seed: int) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    preds = rng.choices(TEXTS, k=number)
    # Every report is a reference, so that no level is undefined.
    return preds, [*TEXTS, *rng.choices(TEXTS, k=number - len(TEXTS))]


def brute_force(preds: Sequence[str], target: Sequence[str], names: Sequence[Sequence[str]]) -> list[float]:
    """Return the CRG of each level by the paper's equations 2 and 3, counted label by label."""
    found = []
    for level, labels in enumerate(names):
        tp = fn = fp = total = positive = 0
        for pred, true in zip(preds, target, strict=True):
            for label in labels:
                ours, theirs = label in REPORTS[pred][level], label in REPORTS[true][level]
                total, positive = total + 1, positive + theirs
                tp, fn, fp = tp + (ours and theirs), fn + (theirs and not ours), fp + (ours and not theirs)
        weight = (total - positive) / (2 * positive)
        best = positive * weight
        found.append(best / (2 * best - (tp * weight - fn * weight - fp)))
    return found


def names_by_level(metric: ReportCRG) -> list[list[str]]:
    names = iter(metric.labels)
    return [list(itertools.islice(names, width)) for width in metric.widths]


def test_report_crg_the_corpus_value_is_the_mean_of_the_levels() -> None:
    metric = ReportCRG(levels=LEVELS)
    preds, target = pairs(30, 0)
    for start in range(0, 30, 7):
        metric.update(preds[start : start + 7], target[start : start + 7])
    expected = brute_force(preds, target, names_by_level(metric))
    assert metric.level_scores().tolist() == pytest.approx(expected, rel=1e-12)
    assert float(metric.compute()) == pytest.approx(sum(expected) / 4, rel=1e-12)
    statistics = metric.statistics()
    assert [float(statistics[f"level/{name}"]) for name in LEVELS] == metric.level_scores().tolist()
    scores = metric.score(preds, target)
    assert float(scores.aggregate(*scores.sufficient_statistics)) == float(metric.compute())
    # Each level's CRG follows from the mean contribution to it, and the score is their mean.
    by_level = [scores.details[name] for name in LEVELS]
    assert [float(1 / (2 - one.mean())) for one in by_level] == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(torch.stack(by_level).mean(0), scores.value)


@pytest.mark.parametrize("levels", [("abnormality", "side"), ("abnormality", "lobe", "type"), ("abnormality",)])
def test_report_crg_levels_can_be_chosen(levels: tuple[str, ...]) -> None:
    metric = ReportCRG(levels=levels)
    preds, target = pairs(20, 1)
    metric.update(preds, target)
    everything = ReportCRG(levels=LEVELS)
    everything.update(preds, target)
    by_name = dict(zip(LEVELS, everything.level_scores().tolist(), strict=True))
    assert metric.level_scores().tolist() == pytest.approx([by_name[name] for name in levels])


def test_the_first_level_is_crg_without_levels() -> None:
    preds, target = pairs(20, 2)
    plain, metric = ReportCRG(), ReportCRG(levels=LEVELS)
    for one in (plain, metric):
        one.update(preds, target)
    assert metric.level_scores()[0] == plain.compute()
    assert torch.equal(metric.score(preds, target).details["abnormality"], plain.score(preds, target).value)
    assert metric.labels[:18] == plain.labels


def test_report_crg_macro_average_of_each_level() -> None:
    metric = ReportCRG(levels=LEVELS, average="macro", min_prevalence=0.1)
    preds, target = pairs(30, 3)
    scores = metric.score(preds, target)
    metric.add_scores(scores)
    ours, theirs = (torch.split(labels, list(metric.widths), dim=1) for labels in (scores.preds, scores.target))
    expected = [crg_score(*level, average="macro", min_prevalence=0.1) for level in zip(ours, theirs, strict=True)]
    torch.testing.assert_close(metric.level_scores(), torch.stack(expected))
    assert float(metric.compute()) == pytest.approx(float(torch.stack(expected).mean()))
    assert float(scores.aggregate(*scores.sufficient_statistics)) == pytest.approx(float(metric.compute()))
    constant = ReportCRG(levels=LEVELS, average="macro")
    constant.update([TEXTS[0]] * 6, TEXTS)
    assert float(constant.compute()) == pytest.approx(1 / 3)
    assert float(constant.statistics()["best_constant"]) == pytest.approx(1 / 3)


def test_report_crg_the_best_constant_text() -> None:
    metric = ReportCRG(levels=("abnormality", "side"))
    scores = metric.score([""] * 6, TEXTS)
    metric.add_scores(scores)
    value, labels = scores.best_constant
    assert value == pytest.approx(float(metric.statistics()["best_constant"]))
    best = metric.label_statistics()["best_constant"].tolist()
    assert [label for label, on in zip(metric.labels, best, strict=True) if on] == list(labels)
    # No other text that is the same for every study scores more: the labels of each level are chosen separately.
    for text in TEXTS:
        other = ReportCRG(levels=("abnormality", "side"))
        other.update([text] * 6, TEXTS)
        assert float(other.compute()) <= value


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_report_crg_scores_of_parts_are_rescaled_to_those_of_the_whole(average: str) -> None:
    metric = ReportCRG(levels=LEVELS, average=average)
    preds, target = pairs(24, 4)
    whole = metric.score(preds, target)
    parts = [metric.score(preds[i : i + 8], target[i : i + 8]) for i in range(0, 24, 8)]
    statistics = [torch.cat(column) for column in zip(*(one.sufficient_statistics for one in parts), strict=True)]
    rescale = metric.rescaling(statistics)
    rescaled = [rescale(one) for one in parts]
    torch.testing.assert_close(torch.cat([one.value for one in rescaled]), whole.value)
    torch.testing.assert_close(torch.cat([one.details["side"] for one in rescaled]), whole.details["side"])


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_report_crg_weighted_corpus_values_are_those_of_repeated_rows(average: str) -> None:
    scores = ReportCRG(levels=LEVELS, average=average).score(*pairs(24, 6))
    weights = torch.randint(1, 3, (5, 24), generator=torch.Generator().manual_seed(0))
    found = scores.aggregate_weighted(weights, *scores.sufficient_statistics)
    for row, value in zip(weights, found, strict=True):
        repeated = [column.repeat_interleave(row, 0) for column in scores.sufficient_statistics]
        assert float(value) == pytest.approx(float(scores.aggregate(*repeated)))


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_crg_reward_of_levels_is_the_score_with_the_fitted_prior(average: str) -> None:
    preds, target = pairs(24, 5)
    reward = make_reward("crg", levels=list(LEVELS), average=average).fit(reference=target)
    values = reward(preds, reference=target)
    metric = ReportCRG(levels=LEVELS, average=average)
    assert values == pytest.approx(metric.score(preds, target).value.tolist())
    assert reward.prior == pytest.approx(metric.prevalence(target))
    assert len(reward.prior) == (4 if average == "micro" else len(metric.labels))
    fixed = make_reward("crg", levels=list(LEVELS), average=average, **reward.fitted_options())
    assert fixed(preds[:3], reference=target[:3]) == pytest.approx(values[:3])


def test_report_crg_unscorable_pairs() -> None:
    metric = ReportCRG(levels=LEVELS)
    preds, target = [*TEXTS, None, "Cardiomegaly."], [*TEXTS, "Cardiomegaly.", " "]
    scores = metric.score(preds, target)
    assert scores.scored.tolist() == [True] * 6 + [False] * 2
    assert scores.details["lobe"].isnan().tolist() == [False] * 6 + [True] * 2
    metric.add_scores(scores)
    assert (float(metric.compute()), int(metric.num_unscorable)) == (1.0, 2)


def test_report_crg_known_labels_replace_the_first_level_only() -> None:
    metric = ReportCRG(levels=("abnormality", "side"))
    known = metric.labeler([TEXTS[3]]).int().tolist()
    scores = metric.score([TEXTS[0]] * 2, [TEXTS[0], None], target_labels=known * 2)
    # Sides are read from the text, which the second reference lacks.
    assert scores.scored.tolist() == [True, False]
    positive = [label for label, on in zip(metric.labels, scores.target[0].tolist(), strict=True) if on]
    assert positive == ["Cardiomegaly", "Pleural effusion", "Lung nodule: right"]


@pytest.mark.filterwarnings("ignore:CRG is undefined")
def test_report_crg_a_level_without_positive_references_is_undefined() -> None:
    metric = ReportCRG(levels=LEVELS)
    metric.update([TEXTS[3]], [TEXTS[3]])
    with pytest.warns(UserWarning, match="no positive label in level 1, 3"):
        value = metric.compute()
    assert value.isnan()
    assert metric.score([TEXTS[0]], [TEXTS[3]]).value.isfinite().all()


def test_report_crg_signature_and_pickle() -> None:
    metric = ReportCRG(levels=LEVELS)
    assert "|levels:abnormality,type,side,lobe@ct_rate+" in metric.signature
    assert "levels" not in ReportCRG().signature
    assert metric.has_independent_rows
    content = pickle.dumps(metric)
    assert len(content) < 100_000
    assert pickle.loads(content).labels == metric.labels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ["side"]}, "levels must be a list that begins with 'abnormality', got side"),
        ({"levels": "abnormality"}, "levels must be a list that begins with 'abnormality'"),
        ({"levels": ["abnormality", "lobes"]}, "unknown level 'lobes'; did you mean 'lobe'"),
        ({"levels": ["abnormality", "abnormality*side"]}, "unknown level 'abnormality'. Known: count, lobe"),
        ({"levels": ["abnormality", "side", "side"]}, "levels must be different names, got abnormality, side, side"),
        (
            {"levels": LEVELS, "labeler": "rules:chexbert"},
            "the labeler has no label 'Medical material' of question sch",
        ),
        ({"levels": LEVELS, "prior": 0.1}, "prior must contain 4 prevalences, one for each level, for levels"),
        ({"levels": LEVELS, "prior": [0.1, 0.1, 0.1, 2]}, r"prior must lie in \[0, 1\] for each level"),
        ({"levels": LEVELS, "level_schema": "ct_rat"}, "did you mean 'ct_rate'"),
    ],
)
def test_report_crg_refuses_wrong_levels(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReportCRG(**options)  # type: ignore[arg-type]


def test_report_crg_a_labeler_of_another_kind_with_the_labels_of_the_schema() -> None:
    class Everything(WordLabeler):
        labels = ReportCRG().labeler.labels

        def __call__(self, reports: Sequence[str]) -> torch.Tensor:
            return torch.ones(len(reports), 18, dtype=torch.bool)

    metric = ReportCRG(Everything(), levels=("abnormality", "side"))
    scores = metric.score([TEXTS[0]], [TEXTS[3]])
    assert scores.preds[0, :18].all()
    assert scores.preds[0].sum() == 19


def test_report_crg_levels_of_further_labelers() -> None:
    judge = LabelJudge(fail_on={"middle lobe": "malformed"}, lexicon="chest_xray")
    asked = {"name": "judge", "schema": "chexbert", "judge": judge}
    levels = {"abnormality": "abnormality", "stated": "side", "words": WordLabeler("left lobe"), "judged": asked}
    metric = ReportCRG(levels=levels, prior=[0.3, 0.3, 0.5, 0.2])
    preds, target = pairs(12, 7)
    with pytest.warns(JudgeWarning, match="malformed"):
        scores = metric.score(preds, target)
    metric.add_scores(scores)
    failed = ["middle lobe" in f"{pred} {true}" for pred, true in zip(preds, target, strict=True)]
    assert scores.scored.tolist() == [not one for one in failed]
    assert int(metric.failure_counts()["malformed"]) == sum(failed) > 0
    assert list(metric.judges()) == ["labels 4"]
    # Each level is CRG with its labeler alone.
    kept = [row for row, one in enumerate(failed) if not one]
    ours, theirs = ([side[row] for row in kept] for side in (preds, target))
    alone = ReportCRG(WordLabeler("left lobe"), prior=0.5)
    assert scores.details["words"][kept].tolist() == pytest.approx(alone.score(ours, theirs).value.tolist())
    judged = ReportCRG({**asked, "judge": LabelJudge(lexicon="chest_xray")}, prior=0.2)
    assert scores.details["judged"][kept].tolist() == pytest.approx(judged.score(ours, theirs).value.tolist())
    assert metric.labels[-13] == "judged: Enlarged Cardiomediastinum"
    assert len(metric.labels) == sum(metric.widths)
    assert "{words:left,lobe},{judge|schema:chexbert" in metric.signature
    listed = ReportCRG(levels=["abnormality", "side", WordLabeler("left lobe")])
    assert listed.levels == ("abnormality", "side", "level 3")
    assert pickle.loads(pickle.dumps(listed)).labels == listed.labels


MACRO_LABELER = WordLabeler("edema effusion nodule")

PREDS = ["edema nodule", "effusion", "edema"]


@pytest.mark.parametrize("prior", [0.1, 0.5, None])
def test_label_scores_with_another_prior_are_those_of_scoring_with_it(prior: float | None) -> None:
    target = ["edema", "nodule", None]
    scores = ReportCRG(MACRO_LABELER, prior=0.25).score(PREDS, target).with_prior(prior)
    expected = ReportCRG(MACRO_LABELER, prior=prior).score(PREDS, target)
    torch.testing.assert_close(scores.value, expected.value, rtol=0, atol=0, equal_nan=True)
    assert math.isnan(scores.value[2])


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_label_scores_refuse_a_prior_outside_the_range(prior: float) -> None:
    scores = ReportCRG(MACRO_LABELER, prior=0.25).score(PREDS, ["edema"] * 3)
    with pytest.raises(ValueError, match=r"prior must lie in \(0, 1\)"):
        scores.with_prior(prior)


TRAIN = ["edema", "edema effusion", "edema", "normal", "nodule effusion"]


def test_report_crg_labels_without_both_classes_are_counted_and_named() -> None:
    metric = ReportCRG(MACRO_LABELER, average="macro")
    metric.update(["edema", "nodule"], ["edema", "edema effusion"])
    statistics = metric.statistics()
    assert statistics["left_out"] == 2
    assert [name for name in statistics if name.startswith("left_out/")] == ["left_out/edema", "left_out/nodule"]
    assert metric.label_statistics()["weight"].tolist() == [0, 1, 0]
    assert metric.compute().item() == pytest.approx(1 / 3)


def test_report_crg_best_constant_of_the_published_score() -> None:
    metric = ReportCRG(MACRO_LABELER)
    metric.update(["edema", "", "nodule", "", ""], TRAIN)
    best = [
        label
        for label, chosen in zip(metric.labels, metric.label_statistics()["best_constant"].tolist(), strict=True)
        if chosen
    ]
    # "effusion" has exactly the mean prevalence and changes nothing.
    assert best == ["edema"]
    constant = ReportCRG(MACRO_LABELER)
    constant.update([" ".join(best)] * 5, TRAIN)
    assert constant.compute().item() == pytest.approx(metric.statistics()["best_constant"].item(), rel=1e-12)
    assert "best_constant" not in CRGScore(3).statistics()
    level = MultiLevelCRGScore([3])
    level.update([MACRO_LABELER(TRAIN)], [MACRO_LABELER(TRAIN)])
    assert torch.equal(level.statistics()["best_constant"], metric.statistics()["best_constant"])


def test_report_crg_bootstrap_aggregates_by_label() -> None:
    preds, target = reports(30)
    metric = ReportCRG(average="macro", labeler=WordLabeler(), min_prevalence=0.4)
    scores = metric.score(preds, target)
    metric.add_scores(scores)
    assert torch.equal(scores.aggregate(*scores.sufficient_statistics), metric.compute())
    low, high = bootstrap_interval(scores.aggregate, scores.sufficient_statistics, num_resamples=50)
    assert low < metric.compute() < high


def test_report_crg_signatures_tell_averages_apart() -> None:
    prior = (0.25, 0.5, 0.75)
    signatures = [
        ReportCRG(MACRO_LABELER).signature,
        ReportCRG(MACRO_LABELER, average="macro").signature,
        ReportCRG(MACRO_LABELER, average="macro", min_prevalence=0.1).signature,
        ReportCRG(MACRO_LABELER, average="macro", prior=prior).signature,
        CRGScore(3).signature,
        CRGScore(3, average="macro").signature,
        MultiLevelCRGScore([3], average="macro").signature,
        CRGReward(MACRO_LABELER, average="macro", prior=prior).signature,
    ]
    assert len(set(signatures)) == len(signatures)
    assert "|average:macro|min_prevalence:0.1|" in signatures[2]
    assert "|average:macro|prior:0.25,0.5,0.75|" in signatures[3]
    assert "macro" not in signatures[0]


def test_report_crg_no_finding_is_left_out() -> None:
    metric = ReportCRG("rules:chexbert")
    assert metric.labels == tuple(label for label in CHEXBERT.labels if label != "No Finding")
    assert "|left_out:No Finding|" in metric.signature
    assert "left_out" not in ReportCRG("rules:ct_rate").signature
    target = ["Clear lungs.", "Clear lungs.", "Large left pleural effusion.", "Cardiomegaly."]
    metric.update(["asdf qwer"] * 4, target)
    assert metric.compute().item() == pytest.approx(1 / 3, abs=1e-12)
    assert metric.score(["Clear lungs."], ["Clear lungs."]).details["tp"].item() == 0


def test_report_crg_known_labels_keep_the_labelers_columns() -> None:
    metric = ReportCRG(WordLabeler("effusion normal nodule"))
    scores = metric.score(["Effusion."], [None], target_labels=[[0, 1, 1]])
    assert metric.labels == ("effusion", "nodule")
    assert scores.labels == ("effusion", "nodule")
    assert scores.target.tolist() == [[False, True]]
    with pytest.raises(ValueError, match=r"must be 3 values of 0 or 1, one for each of effusion, normal, nodule"):
        metric.score(["Effusion."], [None], target_labels=[[0, 1]])


def test_report_crg_a_labeler_of_no_abnormality_raises() -> None:
    with pytest.raises(ValueError, match="labeler has no label of an abnormality, only normal"):
        ReportCRG(WordLabeler("normal"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": [0.2, 0.3, 0.4]}, "prior must be one number"),
        ({"prior": 0.2, "average": "macro"}, "one for each label, for average='macro'"),
        ({"prior": "dataset", "average": "macro"}, "only rewards accept names of priors"),
        ({"average": "weighted"}, "average must be 'micro' or 'macro', got 'weighted'"),
        ({"min_prevalence": 0.1}, "min_prevalence applies to average='macro' only"),
    ],
)
def test_report_crg_refuses_wrong_priors_and_averages(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReportCRG(MACRO_LABELER, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("prior", [np.float32(0.25), torch.tensor(0.25), 0.25])
def test_report_crg_a_prior_may_be_a_number_of_another_library(prior: float) -> None:
    metric = ReportCRG(MACRO_LABELER, prior=prior)
    assert (metric.prior, type(metric.prior)) == (0.25, float)
    assert metric.signature == ReportCRG(MACRO_LABELER, prior=0.25).signature
    with pytest.raises(ValueError, match="one number"):
        ReportCRG(MACRO_LABELER, prior=np.array([0.1, 0.2, 0.3]))
