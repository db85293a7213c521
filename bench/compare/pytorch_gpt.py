"""The model of docs/examples/char_gpt.cpp in PyTorch."""


def make_gpt(characters=65, width=128, layers=4, heads=4, kv_heads=2):
    """That of docs/examples/char_gpt.cpp."""
    import torch
    from torch import nn
    functional, hidden, size = torch.nn.functional, 8 * width // 3, width // heads

    def rotate(x, cos, sin):  # x: [batch, heads, length, size]
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
            self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * size, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.gate_up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

        def forward(self, x, cos, sin):
            batch, length, _ = x.shape
            q, k, v = (part.view(batch, length, -1, size).transpose(1, 2) for part in
                       self.qkv(self.norm1(x)).split((heads * size, kv_heads * size, kv_heads * size), -1))
            y = functional.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                                        enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * up)

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(characters, width)
            nn.init.normal_(self.embedding.weight, std=0.02)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, characters, bias=False)

        def forward(self, ids):
            positions = torch.arange(ids.shape[1], device=ids.device)
            angles = positions[:, None] * 10000.0 ** (-torch.arange(0, size, 2, device=ids.device) / size)
            cos, sin = angles.cos(), angles.sin()
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x, cos, sin)
            return self.head(self.norm(x))

    return Gpt()
