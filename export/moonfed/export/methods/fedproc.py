"""FedProc, in the sense in which FedSSC uses the name: contrast with prototypes that are averaged over all devices.

    loss = CE(F_w(x), y) + mu_glob(t) · l_glob

It is FedSSC with mu_moon 0 and every device's class means in a prototype: no frozen encoders, no previous models.

Source: Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning; the idea is of Mu, Shen, Cheng,
Geng, Fu, Zhang, Zhang, FedProc: Prototypical Contrastive Federated Learning on Non-IID Data (2021).
"""

from __future__ import annotations

from dataclasses import dataclass

from moonfed.export.methods.fedssc import PrototypeMethod


@dataclass(frozen=True, slots=True, kw_only=True)
class FedProc(PrototypeMethod):
    """The settings of all methods with prototypes."""
