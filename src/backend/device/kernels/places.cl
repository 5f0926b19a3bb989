/* places.cl - products of a mixture's experts (moe.cl).  Rows of out lie by expert, in places, and a work-group has a unit of
 * them: {expert, first place, places}, of which there may be none.  Without units: rows in their order, and one weight.
 *
 * PLACES(p, from, rows) makes those of a work-group out of the kernel's parameters unit and index; from, rows: without units.  It
 * is no function, because oclgrind does not run one that returns a struct. */
struct places {
	int expert, first, n;
	GLOBAL const int *index; /* the rows that are multiplied; 0: what is multiplied lies in places as well */
};
#define PLACES(p, from, rows)                                                                    \
	USE_CONST(int, unit);                                                                    \
	USE_CONST(int, index);                                                                   \
	const struct places p = { NONE(unit) ? 0 : unit[3 * BID_Y], NONE(unit) ? (from) : unit[3 * BID_Y + 1], \
		                  NONE(unit) ? (rows) - (from) : unit[3 * BID_Y + 2], NONE(index) ? 0 : index }
/* The row that is multiplied for the i-th of the places; beyond the last the first's. */
FN int row_of(const struct places *p, int i)
{
	int place = p->n > 0 ? p->first + (i < p->n ? i : 0) : 0;

	return p->index && p->n > 0 ? p->index[place] : place;
}
