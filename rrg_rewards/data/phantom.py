"""A seeded corpus of synthetic chest-CT studies whose labels and findings are known by construction."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rrg_rewards.data.phantom_population import PhantomContext, load_population
from rrg_rewards.data.phantom_wording import Template, Topic, Wording, load_wording
from rrg_rewards.data.phantom_writer import PhantomFinding, write_report
from rrg_rewards.utilities.draws import Draws

__all__ = [
    "PhantomContext",
    "PhantomFinding",
    "PhantomStudy",
    "phantom_rows",
    "phantom_studies",
    "phantom_vocabulary",
]

FINDINGS_HEADER, IMPRESSION_HEADER = "Findings:", "Impression:"
_WORD = re.compile(r"\w+|[^\w\s]+")


@dataclass(frozen=True)
class PhantomStudy:
    """A synthetic chest-CT study.

    Three statements hold by construction. The labels read from the findings section, from the impression and from the
    whole report are the same, ``labels``: the impression leaves out no positive label. A label is 1 exactly if
    ``findings`` holds it as ``present``; a label is never hedged, so there is no third value. What a finding may mean
    (``consolidation, suspicious for infection``) and findings outside the labels are hedged, and held as ``uncertain``.

    Args:
        study_id: ``phantom-<style>-<seed>-<index>``.
        labels: 18 values, 0 or 1, in the order of ``rrg_rewards.schemas.CT_RATE``.
        findings: What the findings section states, in its order, also denials and findings outside the labels.
        findings_text: The findings section.
        impression_text: The impression.
        context: Age, sex, indication and whether there is an earlier scan.
        style: ``full`` or ``compact``.
        places: For each finding the first character and the end of its sentence in ``findings_text``.

    Example:
        >>> study = phantom_studies(1, seed=3, style="compact")[0]
        >>> study.study_id, sum(study.labels)
        ('phantom-compact-3-0', 5)
    """

    study_id: str
    labels: tuple[int, ...]
    findings: tuple[PhantomFinding, ...]
    findings_text: str
    impression_text: str
    context: PhantomContext
    style: str
    places: tuple[tuple[int, int], ...]

    @property
    def report(self) -> str:
        """Both sections with their headers."""
        return f"{FINDINGS_HEADER} {self.findings_text}\n{IMPRESSION_HEADER} {self.impression_text}"

    def to_row(self) -> dict[str, Any]:
        """A plain dict for ``datasets.Dataset.from_list``, CSV or JSON lines.

        Returns:
            ``study_id``; the texts ``findings``, ``impression`` and ``report``; ``labels``, a list of 18 ints; ``age``
            in years, ``sex``, ``indication`` and ``prior``.

        Example:
            >>> list(phantom_studies(1)[0].to_row())
            ['study_id', 'findings', 'impression', 'report', 'labels', 'age', 'sex', 'indication', 'prior']
        """
        return {
            "study_id": self.study_id,
            "findings": self.findings_text,
            "impression": self.impression_text,
            "report": self.report,
            "labels": list(self.labels),
            "age": self.context.age,
            "sex": self.context.sex,
            "indication": self.context.indication,
            "prior": self.context.prior,
        }


def _study(seed: int, index: int, style: str, wording: Wording) -> PhantomStudy:
    # The index is part of the seed instead of a number of draws before it: a study does not depend on the others.
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(index,))))
    population = load_population()
    labels, age = population.sample(generator)
    draws = Draws(generator)
    context = population.context(labels, age, draws)
    report = write_report(labels, context.prior, wording, draws)
    return PhantomStudy(
        study_id=f"phantom-{style}-{seed}-{index}",
        labels=labels,
        findings=report.findings,
        findings_text=report.findings_text,
        impression_text=report.impression_text,
        context=context,
        style=style,
        places=report.places,
    )


def phantom_studies(n: int, seed: int = 0, style: str = "full") -> list[PhantomStudy]:
    """Make the first ``n`` studies of a corpus.

    A study depends on the seed, its index and the style only, so a longer corpus begins with the shorter one. Its
    labels and context depend on the seed and the index: the two styles describe the same patients.

    Args:
        n: Number of studies, not negative.
        seed: Corpus to draw from, not negative.
        style: ``full``, which reads like a clinical report, with distractors, hedges, changes since an earlier scan and
            varied wording; or ``compact``, short sentences from the closed vocabulary of :func:`phantom_vocabulary`,
            for tiny language models.

    Raises:
        ValueError: If ``n`` or ``seed`` is negative, or the style is unknown, with the nearest known one.

    Example:
        >>> study = phantom_studies(2, seed=0, style="compact")[1]
        >>> study == phantom_studies(1000, seed=0, style="compact")[1]
        True
    """
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    wording = load_wording(style)
    return [_study(seed, index, style, wording) for index in range(n)]


def phantom_rows(n: int, seed: int = 0, style: str = "full") -> list[dict[str, Any]]:
    """The studies of :func:`phantom_studies` as plain dicts; see :meth:`PhantomStudy.to_row`.

    Args:
        n: Number of studies, not negative.
        seed: Corpus to draw from, not negative.
        style: ``full`` or ``compact``.

    Raises:
        ValueError: As :func:`phantom_studies`.

    Example:
        >>> len(phantom_rows(3)), len(phantom_rows(3)[0]["labels"])
        (3, 18)
    """
    return [study.to_row() for study in phantom_studies(n, seed=seed, style=style)]


def _slot_values(topic: Topic, wording: Wording) -> dict[str, list[str]]:
    sites = topic.where
    return {
        "location": [text for site in sites for text in wording.location_texts(*site)],
        "side": [side for side, _ in sites],
        "size": [str(size) for size in topic.sizes],
        "severity": list(topic.severities),
        "kind": list(topic.kinds),
        "change": ["", *(text for texts in wording.changes.values() for text in texts)],
        "interpretation": ["", *(text for texts in topic.interpretations.values() for text in texts)],
    }


def _sentences(wording: Wording) -> list[str]:
    """Sentences that together hold every word the style can emit."""
    plain: list[Template] = [*wording.comparisons, *wording.normal_impressions]
    statements = [*wording.closings, *(s for region in wording.regions for s in (*region.normals, *region.negatives))]
    plain.extend(statement.template for statement in statements)
    sentences = [lead for region in wording.regions for lead in region.leads]
    sentences.extend(text for template in plain for text in template.variants({}))
    for topic in (*wording.topics, *wording.distractors):
        values = _slot_values(topic, wording)
        sentences.extend(text for t in (*topic.findings, *topic.impression) for text in t.variants(values))
    return sentences


@cache
def phantom_vocabulary(style: str = "compact") -> tuple[str, ...]:
    r"""Every token that reports of a style can hold, sorted: words and runs of punctuation, ``\w+|[^\w\s]+``.

    These are the pieces of ``tokenizers.pre_tokenizers.Whitespace``; a word-level tokenizer of this vocabulary knows
    every report, with its headers, of every seed.

    Args:
        style: ``full`` or ``compact``.

    Raises:
        ValueError: For an unknown style, with the nearest known one.

    Example:
        >>> {"consolidation", "Consolidation", ".", "Impression"} <= set(phantom_vocabulary("compact"))
        True
    """
    wording = load_wording(style)
    texts = [FINDINGS_HEADER, IMPRESSION_HEADER, ".", *_sentences(wording)]
    if wording.rates["merge"]:
        # A phrase merged into the sentence before it loses its capital.
        texts.extend([";", *(f"{text[:1].lower()}{text[1:]}" for text in _sentences(wording))])
    return tuple(sorted({token for text in texts for token in _WORD.findall(text)}))
