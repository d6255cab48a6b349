"""CT-RATE: the join by volume. Each report is in the result or counted as left out."""

import json
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from rrg_rewards.data import (
    CtRateCounts,
    ScanCounts,
    Table,
    TableError,
    ct_rate_scans,
    read_ct_rate,
    read_table,
    write_table,
)
from rrg_rewards.data.ct_rate import parse_ct_rate_name
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.features import read_features, write_features

REPORTS = """VolumeName,ClinicalInformation_EN,Technique_EN,Findings_EN,Impressions_EN
train_1_a_1.nii.gz,Cough.,Non-contrast.,The heart is large.,Cardiomegaly.
train_1_a_2.nii.gz,Cough.,Non-contrast.,The heart is large.,Cardiomegaly.
train_1_b_1.nii.gz,,Contrast.,"Small nodule, right upper lobe.",
train_2_a_1.nii.gz,Not given.,, ,Normal.
train_3_a_1.nii.gz,Fever.,Non-contrast.,Consolidation.,Pneumonia.
"""


def label_table(*names, positive=("Cardiomegaly",), key="VolumeName"):
    cells = ",".join("1" if label in positive else "0" for label in CT_RATE.labels)
    return "\n".join([",".join([key, *CT_RATE.labels]), *(f"{name},{cells}" for name in names), ""])


@pytest.fixture
def files(tmp_path):
    """Report table, label table and feature folder with overlapping volumes."""
    (tmp_path / "reports.csv").write_text(REPORTS)
    volumes = ("train_1_a_1", "train_1_a_2", "train_1_b_1", "train_2_a_1", "train_9_a_1")
    (tmp_path / "labels.csv").write_text(label_table(*(f"{volume}.nii.gz" for volume in volumes)))
    folder = tmp_path / "features"
    array = np.zeros((2, 2, 2, 4), np.float16)
    for patient in (1, 2):
        (folder / "train" / f"train_{patient}").mkdir(parents=True)
    write_features(folder / "train" / "train_1" / "train_1_a_2.npz", array)
    np.save(folder / "train" / "train_1" / "train_1_b_1.npy", array)
    save_file({"arr": array}, folder / "train" / "train_2" / "train_2_a_1.safetensors")
    write_features(folder / "train_8_a_1.npz", np.zeros((2, 2, 2, 4), np.float16))
    (folder / "train" / "notes.txt").write_text("not features")
    return tmp_path / "reports.csv", tmp_path / "labels.csv", folder


def test_read_ct_rate_reports_alone(files):
    table, counts = read_ct_rate(files[0])
    assert dict(table.columns) == {
        "study_id": ["train_1_a_1", "train_1_a_2", "train_1_b_1", "train_2_a_1", "train_3_a_1"],
        "scan": ["train_1_a", "train_1_a", "train_1_b", "train_2_a", "train_3_a"],
        "patient": ["train_1", "train_1", "train_1", "train_2", "train_3"],
        "findings": [
            "The heart is large.",
            "The heart is large.",
            "Small nodule, right upper lobe.",
            None,
            "Consolidation.",
        ],
        "impression": ["Cardiomegaly.", "Cardiomegaly.", None, "Normal.", "Pneumonia."],
        "indication": ["Cough.", "Cough.", None, None, "Fever."],
        "technique": ["Non-contrast.", "Non-contrast.", "Contrast.", None, "Non-contrast."],
    }
    assert counts == CtRateCounts(reports=5, joined=5, blank_findings=1, blank_impressions=1)


def test_read_ct_rate_all_three_sources_are_joined_and_what_is_left_out_is_counted(files):
    table, counts = read_ct_rate(*files)
    assert table.column("study_id") == ["train_1_a_2", "train_1_b_1", "train_2_a_1"]
    assert table.column("labels") == [[int(label == "Cardiomegaly") for label in CT_RATE.labels]] * 3
    assert [read_features(path).shape for path in table.column("image")] == [(2, 2, 2, 4)] * 3
    assert counts == CtRateCounts(
        reports=5,
        labels=5,
        features=4,
        joined=3,
        reports_without_labels=1,
        reports_without_features=1,
        labels_without_reports=1,
        features_without_reports=1,
        blank_findings=1,
        blank_impressions=1,
    )
    assert str(counts).splitlines() == [
        "CT-RATE studies: 3",
        "read: reports 5, labelled volumes 5, volumes with features 4",
        "left out: reports without labels 1, reports without features 1, labelled volumes without reports 1, "
        "volumes with features without reports 1",
        "missing texts: findings 1, impressions 1",
    ]


def test_read_ct_rate_first_complete_reconstruction_of_a_scan_is_kept(files):
    table, counts = read_ct_rate(files[0], one_per_scan=True)
    assert table.column("study_id") == ["train_1_a_1", "train_1_b_1", "train_2_a_1", "train_3_a_1"]
    assert counts.other_reconstructions == 1
    # The first one has no features here.
    table, counts = read_ct_rate(*files, one_per_scan=True)
    assert table.column("study_id") == ["train_1_a_2", "train_1_b_1", "train_2_a_1"]
    assert counts.other_reconstructions == 0


def test_read_ct_rate_first_reconstruction_is_the_one_with_the_lowest_number(tmp_path):
    names = ["valid_1_a_10", "valid_1_a_2", "valid_1_a_3"]
    (tmp_path / "r.csv").write_text("VolumeName,Findings_EN,Impressions_EN\n" + "".join(f"{n},a,b\n" for n in names))
    assert read_ct_rate(tmp_path / "r.csv", one_per_scan=True)[0].column("study_id") == ["valid_1_a_2"]


def test_read_ct_rate_older_tables_and_names_without_an_ending_join_too(files, tmp_path):
    (tmp_path / "old.csv").write_text(label_table("train_1_a_1", " train_2_a_1.nii.gz ", key="AccessionNo"))
    (tmp_path / "old_reports.csv").write_text(REPORTS.replace("VolumeName", "AccessionNo"))
    table, counts = read_ct_rate(tmp_path / "old_reports.csv", tmp_path / "old.csv")
    assert table.column("study_id") == ["train_1_a_1", "train_2_a_1"]
    assert counts.reports_without_labels == 3
    rows = [json.dumps({"VolumeName": "train_1", "Findings_EN": None, "Impressions_EN": "Normal."})]
    (tmp_path / "patients.jsonl").write_text("\n".join(rows))
    table, counts = read_ct_rate(tmp_path / "patients.jsonl")
    assert (table.column("scan"), counts.blank_findings) == (["train_1"], 1)


def test_read_ct_rate_row_without_any_label_counts_as_one_without_labels(files, tmp_path):
    (tmp_path / "gaps.csv").write_text(label_table("train_1_a_1") + "train_2_a_1" + "," * 18 + "\n")
    table, counts = read_ct_rate(files[0], tmp_path / "gaps.csv")
    assert table.column("study_id") == ["train_1_a_1"]
    assert (counts.labels, counts.reports_without_labels) == (1, 4)


def test_read_ct_rate_rows_that_repeat_each_other_are_read_once(files, tmp_path):
    (tmp_path / "twice.csv").write_text(REPORTS + REPORTS.splitlines()[1] + "\n")
    (tmp_path / "labels_twice.csv").write_text(label_table("train_1_a_1", "train_1_a_1.nii.gz", "train_1_a_1"))
    table, counts = read_ct_rate(tmp_path / "twice.csv", tmp_path / "labels_twice.csv")
    assert (len(table), counts.reports, counts.labels) == (1, 5, 1)


def test_read_ct_rate_different_rows_of_one_volume_are_refused(files, tmp_path):
    (tmp_path / "twice.csv").write_text(REPORTS + "train_1_a_1,Cough.,Non-contrast.,The heart is small.,Normal.\n")
    with pytest.raises(TableError, match=r"twice.csv: data row 6 \(line 7\): train_1_a_1 is also in data row 1"):
        read_ct_rate(tmp_path / "twice.csv")
    labels = label_table("train_1_a_1") + label_table("train_1_a_1", positive=()).splitlines()[1] + "\n"
    (tmp_path / "labels_twice.csv").write_text(labels)
    with pytest.raises(TableError, match=r"labels_twice.csv: data row 2 \(line 3\): train_1_a_1 is also in data row 1"):
        read_ct_rate(files[0], tmp_path / "labels_twice.csv")


@pytest.mark.parametrize("second", ["train_1_a_2.npz", "train_1_a_2.npy", "train_1_a_2.nii.gz.npz"])
def test_read_ct_rate_two_feature_files_of_one_volume_are_refused(files, second):
    (files[2] / second).touch()
    with pytest.raises(TableError, match=r"train_1_a_2 has two feature files, .* and .*; remove one"):
        read_ct_rate(*files)


@pytest.mark.parametrize("name", ["", "scan.nii.gz", "1_a_1", "train_1_a_1_x", "train_1_a_1.dcm", "train_a_1_1"])
def test_read_ct_rate_row_that_names_no_volume_is_refused(tmp_path, name):
    (tmp_path / "r.csv").write_text(f"VolumeName,Findings_EN,Impressions_EN\n{name},a,b\n")
    with pytest.raises(TableError, match=r"r.csv: data row 1 \(line 2\), column 'VolumeName': must be the name of a"):
        read_ct_rate(tmp_path / "r.csv")


@pytest.mark.parametrize("column", ["VolumeName", "Findings_EN", "Impressions_EN"])
def test_read_ct_rate_missing_column_is_named(tmp_path, column):
    (tmp_path / "r.csv").write_text(REPORTS.replace(column, "Other"))
    with pytest.raises(TableError, match=rf"r.csv: unknown column '{column}'"):
        read_ct_rate(tmp_path / "r.csv")


def test_read_ct_rate_label_that_is_none_a_missing_label_and_a_missing_folder_are_named(files, tmp_path):
    text = label_table("train_1_a_1")
    (tmp_path / "l.csv").write_text(text.replace("0,1,", "0,2,"))
    with pytest.raises(TableError, match=r"column 'Cardiomegaly': must be a label of 0 or 1, got '2'"):
        read_ct_rate(files[0], tmp_path / "l.csv")
    (tmp_path / "l.csv").write_text(text.replace("Emphysema", "Emphysem"))
    with pytest.raises(TableError, match="unknown column 'Emphysema'; did you mean 'Emphysem'"):
        read_ct_rate(files[0], tmp_path / "l.csv")
    with pytest.raises(TableError, match="missing: is no folder of features"):
        read_ct_rate(files[0], features=tmp_path / "missing")


VOLUMES = [f"train_{patient}_{scan}_{number}" for patient in (1, 2) for scan in "ab" for number in (1, 2)]
SOME = st.sets(st.sampled_from(VOLUMES))


@given(reports=SOME, labels=st.none() | SOME, features=st.none() | SOME, one_per_scan=st.booleans())
def test_read_ct_rate_every_report_label_and_file_is_joined_or_counted_once(
    tmp_path_factory, reports, labels, features, one_per_scan
):
    folder = tmp_path_factory.mktemp("join")
    rows = "".join(f"{name}.nii.gz,a,b\n" for name in sorted(reports))
    (folder / "r.csv").write_text("VolumeName,Findings_EN,Impressions_EN\n" + rows)
    (folder / "l.csv").write_text(label_table(*sorted(labels or ())))
    (folder / "f").mkdir()
    for name in features or ():
        (folder / "f" / f"{name}.npz").touch()
    table, counts = read_ct_rate(
        folder / "r.csv",
        None if labels is None else folder / "l.csv",
        None if features is None else folder / "f",
        one_per_scan,
    )
    joined = set(table.column("study_id"))
    complete = reports & (reports if labels is None else labels) & (reports if features is None else features)
    scans = Counter(name[:-2] for name in complete)
    assert joined <= complete
    assert Counter(table.column("scan")) == (dict.fromkeys(scans, 1) if one_per_scan else scans)
    assert len(table) == counts.joined
    assert counts.reports == len(reports)
    left_out = counts.reports_without_labels + counts.reports_without_features + counts.other_reconstructions
    assert counts.reports == counts.joined + left_out
    assert counts.labels_without_reports == len((labels or set()) - reports)
    assert counts.features_without_reports == len((features or set()) - reports)


def test_read_ct_rate_every_count_is_told(files):
    fields = {name: place for place, name in enumerate(asdict(CtRateCounts(reports=0)), start=1001)}
    text = str(CtRateCounts(**fields))
    assert all(f"{number:,}" in text for number in fields.values())


def test_parse_ct_rate_name_says_patient_scan_and_reconstruction():
    assert parse_ct_rate_name("train_10_bc_3.nii.gz") == ("train_10_bc_3", "train_10", "train_10_bc", 3)
    assert parse_ct_rate_name("valid_10_b.nii") == ("valid_10_b", "valid_10", "valid_10_b", 0)


def test_read_ct_rate_published_label_table_is_joined(shared_data, tmp_path):
    """The published reports are in one column, so they are first written as a report table."""
    path = shared_data / "ct_rate_labels" / "reports.csv"
    labels = read_table(path)
    texts = labels.texts("report_text")
    reports = Table(
        {"AccessionNo": labels.column("AccessionNo"), "Findings_EN": texts, "Impressions_EN": [None] * len(texts)}
    )
    write_table(reports, tmp_path / "reports.csv")
    table, counts = read_ct_rate(tmp_path / "reports.csv", path)
    assert counts == CtRateCounts(
        reports=len(labels),
        labels=len(labels),
        joined=len(labels),
        blank_findings=sum(text is None for text in texts),
        blank_impressions=len(labels),
    )
    assert table.column("labels") == [list(row) for row in labels.labels(CT_RATE.labels)]
    assert [text.strip() for text in texts] == table.column("findings")


def test_read_ct_rate_volumes_without_a_chest_are_left_out_and_counted(files, tmp_path):
    (tmp_path / "no_chest_train.txt").write_text("train_1_b_1.nii.gz\n\ndataset/train/train_2/train_2_a_1.nii.gz\n")
    (tmp_path / "no_chest_valid.txt").write_text("valid_1_a_1\n")
    lists = [tmp_path / "no_chest_train.txt", tmp_path / "no_chest_valid.txt"]
    table, counts = read_ct_rate(*files[:2], no_chest=lists)
    assert table.column("study_id") == ["train_1_a_1", "train_1_a_2"]
    assert (counts.without_chest, counts.reports_without_labels) == (2, 1)
    assert "left out: volumes without a chest 2, reports without labels 1" in str(counts)
    assert read_ct_rate(files[0], no_chest=lists[1])[1].without_chest == 0
    lists[0].write_text("train_1_b_1\nhead.nii\n")
    with pytest.raises(TableError, match=r"no_chest_train\.txt: line 2: must be the name of a CT-RATE volume"):
        read_ct_rate(files[0], no_chest=lists)
    lists[0].write_text("train_1_b\n")
    with pytest.raises(TableError, match=r"no_chest_train\.txt: line 1: 'train_1_b' is no volume"):
        read_ct_rate(files[0], no_chest=lists)


def test_ct_rate_scans_keeps_one_reconstruction_of_each_scan(tmp_path):
    names = ["valid_1_a_2.nii.gz", "valid_1_a_1.nii.gz", "valid_2_a_1.nii.gz", "valid_1_b_3.nii.gz"]
    table = Table({"volume": names, "prediction": list("abcd")}, "predictions.csv", lines=(2, 3, 4, 5))
    (tmp_path / "no_chest_valid.txt").write_text("valid_2_a_1.nii.gz\n")
    kept, counts = ct_rate_scans(table, "volume", tmp_path / "no_chest_valid.txt")
    assert dict(kept.columns) == {"volume": [names[1], names[3]], "prediction": ["b", "d"]}
    assert kept.where(1) == "predictions.csv: data row 2 (line 5)"
    assert counts == ScanCounts(rows=4, kept=2, without_chest=1, other_reconstructions=1)
    assert len(ct_rate_scans(table, "volume", one_per_scan=False)[0]) == 4


def test_ct_rate_scans_names_what_is_wrong():
    twice = Table({"VolumeName": ["valid_1_a_1", "valid_1_a_1.nii.gz"]}, "predictions.csv")
    with pytest.raises(TableError, match="data row 2, column 'VolumeName': valid_1_a_1 is also in data row 1"):
        ct_rate_scans(twice)
    with pytest.raises(TableError, match="column 'VolumeName': must be the name of a CT-RATE volume"):
        ct_rate_scans(Table({"VolumeName": ["study 1"]}))
