"""The table of worst reports: bounded memory, merging, output to loggers."""

import math
import random
from typing import Any

import pytest

from rrg_rewards.callbacks.worst_reports import SampledReports, WorstReport, WorstReports, log_table, make_table
from rrg_rewards.data import Table


def report(score: float, index: int, rank: int = 0, **fields: Any) -> WorstReport:
    settings: dict[str, Any] = {"identifier": None, "reference": "a", "prediction": "b", **fields}
    return WorstReport(score, 0, rank, index, **settings)


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_worst_reports_keeps_the_worst_in_order(higher_is_better: bool) -> None:
    scores = [random.Random(0).randint(0, 20) / 10 for _ in range(200)]
    worst = WorstReports(7, higher_is_better)
    for index, score in enumerate(scores):
        if worst.takes(score, 0, 0, index):
            worst.add(report(score, index))
        assert len(worst.rows()) == min(index + 1, 7)
    order = sorted(range(200), key=lambda index: (scores[index] if higher_is_better else -scores[index], index))
    assert [row.index for row in worst.rows()] == order[:7]


def test_worst_reports_unscored_reports_are_not_taken() -> None:
    assert not WorstReports(3, higher_is_better=True).takes(math.nan, 0, 0, 0)


@pytest.mark.parametrize("processes", [2, 3])
def test_worst_reports_merging_processes_equals_one(processes: int) -> None:
    """With reports assigned in turn, the merged table equals that of one process, also for ties."""
    scores = [random.Random(1).randint(0, 5) / 5 for _ in range(50)]
    alone, merged = WorstReports(6, True), WorstReports(6, True)
    shares = [WorstReports(6, True) for _ in range(processes)]
    for place, score in enumerate(scores):
        alone.add(report(score, place))
        shares[place % processes].add(report(score, place // processes, rank=place % processes))
    for share in reversed(shares):
        for row in share.rows():
            merged.add(row)
    assert [row.index * processes + row.rank for row in merged.rows()] == [row.index for row in alone.rows()]


def test_make_table_columns() -> None:
    rows = [
        report(0.1, 3, identifier="s1", explanations={"missed": "nodule"}),
        report(0.2, 4, explanations={"invented": "cyst"}),
    ]
    table = make_table(rows, epoch=2, step=30)
    place = ["epoch", "step", "dataloader", "rank", "index"]
    assert list(table.names) == [*place, "id", "score", "reference", "prediction", "missed", "invented"]
    assert list(zip(*table.columns.values(), strict=True)) == [
        (2, 30, 0, 0, 3, "s1", 0.1, "a", "b", "nodule", ""),
        (2, 30, 0, 0, 4, None, 0.2, "a", "b", "", "cyst"),
    ]
    assert "id" not in make_table(rows[1:], 0, 0).names


class Recorder:
    """Records the calls of the given methods."""

    def __init__(self, *methods: str, **attributes: Any) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        for method in methods:
            setattr(self, method, lambda *args, **kwargs: self.calls.append((args, kwargs)))
        self.__dict__.update(attributes)


TABLE = Table({"score": [0.5, 0.7], "reference": ["one|two\nthree", None]})


def test_log_table_logger_with_tables() -> None:
    logger = Recorder("log_table")
    assert log_table(logger, "val/crg_worst", TABLE, step=7)
    rows = [[0.5, "one|two\nthree"], [0.7, None]]
    assert logger.calls == [((), {"key": "val/crg_worst", "columns": ["score", "reference"], "data": rows, "step": 7})]


def test_log_table_mlflow_client() -> None:
    client = Recorder("log_table")
    assert log_table(Recorder(experiment=client, run_id="r1"), "val/crg_worst", TABLE, step=7)
    data = {"score": [0.5, 0.7], "reference": ["one|two\nthree", None]}
    assert client.calls == [((), {"run_id": "r1", "data": data, "artifact_file": "val/crg_worst/step_7.json"})]


def test_log_table_tensorboard_writer_gets_markdown() -> None:
    writer = Recorder("add_text")
    assert log_table(Recorder(experiment=writer), "val/crg_worst", TABLE, step=7)
    markdown = "| score | reference |\n|---|---|\n| 0.5 | one\\|two<br>three |\n| 0.7 |  |"
    assert writer.calls == [(("val/crg_worst", markdown), {"global_step": 7})]


def test_log_table_other_loggers_are_left_alone() -> None:
    assert not log_table(Recorder(experiment=Recorder()), "val/crg_worst", TABLE, step=7)
    assert not log_table(Recorder(), "val/crg_worst", TABLE, step=7)


def test_sampled_reports_are_the_same_for_any_order_and_contain_unscored_ones() -> None:
    places = [(loader, rank, index) for loader in range(2) for rank in range(3) for index in range(40)]
    found = []
    for order in (places, places[::-1]):
        sample = SampledReports(30)
        for loader, rank, index in order:
            score = math.nan if index % 2 else float(index)
            if sample.takes(score, loader, rank, index):
                sample.add(WorstReport(score, loader, rank, index, None, None, None))
        found.append([(row.dataloader, row.rank, row.index) for row in sample.rows()])
    assert found[0] == found[1]
    assert len(set(found[0])) == 30
    # Neither the first nor the best reports, and of all loaders and processes.
    assert {place[:2] for place in found[0]} == {place[:2] for place in places}
    assert sum(place[2] >= 20 for place in found[0]) in range(6, 25)
    assert any(place[2] % 2 for place in found[0])
    assert not SampledReports(0).takes(1.0, 0, 0, 0)
