/* All tasks with AVX-512. */

#include "native.h"
#include "rollout.h"
#include "vector.h"

#if defined(__x86_64__)
#include "target.h"
TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#define LANES 16
#define TASKS avx512_tasks
#define STEP avx512_step
#define PLAY avx512_play
#include "tasks.h"
TARGET_END
#else
const struct task *const *const avx512_tasks = 0;
part *const avx512_step = 0;
play_part *const avx512_play = 0;
#endif
