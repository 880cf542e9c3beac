"""Sessions that developers and CI run: ``nox`` alone runs lint, types and tests.

Arguments after ``--`` go to the tool of the session, as in ``nox -s tests -- -k seeds``.
"""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting; ``-- --fix`` repairs what can be repaired."""
    session.install("ruff>=0.11")
    session.run("ruff", "check", *session.posargs)
    if "--fix" in session.posargs:
        session.run("ruff", "format")
    else:
        session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check types strictly, in the package and in everything beside it."""
    session.install(".[dev]")
    session.run("mypy", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests against the package as a user installs it."""
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into docs/_build; a warning is an error."""
    session.install(".[docs]")
    session.run("sphinx-build", "-W", *session.posargs, "docs", "docs/_build")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure physics against MuJoCo and other vectorizers into speed.json and speed.png.

    ``-- --quick`` takes less than a minute, ``-- --docs`` writes the page of the documentation too,
    and ``-- --rivals`` installs what it is compared with first, which is large.
    """
    posargs = [argument for argument in session.posargs if argument != "--rivals"]
    session.install(".[test,rivals]" if "--rivals" in session.posargs else ".[test]")
    session.run(
        *("python", "benchmarks/physics.py", "--json", "speed.json", "--plot", "speed.png"),
        *posargs,
    )


@nox.session
def bench_games(session: nox.Session) -> None:
    """Measure games in batches against plain Python into games.json and games.png.

    ``-- --quick`` takes less than a minute, and ``-- --docs`` writes the page of the documentation.
    """
    session.install(".[test]")
    session.run(
        *("python", "benchmarks/games.py", "--json", "games.json", "--plot", "games.png"),
        *session.posargs,
    )


@nox.session
def hot_path(session: nox.Session) -> None:
    """Time the paths that every step takes; arguments go to pytest-benchmark."""
    session.install(".[test]")
    session.run(
        *("pytest", "benchmarks", "-n0", "--timeout=0", "-o", "faulthandler_timeout=0"),
        *session.posargs,
    )


@nox.session
def soak(session: nox.Session) -> None:
    """See whether a million steps and 200 vectors make anything grow; then fuzz for long."""
    session.install(".[test]")
    session.run("python", "benchmarks/soak.py", *session.posargs)
    session.run(
        "pytest",
        "tests/vector/test_fuzz.py",
        "-o",
        "faulthandler_timeout=0",
        env={"FUZZ_EXAMPLES": "1000"},
    )
