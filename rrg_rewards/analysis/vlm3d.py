"""The evaluation of generated reports of the VLM3D challenge, with the rules and the file of its official scripts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.analysis.judge_choice import choose_labeler
from rrg_rewards.analysis.labelling import label_table
from rrg_rewards.analysis.settings import LabelSettings, VLM3DSettings
from rrg_rewards.data.tables.json_documents import IMAGE_COLUMN, read_report_lists
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.studies import study_name
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.functional.label_counts import label_counts, label_statistics
from rrg_rewards.metrics.registry import make_metric
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

_STUDY, _REPORT = "AccessionNo", "report"
_METEOR = "METEOR"
_STATISTICS = ("precision", "recall", "f1", "accuracy")
# What the official scripts remove from names: those of the classification, and that of CRG.
_CLASSIFIED_PREDICTION, _CLASSIFIED_REFERENCE, _CRG = (".npz",), (".nii.gz",), (".nii.gz", ".npz", "_embedded")
# Official name of each text metric but BLEU.
_TEXT_METRICS = {"ROUGE_L": "coco_rouge", "CIDEr": "cider", _METEOR: "coco_meteor"}


@dataclass(frozen=True)
class VLM3DCounts:
    """Numbers of studies and predictions.

    Args:
        references: Studies with a reference report.
        predictions: Studies with a predicted report.
        scored_texts: Studies with both, which the text metrics compare.
        labelled_studies: Studies with reference labels.
        without_labels: Of these, the studies without labels of a prediction, which count as negative.
        ignored_predictions: Predictions of studies without a reference report.
        ignored_jobs: Further lists of reports in the file of predictions, which the official evaluation does not read.
    """

    references: int
    predictions: int
    scored_texts: int
    labelled_studies: int
    without_labels: int
    ignored_predictions: int
    ignored_jobs: int


@dataclass(frozen=True)
class VLM3DEvaluation:
    """Result of :func:`evaluate_vlm3d`.

    Args:
        metrics: Content of the official ``metrics.json``: ``generation``, ``classification`` and ``crg``.
        labels: Labels of the predictions, as the official ``inferred.csv``.
        counts: Numbers of studies and predictions.
        labeler: Signature of the labeler, or the path of the table of labels.
    """

    metrics: Mapping[str, Any]
    labels: Table
    counts: VLM3DCounts
    labeler: str


def evaluate_vlm3d(predictions: str | Path, settings: VLM3DSettings, log: RunLog | None = None) -> VLM3DEvaluation:
    r"""Evaluate generated reports as the official evaluation of the VLM3D challenge.

    - **Files.** The predictions are the first output of the first job of ``predictions.json``, or the file of an
      algorithm. What follows the last dot of ``input_image_name`` is removed before reports are joined with references.
    - **Text metrics** compare the studies that have a prediction and a reference. Line breaks and spaces before full
      stops are removed from both texts, and ``<|eot_id|>``, ``"`` and ``_`` from predictions.
    - **Labels.** Predictions are labelled as they are. A study of the reference labels without a prediction has no
      positive label.
    - **Classification**: precision, recall, F1 and accuracy of each label, 0 if undefined, and their means.
    - **CRG** of the pooled labels, with :math:`X` label decisions and :math:`A` positive reference labels:

    .. math::
        r = \frac{X - A}{2A}, \quad U = \frac{X - A}{2}, \quad s = r \, TP - r \, FN - FP, \quad CRG = \frac{U}{2U - s}

    Studies that are missing, left over or repeated are counted and reported to the log. Two predictions of a study are
    an error, as in the official evaluation.

    Source: forithmus/VLM3D-Dockers, ``reportgen_evaluation``. The first version of its scripts stopped at a study
    without a prediction; the later version, which this function follows, counts its labels as negative.

    Args:
        predictions: Path of the predictions.
        settings: The other files, and the labeler.
        log: Receives notes, warnings and progress.

    Raises:
        SettingError: If the labeler is unknown, or does not have the labels of CT-RATE.
        TableError: If a file is malformed, a study has two predictions, or no prediction has a reference.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from rrg_rewards.data import write_report_document, write_table
        >>> predictions = Table({"study": ["s1"], "prediction": ["Findings: Enlarged heart."]})
        >>> references = Table({"study": ["s1"], "prediction": ["Findings: Cardiomegaly."]})
        >>> labels = {label: [int(label == "Cardiomegaly")] for label in CT_RATE.labels}
        >>> with TemporaryDirectory() as folder:
        ...     files = [Path(folder) / name for name in ("predictions.json", "ground_truth.json", "ground_truth.csv")]
        ...     write_report_document(predictions, files[0], "vlm3d-predictions", study_column="study")
        ...     write_report_document(references, files[1], "vlm3d", study_column="study")
        ...     write_table(Table({"AccessionNo": ["s1"], **labels}), files[2])
        ...     options = {"references": files[1], "label_table": files[2], "labeler": "rules:ct_rate"}
        ...     found = evaluate_vlm3d(files[0], VLM3DSettings(**options, no_meteor=True))
        >>> found.metrics["crg"]["CRG"], found.counts.scored_texts
        (1.0, 1)
    """
    log = log or RunLog()
    reports, ignored_jobs = _first_reports(predictions, log)
    truth = _reference_reports(settings.references)
    target = _reference_labels(settings.label_table)
    names = [PurePosixPath(name).stem for name in reports.required_texts(IMAGE_COLUMN)]
    _rows(names, reports, ())
    references, candidates = _texts(truth, log), _texts(reports, log)
    shared = sorted(references.keys() & candidates.keys())
    _report_unmatched(references, candidates, settings.references, log)
    predicted, labeler = _predicted_labels(reports, names, settings, log)
    classified, missing = _aligned(predicted, target, _CLASSIFIED_PREDICTION, _CLASSIFIED_REFERENCE)
    weighed, missing_in_crg = _aligned(predicted, target, _CRG, _CRG)
    _report_missing_labels(target, missing, missing_in_crg, log)
    counts = VLM3DCounts(
        references=len(references),
        predictions=len(candidates),
        scored_texts=len(shared),
        labelled_studies=len(target.names),
        without_labels=max(len(missing), len(missing_in_crg)),
        ignored_predictions=len(candidates) - len(shared),
        ignored_jobs=ignored_jobs,
    )
    text_metrics = [key for key in _TEXT_METRICS if key != _METEOR or not settings.no_meteor]
    texts = [candidates[name] for name in shared], [references[name] for name in shared]
    metrics = {
        "generation": _generation(*texts, text_metrics, log),
        "classification": _classification(classified, target),
        "crg": _crg(weighed, target),
    }
    return VLM3DEvaluation(metrics, predicted.table, counts, labeler)


def _first_reports(path: str | Path, log: RunLog) -> tuple[Table, int]:
    """Return the first list of reports of the predictions, and the number of further lists."""
    first, *others = read_report_lists(path)
    if others:
        log.warn(
            f"{path} has {1 + len(others)} lists of reports, one for each output of a job; the official evaluation "
            f"reads the first, with {len(first)} reports, and not the {sum(map(len, others))} reports of the others"
        )
    return first, len(others)


def _reference_reports(path: str | Path) -> Table:
    tables = read_report_lists(path)
    if len(tables) > 1:
        raise TableError(f"{path}: has {len(tables)} lists of reports; the reference reports must be one")
    return tables[0]


def _texts(table: Table, log: RunLog) -> dict[str, str]:
    """Return the reports by their names without what follows the last dot; of several, the last."""
    names = [name.rsplit(".", 1)[0] for name in table.required_texts(IMAGE_COLUMN)]
    texts = dict(zip(names, table.required_texts(_REPORT), strict=True))
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        log.warn(
            f"{table.source}: more than one report of {_named(repeated)}; the last one counts, as in the official "
            "evaluation"
        )
    return texts


def _named(names: Sequence[str]) -> str:
    """Return the number of names and the first of them."""
    shown = f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
    return f"{len(names)} {'study' if len(names) == 1 else 'studies'} ({shown})"


def _report_unmatched(
    references: Mapping[str, str], candidates: Mapping[str, str], path: str | Path, log: RunLog
) -> None:
    """Say which studies have no prediction and which predictions no reference; raise if no study has both."""
    missing = [name for name in references if name not in candidates]
    further = [name for name in candidates if name not in references]
    # Names that the rest of this package would join.
    known = {study_name(f"{name}.mha") for name in missing}
    close = [name for name in further if study_name(name) in known or study_name(f"{name}.mha") in known]
    hint = (
        f"; {_named(close)} would match without their folder and ending, but the official evaluation only removes "
        "what follows the last dot: rrg-rewards convert reports writes such names"
        if close
        else ""
    )
    if len(missing) == len(references):
        raise TableError(f"no prediction is of a study of {path}; predicted are {_named(further)}{hint}")
    if missing:
        log.warn(
            f"no prediction for {_named(missing)} of {len(references)} in {path}: the text metrics leave them out, as "
            "in the official evaluation"
        )
    if further:
        log.warn(f"predictions without a reference report in {path} are ignored: {_named(further)}{hint}")


@dataclass(frozen=True)
class _Labels:
    """Labels of studies.

    Args:
        table: Column of names, and a 0/1 column for each label.
        names: Names of the ``N`` studies.
        values: Bool tensor ``(N, L)`` with the labels in the order of CT-RATE.
    """

    table: Table
    names: Sequence[str]
    values: Tensor


def _reference_labels(path: str | Path) -> _Labels:
    table = read_table(path)
    table.column(_STUDY)
    further = [name for name in table.names if name not in (_STUDY, *CT_RATE.labels)]
    if further:
        raise TableError(
            f"{path}: has the column {further[0]!r}, which the official evaluation takes for a label; the columns must "
            f"be {_STUDY} and the 18 labels of CT-RATE"
        )
    return _labels(table)


def _labels(table: Table) -> _Labels:
    names = table.required_texts(_STUDY)
    rows = table.labels(CT_RATE.labels)
    for row, labels in enumerate(rows):
        if labels is None:
            raise TableError(f"{table.where(row)}: has no labels")
    if not rows:
        raise TableError(f"{table.source}: has no rows")
    return _Labels(table, names, torch.tensor(rows, dtype=torch.bool))


def _predicted_labels(
    reports: Table, names: Sequence[str], settings: VLM3DSettings, log: RunLog
) -> tuple[_Labels, str]:
    """Return the labels of the predictions, from their table or the labeler, and what labelled them."""
    if settings.prediction_label_table is not None:
        given = read_table(settings.prediction_label_table)
        columns = {name: given.column(name) for name in (_STUDY, *CT_RATE.labels)}
        return _labels(replace(given, columns=columns)), given.source
    labeler = choose_labeler(settings.labeler, settings.judge)
    if tuple(labeler.labels) != CT_RATE.labels:
        raise SettingError("labeler", f"must have the labels of CT-RATE, got {', '.join(labeler.labels)}")
    texts = reports.required_texts(_REPORT)
    if blank := sum(not text.strip() for text in texts):
        log.warn(f"{blank} of {len(texts)} predictions are blank: they have no positive label")
    rows = [row for row, text in enumerate(texts) if text.strip()]
    further = LabelSettings(text_column=_REPORT, labeler=labeler, batch_size=settings.batch_size)
    found = label_table(Table({_REPORT: [texts[row] for row in rows]}, reports.source), further, log)
    if failed := sum(found.failed.values()):
        raise TableError(
            f"{reports.source}: the labeler failed on {failed} of {len(texts)} reports; label them with rrg-rewards "
            f"label, and pass the complete table, with a column {_STUDY}, as `prediction_label_table`"
        )
    values = torch.zeros(len(texts), len(CT_RATE.labels), dtype=torch.bool)
    values[rows] = torch.tensor([found.table.columns[name] for name in CT_RATE.labels], dtype=torch.bool).T
    labels = dict(zip(CT_RATE.labels, values.int().T.tolist(), strict=True))
    return _Labels(Table({_STUDY: names, **labels}, reports.source), names, values), labeler.signature


def _rows(names: Sequence[str], table: Table, removed: Sequence[str]) -> dict[str, int]:
    """Return the row of each prediction by its name without some texts; raise if a study has two."""
    rows: dict[str, int] = {}
    for row, name in enumerate(names):
        study = _without(name, removed)
        if study in rows:
            raise TableError(
                f"{table.where(row)}: {study!r} is also in {table.where(rows[study])}; the official evaluation stops "
                "at a study with two predictions"
            )
        rows[study] = row
    return rows


def _without(name: str, removed: Sequence[str]) -> str:
    for text in removed:
        name = name.replace(text, "")
    return name


def _aligned(
    predicted: _Labels, target: _Labels, of_prediction: Sequence[str], of_target: Sequence[str]
) -> tuple[Tensor, list[str]]:
    """Return the labels of the predictions of the target's studies, negative without one, and the studies without one.

    Args:
        predicted: The labels of the predictions.
        target: The reference labels.
        of_prediction: Texts to remove from the names of predictions.
        of_target: Texts to remove from the names of the target.
    """
    rows = _rows(predicted.names, predicted.table, of_prediction)
    values = torch.zeros_like(target.values)
    missing = []
    for place, name in enumerate(target.names):
        found = rows.get(_without(name, of_target))
        if found is None:
            missing.append(name)
        else:
            values[place] = predicted.values[found]
    return values, missing


def _report_missing_labels(target: _Labels, missing: Sequence[str], missing_in_crg: Sequence[str], log: RunLog) -> None:
    """Say which labelled studies have no prediction, and which stand more than once."""
    if repeated := [name for name, times in Counter(target.names).items() if times > 1]:
        log.warn(f"{target.table.source}: more than one row of {_named(repeated)}; each row counts")
    both = {"classification and CRG": missing}
    for part, names in (
        both if missing == missing_in_crg else {"classification": missing, "CRG": missing_in_crg}
    ).items():
        if names:
            log.warn(
                f"no labels of a prediction for {_named(names)} of {len(target.names)} in {target.table.source}: in "
                f"{part} all their labels count as negative, as in the official evaluation"
            )


def _classification(predicted: Tensor, target: _Labels) -> dict[str, Any]:
    """Return the statistics of each label, in the order of its columns, and their means; 0 if undefined."""
    columns = {
        name: values.nan_to_num(0.0).tolist()
        for name, values in label_statistics(label_counts(predicted, target.values, dim=0)).items()
        if name in _STATISTICS
    }
    order = [CT_RATE.labels.index(name) for name in target.table.names if name != _STUDY]
    by_label = [{"name": CT_RATE.labels[place], **{name: columns[name][place] for name in columns}} for place in order]
    means = {name: sum(entry[name] for entry in by_label) / len(by_label) for name in _STATISTICS}
    return {"per_pathology": by_label, "macro": means}


def _crg(predicted: Tensor, target: _Labels) -> dict[str, Any]:
    tp, fn, fp, _ = (int(count) for count in label_counts(predicted, target.values))
    decisions, positives = target.values.numel(), tp + fn
    if not positives:
        raise TableError(f"{target.table.source}: has no positive label; CRG is undefined")
    ratio, half = (decisions - positives) / (2 * positives), (decisions - positives) / 2
    score = ratio * tp - ratio * fn - fp
    # As the official script, which gives 0 if all reference labels are positive.
    crg = half / (2 * half - score) if 2 * half != score else 0.0
    return {
        "TP": tp,
        "FN": fn,
        "FP": fp,
        "X": decisions,
        "A": positives,
        "r": ratio,
        "U": half,
        "score_s": score,
        "CRG": crg,
    }


def _generation(
    predictions: Sequence[str], references: Sequence[str], keys: Sequence[str], log: RunLog
) -> dict[str, float]:
    """Return the corpus values of the text metrics by their official names."""
    if blank := sum(not text.strip() for text in references):
        log.warn(f"{blank} reference reports are blank: the text metrics leave them out")
    bleu = make_metric("coco_bleu").score(predictions, references)
    values = {f"BLEU{name[4:]}": float(value) for name, value in bleu.corpus_parts(*bleu.sufficient_statistics).items()}
    for key in keys:
        try:
            scores = make_metric(_TEXT_METRICS[key]).score(predictions, references)
            values[key] = float(scores.aggregate(*scores.sufficient_statistics))
        except (FileNotFoundError, ModuleNotFoundError) as error:
            if key != _METEOR:
                raise
            log.warn(f"{key} is left out, as in the official evaluation without Java: {error}")
    return values
