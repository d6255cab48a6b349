"""``rrg-rewards sample-data``."""

from rrg_rewards.data import read_table


def test_sample_data_writes_two_tables_and_replaces_none(run, tmp_path):
    folder = tmp_path / "new" / "samples"
    result = run("sample-data", str(folder), "--studies", "4")
    assert result.code == 0
    assert {path.name: len(read_table(path)) for path in folder.iterdir()} == {"reports.csv": 4, "pairs.csv": 4}
    assert "pairs.csv: 4 studies" in result.err
    refused = run("sample-data", str(folder))
    assert refused.code == 1
    assert "--overwrite" in refused.err
    assert run("sample-data", str(folder), "--studies", "2", "--seed", "3", "--overwrite").code == 0
    assert len(read_table(folder / "pairs.csv")) == 2
