"""Held-out evaluation: greedy reports, their corpus statistics, and bootstrap intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import BatchEncoding, GenerationConfig, ProcessorMixin
from trl import prepare_multimodal_messages
from trl.models.utils import unwrap_model_for_generation

from rrg_rewards.functional.bootstrap import bootstrap_intervals
from rrg_rewards.metrics import FineBenchScores, LabelScores, Scores
from rrg_rewards.rewards import Reward

_Statistic = Callable[..., Tensor]
_NUM_RESAMPLES = 1000


@dataclass(frozen=True)
class Evaluation:
    """Reports generated for held-out rows, and their scores.

    Args:
        reports: ``N`` reports.
        scores: Scores of the reports, by name of the reward.
    """

    reports: list[str]
    scores: dict[str, Scores]

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return for each reward its statistics with bootstrap intervals and the number of unscorable reports."""
        return {
            name: {
                **_intervals(_statistics(scores), self.columns(name, scores.scored)),
                "unscorable": int((~scores.scored).sum()),
            }
            for name, scores in self.scores.items()
        }

    def estimates(self) -> dict[str, dict[str, float | None]]:
        """Return for each reward its statistics, without intervals, and the number of unscorable reports.

        A statistic without a scored report is ``None``, which loggers accept, unlike NaN.
        """
        found = {}
        for name, scores in self.scores.items():
            columns = self.columns(name, scores.scored)
            values = {key: float(statistic(*columns)) for key, statistic in _statistics(scores).items()}
            found[name] = {key: None if isnan(value) else value for key, value in values.items()}
            found[name]["unscorable"] = float((~scores.scored).sum())
        return found

    def columns(self, name: str, chosen: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments of the statistics of a reward, each with a row for each chosen report.

        Args:
            name: Name of the reward.
            chosen: ``(N,)`` bool, true for scored reports only.

        Returns:
            Scores and numbers of words; for CRG also the counts of labels, for CT-FineBench the parts of the score.
        """
        scores = self.scores[name].take(chosen.nonzero().flatten())
        words = torch.tensor([len(report.split()) for report in self.reports], dtype=torch.float64)[chosen]
        further: Sequence[Tensor] = ()
        if isinstance(scores, LabelScores):
            further = scores.sufficient_statistics
        elif isinstance(scores, FineBenchScores):
            further = tuple(scores.details.values())
        return scores.value.double(), words, *further


def change(before: Evaluation, after: Evaluation) -> dict[str, dict[str, dict[str, float]]]:
    """Return for each reward the differences between two evaluations of the same rows, with paired intervals."""
    changes = {}
    for name, scores in before.scores.items():
        chosen = scores.scored & after.scores[name].scored
        columns = (*before.columns(name, chosen), *after.columns(name, chosen))
        statistics = {key: _difference(statistic) for key, statistic in _statistics(scores).items()}
        changes[name] = _intervals(statistics, columns)
    return changes


def _statistics(scores: Scores) -> dict[str, _Statistic]:
    """Return the statistics of a reward as functions of :meth:`Evaluation.columns`."""
    statistics = {"score": _mean_of(0), "words": _mean_of(1)}
    if isinstance(scores, LabelScores):
        # The columns 2 to 4 are true positives, false negatives and false positives.
        statistics["crg"] = lambda *columns: scores.aggregate(*columns[2:])
        if scores.average == "macro":
            micro = replace(scores, average="micro", levels=(), widths=())
            statistics["crg_micro"] = lambda *columns: micro.aggregate(*(counts.sum(1) for counts in columns[2:]))
        statistics["precision"] = _share_of(2, (2, 4))
        statistics["recall"] = _share_of(2, (2, 3))
        # 2 TP / (2 TP + FN + FP).
        statistics["label_f1"] = lambda *columns: 2 * _share_of(2, (2, 2, 3, 4))(*columns)
        statistics["predicted_positives"] = lambda *columns: (
            sum(columns[index].double().sum() for index in (2, 4)) / len(columns[0])
        )
    elif isinstance(scores, FineBenchScores):
        # A part is NaN if the report has no question that belongs to it.
        statistics |= {part: _mean_of(2 + index) for index, part in enumerate(scores.details)}
    return statistics


def _mean_of(column: int) -> _Statistic:
    return lambda *columns: columns[column].nanmean()


def _share_of(column: int, among: Sequence[int]) -> _Statistic:
    return lambda *columns: columns[column].double().sum() / sum(columns[other].double().sum() for other in among)


def _difference(statistic: _Statistic) -> _Statistic:
    def difference(*columns: Tensor) -> Tensor:
        half = len(columns) // 2
        return statistic(*columns[half:]) - statistic(*columns[:half])

    return difference


def _intervals(statistics: Mapping[str, _Statistic], columns: Sequence[Tensor]) -> dict[str, dict[str, float]]:
    """Return the estimate and bootstrap interval of each statistic, all from the same draws."""
    ends = bootstrap_intervals([*statistics.values()], columns, _NUM_RESAMPLES)
    return {
        name: {"estimate": float(statistic(*columns)), "low": low, "high": high}
        for (name, statistic), (low, high) in zip(statistics.items(), ends, strict=True)
    }


def evaluate_reports(reports: list[str], rewards: Sequence[Reward], rows: Any) -> Evaluation:
    """Score the reports generated for held-out rows with the metric of each reward.

    Args:
        reports: One report per row.
        rewards: Fitted rewards.
        rows: Held-out rows.
    """
    columns = {"prompts" if column == "prompt" else column: list(rows[column]) for column in rows.column_names}
    return Evaluation(reports, {reward.__name__: reward.score(reports, **columns) for reward in rewards})


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
