"""f_Q, f_K and f_V as they are learned: losses, the online step, the nightly fit. With models/ the only room for torch.

What the daemon applies is `recall.adapter.Adapter`, in numpy; here are its gradients. `pairs` and `settings` know no
torch, so the daemon may make lessons without it.
"""
