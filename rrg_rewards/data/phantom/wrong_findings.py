"""Phantom findings with one wrong attribute: side, lobe, kind, severity, size or change."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rrg_rewards.data.phantom.wording import Topic
from rrg_rewards.data.phantom.writer import PhantomFinding
from rrg_rewards.utilities.package_data import package_yaml

__all__ = ["wrong_findings"]

_CLEAR_STEPS = 2
# Minimum ratio of two clearly different sizes, and minimum difference for nodules (both exclusive).
_CLEAR_RATIO, _CLEAR_MM = 1.5, 4


def wrong_findings(
    letter: str, finding: PhantomFinding, topics: Sequence[Topic]
) -> Iterator[tuple[PhantomFinding, str]]:
    """Yield variants of a finding with one error of a category, each with a description of the error.

    Args:
        letter: Category of ``rrg_rewards.schemas.REXVAL_ERRORS``: C, D, E or F.
        finding: The finding.
        topics: Topics that can state the finding, with their possible attributes.

    Example:
        >>> list(wrong_findings("F", PhantomFinding("Lung nodule", change="new"), []))[0][1]
        'new left out'
    """
    if letter == "F":
        if finding.change is not None:
            yield replace(finding, change=None), f"{finding.change} left out"
        return
    for topic in topics:
        if letter == "C":
            yield from _wrong_places(finding, topic)
        elif letter == "D":
            yield from _wrong_severities(finding, topic)
        elif finding.change is None:
            yield from ((replace(finding, change=change), f"{change} added") for change in topic.changes)


def _wrong_places(finding: PhantomFinding, topic: Topic) -> Iterator[tuple[PhantomFinding, str]]:
    here = (finding.side, finding.lobe)
    for side, lobe in topic.where if here in topic.where else ():
        other_side = {side, finding.side} == {"left", "right"} and lobe == finding.lobe
        other_lobe = side == finding.side and None not in (lobe, finding.lobe) and lobe != finding.lobe
        if other_side or other_lobe:
            yield replace(finding, side=side, lobe=lobe), f"{_site(side, lobe)} for {_site(*here)}"
    stations = package_yaml("rrg_rewards.data.phantom", "errors")["stations"].get(finding.concept, {})
    for kind, whole in stations.items():
        apart = kind != finding.kind and whole != finding.kind and stations.get(finding.kind or "") != kind
        if finding.kind in stations and apart:
            yield replace(finding, kind=kind), f"{kind} for {finding.kind}"


def _site(side: str | None, lobe: str | None) -> str:
    return " ".join(word for word in (side, lobe) if word)


def _wrong_severities(finding: PhantomFinding, topic: Topic) -> Iterator[tuple[PhantomFinding, str]]:
    steps = package_yaml("rrg_rewards.data.phantom", "errors")["severities"]
    step = steps.get(finding.severity or "")
    if step is not None:
        for severity in topic.severities:
            if abs(steps.get(severity, step) - step) >= _CLEAR_STEPS:
                yield replace(finding, severity=severity), f"{severity} for {finding.severity}"
    here = finding.size_mm
    if here is not None:
        for size in topic.sizes:
            small, large = sorted((size, here))
            if large > _CLEAR_RATIO * small and (finding.concept != "Lung nodule" or large - small > _CLEAR_MM):
                yield replace(finding, size_mm=size), f"{size} mm for {here} mm"
