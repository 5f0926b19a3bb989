// reader.js - a worker that takes the text out of one PDF.  The document is a stranger's: what it does to the library that
// reads it, it does in here, where nothing can be reached and which documents.js ends when it takes too long.
//
// It is given { bytes, pages, characters }: the document, and how much of it is read at most.  It tells { page, of } before each
// page, and at last { text, of, read, blank, maps } (of: pages of the document; read: how many of them were read; blank: how many
// of these have no text; maps: how many tables of letters were missing), or { failed }: the name of the error.

// The library's second half would take this worker's messages for its own, if it saw where they go.
const post = self.postMessage.bind(self);
self.postMessage = null;
importScripts("/page/pdf.js", "/page/pdf.worker.js");

const NOT_TEXT = /[^\P{Cc}\n\t]|\p{Cs}/gu; // control characters, and halves of pairs

// Tables of the letters of East Asian fonts are 1.3 MB, and are not carried.  A document that brings its own needs none.
const missing = new Set();
class NoTables {
  fetch({ name }) {
    missing.add(name);
    return Promise.reject(new Error("not carried"));
  }
}

async function text_of(page) {
  const { items } = await page.getTextContent();
  page.cleanup();
  return items.map((item) => item.str + (item.hasEOL ? "\n" : "")).join("").replace(NOT_TEXT, "").trim();
}

async function read({ bytes, pages, characters }) {
  const document = await self.pdfjsLib.getDocument({ data: bytes, verbosity: 0, isEvalSupported: false, disableFontFace: true,
    useSystemFonts: false, CMapReaderFactory: NoTables }).promise;
  const of = document.numPages, texts = [];
  let length = 0, blank = 0;
  while (texts.length < Math.min(of, pages) && length < characters) {
    post({ page: texts.length + 1, of });
    texts.push(await text_of(await document.getPage(texts.length + 1)));
    length += texts.at(-1).length;
    blank += !texts.at(-1);
  }
  return { text: texts.filter((t) => t).join("\n\n").slice(0, characters).replace(/[\uD800-\uDBFF]$/, ""), of, read: texts.length, blank, maps: missing.size };
}

self.onmessage = ({ data }) => read(data).then(post, (e) => post({ failed: e.name }));
