"""Requests in the shape in which coding agents and chat programs send them, rebuilt from what users reported, with content of our own; and in recorded/
those that the programs themselves sent when they were run against a server (Claude Code 2.1.197, Codex 0.169, opencode 1.18.33, Cline 3.0.65,
Continue's CLI 1.5.47, Qwen Code 0.24.4, Gemini CLI 0.61.0, pi 0.73.1, Kilo Code's CLI 7.7.7, OpenClaw 2026.9.6,
LangChain.js 1.5 by four APIs: a turn with the result of a tool), texts, ids and descriptions replaced: each is answered with nothing but a base URL, a key and any model's name.
Run as: test_recorded.py STUB_SERVER TOKENIZER.JSON"""
import json
import pathlib
import sys
import unittest

from serverkit import CHAT, stub

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
    "path": {"type": "string", "description": "Where."}, "limit": {"type": "number"}}, "required": ["path"], "additionalProperties": False}
EPHEMERAL = {"type": "ephemeral"}


def function(name, wrapped=True, **more):
    f = dict({"name": name, "description": "Does %s." % name, "parameters": SCHEMA}, **more)
    return {"type": "function", "function": f} if wrapped else dict(f, type="function")


CLAUDE_CODE = {
    "model": "claude-sonnet-4-5-20250929", "max_tokens": 32000, "stream": True, "temperature": 1,
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=ab12;"},
               {"type": "text", "text": "You help with code.", "cache_control": EPHEMERAL},
               {"type": "text", "text": "Be brief.", "cache_control": dict(EPHEMERAL, ttl="1h")}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nToday is a day.\n</system-reminder>"},
                                     {"type": "text", "text": "Read a.txt.", "cache_control": EPHEMERAL}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "I read it.", "signature": "weft"},
                                          {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a.txt"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "A"}],
                                      "cache_control": EPHEMERAL}]},
        {"role": "system", "content": [{"type": "text", "text": "The file was changed."}]},
        {"role": "user", "content": "And now?"}],
    "tools": [{"name": "Read", "description": "Reads.", "input_schema": SCHEMA, "eager_input_streaming": True},
              {"name": "mcp__fs__list", "description": "Lists.", "input_schema": {"type": "object"}, "defer_loading": True},
              {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
    "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "user_1_session_2"}, "diagnostics": {"previous_message_id": None}}

CODEX = {
    "model": "gpt-5-codex", "instructions": "You help with code.", "stream": True, "store": False, "parallel_tool_calls": True,
    "tool_choice": "auto", "prompt_cache_key": "k", "include": ["reasoning.encrypted_content"], "service_tier": "priority",
    "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"},
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>all</permissions>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}], "content": None, "encrypted_content": "x"},
        {"type": "function_call", "name": "shell", "arguments": "{\"path\":\"ls\"}", "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a.c"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch\n*** End Patch", "status": "completed"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Done"},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Go on."}]}],
    "tools": [function("shell", False, strict=False), {"type": "web_search", "external_web_access": True}, {"type": "local_shell"},
              {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}},
              {"type": "namespace", "name": "mcp__fs", "description": "Files.", "tools": [function("list", False, strict=False)]},
              {"type": "tool_search"}]}

CHATS = {
    "opencode": {"model": "default", "max_tokens": 32000, "stream": True, "stream_options": {"include_usage": True}, "tool_choice": "auto",
                 "messages": [{"role": "system", "content": "You help."}, {"role": "system", "content": "Here."}, {"role": "user", "content": "Hi"},
                              {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [{"id": "call_1", "type": "function",
                               "function": {"name": "read", "arguments": "{\"path\": \"a\"}"}}]},
                              {"role": "tool", "tool_call_id": "call_1", "content": "A"}, {"role": "system", "content": "Plan first."}],
                 "tools": [function("read"), function("todo", parameters={"$schema": "x", "type": "object", "properties": {}})]},
    "crush": {"model": "default", "max_tokens": 10000, "stream": True, "stream_options": {"include_usage": True}, "tool_choice": "auto",
              "messages": [{"role": "system", "content": "You help."}, {"role": "user", "content": "Here."}, {"role": "user", "content": "Hi"},
                           {"role": "assistant", "content": "\n\n", "reasoning_content": "hm", "tool_calls": [{"id": "call_1", "type": "function",
                            "function": {"name": "view", "arguments": "{\"path\":\"a\"}"}}]},
                           {"role": "tool", "tool_call_id": "call_1", "content": "<file>\nA\n</file>\n"}],
              "tools": [function("view", strict=False)]},
    "cline": {"model": "default", "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": -1,
              "messages": [{"role": "system", "content": "You help."}, {"role": "user", "content": [{"type": "text", "text": "<task>x</task>"},
                           {"type": "text", "text": "<environment_details>y</environment_details>"}]}]},
    "continue": {"model": "gpt-4o", "max_tokens": 4096, "stream": True, "prediction": {"type": "content", "content": "x"},
                 "messages": [{"role": "user", "content": "Hi"}], "parallel_tool_calls": False, "tools": [function("read")]},
    "aider": {"model": "openai/default", "messages": [{"role": "system", "content": "Edit."}, {"role": "user", "content": "a"},
              {"role": "assistant", "content": "Ok."}, {"role": "user", "content": "b"}, {"role": "system", "content": "Reminder."}],
              "temperature": 0, "stream": True},
    "open webui": {"model": "default", "stream": True, "messages": [{"role": "user", "content": "Hi"}], "metadata": {"chat_id": "c"},
                   "options": {}, "features": {"web_search": False}},
    "langchain": {"model": "gpt-4o", "messages": [{"role": "developer", "content": "You help."}, {"role": "user", "content": "Hi", "name": "u"}],
                  "n": 1, "stream": False, "logprobs": False, "temperature": 0.7, "tools": [function("read", strict=True)],
                  "tool_choice": {"type": "function", "function": {"name": "read"}}, "store": True, "service_tier": "default"},
    "ai sdk": {"model": "default", "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
               "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": True, "name": "response"}},
               "reasoning_effort": "low", "verbosity": "low", "user": "u"},
}


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = stub(any_model=1, says="<function=", drop_volatile=1, ctx=3000)

    @classmethod
    def tearDownClass(cls):
        cls.s.close()

    def post(self, path, body, headers=None):
        r = self.s.post(path, body, headers)
        self.assertEqual(r.status, 200, r.text()[:500])
        return r

    def test_claude_code(self):
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,context-management-2025-06-27",
                   "Authorization": "Bearer none"}
        r = self.post(MESSAGES + "?beta=true", CLAUDE_CODE, headers)
        self.assertIn("message_stop", r.text())
        told = r.headers["x-weft-warning"]
        for name in ("context_management", "tools.defer_loading", "web_search_20250305"):
            self.assertIn(name, told)
        count = {k: CLAUDE_CODE[k] for k in ("model", "system", "messages", "tools", "thinking", "context_management")}
        n = self.post(MESSAGES + "/count_tokens?beta=true", count, headers).json()["input_tokens"]
        # A request without the reminder is the beginning of the one with it: what was computed is found.
        before = dict(count, messages=count["messages"][:3])
        self.assertLess(self.post(MESSAGES + "/count_tokens", before).json()["input_tokens"], n)

    def test_codex(self):
        r = self.post(RESPONSES, CODEX, {"originator": "codex_cli_rs"})
        last = json.loads(r.text().split("data: ")[-1])
        self.assertIn(last["type"], ("response.completed", "response.incomplete"))
        self.assertEqual(r.headers["x-weft-warning"], "ignored fields: service_tier, text.verbosity; tools left out: web_search, local_shell, tool_search")

    def test_chats(self):
        for name, body in CHATS.items():
            with self.subTest(client=name):
                r = self.post(CHAT, body)
                if body.get("stream"):
                    self.assertTrue(r.events()[0]["choices"])
                else:
                    self.assertIn(r.json()["choices"][0]["finish_reason"], ("stop", "length", "tool_calls"))

    def test_captures(self):
        """What the programs sent, as it came: answered whole, and what is left out is named."""
        told = {"codex": "tools left out: web_search", "claude_code": "context_management"}
        for path in sorted((pathlib.Path(__file__).parent / "recorded").glob("*.json")):
            with self.subTest(client=path.stem):
                asked = json.loads(path.read_text())
                r = self.post(asked["path"], asked["body"], {k: v for k, v in asked["headers"].items() if k.lower() != "content-type"})
                text = r.text()
                self.assertNotIn('"error":{', text)
                if asked["path"].startswith("/v1beta/"):
                    self.assertIn('"finishReason":', text.split("data: ")[-1])
                elif asked["body"]["stream"]:
                    ollama = asked["path"].startswith("/api/")
                    self.assertIn("application/x-ndjson" if ollama else "text/event-stream", r.headers["content-type"])
                    ends = ('"done":true',) if ollama else ("[DONE]", "message_stop", "response.completed", "response.incomplete")
                    self.assertTrue(any(end in text for end in ends), text[-300:])
                else:
                    self.assertIn(r.json()["object" if "object" in r.json() else "type"], ("chat.completion", "response", "message"))
                self.assertIn(told.get(path.stem, ""), r.headers.get("x-weft-warning", ""))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
