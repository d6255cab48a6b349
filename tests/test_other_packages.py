"""The page on other packages, and the pairs on which metrics disagree."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = runpy.run_path(str(ROOT / "docs" / "make_disagreements.py"))


def test_page_of_disagreements_has_the_scores_of_the_metrics() -> None:
    assert SCRIPT["PAGE"].read_text(encoding="utf-8") == SCRIPT["page"](), "run: python docs/make_disagreements.py"


def test_text_below_the_pairs_is_true() -> None:
    by_what = {pair.what: pair for pair in SCRIPT["PAIRS"]}
    found = {
        what: {name: metric.score([pair.candidate], [pair.reference]).value.item() for name, metric in
               SCRIPT["METRICS"].items()}
        for what, pair in by_what.items()
    }  # fmt: skip
    text = found["a lost negation"]
    assert min(text["ROUGE-L"], text["chrF"]) > 0.7 > 0 > text["CRIMSON"]
    for what in ("the other side", "another size", "another measurement", "another course"):
        assert found[what]["label F1"] == 1 > found[what]["CRIMSON"]
    assert found["an urgent finding is invented"]["CT-FineBench"] == 1
    assert found["a doubt is left out"]["CRIMSON"] == 1
    # Of the clinical metrics, a missed embolism is worse than a missed atelectasis for CRIMSON only.
    both = by_what["an urgent finding is missed"].reference
    for name in ("CRG contribution", "CRIMSON", "CT-FineBench", "label F1"):
        metric = SCRIPT["METRICS"][name]
        embolism, atelectasis = metric.score(["Mild atelectasis.", "Pulmonary embolism."], [both, both]).value.tolist()
        assert (embolism < atelectasis) == (name == "CRIMSON"), name


def test_table_of_packages_has_a_cell_for_each_column() -> None:
    page = (ROOT / "docs" / "other_packages.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert len(tables) == 4
    for table in tables:
        head, _, *rows = [line.strip("|").split("|") for line in table.splitlines()]
        assert all(len(row) == len(head) and all(cell.strip() for cell in row) for row in rows)
