/* State of walkers for rendering. */

#include "ground.h"
#include "runtime/vector.h"

/* Get the poses of a walker's bodies; return 0, or -1 if the task is no walker. */
int walker_poses(const struct vector *vector, int environment, float poses[5][3])
{
    const struct task *task = vector->task;
    if (task->poses == NULL) return -1;
    const int group = environment / vector->group_size;
    task->poses(vector->groups + vector->stride * (size_t)group, environment % vector->group_size, poses);
    return 0;
}

/* Return the ground, valid until the next episode, or NULL if the task is no walker. */
const struct ground *walker_ground(const struct vector *vector, int environment)
{
    const struct task *task = vector->task;
    if (task->ground == NULL) return NULL;
    const int group = environment / vector->group_size;
    return task->ground(vector->groups + vector->stride * (size_t)group, environment % vector->group_size);
}
