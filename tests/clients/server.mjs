// A server of one's own, for tests with clients: node's part of tests/server/serverkit.py.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const PATIENCE = 60_000; // ms before a test gives up; never how long it takes

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export async function serve(...options) {
	const dir = mkdtempSync(join(tmpdir(), 'weft-clients-'));
	const portFile = join(dir, 'port');
	const process_ = spawn(process.env.WEFT_BIN, ['serve', '--port', '0', '--port-file', portFile, ...options],
		{ stdio: ['ignore', 'pipe', 'pipe'] });
	const s = { log: '' };
	process_.stdout.on('data', (d) => { s.log += d; });
	process_.stderr.on('data', (d) => { s.log += d; });

	s.until = async (what, condition) => {
		const end = Date.now() + PATIENCE;
		for (;;) {
			const got = await condition();
			if (got) return got;
			if (Date.now() > end) throw new Error(`${what}: not within ${PATIENCE} ms\n${s.log}`);
			await pause(5);
		}
	};
	s.health = async () => (await fetch(`${s.url}/health`)).json();
	s.idle = () => s.until('the engine is idle', async () => {
		const h = await s.health();
		return h.running === 0 && h.waiting === 0;
	});
	// A crash or a sanitizer's report is an error.
	s.stop = async () => {
		const ended = new Promise((done) => process_.once('exit', (code, signal) => done({ code, signal })));
		assert.equal(process_.exitCode, null, s.log);
		process_.kill('SIGTERM');
		assert.deepEqual(await ended, { code: 0, signal: null }, s.log);
		rmSync(dir, { recursive: true });
	};

	await s.until('the server listens', () => {
		if (process_.exitCode !== null) throw new Error(`the server ended:\n${s.log}`);
		return existsSync(portFile) && readFileSync(portFile, 'utf8').trim();
	});
	s.url = `http://127.0.0.1:${readFileSync(portFile, 'utf8').trim()}`;
	return s;
}
