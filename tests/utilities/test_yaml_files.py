"""YAML files of users and of the package: no key is lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rrg_rewards
from rrg_rewards.integrations.common.settings import read_settings
from rrg_rewards.judges import get_judge
from rrg_rewards.rewards import make_reward
from rrg_rewards.utilities.yaml_files import read_user_yaml

PACKAGE = Path(rrg_rewards.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_package_yaml_repeats_no_key(name: str) -> None:
    assert read_user_yaml(PACKAGE / name)


def _aliases(levels: int, of: int = 10) -> bytes:
    """A few hundred bytes that stand for ten times as many values with each level."""
    lines = [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * of)}]" for level in range(1, levels)]
    return "\n".join(["l0: &l0 [x, x, x, x, x, x, x, x, x, x]", *lines]).encode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: 1\nb: {c: 1, c: 2}\n", "line 2: the key 'c' is repeated"),
        (b"a: \xff", "decode|invalid"),
        (b"a: \x00", "special characters|control characters"),
        (b"!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"[" * 5_000, "nested more than 50 deep"),
        (b"a: " + b"[" * 60 + b"]" * 60, "line 1: values nested more than 50 deep"),
        (_aliases(60, of=1), "line 49: values nested more than 50 deep"),
        (b"a: &a [1, *a]", "line 1: an alias stands for a value that contains it"),
        (b"a: &a {b: {c: *a}}", "line 1: an alias stands for a value that contains it"),
        (b"a: &a\n  <<: *a\n", "an alias"),
        (_aliases(7), "line 6: more than 200,000 values"),
        (_aliases(60), "line 6: more than 200,000 values"),
        (b"a: " + b"1" * 5_000, "integer string"),
        (b"a: [" + b"1, " * 700_000 + b"]", "more than 2,000,000 bytes"),
        (b"", "must be a mapping of keys and values, got NoneType"),
    ],
)
def test_read_user_yaml_refuses_what_is_no_mapping(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"own.yaml: (?s:.*)({problem})") as error:
        read_user_yaml(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def test_read_user_yaml_accepts_aliases_within_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(_aliases(4) + b"\nmerged: {<<: {a: 1}, b: 2}\n")
    assert read_user_yaml(path)["l3"][9][9][9] == ["x"] * 10
    with pytest.raises(ValueError, match="is a folder"):
        read_user_yaml(tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda value: read_settings({"reward": value}).make_reward(),
        lambda value: read_settings({"reward": "crg", value[0][0]: 1}),
        lambda value: read_settings({"reward": "crg", "missing": value}),
        lambda value: make_reward("crg", prior=0.2, average=value),
        lambda value: make_reward("crimson", judge=dict.fromkeys(value[0], 1)),
        lambda value: make_reward("bleu", n_gram=value[0][0]),
        lambda value: get_judge({"name": value[0][0]}),
    ],
)
def test_errors_of_settings_are_one_line_that_shows_the_start_of_a_value(make: Callable[[Any], Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        make([["two\nlines" * 5_000, "b"]] * 500)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1_500
