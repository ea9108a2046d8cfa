/* All tasks with the instructions that every processor of the kind has. */

#define LANES 4
#define TASKS baseline_tasks
#define STEP baseline_step
#define PLAY baseline_play
#include "tasks.h"
