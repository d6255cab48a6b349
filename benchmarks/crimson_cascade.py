"""Measure a cascade of CRIMSON's rules and a second judge: which pairs stay with the rules, and what the others gain.

    python benchmarks/crimson_cascade.py
    python benchmarks/crimson_cascade.py --data FOLDER

The script prints, for reports of chest CT (CT-RATE, CTRG) and chest X-ray (RadPref, IU X-Ray):

- the share of pairs that stay with the rules at several values of ``max_unread``;
- on the annotated pairs, with a second judge that knows the annotations: Kendall's tau of the cascade at values of
  ``max_unread`` and of ``max_disagreement``, and the mean tau if the same number of pairs is sent at random;
- for signals that the rules have, Kendall's tau between the signal and the error of the rules' score (the difference
  from the score of the annotation), and the tau of a cascade and the share of the sum of errors that is left, if the
  pairs with the highest signal are sent. Of pairs with an equal signal, the order is random, and the mean over orders
  is given. ``error`` is the best possible signal, the error itself;
- how much more error is left if the pairs are sent by their unread share or at random than by the disagreement of score
  and finding F1, with a bootstrap 95 % interval over pairs (on RadPref over cases).

On CT, tau is that between the scores and those of the annotation. On RadPref it is that between differences of the
scores of two candidates and of their mean ratings. There the second judge is each radiologist in turn, and scores are
means over the three. Their annotation does not say which findings match, nor how significant a matched finding is: the
evaluation takes the significance that a radiologist gives the finding where it is missing, and else
``actionable_not_urgent``.
"""

import argparse
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agreement import CANDIDATES, RESULTS, SHARED, Array, read_preferences
from benchmark_data import need
from crimson_agreement import SYSTEMS
from crimson_ct_agreement import REPORTS, SETS, annotated_evaluation, read_entries

from rrg_rewards.findings import compare_findings, extract_findings
from rrg_rewards.findings.reading.sentences import report_units, split_unit
from rrg_rewards.functional import CrimsonAttributeError, CrimsonEvaluation, CrimsonFinding, crimson_score
from rrg_rewards.functional.agreement import human_agreement
from rrg_rewards.judges import CascadeJudge, Judge, JudgeTask, ReportPair, RuleJudge
from rrg_rewards.judges.cascade import disagreements
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.version import __version__

MAX_UNREAD = (0.0, 0.02, 0.05, 0.1)
MAX_DISAGREEMENT = (0.3, 0.2, 0.1, 0.05)
UNREAD, DISAGREEMENT, RANDOM = "unread share, larger of both", "finding F1 and score differ", "random"
# Shares of the pairs that are sent by a signal.
SENT = (0.1, 0.2, 0.3, 0.5)
UNKNOWN_LEVEL = "actionable_not_urgent"


class AnnotationJudge(Judge):
    """Judge that returns the annotation of each pair."""

    is_immediate = True
    has_independent_rows = True

    def __init__(self, evaluations: Mapping[ReportPair, CrimsonEvaluation]) -> None:
        self.evaluations = dict(evaluations)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge."""
        return {"evaluations": self.evaluations}

    @property
    def signature(self) -> str:
        """Name of the judge."""
        return "annotation"

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:  # noqa: ARG002 (any task)
        """Return the annotations of the pairs."""
        return [self.evaluations[item] for item in items]


@dataclass(frozen=True)
class AnnotatedSet:
    """Annotated pairs.

    Args:
        pairs: ``N`` pairs.
        annotations: The annotations of each annotator, ``N`` each.
        target: What the scores are compared with, or their differences if there are two pairs for each value.
        schema: Label set of the modality.
    """

    pairs: tuple[ReportPair, ...]
    annotations: tuple[tuple[CrimsonEvaluation, ...], ...]
    target: Array
    schema: str

    def tau(self, scores: Array) -> float:
        """Return Kendall's tau of scores ``(N,)``."""
        compared = scores if len(scores) == len(self.target) else scores[::2] - scores[1::2]
        return float(human_agreement(torch.from_numpy(compared), torch.from_numpy(self.target)))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the sets")
    parser.add_argument("--draws", type=int, default=100, help="random orders of the pairs")
    parser.add_argument("--resamples", type=int, default=1000, help="resamples of the bootstrap")
    parser.add_argument("--output", type=Path, default=RESULTS / "crimson_cascade.json")
    return parser.parse_args()


def all_pairs(data: Path) -> dict[str, list[ReportPair]]:
    """Read all pairs of each set, also those without annotations."""
    found = {}
    for name, (_, table, reference, candidate) in sorted(SETS.items()):
        found[name] = [ReportPair(row[reference], row[candidate]) for row in read_rows(data / table / "pairs.csv")]
    cases = read_preferences(data / "radpref" / "pairs.json")
    found["RadPref"] = [
        ReportPair(case.reference, text, tuple(case.context.items())) for case in cases for text in case.candidates
    ]
    need(data / "iu_xray" / "systems.csv", "reports of three systems on IU X-Ray, from MRG_RL's results")
    rows = read_rows(data / "iu_xray" / "systems.csv")
    # The first system is a fixed template.
    found["IU X-Ray"] = [ReportPair(row["reference"], row[system]) for row in rows for system in SYSTEMS[1:]]
    return found


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def annotated_sets(data: Path) -> dict[str, AnnotatedSet]:
    """Read the annotated pairs."""
    need(data / "radpref" / "pairs.json", "RadPref by CRIMSON's authors, with radiologists' ratings")
    found = {}
    for name, entries in sorted(read_entries(data).items()):
        pairs = tuple(ReportPair(*(entry[report] for report in REPORTS)) for entry in entries)
        evaluations = tuple(annotated_evaluation(entry) for entry in entries)
        found[name] = AnnotatedSet(pairs, (evaluations,), crimson_score(evaluations).numpy(), "ct_rate")
    cases = json.loads((data / "radpref" / "pairs.json").read_text(encoding="utf-8"))
    readers = len(cases[0]["radiologists"])
    found["RadPref"] = AnnotatedSet(
        tuple(all_pairs(data)["RadPref"]),
        tuple(
            tuple(radiologist_evaluation(case, reader, candidate) for case in cases for candidate in CANDIDATES)
            for reader in range(readers)
        ),
        np.array([np.mean(case.ratings) for case in read_preferences(data / "radpref" / "pairs.json")]),
        "chexbert",
    )
    return found


def radiologist_evaluation(case: Mapping[str, Any], reader: int, candidate: str) -> CrimsonEvaluation:
    """Return a radiologist's annotation of a candidate of RadPref as an evaluation."""
    judged = case["radiologists"][reader][candidate]
    missing, errors = judged["missing_findings"], judged["finding_errors"]
    ours = sorted({*map(str, range(len(case["ground_truth_findings"]))), *missing})
    theirs = sorted({*map(str, range(len(case[f"{candidate}_findings"]))), *errors})
    false = [key for key in theirs if errors.get(key, {}).get("error_type") == "false"]
    matched, found = [key for key in theirs if key not in false], [key for key in ours if key not in missing]
    # Each matched finding of the reference gets a finding of the candidate, in their order.
    matches = [(f"R{key}", f"P{matched[place % len(matched)]}") for place, key in enumerate(found)] if matched else []
    partners = {theirs: ours for ours, theirs in reversed(matches)}
    return CrimsonEvaluation(
        tuple(CrimsonFinding(f"R{key}", "", _level(case, reader, candidate, key)) for key in ours),
        tuple(
            CrimsonFinding(f"P{key}", "", errors.get(key, {}).get("clinical_significance", UNKNOWN_LEVEL))
            for key in theirs
        ),
        tuple(matches),
        tuple(f"P{key}" for key in false),
        # Without a matched finding of the candidate, nothing is found.
        tuple(f"R{key}" for key in (missing if matched else ours)),
        tuple(
            CrimsonAttributeError(partners[f"P{key}"], f"P{key}", severity, (kind,))
            for key in matched
            if f"P{key}" in partners
            for kind, severity in errors.get(key, {}).get("attributes", {}).items()
        ),
    )


def _level(case: Mapping[str, Any], reader: int, candidate: str, key: str) -> str:
    """Return the significance of a reference finding: that by this radiologist, or else by another one."""
    readers = [reader, *(other for other in range(len(case["radiologists"])) if other != reader)]
    for one in readers:
        for text in (candidate, *CANDIDATES):
            stated = case["radiologists"][one][text]["missing_findings"].get(key)
            if stated is not None:
                return str(stated["clinical_significance"])
    return UNKNOWN_LEVEL


def signals(annotated: AnnotatedSet, scores: Array) -> dict[str, Array]:
    """Return what the rules know about their doubt about each pair, ``(N,)`` by name; higher is more doubtful."""
    labeler = RuleLabeler(annotated.schema)
    ours, theirs = (labeler([getattr(pair, name) for pair in annotated.pairs]) for name in REPORTS)
    total = ours.sum(-1) + theirs.sum(-1)
    label_f1 = torch.where(total > 0, 2 * (ours & theirs).sum(-1) / total.clamp(min=1), 1.0).numpy()
    judge = RuleJudge()
    evaluations = [judge.evaluation(pair) for pair in annotated.pairs]
    rows = [_signals(pair) for pair in annotated.pairs]
    found = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
    return {
        **found,
        "matched findings": np.array([len({ref_id for ref_id, _ in one.matched_findings}) for one in evaluations]),
        "errors in attributes": np.array([len(one.attribute_errors) for one in evaluations]),
        "label F1 and score differ": np.abs(label_f1 - scores.clip(min=0)),
        DISAGREEMENT: np.array(disagreements(evaluations)),
    }


def _signals(pair: ReportPair) -> dict[str, float]:
    comparison = compare_findings(pair.reference, pair.candidate, dict(pair.context), open_findings=True)
    coverages = [one for one in (comparison.reference_coverage, comparison.candidate_coverage) if one is not None]
    findings = [*comparison.reference, *comparison.candidate]
    sentences = read = 0
    for report in (pair.reference, pair.candidate):
        sentences += sum(len(split_unit(unit)) for unit in report_units(report))
        read += len({finding.sentence for finding in extract_findings(report, open_findings=True)})
    unmatched = len(comparison.false) + len(comparison.missing)
    return {
        UNREAD: max(coverage.unread_share for coverage in coverages),
        "unread words of both": sum(coverage.num_unread for coverage in coverages),
        "open findings": sum(finding.concept == "other_finding" for finding in findings),
        "uncertain mentions": sum(finding.presence == "uncertain" for finding in findings),
        "share of sentences without a finding": 1 - read / max(sentences, 1),
        "findings without a counterpart": unmatched,
        "share of them": unmatched / max(len(findings), 1),
        "findings": len(findings),
        "content words": sum(coverage.num_words for coverage in coverages),
    }


def rule_scores(annotated: AnnotatedSet) -> Array:
    """Return the scores of the rules, as if unread words of a reference were not there."""
    judge = RuleJudge()
    return crimson_score([judge.evaluation(pair) for pair in annotated.pairs]).numpy()


def cascade_scores(annotated: AnnotatedSet, **settings: float) -> tuple[Array, float]:
    """Return the scores of the cascade, means over annotators, and the share of pairs that were sent."""
    scores, sent = [], 0.0
    for evaluations in annotated.annotations:
        second = AnnotationJudge(dict(zip(annotated.pairs, evaluations, strict=True)))
        metric = CRIMSON(judge=CascadeJudge(second, **settings))
        judged = metric._judged(metric.judge.evaluate_now(metric.task, annotated.pairs))
        scores.append(judged.value.numpy())
        sent = judged.routes.count("second") / len(annotated.pairs)
    return np.mean(scores, axis=0), sent


def annotation_scores(annotated: AnnotatedSet) -> Array:
    """Return the scores of the annotations, means over annotators."""
    return np.mean([crimson_score(evaluations).numpy() for evaluations in annotated.annotations], axis=0)


def mean_tau(annotated: AnnotatedSet, both: tuple[Array, Array], signal: Array, count: int, draws: int) -> float:
    """Return the mean tau if the ``count`` pairs with the highest signal are sent, over random orders of equal ones."""
    rules, annotation = both
    random = np.random.default_rng(0)
    taus = []
    for _ in range(draws):
        order = np.lexsort((random.random(len(signal)), -signal))
        scores = rules.copy()
        scores[order[:count]] = annotation[order[:count]]
        taus.append(annotated.tau(scores))
    return float(np.mean(taus))


def error_left(error: Array, signal: Array, share: float, random: np.random.Generator) -> float:
    """Return the share of the sum of errors that is left if the pairs with the highest signal are sent."""
    order = np.lexsort((random.random(len(signal)), -signal))
    return float(1 - error[order[: round(share * len(error))]].sum() / error.sum())


def compare(error: Array, known: Mapping[str, Array], step: int, draws: int, resamples: int) -> dict[str, Any]:
    """Return how much more error other signals leave than the disagreement, by signal and by share that is sent.

    Args:
        error: Error of each pair.
        known: Signals by name.
        step: Number of pairs of a case.
        draws: Random orders of pairs with an equal signal.
        resamples: Resamples of the bootstrap over cases.

    Returns:
        Arrays ``(1 + resamples,)``: the difference, and that of each resample.
    """
    random = np.random.default_rng(0)
    cases = len(error) // step
    rows = [(random.integers(cases, size=cases)[:, None] * step + np.arange(step)).ravel() for _ in range(resamples)]

    def differences(name: str, share: float) -> Array:
        means = [mean_error_left(error, known[one], share, draws) for one in (name, DISAGREEMENT)]
        left = [
            [error_left(error[row], known[one][row], share, random) for row in rows] for one in (name, DISAGREEMENT)
        ]
        return np.array([means[0] - means[1], *np.subtract(*left)])

    return {name: {str(share): differences(name, share) for share in SENT} for name in (UNREAD, RANDOM)}


def summarised(differences: Array) -> dict[str, float]:
    """Return a difference with its interval."""
    low, high = np.quantile(differences[1:], (0.025, 0.975))
    return {"difference": float(differences[0]), "low": float(low), "high": float(high)}


def measure(annotated: AnnotatedSet, draws: int, resamples: int) -> dict[str, Any]:
    """Return the figures of a set."""
    rules, annotation = rule_scores(annotated), annotation_scores(annotated)
    error, count = np.abs(rules - annotation), len(annotated.pairs)
    tau_of: Callable[[Array, int], float] = partial(
        lambda signal, sent: mean_tau(annotated, (rules, annotation), signal, sent, draws)
    )
    settings = [{"max_unread": limit} for limit in MAX_UNREAD]
    settings += [{"max_unread": 1.0, "max_disagreement": limit} for limit in MAX_DISAGREEMENT]
    settings += [{"max_unread": 0.0, "max_disagreement": limit} for limit in MAX_DISAGREEMENT]
    cascade = []
    for one in settings:
        scores, sent = cascade_scores(annotated, **one)
        at_random = tau_of(np.zeros(count), round(sent * count))
        cascade.append({**one, "sent": sent, "tau": annotated.tau(scores), "tau_at_random": at_random})
    known = {**signals(annotated, rules), RANDOM: np.zeros(count), "error": error}
    return {
        "pairs": count,
        "tau_of_rules": annotated.tau(rules),
        "tau_of_annotation": annotated.tau(annotation),
        "mean_error": float(error.mean()),
        "cascade": cascade,
        "signals": {
            name: {
                "tau_with_error": None if np.ptp(signal) == 0 else _tau(signal, error),
                "tau": {str(share): tau_of(signal, round(share * count)) for share in SENT},
                "error_left": {str(share): mean_error_left(error, signal, share, draws) for share in SENT},
            }
            for name, signal in known.items()
        },
        "differences": compare(error, known, count // len(annotated.target), draws, resamples),
    }


def mean_error_left(error: Array, signal: Array, share: float, draws: int) -> float:
    """Return the mean of :func:`error_left` over random orders of equal signals."""
    random = np.random.default_rng(0)
    return float(np.mean([error_left(error, signal, share, random) for _ in range(draws)]))


def _tau(first: Array, second: Array) -> float:
    return float(human_agreement(torch.from_numpy(first), torch.from_numpy(second)))


def kept_shares(pairs: Sequence[ReportPair]) -> dict[str, float]:
    """Return the share of pairs that stay with the rules, by ``max_unread``."""
    found = {}
    for limit in MAX_UNREAD:
        judge = CascadeJudge(AnnotationJudge({}), max_unread=limit)
        routes = judge.plan(CrimsonTask(), pairs)
        found[str(limit)] = sum(routes[pair] == "rules" for pair in pairs) / len(pairs)
    return found


def mean_of_sets(found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the differences of each set and of their mean, with intervals, and remove the resamples from the sets."""
    each = {name: row.pop("differences") for name, row in found.items()}
    first = next(iter(each.values()))
    each["mean of the sets"] = {
        other: {share: np.mean([one[other][share] for one in each.values()], axis=0) for share in shares}
        for other, shares in first.items()
    }
    return {
        name: {
            other: {share: summarised(differences) for share, differences in shares.items()}
            for other, shares in one.items()
        }
        for name, one in each.items()
    }


def main() -> None:
    """Measure, print and write."""
    arguments = parse_arguments()
    sets = annotated_sets(arguments.data)
    kept = {
        name: {"pairs": len(pairs), "kept": kept_shares(pairs)} for name, pairs in all_pairs(arguments.data).items()
    }
    print("Share of pairs that stay with the rules")
    print(f"{'max_unread':20s}", *(f"{limit:8.2f}" for limit in MAX_UNREAD))
    for name, row in kept.items():
        print(f"{name:12s}{row['pairs']:8d}", *(f"{row['kept'][str(limit)]:8.3f}" for limit in MAX_UNREAD))
    found = {name: measure(annotated, arguments.draws, arguments.resamples) for name, annotated in sets.items()}
    for name, row in found.items():
        print(f"\n{name}: {row['pairs']} pairs, tau of the rules {row['tau_of_rules']:.3f}, of the annotation "
              f"{row['tau_of_annotation']:.3f}")  # fmt: skip
        for one in row["cascade"]:
            limits = ", ".join(f"{limit} {one[limit]}" for limit in ("max_unread", "max_disagreement") if limit in one)
            print(f"  {limits:42s} sent {one['sent']:.2f}, tau {one['tau']:.3f}, at random {one['tau_at_random']:.3f}")
        print(f"  {'signal':40s} with error; tau and error left after sending", *SENT)
        for signal, one in row["signals"].items():
            tau = "" if one["tau_with_error"] is None else f"{one['tau_with_error']:.3f}"
            pairs = zip(one["tau"].values(), one["error_left"].values(), strict=True)
            print(f"  {signal:40s} {tau:>10s}", *(f"{value:10.3f} {left:.2f}" for value, left in pairs))
    compared = mean_of_sets(found)
    for name, row in compared.items():
        print(f"\n{name}")
        for other, shares in row.items():
            differences = (
                f"{one['difference']:8.2f} ({one['low']:.2f} to {one['high']:.2f})" for one in shares.values()
            )
            print(f"  more error left by {other:30s}", *differences)
    result = {
        "version": __version__,
        "judge": RuleJudge().signature,
        "kept": kept,
        "sets": found,
        "more_error_left_than_by_disagreement": compared,
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
