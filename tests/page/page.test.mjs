// The page as a person uses it, in headless Chromium: chat, stop, edit, make again,
// thinking, tools, the engine's view; by keyboard, at phone width, light and dark.
// What the model says is judged by what the API says to the same request.
import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { chromium } from 'playwright-core';
import { PATIENCE, serve } from '../clients/server.mjs';

const QUESTION = 'What is the capital of France?';
const TOOLS = [{
	type: 'function', function: {
		name: 'get_weather', description: 'Current weather in a city.',
		parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
	},
}];

let server, browser, page, context;
const complaints = []; // of the console, of scripts, of the content security policy
let expected = null; // what the browser may note, when it does

async function open(options = {}, url = server.url) {
	context = await browser.newContext({ viewport: { width: 1100, height: 800 }, ...options });
	page = await context.newPage();
	page.setDefaultTimeout(PATIENCE);
	page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') complaints.push(m.text()); });
	page.on('pageerror', (e) => complaints.push(String(e)));
	await page.goto(url);
}

before(async () => {
	server = await serve();
	browser = await chromium.launch({
		executablePath: '/usr/bin/chromium', headless: true,
		args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
			'--disable-component-update', '--disable-sync'],
	});
});
after(async () => {
	await browser.close();
	await server.stop();
});
beforeEach(() => open());
afterEach(async () => {
	await context.close();
	const may = expected;
	expected = null;
	assert.deepEqual(complaints.splice(0).filter((c) => !may?.test(c)), []);
});

async function ask(text) {
	await page.fill('#text', text);
	await page.press('#text', 'Enter');
}

// The n-th answer, once it has ended.
async function answer(n = 0) {
	const box = page.locator('.message.assistant').nth(n);
	await box.locator('.stats').waitFor();
	return box;
}

async function picture(name) {
	if (process.env.WEFT_SCREENSHOTS)
		await page.screenshot({ path: join(process.env.WEFT_SCREENSHOTS, `${name}.png`) });
}

async function greedy(more = {}) {
	await page.evaluate(() => { document.getElementById('settings').open = true; });
	for (const [id, value] of Object.entries({ temperature: '0', ...more }))
		if (id === 'think') await page.selectOption('#think', value);
		else await page.fill(`#${id}`, value);
	await page.evaluate(() => { document.getElementById('settings').open = false; });
}

async function by_api(body) {
	const reply = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' },
		body: JSON.stringify({ temperature: 0, ...body }) });
	return (await reply.json()).choices[0].message;
}

// A way to the server on which an answer begins and never ends: only a client that
// leaves ends it.
async function faltering(to) {
	const ENOUGH = 4096; // bytes of a stream that hold some text
	const s = createServer((req, res) => {
		const up = request(to + req.url, { method: req.method, headers: req.headers }, (reply) => {
			let sent = 0;
			res.writeHead(reply.statusCode, reply.headers);
			if (!req.url.endsWith('/completions')) {
				reply.pipe(res);
				return;
			}
			reply.on('data', (chunk) => {
				res.write(chunk);
				if ((sent += chunk.length) > ENOUGH) reply.pause();
			});
		});
		up.on('error', () => res.destroy());
		res.on('close', () => up.destroy());
		req.pipe(up);
	});
	await new Promise((done) => s.listen(0, '127.0.0.1', done));
	return s;
}

const kept = (stats) => Number(/(\d+) of them kept/.exec(stats)[1]);

test('an answer, made again, edited', async () => {
	await greedy();
	await ask(QUESTION);
	const first = await answer();
	const said = await first.locator('.text').innerText();
	assert.equal(said, (await by_api({ messages: [{ role: 'user', content: QUESTION }] })).content);
	await first.getByRole('button', { name: 'Make again' }).click();
	const again = await answer();
	assert.equal(await again.locator('.text').innerText(), said);
	assert.ok(kept(await again.locator('.stats').innerText()) > 0);
	await ask('And of Italy?');
	await answer(1);
	await picture('chat');
	await page.locator('.message.user').nth(0).getByRole('button', { name: 'Edit' }).click();
	assert.equal(await page.locator('.message.user').nth(0).getByRole('button', { name: 'Edit' }).count(), 0);
	await page.getByLabel('Edited message').fill('What is the capital of Peru?');
	await page.getByRole('button', { name: 'Send', exact: true }).first().click();
	await page.waitForFunction(() => document.querySelectorAll('.message').length === 2 &&
		document.querySelector('.message.assistant .stats'));
	assert.equal(await (await answer()).locator('.text').innerText(),
		(await by_api({ messages: [{ role: 'user', content: 'What is the capital of Peru?' }] })).content);
	await page.getByRole('button', { name: 'New conversation' }).click();
	assert.equal(await page.locator('.message').count(), 0);
});

test('stopped by Escape', async () => {
	const slow = await faltering(server.url);
	try {
		await context.close(); // a page of its own: Chromium judges what a page left behind by the next one's policy
		await open({}, `http://127.0.0.1:${slow.address().port}`);
		await greedy({ max_tokens: '3000' });
		await page.route('**/v1/chat/completions', (route) => {
			const body = { ...route.request().postDataJSON(), ignore_eos: true };
			return route.continue({ postData: JSON.stringify(body) });
		});
		await ask('Repeat: one two three');
		await page.locator('.message.assistant .text').waitFor();
		await page.keyboard.press('Escape');
		assert.match(await (await answer()).locator('.stats').innerText(), /stopped/);
		await server.idle();
		assert.equal(await page.locator('#send').isEnabled(), true);
	} finally {
		await context.close();
		slow.closeAllConnections();
		slow.close();
	}
});

test('thinking is folded', async () => {
	await greedy({ think: 'true' });
	await ask('What is 3 + 4?');
	const box = await answer();
	const thought = box.locator('details');
	assert.equal(await thought.count(), 1);
	assert.equal(await thought.evaluate((d) => d.open), false);
	await thought.locator('summary').click();
	assert.notEqual((await thought.locator('.text').innerText()).trim(), '');
	await picture('thinking');
});

test('tools, there and back', async () => {
	await greedy({ tools: JSON.stringify(TOOLS) });
	await page.route('**/v1/chat/completions', (route) => {
		const body = route.request().postDataJSON();
		if (body.messages.length === 1) body.tool_choice = 'required';
		return route.continue({ postData: JSON.stringify(body) });
	});
	await ask('What is the weather in Paris?');
	const box = await answer();
	assert.match(await box.locator('.call').innerText(), /get_weather/);
	await box.getByLabel('Result of get_weather').fill('{"temperature": 18, "sky": "cloudy"}');
	await box.getByRole('button', { name: 'Send results' }).click();
	await answer(1);
	await picture('tools');
	await page.evaluate(() => { document.getElementById('settings').open = true; });
	await page.fill('#tools', 'no json');
	await page.evaluate(() => { document.getElementById('settings').open = false; });
	await ask('And in Rome?');
	await page.getByText('Tools are no JSON').waitFor();
});

test('what the server refuses is said', async () => {
	expected = /status of 400/;
	await greedy({ max_tokens: '5', top_p: '7' });
	await ask(QUESTION);
	await page.getByText(/top_p must be/).waitFor();
});

test('text of a model or a person is never HTML', async () => {
	await greedy({ max_tokens: '1' });
	await ask('<img src=x onerror="document.title=1"> `code` ```\nblock\n```');
	await answer();
	assert.equal(await page.locator('.message img').count(), 0);
	assert.equal(await page.title(), 'weft');
});

test('the engine, by keyboard', async () => {
	await greedy();
	await ask('What is the capital of Spain?');
	await answer();
	await page.focus('#tab-chat');
	await page.keyboard.press('ArrowRight');
	await page.locator('.tile').first().waitFor();
	assert.ok(await page.locator('.tile').count() >= 6);
	assert.ok(await page.locator('.bar meter').count() >= 3);
	const nodes = page.locator('#tree .node');
	await nodes.first().waitFor();
	const before = await nodes.count();
	// A state to go on from, made to stay and then given up.
	const held = page.locator('#tree .node:has(.state)').last();
	await held.focus();
	await page.keyboard.press('Enter');
	await page.getByRole('button', { name: 'Pin' }).click();
	await page.locator('.state.pinned').first().waitFor();
	await picture('engine');
	await page.locator('#tree .node:has(.state.pinned)').last().click();
	await page.getByRole('button', { name: 'Unpin' }).click();
	await page.waitForFunction(() => !document.querySelector('.state.pinned'));
	await page.getByRole('button', { name: 'Drop with all after it' }).click();
	await page.waitForFunction((n) => document.querySelectorAll('#tree .node').length < n, before);
	// A hit flashes.
	await by_api({ messages: [{ role: 'user', content: 'What is the capital of Chile?' }] });
	await page.waitForFunction((n) => document.querySelectorAll('#tree .node').length >= n, before - 1);
	const flashed = page.locator('#tree .node.hit').first().waitFor({ state: 'attached' });
	let seen = false;
	const told = flashed.finally(() => { seen = true; });
	while (!seen) await by_api({ messages: [{ role: 'user', content: 'What is the capital of Chile?' }] });
	await told;
});

test('at phone width, light and dark', async () => {
	const colours = [];
	for (const colorScheme of ['light', 'dark']) {
		await context.close();
		await open({ viewport: { width: 360, height: 640 }, colorScheme });
		await greedy();
		await ask(QUESTION);
		await answer();
		for (const tab of ['#tab-chat', '#tab-live']) {
			await page.click(tab);
			if (tab === '#tab-live') await page.locator('.tile').first().waitFor();
			const [inner, whole] = await page.evaluate(() => [innerWidth, document.documentElement.scrollWidth]);
			assert.ok(whole <= inner, `${tab} is ${whole} wide on ${inner}`);
			await picture(`phone-${colorScheme}-${tab.slice(5)}`);
		}
		colours.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
	}
	assert.notEqual(colours[0], colours[1]);
});

test('with an API key', async () => {
	const own = await serve('--api-key', 'sesame');
	expected = /status of 401/;
	try {
		await context.close();
		await open({}, own.url);
		await page.getByText('this server wants its API key').waitFor();
		await page.evaluate(() => { document.getElementById('settings').open = true; });
		await page.fill('#key', 'sesame');
		await page.press('#key', 'Tab');
		await page.getByText(/context [\d,]+ tokens/).waitFor();
		await ask(QUESTION);
		await answer();
	} finally {
		await context.close();
		await own.stop();
	}
});
