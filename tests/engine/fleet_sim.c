/* fleet_sim.c - how many prompt tokens a fleet of servers saves, by how its requests are sent to them.
 *
 *     fleet_sim [--servers N] [--requests N] [--states N] [--systems N] [--open N] [--seed N] [--json]
 *
 * Every server is a prefix store of its own: the real tree, places and eviction (sim_store.h), with room for --states states
 * (32).  --open conversations (8 a server) go on at once, agents and some chats (sim_talks.h), under --systems system prompts
 * (40); any of them asks next.  All ways see the same requests:
 *
 *     any            the next server in turn
 *     conversation   the server that the conversation's name hashes to, as service/haproxy.cfg has it
 *     longest        the server whose tree knows most of the prompt, of those that computed at most an eighth more than the
 *                    mean lately; of equal ones the one that computed least
 *     any, one store one store of all servers' states together: a folder that all share, read in no time.  Left out beyond 512
 *                    states, since eviction looks at all nodes of a store
 *
 * Prints for each way (--json: as objects, for bench/plot) the share of prompt tokens found, the busiest server's computed tokens
 * over the mean, what tokens and nodes of all trees take, and how many decisions of this kind one thread makes in a second.
 * Fails where the books of a tree do not balance, or where a way that knows more finds less than `any`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "engine/prefix/prefix.h"
#include "lives.h"
#include "sim_store.h"
#include "sim_talks.h"

enum { HALVE = 1000, ONE_STORE_MAX = 512 };
enum way { ANY, CONVERSATION, LONGEST, SHARED, WAYS };
static const char *const way_name[WAYS] = { "any", "conversation", "longest", "any, one store" };

struct server {
	struct sim sim;
	double lately; /* tokens computed; halved every HALVE requests of the fleet */
};
struct fleet {
	enum way way;
	int n;
	struct server *server; /* [n] */
	double lately;         /* of all servers */
	int64_t asked;
	int64_t decide_ns;
};

static void fleet_open(struct fleet *f, enum way way, int n, int states)
{
	*f = (struct fleet){ .way = way, .n = way == SHARED ? 1 : n };
	f->server = xcalloc((size_t)f->n, sizeof *f->server);
	for (int i = 0; i < f->n; i++)
		sim_open(&f->server[i].sim, way == SHARED ? n * states : states, true);
}

static int longest(const struct fleet *f, const struct text *x, int n_prompt)
{
	double most = f->lately / f->n * 1.125 + 20000;
	int best = -1, best_at = -1;

	for (int i = 0; i < f->n; i++) {
		const struct server *s = &f->server[i];
		struct prefix_hit hit;

		if (s->lately > most)
			continue;
		prefix_find(&s->sim.prefix, "", x->tok, n_prompt, &hit);
		if (hit.at > best_at || (hit.at == best_at && s->lately < f->server[best].lately)) {
			best = i;
			best_at = hit.at;
		}
	}
	return best;
}

static int choose(struct fleet *f, uint64_t talk, const struct text *x, int n_prompt)
{
	switch (f->way) {
	case ANY: return (int)(f->asked % f->n);
	case CONVERSATION: return (int)(rng_bits(talk, 1, 4) % (uint64_t)f->n);
	case LONGEST: return longest(f, x, n_prompt);
	default: return 0;
	}
}

static void ask(struct fleet *f, uint64_t talk, const struct text *x, int n_prompt)
{
	int64_t began = clock_monotonic_ns(), before;
	struct server *s = &f->server[choose(f, talk, x, n_prompt)];

	f->decide_ns += clock_monotonic_ns() - began;
	before = s->sim.computed;
	sim_serve(&s->sim, x, n_prompt);
	s->lately += (double)(s->sim.computed - before);
	f->lately += (double)(s->sim.computed - before);
	if (++f->asked % HALVE)
		return;
	f->lately /= 2;
	for (int i = 0; i < f->n; i++)
		f->server[i].lately /= 2;
}

struct plan {
	int servers, requests, states, systems, open;
	uint64_t seed;
	bool json;
};

/* Returns the share of prompt tokens that was found. */
static double report(const struct fleet *f, const struct plan *p)
{
	double prompt = 0, computed = 0, most = 0, bytes = 0;

	for (int i = 0; i < f->n; i++) {
		const struct sim *s = &f->server[i].sim;

		prefix_check(&s->prefix);
		prompt += (double)s->prompt;
		computed += (double)s->computed;
		most = (double)s->computed > most ? (double)s->computed : most;
		bytes += (double)s->prefix.own_bytes;
	}
	if (p->json)
		printf("{\"engine\":\"%s\",\"servers\":%d,\"states\":%d,\"requests\":%d,\"found_percent\":%.2f,"
		       "\"busiest\":%.3f,\"index_bytes\":%.0f,\"decisions_per_second\":%.0f}\n",
		       way_name[f->way], p->servers, p->states, p->requests, 100 * (1 - computed / prompt),
		       most / (computed / f->n), bytes, (double)f->asked / ((double)f->decide_ns / 1e9));
	else
		printf("%-16s %8.1f %14.2f %11.1f %14.0f\n", way_name[f->way], 100 * (1 - computed / prompt),
		       most / (computed / f->n), bytes / 1e6, (double)f->asked / ((double)f->decide_ns / 1e9));
	return 1 - computed / prompt;
}

static void read_plan(struct plan *p, int argc, char **argv)
{
	const struct {
		const char *name;
		int *to;
	} option[] = {
		{ "--servers", &p->servers }, { "--requests", &p->requests }, { "--states", &p->states },
		{ "--systems", &p->systems }, { "--open", &p->open },
	};

	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];
		bool known = !strcmp(word, "--json");

		if (known) {
			p->json = true;
			continue;
		}
		i++;
		if (i < argc && !strcmp(word, "--seed")) {
			p->seed = strtoull(argv[i], NULL, 10);
			continue;
		}
		for (size_t k = 0; i < argc && k < sizeof option / sizeof option[0]; k++)
			if (!strcmp(word, option[k].name)) {
				*option[k].to = atoi(argv[i]);
				known = *option[k].to > 0;
			}
		CHECK(known,
		      "fleet_sim [--servers N] [--requests N] [--states N] [--systems N] [--open N] [--seed N] [--json]");
	}
	if (!p->open)
		p->open = 8 * p->servers;
}

int main(int argc, char **argv)
{
	static struct text text;
	struct plan p = { .servers = 10, .requests = 400, .states = 32, .systems = 40, .seed = 1 };
	struct fleet fleet[WAYS];
	double found[WAYS];
	struct talk *open;
	uint64_t *name, names = 0;
	int n_way;

	read_plan(&p, argc, argv);
	open = xcalloc((size_t)p.open, sizeof *open);
	name = xcalloc((size_t)p.open, sizeof *name);
	talks_seed(p.seed);
	for (int i = 0; i < p.open; i++) {
		talk_begin(&open[i], percent(70) ? AGENT : CHAT, p.systems);
		name[i] = ++names;
	}
	n_way = p.servers * p.states > ONE_STORE_MAX ? SHARED : WAYS;
	for (int w = 0; w < n_way; w++)
		fleet_open(&fleet[w], (enum way)w, p.servers, p.states);
	for (int r = 0; r < p.requests; r++) {
		int i = between(0, p.open - 1), n_prompt = talk_answer(&open[i], &text);

		for (int w = 0; w < n_way; w++)
			ask(&fleet[w], name[i], &text, n_prompt);
		if (!talk_go_on(&open[i])) {
			talk_begin(&open[i], percent(70) ? AGENT : CHAT, p.systems);
			name[i] = ++names;
		}
		if (r % 10000 == 9999)
			fprintf(stderr, "%d of %d requests\n", r + 1, p.requests);
	}
	if (!p.json) {
		printf("%d servers of %d states, %d requests, %d conversations at once, %d system prompts of agents\n",
		       p.servers, p.states, p.requests, p.open, p.systems);
		printf("%-16s %8s %14s %11s %14s\n", "sent to", "found, %", "busiest / mean", "index, MB",
		       "decisions/s");
	}
	for (int w = 0; w < n_way; w++)
		found[w] = report(&fleet[w], &p);
	CHECK(found[CONVERSATION] >= found[ANY] && found[LONGEST] >= found[ANY] &&
	              (n_way < WAYS || found[SHARED] >= found[ANY]),
	      "a way that knows more finds less");
	for (int w = 0; w < n_way; w++) {
		for (int i = 0; i < fleet[w].n; i++)
			sim_close(&fleet[w].server[i].sim);
		free(fleet[w].server);
	}
	free(open);
	free(name);
	return 0;
}
