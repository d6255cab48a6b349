"""Changes of a report that keep its meaning keep every score of the metrics by rules."""

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rrg_rewards.metrics import CRIMSON, CTFineBench, LabelF1, ReportCRG, ReportMetric

MOST_PER_THOUSAND = 1
METRICS: dict[str, Callable[[], ReportMetric]] = {
    "crimson": lambda: CRIMSON(judge="rules"),
    "crg": lambda: ReportCRG(prior=0.1),
    "ct_finebench": CTFineBench,
    "label_f1": LabelF1,
    "label_f1 of chest X-rays": lambda: LabelF1("rules:chexbert"),
}
SENTENCES = [
    "Small left pleural effusion.",
    "No pneumothorax.",
    "The heart is moderately enlarged.",
    "A 7 mm solid nodule is seen in the right upper lobe.",
    "Consolidation in the left lower lobe may represent atelectasis, aspiration, or pneumonia.",
    "Emphysema and resolved pulmonary edema.",
    "No significant change with a small right pneumothorax.",
    "Mild degenerative changes of the thoracic spine.",
    "Cardiomegaly with a moderate, loculated right effusion.",
    "Calcified plaques in the coronary arteries.",
    "There is a 12 mm hypodense lesion in the right lobe of the liver.",
    "Removal of the left chest tube and placement of a tracheostomy.",
]
# Each report has four of the sentences.
OWN = [
    (
        " ".join(SENTENCES[(k + 5 * i) % 12] for i in range(4)),
        " ".join(SENTENCES[(3 * k + 1 + i) % 12] for i in range(4)),
    )
    for k in range(24)
]
SIDES = {"left": "right", "rul": "lul", "rll": "lll"}
SIDES |= {other: side for side, other in SIDES.items()}
LESIONS = (
    r"nodul|mass|lesion|cyst|node|lymph|metasta|granulom|stone|calcul|bulla|fractur|tumou?r|opaci|densit|area|finding"
    r"|appearance|consolidation|effusion"
)
# Sentences that continue another one, name one of the lesions of another one, or a cause or an examination.
DEPENDENT = re.compile(
    r"(?i)^(it|its|this|these|they|th[oa]se?|which|measur|larg|tip|also|however|otherwise|finding|appear|another|other|one"
    r"|some|both|recommend|may|might|could|new|increas|decreas|impro|the (diameter|size|tip|larg))|:"
    r"|\b(etiolog|aetiolog|favor|compatible|consistent|correlat|clinic|laborat|terms|recommend|advis|evaluat|consider"
    rf"|secondary)|\b(the|th[ei]se?|its|their|largest|larger|described|same|such|another|above|previous)\b[^.]{{0,40}}\b({LESIONS})"
)
LESION = re.compile(rf"(?i){LESIONS}")
# What one side alone has, and lobes that touch on the left only.
UPPER, LOWER = "(upper|rul|lul|ap[ie])", "(lower|rll|lll|bas[ea])"
ONE_SIDED = re.compile(
    r"(?i)middle|rml|lingul|retrocardiac|aberrant|(right|left)[ -](sided )?(ventric|atri|heart|main coro|coro|arch|aort"
    rf"|anterior desc|upper quad|subclav|carotid|img|lateral)|{UPPER}.*{LOWER}|{LOWER}.*{UPPER}"
)


def split(report: str) -> list[str]:
    return re.split(r"(?<=[a-z)]\.)\s+(?=[A-Z])", report.strip())


def is_independent(sentence: str) -> bool:
    return sentence.endswith(".") and not DEPENDENT.search(sentence)


def reordered(report: str) -> str:
    sentences = split(report)
    return " ".join(reversed(sentences)) if all(map(is_independent, sentences)) else report


def repeated(report: str) -> str:
    sentences = split(report)
    k = len(sentences) // 2
    is_alone = (
        is_independent(sentences[k])
        and not LESION.search(sentences[k])
        and all(map(is_independent, sentences[k + 1 : k + 2]))
    )
    return " ".join([*sentences[: k + 1], *sentences[k:]]) if is_alone else report


def mirrored(report: str) -> str:
    def other(word: re.Match[str]) -> str:
        side = SIDES.get(word[0].lower(), word[0])
        return side.upper() if word[0].isupper() else side.capitalize() if word[0][0].isupper() else side

    return re.sub(r"[A-Za-z]+", other, report)


CHANGES: dict[str, Callable[[str], str]] = {
    "order": reordered,
    "numbers": lambda report: " ".join(f"{k}. {sentence}" for k, sentence in enumerate(split(report), 1)),
    "lines": lambda report: "\n".join(split(report)),
    "bold": lambda report: report.replace(first := split(report)[0], f"**{first}**", 1),
    "repetition": repeated,
    "html": lambda report: "".join(f"<li>{sentence}</li>" for sentence in split(report)),
    "line breaks": lambda report: "<br>".join(split(report)),
    "escapes": lambda report: r"\n".join(split(report)),
    "spaces": lambda report: report.replace(" ", "\u00a0"),
    "ligatures": lambda report: report.replace("ff", "\ufb00").replace("fi", "\ufb01").replace("fl", "\ufb02"),
    "units": lambda report: re.sub(r"\b(mm|cm)(?= [a-z])", r"\1.", report),
}


def changed_pairs(pairs: list[tuple[str, str]], change: str) -> Iterator[tuple[int, str, str]]:
    """Yield the index of each pair that can be changed in one report, or in both for their sides, and the pair."""
    for i, (candidate, reference) in enumerate(pairs):
        if change == "sides":
            if not ONE_SIDED.search(f"{candidate} {reference}".replace("\n", " ")):
                yield i, mirrored(candidate), mirrored(reference)
        elif "\n" not in candidate + reference:
            yield i, CHANGES[change](candidate), reference
            yield i, candidate, CHANGES[change](reference)


def check(pairs: list[tuple[str, str]], name: str, change: str, least: int) -> None:
    metric = METRICS[name]()
    made = [(i, *pair) for i, *pair in changed_pairs(pairs, change) if tuple(pair) != pairs[i]]
    assert len(made) >= least
    before = metric.score(*map(list, zip(*pairs, strict=True))).value.nan_to_num(7)
    after = metric.score([pair[1] for pair in made], [pair[2] for pair in made]).value.nan_to_num(7)
    wrong = [pair for pair, value in zip(made, after, strict=True) if abs(value - before[pair[0]]) > 1e-6]
    assert 1000 * len(wrong) <= MOST_PER_THOUSAND * len(made), wrong[:3]


@pytest.mark.parametrize("change", [*CHANGES, "sides"])
@pytest.mark.parametrize("name", METRICS)
def test_score_is_kept_by_a_change_that_keeps_the_meaning(name: str, change: str) -> None:
    check(OWN, name, change, least=2)


@pytest.fixture(scope="module")
def real(shared_data: Path) -> list[tuple[str, str]]:
    tables = [
        ("reg2rg_ctrg/pairs.csv", "Pred_whole_report", "GT_whole_report"),
        ("reg2rg_ct_rate/pairs.csv", "prediction", "reference"),
        ("iu_xray/systems.csv", "sft_model", "reference"),
        ("radfact/pairs.csv", "prediction", "target"),
    ]
    found = []
    for table, candidate, reference in tables:
        with (shared_data / table).open(newline="", encoding="utf-8") as file:
            found += [
                (row[candidate], row[reference]) for row in csv.DictReader(file) if row[candidate] and row[reference]
            ]
    return found[:1000]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", [*CHANGES, "sides"])
@pytest.mark.parametrize("name", METRICS)
def test_score_of_a_real_pair_is_kept(real: list[tuple[str, str]], name: str, change: str) -> None:
    check(real, name, change, least=50)
