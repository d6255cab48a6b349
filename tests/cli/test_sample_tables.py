"""The tables on which the commands can be tried."""

from rrg_rewards.cli.sample_data import sample_tables
from rrg_rewards.metrics import CRIMSON


def test_sample_tables_errors_are_in_the_prediction_and_the_baseline_has_more() -> None:
    tables = sample_tables(60)
    assert tables["reports"].columns["study"] == tables["pairs"].columns["study"]
    columns = tables["pairs"].columns
    scores = CRIMSON().score(columns["prediction"], columns["reference"]).value
    baseline = CRIMSON().score(columns["baseline"], columns["reference"]).value
    errors = columns["errors"]
    assert 0.3 < sum(number > 0 for number in errors) / len(errors) < 0.7
    right = [number == 0 for number in errors]
    wrong = [not one for one in right]
    assert scores[right].mean() > scores[wrong].mean() + 0.2
    assert scores.mean() > baseline.mean()


def test_sample_tables_are_those_of_the_seed() -> None:
    one, same, other = (sample_tables(5, seed)["pairs"].columns for seed in (1, 1, 2))
    assert one == same
    assert one != other
