/* Sums along time and over rows in a fixed order; envs/native/series.py has the same operations in NumPy. */

#include <stddef.h>
#include <stdint.h>

/* sums[t] = delta[t] + carry[t] * sums[t + 1] for each column, with 0 after the last step. */
void carry_back(const float *delta, const float *carry, float *sums, int64_t steps, int64_t columns)
{
    for (int64_t at = (steps - 1) * columns; at >= 0; at -= columns)
        for (int64_t b = at; b < at + columns; b++) {
            const float after = b + columns < steps * columns ? sums[b + columns] : 0;
            sums[b] = delta[b] + carry[b] * after;
        }
}

/* returns[t] = running = running * gamma + reward[t]; then running is reset to 0 where an episode ended. */
void discount(
    const float *reward, const uint8_t *ended, double gamma, double *running, double *returns, int64_t steps,
    int64_t columns
)
{
    for (int64_t at = 0; at < steps * columns; at += columns)
        for (int64_t b = 0; b < columns; b++) {
            returns[at + b] = running[b] * gamma + (double)reward[at + b];
            running[b] = ended[at + b] ? 0 : returns[at + b];
        }
}

/* Mean and sum of squared deviations of each column of at least one row; `single`: rows are float. */
void moments(const void *rows, int single, int64_t count, int64_t columns, double *mean, double *m2)
{
    const float *narrow = rows;
    const double *wide = rows;
    for (int64_t k = 0; k < columns; k++) mean[k] = single ? (double)narrow[k] : wide[k], m2[k] = 0;
    for (int64_t at = columns; at < count * columns; at += columns)
        for (int64_t k = 0; k < columns; k++) mean[k] += single ? (double)narrow[at + k] : wide[at + k];
    for (int64_t k = 0; k < columns; k++) mean[k] /= (double)count;
    for (int64_t at = 0; at < count * columns; at += columns)
        for (int64_t k = 0; k < columns; k++) {
            const double off = (single ? (double)narrow[at + k] : wide[at + k]) - mean[k];
            m2[k] += off * off;
        }
}
