"""A finding in a report and its attributes."""

from typing import Any, Literal, NamedTuple

OTHER = "other_finding"
"""Concept of an open finding, which no concept of the lexicon names."""
ELSEWHERE = "elsewhere"
"""Organ of a finding of a label lexicon whose statement names an organ outside the lungs, and no part of them."""
DOUBTFUL = "doubtful"
"""Certainty of a finding that is called unlikely, or is neither confirmed nor excluded; it counts as no abnormality."""
LUNG_LEVELS = frozenset({"upper", "middle", "lower"})
"""Locations that are levels of the lung."""
LUNG_PARTS = LUNG_LEVELS | {"central", "peripheral"}
"""Locations that are parts of the lung."""
# Changes since an earlier examination, the one that calls for most attention first.
_CHANGES = ("new", "increased", "decreased", "stable", "resolved")
# Number of letters by which word forms are compared.
_STEM = 5

Presence = Literal["present", "absent", "uncertain"]


class Place(NamedTuple):
    """One of several places of a finding: its side, the levels of the lung, and the size of the finding there."""

    laterality: str
    location: tuple[str, ...] = ()
    size_mm: float | None = None


class Attributes(NamedTuple):
    """Attributes of a finding that the words around it state; ``None`` or empty if not stated.

    Args:
        laterality: ``right``, ``left`` or ``bilateral``.
        location: Levels of the lung (``upper``, ``middle``, ``lower``, ``central``, ``peripheral``), bones
            (``thoracic_spine``, ``rib_10``), and locations of the tip of a device (``svc``).
        severity: ``minimal``, ``mild``, ``moderate`` or ``severe``; a small effusion is mild, a large one severe.
        extent: ``focal``, ``multiple`` or ``diffuse``.
        size_mm: Largest dimension in mm.
        short_axis_mm: Second dimension in mm, as in "5 x 4 mm".
        morphology: For example ``linear``, ``patchy``, ``calcified``.
        acuity: ``acute`` or ``chronic``.
        change: ``new``, ``stable``, ``increased`` or ``decreased`` since an earlier examination; of an absent finding
            ``resolved`` if the report says that it was there before.
        certainty: ``likely``, ``possible`` or ``doubtful`` if the report expresses doubt.
        device_position: ``satisfactory`` or ``malpositioned``.
        places: The places of a finding in several places with different sides: "right upper and left lower lobe".
        values: Values that are no length, by kind: ``share`` (%), ``attenuation`` (HU), ``volume`` (ml), ``angle``
            (degrees), ``ratio``, ``count``, ``grade`` and ``type``; ``size`` (mm)
            if several sizes are stated; ``below`` (mm) if ``size_mm`` is an upper bound as in "less than 1 cm".
        words: Words of the vocabulary that the engine was made with, such as a size in the words of the report; empty
            without a vocabulary.
        place_words: The words of a place in that vocabulary.
    """

    laterality: str | None = None
    location: tuple[str, ...] = ()
    severity: str | None = None
    extent: str | None = None
    size_mm: float | None = None
    short_axis_mm: float | None = None
    morphology: tuple[str, ...] = ()
    acuity: str | None = None
    change: str | None = None
    certainty: str | None = None
    device_position: str | None = None
    places: tuple[Place, ...] = ()
    values: tuple[tuple[str, float], ...] = ()
    words: tuple[Any, ...] = ()
    place_words: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        stated = zip(self._fields, self, strict=True)
        return f"Attributes({', '.join(f'{name}={value!r}' for name, value in stated if value)})"

    def filled(self, other: "Attributes") -> "Attributes":
        """Return a copy in which the attributes that are not stated are those of ``other``.

        Of two stated changes, the one that calls for more attention counts: new, then increased, decreased and stable.

        Example:
            >>> Attributes(severity="mild").filled(Attributes(severity="severe", laterality="left"))
            Attributes(laterality='left', severity='mild')
            >>> Attributes(change="stable").filled(Attributes(change="new"))
            Attributes(change='new')
        """
        filled = Attributes._make([own or theirs for own, theirs in zip(self, other, strict=True)])
        if self.change and other.change and _CHANGES.index(other.change) < _CHANGES.index(self.change):
            return filled._replace(change=other.change)
        return filled


class Finding(NamedTuple):
    """One mention of a finding in a report.

    Args:
        concept: Identifier of the finding in its lexicon, such as ``pleural_effusion``.
        presence: ``present``, ``absent`` or ``uncertain``.
        start: Offset of the first character of the mention in the report.
        end: Offset after the last character of the mention.
        sentence: Index of the sentence in the report; numbers of items do not count.
        text: The characters from ``start`` to ``end``, as plain text without markup.
        attributes: Attributes that the words around the mention state.
        alternatives: Concepts that the report names as alternatives, as in "consolidation versus atelectasis".
        organ: The organ that the finding is in, such as ``lung`` or ``liver``; ``None`` if it is not known.
        words: Content words of a finding that no concept of the lexicon names; its concept is ``other_finding``.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> finding = extract_findings("Small left effusion, no emphysema.")[0]
        >>> finding.concept, finding.presence, finding.text, finding.attributes
        ('pleural_effusion', 'present', 'effusion', Attributes(laterality='left', severity='mild'))
    """

    concept: str
    presence: Presence
    start: int
    end: int
    sentence: int
    text: str
    attributes: Attributes = Attributes()
    alternatives: tuple[str, ...] = ()
    organ: str | None = None
    words: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        # `finding.laterality` is short for `finding.attributes.laterality`.
        if name in Attributes._fields:
            return getattr(self.attributes, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def is_plural(text: str) -> bool:
    """Whether a mention ends in a plural: "nodules", "bullae", and not "atelectasis" or "pneumothorax".

    Example:
        >>> is_plural("Nodules"), is_plural("atelectasis")
        (True, False)
    """
    text = text.lower()
    return text.endswith(("s", "ae")) and not text.endswith(("ss", "is", "us"))


def may_be_same(first: Finding, second: Finding) -> bool:
    """Whether organ and words allow two findings of one concept to be the same; only open findings have words.

    Open findings are the same if they are in one organ and share most of the words of the shorter one.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> texts = ("The portal vein is widened.", "Widening of the portal vein.", "Thinning of the carotid wall.")
        >>> first, second, third = (extract_findings(text, open_findings=True)[0] for text in texts)
        >>> may_be_same(first, second), may_be_same(first, third)
        (True, False)
    """
    if first.concept != OTHER or second.concept != OTHER:
        return True
    ours, theirs = ({word[:_STEM] for word in finding.words} for finding in (first, second))
    return first.organ == second.organ and 2 * len(ours & theirs) > min(len(ours), len(theirs))
