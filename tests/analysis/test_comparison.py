"""Comparison of systems: values, differences and counts against direct computation."""

import math
from typing import Any

import pytest
import torch

from rrg_rewards.analysis import MetricRuns, compare_runs, compare_systems
from rrg_rewards.functional import paired_bootstrap, paired_randomisation
from rrg_rewards.metrics import BLEU, ROUGE, CallableMetric, ReportCRG, Scores

TARGET = ["Cardiomegaly.", "Hiatal hernia. Emphysema.", "Normal.", "Pleural effusion. Cardiomegaly."] * 6
ALL = ["Cardiomegaly.", "Emphysema.", "Normal.", "Cardiomegaly."] * 6
NORMAL = ["Normal."] * 24
FAST = {"num_resamples": 50, "num_permutations": 50}


def test_values_and_tests_are_those_of_the_metrics() -> None:
    crg, rouge = ReportCRG(), ROUGE()
    found = compare_systems({"a": NORMAL, "b": ALL}, TARGET, [crg, rouge], **FAST)
    assert found.baseline == "a"
    assert found.systems == {"a": 1, "b": 1}
    for metric, one in zip((crg, rouge), found.all_reports.metrics, strict=True):
        metric.update(ALL, TARGET)
        assert one.systems[1].value == pytest.approx(float(metric.compute()))
        scores = {name: metric.score(preds, TARGET) for name, preds in (("a", NORMAL), ("b", ALL))}
        columns = [[scores[name].sufficient_statistics] for name in ("b", "a")]
        (difference,) = one.differences
        test = paired_bootstrap(*columns, scores["a"].aggregate_weighted, num_resamples=50)
        assert (difference.value, difference.low, difference.high, difference.bootstrap_p) == pytest.approx(test)
        randomisation = paired_randomisation(*columns, scores["a"].aggregate_weighted, num_permutations=50)
        assert difference.randomisation_p == randomisation.p_value
        change = scores["b"].value - scores["a"].value
        counts = tuple(int(rows.sum()) for rows in (change > 0, change == 0, change < 0))
        assert (difference.wins, difference.ties, difference.losses) == counts


def test_p_values_are_corrected_for_metrics_and_systems() -> None:
    systems = {"a": NORMAL, "b": ALL, "c": TARGET}
    found = compare_systems(systems, TARGET, [ReportCRG(), ROUGE()], **FAST).all_reports.metrics
    smallest = min(difference.randomisation_p for one in found for difference in one.differences)
    corrected = [difference.randomisation_p_holm for one in found for difference in one.differences]
    assert min(corrected) == pytest.approx(min(1, 4 * smallest))


def test_reports_without_a_score_are_left_out_for_all_systems() -> None:
    """CRG contributions depend on the references that are compared, so equal reports tie also then."""
    missing = [None, None, *ALL[2:]]
    one = compare_systems({"a": ALL, "b": missing}, TARGET, [ReportCRG()], **FAST).all_reports.metrics[0]
    expected = ReportCRG()
    expected.update(ALL[2:], TARGET[2:])
    assert one.left_out == 2
    assert one.rows.tolist() == list(range(2, 24))
    assert [system.value for system in one.systems] == pytest.approx([float(expected.compute())] * 2)
    (difference,) = one.differences
    assert (difference.value, difference.ties, difference.randomisation_p) == (0, 22, 1)
    assert torch.equal(one.report_values["a"], one.report_values["b"])


def test_groups_repeat_the_comparison() -> None:
    groups = ["f", "m"] * 12
    ages = ["old", None, "young", "young"] * 6
    found = compare_systems({"a": NORMAL, "b": ALL}, TARGET, [ReportCRG()], by={"sex": groups, "age": ages}, **FAST)
    assert [(group.by, group.group, group.rows) for group in found.groups] == [
        (None, None, 24),
        ("sex", "f", 12),
        ("sex", "m", 12),
        ("age", "old", 6),
        ("age", "young", 12),
    ]
    women = compare_systems({"a": NORMAL[::2], "b": ALL[::2]}, TARGET[::2], [ReportCRG()], **FAST)
    assert found.groups[1].metrics[0].systems == women.all_reports.metrics[0].systems
    assert found.groups[1].metrics[0].differences == women.all_reports.metrics[0].differences


def test_runs_are_averaged() -> None:
    runs = [ALL, NORMAL, TARGET]
    found = compare_systems({"a": NORMAL, "b": runs}, TARGET, [BLEU(n_gram=1)], **FAST).all_reports.metrics[0]
    values = [BLEU(n_gram=1).score(run, TARGET).value for run in runs]
    assert found.systems[1].runs == pytest.approx([float(run.mean()) for run in values])
    assert found.systems[1].value == pytest.approx(float(sum(values).mean() / 3))
    assert torch.allclose(found.report_values["b"], sum(values) / 3)


def test_a_lower_score_wins_if_lower_is_better() -> None:
    shorter = CallableMetric(
        lambda preds, target: [float(len(pred)) for pred in preds], name="length", higher_is_better=False
    )
    (one,) = compare_systems({"a": NORMAL, "b": ALL}, TARGET, [shorter], **FAST).all_reports.metrics
    assert (one.differences[0].wins, one.differences[0].ties, one.differences[0].losses) == (0, 6, 18)
    assert one.differences[0].value > 0


def test_scores_without_direction_have_no_winner() -> None:
    runs = {"a": [Scores(torch.rand(5))], "b": [Scores(torch.rand(5))]}
    found = compare_runs([MetricRuns("length", runs, None)], **FAST).all_reports.metrics[0].differences[0]
    assert (found.wins, found.ties, found.losses) == (None, 0, None)


def test_no_common_report() -> None:
    nan = math.nan
    runs = {"a": [Scores(torch.tensor([1.0, nan]))], "b": [Scores(torch.tensor([nan, 1.0]))]}
    found = compare_runs([MetricRuns("other", runs, True)], **FAST)
    one = found.all_reports.metrics[0]
    assert one.left_out == 2
    assert math.isnan(one.systems[0].value)
    assert found.to_dict()["groups"][0]["metrics"][0]["differences"][0]["value"] is None


def test_no_draws_give_values_without_tests() -> None:
    systems = {"a": NORMAL, "b": ALL}
    found = compare_systems(systems, TARGET, [ROUGE()], num_resamples=0, num_permutations=0).to_dict()
    (one,) = found["groups"][0]["metrics"]
    assert one["differences"][0]["value"] > 0
    assert {one["differences"][0][name] for name in ("low", "bootstrap_p", "randomisation_p_holm")} == {None}


@pytest.mark.parametrize(
    ("systems", "options", "message"),
    [
        ({"a": ALL}, {}, "at least two systems"),
        ({"a": ALL, "b": ALL}, {"baseline": "c"}, "unknown system as baseline 'c'"),
        ({"a": ALL, "b": ALL}, {"by": {"sex": ["f"]}}, r"by\['sex'\] must have a group for each of 24 reports, got 1"),
        ({"a": ALL, "b": ALL[1:]}, {}, r"systems\['b'\]: .* same length"),
    ],
)
def test_wrong_arguments(systems: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_systems(systems, TARGET, [ROUGE()], **options)


def test_a_report_that_is_no_text_is_named_with_its_system() -> None:
    systems: Any = {"a": ALL, "b": [ALL, [*ALL[:-1], 3]]}
    with pytest.raises(TypeError, match=r"systems\['b'\]: preds\[23\]"):
        compare_systems(systems, TARGET, [ROUGE()])


def test_runs_of_different_lengths() -> None:
    runs = {"a": [Scores(torch.rand(5))], "b": [Scores(torch.rand(4))]}
    with pytest.raises(ValueError, match=r"'a': \[5\], 'b': \[4\]"):
        compare_runs([MetricRuns("other", runs, True)])
    with pytest.raises(ValueError, match="'b'"):
        compare_runs([MetricRuns("other", {"a": runs["a"], "b": []}, True)])


def test_compare_runs_reads_groups_once_however_many_there_are():
    class Names(list):
        reads = 0

        def __iter__(self):
            Names.reads += 1
            return super().__iter__()

    scores = Scores(torch.arange(30).double())
    runs = MetricRuns("score", {"a": [scores], "b": [scores]}, True)
    names = Names([None, *(f"group {row % 10}" for row in range(29))])
    result = compare_runs([runs], by={"site": names}, num_resamples=0, num_permutations=0)
    assert Names.reads == 1
    assert [group.group for group in result.groups[1:]] == [f"group {number}" for number in range(10)]
    assert result.groups[2].metrics[0].rows.tolist() == [2, 12, 22]
