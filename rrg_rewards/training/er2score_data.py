"""Data of ER²Score's training: graded reports, and pairs of those that have one reference."""

from typing import Any

from torch.utils.data import DataLoader

from rrg_rewards.data.graded_pairs import graded_pairs
from rrg_rewards.models.er2score_encoding import PromptEncoder
from rrg_rewards.models.er2score_prompt import PromptTemplate, default_prompt
from rrg_rewards.schemas.scoring import ScoringSystem, get_scoring_system
from rrg_rewards.training.base_data import LearnedMetricData
from rrg_rewards.training.graded import TokenizedPreferences, TokenizedReports
from rrg_rewards.training.pairs import load_tokenizer
from rrg_rewards.training.sampling import LengthGroupedBatches, LengthSortedBatches
from rrg_rewards.training.sources import ReportSource, read_graded
from rrg_rewards.training.splits import split_by_reference

__all__ = ["ER2ScoreDataModule"]


class ER2ScoreDataModule(LearnedMetricData):
    """Graded reports, split by reference, and in training all pairs of a reference's candidates with unequal totals.

    A batch is of pairs, those of a reference together: each report of a batch is read once, however many pairs it is
    in, and what candidates of a reference have in common is read once. Validation and test are of reports, each once;
    their pairs are made of what was predicted.

    Every process reads the sources and gets the same reports; each trains and evaluates its share.

    Args:
        sources: Where reports come from: files of graded reports, or records of error counts, which the scoring system
            makes sub-scores of.
        tokenizer: Folder or Hub id of the tokenizer: that of the backbone.
        revision: Revision of a Hub id.
        scoring_system: Name of a scoring system, or the path of its YAML file.
        prompt: Text of the prompt's template; default: the package's.
        max_length: Tokens of a prompt at most.
        batch_size: Pairs of a step, over all processes.
        eval_batch_size: Reports evaluated at once on a process.
        min_margin: How much higher the accepted report's total must be at least, to train on a pair.
        max_pairs: Train on at most so many pairs of a reference; default: all.
        validation_fraction: Expected share of references that choose the checkpoint.
        test_fraction: Expected share of references that the report is about.
        split_seed: Seed of the split.
        seed: Seed of the order of pairs.
        num_workers: Processes that load pairs; they are in memory already, so that 0 is fast.

    Raises:
        ValueError: If there is no source, two have the same name, or the prompt is none; in ``setup``, if a side of the
            split is empty or there is no pair to train on.

    Example:
        >>> from rrg_rewards.training import ER2ScoreDataModule, GradedReports
        >>> data = ER2ScoreDataModule([GradedReports("graded.jsonl")], tokenizer="HuggingFaceTB/SmolLM2-135M")
        >>> data.source_names, data.system.names[0]
        (('graded',), 'false_finding')
    """

    def __init__(
        self,
        sources: list[ReportSource],
        tokenizer: str,
        revision: str | None = None,
        scoring_system: str = "radcliq",
        prompt: str | None = None,
        max_length: int = 2048,
        batch_size: int = 32,
        eval_batch_size: int = 64,
        min_margin: float = 0.0,
        max_pairs: int | None = None,
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
        self.system: ScoringSystem = get_scoring_system(scoring_system)
        self.template = PromptTemplate(default_prompt() if prompt is None else prompt)
        self.min_margin = min_margin
        self.max_pairs = max_pairs
        self.preferences: TokenizedPreferences | None = None
        self.reports: dict[str, TokenizedReports] = {}

    def setup(self, stage: str | None = None) -> None:  # noqa: ARG002 (Lightning's)
        """Read, split, pair and tokenise the reports, once."""
        if self.preferences is not None:
            return
        self.tokenizer = load_tokenizer(self.tokenizer_name, self.revision)
        graded = read_graded(self.sources, self.system)
        self.split = split_by_reference(graded, self.validation_fraction, self.test_fraction, self.split_seed)
        encode = PromptEncoder(self.tokenizer, self.template.with_criteria(self.system), self.max_length)
        for side in ("validation", "test"):
            chosen = self.chosen(side, len(graded))
            self.reports[side] = TokenizedReports(chosen, self.system, self.source_names, encode)
        train = self.chosen("train", len(graded))
        pairs = graded_pairs(train, self.system, min_margin=self.min_margin, max_per_reference=self.max_pairs)
        if not pairs.pairs:
            raise ValueError(
                f"no pair among {len(train)} reports to train on: give several candidates of a reference, of totals "
                f"that differ ({pairs.ties} pairs are tied)"
            )
        # What is in no pair is trained on by nothing.
        used = {(pair.reference, text) for pair in pairs.pairs for text in (pair.accepted, pair.rejected)}
        kept = [report for report in train if (report.reference, report.candidate) in used]
        self.preferences = TokenizedPreferences(TokenizedReports(kept, self.system, self.source_names, encode), pairs)

    def train_dataloader(self) -> DataLoader[Any]:
        """Shuffled batches of about the same length, the same steps whatever the number of processes."""
        pairs = self.preferences
        assert pairs is not None
        batches = LengthGroupedBatches(pairs.lengths, self.batch_size, self.seed, together=pairs.together)
        return self.loader(pairs, batches)

    def val_dataloader(self) -> DataLoader[Any]:
        """Every report of the validation once."""
        return self._loader_of_all("validation")

    def test_dataloader(self) -> DataLoader[Any]:
        """Every report of the test once."""
        return self._loader_of_all("test")

    def _loader_of_all(self, side: str) -> DataLoader[Any]:
        reports = self.reports[side]
        return self.loader(reports, LengthSortedBatches(reports.lengths.tolist(), self.eval_batch_size))

    def describe(self) -> dict[str, Any]:
        """Numbers of reports and pairs by side and source, and of those left out."""
        left_out = self.left_out()
        assert self.preferences is not None
        held_out = {side: reports.describe() for side, reports in self.reports.items()}
        return {"train": self.preferences.describe(), **held_out, **left_out}
