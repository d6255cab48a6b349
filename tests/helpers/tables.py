"""Tables of cases, in the YAML file beside a test file."""

from pathlib import Path

from rrg_rewards.utilities.yaml_files import read_user_yaml


def read_tables(test_file):
    """Return the tables of ``<name>.yaml`` beside ``test_<name>.py``: lists of rows, or mappings. Rows are tuples."""
    path = Path(test_file)
    tables = read_user_yaml(path.with_name(f"{path.stem.removeprefix('test_')}.yaml"))
    return {name: _immutable(table) for name, table in tables.items()}


def _immutable(value):
    if isinstance(value, dict):
        return {key: _immutable(each) for key, each in value.items()}
    return tuple(map(_immutable, value)) if isinstance(value, list) else value
