// What the page's tests share: one server, one browser, a window for each test, and ways to use the page as a person does.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach } from 'node:test';
import { chromium } from 'playwright-core';
import { PATIENCE, serve } from '../clients/server.mjs';

export const QUESTION = 'What is the capital of France?';
export const now = { server: null, browser: null, context: null, page: null, expected: null };
const complaints = []; // of the console, of scripts, of the content security policy

export async function open(options = {}, url = now.server.url) {
	now.context = await now.browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
	now.page = await another(url);
	return now.page;
}

// A further window of the same person.
export async function another(url = now.server.url) {
	const page = await now.context.newPage();
	page.setDefaultTimeout(PATIENCE);
	await page.addInitScript(`globalThis.judged = ${judged};`);
	page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') complaints.push(m.text()); });
	page.on('pageerror', (e) => complaints.push(String(e)));
	await page.goto(url);
	await ready(page);
	return page;
}

// The list has been read from the database, so everything else has been set up.
export const ready = (page = now.page) => page.waitForFunction(() => document.querySelector('#list li') ||
	document.getElementById('list-note').textContent);

// Hooks of every file of tests; they run in one process.
before(async () => {
	now.server = await serve();
	now.browser = await chromium.launch({
		executablePath: '/usr/bin/chromium', headless: true,
		args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
			'--disable-component-update', '--disable-sync',
			'--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream'], // a microphone that beeps
	});
});
after(async () => {
	await now.browser.close();
	await now.server.stop();
});
beforeEach(() => open());
afterEach(async () => {
	await now.context.close();
	const may = now.expected;
	now.expected = null;
	assert.deepEqual(complaints.splice(0).filter((c) => !may?.test(c)), []);
});

export async function ask(text) {
	await now.page.fill('#text', text);
	await now.page.press('#text', 'Enter');
}

// The n-th answer that is shown, once it has ended.
export async function answer(n = 0) {
	const box = now.page.locator('.message.assistant').nth(n);
	await box.locator('> .acts').waitFor();
	return box;
}

export const said = (box) => box.locator('> .text').innerText();
export const press = (box, name) => box.getByRole('button', { name, exact: true }).click();

export async function picture(name) {
	if (process.env.WEFT_SCREENSHOTS)
		await now.page.screenshot({ path: join(process.env.WEFT_SCREENSHOTS, `${name}.png`) });
}

// Fills in settings as a person would.
export async function set(fields) {
	await now.page.click('#settings-open');
	for (const [id, value] of Object.entries(fields)) {
		if (id === 'think' || id === 'preset') await now.page.selectOption(`#${id}`, value);
		else await now.page.fill(`#${id}`, value);
	}
	await now.page.click('#settings-close');
}
export const greedy = (more = {}) => set({ temperature: '0', ...more });

export async function by_api(body) {
	const reply = await fetch(`${now.server.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' },
		body: JSON.stringify({ temperature: 0, ...body }) });
	return (await reply.json()).choices[0].message;
}

const event = (delta, finish = null) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;

// From here on the model says what these functions of a request's body give: { content, thought, calls, finish }, or a status.
// Returns the bodies that were sent.
export async function model_says(...answers) {
	const sent = [];
	await now.page.route('**/v1/chat/completions', (route) => {
		const body = route.request().postDataJSON();
		const said = answers[Math.min(sent.length, answers.length - 1)](body);
		sent.push(body);
		if (said === null) return route.abort('connectionrefused');
		if (said.status) return route.fulfill({ status: said.status, json: { error: { message: said.message } } });
		return route.fulfill({ status: 200, contentType: 'text/event-stream',
			body: (said.calls ? event({ tool_calls: said.calls.map((f, index) => ({ index, id: `id${index}`, type: 'function', function: f })) }) : '') +
				(said.thought ? event({ reasoning_content: said.thought }) : '') +
				(said.content ? event({ content: said.content }) : '') +
				(said.lost ? '' : event({}, said.finish ?? 'stop') + 'data: [DONE]\n\n') });
	});
	return sent;
}
export const says = (content, more = {}) => () => ({ content, ...more });

// What is wrong with the elements that were made of a text of others, after the mouse went over each: '' or the first thing.
// Runs in the page, as judged(place).
function judged(text) {
	const allowed = /^(A|B|BLOCKQUOTE|BR|CODE|DEL|DIV|EM|H\d|HR|I|INS|KBD|LI|MARK|OL|P|PRE|S|SMALL|SPAN|STRONG|SUB|SUP|TABLE|TBODY|TD|TH|THEAD|TR|U|UL|BUTTON)$/;
	for (const a of text.querySelectorAll('a'))
		if (!/^https?:|^mailto:/.test(a.getAttribute('href') ?? 'https:')) return 'a link to ' + a.getAttribute('href');
	for (const e of text.querySelectorAll('*')) {
		if (e.namespaceURI === 'http://www.w3.org/1998/Math/MathML') {
			if (!e.closest('.math')) return 'MathML of its own';
		} else if (e.namespaceURI === 'http://www.w3.org/2000/svg') {
			if (!e.closest('.code-head > button.copy > svg.icon')) return 'an SVG of its own';
		} else if (e.namespaceURI !== 'http://www.w3.org/1999/xhtml' || !allowed.test(e.tagName)) return 'an element ' + e.tagName;
		if (e.tagName === 'BUTTON' && !e.classList.contains('copy')) return 'a button of its own';
		for (const a of e.attributes)
			if (/^on|^style$|^id$|^name$|^srcdoc$|^xlink/.test(a.name)) return `${e.tagName} with ${a.name}`;
		if (e.classList.contains('message') || e.classList.contains('problem')) return 'a class of the page';
		e.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
		if (e.tagName !== 'A' && e.tagName !== 'BUTTON') e.click?.();
	}
	return globalThis.harmed ? 'code ran: ' + globalThis.harmed : '';
}

// Whatever leaves this page from now on for another origin, opens a window or asks the person something.
export function watch(page = now.page) {
	const left = [];
	page.on('request', (r) => { if (!/^blob:/.test(r.url()) && !r.url().startsWith(now.server.url)) left.push(r.url()); });
	page.on('popup', (p) => left.push('a window of ' + p.url()));
	page.on('dialog', (d) => {
		left.push('a dialog: ' + d.message());
		d.dismiss();
	});
	return left;
}

// What axe finds on the page as it is: [rule, element] each.
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
export async function findings() {
	const { page } = now;
	if (!await page.evaluate(() => globalThis.axe)) await page.evaluate(AXE);
	return page.evaluate(async () => (await globalThis.axe.run()).violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 120)}`)));
}

// Files as a drop or a paste brings them: [name, type, bytes].
export const bring = (how, files, text = '') => now.page.evaluate(([h, list, t]) => {
	const data = new DataTransfer();
	for (const [name, type, bytes] of list) data.items.add(new File([new Uint8Array(bytes)], name, { type }));
	if (t) data.setData('text/plain', t);
	const [target, event] = h === 'drop' ? [document.getElementById('log'), new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })]
		: [document.getElementById('text'), new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })];
	target.dispatchEvent(event);
}, [how, files, text]);
