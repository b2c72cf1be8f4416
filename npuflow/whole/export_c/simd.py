"""The inner loops of convolutions: scalar C99, AVX2 and NEON, with the same constants and results."""

from __future__ import annotations

from npuflow.whole.export_c.kernel import SourceWriter

PIXELS = 6  # pixels at a time: 12 sums, 2 weights and a pixel fill 16 registers

WINDOW = r"""
/* sums[k] = sum over taps of s[tap + k] * w[tap, k],
    for 16 channels; `step` elements from a tap's weights to the next */
static inline NN_UNUSED void nn_window(const nn_int16 *s, const int32_t *taps, int32_t count,
    const nn_int16 *w, int32_t step,
    int32_t *sums)
{
#if defined(NN_AVX2)
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
    int32_t t;
    for (t = 0; t + 1 < count; t += 2) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(s + taps[t]));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(s + taps[t + 1]));
        const __m256i u = _mm256_loadu_si256((const __m256i *)(w + t * step));
        const __m256i v = _mm256_loadu_si256((const __m256i *)(w + (t + 1) * step));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b),
            _mm256_unpacklo_epi16(u, v)));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b),
            _mm256_unpackhi_epi16(u, v)));
    }
    if (t < count) {
        const __m256i zero = _mm256_setzero_si256();
        const __m256i a = _mm256_loadu_si256((const __m256i *)(s + taps[t]));
        const __m256i u = _mm256_loadu_si256((const __m256i *)(w + t * step));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, zero),
            _mm256_unpacklo_epi16(u, zero)));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, zero),
            _mm256_unpackhi_epi16(u, zero)));
    }
    _mm256_storeu_si256((__m256i *)sums, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((__m256i *)(sums + 8), _mm256_permute2x128_si256(low, high, 0x31));
#elif defined(NN_NEON)
    int32x4_t q0 = vdupq_n_s32(0), q1 = q0, q2 = q0, q3 = q0;
    int32_t t;
    for (t = 0; t < count; t++) {
        const int16x8_t a = vld1q_s16(s + taps[t]), b = vld1q_s16(s + taps[t] + 8);
        const int16x8_t u = vld1q_s16(w + t * step), v = vld1q_s16(w + t * step + 8);
        q0 = vmlal_s16(q0, vget_low_s16(a), vget_low_s16(u));
        q1 = vmlal_s16(q1, vget_high_s16(a), vget_high_s16(u));
        q2 = vmlal_s16(q2, vget_low_s16(b), vget_low_s16(v));
        q3 = vmlal_s16(q3, vget_high_s16(b), vget_high_s16(v));
    }
    vst1q_s32(sums, q0);
    vst1q_s32(sums + 4, q1);
    vst1q_s32(sums + 8, q2);
    vst1q_s32(sums + 12, q3);
#else
    int32_t t, k;
    for (k = 0; k < 16; k++)
        sums[k] = 0;
    for (t = 0; t < count; t++)
        for (k = 0; k < 16; k++)
            sums[k] += (int32_t)s[taps[t] + k] * w[t * step + k];
#endif
}
"""
SCALAR = r"""
static void nn_products_@W@(int32_t now, const nn_int16 *s, const int32_t *from, const int32_t *taps,
    int32_t count,
    int32_t pairs, const nn_@W@ *w, int32_t *sums)
{
    int32_t i, t, p, k;
    for (i = 0; i < now; i++) {
        const nn_@W@ *v = w;
        int32_t *to = sums + 16 * i;
        for (k = 0; k < 16; k++)
            to[k] = 0;
        for (t = 0; t < count; t++) {
            const nn_int16 *u = s + from[i] + taps[t];
            for (p = 0; p < pairs; p++, v += 32) {
                const int32_t a = u[2 * p], b = u[2 * p + 1];
                for (k = 0; k < 16; k++)
                    to[k] += a * v[2 * k] + b * v[2 * k + 1];
            }
        }
    }
}
"""
LOADED = {
    "int8": "_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(v + {0})))",
    "int16": "_mm256_loadu_si256((const __m256i *)(v + {0}))",
}
FINISH = r"""
static inline NN_UNUSED void nn_finish_@Y@(const int32_t *sums, nn_@Y@ *y, int32_t step, int32_t some,
    const nn_int32 *bias,
    const nn_uint32 *m, const nn_int32 *lo, const nn_int32 *hi, int32_t n, int32_t zero)
{
    int32_t k;
@VECTOR@    for (k = 0; k < some; k++)
        y[k * step] = (nn_@Y@)nn_clamp(nn_round32((int64_t)(sums[k] + bias[k]) * m[k], n) + zero, lo[k],
            hi[k]);
}
"""
VECTOR = r"""#if defined(NN_AVX2)
    if (some == 16 && step == 1) {
        const __m256i a = nn_codes(sums, bias, m, lo, hi, n, zero);
        const __m256i b = nn_codes(sums + 8, bias + 8, m + 8, lo + 8, hi + 8, n, zero);
@STORED@        return;
    }
#endif
"""
# sixteen codes a and b in a row
BYTES = r"""        const __m256i c = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
        _mm_storeu_si128((__m128i *)y, @PACK@(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1)));
"""
WORDS = r"""        _mm256_storeu_si256((__m256i *)y, _mm256_permute4x64_epi64(@PACK@(a, b), 0xd8));
"""
PACKED = {
    "int8": BYTES.replace("@PACK@", "_mm_packs_epi16"),
    "uint8": BYTES.replace("@PACK@", "_mm_packus_epi16"),
    "int16": WORDS.replace("@PACK@", "_mm256_packs_epi32"),
    "uint16": WORDS.replace("@PACK@", "_mm256_packus_epi32"),
}
CODES = r"""
#if defined(NN_AVX2)
/* R(p / 2^n) of products biased by 2^63, without the bias */
static inline __m256i nn_cut(__m256i p, __m128i n, __m256i half, __m256i one)
{
    (void)one;
    return _mm256_srl_epi64(_mm256_add_epi64(p, @ADDED@), n);
}

/* eight codes of sums: multiplied as unsigned numbers, of which the bias is taken away */
static inline NN_UNUSED __m256i nn_codes(const int32_t *sums, const nn_int32 *bias, const nn_uint32 *m,
    const nn_int32 *lo,
    const nn_int32 *hi, int32_t n, int32_t zero)
{
    const __m128i by = _mm_cvtsi32_si128(n);
    const __m256i half = _mm256_set1_epi64x((int64_t)1 << (n - 1)), one = _mm256_set1_epi64x(1);
    const __m256i top = _mm256_set1_epi64x(INT64_MIN);
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    const __m256i f = _mm256_loadu_si256((const __m256i *)m), g = _mm256_srli_epi64(f, 32);
    __m256i u = _mm256_add_epi32(
        _mm256_loadu_si256((const __m256i *)sums), _mm256_loadu_si256((const __m256i *)bias));
    __m256i p, q, r;
    u = _mm256_xor_si256(u, _mm256_set1_epi32(INT32_MIN));
    p = _mm256_add_epi64(_mm256_mul_epu32(u, f), _mm256_sub_epi64(top,
        _mm256_slli_epi64(_mm256_and_si256(f, low), 31)));
    q = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(u, 32), g), _mm256_sub_epi64(top,
        _mm256_slli_epi64(g, 31)));
    p = nn_cut(p, by, half, one);
    q = _mm256_slli_epi64(nn_cut(q, by, half, one), 32);
    r = _mm256_blend_epi32(p, q, 0xaa);
    r = _mm256_add_epi32(_mm256_sub_epi32(r, _mm256_set1_epi32((int32_t)(uint32_t)(NN_TOP >> n))),
        _mm256_set1_epi32(zero));
    r = _mm256_max_epi32(r, _mm256_loadu_si256((const __m256i *)lo));
    return _mm256_min_epi32(r, _mm256_loadu_si256((const __m256i *)hi));
}
#endif
"""
# as prelude.ADDED, on vectors
ADDED = {
    "half_up": "half",
    "half_even": "_mm256_add_epi64(_mm256_sub_epi64(half, one), "
    "_mm256_and_si256(_mm256_srl_epi64(p, n), one))",
    "half_away": "_mm256_add_epi64(_mm256_sub_epi64(half, one), _mm256_srli_epi64(p, 63))",
    "truncate": "_mm256_and_si256(_mm256_sub_epi64(_mm256_srli_epi64(p, 63), one), "
    "_mm256_sub_epi64(_mm256_slli_epi64(half, 1), one))",
}


def window(w: SourceWriter) -> None:
    w.functions.setdefault("nn_window", WINDOW)


def finish(w: SourceWriter, kind: str) -> None:
    """Sums of 16 channels as codes of a type."""
    w.functions.setdefault("nn_codes", CODES.replace("@ADDED@", ADDED[w.rounding]))
    vector = VECTOR.replace("@STORED@", PACKED[kind]) if kind in PACKED else ""
    w.functions.setdefault(f"nn_finish_{kind}", FINISH.replace("@VECTOR@", vector).replace("@Y@", kind))


def products(w: SourceWriter, kind: str) -> None:
    """Sums of products of up to PIXELS pixels with 16 channels, for weights of a type."""
    name = f"nn_products_{kind}"
    if name not in w.functions:
        text = f"#if defined(NN_AVX2)\n#define NN_PIXELS_{kind} {PIXELS}\n{_avx2(kind)}"
        text += f"#elif defined(NN_NEON)\n{_neon(kind)}#else\n{SCALAR.replace('@W@', kind)}#endif\n"
        w.functions.setdefault("pixels", f"#define NN_PIXELS {PIXELS}\n")
        w.functions[name] = text.replace(f"#define NN_PIXELS_{kind} {PIXELS}\n", "")


HEAD = (
    "(const nn_int16 *s, const int32_t *from, const int32_t *taps, int32_t count, int32_t pairs,\n"
    "    const nn_@W@ *w, int32_t *sums)\n"
)


def _avx2(kind: str) -> str:
    """One function for each number of pixels, sums in registers, and the one that chooses among them."""
    lines = ["typedef int32_t __attribute__((may_alias, aligned(2))) nn_pair_@W@;\n"]
    for now in range(1, PIXELS + 1):
        each = range(now)
        lines.append(
            f"static void nn_products{now}_@W@{HEAD}{{\n    const nn_@W@ *v = w;\n    int32_t t, p;\n"
        )
        lines += [f"    __m256i a{i} = _mm256_setzero_si256(), b{i} = a{i};\n" for i in each]
        lines.append("    for (t = 0; t < count; t++) {\n")
        lines += [f"        const nn_int16 *u{i} = s + from[{i}] + taps[t];\n" for i in each]
        lines.append("        for (p = 0; p < pairs; p++, v += 32) {\n")
        lines.append(
            f"            const __m256i x = {LOADED[kind].format(0)}, y = {LOADED[kind].format(16)};\n"
        )
        lines.append("            __m256i q;\n")
        for i in each:
            lines.append(f"            q = _mm256_set1_epi32(*(const nn_pair_@W@ *)(u{i} + 2 * p));\n")
            lines.append(f"            a{i} = _mm256_add_epi32(a{i}, _mm256_madd_epi16(q, x));\n")
            lines.append(f"            b{i} = _mm256_add_epi32(b{i}, _mm256_madd_epi16(q, y));\n")
        lines.append("        }\n    }\n")
        for i in each:
            lines.append(f"    _mm256_storeu_si256((__m256i *)(sums + {16 * i}), a{i});\n")
            lines.append(f"    _mm256_storeu_si256((__m256i *)(sums + {16 * i + 8}), b{i});\n")
        lines.append("}\n")
    lines.append(_chosen())
    return "".join(lines).replace("@W@", kind)


def _chosen() -> str:
    cases = "".join(
        f"    {f'case {i}' if i < PIXELS else 'default'}:\n"
        f"        nn_products{i}_@W@(s, from, taps, count, pairs, w, sums);\n        break;\n"
        for i in range(1, PIXELS + 1)
    )
    head = f"static void nn_products_@W@(int32_t now, {HEAD.strip()[1:]}\n"
    return f"{head}{{\n    switch (now) {{\n{cases}    }}\n}}\n"


def _neon(kind: str) -> str:
    """Eight even and eight odd weights at a time, times one number of the pixel each."""
    low = {
        "int8": (
            "const int8x8x2_t e = vld2_s8(v), f = vld2_s8(v + 16);\n"
            "            const int16x8_t x = vmovl_s8(e.val[0]), y = vmovl_s8(e.val[1]);\n"
            "            const int16x8_t z = vmovl_s8(f.val[0]), o = vmovl_s8(f.val[1]);\n"
        ),
        "int16": (
            "const int16x8x2_t e = vld2q_s16(v), f = vld2q_s16(v + 16);\n"
            "            const int16x8_t x = e.val[0], y = e.val[1], z = f.val[0], o = f.val[1];\n"
        ),
    }[kind]
    return (
        f"static void nn_products_@W@(int32_t now, {HEAD.strip()[1:]}\n"
        "{\n    int32_t i, t, p;\n    for (i = 0; i < now; i++) {\n        const nn_@W@ *v = w;\n"
        "        int32x4_t q0 = vdupq_n_s32(0), q1 = q0, q2 = q0, q3 = q0;\n"
        "        for (t = 0; t < count; t++) {\n            const nn_int16 *u = s + from[i] + taps[t];\n"
        "            for (p = 0; p < pairs; p++, v += 32) {\n"
        f"            {low}"
        "            q0 = vmlal_n_s16(q0, vget_low_s16(x), u[2 * p]);\n"
        "            q0 = vmlal_n_s16(q0, vget_low_s16(y), u[2 * p + 1]);\n"
        "            q1 = vmlal_n_s16(q1, vget_high_s16(x), u[2 * p]);\n"
        "            q1 = vmlal_n_s16(q1, vget_high_s16(y), u[2 * p + 1]);\n"
        "            q2 = vmlal_n_s16(q2, vget_low_s16(z), u[2 * p]);\n"
        "            q2 = vmlal_n_s16(q2, vget_low_s16(o), u[2 * p + 1]);\n"
        "            q3 = vmlal_n_s16(q3, vget_high_s16(z), u[2 * p]);\n"
        "            q3 = vmlal_n_s16(q3, vget_high_s16(o), u[2 * p + 1]);\n"
        "            }\n        }\n"
        "        vst1q_s32(sums + 16 * i, q0);\n        vst1q_s32(sums + 16 * i + 4, q1);\n"
        "        vst1q_s32(sums + 16 * i + 8, q2);\n        vst1q_s32(sums + 16 * i + 12, q3);\n    }\n}\n"
    ).replace("@W@", kind)
