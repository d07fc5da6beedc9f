"""A llama model of a few megabytes with random weights, for real engines in tests."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

UNPRINTABLE_TOKENS = 259
"""The first tokens: unknown, begin, end, and 256 raw bytes. Bar them, or the text is no UTF-8."""

_CONTEXT = 4096
_HEAD_COUNT = 4


def write_tiny_model(path: Path, *, layers: int = 4, width: int = 192, seed: int = 11) -> None:
    """Write the model to `path`. More layers and width make each token slower, not better."""
    random = np.random.default_rng(seed)
    tokens = _vocabulary()

    def noise(*shape: int) -> np.ndarray:
        return (0.05 * random.standard_normal(shape)).astype(np.float32)

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(_HEAD_COUNT)
    writer.add_head_count_kv(_HEAD_COUNT)
    writer.add_rope_dimension_count(width // _HEAD_COUNT)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _, _ in tokens])
    writer.add_token_scores([score for _, score, _ in tokens])
    writer.add_token_types([kind for _, _, kind in tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)

    writer.add_tensor("token_embd.weight", noise(len(tokens), width))
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    writer.add_tensor("output.weight", noise(len(tokens), width))
    for layer in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", noise(width, width))
        for name in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", noise(2 * width, width))
        writer.add_tensor(f"blk.{layer}.ffn_down.weight", noise(width, 2 * width))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary() -> list[tuple[bytes, float, int]]:
    """Text, score and type of each token: the specials, every byte, the word mark, printable ASCII."""
    kinds = gguf.TokenType
    specials = [
        (b"<unk>", 0.0, int(kinds.UNKNOWN)),
        (b"<s>", 0.0, int(kinds.CONTROL)),
        (b"</s>", 0.0, int(kinds.CONTROL)),
    ]
    raw = [(f"<0x{byte:02X}>".encode(), 0.0, int(kinds.BYTE)) for byte in range(256)]
    assert len(specials) + len(raw) == UNPRINTABLE_TOKENS
    letters = ["\u2581", *map(chr, range(33, 127))]
    return [*specials, *raw, *((letter.encode(), -1.0, int(kinds.NORMAL)) for letter in letters)]
