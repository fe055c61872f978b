/* The sums of whole blocks, in lanes of one instruction set. _kernel.c includes this file with
 * LANES (a lane is 4 bytes), ISA(name) and TARGET defined. It also defines the following if the
 * instruction set has a single instruction for them, where GCC would use four: HALF(x) widens LANES
 * halves, BYTES(at) widens 2 * LANES bytes to int16, LARGER16 and LARGER32 select the larger of
 * signed lanes. */

#ifndef LARGER16
#define LARGER16(a, b) (((a) & ((a) > (b))) | ((b) & ~((a) > (b))))
#define LARGER32 LARGER16
#endif

/* Elements summed in float32 before the sum is added in float64: 8 groups of four vectors, so that a
 * lane adds equally often at any vector width. The squares of equal values are all rounded in the same
 * direction, so the error depends on this number, not on the length of the array. The squares of
 * bfloat16 have few digits and are rounded less. */
#define RUN(dtype) ((size_t)((dtype) == BF16 ? 32 : 8) * 4 * LANES)

#define f32v ISA(f32v)
#define u32v ISA(u32v)
#define i32v ISA(i32v)
#define i16v ISA(i16v)
#define i64v ISA(i64v)
#define d64v ISA(d64v)
#define h16v ISA(h16v)
#define half_f32v ISA(half_f32v)
#define Pair ISA(Pair)
#define load_f32 ISA(load_f32)
#define load_bf16 ISA(load_bf16)
#define load_f16 ISA(load_f16)
#define load_f8 ISA(load_f8)
#define load ISA(load)
#define sizes16 ISA(sizes16)
#define sizes32 ISA(sizes32)
#define largest ISA(largest)
#define total ISA(total)
#define wide ISA(wide)
#define fast_block ISA(fast_block)
#define double_block ISA(double_block)
#define few ISA(few)
#define end_block ISA(end_block)
#define few_u16v ISA(few_u16v)
#define half_u32v ISA(half_u32v)
#define walk ISA(walk)

typedef float f32v __attribute__((vector_size(4 * LANES)));
typedef uint32_t u32v __attribute__((vector_size(4 * LANES)));
typedef int32_t i32v __attribute__((vector_size(4 * LANES)));
typedef int16_t i16v __attribute__((vector_size(4 * LANES)));
typedef int16_t h16v __attribute__((vector_size(2 * LANES)));
typedef float half_f32v __attribute__((vector_size(2 * LANES)));
typedef uint32_t half_u32v __attribute__((vector_size(2 * LANES)));
typedef uint16_t few_u16v __attribute__((vector_size(LANES)));
typedef double d64v __attribute__((vector_size(4 * LANES)));
typedef int64_t i64v __attribute__((vector_size(4 * LANES)));

/* ---- 2 * LANES elements as float32, in an order that depends on the dtype ----
 * The order does not matter: all arrays of a call have one dtype, and they are only summed. */

typedef struct { f32v a, b; } Pair;

TARGET INLINE Pair load_f32(const char *at, size_t i) {
    f32v a, b;
    memcpy(&a, at + 4 * i, sizeof a);
    memcpy(&b, at + 4 * i + sizeof a, sizeof b);
    return (Pair){a, b};
}

/* A bfloat16 is the upper half of a float32: a shift and a mask make two of them from one word. */
TARGET INLINE Pair load_bf16(const char *at, size_t i) {
    u32v w;
    memcpy(&w, at + 2 * i, sizeof w);
    return (Pair){(f32v)(w << 16), (f32v)(w & 0xffff0000u)};
}

TARGET INLINE Pair load_f16(const char *at, size_t i) {
#ifdef HALF
    h16v a, b;
    memcpy(&a, at + 2 * i, sizeof a);
    memcpy(&b, at + 2 * i + sizeof a, sizeof b);
    return (Pair){(f32v)HALF(a), (f32v)HALF(b)};
#else
    f32v a = {0}, b = {0};
    for (int lane = 0; lane < LANES; lane++) {
        uint16_t h[2];
        memcpy(h, at + 2 * (i + 2 * (size_t)lane), sizeof h);
        a[lane] = half_to_float(h[0]);
        b[lane] = half_to_float(h[1]);
    }
    return (Pair){a, b};
#endif
}

/* A float8 shifted to the upper bits of a half has its value except for the exponent's bias, which
 * one multiplication corrects; NaN is set separately. float8_e5m2 is the upper byte of a half. The
 * exponents of e5m2fnuz exceed those of a half by one; it is looked up in a table, as is every float8
 * on other processors. */
TARGET INLINE Pair load_f8(DType dtype, const char *at, size_t i) {
#ifdef BYTES
    if (dtype != F8_E5M2FNUZ) {
        i16v w = (i16v)BYTES(at + i), rest = w & 0x7f;
        i16v special = dtype == F8_E4M3FN ? rest == 0x7f : w == 0x80;
        i16v moved = dtype == F8_E5M2 ? w << 8 : rest << 7 | (w & 0x80) << 8 | (special & 0x7e00);
        const float scale = dtype == F8_E4M3FN ? 0x1p8f : dtype == F8_E4M3FNUZ ? 0x1p7f : 1;
        h16v half[2];
        memcpy(half, &moved, sizeof moved);
        return (Pair){(f32v)HALF(half[0]) * scale, (f32v)HALF(half[1]) * scale};
    }
#endif
    const uint8_t *byte = (const uint8_t *)at + i;
    f32v a = {0}, b = {0};
    for (int lane = 0; lane < LANES; lane++) {
        a[lane] = F8[dtype][byte[2 * lane]];
        b[lane] = F8[dtype][byte[2 * lane + 1]];
    }
    return (Pair){a, b};
}

TARGET INLINE Pair load(DType dtype, const char *at, size_t i) {
    if (dtype == F32) return load_f32(at, i);
    if (dtype == BF16) return load_bf16(at, i);
    if (dtype == F16) return load_f16(at, i);
    return load_f8(dtype, at, i);
}

/* ---- the largest magnitude, as bits without the sign: they sort like the values, with infinity
 * and NaN above all others. 16-bit dtypes are compared before they are widened. ---- */

TARGET INLINE i16v sizes16(i16v top, const char *at, size_t i) {
    i16v w;
    memcpy(&w, at + 2 * i, sizeof w);
    w &= 0x7fff;
    return LARGER16(top, w);
}

TARGET INLINE i32v sizes32(i32v top, f32v x) {
    i32v w = (i32v)x & 0x7fffffff;
    return LARGER32(top, w);
}

TARGET INLINE double largest(DType dtype, i16v top16, i32v top32) {
    int32_t most = 0;
    for (int lane = 0; lane < 2 * LANES; lane++) if (top16[lane] > most) most = top16[lane];
    if (dtype == BF16) return bits_to_float((uint32_t)most << 16);
    if (dtype == F16) return half_to_float((uint16_t)most);
    for (int lane = 0; lane < LANES; lane++) if (top32[lane] > most) most = top32[lane];
    return bits_to_float((uint32_t)most);
}

TARGET INLINE double total(d64v x) {
    double sum = 0;
    for (int lane = 0; lane < LANES / 2; lane++) sum += x[lane];
    return sum;
}

/* Add float32 lanes to half as many float64 lanes. The two halves are separated by memcpy, which GCC
 * keeps in registers; a float64 vector of all lanes would be wider than the processor's, and GCC would
 * handle it element by element. */
TARGET INLINE d64v wide(d64v sum, f32v x) {
    half_f32v h[2];
    memcpy(h, &x, sizeof x);
    return sum + (__builtin_convertvector(h[0], d64v) + __builtin_convertvector(h[1], d64v));
}

/* Sum a block of n elements, a multiple of RUN, in float32; 0 if it must be computed again in float64.
 * `dtype` and the presence of `p` and `z` are constants at every call, so each combination is compiled
 * to a loop of its own. The products of four vectors are added to each other and then, once, to the
 * running sum: this makes dependency chains short and roundings in a row few. */
TARGET INLINE int fast_block(DType dtype, const char *t, const char *p, const char *z, size_t n, Sums *s) {
    const size_t length = RUN(dtype);
    d64v sumsq = {0}, dots = {0}, deltas = {0}, inits = {0};
    i16v top16 = {0};
    i32v top32[2] = {{0}};
    for (size_t run = 0; run < n; run += length) {
        f32v sq = {0}, dot = {0}, dsq = {0}, init = {0};
        for (size_t i = run; i < run + length; i += 4 * LANES) {
            f32v sq4, dot4, dsq4, init4;
            for (size_t u = 0; u < 2; u++) {
                const size_t at = i + u * 2 * LANES;
                Pair x = load(dtype, t, at);
                if (dtype == BF16 || dtype == F16) top16 = sizes16(top16, t, at);
                else { top32[0] = sizes32(top32[0], x.a); top32[1] = sizes32(top32[1], x.b); }
                sq4 = u ? sq4 + x.a * x.a : x.a * x.a;
                sq4 += x.b * x.b;
                if (p) {
                    Pair before = load(dtype, p, at);
                    f32v da = x.a - before.a, db = x.b - before.b;
                    dot4 = u ? dot4 + before.a * da : before.a * da;
                    dot4 += before.b * db;
                    dsq4 = u ? dsq4 + da * da : da * da;
                    dsq4 += db * db;
                }
                if (z) {
                    Pair first = load(dtype, z, at);
                    init4 = u ? init4 + first.a * x.a : first.a * x.a;
                    init4 += first.b * x.b;
                }
            }
            for (size_t line = 0; line < 4 * LANES * WIDTH[dtype]; line += 64)
                __builtin_prefetch(t + i * WIDTH[dtype] + AHEAD + line);
            sq += sq4;
            if (p) { dot += dot4; dsq += dsq4; }
            if (z) init += init4;
        }
        sumsq = wide(sumsq, sq);
        if (p) { dots = wide(dots, dot); deltas = wide(deltas, dsq); }
        if (z) inits = wide(inits, init);
    }
    Sums b = {total(sumsq), total(dots), total(deltas), total(inits), 0, 0};
    b.absmax = largest(dtype, top16, sizes32(top32[0], (f32v)top32[1]));
    /* Between these limits, squares, products and their sums are well within the range of float32. */
    int inside = b.absmax == 0 || (b.absmax >= 0x1p-30 && b.absmax <= 0x1p55);
    return inside && accept(&b, s);
}

TARGET INLINE int double_block(const char *t, const char *p, const char *z, size_t n, Sums *s) {
    const size_t pair = LANES, half = LANES / 2;
    d64v sq[2] = {{0}}, dot[2] = {{0}}, dsq[2] = {{0}}, init[2] = {{0}};
    i64v top[2] = {{0}};
    for (size_t i = 0; i < n; i += pair) {
        __builtin_prefetch(t + 8 * i + AHEAD);
        _Pragma("GCC unroll 2") for (size_t u = 0; u < 2; u++) {
            size_t at = 8 * (i + u * half);
            d64v x, before, first;
            memcpy(&x, t + at, sizeof x);
            i64v size = (i64v)x & 0x7fffffffffffffff, keep = top[u] > size;
            top[u] = (top[u] & keep) | (size & ~keep);
            sq[u] += x * x;
            if (p) {
                memcpy(&before, p + at, sizeof before);
                d64v delta = x - before;
                dot[u] += before * delta;
                dsq[u] += delta * delta;
            }
            if (z) {
                memcpy(&first, z + at, sizeof first);
                init[u] += first * x;
            }
        }
    }
    Sums b = {0};
    int64_t most = 0;
    for (size_t u = 0; u < 2; u++)
        for (size_t lane = 0; lane < half; lane++) {
            b.sumsq += sq[u][lane];
            b.dot += dot[u][lane];
            b.sumsq_delta += dsq[u][lane];
            b.dot_init += init[u][lane];
            if (top[u][lane] > most) most = top[u][lane];
        }
    memcpy(&b.absmax, &most, 8);
    return finite64(b.absmax) && accept(&b, s);
}

/* ---- the end of an array, too short for a run: in float64 lanes, as exact as element by element. Biases and scales of
 * small models are nothing else. ---- */

/* Half as many elements as LANES, or those that are left and zeros; of float64, float32 or bfloat16. */
TARGET INLINE d64v few(DType dtype, const char *at, size_t i, size_t n) {
    char bytes[4 * LANES] = {0};
    if (n - i >= LANES / 2) memcpy(bytes, at + WIDTH[dtype] * i, WIDTH[dtype] * (LANES / 2));
    else memcpy(bytes, at + WIDTH[dtype] * i, WIDTH[dtype] * (n - i));
    d64v wide_x;
    half_f32v x;
    memcpy(&wide_x, bytes, sizeof wide_x);
    if (dtype == F64) return wide_x;
    memcpy(&x, bytes, sizeof x);
    if (dtype == F32) return __builtin_convertvector(x, d64v);
    few_u16v upper;
    memcpy(&upper, bytes, sizeof upper);
    x = (half_f32v)(__builtin_convertvector(upper, half_u32v) << 16);
    return __builtin_convertvector(x, d64v);
}

TARGET INLINE int end_block(DType dtype, const char *t, const char *p, const char *z, size_t n, Sums *s) {
    d64v sq = {0}, dot = {0}, dsq = {0}, init = {0};
    i64v top = {0};
    for (size_t i = 0; i < n; i += LANES / 2) {
        d64v x = few(dtype, t, i, n);
        i64v size = (i64v)x & 0x7fffffffffffffff, keep = top > size;
        top = (top & keep) | (size & ~keep);
        sq += x * x;
        if (p) {
            d64v before = few(dtype, p, i, n), delta = x - before;
            dot += before * delta;
            dsq += delta * delta;
        }
        if (z) init += few(dtype, z, i, n) * x;
    }
    Sums b = {total(sq), total(dot), total(dsq), total(init), 0, 0};
    int64_t most = 0;
    for (int lane = 0; lane < LANES / 2; lane++) if (top[lane] > most) most = top[lane];
    memcpy(&b.absmax, &most, 8);
    return finite64(b.absmax) && accept(&b, s);
}

#define WALK(dtype, p, z)                                                                                \
    for (size_t m; (m = n - i < BLOCK ? (n - i) / RUN(dtype) * RUN(dtype) : BLOCK); i += m) {                         \
        const char *tb = t + i * WIDTH[dtype];                                                           \
        const char *pb = (p) ? (p) + i * WIDTH[dtype] : NULL;                                            \
        const char *zb = (z) ? (z) + i * WIDTH[dtype] : NULL;                                            \
        if (!((dtype) == F64 ? double_block(tb, pb, zb, m, s) : fast_block(dtype, tb, pb, zb, m, s)))   \
            slow_block(dtype, tb, pb, zb, m, s);                                                         \
    }
#define NONE ((const char *)NULL)
#define WALK_ALL(dtype)                     \
    case dtype:                             \
        if (p && z) { WALK(dtype, p, z) }   \
        else if (p) { WALK(dtype, p, NONE) } \
        else if (z) { WALK(dtype, NONE, z) } \
        else { WALK(dtype, NONE, NONE) }    \
        break;

TARGET static void walk(DType dtype, const char *t, const char *p, const char *z, size_t n, Sums *s) {
    size_t i = 0, w = WIDTH[dtype];
    switch (dtype) {
        WALK_ALL(F64) WALK_ALL(F32) WALK_ALL(BF16) WALK_ALL(F16)
        WALK_ALL(F8_E4M3FN) WALK_ALL(F8_E5M2) WALK_ALL(F8_E4M3FNUZ) WALK_ALL(F8_E5M2FNUZ)
        default: break;
    }
    t += i * w; n -= i;
    if (p) p += i * w;
    if (z) z += i * w;
    int done = dtype == F32 ? end_block(F32, t, p, z, n, s) : dtype == BF16 ? end_block(BF16, t, p, z, n, s)
             : dtype == F64 ? end_block(F64, t, p, z, n, s) : 0;
    if (!done) slow_block(dtype, t, p, z, n, s);
}

#undef RUN
#undef f32v
#undef u32v
#undef i32v
#undef i16v
#undef i64v
#undef d64v
#undef h16v
#undef half_f32v
#undef Pair
#undef load_f32
#undef load_bf16
#undef load_f16
#undef load_f8
#undef load
#undef sizes16
#undef sizes32
#undef largest
#undef total
#undef wide
#undef fast_block
#undef double_block
#undef few
#undef end_block
#undef few_u16v
#undef half_u32v
#undef walk
#undef WALK
#undef WALK_ALL
#undef NONE
#undef LANES
#undef ISA
#undef TARGET
#undef HALF
#undef BYTES
#undef LARGER16
#undef LARGER32
