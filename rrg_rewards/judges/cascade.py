"""A cascade of two judges: rules score the report pairs that they read, a second judge the others."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, cast

from rrg_rewards.functional.crimson import CrimsonEvaluation, Route, crimson_score
from rrg_rewards.judges.base import (
    Item,
    Judge,
    JudgeFailure,
    JudgeTask,
    ReportPair,
    Result,
)
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.judges.rules import RuleJudge
from rrg_rewards.judges.server.usage import Usage, judge_usage
from rrg_rewards.utilities.settings import SettingError, check_settings, setting
from rrg_rewards.utilities.signature import format_signature

# Number of pairs that the rules evaluate between yields to the event loop.
_SLICE = 16
_Outcome = CrimsonEvaluation | JudgeFailure


@dataclass(eq=False, repr=False)
class CascadeJudge(Judge):
    """Judge that keeps the rules' result of the pairs that they read, and asks a second judge about the others.

    The rules evaluate every pair. Their result is kept if they have one, if the share of words that they have not read
    is at most ``max_unread`` in both reports (:func:`rrg_rewards.findings.read_findings`) and, with
    ``max_disagreement``, if their score differs by at most this number from the F1 of their findings
    (:func:`disagreements`): a larger difference says that the score depends on weights and on attributes more than on
    the findings that match. The second judge evaluates the other pairs; if it fails on a pair, the pair has no score.

    Results say who judged them: ``route`` of an evaluation or of a failure is ``rules`` or ``second``, and ``coverage``
    is how much of both reports the rules have read.

    Args:
        second: The second judge, or its name or settings as :func:`rrg_rewards.judges.get_judge` accepts them.
        first: The rules: ``"rules"``, or ``{"name": "rules", "unread": "normal"}``.
        max_unread: Share of unread words, from 0 to 1, up to which the rules' result is kept.
        max_disagreement: Difference between the score and the F1 of the findings, from 0 to 1, up to which it is kept;
            ``None`` for any difference.

    Raises:
        SettingError: If there is no second judge, it is rules or a cascade, the first judge is not rules, or a number
            is out of its range.
        TypeError: For an object that is not a judge, or an argument that a judge does not take.

    Example:
        >>> from rrg_rewards.functional import CrimsonEvaluation
        >>> from rrg_rewards.judges import CascadeJudge, Judge, ReportPair
        >>> from rrg_rewards.judges.tasks.crimson import CrimsonTask
        >>> class NormalJudge(Judge):
        ...     signature = "normal"
        ...     async def evaluate(self, task, items):
        ...         return [CrimsonEvaluation() for pair in items]
        >>> judge = CascadeJudge(NormalJudge())
        >>> pairs = [ReportPair("Small left effusion.", "No effusion."), ReportPair("Quorblid.", "Normal aorta.")]
        >>> [result.route for result in judge.evaluate_now(CrimsonTask(), pairs)]
        ['rules', 'second']
        >>> judge.signature
        'cascade|first:{rules|...}|second:{normal}|max_unread:0.0|version:...'
    """

    gives_coverage = True

    second: Any = None
    _: KW_ONLY
    first: Any = "rules"
    max_unread: float = setting(0.0, minimum=0, maximum=1)
    max_disagreement: float | None = setting(None, minimum=0, maximum=1)

    def __post_init__(self) -> None:
        check_settings(self)
        self.first, self.second = _first(self.first), _second(self.second)
        self.max_unread = float(self.max_unread)
        self.max_disagreement = None if self.max_disagreement is None else float(self.max_disagreement)
        self.is_immediate = self.second.is_immediate
        self.has_independent_rows = self.second.has_independent_rows
        self.task_names = self.first.task_names
        self.judge_names = {"rules": self.first.short_name, "second": self.second.short_name}

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge."""
        return {argument.name: getattr(self, argument.name) for argument in fields(self)}

    @property
    def signature(self) -> str:
        """Signatures of both judges, and which results of the rules are kept."""
        disagreement = {} if self.max_disagreement is None else {"max_disagreement": self.max_disagreement}
        return format_signature(
            "cascade",
            first=f"{{{self.first.signature}}}",
            second=f"{{{self.second.signature}}}",
            max_unread=self.max_unread,
            **disagreement,
        )

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: that of the second judge."""
        refusal: str | None = self.second.worker_refusal
        return refusal

    @property
    def usage(self) -> Usage | None:
        """Calls, tokens, cost and failures of the second judge; ``None`` if it counts none."""
        return judge_usage(self.second)

    @property
    def address(self) -> Any:
        """Address of the server of the second judge; ``None`` if it has none."""
        return getattr(self.second, "address", None)

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """See :meth:`rrg_rewards.judges.Judge.evaluate`.

        Raises:
            ValueError: For a task other than CRIMSON's.
        """
        if self.task_names is not None and task.name not in self.task_names:
            raise ValueError(f"a cascade begins with rules, which evaluate CRIMSON only, not the task {task.name!r}")
        pairs = [cast(ReportPair, item) for item in dict.fromkeys(items)]
        crimson = cast("JudgeTask[ReportPair, Any]", task)
        read: dict[ReportPair, _Outcome] = {}
        for start in range(0, len(pairs), _SLICE):
            part = pairs[start : start + _SLICE]
            read.update(zip(part, self.first.evaluate_now(crimson, part), strict=True))
            # Answers that other coroutines wait for can be received.
            await asyncio.sleep(0)
        kept = self._kept(list(read.values()))
        outcomes = {
            pair: _routed(result, "rules")
            for (pair, result), is_kept in zip(read.items(), kept, strict=True)
            if is_kept
        }
        asked = [pair for pair in pairs if pair not in outcomes]
        results = await self.second.evaluate(crimson, asked) if asked else []
        outcomes |= {pair: _routed(result, "second", read[pair]) for pair, result in zip(asked, results, strict=True)}
        return [cast("Result | JudgeFailure", outcomes[cast(ReportPair, item)]) for item in items]

    def plan(self, task: "JudgeTask[ReportPair, Any]", items: Sequence[ReportPair]) -> dict[ReportPair, Route]:
        """Return by which judge each pair would be evaluated; the second judge is not asked.

        Args:
            task: The task.
            items: Report pairs; equal ones are evaluated once.
        """
        pairs = list(dict.fromkeys(items))
        kept = self._kept(self.first.evaluate_now(task, pairs))
        return {pair: "rules" if is_kept else "second" for pair, is_kept in zip(pairs, kept, strict=True)}

    def _make_rerun(self, run: int) -> "CascadeJudge":
        """Return a cascade with another run of the second judge."""
        return CascadeJudge(**{**self.arguments(), "second": self.second.rerun(run)})

    def _kept(self, results: Sequence[_Outcome]) -> list[bool]:
        """Return which results of the rules are those of the cascade."""
        kept = [self._is_read(result) for result in results]
        if self.max_disagreement is not None:
            read = [row for row, is_kept in enumerate(kept) if is_kept]
            evaluations = cast(Sequence[CrimsonEvaluation], [results[row] for row in read])
            for row, difference in zip(read, disagreements(evaluations), strict=True):
                kept[row] = difference <= self.max_disagreement
        return kept

    def _is_read(self, result: _Outcome) -> bool:
        if isinstance(result, JudgeFailure) or result.coverage is None:
            return False
        return all(report.unread_share <= self.max_unread for report in result.coverage)


def disagreements(evaluations: Sequence[CrimsonEvaluation]) -> list[float]:
    r"""Return the difference between CRIMSON and the F1 of the findings, from 0 to 1, of each evaluation.

    .. math::
        \left| \max(\mathrm{CRIMSON}, 0) - \frac{2 M}{R + P} \right|

    with the numbers of reference findings :math:`R`, of candidate findings :math:`P`, and of matched reference findings
    :math:`M`; the F1 is 1 if there is no finding.

    Args:
        evaluations: ``N`` evaluations.

    Example:
        >>> from rrg_rewards.judges import ReportPair, RuleJudge
        >>> judge = RuleJudge()
        >>> texts = ("Large left pneumothorax.", "Small right pneumothorax.")
        >>> [round(one, 3) for one in disagreements([judge.evaluation(ReportPair(texts[0], text)) for text in texts])]
        [0.0, 0.5]
    """
    scores = crimson_score(evaluations).clamp(min=0).tolist() if evaluations else []
    return [abs(score - _finding_f1(one)) for score, one in zip(scores, evaluations, strict=True)]


def _finding_f1(evaluation: CrimsonEvaluation) -> float:
    number = len(evaluation.reference_findings) + len(evaluation.predicted_findings)
    return 2 * len({ref_id for ref_id, _ in evaluation.matched_findings}) / number if number else 1.0


def _routed(result: _Outcome, route: Route, read: _Outcome | None = None) -> _Outcome:
    """Return a result with its route, and with the coverage that the rules' result ``read`` has."""
    return replace(result, coverage=(read or result).coverage, route=route)


def _first(setting: str | Mapping[str, Any] | Judge) -> RuleJudge:
    judge = get_judge(setting)
    if not isinstance(judge, RuleJudge):
        raise SettingError("first", f"must be rules, which know what they have not read; got {judge.short_name}")
    return judge


def _second(setting: str | Mapping[str, Any] | Judge | None) -> Judge:
    """Return the second judge; errors name the setting."""
    if setting is None:
        raise SettingError(
            "second",
            "a cascade needs a second judge, which evaluates what the rules did not read: cascade:openai:MODEL, "
            "cascade:FILE.yaml, or {name: cascade, second: {name: openai, model: MODEL}}",
        )
    try:
        judge = get_judge(setting)
    except ValueError as error:
        raise SettingError("second", str(error)) from error
    except TypeError as error:
        raise TypeError(f"second: {error}") from error
    if isinstance(judge, CascadeJudge):
        raise SettingError("second", "must not be a cascade; a cascade has two judges, rules and a language model")
    if isinstance(judge, RuleJudge):
        raise SettingError("second", "must not be rules, which are the first judge; name a language model")
    return judge
