"""What is a secret: by the name it stands under, in a command, an environment, a config file or a text."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

MIN_GLOBAL_CHARS = 6
"""Shorter values are masked at their own place only: they would be found in half of every log."""
MAX_CONFIG_BYTES = 256 * 1024
MAX_CONFIG_FILES = 20
CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".env")


class Certainty(Enum):
    """How sure a name alone makes us that its value is a secret."""

    NONE = 0
    SHAPE = 1
    """Only if the value looks random: `stop_token`, `sort_key`."""
    LIKELY = 2
    """A lone `token` or `auth`: a secret as a flag or variable, an ordinary word in a log."""
    CERTAIN = 3


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NOT_THE_VALUE = _set(
    "file filename path dir directory folder name names sock socket type count limit size length ttl expiry "
    "expires timeout enabled required provider method mode scheme prefix len policy parallelism"
)
_CERTAIN_WORDS = _set(
    "password passwd passphrase secret secrets credential credentials apikey accesskey secretkey privatekey "
    "authtoken accesstoken hftoken authorization"
)
_CERTAIN_PAIRS = frozenset(
    {
        ("api", "key"),
        ("access", "key"),
        ("private", "key"),
        ("secret", "key"),
        ("signing", "key"),
        ("encryption", "key"),
        ("account", "key"),
        ("license", "key"),
        ("auth", "key"),
        ("auth", "token"),
    }
)
_TOKEN_OWNERS = _set(
    "access api auth oauth bearer refresh session login bot hf hub huggingface face github gh gitlab wandb "
    "slack modelscope ms ngc neptune comet clearml mlflow kaggle pypi npm azure aws gcp service deploy "
    "personal csrf jwt write read secret openai anthropic replicate"
)
_CERTAIN_ENDINGS = ("password", "passwd", "passphrase", "apikey")
"""Words that others are written together with: PGPASSWORD, dbpasswd."""
_PWD_OWNERS = _set("account admin db ftp login mail mongo mysql pg postgres redis root service smtp sql ssh user")
"""Words before `pwd` that make it a password: alone it is the working directory."""
_SWITCHES = _set("use no has is require requires skip with enable disable")
_TOKEN_KINDS = _set(
    "pad eos bos unk sep cls mask stop image img audio video start end special next prev previous first last "
    "per each any input output prompt num new max min chat turn think tool boi eoi decoder fill sub word "
    "byte loss"
)

_BLANK_VALUES = frozenset(
    {"", "none", "null", "nil", "true", "false", "yes", "no", "on", "off", "~", "***", "0", "1"}
)
_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?$")
_ORDINARY_WORDS = _set(
    # Words that a password may be set to carelessly, and that no log, path or artifact can do without.
    "accuracy action adamw adapter address agent algorithm anomaly anonymous artifact artifacts attempt "
    "attempts backend baseline basic bearer best_checkpoint boolean broken cancelled capacity changeme "
    "checkpoint checkpoints command completed compute conda conditional config configs constant content "
    "cosine current database dataset datasets debug decision default delete description device digest "
    "disable disabled double duration enable enabled encoder entrypoint environment epochs error errors "
    "evaluate evaluation events evidence example examples execute executed exists failed finding findings "
    "finite finished float float16 float32 bfloat16 framework global gradient gradients harness header "
    "hidden import index infrastructure integer interval iteration iterations journal kwargs launch launched "
    "launcher layers learning linear loading localhost logging masked master memory message metric metrics "
    "missing model models module modules network norm number object online offline optimizer option options "
    "output outputs params passed passwd password path pending pipeline placeholder policy private process "
    "production project python pytest pytorch random reason reasons record release report reports required "
    "result results reward rewards root runtime sample samples schedule scheduler schema script secret "
    "secrets server session settings severity shared source staging started status string succeeded success "
    "summary tensor tensorboard tensors terminal tested testing tests timeout timestamp token tokenizer "
    "tokens torch trainer training training_command transformers unknown unproven update updates username "
    "utf-8 validate validation value values verdict version warmup warning weights worker workers workspace "
    "writer"
)


def name_certainty(name: str) -> Certainty:
    """Judge a variable, flag or key by its words: `WANDB_API_KEY`, `--hubToken`, `db.password`."""
    words = [word.lower() for word in _WORDS.findall(name[-200:])]
    while words and words[-1].isdigit():
        words.pop()
    if not words or words[-1] in _NOT_THE_VALUE:
        return Certainty.NONE
    pairs = set(pairwise(words))
    if words[0] in _SWITCHES:
        return Certainty.SHAPE
    if _CERTAIN_WORDS.intersection(words) or _CERTAIN_PAIRS & pairs:
        return Certainty.CERTAIN
    if any(word.endswith(_CERTAIN_ENDINGS) for word in words):
        return Certainty.CERTAIN
    if words[-1] == "pw" or (words[-1] == "pwd" and _PWD_OWNERS.intersection(words[-2:-1])):
        return Certainty.CERTAIN
    if words[-1] == "token":
        return _token_certainty(words)
    if "auth" in words:
        return Certainty.LIKELY
    return Certainty.SHAPE if words[-1] == "key" else Certainty.NONE


def _token_certainty(words: Sequence[str]) -> Certainty:
    if len(words) == 1:
        return Certainty.LIKELY
    if words[-2] in _TOKEN_OWNERS:
        return Certainty.CERTAIN
    return Certainty.NONE if words[-2] in _TOKEN_KINDS else Certainty.SHAPE


def looks_random(value: str) -> bool:
    """16 characters or more without a space, with letters and digits: not a word, a number or a path."""
    return (
        len(value) >= 16
        and not re.search(r"[\s<>|(){}\[\]]", value)
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
        and not value.startswith(("/", "./", "~"))
    )


def is_plain(value: str) -> bool:
    """A number, a boolean, nothing at all, or a mask."""
    return value.strip().lower() in _BLANK_VALUES or _NUMBER.match(value.strip()) is not None


def is_secret_at(name: str, value: str, *, least: Certainty = Certainty.LIKELY) -> bool:
    """Whether `value` is to be masked where it stands under `name`."""
    certainty = name_certainty(name)
    if certainty is Certainty.NONE or value.strip().lower() in _BLANK_VALUES:
        return False
    if certainty.value < least.value:
        return looks_random(value)
    return not _is_existing_path(value)


def is_findable(value: str) -> bool:
    """Whether `value` may be masked wherever it occurs without wrecking what is written."""
    if len(value) < MIN_GLOBAL_CHARS or len(set(value)) < 2 or value.lower() in _ORDINARY_WORDS:
        return False
    return not (is_plain(value) and len(value) < 10) and not _is_existing_path(value)


def _is_existing_path(value: str) -> bool:
    if "/" not in value or len(value) > 4096 or "\0" in value or "://" in value:
        return False
    try:
        return Path(value).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


_USERINFO = re.compile(r"://([^\s/@:\"'<>?#]{0,256}):([^\s/@\"'<>]{1,256})@")
_QUERY = re.compile(r"[?&;]([\w.~%-]{1,80})=([^&#\s\"'<>;]{1,4096})")
_KEYWORD = (
    r"password|passwd|passphrase|secrets?|credentials?|authorization"
    r"|(?:api|access|private|secret|signing|encryption|account|license|auth)[_.-]?key|token"
)
NAMED_VALUE = re.compile(
    rf"(?P<name>(?i:(?:{_KEYWORD})[\w-]{{0,24}}))(?:\\?[\"'])?\s{{0,3}}(?:=>|[:=])\s{{0,3}}"
    r"(?:\\?\"(?P<dq>(?:[^\"\\\n]|\\(?!\")[^\n]|\\\"(?![\s,}\]]))*)"
    r"|'(?P<sq>[^'\n]*)|(?P<bare>[^\s,;&\"'<>(){}\[\]\\]+))"
)
"""`name=value`, `name: value` and `"name": "value"` as in a text; the name may begin further left."""
_NAME_BEFORE = re.compile(r"[\w.-]{0,64}$")
_AUTH_SCHEMES = ("basic", "bearer", "token", "digest")
_AUTH_HEADER = re.compile(
    r"(?i:authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:basic|bearer|token|digest)\s{1,3})([^\s\"',]{4,})"
)


def spans_by_name(text: str) -> Iterator[tuple[int, int]]:
    """Where a text names a secret and its value. Linear: no part of a match can be repeated."""
    for match in _AUTH_HEADER.finditer(text):
        yield match.span(1)
    for match in NAMED_VALUE.finditer(text):
        before = _NAME_BEFORE.search(text, max(0, match.start() - 64), match.start())
        name = (before.group() if before else "") + match.group("name")
        group = next(g for g in ("dq", "sq", "bare") if match.group(g) is not None)
        value = match.group(group)
        if is_plain(value) or value.lower() in _AUTH_SCHEMES:
            continue
        if is_secret_at(name, value, least=Certainty.CERTAIN):
            yield match.span(group)
    for match in _QUERY.finditer(text):
        if is_secret_at(match.group(1), match.group(2)):
            yield match.span(2)


def values_in_text(text: str) -> Iterator[str]:
    """Secrets that a text names or holds in its URLs."""
    for start, end in spans_by_name(text):
        yield text[start:end]
        yield unquote(text[start:end])
    for match in _USERINFO.finditer(text):
        yield match.group(2)
        yield unquote(match.group(2))


def values_in_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Secrets among environment variables."""
    for name, value in environ.items():
        if is_secret_at(name, value):
            yield value
        elif "://" in value:
            yield from values_in_text(value)


def secret_argument(words: Sequence[str], index: int) -> int | None:
    """Offset in `words[index]` from which on the word is a secret, None where it holds none by its place."""
    word, flag = words[index], words[index - 1] if index else ""
    if word.startswith("--") or re.fullmatch(r"-[A-Za-z]", word):
        flag = ""
    if flag in ("-H", "--header"):
        header, colon, value = word.partition(":")
        spaces = len(value) - len(value.lstrip())
        return len(header) + 1 + spaces if colon and is_secret_at(header, value) else None
    if flag.startswith("-") and "=" not in flag and len(flag) > 2 and is_secret_at(flag, word):
        return 0
    name, equals, value = word.partition("=")
    if equals and re.fullmatch(r"[-+~\w.@/]{1,200}", name) and is_secret_at(name, value):
        return len(name) + 1
    return None


def values_in_command(words: Sequence[str]) -> Iterator[str]:
    """Secrets among the words of a command, also within a word that is itself a command or a document."""
    for index, word in enumerate(words):
        start = secret_argument(words, index)
        if start is not None:
            value = word[start:]
            yield value
            scheme, _, rest = value.partition(" ")
            if rest and scheme.lower() in _AUTH_SCHEMES:
                yield rest
        yield from values_in_text(word)
        if word.startswith(("{", "[")):
            yield from values_in_document(_parse_config(".json", word))
        if any(c.isspace() for c in word):
            yield from values_in_command(_nested_words(word))


def _nested_words(word: str) -> list[str]:
    try:
        nested = shlex.split(word)
    except ValueError:
        nested = word.split()
    return nested if nested != [word] else []


def named_config_files(words: Iterable[str], workdir: Path) -> tuple[Path, ...]:
    """Existing config files that a command names, as `FILE`, `--flag=FILE` or `key=FILE`."""
    found: dict[Path, None] = {}
    for word in words:
        for part in (word, word.partition("=")[2]):
            name = part.lstrip("@")
            if not name or not (name.lower().endswith(CONFIG_SUFFIXES) or Path(name).name.startswith(".env")):
                continue
            try:
                path = workdir / Path(name).expanduser()
                if path.is_file():
                    found[path] = None
            except (OSError, ValueError, RuntimeError):
                continue
    return tuple(found)[:MAX_CONFIG_FILES]


def values_in_config(path: Path) -> Iterator[str]:
    """Secrets in a config file, at any depth; a file that does not parse, or is large, is read as text."""
    try:
        with path.open("rb") as stream:
            text = stream.read(8 * MAX_CONFIG_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    yield from values_in_text(text)
    if path.name.startswith(".env") or path.suffix == ".env":
        pairs = (line.strip().removeprefix("export ").partition("=") for line in text.splitlines())
        yield from values_in_environment({k.strip(): v.strip().strip("\"'") for k, eq, v in pairs if eq})
    elif len(text) <= MAX_CONFIG_BYTES:
        yield from values_in_document(_parse_config(path.suffix.lower(), text))


def _parse_config(suffix: str, text: str) -> Any:
    try:
        if suffix == ".json":
            return json.loads(text)
        if suffix == ".toml":
            import tomlkit

            return tomlkit.parse(text).unwrap()
        from ruamel.yaml import YAML

        return list(YAML(typ="safe", pure=True).load_all(text))
    except Exception:
        # Whatever a parser trips over, the text pass has run; the trainer reports its own config error.
        return None


def values_in_document(document: Any) -> Iterator[str]:
    """Secrets of a parsed document. Shared nodes (YAML aliases) are visited once."""
    seen: set[tuple[int, str]] = set()
    pending: list[tuple[str, Any]] = [("", document)]
    while pending:
        name, node = pending.pop()
        if isinstance(node, (Mapping, list, tuple)):
            if (id(node), name) in seen:
                continue
            seen.add((id(node), name))
            children = node.items() if isinstance(node, Mapping) else ((name, item) for item in node)
            pending.extend((str(key), child) for key, child in children)
        elif isinstance(node, (str, int)) and not isinstance(node, bool):
            value = str(node)
            if is_secret_at(name, value):
                yield value
            elif isinstance(node, str) and "://" in value:
                yield from values_in_text(value)
