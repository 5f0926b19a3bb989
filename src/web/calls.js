// calls.js - calls of tools that a model asks for.  One of an MCP server is made when the person allows it, each for itself; the
// person plays all other tools.  What a tool answers is a stranger's text, and shown as text.
import { button, element, name_of, shown_of } from "./element.js";
import { call, host_of, is_on } from "./tools.js";

const ROUNDS_MOST = 20; // of calls for one message: a model may go on for ever
const REFUSED = "The user refused this call.";
// Characters that turn the direction of text, break its line, or are not seen: they could hide what is allowed.
const HIDING = /[\p{Cf}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}]/gu;
const escaped = (text) => text.replace(HIDING, (x) => x.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));

const made = new Map(); // id of a turn and place of the call in it: { text } of a call that was answered, { busy }, or { problem }

export function call_box(c) {
  return element("div", { class: "call" }, "calls ", element("code", {}, name_of(c.function.name)), " with ",
    element("code", {}, shown_of(c.function.arguments)));
}

// The arguments as an object; null: they are none.
function arguments_of(c) {
  try {
    const given = JSON.parse(c.function.arguments || "{}");
    return given && typeof given === "object" && !Array.isArray(given) ? given : null;
  } catch {
    return null;
  }
}

// How often the model has called tools since the message of the person, with this turn.
function rounds_of(turn, conversation) {
  const path = conversation.path(), asked = path.findLastIndex((t) => t.role === "user");
  return path.slice(asked + 1).filter((t) => t.tool_calls).length + (path.includes(turn) ? 0 : 1);
}

class Call {
  // of: { url, name } of the tool at its server, or undefined: the person plays it.
  constructor(turn, at, of, may, told) {
    this.c = turn.tool_calls[at];
    this.key = `${turn.id} ${at}`;
    this.of = of;
    this.may = may;
    this.told = told;
    this.box = element("div", { class: "call" });
    if (of) this.draw();
    else this.draw_played();
  }

  get value() {
    return this.area ? this.area.value : made.get(this.key)?.text;
  }

  draw_played() {
    const label = "Result of " + name_of(this.c.function.name);
    this.area = element("textarea", { rows: "1", placeholder: label, "aria-label": label });
    this.box.append(...call_box(this.c).childNodes, this.area);
  }

  become(state) {
    made.set(this.key, state);
    this.told(this.key);
  }

  async make(given) {
    const abort = new AbortController();
    this.become({ busy: abort });
    try {
      const { text, failed } = await call(this.of, given, abort.signal);
      this.become({ text, failed });
    } catch (e) {
      this.become(abort.signal.aborted ? {} : { problem: e.message });
    }
  }

  draw() {
    const { c, of } = this, given = arguments_of(c), state = made.get(this.key) ?? {}, name = name_of(c.function.name);
    const shown = escaped(given ? JSON.stringify(given, null, 2) : c.function.arguments);
    const row = element("div", { class: "row" });
    this.box.replaceChildren(element("p", {}, "The model asks for ", element("code", {}, name), " of ", element("strong", {}, name_of(host_of(of.url))), " with"),
      element("pre", { tabindex: "0" }, shown_of(shown)));
    if (state.text !== undefined) {
      this.box.append(element("p", { class: state.failed ? "problem" : "hint" }, state.failed ? "The tool says that it failed:" : "Its answer:"),
        element("pre", { tabindex: "0" }, shown_of(state.text)));
      return;
    }
    if (state.problem) this.box.append(element("p", { class: "problem", role: "alert" }, name_of(state.problem)));
    if (!given) this.box.append(element("p", { class: "problem" }, "These arguments are not a JSON object, so the call cannot be made."));
    if (state.busy) {
      row.append(element("span", { role: "status" }, element("span", { class: "busy" }), `waiting for ${name_of(host_of(of.url))}`),
        button("Do not wait", () => state.busy.abort(), { "aria-label": `Do not wait for ${name}` }));
    } else {
      if (given && this.may)
        row.append(button(state.problem ? "Try again" : "Allow", () => this.make(given), { class: "main", "aria-label": `${state.problem ? "Try again" : "Allow"}: ${name}` }));
      row.append(button("Refuse", () => this.become({ text: given ? REFUSED : "The arguments are not a JSON object." }), { "aria-label": `Refuse: ${name}` }));
    }
    this.box.append(row);
  }
}

const drawn = new Map(); // key of a call: its Call on the page, the last one that was drawn

// A form for what the tools answer.  send(values) goes on with the answer, and says whether it does; that is done at once when all
// calls are of servers and have been decided.
export function calls_form(turn, conversation, send) {
  const rounds = rounds_of(turn, conversation), may = rounds <= ROUNDS_MOST;
  const of = (c) => (turn.of && Object.hasOwn(turn.of, c.function.name) && is_on(turn.of[c.function.name].url) ? turn.of[c.function.name] : undefined);
  const told = (key) => {
    const current = drawn.get(key);
    const here = current.box.contains(document.activeElement);
    current.draw();
    if (here) (current.box.querySelector("button") ?? current.form.querySelector("button:not([hidden])"))?.focus();
    current.form.dispatchEvent(new Event("decided"));
  };
  const calls = turn.tool_calls.map((c, at) => new Call(turn, at, of(c), may, told));
  const submit = element("button", { type: "submit" }, "Send results");
  const values = () => calls.map((c) => c.value);
  const ready = () => values().every((v) => v !== undefined);
  const of_servers = calls.every((c) => !c.area);
  const look = () => {
    submit.disabled = !ready();
    submit.hidden = of_servers && !ready();
  };
  function go_on() {
    if (!ready() || !send(values())) return;
    for (const c of calls) { // they are asked for again, should the person come back here
      made.delete(c.key);
      drawn.delete(c.key);
    }
  }
  const form = element("form", { class: "results", onsubmit: (e) => {
    e.preventDefault();
    go_on();
  }, ondecided: () => {
    look();
    if (of_servers && form.isConnected) go_on();
  } }, ...calls.map((c) => c.box));
  if (!may && calls.some((c) => c.of))
    form.append(element("p", { class: "problem" }, `These are more than ${ROUNDS_MOST} rounds of calls for one message. Refuse, or write a message, to go on.`));
  form.append(element("div", { class: "row" }, submit));
  look();
  for (const c of calls) {
    c.form = form;
    drawn.set(c.key, c);
  }
  return form;
}
