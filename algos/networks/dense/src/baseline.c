/* Learning with the baseline instruction set. */

#define LANES 4
#define SET baseline_dense
#define SET_NAME "baseline"
#include "learn.h"
