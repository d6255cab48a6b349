"""The watch: counts what a policy writes, and says when it writes for the reward in place of the reader."""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.registry import get_labeler
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.processes import gather_objects, process_index
from rrg_rewards.watch.checks import Check, RunView, Verdict, default_checks
from rrg_rewards.watch.counts import Block, Counts, count_pairs, count_texts, count_values

__all__ = ["LABEL_METRIC", "RewardWatch"]

logger = logging.getLogger(__name__)

LABEL_METRIC = "label_f1"
"""Held-out metric that every watch with a labeler has: F1 of a report's labels against its reference's."""

_LEAST_BLOCKS = 3


class RewardWatch:
    r"""Watches what a policy learns to exploit: the plain object behind the callbacks, without any framework.

    It is fed with batches (:meth:`observe`) and told where a step ends (:meth:`step`), which every process calls.
    Counts are added up over processes there, so that all know the same and decide the same. Steps are pooled into
    *blocks* of at least ``block_reports`` completions; each time a block is full, every check compares the last blocks
    with those of the starting policy, which are the first ones unless :meth:`set_baseline` gives others, and with the
    references.

    A cause is warned of once, with its numbers, and again each time it is ``worsens`` times as severe as when it was
    last warned of. Texts are counted and not kept.

    Args:
        labeler: Labels completions and references, as :func:`rrg_rewards.labelers.get_labeler` takes it; ``None`` for
            none, and then without what is said of findings. With one ``label_f1`` is a held-out metric.
        block_reports: Least number of completions in a block, over all processes.
        baseline_reports: How many of the first reports stand for the starting policy, in whole blocks.
        window_reports: How many of the last reports are compared with them, in whole blocks.
        checks: What to watch for.
        limits: Changes of the checks by name, each a mapping of its arguments or ``False`` for a check that is left
            out: ``{"longer": {"factor": 2.0}, "undercalled": False}``.
        stop: Which alarms are to stop the run: ``True`` for all, or names of checks.
        confidence: How sure an alarm must be in each comparison.
        worsens: How many times as severe a cause must be to be warned of again.
        n_gram: Words of the n-grams of which the different ones are counted.

    Raises:
        ValueError: If a number is out of range, or a name is no check's.

    Example:
        A policy that learns to write the same normal report for everybody:

        >>> import logging
        >>> from rrg_rewards.watch import RewardWatch
        >>> logging.getLogger("rrg_rewards.watch").setLevel(logging.ERROR)
        >>> watch = RewardWatch(block_reports=4, baseline_reports=12, window_reports=12, stop=["normal_reports"])
        >>> references = ["Cardiomegaly.", "Hiatal hernia.", "Emphysema.", "Small pleural effusion."]
        >>> for step in range(12):
        ...     completions = references if step < 5 else ["Normal chest."] * 4
        ...     watch.observe(completions, references, rewards={"bleu": [0.1 * step] * 4})
        ...     alarms = watch.step(step)
        >>> watch.should_stop, sorted({alarm.check for alarm in watch.alarms})[:2]
        (True, ['divergence', 'fewer_positives'])
        >>> logging.getLogger("rrg_rewards.watch").setLevel(logging.NOTSET)
    """

    def __init__(
        self,
        *,
        labeler: str | Labeler | None = "rules:ct_rate",
        block_reports: int = 64,
        baseline_reports: int = 320,
        window_reports: int = 320,
        checks: Sequence[Check] | None = None,
        limits: Mapping[str, Mapping[str, Any] | bool] | None = None,
        stop: bool | Collection[str] = False,
        confidence: float = 0.999,
        worsens: float = 1.5,
        n_gram: int = 2,
    ) -> None:
        if block_reports < 1 or n_gram < 1:
            raise ValueError(f"block_reports and n_gram must be positive, got {block_reports} and {n_gram}")
        for name, value in (("baseline_reports", baseline_reports), ("window_reports", window_reports)):
            if value < _LEAST_BLOCKS * block_reports:
                raise ValueError(
                    f"{name} must hold at least {_LEAST_BLOCKS} blocks of block_reports={block_reports}, got {value}"
                )
        if not 0.5 < confidence < 1 or not worsens > 1:
            raise ValueError(f"confidence must lie in (0.5, 1) and worsens above 1, got {confidence} and {worsens}")
        self.labeler = None if labeler is None else get_labeler(labeler)
        self.block_reports = block_reports
        self.baseline_blocks = baseline_reports // block_reports
        self.window_blocks = window_reports // block_reports
        self.checks = _changed(default_checks() if checks is None else checks, limits or {})
        self.stop = _stopping(stop, [check.name for check in self.checks])
        self.confidence = confidence
        self.worsens = worsens
        self.n_gram = n_gram
        self.baseline: list[Block] = []
        self.blocks: list[Block] = []
        self.alarms: list[Verdict] = []
        self.verdicts: list[Verdict] = []
        self._open = Counts()
        self._here = Counts()
        self._warned: dict[str, float] = {}

    @property
    def should_stop(self) -> bool:
        """Whether an alarm that is to stop the run was raised."""
        return any(alarm.check in self.stop for alarm in self.alarms)

    @property
    def causes(self) -> list[str]:
        """What was warned of, in the order in which it was first."""
        return list(dict.fromkeys(alarm.cause for alarm in self.alarms))

    @property
    def seen(self) -> int:
        """How many completions all processes have observed, up to the last step."""
        return sum(block.reports for block in self.blocks) + self._open.reports

    def observe(
        self,
        completions: Sequence[str | None],
        references: Sequence[str | None] | None = None,
        *,
        rewards: Mapping[str, Sequence[float | None]] | None = None,
        metrics: Mapping[str, Sequence[float | None]] | None = None,
        judge_failures: Mapping[str, float] | None = None,
    ) -> None:
        """Count a batch of this process; nothing is shared before :meth:`step`.

        Args:
            completions: ``N`` completions as texts; ``None`` where there is none.
            references: ``N`` references, ``None`` where one is missing.
            rewards: ``N`` trained rewards by name; ``None`` where a completion is unscorable.
            metrics: ``N`` values of metrics that are not trained by name, higher is better.
            judge_failures: On how many of the completions a judge failed, by the name of its reward.

        Raises:
            ValueError: If lengths differ.
        """
        self._count(self._here, completions, references, rewards or {}, metrics or {}, judge_failures or {})

    def set_baseline(
        self,
        completions: Sequence[str | None],
        references: Sequence[str | None] | None = None,
        *,
        rewards: Mapping[str, Sequence[float | None]] | None = None,
        metrics: Mapping[str, Sequence[float | None]] | None = None,
    ) -> None:
        """Give reports of the starting policy, in place of the run's first; every process gives the same.

        Takes what :meth:`observe` takes, of at least three blocks of reports in random order.

        Raises:
            ValueError: If there are too few reports, or lengths differ.
        """
        count = len(completions) // self.block_reports
        if count < _LEAST_BLOCKS:
            raise ValueError(
                f"completions must hold at least {_LEAST_BLOCKS} blocks of {self.block_reports} reports, got "
                f"{len(completions)}"
            )
        edges = [number * len(completions) // count for number in range(count + 1)]
        self.baseline = []
        for start, end in pairwise(edges):
            counts, rows = Counts(), slice(start, end)
            self._count(
                counts,
                completions[rows],
                None if references is None else references[rows],
                {name: values[rows] for name, values in (rewards or {}).items()},
                {name: values[rows] for name, values in (metrics or {}).items()},
                {},
            )
            self.baseline.append(Block(0, counts.reports, counts.closed()))

    def _count(
        self,
        counts: Counts,
        completions: Sequence[str | None],
        references: Sequence[str | None] | None,
        rewards: Mapping[str, Sequence[float | None]],
        metrics: Mapping[str, Sequence[float | None]],
        judge_failures: Mapping[str, float],
    ) -> None:
        if references is not None:
            check_same_length("completions", completions, "references", references)
        for kind, columns in (("rewards", rewards), ("metrics", metrics)):
            for name, values in columns.items():
                check_same_length("completions", completions, f"{kind}[{name!r}]", values)
        count_texts(counts, "completions", [text for text in completions if text is not None], self.n_gram)
        if references is not None:
            count_texts(counts, "references", [text for text in references if text is not None], self.n_gram)
            if self.labeler is not None:
                found = count_pairs(counts, self.labeler, completions, references)
                metrics = {LABEL_METRIC: found, **metrics}
        count_values(counts, rewards, metrics)
        for name, failed in judge_failures.items():
            counts.add(f"completions/failed/{name}", failed, len(completions))

    def step(self, step: int) -> list[Verdict]:
        """End a step: add up what all processes counted, and check where a block is full; every process calls it.

        Args:
            step: Number of the step.

        Returns:
            Alarms raised now; the main process has logged them as warnings.
        """
        # By rank, so that all processes add up in one order and get the same bits.
        for part in gather_objects(self._here):
            self._open.merge(part)
        self._here = Counts()
        if self._open.reports < self.block_reports:
            return []
        self.blocks.append(Block(step, self._open.reports, self._open.closed()))
        self._open = Counts()
        view = self._view()
        if view is None:
            return []
        self.verdicts = [verdict for check in self.checks for verdict in check(view, step)]
        raised = [verdict for verdict in self.verdicts if verdict.fired and self._is_news(verdict)]
        for verdict in raised:
            self._warned[verdict.cause] = verdict.severity
            self.alarms.append(verdict)
            if process_index() == 0:
                logger.warning("step %d: %s: %s", step, verdict.cause, verdict.message)
        return raised

    def _is_news(self, verdict: Verdict) -> bool:
        before = self._warned.get(verdict.cause)
        return before is None or verdict.severity >= self.worsens * before

    def _view(self) -> RunView | None:
        blocks = [*self.baseline, *self.blocks]
        baseline = self.baseline or self.blocks[: self.baseline_blocks]
        end = len(blocks) - self.window_blocks
        if end < len(baseline):
            return None
        earlier = [baseline]
        starts = range(len(baseline), end - self.window_blocks + 1, self.window_blocks)
        earlier += [blocks[start : start + self.window_blocks] for start in starts]
        return RunView(baseline, earlier, blocks[end:], 1 - self.confidence)

    def history(self) -> dict[str, Any]:
        """All that was counted and said, as plain data."""
        return {
            "settings": {
                "labeler": None if self.labeler is None else self.labeler.signature,
                "block_reports": self.block_reports,
                "baseline_blocks": self.baseline_blocks,
                "window_blocks": self.window_blocks,
                "confidence": self.confidence,
                "stop": sorted(self.stop),
                "checks": [{"kind": type(check).__name__, **_arguments(check)} for check in self.checks],
            },
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "should_stop": self.should_stop,
            "baseline": [block.state_dict() for block in self.baseline],
            "blocks": [block.state_dict() for block in self.blocks],
        }

    def state_dict(self) -> dict[str, Any]:
        """What was seen so far, as plain data, for a checkpoint that is written between steps."""
        return {
            "baseline": [block.state_dict() for block in self.baseline],
            "blocks": [block.state_dict() for block in self.blocks],
            "open": self._open.state_dict(),
            "alarms": [{item.name: getattr(alarm, item.name) for item in fields(alarm)} for alarm in self.alarms],
            "warned": dict(self._warned),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self.baseline = [Block.from_state_dict(block) for block in state["baseline"]]
        self.blocks = [Block.from_state_dict(block) for block in state["blocks"]]
        self._open, self._here = Counts.from_state_dict(state["open"]), Counts()
        self.alarms = [Verdict(**{**alarm, "numbers": _numbers(alarm["numbers"])}) for alarm in state["alarms"]]
        self._warned = {cause: float(severity) for cause, severity in state["warned"].items()}


def _numbers(numbers: Mapping[str, float | None]) -> dict[str, float]:
    # JSON has no NaN.
    return {name: math.nan if value is None else float(value) for name, value in numbers.items()}


def _arguments(check: Check) -> dict[str, Any]:
    return dict(vars(check))


def _changed(checks: Sequence[Check], limits: Mapping[str, Mapping[str, Any] | bool]) -> tuple[Check, ...]:
    """The checks with other arguments."""
    by_name = {check.name: check for check in checks}
    for name, change in limits.items():
        if name not in by_name:
            raise ValueError(unknown_name_message("check", name, [check.name for check in checks]))
        if change is False:
            del by_name[name]
        elif isinstance(change, Mapping):
            known = [key for key in vars(by_name[name]) if key != "name"]
            for key in change:
                if key not in known:
                    raise ValueError(unknown_name_message(f"limit of check {name!r}", key, known))
            by_name[name] = replace(by_name[name], **change)  # type: ignore[type-var]  # checks are dataclasses
        elif change is not True:
            raise ValueError(f"limits[{name!r}] must be a mapping, or false to leave the check out, got {change!r}")
    return tuple(by_name.values())


def _stopping(stop: bool | Collection[str], names: Sequence[str]) -> frozenset[str]:
    if isinstance(stop, bool):
        return frozenset(names if stop else ())
    wanted = [stop] if isinstance(stop, str) else list(stop)
    for name in wanted:
        if name not in names:
            raise ValueError(unknown_name_message("check", name, names))
    return frozenset(wanted)
