#!/usr/bin/env python3
"""Writes golden prompts with the official converter (PyPI deepseek-recipe).

    VENV/bin/python tools/oracle-text/make_prompts.py src/text/testdata/prompts.jsonl [COUNT] [SEED]

A line holds messages, options, and the prompt as alternating parts: text, control token, text, ... . The fixed tools
section is cut to "@TOOLS@" to keep the file small; the first line keeps it whole.
"""
import json
import random
import sys

import deepseek_recipe as R

WORDS = ["hi", "", "a\nb", "\n\n", "中文 text", "<｜User｜>", "</think>", "<think>", "｜DSML｜", "<｜DSML｜ calls>", "😀", " x ",
         "<tool_result>", "\"quoted\"", "<｜end▁of▁sentence｜>"]
VALUES = ["text", "", "line\nline", "中", 0, -3, 1.5, 1e5, 1e16, 1e-7, True, False, None, [], {}, [1, "a", {"b": None}],
          {"z": 1, "a": {"y": [True, "é\"\\\n"]}}, "</｜DSML｜ parameter>", "5", 12345678901234567]
RAW = ["", "[1]", "null", "not json", "{\"a\":", "3", "{\"a\":1,\"a\":\"x\"}", "{\"a\": 1e400x}"]


def main():
    out, count, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 240, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng = random.Random(seed)
    encoding = R.DeepseekV41Encoding()

    def text():
        return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, 3)))

    def tool(i):
        parameters = {"type": "object", "properties": {rng.choice("abc"): rng.choice(VALUES) for _ in range(2)}}
        return {"name": f"tool{i}", "description": text(), "parameters": parameters}

    def native(t):
        return R.ToolDefinition(t["name"], t["description"], t["parameters"])

    def arguments():
        if rng.random() < 0.2:
            return rng.choice(RAW)
        value = {rng.choice(["a", "key", "x\"y", "中", "arguments"]): rng.choice(VALUES) for _ in range(rng.randint(0, 3))}
        return json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=rng.choice([(",", ":"), (", ", ": ")]))

    def conversation(n):
        messages, calls = [], []
        options = {"thinking": rng.random() < 0.6, "effort": rng.choice([50, 75, 75, 100])}
        if rng.random() < 0.4:
            options["tools"] = [tool(k) for k in range(rng.randint(1, 2))]
        for i in range(rng.randint(0 if n == 1 else 1, 7)):
            role = rng.choice(["user", "user", "user", "assistant", "assistant", "tool", "tool", "system", "latest_reminder"])
            if i == 0 and rng.random() < 0.4:
                role = "system"
            if role == "latest_reminder" and messages and messages[-1]["role"] == role:
                role = "user"  # two in a row: see prompt_v41.h
            m = {"role": role, "content": text()}
            if role == "assistant":
                if rng.random() < 0.7:
                    m["reasoning"] = text()
                if rng.random() < 0.5:
                    m["tool_calls"] = [{"id": f"c{i}_{k}", "name": rng.choice(["f", "get_weather", "x-y"]),
                                        "arguments": arguments()} for k in range(rng.randint(1, 3))]
                    calls = [c["id"] for c in m["tool_calls"]]
            if role == "tool":
                m["tool_call_id"] = rng.choice(calls) if calls and rng.random() < 0.9 else "unknown"
            if role == "system" and i > 0 and "tools" in options and rng.random() < 0.2:
                m["tools"] = [tool(9)]
            messages.append(m)
        if len(messages) > 1 and messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls") and rng.random() < 0.6:
            messages[-1]["prefix"] = True
        if "tools" in options:
            options["open_calls"] = rng.random() < 0.2 and not any(m.get("prefix") for m in messages)
        if rng.random() < 0.2:
            options["response_schema"] = {"type": "object", "x": rng.choice(VALUES)}
        return messages, options

    def render(messages, options):
        native_messages = []
        for m in messages:
            role, content = m["role"], m["content"]
            if role == "user":
                native_messages.append(R.UserMessage(content))
            elif role == "system":
                native_messages.append(R.SystemMessage(content, tools=[native(t) for t in m["tools"]] if m.get("tools") else None))
            elif role == "tool":
                native_messages.append(R.ToolMessage(content, m["tool_call_id"]))
            elif role == "latest_reminder":
                native_messages.append(R.LatestReminderMessage(content))
            else:
                calls = [R.ToolCall(c["id"], c["name"], c["arguments"]) for c in m.get("tool_calls", [])]
                native_messages.append(R.AssistantMessage(content, m.get("reasoning"), calls or None, m.get("prefix", False)))
        schema = {"response_schema": options["response_schema"]} if "response_schema" in options else {}
        rendered = encoding.render_conversation(R.Conversation(
            native_messages, thinking_mode=options["thinking"], tools=[native(t) for t in options.get("tools", [])],
            tool_choice="required" if options.get("open_calls") else "auto",
            reasoning_effort={50: "low", 75: "high", 100: "max"}[options["effort"]], **schema))
        parts, at = [], 0
        for a, b in rendered.special_ranges:
            parts += [rendered.prompt[at:a], rendered.prompt[a:b]]
            at = b
        return parts + [rendered.prompt[at:]]

    begin, end = "\n\n## Tools\n\nYou have access", "### Available Tool Schemas"
    with open(out, "w", encoding="utf-8") as f:
        for n in range(count):
            messages, options = conversation(n)
            if n == 0:
                options["tools"] = [tool(0)]
            parts = render(messages, options)
            if n:
                first = next((i for i, p in enumerate(parts) if begin in p and i % 2 == 0), None)
                if first is not None:
                    last = next(i for i in range(first, len(parts)) if end in parts[i] and i % 2 == 0)
                    head, tail = parts[first].split(begin)[0], parts[last].split(end, 1)[1]
                    parts[first:last + 1] = [head + "@TOOLS@" + tail]
            f.write(json.dumps({"messages": messages, "options": options, "parts": parts}, ensure_ascii=False,
                               separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
