// Makes the pictures of README.md: node picture.mjs, with WEFT_BIN naming the program.
// Two questions in the chat; then the engine at work for four other clients.
import { chromium } from 'playwright-core';
import { serve } from '../clients/server.mjs';

const server = await serve();
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', headless: true,
	args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
		'--disable-component-update', '--disable-sync'] });
const page = await browser.newPage({ viewport: { width: 1100, height: 760 }, colorScheme: 'light' });

async function ask(text, n) {
	await page.fill('#text', text);
	await page.press('#text', 'Enter');
	await page.locator('.message.assistant').nth(n).locator('> .acts').waitFor();
}
await page.goto(server.url);
await page.waitForFunction(() => document.getElementById('list-note').textContent);
await page.click('#settings-open');
await page.fill('#temperature', '0');
await page.click('#settings-close');
await ask('What is the capital of France?', 0);
await ask('And what is the capital of Peru?', 1);
await page.screenshot({ path: '../../docs/page-chat.png' });
const over = new AbortController();
for (const word of ['a', 'b', 'c', 'd'])
	fetch(`${server.url}/v1/chat/completions`, { method: 'POST', signal: over.signal, headers: { 'content-type': 'application/json' },
		body: JSON.stringify({ messages: [{ role: 'user', content: `Repeat: ${word} b c` }], max_tokens: 3900, ignore_eos: true }) })
		.catch(() => null);
await page.focus('#tab-chat');
await page.keyboard.press('ArrowRight');
await page.locator('#tree .node').first().waitFor();
await page.waitForFunction(() => document.querySelectorAll('.bar meter').length > 2);
await page.waitForFunction(() => Number(document.querySelector('.tile:nth-child(3)')?.textContent.match(/\d+$/)?.[0]) > 100);
await page.screenshot({ path: '../../docs/page-engine.png' });
over.abort();
await browser.close();
await server.stop();
