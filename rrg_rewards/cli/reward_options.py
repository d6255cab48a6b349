"""The reward of commands, from their options."""

import argparse

from rrg_rewards.cli.judge_options import judge_from_option
from rrg_rewards.cli.labeler_options import labeler_from_option
from rrg_rewards.cli.options import UsageError, read_assignments
from rrg_rewards.labelers.registry import needs_judge
from rrg_rewards.rewards import Reward, make_reward

__all__ = ["make_reward_from_options"]


def make_reward_from_options(args: argparse.Namespace) -> Reward:
    """Make the reward of ``--reward`` from the options ``--set``, ``--labeler``, ``--judge`` and ``--context``.

    Raises:
        UsageError: If the reward or an option is unknown or invalid.
    """
    options = read_assignments("--set", "OPTION=VALUE", args.set, as_yaml=True)
    if args.labeler is not None:
        options["labeler"] = args.labeler
    if "labeler" in options and needs_judge(options["labeler"]):
        options["labeler"] = labeler_from_option(options["labeler"], args.judge)
    elif args.judge is not None:
        options["judge"] = judge_from_option(args.judge)
    if args.context:
        options["context_columns"] = read_assignments("--context", "NAME=COLUMN", args.context)
    try:
        return make_reward(args.reward, reference_column=args.reference_column, **options)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error
