"""Two Lightning modules with arguments, which one of them keeps in its checkpoint: saved/kept.ckpt, saved/bare.ckpt."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Layers(L.LightningModule):
    """Linear layers."""

    def __init__(self, width: int = 64, depth: int = 3):
        super().__init__()
        self.first = torch.nn.Linear(8, width)
        self.rest = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        x = self.first(x)
        for layer in self.rest:
            x = torch.relu(layer(x))
        return x

    def training_step(self, batch, index):
        return self(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Bare(Layers):
    """Keeps nothing of what it was made with."""


class Kept(Layers):
    """Keeps all of it."""

    def __init__(self, width: int = 64, depth: int = 3):
        super().__init__(width, depth)
        self.save_hyperparameters()


def train(net, name):
    """Three steps."""
    trainer = L.Trainer(max_steps=3, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(net, DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=4))
    trainer.save_checkpoint(f"saved/{name}.ckpt")


if __name__ == "__main__":
    train(Kept(width=16, depth=2), "kept")
    train(Bare(width=16, depth=2), "bare")
