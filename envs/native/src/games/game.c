/* What games have nothing to do for. */

#include "game.h"

int open_game(void *group, const void *settings)
{
    (void)group, (void)settings;
    return 0;
}

void close_game(void *group) { (void)group; }
