"""Whole programs: how they start, end, are interrupted and killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

ENVIRONMENT = """
import os, subprocess, sys, threading, time
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from superdex.vector import HybridVectorEnv

class Env(gym.Env):
    def __init__(self, pause=0.0):
        self.observation_space = self.action_space = Box(-1, 1, (2,), np.float32)
        self.pause = pause

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(self.pause)
        return np.zeros(2, np.float32), 1.0, False, False, {}

ACTIONS = np.zeros((4, 2), np.float32)
"""


class Script:
    """A script on disk and the process that runs it, leader of a group of its own."""

    def __init__(self, folder: Path, body: str):
        path = folder / "script.py"
        path.write_text(ENVIRONMENT + textwrap.dedent(body))
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, timeout: float = 30) -> tuple[int, str, str]:
        """Return exit code, output and errors, and that took `seconds`."""
        out, err = self.process.communicate(timeout=timeout)
        self.seconds = time.perf_counter() - self.started
        return self.process.returncode, out, err


@pytest.fixture
def run(tmp_path):
    """Starts scripts, and ends what is left of them."""
    scripts: list[Script] = []

    def start(body):
        scripts.append(Script(tmp_path, body))
        return scripts[-1]

    yield start
    for script in scripts:
        if script.process.poll() is None:
            os.killpg(script.process.pid, signal.SIGKILL)
        with script.process:
            pass  # gives its pipes back


def gone(pids: list[int], within: float = 2.0) -> bool:
    """Return whether these processes end in that time; zombies of a killed parent count as gone.

    Looks are counted, since the clock goes on where a busy machine runs neither them nor us.
    """
    for _ in range(round(within / 0.02)):
        if not any(map(is_alive, pids)):
            break
        time.sleep(0.02)
    return not any(map(is_alive, pids))


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


MAIN = """
def main():
{body}

if __name__ == "__main__":
    main()
"""


def guarded(body: str) -> str:
    """Return a main function with that body, under a guard."""
    return MAIN.format(body=textwrap.indent(textwrap.dedent(body).strip(), "    "))


# ── the main guard ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [1, 4])
def test_without_a_guard_a_script_ends_with_a_message_that_shows_it(run, workers):
    """Within ten seconds, and without a traceback of every worker."""
    script = run(f"""
        envs = HybridVectorEnv([Env] * 4, num_workers={workers})
        envs.reset()
    """)
    code, out, err = script.end()
    assert code != 0
    assert script.seconds < 10
    assert 'if __name__ == "__main__":' in err
    assert "StartupError" in err
    assert err.count("Traceback") == 1
    assert out == ""


def test_a_script_whose_import_fails_in_workers_shows_why(run):
    """The worker's own traceback, then which call found it dead."""
    script = run("""
        if __name__ == "__mp_main__":
            raise RuntimeError("no licence here")
        if __name__ == "__main__":
            HybridVectorEnv([Env], 1)
    """)
    code, _, err = script.end()
    assert code == 1
    assert "no licence here" in err
    assert "WorkerDied" in err
    assert "importing the main module" in err


def test_in_process_needs_no_guard(run):
    """There is nobody who would import the script."""
    script = run("""
        envs = HybridVectorEnv([Env] * 4, 2, in_process=True)
        print(envs.reset().observation.shape)
    """)
    assert script.end() == (0, "(4, 2)\n", "")


# ── what travels from the main module ───────────────────────────────────────────────────────────


def test_classes_and_lambdas_of_the_main_module_travel(run):
    """Environments, exceptions, and what infos hold."""
    script = run(
        """
        class Broken(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a}{b}")
                self.b = b

        class Value:
            def __init__(self, n):
                self.n = n

        class Failing(Env):
            def step(self, action):
                return (*super().step(action)[:4], {"value": Value(7)})

            def fail(self):
                raise Broken(1, 2)
        """
        + guarded("""
            with HybridVectorEnv([lambda: Failing()] * 4, 2) as envs:
                envs.reset()
                value = envs.step(ACTIONS).info["value"][3]
                print(type(value) is Value, value.n)
                try:
                    envs.call("fail")
                except* Exception as group:
                    cause = group.exceptions[0].__cause__
                    print(type(cause) is Broken, cause, cause.b)
        """).replace("\n", "\n        ")
    )
    assert script.end() == (0, "True 7\nTrue 12 2\n", "")


@pytest.mark.parametrize("name", ["Mine", "MyCartPole"])
def test_an_id_registered_under_the_guard_is_a_clear_error(run, name):
    """It says where registration belongs, also where Gymnasium takes the id for another's typo."""
    script = run(
        guarded(f"""
            gym.register("{name}-v0", Env)
            HybridVectorEnv([lambda: gym.make("{name}-v0")] * 2, 1)
        """)
    )
    code, _, err = script.end()
    assert code == 1
    assert f"`{name}` doesn't exist" in err
    assert "Environment 0 (worker 0) raised in construct: NameNotFound" in err
    assert "Register the id in a module" in err


def test_an_id_registered_at_the_top_of_the_main_module_works(run):
    """Workers import it."""
    script = run(
        """
        gym.register("Mine-v0", Env)
        """
        + guarded("""
            with HybridVectorEnv([lambda: gym.make("Mine-v0")] * 2, 2) as envs:
                print(envs.num_envs)
        """).replace("\n", "\n        ")
    )
    assert script.end() == (0, "2\n", "")


def test_a_function_that_cant_be_pickled_is_named(run):
    """Before any worker is started."""
    script = run(
        guarded("""
            lock = threading.Lock()
            def build_with_lock():
                return Env(lock)
            HybridVectorEnv([Env, build_with_lock], 1)
        """)
    )
    code, _, err = script.end()
    assert code == 1
    assert "TypeError: The function for environment 1" in err
    assert "build_with_lock" in err


# ── the end of a script ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("then", ["", "raise SystemExit(3)", "1 / 0"])
def test_a_script_that_never_closes_ends_by_itself(run, then):
    """Quietly, whatever way it ends."""
    script = run(
        guarded(f"""
            global envs
            envs = HybridVectorEnv([Env] * 4, 2)
            envs.reset()
            envs.step(ACTIONS)
            print(*envs.worker_pids, flush=True)
            {then}
        """)
    )
    code, out, err = script.end(timeout=20)
    assert code == {"": 0, "raise SystemExit(3)": 3, "1 / 0": 1}[then]
    assert err.count("Traceback") == (then == "1 / 0")
    assert then == "1 / 0" or err == ""
    assert gone([int(pid) for pid in out.split()])


def test_environments_are_closed_when_a_script_ends_without_close(run, tmp_path):
    """Each once; what one raises there is nobody's to see."""
    script = run(
        """
        class Noting(Env):
            def close(self):
                with open("closed", "a") as file:
                    file.write("closed ")
                raise KeyError("k")
        """
        + guarded("""
            global envs
            envs = HybridVectorEnv([Noting] * 3, num_workers=2)
            envs.reset()
        """).replace("\n", "\n        ")
    )
    assert script.end(timeout=20) == (0, "", "")
    assert (tmp_path / "closed").read_text() == "closed " * 3


def test_a_busy_environment_does_not_hold_the_end_up(run):
    """A script that ends while a step is in flight ends within bounds."""
    script = run(
        guarded("""
            global envs
            envs = HybridVectorEnv([lambda: Env(60)] * 2, 1)
            envs.reset()
            envs.step_async(ACTIONS[:2])
            print(*envs.worker_pids, flush=True)
        """)
    )
    pids = [int(pid) for pid in script.line().split()]
    started = time.perf_counter()
    code, _, err = script.end(timeout=20)
    assert (code, err) == (0, "")
    assert time.perf_counter() - started < 10
    assert gone(pids)


@pytest.mark.parametrize("pause", [0.0, 60.0], ids=["idle", "mid-step"])
def test_workers_end_with_a_killed_parent(run, pause):
    """Within two seconds, quietly, in the middle of a step too."""
    script = run(
        guarded(f"""
            envs = HybridVectorEnv([lambda: Env({pause})] * 4, 2)
            envs.reset()
            print(*envs.worker_pids, flush=True)
            envs.step(ACTIONS)
            time.sleep(60)
        """)
    )
    pids = [int(pid) for pid in script.line().split()]
    time.sleep(0.2)
    script.process.kill()
    assert gone(pids)
    code, _, err = script.end()
    assert (code, err) == (-signal.SIGKILL, "")


NATIVE = """
        import ctypes

        class Native(Env):
            def step(self, action):
                ctypes.PyDLL(None).usleep(60_000_000)  # holds the GIL
        """


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_workers_in_native_code_end_with_their_parent(run, number):
    """No thread of theirs runs meanwhile; whatever ends the parent, and without a word."""
    script = run(
        NATIVE
        + guarded("""
            import signal

            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # else ignored where nohup runs the tests
            envs = HybridVectorEnv([Native] * 2, 1)
            envs.reset()
            print(*envs.worker_pids, flush=True)
            envs.step(ACTIONS[:2])
        """).replace("\n", "\n        ")
    )
    pids = [int(pid) for pid in script.line().split()]
    time.sleep(0.2)
    script.process.send_signal(number)
    assert gone(pids)
    assert script.end() == (-number, "", "")
    assert left_by(script) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_a_parent_that_ends_while_they_start(run, number, tmp_path):
    """While they import, before they hold what the parent made for them: nothing is left."""
    script = run(
        """
        if __name__ == "__mp_main__":
            open(f"importing{os.getpid()}", "w").close()
            time.sleep(0.5)
        """
        + guarded("""
            HybridVectorEnv([Env] * 3, 1)
        """).replace("\n", "\n        ")
    )
    assert wait_until(lambda: len(list(tmp_path.glob("importing*"))) == 3)
    script.process.send_signal(number)
    assert script.end() == (-number, "", "")  # the workers hold its pipes open until they end
    assert left_by(script) == []


def test_workers_end_with_a_parent_that_is_killed_while_they_build(run, tmp_path):
    """Of many vectors, some of which are ready."""
    script = run(
        """
        def build(number):
            if number == 9:
                open(f"building{os.getpid()}", "w").close()
                time.sleep(60)
            return Env()
        """
        + guarded("""
            vectors = []
            for number in range(10):
                vectors.append(HybridVectorEnv([lambda: build(number)], 1))
                print(*vectors[-1].worker_pids, flush=True)
        """).replace("\n", "\n        ")
    )
    pids = [int(script.line()) for _ in range(9)]
    assert wait_until(lambda: list(tmp_path.glob("building*")))
    pids += [int(path.name.removeprefix("building")) for path in tmp_path.glob("building*")]
    script.process.kill()
    assert gone(pids)
    code, _, err = script.end()
    assert (code, err) == (-signal.SIGKILL, "")
    assert left_by(script) == []


def test_workers_end_with_a_killed_parent_that_has_forked(run):
    """Though the fork lives on and holds whatever its parent held."""
    script = run(
        guarded("""
            envs = HybridVectorEnv([Env] * 2, 1)
            envs.reset()
            fork = os.fork()
            if fork == 0:
                os.close(1), os.close(2)
                time.sleep(30)
                os._exit(0)
            print(fork, *envs.worker_pids, flush=True)
            time.sleep(60)
        """)
    )
    fork, *pids = map(int, script.line().split())
    script.process.kill()
    try:
        assert gone(pids)
        assert is_alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
    assert script.end() == (-signal.SIGKILL, "", "")


def test_a_fork_that_ends_takes_nothing_along(run):
    """Not the workers, at its end or its close; and it does not hold up the close of its parent."""
    script = run(
        guarded("""
            envs = HybridVectorEnv([Env] * 4, 2)
            envs.reset()
            if os.fork() == 0:
                envs.close()
                os._exit(0)
            os.wait()
            if (fork := os.fork()) == 0:
                time.sleep(30)
                os._exit(0)
            print(envs.step(ACTIONS).reward)
            started = time.perf_counter()
            envs.close()
            print(time.perf_counter() - started < 3)
            os.kill(fork, 9)
        """)
    )
    assert script.end() == (0, "[1. 1. 1. 1.]\nTrue\n", "")


def wait_until(condition, within=30.0):
    """Wait until a condition holds; return whether it does."""
    deadline = time.monotonic() + within
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds


def left_by(script):
    """Return what a script left in /dev/shm."""
    return list(Path("/dev/shm").glob(f"*-{script.process.pid}-*"))


@pytest.mark.parametrize("what", ["lambda: Env(60)", "Native"])
def test_ctrl_c_in_a_long_step_ends_in_time(run, what):
    """Nobody waits for the step to end, nor for native code that holds the GIL."""
    script = run(
        NATIVE
        + guarded(f"""
            with HybridVectorEnv([{what}] * 4, 2) as envs:
                envs.reset()
                print(*envs.worker_pids, flush=True)
                envs.step(ACTIONS)
        """).replace("\n", "\n        ")
    )
    pids = [int(pid) for pid in script.line().split()]
    time.sleep(0.3)
    started = time.perf_counter()
    os.killpg(script.process.pid, signal.SIGINT)
    code, _, err = script.end()
    assert time.perf_counter() - started < 2
    assert code == -signal.SIGINT
    assert err.count("Traceback") == 1
    assert gone(pids, 0)


def test_ctrl_c_while_workers_build_for_long_ends_in_time(run, tmp_path):
    """One traceback, and nothing is left."""
    script = run(
        """
        def build():
            open(f"building{os.getpid()}", "w").close()
            time.sleep(60)
        """
        + guarded("""
            HybridVectorEnv([build] * 3, 1)
        """).replace("\n", "\n        ")
    )
    assert wait_until(lambda: len(list(tmp_path.glob("building*"))) == 3)
    started = time.perf_counter()
    os.killpg(script.process.pid, signal.SIGINT)
    code, _, err = script.end()
    assert time.perf_counter() - started < 3
    assert code == -signal.SIGINT
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert gone([int(path.name.removeprefix("building")) for path in tmp_path.glob("building*")], 0)
    assert left_by(script) == []


def test_a_slow_import_of_the_main_module_is_reported(run):
    """At the line that makes the vector; and is waited for."""
    script = run(
        """
        if __name__ == "__mp_main__":
            time.sleep(1.5)
        """
        + guarded("""
            HybridVectorEnv([Env] * 5, 1, slow_after=0.3).close()
        """).replace("\n", "\n        ")
    )
    code, _, err = script.end()
    assert code == 0
    assert re.search(
        r"script\.py:\d+: RuntimeWarning: 5 of 5 workers have not started after \d\.\d s: worker 0 "
        r"is still importing the main module; .*; and 2 more workers\. They are waited for\.",
        err,
    )
    assert err.count("Warning") == 1


def test_ctrl_c_is_one_traceback(run):
    """Sent to the whole process group, as a terminal does; the script ends within two seconds."""
    script = run(
        guarded("""
            with HybridVectorEnv([lambda: Env(0.05)] * 4, 2) as envs:
                envs.reset()
                print(*envs.worker_pids, flush=True)
                while True:
                    envs.step(ACTIONS)
        """)
    )
    pids = [int(pid) for pid in script.line().split()]
    time.sleep(0.3)
    started = time.perf_counter()
    os.killpg(script.process.pid, signal.SIGINT)
    code, _, err = script.end()
    assert time.perf_counter() - started < 2
    assert code == -signal.SIGINT
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert gone(pids)


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.15, 0.2, 0.25])
def test_ctrl_c_while_workers_start_is_one_traceback(run, delay):
    """Wherever they stand: importing, building, waiting for their block."""
    script = run(
        guarded("""
            print("starting", flush=True)
            envs = HybridVectorEnv([lambda: Env()] * 4, 2)
            envs.reset()
            time.sleep(60)
        """)
    )
    script.line()
    time.sleep(delay)
    os.killpg(script.process.pid, signal.SIGINT)
    code, _, err = script.end()
    assert code in (1, -signal.SIGINT)
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")


# ── processes of environments ───────────────────────────────────────────────────────────────────

WITH_PROCESS = """
        class Simulating(Env):
            def __init__(self):
                super().__init__()
                self.simulator = subprocess.Popen(["sleep", "99"])

            @property
            def pid(self):
                return self.simulator.pid
        """


@pytest.mark.parametrize("end", ["envs.close()", "os.kill(envs.worker_pids[0], 9); envs.close()"])
def test_processes_of_environments_end_with_their_worker(run, end):
    """After close, and after the worker was killed and the vector closed."""
    script = run(
        WITH_PROCESS
        + guarded(f"""
            envs = HybridVectorEnv([Simulating] * 2, 2)
            print(*envs.get_attr("pid"), flush=True)
            {end}
            print("closed", flush=True)
            time.sleep(60)
        """).replace("\n", "\n        ")
    )
    pids = [int(pid) for pid in script.line().split()]
    assert len(pids) == 2
    assert script.line() == "closed"
    assert gone(pids)


def test_processes_of_environments_end_with_a_killed_parent(run):
    """Nothing is left of the whole tree."""
    script = run(
        WITH_PROCESS
        + guarded("""
            envs = HybridVectorEnv([Simulating] * 2, 1)
            print(*envs.get_attr("pid"), *envs.worker_pids, flush=True)
            time.sleep(60)
        """).replace("\n", "\n        ")
    )
    pids = [int(pid) for pid in script.line().split()]
    script.process.kill()
    assert gone(pids)


# ── what workers import and inherit ─────────────────────────────────────────────────────────────


def test_importing_the_package_imports_nothing_heavy(run):
    """Every spawned worker would pay for it."""
    script = run("""
        heavy = {"mujoco", "torch", "matplotlib", "rich", "superdex.scenes"}
        print(heavy & sys.modules.keys())
    """)
    assert script.end() == (0, "set()\n", "")


def test_a_worker_of_plain_environments_imports_nothing_heavy(run):
    """Neither MuJoCo nor torch, nor what only the parent needs."""
    script = run(
        """
        class Telling(Env):
            def modules(self):
                return sorted({"mujoco", "torch", "matplotlib", "rich"} & sys.modules.keys())
        """
        + guarded("""
            with HybridVectorEnv([Telling] * 2, 1) as envs:
                envs.reset()
                envs.step(ACTIONS[:2])
                print(envs.call("modules"))
        """).replace("\n", "\n        ")
    )
    assert script.end() == (0, "([], [])\n", "")


def test_workers_get_one_thread_for_numeric_libraries_unless_set(run):
    """What the user set stays, and the parent's environment is as before."""
    script = run(
        """
        NAMES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

        class Telling(Env):
            def threads(self):
                return [os.environ.get(name) for name in NAMES]
        """
        + guarded("""
            for name in NAMES:
                os.environ.pop(name, None)
            os.environ["MKL_NUM_THREADS"] = "3"
            before = dict(os.environ)
            with HybridVectorEnv([Telling], 1) as envs:
                print(envs.call("threads")[0])
            print(dict(os.environ) == before)
        """).replace("\n", "\n        ")
    )
    assert script.end() == (0, "['1', '1', '3']\nTrue\n", "")


def test_what_environments_print_is_shown(run):
    """A worker's output is the script's."""
    script = run(
        """
        class Talking(Env):
            def reset(self, **kwargs):
                print("from a worker", flush=True)
                return super().reset(**kwargs)
        """
        + guarded("""
            with HybridVectorEnv([Talking], 1) as envs:
                envs.reset()
        """).replace("\n", "\n        ")
    )
    code, out, err = script.end()
    assert (code, err) == (0, "")
    assert re.fullmatch(r"from a worker\n", out)
