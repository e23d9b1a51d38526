"""Secrets go, everything else stays."""

from __future__ import annotations

import base64
import json
import shlex
import time
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.record.redaction import MASK, Redactor
from harness.record.secret_finder import Certainty, name_certainty

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "\n".join(["MIIEpAIBAAKCAQEA" + "x1Y2" * 12] * 5)
    + "\nq8w=\n-----END RSA PRIVATE KEY-----"
)
FORMATS = [
    "hf_abcdefghijKLMNOPqrstuv0123",
    "sk-proj-abc123DEF456ghi789jkl",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_11ABCDEFG0abcdefghijkl_mnop",
    "AKIAIOSFODNN7EXAMPLE",
    "glpat-abcDEF123456ghi789",
    "xoxb-1234567890-abcdef",
    JWT,
    PEM,
]
INNOCENT = [
    "num_memory_tokens=16",
    "max_new_tokens: 128",
    "--max-prompt-tokens 128",
    "tokens_per_s=1234.5",
    "token: the",
    "pad_token=<pad>",
    "eos_token='</s>'",
    "bos_token: <s>",
    '"pad_token": "<|endoftext|>"',
    "models/tokenizer/tokenizer.json",
    '"author": "someone"',
    "authentic: very",
    "author=me",
    "password=None",
    "api_key: null",
    "use_auth_token=True",
    "secret=1",
    "task-sk-learn-classification-of-things",
    "the Bearer token was refused",
    "http://localhost:6006/#scalars",
    "git@github.com:a/b.git",
    "ssh://git@github.com/a/b",
    "99 steps",
    "HF_TOKEN is not set",
    "sort_key=length",
    'token = tokenizer.decode("abc")',
    "\ud800 lone surrogate",
]


def test_fifty_planted_secrets_leave_no_trace(tmp_path: Path) -> None:
    """50 secrets in command, environment, config and log are in none of the outputs."""
    secrets = [f"plant{i:02d}-S3cr3t/{'+&= é$'[i % 6]}x" for i in range(50)]
    names = [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "MY_SECRET",
        "GIT_CREDENTIALS",
        "X_AUTH",
        "TOKEN",
        "PASSWD",
        "SSH_PRIVATE_KEY",
    ]
    environ = {
        f"{name}_{i}" if i else name: secrets[i * 10 + k] for i in range(2) for k, name in enumerate(names)
    }
    command = [
        "env",
        f"API_KEY={secrets[20]}",
        "python",
        "train.py",
        "--hub-token",
        secrets[21],
        f"--api-key={secrets[22]}",
        f"db.password={secrets[23]}",
        "-H",
        f"Authorization: Bearer {secrets[24]}",
        "--password",
        secrets[25],
        f"--url=https://me:{quote(secrets[26], safe='')}@h/x",
        f"--u2=https://h/?token={quote(secrets[27], safe='')}",
        f"+logger.api_key={secrets[28]}",
        json.dumps({"deep": [{"secret": secrets[29]}]}),
        "sh",
        "-c",
        f"export HF_TOKEN={shlex.quote(secrets[30])}; python x.py",
        f"--wandb_api_key={secrets[31]}",
        "--hf_token",
        secrets[32],
        f"--secret={secrets[33]}",
        "--access-token",
        secrets[34],
    ]
    (tmp_path / "a.yaml").write_text(
        json.dumps(
            {
                "hub": {"token": secrets[35], "x": [{"password": secrets[36]}]},
                "l": {"secrets": [secrets[37], secrets[38]]},
                "api_key": secrets[39],
            }
        )
    )
    (tmp_path / "b.json").write_text(
        json.dumps(
            {
                "hub_token": secrets[40],
                "a": {"b": {"client_secret": secrets[41]}},
                "apiKey": secrets[42],
                "passwd": secrets[43],
                "auth": secrets[44],
            }
        )
    )
    (tmp_path / "c.toml").write_text(
        f"[hub]\ntoken = {json.dumps(secrets[45], ensure_ascii=False)}\npassword = '{secrets[46]}'\n",
        encoding="utf-8",
    )
    (tmp_path / ".env").write_text(
        f"export HF_TOKEN='{secrets[47]}'\nA_SECRET={secrets[48]}\n#x\nPASSWORD=\"{secrets[49]}\"\n",
        encoding="utf-8",
    )
    redactor = Redactor.from_run(
        command, environ, [tmp_path / n for n in ("a.yaml", "b.json", "c.toml", ".env")]
    )
    log = "\n".join(f"got {s} {json.dumps(s)} {quote(s, safe='')} {shlex.quote(s)} {s!r}" for s in secrets)
    encoded = " ".join(
        base64.b64encode(b"u:" * n + s.encode() + b"zz").decode() for s in secrets for n in range(3)
    )
    stream = redactor.stream()
    outputs = [
        redactor.text(log),
        json.dumps(redactor.json({"a": [{"b": log}], log: 1}), ensure_ascii=False),
        " ".join(redactor.argv(command)),
        str(redactor.environment(environ)),
        (stream.feed(log.encode()) + stream.flush()).decode(),
        redactor.text(encoded),
    ]
    for secret in secrets:
        forms = {
            secret,
            json.dumps(secret)[1:-1],
            quote(secret, safe=""),
            base64.b64encode(secret.encode()).decode()[:-4],
        }
        assert not [form for form in forms for output in outputs if form in output], secret


@pytest.mark.parametrize("secret", FORMATS)
def test_unambiguous_format_is_masked_unknown(secret: str) -> None:
    """A token that tells itself needs no other source."""
    assert Redactor().text(f"x = {secret}\nnext line") == f"x = {MASK}\nnext line"


@pytest.mark.parametrize("text", INNOCENT)
def test_innocent_text_stays(text: str) -> None:
    """What only resembles a secret is kept byte for byte, in texts and in streams."""
    redactor = Redactor.from_run(
        ["train", "--x"], {"TOKEN": "1", "PASSWORD": "true", "API_KEY": "training", "AUTH": "no"}
    )
    stream = redactor.stream()
    data = text.encode("utf-8", "surrogatepass")
    assert (redactor.text(text), stream.feed(data) + stream.flush()) == (text, data)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("api_key=abc123", "api_key=***"),
        ("password: hunter2", "password: ***"),
        ("hf_token = 'x y'", "hf_token = '***'"),
        ('{"wandb_api_key": "k", "lr": 1}', '{"wandb_api_key": "***", "lr": 1}'),
        ("access_token=a,lr=1", "access_token=***,lr=1"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("Bearer abcdef123456", "Bearer ***"),
        ("postgres://me:pw@db/x", "postgres://me:***@db/x"),
        ("https://h/p?a=1&token=zz&b=2", "https://h/p?a=1&token=***&b=2"),
        ('"{\\"api_key\\": \\"abc\\"}"', '"{\\"api_key\\": \\"***\\"}"'),
        ("--db.password=x", "--db.password=***"),
    ],
)
def test_named_value_is_masked_in_place(text: str, masked: str) -> None:
    """The value goes, the name and everything around it stay."""
    assert Redactor().text(text) == masked


def test_short_secret_is_masked_only_at_its_place() -> None:
    """A five-character token does not blot out a log."""
    words = ["python", "t.py", "--hub-token", "train", "--api-key=abc", "train.py", "TOKEN=x1"]
    redactor = Redactor.from_run(words, {"HF_TOKEN": "loss"})
    assert redactor.argv(words) == [
        "python",
        "t.py",
        "--hub-token",
        MASK,
        "--api-key=***",
        "train.py",
        "TOKEN=***",
    ]
    assert redactor.text("train loss abc") == "train loss abc"
    assert redactor.environment({"HF_TOKEN": "loss", "HOME": "/h"}) == {"HF_TOKEN": MASK, "HOME": "/h"}


def test_existing_path_under_a_secret_name_stays(tmp_path: Path) -> None:
    """A credentials variable that names a file is no secret, and neither are ..._FILE, ..._PATH, ..._SOCK."""
    environ = {
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path),
        "TOKEN_FILE": "/run/secrets/x",
        "SSH_AUTH_SOCK": "/tmp/agent.77",
    }
    redactor = Redactor.from_run([], environ)
    assert (redactor.values, redactor.environment(environ)) == ((), environ)


def test_json_masks_by_key_and_keeps_types() -> None:
    """Secret keys mask strings; numbers, None and lists keep their shape."""
    value = {"password": "a b", "n": 1, "token": "the", "secrets": ["x", 2, None], "max_tokens": 5}
    assert Redactor().json(value) == {
        "password": MASK,
        "n": 1,
        "token": "the",
        "secrets": [MASK, 2, None],
        "max_tokens": 5,
    }


def test_yaml_alias_bomb_and_broken_config_are_survived(tmp_path: Path) -> None:
    """Shared nodes are visited once, and a file that does not parse is still read as text."""
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    (tmp_path / "broken.yaml").write_text("a: [\napi_key: planted-secret-7\n")
    redactor = Redactor.from_run(
        [], {}, [tmp_path / "bomb.yaml", tmp_path / "broken.yaml", tmp_path / "none.yaml"]
    )
    assert redactor.values == ("planted-secret-7",)


KNOWN = [
    "s3cr3t-planted-07",
    "aabaabaab",
    "p\u00e4ss w\u00f6rd!",
    "line1-of-secret-value\nline2-of-secret-value",
    "x" * 40 + "-1" * 3000,
]
REDACTOR = Redactor(KNOWN)


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def _streamed(redactor: Redactor, chunks: list[bytes]) -> bytes:
    stream = redactor.stream()
    return b"".join([*(stream.feed(chunk) for chunk in chunks), stream.flush()])


PARTS = st.lists(
    st.one_of(
        st.sampled_from([s.encode() for s in [*KNOWN, *FORMATS]]),
        st.sampled_from([s[:9].encode() for s in [*KNOWN, *FORMATS]]),
        st.sampled_from(
            [
                b"\n",
                b"\r",
                b" ",
                b"a",
                b"aab",
                b"Bearer abc12345",
                b"://u:pw@",
                b"-----BEGIN ",
                b"\xff\x00",
                b".",
            ]
        ),
        st.binary(max_size=6),
    ),
    max_size=8,
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(PARTS, st.lists(st.integers(0, 400), max_size=12))
@example(b"aabaabaabaabaabaab", [4, 9, 12])
def test_stream_is_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    """No known value survives, and cutting changes nothing."""
    masked = _streamed(REDACTOR, _cut(data, cuts))
    assert not [value for value in KNOWN if value.encode() in masked]
    assert masked == _streamed(REDACTOR, [data])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_stream_without_secrets_is_unchanged(chunks: list[bytes]) -> None:
    """Every byte that is no secret is kept: NUL, carriage return, invalid UTF-8."""
    assert _streamed(Redactor(["s3cr3t-planted-07"]), chunks) == b"".join(chunks)


@given(st.text(max_size=60))
def test_text_with_a_known_value_loses_only_that(text: str) -> None:
    """A text around a known value is what it was."""
    secret = "Zq9-planted-Zq9"
    assert Redactor([secret]).text(
        f"{text}\n{secret}\n{text}"
    ) == f"{Redactor([secret]).text(text)}\n{MASK}\n" + Redactor([secret]).text(text)


def test_bar_without_a_line_end_comes_through_at_once() -> None:
    """A progress bar that redraws is not held back."""
    stream = REDACTOR.stream()
    assert stream.feed(b"\r 12% 99 it/s]") == b"\r 12% 99 it/s]"


@pytest.mark.parametrize(
    "line",
    [
        b"ab" * 5_000_000,
        b"eyJ" * 1_000_000,
        b"sk-1" * 1_000_000,
        b"://u:" * 500_000,
        b"-----BEGIN RSA PRIVATE KEY-----" * 200_000,
        b"aab" * 300_000,
        b"Bearer " * 300_000,
    ],
)
def test_long_line_is_linear(line: bytes) -> None:
    """A line of megabytes, hostile to the formats, takes seconds at most and is not kept in memory."""
    stream, started = REDACTOR.stream(), time.process_time()
    for start in range(0, len(line), 65536):
        stream.feed(line[start : start + 65536])
    assert time.process_time() - started < 60
    assert len(stream._held) <= 20_000


@pytest.mark.parametrize(
    ("name", "is_certain"),
    [("--pw", True), ("DB_PW", True), ("passphrase", True), ("MYSQL_PWD", True), ("db-pwd", True), ("PWD", False),
     ("OLDPWD", False), ("--pwd", False), ("run_pwd", False), ("pw_channels", False), ("--pw-file", False)],
)
def test_short_names_of_passwords(name: str, is_certain: bool) -> None:
    """`pwd` is the working directory unless it is somebody's."""
    assert (name_certainty(name) is Certainty.CERTAIN) is is_certain
