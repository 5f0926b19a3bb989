/* load_packs.c - see load_packs.h. */
#include "host/load_packs.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/prefix/prefix_pack.h"
#include "host/identity.h"

int load_packs(struct session *s, const struct host_disk *d, const char *about, struct err *err)
{
	s->pack = xcalloc((size_t)d->pack.n + 1, sizeof(struct pack *));
	for (int i = 0; i < d->pack.n; i++) {
		struct pack *now;
		int rc = pack_open(&now, d->pack.v[i], err);

		if (rc)
			return err_prefix(err, "--pack");
		s->pack[s->n_pack++] = now;
		if (memcmp(pack_model(now), &s->identity, sizeof(s->identity))) {
			rc = identity_compare(pack_about(now), about, err);
			err_prefix(err, "--pack %s is of another model or setting", d->pack.v[i]);
			if (rc != E_MISSING || !d->packs_differ)
				return rc;
			log_info("%s", err->msg);
			pack_close(s->pack[--s->n_pack]);
		}
	}
	return 0;
}

int packs_check(struct session *s, void (*told)(void *arg, int percent), void *arg, struct err *err)
{
	for (int i = 0; i < s->n_pack; i++) {
		const struct pack *now = s->pack[i];

		if (pack_check(now, told, arg, err))
			return err_prefix(err, "--pack");
		log_info("pack %s: %llu pieces, %llu MB", pack_path(now), (unsigned long long)pack_pieces(now),
		         (unsigned long long)pack_bytes(now) >> 20);
	}
	return 0;
}

void packs_close(struct session *s)
{
	for (int i = 0; i < s->n_pack; i++)
		pack_close(s->pack[i]);
	free(s->pack);
	s->pack = NULL;
	s->n_pack = 0;
}
