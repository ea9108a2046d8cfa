"""The native code under sanitizers: whatever it is given, it touches no memory that is not its own.

Addresses and undefined behaviour are looked at under Python, on every set of instructions that this machine has; leaks
and races in a program of C, as the interpreter has some of its own.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from compiled import BATCHES, COMPILER, DENSE, LANES, LEARNING, NATIVE, extension, native  # noqa: F401, a fixture
from conftest import ROOT

from paddock.envs.native import library

CHECKED = "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"
# GCC 13 would have variables lie elsewhere, where by all signs they are not aligned as AVX-512 asks (GCC's bug 110027).
ON_THE_STACK = "detect_stack_use_after_return=0"

# Vectors and rollouts on three threads, opened and closed; walkers on Hardcore's ground among them.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "walker/ground.h"
#include "policies/rollout.h"
#include "runtime/steps.h"
#include "runtime/vector.h"

#define N 70
#define E 60
#define T 20

const struct task *find_task(const char *set, const char *name);
struct vector *vector_open(const struct task *, int, const void *, int, int, int);
void vector_close(struct vector *);
int vector_begin(struct vector *, int64_t, const int64_t *, const struct rows *);
int64_t vector_step(struct vector *, const uint8_t *, const struct rows *);
size_t vector_saved_bytes(const struct vector *);
void vector_save(const struct vector *, void *);
int vector_load(struct vector *, const void *);

static float observation[N * MAX_OBSERVATION], final[N * MAX_OBSERVATION], action[N * MAX_ACTION];
static double reward[N], running_return[N], final_return[N];
static int64_t running_length[N], final_length[N], episode[N], numbers[N], choice[N];
static uint8_t terminated[N], truncated[N];

static int step(const struct task *task, const void *settings)
{
    const void *given = task->choices ? (const void *)choice : action;
    struct rows rows = {(uint8_t *)observation, (uint8_t *)final, given, reward, terminated, truncated,
                        running_return, running_length, final_return, final_length, episode};
    struct vector *vector = vector_open(task, N, settings, 15, 1, 3);
    if (!vector || vector_begin(vector, 7, numbers, &rows)) return 1;
    for (int k = 0; k < 40; k++) {
        for (int i = 0; i < N * MAX_ACTION; i++) action[i] = (float)((i * 7 + k * 13) % 21 - 10) / 10;
        if (vector_step(vector, NULL, &rows) != -1) return 1;
    }
    void *saved = malloc(vector_saved_bytes(vector));
    vector_save(vector, saved);
    int failed = vector_load(vector, saved);
    free(saved);
    vector_close(vector);
    return failed;
}

/* Steps of one policy whose actions are drawn. */
static int play_drawn(const struct task *task, const void *settings, int drawn)
{
    static float seen[(T + 1) * N * MAX_OBSERVATION], last[T * N * MAX_OBSERVATION];
    static float noise[T * N * 4], actions[T * N * 4];
    static float logprob[T * N], paid[T * N], log_std[4], ones[4] = {1, 1, 1, 1}, low[4] = {-1, -1, -1, -1};
    static int64_t choices[T * N], lengths[T * N];
    static double returns[T * N];
    static uint8_t ended[T * N], cut[T * N];
    const int outputs = task->choices ? task->choices : task->actions;
    const int32_t sizes[] = {task->observations, 13, outputs};
    const int64_t P = (task->observations + 1) * 16 + 14 * 16;
    float *weights = malloc(sizeof *weights * P);
    for (int64_t k = 0; k < P; k++) weights[k] = (float)(k % 17 - 8) / 8;
    for (int k = 0; k < T * N * outputs; k++) noise[k] = (float)(k % 23 - 11) / 5;
    const void *given = task->choices ? (const void *)choice : action;
    struct rows rows = {(uint8_t *)observation, (uint8_t *)final, given, reward, terminated, truncated,
                        running_return, running_length, final_return, final_length, episode};
    struct steps steps = {
        .weights = weights, .sizes = sizes, .log_std = log_std, .deviation = ones, .inverse = ones, .low = low,
        .half = ones, .high = ones, .log_half = log_std, .noise = noise, .observation = seen,
        .action = task->choices ? (void *)choices : actions, .logprob = logprob, .reward = paid, .terminated = ended,
        .truncated = cut, .final_return = returns, .final_length = lengths, .final = last, .count = T, .layers = 2,
        .sampling = drawn, .numbers = task->choices ? 0 : task->actions,
    };
    struct vector *vector = vector_open(task, N, settings, 9, 1, 3);
    int failed = !vector || vector_begin(vector, 7, numbers, &rows) || vector_play(vector, &steps, &rows) != -1;
    weights[P - 17 + outputs] = 0.0f / 0.0f; /* a bias: numbers are none then */
    const int64_t invalid = failed ? 0 : vector_play(vector, &steps, &rows);
    failed |= invalid != (task->choices ? -1 : 0);
    vector_close(vector);
    free(weights);
    return failed;
}

static int play(const struct task *task, const void *settings, int head, int members)
{
    static float low[MAX_ACTION], high[MAX_ACTION];
    static double returns[E], means[E * MAX_OBSERVATION], m2[E * MAX_OBSERVATION];
    static int64_t seeds[E], lengths[E];
    static int32_t member[E];
    static uint8_t observe[E];
    const int outputs = task->choices ? task->choices : task->actions;
    const int32_t sizes[] = {task->observations, 5, outputs};
    const int64_t P = (task->observations + 1) * 5 + 6 * outputs;
    float *parameters = malloc(sizeof *parameters * P * members);
    for (int64_t k = 0; k < members * P; k++) parameters[k] = (float)(k % 17 - 8) / 8;
    for (int a = 0; a < MAX_ACTION; a++) low[a] = -1, high[a] = 1;
    for (int e = 0; e < E; e++) seeds[e] = e, member[e] = e % members, observe[e] = e % 2;
    struct rollout rollout = {
        .task = task, .settings = settings, .parameters = parameters, .members = members, .episodes = E,
        .num_parameters = P, .limit = 12, .seeds = seeds, .member = member, .observe = observe, .sizes = sizes,
        .low = low, .high = high, .layers = 2, .head = head, .threads = 3, .returns = returns, .lengths = lengths,
        .moment_mean = means, .moment_m2 = m2,
    };
    int failed = play_episodes(&rollout);
    free(parameters);
    return failed;
}

/* Worlds on three threads. */
static int step_multiagent(const struct task *task)
{
    enum { SEATS = 4 };
    static unsigned char seen[N * SEATS * 128], last[N * SEATS * 128];
    static double paid[N * SEATS], returns[N * SEATS], ended_with[N * SEATS];
    static int64_t choices[N * SEATS], lengths[N * SEATS], ended_after[N * SEATS];
    static uint8_t ended[N * SEATS], cut[N * SEATS], alive[N * SEATS], acts[N * SEATS], over[N];
    struct rows rows = {seen, last, choices, paid, ended, cut, returns, lengths, ended_with, ended_after, episode,
                        alive, acts, over};
    static const int32_t snake[] = {4, 9, 8, 9, 6, 3, 35};
    static const struct { int32_t agents; double local_ratio; int32_t max_cycles; } spread = {4, 0.5, 25};
    const void *settings = !strcmp(task->name, "snake") ? (const void *)snake : (const void *)&spread;
    struct vector *vector = vector_open(task, N, settings, 15, 1, 3);
    if (!vector || vector_begin(vector, 7, numbers, &rows)) return 1;
    for (int k = 0; k < 60; k++) {
        for (int i = 0; i < N * SEATS; i++) choices[i] = (i * 7 + k * 13) % task->choices;
        if (vector_step(vector, NULL, &rows) != -1) return 1;
    }
    void *saved = malloc(vector_saved_bytes(vector));
    vector_save(vector, saved);
    int failed = vector_load(vector, saved);
    free(saved);
    vector_close(vector);
    return failed;
}

/* The settings of one family do for the other: what they need of them lies at the beginning, and is 0. */
int main(int count, char **words)
{
    struct course course = {.kind = GROUND_HARDCORE, .length = 120};
    double classic[8] = {10};
    for (int k = 2; k < count; k++) {
        const struct task *task = find_task(words[1], words[k]);
        if (!task) return 2;
        if (task->agents) {
            if (step_multiagent(task)) return 9;
            continue;
        }
        const void *settings = strcmp(words[k], "walker") ? (const void *)classic : &course;
        if (step(task, settings)) return 3;
        if (play(task, settings, task->choices ? HEAD_DISCRETE : HEAD_BOUNDED, 3)) return 4;
        if (play(task, settings, task->choices ? HEAD_DISCRETE : HEAD_CLIPPED, 1)) return 5;
        if (play_drawn(task, settings, task->choices ? SAMPLE_CHOICE : SAMPLE_CLIPPED)) return 6;
        if (!task->choices && play_drawn(task, settings, SAMPLE_SQUASHED)) return 7;
        if (!task->choices && play_drawn(task, settings, SAMPLE_TANH)) return 8;
    }
    puts("played");
    return 0;
}
"""
TASKS = ["cartpole", "pendulum", "acrobot", "mountain_car", "mountain_car_continuous", "walker"]
TASKS += ["connect4", "tictactoe", "snake", "spread"]
NO_SET = {  # the header, and what stands in for a set of instructions that is not built
    LANES: ("simd/sets.h", "const struct set *const {}_set;"),
    LEARNING: ("dense.h", "const struct dense_set *const {}_dense;"),
}
pytestmark = pytest.mark.xdist_group("native_sanitized")  # the library is built once


def widest() -> list[str]:
    """The widest set of instructions that this machine has, in whose lanes there is most to go wrong."""
    return [name for name in library.SETS if library.load().has_set(name.encode())][:1]


def compile_all(folder: Path, flags: Sequence[str], sets: list[str], *more: Path, name: str = LANES) -> list[str]:
    """Objects of a library as setup.py builds it, but with these flags, and of these sets of instructions."""
    assert COMPILER is not None
    module, (header, none) = extension(name), NO_SET[name]
    sources = [ROOT / source for source in module.sources]
    lacking = [source for source in sources if source.stem in library.SETS and source.stem not in sets]
    stubs = folder / "lacking.c"
    stubs.write_text("\n".join([f'#include "{header}"', *(none.format(one.stem) for one in lacking), ""]))
    kept = [stubs, *more, *(source for source in sources if source not in lacking)]
    folders = [f"-I{part / 'src'}" for part in (NATIVE, DENSE)]
    # In the least time to compile, of which each test takes many times its own.
    command = [COMPILER, *module.extra_compile_args, "-O0", "-g1", *flags, "-fPIC", *folders, "-c"]
    targets = [str(folder / f"{source.stem}.o") for source in kept]
    running = [subprocess.Popen([*command, str(one), "-o", to]) for one, to in zip(kept, targets, strict=True)]
    assert not any([process.wait() for process in running])
    return targets


def links(folder: Path, *flags: str) -> bool:
    """Whether the compiler has these sanitizers, and programs with them run here."""
    if COMPILER is None:
        return False
    (folder / "empty.c").write_text("int main(void) { return 0; }")
    built = subprocess.run([COMPILER, *flags, "-o", "empty", "empty.c"], cwd=folder, capture_output=True)
    return built.returncode == 0 and subprocess.run([folder / "empty"], capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with the library that looks at addresses and undefined behaviour, and its objects."""
    folder = tmp_path_factory.mktemp("checked")
    if not links(folder, *CHECKED):
        pytest.skip("there is no C compiler (cc, gcc) with sanitizers for addresses and undefined behaviour")
    objects = compile_all(folder, CHECKED, widest())
    target = str(folder / f"_lanes{library.EXTENSION_SUFFIXES[0]}")
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-pthread", *CHECKED, *objects, "-o", target], check=True)
    return folder, objects


def run(command: list[str | Path], timeout_s: float = 120, asan: str = "", **environment: str) -> str:
    """What it printed; what a sanitizer found fails the test."""
    environment = os.environ | environment | {"ASAN_OPTIONS": f"{ON_THE_STACK}:{asan}"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-6000:]
    return ended.stdout


def find_runtime() -> str:
    """Return the compiler's libasan.so, which Python loads first."""
    assert COMPILER is not None
    runtime = subprocess.run([COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("the compiler's libasan.so is not here")
    return runtime


def test_random_and_absurd_input_touches_no_other_memory(checked: tuple[Path, list[str]]) -> None:
    runtime = find_runtime()
    fuzz = Path(__file__).with_name("native_fuzz.py")
    for seed, name in enumerate(widest()):
        printed = run(
            [sys.executable, "-P", "-W", "ignore", fuzz, checked[0], name, str(seed)],
            PYTHONPATH=str(ROOT),
            LD_PRELOAD=runtime,
            asan="detect_leaks=0",
            UBSAN_OPTIONS="print_stacktrace=1",
        )
        assert printed.endswith(f" on {name}\n")


def test_vectors_and_rollouts_free_what_they_take(checked: tuple[Path, list[str]], tmp_path: Path) -> None:
    assert COMPILER is not None
    (tmp_path / "program.c").write_text(PROGRAM)
    command = [COMPILER, *CHECKED, f"-I{NATIVE / 'src'}", "-o", "program", "program.c", *checked[1], "-lm", "-pthread"]
    subprocess.run(command, cwd=tmp_path, check=True)
    for name in widest():
        try:
            assert run([tmp_path / "program", name, *TASKS], asan="detect_leaks=1") == "played\n"
        except AssertionError as error:
            if "LeakSanitizer has encountered a fatal error" in str(error):
                pytest.skip("LeakSanitizer cannot look at processes here")
            raise


@pytest.mark.nightly
def test_threads_share_nothing_but_what_they_may(tmp_path: Path) -> None:
    flags = ["-fsanitize=thread"]
    if not links(tmp_path, *flags):
        pytest.skip("there is no C compiler (cc, gcc) with a sanitizer for threads, or it does not run here")
    assert COMPILER is not None
    (tmp_path / "program.c").write_text(PROGRAM)
    objects = compile_all(tmp_path, flags, ["baseline"], tmp_path / "program.c")
    subprocess.run([COMPILER, *flags, "-pthread", *objects, "-o", "program", "-lm"], cwd=tmp_path, check=True)
    assert run([tmp_path / "program", "baseline", *TASKS], TSAN_OPTIONS="halt_on_error=1") == "played\n"


BATCHES_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>

#include "replay.c"

#define DRAWS 37
#define ROWS 64
#define LANES 3
#define STEPS 5

struct row {
    float obs[3];
    int64_t end;
    float reward;
    uint8_t action[3];
};

static uint64_t state = 1;

static uint64_t next_word(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state ^ state >> 29;
}

static int draw_from(int64_t size)
{
    uint64_t *nodes = calloc(2 * size, sizeof *nodes), words[DRAWS];
    int64_t at[DRAWS], drawn[DRAWS], good = 1;
    uint32_t leaves[DRAWS];
    for (int i = 0; i < DRAWS; i++) {
        words[i] = next_word(), at[i] = next_word() % size;
        leaves[i] = i % 3 ? next_word() : 0;
    }
    at[DRAWS - 1] = size - 1, leaves[DRAWS - 1] = UINT32_MAX, words[0] = UINT64_MAX;
    set_leaves(nodes, size, at, leaves, DRAWS);
    sum_leaves(nodes, size);
    draw_leaves(nodes, size, words, DRAWS, DRAWS, drawn);
    for (int i = 0; i < DRAWS; i++) good &= drawn[i] >= 0 && drawn[i] < size && nodes[size + drawn[i]];
    free(nodes);
    return good;
}

static int gather(void)
{
    struct row *ring = calloc(ROWS, sizeof *ring);
    float (*finals)[4] = calloc(4, sizeof *finals), powers[STEPS + 1] = {1, .5f, .25f, .125f, .0625f, .03125f};
    struct gathered out = {
        malloc(DRAWS * 12), malloc(DRAWS * 3), malloc(DRAWS * 12), malloc(DRAWS * 4), malloc(DRAWS * 4),
    };
    int64_t ids[DRAWS];
    uint64_t words[DRAWS];
    for (int i = 0; i < ROWS; i++) ring[i].end = i % 7 ? 0 : i % 6 - 1;
    for (int i = 0; i < DRAWS; i++) words[i] = next_word();
    words[0] = UINT64_MAX;
    scale_words(words, DRAWS, ROWS, 1000, ids);
    const struct rows rows = {
        (const char *)ring, (const char *)finals, ROWS - 1, 3, sizeof *ring, sizeof *finals, 12, 3,
        offsetof(struct row, obs), offsetof(struct row, action), offsetof(struct row, reward),
        offsetof(struct row, end), 4, LANES, STEPS, 1, 0, powers,
    };
    gather_windows(&rows, ids, DRAWS, &out);
    free(ring), free(finals), free(out.obs), free(out.action), free(out.next_obs), free(out.reward), free(out.discount);
    return ids[0] == 1000 + ROWS - 1;
}

int main(void)
{
    for (int64_t size = 1; size <= 1024; size *= 2)
        if (!draw_from(size)) return 2;
    if (!gather()) return 3;
    puts("drawn");
    return 0;
}
"""


def test_batches_touch_nothing_but_their_own(tmp_path: Path) -> None:
    if not links(tmp_path, *CHECKED):
        pytest.skip(f"there is no C compiler (cc, gcc) with {' '.join(CHECKED)}, or it does not run here")
    assert COMPILER is not None
    program, module = tmp_path / "program", extension(BATCHES)
    program.with_suffix(".c").write_text(BATCHES_PROGRAM)
    folder = f"-I{(ROOT / module.sources[0]).parent}"
    command = [COMPILER, *module.extra_compile_args, "-O1", "-g1", *CHECKED, folder, "-include", "stddef.h"]
    subprocess.run([*command, "-o", str(program), str(program.with_suffix(".c"))], check=True)
    assert run([program]) == "drawn\n"


LEARNING_PROGRAM = """
import sys
from pathlib import Path
from paddock.algos.networks.dense import library
library.FOLDER, runs = map(Path, sys.argv[1:])
from paddock.launch import main
SMALL = ["compute=serial", "vec.num_envs=4", "algo.hidden_sizes=[9]", "algo.eval_episodes=1", "algo.threads=2"]
ROLLOUT = [*SMALL, "algo.num_steps=16", "budget.iterations=2"]
REPLAY = [*SMALL, "algo.num_steps=8", "algo.learning_starts=32", "algo.batch_size=16", "budget.steps=128"]
PPO = [*ROLLOUT, "algo.minibatch_size=24"]
for k, words in enumerate(
    (
        ["algo=ppo", "env=cartpole", *PPO],
        ["algo=ppo", "env=pendulum", *PPO],
        ["algo=ppo", "env=cartpole", *PPO, "algo.lstm=true"],
        ["algo=dqn", "env=cartpole", *REPLAY],
        ["algo=td3", "env=pendulum", *REPLAY],
        ["algo=sac", "env=pendulum", *REPLAY],
    )
):
    sys.argv[1:] = [*words, f"run.dir={runs / str(k)}"]
    assert main() == 0, words
print("learned")
"""


def test_learning_touches_nothing_but_its_own(tmp_path: Path) -> None:
    if not links(tmp_path, *CHECKED):
        pytest.skip(f"there is no C compiler (cc, gcc) with {' '.join(CHECKED)}, or it does not run here")
    assert COMPILER is not None
    objects = compile_all(tmp_path, CHECKED, widest(), name=LEARNING)
    target = str(tmp_path / f"_dense{library.EXTENSION_SUFFIXES[0]}")
    subprocess.run([COMPILER, "-shared", "-pthread", *CHECKED, *objects, "-lm", "-o", target], check=True)
    program: list[str | Path] = [sys.executable, "-W", "ignore", "-c", LEARNING_PROGRAM, tmp_path, tmp_path / "runs"]
    printed = run(program, asan="detect_leaks=0", PYTHONPATH=str(ROOT), LD_PRELOAD=find_runtime())
    assert printed.splitlines()[-1] == "learned"
