"""Figures that several pages of the documentation state are those of the files of results."""

import json
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.cli.main import main
from rrg_rewards.findings.reading.lexicon import load_lexicon

ROOT = Path(__file__).resolve().parent.parent
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


def results(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def page(name: str) -> str:
    """Return a page with its lines joined."""
    return " ".join((ROOT / "docs" / name).read_text().split())


def interval(entry: dict[str, float]) -> str:
    return f"{entry['tau']:.2f} ({entry['low']:.2f} to {entry['high']:.2f})"


@pytest.fixture(scope="module")
def agreement() -> Any:
    return results("crimson_agreement")


def test_crimson_page_has_the_agreement_with_radiologists(agreement: Any) -> None:
    rankings, cases = agreement["radjudge"]["passed"], agreement["clinical_cases"]["passed"]
    taus = agreement["radpref"]["kendall_tau"]
    for name, shown in METRICS.items():
        assert f"| {shown} | {rankings[name]} | {cases[name]} | {interval(taus[name])} |" in page("crimson.md")
    for name, shown in SYSTEMS.items():
        one = agreement["iu_xray"][name]
        row = (
            f"| {shown} | {one['rouge_l_abnormal']:.3f} | {one['crimson_abnormal']:.3f} | {one['weight_found']:.0%} | "
            f"{one['weight_invented']:.2f} | {one['better_than_normal']:.0%} | {one['crimson_normal']:.3f} |"
        )
        assert row.replace("%", " %") in page("crimson.md")
    abnormal = agreement["iu_xray"]["sft_model"]["abnormal_references"]
    assert f"191 references, {abnormal} of them with a finding that has a weight" in page("crimson.md")


def test_other_pages_have_the_same_agreement_with_radiologists(agreement: Any) -> None:
    tau = agreement["radpref"]["kendall_tau"]["CRIMSON (rules)"]
    passed = agreement["clinical_cases"]["passed"]["CRIMSON (rules)"]
    assert f"RadPref, 50 pairs | Kendall's τ {interval(tau).replace('(', '(95 % ')}" in page("findings.md")
    assert f"which were looked at | {passed} of 120;" in page("benchmarks.md")
    assert f"50 pairs that were looked at | Kendall's τ {tau['tau']:.2f} (" in page("benchmarks.md")
    assert f"and {tau['tau']:.2f} for CRIMSON by rules" in page("text_metrics.md")


def test_pages_have_the_agreement_on_chest_ct() -> None:
    taus = {
        name: one["kendall_tau"]["CRIMSON (rules)"]["tau"]
        for name, one in results("crimson_ct_agreement")["sets"].items()
    }
    assert f"on all pairs {taus['CTRG']:.2f} and {taus['CT-RATE']:.2f}." in page("findings.md")
    sets = [one["kendall_tau"] for one in results("crimson_ct_agreement")["sets"].values()]
    published, ct = ([one[f"CRIMSON (rules{name})"] for one in sets] for name in ("", ", profile ct"))
    assert f"τ is {interval(published[0])} and {interval(published[1])} with the default" in page("crimson.md")
    assert f"and {interval(ct[0])} and {interval(ct[1])} with" in page("crimson.md")
    errors = [f"{first['mean_error']:.3f} and {second['mean_error']:.3f}" for first, second in (published, ct)]
    assert f"the mean error of a score is {errors[0]}, and {errors[1]}." in page("crimson.md")


def test_crimson_page_has_what_the_training_form_pays() -> None:
    found, text = results("crimson_training"), page("crimson.md")
    edits = ("blank", "vague", "hedged", "half")
    for name, one in found["systems"].items():
        if "template" in name:
            continue
        for form in ("published", "training"):
            gains = " | ".join("{gain:+.3f} ({low:+.3f} to {high:+.3f})".format(**one[form][edit]) for edit in edits)
            assert f"| {name}, {form} | {one[form]['honest']:.3f} | {gains} |" in text
        scores = " | ".join(f"{one['training']['abnormal'][edit]:.3f}" for edit in ("honest", *edits))
        assert f"| {name} ({one['references'] - one['normal_references']}) | {scores} |" in text
    shown = {"published": "published", "training": "training", "nothing stated": "training, nothing stated"}
    for form, name in shown.items():
        taus = [one[form] for one in found["kendall_tau"].values()]
        row = " | ".join(f"{one['tau']:.3f} ({one['low']:.2f} to {one['high']:.2f})" for one in taus)
        assert f"| {name} | {row} |" in text


def test_the_training_form_agrees_with_annotators_as_the_published_one_does() -> None:
    for name, one in results("crimson_training")["kendall_tau"].items():
        # The annotations of CT pairs state no certainty, places and sizes.
        form = "training" if name == "RadPref" else "nothing stated"
        assert one[form]["tau"] >= one["published"]["tau"] - 0.02


@pytest.mark.parametrize("name", ["crimson.md", "findings.md"])
def test_pages_have_the_number_of_concepts(name: str) -> None:
    number = len(load_lexicon("chest").concepts)
    assert f" nearly {100 * -(-number // 100)} concepts" in page(name)


@pytest.mark.slow
def test_tutorial_has_the_values_of_its_two_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    exec(tutorial.partition('title="make_tables.py"\n')[2].partition("```")[0], {})
    command = ["compare", "pairs.csv", "--prediction-column", "alpha", "--prediction-column", "beta"]
    assert main([*command, "--metrics", "crg,crimson,ct_finebench,rouge", "--json", "comparison.json"]) == 0
    for metric in json.loads(Path("comparison.json").read_text())["groups"][0]["metrics"]:
        alpha, beta = (system["value"] for system in metric["systems"])
        (change,) = metric["differences"]
        difference = f"{change['value']:+.3f} ({change['low']:.3f} to {change['high']:.3f})"
        assert f"| {metric['metric']} | {alpha:.3f} | {beta:.3f} | {difference} |" in tutorial
