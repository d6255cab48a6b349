"""Options of the commands that write an HTML page."""

import argparse
from typing import TYPE_CHECKING

from rrg_rewards.cli.options import UsageError, check_file_options

if TYPE_CHECKING:
    from rrg_rewards.pages.page import Page

__all__ = ["add_html_options", "check_html", "write_html"]

_TEXT = "reports, findings and reasons of judges"


def add_html_options(parser: argparse.ArgumentParser, text: str = _TEXT, names: bool = False) -> None:
    """Add ``--html`` and ``--with-text``.

    Args:
        parser: Parser of the command.
        text: What ``--with-text`` adds.
        names: Whether to add ``--id-column`` too.
    """
    parser.add_argument("--html", metavar="FILE", help="write a page with plots and a table of all rows to FILE")
    parser.add_argument("--with-text", action="store_true", help=f"let the page of --html contain {text}")
    if names:
        help_ = "column that names the rows of --html (default: numbers)"
        parser.add_argument("--id-column", metavar="NAME", help=help_)


def check_html(args: argparse.Namespace) -> None:
    """Raise before any work is done if ``--html`` cannot be written, or ``--with-text`` is given without it."""
    if args.html is None:
        for option in ("with_text", "id_column"):
            if getattr(args, option, None):
                raise UsageError(f"argument --{option.replace('_', '-')}: needs --html FILE")
        return
    check_file_options(args, *(name for name in ("png", "latex", "markdown", "html") if hasattr(args, name)))


def write_html(args: argparse.Namespace, page: "Page") -> None:
    """Write the page of ``--html``."""
    from rrg_rewards.pages.page import write_page

    write_page(page, args.html, args.overwrite)
