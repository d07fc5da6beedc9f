"""A real llama.cpp server with the flags of `llama-server` that the tests need, until it is told to end."""

from __future__ import annotations

import argparse
import signal


def main() -> None:
    import xllamacpp  # of use in the server's process only

    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("-ub", "--ubatch-size", type=int, default=512)
    parser.add_argument("-b", "--batch-size", type=int, default=2048)
    parser.add_argument("-c", "--ctx-size", type=int, default=4096)
    args = parser.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1  # threads that wait for each other take minutes on a busy machine
    params.port = args.port
    params.n_parallel = args.parallel
    params.n_ubatch = args.ubatch_size
    params.n_batch = args.batch_size
    params.n_ctx = args.ctx_size
    params.endpoint_metrics = True
    params.endpoint_slots = True
    server = xllamacpp.Server(params)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
