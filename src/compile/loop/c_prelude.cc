#include "compile/loop/c_prelude.h"

namespace tutti {

// Only what is elementary in IEEE 754 (the file is compiled without contraction), so that every
// instruction set gives the same bits. Polynomials: exp and log as in Cephes; erf fitted, within
// 2e-7 of the true value.
const char* const kCPrelude = R"(typedef float vf __attribute__((vector_size(64)));
typedef int vi __attribute__((vector_size(64)));
typedef unsigned vu __attribute__((vector_size(64)));
typedef long long vl __attribute__((vector_size(128)));
typedef unsigned short vh __attribute__((vector_size(32)));
typedef unsigned char vb __attribute__((vector_size(16)));
typedef _Float16 vhf __attribute__((vector_size(32)));
typedef float vf_any __attribute__((vector_size(64), aligned(4), may_alias));
typedef int vi_any __attribute__((vector_size(64), aligned(4), may_alias));
typedef unsigned vu_any __attribute__((vector_size(64), aligned(4), may_alias));
typedef long long vl_any __attribute__((vector_size(128), aligned(8), may_alias));
typedef unsigned short vh_any __attribute__((vector_size(32), aligned(2), may_alias));
typedef unsigned char vb_any __attribute__((vector_size(16), aligned(1), may_alias));
typedef _Float16 vhf_any __attribute__((vector_size(32), aligned(2), may_alias));
#define INLINE static inline __attribute__((always_inline))
#define INFINITE __builtin_inff()
INLINE vf splat_f(float x) { return x - (vf){0}; }
INLINE vi splat_i(int x) { return x - (vi){0}; }
INLINE vu splat_u(unsigned x) { return x - (vu){0}; }
INLINE vl splat_l(long long x) { return x - (vl){0}; }
static const vi lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
INLINE vf pick_f(vi m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }
INLINE vi pick_i(vi m, vi a, vi b) { return (m & a) | (~m & b); }
INLINE vu pick_u(vi m, vu a, vu b) { return ((vu)m & a) | (~(vu)m & b); }
INLINE vl pick_l(vi m, vl a, vl b) {
  vl w = __builtin_convertvector(m, vl);
  return (w & a) | (~w & b);
}
INLINE vi narrow_l(vl m) { return __builtin_convertvector(m, vi); }
#define LOADS(name, vector, any, type)                                               \
  INLINE vector load_##name(const type* p) { return *(const any*)p; }                \
  INLINE vector load_part_##name(const type* p, long n) {                            \
    vector v = {0};                                                                  \
    for (long i = 0; i < n; ++i) v[i] = p[i];                                        \
    return v;                                                                        \
  }                                                                                  \
  INLINE vector load_far_##name(const type* p, long stride, long n) {                \
    vector v = {0};                                                                  \
    for (long i = 0; i < n; ++i) v[i] = p[i * stride];                               \
    return v;                                                                        \
  }                                                                                  \
  INLINE void store_##name(type* p, vector v) { *(any*)p = v; }                      \
  INLINE void store_part_##name(type* p, vector v, long n) {                         \
    for (long i = 0; i < n; ++i) p[i] = v[i];                                        \
  }                                                                                  \
  INLINE void store_far_##name(type* p, vector v, long stride, long n) {             \
    for (long i = 0; i < n; ++i) p[i * stride] = v[i];                               \
  }
LOADS(f, vf, vf_any, float)
LOADS(i, vi, vi_any, int)
LOADS(u, vu, vu_any, unsigned)
LOADS(l, vl, vl_any, long long)
LOADS(h, vh, vh_any, unsigned short)
LOADS(b, vb, vb_any, unsigned char)
LOADS(hf, vhf, vhf_any, _Float16)
INLINE vf from_bf16(vh x) { return (vf)(__builtin_convertvector(x, vu) << 16); }
INLINE vh to_bf16(vf x) {
  vu u = (vu)x;
  vu near = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  vu quiet = (u >> 16) | 0x40;
  return __builtin_convertvector(pick_u(x != x, quiet, near), vh);
}
INLINE float sum_lanes(vf v) {
  float a[8], b[4];
  for (int i = 0; i < 8; ++i) a[i] = v[i] + v[i + 8];
  for (int i = 0; i < 4; ++i) b[i] = a[i] + a[i + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}
INLINE vf max_f(vf a, vf b) { return pick_f((a > b) | (a != a), a, b); }
INLINE vf min_f(vf a, vf b) { return pick_f((a < b) | (a != a), a, b); }
INLINE float max_lanes(vf v) {
  float m = v[0];
  for (int i = 1; i < 16; ++i) m = (m > v[i]) | (m != m) ? m : v[i];
  return m;
}
INLINE vf abs_f(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf floor_f(vf x) {
  for (int i = 0; i < 16; ++i) x[i] = __builtin_floorf(x[i]);
  return x;
}
INLINE vf sqrt_f(vf x) {
  for (int i = 0; i < 16; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
INLINE vf pow_f(vf x, vf y) {
  for (int i = 0; i < 16; ++i) x[i] = __builtin_powf(x[i], y[i]);
  return x;
}
INLINE vf sign_f(vf x) {
  return pick_f(x > 0.0f, splat_f(1), pick_f(x < 0.0f, splat_f(-1), x));
}
INLINE vf exp_f(vf x) {
  vf in = min_f(max_f(x, splat_f(-104)), splat_f(89));
  vf n = floor_f(in * 1.44269504088896341f + 0.5f);
  vf r = in - n * 0.693359375f - n * -2.12194440e-4f;
  vf y = splat_f(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  vi whole = __builtin_convertvector(n, vi);
  vi half = whole >> 1;
  return y * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
}
INLINE vf log_f(vf x) {
  vi tiny = x < 1.17549435e-38f;
  vf scaled = pick_f(tiny, x * 33554432.0f, x);
  vi bits = (vi)scaled;
  vi power = (bits >> 23) - 126 - (tiny & 25);
  vf m = (vf)((bits & 0x007fffff) | 0x3f000000);
  vi low = m < 0.707106781186547524f;
  vf e = __builtin_convertvector(power + low, vf);
  m = m + pick_f(low, m, splat_f(0)) - 1.0f;
  vf z = m * m;
  vf y = splat_f(7.0376836292e-2f);
  y = y * m - 1.1514610310e-1f;
  y = y * m + 1.1676998740e-1f;
  y = y * m - 1.2420140846e-1f;
  y = y * m + 1.4249322787e-1f;
  y = y * m - 1.6668057665e-1f;
  y = y * m + 2.0000714765e-1f;
  y = y * m - 2.4999993993e-1f;
  y = y * m + 3.3333331174e-1f;
  y = y * m * z + e * -2.12194440e-4f - 0.5f * z;
  y = m + y + e * 0.693359375f;
  y = pick_f(x == 0.0f, splat_f(-INFINITE), y);
  y = pick_f(x == INFINITE, x, y);
  return pick_f((x < 0.0f) | (x != x), splat_f(__builtin_nanf("")), y);
}
INLINE vf tanh_f(vf x) {
  vf a = abs_f(x);
  vf z = x * x;
  vf y = splat_f(-5.70498872745e-3f);
  y = y * z + 2.06390887954e-2f;
  y = y * z - 5.37397155531e-2f;
  y = y * z + 1.33314422036e-1f;
  y = y * z - 3.33332819422e-1f;
  vf near = y * z * x + x;
  vf far = 1.0f - 2.0f / (exp_f(a + a) + 1.0f);
  far = (vf)((vi)far | ((vi)x & (int)0x80000000));
  return pick_f(a < 0.625f, near, far);
}
INLINE vf erf_f(vf x) {
  vf a = abs_f(x);
  vf z = x * x;
  vf y = splat_f(-9.673590284364764e-06f);
  y = y * z + 0.00011268253729213029f;
  y = y * z - 0.0008484396385028958f;
  y = y * z + 0.005221053492277861f;
  y = y * z - 0.026865437626838684f;
  y = y * z + 0.11283782869577408f;
  y = y * z - 0.37612637877464294f;
  y = y * z + 1.128379225730896f;
  vf near = y * x;
  vf t = min_f(a, splat_f(4.1f));
  vf q = splat_f(1.5714821302026394e-06f);
  q = q * t - 4.476286267163232e-05f;
  q = q * t + 0.0005859133088961244f;
  q = q * t - 0.0047086793929338455f;
  q = q * t + 0.026276718825101852f;
  q = q * t - 0.10982606559991837f;
  q = q * t - 0.6320961713790894f;
  q = q * t - 1.1300748586654663f;
  q = q * t + 0.0002808104909490794f;
  vf far = 1.0f - exp_f(q);
  far = (vf)((vi)far | ((vi)x & (int)0x80000000));
  vf out = pick_f(a < 1.0f, near, far);
  return pick_f(x != x, x, out);
}
INLINE vf sin_of(vf x, int quarter) {
  vf n = floor_f(x * 0.636619772367581343f + 0.5f);
  vf r = x - n * 1.5703125f - n * 4.837512969970703125e-4f - n * 7.54978995489188216e-8f;
  vi turn = __builtin_convertvector(n, vi) + quarter;
  vf z = r * r;
  vf s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  vf c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
         0.5f * z + 1.0f;
  vf y = pick_f((turn & 1) != 0, c, s);
  return pick_f((turn & 2) != 0, -y, y);
}
INLINE vf sin_f(vf x) { return sin_of(x, 0); }
INLINE vf cos_f(vf x) { return sin_of(x, 1); }
INLINE unsigned random_bits(unsigned long long key, unsigned long long step,
                            unsigned long long index) {
  unsigned long long block = index / 4;
  unsigned c0 = (unsigned)block, c1 = (unsigned)(block >> 32);
  unsigned c2 = (unsigned)step, c3 = (unsigned)(step >> 32);
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    unsigned long long a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    unsigned n0 = (unsigned)(b >> 32) ^ c1 ^ k0, n2 = (unsigned)(a >> 32) ^ c3 ^ k1;
    c1 = (unsigned)b;
    c3 = (unsigned)a;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  unsigned out[4] = {c0, c1, c2, c3};
  return out[index % 4];
}
INLINE vu random_u(unsigned long long key, long long step, long long index, long n) {
  vu v = {0};
  for (long i = 0; i < n; ++i)
    v[i] = random_bits(key, (unsigned long long)step, (unsigned long long)(index + i));
  return v;
}
)";

}  // namespace tutti
