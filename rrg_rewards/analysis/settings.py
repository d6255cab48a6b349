"""Settings of the analyses, declared once for Python and the command line. This module imports no heavy package."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.settings import SettingError, check_settings, setting

LANGUAGE_MODEL = "openai:MODEL, local:MODEL, or a YAML file or mapping of a name and settings"
"""Help for the setting of a judge that is a language model."""

_LABELER = (
    "labeler, if a metric or reward uses one: rules:SCHEMA, a lexicon file (my_lexicon.yaml), radbert:CHECKPOINT, "
    "judge:SCHEMA (with --judge) or a plug-in (default: rules:ct_rate)"
)
_JUDGE = (
    f"judge, if a metric, reward or labeler uses one: rules, {LANGUAGE_MODEL}; cascade:JUDGE for rules and, where they "
    "do not read a pair, JUDGE (default: rules)"
)
_PREFIX = "put TEXT before the names of new columns; without it they replace input columns of the same name"


def column_setting(content: str, default: str) -> Any:
    """Return the setting of a column of report texts."""
    return setting(default, f"column of {content} (default: {default})", metavar="NAME")


def context_setting() -> Any:
    """Return the setting of the context columns by the name of their argument."""
    return setting({}, "pass a column as context, for example age=patient_age; may be repeated", form="NAME=COLUMN")


def batch_size_setting() -> Any:
    """Return the setting of the number of rows in a batch."""
    return setting(256, "number of rows in a batch (default: 256)", metavar="N", minimum=1)


def workers_setting() -> Any:
    """Return the setting of the number of worker processes, as ``worker_count`` reads it."""
    return setting(
        1,
        "processes that compute at the same time, on one core each; 0 for one for each core (default: 1). Results are "
        "the same with any number. Not for models and language models",
        metavar="N",
        minimum=0,
    )


def constant_text_setting() -> Any:
    """Return the setting of the metrics that score texts which are the same for every study."""
    return setting(
        "rules",
        "metrics that are also computed for texts that are the same for every study: rules (default), all (also those "
        "with a model, a language model or a function, which then score each study once more for each text), or none",
    )


def seed_setting() -> Any:
    """Return the setting of the seed of all draws."""
    return setting(0, "random seed (default: 0)")


def one_per_scan_setting(columns: str) -> Any:
    """Return the setting of one volume for each scan of CT-RATE; ``columns`` are the options that name the volumes."""
    return setting(False, f"use one reconstruction of each scan of CT-RATE, by the names in {columns}")


def no_chest_setting() -> Any:
    """Return the setting of lists of volumes of CT-RATE to leave out."""
    help_text = "list of volumes of CT-RATE to leave out, such as no_chest_valid.txt; may be repeated"
    return setting((), help_text, metavar="FILE")


def check_scan_settings(one_per_scan: bool, no_chest: object, column: str | None, columns: str) -> None:
    """Raise a SettingError if volumes are chosen without a column that names them."""
    if isinstance(no_chest, str):
        raise SettingError("no_chest", f"must be a sequence of files, got the text {no_chest!r}")
    for name, value in (("one_per_scan", one_per_scan), ("no_chest", no_chest)):
        if value and column is None:
            raise SettingError(name, f"needs {columns}, the column of the names of the volumes")


def _columns(help: str, default: Any = ()) -> Any:  # noqa: A002 (as in argparse)
    return setting(default, help, metavar="COLUMN[,COLUMN...]", separator=",")


@dataclass(frozen=True, kw_only=True)
class PairColumns:
    """Where a table of report pairs has predictions, references and context.

    Args:
        prediction_column: Column of predictions, or a template of several columns such as
            ``Findings: {findings} Impression: {impression}`` (:meth:`~rrg_rewards.data.Table.texts`).
        reference_column: Column of references, or several columns, each with a reference of every report; each may be a
            template. Default: ``reference``.
        best_reference: With several references, metrics that are defined for one reference take the best one.
        references: Table of the references, their labels and context columns, if they are in another file.
        key: With ``references``, the column of the names of studies, or ``COLUMN=COLUMN`` for a different name in the
            table of references.
        missing_section: Text in place of a missing section of a template. Default: a missing or blank section is left
            out with the text before it.
        missing_prediction: ``skip`` leaves a pair without prediction out, ``score`` counts it as an empty report.
        context: Context columns by the name of their argument, such as ``{"age": "patient_age"}``.
        reference_labels: Read the reference labels from columns named like the labels, not from the reference text.
        reference_label_prefix: The same, from columns named by this text and the label.
        id_column: Column of the names of rows; no cell may be missing.
    """

    prediction_column: str = setting(
        "prediction",
        "column of predictions, or a template of columns, as in 'Findings: {findings} Impression: {impression}' "
        "(default: prediction)",
        metavar="NAME",
    )
    reference_column: str | Sequence[str] | None = setting(
        None,
        "column of references, or a template (default: reference); may be repeated, for several references of each "
        "report",
        metavar="NAME",
    )
    missing_section: str | None = setting(
        None,
        "text in place of a missing section of a template, for example None (default: the section is left out with the "
        "text before it)",
        metavar="TEXT",
    )
    best_reference: bool = setting(
        False, "with several columns of references: metrics that are defined for one reference take the best one"
    )
    references: str | Path | None = setting(
        None,
        "table of the references, their labels and context columns, if they are in another file; needs --key",
        metavar="TABLE",
    )
    key: str | None = setting(
        None, "column that names the study of each row [=its column in --references]", metavar="COLUMN[=COLUMN]"
    )
    missing_prediction: Literal["skip", "score"] = setting(
        "skip", "skip: the pair is unscorable; score: the pair counts as an empty report (default: skip)"
    )
    context: Mapping[str, str] = context_setting()
    reference_labels: bool = setting(
        False, "read the reference labels from columns named like the labels, not from the reference text"
    )
    reference_label_prefix: str | None = setting(
        None, "read the reference labels from columns named TEXT + label", metavar="TEXT"
    )
    id_column: str | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        columns = self.reference_columns
        if self.best_reference and len(columns) < 2:
            raise SettingError("best_reference", "requires several columns, --reference-column A --reference-column B")
        if len(set(columns)) < len(columns):
            raise SettingError("reference_column", f"{', '.join(columns)} names a column more than once")
        if len(columns) > 1 and (self.reference_labels or self.reference_label_prefix is not None):
            raise SettingError("reference_column", "reference labels replace one reference, not several")

    @property
    def reference_columns(self) -> list[str]:
        """The columns of references that are set; none means ``reference``."""
        if self.reference_column is None:
            return []
        return [self.reference_column] if isinstance(self.reference_column, str) else list(self.reference_column)

    @property
    def best(self) -> bool | None:
        """Whether metrics take the best of several references; ``None`` if reports have one reference."""
        return self.best_reference if len(self.reference_columns) > 1 else None

    @property
    def keys(self) -> tuple[str, str]:
        """The column of the names of studies, and that of the table of references.

        Raises:
            SettingError: If there is none.
        """
        if self.key is None:
            raise SettingError("references", "needs --key COLUMN, which names the study of each row")
        key, _, other = self.key.partition("=")
        return key, other or key


@dataclass(frozen=True, kw_only=True)
class MetricChoice:
    """Metrics by name, with their options.

    Args:
        metrics: Names as in :func:`~rrg_rewards.metrics.make_metric`; ``module:Class`` or ``module:function`` is a
            metric of your own.
        set: Options by ``METRIC.OPTION``, such as ``{"crg.prior": 0.2}``.
        labeler: Labeler of all metrics that use one, as in :func:`~rrg_rewards.labelers.get_labeler`. Default:
            ``rules:ct_rate``.
        judge: Judge of all metrics that use one, or of a labeler that needs one, as in
            :func:`~rrg_rewards.judges.get_judge`. Default: ``rules``.
    """

    metrics: Sequence[str] = setting(
        (),
        "metrics to compute, for example crg,crimson; module:Class or module:function is a metric of your own",
        metavar="NAME[,NAME...]",
        separator=",",
    )
    set: Mapping[str, Any] = setting(
        {}, "set an option of a metric, for example crg.prior=0.2; may be repeated", form="METRIC.OPTION=VALUE"
    )
    labeler: Any = setting(None, _LABELER, metavar="NAME")
    judge: Any = setting(None, _JUDGE, metavar="JUDGE")

    def __post_init__(self) -> None:
        check_settings(self)

    def options(self) -> dict[str, dict[str, Any]]:
        """Return the options of each metric.

        Raises:
            SettingError: If an option names a metric that is not among the metrics.

        Example:
            >>> MetricChoice(metrics=["crg", "crimson"], set={"crg.prior": 0.2}).options()
            {'crg': {'prior': 0.2}, 'crimson': {}}
        """
        options: dict[str, dict[str, Any]] = {name: {} for name in self.metrics}
        for key, value in self.set.items():
            # The name of a metric may contain dots: my_package.metrics:overlap.
            metric, _, option = key.rpartition(".")
            if metric not in options:
                named = key.partition(".")[0]
                names = ",".join(self.metrics)
                raise SettingError("set", f"{named!r} is not among --metrics {names}; use one of these names")
            options[metric][option] = value
        return options


@dataclass(frozen=True, kw_only=True)
class RewardChoice:
    """A reward by name, with its options.

    Args:
        reward: Name as in :func:`~rrg_rewards.rewards.make_reward`; ``module:Class`` is a reward of your own.
        reference_column: Column of references.
        set: Options of the reward, such as ``{"prior": 0.2}``.
        labeler: Labeler of the reward, as in :func:`~rrg_rewards.labelers.get_labeler`.
        judge: Judge of the reward, or of a labeler that needs one, as in :func:`~rrg_rewards.judges.get_judge`.
        context: Context columns by the name of their argument, such as ``{"age": "patient_age"}``.
    """

    reward: str = setting(help="reward, for example crg", metavar="NAME")
    reference_column: str = column_setting("references", "reference")
    set: Mapping[str, Any] = setting(
        {}, "set an option of the reward, for example prior=0.2; may be repeated", form="OPTION=VALUE"
    )
    labeler: Any = setting(None, _LABELER, metavar="NAME")
    judge: Any = setting(None, _JUDGE, metavar="JUDGE")
    context: Mapping[str, str] = context_setting()


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """How the reports of a table are labelled.

    Args:
        text_column: Column of the report texts.
        schema: Label set. With the labelers ``rules`` and ``judge`` it chooses their labels (default: ``ct_rate``);
            another labeler must have these labels.
        labeler: Name of a labeler as in :func:`~rrg_rewards.labelers.get_labeler`, or a labeler.
        judge: Judge of a labeler that needs one, as in :func:`~rrg_rewards.judges.get_judge`.
        prefix: Text before the names of new columns.
        batch_size: Maximum number of reports in a batch.
        key: For CT-RATE, the column of the names of volumes.
        one_per_scan: Keep one reconstruction of each scan of CT-RATE, by the names in ``key``.
        no_chest: Lists of volumes of CT-RATE that are left out, such as ``no_chest_valid.txt``.
        workers: Number of processes that label reports; 0 for one for each core.
    """

    text_column: str = setting(help="column of the report texts", metavar="NAME")
    schema: str | None = setting(
        None,
        "label set: ct_rate or chexbert; for a judge also merlin or a YAML file (default: ct_rate)",
        metavar="NAME",
    )
    labeler: Any = setting(
        "rules",
        "labeler: rules (no model), a lexicon file (my_lexicon.yaml), radbert:CHECKPOINT, or judge, a language model "
        "(default: rules); rules:SCHEMA and judge:SCHEMA are rules and judge with --schema SCHEMA",
        metavar="NAME",
    )
    judge: Any = setting(
        None,
        f"language model of --labeler judge: {LANGUAGE_MODEL}",
        metavar="JUDGE",
    )
    prefix: str = setting("", _PREFIX, metavar="TEXT")
    batch_size: int = batch_size_setting()
    key: str | None = setting(
        None, "for CT-RATE: column of the names of the volumes, such as VolumeName", metavar="NAME"
    )
    one_per_scan: bool = one_per_scan_setting("--key")
    no_chest: Sequence[str | Path] = no_chest_setting()
    workers: int = workers_setting()

    def __post_init__(self) -> None:
        check_settings(self)
        check_scan_settings(self.one_per_scan, self.no_chest, self.key, "--key")
        # Imported here, because label sets are read from files.
        from rrg_rewards.schemas import get_label_schema

        try:
            get_label_schema(self.schema or "ct_rate")
        except (ValueError, FileNotFoundError) as error:
            raise SettingError("schema", str(error)) from error

    @property
    def chooses_scans(self) -> bool:
        """Whether rows are left out by the names of volumes of CT-RATE."""
        return self.key is not None and bool(self.one_per_scan or self.no_chest)


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """Settings of :func:`~rrg_rewards.analysis.score_table`.

    Args:
        bootstrap: Resamples of the bootstrap; 0 for no intervals.
        seed: Seed of the bootstrap.
        prefix: Text before the names of new columns. Without it they replace columns of the same name.
        batch_size: Number of rows in a batch.
        constant_text: Metrics whose value for texts that are the same for every study is computed: ``rules``, those
            without a model, a language model or a function of your own; ``all``; or ``none``.
        workers: Number of processes that score pairs; 0 for one for each core.
    """

    bootstrap: int = setting(1000, "resamples; 0 for no interval (default: 1000)", metavar="N", minimum=0)
    prefix: str = setting("", _PREFIX, metavar="TEXT")
    batch_size: int = batch_size_setting()
    seed: int = setting(0, "seed of the bootstrap (default: 0)")
    constant_text: Literal["rules", "all", "none"] = constant_text_setting()
    workers: int = workers_setting()

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class VLM3DSettings:
    """Files and labeler of :func:`~rrg_rewards.analysis.evaluate_vlm3d`.

    Args:
        references: The reference reports, ``ground_truth.json``.
        label_table: The reference labels, ``ground_truth.csv``: ``AccessionNo`` and the 18 labels of CT-RATE.
        prediction_label_table: Labels of the predictions in the same form, such as the official ``inferred.csv``.
        labeler: Labeler of the predictions without such a table, as in :func:`~rrg_rewards.labelers.get_labeler`. The
            official one is ``radbert:CHECKPOINT``.
        judge: Judge of a labeler that needs one.
        no_meteor: Leave METEOR out, whose program needs Java, memory and time.
        batch_size: Number of reports that are labelled together.
    """

    references: str | Path
    label_table: str | Path = setting(
        help="table of the reference labels: AccessionNo and the 18 labels (ground_truth.csv)", metavar="TABLE"
    )
    prediction_label_table: str | Path | None = setting(
        None, "labels of the predictions in the same form, instead of --labeler", metavar="TABLE"
    )
    labeler: Any = None
    judge: Any = None
    no_meteor: bool = setting(False, "leave METEOR out, whose program needs Java, 2 GB of memory and seconds to start")
    batch_size: int = batch_size_setting()

    def __post_init__(self) -> None:
        check_settings(self)
        for name, file in (("references", "ground_truth.json"), ("label_table", "ground_truth.csv")):
            if getattr(self, name) is None:
                raise SettingError(name, f"the layout needs it: --{name.replace('_', '-')} {file}")
        if self.labeler is None and self.prediction_label_table is None:
            raise SettingError(
                "labeler",
                "the layout needs one: radbert:CHECKPOINT, as the official evaluation, or another, such as "
                "rules:ct_rate, for other numbers; or labels of the predictions: --prediction-label-table inferred.csv",
            )
        if self.labeler is not None and self.prediction_label_table is not None:
            raise SettingError("labeler", "cannot be combined with --prediction-label-table")


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """Settings of :func:`~rrg_rewards.analysis.compare_tables`.

    Args:
        scores: Columns of scores that other programs wrote, which are compared as means. With one table, a name
            contains ``{column}``, which stands for the column of predictions.
        lower_is_better: Columns among ``scores`` of which a lower number is better.
        baseline: Name of the system to compare with. Default: the first.
        by: Columns that divide the studies into groups; the comparison is repeated for each group.
        bootstrap: Draws of the bootstrap; 0 for no intervals.
        permutations: Permutations of the randomisation; 0 for no p-values.
        seed: Seed of draws and permutations.
        constant_text: As for :class:`ScoreSettings`.
    """

    scores: Sequence[str] = _columns("columns of scores; with one table, as in {column}_green")
    lower_is_better: Sequence[str] = _columns("columns of --scores of which a lower number is better")
    baseline: str | None = setting(None, "system to compare with (default: the first)", metavar="NAME")
    by: Sequence[str] = _columns("repeat the comparison for each value of a column")
    bootstrap: int = setting(1000, "bootstrap draws; 0 for no intervals (default: 1000)", metavar="N", minimum=0)
    permutations: int = setting(
        10_000, "permutations of the randomisation; 0 for no p-values (default: 10000)", metavar="N", minimum=0
    )
    seed: int = seed_setting()
    constant_text: Literal["rules", "all", "none"] = constant_text_setting()

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class PreferenceSettings:
    """How the completions of a table become preference data.

    Args:
        trainer: Trainer whose format is written: ``dpo`` or ``kto``.
        prompt_column: Column of prompts, texts or lists of messages.
        completion_column: Column of completions.
        reference_column: Column of references.
        group_column: Column that identifies a prompt. Default: the prompt and the reference.
        keep: Columns that are copied, such as those of images.
        margin: Minimum difference of the rewards of a pair, which are never equal.
        per_prompt: Maximum number of pairs per prompt.
        threshold: For KTO, completions are labelled by whether their reward is above it, instead of those in pairs.
            Completions whose reward is within ``margin`` of it are left out.
        conversational: Turn prompts that are texts, and their completions, into messages.
        system_prompt: System message of conversational prompts.
        batch_size: Maximum number of completions that are scored together.
    """

    trainer: Literal["dpo", "kto"] = setting("dpo", "trainer whose format is written (default: dpo)")
    prompt_column: str = column_setting("prompts", "prompt")
    completion_column: str = column_setting("completions", "completion")
    reference_column: str = "reference"
    group_column: str | None = setting(
        None, "column that identifies a prompt (default: prompt and reference)", metavar="NAME"
    )
    keep: Sequence[str] = setting(
        (), "copy a column to the output, for example images; may be repeated", metavar="COLUMN"
    )
    margin: float = setting(0.0, "minimum difference of the rewards of a pair (default: any above 0)", metavar="X")
    per_prompt: int = setting(1, "maximum number of pairs per prompt (default: 1)", metavar="N", minimum=1)
    threshold: float | None = setting(
        None,
        "with --trainer kto: label every completion by whether its reward is above X, and leave out completions "
        "whose reward is within --margin of X",
        metavar="X",
    )
    conversational: bool = setting(False, "write prompts and completions as messages")
    system_prompt: str | None = setting(None, "system message of --conversational prompts", metavar="TEXT")
    batch_size: int = batch_size_setting()

    def __post_init__(self) -> None:
        check_settings(self)
        if self.margin < 0:
            raise SettingError("margin", f"must be at least 0, got {self.margin}")
        if self.threshold is not None and self.trainer != "kto":
            raise SettingError("threshold", "requires --trainer kto")
        if self.system_prompt is not None and not self.conversational:
            raise SettingError("system_prompt", "needs --conversational")


@dataclass(frozen=True, kw_only=True)
class DatasetChoice:
    """An annotated data set whose files are read.

    Args:
        dataset: Its name, as in :data:`rrg_rewards.data.ANNOTATED_SETS`. Default: the table is one of your own.
        counts: Its second file, with the counts (RadEvalX only).
    """

    dataset: Literal["rexval", "radevalx", "radevalexpert", "chest2error", "refisco", "radpref", "rate_eval"] | None = (
        setting(None, "the table is the file or folder of an annotated data set")
    )
    counts: str | None = setting(None, "second file of --dataset radevalx, with the counts", metavar="FILE")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.counts is not None and self.dataset is None:
            raise SettingError("counts", "needs --dataset radevalx")


@dataclass(frozen=True, kw_only=True)
class AgreementColumns:
    """Where a table has scores and human judgements.

    Args:
        human: Columns of human judgements. Without any, those that a data set has by default
            (:func:`~rrg_rewards.analysis.agreement_of_set`); a table needs one.
        scores: Columns of scores.
        candidates: Each row compares two candidates, whose columns end with these texts. The score or judgement
            ``NAME`` is then the difference between the columns ``NAME`` + the first text and ``NAME`` + the second.
        unit: Column whose equal values are drawn together by the bootstrap, such as the study of a report.
        group: Column of groups; everything is computed for each of its values as well.
    """

    human: Sequence[str] = _columns("columns of human judgements; required without --dataset")
    scores: Sequence[str] = _columns("columns of scores")
    candidates: Sequence[str] | None = setting(
        None,
        "each row compares two candidates, whose columns end with these texts",
        metavar="SUFFIX,SUFFIX",
        separator=",",
    )
    unit: str | None = setting(None, "rows with the same value here are drawn together", metavar="COLUMN")
    group: str | None = setting(None, "also compute everything for each value of this column", metavar="COLUMN")

    def __post_init__(self) -> None:
        check_settings(self)
        texts = self.candidates
        if texts is not None and (len(texts) != 2 or not all(texts) or texts[0] == texts[1]):
            raise SettingError("candidates", f"must be two different texts, as in _1,_2, got {','.join(texts)!r}")


@dataclass(frozen=True, kw_only=True)
class AgreementSettings:
    """Settings of :func:`~rrg_rewards.analysis.measure_agreement`.

    Args:
        statistics: Names of the statistics, as in :func:`~rrg_rewards.functional.human_agreement`. Default: all that
            apply, without ``binary``.
        lower_is_better: Columns of scores and judgements of which a lower number is better. They get the opposite
            sign, so that all agreement is positive.
        baseline: Score that the others are compared with. Default: all pairs of scores are compared.
        bootstrap: Draws of the bootstrap; 0 for no intervals.
        permutations: Permutations of each test; 0 for no p-values.
        seed: Seed of draws and permutations.
        workers: Number of processes that score and compare; 0 for one for each core.
    """

    statistics: Sequence[str] | None = setting(
        None, "statistics (default: all that apply)", metavar="NAME[,NAME...]", separator=","
    )
    lower_is_better: Sequence[str] = _columns("columns of --scores and --human that are turned")
    baseline: str | None = setting(None, "compare the other scores with this one only", metavar="NAME")
    bootstrap: int = setting(1000, "bootstrap resamples; 0 for no intervals (default: 1000)", metavar="N", minimum=0)
    permutations: int = setting(1000, "permutations; 0 for no p-values (default: 1000)", metavar="N", minimum=0)
    seed: int = seed_setting()
    workers: int = workers_setting()

    def __post_init__(self) -> None:
        check_settings(self)
        if self.statistics is None:
            return
        # Imported here, because torch is slow to import.
        from rrg_rewards.functional.agreement import AgreementStatistic

        known = get_args(AgreementStatistic)
        for name in self.statistics:
            if name not in known:
                raise SettingError("statistics", unknown_name_message("statistic", name, known))
            if list(self.statistics).count(name) > 1:
                raise SettingError("statistics", f"{name} is named more than once")
