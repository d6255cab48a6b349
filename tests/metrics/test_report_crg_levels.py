"""CRG of report text on several levels, against sets of labels written by hand and a brute-force formula."""

import itertools
import pickle
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from words import WordLabeler

from rrg_rewards.functional import crg_score
from rrg_rewards.labelers.levels import LevelReader
from rrg_rewards.metrics import ReportCRG
from rrg_rewards.questions.schema import get_question_schema
from rrg_rewards.rewards import make_reward

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


def test_the_corpus_value_is_the_mean_of_the_levels() -> None:
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
def test_levels_can_be_chosen(levels: tuple[str, ...]) -> None:
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


def test_macro_average_of_each_level() -> None:
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


def test_the_best_constant_text() -> None:
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
def test_scores_of_parts_are_rescaled_to_those_of_the_whole(average: str) -> None:
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
def test_weighted_corpus_values_are_those_of_repeated_rows(average: str) -> None:
    scores = ReportCRG(levels=LEVELS, average=average).score(*pairs(24, 6))
    weights = torch.randint(1, 3, (5, 24), generator=torch.Generator().manual_seed(0))
    found = scores.aggregate_weighted(weights, *scores.sufficient_statistics)
    for row, value in zip(weights, found, strict=True):
        repeated = [column.repeat_interleave(row, 0) for column in scores.sufficient_statistics]
        assert float(value) == pytest.approx(float(scores.aggregate(*repeated)))


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("prior", ["dataset", "running"])
def test_the_reward_is_the_score_with_the_fitted_prior(average: str, prior: str) -> None:
    preds, target = pairs(24, 5)
    reward = make_reward("crg", levels=list(LEVELS), average=average, prior=prior).fit(reference=target)
    values = reward(preds, reference=target)
    metric = ReportCRG(levels=LEVELS, average=average)
    assert values == pytest.approx(metric.score(preds, target).value.tolist())
    assert reward.prior == pytest.approx(metric.prevalence(target))
    assert len(reward.prior) == (4 if average == "micro" else len(metric.labels))
    if prior == "running":
        other = make_reward("crg", levels=list(LEVELS), average=average, prior=prior)
        other.load_state_dict(reward.state_dict())
        assert other.prior == reward.prior
    else:
        fixed = make_reward("crg", levels=list(LEVELS), average=average, **reward.fitted_options())
        assert fixed(preds[:3], reference=target[:3]) == pytest.approx(values[:3])


def test_unscorable_pairs() -> None:
    metric = ReportCRG(levels=LEVELS)
    preds, target = [*TEXTS, None, "Cardiomegaly."], [*TEXTS, "Cardiomegaly.", " "]
    scores = metric.score(preds, target)
    assert scores.scored.tolist() == [True] * 6 + [False] * 2
    assert scores.details["lobe"].isnan().tolist() == [False] * 6 + [True] * 2
    metric.add_scores(scores)
    assert (float(metric.compute()), int(metric.num_unscorable)) == (1.0, 2)


def test_known_labels_replace_the_first_level_only() -> None:
    metric = ReportCRG(levels=("abnormality", "side"))
    known = metric.labeler([TEXTS[3]]).int().tolist()
    scores = metric.score([TEXTS[0]] * 2, [TEXTS[0], None], target_labels=known * 2)
    # Sides are read from the text, which the second reference lacks.
    assert scores.scored.tolist() == [True, False]
    positive = [label for label, on in zip(metric.labels, scores.target[0].tolist(), strict=True) if on]
    assert positive == ["Cardiomegaly", "Pleural effusion", "Lung nodule: right"]


@pytest.mark.filterwarnings("ignore:CRG is undefined")
def test_a_level_without_positive_references_is_undefined() -> None:
    metric = ReportCRG(levels=LEVELS)
    metric.update([TEXTS[3]], [TEXTS[3]])
    with pytest.warns(UserWarning, match="no positive label in level 1, 3"):
        value = metric.compute()
    assert value.isnan()
    assert metric.score([TEXTS[0]], [TEXTS[3]]).value.isfinite().all()


def test_signature_and_pickle() -> None:
    metric = ReportCRG(levels=LEVELS)
    assert "|levels:abnormality,type,side,lobe@ct_rate+" in metric.signature
    assert "levels" not in ReportCRG().signature
    content = pickle.dumps(metric)
    assert len(content) < 100_000
    assert pickle.loads(content).labels == metric.labels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ["side"]}, "levels must be a list that begins with 'abnormality', got side"),
        ({"levels": "abnormality"}, "levels must be a list that begins with 'abnormality'"),
        ({"levels": ["abnormality", "lobes"]}, "unknown level 'lobes'; did you mean 'lobe'"),
        ({"levels": ["abnormality", "side", "side"]}, "levels must be one or more different names"),
        (
            {"levels": LEVELS, "labeler": "rules:chexbert"},
            "the labeler has no label 'Medical material' of question sch",
        ),
        ({"levels": LEVELS, "prior": 0.1}, "prior must contain 4 prevalences, one for each level, for levels"),
        ({"levels": LEVELS, "prior": [0.1, 0.1, 0.1, 2]}, r"prior must lie in \[0, 1\] for each level"),
        ({"levels": LEVELS, "level_schema": "ct_rat"}, "did you mean 'ct_rate'"),
    ],
)
def test_wrong_arguments(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReportCRG(**options)  # type: ignore[arg-type]


def test_a_labeler_of_another_kind_with_the_labels_of_the_schema() -> None:
    class Everything(WordLabeler):
        labels = ReportCRG().labeler.labels

        def __call__(self, reports: Sequence[str]) -> torch.Tensor:
            return torch.ones(len(reports), 18, dtype=torch.bool)

    metric = ReportCRG(Everything(), levels=("abnormality", "side"))
    scores = metric.score([TEXTS[0]], [TEXTS[3]])
    assert scores.preds[0, :18].all()
    assert scores.preds[0].sum() == 19


def test_the_reader_reads_present_findings_only() -> None:
    reader = LevelReader(["lobe", "type"], get_question_schema("ct_rate"))
    assert not reader(["No nodule in the right upper lobe. Possible consolidation in the left lower lobe.", ""]).any()
    row = reader(["Nodule in the lingula and in the superior segment of the right lower lobe."])[0].tolist()
    found = {column for column, on in zip(reader.columns, row, strict=True) if on}
    assert found == {"Lung nodule: left upper lobe", "Lung nodule: right lower lobe"}
    assert pickle.loads(pickle.dumps(reader)).columns == reader.columns
    heart = replace(reader.schema, findings=(reader.schema.finding("Cardiomegaly"),))
    with pytest.raises(ValueError, match="level 'lobe': question schema 'ct_rate' has no finding with this level"):
        LevelReader(["lobe"], heart)
