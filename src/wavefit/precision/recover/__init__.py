"""Winning back what a lower precision loses: a PyTorch module is trained for a short time as it will run.

The module's own fp32 answers are the teacher's (distillation: Hinton, Vinyals and Dean, "Distilling the Knowledge in a
Neural Network", 2015; for quantised nets: Polino, Pascanu and Alistarh, 2018). The forward pass rounds as the lower
precision does, and gradients pass the rounding as if it were not there (Bengio, Leonard and Courville, 2013). Batch
normalisation and dropout stay in eval mode: a short training has no use for new statistics.
"""
