// chat.js - a conversation with the served model.
//
// turns is the conversation as it is sent; each turn has its element in the log.
// Editing or making an answer again cuts the list and asks: what came before is
// still kept by the server, which the figures under each answer show.
import { element, events, headers, problem_of, settings } from "/server.js";

const log = settings("log"), text = settings("text");
const turns = [];               // { role, content, reasoning_content?, tool_calls?, tool_call_id?, box }
let running = null;             // AbortController of the answer under way

// ---- tabs ----

const tabs = [settings("tab-chat"), settings("tab-live")];
function show_tab(tab) {
  for (const t of tabs) {
    const on = t === tab;
    t.setAttribute("aria-selected", on);
    t.tabIndex = on ? 0 : -1;
    settings(t.getAttribute("aria-controls")).hidden = !on;
  }
  document.dispatchEvent(new CustomEvent("view", { detail: tab.getAttribute("aria-controls") }));
}
for (const t of tabs) {
  t.addEventListener("click", () => show_tab(t));
  t.addEventListener("keydown", (e) => {
    if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
    const other = tabs[1 - tabs.indexOf(t)];
    show_tab(other);
    other.focus();
  });
}

// ---- what is served ----

async function learn_model() {
  try {
    const reply = await fetch("/props", { headers: headers() });
    if (!reply.ok) {
      settings("model").textContent = await problem_of(reply);
      return;
    }
    const props = await reply.json();
    settings("model").textContent = `${props.model}, context ${props.context.toLocaleString()} tokens`;
    for (const name of ["temperature", "top_p", "top_k", "min_p"])
      settings(name).placeholder = props.sampling[name];
    settings("think-field").hidden = props.thinking !== "by request";
  } catch (e) {
    settings("model").textContent = "the server does not answer: " + e.message;
  }
}
settings("key").addEventListener("change", learn_model);

// ---- the log ----

// Text with ``` blocks and `code` as elements; nothing is read as HTML.
function rendered(source) {
  const out = document.createDocumentFragment();
  source.split(/```[^\n]*\n?/).forEach((part, i) => {
    if (i % 2) {
      out.append(element("pre", {}, element("code", {}, part)));
      return;
    }
    part.split(/`([^`\n]+)`/).forEach((piece, j) => out.append(j % 2 ? element("code", {}, piece) : piece));
  });
  return out;
}

function at_end(change) {
  const near = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (near) log.scrollTop = log.scrollHeight;
}

function add_box(role, who) {
  settings("empty").hidden = true;
  const box = element("article", { class: "message " + role }, element("div", { class: "who" }, who));
  at_end(() => log.append(box));
  return box;
}

function cut(from) {
  for (const t of turns.splice(from)) t.box.remove();
  for (const stray of log.querySelectorAll(".stray")) stray.remove();
}

function add_user(content) {
  const turn = { role: "user", content, box: add_box("user", "You") };
  const body = element("div", { class: "text" }, content);
  turn.box.append(body, element("div", { class: "acts" }, element("button", {
    type: "button", onclick: () => edit(turn, body),
  }, "Edit")));
  turns.push(turn);
}

function edit(turn, body) {
  if (turn.box.querySelector("textarea")) return;
  const area = element("textarea", { rows: "3", "aria-label": "Edited message" });
  const done = (send) => {
    area.remove();
    row.remove();
    body.hidden = acts.hidden = false;
    if (!send || running) return;
    cut(turns.indexOf(turn));
    add_user(area.value);
    answer();
  };
  const row = element("div", { class: "row" }, element("button", { type: "button", onclick: () => done(true) }, "Send"),
    element("button", { type: "button", onclick: () => done(false) }, "Leave it"));
  area.value = turn.content;
  const acts = turn.box.querySelector(".acts");
  body.hidden = acts.hidden = true;
  body.after(area, row);
  area.focus();
}

// ---- an answer ----

function request() {
  const body = {
    messages: turns.map(({ box, ...turn }) => turn), stream: true, stream_options: { include_usage: true },
    return_progress: true, cache_report: true,
  };
  if (settings("system").value.trim()) body.messages.unshift({ role: "system", content: settings("system").value });
  for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"])
    if (settings(name).value !== "") body[name] = Number(settings(name).value);
  if (settings("think").value && !settings("think-field").hidden)
    body.chat_template_kwargs = { enable_thinking: settings("think").value === "true" };
  if (settings("tools").value.trim()) body.tools = JSON.parse(settings("tools").value);
  return body;
}

class Answer {
  constructor() {
    this.turn = { role: "assistant", content: "", box: add_box("assistant", "Model") };
    this.begun = performance.now();
    this.first = 0;
    this.progress = element("progress", { "aria-label": "prompt computed" });
    this.turn.box.append(this.progress);
  }

  part(name, make) {
    if (!this[name]) at_end(() => this.turn.box.append(this[name] = make()));
    return this[name];
  }

  think(more) {
    const body = this.part("thought", () => element("details", {}, element("summary", {}, "Thinking"),
      element("div", { class: "text" }))).lastChild;
    this.turn.reasoning_content = (this.turn.reasoning_content ?? "") + more;
    at_end(() => body.append(more));
  }

  // Tokens may come faster than a screen shows them: the text is laid out once a frame.
  say(more) {
    this.part("body", () => element("div", { class: "text" }));
    this.turn.content += more;
    this.frame ??= requestAnimationFrame(() => this.show());
  }

  show() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    if (this.body) at_end(() => this.body.replaceChildren(rendered(this.turn.content)));
  }

  call(delta) {
    const calls = this.turn.tool_calls ??= [];
    const call = calls[delta.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    this.call_boxes ??= [];
    call.id ||= delta.id ?? "";
    call.function.name += delta.function?.name ?? "";
    call.function.arguments += delta.function?.arguments ?? "";
    const box = this.call_boxes[delta.index] ??= element("div", { class: "call" });
    if (!box.parentNode) this.turn.box.append(box);
    at_end(() => box.replaceChildren("calls ", element("code", {}, call.function.name), " with ",
      element("code", {}, call.function.arguments)));
  }

  take(event) {
    if (event.error) throw new Error(event.error.message);
    const p = event.prompt_progress;
    if (p) {
      this.progress.max = p.total;
      this.progress.value = p.processed;
    }
    if (event.usage) this.usage = event.usage;
    const delta = event.choices?.[0]?.delta;
    if (event.choices?.[0]?.finish_reason) this.finish = event.choices[0].finish_reason;
    if (!delta) return;
    if (delta.reasoning_content || delta.content || delta.tool_calls) {
      this.first ||= performance.now();
      this.progress.hidden = true;
    }
    if (delta.reasoning_content) this.think(delta.reasoning_content);
    if (delta.content) this.say(delta.content);
    for (const c of delta.tool_calls ?? []) this.call(c);
  }

  // What the figures say; last, since a stopped answer has none of the server's.
  end(stopped) {
    this.show();
    this.progress.remove();
    const u = this.usage, parts = [];
    const seconds = this.first ? (performance.now() - this.first) / 1000 : 0;
    if (u) {
      const cached = u.prompt_tokens_details?.cached_tokens ?? 0;
      const d = u.completion_tokens_details ?? {};
      parts.push(`prompt ${u.prompt_tokens} tokens, ${cached} of them kept from before`);
      if (u.cache?.replayed) parts.push(`${u.cache.replayed} replayed`);
      parts.push(`first token after ${((this.first || performance.now()) - this.begun).toFixed(0)} ms`);
      // Of an answer that comes at once, as guessed ones do, a rate would say nothing.
      if (u.completion_tokens > 1)
        parts.push(`${u.completion_tokens} tokens` + (seconds < 0.1 ? ` within ${(1000 * seconds).toFixed(0)} ms`
          : `, ${((u.completion_tokens - 1) / seconds).toFixed(1)} a second`));
      if (d.accepted_prediction_tokens) parts.push(`${d.accepted_prediction_tokens} guessed right`);
    }
    if (this.finish === "length") parts.push("cut at the limit");
    if (stopped) parts.push("stopped");
    at_end(() => {
      this.turn.box.append(element("div", { class: "stats" }, parts.join(" · ")));
      const acts = element("div", { class: "acts" }, element("button", {
        type: "button", onclick: () => again(this.turn),
      }, "Make again"));
      this.turn.box.append(acts);
      if (this.turn.tool_calls?.length && !stopped) this.turn.box.append(this.results());
    });
  }

  // The person plays the tool.
  results() {
    const form = element("form", {});
    const areas = this.turn.tool_calls.map((c) => {
      const area = element("textarea", { rows: "1", "aria-label": "Result of " + c.function.name });
      area.placeholder = "Result of " + c.function.name;
      form.append(area);
      return area;
    });
    form.append(element("div", { class: "row" }, element("button", { type: "submit" }, "Send results")));
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      if (running) return;
      this.turn.tool_calls.forEach((c, i) => {
        const box = add_box("user", "Result of " + c.function.name);
        box.append(element("div", { class: "text" }, areas[i].value));
        turns.push({ role: "tool", tool_call_id: c.id, content: areas[i].value, box });
      });
      form.remove();
      answer();
    });
    return form;
  }
}

function again(turn) {
  if (running) return;
  cut(turns.indexOf(turn));
  answer();
}

function show_running(on) {
  settings("stop").hidden = !on;
  settings("send").disabled = on;
  settings("new").disabled = on;
}

async function answer() {
  let body;
  try {
    body = request();
  } catch (e) {
    add_box("stray", "").append(element("p", { class: "problem" }, "Tools are no JSON: " + e.message));
    return;
  }
  const a = new Answer();
  let stopped = false;
  running = new AbortController();
  show_running(true);
  try {
    const reply = await fetch("/v1/chat/completions", {
      method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", ...headers() },
      signal: running.signal,
    });
    if (!reply.ok) throw new Error(await problem_of(reply));
    for await (const event of events(reply)) a.take(event);
  } catch (e) {
    if (e.name === "AbortError") stopped = true;
    else a.turn.box.append(element("p", { class: "problem" }, e.message));
  }
  running = null;
  show_running(false);
  turns.push(a.turn);
  a.end(stopped);
}

// ---- asking ----

settings("ask").addEventListener("submit", (e) => {
  e.preventDefault();
  if (running || !text.value.trim()) return;
  add_user(text.value);
  text.value = "";
  answer();
});
text.addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  settings("ask").requestSubmit();
});
settings("stop").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") running?.abort();
});
settings("new").addEventListener("click", () => {
  cut(0);
  settings("empty").hidden = false;
  text.focus();
});
learn_model();
