"""Muon for matrices, Adam for the rest. No host synchronisation, so that a whole training step fits in a CUDA graph."""
import torch


def orthogonalise(g):
    """Newton-Schulz iteration of Muon on a stack of matrices [M,n,k], n <= k."""
    x = g.to(torch.bfloat16) if g.is_cuda else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.to(g.dtype)


class Muon:
    """Parameters of one shape are updated as one stack: 13 layers make ten batched products, not hundreds of small ones."""

    def __init__(self, params, lr, momentum=0.95, decay=0.05):
        self.lr, self.momentum, self.decay, self.groups = lr, momentum, decay, []
        shapes = {}
        for p in params:
            shapes.setdefault(tuple(p.shape[-2:]), []).append(p)
        for (n, k), ps in shapes.items():
            buf = torch.zeros(sum(p.numel() // (n * k) for p in ps), n, k, device=ps[0].device)
            self.groups.append((ps, buf, max(1.0, n / k) ** 0.5))

    @torch.no_grad()
    def step(self, factor):
        """factor: tensor, the schedule's share of the learning rate"""
        for ps, buf, gain in self.groups:
            n, k = buf.shape[-2:]
            g = torch.cat([p.grad.reshape(-1, n, k) for p in ps])
            buf.lerp_(g, 1 - self.momentum)
            g = g.lerp(buf, self.momentum)
            u = orthogonalise(g.transpose(-1, -2)).transpose(-1, -2) if n > k else orthogonalise(g)
            parts = torch.split(u * (factor * (self.lr * gain)), [p.numel() // (n * k) for p in ps])
            torch._foreach_mul_(ps, 1 - factor * (self.lr * self.decay))
            torch._foreach_sub_(ps, [u.reshape(p.shape) for u, p in zip(parts, ps)])

    def reset(self):
        for _, buf, _ in self.groups:
            buf.zero_()


class Adam:
    def __init__(self, groups, betas=(0.9, 0.95), eps=1e-10):
        """groups: [(params, lr)]"""
        self.betas, self.eps, self.groups = betas, eps, []
        for ps, lr in groups:
            if ps:
                z = lambda: [torch.zeros_like(p) for p in ps]
                self.groups.append((ps, lr, z(), z(), torch.zeros((), device=ps[0].device)))

    @torch.no_grad()
    def step(self, factor):
        b1, b2 = self.betas
        for ps, lr, m, v, t in self.groups:
            t.add_(1)
            gs = [p.grad for p in ps]
            torch._foreach_lerp_(m, gs, 1 - b1)
            torch._foreach_mul_(v, b2)
            torch._foreach_addcmul_(v, gs, gs, 1 - b2)
            d = torch._foreach_sqrt(v)
            torch._foreach_div_(d, torch.sqrt(1 - b2 ** t))
            torch._foreach_add_(d, self.eps)
            u = torch._foreach_div(m, d)
            torch._foreach_mul_(u, factor * lr / (1 - b1 ** t))
            torch._foreach_sub_(ps, u)

    def reset(self):
        for _, _, m, v, t in self.groups:
            torch._foreach_zero_(m)
            torch._foreach_zero_(v)
            t.zero_()
