"""Prompts from the rows of a table."""

import string
from collections.abc import Mapping
from typing import Any

from rrg_rewards.recipes._arguments import DataArguments

__all__ = ["make_prompt", "prompt_columns", "prompt_placeholders"]


def prompt_placeholders(arguments: DataArguments) -> set[str]:
    """Return the names in braces in the prompt template."""
    return {key for _, key, _, _ in string.Formatter().parse(arguments.prompt_template) if key is not None}


def prompt_columns(arguments: DataArguments) -> set[str]:
    """Return the columns that the prompt template reads."""
    return {arguments.input_column if name == "input" else name for name in prompt_placeholders(arguments)}


def make_prompt(row: Mapping[str, Any], arguments: DataArguments, system: str | None) -> str | list[dict[str, str]]:
    """Return the prompt of a row: messages, or one text if prompts are not conversational.

    Args:
        row: Cells by column.
        arguments: The arguments of a recipe.
        system: System prompt, :attr:`DataArguments.system_text`.
    """
    text = arguments.prompt_template.format(**{"input": row.get(arguments.input_column), **row})
    if not arguments.conversational:
        return text if system is None else f"{system}\n{text}"
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]
