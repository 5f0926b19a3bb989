/* linux_ring.c - see base/reads_ring.h. */
#include "base/reads_ring.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "base/alloc.h"

struct ring {
	struct io_uring uring;
};

int ring_open(struct ring **out, int depth)
{
	struct ring *r = xcalloc(1, sizeof *r);
	int rc = io_uring_queue_init((unsigned)depth, &r->uring, 0);

	*out = rc ? NULL : r;
	if (rc)
		free(r);
	return -rc;
}

void ring_close(struct ring *r)
{
	io_uring_queue_exit(&r->uring);
	free(r);
}

void ring_put(struct ring *r, int fd, uint8_t *to, size_t n, uint64_t at, void *tag)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);

	assert(sqe);
	if (to)
		io_uring_prep_read(sqe, fd, to, (unsigned)n, at);
	else
		io_uring_prep_nop(sqe);
	io_uring_sqe_set_data(sqe, tag);
}

void ring_submit(struct ring *r)
{
	int rc;

	do
		rc = io_uring_submit(&r->uring);
	while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
	assert(rc >= 0);
}

bool ring_next(struct ring *r, bool wait, void **tag, int *came)
{
	struct io_uring_cqe *cqe;
	int rc;

	do
		rc = wait ? io_uring_wait_cqe(&r->uring, &cqe) : io_uring_peek_cqe(&r->uring, &cqe);
	while (rc == -EINTR);
	if (rc)
		return false;
	*tag = io_uring_cqe_get_data(cqe);
	*came = cqe->res;
	io_uring_cqe_seen(&r->uring, cqe);
	return true;
}
