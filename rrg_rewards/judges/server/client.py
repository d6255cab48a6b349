"""HTTP calls to an OpenAI-compatible server."""

import asyncio
import os
import re
from collections.abc import Mapping
from copy import copy
from datetime import datetime, timezone
from functools import partial
from typing import Any

from rrg_rewards.judges.base import STOPPED, Item, JudgeTask
from rrg_rewards.judges.server.concurrency import within
from rrg_rewards.judges.server.rate_limit import RateLimiter, RateStoppedError, expected_tokens
from rrg_rewards.judges.server.reply_limit import UNCOMPRESSED, ReplyRefusedError, limit_reply
from rrg_rewards.judges.server.requests import reply_text, reply_tokens, request_body
from rrg_rewards.judges.server.response_format import FormatChoice, is_format_refusal
from rrg_rewards.judges.server.retries import CallError, Retries, ServerWatch, retry_after_seconds
from rrg_rewards.judges.server.session import Session, Sessions
from rrg_rewards.judges.server.settings import ServerSettings
from rrg_rewards.judges.server.usage import UsageCounter
from rrg_rewards.utilities.imports import require

__all__ = ["ChatClient"]

# Statuses other than 5xx after which a retry may succeed.
_PASSING_STATUSES = frozenset({408, 409, 425, 429})
# An error code such as model_not_found. Other text of the server may repeat the report.
_ERROR_CODE = re.compile(r"[a-z0-9_.-]{1,40}", re.IGNORECASE)


class _FormatError(CallError):
    """The server refuses the requested response format."""


class ChatClient:
    """Calls a chat server with the limits and retries of its settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.usage = UsageCounter(settings.price)
        self.sessions = Sessions(self._open, settings.concurrency)
        self._format = FormatChoice(settings.response_format)
        self._retries = Retries(settings.max_retries, settings.first_pause, longest_hold=settings.timeout)
        self._rate = RateLimiter(settings.requests_per_minute, settings.tokens_per_minute)

    def with_settings(self, settings: ServerSettings) -> "ChatClient":
        """Return a client with other settings of requests, and the same connections, limits and counters."""
        client = copy(self)
        client.settings = settings
        return client

    def stop(self) -> None:
        """Start no further call. Running calls are finished."""
        self._rate.stop()

    async def answer(
        self, task: JudgeTask[Item, Any], item: Item, rejected: int, session: Session, watch: ServerWatch
    ) -> str:
        """Return the text of an answer, in the strictest response format that the server accepts.

        Args:
            task: The task.
            item: The item.
            rejected: Number of rejected answers to this item.
            session: Session of the running event loop.
            watch: State of the server in this evaluation.

        Raises:
            CallError: If the server does not answer.
            AnswerError: If its reply contains no answer.
        """
        response_format = self._format.first
        while True:
            body = request_body(self.settings, task, item, response_format, rejected)
            try:
                reply = await self._retries.run(
                    partial(self._send, session, body), watch, lambda: self.usage.add(retries=1)
                )
            except _FormatError:
                looser = self._format.after(response_format)
                if looser is None:
                    raise
                response_format = looser
            else:
                self._format.settle(response_format)
                tokens = reply_tokens(reply)
                self.usage.add(prompt_tokens=tokens.prompt, completion_tokens=tokens.completion)
                return reply_text(reply)

    async def _send(self, session: Session, body: Mapping[str, Any]) -> object:
        """Return the server's reply as JSON, or ``None`` if it is not JSON.

        Raises:
            CallError: If there is no reply.
        """
        openai = require("openai", extra="judge")
        if self._rate.is_stopped:
            raise _stopped()
        async with session.slot():
            try:
                admission = await self._rate.admit(expected_tokens(body))
            except RateStoppedError:
                raise _stopped() from None
            self.usage.add(calls=1)
            try:
                # `chat.completions.create` also validates request and reply, which takes as long as the rest of the
                # call (1.3 against 0.9 ms).
                post = session.client.post("/chat/completions", cast_to=object, body=body)
                reply: object = await within(self.settings.timeout, post)
                # The expected number of tokens stays if the reply contains no counts.
                if taken := sum(reply_tokens(reply)):
                    admission.settle(taken)
                return reply
            except asyncio.TimeoutError:
                raise CallError("deadline", f"no answer within {self.settings.timeout:g} s") from None
            except ReplyRefusedError as error:
                raise _refused(error) from None
            except openai.APIStatusError as error:
                admission.settle(0)
                raise _status_error(error) from None
            except openai.APIConnectionError as error:
                if isinstance(error.__cause__, ReplyRefusedError):
                    raise _refused(error.__cause__) from None
                cause = type(error.__cause__ or error).__name__
                raise CallError("connection", f"the connection failed ({cause})") from None
            except (ValueError, RecursionError):
                return None

    def _open(self) -> Any:
        openai = require("openai", extra="judge")
        settings = self.settings
        connections = type(openai.DEFAULT_CONNECTION_LIMITS)(
            max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency
        )
        http_client = openai.DefaultAsyncHttpxClient(
            limits=connections,
            headers=UNCOMPRESSED,
            event_hooks={"response": [limit_reply]},
            # `_send` limits the time of a whole call. The client would limit the time of each read.
            timeout=None,
            # A redirect or a proxy could send report text to a host that the user did not allow.
            follow_redirects=False,
            trust_env=not settings.address.is_loopback,
            # Plain HTTP has no certificate to verify, and loading the system's certificates takes 35 ms per client.
            verify=settings.address.is_encrypted,
        )
        return openai.AsyncOpenAI(
            # The client requires a key, even if the server needs none.
            api_key=settings.api_key or os.environ.get(settings.api_key_variable) or "none",
            base_url=settings.base_url,
            timeout=None,
            max_retries=0,
            http_client=http_client,
        )


def _stopped() -> CallError:
    return CallError(STOPPED.kind, STOPPED.reason, passing=False)


def _refused(error: ReplyRefusedError) -> CallError:
    return CallError("status", str(error), passing=False)


def _status_error(error: Any) -> CallError:
    """Describe a reply with an HTTP status other than 200."""
    status, code = error.status_code, error.code
    # Do not quote the server's message, which may repeat the request.
    named = f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
    if 300 <= status < 400:
        named = " (a redirect, which is not followed)"
    reason = f"the server answered HTTP {status}{named}"
    if is_format_refusal(status, error.body):
        return _FormatError("status", reason, passing=False)
    passing = status in _PASSING_STATUSES or status >= 500
    retry_after = retry_after_seconds(error.response.headers.get("retry-after"), datetime.now(timezone.utc))
    return CallError("status", reason, passing=passing, retry_after=retry_after)
