/* Numbers of one byte as float32, times the scale of their block, in one pass.
 *
 * `widen` does for float8_e4m3fn and int8 what scaled_rows.py does with torch in six passes: the values are the
 * same to the last bit. The compiler makes the inner loops of vectors, on Linux for several instruction sets, of which
 * the loader chooses one.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GLIBC__)
#include <immintrin.h>
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* Sign, four bits of exponent with bias 7, three of mantissa; no infinities, and one NaN of each sign. */
CLONES static void float8(const uint8_t *restrict from, float *restrict to, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) {
        uint32_t byte = from[i], rest = byte & 0x7f;
        float small = (float)(int32_t)rest * 0x1p-9f; /* subnormal: the exponent is zero */
        uint32_t bits = (rest << 20) + (120u << 23), subnormal;
        memcpy(&subnormal, &small, 4);
        bits = rest < 8 ? subnormal : bits;
        bits = rest == 0x7f ? 0x7fc00000u : bits;
        bits |= (byte & 0x80) << 24;
        float value;
        memcpy(&value, &bits, 4);
        to[i] = value * scale;
    }
}

static void (*widen_float8)(const uint8_t *, float *, size_t, float) = float8;

#if defined(__x86_64__) && defined(__GLIBC__)
/* The bits, moved, are those of a float16 that is 256 times smaller. Where there is a NaN, or the scale is huge, the
 * plain loop does it. */
__attribute__((target("avx2,f16c"))) static void float8_f16c(
    const uint8_t *restrict from, float *restrict to, size_t n, float scale) {
    const __m256i kept = _mm256_set1_epi16((short)0xbfff);
    const __m128i magnitude = _mm_set1_epi8(0x7f);
    __m128i strange = _mm_setzero_si128();
    const __m256 by = _mm256_set1_ps(scale * 256);
    size_t i = 0;
    if (!(scale < 0x1p100f && scale > -0x1p100f)) i = n + 1;
    for (; i + 16 <= n; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(from + i));
        __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), kept);
        strange = _mm_or_si128(strange, _mm_cmpeq_epi8(_mm_and_si128(bytes, magnitude), magnitude));
        __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
        __m256 high = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
        _mm256_storeu_ps(to + i, _mm256_mul_ps(low, by));
        _mm256_storeu_ps(to + i + 8, _mm256_mul_ps(high, by));
    }
    if (i > n || _mm_movemask_epi8(strange)) float8(from, to, n, scale);
    else float8(from + i, to + i, n - i, scale);
}
#endif

CLONES static void int8(const uint8_t *restrict from, float *restrict to, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) to[i] = (float)(int8_t)from[i] * scale;
}

static PyObject *widen(PyObject *self, PyObject *args) {
    Py_buffer from, scales, to;
    Py_ssize_t columns, block;
    int signed_integers;
    if (!PyArg_ParseTuple(args, "py*y*w*nn", &signed_integers, &from, &scales, &to, &columns, &block)) return NULL;
    int fits = columns > 0 && block > 0 && from.len % columns == 0 && to.len == 4 * from.len;
    size_t rows = fits ? (size_t)(from.len / columns) : 0, each = fits ? (size_t)((columns + block - 1) / block) : 0;
    fits = fits && (size_t)scales.len == 4 * rows * each;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        const uint8_t *byte = from.buf;
        const float *scale = scales.buf;
        float *out = to.buf;
        for (size_t row = 0; row < rows; row++) {
            for (size_t at = 0; at < (size_t)columns; at += (size_t)block, scale++) {
                size_t n = (size_t)columns - at < (size_t)block ? (size_t)columns - at : (size_t)block;
                (signed_integers ? int8 : widen_float8)(byte + at, out + at, n, *scale);
            }
            byte += columns;
            out += columns;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&scales);
    PyBuffer_Release(&to);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the sizes of numbers, scales and results do not fit");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"widen", widen, METH_VARARGS,
     "widen(signed, numbers, scales, out, columns, block): rows of numbers times the scales of their blocks"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_widen", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__widen(void) {
#if defined(__x86_64__) && defined(__GLIBC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) widen_float8 = float8_f16c;
#endif
    return PyModuleDef_Init(&module);
}
