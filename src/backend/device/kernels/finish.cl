/* finish.cl - the last step of a product: output o of a row gets its bias, if there are any, and is added to what is there. */
FN void finish(GLOBAL float *out, int o, float v, GLOBAL const float *bias, int add)
{
	if (bias)
		v = add1(v, bias[o]);
	out[o] = add ? add1(out[o], v) : v;
}
