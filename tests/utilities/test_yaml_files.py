"""YAML files of users and of the package: no key is lost."""

from pathlib import Path

import pytest

import rrg_rewards
from rrg_rewards.utilities.yaml_files import read_user_yaml

PACKAGE = Path(rrg_rewards.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_package_yaml_repeats_no_key(name: str) -> None:
    assert read_user_yaml(PACKAGE / name)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: 1\nb: {c: 1, c: 2}\n", "line 2: the key 'c' is repeated"),
        (b"a: \xff", "decode|invalid"),
        (b"a: \x00", "special characters"),
        (b"!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"[" * 5_000, "recursion|while parsing"),
        (b"", "must be a mapping of keys and values, got NoneType"),
    ],
)
def test_read_user_yaml_refuses_what_is_no_mapping(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"own.yaml: (?s:.*)({problem})"):
        read_user_yaml(path)
