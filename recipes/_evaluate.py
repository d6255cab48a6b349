"""Held-out evaluation: greedy reports, their corpus statistics, and bootstrap intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import BatchEncoding, GenerationConfig, ProcessorMixin
from trl import prepare_multimodal_messages
from trl.models.utils import unwrap_model_for_generation

from rrg_rewards.functional import (
    LabelCounts,
    crg_macro_score_from_counts,
    crg_score_from_counts,
)
from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.metrics import FineBenchScores, LabelScores, Scores
from rrg_rewards.rewards import Reward

__all__ = [
    "Evaluation",
    "GreedyPolicy",
    "change",
    "evaluate_reports",
    "format_summary",
    "greedy_reports",
    "with_images_of_others",
]

_Statistic = Callable[..., Tensor]
_NUM_RESAMPLES = 1000

# Each statistic is a function of the column sums of `Evaluation.per_report`. Columns 0 to 2 are the score, the number
# of reports and the number of words. If the metric counts labels, columns 3 to 6 are tp, fn, fp and tn. For
# CT-FineBench, each part of the score has two more columns: its value, and the number of reports that have a value.
# For CRG with average="macro", the last columns are tp, fn, fp and tn of each label.
_OF_SCORES: dict[str, _Statistic] = {
    "score": lambda sums: sums[0] / sums[1],
    "words": lambda sums: sums[2] / sums[1],
}
_OF_LABELS: dict[str, _Statistic] = {
    "crg": lambda sums: crg_score_from_counts(*sums[3:7]),
    "precision": lambda sums: sums[3] / (sums[3] + sums[5]),
    "recall": lambda sums: sums[3] / (sums[3] + sums[4]),
    "predicted_positives": lambda sums: (sums[3] + sums[5]) / sums[1],
}


@dataclass(frozen=True)
class Evaluation:
    """Reports generated for held-out rows, and the numbers from which corpus statistics are computed.

    Args:
        reports: ``N`` reports.
        per_report: For each reward, a tensor of shape ``(N, K)`` whose columns are summed; NaN for unscorable reports.
        parts: Names of the parts of the score, for each CT-FineBench reward.
        floors: ``min_prevalence`` of each CRG reward with ``average="macro"``.
    """

    reports: list[str]
    per_report: dict[str, Tensor]
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    floors: dict[str, float] = field(default_factory=dict)

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return for each reward its statistics with bootstrap intervals and the number of unscorable reports."""
        summaries = {}
        for name, rows in self.per_report.items():
            scored = ~rows.isnan().any(dim=1)
            summaries[name] = {**_intervals(self.statistics(name), rows[scored]), "unscorable": int((~scored).sum())}
        return summaries

    def statistics(self, name: str) -> dict[str, _Statistic]:
        """Return the statistics of a reward, as functions of the column sums."""
        if name in self.parts:
            of_parts = {part: _mean_of(3 + 2 * index) for index, part in enumerate(self.parts[name])}
            return {**_OF_SCORES, **of_parts}
        if name in self.floors:
            macro = {"crg": _macro_crg(self.floors[name]), "crg_micro": _OF_LABELS["crg"]}
            return {**_OF_SCORES, **macro, **{key: of for key, of in _OF_LABELS.items() if key != "crg"}}
        return {**_OF_SCORES, **(_OF_LABELS if self.per_report[name].shape[1] > 3 else {})}


def _mean_of(column: int) -> _Statistic:
    return lambda sums: sums[column] / sums[column + 1]


def _macro_crg(min_prevalence: float) -> _Statistic:
    return lambda sums: crg_macro_score_from_counts(LabelCounts(*sums[7:].chunk(4)), min_prevalence)


def _intervals(statistics: Mapping[str, _Statistic], *columns: Tensor) -> dict[str, dict[str, float]]:
    """Return the estimate and bootstrap interval of each statistic, all from the same draws."""
    intervals = {}
    for name, statistic in statistics.items():
        of_rows = _of_sums(statistic)
        low, high = bootstrap_interval(of_rows, columns, _NUM_RESAMPLES)
        intervals[name] = {"estimate": float(of_rows(*columns)), "low": low, "high": high}
    return intervals


def _of_sums(statistic: _Statistic) -> _Statistic:
    return lambda *columns: statistic(*(column.sum(0) for column in columns))


def change(before: Evaluation, after: Evaluation) -> dict[str, dict[str, dict[str, float]]]:
    """Return for each reward the differences between two evaluations of the same rows, with paired intervals."""
    changes = {}
    for name, rows in before.per_report.items():
        scored = ~torch.cat([rows, after.per_report[name]], dim=1).isnan().any(dim=1)
        statistics = {key: _difference(statistic) for key, statistic in before.statistics(name).items()}
        changes[name] = _intervals(statistics, rows[scored], after.per_report[name][scored])
    return changes


def _difference(statistic: _Statistic) -> _Statistic:
    return lambda before, after: statistic(after) - statistic(before)


def evaluate_reports(reports: list[str], rewards: Sequence[Reward], rows: Any) -> Evaluation:
    """Score the reports generated for held-out rows with the metric of each reward.

    Args:
        reports: One report per row.
        rewards: Fitted rewards.
        rows: Held-out rows.
    """
    columns = {column: list(rows[column]) for column in rows.column_names}
    scores = {reward.__name__: reward.score(reports, **columns) for reward in rewards}
    per_report = {name: _per_report(one, reports) for name, one in scores.items()}
    parts = {name: tuple(one.details) for name, one in scores.items() if isinstance(one, FineBenchScores)}
    labelled = {name: one for name, one in scores.items() if isinstance(one, LabelScores)}
    floors = {name: one.min_prevalence for name, one in labelled.items() if one.average == "macro"}
    return Evaluation(reports, per_report, parts, floors)


def format_summary(summary: Mapping[str, Any]) -> str:
    """Format the summary of a reward as one line.

    Example:
        >>> format_summary({"crg": {"estimate": 0.5, "low": 0.4, "high": 0.6}, "unscorable": 0})
        'crg 0.500 (0.400 to 0.600), unscorable 0'
    """
    parts = [
        f"{name} {value['estimate']:.3f} ({value['low']:.3f} to {value['high']:.3f})"
        if isinstance(value, Mapping)
        else f"{name} {value}"
        for name, value in summary.items()
    ]
    return ", ".join(part.replace("_", " ") for part in parts)


def with_images_of_others(rows: Any) -> Any:
    """Return the rows with each image replaced by that of the next row."""
    images = list(rows["image"])
    return rows.remove_columns("image").add_column("image", images[1:] + images[:1])


def _per_report(scores: Scores, reports: Sequence[str]) -> Tensor:
    words = torch.tensor([len(report.split()) for report in reports], dtype=torch.float64)
    columns = [scores.value.double(), torch.ones_like(words), words]
    if isinstance(scores, LabelScores):
        preds, target = scores.preds, scores.target
        cells = torch.stack([preds & target, ~preds & target, preds & ~target, ~preds & ~target], dim=1).double()
        columns += [*cells.sum(2).T]
        if scores.average == "macro":
            columns += [*cells.flatten(1).T]
    elif isinstance(scores, FineBenchScores):
        # A part is NaN if the report has no question that belongs to it.
        for part in scores.details.values():
            columns += [part.nan_to_num(0.0), (~part.isnan()).double()]
    return torch.stack(columns, dim=1)


@dataclass(frozen=True)
class GreedyPolicy:
    """A policy in training, and the settings with which it writes reports by greedy decoding.

    Args:
        model: The model, which may be wrapped by accelerate.
        processor: Tokenizer or processor of the model.
        accelerator: Accelerator of the run.
        max_new_tokens: Maximum length of a report in tokens.
        end_token_ids: Ids of the end-of-sequence tokens.
        template_options: Further arguments of the chat template.
    """

    model: Any
    processor: Any
    accelerator: Any
    max_new_tokens: int
    end_token_ids: list[int]
    template_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_trainer(cls, trainer: Any) -> "GreedyPolicy":
        """Return the current policy of one of TRL's online trainers, which may wrap its model anew in training."""
        args = trainer.args
        return cls(
            trainer.model_wrapped,
            trainer.processing_class,
            trainer.accelerator,
            args.max_completion_length,
            trainer.eos_token_ids,
            args.chat_template_kwargs or {},
        )


def greedy_reports(policy: GreedyPolicy, rows: Any, batch_size: int) -> list[str]:
    """Generate a report for each row by greedy decoding.

    Every process must call this function. Each generates a share of the reports, and all return the same list.

    Args:
        policy: The policy.
        rows: Held-out rows.
        batch_size: Number of reports that a process generates in a batch.
    """
    accelerator = policy.accelerator
    mine = range(accelerator.process_index, len(rows), accelerator.num_processes)
    with unwrap_model_for_generation(policy.model, accelerator) as model, torch.inference_mode():
        training = model.training
        model.eval()
        texts = []
        for start in range(0, len(mine), batch_size):
            texts += _complete(policy, model, [rows[row] for row in mine[start : start + batch_size]])
        model.train(training)
    gathered = dict(gather_object(list(zip(mine, texts, strict=True))))
    return [gathered[row] for row in range(len(rows))]


def _complete(policy: GreedyPolicy, model: Any, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    processor = policy.processor
    tokenizer = processor.tokenizer if isinstance(processor, ProcessorMixin) else processor
    inputs = _inputs(policy, rows).to(policy.accelerator.device)
    config = GenerationConfig(
        do_sample=False,
        # Settings of the model would replace these two.
        num_beams=1,
        repetition_penalty=1.0,
        max_new_tokens=policy.max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=policy.end_token_ids,
    )
    output = model.generate(
        **inputs,
        generation_config=config,
        # The weights are already gathered, and the number of batches may differ between processes.
        synced_gpus=False,
    )
    texts: list[str] = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


def _inputs(policy: GreedyPolicy, rows: Sequence[Mapping[str, Any]]) -> Any:
    processor = policy.processor
    prompts = [row["prompt"] for row in rows]
    images = [[] if row.get("image") is None else [row["image"]] for row in rows]
    with_images = {"images": images} if any(images) else {}
    conversational = not isinstance(prompts[0], str)
    if conversational and isinstance(processor, ProcessorMixin):
        prompts = [prepare_multimodal_messages(*pair) for pair in zip(prompts, images, strict=True)]
    if conversational:
        prompts = [
            processor.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **policy.template_options)
            for prompt in prompts
        ]
    # Chat templates already add special tokens. Padding on the right would separate the prompt from its completion.
    inputs = processor(
        text=prompts,
        padding=True,
        padding_side="left",
        add_special_tokens=not conversational,
        return_tensors="pt",
        **with_images,
    )
    # Some tokenizers also return inputs that their models do not accept.
    return inputs if with_images else BatchEncoding({key: inputs[key] for key in ("input_ids", "attention_mask")})
