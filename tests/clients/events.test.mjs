// kv-events by ZeroMQ's and MessagePack's official packages: live and replayed, what they announce is what a prompt finds.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { decode } from '@msgpack/msgpack';
import { Dealer, Subscriber } from 'zeromq';
import { PATIENCE, serve } from './server.mjs';

const dir = mkdtempSync(join(tmpdir(), 'weft-events-'));
const [events, replay] = ['events', 'replay'].map((name) => `ipc://${join(dir, name)}`);
const END = 2n ** 64n - 1n;
let server, live;

before(async () => {
	server = await serve('--threads', '1', ...[`kv-events=${events}`, `kv-events-replay=${replay}`].flatMap((o) => ['--tune', o]));
	live = new Subscriber({ receiveTimeout: 500 });
	live.connect(events);
	live.subscribe('kv-events');
});

after(async () => {
	live.close();
	await server.stop();
	rmSync(dir, { recursive: true });
});

async function replayed(from) {
	const dealer = new Dealer({ receiveTimeout: PATIENCE }), number = Buffer.alloc(8), batches = [];
	dealer.connect(replay);
	number.writeBigUInt64BE(from);
	await dealer.send(['', number]);
	for (;;) {
		const [empty, seq, payload] = await dealer.receive();
		assert.equal(empty.length, 0);
		if (seq.readBigUInt64BE() === END) break;
		batches.push([seq.readBigUInt64BE(), payload]);
	}
	dealer.close();
	return batches;
}

// The announced blocks, by name, after some batches.
function blocks(batches) {
	const have = new Map();
	for (const [, payload] of batches) {
		const [seconds, said, rank] = decode(payload, { useBigInt64: true });
		assert.ok(Math.abs(seconds - Date.now() / 1000) < 3600 && rank === 0);
		for (const e of said) {
			if (e.type === 'AllBlocksCleared') have.clear();
			else if (e.type === 'BlockRemoved') e.block_hashes.forEach((name) => assert.ok(have.delete(name)));
			else {
				assert.equal(e.type, 'BlockStored');
				assert.equal(e.token_ids.length, e.block_hashes.length * e.block_size);
				e.block_hashes.forEach((name, i) => have.set(name, { parent: i ? e.block_hashes[i - 1] : e.parent_block_hash,
					tokens: e.token_ids.slice(i * e.block_size, (i + 1) * e.block_size), size: e.block_size }));
			}
		}
	}
	return have;
}

async function complete(prompt) {
	const r = await fetch(`${server.url}/v1/completions`, { method: 'POST', headers: { 'content-type': 'application/json' },
		body: JSON.stringify({ prompt, max_tokens: 1, temperature: 0 }) });
	assert.equal(r.status, 200);
	return (await r.json()).usage.prompt_tokens_details.cached_tokens;
}

test('live and replayed, and what a prompt finds', async () => {
	const prompt = Array.from({ length: 200 }, (_, i) => 7 * i % 500 + 10);
	assert.equal(await complete(prompt), 0);
	const old = await server.until('three blocks', async () => {
		const all = await replayed(0n);
		assert.deepEqual(all.map(([seq]) => seq), all.map((_, i) => BigInt(i)));
		return blocks(all).size >= 3 && all;
	});
	const have = [...blocks(old).values()], { size } = have[0];
	const announced = Math.max(...have.map((b) => prompt.findIndex((_, i) => b.tokens.every((t, k) => t === prompt[i + k])) + size));
	assert.equal(announced, Math.floor(199 / size) * size);
	assert.equal(await complete([...prompt.slice(0, announced), 5]), announced);

	// A subscriber hears what comes after it: the same bytes as the replay's.
	let other = 0;
	const [topic, seq, payload] = await server.until('a batch', async () => {
		other++;
		await complete(prompt.map((t) => t + other));
		return live.receive().catch(() => null); // its subscription may come after the batch
	});
	assert.equal(topic.toString(), 'kv-events');
	const again = await replayed(seq.readBigUInt64BE());
	assert.deepEqual(again[0], [seq.readBigUInt64BE(), payload]);
});
