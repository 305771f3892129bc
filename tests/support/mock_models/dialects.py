"""Four models' APIs, as far as five hosts use them: one step of a script in, the bytes of one answer out.

Each dialect is a pure function of the step and its id; all stream, since that is what the hosts ask for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mock_models.script import Call, Step

Answer = tuple[str, bytes]  # content type, body
EVENT_STREAM = "text/event-stream"
JSON = "application/json"


def answer(path: str, body: Mapping[str, Any], step: Step, key: str) -> Answer:
    """What the API at `path` answers. key: unique in the run, the same in every run."""
    for ending, dialect in DIALECTS.items():
        if ending in path:
            return dialect(body, step, key)
    return JSON, b"{}"


def anthropic_messages(body: Mapping[str, Any], step: Step, key: str) -> Answer:
    stop = "tool_use" if any(isinstance(part, Call) for part in step) else "end_turn"
    message: dict[str, Any] = {
        "id": f"msg_{key}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    blocks = [_block(part, f"toolu_{key}_{at}") for at, part in enumerate(step)]
    if not body.get("stream"):
        return JSON, json.dumps({**message, "content": [whole for whole, _, _ in blocks], "stop_reason": stop}).encode()
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for at, (_, begun, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": at, "content_block": begun})
        events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    ending = {"stop_reason": stop, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": ending, "usage": {"output_tokens": 5}}, {"type": "message_stop"}]
    return EVENT_STREAM, named(events)


def _block(part: Any, call: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A content block whole, as it begins in a stream, and what the stream adds to it."""
    if isinstance(part, Call):
        begun = {"type": "tool_use", "id": call, "name": part.name, "input": {}}
        args = dict(part.args)
        return {**begun, "input": args}, begun, {"type": "input_json_delta", "partial_json": json.dumps(args)}
    whole = {"type": "text", "text": part.text}
    return whole, {"type": "text", "text": ""}, {"type": "text_delta", "text": part.text}


def openai_responses(body: Mapping[str, Any], step: Step, key: str) -> Answer:
    usage = {"input_tokens": 10, "input_tokens_details": None, "output_tokens": 5, "output_tokens_details": None}
    usage["total_tokens"] = 15
    done = [
        {"type": "response.output_item.done", "output_index": at, "item": _item(part, f"{key}_{at}")}
        for at, part in enumerate(step)
    ]
    begun = {"type": "response.created", "response": {"id": f"resp_{key}"}}
    end = {"type": "response.completed", "response": {"id": f"resp_{key}", "usage": usage}}
    return EVENT_STREAM, named([begun, *done, end])


def _item(part: Any, key: str) -> dict[str, Any]:
    if isinstance(part, Call):
        call = {"type": "function_call", "call_id": f"call_{key}", "name": part.name}
        return {**call, "arguments": json.dumps(dict(part.args))}
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": part.text}]}


def openai_chat(body: Mapping[str, Any], step: Step, key: str) -> Answer:
    deltas: list[tuple[dict[str, Any], str | None]] = []
    finish = "stop"
    for at, part in enumerate(step):
        if isinstance(part, Call):
            finish = "tool_calls"
            function = {"name": part.name, "arguments": json.dumps(dict(part.args))}
            call = {"index": at, "id": f"call_{key}_{at}", "type": "function", "function": function}
            deltas.append(({"role": "assistant", "tool_calls": [call]}, None))
        else:
            deltas.append(({"role": "assistant", "content": part.text}, None))
    deltas.append(({}, finish))
    return EVENT_STREAM, b"".join(_chat_chunks(deltas, key))


def _chat_chunks(deltas: list[tuple[dict[str, Any], str | None]], key: str) -> Iterator[bytes]:
    for delta, finish in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": f"chat_{key}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        yield b"data: " + json.dumps({**chunk, "choices": [choice]}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def gemini_stream(body: Mapping[str, Any], step: Step, key: str) -> Answer:
    return EVENT_STREAM, b"data: " + _gemini(step) + b"\r\n\r\n"


def gemini_whole(body: Mapping[str, Any], step: Step, key: str) -> Answer:
    return JSON, _gemini(step)


def _gemini(step: Step) -> bytes:
    parts = [
        {"functionCall": {"name": part.name, "args": dict(part.args)}}
        if isinstance(part, Call)
        else {"text": part.text}
        for part in step
    ]
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()


def count_tokens(body: Mapping[str, Any], step: Step, key: str) -> Answer:
    return JSON, b'{"input_tokens": 10, "totalTokens": 10}'


def named(events: list[dict[str, Any]]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


DIALECTS: Mapping[str, Callable[[Mapping[str, Any], Step, str], Answer]] = {  # the first that the path holds
    "count_tokens": count_tokens,
    "countTokens": count_tokens,
    "/messages": anthropic_messages,
    "/responses": openai_responses,
    "/chat/completions": openai_chat,
    "streamGenerateContent": gemini_stream,
    "generateContent": gemini_whole,
}
