"""The system prompt of CT-CHAT's published Llama 3 model, read from the published code."""

import ast
from pathlib import Path

MISSING_SYSTEM_PROMPT = (
    "the model was trained with a system prompt in every conversation, but the prompts have none; set the system "
    "prompt to conversation.py of CT-CHAT's code, and begin the prompt template with <provided>"
)
"""Warning for a model with ``uses_system_prompt`` in its configuration."""


def read_system_prompt(path: str | Path, conversation: str = "conv_llama3") -> str:
    """Read a system prompt from ``llava/conversation.py`` of CT-CHAT's code, without executing the file.

    The published Llama 3 model was trained with this prompt in every conversation. It restricts the model to questions
    on a chest CT, and lets it ask for the volume unless the user's turn contains ``<provided>``. Its licence does not
    allow us to include it.

    Args:
        path: The file.
        conversation: Name of the variable that holds the conversation.

    Returns:
        The text, with the special tokens at its start.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file assigns no conversation with a constant system prompt to this name.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "conversation.py"
        ...     _ = path.write_text('conv_llama3 = Conversation(system="Answer " + "briefly.", roles=("user", "bot"))')
        ...     read_system_prompt(path)
        'Answer briefly.'
    """
    try:
        module = ast.parse(Path(path).read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise ValueError(f"{path} is not Python: {error.msg} in line {error.lineno}") from None
    for statement in module.body:
        if isinstance(statement, ast.Assign) and conversation in map(_name, statement.targets):
            text = _system(statement.value)
            if text is not None:
                return text
    raise ValueError(f"{path} assigns no conversation with a constant system prompt to {conversation}")


def _name(target: ast.expr) -> str | None:
    return target.id if isinstance(target, ast.Name) else None


def _system(value: ast.expr) -> str | None:
    """Return the argument ``system`` of a call, which is its first."""
    if not isinstance(value, ast.Call):
        return None
    arguments = [keyword.value for keyword in value.keywords if keyword.arg == "system"] or value.args[:1]
    return _text(arguments[0]) if arguments else None


def _text(value: ast.expr) -> str | None:
    """Return a constant text, or a sum of constant texts."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _text(value.left), _text(value.right)
        return None if left is None or right is None else left + right
    return None
