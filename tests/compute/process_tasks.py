"""Functions that tests run in processes of `paddock.compute`, and programs in the form that users write them."""

import os
import time
from typing import Any

import gymnasium
import numpy as np

from paddock import compute as mp


def put_pid(queue: Any) -> None:
    queue.put(os.getpid())


def hold(ready: Any) -> None:
    ready.set()
    time.sleep(600)


def own_queue(connection: Any) -> None:
    """Pass on a queue of this process, and stay."""
    items = mp.Queue()
    connection.send((os.getpid(), items))
    time.sleep(600)


def get_forever(queue: Any, ready: Any) -> None:
    ready.put(os.getpid())
    queue.get()


def acquire(lock: Any, ready: Any) -> None:
    ready.put(os.getpid())
    lock.acquire()


def start_two(queue: Any) -> None:
    """Start two children, one of which starts another, and stay."""
    started = mp.Process(target=start_one, args=(queue,))
    started.start()
    start_one(queue)


def start_one(queue: Any) -> None:
    queue.put(os.getpid())
    child = mp.Process(target=hold_after_put, args=(queue,))
    child.start()
    time.sleep(600)


def hold_after_put(queue: Any) -> None:
    queue.put(os.getpid())
    time.sleep(600)


def with_item(task: tuple[Any, int]) -> int:
    queue, item = task
    queue.put(item)
    return item


# A vector of environments in the form of OpenAI Baselines: one process and one pipe each.


class Cloudpickled:
    """Function that is pickled by value."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getstate__(self) -> bytes:
        import cloudpickle

        return cloudpickle.dumps(self.function)

    def __setstate__(self, data: bytes) -> None:
        import pickle

        self.function = pickle.loads(data)


def step_environment(remote: Any, parent_remote: Any, make: Cloudpickled) -> None:
    parent_remote.close()
    env = make.function()
    while True:
        command, data = remote.recv()
        if command == "step":
            obs, reward, terminated, truncated, _ = env.step(data)
            if terminated or truncated:
                obs = env.reset()[0]
            remote.send((obs, reward, terminated or truncated))
        elif command == "reset":
            remote.send(env.reset(seed=data)[0])
        elif command == "pid":
            remote.send(os.getppid())
        elif command == "close":
            remote.close()
            return


class SubprocessVector:
    def __init__(self, makes: list[Any]) -> None:
        self.remotes, self.work_remotes = zip(*[mp.Pipe() for _ in makes], strict=True)
        self.processes = [
            mp.Process(target=step_environment, args=(work_remote, remote, Cloudpickled(make)))
            for work_remote, remote, make in zip(self.work_remotes, self.remotes, makes, strict=True)
        ]
        for process in self.processes:
            process.daemon = True
            process.start()
        for remote in self.work_remotes:
            remote.close()

    def ask(self, command: str, data: list[Any]) -> list[Any]:
        for remote, one in zip(self.remotes, data, strict=True):
            remote.send((command, one))
        return [remote.recv() for remote in self.remotes]

    def reset(self) -> np.ndarray:
        return np.stack(self.ask("reset", list(range(len(self.remotes)))))

    def step(self, actions: Any) -> tuple[np.ndarray, ...]:
        obs, reward, done = zip(*self.ask("step", list(actions)), strict=True)
        return np.stack(obs), np.stack(reward), np.stack(done)

    def close(self) -> None:
        for remote in self.remotes:
            remote.send(("close", None))
        for process in self.processes:
            process.join()


# A parameter server: workers get parameters from one queue and put gradients of |parameters - 3|^2 into another.


def learn(parameters: Any, gradients: Any) -> None:
    while (version_and_values := parameters.get()) is not None:
        version, values = version_and_values
        gradients.put((version, 2 * (values - 3.0)))


def serve_parameters(workers: int, steps: int) -> np.ndarray:
    parameters, gradients = mp.Queue(), mp.Queue()
    learners = [mp.Process(target=learn, args=(parameters, gradients)) for _ in range(workers)]
    for learner in learners:
        learner.start()
    values = np.zeros(4)
    for step in range(steps):
        for _ in learners:
            parameters.put((step, values))
        values = values - 0.25 * np.mean([gradients.get()[1] for _ in learners], axis=0)
    for _ in learners:
        parameters.put(None)
    for learner in learners:
        learner.join()
    return values


def play_cartpole(parameters: np.ndarray) -> float:
    """Return the episode's return of a linear policy."""
    env = gymnasium.make("CartPole-v1")
    obs, total, over = env.reset(seed=0)[0], 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(int(obs @ parameters > 0))
        total, over = total + float(reward), terminated or truncated
    return total
