"""Files that describe how the package is installed: they agree with each other."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib")
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def lock() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib")
    return tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))


def test_groups_are_the_extras_of_the_same_names(project: dict[str, Any]) -> None:
    """One list of requirements each: the groups of PEP 735 only name the extras."""
    assert project["dependency-groups"] == {name: [f"rrg-rewards[{name}]"] for name in ("dev", "docs", "test")}
    assert project["dependency-groups"].keys() <= project["project"]["optional-dependencies"].keys()


def test_lock_is_that_of_the_requirements(project: dict[str, Any], lock: dict[str, Any]) -> None:
    declared = [(None, text) for text in project["project"]["dependencies"]]
    declared += [
        (extra, text) for extra, texts in project["project"]["optional-dependencies"].items() for text in texts
    ]
    expected = set()
    for extra, text in declared:
        required = Requirement(text)
        expected.add((extra, canonicalize_name(required.name), frozenset(required.extras), required.specifier))
    (package,) = [package for package in lock["package"] if package["name"] == "rrg-rewards"]
    locked = set()
    for entry in package["metadata"]["requires-dist"]:
        extra = re.search(r"extra == '([^']+)'", entry.get("marker", ""))
        specifier = Requirement(f"x{entry.get('specifier', '')}").specifier
        locked.add((extra and extra[1], entry["name"], frozenset(entry.get("extras", ())), specifier))
    assert locked == expected, "run: uv lock"


def test_lock_has_the_versions_of_the_constraints(lock: dict[str, Any]) -> None:
    locked: dict[str, set[str]] = {}
    for package in lock["package"]:
        locked.setdefault(package["name"], set()).add(package.get("version", ""))
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    constraints = [Requirement(line) for line in lines if line]
    wrong = [
        f"--upgrade-package {name}=={version}"
        for name, version in ((canonicalize_name(one.name), str(one.specifier)[2:]) for one in constraints)
        if name in locked and version not in locked[name]
    ]
    assert not wrong, f"run: uv lock {' '.join(wrong)}"
    main = {
        "torch",
        "torchmetrics",
        "numpy",
        "transformers",
        "trl",
        "lightning",
        "peft",
        "datasets",
        "openai",
        "pytest",
    }
    assert main <= locked.keys() & {canonicalize_name(one.name) for one in constraints}


def test_lock_comes_from_the_public_index(lock: dict[str, Any]) -> None:
    sources = [package["source"] for package in lock["package"] if package["name"] != "rrg-rewards"]
    assert all(source == {"registry": "https://pypi.org/simple"} for source in sources)


def _instructions(keyword: str) -> list[list[str]]:
    """Return the words of each instruction of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith(f"{keyword} ")]


def test_image_is_built_from_files_that_exist_and_are_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source for *sources, _ in _instructions("COPY") for source in sources}
    assert copied | {"Dockerfile"} == sent
    assert all((ROOT / name).exists() for name in sent)


def test_image_installs_the_tested_versions_and_known_extras(project: dict[str, Any]) -> None:
    commands = [words for words in _instructions("RUN") if "pip" in words]
    assert all(words[:6] == ["python", "-m", "pip", "install", "-c", "constraints.txt"] for words in commands[1:])
    assert "-c constraints.txt torch" in " ".join(commands[0])
    arguments = dict(words[0].split("=", 1) for words in _instructions("ARG"))
    extras = set(arguments["EXTRAS"].split(","))
    (everything,) = project["project"]["optional-dependencies"]["all"]
    assert extras == Requirement(everything).extras - {"deepspeed"}
    (image,) = _instructions("FROM")
    assert image[0].startswith("python:3.11-")
    assert _instructions("USER") == [["1000"]]


def test_build_arguments_of_the_pages_are_those_of_the_dockerfile() -> None:
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    used = set(re.findall(r"--build-arg (\w+)=", page))
    assert used == {words[0].partition("=")[0] for words in _instructions("ARG")}
