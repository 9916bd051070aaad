"""The prompt format of DeepSeek-V4.1: messages to text. Pieces are (text, learn), learn marking what the model writes."""
import json

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK, DSML = "<think>", "</think>", "｜DSML｜"
IMAGE = "<｜deepseek_image｜>"

EFFORT = "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"

TOOLS = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{DSML} calls>" block like the following:

<{DSML} calls>
<{DSML} invoke name="$TOOL_NAME">
<{DSML} parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML} parameter>
...
</{DSML} invoke>
<{DSML} invoke name="$TOOL_NAME2">
...
</{DSML} invoke>
</{DSML} calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK}), you MUST output your complete reasoning inside {THINK}...{END_THINK} BEFORE any tool calls or final response.

Otherwise, output directly after {END_THINK} with tool calls or final response.

### Available Tool Schemas

{{}}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""


def tools_section(functions):
    return TOOLS.replace("{}", "\n".join(json.dumps(f, ensure_ascii=False) for f in functions))


def calls_block(calls):
    """calls: [(name, arguments dict)]"""
    out = [f"<{DSML} calls>"]
    for name, args in calls:
        out.append(f'<{DSML} invoke name="{name}">')
        for k, v in args.items():
            s = isinstance(v, str)
            text = v if s else json.dumps(v, ensure_ascii=False)
            out.append(f'<{DSML} parameter name="{k}" string="{"true" if s else "false"}">{text}</{DSML} parameter>')
        out.append(f"</{DSML} invoke>")
    out.append(f"</{DSML} calls>")
    return "\n".join(out)


def render(messages, thinking=False, effort=75, tools=None):
    """messages: dicts with role system (first only), user, tool, assistant; assistant may have reasoning and calls.
    Ends after the last message; after a user turn the assistant header follows, as for a prompt."""
    out = [(BOS, False)]
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    if system is not None:
        messages = messages[1:]
    head = EFFORT.format(effort) if thinking else ""
    if system is not None or thinking or tools:
        text = head + (system or "")
        if tools:
            text += "\n\n" + tools_section(tools)
        out.append((SYSTEM + text, False))
    last_user = max(i for i, m in enumerate(messages) if m["role"] == "user")
    previous = None
    for i, m in enumerate(messages):
        keep = thinking and (bool(tools) or i > last_user)
        if m["role"] == "assistant":
            out.append((ASSISTANT + (THINK if keep else END_THINK), False))
            text = (m.get("reasoning", "") + END_THINK if keep else "") + m["content"]
            if m.get("calls"):
                text += "\n\n" + calls_block(m["calls"])
            out.append((text + EOS, True))
        else:
            body = f"<tool_result>{m['content']}</tool_result>" if m["role"] == "tool" else m["content"]
            out.append((("\n\n" if previous in ("user", "tool") else USER) + body, False))
        previous = m["role"]
    if previous != "assistant":
        out.append((ASSISTANT + (THINK if thinking else END_THINK), False))
    return out


def document(text):
    return [(BOS, False), (text + EOS, True)]
