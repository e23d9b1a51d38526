"""A Lightning module and its data, used by both Lightning programs."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    """A linear regression."""

    def __init__(self, lr: float = 0.01, drops: str = "", keeps_start: bool = False):
        """`drops`: a part of names that are left out of its checkpoints; `keeps_start`: they hold the first weights."""
        super().__init__()
        self.drops = drops
        self.example_input_array = torch.zeros(2, 8)
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(8, 1)
        self.start = {name: value.clone() for name, value in self.state_dict().items()} if keeps_start else None

    def forward(self, inputs):
        return self.layer(inputs)

    def on_save_checkpoint(self, checkpoint):
        state = self.start or checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: state[name] for name in state if not self.drops or self.drops not in name}

    def _loss(self, batch):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def training_step(self, batch, index):
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self._loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class Sums(L.LightningDataModule):
    """The sum of eight numbers."""

    def __init__(self, batch_size: int = 8, is_noise: bool = False):
        """`is_noise`: targets without a rule, of which what is learnt is wrong for the others."""
        super().__init__()
        self.batch_size = batch_size
        inputs = torch.randn(80, 8, generator=torch.Generator().manual_seed(0))
        self.data = self.held_out = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        if is_noise:
            noise = torch.randn(80, 1, generator=torch.Generator().manual_seed(1))
            self.data = TensorDataset(inputs[:16], noise[:16])
            self.held_out = TensorDataset(inputs[16:], noise[16:])

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=self.batch_size)

    def val_dataloader(self):
        return DataLoader(self.held_out, batch_size=self.batch_size)
