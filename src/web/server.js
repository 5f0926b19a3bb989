// server.js - asking this server: one fetch with the API key, and reading a stream of events.

export const settings = (id) => document.getElementById(id);

export function headers() {
  const key = settings("key").value.trim();
  return key ? { authorization: "Bearer " + key } : {};
}

// What went wrong, for a person: the server's own words when it has some.
export async function problem_of(reply) {
  const text = await reply.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text || "status " + reply.status;
  }
}

// One event after another, as objects, until [DONE] or the end.
export async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const data = rest.slice(0, end).split("\n").filter((l) => l.startsWith("data:"))
        .map((l) => l.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

export function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes))
    if (k === "onclick") e.addEventListener("click", v);
    else if (v !== null && v !== false) e.setAttribute(k, v === true ? "" : v);
  e.append(...children);
  return e;
}
