"""How many distinct texts a system has: a system that says the same of every study can have good scores."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rrg_rewards.findings.reading.modality import ModalityCheck
from rrg_rewards.utilities.texts import text_hash

FEW_SHARE = 0.25
"""A system has few distinct texts if it has fewer than this share of the distinct references."""

LEAST_STUDIES = 20
"""Of fewer studies nothing is said: a few equal texts are no pattern."""

NORMAL_REPORTS = {
    "xray": (
        "The heart size and mediastinal contours are within normal limits. The lungs are clear. There is no focal "
        "consolidation, pleural effusion or pneumothorax. No acute cardiopulmonary abnormality."
    ),
    "ct": (
        "The trachea and both main bronchi are open. The heart and the mediastinal vessels are normal. There is no "
        "pericardial or pleural effusion. No enlarged lymph nodes are seen. The lung parenchyma is normal, without "
        "nodule, mass or infiltration. The upper abdominal organs and the bones are normal."
    ),
}
"""A normal report of the chest for each modality of the references."""

_MISSING = 0


@dataclass(frozen=True)
class DistinctTexts:
    """Distinct texts of a system, and of the references of the same studies.

    Args:
        studies: Number of studies with a report and, if there are references, a reference.
        distinct: Number of distinct reports of the system.
        commonest: Number of studies whose report is the commonest one.
        commonest_row: Row of the first of them, from 0; ``None`` without studies.
        references: Number of distinct references of these studies; ``None`` without references.
        modality: Modality of the references, if they show one.

    Example:
        >>> found = DistinctTexts(studies=590, distinct=25, commonest=259, commonest_row=1, references=398)
        >>> found.share, found.commonest_share, found.are_few
        (0.0423728813559322, 0.43898305084745765, True)
        >>> print(found)
        25 distinct texts for 590 studies (4.2 %), the commonest 259 times (43.9 %); references: 398 (67.5 %)
    """

    studies: int
    distinct: int
    commonest: int
    commonest_row: int | None
    references: int | None
    modality: Literal["ct", "xray"] | None = None

    @property
    def share(self) -> float | None:
        """Distinct reports by study, in (0, 1]; ``None`` without studies."""
        return self._share(self.distinct)

    @property
    def commonest_share(self) -> float | None:
        """Share of the studies whose report is the commonest one, in (0, 1]; ``None`` without studies."""
        return self._share(self.commonest)

    @property
    def reference_share(self) -> float | None:
        """Distinct references by study, in (0, 1]; ``None`` without studies or references."""
        return self._share(self.references)

    def _share(self, number: int | None) -> float | None:
        return number / self.studies if number is not None and self.studies else None

    @property
    def are_few(self) -> bool:
        """Whether there are far fewer distinct reports than distinct references.

        That is, of at least 20 studies, fewer than a quarter (:data:`FEW_SHARE`). Both numbers are of the same studies,
        because the share of distinct texts falls as studies are added.
        """
        return (
            self.studies >= LEAST_STUDIES
            and self.references is not None
            and self.distinct < FEW_SHARE * self.references
        )

    def warning(self, name: str) -> str | None:
        """Return a warning if :attr:`are_few`; else ``None``.

        Args:
            name: Name of the system, or of its column.
        """
        if not self.are_few:
            return None
        return (
            f"{name} has {self}. A text that is nearly the same for every study can score well: compare the values "
            "with those of the same text for every study"
        )

    def __str__(self) -> str:
        return describe_texts(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, shares and the verdict, without a text; the row of the commonest text is from 1."""
        return {
            "studies": self.studies,
            "distinct": self.distinct,
            "share": self.share,
            "commonest": self.commonest,
            "commonest_share": self.commonest_share,
            "commonest_row": None if self.commonest_row is None else self.commonest_row + 1,
            "distinct_references": self.references,
            "reference_share": self.reference_share,
            "are_few": self.are_few,
        }


def describe_texts(entry: Mapping[str, Any]) -> str:
    """Return what :meth:`DistinctTexts.to_dict` says, as one line."""
    text = "text" if entry["distinct"] == 1 else "texts"
    found = f"{entry['distinct']} distinct {text} for {entry['studies']} studies"
    if not entry["studies"]:
        return found
    commonest, references = entry["commonest"], entry["distinct_references"]
    times = "once" if commonest == 1 else f"{commonest} times"
    found += f" ({100 * entry['share']:.1f} %), the commonest {times} ({100 * entry['commonest_share']:.1f} %)"
    if references is not None:
        found += f"; references: {references} ({100 * entry['reference_share']:.1f} %)"
    return found


def count_texts(predictions: Sequence[str | None], references: Sequence[Any] | None = None) -> DistinctTexts:
    r"""Count the distinct texts of a system, and those of the references of the same studies.

    Two texts are the same if they are equal after each run of white space became one space. A study whose report is
    missing, or whose reference is missing or blank, is left out.

    Args:
        predictions: ``N`` reports, ``None`` if missing.
        references: For each of them, a reference; ``None`` for none at all.

    Raises:
        ValueError: If lengths differ.

    Example:
        >>> count_texts(["Clear lungs.", "Clear  lungs.\n", "Effusion."], ["Normal.", "Nodule.", "Effusion."]).distinct
        2
    """
    counter = TextCounter()
    counter.add(predictions, references)
    return counter.result()


class TextCounter:
    """Counts distinct texts batch by batch; see :func:`count_texts`.

    It keeps a hash of 8 bytes of each report and of each reference, and no text. Two of a million texts have the same
    hash with a probability of 3e-8.

    Example:
        >>> counter = TextCounter()
        >>> for report in ("Clear lungs.", "Effusion.", "Clear lungs."):
        ...     counter.add([report], ["Nodule."])
        >>> found = counter.result()
        >>> found.distinct, found.commonest, found.commonest_row, found.references
        (2, 2, 0, 1)
    """

    def __init__(self) -> None:
        self._predictions, self._references = array("Q"), array("Q")
        self._has_references = False
        self._checks: tuple[tuple[Literal["ct", "xray"], ModalityCheck], ...] = (
            ("ct", ModalityCheck("xray")),
            ("xray", ModalityCheck("ct")),
        )
        self._modality: Literal["ct", "xray"] | None = None

    def add(self, predictions: Sequence[str | None], references: Sequence[Any] | None = None) -> None:
        """Add the reports and references of a batch."""
        given = [None] * len(predictions) if references is None else references
        if len(given) != len(predictions):
            raise ValueError(f"references must have {len(predictions)} entries, got {len(given)}")
        texts = [text if text is not None and text.strip() else None for text in given]
        self._predictions.extend(_hashes(predictions))
        self._references.extend(_hashes(texts))
        known = [text for text in texts if text is not None]
        self._has_references |= bool(known)
        for modality, other in self._checks:
            if self._modality is None and other.differs(known):
                self._modality = modality

    def result(self) -> DistinctTexts:
        """Return the numbers of all texts so far."""
        predictions, references = (np.frombuffer(own, np.uint64) for own in (self._predictions, self._references))
        rows = predictions != _MISSING
        if self._has_references:
            rows = rows & (references != _MISSING)
        if not rows.any():
            return DistinctTexts(0, 0, 0, None, 0 if self._has_references else None, self._modality)
        found, counts = np.unique(predictions[rows], return_counts=True)
        most = int(counts.max())
        # Of equally common texts, the first in the table.
        first = int(np.argmax(np.isin(predictions, found[counts == most]) & rows))
        distinct = len(np.unique(references[rows])) if self._has_references else None
        return DistinctTexts(int(rows.sum()), len(found), most, first, distinct, self._modality)


def _hashes(texts: Iterable[str | None]) -> Iterable[int]:
    for text in texts:
        yield _MISSING if text is None else text_hash(" ".join(text.split())) or 1
