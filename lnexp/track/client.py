"""The few calls into wandb that need care: how it is started, ended, asked and, where it hangs, killed.

All that hangs on the inner life of wandb 0.31 is here. Nothing here waits without a limit but what says so.
"""

from __future__ import annotations

import contextlib
import netrc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from lnexp.errors import UserError

FINISH_S = 60.0
"""How long the end of a run waits for the server."""
INIT_S = 20.0
"""How long wandb tries to reach the server (WANDB_INIT_TIMEOUT sets another, at most 30); giving up takes it 10 s."""
ASK_S = 10
"""How long a question to the server may take."""
SETTLE_S = 5.0
"""How long the server may take to count what it was sent."""
CALL_S = 60.0
"""How long wandb's helper may take to start and to pass on a few questions."""
SEND_S = 180.0
"""How long one run may take to be sent: INIT_S, FINISH_S, SETTLE_S and ASK_S, and the rows themselves."""
FORGET_S = 5.0
"""How long wandb's helper may take to end."""

_T = TypeVar("_T")

_ROWS_OF = """query LnexpRun($entity: String!, $project: String!, $run: String!) {
  project(name: $project, entityName: $entity) { run(name: $run) { historyLineCount state summaryMetrics } }
}"""
_WHO = "query LnexpViewer { viewer { entity } }"


class Known(NamedTuple):
    """What the server says of a run."""

    rows: int
    ended: bool
    summary: str
    """JSON."""


def quiet(folder: Path) -> None:
    """Set what wandb reads from the environment, before its import; what the user has set stays.

    It shall be silent, report its own errors to nobody, and keep its scratch files with the run instead of in HOME
    (where the key is looked for, so HOME itself stays). Its helper is written in Go: GOGC saves it 3 MB of 36.
    """
    scratch = str(folder / "wandb" / ".scratch")
    own = {"SILENT": "true", "ERROR_REPORTING": "false", "CACHE_DIR": scratch, "DATA_DIR": scratch}
    for name, value in own.items():
        os.environ.setdefault("WANDB_" + name, value)
    os.environ.setdefault("GOGC", "25")


def has_key(settings: Any) -> bool:
    """Say whether wandb would find a key, looking where it looks; `wandb.login` would ask the network (5 s)."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or settings.api_key:
        return True
    named_file = os.environ.get("NETRC")
    for path in [Path(named_file)] if named_file else [Path("~/.netrc"), Path("~/_netrc")]:
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            known = netrc.netrc(str(path.expanduser()))
            # The public server's older name, under which most keys were stored, counts too.
            hosts = [urlsplit(settings.base_url).netloc]
            if hosts[0].endswith(".forge.coreweave.com"):
                hosts.append("api.wandb.ai")
            return any(known.authenticators(host) for host in hosts)
    return False


def begin(wandb: Any, mode: str, options: dict[str, Any]) -> Any:
    """Start or resume the W&B run; what is left out here costs a second process, or tells paths and names."""
    wanted = {
        "silent": True,
        "console": "off",
        "init_timeout": min(30.0, float(os.environ.get("WANDB_INIT_TIMEOUT", INIT_S))),
        "finish_timeout": FINISH_S,
        "finish_timeout_raises": True,
        # A killed run loses a second of rows, not 15.
        "x_transaction_log_flush_interval": 1,
        # Machine and versions are in config.env already.
        "x_disable_stats": True,
        "x_disable_meta": True,
        "x_disable_machine_info": True,
        "x_save_requirements": False,
        "disable_git": True,
        "disable_code": True,
    }
    known = {name: value for name, value in wanted.items() if name in wandb.Settings.model_fields}
    live = wandb.init(mode=mode, resume="allow", reinit="create_new", settings=wandb.Settings(**known), **options)
    live.define_metric("updates")
    live.define_metric("wall_s")
    live.define_metric("*", step_metric="updates")
    return live


def end(live: Any, state: str, summary: dict[str, Any]) -> None:
    """Close the run with its state; TimeoutError where the server did not take everything in FINISH_S."""
    live.summary.update(summary)
    if state == "diverged":  # a result, not a failure
        live.tags = tuple(dict.fromkeys((*(live.tags or ()), "diverged")))
    if state == "interrupted":
        live.mark_preempting()
    live.finish(exit_code=0 if state in ("done", "diverged") else 1)


def table(wandb: Any, triples: list[tuple[str, str, str]]) -> Any:
    """Give the table of sample translations."""
    return wandb.Table(columns=["source", "reference", "hypothesis"], data=[list(triple) for triple in triples])


def api(wandb: Any) -> Any:
    """Give what asks the server; it proves the key at once, so any wandb error is possible."""
    return wandb.Api(timeout=ASK_S)


def connect(scratch: Path) -> tuple[Any, Any]:
    """Give wandb, and what asks the server that the environment names. UserError without a key, or with one that is
    none or that the server will not have; ConnectionError where the server does not answer."""
    quiet(scratch)
    os.environ.pop("WANDB_MODE", None)  # who asks to send means it
    import wandb

    settings = wandb.setup().settings
    if not has_key(settings):
        raise UserError("no W&B key; `wandb login`, or set WANDB_API_KEY")
    try:
        return wandb, within(wandb, CALL_S, lambda: api(wandb))
    except Exception as error:
        # wandb calls it a failed authentication, too, where nobody answers.
        if isinstance(error, wandb.errors.AuthenticationError) and "Failed to execute" not in str(error):
            rule = "`wandb login --relogin`, or set WANDB_API_KEY"
            raise UserError(f"the W&B key is refused ({line(error)}); {rule}") from None
        what = f"{settings.base_url} does not answer ({line(error)})"
        raise ConnectionError(f"{what}; nothing was sent: try again once it does") from None


def ask(api: Any, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Put a GraphQL question to the server, as W&B's own wandb-workspaces does; any wandb error where it fails."""
    return api._service_api.execute_graphql(query, variables)


def entity(api: Any) -> str:
    """Give the account that runs go to where track.entity names none."""
    return ask(api, _WHO, {})["viewer"]["entity"]


def known(api: Any, entity: str, project: str, run: str) -> Known | None:
    """Give what the server holds of a run, None where it has no such run."""
    found = ask(api, _ROWS_OF, {"entity": entity, "project": project, "run": run})
    about = (found.get("project") or {}).get("run")
    if about is None:
        return None
    ended = about.get("state") not in ("running", "pending")
    return Known(int(about.get("historyLineCount") or 0), ended, about.get("summaryMetrics") or "{}")


def settled(api: Any, live: Any, rows: int) -> int:
    """Give how many rows the server has of a run just ended; it may take up to SETTLE_S to count them all."""
    wait_until = time.monotonic() + SETTLE_S
    while True:
        about = known(api, live.entity, live.project, live.id)
        have = about.rows if about else 0
        if have >= rows or time.monotonic() > wait_until:
            return have
        time.sleep(0.5)


def within(wandb: Any, seconds: float, call: Callable[[], _T]) -> _T:
    """Give what `call` gives. ConnectionError after so many seconds: most of wandb's calls wait for its helper process
    without a limit, so it is killed, here as where a person presses Ctrl-C."""
    given: list[_T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            given.append(call())
        except BaseException as error:
            failed.append(error)

    if not _ends(work, seconds, lambda: kill_core(wandb)):
        raise ConnectionError(f"wandb's helper process did not answer in {seconds:.0f} s")
    if failed:
        raise failed[0]
    return given[0]


def _ends(work: Callable[[], None], seconds: float, kill: Callable[[], None]) -> bool:
    """Do `work` on a thread and say whether it ended in so many seconds; where not, `kill` what it waits for."""
    worker = threading.Thread(target=work, name="wandb-call", daemon=True)
    worker.start()
    try:
        worker.join(seconds)
    finally:
        late = worker.is_alive()
        if late:
            kill()
            worker.join(FORGET_S)
    return not late


def _core(wandb: Any) -> Any:
    """Give wandb's helper process, None where it has none of its own; starts none and takes no lock."""
    with contextlib.suppress(AttributeError):
        return wandb.sdk.wandb_setup._singleton._connection._proc._process
    return None


def kill_core(wandb: Any) -> None:
    """End wandb's helper process where it is ours: calls that wait for it return, and the exit hook does not hang."""
    if core := _core(wandb):
        core.kill()


def forget(wandb: Any) -> None:
    """Have wandb end its helper process and start anew with its next run; at most FORGET_S, twice.

    At the end of a command, for wandb's own exit hook waits for the helper without a limit (seen with 0.31: on a busy
    machine one that had asked a server in vain did not end, in 2 of 7 tries). And after a run that failed: a dead
    helper fails every later run and makes the exit hook print a traceback; a living one holds the id of the run that it
    could not start. Whatever teardown raises (SystemExit where the helper was killed) is no news.
    """
    core = _core(wandb)  # teardown forgets it first and then waits for it without a limit

    def work() -> None:
        with contextlib.suppress(BaseException):
            wandb.teardown()

    _ends(work, FORGET_S, lambda: core.kill() if core else None)


def line(error: BaseException) -> str:
    """Give an error as one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def command(*words: str | Path) -> str:
    """Name a command of ours as a person can type it: the one beside this Python, which need not be on the path."""
    there = str(Path(sys.executable).with_name("lnexp"))
    return " ".join([min(os.path.relpath(there), there, key=len), *map(str, words)])
