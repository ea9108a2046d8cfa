/* All tasks, compiled for AVX-512. */

#include "sets.h"

#if defined(__x86_64__)
#include "target.h"
TARGET_BEGIN(AVX512)
#define LANES 16
#define SET avx512_set
#define SET_NAME "avx512"
#include "runtime/tasks.h"
TARGET_END
#else
const struct set *const avx512_set = 0;
#endif
