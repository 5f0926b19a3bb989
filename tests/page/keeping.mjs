// What stays: conversations, their list, files of them, settings, presets; attachments.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { another, answer, ask, bring, model_says, now, open, picture, press, ready, said, says, set } from './kit.mjs';

const dir = mkdtempSync(join(tmpdir(), 'weft-page-'));
after(() => rmSync(dir, { recursive: true }));

const titles = () => now.page.locator('#list .open').allInnerTexts();
async function until_titles(want) {
	await now.page.waitForFunction((w) => JSON.stringify([...document.querySelectorAll('#list .open')].map((b) => b.textContent)) === w,
		JSON.stringify(want));
}

async function talk(...questions) {
	for (const q of questions) {
		await now.page.click('#new');
		await ask(q);
		await answer();
	}
}

test('conversations are kept, found, named, deleted and brought back', async () => {
	const { page } = now;
	// Another name or port of the same server has a list of its own.
	assert.equal(await page.locator('#list-note').innerText(), `No conversations yet; they stay in this browser, for ${new URL(now.server.url).host} alone.`);
	await model_says(says('about llamas'), says('about yaks'), says('third'));
	await talk('First question', 'Second question');
	await until_titles(['Second question', 'First question']);
	await page.reload();
	await ready();
	// The one that was open is open again.
	assert.equal(await said(await answer()), 'about yaks');
	await page.fill('#search', 'LLAMA');
	await until_titles(['First question']);
	await page.locator('#list .open').click();
	await page.getByText('about llamas').waitFor();
	await page.fill('#search', '');
	await until_titles(['Second question', 'First question']);
	await page.locator('#list').getByRole('button', { name: 'Rename' }).click();
	await page.getByLabel('New name').fill('Animals <b>');
	await page.keyboard.press('Enter');
	await until_titles(['Second question', 'Animals <b>']);
	await picture('shelf');
	await page.locator('#list').getByRole('button', { name: 'Delete' }).click();
	await until_titles(['Second question']);
	assert.equal(await page.locator('.message').count(), 0);
	await page.getByRole('button', { name: 'Undo' }).click();
	await until_titles(['Second question', 'Animals <b>']);
	assert.equal(await said(await answer()), 'about llamas');
	// A turn of it can go, and what is left stays.
	await press(page.locator('.message.assistant'), 'Delete');
	assert.equal(await page.locator('.message').count(), 1);
	await page.reload();
	await ready();
	await page.locator('.message.user').waitFor();
	assert.equal(await page.locator('.message').count(), 1);
});

test('two windows show the same conversation', async () => {
	await model_says(says('one'));
	await ask('First');
	await answer();
	const other = await another(now.page.url());
	await other.locator('.message.assistant').waitFor();
	await ask('Second');
	await answer(1);
	await other.locator('.message.assistant').nth(1).waitFor();
});

// What the database has, by way of a file of all: [name, contents of the turns, in order] of each conversation.
async function stored(page = now.page) {
	await page.reload();
	await ready(page);
	const [file] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
	const path = join(dir, 'stored.json');
	await file.saveAs(path);
	return JSON.parse(readFileSync(path)).conversations.map((c) => [c.name, c.turns.map((t) => t.content)]);
}

// Answers of this window come when end(page) says so; each says what its question was.
const hold = (page) => page.evaluate(() => {
	const real = globalThis.fetch;
	globalThis.fetch = (url, how) => {
		if (!String(url).endsWith('/v1/chat/completions')) return real(url, how);
		const body = new ReadableStream({ start: (stream) => { globalThis.held = { stream, asked: JSON.parse(how.body).messages.at(-1).content }; } });
		return Promise.resolve(new Response(body, { headers: { 'content-type': 'text/event-stream' } }));
	};
});
const held = (page) => page.waitForFunction(() => globalThis.held);
async function end(page) {
	await page.evaluate(() => {
		const event = { choices: [{ index: 0, delta: { content: `to ${globalThis.held.asked}` }, finish_reason: 'stop' }] };
		globalThis.held.stream.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(event)}\n\ndata: [DONE]\n\n`));
		globalThis.held.stream.close();
		globalThis.held = null;
	});
	await page.waitForFunction(() => document.getElementById('stop').hidden);
}
async function ask_in(page, text) {
	await page.fill('#text', text);
	await page.press('#text', 'Enter');
	await held(page);
}

test('windows that change one conversation at once lose nothing of each other', async () => {
	const { page } = now;
	await hold(page);
	await ask_in(page, 'first');
	await end(page);
	const other = await another(page.url());
	await other.locator('.message.assistant').waitFor();
	await hold(other);
	// Both ask; whichever ends first, each question and answer is there, as branches.
	for (const [i, [one, two]] of [[page, other], [other, page]].entries()) {
		await ask_in(page, `mine ${i}`);
		await ask_in(other, `other ${i}`);
		await end(one);
		await end(two);
		for (const w of [one, two]) await w.getByText('of 2', { exact: false }).nth(i).waitFor();
	}
	const said_by = (i) => [`mine ${i}`, `to mine ${i}`, `other ${i}`, `to other ${i}`];
	const want = ['first', 'to first', ...said_by(0), ...said_by(1)].sort();
	// A name and a deletion of one window stay while the other writes.
	await ask_in(other, 'long');
	await page.locator('#list').getByRole('button', { name: 'Rename' }).click();
	await page.getByLabel('New name').fill('named meanwhile');
	await page.keyboard.press('Enter');
	await until_titles(['named meanwhile']);
	await press(page.locator('.message.user').last(), 'Edit');
	await page.getByLabel('Edited message').fill('edited');
	await page.locator('.editor button[type=submit]').click();
	await held(page);
	await end(page);
	await press(page.locator('.message.assistant').last(), 'Delete');
	await end(other);
	for (const w of [page, other]) {
		const [[name, contents], ...more] = await stored(w);
		assert.deepEqual([name, more.length, contents.sort()], ['named meanwhile', 0, [...want, 'edited', 'long', 'to long'].sort()]);
	}
	// Deleted in one while the other writes to it: what is written, and what it was said to, is there.
	await hold(other);
	await ask_in(other, 'last');
	await page.locator('#list .open').first().click();
	await page.locator('#list').getByRole('button', { name: 'Delete' }).click();
	await until_titles([]);
	await end(other);
	const [[, contents]] = await stored();
	assert.ok(['first', 'last', 'to last'].every((text) => contents.includes(text)), contents.join());
});

test('what another window writes while a conversation is read is shown', async () => {
	const { page } = now;
	await model_says(says('first'));
	await page.fill('#text', 'question');
	await page.press('#text', 'Enter');
	await answer();
	const id = new URL(page.url()).hash.slice(1);
	await page.click('#new');
	await page.evaluate(async (of) => {
		const db = await new Promise((done, failed) => Object.assign(indexedDB.open('weft', 1), { onsuccess: (e) => done(e.target.result), onerror: failed }));
		const all = db.transaction('conversations').objectStore('conversations').getAll();
		const records = await new Promise((done) => { all.onsuccess = () => done(all.result); });
		const last = records.find((r) => r.turn?.role === 'assistant').turn;
		document.querySelector('#list .open').click();
		for (let i = 0; i < 20; i++) await null; // the page has asked the database, which has not answered yet
		db.transaction('conversations', 'readwrite').objectStore('conversations').put({ id: `${of}/turn/${'e'.repeat(24)}`,
			turn: { id: 'e'.repeat(24), parent: last.id, role: 'user', content: 'from elsewhere', at: last.at + 1 } });
		new BroadcastChannel('weft conversations').postMessage(of);
		db.close();
	}, id);
	await page.locator('.message.user').getByText('from elsewhere').waitFor();
});

test('messages that were deleted can be brought back', async () => {
	const { page } = now;
	const questions = ['one', 'two', 'three'];
	await model_says(...questions.map((q) => says(`to ${q}`)), says('again'));
	for (const [i, q] of questions.entries()) {
		await ask(q);
		await answer(i);
	}
	await press(page.locator('.message.assistant').nth(2), 'Regenerate');
	await page.getByText('2 of 2').waitFor();
	const all = [...questions.flatMap((q) => [q, `to ${q}`]), 'again'];
	const shown = () => page.locator('.message > .text').allInnerTexts();
	const before = await shown();
	for (const [n, left, words] of [[1, 2, '5 messages are deleted.'], [0, 0, '7 messages are deleted.']]) {
		await press(page.locator('.message.user').nth(n), 'Delete');
		await page.locator('#removed').getByText(words).waitFor();
		assert.equal(await page.locator('.message').count(), left);
		await page.waitForFunction((some) => (document.querySelectorAll('#list .open').length > 0) === some, left > 0);
		await press(page.locator('#removed'), 'Undo');
		await page.locator('.message').nth(5).waitFor();
		assert.deepEqual(await shown(), before);
		assert.deepEqual(await stored(), [['', all]]);
	}
	// One alone, on a phone, where the list is out of sight.
	await page.setViewportSize({ width: 390, height: 700 });
	await press(page.locator('.message.assistant').nth(2), 'Delete');
	await page.locator('#removed').getByText('The message is deleted.').waitFor();
	await picture('removed');
	assert.equal(await page.locator('#removed button').isVisible(), true);
	// Another conversation has nothing to bring back; what was left stays left.
	await page.setViewportSize({ width: 1200, height: 800 });
	await page.click('#new');
	assert.equal(await page.locator('#removed').innerText(), '');
	assert.deepEqual(await stored(), [['', all.slice(0, -1)]]);
});

test('conversations that were kept as one record are there', async () => {
	const { page } = now;
	await page.evaluate(() => new Promise((done, failed) => {
		const ask = indexedDB.open('weft', 1);
		ask.onsuccess = () => {
			const t = ask.result.transaction('conversations', 'readwrite');
			const turn = (id, parent, role) => ({ id, parent, role, content: `of ${id}` });
			t.objectStore('conversations').put({ id: 'f'.repeat(24), name: 'Old', changed: 5, shown: { '': 'c' },
				turns: [turn('a', '', 'user'), turn('b', 'a', 'assistant'), turn('c', '', 'user'), turn('d', 'c', 'assistant')] });
			t.oncomplete = done;
			t.onabort = failed;
			ask.result.close();
		};
	}));
	assert.deepEqual(await stored(), [['Old', ['of a', 'of b', 'of c', 'of d']]]);
	await page.locator('#list .open').click();
	await page.locator('.message.user').getByText('2 of 2').waitFor();
	await model_says(says('new'));
	await ask('more');
	await answer(1);
	assert.deepEqual(await stored(), [['Old', ['of a', 'of b', 'of c', 'of d', 'more', 'new']]]);
});

test('a file read on two machines, and back on the first', async () => {
	const path = (name) => join(dir, `machine-${name}.json`);
	async function send(name) {
		const [file] = await Promise.all([now.page.waitForEvent('download'), now.page.click('#export')]);
		await file.saveAs(path(name));
	}
	async function go_on(text) {
		await now.page.locator('#list .open').first().click();
		await model_says(says(`to ${text}`));
		await ask(text);
		await answer(1);
	}
	await model_says(says('to start'));
	await ask('start');
	await answer();
	await send('first');
	const first = now.context, page = now.page;
	await open();
	await now.page.setInputFiles('#import-file', path('first'));
	await until_titles(['start']);
	await go_on('second machine');
	await send('second');
	await now.context.close();
	Object.assign(now, { context: first, page });
	await go_on('first machine');
	for (let i = 0; i < 2; i++) {
		await page.setInputFiles('#import-file', path('second'));
		await page.waitForFunction((n) => document.querySelectorAll('#list .open').length === n, 2 + i);
	}
	const told = (text) => ['', ['start', 'to start', text, `to ${text}`]];
	assert.deepEqual((await stored()).sort(), [told('first machine'), told('second machine'), told('second machine')]);
});

test('to a file and back', async () => {
	const { page } = now;
	await model_says(says('answer one'), says('answer two'), says('answer three'));
	await talk('One', 'Two');
	await press(page.locator('.message.assistant'), 'Regenerate');
	await page.getByText('answer three').waitFor();
	const [file] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
	const path = join(dir, 'all.json');
	await file.saveAs(path);
	const saved = JSON.parse(readFileSync(path));
	assert.equal(saved.conversations.length, 2);
	for (let i = 0; i < 2; i++) {
		await page.locator('#list .open').first().click();
		await page.locator('#list').getByRole('button', { name: 'Delete' }).click();
		await page.waitForFunction((n) => document.querySelectorAll('#list .open').length === n, 1 - i);
	}
	await page.setInputFiles('#import-file', path);
	await until_titles(['Two', 'One']);
	await page.locator('#list .open').first().click();
	await page.getByText('2 of 2').waitFor();
	await page.getByLabel('Earlier version').click();
	assert.equal(await said(await answer()), 'answer two');
	// One alone, under its name.
	const [single] = await Promise.all([page.waitForEvent('download'), page.locator('#list').getByRole('button', { name: 'Export' }).click()]);
	assert.equal(single.suggestedFilename(), 'Two.json');
});

test('conversations of llama-server and of Open WebUI', async () => {
	const { page } = now;
	const pixel = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
	const of_llama = { conv: { id: 'c', name: 'From llama-server', lastModified: 2000, currNode: 'a2' }, messages: [
		{ id: 'a2', convId: 'c', type: 'text', timestamp: 6, role: 'assistant', content: 'second answer', parent: 'u', thinking: 'thought it over', children: [], model: 'other-model' },
		{ id: 'r', convId: 'c', type: 'root', timestamp: 1, role: 'system', content: '', parent: null, thinking: '', children: ['s'] },
		{ id: 's', convId: 'c', type: 'system', timestamp: 2, role: 'system', content: 'Be terse.', parent: 'r', thinking: '', children: ['u'] },
		{ id: 'u', convId: 'c', type: 'text', timestamp: 3, role: 'user', content: 'a question', parent: 's', children: ['a1', 'a2'],
			extra: [{ type: 'imageFile', name: 'dot.png', base64Url: pixel }, { type: 'textFile', name: 'notes.txt', content: 'noted' }] },
		{ id: 'a1', convId: 'c', type: 'text', timestamp: 4, role: 'assistant', content: 'first answer', parent: 'u', thinking: '', children: [] },
	] };
	const of_open = [{ id: 'x', title: 'From Open WebUI', updated_at: 1, chat: { history: { currentId: '2', messages: {
		2: { id: '2', parentId: '1', childrenIds: [], role: 'assistant', model: 'm', timestamp: 2,
			content: '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 seconds</summary>\n&gt; hm\n</details>\nan answer' },
		1: { id: '1', parentId: null, childrenIds: ['2'], role: 'user', content: 'asked there', timestamp: 1, files: [{ type: 'image', url: pixel }, { type: 'image', url: 'https://evil.example/x.png' }] },
	} } } }];
	writeFileSync(join(dir, 'llama.json'), JSON.stringify([of_llama]));
	writeFileSync(join(dir, 'open.json'), JSON.stringify(of_open));
	await page.setInputFiles('#import-file', join(dir, 'llama.json'));
	await until_titles(['From llama-server']);
	assert.equal(await said(await answer()), 'second answer');
	await page.getByText('2 of 2').waitFor();
	await page.getByText('other-model').first().waitFor();
	assert.equal(await page.locator('.message.user img').count(), 1);
	await page.click('#settings-open');
	assert.equal(await page.inputValue('#system'), 'Be terse.');
	await page.keyboard.press('Escape');
	const kept = await stored();
	assert.deepEqual(kept, [['From llama-server', ['a question', 'first answer', 'second answer']]]);
	await page.setInputFiles('#import-file', join(dir, 'open.json'));
	await page.getByText('asked there').waitFor();
	assert.equal(await said(await answer()), 'an answer');
	assert.equal(await page.locator('.message.user img').count(), 1);
	// Parents that are missing or go round, and names that objects have.
	const odd = (id, parent) => ({ id, parent, type: 'text', timestamp: 1, role: 'user', content: `odd ${id}`, children: [] });
	writeFileSync(join(dir, 'odd.json'), JSON.stringify({ conv: { name: 'Odd', currNode: '__proto__' }, messages: [
		odd('__proto__', 'none'), odd('a', '__proto__'), { ...odd('x', 'y'), role: 'system' }, { ...odd('y', 'x'), role: 'system' }, odd('b', 'x'), odd('c', 'd'), odd('d', 'c')] }));
	await page.setInputFiles('#import-file', join(dir, 'odd.json'));
	await page.getByText('odd __proto__').waitFor();
});

test('a file that is none of ours changes nothing', async () => {
	const { page } = now;
	const good = { id: 'a', parent: '', role: 'user', content: 'x' };
	const file = (turns) => JSON.stringify({ kind: 'weft conversations', version: 1, conversations: [{ turns }] });
	const cases = ['{"conv":{},"messages":[{}]}', '[{"chat":{"history":{"messages":{"a":{"role":"user"}}}}}]', 'no json', '[]', '{"kind":"other"}', file(5), file([{ ...good, role: 'system' }]), file([{ ...good, parent: 'none' }]),
		file([good, good]), file([{ ...good, content: 5 }]), file([{ ...good, pictures: [{ name: 'x', url: 'https://evil.example/x.png' }] }]),
		file([{ ...good, tool_calls: [{}] }]), file([{ ...good, files: [{ name: 'x' }] }]), file([null])];
	for (const [i, text] of cases.entries()) {
		const path = join(dir, `bad-${i}.json`);
		writeFileSync(path, text);
		await page.setInputFiles('#import-file', path);
		await page.getByText(`bad-${i}.json: `).waitFor();
	}
	assert.deepEqual(await titles(), []);
	// What it does not know is left behind.
	writeFileSync(join(dir, 'more.json'), file([{ ...good, zork: '<img src=x onerror=alert(1)>' }]));
	await page.setInputFiles('#import-file', join(dir, 'more.json'));
	await until_titles(['x']);
});

test('settings are kept, and presets of them', async () => {
	const { page } = now;
	await set({ temperature: '0.3', system: 'Be terse.', 'preset-name': 'terse' });
	await page.click('#settings-open');
	await page.click('#preset-keep');
	await picture('settings');
	await page.click('#settings-reset');
	await page.click('#settings-close');
	const sent = await model_says(says('ok'));
	await ask('a');
	await answer();
	assert.deepEqual(sent[0].messages, [{ role: 'user', content: 'a' }]);
	await page.reload();
	await ready();
	await set({ preset: 'terse' });
	await page.reload();
	await ready();
	await ask('b');
	await answer(1);
	assert.equal(sent[1].temperature, 0.3);
	assert.deepEqual(sent[1].messages[0], { role: 'system', content: 'Be terse.' });
	await page.click('#settings-open');
	await page.selectOption('#preset', 'terse');
	await page.click('#preset-drop');
	assert.equal(await page.locator('#preset option').count(), 1);
	// It can be had back until something else is done with presets.
	assert.equal(await page.locator('#preset-undo').innerText(), 'Preset "terse" is deleted. Undo');
	await page.keyboard.press('Enter');
	assert.equal(await page.inputValue('#preset'), 'terse');
	assert.equal(await page.locator('#preset-undo').innerText(), '');
	assert.equal(await page.evaluate(() => document.activeElement.id), 'preset');
	await page.click('#settings-reset');
	await page.selectOption('#preset', 'terse');
	assert.deepEqual([await page.inputValue('#temperature'), await page.inputValue('#system')], ['0.3', 'Be terse.']);
	// The dialog says which server it is.
	const { build_info } = await (await fetch(`${now.server.url}/props`)).json();
	assert.match(build_info, /^weft \d/);
	assert.ok((await page.locator('#settings').innerText()).includes(`Server: ${build_info}.`));
});

test('each conversation has settings of its own, in sight', async () => {
	const { page } = now;
	const sent = await model_says(says('ok'));
	const line = page.locator('#in-force'), open_it = (title) => page.locator('#list .open', { hasText: title }).click();
	const asked = async (text, n = 0) => {
		await ask(text);
		await answer(n);
		const { messages, temperature } = sent.at(-1);
		return [messages[0].role === 'system' ? messages[0].content : null, temperature];
	};
	await set({ system: 'Be terse.', temperature: '0.25' });
	assert.equal(await line.innerText(), 'temperature 0.25 · system message: Be terse.');
	assert.deepEqual(await asked('first'), ['Be terse.', 0.25]);
	// Another system message for a second one leaves the first as it is, and new ones too.
	await page.click('#new');
	assert.deepEqual(await asked('second'), ['Be terse.', 0.25]);
	await set({ system: 'Be kind.', temperature: '' });
	assert.deepEqual(await asked('more', 1), ['Be kind.', undefined]);
	await picture('settings-of-one');
	await open_it('first');
	await page.waitForFunction(() => /terse/.test(document.getElementById('in-force').textContent));
	assert.deepEqual(await asked('more', 1), ['Be terse.', 0.25]);
	await page.click('#new');
	assert.match(await line.innerText(), /Be terse/);
	// Kept, in files too; and for new ones where that is wanted.
	await page.reload();
	await ready();
	await open_it('second');
	await page.waitForFunction(() => /kind/.test(document.getElementById('in-force').textContent));
	await page.setViewportSize({ width: 390, height: 700 });
	await picture('settings-of-one-phone');
	await page.setViewportSize({ width: 1200, height: 800 });
	await line.click();
	await page.getByText('They apply to this conversation.').waitFor();
	await picture('settings-of-one-dialog');
	await page.click('#settings-for-new');
	await page.click('#settings-close');
	await page.click('#new');
	assert.equal(await line.innerText(), 'system message: Be kind.');
	const [file] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
	await file.saveAs(join(dir, 'set.json'));
	await page.setInputFiles('#import-file', join(dir, 'set.json'));
	await page.waitForFunction(() => document.querySelectorAll('#list .open').length === 4);
	await page.locator('#list .open', { hasText: 'first' }).last().click();
	await page.waitForFunction(() => /terse/.test(document.getElementById('in-force').textContent));
});

test('settings and presets of two windows', async () => {
	const { page } = now;
	const other = await another();
	await set({ system: 'Be terse.', 'preset-name': 'terse' });
	await page.click('#settings-open');
	await page.click('#preset-keep');
	await page.click('#settings-close');
	await other.waitForFunction(() => document.getElementById('system').value && document.querySelectorAll('#preset option').length === 2);
	await other.click('#settings-open');
	await other.fill('#temperature', '0.5');
	await other.click('#settings-close');
	for (const w of [page, other]) {
		await w.reload();
		await ready(w);
		assert.deepEqual(await w.evaluate(() => ['system', 'temperature'].map((id) => document.getElementById(id).value)), ['Be terse.', '0.5']);
	}
});

const utf8 = (text) => [...new TextEncoder().encode(text)];

// The page as it is with a model that sees, or with one that reads text alone.
const with_vision = async (vision, audio = false) => {
	await now.page.route('**/props', async (route) => {
		const props = await (await route.fetch()).json();
		await route.fulfill({ json: { ...props, modalities: { ...props.modalities, vision, audio } } });
	});
	await now.page.reload();
	await ready();
};

test('attachments as text: dropped, pasted, chosen, taken back', async () => {
	const { page } = now;
	await with_vision(false);
	const chips = page.locator('#attached .chip');
	const sent = await model_says(says('read'));
	await bring('drop', [['notes.txt', 'text/plain', utf8('first ``` note\n')], ['code.py', '', utf8('print("é")')]]);
	await chips.nth(1).waitFor();
	await bring('paste', [['log.txt', 'text/plain', utf8('log')]]);
	await chips.nth(2).waitFor();
	await page.getByLabel('Remove log.txt').click();
	await bring('paste', [], 'long '.repeat(1000));
	await page.getByText('pasted text').waitFor();
	await page.getByLabel('Remove pasted text').click();
	writeFileSync(join(dir, 'chosen.md'), '# chosen');
	await page.setInputFiles('#attach-file', join(dir, 'chosen.md'));
	await chips.nth(2).waitFor();
	await picture('attached');
	// All that are refused are named.
	const odd = [['latin.txt', [0xe9, 0x20]], ['zero.bin', [0, 1, 2]]];
	await bring('drop', odd.map(([name, bytes]) => [name, '', bytes]));
	for (const [name] of odd) await page.getByText(`${name} is neither UTF-8 text`).waitFor();
	await bring('drop', [['cat.png', 'image/png', [137, 80]]]);
	await page.getByText('does not read images').waitFor();
	assert.equal(await page.locator('#attach-problem').innerText(), 'cat.png: this model does not read images'); // those of before are gone
	await ask('What is in them?');
	await answer();
	assert.equal(sent[0].messages[0].content, 'notes.txt:\n````\nfirst ``` note\n\n````\n\n' + 'code.py:\n```\nprint("é")\n```\n\n' +
		'chosen.md:\n```\n# chosen\n```\n\nWhat is in them?');
	assert.equal(await page.locator('.message.user .chip').count(), 3);
	assert.equal(await page.locator('.message.user > .text').innerText(), 'What is in them?');
	assert.equal(await chips.count(), 0);
});

test('pictures, where the model sees', async () => {
	const { page } = now;
	await with_vision(true);
	// A red circle and two blue squares, so that screenshots show something.
	const png = await page.evaluate(async () => {
		const canvas = new OffscreenCanvas(320, 200), c = canvas.getContext('2d');
		for (const [colour, form] of [['#eee', [0, 0, 320, 200]], ['#36c', [30, 40, 70, 70]], ['#36c', [60, 130, 50, 50]]]) {
			c.fillStyle = colour;
			c.fillRect(...form);
		}
		c.fillStyle = '#c33';
		c.arc(220, 95, 60, 0, 2 * Math.PI);
		c.fill();
		return [...new Uint8Array(await (await canvas.convertToBlob({ type: 'image/png' })).arrayBuffer())];
	});
	const url = `data:image/png;base64,${Buffer.from(png).toString('base64')}`;
	await bring('drop', [['broken.png', 'image/png', png.slice(0, 90)]]);
	await page.getByText('broken.png is damaged').waitFor();
	assert.equal(await page.locator('#attached .chip').count(), 0);
	const sent = await model_says(says('A red circle beside two blue squares.'));
	await bring('drop', [['forms.png', 'image/png', png]]);
	await page.locator('#attached .chip').waitFor();
	await picture('picture');
	await ask('What is it?');
	await answer();
	assert.deepEqual(sent[0].messages[0].content.filter((p) => p.type === 'image_url').map((p) => p.image_url.url), [url]);
	assert.deepEqual(sent[0].messages[0].content.filter((p) => p.type === 'text').map((p) => p.text), ['What is it?']);
	// It is shown in the turn, is kept with it, and goes along with the next question.
	for (const again of [false, true]) {
		if (again) {
			await page.reload();
			await ready();
		}
		const shown = page.locator('.message.user img');
		await shown.waitFor();
		assert.equal(await shown.evaluate((i) => i.decode().then(() => i.naturalWidth)), 320);
	}
	await picture('picture-said');
	await ask('And now?');
	await answer(1);
	assert.equal(sent[1].messages[0].content.find((p) => p.type === 'image_url').image_url.url, url);
});

test('sounds, where the model hears: played, sent, kept; recorded', async () => {
	const { page } = now;
	await with_vision(false, true);
	const wav = await page.evaluate(() => {
		const n = 8000, v = new DataView(new ArrayBuffer(44 + 2 * n));
		[...'RIFF    WAVEfmt '].forEach((c, i) => v.setUint8(i, c.charCodeAt(0)));
		[[16, 16, 4], [20, 1, 2], [22, 1, 2], [24, 16000, 4], [28, 32000, 4], [32, 2, 2], [34, 16, 2], [40, 2 * n, 4], [4, 36 + 2 * n, 4]]
			.forEach(([at, x, size]) => (size === 4 ? v.setUint32(at, x, true) : v.setUint16(at, x, true)));
		[...'data'].forEach((c, i) => v.setUint8(36 + i, c.charCodeAt(0)));
		for (let i = 0; i < n; i++) v.setInt16(44 + 2 * i, 8000 * Math.sin(i / 6), true);
		return [...new Uint8Array(v.buffer)];
	});
	const data = Buffer.from(wav).toString('base64');
	const sent = await model_says(says('A tone.'), says('Beeps.'));
	const parts = (n) => sent[n].messages.at(-1).content.filter((p) => p.type === 'input_audio').map((p) => p.input_audio);
	await bring('drop', [['tone.wav', 'audio/wav', wav], ['none.aac', 'audio/aac', [1, 2, 3]]]);
	await page.getByText('none.aac is not a sound').waitFor();
	await page.locator('#attached audio').waitFor();
	await ask('What is it?');
	await answer();
	assert.deepEqual(parts(0), [{ data, format: 'wav' }]);
	for (const again of [false, true]) {
		if (again) {
			await page.reload();
			await ready();
		}
		const shown = page.locator('.message.user audio');
		await shown.waitFor();
		await page.waitForFunction(() => document.querySelector('.message.user audio').duration === 0.5);
		await shown.evaluate(async (a) => {
			a.muted = true;
			await a.play();
			await new Promise((done) => a.addEventListener('ended', done, { once: true }));
		});
	}
	await page.getByRole('button', { name: 'Record', exact: true }).click();
	await page.getByText('Stop recording, 1 s').waitFor();
	await picture('sound-recording');
	await page.getByRole('button', { name: 'Stop recording' }).click();
	await page.locator('#attached audio').waitFor();
	await page.waitForFunction(() => document.querySelector('#attached audio').duration > 0.2);
	await picture('sound');
	await page.setViewportSize({ width: 390, height: 700 });
	assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 390), 'wider than the window');
	await picture('sound-narrow');
	await ask('And that?');
	await answer(1);
	const [recorded] = parts(1), file = Buffer.from(recorded.data, 'base64');
	assert.deepEqual([recorded.format, file.toString('latin1', 0, 4), file.readUInt32LE(24), file.readUInt16LE(22)], ['wav', 'RIFF', 16000, 1]);
	assert.ok(file.subarray(44).some((b) => b), 'silence');
});
