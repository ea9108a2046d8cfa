"""A plain PPO in one file, in CleanRL's manner: what one writes in an afternoon, and what Paddock must be faster than.

Reads requests of scripts/bench/ppo.py as JSON lines and answers each with its steps and seconds. A setting is the
number of torch's threads.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical, Normal


def make_env(env: str, normalize: bool, gamma: float) -> Callable[[], gymnasium.Env]:
    """How to make one environment, with CleanRL's wrappers."""

    def thunk() -> gymnasium.Env:
        made: gymnasium.Env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(env))
        if isinstance(made.action_space, gymnasium.spaces.Box):
            made = gymnasium.wrappers.ClipAction(made)
        if normalize:
            space = made.observation_space
            made = gymnasium.wrappers.NormalizeObservation(made)
            made = gymnasium.wrappers.TransformObservation(made, lambda obs: np.clip(obs, -10, 10), space)
            made = gymnasium.wrappers.NormalizeReward(made, gamma=gamma)
            made = gymnasium.wrappers.TransformReward(made, lambda reward: np.clip(float(reward), -10, 10))
        return made

    return thunk


def layer_init(layer: nn.Linear, gain: float = np.sqrt(2)) -> nn.Linear:
    """Orthogonal weights and no bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Two networks of two layers of 64."""

    def __init__(self, envs: SyncVectorEnv) -> None:
        super().__init__()
        width = int(np.prod(envs.single_observation_space.shape or ()))
        actions: Any = envs.single_action_space
        self.continuous = isinstance(actions, gymnasium.spaces.Box)
        count = int(np.prod(actions.shape)) if self.continuous else int(actions.n)
        self.critic = nn.Sequential(
            layer_init(nn.Linear(width, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 1), gain=1.0),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(width, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, count), gain=0.01),
        )
        self.logstd = nn.Parameter(torch.zeros(1, count)) if self.continuous else None

    def get_value(self, x: Tensor) -> Tensor:
        """Values [B, 1]."""
        return self.critic(x)

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Actions, their log-probabilities [B], entropies [B] and values [B, 1]."""
        out = self.actor(x)
        if self.logstd is not None:
            normal = Normal(out, torch.exp(self.logstd.expand_as(out)))
            action = normal.sample() if action is None else action
            return action, normal.log_prob(action).sum(1), normal.entropy().sum(1), self.critic(x)
        categorical = Categorical(logits=out)
        action = categorical.sample() if action is None else action
        return action, categorical.log_prob(action), categorical.entropy(), self.critic(x)


def train(recipe: dict[str, Any], setting: int, updates: int, seed: int) -> dict[str, Any]:
    """One update to warm up, then `updates` that count."""
    torch.set_num_threads(setting)
    torch.manual_seed(seed)
    np.random.seed(seed)
    num_envs, num_steps, gamma, gae_lambda = (recipe[k] for k in ("num_envs", "num_steps", "gamma", "gae_lambda"))
    clip, clip_vloss = recipe["clip_coef"], recipe["value_clip_coef"]
    batch_size, minibatch_size = num_envs * num_steps, recipe["minibatch_size"]
    thunks = [make_env(recipe["env"], recipe["normalize"], gamma) for _ in range(num_envs)]
    envs = SyncVectorEnv(thunks, autoreset_mode=AutoresetMode.SAME_STEP)
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=recipe["learning_rate"], eps=1e-5)

    obs = torch.zeros((num_steps, num_envs, *envs.single_observation_space.shape))  # type: ignore[misc]
    actions = torch.zeros((num_steps, num_envs, *envs.single_action_space.shape))  # type: ignore[misc]
    logprobs = torch.zeros((num_steps, num_envs))
    rewards = torch.zeros((num_steps, num_envs))
    dones = torch.zeros((num_steps, num_envs))
    values = torch.zeros((num_steps, num_envs))
    returns: list[float] = []

    next_obs = torch.Tensor(envs.reset(seed=seed)[0])
    next_done = torch.zeros(num_envs)
    started = 0.0
    for update in range(updates + 1):
        if update == 1:
            started = time.perf_counter()

        for step in range(num_steps):
            obs[step] = next_obs
            dones[step] = next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step] = action
            logprobs[step] = logprob
            after, reward, terminations, truncations, infos = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward).view(-1)
            next_obs, next_done = torch.Tensor(after), torch.Tensor(np.logical_or(terminations, truncations))
            if "final_info" in infos:
                returns += infos["final_info"]["episode"]["r"][infos["final_info"]["_episode"]].tolist()

        # As CleanRL does, an episode that was cut off counts as one that ended.
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards)
            lastgaelam = torch.zeros(num_envs)
            for t in reversed(range(num_steps)):
                last = t == num_steps - 1
                nextnonterminal = 1.0 - (next_done if last else dones[t + 1])
                nextvalues = next_value if last else values[t + 1]
                delta = rewards[t] + gamma * nextvalues * nextnonterminal - values[t]
                advantages[t] = lastgaelam = (delta + gamma * gae_lambda * nextnonterminal * lastgaelam).view(-1)
            targets = advantages + values

        b_obs = obs.reshape((-1, *envs.single_observation_space.shape))  # type: ignore[misc]
        b_actions = actions.reshape((-1, *envs.single_action_space.shape))  # type: ignore[misc]
        b_logprobs, b_advantages = logprobs.reshape(-1), advantages.reshape(-1)
        b_targets, b_values = targets.reshape(-1), values.reshape(-1)
        b_inds = np.arange(batch_size)
        clipfracs = []
        for _ in range(recipe["epochs"]):
            np.random.shuffle(b_inds)
            for start in range(0, batch_size, minibatch_size):
                mb_inds = b_inds[start : start + minibatch_size]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
                logratio = newlogprob - b_logprobs[mb_inds]
                ratio = logratio.exp()
                with torch.no_grad():
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipfracs.append(((ratio - 1.0).abs() > clip).float().mean().item())
                mb_advantages = b_advantages[mb_inds]
                mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
                pg_loss1 = -mb_advantages * ratio
                pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
                pg_loss = torch.max(pg_loss1, pg_loss2).mean()
                newvalue = newvalue.view(-1)
                v_loss = (newvalue - b_targets[mb_inds]) ** 2
                if clip_vloss is not None:
                    v_clipped = torch.clamp(newvalue - b_values[mb_inds], -clip_vloss, clip_vloss)
                    v_loss = torch.max(v_loss, (b_values[mb_inds] + v_clipped - b_targets[mb_inds]) ** 2)
                v_loss = 0.5 * v_loss.mean()
                entropy_loss = entropy.mean()
                loss = pg_loss - recipe["entropy_coef"] * entropy_loss + recipe["value_coef"] * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), recipe["max_grad_norm"])
                optimizer.step()

        y_pred, y_true = b_values.numpy(), b_targets.numpy()
        spread = np.var(y_true)
        _ = np.nan if spread == 0 else 1 - np.var(y_true - y_pred) / spread  # what CleanRL logs
        _ = v_loss.item(), pg_loss.item(), entropy_loss.item(), approx_kl.item(), np.mean(clipfracs)
    seconds = time.perf_counter() - started
    envs.close()
    return_mean = float(np.mean(returns[-100:])) if returns else None
    return {"steps": updates * batch_size, "seconds": seconds, "return_mean": return_mean}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(train(**json.loads(line))), flush=True)
