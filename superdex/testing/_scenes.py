"""Checks for scenes, and for environments that share them.

Each check is a plain function that raises `AssertionError` with what it found. Call it in a test::

    def test_my_env_keeps_its_promises():
        check_scene_env(MyEnv)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superdex.envs import SceneEnv, SceneEnvCfg
from superdex.envs._share import scenes_of_their_own
from superdex.errors import SceneMismatch, StateCaptureUnsupported
from superdex.scenes import Scene, SceneManager
from superdex.testing._differences import differing_entries, differing_terms, observation_labels

_Outcome = tuple[str, Any]


def check_scene(
    factory: Callable[[], Scene[Any]],
    *,
    dt: float | None = None,
    num_steps: int = 50,
    act: Callable[[Any, np.random.Generator], None] | None = None,
    observe: Callable[[Any], NDArray[Any]] | None = None,
) -> None:
    """Check that a scene's states are captured, restored and released as `Scene` promises.

    Captured at the start, amid motion and after much of it: capture, steps, restore and the same
    steps must be bit-equal, whatever another state did in between.

    Args:
        factory: Builds a new scene.
        dt: Seconds per step; None is a MuJoCo scene's own timestep.
        num_steps: How many steps are compared.
        act: Drives the scene before each step, given the scene and a random generator; None is
            random controls and forces on a MuJoCo scene.
        observe: Returns what is compared, as a new array; None is time, positions, velocities,
            accelerations, contact forces and sensors of a MuJoCo scene.

    Raises:
        AssertionError: A promise is not kept.
        TypeError: The scene is no MuJoCo scene and `dt`, `act` or `observe` is missing.

    Example:
        >>> from superdex.scenes import MujocoScene
        >>> from superdex.testing import check_scene
        >>> ball = "<body pos='0 0 0.3'><freejoint/><geom size='0.1'/></body>"
        >>> floor = "<geom type='plane' size='1 1 1'/>"
        >>> xml = f"<mujoco><worldbody>{floor}{ball}</worldbody></mujoco>"
        >>> check_scene(lambda: MujocoScene.from_xml_string(xml))
    """
    scene, other = factory(), factory()
    try:
        missing = [name for name in _SCENE_METHODS if not callable(getattr(scene, name, None))]
        assert not missing, f"{type(scene).__name__} has no {', '.join(missing)}"
        if not hasattr(scene, "data") and (dt is None or act is None or observe is None):
            raise TypeError(
                f"{type(scene).__name__} is no MuJoCo scene: give check_scene dt, act and observe"
            )
        step = dt if dt is not None else float(scene.model.opt.timestep)  # type: ignore[attr-defined]  # a MuJoCo scene, by the check above
        act, observe = act or _random_drive, observe or _mujoco_observation

        def run(seed: int) -> NDArray[Any]:
            rng = np.random.default_rng(seed)
            seen = []
            for _ in range(num_steps):
                act(scene, rng)
                scene.step(step)
                seen.append(observe(scene))
            return np.stack(seen)

        handles = []
        for seed in range(3):
            try:
                handle = scene.capture_state()
            except StateCaptureUnsupported as error:
                raise AssertionError(f"The scene can't be shared: {error}") from error
            handles.append(handle)
            first = run(seed)
            for attempt in ("restored", "restored twice", "restored after another state's steps"):
                if attempt.endswith("steps"):
                    scene.restore_state(handles[0])
                    run(seed + 100)
                scene.restore_state(handle)
                _assert_equal(run(seed), first, f"State {seed}, {attempt}: the same steps differ")
        _check_handles(scene, other, handles)
    finally:
        scene.close()
        other.close()
    scene.close()


def check_scene_env(
    factory: Callable[[], Any], *, num_envs: int = 3, num_steps: int = 100, seed: int = 0
) -> None:
    """Check that an environment of yours gives the same results shared and alone.

    - Several environments in turn on one scene give, bit for bit, what each gives on its own
      scene, through episode ends, and whatever is looked at through `own_state` in between.
    - A reset depends on the seed alone: on a fresh scene, after random steps, after a sibling
      failed amid a step.
    - Observations lie in the declared space, and steps leave the scene's model as it was built.
    - The environment that built the scene may be closed first; the last one takes the scene along.

    Args:
        factory: Builds a `SceneEnv` (wrappers are taken off), the same with each call: its class,
            or a function that calls it, whatever the constructor takes. Some of the environments
            it builds here are on scenes of their own.
        num_envs: How many environments share.
        num_steps: How many steps each makes.
        seed: Of resets and actions.

    Raises:
        AssertionError: A promise is not kept. Of what differs, the message names environment,
            step, and component of the observation, reward term or info, with both values.
        ValueError: `num_envs` is less than 1.

    Example:
        >>> from superdex.envs import CartPoleEnv
        >>> from superdex.testing import check_scene_env
        >>> check_scene_env(lambda: CartPoleEnv({"actuate_on_pole": True}))
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    envs: list[SceneEnv] = []
    try:
        envs.extend(_shared_env(factory) for _ in range(num_envs))
        scene_name = envs[0].scene_name
        assert all(env._scene is envs[0]._scene for env in envs), (
            f"{num_envs} environments of one configuration are not on one scene; "
            f"their scene names are {[env.scene_name for env in envs]}"
        )
        manager = SceneManager.for_class(type(envs[0]))
        # Others of the caller's may be on the scene.
        num_others = manager.scene_info.get(str(scene_name), num_envs) - num_envs
        model_as_built = _model_bytes(envs[0])
        _check_sharing(factory, envs, num_steps, seed)
        _check_reset(factory, envs, num_steps, seed)
        assert _model_bytes(envs[0]) == model_as_built, (
            "Resetting or stepping changed the model of the scene, which every environment on it "
            "shares; what differs between environments belongs in the scene's name or in the state"
        )
        envs[0].close()
        for env in envs[1:]:
            env.reset(seed=seed)
            env.step(env.action_space.sample())
    except SceneMismatch as error:
        raise AssertionError(str(error)) from error
    finally:
        for env in envs:
            env.close()
    assert manager.scene_info.get(str(scene_name), 0) <= num_others, (
        f"Scene {scene_name!r} outlives its environments: {manager.scene_info}"
    )


def check_scene_name(factory: Callable[[Any], Any], configs: Sequence[Any]) -> None:
    """Check that scenes of one name are of one construction.

    Every scene is built afresh, on MuJoCo, and the compiled models of equal names are compared.

    Args:
        factory: Builds an environment from a configuration: usually its class.
        configs: The configurations, each a dict or a `SceneEnvCfg`.

    Raises:
        AssertionError: Two configurations share a name and not a model.
        ValueError: The scene is no MuJoCo scene, so that there are no models to compare.

    Example:
        >>> from superdex.envs import CartPoleEnv
        >>> from superdex.testing import check_scene_name
        >>> check_scene_name(CartPoleEnv, [{"use_gravity": True}, {"use_gravity": False}])
    """
    seen: dict[str, tuple[Any, bytes, dict[str, bytes]]] = {}
    for config in configs:
        env = factory(_unshared(config)).unwrapped
        try:
            name = env.scene_name
            assert name is not None, f"{env} did not load its scene through _load_scene()"
            if not hasattr(env._scene, "model"):
                raise ValueError(
                    f"check_scene_name compares MuJoCo models, and {type(env._scene).__name__} has "
                    "none; give _load_scene the fields that shape the construction instead"
                )
            found = (config, _model_bytes(env), _model_fields(env._scene.model))
        finally:
            env.close()
        before = seen.setdefault(name, found)
        differing = [field for field, value in found[2].items() if before[2].get(field) != value]
        assert before[1] == found[1], (
            f"{before[0]!r} and {config!r} share the scene name {name!r}, but their models differ "
            f"in {', '.join(differing) or 'size or names'}"
        )


_SCENE_METHODS = ("capture_state", "restore_state", "release_state", "step", "close")


def _check_handles(scene: Scene[Any], other: Scene[Any], handles: list[Any]) -> None:
    """Check that handles are invalid after their release and on another scene."""
    foreign = other.capture_state()
    released = handles.pop()
    scene.release_state(released)
    # A new state may reuse the released one's memory, and still must not answer to its handle.
    handles.append(scene.capture_state())
    for method, handle, what in (
        (scene.restore_state, released, "restoring a released handle"),
        (scene.release_state, released, "releasing a handle twice"),
        (scene.restore_state, foreign, "restoring another scene's handle"),
        (scene.release_state, foreign, "releasing another scene's handle"),
    ):
        try:
            # Any error will do; silence will not.
            method(handle)
        except Exception:
            continue
        raise AssertionError(f"{type(scene).__name__}: {what} raises no error")
    for handle in handles:
        scene.release_state(handle)


def _check_sharing(
    factory: Callable[[], Any], envs: list[SceneEnv], num_steps: int, seed: int
) -> None:
    """Check that environments in turn on one scene equal each on its own scene."""
    alone: list[SceneEnv] = []
    try:
        alone.extend(_unshared_env(factory) for _ in envs)
        rng = np.random.default_rng(seed)
        done = [True] * len(envs)
        for step in range(num_steps):
            for index, (shared, own) in enumerate(zip(envs, alone, strict=True)):
                if done[index]:
                    reset_seed = seed + index if step == 0 else None
                    got = _reset(shared, reset_seed)
                    expected = _reset(own, reset_seed)
                    done[index] = False
                else:
                    action = _random_action(shared, rng)
                    got, expected = _step(shared, action), _step(own, action)
                    done[index] = bool(expected[2][1] or expected[3][1])
                where = f"Environment {index} on a shared scene, step {step},"
                _assert_same(own, got, expected, where)
                if step % 3 == index % 3:
                    with shared.own_state():
                        pass
    finally:
        for env in alone:
            env.close()


def _check_reset(
    factory: Callable[[], Any], envs: list[SceneEnv], num_steps: int, seed: int
) -> None:
    """Check that a reset depends on the seed alone."""
    env, sibling = envs[0], envs[-1]
    rng = np.random.default_rng(seed)
    actions = [_random_action(env, rng) for _ in range(20)]

    def start(of: SceneEnv) -> list[list[_Outcome]]:
        outcomes = [_reset(of, seed)]
        for action in actions:
            if outcomes[-1][-1] == ("ended", True):
                break
            outcomes.append(_step(of, action))
        return outcomes

    fresh = _unshared_env(factory)
    try:
        expected = start(fresh)
    finally:
        fresh.close()
    for _ in range(num_steps):
        outcome = _step(env, _random_action(env, rng))
        if outcome[-1] == ("ended", True):
            env.reset()
    _assert_all_same(env, start(env), expected, "After random steps, a reset with the same seed")
    if sibling is not env:
        sibling.reset(seed=seed + 1)
        _fail_amid_step(sibling, rng)
        after = "After a sibling failed, a reset with the same seed"
        _assert_all_same(env, start(env), expected, after)
        _assert_all_same(sibling, start(sibling), expected, "After its own failure, a reset")


def _fail_amid_step(env: SceneEnv, rng: np.random.Generator) -> None:
    """Make a step of an environment raise after its physics."""

    def raise_error(*_: Any) -> Any:
        raise _PlannedFailureError

    env.__dict__["_compute_reward_terms"] = raise_error
    try:
        env.step(_random_action(env, rng))
    except _PlannedFailureError:
        pass
    else:
        raise AssertionError(f"{type(env).__name__}.step() never calls _compute_reward_terms()")
    finally:
        del env.__dict__["_compute_reward_terms"]


class _PlannedFailureError(Exception):
    """Raised on purpose, amid a step."""


def _shared_env(factory: Callable[[], Any]) -> SceneEnv:
    """Return an environment that shares its scene."""
    env = factory().unwrapped
    assert isinstance(env, SceneEnv), f"{type(env).__name__} is no SceneEnv"
    assert env.scene_name is not None, (
        f"{type(env).__name__} did not load its scene through _load_scene(), so it is not shared"
    )
    assert env.cfg.use_shared_scenes, f"{type(env).__name__} has use_shared_scenes=False"
    return env


def _unshared_env(factory: Callable[[], Any]) -> SceneEnv:
    """Return an environment of the factory on a scene of its own."""
    with scenes_of_their_own():
        env = factory().unwrapped
    assert isinstance(env, SceneEnv)
    assert not env.cfg.use_shared_scenes, (
        f"{type(env).__name__} was not built by this call of the factory, or it sets "
        "use_shared_scenes again after its construction: there is nothing to compare it with. Give "
        "a factory that builds a new environment with each call."
    )
    return env


def _unshared(config: Any) -> Any:
    """Return a configuration with sharing off."""
    if isinstance(config, SceneEnvCfg):
        return dataclasses.replace(config, use_shared_scenes=False)
    if config is None or isinstance(config, Mapping):
        return {**(config or {}), "use_shared_scenes": False}
    raise TypeError(f"A configuration is a dict or a SceneEnvCfg, got {type(config).__name__}")


def _random_action(env: SceneEnv, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return an action up to a tenth beyond the bounds, so that clipping is seen too."""
    layout = env._action_layout
    low, high = np.maximum(layout.low, -1e3), np.minimum(layout.high, 1e3)
    action: NDArray[np.float32] = (low + (high - low) * rng.uniform(-0.1, 1.1, layout.size)).astype(
        layout.dtype
    )
    return action


def _reset(env: SceneEnv, seed: int | None) -> list[_Outcome]:
    """Return the outcome of a reset, part by part."""
    observation, info = env.reset(seed=seed)
    _check_observation(env, observation)
    return [("observation", observation), ("info", info), ("ended", False)]


def _step(env: SceneEnv, action: NDArray[np.float32]) -> list[_Outcome]:
    """Return the outcome of a step, part by part."""
    observation, reward, terminated, truncated, info = env.step(action)
    _check_observation(env, observation)
    for flag, reason in ((terminated, "terminated_reason"), (truncated, "truncated_reason")):
        assert not flag or info.get(reason), f"{reason} is missing at the end of an episode"
    return [
        ("observation", observation),
        ("reward", reward),
        ("terminated", terminated),
        ("truncated", truncated),
        ("info", info),
        ("ended", terminated or truncated),
    ]


def _check_observation(env: SceneEnv, observation: NDArray[Any]) -> None:
    space = env.observation_space
    assert space.contains(observation), (
        f"The observation lies outside its space, or has another shape or dtype: {observation} "
        f"({observation.shape}, {observation.dtype}), expected {space}"
    )


def _assert_all_same(
    env: SceneEnv, got: list[list[_Outcome]], expected: list[list[_Outcome]], what: str
) -> None:
    for step, (outcome, wanted) in enumerate(zip(got, expected, strict=False)):
        _assert_same(env, outcome, wanted, f"{what} gives another episode: step {step},")


def _assert_same(env: SceneEnv, got: list[_Outcome], expected: list[_Outcome], what: str) -> None:
    for (name, value), (_, wanted) in zip(got, expected, strict=True):
        entries = ""
        if name == "observation":
            entries = differing_entries(value, wanted, observation_labels(env))
        elif name == "reward" and value != wanted:
            entries = differing_terms(dict(got)["info"], dict(expected)["info"])
        if isinstance(wanted, Mapping):
            assert value.keys() == wanted.keys(), (
                f"{what} {name}: keys {sorted(value)} differ from {sorted(wanted)}"
            )
            for key, entry in wanted.items():
                _assert_equal(value[key], entry, f"{what} {name}[{key!r}]")
        else:
            _assert_equal(value, wanted, f"{what} {name}", entries)


def _assert_equal(got: Any, expected: Any, what: str, entries: str = "") -> None:
    """Assert equality to the bit, nan equal to nan."""
    same = np.array_equal(got, expected, equal_nan=np.asarray(expected).dtype.kind == "f")
    where = f" in {entries}" if entries else ""
    assert same, f"{what} differs{where}: {got} is not {expected}"


def _random_drive(scene: Any, rng: np.random.Generator) -> None:
    data = scene.data
    data.ctrl[:] = rng.uniform(-1, 1, data.ctrl.shape)
    # Now and then only, so that a force which outlives a restore is seen.
    if rng.uniform() < 0.5:
        data.xfrc_applied[1:] = rng.uniform(-1, 1, data.xfrc_applied[1:].shape)


def _mujoco_observation(scene: Any) -> NDArray[Any]:
    """Return what a MuJoCo scene's motion is compared by."""
    data = scene.data
    fields = (data.qpos, data.qvel, data.act, data.qacc, data.qfrc_constraint, data.sensordata)
    return np.concatenate([[data.time], *fields])


def _model_bytes(env: SceneEnv) -> bytes:
    """Return the compiled model of a shared scene, without what varies; nothing if it has none."""
    model = getattr(env._scene, "model", None)
    if model is None:
        return b""
    import mujoco

    if env.varied_fields:
        env._scene.apply_variation(None)  # each environment puts its own in when its turn comes
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


def _model_fields(model: Any) -> dict[str, bytes]:
    """Return the arrays of a model and of its options by name, to say where two differ."""
    owners = (("", model), ("opt.", model.opt))
    return {
        prefix + name: np.asarray(getattr(owner, name)).tobytes()
        for prefix, owner in owners
        for name in dir(owner)
        if not name.startswith("_") and isinstance(getattr(owner, name), np.ndarray | int | float)
    }
