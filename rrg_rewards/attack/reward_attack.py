"""Search of the best image-free policies against a reward, before a policy is trained on it."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from rrg_rewards.attack.calls import PolicyTable, RewardCalls, RewardFunction, reward_name
from rrg_rewards.attack.families import HONEST, Family, Material, Policy, make_families, read_material
from rrg_rewards.attack.results import AttackResult, FamilyResult, RewardCheck, get_outcome
from rrg_rewards.attack.search import (
    FINALISTS,
    add_texts,
    cross,
    cross_edits,
    evolve,
    finalists,
    listed,
    screen_findings,
    search_family,
)
from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.worker_pool import optional_pool

# Minimum number of calls of a family's search.
_LEAST_CALLS = 64
_LEAST_REFERENCES = 4
# Number of the best phrases of each family that are recombined and appended to honest reports.
_BANK = 12
# Number of references that are compared with themselves, and of other references that each is compared with.
_CHECKED, _OTHERS = 32, 3
# Calls for each of these references: itself, with another one after it, twice, an empty text and a normal report.
_CHECKS = _OTHERS + 5
_EMPTY, _NORMAL = Policy(("",)), Policy(("No abnormality.",))
# Rewards that differ by less are equal: networks compute with 32 bits.
_EQUAL = 1e-5
# Share of the budget for the comparison of single findings, which determines their order in all families.
_SCREENED = 0.1


@dataclass(frozen=True)
class _Settings:
    """Settings of an attack; see :func:`attack_reward`."""

    budget: int
    max_references: int
    held_out: float
    threshold: float
    confidence: float
    seed: int
    blank: str
    against: Literal["blank", "honest"]

    def __post_init__(self) -> None:
        if self.max_references < 2 * _LEAST_REFERENCES:
            raise ValueError(f"max_references must be at least {2 * _LEAST_REFERENCES}, got {self.max_references}")
        for name in ("held_out", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in (0, 1), got {getattr(self, name)}")
        if self.against not in ("blank", "honest"):
            raise ValueError(f"against must be 'blank' or 'honest', got {self.against!r}")


def attack_reward(
    reward: Callable[..., Any],
    columns: Mapping[str, Sequence[Any]],
    *,
    reference_column: str = "reference",
    honest: Sequence[str | None] | None = None,
    reports: Sequence[str] | None = None,
    families: Sequence[str] | None = None,
    lexicon: str | Path = "chest",
    against: Literal["blank", "honest"] | None = None,
    budget: int = 100_000,
    max_references: int = 200,
    held_out: float = 0.5,
    threshold: float = 0.1,
    confidence: float = 0.95,
    seed: int = 0,
    blank: str = "",
    batch_size: int = 256,
    report_progress: Callable[[int, int], None] | None = None,
    report_check: Callable[[RewardCheck], None] | None = None,
    workers: int = 1,
) -> AttackResult:
    r"""Search the image-free policies that a reward pays best.

    An image-free policy writes the same text for all patients, or makes the same edit of each report of an honest
    system. Families of such policies (``exploits.yaml``) are searched on one part of the references. The best policy
    of each family is then measured on the other part, the held-out references. Its gain is

    .. math::
        g = \frac{1}{N} \sum_{i=1}^{N} \bigl( r(t, y_i) - r(b_i, y_i) \bigr)

    where :math:`t` is the policy's report, :math:`y_i` a held-out reference and :math:`b_i` the baseline: the honest
    report if ``against="honest"`` or the policy edits reports, otherwise the blank report. The interval is a percentile
    bootstrap over held-out references. References with equal text are in the same part.

    Before the search, the reward itself is checked on up to 32 references: each must score its maximum against itself,
    which is compared with the rewards of other references, of the honest report, and of the reference twice or with
    another one after it, and an empty text must not score this maximum (:class:`RewardCheck`).

    Args:
        reward: A :class:`~rrg_rewards.rewards.Reward`, whose state is not updated, or any reward function for TRL,
            plain or asynchronous. Rewards that need it must be fitted before (``reward.fit``).
        columns: ``N`` values of each column that the reward reads, with the references.
        reference_column: Name of the column of references. Rows without a reference or with a blank one are left out.
        honest: ``N`` reports of a system that sees the images. Rows without one are left out. Without honest reports,
            edits are not searched.
        reports: Reports whose sentences are searched, such as the training set. Default: the references of the search.
        families: Names of the families. Default: all.
        lexicon: Lexicon whose findings, organs and labels fill the texts: one of this package, or the path of a
            ``.yaml`` file in the format of ``docs/labelers.md``.
        against: Baseline of constant texts. Default: ``"honest"`` if honest reports are given, otherwise ``"blank"``.
        budget: Maximum number of calls of the reward; a call is one completion scored against one reference.
        max_references: Maximum number of references; more are sampled.
        held_out: Share of the references that are not searched.
        threshold: Gain above which a policy is an exploit.
        confidence: Confidence level of the intervals.
        seed: Seed of all random choices. Equal seeds and rewards give equal results.
        blank: Text of the blank report.
        batch_size: Maximum number of completions per call of the reward function.
        report_progress: Function of the number of finished calls and the number of calls to add to the total.
        report_check: Function of the check of the reward itself, called before the search.
        workers: Number of processes that call the reward; 0 for one for each core. With several, the reward is pickled
            for them, and must have no model and ask no language model.

    Returns:
        The best policy of each family on held-out references, the largest gain first. If the search is interrupted
        (``KeyboardInterrupt``) after a family, the result of the families so far, with ``complete=False``.

    Raises:
        KeyboardInterrupt: If the search is interrupted before a family is complete.
        ValueError: If a setting is out of range, lengths differ, there are too few references, the budget is too small,
            a family is unknown, or the reward cannot score the blank report on any reference.

    Example:
        >>> from rrg_rewards.attack import attack_reward
        >>> def mentions_effusion(completions, **columns):
        ...     return [float("effusion" in text.lower()) for text in completions]
        >>> references = [f"Small effusion of {size} mm." for size in range(40)]
        >>> result = attack_reward(mentions_effusion, {"reference": references}, families=["findings"], budget=4000)
        >>> result.best.family, result.best.gain, result.outcome
        ('findings', 1.0, 'exploit')
    """
    baseline = against or ("blank" if honest is None else "honest")
    settings = _Settings(budget, max_references, held_out, threshold, confidence, seed, blank, baseline)
    if settings.against == "honest" and honest is None:
        raise ValueError("against='honest' needs honest reports")
    searched, rest = _split_rows(_usable_rows(columns, reference_column, honest), columns[reference_column], settings)
    references = columns[reference_column]
    material = read_material([references[row] for row in searched] if reports is None else reports, lexicon)
    made = make_families(material, families, honest is not None)
    _check_families(made)
    _check_budget(settings, len(made), len(searched), len(rest))
    with optional_pool(RewardFunction(reward), workers, name="the reward") as pool:
        calls = RewardCalls(reward, columns, budget, batch_size, report_progress, pool)
        attack = _Attack(settings, calls, searched, rest, honest)
        check, reference = attack.begin(references, report_check)
        results, complete = attack.search_families(material, families, len(made))
    return AttackResult(
        reward=reward_name(reward),
        signature=str(getattr(reward, "signature", "")),
        blank=attack.mean(Policy((blank,))),
        honest=None if honest is None else attack.mean(HONEST),
        reference=reference,
        baseline=settings.against,
        families=results,
        settings={**vars(settings), "searched_references": len(searched), "held_out_references": len(rest)},
        calls=calls.spent,
        check=check,
        complete=complete,
    )


def _check_families(families: Sequence[Family]) -> None:
    """Raise if the chosen families have no texts of their own."""
    if not families:
        raise ValueError("every chosen family edits honest reports; give honest reports")
    if all(family.combine for family in families):
        names = ", ".join(family.name for family in families)
        raise ValueError(f"families: {names} use the texts of others; name others")


def _usable_rows(
    columns: Mapping[str, Sequence[Any]], reference_column: str, honest: Sequence[str | None] | None
) -> list[int]:
    """Return the rows with a reference and, if honest reports are given, an honest report."""
    if reference_column not in columns:
        raise ValueError(unknown_name_message("column", reference_column, columns))
    references = columns[reference_column]
    for name, cells in {**columns, **({} if honest is None else {"honest": honest})}.items():
        check_same_length(reference_column, references, name, cells)
    return [
        row
        for row, text in enumerate(references)
        if text and text.strip() and (honest is None or honest[row] is not None)
    ]


def _split_rows(rows: Sequence[int], references: Sequence[str], settings: _Settings) -> tuple[list[int], list[int]]:
    """Sample rows and split them into rows to search and held-out rows; equal references are in the same part."""
    draw = random.Random(settings.seed)
    rows = draw.sample(rows, min(len(rows), settings.max_references))
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(references[row].strip(), []).append(row)
    searched: list[int] = []
    held_out: list[int] = []
    # The largest groups first, so that the parts have about the wanted sizes.
    for group in sorted(groups.values(), key=len, reverse=True):
        lacks = len(held_out) < settings.held_out * (len(searched) + len(held_out) + len(group))
        (held_out if lacks else searched).extend(group)
    if min(len(searched), len(held_out)) < _LEAST_REFERENCES:
        raise ValueError(
            f"the references give {len(searched)} to search and {len(held_out)} held out; at least "
            f"{_LEAST_REFERENCES} of each are needed, of {len(groups)} different references"
        )
    draw.shuffle(searched)
    return searched, held_out


def _check_budget(settings: _Settings, families: int, searched: int, held_out: int) -> None:
    first = 3 * (searched + held_out) + _CHECKS * min(_CHECKED, searched)
    least = _final_calls(searched, held_out) * families + first + _LEAST_CALLS * (families + 1)
    if settings.budget < least:
        raise ValueError(
            f"budget must be at least {least} for {families} families and {searched + held_out} references, got "
            f"{settings.budget}; use fewer references or families"
        )


def _final_calls(searched: int, held_out: int) -> int:
    """Return the number of calls that compare the finalists of a family and measure the best of them."""
    return FINALISTS * searched + held_out


def _compare_with_own(
    own: Tensor, others: Mapping[str, Sequence[Tensor]], empty: Tensor, normal: Tensor
) -> RewardCheck:
    """Count the references that other texts exceed; a comparison with a missing reward does not count."""
    gaps = {kind: torch.stack([rewards - own for rewards in given]).nan_to_num(-math.inf).amax(0)
            for kind, given in others.items()}  # fmt: skip
    largest = torch.stack([*gaps.values()]).amax(0)
    reached = empty >= own - _EQUAL
    return RewardCheck(
        references=len(own),
        unscorable=int(own.isnan().sum()),
        exceeded=int((largest > _EQUAL).sum()),
        exceeded_by={kind: int((gap > _EQUAL).sum()) for kind, gap in gaps.items()},
        excess=max(float(largest.max()), 0.0),
        empty=int(reached.sum()),
        empty_normal=int((reached & (normal >= own - _EQUAL)).sum()),
    )


class _Attack:
    """The search of all families, with the texts and phrases that it has found so far."""

    def __init__(
        self,
        settings: _Settings,
        calls: RewardCalls,
        searched: Sequence[int],
        held_out: Sequence[int],
        honest: Sequence[str | None] | None,
    ) -> None:
        self.settings = settings
        baseline = HONEST if settings.against == "honest" else Policy((settings.blank,))
        texts = None if honest is None else [report or "" for report in honest]
        self.search, self.test = (PolicyTable(calls, rows, texts, baseline) for rows in (searched, held_out))
        self._draw = random.Random(settings.seed)
        self._texts: list[Policy] = []
        self._edits: list[Policy] = []
        self._lists: list[Policy] = []
        self._phrases: list[str] = []
        self._quoted: set[str] = set()

    def begin(
        self, references: Sequence[str], report_check: Callable[[RewardCheck], None] | None
    ) -> tuple[RewardCheck, float]:
        """Score the baselines, check the reward, and return the check and the mean reward of held-out references."""
        self.score_baselines()
        check, rest = self.check_reward(references), self.test.rows
        own = self.search.calls([references[row] for row in rest], rest)
        if report_check is not None:
            report_check(check)
        return check, float(own.nanmean())

    def score_baselines(self) -> None:
        """Score the blank and the honest reports on all references.

        Raises:
            ValueError: If the reward cannot score the blank report on any reference.
        """
        blank = Policy((self.settings.blank,))
        for table in (self.search, self.test):
            table.evaluate([blank] if table.honest is None else [blank, HONEST], len(table.rows))
            if table.rewards(blank).isnan().all():
                failure = table.calls.first_failure
                remedy = f"its judge failed, the first time with {failure}" if failure else "set blank to another text"
                raise ValueError(
                    f"the reward cannot score the blank report {self.settings.blank!r} on any reference; {remedy}"
                )

    def check_reward(self, references: Sequence[str]) -> RewardCheck:
        """Compare what references score against themselves with what other texts score against them.

        Args:
            references: The column of references.
        """
        table = self.search
        rows = table.rows[:_CHECKED]
        texts = [references[row] for row in rows]
        own = table.calls(texts, rows)
        table.evaluate([_EMPTY, _NORMAL], len(rows))
        longer = [f"{text} {texts[place - 1]}" for place, text in enumerate(texts)]
        others = {
            "another reference": [table.calls(texts[n:] + texts[:n], rows) for n in range(1, 1 + _OTHERS)],
            "the reference and another one": [table.calls(longer, rows)],
            "the reference twice": [table.calls([f"{text} {text}" for text in texts], rows)],
        }
        if table.honest is not None:
            others["an honest report"] = [table.rewards(HONEST, len(rows))]
        empty, normal = (table.rewards(policy, len(rows)) for policy in (_EMPTY, _NORMAL))
        return _compare_with_own(own, {**others, "an empty text": [empty], "a normal report": [normal]}, empty, normal)

    def mean(self, policy: Policy) -> float:
        """Return the mean reward of an evaluated policy on the held-out references."""
        return float(self.test.rewards(policy).nanmean())

    def search_families(
        self, material: Material, names: Sequence[str] | None, number: int
    ) -> tuple[tuple[FamilyResult, ...], bool]:
        """Search families, the findings that the reward pays first.

        Args:
            material: Findings, labels and sentences.
            names: Names of the families.
            number: Number of the families.

        Returns:
            Their results, the largest gain first, and whether the search was not interrupted.
        """
        calls, final = self.search.calls, _final_calls(len(self.search.rows), len(self.test.rows))
        results: list[FamilyResult] = []
        complete = True
        try:
            findings = screen_findings(self.search, material.findings, int(_SCREENED * (calls.left - number * final)))
            self._lists = [*listed(findings, "."), *listed(material.words, "")]
            rest = make_families(replace(material, findings=findings), names, self.search.honest is not None)
            while rest:
                share = rest[0].weight / sum(family.weight for family in rest)
                before, budget = calls.spent, int((calls.left - len(rest) * final) * share)
                if candidates := self._search(rest[0], budget):
                    results.append(self._measure(rest[0], candidates, before))
                rest = rest[1:]
        except KeyboardInterrupt:
            if not results:
                raise
            complete = False
        # Those without a gain come last.
        results.sort(key=lambda result: math.inf if math.isnan(result.gain) else -result.gain)
        return tuple(results), complete

    def _search(self, family: Family, budget: int) -> list[Policy]:
        if family.combine == "evolve":
            return evolve(self.search, self._texts, self._phrases, budget, self._draw)
        if family.combine == "cross":
            return cross(self.search, self._texts, budget)
        if family.combine == "cross_edits":
            return cross_edits(self.search, self._edits, budget)
        if family.combine:
            before = family.combine == "prepend"
            return add_texts(self.search, self._texts, self._phrases, self._lists, budget, before)
        candidates, phrases = search_family(self.search, family, budget, self._draw)
        if family.quotes:
            texts = (*phrases, *(policy.text for policy in candidates))
            # Shorter texts are findings, which the lexicon contains too.
            self._quoted |= {text for text in texts if len(text.split()) > 2}
        self._phrases += phrases[:_BANK]
        return candidates

    def _measure(self, family: Family, candidates: Sequence[Policy], before: int) -> FamilyResult:
        last = finalists(self.search, candidates)
        self.search.evaluate(last, len(self.search.rows))
        best, *others = self.search.ranked(last)
        for policy in (best, *others[:1]):
            (self._edits if policy.edit else self._texts).append(policy)
        self.test.evaluate([best], len(self.test.rows))
        rewards, gains = self.test.rewards(best), self.test.gains(best)
        confidence, seed = self.settings.confidence, self.settings.seed
        interval = bootstrap_interval(torch.nanmean, [gains], confidence=confidence, seed=seed)
        gain = float(gains.nanmean())
        return FamilyResult(
            family=family.name,
            about=family.about,
            text=best.text,
            edits=bool(best.edit),
            quotes_reports=family.quotes or any(text in best.text for text in self._quoted),
            reward=float(rewards.nanmean()),
            searched_reward=float(self.search.rewards(best).nanmean()),
            gain=gain,
            interval=interval,
            unscorable=int(rewards.isnan().sum()),
            calls=self.search.calls.spent - before,
            outcome=get_outcome(gain, interval[0], self.settings.threshold),
        )
