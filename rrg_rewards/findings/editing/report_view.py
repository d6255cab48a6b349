"""The findings of a report, the sentences that mention them, and those that compare with a prior study."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

from rrg_rewards.findings.editing.injected_report import ErrorEdit
from rrg_rewards.findings.editing.text_edits import Replacement, Sentence, read_sentences
from rrg_rewards.findings.knowledge.concepts import concept_graph
from rrg_rewards.findings.knowledge.load import expand, load_knowledge, word_pattern
from rrg_rewards.findings.reading.engine import extract_findings
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.findings.reading.merge_mentions import abnormal_findings


@dataclass(frozen=True, slots=True)
class Proposal:
    """An edit that can be applied.

    Args:
        edit: Description of the edit, without its span in the candidate.
        replacements: Replacements of characters of the reference.
        shown: Span in the reference whose replacement is the span of the edit in the candidate; ``None`` if nothing
            remains there.
        target: Index of the reference's finding that the edit changes, if any.
    """

    edit: ErrorEdit
    replacements: tuple[Replacement, ...]
    shown: tuple[int, int] | None = None
    target: int | None = None


class ReportView:
    """Findings and sentences that the finding engine reads in a report.

    Args:
        report: Report text.

    Example:
        >>> view = ReportView("Small effusion. Stable cardiomegaly.")
        >>> [finding.concept for finding in view.findings], view.comparing
        (['pleural_effusion', 'cardiomegaly'], {1})
    """

    def __init__(self, report: str) -> None:
        self.report = report
        self.mentions = extract_findings(report)
        self.findings = tuple(abnormal_findings(report, self.mentions))

    @cached_property
    def sentences(self) -> list[Sentence]:
        """The sentences, without empty ones."""
        return read_sentences(self.report, self.mentions)

    @cached_property
    def comparing(self) -> set[int]:
        """Indices in ``sentences`` of the sentences that compare with a prior study."""
        return {i for i, sentence in enumerate(self.sentences) if compares(sentence.text)}

    @cached_property
    def groups(self) -> tuple[tuple[Finding, ...], ...]:
        """All mentions of each finding; empty if they are ambiguous or the finding is not certainly present."""
        return tuple(map(self._mentions_of, range(len(self.findings))))

    def stands_alone(self, place: int) -> bool:
        """Whether no other finding may be the same one under another name, such as an opacity and a pneumonia."""
        graph, finding = concept_graph(), self.findings[place]
        return not any(
            graph.akin(first, second)
            for other in self.findings
            if other.concept != finding.concept
            for first in (finding.concept, *finding.alternatives)
            for second in (other.concept, *other.alternatives)
        )

    def _mentions_of(self, place: int) -> tuple[Finding, ...]:
        concept = self.findings[place].concept
        named = [mention for mention in self.mentions if mention.concept == concept]
        # A finding that is both present and absent is ambiguous: "Small effusion ... resolution of the effusion".
        if any(mention.presence != "present" for mention in named):
            return ()
        alike = [i for i, finding in enumerate(self.findings) if concept in (finding.concept, *finding.alternatives)]
        if len(alike) == 1:
            return tuple(named)
        if len(alike) == len(named) and all(not self.findings[i].alternatives for i in alike):
            return (named[alike.index(place)],)
        return ()

    def places_of(self, mentions: Sequence[Finding]) -> list[int]:
        """Return the indices in ``sentences`` of the sentences that contain mentions, in order."""
        indices = {mention.sentence for mention in mentions}
        return [i for i, sentence in enumerate(self.sentences) if sentence.index in indices]

    def sentence_of(self, finding: Finding) -> Sentence | None:
        """Return the sentence of a finding, unless it only makes sense after the one before it."""
        found = next((one for one in self.sentences if one.start <= finding.start and finding.end <= one.end), None)
        return None if found is None or found.goes_on else found

    def compared_next(self, place: int) -> bool:
        """Whether the next sentence is a comparison without a finding: "Decreased from before"."""
        return place + 1 in self.comparing and not self.sentences[place + 1].mentions

    def is_continued(self, place: int) -> bool:
        """Whether the next sentence refers to this one."""
        return any(sentence.goes_on for sentence in self.sentences[place + 1 : place + 2])


_words = partial(word_pattern, "errors", "comparison")


def compares(sentence: str) -> bool:
    """Whether a sentence compares with a prior study.

    Example:
        >>> compares("Small effusion, unchanged"), compares("Increased markings")
        (True, False)
    """
    return _words("cues").search(sentence) is not None


def only_compares(sentence: str) -> bool:
    """Whether a sentence without abnormal findings contains only a comparison.

    Example:
        >>> only_compares("No significant interval change.")
        True
    """
    return _words("alone").fullmatch(sentence.strip(" .")) is not None


def without_comparison(sentence: str) -> Iterator[tuple[int, int, str]]:
    """Yield replacements ``(start, end, text)``, each of which removes the comparison from a sentence.

    Example:
        >>> [("Stable cardiomegaly"[:a] + text + "Stable cardiomegaly"[b:]) for a, b, text in
        ...  without_comparison("Stable cardiomegaly")]
        ['Cardiomegaly']
    """
    for pattern, left in _droppings():
        for match in pattern.finditer(sentence):
            start, end, text = match.start(), match.end(), match.expand(left)
            if start == 0 and end < len(sentence) and not text:
                # The next word becomes the first word of the sentence.
                text, end = sentence[end].upper(), end + 1
            elif start == 0:
                text = text[:1].upper() + text[1:]
            rest = sentence[:start] + text + sentence[end:]
            if rest.strip() and not compares(rest) and not _words("dangling").search(rest.rstrip(" .")):
                yield start, end, text


@cache
def _droppings() -> list[tuple[re.Pattern[str], str]]:
    """Return expressions of comparison, each with the text that replaces it."""
    droppings = load_knowledge("errors")["comparison"]["droppings"]
    return [(re.compile(expand(pattern, "errors"), re.IGNORECASE), text) for pattern, text in droppings.items()]
