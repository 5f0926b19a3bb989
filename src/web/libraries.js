// libraries.js - the libraries that this build found and carries; see meson.build.  Each is a script that leaves one global,
// loaded when it is first wanted.
const embedded = [];
const globals = { "marked.js": "marked", "dompurify.js": "DOMPurify", "highlight.js": "hljs", "katex.js": "katex" };
const loads = {};

// The library, or null: this build has none of that name.
export function library(name) {
  if (!has(name)) return Promise.resolve(null);
  loads[name] ??= import("./" + name).then(() => loaded(name));
  return loads[name];
}

// The library if it was loaded before; else null: library() loads it.
export function loaded(name) {
  return (has(name) && globalThis[globals[name]]) || null;
}

export const has = (name) => embedded.includes(name);
