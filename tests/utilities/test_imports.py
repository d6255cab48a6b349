"""Errors of missing optional dependencies."""

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from rrg_rewards.utilities.imports import install_command, require


@pytest.mark.parametrize(
    ("module", "missing"),
    [("absent_library", "absent_library"), ("absent_library.part", "absent_library"), ("json.absent", "json.absent")],
)
def test_require_names_what_is_missing_and_the_command(module, missing):
    with pytest.raises(
        ModuleNotFoundError, match=rf"^{missing} is not installed; run: python -m pip install .*\[serve\]"
    ):
        require(module, extra="serve")


WHEEL = "https://example.org/rrg_rewards-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        (None, "'rrg-rewards[plot]'"),
        ({"url": WHEEL, "archive_info": {}}, f"'rrg-rewards[plot] @ {WHEEL}'"),
        ({"url": "file:///no/check%20out", "dir_info": {"editable": True}}, "-e '/no/check out[plot]'"),
        ({"url": "file:///no/checkout", "dir_info": {}}, "'/no/checkout[plot]'"),
    ],
    ids=["index", "wheel", "editable", "folder"],
)
def test_install_command_names_where_the_package_was_installed_from(monkeypatch, source, arguments):
    text = source and json.dumps(source)
    monkeypatch.setattr(metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text))
    assert install_command("plot") == f"python -m pip install {arguments}"


@pytest.mark.parametrize("extra", ["plot", "trl,plot", "ppo", "trl,vllm"])
def test_install_command_of_a_checkout_takes_its_tested_versions_unless_the_extra_has_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: str
) -> None:
    (tmp_path / "constraints.txt").touch()
    text = json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    monkeypatch.setattr(metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text))
    tested = f"-c {tmp_path}/constraints.txt " if extra in ("plot", "trl,plot") else ""
    assert install_command(extra) == f"python -m pip install {tested}-e '{tmp_path}[{extra}]'"


def test_install_command_without_an_installed_package_gives_its_name(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    assert install_command("plot") == "python -m pip install 'rrg-rewards[plot]'"
