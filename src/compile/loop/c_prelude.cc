#include "compile/loop/c_prelude.h"

namespace tutti {

// Only what is elementary in IEEE 754, and multiply-adds where they are written, so that every
// instruction set gives the same bits. Vectors are as wide as registers: wider ones are compared
// element by element by gcc 12. Polynomials: exp and log as in Cephes; erf fitted, within 4e-7 of
// the true value.
const char* const kCPrelude = R"(#if defined(__AVX512F__)
#define LANES 16
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#elif defined(__AVX2__)
#define LANES 8
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#else
#define LANES 4
#define LANE_NUMBERS 0, 1, 2, 3
#endif
#define PARTS (16 / LANES)
#define VECTOR(name, type)                                     \
  typedef type name __attribute__((vector_size(LANES * sizeof(type)))); \
  typedef type name##_any                                      \
      __attribute__((vector_size(LANES * sizeof(type)), aligned(sizeof(type)), may_alias));
VECTOR(vf, float)
VECTOR(vi, int)
VECTOR(vu, unsigned)
VECTOR(vl, long long)
VECTOR(vh, unsigned short)
VECTOR(vb, unsigned char)
VECTOR(vhf, _Float16)
#define INLINE static inline __attribute__((always_inline))
#define INFINITE __builtin_inff()
INLINE vf splat_f(float x) { return x - (vf){0}; }
INLINE vi splat_i(int x) { return x - (vi){0}; }
INLINE vu splat_u(unsigned x) { return x - (vu){0}; }
INLINE vl splat_l(long long x) { return x - (vl){0}; }
static const vi lanes = {LANE_NUMBERS};
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
#define SUM_LANES(name, type)                                    \
  INLINE type sum_lanes_##name(const v##name* v) {               \
    type a[16], b[8], c[4];                                      \
    for (int i = 0; i < 16; ++i) a[i] = v[i / LANES][i % LANES]; \
    for (int i = 0; i < 8; ++i) b[i] = a[i] + a[i + 8];          \
    for (int i = 0; i < 4; ++i) c[i] = b[i] + b[i + 4];          \
    return (c[0] + c[2]) + (c[1] + c[3]);                        \
  }
SUM_LANES(f, float)
SUM_LANES(i, int)
SUM_LANES(u, unsigned)
SUM_LANES(l, long long)
INLINE vf max_f(vf a, vf b) { return pick_f((a > b) | (a != a), a, b); }
INLINE vf min_f(vf a, vf b) { return pick_f((a < b) | (a != a), a, b); }
INLINE float max_lanes_f(const vf* v) {
  float m = v[0][0];
  for (int i = 1; i < 16; ++i) {
    float x = v[i / LANES][i % LANES];
    m = (m > x) | (m != m) ? m : x;
  }
  return m;
}
// Of whole numbers; `mask` makes of what a comparison gives what pick takes. Processors trap where
// division has no result, also in lanes that nobody asked for.
#define WHOLE(name, type, mask)                                                          \
  INLINE v##name max_##name(v##name a, v##name b) {                                      \
    return pick_##name(mask(a > b), a, b);                                               \
  }                                                                                      \
  INLINE type max_lanes_##name(const v##name* v) {                                       \
    type m = v[0][0];                                                                    \
    for (int i = 1; i < 16; ++i)                                                         \
      m = m > v[i / LANES][i % LANES] ? m : v[i / LANES][i % LANES];                     \
    return m;                                                                            \
  }                                                                                      \
  INLINE v##name div_##name(v##name a, v##name b) {                                      \
    for (int i = 0; i < LANES; ++i)                                                      \
      a[i] = b[i] == 0                          ? 0                                      \
             : (type)-1 < 0 && b[i] == (type)-1 ? (type)(0 - (unsigned long long)a[i])   \
                                                : a[i] / b[i];                           \
    return a;                                                                            \
  }                                                                                      \
  INLINE v##name abs_##name(v##name x) { return pick_##name(mask(x < 0), -x, x); }       \
  INLINE v##name sign_##name(v##name x) {                                                \
    return pick_##name(mask(x > 0), splat_##name(1),                                     \
                       pick_##name(mask(x < 0), splat_##name(-1), x));                   \
  }
WHOLE(i, int, (vi))
WHOLE(u, unsigned, (vi))
WHOLE(l, long long, narrow_l)
#if defined(__has_builtin) && __has_builtin(__builtin_elementwise_fma)
INLINE vf fma_f(vf a, vf b, vf c) { return __builtin_elementwise_fma(a, b, c); }
#elif LANES == 16
INLINE vf fma_f(vf a, vf b, vf c) {
  return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);
}
#elif LANES == 8
INLINE vf fma_f(vf a, vf b, vf c) { return __builtin_ia32_vfmaddps256(a, b, c); }
#else
INLINE vf fma_f(vf a, vf b, vf c) {
  for (int i = 0; i < LANES; ++i) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return a;
}
#endif
INLINE vf abs_f(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf floor_f(vf x) {
  vf cut = __builtin_convertvector(__builtin_convertvector(x, vi), vf);
  vf low = cut - pick_f(cut > x, splat_f(1), splat_f(0));
  low = (vf)((vi)low | ((vi)x & (int)0x80000000));
  return pick_f(abs_f(x) < 8388608.0f, low, x);
}
INLINE vf sqrt_f(vf x) {
  for (int i = 0; i < LANES; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
INLINE vf pow_f(vf x, vf y) {
  for (int i = 0; i < LANES; ++i) x[i] = __builtin_powf(x[i], y[i]);
  return x;
}
INLINE vf sign_f(vf x) {
  return pick_f(x > 0.0f, splat_f(1), pick_f(x < 0.0f, splat_f(-1), x));
}
INLINE vf exp_f(vf x) {
  vf in = pick_f(x < -104.0f, splat_f(-104), x);
  in = pick_f(in > 89.0f, splat_f(89), in);
  // Adding 1.5 * 2^23 rounds, and leaves the whole number in the lowest bits.
  vf moved = fma_f(in, splat_f(1.44269504088896341f), splat_f(12582912));
  vf n = moved - 12582912.0f;
  vf r = fma_f(n, splat_f(-0.693359375f), in);
  r = fma_f(n, splat_f(2.12194440e-4f), r);
  vf y = splat_f(1.9875691500e-4f);
  y = fma_f(y, r, splat_f(1.3981999507e-3f));
  y = fma_f(y, r, splat_f(8.3334519073e-3f));
  y = fma_f(y, r, splat_f(4.1665795894e-2f));
  y = fma_f(y, r, splat_f(1.6666665459e-1f));
  y = fma_f(y, r, splat_f(5.0000001201e-1f));
  y = fma_f(y, r * r, r) + 1.0f;
  vi whole = (vi)moved - 0x4b400000;
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
  y = fma_f(y, m, splat_f(-1.1514610310e-1f));
  y = fma_f(y, m, splat_f(1.1676998740e-1f));
  y = fma_f(y, m, splat_f(-1.2420140846e-1f));
  y = fma_f(y, m, splat_f(1.4249322787e-1f));
  y = fma_f(y, m, splat_f(-1.6668057665e-1f));
  y = fma_f(y, m, splat_f(2.0000714765e-1f));
  y = fma_f(y, m, splat_f(-2.4999993993e-1f));
  y = fma_f(y, m, splat_f(3.3333331174e-1f));
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
  y = fma_f(y, z, splat_f(2.06390887954e-2f));
  y = fma_f(y, z, splat_f(-5.37397155531e-2f));
  y = fma_f(y, z, splat_f(1.33314422036e-1f));
  y = fma_f(y, z, splat_f(-3.33332819422e-1f));
  vf near = fma_f(y * z, x, x);
  vf far = 1.0f - 2.0f / (exp_f(a + a) + 1.0f);
  far = (vf)((vi)far | ((vi)x & (int)0x80000000));
  return pick_f(a < 0.625f, near, far);
}
INLINE vf erf_f(vf x) {
  vf in = pick_f(x < -3.925f, splat_f(-3.925f), x);
  in = pick_f(in > 3.925f, splat_f(3.925f), in);
  vf z = in * in;
  vf y = splat_f(2.046048848569626e-06f);
  y = fma_f(y, z, splat_f(0.0002848402364179492f));
  y = fma_f(y, z, splat_f(0.0037724152207374573f));
  y = fma_f(y, z, splat_f(0.05276888608932495f));
  y = fma_f(y, z, splat_f(0.19059064984321594f));
  y = fma_f(y, z, splat_f(1.1283791065216064f));
  vf q = splat_f(3.804782318184152e-05f);
  q = fma_f(q, z, splat_f(0.0011638244614005089f));
  q = fma_f(q, z, splat_f(0.014982929453253746f));
  q = fma_f(q, z, splat_f(0.11418143659830093f));
  q = fma_f(q, z, splat_f(0.5022392868995667f));
  q = fma_f(q, z, splat_f(1.0f));
  y = in * y / q;
  y = pick_f(y < -1.0f, splat_f(-1), y);
  return pick_f(y > 1.0f, splat_f(1), y);
}
// What is far from 0 as so many quarters of a turn and what is left of it. Of 2/pi the 96 bits are
// multiplied whose products are less than a turn: what is before them gives whole turns, what is
// after them less than 2^-70.
INLINE float far_angle(float x, int* quarters) {
  static const unsigned two_over_pi[] = {0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0,
                                         0xDB629599, 0x3C439041, 0xFE5163AB};
  union { float number; unsigned bits; } its = {x};
  int power = (int)((its.bits >> 23) & 255) - 150;
  if (power == 105) return x - x;
  int skipped = power < 2 ? 0 : power - 2;
  unsigned __int128 window = 0;
  for (int i = 0; i < 4; ++i) window = window << 32 | two_over_pi[skipped / 32 + i];
  window = (window << skipped % 32) >> 32;
  unsigned __int128 product = window * ((its.bits & 0x7fffff) | 0x800000);
  unsigned long long turn = (unsigned long long)(product >> (96 - power + skipped - 62));
  unsigned long long whole = (turn + (1ull << 61)) >> 62;
  double left = (double)(long long)(turn - (whole << 62)) * 3.4061215800865545e-19;
  *quarters = x < 0 ? -(int)whole : (int)whole;
  return x < 0 ? -(float)left : (float)left;
}
INLINE vf sin_of(vf x, int quarter) {
  vf n = floor_f(x * 0.636619772367581343f + 0.5f);
  vf r = x - n * 1.5703125f - n * 4.837512969970703125e-4f - n * 7.54978995489188216e-8f;
  vi turn = __builtin_convertvector(n, vi) + quarter;
  // Up to here n times the parts of pi/2 is exact; NaN is far as well.
  vi far = ~(abs_f(x) <= 8192.0f);
  int any = 0;
  for (int i = 0; i < LANES; ++i) any |= far[i];
  if (any)
    for (int i = 0; i < LANES; ++i)
      if (far[i]) {
        int quarters = 0;
        r[i] = far_angle(x[i], &quarters);
        turn[i] = quarters + quarter;
      }
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
