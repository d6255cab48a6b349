"""Profiles: what is convention when two reports are compared, as rows of a YAML file of the package or of a user."""

from collections.abc import Collection, Mapping
from functools import cache
from hashlib import sha256
from itertools import chain, product
from pathlib import Path
from typing import Any

from rrg_rewards.findings.knowledge.concepts import SIGN, Relation, concept_graph
from rrg_rewards.findings.knowledge.load import PROFILES, load_knowledge
from rrg_rewards.utilities.names import shown, unknown_name_message
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.yaml_files import check_keys, is_yaml_path, package_yaml, package_yaml_names, read_user_yaml

LEVEL_NAMES = {
    "benign": "benign_expected",
    "not_actionable": "not_actionable_not_urgent",
    "actionable": "actionable_not_urgent",
    "urgent": "urgent",
}
"""The levels of clinical significance by their names in profiles, the least significant first."""
NUMBERS = tuple(f"{name}_{bound}" for name in ("age", "size", "mean_size", "short_axis") for bound in ("below", "from"))
"""Conditions on numbers."""
_ON_PATIENT = {"context", "contexts", "known", "age_below", "age_from"}
# Attributes whose values `attributes.yaml` lists.
_LISTED = ("severity", "extent", "acuity", "change", "morphology", "laterality", "certainty", "device_position")
_CONDITIONS = {*NUMBERS, *_ON_PATIENT, *_LISTED, "location", "words", "named"}
# Required and further keys of the rows of each list.
_ROWS = {
    "significance": (("then", "source"), ("concepts", "kinds_of", "if")),
    "matches": (("of", "with", "as", "source"), ("context",)),
    "settings": (("name", "value", "source"), ()),
}


class Profile:
    """What is convention when two reports are compared. ``knowledge/profiles/published.yaml`` explains the rows.

    Args:
        name: Name of the profile, and the digest of a user's file.
        content: Contents of the YAML file. Its rows come before those of ``base``, but after those on the patient.
        base: Profile that it extends.

    Example:
        >>> profile = get_profile("ct")
        >>> profile["severity_levels"], profile.relation("ground_glass_opacity", "consolidation")
        (False, None)
    """

    def __init__(self, name: str, content: Mapping[str, Any], base: "Profile | None" = None) -> None:
        self.name = name
        rows = {kind: content.get(kind, []) for kind in _ROWS}
        inherited = base.significance if base else []
        on_patient = [row for row in inherited if not _ON_PATIENT.isdisjoint(row.get("if", ()))]
        others = [row for row in inherited if row not in on_patient]
        self.significance: list[Mapping[str, Any]] = [*on_patient, *rows["significance"], *others]
        self.matches: list[Mapping[str, Any]] = [*rows["matches"], *(base.matches if base else ())]
        self.settings: dict[str, Any] = dict(base.settings) if base else {}
        for row in rows["settings"]:
            name, value = row["name"], row["value"]
            self.settings[name] = {**self.settings.get(name, {}), **value} if isinstance(value, dict) else value
        self._pairs: dict[tuple[str, str], Relation | None] = {}
        for row in self.matches:
            for pair in product(row["of"], row["with"]) if "context" not in row else ():
                for first, second in (pair, pair[::-1]):
                    known = concept_graph().relation(first, second) or Relation("descriptor", SIGN.distance, True)
                    stated = Relation(known.kind, known.distance, row["as"] == "significant")
                    self._pairs.setdefault((first, second), None if row["as"] == "none" else stated)

    def __getitem__(self, setting: str) -> Any:
        return self.settings[setting]

    def relates(self, reference: str, candidate: str) -> bool:
        """Whether a row of the profile says how two concepts are related."""
        return (reference, candidate) in self._pairs

    def relation(self, reference: str, candidate: str) -> Relation | None:
        """Return the relation of the candidate's concept to the reference's; ``None`` if they do not match."""
        pair = reference, candidate
        return self._pairs[pair] if pair in self._pairs else concept_graph().relation(*pair)


def get_profile(profile: str | Path | Profile) -> Profile:
    """Return a profile by its name (``"published"``, ``"ct"``), or from a YAML file; a profile is returned unchanged.

    Raises:
        SettingError: If the name is unknown, or a row of the file is invalid.
        FileNotFoundError: If the file does not exist.
    """
    if isinstance(profile, Profile):
        return profile
    if is_yaml_path(profile):
        try:
            return _user_profile(Path(profile))
        except ValueError as error:
            raise SettingError("profile", " ".join(str(error).split())) from error
    names = package_yaml_names(PROFILES)
    if profile not in names:
        raise SettingError("profile", f"{unknown_name_message('name', str(profile), names)}, or a YAML file")
    return _package_profile(str(profile))


@cache
def _package_profile(name: str) -> Profile:
    content = package_yaml(PROFILES, name)
    return Profile(name, content, _package_profile(content["extends"]) if "extends" in content else None)


def _user_profile(path: Path) -> Profile:
    content = check_keys(str(path), read_user_yaml(path), ("extends", *_ROWS))
    extended = content.get("extends", "published")
    _check_names(f"{path}, extends", [extended], package_yaml_names(PROFILES))
    base = _package_profile(extended)
    for kind in _ROWS.keys() & content.keys():
        if not isinstance(content[kind], list):
            raise ValueError(f"{path}, {kind}: must be a list of rows, got {content[kind]!r}")
        for number, row in enumerate(content[kind], 1):
            _check_row(f"{path}, {kind}, row {number}", kind, row, base)
    return Profile(f"{path.name}:{sha256(path.read_bytes()).hexdigest()[:8]}", content, base)


def _check_row(where: str, kind: str, row: Any, base: Profile) -> None:
    """Raise ``ValueError`` if a row of a user's file is invalid."""
    required, others = _ROWS[kind]
    check_keys(where, row, (*required, *others), required)
    attributes, concepts = load_knowledge("attributes"), load_knowledge("concepts")["concepts"]
    known: dict[str, Collection[str]] = dict.fromkeys(("concepts", "kinds_of", "of", "with"), concepts)
    known |= dict.fromkeys(("context", "contexts"), load_knowledge("significance")["contexts"])
    known |= {"then": (*LEVEL_NAMES, "lower"), "as": ("none", "negligible", "significant"), "name": base.settings}
    known |= {name: attributes[name] for name in _LISTED}
    if "context" in row and row["as"] == "none":
        raise ValueError(f"{where}: a context makes a match significant or negligible, and parts no findings")
    conditions = row.get("if", {})
    check_keys(f"{where}, if", conditions, sorted(_CONDITIONS | {f"not_{name}" for name in _CONDITIONS}))
    for key, value in (*row.items(), *conditions.items()):
        name, here = key.removeprefix("not_"), f"{where}, {key}"
        if name in ("then", "as", "name") or (key == "context" and kind == "matches"):
            _check_names(here, [value], known[name])
        elif name in ("source", "known", *NUMBERS):
            _check_like(here, value, 0 if name in NUMBERS else name == "known" or "a text")
        elif name == "value":
            profiles = (base, *map(_package_profile, package_yaml_names(PROFILES)))
            examples = [profile[row["name"]] for profile in profiles]
            _check_like(here, value, next(filter(None, examples), examples[0]))
            listed = (attributes[attribute] for attribute in (*_LISTED, "location"))
            _check_names(here, _texts(value), {*concepts, *chain(*listed), *_texts(examples)})
        elif name != "if":
            _check_like(here, value, ["a text"])
            _check_names(here, value, known.get(name, value))


def _texts(value: Any) -> list[str]:
    """Return all texts in a value, and the keys of its mappings."""
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for part in parts for text in _texts(part)]


def _check_names(where: str, names: Collection[Any], known: Collection[str]) -> None:
    """Raise ``ValueError`` if one of several names is not known."""
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"{where}: {unknown_name_message('name', str(name), known)}")


def _check_like(where: str, value: Any, example: Any) -> None:
    """Raise ``ValueError`` if a value, or a value in it, has another type than in an example."""
    kinds = (int, float) if isinstance(example, int | float) and not isinstance(example, bool) else type(example)
    if not isinstance(value, kinds) or isinstance(value, bool) != isinstance(example, bool):
        raise ValueError(f"{where}: must be like {example!r}, got {shown(value)}")
    inner = ([*one.values()] if isinstance(one, dict) else one for one in (value, example))
    values, examples = (one if isinstance(one, list) else [] for one in inner)
    for part in values if examples else ():
        _check_like(where, part, examples[0])
