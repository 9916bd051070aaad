"""LangChain's chat model for OpenAI against the server."""

import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@pytest.fixture(scope="module")
def model(server):
    return ChatOpenAI(model="tiny", base_url=server.url + "/v1", api_key="none", temperature=0, max_tokens=60, max_retries=0)


def test_invoke_and_stream(model):
    answer = model.invoke("What is the capital of France?")
    assert "Paris" in answer.content
    assert answer.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.content for chunk in model.stream("What is the capital of France?")) == answer.content


def test_batch(model):
    questions = ["What is the capital of France?", "What is the capital of Italy?"] * 4
    answers = [a.content for a in model.batch(questions)]
    assert answers == answers[:2] * 4


def test_tools(model):
    @tool
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return "Sunny"

    answer = model.bind_tools([get_weather]).invoke("What is the weather in Oslo?")
    assert answer.tool_calls[0]["name"] == "get_weather"
