"""The `openai` package against the server."""

import json

import openai
import pytest

from conftest import WEATHER

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
OSLO = [{"role": "user", "content": "What is the weather in Oslo?"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def test_models(client):
    assert [m.id for m in client.models.list()] == ["tiny"]


def test_chat(client):
    answer = client.chat.completions.create(model="tiny", messages=CAPITAL, temperature=0, max_tokens=30)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("more", [{}, {"reasoning_effort": "high"}, {"stop": [" the"]}, {"logprobs": True, "top_logprobs": 2}])
def test_streamed_text_is_the_whole_text(client, more):
    fields = dict(model="tiny", messages=[{"role": "user", "content": "Tell me a story about a fox."}], seed=7, max_tokens=80, **more)
    whole = client.chat.completions.create(**fields)
    text, reasoning, usage, tokens = "", "", None, []
    for chunk in client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            assert usage is None
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            tokens += choice.logprobs.content if choice.logprobs else []
    assert text == whole.choices[0].message.content
    assert reasoning == (getattr(whole.choices[0].message, "reasoning_content", None) or "")
    assert usage.completion_tokens == whole.usage.completion_tokens
    if "logprobs" in more:
        assert [t.token for t in tokens] == [t.token for t in whole.choices[0].logprobs.content]


def test_tools(client):
    tools = [{"type": "function", "function": WEATHER}]
    answer = client.chat.completions.create(model="tiny", messages=OSLO, tools=tools, temperature=0, max_tokens=80)
    assert answer.choices[0].finish_reason == "tool_calls"
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments), dict)
    with client.chat.completions.stream(model="tiny", messages=OSLO, tools=tools, temperature=0, max_tokens=80) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments
    after = client.chat.completions.create(
        model="tiny", tools=tools, max_tokens=30, temperature=0,
        messages=OSLO + [answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny"}])
    assert after.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_completions(client):
    whole = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=30, seed=3, logprobs=2, echo=False)
    streamed = "".join(c.choices[0].text for c in client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=30, seed=3, stream=True))
    assert streamed == whole.choices[0].text
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens


def test_responses(client):
    whole = client.responses.create(model="tiny", input="What is the capital of France?", temperature=0, max_output_tokens=30)
    assert "Paris" in whole.output_text
    assert whole.status == "completed"
    text, last = "", None
    for event in client.responses.create(model="tiny", input="What is the capital of France?", temperature=0, max_output_tokens=30, stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
        last = event
    assert text == whole.output_text
    assert last.type == "response.completed"
    more = client.responses.create(model="tiny", input="And of Italy?", previous_response_id=whole.id, temperature=0, max_output_tokens=30)
    assert more.usage.input_tokens > whole.usage.input_tokens
    assert client.responses.retrieve(whole.id).output_text == whole.output_text
    client.responses.delete(whole.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(whole.id)


def test_responses_tools(client):
    tools = [{"type": "function", **WEATHER}]
    answer = client.responses.create(model="tiny", input="What is the weather in Oslo?", tools=tools, temperature=0, max_output_tokens=80)
    calls = [item for item in answer.output if item.type == "function_call"]
    assert calls and calls[0].name == "get_weather"
    with client.responses.stream(model="tiny", input="What is the weather in Oslo?", tools=tools, temperature=0, max_output_tokens=80) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert [i.arguments for i in final.output if i.type == "function_call"] == [c.arguments for c in calls]


def test_errors(client):
    with pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(model="gpt-9", messages=CAPITAL)
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="tiny", messages=CAPITAL, temperature=500)
    assert e.value.param == "temperature"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="tiny", messages=CAPITAL, max_tokens=10**6)
