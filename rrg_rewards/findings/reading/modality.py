"""Recognise whether reports are of CTs or of radiographs, by their words."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Literal

from rrg_rewards.findings.knowledge.load import load_knowledge

Modality = Literal["ct", "xray"]
"""Modality of reports: computed tomography or radiography."""
MODALITIES: tuple[Modality, Modality] = ("ct", "xray")
"""The modalities."""

# Numbers of reports that are looked at, and that must show a modality before anything is said of it.
_SAMPLE = 200
_LEAST = 10
# Share of the reports that show a modality which must show the same one.
_SHARE = 0.9
# A prefix is enough, and bounds the work on a text of any length.
_MOST_CHARACTERS = 5_000


@cache
def _patterns() -> dict[Modality, re.Pattern[str]]:
    words = load_knowledge("modalities")
    return {modality: re.compile(rf"\b(?:{'|'.join(words[modality])})\b") for modality in MODALITIES}


def report_majority(report: str) -> Modality | None:
    """Return the modality of which a report has more different words; ``None`` if it has equally many.

    Example:
        >>> report_majority("Both main bronchi are open. No lymph node."), report_majority("Normal silhouette.")
        ('ct', 'xray')
        >>> report_majority("No effusion.") is None
        True
    """
    text = report[:_MOST_CHARACTERS].lower()
    ct, xray = (len(set(pattern.findall(text))) for pattern in _patterns().values())
    return None if ct == xray else "ct" if ct > xray else "xray"


class ModalityCheck:
    """Looks at the first 200 reports of a run for those of another modality.

    Args:
        expected: Modality for which labels or questions are made.

    Example:
        >>> check = ModalityCheck("ct")
        >>> check.differs(["Cardiac silhouette is normal."] * 9), check.differs(["Normal silhouette. Clear lungs."])
        (False, True)
        >>> check.differs(["Normal silhouette."])
        False
    """

    def __init__(self, expected: Modality) -> None:
        self._expected = expected
        self._left = _SAMPLE
        self._seen: Counter[Modality] = Counter()

    def differs(self, reports: Iterable[str]) -> bool:
        """Look at more reports, and return True the first time that 10 or more are of another modality.

        These are at least nine tenths of the reports whose words show a modality.
        """
        if self._left <= 0:
            return False
        for report in islice(filter(str.strip, reports), self._left):
            self._left -= 1
            majority = report_majority(report)
            if majority is not None:
                self._seen[majority] += 1
        others = self._seen.total() - self._seen[self._expected]
        is_other = others >= max(_LEAST, _SHARE * self._seen.total())
        self._left = 0 if is_other else self._left
        return is_other
