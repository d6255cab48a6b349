"""Settings of the analyses, declared once for Python and the command line. This module imports no heavy package.

The text of each setting documents it, here and in the help of commands. It names other settings in backticks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rrg_rewards.utilities.settings import MAX_SEED, MAX_WORKERS, SettingError, Settings, setting

REWRITE_PROMPTS = {"paraphrased": "paraphrase_prompt", "adversarial": "adversarial_prompt"}  # by the change
LANGUAGE_MODEL = "openai:MODEL, local:MODEL, or a YAML file or mapping of a name and settings"
"""Help for the setting of a judge that is a language model."""

_PREFIX = "put TEXT before the names of new columns; without it they replace input columns of the same name"


def _columns(help: str) -> Any:  # noqa: A002 (as in argparse)
    return setting((), help, metavar="COLUMN[,COLUMN...]", separator=",")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batches(Settings):
    """The size of batches."""

    batch_size: int = setting(256, "number of rows in a batch", metavar="N", minimum=1, maximum=1_000_000)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Seed(Settings):
    """The seed of all draws."""

    seed: int = setting(0, "random seed", minimum=0, maximum=MAX_SEED)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Workers(Settings):
    """The number of processes, as :func:`~rrg_rewards.utilities.worker_pool.worker_count` reads it."""

    workers: int = setting(
        1,
        "processes that compute at the same time, on one core each; 0 for one for each core (default: 1). Results do "
        "not depend on the number. Not with a model or a judge",
        metavar="N",
        minimum=0,
        maximum=MAX_WORKERS,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConstantTexts(Settings):
    """Metrics that also score texts which are the same for every study."""

    constant_text: Literal["rules", "all", "none"] = setting(
        "rules",
        "metrics that also score the same text for every study: rules (default); all, in which a model, judge or "
        "function scores each study once more for each such text; or none",
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ContextColumns(Settings):
    """The context columns by the name of their argument, such as ``{"age": "patient_age"}``."""

    context: Mapping[str, str] = setting(
        {}, "pass a column as context, for example age=patient_age; may be repeated", form="NAME=COLUMN"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PairColumns(ContextColumns):
    """Where a table of report pairs has predictions, references and context.

    A template of columns is read by :meth:`rrg_rewards.data.Table.texts`. ``id_column`` names the rows; no cell of it
    may be missing.
    """

    prediction_column: str = setting(
        "prediction",
        "column of predictions, or a template of columns, as in 'Findings: {findings} Impression: {impression}'",
        metavar="NAME",
    )
    reference_column: str | None = setting(
        None, "column of references, or a template (default: reference)", metavar="NAME"
    )
    missing_section: str | None = setting(
        None,
        "text in place of a missing section of a template, for example None (default: the section is left out with the "
        "text before it)",
        metavar="TEXT",
    )
    references: str | Path | None = setting(
        None,
        "table of the references, their labels and context columns, if they are in another file; needs `key`",
        metavar="TABLE",
    )
    key: str | None = setting(
        None, "column that names the study of each row [=its column in `references`]", metavar="COLUMN[=COLUMN]"
    )
    missing_prediction: Literal["skip", "score"] = setting(
        "skip", "skip: the pair is unscorable; score: the pair counts as an empty report"
    )
    reference_labels: bool = setting(
        False, "read the reference labels from columns named like the labels, not from the reference text"
    )
    reference_label_prefix: str | None = setting(
        None, "read the reference labels from columns named TEXT + label", metavar="TEXT"
    )
    id_column: str | None = None

    @property
    def keys(self) -> tuple[str, str]:
        """The column of the names of studies, and that of the table of references.

        Raises:
            SettingError: If there is none.
        """
        if self.key is None:
            raise SettingError("references", "needs `key`, which names the study of each row")
        key, _, other = self.key.partition("=")
        return key, other or key


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Readers(Settings):
    """What reads reports, as :func:`~rrg_rewards.labelers.get_labeler` and :func:`~rrg_rewards.judges.get_judge`."""

    labeler: Any = setting(
        None,
        "labeler of metrics and rewards: rules:SCHEMA, a lexicon file (my_lexicon.yaml), radbert:CHECKPOINT, "
        "judge:SCHEMA (with `judge`) or a plug-in (default: rules:ct_rate)",
        metavar="NAME",
    )
    judge: Any = setting(
        None,
        f"judge of metrics, rewards and labelers: rules, {LANGUAGE_MODEL}; cascade:JUDGE for rules and, where "
        "they do not read a pair, JUDGE (default: rules)",
        metavar="JUDGE",
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MetricChoice(_Readers):
    """Metrics by name as in :func:`~rrg_rewards.metrics.make_metric`, with their options."""

    metrics: Sequence[str] = setting(
        (),
        "metrics to compute, for example crg,crimson; module:Class or module:function is your own metric",
        metavar="NAME[,NAME...]",
        separator=",",
    )
    set: Mapping[str, Any] = setting(
        {}, "set an option of a metric, for example crg.prior=0.2; may be repeated", form="METRIC.OPTION=VALUE"
    )

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
                named, names = key.partition(".")[0], ",".join(self.metrics)
                raise SettingError("set", f"{named!r} is not among `metrics={names}`; use one of these names")
            options[metric][option] = value
        return options


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewardChoice(_Readers, ContextColumns):
    """A reward by name as in :func:`~rrg_rewards.rewards.make_reward`, with its options."""

    reward: str = setting(help="reward, for example crg; module:Class is your own reward", metavar="NAME")
    reference_column: str = setting("reference", "column of references", metavar="NAME")
    set: Mapping[str, Any] = setting(
        {}, "set an option of the reward, for example prior=0.2; may be repeated", form="OPTION=VALUE"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelSettings(Batches, Workers):
    """How the reports of a table are labelled. A labeler other than rules must have the labels of ``schema``."""

    text_column: str = setting(help="column of the report texts", metavar="NAME")
    schema: str | None = setting(
        None,
        "label set: ct_rate or chexbert; for a judge also merlin or a YAML file (default: ct_rate)",
        metavar="NAME",
    )
    labeler: Any = setting(
        "rules",
        "labeler: rules (no model), a lexicon file (my_lexicon.yaml), radbert:CHECKPOINT, or judge, a language model "
        "(default: rules); rules:SCHEMA and judge:SCHEMA are rules and judge with `schema=SCHEMA`",
        metavar="NAME",
    )
    judge: Any = setting(None, f"language model of `labeler=judge`: {LANGUAGE_MODEL}", metavar="JUDGE")
    prefix: str = setting("", _PREFIX, metavar="TEXT")

    def __post_init__(self) -> None:
        super().__post_init__()
        # Imported here, because label sets are read from files.
        from rrg_rewards.schemas import get_label_schema

        try:
            get_label_schema(self.schema or "ct_rate")
        except (ValueError, FileNotFoundError) as error:
            raise SettingError("schema", str(error)) from error


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScoreSettings(Batches, Seed, ConstantTexts, Workers):
    """Settings of :func:`~rrg_rewards.analysis.score_table`."""

    bootstrap: int = setting(1000, "resamples; 0 for no interval", metavar="N", minimum=0, maximum=1_000_000)
    prefix: str = setting("", _PREFIX, metavar="TEXT")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VLM3DSettings(Batches):
    """Files and labeler of :func:`~rrg_rewards.analysis.evaluate_vlm3d`.

    ``references`` are the reference reports, ``ground_truth.json``. ``labeler`` and ``judge`` label the predictions
    without a table of their labels; the official labeler is ``radbert:CHECKPOINT``.
    """

    references: str | Path
    label_table: str | Path = setting(
        help="table of the reference labels: AccessionNo and the 18 labels (ground_truth.csv)", metavar="TABLE"
    )
    prediction_label_table: str | Path | None = setting(
        None, "labels of the predictions in the same form, instead of `labeler`", metavar="TABLE"
    )
    labeler: Any = None
    judge: Any = None
    no_meteor: bool = setting(False, "leave METEOR out, whose program needs Java, 2 GB of memory and seconds to start")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, file in (("references", "ground_truth.json"), ("label_table", "ground_truth.csv")):
            if getattr(self, name) is None:
                raise SettingError(name, f"the layout needs it: {file}")
        if self.labeler is None and self.prediction_label_table is None:
            raise SettingError(
                "labeler",
                "the layout needs one: radbert:CHECKPOINT, as the official evaluation, or another for other numbers; "
                "or labels of the predictions: `prediction_label_table=inferred.csv`",
            )
        if self.labeler is not None and self.prediction_label_table is not None:
            raise SettingError("labeler", "cannot be combined with `prediction_label_table`")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareSettings(Seed, ConstantTexts):
    """Settings of :func:`~rrg_rewards.analysis.compare_tables`. Scores of other programs are compared as means."""

    scores: Sequence[str] = _columns("columns of scores; with one table, as in {column}_green")
    lower_is_better: Sequence[str] = _columns("columns of `scores` in which a lower value is better")
    baseline: str | None = setting(None, "system to compare with (default: the first)", metavar="NAME")
    by: Sequence[str] = _columns("repeat the comparison for each value of a column")
    bootstrap: int = setting(1000, "bootstrap draws; 0 for no intervals", metavar="N", minimum=0, maximum=1_000_000)
    permutations: int = setting(
        10_000, "permutations of the randomisation; 0 for no p-values", metavar="N", minimum=0, maximum=10_000_000
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreferenceSettings(Batches):
    """How the completions of a table become preference data."""

    trainer: Literal["dpo", "kto"] = setting("dpo", "trainer whose format is written")
    prompt_column: str = setting("prompt", "column of prompts, texts or lists of messages", metavar="NAME")
    completion_column: str = setting("completion", "column of completions", metavar="NAME")
    reference_column: str = "reference"
    group_column: str | None = setting(
        None, "column that identifies a prompt (default: prompt and reference)", metavar="NAME"
    )
    keep: Sequence[str] = setting(
        (), "copy a column to the output, for example images; may be repeated", metavar="COLUMN"
    )
    margin: float = setting(
        0.0, "minimum difference of the rewards of a pair (default: any above 0)", metavar="X", minimum=0
    )
    per_prompt: int = setting(1, "maximum number of pairs per prompt", metavar="N", minimum=1)
    threshold: float | None = setting(
        None,
        "with `trainer=kto`: label every completion by whether its reward is above X, and leave out completions "
        "whose reward is within `margin` of X",
        metavar="X",
    )
    conversational: bool = setting(False, "write prompts and completions as messages")
    system_prompt: str | None = setting(None, "system message of `conversational` prompts", metavar="TEXT")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and self.trainer != "kto":
            raise SettingError("threshold", "requires `trainer=kto`")
        if self.system_prompt is not None and not self.conversational:
            raise SettingError("system_prompt", "needs `conversational`")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AgreementColumns(Settings):
    """Where scores and human judgements are: in a table, or a set of :data:`rrg_rewards.data.ANNOTATED_SETS`.

    With ``candidates``, the score or judgement ``NAME`` is the difference between the columns ``NAME`` + the first text
    and ``NAME`` + the second; of an annotated set, between two candidates of a study, which a column tells by these
    texts. Rows of one ``unit``, such as a study, are drawn together by the bootstrap.
    """

    dataset: Literal["rexval", "radevalx", "chest2error", "refisco", "radpref", "rate_eval"] | None = setting(
        None, "the table is the file or folder of an annotated data set"
    )
    drop_identical: bool = setting(False, "leave out pairs of `dataset` whose reports have the same words")
    rankings: bool = setting(
        False, "the table is a file of ranked candidates, such as RadJudge's cases.json: count the rankings that hold"
    )
    equal: float = setting(0.01, "greatest difference of equal scores in `rankings`", metavar="X", minimum=0)
    human: Sequence[str] = _columns("columns of human judgements; required without `dataset`")
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
        super().__post_init__()
        texts = self.candidates
        if self.drop_identical and self.dataset is None:
            raise SettingError("drop_identical", "needs `dataset`")
        if self.rankings and (self.dataset or self.human or self.scores or texts):
            raise SettingError("rankings", "needs `metrics` only; leave out the settings of judgements and scores")
        if texts is not None and (len(texts) != 2 or not all(texts) or texts[0] == texts[1]):
            raise SettingError("candidates", f"must be two different texts, as in _1,_2, got {','.join(texts)!r}")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AgreementSettings(Seed, Workers):
    """Settings of :func:`~rrg_rewards.analysis.measure_agreement`.

    ``statistics`` are those of :func:`~rrg_rewards.functional.human_agreement`; by default all without ``binary``.
    """

    statistics: Sequence[str] | None = setting(
        None, "statistics (default: all that apply)", metavar="NAME[,NAME...]", separator=","
    )
    lower_is_better: Sequence[str] = _columns(
        "columns of `scores` and `human` in which a lower value is better; their sign is changed"
    )
    baseline: str | None = setting(None, "compare the other scores with this one only", metavar="NAME")
    bootstrap: int = setting(1000, "bootstrap resamples; 0 for no intervals", metavar="N", minimum=0, maximum=1_000_000)
    permutations: int = setting(1000, "permutations; 0 for no p-values", metavar="N", minimum=0, maximum=10_000_000)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountingSettings(Settings):
    """Settings of :func:`~rrg_rewards.analysis.count_errors`."""

    reference_column: str = setting("reference", "column of references", metavar="NAME")
    prediction_column: str = setting("prediction", "column of predictions", metavar="NAME")
    max_pairs: int | None = setting(None, "use the first N pairs only", metavar="N", minimum=1)
    prompt: str | Path | None = setting(
        None,
        "file with your prompt, whose answers have the format that the paper of CREPE prints",
        metavar="FILE",
    )
    source: str = setting("judge", "value of source in the output", metavar="TEXT")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GradingSettings(Settings):
    """Settings of :func:`~rrg_rewards.analysis.grade_reports`. ``system`` may be a scoring system of the user's."""

    report_column: str = setting("report", "column of references", metavar="NAME")
    system: Any = setting("radcliq", "scoring system: radcliq, mrscore or a .yaml file", metavar="NAME")
    per_tier: int = setting(1, "reports for each reference and tier", metavar="N", minimum=1)
    max_reports: int | None = setting(None, "use the first N references only", metavar="N", minimum=1)
    source: str = setting("judge", "value of source in the output", metavar="TEXT")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EvaluationSettings(ContextColumns):
    """Settings of :func:`~rrg_rewards.analysis.label_pairs`."""

    reference_column: str = setting("reference", "column of references", metavar="NAME")
    candidate_column: str = setting("candidate", "column of candidates", metavar="NAME")
    source_column: str | None = setting(None, "column that names the source of a candidate", metavar="NAME")
    prompt: Literal["own", "guidelines", "crimson-score", "crimson-score-guidelines"] = setting(
        "own", "prompt for a language model"
    )
    checks: Literal["strict", "published"] | None = setting(
        None,
        "answers that count: strict, if they agree with themselves and the reports; published, if CRIMSON's published "
        "code scores them (default: published for the prompts of crimson-score, else strict)",
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CandidateSettings(Seed):
    """Settings of :func:`~rrg_rewards.analysis.add_candidates`. ``encoder`` may be a function of reports."""

    report_column: str = setting("report", "column of references", metavar="NAME")
    regimes: Sequence[str] = setting(
        ("edited", "random"),
        "regimes to draw from: edited, random, matched, generated",
        metavar="NAME[,NAME...]",
        separator=",",
    )
    encoder: Any = setting(None, "folder or Hub id of the encoder of the regime matched", metavar="MODEL")
    generated_column: str | None = setting(None, "column of a model's reports", metavar="NAME")
    per_report: int = setting(1, "candidates for each reference", metavar="N", minimum=1)
    modality: Literal["ct", "xray"] | None = setting(
        None, "modality of invented findings (default: by the words of the report)"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QuestionSettings(Batches):
    """Settings of :func:`~rrg_rewards.analysis.build_question_items`.

    ``labels`` are in the reports' table (``True``) or in another table (its path), joined by ``key``. Names in ``key``
    may end with ``.nii.gz``.
    """

    text_column: str = setting(
        "report", 'column of the report texts, or a template such as "{findings} {impression}"', metavar="NAME"
    )
    key: str | None = setting(None, "column of the names of studies, such as VolumeName of CT-RATE", metavar="NAME")
    id_column: str | None = setting(None, "column of report ids (default: `key`, or else row numbers)", metavar="NAME")
    schema: Any = setting("ct_rate", "question schema: ct_rate, merlin or a YAML file", metavar="NAME")
    judge: Any = setting(None, f"{LANGUAGE_MODEL} (default: the finding engine)", metavar="JUDGE")
    prompt: str | Path | None = setting(
        None, "file with your prompt for `judge`, such as the one that the paper prints", metavar="FILE"
    )
    labels: bool | str = setting(
        False,
        "use only findings whose label is 1, in columns named like the findings, or in columns of another table FILE, "
        "which needs `key`",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prompt is not None and self.judge is None:
            raise SettingError("prompt", "needs `judge`, which gets it")
        if isinstance(self.labels, str) and self.key is None:
            raise SettingError("labels", "labels of another table need `key`, the column of the names of studies")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedSchemaSettings(Settings):
    """Settings of :func:`~rrg_rewards.analysis.convert_schema`."""

    name: str = setting("ct_finebench", "name of the question schema", metavar="TEXT")
    lexicon: str | None = setting(
        None,
        "lexicon of the finding engine: chest_ct, abdomen or a YAML file (default: the one with more of the findings)",
        metavar="NAME",
    )
    answer_type: Mapping[str, str] = setting(
        {}, "type of the answers to an attribute, for example size=numeric; may be repeated", form="NAME=TYPE"
    )
    readable_only: bool = setting(False, "leave out findings and attributes that the finding engine cannot read")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedQuestionSettings(Settings):
    """Settings of :func:`~rrg_rewards.analysis.convert_questions`."""

    schema: Any = setting("ct_rate", "question schema: ct_rate, merlin or a YAML file", metavar="NAME")
    column: Mapping[str, str] = setting(
        {}, "key of a part of the questions, for example answer=gt; may be repeated", form="NAME=COLUMN"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MiningSettings(QuestionSettings):
    """Settings of :func:`~rrg_rewards.analysis.mine_attributes`."""

    min_count: int = setting(50, "minimum count of a pair of finding and attribute", metavar="N", minimum=1)
    draft: str | Path | None = setting(
        None, "also write a draft of a question schema to a table (.csv)", metavar="FILE"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.judge is None and self.labels:
            raise SettingError("labels", "needs `judge`; the finding engine counts findings that are no labels, too")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SensitivitySettings(Seed):
    """Settings of :func:`~rrg_rewards.analysis.make_versions` and :func:`~rrg_rewards.analysis.measure_sensitivity`.

    Versions without a prompt are made by rules.
    """

    changes: Sequence[str] = setting(
        (),
        "changes of the reports (default: all): paraphrased (other words), adversarial (wrong details), and errors: "
        "false_finding, omitted_finding, wrong_location, wrong_severity, false_comparison, omitted_comparison",
        metavar="NAME[,NAME...]",
        separator=",",
    )
    max_errors: int = setting(2, "make versions with 1 to N errors of each category", metavar="N", minimum=1)
    limit: int | None = setting(None, "use the first N reports only", metavar="N", minimum=1)
    bootstrap: int = setting(1000, "bootstrap draws; 0 for no intervals", metavar="N", minimum=0, maximum=1_000_000)
    permutations: int = setting(1000, "permutations; 0 for no p-values", metavar="N", minimum=0, maximum=10_000_000)
    rewriter: Any = setting(None, f"language model that gets the prompts: {LANGUAGE_MODEL}", metavar="JUDGE")
    paraphrase_prompt: str | Path | None = setting(None, "file with your prompt for paraphrases", metavar="FILE")
    adversarial_prompt: str | Path | None = setting(
        None, "file with your prompt for reports with wrong details", metavar="FILE"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.rewriter is None) != (self.paraphrase_prompt is None and self.adversarial_prompt is None):
            raise SettingError("rewriter", "needs a prompt, and a prompt needs it")
        for change, name in REWRITE_PROMPTS.items():
            if getattr(self, name) is not None and self.changes and change not in self.changes:
                raise SettingError(name, f"is for the change {change}, which `changes` does not name")
