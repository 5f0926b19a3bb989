/* The elementwise and sequential parts of the training graph, forward and backward, for one machine
 * type: AVX-512 wide vectors of the compiler, two OpenMP threads. torch spends most of a step on these,
 * in many passes over memory; here each is one pass. model.py holds the same graph in plain torch, and
 * check_fused.py compares the two.
 *
 * cc -O3 -march=native -ffast-math -fopenmp -shared -fPIC fused.c -o fused.so -lm
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define D 64  /* key and value head width of the delta net, and of attention */
#define NV 4  /* vectors of 16 floats in a head */
#define CK 32 /* tokens between two saved states: 32 states of 16 KiB fit the second level cache */

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t bf16;

static inline float up(bf16 x)
{
	union {
		uint32_t u;
		float f;
	} v = { (uint32_t)x << 16 };
	return v.f;
}
static inline bf16 down(float f)
{
	union {
		float f;
		uint32_t u;
	} v = { f };
	return (bf16)((v.u + 0x7FFF + ((v.u >> 16) & 1)) >> 16);
}
static inline v16 ld(const float *p)
{
	return *(const v16 *)p;
}
static inline void st(float *p, v16 v)
{
	*(v16 *)p = v;
}
static inline v16 all(float x)
{
	return (v16){ 0 } + x;
}
static inline float sum16(v16 v)
{
	float s = 0;
	for (int i = 0; i < 16; i++)
		s += v[i];
	return s;
}
static inline float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

/* ---- convolution of width 4 and SiLU. pos: position in the document, 3 when larger; w4: [4][C] */
void conv_fwd(const bf16 *x, long xs, const float *w4, const uint8_t *pos, float *y, float *out, int B, int T, int C)
{
#pragma omp parallel for schedule(static)
	for (int b = 0; b < B; b++)
		for (int t = 0; t < T; t++) {
			long n = (long)b * T + t;
			const bf16 *r0 = x + n * xs;
			float *yy = y + n * C, *oo = out + n * C;
			for (int c = 0; c < C; c++)
				yy[c] = up(r0[c]) * w4[3 * C + c];
			for (int d = 1; d <= pos[n]; d++) {
				const bf16 *r = r0 - d * xs;
				const float *w = w4 + (3 - d) * C;
				for (int c = 0; c < C; c++)
					yy[c] += up(r[c]) * w[c];
			}
			for (int c = 0; c < C; c++)
				oo[c] = yy[c] * sigmoid(yy[c]);
		}
}

/* dc is overwritten with the gradient before SiLU; dw: [B][4][C] */
void conv_bwd(float *dc, const bf16 *x, long xs, const float *y, const float *w4, const uint8_t *pos, bf16 *dx,
              float *dw, int B, int T, int C)
{
#pragma omp parallel for schedule(static)
	for (int b = 0; b < B; b++) {
		float *dwb = dw + (long)b * 4 * C, *acc = malloc(sizeof(float) * C);
		memset(dwb, 0, sizeof(float) * 4 * C);
		for (int t = T - 1; t >= 0; t--) {
			long n = (long)b * T + t;
			float *d0 = dc + n * C;
			const float *yy = y + n * C;
			for (int c = 0; c < C; c++) {
				float s = sigmoid(yy[c]);
				d0[c] *= s * (1 + yy[c] * (1 - s));
			}
			for (int d = 0; d <= pos[n]; d++) {
				const bf16 *r = x + (n - d) * xs;
				float *w = dwb + (3 - d) * C;
				for (int c = 0; c < C; c++)
					w[c] += d0[c] * up(r[c]);
			}
			/* what later tokens t+d took from t: they are done already */
			const float *w = w4 + 3 * C;
			for (int c = 0; c < C; c++)
				acc[c] = d0[c] * w[c];
			for (int d = 1; d <= 3 && t + d < T && pos[n + d] >= d; d++) {
				const float *dd = d0 + (long)d * C;
				w = w4 + (3 - d) * C;
				for (int c = 0; c < C; c++)
					acc[c] += dd[c] * w[c];
			}
			bf16 *o = dx + n * C;
			for (int c = 0; c < C; c++)
				o[c] = down(acc[c]);
		}
		free(acc);
	}
}

/* ---- gated delta rule. c: [B,T,2*Hk*D+Hv*D] after convolution; g, beta: [B,T,Hv]; o: [B,T,Hv*D] */
static void step(float *S, const float *k, const float *q, const float *v, float a, float beta, float *u, float *o)
{
	v16 m[NV] = { 0 }, m2[NV] = { 0 }, dl[NV], oo[NV] = { 0 };
	for (int i = 0; i < D; i += 2)
		for (int j = 0; j < NV; j++) {
			m[j] += k[i] * ld(S + i * D + 16 * j);
			m2[j] += k[i + 1] * ld(S + (i + 1) * D + 16 * j);
		}
	for (int j = 0; j < NV; j++) {
		v16 x = ld(v + 16 * j) - a * (m[j] + m2[j]);
		if (u)
			st(u + 16 * j, x);
		dl[j] = beta * x;
	}
	for (int i = 0; i < D; i++)
		for (int j = 0; j < NV; j++) {
			v16 s = a * ld(S + i * D + 16 * j) + k[i] * dl[j];
			st(S + i * D + 16 * j, s);
			oo[j] += q[i] * s;
		}
	if (o)
		for (int j = 0; j < NV; j++)
			st(o + 16 * j, oo[j]);
}

static float norm_head(const float *x, float *n, float scale)
{
	v16 s = { 0 };
	for (int j = 0; j < NV; j++)
		s += ld(x + 16 * j) * ld(x + 16 * j);
	float r = 1.0f / sqrtf(sum16(s) + 1e-6f) * scale;
	for (int j = 0; j < NV; j++)
		st(n + 16 * j, r * ld(x + 16 * j));
	return r;
}

/* saved: [B][Hv][T/CK][D*D] states before each block of CK tokens */
void gdn_fwd(const float *c, const float *g, const float *beta, const uint8_t *pos, float *o, float *saved, int B,
             int T, int Hk, int Hv)
{
	int r = Hv / Hk, C = 2 * Hk * D + Hv * D;
#pragma omp parallel for schedule(dynamic)
	for (int task = 0; task < B * Hk; task++) {
		int b = task / Hk, h = task % Hk;
		float *S = aligned_alloc(64, sizeof(float) * r * D * D), q[D], k[D];
		memset(S, 0, sizeof(float) * r * D * D);
		for (int t = 0; t < T; t++) {
			long n = (long)b * T + t;
			const float *row = c + n * C;
			norm_head(row + h * D, q, 0.125f); /* 64^-1/2 */
			norm_head(row + (Hk + h) * D, k, 1.0f);
			for (int e = 0; e < r; e++) {
				int hv = h * r + e;
				float *s = S + e * D * D;
				if (t % CK == 0)
					memcpy(saved + (((long)b * Hv + hv) * (T / CK) + t / CK) * D * D, s,
					       sizeof(float) * D * D);
				step(s, k, q, row + (2 * Hk + hv) * D, pos[n] ? expf(g[n * Hv + hv]) : 0.0f,
				     beta[n * Hv + hv], NULL, o + (n * Hv + hv) * D);
			}
		}
		free(S);
	}
}

void gdn_bwd(const float *dout, const float *c, const float *g, const float *beta, const uint8_t *pos,
             const float *saved, float *dc, float *dg, float *dbeta, int B, int T, int Hk, int Hv)
{
	int r = Hv / Hk, C = 2 * Hk * D + Hv * D;
#pragma omp parallel for schedule(dynamic)
	for (int task = 0; task < B * Hk; task++) {
		int b = task / Hk, h = task % Hk;
		float *st_all = aligned_alloc(64, sizeof(float) * (CK + 1) * D * D),
		      *dS_all = aligned_alloc(64, sizeof(float) * r * D * D);
		float *u = aligned_alloc(64, sizeof(float) * CK * D), *qn = aligned_alloc(64, sizeof(float) * CK * D),
		      *kn = aligned_alloc(64, sizeof(float) * CK * D);
		float *dq = aligned_alloc(64, sizeof(float) * CK * D), *dk = aligned_alloc(64, sizeof(float) * CK * D),
		      rq[CK], rk[CK];
		memset(dS_all, 0, sizeof(float) * r * D * D);
		for (int t0 = T - CK; t0 >= 0; t0 -= CK) {
			memset(dq, 0, sizeof(float) * CK * D);
			memset(dk, 0, sizeof(float) * CK * D);
			for (int i = 0; i < CK; i++) {
				const float *row = c + ((long)b * T + t0 + i) * C;
				rq[i] = norm_head(row + h * D, qn + i * D, 0.125f);
				rk[i] = norm_head(row + (Hk + h) * D, kn + i * D, 1.0f);
			}
			for (int e = 0; e < r; e++) {
				int hv = h * r + e;
				float *dS = dS_all + e * D * D;
				memcpy(st_all, saved + (((long)b * Hv + hv) * (T / CK) + t0 / CK) * D * D,
				       sizeof(float) * D * D);
				for (int i = 0; i < CK; i++) {
					long n = (long)b * T + t0 + i;
					float *S = st_all + (i + 1) * D * D;
					memcpy(S, S - D * D, sizeof(float) * D * D);
					step(S, kn + i * D, qn + i * D, c + n * C + (2 * Hk + hv) * D,
					     pos[n] ? expf(g[n * Hv + hv]) : 0.0f, beta[n * Hv + hv], u + i * D, NULL);
				}
				for (int i = CK - 1; i >= 0; i--) {
					long n = (long)b * T + t0 + i;
					const float *S1 = st_all + (i + 1) * D * D, *S0 = S1 - D * D, *k = kn + i * D,
						    *q = qn + i * D;
					float a = pos[n] ? expf(g[n * Hv + hv]) : 0.0f, bt = beta[n * Hv + hv];
					v16 go[NV], uu[NV], dd[NV] = { 0 }, dm[NV], dot = { 0 };
					for (int j = 0; j < NV; j++) {
						go[j] = ld(dout + (n * Hv + hv) * D + 16 * j);
						uu[j] = ld(u + i * D + 16 * j);
					}
					for (int x = 0; x < D; x++) {
						v16 sq = { 0 }, sk = { 0 };
						for (int j = 0; j < NV; j++) {
							v16 ds = ld(dS + x * D + 16 * j) + q[x] * go[j];
							st(dS + x * D + 16 * j, ds);
							dd[j] += k[x] * ds;
							sk += ds * uu[j];
							sq += ld(S1 + x * D + 16 * j) * go[j];
						}
						dq[i * D + x] += sum16(sq);
						dk[i * D + x] += bt * sum16(sk);
					}
					for (int j = 0; j < NV; j++) {
						dot += dd[j] * uu[j];
						dm[j] = -bt * dd[j];
						st(dc + n * C + (2 * Hk + hv) * D + 16 * j, bt * dd[j]);
					}
					dbeta[n * Hv + hv] = sum16(dot);
					dot = all(0);
					for (int x = 0; x < D; x++) {
						v16 sk = { 0 };
						for (int j = 0; j < NV; j++) {
							v16 ds = ld(dS + x * D + 16 * j) + k[x] * dm[j],
							    s0 = ld(S0 + x * D + 16 * j);
							sk += s0 * dm[j];
							dot += s0 * ds;
							st(dS + x * D + 16 * j, a * ds);
						}
						dk[i * D + x] += a * sum16(sk);
					}
					dg[n * Hv + hv] = a * sum16(dot);
				}
			}
			/* through the normalisation of q and k: n = r x, dx = r (dn - n (n.dn)/scale^2) */
			for (int i = 0; i < CK; i++) {
				float *row = dc + ((long)b * T + t0 + i) * C;
				v16 s = { 0 }, s2 = { 0 };
				for (int j = 0; j < NV; j++) {
					s += ld(qn + i * D + 16 * j) * ld(dq + i * D + 16 * j);
					s2 += ld(kn + i * D + 16 * j) * ld(dk + i * D + 16 * j);
				}
				float fq = sum16(s) * 64.0f, fk = sum16(s2);
				for (int j = 0; j < NV; j++) {
					st(row + h * D + 16 * j,
					   rq[i] * (ld(dq + i * D + 16 * j) - fq * ld(qn + i * D + 16 * j)));
					st(row + (Hk + h) * D + 16 * j,
					   rk[i] * (ld(dk + i * D + 16 * j) - fk * ld(kn + i * D + 16 * j)));
				}
			}
		}
		free(st_all);
		free(dS_all);
		free(u);
		free(qn);
		free(kn);
		free(dq);
		free(dk);
	}
}

/* ---- attention inside documents. q: [B,T,Hq,D] scaled, k, v: [B,T,Hk,D], o like q; lse: [B,Hq,T]
 * begin: first position of the document of each token */
void attn_fwd(const float *q, const float *k, const float *v, const int32_t *begin, float *o, float *lse, int B, int T,
              int Hq, int Hk)
{
	int r = Hq / Hk;
#pragma omp parallel for schedule(dynamic)
	for (int task = 0; task < B * Hq; task++) {
		int b = task / Hq, h = task % Hq, hk = h / r;
		float *s = malloc(sizeof(float) * (T + 16)), *kt = aligned_alloc(64, sizeof(float) * (T + 16) * D);
		/* keys with the position last: scores of 16 keys come from one vector */
		long Tp = T + 16;
		memset(kt, 0, sizeof(float) * Tp * D);
		for (int t = 0; t < T; t++)
			for (int i = 0; i < D; i++)
				kt[i * Tp + t] = k[(((long)b * T + t) * Hk + hk) * D + i];
		for (int t = 0; t < T; t++) {
			long n = (long)b * T + t;
			const float *qq = q + (n * Hq + h) * D;
			int lo = begin[n];
			float mx = -1e30f, sum = 0;
			for (int x = lo; x <= t; x += 64) {
				v16 a0 = { 0 }, a1 = { 0 }, a2 = { 0 }, a3 = { 0 };
				if (x + 48 <= t + 0) {
					for (int i = 0; i < D && x + 64 <= Tp; i++) {
						const float *p = kt + i * Tp + x;
						a0 += qq[i] * ld(p);
						a1 += qq[i] * ld(p + 16);
						a2 += qq[i] * ld(p + 32);
						a3 += qq[i] * ld(p + 48);
					}
					float tmp[64];
					st(tmp, a0);
					st(tmp + 16, a1);
					st(tmp + 32, a2);
					st(tmp + 48, a3);
					int m = t + 1 - x < 64 ? t + 1 - x : 64;
					for (int y = 0; y < m; y++)
						s[x - lo + y] = tmp[y];
				} else {
					for (int y = x; y <= t; y += 16) {
						v16 a = { 0 };
						for (int i = 0; i < D; i++)
							a += qq[i] * ld(kt + i * Tp + y);
						int m = t + 1 - y < 16 ? t + 1 - y : 16;
						for (int z = 0; z < m; z++)
							s[y - lo + z] = a[z];
					}
				}
			}
			int m = t + 1 - lo;
			for (int x = 0; x < m; x++)
				mx = s[x] > mx ? s[x] : mx;
			for (int x = 0; x < m; x++) {
				s[x] = expf(s[x] - mx);
				sum += s[x];
			}
			v16 acc[NV] = { 0 };
			for (int x = 0; x < m; x++) {
				const float *vv = v + (((long)b * T + lo + x) * Hk + hk) * D;
				for (int j = 0; j < NV; j++)
					acc[j] += s[x] * ld(vv + 16 * j);
			}
			for (int j = 0; j < NV; j++)
				st(o + (n * Hq + h) * D + 16 * j, acc[j] * (1.0f / sum));
			lse[((long)b * Hq + h) * T + t] = mx + logf(sum);
		}
		free(s);
		free(kt);
	}
}

void attn_bwd(const float *dout, const float *q, const float *k, const float *v, const float *o, const float *lse,
              const int32_t *begin, float *dq, float *dk, float *dv, int B, int T, int Hq, int Hk)
{
	int r = Hq / Hk;
#pragma omp parallel for schedule(dynamic)
	for (int task = 0; task < B * Hk; task++) {
		int b = task / Hk, hk = task % Hk;
		long Tp = T + 16;
		float *kt = aligned_alloc(64, sizeof(float) * Tp * D), *vt = aligned_alloc(64, sizeof(float) * Tp * D),
		      *p = malloc(sizeof(float) * Tp), *dp = malloc(sizeof(float) * Tp);
		memset(kt, 0, sizeof(float) * Tp * D);
		memset(vt, 0, sizeof(float) * Tp * D);
		for (int t = 0; t < T; t++) {
			long at = (((long)b * T + t) * Hk + hk) * D;
			for (int i = 0; i < D; i++)
				kt[i * Tp + t] = k[at + i], vt[i * Tp + t] = v[at + i];
			memset(dk + at, 0, sizeof(float) * D);
			memset(dv + at, 0, sizeof(float) * D);
		}
		for (int e = 0; e < r; e++)
			for (int t = 0; t < T; t++) {
				int h = hk * r + e;
				long n = (long)b * T + t, at = (n * Hq + h) * D;
				const float *qq = q + at, *go = dout + at;
				v16 dd = { 0 };
				for (int j = 0; j < NV; j++)
					dd += ld(go + 16 * j) * ld(o + at + 16 * j);
				float delta = sum16(dd), L = lse[((long)b * Hq + h) * T + t];
				int lo = begin[n], m = t + 1 - lo;
				for (int x = 0; x < m; x += 32) {
					v16 a0 = { 0 }, a1 = { 0 }, b0 = { 0 }, b1 = { 0 };
					if (x + lo + 32 <= Tp) {
						for (int i = 0; i < D; i++) {
							const float *kk = kt + i * Tp + lo + x,
								    *vv = vt + i * Tp + lo + x;
							a0 += qq[i] * ld(kk);
							a1 += qq[i] * ld(kk + 16);
							b0 += go[i] * ld(vv);
							b1 += go[i] * ld(vv + 16);
						}
						for (int y = 0; y < 16 && x + y < m; y++)
							p[x + y] = a0[y], dp[x + y] = b0[y];
						for (int y = 0; y < 16 && x + 16 + y < m; y++)
							p[x + 16 + y] = a1[y], dp[x + 16 + y] = b1[y];
					} else {
						for (int y = x; y < m; y += 16) {
							v16 c0 = { 0 }, c1 = { 0 };
							for (int i = 0; i < D; i++)
								c0 += qq[i] * ld(kt + i * Tp + lo + y),
									c1 += go[i] * ld(vt + i * Tp + lo + y);
							for (int z = 0; z < 16 && y + z < m; z++)
								p[y + z] = c0[z], dp[y + z] = c1[z];
						}
						break;
					}
				}
				for (int x = 0; x < m; x++) {
					p[x] = expf(p[x] - L);
					dp[x] = p[x] * (dp[x] - delta);
				}
				v16 acc[NV] = { 0 }, qv[NV], gv[NV];
				for (int j = 0; j < NV; j++)
					qv[j] = ld(qq + 16 * j), gv[j] = ld(go + 16 * j);
				for (int x = 0; x < m; x++) {
					long kat = (((long)b * T + lo + x) * Hk + hk) * D;
					for (int j = 0; j < NV; j++) {
						acc[j] += dp[x] * ld(k + kat + 16 * j);
						st(dk + kat + 16 * j, ld(dk + kat + 16 * j) + dp[x] * qv[j]);
						st(dv + kat + 16 * j, ld(dv + kat + 16 * j) + p[x] * gv[j]);
					}
				}
				for (int j = 0; j < NV; j++)
					st(dq + at + 16 * j, acc[j]);
			}
		free(kt);
		free(vt);
		free(p);
		free(dp);
	}
}

/* ---- norms. rows of width W; out = x r w in bf16, r kept */
void norm_fwd(const float *x, const float *w, bf16 *out, float *rs, long N, int W)
{
#pragma omp parallel for schedule(static)
	for (long n = 0; n < N; n++) {
		const float *a = x + n * W;
		float s = 0;
		for (int i = 0; i < W; i++)
			s += a[i] * a[i];
		float r = 1.0f / sqrtf(s / W + 1e-6f);
		rs[n] = r;
		for (int i = 0; i < W; i++)
			out[n * W + i] = down(a[i] * r * w[i]);
	}
}

/* dx: float; dw: [2][W], one row for each half of the rows */
void norm_bwd(const bf16 *dy, const float *x, const float *w, const float *rs, float *dx, float *dw, long N, int W)
{
#pragma omp parallel for schedule(static)
	for (int half = 0; half < 2; half++) {
		float *dws = dw + half * W;
		memset(dws, 0, sizeof(float) * W);
		for (long n = half * (N / 2); n < (half ? N : N / 2); n++) {
			const float *a = x + n * W;
			float r = rs[n], s = 0, *o = dx + n * W;
			for (int i = 0; i < W; i++) {
				float d = up(dy[n * W + i]), xn = a[i] * r;
				dws[i] += d * xn;
				o[i] = d * w[i];
				s += o[i] * xn;
			}
			s = s * r / W;
			for (int i = 0; i < W; i++)
				o[i] = r * (o[i] - a[i] * s);
		}
	}
}

/* ---- norm over heads of D, weight, times SiLU of the gate z (bf16, row stride zs) */
void gated_fwd(const float *x, const float *w, const bf16 *z, long zs, bf16 *out, float *rs, long N, int H)
{
#pragma omp parallel for schedule(static)
	for (long n = 0; n < N; n++)
		for (int h = 0; h < H; h++) {
			const float *a = x + (n * H + h) * D;
			float s = 0;
			for (int i = 0; i < D; i++)
				s += a[i] * a[i];
			float r = 1.0f / sqrtf(s / D + 1e-6f);
			rs[n * H + h] = r;
			for (int i = 0; i < D; i++) {
				float g = up(z[n * zs + h * D + i]);
				out[(n * H + h) * D + i] = down(a[i] * r * w[i] * g * sigmoid(g));
			}
		}
}

void gated_bwd(const bf16 *dy, const float *x, const float *w, const bf16 *z, long zs, const float *rs, float *dx,
               bf16 *dz, float *dw, long N, int H)
{
#pragma omp parallel for schedule(static)
	for (int half = 0; half < 2; half++) {
		float *dws = dw + half * D;
		memset(dws, 0, sizeof(float) * D);
		for (long n = half * (N / 2); n < (half ? N : N / 2); n++)
			for (int h = 0; h < H; h++) {
				const float *a = x + (n * H + h) * D;
				float r = rs[n * H + h], s = 0, *o = dx + (n * H + h) * D;
				for (int i = 0; i < D; i++) {
					float g = up(z[n * zs + h * D + i]), d = up(dy[(n * H + h) * D + i]),
					      sg = sigmoid(g), xn = a[i] * r;
					dz[(n * H + h) * D + i] = down(d * xn * w[i] * sg * (1 + g * (1 - sg)));
					d *= g * sg;
					dws[i] += d * xn;
					o[i] = d * w[i];
					s += o[i] * xn;
				}
				s = s * r / D;
				for (int i = 0; i < D; i++)
					o[i] = r * (o[i] - a[i] * s);
			}
	}
}

/* ---- SwiGLU: gu [N, 2 I] gate and up in bf16 */
void swiglu_fwd(const bf16 *gu, bf16 *out, long N, int I)
{
#pragma omp parallel for schedule(static)
	for (long n = 0; n < N; n++)
		for (int i = 0; i < I; i++) {
			float g = up(gu[n * 2 * I + i]);
			out[n * I + i] = down(g * sigmoid(g) * up(gu[n * 2 * I + I + i]));
		}
}

void swiglu_bwd(const bf16 *dy, const bf16 *gu, bf16 *dgu, long N, int I)
{
#pragma omp parallel for schedule(static)
	for (long n = 0; n < N; n++)
		for (int i = 0; i < I; i++) {
			float g = up(gu[n * 2 * I + i]), u = up(gu[n * 2 * I + I + i]), d = up(dy[n * I + i]),
			      s = sigmoid(g);
			dgu[n * 2 * I + i] = down(d * u * s * (1 + g * (1 - s)));
			dgu[n * 2 * I + I + i] = down(d * g * s);
		}
}
