"""Report metrics in validation and test with Lightning, exact for any number of processes, and pages of reports."""

import copy
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from rrg_rewards.callbacks.worst_reports import (
    KeptReports,
    ReportPage,
    SampledReports,
    WorstReport,
    WorstReports,
    log_table,
    make_table,
)
from rrg_rewards.data.samplers import count_misshared, samplers_of
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.metrics.base import ReportMetric, UnreadColumnWarning
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.pages.highlights import scored_findings
from rrg_rewards.rewards.base import Reward, check_names, score_tensor
from rrg_rewards.rewards.completions import ReportExtractor
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.processes import gather_objects
from rrg_rewards.utilities.texts import PlaceholderWarning, find_placeholders, placeholder_message

# Check first: the error message names the extra that installs Lightning.
require("lightning.pytorch", extra="lightning")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.utilities.rank_zero import rank_zero_warn  # noqa: E402

# Statistics of CRG of single labels, of which there may be as many as labels.
_LEFT_OUT = "left_out/"


@dataclass(frozen=True)
class _ReportBatch:
    """The reports of one step.

    Args:
        completions: What the model wrote.
        preds: Candidate reports, extracted from it.
        target: Reference reports.
        identifiers: Identifier of each pair, or ``None``.
        context: Further columns by metric and argument.
    """

    completions: Sequence[str | None]
    preds: Sequence[str | None]
    target: Sequence[str | None]
    identifiers: Sequence[Any]
    context: Mapping[str, Mapping[str, Sequence[Any]]]


class _Kept(NamedTuple):
    """What a process has kept of the scores of a metric and a loader."""

    worst: Sequence[WorstReport]
    sampled: Sequence[WorstReport]
    values: Sequence[float]


class RewardMean(ReportMetric):
    """The mean of a reward.

    Args:
        reward: The reward. Its completions are the predictions, and its columns are context columns.
    """

    def __init__(self, reward: Reward) -> None:
        super().__init__()
        self.reward = reward
        self.name = reward.__name__  # type: ignore[misc]

    @property
    def signature(self) -> str:
        """Signature of the reward."""
        return self.reward.signature

    def needs_references(self, context: Collection[str]) -> bool:  # noqa: ARG002
        """Return false: the reward itself says which completions are unscorable."""
        return False

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> Scores:  # noqa: ARG002
        return Scores(score_tensor(self.reward.rewards(self.reward.score(preds, **context))))


_REMEDY = "; wrap a function: CallableMetric(function); for a class write ReportCRG(), for a name make_metric('crg')"
_Metrics = ReportMetric | MetricCollection | Mapping[str, ReportMetric]


@dataclass
class _ScoredReports:
    """A metric of one data loader in the current run of the loop, and the reports that tables and pages show."""

    metric: ReportMetric
    worst: WorstReports
    sampled: SampledReports
    values: list[float] = field(default_factory=list)
    num_reports: int = 0


class ReportMetricsCallback(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Scores the reports that ``validation_step`` or ``test_step`` returns and logs the corpus values.

    The step returns a dict with two lists of texts, the candidate and the reference reports of its batch::

        def validation_step(self, batch, batch_idx):
            return {"prediction": self.generate(batch), "reference": batch["report"]}

    For a batch without reports, the step returns empty lists. ``None`` is an error because a step without a ``return``
    statement also returns ``None``.

    At the end of the epoch, the callback logs ``<prefix>/<metric>``, ``<prefix>/<metric>_<statistic>`` for the main
    entries of the metric's ``statistics``, and ``<prefix>/<metric>_num_unscorable``. All are floats. With several
    loaders, ``/dataloader_idx_<i>`` is appended to each name. A value that is undefined is not logged; a callback that
    monitors it gets NaN. The states of each metric are reduced over processes before the value is computed. The value
    therefore equals that of a single process, even if reports are distributed unevenly.
    Lightning's default validation sampler repeats reports to distribute them evenly, and the callback warns about it.
    Use :class:`~rrg_rewards.callbacks.UnpaddedDistributedSampler` instead. The sanity check runs the metrics and logs
    nothing.

    The given metrics are never updated. Each validation and each test uses new clones on the module's device, one for
    each loader.

    **Worst reports.** With ``table_dir`` or ``log_tables``, the callback stores the ``num_worst`` worst-scored reports
    of each metric and loader, with both texts and the explanations of the score, such as missed and invented labels.
    Memory use does not depend on the size of the corpus. At the end of the epoch, each process sends its worst reports
    to the other processes; no other text is communicated. Scores of different batches must be comparable. For
    :class:`~rrg_rewards.metrics.ReportCRG`, this requires a ``prior``.

    **Pages.** With ``html_dir``, each validation writes a page that opens offline: corpus values with their curves over
    the validations so far, the distribution of the scores, and a table of ``num_sampled`` random reports, the same in
    each validation, and of the worst ones. Only with ``html_text`` the page contains reports, with what became of each
    finding for the metrics that compare findings; the processes then also exchange the texts of the sample.

    Args:
        metrics: A report metric, logged under its name, or several metrics by name.
        rewards: A reward, or several, whose mean is logged as ``<prefix>/reward/<name>``: what is trained, where the
            metric of the same name has other defaults (CT-FineBench is rewarded by ``f1`` and measured by ``recall``).
            They read the whole candidates, and their columns from the step's output.
        prediction_key: Key of the candidate reports in the step's output.
        reference_key: Key of the reference reports.
        report: How the report is extracted from a candidate, such as a completion with reasoning, for the metrics and
            tables; as in :func:`rrg_rewards.rewards.make_reward`. Prompts may have opened the reasoning: ``prompt`` in
            the step's output, one for each candidate or one text for all.
        context_keys: Keys in the step's output of further columns that metrics use:
            ``{"target_labels": "labels"}`` for all metrics, or ``{"crg": {"target_labels": "labels"}}`` for one metric.
        id_key: Key of the report identifiers for the table.
        num_worst: Number of reports of each metric and loader in the tables.
        num_sampled: Number of reports of each loader that the page has as a sample of all.
        table_dir: Folder for ``<prefix>_<metric>_worst.csv``, which each validation overwrites.
        log_tables: Whether to log the tables with loggers that support tables (Weights & Biases, MLflow, TensorBoard);
            a warning names loggers that do not. The default is ``False`` because reports are patient data and a logger
            may send them to a server.
        html_dir: Folder for ``<prefix>_reports.html``, which each validation overwrites.
        html_text: Whether the page contains the reports of its table, their findings and explanations.
        prefix: Prefix of the names in validation.
        test_prefix: Prefix of the names in ``trainer.test``.
        prog_bar: Whether the metrics appear in the progress bar.
        log_details: Whether to log all entries of ``statistics``, and not only those in the metric's ``main_details``,
            without the entries of single labels.

    Raises:
        TypeError: If a value of ``metrics`` is not a report metric; in a run, if the step does not return a dict.
        ValueError: If there is no metric, ``num_worst`` is not positive, ``num_sampled`` is negative, ``html_text`` is
            set without ``html_dir``, or ``context_keys`` names an unknown metric; in a run, if the step's output lacks
            a key.

    Example:
        >>> from rrg_rewards.callbacks import ReportMetricsCallback
        >>> from rrg_rewards.metrics import ReportCRG
        >>> callback = ReportMetricsCallback(ReportCRG(prior=0.2), table_dir="tables")
        >>> sorted(callback.metrics)
        ['crg']
    """

    def __init__(
        self,
        metrics: _Metrics,
        *,
        rewards: Reward | Sequence[Reward] = (),
        prediction_key: str = "prediction",
        reference_key: str = "reference",
        report: str = "auto",
        context_keys: Mapping[str, str | Mapping[str, str]] | None = None,
        id_key: str | None = None,
        num_worst: int = 10,
        table_dir: str | Path | None = None,
        log_tables: bool = False,
        html_dir: str | Path | None = None,
        html_text: bool = False,
        num_sampled: int = 20,
        prefix: str = "val",
        test_prefix: str = "test",
        prog_bar: bool = False,
        log_details: bool = False,
    ) -> None:
        if num_worst < 1:
            raise ValueError(f"num_worst must be positive, got {num_worst}")
        if num_sampled < 0:
            raise ValueError(f"num_sampled must be at least 0, got {num_sampled}")
        if html_text and html_dir is None:
            raise ValueError("html_text needs html_dir, the folder of the pages")
        self.metrics = _by_name(metrics)
        rewarded = [rewards] if isinstance(rewards, Reward) else list(rewards)
        check_names([reward.__name__ for reward in rewarded])
        self.prediction_key = prediction_key
        self.reference_key = reference_key
        self.report = ReportExtractor(report)
        self.context_keys = _keys_by_metric(context_keys or {}, list(self.metrics))
        for reward in rewarded:
            self.metrics[f"reward/{reward.__name__}"] = RewardMean(reward)
            self.context_keys[f"reward/{reward.__name__}"] = {column: column for column in reward.columns}
        self.id_key = id_key
        self.num_worst = num_worst
        self.num_sampled = num_sampled
        self.table_dir = None if table_dir is None else Path(table_dir)
        self.log_tables = log_tables
        self.html_dir = None if html_dir is None else Path(html_dir)
        self.html_text = html_text
        self.prefix = prefix
        self.test_prefix = test_prefix
        self.prog_bar = prog_bar
        self.log_details = log_details
        self._loaders: dict[int | None, dict[str, _ScoredReports]] = {}
        self._pages: dict[str, ReportPage] = {}
        self._warned: set[str] = set()
        if self._keeps_worst:
            self._warn_of_batch_scores()

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Clear the results of an earlier run."""
        # Make new clones instead of a reset: under ddp_spawn, the states of the given metrics are in shared memory.
        self._loaders = {}
        self._warn_of_padding(trainer, trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
        dataloader_idx: int | None = None,
    ) -> None:
        """Score the reports of a batch. Lightning omits ``dataloader_idx`` if there is one loader."""
        reports = self._read(outputs, "test_step" if trainer.testing else "validation_step")
        loaders = samplers_of(trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders)
        # A process without a report of its own has one of another process, which must not count twice.
        is_repeated = getattr(loaders[dataloader_idx or 0], "is_repeated", False)
        if not is_repeated and (reports.preds or reports.target):
            self._score(trainer, pl_module, reports, dataloader_idx)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the corpus values and write the tables."""
        if not trainer.sanity_checking:
            self._finish(trainer, pl_module, self.test_prefix if trainer.testing else self.prefix)
        self._loaders = {}

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end

    @property
    def _keeps_worst(self) -> bool:
        return self.table_dir is not None or self.log_tables or self.html_dir is not None

    def _warn_of_batch_scores(self) -> None:
        for name, metric in self.metrics.items():
            if not metric.compares_across_batches:
                rank_zero_warn(
                    f"scores of {name} are relative to their batch, so the worst reports of several batches are not "
                    "the worst of all; give the metric a fixed setting, as in ReportCRG(prior=0.2)"
                )

    def _warn_of_padding(self, trainer: Trainer, dataloaders: Any) -> None:
        if trainer.world_size == 1 or "padding" in self._warned:
            return
        misshared = count_misshared(dataloaders)
        if misshared:
            self._warned.add("padding")
            rank_zero_warn(
                f"The distributed sampler repeats or leaves out {misshared} reports so that all {trainer.world_size} "
                "processes get equally many: the report metrics are not exact. Give each data loader "
                "`sampler=UnpaddedDistributedSampler(dataset)` from rrg_rewards.callbacks."
            )

    def _warn_of_words(self, batch: _ReportBatch) -> None:
        words = find_placeholders(batch.preds)
        if words and "words" not in self._warned:
            self._warned.add("words")
            # On every process, because each process has different reports. Metrics warn of references.
            where, remedy = f"{self.prediction_key!r} of a batch", "return None for a missing report"
            message = placeholder_message(where, len(words), len(batch.preds), words[0], remedy)
            warnings.warn(message, PlaceholderWarning, stacklevel=2)

    def _warn_of_unread(self, name: str, unread: Sequence[str]) -> None:
        if unread and f"unread {name}" not in self._warned:
            self._warned.add(f"unread {name}")
            keys = {column: column for column in unread}
            rank_zero_warn(
                f"{name} does not read {' and '.join(map(repr, unread))} of the output, which may change its scores: "
                f"set context_keys={{{name!r}: {keys}}}, or leave them out",
                category=UnreadColumnWarning,
            )

    def _read(self, outputs: Any, step: str) -> _ReportBatch:
        """Read the columns from the output of a step; tensors are converted to lists."""
        wanted = (
            f"return {{{self.prediction_key!r}: [...], {self.reference_key!r}: [...]}}, "
            "with empty lists for a batch without reports"
        )
        if not isinstance(outputs, Mapping):
            raise TypeError(f"{step} returned {type(outputs).__name__}, which contains no reports; {wanted}")

        def column(key: str) -> Sequence[Any]:
            if key not in outputs:
                present = ", ".join(map(repr, outputs)) or "nothing"
                raise ValueError(f"the output of {step} lacks {key!r}; it contains {present}; {wanted}")
            values: Sequence[Any] = outputs[key].tolist() if isinstance(outputs[key], Tensor) else outputs[key]
            return values

        completions, target = column(self.prediction_key), column(self.reference_key)
        # A prompt may have opened the reasoning.
        prompts = outputs.get("prompt")
        prompts = [prompts] * len(completions) if isinstance(prompts, str | None) else column("prompt")
        check_same_length(self.prediction_key, completions, "prompt", prompts)
        preds = [
            self.report.reports([text], [prompt])[0] if isinstance(text, str) else text
            for text, prompt in zip(completions, prompts, strict=True)
        ]
        identifiers: Sequence[Any] = [None] * len(preds)
        if self.id_key is not None:
            identifiers = column(self.id_key)
            check_same_length(self.prediction_key, preds, self.id_key, identifiers)
        context = {
            name: {argument: column(key) for argument, key in keys.items()} for name, keys in self.context_keys.items()
        }
        for name, metric in self.metrics.items():
            self._warn_of_unread(name, metric.unread_context(outputs, self.context_keys[name]))
            if isinstance(metric, RewardMean):
                context[name] = {"prompts": prompts, **context[name]}
        return _ReportBatch(completions, preds, target, identifiers, context)

    def _loader(self, pl_module: LightningModule, loader: int | None) -> dict[str, _ScoredReports]:
        if loader not in self._loaders:
            self._loaders[loader] = {
                name: _ScoredReports(_clone(metric, pl_module), self._no_worst(name), SampledReports(self.num_sampled))
                for name, metric in self.metrics.items()
            }
        return self._loaders[loader]

    def _no_worst(self, name: str) -> WorstReports:
        return WorstReports(self.num_worst, bool(self.metrics[name].higher_is_better))

    def _score(self, trainer: Trainer, pl_module: LightningModule, batch: _ReportBatch, loader: int | None) -> None:
        for name, state in self._loader(pl_module, loader).items():
            preds = batch.completions if isinstance(state.metric, RewardMean) else batch.preds
            scores = state.metric.score(preds, batch.target, **batch.context[name])
            state.metric.add_scores(scores)
            first_pair = (loader or 0, trainer.global_rank, state.num_reports)
            if self._keeps_worst:
                _keep(state.worst, scores, batch, first_pair, self.html_text)
            if self.html_dir is not None:
                _keep(state.sampled, scores, batch, first_pair, self.html_text)
                state.values += scores.value[scores.scored].tolist()
            state.num_reports += len(batch.preds)
        self._warn_of_words(batch)

    def _finish(self, trainer: Trainer, pl_module: LightningModule, prefix: str) -> None:
        # Send the worst reports and the sample, and no other text, to the other processes.
        gathered = gather_objects(
            {
                loader: {name: _Kept(one.worst.rows(), one.sampled.rows(), one.values) for name, one in states.items()}
                for loader, states in self._loaders.items()
            }
        )
        # A process may have no batch of a loader. All processes must log the same names; otherwise the reduction hangs.
        seen = sorted({loader for own in gathered for loader in own}, key=lambda loader: loader or 0)
        for loader in seen:
            for name, state in self._loader(pl_module, loader).items():
                value = self._log(trainer, pl_module, f"{prefix}/{name}", loader, state.metric)
                self._page(prefix).add(_logged_name(f"{prefix}/{name}", loader), trainer.global_step, value)
        if not (self._keeps_worst and trainer.is_global_zero):
            return
        worst: dict[str, list[WorstReport]] = {name: [] for name in self.metrics}
        sampled: dict[str, list[WorstReport]] = {name: [] for name in self.metrics}
        for name in self.metrics:
            for loader in seen:
                kept = [own[loader][name] for own in gathered if loader in own]
                worst[name] += _merged(self._no_worst(name), (one.worst for one in kept))
                sampled[name] += _merged(SampledReports(self.num_sampled), (one.sampled for one in kept))
        for name, rows in worst.items():
            self._write(trainer, prefix, name, rows)
        if self.html_dir is not None:
            path = self.html_dir / f"{prefix}_reports.html".replace("/", "_")
            title = f"{prefix}: epoch {trainer.current_epoch}, step {trainer.global_step}"
            by_metric = [found for own in gathered for found in own.values()]
            scores = {name: [value for found in by_metric for value in found[name].values] for name in self.metrics}
            # Signatures of the copies that have scored say where the labels of their references came from.
            scored = {name: one.metric for name, one in self._loader(pl_module, seen[0]).items()} if seen else {}
            signatures = {name: metric.signature for name, metric in {**self.metrics, **scored}.items()}
            self._page(prefix).write(path, title, scores, worst, sampled, signatures)

    def _page(self, prefix: str) -> ReportPage:
        return self._pages.setdefault(prefix, ReportPage(self.html_text))

    def _log(
        self, trainer: Trainer, pl_module: LightningModule, name: str, loader: int | None, metric: ReportMetric
    ) -> float:
        """Log the values of a metric; return its corpus value."""
        suffix = _logged_name("", loader)
        # A process may have no batch of a loader. Values are logged at the end of the epoch, without Lightning's index.
        log = partial(pl_module.log, add_dataloader_idx=False, metric_attribute=name)
        value = metric.compute()
        if value.isnan():
            # Not for loggers. A checkpoint callback ends the run if the value that it monitors is absent.
            trainer.callback_metrics[f"{name}{suffix}"] = value
        else:
            # Log the object, not its value: Lightning resets the metric.
            log(f"{name}{suffix}", metric, prog_bar=self.prog_bar)
        # The values are reduced and equal in all processes. The maximum keeps them exactly; a mean may round.
        for statistic, mean in self._statistics(metric).items():
            log(f"{name}_{statistic}{suffix}", mean.double(), reduce_fx="max", sync_dist=True)
        log(f"{name}_num_unscorable{suffix}", metric.num_unscorable.double(), reduce_fx="sum", sync_dist=True)
        return float(value)

    def _statistics(self, metric: ReportMetric) -> dict[str, Tensor]:
        """Return the statistics to log, without undefined ones."""
        main = None if self.log_details else metric.main_details
        return {
            name: value
            for name, value in metric.statistics().items()
            if not value.isnan()
            and (main is None or name in main)
            and (self.log_details or not name.startswith(_LEFT_OUT))
        }

    def _write(self, trainer: Trainer, prefix: str, name: str, rows: Sequence[WorstReport]) -> None:
        table = make_table(rows, trainer.current_epoch, trainer.global_step)
        if self.table_dir is not None:
            self.table_dir.mkdir(parents=True, exist_ok=True)
            file_name = f"{prefix}_{name}_worst.csv".replace("/", "_")
            write_table(table, self.table_dir / file_name, overwrite=True)
        if self.log_tables:
            key = f"{prefix}/{name}_worst"
            took = [log_table(logger, key, table, trainer.global_step) for logger in trainer.loggers]
            self._warn_of_loggers(
                [type(one).__name__ for one, is_logged in zip(trainer.loggers, took, strict=True) if not is_logged]
            )

    def _warn_of_loggers(self, without_tables: Sequence[str]) -> None:
        if without_tables and "loggers" not in self._warned:
            self._warned.add("loggers")
            rank_zero_warn(
                f"log_tables=True, but {', '.join(without_tables)} takes no tables; set table_dir for CSV files, or "
                "use a logger for Weights & Biases, MLflow or TensorBoard, or one with a method log_table"
            )


def _keys_by_metric(
    context_keys: Mapping[str, str | Mapping[str, str]], metrics: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the keys of further columns by metric and argument."""
    shared = {argument: key for argument, key in context_keys.items() if isinstance(key, str)}
    by_metric = {name: dict(keys) for name, keys in context_keys.items() if not isinstance(keys, str)}
    if unknown := by_metric.keys() - set(metrics):
        raise ValueError(
            f"context_keys: unknown metric {', '.join(sorted(unknown))}; the metrics are {', '.join(metrics)}"
        )
    return {name: {**shared, **by_metric.get(name, {})} for name in metrics}


def _by_name(metrics: _Metrics) -> dict[str, ReportMetric]:
    if isinstance(metrics, ReportMetric):
        return {metrics.name: metrics}
    if not isinstance(metrics, Mapping | MetricCollection):
        raise TypeError(f"metrics must be a report metric or several by name, got {shown(metrics)}{_REMEDY}")
    named: dict[str, ReportMetric] = {}
    for name, metric in metrics.items():
        if not isinstance(metric, ReportMetric):
            raise TypeError(f"metrics[{name!r}] must be a report metric, got {shown(metric)}{_REMEDY}")
        named[str(name)] = metric
    if not named:
        raise ValueError("metrics must hold at least one metric")
    return named


def _clone(metric: ReportMetric, pl_module: LightningModule) -> ReportMetric:
    clone: ReportMetric = copy.deepcopy(metric)
    clone.reset()
    return clone.to(pl_module.device)


def _logged_name(name: str, loader: int | None) -> str:
    return name if loader is None else f"{name}/dataloader_idx_{loader}"


def _merged(kept: KeptReports, parts: Iterable[Sequence[WorstReport]]) -> list[WorstReport]:
    """Return what is kept of the reports of all processes."""
    for row in chain.from_iterable(parts):
        kept.add(row)
    return kept.rows()


def _keep(
    kept: KeptReports, scores: Scores, batch: _ReportBatch, first_pair: tuple[int, int, int], with_text: bool
) -> None:
    """Store the reports of a batch that are among the worst, or in the sample.

    Args:
        kept: The reports so far.
        scores: Scores of the batch.
        batch: Reports of the batch.
        first_pair: Loader, rank and index of the first report.
        with_text: Whether the findings of the reports contain text.
    """
    loader, rank, first = first_pair
    explanations = scores.explanations
    rows = zip(scores.value.tolist(), batch.identifiers, batch.target, batch.preds, strict=True)
    for row, (score, identifier, reference, prediction) in enumerate(rows):
        if kept.takes(score, loader, rank, first + row):
            # The page without text needs neither reports nor explanations of its sample; tables do of the worst.
            if not with_text and isinstance(kept, SampledReports):
                reference = prediction = None
                explanations = {}
            why = {kind: texts[row] for kind, texts in explanations.items()}
            name = None if identifier is None else str(identifier)
            shown = (reference, prediction) if with_text else (None, None)
            (findings,) = scored_findings(scores.take(torch.tensor([row])), shown[:1], shown[1:]) or [None]
            kept.add(WorstReport(score, loader, rank, first + row, name, reference, prediction, why, findings))
