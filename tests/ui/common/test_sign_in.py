"""Sign-in for real: a small identity provider, two people, one server; each sees their own runs."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from dpviz.runs import Store
from tests.browser import ROOT, start_server, stop_server
from tests.ui.train.test_train_page import WAIT, fill_in_quick_logistic, heading, launch


class Provider(ThreadingHTTPServer):
    """Signs in whoever `who` names, and asks nobody for a password."""

    def __init__(self) -> None:
        from joserfc.jwk import RSAKey

        super().__init__(("127.0.0.1", 0), Handler)
        self.key = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
        self.who, self.nonces = "", {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def token(self, code: str) -> str:
        from joserfc import jwt

        who, nonce = self.nonces[code]
        now = int(time.time())
        claims = {"iss": self.url, "aud": "dpviz", "sub": who, "email": f"{who}@example.org", "nonce": nonce}
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims | {"iat": now, "exp": now + 600}, self.key)


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def log_message(self, *_words: object) -> None:
        pass

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        asked = {name: values[0] for name, values in urllib.parse.parse_qs(query).items()}
        if path == "/authorize":
            code = f"code-{len(self.server.nonces)}"
            self.server.nonces[code] = (self.server.who, asked.get("nonce", ""))
            back = urllib.parse.urlencode({"code": code, "state": asked["state"]})
            self.send_response(302)
            self.send_header("Location", f"{asked['redirect_uri']}?{back}")
            self.end_headers()
        elif path == "/keys":
            self.answer({"keys": [self.server.key.as_dict(private=False)]})
        else:
            url = self.server.url
            ends = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            known = {"issuer": url, "id_token_signing_alg_values_supported": ["RS256"]}
            self.answer(known | {name: url + end for name, end in ends.items()})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"])).decode()
        code = urllib.parse.parse_qs(content)["code"][0]
        self.answer({"access_token": "a", "token_type": "Bearer", "id_token": self.server.token(code)})

    def answer(self, data: dict) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())


@pytest.fixture
def provider():
    with Provider() as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield http
        http.shutdown()
        thread.join()


@pytest.fixture
def server(provider, tmp_path):
    (tmp_path / "home" / ".streamlit").mkdir(parents=True)
    (tmp_path / "home" / ".streamlit" / "secrets.toml").write_text(
        "[auth]\n"
        'redirect_uri = "http://127.0.0.1:{port}/oauth2callback"\n'
        'cookie_secret = "a secret of this test alone"\n'
        'client_id = "dpviz"\n'
        'client_secret = "also a secret"\n'
        f'server_metadata_url = "{provider.url}/.well-known/openid-configuration"\n'
    )
    env = {"HOME": str(tmp_path / "home"), "DPVIZ_RUNS": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"}
    process, url = start_server(ROOT / "app.py", env, tmp_path / "log.txt")
    yield url
    stop_server(process)


def sign_in(page, who: str) -> None:
    expect(page.get_by_text("Please sign in")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text(f"Signed in as {who}@example.org")).to_have_count(1, timeout=WAIT)


def test_two_people_sign_in_and_each_sees_their_own_runs(server, provider, new_page, tmp_path):
    provider.who = "ann"
    ann = new_page(f"{server}/train")
    sign_in(ann, "ann")
    ann.get_by_test_id("stTopNavLink").filter(has_text="Train").click()
    fill_in_quick_logistic(ann)
    launch(ann, "Of Ann")
    provider.who = "bob"
    bob = new_page(server)
    sign_in(bob, "bob")
    bob.get_by_test_id("stTopNavLink").filter(has_text="Train").click()
    expect(bob.get_by_text("No runs yet")).to_be_visible(timeout=WAIT)
    expect(bob.get_by_text("Of Ann")).to_have_count(0)
    expect(heading(ann, "Of Ann")).to_contain_text("done", timeout=WAIT)
    (run,) = Store(tmp_path / "runs").list().runs
    assert len(run.owner) == 32
    assert "example.org" not in "".join(file.read_text() for file in (tmp_path / "runs").rglob("*.json"))
