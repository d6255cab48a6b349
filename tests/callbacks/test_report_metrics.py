"""The callback in real Lightning runs, in one process."""

import csv
import json
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from scripted_judge import ScriptedJudge
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection
from words import WordLabeler

from rrg_rewards.callbacks import ReportMetricsCallback, RewardWatchCallback
from rrg_rewards.metrics import CRIMSON, CRGScore, CTFineBench, ReportCRG, make_metric
from rrg_rewards.metrics.base import UnreadColumnWarning
from rrg_rewards.rewards import make_reward
from rrg_rewards.utilities.texts import PlaceholderWarning
from tests.callbacks.validation import PAIRS, Echo, make_trainer, rows

LABELER = WordLabeler()
# A blank reference cannot be scored; its known labels can.
KNOWN = [(pred, ref if ref.strip() else "Normal.") for pred, ref in PAIRS]
STATISTICS = ("precision", "recall", "f1", "youden_j")


def loader(pairs: list[tuple[str, str]] = PAIRS) -> "DataLoader[Any]":
    return DataLoader(rows(pairs), batch_size=2)


def crg(pairs: list[tuple[str, str]] = PAIRS) -> float:
    metric = ReportCRG(LABELER)
    metric.update(*([pair[column] for pair in pairs] for column in range(2)))
    return metric.compute().item()


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def validate(callback: ReportMetricsCallback, folder: Path, model: Echo | None = None, loaders: Any = None) -> Any:
    trainer = make_trainer(folder, callbacks=[callback])
    return trainer.validate(model or Echo(), loaders or loader(), verbose=False)


class TableLogger(CSVLogger):
    """Records tables through the method of the Weights & Biases logger."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tables: list[dict[str, Any]] = []
        self.steps: list[tuple[int | None, dict[str, float]]] = []

    def log_table(self, **table: Any) -> None:
        self.tables.append(table)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.steps.append((step, dict(metrics)))
        super().log_metrics(metrics, step)


def test_report_metrics_callback_validate_logs_the_corpus_values(tmp_path: Path) -> None:
    (logged,) = validate(ReportMetricsCallback(ReportCRG(LABELER)), tmp_path)
    metric = ReportCRG(LABELER)
    metric.update(*([pair[column] for pair in PAIRS] for column in range(2)))
    expected = {f"val/crg_{name}": value.item() for name, value in metric.statistics().items()}
    assert logged == {"val/crg": crg(), "val/crg_num_unscorable": 1, **expected}
    assert {f"val/crg_{name}" for name in STATISTICS} <= logged.keys()


def test_report_metrics_callback_test_loop(tmp_path: Path) -> None:
    callback = ReportMetricsCallback(ReportCRG(LABELER, prior=0.3), table_dir=tmp_path)
    trainer = make_trainer(tmp_path, callbacks=[callback])
    (logged,) = trainer.test(Echo(), loader(), verbose=False)
    assert logged["test/crg"] == crg()
    assert (tmp_path / "test_crg_worst.csv").is_file()


def test_report_metrics_callback_fit_logs_each_epoch_anew_and_can_be_monitored(tmp_path: Path) -> None:
    class Changing(Echo):
        """Predicts normal reports in the first epoch."""

        def step(self, batch: Any) -> Any:
            output = super().step(batch)
            return {**output, "prediction": ["Normal."] * len(batch[0])} if self.current_epoch == 0 else output

    logger = TableLogger(tmp_path)
    best = ModelCheckpoint(tmp_path / "best", monitor="val/crg", mode="max", filename="best")
    trainer = make_trainer(
        tmp_path,
        callbacks=[ReportMetricsCallback(ReportCRG(LABELER)), best],
        logger=logger,
        enable_checkpointing=True,
        max_epochs=3,
        num_sanity_val_steps=2,
    )
    trainer.fit(Changing(), loader(), loader())
    values = [metrics["val/crg"] for _, metrics in logger.steps if "val/crg" in metrics]
    assert values == [pytest.approx(1 / 3), crg(), crg()]
    assert best.best_model_score.item() == crg()


def test_report_metrics_callback_sanity_check_leaves_no_trace(tmp_path: Path) -> None:
    seen = []

    class Watch(ReportMetricsCallback):
        def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
            seen.append((dict(trainer.callback_metrics), list(tmp_path.glob("*.csv")), list(logger.tables)))

    logger = TableLogger(tmp_path)
    callback = Watch(ReportCRG(LABELER, prior=0.3), table_dir=tmp_path, log_tables=True)
    trainer = make_trainer(tmp_path, callbacks=[callback], logger=logger, num_sanity_val_steps=2)
    trainer.fit(Echo(), loader(), loader())
    assert seen == [({}, [], [])]
    assert trainer.callback_metrics["val/crg"].item() == crg()
    assert len(logger.tables) == 1


def test_report_metrics_callback_sanity_check_finds_a_wrong_output(tmp_path: Path) -> None:
    class Silent(Echo):
        def step(self, batch: Any) -> Any:
            return {}

    trainer = make_trainer(tmp_path, callbacks=[ReportMetricsCallback(ReportCRG(LABELER))], num_sanity_val_steps=1)
    with pytest.raises(ValueError, match="lacks 'prediction'"):
        trainer.fit(Silent(), loader(), loader())


def test_report_metrics_callback_loaders_are_kept_apart(tmp_path: Path) -> None:
    parts = [PAIRS[:4], PAIRS[4:]]
    callback = ReportMetricsCallback(ReportCRG(LABELER, prior=0.3), table_dir=tmp_path, num_worst=2)
    logged = validate(callback, tmp_path, loaders=[loader(part) for part in parts])
    for index, part in enumerate(parts):
        assert logged[index][f"val/crg/dataloader_idx_{index}"] == crg(part)
    assert logged[0]["val/crg_num_unscorable/dataloader_idx_0"] == 0
    assert logged[1]["val/crg_num_unscorable/dataloader_idx_1"] == 1
    written = table(tmp_path / "val_crg_worst.csv")
    assert [row["dataloader"] for row in written] == ["0", "0", "1", "1"]
    assert [PAIRS[4 * int(row["dataloader"]) + int(row["index"])][1] for row in written] == [
        row["reference"] for row in written
    ]


def test_report_metrics_callback_a_loader_without_reports_is_not_logged(tmp_path: Path) -> None:
    class SecondSilent(Echo):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return {"prediction": [], "reference": []} if dataloader_idx == 1 else self.step(batch)

    logged = validate(
        ReportMetricsCallback(ReportCRG(LABELER)), tmp_path, SecondSilent(), loaders=[loader(), loader(PAIRS[:3])]
    )
    assert logged[0]["val/crg/dataloader_idx_0"] == crg()
    assert not any(name.endswith("dataloader_idx_1") for part in logged for name in part)


def test_report_metrics_callback_worst_reports(tmp_path: Path) -> None:
    metric = ReportCRG(LABELER, prior=0.3)
    validate(ReportMetricsCallback(metric, table_dir=tmp_path, num_worst=3, id_key="study"), tmp_path)
    scores = metric.score([pred for pred, _ in PAIRS], [ref for _, ref in PAIRS]).value.tolist()
    order = sorted((score, index) for index, score in enumerate(scores) if score == score)[:3]
    written = table(tmp_path / "val_crg_worst.csv")
    assert [(float(row["score"]), int(row["index"])) for row in written] == order
    for row in written:
        assert (row["prediction"], row["reference"]) == PAIRS[int(row["index"])]
        assert row["id"] == f"study-{row['index']}"
    assert [(row["missed"], row["invented"]) for row in written] == [
        ("hernia", "nodule"),
        ("", "effusion, nodule"),
        ("hernia", ""),
    ]


def test_report_metrics_callback_characters_that_no_file_holds_are_replaced(tmp_path: Path) -> None:
    pairs = [("Nodule \0 \ud800.", "Hernia."), ("Nodule.", "Nodule.")]
    callback = ReportMetricsCallback(ReportCRG(LABELER, prior=0.3), table_dir=tmp_path, log_tables=True, num_worst=1)
    logger = TableLogger(tmp_path)
    make_trainer(tmp_path, callbacks=[callback], logger=logger).validate(Echo(), loader(pairs), verbose=False)
    assert [row["prediction"] for row in table(tmp_path / "val_crg_worst.csv")] == ["Nodule \ufffd \ufffd."]
    (logged,) = logger.tables
    assert "Nodule \0 \ufffd." in logged["data"][0]


def test_report_metrics_callback_a_prefix_may_name_a_group(tmp_path: Path) -> None:
    validate(ReportMetricsCallback(ReportCRG(LABELER, prior=0.3), table_dir=tmp_path, prefix="val/chest"), tmp_path)
    assert (tmp_path / "val_chest_crg_worst.csv").is_file()


def test_report_metrics_callback_worst_of_scores_that_do_not_compare_warns(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="crg"):
        ReportMetricsCallback(ReportCRG(LABELER), table_dir=tmp_path)


def test_report_metrics_callback_no_text_is_kept_or_logged_unless_asked(tmp_path: Path) -> None:
    logger = TableLogger(tmp_path)
    trainer = make_trainer(tmp_path, callbacks=[ReportMetricsCallback(ReportCRG(LABELER))], logger=logger)
    trainer.validate(Echo(), loader(), verbose=False)
    assert logger.tables == []
    assert not list(tmp_path.rglob("*worst*"))


def test_report_metrics_callback_tables_reach_loggers(tmp_path: Path) -> None:
    takes = TableLogger(tmp_path)
    callback = ReportMetricsCallback(ReportCRG(LABELER, prior=0.3), log_tables=True, num_worst=2)
    trainer = make_trainer(tmp_path, callbacks=[callback], logger=takes)
    trainer.fit(Echo(), loader(), loader())
    (logged,) = takes.tables
    assert logged["key"] == "val/crg_worst"
    assert logged["step"] == 6
    assert [row[logged["columns"].index("missed")] for row in logged["data"]] == ["hernia", ""]


def test_report_metrics_callback_loggers_without_tables_are_told_once(tmp_path: Path) -> None:
    callback = ReportMetricsCallback(ReportCRG(LABELER, prior=0.3), log_tables=True)
    loggers = [TableLogger(tmp_path / "a"), CSVLogger(tmp_path / "b")]
    trainer = make_trainer(tmp_path, callbacks=[callback], logger=loggers, max_epochs=2)
    with pytest.warns(UserWarning, match="CSVLogger takes no tables") as told:
        trainer.fit(Echo(), loader(), loader())
    assert len([one for one in told if "takes no tables" in str(one.message)]) == 1


@pytest.mark.parametrize("log_details", [False, True])
def test_report_metrics_callback_counts_are_floats_and_single_labels_are_details(
    tmp_path: Path, log_details: bool, recwarn: pytest.WarningsRecorder
) -> None:
    metric = ReportCRG(WordLabeler("effusion nodule scar mass"), average="macro")
    (logged,) = validate(ReportMetricsCallback(metric, log_details=log_details), tmp_path)
    assert logged["val/crg_left_out"] == 2
    labels = {"val/crg_left_out/scar", "val/crg_left_out/mass"}
    assert labels & logged.keys() == (labels if log_details else set())
    assert not [one for one in recwarn if "converted to torch.float32" in str(one.message)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("crg", {"labeler": LABELER, "average": "macro"}),
        ("crg", {"levels": ["abnormality", "side"]}),
        ("crimson", {}),
        ("ct_finebench", {"mode": "f1"}),
        ("ct_finebench", {}),
        ("label_f1", {}),
        ("rouge", {}),
    ],
)
def test_report_metrics_callback_the_documentation_lists_every_logged_name(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    metric = make_metric(name, **options)
    page = (Path(__file__).parents[2] / "docs" / "lightning.md").read_text(encoding="utf-8")
    (logged,) = validate(ReportMetricsCallback(metric), tmp_path)
    (row,) = [line for line in page.splitlines() if line.startswith("| ") and f"`{metric.name}`" in line]
    documented = {"num_unscorable", *re.findall(r"`(\w+)(?:/[A-Z]+)?`", row.split("|")[2])}
    found = [key.removeprefix(f"val/{name}_").partition("/")[0] for key in logged if key != f"val/{name}"]
    # In mode f1, the row names the prefixes.
    assert {key.removeprefix("recall_").removeprefix("precision_") for key in found} <= documented


def test_report_metrics_callback_trainers_of_pytorch_lightning_call_it(tmp_path: Path) -> None:
    other = pytest.importorskip("pytorch_lightning")
    watch = RewardWatchCallback(labeler=None)
    watch.observe(["Edema."], {"reference": ["Edema."]})

    class Module(other.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(1.0))

        training_step, step, validation_step = Echo.training_step, Echo.step, Echo.validation_step
        configure_optimizers = Echo.configure_optimizers

    trainer = other.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ReportMetricsCallback(ReportCRG(LABELER)), watch],
        default_root_dir=tmp_path,
    )
    trainer.fit(Module(), loader(), loader())
    assert trainer.callback_metrics["val/crg"] == crg()
    saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=True)["callbacks"]
    assert watch.state_dict() in saved.values()


class Thinking(Echo):
    """Thinks before each report, and returns a column that CRIMSON may read."""

    def step(self, batch: Any) -> Any:
        output = super().step(batch)
        thoughts = [f"<think>Hernia? {text}</think>{text}" for text in output["prediction"]]
        return {**output, "prediction": thoughts, "age": [66] * len(thoughts)}


def test_report_metrics_callback_extracts_reports_and_logs_what_is_rewarded(tmp_path: Path) -> None:
    rewards = [make_reward("ct_finebench"), make_reward("format", pattern="<think>.*</think>.*")]
    reports, references = zip(*PAIRS, strict=True)
    (expected,) = validate(ReportMetricsCallback(CTFineBench()), tmp_path)
    (logged,) = validate(ReportMetricsCallback(CTFineBench(), rewards=rewards), tmp_path, Thinking())
    assert {name: logged[name] for name in expected} == expected
    rewarded = [value for value in rewards[0](reports, reference=references) if value is not None]
    assert logged["val/reward/ct_finebench"] == pytest.approx(sum(rewarded) / len(rewarded))
    assert logged["val/reward/ct_finebench_num_unscorable"] == len(reports) - len(rewarded) == 1
    assert logged["val/reward/format"] == 1.0
    assert logged["val/reward/ct_finebench"] != logged["val/ct_finebench"]


def test_report_metrics_callback_warns_once_of_context_that_is_not_read(tmp_path: Path) -> None:
    with pytest.warns(UnreadColumnWarning, match=r"crimson does not read 'age'.*context_keys={'crimson': {'") as told:
        validate(ReportMetricsCallback(CRIMSON(judge="rules")), tmp_path, Thinking())
    assert len([one for one in told if one.category is UnreadColumnWarning]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadColumnWarning)
        validate(ReportMetricsCallback(CRIMSON(judge="rules"), context_keys={"age": "age"}), tmp_path, Thinking())


def test_report_metrics_callback_several_metrics_with_a_column_each(tmp_path: Path) -> None:
    class Labelled(Echo):
        def step(self, batch: Any) -> Any:
            return {**super().step(batch), "known": LABELER(batch[1]).int()}

    callback = ReportMetricsCallback(
        {"text": ReportCRG(LABELER), "known": ReportCRG(LABELER), "few": ReportCRG(WordLabeler("hernia"))},
        context_keys={"known": {"target_labels": "known"}},
        prefix="valid",
    )
    (logged,) = validate(callback, tmp_path, Labelled())
    assert logged["valid/text"] == crg()
    assert logged["valid/known"] == crg(KNOWN)
    assert logged["valid/few"] != crg()
    assert logged["valid/text_num_unscorable"] == 1
    assert logged["valid/known_num_unscorable"] == 0


def test_report_metrics_callback_a_column_for_every_metric(tmp_path: Path) -> None:
    class Labelled(Echo):
        def step(self, batch: Any) -> Any:
            return {"text": batch[0], "truth": [None] * len(batch[0]), "known": LABELER(batch[1])}

    callback = ReportMetricsCallback(
        MetricCollection([ReportCRG(LABELER)]),
        prediction_key="text",
        reference_key="truth",
        context_keys={"target_labels": "known"},
    )
    (logged,) = validate(callback, tmp_path, Labelled())
    assert logged["val/ReportCRG"] == crg(KNOWN)


def test_report_metrics_callback_given_metrics_are_not_updated(tmp_path: Path) -> None:
    metric = ReportCRG(LABELER)
    validate(ReportMetricsCallback(metric), tmp_path)
    assert not metric.update_called
    assert int(metric.tp.sum()) == 0


def test_report_metrics_callback_trainers_in_turn(tmp_path: Path) -> None:
    callback = ReportMetricsCallback(ReportCRG(LABELER))
    first, second = (validate(callback, tmp_path, loaders=loader(part)) for part in (PAIRS, PAIRS[:4]))
    assert first[0]["val/crg"] == crg()
    assert second[0]["val/crg"] == crg(PAIRS[:4])


def test_report_metrics_callback_pickles_small() -> None:
    written = pickle.dumps(ReportMetricsCallback(ReportCRG(LABELER)))
    assert len(written) < 10_000
    assert sorted(pickle.loads(written).metrics) == ["crg"]


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        ({"reference": ["a"], "loss": 1}, ValueError, r"lacks 'prediction'; .* 'loss'"),
        ({"prediction": ["a"]}, ValueError, r"lacks 'reference'"),
        ({"prediction": ["a"], "reference": ["a"]}, ValueError, "lacks 'study'"),
        (None, TypeError, "NoneType"),
        (torch.tensor(1.0), TypeError, "Tensor"),
        ({"prediction": ["a", "b"], "reference": ["a"], "study": [1, 2]}, ValueError, "preds and target .* 2 and 1"),
        ({"prediction": "a", "reference": "b", "study": ["s"]}, TypeError, "got one string"),
        ({"prediction": ["a"], "reference": [1], "study": ["s"]}, TypeError, r"target\[0\]"),
        ({"prediction": ["a"], "reference": ["a"], "study": []}, ValueError, "prediction and study .* 1 and 0"),
    ],
)
def test_report_metrics_callback_wrong_outputs_raise(
    tmp_path: Path, output: Any, error: type[Exception], message: str
) -> None:
    class Wrong(Echo):
        def step(self, batch: Any) -> Any:
            return output

    with pytest.raises(error, match=message):
        validate(ReportMetricsCallback(ReportCRG(LABELER), id_key="study"), tmp_path, Wrong())


@pytest.mark.parametrize(
    ("metrics", "settings", "error", "message"),
    [
        (CRGScore(3), {}, TypeError, "metrics .* CRGScore"),
        ({"labels": CRGScore(3)}, {}, TypeError, r"metrics\['labels'\]"),
        (len, {}, TypeError, r"metrics .* CallableMetric\(function\)"),
        ({"own": ReportCRG}, {}, TypeError, r"metrics\['own'\] .* ReportCRG\(\)"),
        ("crg", {}, TypeError, r"make_metric\('crg'\)"),
        ({}, {}, ValueError, "metrics"),
        (ReportCRG(LABELER), {"num_worst": 0}, ValueError, "num_worst"),
        (ReportCRG(LABELER), {"context_keys": {"crgg": {"a": "b"}}}, ValueError, "context_keys: .* crgg"),
    ],
)
def test_report_metrics_callback_wrong_arguments_raise(
    metrics: Any, settings: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ReportMetricsCallback(metrics, **settings)


class WithAges(Echo):
    """Also returns data of the patients."""

    def step(self, batch: Any) -> Any:
        return {**super().step(batch), "years": batch[2], "why": ["Cough."] * len(batch[0])}


def test_report_metrics_callback_crimson_with_context_beside_crg(tmp_path: Path) -> None:
    judge = ScriptedJudge(waits=True)
    callback = ReportMetricsCallback(
        {"crg": ReportCRG(LABELER, prior=0.3), "crimson": CRIMSON(judge)},
        context_keys={"crimson": {"age": "years", "indication": "why"}},
        table_dir=tmp_path,
        log_details=True,
    )
    (logged,) = validate(callback, tmp_path, WithAges())
    preds, target = ([pair[column] for pair in PAIRS] for column in range(2))
    contexts = [pair.context for call in judge.asked for pair in call]
    scorable = [str(place) for place, text in enumerate(target) if text.strip()]
    assert contexts == [(("age", age), ("indication", "Cough.")) for age in scorable]
    metric = CRIMSON(ScriptedJudge())
    metric.update(preds, target)
    assert logged["val/crg"] == crg()
    assert logged["val/crimson"] == pytest.approx(metric.compute().item())
    assert logged["val/crimson_num_unscorable"] == 1
    for name, value in metric.statistics().items():
        assert logged[f"val/crimson_{name}"] == value.item()
    worst = table(tmp_path / "val_crimson_worst.csv")
    assert {"missed", "invented", "misdescribed", "failure"} <= worst[0].keys()
    assert float(worst[0]["score"]) == metric.score(preds, target).value.nan_to_num(1).min()


@pytest.mark.filterwarnings("ignore:crimson. the judge failed")
def test_report_metrics_callback_pairs_on_which_the_judge_fails_are_counted_and_not_among_the_worst(
    tmp_path: Path,
) -> None:
    callback = ReportMetricsCallback(
        CRIMSON(ScriptedJudge(fail_on={"odule": "deadline"})), table_dir=tmp_path, num_worst=100
    )
    (logged,) = validate(callback, tmp_path)
    failed = sum("odule" in pred for pred, _ in PAIRS)
    assert logged["val/crimson_num_unscorable"] == 1 + failed
    assert len(table(tmp_path / "val_crimson_worst.csv")) == len(PAIRS) - 1 - failed


def test_report_metrics_callback_main_statistics_are_logged_unless_all_are_asked_for(tmp_path: Path) -> None:
    (logged,) = validate(ReportMetricsCallback(CRIMSON(ScriptedJudge())), tmp_path)
    main = {f"val/crimson_{name}" for name in CRIMSON.main_details or ()}
    assert logged.keys() == {"val/crimson", "val/crimson_num_unscorable"} | main
    (more,) = validate(ReportMetricsCallback(CRIMSON(ScriptedJudge()), log_details=True), tmp_path)
    assert logged.items() <= more.items()
    assert "val/crimson_location_errors" in more


def test_report_metrics_callback_what_is_undefined_is_not_logged_and_can_be_monitored(tmp_path: Path) -> None:
    class Silent(Echo):
        """No report can be scored in the first and third epoch."""

        def step(self, batch: Any) -> Any:
            output = super().step(batch)
            return output if self.current_epoch == 1 else {**output, "reference": [None] * len(batch[0])}

    values: list[float] = []

    class Seen(ModelCheckpoint):  # type: ignore[misc]
        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            values.append(trainer.callback_metrics["val/crg"].item())
            super().on_validation_end(trainer, pl_module)

    logger, best = TableLogger(tmp_path), Seen(tmp_path / "best", monitor="val/crg", mode="max", filename="best")
    callbacks = [ReportMetricsCallback({"crg": ReportCRG(LABELER), "crimson": CRIMSON(ScriptedJudge())}), best]
    trainer = make_trainer(tmp_path, callbacks=callbacks, logger=logger, enable_checkpointing=True, max_epochs=3)
    trainer.fit(Silent(), loader(), loader())
    steps = [{k: v for k, v in metrics.items() if k.startswith("val/")} for _, metrics in logger.steps]
    steps = [metrics for metrics in steps if metrics]
    counts = {"val/crg_num_unscorable": len(PAIRS), "val/crimson_num_unscorable": len(PAIRS)}
    assert [steps[0], steps[2]] == [counts, counts]
    assert steps[1]["val/crg"] == crg()
    assert all(value == value for metrics in steps for value in metrics.values())
    assert [value == value for value in values] == [False, True, False]
    assert best.best_model_score.item() == crg()


def test_report_metrics_callback_words_for_a_missing_report_are_told_once(tmp_path: Path) -> None:
    pairs = [("NaN", "Nodule."), ("None", "Nodule."), ("Nodule.", "n/a"), ("Nodule.", "Nodule.")]
    with pytest.warns(PlaceholderWarning, match="2 of 2 .* 'prediction' .* 'NaN'") as told:
        (logged,) = validate(ReportMetricsCallback(ReportCRG(LABELER)), tmp_path, loaders=loader(pairs))
    of_references, of_predictions = "references are unscorable", "'prediction' of a batch"
    words = [str(one.message) for one in told if one.category is PlaceholderWarning]
    assert [sum(text in one for one in words) for text in (of_predictions, "crg: 1 of 2 texts in target")] == [1, 1]
    assert all(of_references in one for one in words)
    assert logged["val/crg_num_unscorable"] == 1


def page_data(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])
    return found


@pytest.mark.filterwarnings("ignore::rrg_rewards.metrics.LabelerWarning")
def test_report_metrics_callback_the_page_has_the_signatures_of_the_scores(tmp_path: Path) -> None:
    class Labelled(Echo):
        def step(self, batch: Any) -> Any:
            return {**super().step(batch), "known": LABELER(batch[1])}

    metrics = {name: ReportCRG(LABELER, prior=0.3) for name in ("text", "known")}
    callback = ReportMetricsCallback(
        metrics, context_keys={"known": {"target_labels": "known"}}, html_dir=tmp_path / "pages"
    )
    validate(callback, tmp_path, Labelled())
    html = (tmp_path / "pages" / "val_reports.html").read_text()
    assert f"crg|reference:given|prediction:{{{LABELER.signature}}}|" in html
    assert f"crg|labeler:{{{LABELER.signature}}}|" in html


def test_report_metrics_callback_the_page_has_all_scores_and_the_worst_reports(tmp_path):
    metrics = {"crg": ReportCRG(LABELER, prior=0.3), "crimson": CRIMSON()}
    options = {"html_dir": tmp_path / "pages", "id_key": "study", "num_worst": 3, "num_sampled": 2}
    callback = ReportMetricsCallback(metrics, html_text=True, **options)
    pairs = [("Small left pneumothorax.", "Large left pneumothorax."), *PAIRS]
    for _ in range(2):
        (logged,) = validate(callback, tmp_path, loaders=loader(pairs))
    page = tmp_path / "pages" / "val_reports.html"
    html, data = page.read_text(), page_data(page)
    # Two validations are two points of the curve.
    assert html.count(f">{logged['val/crg']:.4f}<") == 1
    assert html.split('<polyline points="')[1].split('"')[0].count(",") == 2
    assert [pane["title"] for pane in data["panes"]] == ["Reference", "Candidate"]
    scores = {column["group"]: column["cells"] for column in data["columns"] if column["shown"]}
    for name, metric in metrics.items():
        expected = metric.score(*([pair[side] for pair in pairs] for side in range(2))).value
        worst = sorted(value for value in expected.tolist() if value == value)[:3]
        is_worst = [f"worst of {name}" in one for one in scores[""]]
        shown = [cell for cell, of_worst in zip(scores[name], is_worst, strict=True) if of_worst]
        assert sorted(shown) == pytest.approx(worst, rel=1e-5)
    sampled = [place for place, why in enumerate(scores[""]) if "sample" in why]
    assert len(sampled) == 2
    for place in sampled:
        row = int(data["names"][place].removeprefix("study-"))
        for name, metric in metrics.items():
            expected = metric.score([pairs[row][0]], [pairs[row][1]]).value.item()
            assert scores[name][place] == (pytest.approx(expected, rel=1e-5) if expected == expected else None)
    for place, name in enumerate(data["names"]):
        pred, ref = pairs[int(name.removeprefix("study-"))]
        assert [pane["texts"][place] for pane in data["panes"]] == [ref, pred]
    assert all(any(data["findings"][name]) for name in metrics)
    validate(ReportMetricsCallback(metrics, **options), tmp_path, loaders=loader(pairs))
    html, data = page.read_text(), page_data(page)
    assert data["panes"] == []
    assert "neumothorax" not in html


def test_report_metrics_callback_text_in_pages_needs_pages():
    with pytest.raises(ValueError, match="html_dir"):
        ReportMetricsCallback(ReportCRG(), html_text=True)
