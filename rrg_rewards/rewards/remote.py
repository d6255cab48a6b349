"""A reward of one or several servers, and the HTTP calls to them."""

import asyncio
import json
import os
import random
import ssl
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from typing import Any

from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.judges.server.calls import (
    CallError,
    ReplyRefusedError,
    backoff_seconds,
    check_address,
    make_http_client,
    retry_after_seconds,
)
from rrg_rewards.metrics.judged import FAILURE_KINDS, JudgedScores
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import AsyncReward, named_columns, score_tensor
from rrg_rewards.rewards.completions import Completion, ReportExtractor, opened_reasoning
from rrg_rewards.rewards.unrewarded import MAX_UNREWARDED_CALLS, UnrewardedCalls
from rrg_rewards.utilities.checks import check_same_length, is_finite
from rrg_rewards.utilities.concurrency import for_each, within
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.processes import run_coroutine
from rrg_rewards.utilities.settings import Settings, setting

_HTTP = "httpx2"
# A reply has some hundred bytes for each completion.
_MOST_BYTES = 64 * 2**20
# Statuses other than 5xx after which a retry may succeed.
_PASSING_STATUSES = frozenset({408, 425, 429})
_TOO_LONG = 413
_SHOWN = 300


class RemoteRewardWarning(UserWarning):
    """Reward servers gave no reward for some completions."""


class RemoteReward(AsyncReward):
    """The reward of one or several servers that ``rrg-rewards serve`` has started; asynchronous.

    A call returns a coroutine. Completions are sent in requests of ``batch_size``, to each address in turn. A request
    that fails (HTTP 408, 425, 429, 5xx, a broken connection or no reply in time) is sent to the other addresses, and
    then again after a pause. If it still fails, its completions have the reward ``None`` and are counted: with
    ``log_metric``, the reward logs ``{name}/failed``, and it warns with the kinds of failures. An unscorable completion
    has the reward ``None``, as on the server. A request that is refused (wrong token, missing column) raises an error.

    If no completion has a reward in several calls in a row, the call raises an error.

    All servers must serve the same reward with the same settings; the signatures of their replies are compared.

    Report text is sent to the addresses only, which must be on this machine unless ``allow_remote`` is set. Redirects
    are not followed, and proxies of the environment are not used.

    Args:
        urls: Address of the server, or addresses of several.
        reference_column: Column of the data set that is sent as ``reference``, which the server takes for its column of
            references; ``None`` if the served reward reads no references.
        context_columns: Further columns that the served reward reads: a list of names, or a mapping from the names on
            the server to those in the data set.
        name: Name under which trainers log the reward.
        log_details: Log the failures by kind.
        allow_remote: Whether report text may be sent to another machine.
        token_variable: Environment variable with the token of the servers, read at each call.
        batch_size: Maximum number of completions in a request.
        concurrency: Maximum number of requests at a time in a call.
        timeout: Maximum seconds of a request.
        deadline: Maximum seconds of a call with all its requests and retries; ``None`` for no limit.
        max_retries: How often a request is repeated after it failed at all addresses.
        first_pause: Seconds before the first repetition. Each further pause is twice as long, up to 16 times the first.
            Up to half of each pause is removed at random. A server's ``Retry-After`` replaces the pause.
        max_unrewarded_calls: Number of calls in a row without any reward after which a call raises
            :class:`~rrg_rewards.rewards.unrewarded.NoRewardError`; ``None`` for no limit.

    Raises:
        ValueError: If a limit is out of its range, or an address is not a plain HTTP address, or is on another machine
            without ``allow_remote``; when called, if a column is missing, a server refuses the request, or servers
            serve different rewards.
        ModuleNotFoundError: When called, if httpx2 is not installed, naming the pip command.

    Example:
        >>> from rrg_rewards.rewards import RemoteReward
        >>> reward = RemoteReward(["http://localhost:8787", "http://localhost:8788"], context_columns=["age"])
        >>> reward.columns
        ('reference', 'age')
        >>> import asyncio
        >>> asyncio.run(reward(["Edema."], reference=["Normal."], age=[66]))  # doctest: +SKIP
        [-0.5]
    """

    # The reward on the server extracts the report, or reads the form of the whole completion.
    report = ReportExtractor("raw")

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        reference_column: str | None = "reference",
        context_columns: Mapping[str, str] | Sequence[str] = (),
        name: str = "remote",
        log_details: bool = False,
        allow_remote: bool = False,
        token_variable: str = "RRG_REWARDS_TOKEN",
        batch_size: int = 64,
        concurrency: int = 16,
        timeout: float = 60.0,
        deadline: float | None = None,
        max_retries: int = 4,
        first_pause: float = 0.5,
        max_unrewarded_calls: int | None = MAX_UNREWARDED_CALLS,
    ) -> None:
        super().__init__(name, log_details=log_details)
        self._unrewarded = UnrewardedCalls(max_unrewarded_calls)
        given = [urls] if isinstance(urls, str) else list(urls)
        self._client = _RewardClient(
            given, allow_remote, token_variable, batch_size, concurrency, timeout, deadline, max_retries, first_pause
        )
        reference = {} if reference_column is None else {"reference": reference_column}
        self._sent = {**reference, **named_columns(context_columns)}
        self._served: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that are sent."""
        return tuple(self._sent.values())

    @property
    def signature(self) -> str:
        """Signature of the served reward, which is requested from a server if there was no reply yet.

        Raises:
            ConnectionError: If no server answers.
        """
        if self._served is None:
            run_coroutine(self._request_signature())
        return f"remote|{self._served}{self.suffix}"

    def score(self, completions: Sequence[Completion], **columns: Any) -> JudgedScores:
        """Score completions, and wait for the servers; see :meth:`Reward.score`."""
        return run_coroutine(self.score_async(completions, **columns))

    async def score_async(self, completions: Sequence[Completion], **columns: Any) -> JudgedScores:
        """Score completions without blocking the event loop; NaN without a reward from a server."""
        texts = self.reports(completions)
        sent = {name: self._column(columns, column) for name, column in self._sent.items()}
        for name, values in sent.items():
            check_same_length("completions", texts, f"column {self._sent[name]!r}", values)
        rows = [
            {"completions": [] if text is None else text, **{name: values[row] for name, values in sent.items()}}
            for row, text in enumerate(texts)
        ]
        prompts = columns.get("prompts")
        if prompts is not None and any(opened := [*map(opened_reasoning, prompts)]):
            check_same_length("completions", texts, "prompts", opened)
            rows = [{"prompts": tag, **row} for row, tag in zip(rows, opened, strict=True)]
        replies = await self._replies(rows)
        results = tuple(reply if isinstance(reply, JudgeFailure) else reply.get("failure") for reply in replies)
        self._warn(results)
        return _scores(replies, results)

    def _finish(self, scores: Scores, *arguments: Any) -> list[float | None]:
        rewards = super()._finish(scores, *arguments)
        if rewards:
            self._unrewarded.add(any(reward is not None for reward in rewards))
        return rewards

    async def _replies(self, rows: Sequence[Mapping[str, Any]]) -> list["_Reply"]:
        """Return the reply to each row. Rows without one in time have a failure."""
        client = self._client
        deadline = None if client.deadline is None else asyncio.get_running_loop().time() + client.deadline
        replies: list[_Reply] = [JudgeFailure("deadline", f"no reward within {client.deadline} s")] * len(rows)
        async with client.session() as session:

            async def ask(start: int) -> None:
                batch = slice(start, start + client.batch_size)
                replies[batch] = await self._ask(session, rows[batch])

            starts = range(0, len(rows), client.batch_size)
            await for_each(starts, ask, workers=client.concurrency, deadline=deadline)
        return replies

    async def _ask(self, session: Any, rows: Sequence[Mapping[str, Any]]) -> list["_Reply"]:
        body = {name: [row[name] for row in rows] for name in rows[0]}
        content = json.dumps(body, default=_plain).encode()
        try:
            reply = await self._client.call(session, "POST", "/rewards", content)
            parsed = _rows_of(reply, len(rows))
        except _TooLongError:
            if len(rows) == 1:
                return [JudgeFailure("status", "the completion is too long for the server")]
            half = len(rows) // 2
            return [*await self._ask(session, rows[:half]), *await self._ask(session, rows[half:])]
        except CallError as error:
            return [JudgeFailure(error.kind, str(error))] * len(rows)
        self._compare(str(reply["signature"]))
        return [*parsed]

    async def _request_signature(self) -> None:
        async with self._client.session() as session:
            try:
                info = await self._client.call(session, "GET", "/info", None)
            except CallError as error:
                raise ConnectionError(f"no reward server answers at {', '.join(self._client.urls)}: {error}") from None
        self._compare(str(info.get("signature")))

    def _compare(self, signature: str) -> None:
        if self._served is None:
            self._served = signature
        if signature != self._served:
            raise ValueError(
                f"the reward servers at {', '.join(self._client.urls)} serve different rewards, {self._served!r} and "
                f"{signature!r}; start them with the same settings and version"
            )

    def _warn(self, results: Sequence[JudgeFailure | None]) -> None:
        counts = Counter(result.kind for result in results if result is not None)
        if counts:
            by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
            reason = next(result.reason for result in results if result is not None)
            warnings.warn(
                f"{self.__name__}: {sum(counts.values())} of {len(results)} completions have no reward from a server "
                f"({by_kind}; first: {reason})",
                RemoteRewardWarning,
                stacklevel=2,
            )


_Reply = JudgeFailure | dict[str, Any]


def _plain(value: Any) -> Any:
    """Return numbers and arrays of numpy and torch as JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"columns that are sent to a reward server must be JSON, got {type(value).__name__}")


def _rows_of(reply: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    """Return reward, sub-scores and failure of each completion.

    Raises:
        CallError: If the reply has another form.
    """
    rewards: Any = reply.get("rewards")
    failures: Any = reply.get("failures")
    scores: Any = reply.get("scores")
    lists = [rewards, failures, *(scores.values() if isinstance(scores, dict) else [None])]
    if not all(isinstance(values, list) and len(values) == number for values in lists):
        raise CallError("malformed", f"the reply does not have {number} rewards, sub-scores and failures")
    numbers = [value for values in (rewards, *scores.values()) for value in values]
    if not all(value is None or is_finite(value) for value in numbers) or "signature" not in reply:
        raise CallError("malformed", "a reward or sub-score of the reply is not a number, or it has no signature")
    return [
        {
            "reward": rewards[row],
            "scores": {name: values[row] for name, values in scores.items()},
            "failure": _failure(failures[row]),
        }
        for row in range(number)
    ]


def _failure(kind: Any) -> JudgeFailure | None:
    if kind is None:
        return None
    if kind not in FAILURE_KINDS:
        raise CallError("malformed", "the reply has an unknown kind of failure")
    return JudgeFailure(kind, "the judge of the server failed")


def _scores(replies: Sequence[_Reply], results: tuple[JudgeFailure | None, ...]) -> JudgedScores:
    known = [{} if isinstance(reply, JudgeFailure) else reply for reply in replies]
    names = dict.fromkeys(name for reply in known for name in reply.get("scores", ()))
    return JudgedScores(
        score_tensor([reply.get("reward") for reply in known]),
        {name: score_tensor([reply.get("scores", {}).get(name) for reply in known]) for name in names},
        results=results,
    )


class _TooLongError(Exception):
    """A request is too long for the server."""


@dataclass
class _RewardClient(Settings):
    """Calls reward servers that serve the same reward; see :class:`RemoteReward`.

    Raises:
        ValueError: If there is no address, one is not a plain HTTP address or is on another machine without
            ``allow_remote``, or a limit is out of its range.
    """

    urls: list[str]
    allow_remote: bool
    token_variable: str
    batch_size: int = setting(minimum=1)
    concurrency: int = setting(minimum=1)
    timeout: float = setting(above=0)
    deadline: float | None = setting(above=0)
    max_retries: int = setting(minimum=0)
    first_pause: float = setting(minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.urls:
            raise ValueError("urls must contain at least one address")
        addresses = [check_address(url, self.allow_remote, "urls", "the token in token_variable") for url in self.urls]
        self.urls = [address.url for address in addresses]
        self._is_encrypted = any(address.is_encrypted for address in addresses)
        self._turn = random.randrange(len(self.urls))

    def session(self) -> Any:
        """Return an HTTP client, which is an asynchronous context manager."""
        httpx = require(_HTTP, extra="remote")
        token = os.environ.get(self.token_variable)
        return make_http_client(
            httpx.AsyncClient,
            httpx.Limits,
            connections=self.concurrency,
            most_bytes=_MOST_BYTES,
            # Environment variables with proxies are ignored: a proxy would see the reports.
            trust_env=False,
            verify=_certificates() if self._is_encrypted else False,
            headers={
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {token}".encode()} if token else {}),
            },
        )

    async def call(self, session: Any, method: str, path: str, content: bytes | None) -> Any:
        """Return the JSON of a reply, from the first address that gives one.

        Args:
            session: Result of :meth:`session`.
            method: ``GET`` or ``POST``.
            path: Path at each address.
            content: Body of the request.

        Raises:
            CallError: If all attempts failed.
            _TooLongError: If the request is too long.
            ValueError: If a server refuses the request, which it would do again.
        """
        self._turn += 1
        first = self._turn
        for attempt in range(self.max_retries + 1):
            errors = []
            for place in range(len(self.urls)):
                url = self.urls[(first + place) % len(self.urls)]
                try:
                    return await self._call_address(session, method, url + path, content)
                except CallError as error:
                    errors.append(error)
            if attempt < self.max_retries:
                await asyncio.sleep(self._pause(attempt, errors))
        raise errors[-1]

    def _pause(self, attempt: int, errors: Sequence[CallError]) -> float:
        requested = [error.retry_after for error in errors if error.retry_after is not None]
        if len(requested) == len(errors):
            return min([*requested, self.timeout])
        return backoff_seconds(attempt, self.first_pause)

    async def _call_address(self, session: Any, method: str, url: str, content: bytes | None) -> Any:
        try:
            response = await within(self.timeout, session.request(method, url, content=content))
        except asyncio.TimeoutError:
            raise CallError("deadline", f"no reply within {self.timeout:g} s") from None
        except ReplyRefusedError as error:
            raise CallError("malformed", str(error)) from None
        except (require(_HTTP, extra="remote").HTTPError, OSError) as error:
            raise CallError("connection", f"the connection to {url} failed ({type(error).__name__})") from None
        status, reply = response.status_code, _json_object(response.content)
        if status == 200:
            if reply is None:
                raise CallError("malformed", "the reply is not a JSON object")
            return reply
        _raise_refusal(url, status, reply)
        retry_after = retry_after_seconds(response.headers.get("Retry-After"), datetime.now(timezone.utc))
        raise CallError("status", f"the server answered HTTP {status}{_told(reply)}", retry_after=retry_after)


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates of the system, which take 35 ms to load."""
    return ssl.create_default_context()


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return reply if isinstance(reply, dict) else None


def _raise_refusal(url: str, status: int, reply: Any) -> None:
    """Raise an error for a status after which a retry cannot succeed."""
    if status == _TOO_LONG:
        raise _TooLongError
    if status in _PASSING_STATUSES or status >= 500:
        return
    raise ValueError(f"the reward server at {url} refuses the request with HTTP {status}{_told(reply)}")


def _told(reply: Any) -> str:
    """Return the message of an error. The messages of `rrg-rewards serve` contain no text of the request."""
    return f": {str(reply['error'])[:_SHOWN]}" if isinstance(reply, dict) and "error" in reply else ""
