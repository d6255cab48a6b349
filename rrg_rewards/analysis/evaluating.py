"""CRIMSON's evaluations by a judge, to train and compare judges: evaluations in a file, and their agreement."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rrg_rewards.analysis.answers import AnswerRun, Estimate, HeldAnswers, estimate_requests, evaluate_in_batches
from rrg_rewards.analysis.judge_choice import JudgeSetting, choose_judge
from rrg_rewards.analysis.settings import EvaluationSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.functional.crimson import CrimsonChecks, CrimsonEvaluation
from rrg_rewards.judges.base import Judge, ReportPair
from rrg_rewards.judges.cascade import CascadeJudge
from rrg_rewards.judges.evaluations import EvaluatedPair, judge_agreement, read_evaluations
from rrg_rewards.judges.rules import expected_answer
from rrg_rewards.judges.tasks.crimson import CrimsonPrompt, CrimsonTask
from rrg_rewards.metrics.crimson import CRIMSON, report_pairs
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

# Number of pairs that are compared between two steps of the progress.
_BATCH = 64


def estimate_crimson(metric: CRIMSON, pairs: Iterable[ReportPair]) -> Estimate:
    """Estimate the cost of CRIMSON with a language model; nothing is sent.

    Args:
        metric: The metric, with its judge, prompt and number of runs. Answers in its cache are not subtracted. Of a
            cascade, only the pairs for the second judge are requests; the rules read all pairs for it.
        pairs: Report pairs, as :meth:`CRIMSON.queries` returns them; equal ones count once.

    Example:
        >>> judge = {"name": "openai", "model": "m", "price": (1.0, 4.0)}
        >>> metric = CRIMSON(judge=judge, runs=5)
        >>> estimate_crimson(metric, metric.queries(["Clear."] * 2, ["Small left effusion."] * 2)).requests
        5
    """
    judge, unique, judged_by = metric.judge, list(dict.fromkeys(pairs)), None
    if isinstance(judge, CascadeJudge):
        routes = judge.plan(metric.task, unique)
        counts = Counter(routes.values())
        judged_by = {name: counts[route] for route, name in judge.judge_names.items()}
        judge, unique = judge.second, [pair for pair in unique if routes[pair] == "second"]
    asked = [pair for pair in unique if metric.task.refusal(pair) is None]
    prompts = (metric.task.messages(pair) for pair in asked)
    answers = (expected_answer(metric.task, pair) for pair in asked)
    return replace(estimate_requests(prompts, answers, judge.arguments(), metric.runs), judged_by=judged_by)


class EvaluationRun(AnswerRun[ReportPair, CrimsonEvaluation]):
    """A run of :func:`label_pairs`.

    Args:
        pairs: The report pairs, or the source of each candidate by pair.
        output: JSON lines file to append to.
        judge: The judge.
        settings: The settings; ``prompt`` and ``checks`` are used.

    Raises:
        SettingError: If the prompt or the checks are unknown.
    """

    activity = "judging"
    noun = "evaluations"

    def __init__(
        self,
        pairs: Sequence[ReportPair] | Mapping[ReportPair, str],
        output: str | Path,
        judge: Judge,
        settings: EvaluationSettings = EvaluationSettings(),
    ) -> None:
        task = CrimsonTask(settings.prompt, settings.checks)
        super().__init__(task, list(pairs), output, judge)
        self._crimson = task
        self._sources = pairs if isinstance(pairs, Mapping) else dict.fromkeys(pairs, "")
        self._signature = judge.signature
        # Rules query no model, so the prompt has no effect on them.
        self.prompt = "" if judge.is_immediate else task.prompt_signature
        self.checks: CrimsonChecks = "strict" if judge.is_immediate else task.checks

    def _key(self, item: ReportPair) -> Hashable:
        return item

    def _read_held(self) -> HeldAnswers:
        """Read the pairs that this judge has evaluated with this prompt; the others are requested again."""
        rows = read_evaluations(self.output)
        own = (self._signature, self.prompt)
        return HeldAnswers(
            dict.fromkeys(row.pair for row in rows if (row.judge, row.prompt) == own),
            frozenset(row.judge for row in rows if (row.judge, row.prompt) != own),
        )

    def _warn_of_others(self, log: RunLog) -> None:
        if others := self.held.judges:
            log.warn(f"the output also contains evaluations of another judge or prompt: {min(others)}")

    def _expected_answer(self, item: ReportPair) -> str:
        return expected_answer(self._crimson, item)

    def _sent(self) -> str:
        return f"{len(self.missing)} report pairs"

    def _record(self, item: ReportPair, result: CrimsonEvaluation) -> Mapping[str, Any]:
        evaluated = EvaluatedPair(item, result, self._signature, self.prompt, self._sources[item], self.checks)
        return evaluated.to_record()

    def _origin(self, judge: Judge) -> Mapping[str, Any]:  # noqa: ARG002 (in the record)
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the counts of the run."""
        return {
            "judge": self._signature,
            "prompt": self.prompt,
            "checks": self.checks,
            "pairs": len(self.items),
            "held": self.num_held,
            "written": self.written,
            **self._outcome(),
        }

    def log_outcome(self, log: RunLog) -> None:
        """Note the numbers of evaluations, and what the base class does."""
        log.note(
            f"evaluated {self.written} of {len(self.missing)} pairs with {self._signature}; "
            f"{len(self.held.answers)} were in the output"
        )
        super().log_outcome(log)


def label_pairs(
    pairs: Sequence[ReportPair] | Mapping[ReportPair, str],
    judge: JudgeSetting,
    output: str | Path,
    settings: EvaluationSettings = EvaluationSettings(),
    *,
    log: RunLog | None = None,
) -> EvaluationRun:
    """Let a judge evaluate report pairs for CRIMSON, and append each evaluation to a file.

    Pairs that this judge has evaluated with this prompt are not evaluated again, so the same call continues an
    interrupted run.

    Args:
        pairs: The report pairs, or the source of each candidate by pair; equal ones are evaluated once.
        judge: Judge, its name or its settings, as for :func:`~rrg_rewards.judges.get_judge`.
        output: JSON lines file to append to.
        settings: The settings; ``prompt`` and ``checks`` are used.
        log: Receives notes, warnings and progress.

    Returns:
        The run, with its counts.

    Raises:
        SettingError: If the judge is invalid, or the prompt or the checks are unknown.
        TableError: If the file has other content, or another process appends to it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> pairs = [ReportPair("Cardiomegaly.", "Clear."), ReportPair("Small left effusion.", "Small effusion.")]
        >>> with TemporaryDirectory() as folder:
        ...     first = label_pairs(pairs[:1], "rules", f"{folder}/evaluations.jsonl")
        ...     second = label_pairs(pairs, "rules", f"{folder}/evaluations.jsonl")
        >>> first.written, second.num_held, second.written
        (1, 1, 1)
    """
    return EvaluationRun(pairs, output, choose_judge(judge), settings).complete(log)


def read_sourced_pairs(
    table: Table, settings: EvaluationSettings = EvaluationSettings(), log: RunLog | None = None
) -> tuple[dict[ReportPair, str], int]:
    """Return the pairs of a table that can be judged, with the source of each candidate, and the number of others.

    Args:
        table: The table.
        settings: Columns of reports, sources and context.
        log: Receives warnings.

    Raises:
        SettingError: For a context column that CRIMSON does not take, or that contains neither texts nor numbers.

    Example:
        >>> read_sourced_pairs(Table({"reference": ["Edema."], "candidate": ["Clear."]}))
        ({ReportPair(reference='Edema.', candidate='Clear.', context=()): ''}, 0)
    """
    log = log or RunLog()
    references, candidates = table.texts(settings.reference_column), table.texts(settings.candidate_column)
    complete = {
        row: (reference, candidate)
        for row, (reference, candidate) in enumerate(zip(references, candidates, strict=True))
        if reference is not None and reference.strip() and candidate is not None
    }
    context = {name: [table.column(column)[row] for row in complete] for name, column in settings.context.items()}
    try:
        pairs = report_pairs(
            [reference for reference, _ in complete.values()],
            [candidate for _, candidate in complete.values()],
            context,
        )
    except TypeError as error:
        raise SettingError("context", str(error)) from error
    unscorable = len(table) - len(complete)
    if unscorable:
        log.warn(f"{unscorable} of {len(table)} pairs lack a candidate or a reference, and are left out")
    column = settings.source_column
    sources: Sequence[str | None] = [None] * len(table) if column is None else table.texts(column)
    return {pair: sources[row] or "" for row, pair in zip(complete, pairs, strict=True)}, unscorable


@dataclass(frozen=True)
class JudgeComparison:
    """Result of :func:`compare_judge`.

    Args:
        judge: Signature of the judge.
        prompt: Name and hash of the prompt; empty if the judge uses none.
        checks: Checks of its answers; empty if it uses no prompt.
        teachers: Signatures of the other judges.
        pairs: Number of pairs.
        valid: Number of pairs with an evaluation by the judge.
        failures: Failures of the judge, by kind.
        agreement: Kendall's ``tau`` with its interval, ``mae`` and the share of ``equal`` values, by quantity, as in
            :func:`~rrg_rewards.judges.evaluations.judge_agreement`.
        severity: Clinical significance of errors that both list, as
            :func:`~rrg_rewards.judges.evaluations.severity_agreement` returns it.
    """

    judge: str
    prompt: str
    checks: str
    teachers: list[str]
    pairs: int
    valid: int
    failures: dict[str, int]
    agreement: dict[str, dict[str, float | None]]
    severity: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return dict(vars(self))


def compare_judge(
    evaluations: Sequence[EvaluatedPair],
    judge: JudgeSetting,
    prompt: CrimsonPrompt = "own",
    checks: CrimsonChecks | None = None,
    *,
    log: RunLog | None = None,
) -> JudgeComparison:
    """Let a judge evaluate pairs that other judges have evaluated, and compare its answers with theirs.

    Args:
        evaluations: Evaluations by other judges, as :func:`~rrg_rewards.judges.evaluations.read_evaluations` returns.
        judge: Judge, its name or its settings.
        prompt: Prompt for a language model.
        checks: Checks of its answers, as in :class:`~rrg_rewards.judges.tasks.crimson.CrimsonTask`.
        log: Receives the progress.

    Raises:
        SettingError: If the judge is invalid, or the prompt or the checks are unknown.

    Example:
        >>> from rrg_rewards.judges import RuleJudge
        >>> pairs = [ReportPair("Small left effusion.", text) for text in ("Clear.", "Small right effusion.")]
        >>> judged = [EvaluatedPair(pair, RuleJudge().evaluation(pair), "another judge") for pair in pairs]
        >>> compare_judge(judged, "rules").agreement["score"]["equal"]
        1.0
    """
    log = log or RunLog()
    chosen, task = choose_judge(judge), CrimsonTask(prompt, checks)
    with log.progress("judging") as progress:
        results = evaluate_in_batches(chosen, task, [row.pair for row in evaluations], _BATCH, progress)
    return JudgeComparison(
        judge=chosen.signature,
        prompt="" if chosen.is_immediate else task.prompt_signature,
        checks="" if chosen.is_immediate else task.checks,
        teachers=sorted({row.judge for row in evaluations}),
        **judge_agreement([row.evaluation for row in evaluations], results),
    )
