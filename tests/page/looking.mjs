// The view into the engine; widths, colours, keys.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answer, ask, bring, by_api, findings, greedy, model_says, now, open, picture, press, QUESTION, ready, says, set } from './kit.mjs';

const endless = (signal) => fetch(`${now.server.url}/v1/chat/completions`, { method: 'POST', signal,
	headers: { 'content-type': 'application/json', 'x-request-id': 'endless' },
	body: JSON.stringify({ messages: [{ role: 'user', content: 'Repeat: a b c' }], max_tokens: 3900, ignore_eos: true, temperature: 0 }) })
	.catch(() => null);

test('the engine, by keyboard', async () => {
	const { page } = now;
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
	// What a node's tokens say.
	await page.waitForFunction(() => (document.querySelector('#node pre')?.textContent ?? '…') !== '…');
	await page.getByRole('button', { name: 'Pin' }).click();
	await page.locator('.state.pinned').first().waitFor();
	await picture('engine');
	await page.locator('#tree .node:has(.state.pinned)').last().click();
	await page.getByRole('button', { name: 'Unpin' }).click();
	await page.waitForFunction(() => !document.querySelector('.state.pinned'));
	await page.getByRole('button', { name: 'Drop with all after it' }).click();
	const left = await (await page.waitForFunction((n) => {
		const count = document.querySelectorAll('#tree .node').length;
		return count < n && { count };
	}, before)).evaluate((now_there) => now_there.count);
	// A hit flashes.
	await by_api({ messages: [{ role: 'user', content: 'What is the capital of Chile?' }] });
	await page.waitForFunction((n) => document.querySelectorAll('#tree .node').length > n, left);
	const flashed = page.locator('#tree .node.hit').first().waitFor({ state: 'attached' });
	let seen = false;
	const told = flashed.finally(() => { seen = true; });
	while (!seen) await by_api({ messages: [{ role: 'user', content: 'What is the capital of Chile?' }] });
	await told;
});

test('the text of a node is that of the prompt', async () => {
	const { page } = now;
	await by_api({ messages: [{ role: 'user', content: 'What is the capital of Xanadu?' }] });
	await page.click('#tab-live');
	await page.locator('#tree .node').first().waitFor();
	const texts = [];
	for (const id of (await (await fetch(`${now.server.url}/v1/cache`)).json()).nodes.map((n) => n.id))
		texts.push((await (await fetch(`${now.server.url}/v1/cache/nodes/${id}`)).json()).text);
	assert.ok(texts.some((t) => t.includes('Xanadu')));
	await page.locator('#tree .node').first().click();
	await page.waitForFunction((all) => all.includes(document.querySelector('#node pre')?.textContent), texts);
	// The place between a run and what is written beside it belongs to the node.
	await page.evaluate(() => document.querySelector('#node').replaceChildren());
	await page.locator('#tree .reach').first().click();
	await page.waitForFunction((all) => all.includes(document.querySelector('#node pre')?.textContent), texts);
});

test('who runs and who waits, as rows; one is cancelled', async () => {
	const { page } = now;
	const own = new AbortController();
	let ended = false;
	await page.click('#tab-live');
	await page.getByText('No requests.').waitFor();
	// One after the other, as long as it takes: an answer may end before the view is drawn again.
	const asked = (async () => {
		while (!ended) await endless(own.signal);
	})();
	const row = page.locator('#requests tbody tr').first();
	await row.waitFor();
	assert.match(await page.locator('#requests').innerText(), /\/v1\/chat\/completions/);
	await picture('requests');
	ended = true;
	// The row may be of an answer that has ended by now: then there is nothing to cancel.
	now.expected = /404/;
	await page.evaluate(() => document.querySelector('#requests button')?.click());
	own.abort();
	await asked;
	await now.server.idle();
	await page.getByText('No requests.').waitFor();
});

test('at phone width, light and dark', async () => {
	const colours = [];
	for (const colorScheme of ['light', 'dark']) {
		await now.context.close();
		await open({ viewport: { width: 360, height: 640 }, colorScheme });
		const { page } = now;
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
		await page.click('#tab-chat');
		await page.click('#settings-open');
		await picture(`phone-${colorScheme}-settings`);
		await page.keyboard.press('Escape');
		await page.click('#shelf-toggle');
		await page.locator('#shelf.out').waitFor();
		await picture(`phone-${colorScheme}-shelf`);
		await page.keyboard.press('Escape');
		await page.waitForFunction(() => !document.querySelector('#shelf.out'));
		// A finger has no Escape: outside of the list is enough, and presses nothing there.
		await page.click('#shelf-toggle');
		await page.mouse.click(350, 18);
		await page.waitForFunction(() => !document.querySelector('#shelf.out'));
		assert.equal(await page.evaluate(() => document.getElementById('settings').open), false);
		colours.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
	}
	assert.notEqual(colours[0], colours[1]);
	// The person's choice counts more than the system's, and is kept.
	const { page } = now;
	await page.click('#settings-open');
	await page.selectOption('#theme', 'light');
	await page.click('#settings-close');
	for (const again of [false, true]) {
		if (again) {
			await page.reload();
			await ready();
		}
		assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), colours[0]);
	}
});

test('buttons of a message: where a mouse points or the focus is, and always for a finger', async () => {
	for (const touch of [false, true]) {
		await now.context.close();
		await open({ viewport: { width: touch ? 390 : 1200, height: 700 }, hasTouch: touch, isMobile: touch });
		const { page } = now;
		await model_says(says('one'), says('two'));
		await ask('first');
		await answer();
		await ask('second');
		await answer(1);
		await page.mouse.move(1, 1);
		const first = page.locator('.message').first(), edit = first.getByRole('button', { name: 'Edit' });
		const seen = () => edit.evaluate((b) => getComputedStyle(b).opacity === '1');
		assert.equal(await seen(), touch);
		assert.equal(await page.locator('.message').last().getByRole('button', { name: 'Edit' }).evaluate((b) => getComputedStyle(b).opacity), '1');
		if (touch) continue;
		await first.hover();
		assert.equal(await seen(), true);
		await page.mouse.move(1, 1);
		assert.equal(await seen(), false);
		await edit.focus();
		assert.equal(await seen(), true);
	}
});

// Buttons with an icon, and what they show in a build without icons.
const ICONS = { Settings: '', 'New conversation': '', 'Export all': '', Import: '', Rename: '', Export: '', Copy: '', Edit: '', Regenerate: '',
	Continue: '', Delete: '', 'Earlier version': '‹', 'Later version': '›', 'Remove notes.txt': '✕', Send: '', Attach: '' };

// What each button shows: its name, its words, and the size of what is drawn in its own colour.
const shown_buttons = () => now.page.evaluate(() => [...document.querySelectorAll('button')].filter((b) => b.checkVisibility()).map((b) => {
	const icon = b.querySelector('svg.icon'), box = icon?.getBoundingClientRect(), ink = icon?.firstElementChild.getBoundingClientRect();
	const own = icon && getComputedStyle(icon.firstElementChild).fill === getComputedStyle(b).color;
	return { name: b.getAttribute('aria-label') ?? b.textContent.trim(), words: b.textContent.trim(), tip: b.title,
		drawn: own ? Math.min(box.width, box.height, ink.width, ink.height) : 0 };
}));

test('every button has a name; icons are drawn, and words without them', async () => {
	for (const [width, colorScheme, icons] of [[1200, 'light', true], [390, 'dark', true], [1200, 'dark', false]]) {
		await now.context.close();
		await open({ viewport: { width, height: 700 }, colorScheme, hasTouch: width < 500, isMobile: width < 500 });
		const { page } = now;
		if (!icons) {
			await page.route('**/page/icons.js', (route) => route.fulfill({ contentType: 'text/javascript', body: 'export const drawings = {};' }));
			await page.reload();
			await ready();
		}
		await model_says(says('one', { finish: 'length' }));
		await ask('first');
		await press(await answer(), 'Regenerate');
		await page.getByText('2 of 2').waitFor();
		await answer();
		await bring('drop', [['notes.txt', 'text/plain', [104, 105]]]);
		await page.locator('#attached .doc').waitFor();
		const expected = { ...ICONS };
		if (width < 500) {
			await page.click('#shelf-toggle');
			expected.Conversations = '☰';
		}
		const shown = await shown_buttons();
		assert.deepEqual(shown.filter((b) => !b.name), []);
		for (const [name, without] of Object.entries(expected)) {
			const b = shown.find((one) => one.name === name);
			assert.ok(b, `${name} is not among ${shown.map((one) => one.name).join(', ')}`);
			if (icons) assert.ok(b.drawn >= 5 && (b.words || b.tip === name), `${width}, ${name}: ${JSON.stringify(b)}`);
			else assert.deepEqual([b.drawn, b.words], [0, without || name]);
		}
		assert.deepEqual(await findings(), []);
	}
});

test('everything is reached and has a name by keyboard', async () => {
	const { page } = now;
	await greedy();
	await ask(QUESTION);
	await answer();
	await page.focus('#tab-chat');
	const names = new Set();
	for (let i = 0; i < 40; i++) {
		await page.keyboard.press('Tab');
		names.add(await page.evaluate(() => {
			const e = document.activeElement;
			return e === document.body ? '' : e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.textContent.trim();
		}));
		if (await page.evaluate(() => document.activeElement.id === 'attach')) break;
	}
	for (const name of ['Settings', 'New conversation', 'Search in conversations', 'Export all', 'Import', 'Conversation', 'Edit', 'Regenerate',
		'Delete', 'Copy', 'Message', 'Attach']) assert.ok(names.has(name), `${name} is not among ${[...names].join(', ')}`);
	// The arrow key in an empty box takes up the last message.
	await page.focus('#text');
	await page.keyboard.press('ArrowUp');
	assert.equal(await page.getByLabel('Edited message').inputValue(), QUESTION);
	await page.keyboard.press('Escape');
	assert.equal(await page.getByLabel('Edited message').count(), 0);
});

test('axe finds nothing, in every view, light and dark, wide and narrow', async () => {
	for (const [colorScheme, width] of [['light', 1200], ['dark', 390]]) {
		await now.context.close();
		await open({ viewport: { width, height: 700 }, colorScheme, bypassCSP: true });
		const { page } = now;
		await set({ system: 'Be terse.' });
		await model_says(says('# Title\n\nText with `code`, a [link](https://example.org) and\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\nlet x = 1;\n```'),
			says('cut', { finish: 'length' }), () => ({ status: 500, message: 'no' }));
		now.expected = /500/;
		await ask('first');
		await answer(0);
		await ask('second');
		await answer(1);
		assert.deepEqual(await findings(), []);
		await press(page.locator('.message.user').first(), 'Edit');
		await ask('third');
		await page.locator('.message.failed').waitFor();
		await page.click('#settings-open');
		assert.deepEqual(await findings(), []);
		await page.keyboard.press('Escape');
		if (width < 800) {
			await page.click('#shelf-toggle');
			assert.deepEqual(await findings(), []);
			await page.keyboard.press('Escape');
		}
		await by_api({ messages: [{ role: 'user', content: QUESTION }] });
		await page.click('#tab-live');
		await page.locator('#tree .node').first().waitFor();
		await page.locator('#tree .node').first().click();
		assert.deepEqual(await findings(), []);
	}
});

// A tree of the cache as the server tells it: one root, and n questions after it.
const tree_of = (n) => ({ states: n, bytes: 1, bytes_max: 2, nodes: Array.from({ length: n + 1 }, (_, i) => ({ id: i, parent: i ? 0 : null,
	begin: i ? 10 : 0, end: i ? 20 + i : 10, state: true, pinned: false, hits: i, place: i ? 'end' : 'system', bytes: 1, on_disk: false, age_seconds: 9,
	idle_seconds: n - i })) });

test('a large tree is one stop of the Tab key, and short until all is asked for', async () => {
	const { page } = now;
	await page.route('**/v1/cache', (route) => route.fulfill({ json: tree_of(400) }));
	await page.route('**/v1/cache/nodes/*', (route) => route.fulfill({ json: { text: route.request().url().split('/').at(-1) } }));
	await page.click('#tab-live');
	const nodes = page.locator('#tree .node');
	await nodes.first().waitFor();
	assert.equal(await nodes.count(), 61);
	assert.equal(await page.locator('#tree .node[tabindex="0"]').count(), 1);
	await picture('tree-large');
	const here = () => page.evaluate(() => document.activeElement.dataset?.id);
	await page.locator('#tree .node[tabindex="0"]').focus();
	assert.equal(await here(), '0');
	const at = {};
	for (const key of ['ArrowRight', 'ArrowDown', 'ArrowUp', 'ArrowLeft', 'End', 'Home']) {
		await page.keyboard.press(key);
		at[key] = await here();
	}
	assert.deepEqual(at, { ArrowRight: '341', ArrowDown: '342', ArrowUp: '341', ArrowLeft: '0', End: '400', Home: '0' });
	await page.keyboard.press('End');
	await page.keyboard.press('Enter');
	await page.waitForFunction(() => document.querySelector('#node pre')?.textContent === '400');
	// Drawn again, and the place is kept.
	await page.evaluate(() => { document.querySelector('#tree svg').dataset.seen = 'yes'; });
	await page.waitForFunction(() => !document.querySelector('#tree svg').dataset.seen);
	assert.equal(await here(), '400');
	await page.keyboard.press('Tab');
	assert.equal(await page.evaluate(() => document.activeElement.id), 'tree-all');
	await page.click('#tree-all');
	await page.waitForFunction(() => document.querySelectorAll('#tree .node').length === 401);
	assert.equal(await page.locator('#tree .node[tabindex="0"]').count(), 1);
});

test('the focus comes back, and what was typed stays', async () => {
	const { page } = now;
	await model_says(says('one'), says('two'));
	const focused = () => page.evaluate(() => document.activeElement.id);
	await ask('first');
	await answer();
	await press(page.locator('.message.user'), 'Edit');
	await page.keyboard.press('Escape');
	assert.equal(await focused(), 'text');
	await press(await answer(), 'Regenerate');
	await page.getByText('2 of 2').waitFor();
	assert.equal(await focused(), 'text');
	// A draft of each conversation.
	await page.fill('#text', 'of the first');
	await page.click('#new');
	assert.equal(await page.inputValue('#text'), '');
	await page.fill('#text', 'of a new one');
	await page.reload();
	await ready();
	assert.equal(await page.inputValue('#text'), 'of a new one');
	await page.locator('#list .open').click();
	await page.waitForFunction(() => document.getElementById('text').value === 'of the first');
	await page.press('#text', 'Enter');
	await answer(1);
	await page.reload();
	await ready();
	assert.equal(await page.inputValue('#text'), '');
	await page.click('#new');
	assert.equal(await page.inputValue('#text'), 'of a new one');
});
