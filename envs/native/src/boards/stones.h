/* Two-player board games with stones, after PettingZoo's classic environments (Terry et al. 2021, arXiv:2009.14471).
 *
 * An agent observes its action mask (zeros when it is not its turn), then two bytes per field: its own stone, the
 * other's stone. The winner gets 1, the loser -1. An illegal move costs its player 1 and the other nothing, and marks
 * both as terminated and truncated, as PettingZoo's TerminateIllegalWrapper does. */

#pragma once

#include "games/multiagent_game.h"

#define STONE_PLAYERS 2
#define MAX_MOVES 16

/* Legal moves and the player to move; rows keep the rest of the state from step to step. */
struct stones {
    uint8_t free[MAX_MOVES]; /* mask of legal moves */
    int player;              /* the one to move */
};

struct move {
    int index, field, left; /* field: position of the stone, if legal; left: whether the move stays legal */
    int won, full, illegal;
};

/* Start a game; rows are zeroed. */
static inline void start_stones(struct stones *stones, int moves, const struct agent_rows *rows)
{
    *stones = (struct stones){0};
    memset(stones->free, 1, moves);
    rows->alive[0] = rows->alive[1] = rows->acts[0] = 1;
    memset(rows->observation, 1, moves);
}

/* Apply a move and update the rows that it changes. */
static inline void apply_move(
    struct stones *stones, int moves, int fields, const struct agent_rows *rows, const struct move *move
)
{
    const int player = stones->player, row = moves + 2 * fields;
    unsigned char *own = rows->observation + player * row, *others = rows->observation + (1 - player) * row;
    stones->player = move->illegal ? 0 : 1 - player; /* as in PettingZoo's turn order after an end */
    rows->acts[player] = 0, rows->acts[stones->player] = 1;
    if (!move->illegal) {
        own[moves + 2 * move->field] = others[moves + 2 * move->field + 1] = 1;
        memset(own, 0, moves);
        memcpy(others, stones->free, moves); /* copied before the store below, to avoid a stall */
        stones->free[move->index] = others[move->index] = (uint8_t)move->left;
    } else if (player) {
        memset(own, 0, moves);
        memcpy(others, stones->free, moves);
    }
    if (!(move->won | move->full | move->illegal)) return;
    rows->reward[player] = move->won - move->illegal, rows->reward[1 - player] = -move->won;
    rows->terminated[0] = rows->terminated[1] = 1;
    rows->truncated[0] = rows->truncated[1] = (uint8_t)move->illegal;
}
