// server.js - asking this server: requests with the API key, errors in its own words, streams of events.
import { api_key } from "./settings.js";

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status; // 0: there was no reply
  }
}

async function problem_of(reply) {
  const text = await reply.text();
  if (reply.status === 401) return "this server needs an API key: enter it under Settings";
  try {
    const { message } = JSON.parse(text).error;
    if (typeof message === "string" && message) return message;
  } catch { /* weft's errors are JSON, so something before it answered, with a page for people */ }
  return `status ${reply.status}, and not from weft: a proxy before it may have lost the server`;
}

// A reply that is not an error.  body: an object, sent as JSON.
export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  let reply;
  if (api_key()) headers.authorization = "Bearer " + api_key();
  if (body) headers["content-type"] = "application/json";
  try {
    reply = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ServerError("the server does not answer; is it still running?", 0);
  }
  if (!reply.ok) throw new ServerError(await problem_of(reply), reply.status);
  return reply;
}

// One event after another, as objects, until [DONE].  A stream that ends without it was broken off.
export async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = []; // of an event that has not ended: put together once
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (e) {
      if (e.name === "AbortError") throw e;
      part = { done: true };
    }
    if (part.done) throw new ServerError("the connection to the server was lost", 0);
    if (!part.value) continue;
    const end_is_there = ((parts.at(-1)?.at(-1) ?? "") + part.value).includes("\n\n");
    parts.push(part.value);
    if (!end_is_there) continue;
    let rest = parts.join("");
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const data = rest.slice(0, end).split("\n").filter((l) => l.startsWith("data:"))
        .map((l) => l.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
    parts = rest ? [rest] : [];
  }
}
