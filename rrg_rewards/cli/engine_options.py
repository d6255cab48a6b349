"""Options of commands that score on several machines."""

import argparse

from rrg_rewards.cli.options import UsageError, finite_number, positive_int

__all__ = ["add_engine_options", "check_engine"]


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--engine`` and the options of Ray."""
    group = parser.add_argument_group("scoring on several machines (extra ray)")
    group.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="where to score (default: local, this process)"
    )
    group.add_argument(
        "--address", metavar="ADDRESS", help="Ray cluster, for example auto (default: a new one on this machine)"
    )
    group.add_argument("--workers", type=positive_int, metavar="N", help="processes on Ray (default: one for each CPU)")
    group.add_argument(
        "--gpus-per-worker", type=finite_number, metavar="X", help="GPUs of each process on Ray (default: 0)"
    )


def check_engine(args: argparse.Namespace) -> None:
    """Raise if an option of Ray is given without ``--engine ray``, or Ray is not installed."""
    if args.engine == "ray":
        from rrg_rewards.utilities.imports import require

        require("ray", extra="ray")
        return
    for option in ("address", "workers", "gpus_per_worker"):
        if getattr(args, option) is not None:
            raise UsageError(f"argument --{option.replace('_', '-')}: requires --engine ray")
