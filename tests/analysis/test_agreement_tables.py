"""Agreement in tables: columns, metrics, candidates, batches and page cells."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rrg_rewards.analysis import (
    AgreementColumns,
    AgreementSettings,
    PairColumns,
    agreement_of_table,
    measure_agreement,
)
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.metrics import ROUGE
from rrg_rewards.metrics.callable import CallableMetric
from rrg_rewards.utilities.settings import SettingError

QUICK = AgreementSettings(bootstrap=0, permutations=0)
HEADER = "study,hospital,prediction,reference,other,rating,errors"
ROWS = [
    ("a", "x", "Small effusion.", "Pleural effusion.", "Effusion.", 3, 1),
    ("a", "x", "Emphysema.", "Pleural effusion.", "Effusion.", 1, 2),
    ("b", "y", "Cardiomegaly.", "Cardiomegaly. Emphysema.", "Emphysema.", 4, 1),
    ("b", "y", "Emphysema.", "Cardiomegaly. Emphysema.", "Emphysema.", 1, 3),
    ("c", "x", "Atelectasis.", "Atelectasis.", "Normal.", 5, 0),
    ("c", "y", "Normal.", "Atelectasis.", "Normal.", 2, 1),
]
PREDICTIONS, REFERENCES, OTHERS = ([row[place] for row in ROWS] for place in (2, 3, 4))
RATINGS, ERRORS = ([row[place] for row in ROWS] for place in (5, 6))


Write = Callable[..., Path]


def length(preds: list[str], target: list[str]) -> list[float]:
    """Score the length of predictions."""
    return [float(len(text)) for text in preds]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*lines: str) -> Path:
        path = tmp_path / "table.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture
def rated(write: Write) -> Path:
    return write(HEADER, *(",".join(map(str, row)) for row in ROWS))


@pytest.mark.parametrize("batch_size", [1, 4, 256])
def test_columns_of_a_table_have_the_agreement_of_these_columns(rated: Path, batch_size: int) -> None:
    columns = AgreementColumns(scores=["errors"], human=["rating"], unit="study", group="hospital")
    settings = AgreementSettings(lower_is_better=["errors"], bootstrap=20, permutations=19)
    found = agreement_of_table(rated, columns, settings=settings, batch_size=batch_size)
    expected = measure_agreement(
        {"errors": ERRORS},
        {"rating": RATINGS},
        units=[row[0] for row in ROWS],
        groups=[row[1] for row in ROWS],
        settings=settings,
    )
    named = {"unit": "study", "group": "hospital"}
    assert found.result.to_dict() == {**expected.to_dict(), **named}
    assert found.rows.scores["errors"].tolist() == [-value for value in ERRORS]
    assert found.rows.groups == [row[1] for row in ROWS]


def test_metrics_are_computed_and_turned(rated: Path) -> None:
    metrics = {"rouge": ROUGE(), "length": CallableMetric(length, higher_is_better=False)}
    found = agreement_of_table(rated, AgreementColumns(human=["rating"]), metrics, settings=QUICK)
    rouge = ROUGE().score(PREDICTIONS, REFERENCES).value
    lengths = [-float(len(text)) for text in PREDICTIONS]
    expected = measure_agreement({"rouge": rouge, "length": lengths}, {"rating": RATINGS}, settings=QUICK)
    assert found.result.groups == expected.groups
    assert found.result.signatures == {name: metric.signature for name, metric in metrics.items()}
    by_name = agreement_of_table(rated, AgreementColumns(human=["rating"]), ["rouge"], settings=QUICK)
    assert torch.equal(by_name.rows.scores["rouge"], rouge)


def test_template_of_predictions_and_references(rated: Path) -> None:
    pairs = PairColumns(prediction_column="{prediction} {other}", reference_column="Impression: {reference}")
    columns = AgreementColumns(human=["rating"])
    found = agreement_of_table(rated, columns, ["rouge"], pairs=pairs, settings=QUICK, with_text=True)
    predictions = [f"{text} {other}" for text, other in zip(PREDICTIONS, OTHERS, strict=True)]
    references = [f"Impression: {text}" for text in REFERENCES]
    assert torch.equal(found.rows.scores["rouge"], ROUGE().score(predictions, references).value)
    assert found.rows.texts == {"Impression: {reference}": references, "{prediction} {other}": predictions}


def test_template_of_predictions_is_refused_with_candidates(rated: Path) -> None:
    columns = AgreementColumns(human=["rating"], candidates=["_1", "_2"])
    with pytest.raises(SettingError, match="prediction_column: must be the name of a column, not a template"):
        agreement_of_table(rated, columns, ["rouge"], pairs=PairColumns(prediction_column="{a}"), settings=QUICK)


def test_candidates_are_compared_by_differences(write: Write) -> None:
    table = write(
        "prediction_1,prediction_2,reference,s_1,s_2,better",
        "Effusion.,Normal.,Effusion.,2,1,1",
        "Normal.,Emphysema.,Emphysema.,1,4,-1",
        "Normal.,Nodule.,Normal.,5,3,1",
    )
    columns = AgreementColumns(scores=["s"], human=["better"], candidates=("_1", "_2"))
    found = agreement_of_table(table, columns, {"rouge": ROUGE()}, settings=QUICK, with_text=True)
    assert found.rows.scores["s"].tolist() == [1, -3, 2]
    assert found.rows.scores["rouge"].tolist() == [1, -1, 1]
    assert list(found.rows.texts) == ["reference", "prediction_1", "prediction_2"]
    (judgement,) = found.result.all_rows.judgements
    assert {one.statistic for one in judgement.agreement} == {"kendall", "spearman", "pearson", "preference"}
    assert judgement.of("rouge", "preference").value == 1
    assert found.result.to_dict()["candidates"] == ("_1", "_2")


def test_names_and_reports_are_kept_on_demand(rated: Path) -> None:
    columns = AgreementColumns(scores=["errors"], human=["rating"])
    plain = agreement_of_table(rated, columns, settings=QUICK)
    assert (plain.rows.names, plain.rows.texts) == ([], {})
    found = agreement_of_table(
        rated, columns, pairs=PairColumns(id_column="study"), settings=QUICK, with_text=True, batch_size=4
    )
    assert found.rows.names == [row[0] for row in ROWS]
    assert found.rows.texts == {"reference": REFERENCES, "prediction": PREDICTIONS}


def test_yes_no_items_of_a_table(write: Write) -> None:
    table = write("predicted,annotated", "1,1", "0,1", "0,0", "1,1")
    columns = AgreementColumns(scores=["predicted"], human=["annotated"])
    found = agreement_of_table(table, columns, settings=AgreementSettings(statistics=["binary"], bootstrap=20))
    assert found.result.all_rows.judgements[0].of("predicted", "binary").value == 0.75


@pytest.mark.parametrize(
    ("columns", "metrics", "settings", "message"),
    [
        ({}, {}, {}, "`scores` and `metrics`"),
        ({"scores": ["rating"]}, {}, {}, "rating: named more than once"),
        ({"scores": ["errors"]}, {}, {"lower_is_better": ["x"]}, "'x' is not among"),
        ({"scores": ["errors"]}, {}, {"baseline": "x"}, "'x' is not among errors"),
        ({}, {"rouge": ROUGE()}, {"lower_is_better": ["rouge"]}, "lower_is_better: 'rouge' is not among"),
        ({}, {"rouge": ROUGE()}, {"statistics": ["binary"]}, "leave out `metrics`"),
        (
            {},
            {"own": CallableMetric(length, higher_is_better=None)},
            {},
            "does not say whether higher scores are better",
        ),
        ({"scores": ["errors"], "group": "hospital"}, {}, {}, None),
    ],
)
def test_settings_that_contradict_each_other(
    rated: Path, columns: Any, metrics: Any, settings: Any, message: str | None
) -> None:
    own = AgreementColumns(human=["rating"], **columns)
    chosen = AgreementSettings(bootstrap=0, permutations=0, **settings)
    if message is None:
        assert len(agreement_of_table(rated, own, metrics, settings=chosen).result.groups) == 3
        return
    with pytest.raises(SettingError, match=message):
        agreement_of_table(rated, own, metrics, settings=chosen)


def test_wrong_tables_are_named(write: Write) -> None:
    columns = AgreementColumns(scores=["s"], human=["h"], unit="u")
    with pytest.raises(TableError, match="unknown column 's'"):
        agreement_of_table(write("h,u", "1,a"), columns)
    with pytest.raises(TableError, match="column 's': must be a finite number"):
        agreement_of_table(write("s,h,u", "x,1,a"), columns)
    with pytest.raises(TableError, match="column 'u': is empty; each row needs a value"):
        agreement_of_table(write("s,h,u", "1,1,"), columns)
    with pytest.raises(ValueError, match="has no rows"):
        agreement_of_table(write("s,h,u"), columns)


@pytest.mark.parametrize("candidates", [("_1",), ("_1", "_1"), ("_1", ""), ("a", "b", "c")])
def test_candidates_are_two_different_texts(candidates: tuple[str, ...]) -> None:
    with pytest.raises(SettingError, match="must be two different texts"):
        AgreementColumns(human=["h"], candidates=candidates)
