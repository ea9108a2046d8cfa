/* All tasks with AVX2. */

#include "native.h"
#include "rollout.h"
#include "vector.h"

#if defined(__x86_64__)
#include "target.h"
TARGET_BEGIN("avx2")
#define LANES 8
#define TASKS avx2_tasks
#define STEP avx2_step
#define PLAY avx2_play
#include "tasks.h"
TARGET_END
#else
const struct task *const *const avx2_tasks = 0;
part *const avx2_step = 0;
play_part *const avx2_play = 0;
#endif
