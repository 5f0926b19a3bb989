// answer.js - an answer that is being written: a request, its stream, and what is shown meanwhile.
import { element, name_of, shown_of } from "./element.js";
import { markdown } from "./markdown.js";
import { ask, events } from "./server.js";
import { request_fields, system_message } from "./settings.js";
import { model_fields } from "./state.js";
import { call_box } from "./calls.js";
import { offered } from "./tools.js";
import { box_of, thought_box, thought_words } from "./turn.js";

// Below this an answer came at once, as drafted ones do, and its rate would mean nothing.
const SHORTEST_S = 0.1;
// Formatting a long text takes longer than a frame: at most this share of the time goes into it.
const DRAW_SHARE = 0.25;
const LIVE_MOST = 300000; // characters of a thought that are shown while it comes

// Token counts of an answer that was stopped before the server told its usage.
const usage_of = (t) => t && { prompt_tokens: t.cache_n + t.prompt_n, prompt_tokens_details: { cached_tokens: t.cache_n },
  completion_tokens: t.predicted_n, completion_tokens_details: { accepted_prediction_tokens: t.draft_n_accepted } };

function stats_of(answer) {
  const u = answer.usage ?? usage_of(answer.timings), parts = [];
  const begun = answer.first || performance.now(), seconds = (performance.now() - begun) / 1000;
  if (u) {
    const d = u.completion_tokens_details ?? {};
    parts.push(`prompt ${u.prompt_tokens} tokens, ${u.prompt_tokens_details?.cached_tokens ?? 0} cached`);
    if (u.cache?.replayed) parts.push(`${u.cache.replayed} recomputed`);
    parts.push(`first token after ${(begun - answer.begun).toFixed(0)} ms`);
    if (u.completion_tokens > 1)
      parts.push(`${u.completion_tokens} tokens` + (seconds < SHORTEST_S ? ` within ${(1000 * seconds).toFixed(0)} ms`
        : `, ${((u.completion_tokens - 1) / seconds).toFixed(1)} tokens/s`));
    if (d.accepted_prediction_tokens) parts.push(`drafts accepted: ${d.accepted_prediction_tokens}`);
  }
  if (answer.turn.cut) parts.push({ length: "cut at max tokens", stopped: "stopped", lost: "interrupted" }[answer.turn.cut]);
  return parts.join(" · ");
}

export class Answer {
  // To the turn whose id is parent; or from: an answer that was cut, to go on with.
  constructor(conversation, parent, from = null) {
    this.conversation = conversation;
    this.parent = parent;
    this.from = from;
    this.turn = { role: "assistant", content: from?.content ?? "" };
    if (from?.reasoning_content) this.turn.reasoning_content = from.reasoning_content;
    this.box = box_of("assistant");
    this.progress = element("progress", { "aria-label": "prompt computed" });
    this.thought = thought_box(true);
    this.body = element("div", { class: "text" });
    this.calls = element("div");
    this.speed = element("div", { class: "stats", "aria-hidden": "true" }); // changes too often to be read out
    this.thought.hidden = true;
    this.box.append(this.progress, this.thought, this.body, this.calls, this.speed);
    this.begun = performance.now();
    this.first = 0;
    this.problem = null;     // an Error
    this.abort = new AbortController();
    if (from) {
      this.thought.lastChild.append(shown_of(from.reasoning_content ?? ""));
      this.thought.hidden = !from.reasoning_content;
      this.thought.open = false;
      this.draw();
    }
  }

  // Rejected when it is stopped.
  stopped() {
    const { signal } = this.abort;
    return new Promise((done, failed) => signal.addEventListener("abort", () => failed(signal.reason)));
  }

  async request() {
    const body = { messages: this.conversation.messages(this.from?.id ?? this.parent), stream: true,
      stream_options: { include_usage: true }, return_progress: true, timings_per_token: true, cache_report: true, ...model_fields(), ...request_fields(this.conversation.settings) };
    const system = system_message(this.conversation.settings);
    if (system) body.messages.unshift(system);
    this.offer = await Promise.race([offered(body.tools ?? []), this.stopped()]);
    if (this.offer.tools.length) body.tools = [...(body.tools ?? []), ...this.offer.tools];
    if (this.from) {
      body.continue_final_message = true;
      body.add_generation_prompt = false;
      delete body.messages.at(-1).reasoning_content;
    }
    return body;
  }

  draw() {
    const began = performance.now();
    clearTimeout(this.timer);
    this.timer = null;
    this.body.replaceChildren(markdown(this.turn.content));
    this.pause = (performance.now() - began) * (1 / DRAW_SHARE - 1);
  }

  // Tokens may come faster than a screen shows them.
  draw_soon() {
    this.timer ??= setTimeout(() => requestAnimationFrame(() => this.timer !== null && this.draw()), Math.max(this.pause ?? 0, 10));
  }

  // Open while thoughts come, unless the person closed them; folded once the answer begins.
  think(more) {
    this.thought_from ??= performance.now();
    this.turn.reasoning_content = (this.turn.reasoning_content ?? "") + more;
    this.thought.hidden = false;
    if (this.turn.reasoning_content.length <= LIVE_MOST) this.thought.lastChild.append(shown_of(more));
  }

  end_thought() {
    this.thought.open = false;
    if (!this.thought_from || this.turn.thought) return;
    this.turn.thought = `${((performance.now() - this.thought_from) / 1000).toFixed(1)} s`;
    this.thought.firstChild.textContent = thought_words(this.turn);
  }

  say(more) {
    if (this.turn.content === "") this.end_thought();
    this.turn.content += more;
    this.draw_soon();
  }

  call(delta) {
    const calls = this.turn.tool_calls ??= [];
    const call = calls[delta.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    call.id ||= delta.id ?? "";
    call.function.name += delta.function?.name ?? "";
    call.function.arguments += delta.function?.arguments ?? "";
    this.end_thought();
    this.calls.replaceChildren(...calls.map(call_box));
  }

  show_speed(t) {
    this.timings = t;
    this.speed.textContent = `${t.predicted_n} tokens` +
      (t.predicted_ms > 1000 * SHORTEST_S ? `, ${t.predicted_per_second.toFixed(1)} tokens/s` : "");
  }

  take(event) {
    if (event.error) throw new Error(event.error.message);
    if (event.prompt_progress) {
      this.progress.max = event.prompt_progress.total;
      this.progress.value = event.prompt_progress.processed;
    }
    if (event.model && event.model !== this.turn.model) {
      this.turn.model = event.model;
      this.box.querySelector(".speaker .name").replaceChildren(name_of(event.model));
    }
    if (event.usage) this.usage = event.usage;
    if (event.timings) this.show_speed(event.timings);
    const choice = event.choices?.[0], delta = choice?.delta;
    if (choice?.finish_reason === "length") this.turn.cut = "length";
    if (!delta) return;
    if (delta.reasoning_content || delta.content || delta.tool_calls) {
      this.first ||= performance.now();
      this.progress.hidden = true;
    }
    if (delta.reasoning_content) this.think(delta.reasoning_content);
    if (delta.content) this.say(delta.content);
    for (const c of delta.tool_calls ?? []) this.call(c);
  }

  // Until it is over, in whatever way.  Afterwards turn is the answer; or, where it has no text, problem says why, or it
  // was stopped.
  async run() {
    try {
      const reply = await ask("/v1/chat/completions", { method: "POST", body: await this.request(), signal: this.abort.signal });
      for await (const event of events(reply)) this.take(event);
    } catch (e) {
      this.turn.cut = e.name === "AbortError" ? "stopped" : "lost";
      if (e.name !== "AbortError") this.problem = e;
    }
    clearTimeout(this.timer);
    this.timer = null;
    if (this.turn.cut) delete this.turn.tool_calls; // half of a call
    for (const { function: { name } } of this.turn.tool_calls ?? [])
      if (this.offer && Object.hasOwn(this.offer.of, name)) this.turn.of = { ...this.turn.of, [name]: this.offer.of[name] };
    this.turn.stats = stats_of(this);
  }

  // A failed answer without text is not a turn.
  get is_turn() {
    return !this.turn.cut || this.turn.content !== "" || this.turn.cut === "length";
  }
}
