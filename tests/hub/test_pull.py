"""weft pull, list and rm, and --pull, against a hub that this test runs (hub_server.py): what arrives, what goes over
the network, what each fault of a hub or a store leads to, and what an interrupted fetch leaves.

usage: test_pull.py WEFT MODEL_FOLDER
"""
import hashlib, http.server, json, os, shutil, signal, subprocess, sys, tempfile, threading, unittest

import hub_server as hub

WEFT, TINY = sys.argv[1:3]
GOOD = hub.TOKEN


def read(path):
    with open(path, 'rb') as f: return f.read()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    def handle_error(self, request, address): pass  # a client that was killed


class Gate:
    """Holds the store back: after `open` answers, the next wait until let() is called; held is set when one waits."""
    def __init__(self): self.left, self.held, self.go = None, threading.Event(), threading.Event()
    def hold(self, after): self.left = after; self.held.clear(); self.go.clear()
    def let(self): self.left = None; self.go.set()
    def passing(self):
        if self.left is None: return
        self.left -= 1
        if self.left < 0:
            self.held.set()
            self.go.wait(60)


GATE = Gate()


class Store(hub.Store):
    def answer(self, *args, **kwargs):
        if self.command == 'GET': GATE.passing()
        try: super().answer(*args, **kwargs)
        except (BrokenPipeError, ConnectionResetError): self.close_connection = True


class Hub(hub.Hub):
    lies = {}    # (repo, path) -> entry members that the list of files has instead
    more = []    # entries that every list has too
    extra = ()   # headers of every answer
    def entries(self, repo, commit):
        return [dict(e, **self.lies.get((repo, e['path']), {})) for e in super().entries(repo, commit)] + self.more
    def answer(self, status, head=(), *args, **kwargs):
        try: super().answer(status, [*head, *self.extra], *args, **kwargs)
        except (BrokenPipeError, ConnectionResetError): self.close_connection = True


def serve():
    servers = [Server(('127.0.0.1', 0), c) for c in (Store, Hub)]
    for s in servers:
        threading.Thread(target=s.serve_forever, daemon=True).start()
    hub.Hub.page, hub.Hub.store = 6, 'http://127.0.0.1:%d' % servers[0].server_port
    return 'http://127.0.0.1:%d' % servers[1].server_port


def add_model(repo, folder):
    files = {n: read(os.path.join(folder, n)) for n in os.listdir(folder)}
    commit = hashlib.sha1(repo.encode()).hexdigest()
    hub.COMMITS[repo, commit], hub.REVS[repo] = files, {'main': commit}


ENDPOINT = serve()
add_model('weft/tiny', TINY)


class Pull(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.cache = os.path.join(self.dir, 'hub')
        with hub.LOCK: hub.LOG.clear(); hub.COUNT.clear(); hub.SIGNS.clear()
        Hub.lies, Hub.more, Hub.extra, hub.Hub.page = {}, [], (), 6

    def env(self, **more):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(('HF_', 'WEFT_', 'HUGGING')) and 'proxy' not in k.lower()}
        return dict(keep, HOME=self.dir, HF_ENDPOINT=ENDPOINT, HF_HUB_CACHE=self.cache, **more)

    def start(self, *args, **env):
        return subprocess.Popen([WEFT, *args], env=self.env(**env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def weft(self, *args, code=0, **env):
        p = self.start(*args, **env)
        out, err = p.communicate(timeout=120)
        self.assertEqual(p.returncode, code, err)
        return out.strip(), err

    def says(self, *args, word, **env):
        out, err = self.weft(*args, code=1, **env)
        self.assertIn(word, err)
        self.assertNotIn('sig=', err)
        self.assertEqual(out, '')

    def requests(self, who, method=None):
        with hub.LOCK: return [r for r in hub.LOG if r[0] == who and method in (None, r[1])]

    def check(self, folder, repo, paths, revision='main'):
        """The snapshot has these files and no others, with the right bytes behind links into blobs/."""
        there = sorted(os.path.relpath(os.path.join(d, f), folder) for d, _, fs in os.walk(folder) for f in fs)
        self.assertEqual(there, sorted(paths))
        truth = hub.COMMITS[repo, hub.REVS[repo][revision]]
        for p in paths:
            at = os.path.join(folder, p)
            self.assertEqual(read(at), truth[p], p)
            self.assertEqual(os.readlink(at), '../' * (2 + p.count('/')) + 'blobs/' + hub.blob(p, truth[p]))
        blobs = os.listdir(os.path.join(os.path.dirname(os.path.dirname(folder)), 'blobs'))
        self.assertEqual([b for b in blobs if 'weft' in b], [])

    # ---- what arrives ----

    FOLDER = ['config.json', 'dup.txt', 'empty.txt', 'model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors',
              'model.safetensors.index.json', 'tokenizer.json']

    def test_folder(self):
        path, _ = self.weft('pull', 'tiny/model', HF_TOKEN=GOOD)
        self.check(path, 'tiny/model', self.FOLDER)
        ref = read(os.path.join(self.cache, 'models--tiny--model/refs/main')).decode()
        self.assertEqual(ref, hub.REVS['tiny/model']['main'])
        self.assertTrue(all('authorization' in r[3] for r in self.requests('hub')))
        self.assertFalse(any('authorization' in r[3] for r in self.requests('store')))
        with hub.LOCK: hub.LOG.clear()
        again, err = self.weft('pull', 'tiny/model')
        self.assertEqual(again, path)
        self.assertIn('all there already', err)
        self.assertEqual(len(self.requests('hub')), 1)  # the commit; its list of files is kept
        self.assertEqual(self.requests('store'), [])

    def test_revisions(self):
        for name in ('refs/pr/1', 'v1.0', hub.REVS['tiny/model']['main']):
            path, _ = self.weft('pull', 'tiny/model@' + name)
            commit = hub.REVS['tiny/model'].get(name, name)
            self.assertTrue(path.endswith(commit))
            self.assertEqual(read(path + '/config.json'), hub.COMMITS['tiny/model', commit]['config.json'])
        self.assertFalse(os.path.exists(self.cache + '/models--tiny--model/refs/main'))

    def test_renamed(self):
        path, _ = self.weft('pull', 'tiny/old-name')
        self.assertEqual(read(path + '/tokenizer.json'), hub.REPOS['tiny/model']['tokenizer.json'])

    def test_gguf(self):
        path, _ = self.weft('pull', 'tiny/model-GGUF')
        self.assertTrue(path.endswith('/model-UD-Q4_K_M.gguf'))
        self.check(os.path.dirname(path), 'tiny/model-GGUF', ['model-UD-Q4_K_M.gguf', 'mmproj-F16.gguf'])
        path, _ = self.weft('pull', 'tiny/model-GGUF:bf16', '--mmproj', 'none')
        self.assertTrue(path.endswith('/BF16/model-BF16-00001-of-00003.gguf'))
        self.says('pull', 'tiny/model-GGUF:Q2_K', word='there are: BF16/model-BF16-00001-of-00003.gguf, model-Q8_0.gguf')
        out, _ = self.weft('list')
        self.assertIn('GGUF BF16, Q4_K_M', out)
        self.assertIn('one argument too many', self.weft('list', 'tiny/model-GGUF', code=2)[1])
        self.assertIn('not an option', self.weft('list', '--model', 'tiny/model-GGUF', code=2)[1])
        _, err = self.weft('rm', 'tiny/model-GGUF:BF16')
        self.assertIn('freed', err)
        out, _ = self.weft('list', '--json')
        self.assertEqual([m['formats'] for m in json.loads(out)], ['GGUF Q4_K_M'])
        self.weft('rm', 'tiny/model-GGUF')
        self.assertFalse(os.path.exists(self.cache + '/models--tiny--model-GGUF'))
        self.says('rm', 'tiny/model-GGUF', word='not in the cache')

    def test_answers(self):
        """A model that is fetched first answers as the folder does."""
        ask = ['-p', 'What is the capital of Peru?', '--temp', '0', '-n', '8']
        want, _ = self.weft('run', TINY, *ask)
        self.says('run', 'weft/tiny', *ask, word='weft pull weft/tiny')
        got, _ = self.weft('run', 'weft/tiny', '--pull', *ask)
        self.assertEqual(got, want)
        with hub.LOCK: hub.LOG.clear()
        self.assertEqual(self.weft('run', 'weft/tiny', '--pull', *ask)[0], want)
        self.assertEqual(self.requests('hub'), [])  # what is there is not asked for

    # ---- faults ----

    def faulty(self, keep):
        """tiny/faults with these files alone."""
        commit = hub.REVS['tiny/faults']['main']
        files = hub.COMMITS['tiny/faults', commit]
        hub.COMMITS['tiny/faults', commit] = {p: b for p, b in files.items() if keep(p)}
        self.addCleanup(hub.COMMITS.__setitem__, ('tiny/faults', commit), files)
        return hub.COMMITS['tiny/faults', commit]

    def test_faults(self):
        files = self.faulty(lambda p: p not in ('nohub.bin', 'loop.bin'))
        path, _ = self.weft('pull', 'tiny/faults', '--all', '--connections', '1')
        self.check(path, 'tiny/faults', list(files))
        self.assertFalse(any('authorization' in r[3] for r in self.requests('store')))

    def test_faults_in_parts(self):
        files = self.faulty(lambda p: p not in ('nohub.bin', 'loop.bin'))
        path, _ = self.weft('pull', 'tiny/faults', '--all', '--connections', '4', '--part-size', '30K')
        self.check(path, 'tiny/faults', list(files))

    def test_no_hub(self):
        self.faulty(lambda p: p == 'nohub.bin')
        self.says('pull', 'tiny/faults', '--all', word='not the hub')

    def test_loop(self):
        self.faulty(lambda p: p == 'loop.bin')
        self.says('pull', 'tiny/faults', '--all', word='redirects without an end')

    def test_refusals(self):
        self.says('pull', 'tiny/nope', word='no such model')
        self.says('pull', 'tiny/private', word='set HF_TOKEN')
        self.weft('pull', 'tiny/private', '--all', HF_TOKEN=GOOD)
        self.says('pull', 'tiny/model@nope', word='no such branch')
        self.says('pull', 'tiny/gated', word='accept its conditions')
        self.says('pull', 'tiny/gated', word='not been granted', HF_TOKEN=hub.POOR)
        self.says('pull', 'tiny/gated', word='wrong or expired', HF_TOKEN='hf_no')
        self.says('pull', 'plainname', word='neither safetensors nor GGUF')
        self.says('pull', 'a/../b', word='no name of a model')
        self.says('inspect', 'tiny/gated', word='weft pull tiny/gated')  # nothing half fetched is a model
        self.assertEqual(self.weft('pull', code=2)[0], '')

    def test_always_wrong(self):
        """A digest that never fits ends the fetch, and no link is made."""
        commit = hub.REVS['tiny/model']['main']
        files = hub.COMMITS['tiny/model', commit]
        bad = dict(files, **{'model-00002-of-00002.safetensors': b'x' * 123457})
        truth = hub.blob('model-00002-of-00002.safetensors', files['model-00002-of-00002.safetensors'])
        whole = hub.Store.answer
        def other(s, status, head=(), body=b'', cut=None, length=None):
            if body == files['model-00002-of-00002.safetensors']: body = bad['model-00002-of-00002.safetensors']
            return whole(s, status, head, body, cut, length)
        hub.Store.answer = other
        self.addCleanup(setattr, hub.Store, 'answer', whole)
        self.says('pull', 'tiny/model', word='another digest')
        self.assertFalse(os.path.exists(self.cache + '/models--tiny--model/snapshots'))
        self.assertNotIn(truth, os.listdir(self.cache + '/models--tiny--model/blobs'))

    def test_sizes_that_differ(self):
        Hub.lies = {('tiny/model', 'config.json'): {'size': 7}}
        self.says('pull', 'tiny/model', word='names 25 bytes')

    def test_room(self):
        Hub.lies = {('tiny/model-GGUF', 'model-Q8_0.gguf'): {'size': 10**15}}
        self.says('pull', 'tiny/model-GGUF:Q8_0', word='has room for')
        self.assertEqual(self.requests('store'), [])

    def test_paths(self):
        """A path that leads elsewhere is no file of the model."""
        Hub.lies = {('tiny/model', 'dup.txt'): {'path': '../../../../evil.txt'}, ('tiny/model', 'empty.txt'): {'path': '/etc/evil.txt'}}
        path, _ = self.weft('pull', 'tiny/model')
        self.check(path, 'tiny/model', [p for p in self.FOLDER if p not in ('dup.txt', 'empty.txt')])

    def test_offline(self):
        self.says('pull', 'tiny/model', word='HF_HUB_OFFLINE', HF_HUB_OFFLINE='1')
        path, _ = self.weft('pull', 'tiny/model')
        with hub.LOCK: hub.LOG.clear()
        self.assertEqual(self.weft('pull', 'tiny/model', HF_HUB_OFFLINE='1')[0], path)
        self.assertEqual(hub.LOG, [])

    # ---- a hub that is hostile ----

    def test_headers(self):
        """Floods and long lines end the request; control bytes of a header reach no terminal."""
        for n in (100, 100000):
            Hub.extra = [('Location', 'x' * 1000)] * n
            if n == 100000: self.says('pull', 'tiny/model', word='header lines of more than 65536 bytes')
        Hub.extra = [('Link', '<' * 7000)] * 5 + [('X-HF-Warning', 'a' * 9000)]
        self.weft('pull', 'tiny/model')
        Hub.extra = [('X-HF-Warning', 'mind\x1b[31m;\x07 this')]
        _, err = self.weft('pull', 'tiny/model')
        self.assertIn('mind?[31m;? this', err)
        Hub.extra = [('X-Error-Message', '\x1b]0;title\x07')]
        _, err = self.weft('pull', 'tiny/nope', code=1)
        self.assertFalse(set(err) & {'\x1b', '\x07'}, err)

    def entry(self, path, size): return {'type': 'file', 'oid': '0' * 40, 'size': size, 'path': path, 'lfs': {'oid': hashlib.sha256(path.encode()).hexdigest(), 'size': size}}

    def test_sizes(self):
        """No size, and no sum of sizes, passes for one that there is room for."""
        for size in (2**63 - 1, 2**63, 2**64, 2**50 + 1, -1, 1e300, '5', None):
            Hub.more = [self.entry('big.gguf', size)]
            self.says('pull', 'tiny/model', '--all', word='not as it is documented')
        hub.Hub.page = 2000
        for n in (1, 3000):
            Hub.more = [self.entry('%d.bin' % i, 2**50) for i in range(n)]
            shutil.rmtree(self.cache, ignore_errors=True)
            self.says('pull', 'tiny/model', '--all', word='has room for')
        Hub.more = [self.entry('x-Q2_K-00001-of-99999.gguf', 1)] + [self.entry('f%d' % i, 1) for i in range(3000)]
        shutil.rmtree(self.cache, ignore_errors=True)
        self.says('pull', 'tiny/model:Q2_K', word='1 of its 99999 parts')

    def test_names_on_disk(self):
        """Names that other programs gave files of the cache: no control byte, no broken JSON, and nothing outside is removed."""
        self.weft('pull', 'tiny/model-GGUF')
        there = os.path.join(self.cache, 'models--tiny--model-GGUF/snapshots', hub.REVS['tiny/model-GGUF']['main'])
        outside = os.path.join(self.dir, 'blobs', '0' * 40)
        os.mkdir(os.path.dirname(outside))
        with open(outside, 'w') as f: f.write('kept')
        os.symlink(outside, os.path.join(there, 'm-Q8_0.gguf'))
        with open(os.path.join(there, 'm-"Q\x1b[31m\n4.gguf'), 'w') as f: f.write('x')
        out, _ = self.weft('list', '--json')
        self.assertIn('?Q??31m?4', json.loads(out)[0]['formats'])
        self.assertNotIn('\x1b', self.weft('list')[0])
        self.weft('rm', 'tiny/model-GGUF:Q8_0')
        self.assertTrue(os.path.exists(outside))
        self.assertFalse(os.path.lexists(os.path.join(there, 'm-Q8_0.gguf')))

    # ---- interrupted, and at once ----

    def test_killed(self):
        """kill -9 amid the shards: no model is there; the next fetch asks for the parts that are missing."""
        GATE.hold(after=12)
        self.addCleanup(GATE.let)
        p = self.start('pull', 'tiny/model', '--part-size', '20K', '--connections', '2')
        self.assertTrue(GATE.held.wait(60))
        p.send_signal(signal.SIGKILL)
        p.communicate()
        GATE.let()
        self.says('inspect', 'tiny/model', word='weft pull tiny/model')
        self.assertIn('incomplete', self.weft('list')[0])
        before = len(self.requests('store', 'GET'))
        path, _ = self.weft('pull', 'tiny/model', '--part-size', '20K')
        self.check(path, 'tiny/model', self.FOLDER)
        parts = -(-300001 // 20480) + -(-123457 // 20480)
        self.assertLessEqual(len(self.requests('store', 'GET')) - before, parts - 9)

    def test_together(self):
        """Two programs fetch one model: both have it, and each part came once."""
        both = [self.start('pull', 'tiny/model', '--part-size', '50K') for _ in range(2)]
        paths = [p.communicate(timeout=120)[0].strip() for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0])
        self.assertEqual(paths[0], paths[1])
        self.check(paths[0], 'tiny/model', self.FOLDER)
        self.assertEqual(len(self.requests('store', 'GET')), -(-300001 // 51200) + -(-123457 // 51200))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
