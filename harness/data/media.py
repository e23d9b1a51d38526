"""Images, audio and video in rows, as AReno 0.10.0 takes them.

It reads the pictures of a row from `image_base64` or `images_base64`, also where the messages hold image parts; an
agent's requests hold them as data URLs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.data.transcripts import MEDIA_PARTS, is_base64, part_problem

MODALITIES = ("image", "video", "audio")


def has_media(row: Mapping[str, Any]) -> bool:
    """Whether AReno treats the row as one with images, audio or video."""
    if any(row.get(name) is not None for kind in MODALITIES for name in (f"{kind}_base64", f"{kind}s_base64")):
        return True
    return any(part.get("type") in MEDIA_PARTS for part in _parts(row))


def media_problem(row: Mapping[str, Any]) -> str:
    """Why AReno cannot take the row's media, "" where nothing speaks against it. A processor is needed beside."""
    for part in _parts(row):
        if problem := part_problem(part):
            return f"a part of `messages` {problem}"
        if part.get("type") == "image_url" and not isinstance(part.get("image_url"), Mapping):
            return "image_url content must be an object with a url field"
    others = [row.get(name) for kind in ("video", "audio") for name in (f"{kind}_base64", f"{kind}s_base64")]
    kinds = {str(part.get("type")) for part in _parts(row)}
    if any(value is not None for value in others) or any("audio" in kind or "video" in kind for kind in kinds):
        return ""
    images = row.get("images_base64")
    images = row.get("image_base64") if images is None else images
    if images is None:
        return "multimodal row must contain image_base64 or images_base64"
    values = [images] if isinstance(images, (str, Mapping)) else images
    if not isinstance(values, Sequence) or not values:
        return "image_base64 holds no image"
    for value in values:
        text = value.get("$text") if isinstance(value, Mapping) else value
        if not isinstance(text, str):
            return f"image_base64 holds a {type(value).__name__}; it takes base64 text or a data URL"
        if text.startswith(("http://", "https://")):
            return "image_base64 holds a URL, which AReno decodes as base64; fetch the image in the loader"
        if not is_base64(value):
            return "image_base64 holds what base64 cannot decode"
    return ""


def _parts(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    messages = row.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return []
    contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
    return [part for content in contents if isinstance(content, Sequence) and not isinstance(content, str)
            for part in content if isinstance(part, Mapping) and part.get("type") in MEDIA_PARTS]
