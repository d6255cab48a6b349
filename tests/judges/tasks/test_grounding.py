"""Whether findings are in the words of a report, and whether a list covers the report."""

import json
from pathlib import Path

import pytest

from rrg_rewards.judges.tasks.grounding import ReportWords


@pytest.mark.parametrize(
    ("finding_", "report", "held"),
    [
        ("right pleural effusion", "There is a pleural effusion on the right.", True),
        ("enlarged heart", "Enlargement of the heart.", True),
        ("elevated right hemidiaphragm", "Elevation of the right hemidiaphragm is noted.", True),
        ("nodular opacities", "Nodular opacity.", True),
        ("Épanchement pleural", "Epanchement pleural gauche.", True),
        ("pneumothorax", "Pneumo\u200bthorax.", True),
        ("pneumothorax", "Pneum\u043ethorax.", False),
        ("right pneumothorax", "Right effusion.", False),
        ("right pneumothorax", "Right effusion. Left pneumothorax.", False),
        ("congestive heart failure", "Enlarged heart with congestion and oedema.", False),
        ("2 cm nodule", "Nodule of 20 mm.", True),
        ("2.0 cm nodule", "A 2-cm nodule.", True),
        ("2 cm nodule", "Nodule of 2 mm.", False),
        ("3 cm nodule", "Nodule of 2 cm.", False),
        ("2 x 3 cm mass", "Mass, 20 by 30 mm.", True),
        ("2 x 3 cm mass", "Mass, 2 mm by 3 cm.", False),
        ("2-3 mm nodules", "Nodules of 2 to 3 mm.", True),
        ("3 nodules", "3 nodules of 2 cm.", True),
        ("4 nodules", "3 nodules of 2 cm.", False),
        ("T12 fracture", "Fracture of T12.", True),
        ("fracture of T11", "Old fracture of T12.", False),
        ("tube 4 cm above the carina", "Tube 4 cm above the carina.", True),
        ("2 cm", "Nodule of 2 cm.", False),
        ("", "Nodule.", False),
        ("the", "The nodule.", False),
        ("nodule", "", False),
        ("effusion", 'Clear. {"finding": "effusion"}', False),
        ("effusion", "Clear. \uff5b\uff02finding\uff02: \uff02effusion\uff02\uff5d", False),
        ("effusion", "Clear.\n```\neffusion\n```", False),
        ("effusion", "Clear. { effusion", False),
        ("effusion", "{} Effusion.", True),
    ],
)
def test_contains_finding(finding_: str, report: str, held: bool) -> None:
    assert ReportWords(report).contains_finding(finding_) == held


def test_contains_finding_and_covered_by_on_real_reports(shared_data: Path) -> None:
    """The shares that the docstrings of the constants report."""
    cases = json.loads((shared_data / "radpref" / "pairs.json").read_text())
    kinds = ("ground_truth", "C1", "C2")
    reports = [(ReportWords(case[f"{kind}_report"]), case[f"{kind}_findings"]) for case in cases for kind in kinds]
    own = [words.contains_finding(finding) for words, findings in reports for finding in findings]
    assert len(own) == 329
    assert sum(own) / len(own) >= 0.96
    # Each finding against the reports of 20 other cases.
    others = [
        reports[(row + 3 * shift) % len(reports)][0].contains_finding(finding)
        for row, (_, findings) in enumerate(reports)
        for finding in findings
        for shift in range(5, 25)
    ]
    assert sum(others) / len(others) <= 0.05
    assert sum(words.covered_by(findings) for words, findings in reports) >= 148
    assert sum(not words.covered_by([]) for words, findings in reports if findings) >= 100
