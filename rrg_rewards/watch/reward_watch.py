"""A watch that counts properties of the reports of a policy and warns of reward hacking."""

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from rrg_rewards.labelers.registry import LabelerSetting, get_labeler
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.utilities.processes import gather_objects, process_index
from rrg_rewards.watch.batch import LABEL_METRIC, Values, count_pairs, count_values
from rrg_rewards.watch.checks import Check, RunView, Verdict, change_checks, default_checks, get_stopping_checks
from rrg_rewards.watch.counts import Block, Counts
from rrg_rewards.watch.text_counts import count_text

logger = logging.getLogger("rrg_rewards.watch")

_LEAST_BLOCKS = 3
# Number of blocks between the baseline and the window; more are summed, so that the state stays small.
_MOST_EARLIER = 40


class RewardWatch:
    r"""Watches a policy for reward hacking, independently of any framework.

    Each process passes its batches to :meth:`observe` and calls :meth:`step` at the end of each step. :meth:`step` sums
    the counts over processes, so all processes make the same decisions. Steps are pooled into *blocks* of at least
    ``block_reports`` completions. When a block is complete, each check compares the latest blocks with the baseline,
    which represents the starting policy, and with the references. The baseline consists of the first blocks.

    The watch logs a warning with the compared numbers when a cause first raises an alarm, and again each time the
    severity has grown by the factor ``worsens``. It stores counts but no texts. Its state contains hashes of words and
    frames; who has a dictionary can recover the words. The state does not grow with the run: when there are more than
    40 blocks between the baseline and the window, neighbours are summed.

    Args:
        labeler: Labeler of completions and references; see :func:`rrg_rewards.labelers.get_labeler`. ``None`` disables
            the checks of labels. With a labeler, ``label_f1`` is a held-out metric.
        block_reports: Minimum number of completions in a block, over all processes.
        baseline_reports: Number of reports in the baseline, rounded down to whole blocks.
        window_reports: Number of latest reports that are compared with the baseline, rounded down to whole blocks.
        checks: The checks. Default: :func:`rrg_rewards.watch.default_checks`.
        limits: Changes to checks by name: a mapping of arguments, or ``False`` to remove the check, as in
            ``{"longer": {"factor": 2.0}, "undercalled": False}``.
        stop: Names of the checks whose alarms stop the run, or ``True`` for all checks.
        confidence: Confidence level of each comparison.
        worsens: Growth factor of the severity at which a warning is repeated.

    Raises:
        ValueError: If a number is out of range, or a check is unknown.

    Example:
        A policy that learns to write the same normal report for all patients:

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
        labeler: LabelerSetting | None = "rules:ct_rate",
        block_reports: int = 64,
        baseline_reports: int = 320,
        window_reports: int = 320,
        checks: Sequence[Check] | None = None,
        limits: Mapping[str, Mapping[str, Any] | bool] | None = None,
        stop: bool | Collection[str] = False,
        confidence: float = 0.999,
        worsens: float = 1.5,
    ) -> None:
        if block_reports < 1:
            raise ValueError(f"block_reports must be positive, got {block_reports}")
        for name, value in (("baseline_reports", baseline_reports), ("window_reports", window_reports)):
            if value < _LEAST_BLOCKS * block_reports:
                raise ValueError(
                    f"{name} must hold at least {_LEAST_BLOCKS} blocks of block_reports={block_reports}, got {value}"
                )
        if not 0.5 < confidence < 1 or not worsens > 1:
            raise ValueError(
                f"confidence must be in (0.5, 1) and worsens greater than 1, got {confidence} and {worsens}"
            )
        self.labeler = None if labeler is None else get_labeler(labeler)
        self.block_reports = block_reports
        self.baseline_blocks = baseline_reports // block_reports
        self.window_blocks = window_reports // block_reports
        self.checks = change_checks(default_checks() if checks is None else checks, limits or {})
        self.stop = get_stopping_checks(stop, [check.name for check in self.checks])
        self.confidence = confidence
        self.worsens = worsens
        self.blocks: list[Block] = []
        self.alarms: list[Verdict] = []
        self.verdicts: list[Verdict] = []
        self._open = Counts()
        self._here = Counts()

    @property
    def should_stop(self) -> bool:
        """Whether a check in ``stop`` has raised an alarm."""
        return any(alarm.check in self.stop for alarm in self.alarms)

    @property
    def causes(self) -> list[str]:
        """Causes of the alarms, in the order of their first alarms."""
        return list(dict.fromkeys(alarm.cause for alarm in self.alarms))

    @property
    def seen(self) -> int:
        """Number of completions that all processes together had observed at the last step."""
        return sum(block.reports for block in self.blocks) + self._open.reports

    def observe(
        self,
        completions: Sequence[str | None],
        references: Sequence[str | None] | None = None,
        *,
        rewards: Values | None = None,
        metrics: Values | None = None,
        judge_failures: Mapping[str, float] | None = None,
    ) -> None:
        """Count a batch of this process, without communication.

        Args:
            completions: ``N`` texts, or ``None`` for a missing completion.
            references: ``N`` texts, or ``None`` for a missing reference.
            rewards: ``N`` trained rewards by name; ``None`` for unscorable completions.
            metrics: ``N`` values of held-out metrics by name; higher is better.
            judge_failures: Number of completions for which the judge failed, by name of the reward.

        Raises:
            ValueError: If lengths differ.
        """
        rewards, metrics = rewards or {}, metrics or {}
        columns: dict[str, Sequence[Any] | None] = {"references": references}
        for kind, by_name in (("rewards", rewards), ("metrics", metrics)):
            columns |= {f"{kind}[{name!r}]": values for name, values in by_name.items()}
        for name, column in columns.items():
            if column is not None:
                check_same_length("completions", completions, name, column)
        counts = self._here
        for side, reports in (("completions", completions), ("references", references)):
            # The completions of a prompt have one reference, and completions may repeat.
            texts = Counter(text for text in reports or () if text is not None)
            counts.add_texts(side, ((count_text(text), number) for text, number in texts.items()))
        if references is not None and self.labeler is not None:
            metrics = {LABEL_METRIC: count_pairs(counts, self.labeler, completions, references), **metrics}
        count_values(counts, rewards, metrics)
        for name, failed in (judge_failures or {}).items():
            counts.add(f"completions/failed/{name}", failed, len(completions))

    def step(self, step: int) -> list[Verdict]:
        """End a step: sum the counts of all processes and run the checks if a block is complete.

        Every process must call this method.

        Args:
            step: Number of the step.

        Returns:
            The new alarms. The main process logs them as warnings.
        """
        # Merge in the order of the ranks, so that the sums are bit-equal in all processes.
        for part in gather_objects(self._here):
            self._open.merge(part)
        self._here = Counts()
        if self._open.reports < self.block_reports:
            return []
        self.blocks.append(self._open.closed(step))
        self._open = Counts()
        self._sum_earlier_blocks()
        view = self._view()
        if view is None:
            return []
        self.verdicts = [verdict for check in self.checks for verdict in check(view, step)]
        warned = {alarm.cause: alarm.severity for alarm in self.alarms}
        raised = [
            verdict
            for verdict in self.verdicts
            if verdict.fired and verdict.severity >= self.worsens * warned.get(verdict.cause, 0.0)
        ]
        self.alarms += raised
        if process_index() == 0:
            for verdict in raised:
                logger.warning("step %d: %s: %s", step, verdict.cause, verdict.message)
        return raised

    def _sum_earlier_blocks(self) -> None:
        """Sum neighbours, of which the two smallest, until there are few enough blocks between baseline and window."""
        start, end = self.baseline_blocks, len(self.blocks) - self.window_blocks
        self.blocks[start:end] = [block.without_frames() for block in self.blocks[start:end]]
        for _ in range(end - start - _MOST_EARLIER):
            sizes = [one.reports + other.reports for one, other in pairwise(self.blocks[start:end])]
            place = start + sizes.index(min(sizes))
            self.blocks[place : place + 2] = [self.blocks[place].joined(self.blocks[place + 1])]
            end -= 1

    def _view(self) -> RunView | None:
        start, end = self.baseline_blocks, len(self.blocks) - self.window_blocks
        if end < start:
            return None
        starts = range(start, end - self.window_blocks + 1, self.window_blocks)
        earlier = [self.blocks[place : place + self.window_blocks] for place in starts]
        baseline = self.blocks[:start]
        return RunView(baseline, [baseline, *earlier], self.blocks[end:], 1 - self.confidence)

    def history(self) -> dict[str, Any]:
        """Return the settings, counts, alarms and verdicts as plain data."""
        return {
            "settings": {
                "labeler": None if self.labeler is None else self.labeler.signature,
                "block_reports": self.block_reports,
                "baseline_blocks": self.baseline_blocks,
                "window_blocks": self.window_blocks,
                "confidence": self.confidence,
                "stop": sorted(self.stop),
                "checks": [{"kind": type(check).__name__, **vars(check)} for check in self.checks],
            },
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "should_stop": self.should_stop,
            "blocks": [block.state_dict() for block in self.blocks],
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data; call it between two steps only."""
        return {
            "blocks": [block.state_dict() for block in self.blocks],
            "open": self._open.state_dict(),
            "alarms": [{item.name: getattr(alarm, item.name) for item in fields(alarm)} for alarm in self.alarms],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned."""
        self.blocks = [Block.from_state_dict(block) for block in state["blocks"]]
        self._open, self._here = Counts.from_state_dict(state["open"]), Counts()
        self.alarms = [Verdict(**{**alarm, "numbers": _numbers(alarm["numbers"])}) for alarm in state["alarms"]]


def _numbers(numbers: Mapping[str, float | None]) -> dict[str, float]:
    # JSON stores NaN as null.
    return {name: math.nan if value is None else float(value) for name, value in numbers.items()}
