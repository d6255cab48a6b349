"""A report as it is read before it is edited: its findings, and all the places that speak of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rrg_rewards.findings.comparisons import comparison_words
from rrg_rewards.findings.concepts import concept_graph
from rrg_rewards.findings.consolidate import abnormal_findings
from rrg_rewards.findings.edits import Replacement, Sentence, read_sentences
from rrg_rewards.findings.errors import ErrorEdit
from rrg_rewards.findings.extract import extract_findings
from rrg_rewards.findings.types import Finding

__all__ = ["Proposal", "Reading"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """An edit that may be made.

    Args:
        edit: What it does; its place in the candidate is not known yet.
        replacements: Of characters of the reference.
        shown: Characters of the reference that stand for the edit in the candidate once they are replaced; ``None``
            where nothing is left.
        target: Index of the reference's finding that it is about, if it is about one.
    """

    edit: ErrorEdit
    replacements: tuple[Replacement, ...]
    shown: tuple[int, int] | None = None
    target: int | None = None


class Reading:
    """What the finding engine reads in a report.

    Args:
        report: Report text.

    Example:
        >>> reading = Reading("Small effusion. Stable cardiomegaly.")
        >>> [finding.concept for finding in reading.findings], reading.comparing
        (['pleural_effusion', 'cardiomegaly'], {1})
    """

    def __init__(self, report: str) -> None:
        self.report = report
        self.mentions = extract_findings(report)
        self.findings = tuple(abnormal_findings(report, self.mentions))

    @cached_property
    def sentences(self) -> list[Sentence]:
        """Sentences in order, empty ones left out."""
        return read_sentences(self.report, self.mentions)

    @cached_property
    def comparing(self) -> set[int]:
        """Places in ``sentences`` of those that compare with an earlier examination."""
        words = comparison_words()
        return {i for i, sentence in enumerate(self.sentences) if words.compares(sentence.text)}

    @cached_property
    def groups(self) -> tuple[tuple[Finding, ...], ...]:
        """For each finding all mentions of it; none where it is not plain which they are, or that it is there."""
        return tuple(self._mentions_of(i) for i in range(len(self.findings)))

    def stands_alone(self, place: int) -> bool:
        """Whether no other finding may be the same thing by another name: an opacity and, later, a pneumonia."""
        graph, finding = concept_graph(), self.findings[place]
        return not any(
            graph.akin(first, second)
            for i, other in enumerate(self.findings)
            if i != place and other.concept != finding.concept
            for first in (finding.concept, *finding.alternatives)
            for second in (other.concept, *other.alternatives)
        )

    def _mentions_of(self, place: int) -> tuple[Finding, ...]:
        concept = self.findings[place].concept
        named = [mention for mention in self.mentions if mention.concept == concept]
        # "Small effusion ... near-complete resolution of the effusion": what is told both ways is not plain.
        if any(mention.presence != "present" for mention in named):
            return ()
        alike = [i for i, finding in enumerate(self.findings) if concept in (finding.concept, *finding.alternatives)]
        if len(alike) == 1:
            return tuple(named)
        if len(alike) == len(named) and all(not self.findings[i].alternatives for i in alike):
            return (named[alike.index(place)],)
        return ()

    def places_of(self, mentions: Sequence[Finding]) -> list[int]:
        """Places in ``sentences`` of the sentences that hold mentions, in order."""
        indices = {mention.sentence for mention in mentions}
        return [i for i, sentence in enumerate(self.sentences) if sentence.index in indices]

    def compared_next(self, place: int) -> bool:
        """Whether a sentence without findings after this one compares: "Decreased from before"."""
        following = self.follows(place)
        return following is not None and place + 1 in self.comparing and not following.mentions

    def follows(self, place: int) -> Sentence | None:
        """The sentence after one."""
        return self.sentences[place + 1] if place + 1 < len(self.sentences) else None
