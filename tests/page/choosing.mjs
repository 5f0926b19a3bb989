// A server of several models: choosing one, and which of them wrote an answer.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { serve } from '../clients/server.mjs';
import { answer, ask, greedy, now, picture, press, QUESTION, ready, said } from './kit.mjs';

const NAMES = ['weft-tiny', 'weft-tiny-4bit'];
const MODELS = NAMES.map((name) => join(import.meta.dirname, '../../models', name));
const who = (box) => box.locator('> .speaker .name').innerText();

test('one model is not a choice, and is named with its answers', async () => {
	await greedy();
	await ask(QUESTION);
	assert.equal(await who(await answer()), (await (await fetch(`${now.server.url}/props`)).json()).model);
	assert.ok(await now.page.locator('#models').isHidden());
});

test('a model is chosen, and remembered with each answer', async () => {
	const s = await serve(...MODELS, '--ctx-size', '4096', '--memory', '2G');
	try {
		const { page } = now;
		const by_api = async (model, messages) => (await (await fetch(`${s.url}/v1/chat/completions`, { method: 'POST',
			headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model, messages, temperature: 0 }) })).json()).choices[0].message;
		await page.goto(s.url);
		await ready();
		await page.locator('#models').waitFor();
		assert.deepEqual(await page.locator('#models option').allInnerTexts(), NAMES);
		assert.equal(await page.inputValue('#models'), NAMES[0]);
		await greedy();
		await ask(QUESTION);
		const messages = [{ role: 'user', content: QUESTION }, { role: 'assistant', content: await said(await answer()) }];
		assert.equal(messages[1].content, (await by_api(NAMES[0], messages.slice(0, 1))).content);
		await page.selectOption('#models', NAMES[1]);
		await page.waitForFunction(() => document.querySelector('#model').textContent.includes('unloaded'));
		messages.push({ role: 'user', content: 'And of Italy?' });
		await ask(messages[2].content);
		assert.equal(await said(await answer(1)), (await by_api(NAMES[1], messages)).content);
		await press(await answer(0), 'Regenerate');
		await (await answer(0)).getByText('2 of 2').waitFor();
		await picture('models');
		await page.reload();
		await ready();
		assert.equal(await who(await answer(0)), NAMES[1]);
		await press(await answer(0), 'Earlier version');
		assert.deepEqual([await who(await answer(0)), await who(await answer(1))], NAMES);
		await page.waitForFunction((name) => document.querySelector('#models').value === name, NAMES[1]);
		// The engine is that of the chosen model.
		await page.click('#tab-live');
		await page.locator('#tree .node').first().waitFor();
		const asked = page.waitForRequest((r) => r.url().endsWith(`/v1/cache?model=${NAMES[0]}`));
		await page.selectOption('#models', NAMES[0]);
		await asked;
	} finally {
		await now.context.close();  // a page asks its server, and complains where there is none
		await s.stop();
	}
});

test('another model behind the same address is noticed', async () => {
	const { page } = now;
	const other = (path, change) => page.route(path, async (route) => route.fulfill({ json: { ...await (await route.fetch()).json(), ...change } }));
	await page.getByText('weft-tiny, context').waitFor();
	// The server was never seen to be away.
	await other('**/props', { model: 'other-model', modalities: { vision: true, audio: false } });
	await other('**/health', { model: 'other-model' });
	await page.getByText('other-model, context').waitFor();
	assert.match(await page.title(), /^other-model/);
});

test('an answer tells when, and by which model', async () => {
	const { page } = now;
	await ask(QUESTION);
	await answer();
	for (const kind of ['user', 'assistant']) {
		const time = page.locator(`.message.${kind} .speaker time`);
		const at = Date.parse(await time.getAttribute('datetime'));
		assert.ok(Math.abs(Date.now() - at) < 600_000, kind);
	}
	await page.clock.setFixedTime(Date.now() + 86400_000);
	await page.reload();
	await ready();
	assert.match(await page.locator('.message.user .speaker time').innerText(), /20\d\d/);
});
