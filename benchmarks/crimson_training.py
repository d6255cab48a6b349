"""Compare what the published form of CRIMSON and its training form pay for honest reports, and for edits of them.

    python benchmarks/crimson_training.py
    python benchmarks/crimson_training.py --data FOLDER

The reports are those of real systems: Reg2RG on CTRG and CT-RATE, and three systems on IU X-Ray. The edits look at no
image:

- blank: no text;
- vague: only the sentences whose findings state no side, place or size;
- hedged: "Possibly" before every sentence;
- half: the first half of the sentences.

The script prints the mean score of each form with the mean gain of each edit over the honest reports and its bootstrap
95 % interval over references, also of the references with and without a finding of weight above 0. It also prints the
scores without each price of the training form, and the agreement of each form with annotators:

- CTRG and CT-RATE: Kendall's tau with the score in the same form of the annotation, also if the training form prices no
  certainty, places and sizes, which the annotations do not list, and if it prices those that the rules read in the
  quotes of the annotated findings;
- RadPref: Kendall's tau between differences of scores and differences of radiologists' mean ratings, also if normal
  references weigh 1/8.
"""

import argparse
import csv
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from agreement import RESULTS, SHARED, agreement_with_interval, bootstrap_draws, interval, read_preferences
from benchmark_data import need
from crimson_ct_agreement import annotated_evaluation, read_entries
from timing import machine
from torch import Tensor, where

from rrg_rewards.attack.families import split_sentences
from rrg_rewards.data import write_json
from rrg_rewards.findings import extract_findings
from rrg_rewards.functional import (
    CrimsonEvaluation,
    StatedDetails,
    StatedPlace,
    crimson_score,
    crimson_training_score,
    crimson_training_statistics,
)
from rrg_rewards.judges import ReportPair, RuleJudge
from rrg_rewards.version import __version__

SYSTEMS = {
    "CTRG, Reg2RG": ("reg2rg_ctrg/pairs.csv", "GT_whole_report", "Pred_whole_report"),
    "CT-RATE, Reg2RG": ("reg2rg_ct_rate/pairs.csv", "reference", "prediction"),
    "IU X-Ray, fixed normal template": ("iu_xray/systems.csv", "reference", "fixed_normal_template"),
    "IU X-Ray, SFT model": ("iu_xray/systems.csv", "reference", "sft_model"),
    "IU X-Ray, retrieval oracle": ("iu_xray/systems.csv", "reference", "retrieval_oracle"),
}
JUDGE = RuleJudge(unread="normal")
Form = Callable[[Sequence[CrimsonEvaluation]], Tensor]


def vague(report: str) -> str:
    """Return the sentences whose findings state no side, place or size."""
    return " ".join(
        sentence
        for sentence in split_sentences(report)
        if not any(
            finding.presence != "absent" and (finding.laterality or finding.location or finding.size_mm)
            for finding in extract_findings(sentence, open_findings=True)
        )
    )


def hedged(report: str) -> str:
    """Return the report with "Possibly" before every sentence."""
    return " ".join(f"Possibly {sentence[0].lower()}{sentence[1:]}" for sentence in split_sentences(report))


def half(report: str) -> str:
    """Return the first half of the sentences, rounded down."""
    sentences = split_sentences(report)
    return " ".join(sentences[: len(sentences) // 2])


EDITS: dict[str, Callable[[str], str]] = {"blank": lambda _: "", "vague": vague, "hedged": hedged, "half": half}


def changed(change: Callable[[StatedDetails], StatedDetails | None]) -> Form:
    """Return the training form of evaluations whose stated details are changed."""

    def score(evaluations: Sequence[CrimsonEvaluation]) -> Tensor:
        return crimson_training_score(
            [
                replace(
                    evaluation,
                    **{
                        name: tuple(
                            replace(one, stated=None if one.stated is None else change(one.stated))
                            for one in getattr(evaluation, name)
                        )
                        for name in ("reference_findings", "predicted_findings")
                    },
                )
                for evaluation in evaluations
            ]
        )

    return score


FORMS: dict[str, Form] = {"published": crimson_score, "training": crimson_training_score}
# Annotations of CT pairs state no certainty, places and sizes; this form prices what both they and the rules have.
UNSTATED = "nothing stated"
QUOTED = "training, details of the quotes"
# A weight of normal references that differs from that of the form.
LIGHT = 1 / 8
LIGHTER = f"training, normal references weigh {LIGHT:g}"
# The training form without each of its prices. A side without a level keeps the price of omitted sides.
WITHOUT: dict[str, Form] = {
    "all certain": changed(lambda stated: stated._replace(certainty=1.0)),
    "sides only, each finding in one place": changed(
        lambda stated: stated._replace(
            places=tuple(dict.fromkeys(StatedPlace(place.side) for place in stated.places if place.side)), times=1
        )
    ),
    "no omitted sizes": changed(lambda stated: stated._replace(has_size=True)),
    "no places, no omitted sides": changed(lambda stated: stated._replace(places=(), times=1)),
    UNSTATED: changed(lambda _: None),
}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the sets")
    parser.add_argument("--resamples", type=int, default=1000, help="resamples of the bootstrap")
    parser.add_argument("--output", type=Path, default=RESULTS / "crimson_training.json")
    return parser.parse_args()


def evaluate(references: Sequence[str], candidates: Sequence[str]) -> list[CrimsonEvaluation]:
    """Evaluate pairs of reports by rules."""
    return [JUDGE.evaluation(ReportPair(*pair)) for pair in zip(references, candidates, strict=True)]


def effects(honest: Tensor, edited: Tensor, draws: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return the mean score of an edit, and its mean gain over the honest reports with an interval."""
    gains = (edited - honest).numpy()
    return {
        "score": float(edited.mean()),
        "gain": float(gains.mean()),
        **interval(lambda cases: float(gains[cases].mean()), draws),
    }


def measure_system(path: Path, reference: str, prediction: str, resamples: int) -> dict[str, Any]:
    """Return the scores of a system's reports and of their edits, in each form."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row[reference] and row[prediction]]
    references, honest = ([row[column] for row in rows] for column in (reference, prediction))
    evaluated = {"honest": evaluate(references, honest)}
    evaluated |= {name: evaluate(references, list(map(edit, honest))) for name, edit in EDITS.items()}
    # As published, a blank candidate earns exactly for normal references.
    normal = crimson_score(evaluated["blank"]) == 1
    draws = bootstrap_draws(len(rows), resamples)
    found: dict[str, Any] = {"references": len(rows), "normal_references": int(normal.sum())}
    for form, score in {**FORMS, **WITHOUT}.items():
        scores = {name: score(evaluations) for name, evaluations in evaluated.items()}
        found[form] = {"honest": float(scores["honest"].mean())}
        found[form] |= {name: effects(scores["honest"], scores[name], draws) for name in EDITS}
        if form in FORMS:
            for kind, chosen in (("normal", normal), ("abnormal", ~normal)):
                found[form][kind] = {name: float(values[chosen].mean()) for name, values in scores.items()}
    losses = {name: crimson_training_statistics(one).certainty_loss for name, one in evaluated.items()}
    return {**found, "certainty_loss": {name: float(loss.mean()) for name, loss in losses.items()}}


def quoted_details(annotated: dict[str, Any]) -> StatedDetails:
    """Return what the quote of an annotated finding states, as the rules read it.

    Of several findings of a quote, that which shares most words with the annotated one.
    """
    evaluation = JUDGE.evaluation(ReportPair(annotated["quote"], ""))
    own = set(re.findall("[a-z]+", annotated["finding"].lower()))
    stated = [
        (len(own & set(re.findall("[a-z]+", one.finding.lower()))), one.stated)
        for one in evaluation.reference_findings
        if one.stated is not None
    ]
    return max(stated, key=lambda pair: pair[0])[1] if stated else StatedDetails()


def with_quoted_details(entry: dict[str, Any]) -> CrimsonEvaluation:
    """Return the annotation of a pair with the details that its quotes state."""
    evaluation = annotated_evaluation(entry)
    reference, predicted = (
        tuple(
            replace(one, stated=quoted_details(annotated))
            for one, annotated in zip(findings, entry[f"{name}_findings"], strict=True)
        )
        for name, findings in (
            ("reference", evaluation.reference_findings),
            ("candidate", evaluation.predicted_findings),
        )
    )
    return replace(evaluation, reference_findings=reference, predicted_findings=predicted)


def agreement(data: Path, resamples: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return the agreement of each form with annotators of each set."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    compared = {**FORMS, UNSTATED: WITHOUT[UNSTATED]}
    for name, entries in read_entries(data).items():
        pairs = evaluate(*([entry[report] for entry in entries] for report in ("reference", "candidate")))
        annotated = list(map(annotated_evaluation, entries))
        draws = bootstrap_draws(len(entries), resamples)
        found[name] = {
            form: agreement_with_interval(score(pairs).numpy(), score(annotated).numpy(), draws)
            for form, score in compared.items()
        }
        quoted = crimson_training_score(list(map(with_quoted_details, entries))).numpy()
        found[name][QUOTED] = agreement_with_interval(crimson_training_score(pairs).numpy(), quoted, draws)
    need(data / "radpref" / "pairs.json", "RadPref by CRIMSON's authors, with radiologists' ratings")
    cases = read_preferences(data / "radpref" / "pairs.json")
    ratings = np.array([np.mean(case.ratings) for case in cases])
    first, second = (
        [
            JUDGE.evaluation(ReportPair(case.reference, case.candidates[i], tuple(case.context.items())))
            for case in cases
        ]
        for i in range(2)
    )
    draws = bootstrap_draws(len(cases), resamples)
    normal = crimson_score(evaluate([case.reference for case in cases], [""] * len(cases))) == 1
    lighter: dict[str, Form] = {
        LIGHTER: lambda pairs: where(normal, LIGHT * crimson_training_score(pairs), crimson_training_score(pairs))
    }
    found["RadPref"] = {
        form: agreement_with_interval((score(first) - score(second)).numpy(), ratings, draws)
        for form, score in {**compared, **lighter}.items()
    }
    return found


def show(name: str, found: dict[str, Any]) -> None:
    """Print the figures of a system."""
    print(f"\n{name}: {found['references']} references, {found['normal_references']} of them normal")
    for form in (*FORMS, *WITHOUT):
        row = found[form]
        gains = ", ".join(
            f"{edit} {row[edit]['gain']:+.3f} ({row[edit]['low']:+.3f} to {row[edit]['high']:+.3f})" for edit in EDITS
        )
        print(f"  {form:38s} honest {row['honest']:.3f}; gain of {gains}")
        for kind in ("normal", "abnormal") if form in FORMS else ():
            print(f"    {kind}: {', '.join(f'{edit} {value:.3f}' for edit, value in row[kind].items())}")


def main() -> None:
    """Compare, print and write."""
    arguments = parse_arguments()
    result: dict[str, Any] = {"version": __version__, "judge": JUDGE.signature, "systems": {}}
    result |= {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine()}
    for name, (table, *columns) in SYSTEMS.items():
        need(arguments.data / table, "reference reports and those of a real system")
        result["systems"][name] = measure_system(arguments.data / table, *columns, arguments.resamples)
        show(name, result["systems"][name])
    result["kendall_tau"] = agreement(arguments.data, arguments.resamples)
    for name, forms in result["kendall_tau"].items():
        taus = ", ".join(
            f"{form} {row['tau']:.3f} ({row['low']:.3f} to {row['high']:.3f})" for form, row in forms.items()
        )
        print(f"{name}: tau of {taus}")
    write_json(result, arguments.output, overwrite=True)


if __name__ == "__main__":
    main()
