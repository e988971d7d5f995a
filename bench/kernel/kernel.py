"""A client of ipykernel for the bench.

It reads commands from stdin and answers each with one line of JSON on stdout: seconds.

    start   start another kernel, and the time to the first value; the one before is ended first
    run N   N times `1+1` in the kernel, each with its time until the value and the reply are there
"""

import json
import sys
import time

from jupyter_client.manager import KernelManager

TIMEOUT = 60


def run(client):
    began = time.perf_counter()
    sent = client.execute("1+1")
    value = None
    while value is None:
        message = client.get_iopub_msg(timeout=TIMEOUT)
        if message["parent_header"].get("msg_id") == sent and message["msg_type"] == "execute_result":
            value = message["content"]["data"]["text/plain"]
    while True:
        reply = client.get_shell_msg(timeout=TIMEOUT)
        if reply["parent_header"].get("msg_id") == sent:
            break
    if value != "2" or reply["content"]["status"] != "ok":
        raise RuntimeError("the kernel replied %r" % reply["content"])
    return time.perf_counter() - began


def start():
    began = time.perf_counter()
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=TIMEOUT)
    run(client)
    return manager, client, time.perf_counter() - began


def end(manager, client):
    if manager is not None:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


manager = client = None
try:
    for line in sys.stdin:
        command = line.split()
        if command[0] == "start":
            end(manager, client)
            manager, client, took = start()
            times = [took]
        else:
            times = [run(client) for _ in range(int(command[1]))]
        print(json.dumps(times), flush=True)
finally:
    end(manager, client)
