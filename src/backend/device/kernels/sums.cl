/* sums.cl - sums and maxima over 16 work-items side by side, in the processor's tree: 8 apart, 4, 2, 1.  The first of the 16
 * has the result; the others have others. */
FN float tree16(float v, SCRATCH_PARAM, int t)
{
	UNROLL
	for (int m = 8; m; m /= 2)
		v = add1(v, SHFL_XOR(v, m, sh, t));
	return v;
}
FN float top16(float v, SCRATCH_PARAM, int t)
{
	UNROLL
	for (int m = 8; m; m /= 2)
		v = max1(v, SHFL_XOR(v, m, sh, t));
	return v;
}
