"""Score short report pairs with several metrics and write the table of ``docs/measurements.md``.

Run ``python docs/make_disagreements.py``. No model or data are needed.
"""

from pathlib import Path
from typing import NamedTuple

from rrg_rewards.metrics import make_metric
from rrg_rewards.metrics.base import ReportMetric

PAGE = Path(__file__).resolve().parent / "measurements.md"
BEGIN, END = "<!-- written by docs/make_disagreements.py -->\n", "<!-- end of the pairs -->\n"
# With this prevalence, near that of CT-RATE, one of 18 labels that is found contributes 1 / (18 * 0.2).
METRICS = {
    "CRG contribution": make_metric("crg", prior=0.2),
    "CRIMSON": make_metric("crimson"),
    "CT-FineBench": make_metric("ct_finebench"),
    "label F1": make_metric("label_f1"),
    "ROUGE-L": make_metric("rouge"),
    "chrF": make_metric("chrf"),
}


class Pair(NamedTuple):
    """A reference, a candidate, and what the table says of them."""

    reference: str
    candidate: str
    what: str


PAIRS = (
    Pair("Cardiomegaly.", "The heart is enlarged.", "the same in other words"),
    Pair("The lungs are clear. No effusion. No pneumothorax.", "Lungs clear.", "a shorter normal report"),
    Pair("Emphysema. Hiatal hernia.", "Hiatal hernia. Emphysema.", "another order"),
    Pair("Large left pneumothorax.", "Large right pneumothorax.", "the other side"),
    Pair("No pleural effusion.", "Pleural effusion.", "a lost negation"),
    Pair("Large left pleural effusion.", "Small left pleural effusion.", "another size"),
    Pair("8 mm nodule in the right upper lobe.", "18 mm nodule in the right upper lobe.", "another measurement"),
    Pair("Stable 5 mm nodule in the left lower lobe.", "New 5 mm nodule in the left lower lobe.", "another course"),
    Pair("Pulmonary embolism. Mild atelectasis.", "Mild atelectasis.", "an urgent finding is missed"),
    Pair("Mild atelectasis.", "Pulmonary embolism. Mild atelectasis.", "an urgent finding is invented"),
    Pair("Rib fracture on the left.", "No acute abnormality.", "a finding that is no label"),
    Pair("Possible pneumonia in the left lower lobe.", "Pneumonia in the left lower lobe.", "a doubt is left out"),
)


def score(metric: ReportMetric, pair: Pair) -> str:
    """Return the score of a pair as the table shows it; a dash if it has none."""
    value = metric.score([pair.candidate], [pair.reference]).value.item()
    return "-" if value != value else f"{value:.2f}"


def table() -> str:
    """Return the table as Markdown."""
    heads = ["Reference", "Candidate", "Difference", *METRICS]
    rows = [[*pair, *(score(metric, pair) for metric in METRICS.values())] for pair in PAIRS]
    lines = [heads, ["---"] * 3 + ["---:"] * len(METRICS), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """Return the page with a new table."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
