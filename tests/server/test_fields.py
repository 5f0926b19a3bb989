"""Nothing is ignored in silence: every field that the source or the documentation knows, at every endpoint, with values of
every kind.  Run as: test_fields.py STUB_SERVER TOKENIZER.JSON TEMPLATE SOURCE_ROOT

A value is taken in silence, told by name in x-weft-warning, or refused by name with a 400.  TAKEN has the values that
are taken in silence; a field that is new in the tables of src/server or in docs/http-api.md has to be added to it, and
each value beside its row must be told or refused."""
import copy
import glob
import itertools
import json
import os
import re
import sys
import unittest

from serverkit import CHAT, COMPLETIONS, stub

# The values each field is tried with, and the letters that stand for them in TAKEN.
VALUES = {"t": True, "0": 0, "1": 1, "-": -1, ".": 0.5, "B": -1e30, "e": "", "z": "zork", "[": [], "s": ["zork"], "i": [1], "{": {}, "o": {"zork": 1}}
ALL = "".join(VALUES)
BOOL, INT, NUMBER, STRING, ARRAY, OBJECT = "t", "01-", "01-.B", "ez", "[si", "{o"

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
# Values of documented fields, where none of these is one.
GOOD = {"reasoning_effort": "low", "response_format": {"type": "text"}, "structured_outputs": {"json": {}},
        "thinking": {"type": "adaptive"}, "output_format": {"type": "json_object"}, "guided_grammar": 'root ::= "a"', "grammar": 'root ::= "a"',
        "ebnf": 'root ::= "a"', "stream_options": {"include_usage": True}}
CHOICES = {MESSAGES: {"type": "auto"}}
# Members of fields, which the page's table names beside these.
INSIDE = ("choice", "include_obfuscation")
# Errors that name a part of the field, or the field beside it that does not fit.
NAMED_AS = {"continue_final_message": ("messages",), "images": ("image",)}

GOOGLE = "/v1beta/models/stub:generateContent"
SAID = {"contents": [{"parts": [{"text": "x"}]}]}
TALK = {"messages": [{"role": "user", "content": "x"}]}
# Bodies that are whole without the field; "options" are ollama's, inside of the body.
WHOLE = {
    CHAT: TALK, COMPLETIONS: {"prompt": "x"}, RESPONSES: {"input": "x"}, MESSAGES: TALK, "/completion": {"prompt": "x"},
    "/infill": {"input_prefix": "x"}, "/api/chat": dict(TALK, stream=False), "/api/generate": {"prompt": "x", "stream": False},
    "/api/generate raw": {"prompt": "x", "stream": False, "raw": True}, "/api/chat options": dict(TALK, stream=False),
    "/api/generate options raw": {"prompt": "x", "stream": False, "raw": True}, "/api/show": {}, "/api/embed": {"input": "x"}, "/api/embeddings": {"prompt": "x"},
    "/v1/embeddings": {"input": "x"}, "/tokenize": {"prompt": "x"}, "/tokenize chat": TALK, "/detokenize": {"tokens": [1]},
    GOOGLE: SAID, GOOGLE + " config": SAID, "/apply-template": TALK, "/v1/responses/input_tokens": {"input": "x"}, "/v1/messages/count_tokens": TALK,
}
# The same reader behind another path: tried with one value a field, for the paths might part one day.
TWINS = ("/v1/responses/input_tokens", "/v1/messages/count_tokens", "/apply-template", "/api/embeddings", "/api/generate options raw")

# Field: the values that are taken in silence.  Fields that are missing in an endpoint's tables are told there whatever
# their value.
TAKEN = {}


def fill(kinds, names):
    for name in names.split():
        TAKEN[name] = kinds


fill(BOOL, "background normalize add_generation_prompt add_special add_special_tokens cache_prompt cache_report disable_fallback echo enable_thinking f16_kv ignore_eos "
     "include_reasoning low_vram numa parallel_tool_calls parse_special penalize_newline raw return_progress return_token_strs skip_special_tokens "
     "spaces_between_special_tokens speculation store stream timings_per_token truncate turn_replay use_mlock use_mmap verbose vocab_only with_pieces")
fill(STRING, "anthropic_version cache_salt guided_decoding_backend inference_geo input_prefix input_suffix instructions prompt_cache_key "
     "prompt_cache_retention safety_identifier user user_profile_id workspace_id")
fill(NUMBER, "dry_allowed_length dry_base dry_penalty_last_n dynatemp_exponent id_slot main_gpu min_keep mirostat_eta mirostat_tau num_batch num_ctx "
     "num_gpu num_keep num_thread xtc_threshold")
fill(INT, "max_completion_tokens max_new_tokens max_output_tokens max_tokens n_predict num_predict priority repeat_last_n seed top_k")
fill(OBJECT, "cache_control client_metadata metadata prompt_cache_options")
fill(ARRAY, "betas dry_sequence_breakers")
fill(NUMBER + STRING, "keep_alive")
fill(STRING + ARRAY, "anthropic_beta")
fill("01-.", "frequency_penalty presence_penalty")
fill("01.", "min_p temperature top_p")
fill("01", "min_tokens n_probs num_draft_tokens repetition_context_size thinking_budget thinking_token_budget")
fill("1.", "repeat_penalty repetition_penalty")
fill("1", "best_of dimensions length_penalty n tfs_z typ_p typical_p")
fill("0", "dry_multiplier dynatemp_range mirostat n_cache_reuse n_discard n_indent n_keep prompt_logprobs t_max_predict_ms t_max_prompt_ms "
     "top_logprobs xtc_probability")
fill("-", "truncate_prompt_tokens")
fill("", "data_1 data_2 embd_normalize embedding_types inputs items max_tokens_per_doc output_dimension parameters prompt_name "
     "queries query raw_scores return_documents return_text task text_1 text_2 texts top_n truncation_direction truncation_side "
     "use_activation")     # of vectors and scores of texts
fill(STRING, "responseMimeType thinkingLevel")     # of Google's, whose members are fields beside the others
fill(OBJECT, "labels")
fill("01.", "topP")
fill("01-.", "frequencyPenalty presencePenalty")
fill(INT, "maxOutputTokens topK")
fill("1", "candidateCount")
fill("[s", "responseModalities")
fill("{o", "generationConfig generation_config thinkingConfig")
fill("e", "cachedContent")
fill("[", "safetySettings")
fill("{o", "toolConfig tool_config")
fill("", "contents enableEnhancedCivicAnswers generateContentRequest includeThoughts mediaResolution responseLogprobs speechConfig systemInstruction "
     "system_instruction thinkingBudget")
fill("e", "draft_model grammar template")
fill("[", "allowed_token_ids bad_words context documents fallbacks functions grammar_triggers image_data images include input_extra logits_processors "
     "lora mcp_servers preserved_tokens response_fields tools")
fill("{", "chat_template_kwargs context_management diagnostics mm_processor_kwargs output_config reasoning stream_options text vllm_xargs")
fill("{o", "options")
fill("[{", "logit_bias")
fill("[i", "stop_token_ids tokens")
fill("ez[s", "stop stopSequences stop_sequences")
fill("ez", "guided_regex regex suffix")
fill("s", "guided_choice")
fill("t{o", "guided_json json_schema responseJsonSchema responseSchema")
fill("e{o", "format")
fill("", "adapter adapters audio backend_sampling billing_policy compaction container content continue_final_message conversation "
     "early_stopping ebnf encoding_format fallback_credit_token function_call grammar_lazy guided_grammar guided_whitespace_pattern "
     "include_stop_str_in_output input_type kv_transfer_params logit_bias_exclude max_tool_calls messages modalities moderation name output_format "
     "post_sampling_probs prediction previous_response_id prompt_embeds reasoning_effort reasoning_format response_format return_token_ids "
     "return_tokens return_tokens_as_token_ids samplers service_tier shift speed structural_tag structured_outputs thinking "
     "thread tool_choice truncation use_beam_search verbosity web_search_options")
fill("", "all allowed_callers budget_tokens chat_template choice continuous_usage_stats defer_loading description disable_parallel_tool_use "
     "eager_input_streaming effort enabled exclude id include_obfuscation include_usage input_examples input_schema model node scale schema strict "
     "summary type")     # members of objects, most of them, and unknown as fields
fill("ez", "system prompt")
fill("t", "think logprobs")
fill("z", "input")
# Where a field's values are others than elsewhere.
ELSEWHERE = {
    **{(path, "logprobs"): "0" for path in (RESPONSES, MESSAGES, "/completion", "/infill")},
    **{(path, name): "" for path in ("/api/chat", "/api/generate", "/api/generate raw", "/api/chat options", "/api/generate options raw") for name in ("logprobs",)},
    (GOOGLE, "model"): ALL, (GOOGLE, "stream"): ALL, (GOOGLE + " config", "logprobs"): "0",     # the path says the first two
    (RESPONSES, "context_management"): "[", (MESSAGES, "system"): "ez[", ("/api/show", "template"): "ez",
    (COMPLETIONS, "logprobs"): "01", (COMPLETIONS, "prompt_logprobs"): "01", (RESPONSES, "top_logprobs"): "01",
    (COMPLETIONS, "add_special_tokens"): "t", (CHAT, "add_special_tokens"): "", (CHAT, "echo"): "", (CHAT, "suffix"): "e",
    (CHAT, "prompt_logprobs"): "0", ("/v1/embeddings", "truncate_prompt_tokens"): "01-",
}


TOOL = {"type": "function", "function": {"name": "f", "description": "d", "strict": False, "parameters": {"type": "object", "properties": {}}}}
CUSTOM = {"name": "c", "description": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}
CALLED = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MARK = {"type": "ephemeral"}
# Bodies whose members are tried like the fields, each in its place.  What a client's schema, template or tool means is
# its own: such objects are not looked into.
NESTED = [
    (CHAT, {"messages": [{"role": "user", "name": "n", "content": [{"type": "text", "text": "x"}]},
                         {"role": "assistant", "content": "y", "reasoning_content": "hm", "tool_calls": [CALLED]},
                         {"role": "tool", "tool_call_id": "c1", "content": "z"}, {"role": "assistant", "content": "y", "prefix": True}],
            "stop": ["yy"], "stop_token_ids": [3], "logit_bias": {"15": -1}, "stream": True, "stream_options": {"include_usage": True}}),
    (CHAT, dict(TALK, tools=[TOOL, {"type": "custom", "custom": dict(CUSTOM)}], tool_choice={"type": "function", "function": {"name": "f"}})),
    (CHAT, dict(TALK, tools=[TOOL], tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}})),
    (CHAT, dict(TALK, reasoning={"effort": "low", "max_tokens": 2, "exclude": False, "enabled": True})),
    (CHAT, dict(TALK, response_format={"type": "json_schema", "json_schema": {"name": "n", "description": "d", "strict": True, "schema": {}}})),
    (CHAT, dict(TALK, thinking={"type": "enabled", "budget_tokens": 2})),
    (CHAT, dict(TALK, structured_outputs={"json": {}, "disable_fallback": True, "disable_any_whitespace": False})),
    (RESPONSES, {"input": [{"type": "message", "id": "m", "status": "completed", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
                           {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                           {"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
                           {"type": "function_call_output", "call_id": "c", "output": "y"}], "max_output_tokens": 1,
                 "tools": [dict(TOOL["function"], type="function"), dict(CUSTOM, type="custom"),
                           {"type": "namespace", "name": "ns", "description": "d", "tools": [dict(TOOL["function"], type="function")]}],
                 "tool_choice": {"type": "function", "name": "f"}, "reasoning": {"effort": "low", "summary": "auto"},
                 "text": {"format": {"type": "text"}}}),
    (MESSAGES, {"max_tokens": 1, "system": [{"type": "text", "text": "s", "cache_control": MARK}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": MARK}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                                          {"type": "tool_use", "id": "t", "name": "f", "input": {}, "cache_control": MARK}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": False, "content": "r", "cache_control": MARK}]}],
        "tools": [{"name": "f", "description": "d", "strict": False, "cache_control": MARK, "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}, "metadata": {"user_id": "u"}}),
    (MESSAGES, dict(TALK, thinking={"type": "enabled", "budget_tokens": 2, "display": "omitted"}, output_config={"effort": "low", "format": {"type": "json_object"}})),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}]}),
    ("/api/chat", {"stream": False, "messages": [
        {"role": "user", "content": "x", "images": []}, {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
            {"function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "tool_name": "f", "content": "z"}], "tools": [TOOL]}),
    (GOOGLE, {"systemInstruction": {"role": "user", "parts": [{"text": "s"}]}, "contents": [
        {"role": "user", "parts": [{"text": "x"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True, "thoughtSignature": "s"}, {"functionCall": {"id": "c", "name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {}, "parts": [{"text": "y"}]}}]}],
        "tools": [{"functionDeclarations": [{"name": "f", "description": "d", "parameters": {"type": "OBJECT", "properties": {}}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"maxOutputTokens": 2, "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 2}}}),
]
OPEN = ("parameters", "args", "response", "input_schema", "schema", "json", "arguments", "input")
# Members that take more than values like their own.
ALSO = {"arguments": OBJECT + STRING + "[", "content": STRING + "[", "output": STRING + ARRAY + OBJECT, "name": STRING, "stop": STRING + ARRAY,
        "schema": OBJECT + BOOL, "json": OBJECT + BOOL, "parameters": OBJECT, "input_schema": OBJECT, "input": OBJECT, "description": STRING, "text": STRING,
        "summary": STRING + "[", "logit_bias": "[", "15": "01-.", "stop_token_ids": "i", "thinking": STRING, "effort": "", "id": STRING}


def known():
    """Names in the tables of fields of src/server."""
    out = set()
    for path in glob.glob(os.path.join(sys.argv[4], "src", "server", "**", "*.c"), recursive=True):
        with open(path) as f:
            text = f.read()
        for table in re.finditer(r"const struct field (?:known|\w*fields)\[\] = \{(.*?)\{ NULL \}", text, re.S):
            out |= set(re.findall(r'(?:[{]\s*|TAKEN\(|IGNORED\(|SYNONYM\()"(\w+)"', table[1]))
    return out


def documented():
    """The rows of docs/http-api.md's table of fields: (a list of names for each API, the values)."""
    with open(os.path.join(sys.argv[4], "docs", "http-api.md")) as f:
        text = f.read()
    table = re.search(r"^\| chat completions \|.*?\n\n", text, re.S | re.M)[0]
    for line in table.strip().splitlines()[2:]:
        cells = [c.strip() for c in line.strip("|").split("|")]
        yield cells[:4], cells[4]


COLUMNS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
# Names in the table that stand for objects, or are told of in words.
PLAIN = re.compile(r"`([a-z_]+)`")


def columns():
    """(path, name, values) of each documented field of the four APIs."""
    for cells, values in documented():
        own, _, messages = cells[0].partition("; of messages ")
        for path, cell in zip(COLUMNS, cells):
            names = PLAIN.findall(own if cell == "·" else cell.partition(";")[0])
            for name in names + (PLAIN.findall(messages) if path == MESSAGES else []):
                if name not in INSIDE:
                    yield path, name, values


def body_with(path, name, value):
    body = copy.deepcopy(WHOLE[path])
    if "options" in path:
        body["options"] = {name: value}
    elif "config" in path:
        body["generationConfig"] = {name: value}
    else:
        body[name] = value
    if name == "stream_options":
        body["stream"] = True
    return body


def kind(value):
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = stub(template=sys.argv[3], ctx=400)
        cls.c = cls.s.connect()

    @classmethod
    def tearDownClass(cls):
        cls.c.close()
        cls.s.close()

    def ask(self, path, body):
        self.c.request("POST", path.split()[0], body)
        r = self.c.reply()
        if r.headers.get("connection") == "close":
            self.c.close()
            type(self).c = self.s.connect()
        return r

    def outcome(self, path, name, value):
        """taken, told, unknown, refused, or what is wrong."""
        names = (name,) + NAMED_AS.get(name, ())
        r = self.ask(path, body_with(path, name, value))
        warning = r.headers.get("x-weft-warning", "")
        if r.status == 200:
            if not any(n in warning for n in names):
                return "taken"
            return "unknown" if re.search(r"unknown fields: [^;]*\b%s\b" % name, warning) else "told"
        if r.status in (400, 404) and any(n in r.text() for n in names):
            return "refused"
        return "%d: %s" % (r.status, r.text()[:200])

    def test_every_field(self):
        names = sorted(known() | {name for _, name, _ in columns()})
        self.assertGreater(len(names), 200)
        self.assertEqual([n for n in names if n not in TAKEN], [], "fields that are missing in this test's table")
        wrong, count = [], 0
        for path, name in itertools.product(WHOLE, names):
            if name in WHOLE[path]:
                continue
            for letter in "oz" if path in TWINS else "otzB[" if os.environ.get("WEFT_TEST_QUICK") else "o" + ALL.replace("o", ""):
                got = self.outcome(path, name, VALUES[letter])
                count += 1
                if got == "unknown":
                    break   # so is every other value of it
                if got not in ("told", "refused") and not (got == "taken" and letter in ELSEWHERE.get((path, name), TAKEN[name])):
                    wrong.append("%s %s: %s is %s" % (path, name, json.dumps(VALUES[letter]), got))
        print("%d fields at %d endpoints, %d requests" % (len(names), len(WHOLE), count))
        self.assertEqual(wrong, [], "\n".join(wrong[:60]))

    def places(self, value, at=()):
        """The paths of all members inside of a body's fields."""
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            if at:
                yield at + (key,)
            if key not in OPEN or not at:
                yield from self.places(value[key], at + (key,))

    def test_members(self):
        """The objects and lists that fields are: a value of another kind than the member's own is told or refused."""
        wrong, count = [], 0
        for path, body in NESTED:
            r = self.ask(path, body)
            self.assertEqual(r.status, 200, (path, r.text()))
            for at in self.places(body):
                changed = copy.deepcopy(body)
                here = changed
                for key in at[:-1]:
                    here = here[key]
                own, names = here[at[-1]], [k for k in at if isinstance(k, str)]
                for letter in ALL:
                    value = here[at[-1]] = VALUES[letter]
                    count += 1
                    r = self.ask(path, changed)
                    warned = any(re.search(r"\b%s\b" % n, r.headers.get("x-weft-warning", "")) for n in names)
                    if r.status == 400 and any(n in r.text() for n in names):
                        continue
                    if r.status == 200 and (warned or kind(own) == kind(value) or letter in ALSO.get(names[-1], "")):
                        continue
                    wrong.append("%s %s: %s is %d %s" % (path, ".".join(map(str, at)), json.dumps(value), r.status, r.text()[:150] if r.status != 200 else "taken"))
        print("%d values in %d bodies" % (count, len(NESTED)))
        self.assertEqual(wrong, [], "\n".join(wrong[:60]))

    def test_documented(self):
        """Each field of the page is read where the page says so, and its range is the one that stands there."""
        wrong, ranges = [], 0
        for path, name, values in columns():
            good = [GOOD[name]] if name in GOOD else list(VALUES.values())
            if name == "tool_choice":
                good = [CHOICES.get(path, "auto")]
            if not any(self.outcome(path, name, v) == "taken" for v in good):
                wrong.append("%s %s: no value of it is taken" % (path, name))
            bounds = re.match(r"(-?[\d.]+) to (-?[\d.]+)", values)
            for value in (float(bounds[1]) - 1, float(bounds[2]) + 1) if bounds else ():
                ranges += 1
                if self.outcome(path, name, value) != "refused":
                    wrong.append("%s %s: %g is %s" % (path, name, value, self.outcome(path, name, value)))
        self.assertGreater(ranges, 50)
        self.assertEqual(wrong, [], "\n".join(wrong))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
