"""Signatures of metrics of labels in real processes: after ``compute`` all processes say where the labels come from."""

import warnings
from typing import Any

import pytest
from words import WordLabeler

from rrg_rewards.metrics import LabelerWarning, LabelF1, ReportCRG
from rrg_rewards.metrics.labelled import LabelledMetric
from tests.distributed.helpers import run_distributed

LABELER = WordLabeler()
OWN = f"{{{LABELER.signature}}}"
LABELS = {"target_labels": [[1, 0, 1]]}
# Context of the batches of each process, and the part of the signature that says where labels come from.
SHARES: dict[str, tuple[list[list[dict[str, Any]]], str]] = {
    "given, first empty": ([[], [LABELS]], f"|reference:given|prediction:{OWN}|"),
    "given, last empty": ([[LABELS, LABELS], []], f"|reference:given|prediction:{OWN}|"),
    "labelled, first empty": ([[], [{}]], f"|labeler:{OWN}|"),
    "both": ([[LABELS], [{}]], f"|reference:given,{OWN}|prediction:{OWN}|"),
    "none": ([[], []], f"|labeler:{OWN}|"),
}


def signature_after(metric: LabelledMetric, batches: list[dict[str, Any]]) -> str:
    for context in batches:
        metric.update(["Effusion."], ["Effusion. Hernia."], **context)
    metric.compute()
    return metric.signature


def exercise(rank: int, world_size: int) -> dict[str, dict[str, list[str]]]:
    """Return the signatures of two epochs, with the shares of the processes exchanged in the second."""
    warnings.simplefilter("ignore", LabelerWarning)
    warnings.simplefilter("ignore", UserWarning)
    found: dict[str, dict[str, list[str]]] = {}
    for metric in (ReportCRG(LABELER), LabelF1(LABELER)):
        for share, (batches, _) in SHARES.items():
            fresh = metric.clone()
            signatures = [signature_after(fresh, batches[rank])]
            fresh.reset()
            signatures.append(signature_after(fresh, batches[1 - rank]))
            # Labels of another source than before.
            fresh.reset()
            signatures.append(signature_after(fresh, [{}] if rank else []))
            found.setdefault(share, {})[metric.name] = signatures
    return found


@pytest.fixture(scope="module")
def by_rank() -> list[dict[str, dict[str, list[str]]]]:
    """Return the signatures of each of two processes."""
    return run_distributed(exercise, 2)


@pytest.mark.parametrize("name", ["crg", "label_f1"])
@pytest.mark.parametrize("share", SHARES)
def test_labelled_metric_has_the_signature_of_all_processes(by_rank: Any, share: str, name: str) -> None:
    for rank, found in enumerate(by_rank):
        *epochs, labelled = found[share][name]
        assert all(SHARES[share][1] in signature for signature in epochs), (rank, epochs)
        assert f"|labeler:{OWN}|" in labelled, rank
    assert by_rank[0][share][name] == by_rank[1][share][name]
