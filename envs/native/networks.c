/* Forward passes of networks; the arithmetic is in policy.h, once for each width. */

#include "sets.h"

void run_networks(const char *set, const struct networks *networks) { find_set(set)->run(networks); }
