/* What a picture of a walker is drawn from. */

#include "ground.h"
#include "runtime/vector.h"

/* Where the bodies of an environment's walker are; 0, or -1: it is no walker. */
int walker_poses(const struct vector *vector, int environment, float poses[5][3])
{
    const struct task *task = vector->task;
    if (task->poses == NULL) return -1;
    const int group = environment / vector->group_size;
    task->poses(vector->groups + vector->stride * (size_t)group, environment % vector->group_size, poses);
    return 0;
}

/* The ground under it, until its next episode; NULL: it is no walker. */
const struct ground *walker_ground(const struct vector *vector, int environment)
{
    const struct task *task = vector->task;
    if (task->ground == NULL) return NULL;
    const int group = environment / vector->group_size;
    return task->ground(vector->groups + vector->stride * (size_t)group, environment % vector->group_size);
}
