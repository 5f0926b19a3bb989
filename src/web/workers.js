// workers.js - the two workers of this page.  Each has the content security policy of its own file.
const FILES = { reader: "/page/reader.js", mcp: "/page/mcp.js" };

// Where the browser knows Trusted Types, a worker's address must come from here: no other is made.
const policy = globalThis.trustedTypes?.createPolicy("worker", { createScriptURL: (name) => FILES[name] });

// name: reader, or mcp.
export const worker = (name) => new Worker(policy ? policy.createScriptURL(name) : FILES[name]);
