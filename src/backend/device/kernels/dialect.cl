/* dialect.cl - the language of kernels: OpenCL C 1.2 without vectors of floats, and these macros.  Two compilers read it: that
 * of an OpenCL device, and clang for NVIDIA's PTX.
 *
 * Rules.  Nothing is fused but fma1; sums, products, quotients are written add1, mul1, div1 or with operators, which mean the
 * same.  A warp is 32 work-items side by side.  Every work-item of a group reaches every BARRIER and every collective (SHFL_XOR,
 * mma_u8s8), because a device without them passes values through local memory and barriers: loops around them run as often for
 * all, and conditions stand around what is done with results.  UNROLL stands before loops over arrays that should stay in
 * registers.  PROCESSOR, which opencl.c defines, leaves them as they are: PoCL compiles them four times as fast.
 * Memory is a parameter MEM(type, name), which USE(type, name) makes a pointer; NONE(name) tells that it was not given. */
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL(threads) __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void
#define GLOBAL __global
#define LOCAL __local
#define MEM(type, name) __global type *restrict name##_base, long name##_at
#define USE(type, name) __global type *name = (__global type *)((__global uchar *)name##_base + name##_at)
#define USE_CONST(type, name) __global const type *name = (__global const type *)((__global const uchar *)name##_base + name##_at)
#define NONE(name) (name##_at < 0)
#if defined(PROCESSOR)
#define UNROLL _Pragma("nounroll")
#else
#define UNROLL _Pragma("unroll")
#endif
#define mul1(a, b) ((a) * (b))
#define add1(a, b) ((a) + (b))
#define sub1(a, b) ((a) - (b))
#define div1(a, b) ((a) / (b)) /* built with -cl-fp32-correctly-rounded-divide-sqrt */
#if !defined(INFINITY)
#define INFINITY __builtin_inff()
#endif
#if defined(__NVPTX__)
#define FN static __attribute__((always_inline))
typedef unsigned int uint;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned long ulong;
typedef uint uint4 __attribute__((ext_vector_type(4)));
typedef uint uint2 __attribute__((ext_vector_type(2)));
#define TID ((int)__nvvm_read_ptx_sreg_tid_x())
#define BID ((int)__nvvm_read_ptx_sreg_ctaid_x())
#define BID_Y ((int)__nvvm_read_ptx_sreg_ctaid_y())
/* LLVM takes a group's local memory for one that no call can write, and moves loads of it across a bare __syncthreads(). */
#define FENCE_ __asm__ volatile("" ::: "memory")
#define BARRIER()                \
	do {                     \
		FENCE_;          \
		__syncthreads(); \
		FENCE_;          \
	} while (0)
#define as_float1(u) __builtin_astype((uint)(u), float)
#define as_uint1(f) __builtin_astype((float)(f), uint)
#define fma1(a, b, c) __builtin_fmaf(a, b, c)
#define sqrt1(a) __nvvm_sqrt_rn_f(a)
#else
/* A function that is not inlined, and whose local memory is always the same array, would get the array's address as a constant
 * from the compiler: then PoCL lets all of its threads share the array. */
#define FN static inline __attribute__((always_inline))
#define TID ((int)get_local_id(0))
#define BID ((int)get_group_id(0))
#define BID_Y ((int)get_group_id(1))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define as_float1(u) as_float((uint)(u))
#define as_uint1(f) as_uint((float)(f))
#define fma1(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define sqrt1(a) sqrt((float)(a))
#endif

/* SHFL_XOR(v, m, sh, t): the float v of the work-item whose number differs from t = TID by the bit m < 32.  sh is
 * SCRATCH(sh, threads) of the kernel, which functions take as SCRATCH_PARAM and are given as SCRATCH_OF(sh).
 *
 * dot_u8s8(a, b): the sum of the products of four bytes, of a unsigned, of b signed.  dot_s8s8: both signed.
 *
 * table16(t, i): the bytes of t, 16 in four words, that four bytes i < 16 name.
 *
 * mma_u8s8: c[16][8] += a[16][32] b[8][32]', a unsigned, b signed bytes, sums exact.  Lane l, g = l / 4, t = l % 4, has
 * a0 = a[g][4t..], a1 = a[g + 8][4t..], a2 and a3 the same 16 bytes on; b0 = b[g][4t..], b1 16 on; c0, c1 = c[g][2t, 2t + 1],
 * c2, c3 those of g + 8: the fragments of mma.m16n8k32.  Scratch: MMA_SCRATCH(name, warps), passed as MMA_OF(name, warp).
 * mma_s8s8: both signed.  mma_u8s8_16 and mma_s8s8_16: the first 16 bytes alone, a0, a1 and b0. */
#define MMA_WORDS (32 * 6)
#if defined(__NVPTX__)
#define SCRATCH(name, threads)
#define SCRATCH_OF(name) 0
#define SCRATCH_PARAM int sh
#define SHFL_XOR(v, m, sh, t) \
	__builtin_astype(__nvvm_shfl_sync_bfly_i32(0xffffffffu, __builtin_astype((float)(v), int), m, 0x1f), float)
#define MMA_SCRATCH(name, warps)
#define MMA_OF(name, warp) 0
#define MMA_PARAM int sh
FN int dot_u8s8(uint a, uint b)
{
	int r;

	__asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0));
	return r;
}
FN int dot_s8s8(uint a, uint b)
{
	int r;

	__asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0));
	return r;
}
FN uint prmt(uint a, uint b, uint which)
{
	uint r;

	__asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(which));
	return r;
}
FN uint table16(const uint *t, uint i)
{
	uint x = i & 0x07070707u, upper = ((i >> 3) & 0x01010101u) * 255u, which;

	x |= x >> 4;
	which = (x & 0xffu) | ((x >> 8) & 0xff00u);
	return (prmt(t[0], t[1], which) & ~upper) | (prmt(t[2], t[3], which) & upper);
}
#define MMA_OF_TYPE(type)                                                                                                 \
	FN void mma_##type##s8(int *c, const uint *a, uint b0, uint b1, MMA_PARAM, int lane)                              \
	{                                                                                                                 \
		__asm__ volatile("mma.sync.aligned.m16n8k32.row.col.s32." #type                                           \
		                 ".s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                          \
		                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                         \
		                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                         \
	}                                                                                                                 \
	FN void mma_##type##s8_16(int *c, const uint *a, uint b0, MMA_PARAM, int lane)                                    \
	{                                                                                                                 \
		__asm__ volatile("mma.sync.aligned.m16n8k16.row.col.s32." #type                                           \
		                 ".s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"                                   \
		                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                         \
		                 : "r"(a[0]), "r"(a[1]), "r"(b0));                                                        \
	}
MMA_OF_TYPE(u8)
MMA_OF_TYPE(s8)
#else
#define SCRATCH(name, threads) __local uint name[threads]
FN float shfl_xor(float v, int m, __local uint *sh, int t)
{
	float r;

	sh[t] = as_uint1(v);
	BARRIER();
	r = as_float1(sh[t ^ m]);
	BARRIER();
	return r;
}
#define SCRATCH_OF(name) name
#define SCRATCH_PARAM __local uint *sh
#define SHFL_XOR(v, m, sh, t) shfl_xor(v, m, sh, t)
#define MMA_SCRATCH(name, warps) __local uint name[(warps) * MMA_WORDS]
#define MMA_OF(name, warp) ((name) + (warp) * MMA_WORDS)
#define MMA_PARAM __local uint *sh
FN uint table16(const uint *t, uint i)
{
	ulong low = t[0] | (ulong)t[1] << 32, high = t[2] | (ulong)t[3] << 32;
	uint r = 0;

	for (int k = 0; k < 32; k += 8) {
		uint at = (i >> k) & 15u;

		r |= (uint)(((at & 8u ? high : low) >> (8u * (at & 7u))) & 255u) << k;
	}
	return r;
}
FN int dot_bytes(uint a, uint b, int is_signed)
{
	int s = 0;

	for (int i = 0; i < 32; i += 8) {
		int x = is_signed ? (int)(a << (24 - i)) >> 24 : (int)((a >> i) & 255u);

		s += x * ((int)(b << (24 - i)) >> 24);
	}
	return s;
}
FN int dot_u8s8(uint a, uint b)
{
	return dot_bytes(a, b, 0);
}
FN int dot_s8s8(uint a, uint b)
{
	return dot_bytes(a, b, 1);
}
/* The first 16 bytes, or all 32. */
FN void mma_bytes(int *c, const uint *a, uint b0, uint b1, MMA_PARAM, int lane, int is_signed, int all)
{
	int g = lane / 4, t = lane % 4;

	for (int i = 0; i < (all ? 4 : 2); i++)
		sh[lane * 6 + i] = a[i];
	sh[lane * 6 + 4] = b0;
	if (all)
		sh[lane * 6 + 5] = b1;
	BARRIER();
	for (int i = 0; i < 4; i++) {
		__local const uint *x = sh + (4 * g + i) * 6, *y = sh + (8 * t + i) * 6, *z = y + 4 * 6;

		for (int k = 0; k < (all ? 2 : 1); k++) {
			c[0] += dot_bytes(x[2 * k], y[4 + k], is_signed);
			c[1] += dot_bytes(x[2 * k], z[4 + k], is_signed);
			c[2] += dot_bytes(x[2 * k + 1], y[4 + k], is_signed);
			c[3] += dot_bytes(x[2 * k + 1], z[4 + k], is_signed);
		}
	}
	BARRIER();
}
#define mma_u8s8(c, a, b0, b1, sh, lane) mma_bytes(c, a, b0, b1, sh, lane, 0, 1)
#define mma_s8s8(c, a, b0, b1, sh, lane) mma_bytes(c, a, b0, b1, sh, lane, 1, 1)
#define mma_u8s8_16(c, a, b0, sh, lane) mma_bytes(c, a, b0, 0, sh, lane, 0, 0)
#define mma_s8s8_16(c, a, b0, sh, lane) mma_bytes(c, a, b0, 0, sh, lane, 1, 0)
#endif
