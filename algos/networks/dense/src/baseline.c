/* Learning with the instructions that every processor of the kind has. */

#define LANES 4
#define SET baseline_dense
#define SET_NAME "baseline"
#include "learn.h"
