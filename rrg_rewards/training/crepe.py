"""Training of CREPE: error counts of report pairs, by category."""

from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from rrg_rewards.metrics.count_agreement import CountAgreement
from rrg_rewards.models.crepe import CrepeModel
from rrg_rewards.models.crepe_encoding import PairEncoder
from rrg_rewards.training.base import LearnedMetricModule, ScheduleName
from rrg_rewards.training.base_data import SIDES, LearnedMetricData
from rrg_rewards.training.pairs import TokenizedPairs, load_tokenizer
from rrg_rewards.training.sampling import LengthGroupedBatches, LengthSortedBatches
from rrg_rewards.training.sources import RecordSource, read_sources
from rrg_rewards.training.splits import split_by_reference

__all__ = ["CrepeDataModule", "CrepeModule"]

_TERMS = ("loss", "regression", "presence")


class CrepeModule(LearnedMetricModule):
    """Trains :class:`~rrg_rewards.models.CrepeModel` on records of error counts.

    Logged at each validation, over all processes: ``train/loss``, ``train/regression`` and ``train/presence`` since the
    last one, the same under ``val/``, ``val/tau`` (Kendall's tau of predicted and true total counts),
    ``val/tau_<source>`` for each source of records, ``val/mae_<category>`` and ``val/mae``. In ``trainer.test`` the
    same under ``test/``, and ``test_counts`` holds predicted and true counts by source.

    The paper names neither learning rate, weight decay nor warm-up ratio, which it searched for; the defaults are
    usual ones for a BERT of base size.

    Args:
        encoder: Folder or Hub id of the encoder that training starts from.
        revision: Revision of a Hub id.
        presence_loss_weight: Share of the presence loss, 0.5 as published.
        use_poisson_loss: Regress counts by Poisson likelihood.
        learning_rate: Highest learning rate.
        weight_decay: Decay of weights; biases and norms have none.
        warmup_ratio: Share of the steps over which the learning rate rises.
        schedule: ``linear`` or ``cosine``, which fall to 0 at the last step, or ``constant``.
        seed: Seed of the heads' first weights and of dropout.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> CrepeModule("microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract").schedule
        'linear'
    """

    # Metrics by stage, and by stage and source.
    terms: Any
    agreement: Any
    by_source: Any

    def __init__(
        self,
        encoder: str,
        revision: str | None = None,
        presence_loss_weight: float = 0.5,
        use_poisson_loss: bool = False,
        learning_rate: float = 3e-5,
        weight_decay: float = 0.01,
        warmup_ratio: float = 0.1,
        schedule: ScheduleName = "linear",
        seed: int = 0,
    ) -> None:
        super().__init__(learning_rate, weight_decay, warmup_ratio, schedule, seed)
        if not 0 <= presence_loss_weight <= 1:
            raise ValueError(f"presence_loss_weight must lie in [0, 1], got {presence_loss_weight}")
        self.encoder = encoder
        self.revision = revision
        self.presence_loss_weight = presence_loss_weight
        self.use_poisson_loss = use_poisson_loss
        self.test_counts: dict[str, tuple[Tensor, Tensor]] = {}

    def build_model(self) -> nn.Module:
        """The encoder with new heads, its dropout at work."""
        model: nn.Module = CrepeModel.from_encoder(
            self.encoder,
            revision=self.revision,
            presence_loss_weight=self.presence_loss_weight,
            use_poisson_loss=self.use_poisson_loss,
        )
        return model.train()

    def configure_model(self) -> None:
        """Make the model and the metrics, once."""
        built = self.model is not None
        super().configure_model()
        if not built:
            categories = self.model.config.error_categories
            names = self.trainer.datamodule.source_names
            self.terms = nn.ModuleDict({stage: _new_terms() for stage in ("fit", "val", "test")})
            self.agreement = nn.ModuleDict({stage: CountAgreement(categories) for stage in ("val", "test")})
            self.by_source = nn.ModuleDict(
                {stage: nn.ModuleList(CountAgreement(categories) for _ in names) for stage in ("val", "test")}
            )
            self.source_names = names

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:  # noqa: ARG002 (Lightning's)
        """The dual loss of a batch."""
        loss: Tensor = self._forward(batch, "fit").loss
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Add a batch to what is logged of a validation."""
        self._evaluate(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Add a batch to what is logged of a test."""
        self._evaluate(batch, "test")

    def on_validation_epoch_end(self) -> None:
        """Log what was learned and validated since the last time."""
        if self.trainer.sanity_checking:
            self._reset("val")
        else:
            self._log_terms("fit", "train")
            self._log_stage("val")

    def on_test_epoch_end(self) -> None:
        """Keep the counts, and log what was tested."""
        metrics = zip(self.source_names, self.by_source["test"], strict=True)
        self.test_counts = {name: metric.counts() for name, metric in metrics}
        self._log_stage("test")

    def _forward(self, batch: dict[str, Tensor], stage: str) -> Any:
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in batch}
        output = self.model(**inputs, labels=batch["labels"])
        for name, metric in self.terms[stage].items():
            value = getattr(output.loss_terms, name)
            if value is not None:
                # By the counts that are annotated, over which a batch's terms are means.
                metric.update(value.float(), weight=(~batch["labels"].isnan()).sum())
        return output

    def _evaluate(self, batch: dict[str, Tensor], stage: str) -> None:
        counts = self._forward(batch, stage).counts
        self.agreement[stage].update(counts, batch["labels"])
        for place, metric in enumerate(self.by_source[stage]):
            chosen = batch["source"] == place
            metric.update(counts[chosen], batch["labels"][chosen])

    def _log_stage(self, stage: str) -> None:
        self._log_terms(stage, stage)
        agreement = self.agreement[stage]
        # The object and not its value: Lightning calls compute, which reduces the states, and resets it.
        self.log(f"{stage}/tau", agreement, prog_bar=True, metric_attribute=f"agreement.{stage}")
        self.log_values((f"{stage}/{name}", value) for name, value in agreement.statistics().items())
        for place, (name, metric) in enumerate(zip(self.source_names, self.by_source[stage], strict=True)):
            self.log(f"{stage}/tau_{name}", metric, metric_attribute=f"by_source.{stage}.{place}")

    def _log_terms(self, stage: str, prefix: str) -> None:
        for name, metric in self.terms[stage].items():
            if name != "presence" or self.model.config.use_presence_loss:
                self.log(f"{prefix}/{name}", metric, metric_attribute=f"terms.{stage}.{name}")

    def _reset(self, stage: str) -> None:
        for metric in (*self.terms[stage].values(), self.agreement[stage], *self.by_source[stage]):
            metric.reset()


def _new_terms() -> nn.ModuleDict:
    return nn.ModuleDict({name: MeanMetric() for name in _TERMS})


class CrepeDataModule(LearnedMetricData):
    """Records of error counts, split by reference report, tokenised once and batched by length.

    Every process reads the sources and gets the same records; each trains and evaluates its share.

    Args:
        sources: Where records come from.
        tokenizer: Folder or Hub id of the tokenizer: that of the encoder.
        revision: Revision of a Hub id.
        max_length: Tokens of a pair at most, 512 as published.
        batch_size: Pairs of a step, over all processes.
        eval_batch_size: Pairs evaluated at once on a process.
        validation_fraction: Expected share of references that choose the checkpoint, 0.1 as published.
        test_fraction: Expected share of references that the report is about.
        split_seed: Seed of the split.
        seed: Seed of the order of pairs.
        num_workers: Processes that load pairs; they are in memory already, so that 0 is fast.

    Raises:
        ValueError: If there is no source, or two have the same name; in ``setup``, if a side of the split is empty.

    Example:
        >>> from rrg_rewards.training import CrepeDataModule, JsonlRecords
        >>> data = CrepeDataModule([JsonlRecords("errors.jsonl")], tokenizer="bert-base-uncased")
        >>> [source.name for source in data.sources]
        ['errors']
    """

    def __init__(
        self,
        sources: list[RecordSource],
        tokenizer: str,
        revision: str | None = None,
        max_length: int = 512,
        batch_size: int = 64,
        eval_batch_size: int = 64,
        validation_fraction: float = 0.1,
        test_fraction: float = 0.1,
        split_seed: int = 0,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            sources,
            tokenizer,
            revision,
            max_length,
            batch_size,
            eval_batch_size,
            validation_fraction,
            test_fraction,
            split_seed,
            seed,
            num_workers,
        )
        self.sources = sources
        self.pairs: dict[str, TokenizedPairs] = {}

    def setup(self, stage: str | None = None) -> None:  # noqa: ARG002 (Lightning's)
        """Read, split and tokenise the records, once."""
        if self.pairs:
            return
        self.tokenizer = load_tokenizer(self.tokenizer_name, self.revision)
        records = read_sources(self.sources)
        self.split = split_by_reference(records, self.validation_fraction, self.test_fraction, self.split_seed)
        encode = PairEncoder(self.tokenizer, self.max_length)
        for side in SIDES:
            self.pairs[side] = TokenizedPairs(self.chosen(side, len(records)), self.source_names, encode)

    def train_dataloader(self) -> DataLoader[Any]:
        """Shuffled batches of about the same length, the same steps whatever the number of processes."""
        pairs = self.pairs["train"]
        return self.loader(pairs, LengthGroupedBatches(pairs.lengths, self.batch_size, self.seed))

    def val_dataloader(self) -> DataLoader[Any]:
        """Every pair of the validation once."""
        return self._loader_of_all("validation")

    def test_dataloader(self) -> DataLoader[Any]:
        """Every pair of the test once."""
        return self._loader_of_all("test")

    def _loader_of_all(self, side: str) -> DataLoader[Any]:
        pairs = self.pairs[side]
        return self.loader(pairs, LengthSortedBatches(pairs.lengths, self.eval_batch_size))

    def mean_counts(self) -> Tensor:
        """Mean true count of each category in training, ``(C,)``: what a model that reads nothing would predict."""
        return self.pairs["train"].labels.double().nanmean(0)

    def describe(self) -> dict[str, Any]:
        """Numbers of records by side and source, and of those left out."""
        return {**{side: pairs.describe() for side, pairs in self.pairs.items()}, **self.left_out()}
