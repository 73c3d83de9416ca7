"""BERT's encoder whole: embeddings of words, places and kinds, a mask of what is padding, layers, the pooled token.

Devlin et al., 2018; "base" is 12 layers of 768 with 12 heads and 30,522 words. Weights are random.
"""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    """Attention and a feed-forward net, each normalised after what it adds."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        parts = (self.query, self.key, self.value)
        q, k, v = (part(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + mask
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        x = self.first(x + self.out(mixed))
        return self.second(x + self.down(nn.functional.gelu(self.up(x))))


class Bert(nn.Module):
    """ids, mask and kinds, int64 [N, length], to hidden states [N, length, width] and a pooled one [N, width]."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, words: int = 30522) -> None:
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, width) for n in (words, 512, 2))
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.pool = nn.Linear(width, width)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        x = self.norm(self.words(ids) + self.places(places) + self.kinds(kinds))
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, hidden)
        return x, torch.tanh(self.pool(x[:, 0]))


bert_base = Bert
