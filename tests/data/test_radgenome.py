"""RadGenome-Chest CT, on small files in its layout."""

import pytest

from rrg_rewards.data import RadGenomeCounts, TableError, read_radgenome

ROWS = [
    ("valid_1_a_1.nii.gz", "lung", "Nodule in the right lung. "),
    ("valid_1_a_1.nii.gz", "pleura", "No effusion."),
    ("valid_1_a_2.nii.gz", "lung", "Nodule in the right lung."),
    ("valid_1_a_1.nii.gz", "right lung", "Nodule in the  right lung."),
    ("valid_1_a_1.nii.gz", "heart", ""),
    ("valid_2_a_1.nii.gz", "", "Normal."),
]


@pytest.fixture
def write(tmp_path):
    def writer(*rows, header="Volumename,Anatomy,Sentence"):
        (tmp_path / "region_report.csv").write_text("\n".join([header, *map(",".join, rows)]) + "\n")
        return tmp_path / "region_report.csv"

    return writer


def test_read_radgenome_joins_the_sentences_of_a_volume_once_and_in_order(write):
    table, counts = read_radgenome(write(*ROWS))
    assert table.column("study_id") == ["valid_1_a_1", "valid_1_a_2", "valid_2_a_1"]
    assert table.column("findings") == [
        "Nodule in the right lung. No effusion.",
        "Nodule in the right lung.",
        "Normal.",
    ]
    assert [len(regions) for regions in table.column("regions")] == [3, 1, 1]
    assert table.column("regions")[2] == [{"anatomy": None, "sentence": "Normal."}]
    assert counts == RadGenomeCounts(rows=6, volumes=3, joined=3, blank_sentences=1, repeated_sentences=1)


def test_read_radgenome_leaves_out_reconstructions_and_volumes_without_a_chest(write, tmp_path):
    (tmp_path / "no_chest_valid.txt").write_text("valid_2_a_1.nii.gz\n")
    table, counts = read_radgenome(write(*ROWS), no_chest=tmp_path / "no_chest_valid.txt", one_per_scan=True)
    assert table.column("scan") == ["valid_1_a"]
    assert (counts.volumes, counts.joined, counts.without_chest, counts.other_reconstructions) == (3, 1, 1, 1)


def test_read_radgenome_names_what_is_wrong(write):
    with pytest.raises(TableError, match=r"data row 1 \(line 2\), column 'Volumename': must be the name of a CT-RATE"):
        read_radgenome(write(("1_a", "lung", "Normal.")))
    with pytest.raises(TableError, match="unknown column 'Volumename'; did you mean 'VolumeName'"):
        read_radgenome(write(*ROWS, header="VolumeName,Anatomy,Sentence"))
