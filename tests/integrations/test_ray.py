"""Scoring on Ray and on datasets.map: the same numbers as one process."""

import csv
import json
import pickle
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_server import FaultServer, status

from rrg_rewards.cli.main import main
from rrg_rewards.integrations.ray import (
    RayScorers,
    ReportScorer,
    ReportSums,
    merge_sums,
    score_dataset,
)
from rrg_rewards.judges import CascadeJudge
from rrg_rewards.metrics import CRIMSON, ROUGE, CallableMetric, ReportCRG, ReportMetric

SENTENCES = ["Cardiomegaly.", "Hiatal hernia.", "No nodule.", "Small left pleural effusion.", "Normal lungs.", ""]


def pairs(count: int) -> dict[str, list[str | None]]:
    """Return predictions and references; some cannot be scored."""
    rng = random.Random(5)

    def report() -> str | None:
        return None if rng.random() < 0.01 else " ".join(rng.choices(SENTENCES, k=3))

    return {"prediction": [report() for _ in range(count)], "reference": [report() for _ in range(count)]}


def one_process(metrics: Mapping[str, ReportMetric], columns: Mapping[str, Any]) -> Mapping[str, ReportMetric]:
    for metric in metrics.values():
        metric.update(columns["prediction"], columns["reference"])
    return metrics


def sums_of(metrics: Mapping[str, ReportMetric], columns: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
    """Return the rows of sums for batches of a size."""
    function = pickle.loads(pickle.dumps(ReportSums(metrics)))
    rows = []
    for start in range(0, len(columns["prediction"]), size):
        made = function({name: column[start : start + size] for name, column in columns.items()})
        rows.append({name: column[0] for name, column in made.items()})
    return rows


def same_states(found: Mapping[str, ReportMetric], expected: Mapping[str, ReportMetric]) -> None:
    """Check that counts are equal, and sums of scores equal but for their last digits."""
    for name, metric in expected.items():
        for state, value in metric.metric_state.items():
            assert isinstance(value, torch.Tensor)
            merged = getattr(found[name], state)
            if value.dtype == torch.long:
                assert torch.equal(merged, value), (name, state)
            else:
                torch.testing.assert_close(merged, value, rtol=1e-12, atol=0, equal_nan=True)


def both() -> dict[str, ReportMetric]:
    return {"crg": ReportCRG(), "rouge": ROUGE()}


def test_merge_sums_equals_one_process_in_any_order() -> None:
    columns = pairs(200)
    expected = one_process(both(), columns)
    rows = sums_of(both(), columns, 7)
    random.Random(1).shuffle(rows)
    merged = merge_sums(both(), rows)
    same_states(merged, expected)
    assert merged["crg"].compute() == expected["crg"].compute()
    with pytest.raises(ValueError, match=r"a row of sums lacks other\.num_unscorable"):
        merge_sums({"other": ROUGE()}, rows)


def test_report_sums_never_change_the_metrics_given() -> None:
    metrics = one_process(both(), pairs(5))
    before = float(metrics["rouge"].score_sum)
    rows = sums_of(metrics, pairs(10), 5)
    merged = merge_sums(metrics, rows)
    assert float(metrics["rouge"].score_sum) == before
    same_states(merged, one_process(both(), pairs(10)))


def test_report_scorer_adds_columns() -> None:
    metric = ReportCRG(prior=0.2)
    scorer = pickle.loads(pickle.dumps(ReportScorer({"labels": metric})))
    columns = {name: np.array(column, dtype=object) for name, column in pairs(50).items()}
    batch = scorer(columns)
    expected = metric.score(columns["prediction"].tolist(), columns["reference"].tolist())
    np.testing.assert_array_equal(batch["labels"], expected.value.numpy())
    np.testing.assert_array_equal(batch["labels_tp"], expected.details["tp"].numpy())
    assert batch["labels_missed"] == expected.explanations["missed"]
    assert batch["prediction"] is columns["prediction"]


def test_report_scorer_reads_context_and_missing_cells_and_names_errors() -> None:
    metric = CallableMetric("functions:older_than")
    batch = {"prediction": ["a", float("nan")], "years": np.array([61, 62]), "reference": ["a", "b"]}
    scorer = ReportScorer({"old": metric, "rouge": ROUGE()}, context={"age": "years"})
    assert np.nan_to_num(scorer(batch)["old"], nan=-1).tolist() == [1.0, -1.0]
    with pytest.raises(ValueError, match="the rows have no column 'report'; they have prediction, years, reference"):
        ReportScorer(ROUGE(), "report")(batch)
    with pytest.raises(ValueError, match="scores of crg depend on the other pairs of a batch; set a prior"):
        ReportScorer(ReportCRG())
    for function in (ReportScorer, ReportSums):
        with pytest.raises(ValueError, match=r"unknown context column 'agee'; did you mean 'age'\?"):
            function({"old": metric, "rouge": ROUGE()}, context={"agee": "years"})


def test_report_scorer_works_in_datasets_map(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = pairs(60)
    table = datasets.Dataset.from_dict(columns)
    scored = table.map(ReportScorer(ROUGE()), batched=True, batch_size=7)
    expected = ROUGE().score(columns["prediction"], columns["reference"]).value
    np.testing.assert_array_equal(np.array(scored["rouge"], dtype=float), expected.numpy())
    rows = table.map(ReportSums(both()), batched=True, batch_size=7, remove_columns=table.column_names)
    same_states(merge_sums(both(), rows), one_process(both(), columns))


def write(path: Path, columns: Mapping[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


@pytest.mark.ray
def test_score_dataset_scores_a_hundred_thousand_pairs_on_two_workers(ray: Any) -> None:
    columns = pairs(100_000)
    dataset = ray.data.from_arrow(pytest.importorskip("pyarrow").table(columns)).repartition(40)
    found = score_dataset(dataset, both(), workers=2, batch_size=1000)
    same_states(found, one_process(both(), columns))
    assert int(found["crg"].num_unscorable) == sum(
        prediction is None or not (reference or "").strip()
        for prediction, reference in zip(columns["prediction"], columns["reference"], strict=True)
    )


@pytest.mark.ray
def test_score_dataset_loses_nothing_if_a_worker_is_killed(ray: Any, tmp_path: Path) -> None:
    texts = ["end" if row == 30 else "a" * (row % 9) for row in range(60)]
    metrics: dict[str, ReportMetric] = {
        "length": CallableMetric("functions:die_once", options={"folder": str(tmp_path)}),
        "rouge": ROUGE(),
    }
    dataset = ray.data.from_items([{"prediction": text, "reference": "a"} for text in texts])
    found = score_dataset(dataset.repartition(12), metrics, workers=2, batch_size=5)
    assert (tmp_path / "killed").exists()
    assert (int(found["length"].num_scored), float(found["length"].score_sum)) == (60, sum(map(len, texts)))


def _wait_for_free_cpus(ray: Any, number: int) -> None:
    """Wait until the cluster counts this number of free CPUs, which it does a moment after actors start or end."""
    while ray.available_resources().get("CPU", 0) != number:
        time.sleep(0.1)


@pytest.mark.ray
def test_ray_scorers_return_scores_in_order_and_restart(ray: Any, tmp_path: Path) -> None:
    _wait_for_free_cpus(ray, 2)
    length = CallableMetric("functions:die_once", options={"folder": str(tmp_path)})
    batches = [_Batch([f"{'end' if row == 20 else ''}{'a' * row}"]) for row in range(50)]
    with RayScorers({"length": length}, workers=2) as scorers:
        found = list(scorers.scored(iter(batches)))
    assert (tmp_path / "killed").exists()
    assert [batch for batch, _ in found] == batches
    assert [float(scores["length"].value) for _, scores in found] == [len(one.predictions[0]) for one in batches]
    assert ray.is_initialized()
    _wait_for_free_cpus(ray, 2)
    scorers = RayScorers({"old": CallableMetric("functions:older_than")}, workers=1)
    with scorers, pytest.raises(TypeError, match=r"^older_than needs age"):
        list(scorers.scored([_Batch(["a"], "old")]))


@pytest.mark.ray
def test_ray_scorers_tell_of_a_cluster_that_is_too_small_or_busy(ray: Any) -> None:
    _wait_for_free_cpus(ray, 2)
    with pytest.raises(ValueError, match="3 workers need 3 CPU, but the Ray cluster has 2 CPU"):
        RayScorers({"rouge": ROUGE()}, workers=3)
    dataset = ray.data.from_items([{"prediction": "a", "reference": "a"}])
    with pytest.raises(ValueError, match=r"5 workers need 2\.5 CPU, but the Ray cluster has 2 CPU"):
        score_dataset(dataset, ROUGE(), workers=5)
    assert ray.is_initialized()
    with RayScorers({"rouge": ROUGE()}, workers=1) as first:
        batch = _Batch(["a"], "rouge")
        assert list(first.scored([batch]))
        _wait_for_free_cpus(ray, 1)
        with pytest.warns(RuntimeWarning, match="2 workers need 2 CPU, but only 1 CPU"):
            RayScorers({"rouge": ROUGE()}, workers=2).close()


class _Batch:
    def __init__(self, predictions: list[str], name: str = "length") -> None:
        self.predictions = predictions
        self.references = ["a"] * len(predictions)
        self.context: dict[str, dict[str, Any]] = {name: {}}


@pytest.mark.ray
def test_ray_scorers_give_the_same_bytes_on_the_command_line(ray: Any, tmp_path: Path) -> None:
    table = write(tmp_path / "pairs.csv", pairs(2000))
    for engine in ("local", "ray"):
        outputs = ["--output", str(tmp_path / f"{engine}.csv"), "--json", str(tmp_path / f"{engine}.json")]
        workers = [] if engine == "local" else ["--workers", "2"]
        command = ["score", str(table), "--metrics", "crg,rouge,bleu", "--batch-size", "64", "--engine", engine]
        assert main([*command, *workers, *outputs, "--bootstrap", "50", "--quiet"]) == 0
    assert (tmp_path / "local.csv").read_bytes() == (tmp_path / "ray.csv").read_bytes()
    summaries = [json.loads((tmp_path / f"{engine}.json").read_text()) for engine in ("local", "ray")]
    assert summaries[0] == summaries[1]


def test_ray_refuses_a_judge_with_a_budget() -> None:
    metric = CRIMSON(CascadeJudge("openai:m", budget_pairs=5))
    message = "the budget of the judge of crimson is counted in one process"
    pytest.importorskip("ray")
    with pytest.raises(ValueError, match=message):
        RayScorers({"crimson": metric}, workers=1)
    with pytest.raises(ValueError, match=message):
        score_dataset(None, metric, workers=1)


@pytest.mark.ray
def test_ray_scorers_count_what_the_judges_of_a_cascade_use(ray: Any, tmp_path: Path) -> None:
    reports = ["Small effusion.", "Quorblid. Effusion.", "Vextramal nodule.", "Cardiomegaly."]
    table = write(tmp_path / "pairs.csv", {"prediction": ["No effusion."] * 4, "reference": reports})

    async def refuse(request: Any, writer: Any) -> None:
        await status(401)(request, writer)

    with FaultServer(otherwise=refuse, item_of=lambda _: "pair") as server:
        judge = json.dumps({"name": "cascade", "second": {"name": "openai", "model": "m", "base_url": server.url}})
        command = ["score", str(table), "--metrics", "crimson", "--judge", judge, "--engine", "ray", "--workers", "2"]
        assert main([*command, "--batch-size", "1", "--json", str(tmp_path / "s.json"), "--quiet"]) == 0
        assert len(server.requests) == 2
    found = json.loads((tmp_path / "s.json").read_text())["metrics"]["crimson"]
    assert (found["usage"]["judge"]["calls"], found["usage"]["judge"]["failures"]) == (2, {"status": 2})
    assert (found["judged_by"], found["scored"]) == ({"rules": 2, "openai:m": 2}, 2)
