"""Languages of the code blocks that name none, so that the site can highlight them."""

import ast
import re

_BLOCK = re.compile(r"^( *)```([^`\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"\s*(- )?\{?\w+: ?")
# First words of commands, after variables such as CUDA_VISIBLE_DEVICES=0.
_COMMANDS = [
    "rrg-rewards",
    "python",
    "pip",
    "zensical",
    "accelerate",
    "torchrun",
    "deepspeed",
    "vllm",
    "ray",
    "swift",
    "bash",
    "curl",
    "docker",
    "export",
    "git",
    "cd",
    "make",
    "source",
    "tensorboard",
    "trl",
    "uv",
    "sh",
    "for",
    "hf",
]
_COMMAND = re.compile(rf"\s*(\$ )?([A-Z_]+=\S+ )*({'|'.join(map(re.escape, _COMMANDS))})(\s|$)")


def block_language(code: str) -> str:
    """Return the language of a code block: ``console`` for commands with output, ``text`` for what is no code."""
    lines = [line for line in code.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if lines and _COMMAND.match(lines[0]):
        return "console" if lines[0].lstrip().startswith("$ ") else "bash"
    if lines and lines[0].lstrip().startswith((">>> ", "{")):
        return "pycon" if ">>> " in lines[0] else "json"
    if lines and all(_KEY.match(line) for line in lines):
        return "yaml"
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return "text"
    # A line of words separated by commas is Python by its form only.
    is_code = any(not isinstance(one, ast.Expr) or isinstance(one.value, ast.Call) for one in body)
    return "python" if is_code else "text"


def with_languages(markdown: str) -> str:
    """Name the language of each code block that names none, and of those that are a Python session."""
    return _BLOCK.sub(_with_language, markdown)


def _with_language(found: re.Match[str]) -> str:
    indent, language, code = found.groups()
    if not language.strip() or code.lstrip().startswith(">>> "):
        language = block_language(code)
    return f"{indent}```{language}\n{code}{indent}```"
