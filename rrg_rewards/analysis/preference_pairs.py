"""Preferences between the completions of a prompt, derived from their rewards, as data for DPO and KTO."""

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rrg_rewards.analysis.metric_choice import reward_inputs
from rrg_rewards.analysis.outcomes import PairCounts, RunUsage, by_kind, failures_counted
from rrg_rewards.analysis.settings import PreferenceSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.completions import Completion
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.version import __version__

# Warn if chosen completions have more than this many times the words of rejected ones.
_LONG = 1.5


@dataclass(frozen=True)
class Preferences:
    """Pairs of preferred and rejected completions.

    Args:
        pairs: Row of the chosen and row of the rejected completion of each pair, in the order of the prompts.
        prompts: Number of prompts.
        declined: Number of prompts without a pair, by reason: ``single`` (fewer than two different completions with a
            reward) or ``tied`` (no two of them differ by the margin).
    """

    pairs: list[tuple[int, int]]
    prompts: int
    declined: Mapping[str, int]


def pair_completions(
    groups: Sequence[Hashable],
    completions: Sequence[str | None],
    rewards: Sequence[float | None],
    *,
    margin: float = 0.0,
    per_prompt: int = 1,
) -> Preferences:
    """Pair the completions of each prompt: the best with the worst, the second best with the second worst, and so on.

    A completion is in at most one pair. The rewards of a pair are different, and their difference is at least the
    margin. Of completions with equal text only the first is used.

    Args:
        groups: ``N`` keys, equal for the completions of one prompt.
        completions: ``N`` completions; ``None`` for a missing one.
        rewards: ``N`` rewards; ``None`` for an unscorable completion, which is in no pair.
        margin: Minimum difference of the rewards of a pair.
        per_prompt: Maximum number of pairs per prompt.

    Raises:
        ValueError: If lengths differ, the margin is negative or ``per_prompt`` is not positive.

    Example:
        >>> pair_completions(["a", "a", "a", "b"], ["x", "y", "z", "x"], [0.1, 0.9, None, 0.5]).pairs
        [(1, 0)]
    """
    check_same_length("groups", groups, "completions", completions)
    check_same_length("groups", groups, "rewards", rewards)
    if not margin >= 0 or per_prompt < 1:
        raise ValueError(f"margin must be at least 0 and per_prompt positive, got {margin} and {per_prompt}")
    pairs: list[tuple[int, int]] = []
    declined = {"single": 0, "tied": 0}
    members: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    for rows in members.values():
        ranked = _ranked(rows, completions, rewards)
        own: list[tuple[int, int]] = []
        for (best, high), (worst, low) in zip(ranked, reversed(ranked), strict=True):
            if len(own) == per_prompt or not (high > low and high - low >= margin):
                break
            own.append((best, worst))
        if not own:
            declined["single" if len(ranked) < 2 else "tied"] += 1
        pairs += own
    return Preferences(pairs, len(members), declined)


def _ranked(
    rows: Sequence[int], completions: Sequence[Any], rewards: Sequence[float | None]
) -> list[tuple[int, float]]:
    """Return the rows of different completions with their rewards, best first. Equal rewards keep their order."""
    first: dict[str, tuple[int, float]] = {}
    for row in rows:
        completion, reward = completions[row], rewards[row]
        if completion is not None and reward is not None:
            first.setdefault(completion, (row, reward))
    return sorted(first.values(), key=lambda entry: -entry[1])


def label_desirable(rewards: Sequence[float | None], threshold: float, margin: float = 0.0) -> list[bool | None]:
    """Label completions as desirable or not; ``None`` if the reward is missing or too close to the threshold.

    Args:
        rewards: ``N`` rewards.
        threshold: Completions with a higher reward are desirable, completions with a lower one are not.
        margin: Minimum distance of a reward from the threshold.

    Example:
        >>> label_desirable([0.9, 0.55, 0.1, None], threshold=0.5, margin=0.1)
        [True, None, False, None]
    """
    return [
        None if reward is None or reward == threshold or not abs(reward - threshold) >= margin else reward > threshold
        for reward in rewards
    ]


@dataclass(frozen=True)
class PreferenceData:
    """Preference data in TRL's format.

    Args:
        table: Columns ``prompt``, ``chosen``, ``rejected`` and their scores for DPO, or ``prompt``, ``completion``,
            ``label`` and ``score`` for KTO.
        source: Name of the table of completions.
        reward: Signature of the reward.
        trainer: ``dpo`` or ``kto``.
        rows: Number of completions.
        unscorable: Number of completions without a reward.
        preferences: The pairs by row, and the prompts without a pair.
        chosen: Number of chosen or desirable completions.
        rejected: Number of rejected or undesirable completions.
        mean_difference: Mean difference of the rewards of a pair.
        mean_words_chosen: Mean number of words of chosen completions.
        mean_words_rejected: Mean number of words of rejected completions.
        usage: What the judges of the reward have used, by what they do.
    """

    table: Table
    source: str
    reward: str
    trainer: str
    rows: int
    unscorable: int
    preferences: Preferences
    chosen: int
    rejected: int
    mean_difference: float | None
    mean_words_chosen: float | None
    mean_words_rejected: float | None
    usage: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {
            "version": __version__,
            "table": self.source,
            "reward": self.reward,
            "trainer": self.trainer,
            "rows": self.rows,
            "unscorable": self.unscorable,
            "prompts": self.preferences.prompts,
            "pairs": len(self.preferences.pairs),
            "prompts_without_pair": dict(self.preferences.declined),
            "chosen": self.chosen,
            "rejected": self.rejected,
            "mean_difference": self.mean_difference,
            "mean_words_chosen": self.mean_words_chosen,
            "mean_words_rejected": self.mean_words_rejected,
            **({"usage": dict(self.usage)} if self.usage else {}),
        }


def make_preferences(
    table: Table, reward: Reward, settings: PreferenceSettings | None = None, log: RunLog | None = None
) -> PreferenceData:
    """Turn a table of sampled completions into preference data.

    Args:
        table: Rows with a prompt, a completion and the columns that the reward reads; several rows per prompt.
        reward: The reward, which is fitted to the table.
        settings: Columns, format and choice of pairs.
        log: Receives warnings and progress. Default: Python warnings.

    Raises:
        SettingError: If a column to keep is already a column of the data.
        TableError: If a column does not exist.
        ValueError: If a prompt is missing, or no prompt has a preference.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> table = Table({
        ...     "prompt": ["Report the CT."] * 2,
        ...     "completion": ["Cardiomegaly.", "Normal chest."],
        ...     "reference": ["Cardiomegaly."] * 2,
        ... })
        >>> data = make_preferences(table, make_reward("crg", prior=0.2))
        >>> data.table.columns["chosen"], data.table.columns["rejected"]
        (['Cardiomegaly.'], ['Normal chest.'])
    """
    settings, log = settings or PreferenceSettings(), log or RunLog()
    for name in ("prompt_column", "completion_column", "group_column", "keep"):
        named = getattr(settings, name) or ()
        table.check_named(name, *([named] if isinstance(named, str) else named))
    prompts, completions = table.column(settings.prompt_column), table.texts(settings.completion_column)
    for row, prompt in enumerate(prompts):
        if not isinstance(prompt, str | list) or not prompt:
            raise ValueError(f"{table.where(row)}, column {settings.prompt_column!r}: must be a prompt, got none")
    usage = RunUsage({reward.__name__: reward.judges()})
    with usage.noted(log):
        rewards, counts = _rewards(reward, table, completions, settings, log)
    if failed := counts.failed.total():
        log.warn(
            f"the judge failed on {failed} of {len(completions)} completions ({by_kind(counts.failed)}); the first: "
            f"{counts.first_failure}"
        )
    groups = _groups(table, prompts, settings)
    preferences = pair_completions(groups, completions, rewards, margin=settings.margin, per_prompt=settings.per_prompt)
    labels = _labels(rewards, preferences, settings)
    columns = _columns(table, prompts, completions, rewards, preferences, labels, settings)
    if not next(iter(columns.values())):
        raise ValueError(
            f"no preference: of {preferences.prompts} prompts {preferences.declined['tied']} tie and "
            f"{preferences.declined['single']} have less than two completions with a reward; sample more completions, "
            "or lower `margin`"
        )
    chosen, rejected = (
        [completions[row] or "" for row, label in enumerate(labels) if label is side] for side in (True, False)
    )
    data = PreferenceData(
        table=Table(columns),
        source=table.source,
        reward=reward.signature,
        trainer=settings.trainer,
        rows=len(completions),
        unscorable=rewards.count(None),
        preferences=preferences,
        chosen=len(chosen),
        rejected=len(rejected),
        mean_difference=_mean([(rewards[best] or 0.0) - (rewards[worst] or 0.0) for best, worst in preferences.pairs]),
        mean_words_chosen=_mean([len(text.split()) for text in chosen]),
        mean_words_rejected=_mean([len(text.split()) for text in rejected]),
        usage=usage.to_dict(reward.__name__),
    )
    _warn(data, log)
    return data


def _rewards(
    reward: Reward, table: Table, completions: Sequence[str | None], settings: PreferenceSettings, log: RunLog
) -> tuple[list[float | None], PairCounts]:
    """Return the rewards of all completions, and the number of failures of a judge."""
    columns = reward_inputs(reward, table, settings.reference_column)
    reward.fit(**columns)
    rewards: list[float | None] = []
    counts = PairCounts()
    with log.progress("scoring") as progress, failures_counted():
        progress(0, len(completions))
        for start in range(0, len(completions), settings.batch_size):
            rows = slice(start, start + settings.batch_size)
            # A conversation without a reply is unscorable.
            batch: list[Completion] = [[] if completion is None else completion for completion in completions[rows]]
            scores = reward.score(batch, **{name: cells[rows] for name, cells in columns.items()})
            rewards += reward.rewards(scores)
            counts.add(scores)
            progress(len(scores), 0)
    return rewards, counts


def _groups(table: Table, prompts: Sequence[Any], settings: PreferenceSettings) -> list[str]:
    """Return a key of each row, which is equal for the completions of one prompt."""
    if settings.group_column is not None:
        return [json.dumps(cell, default=str) for cell in table.column(settings.group_column)]
    references = table.optional(settings.reference_column)
    return [json.dumps(row, default=str) for row in zip(prompts, references, strict=True)]


def _labels(
    rewards: Sequence[float | None], preferences: Preferences, settings: PreferenceSettings
) -> list[bool | None]:
    """Return KTO's labels: of every completion by a threshold, or of the completions in pairs."""
    if settings.threshold is not None:
        return label_desirable(rewards, settings.threshold, settings.margin)
    labels: list[bool | None] = [None] * len(rewards)
    for best, worst in preferences.pairs:
        labels[best], labels[worst] = True, False
    return labels


def _columns(
    table: Table,
    prompts: Sequence[Any],
    completions: Sequence[str | None],
    rewards: Sequence[float | None],
    preferences: Preferences,
    labels: Sequence[bool | None],
    settings: PreferenceSettings,
) -> dict[str, list[Any]]:
    prompts = [_prompt(prompt, settings) for prompt in prompts]
    replies = [_reply(text, prompt) for text, prompt in zip(completions, prompts, strict=True)]
    if settings.trainer == "dpo":
        rows, worst = ([pair[side] for pair in preferences.pairs] for side in (0, 1))
        columns = {
            "prompt": [prompts[row] for row in rows],
            "chosen": [replies[row] for row in rows],
            "rejected": [replies[row] for row in worst],
            "score_chosen": [rewards[row] for row in rows],
            "score_rejected": [rewards[row] for row in worst],
        }
    else:
        rows = [row for row, label in enumerate(labels) if label is not None]
        columns = {
            "prompt": [prompts[row] for row in rows],
            "completion": [replies[row] for row in rows],
            "label": [labels[row] for row in rows],
            "score": [rewards[row] for row in rows],
        }
    for name in settings.keep:
        if name in columns:
            raise SettingError("keep", f"{name!r} is already a column of the output")
        cells = table.column(name)
        columns[name] = [cells[row] for row in rows]
    return columns


def _prompt(prompt: Any, settings: PreferenceSettings) -> Any:
    if not isinstance(prompt, str) or not settings.conversational:
        return prompt
    system = [] if settings.system_prompt is None else [{"role": "system", "content": settings.system_prompt}]
    return [*system, {"role": "user", "content": prompt}]


def _reply(text: str | None, prompt: Any) -> Any:
    return text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _warn(data: PreferenceData, log: RunLog) -> None:
    """Warn about differences in length."""
    longer, shorter = data.mean_words_chosen, data.mean_words_rejected
    if longer and shorter and longer > _LONG * shorter:
        log.warn(
            f"chosen completions are {longer / shorter:.1f} times as long as rejected ones ({longer:.0f} and "
            f"{shorter:.0f} words): a policy may learn only to write longer reports"
        )
