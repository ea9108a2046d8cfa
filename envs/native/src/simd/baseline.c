/* All tasks, compiled for the baseline instruction set. */

#define LANES 4
#define SET baseline_set
#define SET_NAME "baseline"
#include "runtime/tasks.h"
