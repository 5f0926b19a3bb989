"""Messages to the text of the chat template, as segments with a training flag.

This is chat_template.jinja written in Python; check_template.py proves the two equal.
"""
import json

TOOLS_HEAD = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
TOOLS_TAIL = ("\n</tools>\n\nTo call a function, reply in this format and write nothing after it:\n\n"
              "<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>")
EMPTY_THINK = "<think>\n\n</think>\n\n"
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"


def dumps(x):
    return json.dumps(x, ensure_ascii=False)


def call_text(call):
    f = call.get("function", call)
    out = "<tool_call>\n<function=" + f["name"] + ">\n"
    for k, v in f["arguments"].items():
        out += "<parameter=" + k + ">\n" + (v if isinstance(v, str) else dumps(v)) + "\n</parameter>\n"
    return out + "</function>\n</tool_call>"


def text_of(content):
    """Text, or parts of text and pictures."""
    if isinstance(content, list):
        return "".join(p["text"] if "text" in p else PICTURE for p in content).strip()
    return (content or "").strip()


def render(messages, tools=None, enable_thinking=False, generation=False, blocks=False):
    """-> list of (text, flag): flag 1 for what an assistant writes, 0 for the rest.
    blocks: an empty think block before earlier answers too, which the template never writes: in training it makes each of them
    the answer to a prompt."""
    seg = []
    system = messages[0]["content"].strip() if messages[0]["role"] == "system" else None
    if tools:
        s = "<|im_start|>system\n" + TOOLS_HEAD + "".join("\n" + dumps(t) for t in tools) + TOOLS_TAIL
        if system:
            s += "\n\n" + system
        seg.append((s + "<|im_end|>\n", 0))
    elif system is not None:
        seg.append(("<|im_start|>system\n" + system + "<|im_end|>\n", 0))
    last_query = max(i for i, m in enumerate(messages) if m["role"] == "user")
    for i, m in enumerate(messages):
        content = text_of(m.get("content"))
        if m["role"] == "user":
            seg.append(("<|im_start|>user\n" + content + "<|im_end|>\n", 0))
        elif m["role"] == "assistant":
            seg.append(("<|im_start|>assistant\n", 0))
            if i > last_query:
                think = (m.get("reasoning_content") or "").strip()
                if think:
                    seg += [("<think>\n", 0), (think + "\n</think>\n\n", 1)]
                else:
                    seg.append((EMPTY_THINK, 0))
            elif blocks:
                seg.append((EMPTY_THINK, 0))
            body = content
            for j, c in enumerate(m.get("tool_calls") or []):
                if j == 0 and content:
                    body += "\n\n"
                elif j > 0:
                    body += "\n"
                body += call_text(c)
            seg += [(body + "<|im_end|>", 1), ("\n", 0)]
        elif m["role"] == "tool":
            s = ""
            if messages[i - 1]["role"] != "tool":
                s += "<|im_start|>user"
            s += "\n<tool_response>\n" + content + "\n</tool_response>"
            if i == len(messages) - 1 or messages[i + 1]["role"] != "tool":
                s += "<|im_end|>\n"
            seg.append((s, 0))
    if generation:
        seg.append(("<|im_start|>assistant\n" + ("<think>\n" if enable_thinking else EMPTY_THINK), 0))
    return seg
