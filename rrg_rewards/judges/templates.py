"""Prompts of this package, and what names one."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from rrg_rewards.judges.base import Message

__all__ = ["load_template", "prompt_digest"]

_ROLES_APART = "\n=====\n"


@cache
def load_template(name: str) -> tuple[str, str]:
    """System and user message of a prompt, with places ``{{name}}`` for what is asked about.

    Args:
        name: File below ``judges/prompts``, without its ending.

    Example:
        >>> system, user = load_template("crimson")
        >>> "{{candidate}}" in user
        True
    """
    text = resources.files("rrg_rewards.judges.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8")
    system, user = text.split(_ROLES_APART)
    return system.strip(), user.strip()


def prompt_digest(conversations: Sequence[Sequence[Message]], schema: Mapping[str, Any]) -> str:
    """First digits of the SHA-256 of what is said about some items, and of the answer's schema.

    Example:
        >>> prompt_digest([[{"role": "user", "content": "Well?"}]], {"type": "object"})
        '9c0930558c5c'
    """
    return hashlib.sha256(json.dumps([*conversations, schema]).encode()).hexdigest()[:12]
