"""Models of transformers and adapters of PEFT, loaded as a user loads them: offline, no custom code."""

# mypy: ignore-errors

import json
import os
import re

from _answer import Broken, NotAttempted, Refused

NEW_TOKENS = 24
PROMPT = "Hello"


def load_transformers(request, answer):
    """The model by its architecture, its keys, its tokenizer, one forward pass, and for language models a sample."""
    model, info = from_directory(request["path"], answer, request)
    compare_keys(info, answer)
    if not any(path.endswith(".safetensors") for path in request["files"]):
        look_at_values(model, answer)
    compare_dtypes(model, request, answer)
    tokenizer = load_tokenizer(request["path"], answer)
    use(model, tokenizer, request, answer)


def load_peft(request, answer):
    """The adapter on its base: every adapter weight finds its place, with the base's width and vocabulary."""
    from peft import PeftConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict

    path = request["path"]
    config = PeftConfig.from_pretrained(path)
    base = base_of(config, request, answer)
    model, _ = from_directory(base, answer, request, use_config_class=config.task_type)
    tokenizer = load_tokenizer(path, answer) if has_tokenizer(path) else load_tokenizer(base, answer)
    weights = load_peft_weights(path, device="cpu")
    fit_vocabulary(model, tokenizer, weights, answer)
    config.inference_mode = True
    model = get_peft_model(model, config)
    widths = width_problems(model, weights)
    if widths:
        answer.names("mismatched", widths)
        raise Broken(f"the adapter does not fit this base: {widths[0]}; is {base} the model it was trained on?")
    result = set_peft_model_state_dict(model, weights)
    answer.fields["tensors"] = len(weights)
    ours = [name for name in result.missing_keys if any(mark in name for mark in ("lora_", "prompt_", "ia3_"))]
    answer.names("missing", ours)
    answer.names("unexpected", result.unexpected_keys)
    if ours or result.unexpected_keys:
        answer.fail(f"{len(ours)} adapter weight(s) are missing, {len(result.unexpected_keys)} fit nowhere in {base}")
    use(model, tokenizer, request, answer)


def base_of(config, request, answer):
    """Directory of the base model: the one given, else the one that the adapter names."""
    named, given = config.base_model_name_or_path, request.get("base")
    places = [given] if given else []
    if named:
        places += [os.path.join(request["workdir"], named), named]  # noqa: PTH118
    for place in places:
        if os.path.isdir(place):  # noqa: PTH112
            if given and named and os.path.basename(os.path.normpath(named)) != os.path.basename(  # noqa: PTH119
                    os.path.normpath(given)):
                answer.note(f"loaded on {given}; the adapter names {named}")
            return place
    cached = cached_base(named)
    if cached:
        return cached
    raise NotAttempted(f"its base model {named!r} is not on this machine; name it with --base DIR")


def cached_base(named):
    """The hub's cache, without the network."""
    try:
        from huggingface_hub import snapshot_download

        return snapshot_download(named, local_files_only=True)
    except Exception:
        return None


def width_problems(model, weights):
    """Adapter tensors whose shape is not that of their place in the base."""
    here = {re.sub(r"\.(default|adapter)(?=\.|$)", "", name): tuple(value.shape)
            for name, value in model.state_dict().items()}
    return [f"{name}: saved {tuple(value.shape)}, the base takes {here[name]}"
            for name, value in weights.items() if name in here and here[name] != tuple(value.shape)]


def fit_vocabulary(model, tokenizer, weights, answer):
    """An adapter that grew the vocabulary brings the embedding, whose rows the base is given."""
    rows = [value.shape[0] for name, value in weights.items()
            if re.search(r"(embed_tokens|wte|word_embeddings)(\.\w+)*\.weight$", name) and "lora" not in name]
    have = model.get_input_embeddings().weight.shape[0]
    if rows and rows[0] != have:
        model.resize_token_embeddings(rows[0])
        answer.note(f"the vocabulary was resized from {have} to {rows[0]}, as the adapter's embedding asks")
    elif tokenizer is not None and len(tokenizer) > have:
        answer.fail(f"the tokenizer has {len(tokenizer)} tokens, the base's embedding only {have} rows")


def from_directory(path, answer, request, use_config_class=None):
    """(model, loading info) by the class that config.json names."""
    import transformers

    with open(os.path.join(path, "config.json"), encoding="utf-8") as stream:  # noqa: PTH118, PTH123
        raw = json.load(stream)
    if raw.get("auto_map"):
        raise Refused(f"{path}: its config.json asks for code of its own (auto_map), which is not run")
    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    model_class = class_of(transformers, config, use_config_class)
    names = os.listdir(path)  # noqa: PTH208
    safe = any(name.endswith(".safetensors") for name in names)
    options = {"local_files_only": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
    options |= {"use_safetensors": True} if safe else {"weights_only": True}
    try:
        return model_class.from_pretrained(path, torch_dtype="auto", **options)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if "weights_only" in text or "Unsupported global" in text or "UnpicklingError" in text:
            from _torch_files import refusal

            raise Refused(refusal(path, text)) from error
        if raw.get("quantization_config"):
            raise NotAttempted(f"its quantized weights need another device or package: {text[:500]}") from error
        raise


def class_of(transformers, config, task):
    """The architecture that was saved, else a causal language model, else the bare model."""
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if found is not None and hasattr(found, "from_pretrained"):
            return found
    if config.architectures:
        raise NotAttempted(f"transformers here has no {config.architectures[0]}")
    return transformers.AutoModelForCausalLM if task == "CAUSAL_LM" else transformers.AutoModel


def look_at_values(model, answer):
    """Values of a format that only a loader reads."""
    from _load_torch import look_at

    for name, tensor in model.state_dict().items():
        look_at(name, tensor, answer)


def compare_keys(info, answer):
    """Keys that were not in the file leave random weights: failed. Unexpected ones are told."""
    info = info if isinstance(info, dict) else vars(info)
    mismatched = [str(item) for item in info.get("mismatched_keys") or ()]
    answer.names("missing", info.get("missing_keys") or ())
    answer.names("unexpected", info.get("unexpected_keys") or ())
    answer.names("mismatched", mismatched)
    if answer.fields["missing"]:
        answer.fail(f"{answer.fields['missing'][0]} is not in the checkpoint: it would be newly initialised")
    if mismatched:
        answer.fail(f"another shape than the config says: {mismatched[0]}")
    for error in info.get("error_msgs") or ():
        answer.fail(error)


def compare_dtypes(model, request, answer):
    """Types that changed between the file and the model."""
    names = {"torch." + long: short for long, short in (
        ("float32", "F32"), ("float16", "F16"), ("bfloat16", "BF16"), ("float64", "F64"))}
    state = model.state_dict()
    answer.fields["tensors"] = len(state)
    saved = request.get("dtypes") or {}
    answer.names("dtype_changes", [
        f"{name}: {saved[name]} -> {names[str(value.dtype)]}" for name, value in state.items()
        if name in saved and str(value.dtype) in names and names[str(value.dtype)] != saved[name]])


def has_tokenizer(path):
    """Whether the directory holds one."""
    files = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    return any(os.path.exists(os.path.join(path, name)) for name in files)  # noqa: PTH110, PTH118


def load_tokenizer(path, answer):
    """The tokenizer beside the weights, and its chat template on one message; None where none was saved."""
    if not has_tokenizer(path):
        answer.note("no tokenizer beside the weights")
        return None
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        answer.fail(f"the tokenizer beside the weights does not load: {error}")
        return None
    if getattr(tokenizer, "chat_template", None):
        try:
            tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], tokenize=False,
                                          add_generation_prompt=True)
            answer.note("the chat template takes a user's message")
        except Exception as error:
            answer.note(f"the chat template does not take a user's message: {error}")
    return tokenizer


def use(model, tokenizer, request, answer):
    """One forward pass, and a generation where the model can."""
    import torch

    model.eval()
    rows = getattr(getattr(model, "config", None), "vocab_size", None)
    if tokenizer is not None and rows and len(tokenizer) > rows:
        answer.note(f"the tokenizer has {len(tokenizer)} tokens, the config says {rows}")
    try:
        inputs = inputs_of(model, tokenizer, request)
        with torch.inference_mode():
            output = model(**inputs)
        values = output.logits if getattr(output, "logits", None) is not None else output[0]
    except Exception as error:
        # What this architecture takes is not known here; that is no fault of the checkpoint.
        answer.note(f"no forward pass was made: {type(error).__name__}: {error}")
        return
    answer.fields["forward_ok"] = bool(torch.isfinite(values.float()).all())
    if not answer.fields["forward_ok"]:
        answer.fields["error_kind"] = "forward"
        answer.fail("a forward pass gives values that are not finite")
    elif tokenizer is not None and hasattr(model, "can_generate") and model.can_generate():
        try:
            generate(model, tokenizer, request, answer)
        except Exception as error:
            answer.note(f"no text was generated: {type(error).__name__}: {error}")


def inputs_of(model, tokenizer, request):
    """A short prompt, else the first token ids, else what the model calls its dummy inputs."""
    import torch

    if getattr(model.config, "is_encoder_decoder", False):
        return dict(model.dummy_inputs)
    if tokenizer is not None:
        encoded = tokenizer(prompts_of(request)[0], return_tensors="pt")
        if encoded["input_ids"].numel():
            return {key: encoded[key] for key in ("input_ids", "attention_mask") if key in encoded}
    if getattr(model, "main_input_name", "input_ids") == "input_ids":
        rows = getattr(model.config, "vocab_size", None) or 2
        return {"input_ids": torch.arange(min(8, rows)).unsqueeze(0)}
    return dict(model.dummy_inputs)


def prompts_of(request):
    """Prompts that the run used, else one of our own."""
    return request.get("prompts") or [PROMPT]


def generate(model, tokenizer, request, answer):
    """Greedy, short; the text is for a judge of samples."""
    import torch

    for prompt in prompts_of(request)[:3]:
        encoded = tokenizer(prompt, return_tensors="pt")
        ids = encoded["input_ids"]
        with torch.inference_mode():
            out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                 max_new_tokens=NEW_TOKENS, pad_token_id=tokenizer.pad_token_id or 0)
        text = tokenizer.decode(out[0][ids.shape[1]:], skip_special_tokens=True)
        answer.fields["samples"].append({"prompt": prompt[:2000], "completion": text[:2000]})
