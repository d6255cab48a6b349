"""What a report says about one finding."""

from dataclasses import dataclass, fields
from typing import Any, Literal

__all__ = ["Attributes", "Finding", "Presence"]

Presence = Literal["present", "absent", "uncertain"]


@dataclass(frozen=True, slots=True)
class Attributes:
    """What the words around a finding say of it; ``None`` or empty where they say nothing.

    Args:
        laterality: ``right``, ``left`` or ``bilateral``.
        location: Parts of the body: levels of the lung (``upper``, ``middle``, ``lower``, ``central``,
            ``peripheral``), of the spine and other bones (``thoracic_spine``, ``rib_10``), and where the tip of a
            device lies (``svc``).
        severity: ``minimal``, ``mild``, ``moderate`` or ``severe``; a small effusion is mild, a large one severe.
        extent: ``focal``, ``multiple`` or ``diffuse``.
        size_mm: Largest dimension in mm.
        morphology: Such as ``linear``, ``patchy``, ``calcified``.
        acuity: ``acute`` or ``chronic``.
        change: ``new``, ``stable``, ``increased`` or ``decreased`` since an earlier examination.
        certainty: ``likely`` or ``possible`` where the report does not state it plainly.
        device_position: ``satisfactory`` or ``malpositioned``.
    """

    laterality: str | None = None
    location: tuple[str, ...] = ()
    severity: str | None = None
    extent: str | None = None
    size_mm: float | None = None
    morphology: tuple[str, ...] = ()
    acuity: str | None = None
    change: str | None = None
    certainty: str | None = None
    device_position: str | None = None

    def __repr__(self) -> str:
        said = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"Attributes({', '.join(f'{name}={value!r}' for name, value in said if value)})"

    def filled(self, other: "Attributes") -> "Attributes":
        """These attributes, and the other's where these say nothing.

        Example:
            >>> Attributes(severity="mild").filled(Attributes(severity="severe", laterality="left"))
            Attributes(laterality='left', severity='mild')
        """
        return Attributes(*(getattr(self, name) or getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Finding:
    """One mention of a finding in a report.

    Args:
        concept: Identifier of the finding in its lexicon, such as ``pleural_effusion``.
        presence: Whether the report says that it is there, that it is not, or leaves it open.
        start: Offset of the first character of the mention in the report.
        end: Offset just past the last character of the mention.
        sentence: Index of the sentence in the report.
        text: The report's characters from ``start`` to ``end``.
        attributes: What the words around it say of it.
        alternatives: Concepts that the report leaves open in its place: "consolidation versus atelectasis".

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

    def __getattr__(self, name: str) -> Any:
        # The attributes are the finding's: `finding.laterality`.
        if name in Attributes.__slots__:
            return getattr(self.attributes, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
