"""Small files in the layouts of the public data sets of annotated report pairs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data import Table, write_table

REFERENCES = ["Small pleural effusion.", "Cardiomegaly. Emphysema.", "Atelectasis.", "Hiatal hernia. Pleural effusion."]
CANDIDATES = ["Pleural effusion.", "Emphysema.", "Normal chest.", "Hiatal hernia. Pleural effusion."]
ERRORS = [1, 2, 3, 0]
"""Numbers of errors of the candidates."""

EXPERT_CATEGORIES = (
    "False prediction of finding",
    "Omission of finding",
    "Incorrect location/position of finding",
    "Incorrect severity of finding",
    "Mention of comparison that is not present in the reference",
    "Omission of a change from a previous study",
    "Inarticulate report (grammar and readability issues)",
)
CHEST2ERROR_CATEGORIES = (
    "1_false_finding",
    "2_omission",
    "3_location",
    "4_severity",
    "5_spurious_comparison",
    "6_omitted_comparison",
)
V0 = "id,indication,impression_original,impression_edited,score,annotator,source"
V1 = (
    "data_id,subject_id,study_id,report_type,report_text,original_line,corrected_line,error_clinical_severity,comments,"
    "annotator_id"
)


def write_csv(path: Path, header: Sequence[str], *rows: Sequence[Any]) -> Path:
    write_table(Table({name: [row[place] for row in rows] for place, name in enumerate(header)}), path, overwrite=True)
    return path


def write_rexval(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    pairs = zip(REFERENCES, CANDIDATES, strict=True)
    write_csv(
        folder / "50_samples_gt_and_candidates.csv", ["study_id", "gt_report", "radgraph"], *[("s", *p) for p in pairs]
    )
    header = ["study_number", "candidate_type", "error_category", "clinically_significant", "rater_index", "num_errors"]
    rows = [(study, "radgraph", 2, True, rater, count) for study, count in enumerate(ERRORS) for rater in (0, 1)]
    write_csv(folder / "6_valid_raters_per_rater_error_categories.csv", header, *rows)
    return folder


def write_radevalx(folder: Path) -> Path:
    """Write the release; an error is significant, and one insignificant error is of category 7."""
    folder.mkdir(exist_ok=True)
    header = ["report_id", "ground_truth", "M2Tr-Generation", *"12345678"]
    names = {True: "RadEval_clinically_significant_errors.csv", False: "RadEval-clinically_insignificant_errors.csv"}
    for significant, name in names.items():
        rows = [
            (
                f"CXR{number}",
                reference,
                candidate,
                None,
                count if significant else None,
                *[None] * 4,
                0 if significant else 1,
                0,
            )
            for number, (reference, candidate, count) in enumerate(zip(REFERENCES, CANDIDATES, ERRORS, strict=True))
        ]
        write_csv(folder / name, header, *rows)
    return folder


def expert_annotation(significant: Sequence[Any], insignificant: Sequence[Any]) -> str:
    parts = []
    for name, counts in (("**Significant:**", significant), ("Insignificant:", insignificant)):
        lines = zip(EXPERT_CATEGORIES, counts, strict=True)
        parts.append("\n".join([name, *(f"{n}. {text}: {count}" for n, (text, count) in enumerate(lines, start=1))]))
    return "\n\n".join(parts)


def chest2error_row(
    anchor: str, style: str, reference: str, candidate: str, omissions: int, minor: int
) -> dict[str, Any]:
    errors = [{"category": 2, "criticality": "Critical", "section": "Lung & Airways"}] * omissions
    errors += [{"category": 4, "criticality": "Minor", "section": "Pleura"}] * minor
    counts = {**dict.fromkeys(CHEST2ERROR_CATEGORIES, 0), "2_omission": omissions, "4_severity": minor}
    return {
        "anchor_id": anchor,
        "reference_style": style,
        "variant_id": "V1",
        "reference_report": reference,
        "candidate_report": candidate,
        "rad_error_count": omissions + minor,
        "rad_error_count_capped": min(omissions + minor, 10),
        "rad_critical_count": omissions,
        "rad_minor_count": minor,
        "rad_weighted_error": omissions + 0.25 * minor,
        "rad_has_critical_error": omissions > 0,
        **{f"rad_cat_count_{name}": count for name, count in counts.items()},
        "rad_errors": json.dumps(errors),
    }


def write_chest2error(path: Path) -> Path:
    """Write four anchors in two styles, as the data set has them; the format is that of the ending."""
    rows = [
        chest2error_row(f"valid_{number}_a_1.npz", style, f"{start}{reference}", candidate, count, number % 2)
        for number, (reference, candidate, count) in enumerate(zip(REFERENCES, CANDIDATES, ERRORS, strict=True))
        for style, start in (("GT-U", ""), ("GT-S", "[Lungs] "))
    ]
    write_table(Table.from_records(rows), path, overwrite=True)
    return path


def write_refisco(path: Path) -> Path:
    rows: list[tuple[Any, ...]] = []
    for number, (reference, candidate, count) in enumerate(zip(REFERENCES, CANDIDATES, ERRORS, strict=True)):
        row = (f"s{number}", "Cough.")
        rows.append((*row, candidate, "[no edit]" if not count else reference, 2 * bool(count), "r1", "X-REM"))
        rows += [(*row, None, f"Missed finding {place}.", 1, "r1", "X-REM") for place in range(1, count)]
    return write_csv(path, V0.split(","), *rows)


def write_radpref(path: Path) -> Path:
    def judgement(rating: int) -> Mapping[str, Any]:
        return {"finding_errors": {}, "missing_findings": {}, "rating": rating}

    entries = [
        {
            "id": f"p{number}",
            "PatientAge": "66",
            "ground_truth_report": reference,
            "C1_report": candidate,
            "C2_report": reference,
            "radiologists": [{"C1": judgement(4 - count), "C2": judgement(5)}],
        }
        for number, (reference, candidate, count) in enumerate(zip(REFERENCES, CANDIDATES, ERRORS, strict=True))
    ]
    path.write_text(json.dumps(entries))
    return path


def write_rate_eval(path: Path) -> Path:
    entries = [
        {"gt": reference, "pred": candidate, "errors": [0, count, 0, 0, 0, 0]}
        for reference, candidate, count in zip(REFERENCES, CANDIDATES, ERRORS, strict=True)
    ]
    path.write_text(json.dumps(entries))
    return path


WRITERS = {
    "rexval": (write_rexval, "rexval"),
    "radevalx": (write_radevalx, "rad-eval-x-1.0.0"),
    "chest2error": (write_chest2error, "gold_pairs.parquet"),
    "refisco": (write_refisco, "refisco-v0.csv"),
    "radpref": (write_radpref, "pairs.json"),
    "rate_eval": (write_rate_eval, "rate_eval.json"),
}
"""The writer of each data set by its name, and the name of its file or folder."""
