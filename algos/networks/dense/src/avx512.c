/* Learning with AVX-512. */

#include "dense.h"

#if defined(__x86_64__)
#include "simd/target.h"
TARGET_BEGIN(AVX512)
#define LANES 16
#define SET avx512_dense
#define SET_NAME "avx512"
#include "learn.h"
TARGET_END
#else
const struct dense_set *const avx512_dense = 0;
#endif
