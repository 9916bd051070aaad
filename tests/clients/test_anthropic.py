"""The `anthropic` package against the server."""

import anthropic
import pytest

from conftest import WEATHER

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
OSLO = [{"role": "user", "content": "What is the weather in Oslo?"}]
TOOLS = [{"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}]


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)


def test_message_and_stream(client):
    fields = dict(model="tiny", max_tokens=40, messages=CAPITAL, extra_body={"temperature": 0}, system="You are helpful.")
    whole = client.messages.create(**fields)
    assert "Paris" in whole.content[0].text
    assert whole.stop_reason == "end_turn"
    with client.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens - final.usage.cache_read_input_tokens


def test_thinking(client):
    fields = dict(model="tiny", max_tokens=200, messages=CAPITAL, thinking={"type": "enabled", "budget_tokens": 1024},
                  extra_body={"seed": 5})
    whole = client.messages.create(**fields)
    assert whole.content[0].type == "thinking"
    with client.messages.stream(**fields) as stream:
        final = stream.get_final_message()
    assert [b.type for b in final.content] == [b.type for b in whole.content]
    assert final.content[0].thinking == whole.content[0].thinking


def test_tools(client):
    fields = dict(model="tiny", max_tokens=80, messages=OSLO, tools=TOOLS, extra_body={"temperature": 0})
    whole = client.messages.create(**fields)
    assert whole.stop_reason == "tool_use"
    use = whole.content[-1]
    assert use.name == "get_weather"
    with client.messages.stream(**fields) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == use.input
    after = client.messages.create(**{**fields, "messages": OSLO + [
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "Sunny"}]}]})
    assert after.type == "message"


def test_count_tokens(client):
    count = client.messages.count_tokens(model="tiny", messages=CAPITAL)
    usage = client.messages.create(model="tiny", messages=CAPITAL, max_tokens=1).usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_errors(client):
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="claude-9", max_tokens=5, messages=CAPITAL)
    with pytest.raises(anthropic.BadRequestError) as e:
        client.messages.create(model="tiny", max_tokens=5, messages=CAPITAL, extra_body={"temperature": -1})
    assert "temperature is -1" in str(e.value)
