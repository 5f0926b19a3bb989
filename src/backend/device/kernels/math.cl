/* math.cl - functions of kernels, with the operations of the processor's (quant/lanes/lanes.h, backend/cpu/op_kernels.c) and so
 * with their bits.  max1 and min1 take the second where one is not a number, and
 * of -0 and +0. */
#if defined(__NVPTX__)
/* In assembly: LLVM makes max.NaN of the comparison in C, which orders -0 below +0. */
#define PICK_(name, compare)                                                                      \
	FN float name(float a, float b)                                                           \
	{                                                                                         \
		float r;                                                                          \
                                                                                                  \
		__asm__("{.reg .pred p; setp." compare ".f32 p, %1, %2; selp.f32 %0, %1, %2, p;}" \
		        : "=f"(r)                                                                 \
		        : "f"(a), "f"(b));                                                        \
		return r;                                                                         \
	}
PICK_(max1, "gt")
PICK_(min1, "lt")
#else
FN float max1(float a, float b)
{
	return a > b ? a : b;
}
FN float min1(float a, float b)
{
	return a < b ? a : b;
}
#endif
FN float abs1(float a)
{
	return as_float1(as_uint1(a) & 0x7fffffffu);
}
FN float low_bf16(uint v)
{
	return as_float1(v << 16);
}
FN float high_bf16(uint v)
{
	return as_float1(v & 0xffff0000u);
}
/* f16 in the low 16 bits. */
FN float low_f16(uint v)
{
	uint sign = (v & 0x8000u) << 16, rest = v & 0x7fffu;

	if (rest >= 0x7c00u)
		return as_float1(sign | 0x7f800000u | (rest & 0x3ffu) << 13 | (rest > 0x7c00u ? 0x400000u : 0u));
	if (rest < 0x400u) /* denormal: a whole number of 2^-24 */
		return as_float1(sign | as_uint1(mul1((float)(int)rest, 0x1p-24f)));
	return as_float1(sign | (rest + 0x1c000u) << 13);
}
/* To the nearest bf16, even if two are; what is not a number stays so. */
FN uint bf16_of(float f)
{
	uint u = as_uint1(f);

	return (u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
/* To the nearest f16, likewise, of a number in [-65504, 65504]. */
FN uint f16_of(float f)
{
	uint u = as_uint1(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;

	if (a < 0x38800000u) /* below 2^-14: the sum rounds to steps of 2^-24 */
		return sign | (as_uint1(add1(as_float1(a), 0.5f)) - as_uint1(0.5f));
	return sign | (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13;
}
FN float exp_bits(float x)
{
	float t, p, r;
	int k, h, in = !(x < -87.0f);

	x = max1(-87.0f, x);
	x = min1(89.0f, x);
	t = fma1(x, 0x1.715476p+0f, 12582912.0f);
	p = sub1(t, 12582912.0f);
	r = fma1(p, -0x1.62e4p-1f, x);
	r = fma1(p, -0x1.7f7d1cp-20f, r);
	k = (int)as_uint1(t) - 0x4b400000;
	p = 1.0f / 5040;
	p = fma1(p, r, 1.0f / 720);
	p = fma1(p, r, 1.0f / 120);
	p = fma1(p, r, 1.0f / 24);
	p = fma1(p, r, 1.0f / 6);
	p = fma1(p, r, 0.5f);
	p = fma1(p, r, 1.0f);
	p = fma1(p, r, 1.0f);
	h = k >> 1; /* 2^k in two exact factors: k may be 128 */
	p = mul1(mul1(p, as_float1((uint)(h + 127) << 23)), as_float1((uint)(k - h + 127) << 23));
	return in ? p : 0.0f;
}
/* 1 + e^-x */
FN float logistic_divisor(float x)
{
	return add1(1.0f, exp_bits(sub1(0.0f, x)));
}
FN float sigmoid_bits(float x)
{
	return div1(1.0f, logistic_divisor(x));
}
FN float silu_bits(float x)
{
	return div1(x, logistic_divisor(x));
}
FN float gelu_tanh_bits(float x)
{
	float y = mul1(x, x);

	y = fma1(y, 0x1.2444f2p-4f, 0x1.988454p+0f);
	return div1(x, logistic_divisor(mul1(y, x)));
}
FN float gelu_erf_bits(float x)
{
	float z = mul1(abs1(x), 0x1.6a09e6p-1f), t = div1(1.0f, fma1(z, 0.5f, 1.0f)), p = 0.17087277f;

	p = fma1(p, t, -0.82215223f);
	p = fma1(p, t, 1.48851587f);
	p = fma1(p, t, -1.13520398f);
	p = fma1(p, t, 0.27886807f);
	p = fma1(p, t, -0.18628806f);
	p = fma1(p, t, 0.09678418f);
	p = fma1(p, t, 0.37409196f);
	p = fma1(p, t, 1.00002368f);
	p = fma1(p, t, -1.26551223f);
	p = exp_bits(sub1(p, mul1(z, z)));
	p = mul1(mul1(p, t), 0.5f);
	p = mul1(abs1(x), p);
	return sub1(max1(0.0f, x), p);
}
/* tanh z = 1 - 2 / (1 + e^2z), of y = 2 z */
FN float tanh_of_double(float y)
{
	return sub1(1.0f, div1(2.0f, add1(1.0f, exp_bits(y))));
}
/* ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^-|x|: the series of 2 artanh(t / (2 + t)) to the 15th power. */
FN float softplus_bits(float x)
{
	float t = exp_bits(sub1(0.0f, abs1(x))), s = div1(t, add1(2.0f, t)), s2 = mul1(s, s), sum = 2.0f / 15;

	sum = fma1(sum, s2, 2.0f / 13);
	sum = fma1(sum, s2, 2.0f / 11);
	sum = fma1(sum, s2, 2.0f / 9);
	sum = fma1(sum, s2, 2.0f / 7);
	sum = fma1(sum, s2, 2.0f / 5);
	sum = fma1(sum, s2, 2.0f / 3);
	sum = fma1(sum, s2, 2.0f);
	return fma1(sum, s, max1(0.0f, x));
}
