"""What NCCL takes, on two GPUs, for the bytes that one of four expert-parallel ranks sends and receives (exchange_bench).

    NCCL_NVLS_ENABLE=0 python3 exchange_nccl.py

Rows to every rank (all-gather) and sums of all of them back (reduce-scatter), three other ranks' worth; and the exact
rows of a dispatch and a combine (all-to-all). Medians of CUDA events, sustained, in ms.
"""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TOKENS, CHANNELS, REMOTE_RANKS, OTHERS = 4096, 5120, 2.481, 3


def median_ms(run, repeats=40):
    for _ in range(10):
        run()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def work(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    rows = TOKENS * OTHERS
    codes = torch.randint(0, 256, (rows, CHANNELS), dtype=torch.uint8, device="cuda")
    gathered = torch.empty((2 * rows, CHANNELS), dtype=torch.uint8, device="cuda")
    sums = torch.randn((2 * rows, CHANNELS), device="cuda").bfloat16()
    own = torch.empty((rows, CHANNELS), dtype=torch.bfloat16, device="cuda")
    sent = int(TOKENS * REMOTE_RANKS)
    split = [0, sent] if rank == 0 else [sent, 0]
    to8, from8 = codes[:sent].contiguous(), torch.empty((sent, CHANNELS), dtype=torch.uint8, device="cuda")
    to16, from16 = sums[:sent].contiguous(), torch.empty((sent, CHANNELS), dtype=torch.bfloat16, device="cuda")
    runs = {
        "all-gather, fp8, 3 others": lambda: dist.all_gather_into_tensor(gathered, codes),
        "reduce-scatter, bf16, 3 others": lambda: dist.reduce_scatter_tensor(own, sums),
        "all-to-all, fp8, exact rows": lambda: dist.all_to_all_single(from8, to8, split, split),
        "all-to-all, bf16, exact rows": lambda: dist.all_to_all_single(from16, to16, split, split),
    }
    for name, run in runs.items():
        ms = median_ms(run)
        if rank == 0:
            print(f"{name},{ms:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    print("# torch", torch.__version__, "NCCL", ".".join(map(str, torch.cuda.nccl.version())), flush=True)
    mp.spawn(work, nprocs=2)
