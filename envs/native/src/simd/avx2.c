/* All tasks, compiled for AVX2. */

#include "sets.h"

#if defined(__x86_64__)
#include "target.h"
TARGET_BEGIN("avx2,fma")
#define LANES 8
#define SET avx2_set
#define SET_NAME "avx2"
#include "runtime/tasks.h"
TARGET_END
#else
const struct set *const avx2_set = 0;
#endif
