/* act.cl - activations of a gate g, which may change its factor u as well (enum act of backend.h). */
FN float activated(int kind, float alpha, float limit, float g, float *u)
{
	if (kind == 1)
		return silu_bits(g);
	if (kind == 2)
		return gelu_tanh_bits(g);
	if (kind == 3)
		return gelu_erf_bits(g);
	if (kind == 4)
		return mul1(g, sigmoid_bits(mul1(1.702f, g)));
	if (kind == 5) {
		g = max1(0.0f, g);
		return mul1(g, g);
	}
	if (kind == 6)
		return sigmoid_bits(g);
	if (kind == 7)
		return tanh_of_double(mul1(2.0f, g));
	if (kind == 8) {
		g = min1(limit, g);
		*u = add1(max1(-limit, min1(limit, *u)), 1.0f);
		return mul1(g, sigmoid_bits(mul1(alpha, g)));
	}
	if (kind == 9) {
		*u = max1(-limit, min1(limit, *u));
		return min1(limit, silu_bits(g));
	}
	if (kind == 10) {
		*u = max1(-limit, min1(limit, *u));
		return silu_bits(min1(limit, g));
	}
	return g;
}
