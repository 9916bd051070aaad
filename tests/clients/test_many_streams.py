"""2,000 streams at once: none fails, memory stays bounded, and with 10% of clients gone at random all pools come back."""

import asyncio
import json
import random
import resource

import pytest

from conftest import Server

STREAMS, TOKENS = 2000, 8


async def one(port, number, drop):
    """True for a complete stream; False for one that this client dropped."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"prompt": f"The number {number}", "max_tokens": TOKENS, "ignore_eos": True, "stream": True, "seed": number}).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    text = b""
    try:
        while not text.endswith(b"0\r\n\r\n"):
            piece = await asyncio.wait_for(reader.read(65536), 500)
            assert piece, text
            text += piece
            if drop and random.random() < 0.3:
                return False
        assert text.startswith(b"HTTP/1.1 200") and b"data: [DONE]" in text, text
        return True
    finally:
        writer.transport.abort() if drop else writer.close()


@pytest.mark.parametrize("share", [0, 0.1])
def test_many_streams(share):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    server = Server("--max-num-seqs", "64", "--max-waiting", "4096")
    try:
        before = server.memory_kib()
        free = server.metric("hadal_cache_free_tokens")
        peak = 0

        async def watch():
            nonlocal peak
            while True:
                peak = max(peak, server.memory_kib())
                await asyncio.sleep(0.2)

        async def run():
            watcher = asyncio.create_task(watch())
            random.seed(1)
            results = await asyncio.gather(*(one(server.port, i, random.random() < share) for i in range(STREAMS)))
            watcher.cancel()
            return results

        results = asyncio.run(run())
        assert share or all(results)
        assert server.becomes_idle()
        assert server.metric("hadal_cache_free_tokens") == free
        print(f"{STREAMS} streams, {results.count(False)} dropped: memory {before / 1024:.0f} MiB before, at most {peak / 1024:.0f} MiB, "
              f"{(peak - before) / STREAMS:.1f} KiB a stream")
        # Coroutines, buffers and parser of a connection, and a request's text state; sockets' own memory is the kernel's.
        assert (peak - before) / STREAMS < 128
    finally:
        server.stop()
