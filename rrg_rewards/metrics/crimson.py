"""CRIMSON as a metric on report text, with the evaluation of a judge."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.functional.crimson import (
    CrimsonChecks,
    CrimsonEvaluation,
    Route,
    crimson_score_from_statistics,
    crimson_statistics,
)
from rrg_rewards.functional.crimson_training import (
    CrimsonTrainingStatistics,
    crimson_training_score_from_statistics,
    crimson_training_statistics,
)
from rrg_rewards.judges.base import Judge, JudgeFailure, ReportPair
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.judges.rules import RuleJudge
from rrg_rewards.judges.tasks.crimson import CrimsonPrompt, CrimsonTask
from rrg_rewards.metrics.base import Column
from rrg_rewards.metrics.chance import AboveChance
from rrg_rewards.metrics.crimson_chance import CrimsonChance
from rrg_rewards.metrics.crimson_scores import CrimsonRuns, CrimsonScores
from rrg_rewards.metrics.judged import JudgedMetric, JudgedScores
from rrg_rewards.metrics.scores import Scores, score_sums
from rrg_rewards.metrics.unread import UNREAD_DETAILS, unread_shares, warn_of_unread, warn_of_unread_ages
from rrg_rewards.schemas import ATTRIBUTE_ERROR_TYPES
from rrg_rewards.utilities.checks import is_finite
from rrg_rewards.utilities.names import shown, unknown_name_message
from rrg_rewards.utilities.processes import run_coroutine
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.signature import format_signature

# Names of the summed details and statistics. Weights are multiples of 1/4, except for partial credit.
_WEIGHTS = (
    "credit",
    "reference_weight",
    "weighted_false",
    "weighted_missing",
    "weighted_attribute",
    "weighted_errors",
)
_COUNTS = (
    "reference_findings",
    "predicted_findings",
    "matched_findings",
    "false_findings",
    "missing_findings",
    "attribute_errors",
    *(f"{kind}_errors" for kind in ATTRIBUTE_ERROR_TYPES),
    "errors",
)
# Further summed details of the training form.
_TRAINING = tuple(f"training_{name}" for name in CrimsonTrainingStatistics._fields)
# Names of the numbers of pairs that each judge of a cascade got.
_ROUTES: dict[Route, str] = {"rules": "by_rules", "second": "by_second_judge"}

CrimsonForm = Literal["published", "training"]
"""``"published"``: the score of CRIMSON's authors. ``"training"``: a form of this package for rewards."""


class _Layer(ABC):
    """Further details of CRIMSON's scores, of which a state keeps sums over pairs."""

    state: str
    num_sums = 3
    dtype = torch.float64

    @abstractmethod
    def details(self, scores: CrimsonScores) -> dict[str, Tensor]:
        """Return the details of judged pairs."""

    @abstractmethod
    def sums(self, scores: CrimsonScores) -> Tensor:
        """Return what scores add to the state."""

    def totals(self, sums: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 (for subclasses)
        """Return the sums that are totals over all pairs."""
        return {}

    @abstractmethod
    def means(self, sums: Tensor) -> dict[str, Tensor]:
        """Return the means of the details."""


class _Unread(_Layer):
    """Unread words. The sums are those of the shares of both reports, and the number of pairs that have them."""

    state = "unread_sums"

    def details(self, scores: CrimsonScores) -> dict[str, Tensor]:
        return unread_shares(scores.coverages)

    def sums(self, scores: CrimsonScores) -> Tensor:
        shares = torch.stack([scores.details[name] for name in UNREAD_DETAILS])
        return torch.cat([shares.nansum(1), (~shares[:1].isnan()).sum(1)])

    def means(self, sums: Tensor) -> dict[str, Tensor]:
        return dict(zip(UNREAD_DETAILS, sums[:-1] / sums[-1], strict=True))


class _Routes(_Layer):
    """The judges of a cascade. The sums are the numbers of pairs that each of them got."""

    state = "num_routed"
    num_sums = len(_ROUTES)
    dtype = torch.long

    def details(self, scores: CrimsonScores) -> dict[str, Tensor]:
        by_second = [float(route == "second") if route else torch.nan for route in scores.routes]
        return {_ROUTES["second"]: torch.tensor(by_second, dtype=torch.float64)}

    def sums(self, scores: CrimsonScores) -> Tensor:
        return torch.tensor([scores.routes.count(route) for route in _ROUTES])

    def totals(self, sums: Tensor) -> dict[str, Tensor]:
        return dict(zip(_ROUTES.values(), sums, strict=True))

    def means(self, sums: Tensor) -> dict[str, Tensor]:
        return {_ROUTES["second"]: sums[1].double() / sums.sum()}


class _Runs(_Layer):
    """Several runs. The sums are those of the spreads, the number of pairs that have one, and of failed runs."""

    state = "run_sums"

    def __init__(self, runs: int) -> None:
        self.runs = runs

    def details(self, scores: CrimsonScores) -> dict[str, Tensor]:  # noqa: ARG002 (they come with the means over runs)
        return {}

    def sums(self, scores: CrimsonScores) -> Tensor:
        spread, failed = scores.details["spread"], scores.details["failed_runs"]
        all_failed = sum(int(failures.sum()) for failures in scores.failures.values())
        return torch.stack([spread.nansum(), (~spread.isnan()).sum(), failed.nansum() + self.runs * all_failed])

    def totals(self, sums: Tensor) -> dict[str, Tensor]:
        return {"failed_runs": sums[2].long()}

    def means(self, sums: Tensor) -> dict[str, Tensor]:
        return {"spread": sums[0] / sums[1]}


class CRIMSON(AboveChance[CrimsonChance], JudgedMetric[ReportPair, Any]):
    r"""CRIMSON: the clinical weight of the correct findings of a candidate, minus the weight of its false findings.

    A judge lists the abnormal findings of both reports, matches them, reports errors in the attributes of matched
    findings, and rates the clinical significance of each finding for the patient. A language model as judge gets a
    prompt of this package, not the published one, unless ``prompt="crimson-score"`` or ``"crimson-score-guidelines"``.

    With the credit :math:`C` for matched findings, the weight :math:`W_{ref}` of all reference findings and the
    weight :math:`E_{false}` of false findings,

    .. math::
        S = \begin{cases}
            (C - E_{false}) / W_{ref} & W_{ref} > 0 \\
            -E_{false} & W_{ref} = 0, E_{false} > 0 \\
            1 & W_{ref} = E_{false} = 0
        \end{cases}
        \qquad
        \mathrm{CRIMSON} = \begin{cases}
            S & S \ge 0 \\
            -A / (1 + A), \; A = E_{false} - C & S < 0
        \end{cases}

    Weights and credit are defined in :func:`rrg_rewards.functional.crimson_statistics`. The corpus value is the mean
    over scored pairs: float64 in (-1, 1], higher is better; NaN if no pair is scored. A normal report scores 0 if the
    reference has findings.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183.

    Args:
        judge: A judge, or its name or settings as :func:`rrg_rewards.judges.get_judge` accepts them.
        prompt: Prompt for a language model, as :class:`rrg_rewards.judges.tasks.crimson.CrimsonTask` accepts it. The
            rule-based judge does not use it.
        runs: Number of evaluations of each pair. The score and the details of a pair are means over the runs that did
            not fail; the pair is unscorable if all failed. A local judge must draw its answers at random
            (``temperature`` above 0); a server is asked again at any temperature.
        checks: Which answers of a language model are scored: ``"strict"`` rejects answers that contradict themselves or
            the reports, and ``"published"`` scores what the published code scores, as
            :class:`rrg_rewards.judges.tasks.crimson.CrimsonTask` explains. ``None``: ``"published"`` for the prompts of
            ``crimson-score``, else ``"strict"``.
        form: ``"published"``, the score above, or ``"training"``, recommended for rewards: in (-1, 1], silence earns
            0 and costs what an invention costs, and stated certainty, places and omitted places and sizes have a price;
            see :func:`rrg_rewards.functional.crimson_training_statistics`.
        chance: ``None``; ``"dataset"`` for the training form above chance, which weighs normal references and subtracts
            what the same text earns on at most 256 training references on average
            (:class:`rrg_rewards.metrics.crimson_chance.CrimsonChance`), so that a text that is the same for these
            references earns no more than a blank one, 0, apart from rare texts whose findings compete for one of a
            reference; or the text that :meth:`fitted_options` returned.
            :meth:`fit_references`, or ``fit`` of the reward, measures it. The judge must be rules.
        chance_share: Share of what a text earns by chance that is subtracted, in [0, 1]. With less than 1, a constant
            text may earn more than a blank one; :class:`rrg_rewards.rewards.RecommendedReward` says why it has 1/2.
        false_price: Price of a false finding in the training form, as a multiple of that of a missing one; at least 1
            (:func:`rrg_rewards.functional.crimson_training_statistics`).
        profile: What is convention and not reading, for ``judge="rules"``: ``"published"``, the rules for chest X-ray;
            ``"ct"``, a written convention for chest CT; or the path of a YAML file, as ``docs/crimson.md`` explains.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If the judge, the prompt, the checks or the form are unknown or do not go together, ``runs`` is not
            positive, or the judge would return the same answers in each run; if ``chance`` is no setting, or is set
            with another form or judge.
        SettingError: If the profile is unknown or invalid, or is given for another judge than rules; if
            ``chance_share`` is outside [0, 1], or given without ``chance``; if ``false_price`` is less than 1, or given
            with another form.
        TypeError: If ``judge`` is not a judge, or has an argument that the judge does not accept.

    Example:
        >>> from rrg_rewards.metrics import CRIMSON
        >>> metric = CRIMSON(judge="rules")
        >>> metric.update(["No abnormality."], ["Large right pneumothorax."], age=[66])
        >>> metric.compute(), metric.error_counts()["missing_findings"]
        (tensor(0., dtype=torch.float64), tensor(1))
        >>> metric.score(["Large left pneumothorax."], ["Large right pneumothorax."]).explanations["misdescribed"]
        ['pneumothorax: left for right (significant location)']
    """

    name = "crimson"
    context = ("age", "sex", "indication")
    chance_details = ("training_chance", "training_weight")
    main_details = ("credit", "reference_weight", "false_findings", "missing_findings", "attribute_errors")
    plot_lower_bound: float = -1.0
    plot_upper_bound: float = 1.0

    if TYPE_CHECKING:
        # torch.jit.script would compile the annotated class.
        task: CrimsonTask
    weights: Tensor
    counts: Tensor

    def __init__(
        self,
        judge: str | Mapping[str, Any] | Judge = "rules",
        prompt: CrimsonPrompt = "own",
        runs: int = 1,
        checks: CrimsonChecks | None = None,
        form: CrimsonForm = "published",
        chance: str | None = None,
        chance_share: float = 1.0,
        false_price: float = 1.0,
        profile: str | Path = "published",
        **kwargs: Any,
    ) -> None:
        if form not in get_args(CrimsonForm):
            raise ValueError(unknown_name_message("form of CRIMSON", str(form), get_args(CrimsonForm)))
        chosen = judge if profile == "published" else _rules(judge, profile)
        super().__init__(chosen, CrimsonTask(prompt, checks), **kwargs)
        self.form = form
        if chance is not None:
            _check_chance(form, self.judge)
        if not is_finite(chance_share) or not 0 <= chance_share <= 1 or (chance is None and chance_share != 1):
            raise SettingError("chance_share", f"must be in [0, 1], and 1 without chance; got {chance_share!r}")
        self.chance_share = chance_share
        if not is_finite(false_price) or false_price < 1 or (form != "training" and false_price != 1):
            raise SettingError("false_price", f"must be at least 1, and 1 unless form is training; got {false_price!r}")
        self.false_price = float(false_price)
        self._set_chance(chance, lambda text: CrimsonChance.from_text(text, self.judge, self.task, self.false_price))
        self._weight_names = (
            *_WEIGHTS,
            *(_TRAINING if form == "training" else ()),
            *(self.chance_details if self.is_above_chance else ()),
        )
        if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
            raise ValueError(f"runs must be a positive integer, got {shown(runs)}")
        self.runs = runs
        # Raises if the judge has no other run.
        self.judge.rerun(runs - 1)
        # Counts are integers, but their means over several runs are not.
        counted = torch.long if runs == 1 else torch.float64
        self.add_state("weights", torch.zeros(len(self._weight_names), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(_COUNTS), dtype=counted), dist_reduce_fx="sum")
        layers = {
            _Unread(): self.judge.gives_coverage,
            _Routes(): bool(self.judge.judge_names),
            _Runs(runs): runs > 1,
        }
        self._layers = [layer for layer, is_used in layers.items() if is_used]
        for layer in self._layers:
            self.add_state(layer.state, torch.zeros(layer.num_sums, dtype=layer.dtype), dist_reduce_fx="sum")

    @property
    def signature(self) -> str:
        """Metric, judge and, for a language model, name and hash of the prompt and the checks, in one line."""
        # An immediate judge queries no language model, so the prompt has no effect.
        task = self.task
        prompt = {} if self.judge.is_immediate else {"prompt": task.prompt_signature, "checks": task.checks}
        runs = {} if self.runs == 1 else {"runs": self.runs}
        form = {} if self.form == "published" else {"form": self.form}
        judge = f"{{{self.judge.signature}}}"
        share = {} if self.chance_share == 1 else {"chance_share": self.chance_share}
        price = {} if self.false_price == 1 else {"false_price": self.false_price}
        return format_signature(
            "crimson", **form, **self._chance_fields, **share, **price, judge=judge, **prompt, **runs
        )

    def unread_context(self, given: Mapping[str, Any], read: Collection[str]) -> list[str]:
        """Return the unread columns of the context; the sex only for language models, because rules do not use it."""
        unread = super().unread_context(given, read)
        return [name for name in unread if name != "sex" or not isinstance(self.judge, RuleJudge)]

    def _measured(self, references: Sequence[str], context: Mapping[str, Sequence[Any]]) -> CrimsonChance:
        pairs = _pairs(references, [""] * len(references), context)
        return CrimsonChance(CrimsonChance.spread(pairs), self.judge, self.task, self.false_price)

    def _are_normal(self, scores: JudgedScores) -> Tensor:
        return scores.details["reference_weight"] == 0

    def score(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> CrimsonScores:
        """Compute CRIMSON of each report pair.

        Args:
            preds: ``N`` candidate reports.
            target: ``N`` reference reports.
            context: ``age``, ``sex`` and ``indication``, each optional: ``N`` texts or numbers, ``None`` or blank if
                unknown. An age is passed to the judge unchanged (``"066Y"``, ``66``).

        Returns:
            ``value``: CRIMSON. ``details``, each ``(N,)``: ``credit`` (weight of correct findings) and
            ``reference_weight`` (its maximum); ``weighted_false``, ``weighted_missing`` and ``weighted_attribute``; the
            numbers of ``reference_findings``, ``predicted_findings``, ``matched_findings`` (of the reference),
            ``false_findings``, ``missing_findings`` and ``attribute_errors``; the numbers of attribute errors by
            type (``location_errors`` and so on), where an error of several types counts for each type; and the sums
            over false findings, missing findings and attribute errors: ``errors`` of the numbers, ``weighted_errors``
            of the weights. With the rule-based judge also ``unread_reference`` and ``unread_candidate``, the shares of
            the words of both reports that it has not read (:func:`rrg_rewards.findings.read_findings`), also of a pair
            that is unscorable for this reason. With a cascade also ``by_second_judge``, 1 if its second judge was asked
            about the pair and 0 if not. With several runs also ``spread``, the standard deviation of the scores
            of the runs, and ``failed_runs``. With the training form also ``training_credit``, ``training_price`` (the
            score is their quotient) and ``training_certainty_loss``, and with ``chance`` also ``training_weight``
            of the quotient and ``training_chance``, which is subtracted. ``evaluations``: the evaluations of the judge.

        Raises:
            TypeError: If a report is not a text, or a context value is neither a text nor a number, naming argument and
                row; if a context column is unknown.
            ValueError: If lengths differ; if ``chance="dataset"`` is not fitted.
        """
        scores = super().score(preds, target, **context)
        assert isinstance(scores, CrimsonScores)
        return scores

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> JudgedScores:
        if self.judge.gives_coverage:
            warn_of_unread_ages(self.name, context.get("age", ()))
        return super()._score(preds, target, **context)

    def _read_context(self, context: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        return _read_context(context)

    def _items(
        self, preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]]
    ) -> list[ReportPair]:
        return _pairs(target, preds, context)

    async def _query(self, items: Sequence[ReportPair]) -> list[Any]:
        if self.runs == 1:
            return await super()._query(items)
        runs = [await self.judge.rerun(run).evaluate(self.task, items) for run in range(self.runs)]
        return [
            results[0] if all(isinstance(one, JudgeFailure) for one in results) else CrimsonRuns(results)
            for results in zip(*runs, strict=True)
        ]

    def _query_now(self, items: Sequence[ReportPair]) -> list[Any]:
        return super()._query_now(items) if self.runs == 1 else run_coroutine(self._query(items))

    def _judged(self, results: Sequence[Any]) -> CrimsonScores:
        scored = self._score_results(results) if self.runs == 1 else self._mean_of_runs(results)
        scores = CrimsonScores(
            scored.value,
            scored.details,
            results=tuple(results),
            gives_coverage=self.judge.gives_coverage,
            judge_names=self.judge.judge_names,
        )
        further = {name: one for layer in self._layers for name, one in layer.details(scores).items()}
        return replace(scores, details={**scores.details, **further})

    def _mean_of_runs(self, results: Sequence[CrimsonRuns | JudgeFailure]) -> Scores:
        """Return the means over the runs of each pair."""
        runs = [one.results if isinstance(one, CrimsonRuns) else (one,) * self.runs for one in results]
        return _mean_of_runs(self._score_results(list(chain.from_iterable(runs))), self.runs)

    def _score_results(self, results: Sequence[CrimsonEvaluation | JudgeFailure]) -> Scores:
        judged = torch.tensor([not isinstance(result, JudgeFailure) for result in results], dtype=torch.bool)
        evaluations = [result for result in results if not isinstance(result, JudgeFailure)]
        statistics = crimson_statistics(evaluations, self.task.checks)
        weights = [*statistics[: len(_WEIGHTS) - 1], statistics.error_weight]
        numbers = [*statistics[len(_WEIGHTS) - 1 : -1], *statistics.num_error_types.unbind(1), statistics.num_errors]
        details = dict(zip((*_WEIGHTS, *_COUNTS), (*weights, *numbers), strict=True))
        if self.form == "published":
            return Scores(crimson_score_from_statistics(*statistics[:3]), details).expand(judged)
        training = crimson_training_statistics(evaluations, self.task.checks, self.false_price)
        details.update(zip(_TRAINING, training, strict=True))
        return Scores(crimson_training_score_from_statistics(training.credit, training.price), details).expand(judged)

    def _expand(self, scores: Scores, rows: Tensor) -> Scores:
        expanded = super()._expand(scores, rows)
        if self.judge.gives_coverage and isinstance(expanded, CrimsonScores):
            # Not of pairs whose score does not come from the rules.
            read = [
                None if route == "second" else coverage
                for coverage, route in zip(expanded.coverages, expanded.routes, strict=True)
            ]
            warn_of_unread(self.name, read, (~expanded.value.isnan()).tolist())
        return expanded

    def _accumulate(self, scores: Scores) -> None:
        super()._accumulate(scores)
        self.weights = self.weights + score_sums(scores, self._weight_names).to(self.device)
        self.counts = self.counts + score_sums(scores, _COUNTS).to(self.device, self.counts.dtype)
        assert isinstance(scores, CrimsonScores)
        for layer in self._layers:
            sums: Tensor = getattr(self, layer.state)
            setattr(self, layer.state, sums + layer.sums(scores).to(sums))

    def error_counts(self) -> dict[str, Tensor]:
        """Totals over all pairs so far, synced over processes as in ``compute``; every process must call this method.

        Returns:
            Scalars by name. int64: ``scored``; ``unscorable``, and among these the judge's failures by kind
            (``failed_deadline`` and so on); the unweighted counts in the details of :meth:`score`. float64: the
            weighted counts. With a cascade, int64 ``by_rules`` and ``by_second_judge``, the pairs that each judge got,
            also if it failed. With several runs, the counts of a pair are means over
            runs (float64), and ``failed_runs`` is the number of failed runs.
        """
        with self._synced():
            return {
                **self._pair_counts(),
                **dict(zip(self._weight_names, self.weights.clone(), strict=True)),
                **dict(zip(_COUNTS, self.counts.clone(), strict=True)),
                **{
                    name: total
                    for layer in self._layers
                    for name, total in layer.totals(getattr(self, layer.state).clone()).items()
                },
            }

    def statistics(self) -> dict[str, Tensor]:
        """Means of all weighted and unweighted counts over the scored pairs, synced as in ``compute``.

        Returns:
            float64 scalars by the names of the details of :meth:`score`; NaN if no pair is scored. With several runs
            also ``spread``, its mean over the pairs with at least two runs that did not fail. With the rule-based judge
            also ``unread_reference`` and ``unread_candidate``, the means over all pairs that have both reports. With a
            cascade also ``by_second_judge``, the share of the judged pairs that its second judge got.
        """
        with self._synced():
            totals = self.error_counts()
            means = {name: totals[name].double() / totals["scored"] for name in (*self._weight_names, *_COUNTS)}
            for layer in self._layers:
                means |= layer.means(getattr(self, layer.state))
        return means


def _rules(judge: str | Mapping[str, Any] | Judge, profile: str | Path) -> Judge:
    """Return the rules with a profile."""
    settings = (
        {**judge.arguments(), "name": "rules"} if isinstance(judge, Judge) and hasattr(judge, "profile") else judge
    )
    try:
        return get_judge(settings, profile=profile)
    except TypeError as error:
        problem = f"needs judge='rules', whose conventions it states; got {shown(profile)} for another one"
        raise SettingError("profile", problem) from error


def _check_chance(form: str, judge: Judge) -> None:
    """Raise an error if chance cannot be measured with a form and a judge."""
    if form != "training":
        raise ValueError(f"chance is for rewards, which are fitted to it, and needs form='training'; got form={form!r}")
    if not isinstance(judge, RuleJudge):
        raise ValueError(
            f"chance needs judge='rules', got {judge.signature}: another judge would have to judge each report with "
            "all training references"
        )


def _mean_of_runs(scores: Scores, num_runs: int) -> Scores:
    r"""Return the means over runs of the scores of ``N`` pairs.

    A failed run has no score (NaN) and is left out of the means of its pair. Further details are ``spread``, the
    standard deviation :math:`\sqrt{\sum_k (s_k - \bar s)^2 / (n - 1)}` of the scores of the :math:`n` runs that did
    not fail (NaN if :math:`n < 2`), and ``failed_runs``, their number subtracted from the number of runs.

    Args:
        scores: Scores of ``N * num_runs`` results, the runs of a pair one after another.
        num_runs: Number of runs.

    Example:
        >>> found = _mean_of_runs(Scores(torch.tensor([0.0, 1.0, float("nan"), 1.0])), 2)
        >>> found.value, found.details["spread"], found.details["failed_runs"]
        (tensor([0.5000, 1.0000]), tensor([0.7071,    nan]), tensor([0., 1.]))
    """
    values = scores.value.view(-1, num_runs)
    scored = ~values.isnan()
    numbers = scored.sum(1)
    deviations = (values - values.nanmean(1, keepdim=True)).square().nansum(1)
    spread = (deviations / (numbers - 1)).sqrt().masked_fill(numbers < 2, torch.nan)
    failed = (num_runs - numbers).to(values.dtype).masked_fill(numbers == 0, torch.nan)
    means: dict[str, Tensor] = {name: one.view(-1, num_runs).nanmean(1) for name, one in scores.details.items()}
    return Scores(values.nanmean(1), {**means, "spread": spread, "failed_runs": failed})


def report_pairs(
    reference: Sequence[str], candidate: Sequence[str], context: Mapping[str, Sequence[Any]]
) -> list[ReportPair]:
    """Return the items for a judge that :class:`CRIMSON` makes of ``N`` report pairs and their context columns.

    Raises:
        TypeError: If a column is not one of ``CRIMSON.context``, or a value is neither a text nor a number.
    """
    if unknown := sorted(context.keys() - set(CRIMSON.context)):
        raise TypeError(f"crimson takes no column {', '.join(unknown)}; it accepts {', '.join(CRIMSON.context)}")
    return _pairs(reference, candidate, _read_context(context))


def _pairs(
    reference: Sequence[str], candidate: Sequence[str], context: Mapping[str, Sequence[str]]
) -> list[ReportPair]:
    # The columns have a fixed order, because equal items are judged once.
    named = [[(name, text) for text in context[name]] for name in CRIMSON.context if name in context]
    known = [tuple(pair for pair in row if pair[1]) for row in zip(*named, strict=True)] or [()] * len(reference)
    return [ReportPair(*row) for row in zip(reference, candidate, known, strict=True)]


def _read_context(context: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    return {
        name: [_context_text(f"{name}[{row}]", value) for row, value in enumerate(column)]
        for name, column in context.items()
    }


def _context_text(name: str, value: Any) -> str:
    """Return a context value as text; empty if it is unknown."""
    if value is None or value != value:  # NaN is an empty cell of a table
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a text, a number or None, got {type(value).__name__}")
    # Integers in a column with an empty cell are floats: 66.0 is the age 66.
    number = float(value)
    return str(int(number)) if number.is_integer() else str(value)
