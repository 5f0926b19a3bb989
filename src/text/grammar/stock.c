/* stock.c - see stock.h. */
#include "text/grammar/stock.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/fault.h"
#include "base/allowance.h"
#include "text/grammar/lexeme.h"

static struct {
	pthread_mutex_t lock;
	struct dfa_pool pool;
	struct stock all;
	bool made;
} the = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct dfa *words(const char *one, const char *other)
{
	struct texts t;

	texts_init(&t);
	texts_put(&t, one, strlen(one), 0);
	if (other)
		texts_put(&t, other, strlen(other), 0);
	return texts_finish(&the.pool, &t);
}

/* After a fault in the midst of it, what was made is lost and made anew. */
static void make(void *arg)
{
	struct stock *s = arg;
	struct dfa_pool *p = &the.pool;

	if (the.made)
		return;
	dfa_pool_init(p);
	s->null = words("null", NULL);
	s->boolean = words("true", "false");
	s->number = lexeme_number(p);
	s->decimal = lexeme_decimal(p, false);
	s->integer = lexeme_decimal(p, true);
	s->once = lexeme_once(p);
	s->string = lexeme_string(p);
	s->plain = lexeme_plain_string(p);
	s->bare = lexeme_bare(p, s->plain, BARE_VALUE_END);
	assert(!p->why);
	the.made = true;
}

const struct stock *stock(void)
{
	struct allowance *w = allowance_pause();

	fault_locked(&the.lock, make, &the.all);
	allowance_resume(w);
	return &the.all;
}
