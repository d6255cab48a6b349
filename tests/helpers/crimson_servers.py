"""Servers on loopback that evaluate CRIMSON's report pairs by rules, with the rules for requests of other servers."""

import json

from fault_server import FaultServer, completion, reply_bytes

from rrg_rewards.judges import RuleJudge
from rrg_rewards.judges.base import ReportPair
from rrg_rewards.judges.tasks.crimson import CrimsonTask

# Fields that gpt-5 accepts, of those that a judge may send.
_GPT5_FIELDS = {"model", "messages", "seed", "response_format", "max_completion_tokens"}


def answers_of(pairs: list[ReportPair]) -> dict[str, str]:
    """Answers by rules, in CRIMSON's form, by the two reports."""
    task, rules = CrimsonTask(), RuleJudge()
    return {pair.reference + pair.candidate: task.answer(rules.evaluation(pair)) for pair in pairs}


def crimson_server(pairs: list[ReportPair], behaviour, script=None) -> FaultServer:
    """A server for these pairs. ``behaviour(request, answer)`` returns a status and a body.

    Args:
        pairs: The pairs that the server recognises in a conversation.
        behaviour: Its rules.
        script: First behaviours of a pair, by its two reports.
    """
    answers = answers_of(pairs)

    def pair_of(messages):
        text = messages[-1]["content"]
        return next(p.reference + p.candidate for p in pairs if p.reference in text and p.candidate in text)

    async def behave(request, writer):
        status, body = behaviour(request.body, answers[request.item])
        writer.write(reply_bytes(body, status))

    return FaultServer(script, behave, item_of=pair_of)


def _refused(parameter, instead):
    code = "unsupported_value" if parameter == "temperature" else "unsupported_parameter"
    message = f"'{parameter}' is not supported with this model. {instead}"
    return 400, {"error": {"message": message, "type": "invalid_request_error", "param": parameter, "code": code}}


def gpt5(reasoning_tokens):
    """Rules of a model that reasons: no temperature, no max_tokens; reasoning counts as part of the answer."""

    def behave(body, answer):
        if body.get("temperature", 1) != 1:
            return _refused("temperature", "Only the default (1) value is supported.")
        if "max_tokens" in body:
            return _refused("max_tokens", "Use 'max_completion_tokens' instead.")
        if unknown := body.keys() - _GPT5_FIELDS:
            return _refused(min(unknown), "")
        used = reasoning_tokens + len(answer) // 4
        limit = body.get("max_completion_tokens", used)
        reply = completion(answer) if used <= limit else completion("", "length")
        details = {"reasoning_tokens": min(reasoning_tokens, limit)}
        usage = {"prompt_tokens": _tokens(body), "completion_tokens": min(used, limit)}
        return 200, {**reply, "usage": {**usage, "completion_tokens_details": details}}

    return behave


def vllm(served, context):
    """Rules of vLLM: a served name, and no request for more tokens than the context has."""

    def behave(body, answer):
        if body["model"] != served:
            message = f"The model `{body['model']}` does not exist."
            return 404, {"object": "error", "message": message, "type": "NotFoundError", "code": 404}
        prompt = _tokens(body)
        if prompt + body["max_tokens"] > context:
            message = f"This model's maximum context length is {context} tokens."
            return 400, {"object": "error", "message": message, "type": "BadRequestError", "code": 400}
        usage = {"prompt_tokens": prompt, "completion_tokens": len(answer) // 4}
        return 200, {**completion(answer), "usage": usage}

    return behave


def _tokens(body):
    return len(json.dumps(body["messages"])) // 4
