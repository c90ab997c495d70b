"""`lnexp dashboard --watch`: fresh data, this machine only, safe headers, a clean end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import fake_outputs
import pytest

from lnexp.cli import main
from lnexp.report import watch


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return fake_outputs.write_demo(tmp_path / "outputs")


@pytest.fixture
def port(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(watch, "_IDLE", 0)
    with watch.serve(demo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def ask(
    port: int, path: str = "/data.json", method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_a_live_page_has_the_verdicts_and_says_what_it_leaves_out(port: int) -> None:
    claims = json.loads(ask(port)[1])["claims"]
    assert claims["marks"] == ["holds", "open"]
    sentences = claims["headers"].index("sentences")
    assert {row[sentences] for row in claims["rows"]} == {"–"}
    assert any(n.startswith("sentences: not tested") and "without --watch" in n for n in claims["notes"])


def test_a_change_is_seen_and_no_change_costs_nothing(demo: Path, port: int) -> None:
    answer, text = ask(port)
    assert (answer.status, json.loads(text)["live"]) == (200, True)
    stamp = answer.headers["ETag"]
    answer, text = ask(port, **{"If-None-Match": stamp})
    assert (answer.status, text) == (304, "")
    run = demo / "post_ln-warmup200-11c0ffee"
    before = len(json.loads(ask(port)[1])["runs"][2]["train"]["updates"])
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"split": "train", "updates": 1250, "epoch": 4.2, "wall_s": 300.0, "loss_bits": 4.0}\n')
    answer, text = ask(port, **{"If-None-Match": stamp})
    assert answer.status == 200 and answer.headers["ETag"] != stamp
    assert len(json.loads(text)["runs"][2]["train"]["updates"]) == before + 1


def test_the_page_may_ask_its_own_server_and_no_other(port: int) -> None:
    answer, text = ask(port, "/")
    assert answer.status == 200 and text.startswith("<!doctype html>")
    assert "connect-src 'self'" in text
    want = {
        "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
        "Content-Security-Policy": "frame-ancestors 'none'", "Content-Type": "text/html; charset=utf-8",
    }  # fmt: skip
    assert {name: answer.headers[name] for name in want} == want
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil:1", "", "[::2]:80"]
)
def test_a_foreign_name_is_refused(port: int, host: str) -> None:
    """DNS rebinding: a page of evil.example whose name suddenly means 127.0.0.1 still sends its own name."""
    for path in ("/", "/data.json"):
        answer, text = ask(port, path, Host=host)
        assert answer.status == 421 and "runs" not in text


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:80"])
def test_names_of_this_machine_are_taken(port: int, host: str) -> None:
    assert ask(port, Host=host)[0].status == 200


@pytest.mark.parametrize("path", ["/outputs", "/config.yaml", "/../../etc/passwd", "/?", "/data.json/", "/%2e%2e/"])
def test_no_other_address_is_there(port: int, path: str) -> None:
    assert ask(port, path)[0].status == 404


def test_nothing_can_be_sent(port: int) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(port, "/", method)[0].status == 501
    answer, text = ask(port, "/", "HEAD")
    assert (answer.status, text) == (200, "")


def test_it_listens_on_loopback_alone(demo: Path) -> None:
    with watch.serve(demo) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_folder_taken_away_is_said_and_not_the_end(demo: Path, port: int) -> None:
    demo.rename(demo.with_name("gone"))
    answer, text = ask(port)
    assert answer.status == 503 and "no such folder" in text
    demo.with_name("gone").rename(demo)
    assert ask(port)[0].status == 200


def test_ctrl_c_ends_it(demo: Path) -> None:
    command = [sys.executable, "-u", "-m", "lnexp", "dashboard", str(demo), "--watch"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert process.stdout
    line = process.stdout.readline()
    number = int(line.split("127.0.0.1:")[1].split("/")[0])
    assert ask(number)[0].status == 200
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert not (demo / "dashboard.html").exists()


@pytest.mark.parametrize("text", ["x", "-1", "65536", "1e3", ""])
def test_wrong_port(demo: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", str(demo), "--watch", "--port", text]) == 2
    assert "need a whole number from 1 to 65535" in capsys.readouterr().err


def test_taken_port(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = str(other.getsockname()[1])
        assert main(["dashboard", str(demo), "--watch", "--port", taken]) == 2
    assert f"--port {taken}: Address already in use; without --port a free one is taken" in capsys.readouterr().err


def test_port_without_watch(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", str(demo), "--port", "8000"]) == 2
    assert "--port 8000: only with --watch" in capsys.readouterr().err
