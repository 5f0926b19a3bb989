// Asking and answers: stop, edit, regenerate, branches, continue, thinking, tools, failures.  What the model says is judged
// by what the API says to the same request.
import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import { test } from 'node:test';
import { serve } from '../clients/server.mjs';
import { answer, ask, by_api, greedy, model_says, now, open, picture, press, QUESTION, ready, said, says, set } from './kit.mjs';

const TOOLS = [{
	type: 'function', function: {
		name: 'get_weather', description: 'Current weather in a city.',
		parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
	},
}];

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

const kept = (stats) => Number(/(\d+) cached/.exec(stats)[1]);
const user = (n) => now.page.locator('.message.user').nth(n);

test('an answer, made again, edited, and the ways back', async () => {
	const { page } = now;
	await greedy();
	await ask(QUESTION);
	const first = await answer();
	const capital = await said(first);
	assert.equal(capital, (await by_api({ messages: [{ role: 'user', content: QUESTION }] })).content);
	await press(first, 'Regenerate');
	await first.getByText('2 of 2').waitFor();
	assert.equal(await said(await answer()), capital);
	assert.ok(kept(await first.locator('.stats').innerText()) > 0);
	await ask('And of Italy?');
	await answer(1);
	await picture('chat');
	await press(user(0), 'Edit');
	await page.getByLabel('Edited message').fill('What is the capital of Peru?');
	await press(user(0), 'Send');
	await user(0).getByText('2 of 2').waitFor();
	assert.equal(await said(await answer()), (await by_api({ messages: [{ role: 'user', content: 'What is the capital of Peru?' }] })).content);
	assert.equal(await page.locator('.message').count(), 2);
	await picture('branches');
	// Back to the first question: all that came after it is there again, its two answers too.
	await user(0).getByLabel('Earlier version').click();
	assert.equal(await page.locator('.message').count(), 4);
	assert.match(await page.locator('.message.user').nth(1).innerText(), /Italy/);
	await page.locator('.message.assistant').first().getByLabel('Earlier version').click();
	assert.equal(await page.locator('.message').count(), 2);
	assert.match(await page.locator('.message.assistant').first().innerText(), /1 of 2/);
	await page.getByRole('button', { name: 'New conversation' }).first().click();
	assert.equal(await page.locator('.message').count(), 0);
});

test('stopped by Escape; an edit meanwhile stays in its editor', async () => {
	const slow = await faltering(now.server.url);
	try {
		await now.context.close(); // a window of its own: Chromium judges what a page left behind by the next one's policy
		await open({}, `http://127.0.0.1:${slow.address().port}`);
		const { page } = now;
		await greedy({ max_tokens: '3000' });
		await page.route('**/v1/chat/completions', (route) => {
			const body = { ...route.request().postDataJSON(), ignore_eos: true };
			return route.continue({ postData: JSON.stringify(body) });
		});
		await ask('Repeat: one two three');
		await page.waitForFunction(() => document.querySelector('.message.assistant > .text')?.textContent);
		assert.equal(await user(0).getByRole('button', { name: 'Edit' }).isDisabled(), true);
		assert.equal(await page.locator('#send').isEnabled(), false);
		// How far it is, while it comes; and how far it came.
		await page.waitForFunction(() => /^\d+ tokens/.test(document.querySelector('.message.assistant .stats')?.textContent));
		await picture('streaming');
		await page.keyboard.press('Escape');
		assert.match(await (await answer()).locator('.stats').innerText(), /^prompt \d+ tokens, .* \d+ tokens.*stopped$/);
		await now.server.idle();
		assert.equal(await page.locator('#send').isEnabled(), true);
	} finally {
		await now.context.close();
		slow.closeAllConnections();
		slow.close();
	}
});

test('what a page that is left had of an answer is kept', async () => {
	const slow = await faltering(now.server.url);
	try {
		await now.context.close();
		await open({}, `http://127.0.0.1:${slow.address().port}`);
		const { page } = now;
		await greedy({ max_tokens: '3000' });
		await page.route('**/v1/chat/completions', (route) => {
			const body = { ...route.request().postDataJSON(), ignore_eos: true };
			return route.continue({ postData: JSON.stringify(body) });
		});
		await ask('Repeat: one two three');
		await page.waitForFunction(() => document.querySelector('.message.assistant > .text')?.textContent);
		await page.reload();
		await ready();
		const box = await answer();
		assert.match(await box.locator('.stats').innerText(), /interrupted/);
		assert.notEqual(await said(box), '');
	} finally {
		await now.context.close();
		slow.closeAllConnections();
		slow.close();
	}
});

test('thinking is open while it streams, and then folded', async () => {
	const { page } = now;
	// The test holds the stream's other end: a server may send a short thought and the answer to it in one event.
	await page.evaluate(() => {
		const real = globalThis.fetch;
		globalThis.fetch = (url, how) => {
			if (!String(url).endsWith('/v1/chat/completions')) return real(url, how);
			const body = new ReadableStream({ start: (end) => { globalThis.stream = end; } });
			return Promise.resolve(new Response(body, { headers: { 'content-type': 'text/event-stream' } }));
		};
	});
	const send = (delta, finish_reason = null) => page.evaluate((event) => globalThis.stream.enqueue(new TextEncoder().encode(event)),
		`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
	await ask('What is 3 + 4?');
	await page.waitForFunction(() => globalThis.stream);
	await send({ reasoning_content: 'Three and four' });
	await page.locator('details.thought[open]:not([hidden])').waitFor();
	await send({ content: 'Seven' });
	await page.locator('details.thought:not([open])').waitFor();
	const lasted = () => page.locator('details.thought summary').innerText();
	assert.match(await lasted(), /^Thought for \d+\.\d s$/);
	await send({}, 'stop');
	await page.evaluate(() => globalThis.stream.close());
	assert.equal(await said(await answer()), 'Seven');
	const before = await lasted();
	await page.reload();
	await ready();
	await answer();
	assert.equal(await lasted(), before);
});

test('a thought of the model can be read', async () => {
	await greedy({ think: 'true' });
	await ask('What is 3 + 4?');
	const thought = (await answer()).locator('details.thought');
	assert.equal(await thought.count(), 1);
	assert.equal(await thought.evaluate((d) => d.open), false);
	await thought.locator('summary').click();
	assert.notEqual((await thought.locator('.text').innerText()).trim(), '');
	await picture('thinking');
});

test('tools, there and back', async () => {
	const { page } = now;
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
	await press(box, 'Send results');
	await answer(1);
	assert.match(await page.locator('.message.tool').innerText(), /cloudy/);
	await picture('tools');
	// What cannot be sent is told at once, and is not taken.
	for (const [field, wrong, why] of [['tools', 'no json', /are not JSON/], ['tools', '{}', /not a JSON array/], ['temperature', '500', /100/]]) {
		const before = await page.inputValue(`#${field}`);
		await set({ [field]: wrong });
		assert.equal(await page.locator('#settings').isVisible(), true);
		assert.match(await page.locator(`#${field}`).evaluate((e) => e.validationMessage), why);
		await picture(`settings-wrong-${field}`);
		await page.keyboard.press('Escape');
		// The dialog's close event comes after the key.
		await page.waitForFunction(([id, value]) => document.getElementById(id).value === value, [field, before]);
	}
});

test('a failed answer is no turn', async () => {
	const { page } = now;
	now.expected = /status of 400|ERR_CONNECTION_REFUSED/;
	const sent = await model_says(() => null, () => ({ status: 400, message: 'the prompt is too long' }), says('Lima.'), says('Rome.'));
	await ask('And of Japan?');
	await page.getByText('does not answer').waitFor();
	await picture('failed');
	assert.equal(await page.locator('.message.assistant').count(), 0);
	await press(page.locator('.message.failed'), 'Try again');
	await page.getByText('the prompt is too long').waitFor();
	// A new message takes the place of the one that was never answered.
	await ask('And of Peru?');
	assert.equal(await said(await answer()), 'Lima.');
	assert.deepEqual(sent.at(-1).messages, [{ role: 'user', content: 'And of Peru?' }]);
	await user(0).getByText('2 of 2').waitFor();
	await ask('And of Italy?');
	await answer(1);
	assert.deepEqual(sent.at(-1).messages.map((m) => m.content), ['And of Peru?', 'Lima.', 'And of Italy?']);
});

test('an answer that is cut goes on', async () => {
	await greedy({ max_tokens: '3' });
	await ask(QUESTION);
	const box = await answer();
	assert.match(await box.locator('.stats').innerText(), /cut at max tokens/);
	await greedy({ max_tokens: '' });
	await press(box, 'Continue');
	await now.page.waitForFunction(() => !/cut/.test(document.querySelector('.message.assistant .stats')?.textContent ?? 'cut'));
	assert.equal(await said(await answer()), (await by_api({ messages: [{ role: 'user', content: QUESTION }] })).content);
	assert.equal(await now.page.locator('.message').count(), 2);
});

test('an answer that breaks off is kept, and says so', async () => {
	const sent = await model_says(says('The capital', { lost: true }), says(' is Paris.'));
	await ask(QUESTION);
	const box = await answer();
	assert.match(await box.locator('.stats').innerText(), /interrupted/);
	await now.page.getByText('the connection to the server was lost').waitFor();
	await press(box, 'Continue');
	await now.page.getByText('The capital is Paris.').waitFor();
	assert.equal(sent[1].continue_final_message, true);
	assert.deepEqual(sent[1].messages.at(-1), { role: 'assistant', content: 'The capital' });
});

test('what the server refuses is said', async () => {
	now.expected = /status of 400/;
	await greedy({ tools: '[5]' });
	await ask(QUESTION);
	await now.page.getByText(/tools\[0\]\.type must be/).waitFor();
});

test('what a proxy answers in place of the server is a sentence', async () => {
	now.expected = /status of 50[0234]/;
	const words = (n) => `status ${n}, and not from weft: a proxy before it may have lost the server`;
	const others = [[502, 'text/html', '<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1><hr>nginx</body></html>'],
		[503, 'text/plain', 'upstream connect error or disconnect/reset before headers'], [504, 'text/html', ''],
		[502, 'application/json', '{"detail":"Bad Gateway"}'], [500, 'application/json', '{"error":{"message":{"x":1}}}'], [502, 'application/json', 'null']];
	for (const [status, contentType, body] of others) {
		await now.page.route('**/v1/chat/completions', (route) => route.fulfill({ status, contentType, body }), { times: 1 });
		await ask(QUESTION);
		const box = now.page.locator('.message.failed', { hasText: words(status) });
		await box.waitFor();
		assert.doesNotMatch(await box.innerText(), /<|nginx|upstream|detail/);
		await now.page.click('#new');
	}
});

test('sending scrolls to the end, whatever was in sight', async () => {
	const { page } = now;
	await model_says(says('line\n\n'.repeat(80)), says('second\n\n'.repeat(80)));
	const from_end = () => page.evaluate(() => {
		const log = document.getElementById('log');
		return log.scrollHeight - log.scrollTop - log.clientHeight;
	});
	await ask('row\n'.repeat(60));
	await answer();
	await page.waitForFunction(() => document.getElementById('log').scrollTop > 0);
	assert.ok(await from_end() < 60);
	await page.evaluate(() => { document.getElementById('log').scrollTop = 0; });
	await page.waitForFunction(() => document.getElementById('log').scrollTop === 0);
	await ask('again');
	await answer(1);
	assert.ok(await from_end() < 60);
});

test('with an API key, kept as long as the window', async () => {
	const own = await serve('--api-key', 'sesame');
	now.expected = /status of 401/;
	try {
		await now.context.close();
		await open({}, own.url);
		const { page } = now;
		await page.getByText('needs an API key').waitFor();
		await set({ key: 'sesame' });
		await page.getByText(/context [\d,]+ tokens/).waitFor();
		await page.reload();
		await ready();
		await page.getByText(/context [\d,]+ tokens/).waitFor();
		assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('sesame')), false);
		await ask(QUESTION);
		await answer();
	} finally {
		await now.context.close();
		await own.stop();
	}
});

test('the title says the model, and when the server is gone', async () => {
	const own = await serve('--alias', 'parrot');
	now.expected = /ERR_CONNECTION_REFUSED|status of 401/;
	await now.context.close();
	await open({}, own.url);
	await now.page.waitForFunction(() => document.title === 'parrot · weft');
	await own.stop();
	await ask(QUESTION);
	await now.page.waitForFunction(() => document.title.startsWith('⚠ '));
	assert.equal(await now.page.locator('#health').getAttribute('class'), 'bad');
});

// Answers of this window, each to a question: say(question, text) is a piece of one, end(question) its end.
async function hold_all(page) {
	await page.evaluate(() => {
		const real = globalThis.fetch;
		globalThis.held = {};
		globalThis.fetch = (url, how) => {
			if (!String(url).endsWith('/v1/chat/completions')) return real(url, how);
			const body = new ReadableStream({ start(stream) {
				globalThis.held[JSON.parse(how.body).messages.at(-1).content] = stream;
				how.signal.addEventListener('abort', () => stream.error(how.signal.reason));
			} });
			return Promise.resolve(new Response(body, { headers: { 'content-type': 'text/event-stream' } }));
		};
	});
	const send = (question, text) => page.evaluate(([q, t]) => globalThis.held[q].enqueue(new TextEncoder().encode(t)), [question, text]);
	const event = (delta) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`;
	return {
		begun: (question) => page.waitForFunction((q) => globalThis.held[q], question),
		say: (question, content) => send(question, event({ content })),
		end: (question) => send(question, 'data: [DONE]\n\n'),
		fail: (question) => send(question, 'data: {"error": {"message": "the model stumbled"}}\n\n'),
	};
}

test('answers to several conversations at once, one each', async () => {
	const { page } = now;
	const held = await hold_all(page);
	const busy = () => page.locator('#list li:has(.busy) .open').allInnerTexts();
	const open_it = (title) => page.locator('#list .open', { hasText: title }).click();
	for (const q of ['one', 'two', 'three']) {
		await page.click('#new');
		await ask(q);
		await held.begun(q);
		await held.say(q, `part of ${q}`);
		await page.locator('.message.assistant').getByText(`part of ${q}`).waitFor();
	}
	await page.waitForFunction(() => document.querySelectorAll('#list .busy').length === 3);
	await picture('several');
	// Stop is of the one that is shown; so is Escape.
	await open_it('two');
	await page.locator('.message.assistant').getByText('part of two').waitFor();
	await page.click('#stop');
	assert.match(await (await answer()).locator('.stats').innerText(), /stopped/);
	await page.waitForFunction(() => document.querySelectorAll('#list .busy').length === 2);
	assert.deepEqual((await busy()).sort(), ['one', 'three']);
	// Nothing of what ends elsewhere disturbs what is being done here.
	await press(user(0), 'Edit');
	await page.getByLabel('Edited message').fill('two, edited');
	await held.say('one', ', and all of it');
	await held.end('one');
	await held.fail('three');
	await page.waitForFunction(() => !document.querySelector('#list .busy'));
	assert.equal(await page.getByLabel('Edited message').inputValue(), 'two, edited');
	await page.keyboard.press('Escape'); // closes the editor
	await page.keyboard.press('Escape');
	await open_it('one');
	await page.locator('.message.assistant').getByText('part of one, and all of it').waitFor();
	await open_it('three');
	await page.getByText('the model stumbled').waitFor();
	// One that is deleted meanwhile is stopped, and comes back with what there was of it.
	await page.click('#new');
	await ask('four');
	await held.begun('four');
	await held.say('four', 'part of four');
	await page.locator('.message.assistant').getByText('part of four').waitFor();
	await page.locator('#list').getByRole('button', { name: 'Delete' }).click();
	await page.locator('#undo').getByText('is deleted').waitFor();
	assert.equal(await page.locator('#list .open', { hasText: 'four' }).count(), 0);
	await page.locator('#undo').getByRole('button', { name: 'Undo' }).click();
	await page.locator('.message.assistant').getByText('part of four').waitFor();
	// As many as the browser has connections for; the next is refused, and is in the box still.
	for (const q of ['a', 'b', 'c', 'd', 'e']) {
		await page.click('#new');
		await ask(q);
		await held.begun(q);
	}
	await page.setViewportSize({ width: 390, height: 700 });
	await page.click('#shelf-toggle');
	await picture('several-phone');
	await page.click('#new');
	await ask('f');
	await page.getByText('5 answers are being written').waitFor();
	assert.equal(await page.inputValue('#text'), 'f');
	await picture('full-phone');
	await held.end('a');
	await page.waitForFunction(() => !document.getElementById('full').textContent);
	await page.press('#text', 'Enter');
	await held.begun('f');
});

test('answers are followed to their end, however fast they come', async () => {
	const { page } = now;
	const from_end = () => page.evaluate(() => {
		const log = document.getElementById('log');
		return Math.round(log.scrollHeight - log.scrollTop - log.clientHeight);
	});
	const held = await hold_all(page);
	// Grown by the page itself, between its frames and in them, as no test from outside could.
	const grow = (question, times) => page.evaluate(async ([q, n]) => {
		const text = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'word '.repeat(60) + '\n\n' }, finish_reason: null }] })}\n\n`;
		for (let i = 0; i < n; i++) {
			globalThis.held[q].enqueue(new TextEncoder().encode(text));
			await (i % 3 ? new Promise((done) => setTimeout(done)) : new Promise(requestAnimationFrame));
			// A scroll event of one growth that is seen after the next.
			document.getElementById('turns').append(Object.assign(document.createElement('p'), { className: 'extra', textContent: 'more '.repeat(300) }));
			document.getElementById('log').dispatchEvent(new Event('scroll'));
			document.querySelector('#turns .extra').remove();
		}
	}, [question, times]);
	for (const [i, width] of [1200, 390].entries()) {
		await page.setViewportSize({ width, height: 700 });
		const q = `q${i}`;
		await ask(q);
		await held.begun(q);
		await grow(q, 40);
		await held.end(q);
		await answer(i);
		await page.waitForFunction(() => {
			const log = document.getElementById('log');
			return log.scrollHeight - log.scrollTop - log.clientHeight < 2;
		});
		assert.equal(await page.locator('#to-end').isVisible(), false);
	}
	// Who scrolls up stays there, and has a way back.
	await ask('last');
	await held.begun('last');
	await grow('last', 2);
	await page.locator('#log').hover();
	await page.mouse.wheel(0, -600);
	await page.locator('#to-end').waitFor();
	const at = await page.evaluate(() => document.getElementById('log').scrollTop);
	await grow('last', 6);
	assert.ok(Math.abs(await page.evaluate(() => document.getElementById('log').scrollTop) - at) < 600);
	await picture('to-end-phone');
	await page.click('#to-end');
	assert.ok(await from_end() < 2);
	await grow('last', 6);
	await held.end('last');
	await answer(2);
	await page.waitForFunction(() => document.getElementById('to-end').hidden);
	assert.ok(await from_end() < 60);
});
