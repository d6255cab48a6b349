"""A language model behind an OpenAI-compatible server as a judge."""

import asyncio
import os
import re
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any, TypeVar

from rrg_rewards.judges.address import check_address
from rrg_rewards.judges.base import STOPPED, Judge, JudgeFailure, JudgeTask
from rrg_rewards.judges.batches import within
from rrg_rewards.judges.cache import AnswerCache
from rrg_rewards.judges.chat import ChatSettings, reply_text, reply_tokens
from rrg_rewards.judges.evaluation import Evaluation, Limits
from rrg_rewards.judges.rate import RateLimiter, RateStoppedError, expected_tokens
from rrg_rewards.judges.response_format import (
    RESPONSE_FORMATS,
    FormatChoice,
    ResponseFormat,
    is_format_refusal,
)
from rrg_rewards.judges.retries import CallError, Retries, ServerWatch, retry_after_seconds
from rrg_rewards.judges.session import Session, Sessions
from rrg_rewards.judges.usage import Usage, UsageCounter
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.signature import format_signature

__all__ = ["OpenAIJudge"]

_PASSING_STATUSES = frozenset({408, 409, 425, 429})
# Words such as model_not_found. Anything else that a server says may repeat the report.
_ERROR_CODE = re.compile(r"[a-z0-9_.-]{1,40}", re.IGNORECASE)

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


class OpenAIJudge(Judge):
    """Judge with a language model behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, a cloud.

    **Never an error for the server's sake.** What the server fails to answer becomes a :class:`JudgeFailure` of a kind:
    ``deadline``, ``connection``, ``status`` (refused), ``malformed`` or ``inconsistent`` (answers that the task
    rejects). Errors of the task's code are raised.

    **Retries.** Calls are made again after 408, 409, 425, 429, 5xx, time-outs and broken connections, after a growing
    pause or when the server's ``Retry-After`` says; a ``Retry-After`` makes all calls of the batch wait. Other refusals
    are final. While the server serves nobody, further items get one attempt, and after twice ``concurrency`` items
    (at least 8) without an answer the rest of the batch fails at once. An answer that the task rejects is asked for
    again with the next seed, at a temperature of at least 0.5, for at 0 a seed changes nothing.

    **Rates.** ``requests_per_minute`` and ``tokens_per_minute`` are kept over all calls of this object, retries
    included (:class:`rrg_rewards.judges.rate.RateLimiter`). A copy in another process counts by itself.

    **Nothing twice.** Equal items are asked once, also by evaluations that run at the same time in one event loop.
    With ``cache``, an answer that the task accepted is kept by the hash of the conversation, the task, the model and
    the settings that shape an answer, and checked again by the task whenever it is read.

    **Privacy.** Report text goes to ``base_url`` only, and that must be this machine unless ``allow_remote``: redirects
    are not followed, and a proxy of the environment is not used for loopback. Neither keys nor report text appear in
    messages, signatures or pickles.

    Args:
        model: What the server calls the model. Answers are cached under this name, so it must tell models apart.
        base_url: Address of the API.
        api_key: Key for the server. It is not pickled: where the judge is sent to another process, name a variable.
        api_key_variable: Environment variable with the key, read when it is needed, without ``api_key``.
        allow_remote: Whether report text may leave this machine.
        concurrency: Calls at a time, in each event loop.
        timeout: Seconds that a call may take from its first to its last byte, and the most that a ``Retry-After`` is
            waited for at a time.
        batch_deadline: Seconds that an evaluation may take; what is not done then fails with ``deadline``.
        max_retries: How often a call is made again.
        first_pause: Seconds before the first retry. Each further one doubles it, up to 16 times; up to half is taken
            off by chance.
        max_reasks: How often a second answer is asked for after one that the task rejects.
        temperature: Sampling temperature; ``None`` leaves it to the server.
        max_tokens: Most tokens of an answer; ``None`` leaves it to the server.
        seed: Seed of the sampling; ``None`` leaves it to the server.
        response_format: How the server is made to answer in JSON: ``json_schema`` (OpenAI, vLLM, SGLang),
            ``schema_object`` (llama.cpp), ``json_object`` (any JSON), ``text`` (anything), or ``auto``, which tries
            these in turn where the server refuses one, and remembers.
        cache: Folder that keeps good answers, for any number of processes.
        cache_size_limit: Bytes that the folder may take, about; the oldest answers go first.
        extra_body: Further fields of each request, such as ``{"top_k": 1}``; they must be JSON.
        requests_per_minute: Most calls a minute, let out evenly; ``None`` for no limit.
        tokens_per_minute: Most tokens a minute, of prompts and answers; ``None`` for no limit.
        price: Price of a million prompt tokens and of a million completion tokens, for :attr:`usage`.
        progress: Whether to show a bar on standard error if that is a terminal.

    Raises:
        ValueError: If the address is on another machine without ``allow_remote`` or is no plain address, or another
            argument is out of its range.
        ModuleNotFoundError: When evaluating, if openai or diskcache is not installed, naming the pip command.

    Example:
        >>> judge = OpenAIJudge("medgemma-4b", base_url="http://localhost:8000/v1", concurrency=64)
        >>> judge.signature
        'openai|model:medgemma-4b|host:loopback|temperature:0.0|max_tokens:2048|seed:0|response_format:auto|...'
        >>> judge.usage.calls
        0
        >>> OpenAIJudge("gpt", base_url="https://api.example.org/v1")
        Traceback (most recent call last):
        ...
        ValueError: base_url is on another machine, 'api.example.org', ... pass allow_remote=True
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "http://localhost:8000/v1",
        api_key: str | None = None,
        api_key_variable: str = "OPENAI_API_KEY",
        allow_remote: bool = False,
        concurrency: int = 32,
        timeout: float = 60.0,
        batch_deadline: float | None = None,
        max_retries: int = 4,
        first_pause: float = 0.5,
        max_reasks: int = 1,
        temperature: float | None = 0.0,
        max_tokens: int | None = 2048,
        seed: int | None = 0,
        response_format: ResponseFormat = "auto",
        cache: str | os.PathLike[str] | None = None,
        cache_size_limit: int = 4 * 2**30,
        extra_body: Mapping[str, Any] | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        price: tuple[float, float] | None = None,
        progress: bool = False,
    ) -> None:
        if not model:
            raise ValueError("model must be the name by which the server knows the model, got ''")
        _check_at_least(1, concurrency=concurrency, cache_size_limit=cache_size_limit)
        _check_at_least(0, max_retries=max_retries, first_pause=first_pause, max_reasks=max_reasks)
        _check_positive(timeout=timeout, batch_deadline=batch_deadline, max_tokens=max_tokens)
        if response_format not in ("auto", *RESPONSE_FORMATS):
            raise ValueError(unknown_name_message("response_format", response_format, ("auto", *RESPONSE_FORMATS)))
        self.address = check_address(base_url, allow_remote)
        self.model = model
        self.concurrency = concurrency
        self.timeout = timeout
        self._chat = ChatSettings(model, temperature, max_tokens, seed, dict(extra_body or {}))
        self._api_key = api_key
        self._format = FormatChoice(response_format)
        self._limits = Limits(concurrency, batch_deadline, max_reasks)
        self._retries = Retries(max_retries, first_pause, longest_hold=timeout)
        self._rate = RateLimiter(requests_per_minute, tokens_per_minute)
        self._counter = UsageCounter(price)
        self._sessions = Sessions(self._make_client, _close, concurrency)
        self._arguments: dict[str, Any] = {
            "model": model,
            "base_url": self.address.url,
            "api_key_variable": api_key_variable,
            "allow_remote": allow_remote,
            "concurrency": concurrency,
            "timeout": timeout,
            "batch_deadline": batch_deadline,
            "max_retries": max_retries,
            "first_pause": first_pause,
            "max_reasks": max_reasks,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "seed": seed,
            "response_format": response_format,
            "extra_body": dict(extra_body or {}),
            "cache": None if cache is None else os.fspath(cache),
            "cache_size_limit": cache_size_limit,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "price": None if price is None else tuple(price),
            "progress": progress,
        }

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge, without its key."""
        return dict(self._arguments)

    @property
    def signature(self) -> str:
        """What exactly judges: the model, where it is unless on this machine, and the settings of its answers."""
        further = {"extra_body": self._chat.extra_hash} if self._chat.extra_body else {}
        return format_signature(
            "openai",
            model=self.model,
            host="loopback" if self.address.is_loopback else self.address.host,
            temperature=self._chat.temperature,
            max_tokens=self._chat.max_tokens,
            seed=self._chat.seed,
            response_format=self._arguments["response_format"],
            **further,
        )

    @property
    def usage(self) -> Usage:
        """Calls, tokens, cost and failures since the judge was made; a copy that is unpickled begins anew."""
        return self._counter.usage()

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate items, all at once; equal ones once.

        Args:
            task: What to ask.
            items: ``N`` items.

        Returns:
            For each item, in order, its result or why there is none.

        Raises:
            ModuleNotFoundError: If openai or diskcache is not installed, naming the pip command.
            OSError: If the cache's folder cannot be made.
        """
        # Before anything is asked, and also where nothing is to be asked.
        require("openai", extra="judge")
        evaluation = Evaluation(
            task,
            items,
            key=partial(self._key, task),
            call=partial(self._call, task),
            limits=self._limits,
            usage=self._counter,
            cache=self._cache,
        )
        return await evaluation.run(self._sessions, show_progress=self._arguments["progress"])

    def stop(self) -> None:
        """Ask nothing more, from any thread: what was asked already is waited for, all else fails with ``STOPPED``."""
        super().stop()
        self._rate.stop()

    @cached_property
    def _cache(self) -> AnswerCache | None:
        folder = self._arguments["cache"]
        return None if folder is None else AnswerCache(folder, size_limit=self._arguments["cache_size_limit"])

    def _key(self, task: JudgeTask[Item, Result], item: Item) -> str:
        return self._chat.key(task, item, self._arguments["response_format"])

    def _make_client(self) -> Any:
        openai = require("openai", extra="judge")
        limits = type(openai.DEFAULT_CONNECTION_LIMITS)(
            max_connections=self.concurrency, max_keepalive_connections=self.concurrency
        )
        http_client = openai.DefaultAsyncHttpxClient(
            limits=limits,
            # The time of a whole call is bounded by this judge; the client would bound each read of a slow drip.
            timeout=None,
            # A redirect would carry report text to a host that nobody allowed, and so would a proxy.
            follow_redirects=False,
            trust_env=not self.address.is_loopback,
            # Without HTTPS there is no certificate to verify, and reading those of the system takes 35 ms a client.
            verify=self.address.is_encrypted,
        )
        key = self._api_key or os.environ.get(self._arguments["api_key_variable"])
        return openai.AsyncOpenAI(
            # The client insists on a key; servers on this machine mostly need none.
            api_key=key or "none",
            base_url=self.address.url,
            timeout=None,
            max_retries=0,
            http_client=http_client,
        )

    async def _call(
        self, task: JudgeTask[Item, Result], session: Session, watch: ServerWatch, item: Item, rejected: int
    ) -> str:
        """Text of an answer, in the strictest format that the server takes."""
        response_format = self._format.first
        while True:
            send = partial(self._send, session, self._chat.body(task, item, response_format, rejected))
            try:
                reply = await self._retries.run(send, watch, lambda: self._counter.add(retries=1))
            except _FormatError:
                looser = self._format.after(response_format)
                if looser is None:
                    raise
                response_format = looser
            else:
                self._format.settle(response_format)
                tokens = reply_tokens(reply)
                self._counter.add(prompt_tokens=tokens.prompt, completion_tokens=tokens.completion)
                return reply_text(reply)

    async def _send(self, session: Session, body: Mapping[str, Any]) -> object:
        """The server's reply as JSON, or ``None`` where it is none.

        Raises:
            CallError: If there is no reply.
        """
        openai = require("openai", extra="judge")
        if self.is_stopped:
            raise _stopped()
        async with session.place():
            try:
                admission = await self._rate.admit(expected_tokens(body))
            except RateStoppedError:
                raise _stopped() from None
            self._counter.add(calls=1)
            try:
                # `post` in place of `chat.completions.create`, whose models of request and reply cost as much time as
                # all the rest of a call (1.3 against 0.9 ms).
                reply: object = await within(
                    self.timeout, session.client.post("/chat/completions", cast_to=object, body=body)
                )
                # What a server does not count stays what was expected.
                if taken := sum(reply_tokens(reply)):
                    admission.settle(taken)
                return reply
            except asyncio.TimeoutError:
                raise CallError("deadline", f"no answer within {self.timeout:g} s") from None
            except openai.APIStatusError as error:
                admission.settle(0)
                raise _status_error(error) from None
            except openai.APIConnectionError as error:
                cause = type(error.__cause__ or error).__name__
                raise CallError("connection", f"the connection failed ({cause})") from None
            except (ValueError, RecursionError):
                return None


class _FormatError(CallError):
    """The server does not answer in the format that was asked for."""


async def _close(client: Any) -> None:
    await client.close()


def _stopped() -> CallError:
    return CallError(STOPPED.kind, STOPPED.reason, passing=False)


def _status_error(error: Any) -> CallError:
    """What a status other than 200 means."""
    status, code = error.status_code, error.code
    # Not the server's message, which may repeat the request.
    named = f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
    if 300 <= status < 400:
        named = " (a redirect, which is not followed)"
    reason = f"the server answered HTTP {status}{named}"
    if is_format_refusal(status, error.body):
        return _FormatError("status", reason, passing=False)
    passing = status in _PASSING_STATUSES or status >= 500
    retry_after = retry_after_seconds(error.response.headers.get("retry-after"), datetime.now(timezone.utc))
    return CallError("status", reason, passing=passing, retry_after=retry_after)


def _check_at_least(least: float, **arguments: float) -> None:
    for name, value in arguments.items():
        if not value >= least:
            raise ValueError(f"{name} must be at least {least:g}, got {value}")


def _check_positive(**arguments: float | None) -> None:
    for name, value in arguments.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
