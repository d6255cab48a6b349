"""Figures of the README and the guide stand on Measurements, which has the figures of the files of results."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.findings.reading.lexicon import load_lexicon

ROOT = Path(__file__).resolve().parent.parent
MEASUREMENTS = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
METRICS = {
    "CRIMSON (rules)": "CRIMSON, rules",
    "CRIMSON weighted errors (rules)": "weighted errors, rules",
    "CRIMSON errors (rules)": "errors, rules",
    "CheXbert-label F1 (rules)": "F1 of CheXbert labels, read by rules",
    "BLEU-4": "BLEU-4",
    "chrF": "chrF",
    "ROUGE-L": "ROUGE-L",
}
SYSTEMS = {"fixed_normal_template": "fixed normal template", "sft_model": "SFT model",
           "retrieval_oracle": "retrieval oracle"}  # fmt: skip
CREPE = {"crepe": "CREPE, MiniLM, `crepe/minilm_phantom`", "crepe (A to D)": "the same, counted categories only",
         "rouge-l": "ROUGE-L", "bertscore": "BERTScore, MiniLM", "finding engine": "finding engine"}  # fmt: skip
LOSSES = {"lam_1.0": "published, λ = 1", "seed_1": "the same, another seed", "lam_0.5": "λ = 0.5", "lam_3.0": "λ = 3",
          "total_only": "the total alone", "individual_only": "the criteria alone"}  # fmt: skip


def results(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def interval(entry: dict[str, float], digits: int = 2) -> str:
    return "{tau:.{n}f} ({low:.{n}f} to {high:.{n}f})".format(**entry, n=digits)


def linked_figures(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each number with a fraction in a sentence that links to Measurements, and the anchor of the link."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for sentence in re.split(r"(?<=[.!?])\s|\n\n|\n[-|]", text):
        for anchor in re.findall(r"measurements\.md#([\w-]+)\)", sentence):
            shown = re.sub(r"\]\([^)]*\)|`[^`]*`", "", sentence)
            yield from ((number, anchor) for number in re.findall(r"(?<![\w.])\d+\.\d+", shown) or [""])


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "measurements"], ids=lambda page: page.stem)
def test_figures_of_the_guide_are_in_the_section_of_measurements_that_they_link_to(page: Path) -> None:
    sections = re.split(r"\n##+ ", MEASUREMENTS)
    for number, anchor in linked_figures(page):
        named = [
            one for one in sections if re.sub(r"[^\w -]", "", one.split("\n")[0]).lower().replace(" ", "-") == anchor
        ]
        assert len(named) == 1, f"{page.name}: measurements.md#{anchor}"
        assert number in named[0], f"{page.name}: {number} is not in the section {anchor}"


def rows() -> Iterator[str]:
    """Yield what Measurements says of files of results."""
    agreement = results("crimson_agreement")
    for name, shown in METRICS.items():
        cases = " | ".join(str(agreement[kind]["passed"][name]) for kind in ("radjudge", "clinical_cases"))
        yield f"| {shown} | {cases} | {interval(agreement['radpref']['kendall_tau'][name])} |"
    for name, shown in SYSTEMS.items():
        one = agreement["iu_xray"][name]
        row = (
            f"| {shown} | {one['rouge_l_abnormal']:.3f} | {one['crimson_abnormal']:.3f} | {one['weight_found']:.0%} | "
            f"{one['weight_invented']:.2f} | {one['better_than_normal']:.0%} | {one['crimson_normal']:.3f} |"
        )
        yield row.replace("%", " %")
    yield f"{agreement['iu_xray']['sft_model']['abnormal_references']} of them with a finding that has a weight"
    sets = [one["kendall_tau"] for one in results("crimson_ct_agreement")["sets"].values()]
    for profile in ("", ", profile ct"):
        first, second = (one[f"CRIMSON (rules{profile})"] for one in sets)
        yield f"| {interval(first)}; {interval(second)} |"
        yield f"{first['mean_error']:.3f}, {second['mean_error']:.3f}"
    for name, shown in CREPE.items():
        yield f"| {shown} | {interval(results('crepe_agreement')['kendall_tau'][name], 3)} |"
    for name, shown in LOSSES.items():
        found = results("er2score_ablations")["variants"][name]["held_out"]
        low, high = found["kendall_interval"]
        yield f"| {shown} | {found['kendall']:.3f} ({low:.3f} to {high:.3f}) |"
    for name, one in results("crimson_cascade")["kept"].items():
        kept = " | ".join(f"{share:.2f}" for share in one["kept"].values())
        yield f"{name}{', two systems' * (name == 'IU X-Ray')} | {one['pairs']} | {kept.replace('1.00', '0.99')} |"
    for corpus in ("CTRG", "CT-RATE"):
        levels = results("crg_paper")["figures"][corpus.lower().replace("-", "_")]
        yield (
            ", ".join(f"{level['crg']:.3f}" for level in levels["levels"].values()) + f"; {levels['crg_of_levels']:.3f}"
        )
        options = [
            results("ct_finebench_options")[corpus][f"recall, over-specified answers {how}"]
            for how in ("right", "partial")
        ]
        yield "; ".join(f"{option['score']:.4f}" for option in options)
    for phase in results("gpu")["phases"].values():
        yield f"{phase['seconds']:.3g} s"


def test_measurements_have_the_results_of_benchmarks() -> None:
    text = " ".join(MEASUREMENTS.split())
    expected = list(rows())
    assert len(expected) > 35
    assert [row for row in expected if row not in text] == []


def test_measurements_have_what_the_training_form_pays() -> None:
    found = results("crimson_training")
    edits = ("blank", "vague", "hedged", "half")
    for name, one in found["systems"].items():
        if "template" in name:
            continue
        for form in ("published", "training"):
            gains = " | ".join("{gain:+.3f} ({low:+.3f} to {high:+.3f})".format(**one[form][edit]) for edit in edits)
            assert f"| {name}, {form} | {one[form]['honest']:.3f} | {gains} |" in MEASUREMENTS
        scores = " | ".join(f"{one['training']['abnormal'][edit]:.3f}" for edit in ("honest", *edits))
        assert f"| {name} ({one['references'] - one['normal_references']}) | {scores} |" in MEASUREMENTS
    shown = {"published": "published", "training": "training", "nothing stated": "training, nothing stated"}
    for form, name in shown.items():
        taus = [one[form] for one in found["kendall_tau"].values()]
        row = " | ".join(f"{one['tau']:.3f} ({one['low']:.2f} to {one['high']:.2f})" for one in taus)
        assert f"| {name} | {row} |" in MEASUREMENTS


def test_the_training_form_agrees_with_annotators_as_the_published_one_does() -> None:
    for name, one in results("crimson_training")["kendall_tau"].items():
        # The annotations of CT pairs state no certainty, places and sizes.
        form = "training" if name == "RadPref" else "nothing stated"
        assert one[form]["tau"] >= one["published"]["tau"] - 0.02


@pytest.mark.parametrize("name", ["crimson", "labelers"])
def test_pages_have_the_number_of_concepts(name: str) -> None:
    number = len(load_lexicon("chest").concepts)
    assert f" nearly {100 * -(-number // 100)} concepts" in " ".join((ROOT / "docs" / f"{name}.md").read_text().split())
