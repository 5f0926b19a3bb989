/* several.c - see several.h. */
#include "host/several.h"

#include "base/memory.h"
#include "host/load.h"

enum { LOOK = LOAD_TOKENIZER | LOAD_TEMPLATE | LOAD_ENGINE | LOAD_TOWER | LOAD_PLAN };

/* Plans model m under its memory_bytes. */
static bool look(struct one_of_several *m, struct session *s)
{
	if (session_open(s, m->o, LOOK, &m->why)) {
		m->least = m->bytes = 0;
		return false;
	}
	m->why.code = 0;
	return true;
}

/* What model m takes at least, where it may take `budget` bytes. */
static void look_first(struct one_of_several *m, size_t budget)
{
	size_t given = m->o->memory_bytes;
	struct session s;

	m->o->text_bytes = 1; /* not known yet; the program is not counted */
	if (!given)
		m->o->memory_bytes = budget;
	if (look(m, &s)) {
		const struct plan *p = &s.plan;

		m->o->text_bytes = s.text_bytes;
		m->least = plan_total(p) - p->kv - p->prefix - p->parked + s.text_bytes;
		session_close(&s);
	}
	m->o->memory_bytes = given;
}

size_t several_budget(size_t memory)
{
	size_t all = memory ? memory : memory_total() / 16 * 15, program = plan_program_bytes();

	return all - (program < all ? program : all);
}

void several_plan(struct one_of_several *v, int n, size_t budget, size_t taken,
                  void (*told)(void *arg, int i, const struct session *s), void *arg)
{
	size_t all = taken, rest;
	struct session s;
	int count = 0;

	for (int i = 0; i < n; i++) {
		look_first(&v[i], budget);
		all += v[i].least;
		count += !v[i].why.code;
	}
	rest = all < budget ? budget - all : 0;
	for (int i = 0; i < n; i++) {
		struct one_of_several *m = &v[i];

		if (m->why.code)
			continue;
		if (!m->o->memory_bytes)
			m->o->memory_bytes = m->least + (rest >= budget / 4 ? rest / (size_t)count :
			                                 m->least < budget  ? (budget - m->least) / 4 :
			                                                      0);
		if (!look(m, &s))
			continue;
		m->bytes = m->o->memory_bytes;
		told(arg, i, &s);
		session_close(&s);
	}
}
