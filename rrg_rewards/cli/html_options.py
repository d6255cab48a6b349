"""Options of the commands that write an HTML page."""

import argparse
from typing import TYPE_CHECKING

from rrg_rewards.cli.options import UsageError, check_file_options

if TYPE_CHECKING:
    from rrg_rewards.pages.page import Page

__all__ = ["check_html", "write_html"]


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
