// Tools of MCP servers: a server of the test's own, in several moods; each call is the person's to allow.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { answer, ask, findings, model_says, now, open, picture, press, ready, said, says, set, watch } from './kit.mjs';

const TOOLS = [
	{ name: 'get.weather', description: 'Current weather. <img src=x onerror=globalThis.harmed=1>', inputSchema: { type: 'object', properties: { city: { type: 'string' } } } },
	{ name: 'delete_all', description: 'Deletes everything.', inputSchema: { type: 'object', properties: {} } },
];

// An MCP server: mood changes what it does; got has what it was sent: { method, params, headers }.
async function mcp(mood = {}) {
	const s = { got: [], mood, calls: [] };
	const session = 'session-1';
	const results = {
		initialize: () => ({ protocolVersion: mood.version ?? '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'test', version: '1' } }),
		'tools/list': ({ cursor }) => (mood.tools ? { tools: mood.tools } : cursor ? { tools: TOOLS.slice(1) } : { tools: TOOLS.slice(0, 1), nextCursor: 'more' }),
		'tools/call': (params) => {
			s.calls.push(params);
			return mood.result ?? { content: [{ type: 'text', text: `22 degrees in ${params.arguments.city}` }, { type: 'image', data: 'AA==', mimeType: 'image/png' }] };
		},
	};
	const server = createServer(async (req, res) => {
		if (mood.cors !== false) {
			res.setHeader('access-control-allow-origin', req.headers.origin ?? '*');
			res.setHeader('access-control-allow-headers', 'content-type, authorization, mcp-session-id, mcp-protocol-version');
			if (mood.expose !== false) res.setHeader('access-control-expose-headers', 'mcp-session-id');
		}
		if (req.method === 'OPTIONS') return res.writeHead(204).end();
		let text = '';
		for await (const part of req) text += part;
		const message = JSON.parse(text);
		s.got.push({ ...message, headers: req.headers });
		const refuse = (status) => res.writeHead(status, { 'content-type': 'application/json' }).end('{"error":{"message":"of the server"}}');
		if (mood.token && req.headers.authorization !== `Bearer ${mood.token}`) return refuse(401);
		if (message.method !== 'initialize' && req.headers['mcp-session-id'] !== session) return refuse(400);
		if (mood.forget && message.method === mood.forget) {
			delete mood.forget;
			return refuse(404);
		}
		if (message.id === undefined || !message.method) return res.writeHead(202).end();
		if (mood.hang === message.method) return; // as long as the test lasts
		if (message.method === 'initialize') res.setHeader('mcp-session-id', session);
		if (mood.html) return res.writeHead(200, { 'content-type': 'text/html' }).end('<html>');
		if (mood.bad) return res.writeHead(200, { 'content-type': 'application/json' }).end('{"jsonrpc');
		const reply = JSON.stringify({ jsonrpc: '2.0', id: message.id, ...(mood.error ? { error: { code: -32000, message: mood.error } } : { result: results[message.method](message.params) }) });
		if (message.method === 'tools/list') return res.writeHead(200, { 'content-type': 'application/json' }).end(reply);
		// A stream: something else first, and it stays open.
		res.writeHead(200, { 'content-type': 'text/event-stream' });
		res.write(`event: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\r\n\r\ndata: {"jsonrpc":"2.0","id":"s1","method":"ping"}\r\n\r\n`);
		res.write(`data: ${reply}\r\n\r\n`);
	});
	await new Promise((done) => server.listen(0, '127.0.0.1', done));
	s.host = `127.0.0.1:${server.address().port}`;
	s.url = `http://${s.host}/mcp`;
	s.methods = () => s.got.map((m) => m.method).filter((m) => m);
	s.close = () => {
		server.closeAllConnections();
		server.close();
	};
	return s;
}

// With a server of that mood; what is done ends with it.
const with_mcp = (name, fn, mood = {}) => test(name, async () => {
	const s = await mcp({ ...mood });
	try {
		await fn(s);
	} finally {
		await now.context.close();
		s.close();
	}
});

const row = () => now.page.locator('#servers > li');
async function add(s, on = true) {
	const { page } = now;
	await page.click('#settings-open');
	await page.fill('#server-url', s.url);
	await page.press('#server-url', 'Enter');
	await row().getByText('2 tools').waitFor();
	if (on) {
		await row().locator('.server input').check();
		await row().getByText('2 tools').waitFor();
	}
	await page.click('#settings-close');
}
const calls = (...list) => () => ({ calls: list.map(([name, given]) => ({ name, arguments: typeof given === 'string' ? given : JSON.stringify(given) })), finish: 'tool_calls' });
const allow = (name) => now.page.getByRole('button', { name: `Allow: ${name}` });
const refuse = (name) => now.page.getByRole('button', { name: `Refuse: ${name}` });

with_mcp('tools of a server: off at first, offered when on, each call allowed', async (s) => {
	const { page } = now;
	const left = watch();
	await add(s, false);
	const sent = await model_says(says('no tools'), calls(['get_weather', { city: 'Rome' }]), says('It is warm.'));
	await ask('first');
	await answer();
	assert.equal(sent[0].tools, undefined);
	assert.equal(await page.locator('#in-force').isVisible(), false);
	await page.click('#settings-open');
	await row().locator('.server input').check();
	await row().locator('summary').click();
	await picture('tools-settings');
	await row().getByRole('checkbox', { name: 'delete_all' }).uncheck();
	await page.click('#settings-close');
	assert.equal(await page.locator('#in-force').innerText(), `tools of ${s.host}`);
	await ask('How warm is it in Rome?');
	await allow('get_weather').waitFor();
	assert.deepEqual(sent[1].tools, [{ type: 'function', function: { name: 'get_weather', description: TOOLS[0].description, parameters: TOOLS[0].inputSchema } }]);
	// Nothing is called before the person allows it.
	assert.ok(!s.methods().includes('tools/call'));
	await picture('tools-ask');
	await page.setViewportSize({ width: 390, height: 700 });
	await picture('tools-ask-phone');
	await allow('get_weather').focus();
	await page.keyboard.press('Enter');
	assert.equal(await said(await answer(2)), 'It is warm.');
	assert.deepEqual(s.calls, [{ name: 'get.weather', arguments: { city: 'Rome' } }]);
	const result = '22 degrees in Rome\n[image image/png, left out]';
	assert.deepEqual(sent[2].messages.slice(-2).map((m) => [m.role, m.content, m.tool_call_id ?? m.tool_calls[0].function.name]),
		[['assistant', '', 'get_weather'], ['tool', result, 'id0']]);
	assert.deepEqual(Object.keys(sent[2].messages.at(-2).tool_calls[0]).sort(), ['function', 'id', 'index', 'type'].filter((k) => k !== 'index'));
	await picture('tools-done-phone');
	// As the protocol wants it.
	assert.deepEqual(s.methods().slice(0, 4), ['initialize', 'notifications/initialized', 'tools/list', 'tools/list']);
	assert.equal(s.got[0].params.protocolVersion, '2025-06-18');
	assert.ok(s.got.slice(1).every((m) => m.headers['mcp-session-id'] === 'session-1' && m.headers['mcp-protocol-version'] === '2025-06-18'));
	assert.match(s.got[0].headers.accept, /application\/json, text\/event-stream/);
	assert.ok(s.got.some((m) => m.id === 's1' && m.result), 'a ping is answered');
	assert.equal(await page.evaluate(() => globalThis.harmed), undefined);
	// The page itself goes to its own server alone.
	now.expected = /Content Security Policy|connect-src/;
	assert.equal(await page.evaluate((url) => fetch(url).then(() => 'went', () => 'held'), s.url), 'held');
	assert.deepEqual(left.filter((u) => !u.startsWith(s.url)), []);
});

with_mcp('refused, failed, and several calls at once', async (s) => {
	const { page } = now;
	await add(s);
	const sent = await model_says(calls(['get_weather', { city: 'Rome' }], ['delete_all', {}]), says('one of two'),
		calls(['get_weather', '{"city"']), says('no object'), calls(['get_weather', { city: 'Oslo' }]), says('failed'), calls(['own', {}], ['get_weather', { city: 'Bern' }]), says('mixed'));
	await ask('both');
	await refuse('delete_all').click();
	assert.equal(sent.length, 1);
	await allow('get_weather').click();
	await answer(1);
	assert.deepEqual(s.calls.map((c) => c.name), ['get.weather']);
	assert.deepEqual(sent[1].messages.slice(-2).map((m) => m.content), ['22 degrees in Rome\n[image image/png, left out]', 'The user refused this call.']);
	// Arguments that are not an object are not sent.
	await ask('broken');
	await page.getByText('not a JSON object').waitFor();
	assert.equal(await allow('get_weather').count(), 0);
	await refuse('get_weather').click();
	await answer(3);
	assert.equal(sent[3].messages.at(-1).content, 'The arguments are not a JSON object.');
	// What the tool says of its failure goes to the model; hostile text stays text.
	s.mood.result = { content: [{ type: 'text', text: '<img src=x onerror=globalThis.harmed=1>' }], isError: true };
	await ask('fails');
	await allow('get_weather').click();
	await answer(5);
	assert.match(await page.locator('.message.tool').last().innerText(), /<img src=x/);
	assert.equal(await page.locator('.message.tool img').count(), 0);
	assert.match(sent[5].messages.at(-1).content, /<img/);
	// A tool of the person's own among them is played, and sent by hand.
	await set({ tools: JSON.stringify([{ type: 'function', function: { name: 'own', parameters: { type: 'object' } } }]) });
	await ask('mixed');
	await allow('get_weather').click();
	await page.getByText('The tool says that it failed').waitFor();
	await page.getByLabel('Result of own').fill('played');
	await picture('tools-mixed');
	await press(page.locator('.results'), 'Send results');
	await answer(7);
	assert.deepEqual(sent[7].tools.map((t) => t.function.name), ['own', 'get_weather', 'delete_all']);
	assert.equal(sent[7].messages.at(-2).content, 'played');
	assert.equal(await page.evaluate(() => globalThis.harmed), undefined);
});

with_mcp('a call that gets no answer is told, and can be tried again', async (s) => {
	const { page } = now;
	now.expected = /ERR_|status of 4|CORS/;
	await page.clock.install();
	await add(s);
	const sent = await model_says(calls(['get_weather', { city: 'Rome\u202e\u200b\u3164\u{e0041}' }]), says('done'));
	s.mood.hang = 'tools/call';
	await ask('x');
	// What could hide in the arguments is seen.
	assert.match(await page.locator('.results pre').innerText(), /"Rome\\u202e\\u200b\\u3164\\udb40\\udc41"/);
	await allow('get_weather').click();
	await page.getByText(`waiting for ${s.host}`).waitFor();
	await picture('tools-waiting');
	// It goes on while something else is shown.
	await page.click('#new');
	await page.locator('#list .open', { hasText: 'x' }).click();
	await page.getByRole('button', { name: 'Do not wait for get_weather' }).click();
	await allow('get_weather').click();
	await page.getByText(`waiting for ${s.host}`).waitFor();
	await page.clock.fastForward(121000);
	await page.getByText(`${s.host} did not answer within 120 s`).waitFor();
	await picture('tools-late');
	s.mood.hang = null;
	for (const [mood, words] of [[{ error: 'no such tool' }, /refuses tools\/call: no such tool/], [{ bad: true }, /what is not JSON/], [{ html: true }, /text\/html, not with JSON/]]) {
		Object.assign(s.mood, mood);
		await page.getByRole('button', { name: 'Try again: get_weather' }).click();
		await page.getByText(words).waitFor();
		for (const name of Object.keys(mood)) delete s.mood[name];
	}
	// A session that the server has forgotten is begun again.
	s.mood.forget = 'tools/call';
	await page.getByRole('button', { name: 'Try again: get_weather' }).click();
	await answer(1);
	assert.equal(s.methods().filter((m) => m === 'initialize').length, 2);
	assert.match(sent[1].messages.at(-1).content, /22 degrees/);
	assert.ok(s.methods().includes('notifications/cancelled'));
});

with_mcp('of odd tools what can be offered is', async (s) => {
	const { page } = now;
	s.mood.tools = [null, 'x', { name: '' }, { name: 7 }, { name: 'a b', inputSchema: 'x' }, { name: 'a.b', description: 5, inputSchema: [] }, { name: '__proto__' }];
	await page.click('#settings-open');
	await page.fill('#server-url', s.url);
	await page.press('#server-url', 'Enter');
	await row().getByText('3 tools').waitFor();
	await row().locator('.server input').check();
	await row().getByText('3 tools').waitFor();
	await page.click('#settings-close');
	s.mood.result = { content: [null, 7, { type: 'odd' }, { type: 'resource', resource: { text: 'of a file' } }, { type: 'text', text: 1 }] };
	const sent = await model_says(calls(['__proto__', {}], ['a_b_2', {}]), says('done'));
	await ask('x');
	for (const name of ['__proto__', 'a_b_2']) await allow(name).click();
	await answer(1);
	const none = { type: 'object', properties: {} };
	assert.deepEqual(sent[0].tools.map((t) => t.function), ['a_b', 'a_b_2', '__proto__'].map((name) => ({ name, description: '', parameters: none })));
	assert.deepEqual(s.calls.map((c) => c.name), ['__proto__', 'a.b']);
	assert.match(sent[1].messages.at(-1).content, /odd .*left out\]\nof a file/);
});

with_mcp('rounds of calls have an end', async (s) => {
	await add(s);
	await model_says(calls(['get_weather', { city: 'Rome' }]));
	await ask('for ever');
	for (let i = 0; i < 20; i++) {
		await allow('get_weather').click();
		await now.page.locator('.message.tool').nth(i).waitFor();
	}
	await now.page.getByText('more than 20 rounds of calls').waitFor();
	assert.equal(await allow('get_weather').count(), 0);
	assert.equal(await refuse('get_weather').count(), 1);
	assert.equal(s.calls.length, 20);
	await picture('tools-rounds');
});

test('what is wrong with a server is told, with what to do', async () => {
	const { page } = now;
	now.expected = /ERR_|status of 4|CORS|blocked/;
	await page.click('#settings-open');
	for (const [url, words] of [['x', /not a URL/], ['ftp://x/', /http:\/\/ or https/], ['http://a:b@x/', /no user name/]]) {
		await page.fill('#server-url', url);
		await page.click('#server-add');
		assert.match(await page.locator('#server-problem').innerText(), words);
	}
	const servers = [];
	try {
		for (const [mood, words] of [[{ cors: false }, /must allow the page's origin \(CORS\), http:\/\/127/], [{ expose: false }, /read its header mcp-session-id/], [{ html: true }, /text\/html/],
			[{ version: '1999-01-01' }, /speaks version 1999-01-01/], [{ token: 'sesame' }, /wants a token/]]) {
			const s = await mcp(mood);
			servers.push(s);
			await page.fill('#server-url', s.url);
			await page.click('#server-add');
			await row().last().getByText(words).waitFor();
		}
		await page.locator('#mcp').scrollIntoViewIfNeeded();
		await picture('tools-problems');
		await page.setViewportSize({ width: 390, height: 700 });
		await picture('tools-problems-phone');
		await page.setViewportSize({ width: 1200, height: 800 });
		// One that is on and does not tell its tools: the answer says so, and is not asked for without them.
		const sent = await model_says(says('ok'));
		await row().first().locator('.server input').check();
		await row().first().getByText('must allow').waitFor();
		await page.click('#settings-close');
		await ask('x');
		await page.locator('.message.failed').getByText('must allow').waitFor();
		assert.equal(sent.length, 0);
		servers[0].mood.cors = true;
		await press(page.locator('.message.failed'), 'Try again');
		await answer();
		assert.equal(sent[0].tools.length, 2);
		// A token, kept as long as the window.
		await page.click('#settings-open');
		await row().last().getByLabel('Token').fill('sesame');
		await page.keyboard.press('Tab');
		await row().last().getByText('2 tools').waitFor();
		assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('sesame')), false);
		// Removed, and brought back.
		await page.getByRole('button', { name: `Remove ${servers[1].url}` }).click();
		assert.equal(await row().count(), 4);
		await page.keyboard.press('Enter');
		assert.equal(await row().count(), 5);
		// What is kept: the list, and which is on.
		await page.reload();
		await ready();
		assert.deepEqual(await page.evaluate(() => JSON.parse(localStorage['weft.mcp']).map((s) => [s.on, s.off])), [[true, []], ...Array(4).fill([false, []])]);
		assert.equal(await row().count(), 5);
	} finally {
		await now.context.close();
		for (const s of servers) s.close();
	}
});

with_mcp('axe finds nothing about tools', async (s) => {
	for (const [colorScheme, width] of [['light', 1200], ['dark', 390]]) {
		await now.context.close();
		await open({ viewport: { width, height: 700 }, colorScheme, bypassCSP: true });
		const { page } = now;
		await add(s);
		await page.click('#settings-open');
		await row().locator('summary').click();
		await page.locator('#mcp').scrollIntoViewIfNeeded();
		assert.deepEqual(await findings(), []);
		await picture(`tools-settings-${colorScheme}`);
		await page.click('#settings-close');
		await model_says(calls(['get_weather', { city: 'Rome' }], ['delete_all', '{']));
		await ask('x');
		await allow('get_weather').waitFor();
		assert.deepEqual(await findings(), []);
		await picture(`tools-ask-${colorScheme}`);
	}
});
