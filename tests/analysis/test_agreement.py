"""Agreement of columns with judgements, against the functions of ``functional`` and SciPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from rrg_rewards.analysis import AgreementSettings, measure_agreement
from rrg_rewards.analysis.agreement import numbered
from rrg_rewards.functional import (
    agreement_interval,
    agreement_permutation_test,
    human_agreement,
    perm_both_test,
)
from rrg_rewards.utilities.run_log import RunLog, RunWarning
from rrg_rewards.utilities.settings import SettingError

FEW = {"bootstrap": 20, "permutations": 19}
QUICK = AgreementSettings(bootstrap=0, permutations=0)
SCIPY = {"kendall": stats.kendalltau, "spearman": stats.spearmanr, "pearson": stats.pearsonr}


class Log(RunLog):
    """Keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def columns(rows: int = 40, seed: int = 0) -> tuple[dict[str, np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Return three scores with ties, and ratings."""
    generator = np.random.default_rng(seed)
    ratings = generator.integers(1, 6, rows).astype(float)
    scores = {name: np.round(ratings + generator.normal(size=rows) * noise) for name, noise in (("a", 1), ("b", 3))}
    return {**scores, "c": generator.normal(size=rows)}, ratings


def test_values_intervals_and_tests_are_those_of_the_functions() -> None:
    scores, ratings = columns()
    units = np.arange(40) // 2
    settings = AgreementSettings(seed=3, **FEW)
    found = measure_agreement(scores, {"rating": torch.from_numpy(ratings)}, units=units.tolist(), settings=settings)
    (judgement,) = found.all_rows.judgements
    assert (judgement.rows, judgement.units) == (40, 20)
    tensors = {name: torch.from_numpy(values) for name, values in scores.items()}
    target, unit = torch.from_numpy(ratings), torch.from_numpy(units)
    assert {one.statistic for one in judgement.agreement} == {*SCIPY, "accuracy"}
    for one in judgement.agreement:
        own = tensors[one.score]
        assert one.value == float(human_agreement(own, target, one.statistic, unit))
        if one.statistic in SCIPY:
            assert one.value == pytest.approx(SCIPY[one.statistic](own, target).statistic)
        draws = {"num_resamples": 20, "seed": 3}
        assert (one.low, one.high) == agreement_interval(own, target, one.statistic, unit, **draws)
        test = agreement_permutation_test(own, target, one.statistic, unit, num_permutations=19, seed=3)
        assert (one.p_value, one.chance_low, one.chance_high) == (test.p_value, test.low, test.high)
    assert len(judgement.differences) == 3 * 4
    for other in judgement.differences:
        pair = tensors[other.first], tensors[other.second]
        ours, theirs = (judgement.of(name, other.statistic).value for name in (other.first, other.second))
        assert other.value == ours - theirs
        test = perm_both_test(*pair, target, other.statistic, unit, num_permutations=19, seed=3)
        assert other.p_value == test.p_value


def test_missing_rows_are_left_out_for_all_scores_and_counted() -> None:
    scores = {"a": [1.0, 2.0, None, 4.0, 5.0], "b": [2.0, math.nan, 1.0, 3.0, 9.0]}
    log = Log()
    found = measure_agreement(scores, {"h": [1, 2, 3, 4, None]}, settings=QUICK, log=log)
    (judgement,) = found.all_rows.judgements
    assert (judgement.rows, judgement.without_judgement, judgement.without_score) == (2, 1, 2)
    assert found.missing == {"a": 1, "b": 1, "h": 1}
    assert log.warnings == [
        "of 5 rows, those without a score or judgement are left out for all scores; missing: a 1, b 1, h 1"
    ]
    with pytest.warns(RunWarning, match="of 5 rows"):
        measure_agreement(scores, {"h": [1, 2, 3, 4, None]}, settings=QUICK)


def test_groups_have_the_agreement_of_their_rows() -> None:
    scores, ratings = columns()
    groups = ["x" if row % 3 else "y" for row in range(40)]
    found = measure_agreement(scores, {"rating": ratings}, groups=groups, settings=AgreementSettings(**FEW))
    assert [(one.group, one.rows) for one in found.groups] == [("all", 40), ("y", 14), ("x", 26)]
    chosen = np.array(groups) == "x"
    alone = measure_agreement(
        {name: values[chosen] for name, values in scores.items()},
        {"rating": ratings[chosen]},
        settings=AgreementSettings(**FEW),
    )
    assert found.groups[2].judgements == alone.all_rows.judgements
    assert found.to_dict()["groups"]["x"] == alone.to_dict()["groups"]["all"]
    with pytest.raises(SettingError, match="'group' has the value 'all'"):
        measure_agreement(scores, {"rating": ratings}, groups=["all"] * 40, settings=QUICK)


def test_a_baseline_limits_the_differences() -> None:
    scores, ratings = columns()
    settings = AgreementSettings(statistics=["kendall"], baseline="b", bootstrap=0, permutations=0)
    found = measure_agreement(scores, {"rating": ratings}, settings=settings)
    (judgement,) = found.all_rows.judgements
    assert [(one.first, one.second) for one in judgement.differences] == [("a", "b"), ("c", "b")]
    with pytest.raises(SettingError, match="'x' is not among a, b, c"):
        measure_agreement(scores, {"rating": ratings}, settings=AgreementSettings(baseline="x"))


def test_columns_of_which_a_lower_number_is_better_are_turned() -> None:
    scores, ratings = columns()
    turned = {**scores, "a": -scores["a"]}
    settings = AgreementSettings(lower_is_better=["a", "errors"], bootstrap=0, permutations=0)
    found = measure_agreement(turned, {"errors": -ratings}, settings=settings)
    plain = measure_agreement(scores, {"errors": ratings}, settings=QUICK)
    assert found.all_rows.judgements[0].of("a") == plain.all_rows.judgements[0].of("a")
    assert found.to_dict()["lower_is_better"] == ["a", "errors"]


def test_preferences_and_yes_no_items() -> None:
    differences, preferred = [0.5, -0.2, 0.0, 0.3], [1, 1, -1, 2]
    settings = AgreementSettings(statistics=["preference"], **FEW)
    found = measure_agreement({"crg": differences}, {"preferred": preferred}, settings=settings)
    assert found.all_rows.judgements[0].of("crg", "preference").value == (1 + 0 + 0.5 + 1) / 4
    items = AgreementSettings(statistics=["binary", "kendall"], **FEW)
    binary = measure_agreement({"error": [1, 0, 1, 0]}, {"annotated": [1, 0, 0, 0]}, settings=items)
    (judgement,) = binary.all_rows.judgements
    assert [one.statistic for one in judgement.agreement] == ["binary", "kendall"]
    assert judgement.of("error", "binary").value == 0.75
    changed = AgreementSettings(statistics=["binary"], lower_is_better=["error"])
    with pytest.raises(SettingError, match="`lower_is_better`"):
        measure_agreement({"error": [1]}, {"annotated": [1]}, settings=changed)


def test_undefined_values_are_nan_and_none_in_the_dict() -> None:
    found = measure_agreement({"a": [1.0, 1.0, 1.0]}, {"h": [1, 2, 3]}, settings=AgreementSettings(**FEW))
    (judgement,) = found.all_rows.judgements
    assert math.isnan(judgement.of("a").value)
    entry = found.to_dict()["groups"]["all"]["human"]["h"]["agreement"]["kendall"]["a"]
    assert entry == dict.fromkeys(("value", "low", "high", "p_value", "chance_low", "chance_high"))
    with pytest.raises(KeyError, match="preference of a"):
        judgement.of("a", "preference")


def test_one_unit_has_no_interval_and_a_warning() -> None:
    log = Log()
    scores, ratings = columns()
    measure_agreement(scores, {"h": ratings}, units=[7] * 40, settings=AgreementSettings(**FEW), log=log)
    assert log.warnings == [
        "1 of 1 comparisons have no intervals, because they have only one value of 'unit' (`unit`), and the bootstrap "
        "draws these"
    ]
    measure_agreement(scores, {"h": ratings}, units=[7] * 40, settings=QUICK, log=log)
    assert len(log.warnings) == 1


@pytest.mark.parametrize(
    ("scores", "human", "options", "message"),
    [
        ({}, {"h": [1]}, {}, "at least one column"),
        ({"a": [1]}, {}, {}, "at least one column"),
        ({"a": []}, {"h": []}, {}, "at least one row"),
        ({"a": [1, 2]}, {"h": [1]}, {}, r"same length, got \{'a': 2, 'h': 1\}"),
        ({"a": [1, 2]}, {"h": [1, 2]}, {"units": [1]}, "'units': 1"),
        ({"a": [1, 2]}, {"h": [1, 2]}, {"groups": ["x"] * 3}, "'groups': 3"),
        ({"a": [1]}, {"a": [1]}, {}, "a: named more than once"),
    ],
)
def test_wrong_columns_are_named(scores: Any, human: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_agreement(scores, human, **options)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"statistics": ["kendal"]}, "^statistics: .* did you mean 'kendall'"),
        ({"statistics": ["kendall", "kendall"]}, "^statistics: "),
        ({"bootstrap": -1}, "^bootstrap: "),
        ({"permutations": -1}, "^permutations: "),
    ],
)
def test_wrong_settings_are_named(settings: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        measure_agreement({"a": [1]}, {"h": [1]}, settings=AgreementSettings(**settings))


def test_a_column_to_turn_must_exist() -> None:
    with pytest.raises(SettingError, match="'x' is not among"):
        measure_agreement({"a": [1]}, {"h": [1]}, settings=AgreementSettings(lower_is_better=["x"]))


def test_numbers_of_cells_are_kept_for_the_next_cells() -> None:
    known: dict[Any, int] = {}
    assert numbered(["x", "y", "x"], known).tolist() == [0, 1, 0]
    assert numbered(torch.tensor([4, 4]), known).tolist() == [2, 2]
    assert numbered(["y"], known).tolist() == [1]
