"""A model folder for a mocker: no weights, a vocabulary in which a token is a byte, a template."""

from __future__ import annotations

import json
from pathlib import Path

SPECIAL = ("<|pad|>", "<|bos|>", "<|eos|>", "<|start|>", "<|end|>")
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{% endif %}"
)
_LONGEST = 8192


def write_model(folder: Path) -> None:
    """Config, tokenizer and template, as plain files."""
    folder.mkdir(parents=True)
    ids = {text: number for number, text in enumerate((*SPECIAL, *_byte_letters()))}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    _write(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "added_tokens": [
                {
                    "id": ids[text],
                    "content": text,
                    "special": True,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                }
                for text in SPECIAL
            ],
            "pre_tokenizer": byte_level,
            "post_processor": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": ids, "merges": []},
        },
    )
    _write(
        folder / "config.json",
        {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "hidden_size": 512,
            "intermediate_size": 1024,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_hidden_layers": 8,
            "head_dim": 64,
            "max_position_embeddings": _LONGEST,
            "vocab_size": len(ids),
            "torch_dtype": "bfloat16",
            "bos_token_id": ids["<|bos|>"],
            "eos_token_id": ids["<|eos|>"],
        },
    )
    _write(
        folder / "generation_config.json",
        {"bos_token_id": ids["<|bos|>"], "eos_token_id": [ids["<|eos|>"], ids["<|end|>"]]},
    )
    names = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}
    _write(folder / "special_tokens_map.json", names)
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": _LONGEST,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
            **names,
        },
    )


def _byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary: printable ones for themselves."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False))
