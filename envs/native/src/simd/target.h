/* Compile the code between TARGET_BEGIN and TARGET_END for an instruction set; system headers must come before. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifdef __clang__
#define AVX512 "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define AVX512 "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif

#define DO_PRAGMA(x) _Pragma(#x)
#if defined(__clang__)
#define TARGET_BEGIN(set) DO_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define TARGET_END DO_PRAGMA(clang attribute pop)
#else
#define TARGET_BEGIN(set) DO_PRAGMA(GCC push_options) DO_PRAGMA(GCC target(set))
#define TARGET_END DO_PRAGMA(GCC pop_options)
#endif
