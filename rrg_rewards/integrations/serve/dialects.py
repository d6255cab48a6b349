"""Requests and replies in the forms that trainers use, one dialect per path."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rrg_rewards.integrations.common.transcripts import completion_after_prompt, first_exchange
from rrg_rewards.integrations.serve.errors import RequestError
from rrg_rewards.integrations.serve.fields import listed, named_columns, same_length
from rrg_rewards.integrations.serve.scorer import Sample, ScoredSample
from rrg_rewards.integrations.serve.settings import ServerOptions

__all__ = ["DIALECTS", "Dialect"]


@dataclass(frozen=True)
class Dialect:
    """The form of requests and replies of a path.

    Args:
        path: Path of the URL.
        parse: Returns the samples of a request.
        render: Returns the reply.
        carries_null: Whether the reply can carry null for an unscorable completion. Otherwise the server needs a
            reward for it.
    """

    path: str
    parse: Callable[[Mapping[str, Any], ServerOptions], list[Sample]]
    render: Callable[[Sequence[ScoredSample], ServerOptions], Any]
    carries_null: bool = False

    def samples(self, body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
        """Return the samples of a request.

        Raises:
            RequestError: If the request lacks a field or has values of a wrong type, or the server lacks a setting that
                the dialect needs.
        """
        if not self.carries_null and options.missing is None:
            raise RequestError(
                422,
                f"{self.path} cannot carry null for an unscorable completion: start the server with --missing NUMBER, "
                "the reward of such completions",
            )
        return self.parse(body, options)


def _batch_samples(body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
    completions = listed(body, "completions")
    for row, completion in enumerate(completions):
        if not (isinstance(completion, str) or _is_conversation(completion)):
            raise RequestError(422, f"completions[{row}] must be a text, or a list of messages with role and content")
    names = options.reward.columns
    own = options.reference_column
    if own in names and own not in body and "reference" in body and "reference" not in names:
        # Clients need not know what the settings of the server call the references.
        body = {**body, own: body["reference"]}
    columns = {name: same_length(body, name, len(completions)) for name in names}
    return [
        Sample(completion, {name: columns[name][row] for name in names}) for row, completion in enumerate(completions)
    ]


def _is_conversation(completion: Any) -> bool:
    return isinstance(completion, list) and all(
        isinstance(message, dict) and isinstance(message.get("content"), str | None) for message in completion
    )


def _batch_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    return {
        "rewards": [sample.reward for sample in scored],
        "scores": _by_name(scored),
        "failures": [sample.failure for sample in scored],
        "signature": options.reward.signature,
    }


def _by_name(scored: Sequence[ScoredSample]) -> dict[str, list[float | None]]:
    names = scored[0].scores if scored else ()
    return {name: [sample.scores[name] for sample in scored] for name in names}


def _openrlhf_samples(body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
    queries = listed(body, "query", str)
    prompts = same_length(body, "prompts", len(queries), str)
    labels = same_length(body, "labels", len(queries))
    samples = []
    for row, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
        try:
            completion = completion_after_prompt(query, prompt)
        except ValueError as error:
            raise RequestError(422, f"query[{row}]: {error}") from None
        samples.append(Sample(options.extractor(completion), named_columns(label, options, f"labels[{row}]")))
    return samples


def _openrlhf_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    rewards = _numbers(scored, options)
    scores = rewards
    if options.score_range is not None:
        low, high = options.score_range
        scores = [min(max((reward - low) / (high - low), 0.0), 1.0) for reward in rewards]
    return {"rewards": rewards, "scores": scores, "extra_logs": {"scorable": _scorable(scored)}}


def _slime_samples(body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
    response = body.get("response")
    if not isinstance(response, str):
        raise RequestError(422, "response must be a text")
    return [Sample(options.extractor(response), named_columns(body.get("label"), options, "label"))]


def _slime_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    return _numbers(scored, options)[0]


def _slime_object_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    return {**scored[0].scores, "score": _numbers(scored, options)[0], "scorable": _scorable(scored)[0]}


def _llama_factory_samples(body: Mapping[str, Any], options: ServerOptions) -> list[Sample]:
    messages = listed(body, "messages", str)
    if options.prompts is None:
        raise RequestError(
            422,
            "/v1 receives no references: start the server with --prompts TABLE, which has the prompt and the "
            f"columns {', '.join(options.reward.columns) or 'of the reward'}",
        )
    samples = []
    for row, message in enumerate(messages):
        try:
            prompt, completion = first_exchange(message)
        except ValueError as error:
            raise RequestError(422, f"messages[{row}]: {error}") from None
        if prompt not in options.prompts:
            raise RequestError(422, f"the prompt of messages[{row}] is not in the table of --prompts")
        samples.append(Sample(options.extractor(completion), options.prompts[prompt]))
    return samples


def _llama_factory_reply(scored: Sequence[ScoredSample], options: ServerOptions) -> Any:
    return {"scores": _numbers(scored, options), "scorable": _scorable(scored)}


def _numbers(scored: Sequence[ScoredSample], options: ServerOptions) -> list[float]:
    assert options.missing is not None
    return [options.missing if sample.reward is None else sample.reward for sample in scored]


def _scorable(scored: Sequence[ScoredSample]) -> list[float]:
    return [float(sample.reward is not None) for sample in scored]


DIALECTS = (
    Dialect("/rewards", _batch_samples, _batch_reply, carries_null=True),
    Dialect("/get_reward", _openrlhf_samples, _openrlhf_reply),
    Dialect("/remote_rm", _slime_samples, _slime_reply),
    Dialect("/remote_rm/scores", _slime_samples, _slime_object_reply),
    Dialect("/v1", _llama_factory_samples, _llama_factory_reply),
)
