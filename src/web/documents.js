// documents.js - the text of a PDF, for a message.
import { bytes } from "./element.js";
import { has } from "./libraries.js";
import { worker } from "./workers.js";

const BYTES_MOST = 50 << 20, PAGES_MOST = 1000, CHARACTERS_MOST = 1000000;
const PAGE_MS = 30000; // for one page, or for the beginning: beyond it something is wrong with the document

const FAILED = {
  PasswordException: "is locked with a password: save a copy without one, and attach that",
  late: "takes too long to read: print it into a new PDF, and attach that",
};
const DAMAGED = "is damaged, or is not a PDF: open it in a viewer, print it into a new PDF, and attach that";
const NO_TEXT = "has no text, only pictures of it, as a scan has: have its text recognised (OCR), or attach pictures of its pages " +
  "to a model that sees";

export const is_document = (file) => file.type === "application/pdf" || /\.pdf$/i.test(file.name);

// Told { page, of } before each page; the last message of the worker.  Throws an AbortError where signal says so.
function read(data, told, signal) {
  const reader = worker("reader");
  return new Promise((done, failed) => {
    let timer;
    const late = () => {
      clearTimeout(timer);
      timer = setTimeout(() => done({ failed: "late" }), PAGE_MS);
    };
    late();
    signal.addEventListener("abort", () => failed(signal.reason));
    reader.onerror = (e) => {
      e.preventDefault();
      done({ failed: "worker" });
    };
    reader.onmessage = (e) => {
      late();
      if (e.data.page) told(e.data);
      else {
        clearTimeout(timer);
        done(e.data);
      }
    };
    reader.postMessage({ bytes: data, pages: PAGES_MOST, characters: CHARACTERS_MOST }, [data.buffer]);
  }).finally(() => reader.terminate());
}

// What was left out, in a sentence each, for the person and the model.
function notes({ text, of, read: pages, blank, maps }) {
  const out = [];
  if (pages < of) out.push(`This is the text of the first ${pages} of ${of} pages.`);
  else if (text.length === CHARACTERS_MOST) out.push(`This is the text up to ${CHARACTERS_MOST.toLocaleString("en")} characters.`);
  if (blank) out.push(`${blank} of its pages ${blank > 1 ? "have" : "has"} no text.`);
  if (maps) out.push("Letters of some fonts could not be read.");
  return out;
}

// The text of a PDF; throws what is wrong with it, and what the person can do.
export async function text_of(file, told, signal) {
  if (!has("pdf.js") || !has("pdf.worker.js")) throw new Error("is a PDF, which this build of weft does not read: attach its text");
  if (file.size > BYTES_MOST) throw new Error(`has ${bytes(file.size)}, at most ${bytes(BYTES_MOST)}: attach a part of it`);
  const found = await read(new Uint8Array(await file.arrayBuffer()), told, signal);
  if (found.failed) throw new Error(FAILED[found.failed] ?? DAMAGED);
  if (!found.text && found.maps) throw new Error("has letters of fonts that this page cannot read: attach its text");
  if (!found.text) throw new Error(NO_TEXT);
  const told_of = notes(found);
  return told_of.length ? `${found.text}\n\n[${told_of.join(" ")}]` : found.text;
}
