"""The check of sentences and reports that a policy learns to write for many patients."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rrg_rewards.watch.checks import Check, RunView, Verdict
from rrg_rewards.watch.counts import Block
from rrg_rewards.watch.statistics import Estimate, estimate, upper_tail

__all__ = ["NewSentences"]


@dataclass(frozen=True)
class NewSentences(Check):
    r"""A check for a sentence or a whole report that many patients get, but neither at the start nor in the references.

    Let :math:`w` be the share of the latest reports that contain the sentence, :math:`b` that of the first reports and
    :math:`r` that of the references of the latest reports. The alarm is raised if :math:`w > \max(b, r) + m`,
    significantly. A whole report counts as one sentence. Numbers are not compared. The watch stores hashes of sentences
    and cannot name them.

    Args:
        margin: :math:`m`, in (0, 1).
        name: Name of the check.

    Raises:
        ValueError: If ``margin`` is out of range.
    """

    margin: float = 0.07
    name: str = "new_sentences"

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise ValueError(f"{self.name}: margin must be in (0, 1), got {self.margin}")

    def __call__(self, run: RunView, step: int) -> Iterator[Verdict]:
        """Yield one verdict: that of the sentence that rose most."""
        verdicts = [
            verdict
            for name in run.names("completions/sentences/*")
            if (verdict := self._verdict(run, name.rpartition("/")[2], step)) is not None
        ]
        if verdicts:
            yield max(verdicts, key=lambda verdict: (verdict.fired, verdict.severity))

    def _verdict(self, run: RunView, sentence: str, step: int) -> Verdict | None:
        now = _share(run.window, "completions", sentence)
        start = _share(run.baseline, "completions", sentence)
        if now is None or start is None:
            return None
        reference = _share(run.window, "references", sentence)
        bound = max((side for side in (start, reference) if side is not None), key=lambda side: side.mean)
        chance = upper_tail(now, bound, offset=self.margin)
        severity = (now.mean - bound.mean) / self.margin
        numbers = {"now": now.mean, "start": start.mean, "limit": bound.mean + self.margin, "p": chance}
        numbers |= {} if reference is None else {"references": reference.mean}
        message = (
            f"share of reports that contain one sentence: {now.mean:.3g}, {start.mean:.3g} at the start"
            + ("" if reference is None else f", {reference.mean:.3g} in references")
            + f"; limit {bound.mean + self.margin:.3g}, p = {chance:.1g}"
        )
        return Verdict(self.name, "", chance < run.alpha and severity > 1, severity, step, numbers, message)


def _share(blocks: Sequence[Block], side: str, sentence: str) -> Estimate | None:
    """Return the share of the reports that contain a sentence; blocks that do not list it contain it nowhere."""
    name = f"{side}/sentences/{sentence}"
    counted = [
        Block(block.step, block.reports, {name: (block.ratio(name)[0], block.ratio(f"{side}/words")[1])})
        for block in blocks
    ]
    return estimate(counted, name, share=True)
