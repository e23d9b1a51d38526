"""No secret reaches an artifact, wherever it was planted; what only looks like one stays."""

from __future__ import annotations

import json
import random
import shlex
import string
import sys
from pathlib import Path

from .conftest import TOY, Project

ENVIRONMENT_NAMES = (
    "HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "MODELSCOPE_API_TOKEN", "DB_PASSWORD",
    "OPENAI_API_KEY", "GITHUB_TOKEN", "MY_PRIVATE_KEY", "SERVICE_CREDENTIAL", "CLIENT_SECRET", "NPM_AUTH_TOKEN",
    "PGPASSWORD", "SLACK_TOKEN", "AZURE_ACCESS_KEY",
)
FLAGS = (
    "--hub-token", "--api-key", "--password", "--secret", "--access-token", "--wandb-api-key", "--auth-token",
    "--hf_token", "--db-password", "--client-secret", "--private-key", "--credential", "--api_key", "--passwd",
    "--aws-secret-access-key",
)
CONFIG_KEYS = (
    "api_key", "password", "hf_token", "secret", "access_token", "wandb_api_key", "client_secret", "auth_token",
    "private_key", "db_password",
)


def secret(draw: random.Random) -> str:
    """16 to 24 characters, with some that shells and JSON must quote."""
    return "".join(draw.choice(string.ascii_letters + string.digits + "+/$%&\"'é") for _ in range(draw.randint(16, 24)))


def spellings(value: str) -> set[str]:
    """As a shell, JSON and Python show it."""
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}


def test_fifty_planted_secrets_reach_no_artifact(project: Project, monkeypatch: object) -> None:
    """Secrets of the environment, of flags, of config files, and what the trainer prints of them: none is found."""
    draw = random.Random(7)
    planted = {f"environment {name}": secret(draw) for name in ENVIRONMENT_NAMES}
    planted |= {f"flag {flag}": secret(draw) for flag in FLAGS}
    planted |= {f"config {key}": secret(draw) for key in CONFIG_KEYS}
    tokens = ["hf_" + "a1B2" * 9, "ghp_" + "Zx9y" * 9, "sk-" + "q7W8" * 10, "AKIA" + "IOSF" * 4,
              "xoxb-" + "1234567890-abcdefghij"]
    planted |= {f"log {token[:5]}": token for token in tokens}
    planted |= {"url": "hunter2hunter2", "short flag": "pw1", "log key": "s3cr3t-in-the-log",
                "bearer": "abcDEF123456ghiJKL", "assignment": "assigned-value-42"}
    assert len(planted) >= 50
    config = project.path / "config.yaml"
    config.write_text(json.dumps({"model": {"num_memory_tokens": 16},
                                  "login": {key: planted[f"config {key}"] for key in CONFIG_KEYS}}))
    script = project.path / "train.py"
    script.write_text(
        "import json, os, runpy, sys\n"
        f"names = {ENVIRONMENT_NAMES!r}\n"
        "for name in names: print('seen', os.environ[name], flush=True)\n"
        "print(sys.argv)\n"
        f"print(json.load(open('config.yaml')))\n"
        f"for token in {tokens!r}: print('using', token)\n"
        "print('api_key=' + 's3cr3t-in-the-log'); print('Authorization: Bearer abcDEF123456ghiJKL')\n"
        "print('num_memory_tokens=16 max_new_tokens=512 tokens_per_s=1234.5')\n"
        "os.makedirs('events/tags', exist_ok=True)\n"
        "row = {'step': 1, 'tag_' + os.environ['HF_TOKEN']: 1.0}\n"
        "open('events/tags/metrics.jsonl', 'w').write(json.dumps(row) + '\\n')\n"
        f"sys.argv = ['toy', '--max-steps', '5', '--log-dir', 'events', '--save-dir', 'saved']\n"
        f"runpy.run_path({str(TOY)!r}, run_name='__main__')\n")
    words = [f"WANDB_PASSWORD={planted['assignment']}", sys.executable, "train.py", "--config", "config.yaml",
             "--num_memory_tokens=16", "--max-steps", "5", "--url",
             f"https://user:{planted['url']}@example.com/x", "--token", planted["short flag"]]
    for flag in FLAGS:
        words += [flag, planted[f"flag {flag}"]] if draw.random() < 0.5 else [f"{flag}={planted[f'flag {flag}']}"]
    environment = {name: planted[f"environment {name}"] for name in ENVIRONMENT_NAMES}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)  # type: ignore[attr-defined]
    done = project.run("--train-cmd", shlex.join(words), "--metrics-dir", "events", "--checkpoint-dir", "saved")
    assert project.report()["decision"] == "GO", done.stdout
    texts = {str(path.relative_to(project.out_dir)): path.read_bytes()
             for path in project.out_dir.rglob("*") if path.is_file()}
    texts["terminal"] = done.stdout.encode()
    found = [(name, place) for name, value in planted.items() for place, text in texts.items()
             for form in spellings(value) if len(form) >= 6 and form.encode() in text]
    assert found == []
    log = texts["train.log"].decode()
    assert "num_memory_tokens=16 max_new_tokens=512 tokens_per_s=1234.5" in log
    assert "--num_memory_tokens=16" in texts["run-command.txt"].decode()
    assert "'--token', 'pw1'" not in texts["run-command.txt"].decode()
    assert "pw1" not in texts["run-command.txt"].decode()


def test_a_run_without_secrets_is_logged_byte_for_byte(project: Project) -> None:
    """Carriage returns, invalid UTF-8 and NUL reach train.log as they came."""
    script = project.path / "odd.py"
    noise = bytes(range(256)) + b"\r 10%|#  \r 20%|## \r\n\xff\xfe\x00 token_id=5\n"
    script.write_text(f"import sys\nsys.stdout.buffer.write({noise!r})\n")
    project.run("--train-cmd", f"{sys.executable} odd.py", "--max-steps", "1")
    assert (Path(project.out_dir) / "train.log").read_bytes() == noise
