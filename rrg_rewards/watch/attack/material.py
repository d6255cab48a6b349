"""Findings, labels and sentences from which image-free texts are made, in the order of their frequency."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rrg_rewards.findings.reading.engine import extract_findings
from rrg_rewards.findings.reading.finding import OTHER
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.labelers.rules import RuleLabeler
from rrg_rewards.schemas.labels import is_no_abnormality
from rrg_rewards.watch.attack.policies import split_sentences

__all__ = ["Material", "read_material"]

_LABEL_SCHEMAS = ("ct_rate", "chexbert")
_MOST_SENTENCES = 400
_MOST_REPORTS = 200


@dataclass(frozen=True)
class Material:
    """The parts of which texts are made.

    Args:
        findings: Names of the lexicon's concepts, by falling frequency in the reports.
        labels: Names of the labels of CT-RATE and CheXbert, by falling frequency in the reports.
        sentences: Sentences of the reports, by falling frequency.
        reports: Different reports, by falling frequency.
    """

    findings: tuple[str, ...]
    labels: tuple[str, ...]
    sentences: tuple[str, ...]
    reports: tuple[str, ...]


def read_material(reports: Sequence[str]) -> Material:
    """Collect findings, labels and sentences from reports.

    All concepts of the lexicon and all labels are included; those that do not occur in the reports come last.

    Args:
        reports: Reports whose sentences and frequencies are used.

    Example:
        >>> material = read_material(["Cardiomegaly. No effusion.", "Cardiomegaly.", "Emphysema."])
        >>> material.findings[:2], material.labels[:2], material.sentences[0]
        (('cardiomegaly', 'emphysema'), ('Cardiomegaly', 'Emphysema'), 'Cardiomegaly.')
    """
    counts: Counter[str] = Counter()
    for report in reports:
        found = extract_findings(report)
        counts.update({finding.concept for finding in found if finding.presence == "present"})
    concepts = [concept for concept in load_lexicon("chest").concepts if concept != OTHER]
    return Material(
        findings=tuple(concept.replace("_", " ") for concept in _by_frequency(concepts, counts)),
        labels=_labels(reports),
        sentences=_most_common(
            (sentence for report in reports for sentence in split_sentences(report)), _MOST_SENTENCES
        ),
        reports=_most_common(reports, _MOST_REPORTS),
    )


def _labels(reports: Sequence[str]) -> tuple[str, ...]:
    counts: Counter[str] = Counter()
    names: list[str] = []
    for schema in _LABEL_SCHEMAS:
        labeler = RuleLabeler(schema)
        names += [label for label in labeler.labels if not is_no_abnormality(label)]
        rows = labeler(list(reports)).sum(0).tolist()
        for label, count in zip(labeler.labels, rows, strict=True):
            counts[label] = max(counts[label], count)
    return tuple(_by_frequency(dict.fromkeys(names), counts))


def _by_frequency(names: Iterable[str], counts: Counter[str]) -> list[str]:
    return sorted(names, key=lambda name: -counts[name])


def _most_common(texts: Iterable[str], limit: int) -> tuple[str, ...]:
    counts = Counter(text.strip() for text in texts if text.strip())
    # Sorted by text where the counts are equal, so that the order of the reports has no effect.
    return tuple(sorted(counts, key=lambda text: (-counts[text], text))[:limit])
