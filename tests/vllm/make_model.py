"""Run inside of vLLM's environment: write a random Qwen3 of some 100 000 parameters that vLLM can serve.

One token is one byte: the vocabulary is the byte alphabet, nothing is trained and nothing downloaded.
usage: make_model.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch  # type: ignore[import-not-found]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-not-found]
from transformers import (  # type: ignore[import-not-found]
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
THINKING = ["<think>", "</think>"]

# The template opens the reasoning itself, as current reasoning models do.
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
<think>
{% endif -%}
"""


def main(folder: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: number for number, text in enumerate(SPECIAL + THINKING + alphabet)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens(THINKING)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        additional_special_tokens=[SPECIAL[1]],
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(7)
    Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=272,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            pad_token_id=vocabulary[SPECIAL[0]],
            eos_token_id=vocabulary[SPECIAL[2]],
        )
    ).to(torch.bfloat16).save_pretrained(folder)


main(Path(sys.argv[1]))
