/* Learning with AVX2. */

#include "dense.h"

#if defined(__x86_64__)
#include "simd/target.h"
TARGET_BEGIN("avx2,fma")
#define LANES 8
#define SET avx2_dense
#define SET_NAME "avx2"
#include "learn.h"
TARGET_END
#else
const struct dense_set *const avx2_dense = 0;
#endif
