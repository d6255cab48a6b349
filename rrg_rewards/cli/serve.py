"""``rrg-rewards serve``: a reward over HTTP."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    finite_number,
    positive_int,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.integrations.serve.settings import ServerOptions
    from rrg_rewards.rewards.base import Reward

__all__ = ["add_command"]

_MAX_BATCH = 64
_MAX_WAIT_MS = 5.0

_DESCRIPTION = """\
Serve a reward over HTTP, for trainers in other processes, environments, machines and languages. Single completions of
concurrent requests are scored in batches. All paths take POST and JSON:

  /rewards            {"completions": [...], "reference": [...]} -> {"rewards": [...], "scores": {...}, ...}
  /get_reward         OpenRLHF, --reward.remote_url http://HOST:PORT/get_reward
  /remote_rm          slime, --rm-type remote_rm --rm-url http://HOST:PORT/remote_rm
  /remote_rm/scores   slime, with --reward-key score
  /v1                 LLaMA-Factory, reward_model: http://HOST:PORT/v1 (needs --prompts)
  /health, /info and /metrics (Prometheus) take GET.

An unscorable completion has the reward null in /rewards. The other replies cannot carry null; they need --missing, the
reward of such completions, and mark them by "scorable": 0. Labels of OpenRLHF and slime are the reference, or a JSON
object with all columns of the reward.

The server listens on this machine only. For other addresses, put a token into the environment variable
RRG_REWARDS_TOKEN; clients send it as "Authorization: Bearer TOKEN", or in the address, http://any:TOKEN@HOST:PORT/.
Report text is never written to a log or an error. On SIGTERM, the server finishes its requests and exits.

examples:
  rrg-rewards serve --reward crg --set prior=0.2
  rrg-rewards fit train.csv --reward crg --set average=macro --output reward.json
  rrg-rewards serve --config reward.json --workers 4
  rrg-rewards serve --reward crimson --context age=PatientAge --missing -1
  rrg-rewards serve --reward crepe --set model=my_crepe --device cuda --max-batch 128
  rrg-rewards serve --reward crg --set prior=0.2 --missing 0 --prompts train.jsonl
  curl -d '{"completions": ["Cardiomegaly."], "reference": ["Cardiomegaly."]}' http://127.0.0.1:8787/rewards

From Python, RemoteReward("http://127.0.0.1:8787") is the served reward. docs/serve.md describes replies and limits.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``serve`` to the command line."""
    parser = add_command_parser(commands, "serve", _run, summary, _DESCRIPTION)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--reward", metavar="NAME", help="reward to serve, for example crg")
    given.add_argument("--config", metavar="FILE", help="YAML file of settings, or what rrg-rewards fit has written")
    parser.add_argument(
        "--reference-column", metavar="NAME", help="column of references, with --reward (default: reference)"
    )
    setting = {"metavar": "OPTION=VALUE", "help": "set an option of the reward, for example prior=0.2; may be repeated"}
    add_shared_options(parser, "labeler", "judge", "context", set=setting)
    parser.add_argument("--device", metavar="NAME", help="device of the reward's model, for example cuda or cuda:1")
    parser.add_argument(
        "--missing", type=finite_number, metavar="X", help="reward of unscorable completions where null is impossible"
    )
    parser.add_argument(
        "--prompts", metavar="TABLE", help="for /v1: table with the prompts and the columns of the reward"
    )
    parser.add_argument(
        "--prompt-column", default="prompt", metavar="NAME", help="column of --prompts (default: %(default)s)"
    )
    _add_server_options(parser)


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="address (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8787, metavar="N", help="port; 0 for a free one (default: 8787)")
    parser.add_argument("--workers", type=positive_int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument(
        "--max-batch",
        type=positive_int,
        metavar="N",
        help=f"completions that are scored at a time (default: that of --config, or {_MAX_BATCH})",
    )
    parser.add_argument(
        "--max-wait-ms",
        type=finite_number,
        metavar="N",
        help=f"milliseconds that a completion waits for others (default: that of --config, or {_MAX_WAIT_MS:g})",
    )
    limits: dict[str, tuple[Any, Any, str]] = {
        "max-pending": (positive_int, 4096, "waiting completions in a worker; further requests get HTTP 429"),
        "timeout": (finite_number, 60.0, "seconds in which a request must arrive, and then be scored"),
        "max-request-mb": (positive_int, 16, "megabytes of a request; longer ones get HTTP 413"),
    }
    for name, (kind, default, meaning) in limits.items():
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar="N", help=f"{meaning} (default: {default:g})"
        )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be in 0 to 65535, got {text!r}")
    return int(text)


def _read_prompts(args: argparse.Namespace, reward: "Reward") -> dict[str, dict[str, Any]]:
    """Return the columns of the reward by prompt."""
    from rrg_rewards.data.tables.readers import read_table
    from rrg_rewards.integrations.common.transcripts import plain_question

    table = read_table(args.prompts)
    prompts = table.required_texts(args.prompt_column)
    columns = {
        name: table.texts(name) if name == args.reference_column else table.values(name) for name in reward.columns
    }
    found: dict[str, dict[str, Any]] = {}
    for row, prompt in enumerate(prompts):
        values = {name: column[row] for name, column in columns.items()}
        if found.setdefault(plain_question(prompt), values) != values:
            raise UsageError(
                f"argument --prompts: {table.where(row)} has the prompt of an earlier row and another "
                f"{' or '.join(columns)}, and /v1 finds a reference by its prompt only"
            )
    return found


def _make_reward(args: argparse.Namespace) -> tuple["Reward", dict[str, Any]]:
    """Return the reward, and settings of the server from the file of ``--config``."""
    if args.config is not None:
        return _read_config(args)
    from rrg_rewards.cli.reward_options import make_reward_from_options

    if args.device is not None:
        args.set.append(f"device={args.device}")
    args.reference_column = args.reference_column or "reference"
    return make_reward_from_options(args), {"missing": args.missing}


def _read_config(args: argparse.Namespace) -> tuple["Reward", dict[str, Any]]:
    from rrg_rewards.integrations.common.settings import read_settings, read_settings_file

    names = ("labeler", "judge", "context", "set", "device", "reference_column")
    if unused := [name.replace("_", "-") for name in names if getattr(args, name) not in (None, [])]:
        raise UsageError(f"argument --{unused[0]}: has no effect with --config; put it into the file")
    settings = read_settings({"config": args.config})
    missing = settings.missing if args.missing is None else args.missing
    if missing == "mean":
        raise UsageError("argument --config: missing must be a number, because workers share no mean")
    args.reference_column = settings.reference_column
    # The defaults of a server differ from those of a trainer's workers.
    for name in ("max_batch", "max_wait_ms"):
        if getattr(args, name) is None and name in read_settings_file(args.config):
            setattr(args, name, getattr(settings, name))
    server = {"missing": missing, "extractor": settings.extractor, "score_range": settings.score_range}
    return settings.make_reward(), server


def _server_options(args: argparse.Namespace, reward: "Reward", more: dict[str, Any]) -> "ServerOptions":
    from rrg_rewards.integrations.serve.settings import ServerOptions

    try:
        return ServerOptions(
            reward,
            **more,
            reference_column=args.reference_column,
            prompts=None if args.prompts is None else _read_prompts(args, reward),
            token=os.environ.get("RRG_REWARDS_TOKEN"),
            max_batch=_MAX_BATCH if args.max_batch is None else args.max_batch,
            max_wait=(_MAX_WAIT_MS if args.max_wait_ms is None else args.max_wait_ms) / 1000,
            max_pending=args.max_pending,
            timeout=args.timeout,
            max_request_bytes=args.max_request_mb * 2**20,
            max_total_bytes=max(256, args.max_request_mb) * 2**20,
            num_workers=args.workers,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.utilities.imports import require

    for module in ("uvicorn", "starlette", "prometheus_client"):
        require(module, extra="serve")
    from rrg_rewards.integrations.serve.run import bind, run_server

    reward, more = _make_reward(args)
    options = _server_options(args, reward, more)
    try:
        listener = bind(args.host, args.port, options.token, options.num_workers)
    except ValueError as error:
        raise UsageError(f"argument --host: {error}: set the environment variable RRG_REWARDS_TOKEN") from error
    host, port = listener.getsockname()[:2]
    terminal.note(f"serving {reward.signature} at http://{f'[{host}]' if ':' in host else host}:{port}")
    return 0 if run_server(options, listener) else 1
