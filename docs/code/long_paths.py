from superdex.lab.gym.envs.benchmarks.cartpole_env import CartPoleEnv
from superdex.lab.gym.utils.vector import HybridVectorEnv


def main():
    env_creators = [lambda: CartPoleEnv({"render_mode": None}) for _ in range(1000)]
    with HybridVectorEnv(env_creators, num_envs_per_worker=125) as env:
        observations, _ = env.reset(seed=list(range(env.num_envs)))
        for step in range(50):
            actions = env.action_space.sample()
            observations, rewards, terminated, truncated, info = env.step(actions)
            for i in range(env.num_envs):
                if terminated[i] or truncated[i]:
                    key = "terminated_reason" if terminated[i] else "truncated_reason"
                    info[key][i]
    print(observations.shape, "after", step + 1, "steps")


if __name__ == "__main__":
    main()
