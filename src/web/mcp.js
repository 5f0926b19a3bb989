// mcp.js - a worker that asks MCP servers (Streamable HTTP, JSON-RPC 2.0).  It alone may connect to other servers than weft:
// the policy of its file says so (server/api/api_page.c), and that of the page does not.
//
// It is given { id, url, token, method, params } with the method of MCP, and tells { id, result } or { id, error }, a sentence for a
// person.  { id, stop } ends what was asked under that id.  A session of a server begins with the first request to it.

const VERSIONS = ["2025-06-18", "2025-11-25", "2025-03-26", "2024-11-05"]; // the first is asked for
const REPLY_MOST = 8 << 20; // characters
const PAGES_MOST = 20;      // of a list
const sessions = new Map(); // URL and token: a promise of { id, version }
const asked = new Map();    // id: AbortController
let number = 0;

class Problem extends Error {}
class Ended extends Error {} // the session is no more: nothing was done

function unreachable(url) {
  const { protocol, hostname } = new URL(url);
  const local = /^(localhost|127\..*|\[::1\])$/.test(hostname);
  return "does not answer this page. Is it running? It must allow the page's origin (CORS), " + self.location.origin +
    ", with the headers content-type, authorization, mcp-session-id and mcp-protocol-version" +
    (self.location.protocol === "https:" && protocol === "http:" && !local ? "; and a page of https may ask servers of https only" : "");
}

async function text_of(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader(), parts = [];
  for (let length = 0; ;) {
    const { done, value } = await reader.read();
    if (done) return parts.join("");
    length += value.length;
    if (length > REPLY_MOST) throw new Problem("answers with more than 8 MB");
    parts.push(value);
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem("answers with what is not JSON: is the URL that of its MCP endpoint?");
  }
}

async function refused(reply, session) {
  if (reply.status === 404 && session?.id) return new Ended();
  if (reply.status === 401 || reply.status === 403) return new Problem(`wants a token, or another one (status ${reply.status}): enter it under Settings`);
  let words = "";
  try {
    words = JSON.parse(await text_of(reply)).error.message;
  } catch { /* a page for people, or nothing */ }
  return new Problem(`answers with status ${reply.status}${typeof words === "string" && words ? ` (${words.slice(0, 300)})` : ""}: ` +
    (session && !session.id ? "does it let pages read its header mcp-session-id (CORS)?" : "is the URL that of its MCP endpoint?"));
}

async function post({ url, token }, session, message, signal) {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (session?.id) headers["mcp-session-id"] = session.id;
  if (session) headers["mcp-protocol-version"] = session.version;
  let reply;
  try {
    reply = await fetch(url, { method: "POST", headers, body: JSON.stringify({ jsonrpc: "2.0", ...message }), signal, credentials: "omit",
      cache: "no-store", referrerPolicy: "no-referrer" });
  } catch (e) {
    throw e.name === "AbortError" ? e : new Problem(unreachable(url));
  }
  if (!reply.ok) throw await refused(reply, session);
  return reply;
}

// The messages of a reply: of a stream as they come, of JSON at its end.
async function* messages_of(reply) {
  const type = reply.headers.get("content-type") ?? "";
  if (!type.startsWith("text/event-stream")) {
    if (!type.startsWith("application/json"))
      throw new Problem(`answers with ${type.slice(0, 100) || "no type"}, not with JSON: is the URL that of its MCP endpoint?`);
    yield* [parsed(await text_of(reply))].flat();
    return;
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (let length = 0; ;) {
      const { done, value } = await reader.read();
      if (done) return;
      length += value.length;
      if (length > REPLY_MOST) throw new Problem("answers with more than 8 MB");
      rest += value;
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
        if (data) yield* [parsed(data)].flat();
      }
    }
  } finally {
    reader.cancel().catch(() => null); // a server may leave the stream open after its answer
  }
}

// What a server asks in the middle of its answer: a sign of life; this page does nothing else for it.
function answer_server(to, session, message, signal) {
  const reply = message.method === "ping" ? { result: {} } : { error: { code: -32601, message: "not supported" } };
  post(to, session, { id: message.id, ...reply }, signal).catch(() => null);
}

// The result of a request.
async function request(to, session, method, params, signal) {
  const id = ++number;
  try {
    const reply = await post(to, session, { id, method, params }, signal), begun = reply.headers.get("mcp-session-id");
    for await (const message of messages_of(reply)) {
      if (message?.method && message.id !== undefined) answer_server(to, session ?? { id: begun, version: VERSIONS[0] }, message, signal);
      if (message?.id !== id || message.method) continue;
      if (message.error) throw new Problem(`refuses ${method}: ${String(message.error.message ?? message.error.code).slice(0, 300)}`);
      if (!message.result || typeof message.result !== "object") break;
      return { result: message.result, session: begun };
    }
  } catch (e) {
    if (e.name === "AbortError" && session) post(to, session, { method: "notifications/cancelled", params: { requestId: id } }).catch(() => null);
    throw e instanceof Problem || e instanceof Ended || e.name === "AbortError" ? e : new Problem("broke off its answer");
  }
  throw new Problem("ended its answer without a result");
}

async function begin(to, signal) {
  const { result, session: id } = await request(to, null, "initialize",
    { protocolVersion: VERSIONS[0], capabilities: {}, clientInfo: { name: "weft", version: "1" } }, signal);
  if (!VERSIONS.includes(result.protocolVersion))
    throw new Problem(`speaks version ${String(result.protocolVersion).slice(0, 40)} of MCP; this page speaks ${VERSIONS.join(", ")}`);
  const session = { id, version: result.protocolVersion };
  await (await post(to, session, { method: "notifications/initialized" }, signal)).body?.cancel();
  return session;
}

// In the session of its server, which is begun where there is none, and once again where the server has forgotten it.
async function in_session(to, what, signal) {
  const key = JSON.stringify([to.url, to.token]);
  for (let again = false; ; again = true) {
    if (!sessions.has(key)) {
      const beginning = begin(to, signal);
      beginning.catch(() => sessions.delete(key));
      sessions.set(key, beginning);
    }
    try {
      return await what(await sessions.get(key));
    } catch (e) {
      if (!(e instanceof Ended)) throw e;
      sessions.delete(key);
      if (again) throw new Problem("ends its session at once");
    }
  }
}

// A list comes in pages.
async function list(to, signal) {
  const tools = [];
  let cursor;
  for (let page = 0; page < PAGES_MOST; page++) {
    const { result } = await in_session(to, (session) => request(to, session, "tools/list", cursor ? { cursor } : {}, signal), signal);
    if (!Array.isArray(result.tools)) throw new Problem("answers with no list of tools");
    tools.push(...result.tools);
    cursor = result.nextCursor;
    if (!cursor) break;
  }
  return { tools };
}

self.onmessage = async ({ data: { id, url, token, method, params, stop } }) => {
  if (stop) {
    asked.get(id)?.abort();
    return;
  }
  const abort = new AbortController(), to = { url, token };
  asked.set(id, abort);
  try {
    const result = method === "tools/list" ? await list(to, abort.signal)
      : (await in_session(to, (session) => request(to, session, method, params, abort.signal), abort.signal)).result;
    self.postMessage({ id, result });
  } catch (e) {
    self.postMessage({ id, error: e instanceof Problem ? e.message : e.name === "AbortError" ? "was not waited for" : `failed: ${e.message}` });
  }
  asked.delete(id);
};
