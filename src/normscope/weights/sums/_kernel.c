/* The additive sums of normscope, in one pass over up to three arrays: theta, the same tensor one
 * checkpoint earlier (previous) and in the first checkpoint (initial). With delta = theta - previous,
 *
 *   sumsq = |theta|^2, dot = <previous, delta>, sumsq_delta = |delta|^2, dot_init = <initial, theta>,
 *
 * and also the largest magnitude and the number of non-finite values. `chain` computes them along a
 * series of checkpoints, `sums_many` for many tensors of a live model, which `locate` finds.
 *
 * RUN elements are summed in float32 lanes, a dozen terms per lane, and the sums of the runs are
 * added up in float64. The relative error of |theta| is about 1e-9 for values that vary, and
 * below 1e-7 in the worst case, all values equal; at any length.
 * The check for exceptions is made once per BLOCK. Three kinds of block are computed again, element
 * by element in float64: those with a non-finite value (recognised by its bit pattern; it is
 * counted and left out of the sums), those with values so large or so small that their float32
 * squares would overflow or vanish, and those whose float32 sums are not finite.
 *
 * float64 input is summed in float64 lanes throughout.
 *
 * The fast path is in _lanes.h, which is included once per instruction set; the best one that
 * the processor has is chosen at import. It needs GCC or Clang, because lanes are
 * types of their vector extension. Sources that are files, mapped or read, are in _chain.h, and what happens if
 * one becomes shorter in _guard.h. Only those and the last section depend on Python.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <string.h>
#include <time.h>

#define BLOCK 4096 /* elements checked together */
#define AHEAD 4096 /* bytes prefetched: theta comes from memory, and the processor's own prefetch stops at a page end */
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    double sumsq, dot, sumsq_delta, dot_init, absmax;
    uint64_t nonfinite;
} Sums;

/* ---- one element of any dtype as float64: for the slow path and the ends of arrays ---- */

typedef enum { F64, F32, BF16, F16, F8_E4M3FN, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ, DTYPES } DType;
static const size_t WIDTH[DTYPES] = {8, 4, 2, 2, 1, 1, 1, 1};

static float F8[DTYPES][256]; /* filled once at import */

INLINE float bits_to_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
INLINE uint32_t float_to_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

INLINE float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    if ((h & 0x7c00) == 0x7c00) return bits_to_float(sign | rest | 0x7f800000);
    if ((h & 0x7c00) == 0) { /* zero and subnormals: mantissa times 2^-24 */
        float x = (float)(h & 0x3ff) * 0x1p-24f;
        return sign ? -x : x;
    }
    return bits_to_float(sign | (rest + (112u << 23)));
}

INLINE double element(DType dtype, const char *at, size_t i) {
    at += i * WIDTH[dtype];
    if (dtype == F64) { double x; memcpy(&x, at, 8); return x; }
    if (dtype == F32) { float x; memcpy(&x, at, 4); return x; }
    if (dtype == BF16) { uint16_t h; memcpy(&h, at, 2); return bits_to_float((uint32_t)h << 16); }
    if (dtype == F16) { uint16_t h; memcpy(&h, at, 2); return half_to_float(h); }
    return F8[dtype][*(const uint8_t *)at];
}

INLINE int finite64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}

static void slow_block(DType dtype, const char *t, const char *p, const char *z, size_t n, Sums *s) {
    for (size_t i = 0; i < n; i++) {
        double x = element(dtype, t, i);
        if (!finite64(x)) { s->nonfinite++; continue; }
        double size = x < 0 ? -x : x;
        if (size > s->absmax) s->absmax = size;
        s->sumsq += x * x;
        if (p) {
            double before = element(dtype, p, i), delta = x - before;
            if (finite64(before)) { s->dot += before * delta; s->sumsq_delta += delta * delta; }
        }
        if (z) {
            double first = element(dtype, z, i);
            if (finite64(first)) s->dot_init += first * x;
        }
    }
}

/* Add the sums of a block to s and return 1; if one of them is not finite, add nothing and return 0. */
INLINE int accept(const Sums *b, Sums *s) {
    if (!finite64(b->sumsq) || !finite64(b->dot) || !finite64(b->sumsq_delta) || !finite64(b->dot_init)) return 0;
    s->sumsq += b->sumsq;
    s->dot += b->dot;
    s->sumsq_delta += b->sumsq_delta;
    s->dot_init += b->dot_init;
    if (b->absmax > s->absmax) s->absmax = b->absmax;
    return 1;
}

/* ---- the fast path, once per instruction set ---- */

typedef void Walk(DType dtype, const char *t, const char *p, const char *z, size_t n, Sums *s);

#define LANES 4
#define ISA(name) name##_baseline
#define TARGET
#include "_lanes.h"

#if defined(__x86_64__) && defined(__linux__)
#define LANES 8
#define ISA(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define HALF(x) _mm256_cvtph_ps((__m128i)(x))
#define BYTES(at) _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(at)))
#define LARGER16(a, b) (i16v)_mm256_max_epi16((__m256i)(a), (__m256i)(b))
#define LARGER32(a, b) (i32v)_mm256_max_epi32((__m256i)(a), (__m256i)(b))
#include "_lanes.h"

#define LANES 16
#define ISA(name) name##_avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define HALF(x) _mm512_cvtph_ps((__m256i)(x))
#define BYTES(at) _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(at)))
#define LARGER16(a, b) (i16v)_mm512_max_epi16((__m512i)(a), (__m512i)(b))
#define LARGER32(a, b) (i32v)_mm512_max_epi32((__m512i)(a), (__m512i)(b))
#include "_lanes.h"
#endif

static Walk *walk = walk_baseline;
static const char *instruction_set = "baseline";

/* The best of the processor, or at most the one that is asked for: to test what older processors run. */
static void choose_instruction_set(const char *asked) {
    if (!strcmp(asked, "baseline")) return;
#if defined(__x86_64__) && defined(__linux__)
    __builtin_cpu_init();
    if (strcmp(asked, "avx2") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl")) {
        walk = walk_avx512;
        instruction_set = "avx512";
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) { /* and so f16c */
        walk = walk_avx2;
        instruction_set = "avx2";
    }
#endif
}

/* ---- float8: the 256 values of each format, from its definition ---- */

static void fill_f8(DType dtype, int mantissa, int bias, int fnuz) {
    int exponents = 7 - mantissa, most = (1 << exponents) - 1;
    for (int byte = 0; byte < 256; byte++) {
        int e = (byte & 0x7f) >> mantissa, m = byte & ((1 << mantissa) - 1);
        double x = e ? 1.0 + (double)m / (1 << mantissa) : (double)m / (1 << mantissa);
        int shift = (e ? e : 1) - bias;
        for (; shift > 0; shift--) x *= 2;
        for (; shift < 0; shift++) x /= 2;
        int special = fnuz ? byte == 0x80                          /* the one NaN; no infinity */
            : dtype == F8_E4M3FN ? (byte & 0x7f) == 0x7f           /* NaN only */
            : e == most;                                           /* e5m2: IEEE */
        F8[dtype][byte] = special ? bits_to_float(0x7fc00000) : (float)(byte & 0x80 ? -x : x);
    }
}

/* ---- Python ---- */

#include "_guard.h"
#include "_chain.h"

/* sums_many(work, out): the sums of many arrays, given by address, in one call.
 *
 * work has int64 rows (dtype, elements, theta, previous, initial) with address 0 for a missing
 * array; out gets one row of six doubles for each. This is for live models with thousands of small
 * tensors, where borrowing one buffer per tensor would take longer than the sums. The caller must
 * keep the memory alive. */
static void sum_rows(const int64_t *row, Py_ssize_t rows, double *to) {
    for (Py_ssize_t i = 0; i < rows; i++, row += 5, to += 6) {
        Sums s = {0};
        if (row[1]) /* an empty tensor has no address */
            walk((DType)row[0], (const char *)(intptr_t)row[2], (const char *)(intptr_t)row[3],
                 (const char *)(intptr_t)row[4], (size_t)row[1], &s);
        to[0] = s.sumsq; to[1] = s.dot; to[2] = s.sumsq_delta;
        to[3] = s.dot_init; to[4] = s.absmax; to[5] = (double)s.nonfinite;
    }
}

static PyObject *sums_many(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer work, out;
    if (!PyArg_ParseTuple(args, "y*w*:sums_many", &work, &out)) return NULL;
    Py_ssize_t rows = work.len / 40, wrong = work.len % 40 || out.len != rows * 48 ? -1 : 0;
    const int64_t *row = work.buf;
    for (Py_ssize_t i = 0; !wrong && i < rows; i++)
        if (row[5 * i] < 0 || row[5 * i] >= DTYPES || row[5 * i + 1] < 0) wrong = -1;
    if (!wrong) {
        Py_BEGIN_ALLOW_THREADS
        sum_rows(row, rows, out.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&work);
    PyBuffer_Release(&out);
    if (wrong) return PyErr_Format(PyExc_ValueError, "expected rows of five int64 in work and of six float64 in out");
    Py_RETURN_NONE;
}

/* copy_many(work): copy the arrays given by int64 rows (to, from, bytes), without the GIL. */
static void copy_rows(const int64_t *row, Py_ssize_t rows) {
    for (Py_ssize_t i = 0; i < rows; i++, row += 3)
        if (row[2]) memcpy((void *)(intptr_t)row[0], (const void *)(intptr_t)row[1], (size_t)row[2]);
}

static PyObject *copy_many(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer work;
    if (!PyArg_ParseTuple(args, "y*:copy_many", &work)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    copy_rows(work.buf, work.len / 24);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&work);
    Py_RETURN_NONE;
}

#include "_places.h"
#include "_live.h"

static PyMethodDef METHODS[] = {
    {"chain", chain, METH_VARARGS,
     "chain(dtype, initial, previous, sources, wanted, block, totals, scratch, seconds): sums along several checkpoints"},
    {"sums_many", sums_many, METH_VARARGS, "sums_many(work, out): sums of many arrays, given by address"},
    {"copy_many", copy_many, METH_VARARGS, "copy_many(work): copies of many arrays, given by address"},
    {"exchange", exchange, METH_VARARGS, "exchange(types): ask tensors of these two types by DLPack's exchange API"},
    {"places", places, METH_VARARGS, "places(tensors, dtypes, out): where each tensor of a list is"},
    {"sums_live", sums_live, METH_VARARGS,
     "sums_live(theta, previous, initial, dtypes, gradients, most, rows, out): sums of live tensors, or their table"},
    {"copy_live", copy_live, METH_VARARGS,
     "copy_live(tensors, targets, dtypes, most, work): copies of live tensors, or their table"},
    {"have_gradients", have_gradients, METH_O, "have_gradients(tensors): whether none of them has a .grad that is None"},
    {"same_values", same_values, METH_VARARGS, "same_values(dictionaries, known): whether they hold these objects"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) {
    const char *asked = getenv("NORMSCOPE_INSTRUCTION_SET");
    if (!asked || !*asked) asked = "avx512";
    if (strcmp(asked, "baseline") && strcmp(asked, "avx2") && strcmp(asked, "avx512"))
        return PyErr_Format(PyExc_ValueError, "NORMSCOPE_INSTRUCTION_SET must be baseline, avx2 or avx512; got %s", asked);
    choose_instruction_set(asked);
    fill_f8(F8_E4M3FN, 3, 7, 0);
    fill_f8(F8_E5M2, 2, 15, 0);
    fill_f8(F8_E4M3FNUZ, 3, 8, 1);
    fill_f8(F8_E5M2FNUZ, 2, 16, 1);
    for (int i = 0; i < ASKED; i++)
        if (!names[i] && !(names[i] = PyUnicode_InternFromString(QUESTIONS[i]))) return NULL;
    if (!unreadable && !(unreadable = PyErr_NewException("normscope.weights.sums._kernel.Unreadable", NULL, NULL))) return NULL;
    PyObject *module = PyModule_Create(&MODULE);
    if (module && (PyModule_AddStringConstant(module, "INSTRUCTION_SET", instruction_set) < 0 ||
                   PyModule_AddObjectRef(module, "Unreadable", unreadable) < 0)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
