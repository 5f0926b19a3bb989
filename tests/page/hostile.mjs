// Bytes of others on the page, at two widths: what a model writes, thinks and calls, what a file of conversations holds, what
// stands in prompts that the engine's view shows.  Random ones besides: WEFT_PAGE_TRIES of each (40), from WEFT_PAGE_SEED (1).
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { answer, ask, by_api, model_says, now, open, picture, ready, said, says, watch } from './kit.mjs';

const TRIES = Number(process.env.WEFT_PAGE_TRIES ?? 40), SEED = Number(process.env.WEFT_PAGE_SEED ?? 1);
const WIDTHS = [1200, 390];
const KIND = { kind: 'weft conversations', version: 1 };
const dir = mkdtempSync(join(tmpdir(), 'weft-hostile-'));

// Another origin, which nothing may ask.
let elsewhere, asked = [];
before(async () => {
	elsewhere = createServer((request, reply) => {
		asked.push(request.url);
		reply.end('globalThis.harmed = 99');
	});
	await new Promise((done) => elsewhere.listen(0, '127.0.0.1', done));
});
after(() => {
	elsewhere.close();
	rmSync(dir, { recursive: true });
});
const evil = () => `http://127.0.0.1:${elsewhere.address().port}`;

function dice(seed) {
	let s = seed * 2654435761 + 1;
	const next = () => {
		s = (Math.imul(s ^ (s >>> 15), 2246822519) + 374761393) | 0;
		return (s ^ (s >>> 13)) >>> 0;
	};
	return { below: (n) => next() % n, one: (list) => list[next() % list.length] };
}

const pieces = () => ['<', '>', '"', "'", '/', '=', ' ', '\n', '\n\n', '`', '```', '```html\n', '```js\n', '$', '$$', '\\[', '\\]', '\\(', '\\)', '[', ']', '(',
	')', '](', '![', '|', '\n|---|\n', '\n> ', '\n- ', '\n1. ', '\n# ', '*', '**', '_', '~~', '\\', '<!--', '-->', '<![CDATA[', ']]>', '<?', '&lt;', '&#60;', '&colon;',
	'&quot;', '\0', '\u202e', '\u2066', '\u200f', '\u2028', '\u001b[31m', `\u001b]8;;${evil()}\u0007`, '\ufeff', '\ud800', '\uffff', 'a\u0301'.repeat(50), 'x',
	'javascript:globalThis.harmed=1', 'data:text/html,<script>parent.harmed=1</script>', `${evil()}/a`, `//127.0.0.1:${elsewhere.address().port}/b`, 'vbscript:', 'blob:x',
	'<script>', '</script>', `<script src=${evil()}/s.js>`, 'globalThis.harmed=1', '<svg', '<svg/onload=globalThis.harmed=1>', '<img', ' onload=globalThis.harmed=1 ',
	' onerror=globalThis.harmed=1 ', ` src=${evil()}/i `, ` srcset=${evil()}/j `, ' style=position:fixed;inset:0 ', ' id=text ', ' name=text ', ' class="message failed" ', '<math>', '<mtext>',
	'<mglyph>', '<style>', `@import"${evil()}/c";`, '<template>', '<noscript>', '<textarea>', '<title>', '<iframe srcdoc="', '<object data=', '<base href=', `<link rel=prefetch href=${evil()}/l>`,
	`<meta http-equiv=refresh content="0;url=${evil()}/m">`, '<form action=', '<a href=', ' xlink:href=', ' formaction=', '<video poster=', '<b>', '</b>', '<sub ', '<br/',
	'\\href{', '\\url{', '\\htmlData{', '\\htmlStyle{', '\\includegraphics{', '\\frac', '\\def\\a{\\a\\a}', '\\text{', '{', '}', '^', '\n[a]: ', '[a]', '__proto__', 'constructor'];
const text_of = (d, all) => Array.from({ length: 1 + d.below(40) }, () => d.one(all)).join('');

// Each is long or deep in a way of its own: to be shown, formed or not, without holding up the page.
const LONG = {
	'a line of 10 MB': () => 'a'.repeat(10 << 20), 'a line of 10 MB of marks': () => '*_`['.repeat(10 << 18), 'open brackets': () => '['.repeat(195000),
	'open emphasis': () => '_a '.repeat(65000), 'strong in emphasis': () => '**a *b '.repeat(25000), 'formulas that do not end': () => '\\[\n'.repeat(65000),
	'blocks of formulas that do not end': () => '\n$$\na'.repeat(39000), 'formulas': () => '$a$ '.repeat(48000), 'deep lists': () => '- '.repeat(125000) + 'a',
	'deep quotes': () => '> '.repeat(125000) + 'a', 'a deep formula': () => '$$' + '{'.repeat(95000) + '}'.repeat(95000) + '$$', 'deep links': () => '[a]('.repeat(48000),
	'a wide table': () => '|' + 'a|'.repeat(20000) + '\n|' + '-|'.repeat(20000) + '\n', 'a high table': () => '|a|b|\n|-|-|\n' + '|x|y|\n'.repeat(20000),
	'code of angles': () => '```cpp\n' + 'a<b '.repeat(48000) + '\n```', 'much code': () => '```js\na=>b\n```\n'.repeat(20000),
	'backticks': () => Array.from({ length: 880 }, (_, i) => '`'.repeat(i)).join(' '), 'a macro that doubles': () => '$\\def\\a{\\b\\b}\\def\\b{\\c\\c}\\def\\c{\\d\\d}\\def\\d{\\a\\a}\\a$',
	'a formula of a mile': () => '$\\rule{1000000em}{1000000em}$ $\\kern{999999em}x$', 'marks of one letter': () => 'a' + '\u0301'.repeat(190000),
	'bidi': () => '\u202e\u2066\u2067\u2068'.repeat(25000), 'ANSI': () => '\u001b[2J\u001b[31m\u001b]0;x\u0007'.repeat(20000), 'references': () => '[a]: b\n'.repeat(25000),
};

const WIDE = ['a line of 10 MB', 'a wide table', 'a deep formula', 'a formula of a mile', 'bidi'];

// The page is there: it has not left, nothing of others ran or was asked for, it is no wider than its window, and it answers.
async function well(left, what) {
	const { page } = now;
	assert.equal(await page.evaluate(() => globalThis.harmed), undefined, what);
	assert.deepEqual([left, asked, await page.title()], [[], [], 'weft-tiny · weft'], what);
	const [inner, whole] = await page.evaluate(() => [innerWidth, document.documentElement.scrollWidth]);
	assert.ok(whole <= inner, `${what}: ${whole} wide on ${inner}`);
}

async function begin(width) {
	await now.context.close();
	await open({ viewport: { width, height: 800 } });
	await now.page.waitForFunction(() => document.title === 'weft-tiny · weft');
	return watch();
}

test('random texts of a model', async () => {
	const d = dice(SEED), all = pieces(), left = await begin(WIDTHS[0]);
	await model_says(says('here'));
	await ask('x');
	await answer();
	const texts = Array.from({ length: 10 * TRIES }, () => text_of(d, all));
	const found = await now.page.evaluate(async (list) => {
		const { markdown } = await import('/page/markdown.js');
		const { library } = await import('/page/libraries.js');
		await Promise.all([library('katex.js'), library('highlight.js')]);
		const place = document.querySelector('.message.assistant > .text'), out = [];
		for (const text of list) {
			place.replaceChildren(markdown(text));
			const wrong = judged(place);
			if (wrong) out.push([text, wrong]);
		}
		await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
		return out;
	}, texts);
	assert.deepEqual(found, []);
	await well(left, 'random texts');
});

for (const width of WIDTHS) {
	test(`what a model writes, thinks and calls, ${width} wide`, async () => {
		const d = dice(SEED + width), all = pieces(), left = await begin(width), { page } = now;
		const odd = () => text_of(d, all), n = Math.max(2, TRIES / 10);
		const hostile = Array.from({ length: n }, () => ({ content: odd(), thought: odd(), calls: [{ name: odd(), arguments: odd() }, { name: odd(), arguments: odd() }] }));
		await model_says(...hostile.map((h) => () => h), () => ({ status: 500, message: odd() }), says('still here'));
		for (let i = 0; i < n; i++) {
			await page.evaluate(() => document.getElementById('new').click());
			await ask(`${i}: ${odd().replace(/[\r\n]/g, ' ')}`);
			const box = await answer();
			assert.equal(await box.locator('> .text').evaluate((e) => judged(e)), '', hostile[i].content);
			for (const place of ['.thought > .text *', '.call > :not(code, textarea)', '.call code *', '.speaker .name *', '.speaker time *'])
				assert.equal(await box.locator(place).count(), 0, place);
			assert.deepEqual(await box.locator('.call code:nth-of-type(2)').allTextContents(), hostile[i].calls.map((c) => c.arguments));
			await well(left, `answer ${i}`);
		}
		now.expected = /500/;
		await page.evaluate(() => document.getElementById('new').click());
		await ask('x');
		await page.locator('.message.failed').waitFor();
		assert.equal(await page.locator('.message.failed p *').count(), 0);
		await page.evaluate(() => document.getElementById('new').click());
		await ask('y');
		assert.equal(await said(await answer()), 'still here');
		await picture(`hostile-${width}`);
		await well(left, 'the end');
	});

	test(`long and deep texts of a model, ${width} wide`, async () => {
		const left = await begin(width), { page } = now;
		const names = Object.keys(LONG).filter((name) => width === WIDTHS[0] || WIDE.includes(name));
		await model_says(...names.map((name) => () => ({ content: LONG[name](), thought: name === 'bidi' ? LONG[name]() : '' })), says('still here'));
		for (const name of [...names, 'the end']) {
			await page.evaluate(() => document.getElementById('new').click());
			await ask(name);
			const box = await answer();
			await well(left, name);
			if (name === 'the end') assert.equal(await said(box), 'still here');
		}
		// The list, and a conversation that is opened again, are there too, once all of them are in the database.
		await page.waitForFunction(count_of, names.length + 1);
		await page.reload();
		await ready();
		assert.equal(await page.locator('#list .open').count(), names.length + 1);
		await well(left, 'the list');
	});
}

test('prompts of others in the view of the engine', async () => {
	const d = dice(SEED + 3), all = pieces(), left = await begin(WIDTHS[0]), { page } = now;
	for (let i = 0; i < 4; i++) await by_api({ messages: [{ role: 'user', content: text_of(d, all).replace(/\ud800/g, '') }], max_tokens: 2 });
	await page.click('#tab-live');
	const nodes = page.locator('#tree .node');
	await nodes.first().waitFor();
	for (let i = 0; i < Math.min(4, await nodes.count()); i++) {
		await page.evaluate((k) => document.querySelectorAll('#tree .node')[k]?.dispatchEvent(new MouseEvent('click', { bubbles: true })), i);
		await page.locator('#node pre').waitFor();
	}
	assert.equal(await page.locator('#node pre *, #tree script, #tree foreignObject, #tree image, #requests a').count(), 0);
	await well(left, 'the engine');
});

// ---- files of conversations ----

const turn = (id, parent, more = {}) => ({ id, parent, role: 'user', content: `of ${id}`, ...more });
const file = (conversations, more = {}) => JSON.stringify({ ...KIND, conversations, ...more });
const one = (turns, more = {}) => file([{ turns, ...more }]);
const chain = (n, more = {}) => Array.from({ length: n }, (_, i) => turn(`t${i}`, i ? `t${i - 1}` : '', { role: i % 2 ? 'assistant' : 'user', ...more }));
const raw = (text) => text.replaceAll('"PROTO"', '"__proto__"');
const png = 'data:image/png;base64,';

// Files that are read or refused; either way nothing else of the page changes.
const files = () => ({
	'cycle': one([turn('a', 'b'), turn('b', 'a')]), 'own parent': one([turn('a', 'a')]), 'twice': one([turn('a', ''), turn('a', '')]),
	'parent later': one([turn('a', 'b'), turn('b', '')]), 'no content': one([{ id: 'a', parent: '', role: 'user' }]), 'numbers': one([turn(1, '')]),
	'list for a turn': one([[]]), 'proto turn': raw(one([turn('PROTO', ''), turn('x', 'PROTO')], { shown: { PROTO: 'x', constructor: 'x', toString: 'y' } })),
	'proto member': raw('{"PROTO":{"harmed":1},"kind":"weft conversations","version":1,"conversations":[{"PROTO":{"turns":[]},"turns":[{"PROTO":{"harmed":1},"id":"a","parent":"","role":"user","content":"x"}]}]}'),
	'ids of properties': one([turn('constructor', ''), turn('toString', 'constructor'), turn('hasOwnProperty', 'toString')], { shown: { '': 'constructor' } }),
	'ids with slashes': one([turn('a/head', ''), turn('../name', 'a/head'), turn('', 'a/head')]), 'odd ids': one([turn('\ud800', ''), turn('\0', '\ud800'), turn('\uffff', '\0')]),
	'scripts in titles': one([turn('a', '', { content: '<script>globalThis.harmed=1</script>' })], { name: `<img src=${evil()}/t onerror=globalThis.harmed=1>` }),
	'a name of 1 MB': one([turn('a', '')], { name: 'n'.repeat(1 << 20) }), 'a name that is a list': one([turn('a', '')], { name: ['<b>'] }),
	...Object.fromEntries(Object.entries({ '1 MB': 'n'.repeat(1 << 20), 'marks': 'a' + '\u0301'.repeat(190000) }).map(([what, long]) => [`small fields of ${what}`,
		one([turn('a', '', { files: [{ name: long, text: 't' }], pictures: [{ name: long, url: png + 'AAAA' }] }),
			turn('b', 'a', { role: 'assistant', stats: long, tool_calls: [{ id: 'c', function: { name: long, arguments: '{}' } }] }),
			turn('c', 'b', { role: 'tool', name: long, tool_call_id: 'c' })])])),
	'changed far away': one([turn('a', '')], { changed: 1e308 }), 'shown that is a text': one([turn('a', '')], { shown: 'abc' }), 'shown that is null': one([turn('a', '')], { shown: null }),
	'pictures elsewhere': one([turn('a', '', { pictures: [{ name: 'p', url: `${evil()}/p.png` }] })]), 'a picture of SVG': one([turn('a', '', { pictures: [{ name: 'p', url: 'data:image/svg+xml;base64,PHN2Zz4=' }] })]),
	'a picture of HTML': one([turn('a', '', { pictures: [{ name: '<b>', url: 'data:text/html;base64,PGI+' }] })]), 'a picture that is no base64': one([turn('a', '', { pictures: [{ name: 'p', url: png + '=a=' }] })]),
	'a picture of nothing': one([turn('a', '', { pictures: [{ name: 'p', url: png }, { name: '<script>', url: png + 'AAAA' }] })]), 'a picture of a line end': one([turn('a', '', { pictures: [{ name: 'p', url: png + 'AAAA\n' }] })]),
	'sounds elsewhere': one([turn('a', '', { sounds: [{ name: 's', url: `${evil()}/s.wav` }] })]), 'a sound of HTML': one([turn('a', '', { sounds: [{ name: '<b>', url: 'data:text/html;base64,PGI+' }] })]),
	'a sound of nothing': one([turn('a', '', { sounds: [{ name: '<script>', url: 'data:audio/wav;base64,AAAA' }] })]),
	'files': one([turn('a', '', { files: [{ name: '<b>x</b>', text: '```\n<script>globalThis.harmed=1</script>' }] })]), 'files of numbers': one([turn('a', '', { files: [{ name: 'x', text: 5 }] })]),
	'calls': one([turn('a', '', { role: 'assistant', tool_calls: [{ id: 'c', function: { name: '<img src=x onerror=globalThis.harmed=1>', arguments: '<b>' } }] })]),
	'calls of a user': one([turn('a', '', { tool_calls: [{ id: 'c', function: { name: 'f', arguments: '' } }] })]), 'no calls': one([turn('a', '', { role: 'assistant', tool_calls: [] })]),
	'stats and thoughts': one([turn('a', '', { role: 'assistant', stats: '<i>', reasoning_content: '<script>globalThis.harmed=1</script>', cut: 'zork' })]),
	'a result alone': one([turn('a', '', { role: 'tool', name: '<b>', tool_call_id: 'none' })]), 'an answer of attacks': one([turn('a', '', { role: 'assistant', content: pieces().join('') })]),
	'many turns': one(chain(3000)), 'many branches': one(Array.from({ length: 3000 }, (_, i) => turn(`b${i}`, ''))), 'many conversations': file(Array.from({ length: 300 }, (_, i) => ({ turns: [turn('a', '', { content: `c${i}` })] }))),
	'20 MB': one([turn('a', '', { content: 'x'.repeat(20 << 20) })]), 'deep': '['.repeat(200000) + ']'.repeat(200000), 'half': one([turn('a', '')]).slice(0, -5), 'empty': '', 'a byte order mark': '\ufeff' + one([turn('a', '')]),
	'good, then bad': file([{ turns: [turn('a', '')] }, { turns: [turn('a', 'none')] }]), 'a later version': one([turn('a', '')]).replace('"version":1', '"version":2'), 'null': 'null', 'turns that are an object': file([{ turns: { length: 1, 0: turn('a', '') } }]),
});

// A file of one conversation with all that a turn may have, changed at random: a member goes, or gets another value.
function damaged(d, all) {
	const at = JSON.parse(one([turn('a', '', { files: [{ name: 'f', text: 't' }], pictures: [{ name: 'p', url: png + 'AAAA' }] }),
		turn('b', 'a', { role: 'assistant', reasoning_content: 'r', stats: 's', tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }] }),
		turn('c', 'b', { role: 'tool', tool_call_id: 'c', name: 'f' }), turn('d', 'a', { role: 'assistant', cut: 'length' })], { name: 'n', changed: 5, shown: { '': 'a', a: 'b' } }));
	for (let n = 1 + d.below(3); n; n--) {
		let place = at.conversations[0];
		for (;;) {
			const keys = Object.keys(place), key = d.one(keys);
			if (!keys.length) break;
			if (place[key] && typeof place[key] === 'object' && d.below(4)) {
				place = place[key];
				continue;
			}
			const to = d.one([undefined, null, 0, -1, 1e308, true, '', 'a', 'b', '__proto__', 'user', 'assistant', [], {}, [null], { length: 1 }, text_of(d, all), png + text_of(d, all), place]);
			if (to === undefined) delete place[key];
			else place[key] = to === place ? structuredClone(place) : to;
			break;
		}
	}
	return JSON.stringify(at);
}

// Whether the database has that many conversations.  In the page.
const count_of = (n) => new Promise((done, failed) => {
	const ask = indexedDB.open('weft', 1);
	ask.onsuccess = () => {
		const all = ask.result.transaction('conversations').objectStore('conversations').getAllKeys();
		all.onsuccess = () => done(all.result.filter((k) => String(k).endsWith('/head')).length >= n);
		all.onerror = () => failed(all.error);
		ask.result.close();
	};
});

// What the database has, as it is.
const records = () => now.page.evaluate(() => new Promise((done, failed) => {
	const ask = indexedDB.open('weft', 1);
	ask.onsuccess = () => {
		const all = ask.result.transaction('conversations').objectStore('conversations').getAll();
		all.onsuccess = () => done(all.result);
		all.onerror = () => failed(all.error);
		ask.result.close();
	};
}));

async function read(name, text) {
	const path = join(dir, 'file.json');
	writeFileSync(path, text);
	await now.page.evaluate(() => document.getElementById('undo').replaceChildren());
	await now.page.setInputFiles('#import-file', path);
	await now.page.waitForFunction(() => /file\.json/.test(document.getElementById('undo').textContent));
	const told = await now.page.locator('#undo').innerText();
	assert.ok(!/TypeError|RangeError|undefined|null/.test(told), `${name}: ${told}`);
	globalThis.told = told;
	return told.includes(' imported from ');
}

for (const width of WIDTHS) {
	test(`files that are damaged or mean harm, ${width} wide`, async () => {
		const d = dice(SEED + width), all = pieces(), left = await begin(width), { page } = now;
		await model_says(says('kept answer'));
		await ask('kept');
		await answer();
		const kept = JSON.stringify(await records());
		const cases = [...Object.entries(files()), ...Array.from({ length: TRIES }, (_, i) => [`damaged ${i}`, damaged(d, all)])];
		let taken = 0;
		for (const [name, text] of cases) {
			const before = (await records()).length;
			const good = await read(name, text);
			taken += good;
			const now_there = await records();
			if (!good) assert.equal(now_there.length, before, `${name}: refused, and something of it is kept`);
			// Shown, each turn of it once, and nothing of it is more than text.
			await page.waitForFunction(() => document.querySelectorAll('.message').length || !document.getElementById('empty').hidden);
			assert.equal(await page.evaluate(() => [...document.querySelectorAll('.message.assistant > .text')].map((e) => judged(e)).join('')), '', name);
			assert.equal(await page.locator('#list .open *, .message.user > .text *, .thought > .text *, .call code *, .stats *, .message > .speaker .name *, .message > .speaker time *').count(), 0, name);
			await well(left, name);
			// What is not of the file stays as it was; what is goes, so that the next begins alike.
			const ids = JSON.parse(kept).map((r) => r.id);
			assert.equal(JSON.stringify(now_there.filter((r) => ids.includes(r.id))), kept, name);
			await page.evaluate((stay) => new Promise((done) => {
				const open_ = indexedDB.open('weft', 1);
				open_.onsuccess = () => {
					const t = open_.result.transaction('conversations', 'readwrite'), s = t.objectStore('conversations');
					s.getAllKeys().onsuccess = (e) => e.target.result.filter((k) => !stay.includes(k)).forEach((k) => s.delete(k));
					t.oncomplete = done;
					open_.result.close();
				};
			}), ids);
			await page.evaluate(() => document.getElementById('new').click());
		}
		assert.ok(taken > 10 && taken < cases.length - 10, `${taken} of ${cases.length} were read`);
		await page.reload();
		await ready();
		await page.evaluate(() => document.querySelector('#list .open').click());
		assert.equal(await said(await answer()), 'kept answer');
		await picture(`imports-${width}`);
	});
}

test('what was read is what is sent to a file', async () => {
	const { page } = now;
	const text = raw(file([{ name: 'n', turns: [turn('PROTO', ''), turn('x', 'PROTO', { role: 'assistant' }), turn('y', 'PROTO', { role: 'assistant' }), turn('a/b', 'x')], shown: { PROTO: 'x' } }]));
	assert.ok(await read('proto', text), globalThis.told);
	await page.locator('.message').nth(2).waitFor();
	const [sent] = await Promise.all([page.waitForEvent('download'), page.evaluate(() => document.getElementById('export').click())]);
	const path = join(dir, 'sent.json');
	await sent.saveAs(path);
	const [got] = JSON.parse(readFileSync(path)).conversations, [put] = JSON.parse(text).conversations;
	assert.deepEqual(got.turns.map(({ at, ...rest }) => rest), put.turns);
	assert.equal(got.shown.__proto__, 'x');
});
