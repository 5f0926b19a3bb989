// Text files and PDF documents: their text is seen before it is sent, and what cannot be read is told.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answer, ask, bring, findings, model_says, now, open, picture, ready, says, watch } from './kit.mjs';

// A PDF of these pages: lines of text each, or null for one without any.  more: members of the trailer; pages that share
// a stream of text say of.
function pdf(pages, more = '') {
	const objects = ['<< /Type /Catalog /Pages 2 0 R >>', null, '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>'];
	const kids = [], streams = new Map();
	for (const lines of pages) {
		if (!streams.has(lines)) {
			const escaped = (text) => text.replace(/[\\()]/g, '\\$&');
			const code = lines ? `BT /F1 12 Tf 40 800 Td 14 TL ${lines.map((l) => `(${escaped(l)}) Tj T*`).join(' ')} ET` : '0 0 100 100 re f';
			objects.push(`<< /Length ${code.length} >>\nstream\n${code}\nendstream`);
			streams.set(lines, objects.length);
		}
		objects.push(`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 6000 842] /Resources << /Font << /F1 3 0 R >> >> /Contents ${streams.get(lines)} 0 R >>`);
		kids.push(`${objects.length} 0 R`);
	}
	objects[1] = `<< /Type /Pages /Count ${kids.length} /Kids [${kids.join(' ')}] >>`;
	let out = '%PDF-1.4\n';
	const places = objects.map((o, i) => {
		const at = out.length;
		out += `${i + 1} 0 obj\n${o}\nendobj\n`;
		return at;
	});
	const at = out.length;
	out += `xref\n0 ${places.length + 1}\n0000000000 65535 f \n${places.map((p) => `${String(p).padStart(10, '0')} 00000 n \n`).join('')}`;
	return [...Buffer.from(`${out}trailer\n<< /Size ${places.length + 1} /Root 1 0 R ${more} >>\nstartxref\n${at}\n%%EOF\n`, 'latin1')];
}
const bring_pdf = (name, ...of) => bring('drop', [[name, 'application/pdf', pdf(...of)]]);

const chips = () => now.page.locator('#attached .doc .chip');
const problem = () => now.page.locator('#attach-problem');

test('the text of a PDF is seen, and sent; the library comes with the first', async () => {
	const { page } = now;
	const fetched = [], left = watch();
	page.context().on('request', (r) => fetched.push(new URL(r.url()).pathname));
	const sent = await model_says(says('read'));
	await bring('drop', [['notes.txt', 'text/plain', [...Buffer.from('noted\n')]]]);
	await chips().nth(0).waitFor();
	assert.deepEqual(fetched.filter((p) => /pdf|reader/.test(p)), []);
	const hostile = '<img src=x onerror=globalThis.harmed=1>';
	await bring_pdf('invoice.pdf', [['Invoice (4711)', 'for two llamas'], ['Second page', hostile]]);
	await chips().nth(1).waitFor();
	assert.ok(fetched.includes('/page/reader.js'), fetched.join());
	const text = `Invoice (4711)\nfor two llamas\n\nSecond page\n${hostile}`;
	assert.match(await chips().nth(1).innerText(), new RegExp(`invoice.pdf\\s*${text.length} characters`));
	// By keyboard, and still open when another comes.
	const box = page.locator('#attached .doc', { hasText: 'invoice.pdf' });
	await box.locator('summary').focus();
	await page.keyboard.press('Enter');
	assert.equal(await box.locator('pre').innerText(), text);
	await bring_pdf('other.pdf', [['other']]);
	await chips().nth(2).waitFor();
	assert.equal(await box.locator('details').evaluate((d) => d.open), true);
	await picture('documents');
	await page.setViewportSize({ width: 390, height: 700 });
	await picture('documents-phone');
	await page.getByLabel('Remove other.pdf').click();
	await ask('What is due?');
	await answer();
	assert.equal(sent[0].messages[0].content, `notes.txt:\n\`\`\`\nnoted\n\n\`\`\`\n\ninvoice.pdf:\n\`\`\`\n${text}\n\`\`\`\n\nWhat is due?`);
	await page.locator('.message.user summary').nth(1).click();
	assert.equal(await page.locator('.message.user pre').nth(1).innerText(), text);
	await picture('documents-sent-phone');
	assert.equal(await page.evaluate(() => globalThis.harmed), undefined);
	assert.deepEqual(left, []);
});

const LOCK = `/Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <${'41'.repeat(32)}> /U <${'42'.repeat(32)}> >> /ID [<${'43'.repeat(16)}> <${'43'.repeat(16)}>]`;

test('a PDF that has no text for us says why, and what can be done', async () => {
	const { page } = now;
	await bring('drop', [['scan.pdf', 'application/pdf', pdf([null, null])], ['secret.pdf', '', pdf([['x']], LOCK)],
		['broken.pdf', '', [...Buffer.from('%PDF-1.4\nnothing')]], ['empty.pdf', '', []], ['good.pdf', '', pdf([['good']])]]);
	await chips().nth(0).waitFor();
	const words = await problem().innerText();
	for (const line of [/^scan\.pdf has no text, only pictures .* \(OCR\)/m, /^secret\.pdf is locked with a password: save a copy/m, /^broken\.pdf is damaged, or is not a PDF/m,
		/^empty\.pdf is damaged, or is not a PDF/m]) assert.match(words, line);
	assert.equal(words.split('\n').length, 4);
	assert.match(await chips().innerText(), /good\.pdf/);
	await picture('documents-refused');
	await page.setViewportSize({ width: 390, height: 700 });
	await picture('documents-refused-phone');
	// What is too large to be read at all.
	await page.evaluate(() => {
		const data = new DataTransfer();
		data.items.add(new File([new Uint8Array((50 << 20) + 1)], 'huge.pdf', { type: 'application/pdf' }));
		document.getElementById('log').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
	});
	await page.getByText('huge.pdf has 50 MB, at most 50 MB').waitFor();
});

test('of a long PDF the first part is read, and says so', async () => {
	const { page } = now;
	const text = () => page.locator('#attached pre').last().textContent();
	const line = ['page']; // the same for all: one stream
	await bring_pdf('pages.pdf', [...Array(1000).fill(line), ['beyond']]);
	await chips().nth(0).waitFor();
	assert.ok((await text()).endsWith('page\n\n[This is the text of the first 1000 of 1001 pages.]'));
	assert.doesNotMatch(await text(), /beyond/);
	const many = Array(50).fill('x'.repeat(900));
	await bring_pdf('letters.pdf', Array(23).fill(many));
	await chips().nth(1).waitFor();
	assert.match(await chips().nth(1).innerText(), /1,000,0\d\d characters/);
	assert.match(await page.locator('#attached .doc').nth(1).locator('pre').evaluate((e) => e.textContent), /more characters are not shown/);
	// Pages without text among others.
	await bring_pdf('mixed.pdf', [['words'], null, null]);
	await chips().nth(2).waitFor();
	assert.equal(await text(), 'words\n\n[2 of its pages have no text.]');
});

// Workers do not get their file before the function that is returned is called.
async function hold_readers() {
	let go;
	const gone = new Promise((done) => { go = done; });
	await now.context.route('**/page/reader.js', async (route) => {
		await gone;
		await route.continue().catch(() => null);
	});
	return go;
}

test('a PDF that is being read: sending waits, it can be given up, and it ends', async () => {
	const { page } = now;
	now.expected = /ERR_ABORTED|ERR_FAILED/;
	await page.clock.install();
	const go = await hold_readers();
	await bring_pdf('slow.pdf', [['slow']]);
	await page.getByText('reading', { exact: true }).waitFor();
	await page.fill('#text', 'What is in it?');
	await page.press('#text', 'Enter');
	await page.getByText('slow.pdf is still being read').waitFor();
	assert.equal(await page.inputValue('#text'), 'What is in it?');
	assert.equal(await page.locator('.message').count(), 0);
	await picture('documents-reading');
	await page.getByLabel('Remove slow.pdf').click();
	await page.waitForFunction(() => document.getElementById('attached').hidden);
	await bring_pdf('late.pdf', [['late']]);
	await page.getByText('reading', { exact: true }).waitFor();
	await page.clock.fastForward(31000);
	await page.getByText('late.pdf takes too long to read').waitFor();
	assert.equal(await page.locator('#attached').isHidden(), true);
	go();
});

test('a build without the library says so', async () => {
	await now.page.route('**/page/libraries.js', async (route) => {
		const reply = await route.fetch();
		return route.fulfill({ response: reply, body: (await reply.text()).replace('"pdf.js"', '"other.js"') });
	});
	await now.page.reload();
	await ready();
	await bring_pdf('invoice.pdf', [['x']]);
	await now.page.getByText('invoice.pdf is a PDF, which this build of weft does not read').waitFor();
});

test('axe finds nothing about documents', async () => {
	for (const [colorScheme, width] of [['light', 390], ['dark', 1200]]) {
		await now.context.close();
		await open({ viewport: { width, height: 700 }, colorScheme, bypassCSP: true });
		const { page } = now;
		await model_says(says('read'));
		await bring('drop', [['a.pdf', '', pdf([['text of the document', 'in two lines']])], ['broken.pdf', '', [1, 2]]]);
		await chips().nth(0).waitFor();
		await page.locator('#attach-problem', { hasText: 'broken.pdf' }).waitFor(); // what is still being read is not sent
		await page.locator('#attached summary').click();
		assert.deepEqual(await findings(), []);
		await picture(`documents-${colorScheme}`);
		await ask('x');
		await answer();
		await page.locator('.message.user summary').click();
		assert.deepEqual(await findings(), []);
		await picture(`documents-sent-${colorScheme}`);
	}
});
