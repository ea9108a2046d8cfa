/* All tasks with the instructions that every processor of the kind has. */

#define LANES 4
#define SET baseline_set
#define SET_NAME "baseline"
#include "runtime/tasks.h"
